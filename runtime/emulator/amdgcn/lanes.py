"""Values that change lanes: DPP controls, reads and writes of one lane, swaps of halves.

In: a parsed line with its row. Out: `step(state)`; for DPP the lane that each lane reads, which `vector.py`
binds.
"""

from __future__ import annotations

import numpy as np
from wavedsl.codegen.amdgcn.isa import Operand, Reg
from wavedsl.runtime.emulator.amdgcn.state import (
    LANES,
    U32,
    State,
    scalar_operand,
    scalar_write,
)
from wavedsl.runtime.emulator.amdgcn.step import Context, Step, Unsupported, named, put
from wavedsl.runtime.emulator.amdgcn.text import Line

# ------------------------------------------------------------------------------------------------------------------ DPP


def dpp_lanes(control: str) -> tuple[np.ndarray, np.ndarray]:
    """Source lane of each lane, and whether it exists."""
    lane = np.arange(LANES)
    row, at = lane & ~15, lane & 15
    valid = np.ones(LANES, bool)
    name, _, arg = control.partition(":")
    n = int(arg) if arg and arg[0] != "[" else 0
    if name == "quad_perm":
        p = np.array([int(x) for x in arg[1:-1].split(",")])
        source = (lane & ~3) + p[lane & 3]
    elif name == "row_shl":
        source, valid = lane + n, at + n < 16
    elif name == "row_shr":
        source, valid = lane - n, at - n >= 0
    elif name == "row_ror":
        source = row + (at - n) % 16
    elif name == "row_mirror":
        source = row + 15 - at
    elif name == "row_half_mirror":
        source = (lane & ~7) + 7 - (lane & 7)
    elif name == "row_bcast":
        if n == 15:
            source, valid = row - 1, lane >= 16
        else:
            source, valid = np.full(LANES, 31), lane >= 32
    elif name in ("row_newbcast", "row_share"):
        source = row + n
    elif name == "wave_shr":
        source, valid = lane - 1, lane >= 1
    elif name == "wave_shl":
        source, valid = lane + 1, lane < 63
    elif name == "wave_ror":
        source = (lane - 1) % 64
    elif name == "wave_rol":
        source = (lane + 1) % 64
    else:
        raise Unsupported(f"DPP control {control}")
    return np.where(valid, source, 0), valid


def dpp(line: Line) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Source lanes, validity, lanes enabled by row and bank masks, and whether invalid sources read 0."""
    m = line.modifiers
    source, valid = dpp_lanes(m.get("dpp", "quad_perm:[0,1,2,3]"))
    lane = np.arange(LANES)
    rows, banks = m.get("row_mask", 15), m.get("bank_mask", 15)
    enabled = ((rows >> (lane >> 4)) & 1 == 1) & ((banks >> ((lane >> 2) & 3)) & 1 == 1)
    return source, valid, enabled, "bound_ctrl" in m


# -------------------------------------------------------------------------------------------------------- lane crossing


def first_active(st: State) -> np.ndarray:
    """First active lane of each wave; lane 0 when none is."""
    return np.zeros(st.waves, np.intp) if st.mask is None else st.mask.argmax(axis=1)


def readfirstlane(ctx: Context, line: Line) -> Step:
    v = named(line)
    value = v["a"]
    w = scalar_write(v["d"], "b32")
    if not isinstance(value, Reg) or value.file == "s":
        one = scalar_operand(line.inst.operand("a"), value)  # type: ignore[union-attr]
        return lambda st: w(st, np.broadcast_to(one(st), (st.waves,)))
    r = ctx.regs.row(value)

    def step(st: State) -> None:
        w(st, st.U[r][:, 0] if st.mask is None else st.U[r][np.arange(st.waves), first_active(st)])

    return step


def readlane(ctx: Context, line: Line) -> Step:
    v = named(line)
    r = ctx.regs.row(v["a"])
    lane = scalar_operand(Operand("lane", "sn", 1, "u32", True, False), v["lane"])
    w = scalar_write(v["d"], "b32")

    def step(st: State) -> None:
        at = np.broadcast_to(lane(st) & U32(63), (st.waves,)).astype(np.intp)
        w(st, st.U[r][np.arange(st.waves), at])

    return step


def writelane(ctx: Context, line: Line) -> Step:
    v = named(line)
    r = ctx.regs.row(v["d"])
    lane = scalar_operand(Operand("lane", "sn", 1, "u32", True, False), v["lane"])
    data = scalar_operand(Operand("a", "sn", 1, "b32", True, False), v["a"])

    def step(st: State) -> None:
        at = np.broadcast_to(lane(st) & U32(63), (st.waves,)).astype(np.intp)
        st.U[r][np.arange(st.waves), at] = data(st)

    return step


def permlane_swap(ctx: Context, line: Line) -> Step:
    """Odd groups of n lanes of a change places with even groups of b; lanes must be active."""
    v = named(line)
    assert line.inst is not None
    n = line.inst.extra
    ra, rb = ctx.regs.row(v["a"]), ctx.regs.row(v["b"])
    lane = np.arange(LANES)
    odd = (lane // n) % 2 == 1

    def step(st: State) -> None:
        a, b = st.U[ra].copy(), st.U[rb].copy()
        new_a = np.where(odd, b[:, lane ^ n], a)
        new_b = np.where(odd, b, a[:, lane ^ n])
        put(st, ra, new_a)
        put(st, rb, new_b)

    return step
