"""Gradients of attention: dQ, dK and dV from dO, deterministic: every sum has one workgroup and one order.

    python examples/attention_backward.py                                   2 heads, 128 queries and keys, head size 64
    python examples/attention_backward.py --causal --dtype bf16 --d 128
    python examples/attention_backward.py --group 2 --heads 4 --window 50   shared heads of keys, sliding window
    python examples/attention_backward.py --cap 20 --bias --target sm_80 --m 100 --n 77

Three kernels follow the forward one, which leaves O and the log-sum-exp L of each row. With P = exp(S - L):

    delta = sum(dO · O)                  per row
    dS = P · (dO Vᵀ - delta)             of the scaled scores; a soft cap multiplies it by its derivative
    dV = Pᵀ dO, dK = dSᵀ Q · scale       a workgroup per tile of keys loops over queries (and heads that share keys)
    dQ = dS K · scale                    a workgroup per tile of queries loops over keys

P and dS are rounded to the inputs' dtype before they are multiplied; sums are f32.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import attention as forward
import common
import numpy as np
from attention import BM, BN, LOG2_E, B, D, E, G, H, M, N, Variant

import wavedsl as wd

(R,) = wd.symbols("R")
"""Query heads that share a head of keys, one after the other."""


def delta_kernel(variant: Variant, *, tile: int = 64):
    """delta[b, h, m] = the sum of dO · O over the head's dimension."""
    dims = variant.dims(H, M, E)

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(B, 1, 2)],
        subs={BM: tile},
        name="attention_delta",
    )
    def delta(
        o: wd.Memory[(*dims, variant.dtype)],
        d_o: wd.Memory[(*dims, variant.dtype)],
        delta: wd.Memory[B, H, M, wd.f32],
    ):
        wd.write(wd.sum(wd.cast(wd.read(o), wd.f32) * wd.cast(wd.read(d_o), wd.f32), dim=E), delta)

    return delta


def gradients(variant: Variant, raw, d_p, lse, delta, scale, bias, slopes):
    """(P, dS) [M, N] of a tile from products of queries and keys (raw) and of dO and values (d_p)."""
    scores = variant.masked(variant.scored(raw, scale, bias, slopes))
    base = wd.where(lse == -math.inf, 0.0, lse)  # a row that sees no key has scores of -inf and weights of 0
    p = wd.exp2(wd.fma(scores, variant.unit(scale), -(base * LOG2_E)))
    d_s = p * (d_p - delta)
    if variant.cap is not None:
        level = wd.tanh(raw * (scale * (1 / variant.cap)))
        d_s = d_s * (1.0 - level * level)
    return p, d_s


def keys_kernel(variant: Variant, *, tile: tuple[int, int] = (32, 64), waves: int = 4):
    """dK and dV; `tile`: queries per trip, keys per workgroup. Arguments: q, k, v, d_o, lse, delta, scale, d_k, d_v,
    then those that the variant has of bias, slopes."""
    dtype, group = variant.dtype, variant.group
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
        name="attention_keys",
    )
    def backward(
        q: wd.Memory[(*variant.dims(H, M, D), wd.SHARED, dtype)],
        k: wd.Memory[(*variant.dims(G, N, D), dtype)],
        v: wd.Memory[(*variant.dims(G, N, E), dtype)],
        d_o: wd.Memory[(*variant.dims(H, M, E), wd.SHARED, dtype)],
        lse: wd.Memory[B, H, M, wd.f32],
        delta: wd.Memory[B, H, M, wd.f32],
        scale: wd.Scalar[wd.f32],
        d_k: wd.Memory[(*variant.dims(G, N, D), dtype)],
        d_v: wd.Memory[(*variant.dims(G, N, E), dtype)],
        bias: wd.Memory[B, H, M, N, dtype] if variant.bias else None,
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
    ):
        def over_head(head, d_k, d_v):
            start, stop = variant.queries_of_tile()

            def taken(array, *dims):
                return wd.read(array, mapping=wd.IndexMapping(dims, {H: head}))

            @wd.iterate(M, init_args=[d_k, d_v], start=start, stop=stop)
            def over_queries(d_k, d_v):
                raw = wd.mma(taken(q, M, D), wd.read(k), wd.Register[M, N, wd.f32](0.0))
                d_p = wd.mma(taken(d_o, M, E), wd.read(v), wd.Register[M, N, wd.f32](0.0))
                more = (
                    taken(bias, M, N) if variant.bias else None,
                    taken(slopes) if variant.alibi else None,
                )
                p, d_s = gradients(variant, raw, d_p, taken(lse, M), taken(delta, M), scale, *more)
                return (
                    wd.mma(wd.cast(d_s, dtype), taken(q, M, D), d_k),
                    wd.mma(wd.cast(p, dtype), taken(d_o, M, E), d_v),
                )

            return over_queries

        sums = wd.Register[N, D, wd.f32](0.0), wd.Register[N, E, wd.f32](0.0)
        if group > 1:

            @wd.iterate(R, init_args=sums)
            def over_heads(d_k, d_v):
                return over_head(wd.index(G) * group + wd.tile_start(R), d_k, d_v)

            sums = over_heads
        else:
            sums = over_head(G, *sums)
        wd.write(wd.cast(sums[0] * scale, dtype), d_k)
        wd.write(wd.cast(sums[1], dtype), d_v)

    return backward


