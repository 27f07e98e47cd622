"""Clusters along both grid axes: each workgroup brings its share of A to its column and of B to its row.

On the emulated sm_90a with all checks, exact: types, orders, shapes, tiles taken in turn, turns of two warpgroups,
parts of sums, run-time extents, products that share operands. A copy to the wrong workgroups and an arrival that is
missing, or made twice at one workgroup and never at another, must be found.
"""

from __future__ import annotations

import re
from typing import Any

import example_files
import hopper
import numpy as np
import products
import pytest
from hopper import tiles
from products import BF16, BK, BM, BN, F16, TILE, K, Kind, M, N, numbers
from wavedsl.ir.grid.cluster_shape import ClusterShape
from wavedsl.ir.kernel.builder import Builder

import wavedsl as wd
from wavedsl.reports import schedule_text

pytestmark = pytest.mark.warpgroups

attention = example_files.load("attention")
FP8 = Kind("f8e4m3", wd.f8e4m3, wd.f32, wd.f32)
SMALL = tiles(64, 64, 64, 64, 64)
WIDE = tiles(128, 64, 64, 64, 64)


def slow(*values: Any) -> Any:
    """A case that is not part of the default run."""
    return pytest.param(*values, marks=pytest.mark.slow)


def clustered(shape: tuple[int, ...], **options: Any) -> wd.Schedule:
    return wd.Schedule(cluster=shape, **options)


def multiply(
    kind: Kind, sizes: tuple[int, int, int], schedule: wd.Schedule, subs: dict[Any, int] = SMALL, orders: str = "MK NK",
    workgroups: int = 0, **options: Any,
) -> wd.CompiledKernel:  # fmt: skip
    """Compile for these sizes, emulate with so many workgroups (0: one tile each), expect the exact product."""
    (m, n, k), (a_order, b_order) = sizes, orders.split()
    a_type, b_type = (own or kind.dtype for own in options.get("stored", (None, None)))
    a = numbers((m, k) if a_order == "MK" else (k, m), a_type, 1)
    b = numbers((n, k) if b_order == "NK" else (k, n), b_type, 2)
    c = np.full((m, n), products.SENTINEL).astype(kind.out.storage)
    kernel = hopper.gemm(kind, a_order, b_order, schedule=schedule, **options)
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=subs)
    if workgroups:
        compiled.grid = (workgroups, 1, 1)
    compiled.emulate(a, b, c)
    left, right = (a if a_order == "MK" else a.T), (b if b_order == "NK" else b.T)
    products.expect_equal(c, products.exact(left, right, kind)[0], kind)
    return compiled


@pytest.mark.parametrize(
    ("kind", "sizes", "shape", "orders", "workgroups"),
    [
        (BF16, (128, 128, 200), (2, 2, 1), "MK NK", 0),
        (F16, (256, 256, 200), (2, 2, 1), "MK KN", 4),
        (FP8, (128, 512, 208), (2, 4, 1), "MK NK", 0),
        slow(F16, (256, 256, 136), (2, 2, 1), "KM KN", 8),
        slow(F16, (256, 256, 136), (2, 2), "KM NK", 4),
        slow(FP8, (512, 256, 208), (4, 2, 1), "MK NK", 8),
        slow(BF16, (384, 128, 72), (3, 2, 1), "MK NK", 0),  # 64 rows are no three shares: B is not shared
    ],
    ids=str,
)
def test_both_axes(
    kind: Kind, sizes: tuple[int, int, int], shape: tuple[int, ...], orders: str, workgroups: int
) -> None:
    compiled = multiply(kind, sizes, clustered(shape), orders=orders, workgroups=workgroups)
    x, y = shape[:2]
    assert f".reqnctapercluster {x * y}, 1, 1" in compiled.asm
    assert f"cluster: {x} x {y} workgroups along the first two grid axes" in schedule_text(compiled.kernel_ir)
    read_a, read_b = (line for line in compiled.decisions.text().splitlines() if "into ring" in line)
    assert f"to {y} workgroups" in read_a and (f"to {x} workgroups" in read_b) == (x != 3)


