"""Two groups of waves half a trip apart: right for every size, free of races, shown, chosen where it is faster."""

from __future__ import annotations

import re

import products
import pytest
from products import AMD, BF16, F16, TILE, K, M, N
from wavedsl.codegen.amdgcn.target import resident_groups
from wavedsl.ir.errors import CompileError, ConstraintError, EmulationError
from wavedsl.ir.schedule.body_clock import clocks_per_trip
from wavedsl.ir.schedule.ping_pong import KIND, check, plan
from wavedsl.runtime.emulator import run
from wavedsl.runtime.emulator.cycle_chips import CHIPS
from wavedsl.runtime.emulator.cycle_queue import Launch

import wavedsl as wd
from wavedsl.reports import schedule_text
from wavedsl.targets import get_target

LARGE = (256, 256, 64, 64, 128)
SMALL = (64, 128, 64, 32, 32)
APART = wd.Schedule(ping_pong=True)


def sizes_of(tile: tuple[int, ...], m: int, n: int, k: int) -> dict:
    return {**dict(zip(TILE, tile)), M: m, N: n, K: k}


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize("k", [128, 192, 64 * 9, pytest.param(64 * 7 + 24, marks=pytest.mark.slow)])
def test_products_of_all_lengths(k: int, target: str) -> None:
    """Few trips, odd and even ones, a last one that is cut; the emulator finds no race and no lost barrier."""
    kernel = products.gemm(F16, schedule=APART)
    a, b, c = products.operands(F16, 70, 128, k)
    compiled = kernel.compile(a, b, c, target=target, subs=dict(zip(TILE, SMALL)))
    assert compiled.kernel_ir.notes["lowering"].loops[0].body.kind == KIND
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, F16)[0], F16)


@pytest.mark.parametrize("target", AMD)
def test_one_kernel_for_all_sizes(target: str) -> None:
    """Run-time extents, no trip at all among them."""
    kernel = products.gemm(F16, schedule=APART)
    compiled = kernel.compile(target=target, subs=dict(zip(TILE, SMALL)), dynamic=(M, N, K))
    assert compiled.kernel_ir.notes["lowering"].loops[0].body.kind == KIND
    for m, n, k in ((64, 128, 64), (100, 70, 200), (1, 1, 1), (65, 130, 321)):
        a, b, c = products.operands(F16, m, n, k)
        compiled.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, F16)[0], F16)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_the_large_product_has_it_by_itself(target: str) -> None:
    a, b, c = products.operands(BF16, 256, 256, 512)
    compiled = products.gemm(BF16).compile(a, b, c, target=target, subs=dict(zip(TILE, LARGE)))
    (note,) = compiled.kernel_ir.notes["lowering"].loops
    assert note.body.kind == KIND
    shown = schedule_text(compiled.kernel_ir)
    assert "ping-pong" in shown and "at raised priority" in shown and "predicted" in shown
    assert compiled.resources.spills == 0
    report = compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, BF16)[0], BF16)
    # One wave of each SIMD multiplies at any time: its matrix unit is idle for less than a fiftieth of the loop.
    assert report.replay(Launch(1, 1, 0.0)).matrix_window > 0.98


def barriers(text: str) -> list[re.Match[str]]:
    return list(re.finditer(r"\ts_barrier *(;.*)?\n", text))


@pytest.mark.parametrize("target", AMD)
def test_every_lost_barrier_is_found(target: str) -> None:
    """A barrier that one group passes and the other does not, or that neither passes: a finding each."""
    a, b, c = products.operands(F16, 64, 128, 256)
    text = products.gemm(F16, schedule=APART).compile(a, b, c, target=target, subs=dict(zip(TILE, SMALL))).asm
    found = barriers(text)
    assert len(found) >= 6
    kinds: set[str] = set()
    for where in found[1:]:  # the first is the one before the loop, which those in it make up for
        shorter = text[: where.start()] + text[where.end() :]
        with pytest.raises(EmulationError) as failure:
            run(shorter, target=target, grid=(1, 1, 1), block=(512, 1, 1), args=[a, b, c], checks=True)
        kinds |= {f.kind for f in failure.value.report.findings}  # type: ignore[attr-defined]
    assert "race" in kinds
    assert kinds & {"deadlock", "barrier-divergence"}


def test_a_plan_with_one_barrier_less_is_refused() -> None:
    compiled = products.gemm(F16, schedule=APART).compile(target="gfx942", subs=sizes_of(SMALL, 64, 128, 256))
    (note,) = compiled.kernel_ir.notes["lowering"].loops
    slots = {s.buffer: 2 for s in note.steps if s.buffer}
    body = plan(note.steps, slots, 4, 256)
    assert body is not None
    check(body, note.steps, slots)
    last = max(body.barriers)
    del body.barriers[last]
    with pytest.raises(CompileError, match="fewer than two barriers"):
        check(body, note.steps, slots)


