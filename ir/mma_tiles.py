"""Operands of products as tiles in shared memory: which reads, computed values and paired rows the graph allows."""

from __future__ import annotations

from collections.abc import Mapping

from wavedsl.ir.graph import Graph, Node
from wavedsl.ir.mma_dims import product_dims
from wavedsl.ir.ops import ROWS
from wavedsl.ir.partition import Partition
from wavedsl.ir.symbols import AddressSpace
from wavedsl.ir.views import is_tile, placement


def shared_reads(graph: Graph) -> frozenset[int]:
    """Reads that matrix instructions may take straight from shared memory: of whole bytes, used by products alone."""
    users: dict[int, list[tuple[Node, int]]] = {}
    for n in graph.all_nodes():
        for position, x in enumerate(n.inputs):
            users.setdefault(x.id, []).append((n, position))
    found = set()
    for n in graph.all_nodes():
        if n.op != "read" or n.dtype.bits < 8 or len(n.dims) != 2 or not is_tile(graph, n):
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
    plain: dict[int, bool] = {}

    def elementwise(x: Node) -> bool:
        found = plain.get(x.id)
        if found is None:
            source = x.op in ("read", "constant", "fill", "scalar", "size", "index")
            found = source or (x.op in ROWS and ROWS[x.op].index_rule == "same" and all(map(elementwise, x.inputs)))
            plain[x.id] = found
        return found

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
