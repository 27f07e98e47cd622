"""What nothing orders in global memory: findings name the user's lines, and fences that go missing are found.

The texts of all other tests here have none: they run with every check on.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agree import agree
from products import BK, BM, BN, TARGETS, K, M, N
from two_sums import arguments, fused
from wavedsl.ir.inference import plans
from wavedsl.tracer.order import Order

import wavedsl as wd

T, BT = wd.symbols("T BT")
GRID = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)]
FOUR_WAVES = [wd.WorkgroupConstraint(N, BN, 0), wd.WaveConstraint(N, BN / 4), wd.TilingConstraint(T, BT)]


@wd.wave(GRID, subs={BM: 32, BN: 32})
def shifted(x: wd.Memory[M, N, wd.f32]):
    mine = wd.read(x)
    wd.write(mine + 1.0, x, mapping=wd.IndexMapping((M, N), {M: (M + 1) % 64}))


@wd.wave(FOUR_WAVES, subs={BN: 256, BT: 1})
def over_trips(x: wd.Memory[N, wd.f32], trips: wd.Memory[T, wd.f32]):
    @wd.iterate(T, init_args=[])
    def loop() -> None:
        there = wd.read(x, mapping=wd.IndexMapping((N,), {N: (N + 1) % 256}))
        wd.write(there * 2.0 + 1.0, x)


def findings(compiled: Any, *args: Any) -> list[Any]:
    report = compiled.emulate(*args, checks="report")
    assert all(f.kind == "race" for f in report.findings), report.findings
    return list(report.findings)


@pytest.mark.parametrize("target", TARGETS)
def test_workgroups_that_write_what_others_read(target: str) -> None:
    """Every workgroup moves its rows down by one: the first row of the next is somebody else's."""
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    found = findings(shifted.compile(x, target=target), x)
    assert found and "another workgroup" in found[0].message and "of argument `x`" in found[0].message
    lines = [int(n) for n in re.findall(r"test_races\.py:(\d+)", f"{found[0].message} {found[0].location}")]
    text = Path(__file__).read_text().splitlines()
    assert sorted(text[n - 1].strip()[:8] for n in lines) == ["mine = w", "wd.write"], "both of the user's lines"
    with pytest.raises(wd.EmulationError, match="another workgroup"):
        shifted.compile(x, target=target).emulate(x)


@pytest.mark.parametrize("target", TARGETS)
def test_trips_of_one_loop(target: str, oracle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves run ahead of each other unless a fence stands between the trips."""
    args = np.arange(256, dtype=np.float32), np.zeros(5, np.float32)
    agree(over_trips, args, target, oracle)
    monkeypatch.setattr(Order, "fence_between_trips", lambda order, region: False)
    found = findings(fresh(over_trips).compile(*args, target=target), *args)
    assert found and re.search("another (wave|lane)", found[0].message)


RELEASES = {"gfx942": "buffer_wbl2", "gfx950": "buffer_wbl2"}
ACQUIRES = {"gfx90a": "buffer_wbinvl1_vol", "gfx942": "buffer_inv", "gfx950": "buffer_inv"}


@pytest.mark.parametrize("form", ["split_k", "stream_k"])
@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_sums_without_fences(target: str, form: str) -> None:
    """The last workgroup adds the parts of the others: without a release, or without an acquire, it may miss some."""
    schedule = wd.Schedule(split_k=3) if form == "split_k" else wd.Schedule(stream_k=5)
    compiled = fused(schedule, waves=True).compile(*arguments(64, 32, 130), target=target)
    assert not findings(compiled, *arguments(64, 32, 130))
    if target.startswith("sm"):
        without = [compiled.asm.replace("fence.acq_rel.gpu;", semantics) for semantics in FENCES[target]]
        before, between, behind = compiled.asm.split("fence.acq_rel.gpu;")  # one that releases, one that acquires
        without += [f"{before}{between}fence.acq_rel.gpu;{behind}", f"{before}fence.acq_rel.gpu;{between}{behind}"]
    elif target == "gfx90a":
        without = [_drop(compiled.asm, ACQUIRES[target])]
    else:
        without = [_drop(compiled.asm, RELEASES[target]), _drop(compiled.asm, ACQUIRES[target])]
    for text in without:
        assert text != compiled.asm
        found = findings(replace(compiled, asm=text), *arguments(64, 32, 130))
        assert any("another workgroup" in f.message for f in found)


FENCES = {"sm_80": ("", "fence.acq_rel.cta;"), "sm_90a": ("", "fence.acquire.gpu;", "fence.release.gpu;")}


def _drop(text: str, mnemonic: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith(mnemonic))


ALONG_K = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)]


@wd.wave([*ALONG_K, wd.WaveConstraint(K, BK / 4)], subs={BM: 16, BN: 16, BK: 64})
def in_place(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def loop(acc):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop + 2.0 * wd.read(c), c)


@wd.wave([ALONG_K[0], ALONG_K[2], wd.WaveConstraint(K, BK / 4)], subs={BM: 16, BK: 64})
def in_place_per_trip(a: wd.Memory[M, K, wd.f32], c: wd.Memory[M, wd.f32]):
    @wd.iterate(K, init_args=[])
    def loop() -> None:
        wd.write(wd.read(c) + wd.sum(wd.read(a), dim=K), c)


@wd.wave(ALONG_K, subs={BM: 64, BN: 64, BK: 64})
def columns_in_place(
    a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], bias: wd.Memory[N, wd.f32]
):
    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def loop(acc):
        return wd.mma(wd.read(a), wd.read(b), acc)

    old = wd.read(bias)
    wd.write(old + 1.0, bias)
    wd.write(loop + old, c)


def _in_place(kernel: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    whole = [rng.integers(-3, 4, s).astype(d) for s, d in (((64, 192), np.float16), ((64, 192), np.float16))]
    c = rng.integers(-3, 4, (64, 64)).astype(np.float32)
    if kernel is in_place_per_trip:
        return [whole[0].astype(np.float32), c[0].copy()]
    return [*whole, c] if kernel is in_place else [*whole, c, c[0].copy()]


@pytest.mark.parametrize("kernel", [in_place, in_place_per_trip, columns_in_place], ids=lambda k: k.name)
@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_one_of_several_waves_writes_back(
    target: str, kernel: Any, oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waves that all read what one of them writes back wait for each other; without that the emulator finds it."""
    args = _in_place(kernel)
    sizes = {M: 64, K: 192} if kernel is in_place_per_trip else {M: 64, N: 64, K: 192}

    agree(kernel, args, target, oracle, subs=sizes)
    monkeypatch.setattr(plans, "by_waves", lambda graph, partition: graph)
    monkeypatch.setattr(plans, "by_layouts", lambda graph, inference, warpgroups: graph)
    monkeypatch.setattr(Order, "fence_between_trips", lambda order, region: False)
    assert findings(fresh(kernel).compile(*args, target=target, subs=sizes), *_in_place(kernel))


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BM: 4, BN: 4})
def few_elements(x: wd.Memory[M, N, wd.i32]):
    wd.write(wd.read(x) + 1, x)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(T, BT)], subs={BM: 4, BT: 1})
