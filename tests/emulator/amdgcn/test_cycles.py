"""The cycle model: clocks that can be worked out by hand, comparisons that must hold, and llvm-mca's opinion."""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path

import numpy as np
import oracles
import pytest
from amdgcn_harness import load_case, module, run, vector_cases
from wavedsl.runtime.emulator.amdgcn.cycle_blocks import basic_blocks, clocks_per_trip, loops, run_spans
from wavedsl.runtime.emulator.amdgcn.text import parse
from wavedsl.runtime.emulator.cycle_chips import CHIPS, varied
from wavedsl.runtime.emulator.cycle_queue import Launch, Timing

from wavedsl.targets import get_target

MFMA = "v_mfma_f32_16x16x16_f16 v[{0}:{1}], v[200:201], v[202:203], v[{0}:{1}]"
INDEPENDENT = "\n".join(MFMA.format(4 * i, 4 * i + 3) for i in range(16))
CHAIN = "\n".join(MFMA.format(0, 3) for _ in range(16))


def trip(body, target="gfx942", waves=1, **changes):
    """Clocks of one more repetition of a straight-line body."""
    program = parse(module(body, pointers=0), target)
    first, last = basic_blocks(program)[0]
    chip = varied(target, **changes)
    return clocks_per_trip(program, [(first, last - 1)], target, waves=waves, chip=chip)


# ---- one wave, by hand


@pytest.mark.parametrize(
    ("body", "clocks"),
    [
        ("v_add_u32 v1, v2, v3\n" * 8, 8 * 4),
        ("s_add_u32 s1, s2, s3\n" * 8, 8 * 4),
        ("v_exp_f32 v1, v2\n" * 4, 4 * 16),
        ("v_exp_f32 v1, v2\nv_exp_f32 v3, v4\ns_add_u32 s1, s2, s3\ns_add_u32 s1, s2, s3\n", 2 * 16),
        ("s_nop 7\nv_add_u32 v1, v2, v3\n", 8 * 4 + 4),
        ("v_fma_f64 v[0:1], v[2:3], v[4:5], v[0:1]\n" * 4, 4 * 8),
        (INDEPENDENT, 16 * 16),
        (CHAIN, 16 * 16),
        ("s_sleep 2\nv_add_u32 v1, v2, v3\n", 2 * 64 + 4),
    ],
    ids=["vector", "scalar", "quarter rate", "behind quarter rate", "nop", "f64", "matrix", "chain", "sleep"],
)
def test_issue(body, clocks):
    assert trip(body) == clocks


def test_matrix_instructions_leave_turns_for_the_vector_unit():
    """A 16-clock product leaves three turns; f32 inputs leave none; formats decide the passes of f8f6f4."""
    three = "\n".join(f"{line}\n" + "v_add_u32 v100, v101, v102\n" * 3 for line in INDEPENDENT.splitlines())
    four = "\n".join(f"{line}\n" + "v_add_u32 v100, v101, v102\n" * 4 for line in INDEPENDENT.splitlines())
    assert trip(three) == 16 * 16 and trip(four) == 16 * 20
    single = "v_mfma_f32_16x16x4_f32 v[{0}:{1}], v200, v202, v[{0}:{1}]\nv_add_u32 v100, v101, v102"
    assert trip("\n".join(single.format(4 * i, 4 * i + 3) for i in range(8))) == 8 * 36
    forms = "v_mfma_f32_16x16x128_f8f6f4 v[{0}:{1}], v[200:{2}], v[210:{3}], v[{0}:{1}] cbsz:{4} blgp:{4}"
    eight = "\n".join(forms.format(4 * i, 4 * i + 3, 207, 217, 0) for i in range(4))
    narrow = "\n".join(forms.format(4 * i, 4 * i + 3, 203, 213, 4) for i in range(4))
    assert trip(eight, "gfx950") == 4 * 32 and trip(narrow, "gfx950") == 4 * 16


