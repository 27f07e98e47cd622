; Small kernels whose meaning LLVM's language reference defines, compiled by llc for each chip into kernels.<chip>.s:
;     llc -O2 -mtriple=amdgcn-amd-amdhsa -mcpu=<chip> --amdgpu-kernarg-preload-count=0 kernels.ll -o kernels.<chip>.s
; They witness instructions that no other conformance vector executes. One workgroup of 64 lanes, one element a lane.

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare void @llvm.amdgcn.s.barrier()
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare i8 @llvm.amdgcn.raw.ptr.buffer.load.i8(ptr addrspace(8), i32, i32, i32)
declare <2 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v2i32(ptr addrspace(8), i32, i32, i32)
declare void @llvm.amdgcn.raw.ptr.buffer.store.i8(i8, ptr addrspace(8), i32, i32, i32)
declare void @llvm.amdgcn.raw.ptr.buffer.store.i16(i16, ptr addrspace(8), i32, i32, i32)
declare void @llvm.amdgcn.raw.ptr.buffer.store.v2i32(<2 x i32>, ptr addrspace(8), i32, i32, i32)

@bytes_lds = internal addrspace(3) global [64 x i8] undef, align 16
@words_lds = internal addrspace(3) global [64 x <4 x i32>] undef, align 16
@pairs_lds = internal addrspace(3) global [64 x <2 x i32>] undef, align 16

; out8[i] = in8[i] (0 from in8[48] on), out64[i] = in64[i], out16[i] = bits 16 to 31 of in64[i] for i < 50.
define amdgpu_kernel void @buffers(ptr addrspace(1) %in8, ptr addrspace(1) %in64, ptr addrspace(1) %out8, ptr addrspace(1) %out16, ptr addrspace(1) %out64) {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %r8 = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %in8, i16 0, i64 48, i32 159744)
  %r64 = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %in64, i16 0, i64 512, i32 159744)
  %w8 = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %out8, i16 0, i64 64, i32 159744)
  %w16 = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %out16, i16 0, i64 100, i32 159744)
  %w64 = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %out64, i16 0, i64 512, i32 159744)
  %x8 = call i8 @llvm.amdgcn.raw.ptr.buffer.load.i8(ptr addrspace(8) %r8, i32 %tid, i32 0, i32 0)
  call void @llvm.amdgcn.raw.ptr.buffer.store.i8(i8 %x8, ptr addrspace(8) %w8, i32 %tid, i32 0, i32 0)
  %at64 = shl i32 %tid, 3
  %x64 = call <2 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v2i32(ptr addrspace(8) %r64, i32 %at64, i32 0, i32 0)
  call void @llvm.amdgcn.raw.ptr.buffer.store.v2i32(<2 x i32> %x64, ptr addrspace(8) %w64, i32 %at64, i32 0, i32 0)
  %low = extractelement <2 x i32> %x64, i32 0
  %halves = bitcast i32 %low to <2 x i16>
  %half = extractelement <2 x i16> %halves, i32 1
  %at16 = shl i32 %tid, 1
  call void @llvm.amdgcn.raw.ptr.buffer.store.i16(i16 %half, ptr addrspace(8) %w16, i32 %at16, i32 0, i32 0)
  ret void
}

; out[i] = the upper half of in[i]
define amdgpu_kernel void @upper_halves(ptr addrspace(1) %in, ptr addrspace(1) %out) {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr <2 x i16>, ptr addrspace(1) %in, i32 %tid
  %halves = load <2 x i16>, ptr addrspace(1) %from
  %upper = extractelement <2 x i16> %halves, i32 1
  %to = getelementptr i16, ptr addrspace(1) %out, i32 %tid
  store i16 %upper, ptr addrspace(1) %to
  ret void
}

