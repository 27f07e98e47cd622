"""Where the constants of f64 functions come from: prints the tables of `ir/functions/f64_constants.py`.

    python benchmarks/f64_coefficients.py > ir/functions/f64_constants.py

A polynomial goes through the function at Chebyshev's nodes of its interval, which is within a small factor of the
least largest error. Its coefficients are rounded to f64 from the constant up, and what each rounding changes is put
right by those that follow. Written beside each table: its largest error, from samples of the interval, in 60 digits.
A test makes the file again and compares.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
from mpmath import mpf

DIGITS = 60
SAMPLES = 400

Function = Callable[[mpf], mpf]


def interpolate(f: Function, low: mpf, high: mpf, degree: int) -> list[float]:
    """Coefficients in f64, the constant first."""
    count = degree + 1
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    values = [f(x) for x in nodes]
    found: list[float] = []
    for first in range(count):
        left = count - first
        powers = mp.matrix(left, left)
        for i in range(left):
            for j in range(left):
                powers[i, j] = nodes[i] ** j
        found.append(float(mp.lu_solve(powers, mp.matrix(values[:left]))[0]))
        values = [(v - found[-1]) / x for v, x in zip(values, nodes)]
        if left > 1:  # one node fewer for one coefficient fewer: the one nearest to the middle says least
            drop = min(range(left), key=lambda i: abs(nodes[i]))
            del nodes[drop], values[drop]
    return found


def horner(coefficients: Sequence[float], x: mpf) -> mpf:
    total = mpf(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def largest(error: Function, low: mpf, high: mpf) -> mpf:
    return max(abs(error(low + (high - low) * i / SAMPLES)) for i in range(SAMPLES + 1))


def parts(x: mpf, count: int) -> list[float]:
    """`x` as a sum of f64 numbers, the largest first."""
    found: list[float] = []
    for _ in range(count):
        found.append(float(x))
        x -= found[-1]
    return found


def near_zero(f: Function, series: Function, radius: str) -> Function:
    """`series` where `f` would cancel."""
    return lambda x: series(x) if abs(x) < mpf(radius) else f(x)


def exp_rest(r: mpf) -> mpf:
    return (mp.expm1(r) - r) / r**2


def atanh_rest(z: mpf) -> mpf:
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5


def sin_rest(z: mpf) -> mpf:
    s = mp.sqrt(z)
    return (mp.sin(s) - s) / s**3


def cos_rest(z: mpf) -> mpf:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def atan_rest(z: mpf) -> mpf:
    s = mp.sqrt(z)
    return (mp.atan(s) - s) / s**3


def erf_rest(z: mpf) -> mpf:
    s = mp.sqrt(z)
    return mp.erf(s) / s - 1


@dataclass(frozen=True)
class ErrorTail:
    """1 - erf(u + centre)."""

    centre: float

    def logarithm(self, u: mpf) -> mpf:
        return mp.log(mp.erfc(u + self.centre))

    def error(self, coefficients: Sequence[float], u: mpf) -> mpf:
        return mp.erfc(u + self.centre) - mp.exp(horner(coefficients, u))


ATAN_MIDDLE = 0.578125
"""About tan(pi / 6), with few bits: arctangents of what is closer to it than to 0 are taken from there."""

ERF_BOUNDS = (1.0, 2.25, 6.0)
"""Where erf is x + x p(x²), then 1 - exp(q(x - centre)) with one q and another, then 1."""


def tables() -> list[tuple[str, str, object]]:
    """(name, what it is, its numbers) in the order of the file."""
    out: list[tuple[str, str, object]] = []

    def polynomial(name: str, what: str, f: Function, low: mpf, high: mpf, degree: int, error: object) -> list[float]:
        found = interpolate(f, low, high, degree)
        measured = mp.log(largest(lambda x: error(found, x), low, high), 2)  # type: ignore[operator]
        out.append((name, f"{what}: off by 2^{float(measured):.1f} at most.", tuple(found)))
        return found

    out.append(("LN2", "ln 2, as a sum.", tuple(parts(mp.log(2), 2))))
    out.append(("LOG2_E", "1 / ln 2, as a sum.", tuple(parts(1 / mp.log(2), 2))))
    out.append(("LOG10_2", "log10 2, as a sum.", tuple(parts(mp.log10(2), 2))))
    out.append(("LOG10_E", "1 / ln 10, as a sum.", tuple(parts(1 / mp.log(10), 2))))
    out.append(("HALF_PI", "pi / 2, as a sum.", tuple(parts(mp.pi / 2, 3))))
    out.append(("TWO_OVER_PI", "2 / pi.", float(2 / mp.pi)))
    out.append(("TWO_THIRDS", "2 / 3, as a sum.", tuple(parts(mpf(2) / 3, 2))))
    half = mp.log(2) / 2 * mpf("1.0001")
    f = near_zero(exp_rest, lambda r: mpf(1) / 2 + r / 6 + r * r / 24, "1e-15")
    polynomial("EXP", "(exp(r) - 1 - r) / r² for |r| <= ln(2) / 2; 1 + r + r² of it", f, -half, half, 10,
               lambda c, r: mp.exp(r) - 1 - r - r * r * horner(c, r))  # fmt: skip
    widest = (3 - 2 * mp.sqrt(2)) ** 2 * mpf("1.0001")
    f = near_zero(atanh_rest, lambda z: mpf(2) / 5 + z * 2 / 7, "1e-15")
    what = "(2 atanh(s) - 2 s - 2/3 s³) / s⁵ by s², for |s| <= 3 - 2 sqrt(2); 2 atanh(s) / s of it"
    polynomial("ATANH", what, f, mpf(0), widest, 7, lambda c, z: z * z * (f(z) - horner(c, z)))  # fmt: skip
    widest = (mp.pi / 4 * mpf("1.001")) ** 2
    sine = near_zero(sin_rest, lambda z: -mpf(1) / 6 + z / 120, "1e-15")
    polynomial("SIN", "(sin(r) - r) / r³ by r², for |r| <= pi / 4; sin(r) / r of it", sine, mpf(0), widest, 6,
               lambda c, z: z * (sine(z) - horner(c, z)))  # fmt: skip
    cosine = near_zero(cos_rest, lambda z: mpf(1) / 24 - z / 720, "1e-15")
    polynomial("COS", "(cos(r) - 1 + r²/2) / r⁴ by r², for |r| <= pi / 4; cos(r) of it", cosine, mpf(0), widest, 6,
               lambda c, z: z * z * (cosine(z) - horner(c, z)))  # fmt: skip
    out.append(("ATAN_MIDDLE", "About tan(pi / 6), with few bits; its arctangent, as a sum.", ATAN_MIDDLE))
    out.append(("ATAN_OF_MIDDLE", "See ATAN_MIDDLE.", tuple(parts(mp.atan(mpf(ATAN_MIDDLE)), 2))))
    out.append(("PI", "pi, as a sum.", tuple(parts(+mp.pi, 2))))
    widest = mpf("0.2681") ** 2
    arc = near_zero(atan_rest, lambda z: -mpf(1) / 3 + z / 5, "1e-15")
    polynomial("ATAN", "(atan(z) - z) / z³ by z², for |z| <= 0.2681; atan(z) / z of it", arc, mpf(0), widest, 9,
               lambda c, z: z * (arc(z) - horner(c, z)))  # fmt: skip
    error_function = near_zero(erf_rest, lambda z: 2 / mp.sqrt(mp.pi) * (1 - z / 3) - 1, "1e-20")
    polynomial("ERF", "erf(x) / x - 1 by x², for |x| <= 1", error_function, mpf(0), mpf(1), 13,
               lambda c, z: error_function(z) - horner(c, z))  # fmt: skip
    out.append(("ERF_BOUNDS", "Where erf goes from x + x p(x²) to 1 - exp(q(x - centre)), to another q, to 1.",
                ERF_BOUNDS))  # fmt: skip
    intervals = list(itertools.pairwise(ERF_BOUNDS))
    out.append(("ERF_CENTRES", "The middles of the two intervals above 1.", tuple((a + b) / 2 for a, b in intervals)))
    for name, (low, high), degree in zip(("ERF_NEAR", "ERF_FAR"), intervals, (14, 18)):
        tail = ErrorTail((low + high) / 2)
        polynomial(name, f"ln(1 - erf(x)) by x - {tail.centre}, for {low} <= x <= {high}; erf(x) of it", tail.logarithm,
                   mpf(low - tail.centre), mpf(high - tail.centre), degree, tail.error)  # fmt: skip
    return out


def source() -> str:
    """The file's text."""
    lines = ['"""Constants of f64 functions (`lower_f64.py`). Made by `benchmarks/f64_coefficients.py`."""', ""]
    for name, what, value in tables():
        if isinstance(value, tuple) and len(value) > 3:
            lines += [f"{name} = (", *(f"    {v!r}," for v in value), ")"]
        else:
            lines.append(f"{name} = {value!r}")
        lines.append(f'"""{what}"""')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    mp.mp.dps = DIGITS
    print(source(), end="")
