"""Layout inference: which lane and register holds which element, for every value of the graph.

In: the graph, its `Partition`, a `Target`. Out: an `Inference`: per node a `Layout` of one wave's tile (no wave
digits: the partition places waves), per `mma` an `MmaPlan`.

Operations whose operands and result must agree (`same`) form classes. Matrix instructions are the anchors: each
accepts a family of layouts, closed under swapping its operands (Dᵀ = BᵀAᵀ) and under any permutation of the
contraction index that both operands share. An anchor fixes its classes; the others get the layout that makes their
memory access coalesced.

Invariant: a value that lacks a dimension has the projection of the layout it meets; lanes along that dimension hold
replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.spread_products import Spread
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, ValueType, addend, initial_values, next_values
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.split_k import SUMS
from wavedsl.ir.errors import CompileError
from wavedsl.ir.inference.coalesced import Uses, coalesced_for
from wavedsl.ir.inference.derived_layout import (
    coarse_layout,
    every_layout,
    keeps_places,
    lifted,
    project_to,
    renamed_bits,
    same_layout,
)
from wavedsl.ir.inference.mma_options import mma_options
from wavedsl.ir.inference.mma_plan import MmaPlan, mma_plan
from wavedsl.ir.inference.mma_tiles import shared_operands
from wavedsl.ir.inference.packed_reads import settle_packed
from wavedsl.ir.inference.row_layout import absorbed, leading_layout, row_layout
from wavedsl.ir.inference.spreading import Chosen, Sweeps
from wavedsl.ir.inference.whole_words import of_whole_words, straight
from wavedsl.ir.inference.wide_operands import between_products, wide_operands
from wavedsl.ir.layouts.bits import spec
from wavedsl.ir.layouts.chain import choose_chains
from wavedsl.ir.layouts.column_pairs import NO_ROWS, Rows
from wavedsl.ir.layouts.convert import plan_convert
from wavedsl.ir.layouts.layout import Layout, make_layout, moving_lanes
from wavedsl.ir.layouts.value_classes import (
    Classes,
    follows,
    join_region,
    join_sums,
    led,
    reduction,
    written_along,
)
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import Target

LONG = 32
"""Elements in a lane from which on a scan is not done by each lane alone."""


@dataclass
class Inference:
    """What was decided. `layouts` maps node ids to layouts; `demands` maps (user id, input position) to the layout
    that use needs where it differs from the value's own."""

    layouts: dict[int, Layout] = field(default_factory=dict)
    mmas: dict[int, MmaPlan] = field(default_factory=dict)
    demands: dict[tuple[int, int], Layout] = field(default_factory=dict)
    wide: set[tuple[int, int]] = field(default_factory=set)
    """(product, position) of operands that lanes hold too many times to hold them as a whole (`wide_operands`)."""

    @property
    def spread(self) -> dict[int, Spread]:
        """Products whose result waves share out, and what lies as it does, by number."""
        found = {i: plan.spread for i, plan in self.mmas.items() if plan.spread is not None}
        return found | {i: spread for spread in found.values() for i in spread.alike}

    def matrix_uses(self) -> dict[int, list[tuple[MmaPlan, bool]]]:
        """Reads that matrix instructions take from shared memory: id → (product, whether as its A) of each use."""
        uses: dict[int, list[tuple[MmaPlan, bool]]] = {}
        for plan in self.mmas.values():
            for x, shared, is_a in zip(plan.ports, plan.brought, (True, False)):
                if shared:
                    uses.setdefault(x.id, []).append((plan, is_a))
        return uses

    def made_uses(self) -> list[tuple[Node, list[tuple[MmaPlan, bool]]]]:
        """Computed operands that waves store to shared memory, each with (product, whether as its A) of its uses."""
        uses: dict[int, tuple[Node, list[tuple[MmaPlan, bool]]]] = {}
        for plan in self.mmas.values():
            for x, made, is_a in zip(plan.ports, plan.made, (True, False)):
                if made:
                    uses.setdefault(x.id, (x, []))[1].append((plan, is_a))
        return list(uses.values())

    def operand_layout(self, user: Node, position: int) -> Layout:
        """The layout in which a use gets its operand."""
        demanded = self.demands.get((user.id, position))
        return self.layouts[user.inputs[position].id] if demanded is None else demanded


class _Conflict(CompileError):
    """Two products would have to leave one class of values in different layouts."""


