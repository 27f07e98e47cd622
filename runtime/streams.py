"""Current streams of the packages that have such a thing, torch and CuPy, which are never imported from here.

An array of such a package exists, so its module is loaded. Its allocator gives memory back in the order of the current
stream: a launch on that stream needs no other care for how long its arrays live.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

PACKAGES = ("torch", "cupy")


def package_of(kind: type) -> str:
    """The package of `PACKAGES` that a class or one of its bases comes from; empty for others."""
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package in PACKAGES and package in sys.modules:
            return package
    return ""


def current_of(kind: type, index: int) -> Callable[[], int] | None:
    """What gives the current stream's handle on device `index`, for arrays of class `kind`; None for other packages."""
    package = package_of(kind)
    module: Any = sys.modules.get(package)
    if package == "torch":
        raw = getattr(getattr(module, "_C", None), "_cuda_getCurrentRawStream", None)
        if raw is not None:  # what torch's own compiler launches on; the object of `current_stream` costs 1 µs more
            return functools.partial(raw, index)
        return lambda: int(module.cuda.current_stream(index).cuda_stream)
    if package == "cupy":
        current = module.cuda.get_current_stream
        try:
            current(index)
        except TypeError:  # before it took the device's number
            return lambda: int(current().ptr)
        return lambda: int(current(index).ptr)
    return None
