"""Quotients whose divisors are shared: a row by its sum, numbers by their scale.

In: a division of which each divisor belongs to several elements of a lane. Out: the same quotients, correctly rounded,
by a multiplication and two fused multiply-adds each, which chips with packed arithmetic do for two at once, where the
exact division takes ten instructions: with r = 1 / d, rounded correctly once for all elements of d,

    q = x r      rest = q d - x      x / d = q - rest r

The rest is exact, so the last rounding is of a number that is off by less than 0.75 d 2^-48 (d and x in [1, 2)). The
quotient lies k / d 2^-48 from the middle between two numbers, k whole and not 0: only k of 1 and 2 leave a doubt, and
those 17 million quotients were all computed (`hardest` in tests/e2e/test_shared_divisors.py finds them). Brisebarre,
Muller and Raina, "Accelerating correctly rounded floating-point division when the divisor is known in advance" (2004).

That holds while nothing leaves the range of normal numbers on the way. A wave in which an element does (infinity, less
than 2^-100 but not 0, a quotient near the ends of the range, a divisor that is not positive) divides as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import F32, I32, Value
from wavedsl.ir.layouts.fragment import Fragment, scalar_type
from wavedsl.ir.lower.lowering import Lowering

SHARED = 4
"""Elements of a divisor, on average, from which on it is worth what is computed once for it."""
FEWEST = 8
"""Elements of a lane from which on they are worth a branch."""
LEAST, MOST = 2.0**-126, 2.0**126
"""Divisors whose reciprocals are normal numbers."""
TOGETHER = 16
"""Elements that are divided together where each is computed when somebody asks for it."""
TINY = 2.0**-100
"""Elements from which on their rests are exact: a rest has 48 bits below the element's first."""


class _Divisor(NamedTuple):
    """A divisor, its reciprocal, and between what bounds elements must lie: twice the bits of the least less one, and
    the largest."""

    value: Value
    reciprocal: Value
    usual: Value
    least: Value
    most: Value

    @staticmethod
    def of(b: Builder, d: Value) -> _Divisor:
        usual = b.pand(b.fcmp("ge", d, LEAST), b.fcmp("le", d, MOST))
        least = b.fmax(b.f32(TINY), b.fmul(d, b.f32(2.0**-125)))
        most = b.fmin(b.f32(2.0**127), b.fmul(d, b.f32(2.0**126)))
        return _Divisor(d, b.fdiv(b.f32(1.0), d), usual, _order(b, least), most)


def _order(b: Builder, x: Value) -> Value:
    """An integer that grows with |x|, but for 0, which comes last."""
    return b.add(b.shl(b.bitcast(x, I32), 1), -1)


def _divides(low: Lowering, n: Node) -> bool:
    """Whether a node divides exactly, in f32 or by way of it, where two numbers are multiplied at once."""
    return n.op == "div" and low.target.packed_f32 and not n.attrs.get("fast") and scalar_type(n.dtype) is F32


def divided(
    low: Lowering, n: Node, operands: Sequence[Fragment], columns: Sequence[Sequence[int]]
) -> list[Value] | None:
    """The elements of a division, where its divisors are shared; None where they are not, and of other nodes."""
    return _quotients(low.b, operands, columns, range(len(columns[0]))) if _divides(low, n) else None


def divided_late(
    low: Lowering, n: Node, operands: Sequence[Fragment], columns: Sequence[Sequence[int]],
    alone: Callable[[int], Value],
) -> Callable[[int], Value]:  # fmt: skip
    """What computes one element of a node when somebody asks for it: with its neighbours, where it divides and their
    divisors are shared, else `alone`. In a branch each is computed by itself: its neighbours would be there only."""
    if not _divides(low, n):
        return alone
    found: dict[int, Value] = {}
    b, region = low.b, low.b.region

    def compute(i: int) -> Value:
        if i not in found and b.region is region:
            begin = i - i % TOGETHER
            batch = range(begin, min(begin + TOGETHER, len(columns[0])))
            with b.loc(n.loc):
                found.update(zip(batch, _quotients(b, operands, columns, batch) or ()))
        return found[i] if i in found else alone(i)

    return compute


def _quotients(
    b: Builder, operands: Sequence[Fragment], columns: Sequence[Sequence[int]], elements: Sequence[int]
) -> list[Value] | None:
    """These elements of a division, where each of few divisors has several of them."""
    if len(elements) < FEWEST or SHARED * len({columns[1][i] for i in elements}) > len(elements):
        return None
    dividends, divisors = ([v.element(b, c[i]) for i in elements] for v, c in zip(operands, columns))
    return divide(b, dividends, divisors) if SHARED * len(set(divisors)) <= len(elements) else None


def divide(b: Builder, dividends: Sequence[Value], divisors: Sequence[Value]) -> list[Value]:
    """The quotient of each dividend by its divisor, f32, rounded correctly. Branches."""
    groups: dict[Value, list[Value]] = {}
    for x, d in zip(dividends, divisors):
        groups.setdefault(d, []).append(x)
    by = {d: _Divisor.of(b, d) for d in groups}
    fits = []
    for d, xs in groups.items():
        # Sizes of numbers that somebody else asked for would stay in registers till here: so the ends, with signs.
        top, bottom = reduce(b.fmax, xs), reduce(b.fmin, xs)
        fits += [by[d].usual, b.cmp("uge", reduce(b.min_u, (_order(b, x) for x in xs)), by[d].least)]
        fits += [b.fcmp("le", top, by[d].most), b.fcmp("ge", bottom, b.fneg(by[d].most))]
    with b.if_(b.pnot(b.any_lane(b.pnot(reduce(b.pand, fits)))), stay=True, usual=True) as branch:
        branch.yield_([_quotient(b, x, by[d]) for x, d in zip(dividends, divisors)])
    with branch.orelse():
        branch.yield_([b.fdiv(x, d) for x, d in zip(dividends, divisors)])
    return list(branch.results)


def _quotient(b: Builder, x: Value, d: _Divisor) -> Value:
    q = b.fmul(x, d.reciprocal)
    rest = b.ffma(q, d.value, b.fneg(x))
    return b.ffma(b.fneg(rest), d.reciprocal, q)


__all__ = ["divide", "divided", "divided_late"]
