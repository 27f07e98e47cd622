"""Whole kernels on the evaluator against NumPy: GEMM, attention, normalisation, mixed precision, awkward sizes."""

import math

import ml_dtypes
import numpy as np
import pytest
from wavedsl.ir.numerics import mma_tolerance
from wavedsl.ir.rounding import convert, pack

import wavedsl as wd

B, H, M, N, K, D, BM, BN, BK = wd.symbols("B H M N K D BM BN BK")


def gemm_kernel(a_type: wd.DType, b_type: wd.DType, acc: wd.DType, out: wd.DType) -> wd.Kernel:
    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)],
        subs={BM: 64, BN: 64, BK: 32},
    )
    def gemm(a: wd.Memory[M, K, a_type], b: wd.Memory[N, K, b_type], c: wd.Memory[M, N, out]):
        zero = wd.Register[M, N, acc](0)

        @wd.iterate(K, init_args=[zero])
        def loop(total):
            return wd.mma(wd.read(a), wd.read(b), total)

        wd.write(wd.cast(loop, out), c)

    return gemm


SIZES = [(64, 64, 64), (1, 7, 17), (63, 65, 100), (127, 1, 33), (5, 3, 0), (0, 4, 8)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("dtype", "acc", "out"),
    [(wd.f16, wd.f32, wd.f32), (wd.bf16, wd.f32, wd.bf16), (wd.f32, wd.f32, wd.f32), (wd.f64, wd.f64, wd.f64),
     (wd.tf32, wd.f32, wd.f32), (wd.f8e4m3, wd.f32, wd.f32), (wd.f8e5m2fnuz, wd.f32, wd.f16), (wd.f16, wd.f16, wd.f16)],
    ids=lambda x: str(x),
)  # fmt: skip
def test_gemm_of_floats(dtype: wd.DType, acc: wd.DType, out: wd.DType, size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(m * 1000 + n * 10 + k)
    kernel = gemm_kernel(dtype, dtype, acc, out)
    a, b = (convert(rng.standard_normal(s), wd.f64, dtype) for s in ((m, k), (n, k)))
    c = np.ones((m, n), out.numpy)
    kernel.evaluate(a, b, c)
    wide = a.astype(np.float64), b.astype(np.float64)
    exact = wide[0] @ wide[1].T
    magnitude = np.abs(wide[0]) @ np.abs(wide[1]).T
    if acc is not wd.f16:  # a sum in f16 is rounded once per tile
        assert np.all(np.abs(c.astype(np.float64) - exact) <= mma_tolerance(k, magnitude, acc, out, exact) + 1e-300)
    small_a, small_b = (convert(rng.integers(-3, 4, s).astype(np.float64), wd.f64, dtype) for s in ((m, k), (n, k)))
    kernel.evaluate(small_a, small_b, c)
    expected = small_a.astype(np.float64) @ small_b.astype(np.float64).T
    if np.abs(expected).max(initial=0) < 256:
        assert np.array_equal(c.astype(np.float64), expected)


@pytest.mark.parametrize("dtype", [wd.i8, wd.u8])
def test_gemm_of_integers_is_exact(dtype: wd.DType) -> None:
    info = np.iinfo(dtype.numpy)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(info.min, info.max, s, dtype=dtype.numpy, endpoint=True) for s in ((65, 300), (33, 300)))
    c = np.zeros((65, 33), np.int32)
    gemm_kernel(dtype, dtype, wd.i32, wd.i32).evaluate(a, b, c)
    assert np.array_equal(c, a.astype(np.int64) @ b.astype(np.int64).T)


def test_integer_sums_wrap() -> None:
    a = np.full((1, 200_000), 127, np.int8)
    c = np.zeros((1, 1), np.int32)
    gemm_kernel(wd.i8, wd.i8, wd.i32, wd.i32).evaluate(a, a, c)
    exact = 200_000 * 127 * 127
    assert exact > 2**31 and int(c[0, 0]) == (exact + 2**31) % 2**32 - 2**31


