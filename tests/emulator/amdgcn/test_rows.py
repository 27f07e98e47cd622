"""Rows one by one: the assembler takes them, and the emulator computes what plain Python says, on random and edge
inputs.
"""

from __future__ import annotations

import math
import subprocess
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from amdgcn_harness import apply, run, sample
from wavedsl.codegen.amdgcn import isa, spelling
from wavedsl.codegen.amdgcn.isa import Reg, Unit, lookup
from wavedsl.codegen.amdgcn.operand_rules import check_operands

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES = [
    0,
    1,
    2,
    3,
    31,
    32,
    33,
    63,
    64,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFF,
    0x800000,
    0xFFFFFF,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFE,
    0xFFFFFFFF,
]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.4e38,
    -3.4e38,
    1e-38,
    1e-40,
    -1e-45,
    65504.0,
    65520.0,
    6e-8,
    math.inf,
    -math.inf,
    math.nan,
    2147483648.0,
    -2147483904.0,
    4294967296.0,
    0.1,
    1 / 3,
    16777217.0,
]
RNG = np.random.default_rng(7)


def words(n=320, edges=EDGES):
    """Pairs of all edges, then random words."""
    pairs = [(x, y) for x in edges for y in edges[::3]]
    a = np.array([x for x, _ in pairs], np.uint32)
    b = np.array([y for _, y in pairs], np.uint32)
    r = RNG.integers(0, 1 << 32, (3, n), dtype=np.uint64).astype(np.uint32)
    c = np.resize(np.array(edges, np.uint32), len(pairs))
    return np.concatenate((a, r[0])), np.concatenate((b, r[1])), np.concatenate((c, r[2]))


def floats():
    edges = np.array(FLOATS, np.float32).view(np.uint32).tolist()
    a, b, c = words(edges=edges)
    # random words with exponents near each other, so that sums cancel and round
    n = 256
    near = (RNG.standard_normal((3, n)) * np.exp2(RNG.integers(-20, 20, (3, n)))).astype(np.float32).view(np.uint32)
    return tuple(np.concatenate((x, y)) for x, y in zip((a, b, c), near))


def s32(x):
    return x - (1 << 32) if x >> 31 else x


def s16(x):
    x &= 0xFFFF
    return x - 0x10000 if x >> 15 else x


def s24(x):
    x &= 0xFFFFFF
    return x - (1 << 24) if x >> 23 else x


def bfe(x, offset, width, signed=False):
    offset, width = offset & 31, width & 31
    field = x >> offset & ((1 << width) - 1)
    if signed and width:
        top = x >> 31
        field = (x | (M32 << 32 if top else 0)) >> offset & ((1 << width) - 1)
        if field >> width - 1:
            field -= 1 << width
    return field & M32


def perm(a, b, sel):
    both = a << 32 | b
    out = 0
    for i in range(4):
        s = sel >> 8 * i & 255
        if s < 8:
            byte = both >> 8 * s & 255
        elif s < 12:
            byte = 255 * (both >> 16 * (s - 8) + 15 & 1)
        else:
            byte = 0 if s == 12 else 255
        out |= byte << 8 * i
    return out


def count_leading(x):
    return 32 - x.bit_length() if x else M32


def ffbh_i(x):
    y = x ^ M32 if x >> 31 else x
    return 32 - y.bit_length() if y else M32


def halves(fn):
    return lambda *x: fn(*[v & 0xFFFF for v in x]) & 0xFFFF | (fn(*[v >> 16 for v in x]) & 0xFFFF) << 16


def clamp(x, lo, hi):
    return max(lo, min(hi, x))


INTEGER = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": count_leading,
    "v_ffbh_i32": ffbh_i,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1,
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_min_u32": min,
    "v_max_u32": max,
    "v_min_i32": lambda a, b: min(s32(a), s32(b)),
    "v_max_i32": lambda a, b: max(s32(a), s32(b)),
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: s32(b) >> (a & 31),
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_hi_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_mul_hi_i32_i24": lambda a, b: s24(a) * s24(b) >> 32,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: s32(a) * s32(b) >> 32,
    "v_add_i32": lambda a, b: a + b,
    "v_sub_i32": lambda a, b: a - b,
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + c,
    "v_mad_u32_u16": lambda a, b, c: (a & 0xFFFF) * (b & 0xFFFF) + c,
    "v_mad_i32_i16": lambda a, b, c: s16(a) * s16(b) + c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & 31),
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfe_u32": bfe,
    "v_bfe_i32": lambda a, b, c: bfe(a, b, c, True),
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    "v_perm_b32": perm,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_bcnt_u32_b32": lambda a, b: bin(a).count("1") + b,
    "v_min3_u32": lambda a, b, c: min(a, b, c),
    "v_max3_u32": lambda a, b, c: max(a, b, c),
    "v_med3_u32": lambda a, b, c: sorted((a, b, c))[1],
    "v_min3_i32": lambda a, b, c: min(map(s32, (a, b, c))),
    "v_max3_i32": lambda a, b, c: max(map(s32, (a, b, c))),
    "v_med3_i32": lambda a, b, c: sorted(map(s32, (a, b, c)))[1],
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_sad_u8": lambda a, b, c: sum(abs((a >> i & 255) - (b >> i & 255)) for i in range(0, 32, 8)) + c,
    "v_sad_u16": lambda a, b, c: sum(abs((a >> i & 0xFFFF) - (b >> i & 0xFFFF)) for i in (0, 16)) + c,
    "v_add_u16": lambda a, b: a + b & 0xFFFF,
    "v_sub_u16": lambda a, b: a - b & 0xFFFF,
    "v_mul_lo_u16": lambda a, b: a * b & 0xFFFF,
    "v_lshlrev_b16": lambda a, b: b << (a & 15) & 0xFFFF,
    "v_lshrrev_b16": lambda a, b: (b & 0xFFFF) >> (a & 15),
    "v_ashrrev_i16": lambda a, b: s16(b) >> (a & 15) & 0xFFFF,
    "v_max_i16": lambda a, b: max(s16(a), s16(b)) & 0xFFFF,
    "v_min_u16": lambda a, b: min(a & 0xFFFF, b & 0xFFFF),
    "v_mad_u16": lambda a, b, c: a * b + c & 0xFFFF,
    "v_pack_b32_f16": lambda a, b: a & 0xFFFF | b << 16,
    "v_cvt_pk_u16_u32": lambda a, b: min(a, 65535) | min(b, 65535) << 16,
    "v_cvt_pk_i16_i32": lambda a, b: clamp(s32(a), -32768, 32767) & 0xFFFF | clamp(s32(b), -32768, 32767) << 16,
    "v_pk_add_u16": halves(lambda a, b: a + b),
    "v_pk_sub_i16": halves(lambda a, b: a - b),
    "v_pk_mul_lo_u16": halves(lambda a, b: a * b),
    "v_pk_max_i16": halves(lambda a, b: max(s16(a), s16(b))),
    "v_pk_min_u16": halves(min),
    "v_pk_lshlrev_b16": halves(lambda a, b: b << (a & 15)),
    "v_pk_ashrrev_i16": halves(lambda a, b: s16(b) >> (a & 15)),
    "v_pk_mad_u16": halves(lambda a, b, c: a * b + c),
    "v_dot4_i32_i8": lambda a, b, c: sum(s8(a >> i) * s8(b >> i) for i in range(0, 32, 8)) + c,
    "v_dot4_u32_u8": lambda a, b, c: sum((a >> i & 255) * (b >> i & 255) for i in range(0, 32, 8)) + c,
    "v_dot2_i32_i16": lambda a, b, c: sum(s16(a >> i) * s16(b >> i) for i in (0, 16)) + c,
    "v_dot8_u32_u4": lambda a, b, c: sum((a >> i & 15) * (b >> i & 15) for i in range(0, 32, 4)) + c,
}


