"""Atomics of the PTX emulator: threads take turns in an adversarial order, bit for bit as if one after another."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa import NUMPY, TYPE_BITS
from wavedsl.codegen.ptx.isa_memory import ATOMIC
from wavedsl.codegen.ptx.isa_numerics import F32_TINY, flush
from wavedsl.runtime.emulator.ptx.machine import SHARED_BASE, Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.memory import Access, parts_of, space_of, words_of, writers_of
from wavedsl.runtime.emulator.ptx.module import Inst

Step = Callable[[Mask], None]


def denormal(x: Array) -> Array:
    found: Array = (np.abs(x) < F32_TINY) & (x != 0)
    return found


def _add_flushing(old: Array, a: Array) -> Array:
    """Sums of float32 in global memory take and give zeros for denormals: an H200 does, the PTX ISA says so."""
    return flush(flush(np.asarray(old)) + flush(np.asarray(a)))


def atomic(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Step:
    """`atom` and `red`: threads take turns in an adversarial order; those on different addresses go together."""
    return _Atomic(m, inst, row, pc).step


class _Atomic:
    """An `atom` or `red`: of one element, or of a vector whose elements are atomic each for itself."""

    def __init__(self, m: Machine, inst: Inst, row: isa.Inst, pc: int):
        self.m, self.inst, self.pc = m, inst, pc
        self.type, self.name = row.mods["type"], row.mods["op"]
        returns = row.row.opcode == "atom"
        address, value, *more = inst.args[1:] if returns else inst.args
        self.parts = parts_of(value)
        self.swapped = parts_of(more[0]) if self.name == "cas" else []
        self.bits = TYPE_BITS[self.type]
        self.size = self.bits // 8
        self.width = self.size * len(self.parts)
        self.access = Access(m, inst, pc, space_of(m, row, address), address, self.width, True)
        self.one = Access(m, inst, pc, self.access.space, address, self.size, True)
        self.writers = writers_of(m, parts_of(inst.args[0]), self.type) if returns else []

    def step(self, mask: Mask) -> None:
        m, access = self.m, self.access
        lanes = np.arange(m.T) if mask is None else m.lanes(mask)
        for space, at, ls in access.split(access.address(lanes), lanes):
            if space == "global":
                at, ls = access._aligned(at, ls)
                access.record(space if self.writers else "changes", at, ls)
            elif space == "shared":
                offset, ls = access.shared.check(at, self.width, self.inst, ls)
                at = offset + SHARED_BASE
                access.touch_shared(offset, ls, None, atomic=True)
            else:
                m.report("unsupported", self.inst, f"atomic on {space} memory", int(ls[0]))
                return
            olds = []
            for i, part in enumerate(self.parts):
                operands = [self._typed(words_of(m, [p], self.type, ls)) for p in (part, *self.swapped)]
                olds.append(self._in_turn(space, at + i * self.size, ls, operands))
            words = np.concatenate(olds)
            if self.bits < 32 and len(olds) > 1:
                words = np.stack([olds[2 * i][0] | olds[2 * i + 1][0] << np.uint32(16) for i in range(len(olds) // 2)])
            for put in self.writers:
                put(words, ls)

    def _in_turn(self, space: str, at: Array, lanes: Array, operands: list[Array]) -> Array:
        """One element per lane, in rounds of distinct addresses; returns the old words."""
        m = self.m
        old_words = np.zeros((max(1, self.bits // 32), len(at)), np.uint32)
        turn = m.rng.permutation(len(at)) if m.checks else np.arange(len(at))
        # Threads of one address stand together, in their order: rank 0 goes first, then rank 1, …
        place = at[turn] if space == "global" else m.cta_of[lanes[turn]] * (1 << 40) + at[turn]
        turn = turn[np.argsort(place, kind="stable")]
        place = np.sort(place)
        starts = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1]))) if len(turn) else turn
        if space == "global" and m.globals is not None:
            m.globals.atomic(self.inst, self.pc, place, self.size, lanes[turn])
        flushes = space == "global" and self.type == "f32" and self.name == "add"
        lengths = np.diff(np.append(starts, len(turn)))
        rounds = int(lengths.max()) if len(turn) else 0
        running = self._running()
        if running is not None and rounds > 4 * len(starts):
            # Few addresses, many threads on each: a running sum (or minimum, …) gives every thread what it saw.
            for start, length in zip(starts.tolist(), lengths.tolist()):
                now = turn[start : start + length]
                words, fault = self._fetch(space, at[now[:1]], lanes[now[:1]])
                values = np.concatenate([self._typed(words), operands[0][now]])
                seen = running.accumulate(values, dtype=values.dtype)
                if flushes and (denormal(values) | denormal(seen)).any():
                    seen = np.array(list(accumulate(values, _add_flushing)), values.dtype)
                old_words[:, now] = self._untyped(seen[:-1])
                self._keep(space, at[now[:1]], lanes[now[:1]], self._untyped(seen[-1:]), fault)
            return old_words
        combine = _add_flushing if flushes else ATOMIC[self.name]
        for i in range(rounds):
            now = turn[starts[lengths > i] + i]
            words, fault = self._fetch(space, at[now], lanes[now])
            old = self._typed(words)
            new = np.asarray(combine(old, *(x[now] for x in operands)), dtype=old.dtype)
            self._keep(space, at[now], lanes[now], self._untyped(new), fault)
            old_words[:, now] = words
        return old_words

    def _running(self) -> np.ufunc | None:
        """A ufunc whose running result is that of one thread after another, bit for bit."""
        rounds_itself = self.type in ("f16", "bf16", "f16x2", "bf16x2") or (self.type[0] == "f" and self.name != "add")
        return None if rounds_itself else _RUNNING.get(self.name)

    def _fetch(self, space: str, at: Array, lanes: Array) -> tuple[Array, Any]:
        """The words at addresses of one element, and the fault of those outside of memory."""
        if space != "global":
            window = self.one.shared
            return window.load(at - window.base, self.size, lanes), None
        words, fault = self.m.memory.load(at, self.size)
        if fault is not None:
            self.one._outside(fault, lanes)
        return words, fault

    def _keep(self, space: str, at: Array, lanes: Array, values: Array, fault: Any) -> None:
        """Store words where `_fetch` had them from."""
        if space != "global":
            window = self.one.shared
            window.store(at - window.base, self.size, values, lanes)
            return
        ok = np.ones(len(at), bool) if fault is None else ~fault.mask
        self.m.memory.store(at[ok], values[:, ok], self.size)

    def _typed(self, words: Array) -> Array:
        """Words (word, lane) as one element per lane, pairs of halves as two."""
        raw, dtype = words.T, NUMPY[self.type]
        if self.bits == 64:
            return np.ascontiguousarray(raw).view(np.uint64)[:, 0].view(dtype)
        small = np.ascontiguousarray(raw[:, 0]).astype(f"u{self.size}")
        return small.view(dtype).reshape(-1, 2) if self.type in isa.PACKED else small.view(dtype)

    def _untyped(self, values: Array) -> Array:
        """The words of elements."""
        flat = np.ascontiguousarray(values)
        if self.bits == 64:
            return np.ascontiguousarray(flat.view(np.uint32).reshape(-1, 2).T)
        if self.bits == 32:
            return flat.view(np.uint32).reshape(1, -1)
        return flat.view(f"u{self.size}").astype(np.uint32).reshape(1, -1)


_RUNNING = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}
