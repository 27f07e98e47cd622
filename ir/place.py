"""Placement: where the elements of a tile lie in memory, and what an access to them costs.

Comes in: a tile's extents, fragments (`Bits`) that read or write it, the chip's load atoms. Goes out: byte addresses,
load plans (which atom, which registers one instance fills, whose address each lane supplies), bank cycles, and the
split of an address into lane fields, immediates and extra address registers.

The idea: a `Place` is data. Each dimension is cut into pieces with a stride of their own, which covers pitches, panels
and permuted contraction orders; XOR terms on the byte address cover swizzles. Where the strides are powers of two the
address is linear over GF(2), so conflicts are two ranks and an address needs no search.

Invariant: `Place.address` is the definition; `cols`, `bank_cycles` and `plan_addresses` are shortcuts that tests
compare with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layout import REGISTER_KINDS, Bits, Layout, bit, kind_of, name_of, number_of, rank, spec, xor_all
from wavedsl.ir.target import LoadAtom

Xor = tuple[int, int, int]
"""(b, m, s): the b bits from bit m of a byte address are XORed with the b bits from bit m + s."""


@dataclass(frozen=True)
class Piece:
    """A cut of a dimension: digit `coordinate // low % extent` adds `stride` bytes per count."""

    dim: str
    low: int
    extent: int
    stride: int


@dataclass(frozen=True)
class Place:
    """Tile coordinate → byte in one slot: the sum of the pieces, then the XOR terms in order.

    `slots` copies of the tile (pipeline stages) follow each other every `bytes`. `elsize` is the bytes of an element.
    """

    pieces: tuple[Piece, ...]
    xor: tuple[Xor, ...] = ()
    slots: int = 1
    elsize: int = 2
    _memo: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    _raw: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """Facts of the pieces alone, shared by all places that `varied` made from one."""

    def __post_init__(self) -> None:
        for p in self.pieces:
            if p.low < 1 or p.extent < 1 or p.stride < 1:
                raise CompileError(f"{p} needs positive numbers")
        if self.elsize not in (1, 2, 4, 8, 12, 16):
            raise CompileError(f"elements of {self.elsize} bytes cannot be placed")

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.dim for p in self.pieces))

    @property
    def extents(self) -> dict[str, int]:
        """Elements per dimension: the product of its pieces."""
        sizes: dict[str, int] = {}
        for p in self.pieces:
            sizes[p.dim] = sizes.get(p.dim, 1) * p.extent
        return sizes

    @property
    def window(self) -> int:
        """Bytes after which the swizzle repeats: adding a multiple of it commutes with the XOR terms. 1 without
        terms."""
        return 1 << max((m + s + b for b, m, s in self.xor), default=0)

    @property
    def bytes(self) -> int:
        """Bytes of one slot: the span of the pieces, rounded up to 16 and to the swizzle's window."""
        span = sum((p.extent - 1) * p.stride for p in self.pieces) + self.elsize
        unit = max(16, self.window)
        return -(-span // unit) * unit

    @property
    def total_bytes(self) -> int:
        return self.bytes * self.slots

    def swizzle(self, address: Any) -> Any:
        """The XOR terms applied to a byte address (an int or an integer array)."""
        for b, m, s in self.xor:
            address = address ^ ((address >> (m + s) & (1 << b) - 1) << m)
        return address

    def linear_address(self, coords: Mapping[str, Any]) -> Any:
        """Byte before the XOR terms, of coordinates given as ints or integer arrays."""
        total: Any = 0
        for p in self.pieces:
            total = total + coords[p.dim] // p.low % p.extent * p.stride
        return total

    def address(self, coords: Mapping[str, Any]) -> Any:
        """Byte in the slot, of coordinates given as ints or integer arrays (one entry per dimension)."""
        return self.swizzle(self.linear_address(coords))

    def weight(self, out: int) -> int:
        """Byte before the XOR terms, of one coordinate bit. Raises CompileError when a cut below it is no power of
        two."""
        dim, value = kind_of(out), 1 << number_of(out)
        total, seen = 0, False
        for p in self.pieces:
            if p.dim == dim:
                seen = True
                if p.low & (p.low - 1) and p.low < 2 * value:
                    raise CompileError(f"bit {name_of(out)} straddles a cut of {p}")
                total += value // p.low % p.extent * p.stride
        if not seen:
            raise CompileError(f"the place has no dimension {dim}", hint=f"it has {', '.join(self.dims)}")
        return total

    def cuts(self, dim: str) -> tuple[int, ...]:
        """Coordinates whose multiples are no ordinary step: sums of offsets must not carry across them."""
        found = self._raw.get(dim)
        if found is None:
            pieces = sorted((p for p in self.pieces if p.dim == dim), key=lambda p: p.low)
            found = self._raw[dim] = tuple(
                above.low
                for below, above in itertools.pairwise(pieces)
                if above.stride != below.stride * below.extent or above.low != below.low * below.extent
            )
        return found

    def _weights(self, access: Bits) -> tuple[tuple[int, ...], bool]:
        """Per output bit of the access its byte, and whether the bytes are disjoint, so that XOR adds them."""
        found = self._raw.get(access.outs)
        if found is None:
            weights = tuple(self.weight(o) for o in access.outs)
            used = 0
            disjoint = True
            for w in weights:
                disjoint &= not w & used
                used |= w
            found = self._raw[access.outs] = weights, disjoint
        return found

    def xor_linear(self, access: Bits) -> bool:
        """Addresses of this access are XORs of its columns. Otherwise they are sums, which only an unswizzled place
        has."""
        return self._weights(access)[1]

    def cols(self, access: Bits) -> tuple[int, ...]:
        """Bytes that each input bit of an access contributes: combined by XOR when `xor_linear`, else by addition.

        Raises CompileError when neither is right: a swizzle over strides whose bits overlap, or a padded pitch under a
        map that is not monomial.
        """
        found = self._memo.get(access)
        if found is None:
            raw = self._raw_cols(access)
            found = self._memo[access] = tuple(map(self.swizzle, raw)) if self.xor else raw
        return found

    def _raw_cols(self, access: Bits) -> tuple[int, ...]:
        weights, disjoint = self._weights(access)
        if not disjoint and self.xor:
            raise CompileError("a swizzle needs strides that are disjoint powers of two")
        found = self._raw.get(access)
        if found is None:
            used, raw = 0, []
            for c in access.cols:
                if c & used and not disjoint:
                    raise CompileError(f"{access} is not monomial, so a padded pitch has no columns for it")
                used |= c
                total = 0
                while c:
                    low = c & -c
                    total += weights[low.bit_length() - 1]
                    c ^= low
                raw.append(total)
            found = self._raw[access] = tuple(raw)
        return found

    def injective(self) -> bool:
        """Enumerates one slot: no two elements share a byte and none lies beyond `bytes`."""
        coords: dict[str, np.ndarray] = {}
        sizes = self.extents
        grid = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij", sparse=True)
        coords = dict(zip(sizes, grid))
        flat = np.broadcast_to(self.address(coords), tuple(sizes.values())).reshape(-1)
        flat = np.sort(flat)
        return bool(flat[0] >= 0 and flat[-1] + self.elsize <= self.bytes and np.all(np.diff(flat) >= self.elsize))

    def varied(self, *, xor: tuple[Xor, ...] | None = None, slots: int | None = None) -> Place:
        """The same pieces under other XOR terms or in another number of slots."""
        return Place(
            self.pieces,
            self.xor if xor is None else xor,
            self.slots if slots is None else slots,
            self.elsize,
            self._raw,
        )

    def __repr__(self) -> str:
        cuts = " ".join(f"{p.dim}/{p.low}%{p.extent}*{p.stride}" for p in self.pieces)
        xor = "".join(f" xor{t}" for t in self.xor)
        return f"Place({cuts}{xor} {self.slots}x{self.bytes}B)"


def row_major(
    extents: Mapping[str, int], elsize: int, pitch: int | None = None, xor: Iterable[Xor] = (), slots: int = 1
) -> Place:
    """A place with the last dimension contiguous; `pitch` is the bytes from one row of it to the next (default:
    dense)."""
    pieces: list[Piece] = []
    stride = elsize
    for i, (dim, n) in enumerate(reversed(list(extents.items()))):
        if i == 1 and pitch is not None:
            if pitch < stride:
                raise CompileError(f"a pitch of {pitch} bytes is less than the row's {stride}")
            stride = pitch
        pieces.append(Piece(dim, 1, n, stride))
        stride *= n
    return Place(tuple(reversed(pieces)), tuple(xor), slots, elsize)


# ---- load plans ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadPlan:
    """One way to move a fragment between shared memory and registers.

    `fills`: the fragment's register bits that one instance covers, lowest first: bit j of the position in the
    instance's registers is `fills[j]`. `address`: lane bits `L` (the lane that supplies an address) and wave bits w →
    coordinates. `residual`: the fragment's other register bits → coordinates; one instance per combination (and per
    register digit).
    """

    atom: LoadAtom
    fills: tuple[int, ...]
    address: Bits
    residual: Bits
    digits: int = 1

    @property
    def bytes(self) -> int:
        """Bytes each lane receives from one instance."""
        return self.atom.bytes

    @property
    def instances(self) -> int:
        """Instructions for the whole fragment."""
        return (1 << len(self.residual.ins)) * self.digits

    def groups(self, layout: Layout) -> tuple[tuple[int, ...], ...]:
        """Per instance, the element indices it moves, in the order of its registers; the first gives the offset."""
        registers = [b for b in layout.inner.ins if kind_of(b) in REGISTER_KINDS]
        place_of = {b: 1 << i for i, b in enumerate(registers)}
        inside = [0]
        for b in self.fills:
            inside += [x + place_of[b] for x in inside]
        heads = [0]
        for b in self.residual.ins:
            heads += [x + place_of[b] for x in heads]
        box = 1 << len(registers)
        repeats = layout.elements_per_lane // box
        return tuple(tuple(d * box + h + x for x in inside) for d in range(repeats) for h in heads)


def atom_bits(atom: LoadAtom, elsize: int) -> Bits:
    """An atom's strings as a map (lane l, element e) → (address-supplying lane L, element x of its piece).

    Strings are in the atom's own element (`piece_bytes` over the length of `element`); narrower elements of the program
    split it, wider ones join it. Raises CompileError when that would tear an element apart.
    """
    lane, element = atom.lane.split(), atom.element.split()
    own = atom.piece_bytes >> len(element)

    def moved(name: str, by: int) -> str:
        return f"e{int(name[1:]) + by}" if name[0] == "e" else name

    while own > elsize:
        own >>= 1
        lane, element = [moved(n, 1) for n in lane], ["e0", *(moved(n, 1) for n in element)]
    while own < elsize:
        own <<= 1
        if not element or element[0] != "e0":
            raise CompileError(f"{atom.name} moves {own // 2}-byte elements apart, so it cannot carry {elsize} bytes")
        lane, element = [moved(n, -1) for n in lane], [moved(n, -1) for n in element[1:]]
    return spec(L=" ".join(lane), x=" ".join(element))


def plan_load(
    fragment: Bits | Layout, place: Place, atoms: Sequence[LoadAtom], elsize: int | None = None
) -> tuple[LoadPlan, ...]:
    """Every way to move a fragment (element, register, lane, wave bits → coordinates) from or to `place`, best first.

    An atom is legal when the element bits of its piece fall on contiguous bytes, everything else keeps the piece
    aligned, the XOR terms leave the piece whole, and the registers inside one 32-bit word stay in order. Best: fewest
    instances, then most bytes, then the order of `atoms`. Works backwards (stmatrix, st.shared) as well. Results are
    memoised per place.
    """
    size = place.elsize if elsize is None else elsize
    key = ("plan_load", fragment, tuple(atoms), size)
    found = place._memo.get(key)
    if found is not None:
        return found
    if isinstance(fragment, Layout):
        inner, layout = fragment.inner, fragment
        steps = tuple(g for g in layout.digits if g.stride and g.extent > 1)
        digit_bytes = [place.linear_address({d: layout.step(g) * (d == g.dim) for d in place.dims}) for g in steps]
        repeats = 1
        for g in layout.reg_digits:
            repeats *= g.extent
    else:
        inner, digit_bytes, repeats = fragment, [], 1
    columns = dict(zip(inner.ins, place.cols(inner)))
    registers = [b for b in inner.ins if kind_of(b) in REGISTER_KINDS]
    lanes = [b for b in inner.ins if kind_of(b) == "l"]
    in_word = max(0, (4 // size).bit_length() - 1)
    plans = []
    for position, atom in enumerate(atoms):
        if size not in atom.elsizes:
            continue
        if not atom.lane:
            plan = _plan_vector(atom, inner, columns, registers, place, size, in_word, digit_bytes, repeats)
        else:
            plan = _plan_exchange(atom, inner, columns, registers, lanes, place, size, in_word, digit_bytes, repeats)
        if plan is not None:
            plans.append((plan.instances, -plan.bytes, position, plan))
    plans.sort(key=lambda p: p[:3])
    found = place._memo[key] = tuple(p[3] for p in plans)
    return found


def _keeps_pieces(place: Place, piece_bytes: int, others: Iterable[int]) -> bool:
    """Pieces of these bytes stay whole under the XOR terms, and all other contributions are multiples of them."""
    return all((1 << m) >= piece_bytes for _, m, _ in place.xor) and not any(c % piece_bytes for c in others)


def _plan_vector(
    atom: LoadAtom,
    inner: Bits,
    columns: Mapping[int, int],
    registers: Sequence[int],
    place: Place,
    size: int,
    in_word: int,
    digit_bytes: Sequence[int],
    repeats: int,
) -> LoadPlan | None:
    """A plain vector per lane: register bits whose columns are size, 2*size, 4*size, ..."""
    if atom.bytes < size or (atom.bytes & (atom.bytes - 1) and atom.bytes != size):
        return None
    fills: list[int] = []
    step = size
    while step < atom.bytes:
        b = next((b for b in registers if columns[b] == step), None)
        if b is None:
            return None
        fills.append(b)
        step <<= 1
    word = min(in_word, len(fills))
    if fills[:word] != list(registers[:word]):
        return None
    others = [c for b, c in columns.items() if b not in fills]
    if not _keeps_pieces(place, atom.bytes, (*others, *digit_bytes)):
        return None
    address = inner.only("l", "w").rekind("l", "L")
    return LoadPlan(atom, tuple(fills), address, inner.only(*REGISTER_KINDS).without(fills), repeats)


def _plan_exchange(
    atom: LoadAtom,
    inner: Bits,
    columns: Mapping[int, int],
    registers: Sequence[int],
    lanes: Sequence[int],
    place: Place,
    size: int,
    in_word: int,
    digit_bytes: Sequence[int],
    repeats: int,
) -> LoadPlan | None:
    """An atom that exchanges elements between lanes: address map = fragment after the inverse of the atom."""
    try:
        pattern = atom_bits(atom, size)
    except CompileError:  # its own element is narrower than ours and would be torn apart
        return None
    filled = pattern.count("e")
    if pattern.count("l") != len(lanes) or filled > len(registers) or filled < in_word:
        return None
    back = pattern.inverse()
    contiguous = tuple(size << i for i in range(back.count("x")))
    moving = inner.only("l", "w")
    for tail in itertools.permutations(registers[in_word:], filled - in_word):
        fills = (*registers[:in_word], *tail)
        # image of (L, x) = XOR of the fragment's images of the (l, e) bits it comes from
        image = {bit("e", i): inner.column(b) for i, b in enumerate(fills)}
        image.update((b, inner.column(b)) for b in lanes)
        cols = {
            b: xor_all(image[o] for j, o in enumerate(back.outs) if c >> j & 1) for b, c in zip(back.ins, back.cols)
        }
        source = Bits(cols, inner.outs, cols.values())
        if place.cols(source.only("x")) != contiguous:
            continue
        residual = inner.only(*REGISTER_KINDS).without(fills)
        waves = moving.only("w")
        supply = source.only("L")
        address = Bits((*supply.ins, *waves.ins), inner.outs, (*supply.cols, *waves.cols))
        others = (*place.cols(address), *(columns[b] for b in residual.ins), *digit_bytes)
        if _keeps_pieces(place, atom.piece_bytes, others):
            return LoadPlan(atom, fills, address, residual, repeats)
    return None


# ---- bank conflicts --------------------------------------------------------------------------------------------------


def _lane_columns(place: Place, access: Bits, phase: Sequence[int]) -> list[int]:
    """Address column of every lane bit; lane bits that the access does not read (replicas) contribute 0."""
    kind = "L" if access.count("L") else "l"
    lanes = access.only(kind)
    column = {number_of(b): c for b, c in zip(lanes.ins, place.cols(lanes))}
    width = max((*(n + 1 for n in column), *(p.bit_length() for p in phase)), default=0)
    return [column.get(i, 0) for i in range(width)]


def bank_cycles(place: Place, access: Bits, bytes: int, phase: Sequence[int], banks: int) -> int:
    """Shared-memory cycles of one instruction: per group of lanes served together, the fullest bank.

    `phase` is a basis of lane masks; every group is a coset of its span. `banks` are 4 bytes wide; lanes that read the
    same word share it. Closed form where addresses are XORs: each group costs 2^(rank(words) - rank(words modulo
    banks)).
    """
    lanes = access.only("L" if access.count("L") else "l")
    cols = _lane_columns(place, access, phase)
    aligned = not any(c & (bytes - 1) for c in cols)
    if not (aligned and place.xor_linear(lanes)) or bytes & (bytes - 1) or banks & (banks - 1):
        addresses = [0]
        for c in cols:
            addresses += [a + c for a in addresses] if not place.xor_linear(lanes) else [a ^ c for a in addresses]
        return _served(addresses, bytes, phase, banks)
    words = [4 << i for i in range((bytes // 4).bit_length() - 1)] if bytes >= 4 else []
    vectors = [xor_all(c for i, c in enumerate(cols) if p >> i & 1) >> 2 for p in phase] + [w >> 2 for w in words]
    groups = 1 << (len(cols) - rank(phase))
    return groups << (rank(vectors) - rank(v % banks for v in vectors))


def _served(addresses: Sequence[int], bytes: int, phase: Sequence[int], banks: int) -> int:
    """Cycles of one access, lane by lane: over the groups of lanes, the most distinct words in one bank."""
    span = [0]
    for p in phase:
        span += [x ^ p for x in span]
    total, done = 0, bytearray(len(addresses))
    for lane in range(len(addresses)):
        if done[lane]:
            continue
        words: set[int] = set()
        for x in span:
            done[lane ^ x] = 1
            first = addresses[lane ^ x] >> 2
            words.update(range(first, first + max(1, bytes // 4)))
        per_bank = [0] * banks
        for word in words:
            per_bank[word % banks] += 1
        total += max(per_bank)
    return total


def bank_cycles_enumerated(place: Place, access: Bits, bytes: int, phase: Sequence[int], banks: int) -> int:
    """The same number by visiting every lane and word; the only way for padded pitches, the check of the closed
    form."""
    kind = "L" if access.count("L") else "l"
    lanes = access.only(kind)
    width = len(_lane_columns(place, access, phase))
    position = {number_of(b): i for i, b in enumerate(lanes.ins)}
    addresses = []
    for lane in range(1 << width):
        word = lanes(sum(1 << i for n, i in position.items() if lane >> n & 1))
        coords = dict.fromkeys(place.dims, 0)
        for j, o in enumerate(lanes.outs):
            coords[kind_of(o)] |= (word >> j & 1) << number_of(o)
        addresses.append(int(place.address(coords)))
    return _served(addresses, bytes, phase, banks)


# ---- address code ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """Part of an address: `((source & mask) << shift) * scale`; a negative shift is to the right."""

    mask: int
    shift: int
    scale: int = 1

    def __call__(self, source: Any) -> Any:
        part = source & self.mask
        return (part << self.shift if self.shift >= 0 else part >> -self.shift) * self.scale


def lane_fields(cols: Sequence[int], xor: bool = True) -> tuple[Field, ...]:
    """Columns of consecutive source bits grouped into few fields, to be combined by XOR (`xor`) or by addition.

    By XOR every address bit of a column is its own (mask, shift); by addition a column is an odd scale times a power of
    two. Wide masks come first. `(l & 15) << 7 ^ (l & 7) << 4 ^ (l & 48)` are three fields.
    """
    masks: dict[tuple[int, int], int] = {}
    for i, c in enumerate(cols):
        if xor:
            rest = c
            while rest:
                low = rest & -rest
                key = (low.bit_length() - 1 - i, 1)
                masks[key] = masks.get(key, 0) | 1 << i
                rest ^= low
        elif c:
            low = c & -c
            key = (low.bit_length() - 1 - i, c // low)
            masks[key] = masks.get(key, 0) | 1 << i
    fields = [Field(mask, shift, scale) for (shift, scale), mask in masks.items()]
    return tuple(sorted(fields, key=lambda f: (-f.mask.bit_count(), -f.shift, f.scale, f.mask)))


@dataclass(frozen=True)
class AddressPlan:
    """An access to a place as address code.

    address(item) = (lane fields ∘ wave fields ^ registers[item.register]) + digit sums + item.immediate, where ∘ is XOR
    when `xor`, else addition. `disjoint`: the fields share no bit, so OR and addition serve as well as XOR. `lane`:
    fields of the lane number; `wave`: fields of the w bits' value; `digits`: per wave digit of the layout either fields
    of its value (`xor` combination) or one field with a scale that is simply added.
    """

    xor: bool
    disjoint: bool
    lane: tuple[Field, ...]
    wave: tuple[Field, ...]
    digits: tuple[tuple[bool, tuple[Field, ...]], ...]
    """(combined by XOR like the lanes, fields) per wave digit."""
    registers: tuple[int, ...]
    """Constants XORed into the lane part: one address register each; 0 alone is the usual case."""
    items: tuple[tuple[int, int], ...]
    """Per requested offset: (index into `registers`, immediate bytes)."""

    def evaluate(self, lane: int, wave: int, digits: Sequence[int], item: int) -> int:
        """The address that the emitted code would compute; for checks."""
        moving = [f(lane) for f in self.lane] + [f(wave) for f in self.wave]
        added = 0
        for (joined, fields), value in zip(self.digits, digits):
            if joined:
                moving += [f(value) for f in fields]
            else:
                added += sum(f(value) for f in fields)
        register, immediate = self.items[item]
        base = (xor_all(moving) if self.xor else sum(moving)) ^ self.registers[register]
        return base + added + immediate


def plan_addresses(
    place: Place,
    address: Bits,
    offsets: Sequence[Mapping[str, int]],
    layout: Layout | None = None,
) -> AddressPlan:
    """Splits an access into lane fields, immediates and extra address registers.

    `address` maps lane bits (l or L) and wave bits to coordinates (a `LoadPlan.address`), `offsets` are the static
    coordinates of each instance, `layout` supplies the wave digits. An offset whose bytes are a multiple of the
    swizzle's window, or whose swizzled bytes miss every bit the lanes and waves reach, is an immediate; the rest shares
    one more address register per distinct pattern. Raises CompileError when offsets carry into bits that lanes use
    under a swizzle.
    """
    kind = "L" if address.count("L") else "l"
    _stays_between_cuts(place, address, offsets, layout)
    cols = dict(zip(address.ins, place.cols(address)))
    xor = place.xor_linear(address)
    window = place.window
    by_number = {number_of(b): cols[b] for b in address.ins if kind_of(b) == kind}
    lane_cols = [by_number.get(i, 0) for i in range(max(by_number, default=-1) + 1)]
    by_number = {number_of(b): cols[b] for b in address.ins if kind_of(b) == "w"}
    wave_cols = [by_number.get(i, 0) for i in range(max(by_number, default=-1) + 1)]
    raw = 0  # bits of the unswizzled address that vary, below the window
    for w, reached in zip(*_reached(place, address)):
        raw |= w if reached else 0
    image = 0
    for c in (*lane_cols, *wave_cols):
        image |= c
    digits: list[tuple[bool, tuple[Field, ...]]] = []
    for g in layout.wave_digits if layout is not None else ():
        step = place.linear_address({d: layout.step(g) * (d == g.dim) for d in place.dims}) if g.stride else 0  # type: ignore[union-attr]
        if not place.xor or step % window == 0:
            digits.append((False, lane_fields([step << i for i in range((g.extent - 1).bit_length())], False)))
            continue
        parts = [step << i for i in range((g.extent - 1).bit_length())]
        if any(p & (p - 1) or p & raw for p in parts):
            raise CompileError(f"{g} steps {step} bytes, which carries into bits that the swizzle reads")
        swizzled = [place.swizzle(p) for p in parts]
        for p, c in zip(parts, swizzled):
            raw, image = raw | p, image | c
        digits.append((True, lane_fields(swizzled)))
    registers: dict[int, int] = {}
    items = []
    for offset in offsets:
        linear = place.linear_address({d: offset.get(d, 0) for d in place.dims})
        low = linear % window
        if not place.xor or not low:
            pattern, immediate = 0, linear
        else:
            if low & raw:
                raise CompileError(f"an offset of {dict(offset)} carries into bits that the swizzle reads")
            swizzled_low = place.swizzle(low)
            pattern, immediate = swizzled_low & image, (swizzled_low & ~image) + linear - low
        items.append((registers.setdefault(pattern, len(registers)), immediate))
    if not registers:
        registers[0] = 0
    lane, wave = lane_fields(lane_cols, xor), lane_fields(wave_cols, xor)
    used, disjoint = 0, True
    for fields, width in ((lane, len(lane_cols)), (wave, len(wave_cols)), *((f, 6) for j, f in digits if j)):
        for f in fields:
            reach = f((1 << width) - 1)
            disjoint &= f.scale == 1 and not reach & used
            used |= reach
    return AddressPlan(xor, disjoint and len(registers) == 1, lane, wave, tuple(digits), tuple(registers), tuple(items))


def _stays_between_cuts(
    place: Place, address: Bits, offsets: Sequence[Mapping[str, int]], layout: Layout | None
) -> None:
    """Bytes of lanes, waves and offsets add up only if their coordinates never carry across a cut of the place."""
    for dim in place.dims:
        for cut in place.cuts(dim):
            reach = 0
            for c in address.coordinate_columns(dim):
                reach |= c
            total = reach & (cut - 1) if not cut & (cut - 1) else reach
            for g in layout.wave_digits if layout is not None else ():
                if g.dim == dim and g.stride:
                    step = layout.step(g)  # type: ignore[union-attr]
                    total += max(count * step % cut for count in range(g.extent))
            total += max((offset.get(dim, 0) % cut for offset in offsets), default=0)
            if total >= cut:
                raise CompileError(f"coordinates of {dim} carry across the cut at {cut} of {place}")


def _reached(place: Place, address: Bits) -> tuple[tuple[int, ...], list[bool]]:
    """Unswizzled bytes of every coordinate bit, and whether lanes or waves drive it."""
    driven = 0
    for c in address.cols:
        driven |= c
    return place._weights(address)[0], [bool(driven >> j & 1) for j in range(len(address.outs))]
