"""Operands that lie the other way round in memory: their elements are stored to shared memory one by one, or blocks of
several rows are transposed in registers on the way, whatever part of them lies outside the array. (Instructions of
column pairs take them as they lie: test_column_pairs.py.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import products
import pytest
from products import TILE, K, M, N
from wavedsl.ir.kernel.kernel_ir import Op

CASES = (
    # tiles, sizes
    ((128, 128, 64, 64, 64), (128, 128, 192)),
    ((64, 128, 64, 32, 64), (70, 130, 150)),
    ((32, 64, 64, 32, 32), (33, 64, 128)),
)


@pytest.mark.parametrize(("tiles", "sizes"), CASES, ids=str)
@pytest.mark.parametrize(
    ("target", "kind"),
    [("gfx90a", products.BF16), ("gfx942", products.F16), ("gfx942", products.I8), ("gfx950", products.F16)],
    ids=str,
)
def test_products_of_transposed_operands(target: str, kind: products.Kind, tiles: tuple, sizes: tuple) -> None:
    m, n, k = sizes
    random = np.random.default_rng(7)
    a, b = (random.integers(-3, 4, shape).astype(kind.dtype.storage) for shape in ((m, k), (k, n)))
    got, want = (np.zeros((m, n), kind.out.storage) for _ in range(2))
    kernel = products.gemm(kind, b_order="KN")
    kernel.compile(a, b, got, target=target, subs=dict(zip(TILE, tiles))).emulate(a, b, got)
    np.matmul(a.astype(np.float64), b.astype(np.float64), out=(exact := np.zeros((m, n))))
    want[...] = exact.astype(kind.out.storage)
    np.testing.assert_array_equal(got, want)


def compiled_loop(target: str, tiles: tuple[int, ...], kind: products.Kind = products.F16) -> tuple[Any, list[Op]]:
    """The kernel of a product that fills the chip, and the operations of its loop."""
    sizes = {M: 64 * tiles[0], N: 64 * tiles[1], K: 64 * tiles[2]}
    kernel = products.gemm(kind, b_order="KN")
    compiled = kernel.compile(target=target, subs={**dict(zip(TILE, tiles)), **sizes})
    (loop,) = (op for op in compiled.kernel_ir.body.ops if op.name == "for")
    return compiled, [x for region in loop.regions for x in region.ops]


def test_a_word_of_bytes_takes_two_permutations() -> None:
    """Single bytes would take four times the clocks of blocks, so no element goes to shared memory by itself."""
    compiled, ops = compiled_loop("gfx942", (64, 64, 64, 32, 32), products.I8)
    stores = [op.attrs["bytes"] for op in ops if op.name == "store.shared"]
    assert min(stores) >= 4
    permutations = sum(op.name == "permute_bytes" for op in ops)
    assert permutations == 2 * sum(stores) // 4 // 2  # of the words of B; A is stored as it is
    assert compiled.resources.loops[0].instructions["valu"] == permutations


@pytest.mark.parametrize(
    ("target", "tiles"),
    [
        ("gfx90a", (64, 64, 64, 32, 32)),
        ("gfx90a", (32, 32, 64, 16, 16)),
        ("gfx90a", (32, 64, 16, 16, 32)),
        ("gfx90a", (64, 128, 16, 16, 64)),
        ("gfx942", (32, 32, 64, 16, 16)),
        ("gfx942", (128, 128, 64, 64, 64)),
        ("gfx942", (256, 128, 64, 64, 64)),
        ("gfx950", (256, 128, 64, 64, 64)),
    ],
    ids=str,
)
def test_nothing_is_computed_to_transpose_a_tile(target: str, tiles: tuple[int, ...]) -> None:
    """Where the matrix units are the limit no vector instruction stands in the loop, and LDS has no conflicts: lanes
    go down some rows before they cross one, transposing reads find rows in other banks."""
    compiled, ops = compiled_loop(target, tiles)
    assert compiled.resources.loops[0].instructions["valu"] == 0
    assert not any(op.name == "permute_bytes" for op in ops)
    a, b, c = products.operands(products.F16, tiles[0], tiles[1], 2 * tiles[2] + 8, b_order="KN")
    small = products.gemm(products.F16, b_order="KN").compile(a, b, c, target=target, subs=dict(zip(TILE, tiles)))
    assert small.emulate(a, b, c).bank_conflicts == 0
    products.expect_equal(c, products.exact(a, b, products.F16, b_order="KN")[0], products.F16)


@pytest.mark.parametrize(
    ("target", "tiles"),
    [
        ("gfx90a", (64, 64, 32, 32, 32)),
        ("gfx90a", (16, 16, 16, 16, 16)),
        ("gfx942", (32, 32, 32, 16, 16)),
        ("gfx942", (16, 16, 16, 16, 16)),
    ],
    ids=str,
)
def test_single_elements_take_no_arithmetic(target: str, tiles: tuple) -> None:
    """Tiles too small for blocks, or for pairs of columns, are stored element by element, upper halves of words without
    a shift."""
    kernel = products.gemm(products.F16, b_order="KN")
    a, b, c = products.operands(products.F16, tiles[0], tiles[1], 256, b_order="KN")
    compiled = kernel.compile(a, b, c, target=target, subs=dict(zip(TILE, tiles)))
    loop = compiled.resources.loops[0]
    assert loop.instructions["valu"] == 0
    stores = [op for op in compiled.kernel_ir.body.walk() if op.name == "store.shared" and op.attrs["bytes"] == 2]
    assert 0 < 2 * sum(op.attrs.get("high", False) for op in stores) == len(stores)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, products.F16, b_order="KN")[0], products.F16)
