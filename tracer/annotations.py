"""Annotations: `Memory[M, K, f16]`, `Register[M, N, f32]`, `Scalar[f32]`, and the resolution of annotation strings.

In: what a user wrote between brackets, or (with `from __future__ import annotations`) its text and the namespaces in
which it could have been meant. Out: `MemoryType`, `RegisterType`, `ScalarType`, or a TraceError at the user's line.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, NoReturn

import sympy
from wavedsl.ir.dtypes import ALL, DType
from wavedsl.ir.errors import TraceError, WaveError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.source import here, parameter
from wavedsl.ir.symbols import AddressSpace, is_dim, names, normalise, taken_apart


@dataclass(frozen=True)
class MemoryType:
    """An array argument. `space` is None, an AddressSpace, or the symbol in the last place before the dtype.

    Whether that symbol is an address space or one more dimension depends on what it is bound to: `resolve`.
    """

    items: tuple[Any, ...]
    dtype: DType
    space: AddressSpace | None = None

    def resolve(self, subs: Mapping[Any, Any]) -> tuple[tuple[Any, ...], AddressSpace | Any | None]:
        """(dimensions, address space) under the bindings so far.

        A last symbol is an address space if it is bound to one, or if it is unbound and called `…SPACE…`.
        """
        if self.space is None and len(self.items) > 1 and isinstance(self.items[-1], sympy.Symbol):
            last = self.items[-1]
            value = subs.get(last)
            if isinstance(value, AddressSpace):
                return self.items[:-1], value
            if value is None and "SPACE" in last.name.upper():
                return self.items[:-1], last
        return self.items, self.space

    def __str__(self) -> str:
        space = (self.space.name,) if self.space is not None else ()
        return f"Memory[{names((*self.items, *space, self.dtype))}]"


@dataclass(frozen=True)
class RegisterType:
    """The type of a value held in registers; calling it makes such a value with one number everywhere."""

    dims: tuple[Any, ...]
    dtype: DType

    def __call__(self, value: Any) -> Any:
        from wavedsl.tracer.builder import current

        return current("Register").fill(self, value)

    def __str__(self) -> str:
        return f"Register[{names((*self.dims, self.dtype))}]"


@dataclass(frozen=True)
class ScalarType:
    """A scalar argument, passed by value at launch."""

    dtype: DType

    def __str__(self) -> str:
        return f"Scalar[{self.dtype}]"


def _split(items: Any, owner: str) -> tuple[tuple[Any, ...], DType]:
    items = items if isinstance(items, tuple) else (items,)
    example = "wd.Scalar[wd.f32]" if owner == "Scalar" else f"wd.{owner}[M, N, wd.f16]"
    if not items:
        raise TraceError(f"{owner}[…] is empty", here(calls=False), hint=f"for example {example}")
    dtype = items[-1]
    if not isinstance(dtype, DType):
        same = next((d for d in ALL.values() if dtype is d.numpy and not d.packed), None)
        alone = "; a number alone is wd.Register[wd.i32](0)" if owner == "Register" else ""
        raise TraceError(
            f"{owner}[…] ends in {dtype!r}, which is no dtype",
            here(calls=False),
            hint=f"write wd.{same}"
            if same is not None
            else f"put the element type last, for example {example}{alone}",
        )
    return items[:-1], dtype


def _dims(items: tuple[Any, ...], owner: str) -> tuple[Any, ...]:
    for item in items:
        if not is_dim(item) or (isinstance(item, int) and item < 0):
            raise TraceError(
                f"{owner}[…]: {item!r} is not a dimension",
                here(calls=False),
                hint=taken_apart(item, "dimensions are symbols (M = wd.sym.M) or expressions over them"),
            )
    dims = tuple(normalise(item) for item in items)
    for i, dim in enumerate(dims):
        if dim in dims[:i]:
            raise TraceError(
                f"{owner}[…]: {dim} stands for two dimensions; dimensions are names and must differ",
                here(calls=False),
                hint="give each its own symbol, also where both have the same size",
            )
    return dims


def _called(cls: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """`Memory(M, wd.f32)`: brackets were meant."""
    example = {"Memory": "M, N, wd.f32", "Register": "M, N, wd.f32", "Scalar": "wd.f32"}[cls.__name__]
    tail = {"Register": "(0.0)", "Scalar": " annotates an argument; a number stands for itself: x * 2.0"}
    raise TraceError(
        f"{cls.__name__} takes brackets, not a call",
        here(calls=False),
        hint=f"wd.{cls.__name__}[{example}]{tail.get(cls.__name__, '')}",
    )


class Memory:
    """`Memory[M, K, f16]`: an array argument, outermost dimension first.

    An address space before the dtype (`wd.SHARED`, `wd.GLOBAL`, or a symbol bound to one) says how its tiles travel;
    without one the compiler decides. Raises TraceError where the brackets hold something else.
    """

    __new__ = _called

    def __class_getitem__(cls, items: Any) -> MemoryType:
        dims, dtype = _split(items, "Memory")
        space = None
        if dims and isinstance(dims[-1], AddressSpace):
            dims, space = dims[:-1], dims[-1]
        if not dims:
            raise TraceError(
                "Memory[…] has no dimension", here(calls=False),
                hint="a number that is passed in is a wd.Scalar[wd.f32]; a result of one number is an array of one "
                "element: out: wd.Memory[1, wd.f32], wd.write(x, out[0])",
            )
        return MemoryType(_dims(dims, "Memory"), dtype, space)


class Register:
    """`Register[M, N, f32]`: a value held in registers; `Register[M, N, f32](0.0)` makes one, equal everywhere."""

    __new__ = _called

    def __class_getitem__(cls, items: Any) -> RegisterType:
        dims, dtype = _split(items, "Register")
        return RegisterType(_dims(dims, "Register"), dtype)


class Scalar:
    """`Scalar[f32]`: a scalar argument, passed by value at launch."""

    __new__ = _called

    def __class_getitem__(cls, items: Any) -> ScalarType:
        dims, dtype = _split(items, "Scalar")
        if dims:
            raise TraceError(
                f"Scalar[…] takes a dtype only, not {names(dims)}", here(calls=False), hint="wd.Scalar[wd.f32]"
            )
        if dtype.packed:
            raise TraceError(
                f"Scalar[{dtype}]: a number of {dtype.bits} bits is not passed by itself", here(calls=False),
                hint=f"wd.Scalar[{'wd.f32' if dtype.is_float else 'wd.i32'}], and wd.cast(x, wd.{dtype}) in the kernel",
            )  # fmt: skip
        return ScalarType(dtype)


Annotation = MemoryType | RegisterType | ScalarType


class Namespace(Mapping[str, Any]):
    """Names an annotation string may use: the function's closure, then enclosing calls' locals, then globals."""

    def __init__(self, function: Callable[..., Any], frame: FrameType | None, outer: Namespace | None = None):
        self.maps: list[Mapping[str, Any]] = []
        closure = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                closure[name] = cell.cell_contents
            except ValueError:  # assigned later in the enclosing function
                continue
        self.maps.append(closure)
        while frame is not None:
            if frame.f_code.co_filename == function.__code__.co_filename and frame.f_locals is not frame.f_globals:
                self.maps.append(dict(frame.f_locals))
            frame = frame.f_back
        if outer is not None:
            self.maps += outer.maps
        self.maps.append(function.__globals__)
        builtins = function.__globals__.get("__builtins__", {})
        self.maps.append(builtins if isinstance(builtins, dict) else vars(builtins))

    def __getitem__(self, name: str) -> Any:
        for names_here in self.maps:
            if name in names_here:
                return names_here[name]
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter({name for names_here in self.maps for name in names_here})

    def __len__(self) -> int:
        return len(set(self))


_PLAIN = {
    int: "a number is a scalar: wd.Scalar[wd.i32]; what is known while tracing comes from outside of the function",
    float: "a number is a scalar: wd.Scalar[wd.f32]",
    bool: "a number is a scalar: wd.Scalar[wd.i1]",
}
"""Help for Python's own types as annotations."""


