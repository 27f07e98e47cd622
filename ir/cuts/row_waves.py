"""Rows that are long for one wave: the waves that share them, where the user has not said.

In: the dimensions of a kernel without matrix instructions, cut as the constraints say, each wave with all of a row.
Out: more waves, along the grid's dimensions first (they have nothing to tell each other), then along rows, then along
the rows of what is large by several dimensions, or rather along what several such values have in common, until no lane
has more than `LANE_WORDS` words of a value. Waves that
share a row join their sums through shared memory, which is cheap beside registers that spill; a product's waves are
chosen elsewhere (`partition.py`). A kernel that has many values at a time may want more registers than a lane has all
the same: then it is cut with fewer words (`partition.more_waves`).

Where a workgroup has no more waves, it gets fewer rows than the user says (`fewer_rows`), if nobody can tell: rows have
nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from wavedsl.ir.cuts.register_file import ADDRESSES, VECTORS, held_words
from wavedsl.ir.dataflow.graph import REGIONS, Graph, Node, Region, ValueType, region_nodes
from wavedsl.ir.dataflow.ops import MADE_ANYWHERE, ROWS
from wavedsl.ir.errors import RegisterPressureError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

if TYPE_CHECKING:
    from wavedsl.ir.cuts.partition import DimPlan

LANE_WORDS = 32
"""32-bit registers of one value that a lane has before more waves share it: eight loads of 16 bytes on their way, and
room for some such values in the 128 registers that a lane has in a workgroup of 16 waves (AMD) or warps."""
LEAST_VECTOR = 4
"""Elements of a row that each lane keeps at least: one load of 16 bytes of f32."""
LEAST_ROWS = 8
"""Rows of a value of several dimensions that each wave keeps at least."""

BY_PLACE = ("read", "write", "fill", "constant", "scalar", "size", "index", "random", "permute")
"""Operations that give each row what it has whatever other rows there are, beside elementwise ones."""


@dataclass(frozen=True)
class Widest:
    """The value that takes most registers of a lane."""

    node: Node
    type: ValueType
    words: float


def share_rows(
    graph: Graph, dims: Mapping[Any, DimPlan], order: list[Any], kept: Collection[Any], limit: int, target: Target,
    last: Collection[Any] = (), most: int = LANE_WORDS, lines: Mapping[Any, int] | None = None,
) -> bool:  # fmt: skip
    """Give `dims` smaller wave tiles, and append to `order` the rows that waves now share; whether there were any.
    `kept`: dimensions that stay as they are; `last`: those to share if no other can be, and only where
    values together are more than a wave's registers. `limit`: waves of a workgroup; `most`: words of a value that a
    lane may have; `lines`: elements of a cache line of what a loop's rows, which waves may share too, are long by."""
    lanes = target.wave_size
    types = list(_types(graph))
    held = {d for _, t in types for d in t.dims}
    follow = {s for d in held for s in getattr(d, "free_symbols", ()) if s != d}  # beside a value's K, one's K / 32
    kept = {*kept, *follow, *(d for d, p in dims.items() if p.role == "index" or not getattr(d, "is_Symbol", True))}
    joined = {n.attrs.get("dim") for n in graph.all_nodes() if n.inputs and n.op not in ("read", "write")}
    in_trips = _joined_in_trips(graph)
    waves = given = prod(p.waves for p in dims.values())
    scarce = bool(last) and _scarce(graph, dims, target)
    while (widest := _widest(types, dims, lanes)) is not None and widest.words > most and 2 * waves <= limit:
        open_dims = [d for d in widest.type.dims if d in dims and d not in kept and (scarce or d not in last)]
        long = [d for d in open_dims if _halves(dims[d], LEAST_VECTOR * lanes)]
        # Of a value that several dimensions make large, whole rows go to waves: the last one's stay together, unless
        # more values become smaller by them.
        rows = [d for d in open_dims if len(widest.type.dims) > 1 and _halves(dims[d], LEAST_ROWS)]
        inner = widest.type.dims[-1]
        free = {d: int(d != inner) for d in rows} | dict.fromkeys(long, 2)
        # Before lanes have less than a vector of what is contiguous. But what all waves that share it would read, the
        # matrix of a product with few vectors, they read where registers lack only.
        if not any(d != inner or d in long for d in free):
            short = [d for d in open_dims if d != inner and _short(widest.type, dims, d, lanes)]
            if any(_read_by_all(graph, widest.type, d) for d in short) and not _scarce(graph, dims, target):
                short = []
            apart = [d for d in short if d not in joined]
            free = dict.fromkeys(apart or short, 1) or free
        # Loops over rows that waves share add up whole lines: half a line each is twice the accesses.
        whole = {d: n for d, n in free.items() if _half(dims[d]) >= (lines or {}).get(d, 0)}
        free = whole or free
        if not free:
            break
        excess = {d: _excess(types, dims, lanes, d, most) for d in free}
        d = max(
            free,
            key=lambda d: (
                d not in last, -excess[d], d not in in_trips, free[d], dims[d].axis is not None, dims[d].wave
            ),
        )  # fmt: skip
        _halve(dims[d])
        waves *= 2
        if d not in order:
            order.append(d)
    return waves > given


