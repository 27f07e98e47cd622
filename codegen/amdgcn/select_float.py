"""Lowering of f32 and f64 arithmetic, all of it in vector registers.

Tuples of f32 use the packed instructions (two numbers in an even pair). `fdiv` and `sqrt` are correctly rounded: the
hardware's estimates are corrected as the vendor's own sequences do, with scaling around the ends of the range.
`exp2`, `log2`, `rcp`, `rsqrt`, `sin` and `cos` of f32 are the chip's approximations: v_exp_f32 and v_log_f32 take
denormal inputs as zero and give no denormal results (docs/numerics); sine and cosine reduce their argument in two
parts of 1/(2 pi), which holds the absolute error of v_sin_f32 up to arguments of some 10^6.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from itertools import zip_longest

from wavedsl.codegen.amdgcn import roles
from wavedsl.codegen.amdgcn.fuse import Fusion
from wavedsl.codegen.amdgcn.isa import Inst, Src
from wavedsl.codegen.amdgcn.lane_moves import HALF_WAVE
from wavedsl.codegen.amdgcn.machine import Operand, Ref
from wavedsl.codegen.amdgcn.select import Selector, f32_bits, f64_words, is_inline, lower
from wavedsl.codegen.amdgcn.select_convert import added_whole, raised_word, stays_raised
from wavedsl.ir.kernel.kernel_ir import Op, Value


def _wide_sources(s: Selector, v: Value) -> list[Operand]:
    """Per f64 of a tuple, its pair (or inline constant)."""
    if v.type.n == 1:
        return [s.source64(v)]
    ref = s.vector(v)
    return [ref.part(2 * k, 2) for k in range(v.type.n)]


@lower("fadd", "fsub", "fmul", "fmin", "fmax")
def binary(s: Selector, op: Op) -> None:
    v = op.results[0]
    a, b = op.args
    fusion = s.fusions.get(v.id)
    if fusion is not None and fusion.lanes is not None:
        moved, own = (s.to_vector(s.words(x)[0]) for x in fusion.sources)
        s.emit(s.rows.named(fusion.mnemonic), s.result(op), moved, own, dpp=fusion.lanes, row_mask=15, bank_mask=15)
        return
    if fusion is not None and fusion.halves:
        with_other_half(s, s.rows.named(fusion.mnemonic), s.result(op), fusion.sources[0])
        return
    if fusion is not None:
        sources = [s.operand(x) for x in fusion.sources]
        if fusion.limits:
            limit = fusion.sources[1].const
            assert limit is not None
            sources.append(f32_bits(-limit))
        s.emit(s.rows.named(fusion.mnemonic), s.result(op), *_modified(s, sources, fusion))
        return
    if v.type.kind == "f64":
        xs, ys = _wide_sources(s, a), _wide_sources(s, b)
        dst = s.result(op)
        for k in range(v.type.n):
            if op.name == "fsub":
                x, y = s._bus([xs[k], ys[k]])
                s.emit(s.rows.v_add_f64, dst.part(2 * k, 2), x, Src(y, neg=True))
            else:
                s.vop3(s.rows.named(roles.FLOAT[op.name, "f64"]), dst.part(2 * k, 2), xs[k], ys[k])
        return
    n = v.type.n
    dst = s.result(op)
    k = 0
    if n > 1 and op.name in roles.PACKED:
        x, y = _pairs(s, a), _pairs(s, b)
        mods = {"neg_lo": (0, 1), "neg_hi": (0, 1)} if op.name == "fsub" else {}
        while k + 2 <= n:
            s.vop3(s.rows.named(roles.PACKED[op.name]), dst.part(k, 2), x(k), y(k), **mods)
            k += 2
    if k < n:
        row = s.rows.named(roles.FLOAT[op.name, "f32"])
        xs, ys = s.words(a), s.words(b)
        while k < n:
            s.valu(row, dst.part(k), xs[k], ys[k], op.name != "fsub")
            k += 1


def _modified(s: Selector, sources: list[Operand], fusion: Fusion) -> list[Operand]:
    """The sources of a fusion as the long encoding takes them, with their modifiers."""
    if fusion.limits and not is_inline(sources[1]):
        first, limit = s._bus(sources[:2])
        return [first, limit, Src(limit, neg=True)]
    found = s._bus(sources)
    return [Src(x, abs=True) if size else x for x, size in zip_longest(found, fusion.sizes)]


def with_other_half(s: Selector, row: Inst, dst: Ref, v: Value) -> None:
    """`row`, which takes its sources in either order, of a value and that of the lane 32 away."""
    x = s.to_vector(s.words(v)[0])
    if s.rows.swaps_halves:  # a copy of the low half in both halves, and one of the high half
        low, high = s.new("v"), s.new("v")
        s.copy(low, x)
        s.copy(high, x)
        s.emit(s.rows.v_permlane32_swap_b32, low, high)
        s.valu(row, dst, low, high)
    else:  # each half agrees, or the two are not fused
        low, high = s.new("s"), s.new("s")
        s.emit(s.rows.v_readlane_b32, low, x, 0)
        s.emit(s.rows.v_readlane_b32, high, x, HALF_WAVE)
        s.valu(row, dst, low, s.to_vector(high))


@lower("pair")
def pair(s: Selector, op: Op) -> None:
    how = op.attrs["operation"]
    made = next((a for a in op.args if a.op is not None and a.op.name == "widen" and added_whole(s, a.op)), None)
    if made is not None:  # the constant has been added where the numbers were made
        s.bind(op, s.operand(made))
        return
    mods = {"neg_lo": (0, 1), "neg_hi": (0, 1)} if how == "fsub" else {}
    words = [s.words(x)[0] for x in op.args]
    first = op.args[0].op
    if first is not None and first.name == "widen" and stays_raised(s, first):
        words[1] = raised_word(s, first)
    s.vop3(s.rows.named(roles.HALVES[how]), s.result(op), *words, **mods)


def _pairs(s: Selector, v: Value) -> Callable[[int], Ref]:
    """k → the even pair at register k of a tuple; a constant tuple is one scalar pair."""
    if v.const is not None:
        word = s.words(v)[0]
        pair = s.constant_pair([word, word])
        return lambda k: pair
    ref = s.vector(v)
    if ref.start % 2:
        whole = s.new("v", ref.n)
        s.copy(whole, ref)
        ref = whole
    return lambda k: ref.part(k, 2)


@lower("ffma")
def ffma(s: Selector, op: Op) -> None:
    v = op.results[0]
    n = v.type.n
    if v.type.kind == "f64":
        xs, ys, zs = (_wide_sources(s, x) for x in op.args)
        dst = s.result(op)
        for k in range(n):
            s.vop3(s.rows.v_fma_f64, dst.part(2 * k, 2), xs[k], ys[k], zs[k])
        return
    dst = s.result(op)
    fusion = s.fusions.get(v.id)
    args, negated = (fusion.sources, fusion.negated) if fusion is not None else (op.args, (False,) * 3)
    k = 0
    if n > 1:
        x, y, z = (_pairs(s, arg) for arg in args)
        signs = tuple(map(int, negated))
        mods = {"neg_lo": signs, "neg_hi": signs} if any(negated) else {}
        while k + 2 <= n:
            s.vop3(s.rows.v_pk_fma_f32, dst.part(k, 2), x(k), y(k), z(k), **mods)
            k += 2
    if k < n:
        words = [s.words(arg) for arg in args]
        while k < n:
            sources = s._bus([w[k] for w in words])
            s.emit(s.rows.v_fma_f32, dst.part(k), *(Src(x, neg=True) if m else x for x, m in zip(sources, negated)))
            k += 1


@lower("ldexp")
def ldexp(s: Selector, op: Op) -> None:
    x, n = op.args
    s.vop3(s.rows.v_ldexp_f64, s.result(op), s.source64(x), s.operand(n))


@lower("fneg", "fabs")
def sign(s: Selector, op: Op) -> None:
    v = op.results[0]
    words = s.words(op.args[0])
    dst = s.result(op)
    step = 2 if v.type.kind == "f64" else 1
    for k, word in enumerate(words):
        if (k + 1) % step:
            s.copy(dst.part(k), word)
        elif op.name == "fneg":
            s.valu(s.rows.v_xor_b32, dst.part(k), 0x80000000, s.to_vector(word))
        else:
            s.valu(s.rows.v_and_b32, dst.part(k), 0x7FFFFFFF, s.to_vector(word))


@lower("ffloor", "fceil", "frint", "ftrunc", "exp2", "log2", "sqrt_approx")
def unary(s: Selector, op: Op) -> None:
    v = op.results[0]
    if v.type.kind == "f64":
        if (op.name, "f64") not in roles.FLOAT:
            raise s.unsupported(op, f"there is no f64 {op.name} instruction", "compute it in f32")
        dst = s.result(op)
        for k, x in enumerate(_wide_sources(s, op.args[0])):
            s.emit(s.rows.named(roles.FLOAT[op.name, "f64"]), dst.part(2 * k, 2), x)
        return
    _each(s, op, roles.FLOAT[op.name, "f32"])


def _each(s: Selector, op: Op, mnemonic: str) -> None:
    row = s.rows.named(mnemonic)
    words = s.words(op.args[0])
    dst = s.result(op)
    for k, word in enumerate(words):
        s.emit(row, dst.part(k), word)


@lower("rcp", "rsqrt")
def reciprocal(s: Selector, op: Op) -> None:
    v = op.results[0]
    if v.type.kind == "f32":
        _each(s, op, roles.FLOAT[op.name, "f32"])
        return
    dst = s.result(op)
    for k, x in enumerate(_wide_sources(s, op.args[0])):
        source = _pair(s, x)
        if op.name == "rsqrt":
            root = s.new("v", 2)
            _sqrt64(s, root, source)
            source = root
        _divide64(s, dst.part(2 * k, 2), 1.0, source)


def _pair(s: Selector, x: Operand) -> Ref:
    """A 64-bit source in vector registers."""
    if x.__class__ is Ref:
        return s.to_vector(x)
    ref = s.new("v", 2)
    s.copy(ref.part(0), 0)
    s.copy(ref.part(1), f64_words(x)[1])  # inline floats have a zero low word
    return ref


# ------------------------------------------------------------------------------------------------------------- division


@lower("fdiv")
def fdiv(s: Selector, op: Op) -> None:
    v = op.results[0]
    a, b = op.args
    if v.type.kind == "f64":
        xs, ys = _wide_sources(s, a), _wide_sources(s, b)
        dst = s.result(op)
        for k in range(v.type.n):
            _divide64(s, dst.part(2 * k, 2), xs[k], ys[k])
        return
    xw, yw = s.words(a), s.words(b)
    dst = s.result(op)
    for k in range(v.type.n):
        _divide32(s, dst.part(k), s.to_vector(xw[k]), s.to_vector(yw[k]))


def _divide32(s: Selector, dst: Ref, a: Operand, b: Operand) -> None:
    """The vendor's sequence: scale both, estimate 1/b, two Newton steps on it and one on the quotient, unscale, fix
    ends."""
    r = s.rows
    unused, flag = s.mask_reg(), s.vcc()
    d, n = s.new("v"), s.new("v")
    s.emit(r.v_div_scale_f32, d, unused, b, b, a)
    s.emit(r.v_div_scale_f32, n, flag, a, b, a)
    y = s.one(r.v_rcp_f32, d)
    minus_d = Src(d, neg=True)
    e = s.new("v")
    s.emit(r.v_fma_f32, e, minus_d, y, 1.0)
    y1 = s.temp(r.v_fma_f32, e, y, y)
    q = s.new("v")
    s.emit(r.v_mul_f32, q, n, y1)
    e2 = s.new("v")
    s.emit(r.v_fma_f32, e2, minus_d, q, n)
    q1 = s.temp(r.v_fma_f32, e2, y1, q)
    e3 = s.new("v")
    s.emit(r.v_fma_f32, e3, minus_d, q1, n)
    last = s.new("v")
    s.emit(r.v_div_fmas_f32, last, e3, y1, q1, vcc=flag)
    s.emit(r.v_div_fixup_f32, dst, last, b, a)


def _divide64(s: Selector, dst: Ref, a: Operand, b: Operand) -> None:
    """As for f32, with one more Newton step."""
    r = s.rows
    a, b = _pair(s, a), _pair(s, b)
    unused, flag = s.mask_reg(), s.vcc()
    d, n = s.new("v", 2), s.new("v", 2)
    s.emit(r.v_div_scale_f64, d, unused, b, b, a)
    y = s.one(r.v_rcp_f64, d, 2)
    minus_d = Src(d, neg=True)
    for _ in range(2):
        e = s.new("v", 2)
        s.emit(r.v_fma_f64, e, minus_d, y, 1.0)
        y = s.temp(r.v_fma_f64, y, e, y, n=2)
    s.emit(r.v_div_scale_f64, n, flag, a, b, a)
    q = s.temp(r.v_mul_f64, n, y, n=2)
    e = s.new("v", 2)
    s.emit(r.v_fma_f64, e, minus_d, q, n)
    last = s.new("v", 2)
    s.emit(r.v_div_fmas_f64, last, e, y, q, vcc=flag)
    s.emit(r.v_div_fixup_f64, dst, last, b, a)


@lower("sqrt")
def sqrt(s: Selector, op: Op) -> None:
    v = op.results[0]
    if v.type.kind == "f64":
        xs = _wide_sources(s, op.args[0])
        dst = s.result(op)
        for k, x in enumerate(xs):
            _sqrt64(s, dst.part(2 * k, 2), _pair(s, x))
        return
    words = s.words(op.args[0])
    dst = s.result(op)
    for k, word in enumerate(words):
        _sqrt32(s, dst.part(k), s.to_vector(word))


def _sqrt32(s: Selector, dst: Ref, x: Ref) -> None:
    """Estimate within one ulp, then take the neighbour whose residue says that the root lies beyond it. Inputs below
    2^-96 are scaled by 2^32 (exactly), zero and infinity are their own roots."""
    r = s.rows
    small = s.compare(r.v_cmp_gt_f32, f32_bits(2.0**-96), x)
    scaled = s.new("v")
    s.emit(r.v_mul_f32, scaled, f32_bits(2.0**32), x)
    y = s.new("v")
    s.pick(y, small, scaled, x)
    root = s.one(r.v_sqrt_f32, y)
    down, up = s.new("v"), s.new("v")
    s.valu(r.v_add_u32, down, -1, root)
    s.valu(r.v_add_u32, up, 1, root)
    below, above = s.new("v"), s.new("v")
    s.emit(r.v_fma_f32, below, Src(down, neg=True), root, y)
    s.emit(r.v_fma_f32, above, Src(up, neg=True), root, y)
    take_down = s.compare(r.v_cmp_ge_f32, 0, below)
    first = s.new("v")
    s.pick(first, take_down, down, root)
    take_up = s.compare(r.v_cmp_lt_f32, 0, above)
    second = s.new("v")
    s.pick(second, take_up, up, first)
    unscaled = s.new("v")
    s.emit(r.v_mul_f32, unscaled, f32_bits(2.0**-16), second)
    picked = s.new("v")
    s.pick(picked, small, unscaled, second)
    # class: zeros (0x20, 0x40) and +infinity (0x200)
    special = s.mask_reg()
    s.emit(r.v_cmp_class_f32, special, y, s.to_vector(0x260))
    s.pick(dst, special, y, picked)


def _sqrt64(s: Selector, dst: Ref, x: Ref) -> None:
    """Goldschmidt's iteration from v_rsq_f64 with a final residue; tiny inputs are scaled by 2^256."""
    r = s.rows
    limit = s.constant_pair([0, 0x10000000])  # 2^-767
    tiny = s.compare(r.v_cmp_lt_f64, x, limit)
    shift = s.new("v")
    s.pick(shift, tiny, s.to_vector(256), 0)
    y = s.temp(r.v_ldexp_f64, x, shift, n=2)
    estimate = s.one(r.v_rsq_f64, y, 2)
    g = s.temp(r.v_mul_f64, y, estimate, n=2)
    h = s.temp(r.v_mul_f64, estimate, 0.5, n=2)
    e = s.new("v", 2)
    s.emit(r.v_fma_f64, e, Src(h, neg=True), g, 0.5)
    g1 = s.temp(r.v_fma_f64, g, e, g, n=2)
    h1 = s.temp(r.v_fma_f64, h, e, h, n=2)
    for _ in range(2):
        d = s.new("v", 2)
        s.emit(r.v_fma_f64, d, Src(g1, neg=True), g1, y)
        g1 = s.temp(r.v_fma_f64, d, h1, g1, n=2)
    back = s.new("v")
    s.pick(back, tiny, s.to_vector(-128 & 0xFFFFFFFF), 0)
    unscaled = s.temp(r.v_ldexp_f64, g1, back, n=2)
    special = s.mask_reg()
    s.emit(r.v_cmp_class_f64, special, y, s.to_vector(0x260))
    for k in (0, 1):
        s.pick(dst.part(k), special, y.part(k), unscaled.part(k))


