"""Decoding: one query per head and sequence attends to keys that lie in pages, split over workgroups.

    python examples/attention_decode.py                                      three sequences, 8 heads on 2 key heads
    python examples/attention_decode.py --lengths 300,0,17 --splits 4 --page 32 --dtype bf16
    python examples/attention_decode.py --target sm_80 --heads 4 --group 1 --d 128
    python examples/attention_decode.py --window 100 --alibi --sinks --bias --cap 30 --order hsd

Keys and values of all sequences share a pool of pages, [pages, page size, key heads, size] or heads before keys;
table[z, j] is the page of sequence z that holds its keys j · page size and following. The query stands behind the last
key: a window is that of its last keys, slopes count from there. A workgroup takes one sequence, one head of keys (with
all query heads that share it) and one of `splits` equal parts of the keys; it leaves its weighted sum and log-sum-exp.
A second kernel combines the parts in order, so the result is the same on every run. A page number outside of the pool
makes the result NaN; it never reads another page.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

from dataclasses import replace

import attention as forward
import attention_varlen as varlen
import common
import numpy as np
from attention import BM, BN, D, E, G, M, N, Variant, finite, log_sum_exp, with_sink
from attention_varlen import packed

import wavedsl as wd

Z, P, S, J, X = wd.symbols("Z P S J X")
"""Sequences, pages, keys per page, pages per sequence, splits. M: query heads that share a head of keys."""


def split_kernel(
    variant: Variant,
    *,
    page: int,
    pages: int,
    splits: int,
    tile: int = 32,
    rows: int = 16,
    waves: int = 1,
    order: str = "shd",
):
    """One part of the keys: `partial` and its log-sum-exp `level`, then those that the variant has of bias, slopes.
    `pages`: columns of the table; `tile`: keys per trip, a divisor of the page; `order`: of what a page holds."""
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
        k: wd.Memory[(P, *packed(order, G, S, D), wd.SHARED, dtype)],
        v: wd.Memory[(P, *packed(order, G, S, E), wd.SHARED, dtype)],
        table: wd.Memory[Z, J, wd.i32],
        lengths: wd.Memory[Z, wd.i32],
        scale: wd.Scalar[wd.f32],
        partial: wd.Memory[Z, X, G, M, E, wd.f32],
        level: wd.Memory[Z, X, G, M, wd.f32],
        bias: wd.Memory[Z, G, M, N, variant.out or dtype] if variant.bias else None,
        slopes: wd.Memory[G, M, wd.f32] if variant.alibi else None,
    ):
        keys = wd.read(lengths)
        first = 0 if variant.window is None else wd.maximum(keys - variant.window, 0)
        share = (keys - first + (splits - 1)) // splits
        start = first + wd.index(X) * share
        stop = wd.minimum(start + share, keys)
        unit = variant.unit(scale)
        behind = keys - 1 - wd.index(M)  # every row is the query behind the last key

        top = wd.Register[M, wd.f32](-math.inf)
        total = wd.Register[M, wd.f32](0.0)
        acc = wd.Register[M, E, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total, acc], start=start, stop=stop)
        def over_keys(top, total, acc):
            number = wd.read(table, mapping=wd.IndexMapping((), {J: wd.tile_start(N) // page}))

            def paged(size):
                return wd.IndexMapping((N, size), {P: number, S: N % page})

            raw = wd.mma(wd.read(q), wd.read(k, mapping=paged(D)), wd.Register[M, N, wd.f32](0.0))
            added = wd.read(bias) if variant.bias else None, wd.read(slopes) if variant.alibi else None
            scores = variant.scored(raw, scale, *added, behind)
            mine = (wd.index(N) >= start) & (wd.index(N) < stop)
            scores = wd.where(mine, scores, -math.inf)
            scores = wd.where((number >= 0) & (number < P), scores, math.nan)
            new_top = wd.maximum(top, wd.max(scores, dim=N))
            base = finite(new_top)
            p, keep = (wd.exp2(wd.fma(x, unit, -(base * unit))) for x in (scores, top))
            values = wd.read(v, mapping=paged(E))
            return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, dtype), values, acc * keep)

        top, total, acc = over_keys
        wd.write(acc * wd.where(total == 0.0, 0.0, 1.0 / total), partial)
        wd.write(log_sum_exp(replace(variant, sinks=False), scale, top, total), level)

    return attention


def combine_kernel(variant: Variant, *, rows: int = 16):
    """O and the log-sum-exp from the parts, added in the order of the splits, and the variant's sinks."""
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
        sink: wd.Memory[G, M, wd.f32] if variant.sinks else None,
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
            base = finite(new_top)
            keep, weight = wd.exp(top - base), wd.exp(one - base)
            return new_top, total * keep + weight, acc * keep + part(partial, M, E) * weight

        top, total, acc = over_splits
        if variant.sinks:
            top, total, acc = with_sink(variant, 1.0, top, total, acc, wd.read(sink))
        wd.write(wd.cast(acc * wd.where(total == 0.0, 0.0, 1.0 / total), out), o)
        wd.write(top + wd.log(total), lse)

    return combine


