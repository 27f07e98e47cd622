# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Each kind of finding, seeded into text that is otherwise right, is reported at the right line; the right text has none."""

import itertools

import numpy as np
import pytest
from ptx_harness import module, run
from wavedsl.ir.errors import EmulationError, LaunchError
from wavedsl.runtime.emulator.ptx.emulator import run_ptx

SHARED = ".shared .align 16 .b8 sm[1024];"
# Thread t stages its element through shared memory and reads the element of thread (t + 32) % 64, another warp's.
EXCHANGE = """mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [p0];
mul.wide.u32 %d1, %r0, 4;
add.s64 %d2, %d0, %d1;
ld.global.b32 %r1, [%d2];
mov.u32 %r2, sm;
shl.b32 %r3, %r0, 2;
add.u32 %r4, %r2, %r3;
st.shared.b32 [%r4], %r1;
bar.sync 0;
add.u32 %r5, %r0, 32;
and.b32 %r5, %r5, 63;
shl.b32 %r6, %r5, 2;
add.u32 %r7, %r2, %r6;
ld.shared.b32 %r8, [%r7];
ld.param.u64 %d3, [p1];
add.s64 %d4, %d3, %d1;
st.global.b32 [%d4], %r8;
ret;"""


def exchange(text=EXCHANGE, seed=0, block=64, n=64):
    source, out = np.arange(n, dtype=np.uint32), np.zeros(n, np.uint32)
    return run(text, [source, out], block=block, variables=SHARED, seed=seed), source, out


def one(report, kind, fragment):
    """The report's single finding of this kind names the instruction and its line."""
    found = [f for f in report.findings if f.kind == kind]
    assert found, [str(f) for f in report.findings]
    assert fragment in found[0].instruction, str(found[0])
    assert found[0].line > 0
    return found[0]


def test_right_text_has_none():
    for seed in range(4):
        report, source, out = exchange(seed=seed)
        assert report.findings == []
        assert np.array_equal(out, np.roll(source, -32))


def test_race_read_after_write():
    report, _, _ = exchange(EXCHANGE.replace("bar.sync 0;\n", ""))
    f = one(report, "race", "ld.shared.b32 %r8")
    assert "st.shared.b32 [%r4]" in f.message
    assert f.workgroup == (0, 0, 0) and f.wave in (0, 1)


def test_race_write_after_read():
    again = EXCHANGE.replace("ret;", "st.shared.b32 [%r4], %r8;\nret;")
    one(exchange(again)[0], "race", "st.shared.b32 [%r4], %r8")
    safe = EXCHANGE.replace("ret;", "bar.sync 0;\nst.shared.b32 [%r4], %r8;\nret;")
    assert exchange(safe)[0].findings == []


def test_race_write_after_write():
    text = EXCHANGE.replace("bar.sync 0;", "add.u32 %r5, %r0, 32; and.b32 %r5, %r5, 63; shl.b32 %r6, %r5, 2; add.u32 %r7, %r2, %r6;\n"
                            "st.shared.b32 [%r7], %r0;\nbar.sync 0;")  # fmt: skip
    one(exchange(text)[0], "race", "st.shared.b32 [%r7]")


def test_race_within_one_instruction():
    one(exchange(EXCHANGE.replace("add.u32 %r4, %r2, %r3;", "mov.u32 %r4, sm;").replace("ld.shared.b32 %r8, [%r7]", "ld.shared.b32 %r8, [%r2]"))[0],
        "race", "st.shared.b32 [%r4]")  # fmt: skip


def test_same_value_by_two_warps_is_no_race():
    text = EXCHANGE.replace("shl.b32 %r3, %r0, 2;", "and.b32 %r3, %r0, 31; shl.b32 %r3, %r3, 2;").replace(
        "st.shared.b32 [%r4], %r1", "st.shared.b32 [%r4], 5"
    )
    text = text.replace("and.b32 %r5, %r5, 63;", "and.b32 %r5, %r5, 31;")
    report, _, out = exchange(text)
    assert report.findings == [] and (out == 5).all()


