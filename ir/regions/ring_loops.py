"""Loops over tiles that rings bring: products run beside the rest of the loop and give slots back when they are done.

In: the steps of a loop's body in program order. The idea: a product whose result only the next trip's product needs
is not waited for in its own trip. It is waited for once the next trip's products have been started, so that the matrix
unit never idles; only then is its slot given back. Any other product is waited for right before the first step that
uses its result, or reads the registers that it reads. Groups of products end in order, so a wait is a number of
younger groups that may still run.
Where a product needs another of its trip, the loop has two stages (`product_stages`): products of neighbouring trips
run together.

Invariants: when a slot is given back every product that reads it has ended; when the loop is left, all have. Only
other products touch registers that a running one reads or adds to: reading them, too, is undefined (PTX ISA,
wgmma.wait_group).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from wavedsl.ir.dataflow.graph import REGIONS, Node, Region, ValueType, region_nodes
from wavedsl.ir.kernel.builder import MOST_TURNS
from wavedsl.ir.kernel.kernel_ir import PRED, Value
from wavedsl.ir.kernel.same_registers import arguments, same_values
from wavedsl.ir.layouts.fragment import Fragment, from_words, register_count
from wavedsl.ir.lower.lower_async import added_to
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.product_stages import OTHERS, TripStages, in_both, reads_ring, register_room, trip_stages
from wavedsl.ir.lower.rings import Ring, fill, one_thread, release, wait_full
from wavedsl.ir.regions.copying import rings_inside
from wavedsl.ir.regions.emit_loop import synchronise
from wavedsl.ir.regions.loop_frame import LoopFrame
from wavedsl.ir.regions.operands_ahead import OperandsAhead, emit_ahead, operands_ahead
from wavedsl.ir.regions.own_trips import apart
from wavedsl.ir.regions.product_pieces import Pieces, emit_pieces, product_pieces
from wavedsl.ir.regions.straight_ahead import straight_ahead
from wavedsl.ir.schedule.steps import BodySchedule, Context, Env, Key, StageContext, Step


def postponable(low: Lowering, region: Region, n: Node) -> bool:
    """Whether a product of a loop may still run when its trip ends: nothing in the trip uses its result, its slots have
    successors, and what it reads from registers is not made anew before it is waited for."""
    users = [u for u in low.users().get(n.id, ()) if u in region.nodes]
    if users and (added_to(low, n) is None or not postponable(low, region, users[0])):
        return False
    plan = low.inference.mmas[n.id]
    for x, shared, made in zip(plan.ports, plan.in_shared, plan.made):
        if made:
            if low.room.depths[low.room.buffers[x.id]] < 2 and not low.reads.made[x.id].early:
                return False
            continue  # its slot is written again a trip later than the barrier before which it is waited for
        ring = low.reads.ring_of.get(x.id)
        if shared and (ring is None or (ring.region is region and ring.slots < 2)):
            return False
    return plan.a_shared or _follows_product(low, region, plan.ports[0])


def crowded(low: Lowering, region: Region) -> bool:
    """Whether a loop's values fill the registers of its warpgroups: what it carries, the results of its other products,
    and what products read from registers and the loop makes. Then no product runs on in the next trip, and what lanes
    read of rings they read behind the products that it is computed with (dK, dV and dQ of head size 128: 256 of 240
    registers; ptxas 13 spills, or lets products wait for each other). Of more than two warpgroups one has so few that
    those kept for addresses matter: attention with 142 of 160 or 98 of 112 registers in values has no products in
    flight by ptxas 13 (C7512), with 138 or 90 it has."""
    started = [n for n in asynchronous(low, region) if added_to(low, n) is None]
    values = [x for x in (*region.carries, *started) if isinstance(x.type, ValueType)]
    carried = {x.id for x in region.yields}
    held = {x.id: x for x in values if x.id not in carried}
    for n in asynchronous(low, region):
        plan = low.inference.mmas[n.id]
        if not plan.a_shared:
            held[plan.ports[0].id] = plan.ports[0]
    room = register_room(low)
    if low.partition.waves * low.matrix.strategy.teams > 2:
        room -= room // OTHERS + 1
    return sum(register_count(low.layout(x), x.dtype) for x in held.values()) > room


def _follows_product(low: Lowering, region: Region, x: Node) -> bool:
    """Whether a value is made of the result of an asynchronous product of the same trip."""
    work, seen = [x], {x.id}
    while work:
        for y in work.pop().inputs:
            if y.op == "mma" and y in region.nodes and low.inference.mmas[y.id].atom.asynchronous:
                return True
            if y in region.nodes and y.id not in seen:
                seen.add(y.id)
                work.append(y)
    return False


def asynchronous(low: Lowering, region: Region) -> list[Node]:
    """The products of a region that run beside what follows them."""
    return [n for n in region.nodes if n.op == "mma" and low.inference.mmas[n.id].atom.asynchronous]


class Products:
    """The asynchronous products of one trip that have been started and not waited for, oldest first.

    `postponed`: products that the last trip left running, if there was a last trip (`again`). `mine`: those that this
    trip starts, where that is not all of the region's. `operands`: by product, keys of values that a later step of this
    trip makes anew and that it reads from registers while it runs. `crossing`: rings that both stages of a loop read →
    the slot of the second; products of the `first` stage give none of them back.
    """

    def __init__(
        self, low: Lowering, region: Region, postponed: Sequence[Node], again: Value | None,
        mine: Sequence[Node] | None = None, operands: Mapping[int, frozenset[Key]] | None = None,
        crossing: Mapping[Ring, Any] | None = None, first: Sequence[Node] = (),
    ):  # fmt: skip
        self.low, self.region, self.postponed, self.again = low, region, postponed, again
        self.crossing, self.first = crossing or {}, first
        self.operands = operands or {}
        self.old = bool(postponed) and again is not None
        self.new: list[Node] = []
        mine = asynchronous(low, region) if mine is None else mine
        self.left = {n.id for n in mine}
        """Products that this trip has still to start."""
        self.late: list[Ring] = []
        """Rings whose slots are given back a trip later."""
        for n in postponed:
            self.late += [ring for ring in self.rings(n) if ring not in self.late]
        self.given_back: list[Ring] = []
        self.read: dict[int, set[Value]] = {}
        """By product of this trip, the values that it reads from registers while it runs."""
        self.carried: set[Key] = set()
        for carry, last in zip(region.carries, region.yields):
            if last in postponed:
                self.carried |= set(low.keys(carry))

    def rings(self, n: Node) -> list[Ring]:
        """Rings of this loop that a product reads and gives back."""
        found = rings_read(self.low, self.region, n)
        return [ring for ring in found if n not in self.first or ring not in self.crossing]

    def before(self, step: Step) -> None:
        """Wait for the products whose results a step needs. A product may add to what another is still adding to."""
        if step.kind == "yield":
            return
        low = self.low
        if self.old and step.node is not None and step.node.id in low.matrix.started_early:
            self.wait(len(self.new))  # its result takes the registers that they have read
        adds = low.keys(step.node.inputs[2]) if step.node is not None and len(step.node.inputs) > 2 else ()
        uses = [k for k in step.uses if k not in adds]
        if self.old and self.carried.intersection(uses):
            self.wait(len(self.new))
        needed = [
            i
            for i, n in enumerate(self.new)
            if set(low.keys(n)).intersection(uses) or self.operands.get(n.id, frozenset()).intersection(step.defs)
        ]
        if needed:
            self.wait(len(self.new) - 1 - max(needed))

    def emit(self, step: Step, context: Context) -> None:
        """A step that `before` has been called for. What it reads is known once it is there: where that is registers of
        a running product, it is put behind a wait."""
        b = self.low.b
        at = b.here()
        step.emit(context)
        if step.node is not None or not self.new:
            return  # a product may read what another is reading
        ops = b.cut(at)
        used = same_values(arguments(ops)) if any(self.read[n.id] for n in self.new) else set()
        needed = [i for i, n in enumerate(self.new) if not used.isdisjoint(self.read[n.id])]
        if needed:
            self.wait(len(self.new) - 1 - max(needed))
        b.place(ops)

    def started(self, n: Node, operands: Iterable[Value] = ()) -> None:
        """A product has been started, which reads `operands` from registers; with the last of the trip those of the
        trip before are waited for."""
        self.low.note(f"start product %{n.id}")
        self.new.append(n)
        self.read[n.id] = same_values(operands)
        self.left.discard(n.id)
        if not self.left and self.old:
            self.wait(len(self.new))

    def wait(self, pending: int) -> None:
        """Wait until at most `pending` products run, and give back what the others have read."""
        low = self.low
        low.note(f"wait until at most {pending} products run")
        low.b.mma_wait(pending)
        if self.old:
            self.old = False
            for ring in self.late:
                release(low, ring, ring.before(low), self.again)
        done, self.new = self.new[: len(self.new) - pending], self.new[len(self.new) - pending :]
        busy = [r for n in self.region.nodes if n.id in self.left or n in self.new for r in self.rings(n)]
        self.give_back(ring for n in done for ring in self.rings(n) if ring not in busy)

    def meet(self) -> None:
        """Before waves meet: what they may overwrite behind the barrier has been read."""
        if self.old and any(any(self.low.inference.mmas[n.id].made) for n in self.postponed):
            self.wait(len(self.new))

    def end(self, mine: Sequence[Ring]) -> None:
        """End of the trip: wait for what may not run on, give back what nobody has."""
        stay = [i for i, n in enumerate(self.new) if n not in self.postponed]
        if stay:
            self.wait(len(self.new) - 1 - max(stay))
        self.give_back(mine)

    def give_back(self, rings: Iterable[Ring]) -> None:
        """Slots that nothing in this run of the region reads any more, those that nobody has given back, together."""
        met = False
        for ring in rings:
            if ring not in self.late and ring not in self.given_back:
                self.given_back.append(ring)
                met = release(self.low, ring, self.crossing.get(ring), met=met) or met


def rings_read(low: Lowering, region: Region, n: Node) -> list[Ring]:
    """Rings of a loop that a product reads."""
    plan = low.inference.mmas[n.id]
    found = [low.reads.ring_of[x.id] for x, brought in zip(plan.ports, plan.brought) if brought]
    return [ring for i, ring in enumerate(found) if ring.region is region and ring not in found[:i]]


def emit_ring_loop(frame: LoopFrame, body: BodySchedule) -> list[Value]:
    """A loop whose operands come by rings. Returns the final values of what it carries."""
    low, region, steps, trips = frame.low, frame.region, frame.steps, frame.trips
    rings = rings_inside(low, region)
    mine = [ring for ring in rings if ring.region is region]
    wait_for_brought(low, region)
    if isinstance(trips, int) and trips == 1:
        inner = frame.env_with(frame.carried)
        _trip(frame, body, inner, 0, mine)
        inner.iteration = 0
        return [inner[k] for k in frame.next_keys]
    cut = product_pieces(low, region, body, steps) if frame.own is None else ""
    if isinstance(cut, Pieces):
        low.matrix.strategy.why.setdefault("operands", cut.why)
        return emit_pieces(frame, cut)
    if cut:
        low.matrix.strategy.why.setdefault("operands", cut)
    stages = trip_stages(low, region, body, steps, trips, frame.after)
    in_turn = isinstance(stages, TripStages) and takes_turns(low, steps, stages)
    if frame.own is None or body.barriers or len(mine) < len(rings):
        return _trips(frame, body, rings, stages)
    return apart(frame, frame.own, in_turn, lambda own: _trips(own, body, rings, stages))


def _trips(frame: LoopFrame, body: BodySchedule, rings: Sequence[Ring], stages: TripStages | str) -> list[Value]:
    """The trips of a loop, more than one or of a number that is known when it runs: in two stages, with register
    operands made ahead, or one by one."""
    low, region, steps = frame.low, frame.region, frame.steps
    if isinstance(stages, TripStages):
        low.matrix.strategy.why.setdefault("products", stages.why)
        low.matrix.strategy.overlapped = True
        done = _done_behind_first(frame, stages)

        def give_back() -> None:
            for ring in done:
                release(low, ring)

        results = frame.unless_empty(lambda: _staged_trips(frame, stages, done), give_back)
        if done:
            low.matrix.running.given_back += done
        return results
    if stages:
        low.matrix.strategy.why.setdefault("products", stages)
    ahead_of = operands_ahead(low, region, body, steps, frame.after) if not stages else ""
    if isinstance(ahead_of, OperandsAhead):
        low.matrix.strategy.why.setdefault("operands", ahead_of.why)
        low.matrix.strategy.ahead = True
        return emit_ahead(frame, ahead_of)
    if ahead_of:
        low.matrix.strategy.why.setdefault("operands", ahead_of)
    return _whole_trips(straight_ahead(frame, body), body, rings)[: len(frame.carried)]


def _whole_trips(frame: LoopFrame, body: BodySchedule, rings: Sequence[Ring]) -> list[Value]:
    """A loop whose trips are emitted one by one; products may run on into the next. `rings` of it and inside it."""
    low, region, trips = frame.low, frame.region, frame.trips
    b = low.b
    mine = [ring for ring in rings if ring.region is region]
    postponed = [] if crowded(low, region) else [n for n in asynchronous(low, region) if postponable(low, region, n)]
    ahead = 0
    if not low.matrix.strategy.specialize:
        ahead = min((ring.slots for ring in mine), default=1) - 1
        for j in range(ahead):
            refill(low, mine, j, trips, frame.env)
    inits = [v for _, v in frame.carried]
    moving = [*rings, *low.fillers(rings)]
    with frame.loop(trips, inits, moving) as loop:
        inner = frame.inside(loop.carried)
        _trip(frame, body, inner, loop.iv, mine, postponed, b.cmp("ne", loop.iv, 0), ahead)
        inner.iteration = 0
        frame.again(loop, [inner[k] for k in frame.next_keys], moving)
    for ring, filler in zip(rings, low.fillers(rings)):
        filler.slot, filler.parity = ring.slot, ring.parity
    if postponed:
        low.note("wait until no product runs")
        b.mma_wait(0)
        some = None if isinstance(trips, int) else b.cmp("sgt", trips, 0)
        for ring in Products(low, region, postponed, None).late:
            release(low, ring, ring.before(low), some)
    return list(loop.results[: len(inits)])


def wait_for_brought(low: Lowering, region: Region) -> None:
    """In front of a loop or a branch, wait for the tiles of regions around it that its products read: it may have no
    trip, or not be taken, and what has been started must be waited for before its slot is given back."""
    regions = [region, *(n.attrs["body"] for n in region_nodes(region) if n.op in REGIONS)]
    products = [n for r in regions for n in asynchronous(low, r)]
    ports = [x.id for n in products for x in low.inference.mmas[n.id].ports]
    read = {id(low.reads.ring_of[x]) for x in ports if x in low.reads.ring_of}
    for ring in low.reads.rings:
        if id(ring) in read and all(ring.region is not r for r in regions):
            wait_full(low, ring)


def _done_in_loops(low: Lowering, region: Region) -> list[Ring]:
    """Rings of a region that is no loop whose slot the next tile waits for and whose tiles only loops in it read: they
    give it back as soon as the last of them has been left, before results are stored."""
    if region.dim is not None or low.notes.order is None or not low.matrix.strategy.specialize:
        return []
    inside = {x.id for n in region.nodes if n.op == "iterate" for x in region_nodes(n.attrs["body"])}
    users = low.users()
    waited = [ring for ring in low.reads.rings if ring.region is region and ring.slots == 1]
    return [ring for ring in waited if all(u.id in inside for n in ring.members for u in users.get(n.id, ()))]


def _done_behind_first(frame: LoopFrame, stages: TripStages) -> list[Ring]:
    """Of these the ones that only products of a loop's first stage read: the second stage of the last iteration need
    not have run."""
    low = frame.low
    if low.matrix.running is None:
        return []
    around = low.matrix.running.region
    first = {frame.steps[i].node.id for i in stages.first if frame.steps[i].node is not None}
    users = low.users()
    rings = [ring for ring in _done_in_loops(low, around) if ring not in low.matrix.running.given_back]
    return [ring for ring in rings if all(u.id in first for n in ring.members for u in users.get(n.id, ()))]


def _staged_trips(frame: LoopFrame, stages: TripStages, done: Sequence[Ring]) -> list[Value]:
    """A loop of two stages: the first stage of the first iteration, trips that run the second stage of one iteration
    beside the first of the next, the second stage of the last. There is a first iteration. `done`: rings of the region
    around it that nobody reads behind the last first stage."""
    low, region, steps, carried, after = frame.low, frame.region, frame.steps, frame.carried, frame.after
    b = low.b
    rings = rings_inside(low, region)
    run = _StagedTrip(low, region, steps, stages)
    ahead = [(k, v) for k, v in carried if k not in stages.later]
    behind = [(k, v) for k, v in carried if k in stages.later]

    def crossing(one: Env) -> list[list[Value]]:
        """The registers of what the second stage needs, key by key."""
        return [_registers(low, one[k]) for k in stages.crossing]

    low.note(f"before the loop over {region.dim}: the first stage of its first iteration")
    one = frame.env_with(ahead)
    run(one, 0, None, 0)
    like = [one[k] for k in stages.crossing]
    sizes = [len(words) for words in crossing(one)]

    def second(ends: Sequence[Value], words: Sequence[Value]) -> Env:
        """What the second stage of an iteration starts from."""
        two = frame.env_with((k, v) for (k, _), v in zip(behind, ends))
        at = 0
        for key, size, old in zip(stages.crossing, sizes, like):
            two.fixed[key] = _restored(low, words[at : at + size], old)
            at += size
        return two

    inits = [
        *(one[after[k]] for k, _ in ahead), *(v for _, v in behind), *(w for words in crossing(one) for w in words)
    ]  # fmt: skip
    last = frame.last
    run.turns, waves = takes_turns(low, steps, stages), low.partition.waves
    if run.turns:
        low.matrix.strategy.turns = True
        _in_wave(low, waves - 1, partial(b.turn_give, waves))
    with frame.loop(last, inits, rings, ", the second stage beside the first of the next iteration") as loop:
        own = loop.carried[: len(inits)]
        one = frame.env_with((k, v) for (k, _), v in zip(ahead, own))
        two = second(own[len(ahead) : len(carried)], own[len(carried) :])
        run(one, b.add(loop.iv, 1), two, loop.iv)
        ends = [*(one[after[k]] for k, _ in ahead), *(two[after[k]] for k, _ in behind)]
        frame.again(loop, [*ends, *(w for words in crossing(one) for w in words)], rings)
    if run.turns:
        run.turns = False
        _in_wave(low, 0, partial(b.turn_take, waves))  # the last turn that the last one gave
    for ring in done:
        release(low, ring)
    final = dict(zip((k for k, _ in ahead), loop.results))
    two = second(loop.results[len(ahead) : len(carried)], loop.results[len(carried) : len(inits)])
    low.note(f"behind the loop over {region.dim}: the second stage of its last iteration")
    run(None, 0, two, last)
    final.update((k, two[after[k]]) for k, _ in behind)
    return [final[k] for k, _ in carried]


class _StagedTrip:
    """Emits one trip: the first stage of an iteration, the second of another, or both."""

    def __init__(self, low: Lowering, region: Region, steps: Sequence[Step], stages: TripStages):
        self.low, self.region, self.steps, self.stages = low, region, steps, stages
        self.turns = False
        """Whether two warpgroups start their products in turn."""
        self.products: list[list[Node]] = []
        self.rings: list[list[Ring]] = []
        """Rings of each stage. One that both read goes on with the first and is given back by the second, a slot
        behind."""
        own = [ring for ring in low.reads.rings if ring.region is region]
        self.crossing = [ring for ring in own if in_both(low, ring, steps, stages.second)]
        for mine in ((*stages.first, *stages.rest), stages.second):
            nodes = [steps[i].node for i in mine if steps[i].node is not None]
            self.products.append(nodes)
            alone = [ring for ring in own if ring not in self.crossing]
            self.rings.append([ring for ring in alone if any(reads_ring(low, steps[i], ring) for i in mine)])

    def __call__(self, one: Env | None, first: Any, two: Env | None, second: Any) -> None:
        """`one`, `two`: values of the stages, None where a stage is left out; `first`, `second`: their iterations."""
        low, stages = self.low, self.stages
        present = [x is not None for x in (one, two)]
        nodes = [n for mine, here in zip(self.products, present) if here for n in mine]
        rings = [ring for mine, here in zip(self.rings, present) if here for ring in mine]
        outer = low.matrix.running
        behind = {ring: ring.before(low) if two is not None else ring.slot for ring in self.crossing}
        low.matrix.running = products = Products(
            low, self.region, (), None, nodes, stages.operands, behind, self.products[0]
        )

        starts = [i for i in (*stages.first, *stages.second) if self.steps[i].node is not None]

        def emit(indices: Sequence[int], env: Env | None, iteration: Any) -> None:
            if env is None:
                return
            context = StageContext(env, iteration, None, 0)
            for i in indices:
                products.before(self.steps[i])
                with low.b.loc(self.steps[i].loc):
                    if self.turns and i == starts[0]:
                        for ring in rings_read(low, self.region, nodes[0]):
                            wait_full(low, ring)
                        low.note("take the turn")
                        low.b.turn_take(low.partition.waves)
                    products.emit(self.steps[i], context)
                    if self.turns and i == starts[-1]:
                        low.note("give the turn to the next")
                        low.b.turn_give(low.partition.waves)

        emit([i for i in stages.both if i not in stages.first], one, first)
        emit(stages.first, one, first)
        ahead = {ring: ring.slot for ring in behind}
        for ring, slot in behind.items():
            ring.slot, ring.waited = slot, True  # the first stage has waited for it
        emit(stages.both, two, second)
        emit(stages.second, two, second)
        for ring, slot in ahead.items():
            ring.slot = slot
        emit(stages.rest, one, first)
        products.end([*rings, *(behind if two is not None else ())])
        low.matrix.running = outer
        for ring in [*rings, *(self.crossing if one is not None else ())]:
            ring.advance(low)


TURNS = 5
"""Two warpgroups start their products in turn where what lies between products takes at least one clock in this many of
theirs: one computes while the other's products run. FlashAttention-3 does so up to a head size of 128."""


