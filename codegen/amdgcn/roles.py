"""Which instruction plays which role: kernel IR op, type and width → mnemonic. The only place besides the instruction
tables where mnemonics are spelled as strings; everything else names rows as attributes of `Rows`.
"""

from __future__ import annotations

from typing import Any

SCALAR = {
    "add": "s_add_u32", "sub": "s_sub_u32", "mul": "s_mul_i32", "mulhi_u": "s_mul_hi_u32", "and": "s_and_b32",
    "or": "s_or_b32", "xor": "s_xor_b32", "shl": "s_lshl_b32", "lshr": "s_lshr_b32", "ashr": "s_ashr_i32",
    "min_s": "s_min_i32", "max_s": "s_max_i32", "min_u": "s_min_u32", "max_u": "s_max_u32",
}  # fmt: skip
"""Uniform 32-bit integers."""
VECTOR = {
    "add": "v_add_u32", "sub": "v_sub_u32", "and": "v_and_b32", "or": "v_or_b32", "xor": "v_xor_b32",
    "min_s": "v_min_i32", "max_s": "v_max_i32", "min_u": "v_min_u32", "max_u": "v_max_u32",
}  # fmt: skip
"""Per-lane 32-bit integers."""
VECTOR_SHIFT = {"shl": "v_lshlrev_b32", "lshr": "v_lshrrev_b32", "ashr": "v_ashrrev_i32"}
"""Per-lane shifts: the amount is the first source."""
SCALAR_SHIFT_64 = {"shl": "s_lshl_b64", "lshr": "s_lshr_b64", "ashr": "s_ashr_i64"}
VECTOR_SHIFT_64 = {"shl": "v_lshlrev_b64", "lshr": "v_lshrrev_b64", "ashr": "v_ashrrev_i64"}
BITS = {
    "popcount": ("v_bcnt_u32_b32", "s_bcnt1_i32_b32"), "clz": ("v_ffbh_u32", "s_flbit_i32_b32"),
    "ctz": ("v_ffbl_b32", "s_ff1_i32_b32"), "brev": ("v_bfrev_b32", "s_brev_b32"),
}  # fmt: skip
"""Op on the bits of a word → per lane, uniform. The counts of zeros are -1 for 0; the vector count adds a number."""
MASKS = {"pand": "s_and_b64", "por": "s_or_b64", "pxor": "s_xor_b64"}
FUSED = {
    ("add", "shl"): "v_lshl_add_u32", ("add", "mul"): "v_mad_u32_u24", ("add", "and"): "v_and_or_b32",
    ("add", "xor"): "v_xad_u32", ("add", "add"): "v_add3_u32", ("or", "shl"): "v_lshl_or_b32",
    ("or", "and"): "v_and_or_b32", ("or", "or"): "v_or3_b32", ("shl", "add"): "v_add_lshl_u32",
    ("and", "lshr"): "v_bfe_u32", ("fmax", "fmax"): "v_max3_f32", ("fmin", "fmin"): "v_min3_f32",
    ("min_u", "min_u"): "v_min3_u32", ("min_s", "min_s"): "v_min3_i32", ("max_s", "max_s"): "v_max3_i32",
    ("add", "mul of signs"): "v_mad_i32_i24",
}  # fmt: skip
"""(outer op, inner op) → the three-source instruction for both."""
LIMIT = "v_med3_f32"
"""The smaller of a constant and what is larger, of a number and that constant's negative: the one of the three in the
middle, and the least of them where the number is none."""
FUSED_SCALAR = {1: "s_lshl1_add_u32", 2: "s_lshl2_add_u32", 3: "s_lshl3_add_u32", 4: "s_lshl4_add_u32"}
"""Uniform (a << k) + b by k."""
SCALAR_FIELD = "s_bfe_u32"
"""Uniform (a >> k) & mask: the second source is k | width << 16."""
FLOAT = {
    ("fadd", "f32"): "v_add_f32", ("fadd", "f64"): "v_add_f64", ("fmul", "f32"): "v_mul_f32",
    ("fmul", "f64"): "v_mul_f64", ("fmin", "f32"): "v_min_f32", ("fmin", "f64"): "v_min_f64",
    ("fmax", "f32"): "v_max_f32", ("fmax", "f64"): "v_max_f64", ("fsub", "f32"): "v_sub_f32",
    ("ffloor", "f32"): "v_floor_f32", ("ffloor", "f64"): "v_floor_f64", ("fceil", "f32"): "v_ceil_f32",
    ("fceil", "f64"): "v_ceil_f64", ("frint", "f32"): "v_rndne_f32", ("frint", "f64"): "v_rndne_f64",
    ("ftrunc", "f32"): "v_trunc_f32", ("ftrunc", "f64"): "v_trunc_f64", ("exp2", "f32"): "v_exp_f32",
    ("log2", "f32"): "v_log_f32", ("rcp", "f32"): "v_rcp_f32", ("rsqrt", "f32"): "v_rsq_f32",
    ("sqrt_approx", "f32"): "v_sqrt_f32",
    ("sin", "f32"): "v_sin_f32", ("cos", "f32"): "v_cos_f32",
}  # fmt: skip
"""(op, type) → instruction; what is missing has none."""
DPP = "_dpp"
"""Ending of the encoding whose first source comes from other lanes."""
PACKED = {"fadd": "v_pk_add_f32", "fmul": "v_pk_mul_f32", "fsub": "v_pk_add_f32"}
"""Two f32 at once. The difference negates its second source."""
HALVES = {"fadd": "v_pk_add_f16", "fmul": "v_pk_mul_f16", "fsub": "v_pk_add_f16"}
"""Two f16 at once. The difference negates its second source."""
CONVERT = {
    ("i32", "f32"): ("v_cvt_f32_i32", "v_cvt_f32_u32"), ("i32", "f64"): ("v_cvt_f64_i32", "v_cvt_f64_u32"),
    ("f32", "i32"): ("v_cvt_i32_f32", "v_cvt_u32_f32"), ("f64", "i32"): ("v_cvt_i32_f64", "v_cvt_u32_f64"),
    ("f32", "f64"): ("v_cvt_f64_f32", "v_cvt_f64_f32"), ("f64", "f32"): ("v_cvt_f32_f64", "v_cvt_f32_f64"),
}  # fmt: skip
"""(from, to) → (signed, unsigned)."""
CONVERT_BYTE = tuple(f"v_cvt_f32_ubyte{i}" for i in range(4))
"""Byte i of a word, an unsigned integer, as f32."""
CONVERT_FIELD = {"i": "v_cvt_f32_i32_sdwa", "u": "v_cvt_f32_u32_sdwa"}
"""A byte or a half of a word, an integer with or without a sign, as f32."""
PACK_F8 = {"e4m3": "v_cvt_pk_fp8_f32", "e5m2": "v_cvt_pk_bf8_f32"}
PACK_F4 = "v_cvt_scalef32_pk_fp4_f32"
"""Two f32 over a power of two to the byte that op_sel names."""
UNPACK_F4 = "v_cvt_scalef32_pk_f32_fp4"
UNPACK_F8 = {"e4m3": "v_cvt_f32_fp8_sdwa", "e5m2": "v_cvt_f32_bf8_sdwa"}

