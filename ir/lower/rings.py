"""Rings: slots of shared memory that bulk copies fill and matrix instructions empty, handed over by barriers in memory.

In: the reads of a kernel that matrix instructions take from shared memory, how many slots. Out: `Ring`s with their
place in shared memory, and functions that emit what happens to a slot: it is filled, waited for, given back.

Per slot there are two barriers. `full` ends a phase when the one thread that issues the copies has arrived and all
their bytes have; `empty` when every wave that reads the slot has arrived, in all workgroups of a cluster into whose
slots this one copies (`cluster_shape`). A ring is used in order: fill and use number
i take slot i % slots, in phase i // slots. Both sides walk along with a slot and a parity that flips when the slot
wraps; waiting for the parity before the first phase passes at once, so the filler starts one phase ahead. A wave that
fills what it alone reads needs no `empty`: it comes to fill a slot behind the waits for what has read it (`handed`).

Invariant: reads with the same readers share a ring, so one wait covers all operands of a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.grid.cluster_shape import ALONE, ONE, Axes, ClusterShape
from wavedsl.ir.kernel.kernel_ir import TensorBoxes, Value
from wavedsl.ir.layouts.matrix_tile import ALIGN, BOX
from wavedsl.ir.lower.exchange import PARTS_OVER_TILES
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.prefetch import distance
from wavedsl.ir.lower.short_tiles import brought, share, zero_rows
from wavedsl.ir.lower.tile_ends import PAIR, Origin, may_straddle
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context, Env

BARRIER_BYTES = 8


@dataclass(eq=False)
class Ring:
    """`members`: the reads it serves. `bars`: byte of the first full barrier; the empty ones follow. `slot` and
    `parity` say where the role that is being written stands: ints or uniform values."""

    name: str
    region: Region
    """The region whose every run or trip uses one slot."""
    members: list[Node]
    slots: int
    readers: int
    """Waves that give each slot back."""
    tiles: int = 1
    """Output tiles of which there is room for the members', where the region is no loop."""
    more: int = 0
    """Slots beyond those of other rings."""
    single: bool = False
    """Whether it has one slot, whatever others have."""
    bars: int = 0
    own: int = -1
    """Byte of the barrier on which the filling thread waits for tiles that it mends; -1 where it never does."""
    bytes: int = 0
    """Bytes that a fill brings of all members' tiles, whatever of it lies outside the arrays."""
    slot: Any = 0
    parity: Any = 0
    waited: bool = False
    """Whether the slot has been waited for since it was last given back."""
    cluster: ClusterShape = ONE
    shared: dict[int, Axes] = field(default_factory=dict)
    """Member → the cluster's axes along which its tile is the same: each of the workgroups along them fills its part of
    the tile in all of them."""
    maps: dict[int, int] = field(default_factory=dict)
    """Read → the kernel parameter that holds its tensor map."""
    threaded: dict[int, Any] = field(default_factory=dict)
    """Members that the threads of the copying warpgroup bring, each its vectors → makes what emits these copies
    (`copy_steps.RingTile`)."""

    @property
    def partners(self) -> int:
        """Workgroups that hand slots over together: whose copies land in one another's."""
        return self.cluster.partners(self.shared.values())

    def axes(self, n: Node) -> Axes:
        """The axes of the cluster along which a member's tile is the same."""
        return self.shared.get(n.id, ALONE)

    def full(self, low: Lowering) -> Any:
        """Address of the slot's full barrier."""
        return total(low.b, [scaled(low.b, self.slot, BARRIER_BYTES), self.bars])

    def empty(self, low: Lowering, slot: Any = None) -> Any:
        """Address of the empty barrier of a slot (this one)."""
        at = scaled(low.b, self.slot if slot is None else slot, BARRIER_BYTES)
        return total(low.b, [at, self.bars + self.slots * BARRIER_BYTES])

    def advance(self, low: Lowering) -> None:
        """Go on to the next slot."""
        b = low.b
        self.waited = False
        if self.slots == 1:
            self.parity = self.parity ^ 1 if isinstance(self.parity, int) else b.xor(self.parity, 1)
            return
        if isinstance(self.slot, int) and isinstance(self.parity, int):
            self.slot = (self.slot + 1) % self.slots
            self.parity ^= self.slot == 0
            return
        following = total(b, [self.slot, 1])
        wraps = b.cmp("eq", following, self.slots)
        self.slot = b.select(wraps, 0, following)
        self.parity = b.xor(b.i32(self.parity) if isinstance(self.parity, int) else self.parity, b.select(wraps, 1, 0))

    def skip(self, low: Lowering, count: Any) -> None:
        """Go on by `count` slots, which others use."""
        b = low.b
        if self.slots == 1:
            flips = count & 1 if isinstance(count, int) else b.and_(count, 1)
        else:
            ahead = total(b, [self.slot, count])
            if isinstance(ahead, int):
                self.slot, flips = ahead % self.slots, ahead // self.slots & 1
            else:
                self.slot, flips = b.urem(ahead, self.slots), b.and_(b.udiv(ahead, self.slots), 1)
        both = isinstance(self.parity, int) and isinstance(flips, int)
        self.parity = self.parity ^ flips if both else b.xor(self._value(b, self.parity), self._value(b, flips))

    @staticmethod
    def _value(b: Any, x: Any) -> Value:
        return b.i32(x) if isinstance(x, int) else x

    def before(self, low: Lowering) -> Any:
        """The slot before this one."""
        b = low.b
        if isinstance(self.slot, int):
            return (self.slot - 1) % self.slots
        return b.select(b.cmp("eq", self.slot, 0), self.slots - 1, b.sub(self.slot, 1))


