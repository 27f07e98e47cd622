"""Packed arrays of 4- and 6-bit elements, and scales: read, cast and written on every chip."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import packed
import pytest
from agree import TARGETS, agree
from products import K, M, N

import wavedsl as wd

PACKED = [wd.f4e2m1, wd.f6e2m3, wd.f6e3m2, wd.i4, wd.u4]
TILES = [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)]


def bytes_of(shape: tuple[int, int], dtype: wd.DType) -> np.ndarray:
    return np.zeros((shape[0], shape[1] * dtype.bits // 8), np.uint8).view(dtype.storage)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*PACKED, wd.f8e8m0], ids=str)
def test_every_code_is_read(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """All codes, in an array whose last tiles stick out, against the numbers that ml_dtypes gives them."""

    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.cast(wd.read(a), wd.f32), b)

    codes = (np.arange(20 * 96) * 7 % (1 << dtype.bits)).reshape(20, 96).astype(np.uint8)
    data = packed.pack(codes, dtype.bits).view(dtype.storage)
    out = np.zeros((20, 96), np.float32)
    compiled = agree(kernel, [data, out], target, oracle)
    compiled.emulate(data, out)
    want = np.ldexp(1.0, codes.astype(np.int32) - 127) if dtype is wd.f8e8m0 else packed.numbers(codes, dtype)
    if dtype is wd.f8e8m0:
        want = np.where(codes == 255, np.nan, want)
    np.testing.assert_array_equal(out, want.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("to", [wd.f16, wd.bf16], ids=str)
@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_read_as_halves(dtype: wd.DType, to: wd.DType, target: str) -> None:
    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, to]):
        wd.write(wd.cast(wd.read(a), to), b)

    data, _ = packed.operand(np.random.default_rng(1), dtype, (32, 64))
    agree(kernel, [data, np.zeros((32, 64), to.numpy)], target)


def near_ties(dtype: wd.DType) -> np.ndarray:
    """Every number of a float format, every tie between two, what lies just beside, and what does not fit."""
    values = np.sort(packed.numbers(np.arange(1 << (dtype.bits - 1)), dtype)).astype(np.float32)
    ties = (values[1:] + values[:-1]) / 2
    largest = values[-1]
    points = np.concatenate([values, ties, [largest * 1.25, largest * 1.5, largest * 100, np.inf, 1e-30, 0]])
    points = points.astype(np.float32)
    beside = np.concatenate([points, np.nextafter(points, np.float32(0)), np.nextafter(points, np.float32(np.inf))])
    return np.concatenate([beside, -beside, [np.nan]]).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f4e2m1, wd.f6e2m3, wd.f6e3m2], ids=str)
def test_casts_round_to_nearest_even_and_saturate(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, dtype]):
        wd.write(wd.cast(wd.read(a), dtype), b)

    points = near_ties(dtype)
    x = np.resize(points, (-(-len(points) // 32), 32))
    out = bytes_of(x.shape, dtype)
    compiled = agree(kernel, [x, out], target, oracle)
    compiled.emulate(x, out)
    largest = packed.numbers(np.arange(1 << (dtype.bits - 1)), dtype).max()
    inside = np.clip(np.where(np.isnan(x), largest, x), -largest, largest).astype(np.float32)
    want = inside.astype(packed.FLOATS[dtype.name]).view(np.uint8)
    np.testing.assert_array_equal(packed.unpack(out, dtype.bits, 32), want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.i4, wd.u4, wd.f8e8m0], ids=str)
@pytest.mark.parametrize("source", [wd.f32, wd.i32], ids=str)
def test_casts_to_integers_and_scales(source: wd.DType, dtype: wd.DType, target: str) -> None:
    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, source], b: wd.Memory[M, N, dtype]):
        wd.write(wd.cast(wd.read(a), dtype), b)

    x = np.random.default_rng(3).standard_normal((20, 96)) * 9
    x[0, :8] = [0, -1, 1.5, 3, 1e30, 2.0**-100, 0.75, 6]
    if source is wd.f32 and dtype is wd.f8e8m0:
        x[1, :8] = [np.inf, -np.inf, np.nan, 2.0**-127, 2.0**-127 * 1.01, 1.5 * 2.0**127, 2.0**-149, -0.0]
    with np.errstate(all="ignore"):
        given = np.clip(x, -1e9, 1e9).astype(np.int32) if source is wd.i32 else x.astype(np.float32)
    agree(kernel, [given, bytes_of((20, 96), dtype)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_transposed_on_the_way(dtype: wd.DType, target: str) -> None:
    """A value that lies one way in registers is written the other way: whole units change lanes."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[N, M, dtype]):
        wd.write(wd.read(a), b)

    data, _ = packed.operand(np.random.default_rng(2), dtype, (64, 32))
    out = bytes_of((32, 64), dtype)
    compiled = agree(kernel, [data, out], target)
    compiled.emulate(data, out)
    codes = packed.unpack(data, dtype.bits, 32)
    np.testing.assert_array_equal(packed.unpack(out, dtype.bits, 64), codes.T)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f4e2m1, wd.f6e2m3], ids=str)
