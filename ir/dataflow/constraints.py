"""Constraints: how symbolic dimensions are spread over workgroups, waves, loop tiles and lanes.

In: the constraint objects a user wrote, and a value for every symbol. Out: `ResolvedConstraints`, whole numbers per
dimension, or a ConstraintError that names the symbol, the user's line and the legal values. What the user left out
(lanes per wave, the division of a tile over waves) stays None here: the compiler derives it from the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.loc import Loc
from wavedsl.ir.mma_type import MMAType, MMATypeName
from wavedsl.ir.options import with_options
from wavedsl.ir.source import here
from wavedsl.ir.symbols import (
    DYNAMIC,
    AddressSpace,
    Dynamic,
    evaluate,
    is_dim,
    names,
    normalise,
    scale_of,
    taken_apart,
    with_numbers,
)  # fmt: skip

__all__ = [
    "HardwareConstraint",
    "MMAType",
    "MMATypeName",
    "ResolvedConstraints",
    "ResolvedDim",
    "TilingConstraint",
    "WaveConstraint",
    "WorkgroupConstraint",
    "resolve_constraints",
]


_TILES = {
    "size": "tile", "tile_size": "tile", "block": "tile", "block_size": "tile", "block_shape": "tile",
    "dimension": "dim", "symbol": "dim", "workgroup_dim": "axis", "grid_dim": "axis", "grid_axis": "axis",
}  # fmt: skip
_MACHINE = {
    "warp_size": "threads_per_wave", "wave_size": "threads_per_wave", "num_warps": "waves_per_block",
    "num_waves": "waves_per_block", "warps_per_block": "waves_per_block", "mfma": "mma_type", "mma": "mma_type",
    "instruction": "mma_type", "matrix_instr_nonkdim": "mma_type", "vector_width": "vector_shapes",
}  # fmt: skip
"""What an option of a constraint is called elsewhere, or may be taken for → what it is here."""


def _dim(value: Any, owner: str) -> sympy.Symbol:
    if isinstance(value, sympy.Symbol):
        return normalise(value)
    raise ConstraintError(
        f"{owner}: {value!r} is not a dimension",
        here(calls=False),
        hint=taken_apart(value, "a dimension is a symbol: M = wd.sym.M"),
    )


def _tile(value: Any, owner: str) -> Any:
    if isinstance(value, float) and value.is_integer():  # 128 / 4, as of symbols BM / 4
        value = int(value)
    if not is_dim(value):
        raise ConstraintError(
            f"{owner}: the tile {value!r} is neither a whole number nor an expression over symbols",
            here(calls=False),
            hint=taken_apart(value, "for example 64, BM or BM / 2"),
        )
    tile = normalise(value)
    if tile.is_number and not (tile.is_Integer and tile > 0):
        raise ConstraintError(
            f"{owner}: a tile of {tile} elements", here(calls=False), hint="a tile is a whole number from 1 on"
        )
    return tile


@with_options(_TILES)
@dataclass(frozen=True)
class WorkgroupConstraint:
    """`dim` is cut into tiles of `tile` elements, one workgroup each, numbered along grid axis `axis` (0, 1 or 2).

    Several dimensions may share an axis; the first listed varies fastest. A tile of the integer 1 makes `dim` an index
    dimension: it is in no register's shape. Raises ConstraintError for an axis or a tile that cannot be.
    """

    dim: Any
    tile: Any
    axis: int
    loc: Loc | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _set(self, loc=self.loc or here(calls=False), dim=_dim(self.dim, "WorkgroupConstraint"))
        _set(self, tile=_tile(self.tile, "WorkgroupConstraint"))
        if self.axis not in (0, 1, 2) or isinstance(self.axis, bool):
            raise ConstraintError(
                f"WorkgroupConstraint({self.dim}, …): axis {self.axis!r}", self.loc, hint="a grid has axes 0, 1 and 2"
            )

    @property
    def is_index(self) -> bool:
        """Whether `dim` is an index dimension."""
        return self.tile == 1

    def __str__(self) -> str:
        return f"WorkgroupConstraint({self.dim}, {self.tile}, {self.axis})"


@with_options(_TILES)
@dataclass(frozen=True)
class WaveConstraint:
    """Within a workgroup's tile, each wave covers `tile` elements of `dim`; the quotient must be a whole number."""

    dim: Any
    tile: Any
    loc: Loc | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _set(self, loc=self.loc or here(calls=False), dim=_dim(self.dim, "WaveConstraint"))
        _set(self, tile=_tile(self.tile, "WaveConstraint"))

    def __str__(self) -> str:
        return f"WaveConstraint({self.dim}, {self.tile})"


