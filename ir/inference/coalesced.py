"""Layouts of values that no matrix instruction fixes: the one that makes their memory access coalesced."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_tile, view_dims
from wavedsl.ir.layouts.bits import spec, with_bits
from wavedsl.ir.layouts.layout import Digit, Layout, moving_lanes
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import VECTOR_BYTES, Target

WORD = 32
"""Bits that lanes access at least, where they may have more."""
SCANS = ("scan", "cumsum", "cumprod")
MOST_READ = 32
"""Elements that a lane reads for itself alone where lanes could share them: they are in registers at one time."""
ELEMENT = 4
"""What is done for an element, loaded and computed, in moves of a number from lane to lane."""


class Uses:
    """What each value of a graph is the first operand of: a write of it, a reduction along one of its dimensions."""

    def __init__(self, graph: Graph):
        self._place: dict[int, int] = {}
        self._of: dict[int, list[Node]] = {}
        for i, n in enumerate(graph.all_nodes()):
            self._place[n.id] = i
            if n.inputs:
                self._of.setdefault(n.inputs[0].id, []).append(n)

    def of(self, nodes: list[Node]) -> list[Node]:
        """The uses of some values, in the graph's order."""
        return self.in_order([u for n in nodes for u in self._of.get(n.id, ())])

    def in_order(self, nodes: list[Node]) -> list[Node]:
        """Nodes in the graph's order."""
        return sorted(nodes, key=lambda n: self._place[n.id])


def coalesced_for(
    nodes: list[Node], widest: Node, graph: Graph, partition: Partition, target: Target, uses: Uses,
    exact: bool = False, across: Any = None,
) -> Layout:  # fmt: skip
    """Layout of a class that is free to choose: 16 bytes of the innermost dimension per lane, lanes along it, then
    the next. `exact`: without padding. `across`: the dimension along which lanes lie first where it is not innermost.

    The order of dimensions is that of the array which is written or read, and 16 bytes are those of the widest element
    among such arrays. Where no array has all dimensions of the class, both follow the largest tile which is read and
    then repeated along the others. What never meets memory, and a row's label or scale, does not make vectors narrower.
    A short dimension that is summed up goes to registers instead of lanes where that is cheaper.
    """
    order = list(widest.dims)
    bits = 0
    limit = VECTOR_BYTES * 8
    repeated = _largest_repeated(nodes, graph, partition)
    repeats: list[Any] = []
    otherwise = widest.dtype.bits
    if repeated is not None:
        repeats = [d for d in view_dims(graph, repeated) if d in widest.dims]
        order = [d for d in order if d not in repeats] + repeats
        otherwise = graph.argument(repeated.attrs["memory"]).dtype.bits
        if repeated.attrs.get("elements_per_thread"):
            limit = min(limit, int(repeated.attrs["elements_per_thread"]) * bits)
    reads = [n for n in nodes if n.op == "read"]
    for n in uses.in_order([*reads, *(u for u in uses.of(nodes) if u.op == "write")]):
        if is_tile(graph, n):
            argument = graph.argument(n.attrs["memory"])
            dims = [d for d in view_dims(graph, n) if d in widest.dims]
            if set(dims) == set(widest.dims):
                order = dims
                bits = max(bits, argument.dtype.bits)
            if n.attrs.get("elements_per_thread"):
                limit = min(limit, int(n.attrs["elements_per_thread"]) * argument.dtype.bits)
    waves = {d: partition.dims[d].wave for d in order}
    width = max(bits or otherwise, 8)
    across = across if across in order[:-1] else None
    runs = {u.attrs["dim"] for u in uses.of(nodes) if u.op in SCANS} & {*order[:-1]}
    if runs and all(u.attrs.get("dim") in {None, *runs} for u in uses.of(nodes)):
        # Narrow vectors before lanes that tell each other what their runs add up to.
        beside = prod(waves[d] for d in order if d not in runs)
        limit = min(limit, max(WORD, width << max(0, (beside - 1).bit_length() - target.lane_bits)))
    found = coalesced(order, waves, width, target, limit, exact=exact, across=across, runs=runs)
    summed = set() if bits else _summed_alone(nodes, uses)
    apart = summed == set(repeats) if repeated is not None else not _gathers_along(nodes, summed)
    if not summed or not apart:
        return found
    inner = [d for d in order if d not in summed]
    size = prod(waves[d] for d in inner)
    if not _gathers_along(nodes, set(inner)):
        limit = min(limit, width << max(0, (size - 1).bit_length() - target.lane_bits))
    order = [d for d in order if d in summed] + inner
    other = coalesced(order, waves, width, target, limit, exact=exact)
    return other if size >= 1 << target.lane_bits and _cheaper(other, found, summed, width) else found


def _summed_alone(nodes: list[Node], uses: Uses) -> set[Any]:
    """The dimensions that reductions of a class's values are along; empty where another operation along a dimension,
    which may want neighbours in lanes, has one of its values."""
    found = set()
    for n in uses.of(nodes):
        if "dim" in n.attrs:
            if ROWS[n.op].index_rule != "project" or isinstance(n.type, tuple):
                return set()
            found.add(n.attrs["dim"])
    return found