# -------------------------------------------------------------------------------------------------------- trigonometric

_TURN = 1.0 / (2.0 * math.pi)


@lower("sin", "cos")
def trigonometric(s: Selector, op: Op) -> None:
    """v_sin_f32 takes revolutions: x / (2 pi) less its nearest integer, with 1 / (2 pi) in two parts."""
    v = op.results[0]
    if v.type.kind == "f64":
        raise s.unsupported(op, f"there is no f64 {op.name} instruction", "compute it in f32")
    r = s.rows
    high_bits = f32_bits(_TURN)
    high = struct.unpack("<f", struct.pack("<I", high_bits))[0]
    low_bits = f32_bits(_TURN - high)
    row = r.named(roles.FLOAT[op.name, "f32"])
    words = s.words(op.args[0])
    dst = s.result(op)
    for k, word in enumerate(words):
        x = s.to_vector(word)
        turns = s.new("v")
        s.emit(r.v_mul_f32, turns, high_bits, x)
        whole = s.one(r.v_rndne_f32, turns)
        part = s.new("v")
        s.emit(r.v_fma_f32, part, x, s.pooled(high_bits), Src(whole, neg=True))
        exact = s.temp(r.v_fma_f32, x, low_bits, part)
        s.emit(row, dst.part(k), exact)


@lower("fcmp")
def fcmp(s: Selector, op: Op) -> None:
    a, b = op.args
    wide = a.type.kind == "f64"
    row = s.rows.named(roles.float_compare(op.attrs["how"], a.type.kind))
    if wide:
        s.bind(op, s.compare(row, s.source64(a), s.source64(b)))
    else:
        s.bind(op, s.compare(row, s.operand(a), s.operand(b)))
