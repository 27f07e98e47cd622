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
from wavedsl.strategies import GEMM_STRATEGIES, grouped_matmul, matmul

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
    precision: str | None = None


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
        one((None, "ieee", "tf32", "3xtf32")) if dtype is wd.f32 else None,
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
        matmul(a, b, c, alpha=call.alpha, beta=call.beta, transpose_b=call.b_rows, strategy=call.strategy,
               precision=call.precision)  # fmt: skip
    except wd.ConstraintError:
        if call.strategy == "auto":
            raise
        return False
    np.testing.assert_array_equal(c.astype(np.float64), want.astype(np.float64))
    unchanged(c, before)
    return True


def unchanged(c: np.ndarray, before: np.ndarray | None) -> None:
    """What lies around a result is what it was."""
    if before is not None:
        c[...] = 0
        around = np.ones(before.shape, np.bool_)
        start = (c.__array_interface__["data"][0] - c.base.__array_interface__["data"][0]) // c.itemsize
        np.lib.stride_tricks.as_strided(
            around.reshape(-1)[start:], c.shape, [s // c.itemsize for s in c.strides]
        )[...] = False  # fmt: skip
        np.testing.assert_array_equal(c.base[around].astype(np.float64), before[around].astype(np.float64))


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


def test_drawn_grouped_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of any sizes, many of them empty, as arrays that lie anywhere."""
    until, seed = time.monotonic() + SECONDS, SEED
    while time.monotonic() < until:
        rng = np.random.default_rng([6, seed])
        call = draw(rng)
        sizes = [int(n) * int(rng.random() < 0.8) for n in rng.integers(0, 90, int(rng.integers(1, 7)))]
        said = f"seed {seed}, {call}, sizes {sizes}"
        try:
            check_grouped(call, sizes, rng, monkeypatch)
        except Exception as error:
            raise AssertionError(f"{said}: {type(error).__name__}: {error}") from error
        seed += 1
    print(f"seeds {SEED}:{seed}")


def check_grouped(call: Call, sizes: list[int], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    _, n, k = call.sizes
    n, k, rows, groups = min(n, 150), min(k, 256), sum(sizes), len(sizes)
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{call.target}")
    full = 0.1 if call.out.bits == 16 else 0.8
    most = 1 if call.out is wd.bf16 else 2
    a = array(rng, (rows, k), call.dtype, call.spread[0], most, full)
    b = array(rng, (groups * n, k) if call.b_rows else (groups * k, n), call.dtype, "plain", most, 0.8)
    b = b.reshape(groups, n, k) if call.b_rows else b.reshape(groups, k, n)
    c = array(rng, (rows, n), call.out, call.spread[2], 3, 1.0)
    starts = np.cumsum([0, *sizes])
    wide = (b.transpose(0, 2, 1) if call.b_rows else b).astype(np.float64)
    exact = [a[i:j].astype(np.float64) @ w for i, j, w in zip(starts, starts[1:], wide)]
    want = call.alpha * np.concatenate(exact) + call.beta * c.astype(np.float64)
    want = want.astype(np.float32).astype(call.out.storage).astype(np.float64)
    before = None if c.base is None else c.base.copy()
    if not call.beta and call.out.is_float:
        c[...] = np.nan
    grouped_matmul(a, b, c, sizes, alpha=call.alpha, beta=call.beta, transpose_b=call.b_rows)
    np.testing.assert_array_equal(c.astype(np.float64), want)
    unchanged(c, before)


def test_calls_of_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of any dtype, rank and layout: the product, or an error of wavedsl's."""
    until, seed = time.monotonic() + SECONDS, SEED
    while time.monotonic() < until:
        rng = np.random.default_rng([7, seed])
        call = draw(rng)
        arrays, said = odd_arrays(call, rng)
        monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{call.target}")
        a, b, c = arrays
        want = odd_product(call, a, b, c)
        what = f"seed {seed}, {call}, {said}"
        try:
            matmul(a, b, c, alpha=call.alpha, beta=call.beta, transpose_b=call.b_rows, strategy=call.strategy,
                   precision=call.precision)  # fmt: skip
        except wd.WaveError as error:
            assert isinstance(error, (wd.LaunchError, wd.ConstraintError)), f"{what}: {error}"
            assert "gemm_" not in error.message, f"{what}: {error}"  # kernels that the user has not written
            want = None
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        if want is not None:
            np.testing.assert_array_equal(np.asarray(c).astype(np.float64), want, err_msg=what)
        seed += 1
    print(f"seeds {SEED}:{seed}")


def odd_arrays(call: Call, rng: np.random.Generator) -> tuple[list[Any], str]:
    """The arrays of a call, one or two of them changed, and how."""
    m, n, k = (min(s, 100) for s in call.sizes)
    m, n, k = (0 if rng.random() < 0.1 else s for s in (m, n, k))
    shapes = ((m, k), (n, k) if call.b_rows else (k, n), (m, n))
    dtypes = (call.dtype, call.dtype, call.out)
    found: list[Any] = [array(rng, s, d, "plain", 1, 0.1) for s, d in zip(shapes, dtypes)]
    ways = {
        "i16": lambda x: x.astype(np.int16), "u8": lambda x: abs(x.astype(np.float32)).astype(np.uint8),
        "i64": lambda x: x.astype(np.int64), "f64": lambda x: x.astype(np.float64),
        "f16": lambda x: x.astype(np.float16), "bool": lambda x: x.astype(np.bool_),
        "complex": lambda x: x.astype(np.complex64), "backwards": lambda x: x[::-1], "mirrored": lambda x: x[:, ::-1],
        "flat": lambda x: x.reshape(-1), "deep": lambda x: x[None], "list": lambda x: x.tolist(),
        "none": lambda x: None, "repeated": lambda x: np.broadcast_to(x[:1], x.shape) if len(x) else x,
        "spaced": lambda x: np.repeat(x, 2, axis=1)[:, ::2], "odd bytes": _off_by_a_byte,
        "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")), "turned": lambda x: x.T, "number": lambda x: 3.0,
    }  # fmt: skip
    said = []
    for _ in range(int(rng.integers(1, 3))):
        which, way = int(rng.integers(3)), list(ways)[int(rng.integers(len(ways)))]
        if isinstance(found[which], np.ndarray) and found[which].ndim == 2:
            with np.errstate(invalid="ignore"):
                found[which] = ways[way](found[which])
            said.append(f"{'abc'[which]} {way}")
    return found, ", ".join(said)


def _off_by_a_byte(x: np.ndarray) -> np.ndarray:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    found = np.ndarray(x.shape, x.dtype, memory.data, 1)
    found[...] = x
    return found


def odd_product(call: Call, a: Any, b: Any, c: Any) -> np.ndarray | None:
    """What C becomes if the call is one that has a meaning."""
    if any(np.asarray(x).dtype.kind not in "biufV" for x in (a, b, c)):
        return np.zeros(0)
    try:
        wide = [np.asarray(x).astype(np.float64) for x in (a, b, c)]
        exact = call.alpha * (wide[0] @ (wide[1].T if call.b_rows else wide[1])) + call.beta * wide[2]
        if c.dtype.kind in "iu" and a.dtype.kind not in "iu":  # casts of floats keep within the dtype
            exact = np.clip(np.trunc(exact), *(getattr(np.iinfo(c.dtype), end) for end in ("min", "max")))
        return exact.astype(np.int64 if a.dtype.kind in "iu" else np.float64).astype(c.dtype).astype(np.float64)
    except (TypeError, ValueError, AttributeError):
        return np.zeros(0)


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
