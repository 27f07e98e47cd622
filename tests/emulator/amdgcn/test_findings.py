"""Each kind of finding: one defect is put into good text, and the report names the instruction and the line at
fault.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from amdgcn_harness import line_of, load_case, module, run
from wavedsl.ir.errors import EmulationError, LaunchError
from wavedsl.runtime.emulator import run as emulate
from wavedsl.runtime.emulator.amdgcn.emulator import run_amdgcn

LOAD = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[8:9]
s_waitcnt vmcnt(0)
v_add_u32 v3, 1, v2
global_store_dword v1, v3, s[10:11]
"""


def arrays(n=64):
    return np.arange(n, dtype=np.uint32), np.zeros(n, np.uint32)


def kinds(report):
    return [f.kind for f in report.findings]


def only(report, kind, instruction):
    assert kinds(report) == [kind], [str(f) for f in report.findings]
    assert report.findings[0].instruction == instruction, str(report.findings[0])
    assert report.findings[0].line > 0


def test_good_text_has_no_finding():
    a, b = arrays()
    assert run(LOAD, [a, b]).findings == []
    assert (b == a + 1).all()


# ---- missing-wait


def test_missing_wait_for_a_load():
    only(run(LOAD.replace("s_waitcnt vmcnt(0)\n", ""), arrays()), "missing-wait", "v_add_u32 v3, 1, v2")


def test_missing_wait_for_a_scalar_load():
    report = run(LOAD.replace("s_waitcnt lgkmcnt(0)\n", ""), arrays())
    assert report.findings[0].kind == "missing-wait"
    assert report.findings[0].instruction == "global_load_dword v2, v1, s[8:9]"


def test_a_counted_wait_covers_the_older_load_only():
    body = LOAD.replace(
        "s_waitcnt vmcnt(0)\nv_add_u32 v3, 1, v2",
        "global_load_dword v4, v1, s[8:9]\ns_waitcnt vmcnt(1)\nv_add_u32 v3, 1, {}",
    )
    assert run(body.format("v2"), arrays()).findings == []
    only(run(body.format("v4"), arrays()), "missing-wait", "v_add_u32 v3, 1, v4")


def test_scalar_loads_finish_in_any_order():
    body = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
s_load_dwordx2 s[10:11], s[0:1], 0x8
s_waitcnt lgkmcnt(1)
s_add_u32 s12, s8, 0
s_waitcnt lgkmcnt(0)
"""
    only(run(body, arrays()), "missing-wait", "s_add_u32 s12, s8, 0")


def test_overwriting_the_target_of_a_load():
    body = LOAD.replace("s_waitcnt vmcnt(0)", "v_mov_b32 v2, 0\ns_waitcnt vmcnt(0)")
    only(run(body, arrays()), "missing-wait", "v_mov_b32 v2, 0")


def test_a_load_may_follow_a_load_into_the_same_register():
    body = LOAD.replace("s_waitcnt vmcnt(0)", "global_load_dword v2, v1, s[8:9]\ns_waitcnt vmcnt(0)")
    assert run(body, arrays()).findings == []


def test_stores_count_on_vmcnt():
    body = LOAD.replace("s_waitcnt vmcnt(0)", "global_store_dword v1, v1, s[10:11]\ns_waitcnt vmcnt(1)")
    assert run(body, arrays()).findings == []


DMA = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_mov_b32 m0, 0
s_waitcnt lgkmcnt(0)
s_mov_b32 s12, s8
s_and_b32 s13, s9, 0xffff
s_mov_b32 s14, 0x1000
s_mov_b32 s15, 0x27000
buffer_load_dword v1, s[12:15], 0 offen lds
s_waitcnt vmcnt(0)
ds_read_b32 v2, v1
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[10:11]
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("seed", range(3))
def test_direct_to_lds(target, seed):
    a, b = arrays()
    assert run(DMA, [a, b], lds=256, target=target, seed=seed).findings == []
    assert (a == b).all()
    only(
        run(DMA.replace("s_waitcnt vmcnt(0)\n", ""), [a, b], lds=256, target=target, seed=seed),
        "missing-wait",
        "ds_read_b32 v2, v1",
    )


def test_a_direct_copy_must_not_overtake_a_read():
    body = DMA.replace(
        "s_waitcnt lgkmcnt(0)\nglobal", "buffer_load_dword v1, s[12:15], 0 offen lds\ns_waitcnt lgkmcnt(0)\nglobal"
    )
    only(run(body, arrays(), lds=256), "race", "buffer_load_dword v1, s[12:15], 0 offen lds")


# ---- hazard


def test_hazard_m0():
    body = DMA.replace("s_mov_b32 m0, 0\n", "").replace("buffer_load", "s_mov_b32 m0, 0\nbuffer_load")
    only(run(body, arrays(), lds=256), "hazard", "buffer_load_dword v1, s[12:15], 0 offen lds")


MFMA = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 1.0
v_mov_b32 v3, 1.0
s_nop 1
v_mfma_f32_16x16x4_f32 v[4:7], v2, v3, 0
{}
v_add_f32 v8, v4, v5
s_waitcnt lgkmcnt(0)
global_store_dword v1, v8, s[10:11]
"""


