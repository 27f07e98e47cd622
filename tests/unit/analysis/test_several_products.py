"""The roofline of kernels with several products and with ranges of loops: units, FLOP and traffic against counts by
hand, and shares of busy pipes that a unit can have."""

from __future__ import annotations

import json

import pytest

import wavedsl as wd
from wavedsl.analysis.issued import count_issued, unit_clocks
from wavedsl.analysis.roofline import Roofline, product_named
from wavedsl.targets import get_target

B, M, N, K, D, E = wd.symbols("B M N K D E")
CHIPS = ("A100", "H100 SXM", "H200", "MI250X die", "MI300X", "MI355X")


def product(dtype: wd.DType, tile=(128, 128, 64), acc: wd.DType = wd.f32) -> wd.Kernel:
    bm, bn, bk = tile

    @wd.wave([wd.WorkgroupConstraint(M, bm, 0), wd.WorkgroupConstraint(N, bn, 1), wd.TilingConstraint(K, bk)])
    def one(a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], c: wd.Memory[M, N, acc]):
        @wd.iterate(K, init_args=[wd.Register[M, N, acc](0.0)])
        def loop(sums):
            return wd.mma(wd.read(a), wd.read(b), sums)

        wd.write(loop, c)

    return one


def gated(dtype: wd.DType, tile=(128, 64, 64)) -> wd.Kernel:
    bm, bn, bk = tile

    @wd.wave([wd.WorkgroupConstraint(M, bm, 0), wd.WorkgroupConstraint(N, bn, 1), wd.TilingConstraint(K, bk)])
    def two(
        x: wd.Memory[M, K, wd.SHARED, dtype], gate: wd.Memory[N, K, wd.SHARED, dtype],
        up: wd.Memory[N, K, wd.SHARED, dtype], h: wd.Memory[M, N, dtype],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero, zero])
        def loop(left, right):
            rows = wd.read(x)
            return wd.mma(rows, wd.read(gate), left), wd.mma(rows, wd.read(up), right)

        left, right = loop
        wd.write(wd.cast(left * wd.sigmoid(left) * right, dtype), h)

    return two


