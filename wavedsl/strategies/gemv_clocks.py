"""Clocks of matrix-vector products on chips whose waves load their own operands, and the cut of fewest.

In: a form, the few rows M, N and K, a chip of AMD's. Out: cuts of B as [K, N] by their estimated clocks, those of B as
[N, K] as they are; either can be compared with `matrix_cuts`' tiles of the same product.

    trip     the longest of: multiply-adds, widening and adding up, an instruction a clock and unit; lines of B and A
             from L2; the port of vector memory; a load's latency, since loads run one trip ahead
    launch   workgroups of the busiest unit, as many together as registers hold, x trips x trip, no less than memory
             takes; sums that lanes and waves add up behind the loop, each of its workgroups; with parts of K, loads of
             all of them by whoever comes last

Fitted to what the emitted text takes of 563 such products on MI300X and MI355X, bf16 and fp8, one to four rows, or to
memory's time where that is longer: 15 % of standard deviation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wavedsl.analysis.strategy import GEMV_ROWS, VECTOR_BYTES
from wavedsl.ir.product import Product
from wavedsl.strategies import matrix_cuts
from wavedsl.strategies.caching import runs_ahead
from wavedsl.strategies.gemv_cuts import LEAST_STEPS, GemvCut, fits, gemv_cut
from wavedsl.strategies.kernels import Form

SEGMENTS = (256, 128, 64)
"""Bytes of a row of B as [K, N] that a workgroup has."""
LOADS, WAVES = (2, 4, 8), (1, 2, 4, 8)
"""Vectors of a lane per trip, and waves that share K, at most."""
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
LEAST_WAVES, MOST_WAVES = 4, 16
"""Waves of a workgroup, to which the compiler deals its rows and columns."""
LANE_PRODUCTS = 32
"""Multiply-adds of a lane per trip for which the compiler makes waves, within these."""
ADDS_ALONG, ADDS_ACROSS, INTEGER_ADDS = 1.5, 1.75, 2.1
"""Instructions for an element of B and a row of A, beside one that widens the element: of B as [N, K], where two sums
are added at once, as [K, N], where some multiply first and add behind, and of integers."""
PER_LOAD = 2
"""Instructions of a load of A, for its address."""
REGISTERS, PER_WORD = 16, 1.25
"""Registers of a lane: some, and these for each word of sums and of a widened load."""
LEAST_HELD, LANE_REGISTERS = 64, 512
"""What a wave takes at least of the registers that a lane has for all waves of a SIMD: eight reside."""
BESIDE = 0.3
"""Share of the shorter of multiply-adds and lines of memory that the longer one does not hide."""
A_LOADS = 8
"""Clocks of the port for a load of one number a lane."""
A_MISSES = 0.25
"""Share of A's lines that first-level caches do not keep for the waves of a unit."""
BEGIN, EACH = 1600, 500
"""Clocks of a launch, and of each workgroup behind another."""
ADDED_ACROSS, ADDED_ALONG = 14, 12
"""Instructions behind the loop for each sum of a lane of B as [K, N], and for each row of B as [N, K]."""
MEETING = 2.0
"""Clocks for each sum of a wave that others share K with: it goes through shared memory."""
ALIKE = 1.03
"""Factor of the least clocks up to which a cut of whole cache lines is taken in place of one of parts of lines."""
EXCHANGE, FURTHER, PART = 0.5, 150, 0.6
"""Of an exchange of parts of K, as shares of what tiles take; of each further one of a unit; and for each part, of a
load's latency."""


class Found(NamedTuple):
    """A cut and its estimated clocks."""

    clocks: float
    cut: GemvCut


def suits(form: Form, rows: int, chip: Product) -> bool:
    """Whether there is an estimate, of matrix-vector products and of tiles. None of four rows of f32 and f64, some of
    which the compiler has read a number at a time, so that the port is full: f64 of 14336 columns by 4096, estimated at
    59 us on MI355X, took 110, and in another cut 55."""
    widened = form.dtype.bits < form.sums.bits
    return matrix_cuts.suits(form, chip) and not runs_ahead(chip) and (widened or rows < GEMV_ROWS)


def best_gemv(form: Form, m: int, n: int, k: int, chip: Product) -> Found:
    """The cut of fewest estimated clocks of B as [K, N], where that saves a tenth of those of the one that keeps enough
    bytes on their way; of B as [N, K] that one, since its cuts differ in little else."""
    return _best_gemv(form, (m, n, k), gemv_cut(form, m, n, k, chip), matrix_cuts.Unit.of(chip, form))


