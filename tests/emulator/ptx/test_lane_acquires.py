# ruff: noqa: E501 (PTX text reads better in one line)
"""What one lane acquires is its own until it meets the others: pairs of kernels with and without the meeting.

A wait for an mbarrier, an acquiring load, a fence behind a strong load, a wait for bulk stores, a fence between proxies, and the
initialisation of an mbarrier, each by one lane, and accesses by another lane of its warp or through what that one hands on.
"""

import numpy as np
import pytest
from ptx_harness import run

IDS = """mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5; shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, sm; mov.u32 %r9, 0;
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d0, %d2; add.u32 %r8, %r0, 40; mov.u32 %r13, %ctaid.x;
"""
"""%r0 thread, %r1 lane, %r2 warp, %r4 the thread's word of shared memory, %r8 a number of its own, %d2 its word of the first array,
%d1 the second one, %r13 the CTA."""
VARIABLES = ".shared .align 128 .b8 sm[1024];\n.shared .align 8 .b64 bar[4];"
WARP, CTA = "bar.warp.sync -1;", "bar.sync 0;"
PROXY = "fence.proxy.async.shared::cta;"


def only(register, value, body, label):
    """`body` for those whose register has a value; the others go on behind it."""
    return f"setp.ne.u32 %p9, {register}, {value}; @%p9 bra {label};\n{body}\n{label}:\n"


def init(*counts):
    """mbarriers that all of the CTA know."""
    each = " ".join(f"mbarrier.init.shared::cta.b64 [bar+{8 * i}], {count};" for i, count in enumerate(counts))
    return only("%r0", 0, each + " fence.mbarrier_init.release.cluster;", "INIT") + CTA


def arrive(bar):
    return f"mbarrier.arrive.shared::cta.b64 _, [bar+{8 * bar}];"


def wait(bar, label):
    return f"{label}: mbarrier.try_wait.parity.shared::cta.b64 %p6, [bar+{8 * bar}], 0; @!%p6 bra {label};"


def findings(body, block=64, grid=1):
    out = []
    for seed in range(4):
        args = [np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)]
        report = run(IDS + body + "\nret;", args, block=block, grid=grid, variables=VARIABLES, seed=seed)
        out.append([(f.kind, f.message) for f in report.findings])
    return out


def judged(body, order, kind, said, block=64, grid=1):
    """With `order` for ORDER nothing is found; without it, whoever runs first, a finding of a kind says so."""
    right = findings(body.replace("ORDER", order), block, grid)
    assert right == [[]] * 4, right
    for found in findings(body.replace("ORDER", ""), block, grid):
        assert any(k == kind and said in message for k, message in found), found


ACCESSES = {
    "shared": ("st.shared.b32 [%r4], %r8;", "ld.shared.b32 %r5, [%r4-128];", "st.shared.b32 [%r4-128], %r8;", "ld.shared.b32 %r5, [%r4];"),
    "global": ("st.global.b32 [%d2], %r8;", "ld.global.b32 %r5, [%d2-128];", "st.global.b32 [%d2-128], %r8;", "ld.global.b32 %r5, [%d2];"),
}  # fmt: skip


@pytest.mark.parametrize("space", ACCESSES)
def test_a_lane_that_waits_for_an_mbarrier(space):
    """Warp 0 arrives, lane 3 of warp 1 waits: it may go on, the others behind a meeting."""
    store, load, again, before = ACCESSES[space]
    fill = "st.shared.b32 [%r4], %r0;" + init(32)
    for first, second in ((store, load), (store, again), (before, again)):
        one = fill + only("%r2", 0, first + arrive(0), "A")
        each = one + only("%r2", 1, only("%r1", 3, wait(0, "W"), "B") + "ORDER\n" + second, "C")
        judged(each, WARP, "race", "another wa")
        judged(each, CTA.replace("0", "1, 32"), "race", "another wa")
        alone = one + only("%r2", 1, only("%r1", 3, wait(0, "W") + second, "B"), "C")
        assert findings(alone) == [[]] * 4


