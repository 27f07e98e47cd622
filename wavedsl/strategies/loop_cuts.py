"""Tiles and parts of K for products whose tiles leave units idle: f32 by multiply-adds, f64 on NVIDIA's matrix units.

In: a shape, the chip. Out: a `TileChoice`, `split` of which says how many workgroups share the K of a tile.

    clocks = workgroups of the busiest unit x (multiply-adds of one / their rate)
           + sums that leave, and that the last workgroup of a tile reads of all parts
           + those of more parts than L2 keeps, to memory and back

A unit that has one workgroup waits where two hide each other's loads and barriers: 1024 x 1024 x 16384 in f32 took an
H200 938 us in 128 tiles, one for each of its 132 units, a tenth more than those of 2048 cubed at four a unit (2 x 420).
More parts also keep sums short: of numbers from 0 to 1 the largest error of that product was four times cuBLAS'.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from wavedsl.analysis.strategy import (
    ADDED,
    DOUBLES,
    PERSISTENT_K,
    GemmShape,
    TileChoice,
    added_tile,
    of_doubles,
    of_multiply_adds,
    vector_width,
)
from wavedsl.ir.product import Product
from wavedsl.strategies.warpgroups import Rates
from wavedsl.targets import get_target

SMALL_ADDED = (64, 64, 1.25)
"""Beside those of `ADDED`: by the replay."""
SLOW_DOUBLES = {(128, 128): 1.0, (64, 128): 1.02, (64, 64): 1.14}
"""Clocks that each of `DOUBLES` takes for an element, relative to the first: an H200's of 2048 cubed."""
FAST = 128
"""Multiply-adds per clock of a unit for which that is so; where they are slower, operands are read beside them."""
ALONE = 1.1
"""Clocks of a workgroup that has a unit for itself, of its share where two reside."""
MOST_PARTS = 32
"""Parts that one workgroup adds one after the other."""
LEAST_DEPTH = 2 * PERSISTENT_K
"""Elements of K that a part has at least: what it begins and ends with takes as long as 20 or so."""
GAIN = 0.95
"""Share of the clocks of what there is that other parts must be estimated to take at most."""
FEW, FEW_CLOCKS = 1.6, 19 / 32**2
"""Of a multiply-add where waves of 32 x 32 share the K of a few tiles: clocks relative to those of a large tile, and
the least of a unit, whose shared memory bounds them. By the replay (512 cubed on H200 and A100)."""


def parts_of_k(shape: GemmShape, tiles: TileChoice, chip: Product) -> TileChoice | None:
    """The tiles and parts of K that take fewest clocks; None where `tiles` do, and of other products."""
    if not (of_multiply_adds(shape, chip) or of_doubles(shape, chip)):
        return None
    target, name = get_target(chip.target), shape.dtype.name
    pipe = "matrix" if chip.has_matrix(name, target) else "vector"
    return _parts_of_k(shape, tiles, Rates.of(chip), chip.peak(name, pipe, target) / 2 / chip.units / chip.clock)


@functools.lru_cache(maxsize=4096)
def _parts_of_k(shape: GemmShape, tiles: TileChoice, rates: Rates, rate: float) -> TileChoice | None:
    best = min(_cuts(shape), key=lambda x: clocks(shape, x, rates, rate), default=tiles)
    return best if clocks(shape, best, rates, rate) < GAIN * clocks(shape, tiles, rates, rate) else None


def clocks(shape: GemmShape, tiles: TileChoice, rates: Rates, rate: float) -> float:
    """Clocks that a product is estimated to take in tiles of `ADDED` or `DOUBLES`; other tiles count as the slowest.
    Of so few that waves would share their K (`chosen.is_small`) those that this takes. `rate`: multiply-adds per clock
    of a unit."""
    groups = ceil(shape.m / tiles.tile_m) * ceil(shape.n / tiles.tile_n) * tiles.split
    if tiles.split == 1 and 2 * groups <= rates.units:
        return shape.m * shape.n * shape.k / rates.units * max(FEW / rate, FEW_CLOCKS)
    each = ceil(groups / rates.units)
    area = tiles.tile_m * tiles.tile_n
    slow = 1 + (_slow(shape, tiles) - 1) * min(1.0, rate / FAST)
    products = area * ceil(shape.k / tiles.split) * slow / rate
    if each == 1:
        products *= ALONE
    if tiles.split == 1:
        return each * products
    sums = area * shape.dtype.bits / 8 / rates.unit
    held = tiles.split * shape.m * shape.n * shape.dtype.bits / 8
    return each * (products + sums) + 2 * rates.latency + rates.added(tiles.split, sums) + rates.spilled(held)


def _slow(shape: GemmShape, tiles: TileChoice) -> float:
    """Clocks of a tile's multiply-adds, relative to the best tile's."""
    added = {(rows, columns): slow for rows, columns, slow in (*ADDED, SMALL_ADDED)}
    known = SLOW_DOUBLES if shape.dtype.bits == 64 else added
    return known.get((tiles.tile_m, tiles.tile_n), max(known.values()))


def _cuts(shape: GemmShape) -> Iterator[TileChoice]:
    if shape.dtype.bits == 64:  # the first is one that nobody hides the beginning and end of
        every = [x.tiles(shape.k, vector_width(shape.dtype)) for x in DOUBLES[1:]]
    else:
        every = [added_tile(*x[:2], shape) for x in (*ADDED, SMALL_ADDED)]
    for tiles in every:
        if tiles.tile_m < 2 * shape.m and tiles.tile_n < 2 * shape.n:
            for parts in range(2, min(MOST_PARTS, shape.k // LEAST_DEPTH) + 1):
                yield replace(tiles, split=parts)


__all__ = ["clocks", "parts_of_k"]