def s8(x):
    x &= 255
    return x - 256 if x >> 7 else x


@pytest.mark.parametrize("mnemonic", INTEGER)
def test_integer_rows(mnemonic):
    fn = INTEGER[mnemonic]
    n = len(lookup(mnemonic, "gfx942").explicit) - 1
    inputs = words()[:n]
    want = np.array([fn(*(int(v) for v in x)) & M32 for x in zip(*inputs)], np.uint64).astype(np.uint32)
    got = apply(mnemonic, inputs)[0]
    bad = np.flatnonzero(got != want)
    assert not bad.size, [(hex(int(x[i])) for x in inputs) for i in bad[:1]] + [
        hex(int(got[bad[0]])),
        hex(int(want[bad[0]])),
    ]


def wide(a, b):
    return np.stack((a, b))


WIDE = {
    "v_lshlrev_b64": ("su", lambda n, a: a << (n & 63)), "v_lshrrev_b64": ("su", lambda n, a: a >> (n & 63)),
    "v_ashrrev_i64": ("su", lambda n, a: (a - (1 << 64) if a >> 63 else a) >> (n & 63)),
}  # fmt: skip


@pytest.mark.parametrize("mnemonic", WIDE)
def test_wide_shifts(mnemonic):
    a, b, c = words()
    got = apply(mnemonic, [a, wide(b, c)], outs=2)
    want = [WIDE[mnemonic][1](int(n), int(x) | int(y) << 32) & M64 for n, x, y in zip(a, b, c)]
    assert [int(x) | int(y) << 32 for x, y in zip(*got)] == want


def test_wide_multiply_add():
    a, b, c = words()
    d = c[::-1].copy()
    got = apply("v_mad_u64_u32", [a, b, wide(c, d)], outs=2, order="{d}, vcc, {s}")
    want = [int(x) * int(y) + (int(z) | int(w) << 32) & M64 for x, y, z, w in zip(a, b, c, d)]
    assert [int(x) | int(y) << 32 for x, y in zip(*got)] == want
    got = apply("v_mad_i64_i32", [a, b, wide(c, d)], outs=2, order="{d}, vcc, {s}")
    want = [s32(int(x)) * s32(int(y)) + (int(z) | int(w) << 32) & M64 for x, y, z, w in zip(a, b, c, d)]
    assert [int(x) | int(y) << 32 for x, y in zip(*got)] == want


def test_lshl_add_u64():
    a, b, c = words()
    got = apply("v_lshl_add_u64", [wide(a, b), wide(c, a)], outs=2, order="{d}, v[10:11], 3, v[20:21]")
    want = [(((int(x) | int(y) << 32) << 3) + (int(z) | int(x) << 32)) & M64 for x, y, z in zip(a, b, c)]
    assert [int(x) | int(y) << 32 for x, y in zip(*got)] == want


@pytest.mark.parametrize("name,fn", [("add", lambda a, b, c: a + b + c), ("sub", lambda a, b, c: a - b - c)])
def test_carries(name, fn):
    """64-bit sums by v_add_co, v_addc_co."""
    a, b, c = words()
    second = {"add": "v_addc_co_u32", "sub": "v_subb_co_u32"}[name]
    got = apply(f"v_{name}_co_u32", [wide(a, b), wide(c, a)], outs=2, order="v40, vcc, v10, v20",
                tail=f"s_nop 1\n{second} v41, vcc, v11, v21, vcc")  # fmt: skip
    want = [fn(int(x) | int(y) << 32, int(z) | int(x) << 32, 0) & M64 for x, y, z in zip(a, b, c)]
    assert [int(x) | int(y) << 32 for x, y in zip(*got)] == want


# ---- floats


def f32(x):
    return np.asarray(x, np.uint32).view(np.float32)


def same(got, want):
    """Equal as floats: any NaN for NaN, zeros by sign."""
    got, want = np.asarray(got), np.asarray(want)
    ok = (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want)
    return np.flatnonzero(~ok)


FLOAT = {
    "v_add_f32": np.add, "v_sub_f32": np.subtract, "v_subrev_f32": lambda a, b: b - a, "v_mul_f32": np.multiply,
    "v_trunc_f32": np.trunc, "v_ceil_f32": np.ceil, "v_floor_f32": np.floor, "v_rndne_f32": np.rint,
}  # fmt: skip


@pytest.mark.parametrize("mnemonic", FLOAT)
def test_float_rows(mnemonic):
    n = FLOAT[mnemonic].nin if hasattr(FLOAT[mnemonic], "nin") else 2
    inputs = floats()[:n]
    with np.errstate(all="ignore"):
        want = FLOAT[mnemonic](*map(f32, inputs))
    assert not same(f32(apply(mnemonic, inputs)[0]), want).size


def exact_fma(a, b, c):
    """One rounding, by exact fractions."""
    a, b, c = float(a), float(b), float(c)
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            return np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    x = Fraction(a) * Fraction(b) + Fraction(c)
    if x == 0:
        return np.float32(a * b + c)
    return round_fraction(x)