# Lane l stages its element and reads that of lane l ^ 1, of its own warp; then stores over what that lane has read.
LANES = EXCHANGE.replace("add.u32 %r5, %r0, 32;\nand.b32 %r5, %r5, 63;", "xor.b32 %r5, %r0, 1;").replace(
    "bar.sync 0;", "bar.warp.sync -1;"
)
LANES = LANES.replace("ret;", "bar.warp.sync -1;\nst.shared.b32 [%r4], 7;\nret;")


def test_lanes_of_a_warp_wait_for_each_other():
    """What one lane of a warp has written another reads behind a barrier of the warp, or of the workgroup; and likewise
    when it writes where another has read or written."""
    for text in (LANES, LANES.replace("bar.warp.sync -1", "bar.sync 0")):
        report, source, out = exchange(text)
        assert report.findings == [] and np.array_equal(out, source ^ 1)
    first, behind = LANES.split("ld.shared")
    f = one(exchange(first.replace("bar.warp.sync -1;", "") + "ld.shared" + behind)[0], "race", "ld.shared.b32 %r8")
    assert "another lane of this warp" in f.message and "st.shared.b32 [%r4]" in f.message
    f = one(exchange(first + "ld.shared" + behind.replace("bar.warp.sync -1;", ""))[0], "race", "st.shared.b32 [%r4]")
    assert "another lane of this warp reads" in f.message and "ld.shared.b32 %r8" in f.message
    twice = first + "st.shared.b32 [%r7], %r0;\nret;"
    assert exchange(twice)[0].findings == []
    f = one(exchange(first.replace("bar.warp.sync -1;", "") + "st.shared.b32 [%r7], %r0;\nret;")[0], "race", "[%r7]")
    assert "overwrites what another lane of this warp wrote" in f.message


# Lanes l and l ^ 1 store the same value to one place, and read the place of the next two lanes.
SHARED_PLACE = EXCHANGE.replace("shl.b32 %r3, %r0, 2;", "shr.u32 %r3, %r0, 1; shl.b32 %r3, %r3, 2;").replace(
    "add.u32 %r5, %r0, 32;\nand.b32 %r5, %r5, 63;", "shr.u32 %r5, %r0, 1; xor.b32 %r5, %r5, 1;"
)
SHARED_PLACE = SHARED_PLACE.replace("st.shared.b32 [%r4], %r1", "st.shared.b32 [%r4], 5").replace(
    "bar.sync 0;", "bar.warp.sync -1;"
)


def test_what_several_lanes_wrote_is_not_known_to_the_others():
    """A place that several lanes of one instruction write belongs to these alone until a barrier: each may read what it
    has written itself, another lane may not, nor may any of them write another value there."""
    report, _, out = exchange(SHARED_PLACE)
    assert report.findings == [] and (out == 5).all()
    without = SHARED_PLACE.replace("bar.warp.sync -1;", "")
    f = one(exchange(without)[0], "race", "ld.shared.b32 %r8")
    assert "reads what another lane of this warp wrote" in f.message and "st.shared.b32 [%r4]" in f.message
    report, _, out = exchange(without.replace("ld.shared.b32 %r8, [%r7]", "ld.shared.b32 %r8, [%r4]"))
    assert report.findings == [] and (out == 5).all()
    again = without.replace("ld.shared.b32 %r8, [%r7]", "st.shared.b32 [%r4], 6;\nmov.u32 %r8, 6")
    f = one(exchange(again)[0], "race", "st.shared.b32 [%r4], 6")
    assert "overwrites what another lane of this warp wrote" in f.message


def test_lanes_of_a_warp_that_need_no_barrier():
    """Each its own place; all the same value, of which each reads its own; what atomics add up."""
    alone = LANES.replace("xor.b32 %r5, %r0, 1", "mov.u32 %r5, %r0").replace("bar.warp.sync -1;", "")
    assert exchange(alone)[0].findings == []
    same = alone.replace("shl.b32 %r3, %r0, 2;", "and.b32 %r3, %r0, 32;").replace("shl.b32 %r6, %r5, 2;", "and.b32 %r6, %r5, 32;")
    same = same.replace("st.shared.b32 [%r4], %r1", "st.shared.b32 [%r4], 5").replace("st.shared.b32 [%r4], 7;\n", "")
    report, _, out = exchange(same)
    assert report.findings == [] and (out == 5).all()
    adds = same.replace("st.shared.b32 [%r4], 5;", "st.shared.b32 [%r4], 0;\nbar.warp.sync -1;\nred.shared.add.u32 [%r4], 1;\nred.shared.add.u32 [%r4], 2;\nbar.warp.sync -1;")
    report, _, out = exchange(adds)
    assert report.findings == [] and (out == 96).all()


