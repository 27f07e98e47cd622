"""The operations of the language, as functions to call inside a kernel.

Each records one node of the row of the same name in `ops.py` (elementwise ones are made from the row, docstring
included) and gives a traced value. All raise TraceError at the user's line for operands they cannot take, and when
called outside of a kernel.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.ops import ROWS, joined_dims
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import TraceError
from wavedsl.ir.source import here
from wavedsl.ir.symbols import is_dim, names, normalise
from wavedsl.tracer import access, branches, loops
from wavedsl.tracer.builder import Builder, current
from wavedsl.tracer.operands import NUMBERS, describe
from wavedsl.tracer.proxy import Value


def read(mem: Any, *, mapping: Any = None, elements_per_thread: Any = None, cache: str | None = None) -> Value:
    """The elements of array argument `mem` that belong to this wave, as a value with the array's dimensions.

    `mem` may be a part of an argument: `a[10:20, :]`, `a[s : s + M, 8:]` (a slice whose length is a symbol gives the
    value that dimension; elements outside of the slice are 0), `a[H, 3, :]`, `a[:, 1::2]` of an array [M, 2 N], which
    has N. `mapping`: an IndexMapping, for gathers and other views. `elements_per_thread`: the vector width asked for.
    `cache`: a hint, "stream" (touched once), "keep" (others use it again, keep it in L2) or "bypass" (not in the
    first-level cache). It changes no result; a chip without a form for it drops it.
    """
    return access.read(current("read"), mem, mapping, elements_per_thread, cache)


def write(
    value: Any, mem: Any, *, mapping: Any = None, elements_per_thread: Any = None, cache: str | None = None
) -> None:
    """Stores `value` into array argument `mem`, or a part of it as in `read`; dimensions and dtype must agree.

    Elements beyond bounds are skipped. `cache`: as for `read`.
    """
    access.write(current("write"), value, mem, mapping, elements_per_thread, cache)


def mma(x: Any, y: Any, acc: Any = None, precision: str | None = None) -> Value:
    """The matrix product of `x` and `y`, plus `acc`.

    Contracts the dimensions that both operands have and the result lacks (without `acc`: those that both have), which
    must be one. Each operand may have one other; more are index dimensions, of which a workgroup has one element.
    Products are exact, sums are in the accumulator's dtype (f32 by default; f64 and i32 for f64 and integers).

    `precision`, for operands of f32: "tf32" may cut them to tf32's 10 mantissa bits, "3xtf32" takes each as the sum of
    two such numbers (about f32's precision), "ieee" (and None) leaves them as they are. A chip without tf32
    instructions is as precise as "ieee".
    """
    operands = (x, y) if acc is None else (x, y, acc)
    builder = current("mma")
    attrs = {} if precision is None else {"precision": precision}
    nodes = [builder.node_of(v, "mma") for v in operands]
    return builder.results(builder.emit("mma", [*nodes[:2], *map(builder.start, nodes[2:])], attrs))


def scaled_mma(x: Any, x_scale: Any, y: Any, y_scale: Any, acc: Any = None) -> Value:
    """`mma` of operands scaled per block of the contracted dimension: scales are f8e8m0, declared `K / 32` long."""
    operands = (x, x_scale, y, y_scale) if acc is None else (x, x_scale, y, y_scale, acc)
    builder = current("scaled_mma")
    return builder.results(builder.emit("scaled_mma", [builder.node_of(v, "scaled_mma") for v in operands], {}))


def iterate(
    dim: Any, init_args: Sequence[Any] = (), start: Any = None, stop: Any = None, per_wave: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Decorates the body of a loop over the tiles of `dim`; the function's name then holds the loop's result.

    `init_args` are the carried values before the first trip, and the result where there is no trip. The function gets
    the carried values (as parameters, or all of them by `*values`) and returns their successors: one value, or a tuple
    of as many as `init_args` has.

    `start`, `stop`: only tiles that hold an element of start, …, stop - 1 take part, whole ones. Numbers, expressions
    over symbols, which are extents here (an index dimension's index is `wd.index(G)`), or single i32 values, which may
    differ between workgroups (`tile_start`, `tile_stop`).

    `per_wave`: the ends of tiles in the bounds may be taken for those of a wave's own share, where waves need not keep
    step. A trip that holds nothing between these must leave the wave's carried values as they are: under a causal mask,
    one whose keys all come behind the wave's rows. Such trips may be passed by, or computed.
    """
    builder = current("iterate")
    loc = here()
    if callable(dim) and not is_dim(dim):
        raise TraceError("iterate needs the dimension to loop over", loc, hint="@wd.iterate(K, init_args=[acc])")
    apart = _switch("iterate", "per_wave", per_wave)

    def decorate(body: Callable[..., Any]) -> Any:
        return loops.iterate(builder, dim, init_args, body, loc, (start, stop), apart)

    return decorate


def cond(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any] | None = None) -> Any:
    """Runs `then` where the single i1 value `condition` holds, else `otherwise`, and gives what it returns.

    The whole workgroup takes one branch, so the condition has no dimensions: an argument, an index of an index
    dimension, a reduction of everything. Both functions take nothing, use what is around them, and return values of
    equal types; without `otherwise` nothing is returned. `wd.where` chooses element by element.
    """
    return branches.conditional(current("cond"), condition, then, otherwise)


