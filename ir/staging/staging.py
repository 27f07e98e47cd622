"""Which way a read goes through shared memory: where its tile lies, and how waves copy and load it.

In: a read node, its array, the layout its value needs. Out: a `Staged` plan. Bulk copies and matrix instructions that
read the tile have places of their own; else the placement is chosen by counted bank conflicts of the copy and of the
fragment loads (`shared_search`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd, inf, prod

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.copy_ways import (
    CopyWay,
    Trip,
    copy_bits,
    copy_ways,
    register_blocks,
    transposing_clocks,
    without_arithmetic,
)
from wavedsl.ir.addresses.direct_copy import (
    DirectCopy,
    direct_clocks,
    filled_directly,
    linear_widths,
    not_direct,
    plan_direct,
)
from wavedsl.ir.addresses.fragment_loads import (
    JOINED_ATOMS,
    UNIT_ATOMS,
    VECTOR_ATOMS,
    plan_place_addresses,
    wave_digits,
)
from wavedsl.ir.addresses.staged import Staged, copy_vector, tile_extents
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan, Partition
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.errors import CompileError, ConstraintError, WaveError
from wavedsl.ir.inference.mma_plan import MmaPlan
from wavedsl.ir.layouts.bits import Bits, bit
from wavedsl.ir.layouts.column_pairs import rows_apart
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.matrix_tile import SPANS, MatrixTile, matrix_tile, row_tile
from wavedsl.ir.layouts.place import Place, row_major
from wavedsl.ir.layouts.plan_addresses import AddressPlan
from wavedsl.ir.layouts.plan_load import LoadPlan
from wavedsl.ir.layouts.shared_search import (
    MECHANISMS,
    PlaceChoice,
    RowVectors,
    SharedAccess,
    access_cost,
    choose_place,
    too_large,
)
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import LoadAtom, Target


def plan_staged(
    node: Node, info: ArrayInfo, layout: Layout, contracted: str | None, partition: Partition, target: Target,
    slots: int, budget: int, trips: int, direct: bool | None, reading: LoadAtom | None = None,
    trip: Trip | None = None, paired: bool = False, others: Sequence[Layout] = (), added: bool = False,
    dense: bool = False,
) -> Staged:  # fmt: skip
    """Choose copy mechanism, orientation and swizzle of one staged read. Raises ConstraintError when it does not fit.
    `direct`: whether the copy must, or must not, pass by the registers (None: what costs less).

    The tile lies with the contracted dimension contiguous (fragments are then plain vectors), or as in memory where a
    load atom can transpose on the way to registers: whichever costs fewer cycles, copies included, and
    `without_arithmetic` where the `trip` of a loop is none the longer for it. `reading`: the only way to read the
    fragments, where elements are units. `paired`: instructions of column pairs take them. `others`: layouts that reads
    of the same elements need, which `taken_too` gives the same place. `added`: lanes multiply and add the elements
    themselves, where it matters which registers they come to (`_ways`). `dense`: whatever banks its copies meet in, as
    long as rows leave no gaps.
    """
    layouts = (layout, *others)
    plans = {dim_name(d): p for d, p in partition.dims.items()}
    order = memory_order(info, layout)
    covered = [tile_extents(x, order, plans) for x in layouts]
    extents = {d: max(tile[d] for tile in covered) for d in order}
    vectors = UNIT_ATOMS if info.elsize == UNIT_ATOMS[0].bytes else VECTOR_ATOMS
    exchanging = tuple(a for a in target.load_atoms if a.lane)
    atoms = (*vectors, *(exchanging or JOINED_ATOMS)) if reading is None else (reading,)
    fragments = tuple(
        SharedAccess(f"fragments{i or ''}", "read", x, trips, partition.waves, atoms, chip=target.name)
        for i, x in enumerate(layouts)
    )
    request = _Request(
        info, layouts, contracted, partition, plans, target, slots, budget, trips, direct, paired, extents,
        any(_ragged(x, plans) for x in layouts), copy_vector(info, extents, plans), vectors, fragments,
        added, dense,
    )  # fmt: skip
    found: list[_Candidate] = []
    error: WaveError | None = None
    for way in _ways(request, packed=node.dtype.packed):
        try:
            candidate = _candidate(request, way, found)
        except (CompileError, ConstraintError) as problem:
            error = problem
            continue
        if candidate is not None:
            found.append(candidate)
    if not found:
        if direct and not isinstance(error, ConstraintError):
            error = not_direct(target, info, extents, request.vector * info.elsize, partition.waves, error)
        assert error is not None
        raise _said_of(info, node, error)
    best = found[without_arithmetic([(c.clocks, c.busy, c.computed) for c in found], trip)]
    way, choice = best.way, best.choice
    loads, stored = choice.accesses[0].plan, choice.accesses[1].plan
    assert loads is not None
    piece = neighbours(stored) if stored is not None else way.vector if way.fast == request.memory_fast else 1
    return Staged(
        node, info, layout, extents, way.vector, request.threads, best.asynchronous, choice.place, loads,
        best.addresses, loads.groups(layout), min(piece, way.vector if way.deep == 1 else way.deep), 0, choice,
        deep=way.deep, across=way.across, direct=best.direct, clocks=best.clocks,
    )  # fmt: skip


SECTOR = 32
"""Bytes of memory that are fetched together at least: lanes that copy single words take as many of a row."""


def memory_order(info: ArrayInfo, layout: Layout) -> list[str]:
    """The dimensions of a tile as they lie in memory: the one that is contiguous there comes last."""
    c = info.contiguous()
    names = [d for d in info.names if d in layout.dims]
    fast = info.names[c] if c is not None and info.names[c] in names else names[-1]
    return [d for d in names if d != fast] + [fast]


@dataclass(frozen=True)
class _Request:
    """What `plan_staged` was asked for, and what holds of the tile whichever way it is copied.

    `layouts`: the read's own, then those of `others`, and `fragments` how each is loaded. `extents`: the tile, in
    memory order. `ragged`: some wave's tile is no multiple of its fragment, so no bits of an address say where it lies.
    `vector`: elements of the array that one copy can move at the most. `vectors`: atoms for stores.
    """

    info: ArrayInfo
    layouts: tuple[Layout, ...]
    contracted: str | None
    partition: Partition
    plans: Mapping[str, DimPlan]
    target: Target
    slots: int
    budget: int
    trips: int
    direct: bool | None
    paired: bool
    extents: dict[str, int]
    ragged: bool
    vector: int
    vectors: tuple[LoadAtom, ...]
    fragments: tuple[SharedAccess, ...]
    added: bool
    dense: bool

    @property
    def memory_fast(self) -> str:
        """The dimension that is contiguous in memory."""
        return next(reversed(self.extents))

    @property
    def threads(self) -> int:
        return self.target.wave_size * self.partition.waves

    @property
    def elements(self) -> int:
        return prod(self.extents.values())


@dataclass(frozen=True)
class _Candidate:
    """One way to copy the tile, the place that serves it and all reads best, and what that costs: `clocks` over all
    trips, `busy` clocks of LDS per trip, and whether vector instructions prepare the tile (`computed`)."""

    way: CopyWay
    asynchronous: bool
    direct: DirectCopy | None
    choice: PlaceChoice
    addresses: AddressPlan
    clocks: float
    busy: int
    computed: bool


def _ways(request: _Request, packed: bool) -> list[CopyWay]:
    """The ways to copy the tile: through registers with either dimension contiguous, and lane by lane as in memory.

    Where lanes multiply and add words themselves, those of one element of the contracted dimension must not all come to
    one bank of registers, as every fourth register of vectors along it does. So that dimension is not the contiguous
    one, if the chip's copies can lay down single words elsewhere, or, where copies must pass through registers, threads
    have whole blocks to transpose there.
    """
    r, es = request, request.info.elsize
    fast, widest, order = r.memory_fast, r.vector, list(r.extents)
    if r.added and r.target.register_banks and es == 4 and len(order) == 2 and r.contracted in order:
        if fast != r.contracted:
            return copy_ways(fast, fast, widest, es, r.extents, r.threads, order)
        across = next(d for d in order if d != fast)
        if r.direct is not False and es in r.target.copy_async and r.elements % r.threads == 0:
            way = CopyWay(across, 1, across=SECTOR // es)
            lanes, waves = r.target.wave_size, r.partition.waves
            return [way if copy_bits(fast, [across], r.extents, way, lanes, waves) is not None else CopyWay(across, 1)]
        if blocks := register_blocks(across, widest, r.elements // r.threads if r.elements % r.threads == 0 else 0):
            return blocks
    orientations = [d for d in dict.fromkeys([r.contracted or fast, fast]) if d in r.extents]
    ways = [way for d in orientations for way in copy_ways(d, fast, widest, es, r.extents, r.threads, order)]
    if r.target.copy_linear and r.direct is not False and fast in orientations and not (packed and es & es - 1):
        widths = linear_widths(r.target, widest * es, es, r.elements * es, r.partition.waves)
        ways += [CopyWay(fast, width // es, linear=width) for width in widths]
    return ways


def _candidate(request: _Request, way: CopyWay, found: Sequence[_Candidate]) -> _Candidate | None:
    """The best place for one way to copy the tile, and the cost of both; None where threads cannot copy it so, or not
    by the registers where they must, or where `without_arithmetic` prefers what has been found before. Raises
    CompileError or ConstraintError where no place serves all."""
    r, target = request, request.target
    lanes, waves = target.wave_size, r.partition.waves
    copy = None if way.linear else copy_bits(r.memory_fast, list(r.extents)[:-1], r.extents, way, lanes, waves)
    if copy is None and (way.deep > 1 or way.across):
        return None
    asynchronous = _copied_asynchronously(r, way)
    if r.direct and not asynchronous:
        return None
    limit = inf if asynchronous else _limit(r, way, found)
    placed = _placed(r, way, _stores(r, way, copy, asynchronous), limit)
    if placed is None:
        return None
    choice, addresses = placed
    filled = plan_direct(choice.place, way.linear, lanes, waves) if way.linear else None
    clocks, busy, computed = _cost(r, way, asynchronous, filled, choice)
    return _Candidate(way, asynchronous, filled, choice, addresses, clocks, busy, computed)


def _limit(request: _Request, way: CopyWay, found: Sequence[_Candidate]) -> float:
    """What the place may cost so that the way can still be taken instead of one that has been found: as the cheapest of
    all, or the cheapest without vector instructions. Copies through registers add to it what transposing costs."""
    best = min((c.clocks for c in found if not c.computed or _computes(request, way)), default=inf)
    return best - _transposing(request, way)


def _copied_asynchronously(request: _Request, way: CopyWay) -> bool:
    """Whether the chip's copy instructions bring the tile, by the registers."""
    r = request
    if way.linear:
        return True
    # Where some threads have no vector, a tile of one slot comes through registers: such loads start while the slot is
    # still read, and of several tiles the first is waited for first (nine places of a filter, rows of 56 pixels).
    ahead = r.slots > 1 or r.elements // way.vector % r.threads == 0
    allowed = r.direct is not False and not r.target.copy_linear and ahead
    kept = way.fast == r.memory_fast or (r.added and way.vector == 1)  # elements stay side by side, or are alone
    return allowed and kept and way.vector * r.info.elsize in r.target.copy_async


