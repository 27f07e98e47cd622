"""Producers and consumers by the names of tests/data/cdna_hazards.txt, which llc 22 measured, as rows of our tables."""

from __future__ import annotations

import re
from pathlib import Path

from wavedsl.codegen.amdgcn.footprint import Footprint
from wavedsl.codegen.amdgcn.isa import EXEC, M0, OFF, VCC, Reg, lookup

DATA = (Path(__file__).parents[1] / "data" / "cdna_hazards.txt").read_text().splitlines()


def v(i, n=1):
    return Reg("v", i, n)


def s(i, n=1):
    return Reg("s", i, n)


def make(mnemonic, *operands, **modifiers):
    return lambda target: Footprint(lookup(mnemonic, target), operands, modifiers)


MFMAS = {
    "4x4x4f16": ("v_mfma_f32_4x4x4f16", 4, 2), "16x16x16f16": ("v_mfma_f32_16x16x16f16", 4, 2),
    "32x32x8f16": ("v_mfma_f32_32x32x8f16", 16, 2), "16x16x4f32": ("v_mfma_f32_16x16x4f32", 4, 1),
    "16x16x32_f16": ("v_mfma_f32_16x16x32_f16", 4, 4),
}  # fmt: skip


def mfma(kind, d, a, b, c):
    mnemonic, nd, na = MFMAS[kind]
    return make(mnemonic, v(d, nd), v(a, na), v(b, na), v(c, nd))


READ = make("v_add_f32_e32", v(40), v(0), v(41))
WRITE = make("v_mov_b32_e32", v(0), 0)
STORE = make("global_store_dword", v(41), v(0), s(4, 2))
FIRST = make("v_readfirstlane_b32", s(4), v(1))
CMPX = make("v_cmpx_lt_u32_e32", VCC, v(50), v(51))
DPP = make("v_mov_b32_dpp", v(40), v(0), dpp="row_shr:1")
EXP = make("v_exp_f32_e32", v(0), v(41))
A16 = mfma("16x16x16f16", 48, 0, 36, 48)
C16 = mfma("16x16x16f16", 0, 32, 36, 0)
LDS_LOAD = make("buffer_load_dword lds", v(0), s(4, 4), 0, offen=True)
SETREG = make("s_setreg_imm32_b32", "hwreg(HW_REG_MODE)", 3)


