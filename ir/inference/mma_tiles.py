"""Operands of products as tiles in shared memory: which reads, computed values and paired rows the graph allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import pairwise
from math import prod
from typing import Any

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.spread_products import Spread, spread_products
from wavedsl.ir.dataflow.graph import Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.mma_dims import product_dims
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_tile, placement
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import AddressSpace
from wavedsl.ir.target import Target


@dataclass(frozen=True)
class SharedOperands:
    """Where operands of asynchronous instructions may lie, each found by the function of that name.

    `reads`: `shared_reads`. (product, input position) of others: `makeable`, `lasting`, `resident` and `held` operands.
    `paired`: products (`paired_products`).
    """

    reads: frozenset[int] = frozenset()
    makeable: frozenset[tuple[int, int]] = frozenset()
    lasting: frozenset[tuple[int, int]] = frozenset()
    resident: frozenset[tuple[int, int]] = frozenset()
    held: frozenset[tuple[int, int]] = frozenset()
    paired: frozenset[int] = frozenset()
    gathered: frozenset[int] = frozenset()
    """Those of `reads` that are no tiles: threads copy them, past the port of shared memory that instructions ask."""
    spread: Mapping[int, Spread] = field(default_factory=dict)
    """Products whose result waves share out, by number."""

    def sizes(self, node: Node, partition: Partition) -> dict[Any, int]:
        """What one wave has of each dimension of a product."""
        found = {d: partition.dims[d].wave for x in node.inputs for d in x.dims}
        if node.id in self.spread:
            spread = self.spread[node.id]
            found |= {spread.over: partition.dims[spread.over].tile, spread.dim: spread.share}
        return found


def shared_operands(
    graph: Graph, partition: Partition, feeds: Mapping[tuple[int, int], int], target: Target
) -> SharedOperands:
    """What holds of a graph; nothing where the chip has no asynchronous instructions. `feeds`: (product, input
    position) → the product whose result stands there."""
    if not target.asynchronous:
        return SharedOperands()
    reads, made = shared_reads(graph), makeable(graph)
    spread = spread_products(graph, partition, reads)
    resident = resident_operands(graph, partition, reads, target, frozenset(spread))
    lasting = lasting_operands(graph, made)
    held = held_operands(graph, partition, made, target)
    made |= {(number, x.computed) for number, x in spread.items()}
    paired = paired_products(graph, partition, feeds, reads)
    return SharedOperands(reads, made, lasting, resident, held, paired, reads & graph.gathered, spread)


def shared_reads(graph: Graph) -> frozenset[int]:
    """Reads that matrix instructions may take straight from shared memory: of whole bytes, used by products alone, of
    tiles or of runs that copies can have."""
    users: dict[int, list[tuple[Node, int]]] = {}
    for n in graph.all_nodes():
        for position, x in enumerate(n.inputs):
            users.setdefault(x.id, []).append((n, position))
    found = set()
    for n in graph.all_nodes():
        if n.op != "read" or n.dtype.bits < 8 or len(n.dims) != 2:
            continue
        if not is_tile(graph, n) and n.id not in graph.gathered:
            continue
        space = graph.argument(n.attrs["memory"]).address_space
        if graph.subs.get(space, space) is AddressSpace.GLOBAL:
            continue
        if all(u.op == "mma" and position < 2 for u, position in users.get(n.id, ())):
            found.add(n.id)
    return frozenset(found)


def makeable(graph: Graph) -> frozenset[tuple[int, int]]:
    """(product, input position) of operands that waves may leave in shared memory: of whole bytes, computed element by
    element from arrays and constants in the region of the product."""
    known: dict[int, bool] = {}

    def by_element(x: Node) -> bool:
        return x.op in ROWS and ROWS[x.op].index_rule == "same"

    def elementwise(n: Node) -> bool:
        for x in postorder(n, lambda x: x.inputs if by_element(x) else (), known):
            source = x.op in ("read", "constant", "fill", "scalar", "size", "index")
            known[x.id] = source or (by_element(x) and all(known[y.id] for y in x.inputs))
        return known[n.id]

    out = set()
    for region in graph.regions():
        inside = {n.id for n in region.nodes}
        for n in region.nodes:
            if n.op != "mma":
                continue
            for position, x in enumerate(n.inputs[:2]):
                computed = x.op not in ("read", "constant", "fill") and x.id in inside
                if computed and len(x.dims) == 2 and x.dtype.bits >= 8 and elementwise(x):
                    out.add((n.id, position))
    return frozenset(out)


LASTING = 32
"""Registers per lane from which on an operand that a loop does not change is better stored once and read from shared
memory in every trip: V of 8 bits, cast, has 32 at a head size of 128, which do not fit beside the sums of dK and dV."""


def lasting_operands(graph: Graph, made_tiles: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Those of `makeable` that do not have the dimension of the loop around their product."""
    return frozenset(
        (n.id, position)
        for region in graph.regions()
        for n in region.nodes
        for position in (0, 1)
        if (n.id, position) in made_tiles and region.dim is not None and region.dim not in n.inputs[position].dims
    )


