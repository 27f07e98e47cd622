"""Every row of `ir/dataflow/ops.py` on every chip: text with all checks on against the evaluator. A few kernels hold
all rows.

What each operation does at its edges is tested beside its lowering (`test_op_*`); here none may be missing on a chip.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import products
import pytest
from agree import agree, near
from wavedsl.ir.dataflow.ops import ROWS

import wavedsl as wd

M, N, K, P, Q, S, T = wd.symbols("M N K P Q S T")
TARGETS = (*products.TARGETS, "sm_90a")
WHOLE = np.random.default_rng(0)


def floats() -> tuple[Any, list[Any]]:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(
        x: wd.Memory[M, N, wd.f32], c: wd.Scalar[wd.f32], y: wd.Memory[M, N, wd.f32], z: wd.Memory[M, N, wd.f32],
        w: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        v = wd.read(x)
        truth = wd.isnan(v) | wd.isinf(v / (v - v)) & ~wd.isfinite(v - c)
        wd.write(wd.where(truth, v, v + 1), w)
        y1 = wd.expm1(v) + wd.log1p(v) + wd.log10(v)
        y1 = y1 + wd.exp(v)
        y1 = y1 + wd.atan(v) + wd.atan2(v, c) + wd.asin(v * 0.25) + wd.acos(v * 0.25)
        y1 = y1 + wd.exp2(v) + wd.log(v) + wd.log2(v) + wd.sqrt(v) + wd.rsqrt(v) + wd.reciprocal(v) + wd.tanh(v)
        wd.write(y1 + wd.erf(v) + wd.sigmoid(v) + wd.sin(v) + wd.cos(v) + v**1.5 + v / c + wd.pow(c, v), y)
        z1 = wd.floor(v * c) + wd.ceil(v * c) + wd.round(v * c) + wd.clamp(v, 0.5, 1.0) + wd.fma(v, v, c) + abs(-v)
        z1 = z1 + wd.trunc(v * c)
        wd.write(z1 + wd.minimum(v, 1.0) - wd.maximum(v, 1.5) + v // 0.5 + v % 0.75, z)

    x = ((np.arange(5 * 40).reshape(5, 40) % 15 + 1) / 8 + 1 / 16).astype(np.float32)
    return kernel, [x, np.float32(3), *(np.zeros_like(x) for _ in range(3))]


def integers() -> tuple[Any, list[Any]]:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(x: wd.Memory[M, N, wd.i32], c: wd.Scalar[wd.i32], y: wd.Memory[M, N, wd.i32]):
        v, column = wd.read(x), wd.index(N)
        bits = ((v & 12) | 3) ^ (~v) ^ (v << 3) ^ (v >> 1) ^ (v * column - c)
        for place, true in enumerate((v < c, v <= c, v > c, v >= c, v == c, v != c)):
            bits = bits + wd.where(true, wd.Register[wd.i32](1 << place), 0)
        counts = wd.popcount(v) + wd.clz(v) * 33 + wd.ctz(v) * 999 + wd.bit_reverse(v) + wd.rotate_left(v, c)
        more = wd.mulhi(v * 99999999, v) + wd.saturating_add(v << 25, v << 24) + wd.saturating_sub(v << 25, c << 29)
        bits = bits + counts + more + wd.permute_bytes(v, c, 0x0412)
        cast = wd.cast(wd.cast(v, wd.f32) * 0.37, wd.i32)
        wd.write(bits + v // 7 + v % 5 + cast + wd.bitcast(wd.cast(v, wd.f32), wd.i32) + (N - M), y)

    x = WHOLE.integers(-100, 100, (5, 40)).astype(np.int32)
    return kernel, [x, np.int32(3), np.zeros_like(x)]


def rows() -> tuple[Any, list[Any]]:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)], subs={P: 4, Q: 8, K: 3, S: 8, T: 4})
    def kernel(
        x: wd.Memory[M, N, wd.f32], scales: wd.Memory[M, N / 8, wd.f32], one: wd.Memory[M, wd.f32],
        same: wd.Memory[M, N, wd.f32], top: wd.Memory[M, K, wd.f32], turned: wd.Memory[M, S, T, wd.f32],
    ):  # fmt: skip
        v = wd.read(x)
        truth = wd.any(v > 8, dim=N) & ~wd.all(v > -8, dim=N)
        of_row = (
            wd.sum(v, dim=N) + wd.max(v, dim=N) - wd.min(v, dim=N) + wd.where(truth, wd.Register[wd.f32](0.5), 0.25)
        )
        of_row = of_row + wd.reduce(v, lambda a, b: wd.maximum(a, b), -99.0, dim=N) + wd.extract(v, {N: 5})
        wd.write(of_row + wd.cast(wd.argmax(v, dim=N) * 64 + wd.argmin(v, dim=N), wd.f32), one)
        moved = wd.shuffle(v, (wd.index(N) + 3) % 32, dim=N) + wd.repeat_interleave(wd.read(scales), N)
        running = wd.cumsum(v, dim=N) + wd.scan(v, lambda a, b: wd.maximum(a, b), -99.0, dim=N)
        wd.write(wd.sort(v, dim=N) + moved + running + wd.broadcast(of_row, M, N), same)
        largest, where = wd.topk(v, K, dim=N)
        wd.write(largest + wd.cast(where, wd.f32), top)
        wd.write(wd.reshape(wd.permute(wd.reshape(v, M, P, Q), M, Q, P), M, S, T), turned)

    x = WHOLE.integers(-9, 10, (5, 32)).astype(np.float32)
    scales = WHOLE.integers(-9, 10, (5, 4)).astype(np.float32)
    return kernel, [x, scales, *(np.zeros(shape, np.float32) for shape in ((5,), (5, 32), (5, 3), (5, 8, 4)))]


def memory() -> tuple[Any, list[Any]]:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 8)])
    def kernel(
        x: wd.Memory[M, N, wd.i32], w: wd.Memory[K, wd.i32], a: wd.Memory[N, wd.i32], b: wd.Memory[N, wd.i32],
        c: wd.Memory[N, wd.i32], y: wd.Memory[M, N, wd.i32], r: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        row = wd.index(M)
        v = wd.read(x)
        wd.atomic_add(v, a)
        wd.atomic_min(v, b)
        wd.atomic_max(v, c)
        wd.device_assert(v < 100, "small")
        wd.write(wd.random(7, M, N), r)

        @wd.iterate(K, init_args=[wd.Register[wd.i32](0), wd.Register[wd.i32](0)], start=row, stop=row + 20)
        def loop(total, trips):
            ends = wd.tile_start(K) + wd.tile_stop(K)
            return total + wd.sum(wd.read(w), dim=K) + ends, trips + 1

        total, trips = loop
        halved, _ = wd.while_loop(lambda n, k: n > 3, lambda n, k: (n // 2, k + 1), [total, trips])
        wd.exit_if(row == 2)
        more = wd.cond(row > 0, lambda: halved + 1, lambda: halved)
        wd.write(v + more + trips, y)

    x = WHOLE.integers(-9, 10, (4, 70)).astype(np.int32)
    others = [WHOLE.integers(-9, 10, 70).astype(np.int32) for _ in range(3)]
    arguments = [x, np.arange(30, dtype=np.int32), *others, np.zeros_like(x), np.zeros((4, 70), np.float32)]
    return kernel, arguments


def exchanges() -> tuple[Any, list[Any]]:
    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(
        x: wd.Memory[N, wd.i32], a: wd.Memory[N, wd.i32], old: wd.Memory[N, wd.i32], older: wd.Memory[N, wd.i32]
    ):
        v = wd.read(x)
        for change in (wd.atomic_and, wd.atomic_or, wd.atomic_xor):
            change(v, a)
            wd.fence()
        wd.write(wd.atomic_xchg(v, a), old)
        wd.fence()
        wd.write(wd.atomic_cas(v, v + 1, a), older)
        wd.device_print("first", wd.extract(v, {N: 0}))

    x, a = (WHOLE.integers(-9, 10, 50).astype(np.int32) for _ in range(2))
    return kernel, [x, a, np.zeros_like(x), np.zeros_like(x)]


def scaled() -> tuple[Any, list[Any]]:
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 64)])
    def kernel(
        a: wd.Memory[M, K, wd.f4e2m1], a_scale: wd.Memory[M, K / 32, wd.f8e8m0], b: wd.Memory[N, K, wd.f4e2m1],
        b_scale: wd.Memory[N, K / 32, wd.f8e8m0], c: wd.Memory[M, N, wd.f32], d: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)] * 2)
        def loop(acc, plain):
            x, y = wd.read(a), wd.read(b)
            acc = wd.scaled_mma(x, wd.read(a_scale), y, wd.read(b_scale), acc)
            return acc, wd.mma(wd.cast(x, wd.f16), wd.cast(y, wd.f16), plain)

        wd.write(loop[0], c)
        wd.write(loop[1], d)

    a, b = (WHOLE.integers(0, 256, (rows, 64)).astype(np.uint8) for rows in (64, 32))
    scales = [WHOLE.integers(126, 129, (rows, 4)).astype(np.uint8).view(wd.f8e8m0.storage) for rows in (64, 32)]
    return kernel, [a, scales[0], b, scales[1], *(np.zeros((64, 32), np.float32) for _ in range(2))]


KERNELS = {made.__name__: made for made in (floats, integers, rows, memory, exchanges, scaled)}


@pytest.mark.parametrize(
    "target", ["sm_90a", *(pytest.param(t, marks=pytest.mark.slow) for t in TARGETS if t != "sm_90a")]
)
@pytest.mark.parametrize("name", KERNELS)
def test_every_chip(name: str, target: str) -> None:
    kernel, arguments = KERNELS[name]()
    agree(kernel, arguments, target, compare=near(64, 1e-5) if name == "floats" else near())


ELSEWHERE = {"join_parts"}
"""Of clusters on sm_90a alone: `test_joined_parts`."""


def test_no_row_is_missing() -> None:
    found = set()
    for made in KERNELS.values():
        kernel, arguments = made()
        graph = kernel.compile(*arguments, target="sm_80").graph
        found |= {node.op for node in graph.all_nodes()}
    assert found == set(ROWS) - ELSEWHERE