def while_loop(condition: Callable[..., Any], body: Callable[..., Any], init_args: Sequence[Any]) -> Any:
    """Runs `body` on the carried values as long as `condition` of them, an i1 value, holds.

    `init_args` are the values before the first trip and the result where there is none; `body` returns their
    successors. By a condition without dimensions the whole workgroup goes on or stops. By one with dimensions, which
    all carried values must have, each element keeps its value from when its condition first failed, and writes nothing
    from then on; what such a body writes has those dimensions.

        root = wd.while_loop(lambda r: abs(r * r - x) > 1e-3 * x, lambda r: (r + x / r) / 2, [x])
    """
    return branches.while_loop(current("while_loop"), condition, body, init_args)


def exit_if(condition: Any) -> None:
    """Ends the workgroup here where the single i1 value `condition` holds: nothing that follows happens."""
    branches.exit_if(current("exit_if"), condition)


def _elementwise(name: str) -> Callable[..., Any]:
    """The function for an elementwise operation, with signature and help from its row."""
    row = ROWS[name]
    names = [p.strip() for p in row.signature[row.signature.index("(") + 1 : -1].split(",")]
    signature = inspect.Signature([inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in names])
    option = [inspect.Parameter("fast", inspect.Parameter.KEYWORD_ONLY, default=False)] if row.precise else []

    def function(*args: Any, **kwargs: Any) -> Value:
        if option and "fast" in kwargs:
            return _fast(name, args, kwargs.pop("fast"), lambda: function(*args, **kwargs))
        if kwargs or len(args) != len(names):
            try:
                args = signature.bind(*args, **kwargs).args
            except TypeError as error:
                raise TraceError(f"{name}: {error}", here(), hint=f"wd.{row.signature}") from None
        return current(name).apply(name, args)

    function.__name__ = function.__qualname__ = name
    words = f"{row.doc}\n\n    `{row.signature}`, elementwise; operands broadcast by dimension name.\n    "
    words += "`fast`: as approximate as docs/numerics.md says, in fewer instructions.\n    " if option else ""
    function.__doc__ = words
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *option]
    )
    return function


def _fast(name: str, args: Sequence[Any], fast: Any, call: Callable[[], Value]) -> Value:
    """A call with `fast`: those operations that it changes are marked while they are recorded."""
    builder = current(name)
    if not isinstance(fast, bool):
        raise TraceError(f"{name}: fast={fast!r}", here(), hint="True or False")
    outer, builder.fast = builder.fast, fast
    try:
        return call()
    finally:
        builder.fast = outer


def divide(x: Any, y: Any, *, fast: bool = False) -> Value:
    """`x / y`, elementwise. `fast`: as approximate as docs/numerics.md says, in fewer instructions."""
    return _fast("divide", (x, y), fast, lambda: current("divide").apply("div", (x, y)))