def test_uninitialised_shared_memory():
    one(exchange(EXCHANGE.replace("st.shared.b32 [%r4], %r1;\n", ""))[0], "uninitialised-read", "ld.shared.b32 %r8")


def test_uninitialised_register():
    f = one(
        exchange(EXCHANGE.replace("ld.global.b32 %r1, [%d2];\n", ""))[0],
        "uninitialised-read",
        "st.shared.b32 [%r4], %r1",
    )
    assert "%r1" in f.message


def test_uninitialised_register_through_arithmetic_names_the_first_reader():
    f = one(exchange(EXCHANGE.replace("shl.b32 %r3, %r0, 2;\n", ""))[0], "uninitialised-read", "add.u32 %r4, %r2, %r3")
    assert "st.shared.b32" in f.message


def test_undefined_value_that_is_only_copied_is_fine():
    text = EXCHANGE.replace("bar.sync 0;", "mov.u32 %r50, %r51;\nadd.u32 %r52, %r50, 1;\nbar.sync 0;")
    assert exchange(text)[0].findings == []


def test_uninitialised_on_one_path_only():
    text = EXCHANGE.replace("ld.global.b32 %r1, [%d2];", "setp.lt.u32 %p0, %r0, 40;\n@%p0 ld.global.b32 %r1, [%d2];")
    f = one(exchange(text)[0], "uninitialised-read", "st.shared.b32 [%r4], %r1")
    assert f.wave == 1 and f.lane == 8
    assert exchange(text.replace("setp.lt.u32 %p0, %r0, 40", "setp.lt.u32 %p0, %r0, 64"))[0].findings == []


def test_uninitialised_predicate():
    text = EXCHANGE.replace("bar.sync 0;", "@%p3 bra NEXT;\nNEXT: bar.sync 0;")
    one(exchange(text)[0], "uninitialised-read", "@%p3 bra NEXT")


def test_out_of_bounds_global():
    f = one(exchange(n=60)[0], "out-of-bounds", "ld.global.b32 %r1")
    assert "`p0`" in f.message and "end" in f.message
    report, _, _ = exchange(EXCHANGE.replace("add.s64 %d4, %d3, %d1;", "sub.s64 %d4, %d3, %d1;"))
    assert "before its start" in one(report, "out-of-bounds", "st.global.b32").message


def test_null_pointer():
    out = np.zeros(4, np.uint32)
    report = run(
        "ld.param.u64 %d0, [p0]; ld.global.b32 %r0, [%d0]; ld.param.u64 %d1, [p1]; st.global.b32 [%d1], %r0; ret;",
        [None, out],
        block=1,
    )
    assert "null pointer" in one(report, "out-of-bounds", "ld.global.b32").message


def test_out_of_bounds_shared():
    report, _, _ = exchange(EXCHANGE.replace("shl.b32 %r3, %r0, 2;", "shl.b32 %r3, %r0, 5;").replace("sm;", "sm;", 1))
    assert "byte 1024 of 1024" in one(report, "out-of-bounds", "st.shared.b32 [%r4]").message
    report, _, _ = exchange(EXCHANGE.replace("add.u32 %r7, %r2, %r6;", "sub.u32 %r7, %r2, 4;"))
    assert "before its start" in one(report, "out-of-bounds", "ld.shared.b32 %r8").message


def test_out_of_bounds_param():
    body = "mov.u32 %r0, %tid.x;\nmov.b64 %d1, p0;\nld.param.b32 %r1, [p0+8];\nret;"
    one(run(body, [np.uint64(1)], block=1), "out-of-bounds", "ld.param.b32")


