"""Gathers whose elements lie in memory in runs, as the channels of pixels under a filter: copied in vectors.

Text against NumPy, all checks on. Runs of any length that copies have, borders that are zero, strides and dilation,
either dimension along the runs, sums along pixels, and places in arrays of numbers beside expressions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy

import wavedsl as wd

pytestmark = pytest.mark.warpgroups

B, H, W, C, P, F, K, Y, X, N, T = wd.symbols("B H W C P F K Y X N T")
CHIPS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
rng = np.random.default_rng(23)


def small(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(dtype)


class Filter:
    """`size` x `size` places, `step` pixels from one result to the next and `apart` between places, of an image."""

    def __init__(self, height: int, width: int, channels: int, size: int = 3, step: int = 1, apart: int = 1):
        self.height, self.width, self.channels = height, width, channels
        self.size, self.step, self.apart = size, step, apart
        self.rows, self.columns = -(-height // step), -(-width // step)
        self.deep = size * size * channels

    def mapping(self) -> wd.IndexMapping:
        around = self.size // 2 * self.apart
        row, column = sympy.floor(K / (self.size * self.channels)), sympy.Mod(sympy.floor(K / self.channels), self.size)
        return wd.IndexMapping(
            (P, K),
            {
                H: self.step * sympy.floor(P / self.columns) + self.apart * row - around,
                W: self.step * sympy.Mod(P, self.columns) + self.apart * column - around,
                C: sympy.Mod(K, self.channels),
            },
        )

    def patches(self, x: np.ndarray) -> np.ndarray:
        """[batch, pixel, K] in f32."""
        around = self.size // 2 * self.apart
        padded = np.pad(x.astype(np.float32), ((0, 0), (around, around), (around, around), (0, 0)))
        found = [
            padded[:, i * self.apart :, j * self.apart :][:, : self.height : self.step, : self.width : self.step]
            for i in range(self.size)
            for j in range(self.size)
        ]
        return np.stack(found, 3).reshape(len(x), self.rows * self.columns, self.deep)


def convolution(f: Filter, dtype: wd.DType, tile: tuple[int, int, int], **schedule: Any) -> Any:
    patches = f.mapping()
    rows, columns = wd.WorkgroupConstraint(P, tile[0], 0), wd.WorkgroupConstraint(F, tile[1], 1)
    cut = [wd.WorkgroupConstraint(B, 1, 2), rows, columns, wd.TilingConstraint(K, tile[2])]

    @wd.wave(cut, schedule=wd.Schedule(**schedule))
    def kernel(x: wd.Memory[B, H, W, C, dtype], w: wd.Memory[F, K, dtype], y: wd.Memory[B, P, F, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[P, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=patches), wd.read(w), acc)

        wd.write(loop, y)

    return kernel


def check(
    f: Filter, kernel: Any, target: str, dtype: Any = np.float16, batch: int = 2, filters: int = 64, padded: bool = True
) -> Any:
    x = small((batch, f.height, f.width, f.channels), dtype)
    w = small((filters, -(-f.deep // 16) * 16 if padded else f.deep), dtype)[:, : f.deep]
    y = np.full((batch, f.rows * f.columns, filters), np.nan, np.float32)
    compiled = kernel.compile(x, w, y, target=target)
    compiled.emulate(x, w, y)
    np.testing.assert_array_equal(y, f.patches(x) @ w.astype(np.float32).T)
    return compiled


def copied(compiled: Any, name: str = "x") -> set[int]:
    """Bytes of the asynchronous copies that bring an array's tile; nothing where lanes fetch its elements."""
    ops = compiled.kernel_ir.body.walk()
    return {op.attrs["bytes"] for op in ops if op.name == "copy.async" and op.attrs["buffer"] == name}


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(
    ("channels", "bytes"), [(64, 16), (24, 16), (8, 16), (20, 8), (12, 8), (6, 4), (3, 0)], ids=str
)
def test_runs_of_channels(channels: int, bytes: int, target: str) -> None:
    """Vectors are as wide as runs of channels let them be; single channels are fetched by lanes."""
    f = Filter(9, 11, channels)
    compiled = check(f, convolution(f, wd.f16, (64, 64, 64)), target)
    if target == "sm_80":
        assert copied(compiled) == ({bytes} if bytes else set())


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (1, 3), (2, 2)], ids=str)
def test_strides_and_dilation(shape: tuple[int, int], target: str) -> None:
    f = Filter(10, 13, 16, 3, *shape)
    check(f, convolution(f, wd.bf16, (64, 64, 32)), target, wd.bf16.storage)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(("dtype", "channels"), [(wd.f32, 8), (wd.f32, 3), (wd.f8e4m3, 16), (wd.f8e4m3, 12)], ids=str)
