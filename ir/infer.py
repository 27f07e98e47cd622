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

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.chain import MmaOption, choose_chains
from wavedsl.ir.chain import absorbed as wide_box
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.graph import (
    PRODUCTS,
    REGIONS,
    Graph,
    Node,
    Region,
    ValueType,
    addend,
    factors,
    initial_values,
    next_values,
)
from wavedsl.ir.layout import REGISTER_KINDS, Bits, Digit, Layout, bit, kind_of, make_layout, number_of, spec
from wavedsl.ir.ops import ATOMIC_VALUES, MX_BLOCK, ROWS, scale_block
from wavedsl.ir.packed_view import transposed_layout, unit_elements, unit_layout
from wavedsl.ir.partition import Partition
from wavedsl.ir.row_layout import absorbed, leading_layout, regrouped, row_layout
from wavedsl.ir.symbols import AddressSpace
from wavedsl.ir.target import MmaAtom, Target, lacking
from wavedsl.ir.views import is_tile, view_dims

VECTOR_BYTES = 16
"""Widest access of one lane on every target."""

STORED_CLOCKS = 1 / 64
"""Clocks per element that storing a computed operand to shared memory costs beside the matrix unit: two bytes of the
128 that an SM stores in a clock."""


@dataclass
class MmaPlan:
    """How one `mma` node is carried out. With `swapped`, the node's second operand feeds the atom's first port.

    `m`, `n`, `k` name the dimensions that the atom's M, N and K run along *after* the swap; `first`, `second` are the
    layouts its ports demand, `result` the layout it gives. `order`: bit i of the instruction's K is bit `order[i]` of
    the coordinate (None: as they come); it holds for both operands, so the product is the same.
    """

    node: Node
    atom: MmaAtom
    swapped: bool
    m: str
    n: str
    k: str
    first: Layout
    second: Layout
    result: Layout
    order: tuple[int, ...] | None = None
    a_shared: bool = False
    """Asynchronous instructions: A is a tile in shared memory, as B always is, and no fragment."""
    made: tuple[bool, bool] = (False, False)
    """Whether A and B are computed, and waves store them to shared memory."""
    scales: tuple[Layout, Layout] | None = None
    """The layouts in which A's and B's scales are held, of a scaled product."""

    @property
    def in_shared(self) -> tuple[bool, bool]:
        """Whether the instruction itself reads its A and its B from shared memory."""
        return self.a_shared, self.atom.asynchronous

    @property
    def brought(self) -> tuple[bool, bool]:
        """Whether A and B are tiles in shared memory that reads bring there."""
        return self.a_shared and not self.made[0], self.atom.asynchronous and not self.made[1]

    @property
    def a(self) -> Mapping[str, str]:
        """The bits of the atom's A fragment, K in the order of the coordinate."""
        return in_order(self.atom.a, self.order)

    @property
    def b(self) -> Mapping[str, str]:
        return in_order(self.atom.b, self.order)

    @property
    def ports(self) -> tuple[Node, Node]:
        """The nodes that feed the atom's A and B ports."""
        a, b = (self.node.inputs[p] for p in self.positions)
        return a, b

    @property
    def positions(self) -> tuple[int, int]:
        """Where the atom's A and B stand among the node's operands; a scale stands behind its operand."""
        x, y = factors(self.node)
        return (y, x) if self.swapped else (x, y)


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


def infer(graph: Graph, partition: Partition, target: Target, hardware: Any = None) -> Inference:
    """Decide every layout. Raises ConstraintError where no matrix instruction fits, CompileError on a conflict."""
    try:
        return _infer(graph, partition, target, hardware, apart=False)
    except _Conflict:
        return _infer(graph, partition, target, hardware, apart=True)


