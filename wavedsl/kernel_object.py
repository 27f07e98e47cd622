"""`wave` and the kernel object it returns: tracing, evaluation, and the doors to the compiler and the runtime.

A kernel object holds what the user declared, nothing derived but its traces. `__call__`, `compile` and `bind` bind
arguments by the Python signature and hand over to `wavedsl.compiler` and `wavedsl.runtime.launch`.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn

import sympy

from wavedsl.binding import Binding, Parameter, bind, bind_arguments, check_subs
from wavedsl.ir.called import door, leave
from wavedsl.ir.dataflow.constraints import Constraint, check_constraints, index_dims
from wavedsl.ir.dataflow.graph import Graph
from wavedsl.ir.errors import ConstraintError, LaunchError, TraceError, WaveError
from wavedsl.ir.loc import Loc
from wavedsl.ir.options import with_options
from wavedsl.ir.source import definition, here, parameter
from wavedsl.ir.symbols import AddressSpace, names, normalise
from wavedsl.outside import Snapshot
from wavedsl.schedule import ELSEWHERE, Schedule
from wavedsl.tracer.annotations import MemoryType, Namespace, ScalarType, resolve, suggest
from wavedsl.tracer.proxy import Array, Value
from wavedsl.unlaunched import UNLAUNCHED

_ELSEWHERE_OPTIONS = {
    **{name: f"schedule=wd.Schedule({mine}=…)" if mine.isidentifier() else mine for name, mine in ELSEWHERE.items()},
    "grid": "the grid follows from the constraints", "block": "a workgroup's size follows from the constraints",
    "target": "kernel.compile(…, target=…); a call runs on its arrays' device",
    "device": "a call runs on its arrays' device; NumPy's on WAVEDSL_DEVICE",
    "configs": "@wd.autotune() above @wd.wave", "key": "@wd.autotune() above @wd.wave", "fastmath": "fast_math",
    "do_not_specialize": "dynamic", "dynamic_symbols": "dynamic", "constexpr": "subs", "constants": "subs",
    "defines": "subs", "hyperparams": "subs", "tiles": "subs", "debug": "WAVEDSL_DUMP=folder in the environment",
    **{f.name: f"schedule=wd.Schedule({f.name}=…)" for f in fields(Schedule)},
}  # fmt: skip
"""What other languages give a kernel's decorator → how it is said here."""


@with_options(_ELSEWHERE_OPTIONS, "wd.wave")
def wave(
    constraints: Sequence[Constraint] | None = None,
    *,
    subs: Mapping[Any, Any] | None = None,
    dynamic: Sequence[Any] = (),
    schedule: Schedule | None = None,
    name: str | None = None,
    buckets: Mapping[Any, Sequence[int]] | None = None,
    fast_math: bool = False,
) -> Callable[[Callable[..., None]], Kernel]:
    """Decorates a function that describes the work of one wave; gives a `Kernel`.

    `subs` binds symbols (tiles, sizes, address spaces); `dynamic` lists dimensions that stay run-time arguments; others
    are bound from the arguments' shapes. `buckets` maps a dimension to ascending extents: {M: (16, 128)} makes three
    ranges (up to 16, up to 128, above), each with a tuned choice of its own. `fast_math`: every operation is as
    approximate as with `fast=True`, `/` as well. Raises ConstraintError and TraceError for what is wrong with the
    declaration.

    Globals and closed-over variables of the function, and of plain functions that it calls by name, are read when it is
    traced. A call or `compile` after one of them has changed takes the new value; what `compile` and `bind` have given
    keeps the old one. What changes inside an object (an attribute, an element of a list) is not noticed.
    """
    loc = here(calls=False)
    if constraints is None or callable(constraints):
        raise ConstraintError(
            "@wd.wave needs its constraints", loc, hint="@wd.wave([wd.WorkgroupConstraint(M, BM, 0)])"
        )
    checked = check_constraints(constraints, loc)
    if schedule is not None and not isinstance(schedule, Schedule):
        raise ConstraintError(f"wave: schedule={schedule!r}", loc, hint="wd.Schedule(stages=3)")
    frame = sys._getframe(2)  # behind the wrapper of `with_options`

    def decorate(function: Callable[..., None]) -> Kernel:
        if not inspect.isfunction(function):
            method = isinstance(function, (staticmethod, classmethod))
            raise TraceError(
                f"@wd.wave decorates a function, not {f'a {type(function).__name__}' if method else repr(function)}",
                loc,
                hint="put @staticmethod above @wd.wave(…)" if method else "def kernel(a: wd.Memory[…]): …",
            )
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            what = "is async" if inspect.iscoroutinefunction(function) else "has a yield"
            raise TraceError(
                f"kernel {function.__name__} {what}",
                definition(function.__code__),
                hint="a kernel is a plain function, which writes results into its array arguments: wd.write(value, c)",
            )
        namespace = Namespace(function, frame)
        return Kernel(
            function, checked, subs, dynamic, schedule, name or function.__name__, loc, namespace, buckets, fast_math
        )

    return decorate


