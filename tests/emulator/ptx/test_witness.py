"""Which rows the conformance vectors execute: text that others wrote and whose answers are known witnesses their
meaning.

`tests/data/ptx_witness.txt` lists them, one pattern per line; WAVEDSL_UPDATE_GOLDEN=1 rewrites it. Other tests read the
list to find emitted rows without an outside witness.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path

import pytest
import triton_texts
import witnesses
from wavedsl.codegen.ptx import isa
from wavedsl.runtime.emulator.ptx.emulator import run_ptx

TESTS = Path(__file__).parents[2]
LIST = TESTS / "data" / "ptx_witness.txt"


def executed() -> list[str]:
    spec = importlib.util.spec_from_file_location("vector_data", TESTS / "vectors" / "vector_data.py")
    assert spec is not None and spec.loader is not None
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    found: set[str] = set(triton_texts.coverage())
    for path in sorted((TESTS / "vectors" / "ptx").glob("*/case.json")):
        case = json.loads(path.read_text())
        report = run_ptx(
            (path.parent / case["asm"]).read_text(), target=case["arch"], grid=case["grid"], block=case["block"],
            args=data.make_args(case), kernel=case["kernel"], shared_bytes=case["dynamic_shared_bytes"], checks=False,
        )  # fmt: skip
        found |= report.coverage
    for path in sorted(witnesses.LLVM.glob("*.ptx")):  # the tests of these kernels run all of their instructions
        for body in re.findall(r"^\{(.*?)^\}", path.read_text(), re.M | re.S):
            found |= witnesses.rows(body, "sm_90")
    # NVIDIA's headers write one instruction into a function: what that means is the function's (test_nvcc.py).
    text = (TESTS / "vectors" / "nvcc" / "kernels.sm_90a.ptx").read_text()
    for name in ("halfs", "bfs", "fp8s"):
        (body,) = re.findall(rf"\.entry {name}\((.*?)^\s*ret;", text, re.M | re.S)
        found |= witnesses.rows(re.sub(r"^\s*\{", "    ", body, flags=re.M), "sm_90a")
    return sorted(found)


@pytest.mark.slow
def test_the_list_is_what_vectors_execute():
    rows = executed()
    if os.environ.get("WAVEDSL_UPDATE_GOLDEN") == "1":
        LIST.write_text("\n".join(rows) + "\n")
    assert LIST.read_text().splitlines() == rows


def test_witnessed_rows_exist():
    assert set(LIST.read_text().splitlines()) <= {row.pattern for row in isa.all_rows()}