@functools.lru_cache(maxsize=4096)
def _best_gemv(form: Form, sizes: tuple[int, int, int], own: GemvCut, unit: matrix_cuts.Unit) -> Found:
    others = [] if form.b_rows else _across(form, sizes, unit)
    cuts = np.array([(own.columns, own.deep, own.waves, own.split), *others])
    needed = _clocks(form, sizes, cuts, unit)
    least = needed.min()
    if least >= matrix_cuts.GAIN * needed[0]:
        return Found(float(needed[0]), own)
    alike = np.flatnonzero(needed <= ALIKE * least)
    whole = np.minimum(cuts[alike, 0] * form.dtype.bits // 8, unit.line)
    best = alike[np.lexsort((needed[alike], -whole))[0]]
    return Found(float(needed[best]), GemvCut(*map(int, cuts[best])))


def _across(form: Form, sizes: tuple[int, int, int], unit: matrix_cuts.Unit) -> list[tuple[int, int, int, int]]:
    """Fields of cuts of B as [K, N]: runs of a row, rows that lanes and waves share, parts of K."""
    (m, _, k), size = sizes, form.dtype.bits // 8
    found = []
    for segment in SEGMENTS:
        rows = unit.lanes * VECTOR_BYTES // segment
        for loads in LOADS:
            if not fits(form, m, loads, loads + m * loads * size / VECTOR_BYTES, VECTOR_BYTES // size):
                continue
            for waves in WAVES:
                deep = rows * loads * waves
                if deep - rows * loads < k:
                    most = k // deep // LEAST_STEPS
                    found += [(segment // size, deep, waves, parts) for parts in PARTS if parts == 1 or parts <= most]
    return found


def clocks(form: Form, sizes: tuple[int, int, int], cuts: Sequence[GemvCut], unit: matrix_cuts.Unit) -> Any:
    """Clocks that a matrix-vector product is estimated to take in each of these cuts; infinity where a wave's sums and
    loads spill."""
    return _clocks(form, sizes, np.array([(x.columns, x.deep, x.waves, x.split) for x in cuts]), unit)


class _Cuts(NamedTuple):
    """Several cuts, an array for each field of `GemvCut`; loads of B of a workgroup by whole waves (`vectors`), its
    `waves` as the compiler deals rows and columns to them, and by how many of these each load is done `again`, since
    they share out rows of A."""

    columns: Any
    deep: Any
    along: Any
    parts: Any
    vectors: Any
    waves: Any
    again: Any

    @staticmethod
    def of(form: Form, m: int, cuts: Any, unit: matrix_cuts.Unit) -> _Cuts:
        """`cuts`: a row of the fields of each."""
        columns, deep, along, parts = cuts.astype(float).T
        vectors = columns * deep * form.dtype.bits / 8 / (unit.lanes * VECTOR_BYTES)
        dealt = (1 << (m - 1).bit_length()) * columns * deep / (unit.lanes * LANE_PRODUCTS)
        waves = np.maximum(along, np.clip(2.0 ** np.ceil(np.log2(dealt)), LEAST_WAVES, MOST_WAVES))
        waves = np.minimum(waves, along * columns) if form.b_rows else waves
        return _Cuts(columns, deep, along, parts, vectors, waves, np.maximum(1.0, waves / vectors))


def _clocks(form: Form, sizes: tuple[int, int, int], cuts: Any, unit: matrix_cuts.Unit) -> Any:
    m, n, k = sizes
    x, pace, units = _Cuts.of(form, m, cuts, unit), unit.pace, unit.rates.units
    groups = np.ceil(n / x.columns) * x.parts
    each = np.ceil(groups / units)
    held = _registers(form, m, x)
    room = np.floor(unit.simds * LANE_REGISTERS / np.clip(held, LEAST_HELD, LANE_REGISTERS) / x.waves)
    together = np.minimum(each, np.maximum(1, room))
    per_clock = np.minimum(1.0, x.waves * together / unit.simds)
    added, lines, port, behind = _work(form, m, x, unit)
    work = together * np.array([added / per_clock, lines, port])
    busy = (1 - BESIDE) * work.max(axis=0) + BESIDE * work[:2].sum(axis=0)
    trip = np.maximum(busy, pace.load + pace.far + pace.mixed * busy)
    trips = np.ceil(np.ceil(k / x.deep) / x.parts)
    needed = BEGIN + each / together * (trips * trip + together * behind / per_clock + EACH)
    needed += MEETING * each * m * x.columns * np.where(form.b_rows & (x.along == 1), 0, x.along)
    exchanged = EXCHANGE * pace.exchange + FURTHER * (each - 1) + PART * pace.load * x.parts
    needed += np.where(x.parts > 1, exchanged, 0.0)
    uneven = np.where((groups > units) & (not form.b_rows), each * units / groups, 1.0)  # rows have many, and small
    needed = matrix_cuts.longer(needed, uneven * matrix_cuts.memory_of(form, m + n, m * n, k, unit))
    return np.where(held * np.ceil(x.waves / unit.simds) > LANE_REGISTERS, np.inf, needed)


def _registers(form: Form, m: int, x: _Cuts) -> Any:
    """Registers of a lane."""
    width, words = VECTOR_BYTES * 8 / form.dtype.bits, max(1, form.sums.bits // 32)
    sums = m * (x.columns if form.b_rows else width) / x.again
    return REGISTERS + PER_WORD * words * (sums + width * np.maximum(1.0, x.vectors / x.waves))


def _work(form: Form, m: int, x: _Cuts, unit: matrix_cuts.Unit) -> tuple[Any, Any, Any, Any]:
    """Of a workgroup's trip: instructions, clocks of lines from L2, and of the port of vector memory; and instructions
    behind its loop."""
    size, width = form.dtype.bits / 8, VECTOR_BYTES * 8 / form.dtype.bits
    adds = INTEGER_ADDS if form.sums.is_int else ADDS_ALONG if form.b_rows else ADDS_ACROSS
    widened = form.dtype.bits < form.sums.bits
    added = x.vectors * (width * (widened * x.again + adds * m) + PER_LOAD * m)
    whole = 1.0 if form.b_rows else np.maximum(1.0, unit.line / x.columns / size)  # runs of half a line bring all of it
    lines = x.vectors * unit.lanes * VECTOR_BYTES * whole + A_MISSES * m * np.maximum(unit.line, x.deep * size)
    port = x.vectors * (VECTOR_BYTES * x.again + m * (VECTOR_BYTES if form.b_rows else A_LOADS))
    behind = x.waves * m * (ADDED_ALONG if form.b_rows else width * ADDED_ACROSS)
    return added, lines / unit.loads, port, behind


__all__ = ["Found", "best_gemv", "clocks", "suits"]
