"""Parts of a loop that a cluster adds through shared memory (`Schedule(split_k=P, cluster=(x, 1, P))`): evaluator,
emulator with all checks, assembler."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import hopper
import numpy as np
import products
import pytest
from products import BF16, BK, BM, BN, F16, F16_OUT, I8, K, Kind, M, N
from shared_trips import warpgroups_agree

import wavedsl as wd
from wavedsl.reports import schedule_text
from wavedsl.strategies import matmul, plan_gemm
from wavedsl.strategies.choices import gemm_choices
from wavedsl.strategies.warpgroups import Cut

FP8 = Kind("f8e4m3", wd.f8e4m3, wd.f32, wd.f32)
TALL, SMALL = hopper.tiles(128, 128, 64, 64, 128), hopper.tiles(64, 64, 64, 64, 64)


def slow(*values: Any) -> Any:
    """A case that is not part of the default run."""
    return pytest.param(*values, marks=pytest.mark.slow)


def joined(parts: int, beside: int = 1, **options: Any) -> wd.Schedule:
    """The schedule of a loop in parts that clusters of `beside` tiles add."""
    return wd.Schedule(split_k=parts, cluster=(beside, 1, parts), **options)


def multiply(
    kind: Kind, sizes: tuple[int, int, int], subs: dict[Any, int], schedule: wd.Schedule, *, b_order: str = "NK"
) -> wd.CompiledKernel:
    """Compile for these sizes, emulate with all checks, expect the exact product."""
    a, b, c = products.operands(kind, *sizes, b_order=b_order)
    kernel = hopper.gemm(kind, b_order=b_order, schedule=schedule)
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=subs)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b if b_order == "NK" else b.T, kind)[0], kind)
    return compiled


@pytest.mark.parametrize(
    ("kind", "parts", "beside", "sizes", "subs"),
    [
        (BF16, 2, 1, (128, 128, 512), TALL),
        (BF16, 8, 1, (128, 128, 2048), TALL),
        (F16, 4, 2, (256, 136, 520), TALL),  # B's tiles go to both tiles' workgroups of a part; the last part is short
        (F16_OUT, 4, 1, (250, 130, 1000), hopper.tiles(128, 64, 64, 64, 64)),
        (BF16, 3, 1, (100, 200, 696), hopper.tiles(64, 192, 64, 64, 192)),  # 64 rows are no three shares
        (BF16, 2, 1, (16, 256, 512), hopper.tiles(16, 256, 128, 16, 64)),  # the instruction's rows lie along N
        slow(BF16, 4, 1, (16, 130, 512), hopper.tiles(16, 64, 128, 16, 64)),
        slow(BF16, 8, 1, (7, 64, 1024), hopper.tiles(16, 64, 64, 16, 64)),
        (I8, 2, 1, (64, 100, 400), hopper.tiles(64, 64, 64, 64, 64)),
        slow(FP8, 4, 1, (128, 72, 528), hopper.tiles(128, 64, 128, 64, 64)),
        (BF16, 4, 1, (64, 64, 64), SMALL),  # three parts have no trip
        slow(F16, 2, 4, (256, 72, 200), SMALL),
        (BF16, 2, 1, (96, 64, 128), SMALL),  # shares divide the rows, tiles do not
        slow(BF16, 2, 1, (384, 192, 392), hopper.tiles(192, 192, 64, 64, 192)),
        slow(BF16, 8, 1, (144, 128, 1024), hopper.tiles(144, 128, 64, 144, 64)),  # 18 rows each: lanes are padded
        slow(F16, 4, 1, (160, 256, 392), hopper.tiles(160, 256, 64, 160, 128)),  # 40 rows each, by both warpgroups
    ],
    ids=str,
)  # fmt: skip
def test_products(
    kind: Kind, parts: int, beside: int, sizes: tuple[int, int, int], subs: dict[Any, int]
) -> None:
    compiled = multiply(kind, sizes, subs, joined(parts, beside))
    assert compiled.grid == (parts * -(-sizes[0] // subs[BM]), -(-sizes[1] // subs[BN]), 1)
    assert f".reqnctapercluster {parts * beside}, 1, 1" in compiled.asm
    assert "ld.shared::cluster" in compiled.asm and ("multicast" in compiled.asm) == (beside > 1)
    assert not [p.name for p in compiled.params if p.source and not p.map], "no workspace, no counters"


def test_no_trip_at_all() -> None:
    multiply(BF16, (64, 64, 0), SMALL, joined(2))


@pytest.mark.parametrize("b_order", ["NK", "KN"])
def test_sizes_that_the_launch_brings(b_order: str) -> None:
    """One text for all sizes: rows that end inside a share, a K that parts do not divide."""
    kernel = products.gemm(F16, b_order=b_order, schedule=joined(4), dynamic=(M, N, K))
    made = kernel.compile(
        *products.operands(F16, 128, 128, 512, b_order=b_order), target="sm_90a", subs=TALL
    )
    for sizes in ((128, 128, 512), (8, 208, 80), (160, 144, 1008)):
        a, b, c = products.operands(F16, *sizes, b_order=b_order)
        made.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b if b_order == "NK" else b.T, F16)[0], F16)


@pytest.mark.parametrize(
    ("epilogue", "parts", "beside", "options"),
    [
        ("alpha beta", 4, 1, {}),
        ("bias relu", 2, 2, {"dependent": True}),
        slow("alpha beta", 4, 2, {}),
        slow("scales silu", 2, 1, {}),
        slow("bias relu", 8, 1, {"stages": 2}),
    ],
)
def test_epilogues(
    epilogue: str, parts: int, beside: int, options: dict[str, Any], oracle: Callable[[str], str]
) -> None:
    """What follows the sums has a share of the tile in each workgroup; ptxas spills nothing and serialises nothing."""
    compiled = warpgroups_agree(epilogue, joined(parts, beside, **options), 128 * beside, oracle, copying=True)
    assert "atom" not in compiled.asm and len(re.findall("ld.shared::cluster", compiled.asm)) % parts == 0


def test_results_beside_each_other_and_in_place() -> None:
    """C is read where it is written, rows and columns have numbers of their own, and there are two results."""
    a, b, c = products.operands(BF16, 100, 136, 264)
    rows, columns, bias = (products.numbers((n,), wd.f32, n) for n in (100, 136, 136))
    before, d = np.zeros((100, 136), np.float32), np.zeros_like(c)
    everything = hopper.gemm(BF16, epilogue="all", schedule=joined(4))
    for kernel, given in (
        (everything, [a, b, rows * 2.0**-5, columns, bias, c, before, d]),
        (hopper.gemm(BF16, epilogue="in place", schedule=joined(4)), [a, b, c, 0.5, 2.0]),
    ):
        meant = [x.copy() if isinstance(x, np.ndarray) else x for x in given]
        kernel.evaluate(*meant, subs=TALL)
        kernel.compile(*given, target="sm_90a", subs=TALL).emulate(*given)
        for got, want in zip(given, meant):
            if isinstance(got, np.ndarray):
                np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=2**-7)


@lru_cache
def gated(schedule: wd.Schedule) -> Any:
    """Two sums in one loop, a factor of rows that the loop uses and what follows it too, elements by their place."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, 64), wd.HardwareConstraint(threads_per_wave=128),
        ],
        schedule=schedule,
    )  # fmt: skip
    def gated(
        x: wd.Memory[M, K, wd.f16], gate: wd.Memory[N, K, wd.f16], up: wd.Memory[N, K, wd.f16],
        rows: wd.Memory[M, wd.f32], y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        factor = wd.read(rows)
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero, wd.Register[M, N, wd.f32](1.0)])
        def loop(g, u):
            v = wd.read(x)
            return g + factor * wd.mma(v, wd.read(gate), zero), wd.mma(v, wd.read(up), u)

        g, u = loop
        lower = wd.where(wd.index(M) >= wd.index(N), g * factor, u)
        wd.write(lower + 2.0 * u, y)

    return gated


