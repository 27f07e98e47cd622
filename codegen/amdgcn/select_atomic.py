"""Lowering of atomics on global and on shared memory, and of votes.

An atomic on global memory is a buffer instruction that returns its result in the data register. Lanes that are masked
off are switched off by EXEC: a buffer drops an atomic past its end too, but what such a lane gets back is nowhere
promised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.codegen.amdgcn import isa, roles
from wavedsl.codegen.amdgcn.isa_memory import RETURN_SUFFIX
from wavedsl.codegen.amdgcn.machine import Operand, Ref
from wavedsl.codegen.amdgcn.select import Selector, lower
from wavedsl.codegen.amdgcn.select_memory import (
    barrier,
    close_region,
    emit_access,
    even,
    global_address,
    guarded_descriptor,
    open_region,
    shared_place,
)
from wavedsl.ir.kernel.kernel_ir import Op, Value


def _row_name(s: Selector, op: Op, names: Mapping[tuple[str, str], str]) -> str:
    """The instruction's name without the suffix of the form that returns."""
    how, kind = op.attrs["how"], op.results[0].type.kind
    stem = names.get((how, "i" + kind[1:] if kind[0] == "b" and how[:3] != "pk_" else kind))
    if stem is None or not s.rows.has(stem):
        raise s.unsupported(op, f"there is no atomic {how} of {kind}", "a loop around cas does it")
    return stem


def _data(s: Selector, op: Op, values: Sequence[Value]) -> Ref:
    """A new register of the operands: of a compare-and-swap the new value lies before the expected one."""
    if op.attrs["how"] == "cas":
        values = (values[1], values[0])
    data = s.new("v", sum(v.type.words for v in values))
    at = 0
    for v in values:
        for word in s.words(v):
            s.copy(data.part(at), word)
            at += 1
    return data


@lower("atomic.far")
def atomic_far(s: Selector, op: Op) -> None:
    stem = _row_name(s, op, roles.FAR_ATOMICS)
    mask = s.mask(op.args[1])
    returns = bool(s.uses.get(op.results[0].id))
    out = s.new("v", op.results[0].type.words) if returns else None
    if out is not None:
        s.bind(op, out)
    if mask is False:
        return
    data, address = _data(s, op, op.args[2:]), even(s, s.vector(op.args[0]))
    if mask is not True:
        open_region(s, mask)
    if out is None:
        s.emit(s.rows.named(stem), address, data, isa.OFF)
    else:
        mods: dict[str, Any] = {roles.returning(s.chip): True}
        s.emit(s.rows.named(stem + RETURN_SUFFIX), out, address, data, isa.OFF, **mods)
    if mask is not True:
        close_region(s, mask)


@lower("atomic.global")
def atomic_global(s: Selector, op: Op) -> None:
    stem = _row_name(s, op, roles.ATOMICS)
    returns = bool(s.uses.get(op.results[0].id))
    data = _data(s, op, op.args[5:])
    srd = guarded_descriptor(s, op.args[0], op.args[4])
    mask = s.mask(op.args[3])
    width = op.results[0].type.words
    s.bind(op, data if data.n == width else data.part(0, width))
    if srd is None or mask is False:
        return
    place = _plain_address(s, op)
    if mask is not True:
        open_region(s, mask)
    row = s.rows.named(stem + RETURN_SUFFIX if returns else stem)
    mods: dict[str, Any] = {roles.returning(s.chip): True} if returns else {}
    emit_access(s, row, data, place, srd, **mods)
    if mask is not True:
        close_region(s, mask)


def _plain_address(s: Selector, op: Op) -> tuple[Operand, Operand, int]:
    """(vector offset, scalar offset, immediate), the mask left out. Vector registers are made before EXEC changes."""
    found = global_address(s, op, op.attrs["bytes"], masked=False)
    assert found is not None
    voff, soff, imm = found
    if not (voff.__class__ is int and voff == 0):
        voff = s.to_vector(voff)
    return voff, soff, imm


@lower("atomic.shared")
def atomic_shared(s: Selector, op: Op) -> None:
    mask = s.mask(op.args[1])
    if mask is False:
        return
    row = s.rows.named(roles.SHARED_ATOMICS[op.attrs["how"], op.args[2].type.kind])
    value = s.vector(op.args[2])
    address, imm = shared_place(s, op)
    mods: dict[str, Any] = {"offset": imm} if imm else {}
    if mask is not True:
        open_region(s, mask)
    s.emit(row, address, value, **mods)
    if mask is not True:
        close_region(s, mask)


@lower("any_lane")
def any_lane(s: Selector, op: Op) -> None:
    """A lane mask that is not empty, as a mask of all lanes or none."""
    held = s.mask(op.args[0])
    if held.__class__ is bool:
        s.bind(op, held)
        return
    s.emit(s.rows.s_cmp_lg_u64, held, 0)
    out = s.mask_reg()
    s.emit(s.rows.s_cselect_b64, out, -1, 0)
    s.bind(op, out)



@lower("fence")
def fence(s: Selector, op: Op) -> None:
    """Release and acquire at the scope of the chip: write back what caches hold, wait, meet, drop what they hold.

    gfx90a writes through to L2, which all of a die shares; later chips have an L2 per part of the die. A workgroup's
    waves share the first-level cache, which is written through and serves them in the order in which they ask: among
    themselves a barrier is all, and one wave needs none. (COPIES) Direct copies to shared memory have landed behind any
    fence, which scratch in the place of tiles relies on.
    """
    r = s.rows
    release, acquire = roles.FENCES[s.chip]
    if op.attrs.get("scope") == "workgroup":
        if any(o.name == "copy.async" for o in s.kernel.body.walk()):
            s.emit(r.s_waitcnt, roles.ALL_ARRIVED)
        barrier(s, op)
        return
    order = op.attrs.get("order")
    if release is not None and order != "acquire":
        s.emit(r.named(release[0]), vcc=None, **release[1])
    s.emit(r.s_waitcnt, roles.ALL_ARRIVED)
    if s.kernel.waves > 1:
        s.emit(r.s_barrier)
    if order != "release":
        s.emit(r.named(acquire[0]), vcc=None, **acquire[1])
