"""Clocks of NVIDIA's chips from the kernel IR against those of the emitted text, which the emulator runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tune_kernels import BK, BM, BN, K, M, N, gemm
from wavedsl.runtime.emulator.cycle_queue import Launch, sharing
from wavedsl.runtime.emulator.ptx import warp_replay
from wavedsl.runtime.emulator.ptx.flow import Block, Flow
from wavedsl.runtime.emulator.ptx.trace import WarpTrace
from wavedsl.runtime.emulator.ptx.warp_ops import NAME, PLAIN, WarpOp
from wavedsl.runtime.emulator.ptx.warp_state import NEVER, Fork, marks_of
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl.analysis import played_warps, warp_program, warp_walk
from wavedsl.analysis.own_clock import at_own_clock, power_of_products, sm_of
from wavedsl.analysis.played import Played
from wavedsl.analysis.roofline import analyze_compiled, product_named
from wavedsl.strategies.kernels import Form, tiled
from wavedsl.tuning.candidates import Candidate

CLOSE = 0.12
(WM,) = wd.symbols("WM")


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, WM),
    ]
)
def stacked(
    a: wd.Memory[M, K, wd.SHARED, wd.bf16], b: wd.Memory[N, K, wd.SHARED, wd.bf16], c: wd.Memory[M, N, wd.bf16]
):  # fmt: skip
    """Warpgroups lie along M alone."""

    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def loop(acc):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(wd.cast(loop, wd.bf16), c)


def both(target, tiles, k=512, **schedule):
    """(predicted clocks of the fullest SM, those of the text) of a product of 1024 x 1024 x k."""
    choice = Candidate(tuple((str(s), n) for s, n in tiles.items()), tuple(schedule.items()))
    subs = {M: 1024, N: 1024, K: k, **tiles}
    compiled = gemm.variant(choice).compile(target=target, subs=subs)
    arrays = [np.zeros((1024, k), np.float16), np.zeros((1024, k), np.float16), np.zeros((1024, 1024), np.float32)]
    return wd.analyze(compiled, subs=subs).clocks, sample(compiled, arrays).cycles


@pytest.fixture
def nobody_is_stuck(monkeypatch):
    """Everybody who waits in a replay is let go by whom he waits for."""

    def stuck(self, t):
        raise AssertionError(f"warps wait for what never comes at clock {t}")

    monkeypatch.setattr(warp_replay.WarpReplay, "_unpark", stuck)


@pytest.mark.parametrize(
    ("target", "tiles", "schedule"),
    [
        ("sm_80", {BM: 128, BN: 128, BK: 16}, {"stages": 2}),  # waits for its copies in every trip
        ("sm_80", {BM: 64, BN: 64, BK: 32}, {"stages": 3}),  # several that reside together, and a rest
        ("sm_90a", {BM: 128, BN: 64, BK: 128}, {"stages": 4}),  # roles, mbarriers, products of warpgroups
        ("sm_90a", {BM: 128, BN: 128, BK: 64}, {"stages": 4, "cluster": 2}),  # arrivals and copies from elsewhere
        ("sm_90a", {BM: 128, BN: 128, BK: 64}, {"stages": 3, "persistent": 1}),  # a loop over tiles around
    ],
)
def test_predicted_clocks_are_those_of_the_text(nobody_is_stuck, target, tiles, schedule):
    predicted, measured = both(target, tiles, **schedule)
    assert predicted == pytest.approx(measured, rel=CLOSE)


def test_trips_that_are_left_out_count():
    """Twice the trips, twice the clocks, less prologue and epilogue; most of them are not replayed."""
    short, long = (both("sm_80", {BM: 64, BN: 64, BK: 32}, k, stages=3) for k in (1024, 2048))
    assert long[0] - short[0] == pytest.approx(long[1] - short[1], rel=CLOSE)
    assert long[0] > 1.7 * short[0]


def added_parts(dtype, tile, sizes, parts):
    """(the roofline of a product in so many parts of K, what is launched)."""
    m, n, k = sizes
    a, b, c = (np.zeros(s, dtype.numpy) for s in ((m, k), (n, k), (m, n)))
    kernel = tiled(Form(dtype, dtype, True), tile, (1, 1, 1), 0 if dtype is wd.f16 else 2, True, parts)
    made = kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a")
    binding = kernel.binding(kernel.bind_arguments((a, b, c, 1.0, 0.0), {}), None)
    return wd.analyze(made, subs={**binding.dims, **binding.extents}), (made, [a, b, c, 1.0, 0.0])


@pytest.mark.parametrize(
    ("dtype", "tile", "sizes", "parts"),
    [
        (wd.f16, (64, 64, 64), (256, 256, 4096), 8),
        (wd.f16, (64, 128, 64), (512, 512, 4096), 8),
        (wd.f32, (32, 32, 16), (64, 64, 32 * 480), 32),  # more parts than trips of a loop are replayed
    ],
)
def test_adding_parts_is_predicted_as_the_text_does_it(nobody_is_stuck, dtype, tile, sizes, parts):
    """The last of several workgroups: its sums leave, a fence waits for them, the loads of a part are on their way
    together. What trips of that loop take says nothing of those of the loop over K."""
    predicted, launched = added_parts(dtype, tile, sizes, parts)
    assert predicted.clocks == pytest.approx(sample(*launched).cycles, rel=CLOSE)


def test_who_takes_turns_adds_parts_once(nobody_is_stuck):
    """Two rounds of whole tiles, then half of one: parts are of the last turn's tile alone."""
    predicted, measured = both("sm_80", {BM: 64, BN: 64, BK: 32}, 128, stages=2, stream_k=1)
    assert predicted == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    ("target", "tiles", "schedule", "k"),
    [
        ("sm_90a", {BM: 64, BN: 64, BK: 32}, {"stages": 2, "split_k": 4}, 128),  # parts stay in L2: 16281 in the text
        ("sm_80", {BM: 128, BN: 64, BK: 64}, {"stages": 4, "split_k": 4}, 512),
        ("sm_90a", {BM: 64, BN: 128, BK: 64}, {"stages": 4, "stream_k": 1}, 512),  # 11766, whose text's first has 8095
        ("sm_90a", {BM: 128, BN: 256, BK: 64}, {"stages": 4, "stream_k": 1}, 512),
        ("sm_80", {BM: 128, BN: 64, BK: 64}, {"stages": 4, "stream_k": 1}, 128),  # 10104: each run is a tile
    ],
)
def test_parts_that_workgroups_leave_are_predicted(nobody_is_stuck, target, tiles, schedule, k):
    """The text is that of a workgroup that has most to do; those with a whole tile leave none."""
    predicted, measured = both(target, tiles, k, **schedule)
    assert predicted == pytest.approx(measured, rel=CLOSE)


