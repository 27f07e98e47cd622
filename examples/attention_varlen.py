"""Attention on sequences of different lengths, packed one after the other.

    python examples/attention_varlen.py                                  four sequences, 2 heads, head size 64
    python examples/attention_varlen.py --causal --dtype bf16 --lengths 70,0,129,1
    python examples/attention_varlen.py --lengths 33,64 --keys 100,20 --group 2 --target sm_80

Q and O are [tokens, heads, size], K and V [key tokens, key heads, size]. Sequence z has the queries starts_q[z] up to
starts_q[z + 1], and keys likewise. A workgroup takes a tile of queries of one sequence and head; tiles past the end of
their sequence do nothing. The last query of a sequence is aligned with its last key.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import attention as forward
import common
import numpy as np
from attention import BM, BN, D, E, G, H, M, N, Variant

import wavedsl as wd

Z, Z1, TQ, TK = wd.symbols("Z Z1 TQ TK")
"""Sequences, sequences and one, tokens of all queries and of all keys; M and N are the longest ones."""


def varlen_kernel(variant: Variant, *, tile: tuple[int, int] = (64, 32), waves: int = 4):
    """Attention on packed sequences. Arguments: q, k, v, o, starts_q, starts_k, scale, lse (if the variant has it)."""
    dtype, out = variant.dtype, variant.out or variant.dtype

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(H, 1, 1),
            wd.WorkgroupConstraint(Z, 1, 2),
            wd.TilingConstraint(N, BN),
            wd.WaveConstraint(M, BM / waves),
        ],
        subs={BM: tile[0], BN: tile[1]},
        name="attention_varlen",
    )
    def attention(
        q: wd.Memory[TQ, H, D, dtype],
        k: wd.Memory[TK, G, D, wd.SHARED, dtype],
        v: wd.Memory[TK, G, E, wd.SHARED, dtype],
        o: wd.Memory[TQ, H, E, out],
        starts_q: wd.Memory[Z1, wd.i32],
        starts_k: wd.Memory[Z1, wd.i32],
        scale: wd.Scalar[wd.f32],
        lse: wd.Memory[H, TQ, wd.f32] if variant.lse else None,
    ):
        def span(starts):
            first, after = (wd.read(starts, mapping=wd.IndexMapping((), {Z1: Z + i})) for i in (0, 1))
            return first, after - first

        (first_q, queries), (first_k, keys) = span(starts_q), span(starts_k)
        behind = keys - queries
        # Tokens past the end of a sequence belong to the next one: an index of -1 is outside of every array.
        row = wd.where(wd.index(M) < queries, wd.index(M) + first_q, -1)

        def of_queries(*dims):
            return wd.IndexMapping(dims, {TQ: row})

        def of_keys(size):
            token = wd.where(wd.index(N) < keys, wd.index(N) + first_k, -1)
            return wd.IndexMapping((N, size), {TK: token, G: variant.key_head})

        unit = variant.unit(scale)
        position = wd.index(M) + behind
        start = None if variant.window is None else wd.tile_start(M) + (behind + 1 - variant.window)
        stop = wd.minimum(wd.tile_stop(M) + behind, keys) if variant.causal else keys
        stop = wd.where(wd.tile_start(M) < queries, stop, 0)
        queries_read = wd.read(q, mapping=of_queries(M, D))

        top = wd.Register[M, wd.f32](-math.inf)
        total = wd.Register[M, wd.f32](0.0)
        acc = wd.Register[M, E, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total, acc], start=start, stop=stop)
        def over_keys(top, total, acc):
            raw = wd.mma(queries_read, wd.read(k, mapping=of_keys(D)), wd.Register[M, N, wd.f32](0.0))
            scores = wd.where(wd.index(N) < keys, variant.scored(raw, scale, None, None), -math.inf)
            if variant.causal:
                scores = wd.where(wd.index(N) <= position, scores, -math.inf)
            if variant.window is not None:
                scores = wd.where(wd.index(N) > position - variant.window, scores, -math.inf)
            new_top = wd.maximum(top, wd.max(scores, dim=N))
            base = wd.where(new_top == -math.inf, 0.0, new_top)
            p, keep = (wd.exp2(wd.fma(x, unit, -(base * unit))) for x in (scores, top))
            values = wd.read(v, mapping=of_keys(E))
            return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, dtype), values, acc * keep)

        top, total, acc = over_keys
        result = wd.cast(acc * wd.where(total == 0.0, 0.0, 1.0 / total), out)
        wd.write(result, o, mapping=of_queries(M, E))
        if variant.lse:
            level = wd.fma(top, scale, wd.log(total)) if variant.plain else top + wd.log(total)
            wd.write(level, lse, mapping=wd.IndexMapping((M,), {TQ: row}))

    return attention


def arguments_of(variant: Variant, lengths, keys, heads: int, d: int, e: int | None = None, seed: int = 0):
    """Arguments by name for sequences with these numbers of queries and keys, and the extents that no array has."""
    starts = [np.concatenate([[0], np.cumsum(x)]).astype(np.int32) for x in (lengths, keys)]
    key_heads, e = heads // variant.group, e or d
    given = {
        "q": common.data((starts[0][-1], heads, d), variant.dtype, seed),
        "k": common.data((starts[1][-1], key_heads, d), variant.dtype, seed + 1),
        "v": common.data((starts[1][-1], key_heads, e), variant.dtype, seed + 2),
        "o": np.full((starts[0][-1], heads, e), 93, (variant.out or variant.dtype).storage),
        "starts_q": starts[0],
        "starts_k": starts[1],
        "scale": np.float32(1 / math.sqrt(d)),
    }
    if variant.lse:
        given["lse"] = np.full((heads, starts[0][-1]), 93, np.float32)
    return given, {Z: len(lengths), M: max(lengths), N: max(keys)}


def check(variant: Variant, given) -> int:
    """Compare every sequence with the reference for one; 0 if all are within what is allowed."""
    want, want_lse = np.zeros(given["o"].shape), np.zeros(given["o"].shape[1::-1])
    allowed = lse_allowed = 0.0
    starts_q, starts_k = given["starts_q"], given["starts_k"]
    for z in range(len(starts_q) - 1):
        rows, columns = (slice(s[z], s[z + 1]) for s in (starts_q, starts_k))
        parts = (np.einsum("shd->hsd", given[x][r])[None] for x, r in (("q", rows), ("k", columns), ("v", columns)))
        o, lse, bound, lse_bound = forward.reference(variant, *parts, float(given["scale"]))
        want[rows], want_lse[:, rows] = np.einsum("hsd->shd", o[0]), lse[0]
        allowed, lse_allowed = max(allowed, bound), max(lse_allowed, lse_bound)
    status = common.verdict("o", given["o"], want, allowed)
    if variant.lse:
        status |= common.verdict("lse", given["lse"], want_lse, lse_allowed)
    return status


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f16", "bf16"), heads=2, d=64, group=1, waves=4)
    parser.add_argument("--lengths", default="70,0,129,1", help="queries of each sequence")
    parser.add_argument("--keys", help="keys of each sequence (as many as queries)")
    parser.add_argument("--causal", action="store_true", help="a query sees the keys up to its own position")
    parser.add_argument("--window", type=int, help="a query sees this many keys up to its own position")
    parser.add_argument("--lse", action="store_true")
    given = parser.parse_args(arguments)
    lengths = [int(x) for x in given.lengths.split(",")]
    keys = [int(x) for x in given.keys.split(",")] if given.keys else lengths
    variant = Variant(
        common.dtype_called(given.dtype), causal=given.causal or given.window is not None, window=given.window,
        lse=given.lse, group=given.group,
    )  # fmt: skip
    values, extents = arguments_of(variant, lengths, keys, given.heads, given.d, seed=given.seed)
    common.run(varlen_kernel(variant, waves=given.waves), list(values.values()), given, subs=extents)
    return check(variant, values)


if __name__ == "__main__":
    sys.exit(main())
