"""Tiles and parts of K that `auto` takes where warpgroups multiply: all units at work, results right."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil, prod

import hopper
import numpy as np
import pytest

import wavedsl as wd
from wavedsl.analysis.roofline import product_named
from wavedsl.analysis.strategy import DOUBLES, GemmShape, choose_tiles
from wavedsl.strategies import gemm_choices, kernels, plan_gemm
from wavedsl.strategies.kernels import Form
from wavedsl.strategies.plan import depth_of, waves_of
from wavedsl.strategies.warpgroups import MOST_APART, Rates, _tiles, best_cut, cuts, estimated, suits

BF16 = Form(wd.bf16, wd.bf16, True)
H200 = product_named("H200")
MLPS = ((4096, 14336), (8192, 28672))


def workgroups(cut, m, n):
    return ceil(m / cut.tile[0]) * ceil(n / cut.tile[1]) * cut.parts


@pytest.mark.parametrize("tokens", [1, 16, 64, 128])
@pytest.mark.parametrize(("n", "k"), [*MLPS, *(pair[::-1] for pair in MLPS)])
def test_few_rows_keep_all_units_asking_for_memory(tokens, n, k):
    cut = best_cut(BF16, (tokens, n, k), H200)
    assert 0.8 * H200.units <= workgroups(cut, tokens, n) <= H200.units, cut


@pytest.mark.parametrize(("n", "k"), [*MLPS, *(pair[::-1] for pair in MLPS)])
@pytest.mark.parametrize("tokens", [512, 2048])
def test_the_last_round_of_large_tiles_is_not_half_empty(tokens, n, k):
    """Rounds of tiles take no more than 1.2 times what all units would at their fullest."""
    cut = best_cut(BF16, (tokens, n, k), H200)
    done = ceil(workgroups(cut, tokens, n) / H200.units) * H200.units * cut.tile[0] * cut.tile[1] / cut.parts
    assert done / (tokens * n) < 1.2, cut


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((2304, 2048, 4096), (192, 192)), ((720, 6656, 4096), (144, 256)), ((6656, 720, 4096), (256, 144)),
        ((1536, 1792, 8192), (128, 176)),
    ],
)
def test_tiles_divide_the_product_evenly(sizes, tile):
    """One round that nearly all units take part in, where tiles of 128 x 256 take two, or leave a third idle; the
    instruction's 64 rows lie along the side that they divide."""
    cut = best_cut(BF16, sizes, H200)
    assert cut.tile[:2] == tile
    assert 0.95 * H200.units <= workgroups(cut, *sizes[:2]) <= H200.units


def test_parts_are_for_what_gains_by_them():
    """Where products and not memory take the time, sums of parts cost more than estimated: a tenth must be gained."""
    cut = best_cut(BF16, (512, 4096, 14336), H200, 2)
    close = [x for x in cuts(BF16, (512, 4096, 14336), H200, 2) if x.clocks < cut.clocks]
    assert cut.tile[:2] == (128, 128) and cut.parts == 1 and close and all(x.parts > 1 for x in close)
    assert best_cut(BF16, (512, 512, 16384), H200).parts > 1  # most units would idle
    assert best_cut(BF16, (64, 8192, 28672), H200).parts == 2  # memory waits for nobody


def test_of_equal_cuts_more_units_work():
    """What memory decides takes as long in tiles of 256, 240 and 224 columns, by the estimate: not by an H200."""
    cut = best_cut(BF16, (128, 14336, 4096), H200)
    assert cut.tile[:2] == (64, 224) and workgroups(cut, 128, 14336) == 128


@pytest.mark.parametrize("tokens", [72, 96])
def test_one_tile_holds_a_batch_of_no_whole_tiles(tokens):
    """Rows outside of A take time, but boxes of a tile that holds all of its rows end with them."""
    sizes = tokens, 14336, 4096
    cut = best_cut(BF16, sizes, H200)
    assert tokens <= cut.tile[0] <= tokens + 16
    alone, apart = (estimated(BF16, sizes, tile, 1, Rates.of(H200)) for tile in ((cut.tile[0], 128), (64, 128)))
    assert apart > 1.05 * alone


