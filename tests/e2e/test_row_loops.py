"""Loops over rows that hold two of them over sums, as gradients of norms do: a trip has as many rows as there are
registers for, whatever tile somebody wrote, and what the next one wants is on its way while it computes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from families import TARGETS, Case, by_graph, normal, on_chip, whole, wide
from wavedsl.ir.cuts.smaller_trips import rows_apart
from wavedsl.runtime.emulator.cycle_chips import model_of
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

G, L, N, R = wd.symbols("G L N R")
BF16, F32 = wd.bf16, wd.f32
HALF = ml_dtypes.bfloat16


def gradients(added: bool) -> Any:
    """All gradients of a layer norm: each workgroup goes through its rows, R at a time, and leaves its part of those of
    the gain and the bias, or adds it."""
    sums = wd.Memory[N, F32] if added else wd.Memory[G, N, F32]

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(L, R)], subs={R: 4})
    def backward(
        x: wd.Memory[G, L, N, BF16], dy: wd.Memory[G, L, N, BF16], gain: wd.Memory[N, BF16], mean: wd.Memory[G, L, F32],
        scale: wd.Memory[G, L, F32], dx: wd.Memory[G, L, N, BF16], dg: sums, db: sums,
    ):  # fmt: skip
        @wd.iterate(L, init_args=[wd.Register[N, F32](0.0), wd.Register[N, F32](0.0)])
        def rows(to_gain, to_bias):
            slope, factor = wd.cast(wd.read(dy), F32), wd.read(scale)
            normed = (wd.cast(wd.read(x), F32) - wd.read(mean)) * factor
            change = slope * wd.cast(wd.read(gain), F32)
            change = change - normed * (wd.sum(change * normed, dim=N) / N) - wd.sum(change, dim=N) / N
            wd.write(wd.cast(change * factor, BF16), dx)
            return to_gain + wd.sum(slope * normed, dim=L), to_bias + wd.sum(slope, dim=L)

        if added:
            wd.atomic_add(rows[0], dg)
            wd.atomic_add(rows[1], db)
        else:
            wd.write(rows[0], dg)
            wd.write(rows[1], db)

    return backward


LEFT, ADDED = gradients(False), gradients(True)


def gradients_case(added: bool, groups: int, rows: int, columns: int, tile: int) -> Case:
    x, dy = normal(groups, rows, columns, dtype=HALF), normal(groups, rows, columns, seed=1, dtype=HALF)
    gain, mean = normal(columns, seed=2, dtype=HALF), normal(groups, rows, seed=3)
    scale = np.abs(normal(groups, rows, seed=4)) + 0.5
    factor = wide(scale)[..., None]
    normed, change = (wide(x) - wide(mean)[..., None]) * factor, wide(dy) * wide(gain)
    dx = (change - normed * (change * normed).mean(2, keepdims=True) - change.mean(2, keepdims=True)) * factor
    dg, db = (wide(dy) * normed).sum(1), wide(dy).sum(1)
    outputs = [np.zeros_like(x), np.zeros(dg.shape[added:], np.float32), np.zeros(dg.shape[added:], np.float32)]
    wants = {5: dx, 6: dg.sum(0) if added else dg, 7: db.sum(0) if added else db}
    return Case([x, dy, gain, mean, scale, *outputs], wants, {R: tile}, 2e-2, (G, L))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("added", [False, True])
def test_gradients_of_rows(added: bool, target: str) -> None:
    """Also of a last tile that has fewer rows, and of rows of which there is only one."""
    kernel = ADDED if added else LEFT
    for case in (
        gradients_case(added, 2, 12, 4096, 4), gradients_case(added, 2, 7, 3000, 8), gradients_case(added, 3, 1, 300, 2)
    ):  # fmt: skip
        on_chip(kernel, case, target)
        by_graph(kernel, case)
    on_chip(kernel, gradients_case(added, 2, 7, 4096, 8), target, (G, L))


def production(target: str, columns: int) -> list[Any]:
    """Two workgroups a unit, of 16 rows each."""
    groups = 2 * model_of(target).units
    rows = np.random.default_rng(0).standard_normal((16, columns)).astype(HALF)
    x, factors = np.broadcast_to(rows, (groups, *rows.shape)).copy(), np.ones((groups, 16), np.float32)
    sums = [np.zeros((groups, columns), np.float32) for _ in range(2)]
    return [x, x.copy(), rows[0].copy(), factors, factors.copy(), np.zeros_like(x), *sums]


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("columns", "tile"),
    [(8192, 1), (8192, 8), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((8192, 2), (8192, 4), (4096, 4)))],
)
def test_gradients_take_as_long_as_memory(columns: int, tile: int, target: str) -> None:
    """Times over memory's by the model, gfx942, gfx950, sm_80, sm_90a, before: of 8192 columns in tiles of 1 row 1.0,
    1.0, 1.4, 1.4; of 2 1.3, 1.4, 1.3, 1.3; of 4 2.8, 3.4, 1.3, 1.2; of 8 4.5, 6.0, 1.2, 1.2 (242 registers were
    spilled, and on sm_80 2396 bytes, which the model does not see); of 4096 and 4 1.4, 1.5, 1.2, 1.2."""
    arguments = production(target, columns)
    compiled = LEFT.compile(*arguments, target=target, subs={R: tile})
    assert not compiled.resources.spills
    moved = sum(a.nbytes for a in arguments)
    clocks = sample(compiled, arguments).replay().cycles
    assert clocks < 1.1 * moved / model_of(target).dram_rate


def test_rows_of_few_trips_too() -> None:
    """Two rows of 1024 for each of two waves: they had been loaded when everything was computed, in 1.34 times what
    memory takes."""
    arguments = production("gfx942", 1024)
    clocks = sample(LEFT.compile(*arguments, target="gfx942"), arguments).replay().cycles
    assert clocks < 1.2 * sum(a.nbytes for a in arguments) / model_of("gfx942").dram_rate


# ---- whose tiles are the user's


def loop_of(step: Any) -> Any:
    """The graph of a loop over rows that does this with what it carries and a tile of rows."""

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(L, 8)])
    def kernel(x: wd.Memory[G, L, N, F32], y: wd.Memory[G, L, N, F32], z: wd.Memory[G, N, F32]):
        @wd.iterate(L, init_args=[wd.Register[N, F32](0.0)])
        def rows(total):
            return step(total, wd.read(x), y, z)

        wd.write(rows, z)

    return kernel.trace()


def added(total: Any, value: Any, y: Any, z: Any) -> Any:
    wd.write(value * wd.sum(value, dim=N), y)
    return total + wd.sum(value, dim=L)


def largest(total: Any, value: Any, y: Any, z: Any) -> Any:
    return wd.maximum(wd.max(value * wd.cast(wd.index(L), F32), dim=L), total)


def scanned(total: Any, value: Any, y: Any, z: Any) -> Any:
    wd.write(wd.cumsum(value, dim=L), y)
    return total + wd.sum(value, dim=L)


def beside(total: Any, value: Any, y: Any, z: Any) -> Any:
    """A trip's own sum is used."""
    mine = wd.sum(value, dim=L)
    wd.write(value - mine, y)
    return total + mine


