"""Memory instructions: scalar loads, and the table of what carries out the others.

In: a parsed line with its row's `Mem`. Out: `step(state)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from wavedsl.codegen.amdgcn.isa import Reg
from wavedsl.runtime.emulator.amdgcn.ds import ds, ds_bpermute, ds_permute, ds_swizzle, ds_transpose
from wavedsl.runtime.emulator.amdgcn.env import Env
from wavedsl.runtime.emulator.amdgcn.state import (
    I32,
    I64,
    LANES,
    U32,
    U64,
    State,
    scalar_operand,
    scalar_read,
)
from wavedsl.runtime.emulator.amdgcn.step import Context, Step, named
from wavedsl.runtime.emulator.amdgcn.text import Line
from wavedsl.runtime.emulator.amdgcn.vmem import vmem, vmem_lds


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
        if buffer:  # dwords beyond the end read 0, each by itself
            records = (st.S[p + 1] & U64(0xFFFFFFFF)).astype(I64)
            inside = o[None, :] + 4 * np.arange(n)[:, None] < records
            words, fault = np.zeros((n, st.waves), U32), None
            for i, on in enumerate(inside):
                if on.any():
                    words[i, on], wrong = env.memory.load(at[on] + 4 * i, 4)
                    if wrong is not None and fault is None:
                        fault = replace(wrong, mask=np.isin(np.arange(st.waves), np.flatnonzero(on)[wrong.mask]))
        else:
            words, fault = env.memory.load(at, size)
        if fault is not None and check is not None:
            mask = np.zeros((st.waves, LANES), bool)
            mask[:, 0] = fault.mask
            check.fault(st, index, "out-of-bounds", f"reads {fault.message}", mask)
        if check is not None and check.globals is not None:
            good = inside[0] if buffer else None
            if fault is not None:
                good = ~fault.mask if good is None else good & ~fault.mask
            check.globals.scalar(st, index, at, size, good)
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
