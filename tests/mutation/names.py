"""Names of byte values: a known byte is its own name, a byte that depends on data is a 64-bit name.

In: the names of an instruction's sources. Out: the names of its results. The idea: two programs are run side by side
on the same ids, and what they load stays an unknown. A name below 256 is a byte whose value is the same for all data;
any other names an expression of unknowns (operation, place in the result, names of all sources). Equal names are equal
bytes for all data; different names say nothing.

Names of expressions are hashes: two different ones agree with a chance of 2⁻⁶¹ a pair (`sums.py`: 2⁻³²).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

Names = Any
"""uint64, of any shape."""
KNOWN = np.uint64(256)
_EXPRESSION, SUM, UNWRITTEN = (np.uint64(1 << b) for b in (63, 62, 61))
"""Marks: set in all names but those of known bytes; in those of `sums.py`; in what nothing has written."""
_A, _B, _C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)


class Unknown(Exception):
    """Control, an address or a mask depends on data, or an instruction is not understood: nothing can be said."""


class Disagreement(AssertionError):
    """A byte that is known by its name has another value in the run: the names are wrong."""


def label(text: str) -> np.uint64:
    """The name of an operation or a place, from its words."""
    data = text.encode()
    return np.uint64(zlib.crc32(data) << 32 | zlib.crc32(data[::-1] + b"#"))


def mix(h: Names, x: Names) -> Names:
    """A name that stands for a pair, in order."""
    with np.errstate(over="ignore"):
        z = (np.asarray(h, np.uint64) * _A) ^ (np.asarray(x, np.uint64) + _C)
        z = (z ^ (z >> _S1)) * _B
        z = (z ^ (z >> _S2)) * _C
        return ((z ^ (z >> _S3)) | _EXPRESSION) & ~(SUM | UNWRITTEN)


def fold(h: Names, parts: Iterable[Names]) -> Names:
    """A name that stands for a sequence."""
    for part in parts:
        h = mix(h, part)
    return h


def spread(term: Names, size: int, first: int = 0) -> Names:
    """Names of the bytes `first`, … of a result, as a new leading axis."""
    return np.stack([mix(term, np.uint64(first + b)) for b in range(size)])


def known(names: Names) -> Any:
    return names < KNOWN


def bytes_of(values: Any) -> Names:
    """The names of known values: an array of integers, its bytes as a new leading axis."""
    values = np.ascontiguousarray(values)
    size = values.dtype.itemsize
    return np.moveaxis(values.view(np.uint8).reshape(*values.shape, size), -1, 0).astype(np.uint64)


def demand(names: Names, what: str) -> None:
    """Raise Unknown where a byte depends on data."""
    if not known(names).all():
        raise Unknown(f"{what} depends on data")


def unwritten(place: Names, size: int) -> Names:
    """Names of the bytes of a place that nothing has written, as a new leading axis."""
    return spread(place, size) | UNWRITTEN


def written(names: Names) -> Names:
    """The names themselves. Raises Unknown where nothing has written the byte: it may hold anything."""
    if ((names & UNWRITTEN != 0) & ~known(names)).any():
        raise Unknown("what nothing has written is used")
    return names


def value_of(names: Names, what: str) -> Any:
    """The integers that known bytes make, [byte, …] → int64. Raises Unknown where one depends on data."""
    demand(names, what)
    total = np.zeros(names.shape[1:], np.int64)
    for b, part in enumerate(names):
        total |= part.astype(np.int64) << 8 * b
    return total


def agree(names: Names, values: Names) -> None:
    """Raise Disagreement unless every known byte has the value that the run gave it."""
    if ((names != values) & known(names)).any():
        raise Disagreement("a known byte differs from the run")
