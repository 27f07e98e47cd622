"""Attention on sequences of different lengths, packed one after the other.

    python examples/attention_varlen.py                                  four sequences, 2 heads, head size 64
    python examples/attention_varlen.py --causal --dtype bf16 --lengths 70,0,129,1
    python examples/attention_varlen.py --lengths 33,64 --keys 100,20 --group 2 --target sm_80
    python examples/attention_varlen.py --bias --alibi --sinks --cap 30 --lse --order hsd

Q and O are [tokens, heads, size], K and V [key tokens, key heads, size], or all of them heads first. Sequence z has the
queries starts_q[z] up to starts_q[z + 1], and keys likewise. A workgroup takes a tile of queries of one sequence and
head; tiles past the end of their sequence do nothing. The last query of a sequence is aligned with its last key. A bias
[heads, longest queries, longest keys] is that of every sequence, both counted from the sequence's first. A sequence
whose keys reach past the array gives NaN.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

from dataclasses import replace

import attention as forward
import common
import numpy as np
from attention import BM, BN, D, E, G, H, M, N, Variant, finite, log_sum_exp, with_sink

import wavedsl as wd

Z, Z1, TQ, TK = wd.symbols("Z Z1 TQ TK")
"""Sequences, sequences and one, tokens of all queries and of all keys; M and N are the longest ones."""


def packed(order: str, heads, tokens, size):
    """The dimensions of Q, K, V, O and their gradients. `order`: "shd" or "hsd", s the tokens of all sequences."""
    return tuple({"h": heads, "s": tokens, "d": size}[letter] for letter in order)


def varlen_kernel(variant: Variant, *, tile: tuple[int, int] = (64, 32), waves: int = 4, order: str = "shd"):
    """Attention on packed sequences. Arguments: q, k, v, o, starts_q, starts_k, scale, then those that the variant has
    of bias, slopes, sink, lse."""
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
        q: wd.Memory[(*packed(order, H, TQ, D), dtype)],
        k: wd.Memory[(*packed(order, G, TK, D), wd.SHARED, dtype)],
        v: wd.Memory[(*packed(order, G, TK, E), wd.SHARED, dtype)],
        o: wd.Memory[(*packed(order, H, TQ, E), out)],
        starts_q: wd.Memory[Z1, wd.i32],
        starts_k: wd.Memory[Z1, wd.i32],
        scale: wd.Scalar[wd.f32],
        bias: wd.Memory[H, M, N, out] if variant.bias else None,
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
        sink: wd.Memory[H, wd.f32] if variant.sinks else None,
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
        start = None if variant.window is None else wd.tile_start(M) + (behind + 1 - variant.window)
        stop = wd.minimum(wd.tile_stop(M) + behind, keys) if variant.causal else keys
        stop = wd.where(wd.tile_start(M) < queries, stop, 0)
        queries_read = wd.read(q, mapping=of_queries(M, D))

        top = wd.Register[M, wd.f32](-math.inf)
        total = wd.Register[M, wd.f32](0.0)
        acc = wd.Register[M, E, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total, acc], start=start, stop=stop, per_wave=True)
        def over_keys(top, total, acc):
            raw = wd.mma(queries_read, wd.read(k, mapping=of_keys(D)), wd.Register[M, N, wd.f32](0.0))
            added = wd.read(bias) if variant.bias else None, wd.read(slopes) if variant.alibi else None
            scores = variant.masked(variant.scored(raw, scale, *added, behind), behind)
            if not variant.causal:  # else no query of the sequence sees past its end
                scores = wd.where(wd.index(N) < keys, scores, -math.inf)
            new_top = wd.maximum(top, wd.max(scores, dim=N))
            base = finite(new_top)
            p, keep = (wd.exp2(wd.fma(x, unit, -(base * unit))) for x in (scores, top))
            values = wd.read(v, mapping=of_keys(E))
            return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, dtype), values, acc * keep)

        top, total, acc = over_keys
        # Keys outside of the array are no keys: a number would be a wrong one.
        there = (first_k >= 0) & (first_k + keys <= TK)
        total = total + wd.where(there, wd.Register[wd.f32](0.0), math.nan)
        if variant.sinks:
            top, total, acc = with_sink(variant, scale, top, total, acc, wd.read(sink))
        result = wd.cast(acc * wd.where(total == 0.0, 0.0, 1.0 / total), out)
        wd.write(result, o, mapping=of_queries(M, E))
        if variant.lse:
            wd.write(log_sum_exp(variant, scale, top, total), lse, mapping=wd.IndexMapping((M,), {TQ: row}))

    return attention


def arguments_of(
    variant: Variant, lengths, keys, heads: int, d: int, e: int | None = None, seed: int = 0, order: str = "shd"
):
    """Arguments by name for sequences with these numbers of queries and keys, and the extents that no array has."""
    starts = [np.concatenate([[0], np.cumsum(x)]).astype(np.int32) for x in (lengths, keys)]
    e, out = e or d, (variant.out or variant.dtype)
    extents = {Z: len(lengths), M: max(lengths), N: max(keys)}

    def drawn(number: int, heads: int, tokens: int, size: int) -> np.ndarray:
        return common.data(packed(order, heads, tokens, size), variant.dtype, seed + number)

    given = {
        "q": drawn(0, heads, starts[0][-1], d),
        "k": drawn(1, heads // variant.group, starts[1][-1], d),
        "v": drawn(2, heads // variant.group, starts[1][-1], e),
        "o": np.full(packed(order, heads, starts[0][-1], e), 93, out.storage),
        "starts_q": starts[0],
        "starts_k": starts[1],
        "scale": np.float32(1 / math.sqrt(d)),
    }
    if variant.bias:
        given["bias"] = common.data((heads, max(lengths), max(keys)), out, seed + 4)
    if variant.alibi:
        given["slopes"] = (2.0 ** (-8 * np.arange(1, heads + 1) / heads)).astype(np.float32)
    if variant.sinks:
        given["sink"] = common.data((heads,), wd.f32, seed + 5)
    if variant.lse:
        given["lse"] = np.full((heads, starts[0][-1]), 93, np.float32)
    return given, extents


def sequences(given, order: str):
    """Per sequence the indices of its queries' and of its keys' tokens in arrays of this order, and the extras that it
    has in common with the others: its part of the bias, slopes and sinks."""
    starts = given["starts_q"], given["starts_k"]
    for z in range(len(starts[0]) - 1):
        tokens = [slice(s[z], s[z + 1]) for s in starts]
        extras = {name: given[name] for name in ("slopes", "sink") if name in given}
        if "bias" in given:
            m, n = (part.stop - part.start for part in tokens)
            extras["bias"] = given["bias"][None, :, :m, :n]
        rows, columns = (tuple(part if letter == "s" else slice(None) for letter in order) for part in tokens)
        yield rows, columns, tokens[0], extras


def check(variant: Variant, given, order: str = "shd") -> int:
    """Compare every sequence with the reference for one; 0 if all are within what is allowed."""
    want = np.zeros(given["o"].shape)
    want_lse = np.zeros((want.shape[order.index("h")], want.shape[order.index("s")]))
    allowed = lse_allowed = 0.0
    alone = replace(variant, order="b" + order)
    for rows, columns, tokens, extras in sequences(given, order):
        parts = (given[x][where][None] for x, where in (("q", rows), ("k", columns), ("v", columns)))
        o, lse, bound, lse_bound = forward.reference(alone, *parts, float(given["scale"]), **extras)
        want[rows], want_lse[:, tokens] = o[0], lse[0]
        allowed, lse_allowed = max(allowed, bound), max(lse_allowed, lse_bound)
    status = common.verdict("o", given["o"], want, allowed)
    if variant.lse:
        status |= common.verdict("lse", given["lse"], want_lse, lse_allowed)
    return status


def variant_of(given, dtype: wd.DType) -> Variant:
    """The variant that the options of a command line ask for."""
    return Variant(
        dtype, wd.f16 if dtype.bits == 8 else None, getattr(given, "causal", True) or given.window is not None,
        given.window, given.bias, given.alibi, given.cap, given.sinks, getattr(given, "lse", True), given.group,
    )  # fmt: skip


DTYPES = ("f16", "bf16", "f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")


def options(description: str | None):
    """The parser of an example on packed sequences, forward or backward."""
    parser = common.options(description, DTYPES, heads=2, d=64, group=1)
    parser.add_argument("--e", type=int, help="head size of the values (that of the keys)")
    parser.add_argument("--lengths", default="70,0,129,1", help="queries of each sequence")
    parser.add_argument("--keys", help="keys of each sequence (as many as queries)")
    parser.add_argument("--causal", action="store_true", help="a query sees the keys up to its own position")
    parser.add_argument("--window", type=int, help="a query sees this many keys up to its own position")
    parser.add_argument("--cap", type=float, help="scores become cap tanh(score / cap)")
    for flag in ("bias", "alibi", "sinks"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--order", default="shd", choices=("shd", "hsd"), help="tokens or heads first")
    return parser


def main(arguments: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--lse", action="store_true")
    given = parser.parse_args(arguments)
    lengths = [int(x) for x in given.lengths.split(",")]
    keys = [int(x) for x in given.keys.split(",")] if given.keys else lengths
    variant = variant_of(given, common.dtype_called(given.dtype))
    values, extents = arguments_of(variant, lengths, keys, given.heads, given.d, given.e, given.seed, given.order)
    tile, waves = forward.tile_of(given.target, given.d, variant.causal, variant.dtype.bits)
    kernel = varlen_kernel(variant, tile=tile, waves=waves, order=given.order)
    common.run(kernel, list(values.values()), given, subs=extents)
    return check(variant, values, given.order)


if __name__ == "__main__":
    sys.exit(main())
