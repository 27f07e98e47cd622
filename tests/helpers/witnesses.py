"""Which rows of the instruction tables something outside of this project confirms, and which rows a text uses.

Witnesses: text of other compilers with known answers that executes the row (the lists in tests/data, kept by
tests/emulator/*/test_witness.py; LLVM's small kernels in tests/vectors/llvm), the vendors' tables of matrix fragments,
what ptxas and LLVM compute at compile time (tests/project/test_witness.py), and an H200 that executed the row in
kernels whose results were right (tests/data/ptx_chip.txt, written by benchmarks/chip_rows.py).
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

from products import AMD
from wavedsl.codegen.amdgcn import isa as amdgcn
from wavedsl.codegen.ptx import isa as ptx
from wavedsl.codegen.ptx.mma import MMAS

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
LLVM = TESTS / "vectors" / "llvm"


def rows(text: str, target: str) -> frozenset[str]:
    """Rows of the instructions in a text. On AMD by mnemonic: `_e32` and `_e64` are encodings of one row; on NVIDIA by
    pattern."""
    if target in AMD:
        code = text.split(".amdhsa_kernel")[0] if text.count(".amdhsa_kernel") == 1 else text
        names = set(re.findall(r"^\s+([a-z]+_\w+)(?=\s|$)", code, re.M))
    else:
        names = set(re.findall(r"^\s+(?:@!?%p\d+\s+)?([a-z][a-z0-9_]*(?:\.[\w:]+)*)\s*[^\s:.]?.*;", text, re.M))
    return frozenset(row_of(name, target) for name in names)


@functools.cache
def row_of(name: str, target: str) -> str:
    if target in AMD:
        return re.sub(r"_e(32|64)$", "", amdgcn.lookup(name, target).mnemonic)
    return ptx.lookup(name, target).row.pattern


@functools.cache
def witnessed(target: str) -> frozenset[str]:
    """Rows with a witness."""
    return _amdgcn(target) if target in AMD else _ptx(target)


def expect_witnessed(rows: set[str], target: str) -> None:
    """Fails with the rows of many texts that neither have a witness nor are listed, and with those that do both."""
    assert len(rows) > 30
    known, admitted = witnessed(target), unverified(target)
    assert not rows - known - admitted, "emitted, without a witness, and not in docs/unverified.md"
    assert not admitted & known, "in docs/unverified.md, but witnessed"


def _amdgcn(target: str) -> frozenset[str]:
    listed = (TESTS / "data" / "amdgcn_witness.txt").read_text().splitlines()
    found = {re.sub(r"_e(32|64)$", "", row) for t, row in (line.split() for line in listed) if t == target}
    for path in sorted(LLVM.glob(f"*.{target}.s")):
        for body in re.findall(r"^\w+: +; @\w+\n(.*?)s_endpgm", path.read_text(), re.M | re.S):
            found |= rows(body, target)
    calculated = json.loads((TESTS / "data" / "mfma_columns.json").read_text())["mfma"]
    return frozenset(found | set(calculated[target]))


def _ptx(target: str) -> frozenset[str]:
    number = ptx.parse_target(target).number
    lists = [(TESTS / "data" / f"{name}.txt").read_text().splitlines() for name in ("ptx_witness", "ptx_chip")]
    found = set().union(*lists)
    table = json.loads((TESTS / "data" / "nvidia_layouts.json").read_text())["mma_sync"]
    found |= {row_of(m.mnemonic, target) for m in MMAS if m.witness in table and m.min_sm <= number}
    found.add(row_of("cvt.rna.tf32.f32", "sm_80"))  # test_ptxas_rounds_to_tf32_as_the_row_does
    found.add(row_of("min.s32", "sm_80"))  # test_ptxas_takes_the_smaller_as_the_row_does
    found.add(row_of("prmt.b32", "sm_80"))  # test_llvm_permutes_bytes_as_the_row_does
    return frozenset(found)


@functools.cache
def unverified(target: str) -> frozenset[str]:
    """Rows that docs/unverified.md names for a target: lines `| row | targets | … |`. On NVIDIA a row goes by one of
    its instructions: its pattern would take a table apart."""
    lines = (ROOT / "docs" / "unverified.md").read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return frozenset(row_of(row.strip("`"), target) for row, targets, *_ in cells if target in targets.split(", "))
