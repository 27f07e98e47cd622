"""Decoding: one query per head and sequence attends to keys that lie in pages, split over workgroups.

    python examples/attention_decode.py                                      three sequences, 8 heads on 2 key heads
    python examples/attention_decode.py --lengths 300,0,17 --splits 4 --page 32 --dtype bf16
    python examples/attention_decode.py --target sm_80 --heads 4 --group 1 --d 128

Keys and values of all sequences share a pool of pages, [pages, page size, key heads, size]; table[z, j] is the page of
sequence z that holds its keys j · page size and following. A workgroup takes one sequence, one head of keys (with all
query heads that share it) and one of `splits` equal parts of the keys; it leaves its weighted sum and log-sum-exp. A
second kernel combines the parts in order, so the result is the same on every run. A page number outside of the pool
makes the result NaN; it never reads another page.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import attention as forward
import common
import numpy as np
from attention import BM, BN, D, E, G, M, N, Variant

import wavedsl as wd

Z, P, S, J, X = wd.symbols("Z P S J X")
"""Sequences, pages, keys per page, pages per sequence, splits. M: query heads that share a head of keys."""


def split_kernel(
    variant: Variant, *, page: int, pages: int, splits: int, tile: int = 32, rows: int = 16, waves: int = 1
):
    """One part of the keys: `partial` and its log-sum-exp `level`. `pages`: columns of the table; `tile`: keys per
    trip, a divisor of the page."""
    if page % tile:
        raise ValueError(f"tile={tile} does not divide page={page}: a tile of keys must lie in one page")
    dtype = variant.dtype

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(X, 1, 0),
            wd.WorkgroupConstraint(G, 1, 1),
            wd.WorkgroupConstraint(Z, 1, 2),
            wd.TilingConstraint(N, BN),
            wd.WaveConstraint(M, BM / waves),
        ],
        subs={BM: rows * waves, BN: tile, X: splits, S: page, N: pages * page},
        name="attention_split",
    )
    def attention(
        q: wd.Memory[Z, G, M, D, dtype],
        k: wd.Memory[P, S, G, D, wd.SHARED, dtype],
        v: wd.Memory[P, S, G, E, wd.SHARED, dtype],
        table: wd.Memory[Z, J, wd.i32],
        lengths: wd.Memory[Z, wd.i32],
        scale: wd.Scalar[wd.f32],
        partial: wd.Memory[Z, X, G, M, E, wd.f32],
        level: wd.Memory[Z, X, G, M, wd.f32],
    ):
        keys = wd.read(lengths)
        share = (keys + (splits - 1)) // splits
        start = wd.index(X) * share
        stop = wd.minimum(start + share, keys)
        unit = variant.unit(scale)

        top = wd.Register[M, wd.f32](-math.inf)
        total = wd.Register[M, wd.f32](0.0)
        acc = wd.Register[M, E, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total, acc], start=start, stop=stop)
        def over_keys(top, total, acc):
            number = wd.read(table, mapping=wd.IndexMapping((), {J: wd.tile_start(N) // page}))

            def paged(size):
                return wd.IndexMapping((N, size), {P: number, S: N % page})

            raw = wd.mma(wd.read(q), wd.read(k, mapping=paged(D)), wd.Register[M, N, wd.f32](0.0))
            scores = variant.scored(raw, scale, None, None)
            mine = (wd.index(N) >= start) & (wd.index(N) < stop)
            scores = wd.where(mine, scores, -math.inf)
            scores = wd.where((number >= 0) & (number < P), scores, math.nan)
            new_top = wd.maximum(top, wd.max(scores, dim=N))
            base = wd.where(new_top == -math.inf, 0.0, new_top)
            p, keep = (wd.exp2(wd.fma(x, unit, -(base * unit))) for x in (scores, top))
            values = wd.read(v, mapping=paged(E))
            return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, dtype), values, acc * keep)

        top, total, acc = over_keys
        wd.write(acc * wd.where(total == 0.0, 0.0, 1.0 / total), partial)
        wd.write(wd.fma(top, scale, wd.log(total)) if variant.plain else top + wd.log(total), level)

    return attention


def combine_kernel(variant: Variant, *, rows: int = 16):
    """O and the log-sum-exp from the parts, added in the order of the splits."""
    out = variant.out or variant.dtype

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(G, 1, 1),
            wd.WorkgroupConstraint(Z, 1, 2),
            wd.TilingConstraint(X, 1),
        ],
        subs={BM: rows},
        name="attention_combine",
    )
    def combine(
        partial: wd.Memory[Z, X, G, M, E, wd.f32],
        level: wd.Memory[Z, X, G, M, wd.f32],
        o: wd.Memory[Z, G, M, E, out],
        lse: wd.Memory[Z, G, M, wd.f32],
    ):
        def part(array, *dims):
            return wd.read(array, mapping=wd.IndexMapping(dims, {X: wd.tile_start(X)}))

        top = wd.Register[M, wd.f32](-math.inf)
        total = wd.Register[M, wd.f32](0.0)
        acc = wd.Register[M, E, wd.f32](0.0)

        @wd.iterate(X, init_args=[top, total, acc])
        def over_splits(top, total, acc):
            one = part(level, M)
            new_top = wd.maximum(top, one)
            base = wd.where(new_top == -math.inf, 0.0, new_top)
            keep, weight = wd.exp(top - base), wd.exp(one - base)
            return new_top, total * keep + weight, acc * keep + part(partial, M, E) * weight

        top, total, acc = over_splits
        wd.write(wd.cast(acc * wd.where(total == 0.0, 0.0, 1.0 / total), out), o)
        wd.write(top + wd.log(total), lse)

    return combine


def arguments_of(variant: Variant, lengths, heads: int, d: int, page: int, splits: int, seed: int = 0):
    """Arguments of both kernels by name, for sequences with these numbers of keys; pages in random order."""
    random = np.random.default_rng(seed)
    key_heads, per = heads // variant.group, max(1, -(-max(lengths) // page))
    count = sum(-(-n // page) for n in lengths) + 1
    order, table = list(random.permutation(count)), np.zeros((len(lengths), per), np.int32)
    for z, n in enumerate(lengths):
        for j in range(-(-n // page)):
            table[z, j] = order.pop()
    shape = (len(lengths), key_heads, variant.group, d)
    return {
        "q": common.data(shape, variant.dtype, seed + 1),
        "k": common.data((count, page, key_heads, d), variant.dtype, seed + 2),
        "v": common.data((count, page, key_heads, d), variant.dtype, seed + 3),
        "table": table,
        "lengths": np.array(lengths, np.int32),
        "scale": np.float32(1 / math.sqrt(d)),
        "partial": np.full((shape[0], splits, *shape[1:]), 93, np.float32),
        "level": np.full((shape[0], splits, *shape[1:3]), 93, np.float32),
        "o": np.full(shape, 93, (variant.out or variant.dtype).storage),
        "lse": np.full(shape[:3], 93, np.float32),
    }


def check(variant: Variant, given) -> int:
    """Compare every sequence with the reference on its keys in order; 0 if all are within what is allowed."""
    want, want_lse = np.zeros(given["o"].shape), np.zeros(given["lse"].shape)
    allowed = lse_allowed = 0.0
    page = given["k"].shape[1]
    for z, n in enumerate(given["lengths"]):
        pages = given["table"][z, : -(-n // page)]
        k, v = (given[x][pages].reshape(-1, *given[x].shape[2:])[:n] for x in ("k", "v"))
        k, v = (np.einsum("ngd->gnd", x)[None] for x in (k, v))
        single = Variant(variant.dtype, variant.out)  # the heads of a group are rows that all see every key
        o, lse, bound, lse_bound = forward.reference(single, given["q"][z][None], k, v, float(given["scale"]))
        want[z], want_lse[z] = o[0], lse[0]
        allowed, lse_allowed = max(allowed, bound), max(lse_allowed, lse_bound)
    return common.verdict("o", given["o"], want, allowed) | common.verdict("lse", given["lse"], want_lse, lse_allowed)


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f16", "bf16"), heads=8, d=64, group=4, page=64, splits=3)
    parser.add_argument("--lengths", default="200,64,1", help="keys of each sequence")
    given = parser.parse_args(arguments)
    variant = Variant(common.dtype_called(given.dtype), group=given.group)
    lengths = [int(x) for x in given.lengths.split(",")]
    values = arguments_of(variant, lengths, given.heads, given.d, given.page, given.splits, given.seed)
    pages = values["table"].shape[1]
    split = split_kernel(variant, page=given.page, pages=pages, splits=given.splits)
    for kernel in (split, combine_kernel(variant)):
        common.run(kernel, [values[p.name] for p in kernel.parameters], given)
    return check(variant, values)


if __name__ == "__main__":
    sys.exit(main())