@pytest.mark.parametrize("target,states", [("gfx942", 10), ("gfx950", 10)])
def test_hazard_matrix_result(target, states):
    good = f"s_nop {states - 1}"
    a, b = arrays()
    assert run(MFMA.format(good), [a, b], target=target).findings == []
    assert (b.view(np.float32) == 8.0).all()
    only(run(MFMA.format(f"s_nop {states - 2}"), [a, b], target=target), "hazard", "v_add_f32 v8, v4, v5")


SPARSE = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 1.0
v_mov_b32 v3, 1.0
v_mov_b32 v4, 1.0
v_mov_b32 v5, 1.0
v_mov_b32 v6, 1.0
v_mov_b32 v7, 1.0
v_mov_b32 v8, 0
v_mov_b32 v9, 0
v_mov_b32 v10, 0
v_mov_b32 v11, 0
{index}
{before}
v_smfmac_f32_16x16x32_f16 v[8:11], v[2:3], v[4:7], v12
{after}
v_add_f32 v13, v8, v8
s_waitcnt lgkmcnt(0)
global_store_dword v1, v13, s[10:11]
"""
PLACES = "v_mov_b32 v12, 0x88"


def test_hazards_of_a_sparse_product():
    """Four passes: seven states to the result, two from the index."""
    good = {"index": PLACES, "before": "s_nop 1", "after": "s_nop 6"}
    assert run(SPARSE.format(**good), arrays()).findings == []
    only(run(SPARSE.format(**{**good, "after": "s_nop 5"}), arrays()), "hazard", "v_add_f32 v13, v8, v8")
    product = "v_smfmac_f32_16x16x32_f16 v[8:11], v[2:3], v[4:7], v12"
    only(run(SPARSE.format(**{**good, "before": "s_nop 0"}), arrays()), "hazard", product)


def test_places_that_nobody_wrote():
    """They steer the product as an address steers an access, so they are not let through."""
    report = run(SPARSE.format(index="", before="s_nop 1", after="s_nop 6"), arrays())
    assert kinds(report)[0] == "uninitialised-read" and "v12" in report.findings[0].message


def test_an_undefined_addend_of_a_sparse_product():
    body = SPARSE.format(index=PLACES, before="s_nop 1", after="s_nop 6").replace("v_mov_b32 v8, 0\n", "")
    only(run(body, arrays()), "uninitialised-read", "v_smfmac_f32_16x16x32_f16 v[8:11], v[2:3], v[4:7], v12")


def test_hazard_across_a_branch():
    """The wait states count along the way that was taken."""
    body = """
