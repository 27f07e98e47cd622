"""Products of warpgroups from Python to numbers on the emulated sm_90a, with every check on.

Whole numbers must come out exactly. Each case is one way to get operands to the matrix instructions: bulk copies with
and without a copying warpgroup, rings of one slot and of many, clusters, copies by all threads, transposes on the way.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import hopper
import numpy as np
import products
import pytest
from hopper import strategy, tiles
from products import BF16, BM, F16, F16_OUT, I8, TF32, K, Kind, M, N, numbers
from selected import slow
from wavedsl.runtime import toolchain

import wavedsl as wd
from wavedsl.reports import schedule_text

pytestmark = pytest.mark.warpgroups

FP8 = Kind("f8e4m3", wd.f8e4m3, wd.f32, wd.f32)
FP8_E5M2 = Kind("f8e5m2", wd.f8e5m2, wd.f32, wd.f32)
F16_SUMS = Kind("f16-sums", wd.f16, wd.f16, wd.f16)
SMALL = tiles(64, 64, 64, 64, 64)


def multiply(
    kind: Kind, m: int, n: int, k: int, subs: dict[Any, int] = SMALL, *, a_order: str = "MK", b_order: str = "NK",
    **options: Any,
) -> wd.CompiledKernel:  # fmt: skip
    """Compile for these sizes, emulate with all checks, expect the exact product."""
    a, b, c = operands(kind, m, n, k, a_order, b_order)
    compiled = hopper.gemm(kind, a_order, b_order, **options).compile(a, b, c, target="sm_90a", subs=subs)
    compiled.emulate(a, b, c)
    products.expect_equal(c, wanted(kind, a, b, a_order, b_order), kind)
    return compiled


def operands(kind: Kind, m: int, n: int, k: int, a_order: str, b_order: str) -> tuple[Any, Any, Any]:
    a = numbers((m, k) if a_order == "MK" else (k, m), kind.dtype, 1)
    b = numbers((n, k) if b_order == "NK" else (k, n), kind.dtype, 2)
    return a, b, np.full((m, n), products.SENTINEL).astype(kind.out.storage)


def wanted(kind: Kind, a: Any, b: Any, a_order: str, b_order: str) -> np.ndarray:
    left = a if a_order == "MK" else a.T
    right = b if b_order == "NK" else b.T
    return products.exact(left, right, kind)[0]


@pytest.mark.parametrize("kind", [F16, BF16, F16_OUT, F16_SUMS, FP8, FP8_E5M2, I8, TF32], ids=str)
def test_types(kind: Kind) -> None:
    compiled = multiply(kind, 64, 128, 160, tiles(64, 64, 32, 64, 64))
    found = strategy(compiled)
    assert found.bulk == (kind is not TF32) and found.specialize == found.bulk


@pytest.mark.parametrize("a_order", ["MK", "KM"])
@pytest.mark.parametrize("b_order", ["NK", "KN"])
@pytest.mark.parametrize("kind", [F16, FP8], ids=str)
def test_orders(kind: Kind, a_order: str, b_order: str) -> None:
    """16-bit operands lie as they come; 8-bit ones that are not contiguous along K are transposed by all threads."""
    compiled = multiply(kind, 128, 64, 192, tiles(128, 64, 64, 64, 64), a_order=a_order, b_order=b_order)
    assert strategy(compiled).bulk == (kind is F16 or (a_order, b_order) == ("MK", "NK"))


@pytest.mark.parametrize(
    "subs",
    [tiles(64, 8, 16, 64, 8), tiles(64, 24, 32, 64, 24), tiles(64, 176, 64, 64, 176), tiles(128, 64, 128, 128, 64),
     tiles(192, 64, 64, 64, 64), tiles(64, 64, 48, 64, 64)],
    ids=lambda s: "x".join(map(str, s.values())),
)  # fmt: skip
@pytest.mark.parametrize("b_order", [pytest.param("NK", marks=pytest.mark.slow), "KN"])
def test_tiles(subs: dict[Any, int], b_order: str) -> None:
    bm, bn, bk, *_ = subs.values()
    multiply(F16, bm, 2 * bn, 3 * bk, subs, b_order=b_order)


@pytest.mark.parametrize(
    ("stages", "specialize"),
    [(1, True), (2, False), (3, True), *(slow(*x) for x in ((1, False), (2, True), (3, False), (7, True), (7, False)))],
)
def test_rings(stages: int, specialize: bool) -> None:
    compiled = multiply(F16, 64, 64, 5 * 64, schedule=wd.Schedule(stages=stages, specialize=specialize))
    assert strategy(compiled).stages == min(stages, 5) and strategy(compiled).specialize is specialize


@pytest.mark.parametrize(("subs", "handed"), [(SMALL, False), (tiles(128, 64, 64, 64, 64), True)])
def test_a_warpgroup_that_fills_its_own_ring_waits_for_no_empty_slot(subs: dict[Any, int], handed: bool) -> None:
    """Another warpgroup has to say that it has read a slot; one alone has waited for its products itself."""
    asm = multiply(BF16, 128, 64, 264, subs, schedule=wd.Schedule(specialize=False, stages=2)).asm
    arrivals = re.findall(r"mbarrier\.arrive\.shared::cta", asm)
    assert len(re.findall(r"mbarrier\.init", asm)) == (4 if handed else 2)
    assert bool(arrivals) is handed
    waits = re.findall(r"mbarrier\.try_wait\S+ %p\d+, \[([^\]]+)\]", asm)
    assert len(waits) == (3 if handed else 1)  # for empty slots before the loop and in it, and for full ones


def test_rings_that_are_given_back_together_take_one_barrier() -> None:
    """Both operands are read by lanes, which cast them: one barrier tells that all have, and nothing comes between."""
    a, b = (numbers(shape, BF16.dtype, i).astype(np.float32) for i, shape in enumerate(((64, 264), (72, 264)), 1))
    c = np.full((64, 72), products.SENTINEL).astype(BF16.out.storage)
    kernel = hopper.gemm(BF16, schedule=wd.Schedule(stages=2), stored=(wd.f32, wd.f32))
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=SMALL)
    compiled.emulate(a, b, c)
    products.expect_equal(c, a.astype(np.float64) @ b.T.astype(np.float64), BF16)
    behind = compiled.asm[compiled.asm.index("wgmma.commit_group") : compiled.asm.rindex("wgmma.wait_group")]
    assert re.findall(r"bar\.sync|mbarrier\.arrive", behind) == ["bar.sync", *2 * ["mbarrier.arrive"]]


def test_nothing_waits_for_bulk_stores_before_the_first() -> None:
    """Parts of K in memory: fences stand in front of the results, which then go through fresh buffers."""
    a, b, c = operands(BF16, 64, 64, 520, "MK", "NK")
    kernel = hopper.gemm(BF16, schedule=wd.Schedule(stages=2, split_k=2))
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=SMALL)
    compiled.emulate(a, b, c)
    products.expect_equal(c, wanted(BF16, a, b, "MK", "NK"), BF16)
    store, wait = "cp.async.bulk.tensor.2d.global", "cp.async.bulk.wait_group"
    assert 0 < compiled.asm.index(store) < compiled.asm.index(wait)
    barriers = re.findall(r"^    (?:bar\.sync +(\S+), 128;|(?:ld|st|cp)\.)", compiled.asm, re.MULTILINE)
    assert not any(x and y for x, y in zip(barriers, barriers[1:]))  # noqa: RUF007


def test_asked_for_slots_come_before_buffers_of_results() -> None:
    """Seven slots fit only if results leave from registers; eight do not fit at all."""
    subs = {**tiles(128, 128, 64, 64, 128), hopper.M: 128, hopper.N: 128, hopper.K: 1024}
    compiled = hopper.gemm(F16, schedule=wd.Schedule(stages=7)).compile(target="sm_90a", subs=subs)
    assert strategy(compiled).stages == 7 and not strategy(compiled).outlets
    with pytest.raises(wd.ConstraintError, match=r"Schedule\(stages=8\): rings of 8 slots take \d+ bytes"):
        hopper.gemm(F16, schedule=wd.Schedule(stages=8)).compile(target="sm_90a", subs=subs)


@pytest.mark.parametrize(
    ("k", "specialize"),
    [
        *((0, None), (64, False), (1, None), (40, False), (200, None)),
        *(slow(*x) for x in ((0, False), (64, None), (128, None), (128, False), (1, False), (40, None), (200, False))),
    ],
)
def test_depths(k: int, specialize: bool | None) -> None:
    """No trip, one, two, and a K that does not fill a tile: copies bring zeros."""
    multiply(F16, 64, 64, k, schedule=wd.Schedule(specialize=specialize))


@pytest.mark.parametrize("size", [(100, 72), (1, 8), (65, 200)])
def test_edges(size: tuple[int, int]) -> None:
    multiply(BF16, *size, 136)


@pytest.mark.parametrize("specialize", [None, False])
@pytest.mark.parametrize(("k", "how"), [(136, "bulk"), (132, "async"), (134, "async"), (131, "plain")])
def test_pitches(k: int, how: str, specialize: bool | None) -> None:
    """Rows that are no multiple of 16 bytes are copied by threads: asynchronously from 4 bytes on, by those of the
    copying warpgroup if there is one, else plainly, by all that compute."""
    compiled = multiply(F16, 64, 64, k, schedule=wd.Schedule(specialize=specialize))
    assert ("cp.async.bulk.tensor" in re.sub(r".*global\.shared::cta.*", "", compiled.asm)) == (how == "bulk")
    assert ("cp.async.ca.shared" in compiled.asm) == (how == "async")
    assert ("cp.async.mbarrier" in compiled.asm) == (how == "async" and specialize is None)


def test_a_view_with_a_large_pitch() -> None:
    a, b, c = operands(F16, 64, 64, 128, "MK", "NK")
    a = products.inside(a, (70, 256), (slice(3, 67), slice(8, 136)))
    compiled = hopper.gemm(F16).compile(a, b, c, target="sm_90a", subs=SMALL)
    compiled.emulate(a, b, c)
    products.expect_equal(c, wanted(F16, a, b, "MK", "NK"), F16)
    assert strategy(compiled).bulk


@pytest.mark.parametrize("specialize", [True, False])
def test_persistent_workgroups(specialize: bool) -> None:
    """160 tiles for 132 workgroups: some take a second one, and the rings go on where they were."""
    compiled = multiply(
        F16, 640, 128, 192, tiles(64, 8, 64, 64, 8), schedule=wd.Schedule(persistent=True, specialize=specialize)
    )
    assert compiled.grid[0] == 132


@pytest.mark.parametrize(
    ("subs", "teams"), [(SMALL, 2), (tiles(128, 64, 64, 64, 64), 1)], ids=["in-turn", "together"]
)
@pytest.mark.parametrize("k", [slow(64), 192, slow(320)])
def test_several_tiles_per_workgroup(subs: dict[Any, int], teams: int, k: int) -> None:
    """The launch holds five workgroups where the compiler foresaw 132. Tiles of one warpgroup go to two in turn."""
    a, b, c = operands(F16, 384, 200, k, "MK", "NK")
    compiled = hopper.gemm(F16, schedule=wd.Schedule(persistent=True)).compile(a, b, c, target="sm_90a", subs=subs)
    assert strategy(compiled).teams == teams
    compiled.grid = (5, 1, 1)
    compiled.emulate(a, b, c)
    products.expect_equal(c, wanted(F16, a, b, "MK", "NK"), F16)


@pytest.mark.parametrize("lanes", [128, None])
@pytest.mark.parametrize("rows", [False, True], ids=["free", "rows given"])
def test_tiles_in_turn_are_one_warpgroups(rows: bool, lanes: int | None) -> None:
    """Two warpgroups would share 64 x 128 if nobody asked for turns."""
    lanes_said = [wd.HardwareConstraint(threads_per_wave=lanes)] if lanes else []

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 64),
            *lanes_said, *([wd.WaveConstraint(M, BM)] if rows else []),
        ],
        schedule=wd.Schedule(persistent=True, ping_pong=True),
    )  # fmt: skip
    def gemm(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a, b, c = operands(F16, 320, 200, 128, "MK", "NK")
    compiled = gemm.compile(a, b, c, target="sm_90a", subs={BM: 64})
    assert strategy(compiled).teams == 2
    compiled.grid = (3, 1, 1)
    compiled.emulate(a, b, c)
    products.expect_equal(c, wanted(F16, a, b, "MK", "NK"), F16)
    with pytest.raises(wd.ConstraintError, match="computed by 2 warpgroups together") as refused:
        gemm.compile(target="sm_90a", subs={BM: 192, M: 4096, N: 4096, K: 4096})
    assert "64 x 256 or 128 x 128" in (refused.value.hint or "")


def test_turns_are_the_users_to_choose() -> None:
    """Left out, they are taken (above); refused where tiles are no single warpgroup's, or nobody has two of them."""
    sizes = {M: 384, N: 200, K: 192}

    def compiled(subs: dict[Any, int], **schedule: Any) -> Any:
        return hopper.gemm(F16, schedule=wd.Schedule(**schedule)).compile(target="sm_90a", subs={**subs, **sizes})

    assert strategy(compiled(SMALL, persistent=True, ping_pong=False)).teams == 1
    asked = compiled(SMALL, persistent=True, ping_pong=True)
    assert strategy(asked).teams == 2 and "computing: as asked for" in asked.decisions.reasons
    with pytest.raises(wd.ConstraintError, match=r"ping_pong=True.: a tile is computed by 2 warpgroups together"):
        compiled(tiles(128, 64, 64, 64, 64), persistent=True, ping_pong=True)
    with pytest.raises(wd.ConstraintError, match=r"ping_pong=True.: a workgroup takes one tile"):
        compiled(SMALL, ping_pong=True)
    with pytest.raises(wd.ConstraintError, match=r"ping_pong=True.: no product of the kernel is a warpgroup's"):
        small = {**tiles(32, 32, 32, 16, 16), **sizes}
        products.gemm(F16, schedule=wd.Schedule(ping_pong=True)).compile(target="sm_90a", subs=small)
    with pytest.raises(wd.ConstraintError, match=r"ping_pong=True.: no warpgroup only copies, as asked for"):
        compiled(SMALL, ping_pong=True, specialize=False, persistent=True)


