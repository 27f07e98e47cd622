# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Conversions of the rows against references that do not come from them: Python integers, exact fractions, ml_dtypes."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import elementwise, run
from ptx_operands import MODES, array, floats, integers, pairs, round_exact, sign

INT_TYPES = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@pytest.mark.parametrize("d", INT_TYPES)
@pytest.mark.parametrize("s", INT_TYPES)
def test_integers_to_integers(s, d):
    sb, db = int(s[1:]), int(d[1:])
    values = integers(sb, s[0] == "s", 60)
    source = array(values, sb) if sb > 8 else array(values, 16)
    width = max(db, 16)
    got = elementwise(f"cvt.{d}.{s} %out, %in0;", [source], width)
    want = [sign(v, db) if d[0] == "s" else v % (1 << db) for v in values]
    assert np.array_equal(got, array(want, width))
    low, high = (-(1 << db - 1), (1 << db - 1) - 1) if d[0] == "s" else (0, (1 << db) - 1)
    if low <= min(values) and max(values) <= high:
        return
    if (d[0] == "s" and sb <= db and s[0] == "s") or (s[0] == "u" and db >= sb and d[0] == "u"):
        return
    try:
        got = elementwise(f"cvt.sat.{d}.{s} %out, %in0;", [source], width)
    except Exception as e:
        assert "fits" in str(e)
        return
    assert np.array_equal(got, array([max(low, min(high, v)) for v in values], width))


@pytest.mark.parametrize("d", INT_TYPES)
@pytest.mark.parametrize("s", ["f16", "f32", "f64"])
def test_floats_to_integers(s, d):
    db = int(d[1:])
    low, high = (-(1 << db - 1), (1 << db - 1) - 1) if d[0] == "s" else (0, (1 << db) - 1)
    x = np.concatenate(
        [
            floats(FLOATS[s], 100),
            np.array([0.49, 0.5, -0.5, 2.5, 3.5, -1.5, 127.5, 255.5, 65504.0, -129.0]).astype(FLOATS[s]),
        ]
    )
    for mode, fn in {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}.items():
        got = elementwise(f"cvt.{mode}.{d}.{s} %out, %in0;", [x], max(db, 16))
        want = []
        for v in x.astype(float):
            if math.isnan(v):  # "Data movement and conversion: cvt" of the PTX ISA, and an H200
                want.append(0 if s != "f64" and db < 64 else low if d[0] == "s" else 1 << db - 1)
            elif math.isinf(v):
                want.append(high if v > 0 else low)
            else:
                want.append(max(low, min(high, fn(Fraction(v)))))
        assert np.array_equal(got, array(want, max(db, 16))), mode


