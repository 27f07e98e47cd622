"""What LLVM makes of pairs of LDS accesses and of copies straight to LDS (tests/vectors/llvm/shared*.ll): known answers
for the forms with two offsets, and for where M0 and the immediate put a copy."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest
from wavedsl.runtime.emulator import run

FOLDER = Path(__file__).parents[2] / "vectors" / "llvm"
CHIPS = ("gfx90a", "gfx942", "gfx950")
FORMS = {"near_i32": "2_b32", "far_i32": "2st64_b32", "near_i64": "2_b64", "far_i64": "2st64_b64"}


@functools.cache
def text(name: str, chip: str) -> str:
    return (FOLDER / f"{name}.{chip}.s").read_text()


def body(source: str, kernel: str) -> str:
    found = re.search(rf"^{kernel}: +; @{kernel}\n(.*?)s_endpgm", source, re.M | re.S)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("form", FORMS)
def test_pairs(form: str, chip: str) -> None:
    source, kernel = text("shared", chip), f"pair_{form}"
    code = body(source, kernel)
    assert f"ds_read{FORMS[form]} " in code and f"ds_write{FORMS[form]} " in code
    kind = np.int32 if form.endswith("i32") else np.int64
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-(2**31), 2**31, 64).astype(kind) << (0 if kind is np.int32 else 17) for _ in range(2))
    a, b = np.zeros(64, kind), np.zeros(64, kind)
    run(source, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x, y, a, b], kernel=kernel)
    other = np.arange(64) ^ 21
    np.testing.assert_array_equal(a, x[other])
    np.testing.assert_array_equal(b, y[other])


@pytest.mark.parametrize(("chip", "width"), [*((c, 4) for c in CHIPS), ("gfx950", 16)])
def test_copies_straight_to_shared_memory(chip: str, width: int) -> None:
    """The immediate counts for both addresses. Lanes out of bounds give 0 (nobody's word but the emulator's)."""
    source = text("shared" if width == 4 else "shared_wide", chip)
    assert re.search(r"buffer_load_dword\w* v\d+, .* offen offset:\d+ lds", body(source, f"direct_{width}"))
    words = width // 4
    x = np.random.default_rng(2).integers(0, 2**32, (48, words), dtype=np.uint32)
    a = np.ones((64, words), np.uint32)
    run(source, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x, a], kernel=f"direct_{width}")
    source_row = (np.arange(64) ^ 21) + 2
    inside = source_row < 48
    np.testing.assert_array_equal(a[inside], x[source_row[inside]])
    assert not a[~inside].any()
