"""Kernels whose operands come by bulk copies: rings, tensor maps, and who does what.

In: a `Lowering` and its `Strategy`. The reads that matrix instructions take from shared memory are gathered in rings.
With a copying warpgroup the kernel's body is written twice: one thread of that warpgroup walks the regions and fills
the rings in the order in which the reads stand, all other waves walk them as if the rings were full. Without it one
thread of the first wave fills a slot as soon as it has been given back (`ring_loops`).

Invariant: both walks meet the rings in the same order and as often, so slots and parities agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from wavedsl.ir.access import scaled
from wavedsl.ir.graph import Node, Region, region_nodes
from wavedsl.ir.kernel_ir import Param, Value
from wavedsl.ir.lower_reads import invariant_reads
from wavedsl.ir.lowering import Lowering
from wavedsl.ir.rings import Ring, fill, initialise, map_of, reserve
from wavedsl.ir.staging import plan_matrix
from wavedsl.ir.strategy import MOST_STAGES, Strategy

MAP_BYTES = 128
"""Size of a tensor map; it is aligned to half of that."""


def run(low: Lowering, strategy: Strategy, compute: Callable[[], None]) -> None:
    """Emit the kernel: barriers, then the roles. `compute` emits what is not copying."""
    b, waves = low.b, low.partition.waves
    rings = low.rings
    initialise(low, rings)
    if not strategy.specialize:
        compute()
        return
    with b.if_(b.cmp("eq", b.wave(), waves)) as role:
        b.registers(strategy.registers[0], more=False)
        with b.if_(b.elect()) as one:
            produce(low, low.graph.region)
            one.yield_()
        role.yield_()
    for ring in rings:
        ring.slot = ring.parity = 0
    with role.orelse():
        b.registers(strategy.registers[1], more=True)
        b.role_barrier = {"id": 1, "threads": waves * low.target.wave_size}
        compute()
        b.role_barrier = {}
        role.yield_()


def plan_rings(low: Lowering, strategy: Strategy) -> None:
    """Gather the reads in rings, as deep as shared memory allows and trips can use, and place them."""
    rings: list[Ring] = []
    _gather(low, low.graph.region, rings)
    looped = [r for r in rings if r.region.dim is not None]
    most = max((low.plans[str(r.region.dim)].trips or MOST_STAGES for r in looped), default=1)
    stages = low.choices.stages or min(MOST_STAGES, max(1, most))
    fixed = low.choices.stages is not None
    top = low.shared_top
    while True:
        for ring in rings:
            ring.slots = min(stages, low.plans[str(ring.region.dim)].trips or stages) if ring in looped else 1
        used = top + sum(_bytes(low, ring) for ring in rings)
        if used <= low.target.shared_bytes or stages == 1:
            break
        if fixed:
            break
        stages -= 1
    for ring in rings:
        for n in ring.members:
            low.staged[n.id] = _planned(low, n, ring.slots)
    strategy.stages = max((r.slots for r in looped), default=1)
    strategy.why["stages"] = "as asked for" if fixed else f"{used} of {low.target.shared_bytes} bytes of shared memory"
    reserve(low, rings)
    low.rings = rings
    add_maps(low, rings)


def _planned(low: Lowering, n: Node, slots: int) -> Any:
    info = low.arrays[n.attrs["memory"]]
    left = low.target.shared_bytes - low.shared_top
    return plan_matrix(n, info, low.layout(n), low.matrix_uses[n.id], low.partition, low.target, slots, left, False)


def _bytes(low: Lowering, ring: Ring) -> int:
    """Shared memory that a ring takes, tiles rounded up to their alignment."""
    tiles = (-(-_planned(low, n, 1).place.bytes * ring.slots // 1024) * 1024 for n in ring.members)
    return sum(tiles) + 16 * ring.slots


def _gather(low: Lowering, region: Region, rings: list[Ring]) -> None:
    """Rings of a region's own reads, one per set of products that use them; of the same in loops inside."""
    users = low.users()
    groups: dict[Any, Ring] = {}
    outside = invariant_reads(low, region) if region.dim is not None else []

    def join(n: Node, where: Region) -> None:
        key = (id(where), tuple(sorted(u.id for u in users[n.id])))
        ring = groups.get(key)
        if ring is None:
            ring = groups[key] = Ring(str(len(rings)), where, [], 1, low.partition.waves)
            rings.append(ring)
        ring.members.append(n)

    for n in region.nodes:
        if n.op == "iterate":
            body = n.attrs["body"]
            for x in invariant_reads(low, body):
                if x.id in low.matrix_uses:
                    join(x, region)
            _gather(low, body, rings)
        elif n.id in low.matrix_uses and n not in outside:
            join(n, region)


