"""The short way of a call that has been made before: from arguments to the driver without deciding anything again.

The first call with certain arguments takes the long way (`launch.launch_kernel`): it is checked, compiled and launched,
and what was found is remembered as a plan, under everything that it depends on: the classes of the arguments, of each
array extents, strides, dtype, device, alignment, whatever else its class can tell, and the thread's current context. A
later call reads these, looks the plan up, writes addresses and numbers into a block of parameters and calls the driver.
What is not found, cannot be read or overlaps goes the long way, which says what is wrong with it.

The function that does so is written out per tuple of argument classes, for there is nothing to loop over then. Each
class of arrays has a row here that says how it is read. Blocks come from a list of idle ones (taking from and adding to
a list is atomic), so that threads do not wait for each other and never share one.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from wavedsl.ir.kernel_ir import Param
from wavedsl.ir.loc import Loc
from wavedsl.runtime import arrays, cuda, dlpack, in_flight, streams
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.devices import Driver
from wavedsl.runtime.parameters import ParameterBlock, tensor_map

PLANS = 1024
"""Plans that one kernel remembers per tuple of classes; with more, it starts afresh."""
KEPT_MAPS = 256
"""Tensor maps that a plan remembers per array."""
ADDRESS_KEY = 0xFFFF << 48 | 15
"""Bits of an address that a plan depends on: its alignment, and that no address is longer than 48 bits."""


@dataclass(frozen=True)
class Reader:
    """How arrays of one class are read: Python text in which `{x}` is the array and `{i}` its number.

    `first` comes before; `key` are the facts that tell plans apart; `pointer` gives the address, `stream` the stream
    that the array names itself (None if it may name none). `ordered`: memory of this class goes back to its allocator
    in the order of the current stream. `export` is what keeps the memory alive beside the array.
    """

    key: tuple[str, ...]
    pointer: str
    first: str = ""
    stream: str = ""
    ordered: bool = False
    export: str = ""


TORCH = Reader(
    # A tensor that requires a gradient, or is a lazy negation, is refused by the long way.
    ("{x}.shape", "{x}.stride()", "{x}.dtype", "{x}.device", "{x}.requires_grad", "{x}.is_neg()"),
    "{x}.data_ptr()",
    ordered=True,
)
CUPY = Reader(("{x}.shape", "{x}.strides", "{x}.dtype", "{x}.data.device_id"), "{x}.data.ptr", ordered=True)
DLPACK = Reader(dlpack.KEY, "p{i}", export="c{i}")
INTERFACE = Reader(
    ("f{i}['shape']", "f{i}.get('strides')", "f{i}['typestr']", "f{i}.get('mask')", "q{i}"),
    "p{i}",
    "f{i} = {x}.__cuda_array_interface__\n        p{i}, q{i} = f{i}['data']",
    stream="f{i}.get('stream')",
)


def reader_of(value: Any, rank: int) -> Reader | None:
    """The row for arrays of the class of `value` with `rank` dimensions; None for host arrays, which have no short
    way."""
    kind = type(value)
    package = streams.package_of(kind)
    own = kind.__module__.partition(".")[0] == package  # derived classes may answer otherwise
    if own and package == "torch" and kind.__name__ in ("Tensor", "Parameter"):
        return TORCH
    if own and package == "cupy" and kind.__name__ == "ndarray":
        return CUPY
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return replace(DLPACK, first=dlpack.first(value, rank, bool(package)), ordered=bool(package))
    # The interface is often a property that only makes sense on an array of a device: it is asked of the array.
    if not hasattr(value, "__cuda_array_interface__"):
        return None
    which = ("number({x}, p{i})",) if cuda.several() else ()
    return replace(INTERFACE, key=INTERFACE.key + which, ordered=bool(package))


_FLOATS = (float, np.float64, np.float32)
_INTS = (int, bool, np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8)
_CODES: dict[str, tuple[str, tuple[type, ...]]] = {
    "f64": ("d", (*_FLOATS, int)),
    "f32": ("f", _FLOATS),
    "f16": ("e", _FLOATS),
    **{f"i{8 * n}": (code, _INTS) for n, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))},
    **{f"u{8 * n}": (code, _INTS) for n, code in ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))},
}
"""Dtype → how `struct` writes it, and the classes of numbers that it rounds and refuses as `pack_scalar` does."""


class Dispatch:
    """The short ways of one kernel, by the classes of the arguments. Any of it may be used by several threads."""

    def __init__(self) -> None:
        self.ways: dict[tuple[type, ...], Callable[..., bool]] = {}
        self._written: dict[tuple[type, ...], _Way] = {}
        self._writing = threading.Lock()

    def remember(
        self,
        params: Sequence[Param],
        values: Sequence[Any],
        described: Sequence[ArrayRef | bytes],
        launch: tuple[Driver, Any, tuple[int, int, int], tuple[int, int, int]],
        where: Loc | None,
    ) -> None:
        """Make the call that has just been launched a short one from now on, if its arguments are of classes that can
        be read. `described` has an entry per parameter, `values` are the arguments as given; `launch` is the driver,
        the loaded function, and the grid's and the workgroup's size."""
        driver = launch[0]
        classes = tuple(map(type, values))
        with self._writing:  # or two threads would write two ways, and one of them would be looked up in vain
            way = self._written.get(classes)
            if way is None:
                declared = [p for p in params if not p.source]
                refs = [d for p, d in zip(params, described) if not p.source]
                readers = {
                    p.name: reader_of(v, len(ref.shape))
                    for p, v, ref in zip(declared, values, refs)
                    if isinstance(ref, ArrayRef)
                }
                if not all(readers.values()):
                    return
                way = self._written[classes] = _Way(declared, classes, readers, driver, where)
            if way.kind != driver.device.kind:  # DLPack arrays of both vendors in one process
                return
            form = way.form_of(params)
            if len(way.plans) >= PLANS:
                way.plans.clear()
            way.plans[way.key(*values)] = (form, *_plan(params, values, described, *launch))
            self.ways[classes] = way.run

    def forget(self) -> None:
        """Every call takes the long way once more."""
        with self._writing:
            self.ways.clear()
            self._written.clear()


def _plan(
    params: Sequence[Param],
    values: Sequence[Any],
    described: Sequence[ArrayRef | bytes],
    driver: Driver,
    function: Any,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
) -> tuple[Any, ...]:
    """What the written function takes out of the table behind the number of the form, in the order in which it unpacks
    it."""
    idle: list[Any] = []
    context = driver.current()
    # A plan holds no array: addresses and numbers are written in each call.
    fixed = [v if isinstance(v, bytes) else bytes(p.size) for p, v in zip(params, described)]

    def make() -> tuple[Any, Callable[[int], None], Any]:
        fresh = ParameterBlock(params, fixed, {}, driver)
        return fresh.memory, within(driver, function, grid, block, fresh.address, context), fresh

    ordered = [type(v) for v in values if arrays.is_array(v) and streams.package_of(type(v))]
    now = streams.current_of(ordered[0], driver.device.index) if ordered else None
    sizes: list[int] = []
    rest: list[Any] = []
    for param, value in zip(params, described):
        if isinstance(value, ArrayRef):
            if not param.source:
                sizes.append(value.extent_bytes()[1] - value.pointer)
            if param.map is not None:
                rest.append(_Maps(driver, tensor_map(param, value)))
        elif param.source:
            rest.append(value)
    return idle, make, now, in_flight.of(driver), *sizes, tuple(rest)


def within(
    driver: Driver, function: Any, grid: tuple[int, int, int], block: tuple[int, int, int], params: int, context: int
) -> Callable[[int], None]:
    """`driver.prepared` for threads in `context`: where that is not the function's, the device is entered and left."""
    start = driver.prepared(function, grid, block, params)
    if function.context == context:
        return start

    def enter_and_start(stream: int) -> None:
        with driver.entered():
            start(stream)

    return enter_and_start