def round_fraction(x):
    """Nearest even float32 of an exact value."""
    sign, x = (-1 if x < 0 else 1), abs(x)
    e = max(x.numerator.bit_length() - x.denominator.bit_length(), -126)
    while Fraction(2) ** (e + 1) <= x:
        e += 1
    while e > -126 and Fraction(2) ** e > x:
        e -= 1
    unit = Fraction(2) ** (e - 23)
    q, r = divmod(x, unit)
    q = int(q)
    if r * 2 > unit or (r * 2 == unit and q & 1):
        q += 1
    value = Fraction(q) * unit
    return np.float32(sign * (math.inf if value >= Fraction(2) ** 128 else float(value)))


@pytest.mark.parametrize("mnemonic", ["v_fma_f32", "v_fmac_f32"])
def test_fma_rounds_once(mnemonic):
    a, b, c = floats()
    # ties in double precision: a b exact, c far below its last bit
    t = np.float32([1 + 2**-12, 1 + 2**-23, -1 - 2**-12, 3.0])
    u = np.float32([1 + 2**-12, 1 - 2**-24, 1 + 2**-12, 1 / 3])
    w = np.float32([2.0**-60, -(2.0**-80), -(2.0**-70), 2.0**-100])
    a, b, c = (np.concatenate((x, y.view(np.uint32))) for x, y in zip((a, b, c), (t, u, w)))
    want = np.array([exact_fma(*x) for x in zip(f32(a), f32(b), f32(c))], np.float32)
    if mnemonic == "v_fmac_f32":
        got = apply("v_mov_b32", [a, b, c], order="v40, v30", tail="v_fmac_f32 v40, v10, v20")
    else:
        got = apply(mnemonic, [a, b, c])
    bad = same(f32(got[0]), want)
    assert not bad.size, [(f32(x)[bad[0]] for x in (a, b, c)), f32(got[0])[bad[0]], want[bad[0]]]


def test_min_max_prefer_the_number():
    a, b, _ = floats()
    x, y = f32(a), f32(b)
    for mnemonic, fn in (("v_min_f32", np.fmin), ("v_max_f32", np.fmax)):
        got = f32(apply(mnemonic, [a, b])[0])
        with np.errstate(all="ignore"):
            want = fn(x, y)
        assert ((got == want) | np.isnan(got) & np.isnan(want)).all()
    got = f32(apply("v_maximum3_f32", [a, b, a], target="gfx950")[0])
    assert (np.isnan(got) == (np.isnan(x) | np.isnan(y))).all()


def test_float_to_int_truncates_and_saturates():
    a = floats()[0]
    x = f32(a)
    for mnemonic, lo, hi in (("v_cvt_i32_f32", -(2**31), 2**31 - 1), ("v_cvt_u32_f32", 0, 2**32 - 1)):
        want = [
            0 if math.isnan(v) else clamp(int(v) if math.isfinite(v) else (hi if v > 0 else lo), lo, hi) & M32
            for v in map(float, x)
        ]
        assert apply(mnemonic, [a])[0].tolist() == want


def test_int_to_float_rounds_to_even():
    a = words()[0]
    assert (f32(apply("v_cvt_f32_u32", [a])[0]) == a.astype(np.float32)).all()
    assert (f32(apply("v_cvt_f32_i32", [a])[0]) == a.view(np.int32).astype(np.float32)).all()
    for i in range(4):
        assert (f32(apply(f"v_cvt_f32_ubyte{i}", [a])[0]) == (a >> 8 * i & 255)).all()


def test_half_conversions():
    a, b, _ = floats()
    with np.errstate(all="ignore"):
        want = f32(a).astype(np.float16)
    got = apply("v_cvt_f16_f32", [a])[0]
    assert (got >> 16 == 0).all() and not same(got.astype(np.uint16).view(np.float16), want).size
    h = np.arange(65536, dtype=np.uint32)
    assert not same(f32(apply("v_cvt_f32_f16", [h])[0]), h.astype(np.uint16).view(np.float16).astype(np.float32)).size
    packed = apply("v_cvt_pkrtz_f16_f32", [a, b])[0]
    low = (packed & 0xFFFF).astype(np.uint16).view(np.float16)
    finite = np.isfinite(f32(a))
    assert (np.abs(low[finite].astype(np.float64)) <= np.abs(f32(a)[finite].astype(np.float64))).all()
    near = finite & (np.abs(f32(a)) < 65504) & (np.abs(f32(a)) > 6.2e-5)
    assert (
        np.abs(low[near].astype(np.float64) - f32(a)[near]) < np.abs(f32(a)[near].astype(np.float64)) * 2**-10
    ).all()


@pytest.mark.parametrize(
    "mnemonic,dtype", [("v_cvt_pk_bf16_f32", ml_dtypes.bfloat16), ("v_cvt_pk_f16_f32", np.float16)]
)
def test_packed_conversions(mnemonic, dtype):
    a, b, _ = floats()
    got = apply(mnemonic, [a, b], target="gfx950")[0]
    with np.errstate(all="ignore"):
        for half, x in ((got & 0xFFFF, a), (got >> 16, b)):
            assert not same(
                half.astype(np.uint16).view(dtype).astype(np.float32), f32(x).astype(dtype).astype(np.float32)
            ).size


FP8 = {("gfx942", "fp8"): ml_dtypes.float8_e4m3fnuz, ("gfx942", "bf8"): ml_dtypes.float8_e5m2fnuz,
       ("gfx950", "fp8"): ml_dtypes.float8_e4m3fn, ("gfx950", "bf8"): ml_dtypes.float8_e5m2}  # fmt: skip


@pytest.mark.parametrize("target,name", FP8)
def test_fp8(target, name):
    """FNUZ on gfx942, OCP on gfx950: all codes to f32, and back with round to nearest even."""
    dtype = FP8[target, name]
    codes = np.arange(256, dtype=np.uint32)
    values = codes.astype(np.uint8).view(dtype).astype(np.float32)
    assert not same(f32(apply(f"v_cvt_f32_{name}", [codes], target=target)[0]), values).size
    both = apply(f"v_cvt_pk_f32_{name}", [codes | codes[::-1] << 8], target=target, outs=2)
    assert not same(f32(both[0]), values).size and not same(f32(both[1]), values[::-1]).size
    x = np.concatenate((values, (RNG.standard_normal(400) * 10).astype(np.float32)))
    y = x[::-1].copy()
    got = apply(f"v_cvt_pk_{name}_f32", [x.view(np.uint32), y.view(np.uint32)], target=target)[0]
    with np.errstate(all="ignore"):
        want = x.astype(dtype).view(np.uint8).astype(np.uint32) | y.astype(dtype).view(np.uint8).astype(np.uint32) << 8
    nan = np.isnan(x.astype(dtype).astype(np.float32)) | np.isnan(y.astype(dtype).astype(np.float32))
    assert (got[~nan] == want[~nan]).all()
    high = apply(
        f"v_cvt_pk_{name}_f32", [x.view(np.uint32), y.view(np.uint32)], target=target, modifiers="op_sel:[0,0,1]"
    )[0]
    assert (high[~nan] == want[~nan] << 16).all()