@with_options(_TILES)
@dataclass(frozen=True)
class TilingConstraint:
    """A loop over `dim` (`iterate`) covers `tile` elements per trip."""

    dim: Any
    tile: Any
    loc: Loc | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _set(self, loc=self.loc or here(calls=False), dim=_dim(self.dim, "TilingConstraint"))
        _set(self, tile=_tile(self.tile, "TilingConstraint"))

    def __str__(self) -> str:
        return f"TilingConstraint({self.dim}, {self.tile})"


@dataclass(frozen=True)
class TurnConstraint(TilingConstraint):
    """Tiles of a grid dimension, once along `axis`, that workgroups take in turn (`stream_k`): a loop's, with waves
    spread over them as over a workgroup's."""

    axis: int = 0


@dataclass(frozen=True)
class ShareConstraint(TilingConstraint):
    """`dim` stands for the grid dimension `of`: it counts the same elements, of whose tile each of several workgroups
    has a share of `tile` (`joined_parts`). Its one trip is a loop's, over which waves are spread as along `of`."""

    of: Any = None


@with_options(_MACHINE)
@dataclass(frozen=True)
class HardwareConstraint:
    """Requirements on the machine; what is left out is derived from the target.

    `threads_per_wave`: lanes that issue one matrix instruction together (64, 32, 128). `mma_type`: the matrix
    instruction. `vector_shapes`: elements of a dimension that one wave covers in one operation (0: one).
    `waves_per_block`: waves along the grid axes.
    """

    threads_per_wave: int | None = None
    mma_type: MMATypeName | None = None
    vector_shapes: Mapping[Any, Any] | None = None
    waves_per_block: tuple[int, ...] | None = None
    loc: Loc | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _set(self, loc=self.loc or here(calls=False))
        if self.threads_per_wave not in (None, 32, 64, 128):
            raise ConstraintError(
                f"HardwareConstraint: threads_per_wave={self.threads_per_wave!r}",
                self.loc,
                hint="64 on CDNA; 32, or 128 for a warpgroup, on NVIDIA",
            )
        if isinstance(self.mma_type, str):
            _set(self, mma_type=getattr(MMAType, self.mma_type))
        if self.mma_type is not None and not isinstance(self.mma_type, MMATypeName):
            raise ConstraintError(
                f"HardwareConstraint: mma_type={self.mma_type!r} names no matrix instruction",
                self.loc,
                hint="for example wd.MMAType.F32_16x16x16_F16",
            )
        if self.vector_shapes is not None:
            if not isinstance(self.vector_shapes, Mapping):
                raise ConstraintError(
                    f"HardwareConstraint: vector_shapes={self.vector_shapes!r}",
                    self.loc,
                    hint="a dict from dimensions to counts of elements: {M: 16}",
                )
            shapes = {}
            for dim, elements in self.vector_shapes.items():
                if not is_dim(elements) or (isinstance(elements, int) and elements < 0):
                    raise ConstraintError(
                        f"HardwareConstraint: vector_shapes has {elements!r} for {dim}",
                        self.loc,
                        hint="a count of elements; 0 or absent means one",
                    )
                shapes[_dim(dim, "HardwareConstraint")] = normalise(elements)
            _set(self, vector_shapes=shapes)
        if self.waves_per_block is not None:
            given = self.waves_per_block
            waves = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            good = all(isinstance(w, int) and not isinstance(w, bool) and w > 0 for w in waves)
            if not good or not 1 <= len(waves) <= 3:
                raise ConstraintError(
                    f"HardwareConstraint: waves_per_block={self.waves_per_block!r}",
                    self.loc,
                    hint="up to three counts of waves along grid axes 0, 1 and 2, for example (2, 2, 1)",
                )
            _set(self, waves_per_block=waves)

    def __str__(self) -> str:
        parts = []
        if self.threads_per_wave is not None:
            parts.append(f"threads_per_wave={self.threads_per_wave}")
        if self.mma_type is not None:
            parts.append(f"mma_type={self.mma_type}")
        if self.vector_shapes:
            parts.append("vector_shapes={" + ", ".join(f"{d}: {n}" for d, n in self.vector_shapes.items()) + "}")
        if self.waves_per_block is not None:
            parts.append(f"waves_per_block={self.waves_per_block}")
        return f"HardwareConstraint({', '.join(parts)})"


