"""Tiles that products contract along their slow dimension, on chips whose reads of shared memory do not transpose:
lanes hold neighbours of the other one, in instructions side by side, and read them together."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import example_files
import numpy as np
import products
import pytest
from products import TILE, K, M, N
from wavedsl.ir import attempts
from wavedsl.ir.inference.side_rows import side_rows

import wavedsl as wd

backward = example_files.load("attention_backward")
retention = example_files.load("retention")
Variant = backward.Variant
CHIPS = ("gfx90a", "gfx942")
MOVES = re.compile(r"^\s+(ds_(?:read|write)\w+|v_perm_b32)", re.M)


def moves(compiled: Any) -> Counter[str]:
    return Counter(MOVES.findall(compiled.asm))


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """Takes neighbours wherever there may be some, whatever they cost; what was taken."""
    taken: list[dict[str, int]] = []

    def always(self: Any, plan: Any, kernel: Any) -> Any:
        rows = attempts.contiguous_rows(plan.graph, self.arrays, moved=True)
        found = side_rows(plan.inference.mmas, plan.partition, plan.target, rows)
        if found:
            taken.append(found)
            plan = attempts.with_side_rows(plan, found)
            kernel = self.by(plan)
        return plan, kernel

    monkeypatch.setattr(attempts.Attempts, "side_by_side", always)
    return taken


def chunked(dtype: Any, time: int, d: int, e: int) -> list[np.ndarray]:
    rows = (1, 1, time)
    halves = [retention.common.data((*rows, n), dtype, i) for i, n in enumerate((d, d, e))]
    return [*halves, np.log2(np.full(1, 0.97)).astype(np.float32), np.zeros((*rows, e), dtype.storage)]


def retained(q: Any, k: Any, v: Any, rate: Any) -> tuple[np.ndarray, np.ndarray]:
    """What `chunked` becomes, and the sum of its terms' sizes."""
    time = np.arange(q.shape[2])
    apart = time[:, None] - time
    fade = np.where(apart >= 0, 2.0 ** (rate[:, None, None].astype(np.float64) * np.maximum(apart, 0)), 0.0)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    at = "bhtd,bhsd->bhts"
    return np.einsum(at, q, k) * fade @ v, np.einsum(at, abs(q), abs(k)) * fade @ abs(v)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", [wd.bf16, wd.f16], ids=str)
def test_keys_of_a_state_are_read_two_at_a_time(target: str, dtype: Any) -> None:
    """Retention: one tile of keys for scores, along its rows, and for the state, along its columns. Two instructions
    share a wave's 64 rows of the state out, so that it is the next product's operand as it lies: no lane asks another
    for it."""
    kernel = retention.retention_kernel(dtype, columns=64, rows=(128, 2))
    q, k, v, rate, o = given = chunked(dtype, 130, 128, 128)
    compiled = kernel.compile(*given, target=target)
    found = moves(compiled)
    assert not any("u16" in name for name in found)
    assert found["ds_read_b32"] == 32  # of two trips; 64 single elements
    assert len(re.findall(r"ds_bpermute", compiled.asm)) == 16  # of two trips and a decay: 32 with the state's
    compiled.emulate(*given)
    want, size = retained(q, k, v, rate)
    np.testing.assert_array_less(abs(o - want), retention.common.bound(want, dtype, 1.01, 3 * size))


def keys(target: str, d: int) -> Any:
    """The kernel of dK and dV, compiled for a grid that fills the chip."""
    variant, tiles = Variant(wd.bf16), backward.tile_of(target, d)
    kernel = backward.keys_kernel(variant, tile=(tiles.step, tiles.rows), waves=tiles.waves)
    B, H, G, D, E = (backward.B, backward.H, backward.G, backward.D, backward.E)
    sizes = {B: 64, H: 16, G: 16, backward.M: 1024, backward.N: 1024, D: d, E: d}
    return kernel.compile(target=target, subs=sizes)


