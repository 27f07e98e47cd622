"""Scripts of `benchmarks/` as modules for one test, which leave no others behind: their names are common."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@contextmanager
def imported(name: str) -> Iterator[Any]:
    """A script, and what it imports of its folder, until the end of the block."""
    path, before = list(sys.path), set(sys.modules)
    sys.path.append(str(FOLDER))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path[:] = path
        for new in set(sys.modules) - before:
            if str(getattr(sys.modules[new], "__file__", "")).startswith(str(FOLDER)):
                del sys.modules[new]
