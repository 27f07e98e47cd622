"""Address spaces and annotations: what kernels say of their arguments and registers."""

from __future__ import annotations

from wavedsl.ir.symbols import GLOBAL, SHARED, AddressSpace
from wavedsl.tracer.annotations import Memory, Register, Scalar
from wavedsl.tracer.mapping import IndexMapping

__all__ = ["GLOBAL", "SHARED", "AddressSpace", "IndexMapping", "Memory", "Register", "Scalar"]
