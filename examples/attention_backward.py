"""Gradients of attention from dO: dQ, dK, dV, and those of the bias, the slopes and the sinks. Deterministic, unless
asked otherwise: every sum has one workgroup and one order.

    python examples/attention_backward.py                                   2 heads, 128 queries and keys, head size 64
    python examples/attention_backward.py --causal --dtype bf16 --d 128
    python examples/attention_backward.py --group 2 --heads 4 --window 50   shared heads of keys, sliding window
    python examples/attention_backward.py --cap 20 --bias --target sm_80 --m 100 --n 77
    python examples/attention_backward.py --bias --shared b --alibi --sinks --batch 2
    python examples/attention_backward.py --d 256 --target sm_90a
    python examples/attention_backward.py --d 128 --target sm_90a --atomic  five products per block for seven
    python examples/attention_backward.py --dtype f8e4m3 --target gfx950    Q, K and V of 8 bits, the rest of 16

Three kernels follow the forward one, which leaves O and the log-sum-exp L of each row. With P = exp(S - L):

    delta = sum(dO · O)                  per row
    dS = P · (dO Vᵀ - delta)             of the scaled scores; a soft cap multiplies it by its derivative
    dV = Pᵀ dO, dK = dSᵀ Q · scale       a workgroup per tile of keys loops over queries (and heads that share keys)
    dQ = dS K · scale                    a workgroup per tile of queries loops over keys

dK and dV come from one kernel, or where their sums do not fit registers side by side from one each. That computes dS
as well as the kernel of dQ does. `kernels(deterministic=False)` computes it once: the workgroup of a tile of keys adds
dS K to an f32 array by atomics, in whatever order workgroups run, and a kernel behind it rounds that to dQ. What else
has gradients adds up dS or, for a sink, exp(sink - L) · -delta:

    bias     over what its array lacks of batches and heads: a workgroup per tile of it (`bias_kernel`)
    slopes   times the distance: per row beside dQ, then per head (`heads_kernel`)
    sinks    per head (`heads_kernel`)

P and dS are rounded to 16 bits before they are multiplied; sums are f32.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

from dataclasses import dataclass, replace

import attention as forward
import common
import numpy as np
from attention import BM, BN, LOG2_E, B, D, E, G, H, M, N, Variant

import wavedsl as wd

(R,) = wd.symbols("R")
"""Query heads that share a head of keys, one after the other."""


def wide(variant: Variant) -> wd.DType:
    """The dtype of O, of dO and of the gradients, and in which everything is multiplied: Q, K and V of 8 bits are cast
    to it. Raises ValueError where it has not 16 bits."""
    found = variant.out or (wd.bf16 if variant.dtype.bits == 8 else variant.dtype)
    if found.bits != 16 or (variant.dtype.bits != 8 and found is not variant.dtype):
        fits = "f16 or bf16" if variant.dtype.bits == 8 else str(variant.dtype)
        raise ValueError(f"Variant: gradients of {variant.dtype} inputs need an O of {fits}, not out={found}")
    return found


def widened(variant: Variant, value):
    """A tile of Q, K or V as it is multiplied."""
    return wd.cast(value, wide(variant)) if variant.dtype.bits == 8 else value


def delta_kernel(variant: Variant, *, tile: int = 64, zero: bool = False):
    """delta[b, h, m] = the sum of dO · O over the head's dimension. `zero`: also 0 in d_q_sums, to which the kernel of
    dK and dV adds."""
    dims, out = variant.dims(H, M, E), wide(variant)

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(B, 1, 2)],
        subs={BM: tile},
        name="attention_delta",
    )
    def delta(
        o: wd.Memory[(*dims, out)],
        d_o: wd.Memory[(*dims, out)],
        delta: wd.Memory[B, H, M, wd.f32],
        d_q_sums: wd.Memory[(*variant.dims(H, M, D), wd.f32)] if zero else None,
    ):
        if zero:
            wd.write(wd.Register[M, D, wd.f32](0.0), d_q_sums)
        wd.write(wd.sum(wd.cast(wd.read(o), wd.f32) * wd.cast(wd.read(d_o), wd.f32), dim=E), delta)

    return delta


def weights(variant: Variant, raw, lse, scale, bias, slopes, behind=None, keys=None, queries=None):
    """P [M, N] of a tile from products of queries and keys. Of a packed sequence, which has `keys`, `behind` more than
    queries: nothing of the next one. `queries`: how many it has, where rows past them, which are 0, may not be left to
    weights that are no numbers."""
    scores = variant.masked(variant.scored(raw, scale, bias, slopes, behind), behind)
    if keys is not None and not variant.causal:  # else no query sees past its sequence's end
        scores = wd.where(wd.index(N) < keys, scores, -math.inf)
    if queries is not None:
        scores = wd.where(wd.index(M) < queries, scores, -math.inf)
    base = wd.where(lse == -math.inf, 0.0, lse)  # a row that sees no key has scores of -inf and weights of 0
    return wd.exp2(wd.fma(scores, variant.unit(scale), -(base * LOG2_E)))


def of_products(variant: Variant, d_s, raw, scale):
    """The gradient [M, N] of the scaled products from that of the scores: a soft cap lies between."""
    if variant.cap is None:
        return d_s
    level = wd.tanh(raw * scale * (1 / variant.cap))  # as in the scores: it is computed once
    return d_s * (1.0 - level * level)


def keys_kernel(
    variant: Variant, *, tile: tuple[int, int] = (32, 64), waves: int = 4, of: str = "kv",
    schedule: wd.Schedule | None = None,
):  # fmt: skip
    """dK and dV, or `of` one of them, or "qkv" of all three; `tile`: queries per trip, keys per workgroup. Arguments:
    q, k, v, d_o, lse, delta, scale, d_k, d_v without what the gradient does not need, then those that the variant has
    of bias, slopes, and d_q_sums: f32, to which dQ / scale is added."""
    dtype, group, out = variant.dtype, variant.group, wide(variant)
    of_k, of_v, of_q = "k" in of, "v" in of, "q" in of
    rows = [wd.TilingConstraint(R, 1)] if group > 1 else []

    @wd.wave(
        [
            wd.WorkgroupConstraint(N, BN, 0),
            wd.WorkgroupConstraint(G, 1, 1),
            wd.WorkgroupConstraint(B, 1, 2),
            wd.TilingConstraint(M, BM),
            wd.WaveConstraint(N, BN / waves),
            *rows,
        ],
        subs={BM: tile[0], BN: tile[1], R: group},
        schedule=schedule,
        name={"kv": "attention_keys", "qkv": "attention_gradients"}.get(of, f"attention_keys_{of}"),
    )
    def backward(
        q: wd.Memory[(*variant.dims(H, M, D), wd.SHARED, dtype)],
        k: wd.Memory[(*variant.dims(G, N, D), dtype)],
        v: wd.Memory[(*variant.dims(G, N, E), dtype)] if of_k else None,
        d_o: wd.Memory[(*variant.dims(H, M, E), wd.SHARED, out)],
        lse: wd.Memory[B, H, M, wd.f32],
        delta: wd.Memory[B, H, M, wd.f32] if of_k else None,
        scale: wd.Scalar[wd.f32],
        d_k: wd.Memory[(*variant.dims(G, N, D), out)] if of_k else None,
        d_v: wd.Memory[(*variant.dims(G, N, E), out)] if of_v else None,
        bias: wd.Memory[B, H, M, N, out] if variant.bias else None,
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
        d_q_sums: wd.Memory[(*variant.dims(H, M, D), wd.f32)] if of_q else None,
    ):
        def over_head(head, *sums):
            start, stop = variant.queries_of_tile()

            def taken(array, *dims):
                return wd.read(array, mapping=wd.IndexMapping(dims, {H: head}))

            def queries():
                return widened(variant, taken(q, M, D))

            @wd.iterate(M, init_args=sums, start=start, stop=stop, per_wave=variant.masks)
            def over_queries(*sums):
                raw = wd.mma(queries(), widened(variant, wd.read(k)), wd.Register[M, N, wd.f32](0.0))
                if of_k:
                    values = widened(variant, wd.read(v))
                    d_p = wd.mma(taken(d_o, M, E), values, wd.Register[M, N, wd.f32](0.0))
                more = (
                    taken(bias, M, N) if variant.bias else None,
                    taken(slopes) if variant.alibi else None,
                )
                p = weights(variant, raw, taken(lse, M), scale, *more)
                if of_k:
                    d_s = wd.cast(of_products(variant, p * (d_p - taken(delta, M)), raw, scale), out)
                found = {}
                for x in "vqk" if of_q else of:  # dQ before dK, beside which it is added up
                    if x == "v":
                        found[x] = wd.mma(wd.cast(p, out), taken(d_o, M, E), sums[-1])
                    elif x == "k":
                        found[x] = wd.mma(d_s, queries(), sums[0])
                    else:
                        part = wd.mma(d_s, widened(variant, wd.read(k)), wd.Register[M, D, wd.f32](0.0))
                if of_q:
                    wd.atomic_add(part, d_q_sums, mapping=wd.IndexMapping((M, D), {H: head}))
                return [found[x] for x in "kv" if x in found]

            return over_queries

        sums = [wd.Register[N, D, wd.f32](0.0)] * of_k + [wd.Register[N, E, wd.f32](0.0)] * of_v
        if group > 1:

            @wd.iterate(R, init_args=sums)
            def over_heads(*sums):
                return over_head(wd.index(G) * group + wd.tile_start(R), *sums)

            sums = over_heads
        else:
            sums = over_head(G, *sums)
        sums = sums if of_k and of_v else (sums,)
        if of_k:
            wd.write(wd.cast(sums[0] * scale, out), d_k)
        if of_v:
            wd.write(wd.cast(sums[-1], out), d_v)

    return backward


def queries_kernel(variant: Variant, *, tile: tuple[int, int] = (64, 32), waves: int = 4):
    """dQ; `tile`: queries per workgroup, keys per trip. Arguments: q, k, v, d_o, lse, delta, scale, d_q, then those
    that the variant has of bias, slopes and, with slopes, d_rows: per row the sum of dS times the distance."""
    dtype, out = variant.dtype, wide(variant)
    shared_heads = {G: variant.key_head}

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(H, 1, 1),
            wd.WorkgroupConstraint(B, 1, 2),
            wd.TilingConstraint(N, BN),
            wd.WaveConstraint(M, BM / waves),
        ],
        subs={BM: tile[0], BN: tile[1]},
        name="attention_queries",
    )
    def backward(
        q: wd.Memory[(*variant.dims(H, M, D), dtype)],
        k: wd.Memory[(*variant.dims(G, N, D), wd.SHARED, dtype)],
        v: wd.Memory[(*variant.dims(G, N, E), wd.SHARED, dtype)],
        d_o: wd.Memory[(*variant.dims(H, M, E), out)],
        lse: wd.Memory[B, H, M, wd.f32],
        delta: wd.Memory[B, H, M, wd.f32],
        scale: wd.Scalar[wd.f32],
        d_q: wd.Memory[(*variant.dims(H, M, D), out)],
        bias: wd.Memory[B, H, M, N, out] if variant.bias else None,
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
        d_rows: wd.Memory[B, H, M, wd.f32] if variant.alibi else None,
    ):
        start, stop = variant.keys_of_tile()

        def taken(array, *dims):
            return widened(variant, wd.read(array, mapping=wd.IndexMapping(dims, shared_heads)))

        sums = [wd.Register[M, D, wd.f32](0.0)] + [wd.Register[M, wd.f32](0.0)] * variant.alibi

        @wd.iterate(N, init_args=sums, start=start, stop=stop, per_wave=variant.masks)
        def over_keys(d_q, *rows):
            raw = wd.mma(widened(variant, wd.read(q)), taken(k, N, D), wd.Register[M, N, wd.f32](0.0))
            d_p = wd.mma(wd.read(d_o), taken(v, N, E), wd.Register[M, N, wd.f32](0.0))
            more = (wd.read(bias) if variant.bias else None, wd.read(slopes) if variant.alibi else None)
            d_s = weights(variant, raw, wd.read(lse), scale, *more) * (d_p - wd.read(delta))
            if variant.alibi:
                rows = [rows[0] + wd.sum(d_s * variant.distance(), dim=N)]
            return wd.mma(wd.cast(of_products(variant, d_s, raw, scale), out), taken(k, N, D), d_q), *rows

        sums = over_keys if variant.alibi else (over_keys,)
        wd.write(wd.cast(sums[0] * scale, out), d_q)
        if variant.alibi:
            wd.write(sums[1], d_rows)

    return backward


def rounding_kernel(variant: Variant, *, tile: int = 64):
    """dQ from the sums that `keys_kernel(of="qkv")` leaves."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(B, 1, 2)],
        subs={BM: tile},
        name="attention_rounding",
    )
    def backward(
        d_q_sums: wd.Memory[(*variant.dims(H, M, D), wd.f32)],
        scale: wd.Scalar[wd.f32],
        d_q: wd.Memory[(*variant.dims(H, M, D), wide(variant))],
    ):
        wd.write(wd.cast(wd.read(d_q_sums) * scale, wide(variant)), d_q)

    return backward