minimum = _elementwise("minimum")
maximum = _elementwise("maximum")
clamp = _elementwise("clamp")
abs = _elementwise("abs")
floor = _elementwise("floor")
ceil = _elementwise("ceil")
trunc = _elementwise("trunc")
round = _elementwise("round")
isnan = _elementwise("isnan")
isinf = _elementwise("isinf")
isfinite = _elementwise("isfinite")
exp = _elementwise("exp")
exp2 = _elementwise("exp2")
expm1 = _elementwise("expm1")
log = _elementwise("log")
log1p = _elementwise("log1p")
log10 = _elementwise("log10")
log2 = _elementwise("log2")
sqrt = _elementwise("sqrt")
rsqrt = _elementwise("rsqrt")
reciprocal = _elementwise("reciprocal")
tanh = _elementwise("tanh")
erf = _elementwise("erf")
sigmoid = _elementwise("sigmoid")
sin = _elementwise("sin")
cos = _elementwise("cos")
atan = _elementwise("atan")
atan2 = _elementwise("atan2")
asin = _elementwise("asin")
acos = _elementwise("acos")
pow = _elementwise("pow")
fma = _elementwise("fma")
popcount = _elementwise("popcount")
clz = _elementwise("clz")
ctz = _elementwise("ctz")
bit_reverse = _elementwise("bit_reverse")
rotate_left = _elementwise("rotate_left")
mulhi = _elementwise("mulhi")
saturating_add = _elementwise("saturating_add")
saturating_sub = _elementwise("saturating_sub")


def permute_bytes(x: Any, y: Any, selector: Any) -> Value:
    """Words of bytes: hex digit i of the selector names byte i of the result, 0 to 3 of x, 4 to 7 of y.

    `permute_bytes(x, y, selector)`, elementwise; operands broadcast by dimension name. Of a selector that is a value,
    the lower three bits of each of its four digits count. Raises TraceError for a number with other digits.
    """
    if isinstance(selector, int) and selector & ~0x7777:
        hint = "four hex digits from 0 to 7, the first byte's last: 0x3210 is x, 0x0123 its bytes the other way round"
        raise TraceError(f"permute_bytes: the selector {selector:#x} names bytes that are not there", here(), hint=hint)
    return current("permute_bytes").apply("permute_bytes", (x, y, selector))


def where(condition: Any, x: Any, y: Any) -> Value:
    """`x` where the i1 value `condition` holds, else `y`, elementwise.

    A number takes the dtype of the other branch. Where both are numbers or extents, floats are f32, whole numbers i32
    and bools i1: `wd.where(x > 0, -1.0, 1.0)`. Beside f16, write `wd.cast(…, wd.f16)`.
    """
    builder = current("where")
    chosen = builder.operands("where", (x, y))
    return builder.results(builder.emit("where", [builder.node_of(condition, "where"), *chosen], {}))


def cast(x: Any, dtype: DType, rounding: str | None = None, bits: Any = None) -> Value:
    """The numbers of `x` in another dtype.

    Float to int truncates and saturates (NaN gives 0); int to int wraps; float to float rounds to nearest even, with
    `rounding="toward_zero"` truncates, with `rounding="stochastic"` rounds f32 up or down at random by the low 16 bits
    of the u32 value `bits` (`wd.random(…, dtype=wd.u32)`); into 8-bit and narrower floats it saturates. A number of the
    source and an extent become a single value: `wd.cast(255, wd.u8)`, `wd.cast(N, wd.u32)`.
    """
    builder = current("cast")
    if isinstance(x, DType) and isinstance(dtype, Value):
        raise TraceError("cast: the value comes first, then the dtype", here(), hint=f"wd.cast(x, wd.{x})")
    if rounding is None and bits is None and (isinstance(x, NUMBERS) or is_dim(x)):
        _require_dtype(dtype, "cast")
        return builder.value(builder.number(_whole(x, dtype) if dtype.is_int else x, dtype, "cast", here()))
    node = builder.node_of(x, "cast")
    _require_dtype(dtype, "cast")
    if node.dtype is dtype and rounding is None and bits is None:
        return builder.value(node)
    attrs: dict[str, Any] = {"dtype": dtype}
    if rounding is not None:
        attrs["rounding"] = rounding
    inputs = (node,) if bits is None else (node, builder.node_of(bits, "cast: bits"))
    return builder.results(builder.emit("cast", inputs, attrs))


