"""What a Hopper chip takes for the things that the cycle model assumes, one at a time.

    python benchmarks/gpu_rates.py                       a minute on a GPU; writes results/gpu_rates.json
    python benchmarks/gpu_rates.py --emulate             that the texts run: no number is one of a chip
    python benchmarks/gpu_rates.py --only "L2" product

Texts by hand (rate_probes.py) are launched alone, a few times each; the median is printed beside the field of `SmModel`
that stands for it, as predicted.py sets it for an H200. A copy of 128 bytes less a hit's latency is `bulk_latency`;
products of 8 together tell the matrix unit's rate, and one alone what waiting costs on top (`product_latency`).
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import predicted
import record
from rate_probes import FILL, PROBES, Probe
from wavedsl.runtime import devices
from wavedsl.runtime.emulator.ptx import run_ptx

from wavedsl.reports import table

TARGET = "sm_90a"
REPEATS = 7
SWEEP = 256 << 20
"""Bytes that are cleared so that nothing else is left in L2, which holds 50 MB."""
TINY_STEPS, TINY_SOURCE, TINY_GRID = 6, 512 << 10, 4
"""Of a run on the emulator."""


def emulated(probe: Probe) -> list[float]:
    """One run on the emulator, every check on, of a few steps and CTAs."""
    grid = min(probe.grid, TINY_GRID)
    source = np.zeros(probe.source, np.uint8)
    found = np.zeros(grid, np.uint64)
    shape: dict[str, Any] = {"target": TARGET, "args": (source, found, TINY_STEPS), "shared_bytes": probe.shared}
    if probe.linked:
        run_ptx(probe.text, grid=(1,), block=(32,), kernel=FILL, **{**shape, "shared_bytes": 0})
    run_ptx(probe.text, grid=(grid,), block=(probe.block,), kernel="probe", **shape)
    return [probe.value([int(x) for x in found], TINY_STEPS)]


class Chip:
    """The GPU that the probes run on."""

    def __init__(self, driver: Any):
        self.driver = driver
        self.sweep = driver.allocate(SWEEP)

    def measured(self, probe: Probe) -> list[float]:
        """The value of each repetition; the first launch, which loads the code, does not count."""
        driver = self.driver
        source, found = driver.allocate(probe.source), driver.allocate(8 * probe.grid)
        clocks = np.zeros(probe.grid, np.uint64)
        values = []
        try:
            driver.clear(source, probe.source, 0)
            if probe.linked:
                self._launch(probe, FILL, 132, 0, source, found)
            for _ in range(1 + REPEATS):
                if probe.cold:
                    driver.clear(self.sweep, SWEEP, 0)
                self._launch(probe, "probe", probe.grid, probe.shared, source, found)
                driver.synchronize(0)
                driver.download(clocks, found)
                values.append(probe.value([int(x) for x in clocks], probe.steps))
        finally:
            driver.free(source)
            driver.free(found)
        return values[1:]

    def _launch(self, probe: Probe, name: str, grid: int, shared: int, source: int, found: int) -> None:
        function = self.driver.load(probe.text, TARGET, name, shared)
        values = ctypes.c_uint64(source), ctypes.c_uint64(found), ctypes.c_uint32(probe.steps)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(x) for x in values))
        block = probe.block if name != FILL else 256
        self.driver.launch(function, (grid, 1, 1), (block, 1, 1), ctypes.addressof(pointers), 0)
        self.driver.synchronize(0)  # the parameters are gone afterwards


def rows(probes: Sequence[Probe], run: Any) -> list[dict[str, Any]]:
    """A row for each probe; one that fails says why, and the next one runs."""
    done = []
    for probe in probes:
        row: dict[str, Any] = {"probe": probe.name, "unit": probe.unit, "field": probe.models}
        if probe.models is not None:
            row["model"] = getattr(predicted.model(), probe.models)
        try:
            values = run(probe)
            row |= {"measured": statistics.median(values), "least": min(values), "most": max(values)}
        except Exception as error:  # a dead context ends all others too: their rows say so
            row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        print(f"{probe.name}: {row.get('failed') or row['measured']}", file=sys.stderr)
        done.append(row)
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--emulate", action="store_true", help="run the texts on the emulator, a few steps each")
    options.add_argument("--only", nargs="+", help="probes whose names contain one of these")
    options.add_argument("--device", type=int, default=0, help="number of the GPU (default %(default)s)")
    options.add_argument("--out", type=Path, help="folder of the JSON (default: benchmarks/results)")
    given = options.parse_args(arguments)
    chosen = [x for x in PROBES if given.only is None or any(part in x.name for part in given.only)]
    if given.emulate:
        chosen = [replace(x, source=min(x.source, TINY_SOURCE)) for x in chosen]
    driver: Any = None if given.emulate else devices.open_driver("cuda", given.device)
    done = rows(chosen, emulated if given.emulate else Chip(driver).measured)
    heads = ("probe", "measured", "least", "most", "unit", "model", "field")
    print(table(heads, [[r.get(head) for head in heads] for r in done]))
    if given.emulate:
        print("on the emulator: that the texts run, no number of a chip")
    else:
        print(record.write("gpu_rates", done, given.out, gpu=driver.name))
    return 1 if any("failed" in r for r in done) else 0


if __name__ == "__main__":
    sys.exit(main())
