"""Stream-K: a kernel whose result is one loop of sums, the trips of all its output tiles dealt to as many workgroups as
the chip runs at once.

In: a traced graph, the extents, how many workgroups. Out: a graph of the same language that says

    worker = tile_start(_workers)                   the grid, but for index dimensions, which stay in it
    for _turns:                                     whole tiles, as many rounds as there are; then those of the own run
        for M, N:                                   the one tile of this turn: its number, in blocks that share L2
            sums = iterate(K, from zero, start and stop of the trips that are this workgroup's)
            when it has all of the tile's:
                what the user does with sums
            otherwise:
                write(sums, _sums[worker + tile]); fence
                ticket = atomic_add(1, _tickets[tile])
                when ticket is the last:
                    fence
                    sums = iterate(_parts, _sums[parts]) in order of the workers
                    what the user does with sums
                    write(0, _tickets[tile])

The trips of the tiles left over after whole rounds are put in one line and cut into equal runs, none longer than a
tile's: so a run touches two tiles at most. Nobody waits for another, and parts are added in one order: the bits are the
same whoever comes last. The path of (worker, left-over tile) through the parts is monotone, so `worker + tile` is a
place of its own for each of them and the parts of a tile stand side by side: the launch brings fewer than twice as many
tiles of sums as there are workgroups, whatever the extents (`Argument.hidden`).

What may be dealt is what `split_k` cuts, without ranges of the user's: their trips may differ between tiles. Tiles that
were workgroups' become those of loops, over which waves are spread as before (`TurnConstraint`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.constraints import ResolvedDim, TilingConstraint, TurnConstraint, WorkgroupConstraint
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.graph import Argument, Graph, Node, Region, ValueType, loop_bounds
from wavedsl.ir.graph import Mapping as Placed
from wavedsl.ir.graph_edit import Edit, Number
from wavedsl.ir.graph_verify import verify_graph
from wavedsl.ir.ops import ROWS
from wavedsl.ir.split_k import PARTS, SAID, SUMS, TICKETS, Split, cuts, divided, loop_to_cut
from wavedsl.ir.symbols import DYNAMIC, AddressSpace, symbol
from wavedsl.ir.tile_order import best_group

WORKERS, TURNS = "_workers", "_turns"
LEAST_STEPS = 2
"""Steps below which a workgroup's run is not worth a part of its own."""
MOST_STEPS = 1 << 20
"""Steps that a tile is divided into at most: numbers of steps of all tiles stay far below 2^31. A step is one trip,
where a tile has more of them as many as it takes."""
MOST_TURNS = 1 << 30


def stream(graph: Graph, dims: Mapping[Any, Any], workers: int, swizzle: bool | None = None) -> Split:
    """The graph with its loop's trips dealt to `workers` workgroups, for each place along its index dimensions. Raises
    ConstraintError where that would change what it means."""
    loop = loop_to_cut(graph)
    cut = cuts(graph, dims)
    _check(graph, loop, cut)
    found = _Stream(graph, dims, cut, loop, workers, swizzle).made()
    verify_graph(found.graph, "dealing its trips to workgroups")
    return found


def _check(graph: Graph, loop: Node, cut: Mapping[Any, ResolvedDim]) -> None:
    dim = loop.attrs["body"].dim
    if loop_bounds(loop) != (None, None):
        raise ConstraintError(
            f"the loop over {dim} has a range of its own, which may differ between tiles", loop.loc, "use split_k"
        )
    tiled = [d.dim for d in cut.values() if d.axis is not None and d.dim not in graph.index_dims]
    if not tiled:
        raise ConstraintError(
            "no dimension of the grid has tiles that workgroups could take in turn", graph.loc, "use split_k"
        )
    for n in graph.all_nodes():
        kind = n.inputs[0].type if n.inputs else None
        held = kind.dims if isinstance(kind, ValueType) else ()
        missing = [d for d in tiled if d not in held]
        once = n.op in SAID or (ROWS[n.op].effect and "memory" in n.attrs and n.op != "write" and missing)
        if once:
            why = "" if n.op in SAID else f" of a value without {missing[0]}"
            raise ConstraintError(
                f"{n.op}{why} is carried out by one workgroup for all tiles, but every tile is some workgroup's turn",
                n.loc, "use split_k",
            )  # fmt: skip