; Each lane leaves a byte, 8 and 16 bytes in shared memory and takes those of lane i ^ 5.
define amdgpu_kernel void @shared(ptr addrspace(1) %in8, ptr addrspace(1) %in128, ptr addrspace(1) %in64, ptr addrspace(1) %out8, ptr addrspace(1) %out128, ptr addrspace(1) %out64) {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %a8 = getelementptr i8, ptr addrspace(1) %in8, i32 %tid
  %x8 = load i8, ptr addrspace(1) %a8
  %a128 = getelementptr <4 x i32>, ptr addrspace(1) %in128, i32 %tid
  %x128 = load <4 x i32>, ptr addrspace(1) %a128, align 16
  %a64 = getelementptr <2 x i32>, ptr addrspace(1) %in64, i32 %tid
  %x64 = load <2 x i32>, ptr addrspace(1) %a64, align 8
  %s8 = getelementptr [64 x i8], ptr addrspace(3) @bytes_lds, i32 0, i32 %tid
  store i8 %x8, ptr addrspace(3) %s8
  %s128 = getelementptr [64 x <4 x i32>], ptr addrspace(3) @words_lds, i32 0, i32 %tid
  store <4 x i32> %x128, ptr addrspace(3) %s128, align 16
  %s64 = getelementptr [64 x <2 x i32>], ptr addrspace(3) @pairs_lds, i32 0, i32 %tid
  store <2 x i32> %x64, ptr addrspace(3) %s64, align 8
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %tid, 5
  %l8 = getelementptr [64 x i8], ptr addrspace(3) @bytes_lds, i32 0, i32 %other
  %y8 = load i8, ptr addrspace(3) %l8
  %l128 = getelementptr [64 x <4 x i32>], ptr addrspace(3) @words_lds, i32 0, i32 %other
  %y128 = load <4 x i32>, ptr addrspace(3) %l128, align 16
  %l64 = getelementptr [64 x <2 x i32>], ptr addrspace(3) @pairs_lds, i32 0, i32 %other
  %y64 = load <2 x i32>, ptr addrspace(3) %l64, align 8
  %b8 = getelementptr i8, ptr addrspace(1) %out8, i32 %tid
  store i8 %y8, ptr addrspace(1) %b8
  %b128 = getelementptr <4 x i32>, ptr addrspace(1) %out128, i32 %tid
  store <4 x i32> %y128, ptr addrspace(1) %b128, align 16
  %b64 = getelementptr <2 x i32>, ptr addrspace(1) %out64, i32 %tid
  store <2 x i32> %y64, ptr addrspace(1) %b64, align 8
  ret void
}

; Numbers that all lanes share: out = [a == b ? c : a, a >= b ? b : c, a >> 5, a ^ b, min unsigned(a, b),
; high half of a * b, low and high half of wide1 - wide2, a != b ? b : c, a <= b (unsigned) ? a : c, a | b, ~a]
define amdgpu_kernel void @scalars(ptr addrspace(1) %out, i32 %a, i32 %b, i32 %c, i32 %pad, i64 %wide1, i64 %wide2) {
  %eq = icmp eq i32 %a, %b
  %o0 = select i1 %eq, i32 %c, i32 %a
  %ge = icmp sge i32 %a, %b
  %o1 = select i1 %ge, i32 %b, i32 %c
  %o2 = lshr i32 %a, 5
  %o3 = xor i32 %a, %b
  %less = icmp ult i32 %a, %b
  %o4 = select i1 %less, i32 %a, i32 %b
  %za = zext i32 %a to i64
  %zb = zext i32 %b to i64
  %product = mul i64 %za, %zb
  %top = lshr i64 %product, 32
  %o5 = trunc i64 %top to i32
  %difference = sub i64 %wide1, %wide2
  %o6 = trunc i64 %difference to i32
  %dtop = lshr i64 %difference, 32
  %o7 = trunc i64 %dtop to i32
  %ne = icmp ne i32 %a, %b
  %o8 = select i1 %ne, i32 %b, i32 %c
  %le = icmp ule i32 %a, %b
  %o9 = select i1 %le, i32 %a, i32 %c
  %o10 = or i32 %a, %b
  %o11 = xor i32 %a, -1
  store i32 %o0, ptr addrspace(1) %out
  %p1 = getelementptr i32, ptr addrspace(1) %out, i32 1
  store i32 %o1, ptr addrspace(1) %p1
  %p2 = getelementptr i32, ptr addrspace(1) %out, i32 2
  store i32 %o2, ptr addrspace(1) %p2
  %p3 = getelementptr i32, ptr addrspace(1) %out, i32 3
  store i32 %o3, ptr addrspace(1) %p3
  %p4 = getelementptr i32, ptr addrspace(1) %out, i32 4
  store i32 %o4, ptr addrspace(1) %p4
  %p5 = getelementptr i32, ptr addrspace(1) %out, i32 5
  store i32 %o5, ptr addrspace(1) %p5
  %p6 = getelementptr i32, ptr addrspace(1) %out, i32 6
  store i32 %o6, ptr addrspace(1) %p6
  %p7 = getelementptr i32, ptr addrspace(1) %out, i32 7
  store i32 %o7, ptr addrspace(1) %p7
  %p8 = getelementptr i32, ptr addrspace(1) %out, i32 8
  store i32 %o8, ptr addrspace(1) %p8
  %p9 = getelementptr i32, ptr addrspace(1) %out, i32 9
  store i32 %o9, ptr addrspace(1) %p9
  %p10 = getelementptr i32, ptr addrspace(1) %out, i32 10
  store i32 %o10, ptr addrspace(1) %p10
  %p11 = getelementptr i32, ptr addrspace(1) %out, i32 11
  store i32 %o11, ptr addrspace(1) %p11
  ret void
}