@pytest.mark.parametrize(
    ("sizes", "subs", "schedule", "workgroups", "options"),
    [
        ((100, 248, 136), SMALL, clustered((2, 2, 1)), 4, {}),  # tiles that stick out
        ((256, 128, 136), WIDE, clustered((2, 2, 1)), 0, {}),  # two warpgroups compute
        ((256, 256, 136), SMALL, clustered((2, 2, 1), ping_pong=True), 8, {}),
        slow((256, 256, 264), SMALL, clustered((2, 2, 1), ping_pong=False, stages=2), 4, {}),
        slow((256, 256, 72), SMALL, clustered((2, 2, 1), stages=1), 4, {}),
        slow((128, 128, 144), SMALL, clustered((2, 2, 1), swizzle=False), 0, {"stored": (wd.i8, None)}),
        slow((128, 128, 144), SMALL, clustered((2, 2, 1)), 0, {"stored": (None, wd.i8)}),
    ],
    ids=["ragged", "two warpgroups", "in turn", "two stages", "one stage", "A computed", "B computed"],
)
def test_with_other_choices(
    sizes: tuple[int, int, int], subs: dict[Any, int], schedule: wd.Schedule, workgroups: int, options: dict[str, Any]
) -> None:
    kind = F16 if "stored" in options else BF16
    compiled = multiply(kind, sizes, schedule, subs, workgroups=workgroups, **options)
    assert "multicast::cluster" in compiled.asm
    assert ("take tiles in turn" in schedule_text(compiled.kernel_ir)) == (
        schedule.ping_pong is not False and subs[BM] == 64
    )


@pytest.mark.parametrize(("m", "n"), [(64, 64), (192, 256), slow(320, 200)])
def test_run_time_extents_may_leave_workgroups_without_a_tile(m: int, n: int) -> None:
    """They take part in their cluster's copies all the same."""
    kernel = hopper.gemm(BF16, schedule=clustered((2, 2, 1)))
    compiled = kernel.compile(target="sm_90a", subs={**SMALL, K: 136}, dynamic=(M, N))
    a, b = numbers((m, 136), wd.bf16, 1), numbers((n, 136), wd.bf16, 2)
    c = np.full((m, n), products.SENTINEL).astype(BF16.out.storage)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, BF16)[0], BF16)


@pytest.mark.parametrize("shape", [(2, 2, 1), slow((1, 2, 1))])
def test_parts_of_sums(shape: tuple[int, ...]) -> None:
    compiled = multiply(BF16, (128, 128, 264), clustered(shape, split_k=2))
    assert "multicast::cluster" in compiled.asm and compiled.graph.traced is not None


@pytest.mark.parametrize(("shape", "m", "n"), [((2, 1, 1), 64, 200), ((2, 2, 1), 192, 64), slow((1, 2, 1), 128, 64)])
def test_parts_of_sums_past_the_end(shape: tuple[int, ...], m: int, n: int) -> None:
    """Workgroups without a tile, where a run-time extent does not fill the last cluster, count their parts apart from
    the tiles' that follow."""
    kernel = hopper.gemm(BF16, schedule=clustered(shape, split_k=2))
    compiled = kernel.compile(target="sm_90a", subs={**SMALL, K: 136}, dynamic=(M, N))
    a, b = numbers((m, 136), wd.bf16, 1), numbers((n, 136), wd.bf16, 2)
    c = np.full((m, n), products.SENTINEL).astype(BF16.out.storage)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, BF16)[0], BF16)


def two_products(schedule: wd.Schedule) -> Any:
    """Two products of the same rows."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
         wd.HardwareConstraint(threads_per_wave=128)], schedule=schedule,
    )  # fmt: skip
    def both(
        a: wd.Memory[M, K, wd.SHARED, wd.bf16], b: wd.Memory[N, K, wd.SHARED, wd.bf16],
        d: wd.Memory[N, K, wd.SHARED, wd.bf16], x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero, zero])
        def loop(one, two):
            rows = wd.read(a)
            return wd.mma(rows, wd.read(b), one), wd.mma(rows, wd.read(d), two)

        wd.write(loop[0], x)
        wd.write(loop[1], y)

    return both


def test_several_products() -> None:
    """Three rings: rows that both products read come from the row of the cluster's column, each B from its row."""
    a, b, d = (numbers((128, 136), wd.bf16, i) for i in range(3))
    x, y = (np.full((128, 128), np.nan, np.float32) for _ in range(2))
    subs = dict(zip(TILE[:3], (64, 64, 64)))
    compiled = two_products(clustered((2, 2, 1))).compile(a, b, d, x, y, target="sm_90a", subs=subs)
    assert compiled.decisions.text().count("to 2 workgroups") == 3
    compiled.emulate(a, b, d, x, y)
    for got, second in ((x, b), (y, d)):
        products.expect_equal(got, products.exact(a, second, BF16)[0], BF16)


