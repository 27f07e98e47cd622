"""Kernel IR to PTX instructions over virtual registers.

In: a `Kernel`. Out: a `Code` (`machine`). The idea: one function per kernel IR op, looked up by name; every value is a
tuple of registers or constants, so tuples, slices and same-width bit casts cost nothing. Addresses are built here,
because only PTX wants them as one 64-bit register: base, uniform offset and lane offset are added each at the outermost
loop level at which they are known, and accesses that differ in their immediate share a register. Invariants: PTX has no
buffer bounds, so only a mask keeps an access inside; every `add`, `sub` and `mul` of floats says `.rn`, without which
ptxas may fuse them; float comparisons and minima follow IEEE (the number wins over NaN).
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from wavedsl.codegen.ptx import select_async, select_bulk, select_convert, select_entry, select_memory, select_numbers
from wavedsl.codegen.ptx.isa import Inst, lookup
from wavedsl.codegen.ptx.lane_reductions import lane_reductions
from wavedsl.codegen.ptx.machine import UNDEFINED, Code, Copy, Imm, Ins, Label, Loop, Operand, Reg, Symbol
from wavedsl.codegen.ptx.mma import of_halves
from wavedsl.ir import dtypes as dt
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Type, Value, counts, source_steps
from wavedsl.ir.kernel.raised_pairs import raised
from wavedsl.ir.loc import Loc

SHARED_SYMBOL = "smem"
CLUSTER_SHIFT = 24
"""Bits of a shared address below the workgroup's rank in its cluster (CUTLASS: `Sm100MmaPeerBitMask`)."""
INT_MAX = (1 << 31) - 1

_KIND = {
    "pred": "pred",
    "i32": "b32",
    "f32": "b32",
    "b32": "b32",
    "i64": "b64",
    "f64": "b64",
    "b64": "b64",
    "buffer": "b64",
}


@functools.lru_cache(maxsize=4096)
def row(target: str, *words: str) -> Inst:
    """The instruction of an opcode and its modifiers, from the tables. Raises CompileError if they have none."""
    return lookup(".".join(words), target)


class Scope:
    """One nesting level: where its code goes, what it has computed, and for a loop the block before it."""

    __slots__ = ("before", "cache", "depth", "stream")

    def __init__(self, depth: int, stream: list[Any], before: list[Any] | None = None):
        self.depth = depth
        self.stream = stream
        self.before = before
        self.cache: dict[Any, Any] = {}


