"""Memory instructions: LDS, global, buffer, flat, scratch, scalar loads, atomics, copies straight to LDS.

In: a parsed line with its row's `Mem`. Out: `step(state)`. Addresses of all lanes of all waves go through one gather
or scatter. Without a checker, results arrive at once. With one, every operation is put in flight: the checker keeps
the queues, decides when data arrive (earliest or latest legal moment), and looks at each LDS access for races.

Rules of bounds: an access that begins beyond a buffer's NUM_RECORDS is legal, reads 0 and writes nothing; one that
begins before its end and reaches beyond is undefined and a finding; any other access outside every allocation, beyond
the workgroup's LDS or beyond scratch is a finding, reads 0 and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Mem, Reg
from wavedsl.codegen.amdgcn.isa_memory import ATOMICS
from wavedsl.runtime.emulator.amdgcn_decode import Context, Step, Unsupported, named
from wavedsl.runtime.emulator.amdgcn_state import (
    F32,
    F64,
    I32,
    I64,
    LANES,
    PRIVATE_APERTURE,
    SHARED_APERTURE,
    U8,
    U16,
    U32,
    U64,
    State,
    scalar_operand,
    scalar_read,
    vector_raw,
)
from wavedsl.runtime.emulator.amdgcn_text import Line
from wavedsl.runtime.emulator.memory import GlobalMemory

PRIVATE_BUFFER = 0x7FFF_0000_0000
"""Base address that the emulator puts in the private segment's buffer descriptor; no global address is this high."""


Active = Any
"""bool [wave, lane], or None for every lane."""


FLAT_SCRATCH_START = 0x7FFE_0000_0000
"""What the first user of FLAT_SCRATCH is given as the start of all scratch, and (next) how far apart waves' are."""
WAVE_SCRATCH = 1 << 16


class Env:
    """The memories of a batch of workgroups, and the checker that watches them (None: no checks)."""

    def __init__(self, memory: GlobalMemory, check: Any):
        self.memory = memory
        self.check = check
        self.lds_size = 0
        self.stride = 0
        self.scratch_size = 0
        self.lds8 = np.zeros(0, U8)
        self.lds32 = self.lds8.view(U32)
        self.conflicts: Callable[[State, int, np.ndarray, int, bool], None] | None = None
        self.accesses: Callable[[State, np.ndarray, Active, int, bool], None] | None = None
        """Told of the addresses of each global or scratch (last argument) access."""

    def new_batch(self, workgroups: int, lds_size: int) -> None:
        self.lds_size = lds_size
        self.stride = (lds_size + 63) // 64 * 64
        self.lds8 = np.zeros(max(64, workgroups * self.stride), U8)
        self.lds32 = self.lds8.view(U32)
        if self.check is not None:
            self.check.new_batch(workgroups, self.stride)
            self.lds8[:] = 0xA5


def _and(a: Active, b: Active) -> Active:
    return b if a is None else a if b is None else a & b


def _lanes(st: State) -> np.ndarray:
    return np.ones((st.waves, LANES), bool)


# --------------------------------------------------------------------------------------------- values between registers


def place(st: State, row: int, active: Active, word: np.ndarray, convert: str) -> None:
    """Put a loaded word per lane into a register: extension or one half, as `convert` says. `word`: [wave, lane]."""
    if convert:
        if convert.startswith("i8"):
            word = word.astype(U8).view(np.int8).astype(I32).view(U32)
        elif convert.startswith("i16"):
            word = word.astype(U16).view(np.int16).astype(I32).view(U32)
        if "d16" in convert:
            half = st.U[row].view(U16)[:, (1 if convert.endswith("hi") else 0) :: 2]
            np.copyto(half, word.astype(U16), where=True if active is None else active)
            return
    if active is None:
        st.U[row] = word
    else:
        np.copyto(st.U[row], word, where=active)


