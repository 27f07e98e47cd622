"""Rotary position embedding: each pair (x[t, h, e], x[t, h, e + D / 2]) is turned by the angle of its position.

    python examples/rope.py --target sm_80 --tokens 33 --heads 3 --d 20

The halves of a head are read as two values through an IndexMapping; angles are computed, not looked up.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

T, H, S, E = wd.symbols("T H S E")


def rope_kernel(dtype: wd.DType, base: float):
    """x and y are [T, H, 2, E] views of [T, H, D]."""

    @wd.wave([wd.WorkgroupConstraint(T, 16, 0), wd.WorkgroupConstraint(H, 1, 1)])
    def rope(x: wd.Memory[T, H, S, E, dtype], y: wd.Memory[T, H, S, E, dtype]):
        low, high = (wd.IndexMapping((T, E), {S: half}) for half in (0, 1))
        a, b = (wd.cast(wd.read(x, mapping=half), wd.f32) for half in (low, high))
        share = wd.cast(wd.index(E), wd.f32) / E
        angle = wd.cast(wd.index(T), wd.f32) * wd.exp2(share * -math.log2(base))
        c, s = wd.cos(angle), wd.sin(angle)
        wd.write(wd.cast(a * c - b * s, dtype), y, mapping=low)
        wd.write(wd.cast(b * c + a * s, dtype), y, mapping=high)

    return rope


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f32", "f16", "bf16"), tokens=64, heads=2, d=64).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    half = given.d // 2
    x = common.data((given.tokens, given.heads, 2, half), dtype, given.seed)
    y = np.zeros_like(x)
    base = 10000.0
    common.run(rope_kernel(dtype, base), [x, y], given)
    angle = np.arange(given.tokens)[:, None, None] * base ** (-np.arange(half) / half)
    a, b = x[:, :, 0].astype(np.float64), x[:, :, 1].astype(np.float64)
    c, s = np.cos(angle), np.sin(angle)
    want = np.stack([a * c - b * s, b * c + a * s], 2)
    # sin and cos are off by 2^-19, and by what rounding does to the angle.
    slack = 2.0**-19 + 2.0**-21 * angle
    allowed = common.bound(want, dtype, 1) + (slack * (np.abs(a) + np.abs(b)))[:, :, None]
    return common.verdict("y", y, want, allowed)


if __name__ == "__main__":
    sys.exit(main())