v_mov_b32 v2, 1.0
v_mov_b32 v3, 1.0
s_nop 1
v_mfma_f32_16x16x4_f32 v[4:7], v2, v3, 0
s_branch over
s_nop 15
over:
v_mov_b32 v9, v4
"""
    only(run(body, arrays()), "hazard", "v_mov_b32 v9, v4")


def test_hazard_readfirstlane():
    body = "v_mov_b32 v2, 1\n{}v_readfirstlane_b32 s4, v2\n"
    only(run(body.format(""), arrays()), "hazard", "v_readfirstlane_b32 s4, v2")
    assert run(body.format("s_nop 0\n"), arrays()).findings == []
    assert run(body.format(""), arrays(), target="gfx90a").findings == []


def test_hazard_vcc_to_cndmask():
    body = "v_cmp_eq_u32 vcc, v0, v0\n{}v_cndmask_b32 v1, 0, 1, vcc\n"
    only(run(body.format("s_nop 0\n"), arrays()), "hazard", "v_cndmask_b32 v1, 0, 1, vcc")
    assert run(body.format("s_nop 1\n"), arrays()).findings == []


def test_a_clause_overwrites_what_it_reads():
    """Both loads may be issued again when the first one's page comes in."""
    body = LOAD.replace("s_waitcnt vmcnt(0)", "{}global_load_dword v1, v4, s[8:9]\ns_waitcnt vmcnt(0)", 1)
    body = body.replace("v_add_u32 v3, 1, v2", "v_add_u32 v3, 1, v2\nv_lshlrev_b32 v1, 2, v0")
    body = "v_mov_b32 v4, 0\n" + body
    only(run(body.format(""), arrays()), "hazard", "global_load_dword v1, v4, s[8:9]")
    for between in ("s_nop 0\n", "v_mov_b32 v5, 0\n", "global_load_dword v6, v4, s[8:9]\ns_nop 0\n"):
        assert run(body.format(between), arrays()).findings == [], between
    longer = body.format("global_load_dword v6, v4, s[8:9]\n")
    only(run(longer, arrays()), "hazard", "global_load_dword v1, v4, s[8:9]")


# ---- uninitialised-read


def test_uninitialised_register_stored():
    body = LOAD.replace("global_store_dword v1, v3", "global_store_dword v1, v9")
    only(run(body, arrays()), "uninitialised-read", "global_store_dword v1, v9, s[10:11]")


def test_uninitialised_value_through_arithmetic():
    body = LOAD.replace("v_add_u32 v3, 1, v2", "v_add_u32 v3, v9, v2")
    only(run(body, arrays()), "uninitialised-read", "v_add_u32 v3, v9, v2")


def test_uninitialised_address():
    body = LOAD.replace("global_load_dword v2, v1,", "global_load_dword v2, v9,")
    report = run(body, arrays())
    assert report.findings[0].kind == "uninitialised-read"
    assert report.findings[0].instruction == "global_load_dword v2, v9, s[8:9]"


def test_uninitialised_but_unused_is_no_finding():
    body = LOAD.replace("v_add_u32 v3, 1, v2", "v_add_u32 v4, v9, v2\nv_add_u32 v3, 1, v2")
    assert run(body, arrays()).findings == []


def test_uninitialised_lanes_only():
    """Lanes that EXEC masked off when the register was written are undefined when all are stored."""
    body = LOAD.replace("v_add_u32 v3, 1, v2", "s_mov_b64 exec, 0xff\nv_add_u32 v3, 1, v2\ns_mov_b64 exec, -1")
    report = run(body, arrays())
    only(report, "uninitialised-read", "global_store_dword v1, v3, s[10:11]")
    assert report.findings[0].lane == 8


def test_uninitialised_branch_condition():
    body = "s_cmp_eq_u32 s50, 0\ns_cbranch_scc1 over\ns_nop 0\nover:\n"
    only(run(body, arrays()), "uninitialised-read", "s_cmp_eq_u32 s50, 0")


