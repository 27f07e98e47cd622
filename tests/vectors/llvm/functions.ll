; Written by functions.py.

@halves = internal addrspace(3) global [64 x i16] undef, align 2
declare <2 x float> @llvm.fma.v2f32(<2 x float>, <2 x float>, <2 x float>)
declare double @llvm.fabs.f64(double)
declare double @llvm.floor.f64(double)
declare double @llvm.fma.f64(double, double, double)
declare double @llvm.ldexp.f64.i32(double, i32)
declare double @llvm.maxnum.f64(double, double)
declare double @llvm.minnum.f64(double, double)
declare double @llvm.sqrt.f64(double)
declare double @llvm.trunc.f64(double)
declare float @llvm.amdgcn.cos.f32(float)
declare float @llvm.amdgcn.sin.f32(float)
declare float @llvm.amdgcn.sqrt.f32(float)
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.maxnum.f32(float, float)
declare float @llvm.minnum.f32(float, float)
declare float @llvm.trunc.f32(float)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.ds.swizzle(i32, i32)
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.writelane.i32(i32, i32, i32)
declare i32 @llvm.bitreverse.i32(i32)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.fshr.i32(i32, i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.amdgcn.s.barrier()

define amdgpu_kernel void @ashr_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %s = and i64 %y, 63
  %r = ashr i64 %x, %s
  %to = getelementptr i64, ptr addrspace(1) %out, i32 %tid
  store i64 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @lshr_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %s = and i64 %y, 63
  %r = lshr i64 %x, %s
  %to = getelementptr i64, ptr addrspace(1) %out, i32 %tid
  store i64 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @field(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %s = shl i32 %x, 12
  %r = ashr i32 %s, 22
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @sub_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %r = sub i64 %x, %y
  %to = getelementptr i64, ptr addrspace(1) %out, i32 %tid
  store i64 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @add3(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %az = getelementptr i32, ptr addrspace(1) %in_z, i32 %tid
  %z = load i32, ptr addrspace(1) %az
  %s = add i32 %x, %y
  %r = add i32 %s, %z
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @mul24(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %a = shl i32 %x, 8
  %b = ashr i32 %a, 8
  %c = shl i32 %y, 8
  %d = ashr i32 %c, 8
  %r = mul i32 %b, %d
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @smin_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %r = call i32 @llvm.smin.i32(i32 %x, i32 %y)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @smax_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %r = call i32 @llvm.smax.i32(i32 %x, i32 %y)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @umin_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %r = call i32 @llvm.umin.i32(i32 %x, i32 %y)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @smax_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %r = call i64 @llvm.smax.i64(i64 %x, i64 %y)
  %to = getelementptr i64, ptr addrspace(1) %out, i32 %tid
  store i64 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @leading_zeros(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %h = lshr i32 %x, 5
  %r = call i32 @llvm.ctlz.i32(i32 %h, i1 false)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @remainder(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %d = or i32 %y, 1
  %r = urem i32 %x, %d
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ge_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %c = icmp sge i32 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @le_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %c = icmp sle i32 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @le_u32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %c = icmp ule i32 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @eq_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp eq i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @lt_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp ult i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @lt_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp slt i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @eq_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %c = fcmp oeq float %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ge_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %c = fcmp oge float %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ne_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %c = fcmp une float %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @gt_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %c = fcmp ogt double %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @le_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %c = fcmp ole double %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ne_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %c = fcmp une double %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @unordered_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %c = fcmp uno double %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @half_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr half, ptr addrspace(1) %in_x, i32 %tid
  %x = load half, ptr addrspace(1) %ax
  %r = fpext half %x to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @upper_half_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %p = bitcast i32 %x to <2 x half>
  %h = extractelement <2 x half> %p, i32 1
  %r = fpext half %h to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @float_to_double(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = fpext float %x to double
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @double_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = fptrunc double %x to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @int_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = sitofp i32 %x to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @unsigned_to_double(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = uitofp i32 %x to double
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @byte_0_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %m = lshr i32 %x, 0
  %n = trunc i32 %m to i8
  %r = uitofp i8 %n to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @byte_1_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %m = lshr i32 %x, 8
  %n = trunc i32 %m to i8
  %r = uitofp i8 %n to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @byte_2_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %m = lshr i32 %x, 16
  %n = trunc i32 %m to i8
  %r = uitofp i8 %n to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @byte_3_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %m = lshr i32 %x, 24
  %n = trunc i32 %m to i8
  %r = uitofp i8 %n to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @signed_byte_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %m = lshr i32 %x, 16
  %n = trunc i32 %m to i8
  %r = sitofp i8 %n to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @signed_half_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %m = lshr i32 %x, 16
  %n = trunc i32 %m to i16
  %r = sitofp i16 %n to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @unsigned_half_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %m = lshr i32 %x, 16
  %n = trunc i32 %m to i16
  %r = uitofp i16 %n to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @double_to_int(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = fptosi double %x to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @double_to_unsigned(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = fptoui double %x to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @floor_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = call double @llvm.floor.f64(double %x)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @trunc_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = call double @llvm.trunc.f64(double %x)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @fma_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %az = getelementptr double, ptr addrspace(1) %in_z, i32 %tid
  %z = load double, ptr addrspace(1) %az
  %r = call double @llvm.fma.f64(double %x, double %y, double %z)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @fma_f64_kept(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %az = getelementptr double, ptr addrspace(1) %in_z, i32 %tid
  %z = load double, ptr addrspace(1) %az
  %f = call double @llvm.fma.f64(double %x, double %y, double %z)
  %g = fmul double %z, %y
  %r = fadd double %f, %g
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @sub_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = fsub double %x, %y
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @add_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = fadd double %x, %y
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @max_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = call double @llvm.maxnum.f64(double %x, double %y)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @min_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %r = call float @llvm.minnum.f32(float %x, float %y)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ldexp_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %e = ashr i32 %y, 24
  %r = call double @llvm.ldexp.f64.i32(double %x, i32 %e)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @min_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = call double @llvm.minnum.f64(double %x, double %y)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @abs_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = call double @llvm.fabs.f64(double %x)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @add_pairs(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr <2 x float>, ptr addrspace(1) %in_x, i32 %tid
  %x = load <2 x float>, ptr addrspace(1) %ax
  %ay = getelementptr <2 x float>, ptr addrspace(1) %in_y, i32 %tid
  %y = load <2 x float>, ptr addrspace(1) %ay
  %r = fadd <2 x float> %x, %y
  %to = getelementptr <2 x float>, ptr addrspace(1) %out, i32 %tid
  store <2 x float> %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @sqrt(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.amdgcn.sqrt.f32(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @sine(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.amdgcn.sin.f32(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @cosine(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.amdgcn.cos.f32(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @swizzled(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = call i32 @llvm.amdgcn.ds.swizzle(i32 %x, i32 6175)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @permuted(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %l = and i32 %y, 63
  %a = shl i32 %l, 2
  %r = call i32 @llvm.amdgcn.ds.bpermute(i32 %a, i32 %x)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @one_lane_written(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %s = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %x)
  %r = call i32 @llvm.amdgcn.writelane.i32(i32 %s, i32 5, i32 %y)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @through_private_words(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %m = alloca [64 x i32], align 4, addrspace(5)
  %i = and i32 %y, 63
  %p = getelementptr [64 x i32], ptr addrspace(5) %m, i32 0, i32 %i
  store volatile i32 %x, ptr addrspace(5) %p
  %r = load volatile i32, ptr addrspace(5) %p
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @through_private_pairs(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %m = alloca [32 x <2 x i32>], align 8, addrspace(5)
  %i = and i32 %y, 31
  %p = getelementptr [32 x <2 x i32>], ptr addrspace(5) %m, i32 0, i32 %i
  %v = insertelement <2 x i32> <i32 1, i32 2>, i32 %x, i32 1
  store volatile <2 x i32> %v, ptr addrspace(5) %p
  %w = load volatile <2 x i32>, ptr addrspace(5) %p
  %r = extractelement <2 x i32> %w, i32 1
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @through_private_vectors(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %m = alloca [16 x <4 x i32>], align 16, addrspace(5)
  %i = and i32 %y, 15
  %p = getelementptr [16 x <4 x i32>], ptr addrspace(5) %m, i32 0, i32 %i
  %v = insertelement <4 x i32> <i32 1, i32 2, i32 3, i32 4>, i32 %x, i32 2
  store volatile <4 x i32> %v, ptr addrspace(5) %p
  %w = load volatile <4 x i32>, ptr addrspace(5) %p
  %r = extractelement <4 x i32> %w, i32 2
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @shared_half(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %h = trunc i32 %x to i16
  %p = getelementptr [64 x i16], ptr addrspace(3) @halves, i32 0, i32 %tid
  store i16 %h, ptr addrspace(3) %p
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %o = xor i32 %tid, 9
  %q = getelementptr [64 x i16], ptr addrspace(3) @halves, i32 0, i32 %o
  %l = load i16, ptr addrspace(3) %q
  %r = zext i16 %l to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @uniform_ashr(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %s = and i32 %y, 31
  %r = ashr i32 %x, %s
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_lshr64(ptr addrspace(1) %out, i64 %x, i64 %y) #0 {
  %s = and i64 %y, 63
  %r = lshr i64 %x, %s
  store i64 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_max(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %r = call i32 @llvm.smax.i32(i32 %x, i32 %y)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_min(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %r = call i32 @llvm.smin.i32(i32 %x, i32 %y)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_le(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %c = icmp sle i32 %x, %y
  %r = select i1 %c, i32 %x, i32 7
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_branch(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %c = icmp sgt i32 %x, %y
  br i1 %c, label %more, label %less
  more:
  store volatile i32 1, ptr addrspace(1) %out
  br label %both
  less:
  %n = mul i32 %y, 3
  store volatile i32 %n, ptr addrspace(1) %out
  br label %both
  both:
  %r = phi i32 [ %x, %more ], [ %n, %less ]
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_ne64(ptr addrspace(1) %out, i64 %x, i64 %y) #0 {
  %c = icmp ne i64 %x, %y
  %r = select i1 %c, i64 %x, i64 7
  store i64 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @lt_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %c = fcmp olt double %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @eq_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %c = fcmp oeq double %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @min3_u32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %az = getelementptr i32, ptr addrspace(1) %in_z, i32 %tid
  %z = load i32, ptr addrspace(1) %az
  %m = call i32 @llvm.umin.i32(i32 %x, i32 %y)
  %r = call i32 @llvm.umin.i32(i32 %m, i32 %z)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @min3_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %az = getelementptr i32, ptr addrspace(1) %in_z, i32 %tid
  %z = load i32, ptr addrspace(1) %az
  %m = call i32 @llvm.smin.i32(i32 %x, i32 %y)
  %r = call i32 @llvm.smin.i32(i32 %m, i32 %z)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @max3_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %az = getelementptr i32, ptr addrspace(1) %in_z, i32 %tid
  %z = load i32, ptr addrspace(1) %az
  %m = call i32 @llvm.smax.i32(i32 %x, i32 %y)
  %r = call i32 @llvm.smax.i32(i32 %m, i32 %z)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @mad_i24(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %az = getelementptr i32, ptr addrspace(1) %in_z, i32 %tid
  %z = load i32, ptr addrspace(1) %az
  %a = shl i32 %x, 8
  %b = ashr i32 %a, 8
  %c = shl i32 %y, 8
  %d = ashr i32 %c, 8
  %m = mul i32 %b, %d
  %r = add i32 %m, %z
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @fma_of_negatives(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr <2 x float>, ptr addrspace(1) %in_x, i32 %tid
  %x = load <2 x float>, ptr addrspace(1) %ax
  %ay = getelementptr <2 x float>, ptr addrspace(1) %in_y, i32 %tid
  %y = load <2 x float>, ptr addrspace(1) %ay
  %az = getelementptr <2 x float>, ptr addrspace(1) %in_z, i32 %tid
  %z = load <2 x float>, ptr addrspace(1) %az
  %m = fneg <2 x float> %x
  %o = fneg <2 x float> %z
  %r = call <2 x float> @llvm.fma.v2f32(<2 x float> %m, <2 x float> %y, <2 x float> %o)
  %to = getelementptr <2 x float>, ptr addrspace(1) %out, i32 %tid
  store <2 x float> %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @fma_of_negative(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %az = getelementptr float, ptr addrspace(1) %in_z, i32 %tid
  %z = load float, ptr addrspace(1) %az
  %m = fneg float %x
  %r = call float @llvm.fma.f32(float %m, float %y, float %z)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @min3_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %az = getelementptr float, ptr addrspace(1) %in_z, i32 %tid
  %z = load float, ptr addrspace(1) %az
  %m = call float @llvm.minnum.f32(float %x, float %y)
  %r = call float @llvm.minnum.f32(float %m, float %z)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @max_of_neighbours(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %b = bitcast float %y to i32
  %m = call i32 @llvm.amdgcn.update.dpp.i32(i32 poison, i32 %b, i32 177, i32 15, i32 15, i1 true)
  %s = bitcast i32 %m to float
  %r = call nnan float @llvm.maxnum.f32(float %s, float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @min_of_mirrored(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %b = bitcast float %y to i32
  %m = call i32 @llvm.amdgcn.update.dpp.i32(i32 poison, i32 %b, i32 320, i32 15, i32 15, i1 true)
  %s = bitcast i32 %m to float
  %r = call nnan float @llvm.minnum.f32(float %s, float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @product_of_halves(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %b = bitcast float %y to i32
  %m = call i32 @llvm.amdgcn.update.dpp.i32(i32 poison, i32 %b, i32 321, i32 15, i32 15, i1 true)
  %s = bitcast i32 %m to float
  %r = fmul float %s, %x
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @quotient_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = fdiv double %x, %y
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @neg_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = fneg double %x
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @root_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = call double @llvm.sqrt.f64(double %x)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ne_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp ne i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @le_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp ule i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @gt_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp ugt i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ge_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp uge i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @le_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp sle i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ge_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %c = icmp sge i64 %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @le_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %c = fcmp ole float %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @ge_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %c = fcmp oge double %x, %y
  %r = zext i1 %c to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @int_to_double(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = sitofp i32 %x to double
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @trunc_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.trunc.f32(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @funnel(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %az = getelementptr i32, ptr addrspace(1) %in_z, i32 %tid
  %z = load i32, ptr addrspace(1) %az
  %r = call i32 @llvm.fshr.i32(i32 %x, i32 %y, i32 %z)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @set_bits(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = call i32 @llvm.ctpop.i32(i32 %x)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @trailing_zeros(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = call i32 @llvm.cttz.i32(i32 %x, i1 false)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @reversed_bits(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = call i32 @llvm.bitreverse.i32(i32 %x)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @uniform_set_bits(ptr addrspace(1) %out, i32 %x) #0 {
  %r = call i32 @llvm.ctpop.i32(i32 %x)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_leading_zeros(ptr addrspace(1) %out, i32 %x) #0 {
  %r = call i32 @llvm.ctlz.i32(i32 %x, i1 false)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_trailing_zeros(ptr addrspace(1) %out, i32 %x) #0 {
  %r = call i32 @llvm.cttz.i32(i32 %x, i1 false)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @uniform_reversed_bits(ptr addrspace(1) %out, i32 %x) #0 {
  %r = call i32 @llvm.bitreverse.i32(i32 %x)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }
