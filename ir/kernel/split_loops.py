"""Loops in which masks hold for every lane on most trips become two or three: with masks, without, with.

In: a kernel whose loops compare per-lane indices (`index(M) >= index(N)`, a ragged last tile). Out: a new kernel where
such a loop is cut where its comparisons begin and cease to hold for every lane; between the cuts they are true, and
selects and conjunctions fold away. The loops carry on from one another, so a software pipeline runs through all of
them. INVARIANT: ops with effects run in the same order; where the waves of a workgroup meet in a loop, all cut at the
same trip. Elsewhere each does where its own masks hold.

A comparison is of use when its two sides differ by k · i + u + l, i the induction variable, u equal for the workgroup
and l of a known range over its lanes: then it holds for all of them from some trip on, or up to one, which scalar
arithmetic finds. Where u is made of numbers that may be anything (loaded lengths), sums could wrap: the form is then
that of numbers below `ASSUMED`, and where one is not, every trip keeps its masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from wavedsl.ir.kernel.build_core import PINNED
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import I32, PRED, ROWS, Kernel, Op, Region, Value
from wavedsl.ir.kernel.kernel_passes import copy_region, fresh_kernel, remove_dead_code
from wavedsl.ir.kernel.linear import Linear, difference
from wavedsl.ir.kernel.meetings import meet
from wavedsl.ir.kernel.unroll import static_trips
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

SHARE = 12
"""A loop is cut where at least one in this many of its arithmetic operations goes away between the cuts."""

Form = tuple[Linear, int, int]
"""A sum, and the least and the most that it may be."""

_LIMIT = 1 << 31

ASSUMED = 1 << 27
"""Numbers that nothing is known of are taken to lie in -ASSUMED .. ASSUMED - 1, which is looked at when the loop is
reached. Sums of a few do not wrap."""

UNCOUNTED = PINNED | {"vec", "slice", "bitcast"}
"""Ops that take no slot of the vector unit."""


@dataclass
class Edge:
    """A comparison that holds for every lane while k · i + terms + constant >= 0, if what is `assumed` is small."""

    op: Op
    k: int
    uniform: dict[Value, int]
    constant: int
    assumed: frozenset[Value] = frozenset()


def split_loops(kernel: Kernel, target: Target | None = None) -> Kernel:
    """Cut every loop where that pays. A kernel without such loops comes back as it is."""
    varies = per_wave(kernel)
    same = alike(kernel, varies)
    chosen: dict[Op, list[Edge]] = {}
    for op in kernel.body.walk():
        if op.name == "for" and (edges := worthwhile(op, varies if meet([op]) else set(), same)):
            chosen[op] = edges
    if not chosen:
        return kernel
    fresh = fresh_kernel(kernel)
    b = Builder(fresh, target)
    env: dict[Value, Value] = {}

    def hook(op: Op) -> bool:
        if op in chosen:
            _cut(b, op, chosen[op], env, hook)
            return True
        return False

    copy_region(b, kernel.body, env, hook)
    fresh = b.finish()
    remove_dead_code(fresh)
    return fresh


def per_wave(kernel: Kernel) -> set[Value]:
    """Values that may differ between the waves of a workgroup."""
    varies: set[Value] = set()

    def visit(region: Region) -> None:
        for op in region.ops:
            # What nobody writes is the same for every wave that reads it in one place.
            pure = ROWS[op.name].pure or (op.name == "load.global" and _constant(kernel, op.args[0]))
            if op.name in ("wave", "tid") or not pure or not varies.isdisjoint(op.args):
                varies.update(op.results)
            for body in op.regions:
                varies.update(body.args[1:])  # carried: not followed
                if not varies.isdisjoint(op.args[:3]):
                    varies.update(body.args)
                visit(body)

    if kernel.waves > 1:
        visit(kernel.body)
    return varies


ALIKE = frozenset("add sub mul shl lshr ashr and or xor min_s max_s select cmp bitcast".split())
"""Ops whose results are the same in all lanes where their operands are."""


def alike(kernel: Kernel, varies: set[Value]) -> set[Value]:
    """Values of lanes that are the same in all lanes and waves of the workgroup: what is loaded from one place of an
    array that nobody writes, and what is made of it."""
    found: set[Value] = set()

    def same(v: Value) -> bool:
        return v in found or v.const is not None or (v.uniform and v not in varies)

    for op in kernel.body.walk():
        loaded = op.name == "load.global" and _constant(kernel, op.args[0])
        if (loaded or op.name in ALIKE) and not op.results[0].uniform and all(map(same, op.args)):
            found.update(op.results)
    return found


def _constant(kernel: Kernel, buffer: Value) -> bool:
    """Whether a buffer is, or lies in, an array that the kernel does not write."""
    if buffer.op is None:
        return False
    if buffer.op.name == "param":
        param = kernel.params[buffer.op.attrs["index"]]
        return param.kind != "pointer" or param.access == "read"
    return buffer.op.row.pure and all(a.const is not None or _constant(kernel, a) for a in buffer.op.args)


def worthwhile(loop: Op, varies: set[Value], same: set[Value]) -> list[Edge]:
    """The comparisons to cut a loop by: none where too little arithmetic depends on them."""
    step = loop.args[2].const
    trips = static_trips(loop)
    if step != 1 or (trips is not None and trips < 3):
        return []
    body = loop.regions[0]
    inside = {r for op in body.walk() for r in op.results} | set(body.args)
    edges = [e for op in body.ops if (e := edge_of(op, body, inside, varies, same)) is not None]
    if not edges:
        return []
    gone: set[Value] = {e.op.results[0] for e in edges}
    saved, total = len(edges), 0
    for op in body.ops:
        if not op.results or op.results[0].uniform or not op.row.pure or op.name in UNCOUNTED:
            continue
        total += 1
        if op.name in ("select", "pand", "por", "pnot") and any(a in gone for a in op.args):
            saved += 1
            if op.results[0].type is PRED:
                gone.add(op.results[0])
    return edges if saved * SHARE >= total else []


def edge_of(op: Op, body: Region, inside: set[Value], varies: set[Value], same: set[Value]) -> Edge | None:
    """A per-lane comparison as a condition on the induction variable; None for any other op."""
    if op.name != "cmp" or op.results[0].uniform or op.args[0].type is not I32:
        return None
    how = op.attrs["how"]
    a, b = op.args
    if how[0] == "u" and min(a.lo or 0, b.lo or 0) >= 0:
        how = "s" + how[1:]
    if how not in ("slt", "sle", "sgt", "sge"):
        return None
    first, second = (b, a) if how in ("slt", "sle") else (a, b)
    strict = how in ("slt", "sgt")  # a < b is b - a - 1 >= 0

    def whole(v: Value) -> bool:
        return (v.uniform or v in same) and v not in varies and v not in inside

    plain = difference(first, second)
    found = _edge(op, plain, strict, body.args[0], inside, whole, {})
    if found is not None and not any(_wild(v) and not whole(v) for v in plain.terms):
        return found
    small = _Small(whole)
    form = small.difference(first, second)
    return None if form is None else _edge(op, form, strict, body.args[0], inside, whole, small.assumed)


def _wild(v: Value) -> bool:
    """Whether nothing much is known of a number."""
    assert v.lo is not None and v.hi is not None
    return v.hi - v.lo >= 2 * ASSUMED


def _edge(
    op: Op, form: Linear, strict: bool, iv: Value, inside: set[Value], whole: Callable[[Value], bool],
    assumed: dict[Value, None],
) -> Edge | None:  # fmt: skip
    """The condition that a difference is not negative, not zero either where that is `strict`."""
    constant = form.constant - strict
    k = 0
    uniform: dict[Value, int] = {}
    low = high = 0
    for v, factor in form.terms.items():
        if v is iv:
            k = factor
            continue
        if v in inside:
            return None
        assert v.lo is not None and v.hi is not None
        least, most = (-ASSUMED, ASSUMED - 1) if v in assumed else (v.lo, v.hi)
        ends = sorted((least * factor, most * factor))
        if whole(v):
            uniform[v] = factor
            low, high = low + ends[0], high + ends[1]
        else:
            constant += ends[0]
    if not k or not -_LIMIT <= low + constant <= high + constant < _LIMIT:
        return None
    return Edge(op, k, uniform, constant, frozenset(assumed))


@dataclass
class _Small:
    """Sums that do not wrap if the numbers that nothing is known of are small. `whole`: whether a value is the same in
    all trips and waves, so that it can be looked at."""

    whole: Callable[[Value], bool]
    assumed: dict[Value, None] = field(default_factory=dict)

    def difference(self, a: Value, b: Value) -> Linear | None:
        """The form of a - b, as whole numbers; None where it may wrap all the same."""
        out, low, high = self.combined(self.form(a), self.form(b), -1)
        return out if -_LIMIT <= low and high < _LIMIT else None

    def combined(self, x: Form, y: Form, sign: int) -> Form:
        """The form of x + sign · y."""
        out = Linear(x[0].constant + sign * y[0].constant, dict(x[0].terms))
        for v, factor in y[0].terms.items():
            out.add(v, sign * factor)
        ends = sorted((sign * y[1], sign * y[2]))
        return out, x[1] + ends[0], x[2] + ends[1]

    def form(self, v: Value) -> Form:
        """A value as a sum, with its range."""
        assert v.lo is not None and v.hi is not None
        if isinstance(v.const, int):
            return Linear(v.const), v.const, v.const
        op = v.op
        found: Form | None = None
        if op is not None and op.name in ("add", "sub"):
            found = self.combined(self.form(op.args[0]), self.form(op.args[1]), 1 if op.name == "add" else -1)
        elif op is not None and op.name in ("shl", "mul") and isinstance(op.args[1].const, int):
            scale = 1 << op.args[1].const if op.name == "shl" else op.args[1].const
            found = self.combined((Linear(), 0, 0), self.form(op.args[0]), scale)
        elif op is not None and op.name in ("min_s", "max_s") and isinstance(op.args[1].const, int):
            cut, inner = op.args[1].const, self.form(op.args[0])
            if inner[2] <= cut if op.name == "min_s" else inner[1] >= cut:  # it changes no small number
                found = inner
        if found is not None and -_LIMIT <= found[1] and found[2] < _LIMIT:
            return found[0], max(found[1], v.lo), min(found[2], v.hi)
        own = Linear(terms={v: 1})
        if _wild(v) and self.whole(v):
            self.assumed[v] = None
            return own, -ASSUMED, ASSUMED - 1
        return own, v.lo, v.hi


def _cut(b: Builder, op: Op, edges: Sequence[Edge], env: dict[Value, Value], hook: Any) -> None:
    """The loop as up to three: trips before all masks hold, trips without masks, trips behind; results go on from
    one to the next."""
    b.set_loc(op.loc)
    lo, hi = env[op.args[0]], env[op.args[1]]
    first = [e for e in edges if e.k > 0]
    last = [e for e in edges if e.k < 0]
    begin, end = lo, hi
    for at in _thresholds(b, first, env):
        begin = b.max_s(begin, at)
    for at in _thresholds(b, last, env):
        end = b.min_s(end, at)
    begin = b.min_s(begin, hi)
    assumed = {v: None for e in edges for v in sorted(e.assumed, key=lambda v: v.id)}
    if assumed:
        small = b.true
        for v in assumed:
            small = b.pand(small, b.cmp("ult", b.add(_one(b, env[v]), ASSUMED), 2 * ASSUMED))
        begin = b.select(small, begin, hi if first else lo)
        end = b.select(small, end, begin)
    end = b.max_s(end, begin)
    ahead = begin if first else end
    surely = ahead.lo is not None and lo.hi is not None and ahead.lo > lo.hi
    carried = [env[a] if surely else _written(b, env[a]) for a in op.args[3:]]
    if first:  # where nothing is known: the range in which the others hold may end before this one
        carried = _part(b, op, lo, _behind_one(b, op, lo, begin), carried, set(), env, hook, "masked")
        _drain(b, op)
    carried = _part(b, op, begin, end, carried, {e.op for e in edges}, env, hook, "whole")
    if last:
        _drain(b, op)
        hi = _behind_one(b, op, end, hi)
        carried = _part(b, op, end, hi, carried, {e.op for e in first}, env, hook, "masked")
    for old, new in zip(op.results, carried):
        env[old] = new


def _written(b: Builder, v: Value) -> Value:
    """What the first part carries in, if it may have no trips: the next part is then handed what no product has
    overwritten."""
    return b.zero(v.type) if v.op is not None and v.op.name == "undefined" else v


def _behind_one(b: Builder, op: Op, lo: Value, hi: Value) -> Value:
    """The end of a part; not a known number where that is a single trip whose products overlap with those of the trip
    before: as straight code beside the other part's loop it takes more registers than a warpgroup has (attention of
    head size 128 on 1111 keys: ptxas 13 spills 96 bytes and lets products wait for each other). Where trips do not
    overlap, straight code takes fewer than the loop (gradients of head size 64, 128 keys by 96 queries, added up by
    atomics: none spilled, 56 to 120 bytes by the loop). Computing warpgroups have numbers below the copying one's, of
    which neither this compiler nor ptxas makes the 1 that it is."""
    notes = b.kernel.notes.get("lowering")
    if notes is None or not (notes.strategy and notes.strategy.specialize and notes.strategy.overlapped):
        return hi
    if not _starts_products(op):
        return hi
    if lo.const is None or hi.const is None or int(hi.const) - int(lo.const) != 1:
        return hi
    return b.add(lo, b.max_s(b.sub(b.shl(b.wave(), 1), 2 * (b.kernel.waves - 2)), 1))


def _starts_products(op: Op) -> bool:
    return any(x.name == "matrix.start" for x in op.regions[0].walk())


def _drain(b: Builder, op: Op) -> None:
    """Between two parts no matrix instruction is on its way: assemblers overlap them within a loop only."""
    if _starts_products(op):
        b.mma_wait(0)


def _one(b: Builder, v: Value) -> Value:
    """A value that all lanes have alike, as a number of the workgroup."""
    return v if v.uniform else b.readfirst(v, same=True)


def _thresholds(b: Builder, edges: Sequence[Edge], env: dict[Value, Value]) -> list[Value]:
    """Per edge the trip from which on it holds (k > 0) or up to which it holds, that one left out (k < 0)."""
    found: dict[Value, None] = {}
    # Of edges that differ in their constants the smallest decides.
    least: dict[Any, Edge] = {}
    for e in edges:
        key = (e.k, tuple((v.id, f) for v, f in e.uniform.items()))
        if key not in least or e.constant < least[key].constant:
            least[key] = e
    for e in least.values():
        rest = b.const(e.constant)
        for v, factor in e.uniform.items():
            rest = b.add(rest, b.mul(_one(b, env[v]), factor))
        if e.k > 0:  # k i + rest >= 0 from i = ceil(-rest / k)
            found[b.sub(0, b.floordiv(rest, e.k))] = None
        else:  # rest >= -k i up to i = floor(rest / -k)
            found[b.add(b.floordiv(rest, -e.k), 1)] = None
    return list(found)


def _part(
    b: Builder, op: Op, lo: Value, hi: Value, carried: list[Value], true: set[Op], env: dict[Value, Value], hook: Any,
    mark: str,
) -> list[Value]:  # fmt: skip
    """The loop from `lo` to `hi` with some comparisons taken for true."""
    body = op.regions[0]
    if lo.const is not None and hi.const is not None and lo.const >= hi.const:
        return carried

    def inner(x: Op) -> bool:
        if x in true:
            env[x.results[0]] = b.true
            return True
        return bool(hook(x))

    b.set_loc(op.loc)
    label = op.attrs.get("label", "")
    uniform = [a.uniform for a in body.args[1:]]
    loop = b.for_(lo, hi, env[op.args[2]], carried, label=label, uniform=uniform)
    loop.op.attrs.update({k: v for k, v in op.attrs.items() if k not in ("label", "min_trips", "trips_multiple")})
    loop.op.attrs["part"] = mark
    with loop:
        for old, new in zip(body.args, (loop.iv, *loop.carried)):
            env[old] = new
        copy_region(b, body, env, inner)
        b.set_loc(body.ops[-1].loc)
        loop.yield_([env[a] for a in body.ops[-1].args])
    return list(loop.results)
