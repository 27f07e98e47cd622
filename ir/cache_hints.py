"""Cache hints: what a read or a write asks of the caches. They change when bytes arrive, never which.

A hint is a name; how a chip spells it stands beside its other instructions (`codegen/ptx/cache.py`,
`codegen/amdgcn/roles.py`). A chip without a form for a hint drops it.
"""

from __future__ import annotations

CACHE_HINTS = {
    "stream": "touched once: no line in the first-level cache, first to leave the second-level cache",
    "keep": "used again by others: last to leave the second-level cache",
    "bypass": "not in the first-level cache",
}
"""Every hint with what it means."""
