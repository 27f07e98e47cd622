"""`Schedule(cache_swizzle=)`: the bit and the stride in the descriptors of a kernel's buffers, the same results, and a
refusal where the chip has none."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import products
import pytest
from products import F16, TILE, K, M, N, gemm, operands

import wavedsl as wd

SUBS = dict(zip(TILE, (64, 64, 32, 32, 32)))


def strides(compiled: wd.CompiledKernel) -> set[int]:
    """The strides that descriptors ask for."""
    words = re.findall(r"s_or_b32\s+s\d+, s\d+, (0x[0-9a-f]+)", compiled.asm)
    return {int(w, 16) >> 16 & 0x3FFF for w in words if int(w, 16) >> 30 == 1}


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize(
    ("asked", "want"), [(None, set()), (False, set()), (True, {72, 50}), (1024, {1024}), (8192, {8192})]
)
def test_descriptors(target: str, asked: Any, want: set[int], oracle: Callable[[str], str]) -> None:
    a, b, c = operands(F16, 70, 50, 72)
    kernel = gemm(F16, schedule=wd.Schedule(cache_swizzle=asked))
    compiled = kernel.compile(a, b, c, target=target, subs=SUBS)
    assert strides(compiled) == want
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, F16, "NK")[0], F16)
    products.assemble(compiled, oracle)


def test_rows_too_long_or_unknown_ask_for_none() -> None:
    kernel = gemm(F16, schedule=wd.Schedule(cache_swizzle=True))
    compiled = kernel.compile(target="gfx942", subs={M: 64, N: 64, K: 8256, **SUBS})
    assert strides(compiled) == {64}
    a, b, c = operands(F16, 64, 64, 64)
    dynamic = gemm(F16, schedule=wd.Schedule(cache_swizzle=True), dynamic=(M, N, K))
    assert not strides(dynamic.compile(a, b, c, target="gfx942", subs=SUBS))


@pytest.mark.parametrize("target", ["gfx90a", "sm_80", "sm_90a"])
def test_refused_by_name(target: str) -> None:
    for asked in (True, 1024):
        with pytest.raises(wd.ConstraintError, match=rf"cache_swizzle={asked}\) is not available on {target}"):
            gemm(F16, schedule=wd.Schedule(cache_swizzle=asked)).compile(
                target=target, subs={M: 64, N: 64, K: 64, **SUBS}
            )


@pytest.mark.parametrize("asked", [0, 8193, 1.5])
def test_strides_that_no_descriptor_holds(asked: Any) -> None:
    with pytest.raises(wd.ConstraintError, match="a stride from 1 to 8192"):
        wd.Schedule(cache_swizzle=asked)


def test_arrays_keep_their_bits() -> None:
    """A copy of odd rows: bounds are checked as without the swizzle."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 32, 1)], schedule=wd.Schedule(cache_swizzle=True)
    )
    def copy(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a), b)

    x = np.random.default_rng(0).standard_normal((19, 37)).astype(np.float16)
    y = np.zeros_like(x)
    compiled = copy.compile(x, y, target="gfx950")
    assert strides(compiled) == {37}
    compiled.emulate(x, y)
    np.testing.assert_array_equal(x, y)