def test_a_result_that_is_read_holds_the_wave():
    """Exactly the latency of the row: passes plus four turns; the hazard table asks for the same number of states."""
    body = MFMA.format(0, 3) + "\nv_add_u32 v100, v0, v102\n"
    assert trip(body) == 16 + 16 + 4
    legal = MFMA.format(0, 3) + "\ns_nop 6\nv_add_u32 v100, v0, v102\n"
    assert trip(legal) == trip(body)


def test_lds_latency_and_rate():
    one = "ds_read_b128 v[0:3], v10\ns_waitcnt lgkmcnt(0)\n"
    assert trip(one) >= 80
    eight = "".join(f"ds_read_b128 v[{4 * i}:{4 * i + 3}], v100\n" for i in range(8)) + "s_waitcnt lgkmcnt(0)\n"
    assert trip(eight) == pytest.approx(trip(one) + 7 * 8, abs=4)
    counted = "".join(f"ds_read_b128 v[{4 * i}:{4 * i + 3}], v100\n" for i in range(8)) + "s_waitcnt lgkmcnt(7)\n"
    assert trip(counted) < trip(eight)


def test_vector_memory_latency_is_the_chips():
    body = "global_load_dword v0, v[2:3], off\ns_waitcnt vmcnt(0)\n"
    assert trip(body, hit_latency=300) == pytest.approx(300 + 8, abs=8)
    assert trip(body, hit_latency=900) - trip(body, hit_latency=300) == pytest.approx(600, abs=4)


@pytest.mark.parametrize("target", sorted(CHIPS))
def test_the_compiler_has_the_same_cache(target):
    chip, compilers = CHIPS[target], get_target(target)
    assert (compilers.line_bytes, compilers.l1_bytes) == (chip.line, chip.line * chip.l1_lines)


def test_taken_branches_and_loops():
    text = module("s_mov_b32 s4, 0\nloop:\nv_add_u32 v1, v2, v3\ns_add_u32 s4, s4, 1\ns_cmp_lt_u32 s4, 64\n"
                  "s_cbranch_scc1 loop", pointers=0)  # fmt: skip
    program = parse(text, "gfx942")
    ((first, last),) = loops(program)
    assert clocks_per_trip(program, [(first, last)], "gfx942") == 3 * 4 + 16
    report = run("s_mov_b32 s4, 0\nloop:\nv_add_u32 v1, v2, v3\ns_add_u32 s4, s4, 1\ns_cmp_lt_u32 s4, 64\n"
                 "s_cbranch_scc1 loop", [], checks=False)  # fmt: skip
    assert report.cycles == pytest.approx(64 * 28, rel=0.02)


# ---- several waves


def test_a_second_wave_fills_the_gaps_of_a_simd():
    """Waves are dealt to four SIMDs: up to four run side by side, eight share."""
    half = "\n".join(MFMA.format(0, 3) + "\ns_nop 7\ns_nop 3" for _ in range(8))
    assert trip(half) == trip(half, waves=4)
    assert trip(half, waves=8) == pytest.approx(trip(half), rel=0.05)
    assert trip(CHAIN, waves=8) == pytest.approx(2 * trip(CHAIN), rel=0.05)


def test_lds_is_shared_by_the_simds():
    body = "".join(f"ds_read_b128 v[{4 * i}:{4 * i + 3}], v100\n" for i in range(8)) + "s_waitcnt lgkmcnt(0)\n"
    assert trip(body, waves=16) == pytest.approx(16 * 8 * 8, rel=0.05), "8 clocks per access, LDS never idle"


def test_a_barrier_waits_for_the_slowest_wave():
    body = """
v_lshrrev_b32 v1, 6, v0
v_readfirstlane_b32 s4, v1
s_cmp_lg_u32 s4, 0
s_cbranch_scc1 others
s_sleep 100
others:
s_barrier
"""
    report = run(body, [], block=256, checks=False)
    assert report.cycles == pytest.approx(6400, rel=0.02)
    assert report.timing.stalls["barrier"] == pytest.approx(3 * 6400, rel=0.05)