@pytest.mark.parametrize("s", ["u8", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("d", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
def test_integers_to_floats(s, d, mode):
    if d == "bf16" and s == "u8":
        s = "u16"  # there is no conversion between bf16 and 8-bit integers
    bits, dtype = int(s[1:]), FLOATS[d]
    values = integers(bits, s[0] == "s", 100) + [
        v % (1 << (bits - 1)) for v in (2**24 + 1, 2**53 + 1, 2**25 + 2, 2**63 - 1, 2**62 + 1)
    ]
    got = elementwise(f"cvt.{mode}.{d}.{s} %out, %in0;", [array(values, max(bits, 16))], dtype(0).itemsize * 8).view(
        dtype
    )
    for v, g in zip(values, got):
        want = round_exact(Fraction(v), mode, dtype) if v else 0.0
        assert float(g) == want, (v, float(g), want)


@pytest.mark.parametrize(
    "d, s", [("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("bf16", "f16")]
)
@pytest.mark.parametrize("mode", MODES)
def test_narrowing_floats(d, s, mode):
    dtype = FLOATS[d]
    near_one, edge = np.arange(1, 60) * 2.0**-30 + 1, np.array([65520.0, 65519.0, 65503.0, 1e-8])
    with np.errstate(over="ignore"):
        x = np.concatenate([floats(FLOATS[s]), near_one.astype(FLOATS[s]), edge.astype(FLOATS[s])])
    got = elementwise(f"cvt.{mode}.{d}.{s} %out, %in0;", [x], dtype(0).itemsize * 8).view(dtype)
    for v, g in zip(x.astype(float), got.astype(float)):
        if math.isnan(v):
            assert math.isnan(g)
        elif math.isinf(v) or v == 0:
            assert g == v
        else:
            assert g == round_exact(Fraction(v), mode, dtype), (v, g)


@pytest.mark.parametrize("d, s", [("f64", "f32"), ("f32", "f16"), ("f64", "f16"), ("f32", "bf16")])
def test_widening_floats_is_exact(d, s):
    x = floats(FLOATS[s])
    got = elementwise(f"cvt.{d}.{s} %out, %in0;", [x], FLOATS[d](0).itemsize * 8).view(FLOATS[d])
    assert np.array_equal(got.astype(np.float64), x.astype(np.float64), equal_nan=True)


def test_rounding_to_integral_floats():
    x = floats(np.float32)
    for mode, fn in {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}.items():
        got = elementwise(f"cvt.{mode}.f32.f32 %out, %in0;", [x], 32).view(np.float32)
        assert np.array_equal(got, fn(x), equal_nan=True)


@pytest.mark.parametrize("d", ["f16", "bf16"])
def test_packed_conversions_put_the_first_operand_high(d):
    a, b = floats(np.float32), floats(np.float32)
    one = elementwise(f"cvt.rn.{d}.f32 %out, %in0;", [a], 16), elementwise(f"cvt.rn.{d}.f32 %out, %in0;", [b], 16)
    both = elementwise(f"cvt.rn.{d}x2.f32 %out, %in0, %in1;", [a, b], 32)
    assert np.array_equal(both, one[0].astype(np.uint32) << 16 | one[1])
    relu = elementwise(f"cvt.rn.relu.{d}x2.f32 %out, %in0, %in1;", [a, b], 32) >> 16
    negative = (a <= 0) & ~np.isnan(a)
    assert (relu[negative] == 0).all() and np.array_equal(relu[~negative], one[0][~negative])
    with np.errstate(all="ignore"):
        finite = elementwise(f"cvt.rn.satfinite.{d}.f32 %out, %in0;", [a], 16).view(FLOATS[d]).astype(float)
    assert not np.isinf(finite).any()


@pytest.mark.parametrize(
    "kind, dtype, top", [("e4m3x2", ml_dtypes.float8_e4m3fn, 448.0), ("e5m2x2", ml_dtypes.float8_e5m2, 57344.0)]
)
def test_float8(kind, dtype, top):
    a, b = floats(np.float32), floats(np.float32)
    got = elementwise(f"cvt.rn.satfinite.{kind}.f32 %out, %in0, %in1;", [a, b], 16)
    for x, byte in ((a, got >> 8), (b, got & 255)):
        value = byte.astype(np.uint8).view(dtype).astype(np.float64)
        nan = np.isnan(x)
        assert (byte[nan] == 0x7F).all()
        with np.errstate(all="ignore"):
            want = np.clip(x[~nan], np.float32(-top), np.float32(top)).astype(dtype).astype(np.float64)
        assert np.array_equal(value[~nan], want)
    every = np.arange(65536, dtype=np.uint16)
    half = elementwise(f"cvt.rn.f16x2.{kind} %out, %in0;", [every], 32).view(np.float16).reshape(-1, 2)
    table = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float16)
    assert np.array_equal(half[:, 0], table[every & 255], equal_nan=True) and np.array_equal(
        half[:, 1], table[every >> 8], equal_nan=True
    )


def test_tf32():
    a = np.concatenate(
        [floats(np.float32), (1 + np.arange(4096, dtype=np.float32) * np.float32(2**-12) / 16).astype(np.float32)]
    )
    got = elementwise("cvt.rna.tf32.f32 %out, %in0;", [a], 32)
    assert not (got[~np.isnan(a)] & 0x1FFF).any()
    for x, r in zip(a, got.view(np.float32)):
        if math.isfinite(x) and abs(x) < 1e38:
            error = abs(Fraction(float(r)) - Fraction(float(x)))
            unit = Fraction(2) ** max(math.frexp(float(x))[1] - 1 - 10, -136)
            assert error <= unit / 2
            if error == unit / 2:
                assert abs(r) > abs(x)


def test_packing_conversions():
    a, b = pairs(32, True)
    clamp = lambda v, lo, hi: max(lo, min(hi, v))  # noqa: E731
    got = elementwise("cvt.pack.sat.s16.s32 %out, %in0, %in1;", [array(a, 32), array(b, 32)], 32)
    assert np.array_equal(
        got,
        array([(clamp(x, -32768, 32767) % 65536) << 16 | clamp(y, -32768, 32767) % 65536 for x, y in zip(a, b)], 32),
    )
    got = elementwise("cvt.pack.sat.u8.s32.b32 %out, %in0, %in1, %in0;", [array(a, 32), array(b, 32)], 32)
    assert np.array_equal(got, array([(x << 16) | clamp(x, 0, 255) << 8 | clamp(y, 0, 255) for x, y in zip(a, b)], 32))


def test_vector_moves_and_narrow_memory():
    x = np.arange(40, dtype=np.uint64) * 0x0123456789ABCDEF
    got = elementwise("mov.b64 {%h1,%h2,%h3,%h4}, %in0; mov.b64 %out, {%h4,%h3,%h2,%h1};", [x], 64)
    assert np.array_equal(got, np.ascontiguousarray(x.view(np.uint16).reshape(-1, 4)[:, ::-1]).view(np.uint64)[:, 0])
    got = elementwise("mov.b64 {_, %r1}, %in0; mov.b32 %out, %r1;", [x], 32)
    assert np.array_equal(got, (x >> np.uint64(32)).astype(np.uint32))
    source = np.arange(-8, 24, dtype=np.int8)
    out = np.zeros((32, 4), np.int32)
    body = """mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; cvt.u64.u32 %d1, %r0; add.s64 %d2, %d0, %d1; ld.global.s8 %r1, [%d2]; ld.global.u8 %r2, [%d2];
and.b32 %r3, %r0, 15; shl.b32 %r3, %r3, 1; cvt.u64.u32 %d3, %r3; add.s64 %d4, %d0, %d3; ld.global.v2.u8 {%h1, %h2}, [%d4]; ld.global.s16 %r5, [%d4];
cvt.u32.u16 %r6, %h1; cvt.u32.u16 %r7, %h2; shl.b32 %r7, %r7, 8; or.b32 %r6, %r6, %r7; ld.param.u64 %d5, [p1]; mul.wide.u32 %d6, %r0, 16;
add.s64 %d5, %d5, %d6; st.global.v4.b32 [%d5], {%r1, %r2, %r5, %r6}; ret;"""
    assert run(body, [source, out]).findings == []
    assert np.array_equal(out[:, 0], source) and np.array_equal(out[:, 1], source.view(np.uint8))
    shorts = np.tile(source.view(np.int16), 2)
    assert np.array_equal(out[:, 2], shorts) and np.array_equal(out[:, 3], shorts.view(np.uint16))