def bitcast(x: Any, dtype: DType) -> Value:
    """The bits of `x` read as another dtype of equal width."""
    builder = current("bitcast")
    _require_dtype(dtype, "bitcast")
    return builder.results(builder.emit("bitcast", (builder.node_of(x, "bitcast"),), {"dtype": dtype}))


def _whole(x: Any, dtype: DType) -> Any:
    """A number of the source without its fraction, as a cast gives it."""
    if not isinstance(x, (float, np.floating)):
        return x
    if not math.isfinite(x):
        raise TraceError(f"cast: {x} has no {dtype}", here(), hint="a whole number")
    return int(x)


def _require_dtype(dtype: Any, op: str) -> None:
    if not isinstance(dtype, DType):
        named: dict[Any, DType] = {int: dt.i32, bool: dt.i1, **dt.ALL}
        of_numpy = next((d for d in dt.ALL.values() if dtype is d.numpy and d.bits >= 8), dt.f32)
        same = named.get(dtype, of_numpy) if isinstance(dtype, (str, type)) else of_numpy
        raise TraceError(f"{op}: {dtype!r} is not a dtype", here(), hint=f"wd.{op}(x, wd.{same})")


def _named(op: str, x: Any, dim: Any) -> Any:
    """`dim`; an error with those that there are where none is named."""
    if dim is None:
        names = ", ".join(map(str, current(op).node_of(x, op).dims))
        raise TraceError(f"{op}: which dimension?", here(), hint=f"name one of {names}: wd.{op}(x, dim=…)")
    return dim


def _along(op: str, x: Any, dim: Any, **attrs: Any) -> Any:
    builder = current(op)
    node = builder.node_of(x, op)
    _named(op, x, dim)
    return builder.results(builder.emit(op, (node,), {"dim": builder.dim(dim, op), **attrs}))


def _one_by_one(op: str, x: Any, dims: Any) -> Any:
    """A reduction along one dimension, or along each of a tuple of them, which gives the same in any order."""
    if not isinstance(dims, (tuple, list)):
        return _along(op, x, dims)
    if not dims:
        raise TraceError(f"{op}: no dimensions", here(), hint="name one or more: dim=N, dim=(M, N)")
    for dim in dims:
        x = _along(op, x, dim)
    return x


def sum(x: Any, dim: Any = None) -> Value:
    """Sum along dimension `dim`, which the result lacks, or along each of several, `dim=(M, N)`.

    This and the other functions along a dimension raise TraceError with the dimensions that there are where none is
    named.
    """
    return _one_by_one("sum", x, dim)


def max(x: Any, dim: Any = None) -> Value:
    """Largest element along `dim`, or along all of several, `dim=(M, N)`; a number wins over NaN."""
    return _one_by_one("max", x, dim)


def min(x: Any, dim: Any = None) -> Value:
    """Smallest element along `dim`, or along all of several, `dim=(M, N)`; a number wins over NaN."""
    return _one_by_one("min", x, dim)


def argmax(x: Any, dim: Any = None) -> Value:
    """Index (i32) of the largest element along `dim`, counted over the whole array; the first of equals."""
    return _along("argmax", x, dim)


def argmin(x: Any, dim: Any = None) -> Value:
    """Index (i32) of the smallest element along `dim`, counted over the whole array; the first of equals."""
    return _along("argmin", x, dim)


def any(x: Any, dim: Any = None) -> Value:
    """Whether some element (i1) along `dim`, or along several, `dim=(M, N)`, holds."""
    return _one_by_one("any", x, dim)


def all(x: Any, dim: Any = None) -> Value:
    """Whether all elements (i1) along `dim`, or along several, `dim=(M, N)`, hold."""
    return _one_by_one("all", x, dim)


def cumsum(x: Any, dim: Any = None, reverse: bool = False) -> Value:
    """Running sum along `dim`, each element included in its own. `reverse`: from the end, of what follows."""
    return _along("cumsum", x, dim, **({"reverse": True} if _switch("cumsum", "reverse", reverse) else {}))