def _infer(graph: Graph, partition: Partition, target: Target, hardware: Any, apart: bool) -> Inference:
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
    out.mmas = choose_chains(
        products,
        feeds,
        {n.id: classes.find(n.id) for n in products},
        {
            n.id: mma_options(
                n, partition, target, hardware, contiguous.get(classes.find(n.id)), read_tiles, made_tiles
            )
            for n in products
        },
        lambda n, option, order: mma_plan(n, partition, target, option, order, read_tiles, made_tiles),
    )
    for n in products:
        _settle_result(out, chosen, classes, n, nodes)
    for n in products:
        plan = out.mmas[n.id]
        for position, port, made in zip(plan.positions, (plan.first, plan.second), plan.made):
            if not made:  # what is stored to shared memory may lie in registers as it likes
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
                            chosen[theirs] = project_to(chosen[own], map(str, x.dims))
                            changed = True
        if not changed:
            free = [c for c in members if c not in chosen and widest[c].dims]
            pending = [c for c in free if not _waits_for_other(c, members, classes, chosen)] or free
            if not pending:
                break
            c = max(pending, key=lambda c: (len(widest[c].dims), -c))
            chosen[c] = _coalesced_for(members[c], widest[c], graph, partition, target, c in stored)
    _settle_packed(out, chosen, classes, nodes, graph, partition, target)

    scalar = make_layout(spec(free=" ".join(f"l{i}" for i in range(_lane_bits(target)))))
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
        if fits(chosen[own], staged):
            continue
        uses = [(u, p) for u in nodes.values() for p, x in enumerate(u.inputs) if x is n]
        wanted = chosen[own]
        for u, _ in uses:
            theirs = chosen.get(classes.find(u.id)) if isinstance(u.type, ValueType) else None
            if theirs is not None and set(u.dims) == set(n.dims) and fits(theirs, staged):
                chosen[own] = theirs.reorder([str(d) for d in n.dims])
                break
        else:
            chosen[own] = coalesced(order, waves, argument.dtype.slot, target, least=group)
        for u, p in uses:
            if u.op in PRODUCTS and (u.id, p) not in out.demands and not same_layout(chosen[own], wanted):
                out.demands[u.id, p] = wanted


def _lane_bits(target: Target) -> int:
    return target.wave_size.bit_length() - 1


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
    part = next(str(d) for d in n.inputs[0].dims if d not in n.dims)
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
    aim = regrouped(source, [(str(d), extents[d] or 0) for d in before], [(str(d), extents[d] or 0) for d in after])
    return None if aim is None else aim.reorder([str(d) for d in n.dims])


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
                want = mine if set(x.dims) == set(n.dims) else project_to(mine, map(str, x.dims))
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


# ---- matrix instructions ---------------------------------------------------------------------------------------------


