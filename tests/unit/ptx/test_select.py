"""Every kernel IR op through the PTX back end: ptxas takes it without spills, the emulator's result equals NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from ptx_kernels import THREADS, pointwise
from wavedsl.codegen.ptx.emit import PtxProgram, compile_kernel_ir
from wavedsl.codegen.ptx.target import TARGETS
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, F64, I32, I64, PRED, Kernel, Type, vector
from wavedsl.runtime.toolchain import assemble_ptx

SM80 = TARGETS["sm_80"]
Case = tuple[Sequence[DType], Sequence[DType], Callable[..., Sequence[Any]], Callable[..., Sequence[Any]]]


def emulate(kernel: Kernel, program: PtxProgram, args: Sequence[Any]) -> Any:
    from wavedsl.runtime import emulator

    return emulator.run(
        program.text,
        target=program.target,
        grid=kernel.grid,
        block=(kernel.block, 1, 1),
        args=args,
        shared_bytes=program.dynamic_shared_bytes,
        checks=True,
    )


def inputs(dtype: DType, rng: np.random.Generator) -> np.ndarray:
    """Ordinary and awkward values of a dtype."""
    if dtype is dt.i32 or dtype is dt.i64:
        bits = dtype.bits
        x = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), THREADS, dtype=dtype.storage)
        x[:8] = [0, 1, -1, 2, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 31, 1000]
        return x
    if dtype in (dt.u32, dt.u64):
        return inputs(dt.i32 if dtype is dt.u32 else dt.i64, rng).view(dtype.storage)
    if dtype in (dt.f32, dt.f64):
        x = rng.normal(size=THREADS).astype(dtype.storage) * np.exp2(rng.integers(-8, 8, THREADS)).astype(dtype.storage)
        x[:6] = [0.0, -0.0, 1.0, 0.5, -2.5, 3.5]
        return x
    return rng.integers(0, 2**32, THREADS, dtype=np.uint32)


def method(op: str) -> Callable[..., Any]:
    """The builder's method of this name on all inputs."""
    return lambda b, *v: [getattr(b, op)(*v)]


def divide(op: str) -> Callable[..., Any]:
    """By a divisor from 3 to 65535."""
    return lambda b, x, y: [getattr(b, op)(x, b.max_u(b.and_(y, 0xFFFF), 3))]


def divide_float(t: Type) -> Callable[..., Any]:
    """By y, or by 1 where y is 0."""
    return lambda b, x, y: [b.fdiv(x, b.select(b.fcmp("eq", y, b.const(0.0, t)), b.const(1.0, t), y))]


def shift_amounts(x: np.ndarray) -> np.ndarray:
    return (x.view(np.uint32) & 31).astype(np.int64)


def unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


def halves(word: np.ndarray, dtype: Any) -> np.ndarray:
    return np.ascontiguousarray(word).view(dtype).reshape(THREADS, -1)


def saturate(x: np.ndarray, to: Any) -> np.ndarray:
    info = np.iinfo(to)
    wide = np.trunc(x.astype(np.float64))
    top = wide >= float(info.max)
    low = wide <= float(info.min)
    return np.where(top, info.max, np.where(low, info.min, np.where(top | low, 0, wide).astype(to))).astype(to)


