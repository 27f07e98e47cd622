"""Kernel IR of a scheduled body: prologue, steady state and the barriers between, or straight code.

In: a `BodySchedule` with the `LoopFrame` or the steps that it is of. Out: ops in the builder, and the final values of
what the loop carries. Values that cross trips travel as loop-carried values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import PRED, Value
from wavedsl.ir.layouts.fragment import Fragment
from wavedsl.ir.schedule.steps import BodySchedule, Context, Env, Key, StageContext, Step

if TYPE_CHECKING:
    from wavedsl.ir.regions.loop_frame import LoopFrame


def emit_steps(
    b: Builder, body: BodySchedule, steps: Sequence[Step], context_of: Callable[[int], Context | None]
) -> None:
    """One pass over the body. `context_of(stage)` gives the context of a stage's iteration, None to leave the stage
    out."""
    contexts = {g: context_of(g) for g in range(body.count)}
    for p, i in enumerate(body.order):
        if p in body.barriers:
            synchronise(b, body.barriers[p])
        if p in body.raised:
            b.priority(body.raised[p])
        s = steps[i]
        context = contexts[body.stages[i]]
        if context is not None:
            context.env.iteration = context.relative  # type: ignore[attr-defined]
            with b.loc(s.loc):
                s.emit(context)
        if p in body.commits:
            b.copy_commit()
    if len(body.order) in body.raised:
        b.priority(body.raised[len(body.order)])


def half_barrier(b: Builder, half: int) -> None:
    """A barrier that only the lower (0) or upper (1) half of the workgroup's waves passes; the others pass it at the
    next one that stands in their way."""
    with b.if_(b.cmp("slt" if half == 0 else "sge", b.wave(), b.kernel.waves // 2)) as branch:
        b.barrier(half)
        branch.yield_()


def synchronise(b: Builder, pending: int | None) -> None:
    """A barrier of the workgroup, after the asynchronous copies that it has to see (None: there are none)."""
    if pending is not None:
        b.copy_wait(pending)
    if b.matrix_reads_shared:
        b.proxy_fence()
    b.barrier()


def crossing(body: BodySchedule, steps: Sequence[Step]) -> list[tuple[Key, int]]:
    """(key, most trips that a use of it lies after its definition) for keys used in a later trip than they are made."""
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}
    most: dict[Key, int] = {}
    for i, s in enumerate(steps):
        for k in s.uses:
            j = maker.get(k)
            if j is not None:
                distance = body.stages[i] - body.stages[j]
                if distance > 0:
                    most[k] = max(most.get(k, 0), distance)
    return sorted(most.items(), key=lambda e: (maker[e[0]], e[0]))


def emit_pipelined(frame: LoopFrame, body: BodySchedule, parts: int = 1, apart: bool = False) -> list[Value]:
    """Prologue and steady-state loop. Returns the final values of what the loop carries. `parts`: trips that make up
    one of the user's. `apart`: the upper half of the waves runs a barrier behind the lower."""
    b, steps, env, trips, carried = frame.low.b, frame.steps, frame.env, frame.trips, frame.carried
    last = body.count - 1
    _emit_prologue(frame, body, apart)
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}
    inits: list[Value] = [v for _, v in carried]
    slots: list[tuple[Key, int]] = []
    anew = _made_anew(frame, maker)
    again: list[tuple[Key, int]] = []
    for key, most in crossing(body, steps):
        made = last - body.stages[maker[key]]
        for d in range(1, most + 1):
            if key in anew:
                again.append((key, made - d))
                continue
            slots.append((key, made - d))
            inits.append(_register(b, env.values[key, made - d]))
    if body.turns > 1:
        return _emit_turns(frame, body, inits, slots, lambda inner, first: _make(frame, inner, first, again, anew))
    if apart:
        if body.commits:
            b.copy_wait(0)
        b.barrier()  # the prologue's stores to shared memory are waited for here, not in the loop
        half_barrier(b, 1)
    minimum = trips if isinstance(trips, int) else 0
    with b.for_(0, trips, 1, inits, label=frame.label, min_trips=1 if minimum else 0) as loop:
        if parts > 1:
            loop.op.attrs["parts"] = parts
        inner = frame.inside(loop.carried)
        for (key, relative), v in zip(slots, loop.carried[len(carried) :]):
            inner.values[key, relative] = _value(b, v, env.values[key, relative])
        _make(frame, inner, loop.iv, again, anew)

        def context_of(g: int) -> Context:
            ahead = last - g
            iteration = b.add(loop.iv, ahead) if ahead else loop.iv
            return StageContext(inner, iteration, _exists(b, trips, iteration, ahead), ahead)

        emit_steps(b, body, steps, context_of)
        inner.iteration = 0
        out = [inner[k] for k in frame.next_keys]
        for key, relative in slots:
            out.append(_register(b, inner.values[key, relative + 1]))
        loop.yield_(out)
    if apart:
        half_barrier(b, 0)
    if body.commits:
        b.copy_wait(0)
    return list(loop.results[: len(carried)])


