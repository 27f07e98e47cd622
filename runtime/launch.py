"""Launching: a compiled kernel and its arguments in, changed arrays out.

`prepare` turns arguments into what a launch needs: one `ArrayRef` or `bytes` per parameter (hidden ones included) and
the grid. `launch` runs that on a GPU or on the emulator; `emulate` runs the text in place; `bind` keeps everything for
launching again. They know a compiled kernel by the attributes of `Launchable` only. This is the long way, which checks
everything; `dispatch` has the short one for calls that have been made before.

Invariant: a launch that raises has left the arrays as they were, or its error names those that are undefined.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from wavedsl.ir.array_info import NEAR
from wavedsl.ir.device_log import SOURCE, Failure, Site, clear, new_log, read_log
from wavedsl.ir.errors import EmulationError, LaunchError
from wavedsl.ir.kernel_ir import Param
from wavedsl.ir.loc import Loc
from wavedsl.runtime import arrays, devices, in_flight, streams
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.devices import Device, Driver
from wavedsl.runtime.dispatch import within
from wavedsl.runtime.emulator.report import EmulationReport, Finding
from wavedsl.runtime.parameters import ParameterBlock, tensor_map
from wavedsl.runtime.workspace import ROOMS, TICKETS, Loan, Need, Room, borrow, need_of
from wavedsl.runtime.workspace import of as workspaces_of

ADDRESS_BITS = 48
"""Bits of an address: AMD's descriptors of buffers have room for no more. Systems give programs 47 of them."""


class Launchable(Protocol):
    """What launching needs of a compiled kernel.

    `params` are the kernel's parameters in order, the user's before the hidden ones. `shapes` gives the dimensions of
    each array argument as declared (integers, symbols or expressions). `expects` gives, per array argument, the extents
    and strides in elements that the text relies on (None where it asks at run time) and the bytes that the pointer must
    be aligned to; `divisors` what run-time extents and byte strides must be multiples of; `tiles` how many elements per
    dimension, of an array with run-time strides, are addressed from one place.
    """

    @property
    def target(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def asm(self) -> str: ...
    @property
    def grid(self) -> tuple[Any, ...]: ...
    @property
    def block(self) -> tuple[int, ...]: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def params(self) -> Sequence[Param]: ...
    @property
    def shapes(self) -> Mapping[str, tuple[Any, ...]]: ...
    @property
    def expects(self) -> Mapping[str, tuple[tuple[int | None, ...], tuple[int | None, ...], int]]: ...
    @property
    def divisors(self) -> Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]: ...
    @property
    def tiles(self) -> Mapping[str, tuple[int, ...]]: ...
    @property
    def sites(self) -> Sequence[Site]: ...
    @property
    def location(self) -> Loc | None: ...


