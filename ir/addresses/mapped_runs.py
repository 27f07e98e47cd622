"""How many neighbouring elements of a value lie side by side in an array that is read or written through a mapping.

In: the coordinates of a mapping, expressions over the value's indices. Out: the largest powers of two w and r <= w such
that along a dimension, in each run of w elements that starts at a multiple of w, the contiguous coordinate counts up by
one with every r-th element from a multiple of w / r and no other coordinate changes. An access of w / r elements of the
array may then serve w elements of the value, and one comparison with each extent decides for all of them where the
contiguous extent is a multiple of w / r. r is 1 but where elements share one of the array's, as halves of a byte do.

Two facts are derived of an expression over runs of w: it stays (`_stays`), or it counts (`_counts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.graph import Mapping as ResolvedMapping
from wavedsl.ir.symbols import dim_name

MOST = 16
"""Elements of an array in the longest run that is looked for: 16 bytes of the smallest dtype."""

MOST_ALIKE = 4096
"""Elements of a value in the longest run that shares one of an array: more than a tile has along a dimension."""


def resolved(graph: Graph, n: Node) -> ResolvedMapping:
    """A node's mapping; an atomic without one goes to its own coordinates. In coordinates a dimension of the value such
    as `K / 32` is a symbol of that name: it counts by itself, whatever K is.
    """
    found: ResolvedMapping | None = n.attrs.get("mapping")
    if found is None:
        dims = graph.argument(n.attrs["memory"]).dims
        found = ResolvedMapping(tuple(d for d in dims if d not in graph.index_dims), tuple(dims))
    derived = {d: sympy.Symbol(dim_name(d), integer=True, nonnegative=True) for d in found.dims if not d.is_Symbol}
    if not derived:
        return found
    return replace(found, coords=tuple(c if isinstance(c, int) else c.xreplace(derived) for c in found.coords))


def counted_along(n: Node, coords: Sequence[Any], c: int, dims: Sequence[str]) -> list[Any]:
    """Symbols of a value's dimensions `dims` along which runs of coordinate c are looked for: what traced coordinates
    depend on differs from element to element."""
    if isinstance(coords[c], int):
        return []
    traced = [x for coord in coords if isinstance(coord, int) for x in n.inputs[coord].dims]
    found = sorted(coords[c].free_symbols, key=dim_name)
    return [d for d in found if dim_name(d) in dims and d not in traced]


def unit_dim(graph: Graph, n: Node, group: int, dims: Sequence[str]) -> str | None:
    """The dimension of a value along which `group` neighbours are a unit of the packed array that a mapping leads to:
    its last coordinate counts there, from a multiple of `group` on. None where elements come one by one."""
    coords = resolved(graph, n).coords
    c = len(coords) - 1
    others = [x for x in coords[:c] if not isinstance(x, int)]
    along = counted_along(n, coords, c, dims)
    return next((dim_name(d) for d in along if run_length(coords[c], others, d) >= group), None)


def run_length(contiguous: Any, others: list[Any], along: Any, repeats: int = 1) -> int:
    """The w above, for runs along the symbol `along` and r = `repeats`; `repeats` where there is none."""
    w = MOST * repeats
    while w > repeats and not (_counts(contiguous, along, w, repeats) and all(_stays(x, along, w) for x in others)):
        w //= 2
    return w


def longest_run(contiguous: Any, others: list[Any], along: Any) -> tuple[int, int]:
    """The (w, r) above, for runs along the symbol `along`: the longest, of those the one with the least r. (1, 1) where
    there is none."""
    found = run_length(contiguous, others, along), 1
    for e in contiguous.atoms(sympy.floor):
        r = e.args[0].as_numer_denom()[1]
        if along in e.free_symbols and r.is_Integer and 1 < int(r) <= MOST and not int(r) & (int(r) - 1):
            w = run_length(contiguous, others, along, int(r))
            if w > r or all(_stays(x, along, w) for x in (contiguous, *others)):
                found = max(found, (w, int(r)), key=lambda x: (x[0], -x[1]))
    return found


def longest_stay(expr: Any, along: Any) -> int:
    """The largest power of two w up to `MOST_ALIKE` such that an expression does not change within a run of w elements
    along the symbol `along`, which it contains, that starts at a multiple of w."""
    w = MOST_ALIKE
    while w > 1 and not _stays(expr, along, w):
        w //= 2
    return w


def _counts(e: Any, along: Any, w: int, repeats: int = 1) -> bool:
    """Whether e is a multiple of w / repeats where a run starts and grows by one with each `repeats` elements."""
    if e == along:
        return repeats == 1
    if e.is_Add:
        counting = [x for x in e.args if not _stays(x, along, w)]
        return len(counting) == 1 and _counts(counting[0], along, w, repeats) and all(
            _multiple(x, w // repeats) for x in e.args if x is not counting[0]
        )
    if e.func.__name__ == "Mod" and e.args[1].is_Integer:
        return int(e.args[1]) % (w // repeats) == 0 and _counts(e.args[0], along, w, repeats)
    if e.func.__name__ == "floor":
        above, below = e.args[0].as_numer_denom()
        return bool(below == repeats > 1) and _counts(above, along, w)
    return False


def _stays(e: Any, along: Any, w: int) -> bool:
    """Whether e is the same for all elements of a run."""
    if along not in e.free_symbols:
        return True
    if e.is_Add or e.is_Mul:
        return all(_stays(x, along, w) for x in e.args)
    if e.func.__name__ == "Mod":
        return all(_stays(x, along, w) for x in e.args)
    if e.func.__name__ == "floor":
        above, below = e.args[0].as_numer_denom()
        if _stays(above, along, w):
            return _stays(below, along, w)
        return below.is_Integer and int(below) % w == 0 and _counts(above, along, w)
    return False


def _multiple(e: Any, w: int) -> bool:
    """Whether the integer expression e is a multiple of w, as far as its literals say."""
    if e.is_Integer:
        return int(e) % w == 0
    if e.is_Add:
        return all(_multiple(x, w) for x in e.args)
    if e.is_Mul:  # of integers: a literal that is no integer would divide
        first = e.args[0]
        return bool(first.is_Integer) and int(first) % w == 0
    if e.func.__name__ == "Mod" and e.args[1].is_Integer:
        return int(e.args[1]) % w == 0 and _multiple(e.args[0], w)
    return False


__all__ = ["counted_along", "longest_run", "longest_stay", "resolved", "run_length", "unit_dim"]
