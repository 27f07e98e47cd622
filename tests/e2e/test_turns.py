"""Output tiles that workgroups take in turn (`Schedule(persistent=True)`) where no warpgroup multiplies: every chip."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import products
import pytest
import selected
from agree import TARGETS, agree
from products import F16, TF32, TILE, K, M, N
from two_sums import arguments, fused

import wavedsl as wd
from wavedsl.compiler import reference_product

H = wd.sym.H
PERSISTENT = wd.Schedule(persistent=True)
TURNED = ("gfx90a", "gfx942", "gfx950", "sm_80")
"""Chips whose products are no warpgroups'."""


@lru_cache
def running(rows: int, dynamic: tuple[wd.Symbol, ...] = ()) -> wd.Kernel:
    """A running sum along rows that several waves have together, and its last."""

    @wd.wave([wd.WorkgroupConstraint(M, rows, 0)], schedule=PERSISTENT, dynamic=dynamic)
    def running(a: wd.Memory[M, N, wd.f32], c: wd.Memory[M, N, wd.f32], last: wd.Memory[M, wd.f32]):
        x = wd.read(a)
        wd.write(wd.cumsum(x, dim=N), c)
        wd.write(wd.sum(x, dim=N), last)

    return running


@pytest.mark.parametrize("target", selected.slow_but((*TURNED, "sm_90a"), "gfx90a", "sm_90a"))
def test_scans_across_waves(target: str, oracle: Callable[[str], str]) -> None:
    """Every turn has exchanges through shared memory: the next one's must not meet them."""
    m, n = 700, 2100
    given = [products.numbers((m, n), wd.f32, 1), np.zeros((m, n), np.float32), np.zeros(m, np.float32)]
    compiled = agree(running(2), given, target, oracle)
    assert compiled.grid == (reference_product(target).units, 1, 1) and compiled.block[0] > 64
    np.testing.assert_array_equal(np.cumsum(given[0], axis=1), _run(compiled, given)[1])


def _run(compiled: wd.CompiledKernel, given: list[np.ndarray]) -> list[np.ndarray]:
    got = [x.copy() for x in given]
    compiled.emulate(*got)
    return got


@pytest.mark.parametrize("target", selected.slow_but(TURNED, "gfx942", "sm_80"))
def test_products(target: str, oracle: Callable[[str], str]) -> None:
    """Two sums and two results of tiles that stick out, in two turns and a part of one."""
    tile = dict(zip(TILE, (16, 16, 16, 16, 16)))
    units = reference_product(target).units
    m, n, k = 16 * 17 - 3, 16 * (5 * units // 34) - 1, 20
    kernel = products.gemm(F16, schedule=PERSISTENT)
    compiled = kernel.compile(*products.operands(F16, m, n, k), target=target, subs=tile)
    products.assemble(compiled, oracle)
    assert compiled.grid == (units, 1, 1)
    a, b, c = products.operands(F16, m, n, k)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, F16)[0], F16)


@pytest.mark.parametrize(
    ("kind", "b_order", "tile"),
    [(F16, "NK", (16, 16, 16, 16, 16)), pytest.param(TF32, "NK", (64, 64, 32, 64, 64), marks=pytest.mark.slow)],
    ids=["no warpgroup's", "no bulk copies"],
)
def test_products_without_bulk_copies(kind: products.Kind, b_order: str, tile: tuple[int, ...]) -> None:
    """sm_90a hands out tiles of warpgroups' products itself; others have their turns in the graph."""
    m, n, k = tile[0] * 13 - 3, tile[1] * 11 - 4, 40
    a, b, c = products.operands(kind, m, n, k, b_order=b_order)
    kernel = products.gemm(kind, b_order=b_order, schedule=PERSISTENT)
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=dict(zip(TILE, tile)))
    assert compiled.grid == (132, 1, 1) and "persistent: 132 workgroups take tiles in turn" in compiled.graph.notes
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, kind)[0], kind)
    asked = wd.Schedule(persistent=True, specialize=True)
    with pytest.raises(wd.ConstraintError, match=r"Schedule\(specialize=True\)"):
        other = products.gemm(kind, b_order=b_order, schedule=asked)
        other.compile(a, b, c, target="sm_90a", subs=dict(zip(TILE, tile)))