@dataclass(frozen=True)
class Deal:
    """Who has which steps, in numbers that may be known at launch only. `q` and `r`: the first r of the runs have q + 1
    steps, the others q."""

    workers: int
    steps: Number
    rounds: Number
    left: Number
    sharers: Number
    q: Number
    r: Number

    @staticmethod
    def of(e: Edit, tiles: Number, steps: Number, workers: int) -> Deal:
        """`tiles` output tiles of `steps` steps each, at least one, dealt to `workers`."""
        left = e.modulo(tiles, workers)
        line = e.times(left, steps)
        sharers = e.most(e.most(left, e.least(workers, e.over(line, LEAST_STEPS))), 1)
        return Deal(
            workers, steps, e.over(tiles, workers), left, sharers, e.over(line, sharers), e.modulo(line, sharers)
        )

    def start(self, e: Edit, run: Number) -> Number:
        """The first step of a run; for the one behind the last, the end of the line."""
        if self.sharers != self.workers:
            run = e.least(run, self.sharers)
        return e.plus(e.times(run, self.q), 0 if self.r == 0 else e.least(run, self.r))

    def run_at(self, e: Edit, step: Number) -> Number:
        """Which run a step of the line lies in."""
        if self.r == 0:
            return e.over(step, e.most(self.q, 1))
        longer = e.times(self.r, e.plus(self.q, 1))
        inside = e.over(step, e.plus(self.q, 1))
        behind = e.plus(self.r, e.over(e.minus(step, longer), e.most(self.q, 1)))
        return e.choose(e.below(step, longer), inside, behind)

    def describe(self) -> str:
        """One line for reports."""
        who = f"{self.workers} workgroups"
        if not isinstance(self.rounds, int) or not isinstance(self.left, int):
            return f"{who}, rounds of whole tiles, then equal runs of what is left over"
        whole = f"{self.rounds} rounds of whole tiles"
        if not self.left:
            return f"{who}, {whole}"
        return f"{who}, {whole}, then {self.sharers} runs of the {self.left} tiles of {self.steps} steps left over"

    @property
    def shares(self) -> bool:
        """Whether there may be tiles left over."""
        return self.left != 0

    @property
    def slots(self) -> int:
        """Parts that have a place each, at most."""
        if isinstance(self.sharers, int) and isinstance(self.left, int):
            return self.sharers + self.left - 1
        return 2 * self.workers - 1


