"""Which integer ops become one three-operand instruction: `(a << c) + b` is v_lshl_add_u32, `(a & b) | c` v_and_or_b32.

In: a kernel and the use counts of its values. Out: `Fusion`s by result id, and the ids of values that vanish into them.

A fusion is a row of `PATTERNS`: outer op, inner op, condition; `roles.FUSED` names the instruction. It applies to
per-lane i32 values (and the largest or smallest of three f32, and a number held between -c and c) whose inner op has
no other use, stands in the same region, and where the three sources read at most one scalar register or literal. The
largest and the smallest read the sizes of numbers that nobody else asks for (`_sizes`), multiply-adds their negatives
(`_negated`). Uniform values have two fusions of their own: (a << 1 to 4) + b, and bit fields.

The lane and the wave number are bits of the thread's number. Who reads only some bits of them reads these there, and
where everybody does, they are never made (`under_mask`, `needs`).
"""

from __future__ import annotations

from collections.abc import Callable

from wavedsl.codegen.amdgcn.lane_moves import HALF_WAVE, dpp_pattern, halves_agree
from wavedsl.codegen.amdgcn.roles import DPP, FLOAT, FUSED, FUSED_SCALAR, LIMIT, SCALAR_FIELD
from wavedsl.ir import dtypes as dt
from wavedsl.ir.kernel.kernel_ir import F32, I32, Kernel, Op, Region, Value
from wavedsl.ir.quick_dataclass import dataclass

_FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Fusion:
    """Instruction `mnemonic` on `sources`; `width` is the field's width where the last source is one (v_bfe_u32),
    `lanes` the DPP pattern by which the first comes from other lanes. `halves`: it combines a value with that of the
    other half of the wave. `sizes`: which sources are read without their signs, `negated`: which with the
    other sign. `limits`: a third source is the negative of the second, a constant."""

    mnemonic: str
    sources: tuple[Value, ...]
    width: int | None = None
    lanes: str | None = None
    halves: bool = False
    sizes: tuple[bool, ...] = ()
    negated: tuple[bool, ...] = ()
    limits: bool = False


@dataclass(frozen=True)
class Pattern:
    outer: str
    inner: str
    side: str
    """Which operand of the outer op the inner op may be: `either` or `first`."""
    fits: Callable[[Op, Op, Value | None], bool]
    """(outer, inner, the other operand) → whether the instruction computes it."""
    row: str = ""
    """What `FUSED` calls the inner op, where that is not its name."""


def _shift_is_constant(outer: Op, inner: Op, other: Value | None) -> bool:
    return inner.args[1].const is not None


def _outer_shift_is_constant(outer: Op, inner: Op, other: Value | None) -> bool:
    return outer.args[1].const is not None


def _always(outer: Op, inner: Op, other: Value | None) -> bool:
    return True


def _small(outer: Op, inner: Op, other: Value | None) -> bool:
    return all(unsigned24(v) for v in inner.args)


def _small_of_signs(outer: Op, inner: Op, other: Value | None) -> bool:
    return all(signed24(v) for v in inner.args)


def _no_common_bits(outer: Op, inner: Op, other: Value | None) -> bool:
    assert other is not None
    zeros = inner.results[0].zeros | other.zeros
    if other.const is not None:
        zeros |= ~int(other.const)
    return zeros & _FULL == _FULL


def unsigned24(v: Value) -> bool:
    """Whether the value is known to lie in 0 .. 2^24 - 1."""
    return v.lo is not None and v.hi is not None and v.lo >= 0 and v.hi < 1 << 24


def signed24(v: Value) -> bool:
    """Whether the value is known to lie in -2^23 .. 2^23 - 1."""
    return v.lo is not None and v.hi is not None and v.lo >= -(1 << 23) and v.hi < 1 << 23


