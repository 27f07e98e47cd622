"""Kernels as one warpgroup computes them, where the compiler would let warps do it (`ir/warps_instead.py`).

Imported as `cut_for` (pytest's `pythonpath` lists this folder). Tiles of tests are small, and their loops short: most
would be given to warps, and nobody would try what production sizes take.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from wavedsl.ir import warps_instead


@contextlib.contextmanager
def warpgroups() -> Iterator[None]:
    """Tiles of one warpgroup stay its own."""
    kept = warps_instead.SOONER
    warps_instead.SOONER = 0.0
    try:
        yield
    finally:
        warps_instead.SOONER = kept
