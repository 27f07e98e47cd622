"""Gradients of attention on packed sequences of different lengths; deterministic, like those of `attention_backward`.

    python examples/attention_varlen_backward.py                                 four sequences, 2 heads, head size 64
    python examples/attention_varlen_backward.py --causal --dtype bf16 --lengths 70,0,129,1
    python examples/attention_varlen_backward.py --lengths 33,64 --keys 100,20 --group 2 --alibi --sinks --target sm_80
    python examples/attention_varlen_backward.py --bias --cap 20 --dtype f8e4m3 --order hsd --target gfx950

Arrays as in `attention_varlen`. What a row of dO and O and a head alone decide does not know of sequences: delta and
the gradients of slopes and sinks come from the kernels of `attention_backward` on one batch of all tokens. A workgroup
of the next two takes a tile of keys, or of queries, of one sequence; tiles past the end of theirs do nothing. One of
the bias' gradient takes a tile of it and adds up all sequences, in order.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

from dataclasses import replace

import attention as forward
import attention_backward as backward
import attention_varlen as varlen
import common
import numpy as np
from attention import BM, BN, D, E, G, H, M, N, Variant
from attention_backward import R, Tiles, of_products, weights, wide, widened
from attention_varlen import TK, TQ, Z1, Z, packed

import wavedsl as wd


class Sequence:
    """A sequence as one workgroup sees it, its own one or that of a loop's trip: where its tokens lie, and mappings of
    tiles of queries and keys. Tokens past its end belong to the next one: an index of -1 is outside of every array."""

    def __init__(self, starts_q, starts_k, number=Z):
        (self.first_q, self.queries), (self.first_k, self.keys) = (self.span(x, number) for x in (starts_q, starts_k))
        self.behind = self.keys - self.queries

    @staticmethod
    def span(starts, number):
        """(the first token, how many)"""
        first, after = (wd.read(starts, mapping=wd.IndexMapping((), {Z1: number + i})) for i in (0, 1))
        return first, after - first

    def of_queries(self, *dims, head=H):
        row = wd.where(wd.index(M) < self.queries, wd.index(M) + self.first_q, -1)
        return wd.IndexMapping(dims, {TQ: row, H: head})

    def of_keys(self, size, head=G):
        token = wd.where(wd.index(N) < self.keys, wd.index(N) + self.first_k, -1)
        return wd.IndexMapping((N, size), {TK: token, G: head})


def keys_kernel(
    variant: Variant, *, tile: tuple[int, int] = (32, 64), waves: int = 4, of: str = "kv", order: str = "shd"
):
    """dK and dV, or `of` one of them; `tile`: queries per trip, keys per workgroup. Arguments: q, k, v, d_o, lse,
    delta, starts_q, starts_k, scale, d_k, d_v without what the gradient does not need, then those that the variant has
    of bias, slopes."""
    dtype, group, out = variant.dtype, variant.group, wide(variant)
    of_k, of_v = "k" in of, "v" in of
    rows = [wd.TilingConstraint(R, 1)] if group > 1 else []

    @wd.wave(
        [
            wd.WorkgroupConstraint(N, BN, 0),
            wd.WorkgroupConstraint(G, 1, 1),
            wd.WorkgroupConstraint(Z, 1, 2),
            wd.TilingConstraint(M, BM),
            wd.WaveConstraint(N, BN / waves),
            *rows,
        ],
        subs={BM: tile[0], BN: tile[1], R: group},
        name="attention_varlen_keys" if of == "kv" else f"attention_varlen_keys_{of}",
    )
    def attention(
        q: wd.Memory[(*packed(order, H, TQ, D), wd.SHARED, dtype)],
        k: wd.Memory[(*packed(order, G, TK, D), dtype)],
        v: wd.Memory[(*packed(order, G, TK, E), dtype)] if of_k else None,
        d_o: wd.Memory[(*packed(order, H, TQ, E), wd.SHARED, out)],
        lse: wd.Memory[H, TQ, wd.f32],
        delta: wd.Memory[H, TQ, wd.f32] if of_k else None,
        starts_q: wd.Memory[Z1, wd.i32],
        starts_k: wd.Memory[Z1, wd.i32],
        scale: wd.Scalar[wd.f32],
        d_k: wd.Memory[(*packed(order, G, TK, D), out)] if of_k else None,
        d_v: wd.Memory[(*packed(order, G, TK, E), out)] if of_v else None,
        bias: wd.Memory[H, M, N, out] if variant.bias else None,
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
    ):
        one = Sequence(starts_q, starts_k)
        start = wd.tile_start(N) - one.behind if variant.causal else None
        stop = one.queries
        if variant.window is not None:
            stop = wd.minimum(wd.tile_stop(N) - one.behind + (variant.window - 1), stop)
        stop = wd.where(wd.tile_start(N) < one.keys, stop, 0)
        keys_read = widened(variant, wd.read(k, mapping=one.of_keys(D)))
        values_read = widened(variant, wd.read(v, mapping=one.of_keys(E))) if of_k else None
        few = one.queries if variant.bias or variant.alibi else None

        def over_head(head, *sums):
            def taken(array, *dims):
                return wd.read(array, mapping=one.of_queries(*dims, head=head))

            def of_head(array, *dims):
                return wd.read(array, mapping=wd.IndexMapping(dims, {H: head}))

            def queries():
                return widened(variant, taken(q, M, D))

            @wd.iterate(M, init_args=sums, start=start, stop=stop, per_wave=True)
            def over_queries(*sums):
                raw = wd.mma(queries(), keys_read, wd.Register[M, N, wd.f32](0.0))
                if of_k:
                    d_p = wd.mma(taken(d_o, M, E), values_read, wd.Register[M, N, wd.f32](0.0))
                more = of_head(bias, M, N) if variant.bias else None, of_head(slopes) if variant.alibi else None
                p = weights(variant, raw, taken(lse, M), scale, *more, one.behind, one.keys, few)
                found = []
                if of_k:
                    d_s = of_products(variant, p * (d_p - taken(delta, M)), raw, scale)
                    found.append(wd.mma(wd.cast(d_s, out), queries(), sums[0]))
                if of_v:
                    found.append(wd.mma(wd.cast(p, out), taken(d_o, M, E), sums[-1]))
                return found

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
            wd.write(wd.cast(sums[0] * scale, out), d_k, mapping=one.of_keys(D))
        if of_v:
            wd.write(wd.cast(sums[-1], out), d_v, mapping=one.of_keys(E))

    return attention


def queries_kernel(variant: Variant, *, tile: tuple[int, int] = (64, 32), waves: int = 4, order: str = "shd"):
    """dQ; `tile`: queries per workgroup, keys per trip. Arguments: q, k, v, d_o, lse, delta, starts_q, starts_k, scale,
    d_q, then those that the variant has of bias, slopes and, with slopes, d_rows."""
    dtype, out = variant.dtype, wide(variant)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(H, 1, 1),
            wd.WorkgroupConstraint(Z, 1, 2),
            wd.TilingConstraint(N, BN),
            wd.WaveConstraint(M, BM / waves),
        ],
        subs={BM: tile[0], BN: tile[1]},
        name="attention_varlen_queries",
    )
    def attention(
        q: wd.Memory[(*packed(order, H, TQ, D), dtype)],
        k: wd.Memory[(*packed(order, G, TK, D), wd.SHARED, dtype)],
        v: wd.Memory[(*packed(order, G, TK, E), wd.SHARED, dtype)],
        d_o: wd.Memory[(*packed(order, H, TQ, E), out)],
        lse: wd.Memory[H, TQ, wd.f32],
        delta: wd.Memory[H, TQ, wd.f32],
        starts_q: wd.Memory[Z1, wd.i32],
        starts_k: wd.Memory[Z1, wd.i32],
        scale: wd.Scalar[wd.f32],
        d_q: wd.Memory[(*packed(order, H, TQ, D), out)],
        bias: wd.Memory[H, M, N, out] if variant.bias else None,
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
        d_rows: wd.Memory[H, TQ, wd.f32] if variant.alibi else None,
    ):
        one = Sequence(starts_q, starts_k)
        start = None if variant.window is None else wd.tile_start(M) + (one.behind + 1 - variant.window)
        stop = wd.minimum(wd.tile_stop(M) + one.behind, one.keys) if variant.causal else one.keys
        stop = wd.where(wd.tile_start(M) < one.queries, stop, 0)
        queries_read = widened(variant, wd.read(q, mapping=one.of_queries(M, D)))
        outputs_read = wd.read(d_o, mapping=one.of_queries(M, E))
        level, of_row = (wd.read(x, mapping=one.of_queries(M)) for x in (lse, delta))

        def taken(array, size):
            return widened(variant, wd.read(array, mapping=one.of_keys(size, variant.key_head)))

        sums = [wd.Register[M, D, wd.f32](0.0)] + [wd.Register[M, wd.f32](0.0)] * variant.alibi

        @wd.iterate(N, init_args=sums, start=start, stop=stop, per_wave=True)
        def over_keys(d_q, *rows):
            raw = wd.mma(queries_read, taken(k, D), wd.Register[M, N, wd.f32](0.0))
            d_p = wd.mma(outputs_read, taken(v, E), wd.Register[M, N, wd.f32](0.0))
            more = wd.read(bias) if variant.bias else None, wd.read(slopes) if variant.alibi else None
            d_s = weights(variant, raw, level, scale, *more, one.behind, one.keys) * (d_p - of_row)
            if variant.alibi:
                rows = [rows[0] + wd.sum(d_s * variant.distance(one.behind), dim=N)]
            return wd.mma(wd.cast(of_products(variant, d_s, raw, scale), out), taken(k, D), d_q), *rows

        sums = over_keys if variant.alibi else (over_keys,)
        wd.write(wd.cast(sums[0] * scale, out), d_q, mapping=one.of_queries(M, D))
        if variant.alibi:
            wd.write(sums[1], d_rows, mapping=one.of_queries(M))

    return attention


def bias_kernel(variant: Variant, *, tile: tuple[int, int] = (64, 64), waves: int = 4, order: str = "shd"):
    """The gradient of a bias [heads, longest queries, longest keys]; `tile`: queries and keys of a workgroup.
    Arguments: q, k, v, d_o, lse, delta, starts_q, starts_k, scale, bias, d_bias, then the variant's slopes."""
    dtype, out = variant.dtype, wide(variant)

    @wd.wave(
        [
            wd.WorkgroupConstraint(N, BN, 0),
            wd.WorkgroupConstraint(M, BM, 1),
            wd.WorkgroupConstraint(H, 1, 2),
            wd.TilingConstraint(Z, 1),
            wd.WaveConstraint(M, BM / waves),
        ],
        subs={BM: tile[0], BN: tile[1]},
        name="attention_varlen_bias",
    )
    def attention(
        q: wd.Memory[(*packed(order, H, TQ, D), dtype)],
        k: wd.Memory[(*packed(order, G, TK, D), dtype)],
        v: wd.Memory[(*packed(order, G, TK, E), dtype)],
        d_o: wd.Memory[(*packed(order, H, TQ, E), out)],
        lse: wd.Memory[H, TQ, wd.f32],
        delta: wd.Memory[H, TQ, wd.f32],
        starts_q: wd.Memory[Z1, wd.i32],
        starts_k: wd.Memory[Z1, wd.i32],
        scale: wd.Scalar[wd.f32],
        bias: wd.Memory[H, M, N, out],
        d_bias: wd.Memory[H, M, N, out],
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
    ):
        zero = wd.Register[M, N, wd.f32](0.0)
        more = wd.read(bias), wd.read(slopes) if variant.alibi else None

        @wd.iterate(Z, init_args=[zero])
        def over_sequences(total):
            one = Sequence(starts_q, starts_k, wd.tile_start(Z))

            def of_queries(array, *dims):
                return wd.read(array, mapping=one.of_queries(M, *dims))

            def of_keys(array, size):
                return widened(variant, wd.read(array, mapping=one.of_keys(size, variant.key_head)))

            raw = wd.mma(widened(variant, of_queries(q, D)), of_keys(k, D), zero)
            d_p = wd.mma(of_queries(d_o, E), of_keys(v, E), zero)
            p = weights(variant, raw, of_queries(lse), scale, *more, one.behind, one.keys, one.queries)
            return total + p * (d_p - of_queries(delta))

        wd.write(wd.cast(over_sequences, out), d_bias)

    return attention


