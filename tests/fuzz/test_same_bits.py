"""One kernel, cut and scheduled in several ways: where `docs/numerics.md` promises bits, all of them give these.

    WAVEDSL_FUZZ_SECONDS=600 WAVEDSL_FUZZ_SEED=3000 pytest tests/fuzz/test_same_bits.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generator import bits
from generator.check import TARGETS, copies, few_units, kernel_of

import wavedsl as wd

SECONDS = float(os.environ.get("WAVEDSL_FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("WAVEDSL_FUZZ_SEED", "0"))
M, N, K, D = wd.symbols("M N K D")


def apart(made: bits.Bits, rotate: int) -> tuple[str, int]:
    """Where a cut of a kernel gives other bits than the evaluator, in words, and how many gave the same."""
    given, meant, same = bits.arguments(made.program), None, 0
    for i, (cut, schedule) in enumerate(bits.cuts(made)):
        program, target = replace(made.program, cut=cut, schedule=schedule), TARGETS[(rotate + i) % len(TARGETS)]
        kernel = kernel_of(program)
        if meant is None:
            meant = copies(given)
            with np.errstate(all="ignore"):
                kernel.evaluate(*meant)
        got = copies(given)
        try:
            with few_units(program):
                compiled = kernel.compile(*got, target=target)
        except (wd.ConstraintError, wd.RegisterPressureError):
            continue
        compiled.emulate(*got)
        for array, mine, theirs in zip(program.arrays, got, meant):
            other = bits.differ(mine, theirs)
            if other.any():
                at = tuple(int(i) for i in np.argwhere(other)[0])
                text = f"{array.name}{list(at)} on {target} is {mine[at]}, not {theirs[at]}"
                return f"{text}\n{program.source(target)}", same
        same += 1
    return "", same


def test_operations_that_round_once() -> None:
    until, seed, same = time.monotonic() + SECONDS, SEED, 0
    while time.monotonic() < until or not same:
        text, right = apart(bits.draw(seed), seed)
        assert not text, f"seed {seed}: {text}"
        same += right
        seed += 1
    print(f"seeds {SEED}:{seed}: {same} cuts")


def test_a_seed_draws_one_kernel() -> None:
    first, again = bits.draw(5), bits.draw(5)
    assert first.program.source() == again.program.source() and bits.cuts(first) == bits.cuts(again)


@pytest.mark.parametrize("wrong", ["fused", "twice", "zero"])
def test_a_wrong_bit_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product and a sum in one step, a half that is not rounded between two operations, a zero of the other sign."""
    original = wd.CompiledKernel.emulate

    def broken(self: wd.CompiledKernel, *args: Any, **kwargs: Any) -> Any:
        report = original(self, *args, **kwargs)
        x, y, z, out = (a.astype(np.float64) for a in args[:4])
        if wrong == "fused":
            args[3][...] = (x * y + z).astype(np.float16)
        elif wrong == "twice":
            args[3][...] = ((x * y).astype(np.float32) + z.astype(np.float32)).astype(np.float16)
        else:
            args[3][...] = np.where(out == 0, -out, out)
        return report

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(
        x: wd.Memory[M, wd.f16], y: wd.Memory[M, wd.f16], z: wd.Memory[M, wd.f16], out: wd.Memory[M, wd.f16]
    ):  # fmt: skip
        wd.write(wd.read(x) * wd.read(y) + wd.read(z), out)

    rng = np.random.default_rng(0)
    given = [rng.standard_normal(400).astype(np.float16) for _ in range(3)]
    given[0][:40] = given[2][:40] = 0
    given = [*given, np.zeros(400, np.float16)]
    meant, got = copies(given), copies(given)
    kernel.evaluate(*meant)
    compiled = kernel.compile(*got, target="gfx942")
    compiled.emulate(*got)
    assert not bits.differ(got[3], meant[3]).any()
    monkeypatch.setattr(wd.CompiledKernel, "emulate", broken)
    compiled.emulate(*got)
    assert bits.differ(got[3], meant[3]).any()


