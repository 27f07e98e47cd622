"""Conditions are computed where they are used: a comparison moves down to its reader, and is repeated for far readers.

In: a kernel. Out: the same, reordered. Lane masks live in scalar registers, a pair per condition on AMD; node by node
lowering would have those of a whole fragment live at once, which there are not enough registers for. A comparison costs
one instruction; keeping its mask costs more as soon as it must be spilled.
INVARIANT: every op still comes after what it reads; ops with effects do not move.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.ir.kernel.kernel_ir import PRED, Kernel, Op, Region, Value
from wavedsl.ir.target import Target

NEAR = 24
"""Operations between two readers of a comparison from which on it is computed again."""

CROWD = 16
"""Conditions of one region below which there is room for all of them."""


def sink_conditions(kernel: Kernel, target: Target | None = None) -> None:
    """Move per-lane comparisons, and what joins them, before their readers in every region that has a crowd of them.

    Only where conditions are lane masks: the assembler of PTX allocates registers itself.
    """
    if target is None or not target.scalar_registers:
        return
    fresh = max((r.id for op in kernel.body.walk() for r in op.results), default=0) + 1
    fresh = max(fresh, 1 + max((a.id for op in kernel.body.walk() for x in op.regions for a in x.args), default=0))
    for region in list(kernel.body.regions()):
        fresh = _sink(region, fresh)


def _movable(op: Op) -> bool:
    return op.row.pure and bool(op.results) and op.results[0].type is PRED and not op.results[0].uniform


def _sink(region: Region, fresh: int) -> int:
    """Sink the conditions of one region; copies of them get ids from `fresh` on. The next free id."""
    if sum(_movable(op) for op in region.ops) < CROWD:
        return fresh
    readers, inner = _readers(region)
    before: dict[int, list[Op]] = {}
    """Per place the ops that have sunk to it, last first."""
    for i in range(len(region.ops) - 1, -1, -1):
        op = region.ops[i]
        if not _movable(op) or op.results[0] in inner:
            continue
        v = op.results[0]
        places = sorted(set(readers.get(v, ())))
        if not places:
            continue
        groups = _neighbours(places)
        if len(groups) > 1 and op.name not in ("cmp", "fcmp"):
            groups = [places]
        region.ops[i] = None  # type: ignore[call-overload]
        for k, group in enumerate(groups):
            made = op
            if k:
                made = Op(op.name, op.args, dict(op.attrs), op.loc)
                copy = Value(fresh, v.type, v.uniform, made)
                fresh += 1
                made.results = (copy,)
                for user in (x for p in group for x in (region.ops[p], *before.get(p, ()))):
                    if user is not None:
                        user.args = tuple(copy if a is v else a for a in user.args)
            at = group[0]
            before.setdefault(at, []).append(made)
            for a in op.args:
                readers[a] = [at if x == i else x for x in readers[a]] + ([at] if k else [])
    out: list[Op] = []
    for i, op in enumerate(region.ops):
        out += reversed(before.get(i, ()))
        if op is not None:
            out.append(op)
    region.ops[:] = out
    return fresh


def _readers(region: Region) -> tuple[dict[Value, list[int]], set[Value]]:
    """(value → places of the region's ops that read it, be it in their bodies; what bodies read)."""
    readers: dict[Value, list[int]] = {}
    inner: set[Value] = set()
    for i, op in enumerate(region.ops):
        for a in op.args:
            readers.setdefault(a, []).append(i)
        for body in op.regions:
            for x in body.walk():
                inner.update(x.args)
                for a in x.args:
                    readers.setdefault(a, []).append(i)
    return readers, inner


def _neighbours(places: Sequence[int]) -> list[list[int]]:
    """Places in order, cut where the next is more than `NEAR` away."""
    groups: list[list[int]] = []
    for p in places:
        if groups and p - groups[-1][-1] <= NEAR:
            groups[-1].append(p)
        else:
            groups.append([p])
    return groups
