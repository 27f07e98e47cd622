"""The ways to compute one product that are worth trying, where a chip can say which is fastest.

In: arrays as for `matmul`. Out: `Choice`s, each of which `plan_gemm(choice=)` makes a plan of. The first is what `auto`
takes. The others differ from it by more than a step of one size: an estimate cannot tell such neighbours apart, nor
would trying them all say much. They come from several sources, in turns:

    warpgroups     the cuts of least estimated clocks, with K whole, in parts, and in parts that a second launch adds
    waves          the best of each tile of matrix instructions of waves, by estimated clocks
    joined         those whose parts of K a cluster adds
    streams        multiply-adds for a few rows: more or fewer columns, waves and parts
    tiles          the strategy's tiles twice and half as long, deeper rings, shares of K where tiles leave units idle
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from math import ceil, prod
from typing import Any

from wavedsl.analysis.strategy import (
    ADDED,
    DOUBLES,
    GEMV_ROWS,
    PERSISTENT_K,
    GemmShape,
    TileChoice,
    choose_tiles,
    of_doubles,
    of_multiply_adds,
    vector_width,
)
from wavedsl.ir.product import Product
from wavedsl.strategies import warpgroups
from wavedsl.strategies.caching import stage_bytes
from wavedsl.strategies.chosen import Choice, chosen, long_columns, strategy_of, warpgroup_strategy
from wavedsl.strategies.gemv_cuts import GemvCut, gemv_cuts
from wavedsl.strategies.kernels import Form
from wavedsl.strategies.matrix_cuts import best_cuts, too_long
from wavedsl.strategies.plan import (
    MOST_SUMS,
    chip_of,
    on_chip,
    problem,
    waves_of,
    with_gemm_options,
)
from wavedsl.strategies.rooms import has_room
from wavedsl.targets import get_target

MOST = 8
"""Choices by default: compiling one takes a fraction of a second."""
NEAR = 1.4
"""Tiles of warpgroups whose sides differ by less than this factor are taken for neighbours."""
HOPELESS = 1.5
"""Factor of the least estimated clocks beyond which a cut is not tried."""
LEAST_SIDE, MOST_SIDE = 16, 256
"""Rows and columns of tiles."""
MOST_WAVES = 8
"""Waves of a workgroup: more leave a lane of NVIDIA's too few registers for products by multiply-adds."""


@with_gemm_options
def gemm_choices(
    a: Any,
    b: Any,
    c: Any,
    *,
    beta: float = 0.0,
    transpose_b: bool = False,
    product: str | Product | None = None,
    most: int = MOST,
    precision: str | None = None,
) -> list[Choice]:
    """Up to `most` ways to compute C = A B (+ beta C), `auto`'s first; arguments and errors are `matmul`'s. Empty where
    there is nothing to multiply. A way may still turn out to be none when it is compiled."""
    form, sizes = problem(a, b, c, beta, transpose_b, precision)
    if 0 in sizes:
        return []
    chip = chip_of(product, a, b, c)
    form = on_chip(form, chip)
    launches = 2 if has_room(c) else 1
    first, _ = chosen("auto", form, sizes, chip, launches)
    sources = [
        _warpgroups(first, form, sizes, chip, launches),
        _waves(first, form, sizes, chip),
        _joined(first, form, sizes, chip),
        _streams(form, sizes, chip),
        _tiles(first, form, sizes, chip),
    ]
    if isinstance(first.cut, GemvCut) and warpgroups.suits(form, sizes, chip):
        sources.pop()  # their tiles do the same with fewer barriers
    elif isinstance(first.cut, warpgroups.Cut) and min(sizes[:2]) > GEMV_ROWS // 2:
        sources.pop(3)  # multiply-adds of three and four rows take longer than their loads (H200: 44 to 76 us for 35)
    kinds = (warpgroups.Cut, None, None, GemvCut, TileChoice)
    kin = next(i for i, kind in enumerate(kinds) if kind is not None and isinstance(first.cut, kind))
    sources.insert(0, sources.pop(kin))
    found = {str(first): first}
    for choice in (choice for row in zip_longest(*sources) for choice in row if choice is not None):
        found.setdefault(str(choice), choice)  # of tiles that only waves share out otherwise the better estimated one
    return list(found.values())[:most]


