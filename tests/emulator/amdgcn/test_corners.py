"""Forms that compilers seldom emit: modes of arithmetic, lane patterns of matrix instructions, constants and clamps of
packed rows, whole-wave DPP, what SDWA leaves of a register, what atomics beyond an end give.

The witness is said with each: AMD's ISA documents (by the name of what they describe), AMD's matrix instruction
calculator, or plain integers and fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from amdgcn_harness import apply, run
from wavedsl.codegen.amdgcn import isa
from wavedsl.ir.errors import LaunchError

RNG = np.random.default_rng(11)
LANE = np.arange(64)


# ---- modes (ISA: MODE register; AMDGPU Usage: .amdhsa_ directives)

START = "v_and_b32 v0, 0x3ff, v0\nv_lshlrev_b32 v1, 2, v0\ns_load_dwordx2 s[8:9], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"
STORE = "global_store_dword v1, v{}, s[8:9]\n"


@pytest.mark.parametrize(
    "directive",
    ["float_round_mode_32", "float_round_mode_16_64", "float_denorm_mode_16_64", "float_denorm_mode_32", "dx10_clamp"],
)
def test_modes_that_rows_do_not_have_are_refused(directive):
    """Numbers would come out rounded, flushed or clamped in another way than the text asks for."""
    value = {"dx10_clamp": 0, "float_denorm_mode_16_64": 0}.get(directive, 1)
    with pytest.raises(LaunchError, match=f"{directive} .*not {value}"):
        run(START, [np.zeros(64, np.uint32)], **{directive: value})


def mode_after(body: str, **directives: int):
    out = np.zeros(64, np.uint32)
    text = f"{START}{body}\ns_nop 1\ns_getreg_b32 s4, hwreg(HW_REG_MODE)\nv_mov_b32 v2, s4\n"
    report = run(text + "global_store_dword v1, v2, s[8:9]\n", [out], **directives)
    return report, int(out[0])


def test_the_mode_register_holds_what_the_descriptor_says():
    """FP_ROUND [3:0], FP_DENORM [7:4], DX10_CLAMP [8], IEEE [9]."""
    assert mode_after("")[1] == 0x3F0
    assert mode_after("", float_denorm_mode_32=0, ieee_mode=0)[1] == 0x1C0


@pytest.mark.parametrize("field", ["0, 2), 3", "2, 2), 1", "4, 2), 0", "6, 2), 0", "8, 1), 0"])
def test_a_change_of_arithmetic_inside_a_kernel_is_unsupported(field):
    report, _ = mode_after(f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {field}")
    assert [f.kind for f in report.findings] == ["unsupported"] and "rounded" in report.findings[0].message


def test_exceptions_may_be_enabled():
    report, mode = mode_after("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 12, 3), 5")
    assert not report.findings and mode == 0x53F0


OVERFLOW = [
    ("v_cvt_f16_f32_e32 v3, v2", "gfx942"), ("v_cvt_f16_f32_sdwa v3, v2 dst_sel:WORD_1", "gfx942"),
    ("v_fma_mixlo_f16 v3, v2, 1.0, 0", "gfx942"), ("v_cvt_f16_f32_e32 v4, v2\nv_pk_add_f16 v3, v4, v4", "gfx942"),
    ("v_cvt_pk_fp8_f32 v3, v2, v2", "gfx942"), ("v_cvt_pk_bf8_f32 v3, v2, v2", "gfx942"),
    ("v_cvt_pk_fp8_f32 v3, v2, v2", "gfx950"), ("v_cvt_pk_bf8_f32 v3, v2, v2", "gfx950"),
    ("v_cvt_scalef32_pk_fp8_f32 v3, v2, v2, 1.0", "gfx950"),
]  # fmt: skip
FLOATS8 = {
    ("gfx942", "fp8"): ml_dtypes.float8_e4m3fnuz, ("gfx942", "bf8"): ml_dtypes.float8_e5m2fnuz,
    ("gfx950", "fp8"): ml_dtypes.float8_e4m3fn, ("gfx950", "bf8"): ml_dtypes.float8_e5m2,
}  # fmt: skip


@pytest.mark.parametrize("where", ["descriptor", "kernel", "nowhere"])
@pytest.mark.parametrize(("body", "target"), OVERFLOW)
def test_fp16_ovfl_takes_the_largest_number_for_what_is_beyond_it(body, target, where):
    """AMDGPUUsage on FP16_OVFL: what an infinite source gives stays infinite, else a result is no more than the largest
    number. Floats of 8 bits, of which one has no infinity, take the largest for infinity, too (ROCm's emulator of
    gfx1250). Triton sets it at the start of every kernel that makes them."""
    numbers = np.array([0.5, -3.0, 70000.0, -1e30, np.inf, -np.inf, np.nan, 0.0] * 8, np.float32)
    out = np.zeros(64, np.uint32)
    here = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\ns_nop 1\n" if where == "kernel" else ""
    load = "s_load_dwordx2 s[10:11], s[0:1], 0x8\ns_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[10:11]\n"
    text = f"{START}{load}v_mov_b32 v3, 0\ns_waitcnt vmcnt(0)\n{here}{body}\n{STORE.format(3)}"
    report = run(text, [out, numbers], target=target, fp16_overflow=int(where == "descriptor"))
    assert not report.findings, report.findings
    if "8_f32" in body:
        dtype = FLOATS8[target, "bf8" if "bf8" in body else "fp8"]
        have = (out & 0xFF).astype(np.uint8).view(dtype).astype(np.float64)
        limit, keeps_infinity = float(ml_dtypes.finfo(dtype).max), False
    else:
        have = (out >> (16 if "sdwa" in body else 0) & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)
        limit, keeps_infinity, dtype = 65504.0, True, np.float16
    doubled = numbers * np.float32(2 if "pk_add" in body else 1)
    if where == "nowhere":
        with np.errstate(over="ignore"):
            want = doubled.astype(dtype).astype(np.float64)
        assert not np.isfinite(have[2])
    else:
        want = np.clip(doubled.astype(np.float64), -limit, limit)
        if keeps_infinity:
            want = np.where(np.isinf(numbers), numbers, want)
    np.testing.assert_array_equal(have, want)


def test_fp16_ovfl_leaves_divisions_by_zero_infinite():
    out = np.zeros(64, np.uint32)
    body = "v_mov_b32 v2, 0\nv_rcp_f16_e32 v3, v2\ns_nop 1\n"
    assert not run(f"{START}{body}{STORE.format(3)}", [out], fp16_overflow=1).findings
    assert (out & 0xFFFF == 0x7C00).all()


# ---- broadcasts of matrix instructions (the calculator's _get_cbsz_abid_transformed_block, _get_blgp_transformed_lane)


def source_lane(lane: int, blgp: int) -> int:
    if blgp == 0:
        return lane
    if blgp == 3:
        return (lane + 16) % 64
    return lane % 32 + 32 * (blgp - 1) if blgp < 3 else lane % 16 + 16 * (blgp - 4)


def products_of_four_blocks(modifiers: str, target: str = "gfx942"):
    """Four products of 16 rows by one by 16 columns: lane l has row, or column, l % 16 of block l // 16."""
    a, b = (RNG.integers(-8, 8, 64).astype(np.float32) for _ in range(2))
    out = apply("v_mfma_f32_16x16x1_4b_f32" if target != "gfx90a" else "v_mfma_f32_16x16x1f32",
                [a.view(np.uint32), b.view(np.uint32)], target=target, outs=16, constants=["0"], modifiers=modifiers,
                order="{d}, {s}")  # fmt: skip
    return a, b, out.view(np.float32)


