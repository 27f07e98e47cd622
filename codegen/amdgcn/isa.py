"""AMDGCN instructions as rows: what a mnemonic's operands are, what it costs, where it exists and what it means.

In: rows registered by `isa_valu`, `isa_salu`, `isa_memory` and `mfma`. Out: `lookup` (mnemonic and target to row) and
`all_rows`. What operands may be is in `operand_rules`, how they are printed in `spelling`, what they touch in
`footprint`. The idea: a row is written once, as one line of operands

    "d:v.f32 <- a:vs.f32, b:vs.f32"        destinations <- sources, in the order of the text

and all encodings of a vector instruction (`_e32`, `_e64`, `_dpp`, `_sdwa`) are derived from it.

Operand grammar: `name:kinds[*registers][.dtype]`. Kinds: `v` VGPR, `a` AGPR, `s` scalar register, `n` inline constant,
`k` 32-bit literal, `c` VCC only, `m` M0 only, `i` immediate field, `o` the word `off`, `l` label, `h` hwreg or message.
`vs` in a vector row stands for what the encoding allows (`vsnk` for src0 of `_e32`, `v` for src1, `vsn` in VOP3).
`name=` before the kinds is read and written. A bare `scc`, `vcc`, `exec`, `m0` is an implicit operand: it is not
printed, but semantics get it after the sources and return it after the destinations. The dtype `mask` is one bit per
lane in an SGPR pair.

Semantics see typed lane arrays and never register numbers. `special` names the few rows the emulator handles itself.

Invariant: no mnemonic is spelled outside these tables, and none is registered twice.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any

from wavedsl.ir.quick_dataclass import dataclass

TARGETS = ("gfx90a", "gfx942", "gfx950")
CDNA2_UP = frozenset(TARGETS)
CDNA3_UP = frozenset(("gfx942", "gfx950"))
CDNA4 = frozenset(("gfx950",))


class Unit(Enum):
    """The issue port. The value is its class in `resources.instructions`; TRANS shares the VALU's class."""

    VALU = "valu"
    TRANS = "valu.trans"
    ACCMOVE = "accmove"
    MFMA = "mfma"
    SALU = "salu"
    SMEM = "smem"
    VMEM = "vmem"
    SCRATCH = "scratch"
    DS = "ds"
    WAITCNT = "waitcnt"
    NOP = "nop"
    BARRIER = "barrier"
    BRANCH = "branch"

    @property
    def resource_class(self) -> str:
        return self.value.split(".")[0]


UNITS = tuple(Unit)

# ------------------------------------------------------------------------------------------------------------ registers

_SPECIAL = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_SINGLE = {124: "m0", 253: "scc", 251: "vccz", 252: "execz", 239: "src_shared_base", 237: "src_private_base"}
_BASE = {"s": 0, "v": 256, "a": 512}


@dataclass(frozen=True)
class Reg:
    """`count` registers of one file, from `index`. Files: `s` scalar (VCC, EXEC, M0, SCC by their hardware codes),
    `v`, `a`.
    """

    file: str
    index: int
    count: int = 1

    @functools.cached_property
    def code(self) -> int:
        """One number for every register of a wave: scalar 0..255, VGPR 256.., AGPR 512..; the hardware's own codes."""
        return _BASE[self.file] + self.index

    def codes(self) -> range:
        return range(self.code, self.code + self.count)

    @functools.cached_property
    def mask(self) -> int:
        """The registers as a bit set of codes."""
        return ((1 << self.count) - 1) << self.code

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    @functools.cached_property
    def text(self) -> str:
        """The registers' name in the assembler."""
        if self.file == "s" and self.index >= 102:
            if 108 <= self.index < 124:
                i = self.index - 108
                return f"ttmp{i}" if self.count == 1 else f"ttmp[{i}:{i + self.count - 1}]"
            if (self.index in _SINGLE and self.count == 1) or self.index in (237, 239):
                return _SINGLE[self.index]
            base = self.index & ~1
            if base in _SPECIAL:
                return _SPECIAL[base] + ("" if self.count == 2 else "_hi" if self.index & 1 else "_lo")
        if self.count == 1:
            return f"{self.file}{self.index}"
        return f"{self.file}[{self.index}:{self.index + self.count - 1}]"


