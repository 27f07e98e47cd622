"""Reads that go through shared memory: the cooperative copy of a tile, its placement, and the fragment loads.

In: a read node, its array, the layout its value needs. Out: a `Staged` plan, and functions that emit one step each: a
global load, a shared store, an asynchronous copy, a fragment load.

The tile is what all waves of the workgroup need together. It is cut into vectors along the array's contiguous
dimension; thread t copies vectors t, t + threads, ... so that neighbouring lanes touch neighbouring bytes. The
placement is chosen by counted bank conflicts of the copy and of the fragment loads (`shared_search`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, Protocol

from wavedsl.ir import dtypes as dt
from wavedsl.ir.access import Columns, GlobalAccess, Position, assemble, combine_fields, total
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.bit_columns import combine_columns
from wavedsl.ir.bits import bit
from wavedsl.ir.builder import Builder
from wavedsl.ir.column_pairs import rows_apart
from wavedsl.ir.copy_ways import (
    CopyWay,
    Trip,
    copy_bits,
    copy_ways,
    spread,
    transposing_clocks,
    without_arithmetic,
)
from wavedsl.ir.direct_copy import (
    DirectCopy,
    direct_clocks,
    filled_directly,
    linear_widths,
    not_direct,
    plan_direct,
)
from wavedsl.ir.errors import CompileError, ConstraintError, WaveError
from wavedsl.ir.fragment import Fragment
from wavedsl.ir.graph import Node
from wavedsl.ir.kernel_ir import B32, F32, I32, Value
from wavedsl.ir.layout import Digit, Layout
from wavedsl.ir.matrix_tile import SPANS, MatrixTile, matrix_tile, row_tile
from wavedsl.ir.mma_plan import MmaPlan
from wavedsl.ir.partition import DimPlan, Partition
from wavedsl.ir.place import Place, row_major
from wavedsl.ir.plan_addresses import AddressPlan, plan_addresses
from wavedsl.ir.plan_load import LoadPlan
from wavedsl.ir.shared_search import PlaceChoice, SharedAccess, access_cost, choose_place
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import LoadAtom, Target


@dataclass
class Staged:
    """One staged read. `extents`: elements of the shared tile per dimension, slowest first in memory order, the array's
    contiguous dimension last; `vector` elements per copy; `count` copies per thread."""

    node: Node
    info: ArrayInfo
    layout: Layout
    extents: dict[str, int]
    vector: int
    threads: int
    asynchronous: bool
    place: Place
    loads: LoadPlan | None
    """How fragments are loaded; None for a tile that only matrix instructions read."""
    addresses: AddressPlan | None
    groups: tuple[tuple[int, ...], ...]
    piece: int
    """Elements of a vector that are neighbours in shared memory: they are stored together."""
    offset: int = 0
    """Byte of slot 0 in shared memory."""
    cost: Any = None
    tile: MatrixTile | None = None
    """How matrix instructions see the tile, where they read it themselves."""
    direct: DirectCopy | None = None
    """How waves fill the place with copies that land lane by lane, where they do."""
    deep: int = 1
    """Vectors of a thread that are neighbours across the array's rows: transposed in registers, so that a piece is
    `piece` elements of a column."""
    across: int = 0
    """Vectors that neighbouring lanes copy side by side before they go on to the next row; 0: a whole row of them."""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def units(self) -> int:
        """Vectors in the tile."""
        return prod(self.extents.values()) // self.vector

    @property
    def count(self) -> int:
        return -(-self.units // self.threads)


def tile_extents(layout: Layout, dims: Sequence[str], plans: Mapping[str, DimPlan]) -> dict[str, int]:
    """Elements per dimension that the waves of a workgroup touch together, padding of their layouts included."""
    sizes = dict(layout.extents)
    return {d: (plans[d].waves - 1) * plans[d].wave + sizes[d] for d in dims}


def copy_vector(info: ArrayInfo, extents: Mapping[str, int], plans: Mapping[str, DimPlan]) -> int:
    """Elements per copy: a power of two up to 16 bytes that alignment, strides, tile and extent all allow."""
    c = info.contiguous()
    if c is None or dim_name(info.dims[c]) not in extents or dim_name(info.dims[c]) in info.moved:
        return 1
    d, es = dim_name(info.dims[c]), info.elsize
    limit = gcd(min(info.align, 16) // es, extents[d])
    plan = plans[d]
    if plan.role in ("workgroup", "loop"):
        limit = gcd(limit, plan.tile)
    if plan.ragged or extents[d] > plan.tile or d in info.cut:
        limit = gcd(limit, info.extent_multiple(c))
    for i in range(len(info.dims)):
        if i != c:
            step = info.stride_multiple(i)
            limit = gcd(limit, step // es) if step % es == 0 else 1
    return max(1, limit & -limit)


def wave_digits(layout: Layout, partition: Partition, plans: Mapping[str, DimPlan]) -> tuple[Layout, list[str]]:
    """The layout with the partition's waves as digits (so that address plans know them), and the dimension of each.

    A wave tile that is no multiple of the box has no digit; its offset is added to the address instead.
    """
    digits, dims = [], []
    for d in layout.dims:
        plan = plans[d]
        if plan.waves > 1 and plan.wave % layout.box(d) == 0:
            digits.append(Digit("wave", plan.waves, d, plan.wave // layout.box(d)))
            dims.append(d)
    return Layout(layout.inner, (*layout.digits, *digits), layout.extents), dims


VECTOR_ATOMS = tuple(LoadAtom("vector", n, n, (1, 2, 4, 8)) for n in (16, 8, 4, 2, 1))
"""Plain accesses of shared memory, one vector per lane."""


UNIT_ATOMS = (LoadAtom("vector", 12, 12, (12,)),)
"""Accesses of units of three words."""


def plan_staged(
    node: Node, info: ArrayInfo, layout: Layout, contracted: str | None, partition: Partition, target: Target,
    slots: int, budget: int, trips: int, direct: bool | None, reading: LoadAtom | None = None,
    trip: Trip | None = None, paired: bool = False,
) -> Staged:  # fmt: skip
    """Choose copy mechanism, orientation and swizzle of one staged read. Raises ConstraintError when it does not fit.
    `direct`: whether the copy must, or must not, pass by the registers (None: what costs less).

    The tile lies with the contracted dimension contiguous (fragments are then plain vectors), or as in memory where a
    load atom can transpose on the way to registers: whichever costs fewer cycles, copies included, and
    `without_arithmetic` where the `trip` of a loop is none the longer for it. `reading`: the only way to read the
    fragments, where elements are units. `paired`: instructions of column pairs take them.
    """
    plans = {dim_name(d): p for d, p in partition.dims.items()}
    c = info.contiguous()
    names = [d for d in info.names if d in layout.dims]
    memory_fast = info.names[c] if c is not None and info.names[c] in names else names[-1]
    order = [d for d in names if d != memory_fast] + [memory_fast]
    extents = tile_extents(layout, order, plans)
    widest_vector = copy_vector(info, extents, plans)
    es = info.elsize
    threads = target.wave_size * partition.waves
    _, digit_dims = wave_digits(layout, partition, plans)
    vectors = UNIT_ATOMS if es == UNIT_ATOMS[0].bytes else VECTOR_ATOMS
    atoms = (*vectors, *(a for a in target.load_atoms if a.lane)) if reading is None else (reading,)
    found: list[tuple[AddressPlan, CopyWay, bool, PlaceChoice]] = []
    costs: list[tuple[float, int, bool]] = []
    error: Exception | None = None
    ragged_wave = len(digit_dims) < sum(plans[d].waves > 1 for d in layout.dims)
    orientations = [d for d in dict.fromkeys([contracted or memory_fast, memory_fast]) if d in extents]
    ways = [
        way for fast in orientations for way in copy_ways(fast, memory_fast, widest_vector, es, extents, threads, order)
    ]
    if target.copy_linear and direct is not False and memory_fast in orientations and not node.dtype.packed:
        widths = linear_widths(target, widest_vector * es, es, prod(extents.values()) * es, partition.waves)
        ways += [CopyWay(memory_fast, width // es, linear=width) for width in widths]
    fragments = SharedAccess("fragments", "read", layout, trips, partition.waves, atoms)
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
        ]
        try:
            if ragged_wave:
                raise CompileError("a wave tile that is no multiple of the fragment needs a place without swizzle")
            choice = choose_place(
                shared, es, accesses, banks=target.banks, phases=target.phases, budget=budget, slots=slots, fits=fits,
                extra=rows_apart(shared, es, layout) if paired and fast != contracted and len(shared) == 2 else (),
            )
            addresses = plan_place_addresses(choice, layout, partition, plans)
        except CompileError as problem:  # also where what a wave adds carries across a panel of the place
            try:
                choice = _plain_place(shared, es, accesses, target, budget, slots, plans, fits)
                addresses = plan_place_addresses(choice, layout, partition, plans)
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
        fetched = choice.accesses[0].plan
        if fetched is not None and fetched.bytes < 4:  # several loads are joined to a register
            joins = layout.elements_per_lane * es // 4 * (4 // fetched.bytes - 1)
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
    addresses, way, asynchronous, choice = found[without_arithmetic(costs, trip)]
    fast, vector, deep, linear = way.fast, way.vector, way.deep, way.linear
    loads = choice.accesses[0].plan
    assert loads is not None
    stored = choice.accesses[1].plan
    piece = neighbours(stored) if stored is not None else vector if fast == memory_fast else 1
    return Staged(
        node, info, layout, extents, vector, threads, asynchronous, choice.place, loads, addresses,
        loads.groups(layout), min(piece, vector if deep == 1 else deep), 0, choice, deep=deep, across=way.across,
        direct=plan_direct(choice.place, linear, target.wave_size, partition.waves) if linear else None,
    )  # fmt: skip


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
            size = " x ".join(f"{d}={n}" for d, n in extents.items())
            raise ConstraintError(
                f"a shared tile of {size} elements of {es} bytes, {slots} times, exceeds the {budget} bytes left",
                hint="smaller tiles or fewer pipeline stages",
            )
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
        tile = " x ".join(f"{d}={n}" for d, n in shared.items())
        raise ConstraintError(
            f"a shared tile of {tile} elements of {es} bytes, {slots} times, exceeds the {budget} bytes left",
            hint="smaller tiles or fewer pipeline stages",
        )
    fragments, *others = accesses
    for most in (16, 8, 4, 2, 1):
        atoms = tuple(a for a in fragments.atoms if a.piece_bytes <= most)
        capped = [replace(fragments, atoms=atoms), *others]
        for pad in (0, 16, 8, 32):
            place = row_major(shared, es, pitch=inner + pad if len(shared) > 1 else None, slots=slots)
            if place.bytes * slots > budget or (fits is not None and not fits(place)):
                continue
            try:
                costs = [access_cost(place, a, target.banks, target.phases) for a in capped]
            except CompileError:  # says why, but here it only means: look for another place
                continue
            done = tuple(c for c in costs if c is not None)
            if len(done) < len(costs) or done[0].plan is None:
                continue
            moved = [d for d in shared if plans[d].waves > 1]
            steps = (place.linear_address({x: plans[d].wave * (x == d) for x in shared}) for d in moved)
            if any(step % done[0].plan.atom.piece_bytes for step in steps):
                continue
            cycles = sum(c.access.waves * c.worst for c in done)
            choice = PlaceChoice(place, float(cycles), cycles, sum(c.instructions for c in done), 1, done)
            if best is None or choice.total < best.total:
                best = choice
        if best is not None:
            return best
    raise CompileError("no place without a swizzle can be read in the waves' fragments")


class CopyLanes:
    """Which part of the tile each copy of a thread moves: coordinates per dimension as (value, constant)."""

    def __init__(self, b: Builder, staged: Staged):
        self.b, self.s = b, staged
        dims = list(staged.extents)
        self.fast = dims[-1]
        self.rows = dims[:-1]
        self.columns = staged.extents[self.fast] // staged.vector
        height = prod(staged.extents[d] for d in self.rows)
        way = CopyWay(self.fast, staged.vector, staged.deep, staged.across)
        self.spread = spread(self.columns, height, staged.threads, way) if len(self.rows) <= 1 else None
        self.tid = b.tid()
        self.by_bit = self._by_bit()
        """The lane parts as columns of the thread's number, where sizes are powers of two."""

    def _by_bit(self) -> Columns | None:
        s, columns, threads = self.s, self.columns, self.s.threads
        if len(self.rows) > 1 or threads & (threads - 1) or columns & (columns - 1):
            return None
        bits = threads.bit_length() - 1
        across = min(s.across or columns, threads).bit_length() - 1
        down = bits - across
        if self.spread is not None:
            down = self.spread.down.bit_length() - 1
        beside = bits - across - down
        parts = {self.fast: [s.vector << i for i in range(across)] + [0] * down}
        parts[self.fast] += [s.vector << across + i for i in range(beside)]
        for d in self.rows:
            parts[d] = [0] * across + [s.deep << i for i in range(down)] + [0] * beside
        return Columns(self.tid, parts)

    def coordinates(self, i: int) -> tuple[dict[str, Any], dict[str, int], Value]:
        """(lane part per dimension, constant part per dimension, whether this thread has an i-th vector)."""
        b, s = self.b, self.s
        threads, columns = s.threads, self.columns
        lanes: dict[str, Any] = {}
        fixed: dict[str, int] = {}
        if self.spread is not None:
            found = self.spread
            row, column = b.udiv(self.tid, found.across), b.urem(self.tid, found.across)
            if found.beside > 1:
                column = b.add(column, b.mul(b.udiv(self.tid, found.across * found.down), found.across))
                row = b.urem(row, found.down)
            lanes[self.fast] = b.mul(column, s.vector)
            panel, block = i // s.deep % found.panels, i // s.deep // found.panels
            fixed[self.fast] = panel * found.beside * found.across * s.vector
            for d in self.rows:
                lanes[d] = b.mul(row, s.deep) if s.deep > 1 else row
                fixed[d] = block * s.deep * found.down + i % s.deep
        elif columns % threads == 0 and len(self.rows) <= 1:
            per = columns // threads
            lanes[self.fast] = b.mul(self.tid, s.vector)
            fixed[self.fast] = i % per * threads * s.vector
            for d in self.rows:
                lanes[d] = 0
                fixed[d] = i // per
        else:
            index = b.add(self.tid, i * threads)
            lanes[self.fast] = b.mul(b.urem(index, columns), s.vector)
            rest = b.udiv(index, columns)
            for k, d in enumerate(reversed(self.rows)):
                last = k == len(self.rows) - 1
                lanes[d] = rest if last else b.urem(rest, s.extents[d])
                rest = rest if last else b.udiv(rest, s.extents[d])
        active = b.true
        if (i + 1) * threads > s.units:
            active = b.cmp("slt", self.tid, s.units - i * threads)
        return lanes, fixed, active


