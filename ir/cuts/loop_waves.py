"""Waves along the dimension of a loop, where those along the grid's would each read a part of a cache line.

In: a kernel without products whose loop adds up tiles of rows, say the gradients of a norm's weights: `total + sum(x,
dim=M)` in a loop over M, a strip of columns for each workgroup. Waves that divide the strip read less than a cache line
of every row, and each access of a wave touches as many rows as it has lanes for. Waves that divide the tile of rows
read whole lines; what they have of the sums they add once, behind the loop (`late_sums.py`).

Out: the wave tiles, or nothing where lines are whole, or where a trip does more along the loop's dimension than add. Of
columns that are summed without a loop: the elements of a line, below which waves rather share rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from wavedsl.ir.cuts.register_file import UNHELD
from wavedsl.ir.dataflow.graph import REGIONS, Graph, Node, Region
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.target import VECTOR_BYTES, Target

JOINED = frozenset(("sum", "max", "min"))
"""Reductions of which waves leave each other a word per column."""
SECTOR = 32
"""Bytes of the shortest line: where lines are no longer, several are looked up in a clock."""
Divide = Callable[[dict[Any, int], dict[Any, int]], dict[Any, int]]
"""Wave tiles where waves may share these tiles, too, and no wave's is less than these multiples."""


def waves_along_loops(
    graph: Graph, waves: Mapping[Any, int], loops: Mapping[Any, int], target: Target, divide: Divide
) -> dict[Any, int]:
    """Tiles of a wave, those of a loop's dimension among them, instead of `waves` along the grid's; empty where they
    stay. `loops`: tiles of loops that waves may share."""
    lines, rows = lines_and_rows(graph, waves, loops, target)
    if all(waves[d] >= line for d, line in lines.items()):
        return {}
    return divide({d: loops[d] for d in rows}, {**lines, **rows})


def lines_and_rows(
    graph: Graph, columns: Collection[Any], loops: Collection[Any], target: Target
) -> tuple[dict[Any, int], dict[Any, int]]:
    """Where a loop only adds up rows: the elements of a cache line of each of `columns`, and of each of `loops` the
    rows below which waves do not share a tile."""
    lines: dict[Any, int] = {}
    rows: dict[Any, int] = {}
    users: dict[int, list[Node]] = {}
    for n in graph.all_nodes() if loops else ():
        for x in n.inputs:
            users.setdefault(x.id, []).append(n)
    for node in graph.all_nodes() if loops else ():
        d = node.attrs["body"].dim if node.op == "iterate" else None
        if d not in loops or not _only_adds(users, node.attrs["body"], d):
            continue
        for n in node.attrs["body"].nodes:
            if n.op != "read" or n.type is None or d not in n.dims or n.dims[-1] not in columns:
                continue
            column, bytes_each = n.dims[-1], max(n.dtype.bits // 8, 1)
            lines[column] = max(lines.get(column, 0), target.line_bytes // bytes_each)
            # A wave keeps a load of the widest kind for each lane: so many rows of a line each.
            rows[d] = max(rows.get(d, 0), target.wave_size * VECTOR_BYTES // target.line_bytes)
    return lines, rows


def lines_of_columns(graph: Graph, columns: Collection[Any], target: Target) -> dict[Any, int]:
    """The elements of a cache line of each of `columns` of which a kernel wants, outside of loops, no more than sums
    and the like along rows: waves share the rows then rather than lines. Where an access takes no longer for more lines
    (a sector is a line then), or where rows are needed afterwards as well, they only have more to tell each other: a
    softmax down columns took a tenth longer by the model of gfx942."""
    found: dict[Any, int] = {}
    nodes = graph.region.nodes if target.line_bytes > SECTOR else []
    kept = {d for n in nodes if ROWS[n.op].effect and n.inputs for d in n.inputs[0].dims}
    summed = {n.attrs["dim"] for n in nodes if n.op in JOINED and n.dtype.bits >= 32} - kept
    for n in nodes:
        if n.op == "read" and n.type is not None and n.dims and n.dims[-1] in columns and summed & {*n.dims[:-1]}:
            found[n.dims[-1]] = max(found.get(n.dims[-1], 0), target.line_bytes // max(n.dtype.bits // 8, 1))
    return found


def _only_adds(users: Mapping[int, list[Node]], body: Region, d: Any) -> bool:
    """Whether all that a trip does along its dimension is to add to what it carries."""
    if any(n.op == "reshape" or n.op in REGIONS for n in body.nodes):
        return False
    sums = [n for n in body.nodes if n.attrs.get("dim") == d and n.op not in UNHELD]
    for n in sums:
        last = users.get(n.id, [])
        if n.op != "sum" or n.dtype.bits < 32 or len(last) != 1 or last[0].op != "add":
            return False
        carry = next((x for x in last[0].inputs if x is not n), None)
        at = next((i for i, x in enumerate(body.yields) if x is last[0]), None)
        if at is None or carry is not body.carries[at] or users.get(carry.id) != [last[0]]:
            return False
    return bool(sums) and all(d not in x.dims for x in body.yields)


__all__ = ["lines_and_rows", "lines_of_columns", "waves_along_loops"]
