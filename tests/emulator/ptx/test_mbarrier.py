# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""mbarriers: phases, tokens and parities; data handed over through one is no race, through a wrong one it is."""

import numpy as np
import pytest
from ptx_harness import run

VARIABLES = ".shared .align 8 .b64 bar[2];\n.shared .align 16 .b8 sm[256];"
# Warp 0 produces four rounds, warp 1 consumes them: bar[0] is full, bar[1] is empty.
PIPE = """mov.u32 %r0, %tid.x; mov.u32 %r20, bar; add.u32 %r21, %r20, 8; mov.u32 %r22, sm; and.b32 %r2, %r0, 31; shl.b32 %r3, %r2, 2; add.u32 %r23, %r22, %r3;
setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r20], 32; mbarrier.init.shared::cta.b64 [%r21], 32;
READY: bar.sync 0;
mov.u32 %r4, 0; mov.u32 %r1, 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra CONSUME;
PRODUCE: and.b32 %r5, %r4, 1; xor.b32 %r5, %r5, 1;
WAITE: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r21], %r5; @!%p2 bra WAITE;
mad.lo.u32 %r6, %r4, 100, %r2; st.shared.b32 [%r23], %r6; mbarrier.arrive.shared::cta.b64 %d1, [%r20];
add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 4; @%p3 bra PRODUCE; bra END;
CONSUME: and.b32 %r5, %r4, 1;
WAITF: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r20], %r5; @!%p2 bra WAITF;
ld.shared.b32 %r6, [%r23]; add.u32 %r1, %r1, %r6; mbarrier.arrive.shared::cta.b64 _, [%r21];
add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 4; @%p3 bra CONSUME;
END: ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r1; ret;"""


def go(text=PIPE, seed=0, block=64, checks="report"):
    out = np.zeros(block, np.uint32)
    return run(text, [out], block=block, variables=VARIABLES, seed=seed, checks=checks), out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("checks", [False, "report"])
