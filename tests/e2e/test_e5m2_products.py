"""Products of f8e5m2 by `mma.sync` are made of f16: an H200 gave other numbers for what ptxas makes of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import wavedsl as wd

K, M, N = wd.symbols("K M N")


@pytest.mark.parametrize("out", [wd.f32, wd.f16], ids=str)
def test_products_are_those_of_numpy(out: wd.DType) -> None:
    """With a bias, K that is no multiple of 32, and every bit of a byte used: infinities and NaN too."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 64),
         wd.WaveConstraint(M, 32), wd.HardwareConstraint(threads_per_wave=32)],
    )  # fmt: skip
    def product(a: wd.Memory[M, K, wd.f8e5m2], b: wd.Memory[N, K, wd.SHARED, wd.f8e5m2], c: wd.Memory[M, N, out]):
        @wd.iterate(K, init_args=[wd.Register[M, N, out](1.0)])
        def loop(acc: wd.Register[M, N, out]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.float8_e5m2) for shape in ((70, 104), (40, 104)))
    a[3, 7], a[9, 2], b[5, 103] = np.inf, np.nan, -np.inf
    c = np.full((70, 40), 77, out.storage)
    compiled = product.compile(a, b, c, target="sm_90a")
    assert "e5m2.f" not in compiled.asm and "m16n8k16" in compiled.asm
    compiled.emulate(a, b, c)
    with np.errstate(invalid="ignore"):
        want = (1.0 + a.astype(np.float64) @ b.astype(np.float64).T).astype(out.storage)
    np.testing.assert_array_equal(c, want)