class Selector:
    """The state of selecting one kernel."""

    def __init__(self, kernel: Kernel, target: str):
        self.kernel = kernel
        self.target = target
        self.code = Code()
        self.out = self.code.body
        self.scopes = [Scope(0, self.out)]
        self.level = 0
        self.values: dict[int, tuple[Operand, ...]] = {}
        self.loc: Loc | None = None
        self.users: dict[int, list[Op]] = {}
        self.user_region: dict[int, Region] = {}
        _count_uses(kernel.body, self.users, self.user_region)
        pairs = [op for op in kernel.body.walk() if op.name == "pair"]
        self.raised = raised(pairs, {a.id: len(self.users[a.id]) for op in pairs for a in op.args})
        self.reductions = lane_reductions(kernel.body.walk(), self.users)
        self.current = kernel.body
        self.labels: set[str] = set()
        self.order: dict[Op, Any] = {}
        """Where each op stands (`select_async`)."""
        self.addends: dict[Op, tuple[Reg, ...]] = {}
        """Registers that asynchronous products of the group that is begun take their addends in."""
        products = [op.attrs["atom"] for op in kernel.body.walk() if op.name == "mma"]
        self.tall_products = any(atom.m == 16 and atom.a_dtype is dt.f64 for atom in products)
        """Whether there are products of f64 with 16 rows (`select_numbers._select_64`)."""
        self.prologue: list[Any] = []
        self.out.append(self.prologue)

    # ------------------------------------------------------------------------------------------------ building blocks

    def new(self, kind: str) -> Reg:
        self.code.registers += 1
        return Reg(self.code.registers, kind, self.level)

    def emit(self, words: tuple[str, ...], *args: Operand, guard: Reg | None = None, note: str = "") -> None:
        self.out.append(Ins(row(self.target, *words), args, self.loc, guard, False, note))

    def set(self, kind: str, words: tuple[str, ...], *args: Operand) -> Reg:
        """Emit an instruction whose first operand is a new register of this class, and return the register."""
        dst = self.new(kind)
        self.emit(words, dst, *args)
        return dst

    def of(self, value: Value) -> tuple[Operand, ...]:
        """The registers or constants that hold a value."""
        found = self.values.get(value.id)
        if found is None:
            raise CompileError(f"{value} is used before it is defined", self.loc, "this is an error of the compiler")
        return found

    def one(self, value: Value) -> Operand:
        return self.of(value)[0]

    def reg(self, operand: Operand, kind: str = "b32", readers: str = "all") -> Reg:
        """The operand itself, or a register that holds the constant, one for all `readers` of that name."""
        if type(operand) is Reg:
            return operand
        key = ("const", readers, kind, operand.kind, repr(operand.value))

        def build() -> Reg:
            word = operand.kind if operand.kind != "i" else kind
            if kind == "pred":
                return self.set("pred", ("setp", "ne", "s32"), Imm(int(bool(operand.value))), Imm(0))
            return self.set(kind, ("mov", word), operand)

        return self.hoisted(key, 0, build)

    def regs(self, value: Value, readers: str = "all") -> tuple[Reg, ...]:
        kind = _KIND[value.type.kind]
        return tuple(self.reg(c, kind, readers) for c in self.of(value))

    def copyable(self, dst: Reg, source: Operand) -> Operand:
        """A source for a parallel copy: predicates have no constants."""
        return self.reg(source, "pred") if dst.kind == "pred" else source

    def level_of(self, *operands: Operand) -> int:
        return max((o.level for o in operands if type(o) is Reg), default=0)

    def hoisted(self, key: Any, level: int, build: Callable[[], Any]) -> Any:
        """`build()` once, before the outermost loop in which nothing at `level` changes; found again by `key`."""
        for scope in reversed(self.scopes):
            if key in scope.cache:
                return scope.cache[key]
        home, stream = self.scopes[-1], self.scopes[-1].stream
        for scope in self.scopes[level + 1 :]:
            if scope.before is not None:
                home, stream = self.scopes[scope.depth - 1], scope.before
                break
        saved = self.out, self.level
        self.out, self.level = stream, home.depth
        made = build()
        self.out, self.level = saved
        home.cache[key] = made
        return made

    def mask(self, *values: Value) -> Reg | bool:
        """The conjunction of predicates: True (no predicate needed), False, or a register."""
        out: Reg | None = None
        for v in values:
            c = self.one(v)
            if type(c) is Imm:
                if not c.value:
                    return False
            elif out is None or out is c:
                out = c
            else:
                out = self._both(out, c)
        return True if out is None else out

    def _both(self, a: Reg, b: Reg) -> Reg:
        return self.hoisted(("and", a.id, b.id), self.level_of(a, b), lambda: self.set("pred", ("and", "pred"), a, b))

    def zext(self, r: Reg) -> Reg:
        return self.hoisted(("zext", r.id), r.level, lambda: self.set("b64", ("cvt", "u64", "u32"), r))

    def sext(self, r: Reg) -> Reg:
        return self.hoisted(("sext", r.id), r.level, lambda: self.set("b64", ("cvt", "s64", "s32"), r))

    def shared_base(self, ranked: bool = True) -> Reg:
        """The shared array's address, in a register of the outermost level.

        In a cluster bits 24 and above hold the workgroup's rank (ptxas makes a symbol's address of `SR_CgaCtaId << 24`
        and its place); without `ranked` they are cleared.
        """
        self.code.shared_symbol = SHARED_SYMBOL
        base: Reg = self.hoisted(("shared base",), 0, lambda: self.set("b32", ("mov", "u32"), Symbol(SHARED_SYMBOL)))
        if ranked:
            return base
        place = Imm((1 << CLUSTER_SHIFT) - 1)
        own: Reg = self.hoisted(("own shared base",), 0, lambda: self.set("b32", ("and", "b32"), base, place))
        return own

    # ------------------------------------------------------------------------------------------------------ structure

    def region(self, region: Region) -> tuple[tuple[Operand, ...], ...]:
        """Select a region's ops; returns what it yields."""
        outer, self.current = self.current, region
        yields: tuple[tuple[Operand, ...], ...] = ()
        for op in region.ops:
            self.loc = op.loc
            if op.name == "yield":
                yields = tuple(self.of(v) for v in op.args)
                break
            if op.results and op.results[0].id in self.reductions.inside:
                self.values[op.results[0].id] = ()
                continue
            try:
                select = _SELECT[op.name]
            except KeyError:
                raise CompileError(f"the PTX back end has no selection for kernel IR op {op.name}", op.loc) from None
            select(self, op)
        self.current = outer
        return yields

    def branch(self, label: str, condition: Reg, negated: bool = False) -> None:
        """Go to a label where a condition holds (`negated`: does not)."""
        self.out.append(Ins(row(self.target, "bra"), (Symbol(label, "label"),), self.loc, condition, negated))

    def label(self, wanted: str) -> str:
        """A label that no other in this kernel has."""
        name = "$" + (re.sub(r"\W", "_", wanted, flags=re.ASCII) or "L")
        n, unique = 1, name
        while unique in self.labels:
            n += 1
            unique = f"{name}_{n}"
        self.labels.add(unique)
        return unique


