"""Whether workgroups share the trips of a kernel's loop (`split_k`), in how many parts, and why.

In: a traced graph, its extents, a product of the target, what the user fixed. Out: the graph, cut or as it was, with
the reason among its `notes`.

A prediction from the product's rates, for `parts` of `trips` each on a grid of `tiles`:

    loop       trips x the longer of all that a unit's workgroups do in one, arithmetic or bytes at its port, and of
               what one takes from trip to trip, as often as they come after one another
    exchange   storing sums at that port, a fence and a ticket (a latency each, two where copies run one trip ahead),
               and per part a latency or its bytes (a share of one, or words)
    whole      no less than the loop's operands take from memory once, and than all that is asked of L2

A workgroup whose copies run one trip ahead waits in each for memory, and then does what is no product's: what it makes
operands of, element by element, or moves to shared memory. Others of its unit work meanwhile: a weight's rows for one
token, 64 of them in each of 128 workgroups, have a fifth of MI300X's memory at work. Where what workgroups take is
about what memory does, neither has its full rate: the whole is the root of the sum of squares.

The cut is made where it is predicted to save a third of the time at least, or a fifth where copies run one trip ahead,
as it changes how sums are rounded: only where tiles leave half of the units idle, or of the places on them where
workgroups wait, and every part has enough trips to fill a pipeline, or two where copies run one ahead, on a grid that
is known while compiling, for a kernel that has nothing but elementwise work behind its loop, and where the user asks
for nothing that speaks of one workgroup per tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, hypot, inf, prod
from typing import Any

from wavedsl.ir.choices import Choices
from wavedsl.ir.dataflow.constraints import ResolvedDim
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, ValueType, loop_bounds, region_nodes
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.split_k import Split, cuts, grid_tiles, loop_to_cut, split
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import evaluate
from wavedsl.ir.target import VECTOR_BYTES, Target

LEAST_TRIPS = 8
"""Trips of a part: as many as a ring of tiles has slots at most."""
LEAST_WAITING = 2
"""Trips of a part where copies run one trip ahead."""
MOST_PARTS = 32
BESIDE = 4
"""Workgroups that a unit has at a time, as far as nobody knows their registers: 128 of a wave's on each SIMD."""
SEVERAL = 2
"""Workgroups that ask for the same, from which on L2 gives it to most of them."""
GAIN = 0.65
"""Share of the time of one part that several must be predicted to take at most. (Nothing of this was timed on a GPU:
a doubtful cut is not made.)"""
WAITING_GAIN = 0.8
"""The same where copies run one trip ahead: what waits can only gain."""
ALIKE = 1.05
"""Times that are about the same: then fewer parts are better, and a power of two (7 parts of 56 trips took 2 to 12 %
longer than 8)."""
UNEVEN = 1.15
"""Times that parts take whose trips are no known number, for the loops of those that are."""
FLOPS = 2
"""Of an instruction at the vector pipes' rate, a multiply-add; arithmetic of elements is one each."""
WIDENED = {4: 3, 8: 2}
"""Instructions per two elements, or one of f32, that take integers of so many bits out of a word and convert them."""
ALONE = 1.4
"""Times that elementwise work takes where nobody else hides that one instruction waits for the other."""
MEETING = 250
"""Clocks from a trip's first read of shared memory to its last product, beside elementwise work: latencies that only
other workgroups hide."""
SLOTS = 3
"""Of a ring at least, where others are to have room beside it."""
SIDE_BY_SIDE = 4
"""Loads of parts that are on their way together."""
WORD_BY_WORD = 4
"""Times that a port takes for words of sums, as lanes of matrix instructions have them, beside whole vectors."""


