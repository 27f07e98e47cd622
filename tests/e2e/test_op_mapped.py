"""Gathers and scatters through an IndexMapping on every chip: text against evaluator, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from agree import TARGETS, agree

import wavedsl as wd

T, D, V, M, N, K, L, S = wd.symbols("T D V M N K L S")
ROWS = [wd.WorkgroupConstraint(T, 16, 0), wd.WorkgroupConstraint(D, 64, 1)]


def whole(shape: tuple[int, ...], dtype: wd.DType, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-100, 100, shape).astype(dtype.storage)


def embedding(dtype: wd.DType, index: wd.DType = wd.i32) -> Any:
    @wd.wave(ROWS)
    def kernel(table: wd.Memory[V, D, dtype], ids: wd.Memory[T, index], out: wd.Memory[T, D, dtype]):
        where = wd.read(ids)
        wd.write(wd.read(table, mapping=wd.IndexMapping((T, D), {V: where})), out)

    return kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f16, wd.f32, wd.i8, wd.f64], ids=str)
def test_rows_by_index(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Indices outside of the table give zeros."""
    for t, d, v in ((32, 128, 50), (17, 50, 7), (5, 3, 100)):
        ids = np.random.default_rng(1).integers(-2, v + 2, t).astype(np.int32)
        arguments = [whole((v, d), dtype), ids, whole((t, d), dtype, 2)]
        compiled = agree(embedding(dtype), arguments, target, oracle if t == 17 else None)
        if (t, dtype) == (32, wd.f16):
            assert "dwordx2" in compiled.asm or "ld.global.v" in compiled.asm, "rows are read by vectors"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("index", [wd.i64, wd.u8, wd.i16, wd.u32], ids=str)
def test_indices_of_any_width(index: wd.DType, target: str) -> None:
    ids = np.random.default_rng(1).integers(0, 9, 20).astype(index.numpy)
    if index is wd.i64:
        ids[3] = (1 << 32) + 1
    agree(embedding(wd.f32, index), [whole((9, 30), wd.f32), ids, whole((20, 30), wd.f32, 2)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_run_time_sizes(target: str) -> None:
    kernel = embedding(wd.f32)
    compiled = kernel.compile(target=target, dynamic=(T, D, V))
    for t, d, v in ((32, 128, 50), (7, 33, 3)):
        table, ids = whole((v, d), wd.f32), np.random.default_rng(1).integers(-1, v + 1, t).astype(np.int32)
        out, want = whole((t, d), wd.f32, 2), whole((t, d), wd.f32, 2)
        compiled.emulate(table, ids, out)
        kernel.evaluate(table, ids, want)
        assert np.array_equal(out, want)


@pytest.mark.parametrize("target", TARGETS)
def test_scatter_of_rows(target: str, oracle: Callable[[str], str]) -> None:
    """Each row to its own place; places outside are skipped."""

    @wd.wave(ROWS)
    def kernel(x: wd.Memory[T, D, wd.f16], ids: wd.Memory[T, wd.i32], out: wd.Memory[V, D, wd.f16]):
        wd.write(wd.read(x), out, mapping=wd.IndexMapping((T, D), {V: wd.read(ids)}))

    for t, d, v in ((32, 128, 50), (17, 50, 30), (5, 3, 4)):
        ids = np.random.default_rng(1).permutation(t + v)[:t].astype(np.int32) - t // 2
        agree(kernel, [whole((t, d), wd.f16), ids, whole((v, d), wd.f16, 2)], target, oracle if t == 17 else None)


SHIFTS: dict[str, tuple[Any, Any]] = {
    "transposed": ((N, M), {M: N, N: M}),
    "shifted": ((M, N), {M: M + 1, N: N - 2}),
    "reversed": ((M, N), {N: 20 - N}),
    "every-second": ((M, N), {N: 2 * N}),
    "blocks": ((M, N), {M: sympy.floor(M / 4), N: sympy.Mod(N, 8)}),
    "pairs": ((M, N), {N: sympy.floor(N / 2) + 16}),
    "diagonal": ((M, N), {M: sympy.Min(M, N)}),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("dtype", [wd.f16, wd.i32], ids=str)
def test_views(name: str, dtype: wd.DType, target: str) -> None:
    dims, indices = SHIFTS[name]

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype]):
        wd.write(wd.read(a, mapping=wd.IndexMapping(dims, indices)), b)

    for shape in ((32, 32), (21, 21), (17, 40)):
        agree(kernel, [whole(shape, dtype), whole(shape, dtype, 2)], target)


CLAMPED: dict[str, tuple[Any, Any]] = {
    "low": (sympy.Max(N - 3, 0), lambda n: np.maximum(n - 3, 0)),
    "both": (sympy.Min(sympy.Max(N - 1, 0), 20), lambda n: np.clip(n - 1, 0, 20)),
    "first": (sympy.Min(N, 1), lambda n: np.minimum(n, 1)),
    "mirrored": (abs(N - 1), lambda n: abs(n - 1)),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CLAMPED)
def test_clamped_indices(name: str, target: str) -> None:
    """Index 0 among them: as long as symbols were positive for sympy, it made `N - 1` of `Max(N - 1, 0)`."""
    index, meant = CLAMPED[name]

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a, mapping=wd.IndexMapping((M, N), {N: index})), b)

    for n in (64, 37):
        a, b = whole((5, n), wd.f32), whole((5, n), wd.f32, 2)
        agree(kernel, [a, b], target)
        kernel.evaluate(a, b)
        np.testing.assert_array_equal(b, a[:, meant(np.arange(n))])


