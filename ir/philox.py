"""Philox 4x32-10: the counter-based generator behind `random`.

Ten rounds of a multiply-and-swap network over four 32-bit words (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011). Key: the seed. Counter: the element's index and the offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

_MASK = np.uint64(0xFFFFFFFF)


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """The four 32-bit words for a counter of four words and a key of two (integers or arrays)."""
    c0, c1, c2, c3 = (np.asarray(c).astype(np.uint64) & _MASK for c in counter)
    k0, k1 = (np.asarray(k).astype(np.uint64) & _MASK for k in key)
    for _ in range(ROUNDS):
        p0 = np.uint64(MULTIPLIERS[0]) * c0
        p1 = np.uint64(MULTIPLIERS[1]) * c2
        shift = np.uint64(32)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & _MASK, (p0 >> shift) ^ c3 ^ k1, p0 & _MASK
        k0 = (k0 + np.uint64(WEYL[0])) & _MASK
        k1 = (k1 + np.uint64(WEYL[1])) & _MASK
    words = tuple(c.astype(np.uint32) for c in (c0, c1, c2, c3))
    return words[0], words[1], words[2], words[3]


def uniform(word: Any) -> Any:
    """A word's upper 24 bits as an f32 in [0, 1)."""
    return (word >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