def infer(
    graph: Graph, partition: Partition, target: Target, hardware: Any = None, rows: Rows = NO_ROWS,
    beside: Mapping[str, int] = MappingProxyType({}),
) -> Inference:  # fmt: skip
    """Decide every layout. `rows`: reads whose rows are contiguous in memory (`column_pairs`). `beside`: dimensions of
    which lanes hold neighbours (`side_rows`). Raises ConstraintError where no matrix instruction fits, CompileError on
    a conflict."""
    try:
        return _infer(graph, partition, target, hardware, rows, beside)
    except _Conflict:
        pass
    try:
        return _infer(graph, partition, target, hardware, NO_ROWS, beside, apart=True)
    except _Conflict:
        pass
    try:
        return _infer(graph, partition, target, hardware, NO_ROWS, beside, apart=True, starts=False)
    except _Conflict:
        return _infer(graph, partition, target, hardware, NO_ROWS, beside, apart=True, starts=False, alike=True)


def _infer(
    graph: Graph, partition: Partition, target: Target, hardware: Any, rows: Rows, beside: Mapping[str, int],
    apart: bool = False, starts: bool = True, alike: bool = False,
) -> Inference:  # fmt: skip
    """`apart`: values with products in them are not taken together where they only meet elementwise: such uses
    convert. `starts`: nor are what loops start from and what they carry, unless this is true. `alike`: products that
    add up in one value have instructions that agree on its layout, though others may be faster for each."""
    classes = Classes()
    nodes = {n.id: n for n in graph.all_nodes()}
    join_sums(graph.region, classes, starts)
    if apart:
        classes.settled = {classes.find(n.id) for n in nodes.values() if n.op in PRODUCTS}
    join_region(graph.region, classes)
    members: dict[int, list[Node]] = {}
    for n in nodes.values():
        if isinstance(n.type, ValueType):
            members.setdefault(classes.find(n.id), []).append(n)
    widest = {c: max(ns, key=lambda n: len(n.dims)) for c, ns in members.items()}

    out = Inference()
    chosen = Chosen()
    products = [n for n in nodes.values() if n.op in PRODUCTS]
    out.mmas = _choose_products(graph, products, classes, partition, target, hardware, rows, beside, alike)
    for n in products:
        _settle_result(out, chosen, classes, n, nodes)
    out.wide = wide_operands(graph, out.mmas, partition, target)
    between = between_products(graph, out.wide, out.mmas, members, classes)
    for n in products:
        plan = out.mmas[n.id]
        for position, port, made in zip(plan.positions, (plan.first, plan.second), plan.made):
            if (n.id, position) in out.wide and classes.find(n.inputs[position].id) in between:
                continue
            if not made:  # what is stored to shared memory may lie in registers as it likes
                _packed_apart(chosen, classes, nodes, n.inputs[position], port)
                _demand(out, chosen, classes, n, position, port)
        for position, port in zip(plan.positions, plan.scales or ()):
            _demand(out, chosen, classes, n, position + 1, port)

    for n in nodes.values():
        if n.op in ("sort", "topk"):
            _demand_row(out, chosen, classes, n, nodes, partition, target)

    stored = {classes.find(x.id) for x, _ in out.made_uses()}
    leaders = led(graph, classes)
    scanned = {classes.find(n.id) for n in nodes.values() if n.op in ("scan", "cumsum", "cumprod")}

    order = list(nodes.values())
    values = [n for n in order if isinstance(n.type, ValueType) and n.op not in (*REGIONS, "carry")]
    uses, before = Uses(graph), follows(members, classes)
    ranks = {c: len(n.dims) for c, n in widest.items() if n.dims}
    sweeps = Sweeps(values, lambda n: _looks_at(n, classes), chosen)
    for _ in range(len(order)):
        changed = sweeps.sweep(lambda n: _hand_on(n, chosen, classes, partition, scanned))
        for n in order if not starts else ():
            changed |= n.op in REGIONS and _starts_alike(n, chosen, classes)
        for c, leader in leaders.items():
            if c not in chosen and leader in chosen:
                chosen[c] = project_to(chosen[leader], map(dim_name, widest[c].dims))
                changed = True
        if not changed:
            free = [c for c in ranks if c not in chosen]
            pending = [c for c in free if all(x in chosen for x in before[c])]
            pending = [c for c in pending if leaders.get(c, c) == c or leaders[c] not in free] or pending or free
            if not pending:
                break
            c = max(pending, key=lambda c: (ranks[c], -c))
            found = _as_parts_were_stored(members[c], widest[c], chosen, classes, graph, target)
            if found is None and any(n.op == "join_parts" for n in members[c]):
                found = _fewest_elements(members[c], widest[c], graph, partition, target, uses)
            exact, across = c in stored, between.get(c)
            chosen[c] = found or coalesced_for(members[c], widest[c], graph, partition, target, uses, exact, across)
    for n in products:
        for position, port in zip(out.mmas[n.id].positions, (out.mmas[n.id].first, out.mmas[n.id].second)):
            if (n.id, position) in out.wide:
                _demand(out, chosen, classes, n, position, port)
    settle_packed(out.demands, chosen, classes, nodes, graph, partition, target)

    scalar = make_layout(spec(free=" ".join(f"l{i}" for i in range(target.lane_bits))))
    for n in nodes.values():
        if isinstance(n.type, ValueType):
            got = chosen.get(classes.find(n.id))
            out.layouts[n.id] = scalar if not n.dims or got is None else got
    _edge_demands(out, order)
    return out


