"""Loads straight into registers that a ring loop's trip makes for the next one: scales of groups, zero points.

In: the frame of a loop and the order of its steps. Out: a frame whose trips find such values among what they carry.
They are loaded behind the last step that uses those of the own trip, into the same registers, and come while products
run and rings are waited for; a trip that loaded its own would wait for memory before its first product.

Invariants: what is loaded is placed by the trip's number and by what is known in front of the loop, from arrays that
the kernel does not write to. No product of a warpgroup, which may still run when the next trip's are loaded, reads the
registers themselves: something is computed of them first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from wavedsl.ir.dataflow.graph import PRODUCTS, Node
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.fragment import Fragment
from wavedsl.ir.regions.loop_frame import LoopFrame
from wavedsl.ir.schedule.steps import BodySchedule, Context, Env, Key, StageContext, Step

MOST = 16
"""Registers of what is carried so, at most."""


def straight_ahead(frame: LoopFrame, body: BodySchedule) -> LoopFrame:
    """The frame, with loads that run a trip ahead where there are such."""
    found = _ahead(frame, body)
    if not found or frame.own is not None or frame.low.choices.stages == 1:
        return frame
    steps = list(frame.steps)
    for i in found:
        steps[i] = _with(steps[i], _nothing)
    behind: dict[int, list[Step]] = {}
    for i in found:
        behind.setdefault(_last_user(frame.steps, body, frame.steps[i]), []).append(frame.steps[i])
    nodes = {n.id: n for n in frame.region.nodes}
    for i, loads in behind.items():
        kept = [k for k in steps[i].defs if (n := nodes.get(k[1])) is not None and not _changes(n)]
        steps[i] = _with(steps[i], partial(_load_next, frame, steps[i].emit, kept, loads))
    keys = [k for i in found for k in frame.steps[i].defs]
    return replace(
        frame, steps=steps, carried=[*frame.carried, *zip(keys, _first(frame, [frame.steps[i] for i in found], keys))],
        next_keys=[*frame.next_keys, *map(_next, keys)],
    )  # fmt: skip


def _ahead(frame: LoopFrame, body: BodySchedule) -> list[int]:
    """The loads, by number, that may run a trip ahead."""
    low, steps = frame.low, frame.steps
    nodes = {n.id: n for n in frame.region.nodes}
    made = {k for s in steps for k in s.defs} | {k for k, _ in frame.carried}
    found = [
        i
        for i in body.order
        if steps[i].kind == "gload" and steps[i].array and not made.intersection(steps[i].uses)
        if not low.arrays[steps[i].array].written
        if all((n := nodes.get(key[1])) is not None and _computed_with(frame, n) for key in steps[i].defs)
    ]
    return found if 0 < sum(steps[i].words for i in found) <= MOST else []


def _computed_with(frame: LoopFrame, n: Node) -> bool:
    """Whether whoever uses a value's registers computes others of them: no product, no other loop, no later trip."""
    users, kept = frame.low.users(), {y.id for y in frame.region.yields}
    todo, seen = [n], {n.id}
    while todo:
        x = todo.pop()
        if x.id in kept:
            return False
        for u in users.get(x.id, ()):
            if u.op in PRODUCTS or "body" in u.attrs or frame.low.region_of(u) is not frame.region:
                return False
            if u.id not in seen and not _changes(u):
                seen.add(u.id)
                todo.append(u)
    return True


def _changes(u: Node) -> bool:
    """Whether an operation's results are surely in registers of their own."""
    if u.op == "cast":
        return u.dtype.bits != u.inputs[0].dtype.bits
    return u.op in ("add", "sub", "mul", "div") and all(x.op not in ("constant", "fill") for x in u.inputs)


def _last_user(steps: Sequence[Step], body: BodySchedule, load: Step) -> int:
    """The number of the last step, in the order, that takes what a load brings; the load's own where none does."""
    wanted = set(load.defs)
    return next((i for i in reversed(body.order) if wanted.intersection(steps[i].uses)), steps.index(load))


def _with(step: Step, emit: Callable[[Any], None]) -> Step:
    found = copy(step)
    found.emit = emit
    return found


def _nothing(context: Context) -> None:
    pass


def _next(key: Key) -> Key:
    """Where a trip leaves what it has loaded for the next."""
    return ("next trip's", *key)


def _first(frame: LoopFrame, loads: Sequence[Step], keys: Sequence[Key]) -> list[Value]:
    """What the first trip finds."""
    b, env = frame.low.b, Env(frame.env.fixed)
    some = None if isinstance(frame.trips, int) else b.cmp("sgt", frame.trips, 0)
    for step in loads:
        with b.loc(step.loc):
            step.emit(StageContext(env, 0, some, 0))
    return [env[k] for k in keys]


def _load_next(
    frame: LoopFrame, emit: Callable[[Any], None], kept: Sequence[Key], loads: Sequence[Step], context: StageContext
) -> None:  # fmt: skip
    """What a step does, then the loads for the trip that comes next, if one does. Values that may be in the registers
    of what was loaded (`kept`: numbers that are repeated) are packed before."""
    emit(context)
    b, found = frame.low.b, Env(frame.env.fixed)
    for value in (context.env[k] for k in kept):
        if isinstance(value, Fragment):
            value.words(b)
    after = b.add(context.iteration, 1)
    more = b.cmp("slt", after, frame.trips)
    for step in loads:
        with b.loc(step.loc):
            step.emit(StageContext(found, after, more, 0))
            for key in step.defs:
                context.env[_next(key)] = found[key]


__all__ = ["straight_ahead"]
