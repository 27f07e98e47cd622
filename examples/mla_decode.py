"""Multi-head latent attention (DeepSeek), decoding: all query heads read the same latent vectors, as keys and values.

    python examples/mla_decode.py                                   two sequences, 16 heads, pages of 64 tokens
    python examples/mla_decode.py --heads 128 --target gfx950 --lengths 300,0 --dtype f16
    python examples/mla_decode.py --target sm_90a --heads 64 --splits 1
    python examples/mla_decode.py --target gfx942 --predict         clocks per token beside what memory takes

A token has one row in the cache: 512 latent numbers and 64 that carry its position. Queries (with the projection of the
keys multiplied in) meet all of a row, weights only its latent part, so the tile that is copied for the scores is read a
second time for the sum: 1152 bytes per token from memory, whatever the number of heads. The cache lies in pages, as in
attention_decode.py, whose second kernel combines the splits.

Sums of 16 heads are 8192 numbers, too many for one wave. Waves share the latent dimension: each multiplies its part of
queries and rows, they add up the scores, and each keeps its columns of the sum. Warpgroups of sm_90a make all scores
themselves (`apart`): there the columns of the sum have a name of their own.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

from typing import NamedTuple

import attention_decode as decode
import common
import numpy as np
from attention import BM, BN, LOG2_E, E, M, N, Variant, finite
from attention_decode import J, P, S, X, Z

import wavedsl as wd

L, R = wd.symbols("L R")
"""Latent numbers of a token, numbers with its position. M: query heads; E: columns of the sum, as many as L."""


class Tile(NamedTuple):
    """`rows` heads per wave, `waves` along heads and along the latent dimension, `keys` tokens per trip. `apart`: waves
    share the columns of the sum only, and are warpgroups."""

    rows: int = 16
    waves: tuple[int, int] = (1, 4)
    keys: int = 32
    apart: bool = False


def tile_of(target: str, heads: int) -> Tile:
    """What suits a target. With few heads memory is what takes longest; with many, the more heads share a tile the
    better, and the fewer reads of it there are in shared memory."""
    if target == "sm_90a" and heads > 32:
        return Tile(64, (1, 2), 32, apart=True)
    if heads <= 16:
        return Tile(keys=64 if target == "gfx950" else 32)
    if target.startswith("sm"):
        return Tile(16, (2, 4), 32) if heads <= 32 else Tile(16, (4, 2), 32)
    if heads <= 32:
        return Tile(32, (1, 4), 32)
    return Tile(16, (4, 2), 32) if target == "gfx950" else Tile(16, (4, 1), 16)


def split_kernel(dtype: wd.DType, *, page: int, pages: int, splits: int, tile: Tile | None = None):
    """One part of the tokens of a sequence: `partial` and its log-sum-exp `level`. `pages`: columns of the table."""
    tile = tile or Tile()
    if page % tile.keys:
        raise ValueError(f"{tile.keys} tokens per trip do not divide page={page}: a tile must lie in one page")
    columns, (along_heads, along_latent) = E if tile.apart else L, tile.waves
    constraints = [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(X, 1, 1),
        wd.WorkgroupConstraint(Z, 1, 2),
        wd.TilingConstraint(N, BN),
        wd.WaveConstraint(M, BM / along_heads),
    ]
    if along_latent > 1:
        constraints += [
            wd.WorkgroupConstraint(columns, columns, 0),
            wd.WaveConstraint(columns, columns / along_latent),
        ]
    if tile.apart:
        constraints.append(wd.HardwareConstraint(threads_per_wave=128))

    @wd.wave(
        constraints,
        subs={BM: tile.rows * along_heads, BN: tile.keys, X: splits, S: page, N: pages * page},
        name="mla_split",
    )
    def attention(
        q: wd.Memory[Z, M, L, dtype],
        q_rope: wd.Memory[Z, M, R, dtype],
        latent: wd.Memory[P, S, L, wd.SHARED, dtype],
        rope: wd.Memory[P, S, R, wd.SHARED, dtype],
        table: wd.Memory[Z, J, wd.i32],
        lengths: wd.Memory[Z, wd.i32],
        scale: wd.Scalar[wd.f32],
        partial: wd.Memory[Z, X, M, columns, wd.f32],
        level: wd.Memory[Z, X, M, wd.f32],
    ):
        tokens = wd.read(lengths)
        share = (tokens + (splits - 1)) // splits
        start = wd.index(X) * share
        stop = wd.minimum(start + share, tokens)
        unit = scale * LOG2_E

        top = wd.Register[M, wd.f32](-math.inf)
        total = wd.Register[M, wd.f32](0.0)
        acc = wd.Register[M, columns, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total, acc], start=start, stop=stop)
        def over_tokens(top, total, acc):
            number = wd.read(table, mapping=wd.IndexMapping((), {J: wd.tile_start(N) // page}))
            place = {P: number, S: N % page}
            rows = wd.read(latent, mapping=wd.IndexMapping((N, L), place))
            raw = wd.mma(wd.read(q), rows, wd.Register[M, N, wd.f32](0.0))
            raw = wd.mma(wd.read(q_rope), wd.read(rope, mapping=wd.IndexMapping((N, R), place)), raw)
            mine = (wd.index(N) >= start) & (wd.index(N) < stop)
            scores = wd.where(mine, raw, -math.inf)
            scores = wd.where((number >= 0) & (number < P), scores, math.nan)
            new_top = wd.maximum(top, wd.max(scores, dim=N))
            base = finite(new_top)
            p, keep = (wd.exp2(wd.fma(x, unit, -(base * unit))) for x in (scores, top))
            values = rows
            if tile.apart:
                values = wd.read(latent, mapping=wd.IndexMapping((N, E), {**place, L: wd.index(E)}))
            return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, dtype), values, acc * keep)

        top, total, acc = over_tokens
        wd.write(acc * wd.where(total == 0.0, 0.0, 1.0 / total), partial)
        wd.write(wd.fma(top, scale, wd.log(total)), level)

    return attention


def arguments_of(dtype: wd.DType, lengths, heads: int, page: int, splits: int, seed: int = 0, sizes=(512, 64)):
    """Arguments of both kernels by name, for sequences with these numbers of tokens; `latent` and `rope` are parts of
    one `cache`, whose pages are in random order."""
    latent, rope = sizes
    variant = Variant(dtype, group=heads)
    given = decode.arguments_of(variant, lengths, heads, latent + rope, page, splits, seed, latent)
    cache, q = given["k"][:, :, 0], given["q"][:, 0]
    given |= {
        "cache": cache, "latent": cache[..., :latent], "rope": cache[..., latent:],
        "q": np.ascontiguousarray(q[..., :latent]), "q_rope": np.ascontiguousarray(q[..., latent:]),
        "scale": np.float32(1 / math.sqrt(128 + rope)),
        "partial": given["partial"][:, :, 0], "level": given["level"][:, :, 0],
    }  # fmt: skip
    return given


def check(dtype: wd.DType, given) -> int:
    """Compare every sequence with the reference; 0 if all are within what is allowed."""
    rows = np.concatenate([given["q"], given["q_rope"]], -1)[:, None]
    cache = given["cache"][:, :, None]
    plain = {**given, "q": rows, "k": cache, "v": cache[..., : given["q"].shape[-1]]}
    return decode.check(Variant(dtype, group=rows.shape[2]), plain)


def predicted(dtype: wd.DType, target: str, heads: int, page: int = 64) -> tuple[float, float]:
    """(clocks per token of one workgroup in the steady state by the cycle model, clocks that the row of a token takes
    of one unit's share of the chip's memory bandwidth)."""
    from wavedsl.analysis import product_named

    clocks = []
    tile, tokens = tile_of(target, heads), (256, 512)
    for n in tokens:
        given = arguments_of(dtype, [n], heads, page, 1)
        kernel = split_kernel(dtype, page=page, pages=n // page, splits=1, tile=tile)
        values = [given[p.name] for p in kernel.parameters]
        clocks.append(kernel.compile(*values, target=target).emulate(*values).cycles)
    chip = product_named(None, target)
    row = given["cache"].shape[-1] * dtype.bits // 8
    return (clocks[1] - clocks[0]) / (tokens[1] - tokens[0]), row / (chip.hbm / chip.units / chip.clock)


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("bf16", "f16"), heads=16, page=64, splits=2)
    parser.add_argument("--lengths", default="150,40", help="tokens of each sequence")
    parser.add_argument("--predict", action="store_true", help="clocks per token beside those of memory")
    given = parser.parse_args(arguments)
    dtype, tile = common.dtype_called(given.dtype), tile_of(given.target, given.heads)
    if given.predict:
        clocks, memory = predicted(dtype, given.target, given.heads, given.page)
        print(f"{clocks:.0f} clocks per token by the model, {memory:.0f} by the bandwidth of memory")
        return 0
    lengths = [int(x) for x in given.lengths.split(",")]
    values = arguments_of(dtype, lengths, given.heads, given.page, given.splits, given.seed)
    pages = values["table"].shape[1]
    kernel = split_kernel(dtype, page=given.page, pages=pages, splits=given.splits, tile=tile)
    common.run(kernel, [values[p.name] for p in kernel.parameters], given)
    combine = decode.combine_kernel(Variant(dtype, group=given.heads))
    parts = {**values, "partial": values["partial"][:, :, None], "level": values["level"][:, :, None]}
    common.run(combine, [parts[p.name] for p in combine.parameters], given)
    return check(dtype, values)


if __name__ == "__main__":
    sys.exit(main())
