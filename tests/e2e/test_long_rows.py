"""Rows that several waves share without being told to, on every chip: text against evaluator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

M, N, ONE, BN, I, J = wd.symbols("M N ONE BN I J")


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def standardised(
    x: wd.Memory[M, N, wd.f16], y: wd.Memory[M, N, wd.f32], top: wd.Memory[M, wd.i32], runs: wd.Memory[M, N, wd.i32],
    columns: wd.Memory[N, wd.i32], positive: wd.Memory[ONE, wd.i32],
):  # fmt: skip
    """Each kind of operation that a row's waves do together, and what each of them has by itself."""
    row = wd.cast(wd.read(x), wd.f32)
    away = row - wd.sum(row, dim=N) / N
    wd.write(away * wd.rsqrt(wd.sum(away * away, dim=N) / N + 1.0), y)
    wd.write(wd.argmax(row, dim=N), top)
    ones = wd.cast(row > 0, wd.i32)
    wd.write(wd.cumsum(ones, dim=N), runs)
    wd.atomic_add(ones, columns)
    wd.atomic_add(wd.sum(ones, dim=N), positive, mapping=wd.IndexMapping((), {ONE: 0}))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [4096, pytest.param(5001, marks=pytest.mark.slow)])
def test_waves_share_a_row(columns: int, target: str, oracle: Callable[[str], str]) -> None:
    x = np.random.default_rng(columns).integers(-4, 5, (2, columns)).astype(np.float16)
    arguments = [
        x, np.full(x.shape, np.nan, np.float32), np.zeros(2, np.int32), np.zeros(x.shape, np.int32),
        np.zeros(columns, np.int32), np.zeros(1, np.int32),
    ]  # fmt: skip
    compiled = agree(standardised, arguments, target, oracle, near(4))
    assert compiled.block[0] > (64 if target.startswith("gfx") else 32)
    assert not compiled.resources.spills


def normed(columns: int, waves: int):
    """A row's lanes hold it until its sum is known; other operands meet it after that."""
    spread = [wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(N, BN / waves)]

    @wd.wave(spread, subs={BN: 1 << (columns - 1).bit_length()})
    def layer_normed(
        a: wd.Memory[M, N, wd.f16], w: wd.Memory[N, wd.f16], b: wd.Memory[N, wd.f16], c: wd.Memory[M, N, wd.f16],
        mean: wd.Memory[M, wd.f32],
    ):  # fmt: skip
        x = wd.cast(wd.read(a), wd.f32)
        middle = wd.sum(x, dim=N) / columns
        away = x - middle
        scale = wd.rsqrt(wd.sum(away * away, dim=N) / columns + 1.0)
        wd.write(middle, mean)
        wide = wd.fma(away * scale, wd.cast(wd.read(w), wd.f32), wd.cast(wd.read(b), wd.f32))
        wd.write(wd.cast(wide, wd.f16), c)

    return layer_normed


@pytest.mark.parametrize("target", TARGETS)
def test_what_meets_a_long_row_is_right_where_it_is_loaded_late(target: str, oracle: Callable[[str], str]) -> None:
    random = np.random.default_rng(3)
    x, w, b = (random.standard_normal(shape).astype(np.float16) for shape in ((2, 4090), 4090, 4090))
    arguments = [x, w, b, np.full(x.shape, np.nan, np.float16), np.zeros(2, np.float32)]
    compiled = agree(normed(4090, 2), arguments, target, oracle, near(8))
    assert not compiled.resources.spills


@pytest.mark.parametrize("waves, least", [(4, 3), (8, 2)])
def test_workgroups_of_long_rows_fit_together(waves: int, least: int, oracle: Callable[[str], str]) -> None:
    """One alone spilled at four warps and had 206 registers at eight: nothing hid its loads' latency."""
    oracle("ptxas")
    compiled = normed(16384, waves).compile(target="sm_90a", subs={M: 8192, N: 16384})
    assert f".minnctapersm {least}\n" in compiled.asm
    assert not compiled.resources.spills and compiled.resources.occupancy >= least * waves


def test_what_is_cheap_is_loaded_with_a_row() -> None:
    """Where as many workgroups fit, nobody waits for a second load after the sum."""
    text = normed(4096, 8).compile(target="sm_90a", subs={M: 8192, N: 4096}).asm
    assert text.rindex("ld.global") < text.index("shfl")
    text = normed(16384, 4).compile(target="sm_90a", subs={M: 8192, N: 16384}).asm
    assert text.rindex("ld.global") > text.rindex("shfl")


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def doubly_stochastic(
    x: wd.Memory[M, I, J, wd.f32], y: wd.Memory[M, I, J, wd.f32], trips: wd.Memory[M, wd.i32],
    top: wd.Memory[M, J, wd.i32], sums: wd.Memory[M, I, J, wd.i32],
):  # fmt: skip
    """Rows and columns in turn, until their sums no longer change; which is largest; sums of all above and before."""
    value = wd.read(x)

    def unfinished(rows, columns, change, n):
        return (change > 1e-3) & (n < 20)

    def step(rows, columns, change, n):
        rows = 1.0 / wd.sum(value * columns, dim=J)
        after = 1.0 / wd.sum(value * rows, dim=I)
        return rows, after, wd.max(wd.abs(after - columns), dim=J), n + 1

    start = [wd.Register[I, wd.f32](1.0), wd.Register[J, wd.f32](1.0), wd.Register[wd.f32](1.0), wd.Register[wd.i32](0)]
    rows, columns, _, n = wd.while_loop(unfinished, step, start)
    wd.write(value * rows * columns, y)
    wd.write(n, trips)
    wd.write(wd.argmax(value, dim=I), top)
    wd.write(wd.cumsum(wd.cumsum(wd.cast(value > 1.0, wd.i32), dim=J), dim=I), sums)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(64, 64), pytest.param((72, 100), marks=pytest.mark.slow)], ids=str)