@pytest.mark.parametrize("small", ["fp8", "bf8", "fp4"])
@pytest.mark.parametrize("large", ["f32", "f16", "bf16"])
def test_scaled_conversions(small, large):
    dtype = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp4": ml_dtypes.float4_e2m1fn}[small]
    wide = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[large]
    bits = 4 if small == "fp4" else 8
    codes = np.arange(1 << 2 * bits, dtype=np.uint32)[:: 1 if bits == 4 else 97]
    scale = np.exp2(RNG.integers(-3, 4, codes.size)).astype(np.float32)
    got = apply(
        f"v_cvt_scalef32_pk_{large}_{small}",
        [codes, scale.view(np.uint32)],
        target="gfx950",
        outs=2 if large == "f32" else 1,
    )
    parts = [codes & (1 << bits) - 1, codes >> bits]
    with np.errstate(all="ignore"):
        wants = [
            (p.astype(np.uint8).view(dtype).astype(np.float64) * scale).astype(np.float32).astype(wide) for p in parts
        ]
    if large == "f32":
        have = [f32(g) for g in got]
    else:
        have = [(got[0] >> s & 0xFFFF).astype(np.uint16).view(wide) for s in (0, 16)]
    for g, w in zip(have, wants):
        assert not same(g.astype(np.float32), w.astype(np.float32)).size
    # and back: the same codes, but for NaN and negative zero of fp4
    sources = (
        [w.view(np.uint32) for w in wants]
        if large == "f32"
        else [wants[0].view(np.uint16).astype(np.uint32) | wants[1].view(np.uint16).astype(np.uint32) << 16]
    )
    back = apply(f"v_cvt_scalef32_pk_{small}_{large}", [*sources, scale.view(np.uint32)], target="gfx950")[0]
    exact = np.all([np.isfinite(w.astype(np.float32)) for w in wants], axis=0)
    again = [(back >> s & (1 << bits) - 1).astype(np.uint8).view(dtype).astype(np.float32) for s in (0, bits)]
    for g, p in zip(again, parts):
        assert (g[exact] == p.astype(np.uint8).view(dtype).astype(np.float32)[exact]).all()


UNARY = {
    "v_exp_f32": np.exp2,
    "v_log_f32": np.log2,
    "v_rcp_f32": lambda x: 1 / x,
    "v_rsq_f32": lambda x: 1 / np.sqrt(x),
    "v_sqrt_f32": np.sqrt,
}


@pytest.mark.parametrize("mnemonic", UNARY)
def test_transcendental(mnemonic):
    """Within 1 ulp, zeros for denormals."""
    x = np.concatenate(
        (np.exp2(RNG.uniform(-100, 100, 400)), RNG.uniform(-20, 20, 100), [0.0, 1.0, math.inf, -math.inf, math.nan])
    ).astype(np.float32)
    got = f32(apply(mnemonic, [x.view(np.uint32)])[0])
    with np.errstate(all="ignore"):
        want = UNARY[mnemonic](x.astype(np.float64))
        tiny = np.abs(want) < 2.0**-126
        want = np.where(tiny, 0, want).astype(np.float32)
        ulp = np.abs(np.nextafter(want, np.float32(math.inf)) - want)
        ok = (np.abs(got - want) <= ulp) | (got == want) | (np.isnan(got) & np.isnan(want))
    assert ok.all(), (x[~ok][:3], got[~ok][:3], want[~ok][:3])
    assert (f32(apply("v_rcp_f32", [np.array([1], np.uint32)])[0]) == math.inf).all()


def test_division_sequence_is_correctly_rounded():
    """The sequence that LLVM emits for IEEE f32 division."""
    x = np.concatenate(
        (f32(floats()[0]), (RNG.standard_normal(500) * np.exp2(RNG.integers(-120, 120, 500))).astype(np.float32))
    )
    y = np.concatenate(
        (f32(floats()[1]), (RNG.standard_normal(500) * np.exp2(RNG.integers(-120, 120, 500))).astype(np.float32))
    )
    tail = """
v_div_scale_f32 v2, s[40:41], v20, v20, v10
v_div_scale_f32 v3, vcc, v10, v20, v10
v_rcp_f32 v4, v2
s_nop 1
v_fma_f32 v5, -v2, v4, 1.0
v_fma_f32 v4, v5, v4, v4
v_mul_f32 v5, v3, v4
v_fma_f32 v6, -v2, v5, v3
v_fma_f32 v5, v6, v4, v5
v_fma_f32 v2, -v2, v5, v3
s_nop 3
v_div_fmas_f32 v2, v2, v4, v5
v_div_fixup_f32 v40, v2, v20, v10
"""
    got = f32(apply("v_mov_b32", [x.view(np.uint32), y.view(np.uint32)], order="v40, 0", tail=tail)[0])
    with np.errstate(all="ignore"):
        want = x / y
    bad = same(got, want)
    assert not bad.size, [(x[i], y[i], got[i], want[i]) for i in bad[:3]]


def test_f64_rows():
    a = RNG.standard_normal(300) * np.exp2(RNG.integers(-200, 200, 300))
    b = RNG.standard_normal(300) * np.exp2(RNG.integers(-200, 200, 300))
    c = -(a * b) * (1 + RNG.integers(-3, 4, 300) * 2.0**-50)
    raw = [np.ascontiguousarray(x.view(np.uint32).reshape(-1, 2).T) for x in (a, b, c)]
    for mnemonic, want in (("v_add_f64", a + b), ("v_mul_f64", a * b), ("v_max_f64", np.maximum(a, b))):
        got = np.ascontiguousarray(apply(mnemonic, raw[:2], outs=2).T).view(np.float64)[:, 0]
        assert (got == want).all()
    got = np.ascontiguousarray(apply("v_fma_f64", raw, outs=2).T).view(np.float64)[:, 0]
    want = np.array([float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c)])
    assert (got == want).all()
    single = floats()[0]
    got = np.ascontiguousarray(apply("v_cvt_f64_f32", [single], outs=2).T).view(np.float64)[:, 0]
    assert not same(got, f32(single).astype(np.float64)).size


