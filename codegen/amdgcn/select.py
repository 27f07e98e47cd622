"""Kernel IR to machine code over virtual registers: the selector's state and its helpers; ops are lowered in
`select_*`.

In: a verified `Kernel` and the chip's `Rows`. Out: a `Program` whose values are virtual tuples, with copies wherever
values are joined, split or carried (the allocator makes most of them disappear).

The one idea: every kernel IR value has one operand: a constant, a `Ref` in the file where its op computes it, or a
predicate. Consumers ask for it in the form they need (`vector`, `scalar`, `mask`, ...); a copy into the other file
is made once per region and remembered. Uniform integers are computed by the scalar unit; there is no scalar float
unit, so uniform floats live in vector registers until an integer consumer wants them.

Rules:
* (EXEC) all lanes are active except between a `saveexec` and its restore, which enclose single stores.
* (SCC) an instruction that needs scc follows the one that sets it; uniform comparisons are issued again for each use.
* (BUS) a vector instruction reads at most one scalar register or literal: `valu` and `vop3` copy what is too much.
* (LANE) who reads a few bits of the lane or wave number reads them from the thread's number; where everybody does,
  they are never made.
* (POOL) constants that an encoding cannot hold live in scalar registers set once at the kernel's entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from wavedsl.codegen.amdgcn import isa
from wavedsl.codegen.amdgcn.fuse import Fusion, needs, plan_fusions
from wavedsl.codegen.amdgcn.machine import VCC, Block, Inst, Loop, Operand, Program, Ref, Reg, copy
from wavedsl.codegen.amdgcn.rows import Rows, rows_of
from wavedsl.codegen.amdgcn.scalar_loads import scalar_loads
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.half_pairs import added_to
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Type, Value
from wavedsl.ir.kernel.raised_pairs import raised
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass

MAX_POOL = 32
"""Constants that may occupy scalar registers for the whole kernel."""

LOWER: dict[str, Callable[[Selector, Op], None]] = {}
"""Lowering of each kernel IR op by name."""


def lower(*names: str) -> Callable[[Callable[[Selector, Op], None]], Callable[[Selector, Op], None]]:
    """Register a function as the lowering of kernel IR ops."""

    def register(function: Callable[[Selector, Op], None]) -> Callable[[Selector, Op], None]:
        for name in names:
            if name in LOWER:
                raise ValueError(f"two lowerings of {name}")
            LOWER[name] = function
        return function

    return register


@dataclass(eq=False)
class Guarded:
    """A descriptor that is used under guards: its size word is `records` or 0. It exists in the scope `home`; `state`
    is the guard that it is set for, and where."""

    ref: Ref
    records: Operand
    home: dict[Any, Any]
    state: tuple[int, int, int] | None = None


class Compare:
    """A uniform integer comparison, issued where it is used: `row` sets scc to (a how b)."""

    __slots__ = ("a", "b", "row")

    def __init__(self, row: isa.Inst, a: Operand, b: Operand):
        self.row, self.a, self.b = row, a, b


def f32_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f64_words(value: float) -> tuple[int, int]:
    low, high = struct.unpack("<II", struct.pack("<d", value))
    return low, high


_INLINE_F32 = {f32_bits(x): x for x in isa.INLINE_FLOATS[:8]}


def constant_words(type: Type, value: Any) -> list[Operand]:
    """A constant as 32-bit operands, one per register; inline floats as Python floats, everything else as unsigned
    ints."""
    kind = type.kind
    if kind == "f32":
        bits = f32_bits(value)
        word = [_INLINE_F32.get(bits, signed(bits))]
    elif kind == "f64":
        word = [signed(w) for w in f64_words(value)]
    elif kind in ("i64", "b64"):
        word = [signed(value & 0xFFFFFFFF), signed((value >> 32) & 0xFFFFFFFF)]
    else:
        word = [signed(value & 0xFFFFFFFF)]
    return word * type.n


def signed(bits: int) -> int:
    """Bits as the assembler likes them: small negative numbers negative, everything else unsigned."""
    return bits - (1 << 32) if bits >= (1 << 32) - 16 else bits


def is_inline(operand: Operand) -> bool:
    return operand.__class__ is float or (operand.__class__ is int and -16 <= operand <= 64)


def exact(operand: Operand) -> tuple[type, Operand]:
    """A constant as a key: for Python 1 is 1.0, and their bits are not the same."""
    return operand.__class__, operand.hex() if operand.__class__ is float else operand


class Selector:
    """State of selecting one kernel: blocks so far, the operand of every value, copies remembered per region."""

    def __init__(self, kernel: Kernel, chip: str):
        self.kernel = kernel
        self.chip = chip
        self.rows: Rows = rows_of(chip)
        self.regs: list[Reg] = []
        self.blocks: list[Block] = []
        self.loops: list[Loop] = []
        self.values: dict[int, Any] = {}
        self.scopes: list[dict[Any, Operand]] = [{}]
        self.pool: dict[Any, Ref] = {}
        self.pool_insts: list[Inst] = []
        self.inputs: list[Ref] = []
        self.loc: Loc | None = None
        self.depth = 0
        self.labels = 0
        self.insts: list[Inst] = []
        self.uses: dict[int, int] = {}
        self.fusions: dict[int, Fusion] = {}
        self.absorbed: set[int] = set()
        self.added: dict[int, int] = {}
        self.raised: dict[int, Value] = {}
        """What everything adds that takes a pair of small numbers (value id → whole number): they are made with it."""
        self.thread: Ref | None = None
        self.workgroup: dict[int, Ref] = {}
        self.params: dict[int, list[Ref]] = {}
        self.guarded: dict[int, int] = {}
        """Accesses under a guard, by the buffer's id."""
        self.shadows: dict[int, Guarded] = {}
        """What those accesses use, by the buffer's id."""
        self.scalar_loads: frozenset[int] = frozenset()
        """Loads of global memory that the scalar unit makes, by their results' ids."""
        self.guards: dict[int, list[int]] = {}
        """Buffers that are used under a guard, by the guard's value id."""
        self.countdown: dict[int, int] = {}
        """Loops whose counter is what is left to the last value of the induction variable: that value, by the
        variable's id."""
        self.scope_serial = 0
        self.shared_base: tuple[list[Inst], Any, int] | None = None
        """What M0 holds: the block's instructions, and (register, constant) that it is the sum of (BASE)."""
        self.from_thread: frozenset[str] = frozenset()
        """Which of `lane` and `wave` everybody reads from the thread's number (LANE)."""
        self.block("")

    # -------------------------------------------------------------------------------------------- registers and blocks

    def new(self, cls: str, n: int = 1, name: str = "", align: int = 0) -> Ref:
        """A fresh tuple with the alignment its width needs."""
        if not align:
            align = 1 if n == 1 else 4 if cls == "s" and n >= 4 else 2
        reg = Reg(len(self.regs), cls, n, align, -1, name, self.loc)
        self.regs.append(reg)
        return Ref(reg, 0, n)

    def fixed(self, cls: str, at: int, n: int = 1, name: str = "") -> Ref:
        """A tuple that must lie at physical register `at`."""
        reg = Reg(len(self.regs), cls, n, 1, at, name, self.loc)
        self.regs.append(reg)
        return Ref(reg, 0, n)

    def mask_reg(self) -> Ref:
        """A lane mask: an SGPR pair that may also be vcc."""
        return self.new("s", 2, "mask")

    def vcc(self) -> Ref:
        """vcc itself, for the few instructions that read nothing else."""
        return self.fixed("s", VCC, 2, "mask")

    def label(self, stem: str) -> str:
        self.labels += 1
        return f".L{self.kernel.name}_{stem}{self.labels}"

    def block(self, label: str) -> int:
        """Start a new block and make it the current one; returns its index. Successors are the caller's."""
        self.blocks.append(Block(label, self.depth))
        self.insts = self.blocks[-1].insts
        return len(self.blocks) - 1

    def emit(self, row: isa.Inst, *ops: Operand, vcc: Ref | None = None, **mods: Any) -> Inst:
        """Append one instruction, operands as they are."""
        inst = self.rows.make(row, ops, mods or None, self.loc, vcc)
        self.insts.append(inst)
        return inst

    def copy(self, dst: Ref, src: Operand) -> None:
        """dst = src. A vector register into a scalar one takes the first lane."""
        if src.__class__ is Ref and dst.reg.cls == "s" and src.reg.cls == "v":
            for k in range(dst.n):
                self.emit(self.rows.v_readfirstlane_b32, dst.part(k), src.part(k))
            return
        self.insts.append(copy(dst, src, self.loc))

    # ------------------------------------------------------------------------------------------------ operands of
    # values

    def open_scope(self) -> None:
        """Enter a region: what is remembered inside is forgotten when it closes."""
        self.scopes.append({})
        self.scope_serial += 1

    def close_scope(self) -> None:
        self.scopes.pop()
        self.scope_serial += 1

    def remember(self, key: Any, make: Callable[[], Operand]) -> Operand:
        """`make()` once per region and what it encloses."""
        for scope in reversed(self.scopes):
            found = scope.get(key)
            if found is not None:
                return found
        made = make()
        self.scopes[-1][key] = made
        return made

    def operand(self, v: Value) -> Any:
        """The operand of a value: a `Ref`, a predicate, or (constants of one register) a number."""
        op = v.op
        if op is not None and op.name == "const":
            if v.type.kind == "pred":
                return op.attrs["value"]
            words = constant_words(v.type, op.attrs["value"])
            if len(words) == 1:
                return words[0]
            return self.remember(("const", v.id), lambda: self._constant_tuple(v, words))
        return self.values[v.id]

    def _constant_tuple(self, v: Value, words: list[Operand]) -> Ref:
        ref = self.new("v", len(words), v.name)
        for k, word in enumerate(words):
            self.insts.append(copy(ref.part(k), word, self.loc))
        return ref

    def words(self, v: Value) -> list[Operand]:
        """The 32-bit operands of a value, one per register, wherever they are."""
        op = v.op
        if op is not None and op.name == "const":
            return constant_words(v.type, op.attrs["value"])
        held = self.values[v.id]
        if held.__class__ is not Ref:
            return [held]  # the bits of a constant
        return [held.part(k) for k in range(held.n)]

    def vector(self, v: Value) -> Ref:
        """The value in vector registers."""
        operand = self.operand(v)
        if operand.__class__ is Ref and operand.reg.cls != "s":
            return operand
        return self.to_vector(operand, v.id)

    def to_vector(self, operand: Operand, key: Any = None) -> Ref:
        """Any operand in vector registers, copied there once per region."""
        if operand.__class__ is Ref:
            if operand.reg.cls != "s":
                return operand
            key = ("v", operand.reg.id, operand.start, operand.n)
        else:
            key = ("v", exact(operand))

        def make() -> Ref:
            ref = self.new("v", operand.n if operand.__class__ is Ref else 1)
            self.insts.append(copy(ref, operand, self.loc))
            return ref

        return self.remember(key, make)

    def scalar(self, v: Value) -> Operand:
        """A uniform value for the scalar unit: a scalar `Ref` or a number."""
        operand = self.operand(v)
        if operand.__class__ is not Ref:
            return operand
        if operand.reg.cls == "s":
            return operand
        if v.op is not None and v.op.name == "const":
            return self.constant_pair(self.words(v))
        return self.to_scalar(operand)

    def to_scalar(self, operand: Ref) -> Ref:
        """The first lane of vector registers, read once per region."""

        def make() -> Ref:
            ref = self.new("s", operand.n)
            self.copy(ref, operand)
            return ref

        return self.remember(("s", operand.reg.id, operand.start, operand.n), make)

    def scalar_ref64(self, v: Value) -> Operand:
        """A uniform 64-bit value in a scalar pair, or a small number as inline constant."""
        constant = v.const
        if constant.__class__ is int and -16 <= constant <= 64:
            return constant
        return self.scalar(v)

    def source64(self, v: Value) -> Operand:
        """A 64-bit value as source of a vector instruction: a pair in either file, or an inline constant."""
        constant = v.const
        if constant is None:
            return self.operand(v)
        if v.type.kind == "f64":
            if constant in isa.INLINE_FLOATS[:8]:
                return float(constant)
            if constant == 0.0 and str(constant) == "0.0":
                return 0
        elif -16 <= constant <= 64:
            return constant
        return self.constant_pair(self.words(v))

    def scalar_words(self, v: Value) -> list[Operand]:
        """32-bit scalar operands of a uniform value, one per register."""
        if v.op is not None and v.op.name == "const":
            return self.words(v)
        operand = self.scalar(v)
        return [operand.part(k) for k in range(operand.n)]

    def pooled(self, value: Operand) -> Ref:
        """A constant in a scalar register that is set once at entry (POOL), or once per region when there are many."""
        key = exact(value)
        found = self.pool.get(key)
        if found is None:
            if len(self.pool) >= MAX_POOL:
                return self.remember(("constant", key), lambda: self._local_constant((value,)))
            found = self.pool[key] = self.new("s", 1, "constants")
            self.pool_insts.append(copy(found, value, None))
        return found

    def pooled_vector(self, value: int) -> Ref:
        """A constant in a vector register that is set once at entry (POOL): for operands that nothing else may be."""
        key = ("v", value)
        found = self.pool.get(key)
        if found is None:
            found = self.pool[key] = self.new("v", 1, "constants")
            self.pool_insts.append(copy(found, value, None))
        return found

    def constant_pair(self, words: list[Operand]) -> Ref:
        """A 64-bit constant in a scalar pair (POOL)."""
        key = tuple(map(exact, words))
        found = self.pool.get(key)
        if found is None:
            if len(self.pool) >= MAX_POOL:
                return self.remember(("constant", key), lambda: self._local_constant(tuple(words)))
            found = self.pool[key] = self.new("s", len(words), "constants")
            for k, word in enumerate(words):
                self.pool_insts.append(copy(found.part(k), word, None))
        return found

    def _local_constant(self, words: tuple[Operand, ...]) -> Ref:
        ref = self.new("s", len(words), "constants")
        for k, word in enumerate(words):
            self.insts.append(copy(ref.part(k), word, self.loc))
        return ref

    def file(self, v: Value) -> str:
        """The file in which loop-carried values and results of conditionals live."""
        return "s" if v.uniform and v.type.n == 1 and v.type.kind in ("i32", "i64", "buffer", "pred") else "v"

    def result(self, op: Op, cls: str = "v", n: int = 0) -> Ref:
        """A fresh tuple for the op's result, bound to it."""
        v = op.results[0]
        ref = self.new(cls, n or v.type.words, v.name or op.name)
        self.values[v.id] = ref
        return ref

    def bind(self, op: Op, operand: Any) -> None:
        """The op's result is an operand that exists already."""
        self.values[op.results[0].id] = operand

    # ------------------------------------------------------------------------------------------------------- predicates

    def mask(self, v: Value) -> Any:
        """A predicate as lane mask: True, False or an SGPR pair."""
        held = self.operand(v)
        if held.__class__ is Compare:

            def make() -> Ref:
                ref = self.mask_reg()
                self.emit(held.row, held.a, held.b)
                self.emit(self.rows.s_cselect_b64, ref, -1, 0)
                return ref

            return self.remember(("mask", v.id), make)
        return held

    def scc(self, v: Value) -> None:
        """Set scc to a uniform predicate that is not constant (SCC: use it at once)."""
        held = self.operand(v)
        if held.__class__ is Compare:
            self.emit(held.row, held.a, held.b)
        else:
            self.emit(self.rows.s_cmp_lg_u64, held, 0)

    # ----------------------------------------------------------------------------------------------- vector
    # instructions

    def valu(self, row: isa.Inst, dst: Ref, a: Operand, b: Operand, commutes: bool = False) -> Inst:
        """A two-source vector instruction with a short encoding: src1 a vector register where that saves anything
        (BUS)."""
        if not _is_vgpr(b):
            if commutes and _is_vgpr(a):
                a, b = b, a
            else:
                a, b = self._bus([a, b])
        return self.emit(row, dst, a, b)

    def vop3(self, row: isa.Inst, dst: Ref, *sources: Operand, **mods: Any) -> Inst:
        """A vector instruction in the long encoding: no literals (BUS)."""
        return self.emit(row, dst, *self._bus(list(sources)), **mods)

    def wide_product(self, dst: Ref, a: Operand, b: Operand) -> Inst:
        """The whole product of two words; nobody asks for the carry of adding 0."""
        return self.emit(self.rows.v_mad_u64_u32, dst, self.mask_reg(), *self._bus([a, b]), 0)

    def _bus(self, sources: list[Operand]) -> list[Operand]:
        """Sources that obey (BUS) in an encoding without literals."""
        used: Ref | None = None
        out = []
        for source in sources:
            if source.__class__ is not Ref:
                if is_inline(source):
                    out.append(source)
                    continue
                source = self.pooled(source)
            if source.reg.cls == "s":
                if used is None:
                    used = source
                elif not used.same(source):
                    source = self.to_vector(source)
            out.append(source)
        return out

    def temp(self, row: isa.Inst, *sources: Operand, n: int = 1, **mods: Any) -> Ref:
        """A vector instruction in the long encoding whose result is a fresh tuple."""
        ref = self.new("v", n)
        self.vop3(row, ref, *sources, **mods)
        return ref

    def one(self, row: isa.Inst, source: Operand, n: int = 1) -> Ref:
        """A one-source vector instruction into a fresh tuple."""
        ref = self.new("v", n)
        self.emit(row, ref, source)
        return ref

    def stemp(self, row: isa.Inst, *sources: Operand, n: int = 1) -> Ref:
        """A scalar instruction into a fresh tuple."""
        ref = self.new("s", n)
        self.emit(row, ref, *sources)
        return ref

    def compare(self, row: isa.Inst, a: Operand, b: Operand) -> Ref:
        """A vector comparison into a fresh lane mask."""
        ref = self.mask_reg()
        self.emit(row, ref, *self._bus([a, b]))
        return ref

    def pick(self, dst: Ref, mask: Ref, yes: Operand, no: Operand) -> None:
        """dst = mask ? yes : no, per lane. The mask takes the bus: scalar sources are copied."""
        out = []
        for source in (no, yes):
            if not is_inline(source) and not _is_vgpr(source):
                source = self.to_vector(source)
            out.append(source)
        self.emit(self.rows.v_cndmask_b32, dst, out[0], out[1], mask)

    # -------------------------------------------------------------------------------------------------------------- ops

    def lane(self) -> Ref:
        """The lane's index in its wave."""
        thread = self.thread
        assert thread is not None
        if self.kernel.waves == 1:
            return thread

        def make() -> Ref:
            out = self.new("v", 1, "lane")
            self.valu(self.rows.v_and_b32, out, self.kernel.wave_size - 1, thread)
            return out

        return self.remember("lane", make)

    def first_thread(self) -> Ref:
        """The number of the wave's first thread: its wave number times the wave's size."""
        thread = self.thread
        assert thread is not None
        return self.to_scalar(thread)

    def unsupported(self, op: Op, what: str, hint: str = "") -> CompileError:
        return CompileError(f"{self.chip}: {what}", op.loc, hint)

    def region(self, region: Region) -> None:
        """Lower the ops of a region, without its yield."""
        for op in region.ops:
            if op.name == "yield" or op.name == "const":
                continue
            results = op.results
            if results and not op.regions:
                id = results[0].id
                if id in self.absorbed or (not self.uses.get(id) and removable(op)):
                    continue
            if op.loc is not None:
                self.loc = op.loc
            lowering = LOWER.get(op.name)
            if lowering is None:
                raise self.unsupported(op, f"the kernel IR op {op.name} has no lowering")
            lowering(self, op)