def _warpgroups(
    first: Choice, form: Form, sizes: tuple[int, int, int], chip: Product, launches: int
) -> Iterator[Choice]:  # fmt: skip
    """Cuts by their estimated clocks, none of which is a neighbour of one before."""
    if warpgroups.suits(form, sizes, chip) or warpgroups.suits_shallow(form, sizes, chip):
        yield from _apart(first, warpgroups.cuts(form, sizes, chip, launches))


def _waves(first: Choice, form: Form, sizes: tuple[int, int, int], chip: Product) -> Iterator[Choice]:
    """Tiles of matrix instructions of waves by their estimated clocks, where the first choice is such."""
    if isinstance(first.cut, TileChoice) and first.strategy in ("skinny", "wave_parallel", "split_k", "stream_k"):
        for found in best_cuts(form, sizes, chip):
            cut = replace(found.tiles, prefetch_distance=first.cut.prefetch_distance)
            yield Choice(strategy_of(first.strategy, found, *sizes[:2], chip), cut)


def _joined(first: Choice, form: Form, sizes: tuple[int, int, int], chip: Product) -> Iterator[Choice]:
    """The same of those whose parts of K a cluster adds: where K is cut anyway, or tiles leave half of the units
    idle."""
    if not warpgroups.suits(form, sizes, chip):
        return
    cut = first.cut if isinstance(first.cut, warpgroups.Cut) else None
    if cut is None or cut.parts > 1 or 2 * ceil(sizes[0] / cut.tile[0]) * ceil(sizes[1] / cut.tile[1]) <= chip.units:
        yield from _apart(first, warpgroups.cuts_joined(form, sizes, chip))


def _apart(first: Choice, cuts: Iterator[warpgroups.Cut]) -> Iterator[Choice]:
    taken: list[warpgroups.Cut] = []
    for cut in sorted(cuts, key=lambda x: x.clocks):
        if taken and cut.clocks > HOPELESS * taken[0].clocks:
            return
        if not any(_neighbours(cut, other) for other in taken):
            taken.append(cut)
            yield Choice(warpgroup_strategy(first.strategy, cut), cut)


def _neighbours(one: warpgroups.Cut, other: warpgroups.Cut) -> bool:
    near = all(1 / NEAR < x / y < NEAR for x, y in zip(one.tile, other.tile))
    return near and one.waves == other.waves and (one.parts, one.apart) == (other.parts, other.apart)