PATTERNS = (
    Pattern("add", "shl", "either", _shift_is_constant),
    Pattern("add", "mul", "either", _small),
    Pattern("add", "mul", "either", _small_of_signs, "mul of signs"),
    Pattern("add", "and", "either", _no_common_bits),
    Pattern("add", "xor", "either", _always),
    Pattern("add", "add", "either", _always),
    Pattern("or", "shl", "either", _shift_is_constant),
    Pattern("or", "and", "either", _always),
    Pattern("or", "or", "either", _always),
    Pattern("shl", "add", "first", _outer_shift_is_constant),
    Pattern("min_u", "min_u", "either", _always),
    Pattern("min_s", "min_s", "either", _always),
    Pattern("max_s", "max_s", "either", _always),
)
_BY_OUTER: dict[str, list[Pattern]] = {}
for _p in PATTERNS:
    _BY_OUTER.setdefault(_p.outer, []).append(_p)


def plan_fusions(
    kernel: Kernel, uses: dict[int, int], swaps_halves: bool = False
) -> tuple[dict[int, Fusion], set[int]]:
    """The fusions of a kernel by result id, and the ids of values that need no instruction of their own.
    `swaps_halves`: whether halves of a wave change places by one instruction."""
    fusions: dict[int, Fusion] = {}
    absorbed: set[int] = set()
    _plan(kernel.body, uses, fusions, absorbed, swaps_halves)
    return fusions, absorbed


def _plan(
    region: Region, uses: dict[int, int], fusions: dict[int, Fusion], absorbed: set[int], swaps_halves: bool
) -> None:
    """Plan a region, inner regions first: what each result is fused with, and which values vanish into their reader."""
    here: set[int] = set()
    for op in region.ops:
        for nested in op.regions:
            _plan(nested, uses, fusions, absorbed, swaps_halves)
        if not op.results:
            continue
        v = op.results[0]
        here.add(v.id)
        if v.type is F32 and uses.get(v.id) and op.name in ("fmax", "fmin"):
            chained = _held(op, uses, here, absorbed, fusions) or _chained(op, uses, here, absorbed, fusions)
            if chained is not None:
                fusions[v.id] = chained
                continue
        if v.type is F32 and not v.uniform and op.name in EXCHANGED and uses.get(v.id):
            met = _with_other_lanes(op, uses, here, absorbed, fusions, swaps_halves)
            if met is not None:
                fusions[v.id] = met
            continue
        if v.type is F32 and not v.uniform and op.name == "cvt" and uses.get(v.id):
            word = op.args[0].op
            if word is not None and _is_field(op, word) and _free(op.args[0], uses, here, fusions):
                fusions[v.id] = Fusion("", word.args)
                absorbed.add(op.args[0].id)
            continue
        if op.name == "ffma" and v.type.kind == "f32" and not v.uniform and uses.get(v.id):
            _negated(op, uses, here, absorbed, fusions)
            continue
        if v.type is not I32 or not uses.get(v.id):
            continue
        if v.uniform:
            _plan_scalar(op, uses, here, absorbed, fusions)
            continue
        field = _field_extract(op, uses, here, absorbed, fusions)
        if field is not None:
            fusions[v.id] = field
            continue
        for pattern in _BY_OUTER.get(op.name, ()):
            found = _match(pattern, op, uses, here, absorbed, fusions)
            if found is not None:
                fusion, gone = found
                fusions[v.id] = fusion
                absorbed.add(gone)
                break
    for op in region.ops:
        if op.name in ("fmax", "fmin") and op.results[0].type is F32 and op.results[0].id not in absorbed:
            _sizes(op, uses, here, absorbed, fusions)


def _is_field(op: Op, word: Op) -> bool:
    """Whether a conversion is of an integer of a word that one instruction takes out and converts; 4 bits without a
    sign lie in bytes when the others are masked (`select_convert._converted_field`)."""
    if word.name != "unpack" or word.results[0].uniform:
        return False
    dtype = word.attrs["dtype"]
    return dtype in (dt.u4, dt.u8, dt.u16) or (dtype in (dt.i8, dt.i16) and not op.attrs["unsigned"])


