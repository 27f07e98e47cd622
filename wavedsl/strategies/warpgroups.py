"""Tiles and parts of K for products on chips whose warpgroups multiply out of shared memory (Hopper).

In: a product's form and sizes, a chip. Out: a `Cut`. Every tile that a few warpgroups hold, with K in one part or in
several, is given an estimate of its clocks, and the least is taken: few rows must keep all units asking for memory, and
a few rounds of large tiles must not leave the last one half empty.

Clocks of a launch, from the product's rates:

    trip       the longest of: the matrix unit, the port of shared memory (operands read, tiles written), L2, memory
    tile       its trips, then its results at the unit's port; they leave beside the next tile's trips where a
               workgroup has several, and are stored beside them as well where two warpgroups take tiles in turn
    launch     rounds of tiles, one latency of memory in front; with parts, sums that are stored, two latencies, and for
               whoever comes last the sums of one part after the other; or, in a launch behind, for all units together;
               or, in a cluster, for its units together
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

from wavedsl.ir.inference.mma_tiles import SPARE, warpgroup_registers
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.strategies.kernels import Form
from wavedsl.targets import get_target

ROWS = 64
"""Rows of a warpgroup's matrix instruction."""
LANES = 128
"""Of a warpgroup."""
DEPTH = 32
"""Bytes of K of one instruction."""
STEP = 128
"""Bytes of K per trip: the widest swizzle of tiles in shared memory."""
LONG_STEP = 256
"""Bytes of K per trip of few rows, whose rows of B are runs of memory: two neighbouring boxes, one behind the other. An
H200 brings 134 MB in boxes of 64 rows by 128 bytes in 35.3 to 36.1 us, by two such in 34.2, by eight in 34.1. Not of
tiles of 128 columns and more: half as many slots cost more (16 x 14336 x 4096 30.9 us for 28.5, 16 x 28672 x 8192 110.7
for 107.9, 64 x 28672 x 8192 137.5 for 111.8)."""
WIDTHS = tuple(range(256, 63, -16))
"""Columns of a tile. An instruction may have any multiple of 8 up to 256; multiples of 16 leave by bulk copies."""
THREE = 192
"""Columns at most where three warpgroups compute: ptxas has 128 registers per thread for them."""
MOST_AREA = 160 * 256
"""Elements of a tile at most: two warpgroups' sums, with registers left for what stores them."""
HELD = (128, 64)
"""Elements of a tile along the side whose operand, both numbers of it, registers hold, of the products that take two
numbers per operand: two pieces of an instruction's rows, or one."""
BESIDE = 128
"""Elements of the other side at most: a half per warpgroup, whose lanes have 64 sums of a trip, 64 of all, and 64
numbers of the operand. Tiles beyond spill."""
SPLITS = 3
"""Products that two numbers per operand take."""
TWICE = 256 * STEP
"""Bytes of a trip's tiles of which both numbers of the operand that is stored find room thrice beside their ring."""
BETWEEN_TRIPS = 150
"""Clocks of a trip in which the matrix unit waits for additions and for an operand's numbers: an assumption, half of
what an H200 showed where two warpgroups stored both operands and met every trip."""
MOST_PARTS, LEAST_TRIPS = 8, 8
"""Parts of K at most, and trips of each at least: as many as a ring has slots."""
JOINED_PARTS = (2, 4, 8)
"""Parts that a cluster adds: units of a GPC, 16 or 18 of which work, are whole clusters of so many."""
MOST_SHARE = 64, 32
"""Sums of a lane at most that it adds of all parts, where up to two warpgroups compute and where more do: others leave
epilogues few registers."""
MOST_JOINED = 160 << 10
"""Bytes of a tile's sums that a cluster adds: they lie where the ring was."""
MOST_APART = 32
"""Parts at most that a second launch adds: 4 registers of a lane each, all loaded together."""
OUTSIDE = 0.75
"""Of memory's time for a row, what one outside of an array takes. On an H200 16 rows in tiles of 64 x 64, where 0.75
rows are outside for each that memory brings, took 1.3 to 1.5 times as long as 64 rows, 128 in tiles of 256 x 128 more
than this says (results/h200.json; `ir/lower/short_tiles.py`)."""
PARTS_GAIN = 0.9
"""Share of the clocks of K in one part that several must be estimated to take at most, unless memory takes half of them
or more. (On an H200 two parts of 512 x 4096 x 14336, estimated at 0.94, took 1.1 times as long.)"""
APART_GAIN = 0.9
"""Share of the clocks of one launch that two must be estimated to take at most: a call of two costs the host more."""
NEAR = 0.25
"""L2's latency, of memory's: loads of a part wait for those of the one before."""
KEPT_SUMS = 0.5
"""Share of L2 that sums of parts take at most between two launches."""
BETWEEN = 1e-6
"""Seconds from the end of a launch to the start of the one that waits for it. On an H200 adding up 8 MB of parts makes
a call 2.7 to 3.4 us longer, as this with the latencies and the bytes of `estimated` says (3.5)."""
PORT = 128
"""Bytes per clock of a unit's shared memory."""
NEIGHBOUR, MEETING = 190, 356
"""Clocks to the shared memory of a unit's neighbour, and of a cluster's barrier: measured on an H200
(`gpu_rates.py`)."""
L2_RATE = 5120
"""Bytes per clock of L2 where a product says nothing: A100's white paper. Hopper's is not published, and no slower. A
unit is given its share of that and no more, also where others idle: what one alone can take is not known."""