# ---- schedules that say how data move


def product(cut: Sequence[Any], schedule: wd.Schedule) -> Any:
    @wd.wave([*cut, wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)], schedule=schedule)
    def kernel(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return kernel


def attention(cut: Sequence[Any], schedule: wd.Schedule) -> Any:
    @wd.wave([*cut, wd.TilingConstraint(N, 32)], schedule=schedule)
    def kernel(
        q: wd.Memory[M, D, wd.bf16], k: wd.Memory[N, D, wd.bf16], v: wd.Memory[N, D, wd.bf16],
        o: wd.Memory[M, D, wd.f32],
    ):  # fmt: skip
        one = wd.Register[M, wd.f32]

        @wd.iterate(N, init_args=[one(-1e30), one(0.0), wd.Register[M, D, wd.f32](0.0)])
        def loop(top, total, acc):
            scores = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0)) * 0.3
            higher = wd.maximum(top, wd.max(scores, dim=N))
            p, keep = wd.exp2(scores - higher), wd.exp2(top - higher)
            more = wd.mma(wd.cast(p, wd.bf16), wd.read(v), acc * keep)
            return higher, total * keep + wd.sum(p, dim=N), more

        wd.write(loop[2] / loop[1], o)

    return kernel


def sums(cut: Sequence[Any], schedule: wd.Schedule) -> Any:
    @wd.wave([*cut, wd.TilingConstraint(K, 32)], schedule=schedule)
    def kernel(a: wd.Memory[M, K, wd.f16], o: wd.Memory[M, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(total):
            return total + wd.sum(wd.exp2(wd.cast(wd.read(a), wd.f32)), dim=K)

        wd.write(loop, o)

    return kernel


def normal(seed: int, *shape: int, dtype: wd.DType = wd.f16) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype.storage)


KERNELS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "product": (product, [normal(0, 100, 160), normal(1, 80, 160), np.zeros((100, 80), np.float32)]),
    "attention": (attention, [*(normal(i, n, 64, dtype=wd.bf16) for i, n in enumerate((100, 160, 160))),
                              np.zeros((100, 64), np.float32)]),
    "sums": (sums, [normal(0, 20, 300), np.zeros(20, np.float32)]),
}  # fmt: skip
MOVING: dict[str, tuple[Any, ...]] = {
    "stages": (1, 2, 3), "swizzle": (True, False), "direct_to_shared": (True, False), "persistent": (True,),
    "ping_pong": (True,), "specialize": (True, False), "cluster": ((2, 1, 1), (1, 2, 1)), "prefetch": (1, 2),
    "dependent": (True,),
}  # fmt: skip
"""What moves data, or says which workgroup computes a tile."""


@pytest.mark.parametrize("target", ["gfx942", pytest.param("sm_80", marks=pytest.mark.slow), "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_schedules_that_move_data_alone(name: str, target: str) -> None:
    """Sums of numbers that round: their bits are those of a schedule that nobody asked for."""
    make, given = KERNELS[name]
    rows, waves = (16, 1) if name == "sums" else (64, 1 if target == "sm_90a" else 2)
    cut = [wd.WorkgroupConstraint(M, rows, 0), wd.WaveConstraint(M, rows // waves)]
    bits_of: dict[str, bytes] = {}
    for option, value in [("", None), *((k, v) for k, values in MOVING.items() for v in values)]:
        got = copies(given)
        try:
            compiled = make(cut, wd.Schedule(**({option: value} if option else {}))).compile(*got, target=target)
        except wd.ConstraintError:
            continue
        compiled.emulate(*got)
        bits_of[f"{option}={value}"] = got[-1].tobytes()
    assert len(bits_of) > 3 and len({*bits_of.values()}) == 1, list(bits_of)
