# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Each defect of asynchronous code, seeded into a pipeline that is otherwise right, is reported at its line."""

import re

import ml_dtypes
import numpy as np
import pytest
from hopper_text import described, laid_out, launch, module, wgmma_text
from wavedsl.codegen.ptx.isa_wgmma import wgmma
from wavedsl.ir import dtypes as dt
from wavedsl.runtime.tensor_map import TensorMap

ACC = ", ".join(f"%f{i}" for i in range(16))
A_SIZE, B_SIZE, ROUNDS = 8192, 4096, 5
# One warpgroup multiplies 64x64 by 32x64 blocks that a fifth warp's lane loads into a ring of two stages; bars are full
# (stage 0, 1), then empty. The result goes through shared memory to a tensor.
MULTIPLY = "\n".join(
    f"add.s64 %d10, %d8, {2 * i};\nadd.s64 %d11, %d9, {2 * i};\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{{ACC}}}, %d10, %d11, {'%p2' if i == 0 else '1'}, 1, 1, 0, 0;"
    for i in range(4)
)
EPILOGUE = "\n".join(
    f"cvt.rn.bf16x2.f32 %r20, %f{i + 1}, %f{i};\nst.shared.b32 [%r19+{16 * (i // 4) + (512 if i % 4 else 0)}], %r20;"
    for i in range(0, 16, 2)
)
PIPE = f"""mov.b64 %d0, a; cvta.param.u64 %d1, %d0;
mov.b64 %d2, b; cvta.param.u64 %d3, %d2;
mov.b64 %d4, c; cvta.param.u64 %d5, %d4;
mov.u32 %r0, %tid.x; mov.u32 %r1, smem; add.u32 %r2, %r1, 28672;
setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r2], 1;
mbarrier.init.shared::cta.b64 [%r2+8], 1;
mbarrier.init.shared::cta.b64 [%r2+16], 1;
mbarrier.init.shared::cta.b64 [%r2+24], 1;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
mov.u32 %r10, 0; mov.u32 %r12, 0; mov.u32 %r11, 0;
setp.ge.u32 %p1, %r0, 128; @%p1 bra PRODUCER;
CONSUME:
shl.b32 %r13, %r10, 3; add.u32 %r13, %r13, %r2;
CWAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r13], %r11;
@!%p3 bra CWAIT;
mad.lo.u32 %r14, %r10, {A_SIZE}, %r1; shr.u32 %r14, %r14, 4; cvt.u64.u32 %d6, %r14; add.s64 %d8, %d6, 0x4000004000010000;
mad.lo.u32 %r15, %r10, {B_SIZE}, %r1; add.u32 %r15, %r15, {2 * A_SIZE}; shr.u32 %r15, %r15, 4; cvt.u64.u32 %d7, %r15; add.s64 %d9, %d7, 0x4000004000010000;
setp.ne.u32 %p2, %r12, 0;
wgmma.fence.sync.aligned;
{MULTIPLY}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
@%p0 bra KEPT;
mbarrier.arrive.shared::cta.b64 _, [%r13+16];
KEPT:
xor.b32 %r10, %r10, 1; setp.eq.u32 %p4, %r10, 0; selp.u32 %r16, 1, 0, %p4; xor.b32 %r11, %r11, %r16;
add.u32 %r12, %r12, 1; setp.lt.u32 %p5, %r12, {ROUNDS}; @%p5 bra CONSUME;
shr.u32 %r17, %r0, 5; shl.b32 %r17, %r17, 10; and.b32 %r18, %r0, 31; shr.u32 %r19, %r18, 2; shl.b32 %r19, %r19, 6; add.u32 %r17, %r17, %r19;
and.b32 %r18, %r0, 3; shl.b32 %r18, %r18, 2; add.u32 %r17, %r17, %r18; add.u32 %r19, %r17, %r1; add.u32 %r21, %r1, 24576; add.u32 %r19, %r19, 24576;
{EPILOGUE}
fence.proxy.async.shared::cta;
bar.sync 1, 128;
@%p0 bra END;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d5, {{0, 0}}], [%r21];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
bra END;
PRODUCER:
setp.ne.u32 %p6, %r0, 128; @%p6 bra END;
mov.u32 %r11, 1;
PRODUCE:
shl.b32 %r13, %r10, 3; add.u32 %r13, %r13, %r2;
PWAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r13+16], %r11;
@!%p3 bra PWAIT;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r13], {A_SIZE + B_SIZE};
mad.lo.u32 %r14, %r10, {A_SIZE}, %r1; mad.lo.u32 %r15, %r10, {B_SIZE}, %r1; add.u32 %r15, %r15, {2 * A_SIZE}; shl.b32 %r16, %r12, 6;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r14], [%d1, {{%r16, 0}}], [%r13];
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r15], [%d3, {{%r16, 0}}], [%r13];
xor.b32 %r10, %r10, 1; setp.eq.u32 %p4, %r10, 0; selp.u32 %r22, 1, 0, %p4; xor.b32 %r11, %r11, %r22;
add.u32 %r12, %r12, 1; setp.lt.u32 %p5, %r12, {ROUNDS}; @%p5 bra PRODUCE;
END:
ret;"""
PARAMS = ".param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .align 64 .b8 c[128]"


