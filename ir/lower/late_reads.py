"""Reads of a result's epilogue: a bias, scales, the addend C. They are loaded while results are being stored.

In: a kernel whose products have many results, or one that holds long rows until their sums are known. A tile of
128 x 256 of two warpgroups has as many addends as sums, and a column's scale for every fourth register: loaded all at
once they leave no registers for what is computed of them. So a read that only elementwise steps and writes use has its
loads emitted when somebody asks for an element, and `Ahead` asks for the elements of the next stores, as many as
registers hold.

Invariant: what reads and users are in one region, so a load stands before all that needs it; nothing in the region
writes to the array but results in place of what is read, whose stores need their own elements' loads (`in_place`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from wavedsl.ir.addresses.move_elements import join_register
from wavedsl.ir.cuts.register_file import ADDRESSES
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.dataflow.views import is_tile, same_place
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.fragment import Fragment, Lazy, OnDemand, per_register, register_count
from wavedsl.ir.lower.in_place import elementwise, stored_over
from wavedsl.ir.lower.loop_registers import wave_registers
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.product_stages import register_room
from wavedsl.ir.schedule.steps import Context, Step

FREE = 80
"""Registers that stay free of sums and loads: addresses, slots, and what a few elements take on their way."""
SHARED = 32
"""As many for each further result: what a panel of two results has in common is held from one to the other."""
DEALT = 16
"""As many where results are stored in branches: the numbers of tiles and trips that decide about them."""
LEAST = 8
"""Registers that loads may hold even where there is less room."""

TOGETHER = 128
"""Registers of the loads of one store from which on these go in turn: the neighbours of a filter of 11 x 11, four
pixels to a lane, are 484. Started all together they took accumulation registers and scratch."""
WINDOW = 96
"""Registers of such loads that are on their way: 24 KB of a wave of AMD's, and room for what is computed."""
FLYING = 32
"""Registers of loads on their way where long values, or parts of sums, go element by element: eight of 16 bytes, 128 KB
of a compute unit with 16 waves, which is more than memory's latency times a unit's share of its rate. A quarter of a
lane's where it has fewer than four times as many: the others hold what is computed of them."""


def is_late(low: Lowering, n: Node) -> bool:
    """Whether a read is loaded as results are stored: beside a row, where a compute unit holds more workgroups so.
    Otherwise it is better loaded with the row, for nobody waits for it then."""
    if not _can_be_late(low, n):
        return False
    region = low.region_of(n)
    joins = [x for x in low.effects(region) if x.op == "join_parts" and low.region_of(x) is region]
    if joins:
        return not _beside_sums(low, n, joins)
    if not low.row_registers:
        return True
    others = [x for x in low.graph.region.nodes if x.op == "read" and _can_be_late(low, x)]
    words = sum(register_count(low.layout(x), x.dtype) for x in others)
    return _resident(low, words) < _resident(low, LEAST)


def _beside_sums(low: Lowering, n: Node, joins: Sequence[Node]) -> bool:
    """Whether what is read for a share of a tile has room beside the sums of all of it, which a cluster is about to
    add: then it is loaded before the cluster meets, and nobody waits for it."""
    sums = sum(register_count(low.layout(x.inputs[0]), x.dtype) for x in joins)
    reads = [x for x in low.region_of(n).nodes if x.op == "read" and _can_be_late(low, x)]
    words = sum(register_count(low.layout(x), x.dtype) for x in reads)
    return sums + words + FREE <= register_room(low)


def _resident(low: Lowering, words: int) -> int:
    """Waves on a compute unit that have a row and so many registers of loads beside it."""
    threads = low.partition.waves * low.target.wave_size
    return low.target.resident_waves(low.row_registers + ADDRESSES + words, 0, threads)


def _beside_row(low: Lowering) -> int:
    """Most registers that loads may hold beside a row without a workgroup less on a compute unit."""
    least = _resident(low, LEAST)
    room = wave_registers(low) - low.row_registers - ADDRESSES
    return max((words for words in range(LEAST, room + 1) if _resident(low, words) == least), default=LEAST)


