"""What to write instead: help for Python's constructs that have no meaning on traced values, from the user's own text.

In comes the location of the mistake, and for an exception of Python's its words; out comes the help of the error's last
line. Where the source is not at hand (a kernel from `exec`), the general advice is given.
"""

from __future__ import annotations

import inspect
import re
from types import FrameType
from typing import Any

from wavedsl.ir.loc import Loc


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
    if re.search(r"[<>]=?[^<>=()]*[<>]=?", part):
        return "write the two comparisons out: (low < x) & (x < high)"
    if line.startswith("while "):
        return "wd.while_loop(condition, body, init_args) repeats for the whole workgroup; per element: wd.where"
    if single:
        return "for the whole workgroup: wd.cond(condition, then, otherwise); per element: wd.where(condition, x, y)"
    return "choose per element: wd.where(condition, x, y)"


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
     "a symbol has its value when the kernel is compiled: instead of math's functions write x * N**-0.5, x / (N - 1)"),
    (r"cannot determine truth value",
     "a symbol has its value when the kernel is compiled: wd.where(wd.index(M) < K, x, y)"),
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
    (r"does not support ufuncs", "use the functions of wavedsl instead of NumPy's: wd.exp(x)"),
)  # fmt: skip


_ELSEWHERE = {
    "load": "wd.read(a)", "store": "wd.write(value, c)", "dot": "wd.mma(x, y, acc)", "matmul": "wd.mma(x, y, acc)",
    "zeros": "wd.Register[M, N, wd.f32](0.0)", "ones": "wd.Register[M, N, wd.f32](1.0)",
    "full": "wd.Register[M, N, wd.f32](value)", "empty": "wd.Register[M, N, wd.f32](0.0)",
    "zeros_like": "x * 0, or wd.Register[M, N, wd.f32](0.0)", "arange": "wd.index(N)",
    "range": "wd.iterate(K, init_args=[…])",
    "program_id": "wd.tile_start(M), the first index of the workgroup's tile, or wd.index(M) of each element",
    "mean": "wd.sum(x, dim=N) / N", "softmax": "e = wd.exp(x - wd.max(x, dim=N)), then e / wd.sum(e, dim=N)",
    "log1p": "wd.log(1 + x)", "expm1": "wd.exp(x) - 1", "silu": "x * wd.sigmoid(x)", "square": "x * x",
    "gelu": "0.5 * x * (1 + wd.erf(x * 0.5**0.5))", "prod": "wd.reduce(x, lambda a, b: a * b, 1.0, dim=N)",
    "cumprod": "wd.scan(x, lambda a, b: a * b, 1.0, dim=N)", "flip": "wd.shuffle(x, N - 1 - wd.index(N), dim=N)",
    "cdiv": "(x + y - 1) // y", "histogram": "wd.atomic_add with a mapping", "gather": "wd.shuffle(x, index, dim=N)",
    "relu": "wd.maximum(x, 0)", "transpose": "nothing: dimensions have names, and mma and write go by them",
    "float16": "wd.f16", "float32": "wd.f32", "float64": "wd.f64", "bfloat16": "wd.bf16", "int8": "wd.i8",
    "int32": "wd.i32", "int64": "wd.i64", "bool": "wd.i1", "astype": "wd.cast(x, wd.f16)", "to": "wd.cast(x, wd.f16)",
    "barrier": "nothing: waits and barriers are placed by the compiler", "constexpr": "subs={BM: 64}",
}  # fmt: skip
"""What other array languages call something → how it is written here."""


_MASKED = {
    "read": "what lies beyond an end is left out by itself; for others, wd.where(condition, wd.read(a), 0.0)",
    "write": "what lies beyond an end is skipped by itself; for others, an index outside of the array skips: "
    "mapping=wd.IndexMapping((N,), {N: wd.where(condition, wd.index(N), -1)})",
}


def for_missing(name: str, module: str) -> str:
    """Help for a name that a module has not: of wavedsl, what somebody means who knows it from elsewhere."""
    return _ELSEWHERE.get(name, "") if module == "wavedsl" else ""


def for_exception(text: str, frame: FrameType | None) -> str:
    """Help for a TypeError of Python's in the user's code: what to write instead, or how the function is called."""
    for phrase, advice in _PHRASES:
        if re.search(phrase, text):
            return advice
    masked = re.match(r"(?:\w+\.)*(read|write)\(\) got an unexpected keyword argument '(mask|other)'", text)
    if masked:
        return _MASKED[masked[1]]
    called = re.match(r"(?:\w+\.)*?(\w+?)(?:\.__init__)?\(\) (got|missing|takes)", text)
    function = None
    if called and frame is not None:
        function = getattr(frame.f_globals.get("wd"), called[1], None) or frame.f_globals.get(called[1])
    if function is None or not getattr(function, "__module__", "").startswith("wavedsl"):
        return ""
    return _signature(called[1] if called else "", function)


def _signature(name: str, function: Any) -> str:
    """`wd.write(value, mem, *, mapping=None)`: the parameters without their types."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"wd.{name}{inspect.Signature(bare)}"
