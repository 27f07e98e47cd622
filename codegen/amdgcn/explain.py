"""What WAVEDSL_DEBUG=liveness and =regalloc print, and the stages of allocation in a dump.

In: a program before or after allocation. Out: lines through `ir.trail`. Nothing is computed unless somebody asked.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn import liveness
from wavedsl.codegen.amdgcn.allocate import Bundle
from wavedsl.codegen.amdgcn.liveness import Liveness
from wavedsl.codegen.amdgcn.machine import COPY, FILE_BASE, Program, Reg
from wavedsl.codegen.amdgcn.machine_text import (
    allocation_text,
    instruction_text,
    live_counts,
    liveness_text,
    program_text,
    register_text,
)
from wavedsl.codegen.amdgcn.resources import Spilled
from wavedsl.ir import trail

_FILES = {"v": "vector", "a": "accumulation", "s": "scalar"}


def explain_spill(program: Program, live: Liveness, cls: str, limit: int, bundles: list[Bundle]) -> None:
    """A file is full: where, and who is there."""
    if not trail.explains("regalloc"):
        return
    counts = live_counts(program, live)
    line = {"v": counts.vector, "a": counts.accumulation, "s": counts.scalar}[cls]
    at = max(range(len(line)), key=lambda i: line[i])
    point = 2 * at + 1
    there = [b for b in bundles if b.members[0][0].cls == cls and any(bits >> point & 1 for bits in b.live)]
    there.sort(key=lambda b: -len(b.live))
    names = ", ".join(f"{_name(b.members[0][0])} x {len(b.live)}" for b in there[:8])
    trail.explain(
        "regalloc",
        f"{_FILES[cls]} registers run out: {line[at]} are live at instruction {at} (line {counts.lines[at]}), {limit} "
        f"exist; widest there: {names}",
    )


def explain_registers(program: Program, used: dict[str, int], spilled: Spilled) -> None:
    """The finished allocation."""
    trail.stage("allocated", lambda: program_text(program, liveness.analyse(program)))
    trail.stage("allocation", lambda: allocation_text(program, used))
    if trail.explains("liveness"):
        live = liveness.analyse(program)
        counts = live_counts(program, live)
        top = max(range(len(counts.vector)), key=lambda i: counts.vector[i] + counts.accumulation[i])
        trail.explain(
            "liveness",
            f"{program.name}: most vector and accumulation registers, {counts.vector[top]} + "
            f"{counts.accumulation[top]}, are live at instruction {top} (line {counts.lines[top]})",
        )
        trail.explain("liveness", liveness_text(program, live))
    if trail.explains("regalloc"):
        trail.explain("regalloc", "\n".join(_placements(program)))
        trail.explain("regalloc", "\n".join(_copies(program)))
        if spilled.registers or spilled.again:
            trail.explain("regalloc", f"elsewhere: {spilled}")


def _placements(program: Program) -> list[str]:
    """Why each tuple lies where it lies: the first lower place of its file that was taken, and by whom."""
    live = liveness.analyse(program)
    holders: dict[int, list[tuple[Reg, int]]] = {}
    points: dict[int, list[int]] = {}
    for reg in program.regs:
        first = live.first[reg.id]
        points[reg.id] = [live.live[first + (k if live.split[reg.id] else 0)] for k in range(reg.n)]
        for k in range(reg.n):
            if points[reg.id][k] and reg.at >= 0:
                holders.setdefault(reg.at + k, []).append((reg, points[reg.id][k]))
    out = []
    for reg in program.regs:
        if reg.at < 0 or not any(points[reg.id]):
            continue
        why = "given" if reg.fixed else _why(reg, points[reg.id], holders)
        out.append(f"{reg!r} in {register_text(reg)} ({reg.name or 'temporary'}): {why}")
    return out


def _why(reg: Reg, points: list[int], holders: dict[int, list[tuple[Reg, int]]]) -> str:
    """Why a tuple lies where it does: who holds the place below, or whom it was packed or kept with."""
    base = FILE_BASE[reg.cls]
    for place in range(base, reg.at, reg.align):
        taken = next(
            (
                (other, k)
                for k in range(reg.n)
                for other, bits in holders.get(place + k, ())
                if other is not reg and bits & points[k]
            ),
            None,
        )
        if taken is None:
            shared = sorted({repr(o) for k in range(reg.n) for o, _ in holders.get(reg.at + k, ()) if o is not reg})
            with_ = f"coalesced or packed with {', '.join(shared[:4])}" if shared else "kept with what it is copied to"
            return f"{with_}; {register_text(reg, place - reg.at)} would be free"
    if reg.at == base:
        return "the lowest place"
    other, bits = next(
        (o, b & points[k])
        for k in range(reg.n)
        for o, b in holders.get(base + (reg.at - base - reg.align) // reg.align * reg.align + k, ())
        if o is not reg and b & points[k]
    )
    at = (bits & -bits).bit_length() // 2
    return f"the lowest free place: the one below is {other!r}'s, live at instruction {at}"


def _copies(program: Program) -> list[str]:
    """Copies that stay: both sides are needed at once, or have to lie in different files."""
    out = []
    for block in program.blocks:
        for inst in block.insts:
            if inst.row == COPY and inst.uses and inst.ops[0].at != inst.ops[1].at:
                dst, src = inst.ops
                same = dst.reg.cls == src.reg.cls
                why = "their lives meet, or alignment differs" if same else "they lie in different files"
                out.append(f"stays: {instruction_text(inst)} in {block.label or 'the entry'}: {why}")
    return out or ["no copy stays"]


def _name(reg: Reg) -> str:
    line = f" (line {reg.loc.line})" if reg.loc is not None else ""
    return f"{reg.name or 'temporaries'}{line}"
