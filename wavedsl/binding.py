"""Binding: from arguments, `subs` and `dynamic` to a value for every symbol of a kernel.

In: a kernel's parameters and anything with `shape` and `dtype` (NumPy, torch, CuPy and what wraps them). Out: a
`Binding` with an int, DYNAMIC or an address space per symbol, or an error that names the argument and what would fit.
Extents of sub-byte arrays are counted in elements although their storage is bytes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from wavedsl.ir import dtypes as dt
from wavedsl.ir.called import Argument
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError, LaunchError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.source import here
from wavedsl.ir.symbols import DYNAMIC, AddressSpace, Dynamic, evaluate, names, normalise, solve
from wavedsl.tracer.annotations import MemoryType


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter as declared: its name, its MemoryType or ScalarType, where it stands, its default if any."""

    name: str
    annotation: Any
    loc: Loc | None
    default: Any = inspect.Parameter.empty

    @property
    def dtype(self) -> DType:
        return self.annotation.dtype

    def free_dims(self, subs: Mapping[Any, Any]) -> set[Any]:
        """Symbols in the extents of an array argument; none for a scalar."""
        if not isinstance(self.annotation, MemoryType):
            return set()
        axes, _ = self.annotation.resolve(subs)
        return {s for d in axes for s in d.free_symbols}


@dataclass(frozen=True)
class Binding:
    """Values for a kernel's symbols, and its arguments by name (empty where it is compiled without arrays).

    `dims` maps each symbol to an int, DYNAMIC or an AddressSpace; `extents` holds dynamic symbols' actual extents.
    """

    dims: dict[Any, Any]
    arguments: dict[str, Any]
    extents: dict[Any, int]


_ELSEWHERE = {
    "num_warps": "the division of tiles over waves is a constraint of @wd.wave: wd.WaveConstraint(M, BM / 4)",
    "num_stages": "stages are of @wd.wave: schedule=wd.Schedule(stages=3)",
    "grid": "the grid follows from the constraints",
    "stream": "a call goes to the current stream of its arrays' package",
    "subs": "symbols are bound by @wd.wave(…, subs={BN: 64}), or kernel.compile(…, subs=…)",
    "target": "a call runs on its arrays' device; kernel.compile(…, target=…) gives text for another",
}
"""What other languages' launches take → what it is here."""


def _instead(key: str, call: str) -> str:
    """Help for an argument that a kernel does not have."""
    if key in _ELSEWHERE:
        return f"{call}; {_ELSEWHERE[key]}"
    if key.isupper():
        return f"{call}; a symbol's value is the arrays', or in @wd.wave(…, subs={{{key}: …}})"
    return call


