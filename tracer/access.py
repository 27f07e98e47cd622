"""How reads, writes and atomics are recorded: which array is meant, by which indices, in what type.

In: what the user wrote as array (an argument or a slice of one), mapping and hints. Out: one node; its inputs are the
stored values, then the traced indices of the mapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.cache_hints import CACHE_HINTS
from wavedsl.ir.dataflow.graph import Argument, Node
from wavedsl.ir.dataflow.graph import Mapping as ResolvedMapping
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.errors import TraceError
from wavedsl.ir.loc import Loc
from wavedsl.ir.source import here
from wavedsl.ir.symbols import is_dim, is_whole, names, normalise
from wavedsl.tracer.builder import Builder
from wavedsl.tracer.mapping import IndexMapping
from wavedsl.tracer.operands import NUMBERS, describe, python_number
from wavedsl.tracer.order import ATOMIC, READ, WRITE
from wavedsl.tracer.proxy import Array, Value
from wavedsl.tracer.view import View, window


def _argument(b: Builder, mem: Any, op: str, value: Any = None) -> Argument:
    """The array argument that `read`, `write` and atomics name; `value`: what stands in front of it."""
    if isinstance(mem, Array):
        if mem.builder is not b:
            raise TraceError(f"{op}: an array argument of another kernel", here(), hint="pass it as an argument")
        return mem.argument
    what, _ = describe(mem)
    if isinstance(value, Array):
        raise TraceError(
            f"{op}: the value comes first, then the array", here(), hint=f"wd.{op}(value, {value.argument.name})"
        )
    arrays = names(a.name for a in b.graph.arguments if a.kind == "memory")
    if isinstance(mem, Value):
        what = f"a value ([{names(mem.dims)}] {mem.dtype})"
    raise TraceError(f"{op}: expected an array argument, got {what}", here(), hint=f"array arguments are {arrays}")


def _stored(b: Builder, op: str, inputs: Sequence[Node], attrs: dict[str, Any], mem: Any) -> Node:
    """The node of a write or atomic. Where its value has other dimensions than a part of the array, and the subscript
    ended early, the error says so: whoever leaves an index dimension out has named other dimensions than he meant."""
    try:
        return b.emit(op, inputs, attrs)
    except TraceError as error:
        if isinstance(mem, View) and mem.said < len(mem.argument.dims):
            batch = [d for d in mem.argument.dims[: mem.said] if d in b.index_dims]
            if batch:
                said, name = names(mem.argument.dims[: mem.said]), mem.argument.name
                error.hint = (
                    f"the subscript is for {said}: index dimensions count, and {name}[{names(batch)}, …] is this "
                    f"workgroup's; else {error.hint}"
                )
        raise


def _windowed(mem: Any, mapping: Any, op: str) -> Any:
    """The mapping of an access: the user's, or what a slice of the array means."""
    if not isinstance(mem, View):
        return mapping
    if mapping is not None:
        raise TraceError(
            f"{op}: a part of {mem.argument.name} and a mapping", here(), hint="put the slices into the mapping"
        )
    return window(mem, op)


def _mapped(b: Builder, mapping: Any, argument: Argument, op: str) -> tuple[ResolvedMapping | None, list[Node]]:
    """A user's IndexMapping against a memory: coordinates in its order, and the traced indices among them."""
    if mapping is None:
        return None, []
    loc = here()
    if not isinstance(mapping, IndexMapping):
        raise TraceError(f"{op}: mapping={mapping!r} is no IndexMapping", loc, hint="wd.IndexMapping((T, D), {V: ids})")
    dims = b.dims(mapping.dims, op)
    given = {b.dim(d, op): c for d, c in mapping.indices.items()}
    for d in given:
        if d not in argument.dims:
            raise TraceError(
                f"{op}: the IndexMapping has an index for {d}, but {argument.name} has [{names(argument.dims)}]",
                loc,
                hint="give indices for dimensions of the array",
            )
    coords: list[Any] = []
    inputs: list[Node] = []
    for d in argument.dims:
        c = given.get(d, d)
        if isinstance(c, Value):
            node = b.node_of(c, op, loc)
            coords.append(len(inputs))
            inputs.append(node)
            continue
        if not is_dim(c):
            what, _ = describe(c)
            raise TraceError(f"{op}: the index for {d} is {what}", loc, hint="an expression over symbols, or a value")
        c = b.known_expr(normalise(c), op, loc)
        stray = [s for s in sorted(c.free_symbols, key=str) if s in argument.dims or s in dims]
        stray = [s for s in stray if s not in dims and s not in b.index_dims]
        if stray:
            raise TraceError(
                f"{op}: the index for {d} of {argument.name} is {c}, but the value has no dimension {names(stray)}",
                loc,
                hint=f"list {names(stray)} in the mapping's dims, or give an index for it",
            )
        moving = {*b.index_dims, *(s for d in (*argument.dims, *dims) for s in d.free_symbols)}
        _whole_index(c, moving, (*argument.dims, *dims), argument, op, loc)
        _never_by_zero(c, moving, argument, d, op, loc)
        _never_flattened(c, moving, argument, d, op, loc)
        coords.append(c)
    _extent_for_index(dims, coords, inputs, argument, op, loc)
    _extent_for_own(b, coords, inputs, argument, op, loc)
    return ResolvedMapping(dims, tuple(coords)), inputs


