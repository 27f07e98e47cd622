"""The shape of a cluster: which of its workgroups share an operand tile, and which wait for one another.

A cluster lies along the first two grid axes, x workgroups by y, whose tiles are neighbours; rank r is workgroup
(r mod x, r div x) of it. A read that does not depend on the first axis is the same in a row, the x workgroups with the
same r div x; one that does not depend on the second is the same in a column; one that depends on neither, in all.
`axes` names those along which a tile is the same: (0,), (1,) or (0, 1). Each of the workgroups that share a tile brings
its part of it to all of them.

What follows for a slot: the workgroups that write into mine are those of my row, where some tile is shared along it,
and those of my column, each once although this one is in both. Sharing is mutual, so they are also those into whose
slots I write, and each of them must be told that I have read mine (`partners`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.quick_dataclass import dataclass

Axes = tuple[int, ...]
"""Axes of a cluster along which a tile is the same."""
ALONE: Axes = ()
BOTH: Axes = (0, 1)


@dataclass(frozen=True)
class ClusterShape:
    """`sizes`: workgroups along each of the first two grid axes."""

    sizes: tuple[int, int] = (1, 1)
    joined: bool = False
    """Whether the first axis counts the parts of a tile, which the cluster adds, and the second tiles along the first
    grid axis (`joined_parts`)."""

    @property
    def count(self) -> int:
        """Workgroups of the cluster."""
        return prod(self.sizes)

    @property
    def long(self) -> Axes:
        """The axes along which it has more than one."""
        return tuple(axis for axis, n in enumerate(self.sizes) if n > 1)

    def along(self, axes: Axes) -> int:
        """Workgroups that share a tile which is the same along `axes`."""
        return prod(self.sizes[axis] for axis in axes)

    def describe(self) -> str:
        """A few words for reports."""
        if self.joined:
            parts, tiles = self.sizes
            of = "a tile" if tiles == 1 else f"each of {tiles} tiles side by side along the first grid axis"
            return f"the {parts} parts of {of}, added in shared memory"
        if len(self.long) > 1:
            return f"{self.sizes[0]} x {self.sizes[1]} workgroups along the first two grid axes"
        return f"{self.count} workgroups along the {('first', 'second')[max(self.long, default=0)]} grid axis"

    def place(self, b: Builder) -> tuple[Any, Any]:
        """This workgroup's number along each axis."""
        if self.count == 1:
            return 0, 0
        rank = b.cluster_rank()
        if len(self.long) == 1:
            return (rank, 0) if self.sizes[0] > 1 else (0, rank)
        return b.urem(rank, self.sizes[0]), b.udiv(rank, self.sizes[0])

    def share(self, b: Builder, axes: Axes) -> Any:
        """This workgroup's number among those that share a tile along `axes`."""
        if axes == self.long:
            return b.cluster_rank()
        return self.place(b)[axes[0]] if axes else 0

    def receivers(self, b: Builder, axes: Axes) -> Any:
        """The ranks of those that share a tile along `axes`, a bit for each; 0 for this workgroup alone."""
        if self.along(axes) == 1:
            return 0
        if len(axes) == len(self.long):
            return (1 << self.count) - 1
        column, row = self.place(b)
        x, y = self.sizes
        if axes == (0,):
            return b.shl(b.i32((1 << x) - 1), scaled(b, row, x))
        return b.shl(b.i32(sum(1 << x * j for j in range(y))), column)

    def partners(self, kinds: Iterable[Axes]) -> int:
        """Workgroups, this one included, that write into a slot whose tiles are the same along these kinds of axes."""
        axes = self._kinds(kinds)
        if BOTH in axes:
            return self.count
        return sum(self.along(kind) - 1 for kind in axes) + 1

    def partner(self, b: Builder, number: Any, kinds: Iterable[Axes]) -> Any:
        """The rank of one of them by its `number` from 0 on: those of the row, then the others of the column."""
        axes = self._kinds(kinds)
        if BOTH in axes or len(self.long) < 2:
            return number
        column, row = self.place(b)
        x = self.sizes[0]
        in_row = total(b, [number, scaled(b, row, x)])
        if axes == {(0,)}:
            return in_row
        if axes == {(1,)}:
            return total(b, [column, scaled(b, number, x)])
        other = b.sub(number, x)  # among those of the column without this one
        other = b.add(other, b.select(b.cmp("sge", other, row), 1, 0))
        return b.select(b.cmp("slt", number, x), in_row, total(b, [column, scaled(b, other, x)]))

    def _kinds(self, kinds: Iterable[Axes]) -> set[Axes]:
        return {kind for kind in kinds if self.along(kind) > 1}


ONE = ClusterShape()
"""A workgroup alone."""
