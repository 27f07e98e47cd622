"""Gathers of rows as tiles: `cache[table[j], :]`, the tokens of an expert, the keys of a page, pixels' neighbours.

In: a read through a mapping whose indices say which row of the array each row of the value is. Out: a `GatheredRows`,
which sees the array as a tile of those rows, one below the other, so that it is staged like any tile, or None. A row is
contiguous, or is so in runs of which each begins elsewhere (the channels of a pixel under one place of a filter), so
vectors lie in one run; the lanes that copy one make the numbers that place it themselves (`row_numbers`).

Invariant: nothing in the kernel writes to the array nor to what its indices are read from, so copies may run ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import gcd
from typing import Any

from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.addresses.mapped_runs import counted_along, resolved, run_length
from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.views import is_tile
from wavedsl.ir.kernel.kernel_ir import Value, vector
from wavedsl.ir.lower.lower_mapped import extent_multiple, mapping_of
from wavedsl.ir.lower.lowering import Lowering, never
from wavedsl.ir.lower.row_numbers import Numbers, RowAt, Seen, add_numbers, may_be_placed, written_arrays
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context, Env, Key, Step
from wavedsl.ir.symbols import dim_name, free_names
from wavedsl.ir.target import Target


@dataclass(frozen=True)
class GatheredRows:
    """A read of rows along `row` of the value, contiguous along the array's dimension `axis`, `fast` in the value.
    `info`: the array as a tile of them; `runs`: whether rows are so in runs alone, which expressions in `fast` place;
    `ahead`: whether the loop around changes no row's number."""

    node: Node
    row: str
    fast: str
    axis: int
    info: ArrayInfo
    numbers: Numbers
    runs: bool
    ahead: bool


@dataclass(frozen=True)
class Gather:
    """What a read's mapping says before anything is cut: `row`, `fast`, `axis`, `numbers` and `runs` as in
    `GatheredRows`; `step`: what bytes from run to run are a multiple of, where vectors lie in runs as a whole."""

    row: str
    fast: str
    axis: int
    numbers: Numbers
    runs: bool
    step: int


def gather(low: Lowering | Seen, n: Node) -> Gather | None:
    """How a read gathers rows; None where it does not, or where that cannot be proven right."""
    if n.op != "read" or n.attrs.get("mapping") is None or is_tile(low.graph, n) or len(n.dims) != 2:
        return None
    info, mapping = low.arrays[n.attrs["memory"]], resolved(low.graph, n)
    axis = info.contiguous()
    if axis is None or info.far or info.dtype.packed or info.dtype.bits < 8:
        return None
    along = _along(n, mapping.coords, axis)
    if along is None:
        return None
    fast, run = along
    row = next(d for d in map(dim_name, n.dims) if d != fast)
    written = written_arrays(low)
    if n.attrs["memory"] in written or not may_be_placed(low, n, {row, fast}):
        return None
    runs = dim_name(mapping.coords[axis]) != fast or info.names[axis] != fast
    region, found = low.region_of(n), Numbers(row)
    for i, c in enumerate(mapping.coords):
        if not isinstance(c, int):
            runs = runs or (i != axis and fast in free_names(c))
        elif not add_numbers(low, n.inputs[c], region, found, written):
            return None
    step = 0
    for i in range(len(info.dims)):
        if i != axis:
            step = gcd(step, info.stride_multiple(i))
    if runs:  # as far as vectors go a run is a row of its own: one lies in it as a whole, and in the array
        step = gcd(step, gcd(run, info.extent_multiple(axis)) * info.elsize)
    return Gather(row, fast, axis, found, runs, max(1, step))


def gathered_rows(low: Lowering, n: Node) -> GatheredRows | None:
    """A read that gathers rows, with the tile of them as it is cut; None where `gather` finds none."""
    found = gather(low, n)
    if found is None:
        return None
    info, axis = low.arrays[n.attrs["memory"]], found.axis
    plan, across = low.plans[found.row], low.plans[found.fast]
    extent, multiple = info.extents[axis], info.extent_multiple(axis)
    if found.runs:
        extent = across.extent
        multiple = extent if extent is not None else extent_multiple(low, found.fast)
    own = {dim_name(d): d for d in n.dims}
    tile = replace(
        info, dims=(own[found.row], own[found.fast] if found.runs else info.dims[axis]),
        strides=(None, info.elsize), extents=(plan.extent, extent),
        stride_multiples=(found.step, info.elsize), extent_multiples=(1, multiple),
    )  # fmt: skip
    ahead = not found.runs and _settled(low, n, found.numbers)
    return GatheredRows(n, found.row, found.fast, axis, tile, found.numbers, found.runs, ahead)


