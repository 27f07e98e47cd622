# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Divergence, reconvergence, barriers between groups of warps, calls, and communication through memory."""

import numpy as np
import pytest
from ptx_harness import module, run
from wavedsl.runtime.emulator.ptx import flow as ptx_flow
from wavedsl.runtime.emulator.ptx import parse as ptx_parse
from wavedsl.runtime.emulator.ptx.emulator import run_ptx

OUT = "ld.param.u64 %d50, [p0]; mul.wide.u32 %d51, %r90, 4; add.s64 %d50, %d50, %d51; st.global.b32 [%d50], %r1; ret;"
HEAD = "mov.u32 %r0, %tid.x; mov.u32 %r91, %ctaid.x; mov.u32 %r92, %ntid.x; mad.lo.u32 %r90, %r91, %r92, %r0;\n"


def program(text, threads=64, grid=1, seed=0, **kwargs):
    out = np.zeros(threads * grid, np.uint32)
    report = run(HEAD + text + OUT, [out], block=threads, grid=grid, seed=seed, **kwargs)
    return report, out


@pytest.mark.parametrize("checks", [False, "report"])
@pytest.mark.parametrize("seed", range(4))
def test_collatz(seed, checks):
    """A loop whose trip count differs per lane, with a branch inside."""
    text = """add.u32 %r2, %r90, 1; mov.u32 %r1, 0;
L: setp.le.u32 %p0, %r2, 1; @%p0 bra DONE;
and.b32 %r3, %r2, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra EVEN;
mad.lo.u32 %r2, %r2, 3, 1; bra NEXT;
EVEN: shr.u32 %r2, %r2, 1;
NEXT: add.u32 %r1, %r1, 1; bra L;
DONE:
"""
    report, out = program(text, threads=50, grid=3, seed=seed, checks=checks)
    want = []
    for n in range(1, 151):
        k = 0
        while n > 1:
            n, k = (n // 2 if n % 2 == 0 else 3 * n + 1), k + 1
        want.append(k)
    assert report.findings == [] and out.tolist() == want


@pytest.mark.parametrize("seed", range(4))
def test_nested_divergence_reconverges_before_a_vote(seed):
    text = """and.b32 %r2, %r0, 3; mov.u32 %r1, 0;
setp.lt.u32 %p0, %r2, 2; @!%p0 bra B;
setp.eq.u32 %p1, %r2, 0; @%p1 bra A0; add.u32 %r1, %r1, 1; bra J;
A0: add.u32 %r1, %r1, 10; bra J;
B: setp.eq.u32 %p1, %r2, 2; @%p1 bra B0; add.u32 %r1, %r1, 100; bra J;
B0: add.u32 %r1, %r1, 1000;
J: setp.gt.u32 %p2, %r1, 5; vote.sync.ballot.b32 %r3, %p2, -1; popc.b32 %r4, %r3; add.u32 %r1, %r1, %r4;
"""
    report, out = program(text, seed=seed)
    assert report.findings == []
    assert out.tolist() == [[10, 1, 1000, 100][i % 4] + 24 for i in range(64)]


def test_early_exit_then_barrier():
    """Threads that have ended do not hold up a barrier of the rest."""
    text = "setp.ge.u32 %p0, %r0, 40; @%p0 ret; mov.u32 %r1, 7; bar.sync 0;\n"
    report, out = program(text, threads=128)
    assert report.findings == [] and out.tolist() == [7] * 40 + [0] * 88


@pytest.mark.parametrize("seed", range(6))
def test_producer_and_consumer_warps(seed):
    """Warp roles with named barriers: full (1) and empty (2), arrive on one side and sync on the other."""
    text = """mov.u32 %r10, sm; and.b32 %r2, %r0, 31; shl.b32 %r3, %r2, 2; add.u32 %r11, %r10, %r3; mov.u32 %r4, 0; mov.u32 %r1, 0;
setp.lt.u32 %p0, %r0, 32; @!%p0 bra CONSUME;
P: setp.eq.u32 %p3, %r4, 0; @%p3 bra FIRST; bar.sync 2, 64;
FIRST: mad.lo.u32 %r5, %r4, 100, %r2; st.shared.b32 [%r11], %r5; bar.arrive 1, 64;
add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 4; @%p1 bra P; bra END;
CONSUME: bar.sync 1, 64; ld.shared.b32 %r6, [%r11]; add.u32 %r1, %r1, %r6;
add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 4; @!%p2 bra END; bar.arrive 2, 64; bra CONSUME;
END:
"""
    variables = ".shared .align 16 .b8 sm[128];"
    report, out = program(text, seed=seed, grid=2, variables=variables)
    assert report.findings == []
    want = [0] * 32 + [4 * i + 600 for i in range(32)]
    assert out.tolist() == want * 2
    broken = text.replace("@%p3 bra FIRST; bar.sync 2, 64;", "").replace(
        "bar.arrive 2, 64; bra CONSUME;", "bra CONSUME;"
    )
    kinds = {f.kind for f in program(broken, seed=seed, variables=variables)[0].findings}
    assert kinds & {"race", "deadlock"}


@pytest.mark.parametrize("checks", [False, "report"])
def test_spin_on_a_flag_in_shared_memory(checks):
    """Warp 1 spins until warp 0 has set the flag: warps make progress independently of each other."""
    text = """mov.u32 %r10, sm; mov.u32 %r1, 0; mov.u32 %r4, 0;
setp.eq.u32 %p5, %r0, 0; @%p5 st.shared.b32 [%r10], 0; bar.sync 0;
setp.lt.u32 %p0, %r0, 32; @%p0 bra SET;
SPIN: atom.shared.or.b32 %r2, [%r10], 0; add.u32 %r4, %r4, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra SPIN;
mov.u32 %r1, 9; bra END;
SET: mov.u32 %r5, 0;
W: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 900; @%p2 bra W;
@%p5 atom.shared.exch.b32 %r6, [%r10], 1;
END:
"""
    report, out = program(text, variables=".shared .align 16 .b8 sm[4];", checks=checks)
    assert report.findings == [] and out.tolist() == [0] * 32 + [9] * 32


def test_last_cta_sums_what_all_have_written():
    """Split reduction: each CTA adds to a counter in global memory, the last one finishes."""
    count, partial, total = np.zeros(1, np.uint32), np.zeros(20, np.uint32), np.zeros(1, np.uint32)
    text = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p0, %r0, 0; @%p0 ret;
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2];
mul.wide.u32 %d3, %r1, 4; add.s64 %d3, %d1, %d3; add.u32 %r2, %r1, 1; st.global.b32 [%d3], %r2;
fence.acq_rel.gpu; atom.add.acq_rel.gpu.global.u32 %r3, [%d0], 1; setp.ne.u32 %p1, %r3, 19; @%p1 ret;
mov.u32 %r4, 0; mov.u32 %r5, 0;
L: mul.wide.u32 %d4, %r4, 4; add.s64 %d4, %d1, %d4; ld.global.b32 %r6, [%d4]; add.u32 %r5, %r5, %r6; add.u32 %r4, %r4, 1;
setp.lt.u32 %p2, %r4, 20; @%p2 bra L; st.global.b32 [%d2], %r5; ret;""".replace(
        "atom.add.acq_rel.gpu.global.u32", "atom.acq_rel.gpu.global.add.u32"
    )
    for seed in range(3):
        count[:], total[:] = 0, 0
        assert run(text, [count, partial, total], block=32, grid=20, seed=seed).findings == []
        assert total[0] == 210


def test_barrier_reduction():
    text = """setp.lt.u32 %p0, %r0, 40; bar.red.popc.u32 %r1, 0, %p0;
