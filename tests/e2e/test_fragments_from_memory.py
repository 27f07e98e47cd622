"""Products in a loop whose fragments lanes take straight from global memory, with no tile in shared memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import wavedsl as wd

M, N, K = wd.symbols("M N K")


def product(dtype: wd.DType, tile: tuple[int, int, int], waves: int, b_rows: bool = True) -> Any:
    """C = A B^T (A B without `b_rows`), `waves` of a workgroup side by side along K."""
    out = wd.i32 if dtype.is_int else wd.f64 if dtype is wd.f64 else wd.f32
    b_dims = (*((N, K) if b_rows else (K, N)), wd.GLOBAL, dtype)
    b_type = wd.Memory[b_dims]

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, tile[0], 1),
            wd.WorkgroupConstraint(N, tile[1], 0),
            wd.TilingConstraint(K, tile[2]),
            wd.WaveConstraint(K, tile[2] // waves),
            wd.WaveConstraint(M, tile[0]),
            wd.WaveConstraint(N, tile[1]),
        ]
    )
    def kernel(a: wd.Memory[M, K, wd.GLOBAL, dtype], b: b_type, c: wd.Memory[M, N, out]):
        @wd.iterate(K, init_args=[wd.Register[M, N, out](0)])
        def over_k(acc: wd.Register[M, N, out]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(over_k, c)

    return kernel


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", [wd.f16, wd.bf16, wd.i8], ids=lambda d: d.name)
def test_lanes_read_16_bytes_of_k(target: str, dtype: wd.DType) -> None:
    """K is permuted inside of runs that both operands share: a lane's elements of one instruction and of its neighbours
    lie side by side. One instruction's own are words of 4 bytes, and there would be four times as many loads."""
    sizes = {M: 8, N: 64, K: 4096}
    text = product(dtype, (8, 16, 512), 4).compile(target=target, subs=sizes).asm
    loads = re.findall(r"ld\.global\S*", text)
    assert loads and all(load.endswith(".v4.b32") for load in loads)
    assert re.search(r"mma\.sync\.aligned\.m16n8k(16|32)", text)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", [wd.f64, wd.f32, wd.bf16, wd.i8], ids=lambda d: d.name)
@pytest.mark.parametrize("sizes", [(8, 32, 1024), (5, 37, 1000), (3, 9, 72)], ids=str)
def test_right_at_all_ends(target: str, dtype: wd.DType, sizes: tuple[int, int, int]) -> None:
    """Whole numbers are exact in any order of K; ends of every dimension are masked in the order that lanes have."""
    m, n, k = sizes
    rng = np.random.default_rng(m)
    a, b = rng.integers(-8, 8, (m, k)), rng.integers(-8, 8, (n, k))
    c = np.zeros((m, n), np.int32 if dtype.is_int else np.float64 if dtype is wd.f64 else np.float32)
    for tile, waves in (((8, 16, 256), 4), ((16, 8, 64), 1)):
        c[...] = 77
        kernel = product(dtype, tile, waves)
        kernel.compile(a.astype(dtype.storage), b.astype(dtype.storage), c, target=target).emulate(
            a.astype(dtype.storage), b.astype(dtype.storage), c
        )
        assert np.array_equal(c, a @ b.T)


def test_columns_contiguous_in_memory_keep_the_order_of_k() -> None:
    """A B that has rows of N is gathered along K in any case."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 4, (6, 96)).astype(np.float16), rng.integers(-4, 4, (96, 40)).astype(np.float16)
    c = np.zeros((6, 40), np.float32)
    product(wd.f16, (16, 16, 64), 2, b_rows=False).compile(a, b, c, target="sm_90a").emulate(a, b, c)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