def block_product(out: np.ndarray, block: int) -> np.ndarray:
    """Register 4 i + r of lane l holds row 4 (l // 16) + r, column l % 16 of block i."""
    return out[4 * block : 4 * block + 4].reshape(4, 4, 16).transpose(1, 0, 2).reshape(16, 16)


@pytest.mark.parametrize("target", isa.TARGETS)
@pytest.mark.parametrize(("cbsz", "abid"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 3)])
def test_blocks_of_a_are_broadcast(cbsz, abid, target):
    a, b, out = products_of_four_blocks(f"cbsz:{cbsz} abid:{abid}", target)
    for block in range(4):
        from_ = (block >> cbsz << cbsz) + abid
        want = np.outer(a[16 * from_ : 16 * from_ + 16], b[16 * block : 16 * block + 16])
        assert np.array_equal(block_product(out, block), want), block


@pytest.mark.parametrize("blgp", range(8))
def test_lanes_of_b_follow_the_pattern(blgp):
    a, b, out = products_of_four_blocks(f"blgp:{blgp}")
    moved = b[[source_lane(lane, blgp) for lane in range(64)]]
    for block in range(4):
        want = np.outer(a[16 * block : 16 * block + 16], moved[16 * block : 16 * block + 16])
        assert np.array_equal(block_product(out, block), want), block


