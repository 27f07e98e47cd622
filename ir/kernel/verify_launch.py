"""Whether a launch that may begin early leaves global memory alone until the one in front has ended.

In: a kernel whose ops are well formed. Out: findings in the `Check`.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import ROWS, Op
from wavedsl.ir.kernel.verify_ops import Check

HINTS = ("touch.global", "touch.bulk", "touch.map")
"""What moves lines between caches and gives nobody a number: the chip may do as much by itself."""


def check_launch(state: Check) -> None:
    """A `grid.wait` is where every thread comes, and no access to global memory stands before it."""
    ops = state.kernel.body.ops
    places = [i for i, op in enumerate(ops) if op.name == "grid.wait"]
    if not places:
        for op in (x for x in state.kernel.body.walk() if x.name == "grid.wait"):
            state.find("launch", op, "not all threads may come here")
        return
    for op in ops[: places[0]]:
        for x in (op, *(y for region in op.regions for y in region.walk())):
            if _touches_memory(x):
                state.find("launch", x, "the launch in front may not have written this yet, or may read it still")


def _touches_memory(op: Op) -> bool:
    return op.name not in HINTS and not {"read global", "write global"}.isdisjoint(ROWS[op.name].effects)