@dataclass(frozen=True)
class Cut:
    """`tile`: M, N and K of a workgroup in elements. `waves`: its warpgroups along M and N. `parts` of K, which as many
    workgroups share; `apart`: a second launch adds them, not whoever comes last; `joined`: these workgroups are a
    cluster, which adds them through shared memory. `clocks` that all this is estimated to take."""

    tile: tuple[int, int, int]
    waves: tuple[int, int]
    parts: int
    clocks: float
    apart: bool = False
    joined: bool = False


def suits(form: Form, sizes: Sequence[int], chip: Product) -> bool:
    """Whether warpgroups multiply this dtype in this layout, along a K of two trips at least."""
    if form.dtype.bits > 16 and not form.precision:
        return False
    if form.dtype.bits != 16 and not form.b_rows and not (form.promoted and _whole_rows(sizes)):
        return False
    return get_target(chip.target).warpgroups_multiply(form.multiplied) and sizes[2] * form.dtype.bits // 8 >= 2 * STEP


def _whole_rows(sizes: Sequence[int]) -> bool:
    """Whether bulk copies bring rows of f32 of A, which are K long, and of B, N long."""
    return sizes[1] % 4 == sizes[2] % 4 == 0


def suits_shallow(form: Form, sizes: Sequence[int], chip: Product) -> bool:
    """Whether bulk copies bring rows of a K as short as one instruction's or longer, for tiles enough that every unit
    has several: results of one leave beside the products of the next."""
    m, n, k = sizes
    if not suits(form, (m, n, 2 * STEP), chip) or (not form.b_rows and n * form.dtype.bits % 128):
        return False
    row = k * form.dtype.bits // 8
    return row >= DEPTH and row % 16 == 0 and ceil(m / ROWS) * ceil(n / WIDTHS[0]) >= 2 * chip.units


class Rates(NamedTuple):
    """What an estimate asks of a product: units, bytes per clock of L2 for one of them and of memory for all, clocks of
    memory's latency and between two launches, bytes of L2, and of the largest cache in front of memory."""

    units: int
    unit: float
    memory: float
    latency: float
    between: float
    l2_bytes: float
    cache_bytes: float

    @staticmethod
    def of(chip: Product) -> Rates:
        return Rates(
            chip.units, (chip.l2_rate or L2_RATE) / chip.units, chip.hbm / chip.clock, chip.latency * chip.clock,
            BETWEEN * chip.clock, chip.l2_bytes, max(chip.l2_bytes, chip.memory_cache),
        )  # fmt: skip

    def added(self, parts: Any, sums: Any) -> Any:
        """Clocks in which the last workgroup of a tile adds `parts`, whose sums take `sums` clocks to come from L2; of
        two parts the other one."""
        return (parts - (parts == 2)) * (sums + NEAR * self.latency)

    def spilled(self, held: Any) -> Any:
        """Clocks in which sums of so many bytes go to memory and back, where no cache keeps them."""
        return 2 * held / self.memory * (held > KEPT_SUMS * self.cache_bytes)


