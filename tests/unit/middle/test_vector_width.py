"""How wide arrays are accessed where no matrix instruction decides: 16 bytes of the widest element in memory."""

from __future__ import annotations

import re

import pytest

import wavedsl as wd

M, N = wd.symbols("M N")
EXTENTS = {M: 64, N: 4096}
WIDE = {"gfx942": r"buffer_load_dwordx4", "sm_80": r"ld\.global\.v4"}
ANY = {"gfx942": r"buffer_load_\w+", "sm_80": r"ld\.global\.[\w.]+"}


def loads(kernel, target: str) -> tuple[int, int]:
    """(loads of 16 bytes, all loads)"""
    text = kernel.compile(target=target, subs=EXTENTS).asm
    return len(re.findall(WIDE[target], text)), len(re.findall(ANY[target], text))


@pytest.mark.parametrize("target", WIDE)
def test_a_rows_label_does_not_make_its_vectors_narrow(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(x: wd.Memory[M, N, wd.bf16], label: wd.Memory[M, wd.i64], out: wd.Memory[M, wd.f32]):
        chosen = wd.index(N) == wd.cast(wd.read(label), wd.i32)
        wd.write(wd.sum(wd.where(chosen, wd.cast(wd.read(x), wd.f32), 0.0), dim=N), out)

    wide, every = loads(kernel, target)
    assert wide == every - 1


@pytest.mark.parametrize("target", WIDE)
def test_nor_does_a_wider_scale(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 256, 1)])
    def kernel(x: wd.Memory[M, N, wd.bf16], gain: wd.Memory[N, wd.f32], y: wd.Memory[M, N, wd.bf16]):
        wd.write(wd.cast(wd.cast(wd.read(x), wd.f32) * wd.read(gain), wd.bf16), y)

    wide, every = loads(kernel, target)
    assert wide == every


@pytest.mark.parametrize("target", WIDE)
def test_nor_what_never_meets_memory(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 256, 1)])
    def kernel(seed: wd.Scalar[wd.i32], x: wd.Memory[M, N, wd.f16], y: wd.Memory[M, N, wd.f16]):
        keep = wd.random(seed, M, N) > 0.5
        wd.write(wd.where(keep, wd.read(x), 0.0), y)

    wide, every = loads(kernel, target)
    assert wide == every
