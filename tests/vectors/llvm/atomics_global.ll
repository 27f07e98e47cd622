; Atomics on global memory whose meaning LLVM's language reference defines (`atomicrmw`, `cmpxchg`), compiled by llc for each
; chip into atomics_global.<chip>.s, without lines of comments:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 atomics_global.ll -o atomics_global.<chip>.s
; One workgroup of 64 lanes. Every kernel: old[i] = what was in own[i] before it was changed by in[i]; then shared[i % 8] is
; changed by in[i].

declare i32 @llvm.amdgcn.workitem.id.x()

define amdgpu_kernel void @add_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw add ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw add ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4
  ret void
}

define amdgpu_kernel void @smin_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw min ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw min ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @smax_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw max ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw max ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @umin_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw umin ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw umin ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @umax_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw umax ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw umax ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @swap_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw xchg ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw xchg ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4
  ret void
}

define amdgpu_kernel void @cmpswap_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old, ptr addrspace(1) %expect) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %from2 = getelementptr i32, ptr addrspace(1) %expect, i32 %tid
  %expected = load i32, ptr addrspace(1) %from2
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before.pair = cmpxchg ptr addrspace(1) %mine, i32 %expected, i32 %x syncscope("agent") monotonic monotonic
  %before = extractvalue { i32, i1 } %before.pair, 0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored.pair = cmpxchg ptr addrspace(1) %there, i32 %expected, i32 %x syncscope("agent") monotonic monotonic
  %ignored = extractvalue { i32, i1 } %ignored.pair, 0
  ret void
}

define amdgpu_kernel void @add_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw add ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw add ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8
  ret void
}

define amdgpu_kernel void @smin_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw min ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw min ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @smax_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw max ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw max ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @umin_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw umin ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw umin ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @umax_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw umax ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw umax ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @swap_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw xchg ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw xchg ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8
  ret void
}

define amdgpu_kernel void @cmpswap_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old, ptr addrspace(1) %expect) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %from2 = getelementptr i64, ptr addrspace(1) %expect, i32 %tid
  %expected = load i64, ptr addrspace(1) %from2
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before.pair = cmpxchg ptr addrspace(1) %mine, i64 %expected, i64 %x syncscope("agent") monotonic monotonic
  %before = extractvalue { i64, i1 } %before.pair, 0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored.pair = cmpxchg ptr addrspace(1) %there, i64 %expected, i64 %x syncscope("agent") monotonic monotonic
  %ignored = extractvalue { i64, i1 } %ignored.pair, 0
  ret void
}

define amdgpu_kernel void @fadd_f32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr float, ptr addrspace(1) %in, i32 %tid
  %x = load float, ptr addrspace(1) %from
  %mine = getelementptr float, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fadd ptr addrspace(1) %mine, float %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  %to = getelementptr float, ptr addrspace(1) %old, i32 %tid
  store float %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr float, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fadd ptr addrspace(1) %there, float %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  ret void
}

define amdgpu_kernel void @fadd_f64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr double, ptr addrspace(1) %in, i32 %tid
  %x = load double, ptr addrspace(1) %from
  %mine = getelementptr double, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fadd ptr addrspace(1) %mine, double %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  %to = getelementptr double, ptr addrspace(1) %old, i32 %tid
  store double %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr double, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fadd ptr addrspace(1) %there, double %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  ret void
}

define amdgpu_kernel void @fadd_v2f16(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr <2 x half>, ptr addrspace(1) %in, i32 %tid
  %x = load <2 x half>, ptr addrspace(1) %from
  %mine = getelementptr <2 x half>, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fadd ptr addrspace(1) %mine, <2 x half> %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  %to = getelementptr <2 x half>, ptr addrspace(1) %old, i32 %tid
  store <2 x half> %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr <2 x half>, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fadd ptr addrspace(1) %there, <2 x half> %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  ret void
}

define amdgpu_kernel void @fmin_f64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr double, ptr addrspace(1) %in, i32 %tid
  %x = load double, ptr addrspace(1) %from
  %mine = getelementptr double, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fmin ptr addrspace(1) %mine, double %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  %to = getelementptr double, ptr addrspace(1) %old, i32 %tid
  store double %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr double, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fmin ptr addrspace(1) %there, double %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  ret void
}

define amdgpu_kernel void @fmax_f64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr double, ptr addrspace(1) %in, i32 %tid
  %x = load double, ptr addrspace(1) %from
  %mine = getelementptr double, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fmax ptr addrspace(1) %mine, double %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  %to = getelementptr double, ptr addrspace(1) %old, i32 %tid
  store double %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr double, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fmax ptr addrspace(1) %there, double %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }

!0 = !{}

define amdgpu_kernel void @and_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw and ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw and ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @or_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw or ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw or ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @xor_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw xor ptr addrspace(1) %mine, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw xor ptr addrspace(1) %there, i32 %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @and_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw and ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw and ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @or_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw or ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw or ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}

define amdgpu_kernel void @xor_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw xor ptr addrspace(1) %mine, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw xor ptr addrspace(1) %there, i64 %x syncscope("agent") monotonic, align 8, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0
  ret void
}
