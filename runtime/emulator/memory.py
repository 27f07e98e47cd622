"""Global memory of both emulators: NumPy arrays in place, at virtual addresses.

In: the arguments of a launch. Out: `GlobalMemory`, which gathers and scatters lane vectors by 64-bit address.
The idea: every array keeps its own bytes (a flat `uint8` view that covers its extent, no copy) and gets a base
address; bases are far apart, so a stray address lands in no allocation and its nearest one can be named ("argument
`b`, 4 bytes past its end"). Addresses stay below 2**47 and bases are 256-byte aligned (the array's own misalignment
against 16 bytes is kept), so offsets beyond 2**32 bytes work on lazily committed arrays. Every array lies across a
multiple of 2**37 (one of less than 512 bytes just below): half of it is reached by a carry into the high word, both
words of an address have bits, so that arithmetic that loses a carry or a word cannot come out right.

Invariant: an address belongs to at most one allocation; between two lie at least `RED_ZONE` bytes that belong to none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from wavedsl.ir.errors import LaunchError
from wavedsl.ir.quick_dataclass import dataclass

RED_ZONE = 1 << 32
_BOUNDARY = 1 << 37
ADDRESS_LIMIT = 1 << 47


def byte_view(array: np.ndarray) -> tuple[np.ndarray, int]:
    """A flat uint8 view of the bytes an array spans, and the offset of its first element in it. No copy.

    Strided and reversed arrays are covered by their extent, so bytes between their elements belong to the view too.
    """
    if array.size == 0:
        return np.empty(0, np.uint8), 0
    low = sum((n - 1) * s for n, s in zip(array.shape, array.strides) if s < 0)
    high = sum((n - 1) * s for n, s in zip(array.shape, array.strides) if s > 0) + array.itemsize
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8), 0
    return _Extent(array, low, high - low).bytes(), -low


@dataclass
class _Extent:
    """Memory under a strided array, offered through the array interface; keeps the array alive."""

    array: np.ndarray
    low: int
    size: int

    def bytes(self) -> np.ndarray:
        return np.asarray(self)

    @property
    def __array_interface__(self) -> dict:
        start = self.array.__array_interface__["data"][0] + self.low
        read_only = not self.array.flags.writeable
        return {"shape": (self.size,), "typestr": "|u1", "data": (start, read_only), "version": 3}


@dataclass(eq=False)
class Allocation:
    """One array in the address space: `data` (uint8, the array's own memory) at [base, base + size)."""

    name: str
    base: int
    data: np.ndarray
    words: np.ndarray | None
    """The same bytes as uint32, over the part that is a multiple of 4 and if memory is 4-byte aligned."""
    writeable: bool = True
    first: int = 0
    """Where the array's first element begins, in bytes of `data`."""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    itemsize: int = 1

    def element(self, byte: int) -> str:
        """`c[3, 17]`, the array's element that has this byte of `data`; empty where none has, or it has no indices."""
        left, index = byte - self.first, dict.fromkeys(range(len(self.shape)), 0)
        if not self.shape or any(s < 0 for s in self.strides):
            return ""
        for axis in sorted(index, key=lambda i: -self.strides[i]):
            if self.strides[axis] and self.shape[axis] > 1:
                index[axis] = min(left // self.strides[axis], self.shape[axis] - 1)
                left -= index[axis] * self.strides[axis]
        inside = 0 <= left < self.itemsize and all(i >= 0 for i in index.values())
        return f"{self.name}[{', '.join(map(str, index.values()))}]" if inside and self.name.isidentifier() else ""

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def end(self) -> int:
        return self.base + self.data.size


@dataclass(frozen=True)
class Fault:
    """Lanes whose access is not inside one allocation: a mask over the lanes, and what the first of them hit."""

    mask: np.ndarray
    message: str
    address: int


class GlobalMemory:
    """All allocations of a launch, sorted by base address."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._bases = np.empty(0, np.int64)
        self._ends = np.empty(0, np.int64)
        self._free = _BOUNDARY // 2
        """No address from here on is taken by `add`."""
        self._recent = 0

    def add(self, array: np.ndarray, name: str) -> int:
        """Map an array, in place; returns the address of its first element. Overlapping arrays share their
        addresses.
        """
        data, first = byte_view(array)
        start = data.__array_interface__["data"][0] if data.size else 0
        for a in self.allocations:
            begin = a.data.__array_interface__["data"][0]
            if data.size and begin <= start and start + data.size <= begin + a.size:
                return a.base + (start - begin) + first
        before = max(256, data.size // 2 & ~255)
        boundary = -(-(self._free + before) // _BOUNDARY) * _BOUNDARY
        base = boundary - before + (start & 15)
        words = None
        if data.size >= 4 and start % 4 == 0:
            words = data[: data.size // 4 * 4].view(np.uint32)
        self.allocations.append(
            Allocation(
                name, base, data, words, array.flags.writeable, first, array.shape, array.strides, array.itemsize
            )
        )
        self._free = base + data.size + RED_ZONE
        self._bases = np.array([a.base for a in self.allocations], np.int64)
        self._ends = np.array([a.end for a in self.allocations], np.int64)
        return base + first

    def add_at(self, base: int, array: np.ndarray, name: str) -> int:
        """Map an array at a fixed address below all others, such as the constant data of a text."""
        if any(a.base < base + array.nbytes + 4096 and base < a.end + 4096 for a in self.allocations):
            raise ValueError(f"{name}: address {base:#x} is taken")
        data, first = byte_view(array)
        words = data[: data.size // 4 * 4].view(np.uint32) if data.__array_interface__["data"][0] % 4 == 0 else None
        self.allocations.append(Allocation(name, base, data, words, array.flags.writeable))
        self.allocations.sort(key=lambda a: a.base)
        self._bases = np.array([a.base for a in self.allocations], np.int64)
        self._ends = np.array([a.end for a in self.allocations], np.int64)
        return base + first

    def share_of_memory(self, asked: Mapping[tuple[int, bool], float], kept: Iterable[np.ndarray]) -> float:
        """The part of the traffic that must come from memory: every array that is read once, and every array that is
        stored to once, but for those that caches keep, over all that is asked for: bytes by allocation (-1 where there
        is none) and whether they are stored. An array of which less is asked for than it has counts with what is asked
        for."""
        total = sum(asked.values())
        if not total:
            return 1.0
        near = [self.find(self.add(array, "")) for array in kept]
        sizes = {k: 0 if any(a is x for x in near) else a.size for k, a in enumerate(self.allocations)}
        return sum(min(n, sizes.get(k, n)) for (k, _), n in asked.items()) / total

    def find(self, address: int) -> Allocation | None:
        for a in self.allocations:
            if a.base <= address < a.end:
                return a
        return None

    def describe(self, address: int, size: int) -> str:
        """Where an address lies relative to the nearest allocation, in words."""
        if address < 4096:
            return f"address {address:#x}: a null pointer"
        if not self.allocations:
            return f"address {address:#x}: nothing is allocated"

        def distance(a: Allocation) -> int:
            return a.base - address if address < a.base else max(0, address + size - a.end)

        near = min(self.allocations, key=distance)
        if distance(near) > RED_ZONE:
            return f"address {address:#x}: far from every allocation"
        if address < near.base:
            return f"argument `{near.name}`, {near.base - address} bytes before its start"
        past = address - near.end
        if past < 0:
            return f"argument `{near.name}`, up to {address + size - near.end} bytes past its end"
        return f"argument `{near.name}`, {past} bytes past its end"

    # ---- vector access
    # ------------------------------------------------------------------------------------------------

    def _one(self, low: int, high: int) -> Allocation | None:
        """The allocation that holds [low, high), trying the one that was hit last."""
        allocations = self.allocations
        if self._recent < len(allocations):
            a = allocations[self._recent]
            if a.base <= low and high <= a.end:
                return a
        for i, a in enumerate(allocations):
            if a.base <= low and high <= a.end:
                self._recent = i
                return a
        return None

    def load(self, addresses: np.ndarray, size: int) -> tuple[np.ndarray, Fault | None]:
        """Read `size` bytes (1, 2, 4, 8, 12, 16 or any) per address.

        `addresses`: int64, one dimension. Returns uint32 words [ceil(size / 4), lanes] (sub-dword sizes
        zero-extended), and the lanes that hit no allocation, which read 0.
        """
        n = addresses.shape[0]
        words = (size + 3) // 4
        if n == 0:
            return np.zeros((words, 0), np.uint32), None
        low, high = int(addresses.min()), int(addresses.max())
        a = self._one(low, high + size)
        if a is not None:
            return self._read(a, addresses - a.base, size), None
        out = np.zeros((words, n), np.uint32)
        bad = np.ones(n, bool)
        for a, lanes in self._split(addresses, size):
            out[:, lanes] = self._read(a, addresses[lanes] - a.base, size)
            bad[lanes] = False
        return out, self._fault(bad, addresses, size)

    def store(self, addresses: np.ndarray, values: np.ndarray, size: int) -> Fault | None:
        """Write `size` bytes per address from uint32 words [words, lanes]; lanes later in the array win on equal
        addresses.
        """
        n = addresses.shape[0]
        if n == 0:
            return None
        low, high = int(addresses.min()), int(addresses.max())
        a = self._one(low, high + size)
        if a is not None:
            self._write(a, addresses - a.base, values, size)
            return None
        bad = np.ones(n, bool)
        for a, lanes in self._split(addresses, size):
            self._write(a, addresses[lanes] - a.base, values[:, lanes], size)
            bad[lanes] = False
        return self._fault(bad, addresses, size)

    def _split(self, addresses: np.ndarray, size: int) -> list[tuple[Allocation, np.ndarray]]:
        """The lanes of each allocation that holds any, as index arrays."""
        out: list[tuple[Allocation, np.ndarray]] = []
        if not self.allocations:
            return out
        which = np.searchsorted(self._bases, addresses, side="right") - 1
        inside = (which >= 0) & (addresses + size <= self._ends[np.maximum(which, 0)])
        for i in np.unique(which[inside]).tolist():
            out.append((self.allocations[i], np.flatnonzero(inside & (which == i))))
        return out

    def _fault(self, bad: np.ndarray, addresses: np.ndarray, size: int) -> Fault | None:
        if not bad.any():
            return None
        address = int(addresses[int(np.argmax(bad))])
        return Fault(bad, self.describe(address, size), address)

    @staticmethod
    def _read(a: Allocation, offsets: np.ndarray, size: int) -> np.ndarray:
        if size >= 4 and size % 4 == 0:
            skew = int(np.bitwise_or.reduce(offsets))
            if a.words is not None and not skew & 3:
                if size == 4:
                    return a.words.take(offsets >> 2)[None]
                if size in _ROW and not skew & (size - 1):  # rows come in one piece
                    rows = a.words[: len(a.words) // (size // 4) * (size // 4)].reshape(-1, size // 4)
                    return np.ascontiguousarray(rows.take(offsets >> _ROW[size], axis=0).T)
                return a.words.take((offsets >> 2)[None] + _WORD[size // 4])
            parts = a.data.take(offsets[:, None] + _BYTE[size])
            return np.ascontiguousarray(parts.view(np.uint32).T)
        parts = np.zeros((offsets.shape[0], (size + 3) // 4 * 4), np.uint8)
        parts[:, :size] = a.data.take(offsets[:, None] + np.arange(size))
        return np.ascontiguousarray(parts.view(np.uint32).T)

    @staticmethod
    def _write(a: Allocation, offsets: np.ndarray, values: np.ndarray, size: int) -> None:
        if not a.writeable:
            raise LaunchError(
                f"argument `{a.name}` is read-only, but the kernel writes it", hint="pass an array that can be written"
            )
        if size >= 4 and size % 4 == 0 and a.words is not None and not np.bitwise_or.reduce(offsets) & 3:
            index = offsets >> 2
            if size == 4:
                a.words[index] = values[0]
            else:
                a.words[index[None] + _WORD[size // 4]] = values
            return
        parts = np.ascontiguousarray(values.T).view(np.uint8)[:, :size]
        a.data[offsets[:, None] + np.arange(size)] = parts


_ROW = {8: 3, 16: 4}
_WORD = {n: np.arange(n)[:, None] for n in (1, 2, 3, 4, 8, 16)}
_BYTE = {n: np.arange(n)[None] for n in (4, 8, 12, 16, 32, 64)}