@dataclass(frozen=True)
class Call:
    """Everything that one launch needs. `values` has one entry per parameter: an array's reference, raw bytes, or the
    room of a hidden array, which `workspace.borrow` finds a place for."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    values: tuple[ArrayRef | bytes | Room, ...]
    place: tuple[str, int]


# ------------------------------------------------------------------------------------------------------------- prepare


def prepare(compiled: Launchable, values: Sequence[Any]) -> Call:
    """Check `values`, the user's arguments in the order of the parameters, and work out the hidden ones and the grid.

    Raises LaunchError that names the argument: wrong dtype, rank, extents, strides, alignment, device, or overlap.
    """
    named: dict[str, ArrayRef] = {}
    packed: dict[str, bytes] = {}
    where = compiled.location
    declared = [param for param in compiled.params if not param.source]
    if len(values) != len(declared):
        raise LaunchError(
            f"{compiled.name} takes {len(declared)} arguments ({', '.join(p.name for p in declared)}), "
            f"not {len(values)}",
            where,
        )
    for param, value in zip(declared, values):
        if param.kind == "scalar":
            packed[param.name] = arrays.pack_scalar(value, param.name, param.dtype, param.size, where)
        else:
            ref = arrays.describe(value, param.name)
            arrays.check(ref, param.name, param.dtype, len(compiled.shapes[param.name]), where)
            check_expected(param, ref, compiled.expects.get(param.name), where)
            check_divisors(param, ref, compiled.divisors.get(param.name), where)
            check_reach(param, ref, compiled.tiles.get(param.name), where)
            named[param.name] = ref
    place = arrays.common_place(list(named.items()))
    written = [(p.name, named[p.name], p.access != "read") for p in declared if p.kind != "scalar"]
    arrays.check_overlap(written, where)
    extents = bound_extents(compiled, named)
    rooms = hidden_rooms(compiled, extents)
    tiles: dict[Any, int] = {}
    for room in rooms.values():
        steps = [n * room.storage.itemsize for n in room.strides]
        named[room.name] = ArrayRef(0, room.shape, tuple(steps), room.storage, "cpu", 0, False, None, None)
        tiles |= {f"{room.name}_tiles": n for n in room.shape[int(not room.counters) :][:1]}
    out: list[ArrayRef | bytes | Room] = []
    for param in compiled.params:
        if param.source in ROOMS:
            out.append(rooms[param.name])
        elif param.source == SOURCE:
            out.append(arrays.describe(new_log(), param.name))
        elif param.source and param.map is not None:
            out.append(named[param.map.array])
        elif param.source:
            number = _hidden(compiled, param, named, {**extents, **tiles})
            if number >> 8 * param.size - 1:
                raise LaunchError(
                    f"{param.source} is {number}, which does not fit {8 * param.size} bits",
                    where,
                    "pass smaller arrays, or ones that lie closer together: numpy.ascontiguousarray(…)",
                )
            out.append(number.to_bytes(param.size, "little", signed=True))
        else:
            out.append(packed[param.name] if param.kind == "scalar" else named[param.name])
    return Call(_three(compiled.grid, extents), _three(compiled.block, {}), tuple(out), place)


def hidden_rooms(compiled: Launchable, extents: Mapping[Any, int]) -> dict[str, Room]:
    """The arrays that the launch brings, by name."""
    found = {}
    for param in compiled.params:
        if param.source in ROOMS:
            assert param.dtype is not None
            shape = [n if isinstance(n, int) else int(n.subs(extents)) for n in compiled.shapes[param.name]]
            found[param.name] = Room(param.name, tuple(shape), param.dtype.storage, param.source == TICKETS)
    return found


def check_expected(
    param: Param,
    ref: ArrayRef,
    expected: tuple[tuple[int | None, ...], tuple[int | None, ...], int] | None,
    where: Loc | None,
) -> None:
    """That `ref` has the extents, strides and alignment that the text was compiled for."""
    if expected is None:
        return
    extents, strides, alignment = expected
    got = arrays.extents(ref, param.dtype)
    if any(e is not None and g != e for g, e in zip(got, extents)):
        raise LaunchError(
            f"argument `{param.name}` has shape {got}, but the kernel was compiled for {_pattern(extents)}",
            where,
            "call the kernel object itself, which compiles for new shapes, or make the dimension dynamic",
        )
    if 0 in got:
        return
    got_strides = arrays.element_strides(ref, param.dtype)
    if any(e is not None and g != e for g, e in zip(got_strides, strides)):
        raise LaunchError(
            f"argument `{param.name}` has strides of {got_strides} elements, "
            f"but the kernel was compiled for {_pattern(strides)}",
            where,
            "pass an array with those strides, or call the kernel object itself, which compiles for new ones",
        )
    if ref.place != "cpu" and ref.pointer >> ADDRESS_BITS:
        raise LaunchError(
            f"argument `{param.name}` lies at {ref.pointer:#x}, but compiled kernels take addresses of "
            f"{ADDRESS_BITS} bits, as the supported systems give out",
            where,
        )
    if ref.place != "cpu" and ref.pointer % alignment:
        raise LaunchError(
            f"argument `{param.name}` lies at {ref.pointer:#x}, but the kernel was compiled for pointers "
            f"aligned to {alignment} bytes",
            where,
            "pass an array that starts at an aligned address, or call the kernel object itself",
        )


def check_reach(param: Param, ref: ArrayRef, tile: tuple[int, ...] | None, where: Loc | None) -> None:
    """That 32-bit offsets reach every element of a tile whose strides are known at run time only, or of an array of
    run-time size that is indexed (an empty tile)."""
    if tile is None:
        return
    if not tile:
        low, high = ref.extent_bytes()
        if high - low > NEAR:
            raise LaunchError(
                f"argument `{param.name}` spans {high - low} bytes, but the kernel, which indexes it, was compiled "
                f"for at most {NEAR}",
                where,
                "compile it with an array of that size, or call the kernel object itself, which does",
            )
        return
    reach = sum((min(n, t) - 1) * s for n, t, s in zip(arrays.extents(ref, param.dtype), tile, ref.strides) if n)
    if reach >= 1 << 32:
        raise LaunchError(
            f"argument `{param.name}`: the elements of one tile of {' x '.join(map(str, tile))} lie up to {reach} "
            f"bytes apart (strides of {ref.strides} bytes), but at most {1 << 32} can be addressed from one place",
            where,
            "pass an array with smaller strides: numpy.ascontiguousarray(…), or use smaller tiles",
        )


def check_divisors(
    param: Param, ref: ArrayRef, divisors: tuple[tuple[int, ...], tuple[int, ...]] | None, where: Loc | None
) -> None:
    """That run-time extents and strides are multiples of what the text's vectors rely on."""
    if divisors is None:
        return
    for what, got, by in zip(("extents", "byte strides"), (arrays.extents(ref, param.dtype), ref.strides), divisors):
        if any(n % d for n, d in zip(got, by)):
            raise LaunchError(
                f"argument `{param.name}` has {what} {tuple(got)}, but the kernel was compiled for multiples of {by}",
                where,
                "call the kernel object itself, which compiles for such sizes, or compile it with arrays of odd sizes",
            )