bar.red.and.pred %p1, 0, %p0; selp.u32 %r2, 1000, 0, %p1; bar.red.or.pred %p2, 0, %p0; selp.u32 %r3, 100, 0, %p2;
add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
"""
    report, out = program(text, grid=3)
    assert report.findings == [] and (out == 140).all()


def test_branch_by_index():
    text = """and.b32 %r2, %r0, 3; mov.u32 %r1, 5;
T: .branchtargets A, B, C;
setp.lt.u32 %p0, %r2, 3; @!%p0 bra D;
brx.idx %r2, T;
A: mov.u32 %r1, 10; bra D;
B: mov.u32 %r1, 11; bra D;
C: mov.u32 %r1, 12;
D:
"""
    report, out = program(text)
    assert report.findings == [] and out.tolist() == [10, 11, 12, 5] * 16


def test_functions_are_inlined():
    text = module(HEAD + """{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r90; call.uni (r), twice, (a); ld.param.b32 %r1, [r]; }
{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call.uni (r), twice, (a); ld.param.b32 %r1, [r]; }
""" + OUT, ".param .u64 p0")  # fmt: skip
    function = """.func (.param .b32 result) twice(.param .b32 x) {
.reg .b32 %a<4>; .reg .pred %p<2>;
ld.param.b32 %a0, [x]; setp.eq.u32 %p0, %a0, 6; @%p0 bra SIX; add.u32 %a1, %a0, %a0; st.param.b32 [result], %a1; ret;
SIX: st.param.b32 [result], 1000; ret;
}
"""
    text = text.replace(".visible .entry", function + ".visible .entry")
    out = np.zeros(32, np.uint32)
    report = run_ptx(text, target="sm_90a", grid=(1,), block=(32,), args=[out], checks="report")
    assert report.findings == []
    twice = [1000 if i == 6 else 2 * i for i in range(32)]
    assert out.tolist() == [1000 if i == 6 else 2 * i for i in twice]


def test_scopes_hide_registers_and_labels():
    text = """mov.u32 %r1, 1;
{ .reg .b32 t; .reg .pred q; setp.lt.u32 q, %r0, 5; mov.u32 t, 3; @q bra L; add.u32 %r1, %r1, t; L: add.u32 %r1, %r1, 10; }
{ .reg .b32 t; .reg .pred q; setp.lt.u32 q, %r0, 9; mov.u32 t, 100; @q bra L; add.u32 %r1, %r1, t; L: add.u32 %r1, %r1, 1000; }
"""
    report, out = program(text)
    assert report.findings == []
    assert out.tolist() == [1011 + 3 * (i >= 5) + 100 * (i >= 9) for i in range(64)]


def test_constant_and_global_variables():
    variables = ".const .align 4 .b32 table[4] = {3, 1, 4, 0x10};\n.global .align 8 .u64 where = table2;\n.global .align 4 .b32 table2[2] = {7, 8};"
    text = """and.b32 %r2, %r0, 3; mov.u64 %d0, table; mul.wide.u32 %d1, %r2, 4; add.s64 %d0, %d0, %d1; ld.const.b32 %r3, [%d0];