def _set(target: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(target, name, value)


Constraint = WorkgroupConstraint | WaveConstraint | TilingConstraint | HardwareConstraint


def index_dims(constraints: Iterable[Constraint]) -> tuple[Any, ...]:
    """Dimensions whose workgroup tile is the integer 1."""
    return tuple(c.dim for c in constraints if isinstance(c, WorkgroupConstraint) and c.is_index)


def check_constraints(constraints: Any, loc: Loc | None) -> list[Constraint]:
    """The list a user gave to `wave`, with the mistakes that need no sizes refused."""
    if isinstance(constraints, Constraint):
        constraints = [constraints]
    try:
        found = list(constraints)
    except TypeError:
        raise ConstraintError(
            f"wave: {constraints!r} is not a list of constraints",
            loc,
            hint="@wd.wave([wd.WorkgroupConstraint(M, BM, 0)])",
        ) from None
    seen: dict[Any, Constraint] = {}
    for c in found:
        if not isinstance(c, Constraint):
            raise ConstraintError(
                f"wave: {c!r} is not a constraint",
                loc,
                hint="WorkgroupConstraint, WaveConstraint, TilingConstraint or HardwareConstraint",
            )
        key = (type(c), getattr(c, "dim", None))
        if key in seen:
            what = f"two {type(c).__name__}s" + (f" for {key[1]}" if key[1] is not None else "")
            raise ConstraintError(f"wave: {what}", c.loc, hint="keep one of them")
        seen[key] = c
    for c in found:
        tiled = (WorkgroupConstraint, TilingConstraint)
        if isinstance(c, WaveConstraint) and not any((kind, c.dim) in seen for kind in tiled):
            raise ConstraintError(
                f"{c}: {c.dim} has no WorkgroupConstraint or TilingConstraint, so there is no tile for waves to share",
                c.loc,
                hint=f"add wd.WorkgroupConstraint({c.dim}, <tile>, <axis>)",
            )
        if isinstance(c, TilingConstraint) and (WorkgroupConstraint, c.dim) in seen:
            raise ConstraintError(
                f"{c}: {c.dim} is also spread over workgroups",
                c.loc,
                hint="a dimension is either cut into workgroup tiles or looped over",
            )
    return found


@dataclass(frozen=True)
class ResolvedDim:
    """What the constraints say of one dimension, in elements; None where they say nothing.

    `extent` is an int or DYNAMIC. `workgroup`: tile per workgroup, along grid `axis`. `loop`: tile per trip. `wave`:
    tile per wave. `vector`: elements that one wave covers in one operation. `index`: in no register's shape.
    """

    dim: Any
    extent: int | Dynamic
    workgroup: int | None = None
    axis: int | None = None
    loop: int | None = None
    wave: int | None = None
    vector: int | None = None
    index: bool = False
    loc: Loc | None = field(default=None, compare=False, repr=False, kw_only=True)
    turns: int | None = None
    """The axis of the grid that the loop's tiles would lie along, if workgroups did not take them in turn."""
    of: Any = None
    """The dimension of whose tile this one counts a workgroup's share."""

    @property
    def tile(self) -> int | Dynamic:
        """Elements that one workgroup holds at a time: its tile, the loop's, or all of them."""
        if self.workgroup is not None:
            return self.workgroup
        return self.loop if self.loop is not None else self.extent

    @property
    def waves(self) -> int | None:
        """Waves along this dimension; None where the compiler is to choose."""
        if self.workgroup is None:
            if self.turns is not None and self.wave is None:
                return None
            return 1 if self.loop is None or self.wave is None else self.loop // self.wave
        if self.index:
            return 1
        return None if self.wave is None else self.workgroup // self.wave


def whole_tiles(dim: Any, base: Any) -> str:
    """What to do where a tile of `base` is no whole number of elements along a dimension such as `K / 32`."""
    hint = f"the tile of {base} must make {dim} a whole number"
    group = base / dim
    if not group.is_Integer:
        return hint
    return f"{hint}, or read the array as IndexMapping((…, {base}), {{{dim}: {base} // {group}}})"


@dataclass(frozen=True)
class ResolvedConstraints:
    """Constraints in numbers. `dims` is in the order of workgroup axes, then loops, then the rest."""

    dims: dict[Any, ResolvedDim]
    hardware: HardwareConstraint
    values: dict[Any, Any]

    def __getitem__(self, dim: Any) -> ResolvedDim:
        """What holds for `dim`, which may be a derived extent such as `K / 32`."""
        found = self.dims.get(dim)
        return found if found is not None else self._derived(dim)

    def uncut(self, dim: Any) -> ResolvedDim:
        """The extent of an array's dimension that no value has: no tile cuts it, be it `K / 32` of a K in tiles."""
        return self.dims.get(dim) or ResolvedDim(dim, evaluate(dim, self.values))

    def wave(self, dim: Any) -> int | None:
        """Elements of `dim` that a WaveConstraint gives one wave."""
        found = self.dims.get(dim)
        return None if found is None else found.wave

    def vector(self, dim: Any) -> int | None:
        """Elements of `dim` that one wave covers in one operation, where vector_shapes says so."""
        found = self.dims.get(dim)
        return None if found is None else found.vector

    def _derived(self, dim: Any) -> ResolvedDim:
        extent = evaluate(dim, self.values)
        for base in sorted(getattr(dim, "free_symbols", ()), key=str):
            source = self.dims.get(base)
            factor = scale_of(dim, base) if source is not None else None
            if source is None or factor is None:
                continue
            factor = with_numbers(factor, self.values)
            scaled: dict[str, Any] = {}
            for part in ("workgroup", "loop", "wave"):
                size = getattr(source, part)
                if size is not None:
                    tile = size * factor
                    if not tile.is_Integer:
                        raise ConstraintError(
                            f"a tile of {size} elements of {base} is {tile} elements of {dim}",
                            source.loc,
                            hint=whole_tiles(dim, base),
                        )
                    scaled[part] = int(tile)
            return ResolvedDim(dim, extent, axis=source.axis, loc=source.loc, **scaled)
        return ResolvedDim(dim, extent)

    @property
    def waves(self) -> int | None:
        """Waves of a workgroup, None where the compiler is to choose a division."""
        total = 1
        for d in self.dims.values():
            if d.waves is None:
                return None
            total *= d.waves
        return total


def divisors(n: int) -> list[int]:
    """All divisors of n, ascending."""
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d != n]


