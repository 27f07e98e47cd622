"""Small numbers that become f16 or bf16 two at a time: every code of every type, in every place of a word."""

from __future__ import annotations

import re
from typing import Any

import hopper
import numpy as np
import pytest
from wavedsl.ir.rounding import convert

import wavedsl as wd

N, BN = wd.symbols("WN WBN")


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("source", "to"),
    [
        (wd.i4, wd.f16), (wd.u4, wd.bf16), (wd.i8, wd.bf16), slow(wd.u8, wd.f16), slow(wd.i8, wd.f16),
        slow(wd.i4, wd.bf16), slow(wd.u4, wd.f16), slow(wd.f8e4m3, wd.f16), slow(wd.f8e5m2, wd.f16),
    ],
    ids=str,
)  # fmt: skip
def test_every_code(source: Any, to: Any, oracle: Any) -> None:
    oracle("ptxas")
    compiled = every_code(source, to, "sm_90a")
    assert "cvt.rn.f32" not in compiled.asm and ".f32" not in compiled.asm
    hopper.spilled_or_serialised(compiled.asm)


@pytest.mark.parametrize("target", ["gfx942", slow("gfx90a"), slow("gfx950")])
@pytest.mark.parametrize("source", [wd.i4, wd.u4, wd.i8, wd.u8], ids=str)
def test_every_code_on_amd(source: Any, target: str) -> None:
    assert "v_cvt" not in every_code(source, wd.f16, target).asm


def every_code(source: Any, to: Any, target: str) -> Any:
    @wd.wave([wd.WorkgroupConstraint(N, BN, 0)], subs={BN: 512})
    def widen(x: wd.Memory[N, source], y: wd.Memory[N, to]):
        wd.write(wd.cast(wd.read(x), to), y)

    codes = np.arange(512, dtype=np.uint16).astype(np.uint8)
    if source.bits == 4:  # the bytes 0 to 255 are every pair
        x: Any = codes[:256]
        half = 8 if source is wd.i4 else 0
        pairs = np.stack([x & 15, x >> 4], axis=-1).reshape(-1).astype(np.int64)
        numbers = ((pairs ^ half) - half).astype(np.float64)
    else:
        x = codes.view(source.storage)
        numbers = x.astype(np.float64) if source.is_int else convert(x, source, wd.f64)
    y = np.zeros(512, to.storage)
    compiled = widen.compile(x, y, target=target)
    compiled.emulate(x, y)
    np.testing.assert_array_equal(y.astype(np.float64), numbers)
    want = np.zeros_like(y)
    widen.evaluate(x, want)
    np.testing.assert_array_equal(want.view(np.uint16), y.view(np.uint16))
    return compiled


