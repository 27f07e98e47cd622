; The kernel of atomics_global.ll for pairs of bf16, which chips from gfx942 on add in one instruction; see there.

declare i32 @llvm.amdgcn.workitem.id.x()

define amdgpu_kernel void @fadd_v2bf16(ptr addrspace(1) %in, ptr addrspace(1) %own, ptr addrspace(1) %shared, ptr addrspace(1) %old) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr <2 x bfloat>, ptr addrspace(1) %in, i32 %tid
  %x = load <2 x bfloat>, ptr addrspace(1) %from
  %mine = getelementptr <2 x bfloat>, ptr addrspace(1) %own, i32 %tid
  %before = atomicrmw fadd ptr addrspace(1) %mine, <2 x bfloat> %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  %to = getelementptr <2 x bfloat>, ptr addrspace(1) %old, i32 %tid
  store <2 x bfloat> %before, ptr addrspace(1) %to
  %slot = and i32 %tid, 7
  %there = getelementptr <2 x bfloat>, ptr addrspace(1) %shared, i32 %slot
  %ignored = atomicrmw fadd ptr addrspace(1) %there, <2 x bfloat> %x syncscope("agent") monotonic, align 4, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }

!0 = !{}