def _joined_in_trips(graph: Graph) -> set[Any]:
    """Dimensions along which every trip of a loop combines elements: where waves share one, all of them meet in every
    trip. What a loop only adds to its sums waits until behind it (`late_sums`)."""
    found: set[Any] = set()
    for loop in graph.all_nodes():
        if loop.op not in ("iterate", "repeat"):
            continue
        body: Region = loop.attrs["body"]
        sums = {x.id for y in body.yields if y.op == "add" for x in y.inputs if x.op == "sum"}
        for n in region_nodes(body):
            if n.inputs and n.op not in ("read", "write") and n.id not in sums:
                found.add(n.attrs.get("dim"))
    return found


def _scarce(graph: Graph, dims: Mapping[Any, DimPlan], target: Target) -> bool:
    """Whether values together are more than the registers that instructions can name. Elements that are picked along a
    dimension that waves share make all of them wait twice, so one wave keeps what it can hold: the inverse of a
    triangular matrix of 64 x 64 takes 39000 clocks of gfx942 in one wave, 60000 in two, by the model. Where it cannot,
    waves share until values are of `LANE_WORDS`: that inverse spills in one wave of sm_80, takes 28000 clocks with 64
    registers of each value and 23000 with 32."""
    held, room = held_words(graph, {d: p.wave for d, p in dims.items()}, target), min(target.registers, VECTORS)
    widest = _widest(list(_types(graph)), dims, target.wave_size)
    return held + ADDRESSES > room or (widest is not None and 2 * widest.words >= room)


def fewer_rows(graph: Graph, dims: Mapping[Any, DimPlan], kept: Collection[Any], target: Target) -> Any:
    """The dimension of which a workgroup should have half as many rows, because lanes have more than `LANE_WORDS` of a
    value although waves share what they may; None where they do not, or something depends on how many there are.
    `kept`: dimensions that stay as they are."""
    widest = _widest(list(_types(graph)), dims, target.wave_size)
    if widest is None or widest.words <= LANE_WORDS:
        return None
    together: set[Any] = set()
    for n in graph.all_nodes():
        row = ROWS[n.op]
        if n.op in REGIONS or (row.effect and n.op != "write") or n.op in ("tile_start", "tile_stop"):
            return None
        if row.index_rule not in ("same", "lift") and n.op not in BY_PLACE:
            together |= {n.attrs.get("dim"), *(d for x in n.inputs for d in set(x.dims) ^ set(_dims(n)))}
    free = [
        d for d in widest.type.dims
        if d in dims and dims[d].axis is not None and dims[d].tile > 1 and d not in together and d not in kept
    ]  # fmt: skip
    return max(free, key=lambda d: dims[d].tile, default=None)


def check_rows(graph: Graph, dims: Mapping[Any, DimPlan], target: Target) -> None:
    """Raise RegisterPressureError for a value beyond a lane's registers."""
    widest = _widest(list(_types(graph)), dims, target.wave_size)
    if widest is not None and widest.words > target.registers:
        _refuse(widest, dims, target, kept_together(graph, widest.type))


def kept_together(graph: Graph, t: ValueType) -> str:
    """Which operation keeps a dimension of a value in one wave, in words."""
    for n in graph.all_nodes():
        found = {n.attrs["dim"]} if n.op in ("sort", "topk") else set()
        if n.op == "reshape":
            found = set(n.inputs[0].dims) ^ set(n.dims)
        for d in (d for d in t.dims if d in found):
            where = "" if n.loc is None else f" (line {n.loc.line})"
            return f"; {n.op}{where} keeps {d} in one wave"
    return ""


def _dims(n: Node) -> tuple[Any, ...]:
    """The dimensions of a node's value, or of its first."""
    found = n.type[0] if isinstance(n.type, tuple) else n.type
    return () if found is None else found.dims


def most_elements(graph: Graph, tiles: Mapping[Any, int]) -> int:
    """Elements of the largest value of a tile: dimensions that no value has together do not make it larger."""
    types = (t for n in graph.all_nodes() for t in (n.type if isinstance(n.type, tuple) else (n.type,)))
    return max((prod(tiles.get(d, 1) for d in t.dims) for t in types if t is not None), default=1)


def _types(graph: Graph) -> Iterable[tuple[Node, ValueType]]:
    """Values in registers, with the nodes that make them."""
    for n in graph.all_nodes():
        if n.op not in MADE_ANYWHERE:
            for t in n.type if isinstance(n.type, tuple) else (n.type,):
                if t is not None:
                    yield n, t