@pytest.mark.parametrize(
    "line",
    ["v_mfma_f32_16x16x4_f32 v[40:43], v10, v20, 0 cbsz:1",  # of one block
     "v_mfma_f32_16x16x1_4b_f32 v[40:55], v10, v20, 0 cbsz:3",  # of more blocks than there are
     "v_mfma_f32_16x16x1_4b_f32 v[40:55], v10, v20, 0 cbsz:1 abid:2",  # of a block of another group
     "v_mfma_f32_16x16x1_4b_f32 v[40:55], v10, v20, 0 abid:1"],
)  # fmt: skip
def test_a_broadcast_of_a_block_that_is_not_there_is_unsupported(line):
    """The assembler takes them; no document says what a chip makes of them."""
    report = run(f"v_mov_b32 v10, 0\nv_mov_b32 v20, 0\ns_nop 3\n{line}\ns_nop 15\ns_nop 15", [np.zeros(4, np.uint32)])
    assert [f.kind for f in report.findings] == ["unsupported"] and "cbsz" in report.findings[0].message


def test_a_constant_is_added_to_f64_products():
    a, b = RNG.integers(-8, 8, (2, 64)).astype(np.float64)
    two = [np.ascontiguousarray(x).view(np.uint32).reshape(64, 2).T for x in (a, b)]
    out = apply("v_mfma_f64_16x16x4_f64", two, outs=8, constants=["2.0"])
    got = np.ascontiguousarray(out.T).view(np.float64)  # [lane, 4]: row 4 i + l // 16, column l % 16
    want = a.reshape(4, 16).T @ b.reshape(4, 16) + 2.0
    assert np.array_equal(got.reshape(4, 16, 4).transpose(2, 0, 1).reshape(16, 16), want)


# ---- packed rows (ISA: VOP3P; LLVM writes a splat as `1.0 op_sel_hi:[1,0]`)


def halves(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint16).reshape(-1, 2)


def random_words(n: int = 128) -> np.ndarray:
    edges = np.array([0, 0x7FFF7FFF, 0x80008000, 0xFFFFFFFF, 0x0001FFFF, 0x00017FFF, 0x8000FFFF], np.uint32)
    return np.concatenate([edges, RNG.integers(0, 1 << 32, n - len(edges), dtype=np.uint64).astype(np.uint32)])


@pytest.mark.parametrize(("kind", "low", "high"), [("u16", 0, 65535), ("i16", -32768, 32767)])
@pytest.mark.parametrize("op", ["add", "sub"])
def test_clamped_sums_of_halves_saturate(op, kind, low, high):
    """LLVM selects them for uadd.sat, ssub.sat and their like on <2 x i16>."""
    a, b = random_words(), random_words()[::-1].copy()
    out = halves(apply(f"v_pk_{op}_{kind}", [a, b], modifiers="clamp")[0])
    x, y = (halves(v).view(f"<{kind[0]}2").astype(int) for v in (a, b))
    want = np.clip(x + y if op == "add" else x - y, low, high)
    assert np.array_equal(out, want.astype(np.int64) & 0xFFFF)


@pytest.mark.parametrize(
    ("line", "added"),
    [("v_pk_add_f16 {d}, {s}, 1.0 op_sel_hi:[1,0]", (1.0, 1.0)), ("v_pk_add_f16 {d}, {s}, 1.0", (1.0, 0.0)),
     ("v_pk_add_f16 {d}, {s}, 4.0 op_sel:[0,1] op_sel_hi:[1,0]", (0.0, 4.0))],
)  # fmt: skip
def test_a_float_is_in_the_low_half_of_a_packed_constant(line, added):
    x = RNG.integers(-50, 50, 128).astype(np.float16)
    out = apply("", [x.view(np.uint32)], order=line)[0]
    assert np.array_equal(halves(out).view(np.float16), x.reshape(-1, 2) + np.array(added, np.float16))


