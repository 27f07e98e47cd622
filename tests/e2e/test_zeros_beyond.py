"""Masks beyond the end of a contracted or added dimension: none where values are 0 there by themselves, and there where
they are not. Text against evaluator, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N, K, L = wd.symbols("M N K L")
CHIPS = (*TARGETS, "sm_90a")
TILES = [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 32)]


def whole(*shape: int, low: int = -3, dtype: Any = np.float16) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(low, 4, shape).astype(dtype)


@wd.wave(TILES)
def biased(
    a: wd.Memory[M, K, wd.f16], p: wd.Memory[M, wd.f16], b: wd.Memory[N, K, wd.f16], q: wd.Memory[N, wd.f16],
    c: wd.Memory[M, N, wd.f32],
):  # fmt: skip
    """Both factors have something added that has no K, and so no end along it."""

    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def loop(acc):
        return wd.mma(wd.read(a) + wd.read(p), wd.read(b) - wd.read(q), acc)

    wd.write(loop, c)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("k", [40, 5, 64])
def test_what_lacks_the_dimension_is_not_0_beyond_its_end(k: int, target: str, oracle: Callable[[str], str]) -> None:
    """They were multiplied there: 216 too much in 24 places beyond the end of 40."""
    arguments = [whole(32, k), whole(32, low=1), whole(32, k), whole(32, low=1), np.zeros((32, 32), np.float32)]
    agree(biased, arguments, target, oracle if k == 40 else None)


def summed(what: Callable[[Any, Any], Any], end: Any = K) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(x: wd.Memory[M, L, wd.f16], r: wd.Memory[M, wd.f16], s: wd.Memory[M, wd.f32]):
        value = wd.cast(wd.read(x, mapping=wd.IndexMapping((M, K), {L: K})), wd.f32)
        wd.write(wd.sum(what(value, wd.cast(wd.read(r), wd.f32)), dim=K), s)

    return kernel


SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "squares": lambda x, r: x * x,
    "of magnitudes": lambda x, r: wd.abs(x) - wd.maximum(x, x * x),
    "differences": lambda x, r: (x - r) * (x - r),
    "scaled": lambda x, r: x * r + 1,
}


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("k", [37, 200, 1000])
def test_sums_of_a_part_of_rows(k: int, name: str, target: str) -> None:
    """The array goes on behind what is added."""
    agree(summed(SUMS[name]), [whole(6, k + 29), whole(6, low=1), np.zeros(6, np.float32)], target, subs={K: k})


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def mean_square(x: wd.Memory[M, K, wd.f16], s: wd.Memory[M, wd.f32]):
    value = wd.cast(wd.read(x), wd.f32)
    wd.write(wd.sum(value * value, dim=K), s)


@wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(K, 40)])
def in_tiles(x: wd.Memory[M, K, wd.f16], s: wd.Memory[M, wd.f32]):
    """Tiles of 40, which lanes hold in boxes of 64."""

    @wd.iterate(K, init_args=[wd.Register[M, wd.f32](0.0)])
    def total(acc):
        value = wd.cast(wd.read(x), wd.f32)
        return acc + wd.sum(value * value, dim=K)

    wd.write(total, s)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("k", [120, 100, 7])
def test_padding_of_tiles(k: int, target: str) -> None:
    agree(in_tiles, [whole(6, k), np.zeros(6, np.float32)], target)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("waves", [2, 4])
@pytest.mark.parametrize("k", [100, 5000, 1200])
def test_waves_that_share_rows(k: int, waves: int, target: str) -> None:
    """What a wave's registers hold beyond its share of a row is another's, not 0."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(K, k, 1), wd.WaveConstraint(K, k // waves)])
    def kernel(x: wd.Memory[M, K, wd.f16], s: wd.Memory[M, wd.f32]):
        value = wd.cast(wd.read(x), wd.f32)
        wd.write(wd.sum(value * value, dim=K), s)

    agree(kernel, [whole(3, k), np.zeros(3, np.float32)], target)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("k", [1000, 37, 5000])
def test_squares_need_no_masks(k: int, target: str) -> None:
    compiled = agree(mean_square, [whole(6, k), np.zeros(6, np.float32)], target)
    if k == 1000:
        text = compiled.asm
        assert text.count("selp" if target.startswith("sm") else "v_cndmask") <= 2, "elements are selected"