def _pattern(sizes: Sequence[int | None]) -> str:
    """Sizes as text, `?` where any is right."""
    return "(" + ", ".join("?" if n is None else str(n) for n in sizes) + ("," if len(sizes) == 1 else "") + ")"


def bound_extents(compiled: Launchable, named: Mapping[str, ArrayRef]) -> dict[Any, int]:
    """The value of each declared dimension. LaunchError where two arguments disagree."""
    found: dict[Any, tuple[int, str]] = {}
    for param in compiled.params:
        if param.source or param.kind == "scalar":
            continue
        for dim, extent in zip(compiled.shapes[param.name], arrays.extents(named[param.name], param.dtype)):
            if isinstance(dim, int):
                continue
            before = found.setdefault(dim, (extent, param.name))
            if before[0] != extent:
                raise LaunchError(
                    f"dimension {dim} is {extent} in argument `{param.name}`, but {before[0]} in `{before[1]}`",
                    compiled.location,
                    "arguments of one call must agree on every dimension",
                )
    return {dim: extent for dim, (extent, _) in found.items()}


def _hidden(compiled: Launchable, param: Param, named: Mapping[str, ArrayRef], extents: Mapping[Any, int]) -> int:
    """The value of a hidden parameter, from what its `source` says: `extent K`, or `stride a[0]` in elements."""
    what, _, which = param.source.partition(" ")
    if what == "extent":
        for dim, extent in extents.items():
            if str(dim) == which:
                return extent
    if what == "stride" and which.endswith("]"):
        name, _, axis = which[:-1].partition("[")
        dtype = next(p.dtype for p in compiled.params if p.name == name)
        return arrays.element_strides(named[name], dtype)[int(axis)]
    raise LaunchError(f"{compiled.name}: no value for its hidden parameter {param.name} ({param.source})")


def _three(sizes: Any, extents: Mapping[Any, int]) -> tuple[int, int, int]:
    """A launch size as three integers; expressions of dimensions take their values from `extents`."""
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    out = [size if isinstance(size, int) else int(size.subs(extents)) for size in sizes]
    out += [1] * (3 - len(out))
    return out[0], out[1], out[2]


# ------------------------------------------------------------------------------------------------------ kernel objects


_COMPILED: weakref.WeakKeyDictionary[Any, dict[Any, Launchable]] = weakref.WeakKeyDictionary()
"""Kernel object → what it was compiled to, by target and by what of the arguments the text may rely on."""


