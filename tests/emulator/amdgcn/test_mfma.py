"""Matrix instructions: fragment layouts against AMD's calculator, products against NumPy (sparse ones with any places),
passes against LLVM's model.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from amdgcn_harness import name, run
from wavedsl.codegen.amdgcn import isa, mfma
from wavedsl.codegen.amdgcn.operand_rules import check_operands
from wavedsl.ir import dtypes as dt

TABLES = json.loads((Path(__file__).parents[2] / "data" / "mfma_columns.json").read_text())["mfma"]
NAMED = [(t, n) for t, rows in TABLES.items() for n in rows]
PLACES = {"A": "MKB", "B": "KNB", "D": "MNB"}


@pytest.mark.parametrize("target,mnemonic", NAMED)
def test_layouts_equal_the_calculators(target, mnemonic):
    """Every bit of every lane and element leads to the row, column and block that AMD's tables give (linear tables)."""
    table = TABLES[target][mnemonic]
    row = isa.lookup(mnemonic, target).extra
    assert [row.m, row.n, row.k, row.blocks] == table["shape"]
    assert [row.a_regs, row.b_regs, row.d_regs] == table["vgprs"]
    assert row.spelling(target) == mnemonic
    for operand, layout in (("A", row.a), ("B", row.b), ("D", row.d)):
        ours: dict[str, list[int]] = {}
        for place, dim in enumerate(PLACES[operand]):
            for i, bit in enumerate(layout.get(dim, "").split()):
                ours.setdefault(bit, [0, 0, 0])[place] += 1 << i
        assert ours == table[operand], operand


def test_tables_cover_all_dense_instructions():
    """The calculator's tables and ours name the same instructions, f8f6f4 (which it lacks) aside."""
    for target in isa.TARGETS:
        ours = {r.spelling(target) for r in mfma.dense(target) if not r.formats}
        assert ours == set(TABLES[target])
    assert sum(3 * len(rows) for rows in TABLES.values()) == 285


