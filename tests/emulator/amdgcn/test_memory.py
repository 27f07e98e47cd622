"""Memory: addresses, widths, halves, buffers, atomics, scratch, flat, transposing reads, and the address space
itself.
"""

from __future__ import annotations

import mmap

import ml_dtypes
import numpy as np
import pytest
from amdgcn_harness import run
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime.emulator.memory import ADDRESS_LIMIT, GlobalMemory

HEAD = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
"""
LANE = np.arange(64)


def words(n=1024, seed=0):
    return np.random.default_rng(seed).integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32)


# ---- the address space


def test_arrays_are_mapped_in_place():
    m = GlobalMemory()
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    columns, backwards = np.zeros((8, 8), np.float16)[:, ::2], np.arange(10, dtype=np.int32)[::-1]
    pa, pc, pb = m.add(a, "a"), m.add(columns, "columns"), m.add(backwards, "backwards")
    assert max(pa, pb, pc) < ADDRESS_LIMIT and pa % 16 == a.__array_interface__["data"][0] % 16
    got, fault = m.load(np.array([pa, pa + 252]), 4)
    assert got.view(np.float32).tolist() == [[0, 63]] and fault is None
    assert m.store(np.array([pc, pc + 4]), np.array([[0x3C00, 0x4000]], np.uint32), 2) is None
    assert columns[0].tolist() == [1, 2, 0, 0]
    got, fault = m.load(np.array([pb, pb - 4]), 4)
    assert got.tolist() == [[9, 8]] and fault is None


@pytest.mark.parametrize("size", [1, 300, 512, 4096, 100_000])
def test_arrays_lie_across_a_carry(size):
    """A text that adds offsets to the low word alone, or drops a bit of the high one, leaves the array."""
    m = GlobalMemory()
    for _ in range(3):
        data = np.zeros(size, np.uint8)
        base = m.add(data, "x")
        assert base >> 32 & 0x1F == 0x1F and base & 0xFFFFFFFF
        assert (base + size - 1) >> 32 != base >> 32 or size < 512
        got, fault = m.load(np.array([base, base + size - 1]), 1)
        assert fault is None and got.tolist() == [[0, 0]]


def test_faults_name_the_argument():
    m = GlobalMemory()
    a, b = np.zeros(16, np.float32), np.zeros(16, np.float32)
    pa, pb = m.add(a, "a"), m.add(b, "b")
    for address, text in (
        (pb + 68, "argument `b`, 4 bytes past its end"),
        (pa - 8, "argument `a`, 8 bytes before its start"),
        (pb + 62, "argument `b`, up to 2 bytes past its end"),
        (16, "null pointer"),
        (1 << 46, "far from every"),
    ):
        got, fault = m.load(np.array([pa, address]), 4)
        assert fault is not None and fault.mask.tolist() == [False, True] and text in fault.message
        assert got[0, 1] == 0


def test_a_view_shares_the_addresses_of_its_array():
    m = GlobalMemory()
    a = np.zeros(100, np.int32)
    base = m.add(a, "whole")
    assert m.add(a[5:], "view") == base + 20 and len(m.allocations) == 1


@pytest.mark.parametrize("size", [1, 2, 4, 8, 12, 16])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_widths_and_alignment(size, shift):
    m = GlobalMemory()
    data = np.arange(256, dtype=np.uint8)
    base = m.add(data, "x")
    at = base + np.array([0, 16, 100]) + shift
    got, fault = m.load(at, size)
    assert fault is None and got.shape == ((size + 3) // 4, 3)
    for i, start in enumerate((0, 16, 100)):
        want = bytes(data[start + shift : start + shift + size]).ljust(4 * len(got), b"\0")
        assert np.ascontiguousarray(got[:, i]).tobytes() == want
    m.store(at, ~got, size)
    assert data[shift] == 255 - shift and data[100 + shift + size] == 100 + shift + size


def test_read_only_arrays():
    a = np.zeros(64, np.uint32)
    a.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        run(HEAD + "v_mov_b32 v2, 1\nglobal_store_dword v1, v2, s[8:9]", [a, None])


def test_offsets_beyond_4_gib():
    """Lazily committed memory: 64-bit addresses reach all of it."""
    big = np.frombuffer(mmap.mmap(-1, (5 << 30) + 4096), np.uint8)
    last = big[5 << 30 :].view(np.uint32)
    last[:64] = np.arange(64) + 5
    out = np.zeros(64, np.uint32)
    body = (
        HEAD
        + """
