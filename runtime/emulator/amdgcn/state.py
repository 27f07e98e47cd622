"""The state of a group of waves that run in lock step, and how operands are read from it and results written to it.

In: operands of the text with their rows. Out: closures `read(state) -> array` and `write(state, value)`, bound once
per static instruction. The idea: registers are `[register, wave, lane]` arrays over all waves of the group; 32-bit
reads are views, so an instruction costs a few NumPy calls whatever the number of waves.

Scalar registers are `uint64 [pair, wave]` so that 64-bit masks are rows; their 32-bit halves are a strided view.
EXEC is kept twice: as registers 126/127 and as `mask`, bool [wave, lane], or None while every lane of every wave is
active.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Operand, Reg, Src

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
I16, I32, I64 = np.int16, np.int32, np.int64
F16, F32, F64 = np.float16, np.float32, np.float64
LANES = 64
ALL = U64(0xFFFFFFFFFFFFFFFF)
SHARED_APERTURE, PRIVATE_APERTURE = 0x0001_0000_0000_0000, 0x0002_0000_0000_0000
"""Bases of the flat apertures of LDS and scratch: above every global address (2**47)."""

NUMPY: dict[str, Any] = {
    "b32": U32, "u32": U32, "i32": I32, "f32": F32, "u16": U16, "i16": I16, "f16": F16,
    "b64": U64, "u64": U64, "i64": I64, "f64": F64,
}  # fmt: skip

Read = Callable[["State"], Any]
Write = Callable[["State", Any], None]


class State:
    """A group of waves at one program counter."""

    __slots__ = (
        "F", "I", "S", "S32", "U", "at_barrier", "block", "check", "epoch", "finished", "lds_base", "lgkm", "mask",
        "mode", "scc", "scratch", "skip", "spins", "trace", "vm", "wave", "waves", "wg",
    )  # fmt: skip

    def __init__(self, registers: int, waves: int):
        self.waves = waves
        self._vector(np.zeros((registers, waves, LANES), U32))
        self._scalar(np.zeros((64, waves), U64))
        self.scc = np.zeros(waves, bool)
        self.mask: np.ndarray | None = None
        self.S[63] = ALL
        self.wg = np.zeros(waves, I64)
        """Workgroup within the batch."""
        self.wave = np.zeros(waves, I64)
        """Wave within its workgroup."""
        self.lds_base = np.zeros((waves, 1), I64)
        self.scratch: np.ndarray | None = None
        self.epoch = np.zeros(waves, I64)
        """Barriers passed."""
        self.block = 0
        self.skip = 0
        self.at_barrier = False
        self.finished = False
        self.spins = 0
        self.mode = np.zeros(waves, U32)
        self.vm: list[Any] = []
        self.lgkm: list[Any] = []
        """Memory operations in flight, oldest first."""
        self.check: Any = None
        self.trace: Any = None
        """The recorded waves among these, None until they are looked for."""

    def _vector(self, u: np.ndarray) -> None:
        self.U = u
        self.F = u.view(F32)
        self.I = u.view(I32)

    def _scalar(self, s: np.ndarray) -> None:
        self.S = s
        self.S32 = s.view(U32).reshape(64, s.shape[1], 2)

    def select(self, index: np.ndarray) -> State:
        """A new group of some of the waves (copies)."""
        out = State.__new__(State)
        out.waves = len(index)
        out._vector(np.ascontiguousarray(self.U[:, index]))
        out._scalar(np.ascontiguousarray(self.S[:, index]))
        out.scc = self.scc[index]
        out.mask = None if self.mask is None else self.mask[index]
        if out.mask is not None and out.mask.all():
            out.mask = None
        for name in ("wg", "wave", "lds_base", "epoch", "mode"):
            setattr(out, name, getattr(self, name)[index])
        out.scratch = None if self.scratch is None else self.scratch[index]
        out.block, out.skip = self.block, self.skip
        out.at_barrier, out.finished, out.spins = self.at_barrier, self.finished, 0
        out.vm = [e.select(index) for e in self.vm]
        out.lgkm = [e.select(index) for e in self.lgkm]
        out.check = None if self.check is None else self.check.select(index)
        out.trace = None
        return out

    @staticmethod
    def merge(a: State, b: State) -> State:
        """One group of the waves of two at the same place whose operations in flight are alike."""
        out = State.__new__(State)
        out.waves = a.waves + b.waves
        out._vector(np.concatenate((a.U, b.U), axis=1))
        out._scalar(np.concatenate((a.S, b.S), axis=1))
        out.scc = np.concatenate((a.scc, b.scc))
        if a.mask is None and b.mask is None:
            out.mask = None
        else:
            out.mask = np.concatenate([np.ones((x.waves, LANES), bool) if x.mask is None else x.mask for x in (a, b)])
        for name in ("wg", "wave", "lds_base", "epoch", "mode"):
            setattr(out, name, np.concatenate((getattr(a, name), getattr(b, name))))
        out.scratch = None if a.scratch is None or b.scratch is None else np.concatenate((a.scratch, b.scratch))
        out.block, out.skip = a.block, a.skip
        out.at_barrier, out.finished, out.spins = a.at_barrier, a.finished, 0
        out.vm = [x.merge(y) for x, y in zip(a.vm, b.vm)]
        out.lgkm = [x.merge(y) for x, y in zip(a.lgkm, b.lgkm)]
        out.check = None if a.check is None else a.check.merge(b.check, a, b)
        out.trace = None
        return out

    def exec_changed(self) -> None:
        """Bring `mask` up to date after a write of EXEC."""
        e = self.S[63]
        self.mask = None if (e == ALL).all() else to_lanes(e)


def to_lanes(bits: np.ndarray) -> np.ndarray:
    """uint64 [wave] → bool [wave, lane]."""
    return np.unpackbits(np.ascontiguousarray(bits).view(U8).reshape(-1, 8), axis=1, bitorder="little").view(bool)


def to_bits(lanes: np.ndarray) -> np.ndarray:
    """bool [wave, lane] → uint64 [wave]."""
    return np.packbits(lanes, axis=1, bitorder="little").view(U64)[:, 0]


class Registers:
    """Where each register of a program lives in the vector array: VGPRs first, then AGPRs."""

    def __init__(self, vgprs: int, agprs: int):
        self.vgprs, self.agprs = vgprs, agprs

    @property
    def count(self) -> int:
        return self.vgprs + self.agprs

    def row(self, reg: Reg) -> int:
        return reg.index if reg.file == "v" else self.vgprs + reg.index


# ------------------------------------------------------------------------------------------------------------ constants


def constant_bits(value: int | float, dtype: str) -> int:
    """The bits an inline constant or literal has for an operand type."""
    if isinstance(value, float):
        if dtype in ("f16", "u16", "i16"):
            return int(np.float16(value).view(U16))
        if dtype == "f64":
            return struct.unpack("<Q", struct.pack("<d", value))[0]
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return bits
    if dtype == "f64" and not -16 <= value <= 64:
        return (value & 0xFFFFFFFF) << 32
    width = {"f16": 16, "u16": 16, "i16": 16, "f64": 64, "u64": 64, "i64": 64, "b64": 64, "mask": 64}.get(dtype, 32)
    return value & (1 << width) - 1


def constant(value: int | float, dtype: str) -> np.ndarray:
    """A constant as an array of shape (1, 1) of the operand's NumPy type."""
    bits = constant_bits(value, dtype)
    kind = np.dtype(NUMPY[dtype])
    return np.array([[bits]], {2: U16, 4: U32, 8: U64}[kind.itemsize]).view(kind)


