"""Which way a read goes through shared memory: where its tile lies, and how waves copy and load it.

In: a read node, its array, the layout its value needs. Out: a `Staged` plan. Bulk copies and matrix instructions that
read the tile have places of their own; else the placement is chosen by counted bank conflicts of the copy and of the
fragment loads (`shared_search`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from wavedsl.ir import dtypes as dt
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.bits import bit
from wavedsl.ir.column_pairs import rows_apart
from wavedsl.ir.copy_ways import CopyWay, Trip, copy_bits, copy_ways, transposing_clocks, without_arithmetic
from wavedsl.ir.direct_copy import direct_clocks, filled_directly, linear_widths, not_direct, plan_direct
from wavedsl.ir.errors import CompileError, ConstraintError, WaveError
from wavedsl.ir.fragment_loads import UNIT_ATOMS, VECTOR_ATOMS, plan_place_addresses, wave_digits
from wavedsl.ir.graph import Node
from wavedsl.ir.layout import Layout
from wavedsl.ir.matrix_tile import SPANS, MatrixTile, matrix_tile, row_tile
from wavedsl.ir.mma_plan import MmaPlan
from wavedsl.ir.partition import DimPlan, Partition
from wavedsl.ir.place import Place, row_major
from wavedsl.ir.plan_addresses import AddressPlan
from wavedsl.ir.plan_load import LoadPlan
from wavedsl.ir.shared_search import MECHANISMS, PlaceChoice, SharedAccess, access_cost, choose_place, too_large
from wavedsl.ir.staged import Staged, copy_vector, tile_extents
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import LoadAtom, Target


def plan_staged(
    node: Node, info: ArrayInfo, layout: Layout, contracted: str | None, partition: Partition, target: Target,
    slots: int, budget: int, trips: int, direct: bool | None, reading: LoadAtom | None = None,
    trip: Trip | None = None, paired: bool = False, others: Sequence[Layout] = (),
) -> Staged:  # fmt: skip
    """Choose copy mechanism, orientation and swizzle of one staged read. Raises ConstraintError when it does not fit.
    `direct`: whether the copy must, or must not, pass by the registers (None: what costs less).

    The tile lies with the contracted dimension contiguous (fragments are then plain vectors), or as in memory where a
    load atom can transpose on the way to registers: whichever costs fewer cycles, copies included, and
    `without_arithmetic` where the `trip` of a loop is none the longer for it. `reading`: the only way to read the
    fragments, where elements are units. `paired`: instructions of column pairs take them. `others`: layouts that reads
    of the same elements need, which `taken_too` gives the same place.
    """
    plans = {dim_name(d): p for d, p in partition.dims.items()}
    c = info.contiguous()
    names = [d for d in info.names if d in layout.dims]
    memory_fast = info.names[c] if c is not None and info.names[c] in names else names[-1]
    order = [d for d in names if d != memory_fast] + [memory_fast]
    covered = [tile_extents(x, order, plans) for x in (layout, *others)]
    extents = {d: max(tile[d] for tile in covered) for d in order}
    widest_vector = copy_vector(info, extents, plans)
    es = info.elsize
    threads = target.wave_size * partition.waves
    vectors = UNIT_ATOMS if es == UNIT_ATOMS[0].bytes else VECTOR_ATOMS
    atoms = (*vectors, *(a for a in target.load_atoms if a.lane)) if reading is None else (reading,)
    found: list[tuple[AddressPlan, CopyWay, bool, PlaceChoice]] = []
    costs: list[tuple[float, int, bool]] = []
    error: Exception | None = None
    ragged_wave = any(
        len(wave_digits(x, partition, plans)[1]) < sum(plans[d].waves > 1 for d in x.dims) for x in (layout, *others)
    )
    orientations = [d for d in dict.fromkeys([contracted or memory_fast, memory_fast]) if d in extents]
    ways = [
        way for fast in orientations for way in copy_ways(fast, memory_fast, widest_vector, es, extents, threads, order)
    ]
    if target.copy_linear and direct is not False and memory_fast in orientations and not node.dtype.packed:
        widths = linear_widths(target, widest_vector * es, es, prod(extents.values()) * es, partition.waves)
        ways += [CopyWay(memory_fast, width // es, linear=width) for width in widths]
    fragments, *fragments_too = (
        SharedAccess(f"fragments{i or ''}", "read", x, trips, partition.waves, atoms)
        for i, x in enumerate((layout, *others))
    )
    for way in ways:
        fast, vector, deep, linear = way.fast, way.vector, way.deep, way.linear
        copy = copy_bits(memory_fast, order[:-1], extents, way, target.wave_size, partition.waves)
        copy = None if linear else copy
        if (deep > 1 or way.across) and copy is None:
            continue
        # A thread without a vector has no destination for the zeros that a masked asynchronous copy writes.
        even = prod(extents.values()) // vector % threads == 0
        asynchronous = bool(linear) or (
            direct is not False
            and not target.copy_linear
            and even
            and fast == memory_fast
            and vector * es in target.copy_async
        )
        if direct and not asynchronous:
            continue
        shared = {d: n for d, n in extents.items() if d != fast} | {fast: extents[fast]}
        widest = vector * es if fast == memory_fast else deep * es
        writes = tuple(a for a in vectors if (a.bytes == widest if asynchronous else a.bytes <= widest))
        # Without a plan of the copy's stores the place must keep whole vectors together.
        whole = asynchronous or copy is None
        mechanism = f"cp_async{widest}" if whole and widest in (4, 8, 16) else "registers"
        mechanism = f"lds_dma{linear}" if linear else mechanism
        fits = filled_directly(linear, target, partition) if linear else None
        accesses = [
            fragments,
            SharedAccess("copy", "write", copy, trips, partition.waves, writes, mechanism),
            *fragments_too,
        ]
        try:
            if ragged_wave:
                raise CompileError("a wave tile that is no multiple of the fragment needs a place without swizzle")
            choice = choose_place(
                shared,
                es,
                accesses,
                banks=target.banks,
                phases=target.phases,
                budget=budget,
                slots=slots,
                fits=fits,
                extra=rows_apart(shared, es, layout) if paired and fast != contracted and len(shared) == 2 else (),
            )
            addresses = plan_place_addresses(choice, layout, partition, plans)
            for i, other in enumerate(others):
                plan_place_addresses(_seen_by(choice, i), other, partition, plans)
        except CompileError as problem:  # also where what a wave adds carries across a panel of the place
            try:
                choice = _plain_place(shared, es, accesses, target, budget, slots, plans, fits)
                addresses = plan_place_addresses(choice, layout, partition, plans)
                for i, other in enumerate(others):
                    plan_place_addresses(_seen_by(choice, i), other, partition, plans)
            except (CompileError, ConstraintError) as reason:
                error = reason if ragged_wave or isinstance(reason, ConstraintError) else problem
                continue
        except ConstraintError as problem:
            error = problem
            continue
        total_cost = choice.total - (trips * choice.instructions if asynchronous and not linear else 0)
        busy, computed = choice.cycles, fast != memory_fast and (deep > 1 or es == 1)
        if linear:
            filled = plan_direct(choice.place, linear, target.wave_size, partition.waves)
            total_cost += direct_clocks(target, filled, widest_vector * es, trips)
            busy += filled.waves * filled.count * target.cost("store.shared", linear).cycles
        if fast != memory_fast:
            total_cost += trips * transposing_clocks(target, es, prod(extents.values()) // threads, vector, deep)
        for x, access in zip((layout, *others), (choice.accesses[0], *choice.accesses[2:])):
            fetched = access.plan
            if fetched is not None and fetched.bytes < 4:  # several loads are joined to a register
                joins = x.elements_per_lane * es // 4 * (4 // fetched.bytes - 1)
                total_cost += trips * joins * target.clock_unit * -(-partition.waves // target.simds)
                computed = True
        costs.append((total_cost, busy, computed))
        found.append((addresses, way, asynchronous, choice))
    if not found:
        if direct and (error is None or not isinstance(error, ConstraintError)):
            error = not_direct(target, info, extents, widest_vector * es, partition.waves, error)
        assert error is not None
        if isinstance(error, WaveError):
            error.location = error.location or node.loc
            error.message = f"argument {info.name}: {error.message}"
        raise error
    best = without_arithmetic(costs, trip)
    addresses, way, asynchronous, choice = found[best]
    fast, vector, deep, linear = way.fast, way.vector, way.deep, way.linear
    loads = choice.accesses[0].plan
    assert loads is not None
    stored = choice.accesses[1].plan
    piece = neighbours(stored) if stored is not None else vector if fast == memory_fast else 1
    return Staged(
        node, info, layout, extents, vector, threads, asynchronous, choice.place, loads, addresses,
        loads.groups(layout), min(piece, vector if deep == 1 else deep), 0, choice, deep=deep, across=way.across,
        direct=plan_direct(choice.place, linear, target.wave_size, partition.waves) if linear else None,
        clocks=costs[best][0],
    )  # fmt: skip


def taken_too(copied: Staged, i: int, node: Node, layout: Layout, partition: Partition) -> Staged:
    """The plan of the `i`-th of the other reads that `copied` was planned with: its place, and no copy."""
    plans = {dim_name(d): p for d, p in partition.dims.items()}
    choice = _seen_by(copied.cost, i)
    loads = choice.accesses[0].plan
    assert loads is not None
    addresses = plan_place_addresses(choice, layout, partition, plans)
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
    target: Target, slots: int, budget: int, direct: bool | None,
) -> Staged:  # fmt: skip
    """Place a read that matrix instructions take from shared memory, and choose how it is copied there.

    It lies as in memory where every use can take it so, else with the contracted dimension contiguous: then the copy
    transposes it, element by element. Raises ConstraintError when it does not fit.
    """
    plans = {dim_name(d): p for d, p in partition.dims.items()}
    c = info.contiguous()
    names = [d for d in info.names if d in layout.dims]
    memory_fast = info.names[c] if c is not None and info.names[c] in names else names[-1]
    ks = {plan.k for plan, _ in uses}
    fast = memory_fast
    if fast not in ks or len(ks) > 1:
        fast = memory_fast if all(plan.atom.transposes for plan, _ in uses) else min(ks)
    order = [d for d in names if d != memory_fast] + [memory_fast]
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
        error.location = error.location or node.loc
        error.message = f"argument {info.name}: {error.message}"
        raise
    vector = copy_vector(info, extents, plans)
    threads = target.wave_size * partition.waves
    even = prod(extents.values()) // vector % threads == 0
    # tf32 is rounded on the way: the instruction would cut the bits off.
    whole = fast == memory_fast and even and info.dtype is not dt.tf32
    asynchronous = direct is not False and whole and vector * es in target.copy_async
    if direct and not asynchronous:
        refusal = not_direct(target, info, extents, vector * es, partition.waves, None)
        refusal.location = node.loc
        refusal.message = f"argument {info.name}: {refusal.message}"
        raise refusal
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
    fast = info.names[c]
    order = [d for d in names if d != fast] + [fast]
    extents = {d: plans[d].tile for d in order}
    if tile_extents(layout, order, plans) != extents or len(wave_digits(layout, partition, plans)[1]) < sum(
        plans[d].waves > 1 for d in layout.dims
    ):
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
            addresses = plan_place_addresses(choice, layout, partition, plans)
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