s_add_u32 s12, s8, 0x40000000
s_addc_u32 s13, s9, 1
global_load_dword v2, v1, s[12:13]
s_waitcnt vmcnt(0)
global_store_dword v1, v2, s[10:11]
"""
    )
    run(body, [big, out], checks=True)
    assert (out == np.arange(64) + 5).all()


# ---- instructions


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("space", ["global", "off", "buffer", "flat", "agpr"])
def test_dword_loads_and_stores(space, n):
    a, out = words(), np.zeros(1024, np.uint32)
    x = f"x{n}" if n > 1 else ""
    d = "v2" if n == 1 else f"v[2:{1 + n}]"
    address = f"v_mul_u32_u24 v1, {4 * n}, v0\n"
    if space in ("global", "agpr"):
        d = d.replace("v", "a") if space == "agpr" else d
        load, store = f"global_load_dword{x} {d}, v1, s[8:9]", f"global_store_dword{x} v1, {d}, s[10:11]"
    elif space in ("off", "flat"):
        address += "".join(
            f"v_mov_b32 v{r + 1}, s{s + 1}\nv_add_co_u32 v{r}, vcc, s{s}, v1\ns_nop 1\n"
            f"v_addc_co_u32 v{r + 1}, vcc, 0, v{r + 1}, vcc\n"
            for r, s in ((10, 8), (12, 10))
        )
        name, off = ("global", ", off") if space == "off" else ("flat", "")
        load, store = f"{name}_load_dword{x} {d}, v[10:11]{off}", f"{name}_store_dword{x} v[12:13], {d}{off}"
    else:
        address += "s_mov_b32 s12, s8\ns_mov_b32 s13, s9\ns_mov_b32 s14, 0x1000\ns_mov_b32 s15, 0x27000\n"
        address += "s_mov_b32 s16, s10\ns_mov_b32 s17, s11\ns_mov_b32 s18, 0x1000\ns_mov_b32 s19, 0x27000\n"
        load, store = (
            f"buffer_load_dword{x} {d}, v1, s[12:15], 0 offen",
            f"buffer_store_dword{x} {d}, v1, s[16:19], 0 offen",
        )
    run(f"{HEAD}{address}{load}\ns_waitcnt vmcnt(0) lgkmcnt(0)\n{store}", [a, out], checks=True)
    assert (out[: 64 * n] == a[: 64 * n]).all() and not out[64 * n :].any()


@pytest.mark.parametrize(
    "load,fn",
    [
        ("ubyte", lambda b: b.astype(np.uint32)),
        ("sbyte", lambda b: b.view(np.int8).astype(np.int32).view(np.uint32)),
        ("ushort", lambda b: b.view(np.uint16).astype(np.uint32)),
        ("sshort", lambda b: b.view(np.int16).astype(np.int32).view(np.uint32)),
        ("short_d16", lambda b: b.view(np.uint16).astype(np.uint32) | 0xABCD0000),
        ("short_d16_hi", lambda b: b.view(np.uint16).astype(np.uint32) << 16 | 0x1234),
        ("ubyte_d16", lambda b: b.astype(np.uint32) | 0xABCD0000),
        ("sbyte_d16_hi", lambda b: (b.view(np.int8).astype(np.int16).view(np.uint16).astype(np.uint32) << 16) | 0x1234),
    ],
)
def test_narrow_loads(load, fn):
    a, out = words(), np.zeros(64, np.uint32)
    size = 1 if "byte" in load else 2
    body = (
        HEAD
        + f"""
v_mul_u32_u24 v3, {size}, v0
v_mov_b32 v2, 0xabcd1234
global_load_{load} v2, v3, s[8:9]
s_waitcnt vmcnt(0)
global_store_dword v1, v2, s[10:11]
"""
    )
    run(body, [a, out], checks=True)
    assert (out == fn(a.view(np.uint8)[: 64 * size].copy())).all()


@pytest.mark.parametrize(
    "store,shift,size", [("byte", 0, 1), ("byte_d16_hi", 16, 1), ("short", 0, 2), ("short_d16_hi", 16, 2)]
)
def test_narrow_stores(store, shift, size):
    a, out = words(64), np.full(256, 93, np.uint8)
    body = (
        HEAD
        + f"""
