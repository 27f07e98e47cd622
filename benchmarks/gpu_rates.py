"""What a Hopper chip takes for the things that the cycle model assumes, one at a time.

    python benchmarks/gpu_rates.py                       a minute on a GPU; writes results/gpu_rates.json
    python benchmarks/gpu_rates.py --emulate             that the texts run: no number is one of a chip
    python benchmarks/gpu_rates.py --only "L2" product

Texts by hand (rate_probes.py) are launched alone, a few times each; the median is printed beside the field of `SmModel`
that stands for it: as predicted.py sets it for an H200, as the description has it for another chip. A probe that hangs
or kills the context is a row that says so (`units`). A copy of 128 bytes less a hit's latency is `bulk_latency`;
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
import units
from rate_probes import FILL, PROBES, Probe
from wavedsl.runtime import devices
from wavedsl.runtime.emulator.ptx.emulator import run_ptx

from wavedsl.analysis.own_clock import sm_of
from wavedsl.analysis.roofline import product_named
from wavedsl.reports import table

TARGET = "sm_90a"
REPEATS = 7
SWEEP = 256 << 20
"""Bytes that are cleared so that nothing else is left in L2, which holds 50 MB."""
TINY_STEPS, TINY_SOURCE, TINY_GRID = 6, 512 << 10, 8
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


PROBE_LIMIT = 20.0
"""Seconds for a probe: all of them together take a minute."""


def model_of(name: str) -> Any:
    """What the cycle model assumes of a chip of that name: as predicted.py has it for an H200, else the description's
    own numbers; None where the chip is not described."""
    from gpu_gemm import product_called

    known = product_called(name)
    if known is None:
        return None
    return predicted.model() if known == "H200" else sm_of(product_named(known))


def rows(probes: Sequence[Probe], run: Any, model: Any, done: Any = None) -> list[dict[str, Any]]:
    """A row for each probe, a unit of `done`; one that fails says why, and the next one runs. `model`: of `model_of`,
    or a function that gives it once a probe has run."""
    done = done or units.Units(Path("none"), keep=False)
    found = []
    for probe in probes:

        def measured(probe: Probe = probe) -> dict[str, Any]:
            values = run(probe)
            return {"measured": statistics.median(values), "least": min(values), "most": max(values)}

        row: dict[str, Any] = {"probe": probe.name, "unit": probe.unit, "field": probe.models}
        row = dict(done.run(f"rate {probe.name}", row, measured, PROBE_LIMIT, ("rates",)))
        if probe.models is not None and model is not None:
            row["model"] = getattr(model, probe.models)
        print(f"{probe.name}: {row.get('failed') or row['measured']}", file=sys.stderr)
        found.append(row)
    return found


def text(done: Sequence[dict[str, Any]]) -> str:
    heads = ("probe", "measured", "least", "most", "unit", "model", "field")
    return table(heads, [[r.get(head) for head in heads] for r in done])


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--emulate", action="store_true", help="run the texts on the emulator, a few steps each")
    options.add_argument("--only", nargs="+", help="probes whose names contain one of these")
    options.add_argument("--device", type=int, default=0, help="number of the GPU (default %(default)s)")
    options.add_argument("--out", type=Path, help="folder of the JSON (default: benchmarks/results)")
    units.option(options)
    given = options.parse_args(arguments)
    chosen = [x for x in PROBES if given.only is None or any(part in x.name for part in given.only)]
    if given.emulate:
        chosen = [replace(x, source=min(x.source, TINY_SOURCE)) for x in chosen]
    driver: Any = None if given.emulate else devices.open_driver("cuda", given.device)
    kept = units.Units(
        (given.out or record.HERE / "results") / "gpu_rates.part.json", budget=given.budget, resume=given.resume,
        limit=given.limit, keep=not given.emulate,
        alive=(lambda: driver.synchronize(0)) if arguments is None and driver is not None else None,
    )  # fmt: skip
    chip = None if given.emulate else Chip(driver)
    run = emulated if chip is None else chip.measured
    done = rows(chosen, run, predicted.model() if chip is None else model_of(driver.name), kept)
    print(text(done))
    if given.emulate:
        print("on the emulator: that the texts run, no number of a chip")
    else:
        print(record.write("gpu_rates", done, given.out, gpu=driver.name))
        kept.done()
    return 1 if any("failed" in r for r in done) else 0


if __name__ == "__main__":
    sys.exit(main())