def _sizes(op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]) -> None:
    """Let the largest or smallest of two or three read sizes of numbers, where nobody else asks for these."""
    v = op.results[0]
    fusion = fusions.get(v.id)
    if v.uniform or not uses.get(v.id) or (fusion is not None and fusion.mnemonic != FUSED[op.name, op.name]):
        return
    sources = fusion.sources if fusion is not None else op.args
    sizes = tuple(
        x.op is not None and x.op.name == "fabs" and not x.uniform and _free(x, uses, here, fusions) for x in sources
    )
    if any(sizes):
        absorbed.update(x.id for x, size in zip(sources, sizes) if size)
        within = tuple(x.op.args[0] if size and x.op is not None else x for x, size in zip(sources, sizes))
        name = fusion.mnemonic if fusion is not None else FLOAT[op.name, "f32"]
        fusions[v.id] = Fusion(name, within, sizes=sizes)


def _negated(op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]) -> None:
    """Let a multiply-add, of one number or of several side by side, read numbers with the other sign, where nobody else
    asks for their negatives."""
    inner = [
        x.op if x.op is not None and x.op.name == "fneg" and not x.uniform and _free(x, uses, here, fusions) else None
        for x in op.args
    ]
    if any(inner):
        absorbed.update(x.results[0].id for x in inner if x is not None)
        within = tuple(a if x is None else x.args[0] for a, x in zip(op.args, inner))
        fusions[op.results[0].id] = Fusion("", within, negated=tuple(x is not None for x in inner))


def _plan_scalar(
    op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]
) -> None:
    """The same for a uniform integer: a field extract, or a shift that an addition takes along."""
    v = op.results[0]
    field = _field_extract(op, uses, here, absorbed, fusions)
    if field is not None:
        fusions[v.id] = Fusion(SCALAR_FIELD, field.sources, field.width)
        return
    if op.name != "add":
        return
    for which in (0, 1):
        x, other = op.args[which], op.args[1 - which]
        inner = x.op
        if inner is None or inner.name != "shl" or not _free(x, uses, here, fusions):
            continue
        row = FUSED_SCALAR.get(inner.args[1].const)  # type: ignore[arg-type]
        if row is not None:
            fusions[v.id] = Fusion(row, (inner.args[0], other))
            absorbed.add(x.id)
            return


def _free(v: Value, uses: dict[int, int], here: set[int], fusions: dict[int, Fusion]) -> bool:
    """Whether a value's op may vanish into its only user."""
    return v.op is not None and v.id in here and uses.get(v.id) == 1 and v.id not in fusions


def _held(
    op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]
) -> Fusion | None:
    """A number held between -c and c: not above c, of what is not below -c. (The other way round a NaN becomes c.)"""
    v, limit = op.args
    inner, most = v.op, limit.const
    if op.name != "fmin" or op.results[0].uniform or inner is None or inner.name != "fmax" or most is None or most <= 0:
        return None
    if inner.args[1].const != -most or not _free(v, uses, here, fusions) or _scalars((inner.args[0], limit)) > 1:
        return None
    absorbed.add(v.id)
    return Fusion(LIMIT, (inner.args[0], limit), limits=True)


def _chained(
    op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]
) -> Fusion | None:
    """The largest or smallest of three f32."""
    for which in (0, 1):
        v, other = op.args[which], op.args[1 - which]
        inner = v.op
        if inner is None or inner.name != op.name or not _free(v, uses, here, fusions):
            continue
        sources = (*inner.args, other)
        if _scalars(sources) <= 1:
            absorbed.add(v.id)
            return Fusion(FUSED[op.name, op.name], sources)
    return None


EXCHANGED = ("fadd", "fmul", "fmax", "fmin")
"""Operations of two f32 in either order that may read one of them from another lane."""


