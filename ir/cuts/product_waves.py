"""Waves of a workgroup with products whose registers lack, where the user has not said who has what.

In: a graph, its partition as the constraints and a chip's usual number of waves give it. Out: what a wave has of each
dimension in other ways to divide the same tiles, best first; none where the first way will do.

A dimension that no constraint cuts lies in one wave as a whole: the hidden one of `act(x @ W1) @ W2`, say, of which
512 columns are more registers than a wave has. So waves share the columns of a product there; a product that contracts
these has a part of its sums in each wave, and the parts are added through shared memory (`lower_matrix`). Or there are
more waves, of smaller tiles.

A narrow product beside a wide one, as `x @ A` of low rank beside `x @ W`, is computed anew by all waves that share the
wide one's columns. Where as many waves along other dimensions take a tenth less time, they are divided so.

Invariant: a kernel whose values fit, and of which no product is repeated, is cut as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from wavedsl.ir.cuts.register_file import (
    ADDRESSES,
    VECTORS,
    held_words,
    loop_words,
    staged_reads,
    tile_bytes,
    worked_words,
)
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, factors
from wavedsl.ir.dataflow.mma_dims import product_dims
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import VECTOR_BYTES, Target, compute_room, wave_room

if TYPE_CHECKING:
    from wavedsl.ir.cuts.partition import DimPlan, Partition

WAVES = (1, 2, 4, 8, 16)
"""How many waves may share a dimension."""
WARPGROUPS = (1, 2, 3, 4, 8)
"""The same of warpgroups, of which one has any number of 64 rows: 192 queries are three's."""
DEAREST = 0.9
"""Share of the time that is reason enough to divide a product otherwise that waves repeat."""
BESIDE = 0.25
"""Share of the shorter of two units' clocks that counts: one waits for the other where a trip begins and ends."""
UNKNOWN = 16
"""Trips of a loop of which nobody knows how many it has."""
MOST = 8
"""Ways that are tried: each is laid out and lowered where the one before it does not fit shared memory."""


@dataclass(frozen=True)
class Share:
    """A part of a dimension per wave. `tile`: `waves` of them, which may be more than there are elements."""

    wave: int
    tile: int

    @property
    def waves(self) -> int:
        return self.tile // self.wave


@dataclass(frozen=True)
class _Way:
    """One way to divide the tiles, with what it needs and takes."""

    shares: Mapping[Any, Share]
    waves: int
    full: bool
    """Whether values alone are more than a wave has registers, or than vector instructions reach."""
    lack: int
    """Registers of a lane that it has too few for values, what products read next, and addresses."""
    clocks: float
    read: int
    """What warpgroups' instructions read of shared memory: all columns anew for every 64 rows."""


def other_ways(
    graph: Graph, partition: Partition, free: Mapping[Any, int], together: Collection[Any], limit: int, target: Target,
    crowded: bool = False, picked: Collection[Any] = (),
) -> list[dict[Any, Share]]:
    """Shares of the dimensions by which to cut the graph instead, best first. `free`: dimensions whose tiles waves may
    share, and the elements that stay together there; `together`: those that are one wave's; `limit`: waves of a
    workgroup; `crowded`: registers are known to lack, and more waves are wanted; `picked`: dimensions along which
    elements are picked. Waves share them only where registers lack, for they wait for each other whenever they pick."""
    products = list(_products(graph.region, partition, 1))
    if not products:
        return []
    work = _Work(graph, partition, products, target)
    plain = {d: Share(p.wave, p.tile) for d, p in partition.dims.items()}
    lacks = crowded or registers_lack(graph, partition, target)
    fetched = bool(work.fetched) and bool(graph.loops())
    if not lacks and not fetched and not _repeated(products, partition):
        return []
    kept = {*together, *partition.derived, *(() if lacks else picked)}
    whole = _uncut_columns(products, partition, kept) if lacks or fetched else []
    choices: dict[Any, list[Share]] = {}
    for d in free:
        choices[d] = _parts(partition.dims[d], free[d], WARPGROUPS if target.asynchronous else WAVES)
    for d in whole:
        unit = max(target.tile_rows, *(_depth(n, target) for n, _ in products))
        choices[d] = [plain[d], *_columns(partition.dims[d], unit)]
    before = work.way(plain, partition.waves, whole=True)
    found = []
    for picked in product(*choices.values()):
        shares = {**plain, **dict(zip(choices, picked))}
        waves = prod(s.waves for s in shares.values())
        if waves > limit or waves * target.wave_size > target.max_threads or shares == plain:
            continue
        if lacks or waves == partition.waves:
            found.append(work.way(shares, waves))
    if crowded:
        found = [w for w in found if w.waves > partition.waves]
    elif lacks:
        found = [w for w in found if (w.full, w.lack) < (before.full, before.lack)]
    else:
        found = [w for w in found if not w.lack and w.clocks <= DEAREST * before.clocks]
    found.sort(key=lambda w: (w.full, w.lack, w.clocks, w.waves, w.read))
    return [{d: s for d, s in w.shares.items() if s != plain[d]} for w in found[:MOST]]


