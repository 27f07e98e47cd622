"""NumPy meaning of matrix products: exact products, sums in the accumulator's dtype.

f32 holds a product of two 11-bit mantissas, f64 one of integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Node, ValueType
from wavedsl.ir.dataflow.ops import contracted, scale_block
from wavedsl.ir.evaluator.evaluate_run import Named, Run, meaning
from wavedsl.ir.rounding import convert


def _product(run: Run, node: Node, x: Named, y: Named, over: tuple[Any, ...], acc: Node | None) -> Named:
    """Sum of products over `over`, plus the accumulator, in the result's dtype."""
    batch = tuple(d for d in x.dims if d in y.dims and d not in over)
    rows = tuple(d for d in x.dims if d not in over and d not in batch)
    columns = tuple(d for d in y.dims if d not in over and d not in batch)
    dtype = node.dtype
    # Products of integers below 2^32 and their sums are whole f64 numbers; the sum wraps when it is rounded to i32.
    wide = np.float64 if run.float64 or dtype is dt.f64 or dtype.is_int else np.float32
    a = run.aligned(x, (*batch, *rows, *over)).astype(wide)
    b = run.aligned(y, (*batch, *over, *columns)).astype(wide)
    at = len(batch)
    shared = a.shape[:at]
    lengths = a.shape[at : at + len(rows)], b.shape[at + len(over) :]
    inner = int(np.prod(a.shape[at + len(rows) :], dtype=np.int64))
    a = a.reshape(*shared, int(np.prod(lengths[0], dtype=np.int64)), inner)
    b = b.reshape(*shared, inner, int(np.prod(lengths[1], dtype=np.int64)))
    total = np.matmul(a, b).reshape((*shared, *lengths[0], *lengths[1]))
    result = Named((*batch, *rows, *columns), total.astype(np.int64) if dtype.is_int else total)
    if acc is not None:
        added = run.get(acc)
        dims = run.union(result, added)
        result = Named(dims, run.aligned(result, dims) + run.aligned(added, dims).astype(result.array.dtype))
    return Named(result.dims, run.round(result.array, dtype))


@meaning("mma")
def _mma(run: Run, node: Node) -> Named:
    a, b = node.inputs[:2]
    acc = node.inputs[2] if len(node.inputs) > 2 else None
    over = _contracted(a, b, acc)
    x, y = run.summed(node, run.whole(a)), run.summed(node, run.whole(b))
    if node.attrs.get("precision") == "tf32":
        x, y = (Named(side.dims, convert(side.array, dt.f32, dt.tf32)) for side in (x, y))
    return _product(run, node, x, y, over, acc)


def _contracted(a: Node, b: Node, acc: Node | None) -> tuple[Any, ...]:
    assert isinstance(a.type, ValueType) and isinstance(b.type, ValueType)
    return contracted(a.type, b.type, acc.type if acc is not None else None)  # type: ignore[arg-type]


@meaning("scaled_mma")
def _scaled_mma(run: Run, node: Node) -> Named:
    x, x_scale, y, y_scale = node.inputs[:4]
    acc = node.inputs[4] if len(node.inputs) > 4 else None
    (over,) = _contracted(x, y, acc)
    sides = []
    for value, scale in ((x, x_scale), (y, y_scale)):
        block = scale_block(value.type, scale.type, over)  # type: ignore[arg-type]
        whole = run.summed(node, run.whole(value, last=over))
        blocked = next(d for d in scale.dims if d not in value.dims)
        factors = run.whole(scale, last=blocked)
        repeated = np.repeat(_scale_factor(factors.array), block or 1, axis=-1)[..., : whole.array.shape[-1]]
        dims = (*factors.dims[:-1], over)
        target = run.union(whole, Named(dims, repeated))
        scaled = run.aligned(whole, target).astype(np.float64) * run.aligned(Named(dims, repeated), target)
        sides.append(Named(target, scaled))
    # The power of two goes with the exact product; f64 holds both, the sum is rounded to the accumulator.
    return _scaled_product(run, node, sides[0], sides[1], over, acc)


def _scaled_product(run: Run, node: Node, x: Named, y: Named, over: Any, acc: Node | None) -> Named:
    exact = run.float64
    run.float64 = True
    try:
        total = _product(run, node, x, y, (over,), acc)
    finally:
        run.float64 = exact
    return Named(total.dims, run.round(total.array, node.dtype))


def _scale_factor(codes: Any) -> Any:
    """f8e8m0 as f64: 2^(code - 127), NaN for 255."""
    if codes.dtype == np.float64:
        return codes
    bits = np.ascontiguousarray(codes).view(np.uint8).reshape(codes.shape)
    return np.where(bits == 255, np.nan, np.ldexp(1.0, bits.astype(np.int32) - 127))