@pytest.mark.parametrize("target", CHIPS)
def test_tiles_of_gradients_are_copied_once(target: str) -> None:
    """Q and dO, each contracted along both dimensions: a copy that was stored element by element leaves its room to
    other workgroups, and four neighbours are read at a time."""
    compiled = keys(target, 128)
    found = moves(compiled)
    assert not any("b16" in name or "u16" in name for name in found)
    fours = sum(n * (2 if "read2" in name else 1) for name, n in found.items() if name.endswith("b64"))
    assert fours == 32
    assert compiled.shared_bytes < 20000  # 33024 with two copies


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("d", [64, 256])
def test_where_others_compute_meanwhile_nothing_is_joined(target: str, d: int) -> None:
    """A SIMD has several waves, or registers for one alone: vector instructions of each would cost more than they
    save."""
    assert "ds_write_b16" in moves(keys(target, d))


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", [wd.bf16, wd.f16], ids=str)
@pytest.mark.parametrize(("m", "n", "d", "e"), [(70, 90, 128, 128), (33, 64, 64, 128), (64, 50, 96, 40)], ids=str)
def test_gradients(
    target: str, dtype: Any, m: int, n: int, d: int, e: int, beside: list[dict[str, int]]
) -> None:  # fmt: skip
    variant = Variant(dtype, causal=True)
    given = backward.arguments_of(variant, {"b": 1, "h": 1, "m": m, "n": n, "d": d, "e": e}, m, "")
    for kernel in backward.kernels(variant, backward.tile_for(variant, target, d, e), "", True):
        mine = {p.name: given[p.name] for p in kernel.parameters}
        kernel.compile(**mine, target=target).emulate(**mine)
    assert backward.check(variant, given, "") == 0
    assert beside


@pytest.mark.parametrize(
    ("kind", "tiles", "sizes"),
    [
        (products.F16, (64, 128, 32, 32, 128), (64, 256, 64)),
        (products.BF16, (128, 64, 32, 64, 64), (130, 66, 100)),
        (products.F16_OUT, (64, 128, 64, 32, 64), (33, 131, 77)),
        (products.F16, (32, 64, 64, 16, 64), (31, 3, 65)),
    ],
    ids=str,
)  # fmt: skip
def test_products(kind: products.Kind, tiles: Any, sizes: Any, beside: list[dict[str, int]]) -> None:
    """B as [K, N] on a chip without column pairs, whole tiles and ragged ones."""
    a, b, c = products.operands(kind, *sizes, b_order="KN")
    kernel = products.gemm(kind, b_order="KN", spaces=(None, None))
    compiled = kernel.compile(a, b, c, target="gfx90a", subs=dict(zip(TILE, tiles)))
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, kind, b_order="KN")[0], kind)
    assert beside


def test_both_operands_lie_so(beside: list[dict[str, int]]) -> None:
    """xᵀ y without column pairs: neighbours along M and along N; whatever the result meets has them too."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 32),
            wd.WaveConstraint(M, 64), wd.WaveConstraint(N, 64),
        ]
    )  # fmt: skip
    def gradient(
        x: wd.Memory[K, M, wd.bf16], y: wd.Memory[K, N, wd.bf16], bias: wd.Memory[N, wd.f32],
        c: wd.Memory[M, N, wd.bf16],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc: wd.Register[M, N, wd.f32]):
            halves = wd.permute(wd.read(x), [M, K]) * 2
            return wd.mma(halves, wd.read(y), acc)

        sums = loop + wd.broadcast(wd.read(bias), [M, N])
        wd.write(wd.cast(sums, wd.bf16), c)

    rng = np.random.default_rng(0)
    x, y = (rng.integers(-2, 3, shape).astype(wd.bf16.storage) for shape in ((70, 150), (70, 131)))
    bias, c = rng.integers(-9, 9, 131).astype(np.float32), np.zeros((150, 131), wd.bf16.storage)
    gradient.compile(x, y, bias, c, target="gfx90a").emulate(x, y, bias, c)
    want = 2 * x.T.astype(np.float32) @ y.astype(np.float32) + bias
    np.testing.assert_array_equal(c, want.astype(wd.bf16.storage))
    assert beside


def test_a_product_of_a_loop_s_result(beside: list[dict[str, int]]) -> None:
    """An operand that is no tile but what a loop has made."""
    (L,) = wd.symbols("L")

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.WaveConstraint(M, 16), wd.TilingConstraint(K, 32)], subs={N: 32, L: 64}
    )
    def chain(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[K, N, wd.f16], v: wd.Memory[N, L, wd.f16], c: wd.Memory[M, L, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.mma(wd.cast(loop, wd.f16), wd.read(v), wd.Register[M, L, wd.f32](0)), c)

    rng = np.random.default_rng(5)
    a, b, v = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((40, 64), (64, 32), (32, 64)))
    c = np.zeros((40, 64), np.float32)
    chain.compile(a, b, v, c, target="gfx90a").emulate(a, b, v, c)
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)) @ v.astype(np.float32))
    assert beside


def test_reads_that_transpose_need_none() -> None:
    assert not any("b32" in name for name in moves(keys("gfx950", 128)) if "read" in name)
