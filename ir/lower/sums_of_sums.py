"""Reductions along several dimensions, `sum(x, dim=(M, N))`, which the graph has one behind the other.

In: a node whose layouts stand. Out: the nodes that exchange nothing, because the last one does it for all. A sum over
the waves of a workgroup in front of one along a lane's own elements had each wave leave, and load, as many numbers as
it has of them, where the last sum leaves one.

INVARIANT: between two such nodes nothing else reads the value, and it stays as it lies: its lanes and waves hold parts,
not what a value's layout says of them.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.layouts.layout import high_lanes, moving_lanes
from wavedsl.ir.lower.lowering import Lowering

OPS = frozenset(("sum", "max", "min"))


def in_parts(low: Lowering, part: Node) -> list[Node]:
    """A reduction that stays in parts, and those that it reduces: each is used for nothing else and as it lies."""
    found, users = [part], low.users()
    while part.op in OPS and part.inputs[0].op == part.op:
        inner = part.inputs[0]
        d, dtype = str(inner.attrs["dim"]), inner.dtype
        left = low.inference.operand_layout(inner, 0).project(d)
        own = users.get(inner.id) == [part] and dtype is part.dtype and low.region_of(inner) is low.region_of(part)
        if not own or not same_layout(low.inference.operand_layout(part, 0), left):
            break
        found.append(inner)
        part = inner
    return found


def together(low: Lowering, last: Node) -> list[Node]:
    """A reduction and those in front of it whose lanes and waves it joins with its own: where a lane is left with
    fewer numbers than each of them would have exchanged."""
    found = in_parts(low, last)
    fewer = all(_left(low, n) > _left(low, last) for n in found[1:])
    return found if fewer and not any(_far(low, n) for n in found) else [last]


def left_to_the_next(low: Lowering, n: Node) -> bool:
    """Whether lanes and waves keep their parts of a reduction, which the one behind it joins."""
    last = n
    while last.op in OPS and len(users := low.users().get(last.id, [])) == 1 and users[0].op == last.op:
        last = users[0]
    return last is not n and any(x is n for x in together(low, last))


def _left(low: Lowering, n: Node) -> int:
    """Numbers that a lane has once a reduction is done."""
    return low.inference.operand_layout(n, 0).project(str(n.attrs["dim"])).elements_per_lane


def _far(low: Lowering, n: Node) -> list[int]:
    """Lane bits of a reduction that no shuffle crosses."""
    d = str(n.attrs["dim"])
    return high_lanes(moving_lanes(low.inference.operand_layout(n, 0), [d]), low.target.wave_size)


__all__ = ["in_parts", "left_to_the_next", "together"]
