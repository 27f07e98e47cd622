"""On which dimensions of a kernel the tile of an access depends: which workgroups, and which trips, have the same one.

In: a read or write with its mapping. Out: names of dimensions. Numbers that place the tile are followed to what they
are made of: a row that a table gives per block depends on the block, and on nothing else, so all workgroups with other
columns of that block read the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy
from wavedsl.ir.dataflow.graph import REGIONS, Graph, Node, Region, ValueType, loop_bounds
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import placement

SIMPLE = ("constant", "fill", "scalar", "size", "tile_start", "tile_stop")


def simple(graph: Graph, x: Node) -> bool:
    """Whether a number is made of sizes, tile positions, scalar arguments and single numbers of arrays that nobody
    writes: any thread can compute it, and all waves get the same."""
    if not isinstance(x.type, ValueType) or x.dims:
        return False
    if x.op in SIMPLE or (x.op == "index" and not x.dims):
        return True
    if x.op == "read":
        name, found = x.attrs["memory"], placement(graph, x)
        written = any(n.attrs.get("memory") == name and ROWS[n.op].effect for n in graph.all_nodes())
        return found is not None and not written and all(simple(graph, c) for c in found.numbers())
    plain = x.op in ROWS and ROWS[x.op].index_rule == "same" and bool(x.inputs)
    return plain and all(simple(graph, c) for c in x.inputs)


def tile_dims(graph: Graph, n: Node, blocks: Mapping[str, int] | None = None) -> set[str] | None:
    """Dimensions on which the tile that a read takes from its array depends; None where elements are moved one by one,
    or by numbers that may differ between any two workgroups. `blocks`: index dimensions of which so many places, side
    by side, are looked at as one: what depends on `H // 4` alone does not depend on H in blocks of 2."""
    found = placement(graph, n)
    if found is None:
        return None
    own = {str(d) for d in graph.argument(n.attrs["memory"]).dims if str(d) not in (*found.fixed, *found.moved)}
    own |= {str(m.dim) for m in found.moved.values()}
    for c in found.fixed.values():
        if not isinstance(c, Node):
            own |= {str(s) for s in _without_blocks(c, blocks or {}).free_symbols}
    for number in found.numbers():
        dims = number_dims(graph, number, blocks)
        if dims is None:
            return None
        own |= dims
    return own


def _without_blocks(c: Any, blocks: Mapping[str, int]) -> Any:
    """An expression without the places that are the same all over a block: the floor of H by a multiple of it."""

    def whole(e: Any) -> bool:
        factor, of = e.args[0].as_coeff_Mul()
        return str(of) in blocks and factor.p == 1 and factor.q % blocks[str(of)] == 0

    return c.replace(lambda e: isinstance(e, sympy.floor) and whole(e), lambda e: sympy.Integer(0)) if blocks else c


def number_dims(graph: Graph, x: Node, blocks: Mapping[str, int] | None = None) -> set[str] | None:
    """Dimensions on which a single number depends; None where it may differ between any two workgroups. `blocks`: as
    in `tile_dims`."""
    if not simple(graph, x):
        return None
    if x.op in ("tile_start", "tile_stop", "index"):
        return {str(x.attrs["dim"])}
    if x.op == "read":
        return tile_dims(graph, x, blocks)
    if x.op == "floordiv" and blocks:
        of, by = x.inputs
        size = blocks.get(str(of.attrs["dim"])) if of.op in ("tile_start", "index") else None
        if size is not None and by.op == "constant" and by.attrs["value"] > 0 and by.attrs["value"] % size == 0:
            return set()
    out: set[str] = set()
    for part in x.inputs:
        dims = number_dims(graph, part, blocks)
        if dims is None:
            return None
        out |= dims
    return out


def varying_dims(graph: Graph, values: Iterable[Node]) -> set[str]:
    """Dimensions along which any of these values may differ, element by element or from one workgroup to the next;
    what memory holds that the kernel writes may differ along all of the kernel's."""
    written = {n.attrs["memory"] for n in graph.all_nodes() if ROWS[n.op].effect and "memory" in n.attrs}
    found: set[str] = set()
    owners = {c.id: n for n in graph.all_nodes() if n.op in REGIONS for c in n.attrs["body"].carries}
    seen: set[int] = set()
    work = list(values)
    while work:
        x = work.pop()
        if x.id in seen:
            continue
        seen.add(x.id)
        if isinstance(x.type, ValueType):
            found |= set(map(str, x.dims))
        if x.op in ("tile_start", "tile_stop", "index"):
            found.add(str(x.attrs["dim"]))
        if x.attrs.get("memory") in written:
            found |= {str(c.dim) for c in graph.constraints}
        mapping = x.attrs.get("mapping")
        if mapping is not None:
            found |= {str(s) for c in mapping.coords if not isinstance(c, int) for s in c.free_symbols}
        work += x.inputs
        if x.op in REGIONS:
            work += x.attrs["body"].yields
        if x.id in owners:
            work += [owners[x.id], *owners[x.id].inputs]
    return found


def conditions(graph: Graph, n: Node) -> list[Node]:
    """The values that say whether and how often a node is carried out: conditions and loop bounds around it."""

    def search(region: Region) -> list[Node] | None:
        for x in region.nodes:
            if x is n:
                return []
            inner = search(x.attrs["body"]) if x.op in REGIONS else None
            if inner is None:
                continue
            if x.op == "repeat":
                return [*inner, x.attrs["body"].yields[-1]]
            if x.op == "when":
                return [*inner, x.inputs[0]]
            return [*inner, *(bound for bound in loop_bounds(x) if bound is not None)]
        return None

    return search(graph.region) or []


CONDITIONAL = "give the value the dimension {dims}, or move {op} out of the condition"
"""What helps where an atomic that one of several workgroups carries out depends on which one it is."""

__all__ = ["CONDITIONAL", "conditions", "number_dims", "simple", "tile_dims", "varying_dims"]
