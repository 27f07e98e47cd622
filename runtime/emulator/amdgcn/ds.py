"""LDS instructions: reads, writes, atomics, transposed reads, lane exchange through LDS.

In: a parsed line with its row's `Mem`. Out: `step(state)`. Without a checker, results arrive at once. With one, every
operation is put in flight, and each access is looked at for races. What reaches beyond the workgroup's LDS is a
finding, reads 0 and writes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.runtime.emulator.amdgcn.atomic import apply_atomic, reduce_atomic
from wavedsl.runtime.emulator.amdgcn.env import Active, Env, clear, common, every_lane, place, spread, stored
from wavedsl.runtime.emulator.amdgcn.state import (
    I64,
    LANES,
    U8,
    U16,
    U32,
    State,
)
from wavedsl.runtime.emulator.amdgcn.step import Context, Step, named
from wavedsl.runtime.emulator.amdgcn.text import Line


def lds_lanes(
    env: Env, st: State, index: int, address: np.ndarray, size: int, active: Active
) -> tuple[np.ndarray, Active]:
    """Byte positions in the batch's LDS and the lanes that are inside the workgroup's allocation."""
    inside = address.astype(I64) + size <= env.lds_size
    if active is None and inside.all():
        return st.lds_base + address, None
    active = st.mask if active is None else active
    bad = ~inside if active is None else ~inside & active
    if bad.any():
        if env.check is not None:
            worst = int(address[bad].max())
            env.check.fault(
                st,
                index,
                "out-of-bounds",
                f"LDS address {worst}, {worst + size - env.lds_size} bytes past "
                f"the {env.lds_size} bytes of the workgroup",
                bad,
            )
        active = inside if active is None else active & inside
    return np.where(True if active is None else active, st.lds_base + address, 0), active


def lds_load(env: Env, position: np.ndarray, size: int, active: Active) -> np.ndarray:
    """Words [k, wave, lane] at byte positions (inactive lanes read position 0)."""
    k = (size + 3) // 4
    if size % 4 == 0 and not np.bitwise_or.reduce(position, axis=None) & 3:
        index = position >> 2
        out = np.empty((k, *index.shape), U32)
        for j in range(k):
            np.take(env.lds32, index + j if j else index, out=out[j], mode="clip")
        return out
    parts = np.zeros((*position.shape, 4 * k), U8)
    for i in range(size):
        parts[..., i] = env.lds8.take(position + i, mode="clip")
    return np.moveaxis(parts.view(U32), -1, 0)


def lds_store(env: Env, position: np.ndarray, words: np.ndarray, size: int, active: Active) -> None:
    if active is not None:
        position, words = position[active], words[:, active]
    if not position.size:
        return
    if size % 4 == 0 and not np.bitwise_or.reduce(position, axis=None) & 3:
        index = position >> 2
        for j in range(size // 4):
            env.lds32[index + j if j else index] = words[j]
        return
    for i in range(size):
        env.lds8[position + i] = (words[i // 4] >> U32(8 * (i % 4))).astype(U8)


def ds(ctx: Context, env: Env, line: Line, index: int) -> Step:
    """Reads, writes and atomics of LDS, one or two addresses per lane."""
    inst = line.inst
    assert inst is not None and inst.mem is not None
    mem = inst.mem
    v, m = named(line), line.modifiers
    regs = ctx.regs
    addr = regs.row(v["addr"])
    if mem.pieces == 2:
        offsets: tuple[Any, ...] = (m.get("offset0", 0) * mem.stride, m.get("offset1", 0) * mem.stride)
    else:
        offsets = (m.get("offset", 0),)
    n = (mem.bytes + 3) // 4
    d = regs.row(v["d"]) if "d" in v else -1
    data = [regs.row(v[k]) for k in ("data", "data1") if k in v]
    size, convert = mem.bytes, mem.convert
    check = env.check

    def deliver(st: State, j: int, position: np.ndarray, active: Active) -> None:
        words = lds_load(env, position, size, active)
        for i in range(n):
            place(st, d + n * j + i, active, words[i], convert)

    # the first of two elements may land in the register that still addresses the second
    overwrites = len(offsets) > 1 and d <= addr < d + n * len(offsets)

    def load(st: State) -> None:
        base = st.U[addr].copy() if overwrites else st.U[addr]
        for j, offset in enumerate(offsets):
            address = base + U32(offset) if offset else base
            position, active = lds_lanes(env, st, index, address, size, st.mask)
            if env.conflicts is not None:
                env.conflicts(st, index, address, size, False)
            if check is None:
                deliver(st, j, position, active)
                if active is not st.mask and active is not None:
                    clear(st, d + n * j, n, common(st.mask, ~active))
            else:
                dead = None if active is st.mask else (~active if st.mask is None else st.mask & ~active)
                check.lds_load(st, index, position, size, active, dead, j == len(offsets) - 1, deliver, j, d + n * j, n)

    def store(st: State) -> None:
        base = st.U[addr]
        for j, offset in enumerate(offsets):
            address = base + U32(offset) if offset else base
            position, active = lds_lanes(env, st, index, address, size, st.mask)
            words = stored(st, data[j if len(data) > 1 else 0], n, convert)
            if env.conflicts is not None:
                env.conflicts(st, index, address, size, True)
            if check is not None:
                check.lds_store(
                    st, index, position, size, active, words, j == len(offsets) - 1, data[j if len(data) > 1 else 0], n
                )
            lds_store(env, position, words, size, active)

    def atomic(st: State) -> None:
        address = st.U[addr] + U32(offsets[0])
        position, active = lds_lanes(env, st, index, address, size, st.mask)
        if env.atomics is not None:
            env.atomics(st, address, active, size)
        chosen = every_lane(st) if active is None else active
        at = position[chosen]
        if check is not None:
            check.aligned(st, index, address, size, st.mask)
            check.covered(st, index, position, size, active)
            check.lds.atomic(st, index, position, size, active)
        rows = [st.U[r : r + n] for r in data]
        if mem.function == "cmpswap":
            rows.reverse()  # LDS gives (compare, new)
        words = np.concatenate(rows)[:, chosen]

        def get(which: np.ndarray) -> np.ndarray:
            return lds_load(env, at[which], size, None)

        def put(which: np.ndarray, new: np.ndarray) -> None:
            lds_store(env, at[which], new, size, None)

        if at.size and not reduce_atomic(at, words, mem, get, put):
            order = None if check is None else check.permutation(at.size)
            old = apply_atomic(at, words, mem, get, put, order)
            if mem.returns:
                out = spread(chosen, old, st.waves)
                for i in range(n):
                    place(st, d + i, chosen, out[i], "")
        if check is not None:
            check.lds_atomic(st, index, position, size, active)

    return {"load": load, "store": store, "atomic": atomic}[mem.op]


def ds_transpose(ctx: Context, env: Env, line: Line, index: int) -> Step:
    """Each group of 16 lanes reads 16 rows of bytes; lane t receives column t of the bit matrix they form."""
    inst = line.inst
    assert inst is not None and inst.mem is not None
    v = named(line)
    addr, d, size, bits = ctx.regs.row(v["addr"]), ctx.regs.row(v["d"]), inst.mem.bytes, inst.extra
    offset = U32(line.modifiers.get("offset", 0))
    n = size // 4
    count = 8 * size // bits
    check = env.check

    def exchange(words: np.ndarray, waves: int) -> np.ndarray:
        """[n, wave, lane] → the same, transposed between lanes."""
        lines = np.ascontiguousarray(np.moveaxis(words, 0, -1)).view(U8).reshape(waves * 4, 16 * size)
        if bits >= 8:
            item = U16 if bits == 16 else U8
            matrix = lines.view(item).reshape(waves * 4, count, 16)
            out = np.ascontiguousarray(matrix.transpose(0, 2, 1)).view(U8)
        else:
            flat = np.unpackbits(lines, axis=1, bitorder="little").reshape(waves * 4, count, 16, bits)
            out = np.packbits(
                flat.transpose(0, 2, 1, 3).reshape(waves * 4, 16, count * bits), axis=2, bitorder="little"
            )
        return np.moveaxis(np.ascontiguousarray(out).reshape(waves, LANES, size).view(U32), -1, 0)

    def deliver(st: State, j: int, position: np.ndarray, active: Active) -> None:
        out = exchange(lds_load(env, position, size, active), st.waves)
        for i in range(n):
            place(st, d + i, active, out[i], "")

    def step(st: State) -> None:
        address = st.U[addr] + offset
        position, active = lds_lanes(env, st, index, address, size, st.mask)
        if env.conflicts is not None:
            env.conflicts(st, index, address, size, False)
        if check is None:
            deliver(st, 0, position, active)
            return
        check.aligned(st, index, address, 8 if size == 8 else 4, st.mask)
        check.lds_load(st, index, position, size, active, None, True, deliver, 0, d, n)

    return step


def swizzle_source(offset: int) -> np.ndarray:
    lane = np.arange(LANES)
    if offset & 0x8000:
        return (lane & ~3) + ((offset >> 2 * (lane & 3)) & 3)
    inner = ((lane & 31 & offset) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)
    return (lane & 32) + inner


def ds_swizzle(ctx: Context, env: Env, line: Line, index: int) -> Step:
    v = named(line)
    a, d = ctx.regs.row(v["a"]), ctx.regs.row(v["d"])
    source = swizzle_source(int(line.modifiers.get("offset", 0)))

    def step(st: State) -> None:
        x = st.U[a][:, source]
        if st.mask is not None:
            x = np.where(st.mask[:, source], x, U32(0))
        place(st, d, st.mask, x, "")
        if env.check is not None:
            env.check.flight(st, index)

    return step


def ds_bpermute(ctx: Context, env: Env, line: Line, index: int) -> Step:
    v = named(line)
    addr, a, d = (ctx.regs.row(v[n]) for n in ("addr", "a", "d"))
    offset = U32(line.modifiers.get("offset", 0))

    def step(st: State) -> None:
        lane = (((st.U[addr] + offset) >> U32(2)) & U32(63)).astype(np.intp)
        x = np.take_along_axis(st.U[a], lane, axis=1)
        if st.mask is not None:
            x = np.where(np.take_along_axis(st.mask, lane, axis=1), x, U32(0))
        place(st, d, st.mask, x, "")
        if env.check is not None:
            env.check.flight(st, index)

    return step


def ds_permute(ctx: Context, env: Env, line: Line, index: int) -> Step:
    v = named(line)
    addr, a, d = (ctx.regs.row(v[n]) for n in ("addr", "a", "d"))
    offset = U32(line.modifiers.get("offset", 0))

    def step(st: State) -> None:
        lane = (((st.U[addr] + offset) >> U32(2)) & U32(63)).astype(np.intp)
        out = np.zeros((st.waves, LANES), U32)
        active = every_lane(st) if st.mask is None else st.mask
        wave = np.broadcast_to(np.arange(st.waves)[:, None], lane.shape)
        out[wave[active], lane[active]] = st.U[a][active]
        place(st, d, st.mask, out, "")
        if env.check is not None:
            env.check.flight(st, index)

    return step
