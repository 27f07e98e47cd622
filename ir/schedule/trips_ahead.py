"""Loads straight into fragments that start several trips before their use, each trip's in registers of its own.

In: the schedule of a loop body whose loads run one trip ahead. Out: the same order with what uses the loads some
stages later, and as many trips between two jumps, so that every trip's copy of the body names its registers: nothing
moves from one to the next, which would wait for it. A wait counts what was asked for since, so younger loads stay on
their way.

Invariant: nothing that runs ahead reads what the loop writes or carries, so how many trips ahead it runs is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wavedsl.ir.schedule.steps import BodySchedule, Key, Step

MOST_AHEAD = 8
"""Trips that loads run ahead at most: each is a copy of the body."""


def ahead_problem(body: BodySchedule, steps: Sequence[Step]) -> str:
    """Why loads of a scheduled body cannot run more than a trip ahead; empty where they can."""
    last = body.count - 1
    early = [s for s, stage in zip(steps, body.stages) if stage < last]
    if not any(s.kind == "gload" for s in early):
        return "nothing is loaded ahead"
    if body.barriers or body.commits or body.raised or any(s.buffer or s.reads for s in steps):
        return "tiles pass by shared memory"
    if any(s.loop for s in steps):
        return "there is a loop in it"
    written = {array for s in steps for array in s.writes}
    for s in early:
        if s.kind not in ("gload", "scalar"):
            return f"{s.name} works ahead too"
        if s.array in written:
            return f"the loop writes {s.array}"
    return ""


def ahead_words(body: BodySchedule, steps: Sequence[Step]) -> int:
    """Registers that hold what one trip loads until later ones use it, as many times as stages lie between."""
    used: dict[Key, int] = {}
    for s, stage in zip(steps, body.stages):
        for key in s.uses:
            used[key] = max(used.get(key, 0), stage)
    loads = [(s, stage) for s, stage in zip(steps, body.stages) if s.kind == "gload"]
    return sum(s.words * max(0, *(used.get(key, 0) - stage for key in s.defs)) for s, stage in loads)


def further_ahead(body: BodySchedule, ahead: int) -> BodySchedule:
    """The schedule with loads `ahead` trips before their use, and what places them, where that is loaded too, as many
    before them."""
    stages = [stage * ahead for stage in body.stages]
    return replace(body, stages=stages, count=(body.count - 1) * ahead + 1, turns=ahead)


__all__ = ["MOST_AHEAD", "ahead_problem", "ahead_words", "further_ahead"]