def _widest(types: Iterable[tuple[Node, ValueType]], dims: Mapping[Any, DimPlan], lanes: int) -> Widest | None:
    best: Widest | None = None
    for n, t in types:
        words: float = max(t.dtype.bits, 32) / 32 / lanes
        for d in t.dims:
            words *= dims[d].wave if d in dims else 1
        if best is None or words > best.words:
            best = Widest(n, t, words)
    return best


def _excess(
    types: Iterable[tuple[Node, ValueType]], dims: Mapping[Any, DimPlan], lanes: int, halved: Any, most: int
) -> float:
    """Registers of a lane that values have beyond `most` each, if twice as many waves share a dimension."""
    plan = dims[halved]
    part = _half(plan) / plan.wave
    found = 0.0
    for t in dict.fromkeys(t for _, t in types):
        words = max(t.dtype.bits, 32) / 32 / lanes * prod(dims[d].wave for d in t.dims if d in dims)
        found += max(0.0, words * (part if halved in t.dims else 1) - most)
    return found


def _halves(plan: DimPlan, least: int) -> bool:
    """Whether twice as many waves can share a dimension, each with `least` elements of a row."""
    if plan.axis is not None:
        return plan.wave % 2 == 0
    if plan.wave < 2 * least:
        return False
    return plan.role != "loop" or plan.wave % 2 == 0  # a trip has the elements that the user says


def _short(t: ValueType, dims: Mapping[Any, DimPlan], d: Any, lanes: int) -> bool:
    """Whether waves may share a dimension of few elements, because a part of it fills the lanes beside others."""
    plan = dims[d]
    if plan.role != "whole" or not 1 < plan.wave < 2 * LEAST_ROWS:
        return False
    others = prod(dims[x].wave for x in t.dims if x in dims and x != d)
    return others * _half(plan) >= LEAST_VECTOR * lanes


def _read_by_all(graph: Graph, t: ValueType, d: Any) -> bool:
    """Whether something is read that has all dimensions of a value but this one."""
    others = {*t.dims} - {d}
    return any(n.op == "read" and d not in n.dims and others <= {*n.dims} for n in graph.all_nodes())


def _half(plan: DimPlan) -> int:
    """Elements that a wave has where twice as many share a dimension. Parts begin where vectors do; the last one may be
    short, or empty, and what it lacks is beyond the end."""
    if plan.role != "whole" and plan.wave % 2 == 0:
        return plan.wave // 2
    unit = 8 if plan.wave >= 2 * LEAST_ROWS else 1
    return -(-(plan.extent or plan.tile) // (2 * plan.waves * unit)) * unit


def _halve(plan: DimPlan) -> None:
    waves, even = 2 * plan.waves, plan.role != "whole" and plan.wave % 2 == 0
    plan.wave = _half(plan)
    if not even:
        plan.tile = plan.wave * waves


def _refuse(widest: Widest, dims: Mapping[Any, DimPlan], target: Target, why: str) -> None:
    t = widest.type
    row = max((d for d in t.dims if d in dims), key=lambda d: dims[d].wave)
    plan = dims[row]
    held = {d: min(dims[d].tile, dims[d].extent or dims[d].tile) for d in t.dims if d in dims}
    whose, lanes = "a workgroup's", target.wave_size * prod(dims[d].waves for d in held)
    if round(prod(held.values()) * max(t.dtype.bits, 32) / 32 / lanes) != round(widest.words):  # tiles beyond the end
        whose, lanes, held = "a wave's", target.wave_size, {d: dims[d].wave for d in held}
    shape = " x ".join(f"{d}={n}" for d, n in held.items())
    raise RegisterPressureError(
        f"{widest.node.op}: {whose} {shape} elements of {t.dtype} are {round(widest.words)} registers of each of "
        f"its {lanes} lanes; {target.name} has {target.registers}{why}",
        widest.node.loc,
        f"smaller tiles of {row}" if plan.role in ("workgroup", "loop") else _cut(row, widest, dims),
    )


def _cut(row: Any, widest: Widest, dims: Mapping[Any, DimPlan]) -> str:
    """How a value that a workgroup has as a whole becomes smaller: shared among workgroups, if nothing of it is, else
    tile by tile, so long that a lane has no more than `LANE_WORDS` of it."""
    t, held = widest.type, dims[row].extent or dims[row].tile
    tile = min(4096, 1 << max(0, int(held * LANE_WORDS / widest.words).bit_length() - 1))
    loop = f"wd.TilingConstraint({row}, {tile}) and @wd.iterate({row}, …)"
    if any(p.role == "workgroup" or p.axis is not None for p in dims.values()):
        return f"loop over it: {loop}"
    if len(t.dims) == 1:
        return f"give each workgroup a part: wd.WorkgroupConstraint({row}, 1024, 0); or loop over it: {loop}"
    return f"give each workgroup a part: wd.WorkgroupConstraint({t.dims[0]}, 4, 0)"


__all__ = ["LANE_WORDS", "check_rows", "fewer_rows", "most_elements", "share_rows"]