def queries_kernel(variant: Variant, *, tile: tuple[int, int] = (64, 32), waves: int = 4):
    """dQ; `tile`: queries per workgroup, keys per trip. Arguments: q, k, v, d_o, lse, delta, scale, d_q, then those
    that the variant has of bias, slopes."""
    dtype = variant.dtype
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
        d_o: wd.Memory[(*variant.dims(H, M, E), dtype)],
        lse: wd.Memory[B, H, M, wd.f32],
        delta: wd.Memory[B, H, M, wd.f32],
        scale: wd.Scalar[wd.f32],
        d_q: wd.Memory[(*variant.dims(H, M, D), dtype)],
        bias: wd.Memory[B, H, M, N, dtype] if variant.bias else None,
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
    ):
        start, stop = variant.keys_of_tile()

        def taken(array, *dims):
            return wd.read(array, mapping=wd.IndexMapping(dims, shared_heads))

        @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](0.0)], start=start, stop=stop)
        def over_keys(d_q):
            raw = wd.mma(wd.read(q), taken(k, N, D), wd.Register[M, N, wd.f32](0.0))
            d_p = wd.mma(wd.read(d_o), taken(v, N, E), wd.Register[M, N, wd.f32](0.0))
            more = (wd.read(bias) if variant.bias else None, wd.read(slopes) if variant.alibi else None)
            _, d_s = gradients(variant, raw, d_p, wd.read(lse), wd.read(delta), scale, *more)
            return wd.mma(wd.cast(d_s, dtype), taken(k, N, D), d_q)

        wd.write(wd.cast(over_keys * scale, dtype), d_q)

    return backward


def tile_of(target: str) -> tuple[int, int, int]:
    """(rows per workgroup, rows per trip, waves) that suit a target: on sm_90a a warpgroup's products have 64 rows."""
    return (128, 64, 2) if target == "sm_90a" else (64, 32, 4)


def numpy_gradients(variant: Variant, given: dict[str, np.ndarray], d_o: np.ndarray, kind: type):
    """(dQ, dK, dV, O, L) in float64, or in float32 with P, dS, O and the gradients rounded to the inputs' dtype."""

    def rounded(x: np.ndarray) -> np.ndarray:
        return x.astype(variant.dtype.storage).astype(kind) if kind is np.float32 else x

    order, group = variant.order, variant.group
    q, k, v, g = (np.einsum(f"{order}->bhsd", x.astype(kind)) for x in (given["q"], given["k"], given["v"], d_o))
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    scale = kind(given["scale"])
    raw = q @ k.swapaxes(-1, -2)
    extras = {name: given[name] for name in ("bias", "slopes", "sink") if name in given}
    with np.errstate(invalid="ignore"):
        p, lse = forward.softmax_weights(variant, raw * scale, extras)
    o = rounded(rounded(p) @ v)
    d_s = p * (g @ v.swapaxes(-1, -2) - (g * o).sum(-1, keepdims=True, dtype=kind))
    if variant.cap is not None:
        level = np.tanh(raw * scale * kind(1 / variant.cap))
        d_s = d_s * (1 - level * level)
    d_s, p = rounded(d_s), rounded(p)

    def shared(x: np.ndarray) -> np.ndarray:
        """Sums over the heads that share one of keys."""
        return x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2, dtype=kind)

    found = d_s @ k * scale, shared(d_s.swapaxes(-1, -2) @ q) * scale, shared(p.swapaxes(-1, -2) @ g)
    return *(np.einsum(f"bhsd->{order}", rounded(x)) for x in found), np.einsum(f"bhsd->{order}", o), lse


