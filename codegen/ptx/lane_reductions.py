"""Butterflies of integers over all lanes of a warp that one instruction does.

In: a kernel's ops and who uses their results. Out: the last joins of such butterflies with what they start from, and
the results of the other steps, which nobody else reads. Five exchanges and as many joins become one `redux.sync`; the
order in which integers are joined changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wavedsl.ir.kernel.kernel_ir import I32, Op, Value
from wavedsl.ir.quick_dataclass import dataclass

WORDS = {"add": ("add", "s32"), "min_s": ("min", "s32"), "max_s": ("max", "s32"), "min_u": ("min", "u32"),
         "max_u": ("max", "u32")}  # fmt: skip
MASKS = frozenset(1 << i for i in range(5))


@dataclass
class Reductions:
    """`starts`: what is joined, by the number of a butterfly's result; `inside`: numbers of the values between."""

    starts: dict[int, Value]
    inside: set[int]


def lane_reductions(ops: Iterable[Op], users: Mapping[int, Sequence[Op]]) -> Reductions:
    found = Reductions({}, set())
    for op in ops:
        chain = _chain(op, users)
        if chain is not None:
            start, inside = chain
            found.starts[op.result.id] = start
            found.inside |= inside
    return found


def _chain(last: Op, users: Mapping[int, Sequence[Op]]) -> tuple[Value, set[int]] | None:
    """What a butterfly over all lanes that ends in `last` starts from, and the values between."""
    masks: set[int] = set()
    inside: set[int] = set()
    op = last
    while True:
        step = _step(op, users)
        if step is None or step[2] in masks or op.name != last.name:
            return None
        before, moved, mask = step
        masks.add(mask)
        inside.add(moved.id)
        if masks == MASKS:
            return before, inside
        made = before.op
        if made is None or len(users[before.id]) != 2:  # the exchange and the join
            return None
        inside.add(before.id)
        op = made


def _step(op: Op, users: Mapping[int, Sequence[Op]]) -> tuple[Value, Value, int] | None:
    """What a step joins with what another lane has of it, and the mask of that lane."""
    if op.name not in WORDS or op.result.type is not I32:
        return None
    for x, moved in (op.args, op.args[::-1]):
        source = moved.op
        if source is not None and source.name == "shuffle_xor" and source.args[0] is x and len(users[moved.id]) == 1:
            return x, moved, source.attrs["mask"]
    return None


__all__ = ["Reductions", "lane_reductions"]