def test_registers_are_the_users_to_divide() -> None:
    """384 threads start with 168 registers each: 3 · 168 = 56 + 2 · 224."""
    subs = {**tiles(128, 64, 64, 64, 64), M: 256, N: 64, K: 128}

    def compiled(subs: dict[Any, int], **schedule: Any) -> Any:
        return hopper.gemm(F16, schedule=wd.Schedule(**schedule)).compile(target="sm_90a", subs=subs)

    asked = multiply(F16, 256, 64, 128, subs=tiles(128, 64, 64, 64, 64), schedule=wd.Schedule(registers=(56, 224)))
    assert "setmaxnreg.dec.sync.aligned.u32 56;" in asked.asm and "setmaxnreg.inc.sync.aligned.u32 224;" in asked.asm
    assert asked.decisions.needs.registers == {"copying": 56, "computing": 224}
    with pytest.raises(wd.ConstraintError, match="3 warpgroups start with 168") as found:
        compiled(subs, registers=(56, 232))
    assert "from 168 to 224 for each of the 2 that compute" in str(found.value)
    with pytest.raises(wd.ConstraintError, match="at most 168 for the copying one"):
        compiled(subs, registers=(176, 176))
    with pytest.raises(wd.ConstraintError, match="no warpgroup only copies: as asked for"):
        compiled(subs, registers=(56, 224), specialize=False)
    with pytest.raises(wd.ConstraintError, match=r"registers=\(56, 224\)\): no product of the kernel is a warpgroup's"):
        small = {**tiles(32, 32, 32, 16, 16), M: 64, N: 64, K: 64}
        products.gemm(F16, schedule=wd.Schedule(registers=(56, 224))).compile(target="sm_90a", subs=small)


