"""What drawn kernels were shrunk to when they were wrong, by what was wrong: text against evaluator."""

from __future__ import annotations

from collections.abc import Callable

import cut_for
import numpy as np
import packed
import pytest
from agree import agree
from generator.check import far
from wavedsl.ir.rounding import fma

import wavedsl as wd

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")

M, N, K, D, P, Q = wd.symbols("M N K D P Q")


def whole(shape: tuple[int, ...], dtype: wd.DType, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype.storage)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
@pytest.mark.parametrize("n, tile, p, q", [(1, 2, 1, 1), (4, 8, 2, 2), (16, 32, 4, 4)])
def test_reshape_to_a_tile_larger_than_the_dimension(n: int, tile: int, p: int, q: int, target: str) -> None:
    """The layout made by renaming bits covered the dimension, not its tile."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, tile, 1)], subs={P: p, Q: q})
    def kernel(x: wd.Memory[M, N, wd.i32], y: wd.Memory[M, N, wd.i32]):
        heads = wd.reshape(wd.permute(wd.read(x), M, N), M, P, Q)
        wd.write(wd.reshape(heads, M, N), y)

    agree(kernel, [whole((6, n), wd.i32), whole((6, n), wd.i32, 1)], target)


def test_fragments_of_two_products_share_registers() -> None:
    """The emulator took two matrix instructions that read one register of zeros for a race."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 32)])
    def kernel(
        a: wd.Memory[M, K, wd.GLOBAL, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    b = np.ascontiguousarray(whole((100, 32), wd.f16, 1)).T
    with cut_for.warpgroups():
        compiled = agree(kernel, [whole((64, 100), wd.f16), b, whole((64, 32), wd.f32, 2)], "sm_90a")
    assert "wgmma.mma_async" in compiled.asm


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_a_number_carried_through_a_loop_of_numbers(target: str) -> None:
    """A loop's pipeline computed ahead what depends on the trip before."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(K, 2)], subs={K: 7})
    def kernel(y: wd.Memory[M, wd.f32], by: wd.Scalar[wd.i32]):
        @wd.iterate(K, init_args=[wd.Register[wd.f32](1)])
        def loop(total):
            return total + wd.cast(by, wd.f32)

        wd.write(wd.Register[M, wd.f32](0) + loop, y)

    agree(kernel, [whole((5,), wd.f32), np.int32(3)], target)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_direct_copies_of_rows_far_apart(target: str) -> None:
    """The immediate of a direct copy to LDS was taken off M0, which became negative: rows lie further apart in memory
    than in LDS."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 16)])
    def kernel(a: wd.Memory[M, N, wd.SHARED, wd.f32], y: wd.Memory[M, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0)])
        def loop(total):
            return total + wd.sum(wd.read(a), dim=N)

        wd.write(loop, y)

    a = whole((7, 17), wd.f32)[2:4, 2:14]
    y, meant = whole((2,), wd.f32, 1), whole((2,), wd.f32, 1)
    kernel.compile(a, y, target=target).emulate(a, y)
    kernel.evaluate(a, meant)
    assert np.array_equal(y, meant)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_exchange_of_halves_of_words_in_boxes_of_their_own(target: str) -> None:
    """Packed elements of different register digits share a word, which an exchange of lanes took for one box's."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 48, 1), wd.WaveConstraint(N, 24),
         wd.TilingConstraint(K, 16)]
    )  # fmt: skip
    def kernel(
        a: wd.Memory[M, K, wd.f64], b: wd.Memory[N, K, wd.f64], x: wd.Memory[M, wd.i32], y: wd.Memory[M, N, wd.f16],
        c: wd.Memory[M, N, wd.f64],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f64](0), wd.read(x)])
        def loop(acc, total):
            wd.write(wd.broadcast(wd.Register[M, N, wd.f16](1) + wd.cast(total, wd.f16), M, N), y)
            left = wd.read(a)
            return wd.mma(left, wd.read(b), acc), total + wd.sum(wd.cast(left, wd.i32), dim=K)

        wd.write(loop[0], c)

    m, n, k = 40, 30, 33
    arguments = [whole((m, k), wd.f64), whole((n, k), wd.f64, 1), whole((m,), wd.i32), whole((m, n), wd.f16, 2)]
    agree(kernel, [*arguments, whole((m, n), wd.f64, 3)], target)


def test_a_sum_that_is_computed_on_between_products_of_bytes() -> None:
    """The cost of a warpgroup's product was counted from a layout that only names its operand's tile."""

    @wd.wave([wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 32)])
    def kernel(a: wd.Memory[M, K, wd.i8], b: wd.Memory[N, K, wd.i8], c: wd.Memory[M, N, wd.i32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.i32](0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), wd.clamp(acc, -9, 9))

        wd.write(loop, c)

    for m, n, k in ((1, 1, 1), (130, 20, 70)):
        agree(kernel, [whole((m, k), wd.i8), whole((n, k), wd.i8, 1), whole((m, n), wd.i32, 2)], "sm_90a")


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_a_write_that_one_wave_does_in_two_parts_of_a_loop(target: str) -> None:
    """The second part set the size word of the first part's descriptor, which nothing held any more."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 24)], dynamic=(K,)
    )
    def kernel(x: wd.Memory[M, wd.f32], y: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, start=wd.tile_start(M) - 3, stop=wd.tile_stop(M), init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc):
            wd.write(wd.Register[N, K, wd.f16](1), y)
            return acc + wd.read(x)

        wd.write(loop, c)

    agree(kernel, [whole((25,), wd.f32), whole((9, 30), wd.f16), whole((25, 9), wd.f32, 1)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_number_made_of_a_sum_is_carried_and_read_by(target: str) -> None:
    """It was kept per lane, though an address in the loop rests on its being the same in all lanes."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(K, 16)])
    def kernel(a: wd.Memory[P, wd.f16], b: wd.Memory[K, wd.i32], c: wd.Memory[M, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[wd.i32](0), wd.Register[M, wd.f32](0)])
        def loop(at, total):
            found = wd.read(a, mapping=wd.IndexMapping((), {P: at}))
            return wd.clamp(at + wd.sum(wd.read(b), dim=K), 0, 40), total + wd.cast(found, wd.f32)

        wd.write(loop[1], c)

    agree(kernel, [whole((41,), wd.f16), whole((65,), wd.i32, 1), np.zeros(4, np.float32)], target)


def test_an_atomic_whose_place_depends_on_another_tile() -> None:
    """The evaluator ended in an error of NumPy's."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)], subs={M: 8, N: 2})
    def kernel(bins: wd.Memory[P, wd.i32], flag: wd.Scalar[wd.i32]):
        place = wd.cond(wd.tile_start(M) >= 4, lambda: wd.Register[N, wd.i32](flag), lambda: wd.Register[N, wd.i32](1))
        wd.atomic_add(wd.Register[N, wd.i32](3), bins, mapping=wd.IndexMapping((N,), {P: place}))

    with pytest.raises(wd.ConstraintError, match="depends on the tile along M, which its mapping does not have"):
        agree(kernel, [np.zeros(5, np.int32), 2], "gfx942")


@pytest.mark.parametrize("copies", [True, False])
def test_a_sum_reads_what_a_product_reads_from_registers(copies: bool) -> None:
    """The sum read the registers of a product that had not been waited for (seed 78156)."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 32)],
        schedule=wd.Schedule(specialize=copies),
    )
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f16]
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0), wd.Register[M, wd.f16](0)])
        def loop(acc, total):
            x = wd.read(a)
            return wd.mma(x, wd.read(b), acc), total + wd.sum(wd.floor(x), dim=K)

        acc, total = loop
        wd.write(acc, c)
        wd.write(total, y)

    arrays = [whole((64, 96), wd.f16), whole((32, 96), wd.f16, 1), whole((64, 32), wd.f32), whole((64,), wd.f16)]
    compiled = agree(kernel, arrays, "sm_90a")
    assert "wgmma.mma_async" in compiled.asm


def test_fma_of_large_numbers_without_dimensions() -> None:
    """Rational numbers decided at places of an array, and a number has none (seed 78122)."""
    huge, one = np.asarray(1e300), np.asarray(1.0)
    assert fma(huge, one, -huge) == 0
    assert fma(np.asarray(1e200), np.asarray(1e200), one) == np.inf
    assert fma(huge[None], one[None], one[None]).shape == (1,)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_zeros_set_in_a_branch_that_is_not_taken(target: str) -> None:
    """A zero that fills a staged tile was set where a load was first waited for: inside one side of the `cond`."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 24)])
    def kernel(
        x: wd.Memory[M, wd.f32], a: wd.Memory[K, M, wd.bf16], b: wd.Memory[N, K, wd.bf16], y: wd.Memory[M, wd.f32],
        c: wd.Memory[M, N, wd.f32], flag: wd.Scalar[wd.i32],
    ):  # fmt: skip
        v = wd.read(x)
        both = wd.cond(flag > 1, lambda: wd.maximum(v, v), lambda: wd.minimum(v, v))

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)
        wd.write(both, y)

    for flag in (0, 2):
        a, b = whole((33, 1), wd.bf16).T, whole((1, 1), wd.bf16, 1)
        x, y, c = whole((33,), wd.f32), whole((33,), wd.f32, 2), whole((33, 1), wd.f32, 3)
        agree(kernel, [x, a, b, y, c, np.int32(flag)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.bf16, wd.f16], ids=str)
def test_a_choice_between_two_literals(dtype: wd.DType, target: str) -> None:
    """gfx950's pairs of atomics fill up with -0 on one side or the other: of two constants, neither of them inline."""

    @wd.wave([wd.WorkgroupConstraint(M, 20, 0)])
    def kernel(bins: wd.Memory[N, M, dtype], y: wd.Memory[M, N, dtype]):
        one = wd.Register[N, M, dtype](1)
        wd.atomic_add(wd.clamp(wd.floor(one), -60, 60), bins)
        wd.write(one, y)

    agree(kernel, [whole((130, 1), dtype), whole((1, 130), dtype, 1)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("waves", [3, 5, 6])
def test_copies_by_a_number_of_threads_that_is_no_power_of_two(waves: int, target: str) -> None:
    """Six rows further down a bit of the row changes that lies elsewhere in shared memory: the address was the sum."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 16 * waves, 0),
            wd.WaveConstraint(M, 16),
            wd.WorkgroupConstraint(N, 17, 1),
            wd.TilingConstraint(K, 16),
        ]
    )
    def kernel(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        wd.write(wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](1)), c)

    for n, k in ((2, 1), (17, 16)):
        agree(kernel, [whole((1, k), wd.f16), whole((n, k), wd.f16, 1), whole((1, n), wd.f32, 2)], target)


def test_a_product_overtakes_but_not_the_stores_of_its_operand() -> None:
    """sm_90a started the second product in front of the shared stores of what it multiplies."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 64)])
    def kernel(
        x: wd.Memory[M, D, wd.bf16],
        turned: wd.Memory[N, M, wd.GLOBAL, wd.bf16],
        scores: wd.Memory[M, N, wd.f32],
        y: wd.Memory[M, D, wd.f32],
    ):
        @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](0)])
        def loop(acc):
            ones = wd.Register[N, D, wd.bf16](1)
            first = wd.clamp(wd.mma(wd.read(x), ones), -60, 60)
            acc = wd.mma(wd.clamp(wd.read(turned), -60, 60), ones, acc)
            wd.write(first, scores)
            return acc

        wd.write(loop, y)

    arrays = [whole((20, 64), wd.bf16), whole((130, 20), wd.bf16, 1), whole((20, 130), wd.f32), whole((20, 64), wd.f32)]
    agree(kernel, arrays, "sm_90a")


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("dtype, sums", [(wd.i8, wd.i32), (wd.f8e4m3, wd.f32), (wd.f16, wd.f32)])
def test_a_tile_that_two_products_contract_along_different_dimensions(
    dtype: wd.DType, sums: wd.DType, used: bool
) -> None:
    """sm_90a read tiles of 8-bit elements with K across memory; and where the first product is needed by nobody, it
    looked for its addend among what was made for the second."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 32)])
    def kernel(
        x: wd.Memory[M, D, dtype],
        rows: wd.Memory[N, D, dtype],
        weights: wd.Memory[M, N, dtype],
        y: wd.Memory[M, D, sums],
        scores: wd.Memory[M, N, sums],
    ):
        @wd.iterate(N, init_args=[wd.Register[M, D, sums](0)])
        def loop(acc):
            tile = wd.read(rows)
            found = wd.mma(wd.read(x), tile, wd.Register[M, N, sums](2))
            if used:
                wd.write(found, scores)
            return wd.mma(wd.read(weights), tile, acc)

        wd.write(loop, y)

    m, n = (80, 70) if used else (64, 64)
    arrays = [whole((m, 32), dtype), whole((n, 32), dtype, 1), whole((m, n), dtype, 2)]
    agree(kernel, [*arrays, whole((m, 32), sums, 3), whole((m, n), sums, 4)], "sm_90a")


def test_a_loop_that_replaces_what_it_carries_by_a_product() -> None:
    """sm_90a: the addend is made in the trip, while the operand is made in the trip before."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
    def kernel(x: wd.Memory[M, K, wd.f16], y: wd.Memory[N, K, wd.f16], z: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc):
            return wd.mma(wd.read(x) * 2, wd.read(y), wd.Register[M, N, wd.f32](2))

        wd.write(loop, z)

    agree(kernel, [whole((64, 128), wd.f16), whole((64, 128), wd.f16, 1), whole((64, 64), wd.f32, 2)], "sm_90a")


