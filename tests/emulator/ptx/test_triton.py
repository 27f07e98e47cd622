# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Hopper kernels that Triton compiled (tests/vectors/triton): a witness from outside for wgmma, bulk copies and mbarriers.

Right against NumPy and without a finding, in whatever order.
"""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hopper_text import launch
from wavedsl.runtime.tensor_map import TensorMap

TEXTS = Path(__file__).parents[2] / "vectors" / "triton"
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
    tma = name in ("tma", "persistent", "device_maps", "cluster")
    kind = (
        np.float16
        if name in ("tma", "persistent", "cluster")
        else ml_dtypes.bfloat16
        if name == "device_maps"
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
    else:
        # One tile of B is 32 wide; these texts have no masks.
        across = np.ascontiguousarray(b.T)
        report = go(f"gemm_{name}", [a, across, c, np.int32(N), np.int32(K)], (M // 64, N // 32), checks, seed, change)
    return report, np.array_equal(c.astype(np.float64), want.astype(c.dtype).astype(np.float64))


SLOW = [pytest.param(s, marks=pytest.mark.slow) for s in range(1, 6)]


@pytest.mark.parametrize("name", ["tma", "persistent", "device_maps", "cluster", *TYPES])
@pytest.mark.parametrize("seed", [pytest.param(None, marks=pytest.mark.slow), 0, *SLOW])
def test_products(name, seed):
    report, right = multiply(name, "report" if seed is not None else False, seed or 0)
    assert report.findings == [] and right
    assert any(row.startswith("wgmma.mma_async") for row in report.coverage)


@pytest.mark.parametrize("seed", [None, 0, *SLOW])
def test_sums_through_a_clusters_shared_memory(seed):
    rng = np.random.default_rng(2)
    x, y = rng.integers(-9, 10, (6, 2048)).astype(np.float32), np.zeros(6, np.float32)
    report = go("row_sum", [x, y, np.int32(2048)], 24, "report" if seed is not None else False, seed or 0)
    assert report.findings == [] and np.array_equal(y, x.sum(axis=1))
    text = (TEXTS / "row_sum.ptx").read_text()
    both = re.search(r"\tbarrier\.cluster\.arrive\.aligned;\n\tbarrier\.cluster\.wait\.aligned;\n", text).group()
    for change in ((both, ""), ("barrier.cluster.arrive.aligned", "barrier.cluster.arrive.relaxed.aligned")):
        report = go("row_sum", [x, y, np.int32(2048)], 24, "report", seed or 0, change)
        assert {f.kind for f in report.findings} & {"race", "uninitialised-read"}


@pytest.mark.parametrize("seed", [None, 0, *SLOW])
def test_attention(seed):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((128, 32)).astype(np.float16) for _ in range(3))
    out = np.zeros((128, 32), np.float32)
    args = [q, k, v, out, np.int32(128), np.float32(32**-0.5 * np.log2(np.e))]
    report = go("attention", args, 2, "report" if seed is not None else False, seed or 0)
    scores = q.astype(np.float64) @ k.astype(np.float64).T / 32**0.5
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    want = (p / p.sum(axis=1, keepdims=True)) @ v.astype(np.float64)
    assert report.findings == []
    # Probabilities are rounded to 11 bits before the second product.
    assert np.abs(out - want).max() < 2.0**-10 * np.abs(v.astype(np.float64)).max()


@pytest.mark.parametrize("name, change, kinds", [
    ("tma", ("fence.proxy.async.shared::cta", "fence.acq_rel.cta"), {"proxy-fence"}),
    ("tma", ("wgmma.wait_group.sync.aligned 1;", ""), {"missing-wait", "race"}),
    ("tma", ("wgmma.fence.sync.aligned;", ""), {"register-race"}),
    ("tma", ("cp.async.bulk.wait_group \t0;", ""), {"missing-wait"}),
    ("persistent", ("cp.async.bulk.wait_group.read \t0", "cp.async.bulk.wait_group.read \t9"), {"missing-wait", "race"}),
    ("bf16", ("cp.async.wait_group", "// "), {"missing-wait"}),
])  # fmt: skip
def test_seeded_defects(name, change, kinds):
    report, _ = multiply(name, "report", 0, change)
    assert {f.kind for f in report.findings} & kinds, [str(f) for f in report.findings]