ld.const.b32 %r4, [table+8]; mov.u64 %d2, where; ld.global.b64 %d3, [%d2]; ld.global.b32 %r5, [%d3+4];
add.u32 %r1, %r3, %r4; add.u32 %r1, %r1, %r5;
"""
    report, out = program(text, variables=variables)
    assert report.findings == [] and out.tolist() == [15, 13, 16, 28] * 16


def test_generic_addresses():
    text = """.local .align 4 .b8 stack[8]; mov.u32 %r10, sm; cvt.u64.u32 %d0, %r10; cvta.shared.u64 %d1, %d0; mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d1, %d2;
add.u32 %r2, %r0, 5; st.b32 [%d3], %r2; mov.u64 %d4, stack; cvta.local.u64 %d5, %d4; st.b32 [%d5], %r0;
ld.b32 %r3, [%d3]; ld.b32 %r4, [%d5]; add.u32 %r1, %r3, %r4; cvta.to.shared.u64 %d6, %d3; ld.shared.b32 %r5, [%d6]; add.u32 %r1, %r1, %r5;
isspacep.shared %p0, %d3; selp.u32 %r6, 1000, 0, %p0; add.u32 %r1, %r1, %r6; isspacep.local %p0, %d3; selp.u32 %r6, 1000, 0, %p0; add.u32 %r1, %r1, %r6;
setp.lt.u32 %p1, %r0, 8; selp.b64 %d7, %d3, %d5, %p1; ld.b32 %r7, [%d7]; add.u32 %r1, %r1, %r7;
"""
    report, out = program(text, variables=".shared .align 4 .b8 sm[256];")
    assert report.findings == []
    assert out.tolist() == [1000 + 3 * i + 10 + (i + 5 if i < 8 else i) for i in range(64)]


def test_by_value_struct_with_a_dynamic_index():
    out = np.zeros(32, np.uint32)
    data = np.arange(10, 18, dtype=np.uint32).tobytes()
    body = "mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 7; mov.b64 %d0, s; mul.wide.u32 %d1, %r1, 4; add.s64 %d0, %d0, %d1; ld.param.b32 %r2, [%d0];"
    body += "ld.param.u64 %d2, [p0]; mul.wide.u32 %d3, %r0, 4; add.s64 %d2, %d2, %d3; st.global.b32 [%d2], %r2; ret;"
    report = run(body, [np.uint8(3), data, out], params=".param .u8 x, .param .align 16 .b8 s[32], .param .u64 p0")
    assert report.findings == [] and out.tolist() == list(range(10, 18)) * 4


@pytest.mark.parametrize("op, start, values, want", [
    ("add.u32", 5, range(64), 5 + sum(range(64))),
    ("max.s32", 3, [-5, 60, 7] * 21 + [1], 60),
    ("min.s32", 3, [-5, 60, 7] * 21 + [1], 2**32 - 5),
    ("inc.u32", 0, [9] * 64, 64 % 10),
    ("dec.u32", 0, [9] * 64, (-64) % 10),
    ("xor.b32", 1, range(64), 1),
])  # fmt: skip
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_on_one_address(op, start, values, want, space):
    values = np.array(list(values), np.int32).view(np.uint32)
    out = np.full(1, start, np.uint32)
    body = """mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; ld.global.b32 %r1, [%d0]; ld.param.u64 %d2, [p1];
