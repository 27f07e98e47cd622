# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Every form that a row allows, on every chip that it claims, is accepted by ptxas: the rows' witness from outside."""

import collections
import itertools
import re
import subprocess

import pytest
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


def instruction(row, mods, registers):
    name = isa.spell(row, **mods)
    inst = isa.lookup(name, "sm_90a")
    written, pair = [], ""

    def register(o, i=0):
        type_ = REGISTER.get(o.type or "b64", o.type or "b64")
        r = f"q{type_}_{'d' if o.write else 's'}{o.name[0]}{i}"
        registers[r] = type_
        return r

    for o in inst.operands:
        if (
            o.optional
            and o.name != "policy"
            and not o.paired
            and not (o.name == "c" and "bool" in mods)
            and not (o.name == "b" and mods.get("op") == "cas")
        ):
            if o.name != "f":
                continue
        if o.name == "policy" and "cache_hint" not in mods:
            continue
        if o.paired:
            if not (o.optional and mods.get("type") in ("f16", "bf16")):
                pair = register(o)
            continue
        if o.kind == "addr":
            space = mods.get("space", "").split("::")[0]
            shared = o.name != "src" and (space == "shared" or "mbarrier" in name or "matrix" in name)
            written.append("[sm]" if shared else ADDRESS.get(space, "[gaddr]") if o.name != "src" else "[gaddr]")
        elif o.kind == "vec":
            n = (
                wmma_registers(row, name, mods, o.name)
                or LENGTH.get(mods.get("vec", ""), 0)
                or (row.data.get(o.name, 0) if row.data is not None else 0)
            )
            written.append("{" + ",".join(register(o, i) for i in range(n)) + "}" if n else register(o))
        elif o.kind == "imm":
            written.append("16" if o.name == "size" else "24" if "setmaxnreg" in name else "1")
        elif o.kind == "label":
            written.append("L")
        elif o.name in ("id", "count", "f") or (o.name == "mask" and row.opcode != "fns"):
            written.append({"id": "1", "count": "64", "f": "0.5", "mask": "-1"}[o.name])
        else:
            written.append(register(o))
    if pair:
        written[0] += f"|{pair}"
    return f"{name} {', '.join(written)}"


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_90a"])
def test_every_form_assembles(target, oracle, tmp_path):
    chip = isa.parse_target(target).number
    registers, lines = {}, []
    for row in isa.all_rows(target):
        if row.opcode in CONTROL:
            continue
        for mods in forms(row, chip):
            space = mods.get("space", "")
            if space == "param::func" or (row.opcode == "st" and space in ("const", "param", "param::entry")):
                continue
            lines.append(instruction(row, mods, registers))
    head = (
        f".version 8.7\n.target {target}\n.address_size 64\n.shared .align 16 .b8 sm[1024];\n.const .align 16 .b8 cst[64];\n"
        ".visible .entry k(.param .align 16 .b8 A[64]) {\n.reg .b64 gaddr;\n.local .align 16 .b8 loc[64];\nmov.u64 gaddr, 0;\n"
    )
    head += "".join(f".reg .{t} {r};\n" for r, t in registers.items())
    path = tmp_path / "rows.ptx"
    path.write_text(head + "".join(f"{line};\n" for line in lines) + "L: ret;\n}\n")
    first = head.count("\n") + 1
    command = [oracle("ptxas"), f"-arch={target}", "-O0", "-o", str(tmp_path / "rows.cubin"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refused = collections.OrderedDict()
    for m in re.finditer(r"line (\d+); error\s*: (.*)", done.stderr):
        refused.setdefault(lines[int(m.group(1)) - first], m.group(2))
    assert len(lines) > 5000
    assert not refused, refused
    assert done.returncode == 0, done.stderr[-2000:]
