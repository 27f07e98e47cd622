; The kernel of atomics.ll for pairs of bf16, which gfx950 adds in one instruction; see there.

declare i32 @llvm.amdgcn.workitem.id.x()
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare <2 x bfloat> @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.v2bf16(<2 x bfloat>, ptr addrspace(8), i32, i32, i32)

define amdgpu_kernel void @fadd_v2bf16(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rown = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %own, i16 0, i64 256, i32 159744)
  %rshared = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %shared, i16 0, i64 32, i32 159744)
  %from = getelementptr <2 x bfloat>, ptr addrspace(1) %in, i32 %tid
  %x = load <2 x bfloat>, ptr addrspace(1) %from
  %at = shl i32 %tid, 2
  %before = call <2 x bfloat> @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.v2bf16(<2 x bfloat> %x, ptr addrspace(8) %rown, i32 %at, i32 0, i32 0)
  %to = getelementptr <2 x bfloat>, ptr addrspace(1) %old, i32 %tid
  store <2 x bfloat> %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = shl i32 %slot, 2
  %ignored = call <2 x bfloat> @llvm.amdgcn.raw.ptr.buffer.atomic.fadd.v2bf16(<2 x bfloat> %x, ptr addrspace(8) %rshared, i32 %there, i32 0, i32 0)
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }
