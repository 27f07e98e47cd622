"""Tiles, waves and parts of K for products that waves multiply out of shared memory: AMD's chips, and NVIDIA's before
Hopper.

In: a form, M, N and K, a chip. Out: the `TileChoice` of least estimated clocks, among tiles of 16 to 256 a side, four
or eight waves, rows of 128 or 256 bytes, and up to `MOST_PARTS` parts of K.

    step     the longest of: products on the matrix units of the waves that reside; shared memory, which copies fill and
             waves read; what comes from L2; a load's latency, over the steps that copies run ahead and the workgroups
             that wait side by side
    launch   workgroups of the busiest unit x steps x step, no less than memory takes; what it begins and ends with;
             with parts, sums that leave, and that the last workgroup of a tile reads of all parts

Fitted to what the cycle model says of 490 products in bf16 (M x N x K from 16 x 8192 x 8192 to 2048 cubed, all such
tiles) on MI300X, MI355X and A100: 11, 11 and 15 % of standard deviation. No chip has said anything of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from wavedsl.analysis.strategy import PERSISTENT_K, TileChoice
from wavedsl.ir.product import Pace, Product
from wavedsl.strategies.caching import runs_ahead
from wavedsl.strategies.kernels import Form
from wavedsl.strategies.warpgroups import Rates
from wavedsl.targets import get_target

SIDES = (16, 32, 64, 128, 256)
ROWS = (128, 256)
"""Bytes of a row of a step."""
MOST_AREA = 256 * 128
WIDE_AREA = 128 * 128
"""Elements of a tile from which on eight waves are tried, too."""
MOST_SUMS, MOST_DOUBLES = 128, 32
"""Sums of a lane at most, and those of f64, whose operands are as wide."""
MOST_SIDES = 192
"""Rows and columns of a tile, together, up to which sm_80's rows are longer: of others ptxas spills what it reads."""
MOST_PARTS = 32
LEAST_DEPTH = 2 * PERSISTENT_K
"""Elements of K that a part has at least."""
HOPELESS = 1.3
"""Factor of the least estimated clocks beyond which a cut is not tried."""
GAIN = 0.9
"""Share of the clocks of what there is that another cut must be estimated to take at most."""
GAIN_OF_BLOCKS = 0.8
"""The same of blocks of ragged groups: products of a few rows per group, which memory bounds, gain nothing."""


class Unit(NamedTuple):
    """What an estimate asks of a chip: its rates; multiply-adds per clock of a unit; bytes per clock of a unit's ports
    of shared memory and of L2; bytes of its shared memory; its SIMDs; lanes of a wave; whether copies run as far ahead
    as a ring has slots; whether its assembler orders instructions; the share of memory's rate that kernels reach; its
    pace."""

    rates: Rates
    products: float
    shared: float
    loads: float
    shared_bytes: int
    simds: int
    lanes: int
    ahead: bool
    assembler: bool
    reached: float
    pace: Pace

    @staticmethod
    def of(chip: Product, form: Form) -> Unit:
        target, rates = get_target(chip.target), Rates.of(chip)
        assert chip.pace is not None, "asked of a product that `suits` refuses"
        return Unit(
            rates, chip.matrix_rates(target)[form.multiplied.name] / 2, chip.unit_port(target, "load.shared"),
            min(rates.unit, chip.unit_port(target, "load.global")), target.shared_bytes, target.simds,
            target.wave_size, runs_ahead(chip), target.assembler_schedules, chip.reached, chip.pace,
        )  # fmt: skip


def suits(form: Form, chip: Product) -> bool:
    """Whether waves multiply this dtype by matrix instructions whose operands they load themselves, on a chip that has
    no other ones, and whose pace is known."""
    target = get_target(chip.target)
    if form.precision or target.warpgroup is not None or chip.pace is None:
        return False
    return form.multiplied.name in chip.matrix_rates(target)