def test_launches_may_begin_before_the_one_in_front_has_ended(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    a, b = np.ones((128, 256), wd.bf16.storage), np.ones((512, 256), wd.bf16.storage)
    c = np.zeros((128, 512), wd.bf16.storage)
    (launch,) = plan_gemm(a, b, c, transpose_b=True).launches
    text = launch.kernel.compile(*launch.arguments, target="sm_90a").asm
    assert "griddepcontrol.wait" in text and "griddepcontrol.launch_dependents" in text


def test_what_has_no_warpgroup_instruction_is_left_alone():
    sizes = 512, 512, 512
    assert suits(BF16, sizes, H200) and not suits(BF16, sizes, product_named("A100"))
    assert not suits(Form(wd.f32, wd.f32, True), sizes, H200) and not suits(BF16, (512, 512, 64), H200)
    fp8 = Form(wd.f8e4m3, wd.bf16, False)
    assert not suits(fp8, sizes, H200) and suits(Form(wd.f8e4m3, wd.bf16, True), sizes, H200)


def test_tiles_fit_the_instruction():
    """64 rows of a warpgroup each, and no more sums of a lane than leave it registers to store them (that ptxas spills
    none of the largest is in `test_hopper_static`)."""
    for sizes in ((16, 4096, 1024), (4096, 48, 1024), (512, 4096, 1024)):
        for cut in cuts(BF16, sizes, H200):
            groups = cut.waves[0] * cut.waves[1]
            assert max(cut.tile[0] // cut.waves[0], cut.tile[1] // cut.waves[1]) >= 64
            assert cut.tile[0] * cut.tile[1] / groups / 128 <= 160


@pytest.mark.parametrize(
    ("sizes", "tile", "waves", "split"),
    [
        ((130, 240, 128), (128, 224, 64), (2, 1), 1),
        ((7, 70, 1040), (16, 64, 64), (1, 1), 2),
        ((150, 264, 136), (144, 256, 64), (1, 2), 1),
        ((264, 150, 136), (256, 144, 64), (2, 1), 1),
        ((200, 194, 136), (192, 192, 64), (3, 1), 1),
    ],
)
def test_new_tiles_are_right(sizes, tile, waves, split):
    m, n, k = sizes
    random = np.random.default_rng(m)
    a, b = (random.integers(-3, 4, s).astype(wd.bf16.storage) for s in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, np.float32).astype(wd.bf16.storage)
    kernel = kernels.tiled(BF16, tile, (*waves, 1), 0, True, split)
    kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a").emulate(a, b, c, 1.0, 0.0)
    want = (a.astype(np.float32) @ b.astype(np.float32).T).astype(wd.bf16.storage)
    assert np.array_equal(c.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("columns", [False, True], ids=["few rows", "few columns"])
def test_auto_shares_k_of_a_narrow_product(monkeypatch, columns):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    m, n, k = (64, 5, 4096) if columns else (5, 64, 4096)
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, np.float16)
    plan = plan_gemm(a, b, c, transpose_b=True, product=H200)
    assert plan.tiles.split > 1, plan.why
    plan.run()
    assert np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))


def test_few_rows_take_two_boxes_of_k_per_trip():
    """Boxes that are neighbours in memory are asked for one behind the other; not where B has no runs of K, K is short,
    or rows are many."""
    for rows in (3, 16, 64):
        cut = best_cut(BF16, (rows, 8192, 8192), H200)
        assert cut.tile[2] * 2 == 256 and best_cut(BF16, (8192, rows, 8192), H200).tile[2] * 2 == 256
        assert all(x.tile[2] == 64 for x in cuts(BF16, (rows, 8192, 512), H200))
        assert all(x.tile[2] == 64 for x in cuts(Form(wd.bf16, wd.bf16), (rows, 8192, 8192), H200))
    assert best_cut(Form(wd.f8e4m3, wd.bf16, True), (16, 8192, 8192), H200).tile[2] == 256
    assert all(x.tile[2] == 64 for x in cuts(BF16, (65, 8192, 8192), H200))
    text = kernels.tiled(BF16, cut.tile, (*cut.waves, 1), 0).compile(
        target="sm_90a", subs={kernels.M: 64, kernels.N: 8192, kernels.K: 8192}
    ).asm  # fmt: skip
    assert text.count("cp.async.bulk.tensor.2d.shared::cluster.global") == 2 * 2  # of A and of B


@pytest.mark.parametrize("sizes", [(5, 200, 2056), (33, 136, 3000), (200, 9, 2176)], ids=str)
def test_few_rows_are_right_at_all_ends(monkeypatch, sizes):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    m, n, k = sizes
    random = np.random.default_rng(m)
    a, b = (random.integers(-3, 4, s).astype(wd.bf16.storage) for s in ((m, k), (n, k)))
    before = random.integers(-3, 4, (m, n)).astype(np.float32)
    c = before.copy()
    plan = plan_gemm(a, b, c, alpha=2, beta=3, transpose_b=True, product=H200)
    assert plan.tiles.tile_k == 128, plan.why
    plan.run()
    assert np.array_equal(c, 2 * (a.astype(np.float32) @ b.astype(np.float32).T) + 3 * before)


