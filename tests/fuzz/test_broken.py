"""The mutants of `broken.py`: what is moved, counted otherwise or narrowed, and what the emulator says of one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import broken
import numpy as np
import ptx_harness
import pytest
from amdgcn_harness import module
from touched import touched
from wavedsl.runtime.emulator import run

import wavedsl as wd

B, R, S, T = wd.symbols("B R S T")

TEXT = """{
    mbarrier.init.shared::cta.b64 [%r1], 1;
    st.shared.b32 [%r2], %r3;
    bar.warp.sync 0xffffffff;
    ld.shared.b32 %r4, [%r5];
$L:
    bar.sync 0;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;
    fence.acq_rel.gpu;
"""


def test_what_is_moved_and_counted() -> None:
    """A barrier over the access before or behind it, but not over a label; a count of 0 is none."""
    kinds = [(m.kind, m.lines[0]) for m in broken.broken(TEXT)]
    assert ("early-bar", 2) in kinds and ("late-bar", 3) in kinds
    assert [k for k, _ in kinds].count("other-count") == 3  # 2 arrivals; 48 and 80 bytes
    assert ("narrow-scope", 8) in kinds
    assert not any(kind in ("late-bar", "early-bar") and line > 3 for kind, line in kinds)
    moved = next(m for m in broken.broken(TEXT) if m.kind == "late-bar").text.split("\n")
    assert moved[3].split() == ["ld.shared.b32", "%r4,", "[%r5];"] and moved[4].split()[0] == "bar.warp.sync"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_value_that_lanes_share(target: str) -> None:
    """Several lanes store one value to one place and others read it (a carried row becomes a column): the barrier
    between them is found to lack wherever it is deleted or moved before the store."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WaveConstraint(B, 1), wd.TilingConstraint(T, 1)], subs={T: 3})
    def kernel(x: wd.Memory[B, S, wd.i32], a: wd.Memory[R, S, wd.i32], y: wd.Memory[B, S, wd.i32]):
        added = wd.read(a)

        @wd.iterate(T, init_args=[wd.read(x)])
        def loop(row):
            return wd.max(wd.reshape(row, R) + added, dim=R)

        wd.write(loop, y)

    x = np.arange(5, dtype=np.int32).reshape(1, 5)
    a = np.arange(25, dtype=np.int32).reshape(5, 5)
    y = np.zeros((1, 5), np.int32)
    compiled = kernel.compile(x, a, y, target=target)
    right = y.copy()
    compiled.emulate(x, a, right)
    text = compiled.asm.split("\n")
    moved = [m for m in broken.broken(compiled.asm) if m.kind in ("delete-barrier", "early-bar")]
    moved = [m for m in moved if "st.shared" in text[m.lines[0]] or "st.shared" in text[m.lines[0] - 1]]
    assert {m.kind for m in moved} == {"delete-barrier", "early-bar"}
    for mutant in moved:
        assert broken.verdict(replace(compiled, asm=mutant.text), [x, a, y], [x, a, right], 20.0) == "race"


READS_AHEAD = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
v_add_u32_e32 v2, 1, v0
v_xor_b32_e32 v3, 0x100, v1
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[8:9]
s_barrier
global_load_dword v4, v3, s[8:9]
s_waitcnt vmcnt(0)
s_barrier
global_store_dword v1, v4, s[10:11]
"""


def test_who_touches_what() -> None:
    """The first barrier orders a store and a load of another wave; the second one no access beside it."""
    class Text:
        target = "gfx942"
        asm = module(READS_AHEAD, pointers=2).replace("s_endpgm\n", "s_endpgm\n.size k, .-k\n")
        asm = f'.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n{asm}'

        def emulate(self, *args: np.ndarray) -> None:
            run(self.asm, target=self.target, grid=(2,), block=(128,), args=list(args))

    arrays = [np.zeros(128, np.uint32), np.zeros(128, np.uint32)]
    lines = Text.asm.split("\n")
    store, load, last = (next(i for i, line in enumerate(lines) if line.strip() == f"{what}") for what in (
        "global_store_dword v1, v2, s[8:9]", "global_load_dword v4, v3, s[8:9]", "global_store_dword v1, v4, s[10:11]",
    ))  # fmt: skip
    seen = touched(Text(), arrays)
    assert seen is not None
    assert not seen.may_move(store, 1, True) and not seen.may_move(load, -1, True)
    assert seen.may_move(last, -1, True) and seen.may_move(last, 1, True)
    # both workgroups store the same values to the same places: that is in order, what one loads of the other is not
    assert seen.alone(last) and not seen.alone(load)
    proofs = {m.what: broken.proof(Text.asm, m, Text(), arrays) for m in broken.late(Text.asm) if "barrier" in m.kind}
    assert {what: why for what, why in proofs.items() if "[8:9]" in what} == {
        "global_store_dword v1, v2, s[8:9] <-> s_barrier": None,
        "s_barrier <-> global_load_dword v4, v3, s[8:9]": None,
    }
    assert [why for what, why in proofs.items() if "[10:11]" in what] == ["nobody who meets there touches it"]


LANES = """
mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, sm; add.u32 %r3, %r2, %r1; xor.b32 %r4, %r3, XOR;
ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d1, %d0, %d1;
st.shared.b32 [%r3], %r0;
BEFORE
bar.sync 0;
ld.shared.b32 %r5, [%r4];
MEETING
st.shared.b32 [%r3], %r5;
bar.sync 0;
ld.shared.b32 %r6, [%r3];
st.global.b32 [%d1], %r6;
bar.sync 0;
setp.ge.u32 %p0, %r0, 64;
@%p0 bra E;
ld.global.b32 %r6, [%d1];
E:
"""


@dataclass(frozen=True)
class Ptx:
    """A text that runs in two workgroups of two warps."""

    asm: str
    target: str = "sm_80"

    def emulate(self, *args: np.ndarray) -> None:
        report = run(self.asm, target=self.target, grid=(2,), block=(64,), args=list(args))
        if any(f.kind == "assertion" for f in report.findings):
            raise wd.EmulationError("a trap", report=report)


def ptx(body: str) -> Ptx:
    memory = ".shared .align 16 .b8 sm[256];"
    return Ptx(ptx_harness.module(body.replace("; ", ";\n"), ".param .u64 p0", target="sm_80", variables=memory))


@pytest.mark.parametrize("distance, meeting, moved", [
    (4, "bar.warp.sync -1;", False), (128, "bar.warp.sync -1; bar.sync 0;", True),
    (128, "bar.sync 0;", False),
    (4, "bar.sync 0;", False), (0, "bar.warp.sync -1;", True), (0, "bar.sync 0;", True),
])  # fmt: skip
def test_whose_places_meet_between_barriers(distance: int, meeting: str, moved: bool) -> None:
    """Each thread reads the word of another one, they meet, and each writes its own: the read may come behind the
    meeting if those who meet there are not those two."""
    text = ptx(LANES.replace("XOR", str(distance)).replace("MEETING", meeting).replace("BEFORE", ""))
    lines = [line.strip() for line in text.asm.split("\n")]
    read, write = lines.index("ld.shared.b32 %r5, [%r4];"), lines.index("st.shared.b32 [%r3], %r5;")
    seen = touched(text, [np.zeros(64, np.uint32)])
    assert seen is not None
    assert seen.may_move(read, 1, "warp" not in meeting) is moved
    assert seen.may_move(write, -1, "warp" not in meeting) is moved
    # what nobody else touches between any two barriers, though others do elsewhere
    assert seen.may_move(lines.index("ld.global.b32 %r6, [%d1];"), -1, True)
    assert not seen.may_move(lines.index("st.shared.b32 [%r3], %r0;"), 1, True) or distance == 0


def test_texts_that_are_not_judged() -> None:
    """Waves that meet in part, lanes that do."""
    for meeting in ("bar.sync 1, 64;", "bar.warp.sync 3;"):
        text = ptx(LANES.replace("XOR", "4").replace("MEETING", meeting).replace("BEFORE", ""))
        assert touched(text, [np.zeros(64, np.uint32)]) is None


FAR = "v_mfma_f64_16x16x4f64 v[8:15], v[2:3], v[4:5], v[8:15]"


@pytest.mark.parametrize("text, other, good", [
    # a wait that comes sooner, or too late for its use
    ("LOAD USE_OF_ANOTHER WAIT USE", "LOAD WAIT USE_OF_ANOTHER USE", True),
    ("LOAD WAIT USE_OF_ANOTHER USE", "LOAD USE_OF_ANOTHER WAIT USE", True),
    ("LOAD WAIT USE", "LOAD USE WAIT", False),
    # of a product of which nothing is known what uses it may come later, not sooner
    ("PRODUCT NOP WAIT AFTER", "PRODUCT WAIT NOP AFTER", True),
    ("PRODUCT NOP AFTER WAIT", "PRODUCT NOP WAIT AFTER", True),
    ("PRODUCT NOP WAIT AFTER", "PRODUCT NOP AFTER WAIT", False),
    ("WAIT PRODUCT NOP AFTER", "PRODUCT WAIT NOP AFTER", True),
    ("PRODUCT WAIT NOP AFTER", "WAIT PRODUCT NOP AFTER", False),
    ("PRODUCT NOP WAIT CHAIN", "PRODUCT NOP CHAIN WAIT", True),
])  # fmt: skip
def test_texts_as_good_as_others(text: str, other: str, good: bool) -> None:
    """Two neighbours have changed places; products of 64-bit floats are in no table of the replay's."""
    lines = {
        "LOAD": "global_load_dword v1, v0, s[8:9]", "WAIT": "s_waitcnt vmcnt(0)", "USE": "v_add_u32_e32 v2, v1, v1",
        "USE_OF_ANOTHER": "v_add_u32_e32 v20, v21, v21", "PRODUCT": FAR, "CHAIN": FAR, "NOP": "s_nop 3",
        "AFTER": "v_add_u32_e32 v20, v8, v8",
    }  # fmt: skip
    texts = ["k:\n" + "\n".join(lines[word] for word in words.split()) + "\ns_endpgm\n" for words in (text, other)]
    moved = tuple(1 + i for i, (a, b) in enumerate(zip(text.split(), other.split())) if a != b)
    assert len(moved) == 2 and broken.amd_replay.as_good(*texts, "gfx942", moved) is good


def test_what_a_run_does_not_reach() -> None:
    """A line in a branch that this launch does not take; one that it comes to."""
    skipped = "setp.lt.u32 %p1, %r0, 4000; @%p1 bra S; st.shared.b32 [%r3], 9; S:"
    text = ptx(LANES.replace("XOR", "0").replace("MEETING", "bar.sync 0;").replace("BEFORE", skipped))
    lines = [line.strip() for line in text.asm.split("\n")]

    args = [np.zeros(64, np.uint32)]
    assert not broken.reached(text, args, [lines.index("st.shared.b32 [%r3], 9;")], 20.0)
    assert broken.reached(text, args, [lines.index("st.shared.b32 [%r3], %r5;")], 20.0)
