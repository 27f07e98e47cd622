"""Products of 8-bit floats by `mma.sync` are made of f16: of some that it makes itself, ptxas loses C."""

from __future__ import annotations

import re

import numpy as np
import pytest

import wavedsl as wd

K, M, N = wd.symbols("K M N")


@pytest.mark.parametrize("out", [wd.f32, wd.f16], ids=str)
@pytest.mark.parametrize("left", [wd.f8e4m3, wd.f8e5m2], ids=str)
@pytest.mark.parametrize("right", [wd.f8e4m3, wd.f8e5m2], ids=str)
def test_products_are_those_of_numpy(left: wd.DType, right: wd.DType, out: wd.DType) -> None:
    """With a bias, K that is no multiple of 32, and every bit of a byte used: infinities and NaN too."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 64),
         wd.WaveConstraint(M, 32), wd.HardwareConstraint(threads_per_wave=32)],
    )  # fmt: skip
    def product(a: wd.Memory[M, K, left], b: wd.Memory[N, K, wd.SHARED, right], c: wd.Memory[M, N, out]):
        @wd.iterate(K, init_args=[wd.Register[M, N, out](1.0)])
        def loop(acc: wd.Register[M, N, out]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, x).astype(t.storage) for x, t in (((70, 104), left), ((40, 104), right)))
    a[3, 7], a[9, 2], b[5, 103] = np.inf, np.nan, -np.inf  # f8e4m3 has no infinities: NaN
    c = np.full((70, 40), 77, out.storage)
    compiled = product.compile(a, b, c, target="sm_90a")
    assert "m16n8k32" not in compiled.asm and "m16n8k16" in compiled.asm
    compiled.emulate(a, b, c)
    with np.errstate(invalid="ignore"):
        want = (1.0 + a.astype(np.float64) @ b.astype(np.float64).T).astype(out.storage)
    np.testing.assert_array_equal(c, want)


def test_a_zero_that_is_all_of_c_outlives_the_first_element() -> None:
    """Seed 340061 on an H200: the last product of a zero took the zero's register for its own first element."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WaveConstraint(M, 16), wd.TilingConstraint(N, 32)])
    def sums(a: wd.Memory[M, K, wd.f8e4m3], b: wd.Memory[N, K, wd.f8e4m3], y: wd.Memory[M, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0)])
        def loop(total):
            return total + wd.sum(wd.mma(wd.read(a), wd.read(b)), dim=N)

        wd.write(loop, y)

    rng = np.random.default_rng(6)
    a, b = (rng.integers(-3, 4, shape).astype(wd.f8e4m3.storage) for shape in ((32, 16), (46, 16)))
    y = np.full(32, 77, np.float32)
    compiled = sums.compile(a, b, y, target="sm_90a")
    products = re.findall(r"mma\.sync\S+ +\{(.*?)\}, \{.*?\}, \{.*?\}, \{(.*?)\};", compiled.asm)
    assert any(d.split(", ")[0] in c for d, c in products) and "m16n8k32" not in compiled.asm
    compiled.emulate(a, b, y)
    np.testing.assert_array_equal(y, (a.astype(np.float32) @ b.astype(np.float32).T).sum(1))
