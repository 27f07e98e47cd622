"""Layouts of reads and writes of packed arrays, elements of 4 and 6 bits: whole units, or a lane's half of each byte.

In: the layouts that everything else has led to. Out: layouts that an access of the array can have, and demands where a
use wants another: it converts.

A lane that holds one of two neighbours, as matrix instructions want the columns of zero points, loads the byte with
both and takes its half, where that costs no more than to load each byte once and to exchange the elements.
"""

from __future__ import annotations

from collections.abc import Mapping

from wavedsl.ir.addresses.mapped_runs import unit_dim
from wavedsl.ir.addresses.packed_view import halved_layout, transposed_layout, unit_elements, unit_layout
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph, Node, ValueType
from wavedsl.ir.dataflow.views import is_tile, view_dims
from wavedsl.ir.dtypes import DType
from wavedsl.ir.inference.coalesced import coalesced
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.layouts.bits import kind_of
from wavedsl.ir.layouts.chain import move_clocks
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.value_classes import Classes
from wavedsl.ir.symbols import AddressSpace, dim_name
from wavedsl.ir.target import VECTOR_BYTES, Target

LOAD_CLOCKS = 4
"""What an access of memory costs a wave, beside moves of elements between lanes."""


def settle_packed(
    demands: dict[tuple[int, int], Layout], chosen: dict[int, Layout], classes: Classes, nodes: Mapping[int, Node],
    graph: Graph, partition: Partition, target: Target,
) -> None:  # fmt: skip
    """Reads and writes of packed arrays move whole units: a value that lies otherwise is converted at its use."""
    for n in nodes.values():
        if n.op not in ("read", "write") or not graph.argument(n.attrs["memory"]).dtype.packed:
            continue
        argument = graph.argument(n.attrs["memory"])
        group = unit_elements(argument.dtype)
        value = n if n.op == "read" else n.inputs[0]
        own = classes.find(value.id)
        tile = is_tile(graph, n)
        if tile:
            dims = list(view_dims(graph, n))
        else:
            along_units = unit_dim(graph, n, group, [dim_name(d) for d in value.dims])
            dims = sorted(value.dims, key=lambda d: dim_name(d) == along_units)
            if along_units is None:
                continue
        order = [d for d in dims if d in value.dims]
        if not order:
            continue
        inner = dim_name(dims[-1])

        def fits(layout: Layout, staged: bool, inner: str = inner, dtype: DType = argument.dtype) -> bool:
            if unit_layout(layout, inner, unit_elements(dtype)) is not None:
                return True
            return staged and dtype.bits in target.transposing and transposed_layout(layout, inner, 16) is not None

        along = partition.dims[dims[-1]]
        sizes = (along.extent, along.tile, along.wave)
        transposable, of_words = (all(s is not None and s % run == 0 for s in sizes) for run in (16, 8))

        waves = {d: partition.dims[d].wave for d in order}
        if n.op == "write":
            layout = demands.get((n.id, 0), chosen[own])
            if not fits(layout, False):
                bits = max(value.dtype.bits, argument.dtype.slot)
                demands[n.id, 0] = coalesced(order, waves, bits, target, least=group)
            continue
        space = graph.subs.get(argument.address_space, argument.address_space)
        staged = space is not AddressSpace.GLOBAL and transposable and tile
        uses = [(u, p) for u in nodes.values() for p, x in enumerate(u.inputs) if x is n]
        users = [u for u, _ in uses if isinstance(u.type, ValueType) and set(u.dims) == set(n.dims)]
        lie = [chosen[classes.find(u.id)] for u in users if classes.find(u.id) in chosen]
        words = of_words and argument.dtype.bits == 4 and any(unit_layout(x, inner, 8) is not None for x in lie)
        # Whole words are loaded where they are used. On asynchronous chips exchanges pass shared memory again.
        exchanged = not words or space is AddressSpace.GLOBAL
        wanted = chosen[own]
        if fits(wanted, staged) and exchanged and not target.asynchronous:
            _halve(n, inner, chosen, own, lie)
            continue
        for u, _ in uses:
            theirs = chosen.get(classes.find(u.id)) if isinstance(u.type, ValueType) else None
            if theirs is not None and set(u.dims) == set(n.dims) and fits(theirs, staged):
                chosen[own] = theirs.reorder([dim_name(d) for d in n.dims])
                break
        else:
            if not fits(chosen[own], staged):
                chosen[own] = coalesced(order, waves, argument.dtype.slot, target, least=group)
            _halve(n, inner, chosen, own, lie or [wanted])
        for u, p in uses:
            if u.op in PRODUCTS and (u.id, p) not in demands and not same_layout(chosen[own], wanted):
                demands[u.id, p] = wanted


def _halve(n: Node, dim: str, chosen: dict[int, Layout], own: int, lie: list[Layout]) -> None:
    """Let a read lie as one of its users does, lanes taking their halves of bytes, where that is cheaper."""
    named = (x.reorder([dim_name(d) for d in n.dims]) for x in lie if n.dtype.bits == 4)
    chosen[own] = next((x for x in named if halves_are_cheaper(x, chosen[own], dim)), chosen[own])


def halves_are_cheaper(layout: Layout, instead: Layout, dim: str) -> bool:
    """Whether lanes had better load the bytes with the elements that they have in `layout` than load whole bytes as
    they lie in layout `instead`, and exchange."""
    halved, whole = halved_layout(layout, dim), unit_layout(instead, dim, 2)
    if halved is None or whole is None:
        return False
    clocks = LOAD_CLOCKS * _loads(halved[0], dim)
    return clocks <= LOAD_CLOCKS * _loads(whole, dim) + move_clocks(instead, layout, 4)


def _loads(units: Layout, dim: str) -> int:
    """Accesses of a value of bytes, those of neighbours in a lane being one."""
    columns = dict(zip(units.inner.ins, units.inner.coordinate_columns(dim)))
    steps = {c for x, c in columns.items() if kind_of(x) == "e"}
    width = 1
    while width in steps and width < VECTOR_BYTES:
        width *= 2
    return units.elements_per_lane // width


__all__ = ["settle_packed"]