def _extent_for_index(
    dims: Sequence[Any], coords: Sequence[Any], inputs: Sequence[Node], argument: Argument, op: str, loc: Loc | None
) -> None:
    """Refuses `first + N`, of a traced `first`, for elements along N, which have all one index then: Python adds before
    the mapping sees N, and beside a traced value N is the extent."""
    having = {d for x in inputs for d in x.dims}.union(*(c.free_symbols for c in coords if not isinstance(c, int)))
    for d in dims:
        if d in having or d.free_symbols & having:
            continue
        for x in inputs:
            for n in postorder(x, lambda n: () if n.op == "read" else n.inputs, ()):
                if n.op == "size" and d in n.attrs["expr"].free_symbols:
                    along = argument.dims[coords.index(inputs.index(x))]
                    raise TraceError(
                        f"{op}: the index {along} of {argument.name} is the same for all of {d}: beside a traced value "
                        f"{d} is its extent",
                        loc,
                        hint=f"wd.index({d}) is each element's own index",
                    )


def _extent_for_own(
    b: Builder, coords: Sequence[Any], inputs: Sequence[Node], argument: Argument, op: str, loc: Loc | None
) -> None:
    """Refuses `G * 16 + wd.index(L)` as the place of a workgroup's part, of an index dimension G: beside a traced value
    that is the extent, as far from the first element for all. Sums with the workgroup's index or with what is read,
    and arrays that have G in their extents, may mean it; none means what is behind all of G * 16."""
    for x, along in zip(inputs, (d for d, c in zip(argument.dims, coords) if isinstance(c, int))):
        nodes = list(postorder(x, lambda n: () if n.op == "read" else n.inputs, ()))
        own = {n.attrs.get("dim") for n in nodes} | {s for d in argument.dims for s in d.free_symbols}
        terms = [(n, i) for n in nodes if n.op in ("add", "sub") and n.dims for i in n.inputs if i.op == "size"]
        stray = {s for _, i in terms for s in i.attrs["expr"].free_symbols & set(b.index_dims)} - own
        behind = [i for n, i in terms if n.op == "add" and any(j.op == "index" for j in n.inputs)]
        stray |= {s for i in behind if i.attrs["expr"] == along for s in along.free_symbols & set(b.index_dims)}
        if stray and not any(n.op == "read" for n in nodes):
            g = sorted(stray, key=str)[0]
            raise TraceError(
                f"{op}: the elements of {argument.name} are the same for all of {g}: beside a traced value {g} is its "
                "extent",
                loc,
                hint=f"wd.index({g}) is the workgroup's own index",
            )


_NEVER_WHOLE = (sympy.Float, sympy.nan, sympy.oo, -sympy.oo, sympy.zoo)


def _whole_index(
    c: Any, moving: set[Any], dims: Sequence[Any], argument: Argument, op: str, loc: Loc | None
) -> None:  # fmt: skip
    """Refuses `N / 2` of elements along N: every other one would lie between two elements of the array, as all of
    `N - 0.5` do. `moving`: the symbols that stand for an index."""
    derived = {d: sympy.Integer(1) for d in dims if not is_whole(d)}
    for part in sympy.Add.make_args(c.xreplace(derived)):
        if part.has(*_NEVER_WHOLE) or (not is_whole(part) and not part.free_symbols.isdisjoint(moving)):
            raise TraceError(
                f"{op}: the index {c} of {argument.name} is not whole for every element",
                loc,
                hint="// rounds down: N // 2 for pairs of elements",
            )


