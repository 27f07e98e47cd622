"""Asynchronous copies of tiles whose rows have any number of vectors: lanes take them one after the other, across rows.

Where such tiles lie is chosen with the banks in mind that their copies meet in, as long as a second workgroup has room.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavedsl as wd

B, D, K, M, N = wd.symbols("B D K M N")
F16, F32 = wd.f16, wd.f32


def product(rows: int, columns: int, deep: int) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(N, columns, 1), wd.TilingConstraint(K, deep)])
    def product(a: wd.Memory[M, K, F16], b: wd.Memory[N, K, F16], c: wd.Memory[M, N, F32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
        def total(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(total, c)

    return product


@pytest.mark.parametrize(
    ("tile", "most"), [((64, 64, 48), 5200), ((128, 64, 80), 2800), ((64, 64, 96), 2100)], ids=str
)
def test_copies_meet_in_few_banks(tile: tuple[int, int, int], most: int) -> None:
    """Rows in panels of a power of two of bytes had vectors of one row in the same banks: 8320, 9714 and 4096."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (128, 480)).astype(np.float16) for _ in range(2))
    c = np.zeros((128, 128), np.float32)
    report = product(*tile).compile(a, b, c, target="sm_80").emulate(a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    assert report.bank_conflicts <= most


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(B, 1, 1), wd.TilingConstraint(N, 64)], subs={D: 80})
def attention(
    q: wd.Memory[B, M, D, F16], k: wd.Memory[B, N, D, F16], v: wd.Memory[B, N, D, F16], o: wd.Memory[B, M, D, F16]
):  # fmt: skip
    query = wd.read(q)

    @wd.iterate(
        N, init_args=[wd.Register[M, F32](-1e30), wd.Register[M, F32](0.0), wd.Register[M, D, F32](0.0)]
    )  # fmt: skip
    def over_keys(top, total, acc):
        scores = wd.mma(query, wd.read(k), wd.Register[M, N, F32](0.0)) * 0.16
        new = wd.maximum(top, wd.max(scores, dim=N))
        powers, fade = wd.exp2(scores - new), wd.exp2(top - new)
        return new, total * fade + wd.sum(powers, dim=N), wd.mma(wd.cast(powers, F16), wd.read(v), acc * fade)

    wd.write(wd.cast(over_keys[2] / over_keys[1], F16), o)


def test_gaps_cost_no_workgroup() -> None:
    """Keys and values of 80 numbers in four slots fill half of an SM's shared memory; with gaps they fill more, and
    202285 clocks by the replay are 224994."""
    compiled = attention.compile(target="sm_80", subs={B: 64, M: 1024, N: 1024})
    assert compiled.shared_bytes == 81920
