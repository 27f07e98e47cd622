"""Accesses of global memory that nothing orders are found in AMDGCN, and ordered ones are not taken for such."""

import numpy as np
import pytest
from amdgcn_harness import run

TARGETS = ("gfx90a", "gfx942", "gfx950")
BEGIN = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
v_mov_b32_e32 v9, 0
v_lshlrev_b32_e32 v1, 2, v0
v_add_u32_e32 v2, 0x64, v0
"""
STORE = "global_store_dword v1, v2, s[8:9]\n"
# the element of the same lane in the other of two waves
LOAD = "v_xor_b32_e32 v3, 0x100, v1\nglobal_load_dword v4, v3, s[8:9]\ns_waitcnt vmcnt(0)\n"


def races(body, n=256, target="gfx942", **options):
    out = []
    for seed in range(4):
        args = [np.arange(n, dtype=np.uint32), np.zeros(n, np.uint32)]
        report = run(BEGIN + body, args, target=target, seed=seed, **options)
        assert all(f.kind == "race" for f in report.findings), report.findings
        out += [str(f) for f in report.findings]
    return out


def test_waves_of_a_workgroup():
    found = races(STORE + LOAD, block=128)
    assert any("reads what another wave wrote" in f or "overwrites what another wave reads" in f for f in found)
    assert not races(STORE + "s_barrier\n" + LOAD, block=128)
    assert any("another wave" in f for f in races(LOAD + STORE, block=128))
    assert not races(LOAD + "s_barrier\n" + STORE, block=128)


def test_all_waves_read_and_one_writes():
    body = """global_load_dword v4, v9, s[8:9] offset:12
    s_waitcnt vmcnt(0)
    BARRIER
    v_cmp_eq_u32_e32 vcc, 0x41, v0
    s_and_saveexec_b64 s[12:13], vcc
    global_store_dword v9, v2, s[8:9] offset:12"""
    assert any("overwrites what another wave reads" in f for f in races(body.replace("BARRIER", ""), block=192))
    assert not races(body.replace("BARRIER", "s_barrier"), block=192)


@pytest.mark.parametrize("writer", [0, 1])
def test_a_workgroup_writes_what_its_own_waves_read_last(writer):
    """Those have met at a barrier; the workgroup that has read before them has not."""
    read = "global_load_dword v4, v9, s[8:9] offset:12\ns_waitcnt vmcnt(0)\n"
    write = """v_cmp_eq_u32_e32 vcc, 0x41, v0
    s_and_saveexec_b64 s[12:13], vcc
    global_store_dword v9, v2, s[8:9] offset:12
    L0:"""
    again = f"s_cmp_lg_u32 s2, {writer}\ns_cbranch_scc1 L0\ns_barrier\n{read}s_barrier\n"
    found = races(read + again + write, block=192, grid=2)
    assert len(found) == 4 and all("overwrites what another workgroup reads" in f for f in found)
    assert not races(read + "s_barrier\n" + write, block=192)


def test_workgroups():
    found = races("v_add_u32_e32 v2, s2, v2\n" + STORE, grid=3)
    assert found and "another workgroup" in found[0] and "byte 0 of argument `#0`" in found[0]
    assert not races(STORE, grid=3), "one value in any order"
    apart = "s_lshl_b32 s12, s2, 8\nv_add_u32_e32 v1, s12, v1\n"
    reads = "global_load_dword v4, v9, s[8:9] offset:8\ns_waitcnt vmcnt(0)\n"
    assert any("another workgroup" in f for f in races(apart + reads + STORE, grid=3))
    assert any("another workgroup" in f for f in races(apart + reads + STORE, 64 * 300, grid=300)), "several batches"
    assert not races(apart + STORE, grid=3)


def test_scalar_loads_and_lanes():
    body = """v_cmp_eq_u32_e32 vcc, 64, v0
    s_and_saveexec_b64 s[12:13], vcc
    global_store_dword v9, v2, s[8:9]
    s_mov_b64 exec, s[12:13]
    s_load_dword s14, s[8:9], 0x0
    s_waitcnt lgkmcnt(0)"""
    found = races(body, block=128)
    assert any("another wave" in f for f in found)
    assert any("another value than the same wave" in f for f in races("global_store_dword v9, v2, s[8:9]"))


def test_narrow_neighbours():
    body = "v_add_u32_e32 v1, s2, v9\nv_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[12:13], vcc\n"
    assert not races(body + "global_store_byte v1, v2, s[8:9]", grid=4)


def parts(target, release, acquire, ticket="global_atomic_add v5, v9, v6, s[10:11] RETURN"):
    """Three workgroups of two waves write their parts and take a ticket; the last one adds the parts."""
    body = f"""s_lshl_b32 s12, s2, 9
    v_add_u32_e32 v7, s12, v1
    global_store_dword v7, v2, s[8:9]
    {release}
    s_barrier
    v_mov_b32_e32 v6, 1
    v_mov_b32_e32 v5, 0
    v_cmp_eq_u32_e32 vcc, 0, v0
    s_and_saveexec_b64 s[14:15], vcc
    {ticket.replace("RETURN", "glc" if target == "gfx90a" else "sc0")}
    s_waitcnt vmcnt(0)
    ds_write_b32 v9, v5
    s_waitcnt lgkmcnt(0)
    s_mov_b64 exec, s[14:15]
    s_barrier
    ds_read_b32 v5, v9
    s_waitcnt lgkmcnt(0)
    v_readfirstlane_b32 s16, v5
    s_nop 4
    s_cmp_lg_u32 s16, 2
    s_cbranch_scc1 DONE
    {acquire}
    global_load_dword v10, v1, s[8:9]
    global_load_dword v11, v1, s[8:9] offset:512
    global_load_dword v12, v1, s[8:9] offset:1024
    s_waitcnt vmcnt(0)
    DONE:"""
    return races(body, 3 * 128, target=target, block=128, grid=3, lds=16)


RELEASE = {"gfx90a": "s_waitcnt vmcnt(0)", "gfx942": "buffer_wbl2 sc1\ns_waitcnt vmcnt(0)"}
ACQUIRE = {"gfx90a": "buffer_wbinvl1_vol", "gfx942": "buffer_inv sc1"}
RELEASE["gfx950"], ACQUIRE["gfx950"] = RELEASE["gfx942"], ACQUIRE["gfx942"]


@pytest.mark.parametrize("target", TARGETS)
def test_tickets_hand_on_what_fences_release(target):
    assert not parts(target, RELEASE[target], ACQUIRE[target])


@pytest.mark.parametrize("target", TARGETS)
def test_missing_fences(target):
    for release, acquire in (("", ACQUIRE[target]), (RELEASE[target], ""), ("", "")):
        found = parts(target, release, acquire)
        # on gfx90a the wave that takes the ticket waits for its own store with it, but too late
        assert any("reads what another workgroup wrote" in f for f in found), (release, acquire)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_written_behind_the_release(target):
    """Another value at the same place, behind the wait, or between what writes back and the wait for it."""
    again = "v_add_u32_e32 v2, 1, v2\nglobal_store_dword v7, v2, s[8:9]\n"
    assert any("another workgroup wrote" in f for f in parts(target, f"{RELEASE[target]}\n{again}", ACQUIRE[target]))
    between = parts(target, RELEASE[target].replace("s_waitcnt", f"{again}s_waitcnt"), ACQUIRE[target])
    assert bool(between) is (target != "gfx90a"), "gfx90a has nothing to write back: the wait covers it"
    assert not parts(target, f"{again}{RELEASE[target]}", ACQUIRE[target])


def test_incomplete_fences():
    wait = "s_waitcnt vmcnt(0)"
    assert parts("gfx942", wait, ACQUIRE["gfx942"]), "every die has a second-level cache of its own"
    assert parts("gfx942", f"buffer_wbl2 sc0\n{wait}", ACQUIRE["gfx942"]), "the scope of a workgroup"
    assert parts("gfx942", "buffer_wbl2 sc1", ACQUIRE["gfx942"]), "nobody waits until it has been written back"
    assert parts("gfx942", RELEASE["gfx942"], "buffer_inv sc0"), "the scope of a workgroup"
    early = "global_atomic_add v5, v9, v6, s[10:11] RETURN\nbuffer_inv sc1"
    assert parts("gfx942", RELEASE["gfx942"], "", early), "dropped before the ticket has come"


def test_atomics_and_ordinary_accesses():
    add = "v_mov_b32_e32 v6, 1\nglobal_atomic_add v9, v6, s[8:9]\n"
    assert not races(add, block=128, grid=4)
    assert any("another" in f for f in races(add + "global_load_dword v4, v9, s[8:9]\ns_waitcnt vmcnt(0)", grid=4))


SCALAR = "s_load_dword s14, s[8:9], 0x0\ns_waitcnt lgkmcnt(0)\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("store", ["global_store_dword v9, v2, s[8:9]\n", "global_atomic_add v9, v2, s[8:9]\n"])
def test_scalar_loads_of_what_the_launch_has_written(target, store):
    """The scalar cache sees no stores, however well they are ordered; what is written behind the load is fine."""
    one = f"v_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[12:13], vcc\n{store}s_mov_b64 exec, s[12:13]\n"
    order = "s_waitcnt vmcnt(0)\ns_barrier\n"
    for before in (one + order, one):
        found = races(before + SCALAR, block=128, target=target)
        assert len(found) == 4 and all("scalar cache" in f or "another wave" in f for f in found)
    assert any("scalar cache" in f for f in races(one + order + SCALAR, target=target)), "its own wave"
    assert not races(SCALAR + "s_barrier\n" + one, block=128, target=target)
    assert not races(one + order + SCALAR.replace("s[8:9]", "s[10:11]"), block=128, target=target), "another array"
    assert not races(one + order + SCALAR.replace("0x0", "0x4"), block=128, target=target), "the word beside it"
