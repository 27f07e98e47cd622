"""Small tiles on sm_90a: one warpgroup computes them, or warps do where an SM is done earlier so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cut_for
import numpy as np
import pytest
from agree import agree, near
from wavedsl.ir import pipeline
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

M, N, K = wd.symbols("M N K")
ROWS = [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)]


def norm_before(constraints: list[Any] = ROWS, schedule: wd.Schedule | None = None) -> wd.Kernel:
    """A product of rows that their roots of squares divide, which are summed beside it."""

    @wd.wave(constraints, schedule=schedule)
    def kernel(
        x: wd.Memory[M, K, wd.f16], gain: wd.Memory[K, wd.f16], w: wd.Memory[N, K, wd.f16], y: wd.Memory[M, N, wd.f16]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[M, wd.f32](0.0)])
        def loop(acc, squares):
            row = wd.read(x)
            full = wd.cast(row, wd.f32)
            return wd.mma(row * wd.read(gain), wd.read(w), acc), squares + wd.sum(full * full, dim=K)

        total, squares = loop
        wd.write(wd.cast(total * wd.rsqrt(squares / K + 1e-5), wd.f16), y)

    return kernel


def weights(m: int, n: int) -> wd.Kernel:
    """Weights of four bits with a scale for each 128, in a tile of m x n."""

    @wd.wave([wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, 64)])
    def kernel(
        x: wd.Memory[M, K, wd.SHARED, wd.f16], q: wd.Memory[N, K, wd.SHARED, wd.u4], s: wd.Memory[N, K / 128, wd.f16],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            w = wd.cast(wd.read(q), wd.f16) - 8
            return wd.mma(wd.read(x), w * wd.repeat_interleave(wd.read(s), K), acc)

        wd.write(loop, y)

    return kernel


def arguments(m: int, n: int, k: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    return [x, rng.uniform(0.5, 1.5, k).astype(np.float16), w, np.zeros((m, n), np.float16)]


def by_warps(compiled: wd.CompiledKernel) -> bool:
    told = [r for r in compiled.kernel_ir.notes["decisions"].reasons if r.startswith("warps: ")]
    assert ("wgmma" in compiled.asm) != ("mma.sync" in compiled.asm)
    assert len(told) == ("mma.sync" in compiled.asm)
    return bool(told)


def test_warps_compute_what_leaves_a_warpgroup_waiting(oracle: Callable[[str], str]) -> None:
    compiled = agree(norm_before(), arguments(64, 128, 160), "sm_90a", oracle, near(absolute=0.02))
    assert by_warps(compiled)
    given = arguments(32, 1 << 15, 256)
    clocks = []
    for _ in range(2):
        clocks.append(sample(norm_before().compile(*given, target="sm_90a"), given).replay().cycles)
        with cut_for.warpgroups():
            kept = norm_before().compile(*given, target="sm_90a")
            assert not by_warps(kept)
            clocks.append(sample(kept, given).replay().cycles)
    assert clocks[0] < 0.85 * clocks[1]
    assert clocks[2:] == clocks[:2]


@pytest.mark.parametrize(("columns", "passes"), [(1 << 15, [5, 5, 13]), (1 << 10, [5, 5, 13, 13])], ids=str)
def test_who_is_surely_later_goes_no_further(columns: int, passes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the first passes warps take 0.56 of the clocks where the grid is long, and 0.98 where it is short."""
    run, seen = pipeline.run_passes, []
    monkeypatch.setattr(pipeline, "run_passes", lambda k, p, *a, **rest: seen.append(len(p)) or run(k, p, *a, **rest))
    norm_before().compile(*arguments(32, columns, 256), target="sm_90a")
    assert seen == passes


@pytest.mark.parametrize("ask", [
    {"constraints": [*ROWS, wd.HardwareConstraint(threads_per_wave=128)]}, {"schedule": wd.Schedule(specialize=True)},
    {"schedule": wd.Schedule(persistent=True)},
], ids=["lanes", "roles", "turns"])  # fmt: skip
def test_who_asks_for_warpgroups_gets_them(ask: dict[str, Any]) -> None:
    compiled = agree(norm_before(**ask), arguments(64, 128, 160), "sm_90a", None, near(absolute=0.02))
    assert not by_warps(compiled)


@pytest.mark.parametrize(("tile", "depth", "warps"), [((64, 64), 4096, False), ((64, 64), 256, True)], ids=str)
def test_long_loops_of_large_tiles_stay(tile: tuple[int, int], depth: int, warps: bool) -> None:
    """64 x 64 x 64 of weights of four bits takes 536473 clocks by the model, by warps 764884 (2048 x 8192 x 4096)."""
    compiled = weights(*tile).compile(target="sm_90a", subs={M: 2048, N: 8192, K: depth})
    assert by_warps(compiled) == warps
