"""Attention O = softmax(Q Kᵀ · scale + …) V, scores kept in registers.

    python examples/attention.py                                     2 heads, 256 queries and keys, head size 64
    python examples/attention.py --causal --dtype bf16 --d 128
    python examples/attention.py --group 4 --heads 8                 four query heads share a head of keys and values
    python examples/attention.py --window 64 --sinks --lse           sliding window, attention sinks, log-sum-exp output
    python examples/attention.py --cap 30 --bias --alibi --order bshd
    python examples/attention.py --target sm_80 --m 100 --n 77       sizes need not divide the tiles
    python examples/attention.py --target gfx950 --tile-m 64 --tile-n 32 --waves 2

A workgroup takes a tile of queries of one head and loops over tiles of keys, keeping the running maximum and sum of
each row; sums are f32. With fewer keys or more keys than queries, the last query is aligned with the last key. A query
that sees no key gives 0 and a log-sum-exp of minus infinity.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

from dataclasses import dataclass

import common
import numpy as np

import wavedsl as wd

B, H, G, M, N, D, E, BM, BN = wd.symbols("B H G M N D E BM BN")
"""Batches, heads, heads of keys and values, queries, keys, head sizes of keys and of values; tiles."""

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Variant:
    """What is computed. `out`: dtype of O (None: that of the inputs). `window`: keys that a query sees, its own and
    those before. `bias` [B, H, M, N] and `alibi` (slopes [H]) are added to the scaled scores; `cap`: scores become
    cap · tanh(score / cap); `sinks` [H]: one more score per row that takes part in the sum only. `group`: query heads
    per head of keys. `order`: of the dimensions of Q, K, V and O; `v_order`: of V's, where it has one of its own: with
    "bhds" its keys lie along memory, as 8-bit products of sm_90a take them. `lazy`: what weights are relative to
    follows a row's maximum only where that has grown by more than this power of 2, so that sums are seldom rescaled;
    None: always."""

    dtype: wd.DType
    out: wd.DType | None = None
    causal: bool = False
    window: int | None = None
    bias: bool = False
    alibi: bool = False
    cap: float | None = None
    sinks: bool = False
    lse: bool = False
    group: int = 1
    order: str = "bhsd"
    v_order: str | None = None
    lazy: float | None = None

    @property
    def key_head(self):
        """The head of keys that the workgroup's head of queries reads."""
        return H if self.group == 1 else H // self.group

    @property
    def plain(self) -> bool:
        """Whether scores are products times the scale and nothing else."""
        return self.cap is None and not self.bias and not self.alibi

    @property
    def masks(self) -> bool:
        """Whether queries do not see all keys."""
        return self.causal or self.window is not None

    def unit(self, scale):
        """What `scored` is times this is an exponent of 2: products stay raw where nothing is added to them."""
        return scale * LOG2_E if self.plain else LOG2_E

    def scored(self, raw, scale, bias, slopes, behind=None):
        """Scores [M, N] from products of queries and keys, a tile of biases and the head's slope."""
        if self.plain:
            return raw
        x = raw * scale
        if self.cap is not None:
            x = wd.tanh(x * (1 / self.cap)) * self.cap
        if self.bias:
            x = x + wd.cast(bias, wd.f32)
        if self.alibi:
            x = x + slopes * self.distance(behind)
        return x

    def distance(self, behind=None):
        """How far a key lies behind its query, [M, N]: what slopes are multiplied with. `behind`: keys more than
        queries, N - M or those of a sequence."""
        return wd.cast(wd.index(N) - (wd.index(M) + N - M if behind is None else wd.index(M) + behind), wd.f32)

    def masked(self, scores, behind=None):
        """Scores with minus infinity where the query does not see the key."""
        if not self.causal and self.window is None:
            return scores
        # Not + (N - M): the first difference of symbols makes sympy import 20 ms of modules.
        position = wd.index(M) + N - M if behind is None else wd.index(M) + behind
        if self.causal:
            scores = wd.where(wd.index(N) <= position, scores, -math.inf)
        if self.window is not None:
            scores = wd.where(wd.index(N) > position - self.window, scores, -math.inf)
        return scores

    def keys_of_tile(self):
        """The range of keys that some query of the workgroup's tile sees."""
        start = None if self.window is None else wd.tile_start(M) + N - M + (1 - self.window)
        return start, wd.tile_stop(M) + N - M if self.causal else None

    def queries_of_tile(self):
        """The range of queries that see some key of the workgroup's tile."""
        stop = None if self.window is None else wd.tile_stop(N) + M - N + (self.window - 1)
        return wd.tile_start(N) + M - N if self.causal else None, stop

    def dims(self, heads, sequence, size, order: str | None = None):
        """The dimensions of an array in this variant's order, or in one of its own."""
        names = {"b": B, "h": heads, "s": sequence, "d": size}
        return tuple(names[letter] for letter in order or self.order)


