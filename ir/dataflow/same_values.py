"""Whether values are the same number, as far as a graph says."""

from __future__ import annotations

from typing import Any

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.walks import postorder


def meaning(n: Node) -> tuple[Any, ...]:
    """What a node is made of: an entry for each thing that is computed on the way, with the places of its operands
    among them. Nodes of the same number have equal ones. What is more than a function of its operands is itself."""
    places: dict[tuple[Any, ...], int] = {}
    known: dict[int, int] = {}

    def plain(x: Node) -> bool:
        return x.op in ROWS and not ROWS[x.op].effect and not {"body", "memory", "position"} & set(x.attrs)

    for x in postorder(n, lambda x: x.inputs if plain(x) else (), known):
        attrs, operands = str(sorted(x.attrs.items(), key=str)), (known.get(y.id) for y in x.inputs)
        known[x.id] = places.setdefault((x.op, attrs, *operands) if plain(x) else ("node", x.id), len(places))
    return tuple(places)


__all__ = ["meaning"]
