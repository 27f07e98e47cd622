"""Integers of either sign: a product of 24 bits with a sum, and minima and maxima of three, in one instruction."""

from __future__ import annotations

import numpy as np
import pytest

import wavedsl as wd

X, K = wd.symbols("X K")


@wd.wave([wd.WorkgroupConstraint(X, 128, 0), wd.TilingConstraint(K, 64)])
def nearest(
    g: wd.Memory[K, wd.i32], low: wd.Memory[X, wd.i32], high: wd.Memory[X, wd.i32],
):  # fmt: skip
    """The least and the largest over all places of the distance along a row, squared with its sign, and a number."""

    @wd.iterate(K, init_args=[wd.Register[X, wd.i32](1 << 30), wd.Register[X, wd.i32](-(1 << 30))])
    def ends(least, most):
        d = wd.index(X) - wd.index(K)
        z = d * (d + 7) + wd.read(g)
        return wd.minimum(least, wd.min(z, dim=K)), wd.maximum(most, wd.max(z, dim=K))

    wd.write(ends[0], low)
    wd.write(ends[1], high)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_distances_of_either_sign(target: str) -> None:
    x, k = 200, 150
    g = np.random.default_rng(0).integers(-(2**29), 2**29, k).astype(np.int32)
    low, high = np.zeros(x, np.int32), np.zeros(x, np.int32)
    compiled = nearest.compile(g, low, high, target=target)
    for mnemonic in ("v_mad_i32_i24", "v_min3_i32", "v_max3_i32"):
        assert mnemonic in compiled.asm
    compiled.emulate(g, low, high)
    d = np.arange(x)[:, None] - np.arange(k)
    z = d * (d + 7) + g
    np.testing.assert_array_equal(low, z.min(1))
    np.testing.assert_array_equal(high, z.max(1))
