"""Tiles, waves and parts of K for products that waves multiply out of shared memory: AMD's chips, and NVIDIA's before
Hopper.

In: a form, M, N and K, a chip. Out: the `TileChoice` of least estimated clocks, among tiles of 16 to 256 a side, four
or eight waves, rows of 128 or 256 bytes, and up to `MOST_PARTS` parts of K, or the steps of all tiles shared by all
units (stream-K).

    step     the longest of: products on the matrix units of the waves that reside; shared memory, which copies fill and
             waves read; what comes from L2; a load's latency, over the steps that copies run ahead and the workgroups
             that wait side by side
    launch   workgroups of the busiest unit x steps x step, no less than memory takes; what it begins and ends with;
             with parts, sums that leave each of these workgroups, and that the last one of a tile reads of all parts

Fitted to what the cycle model says of products in bf16: on A100 of 490 (M x N x K from 16 x 8192 x 8192 to 2048 cubed,
all such tiles), 15 % of standard deviation; on MI300X and MI355X of the best cuts of 11 shapes to 3072 cubed, 44 and
77 of them, 11 and 12 %. No chip has said anything of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from wavedsl.analysis.strategy import PERSISTENT_K, TileChoice
from wavedsl.ir.product import Pace, Product
from wavedsl.strategies.caching import SHARED_SHARE, runs_ahead
from wavedsl.strategies.gemv_cuts import LEAST_STEPS
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
TURNED_COLUMNS = 32
"""Columns of a wave from which on B as [K, N] needs no turning: products of column pairs, or transposing reads."""
ALONE = 0.2
"""Share of the shorter of products and accesses to shared memory that the longer one does not hide where a unit has one
workgroup with one slot."""
SOFT = 6
"""Exponent of the sum that stands for the longer of two."""
GAIN_OF_DEALT = 0.98
"""The same of tiles whose steps units share, relative to whole ones and parts of equal length: of ten products on
MI300X and A100 the emitted text took 0.96 to 1.07 of what is estimated."""
GAIN_OF_BLOCKS = 0.9
"""The same of blocks of ragged groups: products of a few rows per group, which memory bounds, gain nothing."""


class Unit(NamedTuple):
    """What an estimate asks of a chip: its rates; multiply-adds per clock of a unit; bytes per clock of a unit's ports
    of shared memory and of L2; bytes of a cache line and of its shared memory; its SIMDs; lanes of a wave; whether
    copies run as far ahead as a ring has slots; whether its assembler orders instructions; the share of memory's rate
    that kernels reach; its pace."""

    rates: Rates
    products: float
    shared: float
    loads: float
    line: int
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
            min(rates.unit, chip.unit_port(target, "load.global")), target.line_bytes, target.shared_bytes,
            target.simds, target.wave_size, runs_ahead(chip), target.assembler_schedules, chip.reached, chip.pace,
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


class _Cuts(NamedTuple):
    """Several cuts, one number or array for each field of `TileChoice`, and whether units share the steps of all tiles
    (`dealt`) and waves share K (`along_k`)."""

    rows: Any
    columns: Any
    deep: Any
    stages: Any
    waves_m: Any
    waves_n: Any
    split: Any
    dealt: Any = False
    along_k: Any = False

    @staticmethod
    def of(tiles: Sequence[TileChoice], split: Any, unit: Unit, form: Form, **how: Any) -> _Cuts:
        """`split` parts of each: a row for each of `tiles`."""
        of = np.array([(x.tile_m, x.tile_n, x.tile_k, _stages(form, x, unit), x.waves_m, x.waves_n) for x in tiles])
        rows, columns, deep, stages, waves_m, waves_n = of.T[:, :, None]
        return _Cuts(rows, columns, deep, stages, waves_m, waves_n, split, **how)


def better_cut(
    form: Form, sizes: Sequence[int], tiles: TileChoice, chip: Product, dealt: bool = False, along_k: bool = False
) -> Found | None:  # fmt: skip
    """The cut of least estimated clocks; None where `tiles` take about as many, and where nothing can be estimated.
    `dealt`: of `tiles`, units would share the steps of all; `along_k`: waves would share K."""
    if not suits(form, chip):
        return None
    unit = Unit.of(chip, form)
    found = next(iter(_best_cuts(form, tuple(sizes), unit)), None)
    if found is None or found.clocks >= GAIN * clocks(form, sizes, tiles, unit, dealt, along_k):
        return None
    return found


class Found(NamedTuple):
    """A cut and its estimated clocks; `dealt`: units share the steps of all tiles (stream-K)."""

    clocks: float
    tiles: TileChoice
    dealt: bool = False


def best_cuts(form: Form, sizes: Sequence[int], chip: Product) -> tuple[Found, ...]:
    """The best of each tile, the best of all first, as far as they are estimated to take no more than `HOPELESS` times
    as long as that."""
    return _best_cuts(form, tuple(sizes), Unit.of(chip, form)) if suits(form, chip) else ()


def best_dealt(form: Form, sizes: Sequence[int], chip: Product) -> TileChoice | None:
    """The tiles whose steps units share in fewest estimated clocks; None where nothing can be estimated."""
    if not suits(form, chip):
        return None
    unit = Unit.of(chip, form)
    every = [x for x in tilings(form, tuple(sizes), unit) if _in_parts(form, x, unit)]
    return min(every, key=lambda x: clocks(form, sizes, x, unit, dealt=True), default=None)


@functools.lru_cache(maxsize=4096)
def _best_cuts(form: Form, sizes: tuple[int, ...], unit: Unit) -> tuple[Found, ...]:
    """All cuts are estimated at once: a row for each tile, a column for each number of parts."""
    every = list(tilings(form, sizes, unit))
    if not every:
        return ()
    parts = np.arange(1, max(1, min(MOST_PARTS, sizes[2] // LEAST_DEPTH)) + 1)
    needed = _clocks(form, sizes, _Cuts.of(every, parts, unit, form), unit)
    dealt = _clocks(form, sizes, _Cuts.of(every, 1, unit, form, dealt=True), unit)[:, 0] / GAIN_OF_DEALT
    whole = [not _in_parts(form, x, unit) for x in every]
    needed[whole, 1:] = dealt[whole] = np.inf
    found: dict[tuple[int, int], Found] = {}
    for tiles, row, shared in zip(every, needed, dealt):
        best, tile = int(np.argmin(row)), (tiles.tile_m, tiles.tile_n)
        one = Found(float(row[best]), replace(tiles, split=int(parts[best])))
        if shared < one.clocks:
            one = Found(float(shared), tiles, True)
        if tile not in found or one.clocks < found[tile].clocks:
            found[tile] = one
    least = sorted(found.values(), key=lambda x: x.clocks)
    return tuple(x for x in least if x.clocks <= HOPELESS * least[0].clocks)


def clocks(
    form: Form, sizes: Sequence[int], tiles: TileChoice, unit: Unit, dealt: bool = False, along_k: bool = False
) -> float:  # fmt: skip
    """Clocks that a product is estimated to take; `dealt` and `along_k` as for `better_cut`."""
    cut = _Cuts.of([tiles], tiles.split, unit, form, dealt=dealt, along_k=along_k)
    return float(_clocks(form, sizes, cut, unit).item())


def _clocks(form: Form, sizes: Sequence[int], x: _Cuts, unit: Unit) -> Any:
    """Clocks that a product is estimated to take in each of these cuts."""
    m, n, k = sizes
    groups = _ceil(m / x.rows) * _ceil(n / x.columns) * x.split
    total = _launch(form, x, unit, groups, m + n, k, memory_of(form, m + n, m * n, k, unit))
    rates = unit.rates
    sums = x.rows * x.columns * form.sums.bits / 8 / unit.loads
    workers, left = _dealt(x, groups, _ceil(k / x.deep), unit)
    parts = np.where(x.dealt, np.where(left, workers / np.maximum(left, 1) + 1, 1), x.split)
    held = parts * np.where(x.dealt, left * x.rows * x.columns, m * n) * form.sums.bits / 8
    each = np.where(x.dealt, 2, _ceil(groups / rates.units))  # a run that is dealt ends in another tile than it begins
    exchanged = unit.pace.exchange + (each - 1) * unit.pace.further
    more = each * sums + exchanged + rates.added(parts, sums) + rates.spilled(held)
    return np.where(parts > 1, total + more, total)


def _dealt(x: _Cuts, groups: Any, steps: Any, unit: Unit) -> tuple[Any, Any]:
    """Workgroups that share the steps of all tiles, and the tiles that are left over behind whole rounds."""
    workers = np.minimum(unit.rates.units, np.maximum(groups, groups * steps // LEAST_STEPS))
    return workers, groups % workers


def _ceil(x: Any) -> Any:
    return np.ceil(x - 1e-9)


def better_blocks(
    form: Form, groups: Sequence[int], n: int, k: int, tiles: TileChoice, chip: Product
) -> TileChoice | None:  # fmt: skip
    """The block of rows of ragged `groups`, and of their columns of N, of least estimated clocks; None where `tiles`
    take about as many, and where nothing can be estimated."""
    if not suits(form, chip):
        return None
    unit, largest = Unit.of(chip, form), max(groups)
    every = list(tilings(form, (largest, n, k), unit))
    if not every:
        return None
    found = clocks_of_blocks(form, groups, n, k, [*every, tiles], unit)
    best = int(np.argmin(found[:-1]))
    return every[best] if found[best] < GAIN_OF_BLOCKS * found[-1] else None


def clocks_of_blocks(
    form: Form, groups: Sequence[int], n: int, k: int, every: Sequence[TileChoice], unit: Unit
) -> Any:  # fmt: skip
    """Clocks that a product of ragged `groups` is estimated to take in each of these blocks."""
    used = np.array([x for x in groups if x])
    rows = len(used) * n + int(used.sum())
    x = _Cuts.of(every, 1, unit, form)
    count = _ceil(used / x.rows).sum(axis=1, keepdims=True) * _ceil(n / x.columns)
    return _launch(form, x, unit, count, rows, k, memory_of(form, rows, int(used.sum()) * n, k, unit))[:, 0]


def memory_clocks(form: Form, sizes: Sequence[int], chip: Product) -> float:
    """Clocks that memory takes for operands and results of a product, each once."""
    m, n, k = sizes
    return memory_of(form, m + n, m * n, k, Unit.of(chip, form))


def memory_of(form: Form, rows: int, results: int, k: int, unit: Unit) -> float:
    """Clocks that memory takes for so many rows of both operands, and results."""
    return (rows * k * form.dtype.bits + results * form.out.bits) / 8 / unit.rates.memory / unit.reached


def _launch(form: Form, x: _Cuts, unit: Unit, groups: Any, rows: int, k: int, memory: float) -> Any:
    """Clocks of a launch of so many workgroups, but for the exchange of parts. `rows`: of both operands; `memory`:
    clocks of the least that it moves."""
    rates, pace = unit.rates, unit.pace
    size = form.dtype.bits / 8
    waves = x.waves_m * x.waves_n
    each = np.where(x.dealt, 1, _ceil(groups / rates.units))
    stage = (x.rows + x.columns) * x.deep * size
    room = np.minimum(unit.shared_bytes // (x.stages * stage), 16 * unit.simds // waves)
    resident = np.maximum(1, np.minimum(each, room))
    products = x.rows * x.columns * x.deep / unit.products * unit.simds / np.minimum(unit.simds, waves * resident)
    read = np.where(x.along_k, stage, waves * (x.rows / x.waves_m + x.columns / x.waves_n) * x.deep * size)
    shared = (read + stage) / unit.shared
    moved, turned = stage, 0.0
    if not form.b_rows:  # a row of B's tile is its columns: a cache line comes for each
        moved = stage + np.maximum(0, unit.line - x.columns * size) * x.deep
        narrow = x.columns / x.waves_n < TURNED_COLUMNS
        turned = x.columns * x.deep * narrow * {8: pace.turned_bytes, 16: pace.turned}.get(form.dtype.bits, 0.0)
    busy = np.maximum(np.maximum(products, shared), moved / unit.loads)
    bare = np.where(resident == 1, ALONE, pace.single) * (x.stages == 1)
    busy = busy + bare * np.minimum(products, shared)
    ahead = np.maximum(1, x.stages - 1) if unit.ahead else 1
    far = np.minimum(1.0, rows / (groups / x.split * (x.rows + x.columns)))
    permuted = pace.permuted * x.columns * x.deep if not form.b_rows and size == 1 else 0.0
    load = pace.load + pace.far * far
    if form.b_rows:  # each is stored as it comes
        load = np.where((x.stages > 1) & (products >= pace.hidden), pace.hidden + pace.missed * far, load)
    load = load + pace.mixed * busy + permuted
    # While one wave turns, a SIMD's other one multiplies, but for one slot that all waves fill between two barriers.
    beside = (waves * resident > unit.simds) & (x.stages * resident > 1)
    busy = np.where(beside, np.maximum(busy, permuted), busy + permuted)
    step = np.maximum(busy + pace.step / resident, load / (ahead * resident))
    step = step + turned / resident
    steps = _ceil(k / x.split / x.deep)
    workers, left = _dealt(x, groups, steps, unit)
    tiles = np.where(x.dealt, groups // workers + (left > 0), each)  # that a unit goes over
    steps = np.where(x.dealt, groups // workers * steps + _ceil(left * steps / workers), each * steps)
    uneven = np.where(x.dealt | (groups <= rates.units), 1.0, each * rates.units / groups)  # a unit has its share only
    return longer(steps * step, memory * uneven) + pace.ends * np.maximum(1.0, tiles / resident)


def longer(x: Any, y: Any) -> Any:
    """The longer of two that run beside each other, and a little more where they are as long: neither hides all of the
    other."""
    return (x**SOFT + y**SOFT) ** (1 / SOFT)


def _stages(form: Form, tiles: TileChoice, unit: Unit) -> int:
    """Slots of the ring, as the plan and the compiler have them."""
    stage = (tiles.tile_m + tiles.tile_n) * tiles.tile_k * form.dtype.bits // 8
    if tiles.pipeline_stages:
        return max(1, min(tiles.pipeline_stages, int(unit.shared_bytes * SHARED_SHARE) // stage))
    return max(2, min(4, unit.shared_bytes // stage)) if unit.ahead else 2


def tilings(form: Form, sizes: tuple[int, ...], unit: Unit) -> Iterator[TileChoice]:
    """All tiles that products of waves may have: those that registers and two steps of shared memory hold."""
    m, n, k = sizes
    for rows in SIDES:
        for columns in SIDES:
            if rows * columns > MOST_AREA or (rows > 16 and rows >= 2 * m) or (columns > 16 and columns >= 2 * n):
                continue
            for count in (4, 8) if rows * columns >= WIDE_AREA else (4,):
                waves = _waves(rows, columns, count)
                if rows * columns / (unit.lanes * count) > (MOST_SUMS if form.sums.bits == 32 else MOST_DOUBLES):
                    continue
                for row in ROWS[: 1 if unit.assembler and rows + columns > MOST_SIDES else None]:
                    deep = row * 8 // form.dtype.bits
                    if waves is not None and 2 * (rows + columns) * row <= unit.shared_bytes and deep <= 2 * k:
                        stages = 0 if unit.ahead else 2
                        yield TileChoice(rows, columns, deep, stages, *waves, 16 * 8 // form.dtype.bits, 0)


def _in_parts(form: Form, tiles: TileChoice, unit: Unit) -> bool:
    """Whether K may be cut: parts of sums are loaded beside them, and where ptxas orders that it spills many."""
    sums = tiles.tile_m * tiles.tile_n / (unit.lanes * tiles.waves_m * tiles.waves_n)
    return not unit.assembler or 2 * sums <= MOST_SUMS


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


__all__ = [
    "Found",
    "Unit",
    "best_cuts",
    "best_dealt",
    "better_blocks",
    "better_cut",
    "clocks",
    "clocks_of_blocks",
    "longer",
    "memory_clocks",
    "memory_of",
    "suits",
    "tilings",
    "too_long",
]