def prod(x: Any, dim: Any = None) -> Value:
    """Product along dimension `dim`, or along each of several, `dim=(M, N)`; in any order."""
    if isinstance(dim, (tuple, list)):
        for d in dim:
            x = prod(x, d)
        return x
    return reduce(x, lambda a, b: a * b, 1, _named("prod", x, dim))


def cumprod(x: Any, dim: Any = None, reverse: bool = False) -> Value:
    """Running product along `dim`, each element included in its own. `reverse`: from the end, of what follows."""
    return scan(x, lambda a, b: a * b, 1, _named("cumprod", x, dim), reverse=reverse)


def flip(x: Any, dim: Any = None) -> Value:
    """The elements along `dim` in the opposite order: `shuffle` by the last index less each one's own."""
    dim = current("flip").dim(_named("flip", x, dim), "flip")
    return shuffle(x, dim - 1 - index(dim), dim)


def softmax(x: Any, dim: Any = None) -> Value:
    """exp(x) over its sum along `dim`, less the largest first, so that nothing overflows. A row of nothing but minus
    infinity is NaN."""
    dim = _named("softmax", x, dim)
    if isinstance(x, Value) and is_dim(dim) and normalise(dim) not in x.dims:
        said = f"softmax: the value has no dimension {dim}; it has [{names(x.dims)}]"
        raise TraceError(said, here(), hint=f"name one of {names(x.dims)}: wd.softmax(x, dim=…)")
    e = exp(x - max(x, dim))
    return e / sum(e, dim)


def sort(x: Any, dim: Any = None, descending: bool = False) -> Value:
    """Sorted along `dim`. NaN comes last in ascending order, first in descending."""
    return _along("sort", x, dim, descending=_switch("sort", "descending", descending))


