"""`wmma` in the PTX emulator: fragments loaded, multiplied and stored in a layout of the emulator's own.

In: an instruction with its row of `isa_wmma`. Out: a closure `step(mask)`. PTX does not say which lane holds which
element, so any consistent choice is right: element n of the row-major matrix is element n % per_lane of lane n //
per_lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa_wmma import Fragment, fragment
from wavedsl.ir.errors import CompileError
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.memory import Access, space_of
from wavedsl.runtime.emulator.ptx.module import Address, Imm, Inst, RegUse

Step = Callable[[Mask], None]

_NUMPY: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
}


def step_of(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Step:
    """The closure of one `wmma` instruction."""
    if ".load." in row.name or ".store." in row.name:
        return _move(m, inst, row, pc)
    return _multiply(m, inst, row)


class _Registers:
    """A fragment's registers as elements `[warps, rows, cols]` of their NumPy type, and back."""

    def __init__(self, m: Machine, vector: Any, shape: Fragment, name: str):
        parts = vector.parts if hasattr(vector, "parts") else (vector,)
        if len(parts) != shape.registers or not all(isinstance(p, RegUse) for p in parts):
            raise CompileError(f"{name}: a fragment of {shape.registers} registers is needed, got {len(parts)}")
        self.m, self.shape = m, shape
        self.regs = [m.reg(p.reg) for p in parts]

    def read(self) -> Array:
        m, f = self.m, self.shape
        first = self.regs[: f.registers // f.copies]
        words = np.stack([r.reshape(m.NW, 32) for r in first], axis=-1)
        values = np.ascontiguousarray(words).view(_NUMPY[f.type])
        return values.reshape(m.NW, f.rows, f.cols)

    def write(self, values: Array, mask: Mask) -> None:
        m, f = self.m, self.shape
        lanes = np.ascontiguousarray(values.astype(_NUMPY[f.type])).reshape(m.NW, 32, f.per_lane)
        words = lanes.view(np.uint64 if f.type == "f64" else np.uint32)
        per_copy = f.registers // f.copies
        for i, r in enumerate(self.regs):
            word = np.ascontiguousarray(words[:, :, i % per_copy]).reshape(-1)
            if mask is None:
                r[:] = word
            else:
                np.copyto(r, word, where=mask)


def _move(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Step:
    stores = ".store." in row.name
    operand = row.name.split(".")[2]
    shape = fragment(operand, row.mods["shape"], row.mods["type"])
    address: Address = inst.args[0] if stores else inst.args[1]
    registers = _Registers(m, inst.args[1] if stores else inst.args[0], shape, row.name)
    by_row = row.mods["layout"] == "row"
    stride: Any = inst.args[2] if len(inst.args) > 2 else Imm(shape.cols if by_row else shape.rows)
    size = shape.bits // 8
    access = Access(m, inst, pc, space_of(m, row, address), address, size, stores, counted=False)
    n = m.lane_of[:, None] * shape.per_lane + np.arange(shape.per_lane)
    i, j = n // shape.cols, n % shape.cols

    def run(mask: Mask) -> None:
        lanes = np.arange(m.T) if mask is None else m.lanes(mask)
        base = access.address(lanes)
        step = np.int64(stride.value) if isinstance(stride, Imm) else m.reg(stride.reg)[lanes].astype(np.int64)[:, None]
        offset = (i[lanes] * step + j[lanes] if by_row else j[lanes] * step + i[lanes]) * size
        if stores:
            values = np.ascontiguousarray(registers.read()).reshape(m.T, shape.per_lane)
            words = np.ascontiguousarray(values).view(f"u{size}").reshape(m.T, shape.per_lane)[lanes]
            for e in range(shape.per_lane):
                access.store_at(base + offset[:, e], lanes, _split(words[:, e]))
            return
        raw = np.zeros((m.T, shape.per_lane), f"u{size}")
        for e in range(shape.per_lane):
            for got, who in access.load_at(base + offset[:, e], lanes):
                raw[who, e] = _join(got, size)
        values = raw.view(_NUMPY[shape.type]).reshape(m.NW, shape.rows, shape.cols)
        registers.write(values, mask)

    return run


def _split(values: Array) -> Array:
    """Elements to uint32 words [n, lanes]."""
    if values.dtype.itemsize == 8:
        return np.ascontiguousarray(np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2).T)
    return values.astype(np.uint32)[None]


def _join(words: Array, size: int) -> Array:
    if size == 8:
        return words[0].astype(np.uint64) | words[1].astype(np.uint64) << np.uint64(32)
    return words[0]


def _multiply(m: Machine, inst: Inst, row: isa.Inst) -> Step:
    types = row.row.data["types"]
    shape = row.mods["shape"]
    d, a, b, c = (
        _Registers(m, arg, fragment(name, shape, t), row.name)
        for name, t, arg in zip("dabc", (types[3], types[0], types[1], types[2]), inst.args)
    )
    exact = np.float64 if types[0] == "f64" else np.float32

    def widen(r: _Registers) -> Array:
        values = r.read()
        if r.shape.type == "tf32":
            values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return values.astype(exact)

    def run(mask: Mask) -> None:
        product = np.matmul(widen(a), widen(b))
        if types[3] == "s32":
            total = product.astype(np.int64) + c.read()
            if "satfinite" in row.mods:
                total = np.clip(total, -(2**31), 2**31 - 1)
            d.write(total.astype(np.int32), mask)
        else:
            d.write(product + c.read().astype(exact), mask)

    return run