global_load_dword v2, v1, s[8:9]
v_mul_u32_u24 v3, {size}, v0
s_waitcnt vmcnt(0)
global_store_{store} v3, v2, s[10:11]
"""
    )
    run(body, [a, out], checks=True)
    assert (out[: 64 * size].view(f"u{size}") == (a >> shift).astype(f"u{size}")).all() and (
        out[64 * size :] == 93
    ).all()


def test_structured_buffer():
    """idxen: index times the descriptor's stride; offen adds bytes."""
    a, out = words(), np.zeros(64, np.uint32)
    body = (
        HEAD
        + """
s_mov_b32 s12, s8
s_or_b32 s13, s9, 0x00100000
s_mov_b32 s14, 0x200
s_mov_b32 s15, 0x27000
v_mov_b32 v4, v0
v_mov_b32 v5, 4
s_mov_b32 s20, 0
buffer_load_dword v2, v[4:5], s[12:15], s20 idxen offen offset:8
s_waitcnt vmcnt(0)
global_store_dword v1, v2, s[10:11]
"""
    )
    run(body, [a, out], checks=True)
    want = np.where(16 * LANE + 12 < 0x200, a[4 * LANE + 3], 0)
    assert (out == want).all()


@pytest.mark.parametrize("width,count", [("b32", 1), ("b64", 2), ("b96", 3), ("b128", 4)])
def test_lds_widths(width, count):
    a, out = words(256), np.zeros(256, np.uint32)
    d = "v2" if count == 1 else f"v[2:{1 + count}]"
    e = "v10" if count == 1 else f"v[10:{9 + count}]"
    x = f"x{count}" if count > 1 else ""
    body = f"""{HEAD}v_mul_u32_u24 v1, {4 * count}, v0
global_load_dword{x} {d}, v1, s[8:9]
s_waitcnt vmcnt(0)
ds_write_{width} v1, {d} offset:32
s_waitcnt lgkmcnt(0)
ds_read_{width} {e}, v1 offset:32
s_waitcnt lgkmcnt(0)
global_store_dword{x} v1, {e}, s[10:11]
"""
    run(body, [a, out], lds=2048, checks=True)
    assert (out[: 64 * count] == a[: 64 * count]).all()


def test_lds_two_addresses():
    a, out = words(256), np.zeros(256, np.uint32)
    body = (
        HEAD
        + """
global_load_dwordx2 v[2:3], v1, s[8:9]
v_lshlrev_b32 v4, 3, v0
s_waitcnt vmcnt(0)
ds_write2st64_b32 v1, v2, v3 offset0:1 offset1:3
s_waitcnt lgkmcnt(0)
ds_read2st64_b32 v[6:7], v1 offset0:3 offset1:1
s_waitcnt lgkmcnt(0)
global_store_dwordx2 v4, v[6:7], s[10:11]
"""
    )
    run(body, [a, out], lds=2048, checks=True)
    assert (out[0:128:2] == a[1:65]).all() and (out[1:128:2] == a[:64]).all()


@pytest.mark.parametrize("bits", [16, 8, 4, 6])
def test_transposing_reads(bits):
    """dst[t].element[j] is element b t + 16 b j of the 16 lanes' bytes, laid end to end (CDNA 4 ISA guide)."""
    n = 3 if bits == 6 else 2
    size = 4 * n
    a, out = words(64 * n), np.zeros(64 * n, np.uint32)
    x = f"x{n}"
    op = f"ds_read_b{8 * size}_tr_b{bits}"
    body = f"""{HEAD}v_mul_u32_u24 v1, {size}, v0
global_load_dword{x} v[2:{1 + n}], v1, s[8:9]
s_waitcnt vmcnt(0)
ds_write_b{8 * size} v1, v[2:{1 + n}]
s_waitcnt lgkmcnt(0)
{op} v[10:{9 + n}], v1
s_waitcnt lgkmcnt(0)
global_store_dword{x} v1, v[10:{9 + n}], s[10:11]
"""
    run(body, [a, out], lds=1024, target="gfx950", checks=True)
    count = 8 * size // bits
    for group in range(4):
        string = int.from_bytes(a[group * 16 * n : (group + 1) * 16 * n].tobytes(), "little")
        for t in range(16):
            want = sum((string >> bits * t + 16 * bits * j & (1 << bits) - 1) << bits * j for j in range(count))
            lane = group * 16 + t
            assert int.from_bytes(out[lane * n : lane * n + n].tobytes(), "little") == want


