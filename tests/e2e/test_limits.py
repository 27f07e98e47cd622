"""Numbers held between limits, cast to 8 bits, and the largest of their sizes: what quantisation does to every element.
Text against evaluator, special numbers among them, and how many instructions it takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import TARGETS, agree
from products import AMD, M, N

import wavedsl as wd

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 447.0, 448.0, 449.0, -460.0, 240.0, -250.0, 3e38, 1e-3, 1e-40]


def numbers() -> np.ndarray:
    x = np.random.default_rng(0).normal(0, 300, (3, 128)).astype(np.float32)
    x[1, : len(SPECIAL)] = SPECIAL
    return x


def eight_bits(target: str) -> wd.DType:
    return wd.f8e4m3fnuz if target == "gfx942" else wd.f8e4m3


def rows(function: Callable[[Any], Any], out: wd.DType) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, out]):
        wd.write(function(wd.read(a)), b)

    return kernel


def vector(text: str, name: str) -> int:
    """How often an instruction stands in a text."""
    return len(re.findall(rf"^\s+{name}(?:_e32|_e64)?\s", text, re.M))


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_90a"])
@pytest.mark.parametrize("part", [0.5, 1.0, 1.25])
def test_what_is_held_between_limits_is_cast_as_it_is(
    part: float, target: str, oracle: Callable[[str], str]
) -> None:  # fmt: skip
    """Not limited a second time, nor asked whether it is a NaN, unless limits are beyond the dtype's largest number."""
    to = eight_bits(target)
    limit = part * float(ml_dtypes.finfo(to.numpy).max)
    held = rows(lambda x: wd.cast(wd.clamp(x, -limit, limit), to), to)
    made = agree(held, [numbers(), np.zeros((3, 128), to.numpy)], target, oracle)
    if target in AMD:
        again = part > 1
        assert vector(made.asm, "v_med3_f32") == (4 if again else 2)
        assert vector(made.asm, "v_cndmask_b32") == (2 if again else 0)
        assert not vector(made.asm, "v_min_f32") + vector(made.asm, "v_max_f32")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("low", "high"), [(-4.0, 4.0), (-6.5, 6.5), (-1.0, 2.5), (-np.inf, np.inf), (0.0, 6.0)])
def test_limits(low: float, high: float, target: str, oracle: Callable[[str], str]) -> None:
    """One instruction where one is the other's negative; of a NaN the lower one is left in either order."""
    between = rows(lambda x: wd.clamp(x, low, high), wd.f32)
    made = agree(between, [numbers(), np.zeros((3, 128), np.float32)], target, oracle)
    turned = rows(lambda x: wd.maximum(wd.minimum(x, high), low), wd.f32)
    agree(turned, [numbers(), np.zeros((3, 128), np.float32)], target, oracle)
    if target in AMD:
        assert vector(made.asm, "v_med3_f32") == (2 if low == -high else 0)


@pytest.mark.parametrize("target", TARGETS)
def test_the_largest_of_sizes(target: str, oracle: Callable[[str], str]) -> None:
    """Signs are left out where numbers are compared. A size that somebody else reads, too, is made once."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(
        a: wd.Memory[M, N, wd.f32], least: wd.Memory[M, wd.f32], most: wd.Memory[M, wd.f32], b: wd.Memory[M, N, wd.f32]
    ):  # fmt: skip
        x = wd.read(a)
        wd.write(wd.max(wd.abs(x), dim=N), most)
        wd.write(wd.min(wd.abs(x * 3.0), dim=N), least)
        wd.write(wd.maximum(wd.abs(x - 1.0), wd.sqrt(wd.abs(x))), b)

    results = [np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros((3, 128), np.float32)]
    made = agree(kernel, [numbers(), *results], target, oracle)
    if target in AMD:
        assert made.asm.count("0x7fffffff, ") <= 2
        assert "|" in made.asm
