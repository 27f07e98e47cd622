"""How conditions, `while_loop` and the functions of `reduce` and `scan` are recorded: traced in regions of their own.

Everything is made of two operations: `when`, whose region runs where a single flag holds, and `repeat`, whose region
runs until its last value does not hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import REGIONS, Node, Region, ValueType
from wavedsl.ir.dataflow.ops import ROWS, require_single
from wavedsl.ir.errors import TraceError
from wavedsl.ir.loc import Loc
from wavedsl.ir.source import here
from wavedsl.ir.symbols import names
from wavedsl.tracer.builder import Builder
from wavedsl.tracer.flags import flags, words
from wavedsl.tracer.operands import NUMBERS, counted, describe, python_number
from wavedsl.tracer.proxy import Value
from wavedsl.tracer.user_code import accepts


def _when(b: Builder, condition: Node, inits: Sequence[Node], region: Region, loc: Loc | None) -> Any:
    """Appends a `when` around a traced region and gives its results."""
    return b.results(b.emit("when", (condition, *inits), {"body": region}, loc))


def _branch(b: Builder, op: str, body: Any, arguments: Sequence[Value], region: Region, loc: Loc | None) -> list[Node]:
    """Traces a branch; what it returns."""
    if not isinstance(body, FunctionType):
        raise TraceError(f"{op}: a branch is {describe(body)[0]}", loc, hint=f"wd.{op}(c, lambda: …)")
    if not accepts(body, len(arguments)):
        raise TraceError(
            f"{op}: the function takes {counted(body.__code__.co_argcount, 'parameter')}, not {len(arguments)}", loc,
            hint="one parameter per entry of init_args, in that order" if arguments
            else "a branch takes nothing; it may use what is around it",
        )  # fmt: skip
    returned = b.run_region(body, arguments, region)
    if returned is None:
        return []
    values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    b.regions.append(region)
    try:
        nodes = [b.node_of(v, op, loc) for v in values]
        for node in nodes:
            b.check_reach(node, loc)
    finally:
        b.regions.pop()
    return nodes


def _zero(b: Builder, t: Any, loc: Loc | None) -> Node:
    value: Any = 0.0 if t.dtype.is_float else False if t.dtype.kind == "bool" else 0
    return b.emit("fill", (), {"dims": t.dims, "dtype": t.dtype, "value": value}, loc)


def conditional(b: Builder, condition: Any, then: Any, otherwise: Any) -> Any:
    """`cond`: two `when`s, one with the condition and one with its opposite, that hand on the results; one, where the
    other function returns what is there anyway: its results are what the `when` starts from."""
    loc = here()
    flag = b.node_of(condition, "cond", loc)
    first, second = Region(loc=loc), Region(loc=loc)
    found = _branch(b, "cond", then, (), first, loc)
    if otherwise is None:
        if all(n.op.startswith("atomic_") for n in found):
            found = []  # `lambda: wd.atomic_add(…)`: what was there before is nobody's
        if found:
            raise TraceError(
                "cond: the function returns a value, but there is no other branch", loc,
                hint="give wd.cond a third argument that returns the value where the condition does not hold",
            )  # fmt: skip
        b.carries(first, [], [])
        _when(b, flag, (), first, loc)
        return None
    other = _branch(b, "cond", otherwise, (), second, loc)
    if not _alike(other, [n.type for n in found]):
        have, want = (", ".join(str(n.type) for n in nodes) or "nothing" for nodes in (other, found))
        raise TraceError(
            f"cond: one function returns {want}, the other {have}", loc, hint="return values of equal types"
        )

    def branch(flag: Node, starts: Sequence[Node], region: Region, yields: Sequence[Node]) -> Any:
        region.yields = tuple(words(b, yields, loc, region))
        b.carries(region, [n.type for n in starts], [("result", loc)] * len(yields))
        return _when(b, flag, starts, region, loc)

    if (outside := _made_before(b, second, other)) is not None:
        results = branch(flag, words(b, outside, loc), first, found)
    elif (outside := _made_before(b, first, found)) is not None:
        results = branch(b.emit("invert", (flag,), {}, loc), words(b, outside, loc), second, other)
    else:
        inits = [_zero(b, ValueType(n.dims, dt.i32) if n.dtype is dt.i1 else n.type, loc) for n in found]
        passed = [v.node for v in branch(flag, inits, first, found) or ()]
        results = branch(b.emit("invert", (flag,), {}, loc), passed, second, other)
    if isinstance(results, tuple):
        results = tuple(flags(b, results, found, loc))
    return results[0] if isinstance(results, tuple) and len(results) == 1 else results


def _made_before(b: Builder, region: Region, returned: Sequence[Node]) -> list[Node] | None:
    """What a branch returns, where it is there without the branch: made outside of it, or a number that the text says.
    None for a branch that computes."""
    if any(n.op not in ("fill", "constant") for n in region.nodes):
        return None
    inside = {n.id: n for n in region.nodes}
    return [b.emit(n.op, (), dict(n.attrs), n.loc) if n.id in inside else n for n in returned]


def while_loop(b: Builder, condition: Any, body: Any, init_args: Any) -> Any:
    """`while_loop`: a `when` that asks first, around a `repeat` that asks after every trip. Where the condition has
    dimensions, who goes on is carried along."""
    loc = here()
    if not isinstance(init_args, (list, tuple)) or not init_args:
        raise TraceError("while_loop: init_args is not a list of values", loc, hint="init_args=[x]")
    inits = [b.node_of(x, "while_loop", loc) for x in init_args]
    count = len(inits)

    def ask(nodes: Sequence[Node], region: Region) -> Node:
        flags = _branch(b, "while_loop", condition, [b.value(n) for n in nodes], region, loc)
        if len(flags) != 1:
            raise TraceError("while_loop: the condition returns no single value", loc, hint="return x < y")
        return flags[0]

    first = ask(inits, b.regions[-1])
    each = bool(first.dims) and first.dtype is dt.i1
    if each:
        _check_elements(first, inits, loc)
        inits, first = [*inits, b.emit("cast", (first,), {"dtype": dt.i32}, loc)], _any(b, first, loc)
    meant, inits = inits, words(b, inits, loc)
    types = [n.type for n in inits]
    outer = Region(loc=loc)
    spots = [(f"value {i}", loc) for i in range(len(inits))]
    carried = b.carries(outer, types, spots)
    inner = Region(loc=loc)
    arguments = flags(b, b.carries(inner, types, spots), meant, loc, inner)
    around = b.live
    own = _still_in(b, inner, arguments[-1].node, loc) if each else None
    found = _branch(b, "while_loop", body, arguments[:count], inner, loc)
    if not _alike(found, [n.type for n in meant[:count]]):
        have, want = (", ".join(str(n.type) for n in nodes) or "nothing" for nodes in (found, meant[:count]))
        raise TraceError(
            f"while_loop: carries {want}, but the function returns {have}", loc,
            hint="return one value per entry of init_args, of the same type",
        )  # fmt: skip
    if own is not None:
        after = _elements_that_go_on(b, inner, own, arguments, found, ask, loc)
        _check_effects(inner, loc)
    else:
        after = (*found, ask(found, inner))
    b.live = around
    inner.yields = (*words(b, after[:-1], loc, inner), after[-1])
    b.regions.append(outer)
    try:
        results = b.results(b.emit("repeat", [v.node for v in carried], {"body": inner}, loc))
    finally:
        b.regions.pop()
    outer.yields = tuple(v.node for v in results)
    results = tuple(flags(b, _when(b, first, inits, outer, loc), meant, loc))
    return results[0] if count == 1 else results[:count]


def _still_in(b: Builder, region: Region, flag: Node, loc: Loc | None) -> Node:
    """Who goes through this trip of a loop that each element leaves by itself. Until `b.live` is set back, only they,
    of those who are still in loops around, write."""
    b.regions.append(region)
    try:
        live = b.emit("cast", (flag,), {"dtype": dt.i1}, loc)
        b.live = live if b.live is None else b.emit("bitand", (b.live, live), {}, loc)
    finally:
        b.regions.pop()
    return live


def _elements_that_go_on(
    b: Builder, region: Region, live: Node, arguments: Sequence[Value], found: Sequence[Node], ask: Any, loc: Loc | None
) -> tuple[Node, ...]:
    """What a trip yields where each element has a condition of its own: what the body found for those that go on and
    what was there for the others, who goes on after this trip, and whether anybody does."""
    b.regions.append(region)
    try:
        kept = [b.emit("where", (live, new, old.node), {}, loc) for new, old in zip(found, arguments)]
    finally:
        b.regions.pop()
    still = ask(kept, region)
    b.regions.append(region)
    try:
        still = b.emit("bitand", (live, still), {}, loc)
        return (*kept, b.emit("cast", (still,), {"dtype": dt.i32}, loc), _any(b, still, loc))
    finally:
        b.regions.pop()


def _any(b: Builder, flags: Node, loc: Loc | None) -> Node:
    """Whether any of the workgroup's elements holds."""
    for d in flags.dims:
        flags = b.emit("any", (flags,), {"dim": d, "partial": True}, loc)
    return flags


