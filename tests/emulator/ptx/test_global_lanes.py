# ruff: noqa: E501 (PTX text reads better in one line)
"""Lanes of one warp in global memory: pairs of kernels with a race and with the meeting that orders the same accesses.

Also here: what one lane's arrival at an mbarrier hands on, in shared and in global memory, and memory that is read through a
cache which sees no writes.
"""

import numpy as np
import pytest
from ptx_harness import run

IDS = """mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5; mov.u32 %r3, sm; shl.b32 %r4, %r0, 2; add.u32 %r4, %r3, %r4;
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d0, %d2; add.u32 %r8, %r0, 40;
xor.b32 %r6, %r0, 1; mul.wide.u32 %d3, %r6, 4; add.s64 %d3, %d0, %d3; mov.u32 %r9, 0;
"""
"""%r0 thread, %r1 lane, %r2 warp, %r3 shared memory, %r4 the thread's word of it, %r8 a number of its own, %d2 its word of the
first array, %d3 the word of the lane next to it."""
SHARED = ".shared .align 16 .b8 sm[1024];"
WARP, CTA = "bar.warp.sync -1;", "bar.sync 0;"


def only(register, value, body, label):
    """`body` for those whose register has a value; the others go on behind it."""
    return f"setp.ne.u32 %p9, {register}, {value}; @%p9 bra {label};\n{body}\n{label}:\n"


def findings(body, block=64, grid=1, **options):
    out = []
    for seed in range(4):
        args = [np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)]
        report = run(IDS + body + "\nret;", args, block=block, grid=grid, variables=SHARED, seed=seed, **options)
        out.append([(f.kind, f.instruction, f.message) for f in report.findings])
    return out


def judged(body, order, said, block=64, **options):
    """With `order` for ORDER nothing is found, without it a race is, whoever runs first, and a finding says so."""
    right = findings(body.replace("ORDER", order), block, **options)
    assert right == [[]] * 4, right
    wrong = findings(body.replace("ORDER", ""), block, **options)
    assert all(any(kind == "race" and said in message for kind, _, message in found) for found in wrong), wrong


ACCESSES = {
    "read": "ld.global.b32 %r9, [%d3];", "byte": "ld.global.b8 %h9, [%d3+1];", "write": "st.global.b32 [%d3], %r8;",
    "add": "red.global.add.u32 [%d3], 1;", "generic": "ld.b32 %r9, [%d3];",
    "copy": "cp.async.ca.shared.global [%r4], [%d3], 4; cp.async.wait_all;",
}  # fmt: skip


@pytest.mark.parametrize("order", [WARP, CTA])
@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES)
def test_behind_a_store(access, order):
    judged(f"st.global.b32 [%d2], %r8; ORDER {access}", order, "another lane of the same wave wrote")


@pytest.mark.parametrize("order", [WARP, CTA])
@pytest.mark.parametrize("access", [ACCESSES[x] for x in ("read", "byte", "generic", "copy")])
def test_in_front_of_a_store(access, order):
    judged(f"{access} ORDER st.global.b32 [%d2], %r8;", order, "another lane of the same wave reads")


@pytest.mark.parametrize("between", [
    "fence.acq_rel.gpu;", "fence.sc.cta;", "membar.cta;", "shfl.sync.idx.b32 %r5, %r0, 0, 31, -1;", "activemask.b32 %r5;",
    "bar.arrive 3, 96;", "cp.async.wait_all;",
])  # fmt: skip
def test_what_orders_no_lanes(between):
    judged(f"st.global.b32 [%d2], %r8; {between} ORDER ld.global.b32 %r9, [%d3];", WARP, "another lane of the same wave wrote")


