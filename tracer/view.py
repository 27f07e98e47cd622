"""Slices of an array argument: `a[10:20, :]`, which `read`, `write` and atomics take like an array.

In: the subscript. Out: the `IndexMapping` that it means. A slice along a dimension shifts it by its start; elements at
or past its stop lie outside. Where the slice's length is a symbol (`a[s : s + M]`, where `s` may be a traced number),
or as many symbols as the array's dimension has more of (`a[: 2 * N]` of 4 N), the value has that dimension; of a slice
with a step likewise the number of elements (`a[s : s + 2 * M : 2]`). A traced index with dimensions gathers
(`table[ids, :]`) and scatters: the value has its dimensions in the place of the array's.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Argument, Node
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.errors import TraceError
from wavedsl.ir.source import here
from wavedsl.ir.symbols import is_dim, is_whole, names, normalise, scale_of
from wavedsl.tracer.mapping import IndexMapping
from wavedsl.tracer.proxy import Array, Value

if TYPE_CHECKING:
    from wavedsl.tracer.builder import Builder


class View(Array):
    """A part of an array argument: per dimension the whole, a (start, stop), every step-th element as (first, stop or
    None, step), one coordinate, or a value of coordinates. `said`: how many dimensions, the first ones, the subscript
    names."""

    __slots__ = ("places", "said")

    def __init__(self, argument: Argument, builder: Builder, places: dict[Any, Any], said: int):
        super().__init__(argument, builder)
        self.places = places
        self.said = said

    def __repr__(self) -> str:
        return f"<part of array argument {self.argument.name}>"

    def __getitem__(self, key: Any) -> View:
        raise TraceError(
            f"a part of {self.argument.name} cannot be indexed again",
            here(),
            hint="give all slices at once: a[2:, 4:8]",
        )


def part(array: Array, key: Any) -> View:
    """`array[key]`. Raises TraceError for subscripts that are no slices, whole numbers or expressions."""
    dims = array.argument.dims
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(k is Ellipsis for k in keys):
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (len(dims) - len(keys) + 1)
    if len(keys) > len(dims) or any(k is Ellipsis for k in keys):
        raise TraceError(
            f"{array.argument.name} has {len(dims)} dimensions ([{names(dims)}]), and the subscript {len(keys)}",
            here(),
            hint="one slice per dimension, for example a[2:10, :]",
        )
    places: dict[Any, Any] = {}
    for d, k in zip(dims, keys):
        if not isinstance(k, slice):
            places[d] = _coordinate(array, d, k)
            continue
        if k.step is not None and k.step != 1:
            places[d] = _stepped(array, d, k)
            continue
        start = 0 if k.start is None else _bound(array, d, k.start)
        stop = None if k.stop is None else _bound(array, d, k.stop)
        if stop is not None and not isinstance(stop, Value) and normalise(stop) == d:
            stop = None
        if stop is None and not d.is_Symbol and not isinstance(start, Value) and _named(d - start, d):
            stop = d  # the second half of 2 N has the dimension N
        start, stop = _of_workgroup(array, d, k, start, stop)
        if stop is not None or isinstance(start, Value) or normalise(start) != 0:
            places[d] = (start, stop)
    return View(array.argument, array.builder, places, len(keys))


def _stepped(array: Array, d: Any, k: slice) -> tuple[Any, Any, int]:
    """(first, stop, step) of a slice such as `1::2` of the dimension 2 D, whose elements have the dimension D (of D / 2
    they have D / 4), with None as stop; or of `s : s + 2 * P : 2`, whose elements have the dimension P."""
    whole = isinstance(k.step, int) and k.step > 1
    from_start = k.start is None or (isinstance(k.start, int) and k.start in range(k.step if whole else 1))
    if whole and k.stop is None and from_start and _divides(d, k.step):
        return sympy.sympify(k.start or 0), None, k.step
    if whole:
        start, stop = (end if x is None else _bound(array, d, x) for x, end in ((k.start, sympy.S.Zero), (k.stop, d)))
        if _count(start, stop, k.step, d) is not None:
            return start, stop, k.step
    step = k.step if isinstance(k.step, int) and k.step > 1 else 2
    hint = (
        f"of an array of {step} * P, a[::{step}] is P long, and of any a[s : s + {step} * P : {step}]; otherwise give "
        f"the part a name yourself: wd.read(a, mapping=wd.IndexMapping((…, P), {{{d}: {step} * P}}))"
    )
    if isinstance(k.step, int) and k.step < 0:
        back = f"{d} - 1 - wd.index({d})" if k.step == -1 and d.is_Symbol else f"last - wd.index(P) * {-k.step}"
        dims = names(array.argument.dims) if k.step == -1 and d.is_Symbol else "…, P"
        hint = f"backwards: wd.read(a, mapping=wd.IndexMapping(({dims}{',' * (dims == str(d))}), {{{d}: {back}}}))"
    raise TraceError(f"{array.argument.name}[…]: a step of {k.step!r} along {d}", here(), hint=hint)


def _divides(d: Any, step: int) -> bool:
    """Whether a part of a dimension has a name: a symbol, or another part of the symbol that `d` is a part of. (Of N
    itself nobody has said that it is a multiple of the step.)"""
    along = sympy.sympify(d / step)
    if along.is_Symbol or d.is_Symbol:
        return along.is_Symbol
    symbols = list(along.free_symbols)
    return len(symbols) == 1 and getattr(scale_of(along, symbols[0]), "is_Rational", False)


def _count(start: Any, stop: Any, step: int, d: Any) -> Any:
    """How many elements `start : stop : step` has, where that is the name of a dimension; else None."""
    length = _length(start, stop)
    if length is None:
        return None
    counts = (sympy.expand((length + rest) / step) for rest in range(step))
    return next((count for count in counts if _named(count, d)), None)


def _named(length: Any, d: Any) -> bool:
    """Whether a part of dimension `d` that is so long has a dimension of its own: a symbol, or a part of the symbol of
    which `d` is a multiple or a part."""
    if length.is_Symbol:
        return True
    symbols = list(d.free_symbols)
    if d.is_Symbol or len(symbols) != 1 or length == d:
        return False
    return all(getattr(scale_of(x, symbols[0]), "is_Rational", False) for x in (length, d))


def _coordinate(array: Array, dim: Any, x: Any) -> Any:
    """One place along a dimension; of a value with dimensions, such as ids of rows, one for each element. Symbols of
    index dimensions are the workgroup's own indices there, `a[H, 3, :]`; others are extents, as everywhere but in a
    mapping, and what is counted from the end begins at the extent."""
    if isinstance(x, Value):
        return x
    place = _bound(array, dim, x)
    b = array.builder
    from_end = not isinstance(x, sympy.Expr) and not place.is_number
    extents = {s for a in b.graph.arguments for d in a.dims for s in d.free_symbols}.difference(b.index_dims)
    if from_end or (place.free_symbols.isdisjoint(b.index_dims) and place.free_symbols & extents):
        return _number(array, place)
    return place


def _of_workgroup(array: Array, d: Any, k: slice, start: Any, stop: Any) -> tuple[Any, Any]:
    """The ends of a slice, of which one is an expression over index dimensions, as traced numbers: as in `a[G, :]`
    those are the workgroup's own indices there, and `x[G * L : (G + 1) * L]` is its part, also of a dimension G * L.
    A part that is as long as there are workgroups is nobody's own."""
    index_dims = array.builder.index_dims
    moves = [isinstance(x, sympy.Expr) and not x.free_symbols.isdisjoint(index_dims) for x in (k.start, k.stop)]
    if not any(moves) or isinstance(start, Value) or isinstance(stop, Value):
        return start, stop
    length = _length(start, stop)
    if not d.free_symbols.isdisjoint(index_dims):
        rest = _length(start, d) if length is None else length
        if not rest.free_symbols.isdisjoint(index_dims):
            return start, stop
    if moves[0]:
        start = _own_place(array, start)
    if length is None:
        return start, stop
    if length.free_symbols.isdisjoint(index_dims) and isinstance(start, Value):
        return start, start + length
    return start, _own_place(array, stop) if moves[1] else stop