@pytest.mark.parametrize(
    ("line", "added"),
    [("v_pk_add_u16 {d}, {s}, 7 op_sel_hi:[1,0]", (7, 7)), ("v_pk_add_u16 {d}, {s}, 7", (7, 0)),
     ("v_pk_add_u16 {d}, {s}, -1", (0xFFFF, 0xFFFF))],
)  # fmt: skip
def test_an_integer_is_a_whole_word_of_a_packed_constant(line, added):
    x = random_words()
    assert np.array_equal(halves(apply("", [x], order=line)[0]), halves(x) + np.array(added, np.uint16))


def test_clamped_floats_of_packed_and_mixed_rows_are_in_the_unit_interval():
    """ISA: CLAMP of a float result, to [0, 1]; DX10_CLAMP makes NaN 0."""
    x = np.resize(np.array([-1, 0.25, 0.5, 0.75, 2, np.nan, np.inf, -np.inf], np.float16), 128)
    want = np.where(np.isnan(x), 0, np.clip(x + x, 0, 1)).astype(np.float16)
    both = [x.view(np.uint32), x.view(np.uint32)]
    assert np.array_equal(apply("v_pk_add_f16", both, modifiers="clamp")[0].view(np.float16), want)
    mixed = apply("v_fma_mix_f32", both, constants=["0"], modifiers="op_sel_hi:[1,1,0] clamp")[0].view(np.float32)
    square = x[::2].astype(np.float32) ** 2
    assert np.array_equal(mixed, np.where(np.isnan(square), 0, np.clip(square, 0, 1)))


@pytest.mark.parametrize("row", ["v_fma_mixlo_f16", "v_fma_mixhi_f16"])
def test_a_mixed_sum_goes_to_one_half_and_leaves_the_other(row):
    """The high half of a, f32 b and c; LLVM selects it for an f32 fma that is truncated to f16."""
    a = RNG.standard_normal(512).astype(np.float16)
    b, c = (RNG.standard_normal(256).astype(np.float32) for _ in range(2))
    out = halves(
        apply(row, [a.view(np.uint32), b.view(np.uint32), c.view(np.uint32)], before="v_mov_b32 v40, 0x1234abcd",
              modifiers="op_sel:[1,0,0] op_sel_hi:[1,0,0]")[0]
    )  # fmt: skip
    high = row == "v_fma_mixhi_f16"
    assert (out[:, 1 - high] == (0xABCD if high else 0x1234)).all()
    sums = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a[1::2], b, c)]
    want = np.array([float(x) for x in sums]).astype(np.float32).astype(np.float16)
    assert np.array_equal(out[:, int(high)].view(np.float16), want)


# ---- DPP and SDWA (ISA: DPP_WF_SL1, RL1, SR1, RR1; SDWA DST_U)


@pytest.mark.parametrize("target", isa.TARGETS)
@pytest.mark.parametrize(
    ("control", "source"),
    [("wave_shl:1", LANE + 1), ("wave_rol:1", (LANE + 1) % 64),
     ("wave_shr:1", LANE - 1), ("wave_ror:1", (LANE - 1) % 64)],
)  # fmt: skip
def test_a_whole_wave_moves_by_a_lane(control, source, target):
    x = random_words(64)
    there = (source >= 0) & (source < 64)
    kept = apply("v_mov_b32_dpp", [x], target=target, before="v_mov_b32 v40, 5",
                 modifiers=f"{control} row_mask:0xf bank_mask:0xf")[0]  # fmt: skip
    assert np.array_equal(kept, np.where(there, x[np.clip(source, 0, 63)], 5))
    zero = apply("v_mov_b32_dpp", [x], target=target, before="v_mov_b32 v40, 5",
                 modifiers=f"{control} row_mask:0xf bank_mask:0xf bound_ctrl:0")[0]  # fmt: skip
    assert np.array_equal(zero, np.where(there, x[np.clip(source, 0, 63)], 0))