def chosen_split(graph: Graph, dims: Mapping[Any, Any], target: Target, product: Product, choices: Choices) -> Split:
    """The graph with its loop cut as the user asks, or as the prediction says, and its tiles handed to workgroups that
    take several where that is asked for. Raises ConstraintError where the user asks for what would change the kernel's
    meaning."""
    if choices.stream:
        return _streamed(graph, dims, product, choices)
    found = _cut(graph, dims, target, product, choices)
    if not choices.turns:
        return found
    from wavedsl.ir.grid.turns import in_turn

    try:
        found = in_turn(found, product.units, choices.swizzle)
    except ConstraintError as error:
        error.message = f"Schedule(persistent=True): {error.message}"
        raise
    return replace(found, graph=replace(found.graph, notes=(*found.graph.notes, f"persistent: {found.note}")))


def _cut(graph: Graph, dims: Mapping[Any, Any], target: Target, product: Product, choices: Choices) -> Split:
    """The graph in as many parts as are asked for, or predicted to pay; the whole one where that is one."""
    asked = choices.split
    if asked is None:
        parts, why = _predicted(graph, dims, target, product, choices)
    else:
        parts, why = asked, "as asked for"
    along_parts = (*(choices.cluster or ()), 1, 1, 1)[2]
    if along_parts > 1:
        return _joined(graph, dims, along_parts, choices)
    if parts == 1:
        return whole(graph, dims, why)
    try:
        # Where lanes hold no neighbours of a product, both parts are read as the result is stored, in wider accesses:
        # by the models 3 % fewer clocks there (128 x 128 on gfx942 and gfx950), but 2 to 6 % more on NVIDIA's chips.
        found = split(graph, dims, parts, target.paired_results, choices.cluster or ())
    except ConstraintError as error:
        if asked is not None:
            error.message = f"Schedule(split_k={asked}): {error.message}"
        raise
    return replace(found, graph=replace(found.graph, notes=(*graph.notes, f"split_k: {parts} ({why})")))


def _joined(graph: Graph, dims: Mapping[Any, Any], parts: int, choices: Choices) -> Split:
    """The graph with its loop cut in the parts of a cluster, which the third extent of what is asked for counts."""
    from wavedsl.ir.dataflow.joined_parts import joined

    asked = f"Schedule(cluster={tuple(choices.cluster or ())}"
    if choices.split != parts:
        given = "" if choices.split is None else f", split_k={choices.split}"
        raise ConstraintError(
            f"{asked}{given}): the third extent of a cluster counts the parts of split_k, which its workgroups add",
            graph.loc, f"split_k={parts}; or a cluster along the first two grid axes",
        )  # fmt: skip
    try:
        found = joined(graph, dims, parts)
    except ConstraintError as error:
        error.message = f"{asked}, split_k={parts}): {error.message}"
        raise
    note = f"split_k: {parts} (as asked for), joined in clusters"
    return replace(found, graph=replace(found.graph, notes=(*graph.notes, note)))


