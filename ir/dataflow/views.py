"""Mappings that move a whole tile: reads and writes through an `IndexMapping` that need no gather.

In: a node with a mapping, the graph. Out: a `Placement`, which says per dimension of the array where its coordinate
comes from; dimensions it does not mention are indexed by themselves. The access is that of a plain tile, staged,
vectorised and masked like one, from another base:

fixed   the same coordinate for the whole tile: an expression over index dimensions (`{G: H // 4}`, the key head of a
        query head) or a single traced integer (a page number);
moved   a dimension of the value from another start: `index(M) + start`, also only as far as a count reaches
        (`where(index(M) < count, index(M) + start, -1)`, the rows of a sequence among others), or `N % page` where
        tiles of N divide pages.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace
from math import gcd
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.constraints import ShareConstraint
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.graph import Mapping as ResolvedMapping
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.same_values import meaning
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import dim_name, evaluate


@dataclass(frozen=True)
class Moved:
    """A dimension of the array that is indexed by `dim` of the value, moved: by `start`, in elements below `count`
    (both single i32 nodes, None: by nothing, all), or modulo `modulus`. `step`: of a part that lies inside of the array
    wherever a workgroup's own begins, elements of which `start` is a multiple; 0 of others. `multiple`: a power of two
    that divides `start`, wherever the part may lie; 0 where none is known."""

    dim: Any
    start: Node | None = None
    count: Node | None = None
    modulus: int | None = None
    step: int = 0
    multiple: int = 0


@dataclass
class Placement:
    """Where the tile of an access lies, by name of the array's dimensions. `fixed` holds expressions over index
    dimensions, or the nodes that hold the coordinate."""

    fixed: dict[str, Any] = field(default_factory=dict)
    moved: dict[str, Moved] = field(default_factory=dict)

    def numbers(self) -> list[Node]:
        """The single integers that place the tile."""
        parts = [x for m in self.moved.values() for x in (m.start, m.count) if x is not None]
        return [c for c in self.fixed.values() if isinstance(c, Node)] + parts


def placement(graph: Graph, n: Node) -> Placement | None:
    """How a read or write is placed. None for a mapping that moves elements one by one."""
    mapping: ResolvedMapping | None = n.attrs.get("mapping")
    if mapping is None:
        return Placement()
    known = graph.placements.get(n.id)
    if known is None or known[0] is not n or known[1] is not n.inputs:
        known = graph.placements[n.id] = n, n.inputs, _placement(graph, n, mapping)
    found: Placement | None = known[2]
    return found


def _placement(graph: Graph, n: Node, mapping: ResolvedMapping) -> Placement | None:
    """That of an access with a mapping: symbols are compared many times, and dozens of places ask."""
    found = Placement()
    argument = graph.argument(n.attrs["memory"])
    index_dims = set(graph.index_dims)
    values = [d for d in mapping.dims if d not in index_dims]
    shares = {c.dim: c.of for c in graph.constraints if isinstance(c, ShareConstraint)}
    own: list[Any] = []
    for place, (dim, c) in enumerate(zip(argument.dims, mapping.coords)):
        last = place == len(argument.dims) - 1
        if isinstance(c, int):
            index = n.inputs[c]
            if not index.dims:
                found.fixed[dim_name(dim)] = index
                continue
            moved = _moved(index)
            if moved is not None and not argument.dtype.packed:
                moved = replace(moved, step=_step(graph, dim, moved), multiple=_multiple(argument.dtype, moved))
        elif c == dim and (dim in mapping.dims or dim in index_dims):
            own.append(dim)
            continue
        elif shares.get(c) == dim:
            moved = Moved(c)
        elif not any(c.has(d) for d in values):
            found.fixed[dim_name(dim)] = c
            continue
        else:
            moved = _modulo(graph, c, dim)
        if moved is None or moved.dim in own or moved.dim not in values:
            return None
        if last and not moved.step and not moved.multiple and not _known(graph, moved):
            return None
        own.append(moved.dim)
        found.moved[dim_name(dim)] = moved
    return found if all(own.count(d) == 1 for d in values) else None


def _known(graph: Graph, moved: Moved) -> bool:
    """Whether a dimension is moved by a number that is known before launch."""
    if moved.modulus is not None:
        return False
    start = 0 if moved.start is None else static_number(graph, moved.start)
    return start is not None and start >= 0 and (moved.count is None or static_number(graph, moved.count) is not None)


def _step(graph: Graph, along: Any, moved: Moved) -> int:
    """A number that divides the start of a part, `x[G * L : (G + 1) * L]`, that lies inside of the array's dimension
    whatever the workgroup and has whole tiles; 0 where that is not known."""
    if moved.start is None or moved.count is not None:
        return 0
    extent, length = (evaluate(d, graph.subs) for d in (along, moved.dim))
    found = _own_number(graph, moved.start)
    if found is None or not isinstance(extent, int) or not isinstance(length, int) or found[1] + length > extent:
        return 0
    cuts = [c for c in graph.constraints if getattr(c, "dim", None) == moved.dim and hasattr(c, "tile")]
    tiles = [evaluate(c.tile, graph.subs) for c in cuts]
    return found[0] if tiles and all(isinstance(t, int) and length % t == 0 for t in tiles) else 0


WORD_BITS = 32
MOST_DIVISOR = 1 << 16
"""The largest power of two that is looked for."""
PASSING: dict[str, tuple[int, ...]] = {
    "add": (0, 1), "sub": (0, 1), "minimum": (0, 1), "maximum": (0, 1), "where": (1, 2), "mul": (0, 1),
}  # fmt: skip
"""Operations of which a divisor follows from those of these operands."""


def _multiple(dtype: dt.DType, moved: Moved) -> int:
    """A power of two that divides the start of a part, in elements that are a word or more together; 0 if there is
    none, or where a count says how far it reaches."""
    if moved.start is None or moved.count is not None:
        return 0
    found = divisor(moved.start)
    return found if found > 1 and found * dtype.bits >= WORD_BITS else 0


def divisor(n: Node) -> int:
    """A power of two that divides an integer, as far as the products and sums that it is made of say; they may wrap."""
    known: dict[int, int] = {}
    for x in postorder(n, lambda x: [x.inputs[i] for i in PASSING.get(x.op, ())], known):
        parts = [known[x.inputs[i].id] for i in PASSING.get(x.op, ())]
        if x.op == "constant":
            value = int(x.attrs["value"])
            known[x.id] = min(value & -value, MOST_DIVISOR) if value else MOST_DIVISOR
        elif x.op == "mul":
            known[x.id] = min(parts[0] * parts[1], MOST_DIVISOR)
        else:
            known[x.id] = min(parts, default=1)
    return known[n.id]


def _own_number(graph: Graph, n: Node) -> tuple[int, int] | None:
    """(a number that divides it, the largest it may be) of sums and products of workgroups' indices and of numbers that
    bindings decide, none of them negative; None of others."""
    number = static_number(graph, n)
    if number is not None:
        return (number, number) if number >= 0 else None
    if n.op == "index" and not n.dims:
        extent = evaluate(n.attrs["dim"], graph.subs)
        return (1, max(extent - 1, 0)) if isinstance(extent, int) else None
    if n.op not in ("add", "mul"):
        return None
    x, y = (_own_number(graph, i) for i in n.inputs)
    if x is None or y is None:
        return None
    return (gcd(x[0], y[0]), x[1] + y[1]) if n.op == "add" else (x[0] * y[0], x[1] * y[1])


def static_number(graph: Graph, n: Node) -> int | None:
    """A single integer's value, where bindings decide it."""
    if n.op == "constant" and isinstance(n.attrs["value"], int):
        return int(n.attrs["value"])
    if n.op == "size":
        found = evaluate(n.attrs["expr"], graph.subs)
        return found if isinstance(found, int) else None
    return None


