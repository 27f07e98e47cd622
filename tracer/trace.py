"""A kernel's function, run once on proxies, as a graph: arguments and symbols around what `builder.Builder` records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Argument, Graph, Region
from wavedsl.ir.errors import TraceError
from wavedsl.ir.source import definition, parameter
from wavedsl.ir.symbols import AddressSpace
from wavedsl.tracer.annotations import MemoryType, Namespace
from wavedsl.tracer.builder import CURRENT, Builder
from wavedsl.tracer.lost_results import refuse_lost_results
from wavedsl.tracer.operands import describe
from wavedsl.tracer.proxy import Array
from wavedsl.tracer.symbol_tests import refuse_number_tests
from wavedsl.tracer.user_code import call_user


def trace(
    function: Any,
    parameters: Sequence[tuple[str, Any]],
    constraints: Sequence[Any],
    subs: Mapping[Any, Any],
    dynamic: Sequence[Any],
    name: str,
    namespace: Callable[[], Namespace],
    index_dims: tuple[Any, ...],
    fast: bool = False,
) -> Graph:
    """Runs `function` once on proxies and gives its graph.

    `parameters` are (name, MemoryType or ScalarType) pairs in order; one with None gets None. Raises TraceError and
    ConstraintError.
    """
    code = function.__code__
    arguments = []
    flags: set[str] = set()
    for parameter_name, annotation in parameters:
        if annotation is None:
            continue
        loc = parameter(code, parameter_name)
        if isinstance(annotation, MemoryType):
            dims, space = annotation.resolve(subs)
            flags |= {parameter_name} if annotation.dtype is dt.i1 else set()
            dtype = dt.u8 if annotation.dtype is dt.i1 else annotation.dtype
            arguments.append(Argument(parameter_name, "memory", dims, dtype, space, loc))
        else:
            arguments.append(Argument(parameter_name, "scalar", (), annotation.dtype, None, loc))
    graph = Graph(
        name=name,
        region=Region(loc=definition(code)),
        arguments=arguments,
        constraints=list(constraints),
        subs=dict(subs),
        symbols=_all_symbols(arguments, constraints, subs, dynamic),
        index_dims=index_dims,
        dynamic=tuple(dynamic),
        loc=definition(code),
    )
    builder = Builder(graph, namespace)
    builder.fast_math = fast
    builder.flags = frozenset(flags)
    proxies: dict[str, Any] = {}
    for argument in arguments:
        if argument.kind == "memory":
            proxies[argument.name] = Array(argument, builder)
        else:
            proxies[argument.name] = builder.scalar(argument.name, argument.loc)
    refuse_number_tests(function)
    token = CURRENT.set(builder)
    try:
        returned = call_user(function, [proxies.get(name) for name, _ in parameters])
    finally:
        CURRENT.reset(token)
    if returned is not None:
        raise TraceError(
            f"kernel {name} returns {describe(returned)[0]}",
            graph.loc,
            hint="a kernel returns nothing: write results into its array arguments with wd.write(value, c)",
        )
    refuse_lost_results(graph, code)
    declared = {s for _, a in parameters if isinstance(a, MemoryType) for x in a.items for s in x.free_symbols}
    graph.named = frozenset({*declared, *_all_symbols(arguments, constraints, {}, ()), *builder.named})
    return graph


def _all_symbols(
    arguments: Sequence[Argument], constraints: Sequence[Any], subs: Mapping[Any, Any], dynamic: Sequence[Any]
) -> tuple[Any, ...]:
    """Every symbol of a kernel, in order of appearance."""
    found: dict[Any, None] = {}

    def add(expr: Any) -> None:
        if isinstance(expr, sympy.Symbol):
            found.setdefault(expr)
        elif isinstance(expr, sympy.Expr):
            for s in sorted(expr.free_symbols, key=str):
                found.setdefault(s)

    for argument in arguments:
        for dim in argument.dims:
            add(dim)
        if not isinstance(argument.address_space, AddressSpace):
            add(argument.address_space)
    for c in constraints:
        add(getattr(c, "dim", None))
        add(getattr(c, "tile", None))
        for dim, elements in (getattr(c, "vector_shapes", None) or {}).items():
            add(dim)
            add(elements)
    for s in (*subs, *dynamic):
        add(s)
    return tuple(found)
