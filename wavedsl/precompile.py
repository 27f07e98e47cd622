"""Compiling ahead of the first call: `kernel.precompile(...)`.

In: arguments, or extents. Out: compiled kernels, in the table that calls look at and in the cache on disk. Extents
become arrays that nobody writes (the system gives no memory for them), so that a call and its preparation cannot
disagree about what a kernel is compiled for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wavedsl.binding import check_subs
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.source import here
from wavedsl.ir.symbols import evaluate_int
from wavedsl.tracer.annotations import ScalarType

CLASSES = (4096, 4104, 4100, 4098, 4097)
"""Extents that stand for a run-time dimension: the text depends only on the power of two up to 16 that divides them."""


_STANDING_FOR = dict(zip((16, 8, 4, 2, 1), CLASSES))


def precompile(kernel: Any, arguments: Mapping[str, Any] | None, subs: Any, target: str | None) -> list[Any]:
    """See `Kernel.precompile`."""
    from wavedsl.runtime.launch import compile_ahead

    if target is not None:
        from wavedsl.targets import get_target

        get_target(target)
    if arguments is not None:
        if subs is not None:
            raise ConstraintError(
                f"{kernel.name}.precompile takes arrays or subs, not both", hint="leave one of them out"
            )
        return [compile_ahead(kernel, arguments, target)]
    given: Sequence[Mapping[Any, Any]] = [subs or {}] if subs is None or isinstance(subs, Mapping) else list(subs)
    found: dict[int, Any] = {}
    for sizes in given:
        for extents in _complete(kernel, check_subs(sizes, here(calls=False))):
            compiled = compile_ahead(kernel, _arguments(kernel, extents), target)
            found[id(compiled)] = compiled
    return list(found.values())


def open_dims(text: str) -> dict[str, int]:
    """`M,K:16` of the command line: names of dimensions, and what their extents are multiples of (1 where not said)."""
    found = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, colon, multiple = part.partition(":")
        if not name.isidentifier() or (colon and multiple not in map(str, _STANDING_FOR)):
            raise ConstraintError(
                f"{part!r} is no run-time dimension", hint="M, or K:16 for multiples of 16 (8, 4, 2): --dynamic M,K:16"
            )
        found[name] = int(multiple or 1)
    return found


def compile_open(kernel: Any, subs: Mapping[Any, Any], dynamic: Mapping[str, int], target: str | None) -> Any:
    """The kernel's `CompiledKernel` with these dimensions, besides those that it declares, left to run time; for
    row-major arrays whose extents are such multiples."""
    if not dynamic:
        return kernel.compile(target=target, subs=subs)
    dims = {str(s): s for p in kernel.parameters for s in p.free_dims(kernel.subs)}
    for name in dynamic:
        if name not in dims:
            raise ConstraintError(
                f"{kernel.name}: {name} is no dimension of an argument", kernel.loc, hint=f"there are {', '.join(dims)}"
            )
    known = {**kernel.subs, **check_subs(subs, kernel.loc)}
    left = {
        s: _STANDING_FOR[dynamic.get(name, 1)] for name, s in dims.items() if name in dynamic or s in kernel.dynamic
    }
    arguments = _arguments(kernel, {**left, **known})
    return kernel.compile(**arguments, target=target, subs=subs, dynamic=[s for s in left if s not in known])


def _complete(kernel: Any, sizes: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    """`sizes` with an extent for each dynamic dimension that it leaves out, one per class of divisors."""
    dims = sorted({s for p in kernel.parameters for s in p.free_dims(kernel.subs)}, key=str)
    known = {**kernel.subs, **sizes}
    open_dims = [d for d in dims if d not in known]
    fixed = [d for d in open_dims if d not in kernel.dynamic]
    if fixed:
        raise ConstraintError(
            f"{kernel.name}.precompile: {', '.join(map(str, fixed))} has no extent",
            here(calls=False),
            hint=f"give it: subs={{{fixed[0]}: …}}, declare it dynamic, or pass arrays",
        )
    tiles = [k for k in sizes if k not in dims]
    if tiles:
        raise ConstraintError(
            f"{kernel.name}.precompile: {', '.join(map(str, tiles))} is no dimension of an argument",
            here(calls=False),
            hint="tiles are bound by the decorator's subs: calls use those",
        )
    for extents in itertools.product(CLASSES, repeat=len(open_dims)):
        yield {**known, **dict(zip(open_dims, extents))}


def _arguments(kernel: Any, extents: Mapping[Any, Any]) -> dict[str, Any]:
    """Row-major arrays of these extents, without contents."""
    out: dict[str, Any] = {}
    for p in kernel.parameters:
        if isinstance(p.annotation, ScalarType):
            out[p.name] = 1.0 if p.dtype.is_float else 1
            continue
        axes, _ = p.annotation.resolve(kernel.subs)
        shape = [evaluate_int(d, extents) for d in axes]
        if min(shape, default=0) < 0:
            raise ConstraintError(
                f"{kernel.name}.precompile: argument {p.name} has {min(shape)} elements along "
                f"{axes[shape.index(min(shape))]}",
                p.loc,
                hint="sizes must make every extent a whole number from 0 on",
            )
        if p.dtype.bits < 8 and p.dtype.kind != "bool" and shape:
            shape[-1] = -(-shape[-1] * p.dtype.bits // 8)
        out[p.name] = np.empty(shape, p.dtype.storage)
    return out