mov.u32 %r10, sm; setp.eq.u32 %p0, %r0, 0; @%p0 ld.global.b32 %r2, [%d2]; @%p0 st.shared.b32 [%r10], %r2; bar.sync 0;
"""
    body += f"red.{space}.{op} [{'%d2' if space == 'global' else '%r10'}], %r1; bar.sync 0;"
    if space == "shared":
        body += "ld.shared.b32 %r3, [%r10]; @%p0 st.global.b32 [%d2], %r3;"
    report = run(body + "ret;", [values, out], block=64, variables=".shared .align 4 .b8 sm[4];")
    assert report.findings == [] and out[0] == want


def test_atomics_return_what_was_there():
    out, counter = np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    body = """mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; ld.param.u64 %d2, [p1];
atom.global.add.u32 %r1, [%d2], 1; st.global.b32 [%d0], %r1; ret;"""
    orders = set()
    for seed in range(3):
        counter[:] = 0
        assert run(body, [out, counter], block=64, seed=seed).findings == []
        assert sorted(out.tolist()) == list(range(64))
        orders.add(tuple(out.tolist()))
    assert len(orders) == 3


def test_compare_and_swap_and_wide_atomics():
    out = np.array([5, 0], np.uint64)
    f = np.zeros(2, np.float32)
    body = """ld.param.u64 %d0, [p0]; atom.global.cas.b64 %d1, [%d0], 5, 77; st.global.b64 [%d0+8], %d1;
ld.param.u64 %d2, [p1]; red.global.add.f32 [%d2], 0f3F800000; red.global.add.noftz.f16x2 [%d2+4], 0x3c004000; ret;"""
    assert run(body, [out, f], block=1).findings == []
    assert out.tolist() == [77, 5] and f[0] == 1
    assert f[1:].view(np.float16).tolist() == [2.0, 1.0]


def test_reconvergence_is_the_post_dominator():
    text = module(
        "setp.eq.u32 %p0, 1, 1;\n@%p0 bra A;\nmov.u32 %r0, 1;\nbra B;\nA: mov.u32 %r0, 2;\nB: mov.u32 %r1, 1;\nret;"
    )
    f = ptx_parse.parse(text).functions["k"]
    flow = ptx_flow.build(f)
    assert flow.blocks[0].reconverge == f.labels["B"]


def test_more_ctas_than_a_batch_and_odd_blocks():
    text = "mov.u32 %r1, %r90;\n"
    report, out = program(text, threads=70, grid=333)
    assert report.findings == [] and np.array_equal(out, np.arange(70 * 333))
    assert report.instructions["ret"] == 333 * 3


def test_three_dimensional_grid():
    out = np.zeros(2 * 3 * 4 * 8, np.uint32)
    body = """mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %nctaid.y;
