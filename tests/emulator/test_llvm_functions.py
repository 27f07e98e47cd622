"""Small functions that LLVM compiled (tests/vectors/llvm/functions.py), each against NumPy."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wavedsl.runtime.emulator import run

FOLDER = Path(__file__).parents[1] / "vectors" / "llvm"
KINDS = {
    "i32": np.int32, "i64": np.int64, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "2f32": np.float32,
}  # fmt: skip


@functools.cache
def module() -> Any:
    spec = importlib.util.spec_from_file_location("llvm_functions", FOLDER / "functions.py")
    assert spec is not None and spec.loader is not None
    found = sys.modules["llvm_functions"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


CASES = [(f.name, chip) for chip in (*module().AMD, *module().NVPTX) for f in module().of(chip)]


@functools.cache
def text(chip: str) -> str:
    return (FOLDER / f"functions.{chip}.{'s' if chip.startswith('gfx') else 'ptx'}").read_text()


def numbers(f: Any, type_: str, seed: int) -> np.ndarray:
    """Any bits, special values and neighbours among them; within the function's limits where it has some."""
    kind, count = np.dtype(KINDS[type_]), 128 if type_[0] == "2" else 64
    rng = np.random.default_rng(seed)
    if f.within is not None:
        found = rng.uniform(*f.within, count)
        return (np.trunc(found) if f.whole else found).astype(kind)
    found = np.frombuffer(rng.bytes(count * kind.itemsize), kind).copy()
    common = np.frombuffer(np.random.default_rng(0).bytes(8 * kind.itemsize), kind)  # the same for x, y and z
    found[:8] = common
    if kind.kind == "f":
        found[8:16] = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1.5, 2.5]
        found[16:24] = rng.permutation(found[8:16])
        found[24:] = rng.standard_normal(count - 24) * 100
        if f.result == "f32":  # signalling NaNs and what overflows on the way are not what is asked here
            found[:8] = common[0:1] * 0 + 3
    return found


def compare(f: Any, got: np.ndarray, want: Any) -> None:
    want = np.asarray(want)
    if f.ulp:
        bound = f.ulp * np.spacing(np.abs(want).astype(got.dtype))
        assert (np.abs(got.astype(np.float64) - want) <= bound).all()
    else:
        np.testing.assert_array_equal(got, want.astype(got.dtype))


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_function(name: str, chip: str) -> None:
    f = next(f for f in module().of(chip) if f.name == name)
    given = [numbers(f, t, i + 1) for i, t in enumerate(f.given.split())]
    where = {"target": chip, "kernel": name, "checks": True, "grid": (1, 1, 1)}
    with np.errstate(all="ignore"):
        want = f.meaning(*given)
    if not f.uniform:
        out = np.zeros(128 if f.result[0] == "2" else 64, KINDS[f.result])
        run(text(chip), block=(64, 1, 1), args=[*given, out], **where)
        compare(f, out, want)
        return
    for i in (0, 9, 10, 11, 12):  # equal numbers, then four pairs of others
        out = np.zeros(1, KINDS[f.result])
        run(text(chip), block=(1, 1, 1), args=[out, *(x[i] for x in given)], **where)
        compare(f, out, want[i : i + 1])
