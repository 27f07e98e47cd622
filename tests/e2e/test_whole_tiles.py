"""Lengths that no vector divides: all tiles but the last one are accessed in whole vectors."""

from __future__ import annotations

import re

import numpy as np
import products
import pytest
from products import TARGETS

import wavedsl as wd

M, N, BN = wd.symbols("M N BN")
WIDE = re.compile(r"(?:buffer|global)_(load|store)_dwordx4|(ld|st)\.global\.v4\.b32")


def added(dtype: wd.DType) -> wd.Kernel:
    @wd.wave([wd.WorkgroupConstraint(N, BN, 0), wd.WaveConstraint(N, BN / 4)], subs={BN: 2048})
    def add(a: wd.Memory[N, dtype], b: wd.Memory[N, dtype], c: wd.Memory[N, dtype]):
        wd.write(wd.read(a) + wd.read(b), c)

    return add


def wide(asm: str) -> int:
    return len(WIDE.findall(asm))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["bf16", "f64"])
def test_all_lengths(target, kind, oracle):
    """Shorter than a tile, whole tiles, one element more and less; known while compiling and when it runs."""
    dtype = getattr(wd, kind)
    kernel = added(dtype)
    made = kernel.compile(target=target, dynamic=(N,))
    products.assemble(made, oracle)
    assert wide(made.asm) == wide(kernel.compile(target=target, subs={N: 4096}).asm) > 0
    for n in (1, 2047, 4096, 6001):
        a, b = np.random.default_rng(n).integers(-8, 9, (2, n)).astype(dtype.storage)
        for compiled in (made, kernel.compile(target=target, subs={N: n})) if n > 4096 else (made,):
            c = np.full(n + 9, 77, dtype.storage)
            compiled.emulate(a, b, c[:n])
            np.testing.assert_array_equal(c[:n], a + b)
            assert (c[n:] == 77).all()


@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_where_nothing_is_won_there_is_one_way(target):
    """Tiles that a vector divides, rows whose pitch it does not, and a single tile."""
    kernel = added(wd.f32)
    assert "cbranch" not in kernel.compile(target="gfx942", subs={N: 8192 + 4}).asm
    assert wide(kernel.compile(target=target, subs={N: 2047}).asm) == 0

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BN: 1024})
    def rows(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 2.0, b)

    assert wide(rows.compile(target=target, subs={M: 8, N: 3001}).asm) == 0


def test_rows_with_a_pitch_are_wide():
    """The pitch is a multiple of 16 bytes, the length of a row is odd."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BN: 256})
    def rows(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 2.0, b)

    a, b = (np.full((3, 1024), 7, np.float32) for _ in range(2))
    a[...] = np.arange(3 * 1024).reshape(3, 1024)
    made = rows.compile(a[:, :701], b[:, :701], target="sm_90a")
    made.emulate(a[:, :701], b[:, :701])
    assert wide(made.asm) > 0
    np.testing.assert_array_equal(b, np.where(np.arange(1024) < 701, 2 * a, 7))


def test_what_is_decided_and_counted():
    """The record names both widths; traffic is that of whole vectors."""
    made = added(wd.bf16).compile(target="gfx942", subs={N: (1 << 22) + 1})
    assert [x.text for x in made.decisions.atoms if "last tile" in x.text] == [
        "loads of 16 bytes per lane, of 2 in the last tile", "loads of 16 bytes per lane, of 2 in the last tile",
        "stores of 16 bytes per lane, of 2 in the last tile",
    ]  # fmt: skip
    assert wd.analyze(made).traffic.l2 < 1.01 * 3 * 2 * (1 << 22)
