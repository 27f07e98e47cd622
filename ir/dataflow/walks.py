"""Walks over what values are made of, without recursion: thousands of operations may stand one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from wavedsl.ir.dataflow.graph import Node


def postorder(root: Node, operands: Callable[[Node], Iterable[Node]], known: Container[int]) -> Iterator[Node]:
    """`root` and what it is made of by `operands`, each node once and behind its operands. Nodes whose id is in `known`
    are left out, with what is behind them; that is looked at as late as possible, so the caller may add to it on the
    way."""
    seen: set[int] = set()
    work: list[tuple[Node, bool]] = [(root, False)]
    while work:
        n, ready = work.pop()
        if ready:
            yield n
        elif n.id not in seen and n.id not in known:
            seen.add(n.id)
            work.append((n, True))
            work += [(x, False) for x in reversed([*operands(n)])]


__all__ = ["postorder"]
