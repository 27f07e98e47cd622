# ruff: noqa: E501 (PTX text reads better in one line)
"""Pairs of small kernels, one with a race and one that orders the same accesses: both are judged right, whoever runs first.

Of shared memory, and of global memory where lanes and warps of one CTA meet in it; of several CTAs see
test_global_races.py, of bulk copies test_bulk.py and test_hopper_findings.py.
"""

import itertools

import numpy as np
import pytest
from ptx_harness import run

SHARED = ".shared .align 16 .b8 sm[1024];"
IDS = """mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5; mov.u32 %r3, sm; shl.b32 %r4, %r0, 2; add.u32 %r4, %r3, %r4;
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d0, %d2; mov.u32 %r50, 0; mov.u32 %r51, 0;
"""
"""%r0 thread, %r1 lane, %r2 warp, %r3 shared memory, %r4 the thread's word of it, %d2 its word of the first array."""
FILL = "st.shared.b32 [%r4], %r0; bar.sync 0;\n"
SYNC, WARP = "bar.sync 0;", "bar.warp.sync -1;"


def only(register, value, body, label):
    """`body` for those whose register has a value; the others go on behind it."""
    return f"setp.ne.u32 %p9, {register}, {value}; @%p9 bra {label};\n{body}\n{label}:\n"


def findings(body, block=64, **options):
    """Kinds and instructions of what four orders find."""
    out = []
    for seed in range(4):
        args = [np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)]
        report = run(IDS + body + "\nret;", args, block=block, variables=SHARED, seed=seed, **options)
        out.append([(f.kind, f.instruction, f.message) for f in report.findings])
    return out


def judged(body, order, said="", block=64, **options):
    """With `order` for ORDER nothing is found, without it a race is, in every order, one finding that says so."""
    right = findings(body.replace("ORDER", order), block, **options)
    assert right == [[]] * 4, right
    wrong = findings(body.replace("ORDER", ""), block, **options)
    assert all(any(kind == "race" and said in message for kind, _, message in found) for found in wrong), wrong


@pytest.mark.parametrize("writer", [0, 7, 31])
@pytest.mark.parametrize("read", ["ld.shared.b32 %r5, [sm+16];", "ld.shared.b8 %h5, [sm+17];", "ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [sm+16];"])
def test_a_lane_writes_what_all_lanes_have_read(read, writer):
    """It has read last itself, or first: that the others have too is not forgotten."""
    body = FILL + only("%r2", 0, f"{read} ORDER\n" + only("%r1", writer, "st.shared.b32 [sm+16], 99;", "B"), "A")
    judged(body, WARP, "another lane of this warp reads")


@pytest.mark.parametrize("again", ["ld.shared.b32 %r6, [sm+16];", "ld.shared.b8 %h6, [sm+16];"])
def test_a_lane_reads_again_before_it_writes(again):
    """Lane 3 has read, then lane 4 again, which writes."""
    first = only("%r1", 3, "ld.shared.b32 %r5, [sm+16];", "B")
    body = FILL + only("%r2", 0, first + "ORDER\n" + only("%r1", 4, f"{again} st.shared.b32 [sm+16], 99;", "C"), "A")
    judged(body, WARP, "another lane of this warp reads")


def test_another_warp_reads_between():
    """Lane 3 of warp 0 reads, then warp 1, which meets warp 0's lane 4 alone; that lane reads and writes."""
    late = only("%r1", 4, "ld.shared.b32 %r6, [sm+16]; st.shared.b32 [sm+16], 99;", "B")
    body = FILL + f"ld.shared.b32 %r5, [sm+16]; {SYNC}" + only("%r2", 1, "ld.shared.b32 %r7, [sm+16];", "E")
    body += only("%r2", 0, only("%r1", 3, "ld.shared.b32 %r5, [sm+20];", "D") + "ORDER\n" + late.replace("+16", "+20"), "A")
    judged(body, WARP, "another lane of this warp reads")


def test_a_lane_that_alone_has_read_may_write():
    body = FILL + "ld.shared.b32 %r5, [%r4]; ld.shared.b32 %r5, [%r4]; st.shared.b32 [%r4], 99;"
    assert findings(body) == [[]] * 4


NEXT = "xor.b32 %r6, %r1, 1; xor.b32 %r7, %r4, 4;\n"
"""%r7: the word of the lane next to it."""


