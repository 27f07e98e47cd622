"""Random numbers on every chip: the same bits as the evaluator's, whatever the tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree, near
from wavedsl.ir.philox import philox

import wavedsl as wd

B, M, N, K, D = wd.symbols("B M N K D")


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
    first, last = ops.index("mul_wide_u"), len(ops) - 1 - ops[::-1].index("mul_wide_u")
    between = sum(name == "trunc" for name in ops[first:last])
    assert between >= 6, (ops[:first].count("trunc"), between)


@pytest.mark.parametrize("target", TARGETS)
def test_random_numbers_take_no_registers_of_their_own(target: str) -> None:
    """Those of a whole tile were ready long before the scores that they drop, and waited in registers."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 64), wd.WaveConstraint(M, 16)], subs={K: 32, D: 32}
    )
    def kernel(
        q: wd.Memory[M, K, wd.f16], k: wd.Memory[N, K, wd.f16], v: wd.Memory[N, D, wd.f16],
        seed: wd.Scalar[wd.i64], out: wd.Memory[M, D, wd.f32],
    ):  # fmt: skip
        acc = wd.Register[M, D, wd.f32](0.0)

        @wd.iterate(N, init_args=[acc])
        def loop(acc):
            scores = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0))
            kept = wd.where(wd.random(seed, M, N) * 2.0 - 0.5 >= 0.25, scores, 0.0)
            return wd.mma(wd.cast(kept, wd.f16), wd.read(v), acc)

        wd.write(loop, out)

    rng = np.random.default_rng(3)
    q, k, v = (rng.integers(-2, 3, (n, 32)).astype(np.float16) for n in (70, 90, 90))
    out = np.zeros((70, 32), np.float32)
    agree(kernel, [q, k, v, np.int64(11), out], target)
    compiled = kernel.compile(target=target, subs={M: 1024, N: 1024})
    loop = next(op for op in compiled.kernel_ir.body.walk() if op.name == "for")
    ops = loop.regions[0].ops
    numbers = {op.results[0] for op in ops if op.name == "mul_wide_u"}
    last = {a: i for i, op in enumerate(ops) for a in op.args}
    for op in ops:  # what is made of numbers, up to what chooses by them
        if op.row.pure and op.name != "select" and any(a in numbers for a in op.args):
            numbers.update(op.results)
    made = {op.results[0]: i for i, op in enumerate(ops) if op.results and op.results[0] in numbers}
    live = max(sum(made[v] <= i < last[v] for v in made) for i in range(len(ops)))
    assert sum(op.name == "mul_wide_u" for op in ops) >= 16 * 19, "numbers of a tile of 16 x 64"
    assert live <= 12


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_with_several_readers(target: str) -> None:
    """In a loop, a condition and behind them; as they are and computed with; stored and added up."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 16)])
    def kernel(
        x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32], z: wd.Memory[M, N, wd.f32],
        bits: wd.Memory[M, N, wd.bf16], total: wd.Memory[M, wd.f32], limit: wd.Scalar[wd.i32],
    ):  # fmt: skip
        acc = wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[acc])
        def loop(acc):
            chance = wd.random(3, M, N)
            word = wd.random(4, M, N, dtype=wd.u32)
            value = wd.read(x)
            wd.write(wd.where(chance * chance < 0.25, value, chance), y)
            wd.write(wd.cast(value, wd.bf16, rounding="stochastic", bits=word), bits)
            wd.cond(wd.tile_start(N) < limit, lambda: wd.write(value + chance, z))
            return acc + wd.sum(wd.where(chance < 0.5, chance, 0.0), dim=N)

        wd.write(loop, total)

    rng = np.random.default_rng(5)
    x = rng.standard_normal((21, 45)).astype(np.float32)
    results = [np.zeros(x.shape, dtype) for dtype in (np.float32, np.float32, wd.bf16.storage)]
    arguments = [x, *results, np.zeros(21, np.float32), np.int32(20)]
    agree(kernel, arguments, target, compare=near(absolute=1e-5))


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_both_halves_of_a_product_at_once(target: str) -> None:
    """Of a number's products with lanes' words none is made twice, once for its upper and once for its lower word: on
    gfx942, where either takes four turns, dropout of 2^25 numbers took 290135 clocks by the model, 204592 so."""

    @wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
    def kernel(out: wd.Memory[N, wd.u32]):
        wd.write(wd.random(11, N, dtype=wd.u32), out)

    text = agree(kernel, [np.zeros(300, np.uint32)], target).asm
    whole, half = ("v_mad_u64_u32", "v_mul_hi_u32") if target.startswith("gfx") else ("mul.wide.u32", "mul.hi.u32")
    assert whole in text and half not in text
