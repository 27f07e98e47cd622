"""Operands that waves compute and leave in shared memory for matrix instructions to read.

In: the operands that inference wants there (`Inference.made_uses`). Out: a `MadeTile` for each with its place, and the
step that stores it. The value stays in whatever layout its class has; the place is one that matrix instructions can
read and that the stores fill with fewest bank conflicts. Two slots let a trip store while the last one's products
read; barriers between are placed like those of any shared buffer, with a fence that shows the stores to the matrix
unit.

Operands that a loop does not change are stored in front of it, in one slot, and take no registers inside.

Invariant: every element is stored once. Waves that have the same tile share the stores out, each in a branch of its
own, so that each computes its share alone; not where two are made of the same elements, which are then held until both
are stored (ptxas spills 636 bytes in 128 x 256 x 32 of 3xtf32).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.addresses.fragment_loads import VECTOR_ATOMS, FragmentLoads, plan_place_addresses, wave_digits
from wavedsl.ir.addresses.move_elements import join_word
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.inference.mma_plan import MmaPlan
from wavedsl.ir.kernel.kernel_ir import B32, F32, Value
from wavedsl.ir.layouts.bits import kind_of, number_of
from wavedsl.ir.layouts.fragment import Fragment, per_register
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.matrix_tile import ALIGN, SPANS, MatrixTile, matrix_tile
from wavedsl.ir.layouts.place import Place
from wavedsl.ir.layouts.plan_addresses import AddressPlan
from wavedsl.ir.layouts.plan_load import LoadPlan
from wavedsl.ir.layouts.shared_search import PlaceChoice, SharedAccess, access_cost
from wavedsl.ir.lower.lower_matrix import needs_zero
from wavedsl.ir.lower.lower_values import zero_beyond
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.panel_stores import ROWS as PRODUCT_ROWS
from wavedsl.ir.lower.panel_stores import PanelForm, PanelStores, product_fragment
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context, Step
from wavedsl.ir.staging.plan_reads import invariant_reads

SLOTS = 2
BESIDE_HELD = 3
"""Slots beside an operand that registers hold: a trip's stores meet at a barrier while products of the trip before
run, and some lanes have not yet waited for those before that."""
SHARE = 5 / 8
"""Part of shared memory that operands may take with so many slots each; what they are made of needs the rest."""


@dataclass
class MadeTile:
    """One operand. `groups`: per store, the elements of a lane that it moves; `ks`: dimensions that are contracted."""

    node: Node
    tile: MatrixTile
    layout: Layout
    loads: LoadPlan
    addresses: AddressPlan
    groups: tuple[tuple[int, ...], ...]
    ks: tuple[str, ...]
    offset: int = 0
    early: bool = False
    """Whether it is stored in front of its loop, which does not change it."""
    form: PanelForm | None = None
    """Of a value that lies as a product left it, two bytes an element: matrix stores move it."""

    @property
    def place(self) -> Place:
        return self.tile.place

    @property
    def name(self) -> str:
        """Of its shared buffer."""
        return f"operand %{self.node.id}"


def plan_made(low: Lowering) -> None:
    """Place every operand that is made. Raises ConstraintError where one does not fit, so that products are cut in
    another way."""
    wanted = low.inference.made_uses()
    size = sum(x.dtype.bits // 8 * prod(low.plans[str(d)].tile for d in x.dims) for x, _ in wanted)
    most = BESIDE_HELD if any(plan.held for plan in low.inference.mmas.values()) else SLOTS
    most = most if most * size <= SHARE * low.target.shared_bytes else 1
    for x, uses in wanted:
        region = low.region_of(x)
        trips = low.plans[str(region.dim)].trips if region.dim is not None else 1
        early = x in made_before(low, region, invariant_reads(low, region)) if region.dim is not None else False
        found = _plan(low, x, uses, 1 if trips == 1 or early else most)
        found.early = early
        low.room.top = -(-low.room.top // ALIGN) * ALIGN
        found.offset = low.room.top
        slots = found.place.slots
        low.room.top += found.place.bytes * slots
        low.reads.made[x.id] = found
        low.room.buffers[x.id] = found.name
        low.room.depths[found.name] = slots
        low.kernel.shared_names[found.name] = (found.offset, found.place.bytes * slots)
        low.notes.places[found.name] = str(found.place)
    low.b.matrix_reads_shared |= bool(low.reads.made)


def made_before(low: Lowering, region: Region, reads: Sequence[Node]) -> list[Node]:
    """Operands in shared memory that a loop's body makes, element by element, of nothing but `reads`, which are carried
    out in front of the loop: so are these."""
    wanted = {x.id for x, _ in low.inference.made_uses()}
    known = {n.id for n in reads}
    return [
        n for n in region.nodes
        if n.id in wanted and ROWS[n.op].index_rule == "same" and n.inputs and all(x.id in known for x in n.inputs)
    ]  # fmt: skip


def _plan(low: Lowering, x: Node, uses: Sequence[tuple[MmaPlan, bool]], slots: int) -> MadeTile:
    """The place of a computed operand's tile that every use allows, with the fewest clocks for its stores."""
    layout, plans, es = low.layout(x), low.plans, x.dtype.bits // 8
    extents = {d: plans[d].tile for d in layout.dims}
    _, digit_dims = wave_digits(layout, plans)
    exact = all(n == plans[d].wave for d, n in layout.extents)
    if not exact or len(digit_dims) < sum(plans[d].waves > 1 for d in layout.dims):
        raise ConstraintError("a computed operand of a warpgroup's product does not cover its tile exactly", x.loc)
    ks = tuple(dict.fromkeys(plan.k for plan, _ in uses))
    free = all(plan.atom.transposes for plan, _ in uses)
    access = SharedAccess("stores", "write", layout, 1, low.partition.waves, VECTOR_ATOMS)
    best: tuple[tuple[int, int], MadeTile] | None = None
    for fast in dict.fromkeys([*ks, *layout.dims] if free else ks[:1] if len(ks) == 1 else ()):
        unit = extents[fast]
        for plan, is_a in uses:
            if fast != plan.k:
                unit = gcd(unit, gcd(plans[fast].wave, plan.atom.m if is_a else plan.atom.n))
        for span in SPANS:
            try:
                tile = matrix_tile(extents, fast, es, gcd(unit, span // es), slots)
                cost = access_cost(tile.place, access, low.target.banks, low.target.phases)
                if cost is None or cost.plan is None:
                    continue
                choice = PlaceChoice(tile.place, cost.worst, cost.worst, cost.instructions, 1, (cost,))
                addresses = plan_place_addresses(choice, layout, plans)
            except (CompileError, ConstraintError):  # says why, but here it only means: look for another place
                continue
            key = (cost.worst, -tile.span)
            if best is None or key < best[0]:
                form = _matrix_stores(low, x, tile, layout)
                best = key, MadeTile(x, tile, layout, cost.plan, addresses, cost.plan.groups(layout), ks, form=form)
    if best is None:
        raise ConstraintError("a computed operand of a warpgroup's product finds no place in shared memory", x.loc)
    if low.room.top + best[1].place.bytes * slots > low.target.shared_bytes:
        problem = "a computed operand of a warpgroup's product exceeds shared memory"
        raise ConstraintError(problem, x.loc, "smaller tiles")
    return best[1]


def _matrix_stores(low: Lowering, x: Node, tile: MatrixTile, layout: Layout) -> PanelForm | None:
    """How matrix stores move a wave's share of a tile; None where they cannot, or other waves have the same share."""
    plans, along, across = low.plans, tile.fast, tile.other
    if x.dtype.bits != 16 or not product_fragment(layout, across, along) or tile.span < 32:
        return None
    rows, columns = plans[across].wave, plans[along].wave
    same = any(p.waves > 1 and d not in low.cut_along(layout.dims) for d, p in plans.items())
    if same or rows % PRODUCT_ROWS or columns * 2 % tile.span:
        return None
    return PanelForm(tile, across, along, 2, PRODUCT_ROWS, tile.width)


def store_step(low: Lowering, n: Node) -> Step:
    """The stores of a computed operand, in the trip that computes it."""
    b, made = low.b, low.reads.made[n.id]
    _, digit_dims = wave_digits(made.layout, low.plans)

    def emit(context: Context) -> None:
        value = low.value(n, context.env)
        for k in made.ks:
            if needs_zero(low, n, k):
                value = zero_beyond(low, value, k, context)
        if made.form is not None:
            _store_panels(low, made, made.form, value, low.slot_bytes(n, context))
            return
        fragments = FragmentLoads(b, made, low.wave_digit, low.plans, digit_dims)
        stores, shares = _shares(low, made.layout)
        slot = low.slot_bytes(n, context)
        per, size = per_register(n.dtype), made.loads.bytes

        def store(g: int, mask: Value) -> None:
            group = made.groups[g]
            words = []
            for first in range(0, len(group), per):
                elements = [(value.word(b, e // per), e % per) for e in group[first : first + per]]
                word = join_word(b, n.dtype, elements)
                if n.dtype is dt.tf32 and n.op != "cast":
                    word = b.round_tf32(b.bitcast(word, F32))
                words.append(word if word.type is B32 else b.bitcast(word, B32))
            data = b.vec(*words) if len(words) > 1 else words[0]
            b.store_shared(fragments.address(g, slot), data, bytes=size, mask=mask, buffer=made.name)

        if len(shares) == 1 or not _made_alone(low, n):
            for g in range(len(made.groups)):
                store(g, b.pand(stores, shares[g % len(shares)]))
            return
        for i, own in enumerate(shares):
            with b.if_(own, inside=True) as branch:
                for g in range(i, len(made.groups), len(shares)):
                    store(g, stores)
                branch.yield_()

    resources, latency = low.memory_cost("store.shared", made.loads.bytes)
    resources = tuple((unit, clocks * len(made.groups)) for unit, clocks in resources)
    return Step(f"store {made.name}", "swrite", resources, latency, low.keys(n), (), emit, made.name, n.loc)


def _made_alone(low: Lowering, n: Node) -> bool:
    """Whether nothing that an operand is made of is in another one that waves store."""
    others = [made.node for made in low.reads.made.values() if made.node is not n]
    return _made_of(n).isdisjoint(x for other in others for x in _made_of(other))


def _made_of(n: Node) -> set[int]:
    """What a value is made of, back to what is read: numbers of nodes."""
    todo, seen = [n], {n.id}
    while todo:
        more = {x.id: x for x in todo.pop().inputs if x.id not in seen}
        seen |= more.keys()
        todo += [x for x in more.values() if x.op != "read"]
    return seen


def _store_panels(low: Lowering, made: MadeTile, form: PanelForm, value: Fragment, slot: Any) -> None:
    """The stores of a wave's share of a tile by matrix stores."""
    b, plans = low.b, low.plans
    stores = PanelStores(low, form, value.layout, made.name, moving=made.place.slots > 1)
    shares = [scaled(b, low.digit(d), made.tile.offset({d: plans[d].wave})) for d in (form.across, form.along)]
    base = total(b, [slot, made.offset, *shares])
    for r in range(0, plans[form.across].wave, form.height):
        for c in range(0, plans[form.along].wave, form.width):
            stores.panel(total(b, [base, made.tile.offset({form.across: r, form.along: c})]), value, r, c)


def _shares(low: Lowering, layout: Layout) -> tuple[Value, list[Value]]:
    """(whether this lane is the one that stores, of those that have the same elements; conditions of which each holds
    in one of the waves that have them)."""
    b = low.b
    number: Any = 0
    count = 1
    own = low.cut_along(layout.dims)
    for d, digit in low.wave_digit.items():
        if low.plans[d].waves > 1 and d not in own:
            number = total(b, [b.mul(digit, count), number])
            count *= low.plans[d].waves
    columns = [layout.inner.coordinate_columns(d) for d in layout.dims]
    same = [
        number_of(x) for i, x in enumerate(layout.inner.ins) if kind_of(x) == "l" and not any(c[i] for c in columns)
    ]
    first = b.true if not same else b.cmp("eq", b.and_(b.lane(), sum(1 << i for i in same)), 0)
    return first, [b.cmp("eq", number, i) for i in range(count)] if count > 1 else [b.true]
