"""What to write instead: help for Python's constructs that have no meaning on traced values, from the user's own text.

In comes the location of the mistake, and for an exception of Python's its words; out comes the help of the error's last
line. Where the source is not at hand (a kernel from `exec`), the general advice is given.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from types import FrameType
from typing import Any

from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.loc import Loc
from wavedsl.ir.options import option

_OWN = ("softmax", "flip", "cumprod", "prod")
"""Functions of the language that are made of others."""


def _span(loc: Loc | None) -> tuple[str, str]:
    """(the user's line, the marked part of it)."""
    if loc is None:
        return "", ""
    line = loc.text()
    return line.strip(), line[loc.col : loc.end_col if loc.end_col > loc.col else len(line)]


def for_truth(loc: Loc | None, single: bool) -> str:
    """Help where Python asked a value whether it is true; `single`: the value has no dimensions."""
    line, part = _span(loc)
    builtin = re.search(r"(?<![.\w])(max|min|any|all)\(", part)
    if builtin and builtin[1] in ("max", "min"):
        return f"wd.{builtin[1]}imum(x, y), element by element; wd.{builtin[1]}(x, dim=M) along a dimension"
    if builtin:
        return f"wd.{builtin[1]}(x, dim=M)"
    if line.startswith("assert "):
        return "wd.device_assert(condition, message) is checked while the kernel runs"
    if re.search(r"\b(and|or|not)\b", part):
        return "combine conditions with & and |, negate them with ~: (x > 0) & (x < 1)"
    if _is_chain(loc, part):
        return "write the two comparisons out: (low < x) & (x < high)"
    if line.startswith("while "):
        who = "for the whole workgroup" if single else "until no element wants more, and each leaves by itself"
        return f"wd.while_loop(condition, body, init_args) repeats {who}"
    if single:
        return "for the whole workgroup: wd.cond(condition, then, otherwise); per element: wd.where(condition, x, y)"
    return "choose per element: wd.where(condition, x, y)"


def _is_chain(loc: Loc | None, part: str) -> bool:
    """Whether `low < x < high` is what was marked; some versions of Python mark the first comparison only."""
    behind = "" if loc is None or not loc.end_col else loc.text()[loc.end_col :]
    while part != (part := re.sub(r"\([^()]*\)|\[[^][]*\]", "", part)):
        pass  # what calls and indices hold is compared with something else
    count = len(re.findall(r"[<>]=?", part))
    return count > 1 or (count == 1 and re.match(r" *[<>]", behind) is not None)


def for_iteration(loc: Loc | None, dims: Sequence[Any]) -> str:
    """Help where Python wanted to go through a value's elements; `dims`: the value's."""
    along = dims[-1] if dims else "N"
    builtin = re.search(r"(?<![.\w])(sum|max|min|any|all|sorted)\(", _span(loc)[1])
    if builtin:
        return f"wd.{'sort' if builtin[1] == 'sorted' else builtin[1]}(x, dim={along})"
    if re.match(r"[\w, ]+=(?!=)", _span(loc)[0]) and "," in _span(loc)[0].partition("=")[0]:
        return "it is one value: of a loop that carries one, and of wd.max, whose indices wd.argmax gives"
    return "loop over a dimension with @wd.iterate(dim, init_args=[…])"


def for_function(loc: Loc | None) -> str:
    """Help where a function of NumPy's, math's or another library's got a value: its name here."""
    _, part = _span(loc)
    if part.endswith("]") and "[" in part:
        return "pass the array as an argument and read it: wd.read(a[index]) gathers"
    name = re.search(r"(?<![.\w])(?:np|numpy|math|torch|cp|jnp|F)\.(\w+)\(", part)
    if name and name[1] in ROWS and ROWS[name[1]].public:
        return f"wd.{ROWS[name[1]].signature}"
    if name and name[1] in _OWN:
        return f"wd.{name[1]}(x, dim=N)"
    if name and name[1] in _ELSEWHERE:
        return _ELSEWHERE[name[1]]
    return "use the functions of wavedsl, for example wd.exp(x)"


def for_attribute(name: str, dims: Sequence[Any]) -> str:
    """Help for an attribute of arrays that values and array arguments do not have; empty where it is another one."""
    if name in ("T", "mT", "transpose", "trans", "t"):
        return "nothing to do: dimensions have names, and wd.write and wd.mma go by them"
    if name in ("shape", "size", "ndim", "numel"):
        along = dims[-1] if dims else "N"
        return f"dims has its dimensions, and a symbol is the extent along it: x / {along}"
    if name in ("stride", "strides", "data_ptr", "is_contiguous", "contiguous"):
        return "nothing to do: strides and alignment are read off the arrays"
    return ""


def for_method(name: str) -> str:
    """Help for a method that values do not have."""
    return _ELSEWHERE.get(name, "it has dims and dtype, Python's operators, and the functions of wavedsl")


def for_whole_number(loc: Loc | None) -> str:
    """Help where Python wanted a whole number (`range`, the place in a list) and got a value."""
    if re.search(r"(?<![.\w])range\(", _span(loc)[1]):
        return (
            "while tracing, the count is not known: wd.while_loop(condition, body, init_args), "
            "or wd.iterate(K, stop=x) over the tiles of a dimension"
        )
    return "while tracing, it is not known: choose with wd.where(x == i, this, that), or read an array at it"


_PHRASES = (
    (r"'(Symbol|Mul|Add|Pow|Integer|Rational|floor|ceiling)' object cannot be interpreted as an integer",
     "a symbol has its value when the kernel is compiled: loop over its tiles with @wd.iterate(K, init_args=[…])"),
    (r"'(Symbol|Mul|Add|Pow)' object is not iterable",
     "loop over the tiles of a dimension with @wd.iterate(K, init_args=[…])"),
    (r"Cannot convert (expression|symbols) to|argument 0 of type (Symbol|Mul|Add|Pow)",
     "a symbol has its value when the kernel is compiled: it is a number as it stands, x + N, and instead of math's "
     "functions there are x * N**-0.5, x / (N - 1)"),
    (r"cannot determine truth value",
     "a symbol has its value when the kernel is compiled: make the kernel in a function that takes a Python number, "
     "or choose while it runs, wd.where(wd.index(M) < K, x, y)"),
    (r"local variable '\w+' (referenced before assignment|where it is not associated)",
     "a function that assigns a name has a variable of its own of that name: values come in as parameters, "
     "@wd.iterate(K, init_args=[x]) above def loop(x), and go out by return"),
    (r"'DType' object is not callable", "numbers take the dtype of their partner; wd.cast(x, wd.f32) casts a value"),
    (r"'ScalarType' object is not callable",
     "a number needs no type: write 1.0; wd.Register[wd.f32](1.0) is a value of it"),
    (r"'MemoryType' object is not callable",
     "an array is an argument of the kernel; a value in registers is wd.Register[M, N, wd.f32](0.0)"),
    (r"RegisterType\.__call__\(\)", "wd.Register[M, N, wd.f32](0.0) has this number everywhere"),
    (r"divmod\(\)", "x // y and x % y"),
    (r"format string passed to Value|unsupported format", "wd.device_print(text, x) prints while the kernel runs"),
    (r"'function' object (is not iterable|does not support the context manager)",
     "decorate a function: @wd.iterate(K, init_args=[…])"),
)  # fmt: skip


_ELSEWHERE = {
    "load": "wd.read(a)", "store": "wd.write(value, c)", "dot": "wd.mma(x, y, acc)", "matmul": "wd.mma(x, y, acc)",
    "dot_scaled": "wd.scaled_mma(x, x_scale, y, y_scale, acc)",
    "make_block_ptr": "wd.Memory[M, K, wd.f16] annotates the array, and wd.read(a) is the tile at hand",
    "make_tensor_descriptor": "wd.Memory[M, K, wd.f16] annotates the array, and wd.read(a) is the tile at hand",
    "advance": "nothing: in a wd.iterate over K, wd.read(a) is the trip's tile",
    "zeros": "wd.Register[M, N, wd.f32](0.0)", "ones": "wd.Register[M, N, wd.f32](1.0)",
    "full": "wd.Register[M, N, wd.f32](value)", "empty": "wd.Register[M, N, wd.f32](0.0)",
    "zeros_like": "x * 0, or wd.Register[M, N, wd.f32](0.0)", "arange": "wd.index(N)",
    "range": "wd.iterate(K, init_args=[…])", "static_range": "Python's range: it runs while the kernel is traced",
    "static_print": "Python's print: it runs while the kernel is traced",
    "static_assert": "Python's assert: it runs while the kernel is traced",
    "program_id": "wd.tile_start(M), the first index of the workgroup's tile, or wd.index(M) of each element",
    "num_programs": "the grid follows from the constraints; M has (M + BM - 1) // BM tiles",
    "cdiv": "(x + y - 1) // y", "swizzle2d": "wd.Schedule(swizzle=True)",
    "log_softmax": "y = x - wd.max(x, dim=N), then y - wd.log(wd.sum(wd.exp(y), dim=N))",
    "mean": "wd.sum(x, dim=N) / N",
    "silu": "x * wd.sigmoid(x)", "square": "x * x", "relu": "wd.maximum(x, 0)", "tan": "wd.sin(x) / wd.cos(x)",
    "gelu": "0.5 * x * (1 + wd.erf(x * 0.5**0.5))", "erfc": "1 - wd.erf(x)", "exp10": "wd.exp2(x * math.log2(10))",
    "sinh": "(wd.expm1(x) - wd.expm1(-x)) / 2", "cosh": "(wd.exp(x) + wd.exp(-x)) / 2",
    "hypot": "wd.sqrt(x * x + y * y)", "cbrt": "wd.pow(x, 1 / 3), of what is not negative",
    "softplus": "wd.maximum(x, 0) + wd.log1p(wd.exp(-wd.abs(x)))", "fmod": "x - y * wd.trunc(x / y)",
    "remainder": "x % y", "nearbyint": "wd.round(x)", "signbit": "wd.bitcast(x, wd.i32) < 0",
    "sign": "wd.where(x > 0, 1.0, wd.where(x < 0, -1.0, x))",
    "copysign": "wd.where(wd.bitcast(y, wd.i32) < 0, -wd.abs(x), wd.abs(x))", "ldexp": "x * wd.exp2(n)",
    "fdiv": "wd.divide(x, y, fast=True)", "div_rn": "x / y, which is rounded correctly",
    "sqrt_rn": "wd.sqrt(x), which is rounded correctly", "rint": "wd.round(x)", "power": "x**y, or wd.pow(x, y)",
    "clip": "wd.clamp(x, low, high)", "umulhi": "wd.mulhi(x, y) of u32", "popc": "wd.popcount(x)",
    "ffs": "wd.where(x != 0, wd.ctz(x) + 1, 0)", "brev": "wd.bit_reverse(x)", "byte_perm": "wd.permute_bytes(x, y, s)",
    "logical_and": "x & y", "logical_or": "x | y", "logical_not": "~x", "logical_xor": "x ^ y",
    "bitwise_and": "x & y", "bitwise_or": "x | y", "bitwise_xor": "x ^ y", "bitwise_not": "~x", "invert": "~x",
    "left_shift": "x << y", "right_shift": "x >> y", "mod": "x % y", "select": "wd.where(condition, x, y)",
    "atomic_sub": "wd.atomic_add(-x, a)", "atomic_inc": "wd.atomic_add(1, a)", "atomic_dec": "wd.atomic_add(-1, a)",
    "atomic_exch": "wd.atomic_xchg(x, a)", "atomic_store": "wd.write(x, a)", "atomic_load": "wd.atomic_or(0, a)",
    "lerp": "x + (y - x) * t", "nan_to_num": "wd.where(wd.isnan(x), 0.0, x)", "norm": "wd.sqrt(wd.sum(x * x, dim=N))",
    "logsumexp": "top = wd.max(x, dim=N), then top + wd.log(wd.sum(wd.exp(x - top), dim=N))",
    "logaddexp": "wd.maximum(x, y) + wd.log1p(wd.exp(-wd.abs(x - y)))",
    "frexp": "wd.bitcast(x, wd.i32) >> 23 & 255, the exponent and 127",
    "count_nonzero": "wd.sum(wd.where(x != 0, 1, 0), dim=N)",
    "cummax": "wd.scan(x, wd.maximum, -math.inf, dim=N)", "cummin": "wd.scan(x, wd.minimum, math.inf, dim=N)",
    "diff": "x - wd.shuffle(x, wd.maximum(wd.index(N) - 1, 0), dim=N), or wd.read(a[wd.index(N) - 1])",
    "unique": "x = wd.sort(x, dim=N), then x != wd.shuffle(x, wd.maximum(wd.index(N) - 1, 0), dim=N)",
    "nonzero": "wd.write(x, out[place]): place is wd.cumsum(wd.cast(condition, wd.i32), dim=N) - 1, or -1 for none",
    "compress": "wd.write(x, out[place]): place is wd.cumsum(wd.cast(condition, wd.i32), dim=N) - 1, or -1 for none",
    "searchsorted": "wd.sum(wd.where(edges < x, 1, 0), dim=V) of a short table; halve a long one in a wd.while_loop",
    "digitize": "wd.sum(wd.where(edges <= x, 1, 0), dim=V)", "bincount": "wd.atomic_add(1, bins[x])",
    "scatter": "wd.write(x, a[index])", "scatter_add": "wd.atomic_add(x, a[index])",
    "index_add": "wd.atomic_add(x, a[index])",
    "cross": "of parts, wd.read(a[:, 0]) to wd.read(a[:, 2]): x1 * y2 - x2 * y1, …",
    "next_power_of_2": "nothing: tiles are what they are, and what does not divide is padded inside",
    "heuristics": "subs={BM: 64}, or @wd.autotune()", "language": "import wavedsl as wd: it is all in one module",
    "xor_sum": "wd.reduce(x, lambda a, b: a ^ b, 0, dim=N)",
    "associative_scan": "wd.scan(x, function, identity, dim=N)", "histogram": "wd.atomic_add with a mapping",
    "gather": "wd.shuffle(x, index, dim=N)", "view": "wd.reshape(x, M, N)", "ravel": "wd.reshape(x, N)",
    "expand_dims": "nothing: dimensions have names, and operators broadcast by them",
    "broadcast_to": "wd.broadcast(x, M, N); operators do so by themselves", "tile": "wd.broadcast(x, M, N)",
    "trans": "nothing: dimensions have names, and mma and write go by them",
    "transpose": "nothing: dimensions have names, and mma and write go by them",
    "cat": "wd.write(x, out[:, :N]) and wd.write(y, out[:, N:]), of an array of 2 * N",
    "concatenate": "wd.write(x, out[:, :N]) and wd.write(y, out[:, N:]), of an array of 2 * N",
    "concat": "wd.write(x, out[:, :N]) and wd.write(y, out[:, N:]), of an array of 2 * N",
    "hstack": "wd.write(x, out[:, :N]) and wd.write(y, out[:, N:]), of an array of 2 * N",
    "vstack": "wd.write(x, out[:, :N]) and wd.write(y, out[:, N:]), of an array of 2 * N",
    "join": "wd.write(x, out[:, ::2]) and wd.write(y, out[:, 1::2]), of an array of 2 * N",
    "interleave": "wd.write(x, out[:, ::2]) and wd.write(y, out[:, 1::2]), of an array of 2 * N",
    "split": "wd.read(a[:, ::2]) and wd.read(a[:, 1::2]), of an array of 2 * N",
    "rand": "wd.random(seed, M, N)", "randint": "wd.random(seed, M, N, dtype=wd.u32)",
    "randint4x": "wd.random(seed, M, N, dtype=wd.u32) at several offset=",
    "float16": "wd.f16", "float32": "wd.f32", "float64": "wd.f64", "bfloat16": "wd.bf16", "float8e4nv": "wd.f8e4m3",
    "float8e5": "wd.f8e5m2", "float8_e4m3fn": "wd.f8e4m3", "float8_e5m2": "wd.f8e5m2", "int8": "wd.i8",
    "int16": "wd.i16", "int32": "wd.i32", "int64": "wd.i64", "uint8": "wd.u8", "uint16": "wd.u16", "uint32": "wd.u32",
    "uint64": "wd.u64", "int1": "wd.i1", "bool": "wd.i1", "astype": "wd.cast(x, wd.f16)", "to": "wd.cast(x, wd.f16)",
    "barrier": "nothing: waits and barriers are placed by the compiler",
    "debug_barrier": "nothing: waits and barriers are placed by the compiler",
    "syncthreads": "nothing: waits and barriers are placed by the compiler",
    "syncwarp": "nothing: waits and barriers are placed by the compiler",
    "barrier_arrive": "nothing: waits and barriers are placed by the compiler",
    "add": "x + y", "sub": "x - y", "mul": "x * y", "div": "x / y", "subtract": "x - y", "multiply": "x * y",
    "true_divide": "x / y", "floor_divide": "x // y", "negative": "-x", "greater": "x > y", "less": "x < y",
    "equal": "x == y", "outer": "x * y: dimensions have names, and operators broadcast by them",
    "einsum": "wd.mma(x, y, acc), which contracts by names", "tensordot": "wd.mma(x, y, acc), which contracts by names",
    "gemm": "wd.mma(x, y, acc)", "bitonic_merge": "wd.sort(x, dim=N)", "argsort": "wd.topk(x, K, dim=N) gives indices",
    "reduce_or": "wd.reduce(x, lambda a, b: a | b, 0, dim=N)", "map_elementwise": "a plain function of values",
    "inline_asm_elementwise": "nothing: there is no inline assembly", "printf": "wd.device_print(text, x)",
    "load_tensor_descriptor": "wd.read(a)", "store_tensor_descriptor": "wd.write(value, c)",
    "copy": "wd.read(a) and wd.write(value, c): how tiles travel is derived",
    "cp_async": "wd.read(a): copies ahead are derived, wd.Schedule(stages=3) fixes their number",
    "local_tile": "wd.WorkgroupConstraint(M, BM, 0): wd.read(a) is the tile",
    "local_partition": "wd.WaveConstraint(M, BM / 4)",
    "zipped_divide": "wd.WorkgroupConstraint(M, BM, 0): wd.read(a) is the tile",
    "make_layout": "nothing: layouts are derived", "make_tensor": "wd.Memory[M, K, wd.f16] annotates the array",
    "elect_one": "nothing: which lanes copy is derived", "shared": "wd.Memory[M, K, wd.SHARED, wd.f16]",
    "pointer_type": "wd.Memory[M, wd.f16] annotates the array", "tensor": "wd.Memory[M, wd.f16] annotates the array",
    "block_type": "wd.Register[M, N, wd.f16] annotates a value",
    "const": "nothing: what is written follows from the kernel",
    "threadIdx": "wd.index(M), each element's own index", "blockIdx": "wd.tile_start(M), the tile's first index",
    "blockDim": "the constraints' tiles", "gridDim": "the grid follows from the constraints", "laneid": "wd.index(M)",
    "thread_idx": "wd.index(M), each element's own index", "block_idx": "wd.tile_start(M), the tile's first index",
    "shfl_sync": "wd.shuffle(x, wd.index(N) ^ 1, dim=N)", "ballot_sync": "wd.any(x, dim=N)",
    "squeeze": "nothing: dimensions have names, and a reduction takes its own away",
    "unsqueeze": "nothing: dimensions have names, and operators broadcast by them",
    "newaxis": "nothing: dimensions have names, and operators broadcast by them",
    "swapaxes": "nothing: dimensions have names, and mma and write go by them",
    "stack": "wd.write(x, out[:, :N]) and wd.write(y, out[:, N:]), of an array of 2 * N",
    "pad": "nothing: what lies beyond an end is absent", "roll": "wd.shuffle(x, (wd.index(N) - 1) % N, dim=N)",
    "take": "wd.shuffle(x, index, dim=N); of an array, wd.read(a, mapping=wd.IndexMapping((T, D), {V: ids}))",
    "embedding": "wd.read(table, mapping=wd.IndexMapping((T, D), {V: ids}))",
    "repeat": "wd.repeat_interleave(x, K)", "linspace": "wd.index(N) of a cast times the step",
    "tril": "wd.where(wd.index(M) >= wd.index(N), x, 0.0)", "triu": "wd.where(wd.index(M) <= wd.index(N), x, 0.0)",
    "eye": "wd.where(wd.index(M) == wd.index(N), wd.Register[M, N, wd.f32](1.0), 0.0)",
    "dropout": "wd.where(wd.random(seed, M, N) < p, 0.0, x / (1 - p))", "isclose": "wd.abs(x - y) < 1e-5",
    "var": "d = x - wd.sum(x, dim=N) / N, then wd.sum(d * d, dim=N) / N",
    "std": "d = x - wd.sum(x, dim=N) / N, then wd.sqrt(wd.sum(d * d, dim=N) / N)",
    "layer_norm": "d = x - wd.sum(x, dim=N) / N, then d * wd.rsqrt(wd.sum(d * d, dim=N) / N + eps)",
    "acosh": "wd.log(x + wd.sqrt(x * x - 1))", "asinh": "wd.log(x + wd.sqrt(x * x + 1)), of what is not negative",
    "atanh": "(wd.log1p(x) - wd.log1p(-x)) / 2", "fdim": "wd.maximum(x - y, 0)", "sinpi": "wd.sin(x * math.pi)",
    "cospi": "wd.cos(x * math.pi)", "float_as_int": "wd.bitcast(x, wd.i32)", "int_as_float": "wd.bitcast(x, wd.f32)",
    "fast_expf": "wd.exp(x)", "fast_logf": "wd.log(x)", "fast_cosf": "wd.cos(x)", "fast_sinf": "wd.sin(x)",
    "fast_dividef": "wd.divide(x, y, fast=True)", "finitef": "wd.isfinite(x)", "isfinited": "wd.isfinite(x)",
    "hadd": "(x & y) + ((x ^ y) >> 1)", "mul24": "x * y", "powi": "x**y", "sad": "wd.abs(x - y) + z",
    "rcp_rn": "1 / x, which is rounded correctly", "rsqrt_rn": "1 / wd.sqrt(x)", "rcbrt": "wd.pow(x, -1 / 3)",
    "saturatef": "wd.clamp(x, 0.0, 1.0)", "scalbn": "x * wd.exp2(n)", "llrint": "wd.cast(wd.round(x), wd.i64)",
    "rhypot": "wd.rsqrt(x * x + y * y)", "norm3d": "wd.sqrt(x * x + y * y + z * z)",
    "libdevice": "the functions are in wavedsl itself: wd.exp(x)",
    "extra": "the functions are in wavedsl itself: wd.exp(x)",
    "rand4x": "wd.random(seed, M, N) at several offset=", "randn4x": "wd.randn(seed, M, N) at several offset=",
    "float8e4b8": "wd.f8e4m3fnuz", "float8e5b16": "wd.f8e5m2fnuz", "float8e4b15": "wd.f8e4m3: that one is nowhere else",
    "multiple_of": "nothing: strides and alignment are read off the arrays",
    "max_contiguous": "nothing: strides and alignment are read off the arrays",
    "max_constancy": "nothing: strides and alignment are read off the arrays",
    "assume": "nothing: strides and alignment are read off the arrays", "constexpr": "subs={BM: 64}",
    "jit": "@wd.wave([wd.WorkgroupConstraint(M, BM, 0)])", "kernel": "@wd.wave([wd.WorkgroupConstraint(M, BM, 0)])",
    "Config": "@wd.autotune()",
}  # fmt: skip
"""What other array languages call something → how it is written here."""


_MASKED = {
    "read": "what lies beyond an end is left out by itself; for others, wd.where(condition, wd.read(a), 0.0)",
    "write": "what lies beyond an end is skipped by itself; for others, an index outside of the array skips: "
    "mapping=wd.IndexMapping((N,), {N: wd.where(condition, wd.index(N), -1)})",
}


_OPTIONS = {
    "num_stages": "stages are of @wd.wave: schedule=wd.Schedule(stages=3)",
    "warp_specialize": "copying waves are of @wd.wave: schedule=wd.Schedule(specialize=True)",
    "loop_unroll_factor": "nothing: how far a loop is unrolled is derived",
    "unroll": "nothing: how far a loop is unrolled is derived", "flatten": "nothing: the compiler arranges loops",
    "trip_count": "the trips follow from wd.TilingConstraint(K, BK), or start= and stop=",
    "eviction_policy": "cache", "cache_modifier": "cache", "volatile": "cache",
    "boundary_check": "nothing: what lies beyond an end is left out by itself",
    "padding_option": "nothing: what lies beyond an end is left out by itself",
    "input_precision": "precision", "allow_tf32": "precision", "accumulator": "acc", "init": "init_args",
    "out_dtype": "acc=wd.Register[M, N, wd.f32](0.0): sums have its dtype",
    "trans_b": "nothing: an array's annotation says how it lies, Memory[K, N, …] or Memory[N, K, …]",
    "transpose_b": "nothing: an array's annotation says how it lies, Memory[K, N, …] or Memory[N, K, …]",
    "sem": "wd.fence() orders writes before and after an atomic", "scope": "nothing: atomics are the whole device's",
    "return_indices": "wd.argmax(x, dim=N)", "bitcast": "wd.bitcast(x, wd.i32)",
    "fp_downcast_rounding": "rounding", "exclusive": "without the element itself: wd.cumsum(x, dim=N) - x",
}  # fmt: skip
"""What functions of other kernel languages take → the option here, or how it is said."""


def for_missing(name: str, module: str) -> str:
    """Help for a name that a module has not: of wavedsl, what somebody means who knows it from elsewhere."""
    return _ELSEWHERE.get(name, "") if module in ("wavedsl", "wavedsl.language") else ""


def for_index(loc: Loc | None, dims: Sequence[Any]) -> str:
    """Help where a value was indexed: with None for broadcasting, at an element, or elsewhere."""
    key = re.search(r"\[([^][]*)\]$", _span(loc)[1])
    if key and re.search(r"\bNone\b|np\.newaxis", key[1]):
        return "nothing to do: dimensions have names, and x + y broadcasts by them"
    last = dims[-1] if dims else "N"
    if key and re.search(r"(^|,)\s*-?\w+\s*(,|$)", key[1]):
        return (
            f"wd.extract(x, {{{last}: 3}}) is one element along {last}, wd.shuffle(x, index, dim={last}) those of an "
            "index; other elements of an array: wd.read(a[index, :])"
        )
    return "index the array, not what is read of it: wd.read(a[…])"


def for_exception(text: str, frame: FrameType | None, loc: Loc | None = None) -> str:
    """Help for a TypeError of Python's in the user's code: what to write instead, or how the function is called."""
    chosen = re.search(r"(?<![.\w])(max|min)\(", _span(loc)[1])
    if chosen and "determine truth value" in text:
        return f"wd.{chosen[1]}imum(N, 3), an i32 of symbols, or of values"
    for phrase, advice in _PHRASES:
        if re.search(phrase, text):
            return advice
    if re.search(r"does not support ufuncs", text):
        return for_function(loc)
    masked = re.match(r"(?:\w+\.)*(read|write)\(\) got an unexpected keyword argument '(mask|other)'", text)
    if masked:
        return _MASKED[masked[1]]
    along = re.match(r"(?:\w+\.)*(\w+)\(\) got an unexpected keyword argument '(axis|axes|keepdims|keep_dims)'", text)
    if along and along[2].startswith("axis"):
        return f"a dimension has a name: wd.{along[1]}(x, dim=N)"
    if along and along[2].startswith("keep"):
        return f"leave {along[2]} out: what lacks a dimension broadcasts along it"
    called = re.match(r"(?:\w+\.)*?(\w+?)(?:\.__init__)?\(\) (got|missing|takes)", text)
    strange = re.search(r"got an unexpected keyword argument '(\w+)'", text)
    function = None
    if called and frame is not None:
        function = getattr(frame.f_globals.get("wd"), called[1], None) or frame.f_globals.get(called[1])
    if function is None or not getattr(function, "__module__", "").startswith("wavedsl"):
        return ""
    whole = _signature(called[1] if called else "", function)
    if strange is None:
        return whole
    instead = option(strange[1], list(inspect.signature(function).parameters), _OPTIONS)
    return f"{instead}: {whole}" if instead.endswith("=…") else instead or whole


def _signature(name: str, function: Any) -> str:
    """`wd.write(value, mem, *, mapping=None)`: the parameters without their types."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"wd.{name}{inspect.Signature(bare)}"
