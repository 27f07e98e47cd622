"""The table of docs/lds-layouts.md is what benchmarks/lds_layouts.py counts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_table_is_what_is_counted(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("lds_layouts", ROOT / "benchmarks" / "lds_layouts.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["lds_layouts"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.rows()
    lines = (ROOT / "docs" / "lds-layouts.md").read_text().splitlines()
    for r in rows:
        cells = " | ".join("" if v is None else str(v) for v in r.values())
        assert f"| {cells} |".replace("  ", " ") in [line.replace("  ", " ") for line in lines], cells
    by_name = {(r["product"], r["layout"]): r["read clocks"] for r in rows}
    assert by_name["Q·Kᵀ", "pitch 136, ds_read_b64"] == 16  # 8 reads of 512 bytes at 256 bytes a clock
    assert by_name["Q·Kᵀ", "rows of 128, ds_read_b64"] == 256
