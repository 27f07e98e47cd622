"""Text for people: tables, what a kernel uses, its loops as cycle tables, errors against a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wavedsl.codegen import is_amd
from wavedsl.ir.loc import Loc


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns under their heads; numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(h), *(len(row[i]) for row in cells)]) for i, h in enumerate(head)]
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(head))]

    def line(values: Sequence[str]) -> str:
        return "  ".join(v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right)).rstrip()

    return "\n".join([line(head), "  ".join("-" * w for w in widths), *(line(row) for row in cells)])


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (int, float, np.number))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return "0" if value == 0 else f"{value:.3g}"
    return str(value)


def registers_text(resources: Any) -> str:
    """Registers by file where the chip has several, else per thread; `-` where no assembler could say."""
    vgprs = getattr(resources, "vgprs", None)
    if vgprs is not None:
        return f"{vgprs}v {resources.agprs}a {resources.sgprs}s"
    return "-" if resources.registers is None else str(resources.registers)


def _spills_text(resources: Any) -> str:
    """How many registers are spilled, and to where if the resources say."""
    where = getattr(resources, "spilled", None)
    if not resources.spills or where is None:
        return _cell(resources.spills)
    places = {"lanes": where.scalars, "accumulation registers": where.accumulation, "scratch": where.scratch}
    return f"{resources.spills} ({', '.join(f'{n} in {place}' for place, n in places.items() if n)})"


def resources_text(compiled: Any) -> str:
    """What a compiled kernel uses, one line per kind."""
    r = compiled.resources
    counted = ", ".join(f"{kind} {count}" for kind, count in r.instructions.items() if count)
    lines = [
        f"{compiled.name} for {compiled.target}: grid {_sizes(compiled.grid)}, block {_sizes(compiled.block)}",
        f"registers {registers_text(r)}, shared memory {r.shared_bytes} B, spills {_spills_text(r)}, "
        f"occupancy {_cell(r.occupancy)}",
        f"instructions: {counted}",
    ]
    for loop in r.loops:
        counted = ", ".join(f"{kind} {count}" for kind, count in loop.instructions.items() if count)
        lines.append(f"loop {loop.label} ({loop.steps} step{'s' * (loop.steps != 1)} a trip): {counted}")
    return "\n".join(lines)


def _sizes(sizes: Sequence[Any]) -> str:
    return " x ".join(str(n) for n in sizes)


def schedule_text(kernel_ir: Any) -> str:
    """The software pipeline of each loop as a table of cycles; what else the compiler chose above it."""
    from wavedsl.ir.schedule.cycle_table import cycle_table
    from wavedsl.ir.schedule.modulo import ModuloSchedule
    from wavedsl.ir.schedule.schedule_bounds import SchedNode, resource_mii

    notes = kernel_ir.notes.get("lowering")
    if notes is None:
        return "nothing is known of the schedule\n"
    out = list(notes.graph)
    out += [f"matrix instruction of {node}: {atom}" for node, atom in notes.atoms.items()]
    out += [f"shared buffer {name}: {why}" for name, why in notes.places.items()]
    if notes.strategy is not None and notes.strategy.why:
        out += notes.strategy.lines()
    out += notes.rings
    if notes.numbering is not None:
        out.append(notes.numbering.describe())
    for role, doing in notes.roles.items():
        out += [f"{role}:", *(f"  {line}" for line in doing)]
    if not notes.loops:
        out.append("no loop is pipelined")
    for note in notes.loops:
        body, steps = note.body, note.steps
        head = f"loop {note.label}: {body.count} stage{'s' * (body.count != 1)}, {body.kind}"
        if body.turns > 1:
            head += f", loads {body.turns} trips ahead, each trip's in registers of its own"
        if body.raised:
            out += phases_text(head, body, steps)
            continue
        if not body.times:
            out.append(f"{head}: {', '.join(steps[i].name or steps[i].kind for i in body.order)}")
            continue
        out.append(f"{head}, a trip every {body.ii} clocks (at least {body.mii}), {note.slots} buffers")
        clock, ticks = body.clock, max(1, body.ii // body.clock)
        nodes = [
            SchedNode(i, tuple((u, max(1, -(-c // clock))) for u, c in s.resources if c), s.name or s.kind)
            for i, s in enumerate(steps)
        ]
        capacity = dict.fromkeys(sorted({u for node in nodes for u, _ in node.resources}), 1)
        times = tuple(t % ticks + stage * ticks for t, stage in zip(body.times, body.stages))
        bound = resource_mii(nodes, capacity)
        schedule = ModuloSchedule(ticks, times, tuple(body.stages), body.mii // clock, bound, 0, 1, body.kind)
        # The table's own first line repeats the head, with bounds that the schedule no longer knows.
        out.append(cycle_table(nodes, capacity, schedule, clocks_per_tick=clock).split("\n", 1)[1].rstrip())
    return "\n".join(out) + "\n"


def phases_text(head: str, body: Any, steps: Any) -> list[str]:
    """A ping-pong schedule phase by phase: what one group of waves does while the other is in the next line."""
    out = [f"{head}, a trip every {body.ii} clocks at least" + (f": {body.why}" if body.why else "")]
    starts = sorted(body.barriers)
    for first, end in zip(starts, [*starts[1:], len(body.order)]):
        names: dict[str, int] = {}
        for i in body.order[first:end]:
            kind = _KINDS.get(steps[i].kind, steps[i].kind)
            names[kind] = names.get(kind, 0) + 1
        counted = ", ".join(f"{n} {kind}" for kind, n in names.items())
        out.append(f"  barrier; {'at raised priority: ' if body.raised.get(first) else ''}{counted}")
    return out


_KINDS = {"sread": "reads", "swrite": "stores", "gload": "loads", "mma": "products", "scalar": "numbers"}


def model_text(report: Any, target: str) -> str:
    """The cycle model's prediction of one launch, and the model's error beside it."""
    used = ", ".join(f"{unit} {100 * share:.0f}%" for unit, share in report.utilisation.items())
    out = [f"model: {report.cycles} cycles, {report.bank_conflicts} cycles of bank conflicts", f"busy: {used or '-'}"]
    timing = report.timing
    if timing is not None:
        from wavedsl.runtime.emulator.cycle_chips import clock_of
        from wavedsl.runtime.emulator.model_error import error_text

        clock = clock_of(target)
        out[0] += f", {timing.cycles / clock / 1e3:.3g} us at {clock} GHz"
        total = sum(timing.stalls.values())
        if total:
            shares = (f"{why} {100 * n / total:.0f}%" for why, n in timing.stalls.items() if 200 * n > total)
            out.append(f"waits: {', '.join(shares)}")
        out.append(f"error: {error_text(target)}")
    return "\n".join(out)


def waits_text(report: Any, asm: str, target: str) -> str:
    """Where the waves of the modelled compute unit waited longest: by lines of the kernel, then of the text."""
    from wavedsl.runtime.emulator.amdgcn.text import parse
    from wavedsl.runtime.emulator.cycle_queue import longest_waits
    from wavedsl.runtime.emulator.ptx.emulator import instructions

    timing = report.timing
    if is_amd(target):
        lines = [(line.number, line.text) for line in parse(asm, target).lines]
    else:
        lines = [(inst.line, " ".join(inst.text.split())) for inst in instructions(asm)]
    rows = []
    for i, clocks, times in longest_waits(timing):
        rows.append((lines[i][0], clocks, times, report.place(i)[1].rpartition("/")[2], lines[i][1][:WIDEST]))
    return f"{_kernel_waits(report)}\n\n" + table(("line", "clocks waited", "issued", "kernel", "instruction"), rows)


WIDEST = 80
"""Characters of a line that tables quote."""


def _kernel_waits(report: Any, count: int = 6) -> str:
    """The lines of the user's source at which waves waited longest, with their shares of all clocks waited."""
    clocks: dict[str, int] = {}
    for i, n in report.timing.lines.items():
        place = report.place(i)[1]
        clocks[place] = clocks.get(place, 0) + n
    total = sum(clocks.values()) or 1
    rows = []
    for place, n in sorted(clocks.items(), key=lambda item: (-item[1], item[0]))[:count]:
        file, _, line = place.rpartition(":")
        text = Loc(file, int(line)).text().strip() if line.isdecimal() else "no line of the kernel"
        rows.append((place.rpartition("/")[2], n, f"{100 * n / total:.0f}%", text[:WIDEST]))
    return table(("kernel", "clocks waited", "of all", "source"), rows)


