"""Strategies for memory-bound products, emulated against NumPy: odd sizes, alpha and beta, both layouts of B, every
dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import products
import pytest
from source import assert_points_at

import wavedsl as wd
from wavedsl.analysis.roofline import product_named
from wavedsl.analysis.strategy import GemmShape, TileChoice, choose_tiles
from wavedsl.strategies import GEMM_STRATEGIES, matmul, plan_gemm, tune_gemm
from wavedsl.strategies.chosen import Choice
from wavedsl.strategies.kernels import Form, tiled
from wavedsl.strategies.warpgroups import span, suits_shallow

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
SIZES = {
    "shallow_k": (70, 50, 21),
    "cache_persistent": (70, 50, 75),
    "wave_parallel": (20, 37, 300),
    "gemv": (3, 70, 140),
    "skinny": (10, 150, 200),
    "split_k": (40, 50, 333),
    "stream_k": (150, 70, 200),
}
FP8 = {"gfx942": wd.f8e4m3fnuz, "gfx950": wd.f8e4m3, "sm_90a": wd.f8e4m3}


def data(dtype: wd.DType, m: int, n: int, k: int, b_rows: bool, whole: bool = True):
    """a, b, c: whole numbers whose sums are exact, or normal numbers."""
    random = np.random.default_rng(m * n + k)
    out = dtype if dtype.bits > 8 else wd.f32

    def array(shape: tuple[int, int], of: wd.DType) -> np.ndarray:
        values = random.integers(-3, 4, shape) if whole else random.standard_normal(shape)
        return np.asarray(values, np.float64).astype(of.storage)

    return array((m, k), dtype), array((n, k) if b_rows else (k, n), dtype), array((m, n), out)


def exact(a, b, c, alpha: float, beta: float, b_rows: bool) -> np.ndarray:
    wide = [x.astype(np.float64) for x in (a, b, c)]
    product = wide[0] @ (wide[1].T if b_rows else wide[1])
    return alpha * product + (beta * wide[2] if beta else 0.0)


def check(monkeypatch, target: str, dtype: wd.DType, strategy: str, b_rows: bool, beta: float = -0.5) -> None:
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    a, b, c = data(dtype, *SIZES[strategy], b_rows)
    want = exact(a, b, c, 1.5, beta, b_rows).astype(c.dtype)
    if not beta:
        c[...] = np.nan
    plan = matmul(a, b, c, alpha=1.5, beta=beta, transpose_b=b_rows, strategy=strategy)
    assert plan.strategy == strategy
    np.testing.assert_array_equal(c.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("strategy", SIZES)
def test_f16(monkeypatch, strategy):
    target = "sm_80" if strategy in ("gemv", "cache_persistent") else "gfx942"
    check(monkeypatch, target, wd.f16, strategy, b_rows=strategy in ("gemv", "split_k", "skinny"))


DTYPES = {t: [wd.f64, wd.f32, wd.f16, wd.bf16, *([FP8[t]] if t in FP8 else [])] for t in TARGETS}


def every_case() -> list[Any]:
    """Every strategy, dtype and target; of them CI runs as many as have all pairs of the three (see `covering`)."""
    return [
        pytest.param(target, dtype, strategy, bool((j + k // 2) % 2), marks=pytest.mark.slow)
        for target, dtypes in DTYPES.items()
        for j, dtype in enumerate(dtypes)
        for k, strategy in enumerate(SIZES)
    ]


@pytest.mark.parametrize(("target", "dtype", "strategy", "b_rows"), every_case(), ids=str)
def test_every_dtype_and_target(monkeypatch, target, dtype, strategy, b_rows):
    check(monkeypatch, target, dtype, strategy, b_rows=b_rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "beta", "tile"),
    [("gfx942", 0.0, (256, 256)), ("gfx950", 0.5, (256, 128)), ("sm_80", 0.5, (128, 256)), ("sm_90a", 0.5, (128, 256))],
)
def test_tiles_that_matrix_units_bound(monkeypatch, target, beta, tile):
    """Where they keep all units busy; small ones otherwise, whose waves share K."""
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    a, b, c = data(wd.bf16, 500, 510, 200, True)
    want = exact(a, b, c, 1.5, beta, True).astype(c.dtype)
    few = replace(product_named(None, target), units=2)
    plan = plan_gemm(a, b, c, alpha=1.5, beta=beta, transpose_b=True, strategy="wave_parallel", product=few)
    assert (plan.tiles.tile_m, plan.tiles.tile_n) == tile
    (launch,) = plan.launches
    assert not launch.kernel.compile(*launch.arguments, target=target).resources.spills
    launch.kernel(*launch.arguments)
    np.testing.assert_array_equal(c.astype(np.float64), want.astype(np.float64))
    many = plan_gemm(a, b, c, transpose_b=True, strategy="wave_parallel")
    assert (many.tiles.tile_m, many.tiles.tile_n) == (32, 32)


@pytest.mark.parametrize(
    ("target", "dtype", "b_rows", "tile", "waves"),
    [
        ("gfx942", FP8["gfx942"], False, (16, 128, 128), (1, 4)),
        pytest.param("gfx942", FP8["gfx942"], False, (16, 128, 128), (1, 2), marks=pytest.mark.slow),
        pytest.param("gfx942", wd.bf16, False, (16, 128, 64), (1, 2), marks=pytest.mark.slow),
        pytest.param("gfx942", wd.bf16, True, (16, 32, 128), (1, 2), marks=pytest.mark.slow),
        pytest.param("gfx950", wd.bf16, True, (32, 128, 64), (2, 2), marks=pytest.mark.slow),
        pytest.param("gfx950", wd.bf16, False, (16, 128, 64), (1, 4), marks=pytest.mark.slow),
        pytest.param("gfx950", FP8["gfx950"], True, (64, 128, 128), (2, 2), marks=pytest.mark.slow),
        pytest.param("gfx950", FP8["gfx950"], False, (16, 64, 128), (1, 4), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_short_trips_whose_loads_start_behind_their_stores(monkeypatch, oracle, target, dtype, b_rows, tile, waves):
    """Of five trips and a part of one; a load that overtook the store of what it replaces would show."""
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    a, b, c = data(dtype, 5, 200, 5 * tile[2] + 24, b_rows)
    want = exact(a, b, c, 1.5, 0.5, b_rows).astype(c.dtype)
    choice = Choice("cache_persistent", TileChoice(*tile, 2, *waves, 128 // dtype.bits, 0))
    (launch,) = plan_gemm(a, b, c, alpha=1.5, beta=0.5, transpose_b=b_rows, choice=choice).launches
    products.assemble(launch.kernel.compile(*launch.arguments, target=target), oracle)
    meant = [x.copy() if isinstance(x, np.ndarray) else x for x in launch.arguments]
    launch.kernel.evaluate(*meant)
    launch.kernel(*launch.arguments)
    np.testing.assert_array_equal(c.astype(np.float64), want.astype(np.float64))
    (evaluated,) = (x for x, y in zip(meant, launch.arguments) if y is c)
    np.testing.assert_array_equal(evaluated, c)


@pytest.mark.parametrize("strategy", ["shallow_k", "wave_parallel"])
def test_without_beta_c_is_not_read(monkeypatch, strategy):
    check(monkeypatch, "gfx942", wd.f32, strategy, True, beta=0.0)


def every_run() -> list[Any]:
    """Every strategy, dtype and target; sums of f16 and bf16 go to f32, where a bit more shows. CI runs a few."""
    daily = [("sm_80", wd.f16, "wave_parallel"), ("sm_80", wd.f16, "split_k"), ("gfx942", wd.f32, "gemv")]
    slow = [("gfx942", wd.f16, s) for s in SIZES] + [("sm_80", wd.f16, "stream_k"), ("sm_90a", wd.bf16, "skinny")]
    found = []
    for case in ((t, d, s) for t, dtypes in DTYPES.items() for d in dtypes for s in SIZES):
        marks = [] if case in daily else [pytest.mark.slow] + ([] if case in slow else [pytest.mark.exhaustive])
        found.append(pytest.param(*case, marks=marks))
    return found


@pytest.mark.parametrize(("target", "dtype", "strategy"), every_run(), ids=str)
def test_two_runs_agree_bit_for_bit(monkeypatch, target, dtype, strategy):
    """The emulator runs workgroups and waves in another order each time; sums would show it."""
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    m, n, k = SIZES[strategy]
    a, b, c = data(dtype, m, n, k, True, whole=False)
    wide = np.float64 if dtype is wd.f64 else np.float32
    runs = []
    for seed in ("1", "2"):
        monkeypatch.setenv("WAVEDSL_SEED", seed)
        out = c.astype(wide)
        matmul(a, b, out, alpha=0.3, beta=0.7, transpose_b=True, strategy=strategy)
        runs.append(out)
    assert runs[0].tobytes() == runs[1].tobytes()
    want = exact(a, b, c.astype(wide), 0.3, 0.7, True)
    np.testing.assert_allclose(runs[0], want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("m", "n", "k", "strategy"),
    [
        (40, 36, 8, "shallow_k"),
        (24, 24, 64, "cache_persistent"),
        (1, 100, 200, "gemv"),
        (2, 100, 200, "skinny"),
        (16, 100, 200, "skinny"),
    ],
)
def test_auto_follows_the_roofline(monkeypatch, m, n, k, strategy):
    """But where an estimate says more: two rows take 3299 clocks by the text for 5140 of multiply-adds."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    a, b, c = data(wd.f16, m, n, k, False)
    want = exact(a, b, c, 1.0, 0.0, False).astype(np.float16)
    plan = matmul(a, b, c)
    assert plan.strategy == strategy and plan.why
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize(("k", "slots"), [(16, 16), pytest.param(40, 8, marks=pytest.mark.slow)])
def test_a_ring_runs_on_into_the_next_tiles(k: int, slots: int, oracle) -> None:
    """One trip per tile, several tiles per workgroup: `auto` takes warpgroups on large grids, and the copying one is as
    many tiles ahead as a copy takes: of 4 KiB more than of 12."""
    a, b, c = data(wd.f16, 512, 2176, k, True)
    want = exact(a, b, c, 1.0, 0.0, True).astype(np.float16)
    form = Form(wd.f16, wd.f16, True)
    kernel = tiled(form, (64, 64, span(form, (512, 2176, k)) // 2), (1, 1, 1), 0)
    compiled = kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a")
    compiled.emulate(a, b, c, 1.0, 0.0)
    np.testing.assert_array_equal(c, want)
    assert compiled.kernel_ir.notes["lowering"].strategy.stages == slots
    products.assemble(compiled, oracle)


@pytest.mark.parametrize(
    ("size", "strategy", "tile"),
    [
        ((8192, 8192, 64), "cache_persistent", (128, 256, 64)),
        ((8192, 8192, 40), "cache_persistent", (128, 256, 64)),
        ((8192, 8192, 20), "shallow_k", None),  # rows of 40 bytes do not come by bulk copies
        ((512, 512, 32), "cache_persistent", None),  # every tile has a unit of its own
    ],
)
def test_auto_takes_warpgroups_for_a_short_k_on_large_grids(size, strategy: str, tile: Any) -> None:
    m, n, k = size
    a, b, c = (np.empty(s, np.float16) for s in ((m, k), (n, k), (m, n)))
    plan = plan_gemm(a, b, c, transpose_b=True, product="H200")
    tiles = plan.tiles
    assert plan.strategy == strategy
    assert (
        tile == (tiles.tile_m, tiles.tile_n, tiles.tile_k)
        if tile
        else not suits_shallow(Form(wd.f16, wd.f16, True), size, product_named("H200"))
    )


def test_thin_columns_swap_the_operands(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    for b_rows in (False, True):
        a, b, c = data(wd.f32, 70, 2, 90, b_rows)
        want = exact(a, b, c, 2.0, 1.0, b_rows).astype(np.float32)
        matmul(a, b, c, alpha=2.0, beta=1.0, transpose_b=b_rows, strategy="gemv")
        np.testing.assert_array_equal(c, want)


def test_whole_rounds_run_as_they_are_and_the_rest_is_dealt(monkeypatch):
    """10 x 15 tiles of 128 x 64 on 108 SMs: one round, and the K steps of 42 tiles in equal runs."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_80")
    a, b, c = (np.zeros(s, np.float16) for s in ((128 * 10, 4096), (4096, 64 * 15), (128 * 10, 64 * 15)))
    tiles = choose_tiles("stream_k", GemmShape(128 * 10, 64 * 15, 4096, wd.f16))
    (launch,) = plan_gemm(a, b, c, choice=Choice("stream_k", tiles)).launches
    compiled = launch.kernel.compile(*launch.arguments, target="sm_80")
    assert compiled.grid == (108, 1, 1) and [p.source for p in compiled.params if p.source] == ["sums", "tickets"]
    assert compiled.shapes["_sums0"] == (108 + 42 - 1, 128, 64)  # a part per step of the path, whatever M and N


@pytest.mark.parametrize("strategy", ["stream_k", pytest.param("split_k", marks=pytest.mark.slow)])
def test_the_warpgroup_path_stays_in_one_launch(strategy, oracle):
    """Bulk copies by a copying warpgroup, asynchronous products; the last to arrive adds the parts."""
    few = replace(product_named("H200"), units=5)
    a, b, c = data(wd.bf16, 200, 128, 512, True)
    want = exact(a, b, c, 1.5, 0.5, True).astype(c.dtype)
    plan = plan_gemm(a, b, c, alpha=1.5, beta=0.5, transpose_b=True, strategy=strategy, product=few)
    (launch,) = plan.launches
    compiled = launch.kernel.compile(*launch.arguments, target="sm_90a")
    assert all(word in compiled.asm for word in ("wgmma.mma_async", "cp.async.bulk.tensor"))
    assert "copying warpgroup" in compiled.kernel_ir.notes["lowering"].roles
    products.assemble(compiled, oracle)
    start = c.copy()
    for _ in range(2):  # tickets are as they were
        c[...] = start
        compiled.emulate(*launch.arguments)
        np.testing.assert_array_equal(c.astype(np.float64), want.astype(np.float64))


def test_nothing_and_an_empty_sum(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    c = np.full((3, 5), 4.0, np.float32)
    matmul(np.zeros((3, 0), np.float32), np.zeros((0, 5), np.float32), c, beta=0.5)
    assert (c == 2.0).all()
    assert (
        matmul(np.zeros((0, 4), np.float32), np.zeros((4, 5), np.float32), np.zeros((0, 5), np.float32)).launches == []
    )


def test_integers(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    a, b = (np.random.default_rng(s).integers(-9, 9, (40, 100)).astype(np.int8) for s in (1, 2))
    c = np.zeros((40, 40), np.int32)
    matmul(a, b, c, alpha=2, transpose_b=True, strategy="split_k")
    np.testing.assert_array_equal(c, 2 * (a.astype(np.int32) @ b.astype(np.int32).T))
    with pytest.raises(wd.LaunchError, match=r"alpha=0\.5 times sums of i32") as caught:
        matmul(a, b, c, alpha=0.5, transpose_b=True)  # alpha was 0, and so was C
    assert_points_at(caught.value, "0.5")
    with pytest.raises(wd.LaunchError, match="alpha is a str"):
        tune_gemm(a, b, c, alpha="2", transpose_b=True)


def test_a_plan_shows_no_elements():
    plan = plan_gemm(*(np.full((2, 2), 7.0, np.float32) for _ in range(3)))
    assert "7." not in repr(plan) and "array" not in repr(plan)


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"strategy": "magic"}, wd.ConstraintError, "unknown strategy"),
        ({"b": np.zeros((5, 4), np.float32)}, wd.LaunchError, r"b must be \[4, 4\]"),
        ({"c": np.zeros(15, np.float32)}, wd.LaunchError, "c has shape"),
        ({"a": np.zeros((3, 4), np.complex64)}, wd.LaunchError, "dtype complex64"),
        ({"product": "A1000"}, wd.ConstraintError, "no product"),
        ({"alpha": "2"}, wd.LaunchError, "alpha is a str"),
        ({"beta": np.ones(3)}, wd.LaunchError, "beta is a ndarray"),
    ],
)
def test_mistakes(change, error, why):
    given = {"a": np.zeros((3, 4), np.float32), "b": np.zeros((4, 5), np.float32), "c": np.zeros((3, 5), np.float32)}
    options = {**given, **change}
    arrays = [options.pop(name) for name in "abc"]
    with pytest.raises(error, match=why):
        plan_gemm(*arrays, **options)


def test_strategies_that_do_not_fit_a_shape_say_so():
    a, b, c = (np.zeros(s, np.float16) for s in ((64, 100), (100, 64), (64, 64)))
    with pytest.raises(wd.ConstraintError, match="does not fit one pass"):
        plan_gemm(a, b, c, strategy="shallow_k", product="MI300X")
    with pytest.raises(wd.ConstraintError, match="use skinny"):
        plan_gemm(a, b, c, strategy="gemv", product="MI300X")
    assert set(SIZES) | {"auto"} == set(GEMM_STRATEGIES)


M, N, K, BM, BK = wd.symbols("M N K BM BK")
A_TYPE, B_TYPE, C_TYPE = wd.Memory[M, K, wd.GLOBAL, wd.f16], wd.Memory[N, K, wd.GLOBAL, wd.f16], wd.Memory[M, N, wd.f32]


@pytest.mark.parametrize(("target", "started"), [(t, 7) for t in TARGETS] + [("gfx942", 0), ("sm_80", 0)])
def test_waves_that_share_k_add_up(target, started):
    """What waves hold of a product whose contracted dimension they share is added, its addend counted once."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 16, 0),
            wd.WorkgroupConstraint(N, 16, 1),
            wd.WorkgroupConstraint(K, BK, 2),
            wd.WaveConstraint(K, BK / 4),
        ],
        subs={BK: 256},
    )
    def product(
        a: wd.Memory[M, K, wd.GLOBAL, wd.f16], b: wd.Memory[N, K, wd.GLOBAL, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):
        wd.write(wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](started)), c)

    a, b, _ = data(wd.f16, 20, 24, 230, True)
    c = np.zeros((20, 24), np.float32)
    product.compile(a, b, c, target=target).emulate(a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T + started)


def test_workgroups_that_share_k_are_refused():
    """Nobody adds what workgroups hold: it would be a wrong number."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.WorkgroupConstraint(K, 64, 2)]
    )  # fmt: skip
    def product(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        wd.write(wd.mma(wd.read(a), wd.read(b)), c)

    with pytest.raises(wd.CompileError, match="mma along K, which is spread over workgroups"):
        product.compile(target="gfx942", subs={M: 32, N: 32, K: 128})


def test_a_wave_s_share_of_k_holds_whole_instructions():
    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 16, 0),
            wd.WorkgroupConstraint(N, 16, 1),
            wd.WorkgroupConstraint(K, 32, 2),
            wd.WaveConstraint(K, 8),
        ]
    )
    def product(
        a: wd.Memory[M, K, wd.GLOBAL, wd.f16], b: wd.Memory[N, K, wd.GLOBAL, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):
        wd.write(wd.mma(wd.read(a), wd.read(b)), c)

    with pytest.raises(wd.ConstraintError, match="no multiple of the 16"):
        product.compile(target="gfx942", subs={M: 32, N: 32, K: 32})