def arguments_of(
    variant: Variant,
    lengths,
    heads: int,
    d: int,
    page: int,
    splits: int,
    seed: int = 0,
    e: int | None = None,
    order: str = "shd",
):
    """Arguments of both kernels by name, for sequences with these numbers of keys; pages in random order."""
    random = np.random.default_rng(seed)
    key_heads, per, out = heads // variant.group, max(1, -(-max(lengths) // page)), variant.out or variant.dtype
    count = sum(-(-n // page) for n in lengths) + 1
    numbers, table = list(random.permutation(count)), np.zeros((len(lengths), per), np.int32)
    for z, n in enumerate(lengths):
        for j in range(-(-n // page)):
            table[z, j] = numbers.pop()
    rows = (len(lengths), key_heads, variant.group)
    given = {
        "q": common.data((*rows, d), variant.dtype, seed + 1),
        "k": common.data((count, *packed(order, key_heads, page, d)), variant.dtype, seed + 2),
        "v": common.data((count, *packed(order, key_heads, page, e or d)), variant.dtype, seed + 3),
        "table": table,
        "lengths": np.array(lengths, np.int32),
        "scale": np.float32(1 / math.sqrt(d)),
        "partial": np.full((rows[0], splits, *rows[1:], e or d), 93, np.float32),
        "level": np.full((rows[0], splits, *rows[1:]), 93, np.float32),
        "o": np.full((*rows, e or d), 93, out.storage),
        "lse": np.full(rows, 93, np.float32),
    }
    if variant.bias:
        given["bias"] = common.data((*rows, per * page), out, seed + 4)
    if variant.alibi:
        given["slopes"] = (2.0 ** (-8 * np.arange(1, heads + 1) / heads)).astype(np.float32).reshape(rows[1:])
    if variant.sinks:
        given["sink"] = common.data(rows[1:], wd.f32, seed + 5)
    return given


def check(variant: Variant, given, order: str = "shd") -> int:
    """Compare every sequence with the reference on its keys in order; 0 if all are within what is allowed."""
    want, want_lse = np.zeros(given["o"].shape), np.zeros(given["lse"].shape)
    allowed = lse_allowed = 0.0
    alone = replace(variant, causal=True, order="bhsd", v_order=None)
    for z, n in enumerate(given["lengths"]):
        page = given["k"].shape[1 + order.index("s")]
        pages = given["table"][z, : -(-n // page)]
        k, v = (np.einsum(f"p{order}->hpsd", given[x][pages]) for x in ("k", "v"))
        k, v = (x.reshape(1, x.shape[0], -1, x.shape[3])[:, :, :n] for x in (k, v))
        extras = {x: given[x].reshape(-1) for x in ("slopes", "sink") if x in given}
        if variant.bias:
            extras["bias"] = given["bias"][z].reshape(1, -1, 1, given["bias"].shape[-1])[..., :n]
        q = given["q"][z].reshape(1, -1, 1, given["q"].shape[-1])
        o, lse, bound, lse_bound = forward.reference(alone, q, k, v, float(given["scale"]), **extras)
        want[z], want_lse[z] = o.reshape(want.shape[1:]), lse.reshape(want_lse.shape[1:])
        allowed, lse_allowed = max(allowed, bound), max(lse_allowed, lse_bound)
    return common.verdict("o", given["o"], want, allowed) | common.verdict("lse", given["lse"], want_lse, lse_allowed)


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, varlen.DTYPES, heads=8, d=64, group=4, page=64, splits=3)
    parser.add_argument("--e", type=int, help="head size of the values (that of the keys)")
    parser.add_argument("--lengths", default="200,64,1", help="keys of each sequence")
    parser.add_argument("--window", type=int, help="the query sees this many keys, the last ones")
    parser.add_argument("--cap", type=float, help="scores become cap tanh(score / cap)")
    for flag in ("bias", "alibi", "sinks"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--order", default="shd", choices=("shd", "hsd"), help="of a page: keys or heads first")
    given = parser.parse_args(arguments)
    variant = varlen.variant_of(given, common.dtype_called(given.dtype))
    lengths = [int(x) for x in given.lengths.split(",")]
    sizes = given.heads, given.d, given.page, given.splits
    values = arguments_of(variant, lengths, *sizes, given.seed, given.e, given.order)
    pages = values["table"].shape[1]
    split = split_kernel(variant, page=given.page, pages=pages, splits=given.splits, order=given.order)
    for kernel in (split, combine_kernel(variant)):
        common.run(kernel, [values[p.name] for p in kernel.parameters], given)
    return check(variant, values, given.order)


if __name__ == "__main__":
    sys.exit(main())
