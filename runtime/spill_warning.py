"""A warning for kernels of which ptxas keeps values in memory: only it knows, so it is said when a text is assembled.

In: what ptxas says of a text. Out: at most one `SpillWarning` for each text and process, at the kernel's line.
"""

from __future__ import annotations

import hashlib
import re
import warnings

from wavedsl.runtime.toolchain import PtxasEntry

FEW = 16
"""Bytes of a thread, stored and loaded, that are no reason to warn: what is kept once outside of loops."""

HINT = "smaller tiles of the workgroup or of its loops, or more waves (WaveConstraint, waves_per_block) that share them"

_said: set[bytes] = set()


class SpillWarning(UserWarning):
    """A thread's registers do not hold all values that are needed at one place of a kernel: it stores some to memory,
    and loads them again."""


def warn_of_spills(text: str, name: str, entry: PtxasEntry) -> None:
    """Warn where an entry spills more than a few bytes, the first time that this is asked of a text."""
    if entry.spill_stores + entry.spill_loads <= FEW:
        return
    key = hashlib.sha256(text.encode()).digest()
    if key in _said:
        return
    _said.add(key)
    message = (
        f"{name} for {entry.arch} spills: ptxas has each thread store {entry.spill_stores} bytes of values that its "
        f"registers do not hold, and load {entry.spill_loads}\n  help: {HINT}"
    )
    file, line = _place(text)
    warnings.warn_explicit(message, SpillWarning, file, line)


def _place(text: str) -> tuple[str, int]:
    """File and line of the first of the user's lines that a text names."""
    at = re.search(r"^\s*\.loc (\d+) (\d+)", text, re.M)
    file = re.search(rf'^\.file {at[1]} "(.*)"', text, re.M) if at else None
    return (file[1], int(at[2])) if at and file else ("wavedsl", 0)


__all__ = ["SpillWarning", "warn_of_spills"]
