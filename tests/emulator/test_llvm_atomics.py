"""Atomics that LLVM compiled from tests/vectors/llvm/atomics*.ll, each against LLVM's language reference
(`atomicrmw`, `cmpxchg`). No finding, in any order of lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from wavedsl.codegen.amdgcn.isa import TARGETS as AMD
from wavedsl.runtime.emulator import run

FOLDER = Path(__file__).parents[1] / "vectors" / "llvm"
GLOBAL = tuple(f"{chip} global" for chip in AMD)
"""The chips' atomics at addresses, instead of those in buffers."""
TARGETS = (*AMD, *GLOBAL, "sm_90")
SLOT = np.arange(64) % 8

Change = Callable[[Any, Any], Any]
INTEGERS: dict[str, Change] = {
    "add": lambda old, x: old + x,
    "smin": np.minimum, "smax": np.maximum, "umin": np.minimum, "umax": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "swap": lambda old, x: x,
}  # fmt: skip
FLOATS: dict[str, tuple[Any, Change]] = {
    "fadd_f32": (np.float32, np.add), "fadd_f64": (np.float64, np.add), "fadd_v2f16": (np.float16, np.add),
    "fmin_f64": (np.float64, np.minimum), "fmax_f64": (np.float64, np.maximum),
    "fadd_v2bf16": (ml_dtypes.bfloat16, np.add),
}  # fmt: skip

WHERE = {
    "fadd_v2bf16": ("gfx942 global", "gfx950 global", "gfx950", "sm_90"),
    "fmin_f64": (*AMD, *GLOBAL), "fmax_f64": (*AMD, *GLOBAL),
}  # fmt: skip


def launch(target: str, name: str, *args: np.ndarray) -> None:
    module = "atomics_bf16" if "bf16" in name and target in (*AMD, *GLOBAL) else "atomics"
    target, _, where = target.partition(" ")
    module += f"_{where}" if where else ""
    text = (FOLDER / f"{module}.{target}.{'s' if target in AMD else 'ptx'}").read_text()
    run(text, target=target, grid=(1, 1, 1), block=(64, 1, 1), args=args, kernel=name, checks=True)


def random(kind: Any, count: int, seed: int) -> np.ndarray:
    return np.frombuffer(np.random.default_rng(seed).bytes(count * np.dtype(kind).itemsize), kind).copy()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("op", INTEGERS)
def test_integers(op: str, bits: int, target: str) -> None:
    kind = np.dtype(f"{'u' if op[0] == 'u' else 'i'}{bits // 8}")
    x, own, shared, old = random(kind, 64, 1), random(kind, 64, 2), random(kind, 8, 3), np.zeros(64, kind)
    before, common = own.copy(), shared.copy()
    launch(target, f"{op}_i{bits}", x, own, shared, old)
    np.testing.assert_array_equal(old, before)
    np.testing.assert_array_equal(own, INTEGERS[op](before, x))
    for k in range(8):
        if op == "swap":
            assert shared[k] in x[SLOT == k]  # the last one's, whoever that is
        else:
            for value in x[SLOT == k]:
                common[k : k + 1] = INTEGERS[op](common[k : k + 1], value)
            assert shared[k] == common[k]


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("op", [op for op in INTEGERS if op != "swap"])
def test_integers_in_shared_memory(op: str, bits: int, target: str) -> None:
    """By two waves, whose lanes meet in eight words."""
    kind = np.dtype(f"{'u' if op[0] == 'u' else 'i'}{bits // 8}")
    x, shared = random(kind, 128, 1), random(kind, 8, 2)
    want = shared.copy()
    for i, value in enumerate(x):
        want[i % 8 : i % 8 + 1] = INTEGERS[op](want[i % 8 : i % 8 + 1], value)
    text = (FOLDER / f"atomics_shared.{target}.s").read_text()
    run(text, target=target, grid=(1, 1, 1), block=(128, 1, 1), args=[x, shared], kernel=f"{op}_i{bits}", checks=True)
    np.testing.assert_array_equal(shared, want)


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize("bits", [32, 64])
def test_floats_in_shared_memory(bits: int, target: str) -> None:
    """Whole numbers, whose sums are the same in any order, and places of one summand that round."""
    kind = np.dtype(f"f{bits // 8}")
    rng = np.random.default_rng(3)
    text = (FOLDER / f"atomics_shared.{target}.s").read_text()
    for alone in (False, True):
        x, shared = rng.integers(-99, 99, 128).astype(kind), rng.integers(-99, 99, 8).astype(kind)
        if alone:
            x, shared = np.zeros(128, kind), rng.standard_normal(8).astype(kind)
            x[16:24] = rng.standard_normal(8)
        want = shared.copy()
        np.add.at(want, np.arange(128) % 8, x)
        kernel = f"fadd_f{bits}"
        run(text, target=target, grid=(1, 1, 1), block=(128, 1, 1), args=[x, shared], kernel=kernel, checks=True)
        np.testing.assert_array_equal(shared, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [32, 64])
def test_compare_and_swap(bits: int, target: str) -> None:
    kind = np.dtype(f"u{bits // 8}")
    x, own, shared, old = random(kind, 64, 1), random(kind, 64, 2), random(kind, 8, 3), np.zeros(64, kind)
    expected = np.where(np.arange(64) % 3 == 0, own, own ^ 1)
    expected[[5, 11]] = shared[[5, 3]]  # only these two find what they expect in the shared words
    before, common = own.copy(), shared.copy()
    launch(target, f"cmpswap_i{bits}", x, own, shared, old, expected)
    np.testing.assert_array_equal(old, before)
    np.testing.assert_array_equal(own, np.where(expected == before, x, before))
    common[[5, 3]] = x[[5, 11]]
    np.testing.assert_array_equal(shared, common)


@pytest.mark.parametrize(
    ("name", "target"), [(n, t) for n in FLOATS for t in TARGETS if t in WHERE.get(n, TARGETS)]
)
def test_floats(name: str, target: str) -> None:
    kind, change = FLOATS[name]
    pair = 2 if "v2" in name else 1
    rng = np.random.default_rng(7)
    x = rng.integers(-4, 5, 64 * pair).astype(kind)
    own = rng.standard_normal(64 * pair).astype(kind)  # sums with small integers round
    shared, old = rng.integers(-4, 5, 8 * pair).astype(kind), np.zeros(64 * pair, kind)  # exact in any order
    before, common = own.copy(), shared.copy()
    launch(target, name, x, own, shared, old)
    np.testing.assert_array_equal(old, before)
    np.testing.assert_array_equal(own, change(before, x))
    for value, k in zip(x.reshape(64, pair), SLOT):
        common.reshape(8, pair)[k] = change(common.reshape(8, pair)[k], value)
    np.testing.assert_array_equal(shared, common)