def test_lanes_that_wait_in_two_places():
    """Each half of the warp waits by itself; then all of it knows."""
    store, load, _, _ = ACCESSES["shared"]
    halves = f"setp.lt.u32 %p5, %r1, 16; @%p5 bra LOW; {wait(0, 'H')} bra BOTH; LOW: {wait(0, 'W')} BOTH:\n"
    body = "st.shared.b32 [%r4], %r0;" + init(32) + only("%r2", 0, store + arrive(0), "A")
    assert findings(body + only("%r2", 1, halves + load, "B")) == [[]] * 4
    less = halves.replace(wait(0, "H"), "")
    for found in findings(body + only("%r2", 1, less + load, "B")):
        assert any(kind == "race" for kind, _ in found), found


@pytest.mark.parametrize(("lane", "fine"), [(5, True), (0, True), (9, False), (31, False)])
def test_lanes_that_the_waiting_one_meets(lane, fine):
    """Lane 3 waits, lanes 0 to 7 meet: one of those reads the word that warp 0 wrote, or another one does."""
    store, load, _, _ = ACCESSES["shared"]
    some = "setp.gt.u32 %p5, %r1, 7; @%p5 bra S; bar.warp.sync 0xff; S:\n"
    body = "st.shared.b32 [%r4], %r0;" + init(32) + only("%r2", 0, store + arrive(0), "A")
    body += only("%r2", 1, only("%r1", 3, wait(0, "W"), "B") + some + only("%r1", lane, load, "D"), "C")
    found = findings(body)
    assert found == [[]] * 4 if fine else all(any(k == "race" for k, _ in f) for f in found), found


@pytest.mark.parametrize("lane", [3, 4])
def test_a_lane_hands_on_what_it_has_waited_for(lane):
    """Lane 3 of warp 1 waits for warp 0; it, or its neighbour, arrives for warp 2."""
    store, load, _, _ = ACCESSES["shared"]
    body = "st.shared.b32 [%r4], %r0;" + init(32, 1) + only("%r2", 0, store + arrive(0), "A")
    body += only("%r2", 1, only("%r1", 3, wait(0, "W"), "B") + "ORDER\n" + only("%r1", lane, arrive(1), "D"), "C")
    body += only("%r2", 2, wait(1, "V") + load.replace("128", "256"), "E")
    if lane == 3:
        assert findings(body.replace("ORDER", ""), block=96) == [[]] * 4
    else:
        judged(body, WARP, "race", "another warp wrote", block=96)


SEES = {
    "acquire": "ld.acquire.SCOPE.global.b32 %r5, [%d1];",
    "fence": "ld.relaxed.SCOPE.global.b32 %r5, [%d1]; fence.acq_rel.SCOPE;",
}