# ------------------------------------------------------------------------------------------------------ vector operands


def _pair_to_64(st: State, r: int, dtype: Any) -> np.ndarray:
    out = np.empty((st.waves, LANES, 2), U32)
    out[..., 0] = st.U[r]
    out[..., 1] = st.U[r + 1]
    return out.view(dtype)[..., 0]


def vector_raw(regs: Registers, value: Any) -> Read:
    """A 32-bit source as uint32, [wave, lane] or broadcastable: VGPR, AGPR, scalar register or constant."""
    if isinstance(value, Reg):
        if value.file != "s":
            r = regs.row(value)
            return lambda st: st.U[r]
        return scalar_lane(value, U32)
    c = constant(value, "b32")
    return lambda st: c


def scalar_lane(reg: Reg, dtype: Any) -> Read:
    """A scalar register as a column [wave, 1], for a vector instruction."""
    one = scalar_read(reg, dtype)
    return lambda st: one(st)[:, None]


def vector_read(regs: Registers, o: Operand, value: Any, high: bool = False) -> Read:
    """A source of a vector instruction, typed by the row. `high`: the upper half of a 16-bit operand (op_sel)."""
    if isinstance(value, Src):
        value = value.value
    dtype = o.dtype
    if dtype == "mask":
        if isinstance(value, Reg):
            p = value.index >> 1
            return lambda st: to_lanes(st.S[p])
        lanes = to_lanes(np.array([constant_bits(int(value), "u64")], U64))
        return lambda st: lanes
    kind = NUMPY[dtype]
    size = np.dtype(kind).itemsize
    if not isinstance(value, Reg):
        if size == 2 and high:
            zero = constant(0, dtype)
            return lambda st: zero
        c = constant(value, dtype)
        return lambda st: c
    if value.file == "s":
        if size == 2:
            word = scalar_lane(value, U32)
            shift = U32(16 if high else 0)
            return lambda st: (word(st) >> shift).astype(U16).view(kind)
        return scalar_lane(value, kind)
    r = regs.row(value)
    if size == 4:
        if kind is F32:
            return lambda st: st.F[r]
        if kind is I32:
            return lambda st: st.I[r]
        return lambda st: st.U[r]
    if size == 2:
        at = 1 if high else 0
        return lambda st: st.U[r].view(kind)[:, at::2]
    return lambda st: _pair_to_64(st, r, kind)