def registers_lack(graph: Graph, partition: Partition, target: Target) -> bool:
    """Whether values alone are more than a wave has registers, or those of loops more than vector instructions can
    name; with addresses, where warpgroups are dealt registers. (Of 92 tiles of attention all that lack some so
    spill, and of the others three do, ptxas 13.)"""
    products = list(_products(graph.region, partition, 1))
    shares = {d: Share(p.wave, p.tile) for d, p in partition.dims.items()}
    work = _Work(graph, partition, products, target)
    if target.asynchronous:
        return bool(products) and work.held(shares) + ADDRESSES > compute_room(target, partition.waves)
    room = wave_room(target, partition.waves)
    return bool(products) and (work.held(shares, whole=True) > room or work.crowded(shares, room))


def _products(region: Region, partition: Partition, trips: int) -> Iterator[tuple[Node, int]]:
    """Products, and how often each is computed."""
    for n in region.nodes:
        if n.op in PRODUCTS:
            yield n, trips
        elif n.op in REGIONS:
            body: Region = n.attrs["body"]
            times = 1 if n.op == "when" else UNKNOWN
            if body.dim is not None:
                known = partition.dims[body.dim].trips
                times = UNKNOWN if known is None else known
            yield from _products(body, partition, trips * times)


def dims_of_all(products: Sequence[Node]) -> list[Any]:
    """Dimensions that the results of all products have."""
    return [d for d in products[0].dims if all(d in n.dims for n in products)]


def _repeated(products: Sequence[tuple[Node, int]], partition: Partition) -> bool:
    """Whether waves compute the same product."""
    shared = {d for d, p in partition.dims.items() if p.waves > 1}
    return any(shared - set(product_dims(n)) for n, _ in products)


def _uncut_columns(products: Sequence[tuple[Node, int]], partition: Partition, kept: Collection[Any]) -> list[Any]:
    """Dimensions of products' results that lie in one wave because no constraint cuts them, nor has a part such as
    `N / 32` in another value."""
    follow = {s for d in partition.dims for s in getattr(d, "free_symbols", ()) if s != d}
    found = dict.fromkeys(d for n, _ in products for d in n.dims)
    return [d for d in found if partition.dims[d].role == "whole" and d not in kept and d not in follow]


