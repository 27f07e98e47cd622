"""NumPy meaning of values without operands (constants, arguments, indices, random numbers) and of casts."""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.constraints import WorkgroupConstraint
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import DType
from wavedsl.ir.evaluator.evaluate_run import Named, Run, meaning
from wavedsl.ir.philox import philox, uniform
from wavedsl.ir.rounding import convert, stochastic, to_float
from wavedsl.ir.symbols import evaluate as evaluate_expr


@meaning("fill", "constant")
def _constant(run: Run, node: Node) -> Named:
    value, dtype = node.attrs["value"], node.dtype
    if dtype.is_float:
        return Named((), run.round(np.asarray(float(value), np.float64), dtype))
    return Named((), convert(np.asarray(value), dt.i1 if isinstance(value, bool) else _wide(value), dtype))


def _wide(value: int) -> DType:
    return dt.u64 if value >= 1 << 63 else dt.i64


@meaning("scalar")
def _scalar(run: Run, node: Node) -> Named:
    value = run.arguments[node.attrs["name"]]
    if node.dtype.is_float:
        return Named((), run.round(np.asarray(float(value), np.float64), node.dtype))
    return Named((), np.asarray(value).astype(node.dtype.numpy))


@meaning("size")
def _size(run: Run, node: Node) -> Named:
    return Named((), np.asarray(run.extent(node.attrs["expr"]), np.int32))


@meaning("index")
def _index(run: Run, node: Node) -> Named:
    dim = node.attrs["dim"]
    return Named((dim,), np.arange(*run.span(dim), dtype=np.int32))


@meaning("tile_start", "tile_stop")
def _tile_end(run: Run, node: Node) -> Named:
    """A single number of each workgroup: the same for the elements of its tile."""
    dim = node.attrs["dim"]
    low, high = run.span(dim)
    if dim in run.spans:
        return Named((), np.asarray(high if node.op == "tile_stop" else low, np.int32))
    tile = _workgroup_tile(run, dim)
    start = np.arange(low, high, dtype=np.int32) // tile * tile
    return Named((dim,), np.minimum(start + tile, high).astype(np.int32) if node.op == "tile_stop" else start)


def _workgroup_tile(run: Run, dim: Any) -> int:
    for c in run.graph.constraints:
        if isinstance(c, WorkgroupConstraint) and c.dim == dim:
            tile = evaluate_expr(c.tile, run.symbols)
            assert isinstance(tile, int)
            return tile
    return max(1, run.extent(dim))


@meaning("random")
def _random(run: Run, node: Node) -> Named:
    numbers = [run.get(i) for i in node.inputs]
    counted = node.attrs["dims"]
    dims = run.union(Named(counted, np.zeros((1,) * len(counted))), *numbers)  # numbers differ between workgroups
    seed, offset = (run.aligned(x, dims).astype(np.int64).astype(np.uint64) for x in numbers)
    linear = np.zeros((1,) * len(dims), np.uint64)
    for d in counted:
        own = np.arange(*run.span(d), dtype=np.uint64).reshape([-1 if a == d else 1 for a in dims])
        linear = linear * np.uint64(run.extent(d)) + own
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    word = philox((linear & low, linear >> high, offset & low, offset >> high), (seed & low, seed >> high))[0]
    if node.dtype is dt.u32:
        return Named(dims, word)
    return Named(dims, uniform(word).astype(run.numpy_type(node.dtype)))


@meaning("cast")
def _cast(run: Run, node: Node) -> Named:
    value, source, to = run.get(node.inputs[0]), node.inputs[0].dtype, node.dtype
    if run.float64 and to.is_float:
        return Named(value.dims, widened(value.array))
    if node.attrs.get("rounding") == "stochastic":
        noise = run.get(node.inputs[1])
        dims = run.union(value, noise)
        return Named(dims, stochastic(run.aligned(value, dims), to, run.aligned(noise, dims)))
    return Named(value.dims, convert(value.array, source, to, node.attrs.get("rounding")))


def widened(array: Any) -> Any:
    return (array.astype(np.int32) if array.dtype.kind == "V" else array).astype(np.float64)


@meaning("bitcast")
def _bitcast(run: Run, node: Node) -> Named:
    value, source, to = run.get(node.inputs[0]), node.inputs[0].dtype, node.dtype
    array = to_float(value.array, source) if run.float64 and source.is_float else value.array
    bits = np.ascontiguousarray(array).reshape(array.shape).view(to.numpy)
    return Named(value.dims, widened(bits) if run.float64 and to.is_float else bits)