def _never_by_zero(c: Any, moving: set[Any], argument: Argument, d: Any, op: str, loc: Loc | None) -> None:
    """Refuses `(N + 1) % N` of elements along N: N is an index here, and the first one's is 0. The extent was meant."""
    first = {s: sympy.Integer(0) for s in c.free_symbols & moving}
    for part in sorted(c.atoms(sympy.Mod, sympy.Pow), key=str):
        divisor = part.args[1] if isinstance(part, sympy.Mod) else part.base
        if isinstance(part, sympy.Pow) and not part.exp.is_negative:
            continue
        if divisor.xreplace(first).is_zero:
            stray = sorted(divisor.free_symbols & moving, key=str)[0]
            raise TraceError(
                f"{op}: the index {c} of {argument.name} is divided by 0 where the index {stray} is 0",
                loc,
                hint=f"in a mapping {stray} is each element's index; its extent is in traced values: "
                f"{{{d}: (wd.index({stray}) + 1) % {stray}}}",
            )


def _never_flattened(c: Any, moving: set[Any], argument: Argument, d: Any, op: str, loc: Loc | None) -> None:
    """Refuses `G * L + L`, a place in rows that lie one after the other as other languages write it: here L is an index
    in both places, and 0 in the first of a row. The extent was meant in one of them."""
    terms = c.args if c.is_Add else ()
    for product in (t for t in terms if t.is_Mul):
        for s in (s for s in product.args if s in moving and s in terms):
            others = {x for a in product.args if a != s for x in a.free_symbols & moving}
            if others:
                row = sorted(others, key=str)[0]
                raise TraceError(
                    f"{op}: in the index {c} of {argument.name} both {s} are an element's own index",
                    loc,
                    hint=f"its extent is in traced values: {{{d}: wd.index({row}) * {s} + wd.index({s})}}",
                )


def _is_number(x: Any) -> bool:
    return isinstance(x, (*NUMBERS, sympy.Expr))


def _repeated(b: Builder, x: Any, argument: Argument, mapping: ResolvedMapping | None, op: str) -> Node:
    """A number, an extent, or a number with a dtype, `wd.cast(1, wd.u32)`, for each of the elements that an access has.
    Other nodes are what they are."""
    dims = tuple(d for d in (argument.dims if mapping is None else mapping.dims) if d not in b.index_dims)
    if isinstance(x, Node):
        repeats = x.op == "constant" and dims and not any(d.is_number for d in dims)
        return b.emit("fill", (), {"dims": dims, **x.attrs}) if repeats else x
    dtype = dt.i1 if argument.name in b.flags else argument.dtype
    if not dims or any(d.is_number for d in dims):
        return b.number(x, dtype, op, here())
    if isinstance(x, NUMBERS):
        loc = here()
        return b.emit("fill", (), {"dims": dims, "dtype": dtype, "value": python_number(x, dtype, op, loc)}, loc)
    return b.emit("broadcast", (b.number(x, dtype, op, here()),), {"dims": dims})


def _by_those_left(
    b: Builder, mapping: ResolvedMapping | None, inputs: list[Node], argument: Argument, op: str
) -> tuple[ResolvedMapping | None, list[Node]]:
    """The mapping of a write in a loop that each element leaves by itself: who has left it has an index outside of the
    array. That takes the place of a traced index, else of an element's own or of a number."""
    if b.live is None:
        return mapping, inputs
    dims, coords = (argument.dims, argument.dims) if mapping is None else (mapping.dims, mapping.coords)
    missing = [d for d in b.live.dims if d not in dims]
    traced = [i for i, c in enumerate(coords) if isinstance(c, int)]
    own = [i for i, c in enumerate(coords) if (c in dims and c not in b.index_dims) or getattr(c, "is_Integer", False)]
    if missing or not (traced or own):
        what = f"has no {names(missing)}" if missing else "has no index that is a value"
        raise TraceError(
            f"while_loop: each element of [{names(b.live.dims)}] has a condition of its own, and what {op} stores "
            f"{what}",
            here(),
            hint="carry the value and write it behind the loop, or reduce the condition with wd.any"
            if missing
            else f"give it one: {{{argument.dims[0]}: wd.index({names(b.live.dims[:1])}) + …}}",
        )
    axis = (traced or own)[0]
    place = coords[axis]
    if traced:
        index = inputs[place]
    else:
        index = b.number(place, dt.i32, op, here()) if place.is_Integer else b.emit("index", (), {"dim": place})
    if not index.dtype.is_signed:
        index = b.emit("cast", (index,), {"dtype": dt.i64 if index.dtype.bits > 16 else dt.i32})
    kept = b.emit("where", (b.live, index, b.number(-1, index.dtype, op, here())), {})
    if not traced:
        return ResolvedMapping(dims, (*coords[:axis], len(inputs), *coords[axis + 1 :])), [*inputs, kept]
    return ResolvedMapping(dims, coords), [kept if i == place else n for i, n in enumerate(inputs)]


