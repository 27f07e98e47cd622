; Accesses of three words, compiled by llc for each chip into triples.<chip>.s, without lines of comments:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 triples.ll -o triples.<chip>.s
; One workgroup of 64 lanes: out[i] = the three words of lane i ^ 5, by way of shared memory. The descriptors end after 50
; elements: what lies behind is read as 0 and not written.

declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare <3 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v3i32(ptr addrspace(8), i32, i32, i32)
declare void @llvm.amdgcn.raw.ptr.buffer.store.v3i32(<3 x i32>, ptr addrspace(8), i32, i32, i32)

@triples_lds = internal addrspace(3) global [64 x <3 x i32>] undef, align 16

define amdgpu_kernel void @triples(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %in, i16 0, i64 600, i32 159744)
  %to = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %out, i16 0, i64 600, i32 159744)
  %at = mul i32 %tid, 12
  %x = call <3 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v3i32(ptr addrspace(8) %from, i32 %at, i32 0, i32 0)
  %mine = getelementptr [64 x <3 x i32>], ptr addrspace(3) @triples_lds, i32 0, i32 %tid
  store <3 x i32> %x, ptr addrspace(3) %mine, align 16
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %tid, 5
  %theirs = getelementptr [64 x <3 x i32>], ptr addrspace(3) @triples_lds, i32 0, i32 %other
  %y = load <3 x i32>, ptr addrspace(3) %theirs, align 16
  call void @llvm.amdgcn.raw.ptr.buffer.store.v3i32(<3 x i32> %y, ptr addrspace(8) %to, i32 %at, i32 0, i32 0)
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }
