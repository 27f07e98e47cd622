# ruff: noqa: E501 (tables read better in one line)
"""Every form that a row of the PTX table allows, as text over registers that are named after their types.

Imported as `row_forms` (pytest's `pythonpath` lists this folder).
"""

import itertools

from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa_wmma import fragment

LENGTH = {"v2": 2, "v4": 4, "v8": 8}
# Types of 8 bits and packed types live in registers of another type.
REGISTER = {"f16x2": "b32", "bf16x2": "b32", "u16x2": "b32", "s16x2": "b32", "e4m3x2": "b16", "e5m2x2": "b16", "f16": "b16",
            "bf16": "b16", "b8": "b16", "u8": "u16", "s8": "s16", "tf32": "b32"}  # fmt: skip
ADDRESS = {"shared": "[sm]", "const": "[cst]", "local": "[loc]", "param": "[A]"}
CONTROL = ("call", "brx", "ret", "exit", "trap", "brkpt")


def forms(row, chip):
    """Modifier choices: every required word, with no optional one, each optional one alone, and the first of all."""
    required = [[(s.name, w) for w in s.words] for s in row.slots if s.name and not s.optional]
    optional = [s for s in row.slots if s.optional]
    extras = [{}, *({s.name: True if s.flag else w} for s in optional for w in s.words)]
    extras.append({s.name: True if s.flag else s.words[0] for s in optional})
    for base in itertools.product(*required):
        for extra in extras:
            mods = {**dict(base), **extra}
            if not (row.legal and row.legal(mods)) and isa.needed_sm(row, mods) <= chip:
                yield mods


def wmma_registers(row, name, mods, operand):
    """How many registers a wmma operand's braces hold; 0 for other instructions."""
    if row.opcode != "wmma":
        return 0
    part = name.split(".")
    if part[1] == "mma":
        return fragment(operand, mods["shape"], dict(zip("abcd", row.data["types"]))[operand]).registers
    return fragment(part[2], mods["shape"], mods["type"]).registers


FIXED = {"id": "1", "count": "64", "f": "0.5", "mask": "-1", "cta": "1", "bytes": "32"}
IMMEDIATE = {"size": "16", "scale_b": "-1", "a_order": "0"}


def memory(inst, o, mods):
    """The address operand of a row: what its name or the instruction's state space says."""
    if "copy" in inst.effects:
        return "[gaddr]" if o.name == "dst" else "[sm]"
    if "hint" in inst.effects and o.name == "src":
        return "[gaddr]"
    if "bulk" in inst.effects:
        to, shared = mods.get("to", "global"), inst.effects & {"shared", "registers"}
        return "[gaddr]" if o.name == ("dst" if to == "global" else "src") and not shared else "[sm]"
    if o.name == "src":
        return "[gaddr]"
    space = mods.get("space", "").split("::")[0]
    if space == "shared" or "mbarrier" in inst.name or "matrix" in inst.name:
        return "[sm]"
    return ADDRESS.get(space, "[gaddr]")


def instruction(row, mods, registers, full=False):
    """One line of text. `full`: with the optional operands of mbarriers, and with A of wgmma in registers."""
    name = isa.spell(row, **mods)
    inst = isa.lookup(name, "sm_90a")
    written, pair = [], ""

    def register(o, i=0):
        type_ = REGISTER.get(o.type or "b64", o.type or "b64")
        r = f"q{type_}_{'d' if o.write else 's'}{o.name[0]}{i}"
        registers[r] = type_
        return r

    for o in inst.operands:
        if o.name in ("policy", "ctas"):
            if ("cache_hint" if o.name == "policy" else "multicast") not in mods:
                continue
        elif o.optional and not o.paired:
            wanted = {"c": "bool" in mods, "b": mods.get("op") == "cas", "f": True, "a_order": not full}
            if not wanted.get(o.name, full and "mbarrier" in inst.effects):
                continue
        if o.paired:
            if not (o.optional and mods.get("type") in ("f16", "bf16")):
                pair = register(o)
            continue
        if o.kind == "addr":
            written.append(memory(inst, o, mods))
        elif o.kind == "tensor":
            written.append(
                "[gaddr, {" + ",".join(["7", "qb32_sc0", "qb32_sc1", "-3", "qb32_sc0"][: int(mods["dim"][0])]) + "}]"
            )
            registers |= {"qb32_sc0": "b32", "qb32_sc1": "b32"}
        elif o.kind == "frag":
            one = (
                "{" + ",".join(f"qb32_sfa{i}" for i in range(4)) + "}" if full and o.name == "a" else f"qb64_d{o.name}"
            )
            registers |= {f"qb32_sfa{i}": "b32" for i in range(4)} | {f"qb64_d{o.name}": "b64"}
            written.append(one)
        elif o.kind == "vec":
            n = wmma_registers(row, name, mods, o.name) or LENGTH.get(mods.get("vec", ""), 0) or inst.registers(o.name)
            written.append("{" + ",".join(register(o, i) for i in range(n)) + "}" if n else register(o))
        elif o.kind == "imm":
            written.append(
                "128"
                if "tensormap" in name and o.name == "size"
                else "24"
                if "setmaxnreg" in name
                else IMMEDIATE.get(o.name, "1")
            )
        elif o.kind == "label":
            written.append("L")
        elif o.name == "state" and "remote" in inst.effects:
            written.append("_")
        elif o.name in FIXED and (o.name != "mask" or row.opcode != "fns"):
            written.append(FIXED[o.name])
        else:
            written.append(register(o))
    if pair:
        written[0] += f"|{pair}"
    return f"{name} {', '.join(written)}"
