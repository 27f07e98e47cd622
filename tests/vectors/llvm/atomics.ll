; Buffer atomics whose meaning LLVM's language reference defines (`atomicrmw`, `cmpxchg`), compiled by llc for each chip into
; atomics.<chip>.s, without lines of comments:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 atomics.ll -o atomics.<chip>.s
; Kernels of bf16 pairs are compiled for gfx950 only, from atomics_bf16.ll. One workgroup of 64 lanes.
; Every kernel: old[i] = what was in own[i] before it was changed by in[i]; then shared[i % 8] is changed by in[i].

declare i32 @llvm.amdgcn.workitem.id.x()
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare <2 x half> @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.v2f16(<2 x half>, ptr addrspace(8), i32, i32, i32)
declare double @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f64(double, ptr addrspace(8), i32, i32, i32)
declare double @llvm.amdgcn.raw.ptr.buffer.atomic.fmax.f64(double, ptr addrspace(8), i32, i32, i32)
declare double @llvm.amdgcn.raw.ptr.buffer.atomic.fmin.f64(double, ptr addrspace(8), i32, i32, i32)
declare float @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f32(float, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.add.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap.i32(i32, i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.and.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.or.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.smax.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.smin.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.swap.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.umax.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.umin.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.xor.i32(i32, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.add.i64(i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap.i64(i64, i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.and.i64(i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.or.i64(i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.smax.i64(i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.smin.i64(i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.swap.i64(i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.umax.i64(i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.umin.i64(i64, ptr addrspace(8), i32, i32, i32)
declare i64 @llvm.amdgcn.raw.ptr.buffer.atomic.xor.i64(i64, ptr addrspace(8), i32, i32, i32)

define amdgpu_kernel void @add_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.add.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.add.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @smin_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.smin.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.smin.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @smax_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.smax.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.smax.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @umin_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.umin.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.umin.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @umax_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.umax.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.umax.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @swap_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.swap.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.swap.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @cmpswap_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old, ptr addrspace(1) %expect) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %from2 = getelementptr i32, ptr addrspace(1) %expect, i32 %tid
  %expected = load i32, ptr addrspace(1) %from2
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap.i32(i32 %x, i32 %expected, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap.i32(i32 %x, i32 %expected, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @add_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.add.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.add.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @smin_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.smin.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.smin.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @smax_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.smax.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.smax.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @umin_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.umin.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.umin.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @umax_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.umax.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.umax.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @swap_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.swap.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.swap.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @cmpswap_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old, ptr addrspace(1) %expect) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %from2 = getelementptr i64, ptr addrspace(1) %expect, i32 %tid
  %expected = load i64, ptr addrspace(1) %from2
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap.i64(i64 %x, i64 %expected, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap.i64(i64 %x, i64 %expected, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @fadd_f32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr float, ptr addrspace(1) %in, i32 %tid
  %x = load float, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call float @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f32(float %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr float, ptr addrspace(1) %old, i32 %tid
  store float %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call float @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f32(float %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @fadd_f64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr double, ptr addrspace(1) %in, i32 %tid
  %x = load double, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call double @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f64(double %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr double, ptr addrspace(1) %old, i32 %tid
  store double %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call double @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f64(double %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @fmin_f64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr double, ptr addrspace(1) %in, i32 %tid
  %x = load double, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call double @llvm.amdgcn.raw.ptr.buffer.atomic.fmin.f64(double %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr double, ptr addrspace(1) %old, i32 %tid
  store double %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call double @llvm.amdgcn.raw.ptr.buffer.atomic.fmin.f64(double %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @fmax_f64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr double, ptr addrspace(1) %in, i32 %tid
  %x = load double, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call double @llvm.amdgcn.raw.ptr.buffer.atomic.fmax.f64(double %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr double, ptr addrspace(1) %old, i32 %tid
  store double %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call double @llvm.amdgcn.raw.ptr.buffer.atomic.fmax.f64(double %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @fadd_v2f16(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr <2 x half>, ptr addrspace(1) %in, i32 %tid
  %x = load <2 x half>, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call <2 x half> @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.v2f16(<2 x half> %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr <2 x half>, ptr addrspace(1) %old, i32 %tid
  store <2 x half> %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call <2 x half> @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.v2f16(<2 x half> %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }

define amdgpu_kernel void @and_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.and.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.and.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @or_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.or.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.or.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @xor_i32(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.xor.i32(i32 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i32, ptr addrspace(1) %old, i32 %tid
  store i32 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.xor.i32(i32 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @and_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.and.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.and.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @or_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.or.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.or.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

define amdgpu_kernel void @xor_i64(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 512, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 64, i32 159744)
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %at = shl i32 %tid, 3
  %before = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.xor.i64(i64 %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr i64, ptr addrspace(1) %old, i32 %tid
  store i64 %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 3
  %ignored = call i64 @llvm.amdgcn.raw.ptr.buffer.atomic.xor.i64(i64 %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}
