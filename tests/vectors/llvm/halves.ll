; The larger of packed halves, compiled by llc for each chip into halves.<chip>.s, without lines of comments:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 halves.ll -o halves.<chip>.s
; One workgroup of 64 lanes: signed[i] = the larger halves of a[i] and b[i] as numbers with a sign, unsigned[i] = without.

declare i32 @llvm.amdgcn.workitem.id.x()
declare <2 x i16> @llvm.smax.v2i16(<2 x i16>, <2 x i16>)
declare <2 x i16> @llvm.umax.v2i16(<2 x i16>, <2 x i16>)

define amdgpu_kernel void @halves(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %signed, ptr addrspace(1) %unsigned) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr <2 x i16>, ptr addrspace(1) %a, i32 %tid
  %pb = getelementptr <2 x i16>, ptr addrspace(1) %b, i32 %tid
  %x = load <2 x i16>, ptr addrspace(1) %pa
  %y = load <2 x i16>, ptr addrspace(1) %pb
  %s = call <2 x i16> @llvm.smax.v2i16(<2 x i16> %x, <2 x i16> %y)
  %ps = getelementptr <2 x i16>, ptr addrspace(1) %signed, i32 %tid
  store <2 x i16> %s, ptr addrspace(1) %ps
  %u = call <2 x i16> @llvm.umax.v2i16(<2 x i16> %x, <2 x i16> %y)
  %pu = getelementptr <2 x i16>, ptr addrspace(1) %unsigned, i32 %tid
  store <2 x i16> %u, ptr addrspace(1) %pu
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }
