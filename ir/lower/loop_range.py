"""Which tiles of its dimension a loop runs over, from the bounds that the user gave it."""

from __future__ import annotations

from typing import Any

from wavedsl.ir.dataflow.graph import Node, loop_bounds
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Env


def loop_range(low: Lowering, n: Node, dim: str, env: Env) -> tuple[Any, Any]:
    """(first tile, number of tiles) of a loop: ints where they are known, else uniform values."""
    b, plan = low.b, low.plans[dim]
    whole = low.trip_count(dim)
    length = n.attrs.get("length")
    start, stop = (None if x is None else low.uniform(x, env) for x in loop_bounds(n))
    if start is None and stop is None:
        return 0, whole
    first = b.const(0) if start is None else b.udiv(b.max_s(start, 0), plan.tile)
    if length is not None:
        return first if first.const is None else first.const, length // plan.tile
    last = b.const(whole) if isinstance(whole, int) else whole
    # A start past the end has no tile either; said so, ranges of indices are those of the dimension.
    first = b.min_s(first, last)
    if stop is not None:
        # Rounded up without passing 2^31; a range that ends where it starts has no tile.
        end = b.max_s(stop, 0)
        ends = b.add(b.udiv(b.max_s(b.sub(end, 1), 0), plan.tile), 1)
        some = b.cmp("sgt", end, 0 if start is None else b.max_s(start, 0))
        last = b.select(some, b.min_s(last, ends), first)
    trips = b.max_s(b.sub(last, first), 0)
    known_first, known_trips = first.const, trips.const
    return (
        known_first if isinstance(known_first, int) else first,
        known_trips if isinstance(known_trips, int) else trips,
    )