def add_maps(low: Lowering, rings: Sequence[Ring]) -> None:
    """Tensor maps as parameters: in place of an array's pointer where nothing else needs it, else hidden ones."""
    params = low.kernel.params
    ringed = {n.id for ring in rings for n in ring.members}
    pointed = {n.attrs["memory"] for n in region_nodes(low.graph.region) if "memory" in n.attrs and n.id not in ringed}
    known: dict[Any, int] = {}
    for ring in rings:
        for n in ring.members:
            spec = map_of(low.staged[n.id])
            at = known.get(spec)
            if at is None:
                own = low.arrays[spec.array].param
                if spec.array not in pointed and params[own].map is None:
                    at = own
                    params[at] = replace(params[own], kind="tensormap", map=spec)
                else:
                    at = len(params)
                    old = params[own]
                    name = f"_map_{spec.array}_{at}"
                    source = f"tensormap {spec.array}"
                    params.append(Param(name, "tensormap", old.dtype, 0, MAP_BYTES, source, old.access, spec))
                known[spec] = at
            ring.maps[n.id] = at
    offset = 0
    for i, p in enumerate(params):
        size = MAP_BYTES if p.map is not None else p.size
        align = MAP_BYTES // 2 if p.map is not None else p.size
        offset = -(-offset // align) * align
        params[i] = replace(p, offset=offset, size=size)
        offset += size


def produce(low: Lowering, region: Region, iteration: Any = 0) -> None:
    """Fill the rings of a region's reads in their order, for one of its trips."""
    filled: set[str] = set()

    def bring(n: Node, where: Any) -> None:
        ring = low.ring_of.get(n.id)
        if ring is not None and ring.region is region and ring.name not in filled:
            filled.add(ring.name)
            with low.b.loc(n.loc):
                fill(low, ring, where)
                ring.advance(low)

    for n in region.nodes:
        if n.op == "read":
            bring(n, iteration)
        if n.op != "iterate":
            continue
        body: Region = n.attrs["body"]
        for x in body.nodes:
            bring(x, iteration)
        inner = rings_inside(low, body)
        if inner:
            with low.b.loc(n.loc):
                _produce_loop(low, body, inner, iteration)


def rings_inside(low: Lowering, region: Region) -> list[Ring]:
    """Rings that a region uses per trip, those of the loops inside it included."""
    regions = [region, *(n.attrs["body"] for n in region_nodes(region) if n.op == "iterate")]
    return [ring for ring in low.rings if any(ring.region is r for r in regions)]


def _produce_loop(low: Lowering, body: Region, inner: Sequence[Ring], iteration: Any) -> None:
    b = low.b
    with entered(low, body, iteration):
        trips = low.trip_count(str(body.dim))
        if isinstance(trips, int) and trips <= 1:
            if trips:
                produce(low, body, 0)
            return
        states = ring_states(inner)
        label = f"copy_{body.dim}"
        with b.for_(0, trips, 1, states, label=label, min_trips=1 if isinstance(trips, int) else 0) as loop:
            set_states(inner, loop.carried)
            produce(low, body, loop.iv)
            loop.yield_(ring_states(inner))
        set_states(inner, loop.results)


class entered:
    """Inside, positions are those of a loop over `body`'s dimension."""

    def __init__(self, low: Lowering, body: Region, iteration: Any):
        self.low, self.body, self.iteration = low, body, iteration

    def __enter__(self) -> None:
        low = self.low
        self.dim, self.base = low.loop_dim, dict(low.base)
        if low.loop_dim is not None:
            low.base[low.loop_dim] = scaled(low.b, self.iteration, low.plans[low.loop_dim].tile)
        low.loop_dim = str(self.body.dim)

    def __exit__(self, *error: Any) -> None:
        self.low.loop_dim, self.low.base = self.dim, self.base


def ring_states(rings: Sequence[Ring]) -> list[Any]:
    """Slots and parities, for a loop to carry."""
    return [x for ring in rings for x in ((ring.slot, ring.parity) if ring.slots > 1 else (ring.parity,))]


def set_states(rings: Sequence[Ring], values: Sequence[Value]) -> None:
    """What `ring_states` gave, as a loop hands it on."""
    rest = iter(values)
    for ring in rings:
        if ring.slots > 1:
            ring.slot = next(rest)
        ring.parity = next(rest)
        ring.waited = False
