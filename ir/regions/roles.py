"""Kernels whose operands come by bulk copies: rings, tensor maps, and who does what.

In: a `Lowering` and its `Strategy`. The reads that matrix instructions take from shared memory are gathered in rings.
With a copying warpgroup the kernel's body is written twice: one thread of that warpgroup walks the regions and fills
the rings, all other waves walk them as if the rings were full. Without it one thread of the first wave fills a slot
as soon as it has been given back (`ring_loops`).

Rings are filled in the order in which the reads stand, but for what is given back later than others: then those come
first whose slots are free (`rings_behind`, `rings_of_second_products`).

Invariants: both walks meet each ring as often, so slots and parities agree. No slot that the copying thread waits for
is given back only behind a read of what that thread fills later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from wavedsl.ir.addresses.access import scaled
from wavedsl.ir.dataflow.graph import Node, Region, loop_bounds, region_nodes
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.grid.tile_order import count_tiles, tile_numbers
from wavedsl.ir.grid.uneven_tiles import dealt
from wavedsl.ir.kernel.builder import FIRST_WAVE_BARRIER
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.kernel.open_regions import Loop
from wavedsl.ir.lower.bulk_store import finish
from wavedsl.ir.lower.loop_range import loop_range
from wavedsl.ir.lower.lower_values import emit_node
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import Ring, fill, initialise
from wavedsl.ir.lower.workgroup_tiles import set_coordinates, tile_counts
from wavedsl.ir.regions.ring_plans import ENOUGH_SLOTS, ring_buffers, second_products
from wavedsl.ir.schedule.steps import Context, Env, Key
from wavedsl.ir.staging.lower_reads import direct_steps
from wavedsl.ir.staging.strategy import Strategy


def run(low: Lowering, strategy: Strategy, compute: Callable[[], None]) -> None:
    """Emit the kernel: barriers, then the roles. `compute` emits what is not copying."""
    b, waves = low.b, low.partition.waves * strategy.teams
    rings = low.rings
    initialise(low, rings)
    begin(low)
    if not strategy.specialize:
        each_tile(low, rings, compute)
        finish(low)
        return
    low.role = "copying warpgroup"
    with b.if_(b.cmp("eq", b.wave(), waves)) as role:
        if strategy.registers[0]:
            b.registers(strategy.registers[0], more=False)
        with b.if_(b.elect()) as one:
            b.one_thread = True
            each_tile(low, rings, lambda: produce(low, low.graph.region, Env()), copying=True)
            release(low)
            b.one_thread = False
            one.yield_()
        role.yield_()
    low.role = "computing warpgroups"
    for ring in rings:
        ring.slot = ring.parity = 0
    with role.orelse():
        if strategy.registers[1]:
            b.registers(strategy.registers[1], more=True)
        if strategy.teams == 1:
            b.role_barrier = {"id": 1, "threads": waves * low.target.wave_size}
        else:
            b.role_barrier = {"id": FIRST_WAVE_BARRIER, "threads": low.target.wave_size, "per_wave": True}
        each_tile(low, rings, compute, strategy.teams)
        finish(low)
        b.role_barrier = {}
        role.yield_()
    if low.kernel.cluster > 1:
        b.cluster_barrier()  # shared memory that others still write to or arrive in must live until they are done


def begin(low: Lowering) -> None:
    """Where the launch may begin early, wait for the one in front: nothing before this touches global memory."""
    if low.choices.dependent:
        low.b.grid_wait()
        low.note("wait for the launch in front")


def release(low: Lowering) -> None:
    """Where launches may overlap, let the next one begin: what follows is computing and storing results."""
    if low.choices.dependent:
        low.b.grid_release()
        low.note("let the next launch begin")


def release_behind(low: Lowering, following: Value, numbers: Any) -> None:
    """Let the next launch begin if this is the workgroup's last tile."""
    with low.b.if_(low.b.cmp("sge", following, numbers)) as branch:
        release(low)
        branch.yield_()


def each_tile(
    low: Lowering, rings: Sequence[Ring], body: Callable[[], None], teams: int = 1, copying: bool = False
) -> None:
    """`body` for the workgroup's output tile, or for each of them in turn, or for each that is this team's: a team goes
    past the slots that the others use. `copying`: what is emitted fills rings and shares no other buffer."""
    b, order = low.b, low.notes.order
    if order is None:
        if not low.strategy.specialize and low.choices.dependent:
            low.behind_loads = partial(release, low)
        body()
        return
    counts = tile_counts(low)
    moving = [*rings, *low.fillers(rings)]
    # The launch may hold fewer workgroups than the order foresees: fewer compute units.
    first: Any = b.udiv(b.wgid(0), order.cluster.count)
    place = order.cluster.place(b)
    numbers = count_tiles(b, order, counts)
    step = b.udiv(b.wgcount(0), order.cluster.count)
    if step.lo == 0:
        step = b.max_s(step, 1)
    earliest, single = first, step
    if teams > 1:
        team = b.wave()
        first, step = b.add(first, b.mul(step, team)), b.mul(step, teams)
        for ring in rings:
            ring.skip(low, scaled(b, uses(low, ring), team))
    with low.noted_loop("tiles"), b.for_(first, numbers, step, ring_states(moving), label="tile") as loop:
        set_states(moving, loop.carried)
        number = loop.iv
        if order.uneven is not None:
            number = dealt(b, number, earliest, single, numbers, order.uneven.back)
        set_coordinates(low, tile_numbers(b, order, number, counts, place))
        if teams > 1:
            take_turns(low, loop.iv, earliest, b.add(loop.iv, single), numbers)
        if not low.strategy.specialize and low.choices.dependent:
            low.behind_loads = partial(release_behind, low, b.add(loop.iv, single), numbers)
        body()
        low.give_turn = None
        others = (name for name in low.kernel.shared_names if not name.startswith("barriers"))
        if not copying and any(name not in ring_buffers(low) for name in others):
            b.barrier()  # the next tile writes to buffers that others may still read
        for ring in rings if teams > 1 else ():
            ring.skip(low, scaled(b, uses(low, ring), teams - 1))
        loop.yield_(ring_states(moving))