@pytest.mark.parametrize("parts", [2, 8, 32])
def test_one_workgroup_of_a_tile_reads_all_parts(parts):
    """What L2 moves of parts grows as they do: each is written and read once."""
    m, n, k = 64, 64, 32 * 480
    found, _ = added_parts(wd.f32, (32, 32, 16), (m, n, k), parts)
    operands, sums = 2 * (m * n // 32) * k * 4, 4 * m * n
    read = parts if parts > 2 else 1  # of two parts the other one
    assert found.traffic.l2 == pytest.approx(operands + (parts + read + 1) * sums, rel=0.01)


def test_clocks_of_a_chip_share_the_walks_of_a_kernel(monkeypatch):
    """What keeps tensor cores busy for a part of its time is replayed at more than one clock: traces are made once,
    and what is predicted is what traces of its own for each clock say."""
    sizes = {M: 4096, N: 4096, K: 4096, BM: 64, BN: 64, BK: 64}
    choice = Candidate((("BM", 64), ("BN", 64), ("BK", 64)), (("stages", 2),))
    compiled = gemm.variant(choice).compile(target="sm_90a", subs=sizes)
    walked, clocks = [], []
    run, play = warp_walk.Walk.run, played_warps.play_warps

    def counted(walk):
        walked.append(walk.short)
        run(walk)

    def at_clock(walks, launch, chip, shared_bytes, last):
        clocks.append(chip.gigahertz)
        return play(walks, launch, chip, shared_bytes, last)

    monkeypatch.setattr(warp_walk.Walk, "run", counted)
    monkeypatch.setattr(played_warps, "play_warps", at_clock)
    shared = wd.analyze(compiled, subs=sizes, product="h200").clocks
    assert len(set(clocks)) > 1 and len(walked) == len(set(walked))

    def alone(walks, launch, chip, shared_bytes, last):
        t = walks.threads
        own = played_warps.Walks(t.kernel, walks.machine, chip, t.hidden, t.grid, t.group)
        return play(own, launch, chip, shared_bytes, last)

    monkeypatch.setattr(played_warps, "play_warps", alone)
    assert wd.analyze(compiled, subs=sizes, product="h200").clocks == shared


LONG_LOOPS = [
    ("sm_80", {BM: 64, BN: 64, BK: 32}, {"stages": 3}, 1),
    ("sm_90a", {BM: 128, BN: 64, BK: 64}, {"stages": 2, "persistent": 0}, 1),  # who copies is ahead
    ("sm_90a", {BM: 64, BN: 64, BK: 16}, {"stages": 1}, 1),  # several workgroups together
    ("sm_90a", {BM: 128, BN: 128, BK: 64}, {"stages": 3, "persistent": 1}, 2),  # a long loop in a long loop
]
"""Products of 16384 x 4096 x 4096: target, tiles, schedule, and how many replays of fewer trips each clock needs."""


def predicted(target, tiles, schedule):
    choice = Candidate(tuple((str(s), n) for s, n in tiles.items()), tuple(schedule.items()))
    subs = {M: 16384, N: 4096, K: 4096, **tiles}
    return analyze_compiled(gemm.variant(choice).compile(target=target, subs=subs), subs)


@pytest.mark.parametrize(("target", "tiles", "schedule", "shorter"), LONG_LOOPS)
def test_a_replay_that_goes_on_from_another_is_a_whole_one(monkeypatch, target, tiles, schedule, shorter):
    """Fewer trips are replayed from where they part from more; all that is said of them is what a replay from the
    start says, down to who waited for what."""
    begun = []
    run = warp_replay.WarpReplay.run
    told = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(warp_replay.WarpReplay, "explains", told, raising=False)

    def checked(replay, traces, most):
        begun.append(replay.begun)
        found = run(replay, traces, most)
        if replay.begun:
            whole = warp_replay.WarpReplay(
                replay.program, replay.events, replay.chip, replay.launch, 1, replay.sms[0].cache.most
            )
            assert run(whole, traces, most) == found
            assert whole.stalls == replay.stalls and whole.stalls
        return found

    monkeypatch.setattr(warp_replay.WarpReplay, "run", checked)
    predicted(target, tiles, schedule)
    clocks = begun.count(0)
    assert clocks and len(begun) == clocks * (1 + shorter)


@pytest.mark.parametrize(("target", "tiles", "schedule", "shorter"), LONG_LOOPS)
def test_what_is_not_replayed_changes_no_prediction(monkeypatch, target, tiles, schedule, shorter):
    """Neither beginnings that two replays have in common, nor names of values that are always there."""
    found = predicted(target, tiles, schedule)
    monkeypatch.setattr(played_warps.Walks, "fork", lambda self, walk, less: None)
    monkeypatch.setattr(warp_program.Program, "settle", lambda self: None)
    assert predicted(target, tiles, schedule) == found


def test_replays_part_before_a_warp_can_see_it():
    """The mark lies behind the last block with an instruction whose next one is the same as well."""
    plain, name = WarpOp(), WarpOp()
    plain.kind, name.kind = PLAIN, NAME
    blocks = [[plain], [name], [plain]]

    def marks(one, other):
        traces = WarpTrace(0), WarpTrace(0)
        for trace, numbers in zip(traces, (one, other)):
            trace.visits = [(n, {}) for n in numbers]
        return marks_of(traces[:1], traces[1:], blocks.__getitem__)

    assert marks([0, 2, 0, 2], [0, 2, 0, 0]) == [2]
    assert marks([0, 1, 1, 2], [0, 1, 1, 0]) == [1]
    assert marks([0, 2, 0], [0, 2, 0]) == [NEVER]
    assert marks([0, 2, 0, 2], [0, 2, 0]) == [2]
    assert marks([0, 2], [2, 2]) == marks([1, 1, 0], [1, 1, 2]) == []


def test_replays_may_part_right_behind_the_first_instruction():
    """Warps that have only been started are at their marks already."""
    blocks = []
    for number, (kind, port, busy) in enumerate(((PLAIN, "alu", 2), (NAME, "issue", 1), (PLAIN, "sfu", 8))):
        op = WarpOp()
        op.index, op.kind, op.port, op.busy, op.latency = number, kind, port, busy, 20
        op.reads, op.writes, op.limit, op.bypass, op.memory, op.traffic = (0,), (0,), 0, False, "dependence", 0
        blocks.append([op])
    flow = Flow([Block(i, i + 1, []) for i in range(3)], {})
    program = SimpleNamespace(ops=blocks.__getitem__, count=1, sources=["dependence"], flow=flow)

    def traces(*numbers):
        warps = [WarpTrace(i) for i in range(6)]
        for warp in warps:
            warp.visits = [(n, {}) for n in numbers]
        return warps

    chip = sm_of(product_named("A100"))

    def replay():
        return warp_replay.WarpReplay(program, warp_walk.Events(), chip, Launch(1, 1), 1, 64)

    more, fewer = traces(0, 1, 2, 2), traces(0, 1, 0)
    fork = Fork(fewer, marks_of(more, fewer, program.ops))
    first = replay()
    first.forks = [fork]
    assert first.run([more]) == replay().run([more])
    assert fork.replay.begun == 1 and fork.replay.run([fewer]) == replay().run([fewer])


def test_what_waits_is_predicted_slower():
    """Two stages of narrow tiles wait for memory, three do not: pipes alone do not tell them apart."""
    two, three = (both("sm_80", {BM: 128, BN: 128, BK: 16}, stages=n) for n in (2, 3))
    assert two[1] > 1.3 * three[1] and two[0] > 1.3 * three[0]


def test_tiles_of_a_persistent_kernel_take_their_products_time():
    """More tiles than are replayed, of more trips than are replayed: no faster than the tensor cores, and not much
    slower."""
    sizes = {M: 8192, N: 8192, K: 2048}
    choice = Candidate((("BM", 128), ("BN", 256), ("BK", 64)), (("stages", 4), ("persistent", 1)))
    subs = {**sizes, BM: 128, BN: 256, BK: 64}
    compiled = gemm.variant(choice).compile(target="sm_90a", subs=subs)
    least = 2 * 8192 * 8192 * 2048 / (4096 * 132)
    assert least < wd.analyze(compiled, subs=subs).clocks < 1.3 * least


def test_copies_of_later_tiles_are_replayed(nobody_is_stuck):
    """Two rounds of tiles whose K is shared: every one brings its bytes, and whoever meets at a fence is let go."""
    a, b, c = (np.empty(s, wd.bf16.storage) for s in ((16, 8192), (8192, 8192), (16, 8192)))
    form = Form(wd.bf16, wd.bf16, True)
    clocks = []
    for split in (2, 4):
        made = tiled(form, (16, 128, 64), (1, 2, 1), 0, True, split).compile(a, b, c, 1.0, 0.0, target="sm_90a")
        symbols = dict(zip("MNK", (16, 8192, 8192)))
        clocks.append(wd.analyze(made, subs=symbols, product="H200").clocks)
    assert 0.9 * clocks[0] < clocks[1] < 1.3 * clocks[0]


def test_what_pairs_of_workgroups_share_takes_the_share_of_l2_of_both():
    """Tiles of 64 x 128: a trip takes the share of L2 of all of its 24 KiB, though 16 KiB of them come with the
    neighbour's."""
    chip = product_named("H200")
    model = replace(sm_of(chip), l2_rate=5120.0, unit_rate=5120.0 / chip.units)
    clocks = []
    for k in (4096, 8192):
        tiles = {BM: 64, BN: 128, BK: 64, WM: 64}
        choice = Candidate(tuple((str(s), x) for s, x in tiles.items()), (("cluster", 2), ("split_k", 1)))
        subs = {M: 512, N: 2048, K: k, **tiles}
        made = stacked.variant(choice).compile(target="sm_90a", subs=subs)
        assert made.kernel_ir.cluster == 2
        clocks.append(analyze_compiled(made, subs, product=chip, model=model).clocks)
    assert (clocks[1] - clocks[0]) / 64 == pytest.approx(24576 / model.unit_rate, rel=0.02)


def test_memory_of_the_product_counts():
    """A copy is as much faster on H200 as its memory."""
    symbols = wd.symbols("A B P Q")

    @wd.wave([wd.WorkgroupConstraint(symbols[0], 4, 1), wd.WorkgroupConstraint(symbols[1], 512, 0)])
    def copied(a: wd.Memory[symbols[0], symbols[1], wd.f16], b: wd.Memory[symbols[0], symbols[1], wd.f16]):
        wd.write(wd.read(a), b)

    subs = {symbols[0]: 8192, symbols[1]: 8192}
    made = copied.compile(target="sm_90a", subs=subs)
    slow, fast = (wd.analyze(made, subs=subs, product=p).clocks for p in ("H100 SXM", "H200"))
    assert fast == pytest.approx(slow * 3.35 / 4.8, rel=0.05)
    assert slow == pytest.approx(4 * 8192 * 8192 / (0.92 * 3.35e12) * 1.83e9, rel=0.05)


def test_the_power_limit_leaves_a_clock():
    """The busier the tensor cores, the slower: a large product near the clock of full ones, a copy at the most there
    is, in seconds of which memory's do not change."""
    chip = product_named("H200")
    assert chip.power is not None
    assert chip.power.clock(1.0) == chip.power.full and chip.power.clock(0.1) == chip.power.clock(0) == chip.power.most
    assert 0.7 * chip.power.clock(0.7) ** 3 == pytest.approx(chip.power.full**3)
    seen: list[float] = []

    def played(sm):
        seen.append(sm.gigahertz)
        return Played(1000.0, {"tensor": 900.0 if sm.gigahertz < 1.6 else 400.0})

    found = at_own_clock(chip, 1.0, 1.0, played)
    assert len(seen) == 2 and seen[0] == pytest.approx(chip.power.full / 1e9)
    assert seen[1] == pytest.approx(chip.power.clock(0.9) / 1e9)
    assert found.clocks == pytest.approx(1000 * chip.clock / chip.power.clock(0.9))
    assert at_own_clock(product_named("A100"), 1.0, 1.0, lambda sm: Played(7.0, {})).clocks == 7


@pytest.mark.parametrize(("dtype", "share"), [(wd.bf16, 1.0), (wd.f64, 0.6)], ids=str)
def test_products_of_f64_leave_a_higher_clock(dtype, share):
    """Full tensor cores: of f64 1.83 to 1.9 GHz were measured, of bf16 1.56."""
    chip = product_named("H200")
    kernel = tiled(Form(dtype, dtype, True), (64, 64, 16), (2, 2, 1), 3)
    a, b, c = (np.zeros((512, 512), dtype.storage) for _ in range(3))
    made = kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a")
    assert power_of_products(made.kernel_ir, chip) == share
    assert chip.power.clock(share) == pytest.approx(1.54e9 * share ** (-1 / 3))


def test_memory_does_not_follow_the_clock():
    chip = product_named("H200")
    slow, fast = (sm_of(chip, hertz) for hertz in (1.5e9, 1.98e9))
    assert slow.dram_rate * 1.5e9 == pytest.approx(fast.dram_rate * 1.98e9) == pytest.approx(0.92 * 4.8e12)
    assert slow.l2_rate * 1.5e9 == pytest.approx(fast.l2_rate * 1.98e9)


def test_a_wave_has_the_tiles_of_its_own_turn(nobody_is_stuck):
    """Two warpgroups that take tiles in turn, and as many tiles as workgroups: the second has nothing to do."""
    size, tiles = {M: 256, N: 8192, K: 2048}, {BM: 128, BN: 128, BK: 64, WM: 128}
    clocks = []
    for turns in (False, True):
        schedule = (("cluster", 1), ("persistent", int(turns)), ("ping_pong", int(turns)), ("stages", 4))
        choice = Candidate(tuple((str(s), n) for s, n in tiles.items()), schedule)
        made = stacked.variant(choice).compile(target="sm_90a", subs={**size, **tiles})
        assert any(op.name == "turn.take" for op in made.kernel_ir.body.walk()) == turns
        clocks.append(wd.analyze(made, subs={**size, **tiles}, product="H200").clocks)
    assert clocks[1] == pytest.approx(clocks[0], rel=CLOSE)


def test_units_that_are_left_take_no_more_than_a_port():
    """What a unit waits for memory, summed over rounds: whole rounds share it, the last one fewer, each up to its own
    rate."""
    assert sharing(132, 132, 4620.0, 70.7) == 132 and sharing(264, 132, 4620.0, 70.7) == 132
    assert sharing(150, 132, 2400.0, 60.0) == (132 + 40) / 2  # 18 could have 133 bytes per clock each
    assert sharing(232, 132, 2400.0, 60.0) == (132 + 100) / 2
    assert sharing(64, 132, 2400.0, 10.0) == 132


def test_the_last_round_shares_l2_with_fewer(nobody_is_stuck):
    """One and a half rounds of tiles that L2 bounds take one and a half times as long: half of the SMs have it for
    themselves in the second."""
    chip = product_named("H200")
    model = replace(sm_of(chip), l2_rate=132 * 8.0, unit_rate=16.0)
    clocks = []
    for m in (132 * 64, 198 * 64):
        a, b, c = (np.empty(s, wd.bf16.storage) for s in ((m, 2048), (128, 2048), (m, 128)))
        kernel = tiled(Form(wd.bf16, wd.bf16, True), (64, 128, 64), (1, 1, 1), 3)
        made = kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a")
        binding = kernel.binding(kernel.bind_arguments((a, b, c, 1.0, 0.0), {}), None)
        found = analyze_compiled(made, {**binding.dims, **binding.extents}, product=chip, model=model)
        clocks.append(found.clocks)
    assert clocks[1] == pytest.approx(1.5 * clocks[0], rel=0.05)
