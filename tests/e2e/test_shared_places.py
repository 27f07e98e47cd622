"""One element of an array for many of a value, read at `K // 128`: one address and one load for all that share it, text
against evaluator."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N, K, G, H, BN, BK = wd.symbols("M N K G H BN BK")
CHIPS = (*TARGETS, "sm_90a")


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)


def scaled(place: Callable[[Any], Any], rows: Callable[[Any], Any], waves: int = 1) -> Any:
    """Rows of x in a loop over K, each element times the number that stands at (rows(n), place(k))."""

    @wd.wave(
        [wd.WorkgroupConstraint(N, BN, 0), wd.TilingConstraint(K, BK), wd.WaveConstraint(K, BK / waves)],
        subs={BN: 16, BK: 64},
    )
    def kernel(x: wd.Memory[N, K, wd.f32], s: wd.Memory[H, G, wd.f32], y: wd.Memory[N, K, wd.f32]):
        @wd.iterate(K, init_args=[])
        def loop():
            factor = wd.read(s, mapping=wd.IndexMapping((N, K), {H: rows(N), G: place(K)}))
            wd.write(wd.read(x) * factor, y)

    return kernel


PLACES: dict[str, Callable[[Any], Any]] = {
    "of 32": lambda k: k // 32,
    "of 512": lambda k: k // 512,
    "shifted by a half": lambda k: (k + 16) // 32,
    "shifted by one": lambda k: (k + 1) // 32,
    "below the start": lambda k: (k - 64) // 32,
    "of 12": lambda k: k // 12,
    "in turn": lambda k: k % 64 // 16,
    "twice": lambda k: k // 16 + k // 64,
    "of multiples": lambda k: 3 * k // 32,
    "itself, too": lambda k: k // 32 + k % 2,
}


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("name", PLACES)
def test_places(name: str, target: str) -> None:
    """Also where tiles are no whole number of groups, rows share numbers, and both stick out."""
    cases = ((lambda n: n, (16, 128), 64), (lambda n: n // 4, (21, 200), 64), (lambda n: n, (5, 96), 48))
    for rows, size, tile in cases:
        arguments = [whole(*size), whole(size[0], 9, seed=1), np.zeros(size, np.float32)]
        agree(scaled(PLACES[name], rows), arguments, target, subs={BK: tile})


@pytest.mark.parametrize("target", CHIPS)
def test_waves_that_share_a_group(target: str) -> None:
    for waves in (2, 4):
        arguments = [whole(24, 300), whole(24, 9, seed=1), np.zeros((24, 300), np.float32)]
        agree(scaled(PLACES["of 32"], lambda n: n, waves), arguments, target)


@pytest.mark.parametrize("target", CHIPS)
def test_sums_of_groups(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 4, 0), wd.WorkgroupConstraint(K, 128, 1)])
    def kernel(x: wd.Memory[N, K, wd.f32], y: wd.Memory[N, G, wd.f32]):
        wd.atomic_add(wd.read(x), y, mapping=wd.IndexMapping((N, K), {N: N, G: K // 16}))

    agree(kernel, [whole(10, 200), np.zeros((10, 13), np.float32)], target)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("tile", [64, 128, 256])
def test_weights_in_groups(target: str, tile: int, oracle: Callable[[str], str]) -> None:
    """The product of 4-bit weights with a factor for each 128 of K, written as `K // 128`, loads no more than the one
    written with `repeat_interleave`. A load per element had 64 of them in tiles of 128: 54301 clocks for 29400
    (16 x 8192 x 8192 by the replay of an H200)."""

    def product(groups: Any, factors: Callable[[Any], Any]) -> Any:
        @wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.WorkgroupConstraint(M, 16, 1), wd.TilingConstraint(K, tile)])
        def kernel(
            x: wd.Memory[M, K, wd.SHARED, wd.f16], q: wd.Memory[N, K, wd.SHARED, wd.u4],
            s: wd.Memory[N, groups, wd.f16], y: wd.Memory[M, N, wd.f32],
        ):  # fmt: skip
            @wd.iterate(K, init_args=[wd.Register[N, M, wd.f32](0.0)])
            def loop(acc):
                weights = (wd.cast(wd.read(q), wd.f16) - 8) * factors(s)
                return wd.mma(weights, wd.read(x), acc)

            wd.write(wd.permute(loop, M, N), y)

        return kernel

    def loads(compiled: wd.CompiledKernel) -> int:
        return len(re.findall(r"ld\.global|buffer_load", compiled.asm))

    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, (16, 512)).astype(np.float16)
    arguments = [x, rng.integers(0, 256, (64, 256), dtype=np.uint8), rng.integers(1, 4, (64, 4)).astype(np.float16)]
    here = product(G, lambda s: wd.read(s, mapping=wd.IndexMapping((N, K), {G: K // 128})))
    there = product(K / 128, lambda s: wd.repeat_interleave(wd.read(s), K))
    found = [agree(k, [*arguments, np.zeros((16, 64), np.float32)], target, oracle) for k in (here, there)]
    assert loads(found[0]) <= loads(found[1]) + 8
