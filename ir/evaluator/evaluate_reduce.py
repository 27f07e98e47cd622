"""NumPy meaning of reductions, scans and orders. All work along the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.dtypes import DType
from wavedsl.ir.evaluator.combining_laws import check_laws
from wavedsl.ir.evaluator.evaluate_run import Named, Run, meaning


def _along(run: Run, node: Node) -> tuple[Named, Any, DType]:
    """(the operand with `dim` last, its array widened to compute in, its dtype)."""
    source = node.inputs[0]
    value = run.whole(source, last=node.attrs["dim"])
    dtype = source.dtype
    array = value.array
    if dtype.is_float and not run.float64 and dtype is not dt.f64:
        array = array.astype(np.float32)
    return value, array, dtype


def lowest(dtype: DType) -> Any:
    """The identity of max: minus infinity or the smallest integer."""
    return -np.inf if dtype.is_float else np.iinfo(dtype.numpy).min


def highest(dtype: DType) -> Any:
    """The identity of min."""
    return np.inf if dtype.is_float else np.iinfo(dtype.numpy).max


@meaning("sum")
def _sum(run: Run, node: Node) -> Named:
    value, array, dtype = _along(run, node)
    there = run.summed(node, Named(value.dims, array))
    total = np.sum(there.array, axis=there.dims.index(node.attrs["dim"]), dtype=array.dtype)
    return Named(tuple(d for d in there.dims if d != node.attrs["dim"]), run.round(np.asarray(total), dtype))


@meaning("max", "min")
def _extreme(run: Run, node: Node) -> Named:
    value, array, dtype = _along(run, node)
    if array.shape[-1] == 0:
        edge = lowest(dtype) if node.op == "max" else highest(dtype)
        return Named(value.dims[:-1], np.full(array.shape[:-1], edge, run.numpy_type(dtype)))
    chosen = np.asarray((np.fmax if node.op == "max" else np.fmin).reduce(array, axis=-1))
    if dtype.is_float:  # -0 is less than +0
        negative = np.signbit(np.where(array == 0, array, -0.0 if node.op == "max" else 0.0))
        sign = np.all(negative, axis=-1) if node.op == "max" else np.any(negative, axis=-1)
        chosen = np.where(chosen == 0, np.where(sign, -0.0, 0.0).astype(array.dtype), chosen)
    return Named(value.dims[:-1], run.round(chosen, dtype))


@meaning("argmax", "argmin")
def _arg_extreme(run: Run, node: Node) -> Named:
    value, array, _ = _along(run, node)
    if array.shape[-1] == 0:
        return Named(value.dims[:-1], np.full(array.shape[:-1], -1, np.int32))
    chooser = np.fmax if node.op == "argmax" else np.fmin
    best = chooser.reduce(array, axis=-1, keepdims=True)
    first = np.argmax(array == best, axis=-1)
    return Named(value.dims[:-1], (first + run.span(node.attrs["dim"])[0]).astype(np.int32))


@meaning("any", "all")
def _logical(run: Run, node: Node) -> Named:
    value, array, _ = _along(run, node)
    return Named(value.dims[:-1], np.asarray((np.any if node.op == "any" else np.all)(array, axis=-1)))


Arrays = list[Any]


def _combined(run: Run, node: Node, left: Arrays, right: Arrays, dims: tuple[Any, ...]) -> Arrays:
    """The combining function on arrays of elements, one array per value that is combined."""
    body: Region = node.attrs["body"]
    for carry, array in zip(body.carries, (*left, *right)):
        run.results[carry.id] = Named(dims, array)
    run.region(body)
    return [np.broadcast_to(run.aligned(run.get(last), dims), x.shape) for last, x in zip(body.yields, left)]


def _operands(run: Run, node: Node) -> tuple[tuple[Any, ...], Arrays, Arrays]:
    """(dimensions, the one that is combined last; arrays; identities) of a `reduce` or `scan`."""
    values = [run.whole(x, last=node.attrs["dim"]) for x in node.inputs]
    along = node.attrs["dim"]
    dims = (*run.apart(*values, own=node.inputs[0].dims), *(d for d in node.inputs[0].dims if d != along), along)
    arrays = np.broadcast_arrays(*(run.aligned(v, dims) for v in values))
    given = node.attrs["identity"]
    identities = [
        np.asarray(number, np.float64 if x.dtype.is_float else None).astype(run.numpy_type(x.dtype))
        for number, x in zip(given if isinstance(given, tuple) else (given,), node.inputs)
    ]
    return dims, list(arrays), identities


def _named(node: Node, dims: tuple[Any, ...], arrays: Arrays) -> Any:
    found = tuple(Named(dims, x) for x in arrays)
    return found if isinstance(node.type, tuple) else found[0]


@meaning("reduce")
def _reduce(run: Run, node: Node) -> Any:
    dims, arrays, identities = _operands(run, node)
    if arrays[0].shape[-1] == 0:
        return _named(node, dims[:-1], [np.full(x.shape[:-1], i) for x, i in zip(arrays, identities)])
    check_laws(node, arrays, identities, lambda left, right: _combined(run, node, left, right, dims))
    while (count := arrays[0].shape[-1]) > 1:
        half = count // 2
        left, right = ([x[..., start : start + half] for x in arrays] for start in (0, half))
        paired = _combined(run, node, left, right, dims)
        arrays = [np.concatenate([p, x[..., 2 * half :]], axis=-1) for p, x in zip(paired, arrays)]
    return _named(node, dims[:-1], [x[..., 0] for x in arrays])


@meaning("scan")
def _scan(run: Run, node: Node) -> Any:
    dims, arrays, identities = _operands(run, node)
    order = -1 if node.attrs.get("reverse") else 1
    arrays = [np.array(x[..., ::order]) for x in arrays]
    check_laws(node, arrays, identities, lambda left, right: _combined(run, node, left, right, dims))
    step = 1
    while step < arrays[0].shape[-1]:
        later = _combined(run, node, [x[..., :-step] for x in arrays], [x[..., step:] for x in arrays], dims)
        arrays = [np.concatenate([x[..., :step], y], axis=-1) for x, y in zip(arrays, later)]
        step *= 2
    return _named(node, dims, [x[..., ::order] for x in arrays])


@meaning("cumsum")
def _cumsum(run: Run, node: Node) -> Named:
    value, array, dtype = _along(run, node)
    order = -1 if node.attrs.get("reverse") else 1
    sums = np.cumsum(array[..., ::order], axis=-1, dtype=array.dtype)[..., ::order]
    return Named(value.dims, run.round(sums, dtype))


@meaning("sort")
def _sort(run: Run, node: Node) -> Named:
    value, array, dtype = _along(run, node)
    ordered = np.sort(array, axis=-1, kind="stable")
    if dtype.is_float:  # zeros: the negative ones come first
        zero = ordered == 0
        negative = np.sum((array == 0) & np.signbit(array), axis=-1, keepdims=True)
        ordered = np.where(zero, np.where(np.cumsum(zero, axis=-1) <= negative, -0.0, 0.0).astype(array.dtype), ordered)
    return Named(value.dims, run.round(ordered[..., ::-1] if node.attrs["descending"] else ordered, dtype))


@meaning("topk")
def _topk(run: Run, node: Node) -> tuple[Named, Named]:
    value, array, dtype = _along(run, node)
    k, dim = node.attrs["k"], node.attrs["dim"]
    count = run.extent(k)
    have = array.shape[-1]
    back = array[..., ::-1]
    # Ascending and stable on the reversed axis; read backwards that is descending with the earlier of equals first.
    if dtype.is_float:  # a NaN comes after minus infinity
        nan = np.isnan(back)
        found = np.lexsort((np.where(nan, -np.inf, back), ~nan), axis=-1)
    else:
        found = np.argsort(back, axis=-1, kind="stable")
    order = have - 1 - found[..., ::-1]
    order = order[..., :count]
    chosen = np.take_along_axis(array, order, axis=-1)
    missing = count - chosen.shape[-1]
    if missing > 0:
        pad = [(0, 0)] * (array.ndim - 1) + [(0, missing)]
        chosen = np.pad(chosen, pad, constant_values=lowest(dtype))
    if dtype.is_float:
        chosen = chosen + np.zeros((), chosen.dtype)  # zeros have no sign
    indices = (order + run.span(dim)[0]).astype(np.int32)
    if missing > 0:
        indices = np.pad(indices, pad, constant_values=-1)
    dims = (*value.dims[:-1], k)
    return Named(dims, run.round(chosen, dtype)), Named(dims, indices)
