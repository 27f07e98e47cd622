"""f32 rounded to bf16: every upper half with lower ones below, at and above the middle, infinities and NaNs of all
kinds among them, as they were read and as arithmetic left them. gfx90a and gfx942 have no instruction for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N, K = wd.symbols("M N K")
BY_HAND = ("gfx90a", "gfx942")


def numbers(lower: int) -> np.ndarray:
    return (np.arange(1 << 16, dtype=np.uint32) << 16 | np.uint32(lower)).view(np.float32)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("lower", [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], ids=hex)
def test_every_upper_half(lower: int, target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 4096, 0)])
    def kernel(x: wd.Memory[N, wd.f32], one: wd.Scalar[wd.f32], y: wd.Memory[N, wd.bf16], z: wd.Memory[N, wd.bf16]):
        v = wd.read(x)
        wd.write(wd.cast(v, wd.bf16), y)
        wd.write(wd.cast(v * one, wd.bf16), z)

    out = [np.zeros(1 << 16, wd.bf16.storage) for _ in range(2)]
    compiled = agree(kernel, [numbers(lower), 1.0, *out], target, oracle)
    if target.startswith("gfx"):
        by_hand = target in BY_HAND  # signaling NaNs of memory are compared, quiet ones of a product are not
        assert ("v_cmp_u_f32" in compiled.asm) == ("v_pk_max_i16" in compiled.asm) == by_hand


@pytest.mark.parametrize("target", BY_HAND)
def test_sums_of_products_are_not_compared(target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 32, 0), wd.WorkgroupConstraint(M, 32, 1), wd.TilingConstraint(K, 32)])
    def kernel(a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], c: wd.Memory[M, N, wd.bf16]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.cast(loop, wd.bf16), c)

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 96)).astype(wd.bf16.storage) for _ in range(2))
    a[3, 5], a[7, 70], b[11, 0] = np.nan, np.inf, -np.inf
    a.view(np.uint16)[40, 9] = 0xFFFF
    b.view(np.uint16)[33, 17] = 0x7FFF
    compiled = agree(kernel, [a, b, np.zeros((64, 64), wd.bf16.storage)], target, oracle)
    assert "v_pk_max_u16" in compiled.asm and "v_cmp_u_f32" not in compiled.asm
