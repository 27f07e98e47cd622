"""Layout inference: which lane and register holds which element, for every value of the graph. (middle.md §3)

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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from wavedsl.ir.bits import REGISTER_KINDS, Bits, bit, kind_of, number_of, spec, with_bits
from wavedsl.ir.chain import absorbed as wide_box
from wavedsl.ir.chain import choose_chains
from wavedsl.ir.column_pairs import NO_ROWS, Rows
from wavedsl.ir.convert import plan_convert
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.graph import (
    PRODUCTS,
    REGIONS,
    Graph,
    Node,
    Region,
    ValueType,
    addend,
    initial_values,
    next_values,
)
from wavedsl.ir.layout import Digit, Layout, make_layout
from wavedsl.ir.mma_plan import (
    MmaPlan,
    lasting_operands,
    makeable,
    mma_options,
    mma_plan,
    paired_products,
    shared_reads,
)
from wavedsl.ir.ops import ATOMIC_VALUES, ROWS
from wavedsl.ir.packed_view import transposed_layout, unit_elements, unit_layout
from wavedsl.ir.partition import Partition
from wavedsl.ir.row_layout import absorbed, leading_layout, regrouped, row_layout
from wavedsl.ir.symbols import AddressSpace, dim_name
from wavedsl.ir.target import VECTOR_BYTES, Target
from wavedsl.ir.views import is_tile, view_dims


@dataclass
class Inference:
    """What was decided. `layouts` maps node ids to layouts; `demands` maps (user id, input position) to the layout
    that use needs where it differs from the value's own."""

    layouts: dict[int, Layout] = field(default_factory=dict)
    mmas: dict[int, MmaPlan] = field(default_factory=dict)
    demands: dict[tuple[int, int], Layout] = field(default_factory=dict)

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


