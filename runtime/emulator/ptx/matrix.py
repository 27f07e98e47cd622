"""`mma.sync` in the PTX emulator, for every row of `codegen.ptx.mma`.

In: a matrix row and the registers it names. Out: a closure `step(mask)`. The idea: a fragment layout permutes index
bits, so going from registers to a matrix is a reshape to axes of length 2, a transpose and a copy; the product of all
warps is one batched `matmul`. Products are exact (inputs of at most 11 significant bits in float32, float64 for f64),
sums are rounded in the accumulator's dtype; a chip that adds in another order or truncates differs within the bound
given in the docs. A decoded operand is kept until one of its registers is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.mma import Layout, Mma
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType, code_values
from wavedsl.ir.errors import CompileError
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.module import Imm, Inst, RegUse


class _Operand:
    """One fragment: registers → matrix `[warps, rows, cols]`, remembered while its registers keep their values."""

    def __init__(
        self,
        m: Machine,
        regs: list[Array],
        layout: Layout,
        dims: str,
        elements: int,
        dtype: DType,
        rows: int,
        cols: int,
    ):
        self.m, self.regs, self.dtype, self.rows, self.cols = m, regs, dtype, rows, cols
        per = max(1, 32 // dtype.bits) if dtype.bits < 64 else 1
        self.per = per
        count = elements // per
        # A buffer [warps, regs, lanes] viewed as elements is [warps, regs, lanes, in-register]; put that as bits, high
        # first.
        ebits, pbits = elements.bit_length() - 1, per.bit_length() - 1
        rbits = ebits - pbits
        place = {}
        for i in range(ebits):
            # element bit i: the low pbits are in the register (last axes), the rest number the register (first axes)
            place[i] = (rbits + 5 + pbits - 1 - i) if i < pbits else (rbits - 1 - (i - pbits))
        self.order = [0]
        for dim in dims:
            for bit in reversed(layout[dim].split()):
                i = int(bit[1:])
                self.order.append(1 + (place[i] if bit[0] == "e" else rbits + 4 - i))
        self.axes = rbits + 5 + pbits
        self.wide = dtype.bits == 64
        self.buffer = np.empty((m.NW, count, 32), np.float64 if self.wide else np.uint32)

    def matrix(self) -> Array:
        m = self.m
        for i, r in enumerate(self.regs):
            self.buffer[:, i] = r.reshape(m.NW, 32)
        b = self.buffer
        dtype = self.dtype
        if dtype.bits == 16:
            b = b.view(np.uint16)
        elif dtype.bits == 8:
            b = b.view(np.uint8)
        elif dtype.bits == 4:
            bytes_ = b.view(np.uint8)
            b = np.stack([bytes_ & np.uint8(15), bytes_ >> np.uint8(4)], axis=-1)
        elif dtype == dt.tf32:
            b = (b & np.uint32(0xFFFFE000)).view(np.float32)
        bits = b.reshape((m.NW,) + (2,) * self.axes).transpose(self.order)
        flat = np.ascontiguousarray(bits).reshape(m.NW, self.rows, self.cols)
        if dtype.bits <= 16:
            return code_values(dtype).take(flat)
        return flat


def _overwrites(d: Sequence[Any], c: Sequence[Any]) -> bool:
    """Whether an element of D is written to a register from which a later element of C is read."""
    names = [p.reg.name if hasattr(p, "reg") else None for p in c]
    return any(p.reg.name in names[i + 1 :] for i, p in enumerate(d))


def _last_written(insts: Sequence[Inst], name: str, pc: int) -> tuple[Inst | None, int]:
    """The last instruction above `pc` whose first operand is this register or has it."""
    for i in range(pc - 1, -1, -1):
        first = insts[i].args[0] if insts[i].args else None
        if any(isinstance(p, RegUse) and p.reg.name == name for p in (*getattr(first, "parts", ()), first)):
            return insts[i], i
    return None, 0


def _is_zero(insts: Sequence[Inst], x: Any, pc: int) -> bool:
    """Whether an operand is +0, also in a register."""
    if isinstance(x, RegUse):
        inst, _ = _last_written(insts, x.reg.name, pc)
        return (
            inst is not None
            and inst.guard is None
            and inst.name.startswith("mov.")
            and _is_zero(insts, inst.args[1], 0)
        )
    return isinstance(x, Imm) and x.value == 0


def _zeroed_by(insts: Sequence[Inst], x: Any, pc: int) -> tuple[str, bool] | None:
    """The predicate that makes an operand zero, and its value then, as far as the text above shows it: `selp`, or a
    zero moved under a guard. Moves and halves are followed."""
    inst, at = _last_written(insts, x.reg.name, pc) if isinstance(x, RegUse) else (None, 0)
    if inst is None:
        return None
    opcode = inst.name.split(".")[0]
    if opcode == "mov" and inst.guard is not None:
        p, negated = inst.guard
        return (p.name, not negated) if _is_zero(insts, inst.args[1], at) else None
    if opcode == "mov":
        source = inst.args[1]
        found = {_zeroed_by(insts, part, at) for part in getattr(source, "parts", (source,))}
        return found.pop() if len(found) == 1 else None
    if opcode == "selp" and inst.guard is None:
        _, yes, no, p = inst.args
        zeros = _is_zero(insts, yes, at), _is_zero(insts, no, at)
        return (p.reg.name, zeros[0] != p.negated) if zeros[0] != zeros[1] else None
    return None


def _by_lane(insts: Sequence[Inst], name: str, pc: int, seen: set[tuple[str, int]]) -> bool:
    """Whether a register is computed from the thread's number, shuffles and votes apart: to ptxas, such a predicate is
    not the warp's."""
    if name == "%laneid" or name.startswith("%tid"):
        return True
    inst, at = _last_written(insts, name, pc)
    if inst is None or (name, at) in seen or inst.name.split(".")[0] in ("shfl", "vote", "match", "redux"):
        return False
    seen.add((name, at))
    read = [part for arg in inst.args[1:] for part in getattr(arg, "parts", (arg,))]
    regs = [getattr(part, "reg", None) or getattr(part, "base", None) or part for part in read]
    regs += [inst.guard[0]] if inst.guard else []
    names = [found for r in regs if isinstance(found := getattr(r, "name", None), str)]
    return any(_by_lane(insts, other, at, seen) for other in names)


