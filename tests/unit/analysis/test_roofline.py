"""The roofline record: counts by hand against counts from graph and kernel IR, published peaks, the bound that
follows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from wavedsl.ir.dataflow.graph import ValueType
from wavedsl.ir.dataflow.ops import ROWS

import wavedsl as wd
from wavedsl import cli
from wavedsl.analysis import analyze_gemm, product_named
from wavedsl.analysis.flops import FLOPS, PER_INPUT, PRODUCTS
from wavedsl.analysis.plot import plot_roofline
from wavedsl.analysis.roofline import analyze_compiled, products
from wavedsl.strategies.kernels import Form, added
from wavedsl.targets import get_target

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")
TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BM: 16, BN: 64})
def double(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(a) * 2.0, b)


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, BM / 2),
        wd.WaveConstraint(N, BN / 2),
    ],
    subs={BM: 64, BN: 64, BK: 32},
)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(N, BN)], subs={BM: 16, BN: 64})
def row_sum(a: wd.Memory[M, N, wd.f32], s: wd.Memory[M, wd.f32]):
    total = wd.Register[M, wd.f32](0.0)

    @wd.iterate(N, init_args=[total])
    def loop(total):
        return total + wd.sum(wd.read(a), dim=N)

    wd.write(loop, s)


PUBLISHED = [
    # Dense peaks of the data sheets, in TFLOP/s.
    ("MI250X die", "f16", "matrix", 191.5), ("MI250X die", "f64", "matrix", 47.9),
    ("MI250X die", "f64", "vector", 23.9),
    ("MI300X", "bf16", "matrix", 1307.4), ("MI300X", "f8e4m3fnuz", "matrix", 2614.9),
    ("MI300X", "f64", "matrix", 163.4),
    ("MI300X", "f32", "vector", 163.4), ("MI300X", "f64", "vector", 81.7), ("MI300X", "tf32", "matrix", 653.7),
    ("MI355X", "f16", "matrix", 2517.0), ("MI355X", "f8e4m3", "matrix", 5033.0), ("MI355X", "f64", "vector", 78.6),
    ("A100", "f16", "matrix", 312.0), ("A100", "tf32", "matrix", 156.0), ("A100", "f64", "matrix", 19.5),
    ("A100", "f32", "vector", 19.5), ("A100", "f64", "vector", 9.7),
    ("H100 SXM", "bf16", "matrix", 989.5), ("H100 SXM", "f8e4m3", "matrix", 1979.0), ("H200", "f16", "matrix", 989.5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "unit", "tflops"), PUBLISHED)
def test_peaks_are_the_data_sheets(name, dtype, unit, tflops):
    product = product_named(name)
    assert product.peak(dtype, unit, get_target(product.target)) / 1e12 == pytest.approx(tflops, rel=0.01)


def test_hopper_s_balance_points():
    """295 FLOP per byte on H100 and 206 on H200 (the reference sheet's figures)."""
    assert analyze_gemm(64, 64, 64, "bf16", product="H100 SXM").balance_point == pytest.approx(295, abs=1)
    assert analyze_gemm(64, 64, 64, "bf16", product="H200").balance_point == pytest.approx(206, abs=1)


def test_every_target_has_a_reference_product_and_every_bandwidth_is_positive():
    for target in TARGETS:
        assert product_named(None, target).target == target
    for product in products():
        chip = get_target(product.target)
        assert 0 < product.hbm < product.l2_bandwidth(chip) <= product.clock * product.units * 64
        assert product.shared_bandwidth(chip) >= product.l2_bandwidth(chip)


def test_every_operation_is_counted_or_free():
    """A new row of the language must say whether it is arithmetic."""
    free = {"bitand", "bitor", "bitxor", "invert", "shl", "shr", "lt", "le", "gt", "ge", "eq", "ne", "where", "index"}
    free |= {"cast", "bitcast", "read", "write", "fill", "constant", "scalar", "size", "iterate", "carry", "result"}
    free |= {"any", "all", "sort", "topk", "broadcast", "permute", "reshape", "random"}
    free |= {"device_print", "device_assert", "isnan", "isinf", "isfinite"}
    free |= {"popcount", "clz", "ctz", "bit_reverse", "rotate_left", "permute_bytes"}  # these and the next: of integers
    free |= {"mulhi", "saturating_add", "saturating_sub"}
    named = set(FLOPS) | PER_INPUT | PRODUCTS
    assert named <= set(ROWS)
    rest = {name for name in set(ROWS) - named - free if not name.startswith("atomic_")}
    compute = {name for name in rest if ROWS[name].compute is not None}
    assert compute == set(), f"say in FLOPS what {compute} count"


@pytest.mark.parametrize("target", TARGETS)
def test_elementwise_counts_are_exact(target):
    r = wd.analyze(double, target=target, subs={M: 256, N: 512})
    assert (r.flops, r.bytes) == (256 * 512, 2 * 4 * 256 * 512)
    assert (r.traffic.hbm, r.traffic.l2, r.traffic.shared) == (r.bytes, r.bytes, 0)
    assert r.is_memory_bound and r.recommended_strategy == "stream" and r.unit == "vector"
    assert r.kernel_tiles.vector_width == 4


@pytest.mark.parametrize("target", TARGETS)
def test_gemm_counts_are_exact(target):
    m, n, k = 256, 128, 96
    r = wd.analyze(gemm, target=target, subs={M: m, N: n, K: k})
    assert r.flops == r.flops_executed == 2 * m * n * k
    assert r.bytes == 2 * (m * k + n * k) + 4 * m * n
    # Every workgroup reads its 64 rows of A and 64 of B once; guarded copies past the end move nothing.
    assert r.traffic.l2 == (m // 64) * (n // 64) * 2 * 64 * k * 2 + 4 * m * n
    # Into shared memory once; out of it by the two waves that share each row. The pipeline runs ahead of 3 trips by 2.
    staged = (m // 64) * (n // 64) * 2 * 64 * k * 2
    assert staged + 2 * staged <= r.traffic.shared <= (staged + 2 * staged) * 5 // 3
    assert r.kernel_tiles.tile_m == r.kernel_tiles.tile_n == 64 and r.kernel_tiles.tile_k == 32
    assert (r.kernel_tiles.waves_m, r.kernel_tiles.waves_n, r.kernel_tiles.vector_width) == (2, 2, 8)
    assert r.bound in r.seconds_by and r.seconds == max(r.seconds_by.values()) > 0


def test_a_warpgroup_kernel_counts_bulk_copies_and_operands_in_shared_memory():
    """One thread requests the boxes, the matrix unit reads them from shared memory; the accumulators stay in
    registers."""

    @wd.wave(
        [
            wd.HardwareConstraint(threads_per_wave=128),
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, 64),
        ],
        subs={BM: 128, BN: 128, BK: 64},
    )
    def hopper(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    m, n, k = 1024, 512, 2048
    r = wd.analyze(hopper, target="sm_90a", subs={M: m, N: n, K: k})
    staged = (m // 128) * (n // 128) * 2 * 128 * k * 2
    assert r.bytes == 2 * (m * k + n * k) + 4 * m * n
    assert r.traffic.l2 == staged + 4 * m * n
    # In once; out: 64 rows of A and all of B for each of the two computing warpgroups.
    # C goes out through shared memory as boxes.
    assert r.traffic.shared == staged + staged // 2 + staged + 2 * 4 * m * n
    assert r.kernel_tiles.waves_m == 2
    # 64 x 128 x 16 takes 64 clocks of the SM.
    groups = (m // 128) * (n // 128)
    assert r.utilisation["tensor"] * r.clocks == pytest.approx(2 * (k // 16) * 64 * -(-groups // 132), rel=0.01)
    # Persistent workgroups take several tiles each.
    wide = wd.analyze(hopper, target="sm_90a", subs={M: m, N: 16 * n, K: k})
    assert wide.traffic.l2 == pytest.approx(16 * r.traffic.l2, rel=1e-6)
    assert wide.utilisation["tensor"] * wide.clocks == pytest.approx(2 * (k // 16) * 64 * 16 * groups / 132, rel=0.05)


def test_ragged_sizes_execute_whole_tiles():
    r = wd.analyze(gemm, target="gfx942", subs={M: 65, N: 64, K: 33})
    assert r.flops == 2 * 65 * 64 * 33
    assert r.flops_executed == 2 * 128 * 64 * 64


def test_pages_of_a_pool_are_not_gone_through():
    """Dimensions that arrays alone have are no repetition: every access says which page it means."""
    P, S = wd.symbols("P S")

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 32)], subs={N: 512})
    def scores(a: wd.Memory[M, K, wd.f16], pool: wd.Memory[P, S, K, wd.f16], table: wd.Memory[N, wd.i32],
               c: wd.Memory[M, wd.f32]):  # fmt: skip
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(acc):
            number = wd.read(table, mapping=wd.IndexMapping((), {N: wd.tile_start(N) // 32}))
            rows = wd.read(pool, mapping=wd.IndexMapping((N, K), {P: number, S: N % 32}))
            return acc + wd.sum(wd.mma(wd.read(a), rows, wd.Register[M, N, wd.f32](0.0)), dim=N)

        wd.write(loop, c)

    r = wd.analyze(scores, target="gfx942", subs={M: 64, K: 64, P: 1000, S: 32})
    assert r.flops_by["product f16"] == 2 * 64 * 512 * 64
    assert r.flops_executed == r.flops


def test_run_time_extents_need_a_value():
    subs = {M: 2048, N: 2048}  # so many tiles are not cut along K, which a launch's extents never are
    compiled = gemm.compile(target="gfx942", subs=subs, dynamic=[K])
    from wavedsl.analysis.roofline import analyze_compiled

    with pytest.raises(wd.ConstraintError, match="K has no value"):
        analyze_compiled(compiled, subs)
    dynamic = analyze_compiled(compiled, {**subs, K: 4096})
    static = wd.analyze(gemm, target="gfx942", subs={**subs, K: 4096})
    assert dynamic.flops == static.flops
    assert dynamic.traffic.l2 == pytest.approx(static.traffic.l2, rel=0.05)


def test_a_reduction_counts_its_inputs():
    r = wd.analyze(row_sum, target="sm_80", subs={M: 64, N: 1024})
    assert r.flops == 64 * 1024 + 64 * (1024 // 64)
    assert r.bytes == 4 * (64 * 1024 + 64)


def test_arrays_bind_the_sizes():
    a = np.zeros((64, 64), np.float32)
    assert wd.analyze(double, a, a.copy(), target="gfx942").flops == 64 * 64


def test_predictions_follow_the_shape():
    """Large products are bound by the matrix pipes, thin ones by memory, and the time grows with the work."""
    large = wd.analyze(gemm, target="sm_80", subs={M: 2048, N: 2048, K: 4096})
    thin = wd.analyze(gemm, target="sm_80", subs={M: 2048, N: 2048, K: 32})
    assert not large.is_memory_bound and large.bound in ("issue", "compute", "shared")
    assert large.utilisation["tensor"] > 0.5
    assert thin.is_memory_bound and thin.recommended_strategy == "cache_persistent"
    assert large.seconds > 4 * thin.seconds


def test_the_strategy_knows_thin_sides_and_idle_units():
    assert analyze_gemm(1, 8192, 8192, "bf16", product="H200").recommended_strategy == "gemv"
    assert analyze_gemm(32, 8192, 8192, "bf16", product="H200").recommended_strategy == "skinny"
    assert analyze_gemm(256, 256, 65536, "bf16", product="H200").recommended_strategy == "split_k"
    split = analyze_gemm(256, 256, 65536, "bf16", product="H200").tiles.split
    assert split > 1
    stream_k = analyze_gemm(1280, 1024, 8192, "bf16", product="H200")
    assert stream_k.recommended_strategy in ("wave_parallel", "stream_k", "split_k")


def test_the_record_prints_and_is_json():
    r = wd.analyze(gemm, target="gfx950", subs={M: 256, N: 128, K: 96})
    text = str(r)
    assert "balance at" in text and "predicted" in text and "strategy" in text
    large = str(analyze_gemm(4096, 4096, 4096, "f16", product="MI300X"))  # the compiler's stages; not bound by bytes
    assert "stages by schedule" in large and "arithmetic units busy" in large
    back = json.loads(json.dumps(r.to_json()))
    assert back["flops"] == r.flops and back["tiles"]["tile_m"] == r.tiles.tile_m
    assert back.keys() >= {
        "flops", "bytes", "intensity", "is_memory_bound", "recommended_strategy", "why", "peak_compute",
        "peak_bandwidth", "balance_point", "balance_points", "bound", "seconds",
    }  # fmt: skip
    assert back["tiles"].keys() >= {
        "tile_m", "tile_n", "tile_k", "pipeline_stages", "waves_m", "waves_n", "vector_width", "prefetch_distance",
    }  # fmt: skip
    assert back["minimal"].keys() == back["traffic"].keys() == {"hbm", "l2", "shared"}


def test_unknown_names_are_refused():
    with pytest.raises(wd.ConstraintError, match="no product 'A1000'"):
        product_named("A1000")
    with pytest.raises(wd.ConstraintError, match="runs sm_80 text"):
        product_named("A100", "sm_90a")
    with pytest.raises(wd.ConstraintError, match="unknown strategy"):
        analyze_gemm(64, 64, 64, "f16", strategy="magic")


def test_values_without_a_type_are_not_counted():
    assert not any(isinstance(n.type, tuple) and n.op in FLOPS for n in gemm.trace({M: 64, N: 64, K: 64}).all_nodes())
    assert isinstance(next(n for n in double.trace({M: 64, N: 64}).all_nodes() if n.op == "mul").type, ValueType)


def test_inspect_prints_the_roofline_and_draws_it(capsys, tmp_path: Path):
    source = Path(__file__).parents[2] / "helpers" / "cold_gemm.py"
    picture = tmp_path / "roofline.png"
    pytest.importorskip("matplotlib")
    status = cli.main(
        [
            "inspect",
            f"{source}:gemm",
            "--subs",
            "M=256,N=256,K=256",
            "--product",
            "H200",
            "--roofline",
            "--plot",
            str(picture),
        ]
    )
    said = capsys.readouterr()
    assert status == 0, said.err
    assert "on H200 (sm_90a)" in said.out and picture.read_bytes()[:4] == b"\x89PNG"


def test_measured_points_are_drawn(tmp_path: Path):
    pytest.importorskip("matplotlib")
    r = wd.analyze(double, target="sm_80", subs={M: 256, N: 512})
    hollow = plot_roofline(r, tmp_path / "a.svg").read_text()
    filled = plot_roofline([r], tmp_path / "b.svg", {"double": 1e-5}).read_text()
    assert hollow.count("<use") < filled.count("<use")


def test_what_a_launch_in_front_has_written_comes_from_l2():
    """Sums of 8 parts of 512 x 512, 8 MB: with them in L2 nothing but the result passes by memory, at L2's latency."""
    form = Form(wd.bf16, wd.bf16, True)
    sums, c = np.empty((8, 512, 512), np.float32), np.empty((512, 512), wd.bf16.storage)
    kernel = added(form, 8)
    made = kernel.compile(sums, c, 1.0, 0.0, target="sm_90a")
    binding = kernel.binding(kernel.bind_arguments((sums, c, 1.0, 0.0), {}), None)
    sizes = {**binding.dims, **binding.extents}
    far, near = (analyze_compiled(made, sizes, product="H200", held=held) for held in ((), ("sums",)))
    assert far.traffic.hbm == sums.nbytes + c.nbytes and near.traffic.hbm == c.nbytes
    assert near.bytes == far.bytes and near.traffic.l2 == far.traffic.l2
    assert near.clocks < 0.8 * far.clocks


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("group", "tile"), [(128, 64), (40, 64)])
def test_factors_of_more_than_a_tile(group: int, tile: int, target: str) -> None:
    """Scales that stand for several tiles of K, or for no whole number of them: the traced graph's tiles are no whole
    elements of K / 128, which was an error here though the kernel compiles."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, tile)])
    def scaled(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.u4], s: wd.Memory[N, K / group, wd.f16],
        c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            return wd.mma(wd.read(a), wd.cast(wd.read(b), wd.f16) * wd.repeat_interleave(wd.read(s), K), acc)

        wd.write(total, c)

    sizes = {M: 128, N: 128, K: 5 * 256}
    found = wd.analyze(scaled, target=target, subs=sizes)
    assert found.seconds > 0 and found.flops >= 2 * 128 * 128 * 1280
    assert {p.k for p in found.products} == {1280}
