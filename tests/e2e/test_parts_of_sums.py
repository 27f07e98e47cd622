"""Products and sums along a dimension that workgroups share, added to memory by an atomic: each adds its part.

Evaluator, emulator and assembler against NumPy; whole numbers, so that the order of the parts does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import packed
import pytest
from agree import TARGETS, agree
from products import BM, BN, K, M, N

import wavedsl as wd
from wavedsl.strategies.kernels import Form, tiled

CHIPS = (*TARGETS, "sm_90a")
H, D = wd.symbols("H D")
GRID = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)]
SUMS = wd.Register[M, K, wd.f32]


def whole(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(shape[-1]).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("target", CHIPS)
def test_a_product_along_tiles_of_the_grid(target: str, oracle: Callable[[str], str]) -> None:
    """Scaled per row, turned around and negated on the way; tiles that do not fill the arrays; two terms in one."""

    @wd.wave(GRID, subs={BM: 32, BN: 32})
    def kernel(
        x: wd.Memory[M, N, wd.bf16], y: wd.Memory[N, K, wd.bf16], row: wd.Memory[M, wd.f32], by: wd.Scalar[wd.f32],
        c: wd.Memory[M, K, wd.f32], d: wd.Memory[K, M, wd.f32],
    ):  # fmt: skip
        a, b = wd.read(x), wd.read(y)
        wd.atomic_add(wd.mma(a, b, SUMS(0.0)) * by, c)
        two = wd.mma(a, b, wd.mma(a, b, SUMS(0.0))) - wd.mma(a, b)
        wd.atomic_add(wd.permute(-two * wd.read(row), K, M), d)

    for m, n, k in ((70, 100, 40), (32, 16, 32)):
        x, y, row = whole((m, n), ml_dtypes.bfloat16), whole((n, k), ml_dtypes.bfloat16), whole((m,))
        c, d = np.ones((m, k), np.float32), np.ones((k, m), np.float32)
        agree(kernel, [x, y, row, np.float32(2), c, d], target, oracle).emulate(x, y, row, np.float32(2), c, d)
        product = x.astype(np.float32) @ y.astype(np.float32)
        assert (c == 1 + 2 * product).all() and (d == 1 - (row[:, None] * product).T).all()


@pytest.mark.parametrize("target", CHIPS)
def test_a_sum_along_tiles_of_the_grid(target: str, oracle: Callable[[str], str]) -> None:
    """In f64 memory, of whole numbers, and at a place that a mapping gives."""

    @wd.wave(GRID, subs={BM: 16, BN: 64})
    def kernel(
        x: wd.Memory[M, N, wd.f32], i: wd.Memory[M, N, wd.i32], place: wd.Memory[M, wd.i32],
        a: wd.Memory[M, wd.f64], b: wd.Memory[M, wd.i32], c: wd.Memory[K, wd.f32],
    ):  # fmt: skip
        wd.atomic_add(wd.cast(wd.sum(wd.read(x), dim=N), wd.f64), a)
        wd.atomic_add(wd.sum(wd.read(i), dim=N), b)
        total = wd.sum(wd.abs(wd.read(x)), dim=N)
        wd.atomic_add(total / 2.0, c, mapping=wd.IndexMapping((M,), {K: wd.read(place)}))

    x, i, place = whole((40, 150)), whole((40, 150), np.int32), (np.arange(40) * 7 % 10).astype(np.int32)
    a, b, c = np.ones(40), np.ones(40, np.int32), np.ones(10, np.float32)
    agree(kernel, [x, i, place, a, b, c], target, oracle).emulate(x, i, place, a, b, c)
    assert (a == 1 + x.sum(1)).all() and (b == 1 + i.sum(1)).all()
    want = np.ones(10, np.float32)
    np.add.at(want, place, np.abs(x).sum(1) / 2)
    assert (c == want).all()


@pytest.mark.parametrize("target", CHIPS)
def test_sums_along_several_dimensions_of_the_grid(target: str, oracle: Callable[[str], str]) -> None:
    """Both shared, one of both, the outer or the inner one, with factors between and after; where only some workgroups
    come to the sum; greatest and least numbers; sums of a product along what no workgroups share."""

    @wd.wave([*GRID, wd.WorkgroupConstraint(D, 8, 2)], subs={BM: 16, BN: 32})
    def kernel(
        x: wd.Memory[M, N, wd.f32], w: wd.Memory[M, K, wd.f32], h: wd.Memory[M, N, wd.bf16],
        y: wd.Memory[N, K, wd.bf16], by: wd.Scalar[wd.f32], total: wd.Memory[6, wd.f32],
        ends: wd.Memory[2, wd.f32], z: wd.Memory[D, wd.i32],
    ):  # fmt: skip
        v = wd.read(x)
        wd.atomic_add(wd.sum(v, dim=(M, N)), total[0])
        wd.atomic_add(-wd.sum(wd.sum(v, dim=N) * by, dim=M) / 2.0, total[1])
        rows = wd.read(w)
        wd.atomic_add(wd.sum(rows, dim=(M, K)) + wd.sum(rows * 2.0, dim=(K, M)), total[2])
        wd.cond(wd.tile_start(M) + wd.tile_start(N) > 20, lambda: wd.atomic_add(wd.sum(v, dim=(N, M)), total[3]))
        product = wd.mma(wd.read(h), wd.read(y), SUMS(0.0))
        wd.atomic_add(wd.sum(product, dim=K), total, mapping=wd.IndexMapping((M,), {6: wd.index(M) * 0 + 4}))
        wd.atomic_max(wd.max(v, dim=(M, N)), ends[0])
        wd.atomic_min(wd.min(v, dim=(N, M)), ends[1])
        wd.write(wd.read(z), z)

    m, n, k = 40, 75, 16
    x, w, h, y = whole((m, n)), whole((m, k)), whole((m, n), ml_dtypes.bfloat16), whole((n, k), ml_dtypes.bfloat16)
    arguments = [x, w, h, y, np.float32(3), np.zeros(6, np.float32), np.zeros(2, np.float32), np.zeros(9, np.int32)]
    agree(kernel, arguments, target, oracle).emulate(*arguments)
    far = np.add.outer(np.arange(m) // 16 * 16, np.arange(n) // 32 * 32) > 20
    products = h.astype(np.float32) @ y.astype(np.float32)
    want = [x.sum(), -1.5 * x.sum(), 3 * w.sum(), x[far].sum(), products.sum(), 0]
    assert (arguments[5] == want).all() and (arguments[6] == [x.max(), x.min()]).all()


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
def test_all_gradients_of_scores_in_one_loop(causal: bool, target: str, oracle: Callable[[str], str]) -> None:
    """A workgroup holds a tile of keys and goes over the queries: it adds up the gradient of its keys, and adds its
    part of that of each tile of queries to memory. Causal: workgroups begin at different queries."""

    @wd.wave(
        [wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(N, BN, 0), wd.TilingConstraint(M, BM)],
        subs={BM: 32, BN: 32, D: 32},
    )
    def kernel(
        q: wd.Memory[H, M, D, wd.bf16], k: wd.Memory[H, N, D, wd.bf16], ds: wd.Memory[H, M, N, wd.bf16],
        dq: wd.Memory[H, M, D, wd.f32], dk: wd.Memory[H, N, D, wd.f32],
    ):  # fmt: skip
        keys = wd.read(k)
        first = wd.tile_start(N) // BM if causal else None

        @wd.iterate(M, init_args=[wd.Register[N, D, wd.f32](0.0)], start=first)
        def over_queries(acc: wd.Register[N, D, wd.f32]):
            grad = wd.read(ds)
            if causal:
                grad = wd.where(wd.index(M) >= wd.index(N), grad, 0.0)
            wd.atomic_add(wd.mma(grad, keys, wd.Register[M, D, wd.f32](0.0)), dq)
            return wd.mma(grad, wd.read(q), acc)

        wd.write(over_queries, dk)

    heads, m = 2, 80
    q, k, ds = (whole((heads, m, n), ml_dtypes.bfloat16) for n in (32, 32, m))
    dq, dk = np.zeros((heads, m, 32), np.float32), np.ones((heads, m, 32), np.float32)
    agree(kernel, [q, k, ds, dq, dk], target, oracle).emulate(q, k, ds, dq, dk)
    wide = ds.astype(np.float32)
    if causal:
        wide = np.tril(wide)
    assert (dq == wide @ k.astype(np.float32)).all()
    assert (dk == wide.transpose(0, 2, 1) @ q.astype(np.float32)).all()


@pytest.mark.parametrize("target", CHIPS)
def test_only_some_tiles_add_their_part(target: str, oracle: Callable[[str], str]) -> None:
    """Under a condition that differs between the tiles that are summed; what the others read may be no number."""

    @wd.wave(GRID, subs={BM: 32, BN: 32})
    def kernel(
        x: wd.Memory[M, N, wd.f32], y: wd.Memory[N, K, wd.f32], stop: wd.Scalar[wd.i32],
        c: wd.Memory[M, K, wd.f32], d: wd.Memory[M, wd.f32],
    ):  # fmt: skip
        wd.exit_if(wd.tile_start(N) >= stop)
        wd.atomic_add(wd.mma(wd.read(x), wd.read(y), SUMS(0.0)), c)
        wd.atomic_add(wd.sum(wd.read(x), dim=N), d)

    x, y = whole((40, 128)), whole((128, 40))
    x[:, 64:] = np.nan
    y[64:] = np.inf
    c, d = np.ones((40, 40), np.float32), np.ones(40, np.float32)
    agree(kernel, [x, y, np.int32(64), c, d], target, oracle).emulate(x, y, np.int32(64), c, d)
    assert (c == 1 + x[:, :64] @ y[:64]).all() and (d == 1 + x[:, :64].sum(1)).all()


@pytest.mark.parametrize("target", CHIPS)
def test_scaled_and_precise_products(target: str, oracle: Callable[[str], str]) -> None:
    """What becomes several products, or one of scaled operands, before it is cut."""

    @wd.wave(GRID, subs={BM: 32, BN: 64})
    def kernel(
        x: wd.Memory[M, N, wd.f32], y: wd.Memory[N, K, wd.f32], p: wd.Memory[M, N, wd.f4e2m1],
        s: wd.Memory[M, N / 32, wd.f8e8m0], q: wd.Memory[K, N, wd.f4e2m1], t: wd.Memory[K, N / 32, wd.f8e8m0],
        c: wd.Memory[M, K, wd.f32], d: wd.Memory[M, K, wd.f32],
    ):  # fmt: skip
        tf32 = None if target == "gfx90a" else "3xtf32"
        wd.atomic_add(wd.mma(wd.read(x), wd.read(y), SUMS(0.0), precision=tf32), c)
        wd.atomic_add(wd.scaled_mma(wd.read(p), wd.read(s), wd.read(q), wd.read(t), SUMS(0.0)), d)

    m, n, k = 40, 256, 32
    rng = np.random.default_rng(1)
    x, y = whole((m, n)), whole((n, k))
    (p, left), (q, right) = (packed.operand(rng, wd.f4e2m1, (r, n)) for r in (m, k))
    s, t = (np.full((r, n // 32), 128, np.uint8).view(ml_dtypes.float8_e8m0fnu) for r in (m, k))
    c, d = np.ones((m, k), np.float32), np.ones((m, k), np.float32)
    arrays = [x, y, p, s, q, t, c, d]
    agree(kernel, arrays, target, oracle).emulate(*arrays)
    assert (c == 1 + x @ y).all() and (d == 1 + 4 * left @ right.T).all()


@pytest.mark.parametrize("target", CHIPS)
def test_extremes_along_tiles_of_the_grid(target: str, oracle: Callable[[str], str]) -> None:
    """Of a product's rows and columns, as scales of dynamic quantisation need them; a tile of nothing but NaN gives
    way to numbers."""

    @wd.wave([*GRID, wd.TilingConstraint(K, 32)], subs={BM: 16, BN: 32})
    def kernel(
        x: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, wd.f16], y: wd.Memory[M, N, wd.f64], most: wd.Memory[M, wd.f32],
        least: wd.Memory[N, wd.i32], both: wd.Memory[H, N, wd.f64],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            return wd.mma(wd.read(x), wd.read(w), acc)

        wd.atomic_max(wd.max(wd.abs(total), dim=N), most)
        wd.atomic_min(wd.min(wd.cast(total, wd.i32), dim=M), least)
        wd.atomic_max(wd.max(wd.read(y), dim=M), both[0, :])
        wd.atomic_min(wd.min(wd.read(y) * 2.0, dim=M), both[1, :])

    for m, n in ((32, 64), (21, 45)):
        x, w = whole((m, 40), np.float16), whole((n, 40), np.float16)
        y = whole((m, n), np.float64)
        y[:16] = np.nan
        both = np.array([[-np.inf], [np.inf]]).repeat(n, 1)
        arguments = [x, w, y, np.full(m, -1, np.float32), np.full(n, 9999, np.int32), both]
        for dynamic in ((), (M, N)):
            mine = [a.copy() for a in arguments]
            compiled = agree(kernel, mine, target, oracle, dynamic=dynamic)
            compiled.emulate(*mine)
            z = x.astype(np.float64) @ w.T.astype(np.float64)
            np.testing.assert_array_equal(mine[3], np.abs(z).max(1))
            np.testing.assert_array_equal(mine[4], z.min(0))
            np.testing.assert_array_equal(mine[5], [np.nanmax(y, 0), 2 * np.nanmin(y, 0)])


@pytest.mark.parametrize("target", CHIPS)
def test_waves_share_rows_before_they_share_what_is_summed(target: str) -> None:
    """No wave adds what another one has: the sums of a tile meet in no shared memory."""

    @wd.wave(GRID, subs={BM: 64, BN: 64})
    def kernel(x: wd.Memory[M, N, wd.bf16], y: wd.Memory[N, K, wd.bf16], c: wd.Memory[M, K, wd.f32]):
        wd.atomic_add(wd.mma(wd.read(x), wd.read(y), SUMS(0.0)), c)

    compiled = kernel.compile(subs={M: 256, N: 256, K: 64}, target=target)
    assert compiled.resources.instructions["barrier"] == 1 and compiled.block[0] >= 128


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("tile", [8, 12, 24, 48])
@pytest.mark.parametrize("dtype", [wd.bf16, wd.f8e4m3], ids=str)
def test_tiles_that_no_instruction_fills(dtype: wd.DType, tile: int, target: str) -> None:
    """What lies past a workgroup's tile, in memory that is there, is in another workgroup's sum."""
    if dtype is wd.f8e4m3 and target not in ("gfx950", "sm_90a"):
        pytest.skip("no such numbers on this chip")

    @wd.wave(GRID, subs={BM: 32, BN: tile})
    def rows(x: wd.Memory[M, N, dtype], y: wd.Memory[K, N, dtype], c: wd.Memory[M, K, wd.f32]):
        wd.atomic_add(wd.mma(wd.read(x), wd.read(y), SUMS(0.0)), c)

    @wd.wave(GRID, subs={BM: 32, BN: tile})
    def columns(x: wd.Memory[M, N, dtype], y: wd.Memory[N, K, dtype], c: wd.Memory[M, K, wd.f32]):
        wd.atomic_add(wd.mma(wd.read(x), wd.read(y), SUMS(0.0)), c)

    x, y, c = whole((40, 100), dtype.numpy), whole((100, 32), dtype.numpy), np.zeros((40, 32), np.float32)
    want = x.astype(np.float32) @ y.astype(np.float32)
    for kernel, side in ((rows, np.ascontiguousarray(y.T)), (columns, y)):
        c[:] = 0
        agree(kernel, [x, side, c], target).emulate(x, side, c)
        assert (c == want).all()


REFUSED: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "from another start": lambda x, y, row, c: wd.atomic_add(wd.mma(x, y, SUMS(1.0)), c),
    "used twice": lambda x, y, row, c: wd.atomic_add((z := wd.mma(x, y, SUMS(0.0))) * z, c),
    "with something else": lambda x, y, row, c: wd.atomic_add(wd.mma(x, y, SUMS(0.0)) + row, c),
    "by what differs": lambda x, y, row, c: wd.atomic_add(wd.mma(x, y) * wd.cast(wd.tile_start(N), wd.f32), c),
    "not linear": lambda x, y, row, c: wd.atomic_add(wd.exp(wd.mma(x, y, SUMS(0.0))), c),
    "divided by": lambda x, y, row, c: wd.atomic_add(1.0 / wd.mma(x, y, SUMS(0.0)), c),
    "read before": lambda x, y, row, c: wd.atomic_add(wd.atomic_add(wd.mma(x, y), c), c),
    "stored": lambda x, y, row, c: wd.write(wd.mma(x, y, SUMS(0.0)), c),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_parts(name: str) -> None:
    """The error says how parts are added."""

    @wd.wave(GRID, subs={BM: 32, BN: 32})
    def kernel(
        x: wd.Memory[M, N, wd.bf16], y: wd.Memory[N, K, wd.bf16], row: wd.Memory[M, wd.f32], c: wd.Memory[M, K, wd.f32]
    ):
        REFUSED[name](wd.read(x), wd.read(y), wd.read(row), c)

    with pytest.raises(wd.CompileError, match="mma along N, which is spread over workgroups") as caught:
        kernel.compile(subs={M: 64, N: 64, K: 32}, target="gfx942")
    assert "wd.atomic_add(wd.mma(…), out)" in str(caught.value)


def test_extremes_that_have_no_parts() -> None:
    """What is done to a maximum may not be done to a tile's, and what is read of it is no tile's."""

    def scaled(x: Any, row: Any, c: Any) -> None:
        wd.atomic_max(wd.max(x, dim=N) * -1.0, c)

    def other(x: Any, row: Any, c: Any) -> None:
        wd.atomic_min(wd.max(x, dim=N), c)

    def twice(x: Any, row: Any, c: Any) -> None:
        top = wd.max(x, dim=N)
        wd.atomic_max(top, c)
        wd.atomic_max(top + row, c)

    for use in (scaled, other, twice):

        @wd.wave(GRID, subs={BM: 32, BN: 32})
        def kernel(x: wd.Memory[M, N, wd.f32], row: wd.Memory[M, wd.f32], c: wd.Memory[M, wd.f32]):
            use(wd.read(x), wd.read(row), c)

        with pytest.raises(wd.CompileError, match="max along N, which is spread over workgroups") as caught:
            kernel.compile(subs={M: 64, N: 64}, target="gfx942")
        assert "wd.atomic_max(wd.max(x, dim=N), out), with nothing on the way" in str(caught.value)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_loads_of_a_part_are_on_their_way_together(target):
    """What the last workgroup adds of a part has eight loads on their way, not one."""
    form = Form(wd.bf16, wd.bf16, True)
    a, b, c = (np.zeros(size, np.float32).astype(wd.bf16.numpy) for size in ((128, 2048), (128, 2048), (128, 128)))
    made = tiled(form, (128, 128, 32), (2, 2, 1), 2, True, 8).compile(a, b, c, 1.0, 0.0, target=target)
    text = made.asm.splitlines()
    start = next(i for i, line in enumerate(text) if re.match(r"\.L\w*_parts\d+:", line))
    stop = next(i for i in range(start, len(text)) if "s_cbranch" in text[i])
    loop = [line.split()[0] for line in text[start:stop] if line.strip()]
    loads = [i for i, name in enumerate(loop) if name.startswith("buffer_load")]
    assert len(loads) == 16 and loads[7] < loop.index("s_waitcnt")
