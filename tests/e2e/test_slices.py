"""Parts of array arguments: slices in the kernel, `a[10:20, :]`, and slices of arrays that are passed to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wavedsl as wd

M, N, K, P, Q, R, H = wd.symbols("M N K P Q R H")
TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
TILES = [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 32, 1)]
SIZES = ((32, 64), (21, 40), (17, 33))
RNG = np.random.default_rng(3)


def numbers(*shape: int) -> np.ndarray:
    return RNG.integers(-8, 9, shape).astype(np.float16)


def agree(kernel: Any, arguments: list[Any], want: np.ndarray, target: str) -> wd.CompiledKernel:
    """Evaluator and emulated text both leave `want` in the last argument."""
    *inputs, out = arguments
    meant = out.copy()
    kernel.evaluate(*inputs, meant)
    np.testing.assert_array_equal(meant, want)
    compiled = kernel.compile(*inputs, out, target=target)
    compiled.emulate(*inputs, out)
    np.testing.assert_array_equal(out, want)
    return compiled


@pytest.mark.parametrize("target", TARGETS)
def test_indices_with_dimensions(target: str) -> None:
    """Rows and single elements by traced indices, also of two dimensions and along two at once; scatters; counts; an
    index outside of the array, and one beside an index dimension."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(H, 1, 1)])
    def kernel(
        ids: wd.Memory[M, wd.i32], pairs: wd.Memory[M, K, wd.i32], table: wd.Memory[P, H, N, wd.f16],
        rows: wd.Memory[M, H, N, wd.f16], some: wd.Memory[M, K, H, wd.f16], own: wd.Memory[M, H, wd.f16],
        back: wd.Memory[P, H, N, wd.f16], counts: wd.Memory[P, wd.i32],
    ):  # fmt: skip
        i = wd.read(ids)
        found = wd.read(table[i, :, :])
        wd.write(found, rows)
        wd.write(wd.read(table[wd.read(pairs), H, 3]), some)
        wd.write(wd.read(table[i, :, i % 5]), own)
        wd.write(found * 2.0, back[i, :, :])
        wd.atomic_add(1, counts[i])

    ids, pairs = np.array([3, 1, 0, 7, 2, -1], np.int32), RNG.integers(-1, 8, (6, 2)).astype(np.int32)
    table = numbers(8, 2, 10)
    there = np.concatenate([table, np.zeros_like(table[:1])])  # what index -1 names
    want = [there[ids], there[pairs][:, :, :, 3], there[ids, :, ids % 5], 0 * table, np.zeros(8)]
    want[3][ids[:5]], want[4][ids[:5]] = 2 * table[ids[:5]], 2
    for run in (kernel.evaluate, lambda *a: kernel.compile(*a, target=target).emulate(*a)):
        out = [np.zeros(w.shape, np.int32 if i == 4 else np.float16) for i, w in enumerate(want)]
        run(ids, pairs, table, *out)
        for got, w in zip(out, want):
            np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("target", TARGETS)
def test_read_of_the_length_of_a_dimension(target: str) -> None:
    @wd.wave(TILES)
    def kernel(a: wd.Memory[P, Q, wd.f16], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a[10 : 10 + M, 8 : 8 + N]), b)

    for m, n in SIZES:
        a = numbers(m + 20, n + 24)
        compiled = agree(kernel, [a, np.full((m, n), 9, np.float16)], a[10 : 10 + m, 8 : 8 + n], target)
        if target == "gfx942" and n % 4 == 0:  # addressed and vectorised like an array of its own
            assert "buffer_load_dwordx2" in compiled.asm and "buffer_load_ushort" not in compiled.asm