def _streamed(graph: Graph, dims: Mapping[Any, Any], product: Product, choices: Choices) -> Split:
    """The graph with its trips dealt, to one workgroup per compute unit where the user gives no number."""
    from wavedsl.ir.grid.stream_k import stream  # which loads more of the compiler than a call that is known needs

    asked = choices.stream
    cluster = choices.cluster or ()
    if asked is True:
        apart = [d.extent for d in cuts(graph, dims).values() if d.axis is not None and d.dim in graph.index_dims]
        workers = max(1, product.units // max(1, prod(n for n in apart if isinstance(n, int))))
        workers = max(1, workers // prod(cluster)) * prod(cluster)
    else:
        workers = int(asked or 1)
    try:
        found = stream(graph, dims, workers, choices.swizzle, cluster)
    except ConstraintError as error:
        error.message = f"Schedule(stream_k={asked}): {error.message}"
        raise
    return replace(found, graph=replace(found.graph, notes=(*graph.notes, f"stream_k: {found.note} (as asked for)")))


def whole(graph: Graph, dims: Mapping[Any, Any], why: str) -> Split:
    """The graph as it was, with the reason."""
    return Split(replace(graph, notes=(*graph.notes, f"split_k: 1 ({why})")) if why else graph, dims)


def _predicted(
    graph: Graph, dims: Mapping[Any, Any], target: Target, product: Product, choices: Choices
) -> tuple[int, str]:
    """(parts, why); no reason where the question does not arise."""
    try:
        loop = loop_to_cut(graph)
        cut = cuts(graph, dims)
    except ConstraintError:
        return 1, ""
    body: Region = loop.attrs["body"]
    tiles, extent = grid_tiles(cut), cut[body.dim].extent
    if choices.roles or choices.ping_pong or choices.dependent or choices.turns:
        return 1, "the schedule asks for " + ", ".join([*choices.roles, *_more(choices)])
    if tiles is None or not isinstance(extent, int) or loop_bounds(loop) != (None, None):
        return 1, "the grid or the loop is known at launch only"
    trips = ceil(extent / (cut[body.dim].loop or 1))
    model = _Model.of(loop, cut, dims, product, target, tiles, trips)
    places = product.units * (model.room if model is not None else 1)
    if 2 * tiles > places:
        return 1, f"{tiles} tiles for {product.units} units"
    least = LEAST_TRIPS if model is None or not model.waits else LEAST_WAITING
    most = min(MOST_PARTS, places // max(tiles, 1), trips // least)
    if most < 2 or not _plain(graph, loop):
        return 1, f"{trips} trips are too few" if most < 2 else "more than elementwise work follows the loop"
    if model is None:
        return 1, "a trip holds loops of its own"
    times = {n: model.seconds(n) for n in range(1, most + 1)}
    if model.waits:
        times = {n: s * (UNEVEN if trips % n else 1.0) for n, s in times.items()}
    best = min(times, key=lambda n: (times[n], n))
    if model.waits:
        best = min((n for n in times if times[n] <= ALIKE * times[best]), key=lambda n: (n & (n - 1) > 0, n))
    said = f"{tiles} tiles of {trips} trips for {product.units} units: predicted {1e6 * times[1]:.1f} us in one part"
    gain = WAITING_GAIN if model.waits else GAIN
    if times[best] > gain * times[1]:
        return 1, said + (f", {1e6 * times[best]:.1f} in {best}" if best > 1 else "")
    return best, f"{said}, {1e6 * times[best]:.1f} in {best}"


def _more(choices: Choices) -> list[str]:
    return [name for name in ("ping_pong", "dependent") if getattr(choices, name)] + ["persistent"] * choices.turns


def _plain(graph: Graph, loop: Node) -> bool:
    """Whether no loop, condition or product comes behind the loop."""
    after = graph.region.nodes[graph.region.nodes.index(loop) + 1 :]
    return not any(n.op in (*REGIONS, *PRODUCTS) for n in after)


def _instructions(n: Node) -> int:
    """Of an elementwise operation, per element or pair."""
    source = n.inputs[0].type if n.op == "cast" and n.inputs else None
    return WIDENED.get(source.dtype.bits, 1) if isinstance(source, ValueType) else 1


@dataclass(frozen=True)
class _Model:
    """One loop on one product. Seconds and bytes; `trip` of a unit's pipes, `turn` of one workgroup from trip to trip,
    `waits`: for memory in each, `room` the workgroups that a unit has at a time."""

    trip: float
    turn: float
    waits: bool
    room: int
    trip_bytes: float
    unique_bytes: float
    sums: float
    tiles: int
    trips: int
    product: Product
    target: Target

    @staticmethod
    def of(
        loop: Node, cut: Mapping[Any, ResolvedDim], dims: Mapping[Any, Any], product: Product, target: Target,
        tiles: int, trips: int,
    ) -> _Model | None:  # fmt: skip
        body: Region = loop.attrs["body"]
        if any(n.op in REGIONS for n in body.nodes):
            return None

        def whole(d: Any) -> float:
            found = evaluate(d, dims)
            return float(found) if isinstance(found, int) else inf

        def tile(d: Any) -> float:
            """Elements that a workgroup has of a dimension in one trip; `K / 32` is cut as K is."""
            own = cut.get(d)
            if own is not None:
                return float(own.workgroup or own.loop or 1)
            shares = (tile(s) / max(whole(s), 1) for s in getattr(d, "free_symbols", ()) if s in cut)
            return whole(d) * prod(shares)

        def elements(t: ValueType) -> float:
            return prod(tile(d) for d in t.dims)

        seconds = beside = moved = unique = once = 0.0
        rates = product.matrix_rates(target)
        for n in region_nodes(body):
            if not isinstance(n.type, ValueType) or n.op == "carry":
                continue
            if n.op == "read":
                tile_bytes = elements(n.type) * n.dtype.bits / 8
                array = prod(whole(d) for d in n.dims) * n.dtype.bits / 8
                moved += tile_bytes
                unique += array
                if tile_bytes * tiles * trips < SEVERAL * array:
                    once += array
            elif n.op in PRODUCTS:
                a = n.inputs[0].type
                assert isinstance(a, ValueType)
                along = prod(tile(d) for d in a.dims if d not in n.dims)
                rate = rates.get(a.dtype.name, float(product.vector.get(a.dtype.name, product.vector["f32"])))
                seconds += 2 * elements(n.type) * along / (rate * product.clock)
            elif ROWS[n.op].compute is not None or n.op in ("cast", "sum"):
                operands = [x for x in n.inputs if isinstance(x.type, ValueType)]
                widest = max((elements(x.type) for x in operands), default=1.0)  # type: ignore[arg-type]
                rate = float(product.vector.get(n.dtype.name, product.vector["f32"])) / FLOPS
                beside += widest * _instructions(n) / (rate * product.clock)
        port = product.unit_port(target, "load.global") * product.clock
        carried = sum(elements(c.type) * c.dtype.bits / 8 for c in body.carries if isinstance(c.type, ValueType))
        wait, room = 0.0, 1
        shared = any(
            n.op in PRODUCTS and prod(max(1, tile(d) // target.tile_rows) for d in n.dims) > 1
            for n in region_nodes(body)
        )
        if shared and (not target.copy_async or target.copy_linear):
            # Tiles that several waves need are copied a trip ahead. What registers hold, and what is copied without
            # them, is asked for as many trips ahead as it takes.
            served = target.cost("load.global", VECTOR_BYTES).latency / product.clock
            wait = product.latency if 2 * once > unique else served
            slots = int(target.shared_bytes // max(1.0, moved))
            room = max(1, min(BESIDE, slots // 2 if slots >= 4 else slots))  # two slots each, or one that leaves room
        turn = wait + max(beside, moved / port)
        trip = max(seconds + beside, moved / port)
        if not wait and shared:
            turn = max(trip, ALONE * beside + MEETING / product.clock)
            room = max(1, min(BESIDE, int(target.shared_bytes // max(1.0, SLOTS * moved))))
        elif not wait:
            turn = trip
        return _Model(trip, turn, wait > 0, room, moved, unique, carried, tiles, trips, product, target)

    def seconds(self, parts: int) -> float:
        """Predicted seconds of the kernel in so many parts."""
        p = self.product
        each = ceil(self.tiles * parts / p.units)
        asked = self.tiles * self.trips * self.trip_bytes
        loop = ceil(self.trips / parts) * max(each * self.trip, ceil(each / self.room) * self.turn)
        exchange = 0.0
        if parts > 1:
            port = p.unit_port(self.target, "load.global") * p.clock
            one = self.sums / port
            exchange = one + 2 * p.latency + parts * max(p.latency, one)
            if self.waits:
                exchange = each * one + 4 * p.latency + parts * max(p.latency / SIDE_BY_SIDE, WORD_BY_WORD * one)
            asked += 2 * self.tiles * parts * self.sums
        memory = max(self.unique_bytes / p.hbm, asked / p.l2_bandwidth(self.target))
        whole = hypot(loop, memory) if self.waits else max(loop, memory)
        return p.latency + whole + exchange


__all__ = ["GAIN", "LEAST_TRIPS", "chosen_split", "whole"]
