"""What an access to shared memory costs: clocks that its lanes need because several of them meet in a bank.

Comes in: a `Place`, the access's `Bits`, the lanes that are served together. Goes out: clocks. Where the strides are
powers of two the address is linear over GF(2), so conflicts are two ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import or_

from wavedsl.ir.layouts.bits import Bits, number_of, rank
from wavedsl.ir.layouts.place import Place


@cache
def phase_lanes(phase: tuple[int, ...]) -> tuple[int, int]:
    """Of a basis of lane masks: how many lane bits a group of lanes served together has, and how many lane bits the
    masks name."""
    return rank(phase), max((p.bit_length() for p in phase), default=0)


def _lane_columns(place: Place, lanes: Bits, width: int) -> list[int]:
    """Address column of every lane bit, of `width` at least; bits that the access does not read (replicas) contribute
    0."""
    numbers = [number_of(b) for b in lanes.ins]
    columns = [0] * max(width, *(n + 1 for n in numbers), 0)
    for n, c in zip(numbers, place.cols(lanes)):
        columns[n] = c
    return columns


def bank_cycles(place: Place, access: Bits, bytes: int, phase: tuple[int, ...], banks: int) -> int:
    """Shared-memory cycles of one instruction: per group of lanes served together, the fullest bank.

    `phase` is a basis of lane masks; every group is a coset of its span. `banks` are 4 bytes wide; lanes that read the
    same word share it. Closed form where addresses are XORs: each group costs 2^(rank(words) - rank(words modulo
    banks)).
    """
    lanes = access.only("L" if access.count("L") else "l")
    group, width = phase_lanes(phase)
    cols = _lane_columns(place, lanes, width)
    linear = place.xor_linear(lanes)
    if not linear or reduce(or_, cols, 0) & (bytes - 1) or bytes & (bytes - 1) or banks & (banks - 1):
        addresses = [0]
        for c in cols:
            addresses += [a ^ c for a in addresses] if linear else [a + c for a in addresses]
        return lane_cycles(addresses, bytes, phase, banks)
    # Reduced from the lowest bit up, words whose lowest bit lies beyond the banks are those that meet in a bank. The
    # words inside one lane's piece are not among them: pieces are aligned.
    basis: dict[int, int] = {}
    conflicts = 0
    for p in phase:
        word = 0
        while p:
            low = p & -p
            word ^= cols[low.bit_length() - 1]
            p ^= low
        word >>= 2
        while word:
            low = word & -word
            known = basis.get(low)
            if known is None:
                basis[low] = word
                conflicts += low >= banks
                break
            word ^= known
    return 1 << (len(cols) - group + conflicts)


def lane_cycles(addresses: Sequence[int], bytes: int, phase: Sequence[int], banks: int) -> int:
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