LDS = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_xor_b32 v4, 0x100, v1
s_waitcnt lgkmcnt(0)
ds_write_b32 v1, v0
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v3, v4
s_waitcnt lgkmcnt(0)
global_store_dword v1, v3, s[10:11]
"""


def test_lds_exchange_is_good():
    a, b = arrays(128)
    assert run(LDS, [a, b], block=128, lds=512).findings == []
    assert (b == np.arange(128) ^ 64).all()


def test_uninitialised_lds():
    body = LDS.replace("ds_write_b32 v1, v0\n", "")
    report = run(body, arrays(128), block=128, lds=512)
    only(report, "uninitialised-read", "ds_read_b32 v3, v4")


# ---- race


def test_race_read_without_barrier():
    report = run(LDS.replace("s_barrier\n", ""), arrays(128), block=128, lds=512)
    only(report, "race", "ds_read_b32 v3, v4")
    assert "with no barrier between" in report.findings[0].message


def test_race_write_after_read():
    body = LDS + "ds_write_b32 v1, v0\n"
    only(run(body, arrays(128), block=128, lds=512), "race", "ds_write_b32 v1, v0")
    assert run(LDS + "s_barrier\nds_write_b32 v1, v0\n", arrays(128), block=128, lds=512).findings == []


def test_race_read_not_returned_before_the_barrier():
    """A barrier does not order a read that was not waited for."""
    body = LDS.replace(
        "ds_read_b32 v3, v4\ns_waitcnt lgkmcnt(0)",
        "ds_read_b32 v3, v4\ns_barrier\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)",
    )
    report = run(body, arrays(128), block=128, lds=512)
    only(report, "race", "ds_write_b32 v1, v0")
    assert "and had not waited for (lgkmcnt) when it came to the barrier" in report.findings[0].message


def test_race_write_not_done_before_the_barrier():
    """There is a barrier, and the finding says what is wrong with it."""
    body = LDS.replace("ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)", "ds_write_b32 v1, v0")
    report = run(body, arrays(128), block=128, lds=512)
    only(report, "race", "ds_read_b32 v3, v4")
    assert "and had not waited for (lgkmcnt) when it came to the barrier" in report.findings[0].message
    assert "s_waitcnt for that counter in front of the barrier" in report.findings[0].hint


def test_race_two_writers():
    body = LDS.replace(
        "ds_write_b32 v1, v0",
        "v_mov_b32 v5, 0\nds_write_b32 v5, v1\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_write_b32 v1, v0",
    )
    assert "race" in kinds(run(body, arrays(128), block=128, lds=512))


def test_equal_writes_are_no_race():
    body = LDS.replace(
        "ds_write_b32 v1, v0",
        "v_mov_b32 v5, 0\nds_write_b32 v5, v5\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_write_b32 v1, v0",
    )
    assert run(body, arrays(128), block=128, lds=512).findings == []


def test_neighbouring_bytes_are_no_race():
    body = """
v_and_b32 v0, 0x3ff, v0
ds_write_b8 v0, v0
v_lshlrev_b32 v1, 1, v0
ds_write_b16 v1, v0 offset:256
s_waitcnt lgkmcnt(0)
"""
    assert run(body, arrays(128), block=128, lds=1024).findings == []


def test_lds_atomics_order_themselves():
    body = """
v_mov_b32 v1, 0
v_mov_b32 v2, 1
v_cmp_gt_u32 vcc, 1, v0
s_and_saveexec_b64 s[20:21], vcc
ds_write_b32 v1, v1
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, s[20:21]
s_barrier
ds_add_u32 v1, v2
ds_add_rtn_u32 v3, v1, v2
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v4, v1
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v5, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v5, v4, s[10:11]
"""
    a, b = arrays(128)
    assert run(body, [a, b], block=128, lds=64).findings == []
    assert (b == 256).all()


# ---- out-of-bounds, misaligned


def test_out_of_bounds_names_the_argument():
    a, b = arrays()
    report = run(LOAD, [a[:63].copy(), b])
    only(report, "out-of-bounds", "global_load_dword v2, v1, s[8:9]")
    assert "argument `#0`, 0 bytes past its end" in report.findings[0].message
    assert report.findings[0].lane == 63
    report = run(LOAD, [a, b[:60].copy()])
    only(report, "out-of-bounds", "global_store_dword v1, v3, s[10:11]")


def test_an_atomic_past_the_end_of_a_buffer():
    """What a chip does with it is not settled, so nobody may lean on its end. Lanes may that are off."""
    a, b = arrays()
    atomic = "buffer_atomic_add v3, v1, s[12:15], 0 offen"
    body = f"""