def kernels(variant: Variant, tiles: Tiles = backward.SMALL, order: str = "shd"):
    """The kernels in order; those of `attention_backward` see one batch of all tokens (`arguments_for`)."""
    rows, step, waves = tiles.rows, tiles.step, tiles.waves
    tokens = replace(variant, order="b" + order)
    of_bias = {"tile": (rows // tiles.part, step), "waves": waves // tiles.part, "order": order}
    return (
        backward.delta_kernel(tokens, tile=rows),
        *(
            keys_kernel(variant, of=x, tile=tiles.of_keys(x), waves=waves, order=order)
            for x in (("k", "v") if tiles.apart else ("kv",))
        ),
        queries_kernel(variant, tile=(rows, step), waves=waves, order=order),
        *([bias_kernel(variant, **of_bias)] if variant.bias else []),
        *([backward.heads_kernel(tokens)] if variant.alibi or variant.sinks else []),
    )


def arguments_for(kernel, given):
    """The arguments of one of the kernels, in order: of those without sequences all tokens as one batch."""
    names = [p.name for p in kernel.parameters]
    if "starts_q" in names:
        return {name: given[name] for name in names}
    per_head = ("sink", "d_sink", "d_slopes")
    return {name: given[name] if name in per_head else given[name][None] for name in names}


def numpy_gradients(variant: Variant, given, kind: type, order: str = "shd"):
    """The gradients by name, O and the log-sum-exp of all sequences: each as `attention_backward` has it."""
    alone = replace(variant, order="b" + order)
    found = {name: np.zeros(given[name].shape, kind) for name in given if name in ("o", "lse") or name.startswith("d_")}
    del found["d_o"], found["d_rows"]
    for rows, columns, tokens, extras in varlen.sequences(given, order):
        if tokens.start == tokens.stop:
            continue
        where = {"q": rows, "d_o": rows, "k": columns, "v": columns}
        mine = {name: given[name][place][None] for name, place in where.items()} | extras | {"scale": given["scale"]}
        for name, x in backward.numpy_gradients(alone, mine, kind, "b", part=True).items():
            if name in ("d_slopes", "d_sink"):
                found[name] += x
            elif name == "d_bias":
                found[name][:, : x.shape[1], : x.shape[2]] += x
            elif name == "lse":
                found[name][:, tokens] = x[0]
            else:
                found[name][columns if name in ("d_k", "d_v") else rows] = x[0]
    if variant.bias and kind is np.float32:
        found["d_bias"] = found["d_bias"].astype(wide(variant).storage)
    return found


def arguments_of(
    variant: Variant, lengths, keys, heads: int, d: int, e: int | None = None, seed: int = 0, order: str = "shd"
):
    """Arguments of all kernels by name for sequences with these numbers of queries and keys, O and the log-sum-exp as
    a float32 computation gives them; and the extents that no array has."""
    out = wide(variant)
    full = replace(variant, lse=True, out=out)
    given, extents = varlen.arguments_of(full, lengths, keys, heads, d, e, seed, order)
    given["d_o"] = common.data(given["o"].shape, out, seed + 6)
    given["delta"], given["d_rows"] = (np.full(given["lse"].shape, 93, np.float32) for _ in range(2))
    for name in ("q", "k", "v", *(["bias"] if variant.bias else [])):
        given[f"d_{name}"] = np.full(given[name].shape, 93, out.storage)
    for name, gradient in (("slopes", "d_slopes"), ("sink", "d_sink")):
        if name in given:
            given[gradient] = np.full(heads, 93, np.float32)
    single = numpy_gradients(variant, given, np.float32, order)
    given["o"], given["lse"] = single["o"].astype(given["o"].dtype), single["lse"].astype(np.float32)
    return given, extents


def check(variant: Variant, given, order: str = "shd") -> int:
    """Compare the gradients with float64 and print the errors; what is allowed is twice that of the float32
    computation. 0 if all are within it."""
    exact, single = (numpy_gradients(variant, given, kind, order) for kind in (np.float64, np.float32))
    status = 0
    for name in (x for x in exact if x.startswith("d_")):
        allowed = 2 * forward.largest(single[name], exact[name]) if exact[name].size else 0.0
        status |= common.verdict(name, given[name], exact[name], allowed)
    return status


def main(arguments: list[str] | None = None) -> int:
    given = varlen.options(__doc__).parse_args(arguments)
    lengths = [int(x) for x in given.lengths.split(",")]
    keys = [int(x) for x in given.keys.split(",")] if given.keys else lengths
    variant = varlen.variant_of(given, common.dtype_called(given.dtype))
    values, extents = arguments_of(variant, lengths, keys, given.heads, given.d, given.e, given.seed, given.order)
    tiles = backward.tile_for(variant, given.target, given.d, given.e, packed=True)
    for kernel in kernels(variant, tiles, given.order):
        own = extents if "starts_q" in (p.name for p in kernel.parameters) else None
        common.run(kernel, list(arguments_for(kernel, values).values()), given, subs=own)
    return check(variant, values, given.order)


if __name__ == "__main__":
    sys.exit(main())
