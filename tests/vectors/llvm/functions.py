"""Small functions whose meaning LLVM's language reference defines, as IR and as NumPy.

    python functions.py <folder with llc>

writes `functions.ll` and `functions.nvptx.ll`, one kernel per function, and what llc makes of them for each chip, without
lines of comments: `functions.<chip>.s` and `functions.sm_90.ptx`. The kernels witness instructions that no other conformance vector executes.

A function of lanes has a kernel `name(x, y, z, out)`: out[i] = f(x[i], y[i], z[i]) for 64 lanes of one workgroup. A function
of numbers that all lanes share has `name(out, x, y)`: out[0] = f(x, y), arguments by value.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

IR = {
    "i32": "i32",
    "i64": "i64",
    "u32": "i32",
    "u64": "i64",
    "f16": "half",
    "f32": "float",
    "f64": "double",
    "2f32": "<2 x float>",
}
"""Type of a column → its spelling in IR; `2f32` are two neighbours."""
ATTRIBUTES = 'attributes #0 = { "amdgpu-implicitarg-num-bytes"="0" }\n'
"""No hidden arguments: less metadata."""
AMD = ("gfx90a", "gfx942", "gfx950")
NVPTX = ("sm_90",)


@dataclass(frozen=True)
class Function:
    """`lines` compute %r from %x, %y, %z (and %tid); `within` and `whole` limit the inputs, `ulp` the error."""

    name: str
    given: str
    result: str
    lines: str
    meaning: Callable[..., Any]
    declares: str = ""
    within: tuple[float, float] | None = None
    whole: bool = False
    ulp: float = 0
    chips: tuple[str, ...] = (*AMD, *NVPTX)
    uniform: bool = False


def _field(name: str, place: int, bits: int, signed: bool) -> Function:
    """An integer of `bits` in a word, the `place`-th from below, as a float."""
    lines = f"%m = lshr i32 %x, {bits * place}\n%n = trunc i32 %m to i{bits}\n%r = {'si' if signed else 'ui'}tofp i{bits} %n to float"
    kind = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    return Function(name, "i32", "f32", lines, lambda x: x.view(kind)[place :: 32 // bits].astype(np.float32), chips=AMD)


def _with_lane(name: str, control: int, lane: Callable[..., Any], operation: str, meaning: Callable[..., Any], more: str = "") -> Function:
    """`operation` of %x and %s, which is y of another lane: DPP control word, lane number."""
    lines = (
        f"%b = bitcast float %y to i32\n%m = call i32 @llvm.amdgcn.update.dpp.i32(i32 poison, i32 %b, i32 {control}, i32 15, i32 15, i1 true)\n"
        f"%s = bitcast i32 %m to float\n%r = {operation}"
    )
    declares = "\n".join(filter(None, ("declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)", more)))
    return Function(name, "f32 f32", "f32", lines, lambda x, y: meaning(_lane(y, lane), x), declares, within=(-100.0, 100.0), chips=AMD)


def _compare(name: str, type_: str, condition: str, meaning: Callable[..., Any]) -> Function:
    kind = "fcmp" if type_[0] == "f" else "icmp"
    lines = f"%c = {kind} {condition} {IR[type_]} %x, %y\n%r = zext i1 %c to i32"
    return Function(f"{name}_{type_}", f"{type_} {type_}", "u32", lines, lambda x, y: meaning(x, y))


def _call(name: str, intrinsic: str, type_: str, count: int, meaning: Callable[..., Any], **more: Any) -> Function:
    ir = IR[type_]
    arguments = ", ".join(f"{ir} %{v}" for v in "xyz"[:count])
    return Function(
        name, " ".join([type_] * count), type_, f"%r = call {ir} @{intrinsic}({arguments})", meaning,
        f"declare {ir} @{intrinsic}({', '.join([ir] * count)})", **more,
    )  # fmt: skip


def _signed24(x: Any) -> Any:
    return (x << 8) >> 8


def _leading_zeros(x: Any) -> Any:
    return np.array([32 - int(v).bit_length() for v in x], np.uint32)


def _bits(name: str, intrinsic: str, meaning: Callable[[str], int], more: str = "", **rest: Any) -> Function:
    """A function of the 32 binary digits, the highest first. `more`: what the intrinsic takes besides."""
    return Function(
        name, "u32", "u32", f"%r = call i32 @llvm.{intrinsic}.i32(i32 %x{more and ', i1 ' + more})",
        lambda x: np.array([meaning(f"{int(v):032b}") for v in x], np.uint32),
        f"declare i32 @llvm.{intrinsic}.i32(i32{more and ', i1'})", **rest,
    )  # fmt: skip


def _trailing(digits: str) -> int:
    return 32 - len(digits.rstrip("0"))


def _lane(x: Any, of: Callable[[int], int]) -> Any:
    return x[[of(i) for i in range(64)]]


FUNCTIONS = (
    Function("ashr_i64", "i64 i64", "i64", "%s = and i64 %y, 63\n%r = ashr i64 %x, %s", lambda x, y: x >> (y & 63)),
    Function("lshr_i64", "u64 u64", "u64", "%s = and i64 %y, 63\n%r = lshr i64 %x, %s", lambda x, y: x >> (y & np.uint64(63))),
    Function("field", "i32", "i32", "%s = shl i32 %x, 12\n%r = ashr i32 %s, 22", lambda x: (x << 12) >> 22),
    Function("sub_i64", "i64 i64", "i64", "%r = sub i64 %x, %y", lambda x, y: x - y),
    Function("add3", "i32 i32 i32", "i32", "%s = add i32 %x, %y\n%r = add i32 %s, %z", lambda x, y, z: x + y + z),
    Function(
        "mul24", "i32 i32", "i32",
        "%a = shl i32 %x, 8\n%b = ashr i32 %a, 8\n%c = shl i32 %y, 8\n%d = ashr i32 %c, 8\n%r = mul i32 %b, %d",
        lambda x, y: _signed24(x) * _signed24(y),
    ),
    _call("smin_i32", "llvm.smin.i32", "i32", 2, np.minimum),
    _call("smax_i32", "llvm.smax.i32", "i32", 2, np.maximum),
    _call("umin_i32", "llvm.umin.i32", "u32", 2, np.minimum),
    _call("smax_i64", "llvm.smax.i64", "i64", 2, np.maximum),
    Function(
        "leading_zeros", "u32", "u32", "%h = lshr i32 %x, 5\n%r = call i32 @llvm.ctlz.i32(i32 %h, i1 false)",
        lambda x: _leading_zeros(x >> 5), "declare i32 @llvm.ctlz.i32(i32, i1)",
    ),
    Function("remainder", "u32 u32", "u32", "%d = or i32 %y, 1\n%r = urem i32 %x, %d", lambda x, y: x % (y | 1)),
    _compare("ge", "i32", "sge", lambda x, y: x >= y),
    _compare("le", "i32", "sle", lambda x, y: x <= y),
    _compare("le", "u32", "ule", lambda x, y: x <= y),
    _compare("eq", "u64", "eq", lambda x, y: x == y),
    _compare("lt", "u64", "ult", lambda x, y: x < y),
    _compare("lt", "i64", "slt", lambda x, y: x < y),
    _compare("eq", "f32", "oeq", lambda x, y: x == y),
    _compare("ge", "f32", "oge", lambda x, y: x >= y),
    _compare("ne", "f32", "une", lambda x, y: x != y),
    _compare("gt", "f64", "ogt", lambda x, y: x > y),
    _compare("le", "f64", "ole", lambda x, y: x <= y),
    _compare("ne", "f64", "une", lambda x, y: x != y),
    _compare("unordered", "f64", "uno", lambda x, y: np.isnan(x) | np.isnan(y)),
    Function("half_to_float", "f16", "f32", "%r = fpext half %x to float", lambda x: x.astype(np.float32)),
    Function(
        "upper_half_to_float", "u32", "f32",
        "%p = bitcast i32 %x to <2 x half>\n%h = extractelement <2 x half> %p, i32 1\n%r = fpext half %h to float",
        lambda x: x.view(np.float16)[1::2].astype(np.float32),
    ),
    Function("float_to_double", "f32", "f64", "%r = fpext float %x to double", lambda x: x.astype(np.float64)),
    Function("double_to_float", "f64", "f32", "%r = fptrunc double %x to float", lambda x: x.astype(np.float32)),
    Function("int_to_float", "i32", "f32", "%r = sitofp i32 %x to float", lambda x: x.astype(np.float32)),
    Function("unsigned_to_double", "u32", "f64", "%r = uitofp i32 %x to double", lambda x: x.astype(np.float64), chips=AMD),
    *(_field(f"byte_{i}_to_float", i, 8, False) for i in range(4)),
    _field("signed_byte_to_float", 2, 8, True), _field("signed_half_to_float", 1, 16, True), _field("unsigned_half_to_float", 1, 16, False),
    Function(
        "double_to_int", "f64", "i32", "%r = fptosi double %x to i32", lambda x: x.astype(np.int32), within=(-(2.0**31), 2.0**31)
    ),
    Function(
        "double_to_unsigned", "f64", "u32", "%r = fptoui double %x to i32", lambda x: x.astype(np.uint32), within=(0, 2.0**32)
    ),
    _call("floor_f64", "llvm.floor.f64", "f64", 1, np.floor),
    _call("trunc_f64", "llvm.trunc.f64", "f64", 1, np.trunc),
    _call("fma_f64", "llvm.fma.f64", "f64", 3, lambda x, y, z: x * y + z, within=(-1e6, 1e6), whole=True),
    Function(
        "fma_f64_kept", "f64 f64 f64", "f64",
        "%f = call double @llvm.fma.f64(double %x, double %y, double %z)\n%g = fmul double %z, %y\n%r = fadd double %f, %g",
        lambda x, y, z: x * y + z + z * y, "declare double @llvm.fma.f64(double, double, double)", within=(-1e6, 1e6), whole=True,
    ),
    Function("sub_f64", "f64 f64", "f64", "%r = fsub double %x, %y", np.subtract),
    Function("add_f64", "f64 f64", "f64", "%r = fadd double %x, %y", np.add),
    _call("max_f64", "llvm.maxnum.f64", "f64", 2, np.fmax),
    _call("min_f32", "llvm.minnum.f32", "f32", 2, np.fmin),
    Function(
        "ldexp_f64", "f64 i32", "f64", "%e = ashr i32 %y, 24\n%r = call double @llvm.ldexp.f64.i32(double %x, i32 %e)",
        lambda x, y: np.ldexp(x, y >> 24), "declare double @llvm.ldexp.f64.i32(double, i32)", chips=AMD,
    ),
    _call("min_f64", "llvm.minnum.f64", "f64", 2, np.fmin),
    _call("abs_f64", "llvm.fabs.f64", "f64", 1, np.abs),
    _call("square_root", "llvm.sqrt.f32", "f32", 1, np.sqrt, within=(0, 1e30), chips=NVPTX),
    Function("add_pairs", "2f32 2f32", "2f32", "%r = fadd <2 x float> %x, %y", np.add),
    Function("div_f32", "f32 f32", "f32", "%r = fdiv float %x, %y", np.divide, chips=NVPTX),
    Function("div_f64", "f64 f64", "f64", "%r = fdiv double %x, %y", np.divide, chips=NVPTX),
    _call("sqrt", "llvm.amdgcn.sqrt.f32", "f32", 1, np.sqrt, within=(1e-30, 1e30), ulp=1, chips=AMD),
    _call("sine", "llvm.amdgcn.sin.f32", "f32", 1, lambda x: np.sin(2 * np.pi * x.astype(np.float64)), within=(0.01, 0.49), ulp=64, chips=AMD),
    _call("cosine", "llvm.amdgcn.cos.f32", "f32", 1, lambda x: np.cos(2 * np.pi * x.astype(np.float64)), within=(-0.24, 0.24), ulp=64, chips=AMD),
    _call("sine", "llvm.nvvm.sin.approx.f", "f32", 1, lambda x: np.sin(x.astype(np.float64)), within=(0.1, 3.0), ulp=64, chips=NVPTX),
    _call("cosine", "llvm.nvvm.cos.approx.f", "f32", 1, lambda x: np.cos(x.astype(np.float64)), within=(-1.4, 1.4), ulp=64, chips=NVPTX),
    _call("reciprocal", "llvm.nvvm.rcp.approx.ftz.f", "f32", 1, lambda x: 1 / x.astype(np.float64), within=(0.5, 1e30), ulp=8, chips=NVPTX),
    _call("root", "llvm.nvvm.sqrt.approx.f", "f32", 1, lambda x: np.sqrt(x.astype(np.float64)), within=(0.5, 1e30), ulp=8, chips=NVPTX),
    _call("reciprocal_root", "llvm.nvvm.rsqrt.approx.f", "f32", 1, lambda x: 1 / np.sqrt(x.astype(np.float64)), within=(0.5, 1e30), ulp=8, chips=NVPTX),
    _call("log2", "llvm.nvvm.lg2.approx.f", "f32", 1, lambda x: np.log2(x.astype(np.float64)), within=(2.0, 1e30), ulp=8, chips=NVPTX),
    Function(
        "swizzled", "u32", "u32", "%r = call i32 @llvm.amdgcn.ds.swizzle(i32 %x, i32 6175)", lambda x: _lane(x, lambda i: i ^ 6),
        "declare i32 @llvm.amdgcn.ds.swizzle(i32, i32)", chips=AMD,
    ),
    Function(
        "permuted", "u32 u32", "u32",
        "%l = and i32 %y, 63\n%a = shl i32 %l, 2\n%r = call i32 @llvm.amdgcn.ds.bpermute(i32 %a, i32 %x)",
        lambda x, y: x[y & 63], "declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)", chips=AMD,
    ),
    Function(
        "one_lane_written", "u32 u32", "u32",
        "%s = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %x)\n%r = call i32 @llvm.amdgcn.writelane.i32(i32 %s, i32 5, i32 %y)",
        lambda x, y: np.where(np.arange(64) == 5, x[0], y),
        "declare i32 @llvm.amdgcn.writelane.i32(i32, i32, i32)\ndeclare i32 @llvm.amdgcn.readfirstlane.i32(i32)", chips=AMD,
    ),
    Function(
        "through_private_words", "u32 u32", "u32",
        "%m = alloca [64 x i32], align 4, addrspace(5)\n%i = and i32 %y, 63\n"
        "%p = getelementptr [64 x i32], ptr addrspace(5) %m, i32 0, i32 %i\nstore volatile i32 %x, ptr addrspace(5) %p\n"
        "%r = load volatile i32, ptr addrspace(5) %p",
        lambda x, y: x, chips=AMD,
    ),
    Function(
        "through_private_pairs",
        "u32 u32",
        "u32",
        "%m = alloca [32 x <2 x i32>], align 8, addrspace(5)\n%i = and i32 %y, 31\n"
        "%p = getelementptr [32 x <2 x i32>], ptr addrspace(5) %m, i32 0, i32 %i\n"
        "%v = insertelement <2 x i32> <i32 1, i32 2>, i32 %x, i32 1\n"
        "store volatile <2 x i32> %v, ptr addrspace(5) %p\n%w = load volatile <2 x i32>, ptr addrspace(5) %p\n"
        "%r = extractelement <2 x i32> %w, i32 1",
        lambda x, y: x,
        chips=AMD,
    ),
    Function(
        "through_private_vectors", "u32 u32", "u32",
        "%m = alloca [16 x <4 x i32>], align 16, addrspace(5)\n%i = and i32 %y, 15\n"
        "%p = getelementptr [16 x <4 x i32>], ptr addrspace(5) %m, i32 0, i32 %i\n"
        "%v = insertelement <4 x i32> <i32 1, i32 2, i32 3, i32 4>, i32 %x, i32 2\n"
        "store volatile <4 x i32> %v, ptr addrspace(5) %p\n%w = load volatile <4 x i32>, ptr addrspace(5) %p\n"
        "%r = extractelement <4 x i32> %w, i32 2",
        lambda x, y: x, chips=AMD,
    ),
    Function(
        "shared_half", "u32", "u32",
        "%h = trunc i32 %x to i16\n%p = getelementptr [64 x i16], ptr addrspace(3) @halves, i32 0, i32 %tid\n"
        "store i16 %h, ptr addrspace(3) %p\nfence syncscope(\"workgroup\") release\ncall void @llvm.amdgcn.s.barrier()\n"
        "fence syncscope(\"workgroup\") acquire\n%o = xor i32 %tid, 9\n"
        "%q = getelementptr [64 x i16], ptr addrspace(3) @halves, i32 0, i32 %o\n%l = load i16, ptr addrspace(3) %q\n"
        "%r = zext i16 %l to i32",
        lambda x: _lane(x, lambda i: i ^ 9) & 0xFFFF,
        "@halves = internal addrspace(3) global [64 x i16] undef, align 2\ndeclare void @llvm.amdgcn.s.barrier()", chips=AMD,
    ),
    Function("uniform_ashr", "i32 i32", "i32", "%s = and i32 %y, 31\n%r = ashr i32 %x, %s", lambda x, y: x >> (y & 31), uniform=True),
    Function("uniform_lshr64", "u64 u64", "u64", "%s = and i64 %y, 63\n%r = lshr i64 %x, %s", lambda x, y: x >> (y & np.uint64(63)), uniform=True),
    _call("uniform_max", "llvm.smax.i32", "i32", 2, np.maximum, uniform=True),
    _call("uniform_min", "llvm.smin.i32", "i32", 2, np.minimum, uniform=True),
    Function("uniform_le", "i32 i32", "i32", "%c = icmp sle i32 %x, %y\n%r = select i1 %c, i32 %x, i32 7", lambda x, y: np.where(x <= y, x, 7), uniform=True),
    Function(
        "uniform_branch", "i32 i32", "i32",
        "%c = icmp sgt i32 %x, %y\nbr i1 %c, label %more, label %less\nmore:\nstore volatile i32 1, ptr addrspace(1) %out\n"
        "br label %both\nless:\n%n = mul i32 %y, 3\nstore volatile i32 %n, ptr addrspace(1) %out\nbr label %both\nboth:\n"
        "%r = phi i32 [ %x, %more ], [ %n, %less ]",
        lambda x, y: np.where(x > y, x, y * 3), uniform=True,
    ),
    Function("uniform_ne64", "u64 u64", "u64", "%c = icmp ne i64 %x, %y\n%r = select i1 %c, i64 %x, i64 7", lambda x, y: np.where(x != y, x, np.uint64(7)), uniform=True),
    _compare("lt", "f64", "olt", lambda x, y: x < y),
    _compare("eq", "f64", "oeq", lambda x, y: x == y),
    Function(
        "min3_u32", "u32 u32 u32", "u32",
        "%m = call i32 @llvm.umin.i32(i32 %x, i32 %y)\n%r = call i32 @llvm.umin.i32(i32 %m, i32 %z)",
        lambda x, y, z: np.minimum(np.minimum(x, y), z), chips=AMD,
    ),
    Function(
        "min3_i32", "i32 i32 i32", "i32",
        "%m = call i32 @llvm.smin.i32(i32 %x, i32 %y)\n%r = call i32 @llvm.smin.i32(i32 %m, i32 %z)",
        lambda x, y, z: np.minimum(np.minimum(x, y), z), chips=AMD,
    ),
    Function(
        "max3_i32", "i32 i32 i32", "i32",
        "%m = call i32 @llvm.smax.i32(i32 %x, i32 %y)\n%r = call i32 @llvm.smax.i32(i32 %m, i32 %z)",
        lambda x, y, z: np.maximum(np.maximum(x, y), z), chips=AMD,
    ),
    Function(
        "mad_i24", "i32 i32 i32", "i32",
        "%a = shl i32 %x, 8\n%b = ashr i32 %a, 8\n%c = shl i32 %y, 8\n%d = ashr i32 %c, 8\n"
        "%m = mul i32 %b, %d\n%r = add i32 %m, %z",
        lambda x, y, z: (x << 8 >> 8) * (y << 8 >> 8) + z, chips=AMD,
    ),
    Function(
        "fma_of_negatives", "2f32 2f32 2f32", "2f32",
        "%m = fneg <2 x float> %x\n%o = fneg <2 x float> %z\n"
        "%r = call <2 x float> @llvm.fma.v2f32(<2 x float> %m, <2 x float> %y, <2 x float> %o)",
        lambda x, y, z: -x * y - z, "declare <2 x float> @llvm.fma.v2f32(<2 x float>, <2 x float>, <2 x float>)",
        within=(-1000.0, 1000.0), whole=True, chips=AMD,
    ),
    Function(
        "fma_of_negative", "f32 f32 f32", "f32",
        "%m = fneg float %x\n%r = call float @llvm.fma.f32(float %m, float %y, float %z)",
        lambda x, y, z: z - x * y, "declare float @llvm.fma.f32(float, float, float)", within=(-1000.0, 1000.0), whole=True,
        chips=AMD,
    ),
    Function(
        "min3_f32", "f32 f32 f32", "f32",
        "%m = call float @llvm.minnum.f32(float %x, float %y)\n%r = call float @llvm.minnum.f32(float %m, float %z)",
        lambda x, y, z: np.fmin(np.fmin(x, y), z), "declare float @llvm.minnum.f32(float, float)", chips=AMD,
    ),
    _with_lane("max_of_neighbours", 0xB1, lambda i: i ^ 1, "call nnan float @llvm.maxnum.f32(float %s, float %x)", np.fmax, "declare float @llvm.maxnum.f32(float, float)"),
    _with_lane("min_of_mirrored", 0x140, lambda i: i ^ 15, "call nnan float @llvm.minnum.f32(float %s, float %x)", np.fmin),
    _with_lane("product_of_halves", 0x141, lambda i: i ^ 7, "fmul float %s, %x", np.multiply),
    Function("quotient_f64", "f64 f64", "f64", "%r = fdiv double %x, %y", np.divide, chips=AMD),
    Function("neg_f64", "f64", "f64", "%r = fneg double %x", np.negative),
    _call("root_f64", "llvm.sqrt.f64", "f64", 1, np.sqrt),
    _compare("ne", "u64", "ne", lambda x, y: x != y),
    _compare("le", "u64", "ule", lambda x, y: x <= y),
    _compare("gt", "u64", "ugt", lambda x, y: x > y),
    _compare("ge", "u64", "uge", lambda x, y: x >= y),
    _compare("le", "i64", "sle", lambda x, y: x <= y),
    _compare("ge", "i64", "sge", lambda x, y: x >= y),
    _compare("le", "f32", "ole", lambda x, y: x <= y),
    _compare("ge", "f64", "oge", lambda x, y: x >= y),
    Function("int_to_double", "i32", "f64", "%r = sitofp i32 %x to double", lambda x: x.astype(np.float64)),
    _call("trunc_f32", "llvm.trunc.f32", "f32", 1, np.trunc),
    _call(
        "funnel", "llvm.fshr.i32", "u32", 3,
        lambda x, y, z: ((x.astype(np.uint64) << np.uint64(32) | y) >> (z & 31).astype(np.uint64)).astype(np.uint32),
    ),
    _bits("set_bits", "ctpop", lambda d: d.count("1")),
    _bits("trailing_zeros", "cttz", _trailing, "false"),
    _bits("reversed_bits", "bitreverse", lambda d: int(d[::-1], 2)),
    _bits("uniform_set_bits", "ctpop", lambda d: d.count("1"), uniform=True),
    _bits("uniform_leading_zeros", "ctlz", lambda d: 32 - len(d.lstrip("0")), "false", uniform=True),
    _bits("uniform_trailing_zeros", "cttz", _trailing, "false", uniform=True),
    _bits("uniform_reversed_bits", "bitreverse", lambda d: int(d[::-1], 2), uniform=True),
)  # fmt: skip


def of(chip: str) -> list[Function]:
    return [f for f in FUNCTIONS if chip in f.chips]


def kernel(f: Function, nvptx: bool) -> str:
    kind = "ptx_kernel" if nvptx else "amdgpu_kernel"
    body = "\n".join(f"  {line}" for line in f.lines.splitlines())
    given = [IR[t] for t in f.given.split()]
    result = IR[f.result]
    if f.uniform:
        values = ", ".join(f"{t} %{v}" for t, v in zip(given, "xyz"))
        return f"define {kind} void @{f.name}(ptr addrspace(1) %out, {values}) #0 {{\n{body}\n  store {result} %r, ptr addrspace(1) %out\n  ret void\n}}\n"
    tid = (
        "call i32 @llvm.nvvm.read.ptx.sreg.tid.x()"
        if nvptx
        else "call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()"
    )
    loads = "".join(
        f"  %a{v} = getelementptr {t}, ptr addrspace(1) %in_{v}, i32 %tid\n  %{v} = load {t}, ptr addrspace(1) %a{v}\n"
        for t, v in zip(given, "xyz")
    )
    return (
        f"define {kind} void @{f.name}({', '.join(f'ptr addrspace(1) %in_{v}' for v in 'xyz'[: len(given)])}, ptr addrspace(1) %out) #0 {{\n"
        f"  %tid = {tid}\n{loads}{body}\n  %to = getelementptr {result}, ptr addrspace(1) %out, i32 %tid\n"
        f"  store {result} %r, ptr addrspace(1) %to\n  ret void\n}}\n"
    )


def module(nvptx: bool) -> str:
    chips = NVPTX if nvptx else AMD
    chosen = [f for f in FUNCTIONS if set(chips) & set(f.chips)]
    declared = {line for f in chosen for line in f.declares.splitlines()}
    declared.add(
        "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()" if nvptx else "declare i32 @llvm.amdgcn.workitem.id.x()"
    )
    return "; Written by functions.py.\n\n" + "\n".join(
        [*sorted(declared), "", *(kernel(f, nvptx) for f in chosen), ATTRIBUTES]
    )


def main(llvm: str) -> None:
    here = Path(__file__).parent
    for nvptx, chips in ((False, AMD), (True, NVPTX)):
        source = here / ("functions.nvptx.ll" if nvptx else "functions.ll")
        source.write_text(module(nvptx))
        for chip in chips:
            triple = "nvptx64-nvidia-cuda" if nvptx else "amdgcn-amd-amdhsa"
            more = ["-mattr=+ptx78"] if nvptx else ["--amdgpu-kernarg-preload-count=0"]
            out = here / f"functions.{chip}.{'ptx' if nvptx else 's'}"
            command = [f"{llvm}/llc", "-O2", f"-mtriple={triple}", f"-mcpu={chip}", *more, str(source), "-o", "-"]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            out.write_text("".join(line for line in text.splitlines(True) if line[0] != ";"))


if __name__ == "__main__":
    main(sys.argv[1])
