"""Kernels as one warpgroup computes them, where the compiler would let warps do it (`ir/earlier_roles.py`).

Imported as `cut_for` (pytest's `pythonpath` lists this folder). Tiles of tests are small, and their loops short: most
would be given to warps, and nobody would try what production sizes take.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from wavedsl.ir import earlier_roles


@contextlib.contextmanager
def warpgroups() -> Iterator[None]:
    """Tiles of one warpgroup stay its own."""
    kept = earlier_roles.SOONER
    earlier_roles.SOONER = 0.0
    try:
        yield
    finally:
        earlier_roles.SOONER = kept
