"""Prints a modulo schedule as a cycle table: one row per tick of the II, one column per unit.

Comes in: nodes, capacities and a schedule. Goes out: text for `inspect --schedule`.

A cell shows what starts there as `name:stage`; `|` marks ticks in which the unit is still busy with it, so a free unit
is an empty cell and a bubble is seen at once. Runs of identical rows are folded into one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wavedsl.ir.schedule.modulo import ModuloSchedule
from wavedsl.ir.schedule.schedule_bounds import SchedNode

_CELL_WIDTH = 28


def cycle_table(
    nodes: Sequence[SchedNode],
    capacity: Mapping[str, int],
    schedule: ModuloSchedule,
    *,
    clocks_per_tick: int = 1,
    title: str = "",
) -> str:
    """The steady state of a loop as text, one line per tick, ending in a newline.

    The head gives II, the bounds and the use of every unit; nodes that occupy nothing have a column of their own, `-`.
    """
    ii, scale = schedule.ii, clocks_per_tick
    units = [unit for unit in capacity if any(unit == u for node in nodes for u, _ in node.resources)]
    free_nodes = [node.id for node in nodes if not node.resources]
    columns = units + (["-"] if free_nodes else [])
    cells: dict[tuple[int, str], list[str]] = {}
    use = dict.fromkeys(units, 0)
    for node in sorted(nodes, key=lambda node: (-schedule.stages[node.id], node.id)):
        at = schedule.times[node.id] % ii
        text = f"{node.name or node.id}:{schedule.stages[node.id]}"
        for unit, ticks in node.resources:
            use[unit] += ticks
            cells.setdefault((at, unit), []).insert(0, text)
            for k in range(1, ticks):
                cells.setdefault(((at + k) % ii, unit), []).append("|")
        if not node.resources:
            cells.setdefault((at, "-"), []).append(text)
    bound = "resources" if schedule.res_mii >= schedule.rec_mii else "a recurrence"
    head = [
        f"{title + ': ' if title else ''}II {ii * scale} clocks, at least {schedule.mii * scale}, set by {bound}"
        f" (resources {schedule.res_mii * scale}, recurrences {schedule.rec_mii * scale});"
        f" {schedule.stage_count} stage{'s' if schedule.stage_count > 1 else ''}, {schedule.kind} scheduling",
        "use: " + ", ".join(f"{unit} {100 * use[unit] / (ii * capacity[unit]):.0f}%" for unit in units),
    ]
    rows = [[_fit(" ".join(cells.get((tick, column), []))) for column in columns] for tick in range(ii)]
    widths = [max(len(column), *(len(row[c]) for row in rows)) for c, column in enumerate(columns)]
    last = (ii - 1) * scale
    number = max(len("clock"), len(f"{last}-{last}"))
    lines = [*head, "  ".join(["clock".rjust(number), *(c.ljust(w) for c, w in zip(columns, widths))]).rstrip()]
    tick = 0
    while tick < ii:
        run = tick + 1
        while run < ii and rows[run] == rows[tick]:
            run += 1
        label = str(tick * scale) if run == tick + 1 else f"{tick * scale}-{(run - 1) * scale}"
        lines.append("  ".join([label.rjust(number), *(x.ljust(w) for x, w in zip(rows[tick], widths))]).rstrip())
        tick = run
    return "\n".join(lines) + "\n"


def _fit(text: str) -> str:
    return text if len(text) <= _CELL_WIDTH else text[: _CELL_WIDTH - 3] + "..."