def best_cut(form: Form, sizes: Sequence[int], chip: Product, launches: int = 1) -> Cut:
    """The cut that takes fewest clocks, in so many launches at most; of equal ones the first, which has the widest tile
    and fewest parts."""
    return _best_cut(form, tuple(sizes), Rates.of(chip), launches)


@functools.lru_cache(maxsize=4096)
def _best_cut(form: Form, sizes: tuple[int, ...], rates: Rates, launches: int) -> Cut:
    def worth(x: Cut) -> tuple[float, int]:
        items = ceil(sizes[0] / x.tile[0]) * ceil(sizes[1] / x.tile[1]) * x.parts
        return x.clocks, -min(rates.units, items) if min(sizes[:2]) > ROWS else 0

    found = list(_cuts(form, sizes, rates))
    best = min(found, key=worth)
    whole = min((x for x in found if x.parts == 1), key=worth)
    if best.clocks > max(PARTS_GAIN * whole.clocks, 2 * sum(memory_clocks(form, sizes, rates))):
        best = whole
    apart = min(_cuts_apart(form, sizes, rates), key=lambda x: x.clocks, default=best) if launches > 1 else best
    return apart if apart.clocks <= APART_GAIN * best.clocks else best


def span(form: Form, sizes: Sequence[int], tile: Sequence[int] = (0, 0)) -> int:
    """Bytes of K per trip: no more than a swizzle that holds all of it, and than shared memory has room for; two
    swizzles for few rows and a long K, where tiles are small enough for as many slots."""
    m, n, k = sizes
    row = k * form.dtype.bits // 8
    few = min(m, n) <= ROWS and max(tile[:2]) <= ROWS
    most = LONG_STEP if few and form.b_rows and row >= LEAST_TRIPS * LONG_STEP else STEP
    most = STEP // 2 if form.promoted and sum(tile[:2]) * STEP > TWICE else most
    return min(most, max(DEPTH, 1 << (row - 1).bit_length()))


def cuts(form: Form, sizes: Sequence[int], chip: Product, launches: int = 1) -> Iterator[Cut]:
    """All that are considered, in so many launches at most."""
    yield from _cuts(form, sizes, Rates.of(chip))
    if launches > 1:
        yield from _cuts_apart(form, sizes, Rates.of(chip))


def _cuts(form: Form, sizes: Sequence[int], rates: Rates) -> Iterator[Cut]:
    m, n, k = sizes
    for tile, waves in _tiles(m, n, form):
        depth = span(form, sizes, tile) * 8 // form.dtype.bits
        trips = ceil(k / depth)
        least = LEAST_TRIPS * STEP * 8 // form.dtype.bits // depth
        if trips == 1 and min(m, n) > ROWS and tile[1] * form.out.bits % (8 * STEP):
            continue  # what is written counts most: in whole lines
        for parts in range(1, MOST_PARTS + 1):
            if parts == 1 or trips // parts >= least:
                yield Cut((*tile, depth), waves, parts, estimated(form, sizes, tile, parts, rates))


