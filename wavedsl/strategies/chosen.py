"""Which strategy computes a product, and how it cuts it.

In: a form, M, N and K, a chip. Out: a `Choice`: what the roofline recommends, or what is estimated to take fewest
clocks where there is an estimate: tiles of warpgroups (`warpgroups`), of waves (`matrix_cuts`), of f32 and f64 in
parts of K (`loop_cuts`), columns of a matrix-vector product (`gemv_cuts`, on AMD's chips by `gemv_clocks`).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from wavedsl.analysis.roofline import analyze_gemm
from wavedsl.analysis.strategy import GEMV_ROWS, GemmShape, TileChoice, choose_tiles
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.strategies import gemv_clocks, matrix_cuts, warpgroups
from wavedsl.strategies.caching import runs_ahead
from wavedsl.strategies.gemv_cuts import WAVES, GemvCut, gemv_cut
from wavedsl.strategies.kernels import Form
from wavedsl.strategies.loop_cuts import parts_of_k

WAVE_BYTES = 128
"""Bytes of a row that each of them takes per trip: a multiple of every instruction's K."""
_LOOPS = frozenset(("gemv", "skinny", "wave_parallel", "split_k", "stream_k"))
"""Strategies in whose place `auto` may take a loop over K with tiles that warpgroups multiply; in place of the others,
one of a trip or two, on large grids."""
_TILES = ("wave_parallel", "split_k")
"""Those in whose place it may cut the K of tiles of f32 or f64 in other parts."""
SLOW_ROWS = GEMV_ROWS // 2
"""Rows of a matrix-vector product on NVIDIA's chips beyond which its multiply-adds take longer than loads: measured on
an H200 (`choices`), where nothing else estimates them."""
NEAR = 0.95
"""Share of a matrix-vector product's estimated clocks that tiles must be estimated to take at most on AMD's chips."""


@dataclass(frozen=True)
class Choice:
    """A strategy and how it cuts a product: tiles and parts of K of warpgroups, columns and steps of a matrix-vector
    product, or what the others make their tiles of."""

    strategy: str
    cut: warpgroups.Cut | GemvCut | TileChoice

    def __str__(self) -> str:
        cut = self.cut
        if isinstance(cut, GemvCut):
            deep = f"{cut.columns} columns by {cut.deep}, {cut.waves} waves"
            return f"{self.strategy} {deep}" + (f", {cut.split} parts" if cut.split > 1 else "")
        if isinstance(cut, TileChoice):
            parts = f", {cut.split} parts" if cut.split > 1 else ""
            stages = f", {cut.pipeline_stages} stages" if cut.pipeline_stages else ""
            way = ", by registers" if cut.by_registers else ""
            return f"{self.strategy} {cut.tile_m}x{cut.tile_n}x{cut.tile_k}{stages}{parts}{way}"
        how = " added by a second launch" * cut.apart + " added in clusters" * cut.joined
        parts = f", {cut.parts} parts{how}" if cut.parts > 1 else ""
        return f"{self.strategy} {'x'.join(map(str, cut.tile))}{parts}"


def chosen(
    strategy: str, form: Form, sizes: tuple[int, int, int], chip: Product, launches: int
) -> tuple[Choice, str]:  # fmt: skip
    """The cut of a product by a strategy, in so many launches at most, and why."""
    m, n, k = sizes
    pipe = form.dtype if form.promoted else form.multiplied  # three products take longer than one of tf32
    record = analyze_gemm(m, n, k, pipe, product=chip, out=form.out, beta=form.beta)
    name, why = (record.recommended_strategy, record.why) if strategy == "auto" else (strategy, "asked for")
    many = name != "gemv" or min(m, n) > SLOW_ROWS
    suits = warpgroups.suits if name in _LOOPS else warpgroups.suits_shallow
    if strategy == "auto" and many and suits(form, sizes, chip):
        cut = warpgroups.best_cut(form, sizes, chip, launches)
        why += f"; {cut.tile[0]} x {cut.tile[1]} in {cut.parts} part{'s' * (cut.parts > 1)} of K take fewest clocks"
        return Choice(warpgroup_strategy(name, cut), cut), why
    if strategy == "auto" and name == "gemv" and _adds_are_slower(form, sizes, chip):
        name = "skinny"
        why += "; of so many rows a unit's multiply-adds take longer than its loads"
    if name == "gemv":
        if min(m, n) > GEMV_ROWS:
            raise ConstraintError(
                f"gemv: {m} rows and {n} columns", hint=f"one side of at most {GEMV_ROWS}; use skinny"
            )
        turned = long_columns(form, sizes)
        estimated = gemv_clocks.suits(form, min(m, n), chip)
        return Choice(name, gemv_clocks.best_gemv(*turned, chip).cut if estimated else gemv_cut(*turned, chip)), why
    shape = GemmShape(m, n, k, form.dtype, form.out, form.beta)
    tiles = choose_tiles(name, shape, chip)
    if strategy == "stream_k":
        tiles = matrix_cuts.best_dealt(form, sizes, chip) or tiles
    if strategy == "auto":
        found = _fewest_clocks(name, tiles, shape, form, chip)
        if found is not None:
            name, tiles = found
            parts = ", dealt to all units," if name == "stream_k" else ""
            parts = f" in {tiles.split} parts of K" if tiles.split > 1 else parts
            why += f"; {tiles.tile_m} x {tiles.tile_n}{parts} take fewest clocks"
    if not record.is_memory_bound:  # what it takes to keep units busy, and no instruction more
        tiles = replace(tiles, prefetch_distance=0)
    return Choice(name, tiles), why