def test_packed_f32():
    a, b, c = (x[:600] for x in floats())
    x, y = wide(a, b), wide(c, a)
    with np.errstate(all="ignore"):
        got = apply("v_pk_mul_f32", [x, y], outs=2)
        assert not same(f32(got[0]), f32(a) * f32(c)).size and not same(f32(got[1]), f32(b) * f32(a)).size
        got = apply("v_pk_mul_f32", [x, y], outs=2, modifiers="op_sel_hi:[1,0]")
        assert not same(f32(got[1]), f32(b) * f32(c)).size
        got = apply("v_pk_add_f32", [x, y], outs=2, modifiers="op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1]")
        assert not same(f32(got[0]), f32(b) - f32(c)).size and not same(f32(got[1]), f32(a) + f32(a)).size
    got = apply("v_pk_mov_b32", [x, y], outs=2, modifiers="op_sel:[1,0]")
    assert (got[0] == b).all() and (got[1] == c).all()


def test_packed_f16():
    h = RNG.standard_normal((2, 400)).astype(np.float16)
    k = RNG.standard_normal((2, 400)).astype(np.float16)
    w = [x[0].view(np.uint16).astype(np.uint32) | x[1].view(np.uint16).astype(np.uint32) << 16 for x in (h, k)]
    for mnemonic, fn in (("v_pk_add_f16", np.add), ("v_pk_mul_f16", np.multiply), ("v_pk_max_f16", np.fmax)):
        got = apply(mnemonic, w)[0]
        for i in (0, 1):
            assert ((got >> 16 * i & 0xFFFF).astype(np.uint16).view(np.float16) == fn(h[i], k[i])).all()
    got = apply("v_pk_fma_f16", [w[0], w[1], w[0]])[0]
    want = (h[0].astype(np.float64) * k[0] + h[0]).astype(np.float16)
    assert ((got & 0xFFFF).astype(np.uint16).view(np.float16) == want).all()
    got = f32(apply("v_dot2_f32_f16", [*w, np.zeros(400, np.uint32)])[0])
    assert np.allclose(got, (h.astype(np.float64) * k).sum(0), rtol=1e-6)
    got = f32(
        apply(
            "v_fma_mix_f32",
            [*w, np.ones(400, np.float32).view(np.uint32)],
            modifiers="op_sel:[1,0,0] op_sel_hi:[1,1,0]",
        )[0]
    )
    assert (got == (h[1].astype(np.float64) * k[0] + 1).astype(np.float32)).all()


@pytest.mark.parametrize(
    "modifier,fn",
    [
        ("", lambda a, b: a + b),
        ("clamp", lambda a, b: np.where(np.isnan(a + b), 0, np.clip(a + b, 0, 1))),
        ("mul:2", lambda a, b: (a + b) * 2),
        ("div:2", lambda a, b: (a + b) / 2),
    ],
)
def test_output_modifiers(modifier, fn):
    a, b, _ = floats()
    with np.errstate(all="ignore"):
        want = fn(f32(a), f32(b)).astype(np.float32)
    assert not same(np.abs(f32(apply("v_add_f32_e64", [a, b], modifiers=modifier)[0])), np.abs(want)).size


def test_input_modifiers():
    a, b, _ = floats()
    with np.errstate(all="ignore"):
        want = -np.abs(f32(a)) - f32(b)
    assert not same(f32(apply("v_add_f32_e64", [a, b], order="{d}, -|v10|, -v20")[0]), want).size


def test_integer_clamp_saturates():
    a, b, _ = words()
    got = apply("v_add_u32_e64", [a, b], modifiers="clamp")[0]
    assert (got == np.minimum(a.astype(np.uint64) + b, M32)).all()
    got = apply("v_sub_u32_e64", [a, b], modifiers="clamp")[0]
    assert (got == np.where(a > b, a - b, 0)).all()
    got = apply("v_add_i32", [a, b], modifiers="clamp")[0].view(np.int32)
    assert (got == np.clip(a.view(np.int32).astype(np.int64) + b.view(np.int32), -(2**31), 2**31 - 1)).all()


def test_denormal_mode():
    """float_denorm_mode_32 0, the assembler's default, flushes inputs and results."""
    a = np.array([1e-40, -1e-40, 1e-38, 2.0], np.float32).view(np.uint32)
    b = np.array([1e-40, 1.0, -1.1e-38, 1e-39], np.float32).view(np.uint32)
    got = f32(apply("v_add_f32", [a, b], float_denorm_mode_32=0)[0])
    assert got.tolist() == [0.0, 1.0, 0.0, 2.0]
    with np.errstate(all="ignore"):
        assert not same(f32(apply("v_add_f32", [a, b])[0]), f32(a) + f32(b)).size


@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
def test_compares(target):
    a, b, _ = floats()
    x, y = f32(a), f32(b)
    with np.errstate(all="ignore"):
        o = ~(np.isnan(x) | np.isnan(y))
        table = {
            "lt": x < y,
            "eq": x == y,
            "le": x <= y,
            "gt": x > y,
            "ge": x >= y,
            "lg": o & (x != y),
            "o": o,
            "u": ~o,
            "nlt": ~(x < y),
            "neq": ~(x == y),
            "nge": ~(x >= y),
        }
    for name, want in table.items():
        got = apply(
            f"v_cmp_{name}_f32", [a, b], target=target, order="vcc, {s}", tail="s_nop 1\nv_cndmask_b32 v40, 0, 1, vcc"
        )[0]
        assert (got == want).all(), name
    for name, fn in (
        ("lt_i32", lambda: a.view(np.int32) < b.view(np.int32)),
        ("gt_u32", lambda: a > b),
        ("ne_u32", lambda: a != b),
    ):
        got = apply(
            f"v_cmp_{name}",
            [a, b],
            target=target,
            order="s[40:41], {s}",
            tail="s_nop 1\nv_cndmask_b32_e64 v40, 0, 1, s[40:41]",
        )[0]
        assert (got == fn()).all(), name


def test_class():
    values = np.array(
        [0x7F800001, 0x7FC00000, 0xFF800000, 0xBF800000, 0x80000001, 0x80000000, 0, 1, 0x3F800000, 0x7F800000],
        np.uint32,
    )
    for bit in range(10):
        mask = np.full(10, 1 << bit, np.uint32)
        got = apply("v_cmp_class_f32", [values, mask], order="vcc, {s}", tail="s_nop 1\nv_cndmask_b32 v40, 0, 1, vcc")[
            0
        ]
        assert got.tolist() == [int(i == bit) for i in range(10)]