def _check_elements(condition: Node, inits: Sequence[Node], loc: Loc | None) -> None:
    for i, n in enumerate(inits):
        missing = [d for d in condition.dims if d not in n.dims]
        if missing:
            dims = tuple(dict.fromkeys((*n.dims, *condition.dims)))
            raise TraceError(
                f"while_loop: each element of [{names(condition.dims)}] has a condition of its own, but value {i} of "
                f"init_args is [{names(n.dims)}]",
                loc,
                hint=f"wd.broadcast(x, {names(dims)}), or one condition for the whole workgroup: reduce it with wd.any",
            )


def _check_effects(region: Region, loc: Loc | None) -> None:
    """A body that runs on for some elements writes what `access` lets the others skip, and shows nothing."""
    for n in region.nodes:
        if n.op in REGIONS:
            _check_effects(n.attrs["body"], loc)
        elif ROWS[n.op].effect and "memory" not in n.attrs and n.op != "fence":
            raise TraceError(
                f"while_loop: {n.op} in a loop in which each element has a condition of its own", n.loc,
                hint="carry the value out of the loop, or reduce the condition with wd.any",
            )  # fmt: skip


def exit_if(b: Builder, condition: Any) -> None:
    """`exit_if`: what follows lies in a `when` of the opposite."""
    loc = here()
    if any(r.dim is not None or r.carries for r in b.regions) or b.combining is not None:
        raise TraceError("exit_if inside a loop or branch", loc, hint="leave a workgroup before its loops")
    flag = b.node_of(condition, "exit_if", loc)
    assert isinstance(flag.type, ValueType)
    require_single(flag.type, "exit_if", loc)
    opposite = b.emit("invert", (flag,), {}, loc)
    region = Region(loc=loc)
    b.emit("when", (opposite,), {"body": region}, loc)
    b.regions.append(region)