def test_out_of_bounds_local():
    body = ".local .align 4 .b8 stack[16];\nmov.u32 %r0, stack;\nst.local.b32 [%r0+{}], 1;\nret;"
    assert run(body.format(12), []).findings == []
    one(run(body.format(16), []), "out-of-bounds", "st.local.b32")


def test_uninitialised_local():
    body = (
        ".local .align 4 .b8 stack[16];\nmov.u32 %r0, stack;\nst.local.b32 [%r0], 1;\nld.local.b32 %r1, [%r0+{}];\nret;"
    )
    assert run(body.format(0), []).findings == []
    one(run(body.format(4), []), "uninitialised-read", "ld.local.b32")


def test_misaligned():
    one(
        exchange(EXCHANGE.replace("ld.global.b32 %r1, [%d2];", "ld.global.b32 %r1, [%d2+2];"))[0],
        "misaligned",
        "ld.global.b32",
    )
    one(
        exchange(EXCHANGE.replace("ld.shared.b32 %r8, [%r7];", "ld.shared.v2.b32 {%r8, %r9}, [%r7];"))[0],
        "misaligned",
        "ld.shared.v2.b32",
    )


def test_barrier_divergence():
    text = EXCHANGE.replace("bar.sync 0;", "setp.lt.u32 %p0, %r0, 40;\n@!%p0 bra SKIP;\nbar.sync 0;\nSKIP:")
    f = one(exchange(text)[0], "barrier-divergence", "bar.sync 0")
    assert "part of a warp" in f.message and f.wave == 1