def faded(total: Any, value: Any, y: Any, z: Any) -> Any:
    return total * 0.5 + wd.sum(value, dim=L)


def carried_used(total: Any, value: Any, y: Any, z: Any) -> Any:
    wd.write(value - total, y)
    return total + wd.sum(value, dim=L)


def counted(total: Any, value: Any, y: Any, z: Any) -> Any:
    wd.write(value * wd.cast(wd.tile_start(L), F32), y)
    return total + wd.sum(value, dim=L)


def read_back(total: Any, value: Any, y: Any, z: Any) -> Any:
    wd.write(value, y)
    wd.fence()
    return total + wd.sum(wd.read(y), dim=L)


def stored_each_trip(total: Any, value: Any, y: Any, z: Any) -> Any:
    wd.atomic_max(total * 0.0, z)
    return total + wd.sum(value, dim=L)


@pytest.mark.parametrize(
    ("step", "apart"),
    [(added, True), (largest, True), (scanned, False), (beside, False), (faded, False), (carried_used, False),
     (counted, False), (read_back, False), (stored_each_trip, False)],
)  # fmt: skip
def test_which_loops_go_row_by_row(step: Any, apart: bool) -> None:
    assert rows_apart(loop_of(step), L, 8) is apart


@pytest.mark.parametrize(("ends", "apart"), [("loaded", False), ("apart", False), ("tiles", True)])
def test_ranges_are_of_whole_tiles(ends: str, apart: bool) -> None:
    """A range that begins within a tile has all of it."""

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(L, 8)])
    def kernel(x: wd.Memory[L, N, F32], last: wd.Memory[G, wd.i32], z: wd.Memory[G, N, F32]):
        first = wd.index(G) * (24 if ends == "tiles" else 20)
        stop = wd.read(last) if ends == "loaded" else first + 48

        @wd.iterate(L, init_args=[wd.Register[N, F32](0.0)], start=first, stop=stop)
        def rows(total):
            return total + wd.sum(wd.read(x), dim=L)

        wd.write(rows, z)

    assert rows_apart(kernel.trace(), L, 8) is apart