def place_address(
    b: Builder, place: Place, lanes: Mapping[str, Any], fixed: Mapping[str, int], columns: Columns | None = None
) -> Any:
    """Byte in a slot of an element at lane part + constant part: constants leave the swizzle where they commute with
    it. `columns`: the lane part by bits, where it is known."""
    if columns is not None:
        by_bits = _address_by_bits(b, place, columns, fixed)
        if by_bits is not None:
            return by_bits
    window = place.window
    outside = 0
    inside = dict(fixed)
    linear_fixed = place.linear_address({d: fixed.get(d, 0) for d in place.dims})
    if not place.xor or linear_fixed % window == 0:
        outside, inside = linear_fixed, {}
    address: Any = 0
    for p in place.pieces:
        part = lanes.get(p.dim, 0)
        add = inside.get(p.dim, 0)
        coordinate = total(b, [part, add])
        if isinstance(coordinate, int):
            address = total(b, [address, coordinate // p.low % p.extent * p.stride])
            continue
        whole = place.extents[p.dim]
        if p.low > 1:
            coordinate = b.udiv(coordinate, p.low)
        if p.low * p.extent < whole:
            coordinate = b.urem(coordinate, p.extent)
        address = total(b, [address, b.mul(coordinate, p.stride)])
    if place.xor and not isinstance(address, int):
        for bits, m, shift in place.xor:
            picked = b.shl(b.and_(b.lshr(address, m + shift), (1 << bits) - 1), m)
            address = b.xor(address, picked)
    elif place.xor:
        address = place.swizzle(address)
    return total(b, [address, outside])


def _address_by_bits(b: Builder, place: Place, columns: Columns, fixed: Mapping[str, int]) -> Any:
    """The same as one expression of the thread's bits; None where a bit or a constant carries into another."""
    if any(p.low & (p.low - 1) or p.extent & (p.extent - 1) for p in place.pieces):
        return None
    width = max(len(c) for c in columns.by_dim.values())
    steps = [
        place.linear_address({d: columns.by_dim[d][i] if d in columns.by_dim else 0 for d in place.dims})
        for i in range(width)
    ]
    whole = place.linear_address({d: fixed.get(d, 0) for d in place.dims})
    for p in place.pieces:  # lanes and constants in one digit must not carry into the next piece
        reach = sum(c // p.low % p.extent for c in columns.by_dim.get(p.dim, ()))
        if reach + fixed.get(p.dim, 0) // p.low % p.extent >= p.extent:
            return None
    if not place.xor:
        return total(b, [combine_columns(b, steps, columns.source), whole])
    outside = whole - whole % place.window
    inside = whole - outside
    seen = inside
    for step in steps:
        if step & seen:
            return None
        seen |= step
    swizzled = [place.swizzle(step) for step in steps]
    address = combine_columns(b, swizzled, columns.source, xor=True)
    reach = 0
    for c in swizzled:
        reach |= c
    constant = place.swizzle(inside)
    if constant & reach:
        address = b.xor(address, constant & reach) if not isinstance(address, int) else address ^ (constant & reach)
    return total(b, [address, (constant & ~reach) + outside])


def copy_access(
    b: Builder, s: Staged, position: Position, plans: Mapping[str, DimPlan], target: Target, lanes: CopyLanes,
    parts: Mapping[str, Any], extents: Sequence[Any], strides: Sequence[Any], limits: Mapping[str, Any] | None = None,
) -> GlobalAccess:  # fmt: skip
    """The array as the copy sees it: the workgroup's tile, no wave offsets."""
    where = Position(position.base, {})
    covers = {d: (s.extents.get(d, 1), plans[d].tile) for d in s.info.names}
    return GlobalAccess(
        b, s.info, s.layout, where, plans, target, extents, strides, store=False, lanes=parts, columns=lanes.by_bit,
        covers=covers, limits=limits,
    )  # fmt: skip


def copy_masks(b: Builder, access: GlobalAccess, active: Value, fixed: Mapping[str, int]) -> tuple[Any, Any, Value]:
    """Operands of one global access of the copy; threads without a vector are masked off."""
    voff, soff, mask = access.operands(fixed)
    return voff, soff, b.pand(mask, active)


def copy_directly(
    b: Builder, s: Staged, position: Position, plans: Mapping[str, DimPlan], target: Target, i: int,
    extents: Sequence[Any], strides: Sequence[Any], limits: Mapping[str, Any], slot: Any, buffer: str,
    guard: Value | None, cache: str | None = None,
) -> None:  # fmt: skip
    """The i-th of a wave's copies to the ring slot at byte `slot`, which pass by the registers.

    The immediate of the instruction moves both of its addresses. Copies whose runs follow each other say their distance
    with it, and take it off the address in global memory, so that they share the base of the other.
    """
    direct = s.direct
    assert direct is not None
    parts, columns = direct.lane_parts(b, i)
    wave, fixed = direct.wave_parts(b, i)
    covers = {d: (s.extents.get(d, 1), plans[d].tile) for d in s.info.names}
    access = GlobalAccess(
        b, s.info, s.layout, Position(position.base, wave), plans, target, extents, strides, store=False, lanes=parts,
        columns=columns, covers=covers, limits=limits,
    )  # fmt: skip
    voff, soff, mask = access.operands(fixed)
    base, constant = direct.base(b, i)
    imm = i % direct.shared * direct.run
    away = sum(fixed[d] * t for d, t in zip(s.info.names, strides) if d in fixed and isinstance(t, int))
    if imm and away >= imm and not access.signed:  # nor is the difference negative then
        voff = total(b, [voff, -imm])
    else:
        imm = 0
    at = total(b, [base, slot, s.offset + constant])
    b.copy_async(
        access.buffer, voff, at, soff, bytes=direct.bytes, buffer=buffer, mask=mask, guard=guard, imm=imm, split=False,
        linear=True, bounded=True, cache=cache,
    )  # fmt: skip


def store_copied(
    b: Builder, s: Staged, lanes: CopyLanes, parts: Mapping[str, Any], fixed: Mapping[str, int], active: Value,
    data: Value, slot: Any, buffer: str,
) -> None:  # fmt: skip
    """Put one copied vector into shared memory; `slot` is the byte offset of its ring slot."""
    es = s.info.elsize
    base = total(b, [s.offset, slot])
    fast = list(s.extents)[-1]
    size = s.piece * es
    if s.info.dtype is dt.tf32 and s.tile is not None:
        words = b.elements(data) if data.type.n > 1 else (data,)
        rounded = [b.bitcast(b.round_tf32(b.bitcast(w, F32)), B32) for w in words]
        data = b.vec(*rounded) if len(rounded) > 1 else rounded[0]
    for j in range(0, s.vector, s.piece):
        shifted = dict(fixed)
        shifted[fast] = fixed.get(fast, 0) + j
        address = total(b, [place_address(b, s.place, parts, shifted, lanes.by_bit), base])
        word, high = j * es // 4, False
        if size >= 4:
            piece = b.slice(data, word, size // 4) if data.type.n > 1 else data
        else:
            piece, high = part_of_word(b, b.slice(data, word) if data.type.n > 1 else data, j * es % 4, size)
        b.store_shared(address, piece, bytes=size, mask=active, buffer=buffer, high=high)


def part_of_word(b: Builder, word: Value, first: int, size: int) -> tuple[Value, bool]:
    """(word, whether its upper half is meant) for a store of `size` < 4 of its bytes, from byte `first` on."""
    if first == 2 and size == 2:
        return word, True
    return (b.bitcast(b.lshr(b.bitcast(word, I32), 8 * first), B32) if first else word), False


def store_transposed(
    b: Builder, s: Staged, lanes: CopyLanes, parts: Mapping[str, Any], fixed: Mapping[str, int], rows: Sequence[Value],
    slot: Any, buffer: str,
) -> None:  # fmt: skip
    """Put a block of `deep` copied vectors into shared memory, a column at a time."""
    es = s.info.elsize
    base = total(b, [s.offset, slot])
    fast, down = list(s.extents)[-1], next(iter(s.extents))
    columns = transposed(b, rows, es, s.vector)
    for j, words in enumerate(columns):
        for first in range(0, s.deep, s.piece):
            shifted = dict(fixed)
            shifted[fast] = fixed.get(fast, 0) + j
            shifted[down] = fixed.get(down, 0) + first
            address = total(b, [place_address(b, s.place, parts, shifted, lanes.by_bit), base])
            size, high = s.piece * es, False
            if size >= 4:
                mine = words[first * es // 4 : (first * es + size) // 4]
                data = b.vec(*mine) if len(mine) > 1 else mine[0]
            else:
                data, high = part_of_word(b, words[first * es // 4], first * es % 4, size)
            b.store_shared(address, data, bytes=size, mask=b.true, buffer=buffer, high=high)


def transposed(b: Builder, rows: Sequence[Value], es: int, count: int) -> list[list[Value]]:
    """Column j of loaded rows of `count` packed elements, as 32-bit words; elements of 1 or 2 bytes.

    Words of two 16-bit elements take one byte permutation. Four bytes are gathered in two rounds: pairs of rows first,
    a permutation for the bytes of two columns at once.
    """
    per = 4 // es

    def word(r: int, j: int) -> Value:
        return b.slice(rows[r], j // per) if rows[r].type.n > 1 else rows[r]

    out: list[list[Value]] = []
    for j in range(count):
        words = []
        at = j % per
        for r in range(0, len(rows), per):
            if es == 2:
                selector = (4 + 2 * at) << 16 | (5 + 2 * at) << 24 | (2 * at) | (2 * at + 1) << 8
                words.append(b.permute_bytes(word(r + 1, j), word(r, j), selector))
                continue
            pair = at & ~1  # both columns of a pair from two rows: bytes (r, c), (r+1, c), (r, c+1), (r+1, c+1)
            first = pair | (pair + 4) << 8 | (pair + 1) << 16 | (pair + 5) << 24
            low = b.permute_bytes(word(r + 1, j), word(r, j), first)
            high = b.permute_bytes(word(r + 3, j), word(r + 2, j), first)
            words.append(b.permute_bytes(high, low, 0x05040100 if at % 2 == 0 else 0x07060302))
        out.append(words)
    return out


class Addressed(Protocol):
    """What lanes load from shared memory or store there: a staged read, or an operand that is computed."""

    @property
    def place(self) -> Place: ...
    @property
    def loads(self) -> LoadPlan | None: ...
    @property
    def addresses(self) -> AddressPlan | None: ...
    @property
    def offset(self) -> int: ...


class FragmentLoads:
    """Address registers of the fragment loads of one staged read, shared by all its groups."""

    def __init__(
        self,
        b: Builder,
        s: Addressed,
        wave_digit: Mapping[str, Any],
        plans: Mapping[str, DimPlan],
        digit_dims: Sequence[str],
    ):
        self.b, self.s = b, s
        plan = s.addresses
        assert plan is not None
        lane = combine_fields(b, plan.lane, b.lane(), plan.xor)
        added: Any = 0
        for (joined, fields), d in zip(plan.digits, digit_dims):
            value = wave_digit[d]
            if isinstance(value, int):
                part: Any = sum(f(value) for f in fields)
            else:
                part = combine_fields(b, fields, value, joined)
            if joined:
                lane = (
                    b.xor(lane if not isinstance(lane, int) else b.i32(lane), part)
                    if part.__class__ is not int or part
                    else lane
                )
            else:
                added = total(b, [added, part])
        for d in s.place.dims:
            if d not in digit_dims and plans[d].waves > 1:
                step = s.place.linear_address({x: plans[d].wave * (x == d) for x in s.place.dims})
                added = total(
                    b,
                    [added, b.mul(wave_digit[d], step) if not isinstance(wave_digit[d], int) else wave_digit[d] * step],
                )
        self.bases = []
        for constant in plan.registers:
            self.bases.append(self._base(lane, added, constant))

    def _base(self, lane: Any, added: Any, constant: int) -> Any:
        """(lane ^ constant) + added: the constant comes last where the summands share no bit with each other nor with
        it, so that all bases come from one sum."""
        b = self.b
        if not constant:
            return total(b, [lane, added])
        if isinstance(lane, int):
            return total(b, [lane ^ constant, added])
        if not isinstance(added, int) and b.disjoint(lane, added) and constant & ~added.zeros == 0:
            return b.xor(b.add(lane, added), constant)
        return total(b, [b.xor(lane, constant), added])

    def address(self, g: int, slot: Any) -> Any:
        """Byte of group g in shared memory, of the slot at byte `slot`."""
        s = self.s
        assert s.addresses is not None
        register, immediate = s.addresses.items[g]
        return total(self.b, [self.bases[register], slot, s.offset + immediate])

    def load(self, g: int, slot: Any, buffer: str) -> Value:
        """Group g of the fragment from the slot at byte `slot`."""
        b, s = self.b, self.s
        assert s.loads is not None
        return b.load_shared(self.address(g, slot), bytes=s.loads.bytes, atom=s.loads.atom.name, buffer=buffer)


def fragment_of(b: Builder, s: Staged, values: Sequence[Value]) -> Fragment:
    """The read's value from the loads of its groups."""
    return assemble(b, s.layout, s.info.dtype, list(zip(s.groups, values)))


def plan_place_addresses(
    choice: PlaceChoice, layout: Layout, partition: Partition, plans: Mapping[str, DimPlan]
) -> AddressPlan:
    """The address plan of every group of the fragment, waves included. Raises CompileError where offsets do not add
    up."""
    loads = choice.accesses[0].plan
    assert loads is not None
    full, _ = wave_digits(layout, partition, plans)
    offsets = [layout.coords(g[0]) for g in loads.groups(layout)]
    return plan_addresses(choice.place, loads.address, offsets, full)