def finite(top):
    """What a row's weights are relative to: one without a key has top -inf and weights exp2(-inf - 0) = 0."""
    return wd.where(top == -math.inf, 0.0, top)


def with_sink(variant: Variant, scale, top, total, acc, extra):
    """Maxima of the scaled scores, sums and O of rows that have one more score each, without a value."""
    top = top * scale if variant.plain else top
    highest = wd.maximum(top, extra)
    base = finite(highest)
    keep = wd.exp(top - base)
    return highest, total * keep + wd.exp(extra - base), acc * keep


def log_sum_exp(variant: Variant, scale, top, total):
    """The log-sum-exp of rows from their maxima, which are those of raw products where nothing was done to them."""
    raw = variant.plain and not variant.sinks
    return wd.fma(top, scale, wd.log(total)) if raw else top + wd.log(total)


def attention_kernel(
    variant: Variant, *, tile: tuple[int, int] = (128, 64), waves: int = 4, schedule: wd.Schedule | None = None
):
    """Attention on `tile` queries x keys at a time. Its arguments: q, k, v, o, scale, then those that the variant has
    of bias, slopes, sink, lse. The scale must be positive."""
    dtype, out = variant.dtype, variant.out or variant.dtype
    shared_heads = wd.IndexMapping((N, D), {G: variant.key_head}), wd.IndexMapping((N, E), {G: variant.key_head})

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(H, 1, 1),
            wd.WorkgroupConstraint(B, 1, 2),
            wd.TilingConstraint(N, BN),
            wd.WaveConstraint(M, BM / waves),
        ],
        subs={BM: tile[0], BN: tile[1]},
        schedule=schedule,
    )
    def attention(
        q: wd.Memory[(*variant.dims(H, M, D), dtype)],
        k: wd.Memory[(*variant.dims(G, N, D), wd.SHARED, dtype)],
        v: wd.Memory[(*variant.dims(G, N, E, variant.v_order), wd.SHARED, dtype)],
        o: wd.Memory[(*variant.dims(H, M, E), out)],
        scale: wd.Scalar[wd.f32],
        bias: wd.Memory[B, H, M, N, dtype] if variant.bias else None,
        slopes: wd.Memory[H, wd.f32] if variant.alibi else None,
        sink: wd.Memory[H, wd.f32] if variant.sinks else None,
        lse: wd.Memory[B, H, M, wd.f32] if variant.lse else None,
    ):
        unit = variant.unit(scale)

        def weights(x, top):
            return wd.exp2(wd.fma(x, unit, -(top * unit)))

        top = wd.Register[M, wd.f32](-math.inf)
        total = wd.Register[M, wd.f32](0.0)
        acc = wd.Register[M, E, wd.f32](0.0)

        start, stop = variant.keys_of_tile()

        @wd.iterate(N, init_args=[top, total, acc], start=start, stop=stop, per_wave=variant.masks)
        def over_keys(top, total, acc):
            keys = wd.read(k, mapping=shared_heads[0])
            raw = wd.mma(wd.read(q), keys, wd.Register[M, N, wd.f32](0.0))
            added = wd.read(bias) if variant.bias else None, wd.read(slopes) if variant.alibi else None
            scores = variant.masked(variant.scored(raw, scale, *added))
            new_top = wd.maximum(top, wd.max(scores, dim=N))
            if variant.lazy is not None:
                new_top = wd.where((new_top - top) * unit > variant.lazy, new_top, top)
            base = finite(new_top)
            p = weights(scores, base)
            # The difference of two roundings is 0 where the base stays: a factor of exactly 1.
            keep = weights(top, base) if variant.lazy is None else wd.exp2(top * unit - base * unit)
            values = wd.read(v, mapping=shared_heads[1])
            return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, dtype), values, acc * keep)

        top, total, acc = over_keys
        if variant.sinks:
            top, total, acc = with_sink(variant, scale, top, total, acc, wd.read(sink))
        wd.write(wd.cast(acc * wd.where(total == 0.0, 0.0, 1.0 / total), out), o)
        if variant.lse:
            wd.write(log_sum_exp(variant, scale, top, total), lse)

    return attention


