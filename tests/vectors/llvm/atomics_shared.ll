; Atomics on LDS whose meaning LLVM's language reference defines (`atomicrmw`) and whose results nobody asks for, compiled by
; llc for each chip into atomics_shared.<chip>.s, without lines of comments:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 atomics_shared.ll -o atomics_shared.<chip>.s
; One workgroup of 128 lanes. Every kernel: shared[i % 8] is changed by in[i], in LDS.

declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()

@lds_add_i32 = internal addrspace(3) global [8 x i32] undef, align 8
define amdgpu_kernel void @add_i32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %place = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %start = load i32, ptr addrspace(1) %place
  %cell = getelementptr inbounds i32, ptr addrspace(3) @lds_add_i32, i32 %slot
  store i32 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw add ptr addrspace(3) %cell, i32 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i32, ptr addrspace(3) %cell
  store i32 %end, ptr addrspace(1) %place
  ret void
}

@lds_smin_i32 = internal addrspace(3) global [8 x i32] undef, align 8
define amdgpu_kernel void @smin_i32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %place = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %start = load i32, ptr addrspace(1) %place
  %cell = getelementptr inbounds i32, ptr addrspace(3) @lds_smin_i32, i32 %slot
  store i32 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw min ptr addrspace(3) %cell, i32 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i32, ptr addrspace(3) %cell
  store i32 %end, ptr addrspace(1) %place
  ret void
}

@lds_smax_i32 = internal addrspace(3) global [8 x i32] undef, align 8
define amdgpu_kernel void @smax_i32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %place = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %start = load i32, ptr addrspace(1) %place
  %cell = getelementptr inbounds i32, ptr addrspace(3) @lds_smax_i32, i32 %slot
  store i32 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw max ptr addrspace(3) %cell, i32 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i32, ptr addrspace(3) %cell
  store i32 %end, ptr addrspace(1) %place
  ret void
}

@lds_umin_i32 = internal addrspace(3) global [8 x i32] undef, align 8
define amdgpu_kernel void @umin_i32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %place = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %start = load i32, ptr addrspace(1) %place
  %cell = getelementptr inbounds i32, ptr addrspace(3) @lds_umin_i32, i32 %slot
  store i32 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw umin ptr addrspace(3) %cell, i32 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i32, ptr addrspace(3) %cell
  store i32 %end, ptr addrspace(1) %place
  ret void
}

@lds_umax_i32 = internal addrspace(3) global [8 x i32] undef, align 8
define amdgpu_kernel void @umax_i32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %place = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %start = load i32, ptr addrspace(1) %place
  %cell = getelementptr inbounds i32, ptr addrspace(3) @lds_umax_i32, i32 %slot
  store i32 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw umax ptr addrspace(3) %cell, i32 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i32, ptr addrspace(3) %cell
  store i32 %end, ptr addrspace(1) %place
  ret void
}

@lds_and_i32 = internal addrspace(3) global [8 x i32] undef, align 8
define amdgpu_kernel void @and_i32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %place = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %start = load i32, ptr addrspace(1) %place
  %cell = getelementptr inbounds i32, ptr addrspace(3) @lds_and_i32, i32 %slot
  store i32 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw and ptr addrspace(3) %cell, i32 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i32, ptr addrspace(3) %cell
  store i32 %end, ptr addrspace(1) %place
  ret void
}

@lds_or_i32 = internal addrspace(3) global [8 x i32] undef, align 8
define amdgpu_kernel void @or_i32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %place = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %start = load i32, ptr addrspace(1) %place
  %cell = getelementptr inbounds i32, ptr addrspace(3) @lds_or_i32, i32 %slot
  store i32 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw or ptr addrspace(3) %cell, i32 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i32, ptr addrspace(3) %cell
  store i32 %end, ptr addrspace(1) %place
  ret void
}

@lds_xor_i32 = internal addrspace(3) global [8 x i32] undef, align 8
define amdgpu_kernel void @xor_i32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %from
  %place = getelementptr i32, ptr addrspace(1) %shared, i32 %slot
  %start = load i32, ptr addrspace(1) %place
  %cell = getelementptr inbounds i32, ptr addrspace(3) @lds_xor_i32, i32 %slot
  store i32 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw xor ptr addrspace(3) %cell, i32 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i32, ptr addrspace(3) %cell
  store i32 %end, ptr addrspace(1) %place
  ret void
}

@lds_add_i64 = internal addrspace(3) global [8 x i64] undef, align 8
define amdgpu_kernel void @add_i64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %place = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %start = load i64, ptr addrspace(1) %place
  %cell = getelementptr inbounds i64, ptr addrspace(3) @lds_add_i64, i32 %slot
  store i64 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw add ptr addrspace(3) %cell, i64 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i64, ptr addrspace(3) %cell
  store i64 %end, ptr addrspace(1) %place
  ret void
}

