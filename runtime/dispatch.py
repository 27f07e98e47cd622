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
from wavedsl.runtime import arrays, cuda, in_flight, streams
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.devices import Driver
from wavedsl.runtime.parameters import ParameterBlock, tensor_map
from wavedsl.runtime.workspace import ROOMS, TICKETS, Room, need_of
from wavedsl.runtime.workspace import of as workspaces_of

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
    in the order of the current stream. `kept` is what keeps the memory alive.
    """

    key: tuple[str, ...]
    pointer: str
    first: str = ""
    stream: str = ""
    ordered: bool = False
    kept: str = "{x}"


TORCH = Reader(
    # A tensor that requires a gradient, or is a lazy negation, is refused by the long way.
    ("{x}.shape", "{x}.stride()", "{x}.dtype", "{x}.device", "{x}.requires_grad", "{x}.is_neg()"),
    "{x}.data_ptr()",
    ordered=True,
)
CUPY = Reader(("{x}.shape", "{x}.strides", "{x}.dtype", "{x}.data.device_id"), "{x}.data.ptr", ordered=True)
DLPACK = Reader(("f{i}",), "p{i}", "p{i}, c{i}, f{i} = read_dlpack({x})", kept="({x}, c{i})")
INTERFACE = Reader(
    ("f{i}['shape']", "f{i}.get('strides')", "f{i}['typestr']", "f{i}.get('mask')", "q{i}"),
    "p{i}",
    "f{i} = {x}.__cuda_array_interface__\n        p{i}, q{i} = f{i}['data']",
    stream="f{i}.get('stream')",
)


def reader_of(value: Any) -> Reader | None:
    """The row for arrays of the class of `value`; None for host arrays, which have no short way."""
    kind = type(value)
    package = streams.package_of(kind)
    own = kind.__module__.partition(".")[0] == package  # derived classes may answer otherwise
    if own and package == "torch" and kind.__name__ in ("Tensor", "Parameter"):
        return TORCH
    if own and package == "cupy" and kind.__name__ == "ndarray":
        return CUPY
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return replace(DLPACK, ordered=bool(package))
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


@dataclass
class _Text:
    """A function being written: its lines by part, and what they refer to."""

    first: list[str]
    key: list[str]
    plan: list[str]
    values: list[str]
    names: dict[str, Any]


class Dispatch:
    """The short ways of one kernel, by the classes of the arguments. Any of it may be used by several threads."""

    def __init__(self) -> None:
        self.ways: dict[tuple[type, ...], Callable[..., bool]] = {}
        self._plans: dict[tuple[type, ...], tuple[str, dict[Any, Any], Callable[..., Any]]] = {}
        self._writing = threading.Lock()

    def remember(
        self,
        params: Sequence[Param],
        values: Sequence[Any],
        described: Sequence[ArrayRef | bytes | Room],
        launch: tuple[Driver, Any, tuple[int, int, int], tuple[int, int, int]],
        where: Loc | None,
    ) -> None:
        """Make the call that has just been launched a short one from now on, if its arguments are of classes that can
        be read. `described` has an entry per parameter, `values` are the arguments as given; `launch` is the driver,
        the loaded function, and the grid's and the workgroup's size."""
        driver = launch[0]
        classes = tuple(map(type, values))
        declared = [p for p in params if not p.source]
        readers = {
            p.name: reader_of(v) for p, v in zip(declared, values) if p.kind != "scalar"
        }
        if not all(readers.values()):
            return
        with self._writing:  # or two threads would write two ways, and one of them would be looked up in vain
            known = self._plans.get(classes)
            if known is None:
                key, plans, way = _written(params, classes, readers, driver, where)
                self._plans[classes] = (driver.device.kind, plans, key)
            else:
                kind, plans, key = known
                if kind != driver.device.kind:  # DLPack arrays of both vendors in one process
                    return
                way = self.ways[classes]
            if len(plans) >= PLANS:
                plans.clear()
            plans[key(*values)] = _plan(params, values, described, *launch)
            self.ways[classes] = way

    def forget(self) -> None:
        """Every call takes the long way once more."""
        with self._writing:
            self.ways.clear()
            self._plans.clear()


def _plan(
    params: Sequence[Param],
    values: Sequence[Any],
    described: Sequence[ArrayRef | bytes | Room],
    driver: Driver,
    function: Any,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
) -> tuple[Any, ...]:
    """What the written function takes out of the table, in the order in which it unpacks it."""
    idle: list[Any] = []
    context = driver.current()
    # A plan holds no array: addresses and numbers are written in each call.
    fixed = [v if isinstance(v, bytes) else bytes(p.size) for p, v in zip(params, described)]

    def make() -> tuple[Any, Callable[[int], None], Any]:
        fresh = ParameterBlock(params, fixed, {}, driver)
        return fresh.memory, within(driver, function, grid, block, fresh.address, context), fresh

    ordered = [type(v) for v in values if arrays.is_array(v) and streams.package_of(type(v))]
    now = streams.current_of(ordered[0], driver.device.index) if ordered else None
    need = need_of(described)
    places = {} if need is None else {i: at for i, _, at in need.places}
    out: list[Any] = [idle, make, now] if need is None else [idle, make, now, need]
    for i, (param, value) in enumerate(zip(params, described)):
        if isinstance(value, Room):
            out.append(places[i])
        elif isinstance(value, ArrayRef):
            if not param.source:
                out.append(value.extent_bytes()[1] - value.pointer)
            if param.map is not None:
                out.append(_Maps(driver, tensor_map(param, value)))
        elif param.source:
            out.append(value)
    return tuple(out)


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


def _written(
    params: Sequence[Param],
    classes: Sequence[type],
    readers: Mapping[str, Any],
    driver: Driver,
    where: Loc | None,
) -> tuple[Callable[..., Any], dict[Any, Any], Callable[..., bool]]:
    """(the key of a call, the table of plans, the short way) for arguments of certain classes."""
    plans: dict[Any, Any] = {}
    held = in_flight.of(driver)
    text = _Text([], ["current()"], ["idle", "make", "now"], [], {
        "plans": plans,
        "current": driver.current,
        "capturing": driver.capturing,
        "hold": held.hold,
        "hold_for_graph": held.hold_for_graph,
        "read_dlpack": arrays.read_dlpack,
        "number": arrays.device_number,
    })  # fmt: skip
    rooms = [p for p in params if p.source in ROOMS]
    if rooms:
        text.plan.append("need")
        text.names["lend"] = workspaces_of(driver).lend
    numbers: dict[str, int] = {}
    form, at = "<", 0
    for param in params:
        if not param.source:
            i = numbers[param.name] = len(numbers)
            reader = readers.get(param.name)
            if reader is not None:
                _read(text, reader, i)
        i = numbers[param.map.array] if param.source and param.map is not None else numbers.get(param.name, -1)
        form += f"{param.offset - at}x"
        at = param.offset + param.size
        if param.map is not None:
            text.plan.append(f"m{len(text.plan)}")
            text.values.append(f"{text.plan[-1]}[p{i}]")
            form += f"{param.size}s"
        elif param.source in ROOMS:
            text.plan.append(f"o{len(text.plan)}")
            piece = "counters" if param.source == TICKETS else "sums"
            text.values.append(f"loan.{piece} + {text.plan[-1]}")
            form += "Q"
        elif param.source:
            text.plan.append(f"k{len(text.plan)}")
            text.values.append(text.plan[-1])
            form += f"{param.size}s"
        elif param.kind != "scalar":
            text.values.append(f"p{i}")
            form += "Q"
        else:
            form += _number(text, param, i, classes[i], where)
    names = [f"a{i}" for i in range(len(classes))]
    arrays_of = [(numbers[n], r) for n, r in readers.items()]
    written = [numbers[p.name] for p in params if not p.source and p.kind != "scalar" and p.access != "read"]
    pairs = [(w, i) for w in written for i, _ in arrays_of if i != w and not (i in written and i < w)]
    apart = " or ".join(f"p{w} < p{i} + n{i} and p{i} < p{w} + n{w}" for w, i in pairs)
    borrowed = "loan = lend(stream, need)" if rooms else ""
    kept = ", ".join(reader.kept.format(x=f"a{i}", i=i) for i, reader in arrays_of)
    ordered = all(reader.ordered for _, reader in arrays_of)
    text.names["pack"] = struct.Struct(form).pack_into
    first = "\n        ".join([*text.first]) or "pass"
    key = ", ".join(text.key)
    stream = "\n        ".join(_stream(arrays_of))
    source = f"""