@pytest.mark.parametrize(
    ("cluster", "m", "persistent"), [(2, 256, False), (2, 256, True), (4, 512, False)], ids=str
)
def test_clusters(cluster: int, m: int, persistent: bool) -> None:
    schedule = wd.Schedule(cluster=(cluster, 1, 1), persistent=persistent)
    compiled = multiply(F16, m, 72, 200, schedule=schedule)
    assert "multicast::cluster" in compiled.asm and f".reqnctapercluster {cluster}, 1, 1" in compiled.asm
    met = re.findall(r"barrier\.cluster\.arrive\.(\w+)", compiled.asm)
    assert met == ["relaxed", "release"]  # what the first one is to tell is fenced already


@pytest.mark.parametrize(("cluster", "m", "n"), [(2, 256, 256), (4, 100, 500), (2, 640, 128)], ids=str)
def test_clusters_along_the_second_axis(cluster: int, m: int, n: int) -> None:
    """They share tiles of A; each workgroup takes several tiles, in its cluster's turn."""
    a, b, c = operands(BF16, m, n, 200, "MK", "NK")
    kernel = hopper.gemm(BF16, schedule=wd.Schedule(cluster=(1, cluster, 1)))
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=SMALL)
    assert "multicast::cluster" in compiled.asm and f".reqnctapercluster {cluster}, 1, 1" in compiled.asm
    read_a, read_b = (x for x in compiled.decisions.text().splitlines() if "bulk copies" in x and "into ring" in x)
    assert f"to {cluster} workgroups" in read_a and "workgroups" not in read_b
    assert f"cluster: {cluster} workgroups along the second grid axis" in schedule_text(compiled.kernel_ir)
    compiled.grid = (2 * cluster, 1, 1)
    compiled.emulate(a, b, c)
    products.expect_equal(c, wanted(BF16, a, b, "MK", "NK"), BF16)


