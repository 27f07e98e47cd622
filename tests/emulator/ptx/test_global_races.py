# ruff: noqa: E501 (PTX text reads better in one line)
"""Accesses of global memory that nothing orders are found in PTX, and ordered ones are not taken for such."""

import numpy as np
import pytest
from ptx_harness import run

IDS = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];\n"
MINE = "mul.wide.u32 %d2, %r3, 4; add.s64 %d2, %d0, %d2;\n"
NEXT_WARP = "add.u32 %r4, %r0, 32; and.b32 %r4, %r4, 63; mul.wide.u32 %d3, %r4, 4; add.s64 %d3, %d0, %d3;\n"
FIRST = "setp.ne.u32 %p0, %r0, 0; @%p0 bra SKIP;\n"


def races(body, args, **options):
    found = [run(IDS + body + "\nret;", [a.copy() for a in args], seed=seed, **options).findings for seed in range(4)]
    assert all(f.kind == "race" for fs in found for f in fs), found
    return [str(f) for fs in found for f in fs]


def arrays(n=64):
    return [np.arange(n, dtype=np.uint32), np.zeros(n, np.uint32)]


def test_ctas_that_write_one_element():
    other = "st.global.b32 [%d0], %r1;"
    found = races(other, arrays(), grid=3)
    assert found and "another workgroup" in found[0] and "byte 0 of argument `p0`" in found[0]
    assert not races("mov.u32 %r5, 7; st.global.b32 [%d0], %r5;", arrays(), grid=3), "one value in any order"


@pytest.mark.parametrize("grid", [3, 700])
def test_a_cta_that_reads_what_another_writes(grid):
    """Also where the two do not run together: 700 CTAs take several batches."""
    body = MINE + "st.global.b32 [%d2], %r3; ld.global.b32 %r5, [%d0+4]; add.s64 %d2, %d2, 0;"
    found = races(body, [np.full(32 * grid, 9, np.uint32), np.zeros(1, np.uint32)], grid=grid)
    assert found and "another workgroup" in found[0]
    before = MINE + "ld.global.b32 %r5, [%d0+4]; st.global.b32 [%d2], %r3;"
    found = races(before, [np.full(32 * grid, 9, np.uint32), np.zeros(1, np.uint32)], grid=grid)
    assert any("overwrites what another workgroup reads" in f for f in found)


def test_warps_of_a_cta():
    store, load = MINE + "add.u32 %r6, %r3, 100; st.global.b32 [%d2], %r6;\n", NEXT_WARP + "ld.global.b32 %r5, [%d3];\n"
    assert any("reads what another wave wrote" in f or "overwrites what another wave reads" in f for f in races(store + load, arrays(), block=64))
    assert not races(store + "bar.sync 0;\n" + load, arrays(), block=64)
    assert any("another wave" in f for f in races(load + store, arrays(), block=64))
    assert not races(load + "bar.sync 0;\n" + store, arrays(), block=64)


def test_all_warps_read_and_one_writes():
    """The writer read last itself; the others' reads are remembered."""
    body = "ld.global.b32 %r5, [%d0+12]; setp.ne.u32 %p0, %r0, 33; @%p0 bra SKIP; st.global.b32 [%d0+12], %r0; SKIP:\n"
    assert races(body, arrays(), block=96)
    assert not races(body.replace("setp", "bar.sync 0; setp", 1), arrays(), block=96)


@pytest.mark.parametrize("warps", [2, 3, 8])
def test_a_cta_writes_what_its_own_warps_read_last(warps):
    """Those have met at a barrier; the CTA that has read before them has not."""
    read = "ld.global.b32 %r5, [%d0+12];"
    write = "setp.ne.u32 %p1, %r0, 0; @%p1 bra SKIP; st.global.b32 [%d0+12], %r2; SKIP:\n"
    for cta in range(2):
        body = f"{read} setp.ne.u32 %p0, %r1, {cta}; @%p0 bra SKIP; bar.sync 0; {read} bar.sync 0; {write}"
        found = races(body, arrays(), block=32 * warps, grid=2)
        assert len(found) == 4 and all("overwrites what another workgroup reads" in f for f in found)
    assert not races(f"{read} bar.sync 0; {write}", arrays(), block=32 * warps), "alone: its barrier orders them"


def test_of_many_readers_only_one_is_late():
    """Warps 1 and 2 meet warp 3 before it writes, warp 0 does not."""
    read = "ld.global.b32 %r5, [%d0+12]; setp.lt.u32 %p0, %r0, 32; @%p0 bra SKIP; BARRIER setp.ne.u32 %p1, %r0, 96; @%p1 bra SKIP;\n"
    body = read + "st.global.b32 [%d0+12], %r0; SKIP:\n"
    found = races(body.replace("BARRIER", "bar.sync 1, 96;"), arrays(), block=128)
    assert found and all("overwrites what another wave reads" in f for f in found)
    assert not races(body.replace("BARRIER", "").replace("ld.global.b32 %r5, [%d0+12];", "ld.global.b32 %r5, [%d0+12]; bar.sync 0;"), arrays(), block=128)


