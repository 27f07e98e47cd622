"""Names of all bytes of a PTX run: see `terms.py`.

The instructions are those that the examples use. What they mean here is spelled out below from the PTX manual: copies
and selections move names, memory and matrix instructions combine the bytes they combine on the chip, anything else
gives a name to the whole expression. Asynchronous copies are written when they are issued; until the wait that covers
them, nobody may touch their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import names
import numpy as np
import order
import trial
from names import Unknown, fold, known, label, mix, spread, unwritten, value_of
from sums import element
from wavedsl.runtime.emulator.ptx import machine as ptx_machine
from wavedsl.runtime.emulator.ptx import program as ptx_program
from wavedsl.runtime.emulator.ptx import run as ptx_run
from wavedsl.runtime.emulator.ptx.module import Address, Imm, Reg, RegUse, Special, Sym, Vector

if TYPE_CHECKING:
    from terms import Recorder

_SIZES = {"b16": 2, "u16": 2, "b32": 4, "u32": 4, "f32": 4, "b64": 8, "u64": 8, "f64": 8}
_MANY = {"v2": 2, "v4": 4}
_BY_THREAD = frozenset(
    "mov add sub mul mad neg abs min max and or xor not shl shr bfe bfi prmt lop3 setp selp cvt cvta fma".split()
)
_LATE = 1 << 20
"""Epoch of what is never waited for."""


def run(case: trial.Case, text: str, r: Recorder, data: int = 0) -> None:
    """Execute and record. Raises Unknown, and what a run raises."""
    keepers: dict[int, _Keeper] = {}
    decode, end, start = ptx_program.decode, ptx_run.Runner._end, ptx_machine.Machine.start

    def of(machine: Any) -> _Keeper:
        if id(machine) not in keepers:
            keepers[id(machine)] = _Keeper(machine, r)
        return keepers[id(machine)]

    def step_of(machine: Any, *rest: Any) -> Any:
        inst, row, _ = rest[-3:]
        return of(machine).step(inst, row, decode(machine, *rest))

    def end_of(runner: Any, b: int) -> Any:
        inner = end(runner, b)
        block = runner.blocks[b]
        return of(runner.m).end(runner.m.function.insts[block.end - 1], inner)

    def begin(machine: Any, first: int) -> None:
        start(machine, first)
        of(machine).begin()
        r.arrays += [(a.base, a.end) for a in machine.memory.allocations]

    with (
        mock.patch.object(ptx_program, "decode", step_of), mock.patch.object(ptx_run.Runner, "_end", end_of),
        mock.patch.object(ptx_machine.Machine, "start", begin),
    ):  # fmt: skip
        trial.execute(case, text, 0, checks=False, data=data)
    for keeper in keepers.values():
        keeper.close()


class _Keeper:
    """The names of one machine, and the steps that keep them."""

    def __init__(self, m: Any, r: Recorder):
        self.m, self.r = m, r
        self.regs: dict[int, Any] = {}
        """[byte, thread] of each register; of a predicate one byte."""
        self.started = False
        self.epoch = np.zeros(m.T, np.int64)
        place = fold(label("shared"), np.ix_(np.arange(m.ctas), np.arange(m.shared_stride)))
        self.shared = unwritten(place, 1)[0]
        self.pending = np.full(self.shared.shape, -1, np.int64)
        """Thread whose copy to a byte is in flight, or -1."""
        self.open: list[tuple[order.Access, Any]] = []
        """Copies in flight and the groups of their lanes."""
        self.group = np.zeros(m.T, np.int64)
        self.trouble = 0

    def begin(self) -> None:
        if self.started:
            raise Unknown("more workgroups than run at a time")
        self.started = True

    def close(self) -> None:
        end = int(self.epoch.max(initial=0))
        for access, *_ in self.open:
            access.last = np.minimum(access.last, end)
        if self.trouble:
            raise Unknown("a copy is touched before it is waited for")

    # ---- operands

    def names(self, reg: Reg) -> Any:
        found = self.regs.get(reg.index)
        if found is None:
            size = self.m.reg(reg).dtype.itemsize
            found = unwritten(fold(label("register"), (np.uint64(reg.index), np.arange(self.m.T))), size)
            self.regs[reg.index] = found
        return found

    def put(self, reg: Reg, what: Any, on: Any) -> None:
        """Names of a result under a mask of threads; a wider register is extended with what the run holds."""
        target = self.names(reg)
        values = names.bytes_of(self.m.reg(reg))
        full = values.copy()
        full[: len(what)] = what
        np.copyto(target, full, where=on)
        self.r.wrote(np.where(on, target, values), values)

    def source(self, a: Any) -> tuple[str, list[Any]]:
        """An operand's words for the operation's name, and its names."""
        if isinstance(a, RegUse):
            return ("!" if a.negated else "") + "R", [self.names(a.reg)]
        if isinstance(a, Reg):
            return "R", [self.names(a)]
        if isinstance(a, Imm):
            return f"{a.value}:{a.float_bits}", []
        if isinstance(a, Special):
            return a.name, [names.bytes_of(np.broadcast_to(self.m.special[a.name], (self.m.T,)))]
        if isinstance(a, Sym):
            return f"{a.name}+{a.offset}", []
        if isinstance(a, Vector):
            parts = [self.source(p) for p in a.parts]
            return "{" + ",".join(p[0] for p in parts) + "}", [n for p in parts for n in p[1]]
        raise Unknown(str(a))

    def active(self, inst: Any, mask: Any) -> Any:
        """The threads that execute an instruction. Raises Unknown where its guard depends on data."""
        on = self.m.live.copy() if mask is None else mask & self.m.live
        if inst.guard is not None:
            reg, negated = inst.guard
            names.demand(self.names(reg)[:, on], "a guard")
            on &= self.m.reg(reg) != negated
        return on

    def place(self, address: Address, on: Any, size: int) -> tuple[Any, Any]:
        """Names and addresses of the places of a global access, [byte, thread that makes it]."""
        if not isinstance(address.base, Reg) or address.coords or self.m.reg(address.base).dtype.itemsize != 8:
            raise Unknown(str(address))
        base = fold(label("at"), self.names(address.base))
        at = self.m.reg(address.base).view(np.int64)[on] + address.offset
        if (at % size).any():
            raise Unknown("an access that is not aligned")
        place = np.stack([mix(base, np.uint64(address.offset + b & (1 << 64) - 1)) for b in range(size)])
        return place[:, on], np.stack([at + b for b in range(size)])

    def inside(self, address: Address, on: Any, size: int) -> Any:
        """Offsets in the workgroup's shared memory of the threads that access it."""
        at = np.full(int(on.sum()), address.offset, np.int64)
        if isinstance(address.base, Reg):
            at = at + value_of(self.names(address.base)[:, on], "a shared address")
        elif isinstance(address.base, Sym):
            at = at + self.m.symbols[address.base.name][1] + address.base.offset
        at -= ptx_machine.SHARED_BASE
        if ((at < 0) | (at + size > self.m.shared_bytes)).any():
            raise Unknown("an access beyond shared memory")
        return at

    def touch(self, writes: bool, who: Any, at: Any, size: int, what: Any = None) -> order.Access:
        """Record a shared access of threads `who` at offsets `at`; no copy in flight may be hit."""
        group = self.m.cta_of[who]
        for b in range(size):
            self.trouble += int((self.pending[group, at + b] >= 0).sum())
            if writes:
                self.shared[group, at + b] = names.written(what[b])
        epoch = self.epoch[who]
        access = order.Access(writes, group, self.m.thread_in_cta[who], epoch, epoch, at, size, what)
        self.r.accesses.append(access)
        return access

    # ---- control

    def end(self, inst: Any, inner: Any) -> Any:
        """The end of a block: guards must be known, barriers count."""
        head = inst.name.split(".")[0]
        barrier = head in ("bar", "barrier")
        if barrier and (inst.name != "bar.sync" or inst.guard is not None or not (
                len(inst.args) == 1 and isinstance(inst.args[0], Imm))):  # fmt: skip
            raise Unknown(inst.name)

        def checked(g: Any) -> Any:
            self.active(inst, g.mask)
            if barrier:
                self.epoch = self.epoch + (np.ones(self.m.T, bool) if g.mask is None else g.mask)
            return inner(g)

        return checked

    # ---- instructions

    def step(self, inst: Any, row: Any, inner: Any) -> Any:
        words = inst.name.split(".")
        head = words[0]
        if head in ("ld", "st"):
            rule: Any = self.memory
        elif head == "ldmatrix":
            rule = self.fragments
        elif head == "mma":
            rule = self.matrix
        elif inst.name == "bar.warp.sync":
            rule = self.warp_barrier
        elif head == "cp":
            rule = {"cg": self.copy, "ca": self.copy, "commit_group": self.commit, "wait_group": self.wait,
                    "wait_all": self.wait}.get(words[2])  # fmt: skip
        else:
            rule = self.arithmetic if head in _BY_THREAD else None
        if rule is None:
            raise Unknown(inst.name)
        finish = rule(inst, row, words)

        def traced(mask: Any) -> None:
            for _ in finish(self.active(inst, mask)):
                inner(mask)

        return traced

    def warp_barrier(self, inst: Any, row: Any, words: list[str]) -> Any:
        """All lanes of a warp meet. Where it is the workgroup's only one that is a barrier of the workgroup; of others
        nothing is concluded, so their lanes count as not ordered."""
        if inst.args != [Imm(0xFFFFFFFF)]:
            raise Unknown(inst.name)

        def finish(on: Any) -> Any:
            if self.m.warps == 1:
                self.epoch = self.epoch + on
            yield

        return finish

    def arithmetic(self, inst: Any, row: Any, words: list[str]) -> Any:
        """Thread by thread."""
        first, rest = inst.args[0], inst.args[1:]
        if not isinstance(first, RegUse) or inst.pair is not None or "carry" in row.effects:
            raise Unknown(inst.name)
        copies = words[0] == "mov" and isinstance(rest[0], RegUse)
        selects = words[0] == "selp"
        # bit 3 of a selector spreads the sign
        permutes = inst.name == "prmt.b32" and isinstance(rest[2], Imm) and not rest[2].value & 0x8888 and all(
            isinstance(a, RegUse) for a in rest[:2])  # fmt: skip

        def finish(on: Any) -> Any:
            parts = [self.source(a) for a in rest]
            used = [n.copy() for p in parts for n in p[1]]
            yield
            values = names.bytes_of(self.m.reg(first.reg))
            sure = np.ones(self.m.T, bool)
            for n in used:
                sure &= known(n).all(axis=0)
            if sure[on].all():
                what = values
            elif copies:
                what = used[0]
            elif selects and known(parts[2][1][0][:, on]).all():
                chosen = self.m.reg(rest[2].reg) != rest[2].negated
                what = np.where(chosen, *(used.pop(0) if p[1] else values for p in parts[:2]))
            elif permutes:
                held = np.concatenate(used[:2])
                what = held[[rest[2].value >> 4 * b & 7 for b in range(4)]]
            else:
                term = fold(label(inst.name + "|" + "|".join(p[0] for p in parts)), (b for n in used for b in n))
                what = np.where(sure, values, spread(term, len(values)))
            self.put(first.reg, what, on)

        return finish

    def memory(self, inst: Any, row: Any, words: list[str]) -> Any:
        stores, space = words[0] == "st", words[1]
        size = _SIZES[words[-1]]
        data, address = (inst.args[1], inst.args[0]) if stores else inst.args[:2]
        parts = list(data.parts) if isinstance(data, Vector) else [data]
        total = size * len(parts)
        if len(words) != 3 + (words[2] in _MANY) or space not in ("param", "global", "shared"):
            raise Unknown(inst.name)
        if any(not isinstance(p, RegUse) for p in parts):
            raise Unknown("a store of a constant")

        def finish(on: Any) -> Any:
            who = np.flatnonzero(on)
            what = np.zeros((total, self.m.T), np.uint64)
            if stores:
                what = np.concatenate([self.names(p.reg)[:size] for p in parts])
            if space == "param":
                what = self.argument(address, total)
            elif space == "global":
                place, at = self.place(address, on, total)
                if stores:
                    self.r.stored(place, at, what[:, on])
                else:
                    what[:, on] = self.r.loaded(place, at)
            else:
                at = self.inside(address, on, total)
                self.touch(stores, who, at, total, what[:, on])
                if not stores:
                    for b in range(total):
                        what[b, on] = self.shared[self.m.cta_of[who], at + b]
            yield
            if not stores:
                for n, p in enumerate(parts):
                    self.put(p.reg, what[size * n : size * (n + 1)], on)

        return finish

    def argument(self, address: Address, size: int) -> Any:
        """Arguments, all of them addresses of arrays, below 2**48."""
        if not isinstance(address.base, Sym) or address.offset or address.base.offset or size != 8:
            raise Unknown(str(address))
        held = spread(label("argument " + address.base.name), 8)
        held[6:] = 0
        return np.broadcast_to(held[:, None], (8, self.m.T))

    # ---- asynchronous copies

    def copy(self, inst: Any, row: Any, words: list[str]) -> Any:
        to, source, size, *more = inst.args
        if not isinstance(size, Imm) or len(more) > 1 or (more and not isinstance(more[0], RegUse)):
            raise Unknown(inst.name)
        width = size.value

        def finish(on: Any) -> Any:
            who = np.flatnonzero(on)
            count = np.full(len(who), width, np.int64)
            if more:
                count = value_of(self.names(more[0].reg)[:, on], "a size")
            place, at = self.place(source, on, width)
            taken = np.arange(width)[:, None] < count
            what = np.zeros(taken.shape, np.uint64)
            what[taken] = self.r.loaded(place[taken], at[taken])
            where = self.inside(to, on, width)
            access = self.touch(True, who, where, width, what)
            access.last = np.full(len(who), _LATE, np.int64)
            for b in range(width):
                self.pending[self.m.cta_of[who], where + b] = who
            self.open.append((access, self.group[who].copy(), who))
            yield

        return finish

    def commit(self, inst: Any, row: Any, words: list[str]) -> Any:
        def finish(on: Any) -> Any:
            self.group = self.group + on
            yield

        return finish

    def wait(self, inst: Any, row: Any, words: list[str]) -> Any:
        """All groups of a thread but its youngest are done; `wait_all` also takes what is not committed."""
        everything = words[2] == "wait_all"
        keep = 0 if everything else inst.args[0].value

        def finish(on: Any) -> Any:
            left = []
            for access, group, who in self.open:
                done = on[who] & ((group < self.group[who] - keep) | everything) & (access.last == _LATE)
                access.last = np.where(done, self.epoch[who], access.last)
                for b in range(access.size):
                    self.pending[access.group[done], access.address[done] + b] = -1
                if (access.last == _LATE).any():
                    left.append((access, group, who))
            self.open = left
            yield

        return finish

    # ---- matrices

    def fragments(self, inst: Any, row: Any, words: list[str]) -> Any:
        """`ldmatrix`: thread l has the address of row l % 8 of matrix l / 8, and gets 4 bytes of row l / 4 of each."""
        if inst.name != "ldmatrix.sync.aligned.m8n8.x4.shared.b16":
            raise Unknown(inst.name)
        into, address = inst.args

        def finish(on: Any) -> Any:
            if not on.all():
                raise Unknown("a part of a warp")
            at = self.inside(address, on, 16)
            self.touch(False, np.arange(self.m.T), at, 16)
            rows = np.stack([self.shared[self.m.cta_of, at + b] for b in range(16)])
            lane, base = self.m.lane_of, self.m.global_warp * 32
            yield
            for q, p in enumerate(into.parts):
                owner = base + 8 * q + lane // 4
                self.put(p.reg, np.stack([rows[4 * (lane % 4) + b, owner] for b in range(4)]), on)

        return finish

    def matrix(self, inst: Any, row: Any, words: list[str]) -> Any:
        """m16n8k16 of 16-bit inputs: an element depends on its row of A, its column of B and its element of C."""
        if words[3:6] != ["m16n8k16", "row", "col"] or words[6] != "f32" or words[7] != "f16":
            raise Unknown(inst.name)
        d, a, b, c = inst.args
        operation = label(inst.name)

        def finish(on: Any) -> Any:
            if not on.all():
                raise Unknown("a part of a warp")
            warps = self.m.NW
            held = [names.written(np.stack([self.names(p.reg) for p in x.parts])).reshape(len(x.parts), 4, warps, 8, 4)
                    for x in (a, b)]  # fmt: skip
            rows = np.zeros((2, warps, 16, 16), np.uint64)
            columns = np.zeros((2, warps, 8, 16), np.uint64)
            for t in range(4):
                for h in range(2):
                    for half in range(2):
                        k = 2 * t + h + 8 * half
                        for up in range(2):
                            rows[:, :, 8 * up : 8 * up + 8, k] = held[0][2 * half + up, 2 * h : 2 * h + 2, :, :, t]
                        columns[:, :, :, k] = held[1][half, 2 * h : 2 * h + 2, :, :, t]
            sums = [names.written(self.names(p.reg)).copy() for p in c.parts]
            yield
            lane, warp = self.m.lane_of, self.m.global_warp
            for n, p in enumerate(d.parts):
                i, j = lane // 4 + n // 2 * 8, 2 * (lane % 4) + n % 2
                value = names.bytes_of(self.m.reg(p.reg))
                self.put(p.reg, element(operation, sums[n], rows[:, warp, i], columns[:, warp, j], value), on)

        return finish
