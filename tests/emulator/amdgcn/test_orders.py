"""Pairs of small kernels, one with a race and one that orders the same accesses: both are judged right. Of LDS, and of
global memory within a workgroup; of several workgroups see test_global_races.py."""

import numpy as np
import pytest
from amdgcn_harness import run

BEGIN = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_and_b32_e32 v0, 0x3ff, v0
v_lshlrev_b32_e32 v1, 2, v0
v_lshrrev_b32_e32 v20, 6, v0
v_mov_b32_e32 v9, 0
v_mov_b32_e32 v10, 1
v_mov_b32_e32 v11, 0x63
v_add_u32_e32 v12, 0x64, v0
s_waitcnt lgkmcnt(0)
ds_write_b32 v1, v0
s_waitcnt lgkmcnt(0)
s_barrier
"""
"""v1: the thread's byte address; v9: 0; v10: 1; v11: 99; v12: 100 + the thread's number; v20: its wave."""
DONE, BARRIER = "s_waitcnt lgkmcnt(0)\n", "s_barrier\n"


def by(wave, body):
    """`body` by one wave, under EXEC."""
    return f"v_cmp_eq_u32_e32 vcc, {wave}, v20\ns_and_saveexec_b64 s[20:21], vcc\n{body}\ns_mov_b64 exec, s[20:21]\n"


def findings(body, block=192, target="gfx942", **options):
    out = []
    for seed in range(4):
        args = [np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)]
        report = run(BEGIN + body + "\ns_waitcnt lgkmcnt(0) vmcnt(0)", args, target=target, seed=seed, block=block,
                     lds=1024, **options)  # fmt: skip
        out.append([(f.kind, f.instruction, f.message) for f in report.findings])
    return out


def judged(body, order, kinds=("race",), **options):
    """With `order` for ORDER nothing is found, without it something of these kinds is in every order."""
    right = findings(body.replace("ORDER\n", order), **options)
    assert right == [[]] * 4, right
    wrong = findings(body.replace("ORDER\n", ""), **options)
    assert all(any(kind in kinds for kind, _, _ in found) for found in wrong), wrong


READ, WRITE = "ds_read_b32 v2, v9 offset:16\n", "ds_write_b32 v9, v11 offset:16\n"
ADD = "ds_add_u32 v9, v10 offset:16\n"
BYTE, HALF = "ds_read_u8 v2, v9 offset:18\n", "ds_write_b16 v9, v11 offset:18\n"
PAIR, PAIRS = "ds_read2_b32 v[2:3], v9 offset0:3 offset1:4\n", "ds_write2_b32 v9, v11, v11 offset0:4 offset1:6\n"
WIDE = "ds_read_b128 v[4:7], v9 offset:16\n"


@pytest.mark.parametrize("first, second", [
    (READ, WRITE), (WRITE, READ), (WRITE, "ds_write_b32 v9, v10 offset:16\n"), (BYTE, WRITE), (WRITE, BYTE),
    (READ, HALF), (HALF, WIDE), (PAIR, WRITE), (PAIRS, READ), (WIDE, PAIRS), (ADD, READ), (READ, ADD), (ADD, WRITE),
    (WRITE, ADD), (ADD, BYTE),
])  # fmt: skip
@pytest.mark.parametrize("waves", [(0, 1), (1, 0), (2, 0)])
def test_two_waves(first, second, waves):
    """Neither the wait alone nor the barrier alone orders them."""
    body = by(waves[0], first) + "ORDER\n" + by(waves[1], second)
    judged(body, DONE + BARRIER)
    judged(body.replace("ORDER\n", f"ORDER\n{BARRIER}"), DONE)
    judged(body.replace("ORDER\n", f"{DONE}ORDER\n"), BARRIER)


@pytest.mark.parametrize("writer", [0, 1, 2])
def test_all_waves_read_and_are_not_waited_for(writer):
    """Reads that a barrier passes by, of which the last is the writer's own."""
    body = READ + "ORDER\n" + BARRIER + by(writer, DONE + WRITE)
    judged(body, DONE)