def test_mixed_fp8_operands() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-3, 4, (8, 40)), rng.integers(-3, 4, (9, 40))
    c = np.zeros((8, 9), np.float32)
    gemm_kernel(wd.f8e4m3, wd.f8e5m2, wd.f32, wd.f32).evaluate(
        a.astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e5m2), c
    )
    assert np.array_equal(c, a @ b.T)


def test_tf32_rounds_its_inputs() -> None:
    a = np.array([[1 + 2.0**-20, 1 + 2.0**-10]], np.float32)
    c = np.zeros((1, 1), np.float32)
    gemm_kernel(wd.tf32, wd.tf32, wd.f32, wd.f32).evaluate(a, np.eye(1, 2, dtype=np.float32), c)
    assert c[0, 0] == 1


def test_loop_carried_sums_are_rounded_per_tile() -> None:
    """An f16 accumulator loses what each tile adds: 2048 + 1 is 2048."""
    a, b = np.ones((1, 2049), np.float16), np.ones((1, 2049), np.float16)
    c = np.zeros((1, 1), np.float16)
    gemm_kernel(wd.f16, wd.f16, wd.f16, wd.f16).evaluate(a, b, c, subs={BK: 2048})
    assert c[0, 0] == 2048
    gemm_kernel(wd.f16, wd.f16, wd.f16, wd.f16).evaluate(a, b, c, subs={BK: 4096})
    assert c[0, 0] == 2048 and np.float32(2049).astype(np.float16) == 2048
    wide = np.zeros((1, 1))
    gemm_kernel(wd.f16, wd.f16, wd.f16, wd.f16).evaluate(a, b, wide, subs={BK: 2048}, float64=True)
    assert wide[0, 0] == 2049


def test_memory_order_is_the_annotation() -> None:
    @wd.wave([])
    def kernel(a: wd.Memory[K, M, wd.f32], b: wd.Memory[K, N, wd.f32], c: wd.Memory[N, M, wd.f32]):
        wd.write(wd.mma(wd.read(a), wd.read(b)), c)

    rng = np.random.default_rng(5)
    a, b = rng.integers(-3, 4, (6, 4)).astype(np.float32), rng.integers(-3, 4, (6, 5)).astype(np.float32)
    c = np.zeros((5, 4), np.float32)
    kernel.evaluate(a, b, c)
    assert np.array_equal(c, b.T @ a)


def test_strided_and_transposed_arrays() -> None:
    rng = np.random.default_rng(6)
    base_a, base_b, base_c = (
        rng.integers(-3, 4, (40, 60)),
        rng.integers(-3, 4, (64, 20)),
        np.zeros((40, 40), np.float32),
    )
    a, b, c = base_a.astype(np.float16)[::2, ::3], base_b.astype(np.float16).T[:16, :20], base_c[::2, 1:17]
    gemm_kernel(wd.f16, wd.f16, wd.f32, wd.f32).evaluate(a, b, c)
    assert np.array_equal(base_c[::2, 1:17], a.astype(np.float64) @ b.astype(np.float64).T)
    assert not base_c[1::2].any() and not base_c[:, 17:].any()


@wd.wave(
    [
        wd.WorkgroupConstraint(H, 1, 1),
        wd.WorkgroupConstraint(M, BM, 0),
        wd.TilingConstraint(N, BN),
        wd.WaveConstraint(M, BM / 4),
    ],
    subs={BM: 128, BN: 64},
)
def attention(
    q: wd.Memory[H, M, D, wd.f16],
    k: wd.Memory[H, N, D, wd.SHARED, wd.f16],
    v: wd.Memory[H, N, D, wd.SHARED, wd.f16],
    o: wd.Memory[H, M, D, wd.f16],
    scale: wd.Scalar[wd.f32],
):
    top = wd.Register[M, wd.f32](-math.inf)
    total = wd.Register[M, wd.f32](0.0)
    acc = wd.Register[M, D, wd.f32](0.0)

    @wd.iterate(N, init_args=[top, total, acc])
    def over_keys(top, total, acc):
        scores = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0)) * (scale * math.log2(math.e))
        scores = wd.where(wd.index(M) >= wd.index(N), scores, -math.inf)
        new_top = wd.maximum(top, wd.max(scores, dim=N))
        p = wd.exp2(scores - new_top)
        keep = wd.exp2(top - new_top)
        return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, wd.f16), wd.read(v), acc * keep)

    top, total, acc = over_keys
    wd.write(wd.cast(acc / total, wd.f16), o)


