"""The builder's engine: constants, folding, numbering, placing, open regions. `build_values` and `builder` add the ops.

How a pure op is made (`_int` for binary integers, `_folded` and `_pure` for the rest): constants fold, then the rows of
`fold_rules` are tried, then the op is looked up among those of the outermost open region in which its operands exist,
its facts are derived (an integer with one possible value is a constant), and it is appended there. A loop is appended
to its parent when it is closed, so what was hoisted out of it stands before it.

INVARIANTS: `_depth[v.id]` is the depth of the region that defines v; a frame's table holds pure ops of that region.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.demote import demote
from wavedsl.ir.kernel.facts import BITS, MASKS, TRANSFER, full, induction_facts, leaf_facts, normalise, wrap
from wavedsl.ir.kernel.fold_matchers import FOLDERS
from wavedsl.ir.kernel.fold_rules import CONSTANT
from wavedsl.ir.kernel.kernel_ir import (
    B32,
    B64,
    BUFFER,
    F32,
    F64,
    I32,
    I64,
    PRED,
    ROWS,
    Kernel,
    Op,
    OpRow,
    Region,
    Type,
    Value,
)  # fmt: skip
from wavedsl.ir.kernel.open_regions import If, Loop
from wavedsl.ir.loc import Loc
from wavedsl.ir.target import Target

Operand = Any
"""A Value, or a Python int where an integer is expected."""

PINNED = frozenset({"mma", "mma.scaled"})
"""Pure ops that keep their place all the same: their order is the schedule."""

_FIXED = {"i32": I32, "i64": I64, "f32": F32, "f64": F64, "b32": B32, "b64": B64, "pred": PRED, "buffer": BUFFER}


class _Frame:
    """An open region: the ops so far and the pure ops in it by number."""

    __slots__ = ("is_loop", "ops", "region", "table")

    def __init__(self, region: Region, is_loop: bool):
        self.region = region
        self.ops = region.ops
        self.table: dict[Any, Value] = {}
        self.is_loop = is_loop


def new_kernel(
    name: str = "kernel",
    target: str = "",
    *,
    wave_size: int = 64,
    waves: int = 1,
    params: Sequence[Any] = (),
    **rest: Any,
) -> Kernel:
    """An empty kernel to build into."""
    return Kernel(name, target, list(params), Region(), wave_size, waves, **rest)


class Core:
    """What `Values` and, on top of it, `Builder` stand on. One builder fills one empty kernel.

    `target` gives the ranges of immediates and whether uniform parts of global addresses go to `soff` (AMD); without it
    immediates of up to 4095 (global) and 65535 bytes (shared) are split off and uniform parts stay in `voff`.
    """

    def __init__(self, kernel: Kernel, target: Target | None = None):
        if kernel.body.ops:
            raise ValueError("a builder needs an empty kernel; use kernel_passes.rebuild to change one")
        self.kernel = kernel
        self.target = target
        self._frames: list[_Frame] = [_Frame(kernel.body, False)]
        self._stay = 0
        """Depth of the innermost open branch whose work is not done before it is known to be taken."""
        self._depth: list[int] = []
        """Depth of the region that defines each value, by id."""
        self._consts: dict[Any, Value] = {}
        self.small: dict[int, tuple[Value, DType, int]] = {}
        """Numbers that integer arithmetic unpacked, by id: (word, dtype, index)."""
        self._loc: Loc | None = None
        self.one_thread = False
        """Whether what is built runs in one thread of its wave."""
        self.role_barrier: dict[str, int] = {}
        """Attributes of barriers: which one and how many threads, where only some waves of the workgroup meet."""
        self.matrix_reads_shared = False
        """Whether matrix instructions read shared memory themselves: what threads write there is fenced."""
        # Immediates that memory ops are given: not below 0, so that bases stay addresses inside the array.
        self.global_range = (0, target.global_imm[1] if target is not None else 4095)
        self.shared_range = (0, target.shared_imm[1] if target is not None else 65535)
        self.true = self.const(True, PRED)
        self.false = self.const(False, PRED)

    # -------------------------------------------------------------------------------------------------- where we are

    @property
    def region(self) -> Region:
        """The region that ops are put into."""
        return self._frames[-1].region

    @contextmanager
    def loc(self, loc: Loc | None) -> Iterator[None]:
        """Ops made inside carry this location (None leaves the outer one)."""
        outer = self._loc
        if loc is not None:
            self._loc = loc
        try:
            yield
        finally:
            self._loc = outer

    def set_loc(self, loc: Loc | None) -> None:
        """Give ops made from here on this location."""
        self._loc = loc

    @property
    def current_loc(self) -> Loc | None:
        return self._loc

    def depth(self, v: Value) -> int:
        """How many regions enclose the definition of `v` (0: the kernel's body)."""
        return self._depth[v.id]

    # --------------------------------------------------------------------------------------------- moving what is built

    def here(self) -> int:
        """A position in the open region, for `cut`."""
        return len(self._frames[-1].ops)

    def cut(self, position: int) -> list[Op]:
        """Take the open region's ops from a position on out of it. All but dead ones are to be placed again before
        anything is built that may use them."""
        ops = self._frames[-1].ops
        taken = ops[position:]
        del ops[position:]
        return taken

    def place(self, ops: Sequence[Op]) -> None:
        """Put ops that were cut out at the end of the open region."""
        self._frames[-1].ops.extend(ops)

    def fail(self, message: str, hint: str = "") -> CompileError:
        """A CompileError at the current location."""
        return CompileError(message, self._loc, hint)

    # ------------------------------------------------------------------------------------------------------ constants

    def const(self, value: Any, type: Type = I32) -> Value:
        """A constant; tuples repeat it. See CONSTANTS in the module."""
        kind = type.kind
        key: Any
        if kind == "i32":
            value = wrap(int(value), 32)
            key = (type, value)
        elif kind == "i64":
            value = wrap(int(value), 64)
            key = (type, value)
        elif kind in ("f32", "f64"):
            value = float(value)
            if kind == "f32":
                value = _to_f32(value)
            key = (type, struct.pack("<d", value))
        elif kind == "pred":
            value = bool(value)
            key = (type, value)
        elif kind in ("b32", "b64"):
            value = int(value) & MASKS[BITS[kind]]
            key = (type, value)
        else:
            raise self.fail(f"no constant of type {type}")
        found = self._consts.get(key)
        if found is None:
            op = Op("const", (), {"value": value}, self._loc)
            found = self._value(type, True, op, 0)
            if kind in ("i32", "i64"):
                found.lo = found.hi = value
                found.zeros = ~value & MASKS[BITS[kind]]
            op.results = (found,)
            self._frames[0].ops.append(op)
            self._consts[key] = found
        return found

    def i32(self, value: int) -> Value:
        return self.const(value, I32)

    def i64(self, value: int) -> Value:
        return self.const(value, I64)

    def f32(self, value: float) -> Value:
        return self.const(value, F32)

    def f64(self, value: float) -> Value:
        return self.const(value, F64)

    def zero(self, type: Type) -> Value:
        """The all-zero constant of any type."""
        return self.const(0, type)

    # ------------------------------------------------------------------------------------------------- making values

    def _value(self, type: Type, uniform: bool, op: Op | None, depth: int, region: Region | None = None) -> Value:
        v = Value(len(self._depth), type, uniform, op, region)
        self._depth.append(depth)
        return v

    def _int(self, name: str, a: Operand, b: Operand) -> Value:
        """A binary integer op: coerce, fold, number, place."""
        if b.__class__ is int:
            b = self.const(b, I32 if a.__class__ is int or name in _SHIFTS else a.type)
        if a.__class__ is int:
            a = self.const(a, b.type if name not in _SHIFTS else I32)
        t = a.type
        if b.type is not t and name not in _SHIFTS:
            raise self.fail(f"{name} of {a.type} and {b.type}: both operands must have one type")
        ao, bo = a.op, b.op
        bits = 32 if t.kind == "i32" else 64
        a_const = ao is not None and ao.name == "const"
        b_const = bo is not None and bo.name == "const"
        if a_const and b_const:
            x, y = ao.attrs["value"], bo.attrs["value"]
            if y or name not in ("udiv", "urem"):
                return self.const(CONSTANT[name](x, y, bits), t)
        elif name in _COMMUTES and (a_const or (not b_const and a.id > b.id)):
            a, b = b, a
        fold = FOLDERS.get(name)
        if fold is not None:
            r = fold(self, t, bits, a, b)
            if r is not None:
                return r
        depths = self._depth
        da, db = depths[a.id], depths[b.id]
        if db > da:
            da = db
        frame = self._frames[da]
        key = (name, a.id, b.id)
        found = frame.table.get(key)
        if found is not None:
            return found
        lo, hi, zeros = TRANSFER[name]((a, b), _NO_ATTRS, bits)
        if lo == hi:
            return self.const(lo, t)
        op = Op(name, (a, b), None, self._loc)
        v = Value(len(depths), t, a.uniform and b.uniform, op)
        depths.append(da)
        v.lo, v.hi, v.zeros = lo, hi, zeros
        op.results = (v,)
        frame.ops.append(op)
        frame.table[key] = v
        return v

    def _pure(self, name: str, args: tuple[Value, ...], t: Type, attrs: dict[str, Any] | None = None) -> Value:
        """Number and place a pure op that has been folded."""
        depths = self._depth
        d = self._stay
        uniform = True
        ids = []
        for a in args:
            i = a.id
            ids.append(i)
            if depths[i] > d:
                d = depths[i]
            if not a.uniform:
                uniform = False
        key = (name, t, tuple(ids), tuple(attrs.values())) if attrs else (name, t, tuple(ids))
        row = ROWS[name]
        if row.uniform != "args":
            uniform = row.uniform == "always"
        frame = self._frames[d]
        found = frame.table.get(key)
        if found is not None:
            return found
        facts = None
        if t is I32 or t is I64:
            bits = 32 if t is I32 else 64
            rule = TRANSFER.get(name)
            if not args:
                facts = leaf_facts(self.kernel, name, attrs or _NO_ATTRS, t)
            elif rule is not None:
                facts = rule(args, attrs or _NO_ATTRS, bits)
            else:
                facts = full(bits)
            if facts[0] == facts[1]:
                return self.const(facts[0], t)
        op = Op(name, args, attrs, self._loc)
        v = Value(len(depths), t, uniform, op)
        depths.append(d)
        if facts is not None:
            v.lo, v.hi, v.zeros = facts
        op.results = (v,)
        frame.ops.append(op)
        frame.table[key] = v
        return v

    def _effect(self, name: str, args: tuple[Value, ...], attrs: dict[str, Any], result: Type | None = None) -> Op:
        """Append an op that keeps its place."""
        op = Op(name, args, attrs, self._loc)
        frame = self._frames[-1]
        if result is not None:
            row = ROWS[name]
            uniform = row.uniform == "always" or (row.uniform == "args" and all(a.uniform for a in args))
            v = self._value(result, uniform, op, len(self._frames) - 1)
            if result is I32 or result is I64:
                bits = BITS[result.kind]
                rule = TRANSFER.get(name)
                v.lo, v.hi, v.zeros = rule(args, attrs, bits) if rule is not None else full(bits)
            op.results = (v,)
        frame.ops.append(op)
        return op

    def _values(self, row: OpRow, args: Sequence[Any]) -> tuple[Value, ...]:
        """Python ints among operands become i32 constants, bools predicates."""
        out = []
        for a in args:
            if a.__class__ is bool:
                a = self.true if a else self.false
            elif a.__class__ is int:
                a = self.const(a, I32)
            out.append(a)
        return tuple(out)

    def _result_type(self, row: OpRow, args: tuple[Value, ...], type: Type | None) -> Type | None:
        result = row.result
        if result == "same":
            return args[0].type
        if result == "none":
            return None
        if result == "attr":
            if type is None:
                raise self.fail(f"{row.name} needs the type of its result")
            return type
        if result == "second":
            return args[1].type
        if result == "third":
            return args[2].type
        return _FIXED[result]

    def _i32(self, a: Operand) -> Value:
        return self.const(a, I32) if a.__class__ is int else a

    def at_least(self, v: Value, low: int) -> Value:
        """`v`, said to be no less than `low`: what the caller knows of the terms of a sum and intervals do not, once
        the sum is regrouped."""
        if v.lo is not None and v.hi is not None and v.lo < low <= v.hi:
            v.lo, v.hi, v.zeros = normalise(low, v.hi, v.zeros, BITS[v.type.kind])
        return v

    def _folded(self, name: str, args: tuple[Value, ...], t: Type, bits: int = 32) -> Value:
        """A pure op whose rules are tried first."""
        fold = FOLDERS.get(name)
        if fold is not None:
            r = fold(self, t, bits, *args)
            if r is not None:
                return r
        return self._pure(name, args, t)

    def _regroup(self, x: Value, y: Value, z: Value) -> bool:
        """Whether (x + y) + z is better as (y + z) + x: y + z moves out of a loop, or onto the scalar unit."""
        depths = self._depth
        dx, dy, dz = depths[x.id], depths[y.id], depths[z.id]
        if z.op is not None and z.op.name == "const":
            return False  # constants stay last
        inner = dy if dy > dz else dz
        if inner < dx:
            return True
        return inner <= dx and not x.uniform and y.uniform and z.uniform

    def _settled(self, x: Value) -> bool:
        """Whether `x` is uniform for certain: a loop takes carried values for uniform until it closes."""
        return x.uniform and not any(f.is_loop for f in self._frames[1 : self.depth(x) + 1])

    def _levels(self, x: Value, y: Value) -> bool:
        """Whether x and y live at different depths, so that a product of their sum is better a sum of products."""
        return self._depth[x.id] != self._depth[y.id]

    # -------------------------------------------------------------------------------------------------------- control

    def for_(
        self, lo: Operand, hi: Operand, step: Operand = 1, inits: Sequence[Any] = (), *, label: str = "",
        min_trips: int = 0, uniform: Sequence[bool] | None = None, again: bool = False,
    ) -> Loop:  # fmt: skip
        """`with b.for_(…) as loop:` — the body sees loop.iv and loop.carried and ends with loop.yield_(next values).

        `min_trips` is a lower bound of the number of trips. `uniform` says which carried values stay uniform; without
        it integer scalars and predicates are, as long as their init is uniform and the body yields a uniform value
        (else the body is re-marked per lane), and everything else is per lane. `again`: the first carried value is a
        uniform predicate, and a trip that yields false for it is the last.
        """
        lo, hi, step = self._i32(lo), self._i32(hi), self._i32(step)
        if step.lo is not None and step.lo <= 0:
            raise self.fail("the step of a loop must be known to be positive")
        for what, v in (("first value", lo), ("bound", hi), ("step", step)):
            if not v.uniform:
                raise self.fail(f"the {what} of a loop must be uniform over the wave")
        values = self._values(ROWS["for"], inits)
        depth = len(self._frames)
        attrs: dict[str, Any] = {"label": label}
        if lo.lo is not None and lo.hi is not None and hi.lo is not None and lo.hi < hi.lo:
            min_trips = max(min_trips, 1)
        if min_trips:
            attrs["min_trips"] = min_trips
        if again:
            attrs["again"] = True
        op = Op("for", (lo, hi, step, *values), attrs, self._loc)
        region = Region(depth, op)
        op.regions = (region,)
        iv = self._value(I32, True, None, depth, region)
        iv.lo, iv.hi, iv.zeros = induction_facts(lo, hi, step)
        iv.name = "i"
        region.args.append(iv)
        for k, init in enumerate(values):
            if uniform is not None:
                same = uniform[k] and init.uniform
            else:
                same = init.uniform and init.type in (I32, I64, PRED, BUFFER)
            arg = self._value(init.type, same, None, depth, region)
            if arg.type is I32 or arg.type is I64:
                arg.lo, arg.hi, arg.zeros = full(BITS[arg.type.kind])
            region.args.append(arg)
        return Loop(self, op, region, uniform)

    def if_(
        self, cond: Value, stay: bool = False, usual: bool = False, inside: bool = False, one_of: int | None = None,
        busiest: int | None = None,
    ) -> If:  # fmt: skip
        """`with b.if_(c) as br: … br.yield_(…)`, then optionally `with br.orelse(): … br.yield_(…)`; br.results.

        What needs nothing of a branch is placed before it, as early as its operands are there; with `stay` arithmetic
        on floats and tuples is left inside: a wave that does not take the branch saves it. `usual`: nearly all waves
        take the first branch; what counts instructions counts that one. `one_of`: of so many workgroups one takes it,
        and so much less of it is counted; `busiest`: the workgroup that has most to do. `inside`: waves take one each
        of several such branches, so what only one of them needs goes there on every chip (`into_branches`).
        """
        if not cond.uniform:
            raise self.fail("the condition of an `if` must be uniform over the wave; use select or a mask per lane")
        depth = len(self._frames)
        marks = {"stay": stay, "usual": usual, "inside": inside, "one_of": one_of, "busiest": busiest}
        op = Op("if", (cond,), {k: v for k, v in marks.items() if v}, self._loc)
        op.regions = (Region(depth, op), Region(depth, op))
        return If(self, op)

    def _open(self, region: Region, is_loop: bool) -> None:
        self._frames.append(_Frame(region, is_loop))
        if region.parent is not None and region.parent.attrs.get("stay"):
            self._stay = len(self._frames) - 1

    def _yield(self, region: Region, values: tuple[Any, ...], types: tuple[Type, ...] | None) -> None:
        if self._frames[-1].region is not region:
            raise self.fail("yield outside the innermost open region")
        if region.ops and region.ops[-1].name == "yield":
            raise self.fail("the region has yielded already")
        args = []
        for k, v in enumerate(values):
            if v.__class__ in (int, float, bool) and types is not None and k < len(types):
                v = self.const(v, types[k])
            args.append(v)
        found = tuple(v.type for v in args)
        if types is not None and found != types:
            raise self.fail(
                f"yield of ({', '.join(map(str, found))}), but the region carries ({', '.join(map(str, types))})"
            )
        region.ops.append(Op("yield", tuple(args), {}, self._loc))

    def _end(self, region: Region) -> Op:
        """Pop the frame; an empty yield is supplied where nothing is carried."""
        self._frames.pop()
        if self._stay == len(self._frames):
            parents = (f.region.parent for f in self._frames)
            self._stay = max((d for d, x in enumerate(parents) if x is not None and x.attrs.get("stay")), default=0)
        if not region.ops or region.ops[-1].name != "yield":
            if len(region.args) > 1:
                raise self.fail("a loop with carried values must end with yield_")
            region.ops.append(Op("yield", (), {}, self._loc))
        return region.ops[-1]

    def _close_loop(self, loop: Loop) -> None:
        op, region = loop.op, loop.region
        last = self._end(region)
        wrong = [a for a, v in zip(region.args[1:], last.args) if a.uniform and not v.uniform]
        if wrong:
            if loop._declared is not None:
                raise self.fail(f"carried value {wrong[0]} was declared uniform, but the body yields a per-lane value")
            demote(region, wrong)
        depth = len(self._frames) - 1
        results = []
        for arg, init, out in zip(region.args[1:], op.args[3:], last.args):
            r = self._value(arg.type, arg.uniform, op, depth)
            if r.type is I32 or r.type is I64:
                assert init.lo is not None and init.hi is not None and out.lo is not None and out.hi is not None
                r.lo, r.hi = min(init.lo, out.lo), max(init.hi, out.hi)
                r.zeros = init.zeros & out.zeros
            results.append(r)
        op.results = tuple(results)
        self._frames[-1].ops.append(op)

    def _close_branch(self, op: Op, which: int) -> None:
        self._end(op.regions[which])
        other = op.regions[1]
        if not which:
            other.ops.append(Op("yield", (), {}, self._loc))  # replaced when an else branch opens
        first, second = op.regions[0].ops[-1].args, other.ops[-1].args
        if len(first) == len(second):
            depth = len(self._frames) - 1
            results = []
            for a, c in zip(first, second):
                r = self._value(a.type, a.uniform and c.uniform, op, depth)
                if r.type is I32 or r.type is I64:
                    assert a.lo is not None and a.hi is not None and c.lo is not None and c.hi is not None
                    r.lo, r.hi, r.zeros = min(a.lo, c.lo), max(a.hi, c.hi), a.zeros & c.zeros
                results.append(r)
            op.results = tuple(results)
        elif which:
            raise self.fail("the two branches of an `if` must yield the same values")
        self._frames[-1].ops.append(op)

    def _open_else(self, op: Op) -> None:
        ops = self._frames[-1].ops
        if not ops or ops[-1] is not op:
            raise self.fail("an else branch must follow its `if` at once")
        ops.pop()
        op.results = ()
        op.regions[1].ops.clear()
        self._open(op.regions[1], False)

    def finish(self) -> Kernel:
        """The kernel; complains about regions left open and an `if` whose branches do not match."""
        if len(self._frames) != 1:
            raise self.fail("a loop or branch is still open")
        return self.kernel


def _to_f32(value: float) -> float:
    """The nearest single, as a Python float (infinite beyond the range)."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


_SHIFTS = frozenset({"shl", "lshr", "ashr"})
_COMMUTES = frozenset(name for name in CONSTANT if ROWS[name].commutes)
_NO_ATTRS: dict[str, Any] = {}
