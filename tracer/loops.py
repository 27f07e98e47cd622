"""How `iterate` is recorded: the loop's function is traced once, in a region of its own, on its carried values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.constraints import TilingConstraint
from wavedsl.ir.dataflow.graph import Node, Region, ValueType
from wavedsl.ir.errors import ConstraintError, TraceError
from wavedsl.ir.loc import Loc
from wavedsl.ir.source import definition, parameter
from wavedsl.ir.symbols import names
from wavedsl.tracer.annotations import Namespace, RegisterType, resolve
from wavedsl.tracer.builder import Builder
from wavedsl.tracer.flags import flags, words
from wavedsl.tracer.operands import counted, describe
from wavedsl.tracer.proxy import Array, Value
from wavedsl.tracer.user_code import accepts, parameter_at


def iterate(
    b: Builder,
    dim: Any,
    init_args: Any,
    body: Callable[..., Any],
    loc: Loc | None,
    bounds: Sequence[Any] = (None, None),
    per_wave: bool = False,
) -> Any:
    """Traces a loop's function and gives the loop's results. `loc` is where `iterate(…)` was written; `bounds` its
    `start` and `stop`; `per_wave`: they may be taken of a wave's share of tiles."""
    if not isinstance(body, FunctionType):
        raise TraceError(
            f"iterate decorates a function, not {describe(body)[0]}", loc, hint="@wd.iterate(K, init_args=[acc])"
        )
    dim = b.dim(dim, "iterate", loc)
    _check_loop_dim(b, dim, loc)
    if isinstance(init_args, (Value, Array)) or not isinstance(init_args, (list, tuple)):
        raise TraceError("iterate: init_args is not a list", loc, hint="init_args=[acc]")
    inits = [b.start(b.node_of(x, "iterate", loc)) for x in init_args]
    region = Region(dim=dim, loc=definition(body.__code__))
    _check_parameters(b, body, inits, region)
    attrs: dict[str, Any] = {"dim": dim, "body": region}
    count, meant = len(inits), inits
    inits = words(b, inits, loc)
    if any(x is not None for x in bounds):
        places: list[int | None] = []
        for name, x in zip(("start", "stop"), bounds):
            places.append(None if x is None else len(inits))
            if x is not None:
                inits.append(_bound(b, name, x, loc))
        attrs["bounds"] = tuple(places)
        if per_wave:
            attrs["per_wave"] = True
    elif per_wave:
        raise TraceError(
            "iterate: per_wave=True, but the loop has no bounds", loc, hint="stop=wd.tile_stop(M), for a causal mask"
        )
    # Appended before its body, so that ids and program order agree.
    node = Node(len(b.home), "iterate", tuple(inits), attrs, (), loc)
    inits, given = inits[:count], inits
    for init in given:
        b.check_reach(init, loc)
    b.home[node.id] = b.regions[-1]
    b.regions[-1].nodes.append(node)
    code = body.__code__
    parameters = [parameter_at(code, i) for i in range(len(inits))]
    spots = [(name, parameter(code, name)) for name in parameters]
    arguments = flags(b, b.carries(region, [n.type for n in inits], spots), meant, loc, region)
    returned = b.run_region(body, arguments, region)
    region.yields = tuple(words(b, _yields(b, returned, meant, region, body), loc, region))
    node.type = tuple(n.type for n in inits)  # type: ignore[misc]
    results = b.results(node)
    if isinstance(results, tuple):
        results = tuple(flags(b, results, meant, loc))
    return results[0] if isinstance(results, tuple) and len(results) == 1 else results


def _bound(b: Builder, name: str, x: Any, loc: Loc | None) -> Node:
    """A loop's bound as a single i32."""
    node = b.operands(f"iterate: {name}", (x,), dt.i32)[0]
    if node.type != ValueType((), dt.i32):
        raise TraceError(
            f"iterate: {name} is {node.type}, not a single i32",
            loc,
            hint="wd.tile_start(M) and wd.tile_stop(M) are the ends of a workgroup's tile",
        )
    return node


def _check_loop_dim(b: Builder, dim: Any, loc: Loc | None) -> None:
    if any(r.dim == dim for r in b.regions):
        raise TraceError(f"iterate: already inside a loop over {dim}", loc, hint="loop over another dimension")
    if b.combining is not None:
        raise TraceError(f"iterate: inside the function of {b.combining}", loc, hint="loop outside of it")
    if not any(isinstance(c, TilingConstraint) and c.dim == dim for c in b.graph.constraints):
        raise ConstraintError(
            f"iterate: {dim} has no TilingConstraint, so a trip has no size",
            loc,
            hint=f"add wd.TilingConstraint({dim}, <elements per trip>) to the constraints",
        )


