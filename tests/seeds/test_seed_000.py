"""The programs of the first seed document in this language, with the arguments it gives: copy, MMA, GEMM with a K loop.

The seed names every choice (waves per block, lanes per wave, vector shapes, elements per thread, the matrix
instruction), so these kernels do too; they are for AMD's 64-lane waves, as the seed is.
"""

from __future__ import annotations

import numpy as np
import pytest

import wavedsl as wd

AMD = ("gfx90a", "gfx942", "gfx950")

M, N, K, BLOCK_M, BLOCK_N, BLOCK_K = wd.symbols("M N K BLOCK_M BLOCK_N BLOCK_K")
LOAD_ELEMS_PER_THREAD, STORE_ELEMS_PER_THREAD = wd.symbols("LOAD_ELEMS_PER_THREAD STORE_ELEMS_PER_THREAD")
ADDRESS_SPACE, ADDRESS_SPACE_0 = wd.symbols("ADDRESS_SPACE ADDRESS_SPACE_0")


@wd.wave(
    [
        wd.HardwareConstraint(threads_per_wave=64, vector_shapes={M: 16, N: 16}),
        wd.WorkgroupConstraint(M, 16, 0),
        wd.WorkgroupConstraint(N, 16, 1),
        wd.WaveConstraint(M, 16),
        wd.WaveConstraint(N, 16),
    ]
)
def copy_kernel(a: wd.Memory[M, N, ADDRESS_SPACE, wd.f16], b: wd.Memory[M, N, ADDRESS_SPACE, wd.f16]):
    """Copy kernel that reads from input and writes to output."""
    res = wd.read(a)
    wd.write(res, b)


@wd.wave(
    [
        wd.HardwareConstraint(threads_per_wave=64, waves_per_block=(1, 1, 1), vector_shapes={M: BLOCK_M, N: BLOCK_N}),
        wd.WorkgroupConstraint(M, BLOCK_M, 0),
        wd.WorkgroupConstraint(N, BLOCK_N, 1),
        wd.WaveConstraint(M, BLOCK_M / 1),
        wd.WaveConstraint(N, BLOCK_N / 1),
    ]
)
def mma_kernel(
    a: wd.Memory[M, K, ADDRESS_SPACE, wd.f16],
    b: wd.Memory[N, K, ADDRESS_SPACE, wd.f16],
    c: wd.Memory[M, N, wd.GLOBAL, wd.f32],
):
    """One matrix instruction, staged through shared memory."""
    a_reg = wd.read(a, elements_per_thread=LOAD_ELEMS_PER_THREAD)
    b_reg = wd.read(b, elements_per_thread=LOAD_ELEMS_PER_THREAD)
    acc = wd.mma(a_reg, b_reg)
    wd.write(acc, c, elements_per_thread=STORE_ELEMS_PER_THREAD)


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BLOCK_M, 0),
        wd.WorkgroupConstraint(N, BLOCK_N, 1),
        wd.TilingConstraint(K, BLOCK_K),
        wd.WaveConstraint(M, 16),
        wd.WaveConstraint(N, 16),
        wd.HardwareConstraint(threads_per_wave=64, mma_type=wd.MMAType.F32_16x16x16_F16),
    ]
)
def gemm_kernel(
    a: wd.Memory[M, K, ADDRESS_SPACE, wd.f16],
    b: wd.Memory[N, K, ADDRESS_SPACE, wd.f16],
    c: wd.Memory[M, N, ADDRESS_SPACE_0, wd.f32],
):
    """C = A B^T with a loop over K."""
    c_reg = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[c_reg])
    def repeat(acc: wd.Register[M, N, wd.f32]) -> wd.Register[M, N, wd.f32]:
        a_reg = wd.read(a)
        b_reg = wd.read(b)
        acc = wd.mma(a_reg, b_reg, acc)
        return acc

    wd.write(repeat, c)


def product(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """a, b, an output of NaN, and the exact product of the whole numbers in a and b."""
    random = np.random.default_rng(m + n + k)
    a, b = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    return a, b, np.full((m, n), np.nan, np.float32), a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.parametrize("target", AMD)
def test_copy_16x16(target: str):
    a = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float16)
    b = np.zeros_like(a)
    compiled = copy_kernel.compile(a, b, target=target, subs={M: 16, N: 16, ADDRESS_SPACE: wd.GLOBAL})
    assert (compiled.block, compiled.shared_bytes) == ((64, 1, 1), 0)
    compiled.emulate(a, b)
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("target", AMD)
def test_mma_16x16x16(target: str):
    a, b, c, want = product(16, 16, 16)
    subs = {M: 16, N: 16, K: 16, BLOCK_M: 16, BLOCK_N: 16, LOAD_ELEMS_PER_THREAD: 4, STORE_ELEMS_PER_THREAD: 4}
    compiled = mma_kernel.compile(a, b, c, target=target, subs={**subs, ADDRESS_SPACE: wd.SHARED})
    assert compiled.block == (64, 1, 1) and compiled.resources.instructions["mfma"] == 1
    compiled.emulate(a, b, c)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("target", AMD)
def test_gemm_64x64x128_with_four_waves(target: str):
    a, b, c, want = product(64, 64, 128)
    subs = {M: 64, N: 64, K: 128, BLOCK_M: 32, BLOCK_N: 32, BLOCK_K: 64}
    spaces = {ADDRESS_SPACE: wd.SHARED, ADDRESS_SPACE_0: wd.GLOBAL}
    compiled = gemm_kernel.compile(a, b, c, target=target, subs={**subs, **spaces})
    assert (compiled.grid, compiled.block) == ((2, 2, 1), (256, 1, 1))
    assert compiled.resources.spills == 0
    report = compiled.emulate(a, b, c)
    np.testing.assert_array_equal(c, want)
    matrix = sum(count for name, count in report.instructions.items() if name.startswith("v_mfma"))
    assert matrix == 4 * 4 * 8  # workgroups, waves, 128 / 16 instructions each
