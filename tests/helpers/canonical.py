"""Whether AMD text is spelled as LLVM's disassembler spells it, and whether that spelling assembles to the same bytes.

Imported as `canonical`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

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


def disassembled(path: Path, target: str, objdump: str) -> tuple[list[str], list[str]]:
    """Instructions as LLVM prints them, and the words of each."""
    done = subprocess.run([objdump, "-d", f"--mcpu={target}", str(path)], capture_output=True, text=True)
    found = (re.match(r"^\t(\S.*?)\s*(?://.*)?$", line) for line in done.stdout.splitlines())
    words = re.findall(r"// [0-9A-F]+: ((?:[0-9A-F]{8} ?)+)", done.stdout)
    return [re.sub(r"\s+", " ", m.group(1)) for m in found if m], words


def spelled_otherwise(lines: Sequence[str], target: str, llvm_mc: str, objdump: str, folder: Path) -> list[str]:
    """Lines of a text that LLVM spells otherwise, as `mine -> theirs`. Raises AssertionError where an assembler refuses
    a line, or where LLVM's spelling gives other bytes. What is spelled alike throughout is not assembled again."""
    mine = [re.sub(r"\s+", " ", line).strip() for line in lines if not line.endswith(":")]
    first, second = folder / f"{target}.o", folder / f"{target}.again.o"
    assembled(lines, target, llvm_mc, first)
    theirs, words = disassembled(first, target, objdump)
    assert len(theirs) == len(mine) == len(words)
    if theirs == mine:
        return []
    assembled([f"\t{line}" for line in theirs], target, llvm_mc, second)
    assert disassembled(second, target, objdump)[1] == words
    same_branch = [BRANCH.match(a) and a.split()[0] == b.split()[0] for a, b in zip(mine, theirs)]
    return sorted({f"{a} -> {b}" for a, b, same in zip(mine, theirs, same_branch) if a != b and not same})
