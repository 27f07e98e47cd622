"""The warp replay: clocks that can be worked out by hand, and comparisons that must hold."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.codegen.ptx.isa import lookup
from wavedsl.runtime.emulator import run
from wavedsl.runtime.emulator.cycle_chips import SMS, varied
from wavedsl.runtime.emulator.cycle_queue import Launch
from wavedsl.runtime.emulator.ptx.emulator import run_ptx

HEAD = """.version 8.4
.target {target}
.address_size 64
.visible .entry k(.param .u64 p)
{{
.reg .pred %p<16>;
.reg .b32 %r<512>;
.reg .f32 %f<512>;
.reg .b64 %rd<64>;
.shared .align 1024 .b8 smem[{shared}];
{body}
ret;
}}
"""
ALONE = Launch(1, 1, 0.0)
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{d}}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{{d}}};"


def report(body, target="sm_80", warps=1, shared=65536, grid=1, data=None, **more):
    text = HEAD.format(target=target, body=body, shared=shared if target != "sm_80" else min(shared, 49152))
    array = np.zeros(1 << 20, np.uint8) if data is None else data
    return run(text, target=target, grid=(grid,), block=(32 * warps,), args=[array], checks=False, **more)


def clocks(body, target="sm_80", warps=1, chip=None, launch=ALONE, **more):
    return report(body, target, warps, **more).replay(launch, chip).cycles


def slope(part, count, **more):
    """Clocks of one more repetition of `part(i)`."""
    few, many = ("\n".join(part(i) for i in range(n)) for n in (count, 2 * count))
    return (clocks(many, **more) - clocks(few, **more)) / count


def mma(i):
    return MMA.format(d=", ".join(f"%f{4 * i + k}" for k in range(4)))


INTERVAL, LATENCY = (getattr(lookup("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", (8, 4)), x)
                     for x in ("interval", "latency"))  # fmt: skip


# ---- one warp


def test_a_chain_of_products_takes_a_latency_each_and_independent_ones_their_pipe():
    assert slope(lambda i: mma(0), 8) == LATENCY
    assert slope(mma, 8) == INTERVAL


def test_arithmetic_takes_its_pipe_and_chains_their_latency():
    assert slope(lambda i: f"add.u32 %r{10 + i}, %r1, %r2;", 16) == SMS["sm_80"].pipes["alu"]
    assert slope(lambda i: "add.u32 %r10, %r10, %r2;", 16) == 4
    assert slope(lambda i: f"mov.b32 %r{10 + i}, %r9;", 16) == 0, "a name is no instruction"


def test_what_can_go_first_goes_first_in_a_block():
    """A chain and independent work behind it in the text: the chain's waits are filled."""
    chain = "\n".join("add.u32 %r10, %r10, %r2;" for _ in range(8))
    others = "\n".join(f"add.u32 %r{20 + i}, %r1, %r2;" for i in range(8))
    assert clocks(f"{chain}\n{others}") <= clocks(chain) + 4


# ---- several warps


def test_a_second_warp_of_a_sub_core_hides_the_first_ones_latency():
    """Warps 0 and 4 share a sub-core. A chain of products leaves its tensor core free three quarters of the time."""
    body = "\n".join(mma(0) for _ in range(32))
    one, four, eight = (clocks(body, warps=n) for n in (1, 4, 8))
    assert one == four, "each has a sub-core of its own"
    assert eight - one <= LATENCY < one, "two chains side by side"
    full = "\n".join(mma(i) for i in range(32))
    assert clocks(full, warps=8) >= 2 * 32 * INTERVAL, "but no more than the tensor core does"