def test_ring_of_one_stage(seed, checks):
    report, out = go(seed=seed, checks=checks)
    assert report.findings == []
    assert out.tolist() == [0] * 32 + [600 + 4 * i for i in range(32)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("change, kinds", [
    (("WAITF: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r20], %r5; @!%p2 bra WAITF;", ""), {"race", "uninitialised-read"}),
    (("WAITE: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r21], %r5; @!%p2 bra WAITE;", ""), {"race", "deadlock"}),
    (("READY: bar.sync 0;", "READY:"), {"race", "uninitialised-read"}),
    (("mbarrier.arrive.shared::cta.b64 %d1, [%r20];", ""), {"deadlock"}),
    (("[%r20], 32;", "[%r20], 33;"), {"deadlock"}),
    (("mbarrier.init.shared::cta.b64 [%r20], 32;", ""), {"uninitialised-read"}),
])  # fmt: skip
def test_defects(change, kinds, seed):
    report, _ = go(PIPE.replace(*change), seed)
    assert {f.kind for f in report.findings} & kinds, [str(f) for f in report.findings]


def test_waiting_for_an_mbarrier_that_nobody_initialises_ends():
    """The finding, and a deadlock at once instead of a loop without end."""
    text = PIPE.replace("mbarrier.init.shared::cta.b64 [%r21], 32;", "")
    report, _ = go(text)
    deadlocks = [f.message for f in report.findings if f.kind == "deadlock" and "%r21" in f.instruction]
    assert deadlocks and "nobody initialises it" in deadlocks[0], [str(f) for f in report.findings]


MADE = """mov.u32 %r0, %tid.x; mov.u32 %r20, bar; mov.u32 %r3, 0; setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [%r20], 2; bar.sync 0;
"""


@pytest.mark.parametrize("code, message", [
    ("mbarrier.arrive.shared.b64 %d1, [%r20], %r3;", "an arrival counts for 1 to 1048575, not 0"),
    ("mbarrier.arrive.noComplete.shared.b64 %d1, [%r20], 2;", ".noComplete must not"),
    ("mbarrier.init.shared.b64 [%r20], 2;", "which is one already"),
    ("st.shared.b32 [%r20+4], 7;", "writes bar+4, where an mbarrier is"),
    ("st.shared.v2.b64 [%r20], {%d1, %d1};", "writes bar, where an mbarrier is"),
    ("atom.shared.add.u32 %r4, [%r20], 1;", "writes bar, where an mbarrier is"),
    ("ld.param.u64 %d0, [p0]; cp.async.ca.shared.global [%r20], [%d0], 8; cp.async.wait_all;", "writes bar, where"),
])  # fmt: skip
def test_what_is_undefined_of_a_living_mbarrier(code, message):
    """PTX ISA: counts are 1 to 2^20 - 1; .noComplete must not complete a phase; a valid mbarrier is invalidated before
    its place is used for anything else, another mbarrier included."""
    on = "; ".join(f"@%p0 {part.strip()}" for part in code.strip(";").split(";"))
    report, _ = go(f"{MADE}mov.u64 %d1, 0; {on}; ret;", block=32)
    (found,) = [f.message for f in report.findings if f.kind != "uninitialised-read"]  # which an atomic is too
    assert message in found


@pytest.mark.parametrize("code", [
    "mbarrier.arrive.noComplete.shared.b64 %d1, [%r20], 1",
    "mbarrier.inval.shared.b64 [%r20]; @%p0 mbarrier.init.shared.b64 [%r20], 2",
    "mbarrier.inval.shared.b64 [%r20]; @%p0 st.shared.b32 [%r20+4], 7",
    "st.shared.b32 [%r20+8], 7",
])  # fmt: skip
def test_what_is_not(code):
    report, _ = go(f"{MADE}@%p0 {code}; ret;", block=32)
    assert report.findings == []


def test_tokens():
    text = """mov.u32 %r0, %tid.x; mov.u32 %r20, bar; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r20], 64; bar.sync 0;
mbarrier.test_wait.parity.shared.b64 %p4, [%r20], 1; selp.u32 %r2, 10, 0, %p4; bar.sync 0;
mbarrier.arrive.shared.b64 %d1, [%r20];
L: mbarrier.test_wait.shared.b64 %p1, [%r20], %d1; @!%p1 bra L;
mbarrier.test_wait.parity.shared.b64 %p2, [%r20], 0; selp.u32 %r1, 1, 0, %p2; add.u32 %r1, %r1, %r2;
ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r1; ret;"""
    report, out = go(text)
    assert report.findings == [] and (out == 11).all()


def test_copies_arrive():
    source, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    text = """mov.u32 %r0, %tid.x; mov.u32 %r20, bar; mov.u32 %r22, sm; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r20], 32; bar.sync 0;
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mul.wide.u32 %d2, %r0, 8; add.s64 %d3, %d0, %d2; shl.b32 %r1, %r0, 3; add.u32 %r2, %r22, %r1;
setp.ge.u32 %p1, %r0, 32; @%p1 bra WAIT; cp.async.ca.shared.global [%r2], [%d3], 8; ARRIVE
WAIT: mbarrier.test_wait.parity.shared.b64 %p2, [%r20], 0; @!%p2 bra WAIT;
and.b32 %r3, %r0, 31; shl.b32 %r3, %r3, 3; add.u32 %r3, %r22, %r3; ld.shared.v2.b32 {%r4, %r5}, [%r3]; add.s64 %d4, %d1, %d2; st.global.v2.b32 [%d4], {%r4, %r5}; ret;"""
    for seed in range(3):
        report = run(
            text.replace("ARRIVE", "cp.async.mbarrier.arrive.noinc.shared.b64 [%r20];"),
            [source, out],
            block=64,
            variables=VARIABLES,
            seed=seed,
        )
        assert report.findings == [] and np.array_equal(out, np.tile(source[:64], 2))
        report = run(
            text.replace("ARRIVE", "mbarrier.arrive.shared.b64 _, [%r20];"),
            [source, out],
            block=64,
            variables=VARIABLES,
            seed=seed,
        )
        assert "missing-wait" in {f.kind for f in report.findings}


@pytest.mark.parametrize("seed", range(4))
def test_mbarriers_that_begin_while_others_wait_at_a_barrier(seed):
    """Warp 0 waits at a named barrier; meanwhile warp 1 makes more mbarriers than there was room for at first."""
    made = "\n".join(f"mbarrier.init.shared::cta.b64 [%r20+{8 * i}], 1;" for i in range(24))
    text = f"""mov.u32 %r0, %tid.x; mov.u32 %r20, bar; mov.u32 %r22, sm; mov.u32 %r1, 7;
setp.ge.u32 %p0, %r0, 32; @%p0 bra MAKE;
bar.sync 1, 64; bra MET;
MAKE: setp.ne.u32 %p1, %r0, 32; @%p1 bra MADE;
{made}
fence.mbarrier_init.release.cluster; st.shared.b32 [%r22], 7;
MADE: bar.sync 1, 64;
MET: ld.shared.b32 %r1, [%r22];
ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r1; ret;"""
    out = np.zeros(64, np.uint32)
    variables = ".shared .align 8 .b64 bar[24];\n.shared .align 16 .b8 sm[256];"
    assert run(text, [out], block=64, variables=variables, seed=seed).findings == []
    assert (out == 7).all()


COUNTS = """mov.u32 %r0, %tid.x; mov.u32 %r20, bar; mov.u32 %r1, 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
mbarrier.init.shared::cta.b64 [%r20], 1;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r20], 48;
mbarrier.arrive.shared::cta.b64 _, [%r20];
mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r20], 0; selp.u32 %r2, 1, 0, %p1; add.u32 %r1, %r1, %r2;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r20], 32;
mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r20], 0; selp.u32 %r2, 2, 0, %p1; add.u32 %r1, %r1, %r2;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r20], 16;
mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r20], 0; selp.u32 %r2, 4, 0, %p1; add.u32 %r1, %r1, %r2;
END: ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r1; ret;"""


@pytest.mark.parametrize("checks", [False, "report"])
def test_bytes_that_threads_count(checks):
    """As the PTX ISA has it: a phase ends when no arrival is pending and the bytes that came are those expected."""
    report, out = go(COUNTS, block=32, checks=checks)
    assert report.findings == [] and out[0] == 4


def test_more_bytes_than_a_phase_counts():
    report, _ = go(COUNTS.replace("], 48;", "], 1048576;"), block=32)
    assert report.findings[0].kind == "hazard" and "more than 1048575" in report.findings[0].message


LIVES = """mov.u32 %r0, %tid.x; mov.u32 %r20, bar; mov.u32 %r1, 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
mov.u64 %d2, bar; cvta.shared.u64 %d2, %d2;
mbarrier.init.b64 [%d2], COUNT; mbarrier.arrive.b64 %d3, [%d2]; mbarrier.inval.b64 [%d2];
AGAIN
mbarrier.arrive.shared::cta.b64 %d3, [%r20];
mbarrier.test_wait.shared::cta.b64 %p1, [%r20], %d3; selp.u32 %r1, 7, 9, %p1;
END: ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r1; ret;"""


def test_mbarriers_that_end():
    """Generic addresses; behind `inval` there is none until the next `init`, which begins with its first phase."""
    again = LIVES.replace("COUNT", "1").replace("AGAIN", "mbarrier.init.shared::cta.b64 [%r20], 1;")
    report, out = go(again, block=32)
    assert report.findings == [] and out[0] == 7
    report, _ = go(LIVES.replace("COUNT", "1").replace("AGAIN", ""), block=32)
    assert report.findings[0].kind == "uninitialised-read" and "no mbarrier has been initialised at bar" in report.findings[0].message


@pytest.mark.parametrize(("count", "fine"), [(1, True), ((1 << 20) - 1, True), (0, False), (1 << 20, False)])
def test_arrivals_that_can_be_counted(count, fine):
    text = LIVES.replace("COUNT", str(count)).replace("AGAIN", "mbarrier.init.shared::cta.b64 [%r20], 1;")
    found = [f.message for f in go(text, block=32)[0].findings if f.kind == "hazard"]
    assert found == [] if fine else any(f"not {count}" in message for message in found), found
