"""Sums that a loop only adds to stay in parts until behind the loop; others are added up in every trip."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

C, M, N, BN = wd.symbols("C M N BN")
EXCHANGES = r"shfl|_dpp|ds_swizzle|ds_bpermute|ds_read|ld\.shared"


def row_sums(dtype: wd.DType, start: Any, waves: int = 1, more: bool = False) -> Any:
    @wd.wave(
        [wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(N, BN), wd.WaveConstraint(N, BN / waves)],
        subs={BN: 512 * waves},
    )
    def sums(a: wd.Memory[M, N, dtype], s: wd.Memory[M, dtype]):
        @wd.iterate(N, init_args=[wd.Register[dtype](start)])
        def over_columns(acc: wd.Register[dtype]):
            acc = acc + wd.sum(wd.read(a), dim=N)
            return acc + acc if more else acc

        wd.write(over_columns, s)

    return sums


def sums_of_rows(dtype: wd.DType, rows: int) -> Any:
    @wd.wave(
        [wd.WorkgroupConstraint(M, rows, 0), wd.TilingConstraint(N, BN), wd.WaveConstraint(N, BN / 2)],
        subs={BN: 1024},
    )
    def sums(a: wd.Memory[M, N, dtype], s: wd.Memory[M, dtype]):
        @wd.iterate(N, init_args=[wd.Register[M, dtype](7)])
        def over_columns(acc: wd.Register[M, dtype]):
            return acc + wd.sum(wd.read(a), dim=N)

        wd.write(over_columns, s)

    return sums


def loop_text(text: str) -> str:
    """What lies between the first loop's label and the last branch back to one."""
    labels = re.findall(r"^\s*([.$]\w*N\d+(?:_\d+)?):", text, re.M)
    return text[text.index(f"{labels[0]}:") : text.rindex(labels[-1])]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "waves"), [(wd.f32, 1), (wd.f32, 4), (wd.f64, 1), (wd.i32, 2)], ids=lambda x: str(x))
def test_lanes_and_waves_add_up_behind_the_loop(
    target: str, dtype: wd.DType, waves: int, oracle: Callable[[str], str]
) -> None:
    a = np.random.default_rng(waves).integers(-9, 10, (2, 5 * 512 * waves - 100)).astype(dtype.storage)
    compiled = agree(row_sums(dtype, 7, waves), [a, np.zeros(2, a.dtype)], target, oracle)
    assert not re.search(EXCHANGES, loop_text(compiled.asm))
    assert re.search(EXCHANGES, compiled.asm)


def columns(dtype: wd.DType, waves: int) -> Any:
    @wd.wave(
        [wd.WorkgroupConstraint(C, 32, 0), wd.TilingConstraint(N, 2), wd.WaveConstraint(N, 2 / waves)], subs={M: 24}
    )
    def sums(a: wd.Memory[N, M, C, dtype], s: wd.Memory[C, dtype]):
        @wd.iterate(N, init_args=[wd.Register[C, dtype](7)])
        def over_both(acc: wd.Register[C, dtype]):
            return acc + wd.sum(wd.read(a), dim=(M, N))

        wd.write(over_both, s)

    return sums


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "waves"), [(wd.f32, 1), (wd.f32, 2), (wd.i32, 2), (wd.f64, 1)], ids=lambda x: str(x))
def test_sums_along_two_dimensions_wait_too(
    target: str, dtype: wd.DType, waves: int, oracle: Callable[[str], str]
) -> None:
    a = np.random.default_rng(waves).integers(-9, 10, (11, 24, 40)).astype(dtype.storage)
    compiled = agree(columns(dtype, waves), [a, np.zeros(40, a.dtype)], target, oracle)
    assert not re.search(EXCHANGES, loop_text(compiled.asm))
    assert re.search(EXCHANGES, compiled.asm)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "rows"), [(wd.f32, 4), (wd.f64, 2), (wd.i32, 8)], ids=lambda x: str(x))
def test_rows_cross_the_waves_together(
    target: str, dtype: wd.DType, rows: int, oracle: Callable[[str], str]
) -> None:
    """One barrier for all rows, not one for every row."""
    a = np.random.default_rng(rows).integers(-9, 10, (rows, 3000)).astype(dtype.storage)
    compiled = agree(sums_of_rows(dtype, rows), [a, np.zeros(rows, a.dtype)], target, oracle)
    behind = compiled.asm[compiled.asm.rindex(loop_text(compiled.asm)[-80:]) :]
    assert len(re.findall(r"s_barrier|bar\.sync|barrier\.sync", behind)) == 1


def test_a_sum_that_more_is_done_with_adds_in_every_trip(oracle: Callable[[str], str]) -> None:
    a = np.random.default_rng(1).integers(-9, 10, (2, 1500)).astype(np.float32)
    compiled = agree(row_sums(wd.f32, 1.0, more=True), [a, np.zeros(2, np.float32)], "sm_80", oracle)
    assert re.search(EXCHANGES, loop_text(compiled.asm))


def test_a_negative_zero_stays_one(oracle: Callable[[str], str]) -> None:
    """The parts of lanes start from what changes no number."""
    s = np.ones(2, np.float32)
    row_sums(wd.f32, -0.0).compile(a := np.full((2, 1024), -0.0, np.float32), s, target="sm_80").emulate(a, s)
    assert np.signbit(s).all() and not s.any()