@pytest.mark.parametrize(("unused", "select"), [(u, s) for u in ("PAD", "SEXT", "PRESERVE") for s in (0, 1, 2, 3)])
def test_what_sdwa_leaves_beside_a_byte(unused, select):
    """UNUSED_PAD: zeros; UNUSED_SEXT: the sign above, zeros below; UNUSED_PRESERVE: what was there."""
    x, old = random_words(), 0x1234ABCD
    chosen = f"dst_sel:BYTE_{select} dst_unused:UNUSED_{unused} src0_sel:DWORD src1_sel:DWORD"
    out = apply("v_add_u32_sdwa", [x, x], before=f"v_mov_b32 v40, {old:#x}", modifiers=chosen)[0]
    at, want = 8 * select, []
    for byte in ((x + x) & 0xFF).tolist():
        word = byte << at
        if unused == "SEXT" and byte & 0x80:
            word |= -1 << at + 8
        want.append((word | (old & ~(0xFF << at) if unused == "PRESERVE" else 0)) & 0xFFFFFFFF)
    assert out.tolist() == want


# ---- EXEC


def test_v_cmpx_leaves_the_lanes_that_compare_and_were_on():
    body = f"{START}v_mov_b32 v2, 0\nglobal_store_dword v1, v2, s[8:9]\ns_waitcnt vmcnt(0)\n"
    body += "s_mov_b32 s4, 0xffff00ff\ns_mov_b32 s5, 0xff\ns_mov_b64 exec, s[4:5]\n"
    body += "v_cmpx_lt_u32_e64 s[6:7], 5, v0\nv_mov_b32 v2, 1\nglobal_store_dword v1, v2, s[8:9]\n"
    body += "s_mov_b64 exec, -1\ns_nop 4\nv_mov_b32 v4, s6\nv_mov_b32 v5, s7\n"
    body += "v_lshlrev_b32 v1, 1, v1\nglobal_store_dwordx2 v1, v[4:5], s[8:9] offset:256"
    wide = np.zeros(256, np.uint32)
    report = run(body, [wide])
    assert not report.findings
    want = np.array([(0xFF_FFFF00FF >> lane & 1) and lane > 5 for lane in range(64)])
    assert np.array_equal(wide[:64] == 1, want)
    assert int(wide[64]) | int(wide[65]) << 32 == sum(int(x) << i for i, x in enumerate(want))


@pytest.mark.parametrize(
    "move", ["ds_bpermute_b32 v3, v4, v2", "ds_swizzle_b32 v3, v2 offset:swizzle(SWAP,1)"]
)
def test_a_lane_that_is_off_gives_zero(move):
    """DS_BPERMUTE_B32: EXEC applies to the read and the write; a disabled source gives 0."""
    out = np.zeros(64, np.uint32)
    body = f"{START}v_add_u32 v2, 100, v0\nv_mov_b32 v3, 7\nv_xor_b32 v4, 4, v1\n"
    body += f"s_mov_b64 exec, 0x0000fffe\n{move}\ns_waitcnt lgkmcnt(0)\ns_mov_b64 exec, -1\n{STORE.format(3)}"
    report = run(body, [out], lds=256)
    assert not report.findings
    on = (LANE >= 1) & (LANE < 16)
    want = np.where(on, np.where(on[LANE ^ 1], 100 + (LANE ^ 1), 0), 7)
    assert out.tolist() == want.tolist()


# ---- atomics


def test_lds_compares_the_first_operand_and_stores_the_second():
    """DS_CMPST_RTN_B32: DATA is compared, DATA2 stored (buffers and flat: the other way round)."""
    out = np.zeros(64, np.uint32)
    body = f"{START}ds_write_b32 v1, v0\nv_mov_b32 v2, 9\nv_mov_b32 v3, 77\ns_waitcnt lgkmcnt(0)\n"
    body += f"ds_cmpst_rtn_b32 v4, v1, v2, v3\nds_read_b32 v5, v1\ns_waitcnt lgkmcnt(0)\n{STORE.format(5)}"
    assert not run(body, [out], lds=256).findings
    assert out.tolist() == [77 if lane == 9 else lane for lane in range(64)]


def test_an_atomic_beyond_a_buffer_gives_zero_and_is_a_finding():
    """Out of range: reads return 0, writes are ignored (ISA: buffer range checking)."""
    data, out = np.arange(64, dtype=np.uint32), np.ones(64, np.uint32)
    body = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 10
