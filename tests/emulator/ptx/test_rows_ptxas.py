# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Every form that a row allows, on every chip that it claims, is accepted by ptxas: the rows' witness from outside."""

import collections
import re
import subprocess

import pytest
from row_forms import CONTROL, forms, instruction
from wavedsl.codegen.ptx import isa


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