def test_priority_goes_first():
    """Two waves on a SIMD that both want the matrix unit: the one that asked for priority ends first."""
    from wavedsl.runtime.emulator.amdgcn.cycle_model import Replay
    from wavedsl.runtime.emulator.amdgcn.trace import WaveTrace

    def last_waits(body):
        program = parse(module(body, pointers=0), "gfx942")
        spans = dict(basic_blocks(program))
        late = program.labels["late"]
        traces = [WaveTrace() for _ in range(5)]  # the fifth wave joins the first on its SIMD
        for i, trace in enumerate(traces):
            trace.blocks = [late if i == 4 else 0, program.labels["work"]]
        timing = Replay(program, spans, "gfx942", CHIPS["gfx942"], Launch(1, 1)).run([traces])
        return timing.lines

    body = f"s_nop 0\ns_branch work\nlate:\ns_setprio {{}}\ns_branch work\nwork:\n{CHAIN}"
    assert sum(last_waits(body.format(0)).values()) > 0
    program = parse(module(body.format(3), pointers=0), "gfx942")
    assert program.lines[program.labels["late"]].inst.extra == "priority"
    assert last_waits(body.format(3)) != last_waits(body.format(0))


def test_resident_workgroups_hide_latency():
    """The same work with registers for one or for two workgroups on a compute unit."""
    body = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
""" + "global_load_dword v2, v1, s[8:9]\ns_waitcnt vmcnt(0)\n" * 16
    data = np.zeros(4096, np.uint32)
    grid = 4 * CHIPS["gfx942"].units
    few = run(body, [data], grid=grid, block=1024, checks=False, next_free_vgpr=128)
    many = run(body, [data], grid=grid, block=1024, checks=False, next_free_vgpr=64)
    assert few.cycles / many.cycles == pytest.approx(2, rel=0.15)


def test_more_workgroups_than_are_replayed_go_on_at_the_same_rate():
    body = "s_add_u32 s4, s5, s6\n" * 64
    report = run(body, [], grid=2, block=1024, checks=False)
    short, long = (report.replay(Launch(n, 2)) for n in (8, 4000))
    assert not short.extrapolated and long.extrapolated
    assert long.cycles == pytest.approx(500 * short.cycles, rel=0.1)


# ---- memory, from real addresses


def test_bank_conflicts_cost_clocks():
    body = """
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, {}, v0
""" + "ds_write_b32 v1, v0\n" * 32 + "s_waitcnt lgkmcnt(0)"
    free, bad = (run(body.format(n), [], lds=8192, checks=False) for n in (2, 7))
    assert bad.cycles - free.cycles == pytest.approx(bad.bank_conflicts, rel=0.05)


def copy_body(stride_shift):
    return f"""
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
s_lshl_b32 s5, s2, 8
v_add_u32 v0, s5, v0
v_lshlrev_b32 v1, {stride_shift}, v0
s_waitcnt lgkmcnt(0)
global_load_dwordx4 v[4:7], v1, s[8:9]
s_waitcnt vmcnt(0)
global_store_dwordx4 v1, v[4:7], s[10:11]
"""


def test_a_copy_runs_at_the_bandwidth_of_memory():
    groups = 32 * 304
    a, b = np.zeros(groups * 256 * 4, np.uint32), np.zeros(groups * 256 * 4, np.uint32)
    report = run(copy_body(4), [a, b], grid=groups, block=256, checks=False, next_free_vgpr=16)
    ideal = 2 * a.nbytes / CHIPS["gfx942"].dram_rate
    assert ideal <= report.cycles <= 1.25 * ideal


def test_scattered_lanes_cost_more_than_neighbours():
    a, b = np.zeros(256 * 64, np.uint32), np.zeros(256 * 64, np.uint32)
    near = run(copy_body(4), [a, b], block=256, checks=False).timing
    far = run(copy_body(8), [a, b], block=256, checks=False).timing
    assert far.cycles > near.cycles and far.utilisation["vmem"] > near.utilisation["vmem"]


def test_checks_do_not_change_the_clock():
    """The adversarial order of the checks is the emulator's; the model has its own."""
    from wavedsl.demo import K, M, N, gemm

    compiled = gemm.compile(target="gfx942", subs={M: 128, N: 64, K: 96})
    found = set()
    for checks in (True, False):
        a, b, c = np.ones((128, 96), np.float16), np.ones((64, 96), np.float16), np.empty((128, 64), np.float32)
        timing = compiled.emulate(a, b, c, checks=checks).timing
        found.add((timing.cycles, tuple(timing.utilisation.items()), tuple(timing.stalls.items())))
    assert len(found) == 1


