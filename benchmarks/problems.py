"""What `triton_amdgcn.py` runs on both sides: a problem with its arrays and its results in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16
ROWS = 608
"""Rows of what has one per workgroup: two for each unit of the larger chip."""
COLUMNS = 4864
"""Of a product's result, as `triton_hip.py` has it: 608 or 304 tiles."""
UNWRITTEN = 93.0


@dataclass
class Problem:
    """One case on one chip. `kernel`, `arguments`: ours. `others`: Triton's arguments, for its `grid`.

    `results`: each output array and a function that computes it whole; where a run wrote something it may be off by
    `error` times the largest number. `elements`: what one workgroup goes through, 0 for products. `whole`: all
    workgroups run, not the first only.
    """

    kernel: Any
    arguments: list[Any]
    others: list[Any]
    grid: tuple[int, ...]
    results: list[tuple[np.ndarray, Callable[[], np.ndarray]]]
    error: float
    elements: int = 0
    whole: bool = False
    others_of_ours: dict[str, Any] = field(default_factory=dict)
    """Our kernel with something chosen by hand (`wd.Schedule`), by what that is."""
    exact: dict[int, np.ndarray] = field(default_factory=dict)
    """Results that have been computed."""

    @property
    def kind(self) -> str:
        return "bytes" if self.elements else "products"


def normal(seed: int, *shape: int, dtype: Any = BF16, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)).astype(dtype)


def empty(*shape: int, dtype: Any = BF16) -> np.ndarray:
    return np.full(shape, UNWRITTEN, dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)