SCALAR_LOADS = {
    16: "s_load_dwordx16", 8: "s_load_dwordx8", 4: "s_load_dwordx4", 2: "s_load_dwordx2", 1: "s_load_dword",
}  # fmt: skip
"""By registers, the widest first."""
SCALAR_BUFFER_LOADS = {1: "s_buffer_load_dword", 2: "s_buffer_load_dwordx2"}
"""By registers: what all lanes load from one place of a buffer."""
LOADS = {
    1: "buffer_load_ubyte", 2: "buffer_load_ushort", 4: "buffer_load_dword", 8: "buffer_load_dwordx2",
    12: "buffer_load_dwordx3", 16: "buffer_load_dwordx4",
}  # fmt: skip
STORES = {
    1: "buffer_store_byte", 2: "buffer_store_short", 4: "buffer_store_dword", 8: "buffer_store_dwordx2",
    12: "buffer_store_dwordx3", 16: "buffer_store_dwordx4",
}  # fmt: skip
WIDE_ADD = "v_lshl_add_u64"
"""A sum of 64-bit vectors in one instruction, where the chip has it: (a << 0) + b."""
FAR_LOADS = {
    1: "global_load_ubyte", 2: "global_load_ushort", 4: "global_load_dword", 8: "global_load_dwordx2",
    12: "global_load_dwordx3", 16: "global_load_dwordx4",
}  # fmt: skip
FAR_STORES = {
    1: "global_store_byte", 2: "global_store_short", 4: "global_store_dword", 8: "global_store_dwordx2",
    12: "global_store_dwordx3", 16: "global_store_dwordx4",
}  # fmt: skip
FAR_HIGH_STORES = {1: "global_store_byte_d16_hi", 2: "global_store_short_d16_hi"}
"""The same at a 64-bit address of each lane."""
HIGH_STORES = {1: "buffer_store_byte_d16_hi", 2: "buffer_store_short_d16_hi"}
"""Stores of the upper half of a register."""
_ATOMIC_WORDS = {
    "add": "add", "min_s": "smin", "max_s": "smax", "min_u": "umin", "max_u": "umax", "and": "and", "or": "or",
    "xor": "xor", "xchg": "swap", "cas": "cmpswap",
}  # fmt: skip
ATOMICS = {
    **{(how, "i32"): f"buffer_atomic_{word}" for how, word in _ATOMIC_WORDS.items()},
    **{(how, "i64"): f"buffer_atomic_{word}_x2" for how, word in _ATOMIC_WORDS.items()},
    ("fadd", "f32"): "buffer_atomic_add_f32", ("fadd", "f64"): "buffer_atomic_add_f64",
    ("pk_add_f16", "b32"): "buffer_atomic_pk_add_f16", ("pk_add_bf16", "b32"): "buffer_atomic_pk_add_bf16",
}  # fmt: skip
"""(what is done, type) → instruction; the returning form has a row of its own. Not those of `buffer_atomic_min_f64` and
`buffer_atomic_max_f64`: NaN in memory wins over numbers there (`ir/lower/float_extremes.py`)."""
FAR_ATOMICS = {key: name.replace("buffer_", "global_", 1) for key, name in ATOMICS.items()}
"""The same at a 64-bit address of each lane, with a register of its own for what was there."""