def _streams(form: Form, sizes: tuple[int, int, int], chip: Product) -> Iterator[Choice]:
    """Cuts of a matrix-vector product, then each with half and twice the waves."""
    if min(sizes[:2]) > GEMV_ROWS:
        return
    turned, m, n, k = long_columns(form, sizes)
    cuts = gemv_cuts(turned, m, n, k, chip)
    for cut in cuts:
        yield Choice("gemv", cut)
    for cut in cuts:
        run = cut.deep // cut.waves
        for waves in (cut.waves * 2, cut.waves // 2):
            if 1 <= waves <= MOST_WAVES and run * (waves // 2) < k:
                yield Choice("gemv", replace(cut, waves=waves, deep=run * waves))


def _tiles(first: Choice, form: Form, sizes: tuple[int, int, int], chip: Product) -> Iterator[Choice]:
    """What loops over tiles in shared memory may be made of."""
    m, n, k = sizes
    shape = GemmShape(m, n, k, form.dtype, form.out, form.beta)
    dealt = None
    known: list[TileChoice] = []
    loops = first.strategy in ("cache_persistent", "wave_parallel")
    if loops and isinstance(first.cut, TileChoice) and of_doubles(shape, chip):
        every = [x.tiles(k, vector_width(shape.dtype)) for x in DOUBLES]
        every += [replace(x, pipeline_stages=2, prefetch_distance=1) for x in every]
        known = [x if first.cut.prefetch_distance else replace(x, prefetch_distance=0) for x in every]
    if isinstance(first.cut, warpgroups.Cut):  # their tiles, dealt to as many workgroups as there are units
        (rows, columns, deep), waves = first.cut.tile, first.cut.waves
        dealt = TileChoice(rows, columns, deep, 0, *waves, 1, 0)
        starts = [] if form.promoted else [("stream_k", dealt)]  # numbers that registers hold: those spill
    else:
        name = first.strategy if isinstance(first.cut, TileChoice) else "skinny"
        own = first.cut if isinstance(first.cut, TileChoice) else choose_tiles(name, shape, chip)
        starts = [(name, own)]
        if form.b_rows and (own.tile_m, own.tile_n, own.split) == (*ADDED[0][:2], 1) and of_multiply_adds(shape, chip):
            # Both operands in blocks, transposed in registers: half as many copies as of single words. (With parts of
            # K they spill.)
            known.append(replace(own, tile_k=4 * own.vector_width, pipeline_stages=3, by_registers=True))
        if name == "split_k":
            starts.append(("wave_parallel", choose_tiles("wave_parallel", shape, chip)))
        if k >= 2 * PERSISTENT_K:
            starts += [(x, choose_tiles(x, shape, chip)) for x in ("stream_k", "split_k") if x != name]
    for strategy, start in starts:
        for tiles in [start] if dealt else (*(known if strategy == first.strategy else ()), *_around(start)):
            idle = ceil(m / tiles.tile_m) * ceil(n / tiles.tile_n) % chip.units
            if strategy in ("stream_k", "split_k") and not idle:
                continue
            if _fits(strategy, tiles, form, sizes, chip):
                yield Choice(strategy, tiles)


def _around(tiles: TileChoice) -> Iterator[TileChoice]:
    """The tiles; a slot more of their ring; tiles twice and half as long along one side or both."""
    yield tiles
    if tiles.pipeline_stages:
        yield replace(tiles, pipeline_stages=tiles.pipeline_stages + 1)
    for up, down in ((1, 0), (0, 1), (1, 1), (-1, 0), (0, -1), (-1, -1), (1, -1), (-1, 1)):
        yield replace(
            tiles, tile_m=_scaled(tiles.tile_m, up), tile_n=_scaled(tiles.tile_n, down),
            waves_m=max(1, _scaled(tiles.waves_m, up)), waves_n=max(1, _scaled(tiles.waves_n, down)),
        )  # fmt: skip


def _scaled(count: int, doublings: int) -> int:
    return count << doublings if doublings >= 0 else count >> -doublings


def _fits(
    strategy: str, tiles: TileChoice, form: Form, sizes: tuple[int, int, int], chip: Product
) -> bool:  # fmt: skip
    """Whether sides are sensible, no tile is more than half empty, shared memory holds a step's tiles (and where K is
    cut in parts what workgroups tell each other), and registers hold its sums beside what else there is: places of a K
    cut in parts, or words of a B that is turned for products of two numbers per operand."""
    sides = (tiles.tile_m, tiles.tile_n)
    if not all(
        LEAST_SIDE <= side <= MOST_SIDE and (side < 2 * x or side == LEAST_SIDE) for side, x in zip(sides, sizes)
    ):
        return False
    if prod(waves_of(tiles, form, chip)) > MOST_WAVES or too_long(form, tiles, chip):
        return False
    target = get_target(chip.target)
    parts = strategy in ("stream_k", "split_k")
    step = stage_bytes(form, (*sides, tiles.tile_k))
    if step > target.shared_bytes or (parts and step == target.shared_bytes):
        return False
    lanes = target.wave_size * MOST_WAVES
    held = tiles.tile_m * tiles.tile_n * form.sums.bits // 32 * (2 if form.promoted else 1)
    more = parts or (form.promoted and not form.b_rows)
    if more and target.registers < 2 * MOST_SUMS:
        return held < MOST_SUMS * lanes
    return held <= MOST_SUMS * lanes


__all__ = ["gemm_choices"]
