"""Which way to cut a contraction, from its shape and a chip's balance point.

In: M, N, K, the input dtype, whether it is bound by memory, the chip. Out: the name of a strategy, why, and a
`TileChoice`. The memory-bound choices and their tiles follow the roofline generator that this project grew out of:
one pass for K below 32, small tiles that stay in L2 for K below 128, tiles spread over many waves above.

    shallow_k         K in one pass, wide tiles, no pipeline
    cache_persistent  a short K loop over tiles whose operands stay in L2
    wave_parallel     tiles spread over many waves, pipelined; where there are few tiles their waves share K
    gemv              one side has at most 4 rows: no matrix instruction, the long side streams once
    skinny            one side has at most 64 rows: operands swapped so that the long side feeds the matrix rows
    split_k           too few output tiles for the chip: several workgroups share one along K
    stream_k          output tiles leave most of the last round of workgroups idle: equal shares of all K steps
    stream            no contraction: every byte once, 16 bytes per lane
"""

from __future__ import annotations

from math import ceil, prod

from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.targets import get_target

STRATEGIES = (
    "shallow_k", "cache_persistent", "wave_parallel", "gemv", "skinny", "split_k", "stream_k", "stream",
)  # fmt: skip

SHALLOW_K = 32
"""Below it a whole row of K fits one pass."""
PERSISTENT_K = 128
"""Below it the K loop is short enough for its operands to stay in L2."""
LARGE_WAVE, MOST_WAVES = 64, 8
"""Rows and columns that a wave of a large tile takes at least, and its waves at most: sums fill half the registers."""
LARGEST_WITH_C = 256 * 128
"""Elements of a tile whose sums and part of C fit registers together."""
GEMV_ROWS = 4
SKINNY_ROWS = 64
WAVE_TILE = 32
"""Rows and columns of the output that one wave takes."""
VECTOR_BYTES = 16
"""The widest access of a lane."""
NEAR = 0.97
"""Share of busy units that is as good as all."""
ADDED = ((128, 128, 1.0), (128, 64, 1.15))
"""Tiles of products by multiply-adds of f32 and the clocks that each takes for an element, relative to the first: where
waves have 64 x 64 they read an operand for twice as many sums."""
ADDED_K = 512
"""K from which on the former is considered: 8192 x 8192 x 64 takes a tenth longer in it on an H200, 2048^3 a tenth
less."""
SHORT_ADDED_K, SHORT_ADDED_TILES = 64, 8
"""K up to which they take 64 x 64, where units have so many of these: 8192 x 8192 x 64 in 220 us on an H200, in 128 x
64 235, by the replay 166 and 175; K = 128 by the replay 363 and 309."""
TAIL = 0.8
"""Share of busy units over all rounds below which equal shares of K steps, or smaller tiles, beat whole tiles."""