@pytest.mark.parametrize(("h", "m", "n", "d"), [(2, 128, 128, 64), (3, 130, 130, 40), (1, 17, 65, 8), (1, 1, 1, 1)])
def test_attention(h: int, m: int, n: int, d: int) -> None:
    rng = np.random.default_rng(m)
    q, k, v = (rng.standard_normal((h, s, d)).astype(np.float16) for s in (m, n, n))
    scale = 1 / math.sqrt(d)
    scores = np.einsum("hmd,hnd->hmn", q.astype(np.float64), k.astype(np.float64)) * np.float64(scale)
    scores = np.where(np.arange(m)[:, None] >= np.arange(n), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    exact = p / p.sum(axis=-1, keepdims=True) @ v.astype(np.float64)
    o = np.zeros((h, m, d), np.float16)
    attention.evaluate(q, k, v, o, scale)
    # P is rounded to f16 (2^-11 relative, its sum is not), the output once more.
    bound = 2.0**-10 * np.abs(v).astype(np.float64).max() + 2.0**-11 * np.abs(exact)
    assert np.all(np.abs(o - exact) <= bound)
    reference = np.zeros((h, m, d))
    attention.evaluate(q, k, v, reference, scale, float64=True)
    assert np.allclose(reference, exact, rtol=1e-12, atol=1e-14)


def test_softmax_over_tiles_of_a_row() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, BN)], subs={BN: 8})
    def softmax(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        low, zero = wd.Register[M, wd.f32](-math.inf), wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[low, zero])
        def statistics(top, total):
            part = wd.read(x)
            new = wd.maximum(top, wd.max(part, dim=N))
            return new, total * wd.exp(top - new) + wd.sum(wd.exp(part - new), dim=N)

        top, total = statistics

        @wd.iterate(N)
        def store():
            wd.write(wd.exp(wd.read(x) - top) / total, y)

    rng = np.random.default_rng(2)
    x = (rng.standard_normal((19, 37)) * 5).astype(np.float32)
    y = np.zeros_like(x)
    softmax.evaluate(x, y)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.allclose(y, e / e.sum(axis=1, keepdims=True), rtol=2e-6)
    assert np.allclose(y.sum(axis=1), 1, atol=1e-5)