def test_dtypes(dtype: wd.DType, channels: int, target: str) -> None:
    if dtype is wd.f8e4m3 and target in ("gfx90a", "gfx942", "sm_80"):
        pytest.skip("no such products")
    f = Filter(7, 9, channels)
    check(f, convolution(f, dtype, (64, 32, 64 // dtype.bytes)), target, dtype.storage, filters=40)


@pytest.mark.parametrize("target", CHIPS)
def test_sums_along_pixels(target: str) -> None:
    """A filter's gradient: the runs lie along the rows of the result, and pixels are summed."""
    f = Filter(8, 12, 16)
    patches = f.mapping()
    cut = [wd.WorkgroupConstraint(K, 64, 0), wd.WorkgroupConstraint(F, 64, 1), wd.WorkgroupConstraint(B, 1, 2)]

    @wd.wave([*cut, wd.TilingConstraint(P, 32)])
    def gradient(x: wd.Memory[B, H, W, C, wd.f16], dy: wd.Memory[B, P, F, wd.f16], dw: wd.Memory[B, K, F, wd.f32]):
        @wd.iterate(P, init_args=[wd.Register[K, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=patches), wd.read(dy), acc)

        wd.write(loop, dw)

    x, dy = small((2, 8, 12, 16), np.float16), small((2, 96, 72), np.float16)
    dw = np.zeros((2, f.deep, 72), np.float32)
    gradient.compile(x, dy, dw, target=target).emulate(x, dy, dw)
    np.testing.assert_array_equal(dw, np.swapaxes(f.patches(x), 1, 2) @ dy.astype(np.float32))


@pytest.mark.parametrize("target", CHIPS)
def test_numbers_of_rows_and_places_in_them(target: str) -> None:
    """Which image a row of pixels is of says an array, which columns of it an expression does."""
    cut = [wd.WorkgroupConstraint(T, 64, 0), wd.WorkgroupConstraint(F, 64, 1), wd.TilingConstraint(K, 32)]

    @wd.wave(cut)
    def kernel(
        x: wd.Memory[N, X, C, wd.f16], ids: wd.Memory[T, wd.i32], w: wd.Memory[F, K, wd.f16], y: wd.Memory[T, F, wd.f32]
    ):
        rows = wd.read(ids)
        mapping = wd.IndexMapping((T, K), {N: rows, X: sympy.floor(K / 8) + sympy.Mod(T, 3) - 1, C: sympy.Mod(K, 8)})

        @wd.iterate(K, init_args=[wd.Register[T, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=mapping), wd.read(w), acc)

        wd.write(loop, y)

    x, ids, w = small((20, 6, 8), np.float16), rng.integers(-2, 23, 100).astype(np.int32), small((70, 56), np.float16)
    y = np.zeros((100, 70), np.float32)
    kernel.compile(x, ids, w, y, target=target).emulate(x, ids, w, y)
    padded = np.zeros((20, 10, 8), np.float32)
    padded[:, 1:7] = x
    rows = np.where((ids >= 0) & (ids < 20), ids, 0)
    found = np.stack([padded[r, t % 3 : t % 3 + 7].ravel() for t, r in enumerate(rows)])
    found[(ids < 0) | (ids >= 20)] = 0
    np.testing.assert_array_equal(y, found @ w.astype(np.float32).T)


def ringed(compiled: Any, *names: str) -> None:
    """Threads of the copying warpgroup bring these tiles by copies of 16 bytes, and nobody else fetches from there."""
    strategy = compiled.kernel_ir.notes["lowering"].strategy
    assert strategy.specialize and all(copied(compiled, name) == {16} for name in names)
    assert any(op.name == "signal.copied" for op in compiled.kernel_ir.body.walk())


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("channels", "bytes"), [(64, 16), (24, 16), (20, 8), (6, 4)], ids=str)
def test_rings_of_runs(channels: int, bytes: int, padded: bool) -> None:
    """Threads bring filters, too, where these have rows of no multiple of 16 bytes."""
    f = Filter(9, 11, channels)
    compiled = check(f, convolution(f, wd.f16, (64, 64, 64)), "sm_90a", padded=padded)
    # What threads copied went through the generic proxy: whoever has waited for it fences before its products.
    last = compiled.asm[: compiled.asm.index("wgmma.mma_async")].rpartition("mbarrier.try_wait")[2]
    assert "fence.proxy.async" in last
    assert copied(compiled) == {bytes} and bool(copied(compiled, "w")) == (not padded and f.deep % 8 != 0)
    assert compiled.asm.count("cp.async.mbarrier.arrive.noinc") > 0


@pytest.mark.parametrize("tile", [(128, 64, 32), (192, 64, 64), (64, 128, 16), (32, 64, 64), (256, 64, 64)], ids=str)
def test_tiles_of_warpgroups(tile: tuple[int, int, int]) -> None:
    f = Filter(12, 13, 32)
    ringed(check(f, convolution(f, wd.bf16, tile), "sm_90a", wd.bf16.storage, filters=136), "x")


@pytest.mark.parametrize(
    "schedule",
    [
        {"stages": 1}, {"stages": 2}, {"persistent": True}, {"persistent": False}, {"split_k": 3}, {"stream_k": True},
        {"cluster": (2, 1, 1)}, {"cluster": (1, 2, 1)}, {"cluster": (2, 2, 1)}, {"registers": (56, 224)},
        {"ping_pong": True, "persistent": True},
    ],
    ids=str,
)  # fmt: skip
def test_schedules_of_warpgroups(schedule: dict[str, Any]) -> None:
    f = Filter(16, 16, 16)
    tile = (64 if "ping_pong" in schedule else 128, 64, 32)
    kernel = convolution(f, wd.f16, tile, **schedule)
    ringed(check(f, kernel, "sm_90a", batch=4, filters=128), "x")


@pytest.mark.parametrize("schedule", [{"specialize": False}, {"direct_to_shared": False}], ids=str)
def test_without_a_copying_warpgroup_lanes_fetch(schedule: dict[str, Any]) -> None:
    f = Filter(8, 8, 16)
    compiled = check(f, convolution(f, wd.f16, (64, 64, 32), **schedule), "sm_90a")
    assert not copied(compiled) and any(op.name == "matrix.start" for op in compiled.kernel_ir.body.walk())


def pages(page: int, tile: int, dtype: wd.DType, causal: bool = False, d: int = 64) -> Any:
    """Attention without a softmax: keys and values lie in pages that are shorter than tiles, or no divisors of them."""
    cut = [wd.WorkgroupConstraint(P, 64, 0), wd.WorkgroupConstraint(B, 1, 1), wd.TilingConstraint(T, tile)]

    @wd.wave(cut)
    def kernel(
        q: wd.Memory[B, P, C, dtype], k: wd.Memory[N, X, C, dtype], v: wd.Memory[N, X, F, dtype],
        table: wd.Memory[B, Y, wd.i32], y: wd.Memory[B, P, F, wd.f32],
    ):  # fmt: skip
        stop = wd.minimum(wd.tile_stop(P), T) if causal else None

        @wd.iterate(T, init_args=[wd.Register[P, F, wd.f32](0.0)], stop=stop)
        def loop(acc):
            number = wd.read(table, mapping=wd.IndexMapping((T,), {Y: sympy.floor(T / page)}))
            place = {N: number, X: sympy.Mod(T, page)}
            scores = wd.mma(
                wd.read(q), wd.read(k, mapping=wd.IndexMapping((T, C), place)), wd.Register[P, T, wd.f32](0.0)
            )
            if causal:
                scores = wd.where(wd.index(T) <= wd.index(P), scores, 0.0)
            return wd.mma(wd.cast(scores, dtype), wd.read(v, mapping=wd.IndexMapping((T, F), place)), acc)

        wd.write(loop, y)

    return kernel


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(
    ("page", "tile", "rows", "keys", "causal"),
    [(16, 64, 64, 128, False), (16, 32, 100, 96, False), (24, 64, 150, 120, False), (8, 32, 130, 136, True)], ids=str,
)  # fmt: skip
def test_pages_shorter_than_tiles(page: int, tile: int, rows: int, keys: int, causal: bool, target: str) -> None:
    count = -(-keys // page)
    q, k, v = (small(shape, np.float16) for shape in ((2, rows, 64), (2 * count, page, 64), (2 * count, page, 64)))
    table = rng.permutation(2 * count).reshape(2, count).astype(np.int32)
    table[0, 1], table[1, 0] = -1, 2 * count  # no such pages: their keys and values are zero
    y = np.full((2, rows, 64), np.nan, np.float32)
    kernel = pages(page, tile, wd.f16, causal)
    compiled = kernel.compile(q, k, v, table, y, target=target, subs={T: keys})
    compiled.emulate(q, k, v, table, y)
    there = (table >= 0) & (table < 2 * count)
    found = (np.where(there[:, :, None, None], x[np.where(there, table, 0)], 0) for x in (k, v))
    kk, vv = (x.reshape(2, -1, 64)[:, :keys].astype(np.float32) for x in found)
    scores = q.astype(np.float32) @ kk.swapaxes(1, 2)
    if causal:
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None], scores, 0)
    np.testing.assert_array_equal(y, scores @ vv)
    if target == "sm_90a":
        ringed(compiled, "k", "v")


@pytest.mark.parametrize("index", [wd.i32, wd.i64], ids=str)
@pytest.mark.parametrize("schedule", [{}, {"persistent": True, "stages": 2}, {"cluster": (1, 2, 1)}], ids=str)
def test_rows_of_tokens_by_warpgroups(schedule: dict[str, Any], index: wd.DType) -> None:
    """The rows' numbers are the same in all trips: they are looked up in front of the loop, for each tile anew."""
    cut = [wd.WorkgroupConstraint(T, 128, 0), wd.WorkgroupConstraint(F, 128, 1), wd.TilingConstraint(K, 64)]

    @wd.wave(cut, schedule=wd.Schedule(**schedule))
    def kernel(
        x: wd.Memory[N, K, wd.bf16], ids: wd.Memory[T, index], w: wd.Memory[F, K, wd.bf16], y: wd.Memory[N, F, wd.bf16]
    ):
        rows = wd.read(ids)

        @wd.iterate(K, init_args=[wd.Register[T, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=wd.IndexMapping((T, K), {N: rows})), wd.read(w), acc)

        wd.write(wd.cast(loop, wd.bf16), y, mapping=wd.IndexMapping((T, F), {N: rows}))

    x, w = small((400, 160), wd.bf16.storage), small((256, 160), wd.bf16.storage)
    ids = rng.permutation(400)[:300].astype(index.numpy)
    ids[7], ids[200] = -1, 400  # tokens that do not exist
    y = np.zeros((400, 256), wd.bf16.storage)
    compiled = kernel.compile(x, ids, w, y, target="sm_90a")
    compiled.emulate(x, ids, w, y)
    ringed(compiled, "x")
    there = ids[(ids >= 0) & (ids < 400)]
    want = np.zeros((400, 256), np.float32)
    want[there] = x[there].astype(np.float32) @ w.astype(np.float32).T
    np.testing.assert_array_equal(y, want.astype(wd.bf16.storage))


def test_turns_that_only_a_gather_could_have() -> None:
    """Neither the plan with a gathered tile nor one without can take turns: that is an error as any (seed 57)."""
    cut = [wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(K, 16)]

    @wd.wave(cut, subs={T: 32}, schedule=wd.Schedule(ping_pong=True))
    def kernel(x: wd.Memory[X, K, wd.bf16], y: wd.Memory[T, N, wd.f32]):
        rows = wd.read(x, mapping=wd.IndexMapping((T, K), {X: wd.Register[T, wd.i32](1)}))
        wd.write(wd.mma(rows, wd.Register[N, K, wd.bf16](1), wd.Register[T, N, wd.f32](1)), y)

    with pytest.raises(wd.ConstraintError, match="ping_pong"):
        kernel.compile(np.zeros((1, 2), wd.bf16.storage), np.zeros((32, 7), np.float32), target="sm_90a")


@pytest.mark.parametrize("target", CHIPS)
def test_places_of_two_operands_of_one_ring(target: str) -> None:
    """Both operands of a product are gathered, and the place of the second is worked out behind the first's read."""
    cut = [wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(F, 64, 1), wd.TilingConstraint(K, 64)]

    @wd.wave(cut)
    def kernel(x: wd.Memory[X, T, C, wd.f16], w: wd.Memory[N, F, wd.f16], y: wd.Memory[B, T, F, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[T, F, wd.f32](0)])
        def loop(acc):
            one = wd.Register[K, wd.i32](1)
            rows = wd.read(x, mapping=wd.IndexMapping((T, K), {X: K // 32, C: K % 32}))
            columns = wd.read(w, mapping=wd.IndexMapping((K, F), {N: one * 32 + wd.index(K) % 32}))
            return wd.mma(rows, columns, acc)

        wd.write(loop, y)

    x, w, y = small((3, 64, 32), np.float16), small((64, 128), np.float16), np.zeros((1, 64, 128), np.float32)
    kernel.compile(x, w, y, target=target, subs={K: 96}).emulate(x, w, y)
    rows = x.swapaxes(0, 1).reshape(64, 96).astype(np.float32)
    np.testing.assert_array_equal(y[0], rows @ w[32 + np.arange(96) % 32].astype(np.float32))


@pytest.mark.parametrize("target", CHIPS)
def test_contiguous_dimensions_of_another_name(target: str) -> None:
    """What counts along memory is a dimension of the value that the array does not have."""
    cut = [wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(P, 1, 1), wd.WorkgroupConstraint(T, 32, 0)]

    @wd.wave(cut, subs={P: 3})
    def kernel(
        x: wd.Memory[B, C, H, W, wd.SHARED, wd.f16], w: wd.Memory[F, C, wd.f16], y: wd.Memory[B, P, T, F, wd.f32]
    ):
        rows = wd.read(x, mapping=wd.IndexMapping((T, C), {H: P - 1, W: T}))
        wd.write(wd.mma(rows, wd.read(w), wd.Register[T, F, wd.f32](1)), y)

    x, w = small((2, 16, 2, 40), np.float16), small((24, 16), np.float16)
    y = np.zeros((2, 3, 40, 24), np.float32)
    kernel.compile(x, w, y, target=target).emulate(x, w, y)
    want = np.ones_like(y)
    want[:, 1:] += np.einsum("bchw,fc->bhwf", x.astype(np.float32), w.astype(np.float32))
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_run_time_extents(target: str) -> None:
    """Images, filters and pixels are counted at launch. How far images are apart is not known then: lanes fetch."""
    f = Filter(9, 12, 16)
    kernel = convolution(f, wd.f16, (64, 64, 32))
    whole = kernel.compile(target=target, dynamic=(B, F), subs={H: 9, W: 12, C: 16, P: 108, K: f.deep})
    any_height = kernel.compile(target=target, dynamic=(B, H, P, F), subs={W: 12, C: 16, K: f.deep})
    assert copied(whole) == {16} and not copied(any_height)
    for compiled, batch, height, filters in ((whole, 2, 9, 40), (whole, 1, 9, 130), (any_height, 2, 4, 72)):
        other = Filter(height, 12, 16)
        x, w = small((batch, height, 12, 16), np.float16), small((filters, f.deep), np.float16)
        y = np.full((batch, height * 12, filters), np.nan, np.float32)
        compiled.emulate(x, w, y)
        np.testing.assert_array_equal(y, other.patches(x) @ w.astype(np.float32).T)


@pytest.mark.parametrize("prefetch", [None, 2])
@pytest.mark.parametrize("dependent", [False, True])
def test_other_choices_beside_copies_by_threads(dependent: bool, prefetch: int | None) -> None:
    """Launches that begin early ask for first tiles, and prefetches for later ones, of what bulk copies bring."""
    f = Filter(16, 16, 16)
    kernel = convolution(f, wd.f16, (128, 64, 32), dependent=dependent, prefetch=prefetch, persistent=True)
    ringed(check(f, kernel, "sm_90a", batch=3, filters=72), "x")
    odd = Filter(10, 10, 12)  # rows of the filter are no multiple of 16 bytes
    kernel = convolution(odd, wd.f16, (64, 64, 32), dependent=dependent, prefetch=prefetch)
    assert copied(check(odd, kernel, "sm_90a", padded=False), "w") == {8}
