"""Layouts that the ports of a matrix instruction demand: its fragment, repeated over a wave's tile.

K may be permuted, alike for both operands: so that one read serves several steps, or scales of neighbouring blocks
share a register.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.dtypes import DType
from wavedsl.ir.layouts.bits import spec, with_bits
from wavedsl.ir.layouts.layout import Digit, Layout
from wavedsl.ir.target import VECTOR_BYTES, MmaAtom, Target


def scaled_steps(atom: MmaAtom, wk: int) -> tuple[int, tuple[int, ...]]:
    """(log2 of the steps along K whose scales are neighbours in a register, where the bits of the instruction's K go).

    Steps lie between the block's own bits and those that tell the instruction's blocks apart: a lane then takes
    neighbouring blocks in consecutive steps.
    """
    steps = 0
    while steps < 2 and -(-wk // atom.k) % (2 << steps) == 0:
        steps += 1
    inside = atom.scale_block.bit_length() - 1
    width = len(atom.a["K"].split())
    return steps, tuple(i if i < inside else i + steps for i in range(width))


def scale_layout(
    atom: MmaAtom, port: str, name: str, wave: int, block_dim: str, wk: int, steps: int, target: Target
) -> Layout:
    """How the scales of operand `port`, "M" or "N", are held: a lane has those of the row of its elements, of block
    l // size of every step."""
    lanes, size = target.lane_bits, atom.m if port == "M" else atom.n
    low = size.bit_length() - 1
    rows = (atom.a if port == "M" else atom.b)[port]
    blocks = [f"e{i}" for i in range(steps)] + [f"l{i}" for i in range(low, lanes)]
    inner = named_bits({"M": rows, "K": " ".join(blocks)}, {"M": name or "_m", "K": block_dim}, target)
    count, count_k = -(-wave // size), -(-wk // (atom.k << steps))
    digits = [Digit("reg", c, d, 1) for c, d in ((count, name), (count_k, block_dim)) if d and c > 1]
    extents = {name: count * size} if name else {}
    extents[block_dim] = count_k * (atom.k << steps) // atom.scale_block
    return without_placeholders(inner, digits, extents, ("_m",))


def paired_columns(block: int) -> str:
    """Where a warpgroup's lanes and registers hold the columns of a result that come as the first pairs of each four,
    then the second pairs: a lane has both pairs of a four, as the fragments of 8-bit operands want it."""
    registers = [f"e{i}" for i in range(2, block.bit_length() - 2)]  # e1 is the instruction's second row
    return " ".join(["e0", registers[-1], "l0", "l1", *registers[:-1]])


def whole_tile(extents: Mapping[str, int], target: Target) -> Layout:
    """Some layout that covers a tile exactly: lanes along the power-of-two parts, the rest in registers."""
    strings: dict[str, str] = {}
    digits: list[Digit] = []
    lane = 0
    for d, size in extents.items():
        take = min(target.lane_bits - lane, (size & -size).bit_length() - 1)
        strings[d] = " ".join(f"l{lane + i}" for i in range(take))
        lane += take
        if size >> take > 1:
            digits.append(Digit("reg", size >> take, d, 1))
    free = " ".join(f"l{i}" for i in range(lane, target.lane_bits))
    return Layout(spec(with_bits(strings), free=free), tuple(digits), tuple(extents.items()))


def in_order(strings: Mapping[str, str], order: tuple[int, ...] | None) -> Mapping[str, str]:
    """A fragment's strings with bit i of K moved to bit `order[i]`."""
    if order is None:
        return strings
    moved = ["0"] * (max(order) + 1)  # a gap is filled by steps of instructions
    for i, source in enumerate(strings["K"].split()):
        moved[order[i]] = source
    return {**strings, "K": " ".join(moved)}


def side_by_side(strings: Mapping[str, str], side: str, bits: int, first: int = 0) -> Mapping[str, str]:
    """A fragment's strings with 2^`bits` neighbours along `side` in a lane, of as many instructions side by side, which
    bits r of the layout from number `first` on tell apart."""
    if not bits:
        return strings
    return {**strings, side: " ".join([*(f"r{first + i}" for i in range(bits)), strings[side]])}


def leading_elements(bits: str) -> int:
    """Elements that are contiguous in one lane along a dimension with these sources: 2 to the number of leading e
    bits."""
    count = 0
    for b in bits.split():
        if not b.startswith("e"):
            break
        count += 1
    return 1 << count


def wide_steps(atom: MmaAtom, dtype: DType, wk: int, target: Target) -> int:
    """log2 of the k-steps that one 16-byte read of an operand serves, by permuting K inside 2^steps instructions.

    Legal for any shared K permutation; worth it where a lane's K run is one plain vector, that is on chips whose
    fragments are not gathered by a matrix load.
    """
    if any(x.lane for x in target.load_atoms) and dtype.bits == 16 and atom.instruction != "fma":
        return 0
    sources = atom.a["K"].split()
    own = leading_elements(atom.a["K"])
    if any(s.startswith("e") for s in sources[own.bit_length() - 1 :]):
        return 0
    most = max(1, VECTOR_BYTES * 8 // dtype.bits // own)
    steps = 0
    while 2 << steps <= most and -(-wk // atom.k) % (2 << steps) == 0:
        steps += 1
    return steps


def straight_steps(atom: MmaAtom, dtype: DType, wk: int) -> tuple[int, tuple[int, ...] | None]:
    """(log2 of the steps along K that one read of 16 bytes serves, where the bits of the instruction's K go) of
    operands that lanes take from global memory as they multiply them, both with K contiguous there.

    What a lane has of K lies side by side, in one instruction and in the steps, and the lanes' runs follow each other.
    No bits of K move where a run fills 16 bytes as it is, or K has no such steps.
    """
    sources = atom.a["K"].split()
    own = [i for i, source in enumerate(sources) if source.startswith("e")]
    if own != [i for i, source in enumerate(atom.b["K"].split()) if source.startswith("e")]:
        return 0, None
    most, steps = max(1, VECTOR_BYTES * 8 // dtype.bits >> len(own)), 0
    while 2 << steps <= most and -(-wk // atom.k) % (2 << steps) == 0:
        steps += 1
    if not steps and own == list(range(len(own))):
        return 0, None
    places = [*own, *(i for i in range(len(sources)) if i not in own)]
    order = [0] * len(sources)
    for place, i in enumerate(places):
        order[i] = place if place < len(own) else place + steps
    return steps, tuple(order)


def port_layout(
    strings: Mapping[str, str],
    side: str,
    name: str,
    wave: int,
    atom: MmaAtom,
    k: str,
    wk: int,
    steps: int,
    target: Target,
    beside: int = 0,
) -> Layout:
    """The layout one operand port demands: the atom's fragment, `steps` K bits above it read along K, repeats as
    digits. `side`: M for A, N for B; its dimension is `name` (empty: none), of which the wave has `wave` elements. `k`
    and `wk` say the same of K. `beside`: log2 of the neighbours along `side` in a lane (`side_by_side`)."""
    box = (atom.m if side == "M" else atom.n) << beside
    strings = side_by_side(strings, side, beside)
    k_sources = strings["K"].split()
    used = {s for text in strings.values() for s in text.split() if s.startswith("e")}
    extra = [f"e{len(used) + i}" for i in range(steps)]
    run = sum(1 for s in k_sources if s.startswith("e")) if steps else 0
    k_bits = k_sources[:run] + extra + k_sources[run:]
    if "0" in k_sources:
        fill = iter(extra)
        k_bits = [next(fill) if s == "0" else s for s in k_sources]
    if steps and not run and any(s.startswith("e") for s in strings[side].split()):
        # Steps are contiguous in memory: give them the low element bits, the rows of this lane the high ones.
        shift = {f"e{i}": f"e{i + steps}" for i in range(len(used))}
        k_bits = [f"e{i}" for i in range(steps)] + [shift.get(s, s) for s in k_sources]
        rows = [shift.get(s, s) for s in strings[side].split()]
    else:
        rows = strings[side].split()
    if name and not steps and _pairs(strings, box, wave, atom, target):
        rows, box = [*rows, "r0"], 2 * box
    inner = named_bits({side: " ".join(rows), "K": " ".join(k_bits)}, {side: name or "_m", "K": k}, target)
    k_box = atom.k << steps
    count_k, count = -(-wk // k_box), -(-wave // box)
    digits, extents = [], {}
    if name:
        extents[name] = count * box
        if count > 1:
            digits.append(Digit("reg", count, name, 1))
    extents[k] = count_k * k_box
    if count_k > 1:
        digits.append(Digit("reg", count_k, k, 1))
    return without_placeholders(inner, digits, extents, ("_m",))


def _pairs(strings: Mapping[str, str], box: int, wave: int, atom: MmaAtom, target: Target) -> bool:
    """Whether two neighbouring fragments should be one piece of the layout: a matrix load then fills both at once."""
    widest = max((x.bytes for x in target.load_atoms if x.lane), default=0)
    used = {s for text in strings.values() for s in text.split() if s.startswith("e")}
    return widest >= 2 * ((atom.a_dtype.bits << len(used)) // 8) and wave % (2 * box) == 0 and atom.instruction != "fma"


def named_bits(strings: Mapping[str, str], names: Mapping[str, str], target: Target) -> Any:
    """The atom's strings as a map with the kernel's dimension names; lanes that drive nothing are replicas."""
    used = {s for text in strings.values() for s in text.split()}
    free = " ".join(f"l{i}" for i in range(target.lane_bits) if f"l{i}" not in used)
    dims = {names[d]: text for d, text in strings.items()}
    return spec(with_bits(dims), free=free)


def without_placeholders(
    inner: Any, digits: list[Digit], extents: dict[str, int], placeholders: tuple[str, ...]
) -> Layout:
    """A layout without its placeholder dimensions (an operand that has no rows of its own)."""
    full = dict(extents)
    for p in placeholders:
        if inner.width(p):
            full[p] = 1 << inner.width(p)
    for d in extents:
        if not inner.width(d) and not any(g.dim == d for g in digits) and extents[d] == 1:
            full[d] = 1
    layout = Layout(inner, tuple(digits), tuple(full.items()))
    for p in placeholders:
        if p in full:
            layout = layout.project(p)
    return layout