def test_bitop3_any_table():
    a, b, c = words()
    for table in (0x96, 0xE8, 0xF8, 0x78, 0x1, 0xA5):
        got = apply("v_bitop3_b32", [a, b, c], target="gfx950", modifiers=f"bitop3:{table:#x}")[0]
        want = np.zeros_like(a)
        for bit in range(32):
            index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
            want |= (table >> index.astype(np.uint32) & 1).astype(np.uint32) << bit
        assert (got == want).all()


# ---- lane crossing


def test_dpp_and_sdwa():
    a = np.arange(64, dtype=np.uint32) + 100
    lane = np.arange(64)
    sources = {
        "quad_perm:[1,0,3,2]": lane ^ 1,
        "row_mirror": lane ^ 15,
        "row_half_mirror": lane ^ 7,
        "row_ror:4": lane & 48 | (lane - 4) & 15,
        "row_newbcast:3": lane & 48 | 3,
    }
    for control, source in sources.items():
        got = apply("v_mov_b32_dpp", [a], modifiers=f"{control} row_mask:0xf bank_mask:0xf")[0]
        assert (got == a[source]).all(), control
    got = apply("v_mov_b32_dpp", [a], modifiers="row_shr:1 row_mask:0xf bank_mask:0xf")[0]
    assert (got == np.where(lane % 16 == 0, 0, a[lane - 1])).all()
    got = apply("v_mov_b32_dpp", [a], modifiers="row_shl:2 row_mask:0xf bank_mask:0xf bound_ctrl:0")[0]
    assert (got == np.where(lane % 16 >= 14, 0, a[np.minimum(lane + 2, 63)])).all()
    got = apply("v_mov_b32_dpp", [a], modifiers="row_bcast:15 row_mask:0xa bank_mask:0xf")[0]
    assert (got == np.where((lane >> 4) % 2 == 1, a[np.maximum((lane & 48) - 1, 0)], 0)).all()
    got = apply("v_mov_b32_dpp", [a], modifiers="row_bcast:31 row_mask:0xc bank_mask:0xf")[0]
    assert (got == np.where(lane >= 32, a[31], 0)).all()
    x, y, _ = words()
    got = apply("v_sub_u32_sdwa", [x, y], order="v40, sext(v10), v20",
                modifiers="dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1")[0]  # fmt: skip
    assert (got == ((x >> 8).astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32) - (y >> 16))).all()
    got = apply(
        "v_add_u32_sdwa", [x, y], modifiers="dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD"
    )[0]
    assert (got == (x + y & 255) << 16).all()


@pytest.mark.parametrize("n", [16, 32])
def test_permlane_swap(n):
    a = np.arange(64, dtype=np.uint32)
    b = a + 1000
    lane = np.arange(64)
    got = apply("v_mov_b32", [a, b], order="v40, v10", outs=2, target="gfx950",
                tail=f"v_mov_b32 v41, v20\ns_nop 1\nv_permlane{n}_swap_b32 v40, v41")  # fmt: skip
    odd = lane // n % 2 == 1
    assert (got[0] == np.where(odd, b[lane ^ n], a)).all() and (got[1] == np.where(odd, b, a[lane ^ n])).all()


def test_lane_reads_and_counts():
    a = np.arange(64, dtype=np.uint32) * 3
    got = apply(
        "v_mov_b32",
        [a],
        order="v40, 0",
        tail="v_readlane_b32 s40, v10, 5\ns_mov_b64 exec, 0xff00\nv_readfirstlane_b32 s41, v10\n"
        "s_mov_b64 exec, -1\nv_mov_b32 v40, s40\ns_nop 0\nv_writelane_b32 v40, s41, 7",
    )[0]
    assert got[7] == 24 and (np.delete(got, 7) == 15).all()
    got = apply("v_mbcnt_lo_u32_b32", [a], order="v40, -1, 0", tail="v_mbcnt_hi_u32_b32 v40, -1, v40")[0]
    assert (got == np.arange(64)).all()


def test_ds_cross_lane():
    a = np.arange(64, dtype=np.uint32) + 7
    lane = np.arange(64)
    tail = "v_xor_b32 v2, 0x55, v0\nv_lshlrev_b32 v2, 2, v2\nds_bpermute_b32 v40, v2, v10\ns_waitcnt lgkmcnt(0)"
    assert (apply("v_mov_b32", [a], order="v40, 0", tail=tail)[0] == a[(lane ^ 0x55) % 64]).all()
    tail = tail.replace("ds_bpermute", "ds_permute")
    assert (apply("v_mov_b32", [a], order="v40, 0", tail=tail)[0] == a[(lane ^ 0x55) % 64]).all()
    for pattern, source in (
        ("SWAP,16", lane ^ 16),
        ("REVERSE,8", lane ^ 7),
        ("BROADCAST,4,2", lane & ~3 | 2),
        ("QUAD_PERM,3,2,1,0", lane ^ 3),
        ('BITMASK_PERM,"00p11"', lane & 32 | lane & 4 | 3),
    ):
        tail = f"ds_swizzle_b32 v40, v10 offset:swizzle({pattern})\ns_waitcnt lgkmcnt(0)"
        assert (apply("v_mov_b32", [a], order="v40, 0", tail=tail)[0] == a[source]).all(), pattern


# ---- scalar rows


def scalar(code, *values, count=1):
    """Run scalar code on s[16:17], s[18:19], … and return s[40:41] and SCC."""
    out = np.zeros(4, np.uint32)
    load = "\n".join(f"s_mov_b32 s{16 + i}, {int(v):#x}" for i, v in enumerate(values))
    body = f"""
s_load_dwordx2 s[8:9], s[0:1], 0x0
s_mov_b64 s[40:41], 0
s_waitcnt lgkmcnt(0)
{load}
s_cmp_eq_u32 s16, s16
{code}
s_cselect_b32 s42, 1, 0
v_mov_b32 v2, s40
v_mov_b32 v3, s41
v_mov_b32 v4, s42
v_mov_b32 v1, 0
s_mov_b64 exec, 1
global_store_dwordx3 v1, v[2:4], s[8:9]
"""
    run(body, [out], checks=True)
    return int(out[0]) | int(out[1]) << 32, int(out[2])


