"""Autotuning: which tiles and schedule a kernel should have for the shapes it meets.

    @wd.autotune(key=[M, N, K])
    @wd.wave([...])
    def gemm(a, b, c): ...

    gemm.tune(subs={M: 4096, N: 4096, K: 4096}, target="gfx942", budget=60)

`candidates` derives the search space and drops what no chip could hold; `work` compiles, predicts and checks one
candidate in a worker process; `tuner` orders, prunes, measures and chooses; `results` keeps what was found in a JSON
file beside the source. Without a GPU, candidates are ranked by the emulator's cycle model, and every report says so.
"""

from __future__ import annotations

from wavedsl.tuning.candidates import Candidate, derive_space
from wavedsl.tuning.outcome import TuningInterrupted, TuningResult
from wavedsl.tuning.results import ResultsFile
from wavedsl.tuning.tuned_kernel import TunedKernel, autotune
from wavedsl.tuning.tuner import tune
from wavedsl.tuning.workers import WorkerPool

__all__ = [
    "Candidate",
    "ResultsFile",
    "TunedKernel",
    "TuningInterrupted",
    "TuningResult",
    "WorkerPool",
    "autotune",
    "derive_space",
    "tune",
]
