"""f32 numbers of which more is known than their type: integers, numbers of a narrower type, NaNs with few bits."""

from __future__ import annotations

import math
from typing import Any

import pytest
from wavedsl.codegen.amdgcn import get_target
from wavedsl.ir import dtypes as dt
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, Value
from wavedsl.ir.kernel.whole_floats import has_quiet_nans, has_short_nans, is_exact, whole


@pytest.fixture
def b() -> Builder:
    return Builder(new_kernel(), get_target("gfx942"))


def number(b: Builder, least: int, most: int) -> Value:
    """An integer from `least` to `most` as f32."""
    word = b.load_shared(b.mul(b.lane(), 4), bytes=4, type=I32)
    return b.cvt(b.min_s(b.max_s(word, least), most), F32)


def anything(b: Builder) -> Value:
    return b.load_shared(b.mul(b.lane(), 4), bytes=4, type=F32)


def test_ends_of_integers(b: Builder) -> None:
    x, y = number(b, 0, 15), number(b, -3, 4)
    cases: list[tuple[Any, Any]] = [
        (x, (0, 15)), (b.fsub(x, 8.0), (-8, 7)), (b.fadd(x, y), (-3, 19)), (b.fsub(x, y), (-4, 18)),
        (b.fmul(x, y), (-45, 60)), (b.fmul(y, y), (-12, 16)), (b.fneg(x), (-15, 0)), (b.fmin(x, y), (-3, 15)),
        (b.fmax(x, 2.0), (0, 15)), (b.vec(x, y), (-3, 15)), (b.slice(b.vec(x, y), 1), (-3, 4)),
    ]  # fmt: skip
    for value, ends in cases:
        found = whole(value)
        assert found is not None and found[0] <= ends[0] and found[1] >= ends[1]
        assert found == ends or value.op.name in ("fmin", "fmax", "slice", "vec"), value.op.name


def test_no_integers(b: Builder) -> None:
    x = number(b, 0, 15)
    large = number(b, 0, 1 << 24)
    for value in (
        anything(b), b.fmul(x, 0.5), b.fadd(x, anything(b)), number(b, 0, (1 << 24) + 1), b.fadd(large, large),
        b.fmul(large, large), b.rcp(x), b.const(math.nan, F32), b.const(math.inf, F32),
        b.cvt(b.max_s(b.load_shared(b.lane(), bytes=4, type=I32), -1), F32, unsigned=True),
    ):  # fmt: skip
        assert whole(value) is None


def test_what_a_type_holds(b: Builder) -> None:
    word = b.load_shared(b.mul(b.lane(), 4), bytes=4, type=B32)
    low, high = (b.unpack(word, dt.bf16, i) for i in (0, 1))
    assert is_exact(number(b, -256, 256), dt.bf16) and not is_exact(number(b, 0, 257), dt.bf16)
    assert is_exact(number(b, -2048, 2048), dt.f16) and not is_exact(number(b, -2049, 0), dt.f16)
    assert is_exact(b.fmax(low, 0.0), dt.bf16) and is_exact(b.fneg(b.fmin(low, high)), dt.bf16)
    assert is_exact(b.select(b.fcmp("gt", low, anything(b)), low, high), dt.bf16)
    assert not is_exact(b.fmax(low, anything(b)), dt.bf16) and not is_exact(b.fadd(low, high), dt.bf16)
    assert not is_exact(low, dt.f16) and not is_exact(b.unpack(word, dt.f16, 0), dt.bf16)
    assert not is_exact(number(b, 0, 1), dt.f8e4m3)


def test_lower_halves_of_nans(b: Builder) -> None:
    word = b.load_shared(b.mul(b.lane(), 4), bytes=4, type=B32)
    x = b.unpack(word, dt.bf16, 0)
    for value in (x, b.fmul(x, number(b, 0, 15)), b.ffma(x, x, b.const(0.3, F32)), b.fneg(b.fmax(x, x)), b.vec(x, x)):
        assert has_short_nans(value)
    for value in (
        anything(b), b.unpack(word, dt.f16, 0), b.fmul(x, anything(b)), b.exp2(x), b.bitcast(b.lane(), F32),
        b.const(math.nan, F32),
    ):  # fmt: skip
        assert not has_short_nans(value)


def test_quiet_nans(b: Builder) -> None:
    word = b.load_shared(b.mul(b.lane(), 4), bytes=4, type=B32)
    x = anything(b)
    made = b.fmul(x, x)
    for value in (
        made, b.fneg(b.fmax(made, number(b, 0, 15))), b.shuffle_xor(made, 1), b.vec(b.exp2(x), made),
        b.unpack(word, dt.f16, 0), b.select(b.fcmp("gt", x, x), made, b.const(2.0, F32)),
        b.bitcast(b.bitcast(made, B32), F32),
    ):  # fmt: skip
        assert has_quiet_nans(value)
    for value in (
        x, b.fneg(x), b.fmax(made, x), b.vec(made, x), b.unpack(word, dt.bf16, 0), b.const(math.nan, F32),
        b.select(b.fcmp("gt", x, made), x, made), b.bitcast(word, F32),
    ):  # fmt: skip
        assert not has_quiet_nans(value)


def test_quiet_nans_that_a_loop_carries(b: Builder) -> None:
    x = anything(b)
    with b.for_(0, 8, 1, [b.const(0.0, F32), b.const(0.0, F32), x]) as loop:
        total, other, start = loop.carried
        loop.yield_(b.fadd(total, x), b.fneg(other), b.fadd(start, x))
    assert [has_quiet_nans(v) for v in loop.results] == [True, True, False]
    assert [has_quiet_nans(v) for v in loop.carried] == [True, True, False]


@pytest.mark.parametrize(("chip", "dtype", "same"), [
    ("gfx942", dt.bf16, True), ("gfx950", dt.bf16, True), ("gfx942", dt.f16, False),  # whose halves are added in pairs
])  # fmt: skip
def test_numbers_that_were_packed_need_not_be_unpacked(chip: str, dtype: dt.DType, same: bool) -> None:
    b = Builder(new_kernel(), get_target(chip))
    x, y = number(b, 0, 200), anything(b)
    word = b.pack((x, y), dtype)
    assert (b.unpack(word, dtype, 0) is x) == same
    assert b.unpack(word, dtype, 1) is not y  # which is rounded
