"""No instruction is spelled outside the tables: everything else names rows, so a row is the one place to change."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from wavedsl.codegen.amdgcn import isa as amdgcn
from wavedsl.codegen.ptx import isa as ptx

ROOT = Path(__file__).parents[2]
TABLES = re.compile(r"isa(_\w+)?\.py|mfma\.py|mma\.py|roles\.py|hazard_rules\.py")
"""Tables of instructions, of matrix instructions, of hazards, and of which instruction plays which role."""


@functools.cache
def literals(path: Path) -> list[tuple[int, str]]:
    """Every string of a file that is no docstring."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    bare = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    return [
        (n.lineno, n.value)
        for n in nodes
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in bare
    ]


def sources() -> list[Path]:
    folders = ("wavedsl", "tracer", "ir", "codegen", "runtime")
    return [p for f in folders for p in sorted((ROOT / f).rglob("*.py")) if not TABLES.fullmatch(p.name)]


def test_amdgcn_mnemonics_stand_in_the_tables_only() -> None:
    names = {row.mnemonic.split()[0] for target in amdgcn.TARGETS for row in amdgcn.all_rows(target)}
    assert len(names) > 1000
    found = [f"{p.relative_to(ROOT)}:{line}: {s}" for p in sources() for line, s in literals(p) if s in names]
    assert not found


def test_ptx_mnemonics_stand_in_the_tables_only() -> None:
    opcodes = {row.opcode for row in ptx.all_rows()}
    dotted = re.compile(rf"({'|'.join(sorted(map(re.escape, opcodes), key=len, reverse=True))})(\.\w+)+\.?")
    ours = [p for p in sources() if "ptx" in str(p.relative_to(ROOT))]
    assert len(opcodes) > 50 and ours
    found = [f"{p.relative_to(ROOT)}:{line}: {s}" for p in ours for line, s in literals(p) if dotted.fullmatch(s)]
    assert not found