def vector_write(regs: Registers, o: Operand, reg: Reg, high: bool = False, preserve: bool = False) -> Write:
    """The writer of a destination under EXEC. 16-bit results clear the upper half unless `preserve` (op_sel forms)."""
    dtype = o.dtype
    if reg.file == "s":
        if dtype == "mask":
            return _mask_write(reg)
        raise ValueError(f"a vector result cannot go to {reg}")
    r = regs.row(reg)
    kind = NUMPY[dtype]
    size = np.dtype(kind).itemsize
    if size == 4:
        name = "F" if kind is F32 else "I" if kind is I32 else "U"

        def write32(st: State, x: Any) -> None:
            target = getattr(st, name)[r]
            if st.mask is None:
                target[...] = x
            else:
                np.copyto(target, x, where=st.mask, casting="unsafe")

        return write32
    if size == 8:

        def write64(st: State, x: Any) -> None:
            words = np.ascontiguousarray(np.broadcast_to(np.asarray(x, kind), (st.waves, LANES))).view(U32)
            words = words.reshape(st.waves, LANES, 2)
            for i in (0, 1):
                if st.mask is None:
                    st.U[r + i] = words[..., i]
                else:
                    np.copyto(st.U[r + i], words[..., i], where=st.mask)

        return write64
    at = 1 if high else 0

    def write16(st: State, x: Any) -> None:
        bits = np.asarray(x).astype(kind, copy=False).view(U16)
        if preserve:
            target = st.U[r].view(U16)[:, at::2]
            if st.mask is None:
                target[...] = bits
            else:
                np.copyto(target, bits, where=st.mask)
        elif st.mask is None:
            st.U[r] = bits
        else:
            np.copyto(st.U[r], bits, where=st.mask)

    return write16


def _mask_write(reg: Reg) -> Write:
    p = reg.index >> 1
    is_exec = reg.index == 126

    def write(st: State, x: Any) -> None:
        lanes = x if st.mask is None else x & st.mask
        if lanes.shape != (st.waves, LANES):
            lanes = np.broadcast_to(lanes, (st.waves, LANES))
        st.S[p] = to_bits(lanes)
        if is_exec:
            st.exec_changed()

    return write


# ------------------------------------------------------------------------------------------------------ scalar operands


def scalar_read(reg: Reg, dtype: Any) -> Read:
    """A scalar register, or an aligned pair for 64-bit types, as an array over waves."""
    i = reg.index
    size = np.dtype(dtype).itemsize
    if i == 253:
        return lambda st: st.scc.astype(dtype)
    if i == 251:
        return lambda st: (st.S[53] == 0).astype(dtype)
    if i == 252:
        return lambda st: (st.S[63] == 0).astype(dtype)
    if i in (236, 237, 238, 239):
        base = SHARED_APERTURE if i in (236, 239) else PRIVATE_APERTURE
        value = np.array([base if size == 8 else base >> 32], U64 if size == 8 else U32).view(dtype)
        return lambda st: np.broadcast_to(value, (st.waves,))
    p, h = i >> 1, i & 1
    if size == 8:
        if dtype is U64:
            return lambda st: st.S[p]
        return lambda st: st.S[p].view(dtype)
    if dtype is U32:
        return lambda st: st.S32[p, :, h]
    if size == 2:
        return lambda st: st.S32[p, :, h].astype(U16).view(dtype)
    return lambda st: st.S32[p, :, h].view(dtype)


def scalar_operand(o: Operand, value: Any, sext16: bool = False) -> Read:
    """A source of a scalar instruction."""
    if isinstance(value, Src):
        value = -value.value if isinstance(value.value, (int, float)) and value.neg else value.value
    kind = NUMPY[o.dtype]
    if isinstance(value, Reg):
        return scalar_read(value, kind)
    if sext16 and isinstance(value, int):
        value = ((value & 0xFFFF) ^ 0x8000) - 0x8000
    c = constant(value, o.dtype)[0]
    return lambda st: c


def scalar_write(reg: Reg, dtype: str) -> Write:
    i = reg.index
    size = np.dtype(NUMPY[dtype]).itemsize
    p, h = i >> 1, i & 1
    is_exec = i in (126, 127)
    if size == 8:

        def write64(st: State, x: Any) -> None:
            st.S[p] = np.asarray(x).view(U64) if np.asarray(x).dtype.itemsize == 8 else x
            if is_exec:
                st.exec_changed()

        return write64
    kind = NUMPY[dtype]

    def write32(st: State, x: Any) -> None:
        x = np.asarray(x)
        st.S32[p, :, h] = x.astype(kind, copy=False).view(U32)
        if is_exec:
            st.exec_changed()

    return write32


def scc_write(st: State, x: Any) -> None:
    st.scc = np.array(np.broadcast_to(x, (st.waves,)), bool)
