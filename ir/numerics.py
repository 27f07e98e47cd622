"""The accuracy contract: how far a chip's result may lie from the exact one, per operation and vendor.

In: an operation's name, a vendor or target, its exact operands and result. Out: the largest allowed error. The tables
of docs/numerics.md are printed from here (`table`), and tests derive their tolerances from here. The evaluator's own
results are the exact ones, rounded once, so a bound of 0 ulp means equal bits.

A bound is `ulp + per_argument * |x|` units in the last place of the result, or `absolute`, whichever allows more; x is
the exponent that the operation feeds to exp2. `flushes` says that denormal inputs and results may become zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.ir.dtypes import DType, f32, f64
from wavedsl.ir.quick_dataclass import dataclass

EXACT_OPS = (
    "add", "sub", "mul", "div", "neg", "abs", "fma", "sqrt", "floor", "ceil", "trunc", "round", "minimum", "maximum",
    "clamp", "where", "floordiv", "mod", "cast", "bitcast", "max", "min",
)  # fmt: skip
"""Operations whose result is the exact one rounded once (so: the same bits) on every chip. `mod` and `floordiv` of
floats are exact where the quotient is below 2^23."""


@dataclass(frozen=True)
class Bound:
    """Largest error of one f32 operation on one vendor's chips, and where the figure comes from."""

    ulp: float
    per_argument: float = 0.0
    absolute: float = 0.0
    flushes: bool = False
    source: str = ""


_ISA = "the PTX manual's maximum error of the .approx instruction, rounded up; not measured here"
_AMD = "1 ulp per instruction; not measured here"
_DERIVED = "from the rows above and the formula the compiler uses"

BOUNDS: dict[str, dict[str, Bound]] = {
    "exp2": {"amd": Bound(1, flushes=True, source=_AMD), "nvidia": Bound(3, flushes=True, source=_ISA)},
    "log2": {
        "amd": Bound(2, absolute=2.0**-22, flushes=True, source=_AMD),
        "nvidia": Bound(4, absolute=2.0**-22, source=_ISA),
    },
    "reciprocal": {"amd": Bound(1, source=_AMD), "nvidia": Bound(1, source=_ISA)},
    "rsqrt": {"amd": Bound(1, flushes=True, source=_AMD), "nvidia": Bound(3, source=_ISA)},
    "sin": {"amd": Bound(1, absolute=2.0**-19, source=_AMD), "nvidia": Bound(1, absolute=2.0**-19, source=_ISA)},
    "cos": {"amd": Bound(1, absolute=2.0**-19, source=_AMD), "nvidia": Bound(1, absolute=2.0**-19, source=_ISA)},
    # exp(x) = exp2(x log2 e): half an ulp of the product is |x| log2(e) 2^-24 in the exponent.
    "exp": {
        "amd": Bound(3, 1.5, flushes=True, source=_DERIVED),
        "nvidia": Bound(5, 1.5, flushes=True, source=_DERIVED),
    },
    # exp(x) - 1 from 1/2 on is no smaller than half of exp(x); Taylor's series below.
    "expm1": {"amd": Bound(7, 3, source=_DERIVED), "nvidia": Bound(11, 3, source=_DERIVED)},
    "log": {
        "amd": Bound(4, absolute=2.0**-22, flushes=True, source=_DERIVED),
        "nvidia": Bound(6, absolute=2.0**-22, source=_DERIVED),
    },
    # pow(x, y) = exp2(y log2 x): a relative error of the exponent is multiplied by the exponent.
    "log10": {
        "amd": Bound(4, absolute=2.0**-22, flushes=True, source=_DERIVED),
        "nvidia": Bound(6, absolute=2.0**-22, source=_DERIVED),
    },
    # log2(1 + x) away from 1: 2^-22 and what 1 + x rounds are 8 ulp of 0.34; 2 atanh(x / (2 + x)) around 1.
    "log1p": {"amd": Bound(10, source=_DERIVED), "nvidia": Bound(12, source=_DERIVED)},
    "pow": {
        "amd": Bound(4, 8, flushes=True, source=_DERIVED),
        "nvidia": Bound(6, 12, flushes=True, source=_DERIVED),
    },
    "sigmoid": {
        "amd": Bound(5, 1.5, absolute=2.0**-126, flushes=True, source=_DERIVED),
        "nvidia": Bound(7, 1.5, absolute=2.0**-126, flushes=True, source=_DERIVED),
    },
    "tanh": {
        "amd": Bound(8, absolute=2.0**-22, source=_DERIVED),
        "nvidia": Bound(10, absolute=2.0**-22, source=_DERIVED),
    },
    # A quotient that is exact but for half an ulp, one that is not, and three sums.
    **{op: {v: Bound(5, source=_DERIVED) for v in ("amd", "nvidia")} for op in ("atan", "atan2")},
    **{op: {v: Bound(7, source=_DERIVED) for v in ("amd", "nvidia")} for op in ("asin", "acos")},
    "erf": {
        "amd": Bound(16, absolute=2.0**-21, source=_DERIVED),
        "nvidia": Bound(16, absolute=2.0**-21, source=_DERIVED),
    },
}
"""Bounds of f32 operations that chips only approximate. f16 and bf16 are computed in f32 and rounded once."""

