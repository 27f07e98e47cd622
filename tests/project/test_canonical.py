"""Every line that the AMD back end emits is spelled as LLVM's disassembler spells it, and LLVM's own spelling of the
code assembles to the same bytes: nothing was read differently from what was meant. Every row that it uses has a witness
(see test_witness.py). Whole texts here; the lines of all kernels that any test compiles are asked about at the end of a
run (tests/conftest.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import canonical
import emitted
import pytest
import witnesses
from products import AMD


@pytest.mark.parametrize(
    "target", [pytest.param(t, marks=pytest.mark.slow if t == "gfx950" else pytest.mark.exhaustive) for t in AMD]
)
def test_text_is_spelled_as_llvm_does_and_witnessed(
    target: str, oracle: Callable[[str], str], tmp_path: Path
) -> None:
    lines: list[str] = []
    texts = emitted.texts(target)
    witnesses.expect_witnessed(set().union(*(witnesses.rows(text, target) for text in texts)), target)
    for i, text in enumerate((*texts, *emitted.example_texts(target))):
        lines += [re.sub(r"\.L(\w+)", rf".L{i}_\1", line) for line in canonical.code_of(text)]
    assert len(lines) > 10_000
    assert not canonical.spelled_otherwise(lines, target, oracle("llvm-mc"), oracle("llvm-objdump"), tmp_path)


def test_other_spellings_are_found(oracle: Callable[[str], str], tmp_path: Path) -> None:
    lines = ["\ts_mov_b32 s0, 0xffffffff", "\tv_mov_b32 v1, v2", "\tv_mov_b32_e32 v1, v2"]
    found = canonical.spelled_otherwise(lines, "gfx942", oracle("llvm-mc"), oracle("llvm-objdump"), tmp_path)
    assert found == ["s_mov_b32 s0, 0xffffffff -> s_mov_b32 s0, -1", "v_mov_b32 v1, v2 -> v_mov_b32_e32 v1, v2"]