def spread(active: Active, words: np.ndarray, waves: int) -> np.ndarray:
    """Words of the active lanes [k, n] as [k, wave, lane], zero elsewhere."""
    k = words.shape[0]
    if active is None:
        return words.reshape(k, waves, LANES)
    out = np.zeros((k, waves, LANES), U32)
    out[:, active] = words
    return out


def stored(st: State, row: int, n: int, convert: str) -> np.ndarray:
    """The words a store takes from registers, [n, wave, lane]."""
    data = st.U[row : row + n]
    return data >> U32(16) if convert.endswith("hi") else data


# -------------------------------------------------------------------------------------------------------------- atomics


def combine(old: np.ndarray, data: np.ndarray, mem: Mem) -> np.ndarray:
    """New words [k, n] from old words and data; compare-and-swap data is (new, compare)."""
    kind = {"u32": U32, "i32": I32, "u64": U64, "i64": I64, "f32": F32, "f64": F64}[mem.dtype]
    fn = ATOMICS[mem.function]
    if mem.bytes == 4:
        o = np.ascontiguousarray(old[0])
        if mem.function == "cmpswap":
            return np.where(o == data[1], data[0], o)[None]
        d = np.ascontiguousarray(data[0])
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(fn(o.view(kind), d.view(kind))).view(U32)[None]
    o = _wide(old)
    if mem.function == "cmpswap":
        out = np.where(o == _wide(data[2:4]), _wide(data[0:2]), o)
    else:
        out = np.asarray(fn(o.view(kind), _wide(data[0:2]).view(kind))).view(U64)
    return np.stack((out.astype(U32), (out >> U64(32)).astype(U32)))


def _wide(words: np.ndarray) -> np.ndarray:
    return words[0].astype(U64) | (words[1].astype(U64) << U64(32))


