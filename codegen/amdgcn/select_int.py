"""Lowering of integers, predicates and selects. Uniform values go to the scalar unit, the rest to the vector unit.

64-bit numbers are pairs, low word first. Division by a run-time divisor is `select_divide.py`'s.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.amdgcn import roles
from wavedsl.codegen.amdgcn.fuse import Fusion, signed24, under_mask, unsigned24
from wavedsl.codegen.amdgcn.machine import Operand, Ref
from wavedsl.codegen.amdgcn.select import Compare, Selector, is_inline, lower
from wavedsl.ir.kernel.fold_rules import MIRROR
from wavedsl.ir.kernel.kernel_ir import I32, I64, Op, Value

_COMMUTES = frozenset(("add", "and", "or", "xor", "min_s", "max_s", "min_u", "max_u"))


@lower("add", "sub", "and", "or", "xor", "min_s", "max_s", "min_u", "max_u", "shl", "lshr", "ashr")
def binary(s: Selector, op: Op) -> None:
    v = op.results[0]
    if v.type is I64:
        _binary64(s, op)
        return
    fusion = s.fusions.get(v.id)
    masked = under_mask(s.kernel, op, fusion)
    if v.uniform and (fusion is not None or masked is not None):
        _fused_scalar(s, op, fusion, masked)
        return
    if fusion is not None:
        sources = [s.thread if x is masked else s.operand(x) for x in fusion.sources]
        if fusion.width is not None:
            sources.append(fusion.width)
        s.vop3(s.rows.named(fusion.mnemonic), s.result(op), *sources)
        return
    a, b = op.args
    if masked is not None:
        s.valu(s.rows.named(roles.VECTOR[op.name]), s.result(op), s.thread, s.operand(b), True)
        return
    if v.uniform:
        x, y = s.scalar(a), s.scalar(b)
        s.emit(s.rows.named(roles.SCALAR[op.name]), s.result(op, "s"), x, y)
        return
    if op.name in roles.VECTOR_SHIFT:
        s.valu(s.rows.named(roles.VECTOR_SHIFT[op.name]), s.result(op), s.operand(b), s.operand(a))
        return
    s.valu(s.rows.named(roles.VECTOR[op.name]), s.result(op), s.operand(a), s.operand(b), op.name in _COMMUTES)


def _fused_scalar(s: Selector, op: Op, fusion: Fusion | None, masked: Value | None) -> None:
    """A uniform fusion, or bits of the wave number taken from the thread's."""
    source = s.first_thread() if masked is not None else None
    moved = s.kernel.wave_size.bit_length() - 1 if masked is not None else 0
    start: int
    width: int | None
    if fusion is None:
        known: Any = op.args[1].const
        start, width = (0, known.bit_length()) if op.name == "and" else (known, None)
    elif fusion.width is None:
        s.emit(s.rows.named(fusion.mnemonic), s.result(op, "s"), *(s.scalar(x) for x in fusion.sources))
        return
    else:
        source = s.scalar(fusion.sources[0]) if source is None else source
        first: Any = fusion.sources[1].const
        start, width = first, fusion.width
    start += moved
    if width is None:
        s.emit(s.rows.s_lshr_b32, s.result(op, "s"), source, start)
    else:
        s.emit(s.rows.named(roles.SCALAR_FIELD), s.result(op, "s"), source, start | width << 16)


@lower("mul")
def mul(s: Selector, op: Op) -> None:
    v = op.results[0]
    a, b = op.args
    if v.type is I64:
        _mul64(s, op)
    elif v.uniform:
        x, y = s.scalar(a), s.scalar(b)
        s.emit(s.rows.s_mul_i32, s.result(op, "s"), x, y)
    elif unsigned24(a) and unsigned24(b):
        s.valu(s.rows.v_mul_u32_u24, s.result(op), s.operand(a), s.operand(b), True)
    elif signed24(a) and signed24(b):
        s.valu(s.rows.v_mul_i32_i24, s.result(op), s.operand(a), s.operand(b), True)
    else:
        s.vop3(s.rows.v_mul_lo_u32, s.result(op), s.operand(a), s.operand(b))


@lower("mulhi_u")
def mulhi_u(s: Selector, op: Op) -> None:
    a, b = op.args
    if op.results[0].uniform:
        x, y = s.scalar(a), s.scalar(b)
        s.emit(s.rows.s_mul_hi_u32, s.result(op, "s"), x, y)
    else:
        s.vop3(s.rows.v_mul_hi_u32, s.result(op), s.operand(a), s.operand(b))


