"""Layout inference: which matrix instruction, which operand order, which layouts; and its checker."""

from __future__ import annotations

import pytest
from wavedsl.ir.inference.coalesced import coalesced
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.inference.layout_check import coverage_problem
from wavedsl.ir.inference.mma_options import fma_atom
from wavedsl.ir.inference.plans import plan
from wavedsl.ir.layouts.bits import spec
from wavedsl.ir.layouts.layout import Digit, Layout

import wavedsl as wd
from wavedsl.targets import get_target

M, N, K = wd.symbols("M N K")


def chosen(target, dtype, sums, tiles=(64, 64, 32), out=None, store=(M, N), **hardware):
    """(matrix instruction, swapped) of a GEMM whose result is stored with `store`'s last dimension contiguous."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, tiles[0], 0), wd.WorkgroupConstraint(N, tiles[1], 1),
            wd.TilingConstraint(K, tiles[2]), wd.WaveConstraint(M, tiles[0] // 2), wd.WaveConstraint(N, tiles[1] // 2),
            wd.HardwareConstraint(**hardware),
        ]
    )  # fmt: skip
    def kernel(a: wd.Memory[M, K, dtype], b: wd.Memory[N, K, dtype], c: wd.Memory[store[0], store[1], sums]):
        acc = wd.Register[M, N, sums](0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, sums]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    inference = plan(kernel.trace(), {M: 256, N: 256, K: 256}, get_target(target)).inference
    (mma,) = inference.mmas.values()
    return mma.atom.name, mma.swapped


@pytest.mark.parametrize(
    ("target", "dtype", "sums", "atom"),
    [
        ("gfx942", wd.f16, wd.f32, "F32_32x32x8_F16"),
        ("gfx950", wd.f16, wd.f32, "F32_32x32x16_F16"),
        ("gfx950", wd.bf16, wd.f32, "F32_32x32x16_BF16"),
        ("gfx90a", wd.i8, wd.i32, "I32_32x32x8_I8"),
        ("gfx942", wd.i8, wd.i32, "I32_32x32x16_I8"),
        ("gfx942", wd.f64, wd.f64, "F64_16x16x4_F64"),
        ("gfx942", wd.tf32, wd.f32, "F32_32x32x4_TF32"),
        ("sm_80", wd.f16, wd.f32, "F32_16x8x16_F16"),
        ("sm_80", wd.tf32, wd.f32, "F32_16x8x8_TF32"),
        ("sm_80", wd.i8, wd.i32, "I32_16x8x32_I8"),
        ("sm_80", wd.f64, wd.f64, "F64_8x8x4_F64"),
        ("sm_80", wd.f32, wd.f32, "F32_FMA"),
    ],
)
def test_matrix_instruction(target, dtype, sums, atom):
    assert chosen(target, dtype, sums)[0] == atom


def test_operands_are_swapped_for_wide_stores():
    """AMD's results run along M in a lane: swapped, they run along N, four elements of a row-major C at once."""
    assert chosen("gfx942", wd.f16, wd.f32)[1]
    assert not chosen("gfx942", wd.f16, wd.f32, store=(N, M))[1]
    assert not chosen("sm_80", wd.f16, wd.f32)[1]


def test_a_given_instruction_is_used():
    assert chosen("gfx942", wd.f16, wd.f32, mma_type=wd.MMAType.F32_16x16x16_F16)[0] == "F32_16x16x16_F16"


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
@pytest.mark.parametrize(("wm", "wn"), [(1, 1), (16, 32), (64, 64), (3, 200)])
def test_multiply_add_tiles_cover(target, wm, wn):
    chip = get_target(target)
    atom = fma_atom(wd.f32, chip, wm, wn)
    layout = Layout(spec(dict(atom.d)), (), (("M", atom.m), ("N", atom.n)))
    assert coverage_problem(layout, {"M": atom.m, "N": atom.n}) == ""


@pytest.mark.parametrize("sizes", [(1, 1), (16, 16), (7, 100), (96, 96), (3, 1), (128, 8), (5, 1000)])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_coalesced_layouts_cover(sizes, bits):
    chip = get_target("gfx942")
    layout = coalesced([M, N], {M: sizes[0], N: sizes[1]}, bits, chip)
    assert coverage_problem(layout, {"M": sizes[0], "N": sizes[1]}) == ""


def test_checker_finds_a_lost_digit_and_a_doubled_bit():
    whole = Layout(spec(M="l0 l1 l2", N="e0 l3"), (Digit("reg", 3, "M", 1),), (("M", 24), ("N", 4)))
    assert coverage_problem(whole, {"M": 24, "N": 4}) == ""
    lost = Layout(whole.inner, (), whole.extents)
    assert coverage_problem(lost, {"M": 24, "N": 4}) == "misses 64 of 96 elements"
    gap = Layout(whole.inner, (Digit("reg", 3, "M", 2),), whole.extents)
    assert "leaves its extent" in coverage_problem(gap, {"M": 24, "N": 4})
    doubled = Layout(spec(M="l0 l1 l1", N="e0 l3"), (Digit("reg", 3, "M", 1),), (("M", 24), ("N", 4)))
    assert "misses" in coverage_problem(doubled, {"M": 24, "N": 4})
    assert "covers 24 of 25" in coverage_problem(whole, {"M": 25, "N": 4})


def test_same_layout_ignores_the_order_of_dimensions():
    a = Layout(spec(M="l0 l1", N="e0"), (), (("M", 4), ("N", 2)))
    b = Layout(spec(N="e0", M="l0 l1"), (), (("N", 2), ("M", 4)))
    assert same_layout(a, b)
    assert not same_layout(a, Layout(spec(M="l1 l0", N="e0"), (), (("M", 4), ("N", 2))))