NARROW = 96
"""Columns up to which an instruction with A in shared memory asks more of that memory than it has beside copies: one of
64 rows and n columns reads 2048 + 32 n bytes per 16 of K, in n / 2 clocks of 128 bytes each; without A half of that."""
REGISTER_FILE = 65536
"""32-bit registers of a unit."""
REGISTER_STEP = 8
PRODUCER_REGISTERS = 24
"""Registers per thread of a role that only copies: the least there is."""
MOST_REGISTERS = 240
"""Registers per thread that two computing warpgroups can have beside a copying one with the least."""
SPARE = 48
"""Of these, registers for addresses, rows and what scores take on their way."""


def held_operands(
    graph: Graph, partition: Partition, made_tiles: frozenset[tuple[int, int]], target: Target
) -> frozenset[tuple[int, int]]:
    """Those of `makeable` of 32 bits that a warpgroup's registers hold, both numbers of each element, while the other
    operand lies in shared memory: of loops whose products, each with two of `makeable`, add up to one sum
    (`product_pieces`). An instruction then asks that memory for half of what it reads with both there."""
    found: set[tuple[int, int]] = set()
    lanes = target.wave_size
    room = warpgroup_registers(partition.waves, lanes) - SPARE
    for region in graph.regions():
        products = [n for n in region.nodes if n.op == "mma"]
        chained = all(len(n.inputs) > 2 and n.inputs[2] is x for x, n in pairwise(products))
        both = all((n.id, p) in made_tiles and n.inputs[p].dtype.bits == 32 for n in products for p in (0, 1))
        if region.dim is None or not products or not chained or not both:
            continue
        if any(region.dim not in x.dims for n in products for x in n.inputs[:2]):
            continue
        carried = sum(_words(partition, n, lanes) for n in region.carries if isinstance(n.type, ValueType))
        for position in (0, 1):
            numbers = {n.inputs[position].id: n.inputs[position] for n in products}
            if carried + sum(_words(partition, x, lanes) for x in numbers.values()) <= room:
                found.update((n.id, position) for n in products)
    return frozenset(found)