@lower("mul_wide_u")
def mul_wide_u(s: Selector, op: Op) -> None:
    a, b = op.args
    if op.results[0].uniform:
        x, y = s.scalar(a), s.scalar(b)
        dst = s.result(op, "s")
        s.emit(s.rows.s_mul_i32, dst.part(0), x, y)
        s.emit(s.rows.s_mul_hi_u32, dst.part(1), x, y)
    else:
        # Both halves in the time of one.
        x, y = s.operand(a), s.operand(b)
        s.wide_product(s.result(op), x, y)


# ------------------------------------------------------------------------------------------------------------- 64 bits


def _pair(words: list[Operand]) -> Ref | int | None:
    """Two words that are an aligned pair of one tuple, or an inline constant of 64 bits."""
    a, b = words
    if a.__class__ is int and b.__class__ is int:
        number = (a & 0xFFFFFFFF) - (1 << 32 if b & 0xFFFFFFFF else 0)
        return number if -16 <= number <= 64 and b & 0xFFFFFFFF in (0, 0xFFFFFFFF) else None
    if a.__class__ is not Ref or b.__class__ is not Ref or a.reg is not b.reg or b.start != a.start + 1 or a.start % 2:
        return None
    return Ref(a.reg, a.start, 2)


def add64(s: Selector, dst: Ref, a: list[Operand], b: list[Operand], subtract: bool = False) -> None:
    """dst = a ± b on pairs; scalar when `dst` is."""
    r = s.rows
    if dst.reg.cls == "s":
        s.emit(r.s_sub_u32 if subtract else r.s_add_u32, dst.part(0), a[0], b[0])
        s.emit(r.s_subb_u32 if subtract else r.s_addc_u32, dst.part(1), a[1], b[1])
        return
    x, y = _pair(a), _pair(b)
    if not subtract and x is not None and y is not None and s.rows.has(roles.WIDE_ADD):
        if _takes_bus(x):
            x, y = y, x
        if not _takes_bus(x) and not (x.__class__ is int and y.__class__ is int):  # one scalar pair at most
            s.emit(r.named(roles.WIDE_ADD), dst, x, 0, y)
            return
    carry = s.mask_reg()
    low, high = (r.v_sub_co_u32, r.v_subb_co_u32) if subtract else (r.v_add_co_u32, r.v_addc_co_u32)
    s.emit(low, dst.part(0), carry, *s._bus([a[0], b[0]]))
    # the carry takes the bus
    x, y = (w if _free_of_bus(w) else s.to_vector(w) for w in (a[1], b[1]))
    s.emit(high, dst.part(1), carry, x, y, carry)


def _takes_bus(pair: Ref | int) -> bool:
    return pair.__class__ is Ref and pair.reg.cls == "s"


def _free_of_bus(w: Operand) -> bool:
    return (w.__class__ is Ref and w.reg.cls != "s") or (w.__class__ is int and -16 <= w <= 64)


def _binary64(s: Selector, op: Op) -> None:
    """Arithmetic on 64-bit integers: by the scalar unit where it is uniform, else word by word."""
    v = op.results[0]
    a, b = op.args
    name = op.name
    if name in roles.VECTOR_SHIFT:
        _shift64(s, op)
        return
    uniform = v.uniform
    x = s.scalar_words(a) if uniform else s.words(a)
    y = s.scalar_words(b) if uniform else s.words(b)
    if name in ("add", "sub"):
        add64(s, s.result(op, "s" if uniform else "v"), x, y, name == "sub")
    elif name in ("and", "or", "xor"):
        dst = s.result(op, "s" if uniform else "v")
        for k in (0, 1):
            if uniform:
                s.emit(s.rows.named(roles.SCALAR[name]), dst.part(k), x[k], y[k])
            else:
                s.valu(s.rows.named(roles.VECTOR[name]), dst.part(k), x[k], y[k], True)
    elif uniform and name == "max_s" and b.const == 0:
        s.emit(s.rows.s_cmp_lt_i32, x[1], 0)
        s.emit(s.rows.s_cselect_b64, s.result(op, "s"), 0, s.scalar_ref64(a))
    else:
        how = {"min_s": "slt", "max_s": "sgt", "min_u": "ult", "max_u": "ugt"}[name]
        mask = _compare64(s, how, a, b)
        dst = s.new("v", 2, v.name)
        for k in (0, 1):
            s.pick(dst.part(k), mask, x[k], y[k])
        s.bind(op, dst)


def _shift64(s: Selector, op: Op) -> None:
    a, b = op.args
    if op.results[0].uniform:
        row = s.rows.named(roles.SCALAR_SHIFT_64[op.name])
        x, y = s.scalar_ref64(a), s.scalar(b)
        s.emit(row, s.result(op, "s"), x, y)
    else:
        row = s.rows.named(roles.VECTOR_SHIFT_64[op.name])
        s.vop3(row, s.result(op), s.operand(b), s.vector(a))