def _fewest_elements(
    members: list[Node], widest: Node, graph: Graph, partition: Partition, target: Target, uses: Uses
) -> Layout:  # fmt: skip
    """The layout of sums that a cluster adds (`join_parts`): without padding, for no lane should add what nobody
    stored, unless that leaves so many lanes replicas that the others have more."""
    padded = [coalesced_for(members, widest, graph, partition, target, uses, exact) for exact in (True, False)]
    return min(padded, key=lambda layout: layout.elements_per_lane)


def _as_parts_were_stored(
    members: list[Node], widest: Node, chosen: dict[int, Layout], classes: Classes, graph: Graph, target: Target
) -> Layout | None:  # fmt: skip
    """The layout of a class that reads parts of sums back (`split_k`, `stream_k`): as a warpgroup's product left them,
    so that what is made of their sum leaves by bulk copies as a whole tile's does. None for any other class, and where
    the kernel reads another tile of the sums' dimensions (C): with that ptxas 13 spills in tiles such as 192 x 160."""
    if not target.asynchronous:
        return None
    names = {n.attrs["memory"] for n in members if n.op == "read"}
    names = {name for name in names if graph.argument(name).hidden == SUMS}
    for n in graph.all_nodes():
        if n.op == "write" and n.attrs["memory"] in names:
            layout = chosen.get(classes.find(n.inputs[0].id))
            if layout is not None and set(layout.dims) <= set(map(dim_name, widest.dims)) and not _beside(graph, n):
                return lifted(layout, map(dim_name, widest.dims))
    return None


def _beside(graph: Graph, stored: Node) -> bool:
    """Whether a kernel reads an array's tile of the dimensions of a value that it stores, parts of sums aside."""
    dims = set(stored.inputs[0].dims)
    reads = (n for n in graph.all_nodes() if n.op == "read" and set(n.dims) == dims)
    return any(not graph.argument(n.attrs["memory"]).hidden for n in reads)


def _choose_products(
    graph: Graph, products: list[Node], classes: Classes, partition: Partition, target: Target, hardware: Any,
    rows: Rows, beside: Mapping[str, int], alike: bool,
) -> dict[int, MmaPlan]:  # fmt: skip
    """The instructions of each product, those that feed each other chosen together."""
    contiguous = written_along(graph, classes)
    class_of = {n.id: classes.find(n.id) for n in products}
    made_by: dict[int, int] = {}
    for n in products:
        made_by.setdefault(class_of[n.id], n.id)
    feeds = {
        (n.id, position): made_by[c]
        for n in products
        if n.op == "mma"
        for position in (0, 1)
        if (c := classes.find(n.inputs[position].id)) in made_by and made_by[c] < n.id
    }
    operands = shared_operands(graph, partition, feeds, target)
    along = rows
    if feeds:  # what feeds another product keeps the columns of an instruction in one run
        rows = NO_ROWS
    options = {
        n.id: mma_options(n, partition, target, hardware, contiguous.get(class_of[n.id]), operands, rows)
        for n in products
    }

    taken = {
        n.id
        for n in products
        if n.op == "mma"
        and (all(straight(graph, x, n, along) for x in n.inputs[:2]) or of_whole_words(graph, n, along))
    }

    def planned(n: Node, option: Any, order: Any) -> MmaPlan:
        return mma_plan(n, partition, target, option, order, operands, n.id in taken, beside)

    return choose_chains(products, feeds, class_of, options, planned, alike)


