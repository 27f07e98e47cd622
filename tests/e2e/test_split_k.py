"""Loops whose trips workgroups share (`Schedule(split_k=…)`): evaluator, emulator with all checks, assembler."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import hopper
import ml_dtypes
import numpy as np
import products
import pytest
import source
from agree import agree
from products import BF16, BK, BM, BN, F16, TILE, K, M, N
from shared_trips import same_bits_in_any_order, warpgroups_agree
from two_sums import arguments, fused
from wavedsl.ir.dataflow import split_k as pass_of
from wavedsl.ir.grid.split_choice import chosen_split

import wavedsl as wd

H = wd.sym.H
SMALL = dict(zip(TILE, (32, 32, 32, 16, 16)))


@pytest.mark.parametrize(
    ("target", "parts", "sizes"),
    [
        ("gfx942", 3, (40, 34, 130)),  # nothing divides anything
        pytest.param("sm_80", 5, (33, 32, 100), marks=pytest.mark.slow),  # the fifth part has no trip
        pytest.param("gfx950", 2, (64, 70, 250), marks=pytest.mark.slow),
        pytest.param("gfx90a", 4, (32, 32, 40), marks=pytest.mark.slow),
        pytest.param("sm_90a", 3, (40, 70, 200), marks=pytest.mark.slow),
        ("sm_90a", 2, (40, 70, 200)),
        pytest.param("sm_80", 2, (40, 32, 0), marks=pytest.mark.slow),
    ],
)
def test_several_sums_and_outputs(
    target: str, parts: int, sizes: tuple[int, int, int], oracle: Callable[[str], str]
) -> None:
    compiled = agree(fused(wd.Schedule(split_k=parts), waves=True), arguments(*sizes), target, oracle)
    shared = sizes[2] > 0  # a loop without trips has none to share
    assert [p.name for p in compiled.params if p.source] == (["_sums0", "_sums1", "_tickets"] if shared else [])
    assert compiled.grid == (-(-sizes[0] // 32), -(-sizes[1] // 32), parts if shared else 1)


@pytest.mark.parametrize("target", ["gfx942", pytest.param("sm_80", marks=pytest.mark.slow)])
def test_sizes_that_the_launch_brings(target: str, oracle: Callable[[str], str], tmp_path: Path) -> None:
    """One text for all sizes, an empty K among them, from a file."""
    kernel = products.gemm(F16, schedule=wd.Schedule(split_k=3), dynamic=(M, N, K))
    made = kernel.compile(*products.operands(F16, 40, 50, 200), target=target, subs=SMALL)
    products.assemble(made, oracle)
    made.save(tmp_path / "kernel.json")
    compiled = wd.load(tmp_path / "kernel.json")
    assert (compiled.grid, compiled.shapes) == (made.grid, made.shapes)
    for sizes in ((40, 50, 200), (72, 34, 40), (40, 50, 0)):
        a, b, c = products.operands(F16, *sizes)
        compiled.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, F16)[0], F16)


FILLING = dict(zip(TILE, (256, 256, 64, 64, 128)))
"""64 KiB of 16-bit tiles: all that gfx942 has."""


def test_the_counter_takes_no_room_from_tiles() -> None:
    """It is read when tiles are done with, and lies where they were: two slots, as in a loop that nobody shares."""
    a, b, c = products.operands(BF16, 250, 256, 64 * 5)
    alone, shared = (
        products.gemm(BF16, schedule=wd.Schedule(split_k=parts)).compile(a, b, c, target="gfx942", subs=FILLING)
        for parts in (1, 3)
    )
    assert shared.shared_bytes == alone.shared_bytes == 65536
    buffers = {x.name: x for x in shared.decisions.buffers}
    assert {x: (buffers[x].offset, buffers[x].slots) for x in ("a", "b")} == {"a": (0, 2), "b": (32768, 2)}
    over = buffers["scratch over tiles"]
    assert over.offset == 0 and over.bytes == 4 * 64 * 8, "a word of every lane"
    shared.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, BF16)[0], BF16)


@lru_cache
def read_behind(stages: int | None, parts: int | None) -> Any:
    """What is read through shared memory for the result lies beside the counter."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 256, 0), wd.WorkgroupConstraint(N, 240, 1), wd.TilingConstraint(K, 64),
            wd.WaveConstraint(M, 64), wd.WaveConstraint(N, 120),
        ],
        schedule=wd.Schedule(stages=stages, split_k=parts),
    )  # fmt: skip
    def read_behind(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], x: wd.Memory[N, wd.SHARED, wd.f32],
        c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop + wd.read(x), c)

    return read_behind


