"""One evaluation of a graph: the arrays, the tiles of the loops that run, the results so far, and how values line up.

The idea: a register value is an array over its named dimensions, over the whole grid at once. Index dimensions, which
registers do not have, are carried along as further named dimensions, so that batches vectorise. Elements beyond a bound
do not exist here; only loops go tile by tile, because sums are rounded per tile in the accumulator's dtype. A value may
omit dimensions along which it is constant.

Elementwise rows bring their own meaning (`compute` in `ops.py`); the other operations register theirs in `MEANINGS`, a
file per kind (`evaluate_*.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.cuts.partial_sums import parts_of
from wavedsl.ir.dataflow.graph import Graph, Node, Region
from wavedsl.ir.dataflow.long_repeats import long_parts
from wavedsl.ir.dataflow.odd_repeats import odd_parts
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError, LaunchError, WaveError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.rounding import pack, to_float, unpack
from wavedsl.ir.symbols import evaluate as evaluate_expr
from wavedsl.ir.symbols import scale_of


@dataclass(frozen=True)
class Named:
    """An array with a name per axis. It may lack dimensions of its value's type along which it is constant."""

    dims: tuple[Any, ...]
    array: Any


MEANINGS: dict[str, Callable[[Any, Node], Any]] = {}
"""NumPy meaning by operation, for rows that have no elementwise `compute`."""


def meaning(*ops: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for op in ops:
            assert op in ROWS and ROWS[op].compute is None and op not in MEANINGS, op
            MEANINGS[op] = function
        return function

    return register


class Run:
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
        self.tiles: dict[Any, int] = {}
        """Loop's dimension → its tile, of which the last may have a part alone."""
        self.active: list[Named] = []
        """Where the loops around run this trip, if they do not everywhere."""
        self.results: dict[int, Any] = {}
        self.parts = parts_of(graph)
        self.uneven = {*long_parts(graph, values), *odd_parts(graph, values)}
        """Dimensions of which a tile need not have whole elements."""
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
                argument=name,
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
                what = "has no value" if getattr(value, "free_symbols", value) else f"is {value}"
                raise ConstraintError(
                    f"{self.graph.name}: {dim} {what}",
                    hint=f"bind {dim} to a whole number: subs={{…}} or arrays",
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
                if dim in self.uneven:  # its first and its last element stand for others as well
                    return math.floor(low), math.ceil(high)
                if low.denominator != 1 or (high.denominator != 1):
                    raise ConstraintError(
                        f"{self.graph.name}: a tile {start}:{stop} of {loop} is {low}:{high} of {dim}",
                        hint=f"choose a tile of {loop} that makes {dim} whole",
                    )
                return int(low), int(high)
        return 0, self.extent(dim)

    def tile(self, dim: Any) -> int | None:
        """Elements of a tile of a dimension, inside a loop of several; None where all elements are here."""
        if self.span(dim) == (0, self.extent(dim)):
            return None
        return next(int(tile * s) for loop, tile in self.tiles.items() if (s := self._scales.get((dim, loop))))

    def _scale(self, dim: Any, loop: Any) -> Any:
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
            try:
                result = self.elementwise(node, row) if row.compute is not None else MEANINGS[node.op](self, node)
            except WaveError as error:
                if error.location is None:
                    error.location = node.loc
                raise
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

    def apart(self, *values: Named, own: Sequence[Any]) -> tuple[Any, ...]:
        """Dimensions that any of the values varies along beside its `own`: index dimensions in the kernel's order, then
        those whose tiles went round a loop, or took a branch, each by itself."""
        found = dict.fromkeys((*self.hidden(*values), *(d for v in values for d in v.dims)))
        return tuple(d for d in found if d not in own)

    def whole(self, node: Node, *, last: Any = None) -> Named:
        """A node's value with every dimension of its type at full length; `last` goes to the last axis."""
        value = self.get(node)
        own = (*(d for d in node.dims if d != last), *(() if last is None else (last,)))
        dims = (*self.apart(value, own=own), *own)
        array = self.aligned(value, dims)
        shape = tuple(n if d in value.dims else self.size(d) for d, n in zip(dims, array.shape))
        return Named(dims, np.broadcast_to(array, shape))

    def summed(self, node: Node, value: Named) -> Named:
        """An operand of a sum, with 0 for the elements of workgroups that do not come to it, where each adds its part
        (`partial_sums`)."""
        dims = self.parts.sums.get(node.id, ())
        flags = [a for a in self.active if not set(a.dims).isdisjoint(dims)]
        if not flags:
            return value
        there = self.all_of(*flags)
        dims = self.union(value, there)
        array = self.aligned(value, dims)
        return Named(dims, np.where(self.aligned(there, dims), array, np.zeros((), array.dtype)))

    def union(self, *values: Named) -> tuple[Any, ...]:
        widest = max(values, key=lambda v: len(v.dims)).dims
        return (*widest, *dict.fromkeys(d for v in values for d in v.dims if d not in widest))

    def everywhere(self, *more: Named) -> Named:
        """Where all loops and conditions around run, and `more` holds."""
        return self.all_of(*self.active, *more)

    def all_of(self, *parts: Named) -> Named:
        """Where all of some flags hold; without any, everywhere."""
        dims = self.union(*parts) if parts else ()
        flags = [self.aligned(p, dims) for p in parts]
        return Named(dims, np.asarray(np.logical_and.reduce(np.broadcast_arrays(*flags)) if flags else True))

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