def test_lanes_of_a_warp():
    found = races("st.global.b32 [%d0], %r0;", arrays())
    assert found and "writes another value than another lane of the same wave" in found[0]
    assert not races("mov.u32 %r5, 3; st.global.b32 [%d0], %r5;", arrays())


def test_values_that_stay():
    """A write that leaves memory as it was changes nothing for anybody."""
    body = "ld.global.b32 %r5, [%d0]; st.global.b32 [%d0], %r5;"
    assert not races(body, arrays(), block=64, grid=3)


def test_narrow_neighbours():
    """Bytes of one word belong to different CTAs; accesses that are no multiple of the smallest one find bytes, too."""
    body = "mul.wide.u32 %d2, %r3, 1; add.s64 %d2, %d0, %d2; st.global.b8 [%d2], %r3;"
    assert not races(body, [np.zeros(96, np.uint8), np.zeros(1, np.uint32)], grid=3)
    body = "mul.wide.u32 %d2, %r1, 1; add.s64 %d2, %d0, %d2; " + FIRST + "st.global.b8 [%d2], %r3; ld.global.b32 %r7, [%d1]; SKIP:"
    assert not races(body, [np.zeros(96, np.uint8), np.zeros(1, np.uint32)], grid=3)


def test_non_coherent_loads():
    body = MINE + "add.u32 %r6, %r3, 100; st.global.b32 [%d2], %r6; ld.global.nc.b32 %r5, [%d2];"
    found = races(body, arrays())
    assert found and ".nc" in found[0]
    assert not races(MINE + "ld.global.nc.b32 %r5, [%d2];", arrays())


# Each CTA writes its part and takes a ticket; the last one adds the parts.
PARTS = """mul.wide.u32 %d2, %r3, 4; add.s64 %d2, %d0, %d2; add.u32 %r6, %r3, 1; st.global.b32 [%d2], %r6;
RELEASE
bar.sync 0;
mov.u32 %r7, 0;
setp.ne.u32 %p0, %r0, 0; @%p0 bra TAKEN;
RELEASE_ONE
TICKET
st.shared.b32 [sm], %r7;
TAKEN: bar.sync 0;
ld.shared.b32 %r7, [sm];
setp.ne.u32 %p1, %r7, 4; @%p1 bra SKIP;
ACQUIRE
mov.u32 %r8, 0; mov.u32 %r9, 0;
L: mad.lo.u32 %r10, %r8, %r2, %r0; mul.wide.u32 %d4, %r10, 4; add.s64 %d4, %d0, %d4; ld.global.b32 %r11, [%d4]; add.u32 %r9, %r9, %r11; add.u32 %r8, %r8, 1;
setp.lt.u32 %p2, %r8, 5; @%p2 bra L;
mul.wide.u32 %d5, %r0, 4; add.s64 %d5, %d1, %d5; st.global.b32 [%d5+4], %r9; SKIP:"""
FENCE = "fence.acq_rel.gpu;"
TICKET = "atom.global.add.u32 %r7, [%d1], 1;"
TOLD = "bar.sync 0;"
"""Behind the fence of the thread that has taken the ticket."""


def parts(release="", one="", acquire="", ticket=TICKET):
    body = PARTS.replace("RELEASE_ONE", one).replace("RELEASE", release).replace("ACQUIRE", acquire).replace("TICKET", ticket)
    results = [np.zeros(5 * 64, np.uint32), np.zeros(65, np.uint32)]
    return races(body, results, block=64, grid=5, variables=".shared .align 4 .b8 sm[4];")


@pytest.mark.parametrize(
    "fences",
    [
        {"release": FENCE, "acquire": FENCE + TOLD},
        {"one": FENCE, "acquire": FENCE + TOLD},
        {"one": "membar.gl;", "acquire": "fence.sc.gpu;" + TOLD},
        {"acquire": FENCE + TOLD, "ticket": "atom.release.gpu.global.add.u32 %r7, [%d1], 1;"},
        {"ticket": "atom.acq_rel.gpu.global.add.u32 %r7, [%d1], 1;"},
        {"one": FENCE, "ticket": TICKET + FENCE},
        {"one": "fence.release.gpu;", "acquire": "fence.acquire.gpu;" + TOLD},
    ],
)
def test_tickets_hand_on_what_fences_release(fences):
    assert not parts(**fences)


@pytest.mark.parametrize(
    "fences",
    [
        {},
        {"release": FENCE, "one": FENCE},
        {"acquire": FENCE + TOLD},
        {"one": FENCE, "acquire": FENCE},  # each thread's fence is for what it has read itself
        {"one": "fence.acq_rel.cta;", "acquire": FENCE + TOLD},
        {"one": FENCE, "acquire": "fence.acq_rel.cluster;" + TOLD},
        {"ticket": "atom.acq_rel.cta.global.add.u32 %r7, [%d1], 1;"},
        {"one": FENCE, "acquire": FENCE + TOLD, "ticket": "atom.relaxed.cluster.global.add.u32 %r7, [%d1], 1;"},
        {"one": "fence.acquire.gpu;", "acquire": FENCE + TOLD},
        {"one": FENCE, "acquire": "fence.release.gpu;" + TOLD},
    ],
)
def test_missing_fences(fences):
    found = parts(**fences)
    assert any("another workgroup" in f and "ld.global.b32 %r11" in f for f in found)