def _own_place(array: Array, x: Any) -> Value:
    """A whole expression with the workgroup's own indices for index dimensions, and extents for others."""
    b = array.builder
    if not is_whole(x):
        hint = "// rounds down: N // 2 for pairs of elements"
        raise TraceError(f"{array.argument.name}[…]: {x} is not whole for every workgroup", here(), hint=hint)

    def made(e: Any) -> Any:
        if e.free_symbols.isdisjoint(b.index_dims):
            return e
        if e.is_Symbol:
            return b.results(b.emit("index", (), {"dim": e}))
        if e.is_Add or e.is_Mul:
            extents = [a for a in e.args if a.free_symbols.isdisjoint(b.index_dims)]
            parts = [made(a) for a in e.args if a not in extents] + [e.func(*extents)] * bool(extents)
            return reduce(lambda p, q: b.apply("add" if e.is_Add else "mul", [p, q]), parts)
        if e.func.__name__ == "floor":
            return b.apply("floordiv", [made(part) for part in sympy.fraction(sympy.together(e.args[0]))])
        if e.func.__name__ == "Mod":
            return b.apply("mod", [made(part) for part in e.args])
        raise TraceError(
            f"{array.argument.name}[…]: {x} is no place", here(), hint="sums, products, // and % of whole numbers are"
        )

    return made(x)


def _number(array: Array, x: Any) -> Value:
    """An expression over extents as a traced number."""
    b, loc = array.builder, here()
    return b.value(b.extent(x, dt.i32, f"{array.argument.name}[…]", loc))