def _parts(plan: DimPlan, unit: int, counts: Sequence[int]) -> list[Share]:
    """Shares of a tile along the grid for so many waves."""
    even = {plan.tile // n for n in counts if plan.tile % (n * unit) == 0}
    return [Share(wave, plan.tile) for wave in sorted({*even, plan.wave}, reverse=True)]


def _columns(plan: DimPlan, unit: int) -> list[Share]:
    """Shares of a dimension as a whole, each a multiple of what instructions take; the last one may be short. Of 96
    columns in parts of 32, three."""
    found = {}
    for n in WAVES[1:]:
        wave = -(-plan.tile // (n * unit)) * unit
        waves = -(-plan.tile // wave)
        if waves > 1:
            found[wave] = Share(wave, waves * wave)
    return [*found.values()]


def _depth(n: Node, target: Target) -> int:
    """Elements of the contracted dimension that the longest instruction for a product takes."""
    return max((a.k for a in _atoms(n, target)), default=1)


def _atoms(n: Node, target: Target) -> list[Any]:
    x, y = (n.inputs[p].dtype for p in factors(n))
    scaled = n.op == "scaled_mma"
    return [
        a for a in target.mma_atoms
        if {a.a_dtype, a.b_dtype} == {x, y} and a.blocks == a.parts == 1 and scaled == bool(a.scale_block)
    ]  # fmt: skip


class _Work:
    """What the products of a kernel need and take, of any way to divide them."""

    def __init__(self, graph: Graph, partition: Partition, products: Sequence[tuple[Node, int]], target: Target):
        self.graph, self.partition, self.products, self.target = graph, partition, products, target
        self.staged = staged_reads(graph)
        self.asynchronous = target.asynchronous
        self.fetched = set() if self.asynchronous else self._fetched()
        self.staged -= self.fetched

    def _fetched(self) -> set[int]:
        """Reads outside of loops that waves fetch themselves, because shared memory has no room for their tiles beside
        those of loops; largest first."""
        tiles = {d: plan.tile for d, plan in self.partition.dims.items()}
        sizes = {n.id: tile_bytes(n, tiles) for n in self.graph.all_nodes() if n.id in self.staged}
        outside = [n.id for n in self.graph.region.nodes if n.id in self.staged]
        found: set[int] = set()
        for number in sorted(outside, key=lambda i: (-sizes[i], i)):
            if sum(size for i, size in sizes.items() if i not in found) <= self.target.shared_bytes:
                break
            found.add(number)
        return found

    def held(self, shares: Mapping[Any, Share], whole: bool = False) -> int:
        """Registers of values. `whole`: with all of what waves fetch themselves at a time."""
        waves = {d: s.wave for d, s in shares.items()}
        if self.asynchronous:
            return loop_words(self.graph, waves, self.target)
        return held_words(self.graph, waves, self.target, self.fetched, whole)

    def crowded(self, shares: Mapping[Any, Share], room: int) -> bool:
        """Whether what vector instructions of loops compute with is more than they can name, where a wave has more."""
        most = VECTORS - ADDRESSES
        if room <= VECTORS or self.held(shares) <= most:
            return False
        return worked_words(self.graph, {d: s.wave for d, s in shares.items()}, self.target) > most

    def way(self, shares: Mapping[Any, Share], waves: int, whole: bool = False) -> _Way:
        held, room = self.held(shares, whole), compute_room(self.target, waves)
        needed = held + ADDRESSES + max(self._fragments(n, shares) for n, _ in self.products)
        full = held > room or self.crowded(shares, room)
        read = sum(trips * waves * self._anew(n, shares) for n, trips in self.products) if self.asynchronous else 0
        return _Way(shares, waves, full, max(0, needed - room), self._clocks(shares, waves), read)

    def _anew(self, n: Node, shares: Mapping[Any, Share]) -> int:
        """Elements of one K that instructions of a warpgroup read for a wave's part of a product."""
        m, cols, _ = (1 if d is None else shares[d].wave for d in product_dims(n))
        rows = self.target.tile_rows
        return -(-m // rows) * (rows + cols)

    def _fragments(self, n: Node, shares: Mapping[Any, Share]) -> int:
        """Registers of what one step along K reads of shared memory."""
        if self.asynchronous:
            return 0
        k, found = product_dims(n)[2], 0
        for x in (n.inputs[p] for p in factors(n)):
            rows = prod(shares[d].wave for d in x.dims if d != k)
            found += rows * min(_depth(n, self.target), shares[k].wave) * x.dtype.bits
        return -(-found // (32 * self.target.wave_size))

    def _clocks(self, shares: Mapping[Any, Share], waves: int) -> float:
        """Clocks of a workgroup: of matrix units or of shared memory, whichever take longer, a share of the others',
        which are not always beside them, and those of sums over waves and of fetches outside of loops."""
        matrix = shared = 0.0
        sums = sum(self._fetching(n, shares) * waves for n in self.graph.region.nodes if n.id in self.fetched)
        for n, trips in self.products:
            matrix += trips * self._matrix(n, shares) * -(-waves // self.target.simds)
            shared += trips * self._reading(n, shares) * waves
            sums += trips * self._summing(n, shares) * waves
        return max(matrix, shared) + BESIDE * min(matrix, shared) + sums

    def _matrix(self, n: Node, shares: Mapping[Any, Share]) -> float:
        m, cols, k = (1 if d is None else shares[d].wave for d in product_dims(n))
        costs = [
            a.cycles * -(-rows // a.m) * -(-others // a.n) * -(-k // a.k)
            for a in _atoms(n, self.target)
            for rows, others in ((m, cols), (cols, m))
        ]
        return float(min(costs, default=m * cols * k * self.target.cost("valu").cycles // self.target.wave_size))

    def _reading(self, n: Node, shares: Mapping[Any, Share]) -> float:
        if self.asynchronous:
            return 0.0
        elements = sum(
            prod(shares[d].wave for d in x.dims) * x.dtype.bits // 8
            for x in (n.inputs[p] for p in factors(n))
            if x.id in self.staged
        )
        return elements / (VECTOR_BYTES * self.target.wave_size) * self.target.cost("load.shared", VECTOR_BYTES).cycles

    def _fetching(self, n: Node, shares: Mapping[Any, Share]) -> float:
        """Clocks of the port to memory while a wave fetches its elements of an operand outside of loops."""
        elements = prod(shares[d].wave for d in n.dims) * n.dtype.bits / 8
        cycles = self.target.cost("load.global", VECTOR_BYTES).cycles
        return elements / (VECTOR_BYTES * self.target.wave_size) * cycles

    def _summing(self, n: Node, shares: Mapping[Any, Share]) -> float:
        """Clocks of shared memory for a wave's part of sums over waves: it stores its own and reads all."""
        parts = shares[product_dims(n)[2]].waves
        if parts == 1:
            return 0.0
        vectors = prod(shares[d].wave for d in n.dims) * n.dtype.bits / 8 / (VECTOR_BYTES * self.target.wave_size)
        store, load = (self.target.cost(kind, VECTOR_BYTES).cycles for kind in ("store.shared", "load.shared"))
        return vectors * (store + parts * load)


__all__ = ["Share", "other_ways", "registers_lack"]
