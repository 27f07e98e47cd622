"""The cooperative copy of a tile to shared memory: which vectors a thread moves, and the ops that move one.

In: a `Staged` plan. Out: coordinates and addresses of a thread's i-th vector; a global load, a shared store (of
columns, where threads transpose what they hold) or an asynchronous copy for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.access import Columns, GlobalAccess, Position
from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.addresses.copy_ways import CopyWay, spread
from wavedsl.ir.addresses.place_address import place_address
from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, Value
from wavedsl.ir.target import Target


class CopyLanes:
    """Which part of the tile each copy of a thread moves: coordinates per dimension as (value, constant). `number`: the
    thread's among those that copy."""

    def __init__(self, b: Builder, staged: Staged, number: Value | None = None):
        self.b, self.s = b, staged
        dims = list(staged.extents)
        self.fast = dims[-1]
        self.rows = dims[:-1]
        self.columns = staged.extents[self.fast] // staged.vector
        height = prod(staged.extents[d] for d in self.rows)
        way = CopyWay(self.fast, staged.vector, staged.deep, staged.across)
        self.spread = spread(self.columns, height, staged.threads, way) if len(self.rows) <= 1 else None
        self.tid = b.tid() if number is None else number
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


def row_turn(s: Staged, i: int) -> int:
    """The first of a thread's vectors that lies in the same row of a tile of rows as its i-th, by the coordinates of
    `CopyLanes`."""
    fast = list(s.extents)[-1]
    columns, height = s.extents[fast] // s.vector, prod(n for d, n in s.extents.items() if d != fast)
    found = spread(columns, height, s.threads, CopyWay(fast, s.vector, s.deep, s.across))
    if found is not None:
        return i // s.deep // found.panels * found.panels * s.deep + i % s.deep
    if columns % s.threads == 0:
        return i // (columns // s.threads) * (columns // s.threads)
    return i


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
    if imm and not isinstance(at, int):
        b.at_least(at, s.offset + constant)  # neither the wave's part nor a ring slot is negative
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
    """Column j of loaded rows of `count` packed elements, as 32-bit words; elements of 1, 2 or 4 bytes.

    Words of one element only change their names; those of two 16-bit elements take one byte permutation. Four bytes are
    gathered in two rounds: pairs of rows first, a permutation for the bytes of two columns at once.
    """
    per = 4 // es

    def word(r: int, j: int) -> Value:
        return b.slice(rows[r], j // per) if rows[r].type.n > 1 else rows[r]

    out: list[list[Value]] = []
    for j in range(count):
        words = []
        at = j % per
        for r in range(0, len(rows), per):
            if es == 4:
                words.append(word(r, j))
                continue
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