@dataclass(frozen=True)
class GemmShape:
    """C[M, N] = A[M, K] B[K, N] of one input dtype; `beta`: C is read too. ConstraintError for an empty extent."""

    m: int
    n: int
    k: int
    dtype: DType
    out: DType | None = None
    beta: bool = False

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if getattr(self, name) < 1:
                raise ConstraintError(
                    f"a product with {name.upper()} = {getattr(self, name)} has no work to analyse",
                    hint="M, N and K are whole numbers from 1 on",
                )

    @property
    def flops(self) -> int:
        """A multiplication and an addition per product."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """A and B read once, C written once, and read once with `beta`."""
        out = (self.out or self.dtype).bits
        inputs = (self.m * self.k + self.k * self.n) * self.dtype.bits
        return (inputs + self.m * self.n * out * (2 if self.beta else 1)) // 8


@dataclass(frozen=True)
class TileChoice:
    """How to cut a product. Tiles in elements per workgroup, waves per workgroup, `vector_width` in elements per lane
    and access, `pipeline_stages` 0 for as many as the compiler chooses, `prefetch_distance` in K steps ahead of the one
    that is computed, `split` workgroups per output tile. `by_registers`: copies to shared memory pass through them."""

    tile_m: int
    tile_n: int
    tile_k: int
    pipeline_stages: int
    waves_m: int
    waves_n: int
    vector_width: int
    prefetch_distance: int
    split: int = 1
    by_registers: bool = False


def vector_width(dtype: DType) -> int:
    """Elements of one 16-byte access."""
    return VECTOR_BYTES * 8 // dtype.bits


def choose_strategy(shape: GemmShape, memory_bound: bool, product: Product) -> tuple[str, str]:
    """The strategy for a shape and the reason in words."""
    short, long = sorted((shape.m, shape.n))
    bound = "bound by memory" if memory_bound else "bound by compute"
    if memory_bound and shape.k < SHALLOW_K:
        return "shallow_k", f"{bound} and K = {shape.k} < {SHALLOW_K} fits one pass"
    if memory_bound and short <= GEMV_ROWS and long > SKINNY_ROWS:
        return "gemv", f"{bound} and {short} row{'s' * (short != 1)} are too few for a matrix instruction"
    if memory_bound and short <= SKINNY_ROWS < long and shape.k >= PERSISTENT_K:
        return "skinny", f"{bound} and only {short} rows: the long side of {long} feeds the matrix rows"
    if memory_bound and shape.k < PERSISTENT_K:
        return "cache_persistent", f"{bound} and K = {shape.k} < {PERSISTENT_K}: operands stay in L2"
    tiles = choose_tiles("wave_parallel", shape)
    count = ceil(shape.m / tiles.tile_m) * ceil(shape.n / tiles.tile_n)
    if 2 * count <= product.units and shape.k >= 8 * PERSISTENT_K:
        return "split_k", f"{bound}: {count} output tiles leave most of {product.units} units idle"
    rounds = ceil(count / product.units)
    busy = count / (rounds * product.units)
    if not memory_bound and rounds > 1 and busy < TAIL and rounds <= 4:
        return (
            "stream_k",
            f"{bound}: {count} output tiles keep {product.units} units busy for {busy:.0%} of {rounds} rounds",
        )
    spread = "keep most bytes in flight" if memory_bound else "keep the arithmetic units busy"
    return "wave_parallel", f"{bound}: tiles spread over waves {spread}"


def choose_tiles(strategy: str, shape: GemmShape, product: Product | None = None) -> TileChoice:
    """Tiles for a strategy. Raises ConstraintError for an unknown one."""
    m, n, k = shape.m, shape.n, shape.k
    width = vector_width(shape.dtype)
    if strategy == "shallow_k":
        side = _square(m, n, (128, 64))
        return _tiles(side, side, max(k, 1), 1, width, 0)
    every = strategy in ("cache_persistent", "wave_parallel", "auto")
    if every and product is not None and of_doubles(shape, product):
        return _doubles(shape, product, width)
    if strategy == "cache_persistent":
        side = _square(m, n, (64,))
        return _tiles(side, side, min(2 * width, k), 2, width, 1)
    if strategy == "gemv":
        return TileChoice(min(m, 4), min(n, 64), min(k, 64 * width), 1, 1, 1, width, 1)
    if strategy == "skinny":
        short = next(size for size in (16, 32, 64) if min(m, n) <= size or size == SKINNY_ROWS)
        tile_m, tile_n = (short, 128) if m <= n else (128, short)
        return TileChoice(tile_m, tile_n, min(k, 8 * width), 4, max(1, tile_m // 64), max(1, tile_n // 64), width, 3)
    if strategy in ("wave_parallel", "auto") and product is not None:
        large = _large(shape, product)
        if large is not None:
            waves_m = large[0] // LARGE_WAVE
            waves_n = min(large[1] // LARGE_WAVE, MOST_WAVES // waves_m)
            return TileChoice(*large, min(8 * width, k), 0, waves_m, waves_n, width, 2)
    wide = min(m, n) >= 128 and k >= ADDED_K
    if strategy in ("wave_parallel", "auto") and product is not None and wide and of_multiply_adds(shape, product):
        rows, columns, _ = min(ADDED, key=lambda x: ceil(ceil(m / x[0]) * ceil(n / x[1]) / product.units) * prod(x))
        if (rows, columns) == ADDED[0][:2]:
            return added_tile(rows, columns, shape)
    if strategy in ("wave_parallel", "split_k", "stream_k", "auto"):
        tile_m, tile_n = (128, 64) if m >= 128 and n >= 128 else (_square(m, n, (64,)),) * 2
        if strategy in ("wave_parallel", "auto") and product is not None and of_multiply_adds(shape, product):
            many = ceil(m / 64) * ceil(n / 64) >= SHORT_ADDED_TILES * product.units
            tile_m, tile_n = (64, 64) if k <= SHORT_ADDED_K and many else (tile_m, tile_n)
        chosen = _tiles(tile_m, tile_n, min(4 * width, k), 2, width, 2)
        if strategy == "split_k" and product is not None:
            count = ceil(m / tile_m) * ceil(n / tile_n)
            split = max(1, min(product.units // count, k // PERSISTENT_K))
            return TileChoice(**{**vars(chosen), "split": split})
        return chosen
    if strategy == "stream":
        return TileChoice(1, 64 * width, 1, 1, 1, 1, width, 0)
    raise ConstraintError(f"unknown strategy {strategy!r}", hint=f"one of auto, {', '.join(STRATEGIES)}")


@dataclass(frozen=True)
class Doubles:
    """A tile of f64 where the product lists matrix instructions for it: rows, columns, waves along them, slots of the
    ring; how many workgroups a unit is to have at least, and the least K."""

    rows: int
    columns: int
    waves: tuple[int, int]
    stages: int
    together: int
    deep: int

    def tiles(self, k: int, width: int) -> TileChoice:
        deep = min(DOUBLES_K, k)
        return TileChoice(self.rows, self.columns, deep, self.stages, *self.waves, width, self.stages - 1)


DOUBLES = (
    Doubles(128, 128, (2, 4), 4, 1, 8 * PERSISTENT_K),
    Doubles(64, 128, (2, 2), 3, 2, 0),
    Doubles(64, 64, (2, 2), 3, 0, 0),
)
"""The best first. Waves of 64 x 32 and 32 x 64 read three quarters of what those of 32 x 32 read for a product. Nobody
hides the beginning and end of the first; two of the second hide each other's. On an H200 2048 cubed took 290, 297 and
332 us, 8192 x 8192 x 64 (the other two) 214 and 219; the least K of the first follows from these."""
DOUBLES_K = 16
"""Elements of K per step: rows of a line, and two halves, of which one is read while the other one is multiplied."""


def of_doubles(shape: GemmShape, product: Product) -> bool:
    """Whether `DOUBLES` are for this product."""
    listed = shape.dtype.bits == 64 and shape.dtype.name in product.matrix
    return listed and min(shape.m, shape.n) >= DOUBLES[-1].rows


def _doubles(shape: GemmShape, product: Product, width: int) -> TileChoice:
    """The first of `DOUBLES` of which every unit has enough and that keeps about as many units busy as the smallest
    does."""
    m, n, units = shape.m, shape.n, product.units

    def busy(tile: Doubles) -> float:
        count = ceil(m / tile.rows) * ceil(n / tile.columns)
        share = m * n / (tile.rows * tile.columns * ceil(count / units) * units)
        return share if count >= tile.together * units and shape.k >= tile.deep else 0.0

    least = NEAR * busy(DOUBLES[-1])
    return next(x for x in DOUBLES if busy(x) >= least).tiles(shape.k, width)


def of_multiply_adds(shape: GemmShape, product: Product) -> bool:
    """Whether the chip multiplies f32 by multiply-adds."""
    return shape.dtype.name == "f32" and not product.has_matrix("f32", get_target(product.target))


def added_tile(rows: int, columns: int, shape: GemmShape) -> TileChoice:
    """A tile of products by multiply-adds of f32, with its steps along K."""
    width = vector_width(shape.dtype)
    if (rows, columns) == ADDED[0][:2]:
        return _tiles(rows, columns, 2 * width, 4, width, 3)
    return _tiles(rows, columns, min(4 * width, shape.k), 2, width, 2)


def _large(shape: GemmShape, product: Product) -> tuple[int, int] | None:
    """The largest tile of products that matrix units bound, if it keeps the chip's units busy. How deep its pipeline
    is, the compiler decides (`pipeline_stages` 0)."""
    listed = not product.matrix or shape.dtype.name in product.matrix  # empty: what the target's matrix rows say
    if shape.dtype.bits > 16 or not listed or shape.k < PERSISTENT_K:
        return None
    for tile in product.large:
        if shape.beta and tile[0] * tile[1] > LARGEST_WITH_C:
            continue
        count = ceil(shape.m / tile[0]) * ceil(shape.n / tile[1])
        whole = shape.m * shape.n / (count * tile[0] * tile[1])
        if whole * count / (ceil(count / product.units) * product.units) >= TAIL:
            return tile
    return None


def _square(m: int, n: int, sizes: tuple[int, ...]) -> int:
    """The largest of `sizes` that both extents fill, else 32."""
    return next((size for size in sizes if m >= size and n >= size), 32)


def _tiles(tile_m: int, tile_n: int, tile_k: int, stages: int, width: int, ahead: int) -> TileChoice:
    waves_m, waves_n = max(1, tile_m // WAVE_TILE), max(1, tile_n // WAVE_TILE)
    return TileChoice(tile_m, tile_n, tile_k, stages, waves_m, waves_n, width, ahead)