def cases():
    """Line of the data → (producer, consumer)."""
    out = {
        "VALU write VGPR -> MFMA srcA": (WRITE, A16),
        "VALU write VGPR -> MFMA srcC": (WRITE, C16),
        "v_cmpx writes EXEC -> MFMA": (CMPX, A16),
        "VALU write VGPR -> v_readfirstlane": (WRITE, make("v_readfirstlane_b32", s(4), v(0))),
        "VALU write VGPR -> v_readlane (imm lane)": (WRITE, make("v_readlane_b32", s(4), v(0), 1)),
        "v_readfirstlane -> VALU read SGPR": (FIRST, make("v_mov_b32_e32", v(2), s(4))),
        "v_readfirstlane -> SALU read SGPR": (FIRST, make("s_mov_b32", s(9), s(4))),
        "v_readfirstlane -> VMEM SGPR (saddr)": (FIRST, make("global_load_dword", v(9), v(8), s(4, 2))),
        "v_readfirstlane -> v_readlane lane-select SGPR": (FIRST, make("v_readlane_b32", s(9), v(8), s(4))),
        "v_readfirstlane -> s_load base": (FIRST, make("s_load_dword", s(9), s(4, 2), 0)),
        "v_cmp vcc -> v_cndmask (vcc)": (
            make("v_cmp_lt_u32_e32", VCC, v(1), v(2)),
            make("v_cndmask_b32_e32", v(3), v(4), v(5), VCC),
        ),
        "v_cmp sgpr pair -> v_cndmask_e64": (
            make("v_cmp_lt_u32_e64", s(4, 2), v(1), v(2)),
            make("v_cndmask_b32_e64", v(3), v(4), v(5), s(4, 2)),
        ),
        "v_cmp vcc -> s_cbranch_vccnz": (make("v_cmp_lt_u32_e32", VCC, v(1), v(2)), make("s_cbranch_vccnz", "x")),
        "v_add_co -> v_addc_co (vcc carry)": (
            make("v_add_co_u32_e32", v(1), VCC, v(2), v(3)),
            make("v_addc_co_u32_e32", v(4), VCC, v(5), v(6), VCC),
        ),
        "v_cmp vcc -> v_div_fmas": (
            make("v_cmp_lt_u32_e32", VCC, v(1), v(2)),
            make("v_div_fmas_f32", v(3), v(4), v(5), v(6)),
        ),
        "v_exp (trans) -> non-trans VALU read": (EXP, READ),
        "v_exp (trans) -> trans VALU read": (EXP, make("v_log_f32_e32", v(3), v(0))),
        "v_exp (trans) -> VMEM store data": (EXP, STORE),
        "v_exp (trans) -> MFMA srcA": (EXP, A16),
        "VALU write -> DPP read": (WRITE, DPP),
        "v_cmpx EXEC -> DPP": (CMPX, DPP),
        "s_mov EXEC -> DPP": (make("s_mov_b64", EXEC, -1), DPP),
        "v_cmpx EXEC -> v_readlane": (CMPX, make("v_readlane_b32", s(4), v(0), 1)),
        "s_setreg MODE -> s_getreg MODE": (SETREG, make("s_getreg_b32", s(4), "hwreg(HW_REG_MODE)")),
        "s_setreg MODE -> s_setreg MODE": (SETREG, SETREG),
        "s_mov m0 -> buffer_load lds": (make("s_mov_b32", M0, s(4)), LDS_LOAD),
        "s_mov m0 -> s_sendmsg": (make("s_mov_b32", M0, s(4)), make("s_sendmsg", "sendmsg(MSG_INTERRUPT)")),
        "s_mov m0 -> ds_read_b32 (no M0 use gfx9)": (make("s_mov_b32", M0, s(4)), make("ds_read_b32", v(1), v(2))),
        "buffer_store_dwordx4 (soffset imm) -> VALU write data": (
            make("buffer_store_dwordx4", v(0, 4), OFF, s(4, 4), 0),
            WRITE,
        ),
        "buffer_store_dwordx4 (soffset SGPR) -> VALU write data": (
            make("buffer_store_dwordx4", v(0, 4), OFF, s(4, 4), s(9)),
            WRITE,
        ),
        "buffer_store_dwordx2 -> VALU write data": (make("buffer_store_dwordx2", v(0, 2), OFF, s(4, 4), 0), WRITE),
        "global_store_dwordx4 -> VALU write data": (make("global_store_dwordx4", v(8, 2), v(0, 4), OFF), WRITE),
        "ds_write_b128 -> VALU write data": (make("ds_write_b128", v(9), v(0, 4)), WRITE),
        "SALU write SGPR -> VMEM read SGPR": (make("s_mov_b32", s(4), 0), STORE),
        "SALU write m0 -> v_readlane m0?": (make("s_mov_b32", M0, 0), make("v_readlane_b32", s(4), v(0), M0)),
        "SDWA dst_sel WORD_1 -> VALU read": (make("v_add_f32_sdwa", v(0), v(1), v(2), dst_sel="WORD_1"), READ),
        "VALU write -> v_permlane32_swap": (WRITE, make("v_permlane32_swap_b32_e32", v(0), v(1))),
        "v_permlane32_swap -> VALU read": (make("v_permlane32_swap_b32_e32", v(0), v(1)), READ),
    }
    for kind in MFMAS:
        first = mfma(kind, 0, 32, 36, 0)
        out |= {
            f"MFMA {kind} D -> VALU read": (first, READ),
            f"MFMA {kind} D -> VMEM store data": (first, STORE),
            f"MFMA {kind} D -> DS write data": (first, make("ds_write_b32", v(41), v(0))),
            f"MFMA {kind} D -> VALU write (WAW)": (first, WRITE),
            f"MFMA {kind} srcC -> VALU write (WAR)": (mfma(kind, 16, 32, 36, 0), WRITE),
            f"MFMA {kind} srcA -> VALU write (WAR)": (mfma(kind, 16, 0, 36, 40), WRITE),
            f"MFMA {kind} D -> same-op srcC exact (acc chain)": (first, first),
            f"MFMA {kind} D -> 16x16x16f16 srcA": (first, A16),
            f"MFMA {kind} D -> 16x16x16f16 srcC overlapped(+2)": (first, mfma("16x16x16f16", 2, 32, 36, 2)),
            f"MFMA {kind} D -> 16x16x4f32 srcC overlapped(+2)": (first, mfma("16x16x4f32", 2, 32, 36, 2)),
        }
    return out


CASES = cases()
PARSED = [re.fullmatch(r"(.*?)\s+gfx90a=(\d+)\s+gfx942=(\d+)\s+gfx950=(\d+)", line) for line in DATA]
MEASURED = [(m.group(1), tuple(int(x) for x in m.groups()[1:])) for m in PARSED if m]
DIFFERENT = {"op_sel dst hi write -> VALU read", "s_mov m0 -> global_load_lds"}
"""Measured without op_sel in the encoding; no instruction of gfx90a. `test_hazards_llc` has pairs that are ours."""
STRICTER = {"buffer_store_dwordx4 (soffset SGPR) -> VALU write data": (0, 1, 1)}
"""Where LLVM 22 is wrong: gfx950 was seen to store what the next instruction wrote (llvm-project#197267, which later
releases have)."""