def test_several_sums() -> None:
    """They start from different numbers, which count once."""
    rng = np.random.default_rng(5)
    x, gate, up = (rng.integers(-3, 4, (n, 264)).astype(np.float16) for n in (100, 72, 72))
    rows, y = rng.integers(-2, 3, 100).astype(np.float32), np.zeros((100, 72), np.float32)
    compiled = gated(joined(2)).compile(x, gate, up, rows, y, target="sm_90a", subs={BM: 128, BN: 64, BK: 64})
    compiled.emulate(x, gate, up, rows, y)
    wide = x.astype(np.float64)
    g, u = rows[:, None] * (wide @ gate.T.astype(np.float64)), wide @ up.T.astype(np.float64) + 1
    at, along = np.indices(y.shape)
    np.testing.assert_array_equal(y, np.where(at >= along, g * rows[:, None], u) + 2 * u)


def test_the_bits_are_those_of_parts_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in every order in which workgroups run, and as whoever comes last to a tile adds them."""
    a, b, c = products.operands(F16, 100, 72, 1000, values="normal")
    found = set()
    for schedule, seeds in ((joined(4), "123"), (wd.Schedule(split_k=4), "1")):
        compiled = hopper.gemm(F16, schedule=schedule).compile(a, b, c, target="sm_90a", subs=SMALL)
        for seed in seeds:
            monkeypatch.setenv("WAVEDSL_SEED", seed)
            out = np.full_like(c, np.nan)
            compiled.emulate(a, b, out)
            found.add(out.tobytes())
    assert len(found) == 1
    want, magnitude = products.exact(a, b, F16)
    products.expect_product(out, want, magnitude, 1000, F16)


WAIT, ARRIVE = r"barrier\.cluster\.wait\.acquire;", r"barrier\.cluster\.arrive\.release;"


def changed(text: str, pattern: str, number: int, new: str) -> str:
    """The text with one of the places that match a pattern changed."""
    found = list(re.finditer(pattern, text))[number]
    return text[: found.start()] + new + text[found.end() :]


def told_early(text: str) -> str:
    """The cluster hears that reads are done before they are made."""
    without = changed(text, ARRIVE, 3, "")
    return without.replace("mapa.shared", "barrier.cluster.arrive.release;\n    mapa.shared", 1)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda text: changed(text, WAIT, 2, ""), "race"),  # sums are read before they are there
        (lambda text: changed(text, ARRIVE, 2, "barrier.cluster.arrive.relaxed;"), "race"),
        (lambda text: changed(text, r"bar\.sync +1, 256;", -1, ""), "race"),  # over tiles that are still multiplied
        (lambda text: changed(text, WAIT, 3, ""), "race"),  # who is done early takes its memory away
        (told_early, "race"),
    ],
    ids=["no wait", "relaxed", "over tiles", "no last wait", "told early"],
)
def test_each_meeting_is_needed(wrong: Callable[[str], str], kind: str) -> None:
    a, b, c = products.operands(BF16, 128, 128, 512)
    compiled = hopper.gemm(BF16, schedule=joined(2)).compile(a, b, c, target="sm_90a", subs=TALL)
    assert len(re.findall(WAIT, compiled.asm)) == len(re.findall(ARRIVE, compiled.asm)) == 4
    assert not compiled.emulate(a, b, c, checks="report").findings
    mutant = replace(compiled, asm=wrong(compiled.asm))
    assert kind in {x.kind for x in mutant.emulate(a, b, c, checks="report").findings}


def test_what_reports_say() -> None:
    subs = {**TALL, M: 256, N: 256, K: 2048}
    compiled = hopper.gemm(BF16, schedule=joined(4, 2)).compile(target="sm_90a", subs=subs)
    said = schedule_text(compiled.kernel_ir)
    beside = "the 4 parts of each of 2 tiles side by side along the first grid axis, added in shared memory"
    assert f"cluster: {beside} (as asked for)" in said
    assert "leave 69632 bytes of sums, meet the cluster, add 4 parts of a share of the tile" in said
    assert "meet the cluster, which adds its sums" in said
    record = compiled.decisions
    assert "split_k: 4 (as asked for), joined in clusters" in record.reasons
    buffers = {x.name: x for x in record.buffers}
    over = buffers["parts over tiles"]
    assert (over.offset, over.bytes) == (0, 128 * (128 + 8) * 4), "eight lanes' rows do not meet in a bank"
    alone = hopper.gemm(BF16, schedule=wd.Schedule(cluster=(2, 1, 1))).compile(target="sm_90a", subs=subs)
    slots, most = (x.kernel_ir.notes["lowering"].strategy.stages for x in (compiled, alone))
    assert slots >= most, "sums lie where tiles were"


@pytest.mark.parametrize(
    ("schedule", "why", "hint"),
    [
        ({"cluster": (1, 1, 4)}, "the third extent of a cluster counts the parts of split_k", "split_k=4"),
        ({"cluster": (1, 1, 4), "split_k": 2}, "cluster=.1, 1, 4., split_k=2.: the third extent", "split_k=4"),
        ({"cluster": (1, 2, 4), "split_k": 4}, "lies along the first grid axis", r"cluster=(2, 1, 4)"),
        ({"cluster": (1, 1, 16), "split_k": 16}, "16 workgroups, and not every chip", "a smaller one"),
        ({"cluster": (4, 1, 4), "split_k": 4}, "16 workgroups, and not every chip", "a smaller one"),
        ({"cluster": (3, 1, 2), "split_k": 2}, "first grid axis has 4 tiles, no multiple of 3", "leave cluster out"),
        ({"cluster": (1, 1, 3), "split_k": 3}, "M: 64, N: 64. is 3 equal shares", "tiles that the parts divide"),
        ({"cluster": (1, 1, 2), "split_k": 2, "persistent": True}, "a workgroup takes one tile", "persistent"),
        ({"cluster": (1, 1, 2), "split_k": 2, "specialize": False}, "no warpgroup only copies", "leave cluster out"),
    ],
)
def test_clusters_that_cannot_be_say_why(schedule: dict[str, Any], why: str, hint: str) -> None:
    sizes = {M: 256, N: 256, K: 2048}
    with pytest.raises(wd.ConstraintError, match=why) as refused:
        hopper.gemm(BF16, schedule=wd.Schedule(**schedule)).compile(target="sm_90a", subs={**SMALL, **sizes})
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_other_chips_have_no_clusters(target: str) -> None:
    with pytest.raises(wd.ConstraintError, match=r"Schedule\(cluster=.* is not available"):
        products.gemm(F16, schedule=joined(2)).compile(target=target, subs={**SMALL, M: 64, N: 64, K: 256})


@lru_cache
def ending(how: str) -> Any:
    """A loop of sums with something behind it that a share of the tile cannot have."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64),
            wd.HardwareConstraint(threads_per_wave=128),
        ],
        schedule=joined(2),
    )  # fmt: skip
    def ending(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        if how == "exit":
            wd.exit_if(wd.tile_start(M) > 1000)

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        if how == "sum":
            loop = loop + wd.sum(loop, dim=N)
        if how == "atomic":
            wd.atomic_add(loop, c)
        else:
            wd.write(loop, c)

    return ending


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("exit", "the kernel may leave"),
        ("sum", "sum behind the loop over K, where each workgroup of the cluster has a share of the tile of M"),
        ("atomic", "atomic_add behind the loop over K"),
    ],
)
def test_what_follows_is_elementwise(how: str, why: str) -> None:
    with pytest.raises(wd.ConstraintError, match=why) as refused:
        ending(how).compile(target="sm_90a", subs={M: 64, N: 64, K: 512})
    assert "split_k=2" in str(refused.value) and refused.value.location is not None


