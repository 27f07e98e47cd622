"""Rows that several waves share without being told to, on every chip: text against evaluator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

M, N, ONE = wd.symbols("M N ONE")


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def standardised(
    x: wd.Memory[M, N, wd.f16], y: wd.Memory[M, N, wd.f32], top: wd.Memory[M, wd.i32], runs: wd.Memory[M, N, wd.i32],
    columns: wd.Memory[N, wd.i32], positive: wd.Memory[ONE, wd.i32],
):  # fmt: skip
    """Each kind of operation that a row's waves do together, and what each of them has by itself."""
    row = wd.cast(wd.read(x), wd.f32)
    away = row - wd.sum(row, dim=N) / N
    wd.write(away * wd.rsqrt(wd.sum(away * away, dim=N) / N + 1.0), y)
    wd.write(wd.argmax(row, dim=N), top)
    ones = wd.cast(row > 0, wd.i32)
    wd.write(wd.cumsum(ones, dim=N), runs)
    wd.atomic_add(ones, columns)
    wd.atomic_add(wd.sum(ones, dim=N), positive, mapping=wd.IndexMapping((), {ONE: 0}))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [4096, pytest.param(5001, marks=pytest.mark.slow)])
def test_waves_share_a_row(columns: int, target: str, oracle: Callable[[str], str]) -> None:
    x = np.random.default_rng(columns).integers(-4, 5, (2, columns)).astype(np.float16)
    arguments = [
        x, np.full(x.shape, np.nan, np.float32), np.zeros(2, np.int32), np.zeros(x.shape, np.int32),
        np.zeros(columns, np.int32), np.zeros(1, np.int32),
    ]  # fmt: skip
    compiled = agree(standardised, arguments, target, oracle, near(4))
    assert compiled.block[0] > (64 if target.startswith("gfx") else 32)
    assert not compiled.resources.spills
