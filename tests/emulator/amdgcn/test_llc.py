"""What LLVM's code generator emits for common operations runs without a finding and computes what Python says.

One llc call per target; the text is LLVM's, so a row that we got wrong cannot agree with itself.
"""

from __future__ import annotations

import re
import subprocess

import amdgcn_ir
import numpy as np
import pytest
from wavedsl.codegen.amdgcn.isa import TARGETS
from wavedsl.runtime.emulator.amdgcn.emulator import run_amdgcn

CASES = [*amdgcn_ir.integer_cases(), *amdgcn_ir.float_cases()]


def compiled(oracle, target, text):
    done = subprocess.run(
        [oracle("llc"), "-O2", f"-mcpu={target}", "-o", "-"], input=text, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:500]
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("part", range(4))
def test_operations(oracle, target, part):
    cases = CASES[part::4]
    asm = compiled(oracle, target, amdgcn_ir.module(cases))
    bad = []
    for case in cases:
        a, b, out = amdgcn_ir.arguments(case)
        report = run_amdgcn(
            asm, target=target, grid=(2,), block=(64,), args=[a, b, out], kernel=case.label, checks="report"
        )
        if report.findings:
            bad.append(f"{case.name}: {report.findings[0]}")
            continue
        want = amdgcn_ir.expected(case, a, b)
        at = amdgcn_ir.wrong(case, out, want)
        if at.size:
            i = at[0]
            bad.append(f"{case.name}({a[i]}, {b[i]}) = {out[i]}, not {want[i]}; {at.size} wrong")
    assert not bad, "\n".join(bad)


KERNEL = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
{declares}
{before}
define amdgpu_kernel void @k(ptr addrspace(1) noalias %pa, ptr addrspace(1) noalias %po) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i64 = zext i32 %t to i64
  %qa = getelementptr i32, ptr addrspace(1) %pa, i64 %i64
  %qo = getelementptr i32, ptr addrspace(1) %po, i64 %i64
  %a = load i32, ptr addrspace(1) %qa
{body}
  store i32 %r, ptr addrspace(1) %qo
  ret void
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="256,256" }}
"""


def execute(oracle, target, body, declares="", before="", seed=0):
    a = np.random.default_rng(4).integers(0, 1 << 31, 256).astype(np.uint32)
    out = np.zeros(256, np.uint32)
    asm = compiled(oracle, target, KERNEL.format(body=body, declares=declares, before=before))
    run_amdgcn(asm, target=target, grid=(1,), block=(256,), args=[a, out], checks=True, seed=seed)
    return a, out


@pytest.mark.parametrize("target", TARGETS)
def test_private_arrays(oracle, target):
    """Scratch: an array on the stack, indexed by lane."""
    body = """
  %p = alloca [64 x i32], align 16, addrspace(5)
  br label %L
L:
  %j = phi i32 [0, %0], [%j1, %L]
  %q = getelementptr [64 x i32], ptr addrspace(5) %p, i32 0, i32 %j
  %v = mul i32 %j, %a
  store i32 %v, ptr addrspace(5) %q
  %j1 = add i32 %j, 1
  %c = icmp ult i32 %j1, 64
  br i1 %c, label %L, label %E
E:
  %m = and i32 %t, 63
  %q2 = getelementptr [64 x i32], ptr addrspace(5) %p, i32 0, i32 %m
  %r = load i32, ptr addrspace(5) %q2"""
    a, out = execute(oracle, target, body)
    assert (out == np.arange(256, dtype=np.uint32) % 64 * a).all()


@pytest.mark.parametrize("target", TARGETS)
def test_divergent_loop(oracle, target):
    """Each lane has its own trip count and its own way through the body."""
    body = """
  %n = and i32 %a, 63
  br label %L
L:
  %j = phi i32 [0, %0], [%j1, %X]
  %s = phi i32 [%t, %0], [%s2, %X]
  %c = icmp ult i32 %j, %n
  br i1 %c, label %B, label %E
B:
  %par = and i32 %s, 1
  %odd = icmp eq i32 %par, 1
  br i1 %odd, label %O, label %V
O:
  %s3 = mul i32 %s, 3
  %so = add i32 %s3, 1
  br label %X
V:
  %sv = lshr i32 %s, 1
  br label %X
X:
  %s2 = phi i32 [%so, %O], [%sv, %V]
  %j1 = add i32 %j, 1
  br label %L
E:
  %r = add i32 %s, 0"""
    a, out = execute(oracle, target, body)
    want = []
    for t, v in enumerate(a.tolist()):
        s = t
        for _ in range(v & 63):
            s = (3 * s + 1) & 0xFFFFFFFF if s & 1 else s >> 1
        want.append(s)
    assert out.tolist() == want


@pytest.mark.parametrize("target", TARGETS)
def test_calls(oracle, target):
    before = """
