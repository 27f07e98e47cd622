"""Where the waves of a workgroup wait for each other, so that all must come by as often."""

from __future__ import annotations

from collections.abc import Iterable

from wavedsl.ir.kernel.kernel_ir import Op

MEETINGS = frozenset(("barrier", "fence", "cluster.barrier"))


def meet(ops: Iterable[Op]) -> bool:
    """Whether waves meet in some of these ops, or in regions inside."""
    return any(op.name in MEETINGS or any(meet(region.ops) for region in op.regions) for op in ops)


__all__ = ["MEETINGS", "meet"]
