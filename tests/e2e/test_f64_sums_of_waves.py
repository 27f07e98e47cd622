"""C of products of f64 on Hopper, chosen by a predicate of the warp: ptxas loses half of it where it may."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import numpy as np
import pytest

import wavedsl as wd

pytestmark = pytest.mark.every_case  # each has another choice of C
K, M, N = wd.symbols("K M N")


def started(zero: str) -> Any:
    """A product that starts from C in one of two waves that share K (`waves`), or if a number says so (`number`)."""
    waves = 2 if zero == "waves" else 1

    @wd.wave(
        [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 32),
         wd.WaveConstraint(K, 32 // waves), wd.HardwareConstraint(threads_per_wave=32)],
    )  # fmt: skip
    def product(
        a: wd.Memory[M, K, wd.f64], b: wd.Memory[N, K, wd.f64], c: wd.Memory[M, N, wd.f64], n: wd.Scalar[wd.i32],
        d: wd.Memory[M, N, wd.f64],
    ):  # fmt: skip
        x = wd.read(c)
        first = x if zero == "waves" else wd.where(n > 0, x, 0.0) if zero == "number" else wd.where(n > 0, 0.0, x)

        @wd.iterate(K, init_args=[first])
        def loop(acc: wd.Register[M, N, wd.f64]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, d)

    return product


@pytest.mark.parametrize("zero", ["waves", "number", "number, other way"])
@pytest.mark.parametrize("k", [32, 70])
def test_all_of_c_is_added(oracle: Any, tmp_path: Any, zero: str, k: int) -> None:
    """Seed 351135 on an H200. DMMA with a predicate got the first half of C, and words of it for the second."""
    rng = np.random.default_rng(k)
    a, b, c = (rng.integers(-5, 6, shape).astype(np.float64) for shape in ((16, k), (16, k), (16, 16)))
    for n in (0, 1):
        d = np.full((16, 16), 77.0)
        compiled = started(zero).compile(a, b, c, n, d, target="sm_90a")
        compiled.emulate(a, b, c, n, d)
        kept = zero == "waves" or (n > 0) == (zero == "number")
        np.testing.assert_array_equal(d, a @ b.T + c * kept)
    assert "m16n8" in compiled.asm
    text, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    text.write_text(compiled.asm)
    subprocess.run([oracle("ptxas"), "-arch=sm_90a", text, "-o", cubin], check=True)
    code = subprocess.run([oracle("nvdisasm"), "-c", cubin], check=True, capture_output=True, text=True).stdout
    products = re.findall(r"\bDMMA[^;]*", code)
    assert products and not [p for p in products if "UP" in p]