def bind_arguments(name: str, parameters: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict:
    """Arguments by parameter name, as Python would bind them; LaunchError where a call does not fit the signature."""
    declared = ", ".join(p.name for p in parameters)
    if len(args) > len(parameters):
        raise LaunchError(
            f"{name} takes {len(parameters)} arguments, got {len(args)}",
            parameters[-1].loc if parameters else None,
            hint=f"{name}({declared})",
        )
    bound = {p.name: value for p, value in zip(parameters, args)}
    known = {p.name for p in parameters}
    for key, value in kwargs.items():
        if key not in known:
            raise LaunchError(
                f"{name} has no parameter {key}", here(calls=False), hint=_instead(key, f"{name}({declared})")
            )
        if key in bound:
            raise LaunchError(f"{name} got two values for {key}", here(calls=False), hint=f"{name}({declared})")
        bound[key] = value
    missing: list[Parameter] = []
    for p in parameters:
        if p.name not in bound:
            if p.default is inspect.Parameter.empty:
                missing.append(p)
            else:
                bound[p.name] = p.default
    if missing:
        lacking = ", ".join(p.name for p in missing)
        raise LaunchError(f"{name} lacks a value for {lacking}", missing[0].loc, hint=f"{name}({declared})")
    return {p.name: bound[p.name] for p in parameters}


def check_subs(subs: Any, loc: Loc | None = None) -> dict[Any, Any]:
    """A user's `subs` with normalised symbols; values are ints, address spaces, or expressions over other entries."""
    if subs is None:
        return {}
    if not isinstance(subs, Mapping):
        raise ConstraintError(f"subs is {subs!r}", loc, hint="a dict from symbols to numbers: subs={BM: 64}")
    found: dict[Any, Any] = {}
    for key, value in subs.items():
        if isinstance(key, str):
            key = sympy.Symbol(key)
        if not isinstance(key, sympy.Symbol):
            raise ConstraintError(f"subs has {key!r} as a key", loc, hint="keys are symbols: subs={BM: 64}")
        key = normalise(key)
        if isinstance(value, AddressSpace):
            found[key] = value
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            found[key] = int(value)
        elif isinstance(value, sympy.Expr):
            found[key] = int(value) if value.is_Integer else normalise(value)
        else:
            raise ConstraintError(
                f"subs binds {key} to {value!r}",
                loc,
                hint="a whole number, or wd.SHARED or wd.GLOBAL for an address space",
            )
    for _ in found:  # entries may use each other; each pass resolves at least one
        pending = {k: v for k, v in found.items() if isinstance(v, sympy.Expr) and not v.is_number}
        if not pending:
            break
        for key, value in pending.items():
            known = {s: found[s] for s in value.free_symbols if s in found and s != key}
            value = value.xreplace({s: normalise(v) if isinstance(v, int) else v for s, v in known.items()})
            found[key] = int(value) if value.is_Integer else value
    for key, value in found.items():
        if isinstance(value, sympy.Expr):
            raise ConstraintError(
                f"subs binds {key} to {value}",
                loc,
                hint="a whole number, or an expression over symbols that subs binds; "
                f"where a name may stand, so may {value} itself",
            )
        if isinstance(value, int) and value < 0:
            raise ConstraintError(f"subs binds {key} to {value}", loc, hint="sizes are not negative")
    return found


_TORCH = {
    "float64": dt.f64, "float32": dt.f32, "float16": dt.f16, "bfloat16": dt.bf16, "int64": dt.i64, "int32": dt.i32,
    "int16": dt.i16, "int8": dt.i8, "uint64": dt.u64, "uint32": dt.u32, "uint16": dt.u16, "uint8": dt.u8, "bool": dt.i1,
    "float8_e4m3fn": dt.f8e4m3, "float8_e5m2": dt.f8e5m2, "float8_e4m3fnuz": dt.f8e4m3fnuz,
    "float8_e5m2fnuz": dt.f8e5m2fnuz, "float8_e8m0fnu": dt.f8e8m0,
}  # fmt: skip
"""Names of dtypes outside NumPy (torch's are `torch.<name>`)."""


def dtype_name(array: Any) -> str:
    """The name of an array's dtype, without the package that it is from."""
    text = getattr(array.dtype, "name", None) or str(array.dtype)
    return text.rsplit(".", 1)[-1]


def storage_name(dtype: DType) -> str:
    """The name of the NumPy (ml_dtypes) dtype that an argument of `dtype` has."""
    return dtype.storage.name


def check_array(
    kernel: str, p: Parameter, array: Any, dims: Sequence[Any], *, float64: bool = False
) -> tuple[int, ...]:
    """The shape of an argument in elements, its dtype and rank checked.

    `float64` also admits f64 arrays for every float: the evaluator's reference mode.
    """
    declared = f"{p.name}: [{names(dims)}] {p.dtype}"
    shape = getattr(array, "shape", None)
    if shape is None or not hasattr(array, "dtype"):
        raise LaunchError(
            f"{kernel}: argument {p.name} is {_kind(array)}, not an array",
            p.loc,
            hint=f"pass an array with shape and dtype ({storage_name(p.dtype)}), such as numpy.asarray(…) makes"
            + (", or make a kernel without it, where its annotation is None" if array is None else ""),
        )
    if isinstance(array, np.ndarray) and type(array) is not np.ndarray:
        from wavedsl.ir.array_info import MASKED, is_masked

        if is_masked(array):
            raise LaunchError(f"{kernel}: argument {p.name} is a masked array", p.loc, hint=MASKED)
    have, want = dtype_name(array), storage_name(p.dtype)
    packed = p.dtype.bits < 8 and p.dtype.kind != "bool"
    if have != want and not (float64 and p.dtype.is_float and have == "float64"):
        same = _TORCH.get(have)
        extra = ", packed, several elements to a byte" if packed else ""
        raise LaunchError(
            f"{kernel}: argument {p.name} has dtype {have}, but is declared {p.dtype}",
            p.loc,
            hint=f"pass {want}{extra}" + (f", or declare it wd.{same}" if same is not None and not packed else ""),
        )
    extents = tuple(int(n) for n in shape)
    if len(extents) != len(dims):
        raise LaunchError(
            f"{kernel}: argument {p.name} has {len(extents)} dimensions, shape {extents}, but is declared {declared}",
            p.loc,
            hint=f"pass an array with {len(dims)} dimension{'s' * (len(dims) != 1)}: [{names(dims)}]",
        )
    return extents


def _kind(value: Any) -> str:
    if isinstance(value, (int, float, complex)):
        return f"the number {value!r}"
    if value is None:
        return "None"
    module = type(value).__module__
    named = type(value).__name__ if module == "builtins" else f"{module}.{type(value).__name__}"
    return f"{'an' if named[0] in 'aeiou' else 'a'} {named}"


def check_scalar(kernel: str, p: Parameter, value: Any) -> None:
    """A scalar argument is a number of the declared kind that fits."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    dtype = p.dtype
    good: tuple[type, ...] = (bool, int, np.integer, np.bool_)
    if dtype.is_float:
        good = (*good, float, np.floating)
    if not isinstance(value, good) and not (
        dtype.is_float and hasattr(value, "__float__") and _is_extension_float(value)
    ):
        raise LaunchError(
            f"{kernel}: argument {p.name} is {_kind(value)}, but is declared Scalar[{dtype}]",
            p.loc,
            hint=f"pass a Python {'float' if dtype.is_float else 'int'}",
        )
    if dtype.is_int:
        low, high = (
            (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
        )
        if not low <= int(value) <= high:
            raise LaunchError(
                f"{kernel}: argument {p.name} is {value}, which does not fit {dtype}",
                p.loc,
                hint=f"from {low} to {high}",
            )


def _is_extension_float(value: Any) -> bool:
    """ml_dtypes' scalars are np.generic, but not np.floating."""
    return isinstance(value, np.generic) and np.dtype(type(value)).kind in "Vf"


def bind(
    name: str,
    parameters: Sequence[Parameter],
    arguments: Mapping[str, Any] | None,
    subs: Mapping[Any, Any],
    dynamic: Sequence[Any] = (),
    *,
    symbols: Sequence[Any] = (),
    float64: bool = False,
) -> Binding:
    """A value for every symbol that occurs in the parameters' extents, plus all of `subs`.

    `arguments` by name, or None to bind from `subs` and `dynamic` alone. `symbols`: further symbols that must have a
    value (tiles). Raises LaunchError for arguments that do not fit, ConstraintError for a symbol without a value.
    """
    dims: dict[Any, Any] = dict(subs)
    for s in dynamic:
        if s in dims:
            raise ConstraintError(
                f"{name}: {s} is both dynamic and bound to {dims[s]}", hint=f"drop {s} from one of them"
            )
    axes = _checked_axes(name, parameters, arguments, subs, float64) if arguments is not None else []
    found = _Extents(name, dims)
    # Whole symbols first: they decide what expressions over them must be.
    # Packed extents come last among them: bytes may hold more elements than there are.
    for axis in sorted(axes, key=lambda axis: axis.packed):
        if isinstance(axis.dim, sympy.Symbol):
            with Argument(axis.parameter.name):
                found.take(axis)
    for axis in axes:
        with Argument(axis.parameter.name):
            found.check(axis)
    result = dict(dims)
    dynamic_set = set(dynamic)
    for s, extent in found.actual.items():
        if s not in result:
            result[s] = DYNAMIC if s in dynamic_set else extent
    for s in dynamic:
        result.setdefault(s, DYNAMIC)
    _require(name, parameters, symbols, result, subs, arguments is None)
    extents_of_dynamic = {s: n for s, n in found.actual.items() if s in dynamic_set}
    return Binding(result, dict(arguments or {}), extents_of_dynamic)


@dataclass(frozen=True)
class _Axis:
    """One axis of an array argument: its declared extent `dim`, and the `size` that it has, in elements, or in bytes
    where elements are `packed`. `shape` and `axes` are the whole argument's."""

    parameter: Parameter
    dim: Any
    size: int
    packed: bool
    shape: tuple[int, ...]
    axes: tuple[Any, ...]

    @property
    def elements(self) -> int:
        """The most elements that there can be."""
        return self.size * 8 // self.parameter.dtype.bits if self.packed else self.size

    def __str__(self) -> str:
        return f"{self.parameter.name} with shape {self.shape} for [{names(self.axes)}]"


def _checked_axes(
    name: str, parameters: Sequence[Parameter], arguments: Mapping[str, Any], subs: Mapping[Any, Any], float64: bool
) -> list[_Axis]:
    """The axes of all array arguments. Raises LaunchError for an argument that does not suit its parameter."""
    found = []
    for p in parameters:
        value = arguments[p.name]
        with Argument(p.name):
            if not isinstance(p.annotation, MemoryType):
                check_scalar(name, p, value)
                continue
            axes, _ = p.annotation.resolve(subs)
            shape = check_array(name, p, value, axes, float64=float64)
        packed = p.dtype.bits < 8 and p.dtype.kind != "bool" and dtype_name(value) == "uint8"
        for i, (dim, size) in enumerate(zip(axes, shape)):
            found.append(_Axis(p, dim, size, packed and i == len(axes) - 1, shape, axes))
    return found


class _Extents:
    """What the axes of arguments say of symbols: `actual` by symbol, and whose axis said so. `dims`: what is bound."""

    def __init__(self, name: str, dims: Mapping[Any, Any]):
        self.name, self.dims = name, dims
        self.actual: dict[Any, int] = {}
        self.source: dict[Any, str] = {}

    def take(self, axis: _Axis) -> None:
        """An axis whose extent is one symbol gives it a value. Raises LaunchError where it has another."""
        p, dim = axis.parameter, axis.dim
        if axis.packed:
            if dim in self.dims or dim in self.actual:
                return
            if axis.size * 8 % p.dtype.bits:
                raise LaunchError(
                    f"{self.name}: argument {p.name} has {axis.size} bytes along {dim}, which is no whole number of "
                    f"{p.dtype} elements",
                    p.loc,
                    hint=f"bind {dim} by subs, or pad to whole bytes",
                )
        bound, before = self.dims.get(dim, DYNAMIC), self.actual.get(dim)
        if not isinstance(bound, Dynamic):
            if bound != axis.elements:
                raise LaunchError(
                    f"{self.name}: argument {p.name} has shape {axis.shape} for [{names(axis.axes)}], but {dim} is "
                    f"bound to {bound}",
                    p.loc,
                    hint=f"pass {bound} elements along {dim}, or change subs",
                )
        elif before is None:
            self.actual[dim], self.source[dim] = axis.elements, str(axis)
        elif before != axis.elements:
            raise LaunchError(
                f"{self.name}: arguments disagree about {dim}: {self.source[dim]} has {before}, "
                f"{axis} has {axis.elements}",
                p.loc,
                hint=f"make both {before} or both {axis.elements} along {dim}{self._turned(axis)}",
            )

    def _turned(self, axis: _Axis) -> str:
        """What to say where an array of two dimensions would fit if it lay the other way round."""
        if len(axis.axes) != 2 or axis.packed:
            return ""
        own = f"{axis.parameter.name} with "
        known = {**self.dims, **{d: n for d, n in self.actual.items() if not self.source[d].startswith(own)}}
        values = [known.get(d) for d in axis.axes]
        fits = [v == n for v, n in zip(values, reversed(axis.shape)) if isinstance(v, int)]
        if not fits or not all(fits):
            return ""
        p, turned = axis.parameter, names(reversed(axis.axes))
        return f", or, where it lies the other way round, declare {p.name}: wd.Memory[{turned}, wd.{p.dtype}]"

    def check(self, axis: _Axis) -> None:
        """Raise LaunchError where an axis is not as long as its extent says."""
        p, dim = axis.parameter, axis.dim
        known = {**self.dims, **self.actual}
        want = evaluate(dim, known)
        if isinstance(want, sympy.Expr) and not want.is_number:
            want = self._solve(axis, want)
        if want is DYNAMIC:
            return
        if not isinstance(want, int):
            raise LaunchError(
                f"{self.name}: argument {p.name} is declared with {dim} elements, which is {want}",
                p.loc,
                hint="sizes must make every extent a whole number",
            )
        need = -(-want * p.dtype.bits // 8) if axis.packed else want
        if axis.size != need:
            unit = " bytes" if axis.packed else ""
            given = ", ".join(
                f"{s} = {known[s]} from {self.source.get(s, 'subs')}"
                for s in sorted(dim.free_symbols, key=str)
                if s in known
            )
            raise LaunchError(
                f"{self.name}: argument {p.name} has shape {axis.shape}, but [{names(axis.axes)}] needs {need}{unit} "
                f"along {dim}" + (f" ({given})" if given else ""),
                p.loc,
                hint=f"make the arguments agree about {dim}",
            )

    def _solve(self, axis: _Axis, rest: Any) -> int:
        """An extent that is an expression in one symbol without a value binds that symbol: 4 for `K / 32` is K =
        128."""
        p, free = axis.parameter, sorted(rest.free_symbols, key=str)
        if len(free) == 1:
            found = solve(rest, axis.elements)
            if found is not None:
                self.actual[free[0]], self.source[free[0]] = found, p.name
                return axis.elements
        has = "has" if len(free) == 1 else "have"
        raise LaunchError(
            f"{self.name}: {names(free)} {has} no value, and {axis.elements} elements of argument {p.name} along "
            f"{axis.dim} do not tell it",
            p.loc,
            hint=f"bind it: subs={{{free[0]}: …}}",
        )


def _require(name: str, parameters: Any, symbols: Any, result: Any, subs: Any, no_arrays: bool) -> None:
    """Every symbol of an extent, and of `symbols`, has a value."""
    wanted: dict[Any, Parameter | None] = {}
    for p in parameters:
        if isinstance(p.annotation, MemoryType):
            axes, _ = p.annotation.resolve(subs)
            for dim in axes:
                for s in sorted(dim.free_symbols, key=str):
                    wanted.setdefault(s, p)
    for s in symbols:
        wanted.setdefault(s, None)
    missing = [s for s, owner in wanted.items() if owner is not None and s not in result]
    for s, owner in wanted.items():
        if s in result:
            if isinstance(result[s], AddressSpace):
                raise ConstraintError(
                    f"{name}: {s} sizes a dimension, but is bound to the address space {result[s]}",
                    owner.loc if owner else None,
                    hint="an address space comes last, before the dtype",
                )
            continue
        lacking = missing if owner is not None else [s]
        where = f" (in argument {owner.name})" if owner is not None and len(lacking) == 1 else ""
        how = "subs={" + ", ".join(f"{x}: …" for x in lacking) + "}"
        if owner is not None:
            how += f", dynamic=({names(lacking)}{',' if len(lacking) == 1 else ''})"
        raise ConstraintError(
            f"{name}: {names(lacking)} {'has' if len(lacking) == 1 else 'have'} no value{where}",
            owner.loc if owner is not None else None,
            hint=f"bind it: {how}" + (", or pass arrays" if no_arrays and owner is not None else ""),
        )
