"""Integers that a loop carries side by side and that are always equal become one.

In: a kernel. Out: the same kernel, built again without the copies; the kernel itself where there are none. Rings of the
same loop that have as many slots take them in step: their slots and parities start at the same numbers and go on by the
same steps, and each would have a register of its own for as long as the loop runs, in the copying and in the computing
role. Nobody has to know that when a ring is made: it is found here.

(EQUAL) Two integers are equal if they are the same value, pure ops of one kind on equal operands, results of one branch
whose yields are equal in both regions, or results of one loop whose carried values are. Two carried values of one loop
are equal if their first values are, and, taking all that are assumed to be equal for it, their next ones.
Every pair starts as equal and is parted as long as (EQUAL) does not hold of it.

INVARIANT: what remains assumed holds before the first trip and, if it holds before a trip, after it.
"""

from __future__ import annotations

from wavedsl.ir.kernel.build_core import PINNED
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Value
from wavedsl.ir.kernel.kernel_passes import rebuild, remove_carried
from wavedsl.ir.target import Target


def merge_carried(kernel: Kernel, target: Target | None = None) -> Kernel:
    """The kernel with one carried value in place of all that equal it."""
    loops = [op for op in kernel.body.walk() if op.name == "for"]
    classes = _Classes(loops)
    while classes.refine():
        pass
    merged: dict[Value, Value] = {}
    for loop in loops:
        body = loop.regions[0]
        first: dict[int, int] = {}
        keeps = []
        for i, carried in enumerate(body.args[1:]):
            kept = first.setdefault(classes.of[carried], i) if carried in classes.of else i
            keeps.append(kept == i)
            if kept != i:
                merged[carried] = body.args[1 + kept]
                merged[loop.results[i]] = loop.results[kept]
        if not all(keeps):
            remove_carried(loop, keeps)
    if not merged:
        return kernel
    for op in kernel.body.walk():
        op.args = tuple(merged.get(a, a) for a in op.args)
    return rebuild(kernel, target)


class _Classes:
    """Carried integers of loops by the class of those that are assumed to equal each other."""

    def __init__(self, loops: list[Op]):
        self.loops = loops
        self.of: dict[Value, int] = {}
        self.count = 0
        self.known: dict[tuple[Value, Value], bool] = {}
        for loop in loops:
            kinds: dict[object, int] = {}
            for carried in loop.regions[0].args[1:]:
                if carried.type.is_int and carried.type.n == 1:
                    key = carried.type, carried.uniform
                    if key not in kinds:
                        kinds[key] = self._new()
                    self.of[carried] = kinds[key]

    def _new(self) -> int:
        self.count += 1
        return self.count

    def refine(self) -> bool:
        """Part the values of which (EQUAL) does not hold; whether there were any."""
        changed = False
        self.known.clear()
        for loop in self.loops:
            body = loop.regions[0]
            groups: dict[int, list[int]] = {}
            for i, carried in enumerate(body.args[1:]):
                if carried in self.of:
                    groups.setdefault(self.of[carried], []).append(i)
            for group in groups.values():
                parts: list[list[int]] = []
                for i in group:
                    part = next((p for p in parts if self._equal_in(loop, p[0], i)), None)
                    if part is None:
                        parts.append([i])
                    else:
                        part.append(i)
                for part in parts[1:]:
                    changed = True
                    number = self._new()
                    for i in part:
                        self.of[body.args[1 + i]] = number
                if len(parts) > 1:
                    self.known.clear()
        return changed

    def _equal_in(self, loop: Op, i: int, j: int) -> bool:
        """Whether carried values number i and j have equal first and next values."""
        following = loop.regions[0].ops[-1].args
        return self.equal(loop.args[3 + i], loop.args[3 + j]) and self.equal(following[i], following[j])

    def equal(self, x: Value, y: Value) -> bool:
        if x is y:
            return True
        if x.type is not y.type or x.uniform != y.uniform:
            return False
        if x in self.of or y in self.of:
            return self.of.get(x, 0) == self.of.get(y, -1)
        if (x, y) not in self.known:
            self.known[x, y] = self._equal(x, y)
        return self.known[x, y]

    def _equal(self, x: Value, y: Value) -> bool:
        a, b = x.op, y.op
        if a is None or b is None or a.name != b.name:
            return False
        if a.regions:
            if a is not b:
                return False
            i, j = a.results.index(x), a.results.index(y)
            if a.name == "for":
                carried = a.regions[0].args
                return self.equal(carried[1 + i], carried[1 + j])
            return all(self.equal(r.ops[-1].args[i], r.ops[-1].args[j]) for r in a.regions)
        if a.name == "const":
            return bool(x.type.is_int and a.attrs == b.attrs)
        return (
            a.row.pure and a.name not in PINNED and a.attrs == b.attrs and len(a.args) == len(b.args)
            and all(map(self.equal, a.args, b.args))
        )  # fmt: skip


__all__ = ["merge_carried"]