def _made_anew(frame: LoopFrame, maker: Mapping[Key, int]) -> dict[Key, list[int]]:
    """Key → the steps to carry out for its value in any iteration, for keys that follow from the iteration's number."""
    steps, carried = frame.steps, {k for k, _ in frame.carried}
    found: dict[Key, list[int]] = {}
    for i, s in enumerate(steps):  # what a step uses is made before it
        inside = [k for k in s.uses if k in maker]
        if s.anew and not carried.intersection(s.uses) and all(k in found for k in inside):
            chain = list(dict.fromkeys([*(j for k in inside for j in found[k]), i]))
            found |= dict.fromkeys(s.defs, chain)
    return found


def _make(
    frame: LoopFrame, inner: Env, first: Any, again: Sequence[tuple[Key, int]], anew: Mapping[Key, Sequence[int]]
) -> None:
    """The keys of `again`, each of an iteration counted from the `first` one, by the steps that `anew` has for it."""
    b = frame.low.b
    for key, relative in again:
        at = first + relative if isinstance(first, int) else b.add(first, relative) if relative else first
        for i in anew[key]:
            inner.iteration = relative
            with b.loc(frame.steps[i].loc):
                frame.steps[i].emit(StageContext(inner, at, None, relative))


def _emit_turns(
    frame: LoopFrame, body: BodySchedule, inits: Sequence[Value], slots: Sequence[tuple[Key, int]],
    make: Callable[[Env, Any], None],
) -> list[Value]:  # fmt: skip
    """The steady state of a body whose loads run `body.turns` trips ahead, so many trips to a jump; then the trips that
    are left, for which everything has been loaded. `slots`: what is carried behind the frame's own values, of which
    iteration, counted from the first of a jump's; `make` gives an environment what is made anew instead, from a first
    iteration on."""
    b, trips, turns, last = frame.low.b, frame.trips, body.turns, body.count - 1
    known = isinstance(trips, int)
    done = trips - trips % turns if known else b.sub(trips, b.urem(trips, turns))
    made = {key: frame.env.values[key, relative] for key, relative in slots}
    outer = [v for _, v in frame.carried]

    def started(values: Sequence[Value], first: Any) -> Env:
        inner = frame.inside(values)
        for (key, relative), v in zip(slots, values[len(outer) :]):
            inner.values[key, relative] = _value(b, v, made[key])
        make(inner, first)
        return inner

    def trip(inner: Env, first: Any, k: int, loads: bool) -> list[Value]:
        """Trip number `first` + k; what the next one carries."""

        def context_of(g: int) -> Context | None:
            ahead = last - g
            if ahead and not loads:
                return None
            at = first + k if isinstance(first, int) else b.add(first, k)
            iteration = at + ahead if isinstance(at, int) else b.add(at, ahead)
            return StageContext(inner, iteration, _exists(b, trips, iteration, ahead), ahead + k)

        emit_steps(b, body, frame.steps, context_of)
        inner.iteration = k
        carried = [inner[key] for key in frame.next_keys]
        inner.fixed.update(zip((key for key, _ in frame.carried), carried))
        return carried

    values = list(inits)
    with b.for_(0, done, turns, values, label=frame.label, min_trips=int(known and trips >= turns)) as loop:
        loop.op.attrs["steps"] = turns
        inner, carried = started(loop.carried, loop.iv), outer
        for k in range(turns):
            carried = trip(inner, loop.iv, k, True)
        loop.yield_([*carried, *(_register(b, inner.values[key, relative + turns]) for key, relative in slots)])
    values = list(loop.results)
    if known:
        inner, carried = started(values, done), values[: len(outer)]
        for k in range(trips - done):
            carried = trip(inner, done, k, False)
        return carried
    with b.for_(done, trips, 1, values, label=frame.label) as loop:  # fewer trips than `turns`
        inner = started(loop.carried, loop.iv)
        carried = trip(inner, loop.iv, 0, False)
        # The last of each is of an iteration that does not exist.
        ends = [relative + ((key, relative + 1) in inner.values) for key, relative in slots]
        loop.yield_([*carried, *(_register(b, inner.values[key, end]) for (key, _), end in zip(slots, ends))])
    return list(loop.results[: len(outer)])