def takes_turns(low: Lowering, steps: Sequence[Step], stages: TripStages) -> bool:
    """Whether the computing warpgroups of a workgroup, which run the same trips, start their products in turn. Of more
    than two the compiler does not say so: by the replay of an SM, which favours the oldest warp, they then all wait for
    the last one's softmax (docs/design/004-hopper.md)."""
    waves, asked = low.partition.waves, low.choices.products_in_turn
    if not 2 <= waves <= MOST_TURNS or low.matrix.strategy.teams > 1:
        return False
    if asked is not None:
        return asked
    if waves > 2:
        return False
    products = sum(c for s in steps if s.node is not None for unit, c in s.resources if unit == "mfma")
    between = sum(c for i in stages.rest for unit, c in steps[i].resources if unit == "issue")
    return between * TURNS >= products


def _in_wave(low: Lowering, wave: int, emit: Callable[[], Any]) -> None:
    """What one wave of the computing ones does."""
    with low.b.if_(low.b.cmp("eq", low.b.wave(), wave)) as branch:
        emit()
        branch.yield_()


def _registers(low: Lowering, value: Any) -> list[Value]:
    """The registers of a value that crosses from one trip to the next; conditions as 0 or 1."""
    words = value.words(low.b) if isinstance(value, Fragment) else [value]
    return [low.b.select(w, 1, 0) if w.type is PRED else w for w in words]


