"""A product's result is the next product's operand without shared memory between, for 16-, 8- and 4-bit floats."""

from __future__ import annotations

import re

import numpy as np
import packed
import pytest
from products import K, M, N

import wavedsl as wd

D = wd.sym.D
CASES = [
    ("gfx942", wd.f16), ("gfx942", wd.f8e4m3fnuz), ("gfx950", wd.f16), ("gfx950", wd.f8e4m3), ("gfx950", wd.f4e2m1),
]  # fmt: skip


@pytest.mark.parametrize(("target", "dtype"), CASES, ids=str)
def test_results_stay_in_registers(target: str, dtype: wd.DType) -> None:
    """S = Q Kᵀ, O = S Vᵀ. The order of K that S has in registers is the order in which V is placed: stores of its copy
    must not take elements for neighbours that are so in shared memory only."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WaveConstraint(M, 32), wd.TilingConstraint(N, 64)])
    def chained(
        q: wd.Memory[M, K, dtype], k: wd.Memory[N, K, wd.SHARED, dtype], v: wd.Memory[D, N, wd.SHARED, dtype],
        o: wd.Memory[M, D, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, D, wd.f32](0.0)

        @wd.iterate(N, init_args=[zero])
        def loop(acc: wd.Register[M, D, wd.f32]):
            s = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0))
            return wd.mma(wd.cast(s, dtype), wd.read(v), acc)

        wd.write(loop, o)

    rng = np.random.default_rng(4)
    shapes = [(64, 128), (128, 128), (64, 128)]
    if dtype.bits < 8:
        (q, a), (k, b), (v, c) = (packed.operand(rng, dtype, s) for s in shapes)
    else:
        q, k, v = (rng.integers(-1, 2, s).astype(dtype.numpy) for s in shapes)
        a, b, c = (x.astype(np.float64) for x in (q, k, v))
    o = np.zeros((64, 64), np.float32)
    compiled = chained.compile(q, k, v, o, target=target)
    compiled.emulate(q, k, v, o)
    narrow = packed.FLOATS.get(dtype.name, dtype.numpy)
    largest = 6.0 if dtype.bits < 8 else 240.0
    s = np.clip(a @ b.T, -largest, largest).astype(np.float32).astype(narrow).astype(np.float64)
    assert (np.abs(o - s @ c.T) <= 136 * 2.0**-24 * (np.abs(s) @ np.abs(c).T)).all()
    assert not re.search(r"\bscratch\b|ds_bpermute|ds_swizzle", compiled.asm)


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
def test_a_low_rank_product_beside_a_full_one(target: str) -> None:
    """y = x Wᵀ + (x Aᵀ) Bᵀ in one loop over K. On sm_90a the small result may feed the side of an instruction that
    comes from shared memory alone: there is no order of registers to keep there (this was a KeyError)."""
    R = wd.sym.R

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
    def lora(
        x: wd.Memory[M, K, wd.bf16], w: wd.Memory[N, K, wd.bf16], a: wd.Memory[R, K, wd.bf16],
        b: wd.Memory[N, R, wd.bf16], y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[M, R, wd.f32](0.0)])
        def loop(full, low):
            tile = wd.read(x)
            return wd.mma(tile, wd.read(w), full), wd.mma(tile, wd.read(a), low)

        full, low = loop
        wd.write(wd.mma(wd.cast(low, wd.bf16), wd.read(b), full), y)

    rng = np.random.default_rng(4)
    x, w, a, b = (rng.integers(-1, 2, s).astype(wd.bf16.storage) for s in ((70, 128), (80, 128), (16, 128), (80, 16)))
    y = np.zeros((70, 80), np.float32)
    lora.compile(x, w, a, b, y, target=target).emulate(x, w, a, b, y)
    wide = [v.astype(np.float64) for v in (x, w, a, b)]
    np.testing.assert_array_equal(y, wide[0] @ wide[1].T + wide[0] @ wide[2].T @ wide[3].T)


B, D = wd.symbols("B D")


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(B, 1, 1), wd.TilingConstraint(N, 32)])
def weighed(
    q: wd.Memory[B, M, D, wd.f16], k: wd.Memory[B, N, D, wd.f16], v: wd.Memory[B, N, D, wd.f16],
    o: wd.Memory[B, M, D, wd.f16],
):  # fmt: skip
    @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](0.0)])
    def loop(acc):
        s = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0))
        s = wd.where(wd.index(N) <= wd.index(M), s, 0.0)
        return wd.mma(wd.cast(s, wd.f16), wd.read(v), acc)

    wd.write(wd.cast(loop, wd.f16), o)


def test_sums_that_start_in_either_of_two_loops() -> None:
    """The trips on which the mask holds everywhere are a loop of their own, which may have none: sums start in the
    loop behind it then, and where workgroups take several tiles nothing of the tile before lives on: it was taken to,
    and the two loops' sums could not have the same registers. The back end's check was right to refuse the moves."""
    compiled = weighed.compile(target="sm_90a", subs={B: 32, M: 512, N: 512, D: 64})
    assert compiled.grid[0] * compiled.grid[1] < 8 * 32
