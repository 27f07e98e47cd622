"""The text of the small examples on every target is the one that was reviewed.

`WAVEDSL_UPDATE_GOLDEN=1 pytest tests/e2e/test_golden.py` rewrites the files; read the difference before committing it.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from emitted import example
from products import TARGETS, K, M, N

import wavedsl as wd

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "examples"


def small_kernels() -> dict[str, tuple[Any, dict[Any, int]]]:
    gemm = example("gemm")
    tiles = {name: gemm.TILES[name][0] for name in ("mma", "small")}
    return {
        "copy": (example("copy").copy_kernel(wd.f16), {M: 16, N: 16}),
        "mma": (gemm.gemm_kernel(wd.f16, tiles["mma"]), {M: 16, N: 16, K: 16}),
        "gemm": (gemm.gemm_kernel(wd.f16, tiles["small"]), {M: 64, N: 64, K: 128}),
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["copy", "mma", "gemm"])
def test_text_is_the_reviewed_one(name: str, target: str) -> None:
    kernel, sizes = small_kernels()[name]
    text = kernel.compile(target=target, subs=sizes).asm.replace(f"{ROOT}{os.sep}", "")
    path = GOLDEN / f"{name}_{target}.{'s' if target.startswith('gfx') else 'ptx'}"
    if os.environ.get("WAVEDSL_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert path.exists(), f"{path} is missing: run with WAVEDSL_UPDATE_GOLDEN=1"
    reviewed = path.read_text()
    if sys.version_info < (3, 11):  # code objects know no columns there: spans of one statement are one
        text, reviewed = (re.sub(r"^\s*\.loc .*\n", "", t, flags=re.M) for t in (text, reviewed))
    assert text == reviewed, f"{path} differs: look at it, and run with WAVEDSL_UPDATE_GOLDEN=1"
