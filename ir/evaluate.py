"""The graph evaluator: what a kernel means, in NumPy, on whole arrays.

In: a traced graph, arrays by argument name, a number for every symbol. Out: the arrays, changed in place. It needs no
index map, no layout and no target, and is what everything below the graph is compared with.

The idea: a register value is an array over its named dimensions, over the whole grid at once. Index dimensions, which
registers do not have, are carried along as further named dimensions, so that batches vectorise. Elements beyond a bound
do not exist here; only loops go tile by tile, because sums are rounded per tile in the accumulator's dtype. A value may
omit dimensions along which it is constant.

Products are exact (f32 holds a product of two 11-bit mantissas, f64 one of integers); sums are in the accumulator's
dtype. With `float64` every float is f64 and nothing is rounded: the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.constraints import TilingConstraint, WorkgroupConstraint
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError, EmulationError, LaunchError
from wavedsl.ir.graph import Graph, Node, Region, ValueType, loop_bounds
from wavedsl.ir.graph import Mapping as ResolvedMapping
from wavedsl.ir.ops import ROWS, contracted, maximum_number, minimum_number, scale_block
from wavedsl.ir.philox import philox, uniform
from wavedsl.ir.rounding import convert, pack, stochastic, to_float, unpack
from wavedsl.ir.symbols import evaluate as evaluate_expr
from wavedsl.ir.symbols import names, scale_of


@dataclass(frozen=True)
class Named:
    """An array with a name per axis. It may lack dimensions of its value's type along which it is constant."""

    dims: tuple[Any, ...]
    array: Any


def evaluate(graph: Graph, arguments: Mapping[str, Any], values: Mapping[Any, Any], *, float64: bool = False) -> None:
    """Runs `graph` on `arguments` (NumPy arrays and numbers by name), changing the arrays that it writes.

    `values` gives an int for every symbol. Raises EmulationError where a device_assert fails, ConstraintError where a
    size cannot be, LaunchError for an array that cannot be written.
    """
    run = _Run(graph, arguments, values, float64)
    with np.errstate(all="ignore"):
        run.region(graph.region)
    run.finish()


MEANINGS: dict[str, Callable[[Any, Node], Any]] = {}
"""NumPy meaning by operation, for rows that have no elementwise `compute`."""


