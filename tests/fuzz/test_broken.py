"""The mutants of `broken.py`: what is moved, counted otherwise or narrowed, and what the emulator says of one."""

from __future__ import annotations

from dataclasses import replace

import broken
import numpy as np
import pytest

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
    from amdgcn_harness import module
    from touched import touched
    from wavedsl.runtime.emulator import run

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
    assert not seen.alone(store, elsewhere=False) and not seen.alone(load, elsewhere=False)
    assert seen.alone(last, elsewhere=False)
    # both workgroups store the same values to the same places: that is in order, what one loads of the other is not
    assert seen.alone(last, elsewhere=True) and not seen.alone(load, elsewhere=True)
    proofs = {m.what: broken.proof(Text.asm, m, Text(), arrays) for m in broken.late(Text.asm) if "barrier" in m.kind}
    assert {what: why for what, why in proofs.items() if "[8:9]" in what} == {
        "global_store_dword v1, v2, s[8:9] <-> s_barrier": None,
        "s_barrier <-> global_load_dword v4, v3, s[8:9]": None,
    }
    assert [why for what, why in proofs.items() if "[10:11]" in what] == ["nobody else touches it"]
