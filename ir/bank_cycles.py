"""What an access to shared memory costs: clocks that its lanes need because several of them meet in a bank.

Comes in: a `Place`, the access's `Bits`, the lanes that are served together. Goes out: clocks. Where the strides are
powers of two the address is linear over GF(2), so conflicts are two ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.ir.bits import Bits, number_of, rank, xor_all
from wavedsl.ir.place import Place


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
