"""Who touches which byte of global memory in a run of a text: whether a barrier, a fence or the memory access beside it
could come first.

In: a compiled kernel and its arguments. Out: per line of the text the bytes that it reads or writes, and by whom. An
access may change places with a barrier of its workgroup if nobody else of the workgroup touches its bytes, one of the
two writing another value; with a fence if nobody of another workgroup does. This is of one run's addresses, and shares
nothing with the emulators' findings but the calls in which they are told of accesses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
from wavedsl.runtime.emulator.amdgcn.global_memory import WatchedMemory as OfWaves
from wavedsl.runtime.emulator.global_shadow import COLUMN, DOMAIN
from wavedsl.runtime.emulator.ptx.global_memory import WatchedMemory as OfWarps

import wavedsl as wd

Access = tuple[Any, Any, Any, Any]
"""Workgroups (clusters), who in them, byte addresses, and what is written there: bytes, -1 of an atomic; or None."""
ATOMIC = object()


class Touched:
    """By line of the text (from 0) what it touches."""

    def __init__(self) -> None:
        self.lines: dict[int, list[Access]] = {}

    def note(self, line: int, codes: Any, lanes: Any, address: Any, size: int, words: Any) -> None:
        """`codes`: of the waves (see `global_shadow`); `lanes`: 0 where a wave's are in order anyway. `words` [k, n]:
        what is written, ATOMIC, or None.
        """
        if not len(codes):
            return
        group, who = codes >> DOMAIN, (codes >> COLUMN) * 64 + lanes
        where = (np.asarray(address)[:, None] + np.arange(size)).reshape(-1)
        put = words
        if words is not None:
            put = np.full(len(where), -1) if words is ATOMIC else np.ascontiguousarray(words.T).view(np.uint8)
            put = put if words is ATOMIC else put.reshape(len(group), -1)[:, :size].astype(np.int64).reshape(-1)
        self.lines.setdefault(line, []).append((np.repeat(group, size), np.repeat(who, size), where, put))

    def alone(self, line: int, elsewhere: bool) -> bool:
        """Whether nobody else of its workgroup (of other workgroups) touches what a line does, one of them writing
        another value than the other.
        """
        mine = self.lines.get(line, ())
        return not any(
            (a[3] is not None or b[3] is not None) and _meet(a, b, elsewhere)
            for a in mine
            for other in self.lines.values()
            for b in other
        )


def _meet(a: Access, b: Access, elsewhere: bool) -> bool:
    if not len(a[2]) or not len(b[2]):
        return False
    order = np.argsort(a[2], kind="stable")
    bytes_ = a[2][order]
    first, last = np.searchsorted(bytes_, b[2], "left"), np.searchsorted(bytes_, b[2], "right")
    for i in np.flatnonzero(first < last).tolist():
        at = order[first[i] : last[i]]
        same = a[0][at] == b[0][i]
        meet = ~same if elsewhere else same & (a[1][at] != b[1][i])
        if a[3] is not None and b[3] is not None:
            meet &= (a[3][at] != b[3][i]) | (b[3][i] < 0)
        if meet.any():
            return True
    return False


def touched(compiled: Any, args: list[Any]) -> Touched | None:
    """What a run of a text touches; None where it cannot be told."""
    out = Touched()

    def of_waves(watch: Any, st: Any, index: int, address: Any, size: int, active: Any, words: Any) -> None:
        rows = watch._lanes(st, active)
        out.note(watch.engine.program.lines[index].number - 1, watch.waves.codes(rows), 0, address, size, words)

    def of_warps(watch: Any, inst: Any, address: Any, size: int, lanes: Any, words: Any) -> None:
        threads = np.arange(watch.m.T) if lanes is None else lanes
        codes = watch.warps.base.take(watch.m.global_warp[threads])
        out.note(inst.line - 1, codes, threads & 31, address, size, words)

    def scalar(self: Any, st: Any, index: int, address: Any, size: int, good: Any) -> None:
        rows = self.rows(st)
        chosen = slice(None) if good is None else good
        line = self.engine.program.lines[index].number - 1
        out.note(line, self.waves.codes(rows[chosen]), 0, address[chosen], size, None)

    patches = {
        (OfWaves, "read"): lambda self, st, i, at, n, active, strong: of_waves(self, st, i, at, n, active, None),
        (OfWaves, "write"): lambda self, st, i, at, n, active, put, strong: of_waves(self, st, i, at, n, active, put),
        (OfWaves, "atomic"): lambda self, st, i, at, n, active, *rest: of_waves(self, st, i, at, n, active, ATOMIC),
        (OfWaves, "scalar"): scalar,
        (OfWarps, "read"): lambda self, i, pc, at, n, lanes, strong, nc: of_warps(self, i, at, n, lanes, None),
        (OfWarps, "write"): lambda self, i, pc, at, n, lanes, words, strong: of_warps(self, i, at, n, lanes, words),
        (OfWarps, "atomic"): lambda self, i, pc, at, n, lanes: of_warps(self, i, at, n, lanes, ATOMIC),
        (OfWarps, "copy_ends"): lambda self, i, pc, at, n, threads, words: of_warps(self, i, at, n, threads, None),
        (OfWarps, "bulk_read"): _unknown,
        (OfWarps, "bulk_write"): _unknown,
    }
    try:
        with ExitStack() as stack:
            for (kind, name), instead in patches.items():
                stack.enter_context(mock.patch.object(kind, name, instead))
            compiled.emulate(*args)
    except (_Unknown, wd.WaveError):
        return None
    return out


class _Unknown(Exception):
    """Bulk copies, whose bytes are not told apart here."""


def _unknown(*args: Any) -> Iterator[None]:
    raise _Unknown
