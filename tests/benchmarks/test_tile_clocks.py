"""Tiles whose transposed operand once cost vector instructions or clocks: now neither, by the cycle model."""

from __future__ import annotations

from typing import Any

import benchmark_files
import pytest


@pytest.fixture
def tiles() -> Any:
    with benchmark_files.imported("tile_clocks") as module:
        yield module


@pytest.mark.parametrize(
    ("target", "tile", "alone", "together"),
    [
        # clocks with blocks that v_perm_b32 transposed, and with loads that started half a trip ahead
        ("gfx90a", "32x64x16/16x32", 6639, 10419),
        ("gfx90a", "64x128x16/16x64", 7272, 14193),
        ("gfx942", "64x32x64/32x16", 7695, 8384),
    ],
)
def test_what_transposes_a_tile_costs_no_clocks(tiles: Any, target: str, tile: str, alone: int, together: int) -> None:
    row = tiles.clocks(target, tile)
    assert row["valu"] == 0
    assert row["alone"] <= alone and row["together"] <= together


def test_rows_are_compared_by_tile(tiles: Any) -> None:
    def row(tile: str, alone: int, together: int, workgroups: int) -> dict[str, Any]:
        return {
            "target": "gfx90a", "order": "KN", "tile": tile, "alone": alone, "together": together,
            "workgroups": workgroups,
        }  # fmt: skip

    said = tiles.compared([row("x", 100, 400, 4), row("y", 100, 1, 1)], [row("x", 200, 100, 2)])
    assert said.splitlines() == [
        "gfx90a: 1 tiles, alone x 0.500, together x 2.000; the slowest:",
        "  x                    alone x 0.500, together x 2.000",
    ]