ATOMICS = {
    "add": lambda o, d: o + d,
    "sub": lambda o, d: o - d,
    "umin": min,
    "umax": max,
    "and": lambda o, d: o & d,
    "or": lambda o, d: o | d,
    "xor": lambda o, d: o ^ d,
    "swap": lambda o, d: d,
    "inc": lambda o, d: 0 if o >= d else o + 1,
    "dec": lambda o, d: d if o == 0 or o > d else o - 1,
}


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_distinct_addresses(name):
    data, memory = words(64, 1), words(64, 2)
    before, old = memory.copy(), np.zeros(64, np.uint32)
    body = f"""s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[12:13], s[0:1], 0x10
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[8:9]
s_waitcnt vmcnt(0)
global_atomic_{name} v3, v1, v2, s[10:11] sc0
s_waitcnt vmcnt(0)
global_store_dword v1, v3, s[12:13]
"""
    run(body, [data, memory, old], checks=True)
    assert (old == before).all()
    assert memory.tolist() == [ATOMICS[name](int(o), int(d)) & 0xFFFFFFFF for o, d in zip(before, data)]


@pytest.mark.parametrize(
    "op,dtype",
    [
        ("global_atomic_add", np.uint32),
        ("global_atomic_add_f32", np.float32),
        ("global_atomic_pk_add_f16", np.float16),
        ("global_atomic_pk_add_bf16", ml_dtypes.bfloat16),
        ("global_atomic_add_f64", np.float64),
    ],
)
def test_atomics_on_one_address(op, dtype):
    """All lanes of several waves add to four places."""
    wide = np.dtype(dtype).itemsize == 8
    total = np.zeros(16, np.uint32)
    one = {np.uint32: "1", np.float32: "1.0", np.float64: "0"}.get(
        dtype, "0x3c003c00" if dtype is np.float16 else "0x3f803f80"
    )
    body = f"""{HEAD}v_and_b32 v3, 3, v0
v_lshlrev_b32 v3, {3 if wide else 2}, v3
v_mov_b32 v4, {one}
v_mov_b32 v5, 0x3ff00000
{op} v3, {"v[4:5]" if wide else "v4"}, s[8:9]
"""
    run(body, [total, total.copy()], block=128, grid=3, checks=True)
    values = total.view(dtype)[: 4 * (2 if np.dtype(dtype).itemsize == 2 else 1)].astype(np.float64)
    assert (values == 96).all()


def test_atomic_ticket():
    """Returned old values of one counter are all different."""
    counter, out = np.zeros(4, np.uint32), np.zeros(192, np.uint32)
    body = (
        HEAD
        + """
s_mul_i32 s5, s2, 0x100
s_nop 0
v_mov_b32 v4, 1
v_mov_b32 v3, 0
global_atomic_add v5, v3, v4, s[8:9] sc0
s_waitcnt vmcnt(0)
v_add_u32 v1, s5, v1
global_store_dword v1, v5, s[10:11]
"""
    )
    run(body, [counter, out], grid=3, checks=True)
    assert counter[0] == 192 and sorted(out.tolist()) == list(range(192))


def test_compare_and_swap():
    memory, old = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    body = (
        HEAD
        + """
v_mov_b32 v4, 0x1000
v_and_b32 v5, 0x3e, v0
global_atomic_cmpswap v2, v1, v[4:5], s[8:9] sc0
s_waitcnt vmcnt(0)
global_store_dword v1, v2, s[10:11]
"""
    )
    run(body, [memory, old], checks=True)
    assert (old == LANE).all() and (memory == np.where(LANE % 2 == 0, 0x1000, LANE)).all()


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_scratch(target):
    out = np.zeros(64, np.uint32)
    body = (
        HEAD
        + """
v_mov_b32 v4, 4
v_add_u32 v2, 7, v0
s_mov_b32 s20, 8
scratch_store_dword v4, v2, s20 offset:4
scratch_store_dword off, v0, off offset:4
s_waitcnt vmcnt(0)
scratch_load_dword v3, off, off offset:16
s_waitcnt vmcnt(0)
global_store_dword v1, v3, s[10:11]
"""
    )
    run(body, [None, out], private=32, target=target, enable_private_segment=1, checks=True)
    assert (out == LANE + 7).all()
    report = run(body, [None, out], private=16, target=target, enable_private_segment=1)
    assert {f.kind for f in report.findings} == {"out-of-bounds"}