s_waitcnt lgkmcnt(0)
s_mov_b32 s12, s8
s_and_b32 s13, s9, 0xffff
s_movk_i32 s14, 128
s_mov_b32 s15, 0x27000
buffer_atomic_add v2, v1, s[12:15], 0 offen sc0
s_waitcnt vmcnt(0)
global_store_dword v1, v2, s[10:11]
"""
    report = run(body, [data, out])
    assert [f.kind for f in report.findings] == ["out-of-bounds"] and "atomic" in report.findings[0].message
    assert np.array_equal(out, np.where(LANE < 32, LANE, 0)) and np.array_equal(data, LANE + np.where(LANE < 32, 10, 0))


# ---- 8-bit floats


@pytest.mark.parametrize(("target", "row", "digits"), [
    ("gfx942", "v_cvt_sr_fp8_f32", 3), ("gfx950", "v_cvt_sr_fp8_f32", 3),
    ("gfx942", "v_cvt_sr_bf8_f32", 2), ("gfx950", "v_cvt_sr_bf8_f32", 2),
])  # fmt: skip
def test_stochastic_rounding_adds_the_seed_below_the_kept_digits(target, row, digits):
    """The seed's upper bits are as many as the mantissa loses; the sum is cut. So no seed rounds towards zero, and the
    share of seeds that round away is what lies beyond."""
    n = 512
    x = (RNG.uniform(1, 2, n) * np.exp2(RNG.integers(-3, 4, n)) * RNG.choice([-1, 1], n)).astype(np.float32)
    seed = random_words(n)
    for byte in range(4):
        sel = f"op_sel:[0,0,{byte & 1},{byte >> 1}]"
        out = apply(row, [x.view(np.uint32), seed], target=target, before="v_mov_b32 v40, 0x11223344", modifiers=sel)[0]
        kind = {("fp8", "gfx942"): "float8_e4m3fnuz", ("fp8", "gfx950"): "float8_e4m3fn",
                ("bf8", "gfx942"): "float8_e5m2fnuz", ("bf8", "gfx950"): "float8_e5m2"}[row[9:12], target]  # fmt: skip
        codes = out.view(np.uint8).reshape(-1, 4)
        got = codes[:, byte].copy().view(getattr(ml_dtypes, kind)).astype(np.float64)
        want = []
        for value, noise in zip(x.tolist(), seed.tolist()):
            unit = 2.0 ** (math.frexp(value)[1] - 1 - digits)
            share = Fraction(noise >> 9 + digits, 1 << 23 - digits)
            want.append(math.copysign(float(int(Fraction(abs(value)) / Fraction(unit) + share) * unit), value))
        assert got.tolist() == want
        rest = [i for i in range(4) if i != byte]
        assert (codes[:, rest] == np.array([0x44, 0x33, 0x22, 0x11])[rest]).all()


# ---- undefined lanes that instructions move (v5, v10 and v30 hold nothing)

LDS_WAIT = "\ns_waitcnt lgkmcnt(0)"
MATRIX = "\n".join(f"v_mov_b32 v{i}, 0" for i in (*range(10, 26), 31)) + """
s_nop 3
v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], v[10:17], v[18:25], 0, v{}, v31 op_sel_hi:[0,0,0]
s_nop 15"""


@pytest.mark.parametrize(("target", "body", "store", "lane"), [
    ("gfx942", "v_mov_b32_dpp v5, v0 row_shr:1 row_mask:0xf bank_mask:0xf", 5, 0),
    ("gfx942", "v_mov_b32_dpp v5, v0 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0", 5, None),
    ("gfx942", "v_mov_b32_dpp v5, v0 row_ror:1 row_mask:0x7 bank_mask:0xf", 5, 48),
    ("gfx942", "s_mov_b64 exec, 0xfffc\ns_nop 4\nv_mov_b32_dpp v5, v0 row_shr:1 row_mask:0xf bank_mask:0xf", 5, 2),
    ("gfx942", "v_writelane_b32 v5, 7, 0", 5, 1),
    ("gfx942", "s_mov_b32 s6, 0\nv_writelane_b32 v5, 7, s6", 5, 1),
    ("gfx942", "s_mov_b32 s6, 9\nv_readlane_b32 s4, v5, s6\ns_nop 1\nv_mov_b32 v2, s4", 2, 0),
    ("gfx942", "s_mov_b32 s6, 9\nv_writelane_b32 v5, 7, s6\ns_nop 1\nv_readlane_b32 s4, v5, s6\ns_nop 1\n"
     "v_mov_b32 v2, s4", 2, None),
    ("gfx942", f"v_xor_b32 v4, 4, v1\nv_writelane_b32 v5, 7, 0\nds_bpermute_b32 v2, v4, v5{LDS_WAIT}", 2, 0),
    ("gfx942", f"ds_bpermute_b32 v2, v5, v0{LDS_WAIT}", 2, 0),
    ("gfx942", f"ds_permute_b32 v2, v1, v5{LDS_WAIT}", 2, 0),
    ("gfx942", f"ds_swizzle_b32 v2, v5 offset:swizzle(SWAP,1){LDS_WAIT}", 2, 0),
    ("gfx950", "v_mov_b32 v2, 1\ns_nop 1\nv_permlane32_swap_b32 v2, v5", 2, 32),
    ("gfx950", "v_mov_b32 v2, 1\ns_nop 1\nv_permlane32_swap_b32 v5, v2", 2, 0),
    ("gfx942", "v_mov_b32 v2, 1\nv_swap_b32 v2, v5", 2, 0), ("gfx942", "v_mov_b32 v2, 1\nv_swap_b32 v2, v5", 5, None),
    ("gfx942", f"ds_write_b32 v1, v0\nds_add_u32 v1, v5{LDS_WAIT}\nds_read_b32 v2, v1{LDS_WAIT}", 2, 0),
    ("gfx950", MATRIX.format(30), 40, 0), ("gfx950", MATRIX.format(31), 40, None),
])  # fmt: skip
def test_an_undefined_lane_is_found_where_it_ends_up(target, body, store, lane):
    """Lanes that DPP does not write keep what they had; a lane that a register names counts. `lane`: the finding's."""
    report = run(f"{START}s_nop 1\n{body}\n{STORE.format(store)}", [np.zeros(64, np.uint32)], target=target, lds=256)
    found = [(f.kind, f.lane) for f in report.findings]
    assert found == ([] if lane is None else [("uninitialised-read", lane)])


