"""Integers over integers that lanes have in common, and quotients of any signs: the same bits, by less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavedsl as wd

N = wd.sym.N
AMD = ("gfx90a", "gfx942", "gfx950")
HERE = [wd.WorkgroupConstraint(N, 256, 0)]


def _both(element: Any) -> Any:
    """Quotients and remainders of x over a number of the call."""

    @wd.wave(HERE)
    def both(
        x: wd.Memory[N, element], d: wd.Scalar[element], q: wd.Memory[N, element], r: wd.Memory[N, element]
    ):  # fmt: skip
        wd.write(wd.read(x) // d, q)
        wd.write(wd.read(x) % d, r)

    return both


def _each(element: Any) -> Any:
    @wd.wave(HERE)
    def each(
        x: wd.Memory[N, element], d: wd.Memory[N, element], q: wd.Memory[N, element], r: wd.Memory[N, element]
    ):  # fmt: skip
        wd.write(wd.read(x) // wd.read(d), q)
        wd.write(wd.read(x) % wd.read(d), r)

    return each


def _floored(x: Any, d: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """By Python's whole numbers; a quotient without room in the type wraps."""
    bits = np.iinfo(dtype).bits
    pairs = [divmod(int(a), int(b)) for a, b in zip(x, d)]
    return tuple(np.array([v & (1 << bits) - 1 for v in part], f"u{bits // 8}").view(dtype) for part in zip(*pairs))  # type: ignore[return-value]


def _near_multiples(d: int, count: int) -> np.ndarray:
    """Words beside multiples of a divisor, where an estimate that is off shows, and any."""
    words = [k * d + i for k in (1, 2, 3, 2**32 // d - 1, 2**32 // d) for i in (-1, 0, 1)]
    some = [w for w in words if 0 <= w < 2**32] + [0, 1, 2**31, 2**32 - 1]
    return np.concatenate([some, np.random.default_rng(d).integers(0, 2**32, count - len(some))]).astype(np.uint32)


DIVISORS = (1, 2, 3, 7, 255, 257, 15860, 65535, 65537, 2524966, 195225783, 1431655762, 2**31 - 1)
LARGE = (2**31, 2**31 + 1, 2524966000, 2**32 - 2, 2**32 - 1)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "sm_80"])
def test_by_a_number_of_the_call(target: str) -> None:
    empty = np.zeros(256, np.uint32)
    unsigned = _both(wd.u32).compile(empty, np.uint32(1), empty, empty.copy(), target=target)
    signed = _both(wd.i32).compile(*(a.view(np.int32) for a in (empty, np.uint32(1), empty, empty)), target=target)
    for d in (*DIVISORS, *LARGE):
        x = _near_multiples(d, 256)
        signs = [(unsigned, x, np.uint32(d))]
        if d < 2**31:
            signs += [(signed, x.view(np.int32), np.int32(v)) for v in (d, -d)]
        for compiled, words, by in signs:
            q, r = np.zeros_like(words), np.zeros_like(words)
            compiled.emulate(words, by, q, r)
            want = _floored(words, [by] * len(words), words.dtype)
            np.testing.assert_array_equal(q, want[0], err_msg=f"over {by}")
            np.testing.assert_array_equal(r, want[1], err_msg=f"rest over {by}")


@pytest.mark.parametrize("element", ["i32", "i64"])
@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_quotients_of_any_signs(target: str, element: str) -> None:
    dtype = np.dtype(f"i{element[1:]}".replace("32", "4").replace("64", "8"))
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    ends = np.array([0, 1, -1, 2, -2, 7, -7, info.min, info.min + 1, info.max, info.max - 1], dtype)
    x, d = (grid.ravel() for grid in np.meshgrid(ends, ends[1:]))
    any_x, any_d = (rng.integers(info.min, info.max, 500) >> rng.integers(0, info.bits - 1, 500) for _ in range(2))
    x, d = np.concatenate([x, any_x]).astype(dtype), np.concatenate([d, np.where(any_d == 0, 1, any_d)]).astype(dtype)
    q, r = np.zeros_like(x), np.zeros_like(x)
    kernel = _each(getattr(wd, element))
    kernel.compile(x, d, q, r, target=target).emulate(x, d, q, r)
    want = _floored(x, d, dtype)
    np.testing.assert_array_equal(q, want[0])
    np.testing.assert_array_equal(r, want[1])


@pytest.mark.parametrize("target", AMD)
def test_the_inverse_is_computed_once(target: str) -> None:
    """Four elements of a lane had four inverses: 24 instructions more."""
    x = np.zeros(4096, np.int32)
    text = _both(wd.i32).compile(x, np.int32(3), x.copy(), x.copy(), target=target).asm
    assert text.count("v_rcp_f32") == 1
    assert "v_rcp_iflag_f32" not in text
