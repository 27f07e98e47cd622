"""Which accesses of an array the waves of a workgroup must have done before another one: where fences go.

In: reads, writes and atomics as they are traced, with what their indices mean. Out: the region in which a fence of the
workgroup's scope is needed in front of an access, or None. A wave sees what it did itself in the order of the program;
other waves' accesses of the same elements need a fence between, where one of the two writes. Nobody knows here which
wave has which element, so two accesses need one unless

* they are a read and a later write, or two writes, of the same place, which the same wave does, or
* no element can be in both (`apart`): halves of an array, even and odd rows.

A fence counts for what it certainly stands behind: one in a loop or branch orders nothing for those who pass by.
Between the trips of a loop stands one, at its end, if accesses at the end of a trip and at the beginning of another
need it; two trips of a tiled dimension have no index along it in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import sympy
from wavedsl.ir.dataflow.graph import Mapping as ResolvedMapping
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.dataflow.same_values import meaning
from wavedsl.ir.quick_dataclass import dataclass

READ, WRITE, ATOMIC = "read", "write", "atomic"
NUMBER = "number"
"""First word of symbols that stand for traced numbers."""


@dataclass(frozen=True)
class Coordinate:
    """`rest` plus `factors[d]` times an index along each dimension d, which is in [0, `counts[d]`)."""

    rest: Any
    factors: dict[Any, int] = field(default_factory=dict)
    counts: dict[Any, Any] = field(default_factory=dict)

    def plus(self, other: Coordinate, sign: int = 1) -> Coordinate | None:
        """The sum, or difference."""
        if set(self.factors) & set(other.factors):
            return None
        more = {d: sign * f for d, f in other.factors.items()}
        return Coordinate(self.rest + sign * other.rest, self.factors | more, self.counts | other.counts)

    def times(self, factor: int) -> Coordinate:
        """A multiple."""
        return Coordinate(self.rest * factor, {d: f * factor for d, f in self.factors.items()}, self.counts)

    def ends(self) -> tuple[Any, Any]:
        """The least and the greatest element."""
        spans = [f * (self.counts[d] - 1) for d, f in self.factors.items()]
        low = sum(s for s, f in zip(spans, self.factors.values()) if f < 0)
        high = sum(s for s, f in zip(spans, self.factors.values()) if f > 0)
        return self.rest + low, self.rest + high


def _disjoint(x: Coordinate, y: Coordinate) -> bool:
    """Whether no value of one is a value of the other."""
    step = math.gcd(*x.factors.values(), *y.factors.values())
    distance = sympy.expand(x.rest - y.rest)
    if distance.is_Integer and (int(distance) % step if step else distance != 0):
        return True
    (first, last), (begin, end) = x.ends(), y.ends()
    return bool(sympy.expand(begin - last).is_positive or sympy.expand(first - end).is_positive)


class Place:
    """The elements of an access. Equal for accesses of the same ones: slices make the nodes of their indices anew each
    time, so these are compared by what they are made of."""

    def __init__(self, dims: Sequence[Any], mapping: ResolvedMapping | None, indices: Sequence[Node], fixed: set[Any]):
        """`dims` of the array; `fixed`: dimensions that do not move within a workgroup."""
        self.dims, self.mapping, self.indices, self.fixed = dims, mapping, indices, fixed
        self.meaning = (mapping, tuple(map(meaning, indices)))
        self._found: list[Coordinate | None] | None = None
        self._elements: tuple[int | None, ...] = ()
        """Along each dimension the number of the one element that it is, where that is known (`coordinates`)."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.meaning == other.meaning

    __hash__ = None  # type: ignore[assignment]

    def apart(self, other: Place) -> bool:
        """Whether no element is in both."""
        for p in (self, other):
            if p._found is None:
                p._found = p._known()
        # Single elements of small matrices, n^4 pairs of them, are told apart by their numbers.
        for one, two in zip(self._elements, other._elements):
            if one is not None and two is not None and one != two:
                return True
        return any(x is not None and y is not None and _disjoint(x, y) for x, y in self._coordinates(other))

    def apart_in_trips(self, other: Place, dim: Any) -> bool:
        """Whether no element is in both in different trips of a loop over `dim` (None: of another loop), where numbers
        may have other values.
        """
        for x, y in self._coordinates(other):
            if x is None or y is None or any(s.name.startswith(NUMBER) for s in (x.rest - y.rest).free_symbols):
                continue
            if _disjoint(x, y) or (list(x.factors) == [dim] and x.factors == y.factors and x.rest == y.rest):
                return True
        return False

    def _known(self) -> list[Coordinate | None]:
        """What is known of the index along each dimension of the array."""
        found = [self._coordinate(i) for i in range(len(self.dims))]
        rests = [c.rest if c is not None and not c.factors else None for c in found]
        self._elements = tuple(int(r) if r is not None and r.is_Integer else None for r in rests)
        return found

    @property
    def coordinates(self) -> list[Coordinate | None]:
        """The same, looked at once."""
        if self._found is None:
            self._found = self._known()
        return self._found

    def _coordinates(self, other: Place) -> Iterator[tuple[Coordinate | None, Coordinate | None]]:
        return zip(self.coordinates, other.coordinates)

    def _coordinate(self, axis: int) -> Coordinate | None:
        c = self.dims[axis] if self.mapping is None else self.mapping.coords[axis]
        if isinstance(c, int):
            return self._of_node(self.indices[c])
        moving = [d for d in (self.dims if self.mapping is None else self.mapping.dims) if d not in self.fixed]
        if c in moving:
            return Coordinate(sympy.Integer(0), {c: 1}, {c: c})
        if any(not d.is_Symbol and d.free_symbols & c.free_symbols for d in moving):
            return None
        c = sympy.expand(c)
        factors = {d: c.coeff(d) for d in moving if c.has(d)}
        rest = sympy.expand(c - sum(f * d for d, f in factors.items()))
        if not all(f.is_Integer for f in factors.values()) or any(rest.has(d) for d in moving):
            return None
        rest = rest.xreplace({d: sympy.Symbol(f"index {d}", integer=True) for d in self.fixed})
        return Coordinate(rest, {d: int(f) for d, f in factors.items()}, {d: d for d in factors})

    def _of_node(self, n: Node) -> Coordinate | None:
        """What is known of a traced index."""
        if n.op == "constant" and isinstance(n.attrs["value"], int):
            return Coordinate(sympy.Integer(n.attrs["value"]))
        if n.op == "size":
            return Coordinate(n.attrs["expr"])
        if not n.dims:
            return Coordinate(sympy.Symbol(f"{NUMBER} {meaning(n)}", integer=True))
        if n.op == "index":
            d = n.attrs["dim"]
            return Coordinate(sympy.Integer(0), {d: 1}, {d: d})
        if n.op == "where":
            return self._below(n)
        if n.op in ("add", "sub", "mul"):
            x, y = map(self._of_node, n.inputs)
            if x is None or y is None:
                return None
            if n.op != "mul":
                return x.plus(y, 1 if n.op == "add" else -1)
            for one, other in ((x, y), (y, x)):
                if not one.factors and one.rest.is_Integer:
                    return other.times(int(one.rest))
        return None

    def _below(self, n: Node) -> Coordinate | None:
        """`where(index(D) < count, x, -1)`: x as far as the count goes."""
        condition, inside, outside = n.inputs
        found = self._of_node(inside)
        if found is None or outside.op != "constant" or not outside.attrs["value"] < 0:
            return None
        if condition.op == "lt" and condition.inputs[0].op == "index":
            d, count = condition.inputs[0].attrs["dim"], self._of_node(condition.inputs[1])
            if d in found.counts and count is not None and not count.factors:
                return Coordinate(found.rest, found.factors, found.counts | {d: count.rest})
        return found