class _Classes:
    """Union-find over node ids."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.settled: set[int] = set()
        """Classes that are not joined with each other."""

    def find(self, x: int) -> int:
        if x in self.left:
            return self.left[x]
        p = self.parent.setdefault(x, x)
        while p != x:
            self.parent[x] = self.parent.setdefault(p, p)
            x, p = p, self.parent[p]
        return x

    def join(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a == b or {a, b} <= self.settled:
            return
        self.parent[max(a, b)] = min(a, b)
        if {a, b} & self.settled:
            self.settled.add(min(a, b))

    def leave(self, *values: int) -> None:
        """Make a class of their own of values whose class is settled: nobody else changes class."""
        for x in values:
            self.left[x] = -1 - min(values)


class _Conflict(CompileError):
    """Two products would have to leave one class of values in different layouts."""


def infer(
    graph: Graph, partition: Partition, target: Target, hardware: Any = None, rows: Rows = NO_ROWS
) -> Inference:
    """Decide every layout. `rows`: reads whose rows are contiguous in memory (`column_pairs`). Raises ConstraintError
    where no matrix instruction fits, CompileError on a conflict."""
    try:
        return _infer(graph, partition, target, hardware, rows, apart=False)
    except _Conflict:
        return _infer(graph, partition, target, hardware, NO_ROWS, apart=True)


def _infer(graph: Graph, partition: Partition, target: Target, hardware: Any, rows: Rows, apart: bool) -> Inference:
    """`apart`: values with products in them are not taken together where they only meet elementwise: such uses
    convert."""
    classes = _Classes()
    nodes = {n.id: n for n in graph.all_nodes()}
    _join_sums(graph.region, classes)
    if apart:
        classes.settled = {classes.find(n.id) for n in nodes.values() if n.op in PRODUCTS}
    _join_region(graph.region, classes)
    members: dict[int, list[Node]] = {}
    for n in nodes.values():
        if isinstance(n.type, ValueType):
            members.setdefault(classes.find(n.id), []).append(n)
    widest = {c: max(ns, key=lambda n: len(n.dims)) for c, ns in members.items()}

    out = Inference()
    chosen: dict[int, Layout] = {}
    contiguous = _written_along(graph, classes)
    products = [n for n in nodes.values() if n.op in PRODUCTS]
    wide = any(a.asynchronous for a in target.mma_atoms)
    read_tiles = shared_reads(graph) if wide else frozenset()
    made_tiles = makeable(graph) if wide else frozenset()
    lasting = lasting_operands(graph, made_tiles)
    made_by: dict[int, int] = {}
    for n in products:
        made_by.setdefault(classes.find(n.id), n.id)
    feeds = {
        (n.id, position): made_by[c]
        for n in products
        if n.op == "mma"
        for position in (0, 1)
        if (c := classes.find(n.inputs[position].id)) in made_by and made_by[c] < n.id
    }
    paired = paired_products(graph, partition, feeds, read_tiles) if wide else frozenset()
    if feeds:  # what feeds another product keeps the columns of an instruction in one run
        rows = NO_ROWS
    out.mmas = choose_chains(
        products,
        feeds,
        {n.id: classes.find(n.id) for n in products},
        {
            n.id: mma_options(
                n, partition, target, hardware, contiguous.get(classes.find(n.id)), read_tiles, made_tiles, rows
            )
            for n in products
        },
        lambda n, option, order: mma_plan(n, partition, target, option, order, read_tiles, made_tiles, paired, lasting),
    )
    for n in products:
        _settle_result(out, chosen, classes, n, nodes)
    for n in products:
        plan = out.mmas[n.id]
        for position, port, made in zip(plan.positions, (plan.first, plan.second), plan.made):
            if not made:  # what is stored to shared memory may lie in registers as it likes
                _packed_apart(chosen, classes, nodes, n.inputs[position], port)
                _demand(out, chosen, classes, n, position, port)
        for position, port in zip(plan.positions, plan.scales or ()):
            _demand(out, chosen, classes, n, position + 1, port)

    for n in nodes.values():
        if n.op in ("sort", "topk"):
            _demand_row(out, chosen, classes, n, nodes, partition, target)

    stored = {classes.find(x.id) for x, _ in out.made_uses()}

    # A reduction's result is the projection of what it reduces; broadcast operands are projections of what they meet.
    order = list(nodes.values())
    for _ in range(len(order)):
        changed = False
        for n in order:
            if not isinstance(n.type, ValueType) or n.op in (*REGIONS, "carry"):
                continue
            own = classes.find(n.id)
            rule = ROWS[n.op].index_rule
            if rule == "project":
                source = chosen.get(classes.find(n.inputs[0].id))
                if source is not None and own not in chosen:
                    chosen[own] = source.project(str(n.attrs["dim"]))
                    changed = True
            elif rule == "regroup":
                source = chosen.get(classes.find(n.inputs[0].id))
                if source is not None and own not in chosen:
                    aim = renamed_bits(n, absorbed(source), partition)
                    if aim is not None:
                        chosen[own] = aim
                        changed = True
            elif n.op == "extract" and n.attrs["new"] is None:
                source = chosen.get(classes.find(n.inputs[0].id))
                if source is not None and own not in chosen:
                    chosen[own] = source.project(str(n.attrs["dim"]))
                    changed = True
            elif n.op == "repeat_interleave":
                theirs = classes.find(n.inputs[0].id)
                if own in chosen and theirs not in chosen:
                    chosen[theirs] = coarse_layout(chosen[own], n)
                    changed = True
            elif (rule in ("same", "lift") or n.attrs.get("mapping") is not None) and own in chosen:
                for x in n.inputs:
                    if isinstance(x.type, ValueType) and set(x.dims) < set(n.dims):
                        theirs = classes.find(x.id)
                        if theirs not in chosen:
                            chosen[theirs] = project_to(chosen[own], map(dim_name, x.dims))
                            changed = True
        if not changed:
            free = [c for c in members if c not in chosen and widest[c].dims]
            pending = [c for c in free if not _waits_for_other(c, members, classes, chosen)] or free
            if not pending:
                break
            c = max(pending, key=lambda c: (len(widest[c].dims), -c))
            chosen[c] = _coalesced_for(members[c], widest[c], graph, partition, target, c in stored)
    _settle_packed(out, chosen, classes, nodes, graph, partition, target)

    scalar = make_layout(spec(free=" ".join(f"l{i}" for i in range(target.lane_bits))))
    for n in nodes.values():
        if isinstance(n.type, ValueType):
            got = chosen.get(classes.find(n.id))
            out.layouts[n.id] = scalar if not n.dims or got is None else got
    _edge_demands(out, order)
    return out


def is_packed_read(n: Node) -> bool:
    """Whether a value comes straight from a packed array, which decides how it can lie in registers."""
    return n.op == "read" and n.dtype.packed and n.attrs.get("mapping") is None


def _settle_packed(
    out: Inference, chosen: dict[int, Layout], classes: _Classes, nodes: Mapping[int, Node], graph: Graph,
    partition: Partition, target: Target,
) -> None:  # fmt: skip
    """Reads and writes of packed arrays move whole units: a value that lies otherwise is converted at its use."""
    for n in nodes.values():
        packed = n.op in ("read", "write") and is_tile(graph, n) and graph.argument(n.attrs["memory"]).dtype.packed
        if not packed:
            continue
        argument = graph.argument(n.attrs["memory"])
        group = unit_elements(argument.dtype)
        dims = list(view_dims(graph, n))
        value = n if n.op == "read" else n.inputs[0]
        own = classes.find(value.id)
        order = [d for d in dims if d in value.dims]
        if not order:
            continue
        inner = str(dims[-1])

        def fits(layout: Layout, staged: bool, inner: str = inner, dtype: DType = argument.dtype) -> bool:
            if unit_layout(layout, inner, unit_elements(dtype)) is not None:
                return True
            return staged and dtype.bits in target.transposing and transposed_layout(layout, inner, 16) is not None

        along = partition.dims[dims[-1]]
        sizes = (along.extent, along.tile, along.wave)
        transposable = all(s is not None and s % 16 == 0 for s in sizes)

        waves = {d: partition.dims[d].wave for d in order}
        if n.op == "write":
            layout = out.demands.get((n.id, 0), chosen[own])
            if not fits(layout, False):
                bits = max(value.dtype.bits, argument.dtype.slot)
                out.demands[n.id, 0] = coalesced(order, waves, bits, target, least=group)
            continue
        space = graph.subs.get(argument.address_space, argument.address_space)
        staged = space is not AddressSpace.GLOBAL and transposable
        fed = target.mma_atoms and target.mma_atoms[0].asynchronous  # what is exchanged passes shared memory again
        if fits(chosen[own], staged) and not fed:
            continue
        uses = [(u, p) for u in nodes.values() for p, x in enumerate(u.inputs) if x is n]
        wanted = chosen[own]
        for u, _ in uses:
            theirs = chosen.get(classes.find(u.id)) if isinstance(u.type, ValueType) else None
            if theirs is not None and set(u.dims) == set(n.dims) and fits(theirs, staged):
                chosen[own] = theirs.reorder([dim_name(d) for d in n.dims])
                break
        else:
            if not fits(chosen[own], staged):
                chosen[own] = coalesced(order, waves, argument.dtype.slot, target, least=group)
        for u, p in uses:
            if u.op in PRODUCTS and (u.id, p) not in out.demands and not same_layout(chosen[own], wanted):
                out.demands[u.id, p] = wanted


def _join_sums(region: Region, classes: _Classes) -> None:
    """What lies alike whatever the user means: what a loop carries, a product and its addend, what an operation with a
    result of its own layout takes."""
    for n in region.nodes:
        body = n.attrs.get("body")
        if body is not None and n.op in REGIONS:
            _join_sums(body, classes)
            for init, carry, last in zip(initial_values(n), body.carries, next_values(n)):
                classes.join(init.id, carry.id)
                classes.join(carry.id, last.id)
        if n.op == "result":
            source = n.inputs[0]
            if source.op in REGIONS:
                classes.join(n.id, source.attrs["body"].carries[n.attrs["position"]].id)
        elif not isinstance(n.type, ValueType):
            continue
        elif n.op in PRODUCTS:
            added = addend(n)
            if added is not None:
                classes.join(n.id, added.id)
        elif n.op in ("scan", "cumsum", "shuffle"):
            if not is_packed_read(n.inputs[0]):
                classes.join(n.id, n.inputs[0].id)
        elif n.op.startswith("atomic_"):
            for x in n.inputs[: ATOMIC_VALUES[n.op]]:
                if set(x.dims) == set(n.dims) and n.dims:
                    classes.join(n.id, x.id)


def _join_region(region: Region, classes: _Classes) -> None:
    """Values that meet elementwise."""
    for n in region.nodes:
        body = n.attrs.get("body")
        if body is not None and n.op in REGIONS:
            _join_region(body, classes)
        apart = (*PRODUCTS, "result", "scan", "cumsum", "shuffle")
        if n.op in apart or not isinstance(n.type, ValueType) or n.op.startswith("atomic_"):
            continue
        if ROWS[n.op].index_rule in ("same", "relabel"):
            for x in n.inputs:
                if isinstance(x.type, ValueType) and set(x.dims) == set(n.dims) and n.dims and not is_packed_read(x):
                    classes.join(n.id, x.id)


def _demand(
    out: Inference, chosen: dict[int, Layout], classes: _Classes, user: Node, position: int, layout: Layout
) -> None:
    """The operand at `position` should have `layout`; a second, different demand on a class becomes a conversion at
    that use."""
    c = classes.find(user.inputs[position].id)
    if c not in chosen:
        chosen[c] = layout
    elif not same_layout(chosen[c], layout):
        out.demands[user.id, position] = layout


def _packed_apart(
    chosen: dict[int, Layout], classes: _Classes, nodes: Mapping[int, Node], x: Node, port: Layout
) -> None:
    """An operand that is rounded for its product alone is packed in the product's own order where wide elements are
    only renamed for that: packed as they lie, bytes would be taken apart again."""
    source = chosen.get(classes.find(x.id))
    if x.op != "cast" or source is None or x.dtype.bits >= 16 or x.inputs[0].dtype.bits != 32:
        return
    if dict(source.extents) != dict(port.extents) or sum(x in u.inputs for u in nodes.values()) != 1:
        return
    if plan_convert(source, port, 1).kind == "byte permutes" and plan_convert(source, port, 4).kind == "renaming":
        classes.leave(x.id)
        chosen[classes.find(x.id)] = port


def _settle_result(
    out: Inference, chosen: dict[int, Layout], classes: _Classes, n: Node, nodes: Mapping[int, Node]
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
            "give both the same mma_type and tiles, or keep the values apart",
        )
    classes.leave(*(x.id for x in alone))
    chosen[classes.find(n.id)] = layout


def _demand_row(
    out: Inference, chosen: dict[int, Layout], classes: _Classes, n: Node, nodes: Mapping[int, Node],
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


def same_layout(a: Layout, b: Layout) -> bool:
    """Equal up to the order in which dimensions are listed."""
    if a.inner is b.inner and a.digits == b.digits and a.extents == b.extents:
        return True
    if a.digits != b.digits or dict(a.extents) != dict(b.extents):
        return False
    return _drives(a.inner) == _drives(b.inner)


def _drives(inner: Bits) -> dict[int, frozenset[int]]:
    """Input bit → the coordinate bits that it drives."""
    return {
        x: frozenset(o for j, o in enumerate(inner.outs) if column >> j & 1) for x, column in zip(inner.ins, inner.cols)
    }


def coarse_layout(layout: Layout, n: Node) -> Layout:
    """The layout in which a `repeat_interleave` takes its operand where it gives `layout`: every lane holds the
    elements that stand for its own."""
    dim, count = str(n.attrs["dim"]), n.attrs["count"]
    part = next(dim_name(d) for d in n.inputs[0].dims if d not in n.dims)
    if count & (count - 1):
        raise CompileError(f"repeat_interleave of {count} elements each", n.loc, "powers of two are lowered")
    low = count.bit_length() - 1
    if layout.inner.width(dim) < low:
        layout = wide_box(layout)
    if layout.inner.width(dim) < low or dict(layout.extents)[dim] % count:
        raise CompileError(
            f"repeat_interleave: a wave's {dict(layout.extents)[dim]} elements of {dim} are no multiple of {count}",
            n.loc,
            f"give a wave a multiple of {count}",
        )
    inner = layout.inner
    keep = [j for j, o in enumerate(inner.outs) if kind_of(o) != dim or number_of(o) >= low]
    outs = [bit(part, number_of(o) - low) if kind_of(o) == dim else o for o in (inner.outs[j] for j in keep)]
    ins, cols = [], []
    for x, c in zip(inner.ins, inner.cols):
        column = sum((c >> j & 1) << i for i, j in enumerate(keep))
        if column or not c or kind_of(x) not in REGISTER_KINDS:
            ins.append(x)
            cols.append(column)
    digits = tuple(Digit(g.kind, g.extent, part if g.dim == dim else g.dim, g.stride) for g in layout.digits)
    extents = tuple((part, s // count) if d == dim else (d, s) for d, s in layout.extents)
    return Layout(Bits(ins, outs, cols), digits, extents)


def project_to(layout: Layout, dims: Iterable[str]) -> Layout:
    """`layout` without the dimensions that are not in `dims`."""
    keep = set(dims)
    for d in layout.dims:
        if d not in keep:
            layout = layout.project(d)
    return layout


def renamed_bits(n: Node, source: Layout, partition: Partition) -> Layout | None:
    """The layout that a reshape gives by renaming bits of its operand's; None where it must move elements."""
    before, after = list(n.inputs[0].dims), list(n.dims)
    while before and after and before[0] == after[0]:
        before.pop(0)
        after.pop(0)
    extents = {d: partition.dims[d].extent for d in (*before, *after)}
    if any(e is None for e in extents.values()) or any(partition.dims[d].wave != extents[d] for d in after):
        return None  # a tile larger than its dimension has places that no element of the operand goes to
    theirs, ours = ([(dim_name(d), extents[d] or 0) for d in dims] for dims in (before, after))
    aim = regrouped(source, theirs, ours)
    return None if aim is None else aim.reorder([dim_name(d) for d in n.dims])


