"""Takes addresses apart: constant, uniform and per-lane summands, for immediates, scalar and vector offsets.

In: an integer value in the builder's normal form. Out: parts whose sum it is. INVARIANT: where parts go to hardware
that extends and adds them in more bits (`split_uniform`, `split_address`), no part is negative, so nothing depends on
wrapping.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wavedsl.ir.kernel.facts import disjoint
from wavedsl.ir.kernel.kernel_ir import Value

if TYPE_CHECKING:
    from wavedsl.ir.kernel.build_values import Values


def split_constant(v: Value) -> tuple[Value | None, int]:
    """v = base + const. The base of a constant is None."""
    op = v.op
    if op is not None:
        if op.name == "const":
            return None, op.attrs["value"]
        if op.name == "add" or (op.name in ("or", "xor") and disjoint(*op.args)):
            last = op.args[1].op
            if last is not None and last.name == "const":
                return op.args[0], last.attrs["value"]
    return v, 0


def split_uniform(b: Values, v: Value) -> tuple[Value, Value]:
    """v = lane + uniform, neither negative; `(v, 0)` where that cannot be shown.

    So zero-extending the parts and adding them in 64 bits equals zero-extending v: the parts may go to voff, soff.
    """
    zero = b.const(0, v.type)
    if v.uniform:
        return (zero, v) if v.lo is not None and v.lo >= 0 else (v, zero)
    lanes: list[Value] = []
    uniforms: list[Value] = []
    _terms(b, v, lanes, uniforms, 0)
    if not uniforms:
        return v, zero
    lane, uniform = b.add_many(lanes, v.type), b.add_many(uniforms, v.type)
    if lane.lo is None or uniform.lo is None or lane.lo < 0 or uniform.lo < 0:
        return v, zero
    return lane, uniform


def _terms(b: Values, v: Value, lanes: list[Value], uniforms: list[Value], shift: int) -> None:
    """Collect the summands of v << shift."""
    op = v.op
    if v.uniform:
        uniforms.append(b.shl(v, shift) if shift else v)
    elif op is not None and (op.name == "add" or (op.name in ("or", "xor") and disjoint(*op.args))):
        for a in op.args:
            _terms(b, a, lanes, uniforms, shift)
    elif op is not None and op.name == "shl" and op.args[1].const is not None:
        _terms(b, op.args[0], lanes, uniforms, shift + int(op.args[1].const))
    else:
        lanes.append(b.shl(v, shift) if shift else v)


def split_address(b: Values, v: Any, low: int, high: int) -> tuple[Value, int]:
    """v = base + imm with imm in [low, high] and base not negative: what a memory op's address and `imm` may be."""
    v = b._i32(v)
    base, c = split_constant(v)
    if c == 0:
        return v, 0
    if base is None:
        imm = c if low <= c <= high else c % (high + 1)
        return b.const(c - imm), imm
    if base.lo is None or base.lo < 0:
        return v, 0
    if low <= c <= high:
        return base, c
    # Cut at a multiple of the largest immediate, so that neighbouring accesses share the base.
    imm = c % (high + 1)
    rest = b.add(base, c - imm)
    return (rest, imm) if rest.lo is not None and rest.lo >= 0 else (v, 0)