@pytest.mark.parametrize("rounding", ["toward_zero", "stochastic"])
def test_other_roundings(rounding: str, dtype: wd.DType, target: str) -> None:
    bits = {"bits": True} if rounding == "stochastic" else {}

    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, wd.f32], r: wd.Memory[M, N, wd.u32], b: wd.Memory[M, N, dtype]):
        more = {"bits": wd.read(r)} if bits else {}
        wd.write(wd.cast(wd.read(a), dtype, rounding=rounding, **more), b)

    rng = np.random.default_rng(5)
    x = (rng.standard_normal((16, 64)) * 3).astype(np.float32)
    noise = rng.integers(0, 1 << 32, (16, 64), dtype=np.uint32)
    agree(kernel, [x, noise, bytes_of((16, 64), dtype)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_reduction_of_packed_elements(target: str) -> None:
    """Registers that a reduction adds up hold whole units first."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(a: wd.Memory[M, N, wd.f6e3m2], b: wd.Memory[M, wd.f32]):
        wd.write(wd.sum(wd.cast(wd.read(a), wd.f32), dim=N), b)

    data, values = packed.operand(np.random.default_rng(7), wd.f6e3m2, (33, 80))
    out = np.zeros(33, np.float32)
    compiled = kernel.compile(data, out, target=target)
    compiled.emulate(data, out)
    np.testing.assert_array_equal(out, values.sum(1).astype(np.float32))


@pytest.mark.parametrize(
    ("dtype", "n", "tile", "text"),
    [
        (wd.f6e2m3, 72, 48, "an extent of 72 elements along N is no known multiple of the 16 f6e2m3"),
        (wd.f6e2m3, 96, 24, "the tile of 24 elements along N is no multiple of the 16 f6e2m3"),
    ],
)
def test_units_that_do_not_fit_are_refused(dtype: wd.DType, n: int, tile: int, text: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, tile, 1)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.cast(wd.read(a), wd.f32), b)

    with pytest.raises(wd.ConstraintError) as caught:
        kernel.compile(bytes_of((16, n), dtype), np.zeros((16, n), np.float32), target="gfx942")
    assert text in str(caught.value) and "argument a" in str(caught.value) and "^" in str(caught.value)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_registers_in_another_order(dtype: wd.DType, target: str) -> None:
    """What a product starts from: elements of 4 bits were taken for whole bytes as words were put together anew."""

    @wd.wave([wd.WorkgroupConstraint(M, 128, 0)])
    def kernel(
        a: wd.Memory[M, N, dtype], x: wd.Memory[M, K, wd.f16], y: wd.Memory[K, N, wd.f16], b: wd.Memory[M, N, wd.f32]
    ):  # fmt: skip
        wd.write(wd.mma(wd.read(x), wd.read(y), wd.cast(wd.read(a), wd.f32)), b)

    codes = np.random.default_rng(4).integers(0, 1 << dtype.bits, (128, 32)).astype(np.uint8)
    data = packed.pack(codes, dtype.bits).view(dtype.storage)
    x, y = (np.random.default_rng(5).integers(-2, 3, shape).astype(np.float16) for shape in ((128, 16), (16, 32)))
    out = np.zeros((128, 32), np.float32)
    compiled = agree(kernel, [data, x, y, out], target)
    compiled.emulate(data, x, y, out)
    want = packed.numbers(codes, dtype).astype(np.float32) + x.astype(np.float32) @ y.astype(np.float32)
    np.testing.assert_array_equal(out, want)
