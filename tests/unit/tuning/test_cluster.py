"""A dask cluster's executor: compiles and clock counts spread over its workers, one of which is killed midway."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import tune_kernels as tk
from tune_kernels import BM, BN, M, N, double

from wavedsl.tuning import tune
from wavedsl.tuning.progress import Progress
from wavedsl.tuning.tuner import Steps


class KillOne(Progress):
    """Kills one worker process after the third candidate."""

    def __init__(self, client) -> None:
        self.client = client
        self.steps = 0
        self.killed: int | None = None

    def step(self, best: str = "") -> None:
        self.steps += 1
        if self.steps == 3:
            workers = self.client.run(os.getpid)
            self.killed = sorted(workers.values())[0]
            os.kill(self.killed, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_of_a_dask_cluster_is_killed_midway(tmp_path: Path):
    distributed = pytest.importorskip("distributed")
    results = tmp_path / "double.tuning.json"
    tiles = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killer = KillOne(client)
        found = tune(
            double, subs={M: 64, N: 256}, space={BM: tiles, BN: [256]}, target="gfx942", results=results,
            executor=client.get_executor(), budget=120.0, timeout=60.0, progress=killer, keep=1.0,
            steps=Steps(compile=tk.slow_compile),
        )  # fmt: skip
        assert killer.killed is not None and killer.killed not in client.run(os.getpid).values()
    assert found.count("ok") == len(tiles), {k: e.get("reason") for k, e in found.entries.items()}
    assert found.best is not None and found.seconds == min(e["seconds"] for e in found.entries.values())
    again = tune(double, subs={M: 64, N: 256}, space={BM: tiles, BN: [256]}, target="gfx942", results=results, keep=1.0,
                 steps=Steps(tk.forbidden, tk.forbidden, tk.forbidden))  # fmt: skip
    assert again.best == found.best