# ---- others' opinions


def test_blocks_agree_with_llvm_mca():
    """Arithmetic blocks of the vectors: most agree to the clock; what differs is quarter-rate instructions, which
    llvm-mca lets through every turn. Blocks with memory differ in latency and only need the right order."""
    oracles.require("llvm-mca")
    folder = Path(__file__).parents[3] / "benchmarks"
    spec = importlib.util.spec_from_file_location("mca", folder / "mca.py")
    mca = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mca)
    arithmetic, memory = [], []
    for name in (n for n in vector_cases() if n.endswith("gfx942")):
        case, asm = load_case(name)
        program = parse(asm, case["arch"])
        blocks = []
        for first, last in basic_blocks(program):
            end = last - (program.lines[last].inst.special in mca._CONTROL)
            if end - first >= 3:
                blocks.append((first, end))
        for block, theirs in zip(blocks, mca.clocks(program, blocks, case["arch"], mca.find())):
            if theirs:
                kinds = {line.inst.unit.value for line in program.lines[block[0] : block[1] + 1]}
                ratio = clocks_per_trip(program, [block], case["arch"]) / theirs
                (memory if kinds & {"vmem", "ds", "smem", "barrier", "scratch"} else arithmetic).append(ratio)
    assert len(arithmetic) > 50 and len(memory) > 50
    assert statistics.median(arithmetic) == 1.0 and sum(abs(r - 1) <= 0.15 for r in arithmetic) > 0.7 * len(arithmetic)
    assert min(arithmetic) > 0.8 and max(arithmetic) < 2.5
    assert 0.9 < statistics.median(memory) < 2


def test_utilisation_is_a_share():
    report = run(f"{INDEPENDENT}\n" * 8, [], block=512, checks=False)
    assert report.utilisation["mfma"] > 0.95 and all(0 < v <= 1 for v in report.utilisation.values())
    assert 0.95 < report.timing.matrix_window <= 1
    program = parse(module(INDEPENDENT, pointers=0), "gfx942")
    first, last = basic_blocks(program)[0]
    assert run_spans(program, [(first, last)], "gfx942", repeat=4, waves=8).utilisation["mfma"] > 0.9


def test_what_one_of_several_workgroups_does_more_counts_once():
    """Clocks, busy clocks of units, waits and issued instructions; what it does less of counts for nothing."""
    every = Timing(100, {"mfma": 0.5}, {"barrier": 10}, {1: 5}, {1: 2})
    one = Timing(60, {"lds": 0.1, "mfma": 0.5}, {"barrier": 9, "vmcnt": 8}, {1: 3, 7: 4}, {1: 1, 7: 1})
    less = Timing(40, {"mfma": 0.5}, {"barrier": 12}, {1: 3}, {1: 1})
    found = every.and_more(one, less)
    assert (found.cycles, found.stalls, found.lines) == (120, {"barrier": 10, "vmcnt": 8}, {1: 5, 7: 4})
    assert found.issued == {1: 2, 7: 1}
    assert found.utilisation == pytest.approx({"lds": 6 / 120, "mfma": (50 + 10) / 120})
