"""Operands that lie the other way round in memory: blocks of several rows are transposed in registers on their way to
shared memory, whatever part of them lies outside the array."""

from __future__ import annotations

import numpy as np
import products
import pytest
from products import TILE, K, M, N
from wavedsl.ir.kernel_ir import Op

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


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_large_tiles_are_stored_in_pieces_of_a_column(target: str) -> None:
    """No element goes to shared memory by itself, and every word of it takes one byte permutation."""
    kernel = products.gemm(products.F16, b_order="KN")
    tiles = dict(zip(TILE, (128, 128, 64, 64, 64)))
    compiled = kernel.compile(target=target, subs={**tiles, M: 512, N: 512, K: 4096})

    def inside(op: Op) -> list[Op]:
        return [x for region in op.regions for x in region.ops]

    (loop,) = (op for op in compiled.kernel_ir.body.ops if op.name == "for")
    stores = [op.attrs["bytes"] for op in inside(loop) if op.name == "store.shared"]
    assert min(stores) >= 4
    words = sum(size for op, size in zip((o for o in inside(loop) if o.name == "store.shared"), stores)) // 4
    permutations = sum(op.name == "permute_bytes" for op in inside(loop))
    assert permutations == words // 2  # that of B; A is stored as it is
    assert compiled.resources.loops[0].instructions["valu"] == permutations


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("tiles", [(64, 64, 32, 32, 32), (16, 16, 16, 16, 16)], ids=str)
def test_single_elements_take_no_arithmetic(tiles: tuple, target: str) -> None:
    """Tiles too small for blocks are stored element by element, upper halves of words without a shift."""
    kernel = products.gemm(products.F16, b_order="KN")
    a, b, c = products.operands(products.F16, tiles[0], tiles[1], 256, b_order="KN")
    compiled = kernel.compile(a, b, c, target=target, subs=dict(zip(TILE, tiles)))
    loop = compiled.resources.loops[0]
    assert loop.instructions["valu"] == 0
    stores = [op for op in compiled.kernel_ir.body.walk() if op.name == "store.shared" and op.attrs["bytes"] == 2]
    assert 0 < 2 * sum(op.attrs.get("high", False) for op in stores) == len(stores)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, products.F16, b_order="KN")[0], products.F16)
