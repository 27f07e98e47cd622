"""Computing warpgroups that pass by trips outside of the bounds of their own rows.

In: a loop whose user allows it (`iterate(per_wave=True)`), with bounds made of where a workgroup's tile begins and
ends. Out: the trips of each computing warpgroup, from where its own share of that tile does. Copies come for all
warpgroups alike, so one that does not take part in a trip still waits for its slots and gives them back. Without a
warpgroup that copies, waves bring tiles together and stay in step.

Two warpgroups that start their products in turn pass turns on as well.

Invariants: each warpgroup meets every slot of a ring as often, and in the same order, as the thread that fills them. It
runs one trip at least where the workgroup has one, so that turns, of which the first trip has none, are as many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wavedsl.ir.addresses.coordinates import scaled
from wavedsl.ir.dataflow.graph import Node, loop_bounds
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.kernel.meetings import meet
from wavedsl.ir.lower.loop_range import loop_range
from wavedsl.ir.lower.lower_values import emit_node
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import Ring, release, wait_full
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.regions.copying import ring_states, set_states
from wavedsl.ir.schedule.steps import Context, Env

if TYPE_CHECKING:
    from wavedsl.ir.regions.loop_frame import LoopFrame


class InStep(Exception):
    """Warpgroups meet in a loop whose trips they were to have of their own: the kernel is lowered again, with
    `Choices.in_step`."""


@dataclass(frozen=True)
class OwnTrips:
    """Of this wave: its first tile, how many it runs, how many of the workgroup's it passes by before and behind."""

    first: Any
    trips: Any
    before: Any
    behind: Any


def own_trips(low: Lowering, n: Node, dim: str, env: Env, first: Any, trips: Any) -> OwnTrips | None:
    """The trips of a loop that this wave needs of the workgroup's `trips` from tile `first` on; None where all run the
    same, or where a trip is longer than what one wave's rows lie behind another's. `env`: values around the loop."""
    if not n.attrs.get("per_wave") or low.choices.in_step or isinstance(trips, int):
        return None
    if not low.matrix.strategy.specialize or low.matrix.strategy.teams > 1:
        return None
    moved = _of_share(low, [x for x in loop_bounds(n) if x is not None], low.plans[dim].tile)
    if not moved:
        return None
    inner, low.share_of_wave = Env(env.fixed), True
    for x in moved:
        emit_node(low, x, Context(inner, 0, None))
    low.share_of_wave = False
    b = low.b
    start, stop = (x is not None and x.id in {y.id for y in moved} for x in loop_bounds(n))
    begin, count = loop_range(low, n, dim, inner)
    end = b.add(first, trips)
    begin = b.max_s(b.min_s(begin, b.sub(end, 1)), first) if start else first
    before = b.sub(begin, first) if start else b.const(0)
    left = b.sub(end, begin)
    own = b.min_s(b.max_s(count, 1), left) if stop else left
    return OwnTrips(begin, own, before, b.sub(left, own) if stop else b.const(0))


def _of_share(low: Lowering, bounds: Sequence[Node], trip: int) -> list[Node]:
    """The nodes of bounds that are others, by a `trip` at least, for a wave's share of a tile, each behind those it is
    made of."""
    found: dict[int, bool] = {}
    order: list[Node] = []

    def visit(x: Node) -> bool:
        if x.id not in found:
            plan = low.plans[str(x.attrs["dim"])] if x.op in ("tile_start", "tile_stop") else None
            own = plan is not None and plan.tile - plan.wave >= trip
            made_of = [visit(y) for y in x.inputs]
            found[x.id] = own or any(made_of)
            if found[x.id]:
                order.append(x)
        return found[x.id]

    for x in bounds:
        visit(x)
    return order


def apart(
    frame: LoopFrame, own: OwnTrips, in_turn: bool, emit: Callable[[LoopFrame], list[Value]]
) -> list[Value]:
    """What `emit` leaves of this wave's own trips, between those that it passes by. `in_turn`: whether two warpgroups
    start theirs in turn. Raises InStep where waves meet in a trip."""
    low, dim = frame.low, str(frame.region.dim)
    b, whole = low.b, low.first[dim]
    rings = [ring for ring in low.reads.rings if ring.region is frame.region]
    low.matrix.strategy.why.setdefault("trips", "outside of the bounds of their own rows they only give slots back")
    _pass_by(low, rings, own.before, dim, low.partition.waves - 1 if in_turn else None)
    low.first[dim] = scaled(b, own.first, low.plans[dim].tile)
    at = b.here()
    results = emit(replace(frame, trips=own.trips))
    ops = b.cut(at)
    b.place(ops)
    if meet(ops):
        raise InStep
    low.first[dim] = whole
    _pass_by(low, rings, own.behind, dim, 0 if in_turn else None)
    return results


def _pass_by(low: Lowering, rings: Sequence[Ring], count: Any, dim: str, holder: int | None) -> None:
    """Slots of `count` trips, given back as soon as they are filled. `holder`: where waves start products in turn, the
    wave that has the turn: it gives it before it takes it again, the others behind."""
    b, waves = low.b, low.partition.waves
    if count.const == 0:
        return
    with low.noted_loop(f"{dim}, passed by"), b.for_(0, count, 1, ring_states(rings), label=f"pass_{dim}") as loop:
        set_states(rings, loop.carried)
        for ring in rings:
            wait_full(low, ring)
            release(low, ring)
            ring.advance(low)
        if holder is not None:
            with b.if_(b.cmp("eq", b.wave(), holder)) as branch:
                b.turn_give(waves)
                b.turn_take(waves)
                branch.yield_()
            with branch.orelse():
                b.turn_take(waves)
                b.turn_give(waves)
                branch.yield_()
        loop.yield_(ring_states(rings))
    set_states(rings, loop.results)


__all__ = ["InStep", "OwnTrips", "apart", "own_trips"]
