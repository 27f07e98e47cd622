"""The short way of a call that has been made before: from arguments to the driver without deciding anything again.

The first call with certain arguments takes the long way (`launch.launch_kernel`): it is checked, compiled and launched,
and what was found is remembered as a plan, under everything that it depends on: the classes of the arguments, of each
array extents, strides, dtype, device, alignment, whatever else its class can tell, and the thread's current context. A
later call reads these, looks the plan up, writes addresses and numbers into a block of parameters and calls the driver.
What is not found, cannot be read or overlaps goes the long way, which says what is wrong with it.

To ask a tensor of torch's for one fact after the other takes longer than all the rest. Arrays for which there are
guards (`tensor_guard`) are compared with those of an earlier call at the same addresses; the key is made where they
differ.

The function that does so is written out per tuple of argument classes, for there is nothing to loop over then. Each
class of arrays has a row here that says how it is read. Blocks come from a list of idle ones (taking from and adding to
a list is atomic), so that threads do not wait for each other and never share one.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from wavedsl.ir.kernel.kernel_ir import Param, TensorBoxes
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime import arrays, cuda, dlpack, in_flight, run_time_extents, streams, tensor_guard
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.devices import Driver
from wavedsl.runtime.parameters import ParameterBlock, map_geometry, tensor_map
from wavedsl.runtime.ways import Ways
from wavedsl.runtime.workspace import ROOMS, TICKETS, need_of
from wavedsl.runtime.workspace import of as workspaces_of

PLANS = 1024
"""Plans that one kernel remembers per tuple of classes; with more, it starts afresh."""
KEPT_MAPS = 256
"""Tensor maps that a plan remembers per array."""
KEPT_PLACES = 256
"""Addresses of all arrays, taken together, that a plan remembers to have been looked at."""
KNOWN = 4096
"""Calls that are found by addresses and size, for arrays that one call can compare with those of an earlier call."""
RECENT = 2
"""Plans that such a call tries before a key is made, if it is not found so."""
RENEWED = 16
"""Of so many calls whose plan was not among those, one has its own put there instead of the oldest."""
_PLACES = 5
"""Where a plan has the addresses that were looked at."""
ALIGNMENT_KEY = 15
"""Bits of an address that a plan depends on: its alignment."""
ADDRESS_BITS = 48
"""Bits that no address is longer than; longer ones go the long way."""


@dataclass(frozen=True)
class Reader:
    """How arrays of one class are read: Python text in which `{x}` is the array and `{i}` its number.

    `first` comes before; `key` are the facts that tell plans apart beside extents and strides, which `shape` are as the
    object has them and `geometry`, evaluated behind the key, as numbers, strides in bytes of elements of `{size}`.
    `pointer` gives the address, `stream` the stream that the array names itself (None if it may name none). `ordered`:
    memory of this class goes back to its allocator in the order of the current stream. `export` is what keeps the
    memory alive beside the array. `guarded`: `tensor_guard` may compare such arrays.
    """

    shape: tuple[str, str]
    geometry: str
    key: tuple[str, ...]
    pointer: str
    first: str = ""
    stream: str = ""
    ordered: bool = False
    export: str = ""
    guarded: bool = False


TORCH = Reader(
    # A tensor that requires a gradient, or is a lazy negation, is refused by the long way.
    ("(e{i} := {x}.shape)", "(s{i} := {x}.stride())"),
    "e{i}, [{size} * s for s in s{i}]",
    ("{x}.dtype", "{x}.device", "{x}.requires_grad", "{x}.is_neg()"),
    "{x}.data_ptr()",
    ordered=True,
    guarded=True,
)
CUPY = Reader(
    ("(e{i} := {x}.shape)", "(s{i} := {x}.strides)"),
    "e{i}, s{i}",
    ("{x}.dtype", "{x}.data.device_id"),
    "{x}.data.ptr",
    ordered=True,
)
DLPACK = Reader(dlpack.SHAPE, dlpack.GEOMETRY, (), "p{i}", export="c{i}")
INTERFACE = Reader(
    ("f{i}['shape']", "f{i}.get('strides')"),
    "f{i}['shape'], f{i}.get('strides') or row_major(f{i}['shape'], {size})",
    ("f{i}['typestr']", "f{i}.get('mask')", "q{i}"),
    "p{i}",
    "f{i} = {x}.__cuda_array_interface__\n        p{i}, q{i} = f{i}['data']",
    stream="f{i}.get('stream')",
)


def reader_of(value: Any, ref: ArrayRef) -> Reader | None:
    """The row for arrays of the class, rank and dtype of `value`, whose reference is `ref`; None for host arrays, which
    have no short way."""
    kind = type(value)
    package = streams.package_of(kind)
    own = kind.__module__.partition(".")[0] == package  # derived classes may answer otherwise
    if own and package == "torch" and kind.__name__ in ("Tensor", "Parameter"):
        return TORCH
    if own and package == "cupy" and kind.__name__ == "ndarray":
        return CUPY
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        first, key = dlpack.first(value, len(ref.shape), bool(package))
        return replace(DLPACK, first=first, key=key, ordered=bool(package))
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
    """The short ways of one kernel, by the classes of the arguments. Any of it may be used by several threads.

    With `buckets` they are those of a tuned kernel, whose choice depends on the bucket of each run-time extent; where a
    dimension has none, on the extent.
    """

    def __init__(self, buckets: Mapping[Any, Sequence[int]] | None = None) -> None:
        self._buckets = buckets
        self.ways = Ways()
        self._written: dict[tuple[type, ...], _Way] = {}
        self._writing = threading.Lock()

    def remember(
        self, kernel: Any, compiled: Any, values: Sequence[Any], call: Any, driver: Driver, function: Any
    ) -> None:
        """Make the call that has just been launched a short one from now on, if its arguments are of classes that can
        be read; and those that differ in run-time extents only. `values` are the arguments as given, `call` is what
        `prepare.prepare` made of them, `function` the driver's loaded entry."""
        classes = tuple(map(type, values))
        refs = {p.name: r for p, r in zip(compiled.params, call.values) if isinstance(r, ArrayRef) and not p.source}
        # The call has been launched: arrays that refuse to be read once more are no reason for it to fail.
        # One thread at a time: two would write two ways, and one of them would be looked up in vain.
        with suppress(Exception), self._writing:
            way = self._written.get(classes)
            if way is None:
                declared = [p for p in compiled.params if not p.source]
                readers = {p.name: reader_of(v, refs[p.name]) for p, v in zip(declared, values) if p.name in refs}
                if not all(readers.values()):
                    return
                way = self._written[classes] = _Way(
                    declared, classes, readers, driver, compiled.location, self._buckets
                )
            if way.kind != driver.device.kind:  # DLPack arrays of both vendors in one process
                return
            way.add(kernel, compiled, values, refs, call, driver, function)
            self.ways[classes] = way.run

    def known(self) -> list[_Way]:
        """The ways that there are."""
        return list(self._written.values())

    def forget(self) -> None:
        """Every call takes the long way once more."""
        with self._writing:
            self.ways.clear()
            self._written.clear()