@pytest.mark.parametrize("between", [
    "fence.acq_rel.cta;", "fence.sc.gpu;", "membar.cta;", "shfl.sync.idx.b32 %r9, %r0, 0, 31, -1;", "vote.sync.ballot.b32 %r9, %p9, -1;",
    "activemask.b32 %r9;", "fence.proxy.async.shared::cta;", "bar.arrive 3, 96;",
])  # fmt: skip
def test_what_orders_no_lanes(between):
    """Fences order what one lane does; lane exchange moves values, arrivals wait for nobody."""
    body = FILL + NEXT + f"add.u32 %r8, %r0, 40; st.shared.b32 [%r4], %r8; {between} ORDER ld.shared.b32 %r9, [%r7];"
    judged(body, WARP, "another lane of this warp wrote")
    body = FILL + NEXT + f"add.u32 %r8, %r0, 40; ld.shared.b32 %r9, [%r7]; {between} ORDER st.shared.b32 [%r4], %r8;"
    judged(body, WARP, "another lane of this warp reads")
    assert findings(body.replace("ORDER", "ld.shared.b32 %r9, [%r4];" + WARP)) == [[]] * 4


@pytest.mark.parametrize("mask", ["0xffff", "0xff00ff00"])
def test_barriers_of_some_lanes(mask):
    """What they order, and what they do not: each lane reads the word of the lane `far` lanes away."""
    lanes = [lane for lane in range(32) if int(mask, 16) >> lane & 1]
    part = f"mov.u32 %r10, {mask}; shr.u32 %r11, %r10, %r1; and.b32 %r11, %r11, 1;\n" + only("%r11", 1, f"bar.warp.sync {mask};", "T")
    read = "xor.b32 %r6, %r1, FAR; and.b32 %r7, %r2, 1; shl.b32 %r7, %r7, 5; add.u32 %r7, %r7, %r6; shl.b32 %r7, %r7, 2; add.u32 %r7, %r3, %r7;"
    read += "setp.ne.u32 %p8, %r11, 1; @%p8 bra R; ld.shared.b32 %r9, [%r7]; R:\n"
    inside = 1 if mask == "0xffff" else 16
    outside = 16 if mask == "0xffff" else 8
    assert all((lane ^ inside in lanes) and (lane ^ outside not in lanes) for lane in lanes)
    store = FILL + "add.u32 %r8, %r0, 40; st.shared.b32 [%r4], %r8;\n"
    assert findings(store + part + read.replace("FAR", str(inside))) == [[]] * 4
    for found in findings(store + part + read.replace("FAR", str(outside))):
        assert found and all(kind == "race" and "another lane" in message for kind, _, message in found)
    judged(store + part + "ORDER\n" + read.replace("FAR", str(outside)), WARP)
    # and the other way round: they read, meet, and write
    swap = store + WARP + "ld.shared.b32 %r9, [%r7]; add.u32 %r8, %r0, 70;\n" + part + "setp.ne.u32 %p8, %r11, 1; @%p8 bra R; st.shared.b32 [%r4], %r8; R:\n"
    place = "xor.b32 %r6, %r1, FAR; and.b32 %r7, %r2, 1; shl.b32 %r7, %r7, 5; add.u32 %r7, %r7, %r6; shl.b32 %r7, %r7, 2; add.u32 %r7, %r3, %r7;\n"
    assert findings(place.replace("FAR", str(inside)) + swap) == [[]] * 4
    assert all(found for found in findings(place.replace("FAR", str(outside)) + swap))


def test_tiles_of_a_warp_meet_one_after_the_other():
    """Lanes 0 to 7 meet 8 to 15, then 8 to 15 meet 16 to 23: the last know what the first did, not the other way round."""
    step = "setp.ge.u32 %p1, %r1, {0}; @%p1 bra L{0}; setp.lt.u32 %p1, %r1, {1}; @%p1 bra L{0}; bar.warp.sync {2}; L{0}:\n"
    meet = step.format(16, 0, 0xFFFF) + step.format(24, 8, 0xFFFF00)
    body = FILL + "add.u32 %r8, %r0, 40; st.shared.b32 [%r4], %r8;\n" + meet
    assert findings(body + only("%r1", 20, "ld.shared.b32 %r9, [%r4-80];", "E")) == [[]] * 4
    assert all(found for found in findings(body + only("%r1", 0, "ld.shared.b32 %r9, [%r4+80];", "E")))


def test_a_barrier_that_a_named_lane_does_not_come_to():
    found = findings("setp.gt.u32 %p1, %r1, 15; @%p1 bra E; bar.warp.sync -1; E:")
    assert all([kind for kind, _, _ in f] == ["barrier-divergence"] for f in found)


