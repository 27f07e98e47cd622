"""Removes what a kernel's last stretch of straight code puts into shared memory for nobody.

In: a kernel whose loops are unrolled. Out: the same kernel without the stores to shared memory after which nothing
reads their buffer, and without the barriers after which nothing touches shared memory.

A software pipeline copies ahead; where its last trips are plain code, the copies of iterations that do not exist are
such stores. INVARIANT: only code behind the last loop or branch of the kernel's body changes, so "later" is "further
down".
"""

from __future__ import annotations

from wavedsl.ir.kernel_ir import Kernel, Op
from wavedsl.ir.kernel_passes import remove_dead_code

READS, WRITES = "read shared", "write shared"


def remove_dead_stores(kernel: Kernel) -> int:
    """Delete them in place; returns how many ops went, not counting what had no other use."""
    ops = kernel.body.ops
    read: list[str] = []
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
        if op.name == "store.shared" and not any(overlap(kernel, op.attrs.get("buffer", ""), b) for b in read):
            gone.add(op)
            continue
        if READS in effects:
            read.append(op.attrs.get("buffer", ""))
        touched |= READS in effects or WRITES in effects or "read global" in effects
    if gone:
        ops[:] = [op for op in ops if op not in gone]
        remove_dead_code(kernel)
    return len(gone)


def overlap(kernel: Kernel, a: str, b: str) -> bool:
    """Whether two named buffers may share bytes; one without a known place shares them with all."""
    if a == b or a not in kernel.shared_names or b not in kernel.shared_names:
        return True
    (first, size), (second, other) = kernel.shared_names[a], kernel.shared_names[b]
    return first < second + other and second < first + size