def combining(
    b: Builder, op: str, x: Any, function: Any, identity: Any, dim: Any, more: Mapping[str, Any] | None = None
) -> Any:
    """`reduce` and `scan`: traces the combining function on two scalars, or on two tuples of them where `x` is a tuple
    of values, which are then combined together. `more`: further attributes of the node."""
    loc = here()
    several = isinstance(x, (tuple, list))
    nodes = [b.node_of(v, op, loc) for v in (x if several else [x])]
    if not nodes:
        raise TraceError(f"{op}: no values", loc, hint="a tuple of the values that are combined together")
    if not isinstance(function, FunctionType):
        raise TraceError(
            f"{op}: the combining function is {describe(function)[0]}", loc, hint="lambda a, b: wd.maximum(a, b)"
        )
    names_of = list(inspect.signature(function).parameters)
    if not accepts(function, 2):
        raise TraceError(
            f"{op}: the combining function takes {counted(len(names_of), 'parameter')}",
            loc,
            hint="it combines two tuples: lambda a, b: (a[0] * b[0], …)" if several else "it combines two",
        )
    identities = list(identity) if several and isinstance(identity, (tuple, list)) else [identity]
    if len(identities) != len(nodes):
        raise TraceError(
            f"{op}: {counted(len(nodes), 'value')}, but {counted(len(identities), 'number')} as the identity",
            loc,
            hint="one number per value, which combining with changes nothing",
        )
    for number in identities:
        if not isinstance(number, NUMBERS):
            raise TraceError(
                f"{op}: the identity is {describe(number)[0]}",
                loc,
                hint="the number that combining with changes nothing",
            )
    dims = tuple(dict.fromkeys(d for n in nodes for d in n.dims))
    nodes = [n if set(n.dims) == set(dims) else b.emit("broadcast", (n,), {"dims": dims}, loc) for n in nodes]
    region = Region(loc=loc)
    elements = [ValueType((), n.dtype) for n in nodes]
    numbers = tuple(python_number(number, n.dtype, op, loc) for number, n in zip(identities, nodes))
    attrs = {"dim": b.dim(dim, op), "identity": numbers if several else numbers[0], "body": region, **(more or {})}
    (outer, b.combining), (around, b.again) = (b.combining, op), (b.again, {})
    try:
        spots = [(name, loc) for name in names_of for _ in nodes]
        carries = b.carries(region, (*elements, *elements), spots)
        count = len(nodes)
        arguments = [tuple(carries[:count]), tuple(carries[count:])] if several else carries
        returned = b.run_region(function, arguments, region)
        values = list(returned) if several and isinstance(returned, (tuple, list)) else [returned]
        if len(values) != len(nodes):
            raise TraceError(
                f"{op}: the combining function returns {counted(len(values), 'value')}, not {len(nodes)}",
                loc,
                hint="a tuple with one value per value that is combined",
            )
        found = [b.node_of(v, f"{op}: what the combining function returns", loc) for v in values]
        b.regions.append(region)
        region.yields = tuple(b.inside(x, loc) for x in found)
        b.regions.pop()
    finally:
        b.combining, b.again = outer, around
    return b.results(b.emit(op, nodes, attrs, loc))


def _alike(nodes: Sequence[Node], types: Sequence[Any]) -> bool:
    """Whether nodes have these types, up to the order of dimensions."""
    return len(nodes) == len(types) and all(
        isinstance(n.type, ValueType) and n.type.same_as(t) for n, t in zip(nodes, types)
    )
