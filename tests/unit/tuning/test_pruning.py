"""The model's pruning against an exhaustive search by the emulator's clocks.

How long the compile part takes is a benchmark: `benchmarks/tuning_compile.py`.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest
from tune_kernels import BK, BM, BN, K, M, N, gemm

from wavedsl.tuning import tune
from wavedsl.tuning.tuner import Steps

SPACE = {BM: [32, 64, 128], BN: [32, 64, 128], BK: [16, 32, 64, 128], "stages": [1, 2, 3]}
HOPPER = {BM: [64, 128, 256], BN: [64, 128, 256], BK: [32, 64, 128], "stages": [2, 3, 4], "persistent": [0, 1]}


RANKED_LATE = pytest.mark.xfail(
    reason="the best, 2 % faster than the best of those kept, is number 43 of 100 by the model", strict=True
)


def compiled_only(task):
    return {"status": "ok"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "sizes", "space"),
    [
        ("gfx942", (1024, 1024, 512), SPACE),
        pytest.param("gfx950", (1024, 1024, 512), SPACE, marks=RANKED_LATE),
        ("sm_80", (1024, 1024, 512), SPACE),
        ("sm_90a", (1024, 1024, 512), HOPPER),
    ],
    ids=str,
)
def test_the_best_of_all_is_among_the_ten_percent_that_the_model_keeps(tmp_path: Path, target, sizes, space):
    found = tune(
        gemm, subs=dict(zip((M, N, K), sizes)), space=space, target=target, results=tmp_path / "r.json", keep=1.0,
        budget=300.0, limit=100, steps=Steps(check=compiled_only),
    )  # fmt: skip
    ran = {k: e for k, e in found.entries.items() if e.get("seconds")}
    assert len(ran) >= 80 and found.count("wrong") == found.count("crashed") == 0
    by_model = sorted(ran, key=lambda k: (ran[k]["predicted"], k))
    kept = by_model[: ceil(0.1 * len(ran))]
    best = min(e["seconds"] for e in ran.values())
    assert min(ran[k]["seconds"] for k in kept) == best
