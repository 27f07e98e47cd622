"""NumPy meaning of reads, writes and atomics: of whole arrays at once, through a mapping where there is one.

Where several elements of an atomic meet in one place they take turns, in row-major order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.cuts.tile_dims import CONDITIONAL
from wavedsl.ir.dataflow.graph import Mapping, Node
from wavedsl.ir.dataflow.ops import ROWS, maximum_number, minimum_number
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.evaluator.evaluate_run import Named, Run, meaning
from wavedsl.ir.rounding import to_float
from wavedsl.ir.symbols import names


@meaning("read")
def _read(run: Run, node: Node) -> Named:
    argument = run.graph.argument(node.attrs["memory"])
    memory = run.memory[argument.name]
    mapping = node.attrs.get("mapping")
    if mapping is None:
        dims = argument.dims
        array = memory[tuple(slice(*run.span(d)) for d in dims)]
        # A copy: a later write must not change a value that was read before it.
        return Named(dims, _loaded(run, np.array(array), argument.dtype))
    dims, coords, inside = _coordinates(run, node, mapping, argument)
    if memory.size == 0:
        return Named(dims, np.zeros(inside.shape, run.numpy_type(argument.dtype)))
    array = memory[tuple(np.where(inside, c, 0) for c in coords)]
    return Named(dims, _loaded(run, np.where(inside, array, np.zeros((), array.dtype)), argument.dtype))


def _loaded(run: Run, array: Any, dtype: DType) -> Any:
    if run.float64 and dtype.is_float:
        return array.astype(np.float64)
    return to_float(array, dt.tf32) if dtype is dt.tf32 else array


def _coordinates(
    run: Run, node: Node, mapping: Mapping, argument: Any, values: tuple[Named, ...] = ()
) -> tuple[tuple[Any, ...], list[Any], Any]:
    """(dimensions, index arrays per memory dimension, which elements lie inside the array)."""
    given: list[Named] = []
    for c in mapping.coords:
        if isinstance(c, int):
            index = run.get(node.inputs[c])
            given.append(Named(index.dims, index.array.astype(np.int64)))
        else:
            given.append(_expression(run, c, mapping.dims))
    hidden = run.hidden(*given, *values, *run.active)
    dims = (*hidden, *(d for d in mapping.dims if d not in run.index_dims))
    stray = tuple(dict.fromkeys(d for v in (*given, *values) for d in v.dims if d not in dims))
    if stray and not ROWS[node.op].effect:  # each tile along them reads what its numbers say
        dims = (*stray, *dims)
    elif stray:
        raise ConstraintError(
            f"{run.graph.name}: what happens to {argument.name} depends on the tile along {names(stray)}, which its "
            "mapping does not have",
            node.loc,
            hint=f"give the value the dimension {names(stray)}",
        )
    shape = [run.size(d) for d in dims]
    coords = [np.broadcast_to(run.aligned(g, dims), shape) for g in given]
    inside = np.ones(shape, np.bool_)
    for c, extent in zip(coords, run.memory[argument.name].shape):
        inside &= (c >= 0) & (c < extent)
    for a in run.active:
        inside &= _carried_out(run, node, a, dims)
    return dims, coords, inside


def _carried_out(run: Run, node: Node, active: Named, dims: tuple[Any, ...]) -> Any:
    """Where an access happens, over its own dimensions. Along those of the condition that it does not have, workgroups
    access the same elements: reads and writes give the same if any of them does, and so do atomics that add the parts
    of a sum; of other atomics, who counts?"""
    for joined in run.parts.atomics.get(node.id, ()):
        if joined not in active.dims:
            continue
        at = active.dims.index(joined)
        active = Named(active.dims[:at] + active.dims[at + 1 :], active.array.any(axis=at))
    stray = tuple(d for d in active.dims if d not in dims)
    array, along = run.aligned(active, (*stray, *dims)), tuple(range(len(stray)))
    found = array.any(axis=along)
    if ROWS[node.op].effect and node.op != "write" and not np.array_equal(found, array.all(axis=along)):
        raise ConstraintError(
            f"{run.graph.name}: {node.op} depends on a condition that differs along {names(stray)}, and its value has "
            f"no {names(stray)}",
            node.loc,
            hint=CONDITIONAL.format(dims=names(stray), op=node.op),
        )
    return found


_EXTREMES = {sympy.Max: sympy.Function("larger"), sympy.Min: sympy.Function("smaller")}
_EXTREME_CALLS = {"larger": np.maximum, "smaller": np.minimum}


def _expression(run: Run, expr: Any, dims: tuple[Any, ...]) -> Named:
    """An index expression over the element's own indices; other symbols are their numbers."""
    own = [d for d in (*run.graph.index_dims, *dims) if expr.has(d)]
    # A dimension such as `K / 32` counts by itself, whatever K is.
    names_of = [d if d.is_Symbol else sympy.Dummy(integer=True) for d in own]
    expr = expr.xreplace({d: s for d, s in zip(own, names_of) if d is not s})
    known = {s: sympy.Integer(run.symbols[s]) for s in expr.free_symbols if s not in names_of}
    expr = expr.xreplace(known)
    if not own:
        return Named((), np.asarray(int(expr), np.int64))
    ranges = []
    for axis, d in enumerate(own):
        ranges.append(
            np.arange(*run.span(d), dtype=np.int64).reshape([-1 if a == axis else 1 for a in range(len(own))])
        )
    if expr == names_of[0]:
        return Named((own[0],), ranges[0])
    for of, means in _EXTREMES.items():  # releases of sympy before 1.14 print them for arrays of one shape
        expr = expr.replace(of, lambda *args, means=means: functools.reduce(means, args))
    result = np.asarray(sympy.lambdify(names_of, expr, modules=[_EXTREME_CALLS, "numpy"])(*ranges))
    whole = np.rint(result).astype(np.int64)
    if not np.array_equal(whole, result):
        raise ConstraintError(f"{run.graph.name}: the index {expr} is not whole", hint="use sympy.floor")
    return Named(tuple(own), np.broadcast_to(whole, [r.size for r in ranges]))