def few_per_trip(x: wd.Memory[M, wd.i32], trips: wd.Memory[T, wd.i32]):
    @wd.iterate(T, init_args=[])
    def loop() -> None:
        wd.write(wd.read(x) * 3 + 1, x)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("kernel, shapes", [(few_elements, ((7, 6),)), (few_per_trip, ((9,), (3,)))])
def test_one_of_several_lanes_writes_back(
    target: str, kernel: Any, shapes: Any, oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes of a warp that all read what one of them writes back meet; without that the emulator finds it."""
    args = [np.arange(np.prod(s), dtype=np.int32).reshape(s) for s in shapes]
    compiled = agree(kernel, args, target, oracle)
    assert "bar.warp.sync" in compiled.asm
    monkeypatch.setattr(plans, "by_layouts", lambda graph, inference, warpgroups: graph)
    found = findings(fresh(kernel).compile(*args, target=target), *args)
    assert found and "overwrites what another lane of the same wave reads" in found[0].message


def fresh(kernel: Any) -> Any:
    """The kernel as if nothing had been compiled yet."""
    return wd.wave(list(kernel.constraints), subs=dict(kernel.subs))(kernel.function)


@wd.wave(
    [wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(N, BN), wd.TilingConstraint(K, BK)],
    subs={BM: 64, BN: 64, BK: 64},
)
def made_then_multiplied(
    x: wd.Memory[M, K, wd.f16], a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]
):
    @wd.iterate(K, init_args=[])
    def make() -> None:
        wd.write(wd.read(x) * 2.0, a)

    @wd.iterate(N, init_args=[])
    def over_n() -> None:
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_operands_that_the_kernel_has_written(target: str, oracle: Any) -> None:
    """On sm_90a a copying warpgroup would fetch them before they are written: all threads copy behind the fence."""
    rng = np.random.default_rng(1)
    x, b = (rng.integers(-2, 3, (128, 192)).astype(np.float16) for _ in range(2))
    compiled = agree(made_then_multiplied, [x, np.zeros_like(x), b, np.zeros((128, 128), np.float32)], target, oracle)
    if target == "sm_90a":
        assert not [a for a in compiled.decisions.atoms if "copy.bulk" in a.ops]
        assert any("the kernel writes a before it reads it" in r for r in compiled.decisions.reasons)


@wd.wave([wd.WorkgroupConstraint(M, 20, 0), wd.WorkgroupConstraint(N, 64, 1)])
def doubled_in_place(x: wd.Memory[M, N, wd.u8]):
    wd.write(wd.read(x) * 2, x)


@pytest.mark.parametrize("target", TARGETS)
def test_what_sticks_out_of_a_tile_is_not_read_where_others_write(target: str, oracle: Any) -> None:
    """Fragments of 32 rows hold tiles of 20: the rows behind them belong to the next workgroup, which changes them."""
    agree(doubled_in_place, [np.arange(25 * 399).reshape(25, 399).astype(np.uint8)], target, oracle)


@wd.wave([*ALONG_K, wd.WaveConstraint(K, BK / 4)], subs={BM: 16, BN: 16, BK: 64})
def fenced_in_a_branch(
    a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], on: wd.Scalar[wd.i32]
):
    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def loop(acc):
        return wd.mma(wd.read(a), wd.read(b), acc)

    old = wd.read(c)
    wd.cond(on > 0, wd.fence)
    wd.write(loop + 2.0 * old, c)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_a_fence_that_may_not_be_passed_orders_nothing(target: str) -> None:
    args = [*_in_place(in_place), 0]
    assert not findings(fenced_in_a_branch.compile(*args, target=target), *args)