M = wd.sym.M


@wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(M, 4)])
def ranges(
    x: wd.Memory[M, N, BF16], dy: wd.Memory[M, N, BF16], gain: wd.Memory[N, BF16], scale: wd.Memory[M, F32],
    dx: wd.Memory[M, N, BF16], dg: wd.Memory[G, N, F32],
):  # fmt: skip
    """Gradients of an RMS norm, 16 rows of all for a workgroup."""
    first = wd.index(G) * 16

    @wd.iterate(M, init_args=[wd.Register[N, F32](0.0)], start=first, stop=first + 16)
    def rows(to_gain):
        slope, factor = wd.cast(wd.read(dy), F32), wd.read(scale)
        normed, change = wd.cast(wd.read(x), F32) * factor, slope * wd.cast(wd.read(gain), F32)
        change = change - normed * (wd.sum(change * normed, dim=N) / N)
        wd.write(wd.cast(change * factor, BF16), dx)
        return to_gain + wd.sum(slope * normed, dim=M)

    wd.write(rows, dg)


def ranges_case(groups: int, rows: int, columns: int) -> Case:
    x, dy = normal(rows, columns, dtype=HALF), normal(rows, columns, seed=1, dtype=HALF)
    gain, scale = normal(columns, seed=2, dtype=HALF), np.abs(normal(rows, seed=4)) + 0.5
    factor = wide(scale)[:, None]
    normed, change = wide(x) * factor, wide(dy) * wide(gain)
    dx = (change - normed * (change * normed).mean(1, keepdims=True)) * factor
    parts = [(wide(dy) * normed)[16 * g : 16 * g + 16].sum(0) for g in range(groups)]
    outputs = [np.zeros_like(x), np.zeros((groups, columns), np.float32)]
    return Case([x, dy, gain, scale, *outputs], {4: dx, 5: np.stack(parts)}, {}, 2e-2, (M,))


@pytest.mark.parametrize("target", TARGETS)
def test_ranges_of_rows(target: str) -> None:
    for case in (ranges_case(2, 32, 8192), ranges_case(3, 39, 3000)):
        on_chip(ranges, case, target)
    on_chip(ranges, case, target, (M,))
    by_graph(ranges, case)
    if target in ("sm_80", "sm_90a"):
        assert not ranges.compile(*ranges_case(2, 32, 8192).arguments, target=target).resources.spills


def tiles_case(groups: int, rows: int, columns: int) -> Case:
    x = whole(groups, rows, columns, dtype=np.float32)
    tile = np.arange(rows) // 8
    want = np.stack([x[:, tile <= t].sum(1) for t in tile], 1)
    return Case([x, np.zeros_like(x)], {1: want}, {}, 0.0, (G,))


@pytest.mark.parametrize("target", TARGETS)
def test_a_trips_sum_that_is_used_is_that_of_the_tile(target: str) -> None:
    """Eight rows of 4096 are as many as lack registers where the tile may be smaller."""

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(L, 8)])
    def kernel(x: wd.Memory[G, L, N, F32], y: wd.Memory[G, L, N, F32]):
        @wd.iterate(L, init_args=[wd.Register[N, F32](0.0)])
        def rows(total):
            value = wd.read(x)
            total = total + wd.sum(value, dim=L)
            wd.write(value * 0.0 + total, y)
            return total

    on_chip(kernel, tiles_case(2, 20, 4096), target)
