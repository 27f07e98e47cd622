"""Which registers an instruction reads and writes, as bit sets: what hazards, waits and checks ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.codegen.amdgcn.isa import IMPLICIT, Inst, Reg, Src


class Footprint:
    """What one instruction instance touches. Input of `hazard_rules`.

    `operands`: register codes by the operand's name; `reads`, `writes`: all of them as bit sets of codes.
    """

    __slots__ = ("_codes", "_operands", "inst", "modifiers", "reads", "writes")

    def __init__(self, inst: Inst, operands: Sequence[Any], modifiers: Mapping[str, Any] | None = None):
        self.inst = inst
        self.modifiers = modifiers or {}
        self._codes: dict[str, range] | None = None
        self._operands = [o.value if o.__class__ is Src else o for o in operands]
        reads, writes = inst.implicit_masks
        for value, (is_read, is_written) in zip(self._operands, inst.accesses):
            if value.__class__ is Reg:
                if is_read:
                    reads |= value.mask
                if is_written:
                    writes |= value.mask
        self.reads = reads
        self.writes = writes

    @property
    def operands(self) -> dict[str, range]:
        if self._codes is None:
            values = dict(zip(self.inst.position, self._operands))
            values |= {o.name: IMPLICIT[o.name] for o in self.inst.operands if o.implicit}
            self._codes = {name: value.codes() for name, value in values.items() if value.__class__ is Reg}
        return self._codes

    def has(self, name: str) -> bool:
        """Whether an operand of the text is registers."""
        at = self.inst.position.get(name)
        return at is not None and self._operands[at].__class__ is Reg

    def mask(self, *names: str) -> int:
        """The registers of some operands of the text as a bit set; those that are not there or no registers have
        none."""
        out = 0
        for name in names:
            at = self.inst.position.get(name)
            if at is not None and self._operands[at].__class__ is Reg:
                out |= self._operands[at].mask
        return out
