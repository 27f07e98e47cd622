"""Constraints → how each dimension is cut over workgroups, waves and loop trips.

In: the traced graph, the extent of every dimension (an int, or None where it is a run-time argument), the constraints
resolved to integers, the target. Out: a `Partition`: per dimension a `DimPlan`, the number of waves, the grid.

A coordinate along a dimension is
    base + wave_digit * wave + digit * box + inside
where `base` is the workgroup's or the loop trip's first element, `wave_digit` this wave's share, and the last two
terms belong to the fragment layout (`layout.py`). Waves are mixed radix over the dimensions in order of their
workgroup axis, then over those of loops and of rows that no constraint cuts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import islice
from math import lcm, prod
from typing import Any

from wavedsl.ir.cuts.loop_waves import lines_and_rows, lines_of_columns, waves_along_loops
from wavedsl.ir.cuts.product_waves import Share, dims_of_all, other_ways
from wavedsl.ir.cuts.row_waves import LANE_WORDS, check_rows, fewer_rows, most_elements, share_rows
from wavedsl.ir.dataflow.constraints import ResolvedConstraints, ResolvedDim, divisors, whole_tiles
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph, Node, Region, ValueType, factors, xor_of_index
from wavedsl.ir.dataflow.views import unmapped_dims
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import DYNAMIC, scale_of, with_numbers
from wavedsl.ir.target import Target

LOOPS = 3
"""Where waves that share a loop's tile come in the order of waves: behind those of the three grid axes."""


