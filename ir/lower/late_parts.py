"""Sums of parts that lie in memory, added a slice of the tile at a time, each right before it is stored.

In: a loop that does nothing but add what it reads to what it carries, in a region that computes its results as they are
stored. Out: promises of its results. Whoever asks for an element gets the loop emitted for the slice that the element
is in; the next slice's follows when this one's results are on the way. A loop over the whole tile would hold it in
registers all the time that an epilogue computes.

Invariant: nothing in the loop's region (`late_reads.is_late`) or in the one around it writes to what it reads, so a
slice may be read as late as the last of its users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.fragment import Lazy
from wavedsl.ir.lower.late_reads import is_late
from wavedsl.ir.lower.lower_values import is_late_value
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Env, StageContext, Step

SLICE = 64
"""Registers of a slice: as many are in flight while one is added, and a warpgroup's stay free of the rest."""
BESIDE = SLICE + SLICE // 2
"""Registers that loads of an epilogue leave for a slice: its sums, and half of what is on its way to them, for ptxas
has added the other half by then. With as many again tiles of 128 x 192 in three parts spill; without any of them those
of 160 x 256 spill three times as much."""


def adds_parts(low: Lowering, n: Node, region: Region) -> bool:
    """Whether a loop can be emitted slice by slice: its region and the one that it is in compute late, nobody else
    takes its results, and one slice does not hold all of them."""
    outer = low.region_of(n)
    ordered = low.matrix.strategy.bulk or low.target.assembler_schedules
    if not (ordered and low.computes_late(outer) and low.computes_late(region)) or outer is low.graph.region:
        return False
    users = low.users()
    results = [u for u in users.get(n.id, ()) if u.op == "result"]
    if len(results) != len(users.get(n.id, ())) or any(r in outer.yields for r in results):
        return False
    if any(low.region_of(u) is not outer for r in results for u in users.get(r.id, ())):
        return False
    changed = {x.attrs["memory"] for x in outer.nodes if ROWS[x.op].effect and "memory" in x.attrs}
    for x in region.nodes:
        if x.op == "read" and x.attrs["memory"] in changed:
            return False
        if not (is_late(low, x) if x.op == "read" else is_late_value(low, x)):
            return False
    wide = [carry for carry in region.carries if low.layout(carry).elements_per_lane > SLICE]
    return bool(wide) and all(
        last in region.nodes and carry.dtype.bits == 32 and same_layout(low.layout(carry), low.layout(last))
        for carry, last in zip(region.carries, region.yields)
    )


class Parts:
    """One such loop. `base`: tile starts outside of it, `first`: its first coordinate."""

    def __init__(
        self, low: Lowering, n: Node, region: Region, env: Env, steps: Sequence[Step], trips: Any,
        base: Mapping[str, Any], first: Any,
    ):  # fmt: skip
        self.low, self.region, self.env, self.steps, self.trips = low, region, env, steps, trips
        self.dim, self.base, self.first = str(region.dim), dict(base), first
        self.starts = n.inputs[: len(region.carries)]

    def result(self, position: int) -> Lazy:
        """The promise of one result."""
        low, carry = self.low, self.region.carries[position]
        layout = low.layout(carry)
        found: dict[int, Value] = {}

        def element(e: int) -> Value:
            if e not in found:
                at = e // SLICE * SLICE
                found.update(self._added(position, range(at, min(at + SLICE, layout.elements_per_lane))))
            return found[e]

        return Lazy(layout, carry.dtype, element, low.b, beside=BESIDE)

    def _added(self, position: int, elements: range) -> dict[int, Value]:
        """The loop for some elements of one result."""
        low, b = self.low, self.low.b
        start = low.value(self.starts[position], self.env)
        dim, base = low.loop_dim, low.base
        low.loop_dim, low.base = self.dim, dict(self.base)
        low.first[self.dim] = self.first
        low.labels += 1
        label, least = f"{self.dim}{low.labels}", 1 if isinstance(self.trips, int) else 0
        inits = [start.element(b, e) for e in elements]
        with low.noted_loop(self.dim), b.for_(0, self.trips, 1, inits, label=label, min_trips=least) as loop:
            env = Env(self.env.fixed)
            for i, carry in enumerate(self.region.carries):
                held = dict(zip(elements, loop.carried)) if i == position else {}
                for key in low.keys(carry):
                    env.fixed[key] = Lazy(low.layout(carry), carry.dtype, held.__getitem__, b)
            for step in self.steps:
                env.iteration = 0
                with b.loc(step.loc):
                    step.emit(StageContext(env, loop.iv, None, 0))
            env.iteration = 0
            last = low.value(self.region.yields[position], env)
            loop.yield_([last.element(b, e) for e in elements])
        del low.first[self.dim]
        low.loop_dim, low.base = dim, base
        return dict(zip(elements, loop.results))


__all__ = ["Parts", "adds_parts"]
