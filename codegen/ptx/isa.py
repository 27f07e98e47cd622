"""PTX instructions as rows: what a dotted name may say, what its operands are, what it costs and what it means.

In: rows registered by `isa_arith`, `isa_convert`, `isa_memory`, `isa_warp`, `isa_mbarrier`, `isa_bulk`, `isa_wgmma`,
`isa_wmma` and `mma`. Out: `lookup` (text to row, for the emulator and the verifier), `spell` (row to text, for the back
end), `all_rows`.
The idea: a PTX name is an opcode and a list of dotted modifiers in a fixed order. A row's *pattern* names each place (a
`Slot`) and its legal words, so one row covers the type and modifier combinations that share operands and meaning:

    @inst("add{.rnd:rn|rz|rm|rp}{.ftz}{.sat}.type:f32", "d:type <- a:type, b:type", Unit.FMA, latency=4, doc="...")

`{.name:a|b}` is an optional choice, `.name:a|b` a required one, `{.word}` a flag, `.word` a fixed word. An operand is
`name:type`; the type is a PTX type, the name of a slot, `wide(slot)` (twice as wide), `addr`, `vec(type)` (braces, or a
scalar), `label`, `imm`, `tensor` (`[map, {coordinates}]`), `frag` (a 64-bit matrix descriptor or registers in braces).
`name?` may be left out; `name|q` are two destinations in the form `d|p`.
Invariant: no mnemonic is spelled outside these tables, and two rows never accept the same name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.ir.errors import CompileError
from wavedsl.ir.quick_dataclass import dataclass


class Unit(Enum):
    """The issue port that an instruction occupies; also its class in `resources.instructions`."""

    ALU = "alu"
    FMA = "fma"
    IMAD = "imad"
    F64 = "f64"
    SFU = "sfu"
    CVT = "cvt"
    LSU = "lsu"
    TENSOR = "tensor"
    ASYNC = "async"
    BARRIER = "barrier"
    BRANCH = "branch"
    UNIFORM = "uniform"


TYPE_BITS: dict[str, int] = {
    "pred": 1,
    **{f"{k}{n}": n for k in "bsu" for n in (8, 16, 32, 64)},
    "b128": 128,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "tf32": 32,
    "f64": 64,
    "f16x2": 32,
    "bf16x2": 32,
    "u16x2": 32,
    "s16x2": 32,
    "e4m3x2": 16,
    "e5m2x2": 16,
}
"""Bits of each fundamental or packed type."""

NUMPY: dict[str, Any] = {
    "pred": np.bool_,
    **{f"{k}{n}": np.dtype(f"{'i' if k == 's' else 'u'}{n // 8}") for k in "bsu" for n in (8, 16, 32, 64)},
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.uint32),
    "f64": np.dtype(np.float64),
    "f16x2": np.dtype(np.float16),
    "bf16x2": np.dtype(ml_dtypes.bfloat16),
    "u16x2": np.dtype(np.uint16),
    "s16x2": np.dtype(np.int16),
    "e4m3x2": np.dtype(np.uint16),
    "e5m2x2": np.dtype(np.uint16),
}
"""How semantics see an operand of each type. Types `…16x2` arrive as `[threads, 2]`, low half first."""

PACKED = frozenset({"f16x2", "bf16x2", "u16x2", "s16x2"})


@dataclass(frozen=True)
class Slot:
    """One place in a dotted name. `name` is empty for a fixed word."""

    name: str
    words: tuple[str, ...]
    optional: bool = False
    flag: bool = False


@dataclass(frozen=True)
class Operand:
    """One operand of a row. `kind`: `reg` (sources also take immediates), `addr`, `tensor`, `vec`, `frag`, `label`,
    `imm`.

    `type` is a PTX type or the name of the slot that holds it; `scale` 2 means twice that width.
    """

    name: str
    kind: str
    type: str = ""
    scale: int = 1
    write: bool = False
    optional: bool = False
    paired: bool = False
    """A second destination written as `d|p` after the first."""


Semantics = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, eq=False)
class Row:
    """One table row. `latency` is issue to use in cycles; `interval` the cycles that one warp occupies its unit.

    `effects` names what the emulator's engine or a scheduler must do beyond reading and writing registers:
    `load store atomic async commit wait barrier branch exit fence shuffle convergent clock carry`; of Hopper's
    asynchronous engine `bulk` (with `load store reduce commit wait`), `wgmma`, `warpgroup` (all four warps together),
    `cluster`, `registers` (the register budget) and `proxy` (a fence between proxies).
    `semantics(modifiers)` gives the function over typed arrays `[threads]`, or None where the engine does the work.
    """

    pattern: str
    operand_list: str
    unit: Unit
    latency: int
    interval: int
    doc: str
    source: str
    effects: frozenset[str]
    min_ptx: tuple[int, int]
    min_sm: int
    needs_a: bool
    legal: Callable[[dict[str, Any]], str] | None
    semantics: Semantics | None
    data: Any = None
    check: Callable[[Sequence[Arg]], str] | None = None
    """Why operands of the right kinds are still illegal (an immediate out of range), or an empty string."""

    # A module uses few of the rows: each is parsed when it is first looked at.

    @functools.cached_property
    def opcode(self) -> str:
        return _opcode(self.pattern)

    @functools.cached_property
    def slots(self) -> tuple[Slot, ...]:
        return _parse_slots(self.pattern)

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        return _parse_operands(self.operand_list)

    def __repr__(self) -> str:
        return f"Row({self.pattern})"


@dataclass(frozen=True, eq=False)
class Inst:
    """A row with its modifiers chosen. `operands` have their types resolved; `mods` maps slot names to words."""

    name: str
    row: Row
    mods: dict[str, Any]
    operands: tuple[Operand, ...]

    @functools.cached_property
    def unit(self) -> Unit:
        return self.row.unit

    @functools.cached_property
    def effects(self) -> frozenset[str]:
        return self.row.effects

    @functools.cached_property
    def plain(self) -> tuple[Operand, ...]:
        """The operands without the second destination of a form `d|p`."""
        return tuple(o for o in self.operands if not o.paired)

    @functools.cached_property
    def accepted(self) -> set[tuple[str, ...]]:
        """Shapes of operands that `check_operands` found to fit; the row's own `check` looks at values and is asked
        again."""
        return set()

    @property
    def latency(self) -> int:
        return self.row.latency

    @property
    def interval(self) -> int:
        """Cycles that one warp occupies the unit; where it depends on the modifiers, the row's data say."""
        depends = getattr(self.row.data, "interval", None)
        return self.row.interval if depends is None else depends(self.mods)

    def registers(self, operand: str) -> int:
        """How many registers an operand's braces hold where the row fixes it, else 0."""
        data = self.row.data
        if data is None:
            return 0
        depends = getattr(data, "registers", None)
        return depends(operand, self.mods) if depends is not None else data.get(operand, 0)


