"""Cases of `triton_amdgcn.py` with kernels of `model_kernels.py` and of examples, by the names of `triton_models`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import model_kernels as models
import numpy as np
from amdgcn_counts import example
from gemm_kernels import Config
from problems import BF16, COLUMNS, ROWS, UNWRITTEN, Problem, empty, normal, wide

import wavedsl as wd

LOG2_E = math.log2(math.e)
CHOSEN: tuple[dict[str, Any], ...] = ({}, {"stages": 1}, {"direct_to_shared": True, "ping_pong": False})
"""What our products are tried with beside the compiler's own choice; what a chip cannot do is left out."""


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def swiglu(target: str) -> Problem:
    n = 2048
    x, y = normal(0, ROWS, 2, n), empty(ROWS, n)
    kernel = models.gated(wd.bf16, n)
    return Problem(
        kernel, [x, y], [x, y], (ROWS,), [(y, lambda: silu(wide(x[:, 0])) * wide(x[:, 1]))], 1e-2, n
    )


def rotary(target: str) -> Problem:
    heads, d = 32, 64
    x, y = normal(0, ROWS, heads, 2, d), empty(ROWS, heads, 2, d)
    angle = (np.arange(ROWS)[:, None] * 10000.0 ** (-np.arange(d) / d)).astype(np.float32)
    cosine, sine = np.cos(angle).astype(BF16), np.sin(angle).astype(BF16)

    def want() -> np.ndarray:
        a, b, c, s = wide(x[:, :, 0]), wide(x[:, :, 1]), wide(cosine)[:, None], wide(sine)[:, None]
        return np.stack([a * c - b * s, b * c + a * s], 2)

    given = [x, cosine, sine, y]
    return Problem(models.rotated(wd.bf16, 2, 16), given, given, (ROWS // 2, 2), [(y, want)], 1e-2, 4096)


def layer_norm_backward(target: str) -> Problem:
    n = 4096
    x, w, dy, dx = normal(0, ROWS, n), normal(1, n), normal(2, ROWS, n), empty(ROWS, n)
    mean = wide(x).mean(1)
    rstd = (1 / np.sqrt(wide(x).var(1) + 1e-5)).astype(np.float32)

    def want() -> np.ndarray:
        normed, slope = (wide(x) - mean[:, None]) * rstd[:, None], wide(dy) * wide(w)
        away = slope - normed * (slope * normed).mean(1, keepdims=True) - slope.mean(1, keepdims=True)
        return away * rstd[:, None]

    kernel, *others = (models.layer_norm_backward(wd.bf16, n, waves) for waves in (4, 8))
    given = [x, w, dy, mean, rstd, dx]
    problem = Problem(kernel, given, given, (ROWS,), [(dx, want)], 1e-2, n)
    problem.others_of_ours = {"8 waves": others[0]}
    return problem


def add_norm_quantise(target: str, fp8: wd.DType) -> Problem:
    """Numbers of 8 bits are off by what they are rounded by, half a sixteenth."""
    n, most = 4096, 448.0 if target == "gfx950" else 240.0
    x, residual, w, h = normal(0, ROWS, n), normal(1, ROWS, n), normal(2, n), empty(ROWS, n)
    q, scale, eps = empty(ROWS, n, dtype=fp8.storage), empty(ROWS, dtype=np.float32), np.float32(1e-5)
    total = wide(x) + wide(residual)

    def level() -> np.ndarray:
        y = total / np.sqrt((total**2).mean(1, keepdims=True) + eps) * wide(w)
        return np.abs(y).max(1) / most

    def rounded() -> np.ndarray:
        y = total / np.sqrt((total**2).mean(1, keepdims=True) + eps) * wide(w)
        return y / level()[:, None]

    kernel, *others = (models.norm_quantised(wd.bf16, fp8, most, n, waves) for waves in (4, 8))
    given = [x, residual, w, h, q, scale, eps]
    results = [(h, lambda: total), (q, rounded), (scale, level)]
    problem = Problem(kernel, given, given, (ROWS,), results, 4e-2, n)
    problem.others_of_ours = {"8 waves": others[0]}
    return problem


def embedding(target: str) -> Problem:
    n, words = 4096, 1000
    table, y = normal(0, words, n), empty(ROWS, n)
    ids = np.random.default_rng(1).integers(0, words, ROWS).astype(np.int32)
    given = [table, ids, y]
    return Problem(models.gathered(wd.bf16, n), given, given, (ROWS,), [(y, lambda: wide(table[ids]))], 0.0, n)


def running_sum(target: str) -> Problem:
    n = 4096
    x, y = normal(0, ROWS, n), empty(ROWS, n, dtype=np.float32)
    kernel = models.scanned(wd.bf16, n)
    return Problem(kernel, [x, y], [x, y], (ROWS,), [(y, lambda: np.cumsum(wide(x), 1))], 1e-4, n)


def column_sums(target: str) -> Problem:
    m, n = 512, 4096
    x, dy = normal(0, m, n), normal(1, m, n)
    dw, db = empty(n, dtype=np.float32), empty(n, dtype=np.float32)
    kernel, *others = (models.column_sums(wd.bf16, rows, 64) for rows in (32, 64))
    given = [x, dy, dw, db]
    results = [(dw, lambda: (wide(x) * wide(dy)).sum(0)), (db, lambda: wide(dy).sum(0))]
    problem = Problem(kernel, given, given, (n // 64,), results, 1e-4, m * 64)
    problem.others_of_ours = {"64 rows": others[0]}
    return problem


def cross_entropy(target: str) -> Problem:
    m, n = 64, 32768
    x, dx, loss = normal(0, m, n), empty(m, n), empty(m, dtype=np.float32)
    label = np.random.default_rng(1).integers(0, n, m).astype(np.int32)
    top = wide(x).max(1, keepdims=True)

    def gradient() -> np.ndarray:
        p = np.exp(wide(x) - top)
        p /= p.sum(1, keepdims=True)
        p[np.arange(m), label] -= 1
        return p

    def losses() -> np.ndarray:
        return np.log(np.exp(wide(x) - top).sum(1)) + top[:, 0] - wide(x)[np.arange(m), label]

    kernel, *others = (example("cross_entropy").long_rows_kernel(wd.bf16, tile) for tile in (4096, 2048))
    given = [x, label, loss, dx]
    problem = Problem(kernel, given, given, (m,), [(dx, gradient), (loss, losses)], 1e-2, n)
    problem.others_of_ours = {"2048 columns": others[0]}
    return problem


def product(
    kernels: Callable[[Config], Any],
    tile: tuple[int, int, int],
    waves: tuple[tuple[int, int], ...],
    given: list[Any],
    results: list[tuple[np.ndarray, Callable[[], np.ndarray]]],
    grid: tuple[int, ...],
    others: list[Any] | None = None,
    error: float = 1e-2,
) -> Problem:
    """A product of these tiles with the compiler's own choice and with `CHOSEN`, for each of the `waves`."""
    made = {
        f"{m} x {n} {x or ''}".rstrip(): kernels(Config(*tile, m, n, tuple(x.items())))
        for m, n in waves
        for x in CHOSEN
    }
    first, *rest = made
    problem = Problem(made[first], given, others or given, grid, results, error)
    problem.others_of_ours = {x: made[x] for x in rest}
    return problem


def scaled(target: str, dtype: wd.DType) -> Problem:
    m, n, k = 2048, COLUMNS, 2048
    if dtype is wd.i8:
        a, b = (np.random.default_rng(i).integers(-128, 128, s).astype(np.int8) for i, s in ((0, (m, k)), (1, (n, k))))
    else:
        a, b = normal(0, m, k, dtype=dtype.storage), normal(1, n, k, dtype=dtype.storage)
    rows, columns = (np.random.default_rng(i).uniform(0.5, 2, s).astype(np.float32) for i, s in ((2, m), (3, n)))
    c = empty(m, n)
    given = [a, b, rows, columns, c]
    results = [(c, lambda: wide(a) @ wide(b).T * rows[:, None] * columns)]
    return product(
        lambda config: models.scaled(dtype, config), (128, 128, 128), ((64, 32), (64, 64)), given, results,
        (m // 128, n // 128),
    )  # fmt: skip


def blocks_scaled(target: str, dtype: wd.DType) -> Problem:
    m, n, k, block = 2048, COLUMNS, 2048, 128
    a, b = normal(0, m, k, dtype=dtype.storage), normal(1, n, k, dtype=dtype.storage)
    random = np.random.default_rng(2)
    sa, sb = (random.uniform(0.5, 2, s).astype(np.float32) for s in ((k // block, m), (n // block, k // block)))
    c = empty(m, n)

    def want() -> np.ndarray:
        return wide(a) * np.repeat(sa.T, block, 1) @ (wide(b) * np.repeat(np.repeat(sb, block, 0), block, 1)).T

    given = [a, b, sa, sb, c]
    return product(
        lambda config: models.blocks_scaled(dtype, config), (128, 128, block), ((64, 32), (64, 64)), given, [(c, want)],
        (m // 128, n // 128),
    )  # fmt: skip


def microscaled(target: str, dtype: wd.DType) -> Problem:
    m, n, k = 2048, COLUMNS, 4096 if dtype.packed else 2048
    random = np.random.default_rng(0)
    a, b = (random.integers(0, 1 << dtype.bits, x, dtype=np.uint8) for x in ((m, k), (n, k)))
    sa, sb = (random.integers(120, 135, (x, k // 32), dtype=np.uint8) for x in (m, n))
    number = ml_dtypes.float4_e2m1fn if dtype.packed else dtype.storage
    if not dtype.packed:
        a, b = (np.where(x & 0x7F < 0x60, x, 0x3C).astype(np.uint8) for x in (a, b))  # finite, at most 60
    c = empty(m, n)

    def want() -> np.ndarray:
        """Products of small whole multiples, exact in f32; sums are rounded."""
        left, right = (
            wide(x.view(number)) * np.ldexp(np.float32(1), np.repeat(s.astype(np.int32) - 127, 32, 1))
            for x, s in ((a, sa), (b, sb))
        )
        return left @ right.T

    data = [(x[:, 1::2] << 4 | x[:, ::2]) if dtype.packed else x.view(number) for x in (a, b)]
    powers = [x.view(wd.f8e8m0.storage) for x in (sa, sb)]
    given = [data[0], powers[0], data[1], powers[1], c]
    tile, waves, grid = (128, 128, 256 if dtype.packed else 128), ((64, 32), (64, 64)), (m // 128, n // 128)
    problem, other = (
        product(lambda config, x=x: models.microscaled(dtype, config, x), tile, waves, given, [(c, want)], grid)
        for x in ((), (wd.GLOBAL,))
    )
    more = {"": other.kernel, **other.others_of_ours}
    problem.others_of_ours |= {f"{x} scales from memory".strip(): kernel for x, kernel in more.items()}
    return problem


def eight_bits(target: str) -> Problem:
    m, n, k = 2048, COLUMNS, 1024
    a, scale, c = normal(0, m, k), normal(1, n), empty(m, n)
    q = np.random.default_rng(2).integers(-128, 128, (n, k)).astype(np.int8)
    given = [a, q, scale, c]
    results = [(c, lambda: wide(a) @ wide(q).T * wide(scale))]
    return product(
        lambda config: models.eight_bits(wd.bf16, config), (128, 128, 64), ((128, 32),), given, results,
        (m // 128, n // 128),
    )  # fmt: skip


def four_bits(target: str) -> Problem:
    m, n, k, group = 2048, COLUMNS, 1024, 64
    a, c = normal(0, m, k, dtype=np.float16), empty(m, n, dtype=np.float16)
    random = np.random.default_rng(2)
    codes, zero = random.integers(0, 16, (n, k)), random.integers(4, 12, (k // group, n)).astype(np.float16)
    scale = (random.uniform(0.5, 2, zero.shape) / 16).astype(np.float16)
    q = (codes[:, 1::2] << 4 | codes[:, ::2]).astype(np.uint8)

    def want() -> np.ndarray:
        weights = (codes - np.repeat(zero.T, group, 1)) * np.repeat(wide(scale).T, group, 1)
        return wide(a) @ weights.T.astype(np.float32)

    given = [a, q, zero, scale, c]
    return product(
        models.groups_of_four_bits, (128, 128, group), ((128, 32),), given, [(c, want)], (m // 128, n // 128)
    )


def gate_and_up(target: str) -> Problem:
    m, n, k = 2048, COLUMNS, 1024
    x, h = normal(0, m, k), empty(m, n)
    gate, up = normal(1, n, k, scale=1 / 32), normal(2, n, k, scale=1 / 32)
    given = [x, gate, up, h]
    results = [(h, lambda: silu(wide(x) @ wide(gate).T) * (wide(x) @ wide(up).T))]
    return product(
        lambda config: models.gate_and_up(wd.bf16, config), (128, 64, 64), ((64, 32), (32, 32)), given, results,
        (m // 128, n // 64),
    )  # fmt: skip


def routed(target: str) -> Problem:
    tokens, experts, n, k, block = 2048, 8, 2432, 1024, 64
    x, w, y = normal(0, tokens, k), normal(1, experts, n, k), empty(tokens, n)
    random = np.random.default_rng(2)
    ids = random.permutation(tokens).astype(np.int32).reshape(-1, block)
    expert = np.sort(random.integers(0, experts, len(ids))).astype(np.int32)

    def want() -> np.ndarray:
        out = np.zeros((tokens, n), np.float32)
        for rows, e in zip(ids, expert):
            out[rows] = wide(x[rows]) @ wide(w[e]).T
        return out

    given = [x, w, ids, expert, y]
    return product(
        lambda config: models.routed(wd.bf16, config), (block, 128, 64), ((32, 64), (32, 32)), given, [(y, want)],
        (len(ids), n // 128),
    )  # fmt: skip


def decode(target: str) -> Problem:
    """As many sequences as fill a chip, two heads of keys, eight of queries each; every fourth has the same pages."""
    paged, forward = example("attention_decode"), example("attention")
    variant = forward.Variant(wd.bf16, group=8)
    values = paged.arguments_of(variant, [512] * 4, 16, 128, 64, 1)
    pages = values["table"]
    values["table"], values["lengths"] = np.tile(pages, (ROWS // 4, 1)), np.full(ROWS, 512, np.int32)
    q = values["q"] = normal(1, ROWS, *values["q"].shape[1:])
    for name in ("partial", "level"):
        values[name] = empty(ROWS, *values[name].shape[1:], dtype=np.float32)

    def taken(array: np.ndarray) -> np.ndarray:
        """Keys or values of the four, by head: [4, 2, 512, 128]."""
        return wide(array)[pages].reshape(4, 512, 2, 128).swapaxes(1, 2)

    def scores() -> np.ndarray:
        return wide(q).reshape(-1, 4, 2, 8, 128) @ taken(values["k"]).swapaxes(2, 3) * values["scale"]

    def level() -> np.ndarray:
        s = scores()
        top = s.max(-1)
        return (np.log(np.exp(s - top[..., None]).sum(-1)) + top).reshape(ROWS, 1, 2, 8)

    def sums() -> np.ndarray:
        s = scores()
        p = np.exp(s - s.max(-1, keepdims=True))
        return (p / p.sum(-1, keepdims=True) @ taken(values["v"])).reshape(ROWS, 1, 2, 8, 128)

    results = [(values["partial"], sums), (values["level"], level)]
    given = [values[x] for x in ("q", "k", "v", "table", "lengths", "scale", "partial", "level")]
    kernel, *others = (paged.split_kernel(variant, page=64, pages=8, splits=1, tile=tile) for tile in (32, 64))
    problem = Problem(kernel, given, given, (1, 2, ROWS), results, 2e-2)
    problem.others_of_ours = {"64 keys": others[0]}
    return problem


def attention(target: str, d: int, **chosen: Any) -> Problem:
    """Forward, with a window or a bias."""
    forward = example("attention")
    n = 512
    q, k, v, o = (normal(i, 1, 1, n, d) for i in range(4))
    bias = [normal(5, 1, 1, n, n)] if chosen.get("bias") else []
    o[:] = UNWRITTEN
    scale = np.float32(1 / math.sqrt(d))
    window = chosen.get("window")
    variant = forward.Variant(wd.bf16, causal=window is not None, lazy=forward.lazy_of(target), **chosen)
    kernel = forward.attention_kernel(variant, tile=(128, 64), waves=4)

    def want() -> np.ndarray:
        s = wide(q) @ wide(k).swapaxes(2, 3) * scale + (wide(bias[0]) if bias else 0)
        away = np.arange(n)[:, None] - np.arange(n)
        s = s if window is None else np.where((away >= 0) & (away < window), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ wide(v)

    its = scale if bias else np.float32(scale * LOG2_E)
    return Problem(
        kernel, [q, k, v, o, scale, *bias], [q, k, v, o, its, *bias], (n // 128, 1), [(o, want)], 2e-2,
        whole=window is not None,
    )  # fmt: skip


def backward_queries(target: str, d: int) -> Problem:
    gradients = example("attention_backward")
    n = 512
    q, d_o, k, v = (normal(i, 1, 1, n, d) for i in range(4))
    d_q = empty(1, 1, n, d)
    scale = np.float32(1 / math.sqrt(d))
    s = (wide(q) @ wide(k).swapaxes(2, 3) * scale).astype(np.float64)
    lse = np.log(np.exp(s).sum(-1)).astype(np.float32)
    p = np.exp(s - lse[..., None]).astype(np.float32)
    d_p = wide(d_o) @ wide(v).swapaxes(2, 3)
    delta = (p * d_p).sum(-1)
    kernel = gradients.queries_kernel(gradients.Variant(wd.bf16), tile=(64, 32), waves=4)
    results = [(d_q, lambda: (p * (d_p - delta[..., None])) @ wide(k) * scale)]
    given = [q, k, v, d_o, lse, delta, scale, d_q]
    return Problem(kernel, given, given, (n // 64, 1), results, 2e-2)


def cases(fp8: Mapping[str, wd.DType]) -> dict[str, Callable[[str], Problem]]:
    """By name; `fp8`: the 8-bit floats of each target."""
    return {
        "swiglu": swiglu,
        "rotary": rotary,
        "layer norm backward": layer_norm_backward,
        "add norm quantise": lambda t: add_norm_quantise(t, fp8[t]),
        "embedding": embedding,
        "running sum": running_sum,
        "column sums": column_sums,
        "cross entropy": cross_entropy,
        "gemm fp8 scaled": lambda t: scaled(t, fp8[t]),
        "gemm i8 scaled": lambda t: scaled(t, wd.i8),
        "gemm fp8 block scaled": lambda t: blocks_scaled(t, fp8[t]),
        "gemm mxfp8": lambda t: microscaled(t, wd.f8e4m3),
        "gemm mxfp4": lambda t: microscaled(t, wd.f4e2m1),
        "gemm bf16 i8 weights": eight_bits,
        "gemm int4 groups": four_bits,
        "gemm gate and up": gate_and_up,
        "gemm routed": routed,
        "decode": decode,
        "attention 128 window": lambda t: attention(t, 128, window=200),
        "attention 64 bias": lambda t: attention(t, 64, bias=True),
        **{f"attention {d} backward dQ": lambda t, d=d: backward_queries(t, d) for d in (64, 128)},
    }