def test_shuffle_that_names_absent_lanes():
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 8;
@!%p0 bra END;
shfl.sync.bfly.b32 %r1, %r0, 1, 31, {};
END: ld.param.u64 %d0, [p0]; ret;"""
    assert run(body.format("0xff"), [None]).findings == []
    one(run(body.format("-1"), [None]), "barrier-divergence", "shfl.sync")


def test_deadlock_names_who_waits():
    text = EXCHANGE.replace(
        "bar.sync 0;",
        "setp.lt.u32 %p0, %r0, 32;\n@!%p0 bra OTHER;\nbar.sync 1, 64;\nbra JOIN;\nOTHER: bar.sync 2, 64;\nJOIN:",
    )
    report, _, _ = exchange(text)
    found = [f for f in report.findings if f.kind == "deadlock"]
    assert {f.instruction for f in found} == {"bar.sync 1, 64", "bar.sync 2, 64"}
    first = next(f for f in found if f.instruction == "bar.sync 1, 64")
    assert "only warps [0] have come; missing: warps [1]" in first.message


def test_endless_loop(monkeypatch):
    from wavedsl.runtime.emulator.ptx import run as ptx_run

    monkeypatch.setattr(ptx_run, "MAX_BLOCKS", 1000)
    report = run("mov.u32 %r0, 0;\nL: add.u32 %r0, %r0, 1;\nbra L;", [])
    one(report, "deadlock", "add.u32")


def test_trap():
    text = EXCHANGE.replace("bar.sync 0;", "setp.eq.u32 %p0, %r0, 33;\n@%p0 trap;\nbar.sync 0;")
    f = one(exchange(text)[0], "assertion", "trap")
    assert (f.wave, f.lane) == (1, 1)


def test_unsupported_names_the_instruction():
    report, _, out = exchange(EXCHANGE.replace("bar.sync 0;", "frobnicate.b32 %r1, %r2;\nbar.sync 0;"))
    f = one(report, "unsupported", "frobnicate.b32")
    assert "frobnicate" in f.message
    assert (out == 0).all()


def test_unsupported_that_is_not_reached_does_not_matter():
    text = EXCHANGE.replace("ret;", "ret;\nfrobnicate.b32 %r1, %r2;\nret;")
    assert exchange(text)[0].findings == []


def test_unsupported_is_fatal_even_without_checks():
    with pytest.raises(EmulationError, match="frobnicate"):
        run("frobnicate.b32 %r1, %r2;\nret;", [], checks=False)


@pytest.mark.parametrize("wrong", ["add.u32 %r1, %r2;", "add.u32 %d1, %r2, %r3;", "add.f32 %r1, %d1, %f1;", "ld.global.b32 %r1, %d0;",
                                   "add.rn.u32 %r1, %r2, %r3;", "ld.global.v8.b32 {%r1}, [%d0];", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};"])  # fmt: skip
def test_text_that_ptxas_would_refuse(wrong):
    report = run(f"mov.u64 %d0, 0; mov.u64 %d1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;\n{wrong}\nret;", [])
    assert one(report, "unsupported", wrong.split()[0])


def test_syntax_is_reported_with_its_line():
    text = module("mov.u32 %r0, 0;\nmov.u32 %nosuch, 0;\nret;")
    report = run_ptx(text, target="sm_90a", grid=(1,), block=(1,), args=[], checks="report")
    assert report.findings[0].kind == "unsupported"
    assert report.findings[0].instruction == "mov.u32 %nosuch, 0;"


def test_locations_come_from_loc():
    text = module(
        '.file 1 "kernel.py"\n.loc 1 7 3\nmov.u64 %d0, 0;\n.loc 1 8 5\nld.global.b32 %r0, [%d0];\nst.global.b32 [%d0], %r0;\nret;'
    )
    report = run_ptx(text, target="sm_90a", grid=(1,), block=(1,), args=[], checks="report")
    loc = report.findings[0].location
    assert (loc.file, loc.line, loc.col) == ("kernel.py", 8, 4)


def test_findings_raise_when_checks_are_on():
    with pytest.raises(EmulationError, match="race"):
        source, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
        run(EXCHANGE.replace("bar.sync 0;\n", ""), [source, out], block=64, variables=SHARED, checks=True)


@pytest.mark.parametrize("kwargs, message", [
    ({"block": 1025}, "1025 threads"),
    ({"args": []}, "1 parameters, 0 arguments"),
    ({"args": [np.float32(1)]}, "8 bytes, the argument 4"),
    ({"args": ["x"]}, "type str"),
])  # fmt: skip
def test_launches_that_a_driver_refuses(kwargs, message):
    kwargs = {"args": [None], "block": 32, **kwargs}
    with pytest.raises(LaunchError, match=message):
        run("ret;", kwargs["args"], block=kwargs["block"], params=".param .u64 p0")


def test_required_block_size():
    text = module("ret;").replace(") {", ")\n.reqntid 64\n{", 1)
    with pytest.raises(LaunchError, match="requires blocks"):
        run_ptx(text, target="sm_90a", grid=(1,), block=(32,), args=[])


def test_newer_text_than_the_chip():
    with pytest.raises(EmulationError, match="sm_90a does not run on sm_80"):
        run_ptx(module("ret;"), target="sm_80", grid=(1,), block=(32,), args=[])


def test_read_only_array():
    a = np.zeros(4, np.uint32)
    a.flags.writeable = False
    one(run("ld.param.u64 %d0, [p0];\nst.global.b32 [%d0], 1;\nret;", [a], block=1), "out-of-bounds", "st.global.b32")


# ---------------------------------------------------------------- asynchronous copies

COPY = """mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [p0];
mul.wide.u32 %d1, %r0, 16;
add.s64 %d2, %d0, %d1;
mov.u32 %r2, sm;
shl.b32 %r3, %r0, 4;
add.u32 %r4, %r2, %r3;
cp.async.cg.shared.global [%r4], [%d2], 16;
cp.async.commit_group;
cp.async.cg.shared.global [%r4+1024], [%d2], 16;
cp.async.commit_group;
cp.async.wait_group 1;
bar.sync 0;
xor.b32 %r5, %r3, 512;
add.u32 %r6, %r2, %r5;
ld.shared.v4.b32 {%r10,%r11,%r12,%r13}, [%r6];
ld.param.u64 %d3, [p1];
add.s64 %d4, %d3, %d1;
st.global.v4.b32 [%d4], {%r10,%r11,%r12,%r13};
ret;"""


def copy(text=COPY, seed=0):
    source, out = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    return run(text, [source, out], block=64, variables=".shared .align 16 .b8 sm[2048];", seed=seed), source, out


@pytest.mark.parametrize("seed", range(6))
def test_asynchronous_copy(seed):
    report, source, out = copy(seed=seed)
    assert report.findings == []
    assert np.array_equal(out, np.concatenate([source[128:], source[:128]]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("change, kind", [
    (("cp.async.wait_group 1;\n", ""), "missing-wait"),
    (("cp.async.wait_group 1", "cp.async.wait_group 2"), "missing-wait"),
    (("cp.async.commit_group;\n", ""), "missing-wait"),
    (("bar.sync 0;\n", ""), "race"),
    (("bar.sync 0;\nxor.b32 %r5, %r3, 512;", "xor.b32 %r5, %r3, 16;"), "race"),  # of its own warp, another lane's
    (("cp.async.wait_group 1;\nbar.sync 0;", "bar.sync 0;\ncp.async.wait_group 1;"), "race"),
])  # fmt: skip
def test_asynchronous_copy_without_its_wait(change, kind, seed):
    report, _, _ = copy(COPY.replace(*change), seed)
    f = one(report, kind, "ld.shared.v4.b32")
    assert "cp.async" in f.message


@pytest.mark.parametrize(("size", "wrong"), [("16", False), ("0", False), ("4", False), ("17", True), ("%r1", True)])
def test_a_copy_of_more_bytes_than_it_has_room_for(size, wrong):
    """PTX ISA: a src-size larger than cp-size is undefined."""
    first = "cp.async.cg.shared.global [%r4], [%d2], 16"
    text = COPY.replace(first, f"mov.u32 %r1, 20;\n{first}, {size}", 1)
    report, source, out = copy(text)
    if wrong:
        assert "of a copy of 16" in one(report, "out-of-bounds", "cp.async.cg").message
        return
    assert report.findings == []
    kept = np.where(np.arange(256) % 4 < int(size) // 4, source, 0)
    assert np.array_equal(out, np.concatenate([kept[128:], kept[:128]]))


# Lane by lane: even ones close a group of the first copy and wait for it, odd ones close none and wait for all.
PARTED = COPY.replace("cp.async.commit_group;\ncp.async.cg.shared.global [%r4+1024]", """and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 1;
@%p1 bra ODD;
cp.async.commit_group;
ODD: cp.async.cg.shared.global [%r4+1024]""").replace("cp.async.wait_group 1;", """@%p1 bra LAST;
cp.async.wait_group 1;
bra BOTH;
LAST: cp.async.wait_group 0;
BOTH:""")  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_groups_are_each_threads_own(seed):
    """PTX ISA: cp.async-groups are per thread. An odd lane has one group of both copies, an even one has two."""
    report, source, out = copy(PARTED, seed)
    assert report.findings == []
    assert np.array_equal(out, np.concatenate([source[128:], source[:128]]))
    early = copy(PARTED.replace("LAST: cp.async.wait_group 0", "LAST: cp.async.wait_group 1"), seed)[0]
    one(early, "missing-wait", "ld.shared.v4.b32")


def test_overwriting_a_copy_in_flight():
    text = COPY.replace("cp.async.wait_group 1;", "st.shared.b32 [%r4+1024], %r0;\ncp.async.wait_group 1;")
    one(copy(text)[0], "missing-wait", "st.shared.b32")


@pytest.mark.parametrize("bytes_", [4, 8, 16])
def test_a_policy_is_no_operand_of_asynchronous_copies(bytes_: int) -> None:
    """ptxas takes it; where its release 13.0 takes the array's base from a uniform register, an H200 calls what it made
    an illegal instruction."""
    policy = "createpolicy.fractional.L2::evict_last.b64 %d9;\n"
    hinted = f"cp.async.ca.shared.global.L2::cache_hint [%r4], [%d2], {bytes_}, %d9;"
    (found,) = copy(COPY.replace("cp.async.cg.shared.global [%r4], [%d2], 16;", policy + hinted, 1))[0].findings
    assert found.kind == "unsupported" and "illegal instruction" in found.message


def test_copying_over_what_others_read():
    text = COPY.replace("ret;", "cp.async.cg.shared.global [%r4], [%d2], 16;\nret;")
    one(copy(text)[0], "race", "cp.async.cg.shared.global [%r4], [%d2], 16")
    assert copy(text.replace("\nret;", "\nret;").replace("st.global.v4", "bar.sync 0;\nst.global.v4"))[0].findings == []


def test_copies_take_fewer_bytes():
    """Bytes past the given size are zero, and a size of zero touches no memory."""
    text = COPY.replace("mov.u32 %r2, sm;", "mov.u32 %r2, sm;\nsetp.lt.u32 %p0, %r0, 3;\nselp.b32 %r30, 4, 0, %p0;")
    text = text.replace(
        "cp.async.cg.shared.global [%r4], [%d2], 16;", "cp.async.cg.shared.global [%r4], [%d2], 16, %r30;"
    )
    text = text.replace("cp.async.cg.shared.global [%r4+1024], [%d2], 16;", "")
    source, out = np.arange(12, dtype=np.uint32) + 1, np.full(256, 9, np.uint32)
    report = run(text, [source, out], block=64, variables=".shared .align 16 .b8 sm[2048];")
    assert report.findings == []
    want = np.zeros((64, 4), np.uint32)
    want[32:35, 0] = source[::4]
    assert np.array_equal(out.reshape(64, 4), want)


def test_a_copy_of_nothing_has_an_aligned_address():
    """The manual asks for alignment to the size of the copy, whatever part of it is taken."""
    text = COPY.replace("mov.u32 %r2, sm;", "mov.u32 %r2, sm;\nmov.u32 %r30, 0;")
    text = text.replace("[%r4+1024], [%d2], 16;", "[%r4+1024], [%d2+4096], 16, %r30;")
    assert copy(text)[0].findings == []
    one(copy(text.replace("4096", "4097"))[0], "misaligned", "cp.async.cg.shared.global [%r4+1024]")


def test_every_deletion_of_a_wait_or_barrier_is_found():
    """A double-buffered loop: each wait, commit and barrier of it matters."""
    loop = """mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [p0];