class _Maps(dict):
    """Address → tensor map of arrays that differ in nothing else."""

    def __init__(self, driver: Driver, spec: Mapping[str, Any]):
        super().__init__()
        self._encode = lambda address: driver.tensor_map(address, **spec)

    def __missing__(self, address: int) -> bytes:
        if len(self) >= KEPT_MAPS:
            self.clear()
        found = self[address] = self._encode(address)
        return found


class _Way:
    """The short way for arguments of certain classes, its table of plans, and the key that a call has there.

    Calls with the same classes may run texts whose parameters differ: with tensor maps and without, with other hidden
    numbers. Each such form is a branch; the function is written again when a new one comes.
    """

    def __init__(
        self,
        declared: Sequence[Param],
        classes: Sequence[type],
        readers: Mapping[str, Any],
        driver: Driver,
        where: Loc | None,
    ):
        self.kind = driver.device.kind
        self.plans: dict[Any, Any] = {}
        self._numbers = {p.name: i for i, p in enumerate(declared)}
        self._readers: list[tuple[int, Reader]] = [(self._numbers[name], reader) for name, reader in readers.items()]
        self._classes = classes
        self._where = where
        self._forms: dict[Any, int] = {}
        self._branches: list[str] = []
        self._names: dict[str, Any] = {
            "plans": self.plans,
            "current": driver.current,
            "capturing": driver.capturing,
            "capsule_pointer": dlpack.capsule_pointer,
            "memory": dlpack.memory,
            "words": dlpack.words,
            "number": arrays.device_number,
        }
        self._first: list[str] = []
        key = ["current()"]
        for i, reader in self._readers:
            spelled = {"x": f"a{i}", "i": i}
            if reader.first:
                self._first.append(reader.first.format(**spelled))
            if reader.pointer != "p{i}":
                self._first.append(f"p{i} = {reader.pointer.format(**spelled)}")
            key += [part.format(**spelled) for part in reader.key]
            key.append(f"p{i} & {ADDRESS_KEY:#x}")
        self._key = ", ".join(key)
        self.key: Callable[..., Any]
        self.run: Callable[..., bool]

    def form_of(self, params: Sequence[Param]) -> int:
        """The number of the branch for these parameters, which is written if there is none."""
        shape = tuple([(p.name, p.offset, p.size, p.source, p.access, p.map and p.map.array) for p in params])
        found = self._forms.get(shape)
        if found is None:
            found = len(self._forms)
            self._branches.append(self._branch(params, found))
            self._write()
            self._forms[shape] = found
        return found

    def _branch(self, params: Sequence[Param], form: int) -> str:
        """Lines that fill a block of parameters, `rest` being what plans of this form have beside the common part."""
        rest: list[str] = []
        values: list[str] = []
        layout, at = "<", 0
        for param in params:
            owner = param.map.array if param.source and param.map is not None else param.name
            i = self._numbers.get(owner, -1)
            layout += f"{param.offset - at}x"
            at = param.offset + param.size
            if param.map is not None:
                rest.append(f"m{len(rest)}")
                values.append(f"{rest[-1]}[p{i}]")
                layout += f"{param.size}s"
            elif param.source:
                rest.append(f"k{len(rest)}")
                values.append(rest[-1])
                layout += f"{param.size}s"
            elif param.kind != "scalar":
                values.append(f"p{i}")
                layout += "Q"
            else:
                layout += self._number(param, i, values)
        self._names[f"pack{form}"] = struct.Struct(layout).pack_into
        written = [self._numbers[p.name] for p in params if not p.source and p.kind != "scalar" and p.access != "read"]
        pairs = [(w, i) for w in written for i, _ in self._readers if i != w and not (i in written and i < w)]
        apart = " or ".join(f"p{w} < p{i} + n{i} and p{i} < p{w} + n{w}" for w, i in pairs)
        lines = [
            *([f"if {apart}: return False"] if apart else []),
            *([f"{', '.join(rest)}, = rest"] if rest else []),
            "block = idle.pop() if idle else make()",
            f"pack{form}(block[0], 0, {', '.join(values)})",
        ]
        return "\n            ".join(lines)

    def _number(self, param: Param, i: int, values: list[str]) -> str:
        """How scalar `i` is written; numbers that `struct` does not write as we do are packed first."""
        assert param.dtype is not None
        code, good = _CODES.get(param.dtype.name, ("", ()))
        if self._classes[i] in good:
            values.append(f"a{i}")
            return f"{code}{param.size - struct.calcsize('<' + code)}x"
        name, dtype, size, where = param.name, param.dtype, param.size, self._where
        self._names[f"bytes{i}"] = lambda value: arrays.pack_scalar(value, name, dtype, size, where)
        values.append(f"bytes{i}(a{i})")
        return f"{param.size}s"

    def _write(self) -> None:
        """Write `key` and `run`, with all branches."""
        given = ", ".join(f"a{i}" for i in range(len(self._classes)))
        first = "\n        ".join(self._first) or "pass"
        sizes = "".join(f"n{i}, " for i, _ in self._readers)
        used = "".join(f"a{i}, " for i, _ in self._readers)
        exports = "".join(reader.export.format(i=i) + ", " for i, reader in self._readers if reader.export)
        addresses = "".join(f"p{i}, " for i, _ in self._readers)
        ordered = all(reader.ordered for _, reader in self._readers)
        stream = "\n        ".join(_stream(self._readers))
        branches = "\n        el".join(f"if form == {n}:\n            {b}" for n, b in enumerate(self._branches))
        source = f"""
def key({given}):
        {first}
        return ({self._key},)

def way({given}):
    try:
        {first}
        form, idle, make, now, held, {sizes}rest = plans[{self._key},]
        {stream}
        {branches}
        else:  # written after this way
            return False
    except Exception:  # whatever is unusual about a call, the long way knows what to say
        return False
    block[1](stream)
    idle.append(block)
    if stream > 1 and capturing(stream):
        held.hold_for_graph(stream, ({used}{exports}))
    {'' if ordered else f'else: held.hold(stream, ({used}), ({exports}), ({addresses}))'}
    return True
"""
        exec(compile(source, "<the short way of a call>", "exec"), self._names)
        self.key, self.run = self._names["key"], self._names["way"]


def _stream(arrays_of: Sequence[tuple[int, Reader]]) -> list[str]:
    """Lines that give `stream`: the first that an array names or its package has, else the default stream."""
    lines = ["stream = None"]
    for i, reader in arrays_of:
        if reader.stream:
            lines.append(f"if stream is None: stream = {reader.stream.format(x=f'a{i}', i=i)}")
        if reader.ordered:
            return [*lines, "if stream is None: stream = now()"] if len(lines) > 1 else ["stream = now()"]
    lines.append("if stream is None: stream = 0")
    return lines