@pytest.mark.parametrize("target", TARGETS)
def test_pages_of_keys_in_a_loop(target: str) -> None:
    """The rows of a sum lie in pages that a table lists: one page per trip."""
    B, P, R = wd.symbols("B P R")

    @wd.wave(
        [wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(D, 64, 1), wd.TilingConstraint(N, 16)], subs={R: 16}
    )
    def kernel(
        pool: wd.Memory[P, R, D, wd.f32], table: wd.Memory[B, S, wd.i32], out: wd.Memory[B, D, wd.f32],
        x: wd.Memory[B, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[D, wd.f32](0.0)

        @wd.iterate(N, init_args=[zero])
        def loop(acc):
            page = wd.read(table, mapping=wd.IndexMapping((N,), {S: sympy.floor(N / 16)}))
            rows = wd.read(pool, mapping=wd.IndexMapping((N, D), {P: page, R: sympy.Mod(N, 16)}))
            return acc + wd.sum(rows * wd.read(x), dim=N)

        wd.write(loop, out)

    pool = whole((12, 16, 70), wd.f32)
    table = np.random.default_rng(3).permutation(12)[:8].reshape(2, 4).astype(np.int32)
    agree(kernel, [pool, table, np.zeros((2, 70), np.float32), whole((2, 50), wd.f32, 5)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_gathered_rows_of_a_product(target: str) -> None:
    """c[t] = a[ids[t]] bᵀ: a grouped product's left operand."""

    @wd.wave([wd.WorkgroupConstraint(T, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)])
    def kernel(
        a: wd.Memory[M, K, wd.f16], ids: wd.Memory[T, wd.i32], b: wd.Memory[N, K, wd.f16], c: wd.Memory[T, N, wd.f32]
    ):
        rows = wd.read(ids)

        @wd.iterate(K, init_args=[wd.Register[T, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a, mapping=wd.IndexMapping((T, K), {M: rows})), wd.read(b), acc)

        wd.write(loop, c)

    def few(shape: tuple[int, ...], seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)

    for t, m, n, k in ((64, 40, 64, 64), (33, 10, 20, 37)):
        ids = np.random.default_rng(1).integers(0, m, t).astype(np.int32)
        agree(kernel, [few((m, k), 1), ids, few((n, k), 2), np.zeros((t, n), np.float32)], target)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_tiles_that_stick_out_write_nothing_behind_their_end(target: str) -> None:
    """The array goes on where the value ends: a vector of four would take two elements with it."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def put(x: wd.Memory[M, N, wd.f32], o: wd.Memory[M, L, wd.f32]):
        wd.write(wd.read(x), o, mapping=wd.IndexMapping((M, N), {L: N}))

    agree(put, [np.ones((4, 42), np.float32), np.full((4, 64), 7, np.float32)], target)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_a_computed_place_beside_a_condition(target: str) -> None:
    """The loop's body is not pipelined, and loads go first, but not before what says where they lie."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.TilingConstraint(N, 16)])
    def kernel(
        x: wd.Memory[M, N, wd.i32], table: wd.Memory[V, wd.i32], out: wd.Memory[M, wd.i32], f: wd.Scalar[wd.i32]
    ):
        row = wd.IndexMapping((), {V: 0 * V})

        @wd.iterate(N, init_args=[wd.Register[M, wd.i32](0)])
        def loop(total):
            at = wd.read(table, mapping=row) - 3
            found = wd.read(table, mapping=wd.IndexMapping((), {V: at}))
            value = wd.cond(f > 1, lambda: wd.read(x) + found, lambda: wd.read(x) - found)
            return total + wd.sum(value, dim=N)

        wd.write(loop, out)

    for flag in (1, 2):
        table = np.array([5, 7, 11, 13], np.int32)
        agree(kernel, [whole((11, 40), wd.i32), table, np.zeros(11, np.int32), np.int32(flag)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("period", [6, 10, 12])
def test_places_that_begin_again_amid_a_vector(period: int, target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
    def kernel(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
        wd.write(wd.read(x, mapping=wd.IndexMapping((N,), {N: N % period})), y)

    agree(kernel, [whole((512,), wd.f32), np.zeros(512, np.float32)], target)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_patches_of_an_image_are_read_by_vectors(target: str) -> None:
    """The channels of a pixel lie side by side, whichever pixel of the patch they belong to."""
    B, H, W, C, P, F = wd.symbols("B H W C P F")
    where = {H: sympy.floor(P / 6) + sympy.floor(K / 48) - 1,
             W: P % 6 + sympy.floor(K / 16) % 3 - 1, C: K % 16}  # fmt: skip

    @wd.wave(
        [wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(P, 32, 0), wd.WorkgroupConstraint(F, 32, 1),
         wd.TilingConstraint(K, 32)]
    )  # fmt: skip
    def kernel(x: wd.Memory[B, H, W, C, wd.f16], w: wd.Memory[F, K, wd.f16], y: wd.Memory[B, P, F, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[P, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=wd.IndexMapping((P, K), where)), wd.read(w), acc)

        wd.write(loop, y)

    random = np.random.default_rng(0)
    x, w = (random.integers(-3, 4, shape).astype(np.float16) for shape in ((1, 5, 6, 16), (32, 144)))
    compiled = agree(kernel, [x, w, np.zeros((1, 30, 32), np.float32)], target)
    assert "load_ushort" not in compiled.asm


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_a_long_row_are_read_by_vectors(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(V, 1, 0)], subs={L: 256})
    def kernel(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32], sums: wd.Memory[V, wd.f32]):
        part = wd.IndexMapping((L,), {N: V * 256 + L})
        value = wd.read(x, mapping=part)
        wd.write(wd.cumsum(value, dim=L), y, mapping=part)
        wd.write(wd.sum(value, dim=L), sums)

    compiled = agree(kernel, [whole((1000,), wd.f32), np.zeros(1000, np.float32), np.zeros(4, np.float32)], target)
    assert "dwordx4" in compiled.asm or "ld.global.v4" in compiled.asm


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
@pytest.mark.parametrize("per", [2, 8])
def test_weights_that_share_a_byte_or_a_word_are_loaded_once(per: int, target: str) -> None:
    """As users unpack 4-bit weights by hand; 40 rows of 12 and 48 bytes, which no tile divides."""
    PACKED = wd.sym.PACKED
    stored = wd.u8 if per == 2 else wd.i32

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 32)],
    )
    def kernel(x: wd.Memory[M, K, wd.f16], q: wd.Memory[N, PACKED, stored], y: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            held = wd.cast(wd.read(q, mapping=wd.IndexMapping((N, K), {PACKED: sympy.floor(K / per)})), wd.i32)
            return wd.mma(wd.read(x), wd.cast((held >> wd.index(K) % per * 4 & 15) - 8, wd.f16), acc)

        wd.write(loop, y)

    random = np.random.default_rng(0)
    for k in (96, 88):
        x = random.integers(-3, 4, (32, k)).astype(np.float16)
        q = random.integers(0, 256, (40, k // 2)).astype(np.uint8).view(stored.numpy)
        compiled = agree(kernel, [x, q, np.zeros((32, 40), np.float32)], target)
        held = {"gfx942": "load_ubyte", "sm_80": "@%p0 ld.global.u8"}[target]  # there, pairs of a lane are alone
        assert compiled.asm.count(held) <= (16 if target == "sm_80" else 0)


@pytest.mark.parametrize("target", TARGETS)
def test_indices_are_made_where_elements_go(target: str) -> None:
    """An i32 of 16 bytes is four, a bf16 eight: indices went through shared memory from lanes that held fours."""
    P = wd.sym.P

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(
        x: wd.Memory[M, P, wd.bf16], order: wd.Memory[N, wd.i32], y: wd.Memory[M, N, wd.bf16],
        z: wd.Memory[M, P, wd.bf16], sums: wd.Memory[P, wd.i32],
    ):  # fmt: skip
        i = wd.index(N)
        even = wd.IndexMapping((N,), {M: M, P: wd.where(i % 2 == 0, i, -1)})
        value = wd.read(x, mapping=even) + wd.read(x, mapping=wd.IndexMapping((N,), {M: M, P: wd.read(order)}))
        wd.write(value, y)
        back = P - 1 - i
        wd.write(value, z, mapping=wd.IndexMapping((N,), {M: M, P: back}))
        wd.atomic_add(wd.cast(value, wd.i32), sums, mapping=wd.IndexMapping((N,), {P: (i * 7) % P}))

    x = np.random.default_rng(0).integers(-9, 10, (2, 300)).astype(wd.bf16.storage)
    order = np.random.default_rng(1).permutation(300).astype(np.int32)
    arguments = [x, order, np.zeros_like(x), np.zeros_like(x), np.zeros(300, np.int32)]
    assert agree(kernel, arguments, target).shared_bytes == 0