def test_tiles_that_only_rows_share() -> None:
    """Attention: keys and values of a head are the same along its queries, and nothing is along heads."""
    variant = attention.Variant(wd.bf16)
    kernel = attention.attention_kernel(variant, tile=(64, 64))
    kernel.schedule = clustered((2, 2, 1))
    given = attention.arguments_of(variant, {"b": 1, "h": 2, "m": 128, "n": 128, "d": 64, "e": 64})
    compiled = kernel.compile(**given, target="sm_90a")
    assert len(re.findall(r"to 2 workgroups", compiled.decisions.text())) == 2
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0


def broken(**options: Any) -> None:
    """Two rounds of the slots of a ring, in two tiles of each workgroup."""
    multiply(BF16, (256, 128, 264), clustered((2, 2, 1), stages=2, **options), workgroups=4)


def test_arrivals_that_go_elsewhere_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row alone is told, one of it twice: as many arrivals as barriers wait for, but nobody in the column waits for
    this workgroup."""
    broken()

    def in_row(shape: ClusterShape, b: Any, number: Any, kinds: Any) -> Any:
        row = b.udiv(b.cluster_rank(), shape.sizes[0])
        return b.add(b.min_s(number, 1), b.mul(row, shape.sizes[0]))

    monkeypatch.setattr(ClusterShape, "partner", in_row)
    with pytest.raises(wd.EmulationError, match=r"race|wait"):
        broken()


def test_a_missing_arrival_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the three that a slot is given back to, the one of the column is told nothing: its next copy never comes. If
    its barrier does not wait for this workgroup either, it comes too early."""
    honest = Builder.signal_arrive_at

    def less(b: Builder, addr: Any, cta: Any, mask: Any) -> Any:
        return honest(b, addr, cta, b.pand(mask, b.cmp("slt", b.lane(), 2)))

    monkeypatch.setattr(Builder, "signal_arrive_at", less)
    with pytest.raises(wd.EmulationError, match="never completes"):
        broken()
    monkeypatch.setattr(ClusterShape, "partners", lambda shape, kinds: 2)
    with pytest.raises(wd.EmulationError, match=r"race|wait"):
        broken()


@pytest.mark.parametrize("kind", ["row for column", "all"])
def test_copies_to_the_wrong_workgroups_are_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ClusterShape.receivers

    def elsewhere(shape: ClusterShape, b: Any, axes: Any) -> Any:
        return 15 if kind == "all" else honest(shape, b, (1 - axes[0],))

    monkeypatch.setattr(ClusterShape, "receivers", elsewhere)
    with pytest.raises(wd.EmulationError):
        broken()


@pytest.mark.parametrize(
    ("schedule", "why", "hint"),
    [
        ({"cluster": (4, 4, 1)}, "16 workgroups, and not every chip holds clusters of more than 8", "(2, 2, 1)"),
        ({"cluster": (16, 1, 1)}, "16 workgroups, and not every chip", "(2, 2, 1)"),
        ({"cluster": (2, 2, 2)}, "the third extent of a cluster counts the parts of split_k", "split_k=2"),
        ({"cluster": (2, 2, 1), "persistent": False}, "take tiles in turn", "leave persistent out"),
        ({"cluster": (2, 3, 1)}, "the second grid axis has 16 tiles, no multiple of 3", "choose another tile"),
        ({"cluster": (3, 2, 1)}, "the first grid axis has 16 tiles, no multiple of 3", "choose another tile"),
        ({"cluster": (2, 2, 1), "specialize": False}, "as asked for", "leave cluster out"),
    ],
    ids=["16", "16 along one", "third axis", "not in turn", "second", "first", "no roles"],
)
def test_what_cannot_be_says_why(schedule: dict[str, Any], why: str, hint: str) -> None:
    sizes = {M: 1024, N: 1024, K: 128}
    with pytest.raises(wd.ConstraintError, match=why) as refused:
        hopper.gemm(BF16, schedule=wd.Schedule(**schedule)).compile(target="sm_90a", subs={**SMALL, **sizes})
    assert hint in (refused.value.hint or "")