def key({', '.join(names)}):
        {first}
        return ({key},)

def way({', '.join(names)}):
    try:
        {first}
        {', '.join(text.plan)}, = plans[{key},]
        if {apart or 'False'}:
            return False
        {stream}
        {borrowed}
        block = idle.pop() if idle else make()
        pack(block[0], 0, {', '.join(text.values)})
    except Exception:  # whatever is unusual about a call, the long way knows what to say
        return False
    block[1](stream)
    idle.append(block)
    if stream > 1 and capturing(stream):
        hold_for_graph(stream, ({kept}, {'loan' if rooms else ''}))
    {'' if ordered else f'else: hold(stream, ({kept},))'}
    return True
"""
    exec(compile(source, "<the short way of a call>", "exec"), text.names)
    return text.names["key"], plans, text.names["way"]


def _read(text: _Text, reader: Reader, i: int) -> None:
    """What reads array `i`."""
    spelled = {"x": f"a{i}", "i": i}
    if reader.first:
        text.first.append(reader.first.format(**spelled))
    if reader.pointer != "p{i}":
        text.first.append(f"p{i} = {reader.pointer.format(**spelled)}")
    text.key += [k.format(**spelled) for k in reader.key]
    text.key.append(f"p{i} & {ADDRESS_KEY:#x}")
    text.plan.append(f"n{i}")


def _number(text: _Text, param: Param, i: int, kind: type, where: Loc | None) -> str:
    """How scalar `i` is written; numbers that `struct` does not write as we do are packed first."""
    assert param.dtype is not None
    code, good = _CODES.get(param.dtype.name, ("", ()))
    if kind in good:
        text.values.append(f"a{i}")
        return f"{code}{param.size - struct.calcsize('<' + code)}x"
    name, dtype, size = param.name, param.dtype, param.size
    text.names[f"pack{i}"] = lambda value: arrays.pack_scalar(value, name, dtype, size, where)
    text.values.append(f"pack{i}(a{i})")
    return f"{param.size}s"


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