def _emit_prologue(frame: LoopFrame, body: BodySchedule, apart: bool) -> None:
    """What the early stages do before the first trip: as many passes over the body as stages work ahead, each with one
    stage more. Between passes only the barriers stay that an early read waits behind, none where halves run `apart`."""
    b, steps = frame.low.b, frame.steps
    early_reads = [(p, body.stages[i]) for p, i in enumerate(body.order) if steps[i].kind == "sread" or steps[i].reads]
    for j in range(body.count - 1):
        contexts: dict[int, Context | None] = {}
        for g in range(body.count):
            it = j - g
            contexts[g] = StageContext(frame.env, it, _exists(b, frame.trips, it, 0), it) if it >= 0 else None
        barriers = {} if apart else {
            p: pending for p, pending in body.barriers.items()
            if any((q >= p and g <= j) or (q < p and g <= j + 1) for q, g in early_reads)
        }  # fmt: skip
        trimmed = BodySchedule(body.order, body.stages, body.count, barriers, body.commits, 0, 0, body.kind)
        emit_steps(b, trimmed, steps, contexts.get)


def _exists(b: Builder, trips: Any, iteration: Any, ahead: int) -> Value | None:
    """Whether an iteration `ahead` of the trip exists; None when it surely does."""
    if isinstance(iteration, int) and isinstance(trips, int):
        return None if iteration < trips else b.false
    if not ahead and not isinstance(iteration, int):
        return None
    if isinstance(iteration, int):
        return b.cmp("sgt", trips, iteration)
    base = b.sub(iteration, ahead) if isinstance(trips, int) else iteration
    return b.cmp("slt", base, trips - ahead if isinstance(trips, int) else trips)


def _register(b: Builder, v: Any) -> Value:
    """What a loop carries of a step's result: itself, or the one number of a fragment (conditions as 0 or 1)."""
    if not isinstance(v, Fragment):
        return v
    (word,) = v.words(b)
    return b.select(word, 1, 0) if word.type is PRED else word


def _value(b: Builder, register: Value, like: Any) -> Any:
    """The result that `_register` was made of."""
    if not isinstance(like, Fragment):
        return register
    word = b.cmp("ne", register, 0) if like.words(b)[0].type is PRED else register
    return Fragment(like.layout, like.dtype, [(word,) if word.type is PRED else word])


def emit_straight(b: Builder, body: BodySchedule, steps: Sequence[Step], env: Env, iteration: Any = 0) -> None:
    """One iteration in order, no pipeline. The values of earlier code are in `env.fixed`."""
    emit_steps(b, body, steps, lambda g: StageContext(env, iteration, None, 0))