@pytest.mark.parametrize("target", isa.TARGETS)
def test_layouts_are_bijections(target):
    """Each operand's lanes and elements cover its matrix exactly once."""
    for row in mfma.dense(target):
        width = 2 if row.d_dtype.bits == 64 else 1
        for layout, sizes, elements in (
            (row.a, {"M": row.m, "K": row.k, "B": row.blocks}, row.m * row.k * row.blocks // 64),
            (row.b, {"N": row.n, "K": row.k, "B": row.blocks}, row.n * row.k * row.blocks // 64),
            (row.d, {"M": row.m, "N": row.n, "B": row.blocks}, row.d_regs // width),
        ):
            at = mfma.coordinates(tuple(sorted(layout.items())), elements)
            flat = np.zeros((elements, 64), np.int64)
            for dim, size in sizes.items():
                flat = flat * size + at.get(dim, 0)
            assert sorted(flat.reshape(-1).tolist()) == list(range(elements * 64)), (row.mnemonic, layout)


# ---- products

CODES = {dt.f16: np.float16, dt.bf16: ml_dtypes.bfloat16, dt.f32: np.float32, dt.f64: np.float64, dt.i8: np.int8}


def fragment(dense, layout, dtype, order):
    """Registers uint32 [regs, 64] that hold `dense` (indices in `order`) in the given layout."""
    bits = dtype.bits
    elements = dense.size // 64
    at = mfma.coordinates(tuple(sorted(layout.items())), elements)
    index = tuple(at.get(d, np.zeros((elements, 64), np.int64)) for d in order)
    values = dense[index]
    if bits == 64:
        return np.ascontiguousarray(values).view(np.uint32).reshape(elements, 64, 2).transpose(0, 2, 1).reshape(-1, 64)
    if bits == 32:
        return np.ascontiguousarray(values).view(np.uint32)
    codes = values.view({16: np.uint16, 8: np.uint8}[bits] if bits >= 8 else np.uint8).astype(np.uint64)
    out = np.zeros((elements * bits // 32, 64), np.uint64)
    for e in range(elements):
        word, shift = divmod(e * bits, 32)
        out[word] |= codes[e] << np.uint64(shift) & np.uint64(0xFFFFFFFF)
        if shift + bits > 32:
            out[word + 1] |= codes[e] >> np.uint64(32 - shift)
    return out.astype(np.uint32)


def unfragment(words, row):
    wide = row.d_dtype.bits == 64
    if wide:
        n = words.shape[0] // 2
        values = np.ascontiguousarray(words.reshape(n, 2, 64).transpose(0, 2, 1)).view(np.float64)[..., 0]
    else:
        values = words.view(np.int32 if row.d_dtype is dt.i32 else np.float32)
    at = mfma.coordinates(tuple(sorted(row.d.items())), values.shape[0])
    out = np.zeros((row.blocks, row.m, row.n), values.dtype)
    zero = np.zeros(values.shape, np.int64)
    out[at.get("B", zero), at["M"], at["N"]] = values
    return out


def execute(row, target, words_a, words_b, words_c, modifiers="", extra=""):
    """Run one matrix instruction on one wave: registers in, registers out."""
    loads, at = [], 2
    bases = []
    pointers = []
    for i, w in enumerate((words_a, words_b, words_c)):
        at += at % 2
        bases.append(at)
        for r in range(len(w)):
            loads.append(f"global_load_dword v{at + r}, v1, s[{8 + 2 * i}:{9 + 2 * i}] offset:{256 * r % 4096}")
            if 256 * (r + 1) % 4096 == 0:
                loads.append(f"s_add_u32 s{8 + 2 * i}, s{8 + 2 * i}, 0x1000\ns_addc_u32 s{9 + 2 * i}, s{9 + 2 * i}, 0")
        at += len(w)
        pointers.append(np.ascontiguousarray(w))
    a, b, c = bases
    n = len(words_c)
    d = name(c, n)
    out = np.zeros((n, 64), np.uint32)
    stores = []
    for r in range(n):
        stores.append(f"global_store_dword v1, v{c + r}, s[14:15] offset:{256 * r % 4096}")
        if 256 * (r + 1) % 4096 == 0:
            stores.append("s_add_u32 s14, s14, 0x1000\ns_addc_u32 s15, s15, 0")
    body = "\n".join(
        [
            "s_load_dwordx8 s[8:15], s[0:1], 0x0",
            "v_and_b32 v0, 0x3ff, v0",
            "v_lshlrev_b32 v1, 2, v0",
            "s_waitcnt lgkmcnt(0)",
            *loads,
            "s_waitcnt vmcnt(0)",
            "s_nop 1",
            f"{row.spelling(target)} {d}, {name(a, len(words_a))}, {name(b, len(words_b))}, {d}{extra} {modifiers}",
            "s_nop 15",
            "s_nop 15",
            *stores,
        ]
    )
    report = run(body, [*pointers, out], target=target, checks=True)
    assert report.instructions[row.spelling(target)] == 1
    return out


@pytest.mark.parametrize("target,mnemonic", NAMED)
def test_products(target, mnemonic):
    """D = A B + C, exactly: small integers in every format."""
    row = isa.lookup(mnemonic, target).extra
    rng = np.random.default_rng(len(mnemonic) + row.k)
    a = rng.integers(-3, 4, (row.blocks, row.m, row.k))
    b = rng.integers(-3, 4, (row.blocks, row.k, row.n))
    c = rng.integers(-9, 10, (row.blocks, row.m, row.n))
    kind = {dt.i8: np.int8, dt.tf32: np.float32}
    a_type, b_type = (kind.get(t, t.numpy) for t in (row.a_dtype, row.b_dtype))
    d_type = {dt.f64: np.float64, dt.i32: np.int32}.get(row.d_dtype, np.float32)
    words = (
        fragment(a.astype(a_type), row.a, row.a_dtype, "BMK"), fragment(b.astype(b_type), row.b, row.b_dtype, "BKN"),
        fragment(c.astype(d_type), row.d, row.d_dtype, "BMN"),
    )  # fmt: skip
    got = unfragment(execute(row, target, *words), row)
    assert (got == a @ b + c).all()


@pytest.mark.parametrize("target", isa.TARGETS)
@pytest.mark.parametrize("mnemonic", ["v_mfma_f32_16x16x16f16", "v_mfma_f32_16x16x16bf16_1k", "v_mfma_f32_16x16x4f32"])
def test_denormals(target, mnemonic):
    """gfx90a takes those of 16-bit operands, and those of their sums, as zeros; no later chip, and none f32's."""
    row = isa.lookup(mnemonic, target).extra
    kind = row.a_dtype.numpy
    tiny = float(ml_dtypes.finfo(kind).tiny)
    a = np.zeros((1, 16, row.k))
    a[0, :, 0], a[0, :, 1] = tiny / 2, tiny
    b = np.zeros((1, row.k, 16))
    b[0, :, 0], b[0, 0, 1], b[0, 1, 2] = 8.0, 8.0, 8.0
    c = np.zeros((1, 16, 16), np.float32)
    c[0, 0, 5] = 2.0**-127
    words = (
        fragment(a.astype(kind), row.a, row.a_dtype, "BMK"), fragment(b.astype(kind), row.b, row.b_dtype, "BKN"),
        fragment(c, row.d, row.d_dtype, "BMN"),
    )  # fmt: skip
    got = unfragment(execute(row, target, *words), row)[0]
    kept = not (target == "gfx90a" and row.a_dtype.bits == 16)
    assert (got[:, 0] == (12 * tiny if kept else 8 * tiny)).all()
    assert (got[:, 1] == (4 * tiny if kept else 0)).all() and (got[:, 2] == 8 * tiny).all()
    assert got[0, 5] == (np.float32(2.0**-127) if kept else 0)


@pytest.mark.parametrize("cbsz,blgp", [(i, j) for i in range(5) for j in range(5)])
@pytest.mark.parametrize("m", [16, 32])
def test_f8f6f4_products(m, cbsz, blgp):
    """All 25 pairs of formats, without and with scales."""
    base = isa.lookup("v_mfma_f32_16x16x128_f8f6f4" if m == 16 else "v_mfma_f32_32x32x64_f8f6f4", "gfx950").extra
    row = mfma.with_formats(base, cbsz, blgp)
    rng = np.random.default_rng(m + 5 * cbsz + blgp)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, -0.5, -1, -2, -3, -4])
    a, b = rng.choice(values, (m, row.k)), rng.choice(values, (row.k, m))
    c = rng.integers(-9, 10, (m, m)).astype(np.float32)
    words = (
        fragment(a.astype(row.a_dtype.numpy), row.a, row.a_dtype, "MK"),
        fragment(b.astype(row.b_dtype.numpy), row.b, row.b_dtype, "KN"),
        fragment(c, row.d, dt.f32, "MN"),
    )
    assert len(words[0]) == row.a_regs and len(words[1]) == row.b_regs
    got = unfragment(execute(row, "gfx950", *words, modifiers=f"cbsz:{cbsz} blgp:{blgp}"), row)[0]
    assert (got == a @ b + c).all()


@pytest.mark.parametrize("sel", [0, 1, 2, 3])
def test_scales(sel):
    """The scale of row i and k-block l // 16 sits in lane l, in the byte that op_sel and op_sel_hi name."""
    row = mfma.with_formats(isa.lookup("v_mfma_scale_f32_16x16x128_f8f6f4", "gfx950").extra, 4, 4)
    rng = np.random.default_rng(sel)
    a, b = rng.choice([0.5, 1, -1.5, 2], (16, 128)), rng.choice([0.5, 1, -1.5, 2], (128, 16))
    scales = rng.integers(120, 135, (2, 64))
    block = np.repeat(np.exp2(scales.reshape(2, 4, 16) - 127.0), 32, axis=1)
    want = (a * block[0].T) @ (b * block[1])
    words = (fragment(a.astype(row.a_dtype.numpy), row.a, row.a_dtype, "MK"),
             fragment(b.astype(row.b_dtype.numpy), row.b, row.b_dtype, "KN"))  # fmt: skip
    extra = (scales.astype(np.uint32) << np.uint32(8 * sel)) | np.uint32(0)
    both = np.concatenate((words[1], extra))
    at = 2 + len(words[0])
    lo, hi = sel & 1, sel >> 1
    # the scale registers are loaded behind B
    row_b = len(words[1])
    out = execute_scaled(row, words[0], both, row_b, at, f"op_sel:[{lo},{lo},0] op_sel_hi:[{hi},{hi},0] cbsz:4 blgp:4")
    bound = 128 * 2.0**-24 * ((abs(a) * block[0].T) @ (abs(b) * block[1]))  # sums in any order, rounded each time
    assert (abs(unfragment(out, row)[0] - want) <= bound).all()


def execute_scaled(row, a, b_and_scales, nb, at, modifiers):
    na = len(a)
    rows = [*a, *b_and_scales]
    out = np.zeros((4, 64), np.uint32)
    first = 2
    second = first + na
    body = "\n".join(
        [
            "s_load_dwordx4 s[8:11], s[0:1], 0x0",
            "v_and_b32 v0, 0x3ff, v0",
            "v_lshlrev_b32 v1, 2, v0",
            "s_waitcnt lgkmcnt(0)",
            *[f"global_load_dword v{first + i}, v1, s[8:9] offset:{256 * i}" for i in range(len(rows))],
            "s_waitcnt vmcnt(0)",
            "s_nop 1",
            f"{row.mnemonic} v[40:43], {name(first, na)}, {name(second, nb)}, 0, v{second + nb}, "
            f"v{second + nb + 1} {modifiers}",
            "s_nop 15",
            *[f"global_store_dword v1, v{40 + i}, s[10:11] offset:{256 * i}" for i in range(4)],
        ]
    )
    run(body, [np.stack(rows), out], target="gfx950", checks=True)
    return out


@pytest.mark.parametrize("target", isa.TARGETS)
def test_passes_equal_llvms(oracle, target):
    """LLVM's scheduling model gives the same passes; it has one figure for f8f6f4 whatever the formats."""
    rows = [r for r in mfma.dense(target) if not r.formats]
    lines = [
        f"{r.spelling(target)} {name(0, r.d_regs)}, {name(64, r.a_regs)}, {name(80, r.b_regs)}, {name(0, r.d_regs)}"
        for r in rows
    ]
    said = subprocess.run([oracle("llvm-mca"), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-instruction-tables"],
                          input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout  # fmt: skip
    found = re.findall(r"^\s*\d+\s+\d+\s+([\d.]+)\s.*v_mfma", said, re.M)
    assert [float(x) for x in found] == [r.passes[target] for r in rows]


def test_inline_constant_c_and_agprs():
    body = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 1.0
v_mov_b32 v3, 2.0
s_nop 1
v_mfma_f32_16x16x4_f32 a[0:3], v2, v3, 1.0
s_nop 15
v_accvgpr_read_b32 v4, a3
s_waitcnt lgkmcnt(0)
global_store_dword v1, v4, s[8:9]
"""
    out = np.zeros(64, np.float32)
    run(body, [out], checks=True)
    assert (out == 9).all()


def test_texts_that_share_lines_have_agprs_of_their_own():
    """What a line is decoded to serves all texts that spell it so; AGPRs lie behind as many VGPRs as each of them
    has."""
    for more in (0, 9, 0):
        body = f"""
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, {more}.0
v_accvgpr_write_b32 a{4 + more // 9}, v2
v_accvgpr_write_b32 a3, v0
{"".join(f"v_mov_b32 v{5 + i}, 7{chr(10)}" for i in range(more))}
v_accvgpr_read_b32 v4, a3
s_waitcnt lgkmcnt(0)
global_store_dword v1, v4, s[8:9]
"""
        out = np.zeros(64, np.int32)
        run(body, [out], checks=True)
        assert (out == np.arange(64)).all()


def test_time_starts_anew_in_every_run():
    body = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
s_memtime s[10:11]
s_waitcnt lgkmcnt(0)
v_mov_b32 v1, 0
v_mov_b32 v2, s10
global_store_dword v1, v2, s[8:9]
"""
    first, again = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    run(body, [first], checks=True)
    run(body, [again], checks=True)
    assert first[0] == again[0] > 0


# ---- products of structured sparsity: A has two of every four elements along K, an index register says which

SPARSE = [(t, r.mnemonic) for t in ("gfx942", "gfx950") for r in mfma.sparse(t)]


def execute_sparse(row, target, words_a, words_b, index, words_d, modifiers=""):
    """Run one sparse product on one wave: (registers of D, what the checks found)."""
    sources = np.concatenate((words_a, words_b, index[None]))
    at_b, at_index = 2 + row.a_regs, 2 + row.a_regs + row.b_regs
    out = words_d.copy()
    result = name(64, row.d_regs)
    offsets = [f"offset:{256 * r}" for r in range(16)]
    body = [
        "s_load_dwordx4 s[8:11], s[0:1], 0x0",
        "v_and_b32 v0, 0x3ff, v0",
        "v_lshlrev_b32 v1, 2, v0",
        "s_waitcnt lgkmcnt(0)",
        *[f"global_load_dword v{2 + r}, v1, s[8:9] {offsets[r]}" for r in range(len(sources))],
        *[f"global_load_dword v{64 + r}, v1, s[10:11] {offsets[r]}" for r in range(row.d_regs)],
        "s_waitcnt vmcnt(0)",
        "s_nop 1",
        f"{row.mnemonic} {result}, {name(2, row.a_regs)}, {name(at_b, row.b_regs)}, v{at_index} {modifiers}",
        "s_nop 15",
        *[f"global_store_dword v1, v{64 + r}, s[10:11] {offsets[r]}" for r in range(row.d_regs)],
    ]
    return out, run("\n".join(body), [sources, out], target=target, checks="report")


def sparse_problem(row, seed, uniform=False):
    """(A with two of every four elements per row, where they stand, B, D): small integers."""
    rng = np.random.default_rng(seed)
    pairs = np.array([(i, j) for i in range(4) for j in range(i + 1, 4)])
    fours = row.k // 4
    chosen = pairs[rng.integers(0, 6, (1 if uniform else row.m, 1 if uniform else fours))]
    places = np.broadcast_to(chosen, (row.m, fours, 2)).reshape(row.m, row.k // 2)
    kept = rng.integers(-3, 4, (row.m, row.k // 2))
    return kept, places, rng.integers(-3, 4, (row.k, row.n)), rng.integers(-9, 10, (row.m, row.n))


def whole(kept, places, k):
    """A with its zeros."""
    out = np.zeros((len(kept), k))
    np.put_along_axis(out, places + 4 * (np.arange(k // 2) // 2), kept, axis=1)
    return out


def index_words(row, places, byte):
    """The index register: lane l has the places of elements 4 (l // m) .. of row l % m."""
    lanes = np.arange(64)
    mine = places[(lanes % row.m)[:, None], 4 * (lanes // row.m)[:, None] + np.arange(4)]
    word = (mine << (2 * np.arange(4) + 8 * byte)).sum(axis=1)
    noise = 0xA5C3965A & ~(0xFF << 8 * byte)
    return (word | noise).astype(np.uint32)


def sparse_words(row, kept, b, d):
    return (
        fragment(kept.astype(row.a_dtype.numpy), row.a, row.a_dtype, "MK"),
        fragment(b.astype(row.b_dtype.numpy), row.b, row.b_dtype, "KN"),
        fragment(d.astype(np.float32), row.d, row.d_dtype, "MN"),
    )


@pytest.mark.parametrize("byte,uniform", [(0, False), (3, False), (1, True)])
@pytest.mark.parametrize("target,mnemonic", SPARSE)
def test_sparse_products(target, mnemonic, byte, uniform):
    """Exactly, for any two places of every four, from the byte that abid names."""
    row = isa.lookup(mnemonic, target).extra
    kept, places, b, d = sparse_problem(row, row.k + byte, uniform)
    a, bw, dw = sparse_words(row, kept, b, d)
    got, report = execute_sparse(row, target, a, bw, index_words(row, places, byte), dw, f"abid:{byte}" if byte else "")
    assert not report.findings
    assert (unfragment(got, row)[0] == whole(kept, places, row.k) @ b + d).all()


def test_a_set_cbsz_takes_the_first_byte():
    row = isa.lookup("v_smfmac_f32_16x16x32_f16", "gfx942").extra
    kept, places, b, d = sparse_problem(row, 5)
    a, bw, dw = sparse_words(row, kept, b, d)
    got, _ = execute_sparse(row, "gfx942", a, bw, index_words(row, places, 0), dw, "cbsz:1 abid:2")
    assert (unfragment(got, row)[0] == whole(kept, places, row.k) @ b + d).all()


def test_what_is_not_picked_is_not_multiplied():
    """Infinities and NaN in rows of B that no element of A picks leave D alone; with zeros for A they would not."""
    row = isa.lookup("v_smfmac_f32_32x32x16_f16", "gfx942").extra
    kept, _, b, d = sparse_problem(row, 7)
    places = np.tile((0, 2), row.k // 4)[None].repeat(row.m, axis=0)
    wild = b.astype(np.float64)
    wild[1::4], wild[3::4] = np.inf, np.nan
    a, bw, dw = sparse_words(row, kept, wild, d)
    got, _ = execute_sparse(row, "gfx942", a, bw, index_words(row, places, 0), dw)
    assert (unfragment(got, row)[0] == kept @ b[::2] + d).all()


def test_places_out_of_order_are_refused():
    row = isa.lookup("v_smfmac_f32_16x16x32_f16", "gfx942").extra
    kept, places, b, d = sparse_problem(row, 9)
    a, bw, dw = sparse_words(row, kept, b, d)
    _, report = execute_sparse(row, "gfx942", a, bw, index_words(row, places[:, ::-1].copy(), 0), dw)
    assert [f.kind for f in report.findings] == ["unsupported"]
    assert "not in order" in report.findings[0].message


@pytest.mark.parametrize(
    "operands,word",
    [
        ([isa.Reg("v", 0, 4), isa.Reg("v", 4, 2), isa.Reg("v", 8, 4), isa.Reg("a", 12, 1)], "index"),
        ([isa.Reg("v", 0, 4), isa.Reg("v", 4, 2), isa.Reg("v", 9, 4), isa.Reg("v", 12, 1)], "even"),
        ([isa.Reg("v", 0, 4), isa.Reg("v", 4, 2), isa.Reg("v", 8, 4), 0], "index"),
    ],
)
def test_sparse_operand_rules(operands, word):
    row = isa.lookup("v_smfmac_f32_16x16x32_f16", "gfx942")
    assert word in " ".join(check_operands(row, operands, "gfx942"))


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_sparse_passes_equal_llvms(oracle, target):
    rows = mfma.sparse(target)
    lines = [f"{r.mnemonic} {name(0, r.d_regs)}, {name(64, r.a_regs)}, {name(80, r.b_regs)}, v90" for r in rows]
    said = subprocess.run([oracle("llvm-mca"), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-instruction-tables"],
                          input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout  # fmt: skip
    found = re.findall(r"^\s*\d+\s+\d+\s+([\d.]+)\s.*v_smfmac", said, re.M)
    assert [float(x) for x in found] == [r.passes[target] for r in rows]
