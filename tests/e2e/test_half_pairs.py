"""Operations on f16 and bf16 that are computed for two numbers at once: the bits of what rounds from f32."""

from __future__ import annotations

from typing import Any

import hopper
import ml_dtypes
import numpy as np
import pytest
from selected import slow

import wavedsl as wd

R, C, BC = wd.symbols("HPR HPC HPBC")
OPERATIONS: dict[str, tuple[str, Any, Any]] = {
    "add": ("add.rn", lambda x, y: x + y, np.add),
    "sub": ("sub.rn", lambda x, y: x - y, np.subtract),
    "mul": ("mul.rn", lambda x, y: x * y, np.multiply),
    "min": ("min", wd.minimum, np.fmin),
    "max": ("max", wd.maximum, np.fmax),
}


def codes(shape: tuple[int, int], dtype: wd.DType, seed: int) -> np.ndarray:
    """Any bits: NaN, infinities and denormals among them."""
    return np.random.default_rng(seed).integers(0, 1 << 16, shape).astype(np.uint16).view(dtype.storage)


@pytest.mark.parametrize("dtype", [wd.f16, wd.bf16], ids=str)
@pytest.mark.parametrize("name", ["mul", "max", slow("add"), slow("sub"), slow("min")])
def test_two_at_once(name: str, dtype: wd.DType, oracle: Any) -> None:
    """Of two arrays, of an array and one number per row, and with a constant."""
    oracle("ptxas")
    opcode, op, meaning = OPERATIONS[name]

    @wd.wave([wd.WorkgroupConstraint(R, 1, 1), wd.WorkgroupConstraint(C, BC, 0)], subs={BC: 512})
    def pairs(
        x: wd.Memory[R, C, dtype], y: wd.Memory[R, C, dtype], row: wd.Memory[R, dtype], a: wd.Memory[R, C, dtype],
        b: wd.Memory[R, C, dtype], c: wd.Memory[R, C, dtype],
    ):  # fmt: skip
        left = wd.read(x)
        wd.write(op(left, wd.read(y)), a)
        wd.write(op(left, wd.read(row)), b)
        wd.write(op(left, 0.5), c)

    shape = (4, 512)
    x, y = codes(shape, dtype, 1), codes(shape, dtype, 2)
    row = np.array([1.5, -0.25, 2.0**-14, 3.0]).astype(dtype.storage)
    outputs = [np.zeros(shape, dtype.storage) for _ in range(3)]
    compiled = pairs.compile(x, y, row, *outputs, target="sm_90a")
    compiled.emulate(x, y, row, *outputs)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        for got, other in zip(outputs, (y.astype(np.float32), row.astype(np.float32)[:, None], np.float32(0.5))):
            want = meaning(wide, other).astype(dtype.numpy)
            number = ~np.isnan(want.astype(np.float32))
            np.testing.assert_array_equal(got.view(np.uint16)[number], want.view(np.uint16)[number])
            assert np.isnan(got.view(dtype.numpy).astype(np.float32)[~number]).all()
    assert f"{opcode}.{dtype.name}x2" in compiled.asm and ".f32" not in compiled.asm
    hopper.spilled_or_serialised(compiled.asm)


@pytest.mark.parametrize(
    ("target", "words", "most"),
    [
        ("sm_90a", ("mul.rn.bf16x2", "mul.rn.f16x2"), None), ("sm_80", ("fma.rn.bf16x2", "mul.rn.f16x2"), None),
        ("gfx90a", ("v_perm_b32",), 48), ("gfx942", ("v_perm_b32",), 48), ("gfx950", ("v_cvt_scalef32",), None),
    ],
)  # fmt: skip
def test_every_number_of_four_bits(target: str, words: tuple[str, ...], most: int | None, oracle: Any) -> None:
    """Every pair of mxfp4 numbers in every byte of a word, as f16 and bf16: on NVIDIA by two multiplications, on AMD's
    older chips from a table, in `most` vector instructions for 8 numbers of both, which were 9 for each of bf16."""
    if target.startswith("sm_"):
        oracle("ptxas")

    @wd.wave([wd.WorkgroupConstraint(C, BC, 0)], subs={BC: 512})
    def widen(x: wd.Memory[C, wd.f4e2m1], y: wd.Memory[C, wd.f16], z: wd.Memory[C, wd.bf16]):
        wd.write(wd.cast(wd.read(x), wd.f16), y)
        wd.write(wd.cast(wd.read(x), wd.bf16), z)

    x = np.arange(256).astype(np.uint8)
    y, z = np.zeros(512, np.float16), np.zeros(512, wd.bf16.storage)
    compiled = widen.compile(x, y, z, target=target)
    compiled.emulate(x, y, z)
    want = np.stack([x & 15, x >> 4], axis=-1).reshape(-1).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    for got in (y, z):
        np.testing.assert_array_equal(got.astype(np.float32), want)
        np.testing.assert_array_equal(np.signbit(got.astype(np.float32)), np.signbit(want))
    assert all(word in compiled.asm for word in words)
    if target.startswith("sm_"):
        assert ".f32" not in compiled.asm
    if target == "sm_90a":
        hopper.spilled_or_serialised(compiled.asm)
    assert most is None or compiled.resources.instructions["valu"] <= most


@pytest.mark.parametrize("dtype", [wd.f16, wd.bf16], ids=str)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a"])
def test_choices_between_neighbours_are_bits_of_words(target: str, dtype: wd.DType) -> None:
    """By a condition of each or of both, between arrays, 0 and another number: any bits come through, and none of them
    as a number of its own (16 conversions, and 8 selections and packings of them, in each lane)."""

    @wd.wave([wd.WorkgroupConstraint(R, 1, 1), wd.WorkgroupConstraint(C, BC, 0)], subs={BC: 512})
    def chosen(
        x: wd.Memory[R, C, dtype], y: wd.Memory[R, C, dtype], row: wd.Memory[R, wd.i32], a: wd.Memory[R, C, dtype],
        b: wd.Memory[R, C, dtype], c: wd.Memory[R, C, dtype], d: wd.Memory[R, C, dtype],
    ):  # fmt: skip
        left, right, start = wd.read(x), wd.read(y), wd.read(row)
        inside = wd.index(C) >= start
        wd.write(wd.where(inside, left, 0.0), a)
        wd.write(wd.where(inside, left, right), b)
        wd.write(wd.where(start > 100, left, right), c)
        wd.write(wd.where(inside, 0.5, right), d)

    shape = (4, 512)
    x, y, row = codes(shape, dtype, 1), codes(shape, dtype, 2), np.array([0, 77, 200, 511], np.int32)
    got = [np.zeros(shape, dtype.storage) for _ in range(4)]
    compiled = chosen.compile(x, y, row, *got, target=target)
    compiled.emulate(x, y, row, *got)
    inside, late = np.arange(512) >= row[:, None], np.broadcast_to(row[:, None] > 100, shape)
    half = dtype.numpy(0.5)
    for out, where, one, other in zip(got, (inside, inside, late, inside), (x, x, x, half), (dtype.numpy(0), y, y, y)):
        want = np.where(where, one, other).astype(dtype.storage)
        np.testing.assert_array_equal(out.view(np.uint16), want.view(np.uint16))
    assert "cvt.f32" not in compiled.asm and "v_cvt" not in compiled.asm
