# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Arithmetic of the rows against references that do not come from them: Python integers, exact fractions, math, ml_dtypes."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import elementwise, raw, run

rng = np.random.default_rng(7)


def integers(bits, signed, n=200):
    """Edge values and random ones, as Python ints."""
    top = 1 << bits
    edge = [
        0,
        1,
        2,
        3,
        7,
        8,
        bits - 1,
        bits,
        bits + 1,
        top - 1,
        top - 2,
        top >> 1,
        (top >> 1) - 1,
        (top >> 1) + 1,
        0x55,
        0xAA,
    ]
    values = [e % top for e in edge] + [int(x) % top for x in rng.integers(0, 2**63, n)]
    return [v - top if signed and v >> (bits - 1) else v for v in values]


def array(values, bits):
    return np.array([v % (1 << bits) for v in values], dtype=f"u{bits // 8}")


def pairs(bits, signed):
    a = integers(bits, signed)
    b = list(a)
    np.random.default_rng(1).shuffle(b)
    edge = integers(bits, signed, 0)
    return a + [x for x in edge for _ in edge], b + [y for _ in edge for y in edge]


def trunc_div(a, b, ones):
    return ones if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def sign(v, bits):
    v %= 1 << bits
    return v - (1 << bits) if v >> (bits - 1) else v


TWO = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul.lo": lambda a, b, n: a * b,
    "mul.hi": lambda a, b, n: (a * b) >> n,
    "div": lambda a, b, n: trunc_div(a, b, -1),
    "rem": lambda a, b, n: a if b == 0 else a - b * trunc_div(a, b, 0),
    "min": lambda a, b, n: min(a, b),
    "max": lambda a, b, n: max(a, b),
}


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("op", TWO)
def test_integer_pairs(op, type_):
    bits, signed = int(type_[1:]), type_[0] == "s"
    a, b = pairs(bits, signed)
    got = elementwise(f"{op}.{type_} %out, %in0, %in1;", [array(a, bits), array(b, bits)], bits)
    want = array([TWO[op](x, y, bits) for x, y in zip(a, b)], bits)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32"])
def test_wide_products(type_):
    bits, signed = int(type_[1:]), type_[0] == "s"
    a, b = pairs(bits, signed)
    got = elementwise(f"mul.wide.{type_} %out, %in0, %in1;", [array(a, bits), array(b, bits)], 2 * bits)
    assert np.array_equal(got, array([x * y for x, y in zip(a, b)], 2 * bits))
    c = integers(2 * bits, signed, len(a))[: len(a)]
    got = elementwise(
        f"mad.wide.{type_} %out, %in0, %in1, %in2;", [array(a, bits), array(b, bits), array(c, 2 * bits)], 2 * bits
    )
    assert np.array_equal(got, array([x * y + z for x, y, z in zip(a, b, c)], 2 * bits))


@pytest.mark.parametrize("type_", ["u32", "s32"])
def test_three_operands(type_):
    a, b = pairs(32, type_[0] == "s")
    c = b[::-1]
    arrays = [array(x, 32) for x in (a, b, c)]
    low24 = (lambda v: sign(v, 24)) if type_ == "s32" else (lambda v: v % (1 << 24))
    for op, fn in {
        "mad.lo": lambda x, y, z: x * y + z,
        "mad.hi": lambda x, y, z: ((x * y) >> 32) + z,
        "mad24.lo": lambda x, y, z: low24(x) * low24(y) + z,
        "sad": lambda x, y, z: abs(x - y) + z,
    }.items():
        got = elementwise(f"{op}.{type_} %out, %in0, %in1, %in2;", arrays, 32)
        assert np.array_equal(got, array([fn(*v) for v in zip(a, b, c)], 32)), op
    got = elementwise(f"mul24.hi.{type_} %out, %in0, %in1;", arrays[:2], 32)
    assert np.array_equal(got, array([(low24(x) * low24(y)) >> 16 for x, y in zip(a, b)], 32))


def test_saturating_integers():
    a, b = pairs(32, True)
    arrays = [array(a, 32), array(b, 32)]
    clamp = lambda v: max(-(2**31), min(2**31 - 1, v))  # noqa: E731
    assert np.array_equal(
        elementwise("add.sat.s32 %out, %in0, %in1;", arrays, 32), array([clamp(x + y) for x, y in zip(a, b)], 32)
    )
    assert np.array_equal(
        elementwise("sub.sat.s32 %out, %in0, %in1;", arrays, 32), array([clamp(x - y) for x, y in zip(a, b)], 32)
    )


