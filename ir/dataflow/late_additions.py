"""Products of a trip that start from zero are added to a loop's sums in the next trip.

In: a traced graph, a target. Out: a graph in which a loop that carries `acc + x y` carries the product too, and adds
that of the trip before right in front of this trip's. On chips whose products run beside what follows them, it is then
not waited for in its own trip: operands are fetched, cast and stored while it runs. The last one is added behind the
loop. Sums are added in the order in which they were, after a zero.

Invariant: the graph that was traced is not changed; it stays what the kernel means.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.constraints import WaveConstraint
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType, addend
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dtypes import tf32
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target


@dataclass(frozen=True)
class _Late:
    """Of a loop: the `position` of the sum it carries, the addition, the product that is added, and the type of all."""

    position: int
    sum: Node
    product: Node
    type: ValueType


def late_additions(graph: Graph, target: Target) -> Graph:
    """The graph with such products carried; itself where there are none, or none runs beside what follows it."""
    if target.warpgroup is None:
        return graph
    late = {n.id: found for n in graph.all_nodes() if n.op == "iterate" and (found := _late(graph, n, target))}
    if not late:
        return graph
    loops = {n.id: n for n in graph.all_nodes() if n.id in late}

    def change(copy: Copy, n: Node) -> Node:
        if n.id in late:
            loop = _carried(copy, n, late[n.id])
            return loop if isinstance(n.type, tuple) else _added(copy, loop, late[n.id][0], 1)
        if n.op == "result" and n.inputs[0].id in late:
            before = loops[n.inputs[0].id]
            count = len(before.attrs["body"].carries)
            for i, x in enumerate(late[before.id]):
                if x.position == n.attrs["position"]:
                    return _added(copy, copy.made[before.id], x, count + i)
        return copy.same(n)

    return copied(graph, change)


def _late(graph: Graph, loop: Node, target: Target) -> list[_Late]:
    """The sums of a loop that are those of products from zero, each added once and used for nothing else."""
    body = loop.attrs["body"]
    if any(isinstance(c, WaveConstraint) and c.dim == body.dim for c in graph.constraints):
        return []
    users: dict[int, list[Node]] = {}
    for n in graph.all_nodes():
        for x in n.inputs:
            users.setdefault(x.id, []).append(n)
    yields = [x.id for region in graph.regions() for x in region.yields]
    found = []
    for position, (carry, last) in enumerate(zip(body.carries, body.yields)):
        if last.op != "add" or last not in body.nodes or carry not in last.inputs or yields.count(last.id) != 1:
            continue
        (product,) = [x for x in last.inputs if x is not carry] or [carry]
        if product.op != "mma" or product not in body.nodes or product.id in yields or users.get(last.id):
            continue
        dtype = tf32 if product.attrs.get("precision") not in (None, "ieee") else product.inputs[0].dtype
        start = addend(product)
        zero = start is None or (start.op in ("fill", "constant") and not start.attrs["value"])
        alone = users[product.id] == [last] == users[carry.id]
        if not isinstance(last.type, ValueType) or last.type != product.type:
            continue
        if zero and alone and target.warpgroups_multiply(dtype):
            found.append(_Late(position, last, product, last.type))
    return found


def _carried(copy: Copy, n: Node, late: list[_Late]) -> Node:
    """The loop with its products carried."""
    body = n.attrs["body"]
    types = n.type if isinstance(n.type, tuple) else (n.type,) if n.type is not None else ()
    more = tuple(x.type for x in late)
    zeros = tuple(copy.add("fill", (), {"value": 0.0, "dims": t.dims, "dtype": t.dtype}, t, n.loc) for t in more)
    count = len(body.carries)
    inputs = copy.of(n.inputs)
    attrs = n.attrs
    if "bounds" in attrs:  # behind what is carried
        attrs = {**attrs, "bounds": tuple(None if x is None else x + len(late) for x in attrs["bounds"])}
    loop = copy.same(n, (*inputs[:count], *zeros, *inputs[count:]), attrs=attrs, type=(*types, *more))
    inner = loop.attrs["body"]
    for i, x in enumerate(late):
        of = x.type
        attrs = {"position": count + i, "name": f"product{i}", "dims": of.dims, "dtype": of.dtype}
        before = Node(copy.fresh, "carry", (), attrs, of, x.product.loc)
        copy.fresh += 1
        inner.carries.append(before)
        total, product = copy.made[x.sum.id], copy.made[x.product.id]
        total.inputs = tuple(before if y is product else y for y in total.inputs)
        inner.nodes.remove(total)
        inner.nodes.insert(inner.nodes.index(product), total)
        inner.yields = (*inner.yields, product)
    return loop


def _added(copy: Copy, loop: Node, late: _Late, last: int) -> Node:
    """The sum behind the loop, and the last trip's product, which it carries at position `last`."""
    both = tuple(copy.add("result", (loop,), {"position": p}, late.type, late.sum.loc) for p in (late.position, last))
    return copy.add("add", both, {}, late.type, late.sum.loc)


__all__ = ["late_additions"]
