"""Results that take the place of what they are computed of: alpha A B + beta C, written to C.

In: reads and writes of an array that a kernel both reads and writes. Out: whether each element is read before its own
store by the lane that stores it. Then reads may come as late as stores do (`late_reads`), panel by panel, and stores
may be bulk copies (`bulk_store`): what a copy overwrites went into what it stores. If not, why.

A read is stored over by a write if

    behind      the write is the one of the read's region that changes the array, and follows the read;
    same place  both move the same tile, placed by the same numbers, and no tile has an element of the array twice;
    feeds       what is written is computed from what is read element by element, so that a store needs its load;
    one lane    each element is in one lane of one wave: nobody else reads it, maybe later.

A bulk copy ends at no place of the program, so moreover nobody may read its elements afterwards: no second branch that
is taken as well, no trip of a loop that comes back to the tile.
"""

from __future__ import annotations

from collections.abc import Iterator

from wavedsl.ir.dataflow.graph import PRODUCTS, Node, Region, ValueType, region_nodes
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import Placement, placement, view_dims
from wavedsl.ir.grid.turns import TURNS
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.lower.lowering import Lowering

OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def elementwise(low: Lowering, n: Node) -> bool:
    """Whether an element of a node's value is computed from the elements of its operands at the same place."""
    return n.op not in PRODUCTS and (ROWS[n.op].index_rule in ("same", "lift") or sums_one(low, n))


def sums_one(low: Lowering, n: Node) -> bool:
    """Whether a sum is along a dimension whose tiles have one element, which every lane has."""
    if n.op != "sum":
        return False
    plan = low.plans[str(n.attrs["dim"])]
    return plan.tile == plan.wave == plan.waves == 1


def stored_over(low: Lowering, read: Node) -> Node | None:
    """The write that puts a result where a read's elements were; None where `order_problem` says why not."""
    return None if order_problem(low, read) else _changes(low, read)[0]


def order_problem(low: Lowering, read: Node) -> str:
    """Why the loads of a read have to come before all stores to its array in its region; empty if each has only to
    come before the store of its own elements."""
    region, name = low.region_of(read), read.attrs["memory"]
    found = _changes(low, read)
    if len(found) != 1 or found[0].op != "write" or low.region_of(found[0]) is not region:
        return f"more than one write beside this read changes {name}"
    write = found[0]
    if region.nodes.index(write) < region.nodes.index(read):
        return f"{name} is read behind the write"
    places = placement(low.graph, read), placement(low.graph, write)
    value = write.inputs[0]
    if None in places or places[0] != places[1] or view_dims(low.graph, read) != view_dims(low.graph, write):
        return f"{name} is read at one place and written at another"
    if _repeats(low, write, places[0]):
        return f"elements of a tile are one element of {name}"
    if set(read.dims) != set(value.dims) or not _feeds(low, read, value):
        return f"what is written is not computed element by element from what is read of {name}"
    layout = low.layout(read)
    converted = low.inference.demands.get((write.id, 0)) is not None
    if converted or not same_layout(layout, low.layout(value)) or layout.replica_bits("l"):
        return f"lanes store other elements of {name} than they read"
    shared = next((d for d, plan in low.plans.items() if plan.waves > 1 and d not in layout.dims), None)
    if shared is not None:
        return f"waves that share {shared} read the same elements of {name}, and one of them writes"
    return ""


def bulk_problem(low: Lowering, write: Node) -> str:
    """Why a write to an array that is read as well may not be a bulk copy, which others' reads do not wait for; empty
    if it may: all reads are stored over by it, or stand in a branch that is taken only when its own is not."""
    name, region = write.attrs["memory"], low.region_of(write)
    touching = [n for n in low.graph.all_nodes() if n.attrs.get("memory") == name and n.op != "write"]
    if not touching:
        return ""
    for n in touching:
        if n.op != "read":
            return f"{name} is changed by {n.op} too"
        if low.region_of(n) is region:
            if problem := order_problem(low, n):
                return problem
            if n.id in low.reads.fetched or n.id in low.reads.matrix_uses:
                return f"bulk copies bring {name} for products"
        elif not _exclude(low, low.region_of(n), region):
            return f"{name} is read elsewhere as well"
    return next((p for loop in _around(low, region) if (p := _comes_back(low, loop, write))), "")


def _changes(low: Lowering, read: Node) -> list[Node]:
    """The nodes of a read's region, and of regions inside, that change its array."""
    name = read.attrs["memory"]
    return [n for n in region_nodes(low.region_of(read)) if ROWS[n.op].effect and n.attrs.get("memory") == name]


def _repeats(low: Lowering, write: Node, found: Placement | None) -> bool:
    info = low.view_info(write)
    broadcast = any(s == 0 and e != 1 for s, e in zip(info.strides, info.extents))
    return broadcast or (found is not None and any(m.modulus is not None for m in found.moved.values()))


def _feeds(low: Lowering, read: Node, value: Node) -> bool:
    """Whether a value is computed of a read, all the way by steps that keep elements' places in one region."""
    region = low.region_of(read)
    work, seen = [value], {value.id}
    while work:
        n = work.pop()
        if n is read:
            return True
        if low.region_of(n) is not region or not elementwise(low, n):
            continue
        for x in n.inputs:
            if x.id not in seen and isinstance(x.type, ValueType) and set(read.dims) <= set(x.dims):
                seen.add(x.id)
                work.append(x)
    return False


def _owner(low: Lowering, region: Region) -> Node | None:
    """The node whose body a region is; None for the kernel's own."""
    return next((n for n in low.graph.all_nodes() if n.attrs.get("body") is region), None)


def _around(low: Lowering, region: Region) -> Iterator[Node]:
    """Nodes that a region is inside of, the innermost first."""
    while (owner := _owner(low, region)) is not None:
        yield owner
        region = low.region_of(owner)


def _exclude(low: Lowering, one: Region, other: Region) -> bool:
    """Whether one of two regions at most is carried out: they are in branches with opposite conditions."""
    mine, theirs = list(_around(low, one)), list(_around(low, other))
    return any(
        x.op == y.op == "when" and low.region_of(x) is low.region_of(y) and _opposite(x.inputs[0], y.inputs[0])
        for x in mine
        for y in theirs
    )


def _opposite(x: Node, y: Node) -> bool:
    """Whether one of two comparisons holds where the other does not."""
    return OPPOSITE.get(x.op) == y.op and all(map(_same_number, x.inputs, y.inputs))


def _same_number(x: Node, y: Node) -> bool:
    if x is y:
        return True
    return x.op == y.op == "constant" and x.attrs["value"] == y.attrs["value"] and x.dtype is y.dtype


def _comes_back(low: Lowering, loop: Node, write: Node) -> str:
    """Why a loop around a write may come back to its tile; empty if each trip has a tile of its own."""
    if loop.op == "when":
        return ""
    dim = str(loop.attrs["body"].dim)
    if loop.op == "iterate":
        found = placement(low.graph, write)
        placed = set(low.arrays[write.attrs["memory"]].names) - set(found.fixed) - set(found.moved) if found else set()
        # A workgroup's turns are different tiles (`stream_k`).
        if dim == TURNS or dim in placed or low.plans[dim].trips == 1:
            return ""
        return f"{write.attrs['memory']} is read in every trip of the loop over {dim}"
    return f"{write.attrs['memory']} is read in every trip of a loop"


__all__ = ["bulk_problem", "elementwise", "order_problem", "stored_over", "sums_one"]
