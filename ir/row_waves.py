"""Rows that are long for one wave: the waves that share them, where the user has not said.

In: the dimensions of a kernel without matrix instructions, cut as the constraints say, each wave with all of a row.
Out: more waves, along the grid's dimensions first (they have nothing to tell each other), then along rows, then along
the rows of what is large by several dimensions, until no lane has more than `LANE_WORDS` words of a value. Waves that
share a row join their sums through shared memory, which is cheap beside registers that spill; a product's waves are
chosen elsewhere (`partition.py`).

Where a workgroup has no more waves, it gets fewer rows than the user says (`fewer_rows`), if nobody can tell: rows have
nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from wavedsl.ir.errors import RegisterPressureError
from wavedsl.ir.graph import REGIONS, Graph, Node, ValueType
from wavedsl.ir.ops import MADE_ANYWHERE, ROWS
from wavedsl.ir.target import Target

if TYPE_CHECKING:
    from wavedsl.ir.partition import DimPlan

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
    graph: Graph, dims: Mapping[Any, DimPlan], order: list[Any], kept: Collection[Any], limit: int, target: Target
) -> bool:
    """Give `dims` smaller wave tiles, and append to `order` the rows that waves now share; whether there were any.
    `kept`: dimensions that stay as they are. `limit`: waves of a workgroup."""
    lanes = target.wave_size
    types = list(_types(graph))
    held = {d for _, t in types for d in t.dims}
    follow = {s for d in held for s in getattr(d, "free_symbols", ()) if s != d}  # beside a value's K, one's K / 32
    kept = {*kept, *follow, *(d for d, p in dims.items() if p.role == "index" or not getattr(d, "is_Symbol", True))}
    waves = given = prod(p.waves for p in dims.values())
    while (widest := _widest(types, dims, lanes)) is not None and widest.words > LANE_WORDS and 2 * waves <= limit:
        open_dims = [d for d in widest.type.dims if d in dims and d not in kept]
        free = [d for d in open_dims if _halves(dims[d], LEAST_VECTOR * lanes)]
        # Of a value that several dimensions make large, whole rows go to waves: the last one's stay together.
        free = free or [d for d in open_dims if d != widest.type.dims[-1] and _halves(dims[d], LEAST_ROWS)]
        if not free:
            break
        d = max(free, key=lambda d: (dims[d].axis is not None, dims[d].wave))
        _halve(dims[d])
        waves *= 2
        if d not in order:
            order.append(d)
    return waves > given


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
        _refuse(widest, dims, target)


def _dims(n: Node) -> tuple[Any, ...]:
    """The dimensions of a node's value, or of its first."""
    found = n.type[0] if isinstance(n.type, tuple) else n.type
    return () if found is None else found.dims


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


def _halves(plan: DimPlan, least: int) -> bool:
    """Whether twice as many waves can share a dimension, each with `least` elements of a row."""
    if plan.axis is not None:
        return plan.wave % 2 == 0
    if plan.wave < 2 * least:
        return False
    return plan.role != "loop" or plan.wave % 2 == 0  # a trip has the elements that the user says


def _halve(plan: DimPlan) -> None:
    waves = 2 * plan.waves
    if plan.role != "whole" and plan.wave % 2 == 0:
        plan.wave //= 2
        return
    # Parts begin where vectors do; the last one may be short, or empty, and what it lacks is beyond the end.
    extent = plan.extent or plan.tile
    plan.wave = -(-extent // (waves * 8)) * 8
    plan.tile = plan.wave * waves


def _refuse(widest: Widest, dims: Mapping[Any, DimPlan], target: Target) -> None:
    t = widest.type
    row = max((d for d in t.dims if d in dims), key=lambda d: dims[d].wave)
    plan = dims[row]
    shape = " x ".join(f"{d}={min(dims[d].tile, dims[d].extent or dims[d].tile)}" for d in t.dims if d in dims)
    lanes = target.wave_size
    for p in dims.values():
        lanes *= p.waves
    raise RegisterPressureError(
        f"{widest.node.op}: a workgroup's {shape} elements of {t.dtype} are {round(widest.words)} registers of each of "
        f"its {lanes} lanes; {target.name} has {target.registers}",
        widest.node.loc,
        f"smaller tiles of {row}" if plan.role in ("workgroup", "loop") else _cut(row, widest, dims),
    )


def _cut(row: Any, widest: Widest, dims: Mapping[Any, DimPlan]) -> str:
    """How a value that a workgroup has as a whole becomes smaller: shared among workgroups, if nothing of it is, else
    tile by tile, so long that a lane has no more than `LANE_WORDS` of it."""
    t, held = widest.type, dims[row].extent or dims[row].tile
    tile = min(4096, 1 << max(0, int(held * LANE_WORDS / widest.words).bit_length() - 1))
    loop = f"wd.TilingConstraint({row}, {tile}) and @wd.iterate({row}, …)"
    if any(p.role == "workgroup" for p in dims.values()):
        return f"loop over it: {loop}"
    if len(t.dims) == 1:
        return f"give each workgroup a part: wd.WorkgroupConstraint({row}, 1024, 0); or loop over it: {loop}"
    return f"give each workgroup a part: wd.WorkgroupConstraint({t.dims[0]}, 4, 0)"


__all__ = ["LANE_WORDS", "check_rows", "fewer_rows", "share_rows"]