class _Stream(Edit):
    """One graph being rewritten."""

    def __init__(
        self, graph: Graph, dims: Mapping[Any, Any], cut: Mapping[Any, ResolvedDim], loop: Node, workers: int,
        swizzle: bool | None,
    ):  # fmt: skip
        super().__init__(graph, loop.loc)
        self.loop, self.workers, self.swizzle = loop, workers, swizzle
        self.body: Region = loop.attrs["body"]
        self.dims = dict(dims)
        grid = [d for d in cut.values() if d.axis is not None]
        self.tiled = [d for d in grid if d.dim not in graph.index_dims]
        self.apart = [d for d in grid if d.dim in graph.index_dims]
        """Dimensions of the grid that stay there."""
        self.along = cut[self.body.dim]
        self.worker, self.turn, self.all = symbol(WORKERS), symbol(TURNS), symbol(PARTS)
        self.shapes: dict[Any, Any] = {}

    def made(self) -> Split:
        known = [d.extent for d in (*self.tiled, self.along)]
        if all(isinstance(n, int) for n in known):
            count, steps = prod(self.tiles(d) for d in self.tiled), self.steps()[0]  # type: ignore[misc]
            assert isinstance(steps, int)
            self.workers = max(1, min(self.workers, max(count, count * steps // LEAST_STEPS)))
        counts = [self.tiles(d) for d in self.tiled]
        steps, trips = self.steps()
        deal = Deal.of(self, self.product(counts), steps, self.workers)
        first = self.region
        places = prod(d.extent for d in self.apart if isinstance(d.extent, int))
        self.declare(deal, places)
        self.region = first
        worker = self.add("tile_start", (), {"dim": self.worker})
        low: Number = 0
        high: Number = 0
        own: Number = 0
        if deal.shares:
            low, high = deal.start(self, worker), deal.start(self, self.plus(worker, 1))
            touched = self.minus(self.over(self.minus(high, 1), steps), self.over(low, steps))
            own = self.choose(self.below(low, high), self.plus(touched, 1), 0)
        turns = Region(self.turn, loc=self.loc)
        with self.inside(turns):
            self.one_turn(deal, worker, low, high, counts, trips)
        end = self.node(self.plus(deal.rounds, own))
        begin = self.whole(0)
        self.add("iterate", (begin, end), {"dim": self.turn, "body": turns, "bounds": (0, 1)})
        return Split(replace(self.graph, region=self.region), self.dims, self.shapes, deal.describe())

    def declare(self, deal: Deal, places: int) -> None:
        """The new dimensions, constraints and hidden arguments: `_sums` [slots, places, a tile], `_tickets` [places ·
        workers]. Where a run-time extent decides how many places there are along the dimensions that stay in the grid,
        the launch works it out."""
        old = self.old
        axis = min(d.axis for d in self.tiled if d.axis is not None)
        taken = {d.dim: d for d in self.tiled}
        constraints: list[Any] = [WorkgroupConstraint(self.worker, 1, axis, old.loc)]
        for c in old.constraints:
            if isinstance(c, WorkgroupConstraint) and c.dim in taken:
                c = TurnConstraint(c.dim, c.tile, c.loc, c.axis)
            constraints.append(c)
        constraints.append(TilingConstraint(self.turn, 1, old.loc))
        self.dims |= {self.worker: self.workers, self.turn: MOST_TURNS}
        new = [self.worker, self.turn]
        arguments: list[Argument] = []
        if deal.shares:
            constraints.append(TilingConstraint(self.all, 1, old.loc))
            new.append(self.all)
            dynamic = next((d.extent for d in self.apart if not isinstance(d.extent, int)), None)
            many = sympy.prod(d.dim for d in self.apart if not isinstance(d.extent, int))

            def counted(name: str, each: int) -> Any:
                own = symbol(f"{name}_tiles")
                self.dims[own] = places * each if dynamic is None else dynamic
                self.shapes[own] = places * each * many
                return own

            self.dims[self.all] = deal.slots
            for i, carry in enumerate(self.body.carries):
                shape: list[Any] = [self.all, *([counted(f"_sums{i}", 1)] if self.apart else [])]
                for d in carry.dims:
                    if d in taken:
                        own = symbol(f"_tile_{d}")
                        self.dims[own] = taken[d].workgroup
                        shape.append(own)
                    else:
                        shape.append(d)
                arguments.append(
                    Argument(f"_sums{i}", "memory", tuple(shape), carry.dtype, AddressSpace.GLOBAL, self.loc, SUMS)
                )
            counters = (counted("_tickets", self.workers),)
            arguments.append(Argument("_tickets", "memory", counters, dt.i32, AddressSpace.GLOBAL, self.loc, TICKETS))
        self.graph = replace(
            old,
            arguments=[*old.arguments, *arguments],
            constraints=constraints,
            subs={**old.subs, **{s: self.dims[s] for s in new if self.dims[s] is not DYNAMIC}},
            symbols=(*old.symbols, *new),
            index_dims=(*old.index_dims, self.worker),
            traced=old,
        )

    # --- numbers

    def size(self, d: ResolvedDim) -> Number:
        return d.extent if isinstance(d.extent, int) else self.add("size", (), {"expr": d.dim})

    def tiles(self, d: ResolvedDim) -> Number:
        return self.over_up(self.size(d), d.workgroup or 1)

    def steps(self) -> tuple[Number, Number]:
        """(steps of an output tile, at least one: a tile without trips is somebody's, too; trips of a step)."""
        trips = self.most(self.over_up(self.size(self.along), self.along.loop or 1), 1)
        each = self.plus(self.over(trips, MOST_STEPS), 1)
        if isinstance(trips, int) and isinstance(each, int):
            return -(-trips // each), each
        return self.over(self.plus(trips, self.minus(each, 1)), each), each

    def place(self) -> Number:
        """Where the workgroup is along the dimensions that stayed in the grid."""
        found: Number = 0
        for d in reversed(self.apart):
            found = self.plus(self.times(found, self.size(d)), self.add("tile_start", (), {"dim": d.dim}))
        return found

    def numbers(self, tile: Number, counts: Sequence[Number]) -> list[Number]:
        """A tile's number along each tiled dimension, in blocks of some tiles along the first, then on along the
        second."""
        if len(counts) == 1:
            return [tile]
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
        sizes = [d.workgroup or 1 for d in self.tiled[:2]]
        group: Number = first if self.swizzle is False else best_group(sizes, self.workers)
        per = self.times(second, group)
        inside, top = self.modulo(rest, per), self.times(self.over(rest, per), group)
        even = isinstance(first, int) and isinstance(group, int) and first % group == 0
        height = group if even else self.least(self.minus(first, top), group)
        return [self.plus(top, self.modulo(inside, height)), self.over(inside, height), *outer]

    # --- what a workgroup does

    def one_turn(
        self, deal: Deal, worker: Node, low: Number, high: Number, counts: Sequence[Number], trips: Number
    ) -> None:
        """One output tile, or what the workgroup has of it."""
        turn = self.add("tile_start", (), {"dim": self.turn})
        shared: Number = 0
        tile = self.plus(self.times(turn, self.workers), worker)
        begin: Number = 0
        end = deal.steps
        if deal.shares:
            whole = False if deal.rounds == 0 else self.below(turn, deal.rounds)
            shared = self.plus(self.over(low, deal.steps), self.minus(turn, deal.rounds))
            left = self.plus(self.times(deal.rounds, self.workers), shared)
            before = self.times(shared, deal.steps)
            tile = self.choose(whole, tile, left)
            begin = self.choose(whole, begin, self.most(self.minus(low, before), 0))
            end = self.choose(whole, end, self.least(self.minus(high, before), deal.steps))
        found = self.numbers(tile, counts)
        inner = self.region
        for d, number in zip(self.tiled, found):
            size = d.workgroup or 1
            start = self.node(self.times(number, size))
            region = Region(d.dim, loc=self.loc)
            attrs = {"dim": d.dim, "body": region, "bounds": (0, 1), "length": size}
            self.add("iterate", (start, self.node(self.plus(start, size))), attrs)
            self.region = region
        self.tile(deal, worker, shared, begin, end, trips)
        self.region = inner

    def tile(self, deal: Deal, worker: Node, shared: Number, begin: Number, end: Number, trips: Number) -> None:
        """The user's kernel for one tile, whose steps from `begin` to `end` are this workgroup's."""
        if not deal.shares:
            self.region.nodes += self.old.region.nodes
            return
        before, after = divided(self.old, self.loop)
        self.region.nodes += before
        carries = self.body.carries
        zeros = [self.zero(c) for c in carries]
        each = self.times(trips, self.along.loop or 1)
        bounds = [self.node(self.times(x, each)) for x in (begin, end)]
        attrs = {**self.loop.attrs, "bounds": (len(carries), len(carries) + 1), "aligned": True}
        loop = self.add("iterate", (*zeros, *bounds), attrs, same_as=self.loop)
        sums = [self.add("result", (loop,), {"position": i}) for i in range(len(carries))]
        has = self.minus(end, begin)
        all_of_it = self.both("eq", self.node(has), self.node(deal.steps))
        some_of_it = self.both("ne", self.node(has), self.node(deal.steps))
        with self.inside(Region(loc=self.loc)) as alone:
            self.finish(sums, after)
        self.add("when", (all_of_it,), {"body": alone})
        with self.inside(Region(loc=self.loc)) as together:
            self.exchange(deal, worker, shared, sums, after)
        self.add("when", (some_of_it,), {"body": together})

    def exchange(
        self, deal: Deal, worker: Node, shared: Number, sums: Sequence[Node], after: Sequence[Node]
    ) -> None:
        """Leave the sums, take the tile's ticket; the last to do so adds all parts and goes on."""
        place = self.place()
        slot = self.node(self.plus(worker, shared))
        there = (self.node(place),) if self.apart else ()
        for i, value in enumerate(sums):
            coords = (1, *((2,) if there else ()), *self.inside_tile(value.dims))
            attrs = {"memory": f"_sums{i}", "mapping": Placed(value.dims, coords), "elements_per_thread": None}
            self.add("write", (value, slot, *there), attrs)
        self.add("fence", (), {})
        counter = self.node(self.plus(self.times(place, self.workers), shared))
        at_tile = Placed((), (1,))
        ticket = self.add(
            "atomic_add", (self.whole(1), counter), {"memory": "_tickets", "mapping": at_tile, "per_workgroup": True}
        )
        step = self.times(shared, deal.steps)
        earliest = deal.run_at(self, step)
        latest = deal.run_at(self, self.minus(self.plus(step, deal.steps), 1))
        others = self.node(self.minus(latest, earliest))
        last = self.both("eq", ticket, others)
        with self.inside(Region(loc=self.loc)) as inner:
            self.add("fence", (), {})
            start = self.node(self.plus(earliest, shared))
            stop = self.plus(start, self.plus(others, 1))
            parts = Region(self.all, loc=self.loc)
            for i, carry in enumerate(self.body.carries):
                attrs = {**carry.attrs, "position": i}
                parts.carries.append(Node(self.number_of_new(), "carry", (), attrs, carry.type, carry.loc))
            with self.inside(parts):
                yields = []
                for i, carry in enumerate(parts.carries):
                    coords = (self.all, *((0,) if there else ()), *self.inside_tile(carry.dims))
                    mapping = Placed((self.all, *carry.dims), coords)
                    attrs = {"memory": f"_sums{i}", "mapping": mapping, "elements_per_thread": None}
                    part = self.add("read", there, attrs)
                    yields.append(self.both("add", carry, self.add("sum", (part,), {"dim": self.all})))
            parts.yields = tuple(yields)
            zeros = [self.zero(c) for c in parts.carries]
            count = len(zeros)
            attrs = {"dim": self.all, "body": parts, "bounds": (count, count + 1)}
            loop = self.add("iterate", (*zeros, start, self.node(stop)), attrs)
            self.finish([self.add("result", (loop,), {"position": i}) for i in range(count)], after)
            zero = self.whole(0)
            self.add("write", (zero, counter), {"memory": "_tickets", "mapping": at_tile, "elements_per_thread": None})
        self.add("when", (last,), {"body": inner})

    def inside_tile(self, dims: Iterable[Any]) -> tuple[Any, ...]:
        """Coordinates of a value's elements in an array of one tile."""
        sizes = {d.dim: d.workgroup or 1 for d in self.tiled}
        return tuple(sympy.Mod(d, sizes[d]) if d in sizes else d for d in dims)

    def finish(self, sums: Sequence[Node], after: Sequence[Node]) -> None:
        """What the user does with the loop's results, in nodes of its own."""
        made: dict[int, Node] = {}
        starts = self.loop.inputs[: len(sums)]
        totals: dict[int, Node] = {}
        for n in after:
            if n.op == "result" and n.inputs[0] is self.loop:
                i = n.attrs["position"]
                if i not in totals:
                    begin = made.get(starts[i].id, starts[i])
                    nothing = begin.op in ("fill", "constant") and begin.attrs["value"] == 0
                    totals[i] = sums[i] if nothing else self.both("add", begin, sums[i])
                made[n.id] = totals[i]
            else:
                self.region.nodes.append(self.copy(n, made))

    def copy(self, n: Node, made: dict[int, Node]) -> Node:
        """A node again, of the copies of its inputs."""
        attrs = n.attrs
        body = attrs.get("body")
        if body is not None:
            carries = [self.copy(x, made) for x in body.carries]
            inside = Region(body.dim, [self.copy(x, made) for x in body.nodes], carries, (), body.loc)
            inside.yields = tuple(made.get(x.id, x) for x in body.yields)
            attrs = {**attrs, "body": inside}
        new = Node(self.number_of_new(), n.op, tuple(made.get(x.id, x) for x in n.inputs), attrs, n.type, n.loc)
        made[n.id] = new
        return new


__all__ = ["Deal", "stream"]