def resolve_constraints(
    graph: Any, dims: Mapping[Any, Any], *, max_waves: int = 32, wave_word: str = "waves"
) -> ResolvedConstraints:
    """Constraints of a traced kernel (or any object with `.constraints`) under a value for each symbol.

    `dims` maps symbols to an int, to DYNAMIC, or to an address space, which is ignored here. `max_waves` is the
    target's limit per workgroup: 16 on AMD, 32 warps on NVIDIA. Raises ConstraintError.
    """
    constraints: list[Constraint] = list(graph.constraints)
    values = {k: v for k, v in dims.items() if not isinstance(v, AddressSpace)}
    hardware = next((c for c in constraints if isinstance(c, HardwareConstraint)), HardwareConstraint(loc=None))
    waves = {c.dim: c for c in constraints if isinstance(c, WaveConstraint)}
    vectors = _vectors(hardware, values)
    found: dict[Any, ResolvedDim] = {}

    workgroups = [c for c in constraints if isinstance(c, WorkgroupConstraint)]
    for c in sorted(workgroups, key=lambda c: c.axis):
        tile = _size(c.tile, values, c)
        wave = _wave_tile(waves.get(c.dim), tile, "workgroup's", values, max_waves, wave_word)
        found[c.dim] = ResolvedDim(
            c.dim, _extent(c.dim, values, c.loc), tile, c.axis, None, wave, vectors.get(c.dim), c.is_index, loc=c.loc
        )
    for t in constraints:
        if isinstance(t, TilingConstraint):
            loop = _size(t.tile, values, t)
            wave = _wave_tile(waves.get(t.dim), loop, "loop tile's", values, max_waves, wave_word)
            found[t.dim] = ResolvedDim(
                t.dim, _extent(t.dim, values, t.loc), loop=loop, wave=wave, vector=vectors.get(t.dim), loc=t.loc,
                turns=t.axis if isinstance(t, TurnConstraint) else None,
                of=t.of if isinstance(t, ShareConstraint) else None,
            )  # fmt: skip
    for argument in getattr(graph, "arguments", ()):
        for dim in argument.dims:
            for s in sorted(getattr(dim, "free_symbols", ()), key=str):
                if s not in found and s in values:
                    found[s] = ResolvedDim(s, _extent(s, values, argument.loc), vector=vectors.get(s), loc=argument.loc)
    resolved = ResolvedConstraints(found, hardware, values)
    _check_waves(resolved, waves, max_waves, wave_word)
    return resolved