def tile_of(target: str, d: int, masked: bool = False, bits: int = 16) -> tuple[tuple[int, int], int]:
    """(queries, keys) of a tile and waves along the queries that suit a target, a head size and elements of `bits`;
    `masked`: part of the blocks are. A warpgroup of sm_90a holds the scores of one block, the weights of the block
    before and 64 rows of O in registers; of blocks that fit, those are taken that were fastest on an H200."""
    if target == "sm_80":
        return (128, 64 if d <= 128 else 32), 4 if d <= 64 else 8
    if target != "sm_90a":
        return (128, 64), 4
    if d <= 64:
        return (192, 96 if masked and bits == 16 else 128), 3
    if bits == 8:
        return (128, 64 if d > 128 else 128), 2
    return (128, 128 if d <= 128 else 64 if masked else 80), 2


def tile_for(variant: Variant, target: str, d: int, n: int | None = None) -> tuple[tuple[int, int], int]:
    """`tile_of` a variant, of `n` keys where that is known. On sm_90a what is added to scores, or made of positions,
    takes registers per score, and 8-bit values that no bulk copy brings (their keys do not lie along memory, or not in
    rows of whole 16 bytes) pass through registers: blocks are smaller then, so that nothing spills (ptxas 13)."""
    (rows, keys), waves = tile_of(target, d, variant.causal, variant.dtype.bits)
    if target != "sm_90a":
        return (rows, keys), waves
    if variant.bias:
        return (128, 64 if d <= 128 else 32), 2
    order = variant.v_order or variant.order
    if variant.dtype.bits == 8 and (order[-1] != "s" or (n or 0) % 16):
        rows, waves = 128, 2
        keys = min(keys, 64 if d <= 128 else 32) if d > 64 and order[-1] == "s" else keys
    if variant.alibi or variant.window is not None:
        keys = min(keys, 64 if d <= 64 else 96 if d <= 128 or variant.window is None else 64)
    return (rows, keys), waves


def lazy_of(target: str) -> float | None:
    """`Variant.lazy` that suits a target: CDNA's waves branch around the multiplications; by the cycle model that saves
    0.7 % of the cycles on gfx90a, 1.2 % on gfx942, 1.9 % on gfx950 (head size 128, tiles of 128 x 64)."""
    return 8.0 if target.startswith("gfx") else None


def sees(variant: Variant, m: int, n: int) -> np.ndarray:
    """Which of `n` keys each of `m` queries sees."""
    position = np.arange(m)[:, None] + n - m
    keys = np.arange(n)
    seen = np.ones((m, n), bool)
    if variant.causal:
        seen &= keys <= position
    if variant.window is not None:
        seen &= keys > position - variant.window
    return seen


