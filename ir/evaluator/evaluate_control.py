"""NumPy meaning of loops and conditions: every workgroup at once, with a mask where not all of them take part."""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.ir.dataflow.constraints import TilingConstraint
from wavedsl.ir.dataflow.graph import Node, Region, loop_bounds
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.evaluator.evaluate_run import Named, Run, meaning
from wavedsl.ir.symbols import evaluate as evaluate_expr


@meaning("iterate")
def _iterate(run: Run, node: Node) -> tuple[Named, ...]:
    body: Region = node.attrs["body"]
    dim = node.attrs["dim"]
    tile = run.tiles[dim] = _trip_tile(run, dim, node)
    carried = [run.get(i) for i in node.inputs[: len(body.carries)]]
    total = run.extent(dim)
    trips = np.arange(-(-total // tile))
    first, last = (None if x is None else run.get(x) for x in loop_bounds(node))
    for trip in trips:
        active = _active(run, trip * tile, tile, first, last)
        start = int(trip) * tile
        run.spans[dim] = (start, min(start + tile, total))
        carried = _once(run, body, carried, active)
    run.spans.pop(dim, None)
    return tuple(carried)


@meaning("when")
def _when(run: Run, node: Node) -> tuple[Named, ...]:
    return tuple(_once(run, node.attrs["body"], [run.get(i) for i in node.inputs[1:]], run.get(node.inputs[0])))


def _once(run: Run, body: Region, carried: list[Named], active: Named) -> list[Named]:
    """What a region makes of the carried values where `active` holds; they stay as they are elsewhere."""
    if not np.any(active.array):
        return carried
    for carry, value in zip(body.carries, carried):
        run.results[carry.id] = value
    everywhere = bool(np.all(active.array))
    if not everywhere:
        run.active.append(active)
    run.region(body)
    found = [run.get(y) for y in body.yields]
    if everywhere:
        return found
    run.active.pop()
    return [_chosen(run, active, new, old) for new, old in zip(found, carried)]


@meaning("repeat")
def _repeat(run: Run, node: Node) -> tuple[Named, ...]:
    body: Region = node.attrs["body"]
    carried = [run.get(i) for i in node.inputs]
    going = Named((), np.asarray(True))
    before: list[bytes] = []
    while True:
        for carry, value in zip(body.carries, carried):
            run.results[carry.id] = value
        held = [x.array.tobytes() for x in (*carried, going)]
        run.active.append(going)
        run.region(body)
        run.active.pop()
        found = [run.get(y) for y in body.yields[:-1]]
        carried = [_chosen(run, going, new, old) for new, old in zip(found, carried)]
        again = run.get(body.yields[-1])
        dims = run.union(going, again)
        going = Named(dims, run.aligned(going, dims) & run.aligned(again, dims))
        # Workgroups that a condition around has left out do not keep the others waiting.
        if not np.any(run.everywhere(going).array):
            return tuple(carried)
        before = _moved(run, node, held, [x.array.tobytes() for x in (*carried, going)], before)


def _moved(run: Run, node: Node, held: list[bytes], now: list[bytes], before: list[bytes]) -> list[bytes]:
    """The arrays after a trip that has left its values as they were, else nothing. Raises ConstraintError after the
    second such trip in a row that has not changed the arrays either: no trip will."""
    if held != now:
        return []
    arrays = [run.memory[name].tobytes() for name in sorted(run.touched)]
    if arrays and arrays == before:
        raise ConstraintError(
            f"{run.graph.name}: a while_loop goes round for ever: a trip changes nothing any more",
            node.loc,
            hint="to wait for another workgroup needs workgroups that run by themselves, and the evaluator runs all of "
            "them in step: kernel.compile(…).emulate(…)",
        )
    return arrays or [b""]


def _active(run: Run, start: int, tile: int, first: Named | None, last: Named | None) -> Named:
    """Where a loop's bounds include the tile that starts at `start`."""
    parts = []
    if first is not None:
        parts.append(Named(first.dims, start + tile > first.array))
    if last is not None:
        parts.append(Named(last.dims, start < last.array))
    if first is not None and last is not None:  # an empty range has no tile, whatever its ends
        dims = run.union(first, last)
        parts.append(Named(dims, run.aligned(first, dims) < run.aligned(last, dims)))
    return run.all_of(*parts)


def _chosen(run: Run, active: Named, new: Named, old: Named) -> Named:
    dims = run.union(new, old, active)
    return Named(dims, np.where(*(run.aligned(x, dims) for x in (active, new, old))))


def _trip_tile(run: Run, dim: Any, node: Node) -> int:
    for c in run.graph.constraints:
        if isinstance(c, TilingConstraint) and c.dim == dim:
            tile = evaluate_expr(c.tile, run.symbols)
            if isinstance(tile, int) and tile > 0:
                return tile
            raise ConstraintError(f"{c}: the tile is {tile}", c.loc, hint="bind its symbols to a positive whole number")
    raise ConstraintError(
        f"iterate: {dim} has no TilingConstraint", node.loc, hint=f"add wd.TilingConstraint({dim}, …)"
    )


@meaning("result")
def _result(run: Run, node: Node) -> Named:
    return run.results[node.inputs[0].id][node.attrs["position"]]


@meaning("carry")
def _carry(run: Run, node: Node) -> Named:
    return run.get(node)  # set by its loop; never in a region's list of nodes
