"""Which integer ops become one three-operand instruction: `(a << c) + b` is v_lshl_add_u32, `(a & b) | c` v_and_or_b32.

In: a kernel and the use counts of its values. Out: `Fusion`s by result id, and the ids of values that vanish into them.

A fusion is a row of `PATTERNS`: outer op, inner op, condition; `roles.FUSED` names the instruction. It applies to
per-lane i32 values whose inner op has no other use, stands in the same region, and where the three sources read at
most one scalar register or literal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wavedsl.codegen.amdgcn.roles import FUSED
from wavedsl.ir.kernel_ir import I32, Kernel, Op, Region, Value

_FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Fusion:
    """Instruction `mnemonic` on `sources`; `width` is the field's width where the last source is one (v_bfe_u32)."""

    mnemonic: str
    sources: tuple[Value, ...]
    width: int | None = None


@dataclass(frozen=True)
class Pattern:
    outer: str
    inner: str
    side: str
    """Which operand of the outer op the inner op may be: `either` or `first`."""
    fits: Callable[[Op, Op, Value | None], bool]
    """(outer, inner, the other operand) → whether the instruction computes it."""


def _shift_is_constant(outer: Op, inner: Op, other: Value | None) -> bool:
    return inner.args[1].const is not None


def _outer_shift_is_constant(outer: Op, inner: Op, other: Value | None) -> bool:
    return outer.args[1].const is not None


def _always(outer: Op, inner: Op, other: Value | None) -> bool:
    return True


def _small(outer: Op, inner: Op, other: Value | None) -> bool:
    return all(unsigned24(v) for v in inner.args)


def _no_common_bits(outer: Op, inner: Op, other: Value | None) -> bool:
    assert other is not None
    zeros = inner.results[0].zeros | other.zeros
    if other.const is not None:
        zeros |= ~int(other.const)
    return zeros & _FULL == _FULL


def unsigned24(v: Value) -> bool:
    """Whether the value is known to lie in 0 .. 2^24 - 1."""
    return v.lo is not None and v.hi is not None and v.lo >= 0 and v.hi < 1 << 24


PATTERNS = (
    Pattern("add", "shl", "either", _shift_is_constant),
    Pattern("add", "mul", "either", _small),
    Pattern("add", "and", "either", _no_common_bits),
    Pattern("add", "xor", "either", _always),
    Pattern("add", "add", "either", _always),
    Pattern("or", "shl", "either", _shift_is_constant),
    Pattern("or", "and", "either", _always),
    Pattern("or", "or", "either", _always),
    Pattern("shl", "add", "first", _outer_shift_is_constant),
)
_BY_OUTER: dict[str, list[Pattern]] = {}
for _p in PATTERNS:
    _BY_OUTER.setdefault(_p.outer, []).append(_p)


def plan_fusions(kernel: Kernel, uses: dict[int, int]) -> tuple[dict[int, Fusion], set[int]]:
    """The fusions of a kernel by result id, and the ids of values that need no instruction of their own."""
    fusions: dict[int, Fusion] = {}
    absorbed: set[int] = set()
    _plan(kernel.body, uses, fusions, absorbed)
    return fusions, absorbed


def _plan(region: Region, uses: dict[int, int], fusions: dict[int, Fusion], absorbed: set[int]) -> None:
    here: set[int] = set()
    for op in region.ops:
        for nested in op.regions:
            _plan(nested, uses, fusions, absorbed)
        if not op.results:
            continue
        v = op.results[0]
        here.add(v.id)
        if v.type is not I32 or v.uniform or not uses.get(v.id):
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


def _free(v: Value, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]) -> bool:
    """Whether a value's op may vanish into its only user."""
    return v.op is not None and v.id in here and uses.get(v.id) == 1 and v.id not in fusions and not v.uniform


def _match(
    p: Pattern, op: Op, uses: dict[int, int], here: set[int], absorbed: set[int], fusions: dict[int, Fusion]
) -> tuple[Fusion, int] | None:
    for which in (0, 1) if p.side == "either" else (0,):
        v, other = op.args[which], op.args[1 - which]
        inner = v.op
        if inner is None or inner.name != p.inner or not _free(v, uses, here, absorbed, fusions):
            continue
        if not p.fits(op, inner, other):
            continue
        sources = (*inner.args, other)
        if _scalars(sources) <= 1:
            return Fusion(FUSED[p.outer, p.inner], sources), v.id
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
        if m <= 0 or m & (m + 1) or not _free(v, uses, here, absorbed, fusions):
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