def test_batched_gemm_over_two_index_dimensions() -> None:
    @wd.wave(
        [
            wd.WorkgroupConstraint(B, 1, 2),
            wd.WorkgroupConstraint(H, 1, 1),
            wd.WorkgroupConstraint(M, 16, 0),
            wd.TilingConstraint(K, 8),
        ]
    )
    def kernel(a: wd.Memory[B, H, M, K, wd.f32], b: wd.Memory[H, N, K, wd.f32], c: wd.Memory[B, H, M, N, wd.f32]):
        zero = wd.Register[M, N, wd.f32](0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(9)
    a, b = rng.integers(-3, 4, (2, 3, 5, 20)).astype(np.float32), rng.integers(-3, 4, (3, 7, 20)).astype(np.float32)
    c = np.zeros((2, 3, 5, 7), np.float32)
    kernel.evaluate(a, b, c)
    assert np.array_equal(c, np.einsum("bhmk,hnk->bhmn", a, b))


def test_a_batch_written_to_an_array_without_it() -> None:
    @wd.wave([wd.WorkgroupConstraint(H, 1, 0)])
    def kernel(a: wd.Memory[H, M, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(wd.read(a), b)

    with pytest.raises(wd.ConstraintError, match="b has no H, so its workgroups write the same elements"):
        kernel.evaluate(np.zeros((2, 3), np.float32), np.zeros(3, np.float32))


def test_scaled_mma() -> None:
    @wd.wave([wd.TilingConstraint(K, 64)])
    def kernel(
        a: wd.Memory[M, K, wd.f4e2m1],
        sa: wd.Memory[M, K / 32, wd.f8e8m0],
        b: wd.Memory[N, K, wd.f8e4m3],
        sb: wd.Memory[N, K / 32, wd.f8e8m0],
        c: wd.Memory[M, N, wd.f32],
    ):
        zero = wd.Register[M, N, wd.f32](0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc):
            return wd.scaled_mma(wd.read(a), wd.read(sa), wd.read(b), wd.read(sb), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(4)
    a = rng.integers(-3, 4, (5, 160)).astype(np.float32).astype(ml_dtypes.float4_e2m1fn)
    b = rng.integers(-3, 4, (6, 160)).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    sa, sb = rng.integers(124, 131, (5, 5), dtype=np.uint8), rng.integers(124, 131, (6, 5), dtype=np.uint8)
    packed = np.zeros((5, 80), np.uint8)
    pack(a, wd.f4e2m1, packed)
    c = np.zeros((5, 6), np.float32)
    scales = [s.view(ml_dtypes.float8_e8m0fnu) for s in (sa, sb)]
    kernel.evaluate(packed, scales[0], b, scales[1], c)
    left = a.astype(np.float64) * np.repeat(2.0 ** (sa.astype(int) - 127), 32, axis=1)
    right = b.astype(np.float64) * np.repeat(2.0 ** (sb.astype(int) - 127), 32, axis=1)
    assert np.array_equal(c, left @ right.T)


def test_packed_arrays_in_and_out() -> None:
    @wd.wave([])
    def kernel(a: wd.Memory[M, K, wd.i4], b: wd.Memory[M, K, wd.u4], c: wd.Memory[M, K, wd.i4]):
        x = wd.cast(wd.read(a), wd.i32) + wd.cast(wd.read(b), wd.i32)
        wd.write(wd.cast(x, wd.i4), c)

    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 256, (3, 4), dtype=np.uint8), rng.integers(0, 256, (3, 4), dtype=np.uint8)
    c = np.zeros((3, 4), np.uint8)
    kernel.evaluate(a, b, c)
    for shift in (0, 4):
        assert np.array_equal((c >> shift) & 15, ((a >> shift) + (b >> shift)) & 15)


def test_paired_extents_follow_the_loop() -> None:
    """`2 * K` is cut where K is: gated units read both halves of a pair per trip."""

    @wd.wave([wd.TilingConstraint(K, 4)])
    def kernel(a: wd.Memory[M, 2 * K, wd.f32], out: wd.Memory[M, wd.f32]):
        zero = wd.Register[M, wd.f32](0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc):
            return acc + wd.sum(wd.read(a), dim=2 * K)

        wd.write(loop, out)

    a = np.arange(60, dtype=np.float32).reshape(3, 20)
    out = np.zeros(3, np.float32)
    kernel.evaluate(a, out)
    assert np.array_equal(out, a.sum(axis=1))


def test_zero_trips_give_the_initial_values() -> None:
    c = np.full((3, 4), 5, np.float32)
    gemm_kernel(wd.f16, wd.f16, wd.f32, wd.f32).evaluate(np.zeros((3, 0), np.float16), np.zeros((4, 0), np.float16), c)
    assert not c.any()


def test_a_value_read_before_a_write_stays_what_it_was() -> None:
    @wd.wave([])
    def swap(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        x, y = wd.read(a), wd.read(b)
        wd.write(y, a)
        wd.write(x, b)

    a, b = np.arange(3, dtype=np.float32), np.arange(3, 6, dtype=np.float32)
    swap.evaluate(a, b)
    assert a.tolist() == [3, 4, 5] and b.tolist() == [0, 1, 2]


def test_float64_mode_rounds_nothing() -> None:
    @wd.wave([])
    def kernel(a: wd.Memory[M, wd.f32], s: wd.Scalar[wd.f32], out: wd.Memory[M, wd.f32]):
        x = wd.cast(wd.read(a) / 3, wd.f16)
        wd.write(wd.cast(x, wd.f32) * s, out)

    a, out = np.arange(1, 9, dtype=np.float32), np.zeros(8)
    kernel.evaluate(a, 0.1, out, float64=True)
    assert np.array_equal(out, a.astype(np.float64) / 3 * 0.1)
    small = np.zeros(8, np.float32)
    kernel.evaluate(a, 0.1, small, float64=True)
    assert np.array_equal(small, out.astype(np.float32))