class Arg:
    """What stands in an operand's place. `kind`: `reg imm addr tensor vec label sym none` (`_`); `type`: the register's
    type.

    `parts` are the members of a vector, or the coordinates of a `tensor`. `shape` says all that decides whether the
    operand fits a row: its kind, the type of a register, the shapes of members, whether a tensor map is named.
    """

    __slots__ = ("kind", "parts", "shape", "text", "type")

    def __init__(self, kind: str, type: str = "", parts: tuple[Arg, ...] = (), text: str = ""):
        self.kind, self.type, self.parts, self.text = kind, type, parts, text
        if kind == "reg":
            self.shape = type
        elif kind == "vec" or kind == "tensor":
            self.shape = f"{kind}{'!' if text and kind == 'tensor' else ''}({','.join([p.shape for p in parts])})"
        else:
            self.shape = f"{kind}.{type}" if type else kind

    def __repr__(self) -> str:
        return self.text or self.shape


@dataclass(frozen=True)
class SM:
    """A parsed target name: `sm_90a` is number 90 with architecture-specific features."""

    number: int
    arch_specific: bool


@functools.lru_cache(maxsize=64)
def parse_target(target: str) -> SM:
    """`sm_80`, `sm_90a`, … to numbers. Raises CompileError for anything else."""
    m = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if not m:
        raise CompileError(f"unknown target {target!r}", hint="a PTX target is spelled sm_80, sm_89, sm_90, sm_90a, …")
    return SM(int(m.group(1)), m.group(2) == "a")


_ROWS: dict[str, list[Row]] = {}
_SLOT = re.compile(r"\{\.([^}]*)\}|\.([^.{}]+)")
_NAMED = re.compile(r"([a-z_0-9]+):(?!:)(.*)")
_WORD = re.compile(r"(?:::|[^:])+")


def _opcode(pattern: str) -> str:
    """The word before the first dot or brace."""
    return pattern.partition(".")[0].partition("{")[0]


def _parse_slots(pattern: str) -> tuple[Slot, ...]:
    slots = []
    for m in _SLOT.finditer(pattern, len(_opcode(pattern))):
        text, optional = (m.group(1), True) if m.group(1) is not None else (m.group(2), False)
        named = _NAMED.fullmatch(text)
        if named:
            slots.append(Slot(named.group(1), tuple(named.group(2).split("|")), optional))
        else:
            slots.append(Slot(text if optional else "", (text,), optional, optional))
    return tuple(slots)