def _switch(op: str, name: str, value: Any) -> bool:
    """An option that is true or false; TraceError for anything else."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TraceError(f"{op}: {name}={value!r}", here(), hint=f"{name}=True or {name}=False")


def topk(x: Any, k: Any, dim: Any = None) -> Value:
    """`(values, indices)`: the `k` largest along `dim`, descending, the earlier of equals first.

    `k` is a symbol that names the new dimension, bound to the count by `subs`. Where the dimension has fewer elements,
    values are the dtype's lowest and indices -1.
    """
    builder = current("topk")
    if not is_dim(k) or isinstance(k, int):
        raise TraceError(
            f"topk: k is {k!r}",
            here(),
            hint="a symbol names the dimension of the results: TOP = wd.sym.TOP, subs={TOP: 4}",
        )
    return _along("topk", x, dim, k=builder.dim(k, "topk"))


def reduce(x: Any, combine: Callable[[Any, Any], Any], identity: Any, dim: Any = None) -> Any:
    """Reduces along `dim` with an associative and commutative function of two elements and its identity.

    Of a tuple of values, tuples of elements are combined together; `identity` and the result are tuples then:

        top, total = wd.reduce(
            (x, wd.Register[M, N, wd.f32](1.0)), join, (-math.inf, 0.0), dim=N
        )  # join((t, s), (u, r)): the larger of t and u, and s and r scaled to it
    """
    return branches.combining(current("reduce"), "reduce", x, combine, identity, dim)


def scan(
    x: Any, combine: Callable[[Any, Any], Any], identity: Any, dim: Any = None, reverse: bool = False
) -> Any:
    """Running reduction along `dim` (each element included) with an associative function and its identity, which stands
    before the first element: f(identity, x) is x, and nothing is asked of f(x, identity).

    Of a tuple of values, tuples of elements are combined together, the earlier one first. A linear recurrence,
    h[t] = a[t] h[t - 1] + b[t], is the second value of

        wd.scan((a, b), lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (1.0, 0.0), dim=T)

    `reverse`: from the end, where the later element comes first. So with it, the same function of (a, b) gives
    h[t] = a[t] h[t + 1] + b[t], which gradients of recurrences are, and discounted sums.
    """
    more = {"reverse": True} if _switch("scan", "reverse", reverse) else {}
    return branches.combining(current("scan"), "scan", x, combine, identity, dim, more)


def broadcast(x: Any, *dims: Any) -> Value:
    """`x` repeated along those of `dims` that it lacks; `dims` lists all dimensions of the result."""
    return _reshaped("broadcast", x, dims)


def permute(x: Any, *dims: Any) -> Value:
    """`x` with its dimensions listed in another order, which matters to `reshape` only."""
    return _reshaped("permute", x, dims)


def reshape(x: Any, *dims: Any) -> Value:
    """The elements of `x`, in row-major order of its dimensions as listed, under other dimensions of equal product.

    What stays is listed first (or last) on both sides; `wd.permute` puts the dimensions of `x` in order, which is
    required where it was computed from operands that list them in different orders.

        heads = wd.reshape(wd.permute(x, M, N), M, H, D)
    """
    return _reshaped("reshape", x, dims)


def _reshaped(op: str, x: Any, dims: Sequence[Any]) -> Value:
    builder = current(op)
    if len(dims) == 1 and isinstance(dims[0], (tuple, list)):
        dims = dims[0]
    node = builder.node_of(x, op)
    wanted = builder.dims(dims, op)
    result = builder.emit(op, (node,), {"dims": wanted})
    if op == "reshape":
        _check_order(node, result)
    return builder.results(result)


def _check_order(node: Node, result: Node) -> None:
    """Raise TraceError where a reshape goes by an order of dimensions that nobody has said."""
    from wavedsl.ir.dataflow.listed_order import disagreement  # what most kernels never need

    mixed = disagreement(node, joined_dims(node.dims, result.dims))
    if mixed is None:
        return
    made, first, second = mixed
    where = f" ({made.loc.file.rsplit('/', 1)[-1]}:{made.loc.line})" if made.loc is not None else ""
    order = names([{first: second, second: first}.get(d, d) for d in node.dims])
    raise TraceError(
        f"reshape of [{names(node.dims)}] to [{names(result.dims)}]: which of {first} and {second} comes first is an "
        f"accident: an operand of {made.op}{where} lists them the other way round",
        result.loc,
        hint=f"say which order is meant: wd.permute(x, {order}) or wd.permute(x, {names(node.dims)})",
    )


def extract(x: Any, where: Mapping[Any, Any]) -> Value:
    """Elements of `x` by their place: `where` maps a dimension to what is taken along it.

    A whole number, or a single i32 value, takes the one element there and removes the dimension. A pair
    `(P, start)` or a triple `(P, start, step)` takes the elements start, start + step, ... under the dimension `P`, as
    many as that has. A start may be an extent, such as `N // 2`. The dimension must lie in one workgroup as a whole;
    where waves share it, all of them wait for each other. Places outside it give 0.

        last = wd.extract(x, {N: 63})
        even = wd.extract(x, {N: (H, 0, 2)})
    """
    builder = current("extract")
    if not isinstance(where, Mapping) or not where:
        raise TraceError("extract needs a place per dimension", here(), hint="wd.extract(x, {N: 3})")
    node = builder.node_of(x, "extract")
    for dim, place in where.items():
        new, start, step = None, place, 1
        if isinstance(place, tuple):
            step = place[2] if len(place) == 3 else 1
            if len(place) not in (2, 3) or not isinstance(step, int) or step < 1:
                raise TraceError(
                    f"extract: {place!r} along {dim}", here(), hint="(new dimension, start) or (…, start, step ≥ 1)"
                )
            new, start = builder.dim(place[0], "extract"), place[1]
        known = start if isinstance(start, int) and not isinstance(start, bool) else None
        inputs: tuple[Node, ...] = (node,)
        if known is None:
            extent = isinstance(start, sympy.Expr)
            at = builder.number(start, dt.i32, "extract", here()) if extent else builder.node_of(start, "extract")
            inputs = (node, at)
        attrs = {"dim": builder.dim(dim, "extract"), "new": new, "start": known, "step": step}
        node = builder.emit("extract", inputs, attrs)
    return builder.results(node)


def shuffle(x: Any, index: Any, dim: Any) -> Value:
    """The elements of `x` that `index` names along `dim`, as numpy.take_along_axis gives them.

    `index` is an i32 value, counted from the dimension's first element; what lies outside gives 0. Other dimensions
    that both have are taken together; one that the index lacks is taken whole for every index. Where the index has
    dimensions that `x` lacks, the result has them in the place of `dim`, so that it may be longer or shorter: an `x` of
    [M, N] by an index of [M, J] or [J] is [M, J]. `dim` must lie in one workgroup as a whole; where waves share it, all
    of them wait for each other, but not where `index(dim) ^ mask` names an element of the same wave.
    Raises TraceError for an index that is not i32 and for a `dim` that `x` lacks.

        neighbour = wd.shuffle(x, wd.index(N) ^ 1, N)
        picked = wd.shuffle(x, wd.read(columns), N)
    """
    builder = current("shuffle")
    nodes = (builder.node_of(x, "shuffle"), builder.node_of(index, "shuffle"))
    return builder.results(builder.emit("shuffle", nodes, {"dim": builder.dim(dim, "shuffle")}))


def repeat_interleave(x: Any, dim: Any) -> Value:
    """`x`, which has a part of `dim` such as `dim / 32`, with each element repeated for all that it stands for:

        w = wd.cast(wd.read(codes), wd.bf16) * wd.repeat_interleave(wd.cast(wd.read(scales), wd.bf16), K)
    """
    builder = current("repeat_interleave")
    node = builder.node_of(x, "repeat_interleave")
    return builder.results(
        builder.emit("repeat_interleave", (node,), {"dim": builder.dim(dim, "repeat_interleave")})
    )


def _indexed(builder: Builder, dim: Any, op: str) -> Any:
    """A dimension of which there is an index: a number is one only where an array has an extent of that number."""
    found = builder.dim(dim, op)
    if found.is_number and found not in {d for a in builder.graph.arguments for d in a.dims}:
        raise TraceError(
            f"{op}: the dimension is the number {dim}", here(), hint=f"a dimension is a symbol: wd.{op}(N), of no axis"
        )
    return found


def index(dim: Any) -> Value:
    """Each element's own index along `dim`, counted over the whole array, as i32."""
    builder = current("index")
    return builder.results(builder.emit("index", (), {"dim": _indexed(builder, dim, "index")}))


