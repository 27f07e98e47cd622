"""Chooses where a tile lies in shared memory: a search over few placements with a cost in closed form.

Comes in: tile extents, every access to the buffer (fragment, read or write, trips, the atoms or the mechanism that
performs it), banks and phase hypotheses of the chip, a byte budget. Goes out: the cheapest `Place`, the load plan of
every access, and the cost broken down.

The idea: candidates are padded pitches, one or two XOR terms and orders of the contraction bits that make a reader's
registers contiguous; what a mechanism forbids is a row of `MECHANISMS`, not code. Where the chip's phases are not known
for certain, a placement counts with its worst hypothesis, so one that is free of conflicts under all of them wins.

Invariant: ties break by fewer instructions, then fewer address registers, then less space, then the order of
candidates, so the choice is a function of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache, reduce
from math import ceil, inf, prod
from operator import or_

from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.layouts.bank_cycles import bank_cycles, lane_cycles, phase_lanes
from wavedsl.ir.layouts.bits import REGISTER_KINDS, Bits, bit, kind_of, number_of, rank
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.place import Piece, Place, Xor
from wavedsl.ir.layouts.plan_addresses import plan_addresses
from wavedsl.ir.layouts.plan_load import LoadPlan, plan_with
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import LoadAtom

Phases = Mapping[tuple[str, int], tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Mechanism:
    """What a copy or operand path accepts. `granule`: bytes it moves whole, so XOR terms keep them together and rows
    are multiples of them. `xors`: the only swizzles it knows (None: any). `span`: rows must not exceed the swizzle's 16
    << b bytes, 16 B-chunk panels otherwise. `run`: bytes that land without a gap; rows that are whole runs may be
    padded all the same."""

    name: str
    granule: int = 1
    padded: bool = True
    permuted: bool = True
    xors: tuple[Xor, ...] | None = None
    span: bool = False
    run: int = 0


_TMA_SWIZZLES: tuple[Xor, ...] = ((1, 4, 3), (2, 4, 3), (3, 4, 3))
MECHANISMS: dict[str, Mechanism] = {
    m.name: m
    for m in (
        Mechanism("registers"),
        Mechanism("lds_dma4", granule=4, padded=False, run=256),
        Mechanism("lds_dma16", granule=16, padded=False, run=1024),
        Mechanism("cp_async4", granule=4),
        Mechanism("cp_async8", granule=8),
        Mechanism("cp_async16", granule=16),
        Mechanism("tma", granule=16, padded=False, permuted=False, xors=_TMA_SWIZZLES, span=True),
        Mechanism("wgmma", granule=16, padded=False, permuted=False, xors=_TMA_SWIZZLES, span=True),
    )
}
"""Middle of the compiler, legality table of shared-memory placements: one row per mechanism."""


@dataclass(frozen=True)
class RowVectors:
    """Vectors of a tile that lanes move in the order of its rows, where a row has any number of them: `columns` in a
    row, `count` in all, each of `length` elements."""

    row: str
    fast: str
    columns: int
    count: int
    length: int


@dataclass(frozen=True)
class SharedAccess:
    """One use of the buffer, per wave. `fragment` maps e, r, l, w bits to tile coordinates; None for mechanisms whose
    cost does not depend on the placement (TMA, direct-to-LDS, wgmma operands), and for `vectors`. `trips` weighs it,
    `waves` perform it."""

    name: str
    kind: str
    fragment: Bits | Layout | None
    trips: int = 1
    waves: int = 1
    atoms: tuple[LoadAtom, ...] = ()
    mechanism: str = "registers"
    vectors: RowVectors | None = None
    chip: str = ""
    """The chip that it is priced for: what it costs is then known from others of the same fragment."""
    costs: dict[Place, AccessCost | str | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What it costs on the places that a search has tried, on the one chip that its atoms are of, or why it has no
    addresses there."""

    def __post_init__(self) -> None:
        if self.kind not in ("read", "write"):
            raise CompileError(f"an access reads or writes, it does not {self.kind!r}")
        if self.mechanism not in MECHANISMS:
            raise CompileError(f"unknown mechanism {self.mechanism!r}", hint=f"one of {', '.join(MECHANISMS)}")
        if self.chip:
            known = _known_costs(self.chip, self.kind, self.fragment, self.atoms, self.vectors)
            object.__setattr__(self, "costs", known)

    @cached_property
    def widest_first(self) -> list[LoadAtom]:
        """The atoms by the bytes they move."""
        return sorted(self.atoms, key=lambda a: -a.bytes)


