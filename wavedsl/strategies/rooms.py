"""Arrays that a plan brings itself, where the caller's arrays lie.

In: an array of the caller's. Out: an array of the same package on the same device, of numbers or with nothing in it.
"""

from __future__ import annotations

import math
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


def copied(array: Any) -> Any:
    """Another array of the same numbers, where this one lies."""
    if isinstance(array, np.ndarray) or _package(array) == "cupy":
        return array.copy()
    if _package(array) == "torch":
        return array.clone()
    raise _unknown(_package(array))


def not_a_number(like: Any) -> Any:
    """An array as large, where `like` lies: NaN, or of integers the least one."""
    if _package(like) == "torch":
        import torch

        whole = not like.dtype.is_floating_point
        return torch.full(tuple(like.shape), torch.iinfo(like.dtype).min if whole else math.nan, device=like.device)
    whole = np.issubdtype(like.dtype, np.integer)
    found = np.full(like.shape, np.iinfo(like.dtype).min if whole else math.nan, like.dtype)
    return found if isinstance(like, np.ndarray) else filled(like, found)


def put(array: Any, values: Any) -> None:
    """Write values that lie where the array does over its own, rounded to its dtype."""
    array[...] = values


def difference(one: Any, other: Any) -> float:
    """The largest difference of two arrays that lie in one place, relative to the largest number of the other (or to 1
    where all are smaller); infinite where a number is NaN."""
    if 0 in one.shape:
        return 0.0
    if _package(one) == "torch":
        import torch

        left, right = (x.double() if x.dtype == torch.float64 else x.float() for x in (one, other))
        off, size = (left - right).abs().max().item(), right.abs().max().item()
    else:
        wide = np.float64 if isinstance(one, np.ndarray) or one.dtype.itemsize == 8 else np.float32
        left, right = one.astype(wide), other.astype(wide)
        off, size = float(abs(left - right).max()), float(abs(right).max())
    return math.inf if math.isnan(off) else off / max(1.0, size)


def _package(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _unknown(package: str) -> LaunchError:
    return LaunchError(f"no array can be made beside one of {package}", hint="pass NumPy, torch or CuPy arrays")


__all__ = ["copied", "difference", "filled", "has_room", "not_a_number", "put", "room"]
