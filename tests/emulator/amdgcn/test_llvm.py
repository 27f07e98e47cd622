"""Kernels that LLVM compiled from tests/vectors/llvm/kernels.ll, each against what LLVM's language reference says.

They execute instructions that our compiler emits and no other conformance vector has. No finding, in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from wavedsl.codegen.amdgcn.isa import TARGETS
from wavedsl.runtime.emulator import run

FOLDER = Path(__file__).parents[2] / "vectors" / "llvm"

Launch = Callable[..., None]


@pytest.fixture(params=TARGETS)
def launch(request: pytest.FixtureRequest) -> Launch:
    text = (FOLDER / f"kernels.{request.param}.s").read_text()

    def go(name: str, *args: Any) -> None:
        run(text, target=request.param, grid=(1, 1, 1), block=(64, 1, 1), args=args, kernel=name, checks=True)

    return go


def numbers(kind: Any, count: int, seed: int = 0) -> np.ndarray:
    """Any bits."""
    return np.frombuffer(np.random.default_rng(seed).bytes(count * np.dtype(kind).itemsize), kind).copy()


def test_buffers(launch: Launch) -> None:
    bytes_, longs = numbers(np.uint8, 64), numbers(np.uint64, 64)
    out8, out16, out64 = np.full(64, 9, np.uint8), np.full(64, 9, np.uint16), np.zeros(64, np.uint64)
    launch("buffers", bytes_, longs, out8, out16, out64)
    want = (longs >> np.uint64(16)).astype(np.uint16)
    np.testing.assert_array_equal(out8, np.where(np.arange(64) < 48, bytes_, 0))
    np.testing.assert_array_equal(out64, longs)
    np.testing.assert_array_equal(out16, np.where(np.arange(64) < 50, want, 9))  # the descriptor ends there


@pytest.mark.parametrize("target", TARGETS)
def test_pointers_of_one_load(target: str) -> None:
    """Eight of them, by `s_load_dwordx16`."""
    given, out = [numbers(np.uint32, 64, seed) for seed in range(7)], np.zeros(64, np.uint32)
    text = (FOLDER / f"arguments.{target}.s").read_text()
    run(text, target=target, grid=(1, 1, 1), block=(64, 1, 1), args=[*given, out], kernel="pointers", checks=True)
    want = given[0]
    for x in given[1:]:
        want = want * np.uint32(3) + x
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("at", "at8"), [(0, 0), (4, 16), (20, 8), (24, 24), (4096, 1 << 30)])
def test_scalar_buffers(target: str, at: int, at8: int) -> None:
    """One address for the wave, by `s_buffer_load`; behind the 24 bytes of the buffer everything is 0."""
    given, out, wide = numbers(np.uint32, 8), np.full(2, 9, np.uint32), np.full(2, 9, np.uint32)
    text = (FOLDER / f"scalar_buffers.{target}.s").read_text()
    args = [given, out, wide, np.uint64(24), np.uint32(at), np.uint32(at8)]
    run(text, target=target, grid=(1, 1, 1), block=(64, 1, 1), args=args, kernel="scalar_buffers", checks=True)
    assert out.tolist() == [given[at // 4] if at < 24 else 0, given[2]]
    assert wide.tolist() == (given[at8 // 4 :][:2].tolist() if at8 < 24 else [0, 0])


def test_upper_halves(launch: Launch) -> None:
    given, out = numbers(np.uint32, 64), np.zeros(64, np.uint16)
    launch("upper_halves", given, out)
    np.testing.assert_array_equal(out, given >> 16)


def test_shared(launch: Launch) -> None:
    given = numbers(np.uint8, 64), numbers(np.uint32, 256).reshape(64, 4), numbers(np.uint32, 128).reshape(64, 2)
    out = [np.zeros_like(x) for x in given]
    launch("shared", *given, *out)
    for x, y in zip(given, out):
        np.testing.assert_array_equal(y, x[np.arange(64) ^ 5])


PAIRS = [(7, 7), (7, 9), (2**31 + 5, 3), (3, 2**31 + 5), (0xFFFFFFFF, 0xFFFFFFFE), (0, 0), (123456789, 0x9E3779B9)]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_scalars(launch: Launch, a: int, b: int) -> None:
    c, wide1, wide2 = 0xABCD1234, a << 31, (b << 33) % 2**64

    def signed(x: int) -> int:
        return x - 2**32 if x >= 2**31 else x

    difference = (wide1 - wide2) % 2**64
    want = [
        c if a == b else a, b if signed(a) >= signed(b) else c, a >> 5, a ^ b, min(a, b), a * b >> 32,
        difference % 2**32, difference >> 32, b if a != b else c, a if a <= b else c, a | b, a ^ 0xFFFFFFFF,
    ]  # fmt: skip
    out = np.zeros(12, np.uint32)
    launch("scalars", out, *map(np.uint32, (a, b, c, 0)), np.uint64(wide1), np.uint64(wide2))
    assert out.tolist() == want


def test_vectors(launch: Launch) -> None:
    given, longs = numbers(np.uint32, 192), numbers(np.int64, 128)
    x, y, z = given.reshape(3, 64)
    x[:8] = [0x7FC00000, 0x7F800001, 0xFF800000, 0x7F800000, 0, 0x80000000, 0xFFFFFFFF, 0x3F800000]
    longs[64:72] = longs[:8]
    longs[72:80] = longs[8:16] ^ 1  # only the low half differs
    out, constant = np.zeros((8, 64), np.uint32), np.zeros(1, np.uint64)
    launch("vectors", given, out, longs, constant)
    want = [
        x >> 5 & 1023,
        (x & 0xFFFFFF) * (y & 0xFFFFFF) + z,
        x & y | z,
        np.where(longs[:64] > longs[64:], x, y),
        np.where(np.isnan(x.view(np.float32)), 1, z),
        np.full(64, z[0]),
        x ^ y,
        x << (y & 31),
    ]
    for k, (got, expected) in enumerate(zip(out, want)):
        np.testing.assert_array_equal(got, expected.astype(np.uint32), err_msg=f"result {k}")
    assert constant[0] == 7


@pytest.mark.parametrize("count", [1, 2, 50])
def test_fibonacci(launch: Launch, count: int) -> None:
    given, out = numbers(np.uint64, 128), np.zeros((2, 64), np.uint64)
    a, b = given.reshape(2, 64)
    launch("fibonacci", given, out, np.uint32(count))
    for _ in range(count):
        a, b = b, a + b
    np.testing.assert_array_equal(out, [a, b])


def test_rounding(launch: Launch) -> None:
    given = np.random.default_rng(1).standard_normal(128).astype(np.float32)
    given[:6] = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519, 65520, 2.0**-24, -(2.0**-25)]  # ties, overflow, denormals
    given[64:70] = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, np.inf, 2.0**-130, -0.0]
    halves, pairs = np.zeros(64, np.float16), np.zeros((64, 2), ml_dtypes.bfloat16)
    launch("rounding", given, halves, pairs)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(halves, given[:64].astype(np.float16))
        np.testing.assert_array_equal(pairs, given.reshape(2, 64).T.astype(ml_dtypes.bfloat16))


def test_fields(launch: Launch) -> None:
    a, *b = (int(x) for x in numbers(np.uint32, 5, 3))
    out = np.zeros(5, np.uint32)
    launch("fields", out, *map(np.uint32, (a, *b)))
    assert out.tolist() == [((a << k + 1) + b[k]) % 2**32 for k in range(4)] + [a >> 6 & 31]


@pytest.mark.parametrize("target", TARGETS)
def test_three_words(target: str) -> None:
    given, out = numbers(np.uint32, 192).reshape(64, 3), np.full((64, 3), 9, np.uint32)
    text = (FOLDER / f"triples.{target}.s").read_text()
    run(text, target=target, grid=(1, 1, 1), block=(64, 1, 1), args=[given, out], kernel="triples", checks=True)
    lanes = np.arange(64)[:, None]
    want = np.where(lanes < 50, given, 0)[np.arange(64) ^ 5]
    np.testing.assert_array_equal(out, np.where(lanes < 50, want, 9))


@pytest.mark.parametrize("target", TARGETS)
def test_limits(target: str) -> None:
    """Held between -4 and 4 by `v_med3_f32`, of a NaN the lower limit; `v_max3_f32` reads numbers without signs."""
    special = np.array([0.0, -0.0, 4.0, -4.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 3e38, -3e38], np.float32)
    a, b = (np.random.default_rng(seed).uniform(-8, 8, 64).astype(np.float32) for seed in (0, 1))
    a[: len(special)], b[3:14] = special, special
    held, sizes = np.zeros(64, np.float32), np.zeros(64, np.float32)
    text = (FOLDER / f"limits.{target}.s").read_text()
    run(text, target=target, grid=(1, 1, 1), block=(64, 1, 1), args=[a, b, held, sizes], kernel="limits", checks=True)
    np.testing.assert_array_equal(held, np.fmin(np.fmax(a, np.float32(-4)), np.float32(4)))
    with np.errstate(all="ignore"):
        want = np.fmax(np.fmax(abs(a), abs(b)), abs(a + b))
    np.testing.assert_array_equal(sizes, want)


@pytest.mark.parametrize("target", TARGETS)
def test_halves(target: str) -> None:
    """The larger of packed halves, with a sign and without."""
    a, b = numbers(np.uint16, 128), numbers(np.uint16, 128, 1)
    a[:4], b[:4] = [0x7FFF, 0xFFFF, 0x8000, 0], [0x8000, 0, 0x7FFF, 0xFFFF]
    signed, unsigned = np.zeros(128, np.uint16), np.zeros(128, np.uint16)
    text = (FOLDER / f"halves.{target}.s").read_text()
    args = [a, b, signed, unsigned]
    run(text, target=target, grid=(1, 1, 1), block=(64, 1, 1), args=args, kernel="halves", checks=True)
    np.testing.assert_array_equal(signed.view(np.int16), np.maximum(a.view(np.int16), b.view(np.int16)))
    np.testing.assert_array_equal(unsigned, np.maximum(a, b))
