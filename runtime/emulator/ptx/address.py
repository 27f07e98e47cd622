"""Addresses between spaces and between the CTAs of a cluster, in the PTX emulator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.runtime.emulator.ptx.machine import (
    CLUSTER_SHIFT,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
    WINDOW,
    Machine,
    Mask,
)
from wavedsl.runtime.emulator.ptx.module import Imm, Inst, RegUse, Sym

Step = Callable[[Mask], None]


_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


def convert_address(m: Machine, inst: Inst, row: isa.Inst) -> Step:
    """`cvta`, `cvta.to`, `isspacep`."""
    space = row.mods["space"].split("::")[0]
    window = _WINDOWS.get(space, 0)
    d = inst.args[0].reg
    source = inst.args[1]
    if "is" in row.effects:
        out, values = m.reg(d), m.reg(source.reg)

        def test(mask: Mask) -> None:
            if window:
                inside = (values >= np.uint64(window)) & (values < np.uint64(window + WINDOW))
            else:
                inside = values < np.uint64(PARAM_WINDOW)
            np.copyto(out, inside, where=True if mask is None else mask)

        return test
    dst = m.reg(d)
    if isinstance(source, Sym):
        values = np.full(1, m.symbols[source.name][1] + source.offset, dst.dtype)
        window = _WINDOWS.get(m.symbols[source.name][0], 0) or window
    else:
        values = m.reg(source.reg)
    delta = np.array((-window if "to" in row.effects else window) % (1 << 64), np.uint64).astype(dst.dtype)

    def step(mask: Mask) -> None:
        if mask is None:
            np.add(values, delta, out=dst)
        else:
            np.add(values, delta, out=dst, where=mask)

    return step


def map_address(m: Machine, inst: Inst, row: isa.Inst) -> Step:
    """`mapa` and `getctarank`: between an address and the rank of the CTA whose memory it names."""
    wide = row.mods["type"] == "u64"
    window = 0 if "space" in row.mods else SHARED_WINDOW
    d = m.reg(inst.args[0].reg)
    low = (1 << CLUSTER_SHIFT) - 1
    source = inst.args[1]
    fixed = m.symbols[source.name][1] + source.offset + window if isinstance(source, Sym) else 0
    values = m.reg(source.reg).view("i8" if wide else "i4") if isinstance(source, RegUse) else None
    rank = inst.args[2] if len(inst.args) > 2 else None

    def step(mask: Mask) -> None:
        lanes = np.arange(m.T) if mask is None else m.lanes(mask)
        at = (values[lanes].astype(np.int64) if values is not None else np.full(len(lanes), fixed, np.int64)) - window
        if rank is None:
            far = at >> CLUSTER_SHIFT
            d[lanes] = np.where(far > 0, far - 1, m.cta_of[lanes] % m.cluster)
            return
        if isinstance(rank, Imm):
            cta = np.full(len(lanes), rank.value, np.int64)
        elif isinstance(rank, RegUse):
            cta = m.reg(rank.reg)[lanes].astype(np.int64)
        else:
            cta = np.broadcast_to(m.special[rank.name], (m.T,))[lanes].astype(np.int64)
        beyond = cta >= m.cluster
        if beyond.any() and not m.seen("out-of-bounds", inst):
            i = int(np.argmax(beyond))
            m.report("out-of-bounds", inst, f"CTA {int(cta[i])} of a cluster of {m.cluster}", int(lanes[i]))
        d[lanes] = (((at & low) | (cta + 1) << CLUSTER_SHIFT) + window).astype(np.uint64).astype(d.dtype)

    return step