@functools.cache
def register(code: int, count: int = 1) -> Reg:
    """The registers from a code on; one object for each, so that what is derived from it is worked out once."""
    file = "a" if code >= _BASE["a"] else "v" if code >= _BASE["v"] else "s"
    return Reg(file, code - _BASE[file], count)


VCC, EXEC, M0, SCC = Reg("s", 106, 2), Reg("s", 126, 2), Reg("s", 124), Reg("s", 253)
FLAT_SCRATCH = Reg("s", 102, 2)
OFF = "off"
WAITCNT = "s_waitcnt"
"""The one instruction whose operand is written as counters: `vmcnt(0) lgkmcnt(1)`."""
NAMED: dict[str, Reg] = {
    "vcc": VCC, "vcc_lo": Reg("s", 106), "vcc_hi": Reg("s", 107),
    "exec": EXEC, "exec_lo": Reg("s", 126), "exec_hi": Reg("s", 127),
    "m0": M0, "scc": SCC, "src_scc": SCC, "vccz": Reg("s", 251), "src_vccz": Reg("s", 251),
    "execz": Reg("s", 252), "src_execz": Reg("s", 252),
    "flat_scratch": FLAT_SCRATCH, "flat_scratch_lo": Reg("s", 102), "flat_scratch_hi": Reg("s", 103),
    "xnack_mask": Reg("s", 104, 2), "xnack_mask_lo": Reg("s", 104), "xnack_mask_hi": Reg("s", 105),
    "src_shared_base": Reg("s", 239, 2), "src_private_base": Reg("s", 237, 2),
    "src_shared_limit": Reg("s", 236, 2), "src_private_limit": Reg("s", 238, 2),
}  # fmt: skip
IMPLICIT = {"scc": SCC, "vcc": VCC, "exec": EXEC, "m0": M0}


@dataclass(frozen=True)
class Src:
    """A source with input modifiers: `-x`, `|x|`, `sext(x)`."""

    value: Any
    neg: bool = False
    abs: bool = False
    sext: bool = False

    def __str__(self) -> str:
        s = operand_text(self.value)
        if self.sext:
            s = f"sext({s})"
        if self.abs:
            s = f"|{s}|"
        return f"-{s}" if self.neg else s


INLINE_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)
_F64_INLINE = {struct.unpack("<Q", struct.pack("<d", x))[0] >> 32 for x in INLINE_FLOATS[:-1]}
_F32_INLINE = {struct.unpack("<I", struct.pack("<f", x))[0] for x in INLINE_FLOATS} | {0x3E22F983}


def is_inline(value: int | float, dtype: str = "b32") -> bool:
    """Whether a constant costs nothing: -16..64, or one of the nine floats (by value, or by its f32 bits)."""
    if isinstance(value, float):
        return value in INLINE_FLOATS or (value == 0.0 and str(value) == "0.0") or abs(value - 0.15915494) < 1e-8
    signed = value - (1 << 32) if (1 << 31) <= value < (1 << 32) else value
    if -16 <= signed <= 64:
        return True
    if dtype == "f64":
        return value in _F64_INLINE
    return dtype in ("f32", "b32", "u32", "i32") and value in _F32_INLINE


def operand_text(value: Any) -> str:
    """How an operand is printed: registers by name, small ints in decimal, other bits in hexadecimal."""
    if value.__class__ is Reg:
        return value.text
    if isinstance(value, (bool, Reg, Src, str)):
        return str(value)
    if isinstance(value, int):
        return str(value) if -16 <= value <= 64 else hex(value)
    if isinstance(value, float):
        return repr(value)
    return str(value)


