"""How a fragment is loaded from where its tile lies: which load atom, which registers one instance fills, whose address
each lane supplies.

Comes in: the fragment's `Bits`, a `Place`, the chip's load atoms. Goes out: `LoadPlan`s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import REGISTER_KINDS, Bits, bit, kind_of, spec, xor_all
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.place import Place
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import LoadAtom


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
        key = ("groups", self.fills, self.residual.ins)
        found = layout._memo.get(key)
        if found is not None:
            return found
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
        starts = [d * box + h for d in range(repeats) for h in heads]
        found = layout._memo[key] = tuple(tuple([s + x for x in inside]) for s in starts)
        return found

    def offsets(self, layout: Layout) -> tuple[dict[str, int], ...]:
        """Per instance, the coordinates of its first element."""
        key = ("offsets", self.fills, self.residual.ins)
        found = layout._memo.get(key)
        if found is None:
            found = layout._memo[key] = tuple(layout.coords(group[0]) for group in self.groups(layout))
        return found


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
    fragment: Bits | Layout, place: Place, atoms: Sequence[LoadAtom]
) -> tuple[LoadPlan, ...]:
    """Every way to move a fragment (element, register, lane, wave bits → coordinates) from or to `place`, best first.

    An atom is legal when the element bits of its piece fall on contiguous bytes, everything else keeps the piece
    aligned, the XOR terms leave the piece whole, and the registers inside one 32-bit word stay in order. Best: fewest
    instances, then most bytes, then the order of `atoms`. Works backwards (stmatrix, st.shared) as well. Results are
    memoised per place.
    """
    key = ("plan_load", fragment, tuple(atoms))
    found = place._memo.get(key)
    if found is not None:
        return found
    plans = []
    for position, atom in enumerate(atoms):
        plan = plan_with(fragment, place, atom)
        if plan is not None:
            plans.append((plan.instances, -plan.bytes, position, plan))
    plans.sort(key=lambda p: p[:3])
    found = place._memo[key] = tuple(p[3] for p in plans)
    return found


def plan_with(fragment: Bits | Layout, place: Place, atom: LoadAtom, elsize: int | None = None) -> LoadPlan | None:
    """The way to move a fragment by one atom, as `plan_load` has it; None where it is not legal."""
    size = place.elsize if elsize is None else elsize
    if size not in atom.elsizes:
        return None
    seen = place._memo.get(("seen", fragment))
    if seen is None:
        seen = place._memo["seen", fragment] = _seen(fragment, place)
    return _plan_exchange(atom, seen, place, size) if atom.lane else _plan_vector(atom, seen, place, size)


class _Seen(NamedTuple):
    """A fragment as a place has it, for any atom: the box and its bytes per input bit (`columns`), its `registers` and
    `lanes` bits, bytes per step of the digits, and how often the box repeats in registers."""

    inner: Bits
    columns: dict[int, int]
    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    digit_bytes: list[int]
    repeats: int


def _seen(fragment: Bits | Layout, place: Place) -> _Seen:
    inner = fragment.inner if isinstance(fragment, Layout) else fragment
    digit_bytes, repeats = _digits(fragment, place) if isinstance(fragment, Layout) else ([], 1)
    columns = dict(zip(inner.ins, place.cols(inner)))
    return _Seen(inner, columns, inner.only(*REGISTER_KINDS).ins, inner.only("l").ins, digit_bytes, repeats)


def _digits(layout: Layout, place: Place) -> tuple[list[int], int]:
    """Bytes per step of the digits, which no XOR term changes, and how often the box repeats in registers."""
    found = place._raw.get(("digits", layout))
    if found is None:
        digit_bytes = []
        for g in layout.digits:
            if g.stride and g.extent > 1:
                coords = dict.fromkeys(place.dims, 0)
                coords[g.dim] = layout.step(g)
                digit_bytes.append(place.linear_address(coords))
        found = place._raw["digits", layout] = digit_bytes, prod(g.extent for g in layout.reg_digits)
    return found


def _in_word(size: int) -> int:
    """Element bits inside one 32-bit word."""
    return max(0, (4 // size).bit_length() - 1)


def _keeps_pieces(place: Place, piece_bytes: int, others: Iterable[int]) -> bool:
    """Pieces of these bytes stay whole under the XOR terms, and all other contributions are multiples of them."""
    return all((1 << m) >= piece_bytes for _, m, _ in place.xor) and not any(c % piece_bytes for c in others)


def _plan_vector(atom: LoadAtom, seen: _Seen, place: Place, size: int) -> LoadPlan | None:
    """A plain vector per lane: register bits whose columns are size, 2*size, 4*size, ..."""
    inner, columns, registers, _, digit_bytes, repeats = seen
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
    word = min(_in_word(size), len(fills))
    if tuple(fills[:word]) != registers[:word] and not atom.joined:
        return None
    others = [c for b, c in columns.items() if b not in fills]
    if not _keeps_pieces(place, atom.bytes, (*others, *digit_bytes)):
        return None
    address = inner.only("l", "w").rekind("l", "L")
    return LoadPlan(atom, tuple(fills), address, inner.only(*REGISTER_KINDS).without(fills), repeats)


def _plan_exchange(atom: LoadAtom, seen: _Seen, place: Place, size: int) -> LoadPlan | None:
    """An atom that exchanges elements between lanes: address map = fragment after the inverse of the atom."""
    inner, columns, registers, lanes, digit_bytes, repeats = seen
    in_word = _in_word(size)
    memo = inner._memo.setdefault(("exchange", atom, size), {})
    back = memo.get("back")
    if back is None:
        try:
            back = atom_bits(atom, size).inverse()
        except CompileError:  # its own element is narrower than ours and would be torn apart
            return None
        memo["back"] = back
    filled = sum(kind_of(o) == "e" for o in back.outs)
    if len(back.outs) - filled != len(lanes) or filled > len(registers) or filled < in_word:
        return None
    contiguous = tuple(size << i for i in range(back.count("x")))
    for tail in itertools.permutations(registers[in_word:], filled - in_word):
        fills = (*registers[:in_word], *tail)
        found = memo.get(fills)
        if found is None:
            found = memo[fills] = _exchanged(inner, back, fills, lanes)
        piece, address, residual = found
        if place.cols(piece) != contiguous:
            continue
        others = (*place.cols(address), *(columns[b] for b in residual.ins), *digit_bytes)
        if _keeps_pieces(place, atom.piece_bytes, others):
            return LoadPlan(atom, fills, address, residual, repeats)
    return None


def _exchanged(inner: Bits, back: Bits, fills: Sequence[int], lanes: Sequence[int]) -> tuple[Bits, Bits, Bits]:
    """What an atom (`back`: where each lane and element of a piece goes) that fills these registers of a fragment asks
    for, wherever the tile lies: maps of a piece's elements, of its address and of its instances to coordinates. Worked
    out once for all the places that a search tries."""
    # image of (L, x) = XOR of the fragment's images of the (l, e) bits it comes from
    image = {bit("e", i): inner.column(b) for i, b in enumerate(fills)}
    image.update((b, inner.column(b)) for b in lanes)
    cols = {b: xor_all(image[o] for j, o in enumerate(back.outs) if c >> j & 1) for b, c in zip(back.ins, back.cols)}
    source = Bits(cols, inner.outs, cols.values())
    waves, supply = inner.only("w"), source.only("L")
    address = Bits((*supply.ins, *waves.ins), inner.outs, (*supply.cols, *waves.cols))
    return source.only("x"), address, inner.only(*REGISTER_KINDS).without(fills)
