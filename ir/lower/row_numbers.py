"""Numbers of rows, computed anew for whichever row a lane copies.

In: the traced indices of a gather, each a number per row. Out: steps that load what the numbers are read from, a load
for each row that a thread copies, and the numbers themselves. The lanes that copy a tile to shared memory are not those
that hold its indices; exchanging these would take a barrier before the copies can start. What is read may run ahead of
its iteration like any load, so a trip's copies find their rows' numbers there.

Invariant: a number is made of the row's own index, of what nothing in the kernel writes and of single numbers that may
run ahead; so it is what the index is, whenever it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from wavedsl.ir.addresses.access import whole_buffer
from wavedsl.ir.addresses.coordinates import offset_of, scaled, total
from wavedsl.ir.addresses.lower_index import IndexLowering
from wavedsl.ir.addresses.mapped_runs import resolved
from wavedsl.ir.addresses.move_elements import join_word
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.functions.lower_ops import lower_elementwise
from wavedsl.ir.kernel.kernel_ir import I32, I64, Value
from wavedsl.ir.layouts.fragment import per_register
from wavedsl.ir.lower.late_numbers import by_element
from wavedsl.ir.lower.lower_mapped import mapping_of, symbols_of
from wavedsl.ir.lower.lower_values import fill_number
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context
from wavedsl.ir.symbols import dim_name, free_names


class Seen:
    """A graph and what is known of its arrays, where nothing has been cut yet."""

    def __init__(self, graph: Graph, arrays: Mapping[str, ArrayInfo]):
        self.graph, self.arrays = graph, arrays
        self.changed: set[str] | None = None
        regions = [(region, x) for region in graph.regions() for x in (*region.carries, *region.nodes)]
        self._homes = {x.id: region for region, x in regions}

    def region_of(self, n: Node) -> Region:
        return self._homes[n.id]


def runs_ahead(low: Lowering | Seen, x: Node, region: Any) -> bool:
    """Whether a single number of a region may be computed before its iteration: from other such numbers and loads."""
    if low.region_of(x) is not region:
        return True
    if x.op == "read":
        found = placement(low.graph, x)
        return found is not None and all(runs_ahead(low, y, region) for y in found.numbers())
    plain = ROWS[x.op].compute is not None or x.op in ("constant", "size", "tile_start", "tile_stop", "index", "cast")
    return plain and not x.dims and all(runs_ahead(low, y, region) for y in x.inputs)


@dataclass
class Numbers:
    """What the indices of rows along `row` are made of: `reads`, those that come first being needed for later ones,
    `others` that are computed per row, and single numbers."""

    row: str
    reads: list[Node] = field(default_factory=list)
    others: list[Node] = field(default_factory=list)
    singles: list[Node] = field(default_factory=list)

    def nodes(self) -> list[Node]:
        """All that is computed per row."""
        return self.reads + self.others


def written_arrays(low: Lowering | Seen) -> set[str]:
    """Arguments that the kernel changes anywhere."""
    if low.changed is None:
        low.changed = {n.attrs["memory"] for n in low.graph.all_nodes() if ROWS[n.op].effect and "memory" in n.attrs}
    return low.changed


def add_numbers(low: Lowering | Seen, x: Node, region: Region, found: Numbers, written: set[str]) -> bool:
    """Take an index, and what it is made of, into `found`; False where a lane cannot make it for any row."""
    if x in found.reads or x in found.others or x in found.singles:
        return True
    if not isinstance(x.type, ValueType):
        return False
    if not x.dims:
        if not runs_ahead(low, x, region):
            return False
        found.singles.append(x)
        return True
    if [dim_name(d) for d in x.dims] != [found.row]:
        return False
    if x.op == "read":
        info, plain = low.arrays[x.attrs["memory"]], not x.dtype.packed and x.dtype.is_int and x.dtype.bits >= 8
        if x.attrs["memory"] in written or info.far or not plain:
            return False
        if not all(add_numbers(low, y, region, found, written) for y in x.inputs):
            return False
        found.reads.append(x)
        return may_be_placed(low, x, {found.row})
    if x.dtype.is_float and per_register(x.dtype) > 1:  # rounded as it is packed, which nobody does here
        return False
    if x.op not in ("index", "fill", "constant"):
        if not by_element(x) or x.op in PRODUCTS or x.op in REGIONS or ROWS[x.op].index_rule != "same":
            return False
        if not all(add_numbers(low, y, region, found, written) for y in x.inputs):
            return False
    found.others.append(x)
    return True


def may_be_placed(low: Lowering | Seen, n: Node, own: set[str]) -> bool:
    """Whether the coordinates of a read depend on no other dimensions of values than `own`."""
    free = own | {dim_name(d) for d in low.graph.index_dims}
    mapping = resolved(low.graph, n)
    values = {dim_name(d) for d in mapping.dims}
    return all(
        isinstance(c, int) or not (values.intersection(free_names(c)) - free) for c in mapping.coords
    )  # fmt: skip


Loaded = Callable[[Node], Value]
"""Gives what was loaded of a read for the row at hand."""


class RowAt:
    """Numbers of the row with index `at` along its dimension, in the iteration of `context`."""

    def __init__(self, low: Lowering, row: str, at: Any, context: Context, loaded: Loaded):
        self.low, self.b, self.row, self.context, self.loaded = low, low.b, row, context, loaded
        self.at: Value = low.b.i32(at) if isinstance(at, int) else at
        self.made: dict[int, Value] = {}
        self.others: dict[str, Any] = {}
        """Indices along other dimensions of the value, where coordinates depend on them."""
        self.base = low.base_at(context.iteration)

    def number(self, x: Node) -> Value:
        """A node's number for this row."""
        found = self.made.get(x.id)
        if found is None:
            with self.b.loc(x.loc):
                found = self.made[x.id] = self._made(x)
        return found

    def _made(self, x: Node) -> Value:
        b = self.b
        if not x.dims:
            return self.low.value(x, self.context.env).element(b, 0)
        if x.op == "index":
            return self.at
        if x.op in ("fill", "constant"):
            return fill_number(b, x)
        if x.op == "read":
            word = join_word(b, x.dtype, [(self.loaded(x), 0)])
            return word if per_register(x.dtype) == 1 else b.unpack(word, x.dtype, 0)
        return lower_elementwise(b, x, [self.number(y) for y in x.inputs])

    def coordinate(self, n: Node, i: int) -> tuple[list[Any], Value]:
        """(the coordinate of a read along dimension i of its array, as the part that is the row's and, if there is one,
        what `others` add to it; whether the array has it)."""
        b, c = self.b, mapping_of(self.low, n).coords[i]
        extent = self.low.array(n.attrs["memory"])[1][i]
        if isinstance(c, int):
            where = self.number(n.inputs[c])
            limit = b.const(extent, where.type) if isinstance(extent, int) else extent
            if where.type is I64 and limit.type is not I64:
                limit = b.zext(limit)
            inside = b.cmp("ult", where, limit)
            return [b.trunc(where) if where.type is I64 else where], inside
        symbols = symbols_of(self.low)
        values: dict[str, Any] = {}
        for name in free_names(c):
            if name == self.row:
                values[name] = self.at
            elif name in self.others:
                values[name] = self.others[name]
            else:
                values[name] = self.base[name] if name in self.base else symbols[name]
        lowered = IndexLowering(b, values)
        moving = [s for s in c.free_symbols if dim_name(s) in self.others]
        parts = [lowered(x) for x in c.as_independent(*moving, as_Add=True)] if moving else [lowered(c)]
        where = total(b, parts)
        where = b.i32(where) if isinstance(where, int) else where
        return parts, b.cmp("ult", where, b.const(extent, I32) if isinstance(extent, int) else extent)

    def offset(self, n: Node, leave: int | None = None) -> tuple[Any, Value]:
        """(bytes from the array's first element to where a read has this row, whether that exists); the dimension
        `leave` is at its start."""
        b = self.b
        terms: list[list[Any]] = [[], []]
        inside = b.true
        for i, stride in enumerate(self.low.array(n.attrs["memory"])[2]):
            if i != leave:
                parts, there = self.coordinate(n, i)
                inside = b.pand(inside, there)
                for sums, part in zip(terms, parts):
                    sums.append(scaled(b, part, stride))
        # The row's own part is one number in all trips, what comes to it one for all rows of a thread.
        return total(b, [offset_of(b, sums) for sums in terms]), inside

    def load(self, n: Node, inside: Value) -> Value:
        """What a read has for this row, if it is `inside`; else 0."""
        b = self.b
        info, extents, _ = self.low.array(n.attrs["memory"])
        offset, there = self.offset(n)
        return b.load_global(
            whole_buffer(b, info, extents), offset, bytes=info.elsize, mask=b.pand(inside, there),
            guard=self.context.guard, split=False, bounded=True, cache=n.attrs.get("cache"),
        )  # fmt: skip


__all__ = ["Numbers", "RowAt", "Seen", "add_numbers", "may_be_placed", "runs_ahead", "written_arrays"]