def apply_atomic(
    key: np.ndarray,
    data: np.ndarray,
    mem: Mem,
    load: Callable[[np.ndarray], np.ndarray],
    store: Callable[[np.ndarray, np.ndarray], None],
    order: np.ndarray | None,
) -> np.ndarray:
    """Sequential semantics over lanes that may hit the same address: rounds of distinct addresses.

    `load(positions)`, `store(positions, words)` act on lanes by position. Returns the old words per lane. `order`
    permutes the lanes: any order is legal.
    """
    n = key.shape[0]
    old = np.zeros((mem.bytes // 4, n), U32)
    rest = np.arange(n) if order is None else order
    while rest.size:
        _, first = np.unique(key[rest], return_index=True)
        now = rest[first] if first.size < rest.size else rest
        before = load(now)
        old[:, now] = before
        store(now, combine(before, data[:, now], mem))
        if first.size == rest.size:
            break
        keep = np.ones(rest.size, bool)
        keep[first] = False
        rest = rest[keep]
    return old


_REDUCE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce_atomic(key: np.ndarray, data: np.ndarray, mem: Mem, load: Any, store: Any) -> bool:
    """Integer atomics that return nothing, at once: one reduction per address. False when the row is not one of
    those.
    """
    fn = _REDUCE.get(mem.function)
    if fn is None or mem.returns or mem.dtype not in ("u32", "i32"):
        return False
    kind = U32 if mem.dtype == "u32" else I32
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    start = np.flatnonzero(np.concatenate(([True], sorted_key[1:] != sorted_key[:-1])))
    total = fn.reduceat(data[0][order].view(kind), start, dtype=kind)
    at = order[start]
    old = load(at)
    store(at, fn(old[0].view(kind), total).view(U32)[None])
    return True


# ------------------------------------------------------------------------------------------------------------------ LDS


def _lds_lanes(
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
            position, active = _lds_lanes(env, st, index, address, size, st.mask)
            if env.conflicts is not None:
                env.conflicts(st, index, address, size, False)
            if check is None:
                deliver(st, j, position, active)
                if active is not st.mask and active is not None:
                    _zero(st, d + n * j, n, _and(st.mask, ~active))
            else:
                dead = None if active is st.mask else (~active if st.mask is None else st.mask & ~active)
                check.lds_load(st, index, position, size, active, dead, j == len(offsets) - 1, deliver, j, d + n * j, n)

    def store(st: State) -> None:
        base = st.U[addr]
        for j, offset in enumerate(offsets):
            address = base + U32(offset) if offset else base
            position, active = _lds_lanes(env, st, index, address, size, st.mask)
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
        position, active = _lds_lanes(env, st, index, address, size, st.mask)
        chosen = _lanes(st) if active is None else active
        at = position[chosen]
        if check is not None:
            check.aligned(st, index, address, size, st.mask)
            check.lds.atomic(st, index, position, size, active)
        rows = [st.U[r : r + n] for r in data]
        if mem.function == "cmpswap":
            rows.reverse()  # LDS gives (compare, new)
        words = np.concatenate(rows)[:, chosen]

        def get(which: np.ndarray) -> np.ndarray:
            return lds_load(env, at[which], size, None)

        def put(which: np.ndarray, new: np.ndarray) -> None:
            lds_store(env, at[which], new, size, None)

        if not reduce_atomic(at, words, mem, get, put):
            order = None if check is None else check.permutation(at.size)
            old = apply_atomic(at, words, mem, get, put, order)
            if mem.returns:
                out = spread(chosen, old, st.waves)
                for i in range(n):
                    place(st, d + i, chosen, out[i], "")
        if check is not None:
            check.flight(st, index)

    return {"load": load, "store": store, "atomic": atomic}[mem.op]


def _zero(st: State, row: int, n: int, where: Active) -> None:
    if where is not None and where.any():
        for i in range(n):
            np.copyto(st.U[row + i], U32(0), where=where)


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
        position, active = _lds_lanes(env, st, index, address, size, st.mask)
        if env.conflicts is not None:
            env.conflicts(st, index, address, size, False)
        if check is None:
            deliver(st, 0, position, active)
            return
        check.aligned(st, index, address, 8 if size == 8 else 4, st.mask)
        check.lds_load(st, index, position, size, active, None, True, deliver, 0, d, n)

    return step


def _swizzle_source(offset: int) -> np.ndarray:
    lane = np.arange(LANES)
    if offset & 0x8000:
        return (lane & ~3) + ((offset >> 2 * (lane & 3)) & 3)
    inner = ((lane & 31 & offset) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)
    return (lane & 32) + inner


def ds_swizzle(ctx: Context, env: Env, line: Line, index: int) -> Step:
    v = named(line)
    a, d = ctx.regs.row(v["a"]), ctx.regs.row(v["d"])
    source = _swizzle_source(int(line.modifiers.get("offset", 0)))

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
        active = _lanes(st) if st.mask is None else st.mask
        wave = np.broadcast_to(np.arange(st.waves)[:, None], lane.shape)
        out[wave[active], lane[active]] = st.U[a][active]
        place(st, d, st.mask, out, "")
        if env.check is not None:
            env.check.flight(st, index)

    return step


# ------------------------------------------------------------------------------------------------- buffer, global, flat


Address = Callable[[State], tuple[np.ndarray, Active]]
"""int64 byte addresses [wave, lane], and the lanes inside the buffer's range (None: no range, or all)."""


_SRD_FIXED = 3 << 30 | 1 << 23 | 0xF << 15
"""TYPE (0: buffer), ADD_TID_EN (puts the lane into the address) and DATA_FORMAT of a descriptor's last word."""
_SRD_RAW = 4 << 15
"""DATA_FORMAT 32, which compilers give to untyped accesses; 0 is a buffer that is not bound, and what chips make of
others in an untyped access is not written anywhere."""


def _buffer_address(ctx: Context, env: Env, line: Line, index: int, size: int) -> Address:
    v, m = named(line), line.modifiers
    p = v["srd"].index >> 1
    soffset = scalar_operand(line.inst.operand("soffset"), v["soffset"])  # type: ignore[union-attr]
    offset = int(m.get("offset", 0))
    addr = v["addr"]
    rows = [] if not isinstance(addr, Reg) else [ctx.regs.row(addr) + i for i in range(addr.count)]
    idx_row = rows[0] if m.get("idxen") else None
    off_row = rows[-1] if m.get("offen") else None

    def address(st: State) -> tuple[np.ndarray, Active]:
        word = st.S[p]
        base = (word & U64(0xFFFFFFFFFFFF)).astype(I64)
        flags = (word >> U64(48)).astype(I64)
        stride = flags & 0x3FFF
        records = (st.S[p + 1] & U64(0xFFFFFFFF)).astype(I64)
        if (flags & 0x8000).any() and stride.any():
            raise Unsupported(f"`{line.text}`: a swizzled buffer descriptor")
        kind = (st.S[p + 1] >> U64(32)).astype(I64)
        if (kind & _SRD_FIXED != _SRD_RAW).any():
            raise Unsupported(f"`{line.text}`: descriptor word {int(kind[0]):#x} is of no plain buffer")
        s = np.broadcast_to(soffset(st), (st.waves,)).astype(I64)
        at = np.full((st.waves, 1), offset, I64) if off_row is None else st.U[off_row].astype(I64) + offset
        if idx_row is not None:
            at = at + st.U[idx_row].astype(I64) * stride[:, None]
        at = np.broadcast_to(at, (st.waves, LANES))
        limit = (records - s)[:, None]
        inside = at < limit
        if env.check is not None:
            across = inside & (at + size > limit) & (True if st.mask is None else st.mask)
            if across.any():
                worst = int(np.argmax(across))
                env.check.fault(
                    st, index, "out-of-bounds",
                    f"{size} bytes at offset {int(at.reshape(-1)[worst])} reach across the end of a buffer of "
                    f"{int(np.broadcast_to(limit, at.shape).reshape(-1)[worst])} bytes: undefined", across,
                )  # fmt: skip
        return at + (base + s)[:, None], None if inside.all() else inside

    return address


def _global_address(ctx: Context, line: Line) -> Address:
    v, m = named(line), line.modifiers
    offset = int(m.get("offset", 0))
    r = ctx.regs.row(v["addr"])
    saddr = v.get("saddr")
    if isinstance(saddr, Reg):
        p = saddr.index >> 1
        return lambda st: ((st.S[p].view(I64) + offset)[:, None] + st.U[r], None)

    def address(st: State) -> tuple[np.ndarray, Active]:
        words = np.empty((st.waves, LANES, 2), U32)
        words[..., 0], words[..., 1] = st.U[r], st.U[r + 1]
        return words.view(I64)[..., 0] + offset if offset else words.view(I64)[..., 0], None

    return address


def _scratch_address(ctx: Context, line: Line) -> Address:
    v, m = named(line), line.modifiers
    offset = int(m.get("offset", 0))
    addr, saddr = v["addr"], v["saddr"]
    r = ctx.regs.row(addr) if isinstance(addr, Reg) else None
    s = scalar_read(saddr, U32) if isinstance(saddr, Reg) else None

    def address(st: State) -> tuple[np.ndarray, Active]:
        at = np.full((st.waves, LANES), offset, I64)
        if r is not None:
            at = at + st.U[r]
        if s is not None:
            at = at + s(st)[:, None]
        return at, None

    return address


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


def address_of(ctx: Context, env: Env, line: Line, index: int, size: int) -> Address:
    assert line.inst is not None
    space = line.inst.extra
    if space == "buffer":
        return _buffer_address(ctx, env, line, index, size)
    if space == "scratch":
        return _scratch_address(ctx, line)
    return _global_address(ctx, line)


class Access:
    """Reads and writes of the lanes of one instruction in whatever memory their addresses lie."""

    def __init__(self, env: Env, index: int, space: str):
        self.env, self.index, self.space = env, index, space

    def load(self, st: State, address: np.ndarray, active: Active, size: int) -> np.ndarray:
        """Words [k, wave, lane], zero for inactive lanes."""
        env = self.env
        other = self._not_global(st, address, active)
        if other is not None:
            return self._mixed_load(st, address, active, size, other)
        flat = address.reshape(-1) if active is None else address[active]
        words, fault = env.memory.load(flat, size)
        if fault is not None:
            self._fault(st, fault, active, "reads")
        return spread(active, words, st.waves)

    def store(self, st: State, address: np.ndarray, active: Active, words: np.ndarray, size: int) -> None:
        env = self.env
        other = self._not_global(st, address, active)
        if other is not None:
            self._mixed_store(st, address, active, words, size, other)
            return
        if active is None:
            fault = env.memory.store(address.reshape(-1), words.reshape(words.shape[0], -1), size)
        else:
            fault = env.memory.store(address[active], words[:, active], size)
        if fault is not None:
            self._fault(st, fault, active, "writes")

    def _fault(self, st: State, fault: Any, active: Active, verb: str) -> None:
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
            return np.zeros((st.waves, LANES), bool), _lanes(st) if active is None else active
        if self.space == "flat":
            live = _lanes(st) if active is None else active
            shared = live & (address >> 48 == SHARED_APERTURE >> 48)
            private = live & (address >> 48 == PRIVATE_APERTURE >> 48)
            if shared.any() or private.any():
                return shared, private
        if self.space == "buffer" and self.env.scratch_size:
            live = _lanes(st) if active is None else active
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
        live = _lanes(st) if active is None else active
        rest = live & ~shared & ~private
        if rest.any():
            words, fault = self.env.memory.load(address[rest], size)
            out[:, rest] = words
            if fault is not None:
                self._fault(st, fault, rest, "reads")
        if shared.any():
            position, inside = _lds_lanes(self.env, st, self.index, (address & 0xFFFFFFFF).astype(U32), size, shared)
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
        live = _lanes(st) if active is None else active
        rest = live & ~shared & ~private
        if rest.any():
            fault = self.env.memory.store(address[rest], words[:, rest], size)
            if fault is not None:
                self._fault(st, fault, rest, "writes")
        if shared.any():
            position, inside = _lds_lanes(self.env, st, self.index, (address & 0xFFFFFFFF).astype(U32), size, shared)
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
    access = Access(env, index, inst.extra)
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
        active = _and(st.mask, inside)
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
        active = _and(st.mask, inside)
        if env.accesses is not None:
            env.accesses(st, at, active, size, private)
        if check is not None:
            check.vm_store(st, index, active, data, n)
        access.store(st, at, active, stored(st, data, n, convert), size)

    words_in = 2 * n if mem.function == "cmpswap" else n

    def atomic(st: State) -> None:
        at, inside = address(st)
        active = _and(st.mask, inside)
        if env.accesses is not None:
            env.accesses(st, at, active, size, private)
        chosen = _lanes(st) if active is None else active
        words = st.U[data : data + words_in][:, chosen]
        if check is not None:
            check.aligned(st, index, at, size, chosen)
            check.vm_store(st, index, active, data, words_in)
        out_row = d if d >= 0 else data
        if inside is not None and mem.returns:
            _zero(st, out_row, n, ~inside if st.mask is None else st.mask & ~inside)
        where = at[chosen]
        if not where.size:
            return
        _, fault = env.memory.load(where, size)
        if fault is not None:
            access._fault(st, fault, chosen, "updates")
            good = ~fault.mask
            keep = chosen.copy()
            keep[chosen] = good
            chosen, where, words = keep, where[good], words[:, good]

        def get(which: np.ndarray) -> np.ndarray:
            return env.memory.load(where[which], size)[0]

        def put(which: np.ndarray, new: np.ndarray) -> None:
            env.memory.store(where[which], new, size)

        if not where.size or reduce_atomic(where, words, mem, get, put):
            return
        order = None if check is None else check.permutation(where.size)
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
    access = Access(env, index, inst.extra)
    m0 = vector_raw(ctx.regs, Reg("s", 124))
    check = env.check
    lane = np.arange(LANES, dtype=I64) * slot

    def deliver(st: State, _: int, both: Any, active: Active) -> None:
        at, inside, position = both
        words = access.load(st, at, _and(active, inside), size)
        if convert.startswith("i"):
            kind = np.int8 if size == 1 else np.int16
            words = words.astype(U8 if size == 1 else U16).view(kind).astype(I32).view(U32)
        lds_store(env, position, words, 4 * n, active)

    def step(st: State) -> None:
        at, inside = address(st)
        if env.accesses is not None:
            env.accesses(st, at, _and(st.mask, inside), size, False)
        target = (m0(st) & m0_mask).astype(I64) + (offset + lane)
        position, active = _lds_lanes(
            env, st, index, np.broadcast_to(target, (st.waves, LANES)).astype(U32), 4 * n, st.mask
        )
        if check is None:
            deliver(st, 0, (at, inside, position), active)
            return
        check.aligned(st, index, at, min(size, 4), _and(active, inside))
        check.aligned(st, index, target, 4, active)
        check.dma(st, index, position, 4 * n, active, (at, inside, position), deliver)

    return step


# -------------------------------------------------------------------------------------------------------- scalar memory


def smem(ctx: Context, env: Env, line: Line, index: int) -> Step:
    """Scalar loads: one address per wave."""
    inst = line.inst
    assert inst is not None and inst.mem is not None
    v = named(line)
    size = inst.mem.bytes
    n = size // 4
    buffer = inst.mem.function == "buffer"
    base = scalar_read(Reg("s", v["base"].index, 2), U64)
    p = v["base"].index >> 1
    extra = int(line.modifiers.get("offset", 0))
    where = scalar_operand(inst.operand("offset"), v["offset"])
    signed = not isinstance(v["offset"], Reg)
    first = v["d"].index
    touches_exec = first <= 127 and first + n > 126
    check = env.check

    def step(st: State) -> None:
        o = np.broadcast_to(where(st), (st.waves,))
        o = (o.astype(I32) if signed else o).astype(I64) + extra
        b = base(st)
        if buffer:
            b = b & U64(0xFFFFFFFFFFFF)
        at = (b.view(I64) + o) & ~np.int64(3)
        if check is not None:
            check.smem(st, index, b.view(I64) + o)
        words, fault = env.memory.load(at, size)
        if buffer:
            records = (st.S[p + 1] & U64(0xFFFFFFFF)).astype(I64)
            inside = o[None, :] + 4 * np.arange(n)[:, None] < records
            words = np.where(inside, words, U32(0))
            if fault is not None and not (fault.mask & inside.any(axis=0)).any():
                fault = None
        if fault is not None and check is not None:
            mask = np.zeros((st.waves, LANES), bool)
            mask[:, 0] = fault.mask
            check.fault(st, index, "out-of-bounds", f"reads {fault.message}", mask)
        for i in range(n):
            r = first + i
            st.S32[r >> 1, :, r & 1] = words[i]
        if touches_exec:
            st.exec_changed()

    return step


MEMORY: dict[str, Callable[[Context, Env, Line, int], Step]] = {
    "ds": ds,
    "ds_transpose": ds_transpose,
    "ds_swizzle": ds_swizzle,
    "ds_bpermute": ds_bpermute,
    "ds_permute": ds_permute,
    "vmem": vmem,
    "vmem_lds": vmem_lds,
    "smem": smem,
}
