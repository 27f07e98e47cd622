"""Operands of PTX instructions as arrays: reading registers, immediates and special registers, writing results.

In: an operand as written and the type that the instruction gives it. Out: `source` (an array of that type, or a
function where the value changes by itself) and `Destination`. Registers wider than the type are read low and written
extended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.ptx.isa import NUMPY, PACKED, TYPE_BITS
from wavedsl.ir.errors import CompileError
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.memory import immediate
from wavedsl.runtime.emulator.ptx.module import NOTHING, Imm, RegUse, Special, Sym


def put(d: Array, value: Array, mask: Mask) -> None:
    if mask is None:
        d[...] = value
    elif d.ndim == 2:
        np.copyto(d, value, where=mask[:, None], casting="unsafe")
    else:
        np.copyto(d, value, where=mask, casting="unsafe")


def source(m: Machine, a: Any, type_: str) -> Array | Callable[[], Array]:
    """A source operand as an array of its type (shape [threads] or [1]), or a function where it changes by itself."""
    if isinstance(a, RegUse):
        view = m.view(a.reg, type_)
        if a.negated:
            return lambda: ~view
        return view
    if isinstance(a, Imm):
        if type_ == "pred":
            return np.array([a.value != 0])
        bits = TYPE_BITS[type_]
        value = immediate(a, type_)
        raw = np.array([value], dtype=f"u{max(1, bits // 8)}")
        want = np.dtype(NUMPY[type_])
        return raw.view(want).reshape(1, 2) if type_ in PACKED else raw.view(want)
    if isinstance(a, Special):
        return _special(m, a.name, type_)
    if isinstance(a, Sym):
        space, address = m.symbols[a.name]
        value = address + a.offset
        if space == "shared" and m.cluster > 1 and TYPE_BITS[type_] >= 32:
            return (m.own_rank + value).astype(f"u{TYPE_BITS[type_] // 8}").view(NUMPY[type_])
        return np.array([value & ((1 << TYPE_BITS[type_]) - 1)], dtype=f"u{TYPE_BITS[type_] // 8}").view(NUMPY[type_])
    raise CompileError(f"operand {a} cannot be read as .{type_}")


def _special(m: Machine, name: str, type_: str) -> Array | Callable[[], Array]:
    want = np.dtype(NUMPY[type_])
    if name.startswith(("%clock", "%globaltimer")):
        shift = 32 if name.endswith("hi") else 0
        return lambda: np.array(
            [(m.clock >> shift) & ((1 << TYPE_BITS[type_]) - 1)], dtype=f"u{TYPE_BITS[type_] // 8}"
        ).view(want)
    if name.startswith("%envreg"):
        return np.zeros(1, want)
    value = m.special.get(name)
    if value is None:
        raise CompileError(f"special register {name} is not supported")
    if value.dtype == np.bool_ or want == np.bool_:
        return value
    if value.dtype.itemsize == want.itemsize:
        return value.view(want)
    # Wider or narrower than the register: a copy, renewed at each read because ctaid changes between batches.
    return lambda: value.astype(want)


class Destination:
    """Writes results of an instruction's type into a register, extending where the register is wider."""

    def __init__(self, m: Machine, a: Any, type_: str):
        if a is NOTHING:
            self.target = None
            return
        if not isinstance(a, RegUse):
            raise CompileError(f"cannot write {a}")
        reg = m.reg(a.reg)
        bits = TYPE_BITS[type_]
        if type_ == "pred" or reg.dtype.itemsize * 8 == bits:
            self.target = m.view(a.reg, type_)
        elif reg.dtype.itemsize * 8 > bits and type_ not in PACKED:
            # Integers extend by their sign; 16-bit floats in a wider register stand in its low half.
            kind = "i" if type_[0] == "s" else "u"
            self.target = reg.view(f"{kind}{reg.dtype.itemsize}")
            self.bits = np.dtype(NUMPY[type_]) if NUMPY[type_] not in (np.bool_,) and type_[0] not in "su" else None
        else:
            raise CompileError(f"register {a.reg.name} is too narrow for .{type_}")

    bits: Any = None
    target: Any

    def put(self, value: Array, mask: Mask) -> None:
        target = self.target
        if target is None:
            return
        if self.bits is not None:
            value = np.ascontiguousarray(value).view(f"u{self.bits.itemsize}")
        elif value.dtype != target.dtype and value.dtype.itemsize == target.dtype.itemsize and target.dtype.kind != "b":
            value = value.view(target.dtype)
        if mask is None:
            target[...] = value
        elif target.ndim == 2:
            np.copyto(target, value, where=mask[:, None], casting="unsafe")
        else:
            np.copyto(target, value, where=mask, casting="unsafe")