@pytest.mark.parametrize("target", ["gfx942", pytest.param("sm_80", marks=pytest.mark.slow)])
def test_in_parts(target: str, oracle: Callable[[str], str]) -> None:
    """Workgroups share the trips of a tile, and take several such parts in turn."""
    m, n, k = 32 * 19, 32 * 17 - 3, 70
    compiled = agree(fused(wd.Schedule(persistent=True, split_k=2)), arguments(m, n, k), target, oracle)
    assert compiled.grid == (reference_product(target).units // 2, 1, 2)


@pytest.mark.parametrize("target", ["gfx942", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_extents_that_the_launch_brings(target: str) -> None:
    """One text: fewer tiles than workgroups, none, many."""
    kernel = running(2, (M,))
    compiled = None
    for m in (3, 0, 1501):
        given = [products.numbers((m, 70), wd.f32, 1), np.zeros((m, 70), np.float32), np.zeros(m, np.float32)]
        compiled = compiled or kernel.compile(*given, target=target)
        got = _run(compiled, given)
        np.testing.assert_array_equal(got[1], np.cumsum(given[0], axis=1))
        np.testing.assert_array_equal(got[2], given[0].sum(axis=1))


def test_no_more_tiles_than_units() -> None:
    given = [np.zeros((8, 64), np.float32), np.zeros((8, 64), np.float32), np.zeros(8, np.float32)]
    compiled = running(2).compile(*given, target="gfx942")
    assert compiled.grid == (4, 1, 1) and "304 units: each workgroup has one" in compiled.graph.notes[-1]


def test_batches_stay_in_the_grid() -> None:
    @wd.wave([wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 4, 0)], schedule=PERSISTENT)
    def scaled(a: wd.Memory[H, M, N, wd.f32], c: wd.Memory[H, M, N, wd.f32]):
        wd.write(wd.read(a) * wd.cast(wd.index(H) + 1, wd.f32) + wd.cast(wd.index(M), wd.f32), c)

    given = [products.numbers((3, 1000, 8), wd.f32, 1), np.zeros((3, 1000, 8), np.float32)]
    compiled = agree(scaled, given, "gfx942")
    assert compiled.grid == (304 // 3, 3, 1)


def test_what_has_no_turns() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)], schedule=PERSISTENT)
    def rows(a: wd.Memory[M, N, wd.f32], c: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a), c)

    given = [np.zeros((1000, 64), np.float32), np.zeros((1000, 64), np.float32)]
    with pytest.raises(wd.ConstraintError, match=r"Schedule\(persistent=True\): no dimension of the grid has tiles"):
        rows.compile(*given, target="gfx942")

    @wd.wave([wd.WorkgroupConstraint(M, 2, 0)], schedule=PERSISTENT)
    def counted(a: wd.Memory[M, N, wd.f32], c: wd.Memory[N, wd.f32]):
        wd.write(wd.read(a), a)
        wd.atomic_add(wd.Register[N, wd.f32](1.0), c)

    with pytest.raises(wd.ConstraintError, match="atomic_add of a value without M is carried out by one workgroup"):
        counted.compile(given[0], given[1][0], target="gfx942")


@pytest.mark.parametrize("choice", [{"stream_k": 3}, {"stream_k": 2}], ids=str)
@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_one_workgroup_goes_over_tiles_but_not_in_one_reduction(choice: dict[str, int], target: str) -> None:
    """The tiles of a dimension are some workgroup's turns each: none of them has the whole row."""
    tile = {wd.sym.BM: 64, wd.sym.BN: 64, wd.sym.BK: 32}

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)],
        schedule=wd.Schedule(**choice), subs=tile,
    )  # fmt: skip
    def summed(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.sum(loop, dim=N), c)

    with pytest.raises(wd.CompileError, match="sum along N, which is spread over workgroups"):
        summed.compile(
            np.zeros((128, 64), np.float16), np.zeros((128, 64), np.float16), np.zeros(128, np.float32), target=target
        )


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sm_90a"])
@pytest.mark.parametrize("asked", [{"specialize": True}, {"registers": (24, 240)}, {"cluster": (2, 1)}], ids=str)
def test_what_only_warpgroups_have(asked: dict[str, object], target: str) -> None:
    """The error says that it is the chip's, not the kernel's."""
    (name,) = asked
    kernel = products.gemm(F16, schedule=wd.Schedule(**asked))
    with pytest.raises(wd.ConstraintError, match=rf"Schedule\({name}=.*\) is not available on {target}"):
        kernel.compile(*products.operands(F16, 32, 32, 32), target=target, subs=dict(zip(TILE, (32, 32, 32, 16, 16))))


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_a_cluster_of_one_is_none(target: str) -> None:
    """What takes a cluster out of a kernel for sm_90a says nothing elsewhere."""
    kernel = products.gemm(F16, schedule=wd.Schedule(cluster=(1, 1, 1), specialize=False, persistent=False))
    kernel.compile(*products.operands(F16, 32, 32, 32), target=target, subs=dict(zip(TILE, (32, 32, 32, 16, 16))))