def _check_parameters(b: Builder, body: Any, inits: Sequence[Node], region: Region) -> None:
    code = body.__code__
    count = code.co_argcount
    if not accepts(body, len(inits)):
        raise TraceError(
            f"iterate: the loop over {region.dim} carries {counted(len(inits), 'value')}, "
            f"but its function takes {counted(count, 'parameter')}",
            region.loc,
            hint="one parameter per entry of init_args, in that order",
        )
    notes = dict(getattr(body, "__annotations__", {}))

    def namespace() -> Namespace:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != code.co_filename:
            frame = frame.f_back
        return Namespace(body, frame, b.namespace())

    for position, init in enumerate(inits):
        name = parameter_at(code, position)
        declared = resolve(notes.get(name), code, name, namespace)
        if declared is not None:
            _check_declared(declared, init.type, name, parameter(code, name))


def _check_declared(declared: Any, have: Any, name: str, loc: Loc) -> None:
    if not isinstance(declared, RegisterType):
        raise TraceError(
            f"iterate: {name} is annotated {declared}", loc, hint=f"wd.Register[{names((*have.dims, have.dtype))}]"
        )
    if not ValueType(declared.dims, declared.dtype).same_as(have):
        raise TraceError(
            f"iterate: {name} is annotated {declared}, but its initial value is [{names(have.dims)}] {have.dtype}",
            loc,
            hint="make the initial value and the annotation agree",
        )


def _yields(b: Builder, returned: Any, inits: Sequence[Node], region: Region, body: Any) -> tuple[Node, ...]:
    what = f"the loop over {region.dim}"
    if returned is None:
        if not inits:
            return ()
        raise TraceError(
            f"iterate: the function of {what} returns nothing, but carries {counted(len(inits), 'value')}",
            region.loc,
            hint="end it with `return` and the new value of each carried value",
        )
    values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(values) != len(inits):
        raise TraceError(
            f"iterate: the function of {what} returns {counted(len(values), 'value')}, but carries {len(inits)}",
            region.loc,
            hint="return one value per entry of init_args, in that order",
        )
    nodes = []
    for position, (x, init) in enumerate(zip(values, inits)):
        name = parameter_at(body.__code__, position)
        node = b.node_of(x, f"iterate: the new value of {name}", region.loc)
        b.regions.append(region)
        try:
            b.check_reach(node, region.loc)
        finally:
            b.regions.pop()
        assert isinstance(node.type, ValueType) and isinstance(init.type, ValueType)
        if not node.type.same_as(init.type):
            raise TraceError(
                f"iterate: {what} carries {name} as {init.type}, but returns {node.type} for it",
                node.loc,
                hint=_repair(node.type, init.type, _single(b, region)),
            )
        nodes.append(node)
    return tuple(nodes)


def _single(b: Builder, region: Region) -> tuple[Any, str] | None:
    """The loop's dimension, if a trip has one element of it, and how an array that the loop reads gives this one."""
    dim = region.dim
    tile = next((c.tile for c in b.graph.constraints if isinstance(c, TilingConstraint) and c.dim == dim), None)
    if tile is None or b.graph.subs.get(tile, tile) != 1:
        return None
    arrays = (b.graph.argument(n.attrs["memory"]) for n in region.nodes if n.op == "read")
    name, dims = next(((a.name, a.dims) for a in arrays if dim in a.dims), ("a", (dim, None)))
    return dim, f"{name}[{', '.join(f'wd.tile_start({d})' if d == dim else ':' for d in dims)}]"


def _repair(have: ValueType, want: ValueType, single: tuple[Any, str] | None) -> str:
    """Help where a loop's new value is of another type than its old one. `single`: the loop's dimension, where a trip
    has one element of it, and how to read that one."""
    if have.dtype is not want.dtype:
        return f"return wd.cast(x, wd.{want.dtype})"
    extra = [d for d in have.dims if d not in want.dims]
    if single is not None and extra == [single[0]]:
        return f"read and write the trip's element alone, without {single[0]}: {single[1]}"
    if extra:
        return f"reduce over {names(extra)}, or carry a value with {names(have.dims)}"
    return f"wd.broadcast(x, {names(want.dims)}), or carry a value with [{names(have.dims)}]"