def launch_kernel(kernel: Any, arguments: Mapping[str, Any], dispatch: Any = None) -> None:
    """What calling a kernel object does: compile for these arguments and their device if need be, and launch.

    `dispatch` remembers the call: the kernel's own, or that of the tuned kernel which chose this one for it.
    """
    compiled, device = _compiled(kernel, arguments)
    values = list(arguments.values())
    call = prepare(compiled, values)
    _launch(compiled, call, device, True)
    if call.place[0] != "cpu" and 0 not in call.grid and not compiled.sites:
        driver = devices.open_driver(device.kind, device.index)
        function = driver.load(compiled.asm, compiled.target, compiled.name, compiled.shared_bytes)
        remembering = kernel.dispatch if dispatch is None else dispatch
        remembering.remember(kernel, compiled, values, call, driver, function)


def bind_kernel(kernel: Any, arguments: Mapping[str, Any]) -> Callable[[], None]:
    """What `kernel.bind` does: see `bind`."""
    compiled, device = _compiled(kernel, arguments)
    return bind(compiled, list(arguments.values()), device)


def target_of(arguments: Mapping[str, Any]) -> str:
    """The target that a call with these arguments compiles for: that of the device where they lie, or the default."""
    refs = [(n, arrays.describe(v, n)) for n, v in arguments.items() if _is_array(v)]
    return devices.for_place(*arrays.common_place(refs)).target


def _is_array(value: Any) -> bool:
    return arrays.is_array(value) and not (isinstance(value, np.ndarray) and value.ndim == 0)


def compile_ahead(kernel: Any, arguments: Mapping[str, Any], target: str | None = None) -> Launchable:
    """What a call with such arguments will find: compiled now if need be, for `target` or their device."""
    return _compiled(kernel, arguments, target, asked=True)[0]


def _compiled(
    kernel: Any, arguments: Mapping[str, Any], target: str | None = None, asked: bool = False
) -> tuple[Launchable, Device]:
    refs: list[tuple[str, ArrayRef]] = []
    key: list[Any] = []
    scalars = kernel.scalars
    for name, value in arguments.items():
        if name in scalars or not _is_array(value):  # an array where a number is asked for is refused by its name
            key.append(type(value))
            continue
        ref = arrays.describe(value, name)
        refs.append((name, ref))
        # Host arrays are copied to aligned memory before they are used: only what lies on a device specialises.
        alignment = 16 if ref.place == "cpu" else arrays.divisibility(ref.pointer)
        shape, strides = _relied_on(kernel, name, ref)
        low, high = ref.extent_bytes()
        key.append((ref.storage, shape, strides, alignment, high - low > NEAR))
    device = devices.for_place(*arrays.common_place(refs)) if target is None else Device("emulator", 0, target)
    table = _COMPILED.setdefault(kernel, {})
    full_key = (device.target, *key)
    compiled = table.get(full_key)
    if compiled is None:
        why = "it was asked for" if asked else _why(list(arguments), full_key, table)
        compiled = table[full_key] = kernel.compile_cached(arguments, device.target, why, asked)
    return compiled, device


def _why(names: Sequence[str], key: tuple[Any, ...], table: Mapping[tuple[Any, ...], Any]) -> str:
    """What a call has that no compiled kernel fits: against the one that differs least."""
    known = [k for k in table if k[0] == key[0]]
    if not table:
        return "first call in this process"
    if not known:
        return f"first call for {key[0]}"
    near = min(known, key=lambda k: sum(a != b for a, b in zip(k[1:], key[1:])))
    said = []
    for name, new, old in zip(names, key[1:], near[1:]):
        if new == old:
            continue
        if not isinstance(new, tuple) or not isinstance(old, tuple):
            said.append(f"`{name}` is another kind of argument")
            continue
        for what, a, b in zip(("dtype", "shape", "strides", "alignment", "beyond 4 GiB"), new, old):
            if a != b:
                said.append(f"`{name}` has {what} {_sizes(a)}, not {_sizes(b)}")
                break  # strides follow from the shape
    return "; ".join(said)


