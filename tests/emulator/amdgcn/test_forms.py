"""Which instruction forms are legal: ours and LLVM's assembler agree on tests/data/amdgcn_forms.txt.

Where they differ, LLVM takes an immediate that the chip truncates (`LENIENT`), or the tables leave an instruction out.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from wavedsl.codegen.amdgcn.isa import TARGETS
from wavedsl.codegen.amdgcn.operand_rules import check_operands
from wavedsl.runtime.emulator.amdgcn.text import parse

FORMS = (Path(__file__).parents[2] / "data" / "amdgcn_forms.txt").read_text().splitlines()
LENIENT = {
    "buffer_load_dwordx4 v[0:3], v4, s[4:7], 0 offen offset:4096",
    "s_nop 16",
    "s_setprio 4",
    "s_sleep 128",
    "v_lshl_add_u64 v[0:1], v[2:3], 5, v[4:5]",
    "s_waitcnt vmcnt(64)",
    "s_waitcnt lgkmcnt(16)",
}


@pytest.mark.parametrize("target", TARGETS)
def test_legality(oracle, target):
    said = subprocess.run([oracle("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}"],
                          input="\n".join(FORMS) + "\n", capture_output=True, text=True).stderr  # fmt: skip
    refused = {int(n) - 1: text for n, text in re.findall(r"<stdin>:(\d+):\d+: error: (.*)", said)}
    program = parse("\n".join(FORMS), target)
    assert len(program.lines) == len(FORMS)
    differ = []
    for i, line in enumerate(program.lines):
        if "not an AMDGCN instruction" in line.problem:
            continue
        wrong = (
            [line.problem] if line.inst is None else check_operands(line.inst, line.operands, target, line.modifiers)
        )
        if bool(wrong) != (i in refused) and line.text not in LENIENT:
            differ.append((line.text, refused.get(i, "LLVM takes it"), wrong))
    assert not differ, differ


@pytest.mark.parametrize("form", sorted(LENIENT))
def test_stricter_than_llvm(form):
    """What LLVM encodes modulo the field's width is refused here."""
    line = parse(form, "gfx942").lines[0]
    assert line.inst is not None and check_operands(line.inst, line.operands, "gfx942", line.modifiers)
