"""What holds of any kernel whose trips workgroups share (`split_k`, `stream_k`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hopper
import numpy as np
import products
import pytest
from products import BF16, F16

import wavedsl as wd


def warpgroups_agree(
    epilogue: str, schedule: wd.Schedule, m: int, oracle: Callable[[str], str], *, copying: bool
) -> wd.CompiledKernel:
    """A product of warpgroups on sm_90a with an epilogue: emulator and evaluator agree, ptxas spills nothing.

    `m`: rows; `copying`: whether a warpgroup of its own copies.
    """
    kernel = hopper.gemm(BF16, epilogue=epilogue, schedule=schedule)
    a, b, c = products.operands(BF16, m, 136, 400)
    more = {
        "bias relu": [products.numbers((136,), wd.f32, 1)],
        "scales silu": [np.full(m, 2.0**-5, np.float32), np.full(136, 1.0, np.float32)],
    }.get(epilogue, [])
    given = [a, b, *more, c] if more else [a, b, c, np.zeros_like(c), 0.5, 2.0]
    meant = [x.copy() if isinstance(x, np.ndarray) else x for x in given]
    subs = hopper.tiles(128, 128, 64, 64, 128)
    kernel.evaluate(*meant, subs=subs)
    compiled = kernel.compile(*given, target="sm_90a", subs=subs)
    assert all(word in compiled.asm for word in ("wgmma.mma_async", "cp.async.bulk.tensor"))
    assert ("copying warpgroup" in compiled.kernel_ir.notes["lowering"].roles) == copying
    compiled.emulate(*given)
    for got, want in zip(given, meant):
        if isinstance(got, np.ndarray):
            np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=2**-7)
    products.assemble(compiled, oracle)
    made = hopper.static(compiled.asm)
    assert not made.spills and not made.codes and made.products
    return compiled


def same_bits_in_any_order(
    schedule: wd.Schedule, m: int, target: str, subs: dict[Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator runs workgroups and waves in another order for each seed; f32 sums would show it."""
    kernel = products.gemm(F16, schedule=schedule)
    a, b, c = products.operands(F16, m, 40, 300, values="normal")
    compiled = kernel.compile(a, b, c, target=target, subs=subs)
    found = []
    for seed in ("1", "2", "3"):
        monkeypatch.setenv("WAVEDSL_SEED", seed)
        out = np.full_like(c, np.nan)
        compiled.emulate(a, b, out)
        found.append(out.tobytes())
    assert len(set(found)) == 1
    want, magnitude = products.exact(a, b, F16)
    products.expect_product(out, want, magnitude, 300, F16)