LEAST = 4
"""Bytes of the narrowest asynchronous copy."""


def gathered_operands(graph: Graph, dims: Mapping[Any, Any], arrays: Mapping[str, ArrayInfo]) -> frozenset[int]:
    """Gathers, by id, that copies of a word or more can bring to shared memory, whatever the tiles are. `dims`: sizes
    of the dimensions, as far as they are known."""
    seen = Seen(graph, arrays)
    sizes = {dim_name(d): size for d, size in dims.items() if isinstance(size, int)}
    out = set()
    for n in graph.all_nodes():
        found = gather(seen, n) if n.op == "read" and n.attrs["memory"] in arrays else None
        if found is None:
            continue
        info = arrays[n.attrs["memory"]]
        end = sizes.get(found.fast, 1) if found.runs else info.extent_multiple(found.axis)
        if gcd(info.align, found.step, end * info.elsize) >= LEAST:
            out.add(n.id)
    return frozenset(out)


def with_gathers(
    graph: Graph, dims: Mapping[Any, Any], arrays: Mapping[str, ArrayInfo], target: Target
) -> Graph:
    """`graph` with what is known of its gathers, where the chip has instructions that take tiles from shared memory."""
    found = gathered_operands(graph, dims, arrays) if target.warpgroup is not None else frozenset()
    return replace(graph, gathered=found) if found else graph


def _along(n: Node, coords: Sequence[Any], axis: int) -> tuple[str, int] | None:
    """(the dimension of a value along which its elements are neighbours in the array, in runs of how many), of the
    longest runs; None where there are none."""
    names = [dim_name(d) for d in n.dims]
    others = [x for i, x in enumerate(coords) if i != axis and not isinstance(x, int)]
    found = {dim_name(d): run_length(coords[axis], others, d) for d in counted_along(n, coords, axis, names)}
    best = max(found, key=lambda d: found[d], default=None)
    return None if best is None or found[best] == 1 else (best, found[best])


def _settled(low: Lowering, n: Node, found: Numbers) -> bool:
    """Whether the rows' numbers are the same in all trips of the loop that a read is in."""
    region = low.region_of(n)
    if region.dim is None or found.row == dim_name(region.dim) or low.moves_with([found.row], dim_name(region.dim)):
        return False
    if any(low.region_of(x) is region for x in found.singles):
        return False
    moving = dim_name(region.dim)
    reads = [n, *found.reads]
    return not any(
        not isinstance(c, int) and i != (axis if x is n else -1) and moving in {dim_name(s) for s in c.free_symbols}
        for x in reads
        for axis in [low.arrays[x.attrs["memory"]].contiguous()]
        for i, c in enumerate(mapping_of(low, x).coords)
    )


def only_for_rows(low: Lowering, rows: Mapping[int, GatheredRows]) -> set[int]:
    """Ids of what is computed per row for no other use than the numbers of gathered rows."""
    users, kept = low.users(), {v.id for region in low.graph.regions() for v in region.yields}
    found = {x.id for r in rows.values() for x in r.numbers.nodes()} - kept
    while True:
        needed = {x for x in found if any(u.id not in rows and u.id not in found for u in users.get(x, ()))}
        if not needed:
            return found
        found -= needed


