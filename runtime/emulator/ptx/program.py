"""A PTX function decoded for one machine: a step per instruction, grouped by blocks.

In: a machine and the function's flow. Out: a `Program`. What is not supported becomes a step that says so when it is
reached.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import Any

from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.operand_rules import check_operands
from wavedsl.ir.errors import CompileError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx import flow as ptx_flow
from wavedsl.runtime.emulator.ptx.bulk import BulkCopies
from wavedsl.runtime.emulator.ptx.copies import AsyncCopies
from wavedsl.runtime.emulator.ptx.decode import Engines, decode, guarded
from wavedsl.runtime.emulator.ptx.flow import Flow
from wavedsl.runtime.emulator.ptx.global_memory import watched
from wavedsl.runtime.emulator.ptx.machine import Machine, Mask
from wavedsl.runtime.emulator.ptx.mbarrier import MBarriers
from wavedsl.runtime.emulator.ptx.module import Imm, Inst, Reg, as_arg
from wavedsl.runtime.emulator.ptx.unwritten import drop_stale_fragments, watch_unwritten
from wavedsl.runtime.emulator.ptx.wgmma import Wgmmas


class Stop(Exception):
    """Ends the launch: what comes after cannot be trusted (an unsupported instruction, a trap)."""


@dataclass
class Program:
    """A function decoded for one machine: steps per block, and how each block ends."""

    machine: Machine
    flow: Flow
    rows: list[isa.Inst | None]
    steps: list[list[Any]]
    engines: Engines
    collective: dict[int, Any] = field(default_factory=dict)
    """Block -> step of the instruction at its end that whole warpgroups execute."""
    watches: list[bool] = field(default_factory=list)
    """Blocks that test an mbarrier."""
    names: list[Counter[str]] = field(default_factory=list)
    effects: list[tuple[list[Reg], list[Reg]]] = field(default_factory=list)
    """Registers written and read by each instruction."""


def effects_of(insts: list[Inst], rows: list[isa.Inst | None]) -> list[tuple[list[Reg], list[Reg]]]:
    """Registers written and read by each instruction."""
    out: list[tuple[list[Reg], list[Reg]]] = []
    for inst, row in zip(insts, rows):
        if row is None:
            # Not understood, so the run stops there: nothing is known of what it reads.
            out.append((list(ptx_flow.defs_and_uses(inst, len(inst.args))[0]), []))
            continue
        writes = sum(op.write and not op.paired for op in row.operands)
        out.append(ptx_flow.defs_and_uses(inst, writes))
    return out


Known = tuple[list["isa.Inst | None"], dict[int, CompileError], list[tuple[list[Reg], list[Reg]]]]


def looked_up(insts: list[Inst], version: tuple[int, int], target: str, checks: bool) -> Known:
    """Row of each instruction, what is wrong with those that have none, and `effects_of` them. Of a text, its target
    and whether operands are checked: no run changes it."""
    rows: list[isa.Inst | None] = []
    trouble: dict[int, CompileError] = {}
    for i, inst in enumerate(insts):
        try:
            row = isa.lookup(inst.name, target, version)
            if checks:
                check_operands(
                    row, [as_arg(a) for a in inst.args], as_arg(inst.pair) if inst.pair is not None else None
                )
            rows.append(row)
        except CompileError as e:
            trouble[i] = e
            rows.append(None)
    return rows, trouble, effects_of(insts, rows)


def prepare(m: Machine, flow: Flow) -> Program:
    """Look up, check and decode every instruction. What is not supported becomes a step that says so when it is
    reached.
    """
    insts = m.function.insts
    key = m.module.target or m.launch.target, m.checks
    found = flow.known.get(key)
    if found is None:
        found = flow.known[key] = looked_up(insts, m.module.version, *key)
    rows, trouble, effects = found
    m.granule = _granule(insts, rows, "shared")
    m.globals = watched(m, insts, rows, min(_granule(insts, rows, "global"), m.launch.item_size))
    m.agents = any(r is not None and r.effects & {"bulk", "wgmma", "cluster", "initialised"} for r in rows)
    m.swaps = any("cas" in inst.name.split(".") for inst in insts)
    copies = AsyncCopies(m)
    barriers = MBarriers(m, copies)
    multiplies = any(r is not None and "wgmma" in r.effects for r in rows)
    wgmmas = Wgmmas(m, insts, rows) if multiplies else None
    engines = Engines(copies, barriers, BulkCopies(m, barriers), wgmmas)
    program = Program(m, flow, rows, [], engines, effects=effects)
    decoded: list[Any] = [None] * len(insts)
    for b in flow.blocks:
        for i in range(b.start, b.end):
            row_i = rows[i]
            ends = i == b.end - 1 and ptx_flow.is_terminator(insts[i].name) and i not in trouble
            if ends and (row_i is None or "wgmma" not in row_i.effects):
                continue
            try:
                if row_i is None:
                    raise trouble[i]
                if row_i.row.opcode == "call":
                    decoded[i] = _external_call(m, insts[i])
                else:
                    decoded[i] = decode(m, engines, insts[i], row_i, i)
            except CompileError as e:
                decoded[i] = _unsupported(m, insts[i], e)
    drop_stale_fragments(m, decoded, effects)
    if wgmmas is not None and not m.checks:
        for i, step in enumerate(decoded):
            row_i = rows[i]
            if step is not None and (row_i is None or "wgmma" not in row_i.effects):
                decoded[i] = wgmmas.delivering(step, [*effects[i][0], *effects[i][1]])
    if m.checks:
        if wgmmas is not None:
            for i, step in enumerate(decoded):
                row_i = rows[i]
                if step is not None and (row_i is None or "wgmma" not in row_i.effects):
                    defs, uses = effects[i]
                    moves = row_i is not None and "move" in row_i.effects
                    decoded[i] = wgmmas.watched(insts[i], step, uses, defs, moves)
        watch_unwritten(m, flow, decoded, effects, rows)
    for n, b in enumerate(flow.blocks):
        last = rows[b.end - 1]
        if last is not None and "wgmma" in last.effects:
            program.collective[n], decoded[b.end - 1] = decoded[b.end - 1], None
        program.steps.append([decoded[i] for i in range(b.start, b.end) if decoded[i] is not None])
        program.names.append(Counter(insts[i].name for i in range(b.start, b.end)))
    program.watches = [any(r is not None and "test" in r.effects for r in rows[b.start : b.end]) for b in flow.blocks]
    if any(program.watches):
        # Blocks that do something other than watch an mbarrier are progress.
        for steps, watches in zip(program.steps, program.watches):
            if steps and not watches:
                steps.insert(0, barriers.progress)
    return program


def _unsupported(m: Machine, inst: Inst, error: CompileError) -> Any:
    text = error.message + (f" ({error.hint})" if error.hint else "")

    def step(mask: Mask) -> None:
        m.report("unsupported", inst, text, None if mask is None else int(m.lanes(mask)[0]))
        raise Stop

    return step


def _external_call(m: Machine, inst: Inst) -> Any:
    """The runtime functions that may stay as calls: a failed assertion ends the launch, printing is nothing."""
    name = inst.args[0].name

    def step(mask: Mask) -> None:
        if name != "__assertfail":
            return
        m.report("assertion", inst, "a device assertion failed", 0 if mask is None else int(m.lanes(mask)[0]))
        raise Stop

    if name not in ("__assertfail", "vprintf"):
        raise CompileError(f"call of {name} is not supported")
    if inst.guard is not None:
        return guarded(m, inst, step)
    return step


def _granule(insts: list[Inst], rows: list[isa.Inst | None], of: str) -> int:
    """The smallest access to a state space (or through a generic address) in the program, in bytes."""
    small = 16
    for inst, row in zip(insts, rows):
        if row is None or not row.effects & {"load", "store", "async"}:
            continue
        space = row.mods.get("space", "")
        if space and not space.startswith(of) and "async" not in row.effects:
            continue
        if "async" in row.effects:
            sizes = [a.value for a in inst.args if isinstance(a, Imm)]
            small = min([small, *sizes])
        elif "type" in row.mods:
            bits = isa.TYPE_BITS[row.mods["type"]]
            small = min(small, bits // 8 * {"v2": 2, "v4": 4}.get(row.mods.get("vec", ""), 1))
    return max(1, small)
