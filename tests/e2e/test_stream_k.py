"""Trips of all output tiles dealt to workgroups (`Schedule(stream_k=…)`): evaluator, emulator, assembler."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import hopper
import numpy as np
import products
import pytest
from agree import agree
from products import BF16, BK, BM, BN, F16, TILE, K, M, N
from shared_trips import same_bits_in_any_order, warpgroups_agree
from two_sums import arguments, fused
from wavedsl.ir.choices import Choices
from wavedsl.ir.dataflow.graph import Graph, Region
from wavedsl.ir.dataflow.graph_edit import Edit
from wavedsl.ir.grid.split_choice import chosen_split
from wavedsl.ir.grid.stream_k import Deal, stream

import wavedsl as wd
from wavedsl.compiler import get_target, reference_product

H = wd.sym.H
SMALL = dict(zip(TILE, (32, 32, 32, 16, 16)))


@pytest.mark.parametrize(
    ("target", "workers", "sizes"),
    [
        ("gfx942", 3, (70, 41, 130)),  # 6 tiles in whole rounds
        ("gfx942", 4, (70, 41, 130)),  # 2 left over for 4
        pytest.param("sm_80", 5, (33, 75, 100), marks=pytest.mark.slow),
        pytest.param("sm_80", 7, (40, 32, 0), marks=pytest.mark.slow),  # no trip
        pytest.param("gfx950", 7, (64, 70, 250), marks=pytest.mark.slow),
        pytest.param("gfx90a", 9, (32, 32, 600), marks=pytest.mark.slow),  # one tile
        pytest.param("sm_90a", 3, (70, 70, 200), marks=pytest.mark.slow),
        pytest.param("sm_90a", True, (70, 70, 200), marks=pytest.mark.slow),  # a step or two each
    ],
)
def test_several_sums_and_outputs(
    target: str, workers: int, sizes: tuple[int, int, int], oracle: Callable[[str], str]
) -> None:
    compiled = agree(fused(wd.Schedule(stream_k=workers)), arguments(*sizes), target, oracle)
    tiles = -(-sizes[0] // 32) * -(-sizes[1] // 32)
    hidden = [p.name for p in compiled.params if p.source]
    assert hidden == ([] if tiles % compiled.grid[0] == 0 else ["_sums0", "_sums1", "_tickets"])
    assert compiled.grid[1:] == (1, 1) and (workers is True or compiled.grid[0] <= workers)


@pytest.mark.parametrize("target", ["gfx942", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_sizes_that_the_launch_brings(target: str, oracle: Callable[[str], str]) -> None:
    """One text for all sizes: whole rounds only, tiles left over only, both, no trips, no tiles."""
    kernel = products.gemm(F16, schedule=wd.Schedule(stream_k=4), dynamic=(M, N, K))
    made = kernel.compile(*products.operands(F16, 41, 51, 201), target=target, subs=SMALL)
    products.assemble(made, oracle)
    assert made.grid == (4, 1, 1)
    assert made.shapes["_sums0"] == (7, 32, 32) and made.shapes["_tickets"] == (4,)
    for sizes in ((64, 64, 40), (40, 33, 100), (100, 50, 70), (40, 50, 0), (0, 50, 40)):
        a, b, c = products.operands(F16, *sizes)
        made.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, F16)[0], F16)


@lru_cache
def batched(workers: Any) -> Any:
    """An index dimension, which stays in the grid; three dimensions of tiles; an inner loop; a loop behind the sums."""
    tile, depth = wd.symbols("T D")

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.WorkgroupConstraint(H, 1, 2),
            wd.TilingConstraint(K, 16), wd.TilingConstraint(tile, 8), wd.TilingConstraint(depth, 16),
        ],
        schedule=wd.Schedule(stream_k=workers),
    )  # fmt: skip
    def batched(
        a: wd.Memory[H, M, K, wd.f32], b: wd.Memory[H, N, K, wd.f32], x: wd.Memory[H, M, tile, wd.f32],
        y: wd.Memory[H, M, depth, wd.f32], c: wd.Memory[H, M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](2.0)])
        def loop(acc):
            @wd.iterate(tile, init_args=[acc])
            def inner(acc):
                return acc + wd.sum(wd.read(x), dim=tile)

            return wd.mma(wd.read(a), wd.read(b), inner)

        @wd.iterate(depth, init_args=[loop])
        def behind(acc):
            return wd.maximum(acc, wd.max(wd.read(y), dim=depth))

        wd.write(behind + wd.cast(wd.index(N) + wd.tile_start(M), wd.f32), c)

    return batched


@pytest.mark.slow
@pytest.mark.parametrize(("target", "workers"), [("gfx942", 5), ("sm_80", 4), ("gfx942", True)])
def test_batches_and_loops_on_either_side(target: str, workers: Any, oracle: Callable[[str], str]) -> None:
    h, m, n, k, t, d = 3, 40, 20, 96, 12, 24
    shapes = ((h, m, k), (h, n, k), (h, m, t), (h, m, d))
    given = [products.numbers(s, wd.f32, 3) for s in shapes] + [np.full((h, m, n), np.nan, np.float32)]
    compiled = agree(batched(workers), given, target, oracle)
    units = reference_product(target).units
    tiles, steps = 3 * 2, 6
    assert compiled.grid == (min(units // h if workers is True else workers, tiles * steps // 2), 1, h)
    assert not compiled.shapes.get("_tickets") or compiled.shapes["_tickets"] == (compiled.grid[0] * h,)


@pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "tile", "options"),
    [
        (BF16, (128, 128, 64, 64, 128), {"stream_k": 4}),
        (F16, (64, 128, 64, 64, 128), {"split_k": 3}),
        pytest.param(BF16, (32, 128, 64, 32, 64), {"stream_k": 5}, marks=pytest.mark.slow),  # operands are swapped
        pytest.param(F16, (128, 128, 64, 64, 128), {"stream_k": 5}, marks=pytest.mark.slow),
    ],
    ids=["bf16", "f32, cut", "swapped", "f32"],
)
def test_added_parts_leave_by_bulk_copies(
    kind: products.Kind, tile: tuple[int, ...], options: dict[str, Any], oracle: Callable[[str], str]
) -> None:
    """Parts are read back as the product left them, so what is made of their sum is staged as a whole tile's is: no
    lane stores elements of the result itself."""
    a, b, c = products.operands(kind, 200, 264, 400)
    kernel = hopper.gemm(kind, schedule=wd.Schedule(**options))
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=hopper.tiles(*tile))
    said = compiled.decisions.text().splitlines()
    writes = [how for line, how in pairwise(said) if line.startswith("write") and "memory=c" in line]
    assert len(writes) == (2 if "stream_k" in options else 1) and all("bulk copies of" in how for how in writes)
    assert not any("does not lie in registers" in reason for reason in compiled.decisions.reasons)
    assert {p.kind for p in compiled.params if p.name == "c"} == {"tensormap"}
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, kind)[0], kind)
    made = hopper.static(compiled.asm)
    assert oracle("ptxas") and not made.spills and not made.codes


@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_batches_that_the_launch_counts(target: str) -> None:
    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.WorkgroupConstraint(H, 1, 2),
            wd.TilingConstraint(K, 32),
        ],
        dynamic=(H, M, K), schedule=wd.Schedule(stream_k=3),
    )  # fmt: skip
    def kernel(a: wd.Memory[H, M, K, wd.f16], b: wd.Memory[H, N, K, wd.f16], c: wd.Memory[H, M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    def given(h: int, m: int, k: int) -> list[np.ndarray]:
        a, b = (products.numbers((h, x, k), wd.f16, 1) for x in (m, 50))
        return [a, b, np.full((h, m, 50), np.nan, np.float32)]

    compiled = kernel.compile(*given(2, 40, 104), target=target)
    for sizes in ((2, 40, 104), (3, 72, 200), (1, 8, 320)):
        a, b, c = given(*sizes)
        compiled.emulate(a, b, c)
        np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2))


def words_ahead_of_parts(text: str) -> int:
    """Words that lanes have loaded, or have on their way, where they begin to add the first slice of parts."""
    lines = text.splitlines()
    labels = [i for i, line in enumerate(lines) if line.startswith("$")]
    first = next(i for i, at in enumerate(labels) if lines[at].startswith("$_parts"))
    loads = [line for line in lines[labels[first - 1] : labels[first]] if "ld.global" in line]
    return sum(int(found[1]) if (found := re.search(r"\.v(\d)", line)) else 1 for line in loads)


@pytest.mark.parametrize(
    ("epilogue", "schedule"),
    [
        ("two erf", wd.Schedule(stream_k=3)),
        pytest.param("two silu", wd.Schedule(split_k=2), marks=pytest.mark.slow),
        pytest.param("two silu", wd.Schedule(split_k=3), marks=pytest.mark.slow),
        pytest.param("scale bias addend", wd.Schedule(stream_k=5), marks=pytest.mark.slow),
        pytest.param("gelu", wd.Schedule(split_k=3, persistent=True), marks=pytest.mark.slow),
    ],
)
def test_parts_of_wide_tiles_are_added_in_slices(epilogue: str, schedule: Any) -> None:
    """64 registers a lane at a time, each stored before the next are read; two results share what they are made of. Of
    two parts the last to come has its own sums, and there is no loop over parts. Bias and addend leave a slice room."""
    kernel = hopper.gemm(BF16, epilogue=epilogue, schedule=schedule)
    m, n, k = 192, 264, 400
    a, b, c = products.operands(BF16, m, n, k)
    bias, out = products.numbers((n,), wd.f32, 1), np.full_like(c, np.nan)
    more = {"gelu": [bias], "scale bias addend": [np.full(n, 2.0**-4, np.float32), bias, np.ones_like(c)]}
    given = [a, b, *more.get(epilogue, [bias, c]), out]
    meant = [x.copy() for x in given]
    subs = hopper.tiles(128, 256, 64, 64, 256)
    kernel.evaluate(*meant, subs=subs)
    compiled = kernel.compile(*given, target="sm_90a", subs=subs)
    loops = set(re.findall(r"^\$_parts\d+:", compiled.asm, re.M))
    assert len(loops) == (0 if schedule.split_k == 2 else 2)
    if schedule.stream_k:
        assert words_ahead_of_parts(compiled.asm) < 64
    compiled.emulate(*given)  # a finding is an error
    for got, want in zip(given, meant):
        np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize(
    ("epilogue", "workers", "options"),
    [
        ("bias relu", 5, {}),
        pytest.param("alpha beta", 3, {}, marks=pytest.mark.slow),
        pytest.param("alpha beta", 5, {"specialize": False}, marks=pytest.mark.slow),
        pytest.param("scales silu", 4, {"swizzle": False, "stages": 2}, marks=pytest.mark.slow),
    ],
)
def test_warpgroups(epilogue: str, workers: int, options: dict[str, Any], oracle: Callable[[str], str]) -> None:
    """Bulk copies by a copying warpgroup, which walks its workgroup's turns and trips too."""
    schedule, copying = wd.Schedule(stream_k=workers, **options), options.get("specialize", True)
    warpgroups_agree(epilogue, schedule, 256, oracle, copying=copying)


