"""Addresses of vector memory instructions: buffer, global, flat, scratch.

In: a parsed line. Out: `address(state)`, 64-bit byte addresses of all lanes of all waves, and the lanes inside the
buffer's range. An access that begins beyond a buffer's NUM_RECORDS is legal; one that begins before its end and
reaches beyond is undefined and a finding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from wavedsl.codegen.amdgcn.isa import Reg
from wavedsl.runtime.emulator.amdgcn.env import Active, Env
from wavedsl.runtime.emulator.amdgcn.state import (
    I64,
    LANES,
    U32,
    U64,
    State,
    scalar_operand,
    scalar_read,
)
from wavedsl.runtime.emulator.amdgcn.step import Context, Unsupported, named
from wavedsl.runtime.emulator.amdgcn.text import Line

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


def address_of(ctx: Context, env: Env, line: Line, index: int, size: int) -> Address:
    assert line.inst is not None
    space = line.inst.extra
    if space == "buffer":
        return _buffer_address(ctx, env, line, index, size)
    if space == "scratch":
        return _scratch_address(ctx, line)
    return _global_address(ctx, line)
