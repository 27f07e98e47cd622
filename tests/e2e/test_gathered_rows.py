"""Rows gathered by index that feed products come through shared memory, like tiles: text against NumPy, all checks on.

Indices are out of order, repeated, negative and behind the array's end; tiles stick out along rows and columns; numbers
are settled before a loop or read in each trip; and where the kernel writes what it reads, lanes fetch for themselves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from agree import agree

import wavedsl as wd
from wavedsl.targets import get_target

T, V, N, K, M, D, E, P, S, Q, B = wd.symbols("T V N K M D E P S Q B")
CHIPS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
rng = np.random.default_rng(17)


def staged(compiled: Any, *names: str) -> None:
    """The arrays have tiles in shared memory; on sm_80 asynchronous copies bring them."""
    found = compiled.kernel_ir.shared_names
    assert all(name in found for name in names), (names, list(found))
    if compiled.target == "sm_80":
        assert any(op.name == "copy.async" for op in compiled.kernel_ir.body.walk())


def small(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(dtype)


def rows_of(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The rows with these numbers in f32, zeros for those that do not exist."""
    there = (ids >= 0) & (ids < len(x))
    return np.where(there[:, None], x[np.where(there, ids, 0)].astype(np.float32), 0)


def tokens(
    tile: tuple[int, int, int] = (64, 64, 32), dtype: wd.DType = wd.f16, index: wd.DType = wd.i32,
    space: Any = None, **schedule: Any,
) -> Any:  # fmt: skip
    """The product of rows of x with w: the row numbers are the same for all trips."""
    kind = (V, K, dtype) if space is None else (V, K, space, dtype)

    @wd.wave(
        [
            wd.WorkgroupConstraint(T, tile[0], 0), wd.WorkgroupConstraint(N, tile[1], 1),
            wd.TilingConstraint(K, tile[2]), wd.WaveConstraint(T, tile[0] // 2), wd.WaveConstraint(N, tile[1] // 2),
        ],
        schedule=wd.Schedule(**schedule),
    )  # fmt: skip
    def kernel(x: wd.Memory[kind], ids: wd.Memory[T, index], w: wd.Memory[N, K, dtype], out: wd.Memory[T, N, wd.f32]):
        rows = wd.read(ids)

        @wd.iterate(K, init_args=[wd.Register[T, N, wd.f32](0.0)])
        def loop(acc):
            mine = wd.read(x, mapping=wd.IndexMapping((T, K), {V: rows}))
            return wd.mma(mine, wd.read(w), acc)

        wd.write(loop, out)

    return kernel


def check_tokens(kernel: Any, target: str, t: int, n: int, k: int, v: int, dtype: Any, index: Any) -> Any:
    ids = rng.integers(-3 if np.dtype(index).kind == "i" else 0, v + 3, t).astype(index)
    x, w = small((v, k), dtype), small((n, k), dtype)
    out = np.full((t, n), np.nan, np.float32)
    compiled = kernel.compile(x, ids, w, out, target=target)
    compiled.emulate(x, ids, w, out)
    np.testing.assert_array_equal(out, rows_of(x, ids.astype(np.int64)) @ w.astype(np.float32).T)
    return compiled


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(
    ("t", "n", "k", "v"), [(64, 64, 128, 40), (100, 70, 96, 90), (17, 33, 88, 5), (1, 1, 30, 1)], ids=str
)
def test_rows_settled_before_the_loop(t: int, n: int, k: int, v: int, target: str) -> None:
    compiled = check_tokens(tokens(), target, t, n, k, v, np.float16, np.int32)
    if k % 8 == 0:
        staged(compiled, "x", "w")


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(
    ("dtype", "index"), [(wd.bf16, wd.i64), (wd.f16, wd.u8), (wd.f32, wd.i16), (wd.f16, wd.u32)], ids=str
)
def test_dtypes_of_rows_and_numbers(dtype: wd.DType, index: wd.DType, target: str) -> None:
    check_tokens(tokens((32, 32, 16), dtype, index), target, 50, 40, 56, 60, dtype.storage, index.numpy)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("schedule", [{"stages": 1}, {"stages": 3}, {"split_k": 2}, {"persistent": True}], ids=str)
def test_schedules(schedule: dict[str, Any], target: str) -> None:
    check_tokens(tokens((32, 32, 32), **schedule), target, 70, 32, 160, 33, np.float16, np.int32)


@pytest.mark.parametrize("target", CHIPS)
def test_what_the_user_says(target: str) -> None:
    compiled = check_tokens(tokens(space=wd.GLOBAL), target, 64, 64, 64, 33, np.float16, np.int32)
    assert "x" not in compiled.kernel_ir.shared_names
    staged(check_tokens(tokens(space=wd.SHARED), target, 64, 64, 64, 33, np.float16, np.int32), "x")


@pytest.mark.parametrize("target", CHIPS)
def test_run_time_sizes_and_strides(target: str) -> None:
    kernel = tokens((32, 32, 32))
    compiled = kernel.compile(target=target, dynamic=(T, V, N, K))
    for t, n, k, v in ((40, 33, 64, 20), (3, 64, 70, 100)):
        ids = rng.integers(-2, v + 2, t).astype(np.int32)
        x, w, out = small((v, k), np.float16), small((n, k), np.float16), np.zeros((t, n), np.float32)
        compiled.emulate(x, ids, w, out)
        np.testing.assert_array_equal(out, rows_of(x, ids) @ w.astype(np.float32).T)
    wide = small((40, 96), np.float16)
    x, ids = wide[::2, 16:80], rng.integers(-1, 21, 50).astype(np.int32)
    w, out = small((32, 64), np.float16), np.zeros((50, 32), np.float32)
    kernel.compile(x, ids, w, out, target=target).emulate(x, ids, w, out)
    np.testing.assert_array_equal(out, rows_of(x, ids) @ w.astype(np.float32).T)


@pytest.mark.parametrize("target", CHIPS)
def test_rows_that_no_word_fits_are_fetched_by_lanes(target: str) -> None:
    """A register for each of their bytes would be more than there are."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(T, 128, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64),
            wd.WaveConstraint(T, 64),
        ],
    )  # fmt: skip
    def kernel(
        x: wd.Memory[V, K, wd.i8], ids: wd.Memory[T, wd.i32], w: wd.Memory[N, K, wd.i8], out: wd.Memory[T, N, wd.i32]
    ):
        rows = wd.read(ids)

        @wd.iterate(K, init_args=[wd.Register[T, N, wd.i32](0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=wd.IndexMapping((T, K), {V: rows})), wd.read(w), acc)

        wd.write(loop, out)

    x, w, ids = small((61, 23), np.int8), small((34, 23), np.int8), rng.integers(-2, 64, 77).astype(np.int32)
    compiled = agree(kernel, [x, ids, w, np.zeros((77, 34), np.int32)], target)
    assert "x" not in compiled.kernel_ir.shared_names


def paged(
    queries: int, keys: int, waves: int, page: int = 16, dtype: wd.DType = wd.f16, ends: bool = False, **schedule: Any
) -> Any:
    """Attention to keys of which each trip reads its pages' numbers; `ends`: from a first key to a last one."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, queries, 0), wd.TilingConstraint(N, keys), wd.WaveConstraint(M, queries // waves)],
        schedule=wd.Schedule(**schedule),
    )
    def kernel(
        q: wd.Memory[M, D, wd.f16], kc: wd.Memory[P, S, D, dtype], vc: wd.Memory[P, S, E, dtype],
        table: wd.Memory[Q, wd.i32], span: wd.Memory[B, wd.i32], o: wd.Memory[M, E, wd.f32],
    ):  # fmt: skip
        start = wd.read(span, mapping=wd.IndexMapping((), {B: 0})) if ends else None
        stop = wd.read(span, mapping=wd.IndexMapping((), {B: 1})) if ends else None
        init = [wd.Register[M, wd.f32](-math.inf), wd.Register[M, wd.f32](0.0), wd.Register[M, E, wd.f32](0.0)]

        @wd.iterate(N, init_args=init, **({"start": start, "stop": stop} if ends else {}))
        def loop(top, total, acc):
            number = wd.read(table, mapping=wd.IndexMapping((N,), {Q: N // page}))
            k = wd.read(kc, mapping=wd.IndexMapping((N, D), {P: number, S: N % page}))
            v = wd.read(vc, mapping=wd.IndexMapping((N, E), {P: number, S: N % page}))
            k, v = (x if dtype is wd.f16 else wd.cast(x, wd.f16) for x in (k, v))
            scores = wd.mma(wd.read(q), k, wd.Register[M, N, wd.f32](0.0)) * 0.125
            if ends:
                scores = wd.where((wd.index(N) >= start) & (wd.index(N) < stop), scores, -math.inf)
            new = wd.maximum(top, wd.max(scores, dim=N))
            p, keep = wd.exp(scores - new), wd.exp(top - new)
            return new, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, wd.f16), v, acc * keep)

        _, total, acc = loop
        wd.write(acc / total, o)

    return kernel


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(
    ("tile", "dtype", "keys", "ends", "schedule"),
    [
        ((32, 32, 2), wd.f16, 96, False, {}), ((32, 32, 2), wd.f16, 75, False, {"stages": 3}),
        ((16, 32, 1), wd.i8, 75, False, {}), ((64, 64, 4), wd.i8, 150, True, {}), ((16, 64, 1), wd.f16, 150, True, {}),
    ],
    ids=str,
)  # fmt: skip
def test_keys_in_pages(
    tile: tuple[int, int, int], dtype: wd.DType, keys: int, ends: bool, schedule: dict[str, Any], target: str
) -> None:
    first, last = (21, keys - 13) if ends else (0, keys)
    q = rng.standard_normal((tile[0] + 5, 64)).astype(np.float16)
    pool = [(rng.standard_normal((9, 16, 64)) * (1 if dtype is wd.f16 else 3)).astype(dtype.storage) for _ in "kv"]
    table = rng.integers(0, 9, -(-keys // 16)).astype(np.int32)
    table[1], span, o = table[0], np.array([first, last], np.int32), np.zeros((len(q), 64), np.float32)
    compiled = paged(*tile, dtype=dtype, ends=ends, **schedule).compile(
        q, *pool, table, span, o, target=target, subs={N: keys}
    )
    compiled.emulate(q, *pool, table, span, o)
    if (target, tile[0]) != ("sm_90a", 64):  # a warpgroup's products
        staged(compiled, "vc")
    k, v = (x[table].reshape(-1, 64)[first:last].astype(np.float64) for x in pool)
    scores = q.astype(np.float64) @ k.T * 0.125
    p = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(o, p / p.sum(1, keepdims=True) @ v, atol=4e-3 * max(1, np.abs(v).max()))


@pytest.mark.parametrize("target", CHIPS)
def test_numbers_that_are_computed(target: str) -> None:
    """Of a second table, a condition, a scalar and the index itself, in each trip; rows of the second operand."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 32), wd.WaveConstraint(M, 16)], subs={D: 32}
    )  # fmt: skip
    def kernel(
        a: wd.Memory[M, N, wd.f16], x: wd.Memory[V, D, wd.f16], first: wd.Memory[Q, wd.i32],
        second: wd.Memory[P, wd.i16], limit: wd.Scalar[wd.i32], out: wd.Memory[M, D, wd.f32],
    ):  # fmt: skip
        @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](0.0)])
        def loop(acc):
            middle = wd.read(first, mapping=wd.IndexMapping((N,), {Q: N // 2}))
            number = wd.cast(wd.read(second, mapping=wd.IndexMapping((N,), {P: middle})), wd.i32) * 2 + wd.index(N) % 2
            number = wd.where((wd.index(N) < limit) & (middle >= 0), number, -1)
            return wd.mma(wd.read(a), wd.read(x, mapping=wd.IndexMapping((N, D), {V: number})), acc)

        wd.write(loop, out)

    n, v = 107, 41
    a, x = small((50, n), np.float16), small((v, 32), np.float16)
    first, second = rng.integers(-2, 33, 54).astype(np.int32), rng.integers(-1, 23, 30).astype(np.int16)
    out, limit = np.zeros((50, 32), np.float32), 95
    compiled = kernel.compile(a, x, first, second, np.int32(limit), out, target=target)
    compiled.emulate(a, x, first, second, np.int32(limit), out)
    staged(compiled, "x")
    at = np.arange(n)
    middle = first[at // 2]
    there = (middle >= 0) & (middle < len(second))
    number = np.where(there, second[np.where(there, middle, 0)], 0).astype(np.int32) * 2 + at % 2
    number = np.where((at < limit) & (middle >= 0), number, -1)
    np.testing.assert_array_equal(out, a.astype(np.float32) @ rows_of(x, number))


@pytest.mark.parametrize("target", CHIPS)
def test_in_a_condition(target: str) -> None:
    """Without a loop, and only in workgroups that the condition holds for."""

    @wd.wave(
        [wd.WorkgroupConstraint(T, 32, 0), wd.WaveConstraint(T, 16), wd.WorkgroupConstraint(N, 32, 1)],
        subs={K: 32},
    )  # fmt: skip
    def kernel(
        x: wd.Memory[V, K, wd.f16], ids: wd.Memory[T, wd.i32], w: wd.Memory[N, K, wd.f16],
        limit: wd.Scalar[wd.i32], out: wd.Memory[T, N, wd.f32],
    ):  # fmt: skip
        def product() -> None:
            mine = wd.read(x, mapping=wd.IndexMapping((T, K), {V: wd.read(ids)}))
            wd.write(wd.mma(mine, wd.read(w), wd.Register[T, N, wd.f32](0.0)), out)

        wd.cond(wd.tile_start(T) < limit, product)

    x, w = small((40, 32), np.float16), small((50, 32), np.float16)
    ids = rng.integers(-2, 43, 90).astype(np.int32)
    agree(kernel, [x, ids, w, np.int32(40), np.zeros((90, 50), np.float32)], target)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("what", ["rows", "numbers"])
def test_what_the_kernel_writes_is_not_staged(what: str, target: str) -> None:
    """Copies run ahead of the trip that writes."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 32), wd.WaveConstraint(M, 16)], subs={D: 32}
    )  # fmt: skip
    def kernel(
        a: wd.Memory[M, N, wd.f16], x: wd.Memory[V, D, wd.f16], numbers: wd.Memory[N, wd.i32],
        fresh: wd.Memory[N, D, wd.f16], out: wd.Memory[M, D, wd.f32],
    ):  # fmt: skip
        @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](0.0)])
        def loop(acc):
            number = wd.read(numbers)
            mine = wd.read(x, mapping=wd.IndexMapping((N, D), {V: number}))
            acc = wd.mma(wd.read(a), mine, acc)
            if what == "rows":
                wd.write(wd.read(fresh), x, mapping=wd.IndexMapping((N, D), {V: wd.index(N) + 32}))
            else:
                wd.write(number + 0, numbers)
            return acc

        wd.write(loop, out)

    n = 96
    a, x, fresh = small((32, n), np.float16), small((n + 32, 32), np.float16), small((n, 32), np.float16)
    numbers = np.arange(n, dtype=np.int32)
    given = [a, x, numbers, fresh, np.zeros((32, 32), np.float32)]
    compiled = agree(kernel, given, target)
    assert "x" not in compiled.kernel_ir.shared_names


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_numbers_that_are_computed_from_floats(dtype: str, target: str) -> None:
    """A factor of 0.5 was cut to a whole number; products in f16 are rounded before their floor."""
    factor = 0.5 if dtype == "f32" else 0.1
    number = getattr(wd, dtype)

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
    def kernel(a: wd.Memory[M, K, wd.f16], table: wd.Memory[V, K, wd.f16], y: wd.Memory[M, N, wd.f32]):
        row = wd.cast(wd.index(N), number) * wd.Register[N, number](factor)

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            mapping = wd.IndexMapping((N, K), {V: wd.cast(wd.floor(row), wd.i32)})
            return wd.mma(wd.read(a), wd.read(table, mapping=mapping), acc)

        wd.write(loop, y)

    made = np.random.default_rng(0)
    a, table = (made.integers(-2, 3, (rows, 64)).astype(np.float16) for rows in (64, 40))
    kind = np.dtype(dtype.replace("f", "float"))
    rows = np.floor(np.arange(64).astype(kind) * kind.type(factor)).astype(np.int64)
    y = np.zeros((64, 64), np.float32)
    kernel.compile(a, table, y, target=target).emulate(a, table, y)
    np.testing.assert_array_equal(y, a.astype(np.float32) @ table[rows].T.astype(np.float32))