def _with_other_lanes(
    op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion], swaps_halves: bool
) -> Fusion | None:
    """A step of a reduction over lanes: one instruction where a DPP pattern moves the value; where halves of the wave
    exchange theirs without LDS, what came from either side, in whichever order. What passes LDS is asked for where it
    stands, so that several wait together."""
    for moved, other in (op.args, op.args[::-1]):
        inner = moved.op
        if inner is None or inner.name != "shuffle_xor" or not _free(moved, uses, here, fusions):
            continue
        row = FLOAT[op.name, "f32"]
        pattern = dpp_pattern(inner)
        if pattern is not None:
            absorbed.add(moved.id)
            return Fusion(row + DPP, (inner.args[0], other), lanes=pattern)
        if inner.attrs["mask"] == HALF_WAVE and inner.args[0] is other and (swaps_halves or halves_agree(other)):
            absorbed.add(moved.id)
            return Fusion(row, (other,), halves=True)
    return None


def _match(
    p: Pattern, op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]
) -> tuple[Fusion, int] | None:
    for which in (0, 1) if p.side == "either" else (0,):
        v, other = op.args[which], op.args[1 - which]
        inner = v.op
        if inner is None or inner.name != p.inner or v.uniform or not _free(v, uses, here, fusions):
            continue
        if not p.fits(op, inner, other):
            continue
        sources = (*inner.args, other)
        if _scalars(sources) <= 1:
            return Fusion(FUSED[p.outer, p.row or p.inner], sources), v.id
    return None


def _field_extract(
    op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]
) -> Fusion | None:
    """(a >> c) & (2^n - 1) is v_bfe_u32 a, c, n: three sources, the last a width and no value."""
    if op.name != "and":
        return None
    for which in (0, 1):
        v, m = op.args[which], op.args[1 - which].const
        inner = v.op
        if inner is None or inner.name != "lshr" or m is None or inner.args[1].const is None:
            continue
        m = int(m)
        if m <= 0 or m & (m + 1) or not _free(v, uses, here, fusions):
            continue
        if v.uniform != op.results[0].uniform:
            continue
        absorbed.add(v.id)
        return Fusion(FUSED["and", "lshr"], inner.args, m.bit_length())
    return None


def _scalars(sources: tuple[Value, ...]) -> int:
    """Distinct scalar registers or literals that the sources need."""
    seen = set()
    for v in sources:
        c = v.const
        if c is not None:
            if not -16 <= c <= 64:
                seen.add(("const", c))
        elif v.uniform:
            seen.add(("value", v.id))
    return len(seen)


def under_mask(kernel: Kernel, op: Op, fusion: Fusion | None) -> Value | None:
    """The lane or wave number of which an instruction reads nothing but some of its own bits: behind a mask, as a
    field, or shifted down. There the thread's number, moved, serves as well."""
    if fusion is not None and fusion.width is not None:
        v, start = fusion.sources[0], fusion.sources[1].const
        if start is not None and (_is(v, "wave") or (_is(v, "lane") and start + fusion.width <= _lane_bits(kernel))):
            return v
        return None
    if fusion is None and op.name == "lshr":
        v, by = op.args
        return v if _is(v, "wave") and by.const is not None else None
    if fusion is None and op.name == "and":
        sources = op.args
    elif fusion is not None and fusion.mnemonic == FUSED["add", "and"]:
        sources = fusion.sources[:2]
    else:
        return None
    v, mask = sources
    m = mask.const
    if m is None or m < 0:
        return None
    if _is(v, "wave"):
        return v if not int(m) & (int(m) + 1) and fusion is None else None
    return v if _is(v, "lane") and m < kernel.wave_size else None


def _lane_bits(kernel: Kernel) -> int:
    return kernel.wave_size.bit_length() - 1


def needs(kernel: Kernel, name: str, fusions: dict[int, Fusion], absorbed: set[int]) -> bool:
    """Whether some op reads the `lane` or `wave` number in another way than `under_mask` says."""
    for op in kernel.body.walk():
        if op.results and op.results[0].id in absorbed:
            continue
        fusion = fusions.get(op.results[0].id) if op.results else None
        sources = fusion.sources if fusion is not None else op.args
        for v in sources:
            if v.op is not None and v.op.name == name:
                if under_mask(kernel, op, fusion) is None:
                    return True
                break
    return False


def _is(v: Value, name: str) -> bool:
    return v.op is not None and v.op.name == name