def loop_cycles_text(compiled: Any) -> str:
    """Clocks per trip of each innermost loop on a full compute unit, memory taken as ideal."""
    if not is_amd(compiled.target):
        return "the clocks of PTX are ptxas' choice: nothing is modelled before it runs"
    from wavedsl.codegen.amdgcn.target import resident_groups
    from wavedsl.runtime.emulator.amdgcn.cycle_blocks import basic_blocks, clocks_per_trip, loops, run_spans
    from wavedsl.runtime.emulator.amdgcn.text import parse
    from wavedsl.runtime.emulator.model_error import error_text

    program = parse(compiled.asm, compiled.target)
    names = {index: label for label, index in program.labels.items()}
    threads = compiled.block[0] * compiled.block[1] * compiled.block[2]
    waves = -(-threads // 64)
    groups = max(1, resident_groups(compiled.target, compiled.resources.registers, compiled.shared_bytes, threads))
    blocks = basic_blocks(program)
    rows = []
    for first, last in loops(program):
        spans = [b for b in blocks if first <= b[0] and b[1] <= last]
        clocks = clocks_per_trip(program, spans, compiled.target, waves=waves, groups=groups)
        busy = run_spans(program, spans, compiled.target, repeat=32, waves=waves, groups=groups).utilisation
        shares = ", ".join(f"{unit} {100 * share:.0f}%" for unit, share in busy.items())
        rows.append((names.get(first, f"line {program.lines[first].number}"), groups, waves, round(clocks), shares))
    if not rows:
        return "no loops"
    error = error_text(compiled.target)
    return table(("loop", "workgroups", "waves of each", "clocks per trip", "busy"), rows) + f"\nerror: {error}"


def largest_error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest absolute difference; infinite where one is NaN and the other is not."""
    if got.size == 0:
        return 0.0
    left, right = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(left - right))
    return float(np.where(np.isnan(difference), np.inf, difference).max())


def errors(got: Mapping[str, Any], want: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, float]:
    """`largest_error` of each output."""
    return {name: largest_error(got[name], want[name]) for name in outputs}
