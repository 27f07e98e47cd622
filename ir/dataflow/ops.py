"""One row per operation of the language: how it is written, its type rule, index rule and meaning.

In: the types of operands and the attributes of a node. Out: the type of its result, or a TraceError.
The proxy's methods, the public functions, the evaluator, the verifier and the docs read these rows; lowerings are
registered elsewhere under the row's name. Adding an operation is adding a row (and, if it is not elementwise, its NumPy
meaning in the `evaluate_*.py` of its kind; `evaluate.py` refuses to import when a row has none).

Index rules (how the layout of the result relates to the operands'):
same: one class · project: drops a dimension · lift: adds dimensions · relabel: reorders names · regroup: splits or
joins dimensions · family: the operation accepts a set of layouts · any: takes what others want.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Argument, Mapping, Region, ValueType
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError, TraceError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import names, scale_of

INDEX_RULES = ("same", "project", "lift", "relabel", "regroup", "family", "any")
MADE_ANYWHERE = ("index", "fill", "constant")
"""What every lane makes itself where it is used: in no register before, never exchanged."""

ARITHMETIC = (
    dt.f64, dt.f32, dt.f16, dt.bf16, dt.i64, dt.i32, dt.i16, dt.i8, dt.u64, dt.u32, dt.u16, dt.u8,
)  # fmt: skip
"""Types one can compute with. All others are for storage and matrix instructions: cast first."""


class Scope(Protocol):
    """What a type rule may ask of the kernel around a node; `Graph` and the tracer's builder both are one."""

    index_dims: tuple[Any, ...]

    def argument(self, name: str) -> Argument: ...


Types = Sequence[ValueType]
Result = ValueType | tuple[ValueType, ...] | None
Rule = Callable[[Types, dict[str, Any], Scope], Result]


@dataclass(frozen=True)
class OpRow:
    """One operation. `signature` is how a user writes it; `compute` the NumPy meaning of an elementwise one.

    `precise` rows are evaluated in f64 and rounded once, because chips only approximate them. `effect` rows change
    memory or print and keep their order. `operators` are the Python methods that mean this row.
    """

    name: str
    signature: str
    index_rule: str
    rule: Rule
    doc: str
    compute: Callable[..., Any] | None = None
    precise: bool = False
    effect: bool = False
    public: bool = True
    operators: tuple[str, ...] = ()


ROWS: dict[str, OpRow] = {}


def _add(name: str, signature: str, index_rule: str, rule: Rule, doc: str, compute: Any = None, **flags: Any) -> None:
    assert name not in ROWS, f"operation {name} has two rows"
    assert index_rule in INDEX_RULES, f"{name}: unknown index rule {index_rule}"
    ROWS[name] = OpRow(name, signature, index_rule, rule, doc, compute, **flags)


# ---------------------------------------------------------------------------------------------------------------------
# Helpers of type rules


def union(types: Types) -> tuple[Any, ...]:
    """Dimensions of an elementwise result: those of the operand with most, then what the others add."""
    widest = max(types, key=lambda t: len(t.dims))
    dims = list(widest.dims)
    for t in types:
        dims += [d for d in t.dims if d not in dims]
    return tuple(dims)


def require_dim(t: ValueType, dim: Any, op: str, scope: Scope) -> None:
    """The dimension a reduction names must be there."""
    if dim not in t.dims:
        have = f"it has [{names(t.dims)}]" if t.dims else "it is a scalar"
        hint = f"name one of its dimensions: {names(t.dims)}" if t.dims else "there is nothing to reduce"
        if dim in scope.index_dims:
            hint = (
                f"a tile of 1 makes {dim} a batch, of which a workgroup has one, in no value's shape: leave the "
                f"operation out, or name the tile: wd.WorkgroupConstraint({dim}, B{dim}, <axis>), subs={{B{dim}: 1}}"
            )
        raise TraceError(f"{op}: the value has no dimension {dim}; {have}", hint=hint)


def one_dtype(types: Types, op: str) -> DType:
    """The common dtype of operands; a mix is the user's to resolve by a cast."""
    first = types[0].dtype
    for t in types[1:]:
        if t.dtype is not first:
            wide = max((first, t.dtype), key=lambda d: (d.is_float, d.bits))
            raise TraceError(
                f"{op}: operands have dtypes {first} and {t.dtype}",
                hint=f"cast one of them, for example wd.cast(x, wd.{wide})",
            )
    return first


def require_kind(dtype: DType, allowed: str, op: str) -> None:
    """`allowed`: words among float, int, bool."""
    kinds = allowed.split()
    if dtype.kind == "bool":
        if "bool" in kinds:
            return
        raise TraceError(
            f"{op}: does not compute on i1", hint="cast it first, wd.cast(x, wd.f32), or choose: wd.where(x, 1.0, 0.0)"
        )
    if dtype not in ARITHMETIC:
        to = dt.f32 if dtype.is_float else dt.i32
        raise TraceError(
            f"{op}: {dtype} is for storage and matrix instructions only", hint=f"cast it first: wd.cast(x, wd.{to})"
        )
    if dtype.is_float and "float" not in kinds:
        bits = op in ("bitand", "bitor", "bitxor")
        raise TraceError(
            f"{op}: needs integers, not {dtype}",
            hint="cast it first, for example wd.cast(x, wd.i32)"
            + "; of comparisons, put each into brackets: (x > 0) & (x < 1)" * bits,
        )
    if dtype.is_int and "int" not in kinds:
        raise TraceError(
            f"{op}: needs floating point, not {dtype}",
            hint="cast it first, for example wd.cast(x, wd.f32)" + "; x // y rounds down" * (op == "div"),
        )


FAST = ("div", "reciprocal", "sqrt", "tanh")
"""Operations that `fast` changes: a reciprocal or root in them is the chip's approximation."""


