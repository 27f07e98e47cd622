"""Waves that share rows which no constraint divides."""

from __future__ import annotations

from typing import Any

import pytest
from wavedsl.ir.cuts.partition import Partition, cut
from wavedsl.ir.cuts.row_waves import LANE_WORDS
from wavedsl.ir.dataflow.constraints import resolve_constraints

import wavedsl as wd
from wavedsl.targets import get_target

M, N, T, P = wd.symbols("M N T P")


def row_sums(constraints: list[Any], dtype: wd.DType = wd.f32) -> Any:
    @wd.wave(constraints)
    def kernel(x: wd.Memory[M, N, dtype], y: wd.Memory[M, dtype]):
        wd.write(wd.sum(wd.read(x), dim=N), y)

    return kernel


def partition(kernel: Any, target: str, **extents: int) -> Partition:
    chip, graph = get_target(target), kernel.trace()
    dims = {getattr(wd.sym, name): n for name, n in extents.items()}
    return cut(graph, resolve_constraints(graph, dims, max_waves=chip.max_waves), chip)


ROW = [wd.WorkgroupConstraint(M, 1, 0)]


@pytest.mark.parametrize("target, lanes", [("gfx942", 64), ("sm_80", 32)])
def test_a_lane_has_few_words_of_a_long_row(target: str, lanes: int) -> None:
    short = partition(row_sums(ROW), target, M=3, N=lanes * LANE_WORDS)
    assert short.waves == 1 and short.dims[N].role == "whole"
    for waves in (2, 4, 16):
        p = partition(row_sums(ROW), target, M=3, N=waves * lanes * LANE_WORDS)
        assert p.waves == waves == p.dims[N].waves and p.dims[N].wave == lanes * LANE_WORDS
        assert p.dims[N].trips == 1 and not p.dims[N].ragged and p.grid_axes() == [[M], [], []]
    wide = partition(row_sums(ROW, wd.f64), target, M=3, N=2 * lanes * LANE_WORDS)
    assert wide.waves == 4  # two words an element


def test_parts_of_an_odd_row_begin_where_vectors_do() -> None:
    p = partition(row_sums(ROW), "gfx942", M=1, N=12289)
    plan = p.dims[N]
    assert plan.waves == 8 and plan.wave % 8 == 0 and plan.ragged and plan.trips == 1
    assert 12289 <= plan.tile < 12289 + 8 * 8


def test_rows_are_divided_after_the_tiles_of_the_grid() -> None:
    p = partition(row_sums([wd.WorkgroupConstraint(M, 8, 0)]), "gfx942", M=64, N=4096)
    assert (p.dims[M].waves, p.dims[N].waves) == (8, 2)
    given = partition(row_sums([wd.WorkgroupConstraint(M, 8, 0), wd.WaveConstraint(M, 4)]), "gfx942", M=64, N=4096)
    assert (given.dims[M].waves, given.dims[N].waves) == (2, 8)


def test_what_the_user_says_of_waves_is_all_that_there_are() -> None:
    p = partition(row_sums([wd.WorkgroupConstraint(M, 2, 0), wd.HardwareConstraint(waves_per_block=(2,))]), "gfx942",
                  M=8, N=8192)  # fmt: skip
    assert p.waves == 2 and p.dims[N].waves == 1


def test_a_loop_keeps_its_tile() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(N, 6144)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[wd.f32](0.0)])
        def total(before):
            return before + wd.sum(wd.read(x), dim=N)

        wd.write(total, y)

    p = partition(kernel, "gfx942", M=3, N=100000)
    assert (p.dims[N].role, p.dims[N].tile, p.dims[N].waves, p.dims[N].wave) == ("loop", 6144, 4, 1536)


def test_rows_that_are_sorted_stay_in_one_wave() -> None:
    @wd.wave(ROW, subs={P: 4})
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, P, wd.f32]):
        wd.write(wd.topk(wd.read(x), P, dim=N)[0], y)

    assert partition(kernel, "gfx942", M=3, N=4096, P=4).waves == 1


def recurrent(after: Any) -> Any:
    """A state of M rows of N, in every trip of a loop over P."""

    @wd.wave([wd.TilingConstraint(P, 1)])
    def kernel(x: wd.Memory[P, M, wd.f32], y: wd.Memory[P, N, wd.f32], out: wd.Memory[P, N, wd.f32]):
        @wd.iterate(P, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[N, wd.f32](0.0)])
        def trips(state, total):
            t = wd.tile_start(P)
            return after(wd.read(x[t, :]), wd.read(y[t, :]), state, total, out[t, :])

        wd.write(trips[1], out[0, :])

    return kernel


def test_waves_share_what_no_trip_sums() -> None:
    def each_trip(x: Any, y: Any, state: Any, total: Any, out: Any) -> Any:
        wd.write(wd.sum(x * state, dim=M), out)
        return state + x * y, total

    def behind_the_loop(x: Any, y: Any, state: Any, total: Any, out: Any) -> Any:
        return state + x * y, total + wd.sum(state, dim=M)

    sizes = {"M": 64, "N": 64, "P": 9}
    for target, waves in (("gfx942", 2), ("sm_80", 4)):
        p = partition(recurrent(each_trip), target, **sizes)
        assert (p.dims[M].waves, p.dims[N].waves) == (1, waves)
        p = partition(recurrent(behind_the_loop), target, **sizes)
        assert (p.dims[M].waves, p.dims[N].waves) == (waves, 1)