@pytest.mark.parametrize(
    ("schedule", "why", "hint"),
    [
        ({"cluster": (1, 1, 2)}, "the third extent of a cluster counts the parts of split_k", "split_k=2; or"),
        ({"cluster": (1, 2, 1), "persistent": False}, "take tiles in turn", "leave persistent out"),
        ({"cluster": (1, 3, 1)}, "the second grid axis has 4 tiles, no multiple of 3", "choose another tile"),
    ],
    ids=["third", "not in turn", "not divided"],
)
def test_clusters_that_cannot_be_say_why(schedule: dict[str, Any], why: str, hint: str) -> None:
    sizes = {M: 256, N: 256, K: 128}
    with pytest.raises(wd.ConstraintError, match=why) as refused:
        hopper.gemm(BF16, schedule=wd.Schedule(**schedule)).compile(target="sm_90a", subs={**SMALL, **sizes})
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(("a_order", "b_order"), [("MK", "KN"), slow("KM", "KN")])
def test_descriptors_do_not_hold_the_rank_in_the_cluster(a_order: str, b_order: str) -> None:
    """Addresses of shared memory do, in the bits of a descriptor that say how far panels along M or N are apart."""
    subs = tiles(128, 128, 64, 64, 128)
    multiply(F16, 256, 128, 128, subs, a_order=a_order, b_order=b_order, schedule=wd.Schedule(cluster=(2, 1, 1)))