def arguments_of(variant: Variant, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Arguments of all kernels by name; O and L as a float32 computation gives them."""
    given = forward.arguments_of(variant, sizes, seed)
    given["d_o"] = common.data(given["o"].shape, variant.dtype, seed + 6)
    *_, o, lse = numpy_gradients(variant, given, given["d_o"], np.float32)
    given["o"], given["lse"] = o.astype(variant.dtype.storage), lse.astype(np.float32)
    given["delta"] = np.full(lse.shape, 93, np.float32)
    for name in ("q", "k", "v"):
        given[f"d_{name}"] = np.full(given[name].shape, 93, variant.dtype.storage)
    return given


def kernels(variant: Variant, *, tile: int = 64, step: int = 32, waves: int = 4):
    """The three kernels in order: `tile` rows per workgroup, `step` rows of what is looped over per trip."""
    return (
        delta_kernel(variant, tile=tile),
        keys_kernel(variant, tile=(step, tile), waves=waves),
        queries_kernel(variant, tile=(tile, step), waves=waves),
    )


def check(variant: Variant, given: dict[str, np.ndarray]) -> int:
    """Compare the gradients with float64 and print the errors; what is allowed is twice that of the float32
    computation. 0 if all are within it."""
    exact = numpy_gradients(variant, given, given["d_o"], np.float64)
    single = numpy_gradients(variant, given, given["d_o"], np.float32)
    status = 0
    for i, name in enumerate(("d_q", "d_k", "d_v")):
        status |= common.verdict(name, given[name], exact[i], 2 * forward.largest(single[i], exact[i]))
    return status


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f16", "bf16"), batch=1, heads=2, m=128, n=128, d=64, group=1)
    parser.add_argument("--e", type=int, help="head size of the values (that of the keys)")
    parser.add_argument("--causal", action="store_true", help="a query sees the keys up to its own position")
    parser.add_argument("--window", type=int, help="a query sees this many keys up to its own position")
    parser.add_argument("--cap", type=float, help="scores become cap tanh(score / cap)")
    for flag in ("bias", "alibi", "sinks"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--order", default="bhsd", choices=("bhsd", "bshd"), help="of the dimensions of Q, K, V and O")
    parser.add_argument("--tile", type=int, help="rows per workgroup")
    parser.add_argument("--step", type=int, help="rows per trip")
    parser.add_argument("--waves", type=int, help="waves along the workgroup's rows")
    given = parser.parse_args(arguments)
    variant = Variant(
        common.dtype_called(given.dtype), None, given.causal or given.window is not None, given.window, given.bias,
        given.alibi, given.cap, given.sinks, True, given.group, given.order,
    )  # fmt: skip
    sizes = {"b": given.batch, "h": given.heads, "m": given.m, "n": given.n, "d": given.d, "e": given.e or given.d}
    values = arguments_of(variant, sizes, given.seed)
    tile, step, waves = tile_of(given.target)
    if given.tile or given.waves:
        tile, waves = given.tile or 64, given.waves or 4
    for kernel in kernels(variant, tile=tile, step=given.step or step, waves=waves):
        common.run(kernel, [values[p.name] for p in kernel.parameters], given)
    return check(variant, values)


if __name__ == "__main__":
    sys.exit(main())