def _parse_operands(text: str) -> tuple[Operand, ...]:
    dst, arrow, src = text.partition("<-")
    if not arrow:
        dst, src = "", text
    out = []
    for part, write in ((dst, True), (src, False)):
        for item in filter(None, (s.strip() for s in part.split(","))):
            paired = item.startswith("|")
            name, _, type_ = item.lstrip("|").partition(":")
            optional = name.endswith("?")
            name = name.rstrip("?")
            m = re.fullmatch(r"(vec|wide)\((.+)\)", type_)
            kind, scale = "reg", 1
            if m:
                type_ = m.group(2)
                kind, scale = ("vec", 1) if m.group(1) == "vec" else ("reg", 2)
            elif type_ in ("addr", "label", "imm", "tensor", "frag"):
                kind, type_ = type_, ""
            out.append(Operand(name, kind, type_, scale, write, optional, paired))
    return tuple(out)


def inst(
    pattern: str,
    operands: str,
    unit: Unit,
    *,
    latency: int = 4,
    interval: int = 1,
    doc: str,
    source: str = "",
    effects: str = "",
    ptx: tuple[int, int] = (7, 0),
    sm: int = 80,
    needs_a: bool = False,
    legal: Callable[[dict[str, Any]], str] | None = None,
    data: Any = None,
) -> Callable[[Semantics], Semantics]:
    """Register a row; decorates its semantics. `legal(mods)` returns why a combination of words is illegal, or ''."""

    def register(semantics: Semantics) -> Semantics:
        add_row(
            pattern,
            operands,
            unit,
            latency=latency,
            interval=interval,
            doc=doc,
            source=source,
            effects=effects,
            ptx=ptx,
            sm=sm,
            needs_a=needs_a,
            legal=legal,
            data=data,
            semantics=semantics,
        )
        return semantics

    return register


def add_row(
    pattern: str,
    operands: str,
    unit: Unit,
    *,
    semantics: Semantics | None = None,
    latency: int = 4,
    interval: int = 1,
    doc: str,
    source: str = "",
    effects: str = "",
    ptx: tuple[int, int] = (7, 0),
    sm: int = 80,
    needs_a: bool = False,
    legal: Callable[[dict[str, Any]], str] | None = None,
    data: Any = None,
    check: Callable[[Sequence[Arg]], str] | None = None,
) -> Row:
    """Register a row whose work the engine does (memory, control, matrix). Registering a pattern twice is an error."""
    row = Row(
        pattern,
        operands,
        unit,
        latency,
        interval,
        doc,
        source,
        frozenset(effects.split()),
        ptx,
        sm,
        needs_a,
        legal,
        semantics,
        data,
        check,
    )
    rows = _ROWS.setdefault(row.opcode, [])
    if any(r.pattern == pattern for r in rows):
        raise ValueError(f"row {pattern} is registered twice")
    rows.append(row)
    return row


def _load() -> dict[str, list[Row]]:
    """The tables, imported on first use: they register themselves here."""
    if not _LOADED:
        from wavedsl.codegen.ptx import (
            isa_arith,
            isa_bulk,
            isa_convert,
            isa_mbarrier,
            isa_memory,
            isa_warp,
            isa_wgmma,
            isa_wmma,
            mma,
        )

        _LOADED.extend([isa_arith, isa_convert, isa_memory, isa_warp, isa_mbarrier, isa_bulk, isa_wgmma, isa_wmma, mma])
    return _ROWS


_LOADED: list[Any] = []


_WORD_SM: dict[tuple[str, str, Any], int] = {
    ("*", "scope", "cluster"): 90,
    ("*", "space", "shared::cluster"): 90,
    ("*", "type", "u16x2"): 90,
    ("*", "type", "s16x2"): 90,
    ("*", "xorsign", True): 86,
    ("min", "relu", True): 90,
    ("max", "relu", True): 90,
    ("atom", "type", "bf16"): 90,
    ("atom", "type", "bf16x2"): 90,
    ("red", "type", "bf16"): 90,
    ("red", "type", "bf16x2"): 90,
    ("fence", "sem", "acquire"): 90,
    ("fence", "sem", "release"): 90,
    ("fence", "kind", "async"): 90,
}
"""Words that need a newer chip than their row does, by opcode (`*`: any) and slot. As ptxas 13.0 says."""


def needed_sm(row: Row, mods: dict[str, Any]) -> int:
    """The lowest chip number that has this form of a row."""
    need = row.min_sm
    for slot, word in mods.items():
        for opcode in (row.opcode, "*"):
            need = max(need, _WORD_SM.get((opcode, slot, word), 0))
    return need