@pytest.mark.parametrize("target", TARGETS)
def test_a_number_that_a_loop_counts_places_what_is_read(target: str) -> None:
    """A pass that looks for numbers that place tiles took what a loop gives, several values, for one."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 16)])
    def kernel(x: wd.Memory[M, N, wd.f32], table: wd.Memory[P, wd.f32], y: wd.Memory[M, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](1)])
        def loop(acc):
            def up(total, n):
                return total * 2, n + 1

            start = [wd.Register[M, wd.f32](1), wd.Register[wd.i32](0)]
            total, n = wd.while_loop(lambda total, n: n < 3, up, start)
            more = wd.read(table, mapping=wd.IndexMapping((), {P: n}))
            return acc + wd.sum(wd.read(x), dim=N) + total + more

        wd.write(loop, y)

    agree(kernel, [whole((20, 40), wd.f32), np.arange(9, dtype=np.float32), whole((20,), wd.f32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_read_whose_place_depends_on_another_tile(target: str) -> None:
    """The evaluator refused reads as it refuses writes: a loop's trips, and so what it carries, depend on the tile."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(K, 2)], subs={N: 3})
    def kernel(table: wd.Memory[P, wd.i32], rows: wd.Memory[K, wd.i32], y: wd.Memory[M, N, wd.i32]):
        start = [wd.Register[N, wd.i32](0), wd.Register[N, wd.i32](0)]

        @wd.iterate(K, stop=wd.tile_stop(M), init_args=start)
        def loop(place, total):
            found = wd.read(table, mapping=wd.IndexMapping((N,), {P: place}))
            return place + wd.sum(wd.read(rows), dim=K), total + found

        wd.write(wd.broadcast(loop[1], M, N), y)

    agree(kernel, [np.arange(9, 49, dtype=np.int32), np.ones(9, np.int32), np.zeros((9, 3), np.int32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_two_index_dimensions_of_unknown_extent(target: str) -> None:
    """Pairs of registers made of the first workgroup number took the second one's register for their upper half."""

    @wd.wave([wd.WorkgroupConstraint(P, 1, 0), wd.WorkgroupConstraint(Q, 1, 1)], dynamic=[P, Q])
    def kernel(x: wd.Memory[P, Q, N, wd.f32], w: wd.Memory[Q, N, wd.f32], y: wd.Memory[P, Q, N, wd.f32]):
        wd.write(wd.read(x) * wd.read(w), y)

    agree(kernel, [whole((2, 3, 49), wd.f32), whole((3, 49), wd.f32, 1), whole((2, 3, 49), wd.f32, 2)], target)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80"])
def test_whole_and_floating_ones_are_two_constants(target: str) -> None:
    """Seed 97386: for Python 1 is 1.0, so both had one register, which held the bits of the first."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0)])
    def ones(whole: wd.Memory[M, wd.u32], floats: wd.Memory[M, wd.f32]):
        wd.write(wd.Register[M, wd.u32](1), whole)
        wd.write(wd.Register[M, wd.f32](1), floats)

    whole, floats = np.zeros(3, np.uint32), np.zeros(3, np.float32)
    ones.compile(whole, floats, target=target).emulate(whole, floats)
    assert whole.tolist() == [1, 1, 1] and floats.tolist() == [1.0, 1.0, 1.0]


def test_a_zero_in_a_fragment_is_no_coordinate() -> None:
    """Seed 37644: what lies beyond the rows of an operand is 0, and a bulk store took the same register for a
    coordinate while the product was running, which PTX leaves undefined."""

    @wd.wave([wd.WorkgroupConstraint(M, 128, 0), wd.TilingConstraint(N, 32)])
    def kernel(y: wd.Memory[M, D, wd.f32], rows: wd.Memory[N, D, wd.bf16], scores: wd.Memory[M, N, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](0)])
        def loop(acc):
            tile = wd.read(rows)
            found = wd.mma(wd.Register[D, M, wd.bf16](1), tile)
            acc = wd.mma(wd.cast(found, wd.bf16), tile, acc)
            wd.write(found, scores)
            return acc

        wd.write(loop, y)

    rows = whole((4, 24), wd.bf16)[:, :16]
    compiled = agree(kernel, [whole((1, 16), wd.f32), rows, whole((1, 4), wd.f32)], "sm_90a")
    assert "wgmma.mma_async" in compiled.asm and "cp.async.bulk.tensor.2d.global" in compiled.asm


def test_an_operand_that_one_loop_would_hold_and_another_takes_from_shared_memory() -> None:
    """Seed 54475: queries were to lie in registers for the second loop; the first one's tiles lie where numbers say,
    and it takes them from shared memory. The read was a tile, and the second loop found no registers."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 32)])
    def kernel(
        q: wd.Memory[M, D, wd.bf16], k: wd.Memory[N, D, wd.bf16], larger: wd.Memory[P, Q, wd.bf16],
        y: wd.Memory[M, D, wd.f32], scores: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        queries = wd.read(q)

        @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](0)])
        def first(acc):
            wd.write(wd.mma(queries, wd.read(k)), scores)
            return wd.mma(wd.read(larger[3 : 3 + N, :M]), wd.read(k), acc)

        @wd.iterate(N, init_args=[first])
        def second(acc):
            found = wd.clamp(wd.mma(queries, wd.read(k)), -3, 3)
            return wd.mma(wd.cast(found, wd.bf16), wd.read(k), acc)

        wd.write(second, y)

    arrays = [whole((64, 64), wd.bf16), whole((64, 64), wd.bf16, 1), whole((67, 65), wd.bf16, 2)]
    compiled = agree(kernel, [*arrays, whole((64, 64), wd.f32, 3), whole((64, 64), wd.f32, 4)], "sm_90a")
    assert "wgmma.mma_async" in compiled.asm


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
def test_an_operand_is_not_held_while_the_other_is_exchanged(target: str, oracle: Callable[[str], str]) -> None:
    """Seed 300230: the only trip of a loop read 256 registers of an operand from shared memory, then exchanged the
    other one, over barriers that ptxas moves no read across: it spilled."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WaveConstraint(M, 32), wd.TilingConstraint(N, 32)])
    def kernel(
        q: wd.Memory[M, D, wd.f16], a: wd.Memory[M, N, wd.SHARED, wd.f32], b: wd.Memory[N, D / 2, wd.f32],
        c: wd.Memory[M, D, wd.f32], scores: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](1)])
        def loop(acc):
            wide = wd.repeat_interleave(wd.read(b), D)
            narrow = wd.cast(wd.read(q), wd.f32)
            wd.write(wd.mma(narrow, wide, wd.Register[M, N, wd.f32](2), precision="3xtf32"), scores)
            return wd.mma(wd.read(a), wide, acc)

        wd.write(loop, c)

    arrays = [whole((32, 20), wd.f16), whole((32, 32), wd.f32, 1), whole((32, 10), wd.f32, 2)]
    agree(kernel, [*arrays, whole((32, 20), wd.f32, 3), whole((32, 32), wd.f32, 4)], target, oracle)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_copying_threads_compute_only_what_places_their_tiles(target: str) -> None:
    """Seed 302149: the thread that copies operands computed what places every read of the kernel, also of those that
    other warps load for themselves; a while_loop among it is none of what such a thread runs."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0),
            wd.WaveConstraint(M, 64),
            wd.WorkgroupConstraint(N, 32, 1),
            wd.TilingConstraint(K, 32),
        ]
    )
    def kernel(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], table: wd.Memory[P, wd.f32],
        out: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        start = [wd.Register[wd.i32](1), wd.Register[wd.i32](0)]
        place, _ = wd.while_loop(lambda p, n: n < 3, lambda p, n: (p + 2, n + 1), start)

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0), wd.Register[wd.f32](0)])
        def loop(acc, numbers):
            number = wd.read(table, mapping=wd.IndexMapping((), {P: place}))
            return wd.mma(wd.read(a), wd.read(b), acc), numbers + number

        acc, numbers = loop
        wd.write(acc + numbers, out)

    arrays = [whole((100, 64), wd.bf16), whole((40, 64), wd.bf16, 1), whole((10,), wd.f32, 2)]
    agree(kernel, [*arrays, whole((100, 40), wd.f32, 3)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f16, wd.bf16, wd.f32, wd.f64], ids=str)
