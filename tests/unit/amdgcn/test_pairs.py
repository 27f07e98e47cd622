"""Pairs of narrow LDS accesses become one instruction, and stay two where something orders or holds them."""

from __future__ import annotations

import amdgcn_kernels as kernels
import numpy as np
import products
import pytest
from products import F32, TILE, gemm, operands
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, vector
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


def program(chip: str, width: int, first: int, second: int, between: bool = False) -> str:
    """y = what two stores at two offsets of one address left there, read from the neighbour's address by two loads."""
    size = 64 * 1024
    b = Builder(kernels.new_kernel("pairs", chip, ["x", "y"], 1, shared_bytes=size), get_target(chip))
    t = vector(width // 4) if width > 4 else B32
    off = b.mul(b.tid(), width)
    x = b.buffer(b.param(0), 128 * width)
    v = [b.load_global(x, off, bytes=width, type=t, imm=k * 64 * width) for k in (0, 1)]
    b.store_shared(off, v[0], bytes=width, imm=first)
    if between:
        v[1] = b.bitcast(b.add(b.bitcast(v[1], I32), b.bitcast(b.load_shared(off, bytes=4, imm=first), I32)), B32)
        v[1] = b.bitcast(b.sub(b.bitcast(v[1], I32), b.bitcast(v[0], I32)), B32)
    b.store_shared(off, v[1], bytes=width, imm=second)
    b.barrier()
    other = b.mul(b.xor(b.tid(), 1), width)
    r = [b.load_shared(other, bytes=width, type=t, imm=at) for at in (first, second)]
    y = b.buffer(b.param(1), 128 * width)
    for k in (0, 1):
        b.store_global(y, off, r[k], bytes=width, imm=k * 64 * width)
    text = compile_kernel_ir(b.kernel, get_target(chip)).text
    x_ = np.random.default_rng(0).integers(0, 2**32, (2, 64, width // 4), dtype=np.uint32)
    y_ = np.zeros_like(x_)
    run(text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x_, y_], checks=True)
    np.testing.assert_array_equal(y_, x_[:, np.arange(64) ^ 1])
    return text


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("width", "first", "second", "form"),
    [
        (4, 0, 256, "2_b32"),
        (4, 512, 1020, "2_b32"),
        (4, 1024, 256, "2st64_b32"),
        (4, 0, 65024, "2st64_b32"),
        (8, 0, 512, "2_b64"),
        (8, 2040, 8, "2_b64"),
        (8, 512, 61440, "2st64_b64"),
    ],
)  # fmt: skip
def test_joined(chip: str, width: int, first: int, second: int, form: str) -> None:
    text = program(chip, width, first, second)
    assert text.count(f"ds_read{form} ") == text.count(f"ds_write{form} ") == 1
    assert "ds_read_b" not in text and "ds_write_b" not in text


@pytest.mark.parametrize(
    ("width", "first", "second"), [(4, 0, 1025), (4, 4, 2048), (8, 0, 2052), (12, 0, 768), (16, 0, 1024)]
)
def test_left_alone(width: int, first: int, second: int) -> None:
    """Offsets that no form holds, and widths that have none."""
    text = program("gfx942", width, first, second)
    assert "ds_read2" not in text and "ds_write2" not in text


def test_nothing_moves_over_what_orders_shared_memory() -> None:
    text = program("gfx942", 4, 0, 256, between=True)
    assert "ds_write2" not in text and text.count("ds_read2_b32") == 1 == text.count("ds_read_b32")


@pytest.mark.parametrize("chip", CHIPS)
def test_a_product_of_single_elements(chip: str) -> None:
    """B of f32 as [K, N] is read an element at a time: a good part of the loop's reads is joined."""
    tile = (64, 64, 32, 32, 32)
    a, b, c = operands(F32, 64, 64, 128, b_order="KN")
    compiled = gemm(F32, b_order="KN").compile(a, b, c, target=chip, subs=dict(zip(TILE, tile)))
    assert compiled.asm.count("ds_read2") >= 6 and compiled.resources.spills == 0
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, F32, "KN")[0], F32)


def gathered(chip: str, order: tuple[int, ...], kept: bool = False) -> str:
    """y = a tuple of four words of LDS, in this order, each loaded by itself; `kept`: one of them is used once more."""
    b = Builder(kernels.new_kernel("gather", chip, ["x", "y"], 1, shared_bytes=1024), get_target(chip))
    at = b.mul(b.tid(), 16)
    x, y = (b.buffer(b.param(i), 2048) for i in (0, 1))
    b.store_shared(at, b.load_global(x, at, bytes=16, type=vector(4)), bytes=16)
    b.barrier()
    words = [b.load_shared(b.mul(b.xor(b.tid(), 1), 16), bytes=4, type=B32, imm=4 * i) for i in order]
    b.store_global(y, at, b.vec(*words), bytes=16)
    if kept:
        b.store_global(y, at, words[0], bytes=4, imm=1024)
    text = compile_kernel_ir(b.kernel, get_target(chip)).text
    x_ = np.random.default_rng(0).integers(0, 2**32, (128, 4), dtype=np.uint32)
    y_ = np.zeros_like(x_)
    run(text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x_, y_], checks=True)
    np.testing.assert_array_equal(y_[:64], x_[np.arange(64) ^ 1][:, list(order)])
    if kept:
        np.testing.assert_array_equal(y_[64:].reshape(-1)[:256:4], x_[np.arange(64) ^ 1, order[0]])
    return text


def test_a_pair_fills_the_tuple_that_its_results_are_for() -> None:
    text = gathered("gfx942", (0, 1, 2, 3))
    assert text.count("ds_read2_b32 ") == 2 and "ds_read_b32 " not in text and "v_mov_b32" not in text
    assert gathered("gfx942", (2, 3, 1, 0)).count("ds_read2_b32 ") == 2  # offsets come in either order


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_results_that_somebody_else_wants_stay_apart(order: tuple[int, ...]) -> None:
    text = gathered("gfx942", order, kept=True)
    assert text.count("ds_read2_b32 ") == 1 and text.count("ds_read_b32 ") == 2