def test_chains_of_ctas():
    """CTA n waits for n - 1 and hands on: the last knows what the first wrote, through all between."""
    body = """setp.ne.u32 %p0, %r0, 0; @%p0 bra SKIP;
    mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2; add.s64 %d2, %d0, %d2;
    setp.eq.u32 %p1, %r1, 0; @%p1 bra READY;
    WAIT: ld.acquire.gpu.global.b32 %r5, [%d3+-4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra WAIT;
    READY: ld.global.b32 %r6, [%d0]; add.u32 %r6, %r6, 1; st.global.b32 [%d2], %r6;
    mov.u32 %r7, 1; st.release.gpu.global.b32 [%d3], %r7; SKIP:"""
    args = [np.zeros(3, np.uint32), np.zeros(3, np.uint32)]
    assert not races(body, args, grid=3)
    found = races(body.replace("st.release.gpu", "st.relaxed.gpu"), args, grid=3)
    assert any("another workgroup" in f for f in found)


def test_atomics_and_ordinary_accesses():
    add = "atom.global.add.u32 %r5, [%d0], 1;\n"
    assert not races(add, arrays(), block=64, grid=4)
    assert any("another" in f for f in races(add + "ld.global.b32 %r6, [%d0];", arrays(), block=64, grid=4))
    assert any("overwrites what another" in f for f in races("ld.global.b32 %r6, [%d0];" + add, arrays(), block=64))
    assert not races("ld.global.b32 %r6, [%d0]; bar.sync 0;" + add, arrays(), block=64)
    swap = "and.b32 %r9, %r0, 28; setp.ne.u32 %p1, %r9, 0; @%p1 bra SKIP; ld.global.b32 %r6, [%d0]; L: mov.u32 %r7, %r6; add.u32 %r8, %r7, 1; atom.global.cas.b32 %r6, [%d0], %r7, %r8; setp.ne.u32 %p0, %r6, %r7; @%p0 bra L; SKIP:"
    assert not races(swap, arrays(), block=64, grid=2), "the usual loop around a compare-and-swap"


@pytest.mark.parametrize("scope, fine", [("cta", False), ("cluster", False), ("gpu", True), ("sys", True)])
def test_atomics_and_strong_accesses_of_a_scope(scope, fine):
    """Within a CTA any scope will do, between CTAs one that has both in it."""
    add, store, load = (f"{what} " for what in (f"red.relaxed.{scope}.global.add.u32", f"st.relaxed.{scope}.global.b32", f"ld.relaxed.{scope}.global.b32"))
    for body in (f"{add}[%d0], 1;", f"{store}[%d0], %r1;", f"{load}%r5, [%d0]; {store}[%d0], %r1;", f"{add}[%d0], 1; {load}%r5, [%d0];"):
        assert not races(body, arrays(), block=64)
        assert bool(races(body, arrays(), block=64, grid=3)) is not fine


GRIDS = "griddepcontrol.wait;"
DEPENDENT = {
    "load": "ld.global.b32 %r5, [%d0];",
    "store": "st.global.b32 [%d0], %r0;",
    "atomic": "red.global.add.u32 [%d0], 1;",
    "copy": "cp.async.ca.shared.global [sm], [%d0], 4; cp.async.wait_all;",
    "bulk": "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sm], [%d0], 16, [bar]; L: mbarrier.try_wait.parity.shared::cta.b64 %p6, [bar], 0; @!%p6 bra L;",
    "bulk store": "cp.async.bulk.global.shared::cta.bulk_group [%d0], [sm], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
}


@pytest.mark.parametrize(("before", "between", "fine"), [
    (GRIDS, "", True), (f"@%p0 {GRIDS}", "bar.sync 0;", True), (f"@%p0 {GRIDS}", "bar.warp.sync -1;", False),
    (f"@%p0 {GRIDS}", "", False), ("", "", False), ("griddepcontrol.launch_dependents;", "", False),
])  # fmt: skip
@pytest.mark.parametrize("access", DEPENDENT)
def test_memory_of_the_grid_in_front(access, before, between, fine):
    """Lane 0 of warp 0 waits for it (`%p0`), or everybody; lane 0 of warp 1 touches global memory."""
    body = f"""mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; setp.eq.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r0, 32;
    @%p1 bra INIT; mbarrier.init.shared::cta.b64 [bar], 1; st.shared.v4.b32 [sm], {{%r0, %r0, %r0, %r0}}; fence.proxy.async; INIT: bar.sync 0;
    {before} {between} @%p1 bra LAST; {DEPENDENT[access]} LAST: {GRIDS} ret;"""
    variables = ".shared .align 16 .b8 sm[64];\n.shared .align 8 .b64 bar;"
    report = run(body, [np.zeros(64, np.uint32)], block=64, variables=variables)
    said = [f.message for f in report.findings]
    if fine:
        assert not said, said
    else:
        assert len(said) == 1 and "griddepcontrol.wait" in said[0] and report.findings[0].kind == "race", said
