"""Equal loads of global memory become one.

In: a kernel. Out: a new one in which what an equal load has brought takes a load's place; the kernel itself where there
is none. `wd.read(w[1])` stands wherever it is needed, in lines of a stencil and in functions that are called twice; ops
without effects are numbered while they are built, but loads are not, because memory changes.

(EQUAL) Two loads are equal if array, address, width, mask and guard are. One with a cache hint is what the user says,
and stays.
(SAME MEMORY) Nothing between two loads may change what they find: no store or atomic of their array, which no other one
overlaps (checked at launch); of an array that the kernel writes no atomic at all, and no place where waves wait for
each other or for copies, since others may have written it before; no fence among workgroups.
(IN SCOPE) The first one is in the same region or in one around, and no loop begins between but for single numbers that
all lanes have: other values would be held for as long as it runs. One that ends by itself takes nothing from outside:
it may wait for what others write.
(ROOM) No fewer waves are resident for what is held longer. Else only those loads become one between which there is no
loop or branch, nor anything that waits; or none. Where roles deal registers, only those from the start: what all roles
hold would count for each.

What a loop only carries to its next trip is loaded where the last of the equal loads stood: in front of it registers of
this trip's may not be free yet, and each would be moved, behind a wait. What loops then carry twice is carried once.
INVARIANT: loads that remain keep their order and place; nothing is loaded where it was not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import BUFFER, I64, Kernel, Op, Param, Region, Value
from wavedsl.ir.kernel.kernel_passes import (
    copy_op,
    copy_region,
    fresh_kernel,
    rebuild,
    remove_carried,
    remove_dead_code,
)
from wavedsl.ir.kernel.pressure import pressure
from wavedsl.ir.target import Target, wave_room

LOADS = frozenset({"load.global", "load.far"})
ALL, WRITTEN = "*", "*written"
"""What changes every array, and every one that the kernel writes."""
Known = dict[tuple[Any, ...], Value]
"""Loads by what is equal of them, their array last."""


def merge_loads(kernel: Kernel, target: Target | None = None) -> Kernel:
    """The kernel with one load in place of all that equal it."""
    if not _alike(kernel):
        return kernel
    dealt = any(op.name == "registers" for op in kernel.body.walk())
    for near in (True,) if dealt else (False, True):
        found, merged = kernel, _EqualLoads(kernel, near).merged
        while merged:  # addresses may be loaded, too
            found = _without(found, merged, target)
            merged = _EqualLoads(found, near).merged
        if found is kernel or target is None or _fits(kernel, found, target):
            return found
    return kernel


def _alike(kernel: Kernel) -> bool:
    """Whether there are two equal loads anywhere."""
    loads = [_equal(op) for op in kernel.body.walk() if op.name in LOADS]
    return len(set(loads)) < len(loads)


def _equal(op: Op) -> tuple[Any, ...]:
    """What is the same of equal loads."""
    return (op.name, op.args, tuple(sorted(op.attrs.items())), op.results[0].type)


def _fits(before: Kernel, after: Kernel, target: Target) -> bool:
    """Whether as many waves as before are resident where values together are more than they were."""
    held, now = pressure(before, target), pressure(after, target)
    if now <= held:
        return True
    if now > wave_room(target, before.waves):
        return False
    shared, threads = before.shared_bytes, before.block
    return target.resident_waves(now, shared, threads) >= target.resident_waves(held, shared, threads)


def _without(kernel: Kernel, merged: dict[Value, Value], target: Target | None) -> Kernel:
    """A kernel built again without loads, and without what its loops carry twice then. `merged`: result → that of the
    load that takes its place."""
    fresh = fresh_kernel(kernel)
    b = Builder(fresh, target)
    env: dict[Value, Value] = {}
    later: dict[Value, list[Value]] = {}
    for v, kept in merged.items():
        later.setdefault(kept, []).append(v)

    def hook(op: Op) -> bool:
        if op.name not in LOADS:
            return False
        result = op.results[0]
        if result in merged:
            return True
        if result not in later:
            return False
        b.set_loc(op.loc)
        copy_op(b, op, env)
        env.update(dict.fromkeys(later[result], env[result]))
        return True

    copy_region(b, kernel.body, env, hook)
    fresh = b.finish()
    remove_dead_code(fresh)
    return _carried_once(fresh, target)


def _carried_once(kernel: Kernel, target: Target | None) -> Kernel:
    """The kernel with one of all values that a loop carries and that begin and go on as the same."""
    loops = [op for op in kernel.body.walk() if op.name == "for"]
    changed = False
    while True:
        same: dict[Value, Value] = {}
        for loop in loops:
            body = loop.regions[0]
            first: dict[tuple[Value, Value], int] = {}
            kept = [first.setdefault(both, i) for i, both in enumerate(zip(loop.args[3:], body.ops[-1].args))]
            for i, other in enumerate(kept):
                if other != i:
                    same[body.args[1 + i]], same[loop.results[i]] = body.args[1 + other], loop.results[other]
            if len(set(kept)) < len(kept):
                remove_carried(loop, [other == i for i, other in enumerate(kept)])
        if not same:
            return rebuild(kernel, target) if changed else kernel
        changed = True
        for op in kernel.body.walk():
            op.args = tuple(same.get(a, a) for a in op.args)


class _EqualLoads:
    """The loads of a kernel in whose place others are (`merged`). `near`: only those with nothing between that meets
    or has regions."""

    def __init__(self, kernel: Kernel, near: bool):
        self.kernel, self.near = kernel, near
        self.merged: dict[Value, Value] = {}
        self.written = {_array(p) for p in kernel.params if p.access != "read"}
        self.held: set[Value] = set()
        """Loads that others have taken already: they stay where they are."""
        self.stands: dict[Value, list[Value]] = {}
        """Load → itself and those that have moved to it."""
        self._arrays: dict[Value, str] = {}
        self._walk(kernel.body, {})
        for v, kept in reversed(self.merged.items()):  # what was taken may itself have moved to a later one
            self.merged[v] = self.merged.get(kept, kept)

    def _walk(self, region: Region, known: Known) -> None:
        loop = region.parent is not None and region.parent.name == "for"
        own: set[Value] = set()
        read: set[Value] = set()
        """What something in a loop reads so far, and which loads are of this region."""
        for op in region.ops:
            if loop and op.name != "yield":
                read.update(op.args)
            if op.name in LOADS:
                result = op.results[0]
                array = self._array_of(op.args[0])
                own.add(result)
                if "cache" in op.attrs or array == ALL:
                    continue
                key = (*_equal(op), array)
                first = known.setdefault(key, result)
                if first is result:
                    continue
                moved = self.stands.get(first, [first])
                if loop and first in own and read.isdisjoint(moved) and first not in self.held:
                    self.merged[first] = known[key] = result  # only carried, as far as this
                    self.stands[result] = [*moved, result]
                else:
                    self.merged[result] = first
                    self.held.add(first)
            elif op.regions:
                self._inside(op, known, read if loop else None)
            elif not op.row.pure:
                self._forget(known, self._changed(op))
                if self.near and "sync" in op.row.effects:
                    known.clear()

    def _inside(self, op: Op, known: Known, read: set[Value] | None) -> None:
        """A loop or branch, with what is known around it."""
        within = [x for body in op.regions for x in body.walk()]
        if read is not None:
            read.update(a for x in within for a in x.args)
        changed = {array for x in within for array in self._changed(x)}
        if self.near:
            known.clear()
        elif op.name == "for":
            for key in [k for k, v in known.items() if not _single(v)]:
                del known[key]
        inner: Known = {} if op.attrs.get("again") else dict(known)
        if op.name == "for":
            self._forget(inner, changed)
        for body in op.regions:
            self._walk(body, dict(inner))
        self._forget(known, changed)

    def _forget(self, known: Known, changed: Iterable[str]) -> None:
        for array in changed:
            for key in [k for k in known if array in (ALL, k[-1]) or (array == WRITTEN and k[-1] in self.written)]:
                del known[key]

    def _changed(self, op: Op) -> tuple[str, ...]:
        """The arrays in which an op may have another load find something else."""
        effects = op.row.effects
        if op.name == "fence" and "scope" not in op.attrs:
            return (ALL,)
        if "sync" in effects or effects >= {"read global", "write global"}:
            return (WRITTEN,)
        if "write global" in effects:
            array = self._array_of(op.args[0])
            return (WRITTEN,) if array == ALL else (array,)
        return ()

    def _array_of(self, base: Value) -> str:
        """The one array that an address lies in; `ALL` where nobody knows."""
        found = self._arrays.get(base)
        if found is None:
            found = self._arrays[base] = self._one_of(base)
        return found

    def _one_of(self, base: Value) -> str:
        names: set[str] = set()
        seen = {base}
        work = [base]
        while work:
            op = work.pop().op
            if op is None or op.regions or not op.row.pure:
                return ALL  # carried, or loaded itself
            if op.name == "param":
                p = self.kernel.params[op.attrs["index"]]
                if p.kind != "scalar":
                    names.add(_array(p))
            more = {a for a in op.args if a.type in (I64, BUFFER)} - seen
            seen |= more
            work += more
        return names.pop() if len(names) == 1 else ALL


def _single(v: Value) -> bool:
    """Whether a load is of one number that all lanes have."""
    return v.type.words <= 2 and v.op is not None and all(a.uniform for a in v.op.args)


def _array(p: Param) -> str:
    return p.name if p.map is None else p.map.array


__all__ = ["merge_loads"]