@pytest.mark.parametrize("offset", ["s5", "0"])
def test_scratch_of_gfx90a_is_set_up_by_the_kernel(offset):
    """FLAT_SCRATCH is the start that the kernel is given plus the wave's offset; without the offset, waves collide."""
    out = np.zeros(128, np.uint32)
    body = f"""
s_add_u32 flat_scratch_lo, s2, {offset}
s_addc_u32 flat_scratch_hi, s3, 0
s_load_dwordx2 s[10:11], s[0:1], 0x0
s_mov_b32 s20, 0
v_lshlrev_b32 v1, 2, v0
scratch_store_dword off, v0, s20 offset:8
scratch_load_dword v3, off, s20 offset:8
s_waitcnt vmcnt(0) lgkmcnt(0)
global_store_dword v1, v3, s[10:11]
"""
    report = run(body, [out], private=16, target="gfx90a", block=128, user_sgpr_count=4, user_sgpr_flat_scratch_init=1,
                 system_sgpr_workgroup_id_y=0, system_sgpr_workgroup_id_z=0,
                 system_sgpr_private_segment_wavefront_offset=1)  # fmt: skip
    if offset == "0":
        assert {f.kind for f in report.findings} == {"out-of-bounds"} and "FLAT_SCRATCH" in report.findings[0].message
    else:
        assert report.findings == [] and (out == np.arange(128)).all()


def test_flat_reaches_lds():
    out = np.zeros(64, np.uint32)
    body = (
        HEAD
        + """
ds_write_b32 v1, v0
s_mov_b64 s[20:21], src_shared_base
v_mov_b32 v4, v1
v_mov_b32 v5, s21
s_waitcnt lgkmcnt(0)
flat_load_dword v6, v[4:5]
s_waitcnt vmcnt(0) lgkmcnt(0)
global_store_dword v1, v6, s[10:11]
"""
    )
    run(body, [None, out], lds=256, checks=True)
    assert (out == LANE).all()


def test_direct_to_lds_wide():
    """16 bytes per lane land at M0 + 16 lane; the global side may be permuted."""
    a, out = words(256), np.zeros(256, np.uint32)
    body = (
        HEAD
        + """
v_lshlrev_b32 v1, 4, v0
v_xor_b32 v2, 0x30, v1
s_mov_b32 s12, s8
s_mov_b32 s13, s9
s_mov_b32 s14, 0x400
s_mov_b32 s15, 0x27000
s_mov_b32 m0, 0x100
s_nop 0
buffer_load_dwordx4 v2, s[12:15], 0 offen lds
s_waitcnt vmcnt(0)
ds_read_b128 v[4:7], v1 offset:256
s_waitcnt lgkmcnt(0)
global_store_dwordx4 v1, v[4:7], s[10:11]
"""
    )
    run(body, [a, out], lds=2048, target="gfx950", checks=True)
    assert (out.reshape(64, 4) == a.reshape(64, 4)[LANE ^ 3]).all()


def test_constant_data_and_scalar_buffers():
    out = np.zeros(64, np.uint32)
    body = """
.section .rodata
table:
.long 11, 22, 33
.quad 0x4400000000
.text
s_load_dwordx4 s[8:11], s[0:1], 0x0
s_getpc_b64 s[12:13]
s_add_u32 s12, s12, table@rel32@lo+4
s_addc_u32 s13, s13, table@rel32@hi+12
s_load_dwordx4 s[16:19], s[12:13], 0x4
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
s_add_u32 s20, s16, s17
s_add_u32 s20, s20, s19
v_mov_b32 v2, s20
global_store_dword v1, v2, s[10:11]
"""
    run(body, [None, out], checks=True)
    assert (out == 22 + 33 + 0x44).all()