def cuts_joined(form: Form, sizes: Sequence[int], chip: Product) -> Iterator[Cut]:
    """Those whose parts a cluster adds: as many as divide the tile's rows, or its columns, for each warpgroup, where
    all clusters run at once. None is `auto`'s: what clusters along the parts take was not measured."""
    m, n, k = sizes
    rates = Rates.of(chip)
    least = LEAST_TRIPS * STEP * 8 // form.dtype.bits
    for tile, waves in _tiles(m, n, form):
        if form.promoted or tile[0] * tile[1] * form.sums.bits // 8 > MOST_JOINED:
            continue
        depth = span(form, sizes, tile) * 8 // form.dtype.bits
        tiles = ceil(m / tile[0]) * ceil(n / tile[1])
        for parts in (x for x in JOINED_PARTS if x <= k // least):
            shares = any(side % (parts * count) == 0 for side, count in zip(tile, waves))
            warpgroups = waves[0] * waves[1]
            if tile[0] * tile[1] > parts * warpgroups * LANES * MOST_SHARE[warpgroups > 2]:
                continue
            if shares and tiles * parts <= rates.units // parts * parts:
                clocks = estimated(form, sizes, tile, parts, rates, joined=True)
                yield Cut((*tile, depth), waves, parts, clocks, joined=True)


def _cuts_apart(form: Form, sizes: Sequence[int], rates: Rates) -> Iterator[Cut]:
    """Those whose parts a second launch adds: as many equal parts, of whole trips, as units take at once."""
    m, n, k = sizes
    least = LEAST_TRIPS * STEP * 8 // form.dtype.bits
    held = m * n * form.sums.bits / 8
    for tile, waves in _tiles(m, n, form):
        depth = span(form, sizes, tile) * 8 // form.dtype.bits
        most = min(MOST_APART, rates.units // (ceil(m / tile[0]) * ceil(n / tile[1])), k // least)
        parts = next((p for p in range(most, 1, -1) if k % (p * depth) == 0), 1)
        if parts > 1 and parts * held <= KEPT_SUMS * rates.l2_bytes:
            yield Cut((*tile, depth), waves, parts, estimated(form, sizes, tile, parts, rates, True), True)


def _tiles(m: int, n: int, form: Form) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Tiles along M and N, and their one to three warpgroups: 64 or 128 rows each, or as many columns where the
    instruction's 64 rows lie along N: where M is no more than a few rows, or such tiles may divide the product more
    evenly. Of products whose sums are held twice those that have one operand in registers (`held`)."""
    if not form.promoted:
        yield from _all_tiles(m, n)
    elif min(m, n) <= ROWS:
        yield from (x for x in _all_tiles(m, n) if _has_room(form, *x))
    else:
        for own in HELD:
            for other in range(min(BESIDE, own) if form.b_rows else BESIDE, 15, -16):
                if form.b_rows:
                    yield (own, other), (1, 2)
                if not form.b_rows or other < own:
                    yield (other, own), (2, 1)


def held(form: Form, tile: Sequence[int]) -> int:
    """The side of a tile, 0 for rows of M, whose operand registers hold where two numbers per operand are multiplied:
    the longer one, or B's where that has no K contiguous in memory. It would be turned on its way to shared memory."""
    return 1 if tile[1] > tile[0] or (not form.b_rows and tile[1] % ROWS == 0) else 0


def _has_room(form: Form, tile: tuple[int, int], waves: tuple[int, int]) -> bool:
    """Whether a warpgroup's registers hold its sums twice and both numbers of an operand."""
    side, count = held(form, tile), waves[0] * waves[1]
    own = 2 * tile[side] // waves[side] * STEP * 8 // form.dtype.bits
    sums = 2 * tile[0] * tile[1] // count
    return (sums + own) // LANES <= warpgroup_registers(count, LANES) - SPARE


def _all_tiles(m: int, n: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    if min(m, n) > ROWS:
        yield from (((rows, width), (rows // ROWS, 1)) for rows in (128, 64) for width in WIDTHS)
        yield from (((192, width), (3, 1)) for width in WIDTHS if width <= THREE)
        for width in WIDTHS:
            if width % ROWS:
                yield (width, 128), (1, 2)
            if width * 256 <= MOST_AREA:
                yield (256, width), (2, 1)
                if width % ROWS:
                    yield (width, 256), (1, 2)
        return
    few = next(x for x in (16, 32, 64) if min(m, n) <= x)
    for wide in (256, 128, 64):
        yield ((few, wide), (1, wide // ROWS)) if m <= n else ((wide, few), (wide // ROWS, 1))


def estimated(
    form: Form, sizes: Sequence[int], tile: tuple[int, int], parts: int, rates: Rates, apart: bool = False,
    joined: bool = False,
) -> float:  # fmt: skip
    """Clocks of a launch for M, N and K in `sizes`, `tile` along the first two; of two with `apart`; of one whose
    clusters add the parts with `joined`."""
    m, n, k = sizes
    size, step = form.dtype.bits / 8, span(form, sizes, tile)
    counts = ceil(m / tile[0]), ceil(n / tile[1])
    items = counts[0] * counts[1] * parts
    used = min(rates.units, items)
    rounds = ceil(items / rates.units)
    columns = tile[0] if tile[0] % ROWS else tile[1]  # of an instruction; 64 of its rows along the other
    instructions = tile[0] * tile[1] // (ROWS * columns) * (step / DEPTH)
    staged = (tile[0] + tile[1]) * step
    pair = (tile[1] if m <= n else tile[0]) * step if counts[m > n] % 2 == 0 else 0
    asked = staged - pair / 2  # two workgroups side by side share a tile: a cluster, or what they ask L2 for together
    unit, latency = rates.unit, rates.latency
    read, written = memory_clocks(form, sizes, rates)
    trips = ceil(k * size / step / parts)
    port, matrix = (instructions * (ROWS + columns) * DEPTH + staged) / PORT, products(instructions, columns, staged)
    if form.promoted:
        matrix = port = _clocks_of_two(form, tile, step)
    results = tile[0] * tile[1] * (form.sums if apart else form.out).bits / 8 / (parts if joined else 1)
    read += OUTSIDE * _outside(sizes, tile, counts) * k * size / rates.memory
    memory = read / items * used
    own, link = max(trips * max(matrix, port), memory), (trips * asked + results) / unit
    if parts == 1 and tile[0] == ROWS <= tile[1] and items > rates.units:  # two warpgroups take tiles in turn
        one = max(trips * matrix, trips * port + 2 * results / PORT, link, memory)
    elif rounds > 1 and parts == 1:  # results leave beside the next tile's products
        one = max(own + results / PORT, link)
    else:
        one = max(own, trips * asked / unit) + results / unit
    if apart:
        added = parts * m * n * form.sums.bits / 8 / (unit * rates.units)  # from L2
        return rounds * one + 2 * latency + rates.between + 2 * NEAR * latency + max(added, written)
    sums = tile[0] * tile[1] * form.sums.bits / 8 / unit
    if joined:  # each loads its share of all parts, as many bytes as the tile's: no faster than L2, for all we know
        exchange = sums * unit / PORT + MEETING + NEIGHBOUR + sums
        return max(one + exchange, read + written) + latency
    exchange = sums + 2 * latency + rates.added(parts, sums) if parts > 1 else 0.0
    return max(rounds * (one + exchange), read + written) + latency


def _outside(sizes: Sequence[int], tile: Sequence[int], counts: Sequence[int]) -> int:
    """Rows outside of the operands that workgroups ask for, where several tiles take a side and the last sticks out.
    (Boxes of a side that one tile holds end with it.)"""
    sides = (side for side in (0, 1) if counts[side] > 1)
    return sum(counts[1 - side] * (counts[side] * tile[side] - sizes[side]) for side in sides)


def _clocks_of_two(form: Form, tile: tuple[int, int], step: int) -> float:
    """Clocks of a trip of products of two numbers per operand: of the matrix unit, or of the port of shared memory,
    where tiles come, lanes read them (the held operand's in two warpgroups), and both numbers of the other one are
    stored and read by each product for 64 rows of the first."""
    side = held(form, tile)
    own, other = tile[side], tile[1 - side]
    pieces = SPLITS * step / DEPTH * own / ROWS
    port = ((own + other) * step + (2 * own + other) * step + 2 * other * step + pieces * other * DEPTH) / PORT
    return max(port, pieces * other / 2) + BETWEEN_TRIPS


def pairs(form: Form, sizes: Sequence[int], cut: Cut, chip: Product) -> bool:
    """Whether two workgroups are a cluster: those of a part of K that bring all of the longer operand together, where
    memory takes most of the clocks. On an H200 two parts of 128 x 4096 x 14336 take 36.1 us so and 40.3 alone, of 128 x
    8192 x 28672 124.3 and 135.5; elsewhere pairs gain nothing (`ir/staging/strategy.py`)."""
    m, n, _ = sizes
    along = ceil(m / cut.tile[0]) if m <= n else ceil(n / cut.tile[1])
    if cut.joined and 2 * cut.parts > MOST_PARTS:  # the parts take all of a cluster
        return False
    return along == 2 and cut.parts > 1 and 2 * sum(memory_clocks(form, sizes, Rates.of(chip))) >= cut.clocks


def memory_clocks(form: Form, sizes: Sequence[int], rates: Rates) -> tuple[float, float]:
    """Clocks that memory takes to bring the operands once, and to take the result."""
    m, n, k = sizes
    return (m + n) * k * form.dtype.bits / 8 / rates.memory, m * n * form.out.bits / 8 / rates.memory


def products(instructions: float, columns: int, staged: float) -> float:
    """Clocks of a trip's matrix instructions while copies bring `staged` bytes. What these take of the port of shared
    memory an instruction makes up for in up to half of its clocks, also where all that it reads leaves less free."""
    busy, reads = columns / 2, (ROWS + columns) * DEPTH / PORT
    alone = max(busy, reads)
    beside = max(busy, reads + busy / 2)
    return instructions * alone + min(instructions, staged / PORT / (busy / 2)) * (beside - alone)


BLOCK_ROWS = (*range(16, 161, 16), 192, 256)
"""Rows of blocks of ragged groups. Where they are no multiple of 64 operands change places, and they are the
instruction's columns: multiples of 16 leave by bulk copies, and more than 160 take more registers than there are."""
BLOCK_COLUMNS = (256, 128, 64)


def best_blocks(form: Form, groups: Sequence[int], n: int, k: int, chip: Product) -> Cut:
    """The blocks of rows of ragged `groups`, and their columns of N, that take fewest clocks: large ones ask little of
    L2, but most groups end inside one."""
    used = [x for x in groups if x]
    memory = (len(used) * n + sum(used)) * k * form.dtype.bits / 8 / (chip.hbm / chip.clock)
    found = [
        cut_of_blocks(form, used, n, k, (rows, columns), chip)
        for rows in BLOCK_ROWS
        for columns in BLOCK_COLUMNS
        if rows * columns <= MOST_AREA and (columns < 2 * n or columns == BLOCK_COLUMNS[-1])
    ]
    return min(found, key=lambda x: (max(x.clocks, memory), x.clocks))


def cut_of_blocks(form: Form, groups: Sequence[int], n: int, k: int, tile: tuple[int, int], chip: Product) -> Cut:
    """Blocks of one size, by the clocks of `estimated` but for memory's. Two side by side share rows of A where their
    number is even."""
    rows, columns = tile
    across, turned = ceil(n / columns), rows % ROWS > 0
    width = rows if turned else columns
    instructions = rows * columns // (ROWS * width) * (STEP / DEPTH)
    staged = (rows + columns) * STEP
    asked = staged - (rows * STEP / 2 if across % 2 == 0 else 0)
    unit = (chip.l2_rate or L2_RATE) / chip.units
    trips = ceil(k * form.dtype.bits / 8 / STEP)
    port = (instructions * (ROWS + width) * DEPTH + staged) / PORT
    trip = max(products(instructions, width, staged), port, asked / unit)
    rounds = ceil(sum(ceil(x / rows) for x in groups) * across / chip.units)
    clocks = rounds * (trips * trip + rows * columns * form.out.bits / 8 / unit) + chip.latency * chip.clock
    waves = (1, max(1, columns // 128)) if turned else (rows // ROWS, 1)
    return Cut((rows, columns, STEP * 8 // form.dtype.bits), waves, 1, clocks)


__all__ = [
    "Cut",
    "best_blocks",
    "best_cut",
    "cut_of_blocks",
    "cuts",
    "cuts_joined",
    "estimated",
    "suits",
    "suits_shallow",
]