def select(kernel: Kernel, target: str) -> Code:
    """Select a whole kernel for a PTX target such as `sm_80`. Raises CompileError for what the target lacks."""
    s = Selector(kernel, target)
    s.region(kernel.body)
    s.loc = None
    s.emit(("ret",))
    return s.code


def _count_uses(body: Region, users: dict[int, list[Op]], region: dict[int, Region]) -> None:
    """The users of each value, and the region of the last one."""
    for op in body.ops:
        for v in op.args:
            users.setdefault(v.id, []).append(op)
            region[v.id] = body
        for inner in op.regions:
            _count_uses(inner, users, region)


def constant(type_: Type, value: Any) -> tuple[Operand, ...]:
    """The operands of a constant of any type but `buffer`."""
    kind = type_.kind
    if kind in ("f32", "f64"):
        imm = Imm(float(value), kind)
    elif isinstance(value, float):
        wide = _KIND[kind] == "b64"
        imm = Imm(struct.unpack("<q" if wide else "<i", struct.pack("<d" if wide else "<f", value))[0])
    else:
        imm = Imm(int(value))
    return (imm,) * type_.n


# ----------------------------------------------------------------------------------------------- constants and identity


def _const(s: Selector, op: Op) -> None:
    s.values[op.result.id] = constant(op.result.type, op.attrs["value"])


def _param(s: Selector, op: Op) -> None:
    index = op.attrs["index"]
    key = ("param", index)
    found = s.scopes[0].cache.get(key)
    if found is None:
        saved = s.out, s.level, s.loc
        s.out, s.level, s.loc = s.prologue, 0, None
        found = s.scopes[0].cache[key] = (select_entry.load_param(s, s.kernel.params[index], op.result.type),)
        s.out, s.level, s.loc = saved
    s.values[op.result.id] = found


def _special(name: str) -> Callable[[Selector, Op], None]:
    def select_special(s: Selector, op: Op) -> None:
        register = f"{name}.{'xyz'[op.attrs['axis']]}" if "axis" in op.attrs else name
        s.values[op.result.id] = (select_entry.special(s, register),)

    return select_special


def _wave(s: Selector, op: Op) -> None:
    shift = s.kernel.wave_size.bit_length() - 1
    tid = select_entry.special(s, "%tid.x")
    s.values[op.result.id] = (s.hoisted("wave", 0, lambda: s.set("b32", ("shr", "u32"), tid, Imm(shift))),)


def _lane(s: Selector, op: Op) -> None:
    tid, mask = select_entry.special(s, "%tid.x"), s.kernel.wave_size - 1
    s.values[op.result.id] = (s.hoisted("lane", 0, lambda: s.set("b32", ("and", "b32"), tid, Imm(mask))),)


def _readfirst(s: Selector, op: Op) -> None:
    """What is the same in all lanes stays where it is: PTX has no scalar registers. Else lane 0's is broadcast."""
    v = op.args[0]
    if v.uniform or op.attrs.get("same"):
        s.values[op.result.id] = s.of(v)
    else:
        s.values[op.result.id] = select_numbers.shuffle(s, v, ("idx",), Imm(0))


# ------------------------------------------------------------------------------------------------------------- control


LONG = 32
"""Products in a loop's body from which on ptxas is not to unroll it: it would spill to hold what it takes ahead."""


def _known(v: Value) -> tuple[int | None, int | None]:
    c = v.const
    return (int(c), int(c)) if c is not None else (v.lo, v.hi)


