"""Walks over what values are made of, without recursion: thousands of operations may stand one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def operands_first(
    root: T, operands: Callable[[T], Iterable[T]], known: Container[int], key: Callable[[T], int] = id
) -> Iterator[T]:
    """`root` and what it is made of, each once and behind its operands. What `known` has (by `key`) is left out, with
    what is behind it; it is looked at as late as possible, so that the caller may add to it on the way."""
    seen: set[int] = set()
    work: list[tuple[T, bool]] = [(root, False)]
    while work:
        x, ready = work.pop()
        if ready:
            yield x
        elif key(x) not in seen and key(x) not in known:
            seen.add(key(x))
            work.append((x, True))
            work += [(y, False) for y in reversed([*operands(x)])]


__all__ = ["operands_first"]
