"""Which values are 0 beyond the end of a dimension by themselves, and need no mask in a product or a sum.

In: a value of the graph and one of its dimensions. Out: whether it is made of nothing but reads that have the
dimension, by functions that are 0 where all their operands are. What a read has beyond its array's end, or beyond its
tile's, is 0; a bias of the rows has no end along K, so what it is added to is not.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.graph import Node

KEEPS_ZERO = frozenset(("cast", "bitcast", "permute", "neg", "add", "sub", "mul", "fma", "abs", "minimum", "maximum"))
"""Elementwise functions that are 0 where all their operands are."""


def zero_beyond_the_end(x: Node, dim: str) -> bool:
    """Whether a value is 0 beyond the end of `dim`."""
    work, seen = [x], {x.id}
    while work:
        y = work.pop()
        if not any(str(d) == dim for d in y.dims) or (y.op not in KEEPS_ZERO and y.op != "read"):
            return False
        if y.op == "read":
            if y.dtype.kind == "scale":  # bits of 0 are the least power of two
                return False
            continue
        work += [z for z in y.inputs if z.id not in seen]
        seen.update(z.id for z in y.inputs)
    return True


__all__ = ["zero_beyond_the_end"]
