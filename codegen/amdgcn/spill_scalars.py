"""Spills scalar registers to lanes of a vector register when the scalar file is too small.

In: a `Program` before allocation and its liveness. Out: the same with some scalar tuples kept in lanes: every write
is followed by v_writelane, every reader gets fresh registers filled by v_readlane just before it. Both ignore EXEC and
scc.
A vector register holds 64 words and is cleared at entry, so that its first v_writelane reads something.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.amdgcn import isa
from wavedsl.codegen.amdgcn.liveness import Liveness
from wavedsl.codegen.amdgcn.machine import GONE, KEPT, SCALAR_HOME, SCRATCH_BASE, Inst, Program, Ref, Reg, copy
from wavedsl.codegen.amdgcn.rows import Rows
from wavedsl.codegen.amdgcn.spill_rewrite import substitute, temporary

LANES = 64


class Spill:
    """Where spilled words go: the current vector register and its next free lane. `words` counts them all."""

    def __init__(self, program: Program, rows: Rows):
        self.program = program
        self.rows = rows
        self.home: Ref | None = None
        self.lane = LANES
        self.words = 0
        self.done: set[int] = set()

    def some(self, liveness: Liveness, words: int) -> bool:
        """Spill at least `words` more words of the cheapest tuples; False when there is nothing left to spill."""
        chosen = []
        for reg in self._candidates(liveness):
            if words <= 0:
                break
            chosen.append(reg)
            words -= reg.n
        self._spill(chosen)
        return bool(chosen)

    def _candidates(self, liveness: Liveness) -> list[Reg]:
        """Scalar tuples by accesses (ten times as dear per loop level) over the length of their lives."""
        price: dict[int, int] = {}
        for block in self.program.blocks:
            for inst in block.insts:
                for ref in (*inst.defs, *inst.uses):
                    if ref.reg.id >= 0 and ref.reg.cls == "s":
                        price[ref.reg.id] = price.get(ref.reg.id, 0) + ref.n * 10**block.depth
        out = []
        for reg in self.program.regs:
            if reg.cls != "s" or reg.fixed or reg.id in self.done or reg.id not in price or reg.name == SCRATCH_BASE:
                continue
            first = liveness.first[reg.id]
            length = liveness.live[first].bit_count()
            if length > 16:
                out.append((price[reg.id] / (reg.n * length), reg.id, reg))
        return [reg for _, _, reg in sorted(out, key=lambda x: x[:2])]

    def _spill(self, chosen: list[Reg]) -> None:
        """Rewrite all that touch the chosen tuples, tuple by tuple: what fills a temporary for an instruction stands
        before it, what saves one behind it, those of the first tuple outermost."""
        touching: dict[int, list[tuple[int, int, Inst]]] = {reg.id: [] for reg in chosen}
        for b, block in enumerate(self.program.blocks):
            for i, inst in enumerate(block.insts):
                if inst.row not in (KEPT, GONE):
                    for key in dict.fromkeys(r.reg.id for r in (*inst.uses, *inst.defs) if r.reg.id in touching):
                        touching[key].append((b, i, inst))
        before: dict[tuple[int, int], list[Inst]] = {}
        behind: dict[tuple[int, int], list[Inst]] = {}
        cleared: list[Inst] = []
        for reg in chosen:
            self.done.add(reg.id)
            where = []
            for _ in range(reg.n):
                if self.home is None or self.lane == LANES:
                    cleared.insert(0, self._new_home())
                assert self.home is not None
                where.append((self.home, self.lane))
                self.lane += 1
            self.words += reg.n
            for b, i, inst in touching[reg.id]:
                fills, saves = self._rewrite(inst, reg, where)
                before.setdefault((b, i), []).extend(fills)
                behind[b, i] = saves + behind.get((b, i), [])
        for b, block in enumerate(self.program.blocks):
            out: list[Inst] = []
            for i, inst in enumerate(block.insts):
                out += before.get((b, i), ())
                out.append(inst)
                out += behind.get((b, i), ())
            block.insts = out
        self.program.blocks[0].insts[:0] = cleared

    def _new_home(self) -> Inst:
        """Go on in another vector register; the instruction that clears it."""
        self.home = Ref(self._reg("v", 1, 1, SCALAR_HOME), 0, 1)
        clear = copy(self.home, 0)
        clear.added = "setup"
        self.lane = 0
        return clear

    def _reg(self, cls: str, n: int, align: int, name: str) -> Reg:
        reg = Reg(len(self.program.regs), cls, n, align, -1, name)
        self.program.regs.append(reg)
        self.done.add(reg.id)
        return reg

    def _rewrite(self, inst: Inst, reg: Reg, where: list[tuple[Ref, int]]) -> tuple[list[Inst], list[Inst]]:
        """Let an instruction touch a temporary in place of the tuple; what fills the temporary, and what saves it."""
        read = [r for r in inst.uses if r.reg is reg]
        written = [r for r in inst.defs if r.reg is reg]
        fresh = temporary(self.program, reg, 0, reg.n)
        fresh.align = reg.align
        self.done.add(fresh.id)
        rows = self.rows

        def lane_access(row: Any, ops: tuple[Any, ...], added: str) -> Inst:
            made = rows.make(row, ops, None, inst.loc)
            made.added = added
            return made

        def words(refs: list[Ref]) -> list[int]:
            return sorted({k for r in refs for k in range(r.start, r.start + r.n)})

        def moved(operand: Any) -> Any:
            if operand.__class__ is Ref and operand.reg is reg:
                return Ref(fresh, operand.start, operand.n)
            if operand.__class__ is isa.Src:
                return isa.Src(moved(operand.value), operand.neg, operand.abs, operand.sext)
            return operand

        substitute(inst, moved)
        fills = [lane_access(rows.v_readlane_b32, (Ref(fresh, k, 1), *where[k]), "reload") for k in words(read)]
        saves = [lane_access(rows.v_writelane_b32, (home, Ref(fresh, k, 1), lane), "spill")
                 for k in words(written) for home, lane in (where[k],)]  # fmt: skip
        return fills, saves
