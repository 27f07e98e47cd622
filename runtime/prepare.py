"""What a launch needs, from a compiled kernel and the user's arguments.

`prepare` checks the arguments and gives one `ArrayRef` or `bytes` per parameter (hidden ones included) and the grid. It
knows a compiled kernel by the attributes of `Launchable` only, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import sympy
from wavedsl.ir.array_info import NEAR
from wavedsl.ir.called import Argument
from wavedsl.ir.dataflow.device_log import SOURCE, Site, new_log
from wavedsl.ir.errors import LaunchError
from wavedsl.ir.kernel.kernel_ir import Param
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import evaluate, solve
from wavedsl.runtime import arrays
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.workspace import ROOMS, TICKETS, Room

LARGEST_GRID = ((1 << 31) - 1, 65535, 65535)
"""Workgroups along x, y and z (CUDA programming guide, technical specifications, every compute capability)."""
WORK_ITEMS = (1 << 32) - 1
"""Threads along an axis of a HIP grid: the HSA packet's fields are of 32 bits. More were cut off silently by some
releases of ROCm (rocm-systems#2372), refused by others without a reason."""
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
        with Argument(param.name):
            if param.kind == "scalar":
                packed[param.name] = arrays.pack_scalar(value, param.name, param.dtype, param.size, where)
                continue
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
    grid = _three(compiled.grid, extents)
    check_grid(compiled, grid)
    return Call(grid, _three(compiled.block, {}), tuple(out), place)


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


def largest_grid(compiled: Launchable) -> tuple[int, int, int]:
    """The most workgroups along x, y and z that are launched."""
    if compiled.target.startswith("sm"):
        return LARGEST_GRID
    x, y, z = _three(compiled.block, {})
    return min(LARGEST_GRID[0], WORK_ITEMS // x), WORK_ITEMS // y, WORK_ITEMS // z


def check_grid(compiled: Launchable, grid: tuple[int, int, int]) -> None:
    """Raise LaunchError for more workgroups along an axis than CUDA or HIP launches: the driver says `invalid argument`
    at best."""
    for axis, (count, most) in enumerate(zip(grid, largest_grid(compiled))):
        if count > most:
            who = "CUDA" if compiled.target.startswith("sm") else "HIP"
            raise LaunchError(
                f"{compiled.name} needs {count} workgroups along axis {axis} of its grid, {who} launches at most "
                f"{most}",
                compiled.location,
                "give the dimension axis 0 in its WorkgroupConstraint, or a larger tile"
                if who == "CUDA"
                else "give the dimension a larger tile",
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
    sizes = arrays.extents(ref, param.dtype), arrays.byte_strides(ref)
    for what, got, by in zip(("extents", "byte strides"), sizes, divisors):
        if any(n % d for n, d in zip(got, by)) and not (0 in ref.shape and what == "byte strides"):
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
                    param.name,
                )
    extents = {dim: extent for dim, (extent, _) in found.items()}
    packed = {p.name for p in compiled.params if p.dtype.packed}
    for dim, (extent, name) in found.items():
        if isinstance(dim, sympy.Expr) and not dim.is_Symbol:
            _fit(dim, extent, name, extents, name in packed, compiled.location)
    return extents


def _fit(dim: Any, extent: int, name: str, extents: dict[Any, int], packed: bool, where: Loc | None) -> None:
    """Check the extent of `dim`, an expression, and add to `extents` its symbol where no argument has that as an extent
    of its own: N of 2 * N. Bytes of `packed` elements may hold more than there are."""
    want = evaluate(dim, extents)
    if isinstance(want, int):
        if want != extent and not packed:
            raise LaunchError(
                f"argument `{name}` has {extent} elements along {dim}, which is {want}",
                where,
                "arguments of one call must agree on every dimension",
            )
    elif isinstance(want, sympy.Expr) and len(want.free_symbols) == 1:
        value = solve(want, extent)
        (symbol,) = want.free_symbols
        if value is None:
            raise LaunchError(
                f"argument `{name}` has {extent} elements along {dim}, and there is no such {symbol}",
                where,
                "pass an array of another size",
            )
        extents[symbol] = value


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


def written_arrays(compiled: Launchable, call: Call) -> list[tuple[int, str, ArrayRef]]:
    """Position, name and reference of each array that the kernel writes."""
    return [
        (i, param.name, value)
        for i, (param, value) in enumerate(zip(compiled.params, call.values))
        if isinstance(value, ArrayRef) and param.access != "read" and param.source in ("", SOURCE)
    ]
