"""Running sums down columns: a lane has neighbours of a column, so that lanes tell each other once what all of them add
up to, and where a wave has lanes for all columns nobody tells anyone anything."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from families import TARGETS, Case, by_graph, on_chip, whole, wide

import wavedsl as wd

B, BM, BN, M, N, WM, WN = wd.symbols("B BM BN M N WM WN")
F32 = wd.f32
SIZES = ((16, 64, 16, 64), (16, 64, 16, 16), (64, 32, 64, 8), (32, 128, 8, 64), (12, 40, 12, 40), (16, 200, 16, 200))
"""Rows and columns of a workgroup and of a wave."""


def cumulated(dtype: wd.DType, backward: bool) -> Any:
    @wd.wave(
        [wd.WorkgroupConstraint(N, BN, 0), wd.TilingConstraint(M, BM), wd.WaveConstraint(M, WM),
         wd.WaveConstraint(N, WN)]
    )  # fmt: skip
    def kernel(x: wd.Memory[M, N, dtype], y: wd.Memory[M, N, F32], z: wd.Memory[N, F32]):
        @wd.iterate(M, init_args=[wd.Register[N, F32](0.0)])
        def rows(before):
            value = wd.cast(wd.read(x), F32)
            wd.write(wd.cumsum(value, dim=M, reverse=backward), y)
            return before + wd.sum(value, dim=M)

        wd.write(rows, z)

    return kernel


def cumulated_case(rows: int, columns: int, size: tuple[int, ...], dtype: Any, backward: bool) -> Case:
    x = whole(rows, columns, dtype=dtype)
    tiles = [wide(x)[i : i + size[0]] for i in range(0, rows, size[0])]
    want = [t[::-1].cumsum(0)[::-1] if backward else t.cumsum(0) for t in tiles]
    wants = {1: np.concatenate(want), 2: wide(x).sum(0)}
    outputs = np.zeros((rows, columns), np.float32), np.zeros(columns, np.float32)
    return Case([x, *outputs], wants, dict(zip((BM, BN, WM, WN), size)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.bf16], ids=str)
@pytest.mark.parametrize("backward", [False, True])
def test_down_columns(backward: bool, dtype: wd.DType, target: str) -> None:
    kernel = cumulated(dtype, backward)
    storage = ml_dtypes.bfloat16 if dtype is wd.bf16 else np.float32
    for size in SIZES:
        case = cumulated_case(2 * size[0] + 5, size[1] + 3, size, storage, backward)
        on_chip(kernel, case, target)
    by_graph(kernel, case)


@wd.wave([wd.WorkgroupConstraint(B, 2, 1), wd.WorkgroupConstraint(N, BN, 0)])
def recurrent(a: wd.Memory[B, M, N, F32], x: wd.Memory[B, M, N, F32], h: wd.Memory[B, M, N, F32]):
    """h[m] = a[m] h[m - 1] + x[m], of a pair of matrices."""

    def after(p, q):
        return p[0] * q[0], p[1] * q[0] + q[1]

    _, state = wd.scan((wd.read(a), wd.read(x)), after, (1.0, 0.0), dim=M)
    wd.write(state, h)


def recurrent_case(b: int, m: int, n: int, tile: int) -> Case:
    a, x = whole(b, m, n, dtype=np.float32, low=-1, high=2), whole(b, m, n, seed=1, dtype=np.float32)
    h = np.zeros((b, m + 1, n))
    for i in range(m):
        h[:, i + 1] = a[:, i] * h[:, i] + x[:, i]
    return Case([a, x, np.zeros_like(x)], {2: h[:, 1:]}, {BN: tile})


@pytest.mark.parametrize("target", TARGETS)
def test_recurrences_down_columns(target: str) -> None:
    for size in ((2, 16, 64, 64), (3, 24, 70, 32), (2, 7, 16, 8)):
        on_chip(recurrent, recurrent_case(*size), target)
        by_graph(recurrent, recurrent_case(*size))


def test_nobody_is_told_what_a_lanes_column_adds_up_to() -> None:
    """Of 64 columns and 16 rows a lane had four columns of every fourth row, told others of all 16 numbers, and once
    more of what they add up to. How long that takes is in `test_written_streams` ("running")."""
    compiled = cumulated(F32, False).compile(target="gfx942", subs={M: 64, N: 512, BM: 16, BN: 256, WM: 16, WN: 64})
    assert compiled.resources.loops[0].instructions["ds"] == 0


@pytest.mark.parametrize(("target", "name"), [("gfx942", "ds"), ("gfx950", "ds"), ("sm_80", "lsu")])
def test_what_columns_add_up_to_is_known_beside(target: str, name: str) -> None:
    """What lanes tell each other for running sums is what they would for the sum: four rows of 16 in a lane, in two
    chains where neighbours are added as pairs, had been told once more."""

    def told(both: bool) -> int:
        @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
        def kernel(x: wd.Memory[M, N, F32], y: wd.Memory[M, N, F32], z: wd.Memory[N, F32]):
            value = wd.read(x)
            wd.write(wd.cumsum(value, dim=M), y)
            wd.write(wd.sum(value, dim=M) if both else wd.Register[N, F32](0.0), z)

        return int(kernel.compile(target=target, subs={M: 16, N: 512}).resources.instructions[name])

    assert told(True) == told(False) > 0