def _can_be_late(low: Lowering, n: Node) -> bool:
    """Whether a read may be loaded as results are stored."""
    region = low.region_of(n)
    if not low.computes_late(region) or n.id in low.reads.staged or n.id in low.reads.ring_of:
        return False
    if not n.dims or low.arrays[n.attrs["memory"]].dtype.packed:
        return False
    if region is low.graph.region and not low.streams and not is_tile(low.graph, n):
        return False
    for x in low.effects(region):
        if x.op in ("fence", "join_parts") and region is not low.graph.region and _precedes(region, x, n):
            continue
        if x.op not in ("write", "iterate"):
            return False
        if x.op == "write" and x.attrs["memory"] == n.attrs["memory"] and stored_over(low, n) is not x:
            if not low.streams or same_place(n, x):
                return False
    return _only_stored(low, n)


def _only_stored(low: Lowering, n: Node) -> bool:
    """Whether only elementwise steps and writes of tiles, in the region of a value, use it and what is made of it."""
    users, known = low.users(), low.writes.only_stored

    def steps(x: Node) -> list[Node]:
        region = low.region_of(x)
        return [u for u in users.get(x.id, ()) if low.region_of(u) is region and elementwise(low, u)]

    def stores(u: Node) -> bool:
        return u.op == "write" and is_tile(low.graph, u) and not low.arrays[u.attrs["memory"]].dtype.packed

    for x in postorder(n, steps, known):
        region, taken = low.region_of(x), steps(x)
        others = [u for u in users.get(x.id, ()) if u not in taken]
        known[x.id] = all(known[u.id] for u in taken) and all(low.region_of(u) is region and stores(u) for u in others)
    return known[n.id]


def _precedes(region: Region, x: Node, n: Node) -> bool:
    """Whether `x` stands in front of `n`, one of the region's nodes, and is itself one of them."""
    return next(y for y in region.nodes if y is x or y is n) is x


def late_step(low: Lowering, n: Node, loads: Sequence[Step]) -> Step:
    """In place of a read's loads: the promise of them."""
    keys = low.keys(n)

    def emit(context: Context) -> None:
        value = LateRead(low, n, context, loads)
        for key in keys:
            context.env[key] = value

    uses = tuple(dict.fromkeys(k for s in loads for k in s.uses))
    return Step(f"read {n.attrs['memory']} as results are stored", "compute", (), 0, uses, keys, emit, "", n.loc)


