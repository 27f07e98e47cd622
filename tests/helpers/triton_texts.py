"""Launches of the kernels that Triton compiled for Hopper (tests/vectors/triton), with what NumPy makes of them."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
from hopper_text import launch
from wavedsl.runtime.tensor_map import TensorMap

TEXTS = Path(__file__).parents[1] / "vectors" / "triton"
M, N, K = 192, 160, 224
TYPES = {
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
}


def go(name, args, grid, checks, seed, change=("", ""), hidden=(None, None)):
    text = (TEXTS / f"{name}.ptx").read_text()
    assert change[0] in text, change[0]
    warps, shared = map(int, re.match(r"// \w+: (\d+) warps, (\d+) bytes", text).groups())
    return launch(text.replace(*change), [*args, *hidden], grid, 32 * warps, shared, checks, seed)


def host(array, box):
    """A tensor descriptor of Triton as arguments: map, sizes, strides."""
    rows, columns = array.shape
    return [TensorMap(array, box, swizzle=128), np.int32(rows), np.int32(columns), np.int64(columns), np.int64(1)]


def multiply(name, checks, seed, change=("", "")):
    rng = np.random.default_rng(0)
    tma = name in ("tma", "persistent", "device_maps", "roles", "cluster")
    kind = (
        np.float16
        if name in ("tma", "persistent", "cluster")
        else ml_dtypes.bfloat16
        if name in ("device_maps", "roles")
        else TYPES[name]
    )
    a, b = rng.integers(-2, 3, (M, K)).astype(kind), rng.integers(-2, 3, (N, K)).astype(kind)
    c = np.full((M, N), 93, kind if tma else np.int32 if name == "s8" else np.float32)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    tiles = -(-M // 128), -(-N // 128)
    if name == "tma":
        report = go(
            "gemm_tma",
            [*host(a, (64, 128)), *host(b, (64, 128)), *host(c, (64, 128)), np.int32(K)],
            tiles,
            checks,
            seed,
            change,
        )
    elif name == "persistent":
        report = go(
            "gemm_persistent",
            [*host(a, (64, 128)), *host(b, (64, 128)), *host(c, (64, 128)), np.int32(M), np.int32(N), np.int32(K)],
            3,
            checks,
            seed,
            change,
        )
    elif name == "cluster":
        # Two CTAs share a tile: each takes half of its columns.
        report = go(
            "gemm_cluster",
            [*host(a, (64, 128)), *host(b, (64, 64)), *host(c, (64, 128)), np.int32(K)],
            (2 * tiles[0], tiles[1]),
            checks,
            seed,
            change,
        )
    elif name == "device_maps":
        # The first hidden argument is room for the maps that the kernel makes: three per CTA.
        room = np.zeros(384 * tiles[0] * tiles[1], np.uint8)
        report = go(
            "gemm_device_maps",
            [a, b, c, np.int32(M), np.int32(N), np.int32(K)],
            tiles,
            checks,
            seed,
            change,
            (room, None),
        )
    elif name == "roles":
        # Five maps per CTA: each of two warpgroups loads and stores halves of its own. Others wait at named barriers.
        room = np.zeros(640 * 3, np.uint8)
        sizes = [np.int32(M), np.int32(N), np.int32(K)]
        report = go("gemm_roles", [a, b, c, *sizes], 3, checks, seed, change, (room, None))
    else:
        # One tile of B is 32 wide; these texts have no masks.
        across = np.ascontiguousarray(b.T)
        report = go(f"gemm_{name}", [a, across, c, np.int32(N), np.int32(K)], (M // 64, N // 32), checks, seed, change)
    return report, np.array_equal(c.astype(np.float64), want.astype(c.dtype).astype(np.float64))


PRODUCTS = ("tma", "persistent", "device_maps", "roles", "cluster", *TYPES)


def cluster_sum(checks, seed, change=("", "")):
    """Rows summed by clusters of four CTAs."""
    rng = np.random.default_rng(2)
    x, y = rng.integers(-9, 10, (6, 2048)).astype(np.float32), np.zeros(6, np.float32)
    report = go("row_sum", [x, y, np.int32(2048)], 24, checks, seed, change)
    return report, np.array_equal(y, x.sum(axis=1))


def attention(checks, seed):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((128, 32)).astype(np.float16) for _ in range(3))
    out = np.zeros((128, 32), np.float32)
    report = go("attention", [q, k, v, out, np.int32(128), np.float32(32**-0.5 * np.log2(np.e))], 2, checks, seed)
    scores = q.astype(np.float64) @ k.astype(np.float64).T / 32**0.5
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    want = (p / p.sum(axis=1, keepdims=True)) @ v.astype(np.float64)
    # Probabilities are rounded to 11 bits before the second product.
    return report, bool(np.abs(out - want).max() < 2.0**-10 * np.abs(v.astype(np.float64)).max())


def attention_causal(checks, seed):
    """Two heads of 128 keys, tensor maps from the host."""
    rng = np.random.default_rng(3)
    heads, n, d = 2, 128, 64
    q, k, v = (rng.standard_normal((heads * n, d)).astype(ml_dtypes.bfloat16) for _ in range(3))
    out, levels = np.zeros((heads * n, d), ml_dtypes.bfloat16), np.zeros(heads * n, np.float32)
    maps = [x for array in (q, k, v, out) for x in host(array, (64, 64))]
    scale = d**-0.5
    given = [*maps, levels, np.float32(scale * np.log2(np.e)), np.int32(n)]
    report = go("attention_causal", given, (n // 64, heads), checks, seed)
    q, k, v = (x.astype(np.float64).reshape(heads, n, d) for x in (q, k, v))
    scores = np.where(np.tri(n, dtype=bool), q @ k.swapaxes(1, 2) * scale, -np.inf)
    p = np.exp(scores)
    want = p @ v / p.sum(axis=2, keepdims=True)
    off = np.abs(out.astype(np.float64).reshape(want.shape) - want).max()
    level = np.abs(levels.reshape(heads, n) - np.log2(p.sum(axis=2))).max()
    # Probabilities and results are rounded to 8 bits.
    return report, bool(off < 2.0**-7 * np.abs(v).max() and level < 1e-4)


def coverage():
    """Rows that these kernels execute on the way to right answers."""
    runs = [*(multiply(name, False, 0) for name in PRODUCTS), cluster_sum(False, 0), attention(False, 0)]
    runs.append(attention_causal(False, 0))
    assert all(right for _, right in runs)
    return set().union(*(report.coverage for report, _ in runs))