@pytest.mark.parametrize("writer", [0, 7, 31])
@pytest.mark.parametrize("read", ["ld.global.b32 %r5, [%d0+16];", "ld.global.b8 %h5, [%d0+17];", "ld.global.v4.b32 {%r5, %r6, %r7, %r9}, [%d0+16];"])
def test_a_lane_writes_what_all_lanes_have_read(read, writer):
    """It has read first or last itself: that the others have too is not forgotten."""
    body = only("%r2", 0, f"{read} ORDER\n" + only("%r1", writer, "st.global.b32 [%d0+16], 99;", "B"), "A")
    judged(body, WARP, "another lane of the same wave reads")


def test_lanes_that_read_one_after_the_other():
    """Lane 3 has read, then lane 4, and other warps; lane 4 writes. Reads are looked at between, too."""
    for between in ("", "st.global.b32 [%d1], 7;", CTA):
        first = only("%r1", 3, "ld.global.b32 %r5, [%d0+16];", "B")
        last = only("%r1", 4, "ld.global.b32 %r5, [%d0+16]; st.global.b32 [%d0+16], 99;", "C")
        other = only("%r2", 1, "ld.global.b32 %r5, [%d0+16];", "O") + CTA
        body = other + only("%r2", 0, first + between.replace(CTA, "") + "ORDER\n" + last, "A")
        judged(body, WARP, "another lane of the same wave reads")
    touched = only("%r2", 0, only("%r1", 3, "ld.global.b32 %r5, [%d0+16]; st.global.b32 [%d0+32], 1;", "B") + "ORDER\n" + last, "A")
    judged(touched, WARP, "another lane of the same wave reads")


def test_what_needs_no_meeting():
    """A lane's own places, values that stay, values that all lanes write, atomics and strong accesses among themselves."""
    for body in (
        "ld.global.b32 %r5, [%d2]; st.global.b32 [%d2], %r8; ld.global.b32 %r5, [%d2]; st.global.b32 [%d2], 5;",
        "ld.global.b32 %r5, [%d0]; st.global.b32 [%d0], %r5; ld.global.b32 %r5, [%d0];",
        "st.global.b32 [%d0], 5; ld.global.b32 %r5, [%d0];",
        "red.global.add.u32 [%d0], 1; atom.global.add.u32 %r5, [%d0], 1;",
        "st.relaxed.gpu.global.b32 [%d2], %r8; ld.relaxed.gpu.global.b32 %r5, [%d3];",
    ):
        assert findings(body) == [[]] * 4, body


def test_values_that_several_lanes_wrote():
    """Lanes 0 to 15 write one value: each of them may read it, the others behind a meeting; so may whoever writes another."""
    half = "setp.gt.u32 %p5, %r0, 15; @%p5 bra N; st.global.b32 [%d0], 500; N:\n"
    assert findings(half + "@!%p5 ld.global.b32 %r5, [%d0];", block=32) == [[]] * 4
    judged(half + "ORDER @%p5 ld.global.b32 %r5, [%d0];", WARP, "another lane of the same wave wrote", block=32)
    judged(half + "ORDER\n" + only("%r0", 3, "st.global.b32 [%d0], 9;", "B"), WARP, "another lane of the same wave wrote", block=32)


def test_the_lanes_that_add_and_one_that_reads():
    """Whichever is last: the others have added too."""
    for lane in (0, 13, 31):
        for plain in ("ld.global.b32 %r5, [%d0];", "st.global.b32 [%d0], 500;"):
            body = "red.global.add.u32 [%d0], 1; ORDER\n" + only("%r1", lane, plain, "B")
            judged(body, WARP, "another lane of the same wave wrote", block=32)


