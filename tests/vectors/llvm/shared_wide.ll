; A copy of four dwords per lane straight to LDS, which gfx950 has.
; llc as for shared.ll

declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8), ptr addrspace(3), i32 immarg, i32, i32, i32 immarg, i32 immarg)

@lds_direct_16 = internal addrspace(3) global [2048 x i8] undef, align 16
define amdgpu_kernel void @direct_16(ptr addrspace(1) %x, ptr addrspace(1) %a) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rsrc = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %x, i16 0, i64 768, i32 159744)
  %other = xor i32 %tid, 21
  %off = mul i32 %other, 16
  %to = getelementptr i8, ptr addrspace(3) @lds_direct_16, i32 512
  call void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8) %rsrc, ptr addrspace(3) %to, i32 16, i32 %off, i32 0, i32 32, i32 0)
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %at = mul i32 %tid, 16
  %l0 = getelementptr i8, ptr addrspace(3) %to, i32 %at
  %l1 = getelementptr i8, ptr addrspace(3) %l0, i32 32
  %r = load <4 x i32>, ptr addrspace(3) %l1, align 16
  %pa = getelementptr i8, ptr addrspace(1) %a, i32 %at
  store <4 x i32> %r, ptr addrspace(1) %pa, align 16
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-workgroup-id-y" "uniform-work-group-size"="true" }