def too_long(form: Form, tiles: TileChoice, chip: Product) -> bool:
    """Whether a tile's rows are longer than those that its rows and columns leave registers for."""
    wide = get_target(chip.target).assembler_schedules and tiles.tile_m + tiles.tile_n > MOST_SIDES
    return wide and suits(form, chip) and tiles.tile_k * form.dtype.bits // 8 > ROWS[0]


def better_cut(
    form: Form, sizes: Sequence[int], tiles: TileChoice, chip: Product, dealt: bool = False, along_k: bool = False
) -> TileChoice | None:  # fmt: skip
    """The cut of least estimated clocks; None where `tiles` take about as many, and where nothing can be estimated.
    `dealt`: of `tiles`, units would share the steps of all; `along_k`: waves would share K."""
    if not suits(form, chip):
        return None
    unit = Unit.of(chip, form)
    found = _best(form, tuple(sizes), unit)
    if found is None or clocks(form, sizes, found, unit) >= GAIN * clocks(form, sizes, tiles, unit, dealt, along_k):
        return None
    return found


@functools.lru_cache(maxsize=4096)
def _best(form: Form, sizes: tuple[int, ...], unit: Unit) -> TileChoice | None:
    return min(_cuts(form, sizes, unit), key=lambda x: clocks(form, sizes, x, unit), default=None)


def best_cuts(form: Form, sizes: Sequence[int], chip: Product) -> Iterator[TileChoice]:
    """The best of each tile, the best of all first, while they are estimated to take no more than `HOPELESS` times as
    long as that."""
    if not suits(form, chip):
        return
    unit, seen = Unit.of(chip, form), set[tuple[int, int]]()
    found = sorted((clocks(form, sizes, x, unit), i, x) for i, x in enumerate(_cuts(form, tuple(sizes), unit)))
    for needed, _, cut in found:
        if needed > HOPELESS * found[0][0]:
            return
        if (cut.tile_m, cut.tile_n) not in seen:
            seen.add((cut.tile_m, cut.tile_n))
            yield cut


def clocks(
    form: Form, sizes: Sequence[int], tiles: TileChoice, unit: Unit, dealt: bool = False, along_k: bool = False
) -> float:  # fmt: skip
    """Clocks that a product is estimated to take; `dealt` and `along_k` as for `better_cut`."""
    m, n, k = sizes
    groups = ceil(m / tiles.tile_m) * ceil(n / tiles.tile_n) * tiles.split
    total = _launch(form, tiles, unit, groups, k, _memory(form, m + n, m * n, k, unit), dealt, along_k)
    if tiles.split == 1:
        return total
    rates, each = unit.rates, ceil(groups / unit.rates.units)
    sums = tiles.tile_m * tiles.tile_n * form.sums.bits / 8 / unit.loads
    held = tiles.split * m * n * form.sums.bits / 8
    return total + each * sums + unit.pace.exchange + rates.added(tiles.split, sums) + rates.spilled(held)


def better_blocks(
    form: Form, groups: Sequence[int], n: int, k: int, tiles: TileChoice, chip: Product
) -> TileChoice | None:  # fmt: skip
    """The block of rows of ragged `groups`, and of their columns of N, of least estimated clocks; None where `tiles`
    take about as many, and where nothing can be estimated."""
    if not suits(form, chip):
        return None
    unit, used = Unit.of(chip, form), [x for x in groups if x]
    memory = _memory(form, len(used) * n + sum(used), sum(used) * n, k, unit)

    def needed(tiles: TileChoice) -> float:
        count = sum(ceil(x / tiles.tile_m) for x in used) * ceil(n / tiles.tile_n)
        return _launch(form, tiles, unit, count, k, memory, False, False)

    found = min((x for x in _cuts(form, (max(used), n, k), unit) if x.split == 1), key=needed, default=tiles)
    return found if needed(found) < GAIN_OF_BLOCKS * needed(tiles) else None