@pytest.mark.parametrize("target", CHIPS)
def test_loops_around(target: str) -> None:
    """Numbers that the outer loop changes are settled in front of the inner one each time; a loop of its own ends."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 32, 0), wd.WaveConstraint(M, 16), wd.TilingConstraint(B, 1),
            wd.TilingConstraint(K, 32),
        ],
        subs={N: 32},
    )  # fmt: skip
    def kernel(
        x: wd.Memory[V, K, wd.SHARED, wd.f16], ids: wd.Memory[B, M, wd.i32], w: wd.Memory[B, N, K, wd.f16],
        out: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(B, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def outer(acc):
            expert = wd.tile_start(B)
            rows = wd.read(ids, mapping=wd.IndexMapping((M,), {B: expert}))

            @wd.iterate(K, init_args=[acc])
            def inner(acc):
                mine = wd.read(x, mapping=wd.IndexMapping((M, K), {V: rows}))
                return wd.mma(mine, wd.read(w, mapping=wd.IndexMapping((N, K), {B: expert})), acc)

            return inner

        wd.write(outer, out)

    x, w = small((37, 96), np.float16), small((3, 32, 96), np.float16)
    ids = rng.integers(-2, 40, (3, 50)).astype(np.int32)
    out = np.zeros((50, 32), np.float32)
    compiled = kernel.compile(x, ids, w, out, target=target)
    compiled.emulate(x, ids, w, out)
    want = sum(rows_of(x, ids[e]) @ w[e].astype(np.float32).T for e in range(3))
    np.testing.assert_array_equal(out, want)
    staged(compiled, "x")


@pytest.mark.parametrize("target", CHIPS)
def test_in_a_loop_that_ends_by_itself(target: str) -> None:
    """Its passes fill one tile again and again; numbers that it carries do not run ahead."""

    @wd.wave(
        [wd.WorkgroupConstraint(T, 32, 0), wd.WaveConstraint(T, 16)], subs={N: 32, K: 32}
    )  # fmt: skip
    def kernel(
        x: wd.Memory[V, K, wd.SHARED, wd.f16], y: wd.Memory[V, K, wd.SHARED, wd.f16],
        ids: wd.Memory[T, wd.i32], w: wd.Memory[N, K, wd.f16],
        passes: wd.Scalar[wd.i32], out: wd.Memory[T, N, wd.f32],
    ):  # fmt: skip
        def step(i, acc):
            number = wd.read(ids)
            acc = wd.mma(wd.read(x, mapping=wd.IndexMapping((T, K), {V: number})), wd.read(w), acc)
            shifted = wd.read(y, mapping=wd.IndexMapping((T, K), {V: number + i}))
            return i + 1, wd.mma(shifted, wd.read(w), acc)

        _, acc = wd.while_loop(
            lambda i, acc: i < passes, step, [wd.Register[wd.i32](0), wd.Register[T, N, wd.f32](0.0)]
        )
        wd.write(acc, out)

    x, y, w = small((41, 32), np.float16), small((41, 32), np.float16), small((32, 32), np.float16)
    ids = rng.integers(-2, 43, 50).astype(np.int32)
    compiled = agree(kernel, [x, y, ids, w, np.int32(3), np.zeros((50, 32), np.float32)], target)
    staged(compiled, "x")
    assert "y" not in compiled.kernel_ir.shared_names


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("target", CHIPS)
def test_a_single_wave_leaves_room_for_others(target: str, width: int) -> None:
    """Four stages of 64 keys and values took 128 KiB for one warp: a unit had one of four SIMDs at work. (Of 128
    columns one warp of NVIDIA's lacks the registers, and four share them.)"""
    sizes = {M: 64, N: 1024, D: width, E: width, P: 64, S: 16, Q: 64, B: 2}
    compiled = paged(16, 64, 1).compile(target=target, subs=sizes)
    staged(compiled, "vc")
    chip, threads = get_target(target), compiled.block[0]
    assert threads == chip.wave_size or (chip.vendor == "nvidia" and width == 128)
    resident = chip.occupancy(1, compiled.kernel_ir.shared_bytes, threads) * threads // chip.wave_size
    assert resident >= (1 if chip.vendor == "amd" else 4)
