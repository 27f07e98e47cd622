; Numbers held between a constant and its negative, and the largest of three sizes, compiled by llc for each chip into
; limits.<chip>.s, without lines of comments:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 limits.ll -o limits.<chip>.s
; One workgroup of 64 lanes: held[i] = a[i], no less than -4 and no more than 4; sizes[i] = the largest of |a[i]|,
; |b[i]| and |a[i] + b[i]|. `minnum` and `maxnum` give the number where one of two is none.

declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.minnum.f32(float, float)
declare float @llvm.maxnum.f32(float, float)
declare float @llvm.fabs.f32(float)

define amdgpu_kernel void @limits(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %held, ptr addrspace(1) %sizes) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr float, ptr addrspace(1) %a, i32 %tid
  %pb = getelementptr float, ptr addrspace(1) %b, i32 %tid
  %x = load float, ptr addrspace(1) %pa
  %y = load float, ptr addrspace(1) %pb
  %low = call float @llvm.maxnum.f32(float %x, float -4.0)
  %between = call float @llvm.minnum.f32(float %low, float 4.0)
  %ph = getelementptr float, ptr addrspace(1) %held, i32 %tid
  store float %between, ptr addrspace(1) %ph
  %sum = fadd float %x, %y
  %u = call float @llvm.fabs.f32(float %x)
  %v = call float @llvm.fabs.f32(float %y)
  %w = call float @llvm.fabs.f32(float %sum)
  %uv = call float @llvm.maxnum.f32(float %u, float %v)
  %uvw = call float @llvm.maxnum.f32(float %uv, float %w)
  %ps = getelementptr float, ptr addrspace(1) %sizes, i32 %tid
  store float %uvw, ptr addrspace(1) %ps
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }
