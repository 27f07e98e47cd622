"""Placement: where the elements of a tile lie in memory.

Comes in: a tile's extents, strides of its pieces, XOR terms. Goes out: byte addresses.

The idea: a `Place` is data. Each dimension is cut into pieces with a stride of their own, which covers pitches,
panels and permuted contraction orders; XOR terms on the byte address cover swizzles.

Invariant: `Place.address` is the definition; `cols`, `bank_cycles` (bank_cycles.py) and `plan_addresses`
(plan_addresses.py) are shortcuts that tests compare with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import Bits, kind_of, name_of, number_of
from wavedsl.ir.quick_dataclass import dataclass

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

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        pieces = self._raw.get("hash")
        if pieces is None:
            pieces = self._raw["hash"] = hash(self.pieces)
        return hash((pieces, self.xor, self.slots, self.elsize))

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (self.pieces, self.xor, self.slots, self.elsize)  # hashes of strings differ between processes

    @cached_property
    def dims(self) -> tuple[str, ...]:
        found = self._raw.get("dims")
        if found is None:
            found = self._raw["dims"] = tuple(dict.fromkeys(p.dim for p in self.pieces))
        return found

    @property
    def extents(self) -> dict[str, int]:
        """Elements per dimension: the product of its pieces."""
        sizes: dict[str, int] = {}
        for p in self.pieces:
            sizes[p.dim] = sizes.get(p.dim, 1) * p.extent
        return sizes

    @cached_property
    def window(self) -> int:
        """Bytes after which the swizzle repeats: adding a multiple of it commutes with the XOR terms. 1 without
        terms."""
        return 1 << max((m + s + b for b, m, s in self.xor), default=0)

    @cached_property
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
        found = self._raw.get(("cuts", dim))
        if found is None:
            pieces = sorted((p for p in self.pieces if p.dim == dim), key=lambda p: p.low)
            found = self._raw["cuts", dim] = tuple(
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
            found = self._raw_cols(access)
            for b, m, s in self.xor:  # as `swizzle`
                mask = (1 << b) - 1
                found = tuple([c ^ (c >> m + s & mask) << m for c in found])
            self._memo[access] = found
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