def _memory(form: Form, rows: int, results: int, k: int, unit: Unit) -> float:
    """Clocks that memory takes for so many rows of both operands, and results."""
    return (rows * k * form.dtype.bits + results * form.out.bits) / 8 / unit.rates.memory / unit.reached


def _launch(
    form: Form, tiles: TileChoice, unit: Unit, groups: int, k: int, memory: float, dealt: bool, along_k: bool
) -> float:  # fmt: skip
    """Clocks of a launch of so many workgroups, but for the exchange of parts. `memory`: clocks of the least that it
    moves."""
    rates, pace = unit.rates, unit.pace
    size = form.dtype.bits / 8
    rows, columns, deep = tiles.tile_m, tiles.tile_n, tiles.tile_k
    waves, stages = tiles.waves_m * tiles.waves_n, _stages(form, tiles, unit)
    each = 1 if dealt else ceil(groups / rates.units)
    stage = (rows + columns) * deep * size
    resident = max(1, min(each, int(unit.shared_bytes // (stages * stage)), 16 * unit.simds // waves))
    products = rows * columns * deep / unit.products * unit.simds / min(unit.simds, waves * resident)
    read = stage if along_k else waves * (rows / tiles.waves_m + columns / tiles.waves_n) * deep * size
    busy = max(products, (read + stage) / unit.shared, stage / unit.loads)
    ahead = max(1, stages - 1) if unit.ahead else 1
    step = max(busy + pace.step / resident, (pace.load + pace.mixed * busy) / (ahead * resident))
    steps = ceil(k / tiles.split / deep)
    steps = ceil(groups * steps / rates.units) if dealt else each * steps
    return max(steps * step, memory) + pace.ends * max(1.0, each / resident)


def _stages(form: Form, tiles: TileChoice, unit: Unit) -> int:
    """Slots of the ring, as the plan and the compiler have them."""
    if tiles.pipeline_stages or not unit.ahead:
        return tiles.pipeline_stages or 2
    stage = (tiles.tile_m + tiles.tile_n) * tiles.tile_k * form.dtype.bits // 8
    return max(2, min(4, unit.shared_bytes // stage))


def _cuts(form: Form, sizes: tuple[int, ...], unit: Unit) -> Iterator[TileChoice]:
    m, n, k = sizes
    for rows in SIDES:
        for columns in SIDES:
            if rows * columns > MOST_AREA or (rows > 16 and rows >= 2 * m) or (columns > 16 and columns >= 2 * n):
                continue
            for count in (4, 8) if rows * columns >= WIDE_AREA else (4,):
                waves = _waves(rows, columns, count)
                sums = rows * columns / (unit.lanes * count)
                if sums > (MOST_SUMS if form.sums.bits == 32 else MOST_DOUBLES):
                    continue
                for row in ROWS[: 1 if unit.assembler and rows + columns > MOST_SIDES else None]:
                    deep = row * 8 // form.dtype.bits
                    if waves is None or 2 * (rows + columns) * row > unit.shared_bytes or deep > 2 * k:
                        continue
                    stages = 0 if unit.ahead else 2
                    tiles = TileChoice(rows, columns, deep, stages, *waves, 16 * 8 // form.dtype.bits, 0)
                    yield tiles
                    if unit.assembler and 2 * sums > MOST_SUMS:
                        continue  # parts of sums are loaded beside them, and ptxas spills
                    for parts in range(2, min(MOST_PARTS, k // LEAST_DEPTH) + 1):
                        yield replace(tiles, split=parts)


def _waves(rows: int, columns: int, count: int) -> tuple[int, int] | None:
    """As many waves as square as they can be, of 16 rows and columns at least."""
    along = [1, 1]
    while along[0] * along[1] < count:
        sides = rows // along[0], columns // along[1]
        longer = 0 if sides[0] > sides[1] else 1
        if sides[longer] < 32:
            return None
        along[longer] *= 2
    return along[0], along[1]


__all__ = ["Unit", "best_cuts", "better_blocks", "better_cut", "clocks", "suits", "too_long"]
