"""Vector memory instructions: loads, stores, atomics, and copies straight to LDS.

In: a parsed line with its row's `Mem`. Out: `step(state)`. Addresses of all lanes of all waves go through one gather
or scatter. Without a checker, results arrive at once. With one, every operation is put in flight: the checker keeps
the queues and decides when data arrive (earliest or latest legal moment).

Rules of bounds: lanes beyond a buffer's range read 0 and write nothing; for an atomic that is a finding too (gfx950 was
seen to fault, triton#9855). Any other access outside every allocation, beyond the workgroup's LDS or beyond scratch is
a finding, reads 0 and writes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Reg
from wavedsl.runtime.emulator.amdgcn.address import Address, address_of
from wavedsl.runtime.emulator.amdgcn.atomic import apply_atomic, reduce_atomic
from wavedsl.runtime.emulator.amdgcn.ds import lds_lanes, lds_load, lds_store
from wavedsl.runtime.emulator.amdgcn.env import (
    FLAT_SCRATCH_START,
    PRIVATE_BUFFER,
    WAVE_SCRATCH,
    Active,
    Env,
    clear,
    common,
    every_lane,
    place,
    spread,
    stored,
)
from wavedsl.runtime.emulator.amdgcn.state import (
    I32,
    I64,
    LANES,
    PRIVATE_APERTURE,
    SHARED_APERTURE,
    U8,
    U16,
    U32,
    State,
    vector_raw,
)
from wavedsl.runtime.emulator.amdgcn.step import Context, Step, named
from wavedsl.runtime.emulator.amdgcn.text import Line


def _placed(address: Address, access: Access, env: Env) -> Address:
    """On gfx90a a kernel that got the start of scratch puts where its wave's is into FLAT_SCRATCH."""

    def placed(st: State) -> tuple[np.ndarray, Active]:
        if env.check is not None:
            wrong = st.S[51].view(I64) != FLAT_SCRATCH_START + WAVE_SCRATCH * st.wave
            if wrong.any():
                env.check.fault(st, access.index, "out-of-bounds", "FLAT_SCRATCH does not hold where this wave's "
                                "scratch is", np.repeat(wrong[:, None], LANES, axis=1))  # fmt: skip
        return address(st)

    return placed