def _bound(array: Array, dim: Any, x: Any) -> Any:
    """One end of a slice; negative numbers count from the dimension's end."""
    if isinstance(x, Value):
        if x.dims:
            raise TraceError(
                f"{array.argument.name}[…]: the end of a slice has dimensions {names(x.dims)}", here(),
                hint=f"an index for each element: wd.read({array.argument.name}[…, index, …]), and wd.write into it",
            )  # fmt: skip
        return x
    if hasattr(x, "__index__") and not isinstance(x, (bool, sympy.Expr)):
        x = int(x)
    if not is_dim(x):
        raise TraceError(
            f"{array.argument.name}[…]: {x!r} is no place along {dim}", here(),
            hint="a whole number, an expression over symbols, or a traced integer",
        )  # fmt: skip
    x = normalise(x)
    return dim + x if x.is_Integer and x < 0 else x


def _length(start: Any, stop: Any) -> Any:
    """stop - start as an expression; None where that is not known. Of a traced start, `t : t + M` is M long."""
    if stop is None:
        return None
    if not isinstance(start, Value) and not isinstance(stop, Value):
        return sympy.expand(stop - start)
    if isinstance(start, Value) and isinstance(stop, Value) and stop.node.op == "add":
        rest = [n for n in stop.node.inputs if not _same(n, start.node)]
        if len(rest) == 1 and rest[0].op == "size":
            return rest[0].attrs["expr"]
    return None


def _same(x: Node, y: Node) -> bool:
    """Whether two numbers are one, or computed alike, as in `x[at + 1 : at + 1 + M]`."""
    if x is y:
        return True
    alike = x.op == y.op and x.attrs == y.attrs and len(x.inputs) == len(y.inputs)
    if not alike or (ROWS[x.op].compute is None and x.op not in _NUMBERS):
        return False
    return all(map(_same, x.inputs, y.inputs))


_NUMBERS = ("constant", "size", "index")


def _places_hint(view: View) -> str:
    """How to write a subscript that has fallen on an index dimension."""
    dims, index_dims = view.argument.dims, view.builder.index_dims
    example = ", ".join(":" if d in index_dims else f"{d} slice" for d in dims)
    return (
        f"index dimensions count among those of {view.argument.name} ([{names(dims)}]): "
        f"{view.argument.name}[{example}]; along one of them, a start that is an expression: [1:]"
    )


def window(view: View, op: str) -> IndexMapping:
    """The mapping of a `read`, `write` or atomic of a view."""
    builder, argument = view.builder, view.argument
    dims: list[Any] = []
    indices: dict[Any, Any] = {}
    for d in argument.dims:
        place = view.places.get(d)
        if place is None:
            if d not in builder.index_dims:
                dims.append(d)
            continue
        if not isinstance(place, tuple):
            indices[d] = place
            dims += place.dims if isinstance(place, Value) else ()
            continue
        start, stop, step = (*place, 1)[:3]
        if step != 1:
            along = d / step if stop is None else _count(start, stop, step, d)
            if d in builder.index_dims or along in builder.index_dims:
                raise TraceError(
                    f"{op}: a step of {step} along {d}, and a value has one element along an index dimension", here(),
                    hint=f"a coordinate in its place: {step} * wd.index({along}) + {start}",
                )  # fmt: skip
            dims.append(along)
            place_along = step * along
            if isinstance(start, Value) or not (along.is_Symbol and start.is_number):
                # K / 4 is no name that an expression over indices can have, and other symbols there are indices too
                place_along = builder.results(builder.emit("index", (), {"dim": builder.dim(along, op)})) * step
            indices[d] = place_along + start
            continue
        known = not isinstance(start, Value) and not isinstance(stop, Value)
        length = _length(start, stop)
        if d in builder.index_dims:
            if stop is not None or not known:
                raise TraceError(
                    f"{op}: {d} is an index dimension of {argument.name}, of which a value has one element", here(),
                    hint=_places_hint(view),
                )  # fmt: skip
            own = builder.results(builder.emit("index", (), {"dim": builder.dim(d, op)}))
            indices[d] = d + start if normalise(start).is_number else own + start
            continue
        named = length is not None and _named(length, d)
        along = length if named else d
        dims.append(along)
        index = builder.results(builder.emit("index", (), {"dim": builder.dim(along, op)}))
        shifted = index + start if isinstance(start, Value) or start != 0 else index
        if stop is None or named:
            indices[d] = shifted
            continue
        count = stop - start if isinstance(start, Value) or isinstance(stop, Value) else length
        outside = builder.number(-1, dt.i32, op, here())
        indices[d] = builder.results(builder.emit("where", [(index < count).node, shifted.node, outside], {}))
    return IndexMapping(tuple(dict.fromkeys(dims)), indices)