def weighted(ranged: bool, tile=(64, 32), window: int | None = None) -> wd.Kernel:
    """Two products over keys, the second of what the first gives; `ranged`: only keys up to the queries' own place."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, tile[0], 0),
            wd.WorkgroupConstraint(B, 1, 1),
            wd.TilingConstraint(N, tile[1]),
            wd.WaveConstraint(M, tile[0] // 4 if tile[0] < 128 else 64),
        ]
    )
    def scores(
        q: wd.Memory[B, M, D, wd.f16], k: wd.Memory[B, N, D, wd.SHARED, wd.f16],
        v: wd.Memory[B, N, E, wd.SHARED, wd.f16], o: wd.Memory[B, M, E, wd.f16],
    ):  # fmt: skip
        start = None if window is None else wd.tile_start(M) - window
        stop = wd.tile_stop(M) if ranged else None

        @wd.iterate(N, init_args=[wd.Register[M, E, wd.f32](0.0)], start=start, stop=stop)
        def loop(acc):
            s = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0))
            s = wd.where(wd.index(N) <= wd.index(M), s, 0.0)
            return wd.mma(wd.cast(s, wd.f16), wd.read(v), acc)

        wd.write(wd.cast(loop, wd.f16), o)

    return scores


def copy() -> wd.Kernel:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def copied(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a), b)

    return copied


def rows_of(dtype: wd.DType) -> wd.Kernel:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def exponentials(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype]):
        x = wd.read(a)
        y = x - wd.max(x, dim=N)
        wd.write((y if dtype is wd.f64 else wd.exp(y)) * x + x, b)

    return exponentials


SQUARE = {M: 1024, N: 1024, K: 1024}
SCORES = {B: 4, M: 512, N: 512, D: 64, E: 64}


@pytest.mark.parametrize("chip", CHIPS)
def test_two_products_run_on_the_matrix_units(chip):
    """Not on vector pipes because there are two of them: time at the matrix peak, and no strategy for one product."""
    r = wd.analyze(gated(wd.f16), product=chip, subs=SQUARE)
    target = get_target(r.target)
    peak = product_named(chip).peak("f16", "matrix", target)
    assert (r.unit, r.dtype, r.peak_compute) == ("matrix", "f16", peak)
    assert r.flops_by["product f16"] == 4 * 1024**3
    assert r.pipe_seconds["matrix f16"] == pytest.approx(4 * 1024**3 / peak)
    assert r.seconds_by["compute"] == pytest.approx(r.pipe_seconds["matrix f16"])
    assert 0 < r.pipe_seconds["vector f32"] < r.pipe_seconds["matrix f16"]
    assert (r.recommended_strategy, r.tiles) == ("none", None) and "2 products" in r.why
    t = r.kernel_tiles
    assert (t.tile_m, t.tile_n, t.tile_k) == (128, 64, 64)
    assert [(p.m, p.n, p.k, p.unit) for p in r.products] == 2 * [(1024, 1024, 1024, "matrix")]
    assert "of the largest of its 2 products" in str(r) and "stream" not in str(r)
    assert json.loads(json.dumps(r.to_json()))["products"][0]["tile_k"] == 64


def test_products_of_several_dtypes_take_each_its_own_time():
    """f32 is multiply-adds on Hopper and matrix instructions on CDNA; pipes work beside each other."""

    def both(chip: str) -> Roofline:
        @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
        def mixed(
            a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16],
            x: wd.Memory[M, K, wd.SHARED, wd.f32], y: wd.Memory[N, K, wd.SHARED, wd.f32], c: wd.Memory[M, N, wd.f32],
        ):  # fmt: skip
            @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[M, N, wd.f32](0.0)])
            def loop(half, single):
                return wd.mma(wd.read(a), wd.read(b), half), wd.mma(wd.read(x), wd.read(y), single)

            half, single = loop
            wd.write(half + single, c)

        return wd.analyze(mixed, product=chip, subs={M: 256, N: 256, K: 256})

    flops = 2 * 256**3
    hopper, cdna = both("H200"), both("MI300X")
    assert set(hopper.pipe_seconds) == {"matrix f16", "vector f32"}
    assert hopper.seconds_by["compute"] == hopper.pipe_seconds["vector f32"] > hopper.pipe_seconds["matrix f16"]
    assert (hopper.unit, hopper.dtype) == ("vector", "f32")
    assert cdna.unit == "matrix" and cdna.dtype == "f32"
    both_of = cdna.pipe_seconds["matrix f16"] + cdna.pipe_seconds["matrix f32"]
    assert cdna.seconds_by["compute"] == pytest.approx(both_of)
    assert cdna.peak_compute == pytest.approx(2 * flops / both_of)


@pytest.mark.parametrize("chip", ("A100", "H200", "MI300X"))
@pytest.mark.parametrize("tile", [(64, 32), (128, 64)])
def test_flop_and_traffic_of_a_causal_loop_are_counted_by_its_ranges(chip, tile):
    """Tile i of queries goes over the keys up to its own end."""
    rows = tile[0]
    whole, part = (wd.analyze(weighted(x, tile), product=chip, subs=SCORES) for x in (False, True))
    b, m, d, e = (SCORES[x] for x in (B, M, D, E))
    seen = sum(rows * rows * (i + 1) for i in range(m // rows))
    assert whole.flops_by["product f16"] == 2 * b * m * m * (d + e)
    assert part.flops_by["product f16"] == 2 * b * seen * (d + e)
    assert part.pipe_seconds["matrix f16"] < 0.7 * whole.pipe_seconds["matrix f16"]
    # Queries once, results once, and every tile's keys and values. Pipelines run ahead of what a range still has.
    tiles = b * sum(rows * (i + 1) * 2 * (d + e) for i in range(m // rows))
    least = b * m * 2 * (d + e) + tiles
    assert least <= part.traffic.l2 <= 1.1 * least
    assert part.traffic.l2 < whole.traffic.l2 and part.traffic.shared < 0.75 * whole.traffic.shared
    assert part.traffic.hbm <= whole.traffic.hbm


@pytest.mark.parametrize("chip", ("A100", "H200", "MI300X"))
def test_a_causal_loop_takes_about_half_as_long(chip):
    """Where units have many workgroups, or tiles, the mean of them counts, not the first, which has least to do."""
    sizes = {**SCORES, B: 32, M: 4096, N: 4096}
    part = wd.analyze(weighted(True, (64, 32) if chip != "H200" else (128, 64)), product=chip, subs=sizes)
    # At least the matrix units' time for half of the products; all of them would be twice as long.
    assert 1 < part.seconds / part.seconds_by["compute"] < 4
    assert part.utilisation.get("mfma", part.utilisation.get("tensor")) > 0.25


def test_ranges_that_begin_late_and_do_not_divide_their_tiles():
    """A window of 100 keys before a tile of 64 queries: minimal by elements, executed by tiles of 32 keys."""
    r = wd.analyze(weighted(True, window=100), product="MI300X", subs={**SCORES, M: 200, N: 200})
    ends = [(max(0, i - 100), min(i + 64, 200)) for i in range(0, 200, 64)]
    per = 2 * 4 * (64 + 64)
    queries = [64, 64, 64, 8]
    assert r.flops_by["product f16"] == per * sum(n * (hi - lo) for n, (lo, hi) in zip(queries, ends))
    executed = per * sum(64 * 32 * (-(-hi // 32) - lo // 32) for lo, hi in ends)
    vector = sum(s * product_named("MI300X").peak(name.split()[1], "vector", get_target("gfx942"))
                 for name, s in r.pipe_seconds.items() if name.startswith("vector"))  # fmt: skip
    assert r.flops_executed - vector == pytest.approx(executed)


def test_a_range_that_data_decide_counts_as_the_whole_dimension():
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(K, 32)], subs={N: 64})
    def some(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], count: wd.Memory[B, wd.i32], c: wd.Memory[M, N, wd.f32]
    ):
        stop = wd.read(count, mapping=wd.IndexMapping((), {B: 0}))

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)], stop=stop)
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    r = wd.analyze(some, target="gfx942", subs={M: 64, K: 256, B: 1})
    assert r.flops == r.flops_executed == 2 * 64 * 64 * 256


FAMILY = {
    "f16": (product(wd.f16), {M: 1024, N: 1024, K: 1024}),
    "f32": (product(wd.f32, (128, 64, 16)), {M: 1024, N: 1024, K: 512}),
    "f64": (product(wd.f64, (64, 64, 16), wd.f64), {M: 512, N: 512, K: 256}),
    "gated": (gated(wd.bf16), SQUARE),
    "full": (weighted(False), SCORES),
    "causal": (weighted(True), SCORES),
    "long causal": (weighted(True, (128, 64)), {**SCORES, B: 32, M: 4096, N: 4096}),
    "copy": (copy(), {M: 2048, N: 2048}),
    "rows f32": (rows_of(wd.f32), {M: 2048, N: 1024}),
    "rows f64": (rows_of(wd.f64), {M: 1024, N: 512}),
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", FAMILY)
def test_no_pipe_is_busy_for_longer_than_there_is_time(name, chip):
    kernel, sizes = FAMILY[name]
    r = wd.analyze(kernel, product=chip, subs=sizes)
    amd = r.target.startswith("gfx")
    assert r.utilisation and max(r.utilisation.values()) <= 1.005, r.utilisation
    theirs = {"mfma", "valu", "salu", "vmem", "lds", "memory"}
    if not amd:
        theirs = {"tensor", "fma", "alu", "f64", "sfu", "cvt", "lsu", "l1", "memory", "uniform", "issue"}
    assert set(r.utilisation) <= theirs


def test_multiply_adds_take_half_as_long_on_hopper():
    """128 lanes of f32 per clock and SM, 64 on A100: full pipes are one share, not 166 %."""
    sizes = {M: 2048, N: 2048, K: 1024}
    shares = [wd.analyze(FAMILY["f32"][0], product=chip, subs=sizes) for chip in ("A100", "H200")]
    for r, lanes in zip(shares, (64, 128)):
        clocks = -(-sizes[M] // 128) * (sizes[N] // 64) * 128 * 64 * sizes[K] / lanes
        chip = product_named(r.product)
        assert r.utilisation["fma"] * r.clocks == pytest.approx(clocks / chip.units, rel=0.1)
        assert 0.6 < r.utilisation["fma"] <= 1


@pytest.mark.parametrize(("name", "clocks"), [("sm_80", 2), ("sm_90a", 1)])
def test_what_is_issued_is_counted_at_the_chip_s_rates(name, clocks):
    """A multiply-add of 32 lanes takes a quarter of an SM 2 clocks where the SM has 64 lanes, 1 where it has 128."""
    target = get_target(name)
    kernel, _ = FAMILY["f32"]
    sizes = {M: 1024, N: 1024, K: 512}
    issued = count_issued(kernel.compile(target=name, subs=sizes), target, sizes)
    assert issued.clocks["fma"] == pytest.approx(clocks * 1024 * 1024 * 512 / 32, rel=0.05)
    total, busy = unit_clocks(issued, target, target.units, 2)
    assert total > 0 and max(busy.values()) <= 1


@pytest.mark.parametrize("chip", ("A100", "H200", "MI300X"))
@pytest.mark.parametrize("empty", [{M: 0}, {N: 0}, {K: 0}, {M: 0, N: 0, K: 0}])
def test_empty_extents_have_a_record(chip, empty):
    r = wd.analyze(product(wd.f16), product=chip, subs={M: 256, N: 256, K: 256} | empty)
    assert r.flops == r.flops_executed == 0
    if set(empty) == {K}:  # results are written, as zeros
        assert r.seconds > 0 and r.traffic.hbm == 256 * 256 * 4
    else:
        assert (r.seconds, r.bytes, r.clocks, r.bound, r.recommended_strategy) == (0.0, 0, 0, "nothing", "none")
        assert "an extent is 0" in str(r)
    assert json.loads(json.dumps(r.to_json()))["flops"] == 0


def test_an_empty_batch_has_a_record():
    r = wd.analyze(weighted(True), product="H200", subs={**SCORES, B: 0})
    assert (r.seconds, r.flops, r.bound) == (0.0, 0, "nothing")
