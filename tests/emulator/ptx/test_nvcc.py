# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Kernels compiled by nvcc from tests/vectors/nvcc/kernels.cu, each against what its source means; no finding in any order."""

import math
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from wavedsl.runtime.emulator.ptx.emulator import run_ptx

FOLDER = Path(__file__).parents[2] / "vectors" / "nvcc"
TEXT = {arch: (FOLDER / f"kernels.{arch}.ptx").read_text() for arch in ("sm_80", "sm_90a")}


@pytest.fixture(params=[("sm_80", 0), ("sm_80", 1), ("sm_90a", 2)], ids=lambda p: f"{p[0]}-seed{p[1]}")
def launch(request):
    arch, seed = request.param

    def go(name, grid, block, args, shared=0, findings=()):
        report = run_ptx(
            TEXT[arch],
            target=arch,
            grid=grid,
            block=block,
            args=args,
            kernel=name,
            shared_bytes=shared,
            checks="report",
            seed=seed,
        )
        assert [f.kind for f in report.findings] == list(findings), [str(f) for f in report.findings]

    return go


def rng():
    return np.random.default_rng(0)


def close(got, want, tolerance=0.0):
    got, want = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= tolerance * np.maximum(1, np.abs(want))
    bad = ~(near | (got == want) | (np.isnan(got) & np.isnan(want)))
    assert not bad.any(), (np.argwhere(bad)[:3].tolist(), got[bad][:3], want[bad][:3])


def test_block_reduction_with_atomics(launch):
    a, o = rng().standard_normal(5000).astype(np.float32), np.zeros(1, np.float32)
    launch("reduce_block", (3,), (256,), [a, o, np.int32(5000)])
    close(o, [a.astype(float).sum()], 1e-4)


def test_histogram(launch):
    a, o = rng().integers(0, 1000, 3000).astype(np.int32), np.zeros(64, np.int32)
    launch("hist", (12,), (256,), [a, o, np.int32(3000)])
    close(o, np.bincount(a & 63, minlength=64))


def test_transpose(launch):
    a, o = rng().standard_normal((100, 100)).astype(np.float32), np.zeros((100, 100), np.float32)
    launch("transpose", (4, 4), (32, 8), [a, o, np.int32(100)])
    close(o, a.T)


def test_float_functions(launch):
    x = np.concatenate([rng().standard_normal(120) * 3, [1e5, -1e4, 1e-3, 50.0, 0.1, -7.0, 2.0, 100.0]]).astype(
        np.float32
    )
    o = np.zeros((128, 16), np.float32)
    launch("mathf", (2,), (64,), [x, o])
    X, a = x.astype(np.float64), np.abs(x.astype(np.float64))

    def lgamma(v):
        return math.inf if v <= 0 and v == math.floor(v) else math.lgamma(v)

    def constant(v):
        return float(np.float32(v))

    with np.errstate(all="ignore"):
        want = [
            np.sin((x * np.float32(1000)).astype(float)), np.cos(X), np.exp(X), np.log(a), a ** constant(1.7), np.vectorize(math.erf)(X), np.tanh(X),
            np.arctan2(X, constant(0.3)), np.sqrt(a), 1 / X, 1 / np.sqrt(a), np.fmod(X, constant(0.37)), np.cbrt(X), np.vectorize(lgamma)(X),
            np.floor(X) + np.rint(X) + np.ceil(X) + np.trunc(X) + np.sign(X) * np.floor(a + 0.5), np.exp2(X) + np.log10(a) + np.arcsinh(X),
        ]  # fmt: skip
        close(o, np.stack(want, 1).astype(np.float32), 3e-5)


def test_double_functions(launch):
    x, o = np.concatenate([rng().standard_normal(60) * 3, [1e5, 0.1, 2.0, -7.0]]), np.zeros((64, 8))
    launch("mathd", (1,), (64,), [x, o])
    a = np.abs(x)
    with np.errstate(all="ignore"):
        want = [
            np.sin(x * 1000),
            np.exp(x),
            np.log(a),
            a**1.7,
            np.vectorize(math.erf)(x),
            np.sqrt(a),
            1 / x,
            np.tanh(x) + 1 / np.sqrt(a),
        ]
        close(o, np.stack(want, 1), 1e-13)


def wrap(v, bits=64):
    v %= 1 << bits
    return v - (1 << bits) if v >> (bits - 1) else v