@lru_cache(maxsize=128)
def _known_costs(
    chip: str, kind: str, fragment: Bits | Layout | None, atoms: tuple[LoadAtom, ...], vectors: RowVectors | None
) -> dict[Place, AccessCost | str | None]:
    """`SharedAccess.costs` of all accesses that cost the same on any place: the taps of a convolution have one
    fragment, a tile is placed again for every number of stages, and arrays of other sizes are cut alike."""
    return {}


@dataclass(frozen=True)
class AccessCost:
    """One access under the chosen placement. `cycles` is per instruction (without a plan, of all) and phase hypothesis,
    `ideal` without conflicts."""

    access: SharedAccess
    plan: LoadPlan | None
    cycles: tuple[int, ...]
    ideal: int
    registers: int

    @property
    def instructions(self) -> int:
        return self.plan.instances if self.plan is not None else 0

    @cached_property
    def worst(self) -> int:
        """Cycles of all instructions of one wave and trip under the worst hypothesis."""
        return max(self.cycles, default=0) * (self.instructions if self.plan is not None else 1)


@dataclass(frozen=True)
class PlaceChoice:
    """The chosen place with its cost: `cycles` per trip and workgroup, `instructions` per trip and wave, bytes of all
    slots."""

    place: Place
    total: float
    cycles: int
    instructions: int
    registers: int
    accesses: tuple[AccessCost, ...]

    @property
    def conflict_free(self) -> bool:
        return all(max(a.cycles, default=0) <= a.ideal for a in self.accesses)

    def explain(self) -> str:
        """A few lines for `inspect`: the place, then one line per access."""
        lines = [f"{self.place}: {self.cycles} cycles per trip, {self.instructions} instructions per wave"]
        for a in self.accesses:
            if a.plan is None:
                lines.append(f"  {a.access.name}: by {a.access.mechanism}")
            else:
                seen = "/".join(map(str, dict.fromkeys(a.cycles)))
                lines.append(
                    f"  {a.access.name}: {a.instructions} x {a.plan.atom.name}, {seen} cycles each (ideal {a.ideal}),"
                    f" {a.registers} address register{'s' if a.registers > 1 else ''}"
                )
        return "\n".join(lines)


def phases_of(phases: Phases, kind: str, bytes: int) -> tuple[tuple[int, ...], ...]:
    """Phase hypotheses of an access; narrower ones than the table's smallest behave like that. Raises CompileError."""
    found = phases.get((kind, bytes))
    if found is None:
        wider = [b for k, b in phases if k == kind and b >= bytes]
        if not wider:
            raise CompileError(f"the target lists no phases for a {kind} of {bytes} bytes per lane")
        found = phases[kind, min(wider)]
    return found


def _banks_of(banks: Mapping[int, int], bytes: int) -> int:
    found = banks.get(bytes)
    if found is None:
        found = banks[min(banks, key=lambda b: (b < bytes, abs(b - bytes)))]
    return found


# ---- candidates ------------------------------------------------------------------------------------------------------


def _contiguous_pieces(dim: str, extent: int, elsize: int, order: Sequence[int]) -> list[Piece]:
    """Pieces of the contiguous dimension with its low coordinate bits stored in `order`, the rest above them in
    order."""
    width = (extent & -extent).bit_length() - 1
    bits = [*order, *(b for b in range(width) if b not in order)]
    pieces: list[Piece] = []
    i = 0
    while i < len(bits):
        run = 1
        while i + run < len(bits) and bits[i + run] == bits[i] + run:
            run += 1
        pieces.append(Piece(dim, 1 << bits[i], 1 << run, elsize << i))
        i += run
    if extent >> width > 1:
        last = pieces[-1] if pieces else None
        if last is not None and last.low * last.extent == 1 << width and last.stride == elsize * last.low:
            pieces[-1] = Piece(dim, last.low, last.extent * (extent >> width), last.stride)
        else:
            pieces.append(Piece(dim, 1 << width, extent >> width, elsize << width))
    return pieces or [Piece(dim, 1, 1, elsize)]