def test_cluster_that_does_not_divide_the_grid_is_refused() -> None:
    with pytest.raises(wd.ConstraintError, match="3 tiles, no multiple of 2"):
        hopper.gemm(F16, schedule=wd.Schedule(cluster=(2, 1, 1))).compile(
            target="sm_90a", subs={**SMALL, products.M: 192, products.N: 64, products.K: 64}
        )


def test_scaled_activation() -> None:
    """Row and column scales and silu on the sums, within what the result's type and exp2 round."""
    a, b, c = operands(BF16, 64, 48, 128, "MK", "NK")
    rows, columns = (0.1 * numbers((n,), wd.f32, n, "normal") for n in (64, 48))
    compiled = hopper.gemm(BF16, epilogue="scales silu").compile(
        a, b, rows, columns, c, target="sm_90a", subs=tiles(64, 48, 64, 64, 48)
    )
    compiled.emulate(a, b, rows, columns, c)
    x = products.exact(a, b, BF16)[0] * rows[:, None].astype(np.float64) * columns[None]
    want = x / (1 + np.exp(-x))
    assert (np.abs(c.astype(np.float64) - want) <= 2.0**-8 * np.abs(want) + 1e-6).all()
    assert strategy(compiled).specialize and strategy(compiled).outlets == 1


@pytest.mark.parametrize("epilogue", ["bias relu", "alpha beta"])
def test_epilogues(epilogue: str) -> None:
    a, b, c = operands(BF16, 128, 80, 192, "MK", "NK")
    kernel = hopper.gemm(BF16, epilogue=epilogue)
    product = products.exact(a, b, BF16)[0]
    if epilogue == "bias relu":
        bias = numbers((80,), wd.f32, 3)
        args, out = (a, b, bias, c), c
        want = np.maximum(product + bias, 0)
    else:
        addend = numbers((128, 80), wd.bf16, 4)
        args, out = (a, b, addend, c, np.float32(2.0), np.float32(-3.0)), c
        want = product * 2.0 - 3.0 * addend.astype(np.float64)
    compiled = kernel.compile(*args, target="sm_90a", subs=tiles(64, 40, 64, 64, 40))
    compiled.emulate(*args)
    products.expect_equal(out, want, BF16)
    assert strategy(compiled).specialize


def test_dynamic_sizes() -> None:
    """One text for several sizes: tensor maps are made per launch, what is left of a tile is masked."""
    kernel = hopper.gemm(F16)
    compiled = kernel.compile(
        *operands(F16, 128, 64, 128, "MK", "NK"), target="sm_90a", subs=SMALL, dynamic=(products.M, products.K)
    )
    assert strategy(compiled).bulk and strategy(compiled).order is not None
    for m, k in ((64, 64), (130, 208), (200, 16)):
        a, b, c = operands(F16, m, 64, k, "MK", "NK")
        compiled.emulate(a, b, c)
        products.expect_equal(c, wanted(F16, a, b, "MK", "NK"), F16)


