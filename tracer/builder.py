"""The builder: appends nodes to the graph while the user's function runs on proxies.

In: calls from proxies and from the functions of the language. Out: typed nodes with locations, in the region of the
loop that is being traced, or a TraceError. There is one current builder per thread of control (a context variable).

Invariant: when a node is appended, its inputs are in its own region or in one that encloses it.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.cache_hints import CACHE_HINTS
from wavedsl.ir.constraints import TilingConstraint
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError, TraceError, WaveError
from wavedsl.ir.graph import Argument, Graph, Node, Region, ValueType
from wavedsl.ir.graph import Mapping as ResolvedMapping
from wavedsl.ir.loc import Loc
from wavedsl.ir.ops import FAST, ROWS
from wavedsl.ir.source import definition, from_traceback, here, parameter
from wavedsl.ir.symbols import AddressSpace, is_dim, names, normalise
from wavedsl.tracer import advice
from wavedsl.tracer.annotations import MemoryType, Namespace, RegisterType, ScalarType, resolve, suggest
from wavedsl.tracer.mapping import IndexMapping
from wavedsl.tracer.proxy import Array, Value

_CURRENT: contextvars.ContextVar[Builder | None] = contextvars.ContextVar("wavedsl_builder", default=None)

NUMBERS = (bool, int, float, np.generic)


def current(what: str) -> Builder:
    """The builder of the kernel being traced; a TraceError outside of one."""
    builder = _CURRENT.get()
    if builder is None:
        raise TraceError(
            f"{what} was used outside of a kernel",
            here(calls=False),
            hint="call it inside a function decorated with @wd.wave(...)",
        )
    return builder


class Builder:
    """Builds one graph. `regions` is the stack of regions being filled, innermost last."""

    def __init__(self, graph: Graph, namespace: Callable[[], Namespace]):
        self.graph = graph
        self.namespace = namespace
        self.regions: list[Region] = [graph.region]
        self.home: dict[int, Region] = {}
        self.arguments = {a.name: a for a in graph.arguments}
        self.index_dims = graph.index_dims
        self.known = set(graph.symbols)
        self.started: set[int] = set()
        """Constants that sums start from."""
        self.fast, self.fast_math = False, False
        """Whether operations that have a faster, less precise form take it: in the call at hand, in the kernel."""
        self.flags: frozenset[str] = frozenset()
        """Array arguments of i1: a byte per element, so the graph has them as u8 and casts what is read and written."""
        self.combining: str | None = None
        self._scalars: dict[str, Value] = {}

    # --- the Scope that type rules see

    def argument(self, name: str) -> Argument:
        return self.arguments[name]

    # --- nodes

    def emit(self, op: str, inputs: Sequence[Node], attrs: dict[str, Any], loc: Loc | None = None) -> Node:
        """Appends a node of row `op`, typed by the row's rule."""
        if loc is None:
            loc = here()
        row = ROWS[op]
        if op in FAST and (self.fast or (self.fast_math and inputs[0].dtype is not dt.f64)):
            attrs = {**attrs, "fast": True}
        for node in inputs:
            self._check_reach(node, loc)
        if self.combining is not None and row.compute is None and op not in ("constant", "cast", "bitcast"):
            raise TraceError(
                f"{op} cannot be used in the function of {self.combining}",
                loc,
                hint="combine with elementwise operations",
            )
        try:
            types = [n.type for n in inputs]
            result = row.rule(types, attrs, self)  # type: ignore[arg-type]
        except WaveError as error:
            if error.location is None:
                error.location = loc
            raise
        node = Node(len(self.home), op, tuple(inputs), attrs, result, loc)
        region = self.regions[-1]
        self.home[node.id] = region
        region.nodes.append(node)
        return node

    def _check_reach(self, node: Node, loc: Loc | None) -> None:
        home = self.home.get(node.id)
        if home is None or not any(home is r for r in self.regions):
            dim = home.dim if home is not None else None
            where = f"the loop over {dim}" if dim is not None else "the function it was made in"
            raise TraceError(
                f"a value of {where} is used outside of it",
                loc,
                hint="return it from the loop's function; the loop's name is then its result" if dim is not None
                else "return it instead",
            )  # fmt: skip
        inside = self.regions[next(i for i, r in enumerate(self.regions) if r is home) + 1 :]
        if not inside or not isinstance(node.type, ValueType):
            return
        for region in inside:
            spanned = [d for d in node.type.dims if region.dim is not None and region.dim in _symbols_of(d)]
            if spanned:
                raise TraceError(
                    f"a value made outside the loop over {region.dim} spans all of {names(spanned)}; inside, "
                    f"{region.dim} means the trip's tile",
                    loc,
                    hint="make the value inside the loop",
                )

    def value(self, node: Node) -> Value:
        return Value(node, self)

    def results(self, node: Node) -> Any:
        """The value, the tuple of values, or None that a node gives to the user."""
        if node.type is None or node.type == ():
            return None
        if isinstance(node.type, tuple):
            return tuple(
                self.value(self.emit("result", (node,), {"position": k}, node.loc)) for k in range(len(node.type))
            )
        return self.value(node)

    # --- operands

    def node_of(self, x: Any, op: str, loc: Loc | None = None) -> Node:
        """The node of an operand that must be a traced value; says what else it is otherwise."""
        if isinstance(x, Value):
            if x.builder is not self:
                raise TraceError(
                    f"{op}: a value of another kernel, or of an earlier trace of this one",
                    loc or here(),
                    hint="pass data between kernels through arrays",
                )
            return x.node
        what, hint = describe(x)
        raise TraceError(f"{op}: {what}, not a value", loc or here(), hint=hint)

    def operands(self, op: str, xs: Sequence[Any], dtype: DType | None = None) -> list[Node]:
        """Nodes of operands; numbers and symbols take the dtype of the traced operands (or `dtype`)."""
        loc = here()
        for x in xs:
            if not isinstance(x, Value) and not isinstance(x, NUMBERS) and not is_dim(x):
                self.node_of(x, op, loc)
        found = dtype
        for x in xs:
            if isinstance(x, Value) and found is None:
                found = x.dtype
        if found is None:
            raise TraceError(
                f"{op}: no operand is a traced value",
                loc,
                hint=f"compute with Python's math, or make a value: wd.Register[wd.f32]({xs[0] if xs else 0})",
            )
        return [self.node_of(x, op, loc) if isinstance(x, Value) else self.number(x, found, op, loc) for x in xs]

    def number(self, x: Any, dtype: DType, op: str, loc: Loc | None) -> Node:
        """A Python number, or an extent such as K, as a node of `dtype`."""
        if isinstance(x, sympy.Expr) and not x.is_number:
            return self.extent(x, dtype, op, loc)
        if isinstance(x, sympy.Expr):
            x = int(x) if x.is_Integer else float(x)
        return self.emit("constant", (), {"value": python_number(x, dtype, op, loc), "dtype": dtype}, loc)

    def extent(self, expr: Any, dtype: DType, op: str, loc: Loc | None) -> Node:
        """A symbol or an expression over symbols as a number, in the dtype of its partner."""
        expr = self.known_expr(normalise(expr), op, loc)
        node = self.emit("size", (), {"expr": expr}, loc)
        return node if dtype is dt.i32 else self.emit("cast", (node,), {"dtype": dtype}, loc)

    def apply(self, op: str, xs: Sequence[Any], attrs: dict[str, Any] | None = None) -> Any:
        """Records an operation on values and numbers and gives its result."""
        return self.results(self.emit(op, self.operands(op, xs), attrs or {}))

    # --- symbols

    def known_expr(self, expr: Any, op: str, loc: Loc | None) -> Any:
        """`expr`, if all its symbols occur in the kernel's arguments, constraints or bindings."""
        for s in sorted(expr.free_symbols, key=str):
            if s not in self.known:
                listed = sorted(map(str, self.known))
                raise TraceError(
                    f"{op}: unknown symbol {s}",
                    loc or here(),
                    hint=suggest(s.name, listed, f"this kernel has {', '.join(listed)}"),
                )
        return expr

    def dim(self, value: Any, op: str, loc: Loc | None = None) -> Any:
        """A dimension given by the user."""
        loc = loc or here()
        if not is_dim(value):
            what, _ = describe(value)
            raise TraceError(f"{op}: the dimension is {what}", loc, hint="a dimension is a symbol, for example dim=N")
        dim = self.known_expr(normalise(value), op, loc)
        return dim

    def dims(self, values: Iterable[Any], op: str) -> tuple[Any, ...]:
        found = tuple(self.dim(v, op) for v in values)
        for i, d in enumerate(found):
            if d in found[:i]:
                raise TraceError(f"{op}: {d} is listed twice", here(), hint="dimensions are names and must differ")
        return found

    # --- operations that are not plain applications

    def fill(self, register: RegisterType, value: Any) -> Value:
        """`Register[M, N, f32](value)`."""
        loc = here()
        for d in register.dims:
            self.known_expr(d, "Register", loc)
            if d in self.index_dims:
                raise TraceError(
                    f"Register[…]: {d} is an index dimension (its workgroup tile is 1) and in no register's shape",
                    loc,
                    hint=f"leave {d} out",
                )
        attrs = {"dims": register.dims, "dtype": register.dtype}
        if isinstance(value, Value):
            node = self.node_of(value, "Register", loc)
            if node.dtype is not register.dtype:
                raise TraceError(
                    f"Register[…]: the value is {node.dtype}, not {register.dtype}",
                    loc,
                    hint=f"wd.cast(x, wd.{register.dtype})",
                )
            return self.value(self.emit("broadcast", (node,), {"dims": register.dims}, loc))
        if isinstance(value, sympy.Expr) and not value.is_number:
            node = self.extent(value, register.dtype, "Register", loc)
            return self.value(self.emit("broadcast", (node,), {"dims": register.dims}, loc))
        if not isinstance(value, NUMBERS):
            what, _ = describe(value)
            raise TraceError(f"Register[…]: the initial value is {what}", loc, hint="give a number, for example (0.0)")
        attrs["value"] = python_number(value, register.dtype, "Register", loc)
        return self.value(self.emit("fill", (), attrs, loc))

    def memory(self, mem: Any, op: str) -> Argument:
        """The array argument that `read`, `write` and atomics name."""
        if isinstance(mem, Array):
            if mem.builder is not self:
                raise TraceError(f"{op}: an array argument of another kernel", here(), hint="pass it as an argument")
            return mem.argument
        what, _ = describe(mem)
        arrays = names(a.name for a in self.graph.arguments if a.kind == "memory")
        if isinstance(mem, Value):
            what = f"a value ([{names(mem.dims)}] {mem.dtype})"
        raise TraceError(f"{op}: expected an array argument, got {what}", here(), hint=f"array arguments are {arrays}")

    def windowed(self, mem: Any, mapping: Any, op: str) -> Any:
        """The mapping of an access: the user's, or what a slice of the array means."""
        from wavedsl.tracer.view import View, window

        if not isinstance(mem, View):
            return mapping
        if mapping is not None:
            raise TraceError(
                f"{op}: a part of {mem.argument.name} and a mapping", here(), hint="put the slices into the mapping"
            )
        return window(mem, op)

    def mapped(self, mapping: Any, argument: Argument, op: str) -> tuple[ResolvedMapping | None, list[Node]]:
        """A user's IndexMapping against a memory: coordinates in its order, and the traced indices among them."""
        if mapping is None:
            return None, []
        loc = here()
        if not isinstance(mapping, IndexMapping):
            raise TraceError(
                f"{op}: mapping={mapping!r} is no IndexMapping", loc, hint="wd.IndexMapping((T, D), {V: ids})"
            )
        dims = self.dims(mapping.dims, op)
        given = {self.dim(d, op): c for d, c in mapping.indices.items()}
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
                node = self.node_of(c, op, loc)
                coords.append(len(inputs))
                inputs.append(node)
                continue
            if not is_dim(c):
                what, _ = describe(c)
                raise TraceError(
                    f"{op}: the index for {d} is {what}", loc, hint="an expression over symbols, or a value"
                )
            c = self.known_expr(normalise(c), op, loc)
            stray = [s for s in sorted(c.free_symbols, key=str) if s in argument.dims or s in dims]
            stray = [s for s in stray if s not in dims and s not in self.index_dims]
            if stray:
                raise TraceError(
                    f"{op}: the index for {d} of {argument.name} is {c}, but the value has no dimension {names(stray)}",
                    loc,
                    hint=f"list {names(stray)} in the mapping's dims, or give an index for it",
                )
            coords.append(c)
        return ResolvedMapping(dims, tuple(coords)), inputs

    def read(self, mem: Any, mapping: Any, elements_per_thread: Any, cache: Any = None) -> Value:
        argument = self.memory(mem, "read")
        resolved, indices = self.mapped(self.windowed(mem, mapping, "read"), argument, "read")
        attrs = self._access(argument, resolved, elements_per_thread, cache, "read")
        found = self.emit("read", indices, attrs)
        return self.value(self.emit("cast", (found,), {"dtype": dt.i1}) if argument.name in self.flags else found)

    def write(self, value: Any, mem: Any, mapping: Any, elements_per_thread: Any, cache: Any = None) -> None:
        if isinstance(value, Array) and not isinstance(mem, Array):
            raise TraceError(
                "write: the value comes first, then the array", here(), hint=f"wd.write(value, {value.argument.name})"
            )
        argument = self.memory(mem, "write")
        node = self.node_of(value, "write")
        resolved, indices = self.mapped(self.windowed(mem, mapping, "write"), argument, "write")
        attrs = self._access(argument, _shift(resolved, 1), elements_per_thread, cache, "write")
        if argument.name in self.flags:
            if node.dtype is not dt.i1:
                raise TraceError(
                    f"write: the value is {node.dtype}, but {argument.name} holds i1",
                    here(),
                    hint="compare something, for example x != 0",
                )
            node = self.emit("cast", (node,), {"dtype": argument.dtype})
        self.emit("write", [node, *indices], attrs)

    def atomic(self, op: str, values: Sequence[Any], mem: Any, mapping: Any) -> Value:
        argument = self.memory(mem, op)
        nodes = [
            self.node_of(v, op) if not isinstance(v, NUMBERS) else self.number(v, argument.dtype, op, here())
            for v in values
        ]
        resolved, indices = self.mapped(self.windowed(mem, mapping, op), argument, op)
        attrs = {"memory": argument.name, "mapping": _shift(resolved, len(nodes))}
        return self.value(self.emit(op, [*nodes, *indices], attrs))

    def _access(self, argument: Argument, mapping: Any, elements: Any, cache: Any, op: str) -> dict[str, Any]:
        if cache is not None and (not isinstance(cache, str) or cache not in CACHE_HINTS):
            raise TraceError(f"{op}: cache={cache!r}", here(), hint=f"one of {', '.join(map(repr, CACHE_HINTS))}")
        if elements is not None:
            if not is_dim(elements):
                raise TraceError(
                    f"{op}: elements_per_thread={elements!r}", here(), hint="a count of elements, for example 8"
                )
            elements = self.known_expr(normalise(elements), op, None)
            bound = elements.xreplace({k: sympy.Integer(v) for k, v in self.graph.subs.items() if isinstance(v, int)})
            if bound.is_number and not (bound.is_Integer and bound > 0):
                raise TraceError(
                    f"{op}: elements_per_thread={bound}", here(), hint="a count of elements, for example 8"
                )
            elements = int(bound) if bound.is_Integer else bound
        attrs = {"memory": argument.name, "mapping": mapping, "elements_per_thread": elements}
        return attrs if cache is None else {**attrs, "cache": cache}

    def scalar(self, name: str, loc: Loc | None) -> Value:
        return self.value(self.emit("scalar", (), {"name": name}, loc))

    # --- loops and combining functions

    def iterate(
        self, dim: Any, init_args: Any, body: Callable[..., Any], loc: Loc | None, bounds: Sequence[Any] = (None, None)
    ) -> Any:
        """Traces a loop's function and gives the loop's results. `loc` is where `iterate(…)` was written; `bounds` its
        `start` and `stop`."""
        if not isinstance(body, FunctionType):
            raise TraceError(
                f"iterate decorates a function, not {describe(body)[0]}", loc, hint="@wd.iterate(K, init_args=[acc])"
            )
        dim = self.dim(dim, "iterate", loc)
        self._check_loop_dim(dim, loc)
        if isinstance(init_args, (Value, Array)) or not isinstance(init_args, (list, tuple)):
            raise TraceError("iterate: init_args is not a list", loc, hint="init_args=[acc]")
        inits = [self.start(self.node_of(x, "iterate", loc)) for x in init_args]
        region = Region(dim=dim, loc=definition(body.__code__))
        self._check_parameters(body, inits, region)
        attrs: dict[str, Any] = {"dim": dim, "body": region}
        count = len(inits)
        if any(x is not None for x in bounds):
            places: list[int | None] = []
            for name, x in zip(("start", "stop"), bounds):
                places.append(None if x is None else len(inits))
                if x is not None:
                    inits.append(self._bound(name, x, loc))
            attrs["bounds"] = tuple(places)
        # Appended before its body, so that ids and program order agree.
        node = Node(len(self.home), "iterate", tuple(inits), attrs, (), loc)
        inits, given = inits[:count], inits
        for init in given:
            self._check_reach(init, loc)
        self.home[node.id] = self.regions[-1]
        self.regions[-1].nodes.append(node)
        code = body.__code__
        parameters = [_parameter_at(code, i) for i in range(len(inits))]
        spots = [(name, parameter(code, name)) for name in parameters]
        arguments = self._carries(region, [n.type for n in inits], spots)
        returned = self._run(body, arguments, region)
        region.yields = self._yields(returned, inits, region, body)
        node.type = tuple(n.type for n in inits)  # type: ignore[misc]
        results = self.results(node)
        return results[0] if isinstance(results, tuple) and len(results) == 1 else results

    # --- conditions

    def when(self, condition: Node, inits: Sequence[Node], region: Region, loc: Loc | None) -> Any:
        """Appends a `when` around a traced region and gives its results."""
        return self.results(self.emit("when", (condition, *inits), {"body": region}, loc))

    def _branch(self, op: str, body: Any, arguments: Sequence[Value], region: Region, loc: Loc | None) -> list[Node]:
        """Traces a branch; what it returns."""
        if not isinstance(body, FunctionType):
            raise TraceError(f"{op}: a branch is {describe(body)[0]}", loc, hint=f"wd.{op}(c, lambda: …)")
        takes = body.__code__.co_argcount
        if takes != len(arguments):
            raise TraceError(
                f"{op}: the function takes {_count(takes, 'parameter')}, not {len(arguments)}", loc,
                hint="a branch takes nothing; it may use what is around it",
            )  # fmt: skip
        returned = self._run(body, arguments, region)
        if returned is None:
            return []
        values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        self.regions.append(region)
        try:
            nodes = [self.node_of(v, op, loc) for v in values]
            for node in nodes:
                self._check_reach(node, loc)
        finally:
            self.regions.pop()
        return nodes

    def start(self, node: Node) -> Node:
        """What a sum starts from lies where its products want it. A constant that several sums start from is a constant
        of each, so that they may lie apart."""
        if node.op == "fill":
            if node.id in self.started:
                return self.emit("fill", (), dict(node.attrs), node.loc)
            self.started.add(node.id)
        return node

    def _zero(self, t: Any, loc: Loc | None) -> Node:
        value: Any = 0.0 if t.dtype.is_float else False if t.dtype.kind == "bool" else 0
        return self.emit("fill", (), {"dims": t.dims, "dtype": t.dtype, "value": value}, loc)

    def conditional(self, condition: Any, then: Any, otherwise: Any) -> Any:
        """`cond`: two `when`s, one with the condition and one with its opposite, that hand on the results."""
        loc = here()
        flag = self.node_of(condition, "cond", loc)
        first = Region(loc=loc)
        found = self._branch("cond", then, (), first, loc)
        if found and otherwise is None:
            raise TraceError(
                "cond: the function returns a value, but there is no other branch", loc,
                hint="give wd.cond a third argument that returns the value where the condition does not hold",
            )  # fmt: skip
        inits = [self._zero(n.type, loc) for n in found]
        self._carries(first, [n.type for n in found], [("result", loc)] * len(found))
        first.yields = tuple(found)
        results = self.when(flag, inits, first, loc)
        if otherwise is None:
            return None
        passed = [v.node for v in results or ()]
        second = Region(loc=loc)
        self._carries(second, [n.type for n in passed], [("result", loc)] * len(passed))
        other = self._branch("cond", otherwise, (), second, loc)
        if not _alike(other, [n.type for n in passed]):
            have, want = (", ".join(str(n.type) for n in nodes) or "nothing" for nodes in (other, passed))
            raise TraceError(
                f"cond: one function returns {want}, the other {have}", loc, hint="return values of equal types"
            )
        second.yields = tuple(other)
        opposite = self.emit("invert", (flag,), {}, loc)
        results = self.when(opposite, passed, second, loc)
        return results[0] if isinstance(results, tuple) and len(results) == 1 else results

    def while_loop(self, condition: Any, body: Any, init_args: Any) -> Any:
        """`while_loop`: a `when` that asks first, around a `repeat` that asks after every trip."""
        loc = here()
        if not isinstance(init_args, (list, tuple)) or not init_args:
            raise TraceError("while_loop: init_args is not a list of values", loc, hint="init_args=[x]")
        inits = [self.node_of(x, "while_loop", loc) for x in init_args]
        types = [n.type for n in inits]
        first = self._branch("while_loop", condition, [self.value(n) for n in inits], self.regions[-1], loc)
        outer = Region(loc=loc)
        spots = [(f"value {i}", loc) for i in range(len(inits))]
        carried = self._carries(outer, types, spots)
        inner = Region(loc=loc)
        arguments = self._carries(inner, types, spots)
        found = self._branch("while_loop", body, arguments, inner, loc)
        if not _alike(found, types):
            have = ", ".join(str(n.type) for n in found) or "nothing"
            raise TraceError(
                f"while_loop: carries {', '.join(map(str, types))}, but the function returns {have}", loc,
                hint="return one value per entry of init_args, of the same type",
            )  # fmt: skip
        again = self._branch("while_loop", condition, [self.value(n) for n in found], inner, loc)
        for flags in (first, again):
            if len(flags) != 1:
                raise TraceError("while_loop: the condition returns no single value", loc, hint="return x < y")
        inner.yields = (*found, again[0])
        self.regions.append(outer)
        try:
            results = self.results(self.emit("repeat", [v.node for v in carried], {"body": inner}, loc))
        finally:
            self.regions.pop()
        outer.yields = tuple(v.node for v in results)
        results = self.when(first[0], inits, outer, loc)
        return results[0] if len(results) == 1 else results

    def exit_if(self, condition: Any) -> None:
        """`exit_if`: what follows lies in a `when` of the opposite."""
        loc = here()
        if any(r.dim is not None or r.carries for r in self.regions) or self.combining is not None:
            raise TraceError("exit_if inside a loop or branch", loc, hint="leave a workgroup before its loops")
        flag = self.node_of(condition, "exit_if", loc)
        opposite = self.emit("invert", (flag,), {}, loc)
        region = Region(loc=loc)
        self.emit("when", (opposite,), {"body": region}, loc)
        self.regions.append(region)

    def _bound(self, name: str, x: Any, loc: Loc | None) -> Node:
        """A loop's bound as a single i32."""
        node = self.operands(f"iterate: {name}", (x,), dt.i32)[0]
        if node.type != ValueType((), dt.i32):
            raise TraceError(
                f"iterate: {name} is {node.type}, not a single i32",
                loc,
                hint="wd.tile_start(M) and wd.tile_stop(M) are the ends of a workgroup's tile",
            )
        return node

    def _carries(self, region: Region, types: Sequence[Any], spots: Sequence[tuple[str, Loc | None]]) -> list[Value]:
        """Region arguments of the given types; `spots` are their names and where they are declared."""
        found = []
        for position, (t, (name, loc)) in enumerate(zip(types, spots)):
            attrs = {"position": position, "name": name, "dims": t.dims, "dtype": t.dtype}
            node = Node(len(self.home), "carry", (), attrs, t, loc)
            self.home[node.id] = region
            region.carries.append(node)
            found.append(self.value(node))
        return found

    def _run(self, body: Callable[..., Any], arguments: Sequence[Value], region: Region) -> Any:
        self.regions.append(region)
        outer = self.namespace
        try:
            return call_user(body, arguments)
        finally:
            self.namespace = outer
            self.regions.pop()

    def _check_loop_dim(self, dim: Any, loc: Loc | None) -> None:
        if any(r.dim == dim for r in self.regions):
            raise TraceError(f"iterate: already inside a loop over {dim}", loc, hint="loop over another dimension")
        if self.combining is not None:
            raise TraceError(f"iterate: inside the function of {self.combining}", loc, hint="loop outside of it")
        if not any(isinstance(c, TilingConstraint) and c.dim == dim for c in self.graph.constraints):
            raise ConstraintError(
                f"iterate: {dim} has no TilingConstraint, so a trip has no size",
                loc,
                hint=f"add wd.TilingConstraint({dim}, <elements per trip>) to the constraints",
            )

    def _check_parameters(self, body: Any, inits: Sequence[Node], region: Region) -> None:
        code = body.__code__
        count = code.co_argcount
        enough = count <= len(inits) if code.co_flags & CO_VARARGS else count == len(inits)
        if not enough or code.co_kwonlyargcount or code.co_flags & CO_VARKEYWORDS:
            raise TraceError(
                f"iterate: the loop over {region.dim} carries {_count(len(inits), 'value')}, "
                f"but its function takes {_count(count, 'parameter')}",
                region.loc,
                hint="one parameter per entry of init_args, in that order",
            )
        notes = dict(getattr(body, "__annotations__", {}))

        def namespace() -> Namespace:
            import sys

            frame: Any = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename != code.co_filename:
                frame = frame.f_back
            return Namespace(body, frame, self.namespace())

        for position, init in enumerate(inits):
            name = _parameter_at(code, position)
            declared = resolve(notes.get(name), code, name, namespace)
            if declared is not None:
                self._check_declared(declared, init.type, name, parameter(code, name), region)

    def _check_declared(self, declared: Any, have: Any, name: str, loc: Loc, region: Region) -> None:
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

    def _yields(self, returned: Any, inits: Sequence[Node], region: Region, body: Any) -> tuple[Node, ...]:
        what = f"the loop over {region.dim}"
        if returned is None:
            if not inits:
                return ()
            raise TraceError(
                f"iterate: the function of {what} returns nothing, but carries {_count(len(inits), 'value')}",
                region.loc,
                hint="end it with `return` and the new value of each carried value",
            )
        values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if len(values) != len(inits):
            raise TraceError(
                f"iterate: the function of {what} returns {_count(len(values), 'value')}, but carries {len(inits)}",
                region.loc,
                hint="return one value per entry of init_args, in that order",
            )
        nodes = []
        for position, (x, init) in enumerate(zip(values, inits)):
            name = _parameter_at(body.__code__, position)
            node = self.node_of(x, f"iterate: the new value of {name}", region.loc)
            self.regions.append(region)
            try:
                self._check_reach(node, region.loc)
            finally:
                self.regions.pop()
            assert isinstance(node.type, ValueType) and isinstance(init.type, ValueType)
            if not node.type.same_as(init.type):
                raise TraceError(
                    f"iterate: {what} carries {name} as {init.type}, but returns {node.type} for it",
                    node.loc,
                    hint=_repair(node.type, init.type),
                )
            nodes.append(node)
        return tuple(nodes)

    def combine(self, op: str, x: Any, function: Any, identity: Any, dim: Any) -> Any:
        """`reduce` and `scan`: traces the combining function on two scalars."""
        loc = here()
        node = self.node_of(x, op, loc)
        if not isinstance(function, FunctionType):
            raise TraceError(
                f"{op}: the combining function is {describe(function)[0]}", loc, hint="lambda a, b: wd.maximum(a, b)"
            )
        names_of = list(inspect.signature(function).parameters)
        if len(names_of) != 2:
            raise TraceError(
                f"{op}: the combining function takes {_count(len(names_of), 'parameter')}", loc, hint="it combines two"
            )
        if not isinstance(identity, NUMBERS):
            raise TraceError(
                f"{op}: the identity is {describe(identity)[0]}",
                loc,
                hint="the number that combining with changes nothing",
            )
        region = Region(loc=loc)
        element = ValueType((), node.dtype)
        attrs = {
            "dim": self.dim(dim, op),
            "identity": python_number(identity, node.dtype, op, loc),
            "body": region,
        }
        outer, self.combining = self.combining, op
        try:
            carries = self._carries(region, (element, element), [(name, loc) for name in names_of])
            returned = self._run(function, carries, region)
        finally:
            self.combining = outer
        region.yields = (self.node_of(returned, f"{op}: what the combining function returns", loc),)
        return self.results(self.emit(op, (node,), attrs, loc))


