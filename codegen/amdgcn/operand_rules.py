"""What the operands of an AMDGCN instruction may be.

In: a row, operands in the order of the text, modifiers, the target. Out: every rule that they break, as sentences.
The rules are the chip's, also those that LLVM's assembler lets pass; what differs between instructions is in the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.codegen.amdgcn.isa import (
    M0,
    MODIFIER_RANGE,
    OFF,
    OFFSETS,
    SMEM_OFFSET,
    VCC,
    Inst,
    Operand,
    Reg,
    Src,
    Unit,
    is_inline,
    operand_text,
)


def check_operands(
    inst: Inst, operands: Sequence[Any], target: str, modifiers: Mapping[str, Any] | None = None
) -> list[str]:
    """Every rule of the chip that these operands break, as sentences; empty when the instruction is legal.

    `operands` are in text order without implicit ones: `Reg`, `Src`, int or float constants, `OFF`, or a label string.
    """
    modifiers = modifiers or {}
    wrong: list[str] = []
    if target not in inst.targets:
        wrong.append(f"{inst.mnemonic} does not exist on {target}")
    explicit = inst.explicit
    if len(operands) != len(explicit):
        return [*wrong, f"{inst.mnemonic} takes {len(explicit)} operands, not {len(operands)}"]
    bus: set[int] = set()
    literals: list[Any] = []
    for o, value in zip(explicit, operands):
        if not _plain(o, value, bus):
            _check_one(inst, o, value, wrong, bus, literals)
    if "vcc" in inst.implicit_reads and inst.unit is Unit.VALU:
        bus.add(VCC.index)
    if inst.unit in (Unit.VALU, Unit.TRANS, Unit.ACCMOVE) and len(bus) + len(literals) > 1:
        what = [str(Reg("s", i)) for i in sorted(bus)] + [operand_text(x) for x in literals]
        wrong.append(f"one scalar register or literal per vector instruction, not {' and '.join(what)}")
    elif len(literals) > 1:
        wrong.append("one literal per instruction")
    if inst.encoding == "MFMA" and "c" in inst.position:
        d, c = operands[0], operands[inst.position["c"]]
        if isinstance(d, Reg) and isinstance(c, Reg) and d.file != c.file:
            wrong.append(f"C and D of {inst.mnemonic} must be in one register file, not {d} and {c}")
    elif inst.encoding == "MUBUF" and len(operands) >= 3:
        _check_buffer_address(inst, operands, modifiers, wrong)
    elif inst.encoding == "GLOBAL":
        _check_global_address(inst, operands, wrong)
    elif inst.encoding == "SMEM" and len(operands) == 3:
        at = operands[2]
        if isinstance(at, int) and not SMEM_OFFSET[0] <= at <= SMEM_OFFSET[1]:
            wrong.append(f"the offset of {inst.mnemonic} must be {SMEM_OFFSET[0]}..{SMEM_OFFSET[1]}, not {at:#x}")
    elif inst.encoding == "SCRATCH" and target == "gfx90a" and sum(isinstance(x, Reg) for x in operands) > 2:
        wrong.append(f"{inst.mnemonic} takes a vector or a scalar address on gfx90a, not both")
    if target == "gfx90a":
        for x in operands:
            if x.__class__ is str and "XCC_ID" in x:
                wrong.append("HW_REG_XCC_ID does not exist on gfx90a")
    if inst.extra == "shift4" and isinstance(operands[2], int) and not 0 <= operands[2] <= 4:
        wrong.append(f"the shift of {inst.mnemonic} must be 0..4, not {operands[2]}")
    for name, value in modifiers.items():
        _check_modifier(inst, name, value, wrong)
    return wrong


def _plain(o: Operand, value: Any, bus: set[int]) -> bool:
    """Whether an operand is of the common kinds and surely legal: registers where the row takes registers of that file
    and number, a small number where it takes inline constants. Everything else is looked at by `_check_one`."""
    if value.__class__ is Reg:
        file, index, count = value.file, value.index, value.count
        if file not in o.kinds or (count != o.regs and o.regs) or index < 0:
            return False
        if file == "s":
            if index + count > 102 or (count > 1 and index % (4 if count >= 4 else 2)):
                return False
            if o.reads:
                bus.add(index)
            return True
        return index + count <= 256 and (count == 1 or index % 2 == 0)
    return value.__class__ is int and -16 <= value <= 64 and "n" in o.kinds and "i" not in o.kinds


def _check_one(
    inst: Inst, o: Operand, value: Any, wrong: list[str], bus: set[int], literals: list[Any]
) -> None:
    """Add to `wrong` what one operand breaks; scalar registers and literals that it takes go to `bus` and
    `literals`."""
    if isinstance(value, Src):
        if value.neg or value.abs or value.sext:
            if inst.encoding not in ("VOP3", "DPP", "SDWA") and not inst.base == inst.mnemonic:
                wrong.append(f"{o.name} of {inst.mnemonic} takes no input modifier")
            elif o.dtype[0] in "ui" and not value.sext and inst.special != "fma_mix":
                wrong.append(f"{o.name} of {inst.mnemonic} is not a float: it takes no - or ||")
        value = value.value
    if isinstance(value, Reg):
        kind = "c" if value == VCC and o.kinds == "c" else "m" if value == M0 and o.kinds == "m" else value.file
        if kind not in o.kinds:
            wrong.append(f"{o.name} of {inst.mnemonic} cannot be {value}")
            return
        if o.writes and value == M0 and (inst.unit is not Unit.SALU or o.regs != 1):
            wrong.append(f"M0 is written by scalar instructions only, not by {inst.mnemonic}")
        if o.regs and value.count != o.regs and value.index not in range(235, 240):
            wrong.append(f"{o.name} of {inst.mnemonic} takes {o.regs} registers, not {value}")
        limit = {"v": 256, "a": 256, "s": 256}[value.file]
        if value.index < 0 or value.index + value.count > limit:
            wrong.append(f"{value} is outside the register file")
        if value.file in "va" and value.count > 1 and value.index % 2 and "unaligned_dst" not in inst.hazard:
            wrong.append(f"{value} must start at an even register")
        if value.file == "s" and value.index < 128 and value.count > 1 and value.index % (4 if value.count >= 4 else 2):
            wrong.append(f"{value} must start at a multiple of {4 if value.count >= 4 else 2}")
        if value.file == "s" and o.reads and not (o.name == "lane" and value == M0):
            bus.add(value.index)
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if "i" in o.kinds:
            if inst.imm and not inst.imm[0] <= value <= inst.imm[1]:
                wrong.append(f"{o.name} of {inst.mnemonic} must be {inst.imm[0]}..{inst.imm[1]}, not {value}")
            return
        if ("n" in o.kinds and is_inline(value, o.dtype)) or "h" in o.kinds or "l" in o.kinds:
            return
        if "k" in o.kinds:
            if isinstance(value, int) and not -(1 << 31) <= value < 1 << 32:
                wrong.append(f"{value} does not fit 32 bits")
            if value not in literals:
                literals.append(value)
        else:
            wrong.append(f"{o.name} of {inst.mnemonic} cannot be the literal {operand_text(value)}")
        return
    if value == OFF and "o" not in o.kinds:
        wrong.append(f"{o.name} of {inst.mnemonic} cannot be off")


def _check_buffer_address(inst: Inst, operands: Sequence[Any], modifiers: Mapping[str, Any], wrong: list[str]) -> None:
    names = [o.name for o in inst.explicit]
    if "addr" not in names:
        return
    addr = operands[names.index("addr")]
    want = bool(modifiers.get("offen")) + bool(modifiers.get("idxen"))
    have = addr.count if isinstance(addr, Reg) else 0
    if want != have:
        wrong.append(f"{inst.mnemonic} with these modifiers takes {want or 'no'} address registers, not {addr}")


def _check_global_address(inst: Inst, operands: Sequence[Any], wrong: list[str]) -> None:
    names = [o.name for o in inst.explicit]
    if "saddr" not in names:
        return
    addr, saddr = operands[names.index("addr")], operands[names.index("saddr")]
    want = 2 if saddr == OFF else 1
    if isinstance(addr, Reg) and addr.count != want:
        wrong.append(
            f"{inst.mnemonic} {'without' if want == 2 else 'with'} a scalar base takes {want} address registers"
        )


def _check_modifier(inst: Inst, name: str, value: Any, wrong: list[str]) -> None:
    if name not in inst.modifiers:
        wrong.append(f"{inst.mnemonic} takes no {name}")
        return
    limits = OFFSETS.get(inst.encoding) if name == "offset" else MODIFIER_RANGE.get(name)
    if limits and isinstance(value, int) and not limits[0] <= value <= limits[1]:
        wrong.append(f"{name} of {inst.mnemonic} must be {limits[0]}..{limits[1]}, not {value}")
