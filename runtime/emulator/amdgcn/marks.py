"""What the emulator's checks remember: operations under way, marks of registers, the static facts of an instruction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn import hazard_rules
from wavedsl.codegen.amdgcn.footprint import Footprint
from wavedsl.codegen.amdgcn.isa import Inst, Reg, Unit
from wavedsl.runtime.emulator.amdgcn.state import LANES, State
from wavedsl.runtime.emulator.amdgcn.text import Line


class Flight:
    """One memory operation under way: the registers it will write, the LDS it touches, and its data if they come
    late.
    """

    __slots__ = ("active", "first", "index", "late", "ordered", "position", "regs", "role", "size")

    def __init__(self, index: int, regs: int, ordered: bool):
        self.index, self.regs, self.ordered = index, regs, ordered
        self.role = ""
        """`read`, `write` or `dma` of LDS."""
        self.position: Any = None
        self.active: Any = None
        self.size = 0
        self.first: Flight | None = None
        """The first access of an instruction with two addresses: where it lies."""
        self.late: Any = None

    def places(self) -> Iterator[Flight]:
        """What lies in LDS: this, and the first access of two."""
        if self.position is not None:
            yield self
        if self.first is not None:
            yield self.first

    def select(self, waves: np.ndarray) -> Flight:
        out = Flight(self.index, self.regs, self.ordered)
        out.role, out.size = self.role, self.size
        out.position = None if self.position is None else self.position[waves]
        out.active = None if self.active is None else self.active[waves]
        out.first = None if self.first is None else self.first.select(waves)
        return out

    def merge(self, other: Flight) -> Flight:
        out = Flight(self.index, self.regs | other.regs, self.ordered)
        out.role, out.size = self.role, self.size
        if self.first is not None and other.first is not None:
            out.first = self.first.merge(other.first)
        if self.position is not None:
            out.position = np.concatenate((self.position, other.position))
            if self.active is not None or other.active is not None:
                out.active = np.concatenate(
                    [np.ones(f.position.shape[:2], bool) if f.active is None else f.active for f in (self, other)]
                )
        return out


class Marks:
    """Per group: undefined registers (bit mask, lanes, first reader), registers under way, recent hazard producers."""

    __slots__ = ("lanes", "origin", "pending", "tail", "undef", "watch")

    def __init__(self) -> None:
        self.undef = 0
        self.pending = 0
        self.watch = 0
        self.lanes: dict[int, np.ndarray] = {}
        """Undefined lanes of a register whose bit is set in `undef`; absent: all of them."""
        self.origin: dict[int, int] = {}
        self.tail: tuple[tuple[int, int], ...] = ()

    def select(self, index: np.ndarray) -> Marks:
        out = Marks()
        out.undef, out.pending, out.watch, out.tail = self.undef, self.pending, self.watch, self.tail
        out.lanes = {k: v[index] for k, v in self.lanes.items()}
        out.origin = dict(self.origin)
        return out

    def merge(self, other: Marks, a: State, b: State) -> Marks:
        out = Marks()
        out.undef, out.pending = self.undef | other.undef, self.pending | other.pending
        out.watch = out.undef | out.pending
        out.origin = {**other.origin, **self.origin}
        for code in set(self.lanes) | set(other.lanes) | _only_one(self.undef, other.undef):
            width = LANES if code >= 256 else 1
            parts = []
            for marks, st in ((self, a), (other, b)):
                if not marks.undef >> code & 1:
                    parts.append(np.zeros((st.waves, width), bool))
                else:
                    parts.append(marks.lanes.get(code, np.ones((st.waves, width), bool)))
            out.lanes[code] = np.concatenate(parts)
        distances: dict[int, int] = {}
        for index, distance in (*self.tail, *other.tail):
            distances[index] = min(distance, distances.get(index, distance))
        out.tail = tuple(sorted(distances.items()))
        return out


def _only_one(a: int, b: int) -> set[int]:
    return set(bits_of(a ^ b))


def bits_of(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def mask_of(codes: Any) -> int:
    out = 0
    for c in codes:
        out |= 1 << c
    return out


_OF_SPELLING = (
    "alone", "classes", "counters", "foot", "inst", "loads", "met", "partial", "reads", "register", "sinks", "touch",
    "writes",
)  # fmt: skip


class Info:
    """What checks need to know of one static instruction."""

    __slots__ = ("index", "line", *_OF_SPELLING)

    def __init__(self, line: Line, index: int):
        self.line, self.index = line, index
        known = line.facts.get("info")
        if known is None:
            self._derive(line)
            line.facts["info"] = tuple(getattr(self, name) for name in _OF_SPELLING)
            return
        for name, value in zip(_OF_SPELLING, known):
            setattr(self, name, value)

    def _derive(self, line: Line) -> None:
        inst = line.inst
        assert inst is not None
        self.inst = inst
        operands = list(line.operands)
        self.foot = Footprint(inst, operands if inst.special != "waitcnt" else ["-"], line.modifiers)
        self.classes = hazard_rules.classes(self.foot)
        reads, writes, sinks = 0, 0, 0
        self.partial = _is_partial(inst)
        by_name = self.foot.operands
        for o in inst.operands:
            codes = by_name.get(o.name)
            if codes is None:
                continue
            m = mask_of(IMPLICIT_CODES.get(o.name, codes) if o.implicit else codes)
            if o.reads and not (o.writes and self.partial):
                reads |= m
                if o.name in ("addr", "srd", "saddr", "soffset", "base", "offset") and inst.mem is not None:
                    sinks |= m
                elif o.name == "data" and inst.mem is not None and inst.unit in (Unit.VMEM, Unit.SCRATCH):
                    sinks |= m if inst.unit is Unit.VMEM else 0
                elif inst.special == "branch" or (o.name == "index" and inst.unit is Unit.MFMA):
                    sinks |= m
            if o.writes:
                writes |= m
        if writes & _EXEC and inst.unit is Unit.SALU:
            sinks |= reads & ~_EXEC
        if "reads_m0" in inst.hazard:
            reads |= 1 << 124
            sinks |= 1 << 124
        self.reads, self.writes, self.sinks = reads, writes, sinks
        self.touch = reads | writes
        self.counters = inst.counters
        self.loads = inst.mem is not None and (inst.mem.op == "load" or inst.mem.returns)
        # operations that other files do not put in flight themselves
        self.register = bool(inst.counters) and inst.special in ("nothing", "time", "smem")
        self.met = self.foot.reads | self.foot.writes
        self.alone = hazard_rules.meets_anything(self.foot, self.classes)


_EXEC = (1 << 126) | (1 << 127)
IMPLICIT_CODES = {"scc": (253,), "exec": (126, 127), "vcc": (106, 107), "m0": (124,)}


def _is_partial(inst: Inst) -> bool:
    """Rows that keep part of their destination: what was there does not flow into the rest."""
    return bool(inst.special or inst.mem is not None) and any(o.reads and o.writes for o in inst.operands)


def name_of(code: int) -> str:
    """A register code as the text spells it."""
    if code >= 512:
        return f"a{code - 512}"
    return f"v{code - 256}" if code >= 256 else str(Reg("s", code))
