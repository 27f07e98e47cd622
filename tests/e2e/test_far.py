"""Arrays whose elements lie more than 2^31 and 2^32 bytes apart, on memory that is committed only where it is touched.

Whatever computes an address in 32 bits goes wrong here: rows far apart, columns far apart, tiles of a loop far apart.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import products
import pytest
from products import F16, TARGETS, TILE, K, M, N, gemm

import wavedsl as wd

GIB = 1 << 30


def far(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A zeroed array with these strides in bytes; memory is reserved, not committed."""
    size = sum((n - 1) * s for n, s in zip(shape, strides)) + np.dtype(dtype).itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE, flags=flags)
    return np.ndarray(shape, dtype, memory, 0, strides)


def like(x: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """x, far apart."""
    out = far(x.shape, strides, x.dtype)
    out[...] = x
    return out


SPREADS = {
    "rows-past-2-31": (GIB // 16, 2),
    "rows-past-2-32": (GIB // 8 + 48, 2),
    "columns-past-2-32": (2, GIB // 8 + 32),
    "both": (GIB // 8, GIB // 512),
}
"""Strides in bytes of a matrix of 40 x 40 f16."""


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1)])
def copy(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
    wd.write(wd.read(a), b)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spread", SPREADS)
def test_copy(target: str, spread: str) -> None:
    x = np.random.default_rng(1).standard_normal((40, 40)).astype(np.float16)
    a, b = like(x, SPREADS[spread]), np.zeros_like(x)
    copy.compile(a, b, target=target).emulate(a, b)
    np.testing.assert_array_equal(b, x)
    back = far(x.shape, SPREADS[spread], x.dtype)
    copy.compile(b, back, target=target).emulate(b, back)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("space", [wd.SHARED, wd.GLOBAL], ids=str)
@pytest.mark.parametrize("spread", ["rows-past-2-31", "rows-past-2-32", "columns-past-2-32", "both"])
def test_product(target: str, spread: str, space: Any) -> None:
    """Far in M, in N and in K, with sizes that do not divide the tiles."""
    a, b, c = products.operands(F16, 40, 37, 40)
    want, _ = products.exact(a, b, F16)
    strides = SPREADS[spread]
    a, b = like(a, strides), like(b, strides)
    c = like(c, (2 * strides[0], 2 * strides[1]))
    subs = dict(zip(TILE, (32, 32, 16, 16, 16)))
    gemm(F16, spaces=(space, space)).compile(a, b, c, target=target, subs=subs).emulate(a, b, c)
    products.expect_equal(c, want, F16)


@pytest.mark.parametrize("target", TARGETS)
def test_dynamic_extents(target: str) -> None:
    """Extents are arguments, the strides between rows are too, and products of the two pass 2^32."""
    a, b, c = products.operands(F16, 40, 37, 40)
    want, _ = products.exact(a, b, F16)
    a, b, c = like(a, (GIB // 8, 2)), like(b, (GIB // 8 + 32, 2)), like(c, (GIB // 8, 4))
    subs = dict(zip(TILE, (32, 32, 16, 16, 16)))
    compiled = gemm(F16).compile(a, b, c, target=target, subs=subs, dynamic=(M, N, K))
    compiled.emulate(a, b, c)
    products.expect_equal(c, want, F16)


B = wd.sym.B


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.WorkgroupConstraint(B, 1, 2)])
def copy_batches(a: wd.Memory[B, M, N, wd.f32], b: wd.Memory[B, M, N, wd.f32]):
    wd.write(wd.read(a), b)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("dynamic", [[M], [B, M, N]])
def test_batches_past_2_32_at_run_time(target: str, dynamic: list[Any]) -> None:
    """A stride of 2^30 elements of f32 was multiplied by four in 32 bits: batches lay at wrong places."""
    x = np.random.default_rng(1).standard_normal((2, 40, 20)).astype(np.float32)
    strides = (4 * GIB + 64 * 20, 128, 4)
    a, b = like(x, strides), np.zeros_like(x)
    copy_batches.compile(a, b, target=target, dynamic=dynamic).emulate(a, b)
    np.testing.assert_array_equal(b, x)
    back = far(x.shape, strides, x.dtype)
    copy_batches.compile(b, back, target=target, dynamic=dynamic).emulate(b, back)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("target", TARGETS)
def test_tile_too_far_apart_is_refused(target: str) -> None:
    """Offsets inside a tile have 32 bits: rows of 4 GiB in one tile are an error, not a wrong address."""
    a = far((3, 40), (4 * GIB + 64, 2), np.float16)
    b = np.zeros((3, 40), np.float16)
    message = r"argument a: the elements of one tile lie 8589934\d+ bytes apart"
    with pytest.raises(wd.CompileError, match=message) as caught:
        copy.compile(a, b, target=target)
    assert "numpy.ascontiguousarray" in str(caught.value) and caught.value.location is not None


@pytest.mark.parametrize("target", TARGETS)
def test_tile_too_far_apart_at_run_time_is_refused(target: str) -> None:
    """The same where strides are arguments: the launch says so."""
    b = np.zeros((16, 40), np.float16)
    compiled = copy.compile(far((16, 40), (GIB // 8, 2), np.float16), b, target=target, dynamic=(M, N))
    a = far((16, 40), (GIB // 2, 2), np.float16)
    with pytest.raises(wd.LaunchError, match=r"argument `a`: the elements of one tile of 16 x 16 lie up to 8\d+ bytes"):
        compiled.emulate(a, b)
    a = far((3, 40), (4 * GIB + 64, 2), np.float16)
    with pytest.raises(wd.LaunchError, match=r"argument `a`: the elements of one tile"):
        compiled.emulate(a, np.zeros((3, 40), np.float16))


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_stride_that_its_parameter_cannot_hold_is_refused(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 1), wd.WorkgroupConstraint(N, 16, 0)])
    def rows(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a), b)

    a, b = far((2, 40), (4 * GIB + 64, 2), np.float16), np.zeros((2, 40), np.float16)
    compiled = rows.compile(a, b, target=target, dynamic=(M, N))
    with pytest.raises(wd.LaunchError, match=r"stride a\[0\] is 2147483680, which does not fit 32 bits"):
        compiled.emulate(a, b)


V, T, D = wd.symbols("V T D")
ROWS = [wd.WorkgroupConstraint(T, 16, 0), wd.WorkgroupConstraint(D, 32, 1)]
TABLES = [((40, 40), (GIB // 4 + 64, 2)), ((40, 33), (GIB // 8 + 2, 2)), ((17, 40), (GIB // 4 - 64, 2))]
"""Shape and strides: vectors; single elements; between what a descriptor holds and 4 GiB."""


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize(("shape", "strides"), TABLES)
def test_gathered_and_scattered_rows(
    target: str, shape: tuple[int, int], strides: tuple[int, int], oracle: Callable[[str], str]
) -> None:
    """Mapped accesses to arrays that 32-bit offsets do not reach: 64-bit addresses of each lane."""

    @wd.wave(ROWS)
    def gather(table: wd.Memory[V, D, wd.f16], ids: wd.Memory[T, wd.i32], out: wd.Memory[T, D, wd.f16]):
        wd.write(wd.read(table, mapping=wd.IndexMapping((T, D), {V: wd.read(ids)})), out)

    @wd.wave(ROWS)
    def scatter(x: wd.Memory[T, D, wd.f16], ids: wd.Memory[T, wd.i32], table: wd.Memory[V, D, wd.f16]):
        wd.write(wd.read(x), table, mapping=wd.IndexMapping((T, D), {V: wd.read(ids)}))

    rng = np.random.default_rng(3)
    rows = shape[0]
    source = rng.standard_normal(shape).astype(np.float16)
    ids = rng.permutation(rows + 8)[:21].astype(np.int32) - 4
    inside = (ids >= 0) & (ids < rows)
    table, out = like(source, strides), np.ones((21, shape[1]), np.float16)
    compiled = gather.compile(table, ids, out, target=target)
    compiled.emulate(table, ids, out)
    np.testing.assert_array_equal(out, np.where(inside[:, None], source[np.clip(ids, 0, rows - 1)], 0))
    products.assemble(compiled, oracle)
    table = far(shape, strides, np.float16)
    want = np.zeros(shape, np.float16)
    want[ids[inside]] = out[inside]
    compiled = scatter.compile(out, ids, table, target=target)
    compiled.emulate(out, ids, table)
    np.testing.assert_array_equal(table, want)
    products.assemble(compiled, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_an_expression_and_a_slice(target: str) -> None:
    """Every second row, and rows from far behind 4 GiB on."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1)])
    def kernel(a: wd.Memory[V, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a, mapping=wd.IndexMapping((M, N), {V: 2 * M})) + wd.read(a[24 : 24 + M, :]), b)

    x = np.random.default_rng(4).standard_normal((40, 24)).astype(np.float16)
    a, b = like(x, (GIB // 4 + 64, 2)), np.zeros((15, 24), np.float16)
    kernel.compile(a, b, target=target).emulate(a, b)
    np.testing.assert_array_equal(b, x[0:30:2] + x[24:39])


WIDE = GIB // 4 + 64
"""Bytes between rows of which 40 span more than 4 GiB."""
DYNAMIC = {"static": (), "rows": (V,), "all": (V, T, D)}


@pytest.mark.parametrize(
    ("target", "dynamic", "dtype"),
    [
        ("gfx90a", "rows", wd.f32),
        ("gfx942", "all", wd.i64),
        ("gfx942", "static", wd.f16),
        ("gfx950", "rows", wd.f16),
        ("sm_80", "static", wd.i8),
        ("sm_90a", "all", wd.f32),
        ("sm_80", "rows", wd.i64),
    ],
    ids=str,
)
def test_atomics(target: str, dynamic: str, dtype: wd.DType, oracle: Callable[[str], str]) -> None:
    """Rows picked by index, some twice and some outside; what was there comes back."""

    @wd.wave(ROWS)
    def kernel(
        x: wd.Memory[T, D, dtype], ids: wd.Memory[T, wd.i32], a: wd.Memory[V, D, dtype], old: wd.Memory[T, D, dtype]
    ):
        there = wd.IndexMapping((T, D), {V: wd.read(ids)})
        wd.write(wd.atomic_add(wd.read(x), a, mapping=there), old)

    rng = np.random.default_rng(3)
    storage = dtype.storage
    x = rng.integers(1, 4, (21, 32)).astype(storage)
    ids = (rng.permutation(44)[:21] - 2).astype(np.int32)
    ids[3] = ids[5] = 39
    a = like(np.full((40, 32), 5, storage), (WIDE, storage.itemsize))
    old = np.ones_like(x)
    compiled = kernel.compile(x, ids, a, old, target=target, dynamic=DYNAMIC[dynamic])
    compiled.emulate(x, ids, a, old)
    inside = (ids >= 0) & (ids < 40)
    want = np.full((40, 32), 5, storage)
    np.add.at(want, ids[inside], x[inside])
    np.testing.assert_array_equal(a, want)
    once = inside & (ids != 39)
    np.testing.assert_array_equal(old[once], 5)
    np.testing.assert_array_equal(old[~inside], 0)
    np.testing.assert_array_equal(np.sort(old[[3, 5]], 0)[0], 5)
    products.assemble(compiled, oracle)


@wd.wave(ROWS)
def picked(table: wd.Memory[V, D, wd.f16], ids: wd.Memory[T, wd.i32], out: wd.Memory[T, D, wd.f16]):
    there = wd.IndexMapping((T, D), {V: wd.read(ids)})
    wd.write(wd.read(table, mapping=there), out)
    wd.write(wd.read(out), table, mapping=there)


@pytest.mark.parametrize(
    ("target", "dynamic"),
    [("gfx90a", "all"), ("gfx942", "rows"), ("gfx950", "all"), ("sm_80", "rows"), ("sm_90a", "all")],
)
def test_rows_of_an_array_of_run_time_size(target: str, dynamic: str) -> None:
    """Compiled with an array past 4 GiB a kernel serves arrays of any size; compiled with a small one it says so."""
    rng = np.random.default_rng(5)
    source = rng.standard_normal((40, 40)).astype(np.float16)
    table, ids = like(source, (WIDE, 2)), rng.permutation(40)[:21].astype(np.int32)
    out = np.ones((21, 40), np.float16)
    compiled = picked.compile(table, ids, out, target=target, dynamic=DYNAMIC[dynamic])
    compiled.emulate(table, ids, out)
    np.testing.assert_array_equal(out, source[ids])
    if dynamic == "all":  # strides are arguments as well
        compiled.emulate(source, ids[:9], near := np.ones((9, 40), np.float16))
        np.testing.assert_array_equal(near, source[ids[:9]])
    small = like(source[:10], (WIDE, 2))
    compiled = picked.compile(small, ids, out, target=target, dynamic=DYNAMIC[dynamic])
    message = r"`table` spans 104\d+ bytes, but the kernel, which indexes it, was compiled"
    with pytest.raises(wd.LaunchError, match=message):
        compiled.emulate(table, ids, out)


def test_calls_have_a_kernel_for_arrays_past_4_gib() -> None:
    """What a call of the kernel object would launch: small and large arrays of a dynamic size have a text each."""

    @wd.wave(ROWS, dynamic=[V, T])
    def kernel(table: wd.Memory[V, D, wd.f16], ids: wd.Memory[T, wd.i32], out: wd.Memory[T, D, wd.f16]):
        wd.write(wd.read(table, mapping=wd.IndexMapping((T, D), {V: wd.read(ids)})), out)

    source = np.random.default_rng(6).standard_normal((40, 8)).astype(np.float16)
    ids = np.array([39, 0, 7], np.int32)
    texts = []
    for rows in (8, 12, 40):
        table, out = like(source[:rows], (WIDE, 2)), np.ones((3, 8), np.float16)
        (compiled,) = kernel.precompile(table, ids % rows, out, target="gfx942")
        compiled.emulate(table, ids % rows, out)
        np.testing.assert_array_equal(out, source[ids % rows])
        texts.append(compiled.asm)
    assert texts[0] == texts[1] != texts[2]
