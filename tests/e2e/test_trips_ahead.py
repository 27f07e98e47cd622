"""Loads straight into registers that start several trips before their use: right for any number of trips, without
findings, earlier done; and where they stay a trip ahead."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from families import TARGETS, Case, by_graph, normal, on_chip
from wavedsl.ir.schedule.trips_ahead import MOST_AHEAD
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl.reports import schedule_text

B, K, M, N, S, T, V = wd.symbols("B K M N S T V")
F32, I32 = wd.f32, wd.i32
STEPS = (0, 1, 2, 3, 5, 8, 9, 64)


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def faded(x: wd.Memory[B, T, N, F32], keep: wd.Memory[B, T, F32], y: wd.Memory[B, T, N, F32]):
    """A row per step, a number that all of it is multiplied with, and a row that is stored."""

    @wd.iterate(T, init_args=[wd.Register[N, F32](0.0)])
    def steps(h):
        t = wd.tile_start(T)
        h = h * wd.read(keep[:, t]) + wd.read(x[:, t])
        wd.write(h, y[:, t])
        return h


def faded_case(b: int, t: int, n: int) -> Case:
    x, keep = normal(b, t, n), np.random.default_rng(1).random((b, t)).astype(np.float32)
    want, h = np.zeros((b, t, n)), np.zeros((b, n))
    for i in range(t):
        h = h * keep[:, i, None] + x[:, i]
        want[:, i] = h
    return Case([x, keep, np.full((b, t, n), 7, np.float32)], {2: want}, {}, 1e-4, (B, T))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(S, 64)])
def picked(at: wd.Memory[B, S, I32], table: wd.Memory[V, F32], total: wd.Memory[B, F32]):
    """Numbers of a table whose places each trip loads."""

    @wd.iterate(S, init_args=[wd.Register[F32](0.0)])
    def found(acc):
        return acc + wd.sum(wd.read(table, mapping=wd.IndexMapping((S,), {V: wd.read(at)})), dim=S)

    wd.write(found, total)


def picked_case(b: int, s: int, v: int) -> Case:
    rng = np.random.default_rng(0)
    at, table = rng.integers(0, v, (b, s)).astype(np.int32), rng.integers(-8, 9, v).astype(np.float32)
    return Case([at, table, np.zeros(b, np.float32)], {2: table[at].sum(1)}, {}, 0.0, (B, S))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def handed(x: wd.Memory[B, T, N, F32], y: wd.Memory[B, T, N, F32]):
    """Each step reads what the one before has stored."""

    @wd.iterate(T, init_args=[wd.Register[N, F32](0.0)])
    def steps(h):
        t = wd.tile_start(T)
        before = wd.read(y[:, wd.maximum(t - 1, 0)])
        h = wd.where(t == 0, 0.0, before * 0.5) + wd.read(x[:, t])
        wd.write(h, y[:, t])
        wd.fence()
        return h


def handed_case(b: int, t: int, n: int) -> Case:
    x, want, h = normal(b, t, n), np.zeros((b, t, n)), np.zeros((b, n))
    for i in range(t):
        h = h * 0.5 + x[:, i]
        want[:, i] = h
    return Case([x, np.zeros((b, t, n), np.float32)], {1: want}, {}, 1e-4, (B, T))


def ahead(compiled: Any) -> list[int]:
    """Trips that the loads of each loop run ahead of their use."""
    return [note.body.turns for note in compiled.kernel_ir.notes["lowering"].loops]


def clocks(kernel: Any, case: Case, target: str, schedule: Any = None) -> tuple[int, Any]:
    """Clocks of a sample by the replay, and what was compiled."""
    mine = [a.copy() for a in case.arguments]
    if schedule is not None:
        kernel = wd.wave(kernel.constraints, schedule=schedule)(kernel.function)
    compiled = kernel.compile(*mine, target=target)
    return sample(compiled, mine).cycles, compiled


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("target", TARGETS)
def test_any_number_of_trips(steps, target):
    """Known when it is compiled, and by one text for all."""
    case = faded_case(3, steps, 70)
    on_chip(faded, case, target)
    on_chip(faded, case, target, case.dynamic)
    by_graph(faded, case)


def test_one_text_for_all_numbers_of_trips():
    """Of two trips and of many: the same launch text, which loads ahead."""
    texts = set()
    for steps in STEPS[1:]:
        compiled = on_chip(faded, faded_case(2, steps, 64), "gfx942", (B, T))
        assert ahead(compiled)[0] > 1
        texts.add(compiled.asm)
    assert len(texts) == 1


@pytest.mark.parametrize("size", (1, 64, 65, 513, 1000))
@pytest.mark.parametrize("target", TARGETS)
def test_places_that_are_loaded(size, target):
    """Numbers first, then what lies there, each as many trips ahead; ends of rows masked."""
    case = picked_case(2, size, 37)
    on_chip(picked, case, target)
    on_chip(picked, case, target, case.dynamic)


BOUNDS = {"gfx942": (12000, 12000), "gfx950": (12000, 12000), "sm_80": (7000, 7000), "sm_90a": (9000, 9000)}
"""Clocks of 64 trips by the replay; with loads a trip ahead 55588, 54235 on AMD's chips, 31690, 31502 on sm_80, 44015,
42731 on sm_90a."""


@pytest.mark.parametrize("target", BOUNDS)
def test_trips_do_not_wait_for_rows(target):
    took, compiled = clocks(faded, faded_case(2, 64, 64), target)
    assert took < BOUNDS[target][0] and ahead(compiled) == [MOST_AHEAD]


@pytest.mark.parametrize("target", BOUNDS)
def test_trips_do_not_wait_for_what_they_pick(target):
    took, compiled = clocks(picked, picked_case(2, 4096, 1000), target)
    assert took < BOUNDS[target][1] and ahead(compiled)[0] > 2


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_loop_writes_is_not_loaded_ahead(target):
    case = handed_case(2, 9, 64)
    compiled = on_chip(handed, case, target)
    (note,) = compiled.kernel_ir.notes["lowering"].loops
    last = note.body.count - 1
    stages = {s.array: stage for s, stage in zip(note.steps, note.body.stages) if s.array}
    assert stages["y"] == last and note.body.turns == 1


@pytest.mark.parametrize(("stages", "wanted"), [(1, 1), (2, 1), (3, 2), (5, 4), (40, MOST_AHEAD)])
def test_stages_say_how_far_ahead(stages, wanted):
    case = faded_case(2, 64, 64)
    _, compiled = clocks(faded, case, "gfx942", wd.Schedule(stages=stages))
    assert ahead(compiled) == [wanted]
    said = f"loads {wanted} trips ahead" in schedule_text(compiled.kernel_ir)
    assert said == (wanted > 1)


def test_few_trips_stay_as_they_are():
    """Three trips: two ahead would be most of them."""
    _, compiled = clocks(faded, faded_case(2, 3, 64), "gfx942")
    assert ahead(compiled) == [1]


def test_waves_stay_resident():
    """Where the grid fills the chip, waves hide each other's latency, and none gives its place to loads."""
    case = faded_case(2432, 64, 256)
    one, several = (clocks(faded, case, "gfx942", schedule) for schedule in (wd.Schedule(stages=2), None))
    assert several[1].resources.occupancy == one[1].resources.occupancy and several[0] <= 1.01 * one[0]