def _parameter_at(code: CodeType, position: int) -> str:
    """Name of the parameter that takes a positional argument; that of `*rest` takes all behind the others."""
    last = code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[position if position < code.co_argcount else last]


def _count(n: int, thing: str) -> str:
    return f"{n} {thing}" + "s" * (n != 1)


def _alike(nodes: Sequence[Node], types: Sequence[Any]) -> bool:
    """Whether nodes have these types, up to the order of dimensions."""
    return len(nodes) == len(types) and all(
        isinstance(n.type, ValueType) and n.type.same_as(t) for n, t in zip(nodes, types)
    )


def _symbols_of(dim: Any) -> Any:
    return getattr(dim, "free_symbols", ())


def _shift(mapping: ResolvedMapping | None, by: int) -> ResolvedMapping | None:
    """Indices come after the stored values among a node's inputs."""
    if mapping is None:
        return None
    return ResolvedMapping(mapping.dims, tuple(c + by if isinstance(c, int) else c for c in mapping.coords))


def _repair(have: ValueType, want: ValueType) -> str:
    if have.dtype is not want.dtype:
        return f"return wd.cast(x, wd.{want.dtype})"
    extra = [d for d in have.dims if d not in want.dims]
    if extra:
        return f"reduce over {names(extra)}, or carry a value with {names(have.dims)}"
    return f"wd.broadcast(x, {names(want.dims)}), or carry a value with [{names(have.dims)}]"


