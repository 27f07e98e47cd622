"""What the text of a loop's schedule will wait for, before there is text.

In: a body's events in order, the clocks that each keeps its unit busy. Out: per trip and event, how many accesses to
vector memory and to LDS may be left on their way. A wave goes through a few trips as through one block; which results a
wait is for, (MERGE) of `merged_waits.py` says, as it will of the text (`codegen/amdgcn/waits.py`). A step counts as one
instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wavedsl.ir.schedule.merged_waits import ISSUE_CLOCKS, Access, WaitClock, fetch_clocks
from wavedsl.ir.schedule.steps import Key, Step

BARRIER, PRIORITY, COMMIT = -1, -2, -3
Event = tuple[int, int]
"""(step, 0), (BARRIER, groups of copies that may be in flight behind it), (PRIORITY, level), or (COMMIT, 0)."""
Left = tuple[int, int]
"""Accesses to vector memory and to LDS that may be on their way; -1: any number."""

QUEUES = {"gload": "vm", "acopy": "vm", "swrite": "lds", "sread": "lds"}
_LDS = 1
"""What an access to LDS writes that barriers want."""


def waits(
    events: Sequence[Event], steps: Sequence[Step], stages: Sequence[int], busy: Sequence[int], trips: int, waves: int,
    simds: int,
) -> Mapping[tuple[int, int], Left]:  # fmt: skip
    """(trip, event) → what may be left where it waits. `busy`: clocks per wave and step."""
    kinds = [(steps[i].kind, busy[i]) for i, _ in events if i >= 0]
    products, loads = (sum(c for kind, c in kinds if kind in of) for of in (("mma",), ("gload", "acopy")))
    fetch = fetch_clocks(products * -(-waves // simds), loads * waves)
    first = 1 + trips * (1 + sum(i == COMMIT for i, _ in events))
    wanted, written = _marks(events, steps, stages, trips, first)
    clock = WaitClock(waves, simds, fetch, -1 << first)
    queues: dict[str, list[Access]] = {"vm": [], "lds": []}
    found: dict[tuple[int, int], Left] = {}
    for at, wants in enumerate(wanted):
        trip, position = divmod(at, len(events))
        step, _ = events[position]
        queue = QUEUES.get(steps[step].kind, "") if step >= 0 else ""
        vm, lds = queues["vm"], queues["lds"]
        need_vm, need_lds = (next((n for n, (m, _) in enumerate(q) if m & wants), -1) for q in (vm, lds))
        if need_vm >= 0 or need_lds >= 0:
            found[trip, position] = clock.wait(vm, lds, need_vm, need_lds, wanted, at, queue == "vm")
        if queue:
            arrival = clock.access(queue, busy[step], steps[step].latency)
            queues[queue].insert(0, (written[at], arrival))
        elif step >= 0 and steps[step].kind == "mma":
            clock.multiply(busy[step])
        elif step != COMMIT:
            clock.now += ISSUE_CLOCKS
    return found


def _marks(
    events: Sequence[Event], steps: Sequence[Step], stages: Sequence[int], trips: int, first: int
) -> tuple[list[int], list[int]]:
    """What each event of each trip wants and writes: LDS at bit 0, groups of copies next, values from bit `first`."""
    bits: dict[tuple[Key, int], int] = {}
    wanted, written = [], []
    group = 0
    for trip in range(trips):
        for step, pending in events:
            wants = writes = 0
            if step == BARRIER:
                wants = _LDS | ((1 << max(0, group - pending)) - 1) << 1
            elif step == COMMIT:
                group += 1
            elif step >= 0:
                s, iteration = steps[step], trip - stages[step]
                for k in s.uses:
                    wants |= bits.get((k, iteration), 0)
                if s.kind in ("gload", "sread"):
                    for k in s.defs:
                        writes |= bits.setdefault((k, iteration), 1 << (first + len(bits)))
                if s.kind == "acopy":
                    writes = 1 << (1 + group)
                elif s.buffer:
                    writes |= _LDS
            wanted.append(wants)
            written.append(writes)
    return wanted, written