def _elementwise(op: str, allowed: str, result: DType | None = None) -> Rule:
    def rule(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
        dtype = one_dtype(types, op)
        require_kind(dtype, allowed, op)
        if attrs.get("fast") and dtype is dt.f64:
            raise ConstraintError(f"{op}: fast is for f32, f16 and bf16, not f64", hint="leave fast out")
        return ValueType(union(types), result or dtype)

    return rule


def _permute_bytes(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    dtype = one_dtype(types, "permute_bytes")
    if not dtype.is_int or dtype.bits != 32:
        raise TraceError(f"permute_bytes: takes words of 32 bits, not {dtype}", hint="cast to wd.u32")
    return ValueType(union(types), dtype)


def _without(t: ValueType, dim: Any) -> tuple[Any, ...]:
    return tuple(d for d in t.dims if d != dim)


def _reduction(op: str, allowed: str, result: DType | None = None) -> Rule:
    def rule(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
        require_dim(types[0], attrs["dim"], op, scope)
        require_kind(types[0].dtype, allowed, op)
        return ValueType(_without(types[0], attrs["dim"]), result or types[0].dtype)

    return rule


def _along(op: str, allowed: str) -> Rule:
    def rule(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
        require_dim(types[0], attrs["dim"], op, scope)
        require_kind(types[0].dtype, allowed, op)
        return types[0]

    return rule


def memory_dims(argument: Argument, scope: Scope) -> tuple[Any, ...]:
    """Dimensions that a register value of this memory has: all but the index dimensions."""
    return tuple(d for d in argument.dims if d not in scope.index_dims)


# ---------------------------------------------------------------------------------------------------------------------
# Type rules of what is not elementwise


def _read(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    argument = scope.argument(attrs["memory"])
    mapping: Mapping | None = attrs.get("mapping")
    if mapping is None:
        return ValueType(memory_dims(argument, scope), argument.dtype)
    _check_indices(types, mapping, "read")
    return ValueType(tuple(d for d in mapping.dims if d not in scope.index_dims), argument.dtype)


def _check_indices(indices: Types, mapping: Mapping, op: str) -> None:
    for t in indices:
        if not t.dtype.is_int or t.dtype.bits < 8:
            hint = "wd.cast(index, wd.i32)"
            if t.dtype is dt.i1:
                hint = "a mask chooses among what is read, wd.where(mask, x, 0); at index -1 nothing is read or written"
            raise TraceError(f"{op}: an index has dtype {t.dtype}", hint=hint)
        extra = [d for d in t.dims if d not in mapping.dims]
        if extra:
            raise TraceError(
                f"{op}: an index of the IndexMapping has dimension {names(extra)}, which the mapping does not list",
                hint=f"add it to the mapping's dims, which are ({names(mapping.dims)})",
            )


def _target(types: Types, attrs: dict[str, Any], scope: Scope, op: str, values: int) -> Argument:
    """Checks `values` stored values, then index inputs, against the memory they go to."""
    argument = scope.argument(attrs["memory"])
    mapping: Mapping | None = attrs.get("mapping")
    if mapping is None:
        want = memory_dims(argument, scope)
    else:
        _check_indices(types[values:], mapping, op)
        want = tuple(d for d in mapping.dims if d not in scope.index_dims)
    for t in types[:values]:
        if frozenset(t.dims) != frozenset(want):
            missing = [d for d in want if d not in t.dims]
            extra = [d for d in t.dims if d not in want]
            what = []
            if missing:
                what.append(f"lacks {names(missing)}")
            if extra:
                what.append(f"has {names(extra)} besides")
            hint = f"reduce over {names(extra)} first" if extra else f"wd.broadcast(x, {names(want)}) repeats it"
            if not t.dims and want == argument.dims:  # a single number
                literal = any(d.is_number for d in want)
                zeros = ", ".join("0" for _ in want)
                hint = f"into one element: wd.{op}(x, {argument.name}[{zeros}])" + f"; {hint}" * (not literal)
            if extra and all(d.is_number for d in extra):
                hint = "one element of an array, without its dimension: wd.read(a[0])"
            if extra and not missing and values and op.startswith("atomic"):
                where = f"wd.IndexMapping(({names(t.dims)}), {{{want[0]}: {want[0]}}})" if want else ""
                hint += f", or say where each element goes: mapping={where}" if where else ""
            if missing and not extra and t.dims:
                hint += f"; of a batch, one at a time: wd.WorkgroupConstraint({missing[0]}, 1, <axis>)"
            if extra and len(extra) == len(missing):
                hint = f"if {names(extra)} and {names(missing)} are the same, give them one name; else {hint}"
                hint += _part(argument, mapping, missing[0], extra[0])
            raise TraceError(
                f"{op}: the value has dimensions [{names(t.dims)}], but {argument.name} takes [{names(want)}]: "
                f"the value {' and '.join(what)}",
                hint=hint,
            )
        if t.dtype is not argument.dtype:
            raise TraceError(
                f"{op}: the value is {t.dtype}, but {argument.name} holds {argument.dtype}",
                hint=f"wd.cast(x, wd.{argument.dtype})",
            )
    return argument


def _part(argument: Argument, mapping: Mapping | None, whole: Any, part: Any) -> str:
    """How a part of a dimension is written that has a dimension of its own, where `a[C:]`, which has the name of the
    whole, may have been meant as one."""
    if mapping is None or whole not in argument.dims or not part.is_Symbol:
        return ""
    if mapping.coords[argument.dims.index(whole)] == whole:
        return ""
    keys = ", ".join(f"s : s + {part}" if d == whole else ":" for d in argument.dims)
    return f"; a part of {whole} that is {part} long says where it ends: {argument.name}[{keys}]"


def _write(types: Types, attrs: dict[str, Any], scope: Scope) -> None:
    _target(types, attrs, scope, "write", 1)
    return None


def _atomic(op: str, values: int, allowed: str) -> Rule:
    def rule(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
        argument = _target(types, attrs, scope, op, values)
        require_kind(argument.dtype, allowed, op)
        return types[0]

    return rule


ACCUMULATORS: dict[DType, tuple[DType, ...]] = {
    dt.f64: (dt.f64,),
    dt.f32: (dt.f32,),
    dt.tf32: (dt.f32,),
    dt.f16: (dt.f32, dt.f16),
    dt.bf16: (dt.f32,),
    dt.f8e4m3: (dt.f32, dt.f16),
    dt.f8e5m2: (dt.f32, dt.f16),
    dt.f8e4m3fnuz: (dt.f32,),
    dt.f8e5m2fnuz: (dt.f32,),
    dt.f6e2m3: (dt.f32,),
    dt.f6e3m2: (dt.f32,),
    dt.f4e2m1: (dt.f32,),
    dt.i8: (dt.i32,),
    dt.u8: (dt.i32,),
    dt.i4: (dt.i32,),
    dt.u4: (dt.i32,),
}
"""Accumulator types of a matrix product by operand type; the first is the default."""

_MIXES = (
    {dt.f8e4m3, dt.f8e5m2},
    {dt.f8e4m3fnuz, dt.f8e5m2fnuz},
    {dt.i8, dt.u8},
    {dt.i4, dt.u4},
)


def contracted(a: ValueType, b: ValueType, acc: ValueType | None) -> tuple[Any, ...]:
    """The dimensions that a product sums over: those both have and the accumulator, if there is one, lacks."""
    return tuple(d for d in a.dims if d in b.dims and (acc is None or d not in acc.dims))


def _product(a: ValueType, b: ValueType, acc: ValueType | None, op: str, mixed: Sequence[set[DType]]) -> ValueType:
    """The type of a product: what both operands keep, in a dtype that sums of theirs may have. Raises TraceError."""
    for side, t in (("first", a), ("second", b)):
        if t.dtype not in ACCUMULATORS:
            raise TraceError(
                f"{op}: the {side} operand has dtype {t.dtype}, which no matrix instruction takes",
                hint=f"cast it to one of {names(ACCUMULATORS)}",
            )
    if a.dtype is not b.dtype and not any({a.dtype, b.dtype} <= mix for mix in mixed):
        raise TraceError(f"{op}: operands have dtypes {a.dtype} and {b.dtype}", hint="cast one of them to the other's")
    legal = ACCUMULATORS[a.dtype]
    dims = contracted(a, b, acc)
    if not dims:
        both = [d for d in a.dims if d in b.dims]
        if acc is None or not both:
            why = f"[{names(a.dims)}] and [{names(b.dims)}] share no dimension"
        else:
            why = f"[{names(a.dims)}] and [{names(b.dims)}] share {names(both)}, which the accumulator keeps"
        raise TraceError(
            f"{op}: contracts nothing: {why}",
            hint="give both operands the dimension to sum over, and the accumulator the others",
        )
    free = tuple(d for d in (*a.dims, *b.dims) if d not in dims)
    result = tuple(dict.fromkeys(free))
    if acc is None:
        return ValueType(result, legal[0])
    if acc.dtype not in legal:
        raise TraceError(
            f"{op}: the accumulator is {acc.dtype}, but {a.dtype} operands accumulate in {names(legal)}",
            hint=f"use wd.Register[{names(acc.dims)}, wd.{legal[0]}](0)",
        )
    missing = [d for d in result if d not in acc.dims]
    extra = [d for d in acc.dims if d not in result]
    if missing or extra:
        twice = [d for d in result if free.count(d) > 1]
        wrong = f"lacks {names(missing)}" if missing else f"has {names(extra)}, which neither operand has"
        raise TraceError(
            f"{op}: the accumulator [{names(acc.dims)}] {wrong}; the product of [{names(a.dims)}] and "
            f"[{names(b.dims)}] over {names(dims)} is [{names(result)}]",
            hint=_other_name(b.dims, twice[0], extra[0]) if extra and twice and not missing
            else f"use wd.Register[{names(result)}, wd.{acc.dtype}](0)",
        )  # fmt: skip
    return acc


def _other_name(dims: tuple[Any, ...], old: Any, new: Any) -> str:
    """Help where a product of an array with itself needs one of its dimensions twice."""
    renamed = [new if d == old else d for d in dims]
    return (
        f"{old} is one dimension of both: read one of them under the name {new}, "
        f"mapping=wd.IndexMapping(({names(renamed)}), {{{old}: {new}}})"
    )


PRECISIONS = ("ieee", "tf32", "3xtf32")
"""What a product of f32 may be asked for: operands as they are, cut to tf32, as the sum of two tf32 numbers each."""


def _mma(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    precision = attrs.get("precision")
    if precision is not None and precision not in PRECISIONS:
        raise ConstraintError(f"mma: precision={precision!r} is none", hint=f"one of {', '.join(PRECISIONS)}")
    if precision is not None and any(t.dtype is not dt.f32 for t in types[:2]):
        have = " and ".join(dict.fromkeys(str(t.dtype) for t in types[:2]))
        raise ConstraintError(
            f"mma: precision={precision!r} is for operands of f32, these are {have}",
            hint="leave precision out: products of other dtypes are exact",
        )
    return _product(types[0], types[1], types[2] if len(types) > 2 else None, "mma", (*_MIXES, set(SCALED)))


SCALED = (dt.f8e4m3, dt.f8e5m2, dt.f6e2m3, dt.f6e3m2, dt.f4e2m1)
"""Operand types of a block-scaled product; the two sides may differ."""


MX_BLOCK = 32
"""Elements that share a scale in the MX formats (OCP Microscaling Formats 1.0, section 5.2), and in instructions."""


def scale_block(x: ValueType, scale: ValueType, dim: Any) -> int | None:
    """Elements of `dim` that share one scale, from the scale's extent (`K / 32`); None where there is none."""
    for d in scale.dims:
        factor = scale_of(d, dim) if d not in x.dims else None
        if factor is not None and factor.is_Rational and factor.p == 1 and factor.q > 1:
            return int(factor.q)
    return None


def _scaled_mma(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    """The type rule of `scaled_mma`: a product's, with scales that have the operand's dimensions, the contracted
    one by blocks."""
    x, x_scale, y, y_scale = types[:4]
    acc = types[4] if len(types) > 4 else None
    for t in (x, y):
        if t.dtype not in SCALED:
            raise TraceError(f"scaled_mma: operand of dtype {t.dtype}", hint=f"operands are one of {names(SCALED)}")
    result = _product(x, y, acc, "scaled_mma", (set(SCALED),))
    dims = contracted(x, y, acc)
    if len(dims) != 1:
        raise TraceError(f"scaled_mma: contracts {names(dims)}", hint="contract one dimension")
    for t, s, which in ((x, x_scale, "first"), (y, y_scale, "second")):
        if s.dtype is not dt.f8e8m0:
            raise TraceError(f"scaled_mma: the {which} scale is {s.dtype}", hint="scales are wd.f8e8m0")
        block = scale_block(t, s, dims[0])
        rest = {d for d in t.dims if d != dims[0]}
        if block is None or len(s.dims) != len(t.dims) or not rest <= set(s.dims):
            raise TraceError(
                f"scaled_mma: the {which} scale has dimensions [{names(s.dims)}] for an operand [{names(t.dims)}]",
                hint=f"declare it as the operand with {dims[0]} / 32 in the place of {dims[0]}",
            )
    return result


def _typed(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    """The type is an attribute: constants, fills, scalars, carries."""
    return ValueType(tuple(attrs.get("dims", ())), attrs["dtype"])


def _scalar(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    return ValueType((), scope.argument(attrs["name"]).dtype)


def _index(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    dim = attrs["dim"]
    return ValueType(() if dim in scope.index_dims else (dim,), dt.i32)


def _size(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    return ValueType((), dt.i32)


def _iterate(types: Types, attrs: dict[str, Any], scope: Scope) -> tuple[ValueType, ...]:
    body: Region = attrs["body"]
    return tuple(c.type for c in body.carries)  # type: ignore[misc]


def require_single(t: ValueType, op: str, loc: Loc | None = None) -> None:
    """A condition of the whole workgroup is one i1."""
    if t.dtype is not dt.i1 or t.dims:
        what = f"is {t.dtype}" if t.dtype is not dt.i1 else f"has dimensions [{names(t.dims)}]"
        raise TraceError(
            f"{op}: the condition {what}, but a workgroup takes one branch",
            loc,
            hint="compare single values, reduce it with wd.any(x, dim), or choose element by element with wd.where",
        )


def _when(types: Types, attrs: dict[str, Any], scope: Scope) -> tuple[ValueType, ...]:
    require_single(types[0], "cond")
    return tuple(c.type for c in attrs["body"].carries)


def _repeat(types: Types, attrs: dict[str, Any], scope: Scope) -> tuple[ValueType, ...]:
    require_single(attrs["body"].yields[-1].type, "while_loop")
    return tuple(c.type for c in attrs["body"].carries)


def _result(types: Any, attrs: dict[str, Any], scope: Scope) -> ValueType:
    return types[0][attrs["position"]]


def _cast(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    rounding = attrs.get("rounding")
    if rounding not in (None, *ROUNDINGS):
        raise TraceError(f"cast: unknown rounding {rounding!r}", hint=f"one of {', '.join(ROUNDINGS)}")
    if rounding is not None and not (types[0].dtype.is_float and attrs["dtype"].is_float):
        raise TraceError("cast: rounding is for casts between floats", hint="float to int always truncates")
    if (rounding == "stochastic") != (len(types) > 1):
        raise TraceError(
            "cast: random bits and rounding='stochastic' belong together",
            hint="wd.cast(x, wd.bf16, rounding='stochastic', bits=wd.random(seed, M, N, dtype=wd.u32))",
        )
    if len(types) > 1:
        _check_noise(types, attrs["dtype"])
    return ValueType(types[0].dims, attrs["dtype"])


def _check_noise(types: Types, to: DType) -> None:
    """What stochastic rounding takes: f32 to something narrower, a u32 per element."""
    if types[0].dtype is not dt.f32 or to.bits >= 32:
        raise TraceError(
            f"cast: stochastic rounding from {types[0].dtype} to {to}",
            hint="it rounds f32 to a float of 16 or 8 bits",
        )
    if types[1].dtype is not dt.u32:
        raise TraceError(f"cast: the random bits are {types[1].dtype}", hint="wd.random(seed, M, N, dtype=wd.u32)")
    extra = [d for d in types[1].dims if d not in types[0].dims]
    if extra:
        raise TraceError(f"cast: the random bits have {names(extra)}, which the value lacks", hint="use its dimensions")


ROUNDINGS = ("nearest_even", "toward_zero", "stochastic")
"""Roundings of a cast between floats; the first is the default."""


def _bitcast(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    to: DType = attrs["dtype"]
    if to.bits != types[0].dtype.bits:
        legal = [d for d in dt.ALL.values() if d.bits == types[0].dtype.bits]
        raise TraceError(
            f"bitcast: {types[0].dtype} has {types[0].dtype.bits} bits, {to} has {to.bits}",
            hint=f"types of the same width are {names(legal)}",
        )
    return ValueType(types[0].dims, to)


def _where(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    if types[0].dtype is not dt.i1:
        raise TraceError(
            f"where: the condition is {types[0].dtype}, not i1", hint="compare something, for example x > 0"
        )
    return ValueType(union(types), one_dtype(types[1:], "where"))


def _broadcast(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    lost = [d for d in types[0].dims if d not in attrs["dims"]]
    if lost:
        raise TraceError(
            f"broadcast: [{names(types[0].dims)}] to [{names(attrs['dims'])}] would drop {names(lost)}",
            hint="list every dimension that the value has; a reduction removes one",
        )
    return ValueType(tuple(attrs["dims"]), types[0].dtype)


def _permute(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    if frozenset(types[0].dims) != frozenset(attrs["dims"]) or len(types[0].dims) != len(attrs["dims"]):
        raise TraceError(
            f"permute: [{names(attrs['dims'])}] is no reordering of [{names(types[0].dims)}]",
            hint=f"list {names(types[0].dims)} in the order you want",
        )
    return ValueType(tuple(attrs["dims"]), types[0].dtype)


def _join_parts(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    return ValueType(tuple(attrs["share"] if d == attrs["dim"] else d for d in types[0].dims), types[0].dtype)


def _reshape(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    """Extents are compared where they are known: by the evaluator and by the compiler. Between the dimensions that lead
    and those that trail on both sides, a name that both have would stand for other elements than before: an operand
    lists its dimensions in the order of whatever it was computed from."""
    before, after = types[0].dims, tuple(attrs["dims"])
    lead, trail = _ends_that_stay(before, after)
    moved = [d for d in after[lead : len(after) - trail] if d in before]
    if moved:
        kept = [d for d in after if d in before]
        order = names([*kept, *(d for d in before if d not in kept)])
        raise TraceError(
            f"reshape of [{names(before)}] to [{names(after)}]: {moved[0]} would not be the same elements",
            hint=f"list first what stays, in the value and in the result: wd.permute(x, {order})",
        )
    return ValueType(after, types[0].dtype)


def _ends_that_stay(before: Sequence[Any], after: Sequence[Any]) -> tuple[int, int]:
    """How many dimensions lead on both sides of a reshape, and how many trail."""
    most = min(len(before), len(after))
    lead = next((i for i in range(most) if before[i] != after[i]), most)
    return lead, next((i for i in range(most - lead) if before[-1 - i] != after[-1 - i]), most - lead)


def joined_dims(before: Sequence[Any], after: Sequence[Any]) -> Sequence[Any]:
    """The dimensions whose elements a reshape puts into one order."""
    lead, trail = _ends_that_stay(before, after)
    return before[lead : len(before) - trail]


def _extract(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    dim, new = attrs["dim"], attrs["new"]
    require_dim(types[0], dim, "extract", scope)
    if len(types) > 1 and (types[1].dtype is not dt.i32 or types[1].dims):
        each = f"; for each element its own, wd.shuffle(x, index, dim={dim})" if types[1].dims else ""
        raise TraceError(f"extract: the start is {types[1]}", hint=f"a whole number or a single i32 value{each}")
    if new is not None and new in types[0].dims and new != dim:
        raise TraceError(f"extract: the value already has {new}", hint="name the elements by a dimension of their own")
    dims = tuple(new if d == dim else d for d in types[0].dims if d != dim or new is not None)
    return ValueType(dims, types[0].dtype)


def _shuffle(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    value, index, dim = types[0], types[1], attrs["dim"]
    require_dim(value, dim, "shuffle", scope)
    if index.dtype is not dt.i32:
        raise TraceError(f"shuffle: the index is {index.dtype}", hint="wd.cast(index, wd.i32)")
    if set(index.dims) <= set(value.dims):
        return value
    places = tuple(d for d in index.dims if d == dim or d not in value.dims)
    dims = tuple(e for d in value.dims for e in (places if d == dim else (d,)))
    return ValueType(dims, value.dtype)


def repeated_dim(x: ValueType, dim: Any) -> tuple[Any, int]:
    """(the dimension of `x` whose elements stand for several of `dim`, for how many). Raises TraceError."""
    for d in x.dims:
        factor = scale_of(d, dim) if d != dim else None
        if factor is not None and factor.is_Rational and factor.p == 1 and factor.q > 1:
            return d, int(factor.q)
    raise TraceError(
        f"repeat_interleave: no dimension of [{names(x.dims)}] is a part of {dim}",
        hint=f"annotate the array with an expression of {dim}, such as Memory[…, {dim} / 32, …], no other symbol",
    )


def _repeat_interleave(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    found, attrs["count"] = repeated_dim(types[0], attrs["dim"])
    if attrs["dim"] in types[0].dims:
        raise TraceError(f"repeat_interleave: the value already has {attrs['dim']}", hint="reduce or rename it first")
    return ValueType(tuple(attrs["dim"] if d == found else d for d in types[0].dims), types[0].dtype)


def _combine(op: str, keeps: bool) -> Rule:
    def rule(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType | tuple[ValueType, ...]:
        found = []
        for i, (t, last) in enumerate(zip(types, attrs["body"].yields)):
            require_dim(t, attrs["dim"], op, scope)
            require_kind(t.dtype, "float int bool", op)
            if last.type != ValueType((), t.dtype):
                what = f"{last.type} as value {i}" if len(types) > 1 else last.type
                raise TraceError(
                    f"{op}: the combining function returns {what}, not a single {t.dtype}",
                    hint="combine its two arguments with elementwise operations",
                )
            found.append(t if keeps else ValueType(_without(t, attrs["dim"]), t.dtype))
        return tuple(found) if isinstance(attrs["identity"], tuple) else found[0]

    return rule


def _topk(types: Types, attrs: dict[str, Any], scope: Scope) -> tuple[ValueType, ...]:
    require_dim(types[0], attrs["dim"], "topk", scope)
    require_kind(types[0].dtype, "float int", "topk")
    k = attrs["k"]
    if k in types[0].dims:
        raise TraceError(
            f"topk: {k} is already a dimension of the value",
            hint="the results lie along a new dimension: TOP = wd.sym.TOP, bound by subs={TOP: 4}",
        )
    dims = tuple(k if d == attrs["dim"] else d for d in types[0].dims)
    return ValueType(dims, types[0].dtype), ValueType(dims, dt.i32)


def _random(types: Types, attrs: dict[str, Any], scope: Scope) -> ValueType:
    for t in types:
        if t.dims or not t.dtype.is_int:
            raise TraceError(
                "random: the seed and the offset are single integers", hint="pass an int or a wd.Scalar[wd.u32]"
            )
    if attrs["dtype"] not in (dt.f32, dt.u32):
        raise TraceError(f"random: gives f32 or u32, not {attrs['dtype']}", hint="cast the f32 result")
    return ValueType(tuple(d for d in attrs["dims"] if d not in scope.index_dims), attrs["dtype"])


def _assert(types: Types, attrs: dict[str, Any], scope: Scope) -> None:
    if types[0].dtype is not dt.i1:
        raise TraceError(f"device_assert: the condition is {types[0].dtype}, not i1", hint="compare something")
    return None


def _print(types: Types, attrs: dict[str, Any], scope: Scope) -> None:
    return None


# ---------------------------------------------------------------------------------------------------------------------
# NumPy meanings of elementwise rows. Arrays come in the type to compute in; the evaluator rounds the result.


def maximum_number(a: Any, b: Any) -> Any:
    """IEEE maximumNumber: a number wins over NaN, +0 over -0."""
    if not np.issubdtype(np.result_type(a), np.floating):
        return np.maximum(a, b)
    both_zero = (a == 0) & (b == 0)
    return np.where(both_zero, a + b, np.fmax(a, b))


def minimum_number(a: Any, b: Any) -> Any:
    """IEEE minimumNumber: a number wins over NaN, -0 over +0."""
    if not np.issubdtype(np.result_type(a), np.floating):
        return np.minimum(a, b)
    both_zero = (a == 0) & (b == 0)
    return np.where(both_zero, -((-a) + (-b)), np.fmin(a, b))


def _fma(a: Any, b: Any, c: Any) -> Any:
    """Integers wrap; floats are rounded once."""
    if not np.issubdtype(np.result_type(a, b, c), np.floating):
        return a * b + c
    from wavedsl.ir.rounding import fma

    return fma(a, b, c)


_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Any) -> Any:
    """Of -|x|: exp(-x) overflows where the result is a small number yet."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _pow(x: Any, y: Any) -> Any:
    """The definition for y log2(x) that is no number too; elsewhere NumPy's, which loses no digits."""
    exponent = y * np.log2(x)
    return np.where(np.isfinite(exponent), np.power(x, y), np.exp2(exponent))


def _clamp(x: Any, low: Any, high: Any) -> Any:
    return minimum_number(maximum_number(x, low), high)


def _of_bits(name: str) -> Callable[..., Any]:
    """A function of `bit_meaning.py`, which is loaded when something is evaluated."""

    def meaning(*operands: Any) -> Any:
        from wavedsl.ir.dataflow import bit_meaning

        return getattr(bit_meaning, name)(*operands)

    return meaning


def _shift_left(x: Any, count: Any) -> Any:
    return np.left_shift(x, count)


# ---------------------------------------------------------------------------------------------------------------------
# The table

# Values and memory
_add("read", "read(mem, *, mapping=None, elements_per_thread=None, cache=None)", "any", _read,
     "The elements of an array argument that belong to this wave.")  # fmt: skip
_add("write", "write(value, mem, *, mapping=None, elements_per_thread=None, cache=None)", "any", _write,
     "Stores a value into an array argument; elements beyond a bound are skipped.", effect=True)  # fmt: skip
_add("mma", "mma(x, y, acc=None, precision=None)", "family", _mma,
     "Matrix product over the dimensions that both operands have and the result lacks, plus `acc`.")  # fmt: skip
_add("scaled_mma", "scaled_mma(x, x_scale, y, y_scale, acc=None)", "family", _scaled_mma,
     "Matrix product of block-scaled operands: one f8e8m0 scale per block of the contracted dimension.")  # fmt: skip
_add("fill", "Register[M, N, dtype](value)", "any", _typed, "A value with one number everywhere.", public=False)
_add("constant", "a Python number", "any", _typed, "A number of the source, in the dtype of its partner.", public=False)
_add("scalar", "a Scalar argument", "any", _scalar, "A scalar argument of the kernel.", public=False)
_add("size", "a symbol in arithmetic", "any", _size, "The extent of a dimension as an i32.", public=False)
_add("index", "index(dim)", "any", _index, "Each element's own index along `dim`, counted over the whole array.")

_add("tile_start", "tile_start(dim)", "any", _size, "First index along `dim` of the tile at hand, as an i32.")
_add("tile_stop", "tile_stop(dim)", "any", _size, "Index after the last one along `dim` of the tile at hand.")

# Loops
_add("iterate", "iterate(dim, init_args=(), start=None, stop=None)", "same", _iterate,
     "Runs a function once per tile of `dim`, carrying values from trip to trip.", effect=True)  # fmt: skip
_add("when", "cond(condition, then, otherwise=None)", "same", _when,
     "Runs a function where a single condition holds, for the whole workgroup.", effect=True, public=False)  # fmt: skip
_add("repeat", "while_loop(condition, body, init_args)", "same", _repeat,
     "Runs a function again as long as its last result holds.", effect=True, public=False)  # fmt: skip
_add("carry", "a parameter of a loop function", "same", _typed, "A loop-carried value inside its loop.", public=False)
_add("result", "a result of a loop", "same", _result, "One of several results of a node.", public=False)

# Elementwise arithmetic
_NUMBER, _FLOAT, _INT = "float int", "float", "int"
for _name, _signature, _allowed, _compute, _precise, _operators, _doc in (
    ("add", "x + y", _NUMBER, np.add, False, ("__add__", "__radd__"), "Sum."),
    ("sub", "x - y", _NUMBER, np.subtract, False, ("__sub__", "__rsub__"), "Difference."),
    ("mul", "x * y", _NUMBER, np.multiply, False, ("__mul__", "__rmul__"), "Product."),
    ("div", "x / y", _FLOAT, np.divide, False, ("__truediv__", "__rtruediv__"), "Quotient of floats."),
    ("floordiv", "x // y", _NUMBER, np.floor_divide, False, ("__floordiv__", "__rfloordiv__"),
     "Quotient rounded towards minus infinity."),
    ("mod", "x % y", _NUMBER, np.mod, False, ("__mod__", "__rmod__"), "Remainder with the sign of the divisor."),
    ("pow", "pow(x, y)", _FLOAT, _pow, True, ("__pow__", "__rpow__"),
     "x to the power y: exp2(y * log2(x)), so NaN for a negative x; `x**n` takes one where n is whole in the source."),
    ("neg", "-x", _NUMBER, np.negative, False, ("__neg__",), "Negation."),
    ("abs", "abs(x)", _NUMBER, np.abs, False, ("__abs__",), "Absolute value."),
    ("minimum", "minimum(x, y)", _NUMBER, minimum_number, False, (), "The smaller; a number rather than NaN."),
    ("maximum", "maximum(x, y)", _NUMBER, maximum_number, False, (), "The larger; a number rather than NaN."),
    ("clamp", "clamp(x, low, high)", _NUMBER, _clamp, False, (), "minimum(maximum(x, low), high)."),
    ("fma", "fma(x, y, z)", _NUMBER, _fma, False, (), "x * y + z with one rounding."),
    ("floor", "floor(x)", _FLOAT, np.floor, False, (), "Largest whole number not above x."),
    ("ceil", "ceil(x)", _FLOAT, np.ceil, False, (), "Smallest whole number not below x."),
    ("trunc", "trunc(x)", _FLOAT, np.trunc, False, (), "The whole number next to x towards 0."),
    ("round", "round(x)", _FLOAT, np.rint, False, (), "Nearest whole number, halves to even."),
    ("exp", "exp(x)", _FLOAT, np.exp, True, (), "e to the power x."),
    ("exp2", "exp2(x)", _FLOAT, np.exp2, True, (), "2 to the power x."),
    ("expm1", "expm1(x)", _FLOAT, np.expm1, True, (), "exp(x) - 1, also where that is small."),
    ("log", "log(x)", _FLOAT, np.log, True, (), "Natural logarithm."),
    ("log2", "log2(x)", _FLOAT, np.log2, True, (), "Logarithm to base 2."),
    ("log10", "log10(x)", _FLOAT, np.log10, True, (), "Logarithm to base 10."),
    ("log1p", "log1p(x)", _FLOAT, np.log1p, True, (), "log(1 + x), also where that is small."),
    ("sqrt", "sqrt(x)", _FLOAT, np.sqrt, True, (), "Square root."),
    ("rsqrt", "rsqrt(x)", _FLOAT, lambda x: 1.0 / np.sqrt(x), True, (), "1 / sqrt(x)."),
    ("reciprocal", "reciprocal(x)", _FLOAT, lambda x: 1.0 / x, True, (), "1 / x."),
    ("tanh", "tanh(x)", _FLOAT, np.tanh, True, (), "Hyperbolic tangent."),
    ("erf", "erf(x)", _FLOAT, lambda x: np.asarray(_erf(x), np.float64), True, (), "Error function."),
    ("sigmoid", "sigmoid(x)", _FLOAT, _sigmoid, True, (), "1 / (1 + exp(-x))."),
    ("sin", "sin(x)", _FLOAT, np.sin, True, (), "Sine of radians."),
    ("cos", "cos(x)", _FLOAT, np.cos, True, (), "Cosine of radians."),
    ("atan", "atan(x)", _FLOAT, np.arctan, True, (), "Angle of -pi/2 to pi/2 whose tangent is x."),
    ("atan2", "atan2(y, x)", _FLOAT, np.arctan2, True, (), "Angle of -pi to pi of the point (x, y)."),
    ("asin", "asin(x)", _FLOAT, np.arcsin, True, (), "Angle of -pi/2 to pi/2 whose sine is x; NaN beyond 1."),
    ("acos", "acos(x)", _FLOAT, np.arccos, True, (), "Angle of 0 to pi whose cosine is x; NaN beyond 1."),
    ("bitand", "x & y", "int bool", np.bitwise_and, False, ("__and__", "__rand__"), "Bitwise (or logical) and."),
    ("bitor", "x | y", "int bool", np.bitwise_or, False, ("__or__", "__ror__"), "Bitwise (or logical) or."),
    ("bitxor", "x ^ y", "int bool", np.bitwise_xor, False, ("__xor__", "__rxor__"), "Bitwise (or logical) xor."),
    ("invert", "~x", "int bool", np.invert, False, ("__invert__",), "Bitwise (or logical) not."),
    ("shl", "x << y", _INT, _shift_left, False, ("__lshift__", "__rlshift__"), "Shift towards the high bits."),
    ("shr", "x >> y", _INT, np.right_shift, False, ("__rshift__", "__rrshift__"),
     "Shift towards the low bits; signed types keep the sign."),
):  # fmt: skip
    _add(_name, _signature, "same", _elementwise(_name, _allowed), _doc, _compute,
         precise=_precise, operators=_operators, public="(" in _signature)  # fmt: skip

_add("popcount", "popcount(x)", "same", _elementwise("popcount", _INT, dt.i32), "How many bits are set, as an i32.",
     _of_bits("popcount"))  # fmt: skip
_add("clz", "clz(x)", "same", _elementwise("clz", _INT, dt.i32),
     "Zeros above the highest set bit, as an i32; all bits of 0.", _of_bits("clz"))  # fmt: skip
_add("ctz", "ctz(x)", "same", _elementwise("ctz", _INT, dt.i32),
     "Zeros below the lowest set bit, as an i32; all bits of 0.", _of_bits("ctz"))  # fmt: skip
for _name, _signature, _compute, _doc in (
    ("bit_reverse", "bit_reverse(x)", _of_bits("bit_reverse"), "The bits in reverse order."),
    ("rotate_left", "rotate_left(x, count)", _of_bits("rotate_left"),
     "The bits moved up, those that leave come in below; the count is taken modulo the width, so -1 is to the right."),
    ("mulhi", "mulhi(x, y)", _of_bits("mulhi"), "The upper half of the product of twice as many bits."),
    ("saturating_add", "saturating_add(x, y)", _of_bits("saturating_add"),
     "Sum; the largest or smallest number where that is beyond it."),
    ("saturating_sub", "saturating_sub(x, y)", _of_bits("saturating_sub"),
     "Difference; the largest or smallest number where that is beyond it."),
    ("permute_bytes", "permute_bytes(x, y, selector)", _of_bits("permute_bytes"),
     "Words of bytes: hex digit i of the selector names byte i of the result, 0 to 3 of x, 4 to 7 of y."),
):  # fmt: skip
    _rule = _permute_bytes if _name == "permute_bytes" else _elementwise(_name, _INT)
    _add(_name, _signature, "same", _rule, _doc, _compute)

for _name, _sign, _compare, _operators in (
    ("lt", "<", np.less, ("__lt__",)),
    ("le", "<=", np.less_equal, ("__le__",)),
    ("gt", ">", np.greater, ("__gt__",)),
    ("ge", ">=", np.greater_equal, ("__ge__",)),
    ("eq", "==", np.equal, ("__eq__",)),
    ("ne", "!=", np.not_equal, ("__ne__",)),
):
    _add(_name, f"x {_sign} y", "same", _elementwise(_name, "float int bool", dt.i1),
         "Comparison, giving i1; with a NaN only != holds.", _compare, operators=_operators, public=False)  # fmt: skip

for _name, _test, _doc in (
    ("isnan", np.isnan, "Whether x is NaN, as an i1."),
    ("isinf", np.isinf, "Whether x is infinite, as an i1."),
    ("isfinite", np.isfinite, "Whether x is neither infinite nor NaN, as an i1."),
):
    _add(_name, f"{_name}(x)", "same", _elementwise(_name, _FLOAT, dt.i1), _doc, _test)

_add("where", "where(condition, x, y)", "same", _where, "x where the condition holds, else y.", np.where)
_add("cast", "cast(x, dtype, rounding=None, bits=None)", "same", _cast,
     "The number in another dtype; float to int truncates, float to float rounds to nearest even.")  # fmt: skip
_add("bitcast", "bitcast(x, dtype)", "same", _bitcast, "The same bits read as another dtype of equal width.")

# Reductions and what runs along a dimension
_add("sum", "sum(x, dim)", "project", _reduction("sum", _NUMBER), "Sum along `dim`.")
_add("max", "max(x, dim)", "project", _reduction("max", _NUMBER), "Largest along `dim`; numbers rather than NaN.")
_add("min", "min(x, dim)", "project", _reduction("min", _NUMBER), "Smallest along `dim`; numbers rather than NaN.")
_add("argmax", "argmax(x, dim)", "project", _reduction("argmax", _NUMBER, dt.i32),
     "Index of the largest along `dim`, the first of equals.")  # fmt: skip
_add("argmin", "argmin(x, dim)", "project", _reduction("argmin", _NUMBER, dt.i32),
     "Index of the smallest along `dim`, the first of equals.")  # fmt: skip
_add("any", "any(x, dim)", "project", _reduction("any", "bool"), "Whether one along `dim` holds.")
_add("all", "all(x, dim)", "project", _reduction("all", "bool"), "Whether all along `dim` hold.")
_add("reduce", "reduce(x, combine, identity, dim)", "project", _combine("reduce", False),
     "Reduces along `dim` with an associative, commutative function and its identity.")  # fmt: skip
_add("scan", "scan(x, combine, identity, dim, reverse=False)", "family", _combine("scan", True),
     "Running reduction along `dim` (inclusive) with an associative function and its identity.")  # fmt: skip
_add("cumsum", "cumsum(x, dim, reverse=False)", "family", _along("cumsum", _NUMBER),
     "Running sum along `dim`, inclusive.")  # fmt: skip
_add("sort", "sort(x, dim, descending=False)", "family", _along("sort", _NUMBER),
     "Sorts along `dim`; NaN comes last in ascending order.")  # fmt: skip
_add("topk", "topk(x, k, dim)", "family", _topk,
     "The k largest along `dim` in descending order and their indices, along the new dimension k.")  # fmt: skip

# Shapes
_add("broadcast", "broadcast(x, *dims)", "lift", _broadcast, "Repeats the value along the dimensions it lacks.")
_add("permute", "permute(x, *dims)", "relabel", _permute, "The same value with its dimensions listed in another order.")
_add("reshape", "reshape(x, *dims)", "regroup", _reshape,
     "The same elements, in row-major order of the listed dimensions, under other dimensions.")  # fmt: skip

_add("extract", "extract(x, where)", "any", _extract,
     "Elements at one place along a dimension, or evenly spaced ones under a new dimension.")  # fmt: skip
_add("shuffle", "shuffle(x, index, dim)", "family", _shuffle,
     "The elements that `index` names along `dim`, or along dimensions of the index in its place.")  # fmt: skip
_add("repeat_interleave", "repeat_interleave(x, dim)", "any", _repeat_interleave,
     "Each element along a part of `dim`, such as `dim / 32`, for all the elements that it stands for.")  # fmt: skip

# Atomics
ATOMIC_VALUES: dict[str, int] = {}
"""Atomic → how many of its inputs are values; indices follow."""
for _name, _values, _allowed, _doc in (
    ("atomic_add", 1, _NUMBER, "Adds to memory, indivisibly; gives what was there."),
    ("atomic_min", 1, _NUMBER, "Keeps the smaller in memory, indivisibly; gives what was there."),
    ("atomic_max", 1, _NUMBER, "Keeps the larger in memory, indivisibly; gives what was there."),
    ("atomic_and", 1, _INT, "Keeps the bits in memory that both have, indivisibly; gives what was there."),
    ("atomic_or", 1, _INT, "Sets bits in memory, indivisibly; gives what was there."),
    ("atomic_xor", 1, _INT, "Turns bits in memory over, indivisibly; gives what was there."),
    ("atomic_xchg", 1, _NUMBER, "Exchanges with memory, indivisibly; gives what was there."),
):
    _add(_name, f"{_name}(value, mem, *, mapping=None)", "any", _atomic(_name, _values, _allowed), _doc, effect=True)
    ATOMIC_VALUES[_name] = _values
ATOMIC_VALUES["atomic_cas"] = 2
_add("atomic_cas", "atomic_cas(expected, value, mem, *, mapping=None)", "any", _atomic("atomic_cas", 2, _INT),
     "Stores `value` where memory holds `expected`, indivisibly; gives what was there.", effect=True)  # fmt: skip

# Others
_add("random", "random(seed, *dims, offset=0, dtype=f32)", "any", _random,
     "Philox 4x32-10 keyed by the seed, counted by the element's own index: uniform in [0, 1), or bits.")  # fmt: skip
_add("fence", "fence()", "any", lambda types, attrs, scope: None,
     "Orders the workgroup's memory accesses before and after, as other workgroups see them.", effect=True)  # fmt: skip
_add("join_parts", "the sums of all parts of a loop", "any", _join_parts,
     "The sums that all workgroups of a cluster have, added in their order: of each workgroup's share along `dim`.",
     effect=True, public=False)  # fmt: skip
_add("device_print", "device_print(text, *values)", "any", _print, "Prints values while the kernel runs.", effect=True)
_add("device_assert", "device_assert(condition, message)", "any", _assert,
     "Raises after the kernel where the condition did not hold.", effect=True)  # fmt: skip

OPERATORS: dict[str, tuple[str, bool]] = {
    method: (r.name, method.startswith("__r") and method not in ("__rshift__",))
    for r in ROWS.values()
    for method in r.operators
}
"""Python method → (row, whether its operands come swapped)."""