_SHARED_WORDS = {
    "add": "add_u", "min_s": "min_i", "max_s": "max_i", "min_u": "min_u", "max_u": "max_u", "and": "and_b",
    "or": "or_b", "xor": "xor_b",
}  # fmt: skip
SHARED_ATOMICS = {
    **{(how, f"i{bits}"): f"ds_{word}{bits}" for how, word in _SHARED_WORDS.items() for bits in (32, 64)},
    ("fadd", "f32"): "ds_add_f32", ("fadd", "f64"): "ds_add_f64",
}  # fmt: skip
"""The same on shared memory, of those that nobody asks what was there."""


def returning(chip: str) -> str:
    """The flag that makes an atomic return what was in memory."""
    return "glc" if chip == "gfx90a" else "sc0"


FENCES: dict[str, tuple[tuple[str, dict[str, Any]] | None, tuple[str, dict[str, Any]]]] = {
    "gfx90a": (None, ("buffer_wbinvl1_vol", {})),
    "gfx942": (("buffer_wbl2", {"sc1": True}), ("buffer_inv", {"sc1": True})),
    "gfx950": (("buffer_wbl2", {"sc1": True}), ("buffer_inv", {"sc1": True})),
}
"""Chip → (release, acquire) of a fence among all workgroups, as LLVM has them for the scope `agent`."""
_CDNA3_BITS: dict[tuple[str | None, str], tuple[str, ...]] = {
    ("stream", "load"): ("nt",), ("stream", "store"): ("nt",), ("bypass", "load"): ("sc1",),
    ("bypass", "store"): ("sc1",),
}  # fmt: skip
CACHE_BITS: dict[str, dict[tuple[str | None, str], tuple[str, ...]]] = {
    "gfx90a": {
        ("stream", "load"): ("glc", "slc"), ("stream", "store"): ("glc", "slc"), ("bypass", "load"): ("glc",),
    },
    "gfx942": _CDNA3_BITS,
    "gfx950": _CDNA3_BITS,
}  # fmt: skip
"""Chip → (cache hint, access) → the bits it sets, as LLVM's memory model (AMDGPUUsage) has them: `stream` those of
nontemporal accesses, `bypass` those of the scope `agent`, which the first-level cache does not serve. gfx90a's writes
through the first-level cache, so stores have nothing to pass by; no chip has a form for `keep`."""
ALL_ARRIVED = "vmcnt(0)"
"""Operand of the wait for everything in flight to and from global memory."""

