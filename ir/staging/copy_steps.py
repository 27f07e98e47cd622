"""The steps that bring the tile of a staged read to shared memory.

In: a read with its `Staged` plan. Out: its steps, those of a thread's first vector first. A vector is brought by a copy
that passes by the registers, or by a load and the store behind it; vectors of a block that is transposed in registers
are stored together, behind the last of their loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from math import ceil
from typing import Any

from wavedsl.ir.addresses.access import GlobalAccess, whole_buffer
from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.addresses.copy_tile import (
    CopyLanes,
    copy_access,
    copy_directly,
    row_turn,
    store_copied,
    store_transposed,
)
from wavedsl.ir.addresses.copy_ways import transposing_clocks
from wavedsl.ir.addresses.place_address import place_address
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.kernel.kernel_ir import Value, vector
from wavedsl.ir.layouts.shared_search import PlaceChoice
from wavedsl.ir.lower.lowering import Lowering, both, never
from wavedsl.ir.lower.prefetch import ask
from wavedsl.ir.lower.tile_views import located, tile_view
from wavedsl.ir.schedule.steps import Context, Env, Key, Step
from wavedsl.ir.staging.gathered_rows import RowCopy


def copy_steps(low: Lowering, n: Node) -> list[Step]:
    """The steps that copy the tile of a staged read."""
    copy = _RowsCopy(low, n) if n.id in low.reads.rows else _TileCopy(low, n)
    s = copy.s
    if s.direct is not None:
        return [copy.copy_by_lane(i) for i in range(s.count)]
    if s.asynchronous:
        return [*copy.numbers(), *(copy.copy_vector(i) for i in range(s.count))]
    steps: list[Step] = copy.numbers()
    for i in range(s.count):
        steps.append(copy.load(i))
        if s.deep == 1:
            steps.append(copy.store(i))
        elif i % s.deep == s.deep - 1:
            steps.append(copy.store_block(i - s.deep + 1))
    return steps


def coordinate_keys(low: Lowering, n: Node) -> tuple[Key, ...]:
    """Keys of the numbers that say where the tile of a read lies."""
    found = placement(low.graph, n)
    assert found is not None
    return tuple(dict.fromkeys(k for x in found.numbers() for k in low.keys(x)))


class _TileCopy:
    """The copy of one read's tile: a method per kind of step, for the `i`-th of a thread's vectors."""

    def __init__(self, low: Lowering, n: Node):
        self.low, self.n, self.b, self.s = low, n, low.b, low.reads.staged[n.id]
        self.buffer = low.room.buffers[n.id]
        self.elsize, self.size = self.s.info.elsize, self.s.vector * self.s.info.elsize
        self.cache_hint = n.attrs.get("cache")
        self.again = False
        """Whether vectors of other trips are the same bytes."""
        self.find_tile()

    def find_tile(self) -> None:
        """What says where the tile lies."""
        low, n = self.low, self.n
        _, self.extents, self.strides = tile_view(low, n)
        self.plans: Mapping[str, DimPlan] = low.plans
        self.unit = low.units(n)
        if self.unit is not None:
            self.plans = self.unit.plans
            self.extents, self.strides = self.unit.extents(low.b, self.extents), self.unit.strides(self.strides)
        self.placed_by = coordinate_keys(low, n)

    def numbers(self) -> list[Step]:
        """Steps that have to come before all copies."""
        return []

    def uses(self, i: int) -> tuple[Key, ...]:
        """Keys of what says where a vector is."""
        return self.placed_by

    def source(
        self, context: Context, i: int, parts: Mapping[str, Any], fixed: Mapping[str, int]
    ) -> tuple[Value, Any, Any, Value, Value | None]:
        """A vector in global memory: the array's buffer, bytes that the lane adds, bytes that all add, whether the
        vector is inside, whether the tile is there."""
        access, guard = self.access(context, parts, self.plans)
        return (access.buffer, *access.operands(fixed), guard)

    @cached_property
    def lanes(self) -> CopyLanes:
        """Made by the first step that emits, at its place."""
        return CopyLanes(self.b, self.s)

    def in_lines(self, step: Step) -> Step:
        """A load or copy of one vector per lane, with what it touches of cache lines: some lanes may have no vector,
        and the tile's rows may not fill their lines."""
        s, target = self.s, self.low.target
        c = s.info.contiguous()
        dim = s.info.names[c] if c is not None else ""
        row = s.extents.get(dim, target.line_bytes) * self.elsize
        lines = max(1.0, target.line_bytes / row)
        step.moved = ceil(self.size * target.wave_size * lines * s.units / (s.count * s.threads))
        step.again = int(lines) if dim and self.low.plans[dim].role == "loop" else 1
        return step

    def slot(self, context: Context) -> Any:
        return self.low.slot_bytes(self.n, context)

    def access(
        self, context: Context, parts: Mapping[str, Any], plans: Mapping[str, DimPlan]
    ) -> tuple[GlobalAccess, Value | None]:
        """The array as a vector's copy sees it, and whether its tile is there."""
        low = self.low
        position, inside, limits = located(low, self.n, context, low.base_at(context.iteration))
        if self.unit is not None:
            position = self.unit.position(self.b, position)
        access = copy_access(
            self.b, self.s, position, plans, low.target, self.lanes, parts, self.extents, self.strides, limits
        )
        return access, both(self.b, context.guard, inside)

    def ask_ahead(self, context: Context, i: int) -> None:
        """Have the vector of a later trip brought into the cache."""
        low = self.low
        parts, fixed, _ = self.lanes.coordinates(i)
        ask(low, self.n, context, low.plans, lambda then, plans: self.access(then, parts, plans), fixed, self.size)

    def copy_by_lane(self, i: int) -> Step:
        """A copy that lands lane by lane, where the wave's base says."""
        low, n, s = self.low, self.n, self.s

        def copy(context: Context) -> None:
            if never(context.guard):
                return
            position, inside, limits = located(low, n, context, low.base_at(context.iteration))
            if self.unit is not None:
                position = self.unit.position(self.b, position)
            copy_directly(
                self.b, s, position, self.plans, low.target, i, self.extents, self.strides, limits, self.slot(context),
                self.buffer, both(self.b, context.guard, inside), self.cache_hint,
            )  # fmt: skip

        resources, latency = low.memory_cost("copy.async", self.size)
        step = Step(f"copy {s.name}.{i}", "acopy", resources, latency, self.placed_by, (), copy, self.buffer, n.loc)
        step.sequence = "copies"
        return self.in_lines(step)

    def copy_vector(self, i: int) -> Step:
        """A copy that takes a vector wherever the thread says."""
        b, s = self.b, self.s

        def copy(context: Context) -> None:
            if never(context.guard):
                return
            parts, fixed, active = self.lanes.coordinates(i)
            buffer, voff, soff, mask, guard = self.source(context, i, parts, fixed)
            at = place_address(b, s.place, parts, fixed, self.lanes.by_bit)
            address = total(b, [at, s.offset, self.slot(context)])
            b.copy_async(
                buffer, voff, address, soff, bytes=self.size, buffer=self.buffer, mask=mask, guard=guard, split=False,
                near=self.again, cache=self.cache_hint, here=active,
            )  # fmt: skip
            self.ask_ahead(context, i)

        resources, latency = self.low.memory_cost("copy.async", self.size)
        return self.in_lines(
            Step(f"copy {s.name}.{i}", "acopy", resources, latency, self.uses(i), (), copy, self.buffer, self.n.loc)
        )

    def load(self, i: int) -> Step:
        """A vector from global memory to registers."""
        b, s, key = self.b, self.s, ("c", self.n.id, i)
        words = max(1, self.size // 4)

        def load(context: Context) -> None:
            if never(context.guard):
                context.env[key] = b.zero(vector(words))
                return
            parts, fixed, active = self.lanes.coordinates(i)
            buffer, voff, soff, mask, guard = self.source(context, i, parts, fixed)
            context.env[key] = b.load_global(
                buffer, voff, soff, bytes=self.size, mask=b.pand(mask, active), guard=guard, split=False,
                bounded=True, cache=self.cache_hint,
            )  # fmt: skip
            self.ask_ahead(context, i)

        resources, latency = self.low.memory_cost("load.global", self.size)
        step = Step(f"load {s.name}.{i}", "gload", resources, latency, self.uses(i), (key,), load, "", self.n.loc)
        step.words = words
        return self.in_lines(step)

    def store(self, i: int) -> Step:
        """A loaded vector to shared memory, piece by piece."""
        low, s, key = self.low, self.s, ("c", self.n.id, i)

        def put(context: Context) -> None:
            parts, fixed, active = self.lanes.coordinates(i)
            store_copied(self.b, s, self.lanes, parts, fixed, active, context.env[key], self.slot(context), self.buffer)

        pieces = s.vector // s.piece
        resources, latency = low.memory_cost("store.shared", max(1, self.size // pieces))
        resources = tuple((u, c * pieces) for u, c in resources)
        stored = s.cost.accesses[1].worst if isinstance(s.cost, PlaceChoice) and low.target.copy_linear else 0
        if pieces > 1 and stored:  # narrow stores keep LDS busy for less than the turn that each takes to issue
            counted = stored // s.count * low.partition.waves
            resources = tuple((u, c if u == "issue" else counted) for u, c in resources)
        step = Step(f"store {s.name}.{i}", "swrite", resources, latency, (key,), (), put, self.buffer, self.n.loc)
        step.shared_clocks = s.shared_clocks("write", s.count)
        return step

    def store_block(self, first: int) -> Step:
        """A block of loaded vectors to shared memory, transposed in registers."""
        low, s = self.low, self.s
        keys = tuple(("c", self.n.id, first + r) for r in range(s.deep))

        def put(context: Context) -> None:
            parts, fixed, _ = self.lanes.coordinates(first)
            rows = [context.env[k] for k in keys]
            store_transposed(self.b, s, self.lanes, parts, fixed, rows, self.slot(context), self.buffer)

        stores = s.vector * s.deep // s.piece
        resources, latency = low.memory_cost("store.shared", max(1, s.piece * self.elsize))
        valu = low.target.cost("valu")
        clocks = low.issue_clocks() * transposing_clocks(low.target, self.elsize, s.vector * s.deep, s.vector, s.deep)
        moved = (*((u, c * stores) for u, c in resources), (valu.unit, clocks // low.target.clock_unit))
        step = Step(f"store {s.name}.{first}", "swrite", moved, latency, keys, (), put, self.buffer, self.n.loc)
        step.shared_clocks = s.shared_clocks("write", s.count // s.deep)
        return step


class _RowsCopy(_TileCopy):
    """The copy of a tile of gathered rows: which row a vector is of is read first."""

    def find_tile(self) -> None:
        self.array, self.extents, self.strides = self.low.array(self.n.attrs["memory"])
        self.rows = RowCopy(self.low, self.low.reads.rows[self.n.id], self.s)
        self.again = self.rows.rows.runs

    def local_row(self, i: int) -> Any:
        """The place in the tile of the row that a vector is of."""
        parts, fixed, _ = self.lanes.coordinates(i)
        row = self.rows.rows.row
        return total(self.b, [parts.get(row, 0), fixed.get(row, 0)])

    def turns(self) -> list[int]:
        """The first vector of each row that a thread copies of."""
        return list(dict.fromkeys(row_turn(self.s, i) for i in range(self.s.count)))

    def settle(self, env: Env) -> None:
        """In front of a loop: what its copies need of the rows that they copy in all trips."""
        for turn in self.turns():
            self.rows.settle(turn, self.local_row(turn), env)

    def numbers(self) -> list[Step]:
        if self.rows.rows.ahead:
            self.low.reads.settled.append(self.settle)
        steps = [self.rows.steps(turn, partial(self.local_row, turn)) for turn in self.turns()]
        return [s for level in zip(*steps) for s in level]

    def uses(self, i: int) -> tuple[Key, ...]:
        return self.rows.keys(row_turn(self.s, i))

    def source(
        self, context: Context, i: int, parts: Mapping[str, Any], fixed: Mapping[str, int]
    ) -> tuple[Value, Any, Any, Value, Value | None]:
        voff, soff, mask = self.rows.place(row_turn(self.s, i), context, parts, fixed)
        return whole_buffer(self.b, self.array, self.extents), voff, soff, mask, context.guard

    def ask_ahead(self, context: Context, i: int) -> None:
        """Which rows a later trip has is not known yet."""


class RingTile(_TileCopy):
    """The copy of a tile to a ring's slot, by the threads of one wave that does nothing but copy."""

    @cached_property
    def lanes(self) -> CopyLanes:
        return CopyLanes(self.b, self.s, self.b.lane())

    def settle(self, env: Env) -> None:
        """Emit, in front of a loop, what copies need in all of its trips."""

    def find(self, context: Context) -> None:
        """Emit what says where the rows of a trip are."""

    def copy(self, context: Context) -> None:
        """Emit the copies of a trip's tile."""
        for i in range(self.s.count):
            self.copy_vector(i).emit(context)


class RingRows(RingTile, _RowsCopy):
    """The same of gathered rows."""

    def settle(self, env: Env) -> None:
        if self.rows.rows.ahead:
            _RowsCopy.settle(self, env)

    def find(self, context: Context) -> None:
        if not self.rows.rows.ahead:
            for step in self.numbers():
                step.emit(context)
