"""Arguments of every dtype, on every chip: numbers by value, also narrow ones that share a word of the parameters, and
arrays of i1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N = wd.symbols("M N")
ROWS = [wd.WorkgroupConstraint(M, 8, 0)]


@wd.wave(ROWS)
def numbers(
    a: wd.Memory[M, N, wd.f32], byte: wd.Scalar[wd.u8], flag: wd.Scalar[wd.i1], half: wd.Scalar[wd.f16],
    small: wd.Scalar[wd.i8], long: wd.Scalar[wd.i64], brain: wd.Scalar[wd.bf16], wide: wd.Scalar[wd.f64],
    short: wd.Scalar[wd.i16], o: wd.Memory[M, N, wd.f32],
):  # fmt: skip
    x = wd.where(flag, wd.read(a), -1.0)
    for k, value in enumerate((byte, half, small, long, brain, wide, short)):
        x = x * 3 + wd.cast(value, wd.f32) * (k + 1)
    wd.write(wd.cond(~flag, lambda: x, lambda: x + 0.5), o)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("flag", [True, False])
def test_numbers(flag: bool, target: str, oracle: Callable[[str], str]) -> None:
    a = np.arange(80, dtype=np.float32).reshape(10, 8)
    values = (200, flag, 1.5, -3, -(2**33), -0.75, 2.5, -300)
    compiled = agree(numbers, [a, *values, np.zeros_like(a)], target, oracle)
    assert [p.size for p in compiled.params] == [8, 1, 1, 2, 1, 8, 2, 8, 2, 8]


def test_a_number_beyond_its_type() -> None:
    """A finite number does not become infinite on its way."""
    a = np.zeros((10, 8), np.float32)
    with pytest.raises(wd.LaunchError, match=r"argument `half` is 100000\.0, but the kernel declares a scalar f16"):
        numbers(a, 1, True, 1e5, 1, 1, 1, 1, 1, a.copy())


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_arrays_of_flags(target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave(ROWS)
    def kernel(
        a: wd.Memory[M, N, wd.i1], b: wd.Memory[N, wd.i1], x: wd.Memory[M, N, wd.f32],
        o: wd.Memory[M, N, wd.f32], both: wd.Memory[M, N, wd.i1], some: wd.Memory[M, wd.i1],
    ):  # fmt: skip
        p, q = wd.read(a), wd.read(b)
        wd.write(wd.where(p | q, wd.read(x), 0.0), o)
        wd.write(~(p & q), both)
        wd.write(wd.any(p, dim=N), some)

    rng = np.random.default_rng(0)
    a, b = rng.random((13, 37)) < 0.03, rng.random(37) < 0.5
    x = rng.standard_normal(a.shape).astype(np.float32)
    o, both, some = np.zeros_like(x), np.zeros_like(a), np.zeros(13, bool)
    agree(kernel, [a, b, x, o, both, some], target, oracle)
    kernel(a, b, x, o, both, some)
    assert np.array_equal(o, np.where(a | b, x, 0))
    assert np.array_equal(both, ~(a & b)) and np.array_equal(some, a.any(1))


def test_only_flags_are_written_to_flags() -> None:
    @wd.wave(ROWS)
    def kernel(a: wd.Memory[M, N, wd.f32], o: wd.Memory[M, N, wd.i1]):
        wd.write(wd.read(a), o)

    with pytest.raises(wd.TraceError, match="write: the value is f32, but o holds i1"):
        kernel.trace()
