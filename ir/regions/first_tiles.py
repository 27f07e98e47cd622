"""Launches that may begin early (`Schedule(dependent=True)`) ask for their first tiles before they wait for the one in
front: memory is at work while that one's last workgroups compute and store.

In: a `Lowering`. Out: requests that the L2 cache bring what the kernel copies, or loads, first: in one thread those of
what the first fills of each ring copy (`ask_for_first_fills`), elsewhere in all lanes those of what each loads straight
into registers (`ask_for_first_loads`). They move nothing else. L2 is where all accesses of the chip meet (CUDA
programming guide), so a line that comes early and is written by the launch in front afterwards has what was written,
whatever the kernel's arrays are.

Left alone: kernels whose tiles lie where numbers in memory say, which must not be read yet, and workgroups that begin
when others have ended, for which there is nobody to wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.dataflow.views import is_tile, placement
from wavedsl.ir.lower.loop_range import loop_range
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import Ring, one_thread, touch
from wavedsl.ir.lower.workgroup_tiles import Turns
from wavedsl.ir.regions.copying import compute_place, entered, own_rings, rings_inside, walked
from wavedsl.ir.schedule.steps import Context, Env
from wavedsl.ir.staging.lower_reads import touch_straight
from wavedsl.ir.staging.memory_depth import grid, per_unit
from wavedsl.ir.staging.plan_reads import wants_shared

EARLY_CLOCKS = 3500
"""Clocks between a workgroup's start and the end of the launch in front, in which memory has nothing else to do
(assumed: 2 us, in which an H100's brings 48 KiB for each SM). Whoever waits for nobody has asked for these twice."""


def ask_for_first_fills(low: Lowering, wave: int) -> None:
    """Emit the requests of a kernel with rings, in one thread of a wave."""
    order, bytes = low.notes.order, _early_bytes(low)
    if not bytes or _placed_by_memory(low):
        return
    low.note("ask for the first tiles")
    with one_thread(low, wave):
        if order is not None:
            turns = Turns(low, order)
            turns.go_to(turns.first)
        with _among_the_first(low):
            _ask(low, low.graph.region, Env(), 0, bytes)


def ask_for_first_loads(low: Lowering) -> None:
    """Emit the requests of a kernel without rings: for tiles of the outermost region that no number computed by the
    kernel places. Not for first trips of loops: the addresses of one of B's rows against one of A cost eight registers
    there, of 72, and with them a seventh of the workgroups of an SM."""
    left = _early_bytes(low) / max(1, per_unit(low, low.room.top))
    reads = [n for n in low.graph.region.nodes if n.op == "read" and _straight(low, n)]
    if not left or not reads:
        return
    with _among_the_first(low):
        for n in reads:
            with low.b.loc(n.loc):
                left = touch_straight(low, n, Context(Env(), 0, None), left)


def _straight(low: Lowering, n: Node) -> bool:
    """Whether a read goes straight to registers, from where no number that the kernel computes says."""
    found = placement(low.graph, n)
    if found is None or found.numbers() or not is_tile(low.graph, n):
        return False
    return not wants_shared(low, n) and not wants_shared(low, n, True)


def _early_bytes(low: Lowering) -> float:
    """What memory brings a unit before the launch in front has ended; 0 where the launch does not begin early."""
    return EARLY_CLOCKS * low.target.memory_rate / low.target.units if low.choices.dependent else 0.0


def _placed_by_memory(low: Lowering) -> bool:
    """Whether numbers in memory, or what loops compute, say where tiles lie."""
    needed = walked(low)
    return any("memory" in n.attrs or "body" in n.attrs for n in low.graph.all_nodes() if n.id in needed)


@contextmanager
def _among_the_first(low: Lowering) -> Iterator[None]:
    """What is emitted inside runs in workgroups that run at once: in all of them where they take tiles in turn."""
    b, most, groups = low.b, low.target.units * per_unit(low, low.room.top), grid(low)
    if low.notes.order is not None or (groups is not None and groups <= most):
        yield
        return
    row = b.add(b.wgid(1), b.mul(b.wgid(2), b.wgcount(1)))
    with b.if_(b.cmp("slt", b.add(b.wgid(0), b.mul(row, b.wgcount(0))), most)) as branch:
        yield
        branch.yield_()


def _ask(low: Lowering, region: Region, env: Env, iteration: Any, bytes: float) -> float:
    """Ask for what a run of a region, or a trip of its loop, copies first, up to so many bytes; how many are left."""
    b, needed = low.b, walked(low)
    for n in region.nodes:
        if n.id in needed:
            compute_place(low, n, Context(env, iteration, None))
    for ring in own_rings(low, region):
        if bytes > 0:
            touch(low, ring, iteration, env)
            bytes -= ring.bytes
    for n in region.nodes:
        inner = rings_inside(low, n.attrs["body"]) if n.op == "iterate" else []
        if bytes <= 0 or not any(ring.bytes for ring in inner):
            continue  # what threads copy nobody asks for
        body: Region = n.attrs["body"]
        first, trips = loop_range(low, n, str(body.dim), env)
        own = own_rings(low, body)
        count = 1 if len(own) < len(inner) else _fills(own, bytes)
        left = bytes - count * sum(ring.bytes for ring in own)
        with entered(low, body, iteration, first):
            some = min(trips, count) if isinstance(trips, int) else b.min_s(trips, count)
            with b.for_(0, some, label=f"ask_{body.dim}") as loop:
                after = _ask(low, body, env, loop.iv, bytes)
                loop.yield_()
        bytes = after if count == 1 else left
    return bytes


def _fills(rings: Sequence[Ring], bytes: float) -> int:
    """Fills of rings, which a loop fills together, that bring so many bytes, without one that waits for a slot."""
    each = sum(ring.bytes for ring in rings)
    return min(*(ring.slots for ring in rings), *([ceil(bytes / each)] if each else []))
