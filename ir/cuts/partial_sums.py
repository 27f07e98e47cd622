"""Sums along dimensions that workgroups share, which atomics add to memory: each workgroup adds its part. So it is with
maxima that `atomic_max` compares with memory, and minima.

In: a traced graph. Out: which atomics add such sums, and which products and sums need their workgroup's part only.

`wd.atomic_add(wd.mma(x, y), out)` adds the whole product once. Where the dimension that it contracts is spread over
workgroups, no workgroup has the whole; but what each of them adds of its own tile comes to the same, in an order that
atomics promise to nobody. That holds for what is linear in the sum and has no other reader. Where a condition or the
range of a loop lets some of the workgroups through only, their tiles are what is summed.

A maximum of maxima is the whole's, whatever the type and the order.

Invariant: the graph is not changed. Float sums in 16 bits are left alone: they would be rounded once per workgroup.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.cuts.tile_dims import varying_dims
from wavedsl.ir.dataflow.constraints import WorkgroupConstraint
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph, Node, addend, factors
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import dim_name

WIDE = (dt.f32, dt.f64, dt.i32, dt.u32, dt.i64, dt.u64)
"""What parts are added in without more rounding than a sum of its own has."""

EXTREMES = {"atomic_max": "max", "atomic_min": "min"}
"""The reductions whose parts these atomics put together."""


@dataclass(frozen=True)
class Parts:
    """`atomics`: an atomic's number → the shared dimensions that it adds parts of sums along. `sums`: numbers of the
    products and sums of which it takes parts → the same dimensions; of a sum of such a sum → none."""

    atomics: Mapping[int, tuple[Any, ...]]
    sums: Mapping[int, tuple[Any, ...]]


NONE = Parts({}, {})


def parts_of(graph: Graph) -> Parts:
    """The atomics of a graph that add parts."""
    shared = {c.dim for c in graph.constraints if isinstance(c, WorkgroupConstraint)} - set(graph.index_dims)
    nodes = list(graph.all_nodes())
    found = [n for n in nodes if n.op in EXTREMES or (n.op == "atomic_add" and n.inputs[0].dtype in WIDE)]
    if not shared or not found:
        return NONE
    uses: dict[int, int] = {}
    for x in (*(x for n in nodes for x in n.inputs), *(y for r in graph.regions() for y in r.yields)):
        uses[x.id] = uses.get(x.id, 0) + 1
    atomics: dict[int, tuple[Any, ...]] = {}
    sums: dict[int, tuple[Any, ...]] = {}
    for region in graph.regions():
        products = {n.id for n in region.nodes if n.op in PRODUCTS}
        walk = _Walk(graph, {n.id for n in region.nodes}, products, uses, shared)
        for n in region.nodes:
            if n not in found or n.id in uses:
                continue
            own = walk.extreme(n.inputs[0], EXTREMES[n.op]) if n.op in EXTREMES else walk.sums(n.inputs[0])
            if own and not walk.varies(n.inputs[1:], _dims(own)) and not _moves(n, _dims(own)):
                atomics[n.id] = _dims(own)
                sums.update(own)
    return Parts(atomics, sums)


def mark_parts(graph: Graph) -> Graph:
    """`graph` with those sums marked `partial` and those atomics as `joined` along their dimensions; itself where there
    is none."""
    parts = parts_of(graph)
    if not parts.atomics:
        return graph

    def marked(copy: Copy, n: Node) -> Node:
        if n.id in parts.sums:
            return copy.same(n, attrs={**n.attrs, "partial": True})
        if n.id in parts.atomics:
            return copy.same(n, attrs={**n.attrs, "joined": tuple(map(dim_name, parts.atomics[n.id]))})
        return copy.same(n)

    return copied(graph, marked)


def _moves(n: Node, dims: tuple[Any, ...]) -> bool:
    """Whether the place that an atomic adds to moves along some dimension."""
    mapping = n.attrs.get("mapping")
    return mapping is not None and any(c.has(*dims) for c in mapping.coords if not isinstance(c, int))


@dataclass(frozen=True)
class _Walk:
    """From what an atomic adds up to the sums that it is linear in. `nodes`: numbers of the nodes of the atomic's own
    region, of which `products` are matrix products; `uses`: readers by number; `shared`: dimensions that workgroups
    are spread over."""

    graph: Graph
    nodes: Collection[int]
    products: Collection[int]
    uses: Mapping[int, int]
    shared: Collection[Any]

    def varies(self, values: tuple[Node, ...], dims: tuple[Any, ...]) -> bool:
        """Whether one of these values may differ between workgroups along some dimension."""
        return not varying_dims(self.graph, values).isdisjoint(map(dim_name, dims))

    def sums(self, x: Node) -> dict[int, tuple[Any, ...]] | None:
        """The sums that `x` is linear in, all along the same shared dimensions, as in `Parts`. None where it is not, or
        where something else is in it as well."""
        if self.uses.get(x.id) != 1 or x.id not in self.nodes:
            return None
        if x.op in PRODUCTS:
            return self._product(x)
        if x.op == "sum":
            return self._sum(x)
        if x.op in ("neg", "permute") or (x.op == "cast" and x.dtype is dt.f64 and x.inputs[0].dtype is dt.f32):
            return self.sums(x.inputs[0])
        if x.op in ("add", "sub"):
            return _together(*map(self.sums, x.inputs))
        if x.op in ("mul", "div"):
            for value, factor in (x.inputs, x.inputs[::-1])[: 1 if x.op == "div" else 2]:
                found = self.sums(value)
                if found is not None:
                    return None if self.varies((factor,), _dims(found)) else found
        return None

    def _sum(self, x: Node) -> dict[int, tuple[Any, ...]] | None:
        """A sum along a shared dimension, or of such sums along any."""
        dim, within = x.attrs["dim"], self.sums(x.inputs[0])
        if dim not in self.shared:
            return within
        if within is None or any(n in self.products for n in within):
            return {x.id: (dim,)}
        return {x.id: (), **{n: (*dims, dim) if dims else () for n, dims in within.items()}}

    def extreme(self, x: Node, op: str) -> dict[int, tuple[Any, ...]] | None:
        """The maxima or minima along shared dimensions that `x` is, with nothing else in them, as for sums."""
        found: dict[int, tuple[Any, ...]] = {}
        dims: tuple[Any, ...] = ()
        while x.op in (op, "permute") and self.uses.get(x.id) == 1 and x.id in self.nodes:
            if x.op == op and x.attrs["dim"] in self.shared:
                found[x.id], dims = (), (*dims, x.attrs["dim"])
            x = x.inputs[0]
        return {**found, max(found): dims} if found else None

    def _product(self, x: Node) -> dict[int, tuple[Any, ...]] | None:
        first, second = (x.inputs[i] for i in factors(x))
        over = [d for d in first.dims if d in second.dims and d not in x.dims]
        if len(over) != 1 or over[0] not in self.shared:
            return None
        own, added = {x.id: (over[0],)}, addend(x)
        if added is None or (added.op in ("fill", "constant") and added.attrs["value"] == 0):
            return own
        return _together(own, self.sums(added))


def _together(
    one: dict[int, tuple[Any, ...]] | None, two: dict[int, tuple[Any, ...]] | None
) -> dict[int, tuple[Any, ...]] | None:
    """Two values' sums, where both are along the same dimensions."""
    return {**one, **two} if one and two and set(_dims(one)) == set(_dims(two)) else None


def _dims(sums: Mapping[int, tuple[Any, ...]]) -> tuple[Any, ...]:
    """The dimensions of a value's sums."""
    return next(dims for dims in sums.values() if dims)


__all__ = ["NONE", "Parts", "mark_parts", "parts_of"]
