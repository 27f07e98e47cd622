"""Operands at the edges of their types, and exact rounding: what tests of the rows of PTX compare with."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
from ptx_harness import raw

rng = np.random.default_rng(7)


def integers(bits, signed, n=200):
    """Edge values and random ones, as Python ints."""
    top = 1 << bits
    edge = [
        0,
        1,
        2,
        3,
        7,
        8,
        bits - 1,
        bits,
        bits + 1,
        top - 1,
        top - 2,
        top >> 1,
        (top >> 1) - 1,
        (top >> 1) + 1,
        0x55,
        0xAA,
    ]
    values = [e % top for e in edge] + [int(x) % top for x in rng.integers(0, 2**63, n)]
    return [v - top if signed and v >> (bits - 1) else v for v in values]


def array(values, bits):
    return np.array([v % (1 << bits) for v in values], dtype=f"u{bits // 8}")


def pairs(bits, signed):
    a = integers(bits, signed)
    b = list(a)
    np.random.default_rng(1).shuffle(b)
    edge = integers(bits, signed, 0)
    return a + [x for x in edge for _ in edge], b + [y for _ in edge for y in edge]


def sign(v, bits):
    v %= 1 << bits
    return v - (1 << bits) if v >> (bits - 1) else v


def floats(dtype, n=300):
    info = np.finfo(dtype) if dtype != ml_dtypes.bfloat16 else ml_dtypes.finfo(dtype)
    top, tiny, least, eps = (float(getattr(info, x)) for x in ("max", "tiny", "smallest_subnormal", "eps"))
    edge = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, math.inf, -math.inf, math.nan, top, -top,
            tiny, least, -least, tiny / 2, eps, 1 + eps]  # fmt: skip
    with np.errstate(over="ignore"):
        spread = rng.standard_normal(n) * np.exp2(rng.integers(-30, 30, n).astype(np.float64))
        return np.concatenate([np.array(edge).astype(dtype), spread.astype(dtype)])


def float_pairs(dtype):
    a, b = floats(dtype), floats(dtype)
    edge = floats(dtype, 0)
    return np.concatenate([a, np.repeat(edge, len(edge))]), np.concatenate(
        [rng.permutation(b), np.tile(edge, len(edge))]
    )


MODES = ("rn", "rz", "rm", "rp")


def round_exact(x, mode, dtype):
    """A Fraction to a binary float type, by searching the neighbours of the nearest double."""
    with np.errstate(over="ignore"):
        try:
            near = float(x)
        except OverflowError:
            near = math.inf if x > 0 else -math.inf
        guess = np.array(near).astype(dtype)
    biggest = float((ml_dtypes.finfo if dtype == ml_dtypes.bfloat16 else np.finfo)(dtype).max)
    guess = np.clip(guess, dtype(-biggest), dtype(biggest)).astype(dtype)
    with np.errstate(over="ignore"):
        options = sorted(
            {float(g) for g in (guess, np.nextafter(guess, dtype(-math.inf)), np.nextafter(guess, dtype(math.inf)))}
        )
    finite = [v for v in options if math.isfinite(v)]
    below = [v for v in finite if Fraction(v) <= x]
    above = [v for v in finite if Fraction(v) >= x]
    low, high = (max(below) if below else -math.inf), (min(above) if above else math.inf)
    if mode == "rm":
        return low
    if mode == "rp":
        return high
    if mode == "rz":
        return low if x >= 0 else high
    if math.isinf(low) or math.isinf(high):
        # Beyond the largest: nearest goes to infinity from half a unit past it.
        step = Fraction(biggest) - Fraction(float(np.nextafter(dtype(biggest), dtype(0))))
        return (math.inf if abs(x) >= Fraction(biggest) + step / 2 else biggest) * (1 if x > 0 else -1)
    if low == high:
        return low
    dl, dh = x - Fraction(low), Fraction(high) - x
    if dl != dh:
        return low if dl < dh else high
    even = int(raw(np.array([low]).astype(dtype))[0]) & 1 == 0
    return low if even else high