def test_waves_share_what_rows_and_columns_make_large(
    shape: tuple[int, int], target: str, oracle: Callable[[str], str]
) -> None:
    """None of the rows is long: one wave had all of 128 x 128 before, with 1245 spills on gfx942, and sm_80 refused."""
    x = (np.random.default_rng(0).integers(1, 9, (2, *shape)) / 4).astype(np.float32)
    arguments = [
        x, np.zeros_like(x), np.zeros(2, np.int32), np.zeros((2, shape[1]), np.int32), np.zeros(x.shape, np.int32)
    ]  # fmt: skip
    compiled = agree(doubly_stochastic, arguments, target, oracle, near(64))
    assert compiled.block[0] > (64 if target.startswith("gfx") else 32)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "sm_80", "sm_90a"])
def test_a_large_table_does_not_spill(target: str, oracle: Callable[[str], str]) -> None:
    compiled = doubly_stochastic.compile(target=target, subs={M: 8, I: 128, J: 128})
    if target.startswith("sm"):
        oracle("ptxas")
    assert not compiled.resources.spills


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def gated(x: wd.Memory[M, 2 * N, wd.bf16], dy: wd.Memory[M, N, wd.bf16], dx: wd.Memory[M, 2 * N, wd.bf16]):
    """Gradients of silu(a) * b where a and b are the halves of rows."""
    a, b, g = (wd.cast(v, wd.f32) for v in (wd.read(x[:, :N]), wd.read(x[:, N:]), wd.read(dy)))
    s = wd.sigmoid(a)
    wd.write(wd.cast(g * b * s * (1 + a * (1 - s)), wd.bf16), dx[:, :N])
    wd.write(wd.cast(g * a * s, wd.bf16), dx[:, N:])


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_waves_share_halves_of_a_row(target: str, oracle: Callable[[str], str]) -> None:
    """`2 * N` is a dimension of arrays alone: it kept N in one wave, with 2810 spills on gfx942, and sm_80 refused.
    The index of a half's elements is in no register, so nothing is exchanged."""
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((2, n)).astype(wd.bf16.storage) for n in (8200, 4100))
    agree(gated, [x, dy, np.zeros_like(x)], target, compare=near(4, 1e-6), subs={N: 4100})
    compiled = gated.compile(target=target, subs={M: 4096, N: 11008})
    if target.startswith("sm"):
        oracle("ptxas")
    assert compiled.shared_bytes == 0 and not compiled.resources.spills


@wd.wave([wd.WorkgroupConstraint(M, BN, 0)], subs={BN: 1})
def rotated(x: wd.Memory[M, 2 * N, wd.bf16], c: wd.Memory[M, N, wd.f32], s: wd.Memory[M, N, wd.f32]):
    """Halves of rows, each in place of itself: either store needs what lies in both."""
    a, b = (wd.cast(v, wd.f32) for v in (wd.read(x[:, :N]), wd.read(x[:, N:])))
    cos, sin = wd.read(c), wd.read(s)
    wd.write(wd.cast(a * cos - b * sin, wd.bf16), x[:, :N])
    wd.write(wd.cast(b * cos + a * sin, wd.bf16), x[:, N:])


@wd.wave([wd.WorkgroupConstraint(M, BN, 0)], subs={BN: 1})
def both_ways(
    x: wd.Memory[M, N, wd.f32], g: wd.Memory[M, N, wd.f16], y: wd.Memory[M, N, wd.f32], at: wd.Memory[M, N, wd.i32],
    z: wd.Memory[M, N, wd.f16],
):  # fmt: skip
    """Several results, one of which is written again, one read again behind its store."""
    value = wd.read(x)
    wd.write(wd.sigmoid(value), y)
    wd.write(wd.index(N) + wd.cast(value > 0, wd.i32), at)
    wd.write(value * wd.cast(wd.read(g), wd.f32), y)
    wd.write(wd.cast(wd.read(y) - value, wd.f16), z)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("columns", [8192, pytest.param(8201, marks=pytest.mark.slow)])