def test_parts_of_sums_are_added_ahead():
    """Whoever comes last to a tile adds sixteen parts: 20059 clocks with loads a trip ahead."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)],
        schedule=wd.Schedule(split_k=16),
    )
    def product(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, F32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
        def total(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(total, c)

    a, b = (normal(128, 8192, seed=i, dtype=np.float16) for i in (0, 1))
    took, compiled = clocks(product, Case([a, b, np.zeros((128, 128), np.float32)], {}), "gfx942")
    assert took < 17000 and ahead(compiled)[1] > 2


@wd.wave([wd.WorkgroupConstraint(N, 256, 0), wd.TilingConstraint(M, 1)])
def summed_down(x: wd.Memory[M, N, F32], y: wd.Memory[M, N, F32]):
    """A row is loaded and one is stored in each trip."""

    @wd.iterate(M, init_args=[wd.Register[N, F32](0.0)])
    def rows(before):
        row = before + wd.read(x[wd.tile_start(M), :])
        wd.write(row, y[wd.tile_start(M), :])
        return row


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_trips_do_not_wait_as_their_entry_must(target: str) -> None:
    """In front of the loop eight rows are on their way; later as many, and eight stores between them. What is eight
    accesses old at the entry is sixteen old in a trip: where the trip's wait had to do for both, it was for loads that
    had just begun (at most 6 left, and of a picture's sums down its columns every second trip waited for memory)."""
    for rows in STEPS:
        x = np.random.default_rng(0).integers(-9, 10, (rows, 300)).astype(np.float32)
        on_chip(summed_down, Case([x, np.full_like(x, np.nan)], {1: x.cumsum(0)}, {}, 0.0), target)
    text = summed_down.compile(target=target, subs={M: 256, N: 4096}).asm
    waits = re.findall(r"vmcnt\((\d+)\)", text[text.index("loop over") :])
    assert min(map(int, waits)) >= MOST_AHEAD