SHARED_LOADS = {
    1: "ds_read_u8", 2: "ds_read_u16", 4: "ds_read_b32", 8: "ds_read_b64", 12: "ds_read_b96", 16: "ds_read_b128",
}  # fmt: skip
SHARED_STORES = {
    1: "ds_write_b8", 2: "ds_write_b16", 4: "ds_write_b32", 8: "ds_write_b64", 12: "ds_write_b96", 16: "ds_write_b128",
}  # fmt: skip
PAIR_LOADS = {4: ("ds_read2_b32", "ds_read2st64_b32"), 8: ("ds_read2_b64", "ds_read2st64_b64")}
PAIR_STORES = {4: ("ds_write2_b32", "ds_write2st64_b32"), 8: ("ds_write2_b64", "ds_write2st64_b64")}
"""By bytes of one access: the forms with two offsets, which count accesses, or 64 of them."""
HIGH_SHARED_STORES = {1: "ds_write_b8_d16_hi", 2: "ds_write_b16_d16_hi"}
TRANSPOSING = {
    "tr_b16": ("ds_read_b64_tr_b16", 8), "tr_b8": ("ds_read_b64_tr_b8", 8), "tr_b4": ("ds_read_b64_tr_b4", 8),
    "tr_b6": ("ds_read_b96_tr_b6", 12),
}  # fmt: skip
"""Load atom → (instruction, bytes per lane)."""
DIRECT_COPIES = {4: "buffer_load_dword", 12: "buffer_load_dwordx3", 16: "buffer_load_dwordx4"}
"""Direct-to-LDS copies by bytes per lane, without the suffix of their rows."""

SPILLS = {1: "scratch_store_dword", 2: "scratch_store_dwordx2", 4: "scratch_store_dwordx4"}
RELOADS = {1: "scratch_load_dword", 2: "scratch_load_dwordx2", 4: "scratch_load_dwordx4"}
"""By registers."""

_HOW = {
    "eq": ("eq", "u"), "ne": ("ne", "u"), "slt": ("lt", "i"), "sle": ("le", "i"), "sgt": ("gt", "i"),
    "sge": ("ge", "i"), "ult": ("lt", "u"), "ule": ("le", "u"), "ugt": ("gt", "u"), "uge": ("ge", "u"),
}  # fmt: skip
_FLOAT_HOW = {"eq": "eq", "ne": "neq", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def scalar_compare(how: str) -> str:
    """The instruction that sets scc to a comparison of uniform 32-bit integers."""
    name, sign = _HOW[how]
    return f"s_cmp_{'lg' if name == 'ne' else name}_{sign}32"


def vector_compare(how: str, bits: int) -> str:
    """The instruction that compares integers per lane into a mask."""
    name, sign = _HOW[how]
    return f"v_cmp_{name}_{sign}{bits}"


def float_compare(how: str, kind: str) -> str:
    """The instruction that compares floats per lane into a mask."""
    return f"v_cmp_{_FLOAT_HOW[how]}_{kind}"


ROUNDED_PACK = "v_cvt_pk_bf16_f32"
"""Rounds two f32 and packs them, where a chip has it (with its f16 sister)."""
HALF_SWAP = "v_permlane32_swap_b32"
LANE_SWAPS = {4: "v_permlane16_swap_b32", 5: HALF_SWAP}
"""Lane bit → the exchange of two registers' halves between lanes that differ in it, where a chip has it."""
PAIR_MOVE = "v_mov_b64"

PAIR_PLACES = 0xDD88
"""Index register of the two sparse products that stand for a dense one of column pairs: byte 0 has the places 0 and 2
of every four, byte 1 the places 1 and 3."""
