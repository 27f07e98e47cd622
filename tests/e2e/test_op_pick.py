"""`extract`, `shuffle` and `repeat_interleave` on every chip: text against evaluator and NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from products import BM, M, N
from wavedsl.ir.lower import lower_pick

import wavedsl as wd

P, Q = wd.symbols("P Q")
DTYPES = [wd.f32, wd.f16, *(pytest.param(d, marks=pytest.mark.slow) for d in (wd.f64, wd.i8, wd.bf16))]
ROWS = [wd.WorkgroupConstraint(M, BM, 0)]


def numbers(shape: tuple[int, ...], dtype: wd.DType) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-100, 100, shape).astype(dtype.numpy)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_element_of_a_row(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """The first, one that another lane holds, the last, and two that do not exist."""

    def taking(place: int) -> Any:
        @wd.wave(ROWS, subs={BM: 16})
        def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, dtype]):
            wd.write(wd.extract(wd.read(a), {N: place}), b)

        return kernel

    for place in (0, 5, 49, 50, -1):
        kernel = taking(place)
        a, b = numbers((40, 50), dtype), np.ones(40, dtype.numpy)
        agree(kernel, [a, b], target, oracle if place == 5 else None)
        compiled = kernel.compile(a, b, target=target)
        compiled.emulate(a, b)
        assert (b == (a[:, place] if 0 <= place < 50 else 0)).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [50, 16])
def test_places_made_of_extents(n: int, target: str) -> None:
    """Both halves, and the last element, of rows whose length the kernel does not say."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(
        a: wd.Memory[M, N, wd.f32], low: wd.Memory[M, P, wd.f32], high: wd.Memory[M, P, wd.f32], b: wd.Memory[M, wd.f32]
    ):  # fmt: skip
        row = wd.read(a)
        wd.write(wd.extract(row, {N: (P, 0)}), low)
        wd.write(wd.extract(row, {N: (P, N // 2)}), high)
        wd.write(wd.extract(row, {N: N - 1}), b)

    a = numbers((9, n), wd.f32)
    low, high, b = (np.zeros(shape, np.float32) for shape in ((9, n // 2), (9, n // 2), (9,)))
    agree(kernel, [a, low, high, b], target)
    kernel.compile(a, low, high, b, target=target).emulate(a, low, high, b)
    assert (np.concatenate([low, high], 1) == a).all() and (b == a[:, -1]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_picked_of_is_written_once(
    target: str, oracle: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quarters of a row, and then those of its double; in between a loop picks of the row."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[Q, M, P, wd.f32]):
        row = wd.read(a)
        for i in range(4):
            wd.write(wd.extract(row, {N: (P, i * 12)}), b[i, :, :])
        double = row + row
        for i in range(4):
            wd.write(wd.extract(double, {N: (P, 3 * i)}), b[4 + i, :, :])

        def step(i):
            wd.write(wd.extract(row, {N: (P, i)}), b[8 + i, :, :])
            return i + 1

        wd.while_loop(lambda i: i < 3, step, [wd.Register[wd.i32](0)])
        for i in range(2):
            wd.write(wd.extract(double, {N: (P, i)}), b[11 + i, :, :])

    a, b = numbers((6, 48), wd.f32), np.zeros((13, 6, 12), np.float32)
    agree(kernel, [a, b], target, oracle)
    compiled = kernel.compile(a, b, target=target)
    compiled.emulate(a, b)
    places = [(1, 12 * i) for i in range(4)] + [(2, 3 * i) for i in range(4)] + [(1, i) for i in range(3)]
    for got, (times, start) in zip(b, [*places, (2, 0), (2, 1)]):
        assert (got == times * a[:, start : start + 12]).all()

    def stores() -> int:
        made = kernel.compile(a, b, target=target).kernel_ir
        return sum(op.name == "store.shared" for op in made.body.walk())

    once = stores()
    monkeypatch.setattr(lower_pick, "_lies_in_scratch", lambda *_: False)
    each_time = stores()
    assert 0 < once <= each_time // 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_place_that_is_known_at_run_time(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave(ROWS, subs={BM: 16})
    def kernel(a: wd.Memory[M, N, dtype], place: wd.Scalar[wd.i32], b: wd.Memory[M, dtype]):
        wd.write(wd.extract(wd.read(a), {N: place}), b)

    for place in (0, 37, 64, -2):
        agree(kernel, [numbers((17, 64), dtype), np.int32(place), np.ones(17, dtype.numpy)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_part_of_a_row_and_of_its_columns(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Every second element from the third on, of rows and columns; the last ones lie beyond the end."""

    @wd.wave([], subs={P: 20, Q: 6})
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[Q, P, dtype]):
        wd.write(wd.extract(wd.read(a), {N: (P, 3, 2), M: (Q, 2)}), b)

    a, b = numbers((8, 40), dtype), np.ones((6, 20), dtype.numpy)
    agree(kernel, [a, b], target, oracle)
    compiled = kernel.compile(a, b, target=target)
    compiled.emulate(a, b)
    want = np.zeros((6, 20), dtype.numpy)
    part = a[2:8, 3:43:2]
    want[: part.shape[0], : part.shape[1]] = part
    assert (b == want).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shuffles_along_lanes(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """A dimension that lanes alone hold: one exchange between lanes per register, no shared memory."""
    lanes = 64 if target.startswith("gfx") else 32

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype]):
        wd.write(wd.shuffle(wd.read(a), wd.index(N) ^ 5, N), b)

    a, b = numbers((3, lanes), dtype), np.ones((3, lanes), dtype.numpy)
    compiled = agree(kernel, [a, b], target, oracle)
    compiled.emulate(a, b)
    assert (b == a[:, np.arange(lanes) ^ 5]).all()
    assert compiled.shared_bytes == 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shuffles_by_an_index_per_element(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Indices from memory, some of them outside, along a row that registers and lanes hold."""

    @wd.wave(ROWS, subs={BM: 16})
    def kernel(a: wd.Memory[M, N, dtype], i: wd.Memory[M, N, wd.i32], b: wd.Memory[M, N, dtype]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    index = np.random.default_rng(9).integers(-4, 70, (33, 64)).astype(np.int32)
    agree(kernel, [numbers((33, 64), dtype), index, np.ones((33, 64), dtype.numpy)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_the_lane_to_take_from_is_made_once(target: str, oracle: Callable[[str], str]) -> None:
    """Of an index by one mask, not bit by bit, and in front of the loop in which two values are taken from there."""
    lanes = 64 if target.startswith("gfx") else 32

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(P, 1)])
    def kernel(a: wd.Memory[M, N, wd.i32], i: wd.Memory[M, N, wd.i32], b: wd.Memory[M, N, wd.i32]):
        index = wd.read(i)

        @wd.iterate(P, init_args=[wd.read(a), wd.read(a) + 1])
        def loop(x, y):
            return wd.shuffle(x, index, N) + wd.tile_start(P), wd.shuffle(y, index, N) - 3

        wd.write(loop[0] - loop[1], b)

    index = np.random.default_rng(7).integers(-3, lanes + 3, (3, lanes)).astype(np.int32)
    arrays = [numbers((3, lanes), wd.i32), index, np.ones((3, lanes), np.int32)]
    compiled = agree(kernel, arrays, target, oracle, subs={P: 5})
    code = compiled.asm
    assert len(re.findall(r"\bv_and(?:_or)?_b32|\band\.b32", code)) <= 2  # the lane's own number, and the mask
    if target.startswith("gfx"):
        head = re.search(r"^(\.L\w+):.*; loop", code, re.MULTILINE)
        assert head is not None
        body = code[head.end() : code.index(f"s_cbranch_scc1          {head[1]}")]
        assert body.count("ds_bpermute_b32") == 2 and "v_lshl" not in body


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_index_for_a_whole_row(dtype: wd.DType, target: str) -> None:
    @wd.wave(ROWS, subs={BM: 16})
    def kernel(a: wd.Memory[M, N, dtype], i: wd.Memory[M, wd.i32], b: wd.Memory[M, N, dtype]):
        wd.write(wd.shuffle(wd.read(a), wd.read(i), N), b)

    index = np.random.default_rng(8).integers(-1, 25, 20).astype(np.int32)
    agree(kernel, [numbers((20, 24), dtype), index, np.ones((20, 24), dtype.numpy)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.f16], ids=str)
@pytest.mark.parametrize(("n", "count"), [(64, 8), (96, 32), (40, 4)])
def test_repeated_scales(n: int, count: int, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave(ROWS, subs={BM: 16})
    def kernel(a: wd.Memory[M, N, dtype], s: wd.Memory[M, N / count, dtype], b: wd.Memory[M, N, dtype]):
        wd.write(wd.read(a) + wd.repeat_interleave(wd.read(s), N), b)

    a, s, b = numbers((20, n), dtype), numbers((20, n // count), dtype), np.zeros((20, n), dtype.numpy)
    compiled = agree(kernel, [a, s, b], target, oracle)
    compiled.emulate(a, s, b)
    assert (b == a + np.repeat(s, count, axis=1)).all()


@pytest.mark.parametrize("target", TARGETS)
def test_scales_that_move_with_a_loop(target: str) -> None:
    """`N / 16` is cut where N is: over workgroups and trips, as its elements are."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 64)])
    def kernel(a: wd.Memory[M, N, wd.f32], s: wd.Memory[M / 4, N / 16, wd.f32], b: wd.Memory[M, wd.f32]):
        zero = wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[zero])
        def loop(acc: wd.Register[M, wd.f32]):
            scale = wd.repeat_interleave(wd.repeat_interleave(wd.read(s), N), M)
            return acc + wd.sum(wd.read(a) * scale, dim=N)

        wd.write(loop, b)

    a, s, b = numbers((64, 160), wd.f32), numbers((16, 10), wd.f32), np.zeros(64, np.float32)
    compiled = agree(kernel, [a, s, b], target)
    compiled.emulate(a, s, b)
    assert (b == (a * np.repeat(np.repeat(s, 4, 0), 16, 1)).sum(1)).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f16, wd.f32, wd.f64, wd.u8], ids=str)
def test_partners_change_places_without_shared_memory(
    dtype: wd.DType, target: str, oracle: Callable[[str], str]
) -> None:
    """Bits of the mask that registers hold, that lanes hold, and both; partners beyond the end give 0."""

    mask = 0

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype]):
        wd.write(wd.shuffle(wd.read(a), mask ^ wd.index(N), N), b)

    for n, masks in ((256, (1, 8, 21, 255)), (90, (1, 12))):
        for mask in masks:
            a, b = numbers((6, n), dtype), np.ones((6, n), dtype.numpy)
            compiled = agree(kernel, [a, b], target, oracle if mask == 21 else None)
            compiled.emulate(a, b)
            partner = np.arange(n) ^ mask
            assert (b == np.where(partner < n, a[:, np.minimum(partner, n - 1)], 0)).all()
            assert compiled.shared_bytes == 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("step", [2, 3, 4])
def test_every_second_of_a_tile_s_elements(step: int, target: str) -> None:
    """A workgroup's tile, or a trip's, has all of them: it was refused, for the dimension is spread."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, 24 * 16, 1)])
    def of_tiles(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N / step, wd.f16]):
        x = wd.read(a)
        first, last = (wd.extract(x, {N: (N / step, i, step)}) for i in (0, step - 1))
        wd.write(first * 2 + last, b)

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(N, 24)])
    def of_trips(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N / step, wd.f16]):
        @wd.iterate(N)
        def _():
            x = wd.read(a)
            first, last = (wd.extract(x, {N: (N / step, i, step)}) for i in (0, step - 1))
            wd.write(first * 2 + last, b)

    for m, n in ((8, 768), (5, 60 * step)):
        a = np.random.default_rng(0).integers(-9, 10, (m, n)).astype(np.float16)
        want = a[:, ::step] * 2 + a[:, step - 1 :: step]
        for kernel in (of_tiles, of_trips):
            b = np.zeros((m, n // step), np.float16)
            agree(kernel, [a, b], target)
            kernel.compile(a, b, target=target).emulate(a, b)
            np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("target", TARGETS)
def test_neighbours_that_a_lane_holds_are_taken_there(target: str) -> None:
    """Two numbers to a byte: each element went to shared memory and came back from there."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def bytes_of(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N / 2, wd.u8]):
        code = wd.cast(wd.read(a), wd.i32) & 15
        low, high = (wd.extract(code, {N: (N / 2, i, 2)}) for i in (0, 1))
        wd.write(wd.cast(low | high << 4, wd.u8), b)

    for m, n in ((8, 1024), (3, 70)):
        a = np.random.default_rng(0).integers(0, 16, (m, n)).astype(np.float16)
        compiled = agree(bytes_of, [a, np.zeros((m, n // 2), np.uint8)], target)
        assert n % 8 or not compiled.shared_bytes