def _stores(request: _Request, way: CopyWay, copy: Bits | None, asynchronous: bool) -> SharedAccess:
    """The stores of the copy, which `copy` maps to the tile: without it the place must keep whole vectors together."""
    r = request
    widest = (way.vector if way.fast == r.memory_fast else way.deep) * r.info.elsize
    atoms = tuple(a for a in r.vectors if (a.bytes == widest if asynchronous else a.bytes <= widest))
    mechanism, vectors = "registers", None
    if way.linear:
        mechanism = f"lds_dma{way.linear}"
    elif (asynchronous or copy is None) and widest in (4, 8, 16):
        mechanism = f"cp_async{widest}"
    if asynchronous and copy is None and not way.linear and len(r.extents) == 2 and not r.dense:
        row, fast = r.extents
        vectors = RowVectors(row, fast, r.extents[fast] // way.vector, r.elements // way.vector, way.vector)
    return SharedAccess("copy", "write", copy, r.trips, r.partition.waves, atoms, mechanism, vectors, r.target.name)


def _placed(
    request: _Request, way: CopyWay, stores: SharedAccess, limit: float
) -> tuple[PlaceChoice, AddressPlan] | None:
    """The place with the fewest bank conflicts and the addresses of the fragments in it. One without a swizzle where a
    wave's tile is no multiple of its fragment, and where what a wave adds carries across a panel of the place. None
    where each costs more than `limit`."""
    r, target, es = request, request.target, request.info.elsize
    shared = {d: n for d, n in r.extents.items() if d != way.fast} | {way.fast: r.extents[way.fast]}
    fragments, *fragments_too = r.fragments
    accesses = [fragments, stores, *fragments_too]
    fits = filled_directly(way.linear, target, r.partition) if way.linear else None
    problem: CompileError | None = None
    row = r.extents[way.fast] * es
    if row & (row - 1):  # rows in panels: the place that is found may have to give way to a plain one
        limit = inf
    if not r.ragged:
        pairs = r.paired and way.fast != r.contracted and len(shared) == 2
        try:
            choice = choose_place(
                shared, es, accesses, banks=target.banks, phases=target.phases, budget=r.budget, slots=r.slots,
                fits=fits, extra=rows_apart(shared, es, r.layouts[0]) if pairs else (), limit=limit,
            )  # fmt: skip
            return (choice, _fragment_addresses(r, choice)) if choice is not None else None
        except CompileError as error:
            problem = error
    try:
        choice = _plain_place(shared, es, accesses, target, r.budget, r.slots, r.plans, fits)
        return choice, _fragment_addresses(r, choice)
    except CompileError as error:
        raise (problem or error) from None


def _ragged(layout: Layout, plans: Mapping[str, DimPlan]) -> bool:
    """Whether a wave's tile is no multiple of its fragment."""
    return len(wave_digits(layout, plans)[1]) < sum(plans[d].waves > 1 for d in layout.dims)


def _fragment_addresses(request: _Request, choice: PlaceChoice) -> AddressPlan:
    """How the read's fragments are addressed. Raises CompileError where those of any of the reads cannot be."""
    own, *others = request.layouts
    addresses = plan_place_addresses(choice, own, request.plans)
    for i, other in enumerate(others):
        plan_place_addresses(_seen_by(choice, i), other, request.plans)
    return addresses


def _cost(
    request: _Request, way: CopyWay, asynchronous: bool, filled: DirectCopy | None, choice: PlaceChoice
) -> tuple[float, int, bool]:
    """(clocks over all trips, clocks of LDS per trip, whether vector instructions prepare the tile)."""
    r, target, es = request, request.target, request.info.elsize
    clocks, busy, computed = choice.total + _transposing(r, way), choice.cycles, _computes(r, way)
    if filled is not None:
        clocks += direct_clocks(target, filled, r.vector * es, r.trips)
        busy += filled.waves * filled.count * target.cost("store.shared", way.linear).cycles
    elif asynchronous:
        clocks -= r.trips * choice.instructions
        stored = choice.accesses[1]
        if stored.access.vectors is not None:  # what stores of other ways take of such rows nobody counts
            taken = r.partition.waves * stored.worst
            clocks, busy = clocks - r.trips * taken, busy - taken
    for layout, access in zip(r.layouts, (choice.accesses[0], *choice.accesses[2:])):
        fetched = access.plan
        if fetched is not None and fetched.bytes < 4:  # several loads are joined to a register
            joins = layout.elements_per_lane * es // 4 * (4 // fetched.bytes - 1)
            clocks += r.trips * joins * target.clock_unit * -(-r.partition.waves // target.simds)
            computed = True
    return clocks, busy, computed


def _transposing(request: _Request, way: CopyWay) -> float:
    """Clocks over all trips that the copy takes because the tile lies otherwise than in memory."""
    r = request
    if way.fast == r.memory_fast:
        return 0.0
    return r.trips * transposing_clocks(r.target, r.info.elsize, r.elements // r.threads, way.vector, way.deep)


def _computes(request: _Request, way: CopyWay) -> bool:
    """Whether vector instructions transpose the tile."""
    es = request.info.elsize
    return way.fast != request.memory_fast and (way.deep > 1 or es == 1) and es < 4


def _said_of(info: ArrayInfo, node: Node, error: WaveError) -> WaveError:
    """The error as one of the argument that is read here."""
    error.location = error.location or node.loc
    error.message = f"argument {info.name}: {error.message}"
    return error


def taken_too(copied: Staged, i: int, node: Node, layout: Layout, partition: Partition) -> Staged:
    """The plan of the `i`-th of the other reads that `copied` was planned with: its place, and no copy."""
    plans = {dim_name(d): p for d, p in partition.dims.items()}
    choice = _seen_by(copied.cost, i)
    loads = choice.accesses[0].plan
    assert loads is not None
    addresses = plan_place_addresses(choice, layout, plans)
    return replace(
        copied, node=node, layout=layout, loads=loads, addresses=addresses, groups=loads.groups(layout), cost=choice,
        copied_by=copied.node,
    )  # fmt: skip


def _seen_by(choice: PlaceChoice, i: int) -> PlaceChoice:
    """The choice as the `i`-th of the other reads has it: its fragments, then the copy."""
    return replace(choice, accesses=(choice.accesses[2 + i], choice.accesses[1]))


def neighbours(stored: LoadPlan) -> int:
    """Elements that one store of the copy takes in their order: a place that permutes the contiguous dimension may have
    others next to each other, which the copy has not in one register."""
    count = 0
    while count < len(stored.fills) and stored.fills[count] == bit("e", count):
        count += 1
    return 1 << count


def plan_matrix(
    node: Node, info: ArrayInfo, layout: Layout, uses: Sequence[tuple[MmaPlan, bool]], partition: Partition,
    target: Target, slots: int, budget: int, direct: bool | None, threads: int = 0,
) -> Staged:  # fmt: skip
    """Place a read that matrix instructions take from shared memory, and choose how it is copied there: by so many
    `threads`, or all that compute.

    It lies as in memory where every use can take it so, else with the contracted dimension contiguous: then the copy
    transposes it, element by element. Raises ConstraintError when it does not fit.
    """
    plans = {dim_name(d): p for d, p in partition.dims.items()}
    order = memory_order(info, layout)
    memory_fast = order[-1]
    ks = {plan.k for plan, _ in uses}
    fast = memory_fast
    if fast not in ks or len(ks) > 1:
        fast = memory_fast if all(plan.atom.transposes for plan, _ in uses) else min(ks)
    extents = {d: plans[d].tile for d in order}
    unit = extents[fast]
    for plan, is_a in uses:
        if fast != plan.k:
            unit = gcd(unit, gcd(plans[fast].wave, plan.atom.m if is_a else plan.atom.n))
    es = info.elsize
    try:
        tile = matrix_tile(extents, fast, es, unit, slots, max(0 if is_a else plan.block for plan, is_a in uses))
        if tile.place.bytes * slots > budget:
            raise too_large(extents, es, slots, budget)
    except ConstraintError as error:
        raise _said_of(info, node, error) from None
    vector = copy_vector(info, extents, plans)
    threads = threads or target.wave_size * partition.waves
    # tf32 is rounded on the way: the instruction would cut the bits off.
    whole = fast == memory_fast and info.dtype is not dt.tf32
    asynchronous = direct is not False and whole and vector * es in target.copy_async
    if direct and not asynchronous:
        raise _said_of(info, node, not_direct(target, info, extents, vector * es, partition.waves, None))
    piece, way = vector, CopyWay(fast, vector)
    if fast != memory_fast:
        piece, way = _transposing_way(tile, memory_fast, vector, extents, partition.waves, target)
    return Staged(
        node, info, layout, extents, way.vector, threads, asynchronous, tile.place, None, None, (), piece, tile=tile,
        deep=way.deep, across=way.across,
    )  # fmt: skip


def _transposing_way(
    tile: MatrixTile, memory_fast: str, vector: int, extents: Mapping[str, int], waves: int, target: Target
) -> tuple[int, CopyWay]:
    """(elements per store, way) in which threads transpose a tile of matrix instructions at the least cost: element by
    element, or in blocks that they transpose in registers."""
    order, es = list(extents), tile.place.elsize
    threads = target.wave_size * waves
    best: tuple[float, int, CopyWay] | None = None
    ways = copy_ways(tile.fast, memory_fast, vector, es, extents, threads, order)
    ways += [fewer for way in ways if way.deep > 1 for fewer in way.narrower(extents[memory_fast], es)]
    for way in ways:
        copy = copy_bits(memory_fast, order[:-1], extents, way, target.wave_size, waves)
        if copy is None:
            continue
        atoms = tuple(a for a in VECTOR_ATOMS if a.bytes <= way.deep * es)
        access = SharedAccess("copy", "write", copy, 1, waves, atoms)
        cost = access_cost(tile.place, access, target.banks, target.phases)
        if cost is None or cost.plan is None:
            continue
        share = prod(extents.values()) // threads
        clocks = waves * cost.worst + transposing_clocks(target, es, share, way.vector, way.deep)
        if best is None or clocks < best[0]:
            best = clocks, min(neighbours(cost.plan), way.deep), way
    return best[1:] if best is not None else (1, CopyWay(tile.fast, vector))


def plan_fetched(
    node: Node, info: ArrayInfo, layout: Layout, partition: Partition, target: Target, slots: int, budget: int,
) -> Staged:  # fmt: skip
    """Place a read that bulk copies bring to shared memory and that lanes take from there: in panels as matrix
    instructions have them, as wide as the fragment loads cost least. Raises ConstraintError or CompileError where the
    tile has padding, where it does not fit, and where no loads can read it."""
    plans = {dim_name(d): p for d, p in partition.dims.items()}
    c = info.contiguous()
    names = [d for d in info.names if d in layout.dims]
    if c is None or info.names[c] not in names or len(names) > 2:
        problem = f"argument {info.name}: not a row or a tile of two dimensions, one of them contiguous"
        raise ConstraintError(problem, node.loc)
    order = memory_order(info, layout)
    fast = order[-1]
    extents = {d: plans[d].tile for d in order}
    if tile_extents(layout, order, plans) != extents or _ragged(layout, plans):
        raise ConstraintError(f"argument {info.name}: the waves' fragments do not cover its tile exactly", node.loc)
    access = SharedAccess("fragments", "read", layout, 1, partition.waves, VECTOR_ATOMS)
    best: tuple[int, MatrixTile, PlaceChoice, AddressPlan] | None = None
    seen: set[int] = set()
    for span in SPANS:
        if len(names) == 1:
            tile = row_tile(extents[fast], fast, info.elsize, slots)
        else:
            tile = matrix_tile(extents, fast, info.elsize, max(1, span // info.elsize), slots)
        if tile.span in seen or tile.place.bytes * slots > budget:
            continue
        seen.add(tile.span)
        try:
            cost = access_cost(tile.place, access, target.banks, target.phases)
            if cost is None or cost.plan is None:
                continue
            choice = PlaceChoice(tile.place, cost.worst, cost.worst * partition.waves, cost.instructions, 1, (cost,))
            addresses = plan_place_addresses(choice, layout, plans)
        except CompileError:  # says why, but here it only means: look for another place
            continue
        if best is None or choice.cycles < best[0]:
            best = (choice.cycles, tile, choice, addresses)
    if best is None:
        raise ConstraintError(f"argument {info.name}: no place for bulk copies that its lanes can read", node.loc)
    _, tile, choice, addresses = best
    loads = choice.accesses[0].plan
    assert loads is not None
    threads = target.wave_size * partition.waves
    return Staged(
        node, info, layout, extents, 1, threads, False, tile.place, loads, addresses, loads.groups(layout), 1,
        cost=choice, tile=tile,
    )  # fmt: skip


def _plain_place(
    shared: Mapping[str, int],
    es: int,
    accesses: Sequence[SharedAccess],
    target: Target,
    budget: int,
    slots: int,
    plans: Mapping[str, DimPlan],
    fits: Callable[[Place], bool] | None = None,
) -> PlaceChoice:
    """The cheapest place without a swizzle: padded rows, read by atoms whose alignment every wave's offset keeps.

    Raises ConstraintError where the smallest exceeds the budget, CompileError where no atom can read any.
    """
    inner = list(shared.values())[-1] * es
    best = None
    if prod(shared.values()) * es * slots > budget:
        raise too_large(shared, es, slots, budget)
    whole = max(MECHANISMS[a.mechanism].granule for a in accesses)  # bytes that rows must not misalign
    for most in (16, 8, 4, 2, 1):
        capped = [
            replace(a, atoms=tuple(x for x in a.atoms if x.piece_bytes <= most)) if a.kind == "read" else a
            for a in accesses
        ]
        for pad in (0, 16, 8, 32):
            if len(shared) > 1 and (inner + pad) % whole:
                continue
            place = row_major(shared, es, pitch=inner + pad if len(shared) > 1 else None, slots=slots)
            if place.bytes * slots > budget or (fits is not None and not fits(place)):
                continue
            try:
                costs = [access_cost(place, a, target.banks, target.phases) for a in capped]
            except CompileError:  # says why, but here it only means: look for another place
                continue
            done = tuple(c for c in costs if c is not None)
            taken = [c.plan for c in done if c.access.kind == "read"]
            if len(done) < len(costs) or None in taken:
                continue
            widest = max(plan.atom.piece_bytes for plan in taken if plan is not None)
            moved = [d for d in shared if plans[d].waves > 1]
            steps = (place.linear_address({x: plans[d].wave * (x == d) for x in shared}) for d in moved)
            if any(step % widest for step in steps):
                continue
            cycles = sum(c.access.waves * c.worst for c in done)
            choice = PlaceChoice(place, float(cycles), cycles, sum(c.instructions for c in done), 1, done)
            if best is None or choice.total < best.total:
                best = choice
        if best is not None:
            return best
    raise CompileError("no place without a swizzle can be read in the waves' fragments")
