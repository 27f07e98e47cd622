"""Every line that the AMD back end emits is spelled as LLVM's disassembler spells it, and LLVM's own spelling of the
code assembles to the same bytes: nothing was read differently from what was meant.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import emitted
import pytest
from products import AMD
from selected import slow_but

BRANCH = re.compile(r"^s_c?branch\w* ")


def code_of(text: str) -> list[str]:
    """Labels and instructions, without comments."""
    lines = (line.split(";")[0].rstrip() for line in text.split("\t.section .rodata")[0].splitlines())
    return [line for line in lines if re.match(r"^\.L\w+:|^\t[a-z]", line)]


def assembled(lines: list[str], target: str, llvm_mc: str, path: Path) -> None:
    source = path.with_suffix(".s")
    source.write_text("\n".join(lines) + "\n")
    command = [llvm_mc, "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=obj", str(source), "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def disassembled(path: Path, target: str, objdump: str, *options: str) -> list[str]:
    """Instructions as LLVM prints them; with `--show-raw` bytes behind them."""
    done = subprocess.run([objdump, "-d", f"--mcpu={target}", *options, str(path)], capture_output=True, text=True)
    found = (re.match(r"^\t(\S.*?)\s*(?://.*)?$", line) for line in done.stdout.splitlines())
    return [re.sub(r"\s+", " ", m.group(1)) for m in found if m]


def encoded(path: Path, objdump: str, target: str) -> list[str]:
    """The words of the text section."""
    done = subprocess.run([objdump, "-d", f"--mcpu={target}", str(path)], capture_output=True, text=True)
    return re.findall(r"// [0-9A-F]+: ((?:[0-9A-F]{8} ?)+)", done.stdout)


@pytest.mark.parametrize("target", slow_but(AMD, "gfx942"))
def test_spelling_is_llvms_and_assembles_to_the_same(target: str, oracle: Callable[[str], str], tmp_path: Path) -> None:
    llvm_mc, objdump = oracle("llvm-mc"), oracle("llvm-objdump")
    lines: list[str] = []
    for i, text in enumerate((*emitted.texts(target), *emitted.example_texts(target))):
        lines += [re.sub(r"\.L(\w+)", rf".L{i}_\1", line) for line in code_of(text)]
    mine = [re.sub(r"\s+", " ", line).strip() for line in lines if not line.endswith(":")]
    assert len(mine) > 10_000
    first, second = tmp_path / "emitted.o", tmp_path / "again.o"
    assembled(lines, target, llvm_mc, first)
    theirs = disassembled(first, target, objdump)
    assert len(theirs) == len(mine)
    wrong = {(a, b) for a, b in zip(mine, theirs) if a != b and not (BRANCH.match(a) and a.split()[0] == b.split()[0])}
    assert not wrong, f"{len(wrong)} lines are spelled otherwise by LLVM, for example {sorted(wrong)[:5]}"
    assembled([f"\t{line}" for line in theirs], target, llvm_mc, second)
    assert encoded(first, objdump, target) == encoded(second, objdump, target)