def _is_vgpr(operand: Operand) -> bool:
    return operand.__class__ is Ref and operand.reg.cls != "s"


_READS = frozenset(("read global", "read shared"))


def removable(op: Op) -> bool:
    """Whether an op without users may go: it computes or loads, and does nothing else."""
    return op.row.effects <= _READS


def count_uses(kernel: Kernel) -> dict[int, int]:
    """Uses of every value by ops that are needed (value id → count); what nobody needs has no entry."""
    uses: dict[int, int] = {}
    ops = list(kernel.body.walk())
    for op in reversed(ops):
        for r in op.results:
            if r.id in uses:
                break
        else:
            if removable(op):
                continue
        for arg in op.args:
            uses[arg.id] = uses.get(arg.id, 0) + 1
    return uses


def select(kernel: Kernel, chip: str) -> Program:
    """The machine program of a kernel, before register allocation.

    Raises `CompileError` for an op or a type that the chip has no instructions for.
    """
    from wavedsl.codegen.amdgcn import (  # noqa: F401  (they fill LOWER)
        select_atomic,
        select_control,
        select_convert,
        select_divide,
        select_entry,
        select_float,
        select_int,
        select_memory,
    )

    s = Selector(kernel, chip)
    s.uses = count_uses(kernel)
    sums: dict[Value, list[Op]] = {}
    for op in kernel.body.walk():
        if op.name in ("load.global", "store.global", "copy.async", "atomic.global") and op.args[4].const is None:
            s.guarded[op.args[0].id] = s.guarded.get(op.args[0].id, 0) + 1
            users = s.guards.setdefault(op.args[4].id, [])
            if op.args[0].id not in users:
                users.append(op.args[0].id)
        elif op.name == "pair":
            for made in (a for a in op.args if a.op is not None and a.op.name == "widen"):
                sums.setdefault(made, []).append(op)
    for made, ops in sums.items():
        if len(ops) == s.uses.get(made.id):
            s.added[made.id] = added_to(made, ops)
    s.raised = raised((op for ops in sums.values() for op in ops), s.uses)
    s.scalar_loads = scalar_loads(kernel)
    s.fusions, s.absorbed = plan_fusions(kernel, s.uses, s.rows.swaps_halves)
    s.from_thread = frozenset(n for n in ("lane", "wave") if not needs(kernel, n, s.fusions, s.absorbed))
    select_entry.begin(s)
    s.region(kernel.body)
    s.loc = None
    s.emit(s.rows.s_endpgm)
    return select_entry.finish(s)