def _edge_demands(out: Inference, order: list[Node]) -> None:
    """Uses whose operand has another layout than the rule wants: they need a conversion."""
    for n in order:
        if n.attrs.get("mapping") is not None:
            _index_demands(out, n)
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
            if not same_layout(out.layouts[n.inputs[0].id], mine):
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


# ---- classes that no matrix instruction fixes ------------------------------------------------------------------------


def _written_along(graph: Graph, classes: _Classes) -> dict[int, str]:
    """Class → the innermost dimension of an array that a value of the class is written to."""
    found: dict[int, str] = {}
    for n in graph.all_nodes():
        if n.op == "write":
            dims = [d for d in graph.argument(n.attrs["memory"]).dims if d not in graph.index_dims]
            if dims:
                found.setdefault(classes.find(n.inputs[0].id), str(dims[-1]))
    return found


def _waits_for_other(c: int, members: dict[int, list[Node]], classes: _Classes, chosen: dict[int, Layout]) -> bool:
    """Whether a class will follow from another undecided one: it is a reduction's result, or meets something larger."""
    return any(ROWS[n.op].index_rule == "project" and classes.find(n.inputs[0].id) not in chosen for n in members[c])


def _coalesced_for(
    nodes: list[Node], widest: Node, graph: Graph, partition: Partition, target: Target, exact: bool = False
) -> Layout:
    """Layout of a class that is free to choose: 16 bytes of the innermost dimension per lane, lanes along it, then
    the next. `exact`: without padding.

    The order of dimensions is that of the array which is written or read with the widest element. Where no array has
    all dimensions of the class, that of the largest tile which is read and then repeated along the others.
    """
    order = list(widest.dims)
    bits = widest.dtype.bits
    ids = {n.id for n in nodes}
    limit = VECTOR_BYTES * 8
    repeated = _largest_repeated(nodes, graph, partition)
    if repeated is not None:
        dims = [d for d in view_dims(graph, repeated) if d in widest.dims]
        order = [d for d in order if d not in dims] + dims
        bits = graph.argument(repeated.attrs["memory"]).dtype.bits
        if repeated.attrs.get("elements_per_thread"):
            limit = min(limit, int(repeated.attrs["elements_per_thread"]) * bits)
    for n in graph.all_nodes():
        touches = (n.op == "write" and n.inputs[0].id in ids) or (n.op == "read" and n.id in ids)
        if touches and is_tile(graph, n):
            argument = graph.argument(n.attrs["memory"])
            dims = [d for d in view_dims(graph, n) if d in widest.dims]
            if set(dims) == set(widest.dims):
                order = dims
                bits = max(bits, argument.dtype.bits)
            if n.attrs.get("elements_per_thread"):
                limit = min(limit, int(n.attrs["elements_per_thread"]) * argument.dtype.bits)
    return coalesced(order, {d: partition.dims[d].wave for d in order}, max(bits, 8), target, limit, exact=exact)