@pytest.mark.parametrize("mask, inside, outside", [("0xffff", 1, 16), ("0xff00ff00", 16, 8)])
def test_barriers_of_some_lanes(mask, inside, outside):
    """What they order, and what they do not: each lane reads the word of the lane `far` lanes away."""
    part = f"mov.u32 %r10, {mask}; shr.u32 %r11, %r10, %r1; and.b32 %r11, %r11, 1;\n" + only("%r11", 1, f"bar.warp.sync {mask};", "T")
    read = "xor.b32 %r6, %r0, FAR; mul.wide.u32 %d3, %r6, 4; add.s64 %d3, %d0, %d3; setp.ne.u32 %p8, %r11, 1; @%p8 bra R; ld.global.b32 %r9, [%d3]; R:\n"
    store = "st.global.b32 [%d2], %r8;\n"
    assert findings(store + part + read.replace("FAR", str(inside))) == [[]] * 4
    judged(store + part + "ORDER\n" + read.replace("FAR", str(outside)), WARP, "another lane of the same wave wrote")


def test_a_lock_that_lanes_take_in_turn():
    """A lane that acquires what another of its warp released knows what that one did."""
    body = """mov.u32 %r12, 0; TRY: atom.ACQUIRE.gpu.global.cas.b32 %r5, [%d1], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra NEXT;
    ld.global.b32 %r6, [%d0]; add.u32 %r6, %r6, 1; st.global.b32 [%d0], %r6; mov.u32 %r12, 1; st.RELEASE.gpu.global.b32 [%d1], 0;
    NEXT: setp.eq.u32 %p2, %r12, 0; @%p2 bra TRY;"""
    assert findings(body.replace("ACQUIRE", "acquire").replace("RELEASE", "release"), block=32) == [[]] * 4
    for found in findings(body.replace("ACQUIRE", "relaxed").replace("RELEASE", "relaxed"), block=32):
        assert any("another lane of the same wave" in message for _, _, message in found), found


def told(order, fence="fence.acq_rel.gpu;", scope="gpu", grid=2):
    """CTA 0, one warp, stores and fences in all lanes, then lane 0 sets a flag that CTA 1 waits for before it reads."""
    body = f"""mov.u32 %r13, %ctaid.x; setp.ne.u32 %p1, %r13, 0; @%p1 bra WAIT;
    st.global.b32 [%d2], %r8; {order.replace("FENCE", fence)} @%p7 bra E; st.relaxed.{scope}.global.b32 [%d1], 1; bra E;
    WAIT: ld.acquire.{scope}.global.b32 %r12, [%d1]; setp.eq.u32 %p2, %r12, 0; @%p2 bra WAIT; ld.global.b32 %r5, [%d2+OFFSET]; E:"""
    return "setp.ne.u32 %p7, %r1, 0;" + body, grid


@pytest.mark.parametrize("order, fine", [
    (f"{WARP} FENCE", True), (f"FENCE {WARP}", True), (f"{CTA} FENCE", True), ("FENCE", False), (WARP, False),
    (f"FENCE {WARP} st.global.b32 [%d2], 5;", False), (f"{WARP} st.global.b32 [%d2], 5; FENCE", False),
    ("@%p7 bra W; FENCE W:", False), (f"{WARP} @%p7 bra W; FENCE W:", True), (f"@!%p7 bra W; FENCE W: {WARP}", False),
])  # fmt: skip
def test_a_lane_hands_on_what_it_has_fenced(order, fine):
    """Its own fence speaks for what it did and for those whom it had met before; others' fences from when it has met them."""
    body, grid = told(order)
    found = findings(body.replace("+OFFSET", ""), block=32, grid=grid)
    if fine:
        assert found == [[]] * 4, found
    else:
        assert all(any("another workgroup wrote" in message for _, _, message in f) for f in found), found


def test_what_a_lane_did_before_its_own_fence():
    """And no more: the word of lane 0 may be read, of lane 1 not."""
    body, grid = told("FENCE")
    first = body.replace("[%d2+OFFSET]", "[%d0]")
    assert findings(first, block=32, grid=grid) == [[]] * 4
    second = findings(body.replace("[%d2+OFFSET]", "[%d0+4]"), block=32, grid=grid)
    assert all(any("another workgroup wrote" in message for _, _, message in f) for f in second)