def test_carry_chains_make_wide_arithmetic():
    a, b = pairs(64, False)
    split = "mov.b64 {%r1,%r2}, %in0; mov.b64 {%r3,%r4}, %in1;"
    arrays = [array(a, 64), array(b, 64)]
    got = elementwise(
        f"{split} add.cc.u32 %r5, %r1, %r3; addc.u32 %r6, %r2, %r4; mov.b64 %out, {{%r5,%r6}};", arrays, 64
    )
    assert np.array_equal(got, array([x + y for x, y in zip(a, b)], 64))
    got = elementwise(
        f"{split} sub.cc.u32 %r5, %r1, %r3; subc.u32 %r6, %r2, %r4; mov.b64 %out, {{%r5,%r6}};", arrays, 64
    )
    assert np.array_equal(got, array([x - y for x, y in zip(a, b)], 64))
    code = f"""{split} mul.lo.u32 %r5, %r1, %r3; mul.hi.u32 %r6, %r1, %r3; mad.lo.cc.u32 %r6, %r1, %r4, %r6; madc.hi.u32 %r7, %r1, %r4, 0;
mad.lo.cc.u32 %r6, %r2, %r3, %r6; madc.hi.cc.u32 %r7, %r2, %r3, %r7; addc.u32 %r8, 0, 0; mad.lo.cc.u32 %r7, %r2, %r4, %r7; mov.b64 %out, {{%r6,%r7}};"""
    got = elementwise(code, arrays, 64)
    assert np.array_equal(got, array([(x * y) >> 32 for x, y in zip(a, b)], 64))


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counting(bits):
    a = integers(bits, False)
    x = array(a, bits)
    for op, fn in {
        f"popc.b{bits}": lambda v: bin(v).count("1"),
        f"clz.b{bits}": lambda v: bits - v.bit_length(),
        f"bfind.u{bits}": lambda v: v.bit_length() - 1,
        f"bfind.shiftamt.u{bits}": lambda v: bits - v.bit_length() if v else -1,
        f"bfind.s{bits}": lambda v: (v ^ ((1 << bits) - 1) if v >> (bits - 1) else v).bit_length() - 1,
    }.items():
        got = elementwise(f"{op} %out, %in0;", [x], 32)
        assert np.array_equal(got, array([fn(v) for v in a], 32)), op
    got = elementwise(f"brev.b{bits} %out, %in0;", [x], bits)
    assert np.array_equal(got, array([int(f"{v:0{bits}b}"[::-1], 2) for v in a], bits))


def field_of(v, pos, length, bits, signed):
    pos, length = pos & 255, length & 255
    top = bits - 1
    last = min(pos + length - 1, top)
    s = 0 if not signed or length == 0 else v >> last & 1
    out = 0
    for i in range(bits):
        bit = v >> (pos + i) & 1 if i < length and pos + i <= top else s
        out |= bit << i
    return out


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_bit_fields(type_):
    bits, signed = int(type_[1:]), type_[0] == "s"
    a = integers(bits, False, 300)
    pos = [int(x) for x in rng.choice([0, 1, 5, 16, 31, 32, 33, 63, 64, 200, 255, 256], len(a))]
    length = [int(x) for x in rng.choice([0, 1, 4, 15, 31, 32, 33, 64, 255], len(a))]
    arrays = [array(a, bits), array(pos, 32), array(length, 32)]
    got = elementwise(f"bfe.{type_} %out, %in0, %in1, %in2;", arrays, bits)
    assert np.array_equal(got, array([field_of(*v, bits, signed) for v in zip(a, pos, length)], bits))
    if not signed:
        b = a[::-1]
        got = elementwise(f"bfi.b{bits} %out, %in0, %in3, %in1, %in2;", [*arrays, array(b, bits)], bits)
        want = []
        for v, p, n, base in zip(a, pos, length, b):
            for i in range(n & 255):
                if (p & 255) + i < bits:
                    at = (p & 255) + i
                    base = base & ~(1 << at) | (v >> i & 1 if i < bits else 0) << at
            want.append(base)
        assert np.array_equal(got, array(want, bits))