@pytest.mark.parametrize(
    ("to", "zero", "adds"),
    [
        (wd.f16, 8.0, 1), (wd.bf16, 8.0, 1), (wd.f16, -3000.0, 1), (wd.f16, 0.5, 2), (wd.bf16, 390.0, 2),
        (wd.f16, np.inf, 2),
    ],
    ids=str,
)  # fmt: skip
def test_a_constant_is_added_with_the_power_of_two(to: Any, zero: float, adds: int) -> None:
    """Where the dtype holds their sum: else once more. The same bits, also where sums are rounded."""

    @wd.wave([wd.WorkgroupConstraint(N, BN, 0)], subs={BN: 512})
    def moved(x: wd.Memory[N, wd.u4], y: wd.Memory[N, to]):
        wd.write(wd.cast(wd.read(x), to) - zero, y)

    codes, y = np.arange(256).astype(np.uint8), np.zeros(512, to.storage)
    compiled = moved.compile(codes, y, target="sm_90a")
    compiled.emulate(codes, y)
    numbers = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1).astype(np.float32)
    np.testing.assert_array_equal(y.view(np.uint16), (numbers - np.float32(zero)).astype(to.storage).view(np.uint16))
    pairs = len(re.findall(r"\bprmt\.b32", compiled.asm))
    assert len(re.findall(r"\b(?:add|sub)\.(?:rn\.)?b?f16x2", compiled.asm)) == adds * pairs > 0


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize(
    ("source", "zero", "adds"),
    [(wd.u4, 8.0, 1), (wd.i4, -7.0, 1), (wd.u8, 128.0, 1), (wd.i8, 5.0, 1), (wd.u4, -3000.0, 1), (wd.u4, 1031.0, 2),
     (wd.u8, 0.5, 2), (wd.u4, np.inf, 2)],
    ids=str,
)  # fmt: skip
def test_a_zero_point_costs_nothing_on_amd(source: Any, zero: float, adds: int, target: str) -> None:
    """It was an addition of its own behind the one that takes the power of two off. Where only one reader subtracts it
    the others keep the number as it was."""

    @wd.wave([wd.WorkgroupConstraint(N, BN, 0)], subs={BN: 512})
    def moved(x: wd.Memory[N, source], y: wd.Memory[N, wd.f16]):
        wd.write(wd.cast(wd.read(x), wd.f16) - zero, y)

    @wd.wave([wd.WorkgroupConstraint(N, BN, 0)], subs={BN: 512})
    def both(x: wd.Memory[N, source], y: wd.Memory[N, wd.f16], z: wd.Memory[N, wd.f16]):
        number = wd.cast(wd.read(x), wd.f16)
        wd.write(number - zero, y)
        wd.write(number, z)

    codes = np.arange(512, dtype=np.uint16).astype(np.uint8)
    if source.bits == 4:
        x: Any = codes[:256]
        half = 8 if source is wd.i4 else 0
        numbers = ((np.stack([x & 15, x >> 4], axis=-1).reshape(-1).astype(np.int64) ^ half) - half).astype(np.float32)
    else:
        x = codes.view(source.storage)
        numbers = x.astype(np.float32)
    y, again, z = (np.zeros(512, np.float16) for _ in range(3))
    compiled = moved.compile(x, y, target=target)
    compiled.emulate(x, y)
    both.compile(x, again, z, target=target).emulate(x, again, z)
    want = (numbers - np.float32(zero)).astype(np.float16)
    for got in (y, again):
        np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))
    np.testing.assert_array_equal(z.astype(np.float32), numbers)
    assert len(re.findall(r"\bv_pk_add_f16", compiled.asm)) == adds * len(re.findall(r"\bv_perm_b32", compiled.asm)) > 0


@pytest.mark.parametrize(("stored", "zero"), [(wd.u8, 8), (wd.i32, 8), (wd.u8, 0), (wd.u8, 3000)], ids=str)
@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_four_bits_taken_out_by_hand(stored: Any, zero: int, target: str) -> None:
    """As users unpack weights: a shift, a mask, a zero point. One that takes sums past what halves hold is subtracted
    before numbers are rounded."""
    per = stored.bits // 4

    @wd.wave([wd.WorkgroupConstraint(N, BN, 0), wd.WaveConstraint(N, BN)], subs={BN: 512})
    def unpack(x: wd.Memory[wd.sym.HELD, stored], y: wd.Memory[N, wd.f16]):
        held = wd.cast(wd.read(x, mapping=wd.IndexMapping((N,), {wd.sym.HELD: N // per})), wd.i32)
        wd.write(wd.cast((held >> wd.index(N) % per * 4 & 15) - zero, wd.f16), y)

    codes = np.arange(256).astype(np.uint8)
    x, y = codes.view(stored.numpy), np.zeros(512, np.float16)
    compiled = unpack.compile(x, y, target=target)
    compiled.emulate(x, y)
    numbers = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1).astype(np.int64) - zero
    np.testing.assert_array_equal(y.view(np.uint16), numbers.astype(np.float16).view(np.uint16))
    assert ("v_cvt" in compiled.asm or "cvt.rn" in compiled.asm) == (zero == 3000)