@pytest.mark.parametrize("target", ["gfx942", pytest.param("sm_80", marks=pytest.mark.slow)])
def test_the_bits_do_not_depend_on_who_comes_last(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    same_bits_in_any_order(wd.Schedule(stream_k=5), 64, target, SMALL, monkeypatch)


def test_fences_stand_where_others_look() -> None:
    """Between the sums and the ticket, and behind the ticket: no emulator has caches that would miss them."""
    subs = {BM: 32, BN: 32, BK: 32, M: 64, N: 32, K: 640}
    graph = stream(fused(wd.Schedule()).trace(subs), subs, 3).graph
    region = graph.region
    for dim in ("_turns", "M", "N"):
        (loop,) = (n for n in region.nodes if n.op == "iterate")
        assert str(loop.attrs["body"].dim) == dim
        region = loop.attrs["body"]
    alone, together = (n.attrs["body"] for n in region.nodes if n.op == "when")

    def shown(region: Region) -> list[Any]:
        ops = ("read", "iterate", "write", "fence", "atomic_add", "when")
        return [n.attrs.get("memory", n.op) for n in region.nodes if n.op in ops]

    assert shown(alone) == ["c", "bias", "c", "rows"]
    assert shown(together) == ["_sums0", "_sums1", "fence", "_tickets", "when"]
    last = together.nodes[-1].attrs["body"]
    assert shown(last) == ["fence", "iterate", "c", "bias", "c", "rows", "_tickets"]


def test_every_step_is_dealt_once() -> None:
    """In numbers that are folded here and are the graph's own at run time; places of parts are their own."""
    e = Edit(Graph("deal", Region(), [], [], {}), None)
    random = np.random.default_rng(0)
    for tiles, steps, workers in random.integers(1, 40, (60, 3)).tolist():
        deal = Deal.of(e, tiles, steps, workers)
        done = np.zeros((tiles, steps), int)
        done[: deal.rounds * workers] = 1
        places: dict[int, list[int]] = {}
        for worker in range(workers):
            low, high = deal.start(e, worker), deal.start(e, worker + 1)
            for step in range(low, high):
                assert deal.run_at(e, step) == worker
                done[deal.rounds * workers + step // steps, step % steps] += 1
            for shared in sorted({step // steps for step in range(low, high)}):
                places.setdefault(shared, []).append(worker + shared)
            assert len({step // steps for step in range(low, high)}) <= 2
        assert (done == 1).all()
        in_order = [place for shared in sorted(places) for place in places[shared]]
        assert in_order == sorted(set(in_order)) and all(place < deal.slots for place in in_order)
        assert all(found == list(range(found[0], found[0] + len(found))) for found in places.values())


def test_the_busiest_has_parts_of_two_tiles_if_anybody_has() -> None:
    """And is last, if ever, where its run ends: so many share that tile."""
    e = Edit(Graph("deal", Region(), [], [], {}), None)
    random = np.random.default_rng(1)
    for tiles, steps, workers in random.integers(1, 40, (60, 3)).tolist():
        deal = Deal.of(e, tiles, steps, workers)
        if not deal.leaves:
            continue
        runs = [range(deal.start(e, x), deal.start(e, x + 1)) for x in range(deal.sharers)]
        touched = [{step // steps for step in run} for run in runs]
        own = deal.busiest(e)
        shared = [x for x, run in zip(touched, runs) if len(run) < steps] or touched
        assert deal.shares == any(len(run) < steps for run in runs)
        assert len(touched[own]) == max(map(len, shared)) and touched[own] in shared
        assert deal.of_a_tile(e) == sum(max(touched[own]) in x for x in touched)


@pytest.mark.parametrize("target", ["gfx942", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_runs_of_whole_tiles_leave_no_parts(target: str, oracle: Callable[[str], str]) -> None:
    """Two tiles of two steps left over behind a round of four: nobody shares one, so there is nothing to add."""
    compiled = agree(fused(wd.Schedule(stream_k=4)), arguments(90, 60, 64), target, oracle)
    assert not [p for p in compiled.params if p.source] and compiled.grid == (4, 1, 1)


def refused(body: Callable[..., Any], workers: Any = 3, start: Any = None) -> str:
    """What is said of a kernel with the loop `body` over sums."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 16)], schedule=wd.Schedule(stream_k=workers)
    )  # fmt: skip
    def kernel(x: wd.Memory[M, N, wd.f32], o: wd.Memory[M, wd.f32], p: wd.Memory[N, wd.i32]):
        bounds = {} if start is None else {"start": wd.tile_start(M)}

        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)], **bounds)
        def loop(total):
            return body(wd.read(x), total)

        wd.write(loop, o)
        if workers == 2:
            one = wd.Register[wd.i32](1)
            wd.atomic_add(one, p, mapping=wd.IndexMapping((), {N: one}))

    with pytest.raises(wd.ConstraintError) as caught:
        kernel.compile(target="gfx942", subs={M: 64, N: 64})
    assert caught.value.location is not None and caught.value.location.file == __file__
    return f"{caught.value.message} | {caught.value.hint}"


def test_what_cannot_be_dealt_is_refused() -> None:
    def plain(x: Any, total: Any) -> Any:
        return total + wd.sum(x, dim=N)

    assert refused(plain, start=0) == (
        "Schedule(stream_k=3): the loop over N has a range of its own, which may differ between tiles | use split_k"
    )
    assert refused(lambda x, total: wd.maximum(total, wd.max(x, dim=N))).startswith(
        "Schedule(stream_k=3): the loop over N carries `total`, which enters maximum"
    )
    assert refused(plain, 2) == (
        "Schedule(stream_k=2): atomic_add of a value without M is carried out by one workgroup for all tiles, but "
        "every tile is some workgroup's turn | use split_k"
    )

    def talking(x: Any, total: Any) -> Any:
        wd.device_print("trip", wd.tile_start(N))
        return total + wd.sum(x, dim=N)

    assert "Schedule(stream_k=3): device_print is carried out by one workgroup" in refused(talking)


def test_schedules_that_say_two_things() -> None:
    with pytest.raises(wd.ConstraintError, match="split_k=2 and stream_k=True"):
        wd.Schedule(split_k=2, stream_k=True)
    for wrong in (0, 1.5, 4096, "all"):
        with pytest.raises(wd.ConstraintError, match="Schedule: stream_k="):
            wd.Schedule(stream_k=wrong)


def test_reports_show_it() -> None:
    """Work is that of the kernel as it was written; one workgroup per unit where no number is given."""
    from wavedsl.reports import schedule_text

    subs = {**SMALL, M: 320, N: 320, K: 4096}
    compiled = products.gemm(F16, schedule=wd.Schedule(stream_k=True)).compile(target="sm_80", subs=subs)
    note = "stream_k: 108 workgroups, 0 rounds of whole tiles, then 108 runs of the 100 tiles of 128 steps left over"
    assert any(reason.startswith(note) for reason in compiled.decisions.reasons)
    assert note in schedule_text(compiled.kernel_ir)
    off = chosen_split(
        products.gemm(F16).trace(subs), subs, get_target("sm_80"), reference_product("sm_80"),
        Choices(stream=False, split=1),
    )  # fmt: skip
    assert off.graph.traced is None
