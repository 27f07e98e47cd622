"""Gathers along a dimension of a value to one of another length: `shuffle` by indices over dimensions of their own.

Evaluator, emulator and assembler against NumPy, with indices outside among them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree
from products import BM, M, N

import wavedsl as wd

J, P = wd.symbols("J P")
CHIPS = (*TARGETS, "sm_90a")
DTYPES = [wd.f32, wd.f16, *(pytest.param(d, marks=pytest.mark.slow) for d in (wd.f64, wd.i8, wd.bf16))]
ROWS = [wd.WorkgroupConstraint(M, BM, 0)]


def numbers(shape: tuple[int, ...], dtype: wd.DType) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-100, 100, shape).astype(dtype.numpy)


def places(shape: tuple[int, ...], length: int) -> np.ndarray:
    return np.random.default_rng(7).integers(-2, length + 3, shape).astype(np.int32)


def taken(a: np.ndarray, index: np.ndarray) -> np.ndarray:
    """`take_along_axis` with 0 for what lies outside."""
    inside = (index >= 0) & (index < a.shape[-1])
    index = np.broadcast_to(index, (*a.shape[:-1], index.shape[-1]))
    return np.where(inside, np.take_along_axis(a, np.clip(index, 0, a.shape[-1] - 1), axis=-1), np.zeros((), a.dtype))


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_another_length(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Shorter and longer ones, powers of two and others, tiles that do not fill the array."""

    @wd.wave(ROWS, subs={BM: 16})
    def kernel(a: wd.Memory[M, N, dtype], i: wd.Memory[M, J, wd.i32], b: wd.Memory[M, J, dtype]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    for m, n, j in ((33, 64, 16), (16, 24, 100), (5, 50, 7), (16, 8, 256)):
        a, i, b = numbers((m, n), dtype), places((m, j), n), np.ones((m, j), dtype.numpy)
        agree(kernel, [a, i, b], target, oracle if m == 33 else None).emulate(a, i, b)
        assert (b == taken(a, i)).all()


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_index_for_all_rows(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Columns taken by one list, and the list's order of dimensions in the result: x[:, index], transposed."""

    @wd.wave(ROWS, subs={BM: 16})
    def kernel(a: wd.Memory[M, N, dtype], i: wd.Memory[J, wd.i32], b: wd.Memory[J, M, dtype]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    a, i, b = numbers((20, 40), dtype), places((48,), 40), np.ones((48, 20), dtype.numpy)
    agree(kernel, [a, i, b], target, oracle).emulate(a, i, b)
    assert (b == taken(a, i).T).all()


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.f16, wd.f64], ids=str)
def test_tables_in_lanes_need_no_shared_memory(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """A codebook with an element per lane, or a few, and rows of it: exchanges between lanes alone."""
    lanes = 64 if target.startswith("gfx") else 32

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def table(a: wd.Memory[N, dtype], i: wd.Memory[M, J, wd.i32], b: wd.Memory[M, J, dtype]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    for n, j in ((lanes, lanes), (16, 4 * lanes), (lanes // 4, lanes // 2), (2 * lanes, lanes)):
        a, i, b = numbers((n,), dtype), places((3, j), n), np.ones((3, j), dtype.numpy)
        compiled = agree(table, [a, i, b], target, oracle)
        compiled.emulate(a, i, b)
        assert (b == taken(np.broadcast_to(a, (3, n)), i)).all()
        if dtype is not wd.f64:  # of two words each, those to a longer row are dearer
            assert compiled.shared_bytes == 0, (n, j)


@pytest.mark.parametrize("target", CHIPS)
def test_rows_in_other_lanes_than_their_indices(target: str, oracle: Callable[[str], str]) -> None:
    """Lanes of the result that registers of the value hold, and the other way around: bits are chosen at run time."""

    @wd.wave([wd.WorkgroupConstraint(P, 1, 0)], subs={J: 2, M: 16})
    def kernel(a: wd.Memory[P, M, N, wd.f32], i: wd.Memory[P, M, J, wd.i32], b: wd.Memory[P, M, J, wd.f32]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    for n in (2, 4, 16, 128):
        a, i, b = numbers((3, 16, n), wd.f32), places((3, 16, 2), n), np.ones((3, 16, 2), np.float32)
        agree(kernel, [a, i, b], target, oracle).emulate(a, i, b)
        assert (b == taken(a, i)).all()


@pytest.mark.parametrize("target", CHIPS)
def test_two_new_dimensions_and_the_old_one(target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave(ROWS, subs={BM: 4})
    def two(a: wd.Memory[M, N, wd.f32], i: wd.Memory[J, P, wd.i32], b: wd.Memory[M, J, P, wd.f32]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    @wd.wave(ROWS, subs={BM: 4})
    def old(a: wd.Memory[M, N, wd.f32], i: wd.Memory[N, P, wd.i32], b: wd.Memory[M, N, P, wd.f32]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    a = numbers((9, 12), wd.f32)
    for kernel, j in ((two, 5), (old, 12)):
        i, b = places((j, 8), 12), np.ones((9, j, 8), np.float32)
        agree(kernel, [a, i, b], target, oracle).emulate(a, i, b)
        assert (b == taken(a, i.reshape(-1)).reshape(b.shape)).all()


@pytest.mark.parametrize("target", CHIPS)
def test_results_over_workgroups_waves_and_trips(target: str, oracle: Callable[[str], str]) -> None:
    """Only the row that is gathered from lies in one wave; the dimension of the indices is cut as any other."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.WorkgroupConstraint(J, 64, 1), wd.WaveConstraint(J, 32)])
    def grid(a: wd.Memory[M, N, wd.f32], i: wd.Memory[M, J, wd.i32], b: wd.Memory[M, J, wd.f32]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.TilingConstraint(J, 32)])
    def trips(a: wd.Memory[M, N, wd.f32], i: wd.Memory[M, J, wd.i32], b: wd.Memory[M, wd.f32]):
        row = wd.read(a)

        @wd.iterate(J, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(total: wd.Register[M, wd.f32]):
            return total + wd.sum(wd.shuffle(row, wd.read(i), N), dim=J)

        wd.write(loop, b)

    a, i = numbers((19, 40), wd.f32), places((19, 150), 40)
    b = np.ones((19, 150), np.float32)
    agree(grid, [a, i, b], target, oracle).emulate(a, i, b)
    assert (b == taken(a, i)).all()
    b = np.ones(19, np.float32)
    agree(trips, [a, i, b], target, oracle).emulate(a, i, b)
    assert (b == taken(a, i).sum(1)).all()


@pytest.mark.parametrize("target", CHIPS)
def test_what_is_gathered_feeds_a_product(target: str, oracle: Callable[[str], str]) -> None:
    """Columns of A picked by a list before they are multiplied; what it does not fill is no element of the sum."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(P, 32, 1)])
    def kernel(
        a: wd.Memory[M, N, wd.f16], i: wd.Memory[J, wd.i32], w: wd.Memory[P, J, wd.f16], c: wd.Memory[M, P, wd.f32]
    ):
        picked = wd.shuffle(wd.read(a), wd.read(i), N)
        wd.write(wd.mma(picked, wd.read(w), wd.Register[M, P, wd.f32](0.0)), c)

    a, i, w = numbers((40, 48), wd.f16) / 64, places((20,), 48), numbers((33, 20), wd.f16) / 64
    a, w, c = a.astype(np.float16), w.astype(np.float16), np.ones((40, 33), np.float32)
    agree(kernel, [a, i, w, c], target, oracle).emulate(a, i, w, c)
    assert (c == taken(a, i).astype(np.float32) @ w.T.astype(np.float32)).all()


@pytest.mark.parametrize("target", CHIPS)
def test_flags_and_scores_after_a_product(target: str, oracle: Callable[[str], str]) -> None:
    """The k best of a product's row by `topk`, and another row's values and flags at their places."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)], subs={J: 4})
    def kernel(
        a: wd.Memory[M, P, wd.f16], w: wd.Memory[N, P, wd.f16], bias: wd.Memory[N, wd.f32],
        b: wd.Memory[M, J, wd.f32],
    ):  # fmt: skip
        scores = wd.mma(wd.read(a), wd.read(w), wd.Register[M, N, wd.f32](0.0))
        _, where = wd.topk(scores + wd.read(bias), J, dim=N)
        best, kept = wd.shuffle(scores, where, N), wd.shuffle(scores > 0.0, where, N)
        wd.write(wd.where(kept, best, 0.5), b)

    a, w, bias = numbers((20, 32), wd.f16), numbers((32, 32), wd.f16), numbers((32,), wd.f32) + np.float32(0.25)
    bias += np.arange(32, dtype=np.float32) / 256  # no two scores are equal
    b = np.ones((20, 4), np.float32)
    agree(kernel, [a, w, bias, b], target, oracle).emulate(a, w, bias, b)
    scores = a.astype(np.float32) @ w.T.astype(np.float32)
    best = taken(scores, np.argsort(-(scores + bias), axis=1, kind="stable")[:, :4])
    assert (b == np.where(best > 0, best, 0.5)).all()
