"""Providers that are timed in turn: what a chip's heat and power limit do to one of them, they do to all."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

Name = TypeVar("Name")


def middle(times: Sequence[float]) -> float:
    """The mean of the middle half. (A median would be one of a few steps of the clock.)"""
    cut = len(times) // 4
    return statistics.mean(sorted(times)[cut : len(times) - cut])


def balanced(names: Sequence[Name]) -> list[list[Name]]:
    """Orders of the names in which each stands in each place, and behind each other one, equally often (Williams)."""
    count = len(names)
    zigzag = [(i + 1) // 2 if i % 2 else (count - i // 2) % count for i in range(count)]
    orders = [[names[(x + shift) % count] for x in zigzag] for shift in range(count)]
    return orders if count % 2 == 0 or count == 1 else orders + [order[::-1] for order in orders]


def slices(names: Sequence[Name], least: int, once: Callable[[Name], float]) -> dict[Name, list[float]]:
    """Seconds of each name in `least` slices or more, in balanced orders; `once` takes one."""
    found: dict[Name, list[float]] = {name: [] for name in names}
    orders = balanced(names)
    for order in orders * -(-least // len(orders)):
        for name in order:
            found[name].append(once(name))
    return found


__all__ = ["balanced", "middle", "slices"]
