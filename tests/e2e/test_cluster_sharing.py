"""Clusters whose workgroups have the same trips and the same tiles for other reasons than that a dimension is missing:
heads that share keys under a causal mask, lengths of batches, dealt trips. On the emulated sm_90a with all checks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import example_files
import hopper
import numpy as np
import products
import pytest
from products import BF16, F16, K, M, N, numbers
from selected import slow

import wavedsl as wd
from wavedsl.reports import schedule_text

attention = example_files.load("attention")
B = wd.sym.B
SMALL = hopper.tiles(64, 64, 64, 64, 64)
HEADS = {"b": 2, "h": 4, "m": 128, "n": 128, "d": 64, "e": 64}


def attend(
    variant: Any, cluster: tuple[int, ...], sizes: dict[str, int], *, workgroups: int = 0, waves: int = 1,
    tile: tuple[int, int] = (64, 64), dynamic: Any = None, **options: Any,
) -> wd.CompiledKernel:  # fmt: skip
    """Compile attention for clusters, emulate with so many workgroups (0: one tile each), check it."""
    schedule = wd.Schedule(cluster=cluster, **options)
    kernel = attention.attention_kernel(variant, tile=tile, waves=waves, schedule=schedule)
    given = attention.arguments_of(variant, sizes)
    compiled = kernel.compile(**given, target="sm_90a", dynamic=dynamic)
    if workgroups:
        compiled.grid = (workgroups, 1, 1)
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0
    return compiled


def copies(compiled: wd.CompiledKernel, count: int) -> int:
    """Reads whose tiles go to so many workgroups."""
    return compiled.decisions.text().count(f"to {count} workgroups")


@pytest.mark.parametrize(
    ("variant", "cluster", "sizes", "workgroups", "options", "shared"),
    [
        ({"group": 2}, (1, 2), HEADS, 4, {}, 2),
        ({"group": 4, "window": 100}, (1, 4), HEADS, 4, {"stages": 2}, 2),
        ({"group": 2}, (1, 4), HEADS, 0, {}, 0),  # two heads of keys: nothing is the same for all
        slow({"group": 4}, (1, 2), {**HEADS, "b": 1}, 6, {"stages": 1}, 2),
        slow({"group": 3}, (1, 3), {**HEADS, "b": 1, "h": 6}, 3, {}, 0),  # 64 rows are no three shares
        slow({"group": 4}, (1, 2), {**HEADS, "d": 128, "e": 128}, 4, {"tile": (128, 128), "waves": 2}, 2),
    ],
    ids=str,
)
def test_heads_of_a_group_share_keys_under_a_mask(
    variant: dict[str, Any], cluster: tuple[int, ...], sizes: dict[str, int], workgroups: int, options: dict[str, Any],
    shared: int, oracle: Callable[[str], str],
) -> None:  # fmt: skip
    """Trips depend on the tile of queries, which a cluster along heads has once."""
    made = attention.Variant(wd.bf16, causal=True, **variant)
    compiled = attend(made, cluster, sizes, workgroups=workgroups, **options)
    assert copies(compiled, cluster[1]) == shared
    if "window" not in variant:
        assert "longest first" in schedule_text(compiled.kernel_ir)
    assert oracle("ptxas") and not hopper.static(compiled.asm).codes


def test_heads_that_the_launch_brings() -> None:
    """Three heads, then one, for clusters of two: the last one's second workgroup has no head, but copies its share."""
    variant = attention.Variant(wd.bf16, causal=True, group=2)
    kernel = attention.attention_kernel(variant, tile=(64, 64), waves=1, schedule=wd.Schedule(cluster=(1, 2)))
    given = attention.arguments_of(variant, {**HEADS, "b": 1})
    compiled = kernel.compile(**given, target="sm_90a", dynamic=(attention.H, attention.G))
    assert copies(compiled, 2) == 2
    compiled.grid = (4, 1, 1)
    few = {**given, "q": given["q"][:, :3], "o": given["o"][:, :3]}
    compiled.emulate(**few)
    assert (given["o"][:, 3] == 93).all()
    compiled.emulate(**{**given, "q": given["q"][:, 3:], "k": given["k"][:, 1:], "v": given["v"][:, 1:],
                        "o": given["o"][:, 3:]})  # fmt: skip
    assert attention.check(variant, given) == 0


def test_along_the_mask_trips_differ() -> None:
    variant = attention.Variant(wd.bf16, causal=True, group=2)
    for cluster in ((2, 1), (2, 2)):
        with pytest.raises(wd.ConstraintError, match="bounds that may differ between workgroups along the first grid"):
            attend(variant, cluster, HEADS)