def _meaning(*ops: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for op in ops:
            assert op in ROWS and ROWS[op].compute is None and op not in MEANINGS, op
            MEANINGS[op] = function
        return function

    return register


class _Run:
    """One evaluation. `spans` are the tiles of the loops that are running; `values` the results of nodes so far."""

    def __init__(self, graph: Graph, arguments: Mapping[str, Any], values: Mapping[Any, Any], float64: bool):
        self.graph = graph
        self.float64 = float64
        self.symbols = values
        self.index_dims = set(graph.index_dims)
        self.arguments = dict(arguments)
        self.memory = {a.name: self._load(a) for a in graph.arguments if a.kind == "memory"}
        self.touched: set[str] = set()
        self.spans: dict[Any, tuple[int, int]] = {}
        self.active: list[Named] = []
        """Where the loops around run this trip, if they do not everywhere."""
        self.results: dict[int, Any] = {}
        self._full: dict[Any, int] = {}
        self._scales: dict[tuple[Any, Any], Any] = {}

    # --- memory

    def _load(self, argument: Any) -> Any:
        """The argument's elements: the array itself, or unpacked elements of a packed one."""
        given = self.arguments[argument.name]
        array = given if isinstance(given, np.ndarray) else np.asarray(given)
        packed = argument.dtype.bits < 8 and argument.dtype.kind != "bool" and array.dtype == np.uint8
        if not packed:
            return array
        extent = evaluate_expr(argument.dims[-1], self.symbols)
        assert isinstance(extent, int)
        return unpack(array, argument.dtype, extent)

    def finish(self) -> None:
        """Packs sub-byte arrays that were written back into their storage."""
        for argument in self.graph.arguments:
            if argument.name in self.touched:
                given = self.arguments[argument.name]
                if self.memory[argument.name] is not given and isinstance(given, np.ndarray):
                    pack(self.memory[argument.name], argument.dtype, given)

    def writable(self, name: str) -> Any:
        given = self.arguments[name]
        if isinstance(given, np.ndarray) and not given.flags.writeable:
            raise LaunchError(
                f"{self.graph.name} writes argument {name}, but its array is read-only",
                self.graph.argument(name).loc,
                hint="pass a writable array (a copy)",
            )
        self.touched.add(name)
        return self.memory[name]

    # --- dimensions

    def extent(self, dim: Any) -> int:
        """Elements of a whole dimension."""
        found = self._full.get(dim)
        if found is None:
            value = evaluate_expr(dim, self.symbols)
            if not isinstance(value, int):
                raise ConstraintError(
                    f"{self.graph.name}: {dim} is {value}", hint=f"bind {dim} to a whole number: subs={{…}} or arrays"
                )
            found = self._full[dim] = value
        return found

    def span(self, dim: Any) -> tuple[int, int]:
        """First and last + 1 element of a dimension here: a loop's tile inside the loop, else all of it."""
        for loop, (start, stop) in self.spans.items():
            key = (dim, loop)
            if key not in self._scales:
                self._scales[key] = self._scale(dim, loop)
            scale = self._scales[key]
            if scale is not None:
                low, high = start * scale, stop * scale
                if low.denominator != 1 or (high.denominator != 1):
                    raise ConstraintError(
                        f"{self.graph.name}: a tile {start}:{stop} of {loop} is {low}:{high} of {dim}",
                        hint=f"choose a tile of {loop} that makes {dim} whole",
                    )
                return int(low), int(high)
        return 0, self.extent(dim)

    def _scale(self, dim: Any, loop: Any) -> Any:
        from fractions import Fraction

        factor = scale_of(dim, loop)
        if factor is None:
            return None
        factor = factor.xreplace({s: sympy.Integer(self.symbols[s]) for s in factor.free_symbols})
        return Fraction(int(factor.p), int(factor.q))

    def size(self, dim: Any) -> int:
        low, high = self.span(dim)
        return high - low

    # --- values

    def numpy_type(self, dtype: DType) -> Any:
        return np.float64 if self.float64 and dtype.is_float else dtype.numpy

    def round(self, x: Any, dtype: DType) -> Any:
        """A float result in its value's dtype."""
        if dtype.is_float:
            return x.astype(np.float64, copy=False) if self.float64 else to_float(x, dtype)
        return np.asarray(x).astype(dtype.numpy, copy=False)

    def region(self, region: Region) -> None:
        for node in region.nodes:
            row = ROWS[node.op]
            result = self.elementwise(node, row) if row.compute is not None else MEANINGS[node.op](self, node)
            self.results[node.id] = result

    def get(self, node: Node) -> Named:
        return self.results[node.id]

    def aligned(self, value: Named, dims: tuple[Any, ...]) -> Any:
        """The value's array with axes in the order of `dims`, of length 1 where it has no such dimension."""
        if value.dims == dims:
            return value.array
        order = [value.dims.index(d) for d in dims if d in value.dims]
        array = np.transpose(value.array, order) if order != list(range(len(order))) else value.array
        shape = iter(array.shape)
        return array.reshape([next(shape) if d in value.dims else 1 for d in dims])

    def hidden(self, *values: Named) -> tuple[Any, ...]:
        """Index dimensions that any of the values varies along, in the kernel's order."""
        return tuple(d for d in self.graph.index_dims if any(d in v.dims for v in values))

    def whole(self, node: Node, *, last: Any = None) -> Named:
        """A node's value with every dimension of its type at full length; `last` goes to the last axis."""
        value = self.get(node)
        dims = (*self.hidden(value), *(d for d in node.dims if d != last), *(() if last is None else (last,)))
        array = self.aligned(value, dims)
        shape = tuple(n if d in value.dims else self.size(d) for d, n in zip(dims, array.shape))
        return Named(dims, np.broadcast_to(array, shape))

    def union(self, *values: Named) -> tuple[Any, ...]:
        widest = max(values, key=lambda v: len(v.dims)).dims
        return (*widest, *dict.fromkeys(d for v in values for d in v.dims if d not in widest))

    def elementwise(self, node: Node, row: Any) -> Named:
        values = [self.get(i) for i in node.inputs]
        dims = self.union(*values)
        arrays = [self.aligned(v, dims) for v in values]
        kind = node.inputs[-1].dtype
        if kind.is_float and not self.float64:
            wide = np.float64 if row.precise or kind is dt.f64 else np.float32
            if node.op != "where":
                arrays = [a.astype(wide, copy=False) for a in arrays]
        result = np.asarray(row.compute(*arrays))
        if node.op == "where" or node.dtype.kind == "bool":
            return Named(dims, result)
        return Named(dims, self.round(result, node.dtype))


# ---------------------------------------------------------------------------------------------------------------------
# Values without operands


@_meaning("fill", "constant")
def _constant(run: _Run, node: Node) -> Named:
    value, dtype = node.attrs["value"], node.dtype
    if dtype.is_float:
        return Named((), run.round(np.asarray(float(value), np.float64), dtype))
    return Named((), convert(np.asarray(value), dt.i1 if isinstance(value, bool) else _wide(value), dtype))


def _wide(value: int) -> DType:
    return dt.u64 if value >= 1 << 63 else dt.i64


@_meaning("scalar")
def _scalar(run: _Run, node: Node) -> Named:
    value = run.arguments[node.attrs["name"]]
    if node.dtype.is_float:
        return Named((), run.round(np.asarray(float(value), np.float64), node.dtype))
    return Named((), np.asarray(value).astype(node.dtype.numpy))


@_meaning("size")
def _size(run: _Run, node: Node) -> Named:
    return Named((), np.asarray(run.extent(node.attrs["expr"]), np.int32))


@_meaning("index")
def _index(run: _Run, node: Node) -> Named:
    dim = node.attrs["dim"]
    return Named((dim,), np.arange(*run.span(dim), dtype=np.int32))


@_meaning("tile_start", "tile_stop")
def _tile_end(run: _Run, node: Node) -> Named:
    """A single number of each workgroup: the same for the elements of its tile."""
    dim = node.attrs["dim"]
    low, high = run.span(dim)
    if dim in run.spans:
        return Named((), np.asarray(high if node.op == "tile_stop" else low, np.int32))
    tile = _workgroup_tile(run, dim)
    start = np.arange(low, high, dtype=np.int32) // tile * tile
    return Named((dim,), np.minimum(start + tile, high).astype(np.int32) if node.op == "tile_stop" else start)


def _workgroup_tile(run: _Run, dim: Any) -> int:
    for c in run.graph.constraints:
        if isinstance(c, WorkgroupConstraint) and c.dim == dim:
            tile = evaluate_expr(c.tile, run.symbols)
            assert isinstance(tile, int)
            return tile
    return max(1, run.extent(dim))


@_meaning("random")
def _random(run: _Run, node: Node) -> Named:
    seed, offset = (run.get(i).array.astype(np.int64).astype(np.uint64) for i in node.inputs)
    dims = node.attrs["dims"]
    linear = np.zeros((1,) * len(dims), np.uint64)
    for axis, d in enumerate(dims):
        own = np.arange(*run.span(d), dtype=np.uint64).reshape([-1 if a == axis else 1 for a in range(len(dims))])
        linear = linear * np.uint64(run.extent(d)) + own
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    word = philox((linear & low, linear >> high, offset & low, offset >> high), (seed & low, seed >> high))[0]
    if node.dtype is dt.u32:
        return Named(dims, word)
    return Named(dims, uniform(word).astype(run.numpy_type(node.dtype)))


# ---------------------------------------------------------------------------------------------------------------------
# Memory


@_meaning("read")
def _read(run: _Run, node: Node) -> Named:
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


def _loaded(run: _Run, array: Any, dtype: DType) -> Any:
    if run.float64 and dtype.is_float:
        return array.astype(np.float64)
    return to_float(array, dt.tf32) if dtype is dt.tf32 else array


def _coordinates(
    run: _Run, node: Node, mapping: ResolvedMapping, argument: Any, values: tuple[Named, ...] = ()
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
    shape = [run.size(d) for d in dims]
    coords = [np.broadcast_to(run.aligned(g, dims), shape) for g in given]
    inside = np.ones(shape, np.bool_)
    for c, extent in zip(coords, run.memory[argument.name].shape):
        inside &= (c >= 0) & (c < extent)
    for a in run.active:
        inside &= run.aligned(a, dims)
    return dims, coords, inside


def _expression(run: _Run, expr: Any, dims: tuple[Any, ...]) -> Named:
    """An index expression over the element's own indices; other symbols are their numbers."""
    own = [d for d in (*run.graph.index_dims, *dims) if expr.has(d)]
    known = {s: sympy.Integer(run.symbols[s]) for s in expr.free_symbols if s not in own}
    expr = expr.xreplace(known)
    if not own:
        return Named((), np.asarray(int(expr), np.int64))
    ranges = []
    for axis, d in enumerate(own):
        ranges.append(
            np.arange(*run.span(d), dtype=np.int64).reshape([-1 if a == axis else 1 for a in range(len(own))])
        )
    if expr == own[0]:
        return Named((own[0],), ranges[0])
    result = np.asarray(sympy.lambdify(own, expr, modules="numpy")(*ranges))
    whole = np.rint(result).astype(np.int64)
    if not np.array_equal(whole, result):
        raise ConstraintError(f"{run.graph.name}: the index {expr} is not whole", hint="use sympy.floor")
    return Named(tuple(own), np.broadcast_to(whole, [r.size for r in ranges]))


def _stored(run: _Run, array: Any, value: Any, dtype: DType) -> Any:
    """A value's elements in the type of the array that they go to (differs in float64 mode only)."""
    if array.dtype == value.dtype:
        return value
    return value.astype(np.float64) if array.dtype == np.float64 else to_float(value, dtype)


@_meaning("write")
def _write(run: _Run, node: Node) -> None:
    argument = run.graph.argument(node.attrs["memory"])
    memory = run.writable(argument.name)
    value = run.get(node.inputs[0])
    mapping = node.attrs.get("mapping")
    if mapping is None and run.active:
        _write_where(run, memory, argument, value, _conjunction(run))
        return
    if mapping is None:
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


def _write_where(run: _Run, memory: Any, argument: Any, value: Named, mask: Named) -> None:
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
    "atomic_xchg": lambda old, value: value,
    "atomic_cas": lambda old, expected, value: np.where(old == expected, value, old),
}


@_meaning(*_UPDATES)
def _atomic(run: _Run, node: Node) -> Named:
    """Elements in row-major order, one after the other where several meet in one place."""
    argument = run.graph.argument(node.attrs["memory"])
    memory = run.writable(argument.name)
    mapping = node.attrs.get("mapping")
    count = 2 if node.op == "atomic_cas" else 1
    values = tuple(run.get(i) for i in node.inputs[:count])
    if mapping is None:
        mapping = ResolvedMapping(argument.dims, argument.dims)
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


# ---------------------------------------------------------------------------------------------------------------------
# Loops


@_meaning("iterate")
def _iterate(run: _Run, node: Node) -> tuple[Named, ...]:
    body: Region = node.attrs["body"]
    dim = node.attrs["dim"]
    tile = _tile(run, dim, node)
    carried = [run.get(i) for i in node.inputs[: len(body.carries)]]
    total = run.extent(dim)
    trips = np.arange(-(-total // tile))
    first, last = (None if x is None else run.get(x) for x in loop_bounds(node))
    for trip in trips:
        active = _active(run, trip * tile, tile, first, last)
        if not active.array.any():
            continue
        start = int(trip) * tile
        run.spans[dim] = (start, min(start + tile, total))
        for carry, value in zip(body.carries, carried):
            run.results[carry.id] = value
        everywhere = bool(active.array.all())
        if not everywhere:
            run.active.append(active)
        run.region(body)
        following = [run.get(y) for y in body.yields]
        if not everywhere:
            run.active.pop()
            following = [_chosen(run, active, new, old) for new, old in zip(following, carried)]
        carried = following
    run.spans.pop(dim, None)
    return tuple(carried)


@_meaning("when")
def _when(run: _Run, node: Node) -> tuple[Named, ...]:
    body: Region = node.attrs["body"]
    flag = run.get(node.inputs[0])
    carried = [run.get(i) for i in node.inputs[1:]]
    if not np.any(flag.array):
        return tuple(carried)
    everywhere = bool(np.all(flag.array))
    for carry, value in zip(body.carries, carried):
        run.results[carry.id] = value
    if not everywhere:
        run.active.append(flag)
    run.region(body)
    found = [run.get(y) for y in body.yields]
    if not everywhere:
        run.active.pop()
        found = [_chosen(run, flag, new, old) for new, old in zip(found, carried)]
    return tuple(found)


@_meaning("repeat")
def _repeat(run: _Run, node: Node) -> tuple[Named, ...]:
    body: Region = node.attrs["body"]
    carried = [run.get(i) for i in node.inputs]
    going = Named((), np.asarray(True))
    while True:
        for carry, value in zip(body.carries, carried):
            run.results[carry.id] = value
        run.active.append(going)
        run.region(body)
        run.active.pop()
        found = [run.get(y) for y in body.yields[:-1]]
        carried = [_chosen(run, going, new, old) for new, old in zip(found, carried)]
        again = run.get(body.yields[-1])
        dims = run.union(going, again)
        going = Named(dims, run.aligned(going, dims) & run.aligned(again, dims))
        # Workgroups that a condition around has left out do not keep the others waiting.
        if not np.any(_conjunction(run, going).array):
            return tuple(carried)


def _conjunction(run: _Run, *more: Named) -> Named:
    """Where everything around runs."""
    parts = (*run.active, *more)
    dims = run.union(*parts)
    return Named(dims, np.asarray(np.logical_and.reduce(np.broadcast_arrays(*(run.aligned(p, dims) for p in parts)))))


def _active(run: _Run, start: int, tile: int, first: Named | None, last: Named | None) -> Named:
    """Where a loop's bounds include the tile that starts at `start`."""
    parts = []
    if first is not None:
        parts.append(Named(first.dims, start + tile > first.array))
    if last is not None:
        parts.append(Named(last.dims, start < last.array))
    if first is not None and last is not None:  # an empty range has no tile, whatever its ends
        dims = run.union(first, last)
        parts.append(Named(dims, run.aligned(first, dims) < run.aligned(last, dims)))
    dims = run.union(*parts) if parts else ()
    whole = np.logical_and.reduce(np.broadcast_arrays(*(run.aligned(p, dims) for p in parts))) if parts else True
    return Named(dims, np.asarray(whole))


def _chosen(run: _Run, active: Named, new: Named, old: Named) -> Named:
    dims = run.union(new, old, active)
    return Named(dims, np.where(*(run.aligned(x, dims) for x in (active, new, old))))


def _tile(run: _Run, dim: Any, node: Node) -> int:
    for c in run.graph.constraints:
        if isinstance(c, TilingConstraint) and c.dim == dim:
            tile = evaluate_expr(c.tile, run.symbols)
            if isinstance(tile, int) and tile > 0:
                return tile
            raise ConstraintError(f"{c}: the tile is {tile}", c.loc, hint="bind its symbols to a positive whole number")
    raise ConstraintError(
        f"iterate: {dim} has no TilingConstraint", node.loc, hint=f"add wd.TilingConstraint({dim}, …)"
    )


@_meaning("result")
def _result(run: _Run, node: Node) -> Named:
    return run.results[node.inputs[0].id][node.attrs["position"]]


@_meaning("carry")
def _carry(run: _Run, node: Node) -> Named:
    return run.get(node)  # set by its loop; never in a region's list of nodes


# ---------------------------------------------------------------------------------------------------------------------
# Matrix products


def _product(run: _Run, node: Node, x: Named, y: Named, over: tuple[Any, ...], acc: Node | None) -> Named:
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
    total = np.matmul(a, b).reshape(*shared, *lengths[0], *lengths[1])
    result = Named((*batch, *rows, *columns), total.astype(np.int64) if dtype.is_int else total)
    if acc is not None:
        added = run.get(acc)
        dims = run.union(result, added)
        result = Named(dims, run.aligned(result, dims) + run.aligned(added, dims).astype(result.array.dtype))
    return Named(result.dims, run.round(result.array, dtype))


@_meaning("mma")
def _mma(run: _Run, node: Node) -> Named:
    a, b = node.inputs[:2]
    acc = node.inputs[2] if len(node.inputs) > 2 else None
    over = _contracted(a, b, acc)
    x, y = run.whole(a), run.whole(b)
    if node.attrs.get("precision") == "tf32":
        x, y = (Named(side.dims, convert(side.array, dt.f32, dt.tf32)) for side in (x, y))
    return _product(run, node, x, y, over, acc)


def _contracted(a: Node, b: Node, acc: Node | None) -> tuple[Any, ...]:
    assert isinstance(a.type, ValueType) and isinstance(b.type, ValueType)
    return contracted(a.type, b.type, acc.type if acc is not None else None)  # type: ignore[arg-type]


@_meaning("scaled_mma")
def _scaled_mma(run: _Run, node: Node) -> Named:
    x, x_scale, y, y_scale = node.inputs[:4]
    acc = node.inputs[4] if len(node.inputs) > 4 else None
    (over,) = _contracted(x, y, acc)
    sides = []
    for value, scale in ((x, x_scale), (y, y_scale)):
        block = scale_block(value.type, scale.type, over)  # type: ignore[arg-type]
        whole = run.whole(value, last=over)
        blocked = next(d for d in scale.dims if d not in value.dims)
        factors = run.whole(scale, last=blocked)
        repeated = np.repeat(_scale_factor(factors.array), block or 1, axis=-1)[..., : whole.array.shape[-1]]
        dims = (*factors.dims[:-1], over)
        target = run.union(whole, Named(dims, repeated))
        scaled = run.aligned(whole, target).astype(np.float64) * run.aligned(Named(dims, repeated), target)
        sides.append(Named(target, scaled))
    # The power of two goes with the exact product; f64 holds both, the sum is rounded to the accumulator.
    return _scaled_product(run, node, sides[0], sides[1], over, acc)


def _scaled_product(run: _Run, node: Node, x: Named, y: Named, over: Any, acc: Node | None) -> Named:
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


# ---------------------------------------------------------------------------------------------------------------------
# Casts and shapes


@_meaning("cast")
def _cast(run: _Run, node: Node) -> Named:
    value, source, to = run.get(node.inputs[0]), node.inputs[0].dtype, node.dtype
    if run.float64 and to.is_float:
        return Named(value.dims, _widened(value.array))
    if node.attrs.get("rounding") == "stochastic":
        noise = run.get(node.inputs[1])
        dims = run.union(value, noise)
        return Named(dims, stochastic(run.aligned(value, dims), to, run.aligned(noise, dims)))
    return Named(value.dims, convert(value.array, source, to, node.attrs.get("rounding")))


def _widened(array: Any) -> Any:
    return (array.astype(np.int32) if array.dtype.kind == "V" else array).astype(np.float64)


@_meaning("bitcast")
def _bitcast(run: _Run, node: Node) -> Named:
    value, source, to = run.get(node.inputs[0]), node.inputs[0].dtype, node.dtype
    array = to_float(value.array, source) if run.float64 and source.is_float else value.array
    bits = np.ascontiguousarray(array).reshape(array.shape).view(to.numpy)
    return Named(value.dims, _widened(bits) if run.float64 and to.is_float else bits)


@_meaning("broadcast", "permute")
def _same_elements(run: _Run, node: Node) -> Named:
    return run.get(node.inputs[0])


@_meaning("reshape")
def _reshape(run: _Run, node: Node) -> Named:
    value = run.whole(node.inputs[0])
    hidden = run.hidden(value)
    sizes = [run.size(d) for d in node.attrs["dims"]]
    have = value.array.shape[len(hidden) :]
    if int(np.prod(have, dtype=np.int64)) != int(np.prod(sizes, dtype=np.int64)):
        old = " × ".join(f"{d} = {n}" for d, n in zip(value.dims[len(hidden) :], have))
        new = " × ".join(f"{d} = {n}" for d, n in zip(node.attrs["dims"], sizes))
        raise ConstraintError(f"reshape: {old} elements do not fit {new}", node.loc, hint="the products must be equal")
    return Named((*hidden, *node.attrs["dims"]), value.array.reshape(*value.array.shape[: len(hidden)], *sizes))


@_meaning("extract")
def _extract(run: _Run, node: Node) -> Named:
    dim, new = node.attrs["dim"], node.attrs["new"]
    value = run.whole(node.inputs[0], last=dim)
    start = node.attrs["start"]
    if start is None:
        start = run.get(node.inputs[1]).array
    count = 1 if new is None else run.size(new)
    places = np.asarray(start, np.int64)[..., None] + np.arange(count) * node.attrs["step"]
    start_dims = () if node.attrs["start"] is not None else run.get(node.inputs[1]).dims
    taken = _taken(run, value, Named((*start_dims, _PLACE), places))
    at = taken.dims.index(_PLACE)
    if new is None:
        return Named(taken.dims[:at] + taken.dims[at + 1 :], np.take(taken.array, 0, at))
    return Named(tuple(new if d is _PLACE else d for d in taken.dims), taken.array)


@_meaning("shuffle")
def _shuffle(run: _Run, node: Node) -> Named:
    dim = node.attrs["dim"]
    value = run.whole(node.inputs[0], last=dim)
    index = run.get(node.inputs[1])
    dims = tuple(_PLACE if d == dim else d for d in index.dims)
    if dim not in index.dims:  # every element along the dimension is the same one
        length = value.array.shape[-1]
        index = Named((*index.dims, dim), np.repeat(index.array[..., None], length, axis=-1))
        dims = (*dims, _PLACE)
    taken = _taken(run, value, Named(dims, index.array))
    return Named(tuple(dim if d is _PLACE else d for d in taken.dims), taken.array)


_PLACE = sympy.Symbol("_place")
"""Stands for the places that are taken along a dimension."""


def _taken(run: _Run, value: Named, places: Named) -> Named:
    """Elements of the last dimension of `value` at `places`, 0 outside."""
    along, length = value.dims[-1], value.array.shape[-1]
    dims = tuple(dict.fromkeys((*value.dims[:-1], *(d for d in places.dims if d is not _PLACE))))
    table = run.aligned(value, (*dims, along))
    index = run.aligned(places, (*dims, _PLACE))
    sizes = np.broadcast_shapes(table.shape[:-1], index.shape[:-1])
    table = np.broadcast_to(table, (*sizes, table.shape[-1]))
    index = np.broadcast_to(index, (*sizes, index.shape[-1])).astype(np.int64)
    inside = (index >= 0) & (index < length)
    found = np.take_along_axis(table, np.clip(index, 0, max(length - 1, 0)), axis=-1)
    return Named((*dims, _PLACE), np.where(inside, found, np.zeros((), found.dtype)))


@_meaning("repeat_interleave")
def _repeat_interleave(run: _Run, node: Node) -> Named:
    dim = node.attrs["dim"]
    part = next(d for d in node.inputs[0].dims if d not in node.dims)
    value = run.whole(node.inputs[0], last=part)
    array = np.repeat(value.array, node.attrs["count"], axis=-1)[..., : run.size(dim)]
    return Named((*value.dims[:-1], dim), array)


# ---------------------------------------------------------------------------------------------------------------------
# Reductions, scans, orders. All work along the last axis.


def _along(run: _Run, node: Node) -> tuple[Named, Any, DType]:
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


@_meaning("sum")
def _sum(run: _Run, node: Node) -> Named:
    value, array, dtype = _along(run, node)
    total = np.sum(array, axis=-1, dtype=array.dtype)
    return Named(value.dims[:-1], run.round(np.asarray(total), dtype))


@_meaning("max", "min")
def _extreme(run: _Run, node: Node) -> Named:
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


@_meaning("argmax", "argmin")
def _arg_extreme(run: _Run, node: Node) -> Named:
    value, array, _ = _along(run, node)
    if array.shape[-1] == 0:
        return Named(value.dims[:-1], np.full(array.shape[:-1], -1, np.int32))
    chooser = np.fmax if node.op == "argmax" else np.fmin
    best = chooser.reduce(array, axis=-1, keepdims=True)
    first = np.argmax(array == best, axis=-1)
    return Named(value.dims[:-1], (first + run.span(node.attrs["dim"])[0]).astype(np.int32))


@_meaning("any", "all")
def _logical(run: _Run, node: Node) -> Named:
    value, array, _ = _along(run, node)
    return Named(value.dims[:-1], np.asarray((np.any if node.op == "any" else np.all)(array, axis=-1)))


def _combined(run: _Run, node: Node, left: Any, right: Any, dims: tuple[Any, ...]) -> Any:
    """The combining function on arrays of elements."""
    body: Region = node.attrs["body"]
    for carry, array in zip(body.carries, (left, right)):
        run.results[carry.id] = Named(dims, array)
    run.region(body)
    return np.broadcast_to(run.aligned(run.get(body.yields[0]), dims), left.shape)


def _identity(run: _Run, node: Node) -> Any:
    return np.asarray(node.attrs["identity"], np.float64 if node.inputs[0].dtype.is_float else None).astype(
        run.numpy_type(node.inputs[0].dtype)
    )


@_meaning("reduce")
def _reduce(run: _Run, node: Node) -> Named:
    value = run.whole(node.inputs[0], last=node.attrs["dim"])
    array = value.array
    if array.shape[-1] == 0:
        return Named(value.dims[:-1], np.full(array.shape[:-1], _identity(run, node)))
    while array.shape[-1] > 1:
        half = array.shape[-1] // 2
        paired = _combined(run, node, array[..., :half], array[..., half : 2 * half], value.dims)
        array = np.concatenate([paired, array[..., 2 * half :]], axis=-1)
    return Named(value.dims[:-1], array[..., 0])


@_meaning("scan")
def _scan(run: _Run, node: Node) -> Named:
    value = run.whole(node.inputs[0], last=node.attrs["dim"])
    array = np.array(value.array)
    step = 1
    while step < array.shape[-1]:
        later = _combined(run, node, array[..., :-step], array[..., step:], value.dims)
        array = np.concatenate([array[..., :step], later], axis=-1)
        step *= 2
    return Named(value.dims, array)


@_meaning("cumsum")
def _cumsum(run: _Run, node: Node) -> Named:
    value, array, dtype = _along(run, node)
    return Named(value.dims, run.round(np.cumsum(array, axis=-1, dtype=array.dtype), dtype))


@_meaning("sort")
def _sort(run: _Run, node: Node) -> Named:
    value, array, dtype = _along(run, node)
    ordered = np.sort(array, axis=-1, kind="stable")
    if dtype.is_float:  # zeros: the negative ones come first
        zero = ordered == 0
        negative = np.sum((array == 0) & np.signbit(array), axis=-1, keepdims=True)
        ordered = np.where(zero, np.where(np.cumsum(zero, axis=-1) <= negative, -0.0, 0.0).astype(array.dtype), ordered)
    return Named(value.dims, run.round(ordered[..., ::-1] if node.attrs["descending"] else ordered, dtype))


@_meaning("topk")
def _topk(run: _Run, node: Node) -> tuple[Named, Named]:
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


# ---------------------------------------------------------------------------------------------------------------------
# Messages


@_meaning("fence")
def _fence(run: _Run, node: Node) -> None:
    return None


@_meaning("device_print")
def _print(run: _Run, node: Node) -> None:
    text = node.attrs["text"]
    if not node.inputs:
        print(text)
    for source in node.inputs:
        value = run.whole(source)
        print(f"{text}{' ' if text else ''}[{names(value.dims)}] {source.dtype}")
        print(np.array2string(_widened(value.array) if value.array.dtype.kind == "V" else value.array))


@_meaning("device_assert")
def _assert(run: _Run, node: Node) -> None:
    value = run.get(node.inputs[0])
    if np.all(value.array):
        return
    first = np.argwhere(~np.atleast_1d(value.array))[0]
    at = ", ".join(f"{d} = {run.span(d)[0] + int(i)}" for d, i in zip(value.dims, first))
    message = node.attrs["message"] or "the condition does not hold"
    raise EmulationError(f"device_assert: {message}" + (f" (first at {at})" if at else ""), node.loc)


for _name, _row in ROWS.items():
    assert _row.compute is not None or _name in MEANINGS, f"operation {_name} has no NumPy meaning"
