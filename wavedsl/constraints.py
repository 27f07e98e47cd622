"""Constraints: how dimensions are spread over workgroups, waves, loop tiles and lanes (defined in `ir`)."""

from __future__ import annotations

from wavedsl.ir.dataflow.constraints import HardwareConstraint, TilingConstraint, WaveConstraint, WorkgroupConstraint
from wavedsl.ir.mma_type import MMAType

__all__ = ["HardwareConstraint", "MMAType", "TilingConstraint", "WaveConstraint", "WorkgroupConstraint"]
