"""Rows beside a GPU: every form is executed, and what a chip gives otherwise is said with its operands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import gpu_rows


def run(tmp_path: Path, only: str) -> dict[str, Any]:
    out = tmp_path / "rows.json"
    assert gpu_rows.main(["--out", str(out), "--emulate", "--workers", "1", "--only", only]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_the_emulator_agrees_with_itself(tmp_path: Path) -> None:
    found = run(tmp_path, "^(cvt|fns|setp|atom)$")
    assert found["forms"] > 800 and found["found"] == []


def test_texts_assemble(oracle: Any) -> None:
    """All forms of a kind in texts of many, as the chip gets them."""
    from wavedsl.runtime.toolchain import assemble_ptx

    oracle("ptxas")
    forms = gpu_rows.all_forms("^(fma|shfl|atom)$")
    assert {f.line.split(".")[0] for f in forms} == {"fma", "shfl", "atom"}
    for start in range(0, len(forms), gpu_rows.FORMS):
        text = gpu_rows.text_of(forms[start : start + gpu_rows.FORMS], gpu_rows.Operands())
        assemble_ptx(text, "sm_90a", options=("-O1",))


@pytest.mark.parametrize("only, form", [("^max$", "max.f32"), ("^shl$", "shl.b32"), ("^setp$", "setp.eq.u32")])
def test_another_result_is_reported(only: str, form: str) -> None:
    (found,) = (f for f in gpu_rows.all_forms(only) if f.line.split(" ")[0] == form)
    operands = gpu_rows.Operands()
    want = gpu_rows.by_emulator(gpu_rows.text_of([found], operands), operands.data, 1)[0]
    got = want.copy()
    assert gpu_rows.differences(found, got, want, operands) is None
    got[0, 5] ^= np.uint64(1)
    row = gpu_rows.differences(found, got, want, operands)
    assert row is not None and row["form"] == found.line and row["result 0"]["differ"] == 1
    assert row["result 0"]["lane, chip, emulator, operands"][0][0] == 5


def test_nans_with_other_bits_are_counted_apart() -> None:
    (found,) = (f for f in gpu_rows.all_forms("^neg$") if f.line.startswith("neg.f32"))
    operands = gpu_rows.Operands()
    want = gpu_rows.by_emulator(gpu_rows.text_of([found], operands), operands.data, 1)[0]
    nan = int(np.flatnonzero(np.isnan(want[0].view(np.uint32)[::2].view(np.float32)))[0])
    got = want.copy()
    got[0, nan] ^= np.uint64(1)
    row = gpu_rows.differences(found, got, want, operands)
    assert row == {"form": found.line, "other NaN": 1}