def within(
    driver: Driver, function: Any, block: tuple[int, int, int], params: int, context: int
) -> Callable[[int, tuple[int, int, int]], None]:
    """`driver.prepared` for threads in `context`: where that is not the function's, the device is entered and left."""
    start = driver.prepared(function, block, params)
    if function.context == context:
        return start

    def enter_and_start(stream: int, grid: tuple[int, int, int]) -> None:
        with driver.entered():
            start(stream, grid)

    return enter_and_start


class _Maps(dict):
    """Address → tensor map of arrays that differ in nothing else. `made` gives one from address, sizes and strides."""

    def __init__(self, made: Callable[..., bytes], dims: tuple[int, ...], strides: tuple[int, ...], shift: int):
        super().__init__()
        self.made, self._dims, self._strides, self._shift = made, dims, strides, shift

    def other(self, boxes: TensorBoxes, extents: tuple[int, ...], strides: tuple[int, ...]) -> _Maps:
        """The same of arrays with other extents and strides in bytes."""
        return _Maps(self.made, *map_geometry(boxes, extents, strides))

    def __missing__(self, address: int) -> bytes:
        if len(self) >= KEPT_MAPS:
            self.clear()
        found = self[address] = self.made(address + self._shift, self._dims, self._strides)
        return found


def _reach(ref: ArrayRef) -> int:
    """Bytes from an array's address to its end."""
    return ref.extent_bytes()[1] - ref.pointer


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
        buckets: Mapping[Any, Sequence[int]] | None,
    ):
        self._buckets = buckets
        self.kind = driver.device.kind
        self.plans: dict[Any, Any] = {}
        self._numbers = {p.name: i for i, p in enumerate(declared)}
        self._known: dict[tuple[int, ...], tuple[Any, ...]] = {}
        """Addresses and a size → what compares arrays with those that were there, their context and plan."""
        self._readers: list[tuple[int, Reader]] = [(self._numbers[name], reader) for name, reader in readers.items()]
        self._classes = classes
        self._where = where
        self._forms: dict[Any, int] = {}
        self._fits: list[Callable[..., bool]] = []
        """By form: whether arrays at such addresses, which reach so far, are neither null nor overlap an output."""
        self._branches: list[str] = []
        self._names: dict[str, Any] = {
            "plans": self.plans,
            "current": driver.current,
            "capturing": driver.capturing,
            "number": arrays.device_number,
            **dlpack.NAMES,
            "further": self._further,
            "known": self._known,
            "unknown": (None, None, None),
            "recent": (),
            "seen": self._seen,
            "know": self._know,
            "fit": self._fit,
            **{f"T{i}": kind for i, kind in enumerate(classes)},
        }
        self._guarded = all(reader.guarded for _, reader in self._readers) and tensor_guard.usable()
        self._guards: dict[Any, Callable[..., bool] | None] = {}
        """By key: what compares arrays with those of its plan."""
        self._unlike = 0
        self._first: list[str] = []
        geometry: list[str] = []
        shapes: list[str] = []
        key = ["context"]
        for i, reader in self._readers:
            storage = declared[i].dtype.storage
            spelled = {"x": f"a{i}", "i": i, "size": storage.itemsize}
            shapes += [part.format(**spelled) for part in reader.shape]
            geometry.append(f"({reader.geometry.format(**spelled)})")
            if reader.first:
                self._first.append(reader.first.format(**spelled))
            if reader.pointer != "p{i}":
                self._first.append(f"p{i} = {reader.pointer.format(**spelled)}")
            key += [part.format(**spelled) for part in reader.key]
            key.append(f"p{i} & {ALIGNMENT_KEY}")
        self._key = ", ".join([*shapes, *key])
        self._beside = len(shapes)
        """Where a key goes on behind extents and strides."""
        self._geometry = ", ".join(geometry)
        self._families: dict[Any, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        self._relied: Callable[..., Any] | None = None
        self._blocks: dict[Any, tuple[list[Any], Callable[[], Any]]] = {}
        self._read: Callable[..., Any]
        self.run: Callable[..., bool]

    def add(
        self,
        kernel: Any,
        compiled: Any,
        values: Sequence[Any],
        refs: Mapping[str, ArrayRef],
        call: Any,
        driver: Driver,
        function: Any,
    ) -> None:
        """Remember the plan of a call, and how calls with other run-time extents get theirs."""
        form = self._form_of(compiled.params)
        key, geometry = self._read(*values)
        context = driver.current()
        ordered = [type(values[i]) for i, reader in self._readers if reader.ordered]
        now = streams.current_of(ordered[0], driver.device.index) if ordered else None
        rest: list[Any] = []
        need = need_of(call.values)
        places = {} if need is None else {i: at for i, _, at in need.places}
        if need is not None:
            rest += [workspaces_of(driver).lend, need]
        for i, (param, value) in enumerate(zip(compiled.params, call.values)):
            if i in places:
                rest.append(places[i])
            elif param.map is not None:
                spec = tensor_map(param, value)
                maps = _Maps(driver.tensor_maps(**spec), spec["dims"], spec["strides"], spec["shift"])
                maps[value.pointer] = driver.tensor_map(value.pointer, **spec)  # made for this very call
                rest.append(maps)
            elif param.source:
                rest.append(value)
        idle, make = self._blocks_of(compiled.params, call, driver, function, context)
        front = (form, idle, make, now, in_flight.of(driver))
        self._remember(key, (*front, set(), [_reach(r) for r in refs.values()], call.grid, tuple(rest)))
        given = [
            run_time_extents.Array(
                p.name,
                dims := kernel.memory_dims(p.name),
                tuple(d in kernel.dynamic for d in dims),
                refs[p.name],
                p.access != "read",
                p.dtype.packed,
            )
            for p in compiled.params
            if p.name in refs
        ]
        if self._relied is None:
            self._relied = run_time_extents.relied(given, self._buckets)
        alike = key[self._beside :], self._relied(*geometry)
        if alike not in self._families and len(self._families) < PLANS:
            found = run_time_extents.family(compiled, given, rest)
            if found is not None:
                self._families[alike] = (found, front)

    def _further(self, key: tuple[Any, ...], *geometry: Any) -> tuple[Any, ...]:
        """The plan of a call that differs from an earlier one in run-time extents only. LookupError if it does not."""
        if self._relied is None:
            raise LookupError
        extend, front = self._families[key[self._beside :], self._relied(*geometry)]
        found = extend(*geometry)
        if found is None:
            raise LookupError
        grid, reach, rest = found
        plan = (*front, set(), reach, grid, rest)
        self._remember(key, plan)
        return plan

    def _remember(self, key: tuple[Any, ...], plan: tuple[Any, ...]) -> None:
        if len(self.plans) >= PLANS:
            self.plans.clear()
            self._guards.clear()
            self._known.clear()
        self.plans[key] = plan

    def _fit(self, plan: tuple[Any, ...], places: tuple[int, ...]) -> bool:
        """Whether arrays at these addresses may be launched on; then it is remembered."""
        form, *_, seen, reach, _, _ = plan
        if not self._fits[form](*places, *reach):
            return False
        if len(seen) >= KEPT_PLACES:
            seen.clear()
        seen.add(places)
        return True

    def _seen(self, at: tuple[int, ...], key: Any, context: int, plan: tuple[Any, ...], guarded: Sequence[Any]) -> None:
        """Have later calls find `plan`, which was found by its key, before they make one."""
        self._unlike += 1
        check = self._guards.get(key)
        if check is None or not check(*guarded):
            # torch's modes, which a key does not have, count for its guards; a tensor that is there twice has none
            if key in self._guards and self._unlike % RENEWED:
                return
            made = tensor_guard.guard_of(guarded)
            self._guards[key] = made or check
            if made is None:
                return
            check = made
        found = check, context, plan
        self._know(at, found)
        if self._unlike <= RECENT or self._unlike % RENEWED == 0:
            self._names["recent"] = (found, *self._names["recent"][: RECENT - 1])

    def _know(self, at: tuple[int, ...], found: tuple[Any, ...]) -> None:
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known[at] = found

    def _blocks_of(
        self, params: Sequence[Param], call: Any, driver: Driver, function: Any, context: int
    ) -> tuple[list[Any], Callable[[], Any]]:
        """Idle blocks of parameters with ways into the driver, and what makes another; a call writes all of a block."""
        found = self._blocks.get((function, call.block, context))
        if found is None:
            # Blocks hold no array: addresses and numbers are written in each call.
            blank = [bytes(p.size) for p in params]

            def make() -> tuple[Any, Callable[[int, tuple[int, int, int]], None], Any]:
                fresh = ParameterBlock(params, blank, {}, driver)
                return fresh.memory, within(driver, function, call_block, fresh.address, context), fresh

            call_block = call.block
            found = self._blocks[function, call.block, context] = ([], make)
        return found

    def _form_of(self, params: Sequence[Param]) -> int:
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
        rooms = any(p.source in ROOMS for p in params)
        rest: list[str] = ["lend", "need"] if rooms else []
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
            elif param.source in ROOMS:
                rest.append(f"o{len(rest)}")
                values.append(f"loan.{'counters' if param.source == TICKETS else 'sums'} + {rest[-1]}")
                layout += "Q"
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
        there = " and ".join(f"p{i}" for i, _ in self._readers)
        bits = " | ".join(f"p{i}" for i, _ in self._readers)
        refused = " or ".join([f"not ({there})", f"({bits}) >> {ADDRESS_BITS}", *([apart] if apart else [])])
        given = "".join(f"{letter}{i}, " for letter in "pn" for i, _ in self._readers)
        exec(f"def fits({given}): return not ({refused})", made := {})  # type: ignore[var-annotated]
        self._fits.append(made["fits"])
        lines = [
            *([f"{', '.join(rest)}, = rest"] if rest else []),
            *(["loan = lend(stream, need)"] if rooms else []),
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
        guarded = {i for i, _ in self._readers} if self._guarded else set()  # guards tell classes, too
        others = self._unlike_classes(i for i in range(len(self._classes)) if i not in guarded)
        places = "".join(f"p{i}, " for i, _ in self._readers)
        used = "".join(f"a{i}, " for i, _ in self._readers)
        finder, find = self._find(used, places)
        exports = "".join(reader.export.format(i=i) + ", " for i, reader in self._readers if reader.export)
        hold = ""
        if not all(reader.ordered for _, reader in self._readers):
            same = " or ".join(f"last[{n}] is not a{i}" for n, (i, _) in enumerate(self._readers, 1))
            hold = f"""else:
        last = held.again.get(stream)
        if last is None or last[0] != (context, {places}) or {same}:
            held.hold(stream, ({used}), ({exports}), ({places}), context)"""
        stream = "\n        ".join(_stream(self._readers))
        named = any(reader.stream or reader.ordered for _, reader in self._readers)  # else the default one
        branches = "\n        el".join(f"if form == {n}:\n            {b}" for n, b in enumerate(self._branches))
        source = f"""
def read({given}):
        context = current()
        {first}
        return ({self._key},), ({self._geometry},)
{finder}
def way({given}):
    if {others}:
        return False
    loan = None
    try:
        {first}
        context = current()
        {find}
        form, idle, make, now, held, _, _, grid, rest = plan
        {stream}
        {branches}
        else:  # written after this way
            return False
    except Exception:  # whatever is unusual about a call, the long way knows what to say
        return False
    block[1](stream, grid)
    idle.append(block)
    if {"stream > 1 and capturing(stream)" if named else "False"}:
        held.hold_for_graph(stream, ({used}{exports}loan))
    {hold}
    return True
"""
        exec(compile(source, "<the short way of a call>", "exec"), self._names)
        self._read, self.run = self._names["read"], self._names["way"]

    def _unlike_classes(self, which: Iterable[int]) -> str:
        """A condition: whether one of these arguments is of another class."""
        return " or ".join(f"type(a{i}) is not T{i}" for i in which) or "False"

    def _find(self, used: str, places: str) -> tuple[str, str]:
        """The text of a function that finds plans by keys, if a way calls one, and lines of the way that find its plan;
        `used` are the arrays, `places` their addresses."""
        by_key = f"""key = ({self._key},)
        plan = plans.get(key)
        new = plan is None
        if new:
            plan = further(key, {self._geometry})
        if places not in plan[{_PLACES}] and not fit(plan, places):
            return False"""
        if not self._guarded:
            return "", f"places = ({places})\n        {by_key}"
        at = f"({places}a{self._readers[0][0]}.numel())"
        aligned = f"not ({' | '.join(f'p{i}' for i, _ in self._readers)}) & {ALIGNMENT_KEY}"
        finder = f"""
def find(context, {used}{places}):
        if {self._unlike_classes(i for i, _ in self._readers)}:
            return False
        places = ({places})
        at = {at}
        aligned = {aligned}
        for found in recent if aligned else ():
            check, there, plan = found
            if there == context and check({used}) and (places in plan[{_PLACES}] or fit(plan, places)):
                know(at, found)
                return plan
        {by_key}
        if aligned and not new:
            seen(at, key, context, plan, ({used}))
        return plan
"""
        find = f"""check, there, plan = known.get({at}, unknown)
        if there != context or not check({used}):
            plan = find(context, {used}{places})
            if not plan:
                return False"""
        return finder, find


def _stream(arrays_of: Sequence[tuple[int, Reader]]) -> list[str]:
    """Lines that give `stream`: the first that an array names or its package has, else the default stream."""
    lines: list[str] = []
    for i, reader in arrays_of:
        otherwise = "if stream is None: " if lines else ""
        if reader.stream:
            lines.append(f"{otherwise}stream = {reader.stream.format(x=f'a{i}', i=i)}")
        if reader.ordered:
            return [*lines, f"{'if stream is None: ' if lines else ''}stream = now()"]
    return [*lines, f"{'if stream is None: ' if lines else ''}stream = 0"]
