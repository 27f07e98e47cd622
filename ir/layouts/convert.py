"""Layout conversion: how a value moves between registers and lanes from one layout to another.

Comes in: two layouts of the same value and the bytes of an element. Goes out: a `ConvertPlan`, a short list of steps
that lowering turns into register renaming, byte permutes, lane exchanges, or a trip through shared memory.

The idea: with monomial layouts a conversion is a permutation of bits between positions (element bits, lane bits, wave
bits). A coordinate bit that stays among element bits is a renaming; one that changes places with a lane bit is an
exchange of half the registers; moves between lane bits are one shuffle; anything that crosses waves goes through shared
memory. A position without a coordinate holds replicas: filling it needs no exchange, emptying it needs one shuffle per
register.

Invariant: `replay` of a plan on the source layout's table gives the destination layout's table.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import REGISTER_KINDS, Bits, bit, kind_of, number_of
from wavedsl.ir.layouts.layout import Layout, make_layout
from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class Rename:
    """Element i of the result is element `source[i]` of the same lane. `permutes`: 32-bit words to build by byte
    permutes."""

    source: tuple[int, ...]
    permutes: int = 0


@dataclass(frozen=True)
class Swap:
    """Exchange of half the registers: bit `register` of the element index changes places with lane bit `lane`."""

    register: int
    lane: int


@dataclass(frozen=True)
class Keep:
    """Lanes (`l`) or waves (`w`) that held replicas keep the half of their elements whose index bit equals their own
    bit."""

    register: int
    kind: str
    number: int


@dataclass(frozen=True)
class Spread:
    """Every lane also gets the elements of its partner in lane bit `lane`; the bit becomes the top bit of the element
    index."""

    lane: int


@dataclass(frozen=True)
class LaneMove:
    """Lane l takes all its elements from lane `source(l)`; `source` maps lane bits to lane bits."""

    source: Bits


Step = Rename | Swap | Keep | Spread | LaneMove


@dataclass(frozen=True)
class ConvertPlan:
    """Steps per box of the layout, repeated for every register digit: box d of the result is made from box `digits[d]`.

    `kind` is the dearest thing needed: `renaming` (free), `byte permutes`, `lane exchange`, or `shared memory` (no
    steps).
    """

    kind: str
    steps: tuple[Step, ...] = ()
    digits: tuple[int, ...] = (0,)

    @property
    def exchanges(self) -> int:
        """Exchanges of half the registers with another lane."""
        return sum(isinstance(s, Swap) for s in self.steps)

    @property
    def shuffles(self) -> int:
        """Moves of all registers from another lane."""
        return sum(isinstance(s, LaneMove | Spread) for s in self.steps)

    @property
    def permutes(self) -> int:
        """32-bit words built by byte permutes, over all boxes."""
        return len(self.digits) * sum(s.permutes for s in self.steps if isinstance(s, Rename))


SHARED = ConvertPlan("shared memory")


def plan_convert(src: Bits | Layout, dst: Bits | Layout, elsize: int = 4) -> ConvertPlan:
    """How to turn distribution `src` of a value into `dst`. Elements narrower than 4 bytes share 32-bit words.

    Raises CompileError when the two do not cover the same coordinates.
    """
    a = src if isinstance(src, Layout) else make_layout(src)
    b = dst if isinstance(dst, Layout) else make_layout(dst)
    if dict(a.extents) != dict(b.extents):
        raise CompileError(f"cannot convert between layouts of different extents: {a} and {b}")
    b = b.reorder(a.dims)
    in_word = max(0, (4 // elsize).bit_length() - 1)
    renaming = _renamed(a, b, in_word)
    if renaming is not None:
        return renaming
    digits = _matched_digits(a, b)
    if digits is None or not (a.inner.monomial() and b.inner.monomial()):
        return SHARED
    steps = _moves(a.inner, b.inner, in_word)
    if steps is None:
        return SHARED
    kind = "renaming"
    for step in steps:
        if not isinstance(step, Rename):
            kind = "lane exchange"
        elif step.permutes and kind == "renaming":
            kind = "byte permutes"
    return ConvertPlan(kind, steps, digits)


def _renamed(a: Layout, b: Layout, in_word: int) -> ConvertPlan | None:
    """Same lanes, same waves: every element is already in its lane, whatever the digits look like."""
    if a.lanes != b.lanes or a.wave_offsets() != b.wave_offsets():
        return None
    if any(a.lane_columns(d) != b.lane_columns(d) for d in a.dims):
        return None
    held: dict[tuple[int, ...], int] = {}
    for i, offset in enumerate(a.element_offsets()):
        held.setdefault(offset, i)
    if any(offset not in held for offset in b.element_offsets()):
        return None
    source = tuple(held[offset] for offset in b.element_offsets())
    if source == tuple(range(a.elements_per_lane)):
        return ConvertPlan("renaming")
    permutes = _permuted_words(source, in_word)
    return ConvertPlan("byte permutes" if permutes else "renaming", (Rename(source, permutes),))


def _permuted_words(source: tuple[int, ...], in_word: int) -> int:
    """Byte permutes to build the words of a renaming: one joins two words, a word taken whole needs none."""
    size = 1 << in_word
    total = 0
    for first in range(0, len(source), size):
        wanted = source[first : first + size]
        if wanted != tuple(range(wanted[0], wanted[0] + len(wanted))) or wanted[0] % size:
            total += max(1, len({x >> in_word for x in wanted}) - 1)
    return total


def _matched_digits(a: Layout, b: Layout) -> tuple[int, ...] | None:
    """Per register-digit combination of `b` that of `a` with the same offsets; None when digits or boxes differ."""
    if any(a.box(d) != b.box(d) for d in a.dims) or len(a.wave_digits) != len(b.wave_digits):
        return None
    for g, h in zip(a.wave_digits, b.wave_digits):
        if (g.extent, a.step(g)) != (h.extent, b.step(h)) or (g.stride and g.dim != h.dim):
            return None
    combos: list[dict[tuple[int, ...], int]] = []
    for layout in (a, b):
        box = 1 << layout.inner.count(*REGISTER_KINDS)
        offsets = layout.element_offsets()[::box]
        combos.append({offset: i for i, offset in enumerate(offsets)})
    if combos[0].keys() != combos[1].keys():
        return None
    return tuple(combos[0][offset] for offset in combos[1])


def _moves(a: Bits, b: Bits, in_word: int) -> tuple[Step, ...] | None:
    """Steps from monomial map `a` to `b`, or None when waves must exchange data.

    Positions are input bits; `holds[p]` is the coordinate bit a position drives, None for replicas.
    """
    coordinate_a, coordinate_b = a.src(), b.src()
    if coordinate_a.keys() != coordinate_b.keys():
        return None
    holds: dict[int, int | None] = dict.fromkeys(a.ins)
    holds.update({p: o for o, p in coordinate_a.items()})
    wants: dict[int, int | None] = dict.fromkeys(b.ins)
    wants.update({p: o for o, p in coordinate_b.items()})
    registers: list[int | None] = [holds[p] for p in a.ins if kind_of(p) in REGISTER_KINDS]
    if None in registers or any(wants[p] is None for p in b.ins if kind_of(p) in REGISTER_KINDS):
        return None  # copies inside a lane: nobody asks for them
    lanes = max((number_of(p) + 1 for p in (*a.ins, *b.ins) if kind_of(p) == "l"), default=0)
    fixed = [(kind_of(p), number_of(p)) for p in sorted({*a.ins, *b.ins}) if kind_of(p) == "w"]
    steps: list[Step] = []
    for kind, number in fixed:
        p = bit(kind, number)
        wanted, held = wants.get(p), holds.get(p)
        if wanted == held:
            continue
        if wanted not in registers or held is not None:
            return None
        steps.append(Keep(registers.index(wanted), kind, number))
        registers.remove(wanted)
        holds[p] = wanted
    again = True
    while again:  # a swap can bring to the registers what an earlier lane bit wants
        again = False
        for number in range(lanes):
            p = bit("l", number)
            wanted, held = wants.get(p), holds.get(p)
            if wanted is None or wanted == held or wanted not in registers:
                continue
            at = registers.index(wanted)
            if held is None:
                steps.append(Keep(at, "l", number))
                del registers[at]
            else:
                steps.append(Swap(at, number))
                registers[at] = held
            holds[p] = wanted
            again = True
    wanted_registers = [wants[p] for p in b.ins if kind_of(p) in REGISTER_KINDS]
    for number in range(lanes):
        p = bit("l", number)
        if holds.get(p) is not None and holds[p] in wanted_registers:
            steps.append(Spread(number))
            registers.append(holds[p])
            holds[p] = None
    move = _lane_move(holds, wants, lanes)
    if move is not None:
        steps.append(LaneMove(move))
    if sorted(registers) != sorted(wanted_registers):  # type: ignore[type-var]
        return None
    position = {o: i for i, o in enumerate(registers)}
    source = [0]
    for o in wanted_registers:
        source += [x | 1 << position[o] for x in source]
    if source != list(range(len(source))):
        steps.append(Rename(tuple(source), _permuted_words(tuple(source), in_word)))
    return tuple(steps)


def _lane_move(holds: Mapping[int, int | None], wants: Mapping[int, int | None], lanes: int) -> Bits | None:
    """The lane each lane must take its elements from, as a map of lane bits; None when that is itself."""
    drive = {o: p for p, o in wants.items() if o is not None and kind_of(p) == "l"}
    ins = tuple(bit("l", i) for i in range(lanes))
    cols = [0] * lanes
    for i, p in enumerate(ins):
        held = holds.get(p)
        source = p if held is None else drive[held]
        cols[number_of(source)] |= 1 << i
    if cols == [1 << i for i in range(lanes)]:
        return None
    return Bits(ins, ins, cols)


def replay(plan: ConvertPlan, values: np.ndarray) -> np.ndarray:
    """The plan applied to an array [wave, lane, element]: the meaning of the steps, for lowering and for checks.

    Raises CompileError for a plan through shared memory, which has no steps.
    """
    if plan.kind == "shared memory":
        raise CompileError("a conversion through shared memory has no steps to replay")
    waves, lanes, elements = values.shape
    boxes = values.reshape(waves, lanes, len(plan.digits), elements // len(plan.digits))
    boxes = boxes[:, :, list(plan.digits)]
    for step in plan.steps:
        lane, wave = np.arange(boxes.shape[1]), np.arange(waves)
        index = np.arange(boxes.shape[3])
        if isinstance(step, Rename):
            boxes = boxes[..., list(step.source)]
        elif isinstance(step, Swap):
            r, b = 1 << step.register, 1 << step.lane
            from_lane = lane[:, None] & ~b | np.where(index & r, b, 0)[None, :]
            from_index = index[None, :] & ~r | np.where(lane & b, r, 0)[:, None]
            boxes = boxes[:, from_lane[:, None, :], np.arange(boxes.shape[2])[None, :, None], from_index[:, None, :]]
        elif isinstance(step, Keep):
            low = (1 << step.register) - 1
            half = np.arange(boxes.shape[3] // 2)
            spaced = half & low | (half & ~low) << 1
            own = (lane[None, :] if step.kind == "l" else wave[:, None]) >> step.number & 1
            own = np.broadcast_to(own, (waves, len(lane)))
            pick = spaced[None, None, :] | (own << step.register)[:, :, None]
            boxes = np.take_along_axis(boxes, np.broadcast_to(pick[:, :, None, :], (*boxes.shape[:3], len(half))), 3)
        elif isinstance(step, Spread):
            b = 1 << step.lane
            boxes = np.concatenate((boxes[:, lane & ~b], boxes[:, lane | b]), 3)
        else:
            boxes = boxes[:, step.source.apply(lane)]
    return boxes.reshape(waves, boxes.shape[1], -1)
