"""Clocks of basic blocks and loops without running a kernel: the cycle model on made-up traces.

In: a program, some of its blocks. Out: `Timing`s. Addresses are unknown here, so every access is taken as ideal: LDS
without bank conflicts, vector memory as whole cache lines that no other access touches. What `inspect --cycles` shows,
and what is compared with llvm-mca block by block.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.runtime.emulator.amdgcn.cycle_model import Replay
from wavedsl.runtime.emulator.amdgcn.state import LANES
from wavedsl.runtime.emulator.amdgcn.text import Line, Program
from wavedsl.runtime.emulator.amdgcn.trace import WaveTrace
from wavedsl.runtime.emulator.cycle_chips import CHIPS, ChipModel
from wavedsl.runtime.emulator.cycle_queue import Launch, Timing

_CONTROL = frozenset(("branch", "endpgm", "setpc", "call", "trap"))


def basic_blocks(program: Program) -> list[tuple[int, int]]:
    """(first, last) instruction of every basic block, in text order."""
    lines = program.lines
    leaders = {0, *program.labels.values()}
    leaders |= {i + 1 for i, line in enumerate(lines) if line.inst is not None and line.inst.special in _CONTROL}
    starts = sorted(i for i in leaders if i < len(lines))
    return [(a, b - 1) for a, b in zip(starts, [*starts[1:], len(lines)])]


def loops(program: Program) -> list[tuple[int, int]]:
    """(first, last) instruction of every innermost loop: a branch backwards with no other inside."""
    found = []
    for i, line in enumerate(program.lines):
        if line.inst is not None and line.inst.special == "branch":
            label = line.operands[0]
            to = program.labels.get(label) if isinstance(label, str) else i + 1 + int(label)
            if to is not None and to <= i:
                found.append((to, i))
    return [(a, b) for a, b in found if not any((c, d) != (a, b) and a <= c and d <= b for c, d in found)]


def ideal_trace(program: Program, spans: Sequence[tuple[int, int]], repeat: int, line_bytes: int) -> WaveTrace:
    """A wave that runs these straight-line spans `repeat` times."""
    trace = WaveTrace()
    fresh = 0
    per_trip: list[int] = []
    for first, last in spans:
        for line in program.lines[first : last + 1]:
            per_trip += _accesses(line)
    for _ in range(repeat):
        for first, _last in spans:
            trace.blocks.append(first)
        for value in per_trip:
            if value > 0:
                trace.events.append(value)
                continue
            size = abs(value)
            count = -(-size // line_bytes)
            trace.events.append((size, tuple(range(fresh, fresh + count))))
            fresh += count
    return trace


def _accesses(line: Line) -> list[int]:
    """Per event of a memory instruction: LDS clocks, or minus the bytes of vector memory."""
    inst = line.inst
    if inst is None or inst.mem is None:
        return []
    if inst.unit is Unit.DS:
        return [max(1, inst.issue // inst.mem.pieces)] * inst.mem.pieces
    if inst.unit in (Unit.VMEM, Unit.SCRATCH):
        return [-LANES * inst.mem.bytes]
    return []


def run_spans(
    program: Program, spans: Sequence[tuple[int, int]], target: str, *, repeat: int, waves: int = 1,
    groups: int = 1, chip: ChipModel | None = None,
) -> Timing:  # fmt: skip
    """`groups` workgroups of `waves` waves run the spans `repeat` times, together on one compute unit."""
    chip = chip or CHIPS[target]
    trace = ideal_trace(program, spans, repeat, chip.line)
    replay = Replay(program, dict(spans), target, chip, Launch(groups, groups, 0.0))
    return replay.run([[trace] * waves])


def clocks_per_trip(
    program: Program, spans: Sequence[tuple[int, int]], target: str, *, waves: int = 1, groups: int = 1,
    chip: ChipModel | None = None,
) -> float:  # fmt: skip
    """Clocks of one more trip, once the pipeline is filled."""
    few, many = 8, 24
    a = run_spans(program, spans, target, repeat=few, waves=waves, groups=groups, chip=chip)
    b = run_spans(program, spans, target, repeat=many, waves=waves, groups=groups, chip=chip)
    return (b.cycles - a.cycles) / (many - few)