def describe(x: Any) -> tuple[str, str]:
    """What a thing is that should have been a value, and what to do about it."""
    if isinstance(x, Array):
        return f"{x.argument.name} is an array argument", f"read it first: wd.read({x.argument.name})"
    if x is None:
        return "None", "wd.write and loops that carry nothing give no value; a helper may lack its return"
    if isinstance(x, (FunctionType, BuiltinFunctionType)) or isinstance(x, type):
        return f"the function {getattr(x, '__name__', x)} itself", f"call it: {getattr(x, '__name__', x)}(…)"
    if isinstance(x, (RegisterType, MemoryType, ScalarType)):
        return f"the type {x}", "call it with a number: wd.Register[M, N, wd.f32](0.0)"
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}", "unpack it: a loop with several carried values gives a tuple"
    if isinstance(x, np.ndarray):
        return "a NumPy array", "pass arrays as arguments of the kernel"
    if isinstance(x, (bool, np.bool_)):
        return f"the number {x}", "what is known now needs Python's if and else only"
    if isinstance(x, NUMBERS):
        return f"the number {x}", f"make a value of it: wd.Register[M, N, wd.f32]({x})"
    if isinstance(x, sympy.Basic):
        return (
            f"the symbol or expression {x}",
            "use it in arithmetic with a value, or wd.index(M) for an element's index",
        )
    if isinstance(x, Value):
        return f"a value ([{names(x.dims)}] {x.dtype})", "this place takes something else"
    if callable(x):
        return f"{type(x).__name__} object", "call it first"
    return f"{x!r}", "operands are values, numbers and symbols"


