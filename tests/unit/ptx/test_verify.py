"""The checker of emitted text passes good programs and objects to every seeded defect."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from ptx_kernels import gemm
from wavedsl.codegen.ptx.emit import compile_kernel_ir
from wavedsl.codegen.ptx.target import TARGETS
from wavedsl.codegen.ptx.verify import verify

SM80 = TARGETS["sm_80"]
GOOD = compile_kernel_ir(gemm(SM80, 65, 67, 104, dynamic_k=True), SM80).text


def test_a_good_program_has_no_complaint() -> None:
    assert verify(GOOD) == []


def once(pattern: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        out, n = re.subn(pattern, new, text, count=1)
        assert n == 1 and out != text
        return out

    return change


DEFECTS: dict[str, tuple[Callable[[str], str], str]] = {
    "unknown instruction": (once(r"shl\.b32", "shl.s32"), "no row"),
    "target too old": (once(r"\.target sm_80", ".target sm_70"), "needs sm_80"),
    "address register of the wrong width": (once(r"\[%rd\d+\+128\]", "[%r5]"), "is .b32"),
    "shared address in 64 bits": (once(r"(ldmatrix.*)\[%r\d+\]", r"\1[%rd5]"), "is .b64"),
    "copy from where it goes": (
        once(r"(cp\.async\.\S+ +)\[(%r\d+)(\+\d+)?\], \[%rd\d+(\+\d+)?\]", r"\1[\2], [\2]"),
        "is .b32",
    ),
    "operand too narrow": (once(r"add\.s64( +%rd\d+, %rd\d+), %rd\d+", r"add.s64\1, %r5"), "is .b32"),
    "too few members": (once(r"\{%r\d+, (%r\d+, %r\d+, %r\d+)\}, \{", r"{\1}, {"), "3 members"),
    "undeclared register": (
        once(r"shl\.b32( +)%r(\d+), %r\d+", r"shl.b32\1%r\2, %r9999"),
        "not understood or not declared",
    ),
    "fewer registers declared than used": (once(r"\.reg \.pred %p<\d+>", ".reg .pred %p<1>"), "not declared"),
    "undeclared parameter": (once(r"\[param_b\]", "[param_q]"), "param_q is not declared"),
    "undefined label": (once(r"bra( +)\$K;", r"bra\1$L;"), "label $L is not defined"),
    "label twice": (once(r"\$K_end:", "$K:"), "defined twice"),
    "guard of the wrong class": (once(r"@%p\d+ st\.global", "@%r3 st.global"), "no declared predicate"),
    "no return": (once(r"    ret;\n", ""), "run off the end"),
    "code nobody reaches": (once(r"(    cp\.async\.commit_group;\n)", r"    ret;\n\1"), "no path leads here"),
    "missing semicolon": (once(r"bar\.sync( +)0;", r"bar.sync\g<1>0"), "no semicolon"),
    "version too old": (once(r"\.version 7\.4", ".version 6.5"), ".version"),
    "too many operands": (
        once(r"cvta\.to\.global\.u64( +%rd\d+, %rd\d+);", r"cvta.to.global.u64\1, %rd0;"),
        "operands",
    ),
    "vector of more than 16 bytes": (
        once(r"st\.global\.b32( +)(\[%rd\d+\+?\d*\]), %r\d+", r"st.global.v4.b64\1\2, {%rd0, %rd0, %rd0, %rd0}"),
        "at most 128",
    ),
    "written immediate": (once(r"shl\.b32( +)%r\d+,", r"shl.b32\g<1>7,"), "written"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_found(name: str) -> None:
    change, said = DEFECTS[name]
    found = verify(change(GOOD))
    assert any(said in complaint for complaint in found), found


def test_every_deletion_of_a_first_write_is_found() -> None:
    """Without its only unconditional definition a register is read unwritten; each such line is deleted in turn."""
    lines = GOOD.split("\n")
    writes: dict[str, list[int]] = {}
    reads: dict[str, int] = {}
    for i, line in enumerate(lines):
        m = re.match(r"    (@!?%p\d+ )?(\S+) +(.*);", line)
        if m is None or line.startswith("    ."):
            continue
        opcode, operands = m.group(2), m.group(3)
        stores = opcode.startswith(("st.", "cp.", "bra", "bar", "ret"))
        first = [] if stores else re.findall(r"%\w+\d+", re.match(r"\{[^}]*\}|[^,]*", operands).group(0))
        rest = operands if stores else operands[len(re.match(r"\{[^}]*\}|[^,]*", operands).group(0)) :]
        for r in first:
            writes.setdefault(r, []).append(i)
        for r in re.findall(r"%\w+\d+", rest):
            reads[r] = reads.get(r, 0) + 1
    single = sorted({at[0] for r, at in writes.items() if len(at) == 1 and r in reads})
    assert len(single) > 60
    for i in single:
        assert verify("\n".join(lines[:i] + lines[i + 1 :])), (
            f"deleting line {i + 1} ({lines[i].strip()}) goes unnoticed"
        )


def test_a_predicated_write_does_not_define() -> None:
    text = "\n".join([
        ".version 7.4", ".target sm_80", ".address_size 64", ".visible .entry k(", "    .param .u64 param_x", ")", "{",
        "    .reg .b32 %r<2>;", "    .reg .b64 %rd<1>;", "    .reg .pred %p<1>;",
        "    ld.param.u64 %rd0, [param_x];", "    mov.u32 %r0, %tid.x;", "    setp.lt.s32 %p0, %r0, 5;",
        "    @%p0 mov.b32 %r1, 3;", "    st.global.b32 [%rd0], %r1;", "    ret;", "}",
    ])  # fmt: skip
    assert any("%r1 may be read" in c for c in verify(text))
    assert verify(text.replace("@%p0 mov", "mov")) == []


def test_a_write_in_one_branch_does_not_define() -> None:
    text = "\n".join([
        ".version 7.4", ".target sm_80", ".address_size 64", ".visible .entry k(", "    .param .u64 param_x", ")", "{",
        "    .reg .b32 %r<2>;", "    .reg .b64 %rd<1>;", "    .reg .pred %p<1>;",
        "    ld.param.u64 %rd0, [param_x];", "    mov.u32 %r0, %tid.x;", "    setp.lt.s32 %p0, %r0, 5;",
        "    @%p0 bra $over;", "    mov.b32 %r1, 3;", "$over:", "    st.global.b32 [%rd0], %r1;", "    ret;", "}",
    ])  # fmt: skip
    assert any("%r1 may be read" in c for c in verify(text))
    assert verify(text.replace("@%p0 bra $over;", "")) == []
