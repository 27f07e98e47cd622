"""Warpgroup matrix instructions of the PTX emulator: descriptors, asynchronous results, and what may not be touched.

In: an instruction with its row; whole warpgroups execute it. Out: a closure `step(mask)`. The idea: a product is
computed when it is issued, from shared memory as it is then, but stays in a matrix beside the registers; the registers
hold poison until `wait_group` covers the instruction. So a chain of products on one accumulator never goes through
registers. Products are exact in float32 (float32 sums of products of at most 11 significant bits), sums are rounded in
the accumulator's dtype; the chip adds in another order and may truncate within the bound given in the docs.

With checks on, every register list that some wgmma names is a `Fragment`: it remembers, by warpgroup, the last wgmma
that uses it and the last time that another instruction touched it. A touch while the wgmma is in flight is a finding,
and so is a wgmma after a touch with no fence between. Shared operands are reads by the warpgroup as an agent
(`shadow`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa_wgmma import Descriptor, Wgmma
from wavedsl.codegen.ptx.operand_rules import used_operands
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx.machine import SHARED_BASE, Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.module import Imm, Inst, Reg, RegUse, Vector
from wavedsl.runtime.emulator.ptx.operands import source
from wavedsl.runtime.emulator.ptx.tensor import CHUNK
from wavedsl.runtime.emulator.ptx.wgmma_layout import (
    WARPS,
    addresses,
    matrix_of_words,
    numbers,
    operand_of_words,
    words_of_matrix,
)

Step = Callable[[Mask], None]

POISON = 0x7FBADBAD
GROUPS = 64
"""Groups that a warpgroup may have pending."""


@dataclass(eq=False)
class Fragment:
    """A list of registers that wgmma names as D or as A."""

    names: tuple[int, ...]
    block: Array
    """Registers [registers, threads]; rows of the machine's registers."""
    groups: int
    tick: Array = field(init=False)
    """Number of the last wgmma that uses it, by warpgroup."""
    issued: Array = field(init=False)
    """When that was issued, and when another instruction last touched it (`Wgmmas.now`)."""
    touched: Array = field(init=False)
    shape: Array = field(init=False)
    written: Array = field(init=False)
    """[registers, warpgroups]: whether anything has been written."""
    inst: Inst | None = None
    overlaps: list[Fragment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.tick = np.zeros(self.groups, np.int64)
        self.issued = np.zeros(self.groups, np.int64)
        self.touched = np.zeros(self.groups, np.int64)
        self.shape = np.zeros(self.groups, np.int64)
        self.written = np.zeros((len(self.names), self.groups), bool)


@dataclass(eq=False)
class Accumulator:
    """The matrices of one D list: [warpgroups, 64, n], and for which of them they are the current value."""

    fragment: Fragment
    what: Wgmma
    matrix: Array
    live: Array
    tick: Array
    waiting: bool = False
    """Whether any of them is not in the registers yet."""


class Wgmmas:
    """Warpgroup matrix instructions of a batch."""

    def __init__(self, m: Machine, insts: list[Inst], rows: list[isa.Inst | None]):
        self.m = m
        self.per_cta = (m.warps + WARPS - 1) // WARPS
        self.groups = m.ctas * self.per_cta
        first = np.arange(m.ctas)[:, None] * m.warps + np.arange(self.per_cta) * WARPS
        self.first_warp = first.reshape(-1)
        self.cta = np.repeat(np.arange(m.ctas), self.per_cta)
        self.warps_of = self.first_warp[:, None] + np.arange(WARPS)
        self.group_of_warp = np.repeat(np.arange(m.ctas), m.warps) * self.per_cta + np.tile(
            np.arange(m.warps) // WARPS, m.ctas
        )
        self.fragments: dict[tuple[int, ...], Fragment] = {}
        self.accumulators: dict[tuple[int, ...], Accumulator] = {}
        self.by_register: dict[int, list[Fragment]] = {}
        self._loose: dict[tuple[int, ...], list[Array]] = {}
        """Registers of lists that share some with another list."""
        self._masks: tuple[Any, Array] = (None, np.arange(self.groups))
        self._tables: dict[Any, Any] = {}
        for inst, row in zip(insts, rows):
            if row is not None and "multiply" in row.effects:
                self._fragment(inst.args[0])
                if isinstance(inst.args[1], Vector):
                    self._fragment(inst.args[1])
        for f in self.fragments.values():
            for r in f.names:
                self.by_register.setdefault(r, []).append(f)
        for f in self.fragments.values():
            others = {id(o): o for r in f.names for o in self.by_register[r] if o is not f}
            f.overlaps = list(others.values())
        self.reset()

    def reset(self) -> None:
        """A new batch."""
        n = self.groups
        self.now = 1
        self.ticks = np.zeros(n, np.int64)
        self.done = np.zeros(n, np.int64)
        self.fenced = np.full(n, -1, np.int64)
        self.commits = np.zeros(n, np.int64)
        self.commit_tick = np.zeros((n, GROUPS), np.int64)
        for f in self.fragments.values():
            f.reset()
        for a in self.accumulators.values():
            a.live[:] = False
            a.tick[:] = 0

    def _fragment(self, vector: Vector) -> Fragment:
        """The fragment of a register list. Its registers become rows of one array where they are not yet elsewhere."""
        m = self.m
        regs: list[Reg] = [p.reg for p in vector.parts]
        names = tuple(r.index for r in regs)
        found = self.fragments.get(names)
        if found is not None:
            return found
        block = np.zeros((len(regs), m.T), np.uint32)
        whole = not any(r.index in m.regs for r in regs) and len(set(names)) == len(names)
        if whole:
            for i, r in enumerate(regs):
                if isa.TYPE_BITS[r.type] != 32:
                    raise CompileError(f"register {r.name} of a wgmma list is not 32 bits wide")
                m.regs[r.index] = block[i]
        found = self.fragments[names] = Fragment(names, block if whole else np.zeros((0, m.T), np.uint32), self.groups)
        return found

    # ------------------------------------------------------------------------------------------------ masks

    def active(self, mask: Mask) -> Array:
        """Warpgroups of which any thread is in a mask."""
        if mask is None:
            return self._all_live()
        if self._masks[0] is not mask:
            warps = mask.reshape(self.m.NW, 32).any(axis=1)
            self._masks = (mask, np.unique(self.group_of_warp[warps]))
        return self._masks[1]

    def _all_live(self) -> Array:
        return _count(self.groups)

    def split(self, mask: Mask) -> tuple[Mask, Mask]:
        """The threads of complete warpgroups in a mask, and the others (None: nobody)."""
        m = self.m
        if mask is None and m.warps % WARPS == 0:
            return None, None
        lanes = (np.ones(m.T, bool) if mask is None else mask).reshape(m.NW, 32)
        here = lanes.any(axis=1)
        come = np.bincount(self.group_of_warp[here], minlength=self.groups)
        if (come[come > 0] == WARPS).all():
            return mask, None
        whole = (come == WARPS)[self.group_of_warp]
        return (lanes & whole[:, None]).reshape(-1), (lanes & ~whole[:, None]).reshape(-1)

    def _rows(self, groups: Array) -> Any:
        """Warps of warpgroups, as an index of axis [warps]."""
        if len(groups) == self.groups and self.m.warps % WARPS == 0:
            return slice(None)
        return self.warps_of[groups].reshape(-1)

    # ------------------------------------------------------------------------------------------------ steps

    def step(self, inst: Inst, row: isa.Inst, pc: int) -> Step:
        """The closure of one wgmma instruction; its mask holds whole warpgroups."""
        if "fence" in row.effects:
            return self._fence
        if "commit" in row.effects:
            return self._commit
        if "wait" in row.effects:
            return self._wait(inst.args[0].value)
        return self._multiply(inst, row, pc)

    def _fence(self, mask: Mask) -> None:
        self.now += 1
        self.fenced[self.active(mask)] = self.now

    def _commit(self, mask: Mask) -> None:
        groups = self.active(mask)
        self.commit_tick[groups, self.commits[groups] % GROUPS] = self.ticks[groups]
        self.commits[groups] += 1

    def _wait(self, keep: int) -> Step:
        m = self.m

        def step(mask: Mask) -> None:
            groups = self.active(mask)
            last = self.commits[groups] - keep
            some = last > 0
            reached = np.where(some, self.commit_tick[groups, (last - 1) % GROUPS], 0)
            if (reached <= self.done[groups]).all():
                return
            self.done[groups] = np.maximum(self.done[groups], reached)
            for a in self.accumulators.values():
                back = groups[a.live[groups] & (a.tick[groups] <= self.done[groups])]
                if len(back):
                    self._to_registers(a, back)
                    a.live[back] = False
                    a.waiting = bool(a.live.any())
            if m.checks:
                warps = self.warps_of[groups].reshape(-1)
                column = np.repeat(self._columns(groups), WARPS)
                m.shadow.waited(warps, column, np.repeat(self.done[groups], WARPS).astype(np.int32))

        return step

    def _columns(self, groups: Array) -> Array:
        """Columns of warpgroups as reading agents."""
        m = self.m
        return m.shadow.warps + self.cta[groups] % m.cluster * self.per_cta + groups % self.per_cta

    # ------------------------------------------------------------------------------------------------ products

    def _multiply(self, inst: Inst, row: isa.Inst, pc: int) -> Step:
        m = self.m
        what: Wgmma = row.row.data.what(row.mods)
        args = dict(zip([op.name for op in used_operands(row, len(inst.args))], inst.args))
        d = self._fragment(args["d"])
        acc = self._accumulator(args["d"], d, what)
        a_regs = self._fragment(args["a"]) if isinstance(args["a"], Vector) else None
        a_from = self._values(args["a"]) if a_regs is not None else None
        a_desc = None if a_regs is not None else self._wide(args["a"])
        b_desc = self._wide(args["b"])
        a_major = args["a_order"].value if "a_order" in args else 0
        b_major = args["b_order"].value if "b_order" in args else 0
        sign = (args["scale_a"].value if "scale_a" in args else 1) * (args["scale_b"].value if "scale_b" in args else 1)
        scale = self._predicate(args["scale_d"])
        shape = what.k << 16 | what.a_dtype.bits << 8 | what.n
        saturate = "satfinite" in row.mods

        def step(mask: Mask) -> None:
            groups = self.active(mask)
            rows = self._rows(groups)
            keep = scale(rows, groups)
            if m.checks:
                self._whole(inst, mask, groups)
                self._agreed(inst, args["scale_d"], groups, keep)
                self._ready(inst, d, groups, keep, acc, True, shape)
                if a_regs is not None:
                    self._ready(inst, a_regs, groups, keep, acc, False, shape)
            tick = self.ticks[groups] + 1
            self.ticks[groups] = tick
            if a_from is not None:
                a = operand_of_words(a_from(rows), what.a_dtype)
            else:
                a = self._operand(inst, pc, a_desc, groups, rows, what.a_dtype, 64, what.k, a_major, tick)
            b = self._operand(inst, pc, b_desc, groups, rows, what.b_dtype, what.n, what.k, b_major, tick)
            product = np.matmul(a, b.transpose(0, 2, 1))
            if sign < 0:
                np.negative(product, out=product)
            self._add(acc, what, groups, product, keep, saturate)
            acc.live[groups] = True
            acc.tick[groups] = tick
            acc.waiting = True
            if m.checks:
                self.now += 1
                for f in (d, a_regs):
                    if f is not None:
                        f.tick[groups] = tick
                        f.issued[groups] = self.now
                        f.shape[groups] = shape
                        f.inst = inst
                        for o in f.overlaps:  # instructions may share registers that they only read
                            if f is d or (o is not d and o.names in self.accumulators):
                                o.touched[groups] = self.now
                d.written[:, groups] = True
                self._poison(d, groups)

        return step

    def _values(self, vector: Vector) -> Callable[[Any], Array]:
        """Getter of register values [registers, warps, 32]."""
        m = self.m
        f = self._fragment(vector)
        if len(f.block):
            view = f.block.reshape(len(f.names), m.NW, 32)
            return lambda rows: view[:, rows]
        regs = [m.reg(p.reg).reshape(m.NW, 32) for p in vector.parts]
        return lambda rows: np.stack([r[rows] for r in regs])

    def _wide(self, operand: Any) -> Array:
        """A descriptor's values [warps, 32]."""
        if not isinstance(operand, RegUse):
            raise CompileError("a matrix descriptor is a 64-bit register")
        return self.m.reg(operand.reg).reshape(self.m.NW, 32)

    def _predicate(self, operand: Any) -> Callable[[Any, Array], Array]:
        """Whether each warpgroup adds to what D holds."""
        if isinstance(operand, Imm):
            value = operand.value != 0
            return lambda rows, groups: np.full(len(groups), value)
        p = source(self.m, operand, "pred")

        def get(rows: Any, groups: Array) -> Array:
            values = p() if callable(p) else p
            return values[self.first_warp[groups] * 32]

        return get

    def _accumulator(self, vector: Vector, fragment: Fragment, what: Wgmma) -> Accumulator:
        key = fragment.names
        found = self.accumulators.get(key)
        if found is None:
            kind = np.int32 if what.d_dtype == dt.i32 else np.float32
            matrix = np.zeros((self.groups, 64, what.n), kind)
            found = Accumulator(fragment, what, matrix, np.zeros(self.groups, bool), np.zeros(self.groups, np.int64))
            self.accumulators[key] = found
            if not len(fragment.block):
                self._loose[key] = [self.m.reg(p.reg).reshape(self.m.NW, 32) for p in vector.parts]
        if (found.what.n, found.what.d_dtype) != (what.n, what.d_dtype):
            raise CompileError("one register list as accumulators of different types or widths is not supported")
        return found

    def _add(self, acc: Accumulator, what: Wgmma, groups: Array, product: Array, keep: Array, saturate: bool) -> None:
        """D = product (+ D)."""
        out = acc.matrix
        fresh = groups[keep & ~acc.live[groups]]
        if len(fresh):
            self._from_registers(acc, fresh)
        everyone = len(groups) == self.groups
        old = out if everyone else out[groups]
        if what.d_dtype == dt.i32:
            total = product.astype(np.int64) if saturate else product.astype(np.int32)
            if keep.any():
                total = total + np.where(keep[:, None, None], old, 0)
            if saturate:
                total = np.clip(total, -(2**31), 2**31 - 1)
            out[groups] = total.astype(np.int32)
            return
        if keep.all():
            np.add(product, old, out=product)
        elif keep.any():
            product[keep] += old[keep]
        if what.d_dtype == dt.f16:
            product = product.astype(np.float16).astype(np.float32)
        if everyone:
            out[...] = product
        else:
            out[groups] = product

    # ------------------------------------------------------------------------------------------------ registers

    def _to_registers(self, acc: Accumulator, groups: Array) -> None:
        self._put(acc.fragment, self._rows(groups), words_of_matrix(acc.matrix[groups], acc.what.d_dtype))

    def _put(self, f: Fragment, rows: Any, values: Array) -> None:
        if len(f.block):
            f.block.reshape(len(f.names), self.m.NW, 32)[:, rows] = values
            return
        for r, v in zip(self._loose[f.names], np.broadcast_to(values, (len(f.names), *values.shape[1:]))):
            r[rows] = v

    def _from_registers(self, acc: Accumulator, groups: Array) -> None:
        f, rows = acc.fragment, self._rows(groups)
        if len(f.block):
            words = f.block.reshape(len(f.names), self.m.NW, 32)[:, rows]
        else:
            words = np.stack([r[rows] for r in self._loose[f.names]])
        acc.matrix[groups] = matrix_of_words(words, acc.what.d_dtype)

    # ------------------------------------------------------------------------------------------------ shared memory

    def _operand(
        self,
        inst: Inst,
        pc: int,
        descriptor: Array,
        groups: Array,
        rows: Any,
        dtype: DType,
        extent: int,
        k: int,
        mn_major: int,
        tick: Array,
    ) -> Array:
        """An operand from shared memory: [warpgroups, extent, k] numbers."""
        m = self.m
        values = descriptor[rows]
        leaders = values[::WARPS, 0]
        if m.checks and not m.seen("barrier-divergence", inst):
            same = (values.reshape(len(groups), -1) == leaders[:, None]).all(axis=1)
            if not same.all():
                thread = int(self.first_warp[groups[int(np.argmin(same))]]) * 32
                m.report("barrier-divergence", inst, "a descriptor differs between lanes of the warpgroup", thread)
        tables = []
        for i, bits in enumerate(leaders.tolist()):
            table, low, high = self._table(bits, dtype, extent, k, mn_major)
            if low < 0 or high > m.shared_bytes:
                thread = int(self.first_warp[groups[i]]) * 32
                text = f"a descriptor covers bytes {low} to {high} of {m.shared_bytes} of shared memory"
                if not m.seen("out-of-bounds", inst):
                    m.report("out-of-bounds", inst, text, thread)
                table = np.zeros_like(table)
            tables.append(table)
        offsets = tables[0][None] if all(t is tables[0] for t in tables) else np.stack(tables)
        cta = self.cta[groups]
        if m.checks:
            spans = {Descriptor.decode(bits).swizzle for bits in set(leaders.tolist())}
            self._observe(inst, pc, offsets, cta, groups, tick, spans.pop() if len(spans) == 1 else None)
        chunks = m.shared.view(CHUNK).take((cta * (m.shared_stride >> 4))[:, None] + (offsets >> 4))
        flat = chunks.view(f"u{dtype.bits // 8}")
        if mn_major:
            flat = flat.reshape(len(groups), extent // 8, k, 8).transpose(0, 1, 3, 2)
        return numbers(flat.reshape(len(groups), extent, k), dtype)

    def _observe(
        self, inst: Inst, pc: int, offsets: Array, cta: Array, groups: Array, tick: Array, span: int | None
    ) -> None:
        """The warpgroup as an agent reads these bytes, by a swizzle of `span` bytes."""
        m = self.m
        shadow = m.shadow
        g = shadow.granules(np.zeros(1, np.int64), offsets.reshape(-1), 16).reshape(len(offsets), -1)
        g = g + (cta * shadow.per_cta)[:, None]
        columns = self._columns(groups)
        defects = shadow.read_by(g, self.warps_of[groups], columns, tick.astype(np.int32), pc, span=span)
        m.defects(inst, defects, self.first_warp[groups] * 32)

    def _table(self, bits: int, dtype: DType, extent: int, k: int, mn_major: int) -> tuple[Array, int, int]:
        """Byte offsets in the CTA's shared memory of an operand's chunks, and the range of bytes that they cover."""
        key = bits, dtype.bits, extent, k, mn_major
        found = self._tables.get(key)
        if found is None:
            offsets = addresses(Descriptor.decode(bits), dtype.bits // 8, extent, k, bool(mn_major)) - SHARED_BASE
            found = self._tables[key] = offsets, int(offsets.min()), int(offsets.max()) + 16
        return found

    # ------------------------------------------------------------------------------------------------ findings

    def _whole(self, inst: Inst, mask: Mask, groups: Array) -> None:
        """All 128 threads execute it."""
        m = self.m
        on = (m.live if mask is None else mask).reshape(m.NW, 32)[self.warps_of[groups]]
        if not on.all() and not m.seen("barrier-divergence", inst):
            i = int(np.argmin(on.reshape(len(groups), -1).all(axis=1)))
            thread = int(self.first_warp[groups[i]]) * 32
            m.report("barrier-divergence", inst, "part of a warpgroup's threads execute a wgmma", thread)

    def _agreed(self, inst: Inst, operand: Any, groups: Array, keep: Array) -> None:
        """All threads add to D or none."""
        m = self.m
        if isinstance(operand, Imm) or m.seen("barrier-divergence", inst):
            return
        p = source(m, operand, "pred")
        values = (p() if callable(p) else p).reshape(m.NW, 32)[self.warps_of[groups]].reshape(len(groups), -1)
        same = (values == keep[:, None]).all(axis=1)
        if not same.all():
            thread = int(self.first_warp[groups[int(np.argmin(same))]]) * 32
            m.report("barrier-divergence", inst, "scale-d differs between threads of the warpgroup", thread)

    def _ready(
        self, inst: Inst, f: Fragment, groups: Array, keep: Array, acc: Accumulator, writes: bool, shape: int
    ) -> None:
        """Registers of a wgmma about to be issued: fenced, not in use as another list, and written where they are
        read."""
        m = self.m
        fenced = self.fenced[groups]
        bad = f.touched[groups] > fenced
        bad |= (f.issued[groups] > fenced) & (f.shape[groups] != shape) & (f.shape[groups] != 0) if writes else False
        if bad.any() and not m.seen("register-race", inst):
            thread = int(self.first_warp[groups[int(np.argmax(bad))]]) * 32
            never = fenced[int(np.argmax(bad))] < 0
            text = (
                "no fence of wgmma comes before the first of them"
                if never
                else ("other instructions have accessed its registers since the last fence of wgmma")
            )
            m.report("register-race", inst, text, thread)
        for o in f.overlaps:
            if not writes and o.names not in self.accumulators:
                continue
            busy = o.tick[groups] > self.done[groups]
            if busy.any() and not m.seen("register-race", inst):
                thread = int(self.first_warp[groups[int(np.argmax(busy))]]) * 32
                line = o.inst.line if o.inst is not None else 0
                text = f"its registers are partly those of the wgmma of line {line}, which is in flight as another list"
                m.report("register-race", inst, text, thread)
        if writes:
            unwritten = keep & ~acc.live[groups] & ~f.written[:, groups].all(axis=0)
            if unwritten.any() and not m.seen("uninitialised-read", inst):
                i = int(np.argmax(unwritten))
                which = m.function.regs[f.names[int(np.argmin(f.written[:, groups[i]]))]].name
                thread = int(self.first_warp[groups[i]]) * 32
                text = f"adds to accumulators, of which {which} has not been written"
                m.report("uninitialised-read", inst, text, thread)

    def _poison(self, f: Fragment, groups: Array) -> None:
        self._put(f, self._rows(groups), np.full((1, 1, 32), POISON, np.uint32))

    def watched(self, inst: Inst, step: Step, reads: list[Reg], writes: list[Reg], copies: bool) -> Step:
        """A step of another instruction, with its touches of fragments' registers checked.

        `copies`: it only moves values. Compilers leave such moves behind the fence (nvcc's text does), where the
        assembler places registers anew; they are held to the wait, not to the fence.
        """
        m = self.m
        touched = {id(f): f for r in (*reads, *writes) for f in self.by_register.get(r.index, ())}
        if not touched:
            return step
        fragments = list(touched.values())
        written = {r.index for r in writes}
        stores = [(f, [i for i, n in enumerate(f.names) if n in written]) for f in fragments if written]
        stores = [(f, rows) for f, rows in stores if rows]
        guard = m.reg(inst.guard[0]) if inst.guard is not None else None
        negated = inst.guard[1] if inst.guard is not None else False

        def run(mask: Mask) -> None:
            if guard is not None:
                on = guard != negated
                on = on if mask is None else on & mask
                if not on.any():
                    return
                groups = np.unique(self.group_of_warp[on.reshape(m.NW, 32).any(axis=1)])
            else:
                groups = self.active(mask)
            self.now += 1
            for f in fragments:
                if (f.tick[groups] > self.done[groups]).any():
                    self._in_flight(inst, f, groups, bool(writes) and any(s is f for s, _ in stores))
                if not copies:
                    f.touched[groups] = self.now
            for f, rows in stores:
                for i in rows:
                    f.written[i, groups] = True
            step(mask)

        return run

    def delivering(self, step: Step, registers: list[Reg]) -> Step:
        """Without checks, a step that uses registers of accumulators finds results there that nobody has waited for:
        ptxas puts in the wait that is missing."""
        touched = {
            id(f): f for r in registers for f in self.by_register.get(r.index, ()) if f.names in self.accumulators
        }
        if not touched:
            return step
        accumulators = [self.accumulators[f.names] for f in touched.values()]

        def run(mask: Mask) -> None:
            for a in accumulators:
                if a.waiting:
                    back = np.flatnonzero(a.live)
                    self._to_registers(a, back)
                    a.live[back] = a.waiting = False
            step(mask)

        return run

    def _in_flight(self, inst: Inst, f: Fragment, groups: Array, writes: bool) -> None:
        m = self.m
        kind = "register-race" if writes else "missing-wait"
        if m.seen(kind, inst):
            return
        i = int(np.argmax(f.tick[groups] > self.done[groups]))
        thread = int(self.first_warp[groups[i]]) * 32
        role = "accumulator" if f.names in self.accumulators else "operand A"
        line = f.inst.line if f.inst is not None else 0
        verb = "writes" if writes else "reads"
        text = f"{verb} a register of {role} of the wgmma of line {line}, which nobody has waited for"
        m.report(kind, inst, text, thread)


@lru_cache(maxsize=16)
def _count(n: int) -> Array:
    return np.arange(n)