SCALAR = {
    "s_add_u32 s40, s16, s18": lambda a, b: (a + b & M32, a + b > M32),
    "s_sub_u32 s40, s16, s18": lambda a, b: (a - b & M32, a < b),
    "s_add_i32 s40, s16, s18": lambda a, b: (a + b & M32, not -(2**31) <= s32(a) + s32(b) < 2**31),
    "s_sub_i32 s40, s16, s18": lambda a, b: (a - b & M32, not -(2**31) <= s32(a) - s32(b) < 2**31),
    "s_addc_u32 s40, s16, s18": lambda a, b: (a + b + 1 & M32, a + b + 1 > M32),
    "s_subb_u32 s40, s16, s18": lambda a, b: (a - b - 1 & M32, a < b + 1),
    "s_min_i32 s40, s16, s18": lambda a, b: (min(a, b, key=s32), s32(a) < s32(b)),
    "s_max_u32 s40, s16, s18": lambda a, b: (max(a, b), a > b),
    "s_and_b32 s40, s16, s18": lambda a, b: (a & b, a & b != 0),
    "s_andn2_b32 s40, s16, s18": lambda a, b: (a & ~b, a & ~b != 0),
    "s_orn2_b32 s40, s16, s18": lambda a, b: ((a | ~b) & M32, (a | ~b) & M32 != 0),
    "s_xnor_b32 s40, s16, s18": lambda a, b: (~(a ^ b) & M32, a ^ b != M32),
    "s_lshl_b32 s40, s16, s18": lambda a, b: (a << (b & 31) & M32, a << (b & 31) & M32 != 0),
    "s_ashr_i32 s40, s16, s18": lambda a, b: (s32(a) >> (b & 31) & M32, s32(a) >> (b & 31) != 0),
    "s_mul_i32 s40, s16, s18": lambda a, b: (a * b & M32, 1),
    "s_mul_hi_u32 s40, s16, s18": lambda a, b: (a * b >> 32, 1),
    "s_mul_hi_i32 s40, s16, s18": lambda a, b: (s32(a) * s32(b) >> 32 & M32, 1),
    "s_lshl2_add_u32 s40, s16, s18": lambda a, b: ((a << 2) + b & M32, (a << 2) + b > M32),
    "s_bfm_b32 s40, s16, s18": lambda a, b: (((1 << (a & 31)) - 1) << (b & 31) & M32, 1),
    "s_pack_ll_b32_b16 s40, s16, s18": lambda a, b: (a & 0xFFFF | b << 16 & M32, 1),
    "s_not_b32 s40, s16": lambda a, b: (~a & M32, ~a & M32 != 0),
    "s_brev_b32 s40, s16": lambda a, b: (int(f"{a:032b}"[::-1], 2), 1),
    "s_bcnt1_i32_b32 s40, s16": lambda a, b: (bin(a).count("1"), a != 0),
    "s_ff1_i32_b32 s40, s16": lambda a, b: ((a & -a).bit_length() - 1 & M32, 1),
    "s_flbit_i32_b32 s40, s16": lambda a, b: (count_leading(a), 1),
    "s_sext_i32_i8 s40, s16": lambda a, b: (s8(a) & M32, 1),
    "s_sext_i32_i16 s40, s16": lambda a, b: (s16(a) & M32, 1),
    "s_abs_i32 s40, s16": lambda a, b: (abs(s32(a)) & M32, a != 0),
    "s_bfe_u32 s40, s16, 0x80004": lambda a, b: (a >> 4 & 255, a >> 4 & 255 != 0),
    "s_bfe_i32 s40, s16, 0x80004": lambda a, b: (s8(a >> 4) & M32, a >> 4 & 255 != 0),
    "s_absdiff_i32 s40, s16, s18": lambda a, b: (abs(s32(a) - s32(b)) & M32, a != b),
    "s_cmp_lt_i32 s16, s18": lambda a, b: (0, s32(a) < s32(b)),
    "s_cmp_ge_u32 s16, s18": lambda a, b: (0, a >= b),
    "s_cmpk_gt_i32 s16, -5": lambda a, b: (0, s32(a) > -5),
    "s_bitcmp1_b32 s16, s18": lambda a, b: (0, a >> (b & 31) & 1),
    "s_cselect_b32 s40, s16, s18": lambda a, b: (a, 1),
    "s_movk_i32 s40, 0x8000": lambda a, b: (0xFFFF8000, 1),
}


@pytest.mark.parametrize("code", SCALAR)
def test_scalar_rows(code):
    pairs = [
        (0, 0),
        (1, 31),
        (0xFFFFFFFF, 1),
        (0x80000000, 0xFFFFFFFF),
        (0x7FFFFFFF, 0x7FFFFFFF),
        (0x12345678, 40),
        (5, 5),
        (0xFFF0, 0x10001),
    ]
    for a, b in pairs:
        value, scc = SCALAR[code](a, b)
        assert scalar(code, a, 0, b) == (value, int(scc)), (a, b)


def test_scalar_wide():
    a, b = 0x123456789ABCDEF0, 0x0F0F00000000FFFF
    args = (a & M32, a >> 32, b & M32, b >> 32)
    table = {
        "s_and_b64 s[40:41], s[16:17], s[18:19]": a & b,
        "s_or_b64 s[40:41], s[16:17], s[18:19]": a | b,
        "s_lshl_b64 s[40:41], s[16:17], 12": a << 12 & M64,
        "s_lshr_b64 s[40:41], s[16:17], s18": a >> 63,
        "s_ashr_i64 s[40:41], s[16:17], 8": a >> 8,
        "s_not_b64 s[40:41], s[16:17]": ~a & M64,
        "s_bfe_u64 s[40:41], s[16:17], 0x140008": a >> 8 & 0xFFFFF,
        "s_brev_b64 s[40:41], s[16:17]": int(f"{a:064b}"[::-1], 2),
        "s_bcnt1_i32_b64 s40, s[16:17]": bin(a).count("1"),
        "s_ff1_i32_b64 s40, s[16:17]": 4,
        "s_flbit_i32_b64 s40, s[16:17]": 3,
        "s_mov_b64 s[40:41], -2": M64 - 1,
        "s_mov_b64 s[40:41], 0xfffffffe": 0xFFFFFFFE,
        "s_wqm_b64 s[40:41], s[16:17]": 0xFFFFFFFFFFFFFFF0,
        "s_quadmask_b64 s[40:41], s[16:17]": 0xFFFE,
    }
    for code, want in table.items():
        assert scalar(code, *args)[0] == want, code


def test_saveexec_and_branches():
    body = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 0
