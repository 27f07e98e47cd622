"""Names of what a matrix instruction makes of 16-bit floats: an element of C plus a row of A times a column of B.

In: names of the element and of the row and the column, and what the run computed. Out: names of the sum. The idea: a
product of known finite numbers is known, and one that is 0 may be left out of a sum that is not −0 without it. A sum is
never −0 unless C was (rounding to nearest), so it carries a mark: all its four bytes name the sum they belong to.

A product with an unknown factor is never left out: 0 times infinity is no number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from names import SUM, known, label, mix

_WORD = np.uint64(((1 << 30) - 1) << 2)
_TOP = np.uint64(0xC000_0000_0000_0000)
_HIGH = np.uint64(0x1FFF_FFFF_0000_0000)
_NUMBER = label("number")


def element(operation: Any, c: Any, a: Any, b: Any, value: Any, kind: Any = np.float16) -> Any:
    """Names of the float32 bytes [4, …] of C + A·B. c: [4, …]; a, b: [2, …, k], the bytes of elements of `kind`; value:
    [4, …], what the run holds."""
    x, y = _numbers(a, kind), _numbers(b, kind)
    with np.errstate(invalid="ignore"):
        exact = x * y
    plain = np.isfinite(exact)
    product = np.where(plain, exact.view(np.uint64) ^ _NUMBER, mix(mix(a[0], a[1]), mix(b[0], b[1])))
    nothing = plain & (exact == 0) & _never_minus_zero(c)[..., None]
    term = operation
    for byte in c:
        term = mix(term, byte)
    for k in range(a.shape[-1]):
        term = np.where(nothing[..., k], term, mix(mix(term, np.uint64(k)), product[..., k]))
    positive = _never_minus_zero(c)
    names = np.where(positive, _marked(term), np.stack([mix(term, np.uint64(i)) for i in range(4)]))
    names = np.where(nothing.all(axis=-1), c, names)
    sure = known(c).all(axis=0) & plain.all(axis=-1)
    return np.where(sure, value, names)


def _numbers(operand: Any, kind: Any) -> Any:
    """float64 values of known elements; NaN for others."""
    bits = ((operand[0] | operand[1] << np.uint64(8)) & np.uint64(0xFFFF)).astype(np.uint16)
    return np.where(known(operand).all(axis=0), bits.view(kind).astype(np.float64), np.nan)


def _marked(term: Any) -> Any:
    """Names of the bytes of a sum that is never −0: the mark, 30 bits of the byte, 30 bits of the sum, its place."""
    word = mix(term, label("word")) & _WORD
    return np.stack([(mix(term, np.uint64(i)) & _HIGH) | _TOP | word | np.uint64(i) for i in range(4)])


def _never_minus_zero(c: Any) -> Any:
    """Whether the bytes are those of one marked sum, or of a known number that is not −0."""
    place = np.arange(4, dtype=np.uint64).reshape(4, *(1,) * (c.ndim - 1))
    marked = ((c & SUM) != 0) & ((c & np.uint64(3)) == place) & ((c & _WORD) == (c[:1] & _WORD))
    number = known(c).all(axis=0) & ~((c[3] == 128) & (c[:3] == 0).all(axis=0))
    return marked.all(axis=0) | number