def test_a_barrier_waits_for_the_last():
    late = """
mov.u32 %r1, %tid.x;
setp.ge.u32 %p1, %r1, 32;
@%p1 bra DONE;
""" + "\n".join("add.u32 %r10, %r10, %r2;" for _ in range(100))  # fmt: skip
    early = clocks(late + "\nDONE:\n", warps=2)
    met = clocks(late + "\nDONE:\nbar.sync 0;\n", warps=2)
    assert early + SMS["sm_80"].barrier <= met <= early + SMS["sm_80"].barrier + 12


# ---- shared memory


def shared_load(i, shift):
    return f"ld.shared.u32 %r{20 + i}, [%r2];" if shift else f"ld.shared.u32 %r{20 + i}, [%r3];"


def test_bank_conflicts_keep_shared_memory_busy():
    head = """mov.u32 %r1, %tid.x;
    mov.u32 %r4, smem;
    shl.b32 %r2, %r1, 7;
    add.u32 %r2, %r2, %r4;
    shl.b32 %r3, %r1, 2;
    add.u32 %r3, %r3, %r4;
    """
    for conflicts, each in ((False, 1), (True, 32)):
        few, many = (head + "\n".join(shared_load(i, conflicts) for i in range(n)) for n in (32, 64))
        assert clocks(many) - clocks(few) == 32 * each


# ---- copies in flight


def ring(depth, trips=12):
    """Copies of 16 bytes per lane, waited for `depth - 1` groups later, each used by a chain of four products."""
    lines = [
        "mov.u32 %r100, %tid.x;", "shl.b32 %r101, %r100, 4;", "mov.u32 %r102, smem;", "add.u32 %r101, %r101, %r102;",
        "ld.param.u64 %rd1, [p];", "mul.wide.u32 %rd2, %r100, 16;", "add.u64 %rd1, %rd1, %rd2;",
    ]  # fmt: skip
    copy = "cp.async.cg.shared.global [%r101+{at}], [%rd1+{source}], 16;\ncp.async.commit_group;"
    for i in range(depth - 1):
        lines.append(copy.format(at=512 * i, source=4096 * i))
    for i in range(trips):
        lines.append(copy.format(at=512 * ((i + depth - 1) % depth), source=4096 * (i + depth - 1)))
        lines += [f"cp.async.wait_group {depth - 1};", f"ld.shared.u32 %r4, [%r101+{512 * (i % depth)}];"]
        lines += [mma(0)] * 4 + ["bar.sync 0;"]
    return "\n".join(lines)


def test_a_deeper_ring_of_copies_hides_their_latency():
    """Depth 1 waits a whole trip to L2 and a read every time; depth 3 has two trips' products meanwhile, which take
    as long as that, and waits for its first copy alone, like a depth of 8."""
    one, two, three, eight = (clocks(ring(n), data=np.zeros(1 << 20, np.uint8)) for n in (1, 2, 3, 8))
    hit = SMS["sm_80"].hit_latency
    assert one >= 12 * (hit + SMS["sm_80"].shared_latency + 3 * LATENCY)
    assert 2 * 4 * LATENCY >= hit and 12 * 4 * LATENCY < three
    assert eight == three < 0.85 * two and two < 0.6 * one


def test_a_load_waits_for_the_slowest_of_its_path():
    body = "ld.param.u64 %rd1, [p];\n" + "\n".join(f"ld.global.u32 %r{10 + i}, [%rd1+{4096 * i}];" for i in range(8))
    few = clocks(body + "\nadd.u32 %r9, %r17, %r2;")
    assert few - clocks(body.rsplit("\n", 1)[0]) < 100, "loads are on their way together"
    slower = varied("sm_80", hit_latency=SMS["sm_80"].hit_latency + 100)
    assert clocks(body, chip=slower) == clocks(body) + 100
    starved = clocks(body, chip=varied("sm_80", l2_rate=0.1))
    assert starved > clocks(body) + 8 * 32 / 0.1 * 0.9


