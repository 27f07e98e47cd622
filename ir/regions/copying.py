"""The thread that copies: how it walks the regions of a kernel, filling rings, and what others share with it.

In: a `Lowering` with rings, a region. Out: per ring of the region a fill, in the order in which the reads stand, but
for what is given back later than others: then those come first whose slots are free (`rings_behind`,
`rings_of_second_products`). Loops carry where their rings stand (`ring_states`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled
from wavedsl.ir.dataflow.graph import Node, Region, loop_bounds, region_nodes
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.kernel.open_regions import Loop
from wavedsl.ir.lower.loop_range import loop_range
from wavedsl.ir.lower.lower_async import added_to
from wavedsl.ir.lower.lower_values import emit_node
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import Ring, fill, settle
from wavedsl.ir.regions.ring_plans import ENOUGH_SLOTS, second_products
from wavedsl.ir.schedule.steps import Context, Env, Key
from wavedsl.ir.staging.lower_reads import direct_steps


def regions_inside(region: Region) -> list[Region]:
    """The regions of all loops and branches in a region, however deep."""
    return [n.attrs["body"] for n in region_nodes(region) if n.op in ("iterate", "when")]


def walked(low: Lowering) -> set[int]:
    """Nodes that a thread which only copies computes as well: those of which bounds of its loops and coordinates of its
    tiles are made."""
    work: list[Node] = []
    copied = {n.id for ring in low.reads.rings for n in ring.members}
    for n in low.graph.all_nodes():
        if n.op == "iterate" and rings_inside(low, n.attrs["body"]):
            work += [x for x in loop_bounds(n) if x is not None]
        elif n.op == "when" and rings_inside(low, n.attrs["body"]):
            work.append(n.inputs[0])
        elif n.id in copied:
            found_place, rows = placement(low.graph, n), low.reads.rows.get(n.id)
            work += rows.numbers.singles if rows is not None else []
            work += found_place.numbers() if found_place is not None else []
    found: set[int] = set()
    while work:
        x = work.pop()
        if x.id not in found:
            found.add(x.id)
            work += x.inputs
    return found


def produce(
    low: Lowering, region: Region, env: Env, iteration: Any = 0, behind: Callable[[], None] | None = None,
    but: Sequence[Ring] = (),
) -> None:  # fmt: skip
    """Fill the rings of a region's reads in their order, for one of its trips, and compute what that needs. `behind`:
    something to emit behind the first ring; `but`: rings to leave out."""
    later = {n.id: rings_behind(low, region, n) for n in region.nodes if n.op == "iterate"}
    filled: set[str] = {ring.name for rings in (*later.values(), but) for ring in rings}
    needed = walked(low)
    places = {n.id: i for i, n in enumerate(region.nodes)}
    computed = 0

    def compute(until: int) -> None:
        """What the places of tiles are made of, of the nodes of a region in front of one."""
        nonlocal computed
        for n in region.nodes[computed:until]:
            if n.id in needed:
                with low.b.loc(n.loc):
                    compute_place(low, n, Context(env, iteration, None))
        computed = max(computed, until)

    def bring(n: Node, where: Any) -> None:
        nonlocal behind
        ring = low.reads.ring_of.get(n.id)
        if ring is not None and ring.region is region and ring.name not in filled:
            filled.add(ring.name)
            compute(max((places[x.id] for x in ring.members if x.id in places), default=0))
            with low.b.loc(n.loc):
                fill(low, ring, where, env)
                ring.advance(low)
                if behind is not None:
                    behind()
                    behind = None

    for i, n in enumerate(region.nodes):
        compute(i + 1)
        if n.op == "read":
            bring(n, iteration)
        if n.op == "when" and rings_inside(low, n.attrs["body"]):
            with low.b.loc(n.loc):
                _produce_if(low, n, env)
        if n.op != "iterate":
            continue
        body: Region = n.attrs["body"]
        inner = rings_inside(low, body)
        for x in body.nodes:
            bring(x, iteration)
        if inner:
            with low.b.loc(n.loc):
                _produce_loop(low, n, inner, env, iteration, later[n.id])


def _produce_if(low: Lowering, n: Node, env: Env) -> None:
    """Fill the rings of a branch, where it is taken."""
    b, body = low.b, n.attrs["body"]
    flag = low.value(n.inputs[0], env).element(b, 0)
    if not b.one_thread:
        flag = b.any_lane(flag, workgroup=True)
    elif flag.const is None:  # nobody else can be asked, nor has to be
        flag = b.cmp("ne", b.readfirst(b.select(flag, 1, 0), same=True), 0)

    def fill_all() -> list[Value]:
        produce(low, body, env)
        return []

    in_branch(low, flag, body, (), fill_all)


def in_branch(
    low: Lowering, flag: Value, region: Region, carried: Sequence[Value], play: Callable[[], list[Value]], **how: Any
) -> list[Value]:
    """What `play` leaves for what is carried, where a region that is no loop is carried out at all; its rings stand
    where they stood where it is not."""
    b, rings = low.b, rings_inside(low, region) if low.matrix.strategy.bulk else []
    if flag.const is not None:
        return play() if flag.const else list(carried)
    before = ring_states(rings)
    with b.if_(flag, **how) as branch:
        results = play()
        branch.yield_([*results, *_values(low, ring_states(rings))])
    if carried or rings:
        with branch.orelse():
            branch.yield_([*carried, *_values(low, before)])
    set_states(rings, branch.results[len(carried) :])
    return list(branch.results[: len(carried)])


def _values(low: Lowering, states: Sequence[Any]) -> list[Value]:
    return [low.b.i32(x) if isinstance(x, int) else x for x in states]


def rings_behind(low: Lowering, region: Region, n: Node) -> list[Ring]:
    """Rings of a region, each with one slot that the tile before may still have, which the loop `n` alone reads: they
    are filled behind the first ring of its first trip, whose slots are free by then."""
    body: Region = n.attrs["body"]
    if low.notes.order is None or not low.matrix.strategy.specialize or region.dim is not None:
        return []
    own = own_rings(low, body)
    if low.plans[str(body.dim)].trips == 1 or not any(low.reads.ring_of.get(x.id) in own for x in body.nodes):
        return []
    inside, users = {x.id for x in region_nodes(body)}, low.users()
    alone = [ring for ring in own_rings(low, region) if ring.slots == 1]
    return [ring for ring in alone if all(u.id in inside for x in ring.members for u in users.get(x.id, ()))]


def own_rings(low: Lowering, region: Region) -> list[Ring]:
    """Rings of which every run of a region, or trip of its loop, uses one slot."""
    return [ring for ring in low.reads.rings if ring.region is region]


def compute_place(low: Lowering, n: Node, context: Context) -> None:
    """A node that coordinates or bounds are made of, in the thread that copies."""
    if n.op != "read":
        emit_node(low, n, context)
        return
    for step in direct_steps(low, n):
        step.emit(context)


def rings_inside(low: Lowering, region: Region) -> list[Ring]:
    """Rings that a region uses per trip, those of the loops inside it included."""
    regions = [region, *regions_inside(region)]
    return [ring for ring in low.reads.rings if any(ring.region is r for r in regions)]


def _produce_loop(
    low: Lowering, n: Node, inner: Sequence[Ring], env: Env, iteration: Any, later: Sequence[Ring]
) -> None:
    """Fill the rings of a loop, and `later` ones of the region around it behind the first of these."""
    b, body = low.b, n.attrs["body"]
    first, trips = loop_range(low, n, str(body.dim), env)
    outer = low.loop_dim, low.base

    def fill_later() -> None:
        inside, (low.loop_dim, low.base) = (low.loop_dim, low.base), outer
        for ring in later:
            fill(low, ring, iteration, env)
        low.loop_dim, low.base = inside

    def fill_later_if(exists: Value) -> None:
        if later:
            with b.if_(exists) as branch:
                fill_later()
                branch.yield_()

    if isinstance(trips, int) and trips <= 1:
        for ring in later:
            fill(low, ring, iteration, env)
            ring.advance(low)
        later = ()
    with entered(low, body, iteration, first):
        for ring in own_rings(low, body):
            settle(low, ring, env)
        if isinstance(trips, int) and trips <= 1:
            if trips:
                produce(low, body, env, 0)
            return
        slow = rings_of_second_products(low, body)
        if slow:
            first_ones = [ring for ring in inner if ring not in slow]

            def staggered() -> list[Value]:
                produce(low, body, env, 0, fill_later, slow)
                last = trips - 1 if isinstance(trips, int) else b.sub(trips, 1)
                with _copies(low, body, last, inner) as loop:
                    produce(low, body, env, b.add(loop.iv, 1), None, slow)
                    produce(low, body, env, loop.iv, None, first_ones)
                produce(low, body, env, last, None, first_ones)
                return []

            unless_empty(low, body, trips, (), staggered)
        else:
            with _copies(low, body, trips, inner) as loop:
                produce(low, body, env, loop.iv, lambda: fill_later_if(b.cmp("eq", loop.iv, 0)))
    if not isinstance(trips, int):
        fill_later_if(b.cmp("sle", trips, 0))
    for ring in later:
        ring.advance(low)


@contextmanager
def _copies(low: Lowering, body: Region, trips: Any, rings: Sequence[Ring]) -> Iterator[Loop]:
    """A loop of the thread that copies, which carries where it stands in rings."""
    least = 1 if isinstance(trips, int) else 0
    states, label = ring_states(rings), f"copy_{body.dim}"
    with low.noted_loop(f"{body.dim}"), low.b.for_(0, trips, 1, states, label=label, min_trips=least) as loop:
        set_states(rings, loop.carried)
        yield loop
        loop.yield_(ring_states(rings))
    set_states(rings, loop.results)


def rings_of_second_products(low: Lowering, body: Region) -> list[Ring]:
    """Rings of a loop that only products read which need another product of their trip, where slots are few: they are
    given back later than the others, which are therefore filled a trip ahead (K of the next block before V of this
    one). The others must be given back in their own trip whatever of these is there: only lanes, or products whose
    results the trip uses, may read them."""
    rings = own_rings(low, body)
    if not rings or min(ring.slots for ring in rings) < 2 or min(ring.slots for ring in rings) > ENOUGH_SLOTS:
        return []
    needed = walked(low)
    if any(n.op == "iterate" or n.id in needed for n in body.nodes):
        return []
    inside, users, made_of = {n.id for n in body.nodes}, low.users(), second_products(body)

    def readers(ring: Ring) -> list[Node]:
        return [u for n in ring.members for u in users.get(n.id, ())]

    def used(n: Node) -> bool:
        """Whether the trip waits for a reader: not for a product that only others of it go on adding to."""
        while (after := added_to(low, n)) is not None and after.id in inside:
            n = after
        return n.op != "mma" or any(u.id in inside for u in users.get(n.id, ()))

    second = [ring for ring in rings if all(u.op == "mma" and made_of.get(u.id, False) for u in readers(ring))]
    others = [ring for ring in rings if ring not in second]
    return second if others and all(used(u) for ring in others for u in readers(ring)) else []


class entered:
    """Inside, positions are those of a loop over `body`'s dimension, from tile `first` on."""

    def __init__(self, low: Lowering, body: Region, iteration: Any, first: Any):
        self.low, self.body, self.iteration, self.first = low, body, iteration, first

    def __enter__(self) -> None:
        low = self.low
        self.dim, self.base = low.loop_dim, dict(low.base)
        if low.loop_dim is not None:
            low.base[low.loop_dim] = low.trip_base(low.loop_dim, self.iteration)
        low.loop_dim = str(self.body.dim)
        low.first[low.loop_dim] = scaled(low.b, self.first, low.plans[low.loop_dim].tile)

    def __exit__(self, *error: Any) -> None:
        del self.low.first[str(self.body.dim)]
        self.low.loop_dim, self.low.base = self.dim, self.base