def _stored(run: Run, array: Any, value: Any, dtype: DType) -> Any:
    """A value's elements in the type of the array that they go to (differs in float64 mode only)."""
    if array.dtype == value.dtype:
        return value
    return value.astype(np.float64) if array.dtype == np.float64 else to_float(value, dtype)


@meaning("write")
def _write(run: Run, node: Node) -> None:
    argument = run.graph.argument(node.attrs["memory"])
    memory = run.writable(argument.name)
    value = run.get(node.inputs[0])
    mapping = node.attrs.get("mapping")
    if mapping is None and run.active:
        _write_where(run, memory, argument, value, run.everywhere())
        return
    if mapping is None:
        sizes = zip(value.dims, value.array.shape)
        alone = tuple(0 if d not in argument.dims and n == 1 else slice(None) for d, n in sizes)
        value = Named(tuple(d for d, place in zip(value.dims, alone) if place != 0), value.array[alone])
        stray = [d for d in value.dims if d not in argument.dims]
        if stray:
            raise ConstraintError(
                f"{run.graph.name}: {argument.name} has no {names(stray)}, so its workgroups write the same elements",
                node.loc,
                hint=f"give {argument.name} the dimension {names(stray)}, or use wd.atomic_add",
            )
        array = run.aligned(value, argument.dims)
        where = tuple(slice(*run.span(d)) for d in argument.dims)
        stored = _stored(run, memory, array, argument.dtype)
        memory[where] = stored
        return
    dims, coords, inside = _coordinates(run, node, mapping, argument, (value,))
    array = np.broadcast_to(run.aligned(value, dims), inside.shape)
    memory[tuple(c[inside] for c in coords)] = _stored(run, memory, array, argument.dtype)[inside]


def _write_where(run: Run, memory: Any, argument: Any, value: Named, mask: Named) -> None:
    """A write by some workgroups only: those that the array has no dimension for write one after the other."""
    stray = tuple(d for d in run.union(mask, value) if d not in argument.dims)
    where = tuple(slice(*run.span(d)) for d in argument.dims)
    shape = [run.size(d) for d in stray] + [run.size(d) for d in argument.dims]
    dims = (*stray, *argument.dims)
    chosen = np.broadcast_to(run.aligned(mask, dims), shape).reshape(-1, *shape[len(stray) :])
    array = np.broadcast_to(run.aligned(value, dims), shape).reshape(-1, *shape[len(stray) :])
    for on, x in zip(chosen, array):
        memory[where] = np.where(on, _stored(run, memory, x, argument.dtype), memory[where])


_UPDATES: dict[str, Callable[..., Any]] = {
    "atomic_add": lambda old, value: old + value,
    "atomic_min": minimum_number,
    "atomic_max": maximum_number,
    "atomic_and": np.bitwise_and,
    "atomic_or": np.bitwise_or,
    "atomic_xor": np.bitwise_xor,
    "atomic_xchg": lambda old, value: value,
    "atomic_cas": lambda old, expected, value: np.where(old == expected, value, old),
}


@meaning(*_UPDATES)
def _atomic(run: Run, node: Node) -> Named:
    """Elements in row-major order, one after the other where several meet in one place."""
    argument = run.graph.argument(node.attrs["memory"])
    memory = run.writable(argument.name)
    mapping = node.attrs.get("mapping")
    count = 2 if node.op == "atomic_cas" else 1
    values = tuple(run.get(i) for i in node.inputs[:count])
    if mapping is None:
        mapping = Mapping(argument.dims, argument.dims)
    # Every workgroup of an index dimension carries it out, whatever its value varies along.
    every = Named(tuple(run.graph.index_dims), np.zeros([run.size(d) for d in run.graph.index_dims]))
    dims, coords, inside = _coordinates(run, node, mapping, argument, (*values, every))
    arrays = [np.broadcast_to(run.aligned(v, dims), inside.shape)[inside] for v in values]
    arrays = [_stored(run, memory, a, argument.dtype) for a in arrays]
    where = np.ravel_multi_index(tuple(c[inside] for c in coords), memory.shape)
    flat = memory.reshape(-1) if memory.flags.c_contiguous else memory.flatten()
    update = _UPDATES[node.op]
    # Duplicates take turns: rank 0 of every place first, then rank 1, …
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if ordered.size else np.zeros(0, np.int64)
    rank = np.arange(ordered.size) - np.repeat(starts, np.diff(np.r_[starts, ordered.size]))
    old = np.zeros(where.shape, flat.dtype)
    for turn in range(int(rank.max(initial=-1)) + 1):
        chosen = order[rank == turn]
        place = where[chosen]
        old[chosen] = flat[place]
        flat[place] = update(flat[place], *(a[chosen] for a in arrays))
    if not memory.flags.c_contiguous:
        memory[...] = flat.reshape(memory.shape)
    result = np.zeros(inside.shape, flat.dtype)
    result[inside] = old
    return Named(dims, _loaded(run, result, argument.dtype))
