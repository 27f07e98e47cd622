"""NumPy meaning of what moves elements and changes none: broadcasts, reshapes, extracts, shuffles."""

from __future__ import annotations

import numpy as np
import sympy
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.picked_in_tiles import elsewhere, stays_in_tiles
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.evaluator.evaluate_run import Named, Run, meaning


@meaning("broadcast", "permute")
def _same_elements(run: Run, node: Node) -> Named:
    return run.get(node.inputs[0])


@meaning("reshape")
def _reshape(run: Run, node: Node) -> Named:
    value = run.whole(node.inputs[0])
    hidden = run.apart(value, own=node.inputs[0].dims)
    sizes = [run.size(d) for d in node.attrs["dims"]]
    have = value.array.shape[len(hidden) :]
    if int(np.prod(have, dtype=np.int64)) != int(np.prod(sizes, dtype=np.int64)):
        old = " × ".join(f"{d} = {n}" for d, n in zip(value.dims[len(hidden) :], have))
        new = " × ".join(f"{d} = {n}" for d, n in zip(node.attrs["dims"], sizes))
        raise ConstraintError(f"reshape: {old} elements do not fit {new}", node.loc, hint="the products must be equal")
    return Named((*hidden, *node.attrs["dims"]), value.array.reshape(*value.array.shape[: len(hidden)], *sizes))


@meaning("extract")
def _extract(run: Run, node: Node) -> Named:
    dim, new = node.attrs["dim"], node.attrs["new"]
    tile = run.tile(dim)
    if new is None and tile is not None:
        raise elsewhere(node, dim, tile, True)
    value = run.whole(node.inputs[0], last=dim)
    start = node.attrs["start"]
    if start is None:
        start = run.get(node.inputs[1]).array
    count = 1 if new is None else run.size(new)
    places = np.asarray(start, np.int64)[..., None] + np.arange(count) * node.attrs["step"]
    start_dims = () if node.attrs["start"] is not None else run.get(node.inputs[1]).dims
    taken = _taken(run, value, Named((*start_dims, _PLACE), places))
    at = taken.dims.index(_PLACE)
    if new is None:
        return Named(taken.dims[:at] + taken.dims[at + 1 :], np.take(taken.array, 0, at))
    return Named(tuple(new if d is _PLACE else d for d in taken.dims), taken.array)


@meaning("shuffle")
def _shuffle(run: Run, node: Node) -> Named:
    dim = node.attrs["dim"]
    value = run.whole(node.inputs[0], last=dim)
    index = run.get(node.inputs[1])
    new = [d for d in node.dims if d not in node.inputs[0].dims]
    along = new[0] if new else dim  # of the result
    tile = run.tile(dim)
    if tile is not None:
        if not stays_in_tiles(node, tile):
            raise elsewhere(node, dim, tile, True)
        index = Named(index.dims, index.array - run.span(dim)[0])
    if along not in index.dims:  # every element along the dimension is the same one
        length = run.size(along)
        index = Named((*index.dims, along), np.repeat(index.array[..., None], length, axis=-1))
    taken = _taken(run, value, Named(tuple(_PLACE if d == along else d for d in index.dims), index.array))
    return Named(tuple(along if d is _PLACE else d for d in taken.dims), taken.array)


_PLACE = sympy.Symbol("_place")
"""Stands for the places that are taken along a dimension."""
_FROM = sympy.Symbol("_from")
"""Stands for the dimension that they are taken along, which the places may have too."""


def _taken(run: Run, value: Named, places: Named) -> Named:
    """Elements of the last dimension of `value` at `places`, 0 outside."""
    length = value.array.shape[-1]
    dims = tuple(dict.fromkeys((*value.dims[:-1], *(d for d in places.dims if d is not _PLACE))))
    table = run.aligned(Named((*value.dims[:-1], _FROM), value.array), (*dims, _FROM))
    index = run.aligned(places, (*dims, _PLACE))
    sizes = np.broadcast_shapes(table.shape[:-1], index.shape[:-1])
    table = np.broadcast_to(table, (*sizes, table.shape[-1]))
    index = np.broadcast_to(index, (*sizes, index.shape[-1])).astype(np.int64)
    inside = (index >= 0) & (index < length)
    found = np.take_along_axis(table, np.clip(index, 0, max(length - 1, 0)), axis=-1)
    return Named((*dims, _PLACE), np.where(inside, found, np.zeros((), found.dtype)))


@meaning("repeat_interleave")
def _repeat_interleave(run: Run, node: Node) -> Named:
    dim = node.attrs["dim"]
    part = next(d for d in node.inputs[0].dims if d not in node.dims)
    value = run.whole(node.inputs[0], last=part)
    count = node.attrs["count"]
    first = run.span(dim)[0] - run.span(part)[0] * count
    array = np.repeat(value.array, count, axis=-1)[..., first : first + run.size(dim)]
    return Named((*value.dims[:-1], dim), array)
