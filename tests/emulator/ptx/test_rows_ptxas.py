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


FIXED = {"id": "1", "count": "64", "f": "0.5", "mask": "-1", "cta": "1", "bytes": "32"}
IMMEDIATE = {"size": "16", "scale_b": "-1", "a_order": "0"}


def memory(inst, o, mods):
    """The address operand of a row: what its name or the instruction's state space says."""
    if "copy" in inst.effects:
        return "[gaddr]" if o.name == "dst" else "[sm]"
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


@pytest.mark.parametrize(
    "target", ["sm_80", "sm_90a", *(pytest.param(t, marks=pytest.mark.exhaustive) for t in ("sm_89", "sm_90"))]
)
def test_every_form_assembles(target, oracle, tmp_path):
    chip = isa.parse_target(target).number
    registers, lines = {}, []
    for row in isa.all_rows(target):
        if row.opcode in CONTROL or "wgmma" in row.effects:
            continue
        for mods in forms(row, chip):
            space = mods.get("space", "")
            if space == "param::func" or (row.opcode == "st" and space in ("const", "param", "param::entry")):
                continue
            lines.append(instruction(row, mods, registers))
            if chip >= 90 and "mbarrier" in row.effects:
                lines.append(instruction(row, mods, registers, full=True))
    head = (
        f".version 8.7\n.target {target}\n.address_size 64\n.shared .align 16 .b8 sm[1024];\n.const .align 16 .b8 cst[64];\n"
        ".visible .entry k(.param .align 16 .b8 A[64]) {\n.reg .b64 gaddr;\n.local .align 16 .b8 loc[64];\nmov.u64 gaddr, 0;\n"
    )
    head += "".join(f".reg .{t} {r};\n" for r, t in registers.items())
    assert len(lines) > 5000
    assemble(oracle, tmp_path, target, head, lines)


def assemble(oracle, tmp_path, target, head, lines):
    """ptxas takes every line."""
    path = tmp_path / "rows.ptx"
    path.write_text(head + "".join(f"{line};\n" for line in lines) + "L: ret;\n}\n")
    first = head.count("\n") + 1
    command = [oracle("ptxas"), f"-arch={target}", "-O0", "-o", str(tmp_path / "rows.cubin"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refused = collections.OrderedDict()
    for m in re.finditer(r"line (\d+); error\s*: (.*)", done.stderr):
        refused.setdefault(lines[int(m.group(1)) - first], m.group(2))
    assert not refused, refused
    assert done.returncode == 0, done.stderr[-2000:]


def _once(place, row):
    """Two kinds in the default run, half of the others in CI."""
    name = ".".join(row.pattern.split(".")[-3:])
    marks = [pytest.mark.slow, pytest.mark.exhaustive][: 1 + place % 2]
    return pytest.param(row, id=name, marks=[] if name in ("f32.bf16.bf16", "s8.u8{.satfinite}") else marks)


WGMMA = [_once(i, r) for i, r in enumerate(r for r in isa.all_rows("sm_90a") if "multiply" in r.effects)]


@pytest.mark.parametrize("row", WGMMA)
def test_every_width_of_wgmma_assembles(row, oracle, tmp_path):
    """With A in shared memory and in registers, every width."""
    registers, lines = {}, []
    for mods in forms(row, 90):
        for full in (False, True):
            fence, commit, wait = (f"wgmma.{w}.sync.aligned" for w in ("fence", "commit_group", "wait_group"))
            lines += [fence, instruction(row, mods, registers, full), commit, f"{wait} 0"]
    head = f".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k() {{\n{''.join(f'.reg .{t} {r};{chr(10)}' for r, t in registers.items())}"
    assert len(lines) >= 8 * 18
    assemble(oracle, tmp_path, "sm_90a", head, lines)
