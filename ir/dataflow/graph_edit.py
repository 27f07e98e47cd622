"""Making nodes of the dataflow graph in passes that rewrite it in the language itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Graph, Node, Region
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.loc import Loc

Number = int | Node
"""An i32 that is known while compiling, or the node that holds it."""


class Edit:
    """A graph that is being rewritten: `add` puts nodes at the end of `region`, at the line `loc`. `graph` is what
    types are worked out by: it has the new arguments and constraints. Numbers that are known are folded."""

    def __init__(self, graph: Graph, loc: Loc | None):
        self.old = self.graph = graph
        self.region = Region(loc=graph.region.loc)
        self.loc = loc
        self.fresh = graph.next_id()

    def add(self, op: str, inputs: tuple[Node, ...], attrs: dict[str, Any], same_as: Node | None = None) -> Node:
        """A node, with the id of the node that it takes the place of."""
        kind = ROWS[op].rule([x.type for x in inputs], attrs, self.graph)  # type: ignore[misc]
        number = self.number_of_new() if same_as is None else same_as.id
        node = Node(number, op, inputs, attrs, kind, self.loc)
        self.region.nodes.append(node)
        return node

    def number_of_new(self) -> int:
        self.fresh += 1
        return self.fresh - 1

    @contextmanager
    def inside(self, region: Region) -> Iterator[Region]:
        """Nodes go to the end of another region meanwhile."""
        outer, self.region = self.region, region
        yield region
        self.region = outer

    def both(self, op: str, x: Node, y: Node) -> Node:
        return self.add(op, (x, y), {})

    def whole(self, value: int) -> Node:
        return self.add("constant", (), {"value": value, "dtype": dt.i32})

    def zero(self, like: Node) -> Node:
        value: Any = 0.0 if like.dtype.is_float else 0
        return self.add("fill", (), {"dims": like.dims, "dtype": like.dtype, "value": value})

    # --- i32 arithmetic, folded where numbers are known

    def node(self, x: Number) -> Node:
        return self.whole(x) if isinstance(x, int) else x

    def _op(self, op: str, x: Number, y: Number) -> Node:
        return self.both(op, self.node(x), self.node(y))

    def plus(self, x: Number, y: Number) -> Number:
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        return y if x == 0 else x if y == 0 else self._op("add", x, y)

    def minus(self, x: Number, y: Number) -> Number:
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        return x if y == 0 else self._op("sub", x, y)

    def times(self, x: Number, y: Number) -> Number:
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        if 0 in (x, y):
            return 0
        return y if x == 1 else x if y == 1 else self._op("mul", x, y)

    def over(self, x: Number, y: Number) -> Number:
        """x // y; y is not 0."""
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        return x if y == 1 else self._op("floordiv", x, y)

    def over_up(self, x: Number, y: int) -> Number:
        """x / y rounded up."""
        return self.over(self.plus(x, y - 1), y)

    def modulo(self, x: Number, y: Number) -> Number:
        """x % y; y is not 0."""
        if isinstance(x, int) and isinstance(y, int):
            return x % y
        return 0 if y == 1 else self._op("mod", x, y)

    def least(self, x: Number, y: Number) -> Number:
        return min(x, y) if isinstance(x, int) and isinstance(y, int) else self._op("minimum", x, y)

    def most(self, x: Number, y: Number) -> Number:
        return max(x, y) if isinstance(x, int) and isinstance(y, int) else self._op("maximum", x, y)

    def below(self, x: Number, y: Number) -> bool | Node:
        return x < y if isinstance(x, int) and isinstance(y, int) else self._op("lt", x, y)

    def choose(self, condition: bool | Node, x: Number, y: Number) -> Number:
        if isinstance(condition, bool):
            return x if condition else y
        return self.add("where", (condition, self.node(x), self.node(y)), {})

    def product(self, numbers: Sequence[Number]) -> Number:
        out: Number = 1
        for n in numbers:
            out = self.times(out, n)
        return out


__all__ = ["Edit", "Number"]