def test_batches() -> None:
    """A batch is an index dimension: a coordinate of the tensor map."""
    batch = wd.sym.BATCH

    @wd.wave(
        [
            wd.WorkgroupConstraint(products.M, products.BM, 0),
            wd.WorkgroupConstraint(products.N, products.BN, 1),
            wd.WorkgroupConstraint(batch, 1, 2),
            wd.TilingConstraint(products.K, products.BK),
        ]
    )
    def batched(
        a: wd.Memory[batch, products.M, products.K, wd.f16],
        b: wd.Memory[batch, products.N, products.K, wd.f16],
        c: wd.Memory[batch, products.M, products.N, wd.f32],
    ):
        zero = wd.Register[products.M, products.N, wd.f32](0.0)

        @wd.iterate(products.K, init_args=[zero])
        def loop(acc: wd.Register[products.M, products.N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a, b = numbers((3, 100, 96), wd.f16, 1), numbers((3, 40, 96), wd.f16, 2)
    c = np.full((3, 100, 40), 77, np.float32)
    compiled = batched.compile(
        a, b, c, target="sm_90a", subs={products.BM: 64, products.BN: 40, products.BK: 32}
    )
    compiled.emulate(a, b, c)
    assert strategy(compiled).specialize
    assert np.array_equal(c, np.einsum("bmk,bnk->bmn", a.astype(np.float64), b.astype(np.float64)))


def test_block_scales() -> None:
    """fp8 with scales per block of K: each block's product is scaled in f32 registers before it is added."""
    a, b, _ = operands(FP8, 128, 64, 384, "MK", "NK")
    rows, columns = numbers((128,), wd.f32, 3), numbers((64,), wd.f32, 4)
    kind = Kind("f8e4m3-bf16", wd.f8e4m3, wd.f32, wd.bf16)
    c = np.zeros((128, 64), wd.bf16.storage)
    compiled = hopper.gemm(kind, epilogue="block scales").compile(
        a, b, rows, columns, c, target="sm_90a", subs=tiles(64, 64, 128, 64, 64)
    )
    compiled.emulate(a, b, rows, columns, c)
    assert strategy(compiled).specialize
    products.expect_equal(c, products.exact(a, b, kind)[0] * rows[:, None] * columns[None], kind)


def test_rows_in_registers() -> None:
    """An operand that is computed feeds the instruction from registers; the other one comes by bulk copies."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(products.M, 64, 0),
            wd.WorkgroupConstraint(products.N, 64, 1),
            wd.TilingConstraint(products.K, 64),
            wd.WaveConstraint(products.M, 64),
            wd.WaveConstraint(products.N, 64),
        ]
    )
    def doubled(
        a: wd.Memory[products.M, products.K, wd.f16],
        b: wd.Memory[products.N, products.K, wd.SHARED, wd.f16],
        c: wd.Memory[products.M, products.N, wd.f32],
    ):
        zero = wd.Register[products.M, products.N, wd.f32](0.0)

        @wd.iterate(products.K, init_args=[zero])
        def loop(acc: wd.Register[products.M, products.N, wd.f32]):
            x = wd.read(a)
            return wd.mma(x + x, wd.read(b), acc)

        wd.write(loop, c)

    a, b, c = operands(F16, 64, 64, 192, "MK", "NK")
    compiled = doubled.compile(a, b, c, target="sm_90a")
    compiled.emulate(a, b, c)
    products.expect_equal(c, 2 * wanted(F16, a, b, "MK", "NK"), F16)
    assert strategy(compiled).specialize and "wgmma" in compiled.asm


@pytest.mark.parametrize("waves", [slow(2), 3, slow(4), 5])
def test_register_budgets(waves: int) -> None:
    """What the copying warpgroup gives back is all that the others can take: nobody waits for more for ever."""
    bm = 64 * waves
    compiled = multiply(F16, bm, 32, 128, tiles(bm, 32, 64, 64, 32))
    copying, computing = strategy(compiled).registers
    entry = 65536 // (128 * (waves + 1)) // 8 * 8
    assert copying * 128 + computing * 128 * waves <= entry * 128 * (waves + 1)


def test_swapped_operands() -> None:
    """Few rows of A: the rows of B, of which there are 64, take their place in the instruction."""
    compiled = multiply(F16, 16, 128, 192, tiles(16, 64, 64, 16, 64))
    assert compiled.kernel_ir is not None
    assert set(compiled.kernel_ir.notes["lowering"].atoms.values()) == {"F32_64x16x16_F16 swapped"}


@pytest.mark.parametrize(
    ("bm", "bn", "wave"), [(128, 256, (64, 256)), (64, 256, (64, 128)), (256, 128, (128, 128))], ids=str
)
def test_division_into_warpgroups(bm: int, bn: int, wave: tuple[int, int]) -> None:
    """Two warpgroups, cut so that an instruction is as wide as it can be."""
    sizes = {products.M: 4096, products.N: 4096, products.K: 4096}
    compiled = hopper.gemm(BF16, given=False).compile(
        target="sm_90a", subs={products.BM: bm, products.BN: bn, products.BK: 64, **sizes}
    )
    assert compiled.kernel_ir is not None and compiled.block[0] == 384
    atoms = compiled.kernel_ir.notes["lowering"].atoms
    assert set(atoms.values()) == {f"F32_64x{wave[1]}x16_BF16"}


def test_four_waves_are_taken_together() -> None:
    compiled = multiply(F16, 64, 40, 128, tiles(64, 40, 64, 16, 40), lanes=None)
    assert compiled.block[0] == 256 and "wgmma" in compiled.asm
    narrow = multiply(F16, 64, 64, 128, tiles(64, 64, 64, 32, 32), lanes=None)
    assert narrow.block[0] == 128 and "wgmma" not in narrow.asm


def test_a_warpgroup_that_does_not_fit_is_refused() -> None:
    with pytest.raises(wd.ConstraintError, match="no multiple of 64 rows"):
        multiply(F16, 64, 64, 128, tiles(64, 64, 64, 32, 32))


GOLDEN = Path(__file__).parents[1] / "golden" / "schedule" / "sm_90a_gemm_128x256x64.txt"


def test_schedule_is_the_reviewed_one() -> None:
    """Every choice, its reason, and what each role does."""
    sizes = {products.M: 4096, products.N: 4096, products.K: 4096}
    compiled = hopper.gemm(BF16).compile(target="sm_90a", subs={**tiles(128, 256, 64, 64, 256), **sizes})
    text = schedule_text(compiled.kernel_ir)
    if os.environ.get("WAVEDSL_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "look at the difference, and run with WAVEDSL_UPDATE_GOLDEN=1"


@pytest.mark.parametrize("computed", [False, True])
def test_a_tile_that_threads_copied_before_a_loop_has_arrived_when_its_products_read_it(computed: bool) -> None:
    """Rows with a stride of no multiple of 16 bytes come by no bulk copy, and the loop has no copies to wait for.
    Beside fewer than 128 columns the tile would stay in registers."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 128)])
    def kernel(
        a: wd.Memory[M, K, wd.f16],
        b: wd.Memory[N, K, wd.f32] if computed else wd.Memory[K, N, wd.f16],
        c: wd.Memory[M, wd.f32],
    ):
        early = wd.read(a)

        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(total):
            products = wd.mma(early, wd.cast(wd.read(b), wd.f16), wd.Register[M, N, wd.f32](0.0))
            return total + wd.sum(wd.maximum(products, 0.0), dim=N)

        wd.write(loop, c)

    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (64, 52)).astype(np.float16)[:, :48]
    b = random.integers(-3, 4, (384, 48)).astype(np.float32)
    c = np.zeros(64, np.float32)
    compiled = kernel.compile(a, b if computed else b.T.astype(np.float16, order="C"), c, target="sm_90a")
    assert re.search(r"cp\.async\.c[ag]", compiled.asm) and "wgmma.mma_async" in compiled.asm
    compiled.emulate(a, b if computed else b.T.astype(np.float16, order="C"), c)
    assert np.array_equal(c, np.maximum(a.astype(np.float32) @ b.T, 0).sum(1))


ROWS = wd.sym.ROWS


def product_of_moved_rows(kind: str, subs: dict[Any, int]) -> wd.CompiledKernel:
    """c = aᵀ b over rows of two arrays: moved by a number known before launch or by one that is not, counted or not."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)],
        name="product_of_moved_rows",
    )
    def product(
        a: wd.Memory[ROWS, M, wd.SHARED, wd.f16],
        b: wd.Memory[ROWS, N, wd.SHARED, wd.f16],
        c: wd.Memory[M, N, wd.f32],
        start: wd.Scalar[wd.i32],
        count: wd.Scalar[wd.i32],
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            row = wd.index(K) + (16 if kind == "known" else start)
            row = wd.where(wd.index(K) < count, row, -1) if kind == "counted" else row
            left, right = (wd.IndexMapping(dims, {ROWS: row}) for dims in ((M, K), (K, N)))
            return wd.mma(wd.read(a, mapping=left), wd.read(b, mapping=right), acc)

        wd.write(loop, c)

    return product.compile(target="sm_90a", subs=subs)


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        ("known", [(16, 100)]),
        ("moved", [(16, 100), (-70, 100), (150, 100)]),
        ("counted", [(16, 70), (150, 90), (0, -4), (-64, 99), (-9, 200), (-9, 30), (-70, 72), (-2147483648, 100)]),
    ],
)
def test_tiles_end_where_their_rows_do(kind: str, moves: list[tuple[int, int]]) -> None:
    """Bulk copies of tiles that end before their array does, by a count or by an extent that tiles do not divide: what
    follows is zero, also where the tile starts in front of the array."""
    depth, rows = 100, 200
    compiled = product_of_moved_rows(kind, {M: 64, N: 64, K: depth, ROWS: rows})
    assert strategy(compiled).specialize
    a, b = (numbers((rows, 64), wd.f16, seed) for seed in (1, 2))
    for start, count in moves:
        c = np.full((64, 64), products.SENTINEL, np.float32)
        compiled.emulate(a, b, c, np.int32(start), np.int32(count))
        taken = [start + k for k in range(min(depth, count)) if 0 <= start + k < rows]
        want = a[taken].astype(np.float32).T @ b[taken].astype(np.float32)
        np.testing.assert_array_equal(c, want, f"{start} {count}")


def test_addends_are_in_place_before_the_fence(oracle: Any) -> None:
    """A bias that all rows start from has one register for several sums: copies of it are made in front of the fence of
    the products that add to them. ptxas would put a fence of its own behind them (C7519)."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
    def biased(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], bias: wd.Memory[N, wd.f32], c: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.broadcast(wd.read(bias), M, N)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a, b, bias = numbers((64, 64), wd.bf16, 1), numbers((64, 64), wd.bf16, 2), numbers((64,), wd.f32, 3)
    c = np.full((64, 64), np.nan, np.float32)
    compiled = biased.compile(a, b, bias, c, target="sm_90a")
    compiled.emulate(a, b, bias, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T + bias)
    (between,) = re.findall(r"wgmma\.fence\S+;(.*?)wgmma\.mma_async", compiled.asm, re.DOTALL)
    sums = re.search(r"mma_async\S+ \{(.*?)\}", compiled.asm)
    assert sums is not None and not set(re.findall(r"mov\.b32\s+(%r\d+)", between)) & set(sums[1].split(", "))
    assert oracle("ptxas") and not toolchain.assemble_ptx(compiled.asm, "sm_90a").warnings


def test_saved_kernels_keep_their_tensor_maps(tmp_path: Any) -> None:
    a, b, c = operands(F16, 64, 64, 128, "MK", "NK")
    compiled = hopper.gemm(F16).compile(a, b, c, target="sm_90a", subs=SMALL)
    compiled.save(tmp_path / "kernel.json")
    again = wd.load(tmp_path / "kernel.json")
    again.emulate(a, b, c)
    products.expect_equal(c, wanted(F16, a, b, "MK", "NK"), F16)
    assert [p.kind for p in again.params] == ["tensormap"] * 3


@pytest.mark.parametrize(
    ("waves", "threads", "counted"),
    [((32, 128), 384, False), ((64, 32), 640, False), ((32, 32), 640, False), ((32, 128), 640, True)],
)  # fmt: skip
def test_waves_of_32_rows_or_columns_are_taken_in_pairs(
    waves: tuple[int, int], threads: int, counted: bool
) -> None:  # fmt: skip
    """Warpgroups whose instructions have 32 columns read the other operand more often: 4096^3 in 128 x 128 took 399641
    clocks by the replay with waves of 32 x 128, 423088 with 32 x 32; in pairs 294224 and 294332. `counted`: the user
    says how many waves there are."""
    by_axis = 128 // waves[0], 128 // waves[1], 1

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 64),
            wd.WaveConstraint(M, waves[0]), wd.WaveConstraint(N, waves[1]),
            *([wd.HardwareConstraint(waves_per_block=by_axis)] if counted else []),
        ]
    )  # fmt: skip
    def kernel(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(total, c)

    assert kernel.compile(target="sm_90a", subs={M: 4096, N: 4096, K: 4096}).block[0] == threads
    a, b, c = operands(F16, 150, 140, 128, "MK", "NK")
    kernel.compile(a, b, c, target="sm_90a").emulate(a, b, c)
    products.expect_equal(c, wanted(F16, a, b, "MK", "NK"), F16)