def _mul64(s: Selector, op: Op) -> None:
    """Low 64 bits: the full product of the low words plus both cross products in the high word."""
    r = s.rows
    a, b = op.args
    if op.results[0].uniform:
        (al, ah), (bl, bh) = s.scalar_words(a), s.scalar_words(b)
        dst = s.new("s", 2)
        crossed = [s.stemp(r.s_mul_i32, al, bh)] if _high_word(b) else []
        if _high_word(a):
            crossed.append(s.stemp(r.s_mul_i32, ah, bl))
        total = s.stemp(r.s_add_u32, *crossed) if len(crossed) == 2 else None
        if not crossed:
            s.emit(r.s_mul_i32, dst.part(0), al, bl)
            s.emit(r.s_mul_hi_u32, dst.part(1), al, bl)
        else:
            high = s.stemp(r.s_mul_hi_u32, al, bl)
            s.emit(r.s_mul_i32, dst.part(0), al, bl)
            s.emit(r.s_add_u32, dst.part(1), total or crossed[0], high)
        s.bind(op, dst)
        return
    (al, ah), (bl, bh) = s.words(a), s.words(b)
    dst = s.new("v", 2)
    cross = s.temp(r.v_mul_lo_u32, al, bh)
    other = s.temp(r.v_mul_lo_u32, ah, bl)
    high = s.temp(r.v_mul_hi_u32, al, bl)
    s.vop3(r.v_mul_lo_u32, dst.part(0), al, bl)
    s.vop3(r.v_add3_u32, dst.part(1), cross, other, high)
    s.bind(op, dst)


def _high_word(v: Value) -> bool:
    """Whether the high word of a number of 64 bits may be anything but 0."""
    return v.lo is None or v.hi is None or v.lo < 0 or v.hi >> 32 != 0


@lower("zext")
def zext(s: Selector, op: Op) -> None:
    cls = "s" if op.results[0].uniform else "v"
    a = s.scalar(op.args[0]) if cls == "s" else s.operand(op.args[0])
    dst = s.result(op, cls)
    s.copy(dst.part(0), a)
    s.copy(dst.part(1), 0)


@lower("sext")
def sext(s: Selector, op: Op) -> None:
    if op.results[0].uniform:
        a = s.scalar(op.args[0])
        dst = s.result(op, "s")
        s.copy(dst.part(0), a)
        s.emit(s.rows.s_ashr_i32, dst.part(1), a, 31)
    else:
        a = s.operand(op.args[0])
        dst = s.result(op)
        s.copy(dst.part(0), a)
        s.valu(s.rows.v_ashrrev_i32, dst.part(1), 31, a)


@lower("trunc")
def trunc(s: Selector, op: Op) -> None:
    s.bind(op, s.words(op.args[0])[0])


@lower("bfe")
def bfe(s: Selector, op: Op) -> None:
    start, width, is_signed = op.attrs["start"], op.attrs["width"], op.attrs.get("signed")
    a = op.args[0]
    if op.results[0].uniform:
        row = s.rows.s_bfe_i32 if is_signed else s.rows.s_bfe_u32
        x = s.scalar(a)
        s.emit(row, s.result(op, "s"), x, start | width << 16)
    else:
        s.vop3(s.rows.v_bfe_i32 if is_signed else s.rows.v_bfe_u32, s.result(op), s.operand(a), start, width)


@lower("funnel")
def funnel(s: Selector, op: Op) -> None:
    """The scalar unit shifts pairs."""
    high, low, count = op.args
    if not op.results[0].uniform:
        s.vop3(s.rows.v_alignbit_b32, s.result(op), s.operand(high), s.operand(low), s.operand(count))
        return
    pair, places, moved = s.new("s", 2), s.new("s"), s.new("s", 2)
    s.copy(pair.part(0), s.scalar(low))
    s.copy(pair.part(1), s.scalar(high))
    s.emit(s.rows.s_and_b32, places, s.scalar(count), 31)
    s.emit(s.rows.s_lshr_b64, moved, pair, places)
    s.bind(op, moved.part(0))


