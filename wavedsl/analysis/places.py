"""How often the regions of a kernel's IR run, over the whole grid, before anything runs.

In: a kernel, the values of its hidden parameters, its grid. Out: per region a `Place`, a set of executions; what
uniform integers are in each of them; which branches they take.

The one idea: a place has a row for each execution that differs from others in a number that matters, so ranges that
depend on the workgroup's tile, or on a loop around and what it carries, are counted exactly and all at once, in NumPy.
Rows are made of workgroups only where the bounds of some loop depend on them, and of a loop's trips as long as there
are few enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Value

Array = Any
FOLLOWED = 4096
"""Most workgroups that are told apart; of a larger grid as many are taken, evenly, and stand for all."""
ROWS = 1 << 16
"""Most rows of a place: the trips of a longer loop are not told apart."""


class Place:
    """Executions of a region by one wave of each workgroup. `weight`: how many each row stands for, one number or
    [rows]. `known`: values by id, one number or [rows]. `group`: number of the row's workgroup among those that are
    told apart. `most`: how often one wave gets here at most."""

    def __init__(self, rows: int, weight: Any, known: dict[int, Any], group: Array | None = None, most: int = 1):
        self.rows, self.weight, self.known, self.group, self.most = rows, weight, known, group, most
        self.memo: dict[int, Any] = {}
        self._load: Array | None = None

    @property
    def count(self) -> Any:
        """Executions in all."""
        return self.where(None)

    def where(self, mask: Any) -> Any:
        """Executions whose row is in `mask` (None: all)."""
        if mask is None or mask is True:
            return self.weight * self.rows if np.ndim(self.weight) == 0 else self.weight.sum().item()
        if mask is False:
            return 0
        return (self.weight * mask).sum().item()

    def load(self, groups: int) -> Array:
        """Executions by workgroup [groups], of those that are told apart."""
        assert self.group is not None, "workgroups are not told apart"
        if self._load is None:
            weight = np.broadcast_to(np.asarray(self.weight, np.float64), (self.rows,))
            self._load = np.bincount(self.group, weight, groups)
        return self._load

    def taken(self, rows: Array, weight: Any = None, most: int = 1) -> Place:
        """These rows (numbers, also repeated), with other weights or their own."""
        known = {i: x if np.ndim(x) == 0 else x[rows] for i, x in self.known.items()}
        if weight is None:
            weight = self.weight if np.ndim(self.weight) == 0 else self.weight[rows]
        group = None if self.group is None else self.group[rows]
        return Place(len(rows), weight, known, group, self.most * most)

    def repeated(self, trips: Any, most: int) -> Place:
        """The same rows so many times each, without telling the times apart."""
        return Place(self.rows, self.weight * trips, self.known, self.group, self.most * most)


class Executions:
    """Follows one wave (`wave` None: one that stands for all) of each workgroup through a kernel."""

    def __init__(self, kernel: Kernel, hidden: Mapping[int, int], grid: tuple[int, ...], wave: int | None = None):
        self.kernel, self.hidden, self.wave = kernel, hidden, wave
        self.grid = (*grid, 1, 1, 1)[:3]
        notes = kernel.notes.get("lowering")
        self.trips = {x.label: x.trips for x in (notes.loops if notes else ())}
        self.carried = _carried(kernel)
        self.axes = _axes(kernel, self.carried)
        self.groups: Array | None = None
        """Coordinates [3, groups] of the workgroups that are told apart; None where they all do the same."""
        if self.axes and prod(self.grid):
            sizes = [n if axis in self.axes else 1 for axis, n in enumerate(self.grid)]
            numbers = np.arange(prod(sizes))
            if len(numbers) > FOLLOWED:
                numbers = np.linspace(0, len(numbers) - 1, FOLLOWED).round().astype(np.int64)
            x, rest = numbers % sizes[0], numbers // sizes[0]
            self.groups = np.stack([x, rest % sizes[1], rest // sizes[1]])

    def start(self) -> Place:
        """The kernel's body."""
        total = prod(self.grid)
        if self.groups is None:
            return Place(1, total, {})
        count = self.groups.shape[1]
        return Place(count, total // count if total % count == 0 else total / count, {}, np.arange(count))

    def loop(self, op: Op, place: Place) -> tuple[Place, int, int]:
        """(the executions of a loop's body, most trips of one execution, the counter's step)."""
        lo, hi, step = (self.value(v, place) for v in op.args[:3])
        if lo is None or hi is None or np.ndim(step) or not step:
            trips = self.trips.get(op.attrs.get("label", "")) or 1
            return place.repeated(trips, trips), trips, 1
        trips = np.maximum(0, -((lo - hi) // step))
        most = int(np.max(trips, initial=0))
        rows = int(np.sum(np.broadcast_to(trips, (place.rows,))))
        if rows > ROWS:
            return place.repeated(trips, most), most, int(step)
        each = np.broadcast_to(trips, (place.rows,))
        numbers = np.repeat(np.arange(place.rows), each)
        inside = place.taken(numbers, most=most)
        first = np.repeat(np.cumsum(each) - each, each)
        start = lo if np.ndim(lo) == 0 else lo[numbers]
        trip = np.arange(rows) - first
        counter, *others = op.regions[0].args
        inside.known[counter.id] = start + trip * step
        for arg in others:
            if arg.id in self.carried:
                begin, more = (self.value(v, place) for v in self.carried[arg.id])
                if begin is not None and more is not None:
                    begin, more = (x if np.ndim(x) == 0 else x[numbers] for x in (begin, more))
                    inside.known[arg.id] = begin + trip * more
        return inside, most, int(step)

    def branch(self, op: Op, place: Place) -> Iterator[tuple[Any, Place]]:
        """(region, its executions) of each side of an `if` that is taken; of both where nothing tells which."""
        condition = self.value(op.args[0], place)
        if condition is None and op.attrs.get("usual"):
            condition = True
        few = op.attrs.get("one_of") if condition is None else None
        for side, region in zip((True, False), op.regions):
            if few and side:
                yield region, place.repeated(1 / few, 1)
            elif condition is None or (np.ndim(condition) == 0 and bool(condition) is side):
                yield region, place
            elif np.ndim(condition):
                rows = np.flatnonzero(condition == side)
                if len(rows):
                    yield region, place.taken(rows)

    def passed(self, guard: Value, place: Place) -> Any:
        """Executions that a uniform guard lets through, where it can be told; else all."""
        value = self.value(guard, place)
        if value is None:
            return place.count
        return place.where(bool(value) if np.ndim(value) == 0 else value != 0)

    def value(self, v: Value, place: Place) -> Any:
        """A uniform integer or predicate, one number or [rows], as far as constants, hidden extents, workgroups and
        loop counters tell it."""
        if v.id in place.known:
            return place.known[v.id]
        if v.const is not None:
            return v.const
        if v.id not in place.memo:
            place.memo[v.id] = self._value(v, place)
        return place.memo[v.id]

    def _value(self, v: Value, place: Place) -> Any:
        op = v.op
        if op is None:
            return None
        if op.name == "wave":
            return self.wave
        if op.name == "wgcount":
            return self.grid[op.attrs["axis"]]
        if op.name == "wgid":
            axis = op.attrs["axis"]
            if self.groups is None or axis not in self.axes:
                return 0 if self.grid[axis] == 1 else None
            return self.groups[axis][place.group]
        if op.name == "elect":
            return True
        if op.name == "param":
            return self.hidden.get(op.attrs["index"])
        rule = _RULES.get(op.name)
        if rule is None:
            return None
        args = [self.value(a, place) for a in op.args]
        if any(a is None for a in args):
            return None
        with np.errstate(all="ignore"):
            return rule(op, *args)


def _carried(kernel: Kernel) -> dict[int, tuple[Value, Value]]:
    """Integer that a loop carries → (what it begins with, what each trip adds), of those to which a trip adds what no
    trip changes: strength reduction makes these of multiples of the counter."""
    found: dict[int, tuple[Value, Value]] = {}
    for op in kernel.body.walk():
        if op.name != "for":
            continue
        body = op.regions[0]
        for arg, begin, end in zip(body.args[1:], op.args[3:], body.ops[-1].args):
            counts = arg.type.kind in ("i32", "i64") and arg.type.n == 1
            if counts and end.op is not None and end.op.name == "add" and arg in end.op.args:
                one, other = end.op.args
                found[arg.id] = begin, other if one is arg else one
    return found


def _axes(kernel: Kernel, carried: Mapping[int, tuple[Value, Value]]) -> frozenset[int]:
    """Axes of the grid on which the bounds of some loop depend."""
    found: set[int] = set()
    seen: set[int] = set()
    owners = {op.regions[0].args[0].id: op for op in kernel.body.walk() if op.name == "for"}
    todo = [v for op in owners.values() for v in op.args[:3]]
    while todo:
        v = todo.pop()
        if v.id in seen:
            continue
        seen.add(v.id)
        if v.op is None:
            todo += owners[v.id].args[:3] if v.id in owners else carried.get(v.id, ())
        elif v.op.name == "wgid":
            found.add(v.op.attrs["axis"])
        elif v.op.name in _RULES:
            todo += v.op.args
    return frozenset(found)


def _compare(op: Op, a: Any, b: Any) -> Any:
    how = op.attrs["how"].removeprefix("s").removeprefix("u")
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[how]


def _bits(op: Op, a: Any) -> Any:
    width = op.attrs["width"]
    low = (a >> op.attrs["start"]) & ((1 << width) - 1)
    return low - ((low >> (width - 1)) << width) if op.attrs["signed"] else low


def _high(a: Any, b: Any) -> Any:
    """High 32 bits of a product of two numbers of 32 bits."""
    x, y = (np.asarray(v & 0xFFFFFFFF).astype(np.uint64) for v in (a, b))
    return ((x * y) >> np.uint64(32)).astype(np.int64)[()]


_RULES: dict[str, Callable[..., Any]] = {
    "add": lambda op, a, b: a + b,
    "sub": lambda op, a, b: a - b,
    "mul": lambda op, a, b: a * b,
    "shl": lambda op, a, b: a << b,
    "lshr": lambda op, a, b: a >> b,
    "ashr": lambda op, a, b: a >> b,
    "and": lambda op, a, b: a & b,
    "or": lambda op, a, b: a | b,
    "xor": lambda op, a, b: a ^ b,
    "bfe": lambda op, a: _bits(op, a),
    "mulhi_u": lambda op, a, b: _high(a, b),
    "readfirst": lambda op, a: a,
    "any_lane": lambda op, a: a,
    "min_s": lambda op, a, b: np.minimum(a, b),
    "max_s": lambda op, a, b: np.maximum(a, b),
    "min_u": lambda op, a, b: np.minimum(a, b),
    "max_u": lambda op, a, b: np.maximum(a, b),
    "udiv": lambda op, a, b: np.floor_divide(a, b),
    "urem": lambda op, a, b: np.remainder(a, b),
    "zext": lambda op, a: a,
    "sext": lambda op, a: a,
    "trunc": lambda op, a: a,
    "pand": lambda op, a, b: np.logical_and(a, b),
    "por": lambda op, a, b: np.logical_or(a, b),
    "pxor": lambda op, a, b: np.logical_xor(a, b),
    "pnot": lambda op, a: np.logical_not(a),
    "select": lambda op, c, a, b: np.where(c, a, b) if np.ndim(c) else a if c else b,
    "cmp": _compare,
}
"""Integer ops on numbers without wrapping: extents and trip counts are far from 2**31."""