; Per lane with x = in[i], y = in[64 + i], z = in[128 + i]: eight results, result k at out[64 k + i].
define amdgpu_kernel void @vectors(ptr addrspace(1) %in, ptr addrspace(1) %out, ptr addrspace(1) %in64, ptr addrspace(1) %constants) {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr i32, ptr addrspace(1) %in, i32 %tid
  %x = load i32, ptr addrspace(1) %ax
  %ay = getelementptr i32, ptr addrspace(1) %ax, i32 64
  %y = load i32, ptr addrspace(1) %ay
  %az = getelementptr i32, ptr addrspace(1) %ax, i32 128
  %z = load i32, ptr addrspace(1) %az
  ; 0: bits 5 to 14 of x
  %s0 = lshr i32 %x, 5
  %o0 = and i32 %s0, 1023
  ; 1: the low 24 bits of x times those of y, plus z
  %x24 = and i32 %x, 16777215
  %y24 = and i32 %y, 16777215
  %m1 = mul i32 %x24, %y24
  %o1 = add i32 %m1, %z
  ; 2: x and y, or z
  %n2 = and i32 %x, %y
  %o2 = or i32 %n2, %z
  ; 3: the smaller of two 64-bit numbers decides
  %l0 = getelementptr i64, ptr addrspace(1) %in64, i32 %tid
  %w0 = load i64, ptr addrspace(1) %l0
  %l1 = getelementptr i64, ptr addrspace(1) %l0, i32 64
  %w1 = load i64, ptr addrspace(1) %l1
  %g3 = icmp sgt i64 %w0, %w1
  %o3 = select i1 %g3, i32 %x, i32 %y
  ; 4: not a number
  %f4 = bitcast i32 %x to float
  %u4 = fcmp uno float %f4, 0.0
  %o4 = select i1 %u4, i32 1, i32 %z
  ; 5: the first lane's z
  %o5 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %z)
  ; 6: exclusive or; 7: a shift by another lane-wise number
  %o6 = xor i32 %x, %y
  %n7 = and i32 %y, 31
  %o7 = shl i32 %x, %n7
  store i64 7, ptr addrspace(1) %constants
  %q0 = getelementptr i32, ptr addrspace(1) %out, i32 %tid
  store i32 %o0, ptr addrspace(1) %q0
  %q1 = getelementptr i32, ptr addrspace(1) %q0, i32 64
  store i32 %o1, ptr addrspace(1) %q1
  %q2 = getelementptr i32, ptr addrspace(1) %q0, i32 128
  store i32 %o2, ptr addrspace(1) %q2
  %q3 = getelementptr i32, ptr addrspace(1) %q0, i32 192
  store i32 %o3, ptr addrspace(1) %q3
  %q4 = getelementptr i32, ptr addrspace(1) %q0, i32 256
  store i32 %o4, ptr addrspace(1) %q4
  %q5 = getelementptr i32, ptr addrspace(1) %q0, i32 320
  store i32 %o5, ptr addrspace(1) %q5
  %q6 = getelementptr i32, ptr addrspace(1) %q0, i32 384
  store i32 %o6, ptr addrspace(1) %q6
  %q7 = getelementptr i32, ptr addrspace(1) %q0, i32 448
  store i32 %o7, ptr addrspace(1) %q7
  ret void
}