def reserve(low: Lowering, rings: Sequence[Ring]) -> None:
    """Give every ring its place in shared memory: tiles at multiples of their swizzle's window, then barriers."""
    for ring in rings:
        for n in ring.members:
            staged = low.reads.staged[n.id]
            low.room.top = -(-low.room.top // ALIGN) * ALIGN
            staged.offset = low.room.top
            low.room.top += staged.place.bytes * ring.slots
            if n.id not in low.reads.by_threads:
                ring.bytes += brought(staged, ring.cluster.along(ring.axes(n)))
            name = staged.name if staged.name not in low.room.depths else f"{staged.name}.{n.id}"
            low.room.buffers[n.id] = name
            low.room.depths[name] = ring.slots
            low.kernel.shared_names[name] = (staged.offset, staged.place.bytes * ring.slots)
            low.notes.places[name] = str(staged.place)
            low.reads.ring_of[n.id] = ring
        names = ", ".join(low.room.buffers[n.id] + " (multicast)" * bool(ring.axes(n)) for n in ring.members)
        size = sum(low.reads.staged[n.id].place.bytes for n in ring.members)
        low.notes.rings.append(f"ring {ring.name}: {names}; {ring.slots} slots of {max(ring.bytes, size)} bytes")
    _reserve_parts(low, rings)
    for ring in rings:
        low.room.top = -(-low.room.top // BARRIER_BYTES) * BARRIER_BYTES
        ring.bars = low.room.top
        low.room.top += (1 + handed(low, ring)) * ring.slots * BARRIER_BYTES
        if any(may_straddle(low, n) for n in ring.members):
            ring.own = low.room.top
            low.room.top += BARRIER_BYTES
        low.kernel.shared_names[f"barriers {ring.name}"] = (ring.bars, low.room.top - ring.bars)


def _reserve_parts(low: Lowering, rings: Sequence[Ring]) -> None:
    """A place for sums that a cluster's workgroups add: where tiles are that nobody wants behind the loop, and beyond
    them where these take less."""
    if not low.matrix.strategy.shape.joined:
        return
    from wavedsl.ir.lower.join_parts import plan_places  # what few kernels need

    first = min((low.reads.staged[n.id].offset for ring in rings for n in ring.members), default=low.room.top)
    end = plan_places(low, first)
    if end > first:
        low.kernel.shared_names[PARTS_OVER_TILES] = (first, end - first)
        low.room.top = max(low.room.top, end)


def handed(low: Lowering, ring: Ring) -> bool:
    """Whether slots are given back to others: a copying warpgroup, or waves that read the ring too, of this workgroup
    or of its cluster."""
    return low.matrix.strategy.specialize or low.partition.waves > 1 or ring.partners > 1


def initialise(low: Lowering, rings: Sequence[Ring], zeroing: int = 0) -> None:
    """One thread makes all barriers, so many waves the zeros that no copy brings; nobody goes on before they are known.
    The thread also asks for the tensor maps, which the first copy by each would have to wait for."""
    b = low.b
    zeroed = zeroing > 0 and zero_rest(low, rings, zeroing)
    with one_thread(low):
        for i, param in enumerate(low.kernel.params):
            if param.map is not None:
                b.touch_map(b.param(i))
        for ring in rings:
            for slot in range(ring.slots):
                b.signal_init(ring.bars + slot * BARRIER_BYTES, arrivals(low, ring))
                if handed(low, ring):
                    b.signal_init(ring.bars + (ring.slots + slot) * BARRIER_BYTES, ring.readers * ring.partners)
            if ring.own >= 0:
                b.signal_init(ring.own, 1)
        b.signal_publish()
    if low.kernel.cluster > 1:
        b.cluster_barrier(initial=not zeroed)
    else:
        b.barrier()


def arrivals(low: Lowering, ring: Ring) -> int:
    """How many end a phase of the full barriers: the thread that starts bulk copies, and all that copy themselves."""
    return bool(ring.bytes) + low.target.wave_size * bool(ring.threaded)


def zero_rest(low: Lowering, rings: Sequence[Ring], waves: int) -> bool:
    """All threads of so many waves store the zeros that no copy brings; a barrier is to follow. Whether there are any
    such."""
    found = [(ring, n) for ring in rings for n in ring.members if low.reads.staged[n.id].rows]
    for ring, n in found:
        parts = ring.cluster.along(ring.axes(n))
        zero_rows(low, low.reads.staged[n.id], parts, ring.slots, waves, low.room.buffers[n.id])
    if found:
        low.b.proxy_fence()
    return bool(found)


@contextmanager
def one_thread(low: Lowering, wave: int = 0) -> Iterator[None]:
    """What is emitted inside runs in one thread of one wave."""
    b = low.b
    with b.if_(b.cmp("eq", b.wave(), wave)) as branch:
        with b.if_(b.elect()) as inner:
            yield
            inner.yield_()
        branch.yield_()


def boxes(staged: Staged, parts: int = 1) -> tuple[list[tuple[dict[str, int], int]], int]:
    """(coordinates of each box in the tile and its byte there, elements of `other` in a box), of the first of `parts`
    equal cuts of the tile along `other`."""
    tile = staged.tile
    assert tile is not None
    if not tile.other:
        return [({tile.fast: p * tile.width}, p * tile.panel) for p in range(tile.panels)], 1
    rows = share(staged, parts)
    if tile.block:
        half = tile.block // 2
        starts = [(r, pair) for r in range(0, rows, tile.block) for pair in range(0, min(2, 2 * rows // tile.block))]
        found = [
            ({tile.fast: p * tile.width, tile.other: r, PAIR: 2 * pair}, p * tile.panel + (r + pair * half) * tile.span)
            for p in range(tile.panels)
            for r, pair in starts
        ]
        return found, half
    height = rows if staged.rows else next(h for h in range(min(BOX, rows), 0, -1) if rows % h == 0 and h % 8 == 0)
    found = []
    for p in range(tile.panels):
        for r in range(0, rows, height):
            found.append(({tile.fast: p * tile.width, tile.other: r}, p * tile.panel + r * tile.span))
    return found, height


def map_of(staged: Staged, parts: int = 1, ended: int | None = None) -> TensorBoxes:
    """The tensor map whose boxes are the panels of a tile, or of one of `parts` of it. `ended`: the axis along which
    the tile may end before its array."""
    info, tile = staged.info, staged.tile
    assert tile is not None
    _, height = boxes(staged, parts)
    fast = info.names.index(tile.fast)
    rest = [i for i in reversed(range(len(info.dims))) if i != fast]
    order = (fast, *rest)
    sizes = {tile.fast: tile.width, tile.other: height // 2 if tile.block else height}
    box = [sizes.get(info.names[i], 1) for i in order] + [1] * (ended is not None)
    if tile.block:
        box.insert(1, 2)
    paired = info.names.index(tile.other) if tile.block else None
    return TensorBoxes(info.name, order, tuple(box), tile.span, ended, paired)


def fill(low: Lowering, ring: Ring, iteration: Any, env: Env) -> None:
    """One thread, or where members are gathered all of the copying warpgroup: wait until the slot is empty, then start
    the copies of every member for an iteration of the loop. `env` holds what the coordinates of the reads need. What
    lies outside an array becomes zero by itself."""
    b = low.b
    waits = "wait until the slot is empty, " if handed(low, ring) else ""
    expect = f"expect {ring.bytes} bytes, " if ring.bytes else ""
    low.note(f"fill ring {ring.name}: {waits}{expect}start the copies")
    context = Context(env, iteration, None)
    copies = [make() for make in ring.threaded.values()]
    for copy in copies:
        copy.find(context)
    if handed(low, ring):
        parity = 1 - ring.parity if isinstance(ring.parity, int) else b.xor(ring.parity, 1)
        b.signal_wait(ring.empty(low), parity)
    if not by_all(low):
        _start(low, ring, iteration, env)
        return
    if ring.bytes:
        with b.if_(b.elect()) as one:
            b.one_thread = True
            _start(low, ring, iteration, env)
            b.one_thread = False
            one.yield_()
    for copy in copies:
        copy.copy(context)
    if copies:
        b.signal_copied(ring.full(low))


def by_all(low: Lowering) -> bool:
    """Whether all threads of the copying warpgroup walk the kernel, since they bring tiles of some ring."""
    return any(ring.threaded for ring in low.reads.rings)


def settle(low: Lowering, ring: Ring, env: Env) -> None:
    """In front of a loop: what copies by threads need in all of its trips."""
    for make in ring.threaded.values():
        make().settle(env)


def _start(low: Lowering, ring: Ring, iteration: Any, env: Env) -> None:
    """One thread starts the bulk copies of a fill, and tells the barrier what they bring."""
    b = low.b
    base = low.base_at(iteration)
    tiles = []
    straddles: Value | None = None
    for n in ring.members:
        if n.id in ring.threaded:
            continue
        origin = Origin(low, n, low.reads.staged[n.id], Context(env, iteration, None), base)
        tiles.append((n, low.reads.staged[n.id], origin))
        if origin.straddles is not None:
            straddles = origin.straddles if straddles is None else b.por(straddles, origin.straddles)
    bar: Any = ring.full(low)
    if straddles is not None:
        bar = b.select(straddles, ring.own, bar)
    b.signal_expect(bar, ring.bytes)
    for n, staged, origin in tiles:
        axes = ring.axes(n)
        parts = ring.cluster.along(axes)
        found, _ = boxes(staged, parts)
        rows, skip = _share(low, ring, n)
        spec = low.kernel.params[ring.maps[n.id]].map
        assert spec is not None
        for inside, byte in found:
            b.copy_bulk(
                b.param(ring.maps[n.id]), total(b, [_slot(low, ring, staged), byte, skip]), bar,
                origin.coordinates(spec, inside, rows), buffer=low.room.buffers[n.id],
                to=ring.cluster.receivers(b, axes), receivers=parts, cache=n.attrs.get("cache"),
            )  # fmt: skip
        trips = distance(low, n)
        if trips:
            _touch(low, ring, n, iteration, low.base_at(total(b, [iteration, trips])), env, rows)
    if straddles is not None:
        with b.if_(straddles) as branch:
            b.signal_wait(ring.own, 0)
            for n, staged, origin in tiles:
                if origin.straddles is not None:
                    origin.zero_past_end(staged, _slot(low, ring, staged), low.room.buffers[n.id])
            b.proxy_fence()
            b.signal_arrive(ring.own)  # ends its odd phase: the next time is an even one again
            b.signal_arrive(ring.full(low))
            branch.yield_()


def touch(low: Lowering, ring: Ring, iteration: Any, env: Env) -> None:
    """Ask for what `fill` copies for an iteration of the loop: it comes to the L2 cache and moves nothing else."""
    for n in ring.members:
        if n.id not in ring.threaded:
            _touch(low, ring, n, iteration, low.base_at(iteration), env, _share(low, ring, n)[0])


def _touch(
    low: Lowering, ring: Ring, n: Node, iteration: Any, base: Mapping[str, Any], env: Env, rows: Mapping[str, Any]
) -> None:
    """Ask for a member's tile at `base`, or the part from `rows` on. What lies outside the array is dropped."""
    staged, spec = low.reads.staged[n.id], low.kernel.params[ring.maps[n.id]].map
    assert spec is not None
    origin = Origin(low, n, staged, Context(env, iteration, None), base)
    for inside, _ in boxes(staged, ring.cluster.along(ring.axes(n)))[0]:
        low.b.touch_bulk(low.b.param(ring.maps[n.id]), origin.coordinates(spec, inside, rows))


def _share(low: Lowering, ring: Ring, n: Node) -> tuple[dict[str, Any], Any]:
    """Where a workgroup's part of a member's tile begins in it, and at which byte of its place: of a tile that several
    of a cluster bring together."""
    b, axes, staged = low.b, ring.axes(n), low.reads.staged[n.id]
    parts = ring.cluster.along(axes)
    if parts == 1:
        return {}, 0
    tile = staged.tile
    assert tile is not None
    count, own = share(staged, parts), ring.cluster.share(b, axes)
    # Of a tile of pairs each of two brings those of one half.
    rows = {PAIR: scaled(b, own, 2)} if tile.block > count else {tile.other: scaled(b, own, count)}
    return rows, scaled(b, own, count * tile.span)


def _slot(low: Lowering, ring: Ring, staged: Staged) -> Any:
    """First byte of a member's tile in the ring's slot."""
    return total(low.b, [scaled(low.b, ring.slot, staged.place.bytes), staged.offset])


def wait_full(low: Lowering, ring: Ring) -> None:
    """Wait until the slot's tiles are there, once per use of the slot."""
    if not ring.waited:
        low.note(f"wait for ring {ring.name}")
        low.b.signal_wait(ring.full(low), ring.parity)
        if ring.threaded:
            low.b.proxy_fence()  # what threads copied is seen by matrix instructions
        ring.waited = True


def release(low: Lowering, ring: Ring, slot: Any = None, when: Value | None = None, met: bool = False) -> bool:
    """This wave has read a slot (this one) for the last time; `when`: only if that holds. One lane says so: for matrix
    instructions, which end for the whole warpgroup, or for all lanes once they have `met`. Gives whether they meet for
    it."""
    b = low.b
    meets = not met and any(n.id in low.reads.fetched for n in ring.members)
    if meets:
        b.wave_barrier()
    if not handed(low, ring):
        return meets
    low.note(f"give back ring {ring.name}" + (": the slot of the trip before" if slot is not None else ""))
    partners = ring.partners
    mask = b.cmp("slt", b.lane(), partners)
    mask = mask if when is None else b.pand(mask, when)
    if partners > 1:
        partner = ring.cluster.partner(b, b.min_s(b.lane(), partners - 1), ring.shared.values())
        b.signal_arrive_at(ring.empty(low, slot), partner, mask)
    else:
        b.signal_arrive(ring.empty(low, slot), mask)
    return meets