def test_cut_into_more_phases_where_fragments_do_not_fit() -> None:
    compiled = products.gemm(F16, schedule=APART).compile(target="gfx942", subs=sizes_of(SMALL, 64, 128, 256))
    (note,) = compiled.kernel_ir.notes["lowering"].loops
    slots = {s.buffer: 2 for s in note.steps if s.buffer}
    counts = []
    for room in (64, 36, 24, 8):
        body = plan(note.steps, slots, 4, room)
        counts.append(len(body.barriers) if body is not None else 0)
    assert counts[0] == 2
    assert counts[-1] == 0
    assert counts == [*sorted(counts[:-1]), 0]
    assert max(counts) > 2


@pytest.mark.parametrize(
    ("tile", "stages", "why"),
    [((64, 64, 64, 32, 32), None, "8 waves"), (SMALL, 1, "two slots")],
    ids=["waves", "slots"],
)
def test_refused_with_the_reason(tile: tuple[int, ...], stages: int | None, why: str) -> None:
    kernel = products.gemm(F16, schedule=wd.Schedule(ping_pong=True, stages=stages))
    with pytest.raises(ConstraintError, match=why) as failure:
        kernel.compile(target="gfx90a", subs=sizes_of(tile, 256, 256, 1024))
    assert failure.value.location is not None
    with pytest.raises(ConstraintError, match="ping_pong"):
        kernel.compile(target="sm_80", subs=sizes_of(SMALL, 256, 256, 1024))


CHOICES = [
    # tile, target; the slower of the two by 1 % at least must not be what the compiler chooses
    (LARGE, "gfx942"), ((256, 128, 64, 64, 64), "gfx942"), (SMALL, "gfx942"), ((256, 128, 64, 64, 64), "gfx950"),
    *(pytest.param(*x, marks=pytest.mark.slow) for x in (
        (LARGE, "gfx950"), ((256, 128, 64, 64, 64), "gfx90a"), ((128, 256, 64, 32, 128), "gfx942"),
        ((128, 128, 64, 32, 64), "gfx942"), ((128, 128, 32, 32, 64), "gfx942"), ((192, 256, 32, 96, 64), "gfx942"),
        ((128, 128, 64, 32, 64), "gfx950"), ((256, 256, 32, 64, 128), "gfx950"), (SMALL, "gfx950"), (SMALL, "gfx90a"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("tile", "target"), CHOICES)
def test_the_choice_is_the_cycle_models(tile: tuple[int, ...], target: str) -> None:
    clocks: dict[bool | None, float] = {}
    a, b, c = products.operands(F16, tile[0], tile[1], 16 * tile[2])
    for asked in (None, False, True):
        schedule = None if asked is None else wd.Schedule(ping_pong=asked)
        kernel = products.gemm(F16, schedule=schedule) if schedule else products.gemm(F16)
        compiled = kernel.compile(a, b, c, target=target, subs=dict(zip(TILE, tile)))
        if asked is None:
            chosen = compiled.kernel_ir.notes["lowering"].loops[0].body.kind == KIND
            continue
        report = compiled.emulate(a, b, c, checks=False)
        r = compiled.resources
        resident = resident_groups(target, r.registers, r.shared_bytes, 512)
        timing = report.replay(Launch(2 * resident, resident, 0.06, CHIPS[target].units))
        clocks[asked] = timing.cycles / resident
    assert clocks[chosen] <= 1.01 * clocks[not chosen], clocks


PLAYED = [
    *(pytest.param(*getattr(x, "values", x), "NK", marks=getattr(x, "marks", ())) for x in CHOICES),
    *(pytest.param(*x, marks=pytest.mark.slow) for x in (
        # half of the waves have none of A to load; transposing reads are faster than the turns that they take to issue
        ((64, 256, 64, 32, 64), "gfx942", "NK"), ((128, 256, 64, 32, 128), "gfx950", "KN"),
        ((128, 128, 64, 64, 32), "gfx942", "KN"), ((64, 64, 32, 16, 32), "gfx942", "NK"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("tile", "target", "order"), PLAYED)
def test_a_trip_takes_as_long_as_the_texts(tile: tuple[int, ...], target: str, order: str) -> None:
    """The clocks by which the compiler chooses, beside those of the text's loop: what half as many trips more take."""
    for apart in (False, True):
        texts: list[tuple[int, int]] = []
        for trips in (16, 24):
            a, b, c = products.operands(F16, tile[0], tile[1], trips * tile[2], b_order=order)
            kernel = products.gemm(F16, b_order=order, schedule=wd.Schedule(ping_pong=apart, split_k=1))
            compiled = kernel.compile(a, b, c, target=target, subs=dict(zip(TILE, tile)))
            low = compiled.kernel_ir.notes["lowering"]
            (note,) = low.loops
            timing = compiled.emulate(a, b, c, checks=False).replay(Launch(1, 1, 0.06, CHIPS[target].units))
            texts.append((note.trips, timing.cycles))
        (some, before), (more, behind) = texts
        played = clocks_per_trip(note.body, note.steps, 8, get_target(target))
        assert played == pytest.approx((behind - before) / (more - some), rel=0.13), (apart, texts)
