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
    type_, op = row.mods["type"], ATOMIC[row.mods["op"]]
    returns = row.row.opcode == "atom"
    args = inst.args[1:] if returns else inst.args
    address, parts = args[0], parts_of(args[1])
    cas = row.mods["op"] == "cas"
    second = parts_of(args[2]) if cas else []
    bits = TYPE_BITS[type_]
    size = bits // 8
    width = size * len(parts)
    access = Access(m, inst, pc, space_of(m, row, address), address, width, True)
    one = Access(m, inst, pc, access.space, address, size, True)
    writers = writers_of(m, parts_of(inst.args[0]), type_) if returns else []
    dtype = NUMPY[type_]
    # A ufunc whose running result is that of one thread after another, bit for bit.
    running = _RUNNING.get(row.mods["op"])
    if type_ in ("f16", "bf16", "f16x2", "bf16x2") or (type_[0] == "f" and row.mods["op"] != "add"):
        running = None

    def typed(words: Array) -> Array:
        raw = words.T
        if bits == 64:
            return np.ascontiguousarray(raw).view(np.uint64)[:, 0].view(dtype)
        small = np.ascontiguousarray(raw[:, 0]).astype(f"u{size}")
        return small.view(dtype).reshape(-1, 2) if type_ in isa.PACKED else small.view(dtype)

    def untyped(values: Array) -> Array:
        if bits == 64:
            return np.ascontiguousarray(np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2).T)
        flat = np.ascontiguousarray(values)
        return (
            flat.view(np.uint32).reshape(1, -1)
            if bits == 32
            else flat.view(f"u{size}").astype(np.uint32).reshape(1, -1)
        )

    def run(space: str, at: Array, lanes: Array, a: Array, b: Array) -> Array:
        """One element per lane, in rounds of distinct addresses; returns the old words."""
        old_words = np.zeros((max(1, bits // 32), len(at)), np.uint32)
        turn = m.rng.permutation(len(at)) if m.checks else np.arange(len(at))
        window = one.shared if space == "shared" else one.local
        # Threads of one address stand together, in their order: rank 0 goes first, then rank 1, …
        place = at[turn] if space == "global" else m.cta_of[lanes[turn]] * (1 << 40) + at[turn]
        turn = turn[np.argsort(place, kind="stable")]
        place = np.sort(place)
        starts = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1]))) if len(turn) else turn
        if space == "global" and m.globals is not None:
            m.globals.atomic(inst, pc, place, size, lanes[turn])
        flushes = space == "global" and type_ == "f32" and row.mods["op"] == "add"
        combine = _add_flushing if flushes else op
        lengths = np.diff(np.append(starts, len(turn)))
        rounds = int(lengths.max()) if len(turn) else 0

        def fetch(now: Array) -> tuple[Array, Any]:
            if space != "global":
                return window.load(at[now] - window.base, size, lanes[now]), None
            words, fault = m.memory.load(at[now], size)
            if fault is not None:
                one._outside(fault, lanes[now])
            return words, fault

        def keep(now: Array, values: Array, fault: Any) -> None:
            if space != "global":
                window.store(at[now] - window.base, size, values, lanes[now])
                return
            ok = np.ones(len(now), bool) if fault is None else ~fault.mask
            m.memory.store(at[now][ok], values[:, ok], size)

        if running is not None and rounds > 4 * len(starts):
            # Few addresses, many threads on each: a running sum (or minimum, …) gives every thread what it saw.
            for start, length in zip(starts.tolist(), lengths.tolist()):
                now = turn[start : start + length]
                words, fault = fetch(now[:1])
                values = np.concatenate([typed(words), a[now]])
                seen = running.accumulate(values, dtype=values.dtype)
                if flushes and (denormal(values) | denormal(seen)).any():
                    seen = np.array(list(accumulate(values, _add_flushing)), values.dtype)
                old_words[:, now] = untyped(seen[:-1])
                keep(now[:1], untyped(seen[-1:]), fault)
            return old_words
        for i in range(rounds):
            now = turn[starts[lengths > i] + i]
            words, fault = fetch(now)
            old = typed(words)
            new = op(old, a[now], b[now]) if cas else combine(old, a[now])
            keep(now, untyped(np.asarray(new, dtype=old.dtype)), fault)
            old_words[:, now] = words
        return old_words

    def step(mask: Mask) -> None:
        lanes = np.arange(m.T) if mask is None else m.lanes(mask)
        for space, at, ls in access.split(access.address(lanes), lanes):
            if space == "global":
                at, ls = access._aligned(at, ls)
                access.record(space, at, ls)
            elif space == "shared":
                offset, ls = access.shared.check(at, width, inst, ls)
                at = offset + SHARED_BASE
                access.touch_shared(offset, ls, None, atomic=True)
            else:
                m.report("unsupported", inst, f"atomic on {space} memory", int(ls[0]))
                return
            olds = []
            for i, p in enumerate(parts):
                a = typed(words_of(m, [p], type_, ls))
                b = typed(words_of(m, [second[0]], type_, ls)) if cas else a
                olds.append(run(space, at + i * size, ls, a, b))
            words = np.concatenate(olds)
            if bits < 32 and len(olds) > 1:
                words = np.stack([olds[2 * i][0] | olds[2 * i + 1][0] << np.uint32(16) for i in range(len(olds) // 2)])
            for put in writers:
                put(words, ls)

    return step


_RUNNING = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}
