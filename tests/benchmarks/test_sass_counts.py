"""Numbers of benchmarks/sass_counts.py stay within their limits, and its reader sees the loops of a listing."""

from __future__ import annotations

from typing import Any

import example_files
import pytest

counts = example_files.load("sass_counts", example_files.BENCHMARKS)
sass = counts.sass
CASES = {f"{case.name}, {case.arch}": case for case in counts.cases()}
QUICK = ("gemm 128x256x64, sm_90a", "gemm 128x128x32, sm_80", "attention 128, sm_90a", "gemv 1, sm_80", "copy, sm_90a")


def _when(name: str, place: int) -> list[Any]:
    """Three quarters of what is slow are left to be run by hand."""
    return [] if name in QUICK else [pytest.mark.slow, *([pytest.mark.exhaustive] if place % 4 else [])]


@pytest.mark.parametrize("name", [pytest.param(n, marks=_when(n, i)) for i, n in enumerate(CASES)])
def test_within_limits(name: str, oracle: Any) -> None:
    oracle("ptxas"), oracle("nvdisasm")
    found = counts.counted([CASES[name]])
    assert found and counts.over(found) == []


def test_a_number_above_its_limit_is_found() -> None:
    rows = [{"kernel": "k", "what": "x", "value": 2, "limit": limit} for limit in (1, 2, None)]
    assert counts.over(rows) == rows[:1]


READS = """
        /*0000*/                   FFMA R28, R135.reuse, R142.reuse, R28 ;
        /*0010*/                   FFMA R32, R135, R143.reuse, R32 ;
        /*0020*/                   LDS.128 R4, [R44+0x450] ;
        /*0030*/                   FFMA R31, R132.reuse, R142, R31 ;
        /*0040*/                   FFMA R35, R132, R143, R35 ;
        /*0050*/                   FFMA R36, R132, R142, R36 ;
"""


def test_registers_that_are_at_hand_are_not_read() -> None:
    """R135 and R132 are read once for two, R142 and R143 once for all but the last: they lie in different banks, and
    what is not marked does not stay."""
    instructions, _ = sass.listed(READS)
    assert sass.operand_reads(instructions) == (3 + 2 + 2 + 1 + 3) / 5
    assert sass.operand_reads(instructions[2:3]) == 0


LISTING = """
.text.k:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   IADD3 R1, R1, 0x1, RZ ;
.L_x_2:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R7+URZ+0x38020], R6 ;
        /*0030*/              @!P0 BRA `(.L_x_8) ;
.L_x_3:
        /*0040*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR12], R24, gsb0 ;
        /*0050*/              @!P1 BRA `(.L_x_2) ;
        /*0060*/                   BSSY B0, `(.L_x_5) ;
        /*0070*/               @P2 BRA `(.L_x_4) ;
        /*0080*/                   FADD R2, R2, R3 ;
        /*0090*/                   BSYNC B0 ;
.L_x_4:
        /*00a0*/                   FMUL R2, R2, R3 ;
        /*00b0*/                   BSYNC B0 ;
.L_x_5:
        /*00c0*/              @!P3 BRA `(.L_x_1) ;
        /*00d0*/                   STG.E.64 desc[UR4][R4.64], R2 ;
        /*00e0*/                   EXIT ;
.L_x_8:
        /*00f0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R7+URZ+0x38020], R6 ;
        /*0100*/              @!P0 BRA `(.L_x_8) ;
        /*0110*/                   BRA `(.L_x_3) ;
.L_x_9:
        /*0120*/                   BRA `(.L_x_9);
        /*0130*/                   NOP;
"""


def test_loops_of_a_listing() -> None:
    """Two nested loops; the wait that lies behind the end is none, though a branch leads back from there."""
    machine = sass.Machine(0, 0, (), *sass.listed(LISTING))
    outer, inner = machine.loops
    assert [one.name for one in outer.trip] == ["IADD3", "BSSY", "BRA", "FADD", "BSYNC", "FMUL", "BSYNC", "BRA"]
    assert [one.kind for one in inner.trip] == ["signal", "branch", "product", "branch", "branch"]
    assert (outer.depth, inner.depth) == (1, 2)
    assert inner.flops == 2 * 64 * 256 * 16 // 4 and outer.flops == 0
    assert machine.accesses() == [64]
    assert machine.counts["branch"] == 11 and "nop" not in machine.counts