def resolve(annotation: Any, code: CodeType, name: str, namespace: Callable[[], Namespace]) -> Annotation | None:
    """The annotation of parameter `name`, from its text where it is a string; None where there is none or it says None.

    Raises TraceError at the parameter for an unknown name or for something that is no annotation of ours.
    """
    if annotation is None:
        return None
    if isinstance(annotation, str):
        space = namespace()
        try:
            while isinstance(annotation, str):  # twice where it is also quoted
                code_of_text = compile(annotation, "<annotation>", "eval", dont_inherit=True)
                annotation = eval(code_of_text, {"__builtins__": {}}, space)
        except NameError as error:
            unknown = error.name or str(error)
            raise TraceError(
                f"annotation of {name}: unknown name {unknown}", parameter(code, name), hint=suggest(unknown, space)
            ) from None
        except WaveError as error:
            error.location = parameter(code, name)
            raise
        except Exception as error:
            raise TraceError(f"annotation of {name}: {error}", parameter(code, name)) from error
    if annotation is not None and not isinstance(annotation, Annotation):
        bare = annotation in (Memory, Register, Scalar)
        raise TraceError(
            f"annotation of {name} is {f'wd.{annotation.__name__} without brackets' if bare else repr(annotation)}",
            parameter(code, name),
            hint=_of_dtype(annotation, name)
            or (_PLAIN.get(annotation) if isinstance(annotation, type) else None)
            or "annotate with wd.Memory[...], wd.Scalar[...] or, in a loop, wd.Register[...]",
        )
    return annotation


def _of_dtype(annotation: Any, name: str) -> str:
    """Help for a dtype alone; empty where it is something else."""
    if not isinstance(annotation, DType):
        return ""
    return f"a number: {name}: wd.Scalar[wd.{annotation}]; an array: {name}: wd.Memory[N, wd.{annotation}]"


def suggest(unknown: str, known: Any, otherwise: str = "") -> str:
    """`did you mean …?` for a misspelt name, or what else to do."""
    candidates = [n for n in known if not n.startswith("_")]
    near = difflib.get_close_matches(unknown, sorted(candidates), n=1)
    if near:
        return f"did you mean {near[0]}?"
    return otherwise or f"a symbol must be defined first: {unknown} = wd.sym.{unknown}"
