"""Clocks of f16 products by the cycle model, tile by tile: what a layout, a way of copying, a schedule costs or gains.

    python benchmarks/tile_clocks.py [--target gfx90a] [--order NK] [--tile 32x64x16/16x32] [--preferred 1.02]
    python benchmarks/tile_clocks.py --every [--against EARLIER.json]           # 255 tiles a chip, a minute each

One workgroup of a product that is `TRIPS` tiles long in K is emulated, checked, and replayed with memory that always
hits: alone on a compute unit, and as many together as a compute unit holds. Beside these clocks: vector instructions in
the loop, per step, and bytes of shared memory. Rows go to results/tile_clocks.json unless something but the usual tiles
was asked for; `--json` writes them anywhere.

B is [K, N] (`--order KN`), which has to be transposed on its way to the matrix units or taken by instructions of column
pairs, or [N, K]. `--preferred` is what `copy_ways.PREFERRED` is for this run: 1 takes whatever way of copying counts as
the cheapest, vector instructions or not. `--against` compares with rows of another run, of another commit for one: the
geometric mean of all ratios, and the tiles that became slower.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gemm_kernels as kernels
import numpy as np
import record
from wavedsl.codegen.amdgcn.target import resident_groups
from wavedsl.ir.addresses import copy_ways
from wavedsl.runtime.emulator.cycle_queue import Launch

import wavedsl as wd
from wavedsl.reports import table

TRIPS = 8
TILES = {
    "gfx90a": (
        "32x32x64/16x16", "64x32x64/32x16", "32x32x128/16x16", "16x64x64/16x16", "32x64x16/16x32", "64x128x16/16x64",
        "32x32x16/16x16", "64x64x16/32x32", "128x128x16/64x64", "64x64x32/32x32", "32x32x32/16x16", "128x128x32/64x64",
        "128x128x64/64x64", "256x128x64/64x64",
    ),
    "gfx942": (
        "32x32x64/16x16", "64x32x64/32x16", "32x32x128/16x16", "16x64x64/16x16", "32x32x16/16x16", "64x32x16/32x16",
        "32x32x32/16x16", "128x64x16/64x16", "64x64x64/32x32", "128x128x64/64x64",
    ),
    "gfx950": ("32x32x64/16x16", "64x64x64/32x32", "128x128x64/64x64"),
}  # fmt: skip
"""The usual tiles: M x N x K/a wave's M x N. gfx942: those too narrow for column pairs first, then two that are not."""
SIDES, DEPTHS = (16, 32, 64, 128, 256), (16, 32, 64, 128)
WAVES = ((1, 1), (2, 2), (2, 1), (1, 2), (4, 2))
MOST_SUMS, MOST_ELEMENTS = 128 * 64, 128 * 128
"""`--every`: tiles divided among these waves into 16 to 128 a side, most elements of a wave and of a tile."""
SHOWN = 12
"""Tiles that `--against` names."""


def every() -> Iterator[str]:
    """All tiles of `--every`; some are more than shared memory holds."""
    for m, n, k, (waves_m, waves_n) in itertools.product(SIDES, SIDES, DEPTHS, WAVES):
        wave = m // waves_m, n // waves_n
        if 16 <= min(wave) and max(wave) <= 128 and wave[0] * wave[1] <= MOST_SUMS and m * n <= MOST_ELEMENTS:
            yield f"{m}x{n}x{k}/{wave[0]}x{wave[1]}"


def clocks(target: str, tile: str, order: str = "KN") -> dict[str, Any]:
    """One row. Raises ConstraintError where shared memory does not hold the tile."""
    m, n, k, wave_m, wave_n = (int(x) for x in tile.replace("/", "x").split("x"))
    form = kernels.Form(wd.f16, out=wd.f32, b=order)
    config = kernels.Config(m, n, k, wave_m, wave_n, (("split_k", 1),))
    sizes = {kernels.M: m, kernels.N: n, kernels.K: TRIPS * k}
    made = kernels.product(form, config).compile(target=target, subs=sizes)
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, (TRIPS * k, side)).astype(np.float16) for side in (m, n))
    c = np.empty((m, n), np.float32)
    report = made.emulate(np.ascontiguousarray(a.T), b if order == "KN" else b.T.copy(), c, checks=False)
    if not np.array_equal(c, a.T.astype(np.float32) @ b.astype(np.float32)):
        raise SystemExit(f"wrong result: {target}, {tile}, B as [{', '.join(order)}]")
    together = max(1, resident_groups(target, made.resources.registers, made.shared_bytes, int(np.prod(made.block))))
    alone, full = (report.replay(Launch(groups, groups, 0.0)).cycles for groups in (1, together))
    loops = [x for x in made.resources.loops if x.instructions["mfma"]]
    return {
        "target": target, "order": order, "tile": tile,
        "valu": sum(x.instructions["valu"] / x.steps for x in loops),
        "alone": alone, "together": full, "workgroups": together, "shared": made.shared_bytes,
    }  # fmt: skip


def compared(rows: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> str:
    """What became of the clocks of an earlier run, per chip: ratios alone, and together per workgroup."""
    before = {(r["target"], r["order"], r["tile"]): r for r in earlier}
    lines = []
    for target in dict.fromkeys(r["target"] for r in rows):
        ratios = []
        for r in rows:
            old = before.get((r["target"], r["order"], r["tile"]))
            if r["target"] == target and old is not None:
                each = [x["together"] / x["workgroups"] for x in (r, old)]
                ratios.append((each[0] / each[1], r["alone"] / old["alone"], r["tile"]))
        if not ratios:
            continue
        together, alone = (math.exp(sum(math.log(r[i]) for r in ratios) / len(ratios)) for i in (0, 1))
        lines.append(f"{target}: {len(ratios)} tiles, alone x {alone:.3f}, together x {together:.3f}; the slowest:")
        for full, one, tile in sorted(ratios, reverse=True)[:SHOWN]:
            lines.append(f"  {tile:20} alone x {one:.3f}, together x {full:.3f}")
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--target", choices=list(TILES))
    options.add_argument("--order", choices=["KN", "NK"], default="KN", help="of B's dimensions (default %(default)s)")
    options.add_argument("--tile", action="append", metavar="MxNxK/MxN", help="instead of the usual ones")
    options.add_argument("--every", action="store_true", help="all tiles of 16 to 256 a side")
    options.add_argument("--preferred", type=float, help="instead of the compiler's own")
    options.add_argument("--against", type=Path, metavar="FILE", help="rows of another run, to compare with")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    given = options.parse_args()
    if given.preferred is not None:
        copy_ways.PREFERRED = given.preferred
    usual = not given.every and given.tile is None and given.target is None
    rows = []
    for target in [given.target] if given.target else TILES:
        for tile in given.tile or (every() if given.every else TILES[target]):
            try:
                rows.append(clocks(target, tile, given.order))
            except wd.ConstraintError as error:
                if not given.every:
                    raise
                assert "shared tile" in error.message, error
    print(table(list(rows[0]), [list(r.values()) for r in rows]))
    if given.against:
        print(compared(rows, json.loads(given.against.read_text())["rows"]))
    if given.json:
        given.json.write_text(json.dumps({**record.surroundings(), "rows": rows}, indent=1) + "\n")
    elif usual and given.order == "KN" and given.preferred is None:
        print(record.write("tile_clocks", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