# ---- LDS accesses at odd addresses


def odd_words(tail: str, block: int = 64):
    """Lane l writes its number at byte 8 l + 1 of LDS."""
    out = np.zeros(block, np.uint32)
    body = f"{START}v_lshlrev_b32 v4, 3, v0\nds_write_b32 v4, v0 offset:1\n"
    return run(body + tail, [out], block=block, lds=2048), out


def test_a_word_at_an_odd_address_is_four_bytes():
    """From its first odd address on LDS is followed byte by byte."""
    read = "s_waitcnt lgkmcnt(0)\nds_read_b32 v5, v4 offset:{}\ns_waitcnt lgkmcnt(0)\n" + STORE.format(5)
    report, out = odd_words(read.format(1))
    assert report.findings == [] and out.tolist() == LANE.tolist()
    report, _ = odd_words(read.format(0))  # byte 0 holds nothing
    assert [f.kind for f in report.findings] == ["uninitialised-read"]
    both = "v_mov_b32 v6, 0\nds_write_b8 v4, v6\n" + read.format(0)
    report, out = odd_words(both)
    assert report.findings == [] and out.tolist() == (LANE << 8).tolist()


@pytest.mark.parametrize(("offset", "race"), [(1, True), (4, True), (5, False), (8, False), (9, True)])
def test_waves_race_for_the_bytes_that_they_share(offset, race):
    """Wave 1 writes the words of wave 0, some bytes on: those of 8 l + 1 to 8 l + 4, or none of them."""
    other = "v_and_b32 v6, 63, v0\nv_lshlrev_b32 v6, 3, v6\nv_cmp_lt_u32 vcc, 63, v0\ns_nop 1\ns_mov_b64 exec, vcc\n"
    other += f"v_mov_b32 v7, 77\nds_write_b8 v6, v7 offset:{offset}\ns_waitcnt lgkmcnt(0)"
    report, _ = odd_words(other, 128)
    kinds = {f.kind for f in report.findings}
    assert kinds == ({"race"} if race else set())


