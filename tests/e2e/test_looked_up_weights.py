"""Products by weights whose codes of 4 bits are looked up in a table: two to a byte, eight to a word, or as arrays of
4-bit elements are packed. Lanes of sm_80 hold whole words of codes. Graph evaluator, emulator and assembler agree;
clocks are the model's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import agree, near
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

K, LEVELS, M, N = wd.symbols("K LEVELS M N")
F16, F32, I32 = wd.f16, wd.f32, wd.i32
WAYS = ("high first", "low first", "mapped", "words", "u4")
GRID = [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)]


def kernel(way: str) -> Any:
    stored = {"words": (K / 8, I32), "u4": (K, wd.u4)}.get(way, (K / 2, wd.u8))

    @wd.wave(GRID)
    def looked_up(
        x: wd.Memory[M, K, F16], codes: wd.Memory[(N, *stored)], top: wd.Memory[N, K / 64, F32],
        levels: wd.Memory[LEVELS, F32], y: wd.Memory[M, N, F32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
        def total(acc):
            k = wd.index(K)
            if way == "u4":
                code = wd.cast(wd.read(codes), I32)
            elif way == "words":
                code = wd.repeat_interleave(wd.read(codes), K) >> (k % 8 * 4) & 15
            elif way == "mapped":
                code = wd.cast(wd.read(codes[:, k // 2]), I32) >> (k % 2 * 4) & 15
            else:
                byte = wd.repeat_interleave(wd.cast(wd.read(codes), I32), K)
                first, second = (byte >> 4, byte & 15) if way == "high first" else (byte & 15, byte >> 4)
                code = wd.where(k % 2 == 0, first, second)
            level = wd.read(levels, mapping=wd.IndexMapping((N, K), {LEVELS: code}))
            return wd.mma(wd.read(x), wd.cast(level * wd.repeat_interleave(wd.read(top), K), F16), acc)

        wd.write(total, y)

    return looked_up


def data(way: str, m: int, n: int, k: int) -> tuple[list[Any], np.ndarray]:
    """Levels and scales of few bits, so that sums are exact."""
    rng = np.random.default_rng(0)
    x, codes = rng.integers(-2, 3, (m, k)).astype(np.float16), rng.integers(0, 16, (n, k)).astype(np.uint8)
    levels = rng.permutation(np.arange(-8, 8)).astype(np.float32) / 8
    top = np.exp2(rng.integers(-2, 3, (n, k // 64))).astype(np.float32)
    low, high = codes[:, ::2], codes[:, 1::2]
    packed = low << 4 | high if way == "high first" else low | high << 4
    want = x.astype(np.float64) @ (levels[codes] * np.repeat(top, 64, 1)).T.astype(np.float64)
    return [x, packed.view(np.int32) if way == "words" else packed, top, levels, np.zeros((m, n), np.float32)], want


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
def test_sums_are_those_of_numpy(way: str, target: str, oracle: Callable[[str], str]) -> None:
    for shape in ((16, 64, 128), (5, 70, 320)):
        given, want = data(way, *shape)
        compiled = agree(kernel(way), given, target, oracle, near(1.0))
        compiled.emulate(*given)
        np.testing.assert_array_equal(given[-1], want)


@pytest.mark.parametrize("way", WAYS)
def test_lanes_load_whole_words_of_codes(way: str) -> None:
    """K was permuted for numbers of 4-bit arrays alone: lanes had two neighbours, and loaded a byte for each, or
    exchanged elements."""
    asm = kernel(way).compile(*data(way, 16, 256, 512)[0], target="sm_80").asm
    assert "ld.global.u8" not in asm and "shfl" not in asm and "mma.sync" in asm


CLOCKS = {"high first": (51_500, 52_213), "mapped": (43_000, 50_324), "u4": (53_500, 75_606)}
"""Of 16 rows by 4096 x 4096 weights on sm_80: at most, and where lanes had two neighbours."""


@pytest.mark.parametrize("way", CLOCKS)
def test_clocks(way: str) -> None:
    given, _ = data(way, 16, 4096, 4096)
    most, before = CLOCKS[way]
    assert sample(kernel(way).compile(*given, target="sm_80"), given).replay().cycles < most < before


def test_a_byte_that_is_used_whole_is_no_pair() -> None:
    """Codes of 8 bits are a word in four neighbours: K stays as it is."""

    @wd.wave(GRID)
    def bytes_(
        x: wd.Memory[M, K, F16], codes: wd.Memory[N, K, wd.u8], levels: wd.Memory[LEVELS, F16], y: wd.Memory[M, N, F32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
        def total(acc):
            code = wd.cast(wd.read(codes), I32)
            return wd.mma(wd.read(x), wd.read(levels, mapping=wd.IndexMapping((N, K), {LEVELS: code})), acc)

        wd.write(total, y)

    rng = np.random.default_rng(0)
    x, codes = rng.integers(-2, 3, (16, 128)).astype(np.float16), rng.integers(0, 256, (64, 128)).astype(np.uint8)
    levels, y = rng.integers(-8, 8, 256).astype(np.float16), np.zeros((16, 64), np.float32)
    bytes_.compile(x, codes, levels, y, target="sm_80").emulate(x, codes, levels, y)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ levels[codes].T.astype(np.float64))