@dataclass
class DimPlan:
    """One dimension. All sizes in elements."""

    dim: Any
    role: str
    """`workgroup`, `loop`, `whole` (one tile holds it all) or `index` (tile 1, in no register; without an
    axis every access fixes its coordinate)."""
    extent: int | None
    """None: a run-time argument."""
    tile: int
    """Elements that one workgroup, one loop trip or the kernel covers at a time."""
    wave: int
    """Elements of the tile that one wave covers."""
    axis: int | None = None
    loc: Loc | None = None
    vector: int | None = None
    """Elements that one operation of a wave covers, where the user says so."""
    parts: int = 1
    """Trips that one tile of the user's was cut into (`retile.py`)."""
    inside: bool = False
    """Whether the tile at hand is known to lie inside the extent (`whole_tiles.py`)."""
    shared: int = 0
    """Elements of the tile of which this is a workgroup's share (`joined_parts`); 0 where it is a tile itself."""
    summed: bool = False
    """Whether workgroups add parts of sums along it (`partial_sums.py`): what lies past the tile is in another part."""

    @property
    def waves(self) -> int:
        return self.tile // self.wave

    @property
    def ragged(self) -> bool:
        """Whether the last tile sticks out of the extent (or may: a run-time extent)."""
        whole = self.shared or self.tile
        return not self.inside and (self.extent is None or self.extent % whole != 0 or self.extent == 0)

    @property
    def trips(self) -> int | None:
        """Tiles along this dimension, None when it is known at run time only."""
        return None if self.extent is None else -(-self.extent // self.tile)


@dataclass
class Partition:
    """How a kernel is cut. `order` lists the dimensions that waves are spread over, fastest first."""

    dims: dict[Any, DimPlan]
    order: list[Any] = field(default_factory=list)
    waves: int = 1
    derived: dict[Any, tuple[Any, Fraction]] = field(default_factory=dict)
    """Dimensions such as `K / 32`, cut where another one is: dimension → (that one, elements per element of it)."""
    alike: dict[Any, Any] = field(default_factory=dict)
    """Dimensions that count a workgroup's share of another one's tile: dimension → that one, whose waves it has."""
    shared_rows: bool = False
    """Whether waves share more than the constraints say, because registers lack or products are repeated."""

    @property
    def shares(self) -> dict[Any, int]:
        """What a wave has of each dimension."""
        return {d: p.wave for d, p in self.dims.items()}

    def wave_radix(self, dim: Any) -> tuple[int, int]:
        """(divisor, modulus) that turn the wave index into this dimension's wave digit."""
        divisor = 1
        for other in self.order:
            if other == dim:
                return divisor, self.dims[dim].waves
            divisor *= self.dims[other].waves
        return divisor, 1

    def grid_axes(self) -> list[list[Any]]:
        """Dimensions on each of the three grid axes, fastest first."""
        axes: list[list[Any]] = [[], [], []]
        for plan in self.dims.values():
            if plan.axis is not None:
                axes[plan.axis].append(plan.dim)
        return axes


def default_waves(
    tiles: dict[Any, int], multiples: Mapping[Any, int], wanted: int, fixed: dict[Any, int],
    rows: frozenset[Any] = frozenset(), parts: Mapping[Any, int] | None = None,
) -> dict[Any, int]:  # fmt: skip
    """Divide workgroup tiles over about `wanted` waves: halve the dimension with the most atoms until enough, and where
    none is left that can be halved, take an odd factor (not of warpgroups, of which one has any number of 64 rows).

    `multiples` is the atom extent per dimension, below which a wave tile is not cut; `fixed` holds the wave tiles
    that the user gave; `rows` are dimensions to cut first; `parts` are elements that stay together because a derived
    dimension such as `K / 32` has one for all of them. Returns the wave tile of every dimension.
    """
    parts = parts or {}
    wave = {d: fixed.get(d, t) for d, t in tiles.items()}
    count = prod(tiles[d] // wave[d] for d in tiles)

    def divisible(d: Any, by: int) -> bool:
        return d not in fixed and wave[d] % (by * lcm(multiples.get(d, 1), parts.get(d, 1))) == 0

    while count < wanted:
        by, free = 2, [d for d in tiles if divisible(d, 2)]
        if not free and not rows:
            # 3 or 5 atoms, say. Of what has no atoms, odd parts would be loaded element by element.
            odd = [(by, d) for d in tiles if d in multiples for by in (3, 5, 7) if divisible(d, by)]
            odd = [(by, d) for by, d in odd if count * by <= 2 * wanted]
            by = max((by for by, d in odd), default=by)
            free = [d for p, d in odd if p == by]
        if not free:
            break
        best = max(free, key=lambda d: (d in rows, wave[d] / multiples.get(d, 1), -list(tiles).index(d)))
        wave[best] //= by
        count *= by
    return wave


def check_waves(partition: Partition, wave_size: int, max_waves: int, max_threads: int, target: str) -> None:
    """Raise ConstraintError, naming the dimensions, when the workgroup is more than the chip can hold."""
    if partition.waves <= max_waves and partition.waves * wave_size <= max_threads:
        return
    shares = ", ".join(f"{d}: {p.tile}/{p.wave} = {p.waves}" for d, p in partition.dims.items() if p.waves > 1)
    where = next((p.loc for p in partition.dims.values() if p.waves > 1 and p.loc is not None), None)
    raise ConstraintError(
        f"the workgroup has {partition.waves} waves of {wave_size} lanes ({shares}); {target} takes at most "
        f"{min(max_waves, max_threads // wave_size)}",
        where,
        "make the tiles of WaveConstraint larger or those of WorkgroupConstraint smaller",
    )


def _check_loops(region: Region, dims: Mapping[Any, DimPlan], open_loops: frozenset[Any]) -> None:
    """Raise ConstraintError for a value along a dimension of several loop tiles that is in no loop over it: all of the
    dimension is meant there, and one tile is what a workgroup holds."""
    for node in region.nodes:
        for d in (d for t in _types(node) for d in t.dims):
            plan = dims.get(d)
            if plan is None or plan.role != "loop" or node.op in ("fill", "constant"):
                continue
            if (plan.extent is None or plan.extent > plan.tile) and not open_loops & getattr(d, "free_symbols", {d}):
                raise ConstraintError(
                    f"{node.op}: all of {d} is meant outside of a loop over it, but its TilingConstraint cuts it into "
                    f"tiles of {plan.tile}",
                    node.loc or plan.loc,
                    f"do it for each tile under @wd.iterate({d}, …), or drop the TilingConstraint",
                )
        body = node.attrs.get("body")
        if body is not None:
            _check_loops(body, dims, open_loops | {body.dim} if node.op == "iterate" else open_loops)


def cut(graph: Graph, resolved: ResolvedConstraints, target: Target, widen: bool = True) -> Partition:
    """The partition that the constraints, or for what they leave open the target, give: the first of `cuts`."""
    return next(cuts(graph, resolved, target)) if widen else _cut(graph, resolved, target, {}, False)


def cuts(graph: Graph, resolved: ResolvedConstraints, target: Target) -> Iterator[Partition]:
    """Partitions that the constraints, or for what they leave open the target, give, best first. Where registers lack,
    waves share more than the constraints say (`row_waves.py`, `product_waves.py`); what waves have to tell each other
    may not fit shared memory, and others follow then. Raises ConstraintError where there is none."""
    plain = _cut(graph, resolved, target, {}, True)
    yield from _other_ways(graph, resolved, target, plain)
    yield plain
    if plain.shared_rows:
        yield _cut(graph, resolved, target, {}, False)


def _other_ways(
    graph: Graph, resolved: ResolvedConstraints, target: Target, plain: Partition, crowded: bool = False
) -> Iterator[Partition]:
    """Partitions in which waves divide a product's tiles otherwise than in this one (`product_waves.py`)."""
    tiles = _constrained(graph, resolved)
    if resolved.hardware.waves_per_block is not None or not _matrix(graph):
        return
    kept = {*tiles.fixed, *_contracted(_matrix(graph)), *tiles.derived}
    together, parts = _multiples(tiles, _matrix(graph), resolved, target), _parts(tiles)
    dealt = {d for d in tiles.free if target.asynchronous and resolved[d].turns is not None}
    free = {
        d: lcm(together.get(d, 1), parts.get(d, 1))
        for d in tiles.free
        if d not in kept and (plain.dims[d].role == "workgroup" or d in dealt)
    }
    limit = min(target.max_waves, target.max_threads // target.wave_size)
    fixed = {d for d in plain.dims if resolved.wave(d) is not None or resolved.vector(d) is not None}
    alone, picked = {*tiles.together, *fixed}, {*tiles.picked}
    if target.asynchronous:  # warpgroups come and go in roles of their own: they do not meet to pick
        alone, picked = alone | picked, set()
    for shares in other_ways(graph, plain, free, alone, limit, target, crowded, picked):
        try:
            yield _cut(graph, resolved, target, shares, False)
        except ConstraintError:
            continue


WAYS = 3
"""Ways to divide products among more waves that are tried: each is laid out and lowered."""
FEWEST_WORDS = 4
"""Words of a value that lanes keep at least, where they have fewer so that all values have room."""


def more_waves(
    graph: Graph, resolved: ResolvedConstraints, target: Target, partition: Partition
) -> Iterator[Partition]:
    """Partitions with more waves than this one, because values together are more than the registers of a lane."""
    if _matrix(graph):
        plain = _cut(graph, resolved, target, {}, True)
        others = (p for p in _other_ways(graph, resolved, target, plain, True) if p.shares != partition.shares)
        yield from islice(others, WAYS)
        return
    yield from _of_fewer_words(graph, resolved, target, {}, LANE_WORDS // 2, partition.waves)


def smaller_trips(
    graph: Graph, resolved: ResolvedConstraints, target: Target, tiles: Mapping[Any, int]
) -> Iterator[Partition]:
    """Partitions of a kernel without products with these tiles of loops, because values together are more than the
    registers of a lane however many waves share a larger one."""
    yield from _of_fewer_words(graph, resolved, target, tiles, LANE_WORDS, 0)


def _of_fewer_words(
    graph: Graph, resolved: ResolvedConstraints, target: Target, tiles: Mapping[Any, int], words: int, waves: int
) -> Iterator[Partition]:
    """Partitions with more than `waves`, of whose values lanes have `words` at the most, and ever fewer."""
    while words >= FEWEST_WORDS:
        found = _cut(graph, resolved, target, {}, True, tiles, words)
        if found.waves > waves:
            waves = found.waves
            yield found
        words //= 2


def _cut(
    graph: Graph, resolved: ResolvedConstraints, target: Target, shares: Mapping[Any, Share], widen: bool,
    rows: Mapping[Any, int] | None = None, words: int = LANE_WORDS,
) -> Partition:  # fmt: skip
    """One partition. `shares`: what waves have of some dimensions instead of what suits the target; `widen`: whether
    they may share rows that are long for one, of which a lane has more than `words`; `rows`: tiles of workgroups,
    or of loops, instead of the user's. Raises ConstraintError."""
    rows = rows or {}
    matrix = _matrix(graph)
    tiles = _constrained(graph, resolved)
    for d, tile in rows.items():
        tiles.dims[d].tile = tiles.dims[d].wave = tile
        if d in tiles.free:
            tiles.free[d] = tile
    dims, derived, free = tiles.dims, tiles.derived, tiles.free
    order = sorted(free, key=lambda d: (_rank(dims[d], resolved[d].turns), list(free).index(d)))
    limit = min(target.max_waves, target.max_threads // target.wave_size)
    waves = _wave_tiles(graph, tiles, order, matrix, resolved, limit, target)
    for d, wave in waves.items():
        dims[d].wave = wave
    order += [d for d in waves if d not in order]
    for d, share in shares.items():
        dims[d].wave, dims[d].tile = share.wave, share.tile
        if d not in order:
            order.append(d)
    widened = bool(shares)
    if not matrix and resolved.hardware.waves_per_block is None and widen:
        given = {d for d in tiles.fixed if d not in tiles.picked or resolved.wave(d) is not None}
        kept = {*given, *tiles.together, *derived}
        last = {d for d, waits in tiles.picked.items() if waits}
        lines, _ = lines_and_rows(graph, [d for d in order if d not in kept], _adding_loops(tiles, kept), target)
        lines = {**lines_of_columns(graph, [d for d in order if d not in kept], target), **lines}
        widened = share_rows(graph, dims, order, kept, limit, target, last, words, lines)
        bases = {base for base, _ in derived.values()}
        vectors = {d for d in dims if resolved.vector(d) is not None}
        long = fewer_rows(graph, dims, {*kept, *bases, *vectors}, target)
        if long is not None:
            return _cut(graph, resolved, target, shares, widen, {**rows, long: -(-dims[long].tile // 2)}, words)
        check_rows(graph, dims, target)
    for d in order:
        if dims[d].role == "whole" and dims[d].waves > 1:
            dims[d].role = "workgroup"  # one tile, of which each wave has a part
    for d, plan in dims.items():
        plan.vector = resolved.vector(d)
        if plan.vector is not None and plan.role in ("workgroup", "loop") and plan.wave % plan.vector:
            raise ConstraintError(
                f"vector_shapes gives {plan.vector} elements of {d}, which do not divide the {plan.wave} of a wave",
                resolved.hardware.loc,
                f"legal sizes are {', '.join(map(str, divisors(plan.wave)))}",
            )
    for d, (base, factor) in derived.items():
        _cut_along(dims[d], dims[base], factor)
    for d, base in tiles.alike.items():
        _share_alike(dims[d], dims[base])
    _check_loops(graph.region, dims, frozenset())
    for d, plan in dims.items():
        shared = plan.role == "workgroup" and plan.trips not in (0, 1)
        summed = shared and (derived[d][0] if d in derived else d) in _contracted(matrix)
        dims[d] = replace(plan, summed=True) if summed else plan
    partition = Partition(dims, order, prod(dims[d].waves for d in order), derived, tiles.alike, widened)
    check_waves(partition, target.wave_size, target.max_waves, target.max_threads, target.name)
    wanted_lanes = resolved.hardware.threads_per_wave
    if wanted_lanes is not None and wanted_lanes != target.wave_size:
        raise ConstraintError(
            f"threads_per_wave={wanted_lanes}: a wave of {target.name} has {target.wave_size} lanes",
            resolved.hardware.loc,
            f"write threads_per_wave={target.wave_size}, or leave it out",
        )
    _check_asked(partition, resolved)
    return partition


def _check_asked(partition: Partition, resolved: ResolvedConstraints) -> None:
    """Raise ConstraintError where the waves are not as many as `waves_per_block` asks for."""
    asked = resolved.hardware.waves_per_block
    if asked is None or prod(asked) == partition.waves:
        return
    found = [1, 1, 1]
    for d in partition.order:
        axis = partition.dims[d].axis
        found[axis if axis is not None else resolved[d].turns or 0] *= partition.dims[d].waves
    shares = ", ".join(f"{p.waves} along {d}" for d in partition.order if (p := partition.dims[d]).waves > 1)
    raise ConstraintError(
        f"waves_per_block={asked} asks for {prod(asked)} waves, but the workgroup's tile has {partition.waves}"
        + (f" ({shares})" if shares else ""),
        resolved.hardware.loc,
        f"leave waves_per_block out, or give {tuple(found)}",
    )


@dataclass
class _Tiles:
    """The dimensions as constraints cut them, before waves share a tile. `free`: tiles that waves may share; `fixed`:
    what a wave has of those, where the constraints say it; `together`: dimensions that no waves may share; `picked`:
    those that they share where registers lack only, for then elements are taken through shared memory, and whether
    every time."""

    dims: dict[Any, DimPlan]
    derived: dict[Any, tuple[Any, Fraction]]
    free: dict[Any, int]
    fixed: dict[Any, int]
    together: set[Any]
    picked: dict[Any, bool]
    alike: dict[Any, Any] = field(default_factory=dict)
    """Dimensions that count shares of another one's tile, and that one."""


def _constrained(graph: Graph, resolved: ResolvedConstraints) -> _Tiles:
    """The tiles that the constraints give, and which of them waves may share. Where these are none of a product's rows
    and columns, waves share those that no constraint cuts and all products have: 64 queries that `subs` alone gives."""
    together, picked = _in_one_wave(graph)
    found = _Tiles({}, {}, {}, {}, together, picked)
    held = {d for n in graph.all_nodes() for t in _types(n) for d in t.dims}
    unmapped = unmapped_dims(graph)
    for d in _used_dims(graph):
        base = _base_of(d, resolved)
        if d in unmapped and base is not None and base[1].denominator > 1:  # `K / 32`, which only mappings count along
            base = None
        r = resolved.uncut(d) if base is None and d in unmapped else resolved[d]
        if base is not None:
            found.derived[d] = base
        if r.of is not None:
            found.alike[d] = r.of
            together.add(d)
        plan = found.dims[d] = _unshared(d, r, held, unmapped)
        if plan.role == "workgroup":
            if base is not None:
                plan.axis = None
            elif plan.axis is not None:
                found.free[d] = plan.tile
            share = _wave_share(d, r, plan.tile, r.axis, resolved, together | set(picked))
        elif plan.role == "loop":
            alone = together | set(picked)
            share = r.wave if r.turns is None else _wave_share(d, r, plan.tile, r.turns, resolved, alone)
            if base is None and (share is not None or r.turns is not None):
                found.free[d] = plan.tile  # a derived dimension has no waves of its own
        else:
            continue
        if share is not None:
            found.fixed[d] = share
    products = _matrix(graph)
    if products and not any(d in found.free for n in products for d in n.dims):
        kept = {*together, *picked, *found.derived, *(base for base, _ in found.derived.values())}
        whole = [d for d in dims_of_all(products) if found.dims[d].role == "whole" and d not in kept]
        found.free |= {d: found.dims[d].tile for d in whole}
    return found


def _unshared(d: Any, r: ResolvedDim, held: Collection[Any], unmapped: Collection[Any]) -> DimPlan:
    """A dimension as its constraints cut it, each wave with all of a tile. `held`: dimensions of values; `unmapped`:
    those of arrays of which every access fixes the coordinate."""
    extent = None if r.extent is DYNAMIC else int(r.extent)
    if d in unmapped:
        return DimPlan(d, "index", extent, 1, 1, None, r.loc)
    if r.index:
        return DimPlan(d, "index", extent, 1, 1, r.axis, r.loc)
    if r.workgroup is not None:
        return DimPlan(d, "workgroup", extent, r.workgroup, r.workgroup, r.axis, r.loc)
    if r.loop is not None:
        return DimPlan(d, "loop", extent, r.loop, r.loop, None, r.loc)
    if d not in held:
        return DimPlan(d, "index", extent, 1, 1, None, r.loc)
    if extent is None:
        raise ConstraintError(
            f"{d} is a run-time argument and has neither a workgroup nor a loop tile",
            r.loc,
            f"add wd.WorkgroupConstraint({d}, <tile>, <axis>) or wd.TilingConstraint({d}, <tile>)",
        )
    return DimPlan(d, "whole", extent, max(extent, 1), max(extent, 1), None, r.loc)


def _wave_tiles(
    graph: Graph, tiles: _Tiles, order: Sequence[Any], matrix: Sequence[Node], resolved: ResolvedConstraints,
    limit: int, target: Target,
) -> dict[Any, int]:  # fmt: skip
    """What a wave has of every tile that waves may share: as constraints say, else of as many waves as suit the target,
    `limit` at the most."""
    dims = tiles.dims
    multiples = _multiples(tiles, matrix, resolved, target)
    if resolved.hardware.waves_per_block is not None:
        wanted = 1
    elif matrix:
        wanted = target.default_waves
    else:
        elements = most_elements(graph, {d: p.tile for d, p in dims.items() if p.role != "index"})
        wanted = max(1, min(4, elements // (target.wave_size * 4)))
    # An asynchronous instruction reads its columns' operand anew for every 64 rows: wide tiles of few rows read least.
    wide = target.asynchronous
    rows = frozenset(d for n in matrix for d in n.inputs[0].dims if d in n.dims) if wide else frozenset()
    parts = _parts(tiles)
    shared = {d: tiles.free[d] for d in order}
    # Waves that share a contracted dimension add their sums through shared memory: they do where rows are too few.
    inner = {d: shared[d] for d in shared if d in _contracted(matrix) and d not in multiples and d not in tiles.fixed}
    found = default_waves(shared, multiples, min(wanted, limit), {**tiles.fixed, **inner}, rows, parts)
    if not matrix and not multiples and not tiles.fixed and resolved.hardware.waves_per_block is None:
        loops = _adding_loops(tiles, {*shared, *parts})
        other = waves_along_loops(
            graph, found, loops, target,
            lambda more, least: default_waves({**shared, **more}, least, min(wanted, limit), {}, parts=parts),
        )  # fmt: skip
        if other and prod(dims[d].tile // w for d, w in other.items()) >= min(wanted, limit):
            return other
    if not inner:
        return found
    multiples |= dict.fromkeys(inner, CONTRACTED)
    others = {d: w for d, w in found.items() if d not in inner}
    return default_waves(shared, multiples, min(wanted, limit), {**tiles.fixed, **others}, parts=parts)


def _adding_loops(tiles: _Tiles, kept: Collection[Any]) -> dict[Any, int]:
    """Tiles of loops that waves may share."""
    alone = {*tiles.together, *tiles.picked, *tiles.derived, *kept}
    return {d: p.tile for d, p in tiles.dims.items() if p.role == "loop" and d not in alone}


def _multiples(
    tiles: _Tiles, matrix: Sequence[Node], resolved: ResolvedConstraints, target: Target
) -> dict[Any, int]:
    """Elements below which a tile is not cut."""
    found = {d: target.tile_rows for n in matrix for d in n.dims}
    return found | {d: v for d in tiles.dims if (v := resolved.vector(d)) is not None}


def _parts(tiles: _Tiles) -> dict[Any, int]:
    """Elements that stay together because a derived dimension such as `K / 32` has one for all of them."""
    parts: dict[Any, int] = {}
    for base, factor in tiles.derived.values():
        parts[base] = lcm(parts.get(base, 1), factor.denominator)
    return parts


CONTRACTED = 128
"""Elements that each of the waves that share a contracted dimension has: what the longest instruction takes."""


def _matrix(graph: Graph) -> list[Node]:
    """The products of a kernel."""
    return [n for n in graph.all_nodes() if n.op in PRODUCTS]


def _contracted(matrix: Sequence[Node]) -> set[Any]:
    """The dimensions that products sum over."""
    return {d for n in matrix for i in factors(n) for d in n.inputs[i].dims if d not in n.dims}


def _rank(plan: DimPlan, turns: int | None) -> int:
    """Where the waves along a dimension come in the order of waves."""
    if plan.axis is None and turns is None:
        return LOOPS
    return (plan.axis if turns is None else turns) or 0


def _wave_share(
    d: Any, r: ResolvedDim, tile: int, axis: int | None, resolved: ResolvedConstraints, together: set[Any]
) -> int | None:
    """Elements of a tile along a grid axis that a wave has, where that is not left open."""
    per_block = resolved.hardware.waves_per_block
    if r.wave is not None:
        return r.wave
    if d in together:
        return tile
    if per_block is None or axis is None:
        return None
    waves = per_block[axis] if axis < len(per_block) else 1
    if tile % waves:
        raise ConstraintError(
            f"waves_per_block gives {waves} waves along axis {axis}, which do not divide the tile of "
            f"{tile} elements of {d}",
            resolved.hardware.loc,
            f"legal counts are {', '.join(map(str, divisors(tile)))}",
        )
    return tile // waves


def _base_of(d: Any, resolved: ResolvedConstraints) -> tuple[Any, Fraction] | None:
    """The dimension that a derived one such as `K / 32` follows, where that one is cut, and their ratio."""
    if getattr(d, "is_Symbol", True):
        return None
    for base in sorted(getattr(d, "free_symbols", ()), key=str):
        source = resolved.dims.get(base)
        factor = scale_of(d, base) if source is not None else None
        if source is None or factor is None or source.index or (source.workgroup is None and source.loop is None):
            continue
        factor = with_numbers(factor, resolved.values)
        if factor.is_Rational:
            return base, Fraction(int(factor.p), int(factor.q))
    return None


def _cut_along(plan: DimPlan, base: DimPlan, factor: Fraction) -> None:
    """Give a derived dimension the tiles of the one that it follows."""
    tile, wave = base.tile * factor, base.wave * factor
    for size, elements, what in ((tile, base.tile, "a tile"), (wave, base.wave, "a wave's share")):
        if size.denominator != 1:
            raise ConstraintError(
                f"{what} of {elements} elements of {base.dim} is {size} elements of {plan.dim}",
                base.loc,
                whole_tiles(plan.dim, base.dim),
            )
    plan.role, plan.tile, plan.wave, plan.axis = base.role, int(tile), int(wave), None


def _share_alike(plan: DimPlan, base: DimPlan) -> None:
    """Spread a workgroup's share of a tile over the waves that the tile is spread over."""
    if plan.tile % base.waves:
        raise ConstraintError(
            f"{base.waves} waves that share the {base.tile} elements of a tile of {base.dim} cannot share the "
            f"{plan.tile} that each of the cluster's workgroups has of it",
            base.loc, f"larger tiles of {base.dim}, or fewer parts",
        )  # fmt: skip
    plan.wave, plan.shared = plan.tile // base.waves, base.tile


def _in_one_wave(graph: Graph) -> tuple[set[Any], dict[Any, bool]]:
    """Dimensions that an operation wants in one wave as a whole: rows that are sorted, what a reshape counts again; and
    those along which elements are picked, with whether all waves would have to wait for each other whenever they are:
    not where elements change places by `index ^ mask`, most of them within a wave."""
    together: set[Any] = set()
    picked: dict[Any, bool] = {}
    for n in graph.all_nodes():
        if n.op in ("sort", "topk"):
            together.add(n.attrs["dim"])
        elif n.op in ("extract", "shuffle"):
            for d in {n.attrs["dim"], n.attrs.get("new")} - {None}:
                picked[d] = picked.get(d, False) or n.op == "extract" or xor_of_index(n.inputs[1], d) is None
        elif n.op == "reshape":
            together |= set(n.inputs[0].dims) ^ set(n.dims)
    return together, picked


def _types(n: Node) -> tuple[ValueType, ...]:
    """The types of a node's values."""
    if n.type is None:
        return ()
    return n.type if isinstance(n.type, tuple) else (n.type,)


def _used_dims(graph: Graph) -> list[Any]:
    """Every dimension of an argument, a value or a constraint, in order of first appearance."""
    found: dict[Any, None] = {}
    for c in graph.constraints:
        if getattr(c, "dim", None) is not None:
            found.setdefault(c.dim)
    for a in graph.arguments:
        for d in a.dims:
            found.setdefault(d)
    for n in graph.all_nodes():
        for t in _types(n):
            for d in t.dims:
                found.setdefault(d)
    return list(found)
