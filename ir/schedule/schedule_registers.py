"""What a modulo schedule costs in registers, and a schedule of given stages that costs less.

In: a `ModuloSchedule`, the values that its nodes make. Out: ticks that they live, how many are alive at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.modulo import ModuloSchedule, list_schedule_with_stages
from wavedsl.ir.schedule.schedule_bounds import SchedEdge, SchedNode


def lighten(
    schedule: ModuloSchedule,
    nodes: Sequence[SchedNode],
    edges: Sequence[SchedEdge],
    capacity: Mapping[str, int],
    stages: Sequence[int],
    values: Sequence[Value],
    enders: Iterable[int],
    makers: Iterable[int],
    slower: float,
    first: Collection[int] = (),
) -> ModuloSchedule:
    """A list schedule with fewer registers: `enders` (which give registers back) become more urgent than some of the
    `makers` (which take some), where the trip becomes at most `slower` times as long. `first` go before all others.

    Tries one node at a time before the latest maker that shortens the trip or lowers MaxLive; deterministic.
    """
    best, limit = schedule, int(schedule.ii * slower)
    live = sum(max_live(best, values).values())
    urgent: dict[int, int] = {}
    takers = sorted(makers, key=lambda v: (-(schedule.times[v] % schedule.ii), v))
    for v in sorted(enders, key=lambda v: (schedule.times[v] % schedule.ii, v)):
        for taker in takers:
            if best.times[taker] % best.ii > best.times[v] % best.ii:
                continue
            found = list_schedule_with_stages(nodes, edges, capacity, stages, {**urgent, v: taker}, first)
            now = sum(max_live(found, values).values())
            if found.ii <= limit and (now < live or (now == live and found.ii < best.ii)):
                urgent[v] = taker
                best, live = found, now
                break
    return best


@dataclass(frozen=True)
class Value:
    """A result that `registers` registers of `register_class` hold from the start of `node` to its last use.

    `uses` are (node, distance, ticks): the register is read until `ticks` after that node starts, `distance` iterations
    on.
    """

    node: int
    uses: tuple[tuple[int, int, int], ...]
    registers: int
    register_class: str = "v"


def lifetime(schedule: ModuloSchedule, value: Value) -> int:
    """Ticks from definition to the end of the last use; 0 without a use."""
    born = schedule.times[value.node]
    return max((schedule.times[u] + d * schedule.ii + ticks - born for u, d, ticks in value.uses), default=0)


def max_live(schedule: ModuloSchedule, values: Iterable[Value]) -> dict[str, int]:
    """Per register class, the most registers alive at any tick of the steady state (MaxLive)."""
    ii = schedule.ii
    change: dict[str, list[int]] = {}
    always: dict[str, int] = {}
    for value in values:
        delta = change.setdefault(value.register_class, [0] * (ii + 1))
        ticks = lifetime(schedule, value)
        whole, rest = divmod(ticks, ii)
        always[value.register_class] = always.get(value.register_class, 0) + whole * value.registers
        start = schedule.times[value.node] % ii
        end = start + rest
        delta[start] += value.registers
        if end <= ii:
            delta[end] -= value.registers
        else:
            delta[ii] -= value.registers
            delta[0] += value.registers
            delta[end - ii] -= value.registers
    live: dict[str, int] = {}
    for register_class, delta in change.items():
        now = peak = 0
        for d in delta[:ii]:
            now += d
            peak = max(peak, now)
        live[register_class] = peak + always[register_class]
    return live
