"""Tiles that a loop copies in every trip and that only a branch in it uses: lanes take their elements there.

In: a loop's region whose staged reads are planned. Out: which branch takes a tile's elements (`low.reads.taken`), the
steps that do it, in the branch's own list, and the shared buffers that its step reads for those around it. Copies run
trips ahead whatever the condition will be; fragments that were read in front of the branch would hold registers while
they wait for a condition, those of all its products at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wavedsl.ir.dataflow.graph import Node, Region, region_nodes
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Step
from wavedsl.ir.staging.lower_reads import fragment_steps


def find_taken(low: Lowering, region: Region) -> None:
    """File the staged reads of a loop of which all users are in one branch of it."""
    if region.dim is None or low.matrix.strategy.bulk:
        return
    branches = {id(n.attrs["body"]): n for n in region.nodes if n.op == "when"}
    handed_on = {x.id for body in (region, *(n.attrs["body"] for n in branches.values())) for x in body.yields}
    for n in region.nodes if branches else ():
        tile = low.reads.staged.get(n.id)
        if tile is None or tile.loads is None or n.id in handed_on:
            continue
        homes = {id(low.region_of(u)) for u in low.users().get(n.id, ())}
        if len(homes) == 1 and (branch := branches.get(homes.pop())) is not None:
            low.reads.taken[n.id] = branch.id


def buffers_read(low: Lowering, branch: Node) -> tuple[str, ...]:
    """Shared buffers of the loop around a branch that it reads: those whose elements lanes take there, and operands
    that its matrix instructions read themselves."""
    found = [i for i, home in low.reads.taken.items() if home == branch.id]
    for n in region_nodes(branch.attrs["body"]):
        plan = low.inference.mmas.get(n.id)
        if plan is not None:
            found += [x.id for x, shared in zip(plan.ports, plan.in_shared) if shared and x.id in low.reads.staged]
    return tuple(dict.fromkeys(low.room.buffers[i] for i in found))


def with_taken(low: Lowering, branch: Node, steps_of: Sequence[tuple[Node, list[Step]]]) -> list[Step]:
    """A branch's steps, node by node, with those that take its tiles' elements in front of the first that uses them.
    Their buffers are the business of the trip around it."""
    left = {x.id: x for n, _ in steps_of for x in n.inputs if low.reads.taken.get(x.id) == branch.id}
    out: list[Step] = []
    for n, steps in steps_of:
        for x in n.inputs:
            if left.pop(x.id, None) is not None:
                out += [replace(step, buffer="") for step in fragment_steps(low, x)]
        out += steps
    return out


__all__ = ["buffers_read", "find_taken", "with_taken"]