def test_logic_and_selection():
    a, b = pairs(32, False)
    c = b[::-1]
    arrays = [array(x, 32) for x in (a, b, c)]
    for lut in (0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1B, 0x00, 0xFF, 0x6A):
        got = elementwise(f"lop3.b32 %out, %in0, %in1, %in2, {lut};", arrays, 32)
        want = [
            sum((lut >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i for i in range(32))
            for x, y, z in zip(a, b, c)
        ]
        assert np.array_equal(got, array(want, 32)), lut
    for op, fn in {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}.items():
        assert np.array_equal(
            elementwise(f"{op}.b32 %out, %in0, %in1;", arrays[:2], 32), array([fn(x, y) for x, y in zip(a, b)], 32)
        )
    assert np.array_equal(elementwise("not.b32 %out, %in0;", arrays[:1], 32), array([~x for x in a], 32))
    assert np.array_equal(elementwise("cnot.b32 %out, %in0;", arrays[:1], 32), array([x == 0 for x in a], 32))
    got = elementwise("setp.lt.u32 %p0, %in0, %in1; selp.b32 %out, %in2, 7, %p0;", arrays, 32)
    assert np.array_equal(got, array([z if x < y else 7 for x, y, z in zip(a, b, c)], 32))
    got = elementwise("slct.b32.s32 %out, %in0, %in1, %in2;", arrays, 32)
    assert np.array_equal(got, array([x if sign(z, 32) >= 0 else y for x, y, z in zip(a, b, c)], 32))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts(bits):
    a = integers(bits, False)
    n = [int(x) for x in rng.choice([0, 1, 5, bits - 1, bits, bits + 1, 200, 2**32 - 1], len(a))]
    arrays = [array(a, bits), array(n, 32)]
    assert np.array_equal(
        elementwise(f"shl.b{bits} %out, %in0, %in1;", arrays, bits),
        array([v << min(k, bits) for v, k in zip(a, n)], bits),
    )
    assert np.array_equal(
        elementwise(f"shr.u{bits} %out, %in0, %in1;", arrays, bits),
        array([v >> min(k, bits) for v, k in zip(a, n)], bits),
    )
    want = array([sign(v, bits) >> min(k, bits) for v, k in zip(a, n)], bits)
    assert np.array_equal(elementwise(f"shr.s{bits} %out, %in0, %in1;", arrays, bits), want)


def test_funnel_shift_and_byte_permutation():
    a, b = pairs(32, False)
    n = [int(x) for x in rng.choice([0, 1, 8, 31, 32, 33, 63], len(a))]
    arrays = [array(x, 32) for x in (a, b, n)]
    for mode, limit in (("wrap", lambda k: k & 31), ("clamp", lambda k: min(k, 32))):
        pair = [(y << 32 | x, limit(k)) for x, y, k in zip(a, b, n)]
        assert np.array_equal(
            elementwise(f"shf.l.{mode}.b32 %out, %in0, %in1, %in2;", arrays, 32),
            array([(v << k) >> 32 for v, k in pair], 32),
        )
        assert np.array_equal(
            elementwise(f"shf.r.{mode}.b32 %out, %in0, %in1, %in2;", arrays, 32), array([v >> k for v, k in pair], 32)
        )
    c = [int(x) for x in rng.integers(0, 2**16, len(a))]

    def permute(x, y, s):
        bytes_ = (y << 32 | x).to_bytes(8, "little")
        out = 0
        for i in range(4):
            k = s >> 4 * i & 15
            byte = bytes_[k & 7]
            out |= ((255 if byte & 128 else 0) if k & 8 else byte) << 8 * i
        return out

    got = elementwise("prmt.b32 %out, %in0, %in1, %in2;", [arrays[0], arrays[1], array(c, 32)], 32)
    assert np.array_equal(got, array([permute(*v) for v in zip(a, b, c)], 32))
    for mode, pick in {
        "f4e": lambda s, i: s + i, "b4e": lambda s, i: (s - i) % 8, "rc8": lambda s, i: s, "ecl": lambda s, i: max(s, i),
        "ecr": lambda s, i: min(s, i), "rc16": lambda s, i: (s & 1) * 2 + (i & 1),
    }.items():  # fmt: skip
        got = elementwise(f"prmt.b32.{mode} %out, %in0, %in1, %in2;", [arrays[0], arrays[1], array(c, 32)], 32)
        want = [
            sum((((y << 32 | x) >> (8 * pick(s & 3, i))) & 255) << (8 * i) for i in range(4))
            for x, y, s in zip(a, b, c)
        ]
        assert np.array_equal(got, array(want, 32)), mode


def test_dot_products_of_bytes():
    a, b = pairs(32, False)
    c = b[::-1]
    arrays = [array(x, 32) for x in (a, b, c)]
    byte = {"u32": lambda v, i: v >> 8 * i & 255, "s32": lambda v, i: sign(v >> 8 * i, 8)}
    half = {"u32": lambda v, i: v >> 16 * i & 65535, "s32": lambda v, i: sign(v >> 16 * i, 16)}
    for ta in byte:
        for tb in byte:
            got = elementwise(f"dp4a.{ta}.{tb} %out, %in0, %in1, %in2;", arrays, 32)
            assert np.array_equal(
                got, array([sum(byte[ta](x, i) * byte[tb](y, i) for i in range(4)) + z for x, y, z in zip(a, b, c)], 32)
            )
            got = elementwise(f"dp2a.hi.{ta}.{tb} %out, %in0, %in1, %in2;", arrays, 32)
            assert np.array_equal(
                got,
                array([sum(half[ta](x, i) * byte[tb](y, 2 + i) for i in range(2)) + z for x, y, z in zip(a, b, c)], 32),
            )


def test_find_nth_set():
    mask = [0b1011_0100, 0b1011_0100, 0b1011_0100, 0, 1 << 31, 0xFFFFFFFF]
    base, offset = [0, 3, 7, 0, 5, 9], [1, 2, -2, 1, 1, -3]
    got = elementwise("fns.b32 %out, %in0, %in1, %in2;", [array(x, 32) for x in (mask, base, offset)], 32)
    assert got.tolist() == [2, 5, 5, 2**32 - 1, 31, 7]


# ---------------------------------------------------------------- floats


def floats(dtype, n=300):
    info = np.finfo(dtype) if dtype != ml_dtypes.bfloat16 else ml_dtypes.finfo(dtype)
    edge = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, math.inf, -math.inf, math.nan, float(info.max), -float(info.max), float(info.tiny),
            float(info.smallest_subnormal), -float(info.smallest_subnormal), float(info.tiny) / 2, float(info.eps), 1 + float(info.eps)]  # fmt: skip
    with np.errstate(over="ignore"):
        spread = rng.standard_normal(n) * np.exp2(rng.integers(-30, 30, n).astype(np.float64))
        return np.concatenate([np.array(edge).astype(dtype), spread.astype(dtype)])


