"""Software hazards as data: how many wait states must lie between two instructions of one wave.

In: two `Footprint`s. Out: `required(producer, consumer, target)`; the back end inserts `s_nop`s from it, the emulator
counts wait states against it. A *wait state* is one issued instruction of the wave, or n + 1 for `s_nop n`; `required`
is how many must lie strictly between. The rows restate LLVM's hazard recogniser (measured with llc) and
the CDNA ISA guides.

`RULES`: (name, producer class, what it touches, consumer class, how it uses it, wait states per target). Touch words:
`vgpr`, `sgpr`, `vcc`, `exec`, `m0`, `mode`: registers that the producer writes and the consumer reads (`read`), writes
(`write`) or both (`access`); `src` words narrow the consumer's operand. Matrix instructions have their own table,
because their counts depend on passes.

Invariant: 0 means the hardware interlocks or needs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from wavedsl.codegen.amdgcn.footprint import Footprint
from wavedsl.codegen.amdgcn.isa import Inst, Unit
from wavedsl.codegen.amdgcn.mfma import Mfma, with_formats
from wavedsl.ir.quick_dataclass import dataclass

LONGEST = 20
"""No hazard needs more wait states: how far back a scan must look."""

_VALU = (Unit.VALU, Unit.TRANS, Unit.ACCMOVE)
_MEMORY = (Unit.VMEM, Unit.SCRATCH, Unit.DS)
EXEC_BITS = 3 << 126
M0_BIT = 1 << 124
VCC_BITS = 3 << 106
SCALAR_BITS = (1 << 126) - 1 & ~M0_BIT
"""Scalar registers, VCC included; not EXEC and what only instructions of their own write."""
VECTOR_BITS = -1 << 256
"""VGPRs and AGPRs."""


@dataclass(frozen=True)
class Rule:
    """`overlap(producer, consumer)` says whether registers meet; `states` is (gfx90a, gfx942, gfx950)."""

    name: str
    producer: str
    consumer: str
    overlap: Callable[[Footprint, Footprint], bool]
    states: tuple[int, int, int]


_COLUMN = {"gfx90a": 0, "gfx942": 1, "gfx950": 2}


def classes(f: Footprint) -> frozenset[str]:
    """The classes of an instance: its row's, its unit's, and what its modifiers add."""
    return _classes(f.inst, f.inst.unit in _VALU and _partial(f), f.has("soffset"))


@functools.cache
def _classes(inst: Inst, partial: bool, scalar_offset: bool) -> frozenset[str]:
    """`classes` of the instances of a row that write a part of their destination, or have an offset in a register."""
    out = set(inst.hazard)
    if inst.unit in _VALU:
        out.add("valu")
        if "trans" not in out:
            out.add("nontrans")
        if partial:
            out.add("partial_dst")
    if inst.unit in _VALU or inst.unit is Unit.MFMA:
        out.add("vector")
    if inst.unit in (Unit.VMEM, Unit.SCRATCH):
        out.add("vmem")
    if inst.unit in _MEMORY:
        out.add("memory")
        if inst.mem is not None and inst.mem.op in ("load", "atomic"):
            out.add("load")
    if inst.unit is Unit.SALU:
        out.add("salu")
    if inst.unit is Unit.MFMA:
        out.add("mfma")
    if "wide_store" in out and inst.encoding == "MUBUF" and scalar_offset:
        out.discard("wide_store")
        out.add("wide_store_sgpr")
    return frozenset(out)


def _partial(f: Footprint) -> bool:
    """Whether a vector instruction writes a part of its destination that its operands select, as LLVM sees it.

    SDWA with a narrow destination, op_sel of a destination half or byte; conversions to 4-bit floats always.
    """
    inst = f.inst
    if "sdwa" in inst.hazard:
        return f.modifiers.get("dst_sel", "DWORD") != "DWORD" and inst.encoding == "SDWA"
    if "nibble_dst" in inst.hazard:
        return True
    sel = f.modifiers.get("op_sel")
    if not sel or inst.encoding != "VOP3":
        return False
    sources = sum(o.reads and not o.writes for o in inst.explicit)
    return any(sel[sources:])


# ---- how registers meet


def _vgpr_read(p: Footprint, c: Footprint) -> bool:
    return p.writes & c.reads & VECTOR_BITS != 0


def _vgpr_access(p: Footprint, c: Footprint) -> bool:
    return p.writes & (c.reads | c.writes) & VECTOR_BITS != 0


def _sgpr_read(p: Footprint, c: Footprint) -> bool:
    return p.writes & c.reads & SCALAR_BITS != 0


def _lane_select(p: Footprint, c: Footprint) -> bool:
    return p.writes & c.mask("lane") != 0


def _vcc(p: Footprint, c: Footprint) -> bool:
    return p.writes & VCC_BITS & c.reads != 0


def _exec(p: Footprint, c: Footprint) -> bool:
    return p.writes & EXEC_BITS != 0


def _m0(p: Footprint, c: Footprint) -> bool:
    return p.writes & M0_BIT != 0


def _always(p: Footprint, c: Footprint) -> bool:
    return True


def _dpp_source(p: Footprint, c: Footprint) -> bool:
    """DPP permutes its first source only."""
    return p.writes & c.mask("a") != 0


def _store_data(p: Footprint, c: Footprint) -> bool:
    return c.writes & p.mask("data") != 0


RULES: tuple[Rule, ...] = (
    #     what                                              producer       consumer            meet          90a 942 950
    Rule("VALU writes a VGPR that MFMA reads", "valu", "mfma", _vgpr_read, (2, 2, 2)),
    Rule("VALU writes EXEC before MFMA", "valu", "mfma", _exec, (4, 4, 4)),
    Rule("VALU writes an SGPR that memory reads", "valu", "vmem", _sgpr_read, (5, 5, 5)),
    Rule("VALU writes the lane select", "valu", "lane_select", _lane_select, (4, 4, 4)),
    Rule("VALU writes VCC before v_div_fmas", "valu", "div_fmas", _vcc, (4, 4, 4)),
    Rule("VALU writes an SGPR that VALU reads", "valu", "valu", _sgpr_read, (0, 2, 2)),
    Rule("VALU writes a VGPR that a lane read takes", "valu", "readlane", _vgpr_read, (0, 1, 1)),
    Rule("VALU writes EXEC before a lane read", "valu", "readlane", _exec, (0, 4, 4)),
    Rule("VALU writes EXEC before v_writelane", "valu", "writelane", _exec, (0, 4, 4)),
    Rule("VALU writes a VGPR that DPP reads", "valu", "dpp", _dpp_source, (2, 2, 2)),
    Rule("VALU writes EXEC before DPP", "valu", "dpp", _exec, (5, 5, 5)),
    Rule("transcendental result before other VALU", "trans", "nontrans", _vgpr_read, (0, 1, 1)),
    Rule("partial write (SDWA, op_sel, fp8) before VALU", "partial_dst", "valu", _vgpr_access, (0, 1, 1)),
    Rule("VALU writes a VGPR that a lane swap takes", "valu", "permlane_swap", _vgpr_access, (0, 0, 2)),
    Rule("VALU writes EXEC before a lane swap", "valu", "permlane_swap", _exec, (0, 0, 4)),
    Rule("SALU writes M0 before its use", "salu", "reads_m0", _m0, (1, 1, 1)),
    Rule("VALU writes M0 before its use", "valu", "reads_m0", _m0, (1, 1, 1)),
    Rule("partial write (SDWA, op_sel, fp8) before MFMA", "partial_dst", "mfma", _vgpr_access, (0, 1, 1)),
    Rule("wide store before its data is overwritten", "wide_store", "vector", _store_data, (1, 2, 2)),
    # An offset in a register: LLVM up to 22 has 0; measured on gfx950 since (llvm-project#197267)
    Rule("wide buffer store (SGPR offset) before its data is overwritten", "wide_store_sgpr", "vector", _store_data,
         (0, 1, 1)),
    Rule("s_setreg before s_getreg", "setreg", "getreg", _always, (2, 2, 2)),
    Rule("s_setreg before s_setreg", "setreg", "setreg", _always, (2, 2, 2)),
    Rule("f64 matrix result before f64 FMA", "dgemm", "f64_fma", _always, (2, 2, 2)),
)


def _same_dot(p: Footprint, c: Footprint) -> bool:
    return p.inst.base == c.inst.base


def _dot(p: Footprint, c: Footprint) -> int:
    """A dot product may chain its accumulator into the same opcode; every other use waits 3."""
    if "valu" not in classes(c):
        return 0
    meet = p.writes & (c.reads | c.writes) & VECTOR_BITS
    if not meet:
        return 0
    if _same_dot(p, c):
        return 3 if meet & c.mask("a", "b") else 0
    return 3


# ---- matrix instructions


def _row(f: Footprint) -> Mfma:
    row: Mfma = f.inst.extra
    if row.formats:
        row = with_formats(row, int(f.modifiers.get("cbsz", 0)), int(f.modifiers.get("blgp", 0)))
    return row


def passes(f: Footprint, target: str) -> int:
    """Passes of a matrix instruction instance; the operand formats of f8f6f4 forms decide theirs."""
    return _row(f).passes[target]


def _by_passes(n: int, two: int, eight: int, sixteen: int) -> int:
    return two if n <= 2 else eight if n <= 8 else sixteen


def result_wait(kind: str, n: int, target: str, use: str) -> int:
    """Wait states from D of a matrix instruction to a use of it: `valu`, `memory`, `ab` (a matrix source) or a
    write.
    """
    if kind == "dgemm":
        small = n == 4
        if use == "valu":
            return 6 if small else 19 if target == "gfx950" else 11
        if use == "memory":
            return 9 if small else 18
        return 6 if small else 19 if target == "gfx950" else 11
    if target == "gfx90a":
        return _by_passes(n, 5, 11, 19)
    if kind == "sgemm":
        return n + 2
    return n + 3 if target == "gfx942" or n == 2 else n + 4


def accumulate_wait(p_kind: str, n: int, c_kind: str, target: str) -> int:
    """D of one matrix instruction to an overlapping, not identical, srcC of another."""
    if p_kind == "dgemm":
        return 4 if n == 4 else 17 if target == "gfx950" else 9
    if target == "gfx90a":
        return _by_passes(n, 2, 8, 16) + (1 if c_kind == "dgemm" else 0)
    if p_kind == "sgemm":
        return 0 if c_kind == "xdl" else n
    if target == "gfx942":
        return n + 1
    return n + 1 if n == 2 and c_kind != "xdl" else n + 2


def _mfma_to_mfma(p: Footprint, c: Footprint, target: str) -> int:
    n, kind, c_kind = passes(p, target), _row(p).kind, _row(c).kind
    d = p.mask("d")
    wait = result_wait(kind, n, target, "ab") if d & c.mask("a", "b", "sa", "sb", "index") else 0
    result = c.mask("d")
    acc = result if _row(c).sparse else c.mask("c")
    if d & acc:
        if kind == "dgemm" and n == 4:
            wait = max(wait, 4)
        elif acc == d:
            wait = max(wait, 2 if n == 2 and target != "gfx90a" else 0)
        else:
            wait = max(wait, accumulate_wait(kind, n, c_kind, target))
    elif d & result and result != d:
        wait = max(wait, accumulate_wait(kind, n, c_kind, target))
    return wait


def _mfma(p: Footprint, c: Footprint, target: str) -> int:
    """A matrix instruction, then anything."""
    if c.inst.unit is Unit.MFMA:
        return _mfma_to_mfma(p, c, target)
    n, kind = passes(p, target), _row(p).kind
    d = p.mask("d")
    wait = 0
    if c.inst.unit in _VALU or c.inst.unit in _MEMORY:
        use = "valu" if c.inst.unit in _VALU else "memory"
        if d & c.reads or d & c.writes:
            wait = result_wait(kind, n, target, use)
        if c.writes & p.mask("c") and kind != "dgemm" and not d & c.writes:
            war = _by_passes(n, 1, 7, 15) if target == "gfx90a" else n - 1
            if kind == "sgemm":
                war = war if target == "gfx90a" else 0
            wait = max(wait, war)
    return wait


@functools.cache
def _candidates(target: str, p: frozenset[str], c: frozenset[str]) -> tuple[Rule, ...]:
    """The rules that may apply between instances of these classes."""
    column = _COLUMN[target]
    return tuple(r for r in RULES if r.states[column] and r.producer in p and r.consumer in c)


def required(
    producer: Footprint, consumer: Footprint, target: str,
    producer_classes: frozenset[str] | None = None, consumer_classes: frozenset[str] | None = None,
) -> int:  # fmt: skip
    """Wait states that must lie between two instructions of one wave; 0 when they may be adjacent.

    The classes may be given when the caller has them (`classes(footprint)`). Instructions between that write the same
    register do not matter here: the caller asks for every pair in reach.
    """
    return explain(producer, consumer, target, producer_classes, consumer_classes)[0]


def explain(
    producer: Footprint, consumer: Footprint, target: str,
    producer_classes: frozenset[str] | None = None, consumer_classes: frozenset[str] | None = None,
) -> tuple[int, str]:  # fmt: skip
    """`required`, and the rule that asks for it in words."""
    pc = classes(producer) if producer_classes is None else producer_classes
    cc = classes(consumer) if consumer_classes is None else consumer_classes
    best, why = 0, ""
    column = _COLUMN[target]
    for rule in _candidates(target, pc, cc):
        if rule.states[column] > best and rule.overlap(producer, consumer):
            best, why = rule.states[column], rule.name
    if "mfma" in pc:
        n = _mfma(producer, consumer, target)
        if n > best:
            best, why = n, "matrix result or accumulator before its use"
    elif "dot" in pc:
        n = _dot(producer, consumer)
        if n > best:
            best, why = n, "dot product result before its use"
    return best, why


_UNCONDITIONAL = frozenset(rule.producer for rule in RULES if rule.overlap is _always)


def meets_anything(f: Footprint, of: frozenset[str]) -> bool:
    """Whether a producer of these classes may need wait states before a consumer that shares no register with it."""
    return bool(of & _UNCONDITIONAL) or f.writes & (EXEC_BITS | M0_BIT) != 0


PRODUCERS = frozenset(("valu", "mfma", "salu", "wide_store", "wide_store_sgpr", "setreg"))
"""Classes that may open a hazard; anything else needs no record."""
