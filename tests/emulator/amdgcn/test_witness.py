"""Which rows the conformance vectors execute: text that others wrote and whose answers are known witnesses their
meaning.

`tests/data/amdgcn_witness.txt` lists them, one `target mnemonic` per line; WAVEDSL_UPDATE_GOLDEN=1 rewrites it. Other
tests read the list to find emitted rows without an outside witness.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from amdgcn_harness import VECTORS, load_case, vector_cases
from wavedsl.codegen.amdgcn.isa import lookup
from wavedsl.runtime.emulator import run

LIST = Path(__file__).parents[2] / "data" / "amdgcn_witness.txt"


def executed() -> list[str]:
    spec = importlib.util.spec_from_file_location("vector_data", VECTORS.parent / "vector_data.py")
    assert spec is not None and spec.loader is not None
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    rows: set[tuple[str, str]] = set()
    for name in vector_cases():
        case, asm = load_case(name)
        report = run(asm, target=case["arch"], grid=case["grid"], block=case["block"], args=data.make_args(case),
                     kernel=case["kernel"], shared_bytes=case["dynamic_shared_bytes"], checks=False)  # fmt: skip
        rows |= {(case["arch"], row) for row in report.coverage}
    return [f"{target} {row}" for target, row in sorted(rows)]


def test_the_list_is_what_vectors_execute():
    rows = executed()
    if os.environ.get("WAVEDSL_UPDATE_GOLDEN") == "1":
        LIST.write_text("\n".join(rows) + "\n")
    assert LIST.read_text().splitlines() == rows


def test_witnessed_rows_exist():
    for line in LIST.read_text().splitlines():
        target, row = line.split(" ", 1)
        assert lookup(row, target).mnemonic == row