v_cmp_gt_u32 vcc, 10, v0
s_waitcnt lgkmcnt(0)
s_and_saveexec_b64 s[20:21], vcc
s_cbranch_execz else
v_mov_b32 v2, 1
else:
s_xor_b64 exec, exec, s[20:21]
v_add_u32 v2, 5, v2
s_or_b64 exec, exec, s[20:21]
s_mov_b32 s12, 0
loop:
v_add_u32 v2, 10, v2
s_add_i32 s12, s12, 1
s_cmp_lt_i32 s12, 3
s_cbranch_scc1 loop
s_getpc_b64 s[30:31]
s_add_u32 s30, s30, function@rel32@lo+4
s_addc_u32 s31, s31, function@rel32@hi+12
s_swappc_b64 s[28:29], s[30:31]
global_store_dword v1, v2, s[8:9]
s_endpgm
function:
v_add_u32 v2, 100, v2
s_setpc_b64 s[28:29]
"""
    out = np.zeros(64, np.uint32)
    run(body, [out], checks=True)
    assert (out == np.where(np.arange(64) < 10, 131, 135)).all()


# ---- the table itself


@pytest.mark.parametrize("target", isa.TARGETS)
def test_the_assembler_takes_every_row(oracle, target):
    """Names, operand kinds, widths and modifiers of all rows, by LLVM's assembler."""
    rows = list(isa.all_rows(target))
    lines = []
    for row in rows:
        operands, modifiers = sample(row)
        if row.special != "waitcnt":
            assert check_operands(row, operands, target, modifiers) == [], row
        lines.append(spelling.text(row, operands, modifiers))
    done = subprocess.run([oracle("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}"],
                          input="target:\n" + "\n".join(lines) + "\n", capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.parametrize("target", isa.TARGETS)
def test_every_row_decodes(target):
    """The parser reads back what `text` prints, as the same row or its printed encoding, and the emulator has a meaning
    for it."""
    from wavedsl.runtime.emulator.amdgcn.text import parse

    rows = list(isa.all_rows(target))
    lines = []
    for row in rows:
        operands, modifiers = sample(row)
        lines.append(spelling.text(row, operands, modifiers))
    program = parse("target:\n" + "\n".join(lines), target)
    assert len(program.lines) == len(rows)
    for line, row in zip(program.lines, rows):
        printed = line.text.split()[0]
        if printed in (f"{row.mnemonic}_e32", f"{row.mnemonic}_e64"):  # the parser gives the row of the encoding
            assert line.inst == lookup(printed, target) and line.inst.base == row.base, (line.text, line.problem)
        else:
            assert line.inst == row, (line.text, line.problem)


def test_rows_are_complete():
    for target in isa.TARGETS:
        for row in isa.all_rows(target):
            assert row.semantics is not None or row.special, row
            assert (
                row.issue > 0 and row.source and (row.latency > 0 or row.unit in (Unit.WAITCNT, Unit.NOP, Unit.BARRIER))
            ), row
            if row.unit in (Unit.VMEM, Unit.SCRATCH):
                assert "vmcnt" in row.counters, row


def test_lookup_says_where_a_row_exists():
    with pytest.raises(KeyError, match="only on gfx950"):
        lookup("v_bitop3_b32", "gfx942")
    with pytest.raises(KeyError, match="not an AMDGCN instruction"):
        lookup("v_add_nc_u32", "gfx942")


WRONG = [
    (
        "buffer_load_dwordx4",
        [Reg("v", 0, 4), Reg("v", 4), Reg("s", 4, 4), 0],
        {"offen": True, "offset": 4096},
        "0..4095",
    ),
    ("buffer_load_dwordx4", [Reg("v", 0, 4), Reg("v", 4), Reg("s", 4, 4), 0x12345], {"offen": True}, "literal"),
    (
        "buffer_load_dwordx4",
        [Reg("v", 0, 4), Reg("v", 4, 2), Reg("s", 4, 4), 0],
        {"offen": True},
        "1 address registers",
    ),
    ("global_load_dword", [Reg("v", 0), Reg("v", 2), isa.OFF], {}, "2 address registers"),
    ("global_load_dword", [Reg("v", 0), Reg("v", 2, 2), isa.OFF], {"offset": 4096}, "-4096..4095"),
    ("ds_read_b128", [Reg("v", 1, 4), Reg("v", 5)], {}, "even"),
    ("ds_read_b32", [Reg("v", 1), Reg("v", 5)], {"offset": 65536}, "65535"),
    ("s_nop", [16], {}, "0..15"),
    ("s_load_dwordx4", [Reg("s", 2, 4), Reg("s", 8, 2), 0], {}, "multiple of 4"),
    ("v_and_or_b32", [Reg("v", 0), Reg("v", 1), Reg("s", 2), Reg("s", 3)], {}, "one scalar register"),
    ("v_and_or_b32", [Reg("v", 0), Reg("v", 1), 0xFF, Reg("v", 2)], {}, "literal"),
    ("v_mul_f32_e64", [Reg("v", 0), Reg("v", 1), 0x3FB8AA3B], {}, "literal"),
    ("v_add_u32_e32", [Reg("v", 0), Reg("v", 1), Reg("s", 1)], {}, "cannot be s1"),
    ("v_cndmask_b32_e32", [Reg("v", 0), Reg("s", 1), Reg("v", 2), isa.VCC], {}, "one scalar register"),
    (
        "v_mfma_f32_16x16x16_f16",
        [Reg("v", 0, 4), Reg("v", 4, 2), Reg("v", 6, 2), Reg("a", 0, 4)],
        {},
        "one register file",
    ),
    ("v_mfma_f32_16x16x16_f16", [Reg("v", 1, 4), Reg("v", 4, 2), Reg("v", 6, 2), 0], {}, "even"),
    ("v_lshl_add_u64", [Reg("v", 0, 2), Reg("v", 2, 2), 5, Reg("v", 4, 2)], {}, "0..4"),
    ("v_add_f32_e32", [Reg("v", 0), 1.0], {}, "3 operands"),
    ("v_mov_b32_e32", [Reg("v", 256), 0], {}, "outside"),
]


@pytest.mark.parametrize("mnemonic,operands,modifiers,message", WRONG)
def test_wrong_operands_are_refused(mnemonic, operands, modifiers, message):
    wrong = check_operands(lookup(mnemonic, "gfx942"), operands, "gfx942", modifiers)
    assert any(message in w for w in wrong), wrong


def test_constants():
    assert isa.is_inline(0.5) and isa.is_inline(-16) and isa.is_inline(64) and isa.is_inline(0xFFFFFFFF)
    assert not isa.is_inline(65) and not isa.is_inline(0.3) and not isa.is_inline(-17)