def _gathers_along(nodes: list[Node], dims: set[Any]) -> bool:
    """Whether a gather's neighbours along one of these dimensions are neighbours in memory, as vectors have them."""
    last = (n.attrs["mapping"].coords[-1] for n in nodes if n.op == "read" and n.attrs.get("mapping") is not None)
    return any(not isinstance(c, int) and c.has(*dims) for c in last) if dims else False


def _cheaper(each: Layout, found: Layout, summed: set[Any], bits: int) -> bool:
    """Whether lanes had better read and sum up by themselves what is repeated along the other dimensions, as layout
    `each` has them do, than share it: as many sums are then made between them as `found` has elements along these."""
    names = [dim_name(d) for d in summed]
    lanes = moving_lanes(found, names)
    sums = found
    for name in names:
        sums = sums.project(name)
    moves = sums.elements_per_lane * len(lanes)
    count = prod(dict(each.extents)[name] for name in names)
    loads = count * bits // (VECTOR_BYTES * 8)
    if count > MOST_READ or moving_lanes(each, names) or loads > max(moves / 2, 4):
        return False
    return each.elements_per_lane * ELEMENT < 0.8 * (found.elements_per_lane * ELEMENT + moves)


def _largest_repeated(nodes: list[Node], graph: Graph, partition: Partition) -> Node | None:
    """The read with the most bytes per wave among those that values of a class repeat along dimensions which the read
    lacks; what is computed of one read alone counts as it."""
    found: Node | None = None
    most = 0
    for n in nodes:
        for x in n.inputs if ROWS[n.op].index_rule in ("same", "lift") else ():
            while x.op != "read" and ROWS[x.op].index_rule == "same" and len(x.inputs) == 1:
                x = x.inputs[0]
            if x.op != "read" or not x.dims or not set(x.dims) < set(n.dims) or not is_tile(graph, x):
                continue
            size = prod(partition.dims[d].wave for d in x.dims) * graph.argument(x.attrs["memory"]).dtype.bits
            if size > most:
                found, most = x, size
    return found


def coalesced(
    order: list[Any], waves: Mapping[Any, int], bits: int, target: Target, limit: int = VECTOR_BYTES * 8,
    least: int = 1, exact: bool = False, across: Any = None, runs: Collection[Any] = (),
) -> Layout:  # fmt: skip
    """Elements, then lanes, then registers, from the innermost dimension outward. `waves`: wave tile per dimension;
    `least`: neighbours along the innermost dimension that must be in one lane; `across`: the dimension along which
    lanes lie first instead. `runs`: dimensions of whose elements each lane has neighbours, as scans want them: lanes
    tell each other what a run adds up to, once for all of it.

    A dimension whose power-of-two part is small is padded to the next box; the padding is masked where it is accessed.
    `exact`: lanes lie along that part only, and what is left of them are replicas.
    """
    lanes_left = target.lane_bits
    element = max(0, (limit // bits).bit_length() - 1)
    whole = sum((waves[d] - 1).bit_length() for d in order)
    element = min(element, max(0, whole - lanes_left))  # a small tile: narrow vectors before idle lanes
    element = max(element, least.bit_length() - 1)
    width = {d: (n & -n).bit_length() - 1 if exact else (n - 1).bit_length() for d, n in waves.items()}
    own: dict[Any, list[str]] = {d: [] for d in order}
    for d in order[-1:]:
        take = min(element, width[d])
        while take and waves[d] % (1 << take):
            take -= 1
        own[d] += [f"e{i}" for i in range(take)]
    inward = sorted((d for d in reversed(order) if d != across), key=lambda d: d in runs)
    lane = 0
    for d in inward if across is None else [across, *inward]:
        # Pad to lanes only when it wastes less than half of them.
        take = min(lanes_left, max(0, width[d] - len(own[d])))
        own[d] += [f"l{lane + i}" for i in range(take)]
        lane += take
        lanes_left -= take
    counts = {d: -(-waves[d] // (1 << len(own[d]))) for d in order}
    for d in runs:
        if own[d] and not counts[d] & (counts[d] - 1):
            first = sum(bit.startswith("e") for bits in own.values() for bit in bits)
            own[d][:0] = [f"e{first + i}" for i in range(counts[d].bit_length() - 1)]
            counts[d] = 1
    digits = [Digit("reg", count, dim_name(d), 1) for d, count in counts.items() if count > 1]
    strings = {dim_name(d): " ".join(own[d]) for d in reversed(order)}
    extents = {dim_name(d): counts[d] << len(own[d]) for d in order}
    free = " ".join(f"l{i}" for i in range(lane, target.lane_bits))
    inner = spec(with_bits(strings), free=free)
    return Layout(inner, tuple(digits), tuple((dim_name(d), extents[dim_name(d)]) for d in order))
