"""LLVM's post-RA hazard recogniser, run on every pair of tests/data/cdna_hazards.txt, against the table that the
compiler and the emulator's checks share, and against the file.

Pairs are machine IR, so that no scheduler and no register allocator stands between the pair and the recogniser. One run
per chip holds all pairs, each a function of its own.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import hazard_pairs as ours
import pytest
from wavedsl.codegen.amdgcn import hazard_rules
from wavedsl.codegen.amdgcn.isa import M0, OFF, TARGETS

EX, MODE = "implicit $exec", "implicit $mode, implicit $exec"


def regs(first: int, count: int, file: str = "vgpr") -> str:
    return "$" + "_".join(f"{file}{first + i}" for i in range(count))


def matrix(opcode: str, nd: int, na: int) -> Callable[[int, int, int, int], str]:
    """An instruction by its first registers of d, a, b, c; the result is early-clobber unless it is the addend."""

    def text(d: int, a: int, b: int, c: int) -> str:
        early = "" if d == c else "early-clobber "
        sources = f"{regs(a, na)}, {regs(b, na)}, {regs(c, nd)}"
        return f"{early}{regs(d, nd)} = V_MFMA_F32_{opcode}_vgprcd_e64 {sources}, 0, 0, 0, {MODE}"

    return text


MATRIX = {
    "4x4x4f16": matrix("4X4X4F16", 4, 2), "16x16x16f16": matrix("16X16X16F16", 4, 2),
    "32x32x8f16": matrix("32X32X8F16", 16, 2), "16x16x4f32": matrix("16X16X4F32", 4, 1),
    "16x16x32_f16": matrix("16X16X32_F16", 4, 4),
}  # fmt: skip
READ = f"$vgpr40 = V_ADD_F32_e32 $vgpr0, $vgpr41, {MODE}"
WRITE = f"$vgpr0 = V_MOV_B32_e32 0, {EX}"
STORE = f"GLOBAL_STORE_DWORD_SADDR $vgpr41, $vgpr0, $sgpr4_sgpr5, 0, 0, {EX}"
A16 = MATRIX["16x16x16f16"](48, 0, 36, 48)
FIRST = f"$sgpr4 = V_READFIRSTLANE_B32 $vgpr1, {EX}"
CMPX = f"$sgpr0_sgpr1 = V_CMPX_EQ_U32_e64 $vgpr50, $vgpr51, implicit-def $exec, {EX}"
CMP = f"V_CMP_EQ_U32_e32 $vgpr1, $vgpr2, implicit-def $vcc, {EX}"
EXP = f"$vgpr0 = V_EXP_F32_e32 $vgpr41, {MODE}"
DPP = f"$vgpr40 = V_MOV_B32_dpp $vgpr40, $vgpr0, 273, 15, 15, 0, {EX}"
SETREG = "S_SETREG_IMM32_B32_mode 3, 6145, implicit-def $mode, implicit $mode"
M0_MOVE = "$m0 = S_MOV_B32 $sgpr4"
LDS_LOAD = f"BUFFER_LOAD_DWORD_LDS_OFFEN $vgpr0, {regs(4, 4, 'sgpr')}, 0, 0, 0, 0, implicit $m0, {EX}"
SWAP = f"$vgpr0, $vgpr1 = V_PERMLANE32_SWAP_B32_e32 killed $vgpr0, killed $vgpr1, {EX}"
STORE4 = f"BUFFER_STORE_DWORDX4_OFFEN_exact {regs(0, 4)}, $vgpr9, {regs(4, 4, 'sgpr')}"
STORE2 = f"BUFFER_STORE_DWORDX2_OFFEN_exact {regs(0, 2)}, $vgpr9, {regs(4, 4, 'sgpr')}"

PAIRS: dict[str, tuple[str, str]] = {
    "VALU write VGPR -> MFMA srcA": (WRITE, A16),
    "VALU write VGPR -> MFMA srcC": (WRITE, MATRIX["16x16x16f16"](0, 32, 36, 0)),
    "v_cmpx writes EXEC -> MFMA": (CMPX, A16),
    "VALU write VGPR -> v_readfirstlane": (WRITE, f"$sgpr4 = V_READFIRSTLANE_B32 $vgpr0, {EX}"),
    "VALU write VGPR -> v_readlane (imm lane)": (WRITE, "$sgpr4 = V_READLANE_B32 $vgpr0, 1"),
    "v_readfirstlane -> VALU read SGPR": (FIRST, f"$vgpr2 = V_MOV_B32_e32 $sgpr4, {EX}"),
    "v_readfirstlane -> SALU read SGPR": (FIRST, "$sgpr9 = S_MOV_B32 $sgpr4"),
    "v_readfirstlane -> VMEM SGPR (saddr)": (FIRST, STORE),
    "v_readfirstlane -> v_readlane lane-select SGPR": (FIRST, "$sgpr9 = V_READLANE_B32 $vgpr8, $sgpr4"),
    "v_readfirstlane -> s_load base": (FIRST, "$sgpr9 = S_LOAD_DWORD_IMM $sgpr4_sgpr5, 0, 0"),
    "v_cmp vcc -> v_cndmask (vcc)": (CMP, f"$vgpr3 = V_CNDMASK_B32_e32 $vgpr4, $vgpr5, implicit $vcc, {EX}"),
    "v_cmp sgpr pair -> v_cndmask_e64": (
        f"$sgpr4_sgpr5 = V_CMP_EQ_U32_e64 $vgpr1, $vgpr2, {EX}",
        f"$vgpr3 = V_CNDMASK_B32_e64 0, $vgpr4, 0, $vgpr5, $sgpr4_sgpr5, {EX}",
    ),
    "v_cmp vcc -> s_cbranch_vccnz": (CMP, "$sgpr0_sgpr1 = S_AND_B64 $exec, $vcc, implicit-def $scc"),
    "v_add_co -> v_addc_co (vcc carry)": (
        f"$vgpr1 = V_ADD_CO_U32_e32 $vgpr2, $vgpr3, implicit-def $vcc, {EX}",
        f"$vgpr4 = V_ADDC_U32_e32 $vgpr5, $vgpr6, implicit-def $vcc, implicit $vcc, {EX}",
    ),
    "v_cmp vcc -> v_div_fmas": (
        CMP,
        "$vgpr3 = V_DIV_FMAS_F32_e64 0, $vgpr4, 0, $vgpr5, 0, $vgpr6, 0, 0, implicit $mode, implicit $vcc, " + EX,
    ),
    "v_exp (trans) -> non-trans VALU read": (EXP, READ),
    "v_exp (trans) -> trans VALU read": (EXP, f"$vgpr3 = V_LOG_F32_e32 $vgpr0, {MODE}"),
    "v_exp (trans) -> VMEM store data": (EXP, STORE),
    "v_exp (trans) -> MFMA srcA": (EXP, A16),
    "VALU write -> DPP read": (WRITE, DPP),
    "v_cmpx EXEC -> DPP": (CMPX, DPP),
    "s_mov EXEC -> DPP": ("$exec = S_MOV_B64 -1", DPP),
    "v_cmpx EXEC -> v_readlane": (CMPX, "$sgpr4 = V_READLANE_B32 $vgpr0, 1"),
    "s_setreg MODE -> s_getreg MODE": (SETREG, "$sgpr4 = S_GETREG_B32 6145, implicit $mode"),
    "s_setreg MODE -> s_setreg MODE": (SETREG, SETREG),
    "s_mov m0 -> buffer_load lds": (M0_MOVE, LDS_LOAD),
    "s_mov m0 -> global_load_lds": (M0_MOVE, f"GLOBAL_LOAD_LDS_DWORD $vgpr4_vgpr5, 0, 0, implicit $m0, {EX}"),
    "s_mov m0 -> s_sendmsg": (M0_MOVE, f"S_SENDMSG 1, {EX}, implicit $m0"),
    "s_mov m0 -> ds_read_b32 (no M0 use gfx9)": (M0_MOVE, f"$vgpr1 = DS_READ_B32_gfx9 $vgpr2, 0, 0, {EX}"),
    "buffer_store_dwordx4 (soffset imm) -> VALU write data": (f"{STORE4}, 0, 0, 0, 0, {EX}", WRITE),
    "buffer_store_dwordx4 (soffset SGPR) -> VALU write data": (f"{STORE4}, $sgpr9, 0, 0, 0, {EX}", WRITE),
    "buffer_store_dwordx2 -> VALU write data": (f"{STORE2}, 0, 0, 0, 0, {EX}", WRITE),
    "global_store_dwordx4 -> VALU write data": (
        f"GLOBAL_STORE_DWORDX4_SADDR $vgpr9, {regs(0, 4)}, $sgpr4_sgpr5, 0, 0, {EX}",
        WRITE,
    ),
    "ds_write_b128 -> VALU write data": (f"DS_WRITE_B128_gfx9 $vgpr9, {regs(0, 4)}, 0, 0, {EX}", WRITE),
    "SALU write SGPR -> VMEM read SGPR": ("$sgpr4 = S_MOV_B32 0", STORE),
    "SALU write m0 -> v_readlane m0?": ("$m0 = S_MOV_B32 0", "$sgpr4 = V_READLANE_B32 $vgpr0, $m0"),
    "op_sel dst hi write -> VALU read": (
        f"$vgpr0 = V_FMA_MIXHI_F16 0, $vgpr1, 0, $vgpr2, 0, $vgpr3, 0, $vgpr0, 0, 0, {MODE}",
        READ,
    ),
    "SDWA dst_sel WORD_1 -> VALU read": (
        f"$vgpr0 = V_ADD_U32_sdwa 0, $vgpr1, 0, $vgpr2, 0, 5, 2, 6, 6, {EX}, implicit $vgpr0(tied-def 0)",
        READ,
    ),
    "VALU write -> v_permlane32_swap": (WRITE, SWAP),
    "v_permlane32_swap -> VALU read": (SWAP, READ),
}
for kind, m in MATRIX.items():
    first = m(0, 32, 36, 0)
    PAIRS |= {
        f"MFMA {kind} D -> VALU read": (first, READ),
        f"MFMA {kind} D -> VMEM store data": (first, STORE),
        f"MFMA {kind} D -> DS write data": (first, f"DS_WRITE_B32_gfx9 $vgpr41, $vgpr0, 0, 0, {EX}"),
        f"MFMA {kind} D -> VALU write (WAW)": (first, WRITE),
        f"MFMA {kind} srcC -> VALU write (WAR)": (m(16, 32, 36, 0), WRITE),
        f"MFMA {kind} srcA -> VALU write (WAR)": (m(16, 0, 36, 40), WRITE),
        f"MFMA {kind} D -> same-op srcC exact (acc chain)": (first, first),
        f"MFMA {kind} D -> 16x16x16f16 srcA": (first, A16),
        f"MFMA {kind} D -> 16x16x16f16 srcC overlapped(+2)": (first, MATRIX["16x16x16f16"](2, 32, 36, 2)),
        f"MFMA {kind} D -> 16x16x4f32 srcC overlapped(+2)": (first, MATRIX["16x16x4f32"](2, 32, 36, 2)),
    }


def f64(opcode: str, n: int) -> str:
    return f"{regs(0, n)} = V_MFMA_F64_{opcode}_vgprcd_e64 {regs(32, 2)}, {regs(34, 2)}, {regs(0, n)}, 0, 0, 0, {MODE}"


def dot(addend: int) -> str:
    """Without bits of op_sel_hi: LLVM reads the first source's as those of a result's upper half."""
    return f"$vgpr0 = V_DOT2_F32_F16 0, $vgpr1, 0, $vgpr2, 0, $vgpr{addend}, 0, 0, 0, 0, 0, {EX}, implicit $mode"


DOT = ours.make("v_dot2_f32_f16", ours.v(0), ours.v(1), ours.v(2), ours.v(3))
CHAIN = ours.make("v_dot2_f32_f16", ours.v(0), ours.v(1), ours.v(2), ours.v(0))
F64 = ours.make("v_mfma_f64_16x16x4f64", ours.v(0, 8), ours.v(32, 2), ours.v(34, 2), ours.v(0, 8))
SMALL64 = ours.make("v_mfma_f64_4x4x4f64", ours.v(0, 2), ours.v(32, 2), ours.v(34, 2), ours.v(0, 2))
GLOBAL_LDS = ours.make("global_load_lds_dword", ours.v(0, 2), OFF)
FP8_HIGH = "$vgpr0 = V_CVT_PK_FP8_F32_e64 8, $vgpr1, 0, $vgpr2"
UPPER = ours.make("v_cvt_pk_fp8_f32", ours.v(0), ours.v(1), ours.v(2), op_sel=(0, 0, 1))
MATRIX_WRITE = (MATRIX["16x16x16f16"](0, 32, 36, 40), ours.mfma("16x16x16f16", 0, 32, 36, 40))
SWAP_WIDE = f"{regs(0, 4)}, 0, 0, {EX}"
SWAP_BUFFER = f"BUFFER_ATOMIC_CMPSWAP_X2_OFFEN {regs(0, 4)}, $vgpr9, {regs(4, 4, 'sgpr')}, 0, 0, 0, {EX}"
OURS = ours.CASES
MORE = {
    # what the file lacks, or has of another encoding: name → (machine IR, ours)
    "dot -> VALU read": ((dot(3), READ), (DOT, ours.READ)),
    "dot -> dot srcC": ((dot(0), dot(0)), (CHAIN, CHAIN)),
    "f64 16x16x4 -> VALU read": ((f64("16X16X4F64", 8), READ), (F64, ours.READ)),
    "f64 16x16x4 -> VMEM store data": ((f64("16X16X4F64", 8), STORE), (F64, ours.STORE)),
    "f64 4x4x4 -> VALU read": ((f64("4X4X4F64", 2), READ), (SMALL64, ours.READ)),
    "f64 4x4x4 -> VMEM store data": ((f64("4X4X4F64", 2), STORE), (SMALL64, ours.STORE)),
    "f64 4x4x4 -> itself": ((f64("4X4X4F64", 2),) * 2, (SMALL64, SMALL64)),
    "fp8 to the upper half -> VALU read": ((f"{FP8_HIGH}, $vgpr0, 0, {MODE}", READ), (UPPER, ours.READ)),
    # what is stored, overwritten by something else than a move, and by atomics of four words
    "global_store_dwordx4 -> MFMA writes data": (
        (PAIRS["global_store_dwordx4 -> VALU write data"][0], MATRIX_WRITE[0]),
        (OURS["global_store_dwordx4 -> VALU write data"][0], MATRIX_WRITE[1]),
    ),
    "global cmpswap_x2 -> VALU write data": (
        (f"GLOBAL_ATOMIC_CMPSWAP_X2 $vgpr8_vgpr9, {SWAP_WIDE}", WRITE),
        (ours.make("global_atomic_cmpswap_x2", ours.v(8, 2), ours.v(0, 4), OFF), ours.WRITE),
    ),
    "buffer cmpswap_x2 -> VALU write data": (
        (SWAP_BUFFER, WRITE),
        (ours.make("buffer_atomic_cmpswap_x2", ours.v(0, 4), ours.v(9), ours.s(4, 4), 0, offen=True), ours.WRITE),
    ),
    "scratch_store_dwordx4 -> VALU write data": (
        (f"SCRATCH_STORE_DWORDX4_SADDR {regs(0, 4)}, $sgpr32, 0, 0, {EX}, implicit $flat_scr", WRITE),
        (ours.make("scratch_store_dwordx4", OFF, ours.v(0, 4), ours.s(32)), ours.WRITE),
    ),
    "SDWA dst_sel WORD_1 -> MFMA writes it": (
        (PAIRS["SDWA dst_sel WORD_1 -> VALU read"][0], MATRIX_WRITE[0]),
        (OURS["SDWA dst_sel WORD_1 -> VALU read"][0], MATRIX_WRITE[1]),
    ),
    "m0 -> global load to LDS": (PAIRS["s_mov m0 -> global_load_lds"], (ours.make("s_mov_b32", M0, 0), GLOBAL_LDS)),
}


def exists(what: str, target: str) -> bool:
    """Whether the chip has the instructions; machine IR takes them everywhere."""
    if target == "gfx90a" and ("fp8" in what or what == "m0 -> global load to LDS"):
        return False
    return target == "gfx950" or not ("permlane" in what or what.startswith("MFMA 16x16x32_f16"))


def recognised(llc: str, target: str, pairs: dict[str, tuple[str, ...]], folder: Path) -> dict[str, int]:
    """Name → wait states that LLVM puts between (and before) the instructions of a pair."""
    names = list(pairs)
    text = "".join(
        f"---\nname: pair{i}\ntracksRegLiveness: false\nbody: |\n  bb.0:\n"
        + "".join(f"    {line}\n" for line in (*pairs[name], "S_ENDPGM 0"))
        + "...\n"
        for i, name in enumerate(names)
    )
    path = folder / "pairs.mir"
    path.write_text(text)
    command = [llc, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-run-pass=post-RA-hazard-rec", "-o", "-"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    functions = re.split(r"^name: +pair(\d+)$", done.stdout, flags=re.MULTILINE)[1:]
    found = {names[int(n)]: body for n, body in zip(functions[::2], functions[1::2])}
    assert set(found) == set(pairs)
    return {name: sum(int(n) + 1 for n in re.findall(r"S_NOP (\d+)", body)) for name, body in found.items()}


@pytest.mark.parametrize("target", TARGETS)
def test_every_pair(target: str, oracle: Callable[[str], str], tmp_path: Path) -> None:
    assert set(PAIRS) == {what for what, _ in ours.MEASURED}
    here = {what: pair for what, pair in PAIRS.items() if exists(what, target)}
    more = {name: both for name, both in MORE.items() if exists(name, target)}
    llvm = recognised(oracle("llc"), target, here | {name: mir for name, (mir, _) in more.items()}, tmp_path)
    at = TARGETS.index(target)
    stored = {what: states[at] for what, states in ours.MEASURED if exists(what, target)}
    assert {what: llvm[what] for what in here} == stored
    llvm |= {what: states[at] for what, states in ours.STRICTER.items()}
    table = {what: ours.CASES[what] for what in here if what not in ours.DIFFERENT}
    table |= {name: pair for name, (_, pair) in more.items()}
    required = {
        what: hazard_rules.required(producer(target), consumer(target), target)
        for what, (producer, consumer) in table.items()
    }
    assert required == {what: llvm[what] for what in table}


# ---- sparse products


def sparse_mir(m, k, d, a, b, index):
    n = m * m // 64
    operands = f"{regs(a, 2)}, {regs(b, 4)}, $vgpr{index}, 0, 0, {regs(d, n)}(tied-def 0)"
    return f"{regs(d, n)} = V_SMFMAC_F32_{m}X{m}X{k}_F16_e64 {operands}, {MODE}"


def sparse_ours(m, k, d, a, b, index):
    v = ours.v
    return ours.make(f"v_smfmac_f32_{m}x{m}x{k}_f16", v(d, m * m // 64), v(a, 2), v(b, 4), v(index))


def dense_product(d, a, c):
    """A dense product of 16 x 16 as (machine IR, ours)."""
    early = "" if d == c else "early-clobber "
    text = f"{early}{regs(d, 4)} = V_MFMA_F32_16X16X16F16_vgprcd_e64 {regs(a, 2)}, {regs(36, 2)}, {regs(c, 4)}, 0, 0, 0"
    return f"{text}, {MODE}", ours.mfma("16x16x16f16", d, a, 36, c)


def sparse_pairs():
    """Name → ((machine IR, ours) of the producer, of the consumer)."""
    read, store, write = ((READ, ours.READ), (STORE, ours.STORE), (WRITE, ours.WRITE))
    ds = (f"DS_WRITE_B32_gfx9 $vgpr41, $vgpr0, 0, 0, {EX}", ours.make(
        "ds_write_b32", ours.v(41), ours.v(0)))  # fmt: skip
    out = {}
    for m, k in ((32, 16), (16, 32)):

        def sparse(d, a, b, index, m=m, k=k):
            return sparse_mir(m, k, d, a, b, index), sparse_ours(m, k, d, a, b, index)

        other = (16, 32) if m == 32 else (32, 16)
        first = sparse(0, 32, 36, 42)
        uses = {
            "VALU read": read, "VMEM store data": store, "DS write data": ds, "VALU write": write,
            "itself": first, "dense srcA": dense_product(48, 0, 48), "dense srcC overlapped": dense_product(2, 32, 2),
            "sparse srcA": sparse(48, 0, 36, 42), "sparse srcB": sparse(48, 32, 0, 42),
            "sparse index": sparse(48, 32, 36, 0), "sparse D overlapped": sparse(2, 32, 36, 42),
            "the other sparse D": (sparse_mir(*other, 0, 32, 36, 42), sparse_ours(*other, 0, 32, 36, 42)),
            "dense srcC": dense_product(0, 32, 0),
        }  # fmt: skip
        out |= {f"{m}x{m}x{k} D -> {what}": (first, use) for what, use in uses.items()}
        out |= {
            f"VALU -> {m}x{m}x{k} srcA": (write, sparse(48, 0, 36, 42)),
            f"VALU -> {m}x{m}x{k} srcB": (write, sparse(48, 32, 0, 42)),
            f"VALU -> {m}x{m}x{k} index": (write, sparse(48, 32, 36, 0)),
            f"VALU -> {m}x{m}x{k} D": (write, first),
            f"{m}x{m}x{k} srcA -> VALU write": (sparse(16, 0, 36, 42), write),
            f"{m}x{m}x{k} index -> VALU write": (sparse(16, 32, 36, 0), write),
            f"dense D -> {m}x{m}x{k} D overlapped": (dense_product(2, 32, 2), first),
            f"dense D -> {m}x{m}x{k} index": (dense_product(0, 32, 0), sparse(48, 32, 36, 0)),
        }
    return out


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_every_pair_of_sparse_products(target: str, oracle: Callable[[str], str], tmp_path: Path) -> None:
    table = sparse_pairs()
    llvm = recognised(oracle("llc"), target, {what: (p[0], c[0]) for what, (p, c) in table.items()}, tmp_path)
    required = {what: hazard_rules.required(p[1](target), c[1](target), target) for what, (p, c) in table.items()}
    assert required == llvm


# ---- clauses


LOADS = [f"$vgpr{to} = GLOBAL_LOAD_DWORD {regs(at, 2)}, 0, 0, {EX}" for to, at in ((20, 0), (21, 2), (0, 4))]


@pytest.mark.parametrize("target", TARGETS)
def test_clauses_are_broken_as_llvm_breaks_them(target: str, oracle: Callable[[str], str], tmp_path: Path) -> None:
    """A chip may have XNACK on where the target does not say; what `clauses` and the emulator's (CLAUSE) restate."""
    rows = {
        "next to it": (LOADS[0], LOADS[2]), "with another between": tuple(LOADS), "not an address": tuple(LOADS[:2]),
        "arithmetic between": (LOADS[0], "S_NOP 0", LOADS[2]),
    }  # fmt: skip
    found = recognised(oracle("llc"), target, rows, tmp_path)
    assert found == {"next to it": 1, "with another between": 1, "not an address": 0, "arithmetic between": 1}
