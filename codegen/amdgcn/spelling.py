"""How an AMDGCN instruction is written: as LLVM's disassembler prints it.

In: a row, operands in the order of the text, modifiers. Out: the line. Vector instructions that have two encodings name
theirs, so what is printed is what is assembled.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.codegen.amdgcn.isa import INLINE_FLOATS, VCC, Inst, Reg, Src, operand_text

_LISTS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
_FLAGS = ("offen", "idxen", "glc", "slc", "sc0", "sc1", "nt", "lds", "clamp", "gds")


def text(inst: Inst, operands: Sequence[Any], modifiers: Mapping[str, Any] | None = None) -> str:
    """One instruction as the assembler reads it. Modifiers come in the order of the row's `modifiers` column.

    Spelled as LLVM's disassembler does: vector instructions that have two encodings name theirs, offsets of scalar
    loads are hexadecimal. Rows whose name has a second word (` lds`: straight to LDS, ` rtn`: atomics that return)
    share a mnemonic with another row; the flag that tells them apart is printed from the name.
    """
    out, flag = inst.named
    if flag:
        modifiers = {**(modifiers or {}), flag: True}
    if inst.two_forms:
        out += "_e32" if is_short(inst, operands, modifiers or {}) else "_e64"
    if operands:
        words = [
            o.text if o.__class__ is Reg
            else operand_text(_inline_number(o) if o.__class__ is int and o > 64 and spec.regs == 1 else o)
            for spec, o in zip(inst.explicit, operands)
        ]  # fmt: skip
        if inst.encoding == "SMEM" and operands[-1].__class__ is int:
            words[-1] = hex(operands[-1])
        out += " " + ", ".join(words)
    if modifiers:
        for name in inst.modifiers:
            if name in modifiers and (value := modifiers[name]) is not None and value is not False:
                swizzle = inst.special == "ds_swizzle" and name == "offset"
                out += " " + (f"offset:{swizzle_text(value)}" if swizzle else modifier_text(name, value))
    return out


def swizzle_text(offset: int) -> str:
    """The pattern of a lane exchange: lane bits are kept (p) or flipped (i) in groups of 32."""
    flipped = offset >> 10
    if offset & 0x3FF != 0x1F:
        return str(offset)
    if not flipped & (flipped - 1):
        return f"swizzle(SWAP,{flipped})"
    if not flipped & (flipped + 1):
        return f"swizzle(REVERSE,{flipped + 1})"
    return 'swizzle(BITMASK_PERM,"' + "".join("pi"[flipped >> i & 1] for i in reversed(range(5))) + '")'


def _inline_number(word: int) -> int | float:
    """A word that an encoding holds as a small negative number or as a float, as that number."""
    return word - (1 << 32) if word >= _LOWEST else _FLOAT_OF.get(word, word)


_FLOAT_OF = {struct.unpack("<I", struct.pack("<f", x))[0]: x for x in INLINE_FLOATS[:-1]} | {0x3E22F983: 0.15915494}
_LOWEST = (1 << 32) - 16
"""From here on, 32 bits are the inline constants -16 to -1."""


def is_short(inst: Inst, operands: Sequence[Any], modifiers: Mapping[str, Any]) -> bool:
    """Whether a VOP1, VOP2 or VOPC instruction fits its 32-bit encoding: only its first source may be something else
    than a vector register, masks are vcc, nothing is modified."""
    if modifiers and any(value not in (None, False) for value in modifiers.values()):
        return False
    sources = 0
    for o, value in zip(inst.explicit, operands):
        if value.__class__ is Src:
            return False
        if o.dtype == "mask":
            if value != VCC:
                return False
        elif o.reads and not o.writes:
            sources += 1
            if sources > 1 and not (value.__class__ is Reg and value.file in "va"):
                return False
    return True


def modifier_text(name: str, value: Any) -> str:
    if name in _FLAGS:
        return name
    if name in _LISTS:
        return f"{name}:[{','.join(str(int(x)) for x in value)}]"
    if name == "dpp":
        return str(value)
    if name == "omod":
        return str(value)
    if name in ("bitop3", "row_mask", "bank_mask"):
        return f"{name}:{value:#x}"
    return f"{name}:{value}"