def integer_row(x, y):
    ux, uy = x % 2**64, y % 2**64
    x32, y32 = ux % 2**32, uy % 2**32
    sx, sy = wrap(x32, 32), wrap(y32, 32)
    q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    pair = (y32 << 32 | x32).to_bytes(8, "little")
    permuted = sum(pair[(0x3715 >> 4 * i) & 7] << 8 * i for i in range(4))
    funnel = (((y32 << 32 | x32) << 7) >> 32) % 2**32
    dot = sum(wrap(x32 >> 8 * i, 8) * wrap(y32 >> 8 * i, 8) for i in range(4)) + 3
    sad = (abs(sx - sy) + 5) % 2**32
    last = max(x, y) - min(sx, sy) + sad + dot + (x32 * y32 >> 32) + (abs(x) if x > y else abs(y))
    return [wrap(v) for v in (q, x - y * q, ux // uy, (x * y) >> 64, bin(ux).count("1"), 64 - ux.bit_length(), (ux & -ux).bit_length(),
                              int(f"{ux:064b}"[::-1], 2), x << (y & 63), x >> (y & 63), permuted + funnel, last)]  # fmt: skip


def test_integer_functions(launch):
    a, b = rng().integers(-(2**63), 2**63 - 1, 128), rng().integers(-(2**63), 2**63 - 1, 128)[::-1].copy()
    b[:40] = rng().integers(-9, 9, 40) | 1
    a[:5] = [5, -5, 2**62, -(2**63), 7]
    o = np.zeros((128, 12), np.int64)
    launch("ints", (2,), (64,), [a, b, o])
    assert o.tolist() == [integer_row(x, y) for x, y in zip(a.tolist(), b.tolist())]


def test_half_pairs(launch):
    a, b = (rng().standard_normal((2, 64, 2))).astype(np.float16)
    o = np.zeros((64, 8, 2), np.float16)
    launch("halfs", (1,), (64,), [a, b, o])
    A, B = a.astype(float), b.astype(float)
    want = [A + B, A * B, A * B + A, A / B, np.exp2(A), np.maximum(A, B), np.sqrt(abs(A)), (A > B) * 1.0]
    close(o, np.stack(want, 1).astype(np.float16), 1e-3)


def test_bfloat_pairs(launch):
    a, b = rng().standard_normal((2, 64, 2)).astype(ml_dtypes.bfloat16)
    o = np.zeros((64, 6, 2), ml_dtypes.bfloat16)
    launch("bfs", (1,), (64,), [a, b, o])
    A, B = a.astype(float), b.astype(float)
    want = np.stack([A + B, A * B, A * B + A, np.maximum(A, B), -A, np.stack([A[:, 0] * 3.1, B[:, 1] / 7], 1)], 1)
    close(o, want.astype(ml_dtypes.bfloat16), 1e-2)


def test_float8(launch):
    a = np.concatenate([rng().standard_normal(60) * 100, [1e6, -1e6, np.nan, 0]]).astype(np.float32)
    o, f = np.zeros((64, 2), np.uint8), np.zeros((64, 2), np.float32)
    launch("fp8s", (1,), (64,), [a, o, f])
    want = [
        np.clip(a, -top, top).astype(t).astype(np.float32)
        for t, top in ((ml_dtypes.float8_e4m3fn, 448), (ml_dtypes.float8_e5m2, 57344))
    ]
    close(f, np.stack(want, 1))


def test_wmma_interface(launch):
    a, b = rng().integers(-3, 4, (2, 16, 64)).astype(np.float16)
    c = np.zeros((16, 16), np.float32)
    launch("wmma16", (1,), (32,), [a, b, c, np.int32(64)])
    close(c, 2 * (a.astype(float) @ b.astype(float).T))


def test_asynchronous_pipeline(launch):
    a = rng().standard_normal((5, 64, 4)).astype(np.float32)
    o = np.zeros_like(a)
    launch("pipe", (1,), (64,), [a, o, np.int32(5)], shared=2 * 64 * 16)
    want = a[:, np.arange(64) ^ 1].copy()
    want[..., 0] += 1
    close(o, want)


def test_calls(launch):
    a, o, f = (
        rng().integers(0, 100, 64).astype(np.int32),
        np.zeros(64, np.int32),
        rng().standard_normal((64, 4)).astype(np.float32),
    )
    want = f.copy()
    want[:, 0] += a & 3
    want[:, 1] *= a & 3
    launch("calls", (1,), (64,), [a, o, f])
    fib = [0, 1]
    while len(fib) < 20:
        fib.append(fib[-1] + fib[-2])
    close(o, [fib[x & 15] + (fib[x & 7] if x > 3 else 0) for x in a])
    close(f, want, 1e-6)


