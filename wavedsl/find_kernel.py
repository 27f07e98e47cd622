"""Kernels named on a command line, and arguments for them.

In comes `path.py:name` or `module:name`, with `M=64` bindings; out come the kernel object and random NumPy arguments
whose results the graph evaluator can check.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import LaunchError, TraceError
from wavedsl.ir.symbols import AddressSpace, evaluate, symbol
from wavedsl.kernel_object import Kernel
from wavedsl.tracer.annotations import ScalarType


def find_kernel(spec: str) -> Kernel:
    """The kernel that `find` finds, without what `@wd.autotune` puts around it."""
    kernel = underlying(find(spec))
    assert kernel is not None
    return kernel


def find(spec: str) -> Any:
    """The kernel called `path.py:name` or `module:name`, a `Kernel` or a `TunedKernel`; the name may be left out where
    there is only one.

    Raises TraceError if there is no such file, module or kernel; what the module itself raises comes through.
    """
    where, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    module = load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    kernels = {key: value for key, value in vars(module).items() if underlying(value) is not None}
    if not name and len(kernels) == 1:
        return next(iter(kernels.values()))
    if name not in kernels:
        near = difflib.get_close_matches(name, kernels, n=1)
        meant = f"did you mean {where}:{near[0]}? " if near else ""
        raise TraceError(
            f"{where} has no kernel {name!r}" if name else f"{where} has {len(kernels) or 'no'} kernels",
            hint=f"{meant}name one of its kernels as {where}:NAME (there are: {', '.join(kernels)})" if kernels
            else "a kernel is a function under @wd.wave([…]) at the top level of the file",
        )  # fmt: skip
    return kernels[name]


def underlying(value: Any) -> Kernel | None:
    """The kernel that `value` is, or that a tuned kernel stands for; None for anything else."""
    tuned = sys.modules.get("wavedsl.tuning.tuned_kernel")
    if tuned is not None and isinstance(value, tuned.TunedKernel):
        value = value.kernel
    return value if isinstance(value, Kernel) else None


def load_file(path: Path) -> Any:
    if not path.exists():
        raise TraceError(f"there is no file {path}", hint="kernels are named as path.py:name or module:name")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TraceError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    sys.path.insert(0, str(path.resolve().parent))  # what the file imports from beside it
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> Any:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise TraceError(
                f"{name} is no Python file" if Path(name).exists() else f"there is no module {name}",
                hint="kernels are named as path.py:name or module:name",
            ) from error
        raise


def parse_subs(bindings: Sequence[str]) -> dict[Any, Any]:
    """Bindings such as `M=64,N=32` or `SPACE=SHARED`. LaunchError for anything else."""
    found: dict[Any, Any] = {}
    for text in (part for binding in bindings for part in binding.split(",") if part.strip()):
        name, equals, value = (part.strip() for part in text.partition("="))
        if equals and name.isidentifier() and value.isdecimal():
            found[symbol(name)] = int(value)
        elif equals and name.isidentifier() and value.upper() in AddressSpace.__members__:
            found[symbol(name)] = AddressSpace[value.upper()]
        else:
            raise LaunchError(f"{text!r} binds no symbol", hint="write NAME=NUMBER, as in --subs M=64; not below 0")
    return found


def parse_space(texts: Sequence[str]) -> dict[Any, list[Any]] | None:
    """A search space such as `BM=32/64,stages=1/2,registers=40:232`; None where none is given. LaunchError for anything
    else."""
    found: dict[Any, list[Any]] = {}
    for text in (part for given in texts for part in given.split(",") if part.strip()):
        name, equals, values = (part.strip() for part in text.partition("="))
        numbers = [value.split(":") for value in values.split("/")]
        if not equals or not name.isidentifier() or not all(n.isdecimal() for pair in numbers for n in pair):
            raise LaunchError(
                f"{text!r} is no search space",
                hint="write NAME=NUMBER/NUMBER, as in --space BM=32/64, and registers=40:232/56:224",
            )
        found[name] = [int(n[0]) if len(n) == 1 else tuple(map(int, n)) for n in numbers]
    return found or None


def make_arguments(kernel: Kernel, subs: Mapping[Any, Any], seed: int, integers: bool) -> dict[str, Any]:
    """Random arguments of the sizes that `subs` and the decorator give. What is written only starts as NaN, or as 93
    where ints: what a kernel leaves out shows.

    `integers`: floats from -2 to 2 without fractions, whose results are exact. LaunchError for symbols without a value.
    """
    merged = kernel.merged(subs)
    nodes = list(kernel.trace(subs).all_nodes())
    written = {str(n.attrs["memory"]) for n in nodes if n.op == "write"}
    written -= {str(n.attrs["memory"]) for n in nodes if n.op == "read"}
    random = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for p in kernel.parameters:
        if isinstance(p.annotation, ScalarType):
            out[p.name] = random_scalar(p.dtype, random)
            continue
        dims, _ = p.annotation.resolve(merged)
        shape = [extent for dim in dims if isinstance(extent := evaluate(dim, merged), int)]
        if len(shape) < len(dims):
            raise _without_extents(kernel, merged, p)
        out[p.name] = _empty(p.dtype, shape) if p.name in written else random_array(p.dtype, shape, random, integers)
    return out


def _without_extents(kernel: Kernel, subs: Mapping[Any, Any], first: Any) -> LaunchError:
    """The error of symbols in array extents that have no value; `first`: the first argument that lacks one."""
    dims = [d for p in kernel.parameters if not isinstance(p.annotation, ScalarType)
            for d in p.annotation.resolve(subs)[0]]  # fmt: skip
    free = {s: None for d in dims for s in sorted(d.free_symbols, key=str) if s not in subs}
    said = f"{', '.join(map(str, free))} {'has' if len(free) == 1 else 'have'} no value"
    return LaunchError(
        f"{kernel.name}: {said}", first.loc,
        f"bind {'it' if len(free) == 1 else 'them'} on the command line: --subs {','.join(f'{s}=64' for s in free)}",
    )  # fmt: skip


def random_scalar(dtype: DType, random: np.random.Generator) -> int | float:
    """A small whole number, of a float type where the dtype is one."""
    return float(random.integers(1, 4)) if dtype.is_float else int(random.integers(0, 4) if dtype.bits > 1 else 1)


def _storage_shape(dtype: DType, shape: Sequence[int]) -> tuple[int, ...]:
    """Sub-byte elements are packed along the last dimension."""
    if dtype.bits >= 8 or dtype.kind == "bool" or not shape:
        return tuple(shape)
    return (*shape[:-1], -(-shape[-1] * dtype.bits // 8))


def random_array(dtype: DType, shape: Sequence[int], random: np.random.Generator, integers: bool) -> np.ndarray:
    """Random elements of `dtype` as stored; `integers`: floats from -2 to 2 without fractions."""
    stored = _storage_shape(dtype, shape)
    if dtype.bits < 8 and dtype.kind != "bool":
        return random.integers(0, 256, stored, np.uint8)
    if dtype.is_float:
        values = random.integers(-2, 3, stored) if integers else random.standard_normal(stored)
        return np.asarray(values, np.float64).astype(dtype.storage)
    low = -2 if dtype.is_signed else 0
    return random.integers(low, 3, stored).astype(dtype.storage)


def _empty(dtype: DType, shape: Sequence[int]) -> np.ndarray:
    stored = _storage_shape(dtype, shape)
    whole = dtype.bits >= 8 and dtype.is_float
    return np.full(stored, np.nan if whole else (1 if dtype.kind == "bool" else 93), np.float64).astype(dtype.storage)