def _looks_at(n: Node, classes: Classes) -> list[int]:
    """The classes whose layouts decide what `_hand_on` does."""
    return [classes.find(x.id) for x in (n, *n.inputs, *(reduction(n) or n).inputs)]


def _hand_on(
    n: Node, chosen: dict[int, Layout], classes: Classes, partition: Partition, scanned: Collection[int]
) -> bool:  # fmt: skip
    """Give a node's class, or one that it takes, the layout that follows from what is chosen; whether one did. A
    reduction's result is the projection of what it reduces; broadcast operands are projections of what they meet, but
    for those in `scanned`, with scans in them, that each lane would have to itself."""
    own = classes.find(n.id)
    rule = ROWS[n.op].index_rule
    reduced = reduction(n)
    if n.op == "extract" and n.attrs["new"] is not None and keeps_places(n, partition):
        source = chosen.get(classes.find(n.inputs[0].id))
        every = every_layout(source, n) if source is not None and own not in chosen else None
        if every is not None:
            chosen[own] = every
        return every is not None
    if reduced is not None or rule == "regroup" or (n.op == "extract" and n.attrs["new"] is None):
        source = chosen.get(classes.find((reduced or n).inputs[0].id))
        if source is None or own in chosen:
            return False
        if reduced is not None:
            aim: Layout | None = source.project(str(reduced.attrs["dim"]))
        elif rule == "regroup":
            aim = renamed_bits(n, absorbed(source), partition)
        else:
            aim = source.project(str(n.attrs["dim"]))
        if aim is not None:
            chosen[own] = aim
        return aim is not None
    if own not in chosen:
        return False
    changed = False
    if n.op == "repeat_interleave":
        theirs = classes.find(n.inputs[0].id)
        if theirs not in chosen:
            chosen[theirs] = coarse_layout(chosen[own], n)
            changed = True
    elif rule in ("same", "lift") or n.attrs.get("mapping") is not None or n.op == "shuffle":
        for x in n.inputs[n.op == "shuffle" :]:
            if isinstance(x.type, ValueType) and set(x.dims) < set(n.dims):
                theirs = classes.find(x.id)
                if theirs not in chosen:
                    aim = project_to(chosen[own], map(dim_name, x.dims))
                    if theirs in scanned and aim.elements_per_lane >= LONG and not moving_lanes(aim, aim.dims):
                        continue
                    chosen[theirs] = aim
                    changed = True
    return changed


def _starts_alike(n: Node, chosen: dict[int, Layout], classes: Classes) -> bool:
    """Let what a loop starts from lie as the first value that is carried from it, where it may; whether one does now.
    Other values that are carried from it, and one whose layout is settled, are converted in front of the loop."""
    changed = False
    for init, carry in zip(initial_values(n), n.attrs["body"].carries):
        own, theirs = classes.find(init.id), classes.find(carry.id)
        if own not in chosen and theirs in chosen:
            chosen[own] = chosen[theirs]
            changed = True
    return changed


def _demand(
    out: Inference, chosen: dict[int, Layout], classes: Classes, user: Node, position: int, layout: Layout
) -> None:
    """The operand at `position` should have `layout`; a second, different demand on a class becomes a conversion at
    that use."""
    c = classes.find(user.inputs[position].id)
    if c not in chosen:
        chosen[c] = layout
    elif not same_layout(chosen[c], layout):
        out.demands[user.id, position] = layout


def _packed_apart(
    chosen: dict[int, Layout], classes: Classes, nodes: Mapping[int, Node], x: Node, port: Layout
) -> None:
    """An operand that is rounded for its product alone is packed in the product's own order where wide elements are
    only renamed for that: packed as they lie, bytes would be taken apart again."""
    source = chosen.get(classes.find(x.id))
    if x.op != "cast" or source is None or x.dtype.bits > 16 or x.inputs[0].dtype.bits != 32:
        return
    if dict(source.extents) != dict(port.extents) or sum(x in u.inputs for u in nodes.values()) != 1:
        return
    if plan_convert(source, port, 1).kind == "byte permutes" and plan_convert(source, port, 4).kind == "renaming":
        classes.leave(x.id)
        chosen[classes.find(x.id)] = port


