"""Output tiles that workgroups take in turn, written in the language itself.

In: a traced graph, the extents, how many workgroups. Out: a graph of the same language that says

    worker = tile_start(_workers)                   the grid, but for index dimensions, which stay in it
    for _turns:                                     as many as there are tiles for this workgroup
        for M, N:                                   the one tile of this turn: its number, in blocks that share L2
            what the user's kernel does

Clusters of workgroups (sm_90a) have turns together: the number is a cluster's, whose workgroups take tiles side by
side, and where a workgroup stands in it are dimensions of the grid (`MEMBERS`). What is the same for a cluster is known
by what it depends on.

Tiles that were workgroups' become those of loops, over which waves are spread as before (`TurnConstraint`). Any kernel
whose tiles know nothing of each other can be written so, for any chip; on sm_90a copies of kernels with products run on
from one tile to the next instead (`tile_order`). `stream_k` deals the trips of a loop on top of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

from wavedsl.ir.dataflow.constraints import ResolvedDim, TilingConstraint, TurnConstraint, WorkgroupConstraint
from wavedsl.ir.dataflow.graph import Graph, Region, ValueType
from wavedsl.ir.dataflow.graph_edit import Edit, Number
from wavedsl.ir.dataflow.graph_verify import verify_graph
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.split_k import SAID, Split, cuts, grid_tiles
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.grid.tile_order import best_group
from wavedsl.ir.loc import Loc
from wavedsl.ir.symbols import symbol

WORKERS, TURNS = "_workers", "_turns"
MEMBERS = ("_columns", "_rows")
"""Dimensions of the grid that say which workgroup of its cluster one is, along each axis of the cluster."""
MOST_TURNS = 1 << 30


def in_turn(split: Split, units: int, swizzle: bool | None = None) -> Split:
    """The graph with its output tiles handed to one workgroup per compute unit; as it is where there are no more tiles
    than that. Raises ConstraintError where that would change what it means."""
    graph, dims = split.graph, split.dims
    cut = cuts(graph, dims)
    tiles = grid_tiles(cut)
    if tiles is not None and tiles <= units:
        return replace(split, note=f"{tiles} tiles for {units} units: each workgroup has one")
    check_turns(graph, cut, "leave persistent out")
    apart = [d.extent for d in cut.values() if d.axis is not None and d.dim in graph.index_dims]
    workers = max(1, units // max(1, prod(n for n in apart if isinstance(n, int))))
    made = _InTurn(graph, dims, cut, workers, swizzle, graph.loc).made()
    verify_graph(made, "handing its tiles to workgroups")
    note = f"{workers} workgroups take tiles in turn"
    return Split(made, {**dims, **made.subs, symbol(TURNS): MOST_TURNS}, split.shapes, note)


def check_turns(graph: Graph, cut: Mapping[Any, ResolvedDim], hint: str) -> None:
    """Raise ConstraintError for a kernel whose tiles cannot be turns of a workgroup."""
    tiled = [d.dim for d in cut.values() if d.axis is not None and d.dim not in graph.index_dims]
    if not tiled:
        raise ConstraintError(
            "no dimension of the grid has tiles that workgroups could take in turn: where a tile is the number 1, each "
            "place along the dimension is a workgroup's",
            graph.loc, hint,
        )  # fmt: skip
    for n in graph.all_nodes():
        kind = n.inputs[0].type if n.inputs else None
        held = kind.dims if isinstance(kind, ValueType) else ()
        missing = [d for d in tiled if d not in held]
        stored = ROWS[n.op].effect and "memory" in n.attrs and n.op != "write" and not n.attrs.get("per_workgroup")
        if n.op in SAID or (stored and missing):
            why = "" if n.op in SAID else f" of a value without {missing[0]}"
            raise ConstraintError(
                f"{n.op}{why} is carried out by one workgroup for all tiles, but every tile is some workgroup's turn",
                n.loc, hint,
            )  # fmt: skip


class Turns(Edit):
    """A graph that is rewritten so. `tiled`: dimensions of the grid whose tiles are turns; `apart`: those that stay in
    the grid."""

    def __init__(
        self, graph: Graph, dims: Mapping[Any, Any], cut: Mapping[Any, ResolvedDim], workers: int,
        swizzle: bool | None, loc: Loc | None, cluster: tuple[int, ...] = (),
    ):  # fmt: skip
        super().__init__(graph, loc)
        self.swizzle = swizzle
        self.dims = dict(dims)
        grid = [d for d in cut.values() if d.axis is not None]
        self.tiled = [d for d in grid if d.dim not in graph.index_dims]
        self.apart = [d for d in grid if d.dim in graph.index_dims]
        self.worker, self.turn = symbol(WORKERS), symbol(TURNS)
        self.together: dict[Any, tuple[Any, int]] = {}
        """Dimension → (the member's place along it, tiles of it that a cluster takes together)."""
        for axis, size in enumerate(cluster):
            if size > 1:
                self._cluster_along(axis, size)
        count = prod(cluster)
        if workers % count:
            some = max(1, workers // count) * count
            raise ConstraintError(f"{workers} workgroups are no clusters of {count}", graph.loc, f"for example {some}")
        self.workers = workers // count
        """Workgroups, or clusters of them."""

    def _cluster_along(self, axis: int, size: int) -> None:
        own = next((d for d in self.tiled if d.axis == axis), None) if axis < len(MEMBERS) else None
        if own is None:
            raise ConstraintError(
                f"a cluster of {size} along grid axis {axis}, along which no tiles are handed out", self.old.loc,
                "leave cluster out",
            )  # fmt: skip
        if isinstance(own.extent, int) and -(-own.extent // (own.workgroup or 1)) % size:
            count = -(-own.extent // (own.workgroup or 1))
            raise ConstraintError(
                f"{own.dim} has {count} tiles, no multiple of the {size} of a cluster", self.old.loc,
                "leave cluster out, or choose another tile",
            )  # fmt: skip
        member = symbol(MEMBERS[axis])
        self.together[own.dim] = member, size
        self.apart.append(ResolvedDim(member, size, workgroup=1, axis=0))
        self.dims[member] = size

    def turn_constraints(self) -> list[Any]:
        """The constraints with a grid of workers, and loops of turns and tiles."""
        axis = min(d.axis for d in self.tiled if d.axis is not None)
        taken = {d.dim for d in self.tiled}
        members = sorted((member for member, _ in self.together.values()), key=lambda d: MEMBERS.index(str(d)))
        found: list[Any] = [WorkgroupConstraint(d, 1, 0, loc=self.old.loc) for d in members]  # neighbours in the launch
        found.append(WorkgroupConstraint(self.worker, 1, 0 if members else axis, loc=self.old.loc))
        for c in self.old.constraints:
            if isinstance(c, WorkgroupConstraint) and c.dim in taken:
                c = TurnConstraint(c.dim, c.tile, c.axis, loc=c.loc)
            found.append(c)
        return [*found, TilingConstraint(self.turn, 1, loc=self.old.loc)]

    # --- numbers

    def size(self, d: ResolvedDim) -> Number:
        return d.extent if isinstance(d.extent, int) else self.add("size", (), {"expr": d.dim})

    def tiles(self, d: ResolvedDim) -> Number:
        """Tiles of a dimension, or as many as clusters take of it. Where a run-time extent makes that no whole number,
        the last ones work on nothing."""
        _, together = self.together.get(d.dim, (None, 1))
        return self.over_up(self.size(d), (d.workgroup or 1) * together)

    def numbers(self, tile: Number, counts: Sequence[Number]) -> list[Number]:
        """A tile's number along each tiled dimension, in blocks of some tiles along the first, then on along the
        second."""
        if len(counts) == 1:
            return [tile]
        counts = [max(n, 1) if isinstance(n, int) else n for n in counts]  # of an empty array nobody asks for a tile
        first, second = counts[:2]
        outer: list[Number] = []
        plane = self.times(first, second)
        rest = tile
        if len(counts) > 2:
            rest, upper = self.modulo(tile, plane), self.over(tile, plane)
            for n in counts[2:-1]:
                outer.append(self.modulo(upper, n))
                upper = self.over(upper, n)
            outer.append(upper)
        sizes = [(d.workgroup or 1) * self.together.get(d.dim, (None, 1))[1] for d in self.tiled[:2]]
        group: Number = first if self.swizzle is False else best_group(sizes, self.workers)
        per = self.times(second, group)
        inside, top = self.modulo(rest, per), self.times(self.over(rest, per), group)
        even = isinstance(first, int) and isinstance(group, int) and first % group == 0
        height = group if even else self.least(self.minus(first, top), group)
        return [self.plus(top, self.modulo(inside, height)), self.over(inside, height), *outer]

    @contextmanager
    def placed(self, tile: Number, counts: Sequence[Number]) -> Iterator[None]:
        """Nodes go into loops over the tiled dimensions that have one trip: the tile's."""
        outer = self.region
        for d, number in zip(self.tiled, self.numbers(tile, counts)):
            size = d.workgroup or 1
            if d.dim in self.together:
                member, many = self.together[d.dim]
                number = self.plus(self.times(number, many), self.add("tile_start", (), {"dim": member}))
            start = self.node(self.times(number, size))
            region = Region(d.dim, loc=self.loc)
            attrs = {"dim": d.dim, "body": region, "bounds": (0, 1), "length": size}
            self.add("iterate", (start, self.node(self.plus(start, size))), attrs)
            self.region = region
        yield
        self.region = outer


class _InTurn(Turns):
    """Whole tiles only."""

    def made(self) -> Graph:
        old = self.old
        known = {self.worker: self.workers, self.turn: MOST_TURNS}
        self.graph = replace(
            old,
            constraints=self.turn_constraints(),
            subs={**old.subs, **known},
            symbols=(*old.symbols, *known),
            index_dims=(*old.index_dims, self.worker),
            traced=old.traced or old,
        )
        first = self.region
        counts = [self.tiles(d) for d in self.tiled]
        worker = self.add("tile_start", (), {"dim": self.worker})
        turns = Region(self.turn, loc=self.loc)
        with self.inside(turns):
            turn = self.add("tile_start", (), {"dim": self.turn})
            with self.placed(self.plus(self.times(turn, self.workers), worker), counts):
                self.region.nodes += old.region.nodes
        mine = self.minus(self.plus(self.product(counts), self.workers - 1), worker)
        attrs = {"dim": self.turn, "body": turns, "bounds": (0, 1)}
        self.add("iterate", (self.whole(0), self.node(self.over(mine, self.workers))), attrs)
        return replace(self.graph, region=first)


__all__ = ["MOST_TURNS", "TURNS", "WORKERS", "Turns", "check_turns", "in_turn"]
