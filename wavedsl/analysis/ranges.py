"""How many elements a traced kernel's loops go over where they have a range (`iterate(…, start=, stop=)`).

In: the loops around a node, the number of each dimension, how dimensions are cut. Out: elements and trips, summed over
the tiles on which ranges depend. A causal loop over keys counts what every tile of queries sees, not all keys for each.

Bounds made of tile positions, extents and constants are evaluated for all tiles at once. A bound that data decide (the
length of a sequence, from an array) is not known here: then the loop counts as if it went over all of its dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from wavedsl.ir.dataflow.graph import Node, loop_bounds
from wavedsl.ir.symbols import evaluate_int

Array = Any
COMBINED = 1 << 20
"""Most combinations of tiles that are told apart; with more, ranges count as whole dimensions."""


class Ranges:
    """`over(dims, loops)` counts for one node. `fixed`: dimensions that no workgroup goes through; `outer`: index
    dimensions of the grid."""

    def __init__(self, dims: Mapping[Any, Any], partition: Any, fixed: Collection[Any], outer: Collection[Any]):
        self.dims, self.partition, self.fixed, self.outer = dims, partition, fixed, outer

    def tile(self, dim: Any) -> int:
        """Elements of a dimension that are done at a time: a trip's, a workgroup's."""
        plan = self.partition.dims.get(dim) if self.partition is not None else None
        return max(1, plan.tile) if plan is not None else 1

    def over(self, dims: Sequence[Any], loops: Sequence[Node]) -> tuple[tuple[Any, ...], int, int] | None:
        """(dimensions that are done with, elements over them that a node of `dims` in `loops` needs, those that it
        computes). None where no range around it is known."""
        if self.partition is None:
            return None
        ranged = {n.attrs["dim"]: n for n in loops if loop_bounds(n) != (None, None)}
        depends = {d: found for d, n in ranged.items() if (found := self._dims_of(n)) is not None}
        if not depends:
            return None
        told = list(dict.fromkeys(d for found in depends.values() for d in found))
        counts = [-(-evaluate_int(d, self.dims) // self.tile(d)) for d in told]
        if prod(counts) > COMBINED:
            return None
        place = dict(zip(told, np.indices(counts, np.int64))) if told else {}
        needed: Array = np.ones(counts, np.int64)
        executed: Array = np.ones(counts, np.int64)
        trips_of = {n.attrs["dim"] for n in loops}
        spread = []  # axes along which a node without that dimension is needed once only
        for axis, d in enumerate(told):
            if d in dims:
                size, extent = self.tile(d), evaluate_int(d, self.dims)
                needed = needed * np.minimum(size, extent - place[d] * size)
                executed = executed * size
            elif d in trips_of or d in self.outer:
                pass  # repeated for each
            else:
                spread.append(axis)
                plan = self.partition.dims[d]
                if plan.role not in ("workgroup", "index") or d in self.fixed:
                    executed = executed * (place[d] == counts[axis] - 1)
        for d in depends:
            size, extent = self.tile(d), evaluate_int(d, self.dims)
            start, stop = self._range(ranged[d], place)
            first, last = start // size, np.where(stop > start, -(-stop // size), start // size)
            if d in place:  # of each tile the part that lies in the range
                low = place[d] * size
                inside = (place[d] >= first) & (place[d] < last)
                part = np.minimum(low + size, stop) - np.maximum(low, start)
                whole = np.minimum(size, extent - low)
                needed = np.where(inside, needed // np.maximum(whole, 1) * part if d in dims else needed, 0)
                executed = np.where(inside, executed, 0)
            else:
                needed = needed * (np.maximum(stop - start, 0) if d in dims else last - first)
                executed = executed * (last - first) * (size if d in dims else 1)
        if spread:
            needed = needed.max(axis=tuple(spread), initial=0)
        done = (*told, *(d for d in depends if d not in place))
        return done, int(needed.sum()), int(executed.sum())

    def _dims_of(self, loop: Node) -> tuple[Any, ...] | None:
        """Dimensions on whose tiles a loop's range depends; None where data decide."""
        found: dict[Any, None] = {}
        todo = [x for x in loop_bounds(loop) if x is not None]
        while todo:
            x = todo.pop()
            if x.op in ("tile_start", "tile_stop", "index"):
                d = x.attrs["dim"]
                if d not in self.partition.dims or (x.op == "index" and x.dims):
                    return None
                found[d] = None
            elif x.op not in ("constant", "size") and x.op not in _RULES:
                return None
            todo += x.inputs
        return tuple(found)

    def _range(self, loop: Node, place: Mapping[Any, Array]) -> tuple[Array, Array]:
        """(first element, end) inside of the dimension."""
        extent = evaluate_int(loop.attrs["dim"], self.dims)
        start, stop = loop_bounds(loop)
        first = 0 if start is None else self._number(start, place)
        end = extent if stop is None else self._number(stop, place)
        return np.clip(first, 0, extent), np.clip(end, 0, extent)

    def _number(self, x: Node, place: Mapping[Any, Array]) -> Any:
        if x.op == "constant":
            return x.attrs["value"]
        if x.op == "size":
            return evaluate_int(x.attrs["expr"], self.dims)
        if x.op in ("tile_start", "tile_stop", "index"):
            d, size = x.attrs["dim"], self.tile(x.attrs["dim"])
            low = place[d] * size
            return np.minimum(low + size, evaluate_int(d, self.dims)) if x.op == "tile_stop" else low
        with np.errstate(all="ignore"):
            return _RULES[x.op](*(self._number(i, place) for i in x.inputs))


_RULES: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "neg": lambda a: -a,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "where": np.where,
}