def _match(row: Row, words: list[str]) -> dict[str, Any] | None:
    """The words of a name against a row's slots: modifiers, or None. Optional slots take a word whenever they can."""
    mods: dict[str, Any] = {}
    i, n = 0, len(words)
    for slot in row.slots:
        if i < n and words[i] in slot.words:
            if slot.name:
                mods[slot.name] = True if slot.flag else words[i]
            i += 1
        elif not slot.optional:
            return None
    return mods if i == n else None


def _resolve(row: Row, mods: dict[str, Any]) -> tuple[Operand, ...]:
    out = []
    for op in row.operands:
        type_ = op.type
        if type_ and type_ not in TYPE_BITS:
            type_ = mods[type_]
        if op.scale == 2:
            type_ = f"{type_[0]}{TYPE_BITS[type_] * 2}"
        out.append(Operand(op.name, op.kind, type_, 1, op.write, op.optional, op.paired))
    return tuple(out)


@functools.lru_cache(maxsize=8192)
def lookup(full_name: str, target: str, ptx: tuple[int, int] | None = None) -> Inst:
    """The row and modifiers of a full instruction name (`fma.rn.ftz.f32`) on a target.

    Raises CompileError that says which word is not understood, or which target or PTX version the row needs.
    """
    opcode, *words = full_name.split(".")
    rows = _load().get(opcode)
    if not rows:
        raise CompileError(f"no row for PTX instruction {full_name!r}", hint=f"opcode {opcode!r} is not in the tables")
    illegal = ""
    for row in rows:
        mods = _match(row, words)
        if mods is None:
            continue
        if row.legal is not None:
            why = row.legal(mods)
            if why:
                illegal = why
                continue
        sm = parse_target(target)
        need_sm = needed_sm(row, mods)
        if sm.number < need_sm or (row.needs_a and not sm.arch_specific):
            need = f"sm_{need_sm}{'a' if row.needs_a else ''}"
            raise CompileError(f"{full_name} needs {need}, the target is {target}")
        if ptx is not None and ptx < row.min_ptx:
            raise CompileError(
                f"{full_name} needs .version {row.min_ptx[0]}.{row.min_ptx[1]}, the text says {ptx[0]}.{ptx[1]}"
            )
        return Inst(full_name, row, mods, _resolve(row, mods))
    if illegal:
        raise CompileError(f"{full_name}: {illegal}")
    forms = "; ".join(r.pattern for r in rows[:8])
    raise CompileError(f"no row for PTX instruction {full_name!r}", hint=f"known forms: {forms}")


def spell(row: Row | str, **modifiers: Any) -> str:
    """The dotted name of a row (or of the row of that opcode which accepts these modifiers).

    Flags are passed as True; False and None mean absent. Raises CompileError for a modifier or word the row lacks.
    """
    given = {k: v for k, v in modifiers.items() if v is not None and v is not False}
    return _spell(row, tuple(sorted(given.items())))


@functools.lru_cache(maxsize=4096)
def _spell(row: Row | str, given_items: tuple[tuple[str, Any], ...]) -> str:
    given = dict(given_items)
    rows = [row] if isinstance(row, Row) else _load().get(row, [])
    # What to say if none fits: the complaint of the row that came closest.
    complaints = [(0, f"opcode {row!r} is not in the tables")]
    for r in rows:
        parts, used, missing = [r.opcode], set(), ""
        for slot in r.slots:
            word = given.get(slot.name) if slot.name else slot.words[0]
            if word is None:
                if slot.optional:
                    continue
                missing = f"{r.pattern} needs {slot.name}"
                break
            used.add(slot.name)
            word = slot.words[0] if word is True else word
            if word not in slot.words:
                missing = f"{r.pattern}: {slot.name} cannot be {word!r}, only {', '.join(slot.words)}"
                break
            parts.append(word)
        if missing:
            complaints.append((1, missing))
            continue
        extra = sorted(set(given) - used)
        found = r.legal(given) if r.legal is not None and not extra else ""
        if extra:
            complaints.append((2, f"{r.pattern} has no modifier {', '.join(extra)}"))
        elif found:
            complaints.append((3, found))
        else:
            return ".".join(parts)
    why = max(complaints, key=lambda c: c[0])[1]
    raise CompileError(f"cannot spell {row if isinstance(row, str) else row.opcode} with {given}", hint=why)


def all_rows(target: str | None = None) -> Iterator[Row]:
    """Every row, in registration order; with a target only those it has."""
    sm = parse_target(target) if target else None
    for rows in _load().values():
        for row in rows:
            if sm is None or (sm.number >= row.min_sm and (sm.arch_specific or not row.needs_a)):
                yield row