define internal i32 @f(i32 %a, i32 %b) noinline {
  %c = icmp ult i32 %a, 1000000000
  br i1 %c, label %T, label %F
T:
  %g = call i32 @g(i32 %b)
  br label %F
F:
  %p = phi i32 [%a, %0], [%g, %T]
  %r = add i32 %p, %b
  ret i32 %r
}
define internal i32 @g(i32 %a) noinline {
  %r = mul i32 %a, 13
  ret i32 %r
}"""
    a, out = execute(oracle, target, "  %r = call i32 @f(i32 %a, i32 %t)", before=before)
    t = np.arange(256, dtype=np.uint32)
    assert (out == np.where(a < 1000000000, 13 * t, a) + t).all()


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory(oracle, target):
    body = """
  %q = getelementptr [256 x i32], ptr addrspace(3) @L, i32 0, i32 %t
  store i32 %a, ptr addrspace(3) %q
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %u = sub i32 255, %t
  %q2 = getelementptr [256 x i32], ptr addrspace(3) @L, i32 0, i32 %u
  %x = load i32, ptr addrspace(3) %q2
  %q3 = getelementptr i32, ptr addrspace(1) %po, i32 %t
  %o = atomicrmw add ptr addrspace(1) %q3, i32 0 syncscope("agent") monotonic
  %r = add i32 %x, 1"""
    declares = "declare void @llvm.amdgcn.s.barrier()\n@L = internal addrspace(3) global [256 x i32] poison"
    for seed in range(3):
        a, out = execute(oracle, target, body, declares, seed=seed)
        assert (out == a[::-1] + 1).all()


@pytest.mark.parametrize("target", TARGETS)
def test_global_memory_of_a_workgroup_needs_no_waits(oracle, target):
    """Waves of a workgroup share the first-level cache, in order: LLVM puts a barrier alone between a store, an atomic
    and a load of three lanes, as our fences of a workgroup do."""
    fence = """
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire"""
    body = f"""
  %q = getelementptr i32, ptr addrspace(1) %po, i32 %t
  store i32 %t, ptr addrspace(1) %q{fence}
  %u = sub i32 255, %t
  %q2 = getelementptr i32, ptr addrspace(1) %po, i32 %u
  %o = atomicrmw add ptr addrspace(1) %q2, i32 1000 syncscope("workgroup") monotonic{fence}
  %v = xor i32 %t, 65
  %q3 = getelementptr i32, ptr addrspace(1) %po, i32 %v
  %r = load i32, ptr addrspace(1) %q3{fence}"""
    declares = "declare void @llvm.amdgcn.s.barrier()"
    _, out = execute(oracle, target, body, declares)
    t = np.arange(256)
    assert (out == (t ^ 65) + 1000).all()
    text = compiled(oracle, target, KERNEL.format(body=body, declares=declares, before=""))
    memory = re.findall(r"^\s+(global_\w+|s_barrier|s_waitcnt.*vmcnt)", text, re.M)
    assert memory[-8:] == [
        "global_store_dword", "s_barrier", "global_atomic_add", "s_barrier", "global_load_dword", "s_barrier",
        "s_waitcnt vmcnt", "global_store_dword",
    ]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_constant_tables(oracle, target):
    body = """
  %m = and i32 %t, 7
  %q = getelementptr [8 x i32], ptr addrspace(4) @T, i32 0, i32 %m
  %r = load i32, ptr addrspace(4) %q"""
    values = [3, 1, 4, 1, 5, 9, 2, 6]
    items = ", ".join(f"i32 {v}" for v in values)
    declares = f"@T = internal unnamed_addr addrspace(4) constant [8 x i32] [{items}]"
    _, out = execute(oracle, target, body, declares)
    assert (out == np.array(values)[np.arange(256) % 8]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_wave_operations(oracle, target):
    body = """
  %c = icmp ugt i32 %a, 1000000000
  %m = call i64 @llvm.amdgcn.ballot.i64(i1 %c)
  %lo = trunc i64 %m to i32
  %hs = lshr i64 %m, 32
  %hi = trunc i64 %hs to i32
  %p = call i32 @llvm.amdgcn.mbcnt.lo(i32 %lo, i32 0)
  %q = call i32 @llvm.amdgcn.mbcnt.hi(i32 %hi, i32 %p)
  %l = call i32 @llvm.amdgcn.readlane(i32 %t, i32 3)
  %f = call i32 @llvm.amdgcn.readfirstlane(i32 %a)
  %x = add i32 %q, %l
  %d = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %t, i32 177, i32 15, i32 15, i1 true)
  %y = xor i32 %x, %f
  %r = add i32 %y, %d"""
    declares = "\n".join(
        f"declare {r} @llvm.amdgcn.{n}"
        for r, n in (
            ("i64", "ballot.i64(i1)"),
            ("i32", "mbcnt.lo(i32, i32)"),
            ("i32", "mbcnt.hi(i32, i32)"),
            ("i32", "readlane(i32, i32)"),
            ("i32", "readfirstlane(i32)"),
            ("i32", "update.dpp.i32(i32, i32, i32, i32, i32, i1)"),
        )
    )
    a, out = execute(oracle, target, body, declares)
    t = np.arange(256)
    above = (a > 1000000000).reshape(4, 64)
    below = np.cumsum(above, axis=1) - above
    first = a.reshape(4, 64)[:, :1]
    want = ((below + (t.reshape(4, 64)[:, :1] + 3)) ^ first) + (t ^ 1).reshape(4, 64)
    assert (out == want.reshape(-1)).all()