@lru_cache
def ranged(cluster: tuple[int, ...], blocks: int, written: bool = False) -> Any:
    """Products of which each batch, or block of batches, has a length of its own. `written`: the kernel writes it."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.WorkgroupConstraint(B, 1, 2),
         wd.TilingConstraint(K, 32), wd.HardwareConstraint(threads_per_wave=128)],
        schedule=wd.Schedule(cluster=cluster),
    )  # fmt: skip
    def ranged(
        a: wd.Memory[B, M, K, wd.bf16], b: wd.Memory[B, N, K, wd.bf16], lengths: wd.Memory[wd.sym.L, wd.i32],
        c: wd.Memory[B, M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)], stop=wd.read(lengths[wd.index(B) // blocks]))
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)
        if written:
            wd.write(wd.index(B), lengths[wd.index(B)])

    return ranged


@pytest.mark.parametrize(("cluster", "blocks"), [((2, 1), 1), slow((2, 2), 2), slow((1, 2), 1)])
def test_lengths_of_batches(cluster: tuple[int, ...], blocks: int) -> None:
    a, b = numbers((2, 128, 160), wd.bf16, 1), numbers((2, 128, 160), wd.bf16, 2)
    lengths = np.array([96, 33], np.int32)
    c = np.full((2, 128, 128), np.nan, np.float32)
    kernel = ranged(cluster, blocks)
    compiled = kernel.compile(a, b, lengths, c, target="sm_90a")
    compiled.emulate(a, b, lengths, c)
    for i in range(2):
        k = -(-lengths[i // blocks] // 32) * 32
        products.expect_equal(c[i], products.exact(a[i, :, :k], b[i, :, :k], BF16)[0], BF16)
    assert "multicast::cluster" in compiled.asm


def test_lengths_that_change_may_differ() -> None:
    given = [np.zeros((2, 128, 64), np.float32).astype(wd.bf16.storage)] * 2
    with pytest.raises(wd.ConstraintError, match="bounds that depend on more than sizes, tiles and scalars"):
        ranged((2, 1), 1, True).compile(
            *given, np.zeros(2, np.int32), np.zeros((2, 128, 128), np.float32), target="sm_90a"
        )


@pytest.mark.parametrize(
    ("kind", "sizes", "schedule", "tiles"),
    [
        (BF16, (128, 192, 400), {"stream_k": 4, "cluster": (2, 1)}, SMALL),  # a tile of each, and one in two runs
        (F16, (192, 384, 264), {"stream_k": 8, "cluster": (1, 2), "stages": 2}, SMALL),
        (BF16, (256, 384, 400), {"stream_k": True, "cluster": (2, 2)}, SMALL),  # 21 runs of 6 tiles
        slow(BF16, (250, 130, 136), {"stream_k": 8, "cluster": (4, 1)}, SMALL),
        slow(F16, (256, 192, 272), {"stream_k": 4, "cluster": (2, 1)}, hopper.tiles(128, 64, 64, 64, 64)),
        slow(BF16, (128, 192, 136), {"stream_k": 2, "cluster": (2, 1), "swizzle": True}, SMALL),
    ],
    ids=str,
)
def test_dealt_trips(
    kind: Any, sizes: tuple[int, int, int], schedule: dict[str, Any], tiles: dict[Any, int],
    oracle: Callable[[str], str],
) -> None:  # fmt: skip
    """A cluster has the same trips of tiles side by side: what is shared depends on the cluster's number alone."""
    x, y = schedule["cluster"]
    a, b, c = products.operands(kind, *sizes)
    compiled = hopper.gemm(kind, schedule=wd.Schedule(**schedule)).compile(a, b, c, target="sm_90a", subs=tiles)
    assert compiled.grid[1:] == (1, 1) and compiled.grid[0] % (x * y) == 0
    assert copies(compiled, max(x, y)) == (x > 1) + (y > 1)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, kind)[0], kind)
    made = hopper.static(compiled.asm)
    assert oracle("ptxas") and not made.spills and not made.codes


def test_dealt_trips_of_sizes_that_the_launch_brings() -> None:
    """Clusters that lie past the end, in part or whole, have a tile of nothing."""
    kernel = hopper.gemm(BF16, schedule=wd.Schedule(stream_k=8, cluster=(2, 2)))
    made = kernel.compile(*products.operands(BF16, 128, 136, 72), target="sm_90a", subs=SMALL, dynamic=(M, N, K))
    for sizes in ((192, 328, 200), (64, 64, 64), (320, 72, 0), (0, 64, 8)):
        a, b, c = products.operands(BF16, *sizes)
        made.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, BF16)[0], BF16)


def test_dealt_trips_of_batches() -> None:
    """Parts of a cluster's workgroups have places of their own, beside those of batches."""

    @wd.wave(
        [wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1),
         wd.TilingConstraint(K, 64), wd.HardwareConstraint(threads_per_wave=128)],
        schedule=wd.Schedule(stream_k=4, cluster=(2, 1)),
    )  # fmt: skip
    def batched(
        a: wd.Memory[B, M, K, wd.bf16], b: wd.Memory[B, N, K, wd.bf16], old: wd.Memory[M, N, wd.f32],
        c: wd.Memory[B, M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](1.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.maximum(loop, wd.read(old)) + wd.cast(wd.tile_start(M), wd.f32), c)

    a, b = numbers((2, 128, 272), wd.bf16, 1), numbers((2, 192, 272), wd.bf16, 2)
    old, c = numbers((128, 192), wd.f32, 3), np.full((2, 128, 192), np.nan, np.float32)
    compiled = batched.compile(a, b, old, c, target="sm_90a")
    assert compiled.grid == (8, 1, 1) and copies(compiled, 2) == 1
    compiled.emulate(a, b, old, c)
    first = np.arange(128)[:, None] // 64 * 64
    for i in range(2):
        sums = 1 + a[i].astype(np.float32) @ b[i].astype(np.float32).T
        np.testing.assert_array_equal(c[i], np.maximum(sums, old) + first)


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ({"stream_k": 6, "cluster": (4, 1)}, "6 workgroups are no clusters of 4"),
        ({"stream_k": 8, "cluster": (2, 1, 2)}, "a cluster of 2 along grid axis 2, along which no tiles"),
        ({"stream_k": 6, "cluster": (3, 1)}, "M has 4 tiles, no multiple of the 3 of a cluster"),
        ({"stream_k": 16, "cluster": (4, 4)}, "16 workgroups, and not every chip"),
    ],
    ids=str,
)
def test_dealt_trips_that_no_clusters_can_have(schedule: dict[str, Any], why: str) -> None:
    with pytest.raises(wd.ConstraintError, match=why):
        hopper.gemm(BF16, schedule=wd.Schedule(**schedule)).compile(
            *products.operands(BF16, 256, 256, 128), target="sm_90a", subs=SMALL
        )