class RowCopy:
    """How the threads that copy a tile of gathered rows find what they copy."""

    def __init__(self, low: Lowering, rows: GatheredRows, staged: Staged):
        self.low, self.b, self.rows, self.s = low, low.b, rows, staged

    @cached_property
    def single_keys(self) -> tuple[Key, ...]:
        return tuple(dict.fromkeys(k for x in self.rows.numbers.singles for k in self.low.keys(x)))

    def number_key(self, x: Node, turn: int) -> Key:
        """Of what is loaded of a read for the row of a thread's `turn`-th vector."""
        return ("row", self.rows.node.id, x.id, turn)

    def offset_key(self, turn: int) -> Key:
        return ("row offset", self.rows.node.id, turn)

    def keys(self, turn: int) -> tuple[Key, ...]:
        """What a copy of the row of that vector needs."""
        if self.rows.ahead:
            return (self.offset_key(turn),)
        return (*self.single_keys, *(self.number_key(x, turn) for x in self.rows.numbers.reads))

    def steps(self, turn: int, local: Callable[[], Any]) -> list[Step]:
        """The loads of what says which row that vector is of, each behind those that it needs. `local`: the row's place
        in the tile."""
        if self.rows.ahead:
            return []
        low, made = self.low, []
        for k, x in enumerate(self.rows.numbers.reads):

            def load(context: Context, x: Node = x) -> None:
                key = self.number_key(x, turn)
                if never(context.guard):
                    context.env[key] = self.b.zero(vector(max(x.dtype.bits // 32, 1)))
                    return
                at, inside = self.at(context, local())
                context.env[key] = self.row(at, context, turn).load(x, inside)

            earlier = tuple(self.number_key(y, turn) for y in self.rows.numbers.reads[:k])
            resources, latency = low.memory_cost("load.global", x.dtype.bits // 8)
            step = Step(
                f"row {low.arrays[x.attrs['memory']].name}.{turn}", "gload", resources, latency,
                (*self.single_keys, *earlier), (self.number_key(x, turn),), load, "", x.loc,
            )  # fmt: skip
            step.words = max(1, x.dtype.bits // 32)
            made.append(step)
        return made

    def at(self, context: Context, local: Any) -> tuple[Any, Value]:
        """(the index along the rows' dimension of a row of the tile, whether it is one of the tile and exists)."""
        low, b, row = self.low, self.b, self.rows.row
        base = low.position([row], low.base_at(context.iteration)).base[row]
        at, plan, inside = total(b, [base, local]), low.plans[row], b.true
        if self.s.extents[row] > plan.tile:
            inside = b.cmp("slt", local, plan.tile)
        if plan.ragged or self.s.extents[row] > plan.tile:
            inside = b.pand(inside, b.cmp("slt", at, low.extent(row)))
        return at, inside

    def row(self, at: Any, context: Context, turn: int) -> RowAt:
        return RowAt(self.low, self.rows.row, at, context, lambda x: context.env[self.number_key(x, turn)])

    def settle(self, turn: int, local: Any, env: Env) -> None:
        """In front of the loop: where a row starts in all of its trips."""
        known = Env(env.fixed)
        known.values, known.iteration = dict(env.values), env.iteration
        context = Context(known, 0, None)
        at, inside = self.at(context, local)
        row = self.row(at, context, turn)
        for x in self.rows.numbers.reads:
            context.env[self.number_key(x, turn)] = row.load(x, inside)
        offset, there = row.offset(self.rows.node, self.rows.axis)
        env.fixed[self.offset_key(turn)] = offset, self.b.pand(inside, there)

    def place(
        self, turn: int, context: Context, parts: Mapping[str, Any], fixed: Mapping[str, int]
    ) -> tuple[Any, Any, Value]:
        """(bytes that the lane adds, bytes that all add, whether the vector exists)."""
        low, b, rows = self.low, self.b, self.rows
        fast, plan = rows.fast, low.plans[rows.fast]
        base = low.position([fast], low.base_at(context.iteration)).base[fast]
        local = total(b, [parts.get(fast, 0), fixed.get(fast, 0)])
        if rows.ahead:
            offset, mask = context.env[self.offset_key(turn)]
        else:
            at, inside = self.at(context, total(b, [parts.get(rows.row, 0), fixed.get(rows.row, 0)]))
            row = self.row(at, context, turn)
            if rows.runs:
                row.others[fast] = total(b, [base, local])
            offset, there = row.offset(rows.node, None if rows.runs else rows.axis)
            mask = b.pand(inside, there)
        padded = self.s.extents[fast] > plan.tile
        if padded:
            mask = b.pand(mask, b.cmp("slt", local, plan.tile))
        if padded or plan.ragged:
            mask = b.pand(mask, b.cmp("slt", total(b, [base, local]), low.extent(fast)))
        if rows.runs:
            return offset, 0, mask
        es = rows.info.elsize
        mine, common = (b.mul(x, es) if not isinstance(x, int) else x * es for x in (local, base))
        if low.arrays[rows.node.attrs["memory"]].large:  # one unsigned sum, as 32 bits just hold it
            return total(b, [offset, mine, common]), 0, mask
        return total(b, [offset, mine]), common, mask
