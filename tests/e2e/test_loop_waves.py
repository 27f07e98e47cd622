"""Sums over rows, tile after tile: waves take rows rather than parts of cache lines, columns are added in pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from wavedsl.ir.cuts.partition import cut
from wavedsl.ir.dataflow.constraints import resolve_constraints

import wavedsl as wd
from wavedsl.targets import get_target

M, N = wd.symbols("M N")


def column_sums(
    dtype: wd.DType, rows: int, columns: int, more: Callable[[Any], Any] | None = None, waves: int = 0
) -> Any:
    """Sums over M of a * b and of a, a strip of columns for each workgroup; `more`: what a trip does to its sum."""
    given = [wd.WaveConstraint(N, columns // waves)] if waves else []

    @wd.wave([wd.WorkgroupConstraint(N, columns, 0), wd.TilingConstraint(M, rows), *given])
    def sums(
        a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype], c: wd.Memory[N, wd.f32], d: wd.Memory[N, wd.f32]
    ):
        @wd.iterate(M, init_args=[wd.Register[N, wd.f32](0.0), wd.Register[N, wd.f32](1.0)])
        def over(first, second):
            x = wd.cast(wd.read(a), wd.f32)
            total = second + wd.sum(x, dim=M)
            return first + wd.sum(x * wd.cast(wd.read(b), wd.f32), dim=M), more(total) if more else total

        wd.write(over[0], c)
        wd.write(over[1], d)

    return sums


def waves_of(kernel: Any, target: str) -> dict[str, int]:
    graph, chip = kernel.trace(), get_target(target)
    found = cut(graph, resolve_constraints(graph, {M: 512, N: 1024}, max_waves=chip.max_waves), chip)
    return {str(d): p.waves for d, p in found.dims.items()}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.bf16, wd.f32], ids=str)
def test_they_are_right(target: str, dtype: wd.DType, oracle: Callable[[str], str]) -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, (72, 136)).astype(dtype.storage) for _ in range(2))
    agree(column_sums(dtype, 32, 64), [a, b, np.zeros(136, np.float32), np.zeros(136, np.float32)], target, oracle)
    agree(column_sums(dtype, 64, 256), [a, b, np.zeros(136, np.float32), np.zeros(136, np.float32)], target, oracle)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_waves_take_rows_where_columns_are_less_than_a_line(target: str) -> None:
    line = 64 if target == "gfx90a" else 128
    assert waves_of(column_sums(wd.bf16, 64, line // 2), target) == {"M": 4, "N": 1}
    assert waves_of(column_sums(wd.bf16, 32, 2 * line), target) == {"M": 1, "N": 4}
    assert waves_of(column_sums(wd.f32, 64, line), target) == {"M": 1, "N": 4}
    # Those that registers ask for take rows, too, once columns are a line.
    assert waves_of(column_sums(wd.bf16, 128, 2 * line), target) == {"M": line // 32, "N": 4}


def test_other_divisions_stay() -> None:
    assert waves_of(column_sums(wd.bf16, 16, 64), "gfx942") == {"M": 1, "N": 4}  # rows too few for four waves
    assert waves_of(column_sums(wd.bf16, 64, 64, waves=4), "gfx942") == {"M": 1, "N": 4}  # as the user says
    # A trip that does more than add would exchange in each: its waves have columns of their own.
    assert waves_of(column_sums(wd.bf16, 64, 64, lambda x: x * 2.0), "gfx942") == {"M": 1, "N": 4}
    assert waves_of(column_sums(wd.bf16, 64, 64), "sm_80") == {"M": 1, "N": 4}  # sectors of 32 bytes are whole


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_products_of_both_columns_of_a_pair_are_added_as_they_are_made(target: str) -> None:
    """Of odd columns they were rounded first, and so no pair was left: 8 multiply-adds of single numbers."""
    compiled = column_sums(wd.bf16, 64, 64).compile(subs={M: 512, N: 1024}, target=target)
    loop = compiled.asm[compiled.asm.index("; loop over M") : compiled.asm.rindex("s_cbranch")]
    inside = Counter(re.findall(r"^\tv_((?:pk_)?(?:fma|mul|add|fmac))_f32", loop, re.M))
    assert not {"fma", "mul", "add", "fmac"} & {*inside}, inside
    trips = compiled.resources.loops[0].steps  # of one jump
    assert inside["pk_fma"] == inside["pk_mul"] == 4 * trips


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_halves_of_waves_meet_side_by_side(target: str) -> None:
    """Exchanges through LDS are all asked for before the first is waited for: each waited alone."""
    asm = column_sums(wd.bf16, 64, 64).compile(subs={M: 512, N: 1024}, target=target).asm
    names = re.findall(r"^\t(\w+)", asm, re.M)
    runs = re.findall(r"(?:ds_bpermute_b32 )+", " ".join(names))
    assert runs and all(len(run.split()) >= 8 for run in runs), runs


def largest(**options: Any) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(N, 4096)], **options)
    def kernel(x: wd.Memory[M, N, wd.f32], best: wd.Memory[M, wd.f32], at: wd.Memory[M, wd.i32]):
        @wd.iterate(N, init_args=[wd.Register[wd.f32](-1e30), wd.Register[wd.i32](0)])
        def over(best, at):
            value = wd.read(x)
            most = wd.max(value, dim=N)
            return wd.maximum(best, most), wd.where(most > best, wd.argmax(value, dim=N), at)

        wd.write(over[0], best)
        wd.write(over[1], at)

    return kernel


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_few_rows_give_every_simd_two_waves(target: str) -> None:
    """A grid of a few long rows had two waves for the four SIMDs of a compute unit."""

    def waves(kernel: Any, m: int | None) -> int:
        rows = {} if m is None else {M: m}
        return kernel.compile(target=target, subs={N: 65536, **rows}).block[0] // 64

    assert waves(largest(), 64) == 8
    assert waves(largest(), 8192) == 2  # others are on the unit
    assert waves(largest(dynamic=[M]), None) == 2  # nobody knows


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_few_rows_are_right(target: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 16390)).astype(np.float32)
    x[1, 16389] = x[2, 4096] = 9
    agree(largest(), [x, np.zeros(3, np.float32), np.zeros(3, np.int32)], target)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_waves_that_would_meet_all_the_time_do_not_share_rows(target: str) -> None:
    """A pass of a sort by digits scans its row sixteen times: two warps spent more on barriers than they shared, and
    had 31459 clocks of sm_80, spills among them, where one has 23636."""
    T, B = wd.symbols("T B")

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
    def sorted_by_digits(keys: wd.Memory[B, 2, N, wd.u32]):
        @wd.iterate(T, init_args=[])
        def one_pass():
            t, n = wd.tile_start(T), wd.index(N)
            key = wd.read(keys[B, t % 2, n])
            digit = wd.cast(key >> (4 * t), wd.i32) & 15
            place, base = wd.Register[N, wd.i32](0), wd.Register[wd.i32](0)
            for d in range(16):
                mine = wd.cast(digit == d, wd.i32)
                place = wd.where(digit == d, base + wd.cumsum(mine, dim=N) - 1, place)
                base += wd.sum(mine, dim=N)
            wd.write(key, keys[B, (t + 1) % 2, place])

    keys = np.zeros((1, 2, 300), np.uint32)
    keys[:, 0] = np.random.default_rng(0).integers(0, 1 << 16, 300)
    compiled = agree(sorted_by_digits, [keys], target, subs={T: 4})
    assert compiled.block[0] == 32
    compiled.emulate(keys)
    assert (keys[0, 0] == np.sort(keys[0, 0])).all() and len(set(keys[0, 0])) > 200
