"""Registers that a kernel of products needs at the least, and those that a wave has: known before layouts are.

In: a graph, what a wave has of each dimension. Out: numbers of 32-bit registers of a lane. Values that come of products
are followed from the end of a region to its start. What computes element by element takes the place of what it reads
last, a product that of its addend. Other values count for nothing, for they may be read and computed part by part:
tiles of products from shared memory, what a result meets right before it is stored (`late_reads`, `late_parts`). So it
is an estimate from below, which says for sure only that registers lack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, ValueType, addend, factors, region_nodes
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_tile
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.symbols import AddressSpace
from wavedsl.ir.target import Target

VECTORS = 256
"""Registers that a vector instruction can name; what is beyond them on CDNA, matrix instructions alone compute in."""
FETCHED = 48
"""Registers that operands outside of loops take which waves fetch themselves, where all of them are too many
(`late_fetches`)."""
ADDRESSES = 24
"""Registers kept for addresses and temporaries."""
BEYOND = "beyond"
"""Note of a kernel: how many registers of a warpgroup its loops take beyond those that it is dealt."""
LESS_PER_WAVE = (
    "use a smaller wave tile: a smaller workgroup tile, or more waves where WaveConstraint or waves_per_block counts "
    "them; of a dimension that no constraint cuts, tile after tile: wd.TilingConstraint(N, 64) and @wd.iterate(N, …)"
)
"""What helps where values do not fit: the compiler has shared among waves what it may."""
UNHELD = ("fill", "constant", "index", "size", "tile_start", "tile_stop")
"""What is made where it is used."""
PASSED = ("result", "carry")
"""What names a value that a loop has made, or carries."""
ATOM = 16
"""Elements of a dimension that a matrix instruction covers at least: a wave that has fewer holds padding."""


def _goes_by_element(n: Node) -> bool:
    return n.op in ROWS and ROWS[n.op].index_rule in ("same", "lift") and n.op not in PASSED


def _passed_on(n: Node) -> Sequence[Node]:
    """Operands whose elements a value is made of one by one."""
    return n.inputs if n.op not in UNHELD and n.op != "read" and _goes_by_element(n) else ()


def held_words(
    graph: Graph, waves: Mapping[Any, int], target: Target, fetched: Collection[int] = (), whole: bool = False
) -> int:
    """The most registers of a lane that values take together, anywhere in a kernel. `waves`: what a wave has of each
    dimension; those it lacks count once. `fetched`: operands outside of loops that waves hold, `whole` or a part at a
    time."""
    return _Held(graph, waves, target, fetched, whole).most(graph.region, ())


def worked_words(graph: Graph, waves: Mapping[Any, int], target: Target) -> int:
    """The same of the values that loops compute with other instructions than products, in loops."""
    loops = [n.attrs["body"] for n in graph.all_nodes() if n.op in ("iterate", "repeat")]
    worked = {x.id for body in loops for n in body.nodes if n.op not in (*PRODUCTS, *REGIONS, *PASSED)
              for x in (n, *n.inputs)}  # fmt: skip
    held = _Held(graph, waves, target, (), False, worked)
    return max((held.most(body, ()) for body in loops), default=0)


def loop_words(graph: Graph, waves: Mapping[Any, int], target: Target) -> int:
    """The same of all values in the loops that multiply, or of the kernel where it has none: what comes behind loops
    may be computed part by part, as it is stored."""
    loops = [n.attrs["body"] for n in graph.all_nodes() if n.op in ("iterate", "repeat")]
    bodies = [body for body in loops if any(n.op in PRODUCTS for n in body.nodes)] or [graph.region]
    return max(_Held(graph, waves, target, (), False).most(body, ()) for body in bodies)


class _Held:
    """The walk over a graph. `counted`: the only values that count, or all."""

    def __init__(
        self, graph: Graph, waves: Mapping[Any, int], target: Target, fetched: Collection[int], whole: bool,
        counted: Collection[int] | None = None,
    ):  # fmt: skip
        self.waves, self.target, self.fetched, self.whole, self.counted = waves, target, fetched, whole, counted
        self.products = {d for n in graph.all_nodes() if n.op in PRODUCTS for d in n.dims}
        self.known: dict[int, int] = {}
        self.parts: dict[int, bool] = {}

    def words(self, n: Node) -> int:
        """Registers of a value."""
        found = self.known.get(n.id)
        if found is None:
            if n.op in REGIONS or self.by_parts(n) or (self.counted is not None and n.id not in self.counted):
                found = 0
            else:
                found = sum(map(self.of_type, n.type if isinstance(n.type, tuple) else (n.type,)))
            found = self.known[n.id] = min(found, FETCHED) if n.op == "read" and not self.whole else found
        return found

    def by_parts(self, n: Node) -> bool:
        """Whether a value may be read or made part by part."""
        for x in postorder(n, _passed_on, self.parts):
            if x.op == "read":
                found = x.id not in self.fetched
            else:
                found = x.op in UNHELD or (_goes_by_element(x) and all(self.parts[y.id] for y in x.inputs))
            self.parts[x.id] = found
        return self.parts[n.id]

    def of_type(self, t: ValueType | None) -> int:
        if t is None or not t.dims or t.dtype.bits == 1:
            return 0
        elements = prod(-(-self.waves.get(d, 1) // ATOM) * ATOM if d in self.products else self.waves.get(d, 1)
                        for d in t.dims)  # fmt: skip
        return -(-elements * t.dtype.bits // (32 * self.target.wave_size))

    def total(self, nodes: Iterable[Node]) -> int:
        return sum(map(self.words, nodes))

    def most(self, region: Region, behind: Collection[Node]) -> int:
        """The most that is held in a region; `behind`: what is made before it and used behind it."""
        live = {n.id: n for n in (*region.yields, *behind)}
        most = self.total(live.values())
        for n in reversed(region.nodes):
            if n.op == "result" and n.inputs[0].op in REGIONS:
                continue  # the loop itself makes all of its results
            after = live
            live = {i: x for i, x in after.items() if x is not n and not (x.op == "result" and x.inputs[0] is n)}
            if n.op in REGIONS:
                inside = {x.id for x in region_nodes(n.attrs["body"])}
                used = {x.id: x for y in region_nodes(n.attrs["body"]) for x in y.inputs if x.id not in inside}
                used |= {x.id: x for x in n.attrs["body"].yields if x.id not in inside}
                stays = live if n.op == "when" else {**live, **used}  # the next trip uses it again
                most = max(most, self.most(n.attrs["body"], tuple(stays.values())))
                live |= used
            live |= {x.id: x for x in n.inputs}
            at_once = max(self.total(after.values()), self.total(live.values()))
            if n.op in PRODUCTS:  # what it multiplies stays until the last sum
                started = addend(n)
                rest = [x for i, x in live.items() if started is None or i != started.id or i in after]
                at_once = max(at_once, self.total(rest) + self.words(n))
            most = max(most, at_once)
        return most


def staged_reads(graph: Graph) -> set[int]:
    """Reads of tiles that products take from shared memory, unless their array is to stay in global memory."""
    found = set()
    for n in graph.all_nodes():
        if n.op in PRODUCTS:
            for position in factors(n):
                x = n.inputs[position]
                while x.op not in ("read", *REGIONS) and x.op in ROWS and ROWS[x.op].index_rule == "same" and x.inputs:
                    x = x.inputs[0]
                if x.op != "read" or not is_tile(graph, x):
                    continue
                space = graph.argument(x.attrs["memory"]).address_space
                if graph.subs.get(space, space) is not AddressSpace.GLOBAL:
                    found.add(x.id)
    return found


def tile_bytes(n: Node, tiles: Mapping[Any, int]) -> int:
    """Shared memory that a workgroup's tile of a read takes at the least. `tiles`: elements of each dimension."""
    return prod(tiles[d] for d in n.dims) * n.dtype.bits // 8


__all__ = ["held_words", "loop_words", "staged_reads", "tile_bytes", "worked_words"]
