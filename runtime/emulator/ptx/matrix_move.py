"""`ldmatrix` and `stmatrix` of the PTX emulator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.runtime.emulator.ptx.machine import SHARED_WINDOW, WINDOW, Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.memory import Access, parts_of, positions_of
from wavedsl.runtime.emulator.ptx.module import Inst, Sym

Step = Callable[[Mask], None]


def matrix_move(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Step:
    """`ldmatrix` and `stmatrix`: lanes 8 j … 8 j + 7 give the row addresses of matrix j."""
    what = row.row.data.what
    count = what.count
    address, vector = (inst.args[0], inst.args[1]) if what.store else (inst.args[1], inst.args[0])
    parts = parts_of(vector)
    regs = [m.reg(p.reg) for p in parts]
    access = Access(
        m,
        inst,
        pc,
        "shared" if "space" in row.mods or isinstance(address.base, Sym) else "generic",
        address,
        16,
        what.store,
    )
    rows_of = 8 * count
    suppliers = np.arange(m.T).reshape(m.NW, 32)[:, :rows_of].reshape(-1)
    window = access.shared

    def offsets(lanes: Array) -> tuple[Array, Array]:
        at = access.address(lanes)
        if access.space == "generic":
            inside = (at >= SHARED_WINDOW) & (at < SHARED_WINDOW + WINDOW)
            at = np.where(inside, at - SHARED_WINDOW, -1)
        return window.check(at, 16, inst, lanes)

    every = suppliers if rows_of < 32 else None

    def step(mask: Mask) -> None:
        if mask is None:
            lanes, warps, nw = every, None, m.NW
        else:
            active = mask.reshape(m.NW, 32).any(axis=1)
            if not active.any():
                return
            warps = np.flatnonzero(active)
            lanes, nw = suppliers.reshape(m.NW, rows_of)[warps].reshape(-1), len(warps)
        offset, kept = offsets(lanes)
        full = len(offset) == nw * rows_of
        if what.store:
            source = np.empty((nw, count, 32), np.uint32)
            for j, r in enumerate(regs):
                source[:, j] = r.reshape(m.NW, 32) if warps is None else r.reshape(m.NW, 32)[warps]
            data = source
            if what.trans:
                data = np.ascontiguousarray(source.view(np.uint16).reshape(nw, count, 8, 8).transpose(0, 1, 3, 2)).view(
                    np.uint32
                )
            rows = data.reshape(nw * rows_of, 4)
            if not full:
                rows = rows[positions_of(np.arange(m.T) if lanes is None else lanes, kept, m.T)]
            window.store(offset, 16, rows.T, kept)
            access.touch_shared(offset, kept, None)
            return
        got = window.load(offset, 16, kept).T
        access.touch_shared(offset, kept, None)
        if not full:
            rows = np.zeros((nw * rows_of, 4), np.uint32)
            rows[positions_of(np.arange(m.T) if lanes is None else lanes, kept, m.T)] = got
        else:
            rows = np.ascontiguousarray(got)
        if what.trans:
            data = np.ascontiguousarray(rows.view(np.uint16).reshape(nw, count, 8, 8).transpose(0, 1, 3, 2)).view(
                np.uint32
            )
        else:
            data = rows
        words = data.reshape(nw, count, 32)
        for j, r in enumerate(regs):
            if warps is None:
                r.reshape(m.NW, 32)[:] = words[:, j]
            else:
                r.reshape(m.NW, 32)[warps] = words[:, j]

    return step