def read(b: Builder, mem: Any, mapping: Any, elements_per_thread: Any, cache: Any = None) -> Value:
    argument = _argument(b, mem, "read")
    resolved, indices = _mapped(b, _windowed(mem, mapping, "read"), argument, "read")
    attrs = _attributes(b, argument, resolved, elements_per_thread, cache, "read")
    b.accesses(READ, argument, resolved, indices)
    found = b.emit("read", indices, attrs)
    return b.value(b.emit("cast", (found,), {"dtype": dt.i1}) if argument.name in b.flags else found)


def write(b: Builder, value: Any, mem: Any, mapping: Any, elements_per_thread: Any, cache: Any = None) -> None:
    argument = _argument(b, mem, "write", value)
    node = None if _is_number(value) else b.node_of(value, "write")
    resolved, indices = _mapped(b, _windowed(mem, mapping, "write"), argument, "write")
    node = _repeated(b, node or value, argument, resolved, "write")
    resolved, indices = _by_those_left(b, resolved, indices, argument, "write")
    attrs = _attributes(b, argument, _shift(resolved, 1), elements_per_thread, cache, "write")
    b.accesses(WRITE, argument, resolved, indices)
    if argument.name in b.flags:
        if node.dtype is not dt.i1:
            raise TraceError(
                f"write: the value is {node.dtype}, but {argument.name} holds i1",
                here(),
                hint="compare something, for example x != 0",
            )
        node = b.emit("cast", (node,), {"dtype": argument.dtype})
    _stored(b, "write", [node, *indices], attrs, mem)


def atomic(b: Builder, op: str, values: Sequence[Any], mem: Any, mapping: Any) -> Value:
    argument = _argument(b, mem, op, values[-1])
    given = [None if _is_number(v) else b.node_of(v, op) for v in values]
    resolved, indices = _mapped(b, _windowed(mem, mapping, op), argument, op)
    nodes = [_repeated(b, n or v, argument, resolved, op) for v, n in zip(values, given)]
    resolved, indices = _by_those_left(b, resolved, indices, argument, op)
    attrs = {"memory": argument.name, "mapping": _shift(resolved, len(nodes))}
    b.accesses(ATOMIC, argument, resolved, indices)
    return b.value(_stored(b, op, [*nodes, *indices], attrs, mem))


def _attributes(b: Builder, argument: Argument, mapping: Any, elements: Any, cache: Any, op: str) -> dict[str, Any]:
    if cache is not None and (not isinstance(cache, str) or cache not in CACHE_HINTS):
        raise TraceError(f"{op}: cache={cache!r}", here(), hint=f"one of {', '.join(map(repr, CACHE_HINTS))}")
    if elements is not None:
        if not is_dim(elements):
            raise TraceError(
                f"{op}: elements_per_thread={elements!r}", here(), hint="a count of elements, for example 8"
            )
        elements = b.known_expr(normalise(elements), op, None)
        bound = elements.xreplace({k: sympy.Integer(v) for k, v in b.graph.subs.items() if isinstance(v, int)})
        if bound.is_number and not (bound.is_Integer and bound > 0):
            raise TraceError(f"{op}: elements_per_thread={bound}", here(), hint="a count of elements, for example 8")
        elements = int(bound) if bound.is_Integer else bound
    attrs = {"memory": argument.name, "mapping": mapping, "elements_per_thread": elements}
    return attrs if cache is None else {**attrs, "cache": cache}


def _shift(mapping: ResolvedMapping | None, by: int) -> ResolvedMapping | None:
    """Indices come after the stored values among a node's inputs."""
    if mapping is None:
        return None
    return ResolvedMapping(mapping.dims, tuple(c + by if isinstance(c, int) else c for c in mapping.coords))