def test_a_choice_of_the_compilers_that_does_not_fit_is_dropped() -> None:
    """With `stages` the user's tiles stay as they are, and nothing may lie over what is wanted behind the loop."""
    sizes = {M: 256, N: 240, K: 4096}
    compiled = read_behind(1, None).compile(target="gfx942", subs=sizes)
    assert compiled.grid == (1, 1, 1) and any("exceeds" in reason for reason in compiled.decisions.reasons)
    with pytest.raises(wd.ConstraintError, match="exceeds"):
        read_behind(1, 3).compile(target="gfx942", subs=sizes)


def test_tiles_that_leave_no_room_for_the_counter_are_cut_again() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((256, 320), (240, 320)))
    x, c = rng.integers(-9, 10, 240).astype(np.float32), np.zeros((256, 240), np.float32)
    compiled = read_behind(None, 3).compile(a, b, x, c, target="gfx942")
    assert "scratch over tiles" not in {x.name for x in compiled.decisions.buffers}
    compiled.emulate(a, b, x, c)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T + x)


@lru_cache
def batched(parts: int) -> Any:
    """All three axes of the grid, a range of the loop that differs between workgroups, an inner loop."""
    tile = wd.sym.T

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.WorkgroupConstraint(H, 1, 2),
            wd.TilingConstraint(K, 16), wd.TilingConstraint(tile, 8),
        ],
        schedule=wd.Schedule(split_k=parts),
    )  # fmt: skip
    def batched(
        a: wd.Memory[H, M, K, wd.f32], b: wd.Memory[H, N, K, wd.f32], x: wd.Memory[H, M, tile, wd.f32],
        low: wd.Memory[H, wd.i32], high: wd.Memory[H, wd.i32], c: wd.Memory[H, M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)], start=wd.read(low), stop=wd.read(high))
        def loop(acc):
            @wd.iterate(tile, init_args=[acc])
            def inner(acc):
                return acc + wd.sum(wd.read(x), dim=tile)

            return wd.mma(wd.read(a), wd.read(b), inner)

        wd.write(loop, c)

    return batched


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_batches_ranges_and_inner_loops(target: str, oracle: Callable[[str], str]) -> None:
    h, m, n, k, t = 3, 16, 20, 96, 12
    a, b, x = (products.numbers(s, wd.f32, 3) for s in ((h, m, k), (h, n, k), (h, m, t)))
    low, high = np.array([0, 16, 64], np.int32), np.array([96, 80, 32], np.int32)
    given = [a, b, x, low, high, np.full((h, m, n), np.nan, np.float32)]
    agree(batched(2), given, target, oracle)


@pytest.mark.parametrize(
    ("epilogue", "options"),
    [
        ("bias relu", {}),
        ("alpha beta", {"split_k": 2}),  # the other part's sums are read as the addend is
        pytest.param("alpha beta", {"persistent": True}, marks=pytest.mark.slow),
        pytest.param("alpha beta", {"cluster": (2, 1, 1)}, marks=pytest.mark.slow),
        pytest.param("scales silu", {"specialize": False}, marks=pytest.mark.slow),
    ],
)
def test_warpgroups(epilogue: str, options: dict[str, Any], oracle: Callable[[str], str]) -> None:
    """Bulk copies by a copying warpgroup, which walks its part's trips too."""
    m = 128 * options.get("cluster", (1,))[0]
    schedule, copying = wd.Schedule(**{"split_k": 3, **options}), options.get("specialize", True)
    compiled = warpgroups_agree(epilogue, schedule, m, oracle, copying=copying)
    assert ("multicast" in compiled.asm) == ("cluster" in options)


