"""In how many parts the compiler cuts K of layers of few rows by itself, beside the clocks of other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

M, N, K = wd.symbols("M N K")


def layer(weights: wd.DType, tile: tuple[int, int, int], parts: int | None = None) -> Any:
    m, n, k = tile

    @wd.wave(
        [wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, k)],
        schedule=None if parts is None else wd.Schedule(split_k=parts),
    )
    def product(
        x: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, weights], scale: wd.Memory[N, K / 128, wd.f16],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            q = wd.cast(wd.read(w), wd.f16)
            if weights.bits == 4:
                q = (q - 8) * wd.repeat_interleave(wd.read(scale), K)
            return wd.mma(wd.read(x), q, acc)

        wd.write(total, y)

    return product


def data(weights: wd.DType, m: int, n: int, k: int) -> list[Any]:
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (m, k)).astype(np.float16)
    scale = (rng.integers(1, 4, (n, k // 128)) / 16).astype(np.float16)
    if weights.bits == 4:
        w = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
    else:
        w = rng.integers(-8, 8, (n, k)).astype(weights.numpy)
    return [x, w, scale, np.zeros((m, n), np.float32)]


def parts_of(compiled: wd.CompiledKernel) -> int:
    (note,) = (r for r in compiled.decisions.reasons if r.startswith("split_k: "))
    return int(note.split()[1])


CASES = [
    ("gfx942", wd.u4, (16, 64, 256), 1, 4096, 4096, (1, 2, 4, 8), 0.55),
    ("gfx942", wd.u4, (16, 64, 256), 1, 4096, 14336, (4, 8), 1.0),
    ("gfx942", wd.f16, (16, 64, 256), 1, 4096, 4096, (1, 2, 8), 0.7),
    ("gfx950", wd.i8, (16, 64, 64), 1, 14336, 4096, (2, 4, 8), 1.0),
    ("gfx950", wd.f16, (64, 64, 64), 64, 4096, 4096, (4, 8, 16), 1.0),
    ("sm_90a", wd.u4, (16, 64, 64), 1, 4096, 4096, (1, 2, 4, 8), 0.7),
    ("sm_80", wd.u4, (16, 64, 64), 1, 4096, 4096, (1, 2, 4), 0.75),
    ("sm_80", wd.f16, (16, 64, 256), 1, 4096, 4096, (1, 2, 4), 1.0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[1]} {c[2]} {c[4]}x{c[5]}")
def test_parts_are_about_the_best_of_a_ladder(case: tuple[Any, ...]) -> None:
    """Within a seventh of the fastest, and below a share of the slowest: what is computed of weights element by element
    had counted as if every operation were a multiply-add, and fewer trips than eight were no part's."""
    target, weights, tile, m, n, k, ladder, share = case
    given = data(weights, m, n, k)
    own = layer(weights, tile).compile(*given, target=target)
    clocks = [sample(layer(weights, tile, p).compile(*given, target=target), given).replay().cycles for p in ladder]
    mine = sample(own, given).replay().cycles
    assert mine <= min(clocks) * 8 / 7, (parts_of(own), mine, dict(zip(ladder, clocks)))
    assert mine <= share * max(clocks), (parts_of(own), mine, dict(zip(ladder, clocks)))


@pytest.mark.parametrize(
    ("target", "n", "k"), [("gfx942", 28672, 8192), ("sm_90a", 14336, 4096), ("sm_80", 14336, 4096)]
)
def test_where_memory_takes_the_time_one_part_stays(target: str, n: int, k: int) -> None:
    """Tiles enough for all units, in halves: bytes at the port, or from memory, are what is waited for."""
    subs = {M: 1, N: n, K: k}
    assert parts_of(layer(wd.f16, (16, 64, 256)).compile(target=target, subs=subs)) == 1