def test_nan_becomes_zero_in_integers_of_every_width(dtype: wd.DType, target: str) -> None:
    """Seed 340802 on an H200: `cvt` to 64 bits, and from f64, makes the smallest number of NaN; the emulator made 0."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(
        x: wd.Memory[N, dtype], wide: wd.Memory[N, wd.i64], unsigned: wd.Memory[N, wd.u64], word: wd.Memory[N, wd.i32],
        small: wd.Memory[N, wd.u8],
    ):  # fmt: skip
        number = wd.read(x)
        wd.write(wd.cast(number, wd.i64), wide)
        wd.write(wd.cast(number, wd.u64), unsigned)
        wd.write(wd.cast(number, wd.i32), word)
        wd.write(wd.cast(number, wd.u8), small)

    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 2.5, -2.5, 0, 300], dtype.storage)
    results = [np.full(8, 7, t.storage) for t in (wd.i64, wd.u64, wd.i32, wd.u8)]
    agree(kernel, [x, *results], target)


@pytest.mark.parametrize("dtype", [wd.u16, wd.i8, wd.bf16], ids=str)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_the_last_argument_is_shorter_than_a_word(target: str, dtype: wd.DType) -> None:
    """The block of arguments ended with it, and a scalar load reads the whole word."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(x: wd.Memory[M, wd.i32], y: wd.Memory[M, wd.i32], by: wd.Scalar[dtype]):
        wd.write(wd.read(x) + wd.cast(by, wd.i32), y)

    agree(kernel, [whole((5,), wd.i32), whole((5,), wd.i32, 1), dtype.storage.type(3)], target)


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
def test_a_product_of_two_rows(target: str) -> None:
    """The evaluator had no shape for a product that has no dimension left."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(a: wd.Memory[K, wd.f16], b: wd.Memory[K, wd.f16], y: wd.Memory[M, wd.f32]):
        wd.write(wd.broadcast(wd.mma(wd.read(a), wd.read(b)), M), y)

    agree(kernel, [whole((8,), wd.f16), whole((8,), wd.f16, 1), whole((5,), wd.f32)], target)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_conversions_and_results_of_atomics_do_not_fit_together(target: str) -> None:
    """Seed 400334: each of the two was compared with the chip's shared memory, and their sum by the verifier only."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 48, 1)])
    def kernel(x: wd.Memory[M, N, wd.i64], y: wd.Memory[N, M, wd.f64], z: wd.Memory[M, N, wd.i64]):
        old = wd.atomic_cas(wd.Register[M, N, wd.i64](5), wd.Register[M, N, wd.i64](1), x)
        wd.write(wd.broadcast(wd.Register[M, N, wd.f64](2) * 2, N, M), y)
        wd.write(old, z)

    arguments = [whole((1, 1), wd.i64), whole((1, 1), wd.f64), whole((1, 1), wd.i64)]
    with pytest.raises(wd.ConstraintError, match="through shared memory; a workgroup of"):
        kernel.compile(*arguments, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source, to", [(wd.f16, wd.bf16), (wd.bf16, wd.f16)], ids=str)
def test_halves_are_cut_towards_zero_to_the_other_kind(source: wd.DType, to: wd.DType, target: str) -> None:
    """As wide, so it was taken for exact, and rounded to nearest later."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(x: wd.Memory[M, source], y: wd.Memory[M, to]):
        wd.write(wd.cast(wd.read(x), to, rounding="toward_zero"), y)

    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        x = (rng.standard_normal(500) * 2.0 ** rng.integers(-30, 30, 500)).astype(source.storage)
    y = np.zeros(500, to.storage)
    agree(kernel, [x, y], target)
    kernel.compile(x, y, target=target).emulate(x, y)
    assert (abs(y.astype(np.float64)) <= abs(x.astype(np.float64))).all()
    assert (y.astype(np.float64) != x.astype(np.float64)).any()


def test_bytes_are_cut_towards_zero_to_the_other_kind() -> None:
    """8-bit floats of three digits to those of two."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(x: wd.Memory[M, wd.f8e4m3], y: wd.Memory[M, wd.f8e5m2]):
        wd.write(wd.cast(wd.read(x), wd.f8e5m2, rounding="toward_zero"), y)

    x = np.random.default_rng(0).standard_normal(200).astype(wd.f8e4m3.storage)
    agree(kernel, [x, np.zeros(200, wd.f8e5m2.storage)], "sm_90a")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
@pytest.mark.parametrize("rows", [1, 5])
def test_four_bits_that_came_byte_by_byte_become_bytes(rows: int, target: str) -> None:
    """Seed 470032: of four numbers whose two bytes are loaded apart, the second pair was looked for in the first's."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 8)])
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], x: wd.Memory[M, N, wd.u4],
        y: wd.Memory[M, N, wd.i8],
    ):  # fmt: skip
        wd.write(wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0)), c)
        wd.write(wd.cast(wd.cast(wd.read(x), wd.i32), wd.i8), y)

    x = packed.pack(np.arange(rows * 10).reshape(rows, 10) * 7 % 16, 4)
    arrays = [whole((rows, 8), wd.f16), whole((10, 8), wd.f16, 1), whole((rows, 10), wd.f32), x]
    agree(kernel, [*arrays, whole((rows, 10), wd.i8)], target)


@pytest.mark.parametrize("k", [1, 40])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
def test_a_loop_that_has_one_trip_at_most(k: int, target: str) -> None:
    """Seed 470026: its pipeline read the fragments of a second trip, for which nothing had been copied."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 32), wd.TilingConstraint(K, 16)], dynamic=[K]
    )
    def kernel(a: wd.Memory[M, K, wd.f32], b: wd.Memory[N, K, wd.f32], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, stop=wd.tile_stop(N), init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    agree(kernel, [whole((1, k), wd.f32), whole((1, k), wd.f32, 1), whole((1, 1), wd.f32)], target)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_bits_of_a_single_number(target: str) -> None:
    """Seed 472084: the evaluator's bits of a number without dimensions had one."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(x: wd.Memory[M, wd.u16], y: wd.Memory[M, wd.u16], by: wd.Scalar[wd.u16]):
        turned = wd.rotate_left(by * 14933, 31) ^ wd.bit_reverse(by)
        counted = wd.popcount(by) + 32 * wd.clz(by) + 1024 * wd.ctz(by)
        wd.write((wd.read(x) ^ turned) + wd.cast(counted, wd.u16), y)

    agree(kernel, [whole((5,), wd.u16), whole((5,), wd.u16, 1), np.uint16(12)], target)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_exact_functions_of_a_single_number(target: str) -> None:
    """Seed 527124: Python's integer of a number without dimensions has no type that the evaluator could ask for."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(y: wd.Memory[M, wd.i32], by: wd.Scalar[wd.i32], other: wd.Scalar[wd.i32]):
        found = wd.permute_bytes(by * 317938327, other, 0x4567) ^ wd.mulhi(by * 77777777, other)
        wd.write(wd.broadcast(found + wd.saturating_add(by, other), M), y)

    agree(kernel, [whole((5,), wd.i32), np.int32(12), np.int32(-7)], target)


@pytest.mark.parametrize("m", [205, 17])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx950"])
def test_sums_from_nothing_behind_trips_that_may_be_none(m: int, target: str) -> None:
    """Seed 520646: a loop is cut where a mask holds; of a workgroup whose first part has no trip the second was handed
    sums that nobody had written."""

    @wd.wave([wd.WorkgroupConstraint(M, 192, 0), wd.TilingConstraint(N, 16)])
    def kernel(b: wd.Memory[N, K, wd.bf16], seen: wd.Memory[M, N, wd.f32], c: wd.Memory[M, K, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, K, wd.f32](0)])
        def loop(acc):
            ones = wd.Register[M, N, wd.f32](1)
            wd.write(wd.where(wd.index(M) >= wd.index(N), ones, -5), seen)
            return wd.mma(wd.cast(ones, wd.bf16), wd.read(b), acc)

        wd.write(loop, c)

    agree(kernel, [whole((48, 32), wd.bf16), whole((m, 48), wd.f32), whole((m, 32), wd.f32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_arrays_with_rows_far_apart(target: str) -> None:
    """Seed 640047: whether 32-bit offsets reach a tile was asked of arrays of run-time strides that are read or written
    whole, not of those of which a slice is: what lay beyond 4 GiB was not written."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, 100, 1)], dynamic=[M])
    def kernel(x: wd.Memory[N, M, wd.f16], y: wd.Memory[K, M, wd.f16]):
        wd.write(wd.read(x), y[:N, :])

    x = np.ones((100, 9), np.float16)
    near, away = (far(np.zeros((104, 9), np.float16), (stride, 2)) for stride in (1 << 22, 1 << 26))
    agree(kernel, [x, near], target)
    with pytest.raises(wd.LaunchError, match="one tile of 100 x 4 lie up to"):
        kernel.compile(x, away, target=target).emulate(x, away)


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_of_rows_far_apart_that_a_launch_counts(target: str) -> None:
    """Seed 528219: nor was it asked where strides are known and the launch says how many rows there are: the row at
    4 GiB was read as zeros."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, 128, 1)], dynamic=[N])
    def kernel(x: wd.Memory[N, M, wd.i16], y: wd.Memory[N, M, wd.i16]):
        wd.write(wd.read(x), y)

    few, many = (far(whole((rows, 1), wd.i16), (1 << 26, 2)) for rows in (64, 65))
    y = np.zeros((64, 1), np.int16)
    compiled = kernel.compile(few, y, target=target)
    compiled.emulate(few, y)
    assert (y == few).all()
    with pytest.raises(wd.LaunchError, match="one tile of 128 x 4 lie up to 4294967296 bytes apart"):
        compiled.emulate(many, np.zeros((65, 1), np.int16))


@pytest.mark.parametrize("target", TARGETS)
def test_places_beyond_2_gib_are_not_before_an_array(target: str) -> None:
    """Seed 528451: a lane's second row lies 32 rows on; where that is 2 GiB and more, the bits were taken for a number
    below zero, such as a neighbour's place before the first element."""

    @wd.wave([wd.WorkgroupConstraint(M, 192, 0), wd.WaveConstraint(M, 64)])
    def kernel(x: wd.Memory[M, N, wd.f64], y: wd.Memory[M, N, wd.f64]):
        wd.write(wd.cumsum(wd.read(x), dim=N), y)

    x, y = whole((50, 24), wd.f64), far(np.zeros((50, 24)), ((1 << 26) + 48, 8))
    kernel.compile(x, y, target=target).emulate(x, y)
    assert (y == np.cumsum(x, 1)).all()


@pytest.mark.parametrize("target", TARGETS)
def test_constants_of_one_register_keep_their_order(target: str) -> None:
    """Seed 533110: zeros for a pair, whose upper half was another's by then, and zeros for that one, set early in other
    places: the pair's came last. Both are zero; the checker of places does not ask."""
    cut = [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 32)]
    one = wd.HardwareConstraint(waves_per_block=(1, 1, 1))

    @wd.wave([*cut, one], dynamic=[K], schedule=wd.Schedule(stages=2))
    def kernel(
        a: wd.Memory[P, K, wd.SHARED, wd.f16], rows: wd.Memory[M, wd.i64], b: wd.Memory[P, N, wd.f16],
        which: wd.Memory[K, wd.i32], sums: wd.Memory[M, wd.f64], c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[M, wd.f64](0.0)])
        def loop(acc, total):
            x = wd.read(a, mapping=wd.IndexMapping((M, K), {P: wd.read(rows)}))
            y = wd.read(b, mapping=wd.IndexMapping((N, K), {P: wd.read(which)}))
            return wd.mma(x, y, acc), total + wd.sum(wd.cast(x, wd.f64), dim=K)

        acc, total = loop
        wd.write(total, sums)
        wd.write(acc, c)

    m, n, p, k = 1, 1, 64, 23
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, p, m), rng.integers(0, p, k).astype(np.int32)
    given = [whole((p, k), wd.f16), numbers[0], whole((p, n), wd.f16, 1), numbers[1]]
    agree(kernel, [*given, np.zeros(m), np.zeros((m, n), np.float32)], target)
