"""What a region of code is made of before it is kernel IR: `Step`s, the values that they pass to each other, and the
order that was chosen for them.

In: nothing; `lower_regions.py` makes one list of steps per region, `plan_body.py` a `BodySchedule` of it. Out: kernel
IR, when `emit_loop.py` or `ring_loops.py` call the steps with a `Context`.

A step of stage s works on iteration t + (S - 1 - s) in trip t of the steady state. Stages before the last only load,
copy and read; everything with an effect or a carried value is in the last stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass

Key = tuple[Any, ...]
"""Names a value inside one iteration: (kind, node id, ...)."""

EARLY = ("gload", "swrite", "acopy", "sread", "barrier", "scalar")
"""Kinds of steps that may run ahead of their iteration."""


class Env:
    """Values by key and iteration. `iteration` is set before each step: absolute in the prologue, relative to the
    trip in the loop."""

    def __init__(self, outer: Mapping[Key, Any] | None = None):
        self.values: dict[tuple[Key, int], Any] = {}
        self.fixed: dict[Key, Any] = dict(outer or {})
        self.iteration = 0

    def __getitem__(self, key: Key) -> Any:
        found = self.values.get((key, self.iteration))
        return found if found is not None else self.fixed[key]

    def __setitem__(self, key: Key, value: Any) -> None:
        self.values[key, self.iteration] = value


@dataclass
class Context:
    """What a step needs to emit itself: values, its iteration (int or uniform value), whether the iteration exists."""

    env: Env
    iteration: Any
    guard: Value | None


@dataclass
class StageContext(Context):
    """`relative`: the iteration under which values are filed in the environment."""

    relative: int = 0


@dataclass
class Step:
    """One schedulable piece of an iteration. `resources`: (unit, clocks); `latency`: clocks until its results are
    usable.
    `buffer`: the shared buffer that it writes (swrite, acopy) or reads (sread)."""

    name: str
    kind: str
    resources: tuple[tuple[str, int], ...]
    latency: int
    uses: tuple[Key, ...]
    defs: tuple[Key, ...]
    emit: Callable[[Context], None]
    buffer: str = ""
    loc: Loc | None = None
    array: str = ""
    """The array argument that a gload or acopy reads."""
    writes: tuple[str, ...] = ()
    """Arrays that an effect writes; loops inside the body count with all that they write."""
    words: int = 0
    """32-bit registers that hold the step's results from its issue on."""
    moved: int = 0
    """Bytes of the cache lines that a load or copy to shared memory touches, on average of the waves; 0: not known."""
    again: int = 1
    """How many iterations in a row then touch the same lines."""
    shared_clocks: int = 0
    """Clocks per wave that it keeps shared memory busy, bank conflicts counted; 0: as `resources` say."""
    reads: tuple[str, ...] = ()
    """Shared buffers that a matrix instruction of the step reads itself."""

    late: bool = False
    """Whether a load stays where it stands among the steps, instead of coming first."""
    loop: bool = False
    """Whether the step is a whole loop."""
    light: bool = False
    """Whether it computes elements one by one, so that a load whose place it computes may take it along."""
    anew: bool = False
    """Whether an iteration's number alone says its result, for an addition or two: where a later trip wants it, it is
    computed once more, and its range is known, rather than carried."""
    sequence: str = ""
    """Steps of one sequence keep their order: they share what is costly to set."""
    node: Any = None
    """The product that an asynchronous matrix step carries out."""
    prepared: Key | None = None
    """Where such a step finds its register operand, if not under the operand's own keys."""

    def reads_shared(self, buffer: str) -> bool:
        """Whether the step reads this shared buffer."""
        return (self.buffer == buffer and self.kind == "sread") or buffer in self.reads


def shared_readers(steps: Sequence[Step]) -> dict[str, list[int]]:
    """Shared buffer → the steps that read it, by number, in order."""
    out: dict[str, list[int]] = {}
    for i, s in enumerate(steps):
        own = (s.buffer,) if s.kind == "sread" else ()
        for buffer in dict.fromkeys((*own, *s.reads)):
            out.setdefault(buffer, []).append(i)
    return out


def shared_writers(steps: Sequence[Step]) -> dict[str, list[int]]:
    """Shared buffer → the steps that write or copy to it, by number, in order."""
    out: dict[str, list[int]] = {}
    for i, s in enumerate(steps):
        if s.kind in ("swrite", "acopy"):
            out.setdefault(s.buffer, []).append(i)
    return out


@dataclass
class BodySchedule:
    """Steps in order of issue with their stages, and where to synchronise: `barriers` maps a position to the copy
    groups that may still be in flight when it is passed (None: no asynchronous copies are involved); a group of copies
    ends after each position in `commits`, in every trip, so that they can be counted."""

    order: list[int]
    stages: list[int]
    count: int
    barriers: dict[int, int | None]
    commits: tuple[int, ...]
    ii: int
    mii: int
    kind: str
    times: list[int] = field(default_factory=list)
    clock: int = 1
    why: str = ""
    """The reason for this schedule, where there was another."""
    raised: dict[int, int] = field(default_factory=dict)
    """Position (the end included) → issue priority of the wave from there on."""
    turns: int = 1
    """Trips between two jumps, as many as loads run ahead (`trips_ahead`)."""