def tf32(x: np.ndarray) -> np.ndarray:
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def funnel(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    both = unsigned(x).astype(np.uint64) << np.uint64(32) | unsigned(y)
    return (both >> (z & 31).astype(np.uint64)).astype(np.uint32).view(np.int32)


def _cases() -> dict[str, Case]:
    ints = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "and_": lambda a, b: a & b,
        "or_": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "min_s": np.minimum,
        "max_s": np.maximum,
        "min_u": lambda a, b: np.minimum(unsigned(a), unsigned(b)).view(a.dtype),
        "max_u": lambda a, b: np.maximum(unsigned(a), unsigned(b)).view(a.dtype),
        "udiv": lambda a, b: (unsigned(a) // np.maximum(unsigned(b) & 0xFFFF, 3)).view(a.dtype),
        "urem": lambda a, b: (unsigned(a) % np.maximum(unsigned(b) & 0xFFFF, 3)).view(a.dtype),
    }
    cases: dict[str, Case] = {}
    for name, ref in ints.items():
        for d in (dt.i32, dt.i64):
            build = divide(name) if name in ("udiv", "urem") else method(name)
            cases[f"{name} {d}"] = ([d, d], [d], build, lambda x, y, ref=ref: [ref(x, y)])
    shifts = {
        "shl": lambda a, s: a << s.astype(a.dtype),
        "lshr": lambda a, s: (unsigned(a) >> s.astype(unsigned(a).dtype)).view(a.dtype),
        "ashr": lambda a, s: a >> s.astype(a.dtype),
    }
    for name, ref in shifts.items():
        for d in (dt.i32, dt.i64):
            cases[f"{name} {d}"] = (
                [d, dt.i32],
                [d],
                lambda b, x, s, name=name: [getattr(b, name)(x, b.and_(s, 31))],
                lambda x, s, ref=ref: [ref(x, shift_amounts(s))],
            )
    cases["mulhi_u"] = (
        [dt.i32, dt.i32],
        [dt.i32],
        method("mulhi_u"),
        lambda a, b: [
            ((unsigned(a).astype(np.uint64) * unsigned(b)) >> np.uint64(32)).astype(np.uint32).view(np.int32)
        ],
    )
    for name, ref in {
        "popcount": lambda v: v.bit_count(),
        "clz": lambda v: 32 - v.bit_length(),
        "ctz": lambda v: ((v & -v).bit_length() - 1) % 33,
        "brev": lambda v: int(f"{v:032b}"[::-1], 2),
    }.items():
        cases[name] = (
            [dt.i32],
            [dt.i32],
            method(name),
            lambda a, ref=ref: [np.array([ref(int(v)) for v in unsigned(a)], np.uint32).view(np.int32)],
        )
    cases["funnel"] = (
        [dt.i32, dt.i32, dt.i32],
        [dt.i32, dt.i32],
        lambda b, x, y, z: [b.funnel(x, y, z), b.funnel(x, y, 41)],
        lambda x, y, z: [funnel(x, y, z), funnel(x, y, np.full_like(x, 9))],
    )
    cases["mul_wide_u"] = (
        [dt.i32, dt.i32],
        [dt.i64],
        method("mul_wide_u"),
        lambda a, b: [(unsigned(a).astype(np.uint64) * unsigned(b)).view(np.int64)],
    )
    cases["multiply-add"] = (
        [dt.i32, dt.i32, dt.i32],
        [dt.i32],
        lambda b, x, y, z: [b.add(b.mul(x, y), z)],
        lambda x, y, z: [x * y + z],
    )
    cases["wide multiply-add"] = (
        [dt.i32, dt.i32, dt.i64],
        [dt.i64],
        lambda b, x, y, z: [b.add(b.mul_wide_u(x, y), z)],
        lambda x, y, z: [(unsigned(x).astype(np.uint64) * unsigned(y)).view(np.int64) + z],
    )
    cases["two products"] = (
        [dt.i32, dt.i32],
        [dt.i32, dt.i32],
        lambda b, x, y: [b.add(b.mul(x, y), b.mul(x, 7)), b.mul(x, 7)],
        lambda x, y: [x * y + x * 7, x * 7],
    )
    cases["widths"] = (
        [dt.i32, dt.i64],
        [dt.i64, dt.i64, dt.i32],
        lambda b, x, y: [b.zext(x), b.sext(x), b.trunc(y)],
        lambda x, y: [unsigned(x).astype(np.int64), x.astype(np.int64), y.astype(np.int32)],
    )
    fields = [
        (0, 5, False),
        (0, 5, True),
        (8, 8, False),
        (8, 8, True),
        (16, 16, True),
        (3, 11, False),
        (3, 11, True),
        (7, 25, True),
    ]
    cases["bfe"] = (
        [dt.i32],
        [dt.i32] * len(fields),
        lambda b, x: [b.bfe(x, *f) for f in fields],
        lambda x: [
            (x << np.int32(32 - s - w)) >> np.int32(32 - w)
            if signed
            else ((unsigned(x) >> np.uint32(s)) & np.uint32((1 << w) - 1)).view(np.int32)
            for s, w, signed in fields
        ],
    )
    signed = {
        "eq": np.equal,
        "ne": np.not_equal,
        "slt": np.less,
        "sle": np.less_equal,
        "sgt": np.greater,
        "sge": np.greater_equal,
    }
    plain = {"ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal}
    for d in (dt.i32, dt.i64):
        for how in (*signed, *plain):
            cases[f"cmp {how} {d}"] = (
                [d, d],
                [dt.i32],
                lambda b, x, y, how=how: [b.select(b.cmp(how, x, y), b.i32(1), b.i32(-5))],
                lambda x, y, how=how: [
                    np.where(
                        signed[how](x, y) if how in signed else plain[how](unsigned(x), unsigned(y)), 1, -5
                    ).astype(np.int32)
                ],
            )

    def logic(b: Builder, x: Any, y: Any) -> Sequence[Any]:
        p, q = b.cmp("slt", x, 0), b.cmp("slt", y, x)
        made = [b.pand(p, q), b.por(p, q), b.pxor(p, q), b.pnot(p), b.select(p, q, b.pnot(q))]
        return [b.select(m, b.i32(1), b.i32(0)) for m in made]

    def logic_reference(x: Any, y: Any) -> Sequence[Any]:
        p, q = x < 0, y < x
        return [m.astype(np.int32) for m in (p & q, p | q, p ^ q, ~p, np.where(p, q, ~q))]

    cases["predicates"] = ([dt.i32, dt.i32], [dt.i32] * 5, logic, logic_reference)
    floats = {
        "fadd": np.add,
        "fsub": np.subtract,
        "fmul": np.multiply,
        "fmin": np.fmin,
        "fmax": np.fmax,
        "fdiv": lambda a, b: a / np.where(b == 0, b.dtype.type(1), b),
    }
    for d, t in ((dt.f32, F32), (dt.f64, F64)):
        for name, ref in floats.items():
            build = divide_float(t) if name == "fdiv" else method(name)
            cases[f"{name} {d}"] = ([d, d], [d], build, lambda x, y, ref=ref: [ref(x, y)])
        for name, unary in (
            ("fneg", np.negative),
            ("fabs", np.abs),
            ("ffloor", np.floor),
            ("fceil", np.ceil),
            ("frint", np.rint),
            ("ftrunc", np.trunc),
        ):
            cases[f"{name} {d}"] = ([d], [d], method(name), lambda x, unary=unary: [unary(x)])
        cases[f"sqrt {d}"] = ([d], [d], lambda b, x: [b.sqrt(b.fabs(x))], lambda x: [np.sqrt(np.abs(x))])
        for how, compare in (
            ("eq", np.equal),
            ("ne", np.not_equal),
            ("lt", np.less),
            ("le", np.less_equal),
            ("gt", np.greater),
            ("ge", np.greater_equal),
        ):
            cases[f"fcmp {how} {d}"] = (
                [d, d],
                [dt.i32],
                # x / 0 puts infinities and NaN among the operands.
                lambda b, x, y, how=how, t=t: [b.select(b.fcmp(how, b.fdiv(x, b.fsub(y, y)), y), b.i32(1), b.i32(0))],
                lambda x, y, compare=compare: [compare(x / (y - y), y).astype(np.int32)],
            )
    cases["ffma f64"] = (
        [dt.f64, dt.f64],
        [dt.f64],
        lambda b, x, y: [b.ffma(x, b.f64(2.0), y)],
        lambda x, y: [x * 2 + y],
    )
    cases["ffma f32"] = (
        [dt.f32] * 3,
        [dt.f32],
        method("ffma"),
        lambda x, y, z: [(x.astype(np.longdouble) * y + z).astype(np.float32)],
    )
    cases["no fused multiply-add"] = (
        [dt.f32] * 3,
        [dt.f32],
        lambda b, x, y, z: [b.fadd(b.fmul(x, y), z)],
        lambda x, y, z: [x * y + z],
    )
    cases["int to float"] = (
        [dt.i32, dt.i64],
        [dt.f32, dt.f64, dt.f32, dt.f64, dt.f32],
        lambda b, x, y: [b.cvt(x, F32), b.cvt(x, F64), b.cvt(y, F32), b.cvt(y, F64), b.cvt(x, F32, unsigned=True)],
        lambda x, y: [
            x.astype(np.float32),
            x.astype(np.float64),
            y.astype(np.float32),
            y.astype(np.float64),
            unsigned(x).astype(np.float32),
        ],
    )
    big = np.float32(2.0**28)
    cases["float to int"] = (
        [dt.f32, dt.f64],
        [dt.i32, dt.u32, dt.i64, dt.i32, dt.i64],
        lambda b, x, y: [
            b.cvt(b.fmul(x, b.f32(float(big))), I32),
            b.cvt(b.fmul(x, b.f32(float(big))), I32, unsigned=True),
            b.cvt(x, I64),
            b.cvt(b.fmul(y, b.f64(2.0**28)), I32),
            b.cvt(b.fmul(y, b.f64(2.0**60)), I64),
        ],
        lambda x, y: [
            saturate(x * big, np.int32),
            saturate(x * big, np.uint32),
            saturate(x, np.int64),
            saturate(y * 2.0**28, np.int32),
            saturate(y * 2.0**60, np.int64),
        ],
    )
    cases["float to float"] = (
        [dt.f32, dt.f64],
        [dt.f64, dt.f32],
        lambda b, x, y: [b.cvt(x, F64), b.cvt(y, F32)],
        lambda x, y: [x.astype(np.float64), y.astype(np.float32)],
    )
    for d in (dt.f16, dt.bf16):
        cases[f"pack {d}"] = (
            [dt.f32, dt.f32],
            [d],
            lambda b, x, y, d=d: [b.pack([x, y], d)],
            lambda x, y, d=d: [np.stack([x, y], 1).astype(d.numpy).view(np.uint32)[:, 0]],
        )
        cases[f"unpack {d}"] = (
            [d],
            [dt.f32, dt.f32],
            lambda b, w, d=d: [b.unpack(w, d, 0), b.unpack(w, d, 1)],
            lambda w, d=d: list(halves(w, d.numpy).astype(np.float32).T),
        )
    for d in (dt.i8, dt.u8, dt.i16, dt.u16):
        n = 32 // d.bits
        cases[f"pack {d}"] = (
            [dt.i32] * n,
            [d],
            lambda b, *v, d=d: [b.pack(v, d)],
            lambda *v, d=d: [np.stack(v, 1).astype(d.numpy).view(np.uint32)[:, 0]],
        )
        cases[f"unpack {d}"] = (
            [d],
            [dt.i32] * n,
            lambda b, w, d=d, n=n: [b.unpack(w, d, i) for i in range(n)],
            lambda w, d=d: list(halves(w, d.numpy).astype(np.int32).T),
        )
    for d in (dt.i4, dt.u4):
        cases[f"pack {d}"] = (
            [dt.i32],
            [d],
            lambda b, x, d=d: [b.pack([b.lshr(x, b.i32(3 * i)) for i in range(8)], d)],
            lambda x: [sum(((unsigned(x) >> np.uint32(3 * i)) & np.uint32(15)) << np.uint32(4 * i) for i in range(8))],
        )
        cases[f"unpack {d}"] = (
            [d],
            [dt.i32] * 8,
            lambda b, w, d=d: [b.unpack(w, d, i) for i in range(8)],
            lambda w, d=d: [
                (w << np.uint32(28 - 4 * i)).view(np.int32) >> 28
                if d is dt.i4
                else ((w >> np.uint32(4 * i)) & np.uint32(15)).view(np.int32)
                for i in range(8)
            ],
        )
    cases["round_tf32"] = ([dt.f32], [dt.f32], method("round_tf32"), lambda x: [tf32(x)])
    cases["bitcast"] = (
        [dt.f32, dt.f64, dt.i64],
        [dt.i32, dt.i64, dt.f64, dt.i32, dt.f64],
        lambda b, x, y, z: [
            b.bitcast(x, I32),
            b.bitcast(y, I64),
            b.bitcast(z, F64),
            b.bitcast(b.slice(b.bitcast(y, vector(2)), 1), I32),
            b.bitcast(b.bitcast(y, vector(2)), F64),
        ],
        lambda x, y, z: [
            x.view(np.int32),
            y.view(np.int64),
            z.view(np.float64),
            y.view(np.int32).reshape(-1, 2)[:, 1].copy(),
            y,
        ],
    )
    cases["permute_bytes"] = (
        [dt.f16, dt.f16],
        [dt.f16],
        lambda b, hi, lo: [b.permute_bytes(hi, lo, 0x07000502)],
        lambda hi, lo: [
            np.concatenate([lo.view(np.uint8).reshape(-1, 4), hi.view(np.uint8).reshape(-1, 4)], 1)[:, [2, 5, 0, 7]]
            .copy()
            .view(np.uint32)[:, 0]
        ],
    )
    cases["tuples"] = (
        [dt.f32, dt.f32],
        [dt.f32, dt.f32],
        lambda b, x, y: [b.elements(b.slice(b.fadd(b.vec(x, y, y), b.vec(y, x, x)), 1, 2))[0], b.slice(b.vec(x, y), 1)],
        lambda x, y: [x + y, y],
    )
    cases["select of 64 bits and tuples"] = (
        [dt.f64, dt.f64, dt.i32],
        [dt.f64, dt.f64],
        lambda b, x, y, c: b.elements(b.select(b.cmp("slt", c, 0), b.vec(x, y), b.vec(y, x))),
        lambda x, y, c: [np.where(c < 0, x, y), np.where(c < 0, y, x)],
    )
    lanes = np.arange(THREADS)
    cases["shuffles"] = (
        [dt.f32, dt.i32, dt.f64],
        [dt.f32, dt.f32, dt.f32, dt.i32],
        lambda b, x, s, y: [
            b.shuffle_xor(x, 5),
            b.shuffle_index(x, b.and_(s, 31)),
            b.readfirst(x),
            b.select(b.shuffle_xor(b.cmp("slt", s, 0), 1), b.i32(1), b.i32(0)),
        ],
        lambda x, s, y: [
            x[lanes ^ 5],
            x[lanes // 32 * 32 + (s & 31)],
            x[lanes // 32 * 32],
            (s < 0)[lanes ^ 1].astype(np.int32),
        ],
    )
    cases["where a thread is"] = (
        [dt.i32],
        [dt.i32] * 5,
        lambda b, x: [b.tid(), b.lane(), b.wave(), b.readfirst(b.wave()), b.wgid(1)],
        lambda x: [
            lanes.astype(np.int32),
            (lanes % 32).astype(np.int32),
            *[(lanes // 32).astype(np.int32)] * 2,
            np.zeros_like(x),
        ],
    )
    return cases


CASES = _cases()
APPROXIMATE: dict[str, tuple[str, Callable[[Any], Any], float]] = {
    "exp2": ("f32", lambda x: np.exp2(x * np.float32(0.125)), 2e-7),
    "log2": ("f32", lambda x: np.log2(np.abs(x) + np.float32(0.25)), 3e-7),
    "rcp": ("f32", lambda x: 1 / (np.abs(x) + np.float32(0.25)), 2e-7),
    "rsqrt": ("f32", lambda x: 1 / np.sqrt(np.abs(x) + np.float32(0.25)), 2e-7),
    "sin": ("f32", np.sin, 1e-6),
    "cos": ("f32", np.cos, 1e-6),
    "rcp f64": ("f64", lambda x: 1 / (np.abs(x) + 0.25), 1e-15),
    "rsqrt f64": ("f64", lambda x: 1 / np.sqrt(np.abs(x) + 0.25), 1e-15),
}


def run_case(case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    """(computed, expected) per output."""
    ins, outs, build, reference = case
    kernel = pointwise(SM80, ins, outs, build)
    program = compile_kernel_ir(kernel, SM80)
    rng = np.random.default_rng(7)
    given = [inputs(d, rng) for d in ins]
    results = [np.zeros(THREADS, d.storage if d.bits >= 32 else np.uint32) for d in outs]
    emulate(kernel, program, [*(g.copy() for g in given), *results])
    with np.errstate(all="ignore"):
        expected = reference(*given)
    return list(zip(results, expected))


@pytest.mark.parametrize("name", CASES)
def test_op_runs_as_numpy_says(name: str) -> None:
    for n, (got, want) in enumerate(run_case(CASES[name])):
        np.testing.assert_array_equal(
            got, np.asarray(want).astype(got.dtype, copy=False), err_msg=f"{name}, result {n}"
        )


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximation_is_within_its_bound(name: str) -> None:
    kind, reference, bound = APPROXIMATE[name]
    d, t, op = (dt.f32, F32, name) if kind == "f32" else (dt.f64, F64, name.split()[0])

    def build(b: Builder, x: Any) -> Sequence[Any]:
        if op in ("log2", "rcp", "rsqrt"):
            x = b.fadd(b.fabs(x), b.const(0.25, t))
        if op == "exp2":
            x = b.fmul(x, b.f32(0.125))
        return [getattr(b, op)(x)]

    ((got, want),) = run_case(([d], [d], build, lambda x: [reference(x)]))
    least = {"sin": 1.0, "cos": 1.0, "log2": 1.0}.get(op, 1e-30)
    assert np.max(np.abs(got - want) / np.maximum(np.abs(want), least)) < bound


def test_ptxas_takes_every_op_without_spills(oracle: Callable[[str], str]) -> None:
    """All cases in one module per chip: ptxas compiles many entries in one run."""
    oracle("ptxas")
    head = ""
    bodies = []
    for n, (ins, outs, build, _) in enumerate(CASES.values()):
        kernel = pointwise(SM80, ins, outs, build)
        kernel.name = f"k{n}"
        text = compile_kernel_ir(kernel, SM80).text
        head, _, body = text.partition(".visible")
        bodies.append(".visible" + body)
    module = head + "\n".join(bodies)
    for arch in ("sm_80", "sm_90", "sm_100"):
        result = assemble_ptx(module, arch)
        assert len(result.entries) == len(CASES)
        assert all(e.spill_stores == 0 and e.spill_loads == 0 and e.stack == 0 for e in result.entries)


def test_floats_are_not_contracted(oracle: Callable[[str], str]) -> None:
    """A product and a sum stay two instructions after ptxas."""
    oracle("ptxas")
    oracle("nvdisasm")
    from wavedsl.runtime.toolchain import disassemble_cubin

    ins, outs, build, _ = CASES["no fused multiply-add"]
    text = compile_kernel_ir(pointwise(SM80, ins, outs, build), SM80).text
    sass = disassemble_cubin(assemble_ptx(text, "sm_80").cubin)
    assert "FMUL" in sass and "FADD" in sass and "FFMA" not in sass


def test_predicate_constants_fold() -> None:
    kernel = pointwise(
        SM80, [dt.i32], [dt.i32], lambda b, x: [b.select(b.const(True, PRED), x, b.bitcast(b.const(3, B32), I32))]
    )
    assert "selp" not in compile_kernel_ir(kernel, SM80).text


def test_every_kernel_ir_op_has_a_selection() -> None:
    from wavedsl.codegen.ptx.select import _SELECT
    from wavedsl.ir.kernel.kernel_ir import ROWS

    # no chip here scales in the product, exchanges lane bits with registers' in place, or multiplies by a power of two
    assert set(ROWS) - set(_SELECT) == {"yield", "mma.scaled", "swap_lanes", "ldexp"}