# ---- memory

TWO = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
s_mov_b32 s12, s8
s_and_b32 s13, s9, 0xffff
s_movk_i32 s14, 64
s_mov_b32 s15, 0x27000
"""


@pytest.mark.parametrize(("size", "row", "signed"), [
    (1, "ubyte", False), (1, "sbyte", True), (2, "ushort", False), (2, "sshort", True),
])  # fmt: skip
def test_narrow_loads_straight_to_lds_fill_a_word(size, row, signed):
    """A lane's slot has four bytes: what it loads is extended, and 0 where it lies beyond the buffer."""
    data, out = random_words(64), np.zeros(64, np.uint32)
    body = f"{TWO}v_lshlrev_b32 v2, {size - 1}, v0\ns_mov_b32 m0, 0\ns_nop 0\n"
    body += f"buffer_load_{row} v2, s[12:15], 0 offen lds\ns_waitcnt vmcnt(0)\n"
    body += "ds_read_b32 v3, v1\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v3, s[10:11]"
    assert run(body, [data, out], lds=256).findings == []
    loaded = data.view(f"{'i' if signed else 'u'}{size}")[:64].astype(np.int64) & 0xFFFFFFFF
    assert out.tolist() == np.where(LANE * size < 64, loaded, 0).tolist()


def test_scalar_loads_beyond_an_end():
    """S_BUFFER_LOAD gives 0 for each dword beyond the buffer, here where memory ends too; S_LOAD must stay in it."""
    data, out = np.arange(1, 17, dtype=np.uint32), np.zeros(64, np.uint32)
    show = "s_waitcnt lgkmcnt(0)\nv_mov_b32 v2, s16\nv_mov_b32 v3, s17\nv_cndmask_b32 v2, v2, v3, s[20:21]\n"
    show = f"s_mov_b32 s20, 0xfffffffe\ns_mov_b32 s21, -1\n{show}global_store_dword v1, v2, s[10:11]"
    report = run(f"{TWO}s_buffer_load_dwordx2 s[16:17], s[12:15], 0x3c\n{show}", [data, out])
    assert report.findings == [] and out[:2].tolist() == [16, 0]
    wrong = run(f"{TWO}s_movk_i32 s14, 68\ns_buffer_load_dwordx2 s[16:17], s[12:15], 0x3c\n{show}", [data, out])
    assert [f.kind for f in wrong.findings] == ["out-of-bounds"] and out[0] == 16  # a buffer that is too long
    report = run(f"{TWO}s_load_dwordx2 s[16:17], s[8:9], 0x3c\n{show}", [data, out])
    assert [f.kind for f in report.findings] == ["out-of-bounds"] and "s_load_dwordx2" in report.findings[0].instruction


def test_a_flat_store_goes_where_each_lane_points():
    """FLAT: an address in the shared aperture is one of LDS, any other one of memory."""
    data, out = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    body = f"""{TWO}s_mov_b64 s[4:5], src_shared_base
ds_write_b32 v1, v0 offset:256
v_mov_b32 v5, s9
v_add_co_u32 v4, vcc, s8, v1
s_nop 1
v_addc_co_u32 v5, vcc, 0, v5, vcc
v_mov_b32 v7, s5
v_cmp_gt_u32 vcc, 32, v0
s_nop 1
v_cndmask_b32 v4, v4, v1, vcc
v_cndmask_b32 v5, v5, v7, vcc
v_add_u32 v6, 100, v0
v_mov_b32 v8, 0
ds_write_b32 v1, v8
s_waitcnt lgkmcnt(0)
flat_store_dword v[4:5], v6
s_waitcnt vmcnt(0) lgkmcnt(0)
ds_read_b32 v9, v1
s_waitcnt lgkmcnt(0)
global_store_dword v1, v9, s[10:11]"""
    report = run(body, [data, out], lds=512)
    assert report.findings == []
    assert out.tolist() == np.where(LANE < 32, 100 + LANE, 0).tolist()
    assert data.tolist() == np.where(LANE < 32, 0, 100 + LANE).tolist()
