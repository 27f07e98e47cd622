"""Undefined registers of the AMDGCN emulator: (UNDEF) of `checks.py`.

In: instructions that touch a register of which lanes are undefined. Out: which lanes of their results are undefined,
kept in the group's `Marks`; findings where an undefined value decides something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Reg, Unit
from wavedsl.codegen.amdgcn.mfma import coordinates, with_formats
from wavedsl.runtime.emulator.amdgcn.ds import swizzle_source
from wavedsl.runtime.emulator.amdgcn.lanes import dpp, first_active
from wavedsl.runtime.emulator.amdgcn.marks import IMPLICIT_CODES, Info, Marks, bits_of, name_of
from wavedsl.runtime.emulator.amdgcn.state import LANES, U32, State, scalar_read, to_lanes


class Undefined:
    """Follows undefined lanes through instructions. `engine` gives the program and the place for findings."""

    def __init__(self, engine: Any):
        self.engine = engine

    def lanes(self, st: State, marks: Marks, code: int) -> np.ndarray:
        """Which lanes of a register that is marked as undefined are: [waves, lanes], [waves, 1] of a scalar."""
        lanes = marks.lanes.get(code)
        if lanes is None:
            lanes = np.ones((st.waves, LANES if code >= 256 else 1), bool)
        return lanes

    def define(
        self, st: State, marks: Marks, code: int, undefined: Any, origin: int, under_mask: bool, written: Any = None
    ) -> None:
        """Write a register: `undefined` lanes (False: none) of the active ones; the inactive keep what they were, as do
        those that are not `written` (None: all are)."""
        bit = 1 << code
        width = LANES if code >= 256 else 1
        new = undefined
        if under_mask and st.mask is not None:
            written = st.mask if written is None else written & st.mask
        if written is not None and width == LANES:
            old = self.lanes(st, marks, code) if marks.undef & bit else False
            new = np.where(written, undefined, old)
        if new is False or not np.any(new):
            marks.undef &= ~bit
            marks.lanes.pop(code, None)
            marks.origin.pop(code, None)
        else:
            marks.undef |= bit
            marks.lanes[code] = np.array(np.broadcast_to(new, (st.waves, width)), bool)
            if undefined is not False and np.any(undefined):
                marks.origin[code] = origin
        marks.watch = marks.undef | marks.pending

    def track(self, st: State, marks: Marks, info: Info) -> None:
        """(UNDEF) Findings at sinks; then which lanes of the results are undefined."""
        inst = info.inst
        bad = marks.undef & info.sinks
        if bad:
            self._sinks(st, marks, info, bad)
        sources = marks.undef & info.reads
        if inst.unit is Unit.MFMA:
            self._matrix(st, marks, info)
            return
        undefined: Any = False
        origin = info.index
        low: Any = False
        if sources:
            undefined, low, origin = self._combine(st, marks, info, sources)
        under = inst.unit in (Unit.VALU, Unit.TRANS, Unit.ACCMOVE, Unit.VMEM, Unit.SCRATCH, Unit.DS)
        if inst.special == "writelane":
            self._write_lane(st, marks, info)
            return
        if inst.special == "permlane_swap" or inst.base == "v_swap_b32":
            self._swap(st, marks, info)
            return
        if inst.special in ("ds_bpermute", "ds_permute", "ds_swizzle"):
            self._exchange(st, marks, info)
            return
        written = self._dpp(st, info)[1] if inst.encoding == "DPP" else None
        if inst.special == "readlane" or inst.special == "readfirstlane":
            under = False
        for o in inst.operands:
            if not o.writes:
                continue
            codes = IMPLICIT_CODES[o.name] if o.implicit else info.foot.operands.get(o.name, ())
            for i, code in enumerate(codes):
                value = low if i == 0 and "carries_up" in inst.hazard else undefined
                if (
                    code < 256
                    and inst.unit in (Unit.VALU, Unit.TRANS)
                    and inst.special not in ("readlane", "readfirstlane")
                ):
                    value = False  # compares and carries: lanes that do not matter are masked later
                if inst.mem is not None or inst.unit in (Unit.DS, Unit.SMEM):
                    value = False  # loads define; what they load is judged on arrival
                self.define(st, marks, code, value, origin, under, written)

    def _dpp(self, st: State, info: Info) -> tuple[np.ndarray, np.ndarray]:
        """The lane that each lane reads, -1 for none, and which lanes are written: [waves, lanes]."""
        source, valid, enabled, zero = dpp(info.line)
        there = np.broadcast_to(valid, (st.waves, LANES)) if st.mask is None else valid & st.mask[:, source]
        return np.where(there, source, -1), np.broadcast_to(enabled, there.shape) if zero else enabled & there

    def _swap(self, st: State, marks: Marks, info: Info) -> None:
        """v_permlane: odd groups of lanes of a change places with even groups of b; v_swap: all lanes do."""
        codes = [info.foot.operands[name][0] for name in ("a", "b")]
        a, b = (self.lanes(st, marks, c) if marks.undef >> c & 1 else np.zeros((st.waves, LANES), bool) for c in codes)
        origins = [marks.origin.get(c, info.index) for c in codes]
        lane, n = np.arange(LANES), info.inst.extra
        if info.inst.special == "permlane_swap":
            odd = lane // n % 2 == 1
            new_a, new_b = np.where(odd, b[:, lane ^ n], a), np.where(odd, b, a[:, lane ^ n])
        else:
            new_a, new_b = b, a
        self.define(st, marks, codes[0], new_a, origins[1], True)
        self.define(st, marks, codes[1], new_b, origins[0], True)

    def _exchange(self, st: State, marks: Marks, info: Info) -> None:
        """LDS instructions that move values between lanes: what comes from an undefined lane, or from nobody knows
        which, is undefined. (Lanes that are off give 0.)"""
        operands, modifiers = info.foot.operands, info.line.modifiers
        (code,) = operands["a"]
        none = np.zeros((st.waves, LANES), bool)
        data = self.lanes(st, marks, code) if marks.undef >> code & 1 else none
        data = data if st.mask is None else data & st.mask
        origin = marks.origin.get(code, info.index)
        offset = int(modifiers.get("offset", 0))
        if info.inst.special == "ds_swizzle":
            undefined = data[:, swizzle_source(offset)]
        else:
            (addr,) = operands["addr"]
            astray = self.lanes(st, marks, addr) if marks.undef >> addr & 1 else none
            row = self.engine.regs.row(Reg("v", addr - 256))
            lane = ((st.U[row].astype(np.int64) + offset) >> 2) & LANES - 1
            wave = np.broadcast_to(np.arange(st.waves)[:, None], lane.shape)
            if info.inst.special == "ds_bpermute":
                undefined = data[wave, lane] | astray
            else:
                undefined = none.copy()
                undefined[wave[data], lane[data]] = True
                undefined |= (astray if st.mask is None else astray & st.mask).any(axis=1, keepdims=True)
            if not data.any():
                origin = marks.origin.get(addr, info.index)
        self.define(st, marks, operands["d"][0], undefined, origin, True)

    def _lane_number(self, st: State, where: Any) -> np.ndarray:
        """The lane that a readlane or writelane names, per wave."""
        if isinstance(where, Reg):
            return np.broadcast_to(scalar_read(where, U32)(st) & U32(LANES - 1), (st.waves,)).astype(np.intp)
        return np.full(st.waves, int(where) & LANES - 1, np.intp)

    def _combine(self, st: State, marks: Marks, info: Info, sources: int) -> tuple[Any, Any, int]:
        """Undefined lanes of a result, of its low half, and the instruction that first read the undefined register."""
        inst, foot = info.inst, info.foot
        undefined: Any = False
        low: Any = False
        origin = info.index
        per_operand: dict[str, Any] = {}
        for o in inst.operands:
            if not o.reads or (o.writes and info.partial):
                continue
            codes = IMPLICIT_CODES[o.name] if o.implicit else foot.operands.get(o.name, ())
            lanes: Any = False
            for i, code in enumerate(codes):
                if sources >> code & 1:
                    these = self.lanes(st, marks, code)
                    lanes = these if lanes is False else lanes | these
                    if i == 0 or len(codes) == 1:
                        low = these if low is False else low | these
                    origin = marks.origin.get(code, info.index)
            per_operand[o.name] = lanes
        if inst.encoding == "DPP":
            source, _ = self._dpp(st, info)
            first = next((o.name for o in inst.explicit if o.reads and not o.writes), "")
            if per_operand.get(first) is not False and per_operand[first].shape[1] == LANES:
                wave = np.arange(st.waves)[:, None]
                per_operand[first] = per_operand[first][wave, source] & (source >= 0)
        if inst.operands and inst.operands[-1].name == "m" and inst.operands[-1].dtype == "mask":
            mask = info.foot.operands.get("m")
            if mask is not None and (per_operand.get("a") is not False or per_operand.get("b") is not False):
                chosen = to_lanes(st.S[(mask[0]) >> 1])
                return np.where(chosen, per_operand.get("b", False), per_operand.get("a", False)), low, origin
        if inst.special == "readlane":
            lanes = per_operand.get("a", False)
            if lanes is False:
                return False, False, origin
            at = self._lane_number(st, info.line.operands[2])
            return lanes[np.arange(st.waves), at][:, None], False, origin
        if inst.special == "readfirstlane":
            lanes = per_operand.get("a", False)
            if lanes is False or lanes.shape[1] == 1:
                return lanes, False, origin
            return lanes[np.arange(st.waves), first_active(st)][:, None], False, origin
        if inst.encoding == "SOP2" and inst.destinations[0].regs == 2 and any(v is False for v in per_operand.values()):
            # lane masks: a bit that stays undefined under `and`, `or` with EXEC belongs to a lane that does not matter
            return False, False, origin
        for lanes in per_operand.values():
            if lanes is not False:
                undefined = lanes if undefined is False else undefined | lanes
        if st.mask is not None and undefined is not False and undefined.shape[1] == LANES:
            undefined = undefined & st.mask
        return undefined, low, origin

    def _sinks(self, st: State, marks: Marks, info: Info, bad: int) -> None:
        for code in bits_of(bad):
            lanes = self.lanes(st, marks, code)
            vector = code >= 256
            seen = lanes if not vector or st.mask is None else lanes & st.mask
            if (
                vector
                and info.inst.unit is Unit.VMEM
                and "data" in info.foot.operands
                and code in info.foot.operands["data"]
            ):
                continue  # judged with the lanes that reach memory (vm_store)
            if not seen.any():
                continue
            if not vector and st.mask is not None and info.inst.unit in (Unit.VMEM, Unit.DS) and not st.mask.any():
                continue
            self.report(st, marks, info.index, code, seen)
            self.define(st, marks, code, False, info.index, False)

    def report(self, st: State, marks: Marks, index: int, code: int, lanes: np.ndarray) -> None:
        origin = marks.origin.get(code, index)
        lines = self.engine.program.lines
        full = np.zeros((st.waves, LANES), bool)
        full[:, : lanes.shape[1]] = lanes
        what = f"reads {name_of(code)}" if origin == index else "reads a value"
        if origin != index and lines[origin].inst is not None and lines[origin].inst.unit is Unit.DS:
            what = "reads LDS"
        use = (
            ""
            if origin == index
            else f"; it decides `{lines[index].text}` (line {lines[index].number}) through {name_of(code)}"
        )
        self.engine.find("uninitialised-read", origin, f"{what} that was never written{use}", st, full)

    def _write_lane(self, st: State, marks: Marks, info: Info) -> None:
        codes = info.foot.operands["d"]
        if marks.undef >> codes[0] & 1:
            lanes = self.lanes(st, marks, codes[0]).copy()
            lanes[np.arange(st.waves), self._lane_number(st, info.line.operands[2])] = False
            self.define(st, marks, codes[0], lanes, info.index, False)

    def _matrix(self, st: State, marks: Marks, info: Info) -> None:
        """An undefined element of A, or a scale, spoils its row of D, of B its column, of C itself."""
        row = info.inst.extra
        if row.formats:
            row = with_formats(row, int(info.line.modifiers.get("cbsz", 0)), int(info.line.modifiers.get("blgp", 0)))
        ops = info.foot.operands
        wide = row.d_dtype.bits == 64
        elements = row.d_regs // 2 if wide else row.d_regs
        where = coordinates(tuple(sorted(row.d.items())), elements)
        zero = np.zeros((elements, LANES), np.int64)
        spoiled = np.zeros((elements, st.waves, LANES), bool)
        origin = info.index
        for name, side, layout, dtype in (("a", "M", row.a, row.a_dtype), ("b", "N", row.b, row.b_dtype)):
            codes = ops.get(name, ())
            for i, code in enumerate(codes):
                if not marks.undef >> code & 1:
                    continue
                origin = marks.origin.get(code, info.index)
                lanes = self.lanes(st, marks, code)
                per = max(1, 32 // dtype.bits)
                total = max(1, len(codes) * 32 // dtype.bits)
                at = coordinates(tuple(sorted(layout.items())), total)
                e = min(i * per if dtype.bits <= 32 else i // 2, total - 1)
                size = row.m if side == "M" else row.n
                key = (
                    at.get(side, np.zeros((total, LANES), np.int64))[e]
                    + size * at.get("B", np.zeros((total, LANES), np.int64))[e]
                )
                hit = np.zeros((st.waves, size * row.blocks), bool)
                for lane in range(LANES):
                    hit[:, key[lane]] |= lanes[:, lane]
                target = where[side] + size * where.get("B", zero)
                spoiled |= np.moveaxis(hit[:, target], 1, 0)
        for name, side in (("sa", "M"), ("sb", "N")):
            for code in ops.get(name, ()):
                if marks.undef >> code & 1:
                    origin = marks.origin.get(code, info.index)
                    rows = np.any(self.lanes(st, marks, code).reshape(st.waves, -1, row.m), axis=1)  # of row l % m
                    spoiled |= np.moveaxis(rows[:, where[side]], 1, 0)
        for i, code in enumerate(ops["d"] if row.sparse else ops.get("c", ())):
            if marks.undef >> code & 1:
                origin = marks.origin.get(code, info.index)
                spoiled[i // 2 if wide else i] |= self.lanes(st, marks, code)
        for i, code in enumerate(ops["d"]):
            these = spoiled[i // 2 if wide else i]
            self.define(st, marks, code, these if these.any() else False, origin, False)
