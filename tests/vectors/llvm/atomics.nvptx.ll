; Atomics whose meaning LLVM's language reference defines (`atomicrmw`, `cmpxchg`), compiled by llc into atomics.ptx:
;     llc -O2 -mtriple=nvptx64-nvidia-cuda -mcpu=sm_90 -mattr=+ptx78 atomics.nvptx.ll -o atomics.sm_90.ptx
; One workgroup of 64 threads. Every kernel: old[i] = what was in own[i] before it was changed by in[i]; then shared[i % 8] is
; changed by in[i].

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()

define ptx_kernel void @add_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw add ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw add ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @smin_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw min ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw min ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @smax_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw max ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw max ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @umin_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw umin ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw umin ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @umax_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw umax ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw umax ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @swap_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw xchg ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw xchg ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @cmpswap_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old, ptr addrspace(1) %expect) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %from2 = getelementptr i32, ptr addrspace(1) %expect, i32 %tid
  %expected = load i32, ptr addrspace(1) %from2
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before.pair = cmpxchg ptr addrspace(1) %mine, i32 %expected, i32 %x syncscope("device") monotonic monotonic
  %before = extractvalue { i32, i1 } %before.pair, 0
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored.pair = cmpxchg ptr addrspace(1) %there, i32 %expected, i32 %x syncscope("device") monotonic monotonic
  %ignored = extractvalue { i32, i1 } %ignored.pair, 0
  ret void
}

define ptx_kernel void @add_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw add ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw add ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @smin_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw min ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw min ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @smax_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw max ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw max ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @umin_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw umin ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw umin ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @umax_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw umax ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw umax ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @swap_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw xchg ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw xchg ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @cmpswap_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old, ptr addrspace(1) %expect) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %from2 = getelementptr i64, ptr addrspace(1) %expect, i32 %tid
  %expected = load i64, ptr addrspace(1) %from2
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before.pair = cmpxchg ptr addrspace(1) %mine, i64 %expected, i64 %x syncscope("device") monotonic monotonic
  %before = extractvalue { i64, i1 } %before.pair, 0
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored.pair = cmpxchg ptr addrspace(1) %there, i64 %expected, i64 %x syncscope("device") monotonic monotonic
  %ignored = extractvalue { i64, i1 } %ignored.pair, 0
  ret void
}

define ptx_kernel void @fadd_f32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr float, ptr addrspace(1) %in, i32 %tid
  %x = load float, ptr addrspace(1) %from
  %mine = getelementptr float, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fadd ptr addrspace(1) %mine, float %x syncscope("device") monotonic, align 4
  %to = getelementptr float, ptr addrspace(1) %old, i32 %tid
  store float %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr float, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fadd ptr addrspace(1) %there, float %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @fadd_f64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr double, ptr addrspace(1) %in, i32 %tid
  %x = load double, ptr addrspace(1) %from
  %mine = getelementptr double, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fadd ptr addrspace(1) %mine, double %x syncscope("device") monotonic, align 8
  %to = getelementptr double, ptr addrspace(1) %old, i32 %tid
  store double %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr double, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fadd ptr addrspace(1) %there, double %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @fadd_v2f16(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr <2 x half>, ptr addrspace(1) %in, i32 %tid
  %x = load <2 x half>, ptr addrspace(1) %from
  %mine = getelementptr <2 x half>, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fadd ptr addrspace(1) %mine, <2 x half> %x syncscope("device") monotonic, align 4
  %to = getelementptr <2 x half>, ptr addrspace(1) %old, i32 %tid
  store <2 x half> %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr <2 x half>, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fadd ptr addrspace(1) %there, <2 x half> %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @fadd_v2bf16(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr <2 x bfloat>, ptr addrspace(1) %in, i32 %tid
  %x = load <2 x bfloat>, ptr addrspace(1) %from
  %mine = getelementptr <2 x bfloat>, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fadd ptr addrspace(1) %mine, <2 x bfloat> %x syncscope("device") monotonic, align 4
  %to = getelementptr <2 x bfloat>, ptr addrspace(1) %old, i32 %tid
  store <2 x bfloat> %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr <2 x bfloat>, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fadd ptr addrspace(1) %there, <2 x bfloat> %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @and_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw and ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw and ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @or_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw or ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw or ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @xor_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %mine = getelementptr i32, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw xor ptr addrspace(1) %mine, i32 %x syncscope("device") monotonic, align 4
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw xor ptr addrspace(1) %there, i32 %x syncscope("device") monotonic, align 4
  ret void
}

define ptx_kernel void @and_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw and ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw and ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @or_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw or ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw or ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}

define ptx_kernel void @xor_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %mine = getelementptr i64, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw xor ptr addrspace(1) %mine, i64 %x syncscope("device") monotonic, align 8
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw xor ptr addrspace(1) %there, i64 %x syncscope("device") monotonic, align 8
  ret void
}
