"""Which values may lie in the same registers: what running matrix instructions read is left alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wavedsl.ir.kernel.kernel_ir import Op, Value

SAME_REGISTERS = ("bitcast", "slice", "vec")
"""Ops whose results may be their arguments' registers."""


def same_values(values: Iterable[Value]) -> set[Value]:
    """Values that these are made of without being computed: their registers may be the same."""
    work, found = list(values), set()
    while work:
        v = work.pop()
        if v not in found and v.const is None:
            found.add(v)
            if v.op is not None and v.op.name in SAME_REGISTERS:
                work += v.op.args
    return found


def arguments(ops: Sequence[Op]) -> Iterator[Value]:
    """What ops read, and what those inside them do; another product's registers are its own affair."""
    for op in ops:
        for one in (op, *(x for body in op.regions for x in body.walk())):
            if one.name != "matrix.start":
                yield from one.args