def _restored(low: Lowering, words: Sequence[Value], like: Any) -> Any:
    """The value that `_registers` was given, from the next trip's registers."""
    b = low.b
    old = like.words(b) if isinstance(like, Fragment) else [like]
    found = [b.cmp("ne", w, 0) if o.type is PRED else w for w, o in zip(words, old)]
    return from_words(b, like.layout, like.dtype, found) if isinstance(like, Fragment) else found[0]


def emit_once(low: Lowering, region: Region, body: BodySchedule, steps: Sequence[Step], env: Env) -> None:
    """A region that is no loop."""
    mine = [ring for ring in low.reads.rings if ring.region is region]
    turn, low.matrix.give_turn = low.matrix.give_turn, None
    reading = [p for p, i in enumerate(body.order) if steps[i].loop or steps[i].node is not None]
    frame = LoopFrame(low, region, steps, env, 1, (), (), "")
    _trip(frame, body, env, 0, mine, after=(max(reading, default=-1), turn))


def _first_users(steps: Sequence[Step], order: Sequence[int], i: int) -> list[int]:
    """Of a step that reads shared memory, the first step of the rest of the order that uses what it reads."""
    if steps[i].kind != "sread":
        return []
    return next(([j] for j in order if not set(steps[i].defs).isdisjoint(steps[j].uses)), [])


