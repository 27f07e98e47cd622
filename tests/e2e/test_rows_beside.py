"""Rows that are loaded again behind barriers, so that a unit of NVIDIA's holds two workgroups instead of one."""

from __future__ import annotations

import numpy as np
import pytest

import wavedsl as wd

M, N = wd.symbols("M N")
BF16, F32 = wd.bf16, wd.f32
ROW = [wd.WorkgroupConstraint(M, 1, 0)]


@wd.wave(ROW)
def softmax(x: wd.Memory[M, N, BF16], y: wd.Memory[M, N, BF16]):
    wd.write(wd.cast(wd.softmax(wd.cast(wd.read(x), F32), dim=N), BF16), y)


@wd.wave(ROW)
def log_softmax(x: wd.Memory[M, N, BF16], y: wd.Memory[M, N, F32]):
    v = wd.cast(wd.read(x), F32)
    top = wd.max(v, dim=N)
    wd.write(v - top - wd.log(wd.sum(wd.exp(v - top), dim=N)), y)


@wd.wave(ROW)
def quantised(x: wd.Memory[M, N, BF16], y: wd.Memory[M, N, wd.i8]):
    v = wd.cast(wd.read(x), F32)
    wd.write(wd.cast(wd.round(v / (wd.max(wd.abs(v), dim=N) * (1 / 127.0))), wd.i8), y)


@wd.wave(ROW)
def in_place(x: wd.Memory[M, N, BF16]):
    wd.write(wd.cast(wd.softmax(wd.cast(wd.read(x), F32), dim=N), BF16), x)


def beside(compiled: wd.CompiledKernel) -> bool:
    """Whether ptxas is told of two workgroups."""
    return ".minnctapersm 2" in compiled.asm


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("kernel", "result"), [(softmax, BF16), (log_softmax, F32), (quantised, wd.i8)], ids=["softmax", "log", "int8"]
)
def test_the_same_numbers(kernel: wd.Kernel, result: wd.DType, target: str) -> None:
    """Of rows that end inside of a warp's part; how many there are is the launch's to say."""
    for columns in (20000, 31992):
        x = np.random.default_rng(1).standard_normal((3, columns)).astype(BF16.storage)
        got, want = (np.zeros(x.shape, result.storage) for _ in range(2))
        compiled = kernel.compile(x, got, target=target, dynamic=[M])
        assert beside(compiled)
        compiled.emulate(x, got)
        kernel.evaluate(x, want)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_two_rows_fit(target: str) -> None:
    """32000 columns took 56 registers, one row to a unit."""
    found = softmax.compile(target=target, subs={M: 4096, N: 32000})
    assert beside(found) and found.resources.registers <= 32 and not found.resources.spills
    assert found.resources.occupancy == 2 * found.block[0] // 32


def test_where_one_stays_alone() -> None:
    """Few rows; rows of which the cache has not room for two; and what the kernel itself writes is not read again."""
    assert not beside(softmax.compile(target="sm_90a", subs={M: 100, N: 32000}))
    assert not beside(softmax.compile(target="sm_80", subs={M: 4096, N: 50000}))
    assert not beside(in_place.compile(target="sm_90a", subs={M: 4096, N: 32000}))
