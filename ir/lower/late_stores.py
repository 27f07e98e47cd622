"""Stores of values that are computed as they are stored: what is computed for each, and which results leave together.

In: a fragment, where its elements go, in a region that computes late. Out: the stores, each behind what it stores. What
one store needs is computed operation by operation over its elements: neighbours can become one operation on a pair
(`pair_floats`), and an instruction whose result has a latency is followed by its neighbours' rather than by a wait.

Where long values go element by element, results leave side by side: rotated halves of rows both need both halves, which
one result after the other would hold as a whole.

Invariant: between the stores of two writes that leave together stands nothing that reads or changes their arrays.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.addresses.access import GlobalAccess
from wavedsl.ir.addresses.move_elements import store_group, store_groups
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_tile, place_of
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.fragment import Fragment
from wavedsl.ir.lower.late_reads import Ahead
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.quick_dataclass import dataclass


@dataclass
class LateStore:
    """A write whose stores are to be emitted. `guard`: the lanes that store."""

    node: Node
    access: GlobalAccess
    value: Fragment
    guard: Value | None


def store_late(low: Lowering, store: LateStore) -> None:
    """Emit the stores of a write, with those of others that leave together as soon as all are there."""
    low.writes.stores_waiting.append(store)
    if len(low.writes.stores_waiting) < len(_together(low, store.node)):
        return
    waiting, low.writes.stores_waiting = low.writes.stores_waiting, []
    pieces = []
    for w in waiting:
        groups = list(store_groups(w.access))
        pieces += [(i / len(groups), w, group) for i, group in enumerate(groups)]
    pieces.sort(key=lambda piece: piece[0])
    # ptxas has an order of its own, and is told of the pressure of the one that takes fewest registers.
    alike = not low.target.assembler_schedules and (low.streams or low.row_registers > 0)
    ahead = Ahead(low, [(w.value, group) for _, w, group in pieces], alike)
    for _, w, group in pieces:
        with low.b.loc(w.node.loc):
            ahead.next()
            if alike or low.writes.turns is not None:  # the last one would hold what loads bring for all of them
                w.value.compute_together(group)
            else:
                for e in group:
                    w.value.compute_as_written((e,))
            store_group(low.b, w.access, w.value, group, w.guard, w.node.attrs.get("cache"))


def _together(low: Lowering, n: Node) -> list[Node]:
    """The writes that leave together with this one, in order."""
    if not low.streams:
        return [n]
    region = low.region_of(n)
    if id(region) not in low.writes.leaving:
        low.writes.leaving[id(region)] = {x.id: group for group in _groups(low, region) for x in group}
    return low.writes.leaving[id(region)][n.id]


def _groups(low: Lowering, region: Region) -> list[list[Node]]:
    """The writes of a region in groups that leave together: tiles of other places or arrays, where nothing between them
    reads what they change. Any other write is alone."""
    groups: list[list[Node]] = [[]]
    same: dict[str, set[Any]] = {}
    """The places of the last group's writes by array."""
    for x in region.nodes:
        memory = x.attrs.get("memory", "")
        plain = x.op == "write" and is_tile(low.graph, x) and not low.arrays[memory].dtype.packed
        known = same.get(memory, set())
        if plain and place_of(x) not in known:
            groups[-1].append(x)
            same.setdefault(memory, set()).add(place_of(x))
        elif ROWS[x.op].effect or known:
            groups.append([x] if plain else [])
            same = {memory: {place_of(x)}} if plain else {}
            if x.op == "write" and not plain:
                groups += [[x], []]
    return groups


__all__ = ["LateStore", "store_late"]