def warpgroup_registers(waves: int, lanes: int) -> int:
    """Registers of a lane at most, of so many computing warpgroups beside a copying one."""
    shared_out = (REGISTER_FILE // lanes - PRODUCER_REGISTERS) // waves // REGISTER_STEP * REGISTER_STEP
    return min(MOST_REGISTERS, shared_out)


def resident_operands(
    graph: Graph, partition: Partition, read_tiles: frozenset[int], target: Target,
    spread: frozenset[int] = frozenset(),
) -> frozenset[tuple[int, int]]:  # fmt: skip
    """(product, input position) of read tiles that are better held in registers than read from shared memory in every
    trip: ones that a loop does not change, of products with few columns whose results the loop uses itself (Q and dO of
    attention's dQ), as far as a warpgroup has registers for them beside what the loop carries and computes. Not where
    tiles lie where numbers say (packed sequences, pages): their bounds and addresses take registers too. Products that
    are `spread` read all of a tile, of which no warpgroup holds more than its share."""
    found: set[tuple[int, int]] = set()
    lanes = target.wave_size
    room = warpgroup_registers(partition.waves, lanes) - SPARE
    for region in graph.regions():
        products = [n for n in region.nodes if n.op == "mma"]
        if region.dim is None or not products or _placed_by_numbers(graph, region):
            continue
        inside = {n.id for n in region.nodes}
        values = [n for n in (*region.carries, *products) if n.type is not None and len(n.dims) > 1]
        summed = {n.id for n in products if any(x in region.carries for x in n.inputs[2:])}
        taken = sum(_words(partition, n, lanes) for n in values if n.id not in summed)
        made = {x.id: x for n in products for x in n.inputs[:2] if x.id in inside and x.id not in read_tiles}
        taken += sum(_words(partition, x, lanes) for x in made.values())
        sums = sum(_words(partition, n, lanes) for n in values if n.id not in summed)
        taken += max(0, _most_live(partition, region, read_tiles, lanes) - sums)
        for n in products:
            for position in (0, 1):
                x, other = n.inputs[position], n.inputs[1 - position]
                lasts = x.id in read_tiles and region.dim not in x.dims and region.dim in other.dims
                columns = [d for d in other.dims if d not in x.dims]
                if not lasts or n.id in summed or n.id in spread or len(columns) != 1:
                    continue
                size = _words(partition, x, lanes)
                if partition.dims[columns[0]].wave <= NARROW and taken + size <= room:
                    taken += size
                    found.add((n.id, position))
    # A read is a tile or a fragment, whichever product it is for: one of another loop may want the tile.
    uses = [(n.id, p, n.inputs[p].id) for n in graph.all_nodes() if n.op == "mma" for p in (0, 1)]
    tiles = {x for product, position, x in uses if (product, position) not in found}
    return frozenset(
        (product, position) for product, position, x in uses if (product, position) in found and x not in tiles
    )


def _placed_by_numbers(graph: Graph, region: Region) -> bool:
    """Whether numbers that the kernel reads say where tiles of a loop lie."""
    places = [placement(graph, n) for n in region.nodes if n.op == "read"]
    return any(place is not None and place.numbers() for place in places)


def _most_live(partition: Partition, region: Region, read_tiles: frozenset[int], lanes: int) -> int:
    """The most registers per lane that the values of a loop's body with two dimensions or more take, in program
    order."""
    last = {x.id: i for i, n in enumerate(region.nodes) for x in n.inputs}
    last.update({y.id: len(region.nodes) for y in region.yields})
    wide = {
        n.id: _words(partition, n, lanes)
        for n in (*region.carries, *region.nodes)
        if isinstance(n.type, ValueType) and len(n.dims) > 1 and n.id not in read_tiles and n.op not in SAME
    }
    live = most = sum(wide.get(c.id, 0) for c in region.carries)
    for i, n in enumerate(region.nodes):
        live += wide.get(n.id, 0) if n.id in last else 0
        live -= sum(wide.get(x.id, 0) for x in {x.id: x for x in n.inputs}.values() if last[x.id] == i)
        most = max(most, live)
    return most


SAME = ("fill", "constant", "scalar", "size")
"""Ops that give the same value in every iteration and take no registers of their own."""


def _words(partition: Partition, n: Node, lanes: int) -> int:
    """Registers per lane of a value's wave tile."""
    return prod(partition.dims[d].wave for d in n.dims) * n.dtype.bits // 32 // lanes


PAIRED = 4
"""Rows of a tile that are taken apart, two and two."""


def paired_products(
    graph: Graph, partition: Partition, feeds: Mapping[tuple[int, int], int], read_tiles: frozenset[int]
) -> frozenset[int]:
    """Products whose results become 8-bit operands of others in registers, and whose second operand's rows can be
    brought to shared memory in pairs: then a lane gets the columns of four neighbours, which it would have to fetch
    from others. The rows must be whole fours, counted from the array's first."""
    nodes = {n.id: n for n in graph.all_nodes()}
    users: dict[int, list[Node]] = {}
    for n in nodes.values():
        for x in n.inputs:
            users.setdefault(x.id, []).append(n)
    found = set()
    for (user, position), producer in feeds.items():
        if nodes[user].inputs[position].dtype.bits != 8 or nodes[producer].op != "mma":
            continue
        x = nodes[producer].inputs[1]
        if x.id not in read_tiles or len(users[x.id]) != 1:
            continue
        place = placement(graph, x)
        _, n, _ = product_dims(nodes[producer])
        array = graph.argument(x.attrs["memory"])
        plan = partition.dims.get(n)
        if place is None or place.moved or plan is None or plan.extent is None or len(array.dims) > 4:
            continue
        if plan.extent % PAIRED == 0 and plan.tile % PAIRED == 0 and str(array.dims[-1]) != str(n):
            found.add(producer)
    return frozenset(found)