def ring_states(rings: Sequence[Ring]) -> list[Any]:
    """Slots and parities, for a loop to carry."""
    return [x for ring in rings for x in ((ring.slot, ring.parity) if ring.slots > 1 else (ring.parity,))]


def set_states(rings: Sequence[Ring], values: Sequence[Value]) -> None:
    """What `ring_states` gave, as a loop hands it on."""
    rest = iter(values)
    for ring in rings:
        if ring.slots > 1:
            ring.slot = next(rest)
        ring.parity = next(rest)
        ring.waited = False


def unless_empty(
    low: Lowering, region: Region, trips: Any, carried: Sequence[tuple[Key, Value]], play: Callable[[], list[Value]],
    otherwise: Callable[[], Any] | None = None,
) -> list[Value]:  # fmt: skip
    """What `play` leaves in a loop's carried values, for loops that must have a trip: one that may have none is skipped
    whole, its rings stay where they are, and `otherwise` is done."""
    if isinstance(trips, int):
        return play()
    b, rings = low.b, rings_inside(low, region)
    before = ring_states(rings)
    with b.if_(b.cmp("sgt", trips, 0)) as branch:
        results = play()
        branch.yield_([*results, *_values(low, ring_states(rings))])
    with branch.orelse():
        if otherwise is not None:
            otherwise()
        branch.yield_([*(v for _, v in carried), *before])
    set_states(rings, branch.results[len(carried) :])
    return list(branch.results[: len(carried)])