mad.lo.u32 %r5, %r2, %r4, %r1; mad.lo.u32 %r5, %r5, %r3, %r0; mov.u32 %r6, %tid.x; mov.u32 %r7, %tid.y; mov.u32 %r8, %tid.z; mov.u32 %r9, %ntid.x;
mad.lo.u32 %r7, %r8, 2, %r7; mad.lo.u32 %r6, %r7, %r9, %r6; mad.lo.u32 %r5, %r5, 8, %r6; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r5, 4;
add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r5; ret;"""
    assert run(body, [out], grid=(2, 3, 4), block=(2, 2, 2)).findings == []
    assert np.array_equal(out, np.arange(192))


def test_empty_grid_does_nothing():
    out = np.zeros(1, np.uint32)
    assert run("ld.param.u64 %d0, [p0]; st.global.b32 [%d0], 1; ret;", [out], grid=(0, 1, 1)).instructions == {}
    assert out[0] == 0


def test_addresses_beyond_four_gigabytes():
    """Offsets past 2**31 and 2**32 bytes reach the right element of a large (lazily committed) array."""
    n = (1 << 32) + 4096
    big = np.zeros(n, np.uint8)
    body = f"""ld.param.u64 %d0, [p0]; mov.u64 %d1, {(1 << 32) + 16}; add.s64 %d1, %d0, %d1; st.global.b32 [%d1], 42;
mov.u64 %d1, {(1 << 31) + 8}; add.s64 %d1, %d0, %d1; st.global.b32 [%d1], 43; ret;"""
    assert run(body, [big], block=1).findings == []
    assert big[(1 << 32) + 16] == 42 and big[(1 << 31) + 8] == 43


def test_same_seed_same_run():
    text = HEAD + "mov.u32 %r1, 0;\n" + OUT
    reports = [run(text, [np.zeros(64, np.uint32)], block=64, seed=5) for _ in range(2)]
    assert reports[0].instructions == reports[1].instructions and reports[0].seed == 5


def test_bank_conflicts_are_counted():
    """Stride of one word: none. Stride of 32 words: 31 extra cycles per warp. 16-byte accesses in eighths of a warp: none."""
    for stride, width, extra in ((4, "b32", 0), (128, "b32", 31), (8, "b32", 1), (16, "v4.b32", 0), (32, "v4.b32", 4)):
        value = "{%r5,%r5,%r5,%r5}" if "v4" in width else "%r5"
        body = f"mov.u32 %r0, %tid.x; mov.u32 %r1, sm; mad.lo.u32 %r2, %r0, {stride}, %r1; mov.u32 %r5, 0; st.shared.{width} [%r2], {value}; ret;"
        report = run(body, [], variables=".shared .align 16 .b8 sm[4096];")
        assert report.findings == [] and report.bank_conflicts == extra, (stride, width)


def test_printing_is_skipped_and_assertions_stop():
    text = module(HEAD + """mov.u32 %r1, 4; setp.eq.u32 %p0, %r90, 3; @%p0 bra P; bra Q;
P: { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], 0; st.param.b64 [b], 0; call.uni (r), vprintf, (a, b); ld.param.b32 %r5, [r]; }
Q: setp.gt.u32 %p1, %r90, LIMIT; @!%p1 bra S;
{ .param .b64 a; st.param.b64 [a], 0; call.uni __assertfail, (a); }
S:
""" + OUT, ".param .u64 p0")  # fmt: skip
    text = text.replace(
        ".visible .entry",
        ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n.extern .func __assertfail (.param .b64 a);\n.visible .entry",
    )
    out = np.zeros(32, np.uint32)
    report = run_ptx(text.replace("LIMIT", "31"), target="sm_90a", grid=(1,), block=(32,), args=[out], checks="report")
    assert report.findings == [] and (out == 4).all()
    report = run_ptx(text.replace("LIMIT", "20"), target="sm_90a", grid=(1,), block=(32,), args=[out], checks="report")
    assert [f.kind for f in report.findings] == ["assertion"] and report.findings[0].lane == 21


@pytest.mark.parametrize("seed", range(2))
def test_two_warps_spin_for_long(seed):
    """Thousands of turns of groups that wait for each other do not pile up."""
    text = """mov.u32 %r10, sm; mov.u32 %r1, 0; setp.eq.u32 %p5, %r0, 0; @%p5 st.shared.b32 [%r10], 0; bar.sync 0;