# ----------------------------------------------------------------------------------------------------------------- rows

_WORDS64 = frozenset(("f64", "u64", "i64", "b64", "mask", "f32x2", "b32x2"))


@dataclass(frozen=True)
class Operand:
    """One operand of a row. `regs` is its width in registers, 0 where modifiers decide it."""

    name: str
    kinds: str
    regs: int
    dtype: str
    reads: bool
    writes: bool
    implicit: bool = False

@dataclass(frozen=True)
class Mem:
    """What a memory instruction moves, per lane.

    `op`: load, store, atomic, dma (global to LDS). `bytes` per lane; `convert`: how a sub-dword lands in or leaves a
    register (`u8 i8 u16 i16 d16 d16_hi` and combinations such as `u8_d16_hi`), empty for whole dwords.
    `stride`/`pieces`: two-address LDS forms move `pieces` items at offset0/1 scaled by `stride` bytes.
    `function` combines old memory with data (atomics); `returns`: the old value comes back.
    """

    op: str
    bytes: int
    convert: str = ""
    pieces: int = 1
    stride: int = 0
    function: str = ""
    dtype: str = "u32"
    returns: bool = False


@dataclass(frozen=True, eq=False)
class Inst:
    """One instruction in one encoding. `lookup` gives the same object for the same row: rows are compared by identity,
    and what is derived from a row is worked out once."""

    mnemonic: str
    base: str
    """The row's mnemonic, without the suffix of the encoding."""
    encoding: str
    """VOP1 VOP2 VOP3 VOP3P VOPC DPP SDWA SOP1 SOP2 SOPK SOPC SOPP SMEM DS MUBUF GLOBAL FLAT SCRATCH MFMA"""
    operands: tuple[Operand, ...]
    unit: Unit
    latency: int
    """Clocks until a dependent instruction may issue; for memory the typical latency of a hit."""
    issue: int
    """Clocks its unit is busy for one wave of 64 lanes."""
    source: str
    """Where latency and issue come from."""
    counters: tuple[str, ...]
    hazard: frozenset[str]
    """Classes that `hazard_rules` names."""
    targets: frozenset[str]
    modifiers: tuple[str, ...]
    doc: str
    semantics: Callable[..., Any] | None = field(default=None, compare=False)
    special: str = ""
    mem: Mem | None = None
    imm: tuple[int, int] | None = None
    """Inclusive range of the `i` operand, where it has one."""
    flush: bool = False
    """Flushes denormal f32 inputs and results whatever the mode register says."""
    extra: Any = field(default=None, compare=False)
    """The matrix row of an MFMA, the pattern of a swizzle: data of the few rows that need more columns."""

    @functools.cached_property
    def destinations(self) -> tuple[Operand, ...]:
        return tuple(o for o in self.operands if o.writes)

    @functools.cached_property
    def explicit(self) -> tuple[Operand, ...]:
        return tuple(o for o in self.operands if not o.implicit)

    @functools.cached_property
    def implicit_reads(self) -> tuple[str, ...]:
        return tuple(o.name for o in self.operands if o.implicit and o.reads)

    @functools.cached_property
    def implicit_writes(self) -> tuple[str, ...]:
        return tuple(o.name for o in self.operands if o.implicit and o.writes)

    @functools.cached_property
    def reads_exec(self) -> bool:
        """Vector instructions run under EXEC; matrix instructions and lane reads ignore it."""
        return self.unit in _LANE_UNITS and "readlane" not in self.hazard

    @functools.cached_property
    def accesses(self) -> tuple[tuple[bool, bool], ...]:
        """Per operand of the text, whether it is read and whether it is written."""
        return tuple((o.reads, o.writes) for o in self.explicit)

    @functools.cached_property
    def implicit_masks(self) -> tuple[int, int]:
        """The implicit registers that are read, and those that are written, as bit sets of codes."""
        reads = writes = 0
        for o in self.operands:
            if o.implicit:
                reads |= IMPLICIT[o.name].mask if o.reads else 0
                writes |= IMPLICIT[o.name].mask if o.writes else 0
        return reads, writes

    @functools.cached_property
    def position(self) -> dict[str, int]:
        """Name → place in the text, of every operand that is printed."""
        return {o.name: i for i, o in enumerate(self.explicit)}

    @functools.cached_property
    def named(self) -> tuple[str, str]:
        """The mnemonic as printed, and the modifier that a second word of the row's name stands for."""
        word, _, form = self.mnemonic.partition(" ")
        if form == "lds" and "lds" in self.modifiers:
            return word, "lds"
        return word, ("sc0" if "sc0" in self.modifiers else "glc") if form == "rtn" else ""

    @functools.cached_property
    def two_forms(self) -> bool:
        """Whether the row stands for a short and a long encoding, which the text tells apart."""
        return self.encoding in _TWO_FORMS and self.mnemonic == self.base and "op_sel" in self.modifiers

    def operand(self, name: str) -> Operand:
        for o in self.operands:
            if o.name == name:
                return o
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"<{self.mnemonic} {self.encoding}>"


