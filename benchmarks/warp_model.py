"""The warp replay of PTX text beside published figures, and what its assumptions change.

    python benchmarks/warp_model.py [--update]

bf16 GEMMs of N x N x N on H100 SXM: the TFLOP/s that the replay predicts for our text, in the best of a few tiles,
beside the best that others measured with their kernels. The texts are not those that were measured, and boards do not
keep the clock that the replay takes, so this bounds its error only loosely. `--update` writes the ratios to
`runtime/emulator/ptx/warp_error.py`, which the command line prints beside predictions, with those of `model_error.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import record
from wavedsl.runtime.emulator.cycle_chips import SMS, varied
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl.reports import table

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = (
    ("sm_90a", "H100 SXM", 4096, {"cuBLAS": 716, "fast.cu": 763}),
    ("sm_90a", "H100 SXM", 8192, {"cuBLAS": 795, "fast.cu": 808, "Triton, persistent with TMA": 674}),
)
"""Target, product, N, TFLOP/s: README of fast.cu (pranjalssh/fast.cu); Triton's: tritonbench, pull request 894."""
TILES = {"sm_90a": ((128, 256, 64, 3), (128, 128, 64, 4), (128, 256, 64, 4))}
"""Workgroup's M, N and K, and stages."""
ASSUMPTIONS: tuple[dict[str, float], ...] = (
    {}, {"signal_latency": 100}, {"product_latency": 64}, {"bulk_latency": 600}, {"barrier": 60}, {"hit_latency": 500},
    {"memory_latency": 900}, {"l2_rate": SMS["sm_90a"].l2_rate / 2}, {"tags": 1}, {"queue": 8}, {"taken_branch": 32},
)  # fmt: skip


def gemm(target: str, n: int, tile: tuple[int, int, int, int]) -> Any:
    """C = A B^T in bf16 with f32 sums, compiled for N x N x N."""
    M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, BM / 2), wd.WaveConstraint(N, BN),
        ],
        subs={BM: tile[0], BN: tile[1], BK: tile[2]},
        schedule=wd.Schedule(stages=tile[3], persistent=True, split_k=1),
    )  # fmt: skip
    def large(
        a: wd.Memory[M, K, wd.SHARED, wd.bf16], b: wd.Memory[N, K, wd.SHARED, wd.bf16], c: wd.Memory[M, N, wd.bf16]
    ):  # fmt: skip
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.cast(loop, wd.bf16), c)

    return large.compile(target=target, subs={M: n, N: n, K: n})


def emulated(target: str, n: int, tile: tuple[int, int, int, int]) -> Any:
    """One workgroup of the launch on zeros."""
    array = np.zeros((n, n), wd.bf16.storage)
    return sample(gemm(target, n, tile), [array, array, np.zeros((n, n), wd.bf16.storage)])


def against_published() -> list[dict[str, Any]]:
    """Predicted TFLOP/s of the best tile beside what was measured."""
    rows = []
    for target, product, n, measured in PUBLISHED:
        for tile in TILES[target]:
            timing = emulated(target, n, tile).timing
            predicted = 2 * n**3 / (timing.cycles / SMS[target].gigahertz) / 1e3
            rows.append(
                {
                    "product": product, "N": n, "tile": "x".join(map(str, tile[:3])), "stages": tile[3],
                    "predicted": round(predicted), "tensor": round(timing.utilisation["tensor"], 3),
                    "published": ", ".join(f"{who} {x}" for who, x in measured.items()),
                    "ratio to best": round(predicted / max(measured.values()), 2),
                }
            )  # fmt: skip
    return rows


def sensitivity(target: str = "sm_90a", n: int = 4096) -> list[dict[str, Any]]:
    """The first tile's GEMM when one assumption is changed."""
    report = emulated(target, n, TILES[target][0])
    rows = []
    for change in ASSUMPTIONS:
        timing = report.replay(chip=varied(target, **change))
        rows.append(
            {
                "target": target, "assumption": ", ".join(f"{k} = {v:g}" for k, v in change.items()) or "as stated",
                "cycles": timing.cycles, "tensor": round(timing.utilisation["tensor"], 3),
            }
        )  # fmt: skip
    return rows


def against_measured() -> dict[str, tuple[float, float]]:
    """What `model_error.py` has found last: the product, and the ratios that 10 and 90 % of the GEMMs do not exceed."""
    path = ROOT / "benchmarks" / "results" / "model_error.json"
    if not path.is_file():
        return {}
    found = json.loads(path.read_text())
    ratios = sorted(row["ratio"] for row in found["rows"] if "ratio" in row and row["kind"] == "products")
    low, high = (ratios[int(share * (len(ratios) - 1))] for share in (0.1, 0.9))
    return {found["product"]: (round(low, 2), round(high, 2))}


_ERROR_FILE = '''"""How far the warp replay of PTX is from others. Written by `benchmarks/warp_model.py --update`."""

from __future__ import annotations

PUBLISHED = {published}
"""Product: lowest and highest of (predicted over best published TFLOP/s) of bf16 GEMMs.

Predicted for our best tile at the table's clock; published for hand-tuned kernels at whatever clock the board kept."""
MEASURED = {measured}
"""Product: predicted over measured seconds of our GEMMs, 10 and 90 % of them below (`benchmarks/model_error.py`)."""
'''


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--update", action="store_true")
    given = options.parse_args()
    published, changed = against_published(), sensitivity()
    for rows in (published, changed):
        print(table(list(rows[0]), [list(row.values()) for row in rows]))
    if given.update:
        best: dict[tuple[str, int], float] = {}
        for row in published:
            key = row["product"], row["N"]
            best[key] = max(best.get(key, 0.0), row["ratio to best"])
        products: dict[str, list[float]] = {}
        for (product, _), ratio in best.items():
            products.setdefault(product, []).append(ratio)
        found = ", ".join(f'"{product}": {min(x), max(x)}' for product, x in products.items())
        path = ROOT / "runtime" / "emulator" / "ptx/warp_error.py"
        written = _ERROR_FILE.format(published="{" + found + "}", measured=repr(against_measured()).replace("'", '"'))
        path.write_text(written, encoding="utf-8")
    parts = [{"table": "published", **row} for row in published] + [{"table": "sensitivity", **row} for row in changed]
    print(record.write("warp_model", parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