@pytest.mark.parametrize("sees", SEES)
@pytest.mark.parametrize(("scope", "grid"), [("cta", 1), ("gpu", 1), ("gpu", 2)])
def test_a_lane_that_finds_a_flag(scope, grid, sees):
    """All lanes of a warp store and meet, one sets the flag that one of the other warp, or CTA, finds before all lanes of it read."""
    who, other = ("%r13", 0) if grid == 2 else ("%r2", -128)
    first = f"st.global.b32 [%d2], %r8; {WARP} {only('%r1', 0, f'st.release.{scope}.global.b32 [%d1], 1;', 'F')}"
    polls = f"SPIN: {SEES[sees].replace('SCOPE', scope)} setp.eq.u32 %p7, %r5, 0; @%p7 bra SPIN;"
    read = f"ld.global.b32 %r5, [%d2{other:+d}];"
    begin = only(who, 0, first, "A")
    judged(begin + only(who, 1, only("%r1", 6, polls, "B") + "ORDER\n" + read, "C"), WARP, "race", "wrote", 64 // grid, grid)
    assert findings(begin + only(who, 1, only("%r1", 6, polls + read, "B"), "C"), 64 // grid, grid) == [[]] * 4


def test_a_fence_by_another_lane_acquires_nothing():
    """Lane 6 finds the flag and has to fence, then to meet lane 7, which reads; a fence of that one is for what it finds."""
    first = f"st.global.b32 [%d2], %r8; {WARP} {only('%r1', 0, 'st.release.gpu.global.b32 [%d1], 1;', 'F')}"
    polls = "SPIN: ld.relaxed.gpu.global.b32 %r5, [%d1]; setp.eq.u32 %p7, %r5, 0; @%p7 bra SPIN;"
    then = only("%r1", 7, "fence.acq_rel.gpu; ld.global.b32 %r5, [%d2];", "G")
    body = only("%r13", 0, first, "A") + only("%r13", 1, only("%r1", 6, polls + "ORDER", "B") + WARP + then, "C")
    judged(body, "fence.acq_rel.gpu;", "race", "another workgroup wrote", 32, 2)


BULK_STORE = "cp.async.bulk.global.shared::cta.bulk_group [%d1], [sm], 128; cp.async.bulk.commit_group;"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;"
BULK_LOAD = EXPECT + "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [sm], [%d1], 128, [bar];"
DONE = "cp.async.bulk.wait_group.read 0;"


def test_a_bulk_store_by_one_lane_reads_what_all_wrote():
    body = f"st.shared.b32 [%r4], %r8; {PROXY} ORDER\n" + only("%r0", 0, BULK_STORE + DONE, "A")
    judged(body, WARP, "race", "reads what another lane of this warp wrote", 32)


@pytest.mark.parametrize("copy", [BULK_STORE + DONE, BULK_LOAD], ids=["store", "load"])
def test_a_proxy_fence_by_one_lane(copy):
    """It is for what that lane wrote, and for what those wrote whom it has met before."""
    begin = init(1) + "st.shared.b32 [%r4], %r8;"
    one = only("%r0", 0, PROXY, "F")
    last = only("%r0", 0, copy, "A") + (wait(0, "W") if "expect" in copy else "")
    judged(f"{begin} ORDER\n{one} {WARP}\n{last}", WARP, "proxy-fence", "an ordinary store", 32)
    mine = init(1) + only("%r0", 0, "st.shared.v4.b32 [sm], {%r8, %r8, %r8, %r8};" + "".join(
        f"st.shared.v4.b32 [sm+{16 * i}], {{%r8, %r8, %r8, %r8}};" for i in range(1, 8)), "S")  # fmt: skip
    judged(f"{mine}\n" + only("%r0", 0, "ORDER", "F") + last, PROXY, "proxy-fence", "an ordinary store", 32)
    # the fence of lane 0 travels with what hands on: a warp that has met it issues the copy
    stores = init(1) + only("%r2", 0, f"st.shared.b32 [%r4], %r8; ORDER {only('%r0', 0, PROXY, 'F')}", "S")
    judged(stores + CTA + only("%r0", 32, copy, "A") + (wait(0, "W") if "expect" in copy else ""), WARP, "proxy-fence", "an ordinary store")


def test_a_bulk_load_over_what_all_lanes_have_read():
    fill = init(1) + "st.shared.b32 [%r4], %r8;" + PROXY + WARP
    body = fill + "ld.shared.b32 %r5, [%r4]; ORDER\n" + only("%r0", 0, BULK_LOAD, "A") + wait(0, "W")
    judged(body, WARP, "race", "overwrites what another lane of this warp reads", 32)


def test_the_wait_for_bulk_stores_is_the_lanes():
    """Lane 0 has waited until its store has read: the others may write again when it has told them."""
    fill = f"st.shared.b32 [%r4], %r8; {PROXY} {WARP}\n"
    body = fill + only("%r0", 0, BULK_STORE + DONE, "A") + "ORDER\nst.shared.b32 [%r4], 7;"
    judged(body, WARP, "race", "who waited for it has not told this thread", 32)
    alone = fill + only("%r0", 0, BULK_STORE + DONE + "st.shared.b32 [%r4], 7;", "A")
    assert findings(alone, 32) == [[]] * 4


def test_an_mbarrier_that_another_lane_initialises():
    begin = only("%r0", 0, "mbarrier.init.shared::cta.b64 [bar], 1;", "I")
    judged(begin + "ORDER\n" + only("%r0", 5, arrive(0), "A"), WARP, "race", "another lane of this warp initialises", 32)
    assert findings(only("%r0", 0, "mbarrier.init.shared::cta.b64 [bar], 1;" + arrive(0), "I"), 32) == [[]] * 4