def _fewest_clocks(
    name: str, tiles: TileChoice, shape: GemmShape, form: Form, chip: Product
) -> tuple[str, TileChoice] | None:  # fmt: skip
    """The strategy and tiles that are estimated to take fewest clocks; None where the strategy `name` and its `tiles`
    do, or nothing is estimated."""
    if name in _TILES and form.precision is None:
        found = parts_of_k(shape, tiles, chip)
        if found is not None:
            return "split_k", found
    if name not in _LOOPS - {"gemv"}:
        return None
    small = name == "wave_parallel" and is_small(tiles, shape.m, shape.n, chip)
    now = tiles
    if small:
        side, deep, waves = shares_of_waves(form, shape.m, shape.n)
        now = replace(tiles, tile_m=side, tile_n=side, tile_k=deep, waves_m=waves, waves_n=1)
    sizes = shape.m, shape.n, shape.k
    if name == "skinny" and not runs_ahead(chip):
        best = next(iter(matrix_cuts.best_cuts(form, sizes, chip)), None)
    else:
        best = matrix_cuts.better_cut(form, sizes, now, chip, small or name == "stream_k", small)
    return None if best is None else (strategy_of(name, best, shape.m, shape.n, chip), best.tiles)


def strategy_of(recommended: str, found: matrix_cuts.Found, m: int, n: int, chip: Product) -> str:
    """What a cut of waves' tiles is called that stands in a recommended strategy's place. (`wave_parallel` has tiles of
    its own where these leave half of the units idle.)"""
    if found.dealt or found.tiles.split > 1:
        return "stream_k" if found.dealt else "split_k"
    if recommended == "skinny":
        return recommended
    return "cache_persistent" if is_small(found.tiles, m, n, chip) else "wave_parallel"


def warpgroup_strategy(recommended: str, cut: warpgroups.Cut) -> str:
    """What tiles of warpgroups are called that stand in a recommended strategy's place."""
    if recommended not in _LOOPS:
        return "cache_persistent"
    return "skinny" if recommended in ("skinny", "gemv") else "split_k" if cut.parts > 1 else "wave_parallel"


def _adds_are_slower(form: Form, sizes: tuple[int, int, int], chip: Product) -> bool:
    """Whether a product of a few rows takes longer on multiply-adds than on matrix units: by estimates of both where
    there are such."""
    rows = min(sizes[:2])
    if gemv_clocks.suits(form, rows, chip):
        most = NEAR * gemv_clocks.best_gemv(*long_columns(form, sizes), chip).clocks
        if matrix_cuts.memory_clocks(form, sizes, chip) >= most:
            return False  # no tiles take less
        best = next(iter(matrix_cuts.best_cuts(form, sizes, chip)), None)
        return best is not None and best.clocks < most
    return matrix_cuts.suits(form, chip) and runs_ahead(chip) and rows > SLOW_ROWS


def long_columns(form: Form, sizes: tuple[int, int, int]) -> tuple[Form, int, int, int]:
    """The form, M, N and K of a product whose few rows are those of M: where columns are few, operands change places,
    by views. C^T = B^T A^T: B is then the left operand [N, K], A the right one with rows of K."""
    m, n, k = sizes
    return (replace(form, b_rows=True), n, m, k) if m > n else (form, m, n, k)


def is_small(tiles: TileChoice, m: int, n: int, chip: Product) -> bool:
    """Whether tiles leave half of the chip's units idle."""
    return 2 * ceil(m / tiles.tile_m) * ceil(n / tiles.tile_n) <= chip.units


def shares_of_waves(form: Form, m: int, n: int) -> tuple[int, int, int]:
    """Side and depth of a small tile, and the waves that share its K."""
    deep = WAVE_BYTES // 2 if form.promoted else WAVE_BYTES  # fragments are held twice
    return 16 if min(m, n) <= 64 else 32, WAVES * deep * 8 // form.dtype.bits, WAVES


__all__ = ["Choice", "chosen", "is_small", "long_columns", "shares_of_waves", "strategy_of", "warpgroup_strategy"]