def python_number(x: Any, dtype: DType, op: str, loc: Loc | None) -> bool | int | float:
    """A number of the source as a Python number of `dtype`'s kind; a TraceError where that would change it."""
    if isinstance(x, (bool, np.bool_)):
        x = bool(x)
    elif isinstance(x, (int, np.integer)):
        x = int(x)
    else:
        x = float(x)
    if dtype.kind == "bool":
        if isinstance(x, bool) or x in (0, 1):
            return bool(x)
        raise TraceError(f"{op}: {x} is not an i1", loc, hint="True or False")
    if dtype.is_int:
        if isinstance(x, float):
            if not x.is_integer() or op != "Register":
                raise TraceError(
                    f"{op}: the number {x} with {dtype} values", loc, hint="cast the value: wd.cast(x, wd.f32)"
                )
            x = int(x)
        low, high = (
            (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
        )
        if not low <= x <= high:
            raise TraceError(f"{op}: {x} does not fit {dtype}", loc, hint=f"{dtype} holds {low} to {high}")
        return int(x)
    if not isinstance(x, float) and abs(x) > 1 << 1023:
        raise TraceError(f"{op}: {x} does not fit {dtype}", loc, hint="use a smaller number")
    return float(x)


def call_user(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Runs a user's function on proxies. What a mistake in it raises becomes a TraceError at the user's line."""
    try:
        return function(*arguments)
    except WaveError as error:
        if error.location is None:
            error.location = from_traceback(error.__traceback__)[0]
        raise
    except (NameError, TypeError, AttributeError) as error:
        loc, ours = from_traceback(error.__traceback__)
        if loc is None or ours:
            raise
        text = str(error)
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        frame = traceback.tb_frame if traceback is not None else None
        hint = advice.for_exception(text, frame)
        if isinstance(error, NameError) and error.name:
            space = {**frame.f_globals, **frame.f_locals} if frame is not None else {}
            hint = suggest(error.name, space, f"define {error.name} before it is used")
            text = text.split(". Did you mean")[0]
        elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
            hint = suggest(str(error.name), dir(error.obj), f"see dir({error.obj.__name__})")
        raise TraceError(text, loc, hint=hint) from error


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
    token = _CURRENT.set(builder)
    try:
        returned = call_user(function, [proxies.get(name) for name, _ in parameters])
    finally:
        _CURRENT.reset(token)
    if returned is not None:
        raise TraceError(
            f"kernel {name} returns {describe(returned)[0]}",
            graph.loc,
            hint="a kernel returns nothing: write results into its array arguments with wd.write(value, c)",
        )
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
