# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""What lanes of a warp exchange, against references that do not come from the rows."""

import numpy as np
import pytest
from ptx_harness import elementwise
from ptx_operands import array


def warp(code, n=32, seed=0):
    x = np.random.default_rng(3).integers(0, 2**32, n, dtype=np.uint32)
    return x, elementwise(code, [x], 32)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8])
def test_shuffles(mode, width):
    segment = (32 - width) << 8
    clamp = 0 if mode == "up" else 31
    for offset in (0, 1, 5, 9, 31):
        x, got = warp(
            f"shfl.sync.{mode}.b32 %r1|%p0, %in0, {offset}, {segment | clamp}, -1; selp.b32 %r2, 1, 0, %p0; xor.b32 %out, %r1, %r2;"
        )
        for lane in range(32):
            base = lane // width * width
            j = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset, "idx": base + offset % width}[mode]
            inside = base <= j < base + width if mode != "bfly" else j < base + width
            want = int(x[j if inside else lane]) ^ int(inside)
            assert got[lane] == want, (mode, width, offset, lane)


def test_votes_and_reductions():
    x, got = warp("setp.gt.s32 %p0, %in0, 0; vote.sync.ballot.b32 %out, %p0, -1;")
    mask = sum(int(v > 0) << i for i, v in enumerate(x.view(np.int32)))
    assert (got == mask).all()
    for op, fn in {"add": lambda v: sum(v), "min": min, "max": max}.items():
        for t, view in (("u32", np.uint32), ("s32", np.int32)):
            x, got = warp(f"redux.sync.{op}.{t} %out, %in0, -1;")
            assert (got == fn([int(v) for v in x.view(view)]) % 2**32).all()
    x, got = warp("redux.sync.xor.b32 %out, %in0, -1;")
    assert (got == np.bitwise_xor.reduce(x)).all()
    x, got = warp("and.b32 %r1, %in0, 3; match.any.sync.b32 %out, %r1, -1;")
    assert got.tolist() == [sum(int((w & 3) == (v & 3)) << i for i, w in enumerate(x)) for v in x]
    x, got = warp("match.all.sync.b32 %r1|%p0, 7, -1; selp.b32 %r2, 1, 0, %p0; and.b32 %out, %r1, %r2;")
    assert (got == 1).all()
    x, got = warp("activemask.b32 %out;")
    assert (got == 2**32 - 1).all()
    x, got = warp("elect.sync %r1|%p0, -1; selp.b32 %out, 1, 0, %p0;")
    assert got.tolist() == [1] + [0] * 31
    x, got = warp("mov.u32 %r1, %lanemask_lt; mov.u32 %r2, %laneid; add.u32 %out, %r1, %r2;")
    assert got.tolist() == [(1 << i) - 1 + i for i in range(32)]


@pytest.mark.parametrize("mods, want", [
    ("rna", [0x7FC00000, 0x7F800000, 0xFFFFE000, 0x7F800000]),
    ("rna.satfinite", [0x7FBFE000, 0x7F7FE000, 0xFFFFC000, 0x7F7FE000]),
    ("rn", [0x7FFFE000, 0x7FFFE000, 0x7FFFE000, 0x7F800000]),
    ("rz", [0x7FFFE000, 0x7FFFE000, 0x7FFFE000, 0x7F800000]),
])  # fmt: skip
def test_nan_as_tf32_is_that_of_an_h200(mods, want):
    a = np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7F800000], np.uint32)
    assert elementwise(f"cvt.{mods}.tf32.f32 %out, %in0;", [a], 32).tolist() == want


def test_fns_finds_nothing_from_beyond_a_word():
    """As an H200; the emulator counted down from the base for minutes."""
    mask, base, offset = ([0x21, 0x7F, 0x7F, 0x21], [0x80, 0x55555555, 0x80000001, 5], [-2, -2, 1, -2])
    got = elementwise("fns.b32 %out, %in0, %in1, %in2;", [array(x, 32) for x in (mask, base, offset)], 32)
    assert got.tolist() == [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0]
