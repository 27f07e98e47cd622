"""Dimensions that the operands of an operation list in different orders.

In: a value, and dimensions that it has. Out: whether the order in which it lists them is one that its operands agree
on. Dimensions are names, so order means nothing to an operation on [M, N] and [N, M]; its result has to list them
somehow all the same, and a `reshape` goes by that. What is made of [H] and [V, H] on the way to [H, V] would be read
column by column, without a word.

A value that was read lists dimensions as its array or mapping does, one that was permuted, broadcast, reshaped,
multiplied or carried as its statement says: these are orders that were written down.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from wavedsl.ir.dataflow.graph import REGIONS, Node, ValueType
from wavedsl.ir.dataflow.ops import ROWS

_PASSED_ON = ("cumsum", "sort")
"""What keeps the order of its operand, besides elementwise operations and reductions."""


def disagreement(root: Node, dims: Sequence[Any]) -> tuple[Node, Any, Any] | None:
    """An operation that `root` is made of with two of `dims` in another order than one of its operands, and these two
    in its own order; None where there is none."""
    seen: set[int] = set()
    work = [root]
    while work:
        n = work.pop()
        if n.id in seen or not _follows(n):
            continue
        seen.add(n.id)
        own = [d for d in n.dims if d in dims]
        for x in n.inputs:
            if not isinstance(x.type, ValueType):
                continue
            place = {d: i for i, d in enumerate(x.dims)}
            shared = [d for d in own if d in place]
            for first, second in itertools.pairwise(shared):
                if place[first] > place[second]:
                    return n, first, second
            if len(shared) > 1:
                work.append(x)
    return None


def _follows(n: Node) -> bool:
    """Whether a value's order of dimensions is that of its operands."""
    if n.op in REGIONS or n.op in ("carry", "result") or not isinstance(n.type, ValueType):
        return False
    return ROWS[n.op].index_rule in ("same", "project") or n.op in _PASSED_ON