def mma_options(
    node: Node, partition: Partition, target: Target, hardware: Any = None, contiguous: str | None = None,
    read_tiles: frozenset[int] = frozenset(), made_tiles: frozenset[tuple[int, int]] = frozenset(),
) -> list[MmaOption]:
    """Atoms and operand orders of one `mma` node, best first.

    Fewest matrix-unit cycles for the wave's tile first, then the widest store along `contiguous` (the memory-contiguous
    dimension the result is written along, if known), then no swap. Raises ConstraintError where none fits.
    """
    a, b = (node.inputs[p] for p in factors(node))
    m, n, k = _product_dims(node)
    wm, wn, wk = (partition.dims[d].wave if d is not None else 1 for d in (m, n, k))
    wanted = getattr(hardware, "mma_type", None)
    wanted_name = getattr(wanted, "name", wanted)
    asked = {d: v for d in (m, n, k) if d is not None and (v := partition.dims[d].vector) is not None}
    candidates = _candidates(a.dtype, b.dtype, node.dtype, target, wanted_name, wm, wn, node.op == "scaled_mma")
    found = []
    misfits: list[str] = []
    for i, (atom, swap) in enumerate(candidates):
        if atom.asynchronous:
            ends = (n, m) if swap else (m, n)
            stored = (node.id, 0 if swap else 1) in made_tiles
            misfit = async_misfit(atom, partition, ends, k, a if swap else b, read_tiles, stored)
            if misfit:
                misfits.append(misfit)
                continue
        am, an = (atom.n, atom.m) if swap else (atom.m, atom.n)
        if asked and any(asked.get(d, size) % size for d, size in ((m, am), (n, an), (k, atom.k))):
            continue
        issues = -(-wm // am) * -(-wn // an) * -(-wk // atom.k)
        d = {str(m): atom.d["N" if swap else "M"], str(n): atom.d["M" if swap else "N"]}
        width = _leading_elements(d.get(contiguous or "", ""))
        clocks = float(issues * atom.cycles)
        if atom.asynchronous and (a if swap else b).id not in read_tiles:
            both = a.id not in read_tiles and b.id not in read_tiles
            clocks += STORED_CLOCKS * (wm + wn if both else wm if swap else wn) * wk
        found.append(MmaOption((clocks, -width, swap, i), atom, swap))
    if not found and misfits and len(misfits) == len(candidates):
        raise ConstraintError(
            f"no matrix instruction of a warpgroup of {target.name} fits: {misfits[0]}",
            node.loc,
            "see WorkgroupConstraint, WaveConstraint and TilingConstraint, or use threads_per_wave=32",
        )
    if not found and candidates:
        raise ConstraintError(
            f"vector_shapes={{{', '.join(f'{d}: {v}' for d, v in asked.items())}}} fits no matrix instruction of "
            f"{target.name} for {a.dtype.name} x {b.dtype.name} -> {node.dtype.name}",
            getattr(hardware, "loc", None),
            f"multiples of {' or '.join(dict.fromkeys(f'{t.m} x {t.n} x {t.k}' for t, _ in candidates))}",
        )
    if not found:
        _no_atom(node, a.dtype, b.dtype, target, wanted_name)
    return sorted(found, key=lambda o: o.key)


def async_misfit(
    atom: MmaAtom, partition: Partition, ends: tuple[Any, Any], k: Any, second: Node, read_tiles: frozenset[int],
    stored: bool = False,
) -> str:
    """Why an asynchronous instruction cannot carry out a product; empty if it can."""
    if None in ends:
        return "an operand has no dimension of its own"
    for d, size, what in ((ends[0], atom.m, "rows"), (ends[1], atom.n, "columns"), (k, atom.k, "deep")):
        if partition.dims[d].wave % size:
            return f"a wave's {partition.dims[d].wave} elements of {d} are no multiple of {size} {what}"
    if second.id not in read_tiles and not stored:
        return "neither operand is an array's tile that can lie in shared memory"
    return ""


def shared_reads(graph: Graph) -> frozenset[int]:
    """Reads that matrix instructions may take straight from shared memory: of whole bytes, used by products alone."""
    users: dict[int, list[tuple[Node, int]]] = {}
    for n in graph.all_nodes():
        for position, x in enumerate(n.inputs):
            users.setdefault(x.id, []).append((n, position))
    found = set()
    for n in graph.all_nodes():
        if n.op != "read" or n.dtype.bits < 8 or len(n.dims) != 2 or not is_tile(graph, n):
            continue
        space = graph.argument(n.attrs["memory"]).address_space
        if graph.subs.get(space, space) is AddressSpace.GLOBAL:
            continue
        if all(u.op == "mma" and position < 2 for u, position in users.get(n.id, ())):
            found.add(n.id)
    return frozenset(found)


def makeable(graph: Graph) -> frozenset[tuple[int, int]]:
    """(product, input position) of operands that waves may leave in shared memory: of whole bytes, computed element by
    element from arrays and constants in the region of the product."""
    plain: dict[int, bool] = {}

    def elementwise(x: Node) -> bool:
        found = plain.get(x.id)
        if found is None:
            source = x.op in ("read", "constant", "fill", "scalar", "size", "index")
            found = source or (x.op in ROWS and ROWS[x.op].index_rule == "same" and all(map(elementwise, x.inputs)))
            plain[x.id] = found
        return found

    out = set()
    for region in graph.regions():
        inside = {n.id for n in region.nodes}
        for n in region.nodes:
            if n.op != "mma":
                continue
            for position, x in enumerate(n.inputs[:2]):
                computed = x.op not in ("read", "constant", "fill") and x.id in inside
                if computed and len(x.dims) == 2 and x.dtype.bits >= 8 and elementwise(x):
                    out.add((n.id, position))
    return frozenset(out)


def _product_dims(node: Node) -> tuple[Any, Any, Any]:
    """The dimensions (M, N, K) of a product; M or N is None where an operand has only K."""
    a, b = (node.inputs[p] for p in factors(node))
    result_dims = list(node.dims)
    shared = [d for d in a.dims if d in b.dims]
    k_dims = [d for d in shared if d not in result_dims]
    m_dims = [d for d in a.dims if d in result_dims and d not in shared]
    n_dims = [d for d in b.dims if d in result_dims and d not in shared]
    if len(k_dims) != 1 or len(m_dims) > 1 or len(n_dims) > 1 or any(d in result_dims for d in shared):
        raise CompileError(
            f"mma of [{_names(a.dims)}] and [{_names(b.dims)}] to [{_names(result_dims)}]: "
            "a matrix instruction takes one dimension of each operand and one that both contract",
            node.loc,
            "make batch dimensions index dimensions (workgroup tile 1)",
        )
    return m_dims[0] if m_dims else None, n_dims[0] if n_dims else None, k_dims[0]


def mma_plan(
    node: Node, partition: Partition, target: Target, option: MmaOption, order: tuple[int, ...] | None = None,
    read_tiles: frozenset[int] = frozenset(), made_tiles: frozenset[tuple[int, int]] = frozenset(),
) -> MmaPlan:
    """One `mma` node by one option, with the K order that a chained operand asks for."""
    atom, swap = option.atom, option.swap
    m, n, k = _product_dims(node)
    if swap:
        m, n = n, m
    am_name, an_name, k_name = ("" if m is None else str(m)), ("" if n is None else str(n)), str(k)
    wam, wan, wk = (partition.dims[d].wave if d is not None else 1 for d in (m, n, k))
    if atom.asynchronous:
        names = (am_name, an_name, k_name)
        return _async_plan(node, target, atom, swap, names, (wam, wan, wk), read_tiles, made_tiles)
    scales = None
    if atom.scale_block:
        step_bits, order = _scaled_steps(atom, wk)
        blocks = [str(scale_dim(node, p, k)) for p in ((factors(node)[::-1]) if swap else factors(node))]
        scales = (
            _scale_layout(atom, atom.m, am_name, wam, blocks[0], wk, step_bits, target),
            _scale_layout(atom, atom.n, an_name, wan, blocks[1], wk, step_bits, target),
        )
    else:
        step_bits = _wide_steps(atom, node.inputs[0].dtype, wk, target) if order is None else 0
    a, b = in_order(atom.a, order), in_order(atom.b, order)
    first = _port(a, "M", atom.m, am_name, wam, atom, k_name, wk, step_bits, target)
    second = _port(b, "N", atom.n, an_name, wan, atom, k_name, wk, step_bits, target)
    inner = _named(atom.d, {"M": am_name or "_m", "N": an_name or "_n"}, target)
    digits, extents = [], {}
    for name, box, wave in ((am_name, atom.m, wam), (an_name, atom.n, wan)):
        if name:
            count = -(-wave // box)
            extents[name] = count * box
            if count > 1:
                digits.append(Digit("reg", count, name, 1))
    result = _drop(inner, digits, extents, ("_m", "_n"))
    return MmaPlan(node, atom, swap, am_name, an_name, k_name, first, second, result, order, scales=scales)


def scale_dim(node: Node, position: int, k: Any) -> Any:
    """The dimension of a scale that stands for the contracted one. Raises ConstraintError where a scale is not for as
    many elements as the instructions have."""
    value, scale = node.inputs[position], node.inputs[position + 1]
    block = scale_block(value.type, scale.type, k)  # type: ignore[arg-type]
    if block != MX_BLOCK:
        raise ConstraintError(
            f"scaled_mma: a scale for {block} elements of {k}", node.loc, f"matrix instructions take one for {MX_BLOCK}"
        )
    return next(d for d in scale.dims if d not in value.dims)


def _scaled_steps(atom: MmaAtom, wk: int) -> tuple[int, tuple[int, ...]]:
    """(log2 of the steps along K whose scales are neighbours in a register, where the bits of the instruction's K go).

    Steps lie between the block's own bits and those that tell the instruction's blocks apart: a lane then takes
    neighbouring blocks in consecutive steps.
    """
    steps = 0
    while steps < 2 and -(-wk // atom.k) % (2 << steps) == 0:
        steps += 1
    inside = atom.scale_block.bit_length() - 1
    width = len(atom.a["K"].split())
    return steps, tuple(i if i < inside else i + steps for i in range(width))


def _scale_layout(
    atom: MmaAtom, size: int, name: str, wave: int, block_dim: str, wk: int, steps: int, target: Target
) -> Layout:
    """How one operand's scales are held: lane l has those of row l % size, of block l // size of every step."""
    lanes = _lane_bits(target)
    low = size.bit_length() - 1
    rows = " ".join(f"l{i}" for i in range(low))
    blocks = [f"e{i}" for i in range(steps)] + [f"l{i}" for i in range(low, lanes)]
    inner = _named({"M": rows, "K": " ".join(blocks)}, {"M": name or "_m", "K": block_dim}, target)
    count, count_k = -(-wave // size), -(-wk // (atom.k << steps))
    digits = [Digit("reg", c, d, 1) for c, d in ((count, name), (count_k, block_dim)) if d and c > 1]
    extents = {name: count * size} if name else {}
    extents[block_dim] = count_k * (atom.k << steps) // atom.scale_block
    return _drop(inner, digits, extents, ("_m",))


def _async_plan(
    node: Node, target: Target, atom: MmaAtom, swap: bool, names: tuple[str, str, str], waves: tuple[int, int, int],
    read_tiles: frozenset[int], made_tiles: frozenset[tuple[int, int]],
) -> MmaPlan:  # fmt: skip
    """An asynchronous instruction's plan: tiles in shared memory have a nominal layout, which nothing is held in."""
    (m, n, k), (wave_m, wave_n, wave_k) = names, waves
    operands = (node.inputs[1], node.inputs[0]) if swap else tuple(node.inputs[:2])
    made_b = operands[1].id not in read_tiles
    # With a computed B both lie in shared memory: nothing then holds back the next trip's registers.
    made_a = made_b and operands[0].id not in read_tiles and (node.id, 1 if swap else 0) in made_tiles
    a_shared = operands[0].id in read_tiles or made_a
    sizes = dict(zip(names, waves))

    def tile(x: Node) -> Layout:
        return whole_tile({str(d): sizes[str(d)] for d in x.dims}, target)

    first = (
        tile(operands[0])
        if a_shared
        else _port(atom.a, "M", atom.m, m, wave_m, atom, k, wave_k, 0, target)
    )
    inner = _named(atom.d, {"M": m, "N": n}, target)
    digits = [Digit("reg", c, d, 1) for d, w in ((m, wave_m), (n, wave_n)) if (c := w // (1 << inner.width(d))) > 1]
    result = Layout(inner, tuple(digits), ((m, wave_m), (n, wave_n)))
    return MmaPlan(node, atom, swap, m, n, k, first, tile(operands[1]), result, None, a_shared, (made_a, made_b))


def whole_tile(extents: Mapping[str, int], target: Target) -> Layout:
    """Some layout that covers a tile exactly: lanes along the power-of-two parts, the rest in registers."""
    strings: dict[str, str] = {}
    digits: list[Digit] = []
    lane = 0
    for d, size in extents.items():
        take = min(_lane_bits(target) - lane, (size & -size).bit_length() - 1)
        strings[d] = " ".join(f"l{lane + i}" for i in range(take))
        lane += take
        if size >> take > 1:
            digits.append(Digit("reg", size >> take, d, 1))
    free = " ".join(f"l{i}" for i in range(lane, _lane_bits(target)))
    return Layout(spec(tuple_safe(strings), free=free), tuple(digits), tuple(extents.items()))


def in_order(strings: Mapping[str, str], order: tuple[int, ...] | None) -> Mapping[str, str]:
    """A fragment's strings with bit i of K moved to bit `order[i]`."""
    if order is None:
        return strings
    moved = ["0"] * (max(order) + 1)  # a gap is filled by steps of instructions
    for i, source in enumerate(strings["K"].split()):
        moved[order[i]] = source
    return {**strings, "K": " ".join(moved)}


def _names(dims: Iterable[Any]) -> str:
    return ", ".join(map(str, dims))


def _candidates(
    a: DType, b: DType, acc: DType, target: Target, wanted: str | None, wm: int, wn: int, scaled: bool
) -> list[tuple[MmaAtom, bool]]:
    found = []
    for atom in target.mma_atoms:
        if scaled != bool(atom.scale_block):
            continue
        if wanted is not None:
            if atom.name.removeprefix("SCALED_") != wanted:
                continue
        elif atom.blocks > 1:
            continue
        atom = side_by_side(atom)
        if atom.acc_dtype is not acc:
            continue
        if (atom.a_dtype, atom.b_dtype) == (a, b):
            found.append((atom, False))
        if (atom.b_dtype, atom.a_dtype) == (a, b):
            found.append((atom, True))
    wide = any(t.asynchronous for t in target.mma_atoms)
    if not found and wanted is None and not wide and not scaled and a is b is acc and a in (dt.f32, dt.f64, dt.i32):
        found = [(fma_atom(a, target, wm, wn), False)]
    return found


@functools.cache
def side_by_side(atom: MmaAtom) -> MmaAtom:
    """An instruction of several blocks as one product: all blocks take the same A, which lanes hold replicas of, and
    their columns lie side by side."""
    if atom.blocks == 1:
        return atom

    def columns(strings: Mapping[str, str]) -> dict[str, str]:
        return {"K": "", **strings, "N": f"{strings['N']} {strings['B']}"}

    a, b, d = {"K": "", **atom.a}, columns(atom.b), columns(atom.d)
    for strings in (a, b, d):
        strings.pop("B", None)
    d.pop("K")
    return replace(atom, n=atom.n * atom.blocks, a=a, b=b, d=d, blocks=1)


def fma_atom(dtype: DType, target: Target, wm: int, wn: int) -> MmaAtom:
    """A matrix product by plain fused multiply-adds: each lane owns a small outer-product tile, operands are
    replicated.

    Lanes lie 8 along N and the rest along M; a lane owns up to 4×4 results (fewer where the wave's tile is smaller).
    """
    lanes = _lane_bits(target)
    n_lanes = [f"l{i}" for i in range(3)]
    m_lanes = [f"l{i}" for i in range(3, lanes)]
    m_bits = max(0, min(2, (wm - 1).bit_length() - len(m_lanes)))
    n_bits = max(0, min(2, (wn - 1).bit_length() - len(n_lanes)))
    n_own = [f"e{i}" for i in range(n_bits)]
    m_own = [f"e{i}" for i in range(m_bits)]
    d_m = [f"e{n_bits + i}" for i in range(m_bits)]
    words = dtype.bits // 32
    m, n = 1 << (m_bits + len(m_lanes)), 1 << (n_bits + len(n_lanes))
    valu = target.cost("valu")
    return MmaAtom(
        f"{dtype.name.upper()}_FMA", m, n, 1, dtype, dtype, dtype,
        {"M": " ".join(m_own + m_lanes), "K": ""},
        {"N": " ".join(n_own + n_lanes), "K": ""},
        {"M": " ".join(d_m + m_lanes), "N": " ".join(n_own + n_lanes)},
        words << m_bits, words << n_bits, words << (m_bits + n_bits),
        valu.cycles << (m_bits + n_bits), valu.latency, "fma",
    )  # fmt: skip


def _no_atom(node: Node, a: DType, b: DType, target: Target, wanted: str | None) -> None:
    for d in (a, b):
        if d.name not in target.dtypes:
            raise lacking(target, d, node.loc)
    scaled = node.op == "scaled_mma"
    atoms = [t for t in target.mma_atoms if {t.a_dtype, t.b_dtype} == {a, b} and scaled == bool(t.scale_block)]
    have = [t.name.removeprefix("SCALED_") for t in atoms if t.blocks == 1]
    if scaled and not any(t.scale_block for t in target.mma_atoms):
        raise ConstraintError(
            f"{target.name} has no matrix instruction that takes scales",
            node.loc,
            "gfx950 has; elsewhere cast the operands and multiply by their scales",
        )
    if wanted is not None:
        raise ConstraintError(
            f"mma_type={wanted}: {target.name} has no such instruction for {a.name} x {b.name} -> {node.dtype.name}",
            node.loc,
            f"it has {', '.join(have)}" if have else "leave mma_type out",
        )
    raise ConstraintError(
        f"{target.name} has no matrix instruction for {a.name} x {b.name} -> {node.dtype.name}",
        node.loc,
        f"it has {', '.join(have)}: change the accumulator's dtype" if have else "cast the operands first",
    )


def _leading_elements(bits: str) -> int:
    """Elements that are contiguous in one lane along a dimension with these sources: 2 to the number of leading e
    bits."""
    count = 0
    for b in bits.split():
        if not b.startswith("e"):
            break
        count += 1
    return 1 << count


def _wide_steps(atom: MmaAtom, dtype: DType, wk: int, target: Target) -> int:
    """log2 of the k-steps that one 16-byte read of an operand serves, by permuting K inside 2^steps instructions.

    Legal for any shared K permutation; worth it where a lane's K run is one plain vector, that is on chips whose
    fragments are not gathered by a matrix load.
    """
    if any(x.lane for x in target.load_atoms) and dtype.bits == 16 and atom.instruction != "fma":
        return 0
    sources = atom.a["K"].split()
    own = _leading_elements(atom.a["K"])
    if any(s.startswith("e") for s in sources[own.bit_length() - 1 :]):
        return 0
    most = max(1, VECTOR_BYTES * 8 // dtype.bits // own)
    steps = 0
    while 2 << steps <= most and -(-wk // atom.k) % (2 << steps) == 0:
        steps += 1
    return steps


def _port(
    strings: Mapping[str, str],
    side: str,
    box: int,
    name: str,
    wave: int,
    atom: MmaAtom,
    k: str,
    wk: int,
    steps: int,
    target: Target,
) -> Layout:
    """The layout one operand port demands: the atom's fragment, `steps` K bits above it read along K, repeats as
    digits."""
    k_sources = strings["K"].split()
    used = {s for text in strings.values() for s in text.split() if s.startswith("e")}
    extra = [f"e{len(used) + i}" for i in range(steps)]
    run = sum(1 for s in k_sources if s.startswith("e")) if steps else 0
    k_bits = k_sources[:run] + extra + k_sources[run:]
    if "0" in k_sources:
        fill = iter(extra)
        k_bits = [next(fill) if s == "0" else s for s in k_sources]
    if steps and any(s.startswith("e") for s in strings[side].split()):
        # Steps are contiguous in memory: give them the low element bits, the rows of this lane the high ones.
        shift = {f"e{i}": f"e{i + steps}" for i in range(len(used))}
        k_bits = [f"e{i}" for i in range(steps)] + [shift.get(s, s) for s in k_sources]
        rows = [shift.get(s, s) for s in strings[side].split()]
    else:
        rows = strings[side].split()
    if name and not steps and _pairs(strings, box, wave, atom, target):
        rows, box = [*rows, "r0"], 2 * box
    inner = _named({side: " ".join(rows), "K": " ".join(k_bits)}, {side: name or "_m", "K": k}, target)
    k_box = atom.k << steps
    count_k, count = -(-wk // k_box), -(-wave // box)
    digits, extents = [], {}
    if name:
        extents[name] = count * box
        if count > 1:
            digits.append(Digit("reg", count, name, 1))
    extents[k] = count_k * k_box
    if count_k > 1:
        digits.append(Digit("reg", count_k, k, 1))
    return _drop(inner, digits, extents, ("_m",))


def _pairs(strings: Mapping[str, str], box: int, wave: int, atom: MmaAtom, target: Target) -> bool:
    """Whether two neighbouring fragments should be one piece of the layout: a matrix load then fills both at once."""
    widest = max((x.bytes for x in target.load_atoms if x.lane), default=0)
    used = {s for text in strings.values() for s in text.split() if s.startswith("e")}
    return widest >= 2 * ((atom.a_dtype.bits << len(used)) // 8) and wave % (2 * box) == 0 and atom.instruction != "fma"


def _named(strings: Mapping[str, str], names: Mapping[str, str], target: Target) -> Any:
    """The atom's strings as a map with the kernel's dimension names; lanes that drive nothing are replicas."""
    used = {s for text in strings.values() for s in text.split()}
    free = " ".join(f"l{i}" for i in range(_lane_bits(target)) if f"l{i}" not in used)
    dims = {names[d]: text for d, text in strings.items()}
    return spec(tuple_safe(dims), free=free)


def tuple_safe(dims: Mapping[str, str]) -> dict[str, str]:
    """Dimensions without bits are left out: they have one element."""
    return {d: t for d, t in dims.items() if t.strip()}


def _drop(inner: Any, digits: list[Digit], extents: dict[str, int], placeholders: tuple[str, ...]) -> Layout:
    """A layout without its placeholder dimensions (an operand that has no rows of its own)."""
    full = dict(extents)
    for p in placeholders:
        if inner.width(p):
            full[p] = 1 << inner.width(p)
    for d in extents:
        if not inner.width(d) and not any(g.dim == d for g in digits) and extents[d] == 1:
            full[d] = 1
    layout = Layout(inner, tuple(digits), tuple(full.items()))
    for p in placeholders:
        if p in full:
            layout = layout.project(p)
    return layout


# ---- classes that no matrix instruction fixes
# --------------------------------------------------------------------------


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

    The order of dimensions is that of the array which is written or read with the widest element.
    """
    order = list(widest.dims)
    bits = widest.dtype.bits
    ids = {n.id for n in nodes}
    limit = VECTOR_BYTES * 8
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


def coalesced(
    order: list[Any], waves: Mapping[Any, int], bits: int, target: Target, limit: int = VECTOR_BYTES * 8,
    least: int = 1, exact: bool = False,
) -> Layout:  # fmt: skip
    """Elements, then lanes, then registers, from the innermost dimension outward. `waves`: wave tile per dimension;
    `least`: neighbours along the innermost dimension that must be in one lane.

    A dimension whose power-of-two part is small is padded to the next box; the padding is masked where it is accessed.
    `exact`: lanes lie along that part only, and what is left of them are replicas.
    """
    lanes_left = _lane_bits(target)
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
        strings[str(d)] = " ".join(own)
        extents[str(d)] = count * box
        if count > 1:
            digits.insert(0, Digit("reg", count, str(d), 1))
    free = " ".join(f"l{i}" for i in range(lane, _lane_bits(target)))
    inner = spec(tuple_safe(strings), free=free)
    return Layout(inner, tuple(digits), tuple((str(d), extents[str(d)]) for d in order))