class LateRead(OnDemand):
    """A read whose loads are emitted as its elements are asked for."""

    def __init__(self, low: Lowering, n: Node, context: Context, loads: Sequence[Step]):
        self.layout, self.dtype = low.layout(n), n.dtype
        self.b, self.low, self.node, self.context, self.loads = low.b, low, n, context, loads
        self.home = low.homes(n)
        self.loaded: dict[int, Value] = {}
        self.joined: dict[int, Value] = {}

    def word(self, b: Builder, index: int) -> Value:
        found = self.joined.get(index)
        if found is None:
            found = self.joined[index] = join_register(b, self.layout, self.dtype, index, self._source)
        return found

    def element(self, b: Builder, index: int) -> Value:
        per = per_register(self.dtype)
        word = self.word(b, index // per)
        return word if per == 1 else b.unpack(word, self.dtype, index % per)

    def touch(self, index: int) -> None:
        g = self.home[index][0]
        if self.low.writes.wished is not None:
            self.low.writes.wished.append((self, g))
        else:
            self.start(g)

    def _source(self, element: int) -> tuple[Value, int]:
        g, position = self.home[element]
        return self._load(g), position

    def _load(self, g: int) -> Value:
        found = self.start(g)
        if self.low.writes.turns is not None:
            self.low.writes.turns.used(self, g)
        return found

    def start(self, g: int) -> Value:
        """The load of a group, emitted if it is not yet."""
        found = self.loaded.get(g)
        if found is None:
            env, key = self.context.env, self.loads[g].defs[0]
            with self.low.b.loc(self.node.loc):
                self.loads[g].emit(self.context)
            found = self.loaded[g] = env[key]
            env[key] = self
        return found


class Turns:
    """The loads of one store that are more than registers hold beside each other: `WINDOW` registers of them are on
    their way, each further one is started as one before it is used. Emitted in the region that this is made in alone:
    what is loaded in a branch is not there behind it."""

    def __init__(self, low: Lowering, loads: Sequence[tuple[LateRead, int]]):
        self.low, self.region = low, low.b.region
        self.queue = list(reversed(loads))
        self.flying: dict[tuple[int, int], int] = {}
        self.words = 0
        self._fill()

    def used(self, read: LateRead, g: int) -> None:
        """What a group has loaded is asked for: others may follow."""
        words = self.flying.pop((read.node.id, g), 0)
        self.words -= words
        if words and self.low.b.region is self.region:
            self._fill()

    def _fill(self) -> None:
        while self.queue and self.words < WINDOW:
            read, g = self.queue.pop()
            if g not in read.loaded:
                words = self.flying[read.node.id, g] = read.start(g).type.words
                self.words += words


class Ahead:
    """Starts the loads of the stores to come, in their order. `pieces`: per store a value and which of its elements it
    takes; `together`: these are computed operation by operation, not one after the other."""

    def __init__(self, low: Lowering, pieces: Sequence[tuple[Fragment, Sequence[int]]], together: bool = True):
        self.low, self.pieces, self.together = low, pieces, together
        if low.row_registers:
            self.most = _beside_row(low)
        elif low.streams:
            self.most = min(FLYING, wave_registers(low) // 4)
        else:
            room = register_room(low) if low.matrix.strategy.bulk else wave_registers(low)
            held = _held([value for value, _ in pieces])
            results = len({id(value) for value, _ in pieces})
            dealt = 0 if low.computes_late(low.graph.region) else DEALT
            self.most = max(LEAST, room - held - FREE - dealt - SHARED * (results - 1))
        self.words: list[int] = []
        """Registers that were loaded for each store whose loads have been started."""
        self.flying = 0
        self.at = 0

    def next(self) -> None:
        """The next store is about to be computed."""
        if self.at < len(self.words):
            self.flying -= self.words[self.at]
        self.at += 1
        while len(self.words) < len(self.pieces) and (len(self.words) <= self.at or self.flying < self.most):
            value, elements = self.pieces[len(self.words)]
            loads = self._wishes(value, elements)
            loaded = sum(max(1, read.loads[g].words) for read, g in loads)
            if loaded > TOGETHER:
                self.low.writes.turns = Turns(self.low, loads)
            else:
                for read, g in loads:
                    read.start(g)
            self.words.append(loaded)
            if len(self.words) > self.at:
                self.flying += loaded

    def _wishes(self, value: Fragment, elements: Sequence[int]) -> list[tuple[LateRead, int]]:
        """The loads that elements wait for and that are not started, in the order in which they will be used."""
        writes, found = self.low.writes, []
        for e in elements:
            writes.wished = []
            value.touch(e)
            found.append(writes.wished)
        writes.wished = None
        in_turn = [load for loads in (zip_longest(*found) if self.together else found) for load in loads if load]
        once = {(read.node.id, g): (read, g) for read, g in in_turn}
        return [(read, g) for read, g in once.values() if g not in read.loaded]


def compute_ahead(low: Lowering, value: Fragment) -> None:
    """Compute what a loop hands on of reads that are late, with loads ahead as for stores: a sum of parts would wait
    for each of its loads. ptxas has an order of its own."""
    if low.target.assembler_schedules or not isinstance(value, Lazy):
        return
    ahead = Ahead(low, [(value, (e,)) for e in range(value.layout.elements_per_lane)])
    ahead.most = min(ahead.most, FLYING)  # those of the loop whose parts these are suffice
    for e in range(value.layout.elements_per_lane):
        ahead.next()
        value.element(low.b, e)


def _held(values: Sequence[Fragment]) -> int:
    """Registers of what values are computed of and is there already, or while elements are computed, each once."""
    held = 0
    work, seen = list(values), set()
    while work:
        x = work.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Lazy):
            held += x.beside
            work += [source for source, _ in x.sources]
        elif not isinstance(x, LateRead):
            held += register_count(x.layout, x.dtype)
    return held


__all__ = ["Ahead", "LateRead", "compute_ahead", "is_late", "late_step"]