FAST_BOUNDS: dict[str, dict[str, Bound]] = {
    "div": {"amd": Bound(3, flushes=True, source=_DERIVED), "nvidia": Bound(3, source=_DERIVED)},
    "reciprocal": {"amd": Bound(1, flushes=True, source=_AMD), "nvidia": Bound(1, source=_ISA)},
    "sqrt": {"amd": Bound(1, flushes=True, source=_AMD), "nvidia": Bound(1, source=_ISA)},
    # 1 - 2 / (E + 1): the error of E, 8 ulp where it counts most, is halved; the difference is as large as 1.
    "tanh": {
        "amd": Bound(2, absolute=2.0**-20, source=_DERIVED),
        "nvidia": Bound(2, absolute=2.0**-20, source=_DERIVED),
    },
}
"""Bounds of what `fast` changes. `div` and `reciprocal` hold for divisors of 2^-126 to 2^126."""

F64_BOUNDS: dict[str, float] = {
    **dict.fromkeys(("exp", "exp2", "log", "log1p", "log2", "log10", "pow", "sin", "cos", "erf"), 1.0),
    "expm1": 2.0,
    "atan": 2.0,
    "atan2": 2.0,
    "asin": 3.0,
    "acos": 3.0,
    "rsqrt": 2.0,
    "tanh": 3.0,
    "sigmoid": 3.0,
}
"""Largest error of f64 functions in ulp, denormal results included: polynomials whose results have the same bits on
every chip (`lower_f64.py`), and for `rsqrt` a root and a quotient. Half an ulp of the last addition, what a reduction
leaves and the polynomial's own error make less than 1; `tanh` and `sigmoid` divide two such results. `reciprocal` is
exact."""

VENDORS = ("amd", "nvidia")


def vendor(target: str) -> str:
    """`amd` or `nvidia`, from a target's name."""
    return "amd" if target.startswith("gfx") or target == "amd" else "nvidia"


def ulp(x: Any, dtype: DType) -> Any:
    """The distance between neighbouring numbers of `dtype` at |x|, as f64 (the smallest denormal around zero)."""
    smallest = {"f64": -1074, "f32": -149, "tf32": -136, "f16": -24, "bf16": -133}
    magnitude = np.abs(np.asarray(x, np.float64))
    exponent = np.where(magnitude == 0, -2000, np.frexp(magnitude)[1])
    return np.ldexp(1.0, np.maximum(exponent - 1 - dtype.mantissa, smallest.get(dtype.name, -149)))