s_load_dwordx2 s[12:13], s[0:1], 0x8
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v3, 1
s_mov_b32 s14, 0x80
s_mov_b32 s15, 0x27000
s_waitcnt lgkmcnt(0)
{{}}
{atomic}
"""
    only(run(body.format(""), [a, b]), "out-of-bounds", atomic)
    b[:] = 0
    assert run(body.format("s_mov_b32 exec_lo, -1\ns_mov_b32 exec_hi, 0"), [a, b]).findings == []
    assert (b == (np.arange(64) < 32)).all()


def test_a_null_pointer():
    report = run(LOAD, [None, np.zeros(64, np.uint32)])
    assert report.findings[0].kind == "out-of-bounds" and "null pointer" in report.findings[0].message


def test_buffer_range_masks_and_does_not_report():
    a, b = arrays()
    body = (
        DMA.replace("offen lds\n", "offen\n")
        .replace("buffer_load_dword v1,", "buffer_load_dword v2, v1,")
        .replace("ds_read_b32 v2, v1\n", "")
    )
    b[:] = 7
    assert run(body.replace("0x1000", "0x80"), [a, b]).findings == []
    assert (b == np.where(np.arange(64) < 32, a, 0)).all()
    only(run(body, [a[:32].copy(), b]), "out-of-bounds", "buffer_load_dword v2, v1, s[12:15], 0 offen")


def test_an_access_across_the_end_of_a_buffer():
    """It begins inside, so it is not masked; what chips make of the rest is written nowhere."""
    a, b = arrays()
    body = (
        DMA.replace("offen lds\n", "offen\n")
        .replace("buffer_load_dword v1,", "buffer_load_dword v2, v1,")
        .replace("ds_read_b32 v2, v1\n", "")
    )
    report = run(body.replace("0x1000", "0x82"), [a, b])
    only(report, "out-of-bounds", "buffer_load_dword v2, v1, s[12:15], 0 offen")
    assert "4 bytes at offset 128 reach across the end of a buffer of 130 bytes" in report.findings[0].message
    assert report.findings[0].lane == 32


@pytest.mark.parametrize("word", ["0xc000", "0x0", "0x827000", "0x40027000"])
def test_a_descriptor_of_no_plain_buffer(word):
    """Formats other than 32 bits, an added lane number, another type of resource."""
    body = DMA.replace("offen lds\n", "offen\n").replace("buffer_load_dword v1,", "buffer_load_dword v2, v1,")
    report = run(body.replace("0x27000", word), arrays())
    assert report.findings[0].kind == "unsupported" and "descriptor word" in report.findings[0].message
    assert run(body.replace("0x27000", "0x20000").replace("ds_read_b32 v2, v1\n", ""), arrays()).findings == []


def test_out_of_bounds_lds():
    report = run(LDS, arrays(128), block=128, lds=256)
    assert ("out-of-bounds", "ds_write_b32 v1, v0") in [(f.kind, f.instruction) for f in report.findings]


def test_misaligned():
    a, b = arrays()
    only(
        run("s_load_dwordx4 s[8:11], s[0:1], 0x2\ns_waitcnt lgkmcnt(0)", [a, b]),
        "misaligned",
        "s_load_dwordx4 s[8:11], s[0:1], 0x2",
    )
    atomic = LOAD.replace("global_store_dword v1, v3, s[10:11]", "global_atomic_add v1, v3, s[10:11] offset:1")
    assert kinds(run(atomic, [a, np.zeros(80, np.uint32)])) == ["misaligned"]
    unaligned_load = LOAD.replace("s[8:9]", "s[8:9] offset:1")
    assert run(unaligned_load, [np.zeros(80, np.uint32), b]).findings == []


# ---- barrier-divergence, deadlock, assertion, unsupported


def test_barrier_divergence():
    body = """
