"""Kernels whose operands come by bulk copies: rings, tensor maps, and who does what.

In: a `Lowering` and its `Strategy`. The reads that matrix instructions take from shared memory are gathered in rings.
With a copying warpgroup the kernel's body is written twice: one thread of that warpgroup walks the regions and fills
the rings, all other waves walk them as if the rings were full. Without it one thread of the first wave fills a slot
as soon as it has been given back (`ring_loops`).

Invariants: both walks meet each ring as often, so slots and parities agree. No slot that the copying thread waits for
is given back only behind a read of what that thread fills later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled
from wavedsl.ir.kernel.builder import FIRST_WAVE_BARRIER
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.lower.bulk_store import finish
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import Ring, by_all, initialise, zero_rest
from wavedsl.ir.lower.workgroup_tiles import Turns
from wavedsl.ir.regions.copying import produce, regions_inside, ring_states, set_states
from wavedsl.ir.regions.first_tiles import ask_for_first_fills
from wavedsl.ir.regions.ring_plans import ring_buffers
from wavedsl.ir.schedule.steps import Env
from wavedsl.ir.staging.strategy import Strategy


def run(low: Lowering, strategy: Strategy, compute: Callable[[], None]) -> None:
    """Emit the kernel: barriers, then the roles. `compute` emits what is not copying."""
    b, waves = low.b, low.partition.waves * strategy.teams
    rings = low.reads.rings
    initialise(low, rings, 0 if strategy.specialize else waves)
    ask_for_first_fills(low, waves if strategy.specialize else 0)
    begin(low)
    if not strategy.specialize:
        each_tile(low, rings, compute)
        finish(low)
        return
    low.role = "copying warpgroup"
    with b.if_(b.cmp("eq", b.wave(), waves)) as role:
        if strategy.registers[0]:
            b.registers(strategy.registers[0], more=False)
        if by_all(low):
            copy_all(low, rings)
        else:
            with b.if_(b.elect()) as one:
                b.one_thread = True
                copy_all(low, rings)
                b.one_thread = False
                one.yield_()
        for _ in low.room.parts:
            b.cluster_barrier()
            low.note("meet the cluster, which adds its sums")
        if low.room.parts:
            b.cluster_barrier(half="arrive")
        role.yield_()
    low.role = "computing warpgroups"
    for ring in rings:
        ring.slot = ring.parity = 0
    with role.orelse():
        if strategy.registers[1]:
            b.registers(strategy.registers[1], more=True)
        b.role_barrier = {"id": 1, "threads": waves * low.target.wave_size}
        if zero_rest(low, rings, waves):  # while the first copies are on their way
            b.barrier()
        if strategy.teams > 1:
            b.role_barrier = {"id": FIRST_WAVE_BARRIER, "threads": low.target.wave_size, "per_wave": True}
        each_tile(low, rings, compute, strategy.teams)
        finish(low)
        b.role_barrier = {}
        role.yield_()
    if low.kernel.cluster > 1:
        # Shared memory that others still read, write to or arrive in must live until they are done. Those who add sums
        # have said so when they had read all parts.
        b.cluster_barrier(half="wait" if low.room.parts else None)


def copy_all(low: Lowering, rings: Sequence[Ring]) -> None:
    """What those who only copy do."""
    each_tile(low, rings, lambda: produce(low, low.graph.region, Env()), copying=True)
    release(low)


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
        if not low.matrix.strategy.specialize and low.choices.dependent:
            low.matrix.behind_loads = partial(release, low)
        body()
        return
    moving = [*rings, *low.fillers(rings)]
    turns = Turns(low, order)
    first, step = turns.first, turns.step
    if teams > 1:
        team = b.wave()
        first, step = b.add(first, b.mul(step, team)), b.mul(step, teams)
        for ring in rings:
            ring.skip(low, scaled(b, uses(low, ring), team))
    with low.noted_loop("tiles"), b.for_(first, turns.numbers, step, ring_states(moving), label="tile") as loop:
        set_states(moving, loop.carried)
        turns.go_to(loop.iv)
        if teams > 1:
            take_turns(low, loop.iv, turns.first, b.add(loop.iv, turns.step), turns.numbers)
        if not low.matrix.strategy.specialize and low.choices.dependent:
            low.matrix.behind_loads = partial(release_behind, low, b.add(loop.iv, turns.step), turns.numbers)
        body()
        low.matrix.give_turn = None
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

    low.matrix.give_turn = give


def uses(low: Lowering, ring: Ring) -> Any:
    """Slots of a ring that one output tile uses."""
    around = [
        n.attrs["body"].dim
        for n in low.graph.all_nodes()
        if n.op == "iterate" and any(r is ring.region for r in (n.attrs["body"], *regions_inside(n.attrs["body"])))
    ]
    count: Any = 1
    for d in around:
        count = scaled(low.b, count, low.trip_count(str(d)))
    return count
