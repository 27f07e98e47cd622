"""Arrays that a plan brings itself, where the caller's arrays lie.

In: an array of the caller's. Out: an array of the same package on the same device, of numbers or with nothing in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import LaunchError

PACKAGES = ("torch", "cupy")
"""Packages, beside NumPy, whose arrays are made here."""


def has_room(like: Any) -> bool:
    """Whether `room` knows how to make arrays beside this one."""
    return isinstance(like, np.ndarray) or _package(like) in PACKAGES


def room(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """An array with nothing in it, where `like` lies."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype.storage)
    package = _package(like)
    if package == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype.storage.name), device=like.device)
    if package == "cupy":
        import cupy

        return cupy.empty(shape, dtype.storage)
    raise _unknown(package)


def filled(like: Any, values: np.ndarray) -> Any:
    """The numbers in an array where `like` lies."""
    if isinstance(like, np.ndarray):
        return values
    package = _package(like)
    if package == "torch":
        import torch

        return torch.from_numpy(values).to(like.device)
    if package == "cupy":
        import cupy

        return cupy.asarray(values)
    raise _unknown(package)


def _package(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _unknown(package: str) -> LaunchError:
    return LaunchError(f"no array can be made beside one of {package}", hint="pass NumPy, torch or CuPy arrays")


__all__ = ["filled", "has_room", "room"]