def test_bank_conflicts_are_counted():
    body = HEAD + "v_lshlrev_b32 v2, {}, v0\nds_write_b32 v2, v0\ns_waitcnt lgkmcnt(0)"
    assert run(body.format(2), [None, None], lds=8192).bank_conflicts == 0
    assert run(body.format(7), [None, None], lds=8192).bank_conflicts == 2 * 31


@pytest.mark.parametrize(("places", "extra"), [
    ("v_lshlrev_b32 v2, 2, v0", 0), ("v_lshlrev_b32 v2, 7, v0", 62), ("v_and_b32 v2, 0, v0", 62),
])  # fmt: skip
def test_atomics_that_meet_in_a_bank_or_a_place_are_counted(places, extra):
    body = f"{HEAD}{places}\nds_write_b32 v2, v1\ns_waitcnt lgkmcnt(0)\n{{}}\ns_waitcnt lgkmcnt(0)"
    whole, stores = (run(body.format(x), [None, None], lds=8192) for x in ("ds_add_u32 v2, v0", "s_nop 0"))
    assert whole.bank_conflicts - stores.bank_conflicts == extra


def test_an_atomic_of_no_lane_changes_nothing():
    """All lanes of the wave are off: LDS, and global memory."""
    body = HEAD + """v_lshlrev_b32 v2, 2, v0
ds_write_b32 v2, v0
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, 0
ds_add_u32 v2, v0
ds_add_rtn_u32 v3, v2, v0
s_mov_b64 exec, -1
s_waitcnt lgkmcnt(0)"""
    assert not run(body, [None, None], lds=8192).findings


def test_dynamic_lds_and_hidden_arguments():
    from amdgcn_harness import module
    from wavedsl.runtime.emulator import run as emulate

    out = np.zeros(64, np.uint32)
    body = (
        HEAD.replace("dwordx4 s[8:11]", "dwordx2 s[8:9]")
        + "ds_write_b32 v1, v0 offset:512\ns_waitcnt lgkmcnt(0)\nds_read_b32 v2, v1 offset:512\n"
        + "s_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v2, s[8:9]"
    )
    emulate(module(body), target="gfx942", grid=(1,), block=(64,), args=[out], shared_bytes=768)
    assert (out == LANE).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_late_read_shows_what_was_there_before_a_later_write_of_the_wave(seed):
    """LDS operations of one wave happen in order, whenever the result of a read reaches its register."""
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 1
    v_mov_b32 v3, 2
    ds_write_b32 v1, v2
    ds_read_b32 v4, v1
    ds_write_b32 v1, v3
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v4, s[4:5]
    """
    out = np.zeros(64, np.uint32)
    run(body, [out], lds=256, seed=seed, checks=True)
    assert (out == 1).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_younger_load_of_a_register_arrives_last(seed):
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[4:5]
    global_load_dword v2, v1, s[4:5] offset:256
    s_waitcnt vmcnt(0)
    global_store_dword v1, v2, s[4:5] offset:512
    """
    data = np.arange(192, dtype=np.uint32)
    run(body, [data], seed=seed, checks=True)
    assert (data[128:] == np.arange(64, 128)).all()


def test_registers_do_not_start_as_zeros():
    """A comparison of a register that nothing wrote is no finding (its lanes may be masked), so its value must tell."""
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_cmp_eq_u32 vcc, 0, v7
    s_nop 1
    v_cndmask_b32 v2, 1, v0, vcc
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[4:5]
    """
    out = np.zeros(64, np.uint32)
    run(body, [out])
    assert (out == 1).all()


@pytest.mark.parametrize("checks", [False, "report"])
def test_a_pair_of_reads_may_overwrite_its_own_address(checks):
    """LLVM emits it: the address register of ds_read2 is among the destinations."""
    out = np.zeros(128, np.uint32)
    body = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_mul_u32_u24 v2, 3, v0
ds_write2st64_b32 v1, v0, v2 offset1:1
v_lshlrev_b32 v3, 3, v0
v_mov_b32 v4, v1
s_waitcnt lgkmcnt(0)
ds_read2st64_b32 v[4:5], v4 offset1:1
s_waitcnt lgkmcnt(0)
global_store_dwordx2 v3, v[4:5], s[10:11]
"""
    report = run(body, [None, out], lds=512, checks=checks)
    assert report.findings == []
    assert out[::2].tolist() == LANE.tolist() and out[1::2].tolist() == (3 * LANE).tolist()