def test_a_fence_of_the_chip_waits_for_stores_and_one_of_the_workgroup_does_not():
    def stores(fence):
        return f"ld.param.u64 %rd1, [p];\nst.global.u32 [%rd1], %r2;\n{fence};\nst.global.u32 [%rd1+4096], %r2;"

    fenced, near = clocks(stores("fence.acq_rel.gpu")), clocks(stores("fence.acq_rel.cta"))
    assert clocks(stores("membar.gl")) == fenced > near + SMS["sm_80"].hit_latency / 2
    slower = varied("sm_80", hit_latency=SMS["sm_80"].hit_latency + 100)
    assert clocks(stores("fence.acq_rel.gpu"), chip=slower) == fenced + 200
    assert clocks(stores("fence.acq_rel.cta"), chip=slower) == near + 100


# ---- warpgroups


def product(n=256):
    registers = ", ".join(f"%f{i}" for i in range(n // 2))
    return f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {{{registers}}}, %rd1, %rd2, 1, 1, 1, 0, 0;"


def groups(wait_each, count=8, n=256):
    """`count` groups of one product, waited for one by one or by the one before."""
    head = "mov.u64 %rd1, 4611686293305294912;\nmov.u64 %rd2, 4611686293305294912;\nwgmma.fence.sync.aligned;\n"
    wait = 0 if wait_each else 1
    one = f"{product(n)}\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned {wait};\n"
    return head + one * count + "wgmma.wait_group.sync.aligned 0;\n"


def test_a_product_in_flight_hides_the_latency_of_the_one_before():
    chip = SMS["sm_90a"]
    each, ahead = (clocks(groups(w), "sm_90a", 4) for w in (True, False))
    assert each == pytest.approx(8 * (128 + chip.product_latency), abs=24)
    assert ahead == pytest.approx(8 * 128 + chip.product_latency, abs=24)


def test_narrow_products_wait_for_their_operands_in_shared_memory():
    """64 x 64 x 16: 4 KB per 32 clocks are all that shared memory gives; 64 x 8 x 16: 2304 bytes, 18 clocks for 4."""
    for n, each in ((64, 32), (8, 18)):  # all in flight: one that is waited for takes longer than these
        together = groups(False, 64, n).replace("wgmma.wait_group.sync.aligned 1;\n", "")
        assert clocks(together, "sm_90a", 4) == pytest.approx(64 * each, abs=80)


def test_loads_do_not_queue_behind_operands_of_products_to_come():
    """Sixteen products of 32 clocks each ask for all that shared memory gives; a load in front of the wait for them has
    its data long before they are done."""
    products = groups(False, 16, 64).replace("wgmma.wait_group.sync.aligned 1;\n", "")
    body, wait = products.rsplit("wgmma.wait_group.sync.aligned 0;", 1)
    load = "ld.shared.u32 %r10, [smem];\nadd.u32 %r11, %r10, %r10;\n"
    chain = "add.u32 %r11, %r11, %r11;\n" * 100
    tail = f"wgmma.wait_group.sync.aligned 0;{wait}"
    alone, behind = (clocks(f"{body}{more}{tail}", "sm_90a", 4) for more in ("", load + chain))
    assert alone >= 16 * 32
    assert behind < alone + 60, "400 clocks of arithmetic go by while the products run"


@pytest.mark.parametrize("copies", [8, 24])
def test_what_copies_bring_takes_shared_memory_from_products(copies):
    """Products of 64 columns ask for all that shared memory gives, so they take longer by what is copied meanwhile: 512
    bytes a warp and `cp.async`, four clocks."""
    products = groups(False, 32, 64).replace("wgmma.wait_group.sync.aligned 1;\n", "")
    head = "mov.u32 %r5, %tid.x;\nshl.b32 %r6, %r5, 4;\nmov.u32 %r7, smem;\nadd.u32 %r7, %r7, %r6;\n"
    head += "ld.param.u64 %rd5, [p];\n"
    copy = "".join(f"cp.async.cg.shared.global [%r7+{2048 * i}], [%rd5], 16;\n" for i in range(copies))
    alone, beside = (clocks(f"{head}{x}{products}", "sm_90a", 4) for x in ("", copy))
    assert beside - alone == pytest.approx(copies * 4 * 4, abs=20)


# ---- mbarriers


BULK = """
mov.u32 %r1, smem;
add.u32 %r2, %r1, 1024;
mov.u32 %r5, %tid.x;
ld.param.u64 %rd1, [p];
setp.ne.u32 %p1, %r5, 0;
@%p1 bra WAIT;
mbarrier.init.shared::cta.b64 [%r1], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16384;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 16384, [%r1];
WAIT:
bar.sync 0;
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
@!%p2 bra AGAIN;
"""


def test_a_phase_is_over_when_its_bytes_have_come():
    """16 KB at an SM's share of L2, then latencies: whoever waits goes on then, and does not spin."""
    chip = SMS["sm_90a"]
    rate = chip.l2_rate / chip.units
    assert rate < chip.unit_rate
    found = report(BULK, "sm_90a", 4)
    timing = found.replay(ALONE)
    least = 16384 / rate + chip.hit_latency + chip.bulk_latency + chip.signal_latency
    assert least <= timing.cycles <= least + 80
    assert timing.stalls["mbarrier"] > 0.5 * 4 * least
    assert max(timing.issued.values()) == 4, "four warps, each of which asks once"
    half = report(BULK.replace("16384", "8192"), "sm_90a", 4).replay(ALONE)
    assert timing.cycles - half.cycles == pytest.approx(8192 / rate, abs=2)


# ---- the launch


def test_workgroups_that_reside_together_hide_each_others_waits_and_the_rest_follow():
    body = ring(1)
    alone, together, after = (clocks(body, launch=Launch(g, r, 0.0)) for g, r in ((1, 1), (2, 2), (2, 1)))
    assert together < 1.3 * alone and after == pytest.approx(2 * alone, rel=0.02)


def test_a_sample_is_clocked_as_a_part_of_its_grid():
    whole = report(ring(2), grid=432, data=np.zeros(1 << 20, np.uint8))
    part = report(ring(2), grid=432, data=np.zeros(1 << 20, np.uint8), workgroups=1)
    assert part.cycles == pytest.approx(whole.cycles, rel=0.02)
    assert whole.utilisation["tensor"] > 0.05 and whole.timing.stalls["copies"] > 0


@pytest.mark.parametrize(("target", "like"), [("sm_86", "sm_80"), ("sm_89", "sm_80"), ("sm_90", "sm_90a")])
def test_chips_without_numbers_of_their_own_have_those_of_the_one_before(target, like):
    """A lone chain takes as long as there; how many SMs there are is known of each."""
    array = np.zeros(16, np.uint8)
    body = "\n".join(mma(0) for _ in range(8))
    text = HEAD.format(target="sm_80", body=body, shared=16)
    found = run(text, target=target, grid=(1,), block=(32,), args=[array], checks=False)
    assert found.cycles == run(text, target=like, grid=(1,), block=(32,), args=[array], checks=False).cycles
    assert found.replay(chip=varied(target, units=1)).cycles == found.cycles


def test_registers_that_the_assembler_gave_decide_how_many_workgroups_reside():
    """Four workgroups of an SM, each a chain of sums: side by side, or in pairs."""
    body = "\n".join("add.rn.f32 %f10, %f10, %f2;" for _ in range(400))
    text = HEAD.format(target="sm_90a", body=body, shared=1024)
    given = {"target": "sm_90a", "grid": (4 * SMS["sm_90a"].units,), "block": (128,), "checks": False, "workgroups": 1}
    array = np.zeros(16, np.uint8)
    own, few, many = (run_ptx(text, args=[array], registers=n, **given).cycles for n in (0, 32, 255))
    assert own == few and 1.9 * few < many < 2.1 * few