def _sizes(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return "(" + ", ".join(f"{n[0]} {n[1]}" if isinstance(n, tuple) else str(n) for n in value) + ")"


def _relied_on(kernel: Any, name: str, ref: ArrayRef) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Extents and byte strides as far as compiled text depends on them: of run-time ones only what divides them.

    Strides outside a run-time dimension follow from it, so they are run-time arguments as well.
    """
    dynamic = kernel.dynamic
    if not dynamic:
        return ref.shape, ref.strides
    dims = kernel.memory_dims(name)
    shape: list[Any] = list(ref.shape)
    strides: list[Any] = list(ref.strides)
    outside = False
    for i in reversed(range(len(dims))):
        if outside:
            strides[i] = ("a multiple of", math.gcd(strides[i], 16))
        if dims[i] in dynamic:
            contiguous = ref.strides[i] == ref.storage.itemsize
            shape[i] = ("a multiple of", math.gcd(shape[i], 16) if contiguous else 1)
            outside = True
    return tuple(shape), tuple(strides)


# -------------------------------------------------------------------------------------------------------------- launch


def launch(
    compiled: Launchable, values: Sequence[Any], device: Device | None = None, *, checks: Any = True
) -> EmulationReport | None:
    """Run the kernel on its arguments; outputs are arguments. The emulator's report, None from a GPU.

    `device` is where NumPy arrays go; arrays on a GPU run there. Raises LaunchError, and EmulationError for findings.
    """
    return _launch(compiled, prepare(compiled, values), device, checks)


def _launch(compiled: Launchable, call: Call, device: Device | None, checks: Any) -> EmulationReport | None:
    if 0 in call.grid:
        return EmulationReport()
    device = _choose(call, device)
    if device.kind == "emulator":
        return _emulate(compiled, call, checks, in_place=False)
    _on_gpu(compiled, call, device)
    return None


def bind(compiled: Launchable, values: Sequence[Any], device: Device | None = None) -> Callable[[], None]:
    """A function that launches again with the same arguments, on the stream that is then current: nothing is checked
    or decided anew on a GPU."""
    call = prepare(compiled, values)
    device = _choose(call, device)
    if 0 in call.grid:
        return lambda: None
    if device.kind == "emulator" or call.place[0] == "cpu" or compiled.sites:
        return lambda: _run(compiled, call, device)
    return Bound(compiled, call, devices.open_driver(device.kind, device.index), values)


class Bound:
    """A kernel with its arguments, ready to be launched from any thread: `bound()`.

    The parameters, tensor maps among them, were written once. What differs from launch to launch is the stream and the
    thread's context, and each context gets ways into the driver of its own when it first comes. Arrays live as long as
    this object, then as `in_flight` has it.
    """

    def __init__(self, compiled: Launchable, call: Call, driver: Driver, values: Sequence[Any]):
        self._compiled = compiled
        self._call = call
        self._driver = driver
        self._grid = call.grid
        self._need = need_of(call.values)
        places = {} if self._need is None else dict.fromkeys((i for i, _, _ in self._need.places), 0)
        self._block = ParameterBlock(compiled.params, call.values, places, driver)
        self._idle: dict[int, list[Callable[[int, tuple[int, int, int]], Any]]] = {}
        self._kept = [value.keep for value in call.values if isinstance(value, ArrayRef)]
        ordered = all(streams.package_of(type(v)) for v in values if arrays.is_array(v))
        self._used: set[int] | None = None if ordered else set()
        self._stream = current_stream(call)
        self._current, self._capturing = driver.current, driver.capturing
        self._held = in_flight.of(driver)
        self._ways_for(driver.current())

    def __call__(self) -> None:
        stream = self._stream()
        context = self._current()
        idle = self._idle.get(context)
        if idle is None:
            idle = self._ways_for(context)
        try:
            start = idle.pop()
        except IndexError:  # every way is taken by a thread at this moment
            start = self._way(context)
        loan = start(stream, self._grid)
        idle.append(start)
        if stream > 1 and self._capturing(stream):
            self._held.hold_for_graph(stream, (self._kept, loan))
        elif self._used is not None:
            self._used.add(stream)

    def __del__(self) -> None:
        try:
            for stream in self._used or ():
                self._held.hold(stream, self._kept)
        except (AttributeError, LaunchError, TypeError):
            pass  # the stream is gone, and what it was given with it; or the interpreter goes

    def _ways_for(self, context: int) -> list[Callable[[int, tuple[int, int, int]], Any]]:
        """Idle ways into the driver for a thread in `context`."""
        return self._idle.setdefault(context, [self._way(context)])

    def _way(self, context: int) -> Callable[[int, tuple[int, int, int]], Any]:
        c, call, driver = self._compiled, self._call, self._driver
        function = driver.load(c.asm, c.target, c.name, c.shared_bytes)
        if self._need is None:
            return within(driver, function, call.block, self._block.address, context)
        return self._borrowing(self._need, function, context)

    def _borrowing(self, need: Need, function: Any, context: int) -> Callable[[int, tuple[int, int, int]], Loan]:
        """A way of a kernel with hidden arrays: each has parameters of its own, and they follow the stream."""
        call, driver = self._call, self._driver
        places = dict.fromkeys((i for i, _, _ in need.places), 0)
        block = ParameterBlock(self._compiled.params, call.values, places, driver)
        start = within(driver, function, call.block, block.address, context)
        lend = workspaces_of(driver).lend
        last = (0, 0)

        def borrow_and_start(stream: int, grid: tuple[int, int, int]) -> Loan:
            nonlocal last  # addresses: to keep the loan would keep it from the next graph
            loan = lend(stream, need)
            if (loan.counters, loan.sums) != last:
                for i, address in loan.addresses(need).items():
                    block.write(i, address)
                last = loan.counters, loan.sums
            start(stream, grid)
            return loan

        return borrow_and_start


def _run(compiled: Launchable, call: Call, device: Device) -> None:
    if device.kind == "emulator":
        _emulate(compiled, call, True, in_place=False)
    else:
        _on_gpu(compiled, call, device)


def _choose(call: Call, device: Device | None) -> Device:
    """Where the call runs: with its arrays if they lie on a GPU, else on `device` or the default one."""
    place, index = call.place
    if place == "cpu":
        return device if device is not None else devices.default()
    if device is not None and (device.kind, device.index) != (place, index):
        raise LaunchError(
            f"the arguments lie on {place}:{index}, but the launch is for {device}",
            hint=f"pass host arrays, or leave the device to the arguments ({place}:{index})",
        )
    return devices.for_place(place, index)


def stream_of(call: Call) -> int:
    """The current stream of the package that the arrays come from; the default stream if none has one."""
    for value in call.values:
        if isinstance(value, ArrayRef) and value.stream is not None:
            return value.stream
    return 0


def current_stream(call: Call) -> Callable[[], int]:
    """What gives `stream_of` a later call with the same arrays, whose package may have another current stream then."""
    for value in call.values:
        if isinstance(value, ArrayRef) and value.stream is not None:
            array = value.keep[0] if isinstance(value.keep, tuple) else value.keep
            now = streams.current_of(type(array), value.index)
            return now if now is not None else lambda stream=value.stream: stream  # type: ignore[misc]
    return lambda: 0


def _on_gpu(compiled: Launchable, call: Call, device: Device) -> None:
    """Launch on a GPU. Host arrays are copied there and, when the kernel has finished well, back."""
    driver = devices.open_driver(device.kind, device.index)
    function = driver.load(compiled.asm, compiled.target, compiled.name, compiled.shared_bytes)
    if call.place[0] != "cpu":
        if compiled.sites:
            _with_log_on_gpu(compiled, call, driver, function)
            return
        stream = stream_of(call)
        places, loan = borrow(driver, call.values, stream)
        block = ParameterBlock(compiled.params, call.values, places, driver)
        driver.launch(function, call.grid, call.block, block.address, stream)
        _keep(call, driver, stream, loan)
        return
    copies: dict[int, int] = {}
    placed: dict[int, int] = {}
    done: list[str] = []
    written = _written(compiled, call)
    try:
        for i, value in enumerate(call.values):
            if isinstance(value, ArrayRef) and id(value) in placed:
                copies[i] = placed[id(value)]  # an array that is reached both by its pointer and by a tensor map
            elif isinstance(value, ArrayRef):
                data = covering_bytes(value)
                copies[i] = placed[id(value)] = driver.allocate(data.nbytes)
                driver.upload(copies[i], data)
        places, _ = borrow(driver, call.values, 0)
        block = ParameterBlock(compiled.params, call.values, {**copies, **places}, driver)
        driver.launch(function, call.grid, call.block, block.address, 0)
        driver.synchronize(0)
        for i, name, ref in written:
            _copy_back(driver, copies[i], ref)
            if compiled.params[i].source != SOURCE:
                done.append(name)
    except LaunchError as error:
        state = f"`{'`, `'.join(done)}` hold results, the other arguments" if done else "the arguments"
        raise LaunchError(f"{error.message}; {state} are as they were", compiled.location, error.hint) from error
    finally:
        _free(driver, copies)
    failures = _speak(compiled, call)
    if failures:
        raise LaunchError(failures[0].message, failures[0].location)


def _keep(call: Call, driver: Driver, stream: int, loan: Loan | None) -> None:
    """See to it that the arrays of a launch live until it is done, and what it has borrowed with a graph."""
    kept = [value.keep for value in call.values if isinstance(value, ArrayRef)]
    given = [keep[0] if isinstance(keep, tuple) else keep for keep in kept]
    if stream > 1 and driver.capturing(stream):
        in_flight.of(driver).hold_for_graph(stream, (kept, loan))
    elif not all(streams.package_of(type(array)) for array in given):
        in_flight.of(driver).hold(stream, kept)


def _with_log_on_gpu(compiled: Launchable, call: Call, driver: Driver, function: Any) -> None:
    """Launch on arrays of the device, wait, and report what the kernel had to say."""
    at, log = _log_of(compiled, call)
    stream = stream_of(call)
    if stream > 1 and driver.capturing(stream):
        raise LaunchError(
            f"{compiled.name} prints or asserts, and what it has to say is read when it has finished: "
            "its launch cannot be captured in a graph",
            compiled.location,
            "take device_print and device_assert out of kernels for graphs",
        )
    address = driver.allocate(log.nbytes)
    try:
        driver.upload(address, log)
        places, _ = borrow(driver, call.values, stream)
        block = ParameterBlock(compiled.params, call.values, {at: address, **places}, driver)
        driver.launch(function, call.grid, call.block, block.address, stream)
        driver.synchronize(stream)
        driver.download(log, address)
    finally:
        _free(driver, {at: address})
    failures = _speak(compiled, call)
    if failures:
        raise LaunchError(failures[0].message, failures[0].location)


def _log_of(compiled: Launchable, call: Call) -> tuple[int, np.ndarray]:
    """Position and words of the log."""
    at = next(i for i, p in enumerate(compiled.params) if p.source == SOURCE)
    value = call.values[at]
    assert isinstance(value, ArrayRef)
    return at, value.numpy()


def _speak(compiled: Launchable, call: Call) -> list[Failure]:
    """Print what `device_print` left in the log and empty it; the assertions that failed."""
    if not compiled.sites:
        return []
    _, log = _log_of(compiled, call)
    lines, failures = read_log(log, compiled.sites)
    clear(log)
    for line in lines:
        print(line)
    return failures


def _free(driver: Driver, copies: Mapping[int, int]) -> None:
    """Free device copies. After a failed launch the driver may refuse everything: the launch's error says why."""
    for address in dict.fromkeys(copies.values()):
        try:
            driver.free(address)
        except LaunchError:
            return


def _copy_back(driver: Driver, address: int, ref: ArrayRef) -> None:
    """Download an array's bytes and store its elements, and nothing between them."""
    low, high = ref.extent_bytes()
    data = np.empty(high - low, np.uint8)
    driver.download(data, address)
    ref.numpy()[...] = _view(ref, data)


def _written(compiled: Launchable, call: Call) -> list[tuple[int, str, ArrayRef]]:
    """Position, name and reference of each array that the kernel writes."""
    return [
        (i, param.name, value)
        for i, (param, value) in enumerate(zip(compiled.params, call.values))
        if isinstance(value, ArrayRef) and param.access != "read" and param.source in ("", SOURCE)
    ]


def covering_bytes(ref: ArrayRef) -> np.ndarray:
    """The bytes from an array's first to its last, as a flat view; those between its elements included."""
    low, high = ref.extent_bytes()
    return ArrayRef(low, (high - low,), (1,), np.dtype(np.uint8), "cpu", 0, True, None, (ref.keep,)).numpy()


def _view(ref: ArrayRef, data: np.ndarray) -> np.ndarray:
    """The array's elements in `data`, a copy of its covering bytes."""
    return np.ndarray(ref.shape, ref.storage, data, ref.pointer - ref.extent_bytes()[0], ref.strides)


# ------------------------------------------------------------------------------------------------------------ emulator


def emulate(compiled: Launchable, values: Sequence[Any], *, checks: Any = True) -> EmulationReport:
    """Run the kernel's text on the emulator, host arrays changed in place, findings or not."""
    call = prepare(compiled, values)
    if 0 in call.grid:
        return EmulationReport()
    if call.place[0] != "cpu":
        raise LaunchError(
            f"the emulator runs on host memory, but the arguments lie on {call.place[0]}:{call.place[1]}",
            compiled.location,
            "copy them to the host",
        )
    return _emulate(compiled, call, checks, in_place=True)


def sample(compiled: Launchable, values: Sequence[Any]) -> EmulationReport:
    """Run only the first workgroup, or cluster, of the grid on the emulator, unchecked: for the report's clocks, not
    for results."""
    call = prepare(compiled, values)
    if 0 in call.grid:
        return EmulationReport()
    return _emulate(compiled, call, False, in_place=True, workgroups=1)


def _emulate(
    compiled: Launchable, call: Call, checks: Any, *, in_place: bool, workgroups: int | None = None
) -> EmulationReport:
    """Run on the emulator: on the arrays themselves if `in_place`, else on copies, stored when there is no finding.

    A copy keeps the strides. Compiled text may rely on 16-byte alignment of host arrays, as a GPU's allocator gives
    it, so an array that lies otherwise is copied in any case.
    """
    from wavedsl.runtime import emulator
    from wavedsl.runtime.tensor_map import TensorMap

    args: list[Any] = []
    if compiled.sites:
        clear(_log_of(compiled, call)[1])
    seen: dict[int, Any] = {}
    for value in call.values:
        if isinstance(value, ArrayRef) and id(value) in seen:
            args.append(seen[id(value)])
        elif isinstance(value, Room):
            args.append(value.fresh(unwritten=workgroups is None))
        elif not isinstance(value, ArrayRef) or (in_place and value.pointer % 16 == 0):
            args.append(value.numpy() if isinstance(value, ArrayRef) else value)
        else:
            args.append(_view(value, _aligned_copy(covering_bytes(value))))
        if isinstance(value, ArrayRef):
            seen[id(value)] = args[-1]
    given = [
        TensorMap(arg, **tensor_map(param, value)) if param.map is not None and isinstance(value, ArrayRef) else arg
        for param, value, arg in zip(compiled.params, call.values, args)
    ]
    finished = False
    try:
        report = emulator.run(
            compiled.asm,
            target=compiled.target,
            grid=call.grid,
            block=call.block,
            args=given,
            kernel=compiled.name,
            # Static shared memory is declared in the text; an extern array is sized at launch.
            shared_bytes=compiled.shared_bytes if ".extern .shared" in compiled.asm else 0,
            checks=checks,
            workgroups=workgroups,
        )
        left = _left_counting(compiled, call, args) if workgroups is None else []
        report.findings.extend(left)
        finished = not report.findings
        if left and checks != "report":
            raise EmulationError(left[0].message, compiled.location, report=report)
        if compiled.sites:
            at, log = _log_of(compiled, call)
            log[...] = args[at]
            failures = _speak(compiled, call)
            finished = finished and not failures
            if failures and checks != "report":
                raise EmulationError(failures[0].message, failures[0].location, report=report)
            report.findings.extend(Finding("assertion", f.message, location=f.location) for f in failures)
    finally:
        if finished or in_place:
            for i, _, ref in _written(compiled, call):
                if args[i] is not ref.keep and compiled.params[i].source != SOURCE:
                    ref.numpy()[...] = args[i]
    return report


def _left_counting(compiled: Launchable, call: Call, args: Sequence[Any]) -> list[Finding]:
    """Counters that the kernel did not leave at 0: the next launch on the stream would count on from there."""
    found = []
    for value, array in zip(call.values, args):
        if isinstance(value, Room) and value.counters and array.any():
            tile = int(np.flatnonzero(array)[0])
            message = f"{compiled.name} leaves the counter of tile {tile} at {array[tile]}: launches begin with 0"
            found.append(Finding("assertion", message, location=compiled.location))
    return found


def _aligned_copy(data: np.ndarray) -> np.ndarray:
    """A copy of bytes that starts at a multiple of 16."""
    room = np.empty(data.size + 15, np.uint8)
    start = -room.ctypes.data % 16
    room[start : start + data.size] = data
    return room[start : start + data.size]