@pytest.mark.parametrize("last", [0, 1, 2])
def test_the_last_that_added_reads_or_writes(last):
    for plain in (READ, WRITE):
        judged(ADD + "ORDER\n" + by(last, plain), DONE + BARRIER)


def test_an_atomic_of_the_same_wave_does_not_hide_what_was_before():
    for plain in (WRITE, READ):
        body = by(0, plain + DONE + ADD) + "ORDER\n" + by(1, ADD)
        judged(body, DONE + BARRIER)


def test_many_atomics_before_one_that_meets_a_plain_access():
    """Of hundreds of accesses that meet others' atomics, one meets a plain write."""
    adds = "v_and_b32_e32 v13, 0xff, v1\nds_add_u32 v13, v10\n"
    body = by(1, "ds_write_b32 v9, v11 offset:252\n") + "ORDER\n" + adds
    judged(body, DONE + BARRIER)
    assert findings(adds) == [[]] * 4


def test_values_that_several_wrote():
    """Who comes last does not matter, unless somebody writes another value before a barrier."""
    equal = "ds_write_b32 v9, v11 offset:16\n"
    assert findings(equal + by(2, READ)) == [[]] * 4
    for last in range(3):
        judged(equal + "ORDER\n" + by(last, "ds_write_b32 v9, v10 offset:16\n"), DONE + BARRIER)
    turns = "".join(by(wave, equal) for wave in range(3))
    assert findings(turns + DONE + BARRIER + READ) == [[]] * 4
    for last in range(3):
        judged(turns + "ORDER\n" + by(last, "ds_write_b32 v9, v10 offset:16\n"), DONE + BARRIER)


COPY = """v_lshlrev_b32_e32 v21, 8, v20
s_nop 4
v_readfirstlane_b32 s22, v21
s_nop 4
s_mov_b32 m0, s22
s_and_b32 s13, s9, 0xffff
s_mov_b32 s12, s8
s_mov_b32 s14, 0x1000
s_mov_b32 s15, 0x27000
ORDER
buffer_load_dword v1, s[12:15], 0 offen lds
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_direct_copies_and_other_accesses(target):
    """Of one wave: a direct copy and what goes through LDS's own queue do not wait for each other."""
    covers = "s_waitcnt vmcnt(0)\n"
    options = {"block": 64, "target": target}
    for access in ("ds_write_b32 v1, v12\n", "ds_add_u32 v1, v10\n", "ds_read_b32 v2, v1\n"):
        judged(access + COPY, DONE, **options)
        judged(COPY.replace("ORDER\n", "") + "ORDER\n" + access, covers, ("missing-wait",), **options)
    # another wave's words: after the copier's wait and a barrier
    options["block"] = 128
    copy = COPY.replace("ORDER\n", "")
    other = "v_xor_b32_e32 v14, 0x100, v1\nds_read_b32 v2, v14\n"
    judged(copy + "ORDER\n" + BARRIER + other, covers, ("race", "missing-wait"), **options)
    judged(copy + covers + "ORDER\n" + other, BARRIER, **options)


STORE = "global_store_dword v1, v12, s[8:9]\n"


def test_global_memory_of_a_workgroup():
    there = "v_xor_b32_e32 v14, 0x100, v1\n"
    accesses = {
        "read": "global_load_dword v4, v14, s[8:9]\n", "byte": "global_load_ubyte v4, v14, s[8:9] offset:1\n",
        "write": "global_store_dword v14, v0, s[8:9]\n", "add": "global_atomic_add v14, v10, s[8:9]\n",
        "flat": "v_mov_b32_e32 v16, s8\nv_add_co_u32_e32 v16, vcc, v16, v14\nv_mov_b32_e32 v17, s9\ns_nop 4\n"
                "v_addc_co_u32_e32 v17, vcc, 0, v17, vcc\nflat_load_dword v4, v[16:17]\n",
    }  # fmt: skip
    for access in accesses.values():
        judged(there + STORE + "ORDER\n" + access, BARRIER, block=128)
    for access in (accesses["read"], accesses["byte"], accesses["flat"]):
        judged(there + access + "s_waitcnt vmcnt(0) lgkmcnt(0)\nORDER\n" + STORE, BARRIER, block=128)