def take_turns(low: Lowering, tile: Value, earliest: Any, following: Value, numbers: Any) -> None:
    """Teams use rings one tile at a time: parity tells a slot's phase from the one before only. The first tile of a
    workgroup waits for nobody; the turn goes to the next tile's team, if there is one, when the rings are read."""
    b = low.b
    with b.if_(b.cmp("ne", tile, earliest)) as branch:
        b.turn_take()
        branch.yield_()
    low.note("take the turn")

    def give() -> None:
        with b.if_(b.cmp("slt", following, numbers)) as branch:
            b.turn_give()
            branch.yield_()
        low.note("give the turn to the other")

    low.give_turn = give


def uses(low: Lowering, ring: Ring) -> Any:
    """Slots of a ring that one output tile uses."""
    around = [
        n.attrs["body"].dim
        for n in low.graph.all_nodes()
        if n.op == "iterate" and any(r is ring.region for r in (n.attrs["body"], *_inside(n.attrs["body"])))
    ]
    count: Any = 1
    for d in around:
        count = scaled(low.b, count, low.trip_count(str(d)))
    return count


def _inside(region: Region) -> list[Region]:
    return [n.attrs["body"] for n in region_nodes(region) if n.op == "iterate"]


def walked(low: Lowering) -> set[int]:
    """Nodes that a thread which only copies computes as well: those of which bounds of its loops and coordinates of its
    tiles are made."""
    work: list[Node] = []
    copied = {n.id for ring in low.rings for n in ring.members}
    for n in low.graph.all_nodes():
        if n.op == "iterate" and rings_inside(low, n.attrs["body"]):
            work += [x for x in loop_bounds(n) if x is not None]
        elif n.id in copied:
            found_place = placement(low.graph, n)
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

    def bring(n: Node, where: Any) -> None:
        nonlocal behind
        ring = low.ring_of.get(n.id)
        if ring is not None and ring.region is region and ring.name not in filled:
            filled.add(ring.name)
            with low.b.loc(n.loc):
                fill(low, ring, where, env)
                ring.advance(low)
                if behind is not None:
                    behind()
                    behind = None

    for n in region.nodes:
        if n.id in needed:
            with low.b.loc(n.loc):
                _compute(low, n, Context(env, iteration, None))
        if n.op == "read":
            bring(n, iteration)
        if n.op != "iterate":
            continue
        body: Region = n.attrs["body"]
        inner = rings_inside(low, body)
        for x in body.nodes:
            bring(x, iteration)
        if inner:
            with low.b.loc(n.loc):
                _produce_loop(low, n, inner, env, iteration, later[n.id])


def rings_behind(low: Lowering, region: Region, n: Node) -> list[Ring]:
    """Rings of a region, each with one slot that the tile before may still have, which the loop `n` alone reads: they
    are filled behind the first ring of its first trip, whose slots are free by then."""
    body: Region = n.attrs["body"]
    if low.notes.order is None or not low.strategy.specialize or region.dim is not None:
        return []
    if low.plans[str(body.dim)].trips == 1 or not any(low.ring_of.get(x.id) in _own(low, body) for x in body.nodes):
        return []
    inside, users = {x.id for x in region_nodes(body)}, low.users()
    alone = [ring for ring in _own(low, region) if ring.slots == 1]
    return [ring for ring in alone if all(u.id in inside for x in ring.members for u in users.get(x.id, ()))]


def _own(low: Lowering, region: Region) -> list[Ring]:
    return [ring for ring in low.rings if ring.region is region]


def _compute(low: Lowering, n: Node, context: Context) -> None:
    """A node that coordinates or bounds are made of, in the thread that copies."""
    if n.op != "read":
        emit_node(low, n, context)
        return
    for step in direct_steps(low, n):
        step.emit(context)


def rings_inside(low: Lowering, region: Region) -> list[Ring]:
    """Rings that a region uses per trip, those of the loops inside it included."""
    regions = [region, *_inside(region)]
    return [ring for ring in low.rings if any(ring.region is r for r in regions)]


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
    rings = _own(low, body)
    if not rings or min(ring.slots for ring in rings) < 2 or min(ring.slots for ring in rings) > ENOUGH_SLOTS:
        return []
    needed = walked(low)
    if any(n.op == "iterate" or n.id in needed for n in body.nodes):
        return []
    inside, users, made_of = {n.id for n in body.nodes}, low.users(), second_products(body)

    def readers(ring: Ring) -> list[Node]:
        return [u for n in ring.members for u in users.get(n.id, ())]

    def used(n: Node) -> bool:
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
        branch.yield_([*results, *(b.i32(x) if isinstance(x, int) else x for x in ring_states(rings))])
    with branch.orelse():
        if otherwise is not None:
            otherwise()
        branch.yield_([*(v for _, v in carried), *before])
    set_states(rings, branch.results[len(carried) :])
    return list(branch.results[: len(carried)])
