"""Which waves have what of the products of a workgroup, where the user has not said it."""

from __future__ import annotations

from typing import Any

import pytest
from wavedsl.ir.cuts.partition import Partition, cut, cuts
from wavedsl.ir.cuts.register_file import FETCHED, held_words
from wavedsl.ir.dataflow.constraints import resolve_constraints
from wavedsl.ir.target import compute_room, wave_room

import wavedsl as wd
from wavedsl.targets import get_target

M, N, K, F, R = wd.symbols("M N K F R")
ROWS = [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)]
SIZES = {M: 256, N: 64, K: 1024, F: 512}


def hidden(*more: Any) -> wd.Kernel:
    @wd.wave([*ROWS, *more])
    def kernel(
        x: wd.Memory[M, K, wd.f16], w1: wd.Memory[F, K, wd.f16], w2: wd.Memory[N, F, wd.f16], y: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.read(w1), acc)

        wd.write(wd.mma(wd.cast(loop, wd.f16), wd.read(w2), wd.Register[M, N, wd.f32](0.0)), y)

    return kernel


def ways(kernel: wd.Kernel, target: str, sizes: dict) -> list[Partition]:
    chip = get_target(target)
    graph = kernel.trace(sizes)
    return list(cuts(graph, resolve_constraints(graph, sizes, max_waves=chip.max_waves), chip))


def shape(p: Partition, *dims: Any) -> tuple[int, ...]:
    return tuple(p.dims[d].wave for d in dims)


def test_columns_of_which_a_wave_has_too_many_are_shared() -> None:
    best, *others = ways(hidden(), "sm_80", SIZES)
    assert shape(best, M, F, N) == (32, 128, 64) and best.waves == 8 and best.dims[F].role == "workgroup"
    assert shape(others[-1], M, F, N) == (32, 512, 32) and not others[-1].shared_rows
    assert all(p.shared_rows for p in [best, *others[:-1]])


@pytest.mark.parametrize("columns, wave", [(500, 128), (456, 128), (264, 144)])
def test_the_last_share_may_be_short_but_is_never_empty(columns: int, wave: int) -> None:
    """Each is a multiple of what instructions take; the tile is all shares together."""
    for p in ways(hidden(), "sm_80", {**SIZES, F: columns})[:-1]:
        plan = p.dims[F]
        if plan.waves > 1:
            assert plan.wave % 16 == 0 and plan.tile == plan.wave * plan.waves >= columns
            assert plan.wave * (plan.waves - 1) < columns
    assert ways(hidden(), "sm_80", {**SIZES, F: columns})[0].dims[F].wave == wave


@pytest.mark.parametrize(
    "more", [wd.WaveConstraint(M, 32), wd.HardwareConstraint(waves_per_block=(2, 2))], ids=["wave", "count"]
)
def test_what_the_user_says_stays(more: Any) -> None:
    found = ways(hidden(more), "sm_80", SIZES)
    if isinstance(more, wd.HardwareConstraint):
        assert len(found) == 1 and found[0].waves == 4
    assert all(p.dims[M].wave == 32 for p in found)


def test_a_kernel_whose_values_fit_is_cut_as_before() -> None:
    """64 columns of 64 rows: two products that all waves repeat, which no other division makes a tenth cheaper."""
    chip = get_target("gfx942")
    graph = hidden(wd.WaveConstraint(M, 32), wd.WaveConstraint(N, 32)).trace({**SIZES, F: 64})
    found = list(cuts(graph, resolve_constraints(graph, {**SIZES, F: 64}, max_waves=16), chip))
    assert len(found) == 1 and not found[0].shared_rows
    assert cut(graph, resolve_constraints(graph, {**SIZES, F: 64}, max_waves=16), chip).order == found[0].order


@pytest.mark.parametrize("used", ["sort", "reshape"])
def test_what_must_lie_in_one_wave_is_not_shared(used: str) -> None:
    A, B = wd.symbols("A B")

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(K, 32)])
    def kernel(x: wd.Memory[M, K, wd.f16], w: wd.Memory[F, K, wd.f16], y: wd.Memory[M, F, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.read(w), acc)

        if used == "sort":
            wd.write(wd.sort(loop, dim=F), y)
        else:
            parts = wd.reshape(loop, M, A, B)
            wd.write(wd.reshape(parts * 2.0, M, F), y)

    sizes = {M: 64, K: 64, F: 1024} | ({A: 32, B: 32} if used == "reshape" else {})
    assert all(p.dims[F].waves == 1 for p in ways(kernel, "sm_80", sizes))


def test_a_narrow_product_is_not_repeated() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 32)])
    def lora(
        x: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, wd.f16], a: wd.Memory[R, K, wd.f16], b: wd.Memory[N, R, wd.f16],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[M, R, wd.f32](0.0)])
        def loop(full, low):
            tile = wd.read(x)
            return wd.mma(tile, wd.read(w), full), wd.mma(tile, wd.read(a), low)

        full, low = loop
        wd.write(wd.mma(wd.cast(low, wd.f16), wd.read(b), full), y)

    sizes = {M: 128, N: 128, K: 1024}
    assert shape(ways(lora, "gfx942", {**sizes, R: 32})[0], M, N) == (32, 128)
    assert shape(ways(lora, "gfx942", {**sizes, R: 16})[0], M, N) == (64, 64)  # costs less than other operands would


def test_registers_are_counted_where_most_of_them_are_held() -> None:
    """512 columns of 32 rows are 256 of each of 64 lanes, as halves 128, of which a product takes W2 and makes y."""
    chip = get_target("gfx942")
    graph = hidden().trace(SIZES)
    sizes = {M: 32, N: 32, K: 32, F: 512}
    assert held_words(graph, sizes, chip) == 256
    assert held_words(graph, {**sizes, F: 64}, chip) == 32
    w2 = next(n.id for n in graph.region.nodes if n.op == "read")
    assert held_words(graph, {**sizes, N: 256}, chip, {w2}, whole=True) == 128 + 1024 + 128
    assert held_words(graph, {**sizes, N: 256}, chip, {w2}) == 128 + FETCHED + 128
    assert held_words(graph, {**sizes, N: 256}, chip) == 128 + 128
    assert [wave_room(chip, n) for n in (4, 8, 16)] == [512, 256, 128]
    assert [wave_room(get_target("sm_80"), n) for n in (4, 8, 16)] == [255, 255, 128]


def test_what_a_result_meets_before_it_is_stored_counts_for_nothing() -> None:
    """It is read and added part by part. Parts of sums that workgroups share were counted beside a warpgroup's own 128
    and the loop that adds them: more than the 255 that there are, so the products went to warps, which have too few."""

    @wd.wave(ROWS)
    def kernel(
        x: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.read(w), acc)

        wd.write(loop + wd.read(c) * 2.0, y)

    graph = kernel.trace({M: 256, N: 64, K: 1024})
    assert held_words(graph, {M: 64, N: 64, K: 32}, get_target("gfx942")) == 64


def test_computing_warpgroups_leave_registers_to_the_copying_one() -> None:
    """One that has a tile of its own takes turns with another."""
    chip = get_target("sm_90a")
    assert chip.warpgroup is not None
    assert [compute_room(chip.warpgroup(), n) for n in (1, 2, 3, 4)] == [240, 240, 160, 120]