@pytest.mark.parametrize("target", TARGETS)
def test_elements_past_the_stop_are_outside(target: str) -> None:
    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a[10:20, 3:]), b)

    for m, n in SIZES:
        a, want = numbers(m, n), np.zeros((m, n), np.float16)
        part = a[10:20, 3:]
        want[: part.shape[0], : part.shape[1]] = part
        agree(kernel, [a, np.full((m, n), 9, np.float16)], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_write_touches_nothing_else(target: str) -> None:
    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, wd.f16], b: wd.Memory[P, Q, wd.f16]):
        wd.write(wd.read(a), b[4 : 4 + M, 16 : 16 + N])

    for m, n in SIZES:
        a, b = numbers(m, n), np.full((m + 10, n + 20), 5, np.float16)
        want = b.copy()
        want[4 : 4 + m, 16 : 16 + n] = a
        agree(kernel, [a, b], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_bounds_known_at_run_time_and_from_the_end(target: str) -> None:
    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, wd.f16], s: wd.Scalar[wd.i32], e: wd.Scalar[wd.i32], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a[s:e, :]) + wd.read(a[-4:, ...]), b)

    for m, n in SIZES:
        a, want = numbers(m, n), np.zeros((m, n), np.float16)
        want[:9] = a[3:12]
        want[:4] += a[-4:]
        agree(kernel, [a, np.int32(3), np.int32(12), np.full((m, n), 9, np.float16)], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_one_row_and_the_next_batch(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(H, 1, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def kernel(a: wd.Memory[P, M, N, wd.f16], b: wd.Memory[H, N, wd.f16], c: wd.Memory[H, N, wd.f16]):
        wd.write(wd.read(a[H, 3, :]) + wd.read(b[1:, :]), c)

    a, b = numbers(4, 5, 40), numbers(4, 40)
    want = a[:, 3].copy()
    want[:3] += b[1:]
    agree(kernel, [a, b, np.zeros((4, 40), np.float16)], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_one_row_counted_from_the_end(target: str) -> None:
    """`a[-1, :]` was refused; `a[N - 2, :]` was taken for places that move with N, of which a place is the extent's."""

    @wd.wave([wd.WorkgroupConstraint(N, 32, 0)])
    def kernel(a: wd.Memory[M, N, wd.f16], b: wd.Memory[N, wd.f16], c: wd.Memory[P, N, wd.f16]):
        wd.write(wd.read(a[-1, :]) + wd.read(a[M - 2, :]), b)
        wd.write(wd.read(a[N - 38, :]), c[-2, :])

    a = numbers(5, 40)
    kernel.evaluate(a, b := np.zeros(40, np.float16), np.zeros((3, 40), np.float16))
    np.testing.assert_array_equal(b, a[4] + a[3])
    want = np.zeros((3, 40), np.float16)
    want[1] = a[2]
    agree(kernel, [a, np.zeros(40, np.float16), np.zeros((3, 40), np.float16)], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_counted_from_the_end_of_an_index_dimension(target: str) -> None:
    """`a[-1, :]` gave the row in front of the workgroup's own, and `a[-2:, :]` one at twice its place."""

    @wd.wave([wd.WorkgroupConstraint(H, 1, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(a: wd.Memory[H, N, wd.f16], b: wd.Memory[H, N, wd.f16]):
        wd.write(wd.read(a[-1, :]) + wd.read(a[-2:, :]) + wd.read(a[H - 1, :]), b)

    a = numbers(4, 40)
    want = a[-1] + np.zeros_like(a)
    want[:2] += a[-2:]
    want[1:] += a[:-1]
    agree(kernel, [a, np.zeros((4, 40), np.float16)], want, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("start", [(5, 8, 16), (0, 2, 3)], ids=["aligned", "odd"])
@pytest.mark.parametrize("space", [wd.SHARED, wd.GLOBAL], ids=str)
def test_product_of_parts(target: str, start: tuple[int, int, int], space: Any, oracle: Callable[[str], str]) -> None:
    """Staged with the vectors that the start allows."""
    x, y, z = start

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0),
            wd.WorkgroupConstraint(N, 64, 1),
            wd.TilingConstraint(K, 32),
            wd.WaveConstraint(M, 32),
            wd.WaveConstraint(N, 32),
        ]
    )
    def kernel(a: wd.Memory[P, Q, space, wd.f16], b: wd.Memory[R, Q, space, wd.f16], c: wd.Memory[M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a[x : x + M, y : y + K]), wd.read(b[:N, z : z + K]), acc)

        wd.write(loop, c)

    for m, n, k in ((64, 64, 64), (70, 50, 72)):
        a, b, c = numbers(m + 9, k + 24), numbers(n + 3, k + 24), np.zeros((m, n), np.float32)
        compiled = kernel.compile(a, b, c, target=target, subs={K: k})
        compiled.emulate(a, b, c)
        want = a[x : x + m, y : y + k].astype(np.float32) @ b[:n, z : z + k].astype(np.float32).T
        np.testing.assert_array_equal(c, want)
        if target.startswith("gfx"):  # a lane's own words are loaded four at a time from any on
            whole = start == (5, 8, 16) or space is wd.GLOBAL
            assert ("buffer_load_dwordx4" in compiled.asm) is whole


@pytest.mark.parametrize("target", TARGETS)
def test_slices_of_arrays_as_arguments(target: str) -> None:
    """Their base, strides and bounds are their own: nothing around them is read or written (emulator)."""

    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a) + wd.read(a[1:, :]), b)

    for rows, columns in ((slice(3, 24), slice(8, 48)), (slice(1, 18), slice(5, 38))):
        a, b = numbers(40, 64)[rows, columns], np.full((40, 64), 7, np.float16)
        want = a.copy()
        want[:-1] += a[1:]
        agree(kernel, [a, b[rows, columns]], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_run_time_start_stops_at_the_values_own_end(target: str) -> None:
    """Rows of a last tile that the value does not have are not written, though the array has room for them."""

    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, wd.f16], s: wd.Scalar[wd.i32], b: wd.Memory[P, N, wd.f16]):
        wd.write(wd.read(a), b, mapping=wd.IndexMapping((M, N), {P: wd.index(M) + s}))

    a, b = numbers(21, 33), np.full((50, 33), 5, np.float16)
    want = b.copy()
    want[4:25] = a
    agree(kernel, [a, np.int32(4), b], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_start_that_is_computed_twice(target: str) -> None:
    """`a[at + 1 : at + 1 + M]` had the dimension of the array: its starts are two values, computed alike."""

    @wd.wave(TILES)
    def kernel(a: wd.Memory[P, Q, wd.f16], at: wd.Scalar[wd.i32], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a[at * 2 + 1 : at * 2 + 1 + M, at % 4 : at % 4 + N]), b)

    for m, n in SIZES:
        a, b = numbers(m + 9, n + 9), np.zeros((m, n), np.float16)
        agree(kernel, [a, np.int32(3), b], a[7 : 7 + m, 3 : 3 + n], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", [None, [M]])
def test_a_write_of_every_trip_waits_for_its_place(target: str, dynamic: list[Any] | None) -> None:
    """Where the number that places a write is made in the loop, nothing said that it comes first: a KeyError."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(K, 2)])
    def moved(a: wd.Memory[K, M, wd.i32], b: wd.Memory[P, Q, wd.i32]):
        @wd.iterate(K, init_args=[])
        def loop():
            wd.write(wd.read(a), b[:K, 3 : 3 + M])

    for rows in (1, 3, 8):
        a = RNG.integers(-8, 9, (rows, 37)).astype(np.int32)
        b, want = np.full((2, rows + 1, 44), 77, np.int32)
        want[:rows, 3:40] = a
        moved.compile(a, b, target=target, dynamic=dynamic).emulate(a, b)
        np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("target", TARGETS)
def test_steps_of_a_dimension_that_has_them(target: str) -> None:
    """`a[::2]` was refused, with a hint at a mapping that named no dimension."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def turned(a: wd.Memory[M, 2 * N, wd.f16], b: wd.Memory[3 * M, 2 * N, wd.f16]):
        even, odd = wd.read(a[:, ::2]), wd.read(a[:, 1::2])
        wd.write(even - odd, b[2::3, ::2])
        wd.write(even + odd, b[2::3, 1::2])

    for m, n in ((16, 64), (9, 21)):
        a, b = numbers(m, 2 * n), np.full((3 * m, 2 * n), 5, np.float16)
        want = b.copy()
        want[2::3, ::2], want[2::3, 1::2] = a[:, ::2] - a[:, 1::2], a[:, ::2] + a[:, 1::2]
        agree(turned, [a, b], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_steps_of_a_part_have_the_name_of_a_smaller_one(target: str) -> None:
    """Every other one of N / 2 elements is N / 4 of them, and lies where a value of them does: it was refused."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def turned(a: wd.Memory[M, N / 2, wd.f16], b: wd.Memory[M, N / 2, wd.f16]):
        even, odd = wd.read(a[:, ::2]), wd.read(a[:, 1::2])
        wd.write(even - odd, b[:, 1::2])
        wd.write(even + odd, b[:, ::2])

    for m, n in ((16, 64), (9, 84)):
        a = numbers(m, n // 2)
        want = np.empty_like(a)
        want[:, 1::2], want[:, ::2] = a[:, ::2] - a[:, 1::2], a[:, ::2] + a[:, 1::2]
        agree(turned, [a, np.zeros_like(a)], want, target)


@pytest.mark.parametrize(
    ("subscript", "message"),
    [
        (lambda a: a[::2, :], "a step of 2 along M"),
        (lambda a: a[::-1, :], "a step of -1 along M"),
        (lambda a: a[1:, 1:, 1:], "has 2 dimensions"),
        (lambda a: a[1:][1:], "cannot be indexed again"),
        (lambda a: a["x", :], "is no place along M"),
        (lambda a: a[wd.index(M) :, :], "has dimensions M"),
    ],
    ids=["step", "backwards", "too-many", "again", "string", "dimensions"],
)
def test_subscripts_that_are_refused(subscript: Callable[[Any], Any], message: str) -> None:
    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(subscript(a)), b)

    with pytest.raises(wd.TraceError, match=message) as caught:
        kernel.trace()
    assert caught.value.location is not None


@pytest.mark.parametrize("target", TARGETS)
def test_a_slice_from_a_traced_place_has_its_length_s_name(target: str) -> None:
    """In a loop over tiles, a tile under a second name: pairs of its elements."""

    @wd.wave([wd.TilingConstraint(M, 16), wd.WorkgroupConstraint(N, 32, 0)], subs={P: 16})
    def kernel(a: wd.Memory[M, wd.f16], x: wd.Memory[M, N, wd.f16], out: wd.Memory[M, N, wd.f16]):
        @wd.iterate(M)
        def tiles():
            first = wd.tile_start(M)
            below = wd.index(M) >= first + wd.index(P)
            near = wd.where(below, wd.read(a[first : first + P]), 0.0)
            wd.write(wd.sum(near, dim=P) + wd.read(x), out)

    a, x = numbers(40), numbers(40, 33)
    sums = np.concatenate([np.cumsum(a[i : i + 16]) for i in range(0, 40, 16)])
    agree(kernel, [a, x, np.full((40, 33), 9, np.float16)], (sums[:, None] + x).astype(np.float16), target)


@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_a_first_part_is_left_alone(target: str) -> None:
    """The last tile of `c[:, :N]` once ended where the array does: it read what follows, and wrote there."""

    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, 2 * N, wd.f16], c: wd.Memory[M, 2 * N, wd.f16]):
        wd.write(wd.read(a[:, :N]) + 1.0, c[:, :N])

    for m, n in ((21, 40), (17, 33)):
        a, before = numbers(m, 2 * n), np.full((m, 2 * n), 9, np.float16)
        agree(kernel, [a, before], np.concatenate([a[:, :n] + 1, before[:, n:]], axis=1), target)


@pytest.mark.parametrize("target", TARGETS)
def test_halves_of_rows(target: str) -> None:
    """`a[:, N:]` of 2 N has the dimension N. Extents that arrays give are known to the compiler as those in `subs` are:
    a half is addressed and vectorised like an array of its own."""

    @wd.wave(TILES)
    def kernel(a: wd.Memory[M, 2 * N, wd.f16], b: wd.Memory[M, N, wd.f16], c: wd.Memory[M, 2 * N, wd.f16]):
        gate, up = wd.read(a[:, :N]), wd.read(a[:, N:])
        wd.write(up * wd.read(b), c[:, :N])
        wd.write(gate, c[:, N:])

    for m, n in ((20, 72), (17, 33)):
        a, b = numbers(m, 2 * n), numbers(m, n)
        want = np.concatenate([a[:, n:] * b, a[:, :n]], axis=1)
        compiled = agree(kernel, [a, b, np.full((m, 2 * n), 9, np.float16)], want, target)
        if target.startswith("gfx") and n == 72:
            assert "ushort" not in compiled.asm and "store_short" not in compiled.asm
        found = kernel.compile(target=target, subs={M: m, N: n})
        assert found.resources.instructions == compiled.resources.instructions


@pytest.mark.parametrize("target", TARGETS)
def test_every_second_of_a_part(target: str) -> None:
    """`a[:, s : s + 2 * P : 2]` has the dimension P, which was refused: the part of a head that positions turn."""

    @wd.wave(TILES, subs={P: 5})
    def kernel(a: wd.Memory[M, N, wd.f16], first: wd.Scalar[wd.i32], b: wd.Memory[M, N, wd.f16]):
        even, odd = wd.read(a[:, 0 : 2 * P : 2]), wd.read(a[:, 1 : 2 * P : 2])
        late = wd.read(a[:, first : first + 3 * P : 3])
        wd.write(odd + late, b[:, 0 : 2 * P : 2])
        wd.write(even, b[:, 1 : 2 * P : 2])

    for m, n in ((20, 72), (17, 33)):
        a, want = numbers(m, n), np.full((m, n), 9, np.float16)
        want[:, 1:10:2], want[:, 0:10:2] = a[:, 0:10:2], a[:, 1:10:2] + a[:, 4:19:3]
        agree(kernel, [a, np.int32(4), np.full((m, n), 9, np.float16)], want, target)


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_multiples(target: str) -> None:
    """`a[:, 2 * N :]` of 4 N has the dimension 2 N as the pairs' parts `a[:, ::2]` have: one may be written where the
    other was read. It had the dimension 4 N."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(a: wd.Memory[M, 4 * N, wd.f16], b: wd.Memory[M, 4 * N, wd.f16]):
        wd.write(wd.read(a[:, ::2]), b[:, : 2 * N])
        wd.write(wd.read(a[:, 1::2]) + wd.read(a[:, N : 3 * N]), b[:, 2 * N :])

    for m, n in ((20, 16), (17, 9)):
        a = numbers(m, 4 * n)
        want = np.concatenate([a[:, ::2], a[:, 1::2] + a[:, n : 3 * n]], 1)
        agree(kernel, [a, np.zeros_like(a)], want, target)


KEYS = [wd.WorkgroupConstraint(M, 64, 0), wd.WaveConstraint(M, 32), wd.TilingConstraint(N, 16)]
"""Waves share rows, so that operands go through shared memory; every chip has a product of 16 x 16 x 16."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("by", ["constant", "argument", "read in front", "read inside", "written"])
def test_a_part_that_a_loop_does_not_change_is_copied_once(target: str, by: str) -> None:
    """Whatever says where it begins, so long as the loop does not: attention's queries of one sequence among others."""
    q, k, out = numbers(90, 40), numbers(64, 24), np.zeros((64, 64), np.float32)
    starts, flag = np.array([3, 1, 0, 5], np.int32), np.int32(3)

    @wd.wave(KEYS)
    def kernel(
        q: wd.Memory[P, Q, wd.SHARED, wd.f16], k: wd.Memory[N, K, wd.SHARED, wd.f16], starts: wd.Memory[H, wd.i32],
        start: wd.Scalar[wd.i32], out: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        first = wd.read(starts[0])

        @wd.iterate(N)
        def over(*_):
            number = wd.tile_start(N) // 16
            at = {"constant": 3, "argument": start, "read in front": first, "written": 3}.get(by)
            at = wd.read(starts[number]) if at is None else at
            x = wd.read(q[at : at + M, 8 : 8 + K])
            wd.write(wd.mma(x, wd.read(k)), out)
            if by == "written":
                wd.write(x, q[at : at + M, 8 : 8 + K])

    want = np.empty((64, 64), np.float32)
    for i in range(4):
        at = int(starts[i]) if by == "read inside" else 3
        keys = slice(16 * i, 16 * i + 16)
        want[:, keys] = q[at : at + 64, 8:32].astype(np.float32) @ k[keys].astype(np.float32).T
    compiled = agree(kernel, [q, k, starts, flag, out], want, target)
    slots = {b.name: b.slots for b in compiled.decisions.buffers}
    assert (slots["q"] == 1) == (by not in ("read inside", "written"))
