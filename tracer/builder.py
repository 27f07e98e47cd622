"""The builder: appends nodes to the graph while the user's function runs on proxies.

In: calls from proxies and from the functions of the language. Out: typed nodes with locations, in the region of the
loop that is being traced, or a TraceError. There is one current builder per thread of control (a context variable).

Invariant: when a node is appended, its inputs are in its own region or in one that encloses it.
"""

from __future__ import annotations

import contextvars
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Argument, Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.graph import Mapping as ResolvedMapping
from wavedsl.ir.dataflow.ops import FAST, ROWS
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import TraceError, WaveError
from wavedsl.ir.loc import Loc
from wavedsl.ir.source import here
from wavedsl.ir.symbols import is_dim, names, normalise, taken_apart
from wavedsl.tracer.annotations import Namespace, RegisterType, suggest
from wavedsl.tracer.extents import extent
from wavedsl.tracer.operands import NUMBERS, describe, dtype_of_numbers, python_number
from wavedsl.tracer.order import Order, Place
from wavedsl.tracer.proxy import Value
from wavedsl.tracer.user_code import call_user

COUNTED = ("shl", "shr", "rotate_left")
"""Operations whose second operand counts places."""

COMBINED = ("constant", "cast", "bitcast", "scalar", "size")
"""What the function of a `reduce` or `scan` is made of beside what computes element by element."""
CHOICES = ("minimum", "maximum", "clamp")
"""Operations that extents alone may be the operands of."""
CURRENT: contextvars.ContextVar[Builder | None] = contextvars.ContextVar("wavedsl_builder", default=None)