def tile_start(dim: Any) -> Value:
    """The first index along `dim` of the tile at hand, as a single i32: the workgroup's tile, or the loop trip's."""
    builder = current("tile_start")
    return builder.results(builder.emit("tile_start", (), {"dim": _indexed(builder, dim, "tile_start")}))


def tile_stop(dim: Any) -> Value:
    """The index after the last one along `dim` of the tile at hand (at most the extent), as a single i32."""
    builder = current("tile_stop")
    return builder.results(builder.emit("tile_stop", (), {"dim": _indexed(builder, dim, "tile_stop")}))


def atomic_add(value: Any, mem: Any, *, mapping: Any = None) -> Value:
    """Adds `value` to array `mem` indivisibly and gives what was there before.

    A sum or product along a dimension that workgroups share is added in parts, one per workgroup, where nothing reads
    what was there before and nothing but factors stands between:

        wd.atomic_add(wd.mma(ds, wd.read(k)) * scale, dq)  # N, which both have, is spread over workgroups
    """
    return access.atomic(current("atomic_add"), "atomic_add", (value,), mem, mapping)


def atomic_min(value: Any, mem: Any, *, mapping: Any = None) -> Value:
    """Keeps the smaller of `value` and what array `mem` holds, indivisibly, and gives what was there before."""
    return access.atomic(current("atomic_min"), "atomic_min", (value,), mem, mapping)


def atomic_max(value: Any, mem: Any, *, mapping: Any = None) -> Value:
    """Keeps the larger of `value` and what array `mem` holds, indivisibly, and gives what was there before."""
    return access.atomic(current("atomic_max"), "atomic_max", (value,), mem, mapping)


def atomic_and(value: Any, mem: Any, *, mapping: Any = None) -> Value:
    """Keeps of the integers in memory the bits that `value` has too, indivisibly; gives what was there."""
    return access.atomic(current("atomic_and"), "atomic_and", (value,), mem, mapping)


def atomic_or(value: Any, mem: Any, *, mapping: Any = None) -> Value:
    """Sets the bits of `value` in the integers in memory, indivisibly; gives what was there."""
    return access.atomic(current("atomic_or"), "atomic_or", (value,), mem, mapping)


