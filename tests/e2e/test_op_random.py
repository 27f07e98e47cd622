"""Random numbers on every chip: the same bits as the evaluator's, whatever the tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree
from wavedsl.ir.philox import philox

import wavedsl as wd

B, M, N = wd.symbols("B M N")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.u32], ids=str)
def test_numbers_by_index(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(seed: wd.Scalar[wd.i64], offset: wd.Scalar[wd.u32], out: wd.Memory[B, M, N, dtype]):
        wd.write(wd.random(seed, B, M, N, offset=offset, dtype=dtype), out)

    for shape, seed in (((2, 8, 32), 5), ((3, 9, 21), -(1 << 40) - 7)):
        arguments = [np.int64(seed), np.uint32(3), np.zeros(shape, dtype.storage)]
        agree(kernel, arguments, target, oracle if seed == 5 else None)


@pytest.mark.parametrize("target", TARGETS)
def test_known_answer(target: str) -> None:
    """The published vector: counter and key of zeros."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(out: wd.Memory[N, wd.u32]):
        wd.write(wd.random(0, N, dtype=wd.u32), out)

    out = np.zeros(3, np.uint32)
    kernel.compile(out, target=target).emulate(out)
    assert out[0] == 0x6627E8D5
    assert out[2] == philox((2, 0, 0, 0), (0, 0))[0]


@pytest.mark.parametrize("target", TARGETS)
def test_run_time_sizes_and_dropout(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def dropout(x: wd.Memory[M, N, wd.f16], y: wd.Memory[M, N, wd.f16]):
        keep = wd.random(7, M, N) >= 0.25
        wd.write(wd.where(keep, wd.read(x) / 0.75, 0.0), y)

    compiled = dropout.compile(target=target, dynamic=(M, N))
    x = np.random.default_rng(1).standard_normal((13, 70)).astype(np.float16)
    got, want = np.zeros_like(x), np.zeros_like(x)
    compiled.emulate(x, got)
    dropout.evaluate(x, want)
    assert np.array_equal(got, want) and 0.15 < (got == 0).mean() < 0.35


@pytest.mark.parametrize("target", TARGETS)
def test_a_seed_and_an_offset_of_each_workgroup(target: str) -> None:
    """The evaluator laid a number per workgroup along whatever dimension the numbers had, or ended in NumPy's error."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(seeds: wd.Memory[B, wd.i64], out: wd.Memory[B, M, N, wd.u32]):
        word = wd.random(wd.read(seeds), M, N, offset=wd.tile_start(M) + wd.index(B), dtype=wd.u32)
        wd.write(word, out)

    for shape in ((3, 16, 3), (2, 13, 21), (2, 2, 2)):
        seeds, out = np.arange(5, 5 + shape[0]), np.zeros(shape, np.uint32)
        agree(kernel, [seeds, out], target)
        kernel.evaluate(seeds, out)
        place = np.arange(shape[1] * shape[2]).reshape(shape[1:])
        for b, m in np.ndindex(shape[:2]):
            zeros = np.zeros(shape[2], np.int64)
            words = philox((place[m], zeros, zeros + m // 8 * 8 + b, zeros), (int(seeds[b]), 0))[0]
            np.testing.assert_array_equal(out[b, m], words)


@pytest.mark.parametrize("target", TARGETS)
def test_counters_are_made_one_after_the_other(target: str) -> None:
    """Those of all elements were made first: two registers each where they have 64 bits, until the last was used."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(out: wd.Memory[M, N, wd.u32]):
        wd.write(wd.random(7, M, N, dtype=wd.u32), out)

    ops = [op.name for op in kernel.compile(target=target, dynamic=(M, N)).kernel_ir.body.walk()]
    first, last = ops.index("mulhi_u"), len(ops) - 1 - ops[::-1].index("mulhi_u")
    between = sum(name == "trunc" for name in ops[first:last])
    assert between >= 6, (ops[:first].count("trunc"), between)