APART = {  # dtypes of operands and results, B as [N, K], beta
    "f16": (wd.f16, wd.f16, True, 0.0),
    "f16 B along N, f32 and C": (wd.f16, wd.f32, False, 0.5),
    "i8 and C": (wd.i8, wd.i32, True, 3),
}


@pytest.mark.parametrize("form", APART)
def test_a_second_launch_adds_the_parts_of_a_long_k(monkeypatch, form):
    """The same bits on every run, exact where sums are, and C of padding neither read nor written."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    dtype, out, b_rows, beta = APART[form]
    m, n, k = 72, 80, 16384
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, s).astype(dtype.storage) for s in ((m, k), (n, k) if b_rows else (k, n)))
    before = random.integers(-2, 3, (m, n)).astype(out.storage)
    c = before.copy() if beta else np.full((m, n), 77, out.storage)
    plan = plan_gemm(a, b, c, alpha=2, beta=beta, transpose_b=b_rows, product=H200)
    assert plan.strategy == "split_k" and len(plan.launches) == 2, plan.why
    assert plan.launches[0].kernel.name == "gemm_parts" and k % plan.tiles.split == 0
    assert plan.launches[0].kernel.schedule.cluster == (1, 1, 1)
    plan.run()
    wide = b.astype(np.float64)
    want = 2 * (a.astype(np.float64) @ (wide.T if b_rows else wide)) + beta * before
    assert np.array_equal(c, want.astype(out.storage))


def test_parts_are_added_apart_where_that_is_estimated_to_save_a_tenth():
    """Few output tiles and a long K; not where sums would not stay in L2, K has no equal parts of whole trips, or two
    workgroups of a tile are enough."""
    for sizes in ((256, 256, 65536), (512, 512, 16384)):
        one, two = (best_cut(BF16, sizes, H200, launches) for launches in (1, 2))
        assert two.apart and not one.apart and two.clocks <= 0.9 * one.clocks
        assert 0.9 * H200.units <= workgroups(two, *sizes[:2]) <= H200.units
        assert two.parts * sizes[0] * sizes[1] * 4 <= H200.l2_bytes / 2
    for sizes in ((512, 4096, 14336), (2304, 2048, 4096), (256, 256, 65536 + 8), (4096, 4096, 4096)):
        assert not best_cut(BF16, sizes, H200, 2).apart


class Elsewhere:
    """An array of a package for which `rooms` makes none."""

    dtype, __cuda_array_interface__ = np.dtype(np.float16), None

    def __init__(self, *shape):
        self.shape = shape


def test_arrays_of_other_packages_keep_to_one_launch():
    a, b, c = (Elsewhere(*s) for s in ((72, 16384), (80, 16384), (72, 80)))
    (launch,) = plan_gemm(a, b, c, transpose_b=True, product=H200).launches
    assert launch.kernel.name == "gemm_tiled"


@pytest.mark.parametrize("beta", [False, True])
def test_no_sum_of_parts_spills(beta, oracle):
    """As many parts as there may be: all loads of a lane are on their way together."""
    oracle("ptxas")
    form = Form(wd.bf16, wd.bf16, True, beta)
    sums, c = np.empty((MOST_APART, 256, 256), np.float32), np.empty((256, 256), wd.bf16.storage)
    text = kernels.added(form, MOST_APART).compile(sums, c, 1.0, 0.0, target="sm_90a").asm
    assert text.count("ld.global.v4") == MOST_APART
    assert hopper.spilled_or_serialised(text) == (0, ())


LARGE = {tile: waves for tile, waves in _tiles(4096, 4096, BF16) if prod(tile) >= 80 * 128 * prod(waves)}


@pytest.mark.parametrize("tile", [pytest.param(t, marks=() if t == (192, 192) else pytest.mark.slow) for t in LARGE])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_no_tile_spills(tile, parts, oracle):
    """Of those that leave a lane fewest registers; C is read, and parts are added to sums that are still there or to
    nothing."""
    oracle("ptxas")
    a, b, c = (np.empty(s, wd.bf16.storage) for s in ((1280, 4096), (1280, 4096), (1280, 1280)))
    kernel = kernels.tiled(replace(BF16, beta=True), (*tile, 64), (*LARGE[tile], 1), 0, True, parts)
    text = kernel.compile(a, b, c, 1.0, 0.5, target="sm_90a").asm
    assert hopper.spilled_or_serialised(text) == (0, ())


TWO = Form(wd.f32, wd.f32, precision="3xtf32")
"""Two numbers per operand, B as [K, N]."""


@pytest.mark.parametrize("b_rows", [True, False])
def test_one_of_two_split_operands_stays_in_registers(b_rows):
    """The largest tile: B's numbers where B has no K contiguous, so that nothing is turned on its way to shared memory.
    A trip has no bank conflict, and stores four words at a time."""
    form = replace(TWO, b_rows=b_rows)
    cut = best_cut(form, (2048, 2048, 2048), H200)
    assert cut.tile == (128, 128, 32) and cut.waves == ((1, 2) if b_rows else (2, 1))
    conflicts, random = [], np.random.default_rng(0)
    for k in (64, 128):
        a, b = (random.standard_normal(s, np.float32) for s in ((128, k), (128, k) if b_rows else (k, 128)))
        c = np.full((128, 128), np.nan, np.float32)
        made = kernels.tiled(form, cut.tile, (*cut.waves, 1), 0).compile(a, b, c, 1.0, 0.0, target="sm_90a")
        conflicts.append(made.emulate(a, b, c, 1.0, 0.0).bank_conflicts)
        np.testing.assert_allclose(c, a.astype(np.float64) @ (b.T if b_rows else b), atol=3e-5)
        trip = re.search(r"\n\$K1:.*?bra +\$K1;", made.asm, re.DOTALL)[0]
        assert len(re.findall(r"st\.shared", trip)) == len(re.findall(r"st\.shared\.v4", trip)) == 8
    assert conflicts[0] == conflicts[1]


HELD_TILES = [
    pytest.param(b_rows, *x, marks=() if prod(x[0]) == 128 * 128 else pytest.mark.slow)
    for b_rows in (True, False)
    for x in _tiles(4096, 4096, replace(TWO, b_rows=b_rows))
    if prod(x[0]) > 64 * 128
]


@pytest.mark.parametrize(("b_rows", "tile", "waves"), HELD_TILES)
def test_no_tile_of_split_operands_spills(b_rows, tile, waves, oracle):
    """Whole and cut in two, with an end of K inside a trip."""
    oracle("ptxas")
    a, b, c = (np.empty(s, np.float32) for s in ((1280, 2044), (1280, 2044) if b_rows else (2044, 1280), (1280, 1280)))
    for parts in (1, 2):
        kernel = kernels.tiled(replace(TWO, b_rows=b_rows), (*tile, 32), (*waves, 1), 0, True, parts)
        text = kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a").asm
        assert hopper.spilled_or_serialised(text) == (0, ()), parts


@pytest.mark.parametrize(("m", "cluster"), [(128, 2), (512, 1)])
def test_two_workgroups_that_bring_all_of_b_are_a_cluster(m, cluster):
    """Parts of 128 rows, which memory bounds, of two tiles along M; not whole tiles on a nearly full chip."""
    a, b, c = (np.empty(s, wd.bf16.storage) for s in ((m, 28672), (8192, 28672), (m, 8192)))
    (launch,) = plan_gemm(a, b, c, transpose_b=True, product="H200").launches
    assert launch.kernel.compile(*launch.arguments, target="sm_90a").kernel_ir.cluster == cluster


@pytest.mark.parametrize(("n", "k", "deep"), [(8192, 8192, 128), (14336, 4096, 64), (28672, 8192, 64)])
def test_few_rows_take_two_boxes_a_trip_where_slots_stay(n, k, deep):
    a, b, c = (np.empty(s, wd.bf16.storage) for s in ((16, k), (n, k), (16, n)))
    assert plan_gemm(a, b, c, transpose_b=True, product="H200").choice.cut.tile[2] == deep


@pytest.mark.parametrize("b_rows", [True, False])
@pytest.mark.parametrize(
    ("size", "tile"),
    [
        ((2048, 2048, 2048), (128, 128, 16, 4)),
        ((8192, 8192, 64), (64, 128, 16, 3)),
        ((1024, 1024, 1024), (64, 64, 16, 3)),
    ],
)
def test_f64_takes_the_chips_own_instructions(size, tile, b_rows):
    """Those of 16 rows, of which Hopper does twice as many multiply-adds per clock as of sm_80's, 8 of K deep; large
    tiles where units have enough and K is long. No copy and no read has bank conflicts."""
    tiles = choose_tiles("wave_parallel", GemmShape(*size, wd.f64), H200)
    assert (tiles.tile_m, tiles.tile_n, depth_of(tiles, Form(wd.f64, wd.f64)), tiles.pipeline_stages) == tile
    form = Form(wd.f64, wd.f64, b_rows)
    random = np.random.default_rng(0)
    a, b, c = random.standard_normal((70, 116)), random.standard_normal((150, 116)), np.full((70, 150), np.nan)
    given = b if b_rows else b.T.copy()
    waves = *waves_of(tiles, form, H200), 1
    made = kernels.tiled(form, tile[:3], waves, tile[3], split=1).compile(a, given, c, 1.0, 0.0, target="sm_90a")
    report = made.emulate(a, given, c, 1.0, 0.0)
    assert set(re.findall(r"mma\.sync\.aligned\.(\w+)", made.asm)) == {"m16n8k8"}
    assert report.bank_conflicts == 0
    np.testing.assert_allclose(c, a @ b.T, atol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("alpha", [1.0, -2.0])
def test_f64_is_multiplied_by_alpha_only_where_it_is_not_1(alpha, beta):
    """Multiplications of f64 wait for the matrix unit, in which other waves' products are made."""
    random = np.random.default_rng(0)
    a, b, c = (random.standard_normal(size) for size in ((70, 40), (50, 40), (70, 50)))
    want = alpha * (a @ b.T) + beta * c
    (launch,) = plan_gemm(a, b, c, alpha=alpha, beta=beta, transpose_b=True, product=H200).launches
    made = launch.kernel.compile(*launch.arguments, target="sm_90a")
    made.emulate(*launch.arguments)
    assert ("mul.rn.f64" in made.asm) == (alpha != 1)
    np.testing.assert_allclose(c, want, atol=1e-12)


