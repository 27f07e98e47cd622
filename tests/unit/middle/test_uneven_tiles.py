"""Tiles of different length: which loops have them, that every tile is taken once, longest first, and that shares are
even."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import example_files
import numpy as np
import pytest
from wavedsl.codegen.ptx import target as ptx_target
from wavedsl.ir.grid import uneven_tiles
from wavedsl.ir.grid.tile_order import TileOrder, tile_numbers
from wavedsl.ir.grid.uneven_tiles import Uneven, Work, best_dealing, dealt, largest_share, longest_last
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_eval import evaluate
from wavedsl.ir.kernel.kernel_ir import I32, Kernel, Param
from wavedsl.ir.kernel.kernel_ir import Region as Body

import wavedsl as wd

attention = example_files.load("attention")
backward = example_files.load("attention_backward")

THREADS = 1024
"""At once: each stands for a workgroup."""

M, N, BM, BN = wd.symbols("M N BM BN")


def made(params: int = 0) -> tuple[Kernel, Builder]:
    names = [Param(f"n{i}", "scalar", wd.i32, 4 * i, 4) for i in range(params)]
    kernel = Kernel("numbers", "sm_90a", names, Body(), 32, THREADS // 32)
    kernel.grid = (-1, 1, 1)
    return kernel, Builder(kernel, ptx_target.target("sm_90a"))


def expected(counts: tuple[int, int, int], order: Uneven) -> Iterator[tuple[int, int, int]]:
    """Block by block of the other axes, length by length."""
    lengths, *rest = counts
    others = list(itertools.product(range(rest[1]), range(rest[0])))
    size = order.together or len(others)
    for at in range(0, len(others), size):
        for rank in range(lengths):
            for outer, across in others[at : at + size]:
                yield (lengths - 1 - rank if order.last else rank), across, outer


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("together", [None, 1, 4, 5])
def test_every_tile_is_taken_once_and_longest_first(together: int | None, last: bool, known: bool) -> None:
    counts, order = (7, 4, 3), Uneven(last, together)
    kernel, b = made(3)
    given = list(counts) if known else [b.param(i, I32, lo=1) for i in range(3)]
    numbers = tile_numbers(b, TileOrder(counts, 1, 132, uneven=order), b.wgid(0), given)
    b.finish()
    values = evaluate(kernel, dict(enumerate(counts)), (np.arange(THREADS) % 84, 0, 0))
    assert list(zip(*(values[x][:84] for x in numbers))) == list(expected(counts, order))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(("workgroups", "total"), [(132, 500), (132, 528), (10, 35), (7, 7), (9, 4)])
def test_workgroups_take_turns_forth_and_back(workgroups: int, total: int, back: bool) -> None:
    taken = []
    for round_ in range(-(-total // workgroups)):
        kernel, b = made(1)
        number = b.add(b.wgid(0), round_ * workgroups)
        found = dealt(b, number, b.wgid(0), b.param(0, I32, lo=1), total, back)
        b.finish()
        here = min(workgroups, total - round_ * workgroups)
        values = evaluate(kernel, {0: workgroups}, (np.arange(THREADS) % here, 0, 0))
        taken.append(values[found][:here])
    assert sorted(np.concatenate(taken)) == list(range(total))
    for round_, numbers in enumerate(taken):
        backwards = round_ % 2 != back and len(numbers) == workgroups
        assert list(numbers) == sorted(numbers, reverse=bool(backwards))


@pytest.mark.parametrize(
    ("lengths", "others", "workgroups"), [(16, 128, 132), (16, 64, 132), (128, 16, 132), (5, 7, 4)], ids=str
)
def test_shares_are_counted_and_even(lengths: int, others: int, workgroups: int) -> None:
    """By hand, tile by tile; natural order leaves one workgroup far more than the mean."""

    def largest(order: list[int], turned: bool, back: bool = False) -> float:
        shares = [0] * workgroups
        for i, tile in enumerate(order):
            round_, own = divmod(i, workgroups)
            whole = (round_ + 1) * workgroups <= len(order)
            shares[workgroups - 1 - own if turned and round_ % 2 != back and whole else own] += tile
        return max(shares) / lengths

    for together in (others, max(1, others // 3)):
        blocks = [min(together, others - at) for at in range(0, others, together)]
        order = [length for size in blocks for length in range(lengths, 0, -1) for _ in range(size)]
        for back in (False, True):
            found = largest_share(lengths, others, workgroups, together, back)
            assert found == pytest.approx(largest(order, True, back))
    mean = (lengths + 1) / 2 * others / workgroups
    natural = [length for _ in range(others) for length in range(1, lengths + 1)]
    if workgroups == 132:
        assert largest_share(lengths, others, workgroups, others) < 1.05 * mean < largest(natural, False)


def test_what_goes_together_is_weighed() -> None:
    """Where memory is free all others go together; where their operands fill L2 at once, as many as it holds."""
    work = Work(clocks=1e4, bytes=1 << 20, l2=50 << 20, rate=1e9)
    assert best_dealing(128, 16, 132, work)[0] is None
    slow = replace(work, clocks=1.0, rate=1.0)
    fitting, _ = best_dealing(16, 128, 132, slow)
    assert fitting is not None and fitting <= 25
    left = None, False
    assert best_dealing(16, 1, 132, slow) == left == best_dealing(16, 128, 132, replace(work, rate=0))
    assert best_dealing(1 << 10, 1 << 10, 132, slow) == left  # even enough, and too many to count


EVEN = [
    *((8 << i, 256 >> i) for i in range(4)),  # head size 64, tiles of 256 queries
    *zip((11, 22, 43, 86), (256, 128, 64, 32)),  # of 192
    *((16 << i, 128 >> i) for i in range(4)),  # head size 128
    *((16 << i, 64 >> i) for i in range(4)),  # 256
]
"""Tiles along the queries and other tiles of causal attention of 2048 to 16384 keys, 16384 in all."""


@pytest.mark.parametrize(("lengths", "others"), EVEN, ids=str)
def test_shares_of_causal_attention_differ_by_a_hundredth(lengths: int, others: int) -> None:
    """Who has most has at most 1 % more than the mean; up to 5 % where the second round always goes back."""
    found, back = best_dealing(lengths, others, 132, Work(clocks=1e9, bytes=1, l2=50 << 20, rate=1e3))
    mean = (lengths + 1) / 2 * others / 132
    assert largest_share(lengths, others, 132, found or others, back) <= 1.01 * mean


def falling(at):
    return M - wd.tile_start(M)


def either(at):
    return wd.minimum(wd.tile_stop(M), N)


def product(at):
    return wd.tile_stop(M) * 2


@pytest.mark.parametrize(("stop", "wanted"), [(falling, False), (either, True), (product, None)])
def test_which_tiles_are_longest(stop, wanted) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(N, BN)], subs={BM: 16, BN: 16})
    def sums(a: wd.Memory[M, N, wd.f32], out: wd.Memory[M, wd.f32]):
        total = wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[total], stop=stop(None))
        def over(total):
            return total + wd.sum(wd.read(a), dim=N)

        wd.write(over, out)

    assert longest_last(sums.trace(), "M") == wanted
    assert longest_last(sums.trace(), "N") is None


def test_of_attention() -> None:
    kernel = attention.attention_kernel
    assert longest_last(kernel(attention.Variant(wd.bf16, causal=True)).trace(), "M") is True
    assert longest_last(kernel(attention.Variant(wd.bf16)).trace(), "M") is None
    assert longest_last(kernel(attention.Variant(wd.bf16, causal=True, window=64)).trace(), "M") is None
    assert longest_last(backward.keys_kernel(attention.Variant(wd.bf16, causal=True)).trace(), "N") is False


@pytest.mark.parametrize(
    ("together", "back", "tile", "waves"),
    [
        pytest.param(9, True, (64, 64), 1, marks=pytest.mark.slow),
        *(pytest.param(None, False, *case, marks=pytest.mark.exhaustive) for case in (((64, 64), 1), ((128, 32), 2))),
    ],
)
def test_causal_attention_in_three_rounds(together, back, tile, waves, monkeypatch) -> None:
    monkeypatch.setattr(uneven_tiles, "best_dealing", lambda *_: (together, back))
    variant = attention.Variant(wd.bf16, causal=True)
    heads = 70 if tile[0] == 64 else 140
    given = attention.arguments_of(variant, {"b": 1, "h": heads, "m": 256, "n": 200, "d": 32, "e": 32}, 3)
    compiled = attention.attention_kernel(variant, tile=tile, waves=waves).compile(**given, target="sm_90a")
    assert "longest first" in compiled.kernel_ir.notes["lowering"].order.describe()
    assert not compiled.emulate(**given).findings
    assert attention.check(variant, given) == 0