def float_pairs(dtype):
    a, b = floats(dtype), floats(dtype)
    edge = floats(dtype, 0)
    return np.concatenate([a, np.repeat(edge, len(edge))]), np.concatenate(
        [rng.permutation(b), np.tile(edge, len(edge))]
    )


MODES = ("rn", "rz", "rm", "rp")


def round_exact(x, mode, dtype):
    """A Fraction to a binary float type, by searching the neighbours of the nearest double."""
    with np.errstate(over="ignore"):
        try:
            near = float(x)
        except OverflowError:
            near = math.inf if x > 0 else -math.inf
        guess = np.array(near).astype(dtype)
    biggest = float((ml_dtypes.finfo if dtype == ml_dtypes.bfloat16 else np.finfo)(dtype).max)
    guess = np.clip(guess, dtype(-biggest), dtype(biggest)).astype(dtype)
    with np.errstate(over="ignore"):
        options = sorted(
            {float(g) for g in (guess, np.nextafter(guess, dtype(-math.inf)), np.nextafter(guess, dtype(math.inf)))}
        )
    finite = [v for v in options if math.isfinite(v)]
    below = [v for v in finite if Fraction(v) <= x]
    above = [v for v in finite if Fraction(v) >= x]
    low, high = (max(below) if below else -math.inf), (min(above) if above else math.inf)
    if mode == "rm":
        return low
    if mode == "rp":
        return high
    if mode == "rz":
        return low if x >= 0 else high
    if math.isinf(low) or math.isinf(high):
        # Beyond the largest: nearest goes to infinity from half a unit past it.
        step = Fraction(biggest) - Fraction(float(np.nextafter(dtype(biggest), dtype(0))))
        return (math.inf if abs(x) >= Fraction(biggest) + step / 2 else biggest) * (1 if x > 0 else -1)
    if low == high:
        return low
    dl, dh = x - Fraction(low), Fraction(high) - x
    if dl != dh:
        return low if dl < dh else high
    even = int(raw(np.array([low]).astype(dtype))[0]) & 1 == 0
    return low if even else high


def expect(fn, mode, dtype, *operands):
    """Exact result of finite operands, rounded; what IEEE says for the others comes from NumPy in float64."""
    out = []
    for values in zip(*operands):
        if all(math.isfinite(v) for v in values):
            exact = fn(*[Fraction(float(v)) for v in values])
            if exact is not None and exact != 0:
                out.append(round_exact(exact, mode, dtype))
                continue
        out.append(None)
    return out


def same(got, want, dtype, special):
    """Elements of `want` that are not None equal bit for bit (as values); the others equal `special` or are both NaN."""
    got = got.view(dtype)
    for i, w in enumerate(want):
        g = float(got[i])
        s = float(special[i]) if w is None else w
        assert g == s or (math.isnan(g) and math.isnan(s)), (i, g, s)


