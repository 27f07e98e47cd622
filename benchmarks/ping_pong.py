"""Waves in step or half a trip apart: what the compiler expects of both, beside the clocks of the emitted text.

    python benchmarks/ping_pong.py [--target gfx942] [--order NK KN] [--tile 128x128x64/32x64] [--shown]

f16 products of one workgroup of eight waves, in all tiles of 64 to 256 a side and 32 to 128 of K. A trip's clocks in
the text are what half as many trips more take, alone on a compute unit, and, per workgroup, as many together as it
holds. Printed per chip and order of B: the mean error of the estimates (`ir/schedule/body_clock.py`) of both schedules,
and how much longer than the faster one what is chosen takes, together. `--shown`: every tile. Nothing is measured.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from math import exp, log
from typing import NamedTuple

import gemm_kernels as kernels
import numpy as np
from wavedsl.codegen.amdgcn.target import resident_groups
from wavedsl.ir.schedule.body_clock import clocks_per_trip
from wavedsl.ir.schedule.ping_pong import KIND
from wavedsl.runtime.emulator.cycle_queue import Launch

import wavedsl as wd
from wavedsl.reports import table
from wavedsl.targets import get_target

TARGETS = ("gfx90a", "gfx942", "gfx950")
SIDES, DEPTHS, WAVES = (64, 128, 256), (32, 64, 128), ((4, 2), (2, 4))
MOST_SUMS = 128 * 64
TRIPS = (16, 24)
MEMORY = 0.06
"""Part of the traffic that misses L2."""


class Clocks(NamedTuple):
    """Of a trip: estimated, and of the text, alone and together."""

    played: float
    alone: float
    together: float


def tiles() -> Iterator[str]:
    for m, n, k, (waves_m, waves_n) in itertools.product(SIDES, SIDES, DEPTHS, WAVES):
        wave = m // waves_m, n // waves_n
        if min(wave) >= 16 and wave[0] * wave[1] <= MOST_SUMS:
            yield f"{m}x{n}x{k}/{wave[0]}x{wave[1]}"


def compiled(target: str, tile: str, order: str, apart: bool | None, trips: int) -> wd.CompiledKernel:
    m, n, k, *wave = (int(x) for x in tile.replace("/", "x").split("x"))
    options = (("split_k", 1), *([("ping_pong", apart)] if apart is not None else []))
    config = kernels.Config(m, n, k, wave[0], wave[1], options)
    sizes = {kernels.M: m, kernels.N: n, kernels.K: trips * k}
    return kernels.product(kernels.Form(wd.f16, out=wd.f32, b=order), config).compile(target=target, subs=sizes)


def clocks(target: str, tile: str, order: str, apart: bool) -> Clocks:
    """Of one schedule. Raises ConstraintError where the tile cannot have it."""
    m, n, k = (int(x) for x in tile.partition("/")[0].split("x"))
    found = []
    for trips in TRIPS:
        made = compiled(target, tile, order, apart, trips)
        (note,) = made.kernel_ir.notes["lowering"].loops
        a, b = np.zeros((m, trips * k), np.float16), np.zeros((trips * k, n), np.float16)
        report = made.emulate(a, b if order == "KN" else b.T.copy(), np.empty((m, n), np.float32), checks=False)
        groups = max(1, resident_groups(target, made.resources.registers, made.shared_bytes, int(np.prod(made.block))))
        times = [report.replay(Launch(g, g, MEMORY)).cycles / g for g in (1, groups)]
        found.append((note.trips, *times))
    (some, *before), (more, *behind) = found
    alone, together = ((y - x) / (more - some) for x, y in zip(before, behind))
    waves = int(np.prod(made.block)) // 64
    return Clocks(clocks_per_trip(note.body, note.steps, waves, get_target(target)), alone, together)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--target", nargs="*", default=TARGETS, choices=TARGETS, help="default: all")
    options.add_argument("--order", nargs="*", default=("NK", "KN"), choices=("NK", "KN"), help="default: both")
    options.add_argument("--tile", nargs="*", metavar="MxNxK/MxN", help="instead of all")
    options.add_argument("--shown", action="store_true", help="every tile")
    given = options.parse_args()
    sums = []
    for target, order in itertools.product(given.target, given.order):
        rows = []
        for tile in given.tile or tiles():
            try:
                both = [clocks(target, tile, order, apart) for apart in (False, True)]
            except wd.ConstraintError:
                continue  # no tile of this chip, or none with two slots
            (note,) = compiled(target, tile, order, None, TRIPS[0]).kernel_ir.notes["lowering"].loops
            longer = both[note.body.kind == KIND].together / min(x.together for x in both)
            rows.append((target, order, tile, *both[0], *both[1], longer))
        if given.shown:
            each = [f"{x} {y}" for y in ("in step", "apart") for x in Clocks._fields]
            written = [[f"{x:.4g}" if isinstance(x, float) else x for x in r] for r in rows]
            print(table(("target", "B", "tile", *each, "chosen"), written))
        errors = [sum(abs(log(r[i] / r[i + 1])) for r in rows) / len(rows) for i in (3, 6)]
        mean = exp(sum(log(r[-1]) for r in rows) / len(rows))
        over = sum(r[-1] > 1.01 for r in rows)
        sums.append((target, order, len(rows), *(f"{x:.3f}" for x in errors), f"{mean:.4f}", over,
                     f"{max(r[-1] for r in rows):.3f}"))  # fmt: skip
    print(table(("target", "B", "tiles", "error in step", "apart", "chosen", "1 % slower", "at most"), sums))
    return 0


if __name__ == "__main__":
    sys.exit(main())