def softmax_weights(variant: Variant, scores: np.ndarray, extras: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Weights of the keys and the log-sum-exp from scaled scores, in the scores' own precision."""
    kind = scores.dtype
    m, n = scores.shape[2:]
    if variant.cap is not None:
        scores = np.tanh(scores * kind.type(1 / variant.cap)) * kind.type(variant.cap)
    if variant.bias:
        scores = scores + extras["bias"].astype(kind)
    if variant.alibi:
        distance = np.arange(n) - (np.arange(m)[:, None] + n - m)
        scores = scores + extras["slopes"].astype(kind)[:, None, None] * distance.astype(kind)
    scores = np.where(sees(variant, m, n), scores, kind.type(-np.inf))
    if variant.sinks:
        sink = np.broadcast_to(extras["sink"].astype(kind)[:, None, None], (*scores.shape[:3], 1))
        scores = np.concatenate([scores, sink], -1)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(scores - np.where(np.isinf(top), kind.type(0), top))
    total = p.sum(-1, keepdims=True, dtype=kind)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return (p / np.where(total == 0, kind.type(1), total))[..., :n], lse


def reference(variant: Variant, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, **extras: np.ndarray):
    """(O, log-sum-exp, their allowed errors): exact ones in float64, and twice the largest error of a NumPy computation
    with float32 softmax and sums whose weights are rounded to the inputs' dtype and whose O is rounded to its own.
    The log-sum-exp may be off by sqrt(d) roundings of a score more: BLAS adds d products in blocks, matrix instructions
    one after the other. Of 8-bit inputs it may be off as a score may that sm_90a adds up, which keeps about 13 bits of
    the sum of magnitudes meanwhile (docs/numerics.md)."""

    def outputs(kind: type) -> tuple[np.ndarray, np.ndarray]:
        orders = (variant.order, variant.order, variant.v_order or variant.order)
        arranged = [np.einsum(f"{order}->bhsd", x.astype(kind)) for order, x in zip(orders, (q, k, v))]
        repeated = [np.repeat(x, variant.group, axis=1) for x in arranged[1:]]
        with np.errstate(invalid="ignore"):
            scores = (arranged[0] @ repeated[0].swapaxes(-1, -2)) * kind(scale)
            p, lse = softmax_weights(variant, scores, extras)
        if kind is np.float32:
            p = p.astype(variant.dtype.storage).astype(kind)
        o = np.einsum(f"bhsd->{variant.order}", p @ repeated[1])
        return (o.astype((variant.out or variant.dtype).storage) if kind is np.float32 else o), lse

    exact, single = outputs(np.float64), outputs(np.float32)
    level = np.abs(exact[1], where=np.isfinite(exact[1]), out=np.zeros_like(exact[1])).max(initial=0.0)
    in_order = math.sqrt(q.shape[variant.order.index("d")]) * 2.0**-24 * level
    if variant.dtype.bits == 8:
        lengths = [np.linalg.norm(x.astype(np.float64), axis=variant.order.index("d")).max(initial=0.0) for x in (q, k)]
        in_order += 2.0**-13 * scale * math.prod(lengths)  # no sum of magnitudes is larger than the product of lengths
    return *exact, 2 * largest(single[0], exact[0]), 2 * largest(single[1], exact[1]) + in_order


def largest(got: np.ndarray, want: np.ndarray) -> float:
    """The largest absolute difference; infinities must agree."""
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - want)
    return float(np.where(got == want, 0.0, error).max(initial=0.0))


