; Written by functions.py.

declare double @llvm.fabs.f64(double)
declare double @llvm.floor.f64(double)
declare double @llvm.fma.f64(double, double, double)
declare double @llvm.maxnum.f64(double, double)
declare double @llvm.minnum.f64(double, double)
declare double @llvm.sqrt.f64(double)
declare double @llvm.trunc.f64(double)
declare float @llvm.minnum.f32(float, float)
declare float @llvm.nvvm.cos.approx.f(float)
declare float @llvm.nvvm.lg2.approx.f(float)
declare float @llvm.nvvm.rcp.approx.ftz.f(float)
declare float @llvm.nvvm.rsqrt.approx.f(float)
declare float @llvm.nvvm.sin.approx.f(float)
declare float @llvm.nvvm.sqrt.approx.f(float)
declare float @llvm.sqrt.f32(float)
declare float @llvm.trunc.f32(float)
declare i32 @llvm.bitreverse.i32(i32)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.fshr.i32(i32, i32, i32)
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.smax.i64(i64, i64)

define ptx_kernel void @ashr_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @lshr_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @field(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %s = shl i32 %x, 12
  %r = ashr i32 %s, 22
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @sub_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %r = sub i64 %x, %y
  %to = getelementptr i64, ptr addrspace(1) %out, i32 %tid
  store i64 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @add3(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @mul24(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @smin_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %r = call i32 @llvm.smin.i32(i32 %x, i32 %y)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @smax_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %r = call i32 @llvm.smax.i32(i32 %x, i32 %y)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @umin_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %in_y, i32 %tid
  %y = load i32, ptr addrspace(1) %ay
  %r = call i32 @llvm.umin.i32(i32 %x, i32 %y)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @smax_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i64, ptr addrspace(1) %in_x, i32 %tid
  %x = load i64, ptr addrspace(1) %ax
  %ay = getelementptr i64, ptr addrspace(1) %in_y, i32 %tid
  %y = load i64, ptr addrspace(1) %ay
  %r = call i64 @llvm.smax.i64(i64 %x, i64 %y)
  %to = getelementptr i64, ptr addrspace(1) %out, i32 %tid
  store i64 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @leading_zeros(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %h = lshr i32 %x, 5
  %r = call i32 @llvm.ctlz.i32(i32 %h, i1 false)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @remainder(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @ge_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @le_i32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @le_u32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @eq_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @lt_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @lt_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @eq_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @ge_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @ne_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @gt_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @le_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @ne_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @unordered_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @half_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr half, ptr addrspace(1) %in_x, i32 %tid
  %x = load half, ptr addrspace(1) %ax
  %r = fpext half %x to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @upper_half_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %p = bitcast i32 %x to <2 x half>
  %h = extractelement <2 x half> %p, i32 1
  %r = fpext half %h to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @float_to_double(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = fpext float %x to double
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @double_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = fptrunc double %x to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @int_to_float(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = sitofp i32 %x to float
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @double_to_int(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = fptosi double %x to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @double_to_unsigned(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = fptoui double %x to i32
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @floor_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = call double @llvm.floor.f64(double %x)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @trunc_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = call double @llvm.trunc.f64(double %x)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @fma_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @fma_f64_kept(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @sub_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = fsub double %x, %y
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @add_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = fadd double %x, %y
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @max_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = call double @llvm.maxnum.f64(double %x, double %y)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @min_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %r = call float @llvm.minnum.f32(float %x, float %y)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @min_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = call double @llvm.minnum.f64(double %x, double %y)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @abs_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = call double @llvm.fabs.f64(double %x)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @square_root(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.sqrt.f32(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @add_pairs(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr <2 x float>, ptr addrspace(1) %in_x, i32 %tid
  %x = load <2 x float>, ptr addrspace(1) %ax
  %ay = getelementptr <2 x float>, ptr addrspace(1) %in_y, i32 %tid
  %y = load <2 x float>, ptr addrspace(1) %ay
  %r = fadd <2 x float> %x, %y
  %to = getelementptr <2 x float>, ptr addrspace(1) %out, i32 %tid
  store <2 x float> %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @div_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %in_y, i32 %tid
  %y = load float, ptr addrspace(1) %ay
  %r = fdiv float %x, %y
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @div_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %ay = getelementptr double, ptr addrspace(1) %in_y, i32 %tid
  %y = load double, ptr addrspace(1) %ay
  %r = fdiv double %x, %y
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @sine(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.nvvm.sin.approx.f(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @cosine(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.nvvm.cos.approx.f(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @reciprocal(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.nvvm.rcp.approx.ftz.f(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @root(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.nvvm.sqrt.approx.f(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @reciprocal_root(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.nvvm.rsqrt.approx.f(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @log2(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.nvvm.lg2.approx.f(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @uniform_ashr(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %s = and i32 %y, 31
  %r = ashr i32 %x, %s
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @uniform_lshr64(ptr addrspace(1) %out, i64 %x, i64 %y) #0 {
  %s = and i64 %y, 63
  %r = lshr i64 %x, %s
  store i64 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @uniform_max(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %r = call i32 @llvm.smax.i32(i32 %x, i32 %y)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @uniform_min(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %r = call i32 @llvm.smin.i32(i32 %x, i32 %y)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @uniform_le(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
  %c = icmp sle i32 %x, %y
  %r = select i1 %c, i32 %x, i32 7
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @uniform_branch(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {
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

define ptx_kernel void @uniform_ne64(ptr addrspace(1) %out, i64 %x, i64 %y) #0 {
  %c = icmp ne i64 %x, %y
  %r = select i1 %c, i64 %x, i64 7
  store i64 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @lt_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @eq_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @neg_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = fneg double %x
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @root_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr double, ptr addrspace(1) %in_x, i32 %tid
  %x = load double, ptr addrspace(1) %ax
  %r = call double @llvm.sqrt.f64(double %x)
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @ne_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @le_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @gt_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @ge_u64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @le_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @ge_i64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @le_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @ge_f64(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @int_to_double(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = sitofp i32 %x to double
  %to = getelementptr double, ptr addrspace(1) %out, i32 %tid
  store double %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @trunc_f32(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr float, ptr addrspace(1) %in_x, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %r = call float @llvm.trunc.f32(float %x)
  %to = getelementptr float, ptr addrspace(1) %out, i32 %tid
  store float %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @funnel(ptr addrspace(1) %in_x, ptr addrspace(1) %in_y, ptr addrspace(1) %in_z, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
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

define ptx_kernel void @set_bits(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = call i32 @llvm.ctpop.i32(i32 %x)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @trailing_zeros(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = call i32 @llvm.cttz.i32(i32 %x, i1 false)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @reversed_bits(ptr addrspace(1) %in_x, ptr addrspace(1) %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ax = getelementptr i32, ptr addrspace(1) %in_x, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %r = call i32 @llvm.bitreverse.i32(i32 %x)
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %r, ptr addrspace(1) %to
  ret void
}

define ptx_kernel void @uniform_set_bits(ptr addrspace(1) %out, i32 %x) #0 {
  %r = call i32 @llvm.ctpop.i32(i32 %x)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @uniform_leading_zeros(ptr addrspace(1) %out, i32 %x) #0 {
  %r = call i32 @llvm.ctlz.i32(i32 %x, i1 false)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @uniform_trailing_zeros(ptr addrspace(1) %out, i32 %x) #0 {
  %r = call i32 @llvm.cttz.i32(i32 %x, i1 false)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

define ptx_kernel void @uniform_reversed_bits(ptr addrspace(1) %out, i32 %x) #0 {
  %r = call i32 @llvm.bitreverse.i32(i32 %x)
  store i32 %r, ptr addrspace(1) %out
  ret void
}

attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }
