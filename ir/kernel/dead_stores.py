"""Removes what a kernel's last stretch of straight code puts into shared memory for nobody.

In: a kernel whose loops are unrolled. Out: the same kernel without the stores to shared memory after which nothing
reads their buffer, and without the barriers after which nothing touches shared memory.

A software pipeline copies ahead; where its last trips are plain code, the copies of iterations that do not exist are
such stores. INVARIANT: only code behind the last loop or branch of the kernel's body changes, so "later" is "further
down".
"""

from __future__ import annotations

from functools import partial

from wavedsl.ir.kernel.kernel_ir import Kernel, Op
from wavedsl.ir.kernel.kernel_passes import remove_dead_code

READS, WRITES = "read shared", "write shared"
COPIES = ("store.shared", "copy.async")
"""Ops that do nothing but write shared memory."""
ROW = 16
"""Most bytes that a read of shared memory takes from the address of any one lane."""
Span = tuple[int, int] | None
LANES = 64
"""Most lanes of a wave, whose bytes a linear copy puts behind each other."""


def remove_dead_stores(kernel: Kernel) -> int:
    """Delete them in place; returns how many ops went, not counting what had no other use."""
    ops = kernel.body.ops
    read: list[Span] = []
    touched = False
    gone: set[Op] = set()
    for op in reversed(ops):
        if op.regions:
            break
        effects = op.row.effects
        if op.name == "barrier":
            if not touched:
                gone.add(op)
            continue
        if op.name in COPIES and not any(map(partial(meet, span(kernel, op)), read)):
            gone.add(op)
            continue
        if READS in effects:
            read.append(span(kernel, op))
        touched |= READS in effects or WRITES in effects or "read global" in effects
    if gone:
        ops[:] = [op for op in ops if op not in gone]
        remove_dead_code(kernel)
    return len(gone)


def overlap(kernel: Kernel, a: Op, b: Op) -> bool:
    """Whether two accesses to shared memory may share bytes: by the ranges of their addresses, else of their buffers;
    one of which nothing is known shares them with all."""
    return meet(span(kernel, a), span(kernel, b))


def meet(first: Span, second: Span) -> bool:
    """Whether two ranges of bytes have any in common; None is all there are."""
    if first is None or second is None:
        return True
    return first[0] < second[1] and second[0] < first[1]


def span(kernel: Kernel, op: Op) -> Span:
    """First byte and the one behind the last that an access to shared memory may touch."""
    place = kernel.shared_names.get(op.attrs.get("buffer", ""))
    low, high = (place[0], place[0] + place[1]) if place is not None else (0, 1 << 32)
    if not op.args:  # a fence
        return (low, high) if place is not None else None
    address, imm, size = op.args[0], op.attrs.get("imm", 0), op.attrs.get("bytes", 0)
    if op.name == "copy.async":
        address, imm = op.args[5], op.attrs["simm"]
        size *= LANES if op.attrs.get("linear") else 1
    elif op.name not in ("load.shared", "store.shared", "atomic.shared", "load.peer"):
        return (low, high) if place is not None else None
    elif op.attrs.get("atom", "vector") != "vector":
        size = max(size, ROW)
    if address.lo is not None and address.hi is not None and address.lo >= 0:
        low, high = max(low, address.lo + imm), min(high, address.hi + imm + size)
    return (low, high) if place is not None or high < 1 << 32 else None