NAMED = FILL + """setp.eq.u32 %p1, %r2, 2; @%p1 bra THIRD;
add.u32 %r8, %r0, 40; st.shared.b32 [%r4], %r8;
bar.sync 1, 64;
xor.b32 %r7, %r4, 128; ld.shared.b32 %r9, [%r7];
bra E;
THIRD: ORDER
ld.shared.b32 %r9, [sm];
E: LAST"""


def test_named_barriers_order_those_who_come():
    """Warps 0 and 1 meet at barrier 1; warp 2 does not and reads what they write."""
    right, wrong = NAMED.replace("ORDER", "bar.sync 2, 96;").replace("bra E", "bar.arrive 2, 96; bra E"), NAMED.replace("ORDER", "")
    right, wrong = right.replace("LAST", ""), wrong.replace("LAST", "")
    assert findings(right, block=96) == [[]] * 4
    assert all(any(kind == "race" for kind, _, _ in found) for found in findings(wrong, block=96))
    # who only arrives does not know what the others have done
    late = right.replace("bar.arrive 2, 96;", "bar.arrive 2, 96; st.shared.b32 [sm], 7;")
    assert all(any(kind == "race" for kind, _, _ in found) for found in findings(late, block=96))


def test_a_named_barrier_is_used_again_by_others():
    """Warps 0 and 1 meet at barrier 1, then warps 2 and 3 do: these learn nothing of those."""
    body = FILL + """setp.gt.u32 %p1, %r2, 1; @%p1 bra LATE;
    add.u32 %r8, %r0, 40; st.shared.b32 [%r4], %r8; bar.sync 1, 64; bar.arrive 2, 128; bra E;
    LATE: TURN
    bar.sync 1, 64; ld.shared.b32 %r9, [%r4-256];
    E:"""
    assert findings(body.replace("TURN", "bar.sync 2, 128;"), block=128) == [[]] * 4
    # warp 2 and 3 wait for a number that says that the others are through, and do not acquire it
    spin = "W: ld.volatile.global.b32 %r12, [%d1]; setp.eq.u32 %p2, %r12, 0; @%p2 bra W;"
    told = body.replace("bar.arrive 2, 128;", "st.volatile.global.b32 [%d1], 1;").replace("TURN", spin)
    assert all(any(kind == "race" for kind, _, _ in found) for found in findings(told, block=128))


@pytest.mark.parametrize("change", ["red.shared.add.u32 [sm+16], 1;", "atom.shared.exch.b32 %r9, [sm+16], 7;", "red.shared.add.u64 [sm+16], 1;"])
def test_atomics_and_ordinary_accesses(change):
    """A read before, a read behind, a write before, a write behind; by another warp or another lane."""
    change = change.replace("], 1;", "], %d9;") if "u64" in change else change
    for register, here, there, order, said in (("%r2", 0, 1, SYNC, "another warp"), ("%r1", 3, 4, WARP, "another lane of this warp")):
        begin = FILL + "mov.u64 %d9, 1; mov.u32 %r8, 77;\n"
        for plain in ("ld.shared.b32 %r6, [sm+16];", "st.shared.b32 [sm+16], %r8;", "ld.shared.b8 %h6, [sm+18];"):
            one = only("%r1", 4, plain, "P") if register == "%r2" else plain
            for before, after in ((one, change), (change, one)):
                body = only(register, here, before, "A") + "ORDER\n" + only(register, there, after, "B")
                judged(begin + (body if register == "%r2" else only("%r2", 0, body, "W")), order, said)


def test_the_last_of_many_that_add_reads():
    """The others add in the same instruction, but not before it for all that is known."""
    for register, order in (("%r2", SYNC), ("%r1", WARP)):
        add = "red.shared.add.u32 [sm+16], 1;" if register == "%r2" else only("%r2", 0, "red.shared.add.u32 [sm+16], 1;", "F")
        plain = only("%r2", 1 if register == "%r2" else 0, only("%r1", 31, "ld.shared.b32 %r6, [sm+16];", "P"), "Q")
        judged(FILL + add + "ORDER\n" + plain, order, "changes atomically")
        judged(FILL + add + "ORDER\n" + plain.replace("ld.shared.b32 %r6, [sm+16]", "st.shared.b32 [sm+16], 7"), order)


