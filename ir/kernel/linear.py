"""Integer values as sums: v = c0 + Σ c · t, where nothing wraps on the way.

In: a value of the kernel IR. Out: a `Linear` form over the values that it is made of by addition, subtraction, shifts
and products by constants. INVARIANT: the form equals the value as whole numbers, not only modulo 2³²: an operation
whose operands' ranges would let it wrap is a term of its own.
"""

from __future__ import annotations

from dataclasses import field

from wavedsl.ir.kernel.facts import BITS, disjoint
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.quick_dataclass import dataclass


@dataclass
class Linear:
    """`terms`: value → factor, in order of appearance."""

    constant: int = 0
    terms: dict[Value, int] = field(default_factory=dict)

    def add(self, v: Value, factor: int) -> None:
        if factor:
            self.terms[v] = self.terms.get(v, 0) + factor
            if not self.terms[v]:
                del self.terms[v]


def linear(v: Value) -> Linear:
    """The form of one integer value."""
    out = Linear()
    _collect(out, v, 1)
    return out


def difference(a: Value, b: Value) -> Linear:
    """The form of a - b, as whole numbers."""
    out = Linear()
    _collect(out, a, 1)
    _collect(out, b, -1)
    return out


def _collect(out: Linear, v: Value, factor: int) -> None:
    """Add `factor` times a value to a sum: its terms where they cannot wrap, else the value itself."""
    op = v.op
    if isinstance(v.const, int):
        out.constant += factor * v.const
        return
    if op is not None and op.name in ("add", "sub", "shl", "mul", "or", "xor"):
        a, b = op.args
        if op.name == "add" and _fits(v, a, b, 1):
            _collect(out, a, factor)
            _collect(out, b, factor)
            return
        if op.name == "sub" and _fits(v, a, b, -1):
            _collect(out, a, factor)
            _collect(out, b, -factor)
            return
        if op.name in ("or", "xor") and disjoint(a, b) and _fits(v, a, b, 1):
            _collect(out, a, factor)
            _collect(out, b, factor)
            return
        c = b.const
        if op.name in ("shl", "mul") and isinstance(c, int):
            scale = 1 << c if op.name == "shl" else c
            if _inside(v, *sorted((_lo(a) * scale, _hi(a) * scale))):
                _collect(out, a, factor * scale)
                return
    out.add(v, factor)


def _lo(v: Value) -> int:
    assert v.lo is not None
    return v.lo


def _hi(v: Value) -> int:
    assert v.hi is not None
    return v.hi


def _inside(v: Value, lo: int, hi: int) -> bool:
    limit = 1 << (BITS[v.type.kind] - 1)
    return -limit <= lo and hi < limit


def _fits(v: Value, a: Value, b: Value, sign: int) -> bool:
    low, high = (_lo(b), _hi(b)) if sign > 0 else (-_hi(b), -_lo(b))
    return _inside(v, _lo(a) + low, _hi(a) + high)
