"""Attention from Python to numbers on every target, with every check of the emulator on, against float64.

The sample covers both element types, head sizes, causal and full, sizes that do not divide the tiles, and each way a
chained product is fed.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import products
import pytest
from products import TARGETS

import wavedsl as wd

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _example() -> ModuleType:
    """examples/attention.py; the folder is on the path, last, while it imports what examples share."""
    spec = importlib.util.spec_from_file_location("wavedsl_example_attention", EXAMPLES / "attention.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(EXAMPLES))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop()
    return module


attention = _example()


def attend(
    target: str, dtype: wd.DType, sizes: tuple[int, int, int, int], causal: bool, **tiles: Any
) -> wd.CompiledKernel:
    """Compile for (heads, queries, keys, head size), emulate, compare within the bound; the compiled kernel."""
    heads, m, n, d = sizes
    random = np.random.default_rng(m + n)
    q, k, v = (random.standard_normal(s).astype(dtype.storage) for s in ((heads, m, d), (heads, n, d), (heads, n, d)))
    o = np.full(q.shape, products.SENTINEL, dtype.storage)
    scale = np.float32(1 / math.sqrt(d))
    compiled = attention.attention_kernel(dtype, causal=causal, **tiles).compile(q, k, v, o, scale, target=target)
    compiled.emulate(q, k, v, o, scale)
    want, allowed = attention.reference(q, k, v, float(scale), causal)
    error = np.abs(o.astype(np.float64) - want)
    assert (error <= allowed).all(), f"{(error / allowed).max()} of what is allowed"
    return compiled


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "sizes", "causal"),
    [
        (wd.f16, (2, 128, 128, 64), False),
        (wd.bf16, (1, 130, 77, 64), True),
        (wd.bf16, (1, 130, 77, 128), True),
        (wd.f16, (1, 128, 128, 128), False),
    ],
    ids=["f16-64", "bf16-64-causal-ragged", "bf16-128-causal-ragged", "f16-128"],
)
def test_attention(
    target: str, dtype: wd.DType, sizes: tuple[int, int, int, int], causal: bool, oracle: Callable[[str], str]
) -> None:
    # 32 rows of 128 accumulators and 64 scores are more than a warp of sm_80 has registers for.
    tile = (64, 32) if target == "sm_80" and sizes[3] == 128 else (128, 64)
    compiled = attend(target, dtype, sizes, causal, tile=tile)
    products.assemble(compiled, oracle)
    notes = compiled.kernel_ir.notes["lowering"]
    # Scores feed the second product from the registers they were made in, on AMD as its right operand.
    assert set(notes.exchanges.values()) <= {"renaming"}
    assert all(atom.endswith("swapped") == target.startswith("gfx") for atom in notes.atoms.values())


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize(
    ("sizes", "causal", "tile", "waves"),
    [
        ((1, 70, 90, 64), True, (64, 32), 4),
        ((1, 64, 90, 64), False, (64, 48), 4),  # tiles that are no power of two
        ((1, 40, 90, 80), True, (64, 16), 2),
        ((2, 33, 65, 40), False, (32, 64), 1),  # head size below the instruction's K and beyond it
    ],
)
def test_tiles(target: str, sizes: tuple[int, int, int, int], causal: bool, tile: tuple[int, int], waves: int) -> None:
    attend(target, wd.f16, sizes, causal, tile=tile, waves=waves)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_run_time_sizes(target: str) -> None:
    kernel = attention.attention_kernel(wd.f16, causal=True, tile=(64, 32))
    subs = {attention.H: 1, attention.D: 64}
    compiled = kernel.compile(target=target, subs=subs, dynamic=[attention.M, attention.N])
    random = np.random.default_rng(3)
    for m, n in ((64, 64), (50, 83)):
        q, k, v = (random.standard_normal((1, s, 64)).astype(np.float16) for s in (m, n, n))
        o = np.zeros_like(q)
        compiled.emulate(q, k, v, o, np.float32(0.125))
        want, allowed = attention.reference(q, k, v, 0.125, True)
        assert (np.abs(o.astype(np.float64) - want) <= allowed).all()