v_and_b32 v0, 0x3ff, v0
v_lshrrev_b32 v1, 6, v0
s_nop 1
v_readfirstlane_b32 s8, v1
s_cmp_eq_u32 s8, 0
s_cbranch_scc1 over
s_barrier
over:
"""
    only(run(body, arrays(), block=128), "barrier-divergence", "s_barrier")


def test_waves_may_reach_different_barriers():
    """A barrier counts waves, not places."""
    body = """
v_and_b32 v0, 0x3ff, v0
v_lshrrev_b32 v1, 6, v0
s_nop 1
v_readfirstlane_b32 s8, v1
s_cmp_eq_u32 s8, 0
s_cbranch_scc1 other
s_barrier
s_branch over
other:
s_barrier
over:
s_barrier
"""
    assert run(body, arrays(), block=256, grid=3).findings == []


def test_deadlock_spin():
    body = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
again:
s_load_dword s12, s[8:9], 0x0
s_waitcnt lgkmcnt(0)
s_cmp_eq_u32 s12, 5
s_cbranch_scc0 again
"""
    a = np.zeros(4, np.uint32)
    report = run(body, [a])
    assert kinds(report) == ["deadlock"]
    a[0] = 5
    assert run(body, [a]).findings == []


def test_a_long_loop_is_no_deadlock():
    body = "s_mov_b32 s8, 0\nagain:\ns_add_u32 s8, s8, 1\ns_cmp_lt_u32 s8, 0x30000\ns_cbranch_scc1 again\n"
    assert run(body, arrays(), checks="report").findings == []


def test_assertion():
    report = run("s_trap 2\n", arrays())
    only(report, "assertion", "s_trap 2")


def test_unsupported_is_named_and_always_raises():
    body = "v_frobnicate_b32 v1, v0\n"
    only(run(body, arrays()), "unsupported", "v_frobnicate_b32 v1, v0")
    with pytest.raises(EmulationError, match="v_frobnicate_b32"):
        run(body, arrays(), checks=False)
    assert run("s_branch over\n" + body + "over:\n", arrays()).findings == []


def test_a_result_that_is_no_register_is_unsupported():
    """And nothing is asked of what follows it, which may look for hazards of its result."""
    report = run("v_mfma_f32_16x16x16_f16 0, v[2:3], v[4:5], v[6:9]\nv_mov_b32 v1, v0", arrays())
    assert kinds(report) == ["unsupported"]


def test_an_instruction_of_another_chip_is_unsupported():
    report = run("v_permlane32_swap_b32 v0, v0\n", arrays(), target="gfx942")
    assert kinds(report) == ["unsupported"] and "only on gfx950" in report.findings[0].message


# ---- the report


def test_checks_true_raises_with_the_report():
    with pytest.raises(EmulationError, match="missing-wait") as e:
        run(LOAD.replace("s_waitcnt vmcnt(0)\n", ""), arrays(), checks=True)
    assert e.value.report.findings[0].kind == "missing-wait"
    assert "line" in str(e.value)


def test_a_defect_in_a_loop_is_listed_once():
    body = LOAD.replace("s_waitcnt vmcnt(0)", "s_mov_b32 s20, 0\nagain:\n").replace(
        "global_store_dword v1, v3, s[10:11]",
        "global_load_dword v2, v1, s[8:9]\ns_add_u32 s20, s20, 1\ns_cmp_lt_u32 s20, 5\ns_cbranch_scc1 again",
    )
    assert kinds(run(body, arrays(), grid=4)) == ["missing-wait"]


