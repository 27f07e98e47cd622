"""The numbering of workgroups over dies: a permutation of any grid, and less traffic where it is chosen."""

from __future__ import annotations

import numpy as np
import products
import pytest
from products import BF16, F16, TILE, K, M, N
from wavedsl.codegen.amdgcn import get_target
from wavedsl.ir.grid.die_order import Numbering, Operand, choose_numbering, dealt, dealt_number, tile_of, traffic
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_eval import evaluate
from wavedsl.ir.kernel.kernel_ir import I32, Kernel, Param
from wavedsl.ir.kernel.kernel_ir import Region as Body

import wavedsl as wd


@pytest.mark.parametrize("dies", [1, 8])
@pytest.mark.parametrize("counts", [(16, 16), (11, 3), (1, 7), (7, 1), (2, 3), (40, 13), (1, 1)], ids=str)
def test_every_tile_is_taken_once(counts: tuple[int, int], dies: int) -> None:
    for group in (1, 4, 8, 32):
        tiles = [tile_of(Numbering(group, dies), n, counts) for n in range(counts[0] * counts[1])]
        assert len(set(tiles)) == counts[0] * counts[1]
        assert all(0 <= a < counts[0] and 0 <= c < counts[1] for a, c in tiles)


@pytest.mark.parametrize("total", [1, 5, 8, 61, 64, 1000])
def test_a_die_takes_neighbours(total: int) -> None:
    """Runs follow one another, and differ by one tile at most."""
    runs = [sorted(dealt_number(n, total, 8) for n in range(d, total, 8)) for d in range(8)]
    assert [n for run in runs for n in run] == list(range(total))
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


@pytest.mark.parametrize("total", [8, 61, 64, 1000])
@pytest.mark.parametrize("known", [True, False])
def test_emitted_numbers_are_the_models(total: int, known: bool) -> None:
    """The kernel IR of `dealt`, run for every workgroup at once, static or with the total known at run time."""
    kernel = Kernel("numbers", "gfx942", [Param("n", "scalar", wd.i32, 0, 4)], Body(), 64, 16)
    kernel.grid = (-1, 1, 1)
    b = Builder(kernel, get_target("gfx942"))
    found = dealt(b, b.wgid(0), total if known else b.param(0, I32, lo=0), 8)
    b.finish()
    values = evaluate(kernel, {0: total}, (np.arange(1024) % total, 0, 0))
    assert np.array_equal(values[found], [dealt_number(n % total, total, 8) for n in range(1024)])


def test_traffic_of_a_small_grid() -> None:
    """Counted by hand: 2 dies of 2 units, 4 x 2 tiles; A depends on the first axis, B on the second."""
    operands = [Operand(10, (0,)), Operand(100, (1,))]
    assert traffic(None, (4, 2), operands, 2, 4) == 2 * 10 + 100  # tiles (0, 0) and (2, 0)
    assert traffic(Numbering(1, 2), (4, 2), operands, 2, 4) == 10 + 2 * 100  # tiles (0, 0) and (0, 1)
    assert traffic(Numbering(4, 2), (4, 2), operands, 2, 4) == 2 * 10 + 100  # tiles (0, 0) and (1, 0)


def test_chosen_only_where_memory_is_the_limit() -> None:
    target = get_target("gfx942")
    operands = [Operand(1 << 14, (0,)), Operand(1 << 14, (1,))]
    counts = (512, 64)
    plain = traffic(None, counts, operands, target.dies, target.units)
    clocks = int(plain * target.dies / target.memory_rate)
    found = choose_numbering(counts, operands, clocks - 1, target, None)
    assert found is not None and found.dies == 8
    assert 2 * traffic(found, counts, operands, target.dies, target.units) < plain
    assert choose_numbering(counts, operands, clocks + 1, target, None) is None
    assert choose_numbering((16, 16), operands, 1, target, None) is None, "the grid fits the chip"
    assert choose_numbering((None, 64), operands, 1, target, None) is None
    assert choose_numbering(counts, operands, 1, target, False) is None
    assert choose_numbering(counts, operands, 1, get_target("gfx90a"), None) is None, "one die"
    assert choose_numbering((None, 64), operands, 1, target, True) == Numbering(8, 8, "as asked for")


def scalars(kernel: object, sizes: dict, target: str) -> tuple[int, str]:
    compiled = kernel.compile(target=target, subs=sizes)  # type: ignore[attr-defined]
    return compiled.resources.instructions["salu"], compiled.asm


def test_the_plain_order_costs_nothing() -> None:
    """A large product is bound by its matrix units: its text is that of `swizzle=False`. A flat one of small tiles, in
    a grid of many rows, is bound by memory."""
    large = {**dict(zip(TILE, (256, 256, 64, 64, 128))), M: 8192, N: 8192, K: 8192}
    flat = {**dict(zip(TILE, (32, 32, 64, 16, 16))), M: 32 * 512, N: 32 * 32, K: 1024}
    for target in ("gfx942", "gfx950"):
        for sizes, kind, same in ((large, BF16, True), (flat, F16, False)):
            plain = scalars(products.gemm(kind, schedule=wd.Schedule(swizzle=False)), sizes, target)
            chosen = scalars(products.gemm(kind), sizes, target)
            assert (plain == chosen) is same
            assert plain[0] <= chosen[0] <= plain[0] + 24