@dataclass
class Access:
    """An access of an array. `region`: the innermost open one around it; `behind`: regions with a fence behind it.
    `home`: the region that it stands in, which is opened again where a loop's condition is traced behind its body."""

    kind: str
    name: str
    region: Region
    place: Place
    home: Region
    behind: list[Region] = field(default_factory=list)
    ended: bool = False
    """Whether it is in a loop or branch that has ended: its indices may have had other values there."""


class Order:
    """The accesses of a kernel that a fence may have to follow."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self.fenced: list[Region] = []
        """Regions in which a fence stands."""
        self.heads: list[tuple[Region, Access]] = []
        """Loops with accesses that no fence stands in front of within a trip."""

    def fence_before(self, kind: str, name: str, place: Place, regions: Sequence[Region]) -> Region | None:
        """The one of the open regions at whose end a fence is needed in front of an access; None: of none.

        Behind writes a fence stands where they do, in front of a loop that goes on with the array.
        """
        clashes = [a for a in self.accesses if a.name == name and _clash(a, kind, place, regions)]
        if not clashes:
            return None
        if any(a.kind == READ for a in clashes):
            return regions[-1]
        return next(r for r in reversed(regions) if any(r is a.region or r is a.home for a in clashes))

    def add(self, kind: str, name: str, place: Place, regions: Sequence[Region]) -> None:
        """An access is made in the innermost of the open regions."""
        region = regions[-1]
        for a in self.accesses:
            if a.name == name and a.kind == kind and a.region is region and not a.behind and a.place == place:
                return
        found = Access(kind, name, region, place, region)
        self.accesses.append(found)
        for r in reversed(regions):
            if any(r is x for x in self.fenced):
                break
            if _is_loop(r):
                self.heads.append((r, found))

    def fence(self, region: Region, regions: Sequence[Region]) -> None:
        """A fence stands at the end of `region`, one of the open regions."""
        self.fenced.append(region)
        self.accesses = [a for a in self.accesses if region is not a.region and region is not a.home]
        around = regions[: next(i for i, r in enumerate(regions) if r is region)]
        for a in self.accesses:
            if any(a.region is r for r in around):
                a.behind.append(region)

    def fence_between_trips(self, region: Region) -> bool:
        """Whether a loop, which is about to end, needs a fence at the end of each trip."""
        heads = [a for r, a in self.heads if r is region]
        last = [a for a in self.accesses if region is a.region or region is a.home]
        return any(a.name == b.name and _clash_in_trips(a, b, region.dim) for a in last for b in heads)

    def end(self, region: Region, around: Region) -> None:
        """A region ends; `around` is the one that goes on."""
        for a in self.accesses:
            if a.region is region:
                a.region, a.ended = around, True


def _clash(a: Access, kind: str, place: Place, regions: Sequence[Region]) -> bool:
    """Whether other waves must have done `a` before an access in the innermost of the open regions."""
    if a.kind == kind and kind in (READ, ATOMIC):
        return False
    if a.behind and any(r is x for r in a.behind for x in regions):
        return False
    if not a.ended and a.place.apart(place):
        return False
    return kind != WRITE or a.kind not in (READ, WRITE) or a.place != place


def _clash_in_trips(a: Access, b: Access, dim: Any) -> bool:
    """Whether other waves must have done `a` of a trip before `b` of a later one."""
    if a.kind == b.kind and a.kind in (READ, ATOMIC):
        return False
    if b.kind == WRITE and a.kind in (READ, WRITE) and a.place == b.place:
        return False
    return a.ended or b.ended or not a.place.apart_in_trips(b.place, dim)


def _is_loop(region: Region) -> bool:
    return region.dim is not None or bool(region.carries)