def test_locations_come_from_loc():
    body = '.file 1 "/some/place" "kernel.py"\n.loc 1 12 5\n' + LOAD.replace("s_waitcnt vmcnt(0)\n", ".loc 1 34 2\n")
    f = run(body, arrays()).findings[0]
    assert f.location is not None and (f.location.file, f.location.line) == ("/some/place/kernel.py", 34)


def test_arguments_must_fit():
    text = module(LOAD, pointers=2)
    with pytest.raises(LaunchError, match="takes 2 arguments"):
        emulate(text, target="gfx942", grid=(1,), block=(64,), args=[np.zeros(4)])
    with pytest.raises(LaunchError, match="gfx906"):
        emulate(text, target="gfx906", grid=(1,), block=(64,), args=[])


def test_zero_grid_launches_nothing():
    report = run(LOAD, [None, None], grid=(0, 1, 1))
    assert report.findings == [] and not report.instructions


# ---- mutations of other compilers' text


@pytest.mark.parametrize("name", ["matmul_nt.gfx942", "matmul_f16_32x32x64.gfx950", "matmul_nt.gfx90a"])
def test_dropping_waits_and_barriers_is_seen(name):
    """Any one `s_waitcnt` or `s_barrier` that Triton put into a GEMM matters; without it there is a finding."""
    case, asm = load_case(name)
    entry = asm[asm.index(case["kernel"] + ":") : asm.index("s_endpgm")]
    marks = list(re.finditer(r"^\s*(s_waitcnt|s_barrier).*$", entry, re.M))
    missed = []
    start = asm.index(entry)
    import importlib.util

    from amdgcn_harness import VECTORS

    spec = importlib.util.spec_from_file_location("vector_data", VECTORS.parent / "vector_data.py")
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    executed = 0
    for m in marks:
        mutant = asm[: start + m.start()] + asm[start + m.end() :]
        report = run_amdgcn(
            mutant,
            target=case["arch"],
            grid=case["grid"],
            block=case["block"],
            args=data.make_args(case),
            kernel=case["kernel"],
            shared_bytes=case["dynamic_shared_bytes"],
            checks="report",
        )
        before = run_counts(asm, case, data)
        word = m.group(1)
        if report.instructions[word] == before[word]:
            continue  # not on the way that was taken
        executed += 1
        if not report.findings:
            missed.append(m.group(0).strip())
    assert executed > 5
    assert len(missed) <= executed // 4, missed


_COUNTS = {}


def run_counts(asm, case, data):
    if case["id"] not in _COUNTS:
        report = run_amdgcn(
            asm,
            target=case["arch"],
            grid=case["grid"],
            block=case["block"],
            args=data.make_args(case),
            kernel=case["kernel"],
            shared_bytes=case["dynamic_shared_bytes"],
            checks="report",
        )
        _COUNTS[case["id"]] = report.instructions
    return _COUNTS[case["id"]]


def test_line_of_names_what_was_found():
    with pytest.raises(AssertionError, match="no race"):
        line_of(run(LOAD, arrays()), "race")


def test_a_direct_copy_must_not_overtake_the_first_of_two_addresses():
    """What a read of two addresses holds is released by its wait, and guarded before it: both places."""
    read = DMA.replace("ds_read_b32 v2, v1", "ds_read2_b32 v[2:3], v1 offset0:0 offset1:64").replace(
        "s_waitcnt vmcnt(0)\n", "s_waitcnt vmcnt(0)\nds_write_b32 v1, v0 offset:256\ns_waitcnt lgkmcnt(0)\n"
    )
    copy = "buffer_load_dword v1, s[12:15], 0 offen lds"
    late = read.replace("s_waitcnt lgkmcnt(0)\nglobal", f"s_waitcnt lgkmcnt(0)\n{copy}\nglobal")
    assert run(late, arrays(), lds=512).findings == []
    early = read.replace("s_waitcnt lgkmcnt(0)\nglobal", f"{copy}\ns_waitcnt lgkmcnt(0)\nglobal")
    only(run(early, arrays(), lds=512), "race", copy)