; Per lane: (a, b) -> (b, a + b), `count` times, from in[i], in[64 + i]; out[i] = a, out[64 + i] = b.
define amdgpu_kernel void @fibonacci(ptr addrspace(1) %in, ptr addrspace(1) %out, i32 %count) {
entry:
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %a0 = getelementptr i64, ptr addrspace(1) %in, i32 %tid
  %first = load i64, ptr addrspace(1) %a0
  %a1 = getelementptr i64, ptr addrspace(1) %a0, i32 64
  %second = load i64, ptr addrspace(1) %a1
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %a = phi i64 [ %first, %entry ], [ %b, %loop ]
  %b = phi i64 [ %second, %entry ], [ %sum, %loop ]
  %sum = add i64 %a, %b
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %count
  br i1 %more, label %loop, label %exit
exit:
  %o0 = getelementptr i64, ptr addrspace(1) %out, i32 %tid
  store i64 %b, ptr addrspace(1) %o0
  %o1 = getelementptr i64, ptr addrspace(1) %o0, i32 64
  store i64 %sum, ptr addrspace(1) %o1
  ret void
}

; Rounding to narrower floats: out16[i] as f16, outb[2 i], outb[2 i + 1] as bf16 of in[i], in[64 + i].
define amdgpu_kernel void @rounding(ptr addrspace(1) %in, ptr addrspace(1) %out16, ptr addrspace(1) %outb) {
  %tid = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %ax = getelementptr float, ptr addrspace(1) %in, i32 %tid
  %x = load float, ptr addrspace(1) %ax
  %ay = getelementptr float, ptr addrspace(1) %ax, i32 64
  %y = load float, ptr addrspace(1) %ay
  %h = fptrunc float %x to half
  %a16 = getelementptr half, ptr addrspace(1) %out16, i32 %tid
  store half %h, ptr addrspace(1) %a16
  %v0 = insertelement <2 x float> poison, float %x, i32 0
  %v1 = insertelement <2 x float> %v0, float %y, i32 1
  %b = fptrunc <2 x float> %v1 to <2 x bfloat>
  %ab = getelementptr <2 x bfloat>, ptr addrspace(1) %outb, i32 %tid
  store <2 x bfloat> %b, ptr addrspace(1) %ab
  ret void
}

; out[k] = (a << k + 1) + b[k] for k < 4, out[4] = bits 6 to 10 of a.
define amdgpu_kernel void @fields(ptr addrspace(1) %out, i32 %a, i32 %b0, i32 %b1, i32 %b2, i32 %b3) {
  %s1 = shl i32 %a, 1
  %t1 = add i32 %s1, %b0
  %s2 = shl i32 %a, 2
  %t2 = add i32 %s2, %b1
  %s3 = shl i32 %a, 3
  %t3 = add i32 %s3, %b2
  %s4 = shl i32 %a, 4
  %t4 = add i32 %s4, %b3
  %down = lshr i32 %a, 6
  %field = and i32 %down, 31
  store i32 %t1, ptr addrspace(1) %out
  %p2 = getelementptr i32, ptr addrspace(1) %out, i32 1
  store i32 %t2, ptr addrspace(1) %p2
  %p3 = getelementptr i32, ptr addrspace(1) %out, i32 2
  store i32 %t3, ptr addrspace(1) %p3
  %p4 = getelementptr i32, ptr addrspace(1) %out, i32 3
  store i32 %t4, ptr addrspace(1) %p4
  %p5 = getelementptr i32, ptr addrspace(1) %out, i32 4
  store i32 %field, ptr addrspace(1) %p5
  ret void
}