def atomic_xor(value: Any, mem: Any, *, mapping: Any = None) -> Value:
    """Turns over the bits of `value` in the integers in memory, indivisibly; gives what was there."""
    return access.atomic(current("atomic_xor"), "atomic_xor", (value,), mem, mapping)


def atomic_xchg(value: Any, mem: Any, *, mapping: Any = None) -> Value:
    """Stores `value` into array `mem` and gives what was there before, indivisibly."""
    return access.atomic(current("atomic_xchg"), "atomic_xchg", (value,), mem, mapping)


def atomic_cas(expected: Any, value: Any, mem: Any, *, mapping: Any = None) -> Value:
    """Stores `value` where array `mem` holds `expected`, indivisibly, and gives what was there before."""
    return access.atomic(current("atomic_cas"), "atomic_cas", (expected, value), mem, mapping)


def random(seed: Any, *dims: Any, offset: Any = 0, dtype: DType = dt.f32) -> Value:
    """Random numbers over `dims`: f32 uniform in [0, 1) with 24 bits, or u32.

    Philox 4x32-10, word 0. The key is `seed` (64 bits), the counter's words are the element's row-major index over
    `dims` (64 bits), then `offset` (64 bits): equal for equal arguments, whatever the tiles or the chip. `dims` may
    include index dimensions, so that each gets numbers of its own.
    """
    builder = current("random")
    _require_dtype(dtype, "random")
    loc = here()
    nodes = []
    for x, what in ((seed, "seed"), (offset, "offset")):
        if isinstance(x, NUMBERS):
            nodes.append(builder.number(x, dt.i64, f"random: the {what}", loc))
        else:
            nodes.append(builder.node_of(x, f"random: the {what}", loc))
    return builder.results(builder.emit("random", nodes, {"dims": builder.dims(dims, "random"), "dtype": dtype}, loc))


def randn(seed: Any, *dims: Any, offset: Any = 0) -> Value:
    """Normally distributed f32 numbers over `dims`, of mean 0 and variance 1.

    Box and Muller's transform of the `random` numbers at offsets 2 `offset` and 2 `offset` + 1, so up to about 5.8.
    Equal for equal arguments, as those are.
    """
    twice = offset + offset
    size: Any = random(seed, *dims, offset=twice)
    angle: Any = random(seed, *dims, offset=twice + 1)
    radius: Any = sqrt(-2.0 * log(1.0 - size))
    return radius * cos(2 * math.pi * angle)


def fence() -> None:
    """What the workgroup has written to arrays before is seen by every workgroup that learns of it later: by an
    atomic operation, of one behind the fence.

    With an atomic ticket, the last workgroup to arrive can finish what all have begun: write a partial result, fence,
    take a ticket with `atomic_add`, and where it is the last (`wd.cond`), fence again and read them all, in one order.
    """
    current("fence").fence()


def device_print(text: Any, *values: Any) -> None:
    """Prints `text` and each element of `values` with its indices, when the kernel has ended and in their order."""
    builder = current("device_print")
    if not isinstance(text, str):
        text, values = "", (text, *values)
    if "<traced value" in text:
        raise TraceError(
            "device_print: the text has a traced value in it, which has no elements while tracing",
            here(),
            hint='pass it behind the text: wd.device_print("x", x)',
        )
    nodes = [builder.node_of(v, "device_print") for v in values]
    builder.emit("device_print", nodes, {"text": text})


def device_assert(condition: Any, message: str = "") -> None:
    """Raises an error with `message` and the first indices where an element of the i1 value `condition` did not hold.

    The kernel itself runs on; the error comes when it has ended (EmulationError, on a GPU LaunchError).
    """
    builder = current("device_assert")
    if not isinstance(condition, Value):
        what, _ = describe(condition)
        raise TraceError(
            f"device_assert: the condition is {what}",
            here(),
            hint="compare traced values; use assert for what is known now",
        )
    builder.emit("device_assert", (builder.node_of(condition, "device_assert"),), {"message": str(message)})


OPERATIONS = tuple(name for name, r in ROWS.items() if r.public)
"""Every public operation: a row that is public has a function of its name here, checked on import."""

for _name in OPERATIONS:
    assert callable(globals().get(_name)), f"operation {_name} has a row but no function"