def current(what: str) -> Builder:
    """The builder of the kernel being traced; a TraceError outside of one."""
    builder = CURRENT.get()
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
        self.named: set[Any] = set()
        """Symbols that the function says."""
        self.started: set[int] = set()
        """Constants that sums start from."""
        self.order = Order()
        """The accesses of arrays that a fence may have to follow."""
        self.fast, self.fast_math = False, False
        """Whether operations that have a faster, less precise form take it: in the call at hand, in the kernel."""
        self.flags: frozenset[str] = frozenset()
        """Array arguments of i1: a byte per element, so the graph has them as u8 and casts what is read and written."""
        self.combining: str | None = None
        """`reduce` or `scan` whose function is being traced."""
        self.again: dict[int, Node] = {}
        """What that function uses from outside of it → the same, made inside."""
        self.live: Node | None = None
        """Who is still in a loop that each element leaves by itself, while its body is traced: others write nothing."""

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
            self.check_reach(node, loc)
        inputs = [self.inside(node, loc) for node in inputs]
        if self.combining is not None and row.compute is None and op not in COMBINED:
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

    def check_reach(self, node: Node, loc: Loc | None) -> None:
        home = self.home.get(node.id)
        if home is self.regions[-1]:
            return
        if home is None or not any(home is r for r in self.regions):
            dim = home.dim if home is not None else None
            where = f"the loop over {dim}" if dim is not None else "the function it was made in"
            raise TraceError(
                f"a value of {where} is used outside of it",
                loc,
                hint="return it from the loop's function; the loop's name is then its result" if dim is not None
                else "return it instead",
            )  # fmt: skip
        # A condition that is asked before its loop stands in the same region once more.
        inside = self.regions[max(i for i, r in enumerate(self.regions) if r is home) + 1 :]
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

    def inside(self, node: Node, loc: Loc | None) -> Node:
        """A value as the function of a `reduce` or `scan` has it: it runs wherever two elements meet, so what it uses
        from outside, numbers that the launch gives and what is computed of them alone, is made in it once more."""
        if self.combining is None or self.home[node.id] is self.regions[-1]:
            return node
        found = self.again.get(node.id)
        if found is None:
            launched = ROWS[node.op].compute is not None or node.op in COMBINED
            if node.op == "fill" and node.dims == ():
                found = self.emit("constant", (), {"value": node.attrs["value"], "dtype": node.dtype}, loc)
            elif launched and node.type == ValueType((), node.dtype):
                found = self.emit(node.op, node.inputs, node.attrs, loc)
            else:
                raise TraceError(
                    f"{self.combining}: its function uses a value from outside ({node.type}) that no launch gives",
                    loc,
                    hint="make it one more of the values that are combined; Scalar arguments may be used as they are",
                )
            self.again[node.id] = found
        return found

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
        """Nodes of operands; numbers and symbols take the dtype of the traced operands (or `dtype`).

        What `where` chooses among may be numbers alone, and so may extents, of which Python knows no minimum.
        """
        loc = here()
        for x in xs:
            if not isinstance(x, Value) and not isinstance(x, NUMBERS) and not is_dim(x):
                self.node_of(x, op, loc)
        found = dtype
        for x in xs:
            if isinstance(x, Value) and found is None:
                found = x.dtype
        if found is None and (op == "where" or (op in CHOICES and any(isinstance(x, sympy.Expr) for x in xs))):
            found = dtype_of_numbers(xs)
        if found is None:
            raise TraceError(
                f"{op}: no operand is a traced value",
                loc,
                hint=("" if any(isinstance(x, sympy.Expr) for x in xs) else "compute with Python's math, or ")
                + f"make a value: wd.Register[wd.f32]({xs[0] if xs else 0})",
            )
        if op in COUNTED:
            xs = [xs[0], *(self.count(x, found, op) for x in xs[1:])]
        return [self.node_of(x, op, loc) if isinstance(x, Value) else self.number(x, found, op, loc) for x in xs]

    def count(self, x: Any, dtype: DType, op: str) -> Any:
        """By how many places a `dtype` is shifted or turned, in that dtype: a count is a number of bits, whatever its
        own. One that is wider stays beyond the width if it was; a number of the source by which something is turned
        may be negative beside an unsigned one."""
        if op == "rotate_left" and isinstance(x, numbers.Integral) and dtype.is_int:
            return int(x) % dtype.bits
        if not isinstance(x, Value) or x.dtype == dtype or not (x.dtype.is_int and dtype.is_int):
            return x
        if x.dtype.bits > dtype.bits and op != "rotate_left":
            if x.dtype.is_signed:
                x = self.results(self.emit("bitcast", (x.node,), {"dtype": dt.ALL[f"u{x.dtype.bits}"]}))
            x = self.apply("minimum", [x, dtype.bits])
        return self.results(self.emit("cast", (x.node,), {"dtype": dtype}))

    def number(self, x: Any, dtype: DType, op: str, loc: Loc | None) -> Node:
        """A Python number, or an extent such as K, as a node of `dtype`."""
        if isinstance(x, sympy.Expr) and not x.is_number:
            return self.extent(x, dtype, op, loc)
        if isinstance(x, sympy.Expr):
            x = int(x) if x.is_Integer else float(x)
        return self.emit("constant", (), {"value": python_number(x, dtype, op, loc), "dtype": dtype}, loc)

    def extent(self, expr: Any, dtype: DType, op: str, loc: Loc | None) -> Node:
        """A symbol or an expression over symbols as a number, in the dtype of its partner."""
        return extent(self, self.known_expr(normalise(expr), op, loc), dtype, op, loc)

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
                    hint=suggest(s.name, listed, f"this kernel has {', '.join(listed)}")
                    + f"; a name for a length that no argument has is bound by subs={{{s}: …}}, and a length that "
                    "follows from others may stand for a name as it is: N / 4",
                )
            self.named.add(s)
        return expr

    def dim(self, value: Any, op: str, loc: Loc | None = None) -> Any:
        """A dimension given by the user."""
        loc = loc or here()
        if not is_dim(value):
            what, _ = describe(value)
            hint = "a dimension is a symbol, for example dim=N"
            if isinstance(value, (tuple, list)) and value:
                several = f"one dimension: {op} along several is along one that wd.reshape makes of them"
                if op in ("random", "randn") and all(map(is_dim, value)):
                    several = f"one after the other: wd.{op}(seed, {names(value)})"
                hint = taken_apart(value, several)
            elif op in ("max", "min"):
                hint += f"; element by element: wd.{op}imum(x, y)"
            raise TraceError(f"{op}: the dimension is {what}", loc, hint=hint)
        if isinstance(value, (int, sympy.Integer)) and value < 0:
            raise TraceError(
                f"{op}: the dimension is the number {value}",
                loc,
                hint="a length that follows from others is an expression: M * N, or N / 2",
            )
        dim = self.known_expr(normalise(value), op, loc)
        return dim

    def dims(self, values: Iterable[Any], op: str) -> tuple[Any, ...]:
        found = tuple(self.dim(v, op) for v in values)
        for i, d in enumerate(found):
            if d in found[:i]:
                raise TraceError(f"{op}: {d} is listed twice", here(), hint="dimensions are names and must differ")
        return found

    # --- operations that are not plain applications

    def fence(self, region: Region | None = None, scope: str | None = None) -> None:
        """What has been written in `region`, the one that is open, is seen by every wave behind it: of all workgroups,
        or of this one (`scope` "workgroup")."""
        where = region or self.regions[-1]
        self.regions.append(where)
        self.emit("fence", (), {} if scope is None else {"scope": scope})
        self.regions.pop()
        nodes = where.nodes
        if len(nodes) > 1 and any(nodes[-2].attrs.get("body") is r for r in self.regions):
            nodes[-2:] = nodes[:-3:-1]  # a loop is in the list before its body is traced
        self.order.fence(where, self.regions)

    def accesses(self, kind: str, argument: Argument, mapping: ResolvedMapping | None, indices: Sequence[Node]) -> None:
        """An array is read or written (`kind`) here: what other waves do at these elements before comes first."""
        place = Place(argument.dims, mapping, indices, set(self.index_dims))
        where = self.order.fence_before(kind, argument.name, place, self.regions)
        if where is not None:
            self.fence(where, "workgroup")
        self.order.add(kind, argument.name, place, self.regions)

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

    def scalar(self, name: str, loc: Loc | None) -> Value:
        return self.value(self.emit("scalar", (), {"name": name}, loc))

    def start(self, node: Node) -> Node:
        """What a sum starts from lies where its products want it. A constant that several sums start from is a constant
        of each, so that they may lie apart."""
        if node.op == "fill":
            if node.id in self.started:
                return self.emit("fill", (), dict(node.attrs), node.loc)
            self.started.add(node.id)
        return node

    def carries(self, region: Region, types: Sequence[Any], spots: Sequence[tuple[str, Loc | None]]) -> list[Value]:
        """Region arguments of the given types; `spots` are their names and where they are declared."""
        found = []
        for position, (t, (name, loc)) in enumerate(zip(types, spots)):
            attrs = {"position": position, "name": name, "dims": t.dims, "dtype": t.dtype}
            node = Node(len(self.home), "carry", (), attrs, t, loc)
            self.home[node.id] = region
            region.carries.append(node)
            found.append(self.value(node))
        return found

    def run_region(self, body: Callable[..., Any], arguments: Sequence[Any], region: Region) -> Any:
        self.regions.append(region)
        outer = self.namespace
        try:
            returned = call_user(body, arguments)
            if not any(region is r for r in self.regions[:-1]) and self.order.fence_between_trips(region):
                self.fence(region, "workgroup")
            return returned
        finally:
            self.namespace = outer
            self.regions.pop()
            if self.regions and not any(region is r for r in self.regions):
                self.order.end(region, self.regions[-1])


def _symbols_of(dim: Any) -> Any:
    return getattr(dim, "free_symbols", ())