EXACT = {
    "add": (2, lambda a, b: a + b, np.add),
    "sub": (2, lambda a, b: a - b, np.subtract),
    "mul": (2, lambda a, b: a * b, np.multiply),
    "fma": (3, lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    "div": (2, lambda a, b: a / b if b else None, np.divide),
}


@pytest.mark.parametrize("type_, dtype", [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", EXACT)
def test_correctly_rounded(op, mode, type_, dtype):
    n, fn, plain = EXACT[op]
    a, b = float_pairs(dtype)
    operands = [a, b, rng.permutation(b)][:n]
    names = ", ".join(f"%in{i}" for i in range(n))
    got = elementwise(f"{op}.{mode}.{type_} %out, {names};", operands, dtype(0).itemsize * 8)
    with np.errstate(all="ignore"):
        special = plain(*[x.astype(np.float64) for x in operands])
    same(got, expect(fn, mode, dtype, *operands), dtype, special)


@pytest.mark.parametrize("mode", MODES)
def test_fused_multiply_add_near_ties(mode):
    """Sums that fall on or beside the midpoint of two floats: where a second rounding would show."""
    a = np.float32(1) + np.arange(200, dtype=np.float32) * np.float32(2**-23)
    b = np.float32(1) + np.arange(200, dtype=np.float32)[::-1] * np.float32(2**-23)
    c = np.where(np.arange(200) % 2, np.float32(2**-24), np.float32(-(2**-49)))
    c = np.where(np.arange(200) % 3 == 0, np.float32(2.0**-60), c).astype(np.float32)
    got = elementwise(f"fma.{mode}.f32 %out, %in0, %in1, %in2;", [a, b, c], 32)
    same(got, expect(EXACT["fma"][1], mode, np.float32, a, b, c), np.float32, a)
    tiny = np.float32(2.0**-130) * np.arange(1, 201, dtype=np.float32)
    got = elementwise(f"fma.{mode}.f32 %out, %in0, %in1, %in2;", [tiny, a * np.float32(2**-10), tiny[::-1]], 32)
    same(got, expect(EXACT["fma"][1], mode, np.float32, tiny, a * np.float32(2**-10), tiny[::-1]), np.float32, a)


@pytest.mark.parametrize("type_, dtype", [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize("mode", MODES)
def test_square_root_is_correctly_rounded(mode, type_, dtype):
    a = np.abs(floats(dtype))
    got = elementwise(f"sqrt.{mode}.{type_} %out, %in0;", [a], dtype(0).itemsize * 8).view(dtype)
    for x, r in zip(a, got):
        if not np.isfinite(x) or x == 0:
            assert r == np.sqrt(x) or np.isnan(x)
            continue
        exact, value = Fraction(float(x)), Fraction(float(r))
        below, above = (
            Fraction(float(np.nextafter(r, dtype(d)))) if np.isfinite(np.nextafter(r, dtype(d))) else None
            for d in (-np.inf, np.inf)
        )
        if mode in ("rm", "rz"):
            assert value**2 <= exact < above**2
        elif mode == "rp":
            assert below**2 < exact <= value**2
        else:
            assert ((value + below) / 2) ** 2 <= exact <= ((value + above) / 2) ** 2


@pytest.mark.parametrize("type_, dtype", [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_sixteen_bit_floats_round_once(op, type_, dtype):
    n, fn, plain = EXACT[op]
    a, b = float_pairs(dtype)
    operands = [a, b, rng.permutation(b)][:n]
    names = ", ".join(f"%in{i}" for i in range(n))
    rnd = ".rn" if op == "fma" else ""
    got = elementwise(f"{op}{rnd}.{type_} %out, {names};", operands, 16)
    with np.errstate(all="ignore"):
        special = plain(*[x.astype(np.float64) for x in operands])
    same(got, expect(fn, "rn", dtype, *operands), dtype, special)
    # The packed form is the scalar one on both halves.
    packed = [np.ascontiguousarray(np.stack([raw(x), raw(x)[::-1]], axis=1)).view(np.uint32)[:, 0] for x in operands]
    both = elementwise(f"{op}{rnd}.{type_}x2 %out, {names};", packed, 32).view(np.uint16).reshape(-1, 2)
    assert np.array_equal(both[:, 0], got) and np.array_equal(both[:, 1], got[::-1])


def test_sixteen_bit_modifiers():
    a = np.array([-2.0, 3.0, 0.5, np.nan], np.float16)
    one = np.ones(4, np.float16)
    zero = np.zeros(4, np.float16)
    got = elementwise("fma.rn.relu.f16 %out, %in0, %in1, %in2;", [a, one, zero], 16).view(np.float16)
    assert got[:3].tolist() == [0.0, 3.0, 0.5] and np.isnan(got[3])
    got = elementwise("fma.rn.sat.f16 %out, %in0, %in1, %in2;", [a, one, zero], 16).view(np.float16)
    assert got.tolist() == [0.0, 1.0, 0.5, 0.0]
    got = elementwise("neg.f16 %out, %in0;", [a], 16).view(np.float16)
    assert got[:3].tolist() == [2.0, -3.0, -0.5]
    got = elementwise("abs.bf16x2 %out, %in0;", [np.array([0xC0003F80], np.uint32)], 32)
    assert got.tolist() == [0x40003F80]


def test_flush_to_zero():
    tiny = np.array([1e-40, -1e-40, 2.0**-126, 1e-30, 1.0], np.float32)
    got = elementwise("mul.ftz.f32 %out, %in0, 0f3F000000;", [tiny], 32).view(np.float32)
    assert got.tolist() == [0.0, -0.0, 0.0, float(np.float32(5e-31)), 0.5]
    assert np.signbit(got).tolist() == [False, True, False, False, False]
    got = elementwise("add.ftz.f32 %out, %in0, 0f00000000;", [tiny], 32).view(np.float32)
    assert got[0] == 0 and got[2] == np.float32(2.0**-126)
    assert elementwise("mul.f32 %out, %in0, 0f3F000000;", [tiny], 32).view(np.float32)[0] == np.float32(1e-40) / 2


HALF_TINY = np.array([6e-8, -6e-8, 2.0**-14 - 2.0**-24, 2.0**-14, -1.0], np.float16)


@pytest.mark.parametrize(
    ("code", "want"),
    [("neg.ftz.f16 %out, %in0;", [-0.0, 0.0, -0.0, -(2.0**-14), 1.0]),
     ("abs.ftz.f16 %out, %in0;", [0.0, 0.0, 0.0, 2.0**-14, 1.0]),
     ("min.ftz.f16 %out, %in0, %in1;", [0.0, -0.0, 0.0, 0.0, -1.0]),
     ("max.ftz.f16 %out, %in0, %in1;", [0.0, 0.0, 0.0, 2.0**-14, 0.0]),
     ("add.ftz.f16 %out, %in0, %in0;", [0.0, -0.0, 0.0, 2.0**-13, -2.0])],
)  # fmt: skip
def test_flush_to_zero_of_halves(code, want):
    """PTX ISA: .ftz flushes denormal inputs and results to zeros of the same sign, of f16 as of f32."""
    zero = np.zeros(5, np.float16)
    got = elementwise(code, [HALF_TINY, zero], 16).view(np.float16)
    assert got.tolist() == want and np.signbit(got).tolist() == np.signbit(want).tolist()


def test_comparisons_that_flush_halves():
    both = [HALF_TINY, np.zeros(5, np.float16)]
    for ftz, want in (("", [1, 0, 1, 1, 0]), (".ftz", [0, 0, 0, 1, 0])):
        got = elementwise(f"setp.gt{ftz}.f16 %p1, %in0, %in1; selp.u32 %out, 1, 0, %p1;", both, 32)
        assert got.tolist() == want
        got = elementwise(f"set.gt{ftz}.u32.f16 %out, %in0, %in1;", both, 32)
        assert got.tolist() == [0xFFFFFFFF * x for x in want]
    pair = [np.array([0x0001_8001, 0x3C00_0400], np.uint32), np.zeros(2, np.uint32)]
    for ftz, want in (("", [2, 3]), (".ftz", [0, 3])):
        code = f"setp.gt{ftz}.f16x2 %p1|%p2, %in0, %in1; selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2;"
        assert elementwise(code + "or.b32 %out, %r1, %r2;", pair, 32).tolist() == want


def test_powers_of_two_in_bf16_flush():
    """`.ftz` is part of the form: 2^-127 would be a denormal, and a denormal is 0."""
    x = np.array([-126, -127, 1e-39, 3], ml_dtypes.bfloat16)
    got = elementwise("ex2.approx.ftz.bf16 %out, %in0;", [x], 16).view(ml_dtypes.bfloat16)
    assert got.astype(float).tolist() == [2.0**-126, 0.0, 1.0, 8.0]


@pytest.mark.parametrize(("type_", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_classes_of_numbers(type_, dtype):
    """PTX ISA, testp: "As a special case, positive and negative zero are considered normal numbers."."""
    tiny = float(np.finfo(dtype).tiny)
    x = np.array([0.0, -0.0, tiny, -tiny / 2, 1, np.inf, -np.inf, np.nan], dtype)
    classes = {
        "finite": [1, 1, 1, 1, 1, 0, 0, 0], "infinite": [0, 0, 0, 0, 0, 1, 1, 0], "number": [1, 1, 1, 1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 0, 0, 0, 1], "normal": [1, 1, 1, 0, 1, 0, 0, 0], "subnormal": [0, 0, 0, 1, 0, 0, 0, 0],
    }  # fmt: skip
    for op, want in classes.items():
        code = f"testp.{op}.{type_} %p1, %in0; selp.u32 %out, 1, 0, %p1;"
        assert elementwise(code, [x], 32).tolist() == want, op


def test_saturation_clamps_to_one():
    a = np.array([-1, 0.25, 1.5, math.nan, math.inf, -0.0], np.float32)
    got = elementwise("add.sat.f32 %out, %in0, 0f00000000;", [a], 32).view(np.float32)
    assert got.tolist() == [0, 0.25, 1, 0, 1, 0] and not np.signbit(got).any()


@pytest.mark.parametrize(
    "type_, dtype", [("f32", np.float32), ("f64", np.float64), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]
)
def test_minimum_and_maximum(type_, dtype):
    a, b = float_pairs(dtype)
    for op, fn in (("min", min), ("max", max)):
        got = elementwise(f"{op}.{type_} %out, %in0, %in1;", [a, b], dtype(0).itemsize * 8).view(dtype)
        for x, y, r in zip(a.astype(float), b.astype(float), got.astype(float)):
            if math.isnan(x) or math.isnan(y):
                want = y if math.isnan(x) else x
                assert r == want or (math.isnan(r) and math.isnan(want))
            elif x == y == 0:
                negative = (math.copysign(1, x), math.copysign(1, y))
                assert math.copysign(1, r) == fn(negative)
            else:
                assert r == fn(x, y)
        if type_ != "f64":
            got = elementwise(f"{op}.NaN.{type_} %out, %in0, %in1;", [a, b], dtype(0).itemsize * 8)
            nan = np.isnan(a.astype(float)) | np.isnan(b.astype(float))
            assert np.array_equal(np.isnan(got.view(dtype).astype(float)), nan)
            canonical = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}[type_]
            assert (got[nan] == canonical).all()


def test_comparisons_with_nan():
    a, b = float_pairs(np.float32)
    ordered = {
        "eq": lambda x, y: x == y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    for name, fn in ordered.items():
        plain = [fn(float(x), float(y)) for x, y in zip(a, b)]
        unordered = [p or math.isnan(x) or math.isnan(y) for p, x, y in zip(plain, a, b)]
        for suffix, want in (("", plain), ("u", unordered)):
            got = elementwise(f"setp.{name}{suffix}.f32 %p0, %in0, %in1; selp.b32 %out, 1, 0, %p0;", [a, b], 32)
            assert got.tolist() == [int(w) for w in want], name + suffix
    nan = [math.isnan(x) or math.isnan(y) for x, y in zip(a, b)]
    want = {"ne": [not n and x != y for n, x, y in zip(nan, a, b)], "neu": [n or x != y for n, x, y in zip(nan, a, b)],
            "num": [not n for n in nan], "nan": nan}  # fmt: skip
    for name, w in want.items():
        got = elementwise(f"setp.{name}.f32 %p0, %in0, %in1; selp.b32 %out, 1, 0, %p0;", [a, b], 32)
        assert got.tolist() == [int(x) for x in w], name


def test_predicates_combine():
    a, b = pairs(32, True)
    arrays = [array(a, 32), array(b, 32)]
    code = "setp.gt.s32 %p1, %in0, 0; setp.lt.{}.s32 %p2|%p3, %in0, %in1, {}%p1; selp.b32 %r1, 1, 0, %p2; selp.b32 %r2, 2, 0, %p3; or.b32 %out, %r1, %r2;"
    for op, fn in {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}.items():
        for neg in ("", "!"):
            got = elementwise(code.format(op, neg), arrays, 32)
            want = []
            for x, y in zip(a, b):
                c = (x > 0) != (neg == "!")
                want.append(int(fn(x < y, c)) + 2 * int(fn(x >= y, c)))
            assert got.tolist() == want
    got = elementwise(
        "set.lt.u32.s32 %r1, %in0, %in1; set.lt.f32.s32 %f1, %in0, %in1; cvt.rzi.u32.f32 %r2, %f1; add.u32 %out, %r1, %r2;",
        arrays,
        32,
    )
    assert not got.any()
    got = elementwise(
        "setp.lt.s32 %p1, %in0, %in1; not.pred %p2, %p1; xor.pred %p3, %p1, %p2; and.pred %p4, %p3, !%p1; selp.b32 %out, 1, 0, %p4;",
        arrays,
        32,
    )
    assert got.tolist() == [int(x >= y) for x, y in zip(a, b)]


def ulps(got, want, dtype=np.float32):
    unit = np.abs(np.spacing(want.astype(dtype)).astype(np.float64))
    return np.abs(got.astype(np.float64) - want) / unit


@pytest.mark.parametrize("op, fn, low, high", [
    ("rcp.approx", lambda x: 1 / x, -1e3, 1e3), ("sqrt.approx", np.sqrt, 0, 1e6), ("rsqrt.approx", lambda x: 1 / np.sqrt(x), 1e-6, 1e6),
    ("ex2.approx", np.exp2, -100, 100), ("lg2.approx", np.log2, 1e-6, 1e6), ("sin.approx", np.sin, -3, 3), ("cos.approx", np.cos, -3, 3),
    ("tanh.approx", np.tanh, -5, 5),
])  # fmt: skip
def test_approximations_are_rounded_once(op, fn, low, high):
    x = rng.uniform(low, high, 500).astype(np.float32)
    got = elementwise(f"{op}.f32 %out, %in0;", [x], 32).view(np.float32)
    assert (ulps(got, fn(x.astype(np.float64))) <= 0.51).all()


def test_approximations_at_the_edges():
    x = np.array([0, -0.0, math.inf, -math.inf, math.nan, 1e-40], np.float32)
    with np.errstate(all="ignore"):
        got = elementwise("rcp.approx.ftz.f32 %out, %in0;", [x], 32).view(np.float32)
        assert got[:4].tolist() == [math.inf, -math.inf, 0, -0.0] and np.isnan(got[4]) and got[5] == math.inf
        got = elementwise("lg2.approx.f32 %out, %in0;", [x], 32).view(np.float32)
        assert got[0] == -math.inf and got[2] == math.inf and np.isnan(got[3])
        got = elementwise(
            "ex2.approx.ftz.f32 %out, %in0;", [np.array([-150, -126.5, 128, -math.inf], np.float32)], 32
        ).view(np.float32)
        assert got.tolist() == [0, 0, math.inf, 0]
        got = elementwise(
            "div.approx.f32 %out, %in0, %in1;",
            [np.array([1, math.inf], np.float32), np.array([2.0**127, 2.0**127], np.float32)],
            32,
        )
        assert got.view(np.float32)[0] == 0 and np.isnan(got.view(np.float32)[1])
        got = elementwise(
            "div.full.f32 %out, %in0, %in1;", [np.array([1], np.float32), np.array([2.0**127], np.float32)], 32
        )
        assert got.view(np.float32)[0] == 2.0**-127


# ---------------------------------------------------------------- conversions

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


# ---------------------------------------------------------------- warps


def warp(code, n=32, seed=0):
    x = np.random.default_rng(3).integers(0, 2**32, n, dtype=np.uint32)
    return x, elementwise(code, [x], 32)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8])
def test_shuffles(mode, width):
    segment = (32 - width) << 8
    clamp = 0 if mode == "up" else 31
    for offset in (0, 1, 5, 9, 31):
        x, got = warp(
            f"shfl.sync.{mode}.b32 %r1|%p0, %in0, {offset}, {segment | clamp}, -1; selp.b32 %r2, 1, 0, %p0; xor.b32 %out, %r1, %r2;"
        )
        for lane in range(32):
            base = lane // width * width
            j = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset, "idx": base + offset % width}[mode]
            inside = base <= j < base + width if mode != "bfly" else j < base + width
            want = int(x[j if inside else lane]) ^ int(inside)
            assert got[lane] == want, (mode, width, offset, lane)


def test_votes_and_reductions():
    x, got = warp("setp.gt.s32 %p0, %in0, 0; vote.sync.ballot.b32 %out, %p0, -1;")
    mask = sum(int(v > 0) << i for i, v in enumerate(x.view(np.int32)))
    assert (got == mask).all()
    for op, fn in {"add": lambda v: sum(v), "min": min, "max": max}.items():
        for t, view in (("u32", np.uint32), ("s32", np.int32)):
            x, got = warp(f"redux.sync.{op}.{t} %out, %in0, -1;")
            assert (got == fn([int(v) for v in x.view(view)]) % 2**32).all()
    x, got = warp("redux.sync.xor.b32 %out, %in0, -1;")
    assert (got == np.bitwise_xor.reduce(x)).all()
    x, got = warp("and.b32 %r1, %in0, 3; match.any.sync.b32 %out, %r1, -1;")
    assert got.tolist() == [sum(int((w & 3) == (v & 3)) << i for i, w in enumerate(x)) for v in x]
    x, got = warp("match.all.sync.b32 %r1|%p0, 7, -1; selp.b32 %r2, 1, 0, %p0; and.b32 %out, %r1, %r2;")
    assert (got == 1).all()
    x, got = warp("activemask.b32 %out;")
    assert (got == 2**32 - 1).all()
    x, got = warp("elect.sync %r1|%p0, -1; selp.b32 %out, 1, 0, %p0;")
    assert got.tolist() == [1] + [0] * 31
    x, got = warp("mov.u32 %r1, %lanemask_lt; mov.u32 %r2, %laneid; add.u32 %out, %r1, %r2;")
    assert got.tolist() == [(1 << i) - 1 + i for i in range(32)]


@pytest.mark.parametrize("mods, want", [
    ("rna", [0x7FC00000, 0x7F800000, 0xFFFFE000, 0x7F800000]),
    ("rna.satfinite", [0x7FBFE000, 0x7F7FE000, 0xFFFFC000, 0x7F7FE000]),
    ("rn", [0x7FFFE000, 0x7FFFE000, 0x7FFFE000, 0x7F800000]),
    ("rz", [0x7FFFE000, 0x7FFFE000, 0x7FFFE000, 0x7F800000]),
])  # fmt: skip
def test_nan_as_tf32_is_that_of_an_h200(mods, want):
    a = np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7F800000], np.uint32)
    assert elementwise(f"cvt.{mods}.tf32.f32 %out, %in0;", [a], 32).tolist() == want


def test_fns_finds_nothing_from_beyond_a_word():
    """As an H200; the emulator counted down from the base for minutes."""
    mask, base, offset = ([0x21, 0x7F, 0x7F, 0x21], [0x80, 0x55555555, 0x80000001, 5], [-2, -2, 1, -2])
    got = elementwise("fns.b32 %out, %in0, %in1, %in2;", [array(x, 32) for x in (mask, base, offset)], 32)
    assert got.tolist() == [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0]