_TWO_FORMS = ("VOP1", "VOP2", "VOPC")
_LANE_UNITS = frozenset((Unit.VALU, Unit.TRANS, Unit.ACCMOVE, Unit.VMEM, Unit.SCRATCH, Unit.DS))


@functools.lru_cache(maxsize=1024)
def parse_operands(spec: str) -> tuple[Operand, ...]:
    """The operands of one row line, destinations first. Raises ValueError on a malformed line."""
    left, arrow, right = spec.partition("<-")
    if not arrow:
        left, right = "", spec
    out = []
    for part, dest in ((left, True), (right, False)):
        for token in filter(None, (t.strip() for t in part.split(","))):
            name, colon, rest = token.partition(":")
            if not colon:
                if name not in IMPLICIT:
                    raise ValueError(f"operand {token!r} of {spec!r} has no kind")
                dtype = "b64" if name in ("vcc", "exec") else "u32"
                out.append(Operand(name, "s", IMPLICIT[name].count, dtype, not dest, dest, True))
                continue
            both = name.endswith("=")
            kinds, _, dtype = rest.partition(".")
            kinds, _, count = kinds.partition("*")
            dtype = dtype or "b32"
            regs = int(count) if count else 2 if dtype in _WORDS64 else 1
            out.append(Operand(name.rstrip("="), kinds, regs, dtype, both or not dest, both or dest))
    return tuple(out)


_BUILDERS: dict[str, list[Callable[[], list[Inst]]]] = {}
"""What makes the rows of a mnemonic without suffix, in order of registration. A program uses few of the rows: each is
made when it is first looked up."""
LATENCY = {
    # unit: (latency, issue clocks), wave64 on 16-lane SIMDs
    Unit.VALU: (4, 4), Unit.TRANS: (16, 16), Unit.ACCMOVE: (4, 4), Unit.MFMA: (32, 16), Unit.SALU: (4, 4),
    Unit.SMEM: (200, 4), Unit.VMEM: (500, 16), Unit.SCRATCH: (500, 16), Unit.DS: (64, 4), Unit.WAITCNT: (0, 4),
    Unit.NOP: (0, 4), Unit.BARRIER: (0, 4), Unit.BRANCH: (16, 4),
}  # fmt: skip
SOURCE = "CDNA3 ISA guide: 16-lane SIMDs issue one wave64 in 4 clocks; memory: typical, reference-product latencies"


