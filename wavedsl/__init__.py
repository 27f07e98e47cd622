"""wavedsl: a kernel DSL embedded in Python.

    import wavedsl as wd

    M, N, BM, BN = wd.symbols("M N BM BN")

    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BM: 16, BN: 16})
    def double(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 2, b)

    double(a, b)        # NumPy arrays, or anything on a GPU

A kernel is traced once into a dataflow graph and compiled to AMDGCN or PTX text, which runs on a GPU or, without one,
instruction by instruction on an emulator. What compiles and runs is imported when it is first used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from wavedsl.collector import lasting

with lasting():
    import sympy as _sympy  # noqa: F401

from wavedsl.constraints import HardwareConstraint, MMAType, TilingConstraint, WaveConstraint, WorkgroupConstraint
from wavedsl.ir.dataflow.graph import Graph
from wavedsl.ir.dtypes import (
    DType,
    bf16,
    f4e2m1,
    f6e2m3,
    f6e3m2,
    f8e4m3,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0,
    f16,
    f32,
    f64,
    i1,
    i4,
    i8,
    i16,
    i32,
    i64,
    tf32,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from wavedsl.ir.errors import (
    CompileError,
    ConstraintError,
    EmulationError,
    LaunchError,
    RegisterPressureError,
    ToolchainError,
    TraceError,
    WaveError,
)
from wavedsl.ir.symbols import sym, symbols
from wavedsl.kernel_object import Kernel, wave
from wavedsl.language import (
    abs,
    acos,
    all,
    any,
    argmax,
    argmin,
    asin,
    atan,
    atan2,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    bit_reverse,
    bitcast,
    broadcast,
    cast,
    ceil,
    clamp,
    clz,
    cond,
    cos,
    ctz,
    cumprod,
    cumsum,
    device_assert,
    device_print,
    divide,
    erf,
    exit_if,
    exp,
    exp2,
    expm1,
    extract,
    fence,
    flip,
    floor,
    fma,
    index,
    isfinite,
    isinf,
    isnan,
    iterate,
    log,
    log1p,
    log2,
    log10,
    max,
    maximum,
    min,
    minimum,
    mma,
    mulhi,
    permute,
    permute_bytes,
    popcount,
    pow,
    prod,
    randn,
    random,
    read,
    reciprocal,
    reduce,
    repeat_interleave,
    reshape,
    rotate_left,
    round,
    rsqrt,
    saturating_add,
    saturating_sub,
    scaled_mma,
    scan,
    shuffle,
    sigmoid,
    sin,
    softmax,
    sort,
    sqrt,
    sum,
    tanh,
    tile_start,
    tile_stop,
    topk,
    trunc,
    where,
    while_loop,
    write,
)
from wavedsl.memory import GLOBAL, SHARED, AddressSpace, IndexMapping, Memory, Register, Scalar
from wavedsl.schedule import Schedule

if TYPE_CHECKING:
    from wavedsl.analysis.roofline import Roofline, analyze
    from wavedsl.compiled_kernel import CompiledKernel, load
    from wavedsl.runtime.spill_warning import SpillWarning
    from wavedsl.tuning.tuned_kernel import autotune

__version__ = "0.1.0"

_LAZY = {
    "CompiledKernel": "wavedsl.compiled_kernel",
    "Roofline": "wavedsl.analysis.roofline",
    "analyze": "wavedsl.analysis.roofline",
    "autotune": "wavedsl.tuning.tuned_kernel",
    "load": "wavedsl.compiled_kernel",
    "SpillWarning": "wavedsl.runtime.spill_warning",
}
"""Public names whose modules are imported on first use."""


_MODULES = ("registers", "strategies", "testing")
"""Public modules that are imported on first use."""


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"wavedsl.{name}")
    if module is None:
        from wavedsl.tracer import advice, builder

        said = f"module 'wavedsl' has no attribute {name!r}"
        if builder.CURRENT.get() is None and (hint := advice.for_missing(name, "wavedsl")):  # else the tracer says it
            said += f"; help: {hint}"
        raise AttributeError(said, name=name, obj=sys.modules[__name__])
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "GLOBAL",
    "SHARED",
    "AddressSpace",
    "CompileError",
    "CompiledKernel",
    "ConstraintError",
    "DType",
    "EmulationError",
    "Graph",
    "HardwareConstraint",
    "IndexMapping",
    "Kernel",
    "LaunchError",
    "MMAType",
    "Memory",
    "Register",
    "RegisterPressureError",
    "Roofline",
    "Scalar",
    "Schedule",
    "SpillWarning",
    "TilingConstraint",
    "ToolchainError",
    "TraceError",
    "WaveConstraint",
    "WaveError",
    "WorkgroupConstraint",
    "abs",
    "acos",
    "all",
    "analyze",
    "any",
    "argmax",
    "argmin",
    "asin",
    "atan",
    "atan2",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "autotune",
    "bf16",
    "bit_reverse",
    "bitcast",
    "broadcast",
    "cast",
    "ceil",
    "clamp",
    "clz",
    "cond",
    "cos",
    "ctz",
    "cumprod",
    "cumsum",
    "device_assert",
    "device_print",
    "divide",
    "erf",
    "exit_if",
    "exp",
    "exp2",
    "expm1",
    "extract",
    "f4e2m1",
    "f6e2m3",
    "f6e3m2",
    "f8e4m3",
    "f8e4m3fnuz",
    "f8e5m2",
    "f8e5m2fnuz",
    "f8e8m0",
    "f16",
    "f32",
    "f64",
    "fence",
    "flip",
    "floor",
    "fma",
    "i1",
    "i4",
    "i8",
    "i16",
    "i32",
    "i64",
    "index",
    "isfinite",
    "isinf",
    "isnan",
    "iterate",
    "load",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "maximum",
    "min",
    "minimum",
    "mma",
    "mulhi",
    "permute",
    "permute_bytes",
    "popcount",
    "pow",
    "prod",
    "randn",
    "random",
    "read",
    "reciprocal",
    "reduce",
    "repeat_interleave",
    "reshape",
    "rotate_left",
    "round",
    "rsqrt",
    "saturating_add",
    "saturating_sub",
    "scaled_mma",
    "scan",
    "shuffle",
    "sigmoid",
    "sin",
    "softmax",
    "sort",
    "sqrt",
    "sum",
    "sym",
    "symbols",
    "tanh",
    "tf32",
    "tile_start",
    "tile_stop",
    "topk",
    "trunc",
    "u4",
    "u8",
    "u16",
    "u32",
    "u64",
    "wave",
    "where",
    "while_loop",
    "write",
]