def _settle_result(
    out: Inference, chosen: dict[int, Layout], classes: Classes, n: Node, nodes: Mapping[int, Node]
) -> None:
    """A product's result lies as its instruction leaves it. Where another product has decided how values lie that it
    meets, it keeps its own layout, and its uses convert it; a sum that a loop carries cannot do so."""
    layout = out.mmas[n.id].result
    c = classes.find(n.id)
    if c not in chosen:
        chosen[c] = layout
        return
    if same_layout(chosen[c], layout):
        return
    added = addend(n)
    carried = {x.id for r in nodes.values() if r.op in REGIONS for x in (*initial_values(r), *next_values(r))}
    alone = [n] if added is None else [n, added]
    shared = added is not None and (
        added.op not in ("constant", "fill") or any(added in u.inputs for u in nodes.values() if u is not n)
    )
    if shared or any(x.id in carried for x in alone):
        raise _Conflict(
            "two matrix products that meet in one value need it in different layouts",
            n.loc,
            "add them up, x + wd.mma(y, z), which converts one of them, or give both the same mma_type and tiles",
        )
    classes.leave(*(x.id for x in alone))
    chosen[classes.find(n.id)] = layout


def _demand_row(
    out: Inference, chosen: dict[int, Layout], classes: Classes, n: Node, nodes: Mapping[int, Node],
    partition: Partition, target: Target,
) -> None:  # fmt: skip
    """Sorts take a whole row in one wave and leave it so."""
    source, along = n.inputs[0], n.attrs["dim"]
    waves = {d: partition.dims[d].wave for d in source.dims}
    count = 1 if n.op == "sort" else partition.dims[n.attrs["k"]].tile
    row = row_layout(source.dims, along, waves, source.dtype, target, count)
    _demand(out, chosen, classes, n, 0, row)
    if n.op == "sort":
        chosen.setdefault(classes.find(n.id), row)
        return
    first = leading_layout(row, str(along), str(n.attrs["k"]), count)
    for r in nodes.values():
        if r.op == "result" and r.inputs[0] is n:
            chosen.setdefault(classes.find(r.id), first)


def _edge_demands(out: Inference, order: list[Node]) -> None:
    """Uses whose operand has another layout than the rule wants: they need a conversion."""
    for n in order:
        if n.attrs.get("mapping") is not None:
            _index_demands(out, n)
        if n.op in REGIONS:
            first = n.op == "when"  # the condition
            for i, (init, carry) in enumerate(zip(initial_values(n), n.attrs["body"].carries), first):
                if not same_layout(out.layouts[init.id], out.layouts[carry.id]):
                    out.demands[n.id, i] = out.layouts[carry.id]
        if not isinstance(n.type, ValueType) or n.op in (*PRODUCTS, *REGIONS, "carry", "result"):
            continue
        mine = out.layouts[n.id]
        if n.op == "repeat_interleave":
            want = coarse_layout(mine, n)
            if not same_layout(out.layouts[n.inputs[0].id], want):
                out.demands[n.id, 0] = want
            continue
        if n.op == "shuffle":
            want = project_to(mine, map(str, n.inputs[1].dims))
            if n.inputs[1].dims and not same_layout(out.layouts[n.inputs[1].id], want):
                out.demands[n.id, 1] = want
            if set(n.dims) == set(n.inputs[0].dims) and not same_layout(out.layouts[n.inputs[0].id], mine):
                out.demands[n.id, 0] = mine
            continue
        if ROWS[n.op].index_rule not in ("same", "lift", "relabel"):
            continue
        for i, x in enumerate(n.inputs):
            if isinstance(x.type, ValueType) and x.dims:
                want = mine if set(x.dims) == set(n.dims) else project_to(mine, map(dim_name, x.dims))
                if not same_layout(out.layouts[x.id], want):
                    out.demands[n.id, i] = want


def _index_demands(out: Inference, n: Node) -> None:
    """Indices of a gather, scatter or atomic lie beside the value that they move."""
    if n.op != "read" and not n.inputs[0].dims:
        return
    layout = out.layouts[n.id] if n.op == "read" else out.layouts[n.inputs[0].id]
    for c in n.attrs["mapping"].coords:
        if isinstance(c, int) and n.inputs[c].dims:
            want = project_to(layout, map(str, n.inputs[c].dims))
            if not same_layout(out.layouts[n.inputs[c].id], want):
                out.demands[n.id, c] = want