def bias_kernel(variant: Variant, *, tile: tuple[int, int] = (64, 64), waves: int = 4, shared: str = ""):
    """The gradient of a bias whose array repeats itself over `shared`: "b", "h", "bh" or nothing; `tile`: queries and
    keys of a workgroup. Arguments: q, k, v, d_o, lse, delta, scale, bias, d_bias (without the dimensions that are
    shared), then the variant's slopes."""
    dtype, out, group = variant.dtype, wide(variant), variant.group
    own = [d for d, letter in ((B, "b"), (H, "h")) if letter not in shared]
    loops = [d for d, letter in ((B, "b"), (H, "h")) if letter in shared]

    @wd.wave(
        [
            wd.WorkgroupConstraint(N, BN, 0),
            wd.WorkgroupConstraint(M, BM, 1),
            *(wd.WorkgroupConstraint(d, 1, 2) for d in own),
            *(wd.TilingConstraint(d, 1) for d in loops),
            wd.WaveConstraint(M, BM / waves),
        ],
        subs={BM: tile[0], BN: tile[1]},
        name="attention_bias",
    )
    def backward(
        q: wd.Memory[(*variant.dims(H, M, D), dtype)],
        k: wd.Memory[(*variant.dims(G, N, D), dtype)],
        v: wd.Memory[(*variant.dims(G, N, E), dtype)],
        d_o: wd.Memory[(*variant.dims(H, M, E), out)],
        lse: wd.Memory[B, H, M, wd.f32],
        delta: wd.Memory[B, H, M, wd.f32],
        scale: wd.Scalar[wd.f32],
        bias: wd.Memory[B, H, M, N, out],
        d_bias: wd.Memory[(*own, M, N, out)],
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
    ):
        def added(place, total):
            """`total` and dS of the batch and the head of the workgroup or of the loops' trip."""
            head = place.get(H, H)
            places = {**place, G: head if group == 1 else head // group}

            def taken(array, *dims):
                of_array = {d: x for d, x in places.items() if d in array.dims}
                return wd.read(array, mapping=wd.IndexMapping(dims, of_array))

            zero = wd.Register[M, N, wd.f32](0.0)
            raw = wd.mma(widened(variant, taken(q, M, D)), widened(variant, taken(k, N, D)), zero)
            d_p = wd.mma(taken(d_o, M, E), widened(variant, taken(v, N, E)), zero)
            more = taken(bias, M, N), taken(slopes) if variant.alibi else None
            p = weights(variant, raw, taken(lse, M), scale, *more)
            return total + p * (d_p - taken(delta, M))

        def over(loops, place, total):
            if not loops:
                return added(place, total)

            @wd.iterate(loops[0], init_args=[total])
            def loop(total):
                return over(loops[1:], {**place, loops[0]: wd.tile_start(loops[0])}, total)

            return loop

        wd.write(wd.cast(over(loops, {}, wd.Register[M, N, wd.f32](0.0)), out), d_bias)

    return backward


def heads_kernel(variant: Variant, *, tile: int = 256):
    """The gradients of slopes and sinks, one workgroup per head. Arguments: those that the variant has of d_rows and
    d_slopes; lse, delta, sink and d_sink."""

    @wd.wave(
        [wd.WorkgroupConstraint(H, 1, 0), wd.TilingConstraint(B, 1), wd.TilingConstraint(M, BM)],
        subs={BM: tile},
        name="attention_heads",
    )
    def backward(
        d_rows: wd.Memory[B, H, M, wd.f32] if variant.alibi else None,
        d_slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
        lse: wd.Memory[B, H, M, wd.f32] if variant.sinks else None,
        delta: wd.Memory[B, H, M, wd.f32] if variant.sinks else None,
        sink: wd.Memory[H, wd.f32] if variant.sinks else None,
        d_sink: wd.Memory[H, wd.f32] if variant.sinks else None,
    ):
        def rows_of(array):
            return wd.read(array, mapping=wd.IndexMapping((M,), {B: wd.tile_start(B)}))

        def more():
            """What a tile of rows adds to each gradient."""
            if variant.alibi:
                yield rows_of(d_rows)
            if variant.sinks:
                yield -wd.exp(wd.read(sink) - rows_of(lse)) * rows_of(delta)

        sums = [wd.Register[wd.f32](0.0)] * (variant.alibi + variant.sinks)

        @wd.iterate(B, init_args=sums)
        def over_batches(*sums):
            @wd.iterate(M, init_args=sums)
            def over_rows(*sums):
                return [x + wd.sum(y, dim=M) for x, y in zip(sums, more())]

            return over_rows

        sums = over_batches if isinstance(over_batches, tuple) else (over_batches,)
        results = [x for x, here in ((d_slopes, variant.alibi), (d_sink, variant.sinks)) if here]
        for x, result in zip(sums, results):
            wd.write(x, result)

    return backward


@dataclass(frozen=True)
class Tiles:
    """`rows` per workgroup and `step` rows of what is looped over per trip, of dQ and of dK and dV alike; `waves` along
    the rows; `apart`: dK and dV come from a kernel each. `part`: in this many parts a workgroup of the bias' gradient,
    which has no sums of head size but all four operands, takes the rows of one. `queries`: rows per trip of dK and dV
    where that is not `step`; `values`: those of dV where it is `apart`."""

    rows: int = 64
    step: int = 32
    waves: int = 4
    apart: bool = False
    part: int = 1
    queries: int | None = None
    values: int | None = None

    def of_keys(self, gradient: str) -> tuple[int, int]:
        """Queries per trip and keys of the kernel of dK ("k"), dV ("v") or more."""
        return (self.values if gradient == "v" else None) or self.queries or self.step, self.rows


SMALL = Tiles()


def tile_of(target: str, d: int, e: int | None = None, bits: int = 16) -> Tiles:
    """Tiles that suit a target, head sizes of keys and values, and inputs of that many `bits`: 8-bit tiles lie in
    shared memory as 16-bit ones too. On sm_90a a warpgroup's products have 64 rows: its sums of dK and dV take d / 2
    and e / 2 of 232 registers, scores and their gradients half a step each and their roundings a quarter. With 64 rows
    per trip matrix units get all that they need of shared memory, with 32 they wait for it in scores and their
    gradients. A thread of sm_80 has 255 for as many sums of a smaller tile."""
    wide = d + (e or d)
    if target == "sm_90a":
        apart = wide > 320
        if bits == 8 and wide > 256:
            return Tiles(128, 32 if wide <= 384 else 16, 2, apart, values=64 if apart else None)
        return Tiles(128, 64, 2, apart, queries=32 if 256 < wide and not apart else None)
    few = target == "sm_80"
    small = wide > (128 if few else 256)
    if few and not small:
        return Tiles(128, 32, 8)
    large = wide > 320  # then four waves' rows of Q and dO leave nothing of 64 KiB
    return Tiles(64, 16 if small else 32, 4, few and small, 1 + large)


def tile_for(variant: Variant, target: str, d: int, e: int | None = None, packed: bool = False) -> Tiles:
    """`tile_of` a variant, of `packed` sequences or not. On sm_90a what is added to scores takes registers beside
    the sums of dK and dV, so do the bounds and addresses of packed rows, and operands that are cast; they then go over
    fewer queries per trip, so that nothing spills (ptxas 13)."""
    tiles = tile_of(target, d, e, variant.dtype.bits)
    if target != "sm_90a":
        return tiles
    wide = d + (e or d)
    added = variant.alibi + variant.bias + (variant.cap is not None)
    if packed and added:
        return replace(
            tiles, step=min(tiles.step, 32) if tiles.apart else tiles.step, queries=32 if wide <= 256 else 16,
            values=None, apart=tiles.apart or wide > 128,
        )  # fmt: skip
    if 128 < wide <= 256 and (added or packed or variant.dtype.bits == 8):
        return replace(tiles, queries=16 if variant.bias else 32)
    if 256 < wide <= 320 and variant.dtype.bits == 8:
        return replace(tiles, queries=16)
    if not tiles.apart:
        return tiles
    if variant.dtype.bits == 8:
        return replace(tiles, values=None) if packed else tiles
    if added > 1:
        return replace(tiles, step=32)
    if variant.cap is not None:
        return replace(tiles, queries=32, values=64)
    if packed or variant.window:
        return replace(tiles, queries=32 if packed and variant.group > 1 else 48)
    return tiles


def numpy_gradients(
    variant: Variant, given: dict[str, np.ndarray], kind: type, shared: str = "", part: bool = False
) -> dict[str, np.ndarray]:
    """The gradients by name, O and L, in float64, or in float32 with P, dS, O and the gradients rounded as `wide`; that
    of a bias not where it is `part` of a sum over more."""

    def rounded(x: np.ndarray) -> np.ndarray:
        return x.astype(wide(variant).storage).astype(kind) if kind is np.float32 else x

    order, group = variant.order, variant.group
    q, k, v, g = (np.einsum(f"{order}->bhsd", given[name].astype(kind)) for name in ("q", "k", "v", "d_o"))
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    scale = kind(given["scale"])
    raw = q @ k.swapaxes(-1, -2)
    extras = {name: given[name] for name in ("bias", "slopes", "sink") if name in given}
    with np.errstate(invalid="ignore"):
        p, lse = forward.softmax_weights(variant, raw * scale, extras)
    o = rounded(rounded(p) @ v)
    delta = (g * o).sum(-1, keepdims=True, dtype=kind)
    d_s = p * (g @ v.swapaxes(-1, -2) - delta)
    found = {"o": np.einsum(f"bhsd->{order}", o), "lse": lse}
    if variant.bias:
        over = tuple(i for i, letter in enumerate("bh") if letter in shared)
        total = d_s.sum(over, dtype=kind)
        found["d_bias"] = total if part else rounded(total)
    if variant.alibi:
        m, n = d_s.shape[2:]
        distance = (np.arange(n) - (np.arange(m)[:, None] + n - m)).astype(kind)
        found["d_slopes"] = (d_s * distance).sum((0, 2, 3), dtype=kind)
    if variant.sinks:
        weight = np.exp(given["sink"].astype(kind)[:, None] - lse)
        found["d_sink"] = -(weight * delta[..., 0]).sum((0, 2), dtype=kind)
    if variant.cap is not None:
        level = np.tanh(raw * scale * kind(1 / variant.cap))
        d_s = d_s * (1 - level * level)
    d_s, p = rounded(d_s), rounded(p)

    def of_group(x: np.ndarray) -> np.ndarray:
        """Sums over the heads that share one of keys."""
        return x.reshape(x.shape[0], x.shape[1] // group, group, *x.shape[2:]).sum(2, dtype=kind)

    results = d_s @ k * scale, of_group(d_s.swapaxes(-1, -2) @ q) * scale, of_group(p.swapaxes(-1, -2) @ g)
    return found | {
        name: np.einsum(f"bhsd->{order}", rounded(x)) for name, x in zip(("d_q", "d_k", "d_v"), results)
    }  # fmt: skip


def arguments_of(variant: Variant, sizes: dict[str, int], seed: int = 0, shared: str = "") -> dict[str, np.ndarray]:
    """Arguments of all kernels by name; O and L as a float32 computation gives them. `shared`: over what the bias
    repeats itself."""
    given, out = forward.arguments_of(variant, sizes, seed), wide(variant).storage
    given["d_o"] = common.data(given["o"].shape, wide(variant), seed + 6)
    if variant.bias:
        one = tuple(1 if letter in shared else sizes[letter] for letter in "bhmn")
        given["bias"] = np.broadcast_to(common.data(one, wide(variant), seed + 4), [sizes[x] for x in "bhmn"])
    single = numpy_gradients(variant, given, np.float32, shared)
    given["o"], given["lse"] = single["o"].astype(out), single["lse"].astype(np.float32)
    given["delta"], given["d_rows"] = (np.full(given["lse"].shape, 93, np.float32) for _ in range(2))
    given["d_q_sums"] = np.full(given["q"].shape, 93, np.float32)
    for name in (x for x in single if x.startswith("d_")):
        given[name] = np.full(single[name].shape, 93, np.float32 if name in ("d_slopes", "d_sink") else out)
    return given


def kernels(
    variant: Variant, tiles: Tiles = SMALL, shared: str = "", deterministic: bool = True,
    schedule: wd.Schedule | None = None,
):  # fmt: skip
    """The kernels in order. Unless `deterministic`, dQ is added up by atomics beside dK and dV, where these come from
    one kernel and no slopes have gradients, which the kernel of dQ computes. `schedule`: of that one kernel."""
    rows, step, waves = tiles.rows, tiles.step, tiles.waves
    of_bias = {"tile": (rows // tiles.part, step), "waves": waves // tiles.part, "shared": shared}
    once = not deterministic and not tiles.apart and not variant.alibi
    of = ("qkv",) if once else ("k", "v") if tiles.apart else ("kv",)
    return (
        delta_kernel(variant, tile=rows, zero=once),
        *(
            keys_kernel(variant, of=x, schedule=schedule if once else None, tile=tiles.of_keys(x), waves=waves)
            for x in of
        ),
        rounding_kernel(variant, tile=rows) if once else queries_kernel(variant, tile=(rows, step), waves=waves),
        *([bias_kernel(variant, **of_bias)] if variant.bias else []),
        *([heads_kernel(variant)] if variant.alibi or variant.sinks else []),
    )


def check(variant: Variant, given: dict[str, np.ndarray], shared: str = "") -> int:
    """Compare the gradients with float64 and print the errors; what is allowed is twice that of the float32
    computation. 0 if all are within it."""
    exact = numpy_gradients(variant, given, np.float64, shared)
    single = numpy_gradients(variant, given, np.float32, shared)
    status = 0
    for name in (x for x in exact if x.startswith("d_")):
        status |= common.verdict(name, given[name], exact[name], 2 * forward.largest(single[name], exact[name]))
    return status


def main(arguments: list[str] | None = None) -> int:
    dtypes = ("f16", "bf16", "f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
    parser = common.options(__doc__, dtypes, batch=1, heads=2, m=128, n=128, d=64, group=1)
    parser.add_argument("--e", type=int, help="head size of the values (that of the keys)")
    parser.add_argument("--causal", action="store_true", help="a query sees the keys up to its own position")
    parser.add_argument("--window", type=int, help="a query sees this many keys up to its own position")
    parser.add_argument("--cap", type=float, help="scores become cap tanh(score / cap)")
    for flag in ("bias", "alibi", "sinks"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--shared", default="", choices=("", "b", "h", "bh"), help="over what the bias repeats")
    parser.add_argument("--order", default="bhsd", choices=("bhsd", "bshd"), help="of the dimensions of Q, K, V and O")
    parser.add_argument("--tile", type=int, help="rows per workgroup")
    parser.add_argument("--step", type=int, help="rows per trip")
    parser.add_argument("--waves", type=int, help="waves along the workgroup's rows")
    parser.add_argument("--atomic", action="store_true", help="add dQ up by atomics: not the same bits on every run")
    given = parser.parse_args(arguments)
    variant = Variant(
        common.dtype_called(given.dtype), None, given.causal or given.window is not None, given.window, given.bias,
        given.alibi, given.cap, given.sinks, True, given.group, given.order,
    )  # fmt: skip
    sizes = {"b": given.batch, "h": given.heads, "m": given.m, "n": given.n, "d": given.d, "e": given.e or given.d}
    values = arguments_of(variant, sizes, given.seed, given.shared)
    tiles = tile_for(variant, given.target, sizes["d"], sizes["e"])
    if given.tile or given.waves:
        tiles = replace(tiles, rows=given.tile or 64, waves=given.waves or 4)
    if given.step:
        tiles = replace(tiles, step=given.step, queries=None)
    for kernel in kernels(variant, tiles, given.shared, not given.atomic):
        common.run(kernel, [values[p.name] for p in kernel.parameters], given)
    return check(variant, values, given.shared)


if __name__ == "__main__":
    sys.exit(main())