@pytest.mark.parametrize(
    ("target", "parts"), [("gfx942", 4), ("sm_80", 2), pytest.param("sm_80", 4, marks=pytest.mark.slow)]
)
def test_the_bits_do_not_depend_on_who_comes_last(target: str, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two parts, on NVIDIA's chips, the last adds the other's to its own."""
    same_bits_in_any_order(wd.Schedule(split_k=parts), 32, target, SMALL, monkeypatch)


def test_a_counter_that_is_not_left_at_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = pass_of.Cut.made

    def counting_on(cut: Any) -> Any:
        found = made(cut)
        inside = found.graph.region.nodes[-1].attrs["body"]
        inside.nodes = [n for n in inside.nodes if n.attrs.get("memory") != "_tickets"]
        return found

    monkeypatch.setattr(pass_of.Cut, "made", counting_on)
    a, b, c = products.operands(F16, 32, 32, 64)
    kernel = products.gemm(F16, schedule=wd.Schedule(split_k=2))
    with pytest.raises(wd.EmulationError, match="leaves the counter of tile 0 at 2"):
        kernel.compile(a, b, c, target="gfx942", subs=SMALL).emulate(a, b, c)


@pytest.mark.parametrize(("keeps", "added"), [(False, ["iterate"]), (True, ["read", "read"])])
def test_fences_stand_where_others_look(keeps: bool, added: list[str]) -> None:
    """Between the sums and the ticket, and behind the ticket: no emulator has caches that would miss them."""
    subs = {BM: 32, BN: 32, BK: 32, M: 32, N: 32, K: 64}
    graph = pass_of.split(fused(wd.Schedule(), waves=True).trace(subs), subs, 2, keeps).graph
    shown = [n.op for n in graph.region.nodes if n.op in ("iterate", "write", "fence", "atomic_add", "when")]
    assert shown == ["iterate", "write", "write", "fence", "atomic_add", "when"]
    inside = [n for n in graph.region.nodes[-1].attrs["body"].nodes if n.op in ("read", "iterate", "write", "fence")]
    assert [n.op for n in inside] == ["fence", "read", *added, "read", "write", "write", "write"]
    sums = ["_sums0", "_sums1"] if keeps else [None]
    assert [n.attrs.get("memory") for n in inside] == [None, "bias", *sums, "c", "c", "rows", "_tickets"]


def refused(body: Callable[..., Any], more: Callable[[Any], None] = lambda _: None, before: Any = None) -> str:
    """What is said of a kernel with the loop `body`, and `more` after or `before` it."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 16)], schedule=wd.Schedule(split_k=2))
    def kernel(x: wd.Memory[M, N, wd.f32], o: wd.Memory[M, wd.f32], p: wd.Memory[M, wd.f32]):
        if before is not None:
            before(p)
        top, total = wd.Register[M, wd.f32](0.0), wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total])
        def loop(top, total):
            return body(wd.read(x), top, total, p)

        wd.write(loop[1], o)
        more(loop)

    with pytest.raises(wd.ConstraintError) as caught:
        kernel.compile(target="gfx942", subs={M: 32, N: 64})
    assert caught.value.location is not None and caught.value.location.file == __file__
    return f"{caught.value.message} | {caught.value.hint}"


def test_what_is_no_sum_is_refused() -> None:
    legal = "a loop can be cut where every carried value is a sum: return wd.mma(x, y, acc), acc + x or acc - x"

    def attention(x: Any, top: Any, total: Any, p: Any) -> Any:
        new = wd.maximum(top, wd.max(x, dim=N))
        return new, total * wd.exp2(top - new) + wd.sum(wd.exp2(x - new), dim=N)

    assert refused(attention) == (
        "Schedule(split_k=2): the loop over N carries `top`, which enters maximum: what parts of the loop have done of "
        f"that cannot be put together | {legal}"
    )

    def scaled(x: Any, top: Any, total: Any, p: Any) -> Any:
        return top, total * 0.5 + wd.sum(x, dim=N)

    assert "carries `total`, which enters mul" in refused(scaled)

    def last(x: Any, top: Any, total: Any, p: Any) -> Any:
        return wd.max(x, dim=N), total + wd.sum(x, dim=N)

    assert "carries `top`, and each trip replaces it instead of adding to it" in refused(last)

    def doubled(x: Any, top: Any, total: Any, p: Any) -> Any:
        return top, total + total

    assert "which enters add" in refused(doubled)

    def conditional(x: Any, top: Any, total: Any, p: Any) -> Any:
        return top, wd.cond(wd.max(total, dim=M) > 0.0, lambda: total + 1.0, lambda: total + 2.0)

    assert "which enters max" in refused(conditional)

    def storing(x: Any, top: Any, total: Any, p: Any) -> Any:
        wd.write(wd.max(x, dim=N), p)
        return top, total + wd.sum(x, dim=N)

    assert "p is written inside the loop over N | store after the loop" in refused(storing)

    def plain(x: Any, top: Any, total: Any, p: Any) -> Any:
        return top, total + wd.sum(x, dim=N)

    assert "p is written before the loop over N, where every part would do it" in refused(
        plain, before=lambda p: wd.write(wd.Register[M, wd.f32](1.0), p)
    )


