"""Lowering of `read`: the steps that carry one out, through shared memory, straight to registers or by indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.addresses.access import GlobalAccess
from wavedsl.ir.addresses.fragment_loads import FragmentLoads, wave_digits
from wavedsl.ir.addresses.move_elements import join_word, load_group
from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.addresses.vectors import element_groups, vector_elements
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.views import is_tile, placement
from wavedsl.ir.kernel.kernel_ir import Value, vector
from wavedsl.ir.lower.lowering import Lowering, both, never
from wavedsl.ir.lower.prefetch import ask
from wavedsl.ir.lower.rings import wait_full
from wavedsl.ir.lower.row_numbers import runs_ahead
from wavedsl.ir.lower.tile_views import located, tile_view
from wavedsl.ir.schedule.steps import Context, Step
from wavedsl.ir.staging.copy_steps import coordinate_keys, copy_steps


def _nothing(context: Context) -> None:
    """A step that only stands for others."""


def staged_steps(low: Lowering, n: Node, once: bool = False) -> list[Step]:
    """The steps of a read through shared memory; `once`: those that use it are in a loop that comes later."""
    s = low.reads.staged[n.id]
    if s.copied_by is not None:
        return fragment_steps(low, n)
    steps = copy_steps(low, n)
    if s.loads is not None and not (once and n.id in low.reads.kept):
        return steps + fragment_steps(low, n)
    if once:
        # The readers come later: a step in their place, before which the copies have arrived.
        steps.append(Step(f"await {s.name}", "sread", (), 1, (), (), _nothing, low.room.buffers[n.id], n.loc))
    return steps


def fragment_steps(low: Lowering, n: Node) -> list[Step]:
    """The loads of a read's elements from its tile in shared memory, and what joins them to registers."""
    b, s = low.b, low.reads.staged[n.id]
    assert s.loads is not None
    buffer, ring = low.room.buffers[n.id], low.reads.ring_of.get(n.id)
    unit = low.units(n)
    plans = low.plans if unit is None else unit.plans
    _, digit_dims = wave_digits(s.layout, plans)
    made: list[FragmentLoads] = []

    def fragments() -> FragmentLoads:
        if not made:
            made.append(FragmentLoads(b, s, {d: low.digit(d) for d in plans}, plans, digit_dims))
        return made[0]

    steps: list[Step] = []
    together = low.gathered(n)
    resources, latency = low.memory_cost("load.shared", min(2, together) * s.loads.bytes)
    if together > 2:
        resources = tuple((u, c * (together // 2)) for u, c in resources)
    for g in range(len(s.groups) // together):

        def fetch(context: Context, g: int = g) -> None:
            if ring is not None:
                wait_full(low, ring)
            slot = low.slot_bytes(n, context)
            loads = [fragments().load(g * together + i, slot, buffer) for i in range(together)]
            context.env["f", n.id, g] = b.vec(*loads) if together > 1 else loads[0]

        read = Step(f"read {s.name}.{g}", "sread", resources, latency, (), (("f", n.id, g),), fetch, buffer, n.loc)
        read.words = max(1, s.loads.bytes * together // 4)
        read.shared_clocks = s.shared_clocks("read", len(s.groups) // together)
        steps.append(read)
    if low.joined(n):
        steps += join_steps(low, n, s)
    return steps


def join_steps(low: Lowering, n: Node, s: Staged) -> list[Step]:
    """One step per register that several narrow loads fill."""
    b = low.b
    home = {e: (g, position) for g, group in enumerate(s.groups) for position, e in enumerate(group)}
    steps = []
    for r, group in enumerate(low.read_groups(n)):
        parts = [home[e] for e in group]

        def join(context: Context, r: int = r, parts: list[tuple[int, int]] = parts) -> None:
            loaded = [(context.env["f", n.id, g], position) for g, position in parts]
            context.env["w", n.id, r] = join_word(b, s.info.dtype, loaded)

        uses = tuple(dict.fromkeys(("f", n.id, g) for g, _ in parts))
        clocks = low.issue_clocks() * max(1, len(uses) - 1)
        resources, latency = low.valu_cost(clocks)
        steps.append(
            Step(f"join {s.name}.{r}", "compute", resources, latency, uses, (("w", n.id, r),), join, "", n.loc)
        )
    return steps


def direct_steps(low: Lowering, n: Node) -> list[Step]:
    """A read straight into registers, one step per vector."""
    b = low.b
    if not is_tile(low.graph, n):
        return mapped_steps(low, n)
    read = _Straight(low, n)
    size, steps = read.size, []
    resources, latency = low.memory_cost("load.global", size)
    placed_by = coordinate_keys(low, n)
    found = placement(low.graph, n)
    assert found is not None
    late = low.loop_dim is not None and not all(runs_ahead(low, x, low.region_of(n)) for x in found.numbers())
    kind = "compute" if late else "gload"
    for g, group in enumerate(read.groups):

        def load(context: Context, g: int = g, group: tuple[int, ...] = group) -> None:
            access, inside = read.access_at(context, read.plans)
            guard = both(b, context.guard if read.moves else None, inside)
            if never(guard):
                context.env["f", n.id, g] = b.zero(vector(max(size // 4, 1)))
                return
            context.env["f", n.id, g] = load_group(b, access, group, read.width, guard, n.attrs.get("cache"))
            if read.moves:
                ask(low, n, context, read.plans, read.access_at, read.layout.coords(group[0]), size)

        name = read.info.name
        step = Step(f"load {name}.{g}", kind, resources, latency, placed_by, (("f", n.id, g),), load, "", n.loc)
        step.words = max(1, size // 4)
        step.array = name
        steps.append(step)
    return steps


class _Straight:
    """The accesses of a read of a tile straight into registers: `groups` of elements that are a vector of `width`."""

    def __init__(self, low: Lowering, n: Node):
        self.low, self.n = low, n
        self.info, self.extents, self.strides = tile_view(low, n)
        self.layout, self.plans, self.unit = low.layout(n), low.plans, low.units(n)
        if self.unit is not None:
            self.info, self.layout, self.plans = self.unit.info, self.unit.layout, self.unit.plans
            self.extents, self.strides = self.unit.extents(low.b, self.extents), self.unit.strides(self.strides)
        self.width, bits = vector_elements(self.info, self.layout, self.plans)
        self.groups = element_groups(self.layout, bits)
        self.moves = low.moves_with(self.info.names, low.loop_dim)
        self.size = self.width * self.info.elsize
        self._last: tuple[Any, ...] = ()

    def access_at(self, context: Context, plans: Mapping[str, DimPlan]) -> tuple[GlobalAccess, Value | None]:
        """The accesses of a trip, and where they are not outside altogether: for all vectors of a tile the same."""
        low = self.low
        at = context, plans, low.b.region
        state = low.loop_dim, low.share_of_wave, dict(low.base), dict(low.first), dict(low.wave_digit)
        if not self._last or any(x is not y for x, y in zip(at, self._last[0])) or self._last[1] != state:
            self._last = at, state, self._access(context, plans)
        found: tuple[GlobalAccess, Value | None] = self._last[2]
        return found

    def _access(self, context: Context, plans: Mapping[str, DimPlan]) -> tuple[GlobalAccess, Value | None]:
        low, b = self.low, self.low.b
        position, inside, limits = located(low, self.n, context, low.base_at(context.iteration) if self.moves else None)
        if self.unit is not None:
            position = self.unit.position(b, position)
        access = GlobalAccess(
            b, self.info, self.layout, position, plans, low.target, self.extents, self.strides, store=False,
            limits=limits,
        )  # fmt: skip
        return access, inside


def touch_straight(low: Lowering, n: Node, context: Context, bytes: float) -> float:
    """Ask the L2 cache for what a read of a tile will load straight into registers, up to so many bytes of the
    workgroup's; how many are left."""
    read, lanes = _Straight(low, n), low.partition.waves * low.target.wave_size
    access, inside = read.access_at(context, read.plans)
    for group in read.groups:
        if bytes <= 0 or never(inside):
            break
        voff, soff, mask = access.operands(read.layout.coords(group[0]))
        low.b.touch_global(access.buffer, voff, soff, bytes=read.size, mask=mask, guard=inside)
        bytes -= read.size * lanes
    return bytes


def mapped_steps(low: Lowering, n: Node) -> list[Step]:
    """A gather, one step per vector. Indices that the loop computes keep it among what is computed, unless they may run
    ahead themselves; other gathers may run ahead like any load."""
    from wavedsl.ir.lower.lower_mapped import MappedAccess, halves, mapped_groups

    b, layout = low.b, low.layout(n)
    info = low.arrays[n.attrs["memory"]]
    width, groups, _ = mapped_groups(low, n, layout, False)
    unit = low.units(n)
    size, first = (width * info.elsize, 1) if unit is None else (width * unit.info.elsize, unit.group)
    resources, latency = low.memory_cost("load.global", size)
    uses = tuple(dict.fromkeys(k for x in n.inputs for k in low.keys(x)))
    kind = "gload" if all(_ready(low, x, low.region_of(n)) for x in n.inputs) else "compute"
    accesses: dict[Any, MappedAccess] = {}
    steps = []
    for g, group in enumerate(groups):

        def load(context: Context, g: int = g, group: tuple[int, ...] = group) -> None:
            if never(context.guard):
                context.env["f", n.id, g] = b.zero(vector(max(size // 4, 1)))
                return
            at = context.iteration if isinstance(context.iteration, int) else context.iteration.id
            access = accesses.get(at)
            if access is None:
                accesses.clear()
                access = accesses[at] = MappedAccess(low, n, layout, context, store=False)
            context.env["f", n.id, g] = access.load(group[0] * first, size, context.guard, n.attrs.get("cache"))

        step = Step(f"gather {info.name}.{g}", kind, resources, latency, uses, (("f", n.id, g),), load, "", n.loc)
        step.words = max(1, size // 4)
        step.array = info.name
        steps.append(step)
    if low.one_by_one(n):
        keys = tuple(("f", n.id, g) for g in range(len(groups)))

        def take(context: Context) -> None:
            context.env["v", n.id] = halves(low, n, [context.env[k] for k in keys], context)

        resources, latency = low.valu_cost(low.issue_clocks() * HALF * len(groups))
        uses = tuple(dict.fromkeys((*uses, *keys)))
        steps.append(Step(f"halves {info.name}", "compute", resources, latency, uses, (("v", n.id),), take, "", n.loc))
    return steps


LONG_LOOP = 8
"""Trips of a loop from which on gathers by indices that it loads run ahead: first these, then what they place."""


def _ready(low: Lowering, x: Node, region: Any) -> bool:
    """Whether an index is made outside of the region, or by a loop ahead of its trip."""
    if low.region_of(x) is not region:
        return True
    if low.loop_dim is None or not runs_ahead(low, x, region):
        return False
    trips = low.plans[low.loop_dim].trips
    return not x.dims or trips is None or trips >= LONG_LOOP


HALF = 3
"""Vector instructions that take a 4-bit element out of its byte and put it into its word."""
