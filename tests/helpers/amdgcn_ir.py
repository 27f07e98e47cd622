"""LLVM IR kernels `out[i] = f(a[i], b[i])` for many operations and types, and what plain Python says they compute.

`llc` turns them into text that is not ours, for every target: it covers what a compiler emits for the operation, such
as division sequences, expansions of 64-bit and 8-bit arithmetic, half-precision mixes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

NUMPY = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "half": np.float16,
    "float": np.float32,
    "double": np.float64,
    "bfloat": ml_dtypes.bfloat16,
}
SUFFIX = {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16"}
WIDTH = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
COUNT = 128


@dataclass(frozen=True)
class Case:
    """One kernel: its name, body in IR (from %a, %b to %r), types and the intrinsics it declares."""

    name: str
    body: str
    a: str
    b: str
    out: str
    declares: str = ""

    @property
    def label(self) -> str:
        return "k_" + self.name.replace(".", "_")

    def function(self) -> str:
        return f"""
define amdgpu_kernel void @{self.label}(ptr addrspace(1) noalias %pa, ptr addrspace(1) noalias %pb,
                                       ptr addrspace(1) noalias %po) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %w = call i32 @llvm.amdgcn.workgroup.id.x()
  %w64 = shl i32 %w, 6
  %i = or i32 %t, %w64
  %i64 = zext i32 %i to i64
  %qa = getelementptr {self.a}, ptr addrspace(1) %pa, i64 %i64
  %qb = getelementptr {self.b}, ptr addrspace(1) %pb, i64 %i64
  %qo = getelementptr {self.out}, ptr addrspace(1) %po, i64 %i64
  %a = load {self.a}, ptr addrspace(1) %qa
  %b = load {self.b}, ptr addrspace(1) %qb
{self.body}
  store {self.out} %r, ptr addrspace(1) %qo
  ret void
}}
"""


def module(cases: list[Case]) -> str:
    """All kernels in one module, so that llc starts once per target."""
    declares = sorted({c.declares for c in cases if c.declares})
    return "\n".join(
        [
            'target triple = "amdgcn-amd-amdhsa"',
            "declare i32 @llvm.amdgcn.workitem.id.x()",
            "declare i32 @llvm.amdgcn.workgroup.id.x()",
            *declares,
            *[c.function() for c in cases],
            'attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }',
        ]
    )


def _call(name: str, intrinsic: str, t: str, out: str, args: list[str], kinds: list[str], b: str = "") -> Case:
    given = ", ".join(f"{k} {v}" for k, v in zip(kinds, args))
    return Case(
        name,
        f"  %r = call {out} @llvm.{intrinsic}({given})",
        t,
        b or t,
        out,
        f"declare {out} @llvm.{intrinsic}({', '.join(kinds)})",
    )


def integer_cases() -> list[Case]:
    out = []
    for t in ("i8", "i16", "i32", "i64"):
        bits = int(t[1:])
        for op in ("add", "sub", "mul", "and", "or", "xor", "udiv", "sdiv", "urem", "srem"):
            out.append(Case(f"{op}.{t}", f"  %r = {op} {t} %a, %b", t, t, t))
        for op in ("shl", "lshr", "ashr"):
            out.append(Case(f"{op}.{t}", f"  %m = and {t} %b, {bits - 1}\n  %r = {op} {t} %a, %m", t, t, t))
        for op in ("umin", "umax", "smin", "smax", "uadd.sat", "usub.sat", "sadd.sat", "ssub.sat"):
            out.append(_call(f"{op}.{t}", f"{op}.{t}", t, t, ["%a", "%b"], [t, t]))
        for op in ("ctpop", "bitreverse", *(("bswap",) if bits > 8 else ())):
            out.append(_call(f"{op}.{t}", f"{op}.{t}", t, t, ["%a"], [t]))
        for op in ("ctlz", "cttz", "abs"):
            out.append(_call(f"{op}.{t}", f"{op}.{t}", t, t, ["%a", "false"], [t, "i1"]))
        out.append(_call(f"fshl.{t}", f"fshl.{t}", t, t, ["%a", "%b", "%b"], [t, t, t]))
        for p in ("slt", "ult", "eq", "sge"):
            body = f"  %c = icmp {p} {t} %a, %b\n  %r = select i1 %c, {t} %a, {t} 7"
            out.append(Case(f"icmp.{p}.{t}", body, t, t, t))
    return out


def float_cases() -> list[Case]:
    out = []
    for t, m in SUFFIX.items():
        for op in ("fadd", "fsub", "fmul", "fdiv"):
            out.append(Case(f"{op}.{t}", f"  %r = {op} {t} %a, %b", t, t, t))
        for op in ("sqrt", "floor", "ceil", "trunc", "rint", "round", "fabs"):
            out.append(_call(f"{op}.{t}", f"{op}.{m}", t, t, ["%a"], [t]))
        if t != "double":
            for op in ("exp", "exp2", "log", "log2"):
                out.append(_call(f"{op}.{t}", f"{op}.{m}", t, t, ["%a"], [t]))
        for op in ("minnum", "maxnum", "minimum", "maximum", "copysign"):
            out.append(_call(f"{op}.{t}", f"{op}.{m}", t, t, ["%a", "%b"], [t, t]))
        out.append(_call(f"fma.{t}", f"fma.{m}", t, t, ["%a", "%b", "%a"], [t, t, t]))
        out.append(_call(f"ldexp.{t}", f"ldexp.{m}.i32", t, t, ["%a", "%b"], [t, "i32"], "i32"))
        for p in ("olt", "ult", "oeq", "une", "ord"):
            body = f"  %c = fcmp {p} {t} %a, %b\n  %r = select i1 %c, {t} %a, {t} %b"
            out.append(Case(f"fcmp.{p}.{t}", body, t, t, t))
        for i in ("i8", "i16", "i32", "i64"):
            if t != "bfloat":
                out.append(Case(f"sitofp.{i}.{t}", f"  %r = sitofp {i} %a to {t}", i, i, t))
                out.append(Case(f"uitofp.{i}.{t}", f"  %r = uitofp {i} %a to {t}", i, i, t))
            for op in ("fptosi", "fptoui"):
                out.append(_call(f"{op}.{t}.{i}", f"{op}.sat.{i}.{m}", t, i, ["%a"], [t]))
        for t2 in SUFFIX:
            if WIDTH[t2] > WIDTH[t]:
                out.append(Case(f"fpext.{t}.{t2}", f"  %r = fpext {t} %a to {t2}", t, t, t2))
            if WIDTH[t2] < WIDTH[t]:
                out.append(Case(f"fptrunc.{t}.{t2}", f"  %r = fptrunc {t} %a to {t2}", t, t, t2))
    return out


# ---- inputs

INTEGERS = [
    0,
    1,
    -1,
    2,
    3,
    7,
    -7,
    100,
    127,
    -128,
    255,
    32767,
    -32768,
    65535,
    1 << 20,
    2**31 - 1,
    -(2**31),
    2**40 + 12345,
]
INTEGERS += [2**63 - 1, -(2**63)]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.7,
    100.25,
    1e-3,
    65504.0,
    1e10,
    -3e38,
    math.inf,
    -math.inf,
    math.nan,
]
FLOATS += [1e-40, 6e-8, 123456.7]


def inputs(t: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = NUMPY[t]
    if t[0] == "i":
        spread = rng.integers(-(2**63), 2**63 - 1, 64, dtype=np.int64) >> rng.integers(0, 60, 64)
        return rng.choice(np.concatenate((np.array(INTEGERS, np.int64), spread)), COUNT).astype(dtype)
    with np.errstate(all="ignore"):
        spread_f = rng.standard_normal(80) * np.exp2(rng.integers(-12, 12, 80).astype(float))
        return rng.choice(np.concatenate((np.array(FLOATS), spread_f)), COUNT).astype(dtype)


def arguments(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = inputs(case.a, 1), inputs(case.b, 2)
    op = case.name.split(".")[0]
    if op in ("udiv", "sdiv", "urem", "srem"):
        b = np.where(b == 0, b.dtype.type(3), b)
        b = np.where((a == np.iinfo(a.dtype).min) & (b == -1), b.dtype.type(5), b)
    if op == "ldexp":
        b = (b.astype(np.int64) % 40 - 20).astype(np.int32)
    return a, b, np.zeros(COUNT, NUMPY[case.out])


# ---- expectations


def _wrap(v: int, bits: int) -> int:
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> bits - 1 else v


def _integer(op: str, predicate: str, x: int, y: int, n: int) -> int:
    lo, hi, ones = -(1 << n - 1), (1 << n - 1) - 1, (1 << n) - 1
    ux, uy = x & ones, y & ones
    if op == "icmp":
        return x if {"slt": x < y, "ult": ux < uy, "eq": x == y, "sge": x >= y}[predicate] else 7
    if op in ("sdiv", "srem"):
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return quotient if op == "sdiv" else x - quotient * y
    if op in ("udiv", "urem"):
        return ux // uy if op == "udiv" else ux % uy
    table: dict[str, Any] = {
        "add": x + y,
        "sub": x - y,
        "mul": x * y,
        "and": x & y,
        "or": x | y,
        "xor": x ^ y,
        "shl": x << (y & n - 1),
        "lshr": ux >> (y & n - 1),
        "ashr": x >> (y & n - 1),
        "umin": min(ux, uy),
        "umax": max(ux, uy),
        "smin": min(x, y),
        "smax": max(x, y),
        "uadd": min(ux + uy, ones),
        "usub": max(ux - uy, 0),
        "sadd": max(lo, min(hi, x + y)),
        "ssub": max(lo, min(hi, x - y)),
        "ctpop": bin(ux).count("1"),
        "bitreverse": int(format(ux, f"0{n}b")[::-1], 2),
        "bswap": int.from_bytes(ux.to_bytes(n // 8, "little"), "big"),
        "ctlz": n - ux.bit_length(),
        "cttz": (ux & -ux).bit_length() - 1 if ux else n,
        "abs": abs(x),
        "fshl": (ux << n | uy) << uy % n >> n,
    }
    return table[op]


def expected(case: Case, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the kernel must compute, in the type of its result."""
    op, *rest = case.name.split(".")
    out = NUMPY[case.out]
    if a.dtype.kind == "i" and op not in ("sitofp", "uitofp"):
        bits = 8 * a.dtype.itemsize
        return np.array([_wrap(_integer(op, rest[0], int(x), int(y), bits), bits) for x, y in zip(a, b)]).astype(out)
    with np.errstate(all="ignore"):
        if op == "sitofp":
            return a.astype(out)
        if op == "uitofp":
            return a.view(f"u{a.dtype.itemsize}").astype(out)
        x = a.astype(np.float64)
        y = b if b.dtype.kind == "i" else b.astype(np.float64)
        if op in ("fptosi", "fptoui"):
            bits = 8 * np.dtype(out).itemsize
            lo, hi = (-(1 << bits - 1), (1 << bits - 1) - 1) if op == "fptosi" else (0, (1 << bits) - 1)
            values = [
                0 if math.isnan(v) else hi if v == math.inf else lo if v == -math.inf else max(lo, min(hi, int(v)))
                for v in x
            ]
            return np.array([_wrap(v, bits) for v in values]).astype(out)
        if op == "fcmp":
            unordered = np.isnan(x) | np.isnan(y)
            chosen = {
                "olt": x < y,
                "ult": (x < y) | unordered,
                "oeq": x == y,
                "une": (x != y) | unordered,
                "ord": ~unordered,
            }[rest[0]]
            return np.where(chosen, a, b)
        if op == "fma" and out is np.float64:
            return np.array([_fma(p, q) for p, q in zip(x.tolist(), y.tolist())])
        if op == "round":
            away = np.trunc(x) + np.where(np.abs(x - np.trunc(x)) >= 0.5, np.sign(x), 0)
            return np.where(np.isfinite(x), away, x).astype(out)
        result = {
            "fadd": lambda: x + y,
            "fsub": lambda: x - y,
            "fmul": lambda: x * y,
            "fdiv": lambda: x / y,
            "sqrt": lambda: np.sqrt(x),
            "floor": lambda: np.floor(x),
            "ceil": lambda: np.ceil(x),
            "trunc": lambda: np.trunc(x),
            "rint": lambda: np.rint(x),
            "fabs": lambda: np.abs(x),
            "exp": lambda: np.exp(x),
            "exp2": lambda: np.exp2(x),
            "log": lambda: np.log(x),
            "log2": lambda: np.log2(x),
            "minnum": lambda: np.fmin(x, y),
            "maxnum": lambda: np.fmax(x, y),
            "minimum": lambda: np.minimum(x, y),
            "maximum": lambda: np.maximum(x, y),
            "copysign": lambda: np.copysign(x, y),
            "fma": lambda: x * y + x,
            "ldexp": lambda: np.ldexp(x, y),
            "fpext": lambda: x,
            "fptrunc": lambda: x,
        }[op]()
        return result.astype(out)


def _fma(p: float, q: float) -> float:
    if not math.isfinite(p) or not math.isfinite(q) or abs(p * q) > 1e300:
        return p * q + p
    return float(Fraction(p) * Fraction(q) + Fraction(p))


LOOSE = ("exp", "exp2", "log", "log2", "fdiv", "sqrt")
"""Operations that LLVM expands with an error of a few ulp."""


def wrong(case: Case, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Indices where the result is not acceptable."""
    if got.dtype.kind == "i":
        return np.flatnonzero(got != want)
    with np.errstate(all="ignore"):
        g, w = got.astype(np.float64), want.astype(np.float64)
        ok = (g == w) | (np.isnan(g) & np.isnan(w))
        if case.name.split(".")[0] in LOOSE:
            relative = {2: 1e-2 if case.out == "bfloat" else 2e-3, 4: 1e-6, 8: 1e-15}[got.dtype.itemsize]
            tiny = {2: 1e-7, 4: 2e-38, 8: 0}[got.dtype.itemsize]
            ok |= np.abs(g - w) <= relative * np.abs(w) + tiny
    return np.flatnonzero(~ok)