def tolerance(op: str, target: str, dtype: DType, exact: Any, argument: Any = 0.0, fast: bool = False) -> Any:
    """Largest allowed |result - exact| of `op` in `dtype` on `target`.

    `exact` is the result in f64; `argument` the exponent given to exp2, for exp, pow and sigmoid. f16 and bf16 results
    carry the f32 error and half an ulp of their own.
    """
    exact = np.asarray(exact, np.float64)
    own = 0.5 * ulp(exact, dtype)
    if dtype is f64:
        return own if op in EXACT_OPS or op == "reciprocal" else F64_BOUNDS[op] * ulp(exact, f64)
    fast = fast and op in FAST_BOUNDS
    if op in EXACT_OPS and not fast:
        return own
    bound = (FAST_BOUNDS if fast else BOUNDS)[op][vendor(target)]
    units = bound.ulp + bound.per_argument * np.abs(np.asarray(argument, np.float64))
    error = np.maximum(units * ulp(exact, f32), bound.absolute)
    if bound.flushes:
        error = np.maximum(error, 2.0**-126)
    return error if dtype is f32 else error + own


PRECISION: dict[str | None, tuple[int, float, float]] = {
    None: (1, 0.0, 0.0),
    "ieee": (1, 0.0, 0.0),
    "tf32": (1, 0.0, 2.0**-9 + 2.0**-20),
    "3xtf32": (3, 20.0, 0.0),
}
"""Precision of a product of f32 → (terms in its sum per element of K, roundings to f32 and share of Σ|a||b| that come
to the error of the sum). `tf32`: each operand is cut at 10 mantissa bits. `3xtf32`: what two tf32 numbers leave of an
operand is below 2^-22 of it, and so is the product of the remainders: three times 2^-22, and their roundings."""


def mma_tolerance(
    k: int, magnitude: Any, accumulator: DType, output: DType | None = None, exact: Any = 0.0,
    precision: str | None = None, promoted: int | None = None,
) -> Any:  # fmt: skip
    """Largest allowed error of a sum of `k` products with Σ|a||b| = `magnitude`, plus the rounding of the output.

    (k + 8) units roundoff of the accumulator per Σ|a||b|, whatever the order of the sum; whole numbers that the
    accumulator holds exactly come out exact. `precision`: what was asked for of a product of f32. `promoted`: products
    of so many elements of K at most start from zero, and a sum in f32 adds them: each part errs by its own terms, of
    its own magnitude, and each addition by one unit of all.
    """
    if accumulator.is_int:
        return np.zeros_like(np.asarray(magnitude, np.float64))
    terms, roundings, share = PRECISION[precision]
    added = terms * k if promoted is None else min(terms * k, terms * promoted + -(-k // promoted))
    unit = (added + 8 + roundings) * 2.0 ** -(accumulator.mantissa + 1)
    error = (unit + share) * np.asarray(magnitude, np.float64)
    if output is not None and output is not accumulator:
        error = error + 0.5 * ulp(np.abs(exact) + error, output)
    return error


def table(fast: bool = False) -> str:
    """The bounds as a Markdown table, for docs/numerics.md."""
    out = [f"| f32 operation{', `fast`' if fast else ''} | AMD | NVIDIA |", "|---|---|---|"]
    for op, row in (FAST_BOUNDS if fast else BOUNDS).items():
        out.append(f"| `{op}` | " + " | ".join(_words(row[v]) for v in VENDORS) + " |")
    return "\n".join(out)


def f64_table() -> str:
    """The bounds of f64 functions as a Markdown table, for docs/numerics.md."""
    rows: dict[float, list[str]] = {}
    for op, units in F64_BOUNDS.items():
        rows.setdefault(units, []).append(f"`{op}`")
    out = ["| f64 operation | every chip |", "|---|---|"]
    return "\n".join(out + [f"| {', '.join(ops)} | {units:g} ulp |" for units, ops in rows.items()])


def _words(bound: Bound) -> str:
    text = f"{bound.ulp:g}" + (f" + {bound.per_argument:g}·\\|x\\|" if bound.per_argument else "") + " ulp"
    if bound.absolute:
        text += f" or 2^{int(np.log2(bound.absolute))}"
    return text + (", denormals to 0" if bound.flushes else "")
