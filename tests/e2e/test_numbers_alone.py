"""Choices between numbers of the source, none of which is a value: which dtype they have, evaluated and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

N = wd.sym.N
CHOICES: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any, int], Any]]] = {
    "floats": (wd.f32, lambda x: wd.where(x > 0, -1.0, 1.0), lambda x, n: np.where(x > 0, -1.0, 1.0)),
    "whole": (wd.i32, lambda x: wd.where(x > 0, -1, 1), lambda x, n: np.where(x > 0, -1, 1)),
    "mixed": (wd.f32, lambda x: wd.where(x > 0, 1, 0.5), lambda x, n: np.where(x > 0, 1, 0.5)),
    "bools": (wd.i1, lambda x: wd.where(x > 0, False, True), lambda x, n: ~(x > 0)),
    "extent": (wd.i32, lambda x: wd.where(x > 0, N, 0), lambda x, n: np.where(x > 0, n, 0)),
    "fraction": (wd.f32, lambda x: wd.where(x > 0, N / 2, 0), lambda x, n: np.where(x > 0, n / 2, 0)),
    "minimum": (wd.i32, lambda x: wd.where(x > 0, wd.minimum(N, 8), 0), lambda x, n: np.where(x > 0, min(n, 8), 0)),
    "clamp": (wd.f32, lambda x: x + wd.clamp(N / 2, 1, 4), lambda x, n: x + np.float32(min(n / 2, 4))),
    "partner": (wd.f32, lambda x: wd.where(x > 0, 1, x), lambda x, n: np.where(x > 0, 1, x)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_between_numbers(name: str, target: str) -> None:
    dtype, choose, expected = CHOICES[name]
    out = wd.i32 if dtype is wd.i1 else dtype

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, wd.f32], y: wd.Memory[N, out]):
        chosen = choose(wd.read(x))
        wd.write(wd.cast(chosen, out) if dtype is wd.i1 else chosen, y)

    for n, dynamic in ((5, ()), (130, (N,))):
        x, y = np.linspace(-1, 1, n, dtype=np.float32), np.zeros(n, out.numpy)
        agree(kernel, [x, y], target, dynamic=dynamic)
        kernel.evaluate(x, y)
        assert np.array_equal(y, expected(x, n).astype(out.numpy))


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_and_extents_in_a_dtype(target: str) -> None:
    """`wd.cast` was for values alone: helpers that take both had to tell them apart."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, wd.u32], y: wd.Memory[N, wd.u8], z: wd.Memory[N, wd.f16]):
        v = wd.read(x)
        wd.write(wd.where(v % wd.cast(N, wd.u32) > wd.cast(2.9, wd.u32), wd.cast(255, wd.u8), 0), y)
        wd.write(wd.cast(v, wd.f16) * wd.cast(N / 2, wd.f16) + wd.cast(True, wd.f16), z)

    for n, dynamic in ((5, ()), (130, (N,))):
        x = np.arange(n, dtype=np.uint32) * 3
        y, z = np.zeros(n, np.uint8), np.zeros(n, np.float16)
        agree(kernel, [x, y, z], target, dynamic=dynamic)
        kernel.evaluate(x, y, z)
        assert np.array_equal(y, np.where(x % n > 2, 255, 0))
        assert np.array_equal(z, x.astype(np.float16) * np.float16(n / 2) + np.float16(1))


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_with_a_dtype_are_stored_in_every_element(target: str) -> None:
    """`wd.atomic_add(wd.cast(1, wd.u32), bins, mapping=…)` was refused where 1 is taken."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, wd.u32], bins: wd.Memory[7, wd.u32], y: wd.Memory[N, wd.u8]):
        place = wd.cast(wd.read(x) % 7, wd.i32)
        wd.atomic_add(wd.cast(3, wd.u32), bins[place])
        wd.write(wd.cast(200, wd.u8), y)

    x = np.arange(130, dtype=np.uint32) ** 2
    bins, y = np.zeros(7, np.uint32), np.zeros(130, np.uint8)
    agree(kernel, [x, bins, y], target)
    kernel.evaluate(x, bins, y)
    assert (bins == 3 * np.bincount(x % 7, minlength=7)).all() and (y == 200).all()


@pytest.mark.parametrize("target", (*TARGETS, "sm_90a"))
def test_one_place_of_a_dimension_that_waves_share(target: str, oracle: Callable[[str], str]) -> None:
    """All waves of a tile read the place that is named; each read one as far on as its own rows are."""
    m, n = wd.symbols("m n")

    @wd.wave([wd.WorkgroupConstraint(m, 64, 0), wd.WaveConstraint(m, 16)])
    def kernel(
        x: wd.Memory[m, n, wd.f32], f: wd.Memory[m, wd.f32], g: wd.Memory[m, n, wd.f32], y: wd.Memory[m, n, wd.f32]
    ):
        first = wd.tile_start(m)
        wd.write(wd.read(x) * wd.read(f[first]) + wd.read(g[first + 1, :]), y)

    x = np.random.default_rng(0).integers(-9, 9, (150, 40)).astype(np.float32)
    f, g, y = np.arange(150, dtype=np.float32), x * 3 + 1, np.ones_like(x)
    agree(kernel, [x, f, g, y], target, oracle).emulate(x, f, g, y)
    start = np.arange(150) // 64 * 64
    assert (y == x * f[start][:, None] + g[start + 1]).all()