def test_readers_of_one_domain_all_count():
    """Eight warps read; two of them meet the writer, an odd one does not, however many read after it."""
    for late in range(7):
        mine = f"setp.eq.u32 %p1, %r2, {late};\n"
        read = "ld.global.b32 %r5, [%d0+12];"
        # The late warp reads first, the others behind a flag that tells them of nothing; all others meet the writer.
        first = "@!%p1 bra WAIT; " + read + " st.volatile.global.b32 [%d1], 1; ORDER bra E;\n"
        then = "WAIT: ld.volatile.global.b32 %r12, [%d1]; setp.eq.u32 %p2, %r12, 0; @%p2 bra WAIT;" + read + " bar.sync 1, 224; ORDER_2\n"
        write = only("%r0", 224, "st.global.b32 [%d0+12], 99;", "W") + "E:"
        body = mine + first + then + write
        right = body.replace("ORDER_2", "bar.sync 2, 256;").replace("ORDER", "bar.arrive 2, 256;")
        assert findings(right, block=256) == [[]] * 4
        for found in findings(body.replace("ORDER_2", "").replace("ORDER", ""), block=256):
            assert any("overwrites what another wave reads" in message for _, _, message in found), found


ARRIVE = "mbarrier.arrive.shared.b64 %d9, [sm+512];"
WAIT = "L: mbarrier.test_wait.parity.shared.b64 %p6, [sm+512], 0; @!%p6 bra L;"


def handed(write, before, arrivals, read):
    """Warp 0 writes and arrives, warp 1 waits and reads. `arrivals`: how many lanes of warp 0 arrive."""
    who = f"setp.lt.u32 %p4, %r1, {arrivals}; @%p4 {ARRIVE}\n"
    begin = only("%r0", 0, f"mbarrier.init.shared.b64 [sm+512], {arrivals};", "I") + CTA
    return begin + only("%r2", 0, f"{write} {before}\n{who}", "A") + only("%r2", 1, f"{WAIT} {read}", "B")


PLACES = {
    "shared": ("st.shared.b32 [%r4], %r8;", "ld.shared.b32 %r5, [%r4-128];", "st.shared.b32 [%r4-128], %r8;", "ld.shared.b32 %r5, [%r4];"),
    "global": ("st.global.b32 [%d2], %r8;", "ld.global.b32 %r5, [%d2-128];", "st.global.b32 [%d2-128], %r8;", "ld.global.b32 %r5, [%d2];"),
}  # fmt: skip


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("space", PLACES)
def test_a_lane_that_arrives_speaks_for_itself(space, target):
    """Of what the others did it hands on what it met them behind."""
    store, load, again, before = PLACES[space]
    fill = "st.shared.b32 [%r4], %r0;" + CTA
    for first, second in ((store, load), (store, again), (before, again)):
        judged(fill + handed(first, "ORDER", 1, second), WARP, "another wa", target=target)
        judged(fill + handed(first, "ORDER", 7, second), WARP, "another wa", target=target)
        assert findings(fill + handed(first, "", 32, second), target=target) == [[]] * 4, "all lanes arrive"
        own = only("%r1", 0, first, "F"), only("%r1", 0, second, "S")
        assert findings(fill + handed(own[0], "", 1, own[1]), target=target) == [[]] * 4, "what it did itself"


@pytest.mark.parametrize("space", PLACES)
def test_a_lane_that_arrives_speaks_for_those_it_met(space):
    """Lanes 0 to 15 met before lane 0 arrives, the others did not."""
    store, load, _, _ = PLACES[space]
    half = "setp.lt.u32 %p3, %r1, 16; @!%p3 bra H; bar.warp.sync 0xffff; H:"
    near, far = (f"setp.{which}.u32 %p5, %r1, 16; @%p5 {load}" for which in ("lt", "ge"))
    assert findings("st.shared.b32 [%r4], %r0;" + CTA + handed(store, half, 1, near)) == [[]] * 4
    judged("st.shared.b32 [%r4], %r0;" + CTA + handed(store, half + " ORDER", 1, far), WARP, "another wa")