def _wave_tile(
    share: WaveConstraint | None, tile: int, whose: str, values: Mapping[Any, Any], max_waves: int, wave_word: str
) -> int | None:
    """The wave tile that a WaveConstraint gives; None without one."""
    if share is None:
        return None
    wave = _size(share.tile, values, share)
    if tile % wave:
        raise ConstraintError(
            f"{share}: a wave tile of {wave} does not divide the {whose} {tile} elements of {share.dim}",
            share.loc,
            hint=f"legal wave tiles are {names(divisors(tile))}",
        )
    if tile // wave > max_waves:
        legal = [d for d in divisors(tile) if tile // d <= max_waves]
        raise ConstraintError(
            f"{share}: {tile} / {wave} = {tile // wave} {wave_word}, but a workgroup has at most {max_waves}",
            share.loc,
            hint=f"legal wave tiles are {names(legal)}",
        )
    return wave


def _extent(dim: Any, values: Mapping[Any, Any], loc: Loc | None) -> int | Dynamic:
    extent = evaluate(dim, values)
    if extent is DYNAMIC or isinstance(extent, int):
        return extent
    raise ConstraintError(
        f"{dim} has no value",
        loc,
        hint=f"bind it: subs={{{dim}: …}}, an argument of that shape, or dynamic=({dim},)",
    )


def _size(expr: Any, values: Mapping[Any, Any], owner: Any) -> int:
    """A tile as a whole number of 1 or more. Raises ConstraintError that says what it is instead."""
    size = evaluate(expr, values)
    if isinstance(size, int):
        if size < 1:
            raise ConstraintError(f"{owner}: the tile is {size}", owner.loc, hint="a tile has at least 1 element")
        return size
    if size is DYNAMIC:
        raise ConstraintError(
            f"{owner}: the tile {expr} depends on a dynamic dimension",
            owner.loc,
            hint="tiles are compile-time numbers: bind them through subs",
        )
    free = sorted(getattr(size, "free_symbols", ()), key=str)
    if free:
        bind = ", ".join(f"{s}: …" for s in free)
        raise ConstraintError(f"{owner}: {names(free)} has no value", owner.loc, hint=f"bind it: subs={{{bind}}}")
    bound = ", ".join(f"{s} = {values[s]}" for s in sorted(expr.free_symbols, key=str) if s in values)
    raise ConstraintError(
        f"{owner}: the tile {expr} is {size} with {bound}, not a whole number",
        owner.loc,
        hint="choose sizes whose quotient is a whole number",
    )


def _vectors(hardware: HardwareConstraint, values: Mapping[Any, Any]) -> dict[Any, int]:
    found = {}
    for dim, elements in (hardware.vector_shapes or {}).items():
        count = 1 if elements == 0 else _size(elements, values, hardware)
        found[dim] = count
    return found


def _axis(d: ResolvedDim) -> int | None:
    """The axis of the grid that a dimension's tiles lie along, or would."""
    return d.axis if d.turns is None else d.turns


def _along_rows(resolved: ResolvedConstraints, want: int, wave_word: str) -> str:
    """How as many waves share rows, which no axis of the grid counts."""
    for r in resolved.dims.values():
        if r.loop is not None and r.loop % want == 0:
            tile = r.loop // want
            return f"; for {want} {wave_word} that share a trip's tile of {r.loop}: wd.WaveConstraint({r.dim}, {tile})"
    for r in resolved.dims.values():
        if r.workgroup is None and r.loop is None and not r.index and isinstance(r.extent, int):
            tile = -(-r.extent // (8 * want)) * 8  # whole vectors
            return (
                f"; for {want} {wave_word} that share a row: wd.WorkgroupConstraint({r.dim}, {tile * want}, 1) and "
                f"wd.WaveConstraint({r.dim}, {tile})"
            )
    return ""


def _check_waves(
    resolved: ResolvedConstraints, waves: Mapping[Any, WaveConstraint], max_waves: int, wave_word: str
) -> None:
    """Raise ConstraintError where the waves are more than a workgroup has, or others than `waves_per_block` asks
    for."""
    known = [d for d in resolved.dims.values() if d.waves is not None and (_axis(d) is not None or d.dim in waves)]
    total = 1
    for d in known:
        total *= d.waves or 1
    product = " × ".join(f"{d.waves} along {d.dim}" for d in known if d.dim in waves)
    if total > max_waves:
        last = list(waves.values())[-1]
        raise ConstraintError(
            f"{total} {wave_word} ({product}), but a workgroup has at most {max_waves}",
            last.loc,
            hint="use larger wave tiles or a smaller workgroup tile",
        )
    asked = resolved.hardware.waves_per_block
    if asked is None:
        return
    want = 1
    for w in asked:
        want *= w
    if want > max_waves:
        raise ConstraintError(
            f"waves_per_block={asked} asks for {want} {wave_word}, but a workgroup has at most {max_waves}",
            resolved.hardware.loc,
            hint=f"a product of at most {max_waves}",
        )
    if resolved.waves is not None and resolved.waves != want:
        by_axis = [1, 1, 1]
        for d in known:
            by_axis[_axis(d) or 0] *= d.waves or 1
        made = f"the tiles along the grid's axes give {total}"
        if product:
            made = f"the WaveConstraints make {total} ({product})"
        raise ConstraintError(
            f"waves_per_block={asked} asks for {want} {wave_word}, but {made}",
            resolved.hardware.loc,
            hint=f"leave waves_per_block out, or give {tuple(by_axis)}{_along_rows(resolved, want, wave_word)}",
        )
    if resolved.waves is not None:
        by_axis = [1, 1, 1]
        for d in known:
            by_axis[_axis(d) or 0] *= d.waves or 1
        given = (*asked, 1, 1, 1)[:3]
        if tuple(by_axis) != given:
            raise ConstraintError(
                f"waves_per_block={asked} divides the workgroup differently from the WaveConstraints ({product})",
                resolved.hardware.loc,
                hint=f"leave waves_per_block out, or give {tuple(by_axis)}",
            )
