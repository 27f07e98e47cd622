"""What lowerings of more than one kind of function are made of."""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import I32, Value, vector


def words_of(b: Builder, x: Value) -> tuple[Value, Value]:
    """Low and high word of a number of 64 bits, as i32."""
    low, high = b.elements(b.bitcast(x, vector(2)))
    return b.bitcast(low, I32), b.bitcast(high, I32)


def polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme; the constant comes first."""
    total = b.const(coefficients[-1], x.type)
    for c in coefficients[-2::-1]:
        total = b.ffma(total, x, b.const(c, x.type))
    return total


__all__ = ["polynomial", "words_of"]
