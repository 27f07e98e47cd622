"""Classes of values that lie alike: what must (sums that loops carry, products and addends) and what meets elementwise.

In: the graph's regions. Out: `Classes`, a union-find over node ids, and what inference asks of a class.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.graph import (
    PRODUCTS,
    REGIONS,
    Graph,
    Node,
    Region,
    ValueType,
    addend,
    initial_values,
    next_values,
)
from wavedsl.ir.dataflow.ops import ATOMIC_VALUES, ROWS
from wavedsl.ir.dataflow.views import index_positions, is_tile


class Classes:
    """Union-find over node ids."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.settled: set[int] = set()
        """Classes that are not joined with each other."""

    def find(self, x: int) -> int:
        if x in self.left:
            return self.left[x]
        p = self.parent.setdefault(x, x)
        while p != x:
            self.parent[x] = self.parent.setdefault(p, p)
            x, p = p, self.parent[p]
        return x

    def join(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a == b or {a, b} <= self.settled:
            return
        self.parent[max(a, b)] = min(a, b)
        if {a, b} & self.settled:
            self.settled.add(min(a, b))

    def leave(self, *values: int) -> None:
        """Make a class of their own of values whose class is settled: nobody else changes class."""
        for x in values:
            self.left[x] = -1 - min(values)


def is_packed_read(n: Node) -> bool:
    """Whether a value comes straight from a packed array, which decides how it can lie in registers."""
    return n.op == "read" and n.dtype.packed


def join_sums(region: Region, classes: Classes, starts: bool = True) -> None:
    """What lies alike whatever the user means: what a loop carries, a product and its addend, what an operation with a
    result of its own layout takes. `starts`: what a loop starts from lies as what it carries, too."""
    for n in region.nodes:
        body = n.attrs.get("body")
        if body is not None and n.op in REGIONS:
            join_sums(body, classes, starts)
            for init, carry, last in zip(initial_values(n), body.carries, next_values(n)):
                if starts:
                    classes.join(init.id, carry.id)
                classes.join(carry.id, last.id)
        if n.op == "result":
            source = n.inputs[0]
            if source.op in REGIONS:
                classes.join(n.id, source.attrs["body"].carries[n.attrs["position"]].id)
            elif source.op == "scan":
                classes.join(n.id, source.inputs[0].id)
        elif n.op in ("reduce", "scan") and isinstance(n.type, tuple):
            for x in n.inputs[1:]:  # elements that are combined together lie in one lane
                classes.join(x.id, n.inputs[0].id)
        elif not isinstance(n.type, ValueType):
            continue
        elif n.op in PRODUCTS:
            added = addend(n)
            if added is not None:
                classes.join(n.id, added.id)
        elif n.op in ("scan", "cumsum", "shuffle"):
            if not is_packed_read(n.inputs[0]) and set(n.dims) == set(n.inputs[0].dims):
                classes.join(n.id, n.inputs[0].id)
        elif n.op.startswith("atomic_"):
            for x in n.inputs[: ATOMIC_VALUES[n.op]]:
                if set(x.dims) == set(n.dims) and n.dims:
                    classes.join(n.id, x.id)


def join_region(region: Region, classes: Classes) -> None:
    """Values that meet elementwise."""
    for n in region.nodes:
        body = n.attrs.get("body")
        if body is not None and n.op in REGIONS:
            join_region(body, classes)
        if n.op == "shuffle" and set(n.dims) != set(n.inputs[0].dims) and set(n.dims) == set(n.inputs[1].dims):
            classes.join(n.id, n.inputs[1].id)  # each index lies where what it names goes
        apart = (*PRODUCTS, "result", "scan", "cumsum", "shuffle")
        if n.op in apart or not isinstance(n.type, ValueType) or n.op.startswith("atomic_"):
            continue
        if ROWS[n.op].index_rule in ("same", "relabel"):
            for x in n.inputs:
                if isinstance(x.type, ValueType) and set(x.dims) == set(n.dims) and n.dims and not is_packed_read(x):
                    classes.join(n.id, x.id)


def written_along(graph: Graph, classes: Classes) -> dict[int, tuple[str, int]]:
    """Class → the innermost dimension of an array that a value of the class is written to, and the bits of its
    elements."""
    found: dict[int, tuple[str, int]] = {}
    for n in graph.all_nodes():
        if n.op == "write":
            array = graph.argument(n.attrs["memory"])
            dims = [d for d in array.dims if d not in graph.index_dims]
            if dims:
                found.setdefault(classes.find(n.inputs[0].id), (str(dims[-1]), array.dtype.bits))
    return found


def follows(members: dict[int, list[Node]], classes: Classes) -> dict[int, list[int]]:
    """The classes from which each one will follow, while they are undecided: what the reductions that give one of its
    values reduce."""
    return {
        c: [classes.find(r.inputs[0].id) for n in nodes if (r := reduction(n)) is not None]
        for c, nodes in members.items()
    }


def led(graph: Graph, classes: Classes) -> dict[int, int]:
    """Classes of indices of gathers, scatters and atomics that nothing else reads → the classes of what these move:
    indices are computed, or loaded, where the elements go, which an exchange would cost more than."""
    found: dict[int, int] = {}
    barred: set[int] = set()
    for n in graph.all_nodes():
        indices = index_positions(n)
        if indices and n.op in ("read", "write") and is_tile(graph, n):
            continue  # no element's own index is computed
        value = n if n.op == "read" else n.inputs[0] if n.inputs else n
        for position, x in enumerate(n.inputs):
            c = classes.find(x.id)
            if position in indices:
                if set(x.dims) == set(value.dims):
                    found.setdefault(c, classes.find(value.id))
            elif n.op not in REGIONS and (n.type is None or classes.find(n.id) != c):
                barred.add(c)
    return {c: value for c, value in found.items() if c not in barred and value != c}


def reduction(n: Node) -> Node | None:
    """The reduction that gives a value: the node itself, or of several results the one they are of."""
    made = n.inputs[0] if n.op == "result" else n
    return made if ROWS[made.op].index_rule == "project" else None
