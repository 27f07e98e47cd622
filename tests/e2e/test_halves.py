"""f16 arithmetic goes two numbers at a time on every chip, and rounds as it does one by one."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N = wd.symbols("M N")
CONVERSION = re.compile(r"v_cvt_f\d\d_f\d\d|cvt\.(?:rn\.)?f\d\d(?:x2)?\.f\d\d")


@wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
def polynomial(
    a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16], c: wd.Memory[M, wd.f16], y: wd.Memory[M, N, wd.f16],
):  # fmt: skip
    """Differences, sums and products of words, with a number per row and with constants on either side."""
    x, z = wd.read(a), wd.read(b)
    wd.write((x - z) * wd.read(c) + x * 1.5 - (0.25 - z) * x, y)


@pytest.mark.parametrize("target", TARGETS)
def test_pairs_round_as_numbers_do(target: str, oracle: Callable[[str], str]) -> None:
    """Every kind of number meets every other: denormals, ends of the range, infinities, NaN, and ties in between."""
    special = [0.0, -0.0, 2.0**-24, 2.0**-14, 1 - 2.0**-11, 1.0, 1 + 2.0**-10, 65504.0, np.inf, np.nan, 1 / 3, 2049.0]
    a = np.array([*special, *(-x for x in special)], np.float16)
    x, y = (np.ascontiguousarray(v, np.float16) for v in np.broadcast_arrays(a[:, None], a[None]))
    c = np.resize(np.array([0.37, 2.0**-9, 300.0], np.float16), len(a))
    compiled = agree(polynomial, [x, y, c, np.zeros_like(x)], target, oracle)
    assert not CONVERSION.search(compiled.asm)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_no_pair_of_halves_is_done_one_by_one(target: str) -> None:
    """A constant that f16 has not, a number of f32, and two operations in one."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(
        a: wd.Memory[M, N, wd.f16], s: wd.Scalar[wd.f32], y: wd.Memory[M, N, wd.f16], z: wd.Memory[M, N, wd.f16],
    ):  # fmt: skip
        wide = wd.cast(wd.read(a), wd.f32)
        wd.write(wd.cast(wide * 0.1, wd.f16), y)
        wd.write(wd.cast(wide * wide + s, wd.f16), z)

    a = np.random.default_rng(1).standard_normal((9, 40)).astype(np.float16)
    agree(kernel, [a, 0.1, np.zeros_like(a), np.zeros_like(a)], target)