@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.parametrize("tile", DOUBLES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_f64_spills_nothing_and_moves_no_number_in_its_loop(tile, beta, oracle):
    oracle("ptxas"), oracle("nvdisasm")
    a, b, c = (np.empty(size) for size in ((2048, 2048), (2048, 2048), (2048, 2048)))
    made = kernels.tiled(
        Form(wd.f64, wd.f64, True, beta), (tile.rows, tile.columns, 16), (*tile.waves, 1), tile.stages
    ).compile(a, b, c, 1.0, 0.5, target="sm_90a")
    machine = hopper.sass.assembled(made.asm, "sm_90a")
    loop = max(machine.loops, key=lambda x: x.counts.get("product", 0))
    assert machine.spills == 0
    assert loop.counts.get("move", 0) <= loop.counts["product"] // 8


def test_choices_of_f64_are_the_tiles_that_were_measured():
    a, b, c = (np.empty(size) for size in ((1024, 1024), (1024, 1024), (1024, 1024)))
    found = gemm_choices(a, b, c, transpose_b=True, product=H200, most=6)
    assert {(x.cut.tile_m, x.cut.tile_n) for x in found} == {(x.rows, x.columns) for x in DOUBLES}
    assert {x.cut.pipeline_stages for x in found} == {2, *(x.stages for x in DOUBLES)}


@pytest.mark.parametrize(("size", "stored"), [((128, 128, 64), 4), ((150, 140, 100), 4), ((133, 129, 33), 4)])
def test_f32_is_transposed_in_registers_where_copies_pass_through_them(size, stored):
    """A choice beside copies of single words, of which there would be twice as many: columns of blocks of 4 x 4, or of
    four rows, are stored together, without a bank conflict."""
    m, n, k = size
    form = Form(wd.f32, wd.f32, True)
    kernel = kernels.tiled(form, (128, 128, 16), (2, 2, 1), 3, split=1, by_registers=True)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s, np.float32) for s in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, np.float32)
    made = kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a")
    report = made.emulate(a, b, c, 1.0, 0.0)
    stores = re.findall(r"st\.shared\.(?:v(\d)\.)?b32", made.asm)
    assert stores and set(stores) == {str(stored)} and "cp.async" not in made.asm
    assert report.bank_conflicts == 0
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.T, atol=3e-5)


def test_f32_cuts_that_an_h200_measured():
    """Of a short K 64 x 64; of a long one 128 x 128, also with copies that pass through registers."""
    c = np.empty((2048, 2048), np.float32)
    a, b = (np.empty((2048, 2048), np.float32) for _ in range(2))
    found = [x.cut for x in gemm_choices(a, b, c, transpose_b=True, product="H200")]
    assert (found[0].tile_m, found[0].tile_n, found[0].by_registers) == (128, 128, False)
    assert any(x.by_registers and (x.tile_m, x.tile_n, x.tile_k) == (128, 128, 16) for x in found[:6])
    tiles = choose_tiles("wave_parallel", GemmShape(8192, 8192, 64, wd.f32), H200)
    assert (tiles.tile_m, tiles.tile_n) == (64, 64)
    tiles = choose_tiles("wave_parallel", GemmShape(8192, 8192, 128, wd.f32), H200)
    assert (tiles.tile_m, tiles.tile_n) == (128, 64)