def test_values_that_several_wrote():
    """Warps 0 and 1 write one value: nobody minds who comes last, whoever reads. Who writes another must know of both."""
    both = FILL + "setp.gt.u32 %p5, %r2, 1; @%p5 bra N; st.shared.b32 [sm+16], 500; N:\n"
    assert findings(both + only("%r2", 1, "ld.shared.b32 %r6, [sm+16];", "A")) == [[]] * 4
    for last in (0, 1):
        other = only("%r2", last, only("%r1", 5, "st.shared.b32 [sm+16], 9;", "B"), "C")
        judged(both + "ORDER\n" + other, SYNC, block=96)
    # the same, one warp after the other: warp 2 meets the second alone
    turns = FILL + only("%r2", 0, "st.shared.b32 [sm+16], 500;", "A") + "bar.sync 0; BOTH\n" + only("%r2", 1, "st.shared.b32 [sm+16], 500; bar.arrive 1, 64;", "B")
    turns = turns.replace("bar.sync 0; BOTH", "ORDER") + only("%r2", 2, "bar.sync 1, 64; " + only("%r1", 5, "st.shared.b32 [sm+16], 9;", "D"), "C")
    judged(turns, SYNC, "also wrote", block=96)


def test_three_warps_write_one_value():
    body = FILL + "".join(only("%r2", w, "st.shared.b32 [sm+16], 500;", f"W{w}") for w in range(3))
    assert findings(body + "bar.sync 0; ld.shared.b32 %r6, [sm+16];", block=96) == [[]] * 4


FLAG = {"global": "[%d1]", "shared": "[sm+512]"}


@pytest.mark.parametrize("data", ["global", "shared"])
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("scope", ["cta", "gpu"])
def test_flags_between_warps(scope, space, data):
    """One lane of warp 0 writes and sets a flag, warp 1 waits for it: in order if the one releases and the other acquires,
    by the access itself or by a fence."""
    place = {"global": "[%d0]", "shared": "[sm]"}[data]
    body = FILL + only("%r0", 0, "st.shared.b32 [sm+512], 0;", "Z") + SYNC
    body += only("%r0", 0, f"st.{data}.b32 {place}, 77; RELEASE st.SET.{scope}.{space}.b32 {FLAG[space]}, 1;", "A")
    body += only("%r2", 1, f"L: ld.GET.{scope}.{space}.b32 %r9, {FLAG[space]}; setp.eq.u32 %p1, %r9, 0; @%p1 bra L; ACQUIRE ld.{data}.b32 %r6, {place};", "B")
    fence = f"fence.acq_rel.{scope};"
    for set_, before, get, behind in itertools.product(("release", "relaxed"), ("", fence), ("acquire", "relaxed"), ("", fence)):
        text = body.replace("SET", set_).replace("GET", get).replace("RELEASE", before).replace("ACQUIRE", behind)
        found = findings(text)
        if (set_ == "release" or before) and (get == "acquire" or behind):
            assert found == [[]] * 4, (set_, before, get, behind, found)
        else:
            assert all(f and all(kind == "race" and f"ld.{data}.b32 %r6" in at for kind, at, _ in f) for f in found), (set_, before, get, behind, found)


def test_a_fence_in_all_threads_then_one_sets_the_flag():
    """Warps 0 and 1 write and fence, meet, and warp 0 sets the flag for warp 2."""
    body = FILL + "setp.eq.u32 %p5, %r2, 2; @%p5 bra WAIT; st.global.b32 [%d2], 9; ORDER bar.sync 1, 64;\n" + only("%r0", 0, "st.relaxed.cta.global.b32 [%d1], 1;", "A")
    body += "bra E; WAIT: L: ld.acquire.cta.global.b32 %r9, [%d1]; setp.eq.u32 %p1, %r9, 0; @%p1 bra L; ld.global.b32 %r6, [%d2+-128]; E:"
    judged(body, "fence.acq_rel.cta;", "another wave wrote", block=96)


COPY = "cp.async.ca.shared.global [%r4], [%d2], 4; cp.async.commit_group;\n"
WAIT = "cp.async.wait_group 0;"


def test_what_a_copy_reads_is_not_written_before_its_wait():
    """By the thread itself, by another lane, by another warp; by this copy's array or through another address."""
    judged(COPY + "ORDER mov.u32 %r8, 7; st.global.b32 [%d2], %r8;\n" + WAIT, WAIT, "reads")
    lane = "xor.b32 %r9, %r0, 1; mul.wide.u32 %d3, %r9, 4; add.s64 %d3, %d0, %d3; add.u32 %r8, %r0, 300;\n"
    other = lane.replace("%r0, 1", "%r0, 32")
    for place in (lane, other):
        judged(place + COPY + f"ORDER {SYNC} st.global.b32 [%d3], %r8;\n" + WAIT, WAIT, "reads")
        judged(place + COPY + f"{WAIT} ORDER st.global.b8 [%d3], %r8;\n", SYNC, block=64) if place is other else None
    # a group that is still under way does not matter to what it does not read
    assert findings(COPY + "st.global.b32 [%d2+512], 7;" + WAIT) == [[]] * 4