def _moved(index: Node) -> Moved | None:
    """`index(M)`, plus a single integer, below a single integer."""
    count = None
    if index.op == "where":
        condition, shifted, other = index.inputs
        if other.op != "constant" or not isinstance(other.attrs["value"], int) or other.attrs["value"] >= 0:
            return None
        if condition.op != "lt" or condition.inputs[0].op != "index" or condition.inputs[1].dims:
            return None
        count = condition.inputs[1]
        compared = condition.inputs[0].attrs["dim"]
        index = shifted
    start = None
    if index.op == "add":
        parts = [x for x in index.inputs if x.op != "index" or not x.dims]
        if len(parts) != 1 or parts[0].dims:
            return None
        start = parts[0]
        index = next(x for x in index.inputs if x is not start)
    if index.op != "index" or not index.dims:
        return None
    dim = index.attrs["dim"]
    numbers = [x for x in (start, count) if x is not None]
    if any(x.dtype is not dt.i32 for x in numbers) or (count is not None and compared != dim):
        return None
    return Moved(dim, start, count)


def _modulo(graph: Graph, expr: Any, dim: Any) -> Moved | None:
    """`N % page`, where a tile of N lies in one page and the array's dimension holds a page."""
    if expr.func.__name__ != "Mod" or not expr.args[0].is_Symbol:
        return None
    along, modulus = expr.args[0], evaluate(expr.args[1], graph.subs)
    extent = evaluate(dim, graph.subs)
    for c in graph.constraints:
        tile = evaluate(c.tile, graph.subs) if getattr(c, "dim", None) == along and hasattr(c, "tile") else None
        if isinstance(tile, int) and isinstance(modulus, int) and isinstance(extent, int):
            whole = evaluate(along, graph.subs)
            if modulus % tile == 0 and modulus <= extent and isinstance(whole, int) and whole % tile == 0:
                return Moved(along, modulus=modulus)
            return None
    return None