def pipeline(*changes, seed=0, threads=160):
    body = PIPE
    for old, new in changes:
        assert old in body, old
        body = body.replace(old, new)
    rng = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16
    a, b = rng.integers(-2, 3, (64, 64 * ROUNDS)).astype(kind), rng.integers(-2, 3, (32, 64 * ROUNDS)).astype(kind)
    c = np.full((64, 32), 93, kind)
    maps = [TensorMap(a, (64, 64), swizzle=128), TensorMap(b, (64, 32), swizzle=128), TensorMap(c, (32, 64))]
    report = launch(module(PARAMS, body, threads), maps, block=threads, shared=28704, seed=seed)
    return report, np.array_equal(c.astype(np.float32), a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 20))])
def test_right_text_has_none(seed):
    report, right = pipeline(seed=seed)
    assert report.findings == [] and right


LOAD_A, LOAD_B = "[%r14], [%d1, {%r16, 0}], [%r13];", "[%r15], [%d3, {%r16, 0}], [%r13];"
FULL, EMPTY = (
    "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r13], %r11",
    "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r13+16], %r11",
)
STORED = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
CASES = {
    "full not waited for": ([(f"{FULL};\n@!%p3 bra CWAIT;\n", "")], {"missing-wait", "uninitialised-read"}, "wgmma.mma_async"),
    "empty not waited for": ([(f"{EMPTY};\n@!%p3 bra PWAIT;\n", "")], {"missing-wait", "race"}, "cp.async.bulk.tensor.2d.shared::cluster"),
    "stage released before its product is done": ([("wait_group.sync.aligned 0", "wait_group.sync.aligned 1")], {"missing-wait", "race"}, "cp.async.bulk.tensor.2d.shared::cluster"),
    "wrong parity": ([("mov.u32 %r10, 0; mov.u32 %r12, 0; mov.u32 %r11, 0;", "mov.u32 %r10, 0; mov.u32 %r12, 0; mov.u32 %r11, 1;")], {"missing-wait", "uninitialised-read"}, "wgmma.mma_async"),
    "accumulators read before the wait": ([("wgmma.wait_group.sync.aligned 0;\n", ""), (f"{ROUNDS}; @%p5 bra CONSUME", "1; @%p5 bra CONSUME")], {"missing-wait"}, "cvt.rn.bf16x2.f32 %r20, %f1, %f0"),
    "group not closed": ([("wgmma.commit_group.sync.aligned;\n", "")], {"missing-wait"}, "cvt.rn.bf16x2.f32 %r20, %f1, %f0"),
    "accumulator rewritten before the wait": ([("wgmma.commit_group.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\nmov.f32 %f5, 0f00000000;\n")], {"register-race"}, "mov.f32 %f5"),
    "accumulator rewritten by arithmetic before the wait": ([("wgmma.commit_group.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\nadd.f32 %f5, %f20, %f20;\n"), ("mov.u32 %r11, 0;\n", "mov.u32 %r11, 0; mov.f32 %f20, 0f00000000;\n")], {"register-race"}, "add.f32 %f5"),
    "no fence of wgmma": ([("wgmma.fence.sync.aligned;\n", "")], {"register-race"}, "wgmma.mma_async"),
    "accumulator touched after the fence": ([("wgmma.fence.sync.aligned;\n", "wgmma.fence.sync.aligned;\nadd.f32 %f3, %f20, %f20;\n"), ("mov.u32 %r11, 0;\n", "mov.u32 %r11, 0; mov.f32 %f20, 0f00000000;\n")], {"register-race"}, "wgmma.mma_async"),
    "accumulators never written": ([("%d11, %p2, 1, 1", "%d11, 1, 1, 1")], {"uninitialised-read"}, "wgmma.mma_async"),
    "no proxy fence before the store": ([("fence.proxy.async.shared::cta;\n", "")], {"proxy-fence"}, STORED),
    "proxy fence before the writes": ([("fence.proxy.async.shared::cta;\n", ""), ("shr.u32 %r17, %r0, 5;", "fence.proxy.async.shared::cta;\nshr.u32 %r17, %r0, 5;")], {"proxy-fence"}, STORED),
    "fence of another kind": ([("fence.proxy.async.shared::cta;", "fence.acq_rel.cta;")], {"proxy-fence"}, STORED),
    "fence of another space": ([("fence.proxy.async.shared::cta;", "fence.proxy.async.global;")], {"proxy-fence"}, STORED),
    "no barrier before the store": ([("bar.sync 1, 128;\n", "")], {"race"}, STORED),
    "store not waited for": ([("cp.async.bulk.wait_group.read 0;\n", "")], {"missing-wait"}, STORED),
    "store not in a group": ([("cp.async.bulk.commit_group;\n", "")], {"missing-wait"}, STORED),
    "staging rewritten before the store has read it": ([("cp.async.bulk.commit_group;\n", "cp.async.bulk.commit_group;\nst.shared.b32 [%r21+64], %r0;\n")], {"missing-wait"}, "st.shared.b32 [%r21+64]"),
    "bytes missing": ([(f"_, [%r13], {A_SIZE + B_SIZE}", f"_, [%r13], {A_SIZE + B_SIZE + 16}")], {"deadlock"}, FULL),
    "too few bytes expected": ([(f"_, [%r13], {A_SIZE + B_SIZE}", f"_, [%r13], {A_SIZE}")], {"deadlock"}, FULL),
    "nobody releases a stage": ([("mbarrier.arrive.shared::cta.b64 _, [%r13+16];\n", "")], {"deadlock"}, EMPTY),
    "every thread releases the stage": ([("@%p0 bra KEPT;\n", "")], {"deadlock"}, EMPTY),
    "an arrival too many": ([(f"_, [%r13], {A_SIZE + B_SIZE};\n", f"_, [%r13], {A_SIZE + B_SIZE};\nmbarrier.arrive.shared::cta.b64 _, [%r13];\n")], {"hazard"}, "mbarrier.arrive.shared::cta.b64 _, [%r13]"),
    "mbarrier not initialised": ([("mbarrier.init.shared::cta.b64 [%r2+8], 1;\n", "")], {"uninitialised-read"}, "mbarrier.arrive.expect_tx"),
    "initialisation not published": ([("bar.sync 0;\n", "")], {"race", "uninitialised-read"}, "mbarrier."),
    "destination misaligned": ([(LOAD_A, LOAD_A.replace("%r14", "%r14+64"))], {"misaligned"}, "[%r14+64]"),
    "destination past the end": ([(LOAD_A, LOAD_A.replace("%r14", "%r14+24576"))], {"out-of-bounds"}, "[%r14+24576]"),
    "map through a parameter offset": ([("mov.b64 %d0, a; cvta.param.u64 %d1, %d0;", "mov.b64 %d1, a;")], {"out-of-bounds"}, LOAD_A),
    "map of another rank": ([(f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes {LOAD_A}", f"cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes {LOAD_A.replace(', 0}', ', 0, 0}')}")], {"hazard"}, "cp.async.bulk.tensor.3d"),
    "no map at the address": ([("mov.b64 %d0, a; cvta.param.u64 %d1, %d0;", "mov.b64 %d0, a+64; cvta.param.u64 %d1, %d0;")], {"uninitialised-read"}, LOAD_A),
    "descriptors differ between lanes": ([("cvt.u64.u32 %d6, %r14;", "add.u32 %r14, %r14, %r0; cvt.u64.u32 %d6, %r14;")], {"barrier-divergence"}, "wgmma.mma_async"),
    "scale-d differs between threads": ([("setp.ne.u32 %p2, %r12, 0;", "setp.gt.u32 %p2, %r0, 40;")], {"barrier-divergence"}, "wgmma.mma_async"),
    "descriptor past the end": ([("0x4000004000010000;\nmad.lo.u32 %r15", "0x4000100000010000;\nmad.lo.u32 %r15")], {"out-of-bounds", "uninitialised-read"}, "wgmma.mma_async"),
    "a warp of the warpgroup goes elsewhere": ([("CONSUME:\n", "setp.ge.u32 %p7, %r0, 96; @%p7 bra END;\nCONSUME:\n")], {"deadlock"}, "wgmma.fence"),
    "operand overwritten before the wait": ([("wgmma.commit_group.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\nst.shared.b32 [%r1], %r0;\n")], {"missing-wait", "race"}, "st.shared.b32 [%r1]"),
    "ordinary store, then a copy over it": ([("READY:\n", "READY:\nst.shared.b32 [%r1], 0;\n")], {"proxy-fence"}, LOAD_A),
    "another swizzle in the descriptor": ([("0x4000004000010000;\nmad.lo.u32 %r15", "0x8000004000010000;\nmad.lo.u32 %r15")], {"hazard"}, "wgmma.mma_async"),
    "the CTA ends with a copy under way": ([(f"{ROUNDS}; @%p5 bra PRODUCE", f"{ROUNDS + 1}; @%p5 bra PRODUCE")], {"missing-wait"}, "cp.async.bulk.tensor.2d.shared::cluster"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seeds", [(3,), pytest.param((0, 1, 2, 4, 5, 6, 7), marks=pytest.mark.slow)], ids=["", "more"])
def test_defect(name, seeds):
    """In whatever order things happen."""
    changes, kinds, fragment = CASES[name]
    for seed in seeds:
        report, _ = pipeline(*changes, seed=seed)
        found = [f for f in report.findings if f.kind in kinds and fragment.rstrip(";") in f.instruction]
        assert found, [str(f) for f in report.findings]
        assert all(f.line > 0 and f.workgroup == (0, 0, 0) and f.wave is not None for f in found)
        if len(kinds) == 1 and kinds != {"deadlock"} and "fence" in name:
            # A missing fence hides no other defect and causes none.
            assert {f.kind for f in report.findings} == kinds, [str(f) for f in report.findings]


SAID = {
    "wrong parity": ("uninitialised-read", ": smem", "parity 1 passes before the first phase"),
    "too few bytes expected": ("deadlock", "expected bytes have not come", "expect_tx of exactly the bytes"),
    "empty not waited for": ("missing-wait", "the copy's mbarrier, smem+28672: smem", "the parity is 0 for the first phase"),
    "stage released before its product is done": ("race", "who waited for it has not told this thread: smem", "arrive at an mbarrier"),
    "no proxy fence before the store": ("proxy-fence", "no proxy fence after the store: smem", "fence.proxy.async behind the store"),
    "nobody releases a stage": ("deadlock", "smem+28688 never completes parity 0: in phase 0 1 of 1 arrivals are missing", "as many arrivals in each phase"),
    "initialisation not published": ("race", "another warp initialises", "fence.mbarrier_init and a barrier"),
    "another swizzle in the descriptor": ("hazard", "a swizzle of 64 bytes what was copied with one of 128: smem", "one swizzle for the tensor map"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_a_defect_says(name):
    """Which place, which mbarrier, and what would be right."""
    kind, message, hint = SAID[name]
    changes = {"too few bytes expected": [(f"_, [%r13], {A_SIZE + B_SIZE}", f"_, [%r13], {A_SIZE + B_SIZE + 16}")]}.get(name, CASES[name][0])
    said = [(f.message, f.hint) for seed in range(4) for f in pipeline(*changes, seed=seed)[0].findings if f.kind == kind]
    assert any(message in m and hint in h for m, h in said), said


def test_the_fence_may_stand_after_the_barrier():
    """On the way from the store to the copy, wherever: here the thread that copies executes it."""
    changes = (
        "fence.proxy.async.shared::cta;\nbar.sync 1, 128;\n",
        "bar.sync 1, 128;\nfence.proxy.async.shared::cta;\n",
    )
    report, right = pipeline(changes)
    assert report.findings == [] and right


def test_deadlock_names_barrier_phase_and_what_is_missing():
    report, _ = pipeline((f"_, [%r13], {A_SIZE + B_SIZE}", f"_, [%r13], {A_SIZE + B_SIZE + 16}"))
    said = {f.instruction.split()[2]: f for f in report.findings if f.kind == "deadlock"}
    waits = said["[%r13],"]
    assert "smem+28672 never completes parity 0: in phase 0 16 expected bytes have not come" in waits.message
    assert waits.line == module(PARAMS, PIPE, 160).split("\n").index(f"{FULL};") + 1
    report, _ = pipeline(("mbarrier.arrive.shared::cta.b64 _, [%r13+16];\n", ""))
    said = [f for f in report.findings if f.kind == "deadlock"]
    assert {f.line for f in said} == {
        module(PARAMS, PIPE, 160)
        .replace("mbarrier.arrive.shared::cta.b64 _, [%r13+16];\n", "")
        .split("\n")
        .index(f"{x};")
        + 1
        for x in (FULL, EMPTY)
    }
    assert any(
        "smem+28688 never completes parity 0: in phase 0 1 of 1 arrivals are missing" in f.message and f.wave == 4
        for f in said
    )


# ------------------------------------------------------------------------------------------------ operands by ordinary stores


def staged(change=("", ""), in_registers=False, seed=0, checks="report"):
    what = wgmma(dt.f16, dt.f16, dt.f32, 8)
    a, b = np.ones((64, 16), np.float16), np.ones((8, 16), np.float16)
    image = np.concatenate([laid_out(a, 32, 0)[0], laid_out(b, 32, 0)[0]])
    step = (None if in_registers else described(0, 16, 256, 32)), described(2048, 16, 256, 32)
    text = wgmma_text(what, len(image), [step], "1", in_registers)
    assert change[0] in text
    init, out, frag = (
        np.zeros((128, 4), np.uint32),
        np.zeros((128, 4), np.uint32),
        np.full((128, 4), 0x3C003C00, np.uint32),
    )
    report = launch(text.replace(*change), [image, init, out, frag], shared=len(image), seed=seed, checks=checks)
    return report, bool((out.view(np.float32) == 16).all())


def test_operands_by_ordinary_stores():
    report, right = staged()
    assert report.findings == [] and right
    report, right = staged(
        ("COPIED: fence.proxy.async.shared::cta;\nbar.sync 0;", "COPIED: bar.sync 0;\nfence.proxy.async.shared::cta;")
    )
    assert report.findings == [] and right
    for change in (("fence.proxy.async.shared::cta;\n", ""), ("fence.proxy.async.shared::cta;", "fence.proxy.alias;")):
        found = staged(change)[0].findings
        assert [f.kind for f in found] == ["proxy-fence"] and found[0].instruction.startswith("wgmma.mma_async")
        assert "st.shared.v4.b32" in found[0].message


def test_registers_of_a():
    report, right = staged(in_registers=True)
    assert report.findings == [] and right
    commit = "wgmma.commit_group.sync.aligned;\n"
    for seed in range(3):
        found = staged((commit, f"{commit}add.u32 %s130, %s130, 0;\n"), True, seed)[0].findings
        assert [f.kind for f in found] == ["register-race"] and "operand A" in found[0].message
        assert found[0].instruction == "add.u32 %s130, %s130, 0"
        found = staged((commit, f"{commit}add.u32 %s5, %s130, 0;\n"), True, seed)[0].findings
        assert [f.kind for f in found] == ["missing-wait"]
    fence = "wgmma.fence.sync.aligned;\n"
    found = staged((fence, f"{fence}or.b32 %s130, %s131, 0;\n"), True)[0].findings
    assert [f.kind for f in found] == ["register-race"] and found[0].instruction.startswith("wgmma.mma_async")


def test_moves_behind_the_fence_are_the_assemblers():
    """nvcc leaves constants for accumulators there; what is in flight stays forbidden to them (above)."""
    fence = "wgmma.fence.sync.aligned;\n"
    report, right = staged((fence, fence + "mov.b32 %f0, 0f00000000;\n"))
    assert report.findings == [] and right


def test_without_checks_accumulators_are_there_when_they_are_used():
    """As on the chip, where ptxas waits; with checks it is a finding."""
    wait = "wgmma.wait_group.sync.aligned 0;\n"
    early = "sub.f32 %f0, %f0, 0f41000000;\nadd.f32 %f0, %f0, 0f41000000;\nmov.f32 %f9, %f1;\nmov.f32 %f1, %f9;\n"
    report, right = staged((wait, early + wait), checks=False)
    assert right
    report, _ = staged((wait, early + wait))
    assert {f.kind for f in report.findings} == {"missing-wait", "register-race"}


def test_accumulators_of_two_lists():
    """A register in two lists, both in flight; in turn, with a wait between, they are fine."""
    what = wgmma(dt.f16, dt.f16, dt.f32, 8)
    one = "{%f0, %f1, %f2, %f3}"
    other = f"{what.mnemonic} {{%f3, %f1, %f2, %f0}}, %d11, %d12, 0, 1, 1, 0, 0;\n"
    commit, wait = "wgmma.commit_group.sync.aligned;\n", "wgmma.wait_group.sync.aligned 0;\n"
    report, _ = staged((commit, other + commit))
    found = [f for f in report.findings if f.kind == "register-race"]
    assert found and found[0].instruction.startswith(f"{what.mnemonic} {{%f3") and one not in found[0].instruction
    report, right = staged((wait, wait + "wgmma.fence.sync.aligned;\n" + other + commit + wait))
    assert report.findings == [] and right


def test_instructions_may_share_registers_that_they_only_read():
    """Two of one group, the second with one register of the first's A as all of its own."""
    text = wgmma_text(wgmma(dt.f16, dt.f16, dt.f32, 8), 4096, [(None, described(2048, 16, 256, 32))], "1", True)
    (first,) = re.findall(r"wgmma\.mma_async.*;\n", text)
    second = re.sub(r"\{%s128, [^}]*\}", "{%s130, %s130, %s130, %s130}", first)
    assert second != first
    report, _ = staged((first, first + second), in_registers=True)
    assert report.findings == []


def test_part_of_a_warp():
    report, _ = staged(
        ("wgmma.fence.sync.aligned;\n", "setp.eq.u32 %p9, %r0, 77; @%p9 bra GONE;\nwgmma.fence.sync.aligned;\n"), seed=1
    )
    assert report.findings  # the label is missing: text that does not parse is refused
    assert [f.kind for f in report.findings] == ["unsupported"]
    text = ("wgmma.fence.sync.aligned;\n", "setp.eq.u32 %p9, %r0, 77; @%p9 exit;\nwgmma.fence.sync.aligned;\n")
    found = staged(text)[0].findings
    assert any(f.kind == "barrier-divergence" and f.instruction.startswith("wgmma.mma_async") for f in found)