@pytest.mark.slow
def test_what_kernels_say_is_in_order_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever comes last says what stands outside of the loop; parts say their trips in their order."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(K, 16)], schedule=wd.Schedule(split_k=3))
    def talking(x: wd.Memory[M, K, wd.f32], o: wd.Memory[M, wd.f32]):
        wd.device_print("before")

        @wd.iterate(K, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(acc):
            wd.device_print("trip", wd.tile_start(K))
            return acc + wd.sum(wd.read(x), dim=K)

        wd.device_print("after")
        wd.write(loop, o)

    x, o = products.numbers((16, 80), wd.f32, 1), np.zeros(16, np.float32)
    talking.compile(x, o, target="gfx942").emulate(x, o)
    assert capsys.readouterr().out.split("\n") == [
        "before", "trip = 0", "trip = 16", "trip = 32", "trip = 48", "trip = 64", "after", "",
    ]  # fmt: skip


def test_kernels_without_such_a_loop_are_refused() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)], schedule=wd.Schedule(split_k=2))
    def copy(x: wd.Memory[M, wd.f32], o: wd.Memory[M, wd.f32]):
        wd.write(wd.read(x), o)

    with pytest.raises(wd.ConstraintError, match="the kernel has no loop that carries a sum"):
        copy.compile(target="gfx942", subs={M: 32})
    with pytest.raises(wd.ConstraintError, match="Schedule: split_k=0"):
        wd.Schedule(split_k=0)


@pytest.mark.parametrize(
    ("target", "sizes", "parts", "why"),
    [
        ("sm_90a", (256, 256, 65536), 15, "4 tiles of 1024 trips for 132 units: predicted 287.1 us in one part, 32.3"),
        ("gfx942", (128, 128, 1024), 1, "1 tiles of 16 trips for 304 units: predicted"),
        ("sm_90a", (4096, 4096, 65536), 1, "1024 tiles for 132 units"),
        ("sm_80", (128, 128, 256), 1, "4 trips are too few"),
        ("gfx942", (128, 8192, 8192), 4, "64 tiles of 128 trips for 304 units: predicted 84.4 us in one part, 42.8"),
    ],
)
def test_what_is_chosen_and_why(target: str, sizes: tuple[int, ...], parts: int, why: str) -> None:
    from wavedsl.ir.choices import Choices

    from wavedsl.targets import get_target, reference_product

    subs = {**hopper.tiles(128, 128, 64, 64, 64), **dict(zip((M, N, K), sizes))}
    graph = products.gemm(BF16).trace(subs)
    found = chosen_split(graph, subs, get_target(target), reference_product(target), Choices())
    (note,) = found.graph.notes
    assert note.startswith(f"split_k: {parts} ({why}")
    assert (found.graph.arguments == graph.arguments) == (parts == 1)


def test_reports_show_it() -> None:
    """Work is that of the kernel as it was written; the roofline predicts that parts take less time."""
    from wavedsl.analysis.roofline import analyze_compiled
    from wavedsl.reports import schedule_text

    subs = {**SMALL, M: 32, N: 32, K: 4096}
    one, four = (
        products.gemm(F16, schedule=wd.Schedule(split_k=n)).compile(target="gfx942", subs=subs) for n in (1, 4)
    )
    assert "split_k: 4 (as asked for)" in schedule_text(four.kernel_ir)
    assert "split_k: 1 (as asked for)" in one.decisions.reasons
    assert "split_k: 4 (as asked for)" in four.decisions.reasons
    plain, cut = (analyze_compiled(x, subs) for x in (one, four))
    assert plain.flops == cut.flops == 2 * 32 * 32 * 4096 and plain.minimal == cut.minimal
    assert cut.seconds < 0.5 * plain.seconds