class Access:
    """Reads and writes of the lanes of one instruction in whatever memory their addresses lie."""

    def __init__(self, env: Env, line: Line, index: int):
        assert line.inst is not None
        self.env, self.index, self.space = env, index, line.inst.extra
        self.watch = None if env.check is None else env.check.globals
        self.strong = self.watch is not None and self.watch.strong(line)

    def load(self, st: State, address: np.ndarray, active: Active, size: int) -> np.ndarray:
        """Words [k, wave, lane], zero for inactive lanes."""
        env = self.env
        other = self._not_global(st, address, active)
        if other is not None:
            return self._mixed_load(st, address, active, size, other)
        flat = address.reshape(-1) if active is None else address[active]
        words, fault = env.memory.load(flat, size)
        if fault is not None:
            self.fault(st, fault, active, "reads")
        if self.watch is not None:
            self.watch.read(st, self.index, flat, size, active, self.strong)
        return spread(active, words, st.waves)

    def store(self, st: State, address: np.ndarray, active: Active, words: np.ndarray, size: int) -> None:
        other = self._not_global(st, address, active)
        if other is not None:
            self._mixed_store(st, address, active, words, size, other)
            return
        if active is None:
            self._put(st, address.reshape(-1), active, words.reshape(words.shape[0], -1), size)
        else:
            self._put(st, address[active], active, words[:, active], size)

    def _put(self, st: State, at: np.ndarray, active: Active, words: np.ndarray, size: int) -> None:
        """Store to global memory: addresses [n], words [k, n] of the active lanes."""
        if self.watch is not None:
            self.watch.write(st, self.index, at, size, active, words, self.strong)
        fault = self.env.memory.store(at, words, size)
        if fault is not None:
            self.fault(st, fault, active, "writes")

    def fault(self, st: State, fault: Any, active: Active, verb: str) -> None:
        if self.env.check is None:
            return
        mask = np.zeros((st.waves, LANES), bool)
        if active is None:
            mask.reshape(-1)[:] = fault.mask
        else:
            mask[active] = fault.mask
        self.env.check.fault(st, self.index, "out-of-bounds", f"{verb} {fault.message}", mask)

    # flat addresses may lie in the apertures of LDS and scratch; scratch instructions always do

    def _not_global(self, st: State, address: np.ndarray, active: Active) -> tuple[Active, Active] | None:
        """Lanes in LDS and in scratch, or None when all are global."""
        if self.space == "scratch":
            return np.zeros((st.waves, LANES), bool), every_lane(st) if active is None else active
        if self.space == "flat":
            live = every_lane(st) if active is None else active
            shared = live & (address >> 48 == SHARED_APERTURE >> 48)
            private = live & (address >> 48 == PRIVATE_APERTURE >> 48)
            if shared.any() or private.any():
                return shared, private
        if self.space == "buffer" and self.env.scratch_size:
            live = every_lane(st) if active is None else active
            private = live & (address >= PRIVATE_BUFFER) & (address < PRIVATE_BUFFER + (1 << 32))
            if private.any():
                return np.zeros_like(live), private
        return None

    def _private(self, st: State, address: np.ndarray, lanes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        at = address & 0xFFFFFFFF
        bad = lanes & ((at + size > self.env.scratch_size) | (at < 0))
        if bad.any():
            if self.env.check is not None:
                self.env.check.fault(st, self.index, "out-of-bounds", f"scratch address {int(at[bad].max())} of "
                                     f"{self.env.scratch_size} bytes", bad)  # fmt: skip
            lanes = lanes & ~bad
        lane = np.arange(st.waves * LANES).reshape(st.waves, LANES)
        return np.where(lanes, at + lane * self.env.scratch_size, 0), lanes

    def _mixed_load(self, st: State, address: np.ndarray, active: Active, size: int, other: Any) -> np.ndarray:
        shared, private = other
        out = np.zeros(((size + 3) // 4, st.waves, LANES), U32)
        live = every_lane(st) if active is None else active
        rest = live & ~shared & ~private
        if rest.any():
            words, fault = self.env.memory.load(address[rest], size)
            out[:, rest] = words
            if fault is not None:
                self.fault(st, fault, rest, "reads")
            if self.watch is not None:
                self.watch.read(st, self.index, address[rest], size, rest, self.strong)
        if shared.any():
            position, inside = lds_lanes(self.env, st, self.index, (address & 0xFFFFFFFF).astype(U32), size, shared)
            if self.env.check is not None:
                self.env.check.lds_touch(st, self.index, position, size, inside, False)
            words = lds_load(self.env, position, size, inside)
            out[:, shared] = words[:, shared]
        if private.any():
            at, lanes = self._private(st, address, private, size)
            flat = st.scratch.reshape(-1)  # type: ignore[union-attr]
            raw = np.zeros((*at.shape, (size + 3) // 4 * 4), U8)
            for i in range(size):
                raw[..., i] = flat.take(at + i, mode="clip")
            words = np.moveaxis(raw.view(U32), -1, 0)
            out[:, lanes] = words[:, lanes]
        return out

    def _mixed_store(
        self, st: State, address: np.ndarray, active: Active, words: np.ndarray, size: int, other: Any
    ) -> None:
        shared, private = other
        live = every_lane(st) if active is None else active
        rest = live & ~shared & ~private
        if rest.any():
            self._put(st, address[rest], rest, words[:, rest], size)
        if shared.any():
            position, inside = lds_lanes(self.env, st, self.index, (address & 0xFFFFFFFF).astype(U32), size, shared)
            if self.env.check is not None:
                self.env.check.lds_touch(st, self.index, position, size, inside, True)
            lds_store(self.env, position, words, size, shared if inside is None else inside)
        if private.any():
            at, lanes = self._private(st, address, private, size)
            flat = st.scratch.reshape(-1)  # type: ignore[union-attr]
            where, data = at[lanes], words[:, lanes]
            for i in range(size):
                flat[where + i] = (data[i // 4] >> U32(8 * (i % 4))).astype(U8)


def vmem(ctx: Context, env: Env, line: Line, index: int) -> Step:
    """Buffer, global, flat and scratch loads, stores and atomics."""
    inst = line.inst
    assert inst is not None and inst.mem is not None
    mem = inst.mem
    v = named(line)
    size, convert = mem.bytes, mem.convert
    n = (size + 3) // 4
    address = address_of(ctx, env, line, index, size)
    access = Access(env, line, index)
    regs = ctx.regs
    check = env.check
    private = inst.extra == "scratch"
    if private and ctx.target == "gfx90a":
        address = _placed(address, access, env)
    d = regs.row(v["d"]) if "d" in v else -1
    data = regs.row(v["data"]) if "data" in v else -1

    def deliver(st: State, _: int, at: np.ndarray, active: Active) -> None:
        words = access.load(st, at, active, size)
        for i in range(n):
            place(st, d + i, active, words[i], convert)

    def load(st: State) -> None:
        at, inside = address(st)
        active = common(st.mask, inside)
        if env.accesses is not None:
            env.accesses(st, at, active, size, private)
        if inside is not None:
            # lanes beyond the buffer's range read 0
            dead = ~inside if st.mask is None else st.mask & ~inside
            zero = np.zeros((st.waves, LANES), U32)
            for i in range(n):
                place(st, d + i, dead, zero, convert)
        if check is None:
            deliver(st, 0, at, active)
        else:
            check.vm_load(st, index, at, active, deliver, d, n)

    def store(st: State) -> None:
        at, inside = address(st)
        active = common(st.mask, inside)
        if env.accesses is not None:
            env.accesses(st, at, active, size, private, False, True)
        if check is not None:
            check.vm_store(st, index, active, data, n)
        access.store(st, at, active, stored(st, data, n, convert), size)

    words_in = 2 * n if mem.function == "cmpswap" else n

    def atomic(st: State) -> None:
        at, inside = address(st)
        active = common(st.mask, inside)
        if env.accesses is not None:
            env.accesses(st, at, active, size, private, not mem.returns)
        chosen = every_lane(st) if active is None else active
        words = st.U[data : data + words_in][:, chosen]
        if check is not None:
            check.aligned(st, index, at, size, chosen)
            check.vm_store(st, index, active, data, words_in)
        out_row = d if d >= 0 else data
        if check is not None and inside is not None:
            beyond = ~inside if st.mask is None else st.mask & ~inside
            if beyond.any():
                why = "an atomic at or past the end of a buffer, at which gfx950 may fault"
                check.fault(st, index, "out-of-bounds", why, beyond)
        if inside is not None and mem.returns:
            clear(st, out_row, n, ~inside if st.mask is None else st.mask & ~inside)
        where = at[chosen]
        if not where.size:
            return
        _, fault = env.memory.load(where, size)
        if fault is not None:
            access.fault(st, fault, chosen, "updates")
            good = ~fault.mask
            keep = chosen.copy()
            keep[chosen] = good
            chosen, where, words = keep, where[good], words[:, good]

        def get(which: np.ndarray) -> np.ndarray:
            return env.memory.load(where[which], size)[0]

        def put(which: np.ndarray, new: np.ndarray) -> None:
            env.memory.store(where[which], new, size)

        if not where.size:
            return
        order = None if check is None else check.permutation(where.size)
        if access.watch is not None:
            access.watch.atomic(st, index, where, size, chosen, order, mem.returns)
        if reduce_atomic(where, words, mem, get, put):
            return
        old = apply_atomic(where, words, mem, get, put, order)
        if mem.returns:
            out = spread(chosen, old, st.waves)
            for i in range(n):
                place(st, out_row + i, chosen, out[i], "")

    return {"load": load, "store": store, "atomic": atomic}[mem.op]


def vmem_lds(ctx: Context, env: Env, line: Line, index: int) -> Step:
    """Global memory straight to LDS at M0 + offset + lane slot; inactive lanes write nothing, out-of-range lanes write
    0.
    """
    inst = line.inst
    assert inst is not None and inst.mem is not None
    mem = inst.mem
    size, convert = mem.bytes, mem.convert
    n = (size + 3) // 4
    slot = 16 if size > 4 else 4
    m0_mask = U32(0x3FFFF if ctx.target == "gfx950" else 0xFFFF)
    if inst.extra == "global":
        m0_mask &= U32(0x3FFFC)
    offset = int(line.modifiers.get("offset", 0))
    address = address_of(ctx, env, line, index, size)
    access = Access(env, line, index)
    m0 = vector_raw(ctx.regs, Reg("s", 124))
    check = env.check
    lane = np.arange(LANES, dtype=I64) * slot

    def deliver(st: State, _: int, both: Any, active: Active) -> None:
        at, inside, position = both
        words = access.load(st, at, common(active, inside), size)
        if convert.startswith("i"):
            kind = np.int8 if size == 1 else np.int16
            words = words.astype(U8 if size == 1 else U16).view(kind).astype(I32).view(U32)
        lds_store(env, position, words, 4 * n, active)

    def step(st: State) -> None:
        at, inside = address(st)
        if env.accesses is not None:
            env.accesses(st, at, common(st.mask, inside), size, False)
        target = (m0(st) & m0_mask).astype(I64) + (offset + lane)
        position, active = lds_lanes(
            env, st, index, np.broadcast_to(target, (st.waves, LANES)).astype(U32), 4 * n, st.mask
        )
        if check is None:
            deliver(st, 0, (at, inside, position), active)
            return
        check.aligned(st, index, at, min(size, 4), common(active, inside))
        check.aligned(st, index, target, slot, active)
        check.dma(st, index, position, 4 * n, active, (at, inside, position), deliver)

    return step