class Kernel:
    """A kernel. Call it like the function: `kernel(a, b, c)` compiles for these arguments if it must, and launches.

    `name`, `constraints`, `subs`, `dynamic`, `schedule` and `parameters` are what was declared. The call returns None;
    outputs are arguments. A parameter annotated None is none: calls leave it out, and the function gets None for it.

    Without a launch: `compile` gives target text (`CompiledKernel`), `trace` the graph, `evaluate` runs the graph in
    NumPy, `precompile` fills the cache, `bind` makes a call that has nothing left to decide.
    """

    def __init__(
        self,
        function: Callable[..., None],
        constraints: list[Constraint],
        subs: Mapping[Any, Any] | None,
        dynamic: Sequence[Any],
        schedule: Schedule | None,
        name: str,
        loc: Loc | None,
        namespace: Namespace,
        buckets: Mapping[Any, Sequence[int]] | None = None,
        fast_math: bool = False,
    ):
        self.function = function
        self.name = name
        self.constraints = constraints
        self.subs = check_subs(subs, loc)
        self.dynamic = check_dynamic(dynamic, loc)
        self.schedule = schedule
        self.buckets = check_buckets(buckets, loc)
        self.fast_math = fast_math
        self.loc = loc
        self._namespace = namespace
        self._graphs: dict[Any, Graph] = {}
        self._variants: dict[Any, Kernel] = {}
        self._dispatch: Any = None
        self._outside: Snapshot | None = None
        self.forgotten = ""
        """Why what was compiled before does not count any more; empty where nothing was."""
        self.unchanged: Callable[[], bool] | None = None
        """Whether globals and closed-over variables are what they were when it was traced; None: it has none."""
        self.ways: Any = UNLAUNCHED
        self._declared = _parameters(function, namespace)
        self.parameters = [p for p in self._declared if p.annotation is not None]
        self.argument_names = tuple(p.name for p in self.parameters)
        self._arity = len(self.argument_names)
        self._named = [_values_of(self.argument_names[i:]) for i in range(len(self.argument_names) + 1)]
        """By how many arguments come without names: the others' values, in order, of a call that gives all of them."""
        self.scalars = frozenset(p.name for p in self.parameters if isinstance(p.annotation, ScalarType))
        self.defaults = {p.name: p.default for p in self.parameters if p.default is not inspect.Parameter.empty}
        if not self.parameters:
            raise TraceError(
                f"kernel {function.__name__} has no parameters",
                definition(function.__code__),
                hint="a kernel writes to array arguments",
            )
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(f'{p.name}: {p.annotation}' for p in self.parameters)})>"

    def __reduce__(self) -> str:
        """As functions do, by the name under which its module has it: pickles are small, and a copy is the kernel."""
        return self.__qualname__

    def merged(self, subs: Mapping[Any, Any] | None) -> dict[Any, Any]:
        """The decorator's `subs` with `subs` over them."""
        return {**self.subs, **check_subs(subs, here(calls=False))} if subs else self.subs

    @with_options({"target": "kernel.compile(…, target=…).graph"}, "kernel.trace")
    def trace(self, subs: Mapping[Any, Any] | None = None) -> Graph:
        """The dataflow graph, traced once per set of bindings and verified; see its `text`, `dot` and `nx`.

        Do not change it: it is shared. Raises TraceError and ConstraintError at the user's lines.
        """
        self.refresh()
        merged = self.merged(subs)
        key = tuple(sorted((str(k), v.value if isinstance(v, AddressSpace) else v) for k, v in merged.items()))
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self.trace_afresh(merged)
            self._outside = Snapshot(self.function)
            self.unchanged = self._outside.unchanged
        self.check_named(graph, check_subs(subs), "subs binds")
        return graph

    def refresh(self) -> None:
        """Forgets what was traced and compiled if what the function reads from outside has changed since then.

        What counts are globals and closed-over variables of the function and of plain functions that it calls by name.
        """
        if self._outside is None or self._outside.same():
            return
        self.forgotten = f"{' and '.join(self._outside.different)} changed since it was traced"
        self._graphs, self._variants, self._outside, self.unchanged = {}, {}, None, None
        self._dispatch, self.ways = None, UNLAUNCHED
        launch = sys.modules.get("wavedsl.runtime.launch")
        if launch is not None:
            launch.forget(self)

    def check_named(self, graph: Graph, symbols: Sequence[Any] | Mapping[Any, Any], what: str) -> None:
        """That the kernel says each of these symbols anywhere. `what` is said of those that it does not."""
        strange = [s for s in symbols if s not in graph.named]
        if strange:
            raise ConstraintError(
                f"{self.name}: {what} {names(strange)}, which the kernel does not use",
                here(calls=False),
                hint=suggest(str(strange[0]), map(str, graph.named), f"it has {names(sorted(graph.named, key=str))}"),
            )

    def trace_afresh(self, subs: Mapping[Any, Any]) -> Graph:
        """A new graph under complete bindings `subs`, for passes that change it."""
        from wavedsl.ir.dataflow.graph_verify import verify_graph
        from wavedsl.tracer.trace import trace

        graph = trace(
            self.function,
            [(p.name, p.annotation) for p in self._declared],
            self.constraints,
            subs,
            self.dynamic,
            self.name,
            lambda: self._namespace,
            index_dims(self.constraints),
            self.fast_math,
        )
        verify_graph(graph)
        self.check_named(graph, self.dynamic, "dynamic lists")
        return graph

    def bind_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, as the signature binds them. Raises LaunchError, and TraceError inside of a kernel."""
        if any(isinstance(x, (Array, Value)) for x in (*args, *kwargs.values())):
            raise TraceError(
                f"kernel {self.name} is used inside of a kernel",
                here(),
                hint="put what kernels share into a plain function and call that",
            )
        return bind_arguments(self.name, self.parameters, args, kwargs)

    def binding(
        self,
        arguments: Mapping[str, Any] | None,
        subs: Mapping[Any, Any] | None = None,
        dynamic: Sequence[Any] | None = None,
        *,
        float64: bool = False,
    ) -> Binding:
        """A value for every symbol: from `subs`, `dynamic` and the arguments' shapes. LaunchError, ConstraintError."""
        merged = self.merged(subs)
        dims = self.dynamic if dynamic is None else check_dynamic(dynamic, here(calls=False))
        if subs:
            dims = tuple(d for d in dims if dynamic is not None or d not in merged)
        try:
            return bind(
                self.name, self.parameters, arguments, merged, dims, symbols=self._tile_symbols(), float64=float64
            )
        except WaveError as error:
            error.location = error.location or self.loc
            raise

    def _tile_symbols(self) -> list[Any]:
        """Symbols that only constraints mention: they need a value, and no array can give it."""
        found: dict[Any, None] = {}
        for c in self.constraints:
            for expr in (getattr(c, "tile", None), *(getattr(c, "vector_shapes", None) or {}).values()):
                if isinstance(expr, sympy.Expr):
                    found.update(dict.fromkeys(sorted(expr.free_symbols, key=str)))
        return list(found)

    @door
    def evaluate(self, *args: Any, subs: Mapping[Any, Any] | None = None, float64: bool = False, **kwargs: Any) -> None:
        """Runs the graph evaluator on NumPy arrays in place: what the kernel means, without a target.

        `float64` computes every float in f64 without rounding, for references; float arguments may then be f64 arrays.
        Raises LaunchError for arguments that do not fit, TraceError and ConstraintError as `trace`.
        """
        from wavedsl.ir.evaluator.evaluate import evaluate

        arguments = self.bind_arguments(args, kwargs)
        bound = self.binding(arguments, subs, dynamic=(), float64=float64)
        evaluate(self.trace(subs), arguments, bound.dims, float64=float64)

    @door
    def compile(
        self,
        *args: Any,
        target: str | None = None,
        subs: Mapping[Any, Any] | None = None,
        dynamic: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """A `CompiledKernel` for `target` (the default device's where None).

        With arguments, symbols are bound from their shapes; without, `subs` binds every dimension that is not dynamic,
        and arrays are taken as row-major, contiguous, 16-byte aligned and not overlapping. Raises WaveErrors. Gives a
        SpillWarning where a warpgroup has too few registers for its tiles, and ptxas says so too.
        """
        from wavedsl.compiler import compile_kernel

        arguments = self.bind_arguments(args, kwargs) if args or kwargs else None
        compiled = compile_kernel(self, arguments, target=target, subs=subs, dynamic=dynamic)
        compiled.check_registers()
        return compiled

    def variant(self, choice: Any) -> Kernel:
        """This kernel with a tuning candidate's symbols and schedule over its own; the same object for the same
        choice."""
        found = self._variants.get(choice)
        if found is None:
            fixed = choice.fields()
            schedule = replace(self.schedule or Schedule(), **fixed) if fixed else self.schedule
            subs = {**self.subs, **check_subs(dict(choice.subs), self.loc)}
            found = Kernel(
                self.function, self.constraints, subs, self.dynamic, schedule, self.name, self.loc, self._namespace,
                self.buckets, self.fast_math,
            )  # fmt: skip
            self._variants[choice] = found
        return found

    def bucket(self, dims: Mapping[Any, Any]) -> str:
        """The shape bucket of these extents as text: `K=4096 M<=128 N=4096`; dimensions without buckets count
        exactly."""
        parts = []
        for dim in sorted({s for p in self.parameters for s in p.free_dims(self.subs)}, key=str):
            extent = dims.get(dim)
            if isinstance(extent, int) and dim not in self.subs:
                parts.append(_bucket_text(dim, extent, self.buckets.get(dim)))
        return " ".join(parts) or "any"

    @door
    def precompile(
        self,
        *args: Any,
        subs: Mapping[Any, Any] | Sequence[Mapping[Any, Any]] | None = None,
        target: str | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Compile ahead what later calls need, so that they find it; gives a `CompiledKernel` each.

        With arrays, for their shapes. With `subs` (a dict, or several), for row-major arrays of those extents; a
        dynamic dimension that they leave out is prepared for every divisibility that the text can depend on. Raises
        what `compile` raises.
        """
        from wavedsl.precompile import precompile

        return precompile(self, self.bind_arguments(args, kwargs) if args or kwargs else None, subs, target)

    def memory_dims(self, name: str) -> tuple[Any, ...]:
        """Dimensions of an array argument as declared, outermost first."""
        parameter = next(p for p in self.parameters if p.name == name)
        axes, _ = parameter.annotation.resolve(self.subs)
        return tuple(axes)

    def compile_cached(self, arguments: Mapping[str, Any], target: str, why: str = "", asked: bool = False) -> Any:
        """What calls use: as `compile`, but a kernel that any process has compiled before comes from the cache.

        `why` says what made it necessary, for the log; `asked`: the user wants it compiled, so WAVEDSL_STRICT allows
        it.
        """
        from wavedsl.compile_cache import compile_cached

        return compile_cached(self, arguments, target, why, asked)

    @door
    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """An object whose call launches again on these arguments with nothing left to decide."""
        from wavedsl.runtime.launch import bind_kernel

        return bind_kernel(self, self.bind_arguments(args, kwargs))

    def __getattr__(self, name: str) -> NoReturn:
        """Says where other things are that a compiled kernel has, and how a kernel is run."""
        said = f"'Kernel' object has no attribute {name!r}"
        if name in _ELSEWHERE:
            said += f": {self.__dict__.get('name', 'kernel')}{_ELSEWHERE[name]}"
        raise AttributeError(said, name=name, obj=self)

    def __getitem__(self, grid: Any) -> NoReturn:
        hint = f"{self.name}(…): the grid follows from its constraints"
        raise LaunchError(f"{self.name}: a kernel takes no grid", here(), hint=hint)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Compiles for the arguments' shapes, strides, dtypes and device if it must, and launches."""
        try:
            if kwargs or len(args) != self._arity:
                args = self.in_order(args, kwargs)
            if self.unchanged is not None and not self.unchanged():
                self.refresh()
            ways = self.ways
            if not ways.last(*args) and not ways.other(args):
                from wavedsl.runtime.launch import launch_kernel

                launch_kernel(self, self.bind_arguments(args, {}))
        except Exception as error:
            leave(error, self.argument_names, "__call__")
            raise

    def in_order(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call in the order of the parameters, found quickly where all are given."""
        if len(args) + len(kwargs) == len(self.argument_names):
            try:
                return (*args, *self._named[len(args)](kwargs))
            except KeyError:
                pass
        return tuple(self.bind_arguments(args, kwargs).values())

    @property
    def dispatch(self) -> Any:
        """The short ways of calls that have been made before (`wavedsl.runtime.dispatch`)."""
        if self._dispatch is None:
            from wavedsl.runtime.dispatch import Dispatch

            self._dispatch = Dispatch()
            self.ways = self._dispatch.ways
        return self._dispatch


_COMPILED = (
    "asm", "binary", "block", "c_header", "emulate", "graph", "grid", "kernel_ir", "params", "resources", "save",
    "shared_bytes",
)  # fmt: skip
_ELSEWHERE = {name: f".compile(…).{name}" for name in _COMPILED} | {
    "run": "(…) runs it", "warmup": ".precompile(…)", "cache": ".precompile(…) fills the cache",
}  # fmt: skip
"""Attributes that somebody looks for on a kernel → where they are."""


def _values_of(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What gives the values of `names` in this order; KeyError if one is missing."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    return lambda given: tuple([given[name] for name in names])


_UNANNOTATED = object()


def check_dynamic(dynamic: Any, loc: Loc | None) -> tuple[Any, ...]:
    """A user's `dynamic` as a tuple of symbols."""
    if isinstance(dynamic, sympy.Symbol):
        dynamic = (dynamic,)
    try:
        found = tuple(dynamic)
    except TypeError:
        raise ConstraintError(f"dynamic={dynamic!r}", loc, hint="a list of symbols: dynamic=[M]") from None
    for s in found:
        if not isinstance(s, sympy.Symbol):
            raise ConstraintError(f"dynamic has {s!r}", loc, hint="symbols: dynamic=[M]")
    return tuple(normalise(s) for s in found)


def check_buckets(buckets: Any, loc: Loc | None) -> dict[Any, tuple[int, ...]]:
    """A user's `buckets` with normalised symbols; ConstraintError for what is no ascending list of extents."""
    if buckets is None:
        return {}
    if not isinstance(buckets, Mapping):
        raise ConstraintError(f"buckets={buckets!r}", loc, hint="a dict of ascending extents: buckets={M: (16, 128)}")
    found = {}
    for dim, limits in buckets.items():
        if not isinstance(dim, sympy.Symbol):
            raise ConstraintError(f"buckets has {dim!r} as a key", loc, hint="keys are dimensions: {M: (16, 128)}")
        try:
            sizes = tuple(limits)
        except TypeError:
            sizes = ()
        good = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sizes)
        if not sizes or not good or list(sizes) != sorted(set(sizes)):
            raise ConstraintError(f"buckets gives {limits!r} for {dim}", loc, hint="ascending extents: (16, 128)")
        found[normalise(dim)] = sizes
    return found


def _bucket_text(dim: Any, extent: int, limits: tuple[int, ...] | None) -> str:
    if limits is None:
        return f"{dim}={extent}"
    limit = next((n for n in limits if extent <= n), None)
    return f"{dim}<={limit}" if limit is not None else f"{dim}>{limits[-1]}"


def _missing_annotation(p: inspect.Parameter, first: bool) -> str:
    """Help where a parameter has no annotation: a method's own object, a flag with a default, or an argument."""
    if first and p.name in ("self", "cls"):
        return "a kernel is no method: write @staticmethod above @wd.wave(…), or define it outside of the class"
    if isinstance(p.default, (bool, str)):
        return (
            f"what is known while tracing comes from around the kernel: def make({p.name}): with the kernel in it; "
            "parameters are arrays and numbers"
        )
    return f"for example {p.name}: wd.Memory[M, N, wd.f16] or {p.name}: wd.Scalar[wd.f32]"


def _parameters(function: Callable[..., None], namespace: Namespace) -> list[Parameter]:
    """A kernel's parameters with their annotations. Raises TraceError for those that a kernel cannot have."""
    code = function.__code__
    found: list[Parameter] = []
    for p in inspect.signature(function).parameters.values():
        loc = parameter(code, p.name)
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise TraceError(
                f"kernel {function.__name__}: parameter *{p.name} takes any number of arguments", loc,
                hint="name every parameter; a kernel for another count of arrays is made by a function around it",
            )  # fmt: skip
        if p.kind is p.KEYWORD_ONLY:
            raise TraceError(
                f"kernel {function.__name__}: {p.name} can only be passed by name", loc, hint="drop the * before it"
            )
        annotation = function.__annotations__.get(p.name, _UNANNOTATED)
        if annotation is _UNANNOTATED:
            raise TraceError(
                f"kernel {function.__name__}: parameter {p.name} has no annotation",
                loc,
                hint=_missing_annotation(p, not found),
            )
        try:
            resolved = resolve(annotation, code, p.name, lambda: namespace)
        except WaveError as error:
            if error.location is None:
                error.location = loc
            raise
        if resolved is not None and not isinstance(resolved, (MemoryType, ScalarType)):
            raise TraceError(
                f"kernel {function.__name__}: parameter {p.name} is annotated {resolved}",
                loc,
                hint="arguments are wd.Memory[...] or wd.Scalar[...]; registers are made inside",
            )
        found.append(Parameter(p.name, resolved, loc, p.default))
    return found