def _largest_repeated(nodes: list[Node], graph: Graph, partition: Partition) -> Node | None:
    """The read with the most bytes per wave among those that values of a class repeat along dimensions which the read
    lacks; what is computed of one read alone counts as it."""
    found: Node | None = None
    most = 0
    for n in nodes:
        for x in n.inputs if ROWS[n.op].index_rule in ("same", "lift") else ():
            while x.op != "read" and ROWS[x.op].index_rule == "same" and len(x.inputs) == 1:
                x = x.inputs[0]
            if x.op != "read" or not set(x.dims) < set(n.dims) or not is_tile(graph, x):
                continue
            size = prod(partition.dims[d].wave for d in x.dims) * graph.argument(x.attrs["memory"]).dtype.bits
            if size > most:
                found, most = x, size
    return found


def coalesced(
    order: list[Any], waves: Mapping[Any, int], bits: int, target: Target, limit: int = VECTOR_BYTES * 8,
    least: int = 1, exact: bool = False,
) -> Layout:  # fmt: skip
    """Elements, then lanes, then registers, from the innermost dimension outward. `waves`: wave tile per dimension;
    `least`: neighbours along the innermost dimension that must be in one lane.

    A dimension whose power-of-two part is small is padded to the next box; the padding is masked where it is accessed.
    `exact`: lanes lie along that part only, and what is left of them are replicas.
    """
    lanes_left = target.lane_bits
    element = max(0, (limit // bits).bit_length() - 1)
    whole = sum((waves[d] - 1).bit_length() for d in order)
    element = min(element, max(0, whole - lanes_left))  # a small tile: narrow vectors before idle lanes
    element = max(element, least.bit_length() - 1)
    lane = 0
    strings: dict[str, str] = {}
    digits: list[Digit] = []
    extents: dict[str, int] = {}
    next_element = 0
    for d in reversed(order):
        size = waves[d]
        own: list[str] = []
        width = (size & -size).bit_length() - 1 if exact else (size - 1).bit_length()
        if element and not next_element:
            take = min(element, width)
            while take and size % (1 << take):
                take -= 1
            own += [f"e{i}" for i in range(take)]
            next_element = take
        element = 0
        take = min(lanes_left, max(0, width - len(own)))
        # Pad to lanes only when it wastes less than half of them.
        own += [f"l{lane + i}" for i in range(take)]
        lane += take
        lanes_left -= take
        box = 1 << len(own)
        count = -(-size // box)
        strings[dim_name(d)] = " ".join(own)
        extents[dim_name(d)] = count * box
        if count > 1:
            digits.insert(0, Digit("reg", count, dim_name(d), 1))
    free = " ".join(f"l{i}" for i in range(lane, target.lane_bits))
    inner = spec(with_bits(strings), free=free)
    return Layout(inner, tuple(digits), tuple((dim_name(d), extents[dim_name(d)]) for d in order))