mul.wide.u32 %d1, %r0, 16;
add.s64 %d2, %d0, %d1;
mov.u32 %r2, sm;
shl.b32 %r3, %r0, 4;
xor.b32 %r5, %r3, 512;
mov.u32 %r20, 0;
mov.u32 %r21, 0;
add.u32 %r4, %r2, %r3;
cp.async.cg.shared.global [%r4], [%d2], 16;
cp.async.commit_group;
mov.u32 %r30, 0;
LOOP:
add.u32 %r20, %r20, 1;
xor.b32 %r22, %r21, 1024;
add.u32 %r4, %r2, %r3;
add.u32 %r4, %r4, %r22;
add.s64 %d2, %d2, 1024;
cp.async.cg.shared.global [%r4], [%d2], 16;
cp.async.commit_group;
cp.async.wait_group 1;
bar.sync 0;
add.u32 %r6, %r2, %r5;
add.u32 %r6, %r6, %r21;
ld.shared.v4.b32 {%r10,%r11,%r12,%r13}, [%r6];
add.u32 %r30, %r30, %r10;
bar.sync 0;
mov.u32 %r21, %r22;
setp.lt.u32 %p0, %r20, 5;
@%p0 bra LOOP;
ld.param.u64 %d3, [p1];
mul.wide.u32 %d4, %r0, 4;
add.s64 %d4, %d3, %d4;
st.global.b32 [%d4], %r30;
ret;"""
    source, out = np.arange(6 * 256, dtype=np.uint32), np.zeros(64, np.uint32)

    def go(text, seed):
        return run(text, [source, out], block=64, variables=".shared .align 16 .b8 sm[2048];", seed=seed)

    assert go(loop, 0).findings == []
    per_row = source.reshape(6, 64, 4)[:5, :, 0].sum(axis=0)
    assert np.array_equal(out, np.roll(per_row, -32))
    lines = loop.split("\n")
    sites = [i for i, line in enumerate(lines) if line.startswith(("cp.async.wait", "cp.async.commit", "bar.sync"))]
    assert len(sites) == 5
    for i, seed in itertools.product(sites, range(3)):
        report = go("\n".join(lines[:i] + lines[i + 1 :]), seed)
        assert {f.kind for f in report.findings} & {"race", "missing-wait"}, lines[i]