def arguments_of(variant: Variant, sizes: dict[str, int], seed: int = 0) -> dict[str, object]:
    """Arguments by name for sizes b, h (heads of Q), m, n, d, e, drawn from normal numbers."""
    heads = {"h": sizes["h"], "g": -(-sizes["h"] // variant.group)}

    def drawn(number: int, heads_of: str, sequence: str, size: str, order: str) -> np.ndarray:
        extent = {"b": sizes["b"], "h": heads[heads_of], "s": sizes[sequence], "d": sizes[size]}
        return common.data(tuple(extent[letter] for letter in order), variant.dtype, seed + number)

    shapes = [("h", "m", "d"), ("g", "n", "d"), ("g", "n", "e"), ("h", "m", "e")]
    orders = (variant.order, variant.order, variant.v_order or variant.order, variant.order)
    q, k, v, o = (drawn(i, *shape, order) for i, (shape, order) in enumerate(zip(shapes, orders)))
    given = {"q": q, "k": k, "v": v, "o": np.full(o.shape, 93, (variant.out or variant.dtype).storage)}
    given["scale"] = np.float32(1 / math.sqrt(sizes["d"]))
    b, h, m, n = sizes["b"], sizes["h"], sizes["m"], sizes["n"]
    if variant.bias:
        given["bias"] = common.data((b, h, m, n), variant.dtype, seed + 4)
    if variant.alibi:
        given["slopes"] = (2.0 ** (-8 * np.arange(1, h + 1) / h)).astype(np.float32)
    if variant.sinks:
        given["sink"] = common.data((h,), wd.f32, seed + 5)
    if variant.lse:
        given["lse"] = np.full((b, h, m), 93, np.float32)
    return given


def check(variant: Variant, given: dict[str, object]) -> int:
    """Compare outputs with the reference and print the errors; 0 if they are within what is allowed."""
    extras = {name: given[name] for name in ("bias", "slopes", "sink") if name in given}
    o, lse, allowed, lse_allowed = reference(
        variant, given["q"], given["k"], given["v"], float(given["scale"]), **extras
    )
    status = common.verdict("o", given["o"], o, allowed)
    if variant.lse:
        status |= common.verdict("lse", given["lse"], lse, lse_allowed)
    return status


def main(arguments: list[str] | None = None) -> int:
    dtypes = ("f16", "bf16", "f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
    parser = common.options(__doc__, dtypes, batch=1, heads=2, m=256, n=256, d=64, group=1)
    parser.add_argument("--e", type=int, help="head size of the values (that of the keys)")
    parser.add_argument("--causal", action="store_true", help="a query sees the keys up to its own position")
    parser.add_argument("--window", type=int, help="a query sees this many keys up to its own position")
    parser.add_argument("--cap", type=float, help="scores become cap tanh(score / cap)")
    for flag in ("bias", "alibi", "sinks", "lse"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--lazy", type=float, help="rescale sums where maxima grew by more than 2 to this power")
    parser.add_argument("--order", default="bhsd", choices=("bhsd", "bshd"), help="of the dimensions of Q, K, V and O")
    parser.add_argument("--v-order", help="of those of V, where it has one of its own; bhds: keys along memory")
    parser.add_argument("--tile-m", type=int, help="queries per workgroup")
    parser.add_argument("--tile-n", type=int, help="keys per trip")
    parser.add_argument("--waves", type=int, help="waves along the queries")
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    variant = Variant(
        dtype, wd.f16 if dtype.bits == 8 else None, given.causal or given.window is not None, given.window, given.bias,
        given.alibi, given.cap, given.sinks, given.lse, given.group, given.order, given.v_order,
        lazy_of(given.target) if given.lazy is None else given.lazy,
    )  # fmt: skip
    sizes = {"b": given.batch, "h": given.heads, "m": given.m, "n": given.n, "d": given.d, "e": given.e or given.d}
    values = arguments_of(variant, sizes, given.seed)
    (rows, columns), waves = tile_for(variant, given.target, given.d, given.n)
    if given.tile_m or given.waves:
        rows, waves = given.tile_m or 128, given.waves or 4
    kernel = attention_kernel(variant, tile=(rows, given.tile_n or columns), waves=waves)
    common.run(kernel, list(values.values()), given)
    return check(variant, values)


if __name__ == "__main__":
    sys.exit(main())
