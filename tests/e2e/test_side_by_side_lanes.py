"""What lanes hand to each other on AMD, for several elements: none waits before the others are on their way."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import agree

import wavedsl as wd

M, N, P = wd.symbols("M N P")
AMD = ("gfx90a", "gfx942", "gfx950")
HANDED = r"\bds_swizzle_b32\b|\bds_bpermute_b32\b"


def longest_run(text: str) -> int:
    """Exchanges through LDS without a wait for one of them in between."""
    longest = run = 0
    for line in text.splitlines():
        if re.search(HANDED, line):
            run += 1
            longest = max(longest, run)
        elif "lgkmcnt" in line:
            run = 0
    return longest


@wd.wave([wd.WorkgroupConstraint(N, 32, 0)], subs={M: 64})
def columns(a: wd.Memory[M, N, wd.f32], best: wd.Memory[N, wd.f32], at: wd.Memory[N, wd.i32]):
    wd.write(wd.max(wd.read(a), dim=M), best)
    wd.write(wd.argmin(wd.read(a), dim=M), at)


@wd.wave([wd.WorkgroupConstraint(M, 32, 0)], subs={N: 32, P: 32})
def power(a: wd.Memory[M, N, wd.f16], c: wd.Memory[M, N, wd.f32]):
    """To the fourth: a product's result is both operands of the next."""
    x = wd.read(a)
    square = wd.cast(wd.mma(wd.reshape(x, M, P), wd.reshape(x, P, N), wd.Register[M, N, wd.f32](0.0)), wd.f16)
    wd.write(wd.mma(wd.reshape(square, M, P), wd.reshape(square, P, N), wd.Register[M, N, wd.f32](0.0)), c)


@wd.wave([wd.WorkgroupConstraint(N, 32, 0)], subs={M: 64})
def running(
    a: wd.Memory[M, N, wd.f32], c: wd.Memory[M, N, wd.f32], top: wd.Memory[M, N, wd.f32], rows: wd.Memory[M, wd.f32]
):  # fmt: skip
    """Along columns, several of which lanes share, since they have vectors of rows that are summed up: the sum of all
    before, and the largest of what is behind."""
    value = wd.read(a)
    wd.write(wd.cumsum(value, dim=M), c)
    wd.write(wd.scan(value, lambda x, y: wd.maximum(x, y), -math.inf, dim=M, reverse=True), top)
    wd.atomic_add(wd.sum(value, dim=N), rows)


CASES: dict[str, tuple[Any, Callable[[], list[Any]]]] = {
    "columns": (columns, lambda: [whole(64, 300), np.zeros(300, np.float32), np.zeros(300, np.int32)]),
    "running": (running, lambda: [whole(64, 300), *np.zeros((2, 64, 300), np.float32), np.zeros(64, np.float32)]),
    "power": (power, lambda: [whole(32, 32).astype(np.float16), np.zeros((32, 32), np.float32)]),
}


def whole(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, (rows, columns)).astype(np.float32)


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize("name", CASES)
def test_elements_are_handed_over_side_by_side(name: str, target: str, oracle: Callable[[str], str]) -> None:
    kernel, arguments = CASES[name]
    compiled = agree(kernel, arguments(), target, oracle)
    assert re.search(HANDED, compiled.asm), "the case shows nothing"
    assert longest_run(compiled.asm) >= 4