def test_long_values_go_from_loads_to_stores(columns: int, target: str, oracle: Callable[[str], str]) -> None:
    random = np.random.default_rng(0)
    half = columns // 2
    x = random.standard_normal((2, 2 * half)).astype(wd.bf16.storage)
    c, s = (random.standard_normal((2, half)).astype(np.float32) for _ in range(2))
    agree(rotated, [x, c, s], target, oracle, near(4, 1e-6), subs={N: half})
    x, g = random.standard_normal((2, columns)).astype(np.float32), random.standard_normal((2, columns))
    arguments = [x, g.astype(np.float16), np.zeros_like(x), np.zeros(x.shape, np.int32), np.zeros(x.shape, np.float16)]
    agree(both_ways, arguments, target, oracle, near(8, 1e-6))


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_long_values_are_in_few_registers(target: str, oracle: Callable[[str], str]) -> None:
    """A lane has 86 words of what is loaded, and had all of them at once: 175 spills on gfx942, 536 bytes on sm_80."""
    compiled = rotated.compile(target=target, subs={M: 4096, N: 11008, BN: 4})
    if target.startswith("sm"):
        oracle("ptxas")
    assert not compiled.resources.spills
    compiled = rotated.compile(target=target, subs={M: 4096, N: 8192, BN: 1})
    assert compiled.resources.registers <= 96


def test_operations_on_neighbours_stay_pairs_where_values_are_computed_as_they_are_stored() -> None:
    text = normed(16384, 8).compile(target="gfx942", subs={M: 8192, N: 16384}).asm
    assert text.count("v_pk_fma_f32") >= 16


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def four_rows(x: wd.Memory[M, N, wd.f32], w: wd.Memory[N, wd.f32], y: wd.Memory[M, N, wd.f32]):
    row = wd.read(x)
    wd.write(row * wd.rsqrt(wd.sum(row * row, dim=N) / N + 1e-5) * wd.read(w), y)


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def four_rows_counted(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(x) * wd.cast(wd.index(M) - wd.tile_start(M), wd.f32), y)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_a_workgroup_has_fewer_rows_than_registers_lack(target: str, oracle: Callable[[str], str]) -> None:
    """4 x 11008 f32 are 43 registers of 1024 lanes: RMSNorm spilled 344 bytes on sm_80, LayerNorm 1068."""
    if target.startswith("sm"):
        oracle("ptxas")
    compiled = four_rows.compile(target=target, subs={M: 4096, N: 11008})
    assert compiled.grid[0] == 2048 and not compiled.resources.spills
    assert four_rows.compile(target=target, subs={M: 4096, N: 4096}).grid[0] == 1024
    assert four_rows_counted.compile(target=target, subs={M: 4096, N: 11008}).grid[0] == 1024


@pytest.mark.parametrize("target", TARGETS)
def test_fewer_rows_are_the_same_rows(target: str, oracle: Callable[[str], str]) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((5, 9001), 9001))
    agree(four_rows, [x, w, np.zeros_like(x)], target, oracle, near(4, 1e-6))


@pytest.mark.parametrize(("product", "target"), [("H100 SXM", "sm_90a"), ("A100", "sm_80")])
def test_vectors_of_a_product_share_the_matrix_s_elements(product: str, target: str) -> None:
    """A lane multiplies what it has read of the matrix with all four vectors; waves with two of them read it twice."""
    from wavedsl.strategies import plan_gemm

    a, b, c = (np.empty(shape, wd.bf16.storage) for shape in ((4, 8192), (8192, 8192), (4, 8192)))
    (launch,) = plan_gemm(a, b, c, transpose_b=True, strategy="gemv", product=product).launches
    assert launch.kernel.compile(*launch.arguments, target=target).block == (128, 1, 1)


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def layer_normed_f64(
    x: wd.Memory[M, N, wd.f64], w: wd.Memory[N, wd.f64], b: wd.Memory[N, wd.f64], y: wd.Memory[M, N, wd.f64]
):
    row = wd.read(x)
    away = row - wd.sum(row, dim=N) / N
    wd.write(away * wd.rsqrt(wd.sum(away * away, dim=N) / N + 1.0) * wd.read(w) + wd.read(b), y)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("columns", [24576, pytest.param(32768, marks=pytest.mark.slow)])
def test_rows_of_f64_are_loaded_again(columns: int, target: str, oracle: Callable[[str], str]) -> None:
    """48 to 64 of the 64 registers that a lane of 32 warps has, and weights for all of it: 192 bytes of spills."""
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((2, columns)), *rng.standard_normal((2, columns))
    compiled = agree(layer_normed_f64, [x, w, b, np.full_like(x, np.nan)], target, oracle, near(4, 1e-14))
    assert not compiled.resources.spills


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_longer_rows_of_f64_are_loaded_again(target: str) -> None:
    """128 of the 128 registers that a lane of 16 waves has: as many spills on gfx942, and 7 % more clocks."""
    compiled = layer_normed_f64.compile(target=target, subs={M: 1, N: 65536})
    assert not compiled.resources.spills
