; A kernel with as many pointers as one scalar load brings: 64 bytes of arguments. Compiled by llc as kernels.ll is:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 arguments.ll -o arguments.<chip>.s

declare i32 @llvm.amdgcn.workitem.id.x()

; out[i] = ((((((a[i] * 3 + b[i]) * 3 + c[i]) * 3 + d[i]) * 3 + e[i]) * 3 + f[i]) * 3 + g[i]
define amdgpu_kernel void @pointers(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, ptr addrspace(1) %d, ptr addrspace(1) %e, ptr addrspace(1) %f, ptr addrspace(1) %g, ptr addrspace(1) %out) {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %a.at = getelementptr i32, ptr addrspace(1) %a, i32 %tid
  %a.x = load i32, ptr addrspace(1) %a.at
  %b.at = getelementptr i32, ptr addrspace(1) %b, i32 %tid
  %b.x = load i32, ptr addrspace(1) %b.at
  %c.at = getelementptr i32, ptr addrspace(1) %c, i32 %tid
  %c.x = load i32, ptr addrspace(1) %c.at
  %d.at = getelementptr i32, ptr addrspace(1) %d, i32 %tid
  %d.x = load i32, ptr addrspace(1) %d.at
  %e.at = getelementptr i32, ptr addrspace(1) %e, i32 %tid
  %e.x = load i32, ptr addrspace(1) %e.at
  %f.at = getelementptr i32, ptr addrspace(1) %f, i32 %tid
  %f.x = load i32, ptr addrspace(1) %f.at
  %g.at = getelementptr i32, ptr addrspace(1) %g, i32 %tid
  %g.x = load i32, ptr addrspace(1) %g.at
  %b.m = mul i32 %a.x, 3
  %b.s = add i32 %b.m, %b.x
  %c.m = mul i32 %b.s, 3
  %c.s = add i32 %c.m, %c.x
  %d.m = mul i32 %c.s, 3
  %d.s = add i32 %d.m, %d.x
  %e.m = mul i32 %d.s, 3
  %e.s = add i32 %e.m, %e.x
  %f.m = mul i32 %e.s, 3
  %f.s = add i32 %f.m, %f.x
  %g.m = mul i32 %f.s, 3
  %g.s = add i32 %g.m, %g.x
  %out.at = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %g.s, ptr addrspace(1) %out.at
  ret void
}