shr.u32 %r3, %r0, 5; mov.u32 %r4, 0;
SPIN: atom.shared.or.b32 %r2, [%r10], 0; and.b32 %r5, %r2, 1; setp.ne.u32 %p1, %r5, %r3; @%p1 bra SPIN;
mov.u32 %r6, 0;
W: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 700; @%p2 bra W;
and.b32 %r7, %r0, 31; setp.eq.u32 %p3, %r7, 0; @%p3 atom.shared.add.u32 %r8, [%r10], 1;
add.u32 %r4, %r4, 1; setp.lt.u32 %p4, %r4, 2; @%p4 bra SPIN;
mov.u32 %r1, %r4;
"""
    report, out = program(text, seed=seed, variables=".shared .align 16 .b8 sm[4];")
    assert report.findings == [] and (out == 2).all()


@pytest.mark.parametrize("seed", range(3))
def test_data_handed_over_through_a_flag(seed):
    """A volatile or atomic flag orders the data before it; a plain one does not."""
    text = """mov.u32 %r10, sm; and.b32 %r2, %r0, 31; shl.b32 %r3, %r2, 2; add.u32 %r11, %r10, %r3; setp.eq.u32 %p5, %r2, 0;
setp.eq.u32 %p6, %r0, 0; @%p6 st.volatile.shared.b32 [%r10+128], 0; bar.sync 0; mov.u32 %r1, 0;
setp.ge.u32 %p0, %r0, 32; @%p0 bra READ;
add.u32 %r4, %r2, 7; st.shared.b32 [%r11], %r4; membar.cta; @%p5 st.volatile.shared.b32 [%r10+128], 1; bra END;
READ: ld.volatile.shared.b32 %r5, [%r10+128]; setp.eq.u32 %p1, %r5, 0; @%p1 bra READ; membar.cta; ld.shared.b32 %r1, [%r11];
END:
"""
    variables = ".shared .align 16 .b8 sm[132];"
    report, out = program(text, seed=seed, variables=variables)
    assert report.findings == [] and out.tolist() == [0] * 32 + list(range(7, 39))
    report, _ = program(text.replace("volatile.", ""), seed=seed, variables=variables)
    assert "race" in {f.kind for f in report.findings}


def test_atomic_on_shared_memory_that_nothing_has_written():
    report, _ = program(
        "mov.u32 %r10, sm; mov.u32 %r1, 0; red.shared.add.u32 [%r10], 1; ", variables=".shared .align 16 .b8 sm[4];"
    )
    assert [f.kind for f in report.findings] == ["uninitialised-read"]


def test_float_sums_round_one_after_another():
    values = np.array([1e8, 1, 1, 1, -1e8, 3, 2**-30, 5] * 8, np.float32)
    out, seen = np.zeros(1, np.float32), np.zeros(64, np.float32)
    body = """mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2]; mul.wide.u32 %d3, %r0, 4;
add.s64 %d0, %d0, %d3; add.s64 %d2, %d2, %d3; ld.global.f32 %f1, [%d0]; atom.global.add.f32 %f2, [%d1], %f1; st.global.f32 [%d2], %f2; ret;"""
    run(body, [values, out, seen], block=64, checks=False)
    total = np.float32(0)
    for v, s in zip(values, seen):
        assert s == total
        total = np.float32(total + v)
    assert out[0] == total


@pytest.mark.parametrize("space, flushed", [("global", True), ("shared", False)])
@pytest.mark.parametrize("lanes", [1, 32])
def test_float_atomics_flush_denormals_in_global_memory_alone(space, flushed, lanes):
    """As an H200 does (benchmarks/gpu_rows.py)."""
    place = "%d0" if space == "global" else "%r1"
    text = f"""ld.param.u64 %d0, [p0]; mov.u32 %r1, sm; ld.global.f32 %f1, [%d0+4]; ld.global.f32 %f2, [%d0];
mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.f32 [%r1], %f2; bar.sync 0;
atom.{space}.add.f32 %f3, [{place}], %f1; bar.sync 0; @%p0 ld.{space}.f32 %f4, [{place}]; @%p0 st.global.f32 [%d0+8], %f4; ret;"""
    least = np.float32(2.0**-149)
    for start, step in ((least, least), (-least, -least), (np.float32(2.0**-126), -least), (np.float32(1), least)):
        memory = np.array([start, step, 7], np.float32)
        run(text, [memory], block=lanes, variables=".shared .align 4 .b8 sm[4];")
        want = np.float32(start)
        for _ in range(lanes):
            want = np.float32(want + step)
        if flushed:
            want = np.copysign(np.float32(0), start) if abs(start) == least else start
        assert memory[2] == want and np.signbit(memory[2]) == np.signbit(want), (start, step, memory[2], want)