@pytest.mark.parametrize("size", [(128, 4096, 14336), (512, 512, 16384), (16, 4096, 14336)])
def test_products_try_them_on_a_chip(monkeypatch: pytest.MonkeyPatch, size: tuple[int, int, int]) -> None:
    """Among the first six, none of them `auto`'s."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    m, n, k = size
    a, b, c = (np.empty(shape, wd.bf16.storage) for shape in ((m, k), (n, k), (m, n)))
    first, *others = gemm_choices(a, b, c, transpose_b=True, product="H200", most=6)
    found = [x for x in others if isinstance(x.cut, Cut) and x.cut.joined]
    assert isinstance(first.cut, Cut) and not first.cut.joined
    assert found and all("added in clusters" in str(x) for x in found)
    kernel = plan_gemm(a, b, c, transpose_b=True, product="H200", choice=found[0]).launches[0].kernel
    assert kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a").kernel_ir.cluster >= found[0].cut.parts


def test_a_product_by_such_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    a, b, c = products.operands(BF16, 96, 136, 2048)
    want = products.exact(a, b, BF16)[0] * 0.5 + 2 * c.astype(np.float64)
    choices = gemm_choices(a, b, c, beta=2.0, transpose_b=True, product="H200", most=20)
    choice = next(x for x in choices if isinstance(x.cut, Cut) and x.cut.joined)
    plan_gemm(a, b, c, alpha=0.5, beta=2.0, transpose_b=True, product="H200", choice=choice).run()
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=2**-8)


def test_auto_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of clusters along the parts was measured."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    a, b, c = products.operands(BF16, 64, 64, 4096)
    assert "cluster" not in str(matmul(a, b, c, transpose_b=True, product="H200").choice)
