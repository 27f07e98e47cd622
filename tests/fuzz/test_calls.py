"""Calls of `matmul` with everything drawn at random: chip, types, sizes, strategy, factors, how arrays lie in memory.

What `auto` plans must compile for every shape, whole numbers must come out exactly, and what lies around an array must
stay. A strategy that was asked for by name may say that it does not suit.

    WAVEDSL_FUZZ_SECONDS=600 WAVEDSL_FUZZ_SEED=3000 pytest tests/fuzz/test_calls.py -s

A failure names its seed, which runs alone as the first of a run.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import wavedsl as wd
from wavedsl.strategies import GEMM_STRATEGIES, matmul

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
SECONDS = float(os.environ.get("WAVEDSL_FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("WAVEDSL_FUZZ_SEED", "0"))
NARROW = {"gfx942": wd.f8e4m3fnuz, "gfx950": wd.f8e4m3, "sm_90a": wd.f8e4m3}
OUT = {"f64": (wd.f64,), "f32": (wd.f32,), "i8": (wd.i32,)}
LENGTHS = (1, 2, 4, 7, 16, 33, 64, 65, 100, 128, 150, 192, 256, 300, 385)
DEPTHS = (1, 8, 16, 31, 32, 64, 100, 128, 256, 512, 1000, 1024, 2048)
MOST = 1 << 25
"""Multiply-adds at most: a second or so of the emulator."""


@dataclass(frozen=True)
class Call:
    """One call. `spread`: per array, how its elements lie in memory."""

    target: str
    dtype: wd.DType
    out: wd.DType
    sizes: tuple[int, int, int]
    b_rows: bool
    strategy: str
    alpha: float
    beta: float
    spread: tuple[str, str, str]


def draw(rng: np.random.Generator) -> Call:
    def one(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    target = one((*TARGETS, "sm_90a"))
    dtype = one((wd.f16, wd.bf16, wd.f16, wd.bf16, wd.f32, wd.f64, wd.i8, NARROW.get(target, wd.f16)))
    while True:
        sizes = one(LENGTHS), one(LENGTHS), one(DEPTHS)
        if sizes[0] * sizes[1] * sizes[2] <= MOST:
            break
    return Call(
        target, dtype, one(OUT.get(dtype.name, (wd.f32, wd.f16, wd.bf16))), sizes, one((False, True)),
        one(("auto", "auto", one(GEMM_STRATEGIES))), one((1.0, 1.0, 2.0)), one((0.0, 0.0, 1.0, -1.0)),
        tuple(one(("plain", "plain", "pitch", "inside", "turned")) for _ in range(3)),
    )  # fmt: skip


def array(
    rng: np.random.Generator, shape: tuple[int, int], dtype: wd.DType, spread: str, most: int, full: float
) -> Any:  # fmt: skip
    """Whole numbers up to `most`, a share `full` of them not 0; around them 3s."""
    rows, columns = shape
    around, at = {
        "plain": ((rows, columns), (0, 0)), "turned": ((columns, rows), (0, 0)),
        "pitch": ((rows, columns + int(rng.integers(1, 17))), (0, 0)), "inside": ((rows + 3, columns + 24), (2, 8)),
    }[spread]  # fmt: skip
    whole = np.full(around, 3).astype(dtype.storage)
    view = whole.T if spread == "turned" else whole[at[0] : at[0] + rows, at[1] : at[1] + columns]
    view[...] = (rng.integers(-most, most + 1, shape) * (rng.random(shape) < full)).astype(dtype.storage)
    return view


def check(call: Call, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the call's strategy took it. Raises AssertionError for a wrong number."""
    m, n, k = call.sizes
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{call.target}")
    full = 0.1 if call.out.bits == 16 else 0.8  # so that sums are exact in narrow results
    most = 1 if k > 256 or call.out is wd.bf16 else 2
    a = array(rng, (m, k), call.dtype, call.spread[0], most, full)
    b = array(rng, (n, k) if call.b_rows else (k, n), call.dtype, call.spread[1], most, 0.8)
    c = array(rng, (m, n), call.out, call.spread[2], 3, 1.0)
    exact = call.alpha * (a.astype(np.float64) @ (b.T if call.b_rows else b).astype(np.float64))
    want = (exact + call.beta * c.astype(np.float64)).astype(np.float32).astype(call.out.storage)
    before = None if c.base is None else c.base.copy()
    if not call.beta and call.out.is_float:
        c[...] = np.nan
    try:
        matmul(a, b, c, alpha=call.alpha, beta=call.beta, transpose_b=call.b_rows, strategy=call.strategy)
    except wd.ConstraintError:
        if call.strategy == "auto":
            raise
        return False
    np.testing.assert_array_equal(c.astype(np.float64), want.astype(np.float64))
    if before is not None:
        c[...] = 0
        around = np.ones(before.shape, np.bool_)
        start = (c.__array_interface__["data"][0] - c.base.__array_interface__["data"][0]) // c.itemsize
        np.lib.stride_tricks.as_strided(
            around.reshape(-1)[start:], c.shape, [s // c.itemsize for s in c.strides]
        )[...] = False  # fmt: skip
        np.testing.assert_array_equal(c.base[around].astype(np.float64), before[around].astype(np.float64))
    return True


def test_drawn_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    until, seed, taken = time.monotonic() + SECONDS, SEED, 0
    while time.monotonic() < until:
        rng = np.random.default_rng([5, seed])
        call = draw(rng)
        try:
            taken += check(call, rng, monkeypatch)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {call}: {type(error).__name__}: {error}") from error
        seed += 1
    assert taken > 0
    print(f"seeds {SEED}:{seed}, {taken} taken")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("sizes", [(100, 64, 1024), (150, 33, 2048)], ids=str)
def test_few_rows_of_f64(sizes: tuple[int, int, int], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two waves held 64 x 64 sums each: 256 registers per lane and more."""
    call = Call(target, wd.f64, wd.f64, sizes, True, "auto", 2.0, 0.0, ("plain", "plain", "plain"))
    assert check(call, np.random.default_rng(1), monkeypatch)


PLAIN = ("plain", "plain", "plain")
BYTES = {
    "few rows": Call("sm_80", wd.i8, wd.i32, (33, 129, 1001), True, "auto", 1.0, 0.0, PLAIN),
    "few rows, Hopper": Call("sm_90a", wd.i8, wd.i32, (33, 129, 1001), True, "auto", 1.0, 0.0, PLAIN),
    "waves along K": Call("sm_90a", wd.f8e4m3, wd.f16, (385, 385, 1), False, "wave_parallel", 1.0, -1.0, PLAIN),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_off_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads of single bytes take a register each: tiles that were copied a trip ahead took more than there are."""
    assert check(BYTES[name], np.random.default_rng(1), monkeypatch)