def inst(
    mnemonic: str,
    spec: str,
    unit: Unit,
    encoding: str,
    *,
    latency: int | None = None,
    issue: int | None = None,
    source: str = SOURCE,
    counters: Sequence[str] = (),
    hazard: Sequence[str] = (),
    targets: frozenset[str] = CDNA2_UP,
    modifiers: Sequence[str] = (),
    doc: str = "",
    special: str = "",
    mem: Mem | None = None,
    imm: tuple[int, int] | None = None,
    flush: bool = False,
    semantics: Callable[..., Any] | None = None,
    extra: Any = None,
    forms: Sequence[str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register one row; used as a decorator of its semantics, or called with `semantics=` or `special=`.

    `forms` names the encodings of a vector row (default: what its encoding derives: VOP1, VOP2 and VOPC also exist as
    VOP3, DPP and SDWA unless an operand is 64 bits wide).
    """

    def register(function: Callable[..., Any] | None) -> Any:
        def build() -> list[Inst]:
            lat, iss = LATENCY[unit]
            row = Inst(
                mnemonic, mnemonic, encoding, parse_operands(spec), unit,
                lat if latency is None else latency, iss if issue is None else issue, source,
                tuple(counters), frozenset(hazard), targets, tuple(modifiers), doc or _doc(function), function, special,
                mem, imm, flush, extra,
            )  # fmt: skip
            return list(_derive(row, forms))

        _BUILDERS.setdefault(mnemonic, []).append(build)
        return function

    if semantics is not None or special or mem is not None:
        return register(semantics)
    return register


def _doc(function: Callable[..., Any] | None) -> str:
    return (function.__doc__ or "").strip().split("\n")[0] if function else ""


_VALU_MODIFIERS = {
    "VOP3": ("clamp", "omod", "op_sel"),
    "VOP3P": ("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "clamp"),
    "DPP": ("dpp", "row_mask", "bank_mask", "bound_ctrl", "fi"),
    "SDWA": ("dst_sel", "dst_unused", "src0_sel", "src1_sel", "clamp", "omod"),
}


def _changed(row: Inst, **columns: Any) -> Inst:
    """A row as `dataclasses.replace` makes it, without setting its 19 columns one by one: a first compile makes
    hundreds. `row` is new, so nothing has been derived from it."""
    made = object.__new__(Inst)
    made.__dict__.update(row.__dict__, **columns)
    return made


@functools.lru_cache(maxsize=1024)
def _taking(o: Operand, kinds: str) -> Operand:
    """The operand with other kinds."""
    return replace(o, kinds=kinds)


def _sources(row: Inst, kinds: Sequence[str]) -> tuple[Operand, ...]:
    """The operands of a row with the `vs` sources replaced, in order, by what the encoding takes."""
    out, n = [], 0
    for o in row.operands:
        if o.reads and not o.writes and o.kinds == "vs":
            o = _taking(o, kinds[min(n, len(kinds) - 1)])
            n += 1
        out.append(o)
    return tuple(out)


def _derive(row: Inst, forms: Sequence[str] | None) -> Iterator[Inst]:
    """All encodings of one row. The unsuffixed name takes what VOP3 takes, plus the literal of the short form."""
    if row.encoding not in ("VOP1", "VOP2", "VOPC"):
        mods = row.modifiers + tuple(m for m in _VALU_MODIFIERS.get(row.encoding, ()) if m not in row.modifiers)
        yield _changed(row, operands=_sources(row, ["vsn"]), modifiers=mods)
        if row.encoding == "VOP3" and forms and "_e64" in forms:
            yield _changed(row, mnemonic=row.base + "_e64", operands=_sources(row, ["vsn"]), modifiers=mods)
        return
    if forms is None:
        wide = any(o.dtype in _WORDS64 and o.dtype != "mask" for o in row.operands)
        forms = ("_e32", "_e64") if wide else ("_e32", "_e64", "_dpp", "_sdwa")
    short = _sources(row, ["vsnk", "v"])
    if row.encoding in ("VOPC", "VOP2"):
        short = tuple(_taking(o, "c") if o.dtype == "mask" else o for o in short)
    long = _sources(row, ["vsn"])
    vop3 = ("clamp", "omod", "op_sel")
    if "_e32" in forms:
        yield _changed(row, mnemonic=row.base + "_e32", operands=short)
    if "_e64" in forms:
        yield _changed(row, mnemonic=row.base + "_e64", encoding="VOP3", operands=long, modifiers=row.modifiers + vop3)
        yield _changed(row, operands=_sources(row, ["vsnk"]), modifiers=row.modifiers + vop3)
    else:
        yield _changed(row, operands=short)
    if "_dpp" in forms:
        yield _changed(
            row, mnemonic=row.base + "_dpp", encoding="DPP", operands=_masks_vcc(_sources(row, ["v"])),
            modifiers=row.modifiers + _VALU_MODIFIERS["DPP"], hazard=row.hazard | {"dpp"},
        )  # fmt: skip
    if "_sdwa" in forms:
        ops = _sources(row, ["vsn"])
        yield _changed(
            row, mnemonic=row.base + "_sdwa", encoding="SDWA",
            operands=ops if row.encoding == "VOPC" else _masks_vcc(ops),
            modifiers=row.modifiers + _VALU_MODIFIERS["SDWA"], hazard=row.hazard | {"sdwa"},
        )  # fmt: skip


def _masks_vcc(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    return tuple(_taking(o, "c") if o.dtype == "mask" else o for o in operands)


@functools.cache
def _load_tables() -> None:
    from wavedsl.codegen.amdgcn import isa_memory, isa_salu, isa_valu, mfma  # noqa: F401


@functools.cache
def _rows_of(base: str) -> Mapping[str, list[Inst]]:
    """The rows that a registered mnemonic gives, by their own mnemonics. Raises ValueError if two are for one chip."""
    out: dict[str, list[Inst]] = {}
    for build in _BUILDERS[base]:
        for row in build():
            others = out.setdefault(row.mnemonic, [])
            if any(o.targets & row.targets for o in others):
                raise ValueError(f"{row.mnemonic} is registered twice")
            others.append(row)
    return out


_SUFFIXES = ("_e32", "_e64", "_dpp", "_sdwa")


def _candidates(mnemonic: str) -> list[Inst]:
    """The rows of a mnemonic on all chips; a suffix may be part of the registered name or derived."""
    _load_tables()
    bases = [mnemonic, *(mnemonic[: -len(suffix)] for suffix in _SUFFIXES if mnemonic.endswith(suffix))]
    return [row for base in bases if base in _BUILDERS for row in _rows_of(base).get(mnemonic, ())]


@functools.lru_cache(maxsize=8192)
def lookup(mnemonic: str, target: str) -> Inst:
    """The row of a mnemonic on a target. Raises KeyError that names the mnemonic and where it does exist."""
    found = _candidates(mnemonic)
    for row in found:
        if target in row.targets:
            return row
    if found:
        where = ", ".join(t for t in TARGETS if any(t in r.targets for r in found))
        raise KeyError(f"{mnemonic} does not exist on {target} (only on {where})")
    raise KeyError(f"{mnemonic} is not an AMDGCN instruction in the tables")


def all_rows(target: str) -> Iterator[Inst]:
    """Every row of a target, one per encoding, in order of registration."""
    _load_tables()
    for base in _BUILDERS:
        for rows in _rows_of(base).values():
            for row in rows:
                if target in row.targets:
                    yield row


# --------------------------------------------------------------------------------------------------------------- limits

OFFSETS = {"MUBUF": (0, 4095), "DS": (0, 65535), "GLOBAL": (-4096, 4095), "FLAT": (0, 4095), "SCRATCH": (-4096, 4095)}
"""Inclusive range of `offset:`, by encoding."""
SMEM_OFFSET = (-(1 << 20), (1 << 20) - 1)
MODIFIER_RANGE = {"offset0": (0, 255), "offset1": (0, 255), "cbsz": (0, 4), "abid": (0, 15), "blgp": (0, 7),
                  "bitop3": (0, 255), "vmcnt": (0, 63), "expcnt": (0, 7), "lgkmcnt": (0, 15),
                  "row_mask": (0, 15), "bank_mask": (0, 15)}  # fmt: skip
