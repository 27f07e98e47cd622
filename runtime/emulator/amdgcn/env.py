"""The memories of a batch of workgroups, and words on their way between registers and memory.

In: what a memory instruction loads or stores, lane by lane. Out: registers, with extension and halves as the row
says; inactive lanes keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.runtime.emulator.amdgcn.state import (
    I32,
    LANES,
    U8,
    U16,
    U32,
    State,
)
from wavedsl.runtime.emulator.memory import GlobalMemory

PRIVATE_BUFFER = 0x7FFF_0000_0000
"""Base address that the emulator puts in the private segment's buffer descriptor; no global address is this high."""


Active = Any
"""bool [wave, lane], or None for every lane."""


FLAT_SCRATCH_START = 0x7FFE_0000_0000
"""What the first user of FLAT_SCRATCH is given as the start of all scratch, and (next) how far apart waves' are."""
WAVE_SCRATCH = 1 << 16


class Env:
    """The memories of a batch of workgroups, and the checker that watches them (None: no checks)."""

    def __init__(self, memory: GlobalMemory, check: Any):
        self.memory = memory
        self.check = check
        self.lds_size = 0
        self.stride = 0
        self.scratch_size = 0
        self.lds8 = np.zeros(0, U8)
        self.lds32 = self.lds8.view(U32)
        self.conflicts: Callable[[State, int, np.ndarray, int, bool], None] | None = None
        self.atomics: Callable[[State, np.ndarray, Active, int], None] | None = None
        """Both told of the addresses of accesses to LDS."""
        self.accesses: Callable[..., None] | None = None
        """Told of the addresses of each global or scratch access: state, addresses, active, bytes, whether it is
        scratch, whether it is an atomic that gives nothing back, whether it stores."""

    def new_batch(self, workgroups: int, lds_size: int) -> None:
        self.lds_size = lds_size
        self.stride = (lds_size + 63) // 64 * 64
        self.lds8 = np.zeros(max(64, workgroups * self.stride), U8)
        self.lds32 = self.lds8.view(U32)
        if self.check is not None:
            self.check.new_batch(workgroups, self.stride)
            self.lds8[:] = 0xA5


def common(a: Active, b: Active) -> Active:
    """Lanes that are in both."""
    return b if a is None else a if b is None else a & b


def every_lane(st: State) -> np.ndarray:
    return np.ones((st.waves, LANES), bool)


def place(st: State, row: int, active: Active, word: np.ndarray, convert: str) -> None:
    """Put a loaded word per lane into a register: extension or one half, as `convert` says. `word`: [wave, lane]."""
    if convert:
        if convert.startswith("i8"):
            word = word.astype(U8).view(np.int8).astype(I32).view(U32)
        elif convert.startswith("i16"):
            word = word.astype(U16).view(np.int16).astype(I32).view(U32)
        if "d16" in convert:
            half = st.U[row].view(U16)[:, (1 if convert.endswith("hi") else 0) :: 2]
            np.copyto(half, word.astype(U16), where=True if active is None else active)
            return
    if active is None:
        st.U[row] = word
    else:
        np.copyto(st.U[row], word, where=active)


def spread(active: Active, words: np.ndarray, waves: int) -> np.ndarray:
    """Words of the active lanes [k, n] as [k, wave, lane], zero elsewhere."""
    k = words.shape[0]
    if active is None:
        return words.reshape(k, waves, LANES)
    out = np.zeros((k, waves, LANES), U32)
    out[:, active] = words
    return out


def stored(st: State, row: int, n: int, convert: str) -> np.ndarray:
    """The words a store takes from registers, [n, wave, lane]."""
    data = st.U[row : row + n]
    return data >> U32(16) if convert.endswith("hi") else data


def clear(st: State, row: int, n: int, where: Active) -> None:
    if where is not None and where.any():
        for i in range(n):
            np.copyto(st.U[row + i], U32(0), where=where)
