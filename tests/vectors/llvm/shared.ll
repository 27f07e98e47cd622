; Pairs of accesses to LDS that LLVM joins, and copies straight to LDS. Known answers: test_llvm_shared.py.
; llc -mtriple=amdgcn-amd-amdhsa -mcpu=CHIP -O3 shared.ll -o shared.CHIP.s

declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8), ptr addrspace(3), i32 immarg, i32, i32, i32 immarg, i32 immarg)

@lds_pair_near_i32 = internal addrspace(3) global [512 x i32] undef, align 4
define amdgpu_kernel void @pair_near_i32(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %a, ptr addrspace(1) %b) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %px = getelementptr i32, ptr addrspace(1) %x, i32 %tid
  %vx = load i32, ptr addrspace(1) %px
  %py = getelementptr i32, ptr addrspace(1) %y, i32 %tid
  %vy = load i32, ptr addrspace(1) %py
  %s0 = getelementptr inbounds i32, ptr addrspace(3) @lds_pair_near_i32, i32 %tid
  %s1 = getelementptr inbounds i32, ptr addrspace(3) %s0, i32 70
  store i32 %vx, ptr addrspace(3) %s0
  store i32 %vy, ptr addrspace(3) %s1
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %tid, 21
  %l0 = getelementptr inbounds i32, ptr addrspace(3) @lds_pair_near_i32, i32 %other
  %l1 = getelementptr inbounds i32, ptr addrspace(3) %l0, i32 70
  %r0 = load i32, ptr addrspace(3) %l0
  %r1 = load i32, ptr addrspace(3) %l1
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %tid
  store i32 %r0, ptr addrspace(1) %pa
  %pb = getelementptr i32, ptr addrspace(1) %b, i32 %tid
  store i32 %r1, ptr addrspace(1) %pb
  ret void
}

@lds_pair_far_i32 = internal addrspace(3) global [512 x i32] undef, align 4
define amdgpu_kernel void @pair_far_i32(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %a, ptr addrspace(1) %b) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %px = getelementptr i32, ptr addrspace(1) %x, i32 %tid
  %vx = load i32, ptr addrspace(1) %px
  %py = getelementptr i32, ptr addrspace(1) %y, i32 %tid
  %vy = load i32, ptr addrspace(1) %py
  %s0 = getelementptr inbounds i32, ptr addrspace(3) @lds_pair_far_i32, i32 %tid
  %s1 = getelementptr inbounds i32, ptr addrspace(3) %s0, i32 256
  store i32 %vx, ptr addrspace(3) %s0
  store i32 %vy, ptr addrspace(3) %s1
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %tid, 21
  %l0 = getelementptr inbounds i32, ptr addrspace(3) @lds_pair_far_i32, i32 %other
  %l1 = getelementptr inbounds i32, ptr addrspace(3) %l0, i32 256
  %r0 = load i32, ptr addrspace(3) %l0
  %r1 = load i32, ptr addrspace(3) %l1
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %tid
  store i32 %r0, ptr addrspace(1) %pa
  %pb = getelementptr i32, ptr addrspace(1) %b, i32 %tid
  store i32 %r1, ptr addrspace(1) %pb
  ret void
}

@lds_pair_near_i64 = internal addrspace(3) global [512 x i64] undef, align 8
define amdgpu_kernel void @pair_near_i64(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %a, ptr addrspace(1) %b) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %px = getelementptr i64, ptr addrspace(1) %x, i32 %tid
  %vx = load i64, ptr addrspace(1) %px
  %py = getelementptr i64, ptr addrspace(1) %y, i32 %tid
  %vy = load i64, ptr addrspace(1) %py
  %s0 = getelementptr inbounds i64, ptr addrspace(3) @lds_pair_near_i64, i32 %tid
  %s1 = getelementptr inbounds i64, ptr addrspace(3) %s0, i32 70
  store i64 %vx, ptr addrspace(3) %s0
  store i64 %vy, ptr addrspace(3) %s1
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %tid, 21
  %l0 = getelementptr inbounds i64, ptr addrspace(3) @lds_pair_near_i64, i32 %other
  %l1 = getelementptr inbounds i64, ptr addrspace(3) %l0, i32 70
  %r0 = load i64, ptr addrspace(3) %l0
  %r1 = load i64, ptr addrspace(3) %l1
  %pa = getelementptr i64, ptr addrspace(1) %a, i32 %tid
  store i64 %r0, ptr addrspace(1) %pa
  %pb = getelementptr i64, ptr addrspace(1) %b, i32 %tid
  store i64 %r1, ptr addrspace(1) %pb
  ret void
}

@lds_pair_far_i64 = internal addrspace(3) global [512 x i64] undef, align 8
define amdgpu_kernel void @pair_far_i64(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %a, ptr addrspace(1) %b) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %px = getelementptr i64, ptr addrspace(1) %x, i32 %tid
  %vx = load i64, ptr addrspace(1) %px
  %py = getelementptr i64, ptr addrspace(1) %y, i32 %tid
  %vy = load i64, ptr addrspace(1) %py
  %s0 = getelementptr inbounds i64, ptr addrspace(3) @lds_pair_far_i64, i32 %tid
  %s1 = getelementptr inbounds i64, ptr addrspace(3) %s0, i32 256
  store i64 %vx, ptr addrspace(3) %s0
  store i64 %vy, ptr addrspace(3) %s1
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %tid, 21
  %l0 = getelementptr inbounds i64, ptr addrspace(3) @lds_pair_far_i64, i32 %other
  %l1 = getelementptr inbounds i64, ptr addrspace(3) %l0, i32 256
  %r0 = load i64, ptr addrspace(3) %l0
  %r1 = load i64, ptr addrspace(3) %l1
  %pa = getelementptr i64, ptr addrspace(1) %a, i32 %tid
  store i64 %r0, ptr addrspace(1) %pa
  %pb = getelementptr i64, ptr addrspace(1) %b, i32 %tid
  store i64 %r1, ptr addrspace(1) %pb
  ret void
}
@lds_direct_4 = internal addrspace(3) global [512 x i8] undef, align 16
define amdgpu_kernel void @direct_4(ptr addrspace(1) %x, ptr addrspace(1) %a) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %rsrc = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %x, i16 0, i64 192, i32 159744)
  %other = xor i32 %tid, 21
  %off = mul i32 %other, 4
  %to = getelementptr i8, ptr addrspace(3) @lds_direct_4, i32 128
  call void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8) %rsrc, ptr addrspace(3) %to, i32 4, i32 %off, i32 0, i32 8, i32 0)
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %at = mul i32 %tid, 4
  %l0 = getelementptr i8, ptr addrspace(3) %to, i32 %at
  %l1 = getelementptr i8, ptr addrspace(3) %l0, i32 8
  %r = load i32, ptr addrspace(3) %l1, align 4
  %pa = getelementptr i8, ptr addrspace(1) %a, i32 %at
  store i32 %r, ptr addrspace(1) %pa, align 4
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-workgroup-id-y" "uniform-work-group-size"="true" }