def _base(extents: Sequence[tuple[str, int]], elsize: int, pitch: int, order: Sequence[int]) -> tuple[Piece, ...]:
    """Rows of the last dimension `pitch` bytes apart, the other dimensions outside in order."""
    inner, extent = extents[-1]
    pieces = _contiguous_pieces(inner, extent, elsize, order)
    stride = pitch
    outer = []
    for dim, n in reversed(extents[:-1]):
        outer.append(Piece(dim, 1, n, stride))
        stride *= n
    return tuple(reversed(outer)) + tuple(reversed(pieces))


def _panels(extents: Sequence[tuple[str, int]], elsize: int, span: int) -> tuple[Piece, ...]:
    """The last dimension cut into panels of `span` bytes; all rows of a panel come before the next panel."""
    inner, extent = extents[-1]
    wide = span // elsize
    stride = span
    outer = []
    for dim, n in reversed(extents[:-1]):
        outer.append(Piece(dim, 1, n, stride))
        stride *= n
    panels = (Piece(inner, wide, extent // wide, stride),) if extent // wide > 1 else ()
    return panels + tuple(reversed(outer)) + (Piece(inner, 1, wide, elsize),)


def _swizzles(row_bytes: int, tile_bytes: int, elsize: int) -> tuple[list[tuple[Xor, ...]], list[tuple[Xor, ...]]]:
    """Single XOR terms worth trying for rows of a power of two of bytes, and pairs of them."""
    row_bits, top = row_bytes.bit_length() - 1, (tile_bytes - 1).bit_length()
    single: list[tuple[Xor, ...]] = []
    pairs: list[tuple[Xor, ...]] = []
    for m in (4, 3):
        first = max(row_bits - m, 1)
        for b in dict.fromkeys((min(3, max(1, row_bits - m)), 3)):
            fits = [s for s in range(max(first, b), first + 4) if m + s < top]
            single += [((b, m, s),) for s in fits]
            if m == 4:
                pairs += [((b, m, s), (min(b, top - m - s - b), m, s + b)) for s in fits[:2] if m + s + b < top]
                # fragments whose lanes skip a bit of the row's number (`mma_options.in_runs`)
                pairs += [((b - 1, m, s), (1, m + b - 1, s + 1)) for s in fits[:2] if b > 1 and m + s + b < top]
    # Sixteen lanes read 8 bytes of a row each; lanes that store single elements go down the upper bits of rows. Not of
    # words: without conflicts so, but neighbours are no longer read together (`ds_read2_b32`).
    deep = range(max(row_bits - 3, 4), row_bits) if elsize < 4 else ()
    for s in (s for s in deep if 3 + s + 4 < top):
        left = top - 3 - s - 4
        pairs += [((4, 3, s), (b, m, s + 7 - m)) for b in (1, 2) if b <= left for m in range(7 - b, 2, -1)]
        pairs += [((4, 3, s), (min(4, left), 3, s + 4))] if left > 2 else []
    return single, pairs


def _orders(accesses: Sequence[SharedAccess], dim: str, extent: int, elsize: int) -> list[tuple[int, ...]]:
    """Orders of the contiguous dimension's low bits in which some reader's registers are 16 contiguous bytes."""
    wanted = max(0, (16 // elsize).bit_length() - 1)
    found: dict[tuple[int, ...], None] = {}
    for access in accesses:
        if access.kind != "read" or access.fragment is None:
            continue
        inner = access.fragment.inner if isinstance(access.fragment, Layout) else access.fragment
        along = [
            c.bit_length() - 1
            for b, c in zip(inner.ins, inner.coordinate_columns(dim))
            if kind_of(b) in REGISTER_KINDS and c and not c & (c - 1)
        ]
        order = tuple(along[:wanted])
        if len(order) == wanted and order != tuple(range(wanted)) and all(1 << b < extent for b in order):
            found[order] = None
    return list(found)


def candidates(extents: Mapping[str, int], elsize: int, accesses: Sequence[SharedAccess]) -> list[list[Place]]:
    """Placements that every mechanism of the accesses allows, in groups from simple to far-fetched.

    Dense rows; one XOR term; padded pitches and permuted orders; two XOR terms. Rows that are no power of two are cut
    into panels that are.
    """
    mechanisms = tuple(dict.fromkeys(a.mechanism for a in accesses))
    dims = tuple(extents.items())
    orders = _orders(accesses, *dims[-1], elsize) if all(MECHANISMS[m].permuted for m in mechanisms) else ()
    spread = tuple(s for s in map(_spread, accesses) if s)
    return [list(group) for group in _candidates(dims, elsize, mechanisms, spread, tuple(orders))]


@lru_cache(maxsize=16)
def _candidates(
    dims: tuple[tuple[str, int], ...], elsize: int, mechanisms: tuple[str, ...], spread: tuple[int, ...],
    orders: tuple[tuple[int, ...], ...],
) -> list[list[Place]]:  # fmt: skip
    """Those of `candidates`. The ways to copy a tile are tried on the same places, one way after the other."""
    used = [MECHANISMS[name] for name in mechanisms]
    granule = max((m.granule for m in used), default=1)
    allowed = [m.xors for m in used if m.xors is not None]
    extent = dims[-1][1]
    row, rows = extent * elsize, 1
    for _, n in dims[:-1]:
        rows *= n

    def legal(xor: tuple[Xor, ...]) -> bool:
        return all(1 << m >= granule for _, m, _ in xor) and all(
            not xor or (len(xor) == 1 and xor[0] in known) for known in allowed
        )

    def place(pieces: tuple[Piece, ...], xor: tuple[Xor, ...] = ()) -> Place:
        return Place(pieces, xor, 1, elsize)

    if any(m.span for m in used):
        swizzled = [place(_panels(dims, elsize, 16 << b), ((b, 4, 3),)) for b in (3, 2, 1) if row % (16 << b) == 0]
        dense = [place(_base(dims, elsize, row, ()))] if row % 16 == 0 and extent <= 256 else []
        return [swizzled, dense]
    natural = place(_base(dims, elsize, row, ()))
    plain: list[Place] = [natural]
    single: list[Place] = []
    other: list[Place] = []
    double: list[Place] = []
    if all(m.padded or (m.run and row % m.run == 0) for m in used) and rows > 1:
        pads = [p for p in (8, 16, 32) if (row + p) % granule == 0 and p % elsize == 0]
        pads += [p for p in (1 << m for m in spread) if p > 32 and (row + p) % granule == 0]
        other += [place(_base(dims, elsize, row + p, ())) for p in pads]
    if not row & (row - 1):
        singles, pairs = ([x for x in xors if legal(x)] for xors in _swizzles(row, row * rows, elsize))
        first = row.bit_length() - 1
        chunks = [((LINE - m, m, s),) for m in spread for s in range(max(first - m, LINE - m), first - m + 3)]
        single += [natural.varied(xor=x) for x in singles]
        other += [natural.varied(xor=x) for x in chunks if legal(x)]
        double += [natural.varied(xor=x) for x in pairs]
        for order in orders:
            if elsize << _run(order) >= min(granule, row):
                permuted = place(_base(dims, elsize, row, order))
                other += [permuted.varied(xor=x) for x in ((), *singles)]
                double += [permuted.varied(xor=x) for x in pairs]
    elif (width := min(row & -row, 128)) >= 32:
        panels = place(_panels(dims, elsize, width))
        singles, pairs = ([x for x in xors if legal(x)] for xors in _swizzles(width, width * rows, elsize))
        single += [panels.varied(xor=x) for x in ((), *singles)]
        double += [panels.varied(xor=x) for x in pairs]
    whole = [p for p in single if not p.xor or p.xor[0][1] == 4]  # terms on 16-byte chunks suit the widest accesses
    return [plain, whole, [p for p in single if p not in whole], other, double]


LINE = 8
"""Address bits of what 64 banks hold side by side."""


def _spread(access: SharedAccess) -> int:
    """Bit of an address up to which lanes that exchange elements fetch neighbouring bytes of one row, where that is
    more than a chunk of 16 bytes: what the next row adds must lie above it. 0 for other accesses."""
    atom = next((a for a in access.atoms if a.lane), None)
    fragment = access.fragment
    if access.kind != "read" or fragment is None or atom is None:
        return 0
    inner = fragment.inner if isinstance(fragment, Layout) else fragment
    own = inner.only("l")
    across = max((sum(1 for c in own.coordinate_columns(d) if c) for d in inner.dims), default=0)
    bits = across + atom.piece_bytes.bit_length() - 1 - len(atom.element.split())
    return bits if 4 < bits < LINE else 0


def _run(order: Sequence[int]) -> int:
    """How many low bits keep their place in memory and in the tile."""
    run = 0
    while run < len(order) and order[run] == run:
        run += 1
    return run


# ---- the search ------------------------------------------------------------------------------------------------------


def access_cost(place: Place, access: SharedAccess, banks: Mapping[int, int], phases: Phases) -> AccessCost | None:
    """The cheapest plan of one access on a place, or None when no atom fits."""
    if access.fragment is None:
        if access.vectors is not None:
            return _of_vectors(place, access, access.vectors, banks, phases)
        return AccessCost(access, None, (), 0, 0)
    best: tuple[tuple[int, int, int], AccessCost] | None = None
    for atom in access.widest_first:
        plan = plan_with(access.fragment, place, atom)
        if plan is None:
            continue
        piece = plan.atom.piece_bytes
        bank_count = _banks_of(banks, piece)
        hypotheses = phases_of(phases, access.kind, piece)
        cycles = tuple(bank_cycles(place, plan.address, piece, phase, bank_count) for phase in hypotheses)
        bits, width = phase_lanes(hypotheses[0])
        group, lanes = 1 << bits, 1 << max(plan.address.count("L"), width)
        ideal = lanes // min(group, lanes) * max(1, group * max(4, piece) // 4 // bank_count)
        image = reduce(or_, place.cols(plan.address), 0)
        fixed = place.cols(plan.residual) if place.xor_linear(plan.address) else ()
        registers = 1 << rank(c & image for c in fixed)
        cost = AccessCost(access, plan, cycles, ideal, registers)
        key = (cost.worst, cost.instructions, registers)
        if best is None or key < best[0]:
            best = key, cost
        if max(cycles) <= ideal:
            break  # widest first: a narrower atom moves no more bytes per cycle
    return best[1] if best is not None else None


SAMPLE = 96
"""Vectors whose conflicts are counted lane by lane: three waves of 32, in which rows of six and twelve come round."""
LANES = 32


def _of_vectors(
    place: Place, access: SharedAccess, moved: RowVectors, banks: Mapping[int, int], phases: Phases
) -> AccessCost:
    """What lanes that move one vector of a row after the other wait for in banks, of all vectors, for each wave."""
    size, sample = moved.length * place.elsize, min(moved.count, SAMPLE)
    addresses = []
    for i in range(sample):
        row, column = divmod(i, moved.columns)
        addresses.append(place.swizzle(place.linear_address({moved.row: row, moved.fast: column * moved.length})))
    bank_count = _banks_of(banks, size)
    waves = [addresses[i : i + LANES] for i in range(0, sample - sample % LANES, LANES)]

    def of_wave(clocks: float) -> int:
        return ceil(clocks * moved.count / max(1, len(waves) * LANES) / access.waves)

    hypotheses = phases_of(phases, access.kind, size)
    cycles = tuple(of_wave(sum(lane_cycles(w, size, phase, bank_count) for w in waves)) for phase in hypotheses)
    return AccessCost(access, None, cycles, of_wave(len(waves) * LANES * max(4, size) / 4 / bank_count), 0)


def choose_place(
    extents: Mapping[str, int],
    elsize: int,
    accesses: Sequence[SharedAccess],
    *,
    banks: Mapping[int, int],
    phases: Phases,
    budget: int,
    slots: int = 1,
    issue: float = 1.0,
    hoisted: float = 1.0,
    space: float = 1 / 128,
    extra: Iterable[Place] = (),
    fits: Callable[[Place], bool] | None = None,
    limit: float = inf,
) -> PlaceChoice | None:
    """The cheapest placement of a tile (the last dimension contiguous) that fits `budget` bytes with `slots` slots.
    None where all that serve cost more than `limit`.

    cost = sum over accesses of trips * (waves * cycles + issue * instructions) + hoisted * address registers * XOR
    terms. `extra` are further candidates, the first of equals; those that do not `fits` are none. Pairs of XOR terms
    are tried only when nothing simpler is free of conflicts. Raises ConstraintError when no candidate fits the budget,
    CompileError when none can be accessed.
    """
    groups = candidates(extents, elsize, accesses)
    groups[0][:0] = extra
    fewest = sum(_fewest_instructions(a, elsize) for a in accesses)
    dense = elsize * prod(extents.values())
    least = [_least(a, elsize, phases, issue) for a in accesses]
    best: tuple[tuple[float, int, int, int], PlaceChoice] | None = None
    too_big, dear = 0, False
    refused = ""
    for group in groups:
        if best is not None and best[1].conflict_free and best[1].instructions <= fewest:
            break
        for place in group:
            if place.bytes * slots > budget:
                too_big += 1
                continue
            if fits is not None and not fits(place):
                continue
            padding = space * (place.bytes - dense)
            most = (best[0][0] if best is not None else limit) * 1.000001
            costs = _costs(place, accesses, least, banks, phases, issue, most - padding)
            if isinstance(costs, str):
                refused = costs
            if not isinstance(costs, list):
                continue
            if len(costs) < len(accesses):
                dear = True
                continue
            choice = _priced(place.varied(slots=slots), accesses, costs, issue, hoisted, padding)
            key = (choice.total, choice.instructions, choice.registers, place.bytes)
            if choice.total > limit:
                dear = True
            elif (best is None or key < best[0]) and _addressable(choice):
                best = key, choice
    if best is None:
        if dear:
            return None
        if too_big:
            raise too_large(extents, elsize, slots, budget)
        tile = " x ".join(f"{d}={n}" for d, n in extents.items())
        names = ", ".join(a.name for a in accesses)
        raise CompileError(f"no shared-memory placement of {tile} serves all of: {names}", hint=refused)
    return best[1]


def _costs(
    place: Place, accesses: Sequence[SharedAccess], least: Sequence[float], banks: Mapping[int, int], phases: Phases,
    issue: float, most: float,
) -> list[AccessCost] | str | None:  # fmt: skip
    """What the accesses cost on a place: of the first of them only where these, and the `least` that the others cost
    anywhere, are more than `most`. None where one of them has no plan there, or why it has no addresses."""
    costs: list[AccessCost] = []
    at_least = sum(least)
    for access, expected in zip(accesses, least):
        if at_least > most:
            return costs  # what the other accesses cost does not matter any more
        if place in access.costs:
            cost = access.costs[place]
        else:
            try:
                cost = access_cost(place, access, banks, phases)
            except CompileError as error:  # no columns for this access on this candidate
                cost = error.message
            access.costs[place] = cost
        if not isinstance(cost, AccessCost):
            return cost
        at_least += access.trips * (access.waves * cost.worst + issue * cost.instructions) - expected
        costs.append(cost)
    return costs if at_least <= most else costs[:-1]


def too_large(extents: Mapping[str, int], elsize: int, slots: int, budget: int) -> ConstraintError:
    """The error of a tile that does not fit into what tiles before it, and exchanges between lanes, have left."""
    tile = " x ".join(f"{d}={n}" for d, n in extents.items())
    left = f"exceeds the {budget} bytes left" if budget > 0 else "finds none left by other tiles and by exchanges"
    fewer = "" if budget > 0 else ", or fewer waves, which exchange less at a time"
    return ConstraintError(
        f"a shared tile of {tile} elements of {elsize} bytes, {slots} times, {left}",
        hint=f"smaller tiles or fewer pipeline stages{fewer}",
        tile=tuple(extents),
    )


def _addressable(choice: PlaceChoice) -> bool:
    """Every access whose digits are known has address code: no offset carries into the swizzle or across a panel."""
    for cost in choice.accesses:
        fragment = cost.access.fragment
        if cost.plan is None or not isinstance(fragment, Layout):
            continue
        try:
            plan_addresses(choice.place, cost.plan.address, cost.plan.offsets(fragment), fragment)
        except CompileError:  # says why, but here it only means: look for another place
            return False
    return True


def _lane_bytes(access: SharedAccess, elsize: int) -> int:
    """What an access moves per lane; 0 where that does not depend on the place."""
    if access.fragment is None:
        return 0
    if isinstance(access.fragment, Layout):
        return elsize * access.fragment.elements_per_lane
    return elsize << access.fragment.count(*REGISTER_KINDS)


def _fewest_instructions(access: SharedAccess, elsize: int) -> int:
    """Instructions per wave if every one moved as much as the widest atom that fits the element does."""
    widest = max((a.bytes for a in access.atoms if elsize in a.elsizes), default=elsize)
    return -(-_lane_bytes(access, elsize) // widest)


def _least(access: SharedAccess, elsize: int, phases: Phases, issue: float) -> float:
    """No place makes an access cheaper: full instructions of one atom, a clock for each group of lanes."""
    found = []
    for atom in access.atoms:
        if elsize in atom.elsizes:
            bits, width = phase_lanes(phases_of(phases, access.kind, atom.piece_bytes)[0])
            instructions = -(-_lane_bytes(access, elsize) // atom.bytes)
            found.append(instructions * ((access.waves << max(0, width - bits)) + issue))
    return access.trips * min(found, default=0.0)


def _priced(
    place: Place, accesses: Sequence[SharedAccess], costs: Sequence[AccessCost], issue: float, hoisted: float,
    space: float,
) -> PlaceChoice:  # fmt: skip
    """The place with what the accesses cost there. `costs` may be known from others of the same fragments."""
    cycles = instructions = registers = 0
    total = space
    for a, c in zip(accesses, costs):
        cycles += a.waves * c.worst
        instructions += c.instructions
        registers += c.registers
        total += a.trips * (a.waves * c.worst + issue * c.instructions)
    total += hoisted * registers * max(1, len(place.xor))
    own = tuple(c if c.access is a else replace(c, access=a) for a, c in zip(accesses, costs))
    return PlaceChoice(place, total, cycles, instructions, registers, own)


# ---- copies whose shared side is fixed -------------------------------------------------------------------------------


def dma_source(place: Place, chunk: Bits) -> Bits:
    """Which element each lane must fetch when the hardware writes shared memory linearly.

    `chunk` maps lane, wave and register bits (and u bits: bytes inside what one lane moves) to byte-address bits `a`,
    as the hardware fills the slot. The result maps the same bits to tile coordinates (z: bytes inside an element): the
    swizzle of the place, inverted, becomes a permutation of global addresses. Raises CompileError where the place is
    not linear over GF(2).
    """
    inside = place.elsize.bit_length() - 1
    coordinates = [bit(dim, i) for dim, n in place.extents.items() for i in range((n - 1).bit_length())]
    ins = [*(bit("z", i) for i in range(inside)), *coordinates]
    identity = Bits(coordinates, coordinates, (1 << i for i in range(len(coordinates))))
    if not place.xor_linear(identity):
        raise CompileError(f"{place} is padded or not a power of two, so a linear copy cannot fill it")
    width = (place.bytes - 1).bit_length()
    columns = [*(1 << i for i in range(inside)), *place.cols(identity)]
    reached = sorted({c.bit_length() - 1 for c in columns})
    if reached != list(range(len(ins))) or any(number_of(o) >= len(ins) for o in chunk.outs):
        raise CompileError(f"{place} does not fill {1 << width} bytes without gaps, so a linear copy cannot fill it")
    byte = Bits(ins, (bit("a", i) for i in range(len(ins))), columns)
    return chunk.then(byte.inverse())
