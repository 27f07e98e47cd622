"""Matrix products of f32 at the precision that was asked for: which instructions carry them out on a target.

In: a traced graph whose `mma` nodes may have a `precision`, a target. Out: a graph of plain products. `tf32` multiplies
operands cut or rounded to tf32. `3xtf32` splits each operand in a tf32 number and a tf32 remainder and adds three
products, the small ones first: remainder times remainder is below f32's own rounding. Where a chip has no tf32
instruction, its f32 ones take over, which are more precise than asked for. `ieee` is what a product without a precision
is: f32 operands as they are.

Invariant: the graph that was traced is not changed; it stays what the kernel means.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.graph import Graph, Node, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dtypes import f32, tf32
from wavedsl.ir.functions.lower_cast import HIGH, LOW
from wavedsl.ir.target import Target


def at_precision(graph: Graph, target: Target) -> Graph:
    """The graph with every product's precision carried out for the target; itself where none asks for one."""
    if not any("precision" in n.attrs for n in graph.all_nodes() if n.op == "mma"):
        return graph
    products = _Products(graph, target.multiplies(tf32))
    return copied(graph, products.change)


class _Products:
    """What the products of a graph become. `tensor`: whether the target multiplies tf32."""

    def __init__(self, graph: Graph, tensor: bool):
        self.tensor = tensor
        self.parts: dict[tuple[int, int], tuple[Node, Node]] = {}
        """(region, operand) → its tf32 number and remainder."""
        users: dict[int, list[tuple[Node, int]]] = {}
        for n in graph.all_nodes():
            for position, x in enumerate(n.inputs):
                users.setdefault(x.id, []).append((n, position))
        yielded = {x.id for region in graph.regions() for x in region.yields}
        self.cut = {
            n.id
            for n in graph.all_nodes()
            if tensor and n.op == "read" and n.dtype is f32 and users.get(n.id) and n.id not in yielded
            and all(u.attrs.get("precision") == "tf32" and position < 2 for u, position in users[n.id])
        }  # fmt: skip
        """Reads that only such products use: their bits go to the instruction as they are, which cuts off the low."""
        self.parted = {
            n.id for n in graph.all_nodes()
            if tensor and n.op == "read" and n.dtype is f32
            and any(u.attrs.get("precision") == "3xtf32" and position < 2 for u, position in users.get(n.id, ()))
        }  # fmt: skip
        """Reads of operands that become two, right behind them: before what waits for products of the trip before."""

    def change(self, copy: Copy, n: Node) -> Node:
        if n.op == "mma" and "precision" in n.attrs:
            return self.product(copy, n)
        node = copy.same(n, type=ValueType(n.dims, tf32)) if n.id in self.cut else copy.same(n)
        if n.id in self.parted:
            self.split(copy, node)
        return node

    def product(self, copy: Copy, n: Node) -> Node:
        """The product with its precision carried out; the last of several has the old node's number."""
        attrs = {k: v for k, v in n.attrs.items() if k != "precision"}
        a, b, *addend = copy.of(n.inputs)
        if n.attrs["precision"] == "ieee" or not self.tensor:
            return copy.same(n, attrs=attrs)
        if n.attrs["precision"] == "tf32":
            a, b = (x if x.dtype is tf32 else self.split(copy, x, remainder=False)[0] for x in (a, b))
            return copy.same(n, (a, b, *addend), attrs=attrs)
        (a, low_a), (b, low_b) = self.split(copy, a), self.split(copy, b)
        for x, y in ((low_a, b), (a, low_b)):
            addend = [copy.add("mma", (x, y, *addend), attrs, n.type, n.loc)]
        return copy.same(n, (a, b, *addend), attrs=attrs)

    def split(self, copy: Copy, x: Node, remainder: bool = True) -> tuple[Node, Node]:
        """(the operand rounded to tf32, what that leaves, to 11 bits). Without a remainder the same twice."""
        key = (id(copy.region), 2 * x.id + remainder)
        found = self.parts.get(key)
        if found is not None:
            return found
        narrow = ValueType(x.dims, tf32)
        how = {"rounding": HIGH} if remainder else {}
        high = copy.add("cast", (x,), {"dtype": tf32, **how}, narrow, x.loc)
        low = high
        if remainder:
            wide = copy.add("cast", (high,), {"dtype": f32}, x.type, x.loc)
            rest = copy.add("sub", (x, wide), {}, x.type, x.loc)
            low = copy.add("cast", (rest,), {"dtype": tf32, "rounding": LOW}, narrow, x.loc)
        self.parts[key] = high, low
        return high, low


__all__ = ["at_precision"]