def refill(low: Lowering, rings: Sequence[Ring], iteration: Any, trips: Any, env: Env) -> None:
    """Without a copying warpgroup: one thread fills the next slot of every ring, if the loop has that trip."""
    b = low.b
    exists: Value | None = None
    if isinstance(iteration, int) and isinstance(trips, int):
        if iteration >= trips:
            return
    else:
        exists = b.cmp("slt", iteration, trips) if not isinstance(iteration, int) else b.cmp("sgt", trips, iteration)
    fillers = low.fillers(rings)
    if exists is None or exists.const is True:
        with one_thread(low):
            for filler in fillers:
                fill(low, filler, iteration, env)
    else:
        with b.if_(exists) as branch:
            with one_thread(low):
                for filler in fillers:
                    fill(low, filler, iteration, env)
            branch.yield_()
    for filler in fillers:
        filler.advance(low)


def _trip(
    frame: LoopFrame, body: BodySchedule, env: Env, iteration: Any, mine: Sequence[Ring],
    postponed: Sequence[Node] = (), again: Value | None = None, ahead: int = 0,
    after: tuple[int, Callable[[], None] | None] = (-1, None),
) -> None:  # fmt: skip
    """One trip: steps in order, each after what it needs; `mine` are the loop's own rings, `postponed` and `again` as
    for `Products`. `ahead`: trips by which the thread that fills rings is ahead of this one, where there is no copying
    warpgroup. `after`: something to emit behind a position of the order."""
    low, steps, trips = frame.low, frame.steps, frame.trips
    b = low.b
    alone = not low.matrix.strategy.specialize
    if alone and not ahead and mine:
        refill(low, mine, iteration, trips, env)
    outer = low.matrix.running
    low.matrix.running = products = Products(low, frame.region, postponed, again)
    context = StageContext(env, iteration, None, 0)
    late = bool(asynchronous(low, frame.region)) and crowded(low, frame.region)
    done = _done_in_loops(low, frame.region)
    last = max((p for p, i in enumerate(body.order) if steps[i].loop), default=-1)
    for p, i in enumerate(body.order):
        if p in body.barriers:
            products.meet()
            synchronise(b, body.barriers[p])
        products.before(steps[i])
        if late:
            for j in _first_users(steps, body.order[p:], i):
                products.before(steps[j])
        env.iteration = 0
        with b.loc(steps[i].loc):
            products.emit(steps[i], context)
        if p in body.commits:
            b.copy_commit()
        if p == after[0] and after[1] is not None:
            after[1]()
        if p == last:
            products.give_back(done)
    products.end(mine)
    low.matrix.running = outer
    for ring in mine:
        ring.advance(low)
    if ahead:
        refill(low, mine, b.add(iteration, ahead), trips, env)
