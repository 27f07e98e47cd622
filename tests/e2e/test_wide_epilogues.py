"""What follows a product with many results per lane is computed as it is stored, so that it needs no registers of its
own: bias, GELU and a residual on tiles that fill half of the registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wavedsl as wd

M, N, K = wd.symbols("M N K")
BF16 = ml_dtypes.bfloat16


def gelu_kernel(tile: tuple[int, int], waves: tuple[int, int], add: str = "argument", **schedule: Any) -> Any:
    """`add`: the residual is an argument, the array that is written, or an argument read the other way round."""
    constraints = [
        wd.WorkgroupConstraint(M, tile[0], 0), wd.WorkgroupConstraint(N, tile[1], 1), wd.TilingConstraint(K, 32),
        wd.WaveConstraint(M, waves[0]), wd.WaveConstraint(N, waves[1]),
    ]  # fmt: skip

    @wd.wave(constraints, schedule=wd.Schedule(**schedule))
    def kernel(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], bias: wd.Memory[N, wd.f32],
        residual: wd.Memory[M, N, wd.bf16], turned: wd.Memory[N, M, wd.bf16], c: wd.Memory[M, N, wd.bf16],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        x = loop + wd.read(bias)
        y = 0.5 * x * (1 + wd.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
        added = {"argument": residual, "turned": turned, "in-place": c}[add]
        wd.write(wd.cast(y + wd.cast(wd.read(added), wd.f32), wd.bf16), c)

    return kernel


CASES = [
    ("gfx942", (256, 256), (128, 64)), ("gfx942", (128, 128), (64, 64)), ("gfx90a", (256, 256), (128, 64)),
    ("gfx950", (256, 128), (64, 64)), ("sm_80", (128, 128), (64, 64)), ("sm_90a", (128, 128), (64, 128)),
]  # fmt: skip


def check(kernel: Any, target: str, sizes: tuple[int, int, int], add: str) -> wd.CompiledKernel:
    m, n, k = sizes
    rng = np.random.default_rng(1)
    a, b, residual = (rng.standard_normal(s).astype(BF16) for s in ((m, k), (n, k), (m, n)))
    bias = rng.standard_normal(n).astype(np.float32)
    c = residual.copy() if add == "in-place" else np.full((m, n), np.nan, BF16)
    turned = np.ascontiguousarray(residual.T)
    compiled = kernel.compile(a, b, bias, residual, turned, c, target=target)
    compiled.emulate(a, b, bias, residual, turned, c)
    x = a.astype(np.float64) @ b.astype(np.float64).T + bias
    want = 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))) + residual.astype(np.float64)
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=2**-8, atol=2e-3)
    return compiled


@pytest.mark.parametrize(("target", "tile", "waves"), CASES, ids=str)
@pytest.mark.parametrize("add", ["argument", "in-place", "turned"])
def test_gelu_of_a_product_and_a_residual(add: str, target: str, tile: tuple[int, int], waves: tuple[int, int]) -> None:
    kernel = gelu_kernel(tile, waves, add)
    for sizes in ((256, 256, 64), (130, 67, 33)):
        compiled = check(kernel, target, sizes, add)
        if add == "argument" and target.startswith("gfx") and sizes[0] == 256:
            assert compiled.resources.scratch_bytes == 0


@pytest.mark.parametrize("schedule", [{"split_k": 2}, {"stream_k": True}], ids=str)
@pytest.mark.parametrize(
    ("target", "tile", "waves"), [c if c[0] == "gfx942" else pytest.param(*c, marks=pytest.mark.slow) for c in CASES],
    ids=str,
)
def test_behind_branches(target: str, tile: tuple[int, int], waves: tuple[int, int], schedule: dict[str, Any]) -> None:
    """Whoever comes last adds the parts and does what follows, in a branch: it takes no registers of its own there,
    either."""
    kernel = gelu_kernel(tile, waves, **schedule)
    compiled = check(kernel, target, (256, 256, 128), "argument")
    check(kernel, target, (130, 67, 100), "argument")
    assert compiled.resources.spills in (0, None)
    if target.startswith("gfx"):
        alone = check(gelu_kernel(tile, waves), target, (256, 256, 128), "argument")
        assert compiled.resources.vgprs <= alone.resources.vgprs + 16