def test_lanes_that_arrive_one_by_one():
    """Each speaks for itself; together for the warp, and for what several of them have read."""
    each = "".join(only("%r1", lane, ARRIVE, f"X{lane}") for lane in range(32))
    begin = "st.shared.b32 [%r4], %r0; " + only("%r0", 0, "mbarrier.init.shared.b64 [sm+512], COUNT;", "I") + CTA
    body = begin + only("%r2", 0, f"ld.shared.b32 %r5, [sm+128]; st.shared.b32 [%r4], %r8; {each}", "A")
    body += only("%r2", 1, f"{WAIT} ld.shared.b32 %r5, [%r4-128]; " + only("%r1", 0, "st.shared.b32 [%r4], 77;", "C"), "B")
    assert findings(body.replace("COUNT", "32")) == [[]] * 4
    less = body.replace("COUNT", "31").replace(only("%r1", 31, ARRIVE, "X31"), "")
    assert all(any("another warp wrote" in message for _, _, message in found) for found in findings(less))


def test_what_waiters_of_a_lane_tell_others():
    """Warp 1 waits for lane 0 of warp 0 and meets warp 2, which reads what that lane wrote, not what lane 1 did."""
    begin = "st.shared.b32 [%r4], %r0; " + only("%r0", 0, "mbarrier.init.shared.b64 [sm+512], 1;", "I") + CTA
    body = begin + only("%r2", 0, "st.shared.b32 [%r4], %r8; ORDER " + only("%r1", 0, ARRIVE, "Y"), "A")
    body += only("%r2", 1, f"{WAIT} bar.sync 1, 64;", "B") + only("%r2", 2, "bar.sync 1, 64; ld.shared.b32 %r5, [sm+WORD];", "C")
    assert findings(body.replace("ORDER", "").replace("WORD", "0"), block=96) == [[]] * 4
    judged(body.replace("WORD", "4"), WARP, "another warp wrote", block=96)


def test_loads_that_rest_on_memory_that_stays():
    """`.nc`: nothing of the launch writes it, before or after, in order or not, here or in another CTA."""
    load, store = "ld.global.nc.b32 %r5, [%d2];", "st.global.b32 [%d2], %r8;"
    for order in (CTA, ""):
        for body in (f"{store} {order} {load}", f"{load} {order} {store}"):
            assert all(any(".nc" in message for _, _, message in found) for found in findings(body))
            assert findings(body.replace(".nc", "")) == [[]] * 4
    assert findings(load + "st.global.b32 [%d2], %r5;") == [[]] * 4, "what it was"
    assert findings(load + "st.global.b32 [%d1], 7;") == [[]] * 4, "another array"
    add = f"{load} red.global.add.u32 [%d2], 1;"
    assert all(any(".nc" in message for _, _, message in found) for found in findings(add))


def test_constants_that_the_launch_writes():
    """Through the generic address of a variable that constant loads read."""
    load, store = "ld.const.b32 %r5, [table];", "mov.u64 %d4, table; cvta.const.u64 %d4, %d4; st.b32 [%d4], %r0;"
    variables = SHARED + " .const .align 4 .b32 table[4] = {1, 2, 3, 4};"
    for body in (f"{only('%r0', 0, store, 'A')} {CTA} {load}", f"{load} {CTA} {only('%r0', 5, store, 'A')}"):
        args = [np.zeros(64, np.uint32), np.zeros(64, np.uint32)]
        report = run(IDS + body + "\nret;", args, block=64, variables=variables)
        assert any(f.kind == "race" and "constant" in f.message for f in report.findings), report.findings
    report = run(IDS + load + "\nret;", args, block=64, variables=variables)
    assert not report.findings
