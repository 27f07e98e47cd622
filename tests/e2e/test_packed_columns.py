"""Arrays of 4-bit elements whose last dimension counts columns of a product: zero points of groups, weights as AWQ and
GPTQ pack them. Lanes hold one of two neighbours. Graph evaluator, emulator and assembler agree; clocks are the model's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import packed
import pytest
from agree import agree, near
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

TARGETS = ("gfx942", "gfx950", "sm_80", "sm_90a")
M, N, K = wd.symbols("M N K")
GROUP = 64
CROSSING = re.compile(r"_dpp|ds_swizzle|ds_bpermute|v_permlane|shfl\.")


def linear(rows: int, weights: wd.DType, zeros: wd.DType, columns: bool, to: wd.DType = wd.f16) -> Any:
    """x (q - zero)ᵀ. `columns`: the weights' last dimension counts columns too."""
    shape = (K, N) if columns else (N, K)

    @wd.wave([wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
    def product(
        x: wd.Memory[M, K, to], w: wd.Memory[(*shape, weights)], zero: wd.Memory[K / GROUP, N, zeros],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            q = wd.cast(wd.read(w), to) - wd.repeat_interleave(wd.cast(wd.read(zero), to), K)
            return wd.mma(wd.read(x), q, acc)

        wd.write(total, y)

    return product


def data(
    m: int, n: int, k: int, weights: wd.DType, zeros: wd.DType, columns: bool, to: wd.DType = wd.f16
) -> tuple[list[Any], np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (m, k)).astype(to.numpy)
    w, q = packed.operand(rng, weights, (k, n) if columns else (n, k))
    if zeros.bits == 8:
        zero = z = rng.integers(-128, 128, (k // GROUP, n)).astype(np.int8)
    else:
        zero, z = packed.operand(rng, zeros, (k // GROUP, n))
    want = x.astype(np.float64) @ ((q if columns else q.T) - np.repeat(z.astype(np.float64), GROUP, 0))
    return [x, w, zero, np.zeros((m, n), np.float32)], want


@pytest.mark.parametrize("columns", [False, True], ids=["zeros", "weights and zeros"])
@pytest.mark.parametrize("types", [(wd.u4, wd.u4), (wd.i4, wd.i4), (wd.u4, wd.i4), (wd.f4e2m1, wd.f4e2m1)], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_sums_are_those_of_numpy(
    target: str, types: tuple[wd.DType, wd.DType], columns: bool, oracle: Callable[[str], str]
) -> None:
    """Columns that fill no tile; all codes beside all others."""
    for m, n, k in ((16, 64, 128), (5, 70, 192)):
        arguments, want = data(m, n, k, *types, columns)
        compiled = agree(linear(16, *types, columns), arguments, target, oracle, near(1.0))
        compiled.emulate(*arguments)
        np.testing.assert_array_equal(arguments[-1], want)


@pytest.mark.parametrize("columns", [False, True], ids=["zeros", "weights and zeros"])
@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
def test_other_types(target: str, columns: bool) -> None:
    """bf16 has no room for 8 bits beside its power of two, but for 4 bits less 4 bits."""
    for types in ((wd.u4, wd.u4), (wd.i4, wd.u4), (wd.u4, wd.i8)):
        rows = 64 if target == "sm_90a" else 16
        arguments, want = data(rows, 64, 128, *types, columns, wd.bf16)
        linear(rows, *types, columns, wd.bf16).compile(*arguments, target=target).emulate(*arguments)
        np.testing.assert_array_equal(arguments[-1], want)


@pytest.mark.parametrize("columns", [False, True], ids=["zeros", "weights and zeros"])
@pytest.mark.parametrize("target", TARGETS)
def test_no_lane_asks_another(target: str, columns: bool) -> None:
    """Trips too few to be shared: workgroups that add parts exchange sums."""
    arguments, _ = data(16, 256, 192, wd.u4, wd.u4, columns)
    asm = linear(16, wd.u4, wd.u4, columns).compile(*arguments, target=target).asm
    assert not CROSSING.search(asm)


@pytest.mark.warpgroups
@pytest.mark.parametrize("target", TARGETS)
def test_a_power_of_two_is_taken_off_with_the_zero_point(target: str) -> None:
    """What weights are made with is added to the zero points once, and no difference of its own takes it off."""

    def sums(zeros: bool) -> int:
        arguments, _ = data(16, 256, 1024, wd.u4, wd.u4, False)
        kernel = linear(16, wd.u4, wd.u4, False)
        if not zeros:
            @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
            def kernel(x: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, wd.u4], y: wd.Memory[M, N, wd.f32]):
                @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
                def total(acc):
                    return wd.mma(wd.read(x), wd.cast(wd.read(w), wd.f16), acc)

                wd.write(total, y)

            del arguments[2]
        compiled = kernel.compile(*arguments, target=target)
        return len(re.findall(r"v_pk_add_f16|(?:add|sub)\.rn\.f16x2", compiled.asm)) * GROUP // _trips(compiled)

    assert sums(True) <= sums(False) * 1.3


def _trips(compiled: wd.CompiledKernel) -> int:
    """Products of a workgroup's text, as a measure of the trips that it holds."""
    return len(re.findall(r"v_mfma|mma\.sync|wgmma\.mma_async", compiled.asm))


CLOCKS = {
    (False, "gfx942"): (12_600, 13_510), (True, "gfx942"): (13_400, 27_021),
    (False, "gfx950"): (12_000, 12_486), (True, "gfx950"): (13_800, 27_160),
    (False, "sm_80"): (25_200, 26_287), (True, "sm_80"): (32_000, 70_039),
    (False, "sm_90a"): (34_800, 35_788), (True, "sm_90a"): (36_500, 63_184),
}  # fmt: skip
"""Of 16 rows by 4096 x 4096 weights with scales: at most, and where lanes exchanged what they had loaded."""


@pytest.mark.parametrize("columns", [False, True], ids=["zeros", "weights and zeros"])
@pytest.mark.parametrize("target", TARGETS)
def test_clocks(target: str, columns: bool) -> None:
    shape = (K, N) if columns else (N, K)

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
    def scaled(
        x: wd.Memory[M, K, wd.f16], w: wd.Memory[(*shape, wd.u4)], zero: wd.Memory[K / GROUP, N, wd.u4],
        scale: wd.Memory[K / GROUP, N, wd.f16], y: wd.Memory[M, N, wd.f16],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            q = wd.cast(wd.read(w), wd.f16) - wd.repeat_interleave(wd.cast(wd.read(zero), wd.f16), K)
            return wd.mma(wd.read(x), q * wd.repeat_interleave(wd.read(scale), K), acc)

        wd.write(wd.cast(total, wd.f16), y)

    (x, w, zero, _), _ = data(16, 4096, 4096, wd.u4, wd.u4, columns)
    scale = (np.random.default_rng(1).integers(1, 4, (4096 // GROUP, 4096)) / 16).astype(np.float16)
    given = [x, w, zero, scale, np.zeros((16, 4096), np.float16)]
    most, before = CLOCKS[columns, target]
    assert sample(scaled.compile(*given, target=target), given).replay().cycles < most < before
