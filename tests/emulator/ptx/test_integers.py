# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Integer arithmetic of the rows against references that do not come from them: Python integers."""

import numpy as np
import pytest
from ptx_harness import elementwise
from ptx_operands import array, integers, pairs, rng, sign


def trunc_div(a, b, ones):
    return ones if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


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