@lds_smin_i64 = internal addrspace(3) global [8 x i64] undef, align 8
define amdgpu_kernel void @smin_i64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %place = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %start = load i64, ptr addrspace(1) %place
  %cell = getelementptr inbounds i64, ptr addrspace(3) @lds_smin_i64, i32 %slot
  store i64 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw min ptr addrspace(3) %cell, i64 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i64, ptr addrspace(3) %cell
  store i64 %end, ptr addrspace(1) %place
  ret void
}

@lds_smax_i64 = internal addrspace(3) global [8 x i64] undef, align 8
define amdgpu_kernel void @smax_i64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %place = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %start = load i64, ptr addrspace(1) %place
  %cell = getelementptr inbounds i64, ptr addrspace(3) @lds_smax_i64, i32 %slot
  store i64 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw max ptr addrspace(3) %cell, i64 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i64, ptr addrspace(3) %cell
  store i64 %end, ptr addrspace(1) %place
  ret void
}

@lds_umin_i64 = internal addrspace(3) global [8 x i64] undef, align 8
define amdgpu_kernel void @umin_i64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %place = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %start = load i64, ptr addrspace(1) %place
  %cell = getelementptr inbounds i64, ptr addrspace(3) @lds_umin_i64, i32 %slot
  store i64 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw umin ptr addrspace(3) %cell, i64 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i64, ptr addrspace(3) %cell
  store i64 %end, ptr addrspace(1) %place
  ret void
}

@lds_umax_i64 = internal addrspace(3) global [8 x i64] undef, align 8
define amdgpu_kernel void @umax_i64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %place = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %start = load i64, ptr addrspace(1) %place
  %cell = getelementptr inbounds i64, ptr addrspace(3) @lds_umax_i64, i32 %slot
  store i64 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw umax ptr addrspace(3) %cell, i64 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i64, ptr addrspace(3) %cell
  store i64 %end, ptr addrspace(1) %place
  ret void
}

@lds_and_i64 = internal addrspace(3) global [8 x i64] undef, align 8
define amdgpu_kernel void @and_i64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %place = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %start = load i64, ptr addrspace(1) %place
  %cell = getelementptr inbounds i64, ptr addrspace(3) @lds_and_i64, i32 %slot
  store i64 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw and ptr addrspace(3) %cell, i64 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i64, ptr addrspace(3) %cell
  store i64 %end, ptr addrspace(1) %place
  ret void
}

@lds_or_i64 = internal addrspace(3) global [8 x i64] undef, align 8
define amdgpu_kernel void @or_i64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %place = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %start = load i64, ptr addrspace(1) %place
  %cell = getelementptr inbounds i64, ptr addrspace(3) @lds_or_i64, i32 %slot
  store i64 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw or ptr addrspace(3) %cell, i64 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i64, ptr addrspace(3) %cell
  store i64 %end, ptr addrspace(1) %place
  ret void
}

@lds_xor_i64 = internal addrspace(3) global [8 x i64] undef, align 8
define amdgpu_kernel void @xor_i64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %x = load i64, ptr addrspace(1) %from
  %place = getelementptr i64, ptr addrspace(1) %shared, i32 %slot
  %start = load i64, ptr addrspace(1) %place
  %cell = getelementptr inbounds i64, ptr addrspace(3) @lds_xor_i64, i32 %slot
  store i64 %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw xor ptr addrspace(3) %cell, i64 %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load i64, ptr addrspace(3) %cell
  store i64 %end, ptr addrspace(1) %place
  ret void
}

@lds_fadd_f32 = internal addrspace(3) global [8 x float] undef, align 8
define amdgpu_kernel void @fadd_f32(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr float, ptr addrspace(1) %in, i32 %tid
  %x = load float, ptr addrspace(1) %from
  %place = getelementptr float, ptr addrspace(1) %shared, i32 %slot
  %start = load float, ptr addrspace(1) %place
  %cell = getelementptr inbounds float, ptr addrspace(3) @lds_fadd_f32, i32 %slot
  store float %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw fadd ptr addrspace(3) %cell, float %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load float, ptr addrspace(3) %cell
  store float %end, ptr addrspace(1) %place
  ret void
}

@lds_fadd_f64 = internal addrspace(3) global [8 x double] undef, align 8
define amdgpu_kernel void @fadd_f64(ptr addrspace(1) %in, ptr addrspace(1) %shared) #0 {
  %tid = call range(i32 0, 128) i32 @llvm.amdgcn.workitem.id.x()
  %slot = and i32 %tid, 7
  %from = getelementptr double, ptr addrspace(1) %in, i32 %tid
  %x = load double, ptr addrspace(1) %from
  %place = getelementptr double, ptr addrspace(1) %shared, i32 %slot
  %start = load double, ptr addrspace(1) %place
  %cell = getelementptr inbounds double, ptr addrspace(3) @lds_fadd_f64, i32 %slot
  store double %start, ptr addrspace(3) %cell
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %ignored = atomicrmw fadd ptr addrspace(3) %cell, double %x syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %end = load double, ptr addrspace(3) %cell
  store double %end, ptr addrspace(1) %place
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="128,128" }
