"""Whether values are the same number, as far as a graph says."""

from __future__ import annotations

from typing import Any

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.walks import postorder


def meaning(n: Node) -> tuple[Any, ...]:
    """What a node is made of: an entry for each thing that is computed on the way, with the places of its operands
    among them. Nodes of the same number have equal ones. What is more than a function of its operands is itself."""
    numbers = Numbers()
    numbers.of(n)
    return tuple(numbers.places)


class Numbers:
    """Nodes as numbers, equal ones for what is made alike: `meaning` of many nodes that have much in common."""

    def __init__(self) -> None:
        self.places: dict[tuple[Any, ...], int] = {}
        self.known: dict[int, int] = {}

    def of(self, n: Node) -> int:
        """The number of a node."""
        known = self.known
        for x in postorder(n, lambda x: x.inputs if _plain(x) else (), known):
            attrs, operands = str(sorted(x.attrs.items(), key=str)), (known.get(y.id) for y in x.inputs)
            self.name(x, (x.op, attrs, x.type, *operands) if _plain(x) else ("node", x.id))
        return known[n.id]

    def name(self, n: Node, entry: tuple[Any, ...]) -> None:
        """Give a node the number of all that have this entry."""
        self.known[n.id] = self.places.setdefault(entry, len(self.places))


def _plain(x: Node) -> bool:
    """Whether a node is a function of its operands."""
    return x.op in ROWS and not ROWS[x.op].effect and not {"body", "memory", "position"} & set(x.attrs)


__all__ = ["Numbers", "meaning"]