def _for(s: Selector, op: Op) -> None:
    """Bottom-tested: guarded where no trip is possible; a body that runs at most once is inlined."""
    lo_v, hi_v, step_v = op.args[:3]
    lo, hi, step = (s.one(v) for v in op.args[:3])
    inits = [s.of(v) for v in op.args[3:]]
    body = op.regions[0]
    (_, lo_max), (hi_min, hi_max), (_, step_max) = _known(lo_v), _known(hi_v), _known(step_v)
    if lo_v.const is not None and hi_v.const is not None and step_v.const is not None:
        trips = max(0, -(-(int(hi_v.const) - int(lo_v.const)) // int(step_v.const)))
        if trips < 2:
            yields: Any = inits
            if trips == 1:
                for arg, comps in zip(body.args, [(lo,), *inits]):
                    s.values[arg.id] = comps
                yields = s.region(body)
            for result, comps in zip(op.results, yields):
                s.values[result.id] = tuple(comps)
            return
    loc = op.loc
    depth = s.level + 1
    name = s.label(op.attrs.get("label") or "loop")
    steps = source_steps(op)
    # A trip of asynchronous products is a pipeline stage of its own: copies of it would only cost instructions.
    rolled = any(o.name == "matrix.start" for o in body.ops) or sum(o.name == "mma" for o in body.ops) >= LONG
    loop = Loop(name, loc, steps, depth, rolled, s.label(name[1:] + "_end"))
    before: list[Any] = []
    parent = s.out
    parent.append(before)
    scope = Scope(depth, [], before)
    s.scopes.append(scope)
    s.out, s.level = scope.stream, depth
    counted = counts(op)
    index = s.new("b32")
    carried = [tuple(s.new(_KIND[v.type.kind]) for _ in range(v.type.n)) for v in body.args[1:]]
    s.values[body.args[0].id] = (index,)
    for arg, regs in zip(body.args[1:], carried):
        s.values[arg.id] = regs
    entry: list[tuple[Any, Any]] = [(index, lo)] if counted else []
    for regs, comps in zip(carried, inits):
        entry += [(r, c if c is UNDEFINED else s.copyable(r, c)) for r, c in zip(regs, comps)]
    parent.append(Copy(entry, loc))
    if not op.attrs.get("min_trips") and (lo_max is None or hi_min is None or lo_max >= hi_min):
        s.out = parent
        skip = s.set("pred", ("setp", "le", "s32"), hi, lo)
        s.emit(("bra",), Symbol(loop.end, "label"), guard=skip)
        s.out = scope.stream
    s.out.append(Label(name, loop))
    s.code.loops.append(loop)
    yields = s.region(body)
    s.loc = loc
    back = [(r, s.copyable(r, c)) for regs, comps in zip(carried, yields) for r, c in zip(regs, comps) if r is not c]
    s.out.append(Copy(back, loc, carried=True))
    if not counted:
        again = carried[0][0]
    elif hi_max is not None and step_max is not None and hi_max - 1 + step_max <= INT_MAX:
        s.emit(("add", "s32"), index, index, step)
        again = s.set("pred", ("setp", "lt", "s32"), index, hi)
    else:
        left = s.set("b32", ("sub", "s32"), hi, index)
        again = s.set("pred", ("setp", "gt", "u32"), left, step)
        s.emit(("add", "s32"), index, index, step)
    if counted and op.attrs.get("again"):
        again = s.set("pred", ("and", "pred"), again, carried[0][0])
    s.emit(("bra",), Symbol(name, "label"), guard=again)
    s.scopes.pop()
    parent.append(scope.stream)
    s.out, s.level = parent, depth - 1
    s.out.append(Label(loop.end))
    for result, regs in zip(op.results, carried):
        for r in regs:
            r.level = s.level
        s.values[result.id] = regs


def _if(s: Selector, op: Op) -> None:
    """A uniform branch around each region; results are registers that both sides write."""
    condition = s.one(op.args[0])
    if type(condition) is Imm:
        chosen = op.regions[0] if condition.value else op.regions[1] if len(op.regions) > 1 else None
        yields = s.region(chosen) if chosen is not None else ()
        for result, comps in zip(op.results, yields):
            s.values[result.id] = comps
        return
    results = [tuple(s.new(_KIND[v.type.kind]) for _ in range(v.type.n)) for v in op.results]
    otherwise, end = s.label("else"), s.label("endif")
    has_else = len(op.regions) > 1 and (bool(results) or any(o.name != "yield" for o in op.regions[1].ops))
    s.branch(otherwise if has_else else end, condition, negated=True)
    parent, level = s.out, s.level
    for n, region in enumerate(op.regions[: 2 if has_else else 1]):
        if n == 1:
            parent.append(Label(otherwise))
        scope = Scope(level + 1, [])
        parent.append(scope.stream)
        s.scopes.append(scope)
        s.out, s.level = scope.stream, level + 1
        yields = s.region(region)
        s.loc = op.loc
        pairs = [(r, s.copyable(r, c)) for regs, comps in zip(results, yields) for r, c in zip(regs, comps)]
        if pairs:
            s.out.append(Copy(pairs, op.loc))
        if n == 0 and has_else:
            s.emit(("bra",), Symbol(end, "label"))
        s.scopes.pop()
        s.out, s.level = parent, level
    parent.append(Label(end))
    for result, regs in zip(op.results, results):
        s.values[result.id] = regs


def _priority(s: Selector, op: Op) -> None:
    """PTX has no priorities: what a wave asks for is a wish."""


def _trap(s: Selector, op: Op) -> None:
    mask = s.mask(op.args[0])
    if mask is not False:
        s.emit(("trap",), guard=None if mask is True else mask, note=str(op.attrs.get("message", "")))


def _mma(s: Selector, op: Op) -> None:
    """D takes C's place where C ends here; the tables say how many registers each fragment has."""
    atom = op.attrs["atom"]
    inst = lookup(atom.instruction, s.target)
    wide = inst.operands[1].type == "f64"
    wide_result = inst.operands[0].type == "f64"
    a, b = (_fragment(s, v, wide) for v in op.args[:2])
    c = _fragment(s, op.args[2], wide_result)
    if atom.a_dtype in EIGHT_BITS:
        s.values[op.result.id] = _product_of_halves(s, (a, atom.a_dtype), (b, atom.b_dtype), c, atom.acc_dtype)
        return
    d = tuple(s.new("b64" if wide_result else "b32") for _ in c)
    s.out.append(Ins(inst, (d, a, b, c), s.loc))
    if wide_result and _KIND[op.result.type.kind] == "b32":
        d = tuple(half for r in d for half in select_numbers.split64(s, r))
    s.values[op.result.id] = d


EIGHT_BITS = (dt.f8e4m3, dt.f8e5m2)
E5M2_PAIRS = (0x1404, 0x3424)
"""Selectors of `prmt` that put two bytes of a word into the high bytes of two halves, over zeros: an f8e5m2 is an f16
without its low byte."""

_Fragment8 = tuple[Sequence[Reg], dt.DType]
"""Registers of four 8-bit floats each, and their type."""


def _product_of_halves(
    s: Selector, a: _Fragment8, b: _Fragment8, c: tuple[Reg, ...], sums: dt.DType
) -> tuple[Reg, ...]:  # fmt: skip
    """A product of 8-bit floats, 32 deep, as two of f16, 16 deep: of the first two of each four bytes, and of the last
    two.

    Hopper has no such instruction (wgmma apart). ptxas (13.0 and 13.5) makes the same of `mma.sync`, but adds C at the
    end, element by element, and has then overwritten a register of C that is a register of D in an earlier place:
    a zero that is all of C is lost (`runtime/emulator/ptx/matrix.py` reports it).
    """
    inst = lookup(of_halves(sums).mnemonic, s.target)
    for pair in (0, 1):
        halves = [tuple(_pair_of_8(s, r, dtype, pair) for r in regs) for regs, dtype in (a, b)]
        d = tuple(s.new("b32") for _ in c)
        s.out.append(Ins(inst, (d, *halves, c), s.loc))
        c = d
    return c


def _pair_of_8(s: Selector, word: Reg, dtype: dt.DType, pair: int) -> Reg:
    """The first or last two 8-bit floats of a word as f16, once per word."""
    if dtype is dt.f8e4m3:
        return select_convert.pair_of_8(s, word, dtype, pair)
    words, chosen = ("prmt", "b32"), Imm(E5M2_PAIRS[pair])
    return s.hoisted(("e5m2", word.id, pair), word.level, lambda: s.set("b32", words, word, Imm(0), chosen))


def _fragment(s: Selector, v: Value, wide: bool) -> tuple[Reg, ...]:
    """A fragment's registers: 64-bit ones for float64, whose values may come as pairs of words."""
    regs = s.regs(v)
    if wide and regs[0].kind == "b32":
        return tuple(select_numbers.join64(s, regs[i], regs[i + 1]) for i in range(0, len(regs), 2))
    return regs


_SELECT: dict[str, Callable[[Selector, Op], None]] = {
    "const": _const,
    "param": _param,
    "wgid": _special("%ctaid"),
    "wgcount": _special("%nctaid"),
    "tid": _special("%tid.x"),
    "wave": _wave,
    "lane": _lane,
    "readfirst": _readfirst,
    "for": _for,
    "if": _if,
    "priority": _priority,
    "trap": _trap,
    "mma": _mma,
    **select_numbers.SELECT,
    **select_convert.SELECT,
    **select_memory.SELECT,
    **select_async.SELECT,
    **select_bulk.SELECT,
}
