; Loads of the scalar unit through a buffer descriptor, compiled by llc for each chip into scalar_buffers.<chip>.s:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 scalar_buffers.ll -o scalar_buffers.<chip>.s

declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare i32 @llvm.amdgcn.s.buffer.load.i32(<4 x i32>, i32, i32)
declare <2 x i32> @llvm.amdgcn.s.buffer.load.v2i32(<4 x i32>, i32, i32)

; The first `size` bytes of `in`: out = [the word at byte `at`, the word at byte 8]; wide = the eight bytes at byte `at8`.
define amdgpu_kernel void @scalar_buffers(ptr addrspace(1) %in, ptr addrspace(1) %out, ptr addrspace(1) %wide, i64 %size, i32 %at, i32 %at8) {
  %r = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %in, i16 0, i64 %size, i32 159744)
  %n = ptrtoint ptr addrspace(8) %r to i128
  %d = bitcast i128 %n to <4 x i32>
  %x = call i32 @llvm.amdgcn.s.buffer.load.i32(<4 x i32> %d, i32 %at, i32 0)
  %y = call i32 @llvm.amdgcn.s.buffer.load.i32(<4 x i32> %d, i32 8, i32 0)
  %z = call <2 x i32> @llvm.amdgcn.s.buffer.load.v2i32(<4 x i32> %d, i32 %at8, i32 0)
  store i32 %x, ptr addrspace(1) %out
  %p = getelementptr i32, ptr addrspace(1) %out, i32 1
  store i32 %y, ptr addrspace(1) %p
  store <2 x i32> %z, ptr addrspace(1) %wide
  ret void
}