def mma(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Callable[[Mask], None]:
    """One `mma.sync` over all warps of the batch."""
    what: Mma = row.row.data.what
    d_regs = [m.reg(p.reg) for p in inst.args[0].parts]
    a_regs = [m.reg(p.reg) for p in inst.args[1].parts]
    b_regs = [m.reg(p.reg) for p in inst.args[2].parts]
    c_parts = inst.args[3].parts if hasattr(inst.args[3], "parts") else (inst.args[3],)
    if what.a_dtype in (dt.f8e4m3, dt.f8e5m2) and _overwrites(inst.args[0].parts, c_parts):
        raise CompileError(
            "a register of D is one of C in a later place, which ptxas reads when it has written D: it adds C to "
            "products of 8-bit floats element by element"
        )
    wide = what.d_dtype == dt.f64
    if wide and what.m == 16:
        zeroed = {_zeroed_by(m.function.insts, p, pc) for p in c_parts}
        by = zeroed.pop()
        if by is not None and not zeroed and not _by_lane(m.function.insts, by[0], pc, set()):
            raise CompileError(
                "all of C is selected with zero by one predicate of the warp: ptxas loses C's third and fourth element"
            )
    view = {dt.f64: np.float64, dt.f32: np.float32, dt.i32: np.int32, dt.f16: np.uint32}[what.d_dtype]
    if wide:
        a_regs, b_regs = [r.view(np.float64) for r in a_regs], [r.view(np.float64) for r in b_regs]
    a = _shared_operand(m, inst.args[1], a_regs, what.a, "MK", what.a_elements, what.a_dtype, what.m, what.k)
    b = _shared_operand(m, inst.args[2], b_regs, what.b, "NK", what.b_elements, what.b_dtype, what.n, what.k)
    NW = m.NW
    shape = (NW, 2, 2, 2, 2, 2)
    half = what.d_dtype == dt.f16

    def typed(x: Array) -> Array:
        return x.view(view).reshape(shape)

    out = [typed(r) for r in d_regs]
    sources = []
    for p in c_parts:
        if isinstance(p, Imm):
            from wavedsl.runtime.emulator.ptx.memory import immediate

            bits = np.array([immediate(p, what.result_reg)], f"u{8 if wide else 4}")
            sources.append(bits.view(view).reshape((1,) * 6))
        else:
            sources.append(typed(m.reg(p.reg)))
    # D: [warps, M bits, N bits] → element e first, then lane bits l4 … l0.
    dbits = (what.m * what.n).bit_length() - 1
    order = what.d["M"].split()[::-1] + what.d["N"].split()[::-1]
    elements = what.d_elements
    ebits = elements.bit_length() - 1
    wanted = [f"e{i}" for i in reversed(range(ebits))] + [f"l{i}" for i in (4, 3, 2, 1, 0)]
    axes = [0] + [1 + order.index(w) for w in wanted]
    satfinite = "satfinite" in row.mods
    # All of C is read before any of D is written; that shows where D[i] is the register of a later C[e].
    d_index = [p.reg.index for p in inst.args[0].parts]
    c_index = [None if isinstance(p, Imm) else p.reg.index for p in c_parts]
    overlaps = any(c is not None and c in d_index[:e] for e, c in enumerate(c_index))
    own_sources = sources

    def product() -> list[Array]:
        """One array [warps, 2, 2, 2, 2, 2] per element."""
        p = np.matmul(a(), b().transpose(0, 2, 1))
        p = p.reshape((NW,) + (2,) * dbits).transpose(axes).reshape((NW, elements, 2, 2, 2, 2, 2))
        return [p[:, e] for e in range(elements)]

    def put(target: Array, value: Array, mask: Any) -> None:
        if mask is None:
            target[...] = value
        else:
            np.copyto(target, value, where=mask)

    def step(mask: Mask) -> None:
        where = None if mask is None else mask.reshape(shape)
        p = product()
        sources = [s.copy() for s in own_sources] if overlaps else own_sources
        if half:
            for r in range(elements // 2):
                c = np.broadcast_to(sources[r], shape)
                pair = np.ascontiguousarray(c).view(np.float16).reshape((*shape, 2)).astype(np.float32)
                value = np.stack([p[2 * r], p[2 * r + 1]], axis=-1) + pair
                put(out[r], np.ascontiguousarray(value.astype(np.float16)).view(np.uint32).reshape(shape), where)
            return
        if view is np.int32:
            for e in range(elements):
                if satfinite:
                    total = p[e].astype(np.int64) + sources[e]
                    put(out[e], np.clip(total, -(2**31), 2**31 - 1).astype(np.int32), where)
                else:
                    put(out[e], p[e].astype(np.int32) + sources[e], where)
            return
        for e in range(elements):
            if where is None:
                np.add(p[e], sources[e], out=out[e])
            else:
                np.add(p[e], sources[e], out=out[e], where=where)

    return step


def _shared_operand(
    m: Machine,
    vector: Any,
    regs: list[Array],
    layout: Layout,
    dims: str,
    elements: int,
    dtype: DType,
    rows: int,
    cols: int,
) -> Callable[[], Array]:
    """A getter for a fragment's matrix; instructions that name the same registers share it and its last value.

    `Machine.fragment_users` lets whoever writes a register drop the values that depend on it.
    """
    key = (tuple(p.reg.index for p in vector.parts), dims, elements, dtype.name, rows, cols)
    operand = m.fragments.get(key)
    if operand is None:
        operand = m.fragments[key] = _Operand(m, regs, layout, dims, elements, dtype, rows, cols)
        for index in key[0]:
            m.fragment_users.setdefault(index, []).append(key)
    values = m.fragment_values

    def get() -> Array:
        value = values.get(key)
        if value is None:
            value = values[key] = operand.matrix()
        return value

    return get