def test_switch(launch):
    a, o = rng().integers(-1000, 1000, 128).astype(np.int32), np.zeros(128, np.int32)
    launch("sw", (1,), (128,), [a, o])

    def f(x):
        return {0: x * 3, 1: x + 7, 2: x ^ 99, 3: -x, 4: int(x / 3), 5: int(math.fmod(x, 5)), 6: x << 2, 7: x >> 3}.get(
            x & 15, 17
        )

    assert o.tolist() == [f(x) for x in a.tolist()]


def test_local_arrays(launch):
    a = rng().integers(-1000, 1000, (64, 16)).astype(np.int32)
    o = np.zeros_like(a)
    launch("locals", (2,), (32,), [a, o])
    close(o, np.sort(a, 1))


def test_struct_by_value(launch):
    b, o = [1.5, 2.5, 3.5, 4.5, 5.5], np.zeros(64, np.float32)
    launch("structs", (2,), (32,), [struct.pack("<i5fdh6x", 7, *b, 0.25, -3), o, np.int32(8)])
    close(o, [7 + b[3] + 0.25 - 3 + b[i % 32 % 5] for i in range(64)], 1e-6)


def test_compare_and_swap_loop(launch):
    a, o = np.abs(rng().standard_normal(500)).astype(np.float32), np.zeros(1, np.float32)
    launch("casmax", (2,), (256,), [a, o, np.int32(500)])
    close(o, [a.max()])


def test_tiles_of_a_warp(launch):
    a, o = rng().integers(0, 100, 128).astype(np.int32), np.zeros(8, np.int32)
    launch("cgred", (2,), (64,), [a, o])
    close(o, a.reshape(8, 16).sum(1))


def test_block_scan(launch):
    a, o = rng().integers(0, 100, 256).astype(np.int32), np.zeros(256, np.int32)
    launch("scanb", (1,), (256,), [a, o, np.int32(256)])
    close(o, a.cumsum())


def test_constant_and_global_variables(launch):
    o = np.zeros(64, np.float32)
    launch("consts", (1,), (64,), [o])
    close(o, [2 ** (i & 7) + 5 for i in range(64)])


def test_assert_and_printf(launch):
    a, o = rng().integers(0, 100, 64).astype(np.int32), np.zeros(64, np.int32)
    a[5] = 12345
    launch("asserts", (1,), (64,), [a, o])
    close(o, a + 1)
    a[7] = -1
    launch("asserts", (1,), (64,), [a, o], findings=["assertion"])


def test_divergent_loop(launch):
    a, o = rng().integers(0, 5000, 256).astype(np.int32), np.zeros(256, np.int32)
    launch("divloop", (2,), (128,), [a, o])

    def f(x):
        s = 0
        for k in range(x & 1023):
            if k % 3 == 0:
                continue
            if k * k > (x & 1023) * 7:
                break
            s += k
            if s & 7 == 5:
                s ^= x & 1023
        return s

    assert o.tolist() == [f(x) for x in a.tolist()]


def test_exchange_within_a_warp(launch):
    o = np.zeros(64, np.int32)
    launch("volat", (1,), (64,), [o])
    close(o, [(i ^ 1) + (2**32 - 1) % 7 for i in range(64)])


def test_small_vectors(launch):
    a, b = rng().integers(-100, 100, (64, 4)).astype(np.int8), rng().integers(-10, 10, (64, 2)).astype(np.int16)
    o, q = np.zeros_like(a), np.zeros(64, np.uint64)
    launch("vecs", (1,), (64,), [a, b, o, q])
    want = a.copy()
    want[:, 0] += b[:, 0].astype(np.int8)
    want[:, 3] -= b[:, 1].astype(np.int8)
    close(o, want)
    assert (q >= 1).all()


def test_integer_matrix_instruction(launch):
    """The fragments of m16n8k32 written out by hand, as a C programmer would from the manual."""
    a, b = rng().integers(-128, 128, (16, 32)).astype(np.int8), rng().integers(0, 256, (8, 32)).astype(np.uint8)
    lanes_a, lanes_b, c = np.zeros((32, 4, 4), np.int8), np.zeros((32, 2, 4), np.uint8), np.zeros((32, 4), np.int32)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for r in range(4):
            lanes_a[lane, r] = a[g + 8 * (r & 1), 16 * (r >> 1) + 4 * t :][:4]
        for r in range(2):
            lanes_b[lane, r] = b[g, 16 * r + 4 * t :][:4]
    launch("i8mm", (1,), (32,), [lanes_a, lanes_b, c])
    want = a.astype(int) @ b.astype(int).T
    for lane in range(32):
        g, t = lane // 4, lane % 4
        assert c[lane].tolist() == [want[g, 2 * t], want[g, 2 * t + 1], want[g + 8, 2 * t], want[g + 8, 2 * t + 1] + 1]