def view_dims(graph: Graph, n: Node) -> tuple[Any, ...]:
    """The dimensions of an access's array, under the names that they have in the value."""
    found = placement(graph, n)
    dims = graph.argument(n.attrs["memory"]).dims
    if found is None:
        return dims
    return tuple(found.moved[dim_name(d)].dim if dim_name(d) in found.moved else d for d in dims)


def index_positions(n: Node) -> set[int]:
    """The operands of a read, write or atomic that are indices."""
    mapping: ResolvedMapping | None = n.attrs.get("mapping")
    return set() if mapping is None else {c for c in mapping.coords if isinstance(c, int)}


def is_tile(graph: Graph, n: Node) -> bool:
    """Whether a read or write moves a plain tile, with a mapping or without."""
    return placement(graph, n) is not None


def same_place(x: Node, y: Node) -> bool:
    """Whether two accesses of an array are of the same elements as far as their indices say. Of two others, one of
    which writes, no element is in both, or a fence stands between (`tracer/order.py`)."""
    return bool(place_of(x) == place_of(y))


def place_of(n: Node) -> tuple[Any, ...]:
    """Where an access is: equal for those of the same elements of an array (`same_place`)."""
    return n.attrs.get("mapping"), tuple(meaning(n.inputs[i]) for i in sorted(index_positions(n)))


def is_settled(graph: Graph, n: Node, inside: Collection[int]) -> bool:
    """Whether a read moves a tile that no number of a region places but such as bindings decide. `inside`: ids of the
    region's nodes."""
    found = placement(graph, n)
    return found is not None and all(x.id not in inside or static_number(graph, x) is not None for x in found.numbers())


def only_placing(graph: Graph) -> set[int]:
    """Ids of nodes that nothing computes with: indices of tiles whose placement says the same in single numbers, and
    what those are made of. Nobody has to carry them out."""
    needed = {v.id for region in graph.regions() for v in region.yields}
    found: set[int] = set()
    for n in reversed(list(graph.all_nodes())):
        row = ROWS.get(n.op)
        plain = n.op in ("index", "constant") or (row is not None and row.compute is not None and not row.effect)
        if plain and n.id not in needed:
            found.add(n.id)
            continue
        inputs = list(n.inputs)
        placed = placement(graph, n) if n.op in ("read", "write") and n.attrs.get("mapping") is not None else None
        if placed is not None:
            indices = index_positions(n)
            inputs = [x for i, x in enumerate(inputs) if i not in indices] + placed.numbers()
        needed |= {x.id for x in inputs}
    return found


def unmapped_dims(graph: Graph) -> set[Any]:
    """Dimensions of arrays that no value has and no constraint names: every access fixes their coordinate."""
    held = {getattr(c, "dim", None) for c in graph.constraints}
    for n in graph.all_nodes():
        for t in n.type if isinstance(n.type, tuple) else (n.type,):
            if t is not None:
                held |= set(t.dims)
    return {d for a in graph.arguments for d in a.dims if d not in held}
