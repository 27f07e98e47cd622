"""Whether an identity that comes second changes nothing: f(x, identity) is x.

In: the region of a function of `scan`, its identity. Out: True where that follows from the function as it is written,
by what x + 0, x * 1, x * 0 and their like are of finite numbers; -0 + 0 counts as -0. A value is known as a number, or
by what it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class _Number:
    """A value that is known."""

    value: Any


_NEUTRAL: dict[str, tuple[float, bool]] = {
    "add": (0, True), "sub": (0, False), "mul": (1, True), "div": (1, False), "bitor": (0, True), "bitxor": (0, True),
    "bitand": (-1, True), "maximum": (-math.inf, True), "minimum": (math.inf, True), "shl": (0, False),
    "shr": (0, False),
}  # fmt: skip
"""What changes nothing as the second operand, and whether it does not as the first either."""


def second_changes_nothing(body: Region, identity: Any) -> bool:
    """Whether f(x, identity) is x for all x, as far as this sees."""
    count = len(body.carries) // 2
    numbers = identity if isinstance(identity, tuple) else (identity,)
    known: dict[int, Any] = {c.id: c.id for c in body.carries[:count]}
    known |= {c.id: _Number(number) for c, number in zip(body.carries[count:], numbers)}
    for n in body.nodes:
        known[n.id] = _value(n, [known.get(x.id, x.id) for x in n.inputs])
    return [known.get(y.id, y.id) for y in body.yields] == [c.id for c in body.carries[:count]]


def _value(n: Node, given: Sequence[Any]) -> Any:
    """What a node gives for operands that are known so far."""
    if n.op == "constant":
        return _Number(n.attrs["value"])
    if n.op == "fma":
        return _of("add", n, (_of("mul", n, given[:2]), given[2]))
    if n.op == "where":
        condition, x, y = given
        if isinstance(condition, _Number):
            return x if condition.value else y
        if x == y:
            return x
    return _of(n.op, n, given)


def _of(op: str, n: Node, given: Sequence[Any]) -> Any:
    """What an operation gives for such operands; what nothing is known of is known by its node, or its operands."""
    if op in _NEUTRAL:
        neutral, either = _NEUTRAL[op]
        for one, other in (given, given[::-1]) if either else (given,):
            if isinstance(other, _Number) and (_same(other.value, neutral, n) or _gives_way(op, other.value)):
                return one
    if op == "mul" and any(isinstance(x, _Number) and x.value == 0 for x in given):
        return _Number(0)
    compute = ROWS[op].compute
    if compute is not None and given and all(isinstance(x, _Number) for x in given):
        with np.errstate(all="ignore"):
            return _Number(np.asarray(compute(*(np.asarray(x.value) for x in given))).item())
    return n.id if op == n.op else (op, *given)


def _same(value: Any, neutral: float, n: Node) -> bool:
    """Whether a number is the neutral one; of bits that are all set, in the type that they have."""
    if neutral == -1 and not n.dtype.is_float:
        return int(value) in (-1, 1 if n.dtype.bits == 1 else -1, (1 << n.dtype.bits) - 1)
    return bool(value == neutral)


def _gives_way(op: str, value: Any) -> bool:
    return op in ("maximum", "minimum") and value != value


__all__ = ["second_changes_nothing"]