@lower("popcount", "clz", "ctz", "brev")
def bits(s: Selector, op: Op) -> None:
    """Zeros before a bit that is not there are -1, which is the largest number without a sign: 32 is less."""
    vector, scalar = (s.rows.named(name) for name in roles.BITS[op.name])
    a = op.args[0]
    limit = op.results[0].hi == 32 and op.name in ("clz", "ctz")
    if op.results[0].uniform:
        dst = s.result(op, "s")
        found = s.new("s") if limit else dst
        s.emit(scalar, found, s.scalar(a))
        if limit:
            s.emit(s.rows.s_min_u32, dst, found, 32)
        return
    dst = s.result(op)
    found = s.new("v") if limit else dst
    if op.name == "popcount":
        s.vop3(vector, found, s.operand(a), 0)
    else:
        s.emit(vector, found, s.operand(a))
    if limit:
        s.valu(s.rows.v_min_u32, dst, 32, found)


# ---------------------------------------------------------------------------------------------- comparisons, predicates


@lower("cmp")
def cmp(s: Selector, op: Op) -> None:
    a, b = op.args
    how = op.attrs["how"]
    last_value = s.countdown.get(a.id)
    if last_value is not None:  # the counter is what is left to the last value: the comparison turns round
        row = s.rows.named(roles.scalar_compare(MIRROR[how]))
        last: Any = b.const
        s.bind(op, Compare(row, s.operand(a), last_value - last))
        return
    if a.type is I32:
        if op.results[0].uniform:
            s.bind(op, Compare(s.rows.named(roles.scalar_compare(how)), s.scalar(a), s.scalar(b)))
        else:
            s.bind(op, s.compare(s.rows.named(roles.vector_compare(how, 32)), s.operand(a), s.operand(b)))
        return
    if op.results[0].uniform and how in ("eq", "ne"):
        row = s.rows.s_cmp_eq_u64 if how == "eq" else s.rows.s_cmp_lg_u64
        s.bind(op, Compare(row, s.scalar_ref64(a), s.scalar_ref64(b)))
        return
    s.bind(op, _compare64(s, how, a, b))


def _compare64(s: Selector, how: str, a: Value, b: Value) -> Ref:
    return s.compare(s.rows.named(roles.vector_compare(how, 64)), s.operand(a), s.operand(b))


@lower("pand", "por", "pxor")
def predicates(s: Selector, op: Op) -> None:
    a, b = s.mask(op.args[0]), s.mask(op.args[1])
    for x, y in ((a, b), (b, a)):
        if x.__class__ is bool:
            if op.name == "pand":
                s.bind(op, y if x else False)
                return
            if op.name == "por":
                s.bind(op, True if x else y)
                return
            if y.__class__ is bool:
                s.bind(op, x != y)
                return
            if not x:
                s.bind(op, y)
                return
            _invert(s, op, y)
            return
    dst = s.mask_reg()
    s.emit(s.rows.named(roles.MASKS[op.name]), dst, a, b)
    s.bind(op, dst)


@lower("pnot")
def pnot(s: Selector, op: Op) -> None:
    a = s.mask(op.args[0])
    if a.__class__ is bool:
        s.bind(op, not a)
    else:
        _invert(s, op, a)


def _invert(s: Selector, op: Op, a: Ref) -> None:
    dst = s.mask_reg()
    s.emit(s.rows.s_xor_b64, dst, a, -1)
    s.bind(op, dst)


@lower("select")
def select(s: Selector, op: Op) -> None:
    c, a, b = op.args
    v = op.results[0]
    if v.type.kind == "pred":
        _select_mask(s, op)
        return
    held = s.operand(c)
    if held.__class__ is bool:
        s.bind(op, s.operand(a if held else b))
        return
    if v.uniform and s.file(v) == "s" and c.uniform:
        x, y = s.scalar_words(a), s.scalar_words(b)
        for k, (one, other) in enumerate(zip(x, y)):
            if one != other and not any(w.__class__ is Ref or is_inline(w) for w in (one, other)):
                y[k] = s.pooled(other)  # an instruction has one literal
        dst = s.result(op, "s")
        s.scc(c)
        for k in range(v.type.words):
            s.emit(s.rows.s_cselect_b32, dst.part(k), x[k], y[k])
        return
    mask = s.mask(c)
    x, y = s.words(a), s.words(b)
    dst = s.result(op)
    for k in range(v.type.words):
        s.pick(dst.part(k), mask, x[k], y[k])


def _select_mask(s: Selector, op: Op) -> None:
    """(c and a) or (b and not c), on masks."""
    r = s.rows
    masks = [s.mask(x) for x in op.args]
    c, a, b = (m if m.__class__ is Ref else -1 if m else 0 for m in masks)
    if c.__class__ is not Ref:
        s.bind(op, masks[1] if c else masks[2])
        return
    one, two, dst = s.mask_reg(), s.mask_reg(), s.mask_reg()
    s.emit(r.s_and_b64, one, c, a)
    s.emit(r.s_andn2_b64, two, b, c)
    s.emit(r.s_or_b64, dst, one, two)
    s.bind(op, dst)