@pytest.mark.parametrize("how", ["split_k", "stop", "start and stop"])
def test_a_part_of_few_trips_has_no_more_slots(how: str) -> None:
    """Two trips of a loop of four on sm_80 had a ring of four slots, of which copies filled two: reads of the next
    trip's fragments found nothing there in the last one. Nobody used it, and it is undefined all the same."""
    ends = {"split_k": {}, "stop": {"stop": 64}, "start and stop": {"start": 32, "stop": 96}}[how]
    schedule = wd.Schedule(split_k=2) if how == "split_k" else wd.Schedule()

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32),
         wd.WaveConstraint(M, 64), wd.WaveConstraint(N, 32)], schedule=schedule,
    )  # fmt: skip
    def product(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)], **ends)
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a, b = (products.numbers((128, 128), wd.f16, seed) for seed in (1, 2))
    c = np.full((128, 128), np.nan, np.float32)
    product.compile(a, b, c, target="sm_80").emulate(a, b, c)
    at = slice(ends.get("start", 0), ends.get("stop", 128))
    np.testing.assert_array_equal(c, a[:, at].astype(np.float32) @ b[:, at].astype(np.float32).T)


@lru_cache
def _many_sums(count: int) -> Any:
    """Sums of the rows of `a`, each times another factor, in as many arrays."""
    each = range(count)
    body = f"""
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(K, BK)], subs={{BM: 32, BK: 64}},
             schedule=wd.Schedule(split_k=2))
    def sums(a: wd.Memory[M, K, wd.f32], {", ".join(f"o{i}: wd.Memory[M, wd.f32]" for i in each)}):
        @wd.iterate(K, init_args=[{", ".join("wd.Register[M, wd.f32](0.0)" for _ in each)}])
        def loop({", ".join(f"s{i}: wd.Register[M, wd.f32]" for i in each)}):
            x = wd.read(a)
            return {", ".join(f"s{i} + wd.sum(x * {i + 1}.0, dim=K)" for i in each)}
        found = loop
        for value, out in zip(found, [{", ".join(f"o{i}" for i in each)}]):
            wd.write(value, out)
    """
    return source.run(body)["sums"]


@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("gfx942", 20),
        *(pytest.param(t, n, marks=pytest.mark.slow) for t in ("gfx90a", "gfx950") for n in (16, 24, 40)),
        pytest.param("sm_80", 16, marks=pytest.mark.slow),
    ],
)
def test_many_sums_with_run_time_extents(target: str, count: int, oracle: Callable[[str], str]) -> None:
    """AMD: their descriptors and pointers are more than there are scalar registers. One stride serves all sums, and
    what is too much lies in lanes of vector registers, outside of the loop."""
    kernel = _many_sums(count)
    compiled = None
    for rows, columns in ((40, 301), (96, 132)):
        a = np.random.default_rng(rows).integers(-3, 4, (rows, columns)).astype(np.float32)
        outs = [np.full(rows, np.nan, np.float32) for _ in range(count)]
        if compiled is None:
            compiled = kernel.compile(a, *outs, target=target, dynamic=(M, K))
            products.assemble(compiled, oracle)
        compiled.emulate(a, *outs)
        for i, out in enumerate(outs):
            np.testing.assert_array_equal(out, a.sum(1) * (i + 1))
    assert compiled is not None
    assert [p.source for p in compiled.params].count("stride _sums0[0]") == 1
    assert not any(p.source == "stride _sums1[0]" for p in compiled.params)
    if target.startswith("gfx"):
        assert compiled.resources.spilled.scalars > 0


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_places_of_descriptors_are_made_not_room(target: str) -> None:
    """24 descriptors of which one register is live in front of the others leave no place for another, though registers
    are enough: who left were scalars of any width, 319 words, and the parts were added in 599 instructions (gfx90a
    533). Now each descriptor is made where it is used, and what one guard makes of one size once for all of them: it
    had been made of all arrays so far for each (184 selections, 472 instructions, 228 words)."""
    a, outs = np.zeros((40, 301), np.float32), [np.zeros(40, np.float32) for _ in range(24)]
    compiled = _many_sums(24).compile(a, *outs, target=target, dynamic=(M, K))
    r = compiled.resources
    assert r.spilled.scalars <= 100 and not r.spilled.scratch
    assert sum(r.loops[-1].instructions.values()) <= 240 and r.instructions["nop"] <= 40
    assert compiled.asm.count("s_cselect_b32") <= 24
