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

What may be dealt is what `split_k` cuts, without ranges of the user's: their trips may differ between tiles. Which tile
a turn has is said by `turns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.constraints import ResolvedDim, TilingConstraint
from wavedsl.ir.dataflow.graph import Argument, Graph, Node, Region, loop_bounds
from wavedsl.ir.dataflow.graph import Mapping as Placed
from wavedsl.ir.dataflow.graph_edit import Edit, Number
from wavedsl.ir.dataflow.graph_verify import verify_graph
from wavedsl.ir.dataflow.split_k import PARTS, SUMS, TICKETS, Split, cuts, divided, loop_to_cut
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.grid.turns import MOST_TURNS, Turns, check_turns
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import DYNAMIC, AddressSpace, symbol

LEAST_STEPS = 2
"""Steps below which a workgroup's run is not worth a part of its own."""
MOST_STEPS = 1 << 20
"""Steps that a tile is divided into at most: numbers of steps of all tiles stay far below 2^31. A step is one trip,
where a tile has more of them as many as it takes."""


def stream(
    graph: Graph, dims: Mapping[Any, Any], workers: int, swizzle: bool | None = None, cluster: tuple[int, ...] = ()
) -> Split:
    """The graph with its loop's trips dealt to `workers` workgroups, for each place along its index dimensions; to
    clusters of them, whose workgroups have the same trips of tiles side by side. Raises ConstraintError where that
    would change what it means."""
    loop = loop_to_cut(graph)
    cut = cuts(graph, dims)
    _check(graph, loop, cut)
    found = _Stream(graph, dims, cut, loop, workers, swizzle, cluster).made()
    verify_graph(found.graph, "dealing its trips to workgroups")
    return found


def _check(graph: Graph, loop: Node, cut: Mapping[Any, ResolvedDim]) -> None:
    dim = loop.attrs["body"].dim
    if loop_bounds(loop) != (None, None):
        raise ConstraintError(
            f"the loop over {dim} has a range of its own, which may differ between tiles", loop.loc, "use split_k"
        )
    check_turns(graph, cut, "use split_k")


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

    def of_a_tile(self, e: Edit) -> int:
        """How many workgroups share the last tile that `busiest` comes to, and one or two less or more the others; at
        least two where that is known at launch only."""
        own, steps = self.busiest(e), self.steps
        if not self.known or not isinstance(steps, int):
            return 2
        tile = (self._start(e, own + 1) - 1) // steps
        first, last = (self.run_at(e, x) for x in (tile * steps, (tile + 1) * steps - 1))
        assert isinstance(first, int) and isinstance(last, int)
        return last - first + 1

    def busiest(self, e: Edit) -> int:
        """The first of the workgroups that have most to do: parts of two tiles, or one, and most steps. (0, whose run
        begins with a tile, has a part of one tile at most.) 0 where that is known at launch only."""
        sharers, steps = self.sharers, self.steps
        if not self.known or not isinstance(sharers, int) or not isinstance(steps, int):
            return 0

        def has(run: int) -> tuple[bool, int, int]:
            low, high = self._start(e, run), self._start(e, run + 1)
            return high - low != steps, (high - 1) // steps - low // steps, high - low

        return max(range(sharers), key=has)

    @property
    def known(self) -> bool:
        """Whether the runs are known before a launch."""
        return all(isinstance(x, int) for x in (self.steps, self.sharers, self.q, self.r))

    def _start(self, e: Edit, run: int) -> int:
        found = self.start(e, run)
        assert isinstance(found, int)
        return found

    def describe(self, cluster: int = 1) -> str:
        """One line for reports. `cluster`: workgroups that take their trips together."""
        who = f"{self.workers} workgroups" if cluster == 1 else f"{self.workers} cluster(s) of {cluster} workgroups"
        if not isinstance(self.rounds, int) or not isinstance(self.left, int):
            return f"{who}, rounds of whole tiles, then equal runs of what is left over"
        whole = f"{self.rounds} rounds of whole tiles"
        if not self.left:
            return f"{who}, {whole}"
        return f"{who}, {whole}, then {self.sharers} runs of the {self.left} tiles of {self.steps} steps left over"

    @property
    def leaves(self) -> bool:
        """Whether there may be tiles left over."""
        return self.left != 0

    @property
    def shares(self) -> bool:
        """Whether several workgroups may have parts of one of these: not where each run is a tile."""
        return self.leaves and (not self.known or self.q != self.steps)

    @property
    def slots(self) -> int:
        """Parts that have a place each, at most."""
        if isinstance(self.sharers, int) and isinstance(self.left, int):
            return self.sharers + self.left - 1
        return 2 * self.workers - 1


class _Stream(Turns):
    """One graph being rewritten."""

    def __init__(
        self, graph: Graph, dims: Mapping[Any, Any], cut: Mapping[Any, ResolvedDim], loop: Node, workers: int,
        swizzle: bool | None, cluster: tuple[int, ...],
    ):  # fmt: skip
        super().__init__(graph, dims, cut, workers, swizzle, loop.loc, cluster)
        self.loop = loop
        self.body: Region = loop.attrs["body"]
        self.along = cut[self.body.dim]
        self.all = symbol(PARTS)
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
        if deal.leaves:
            low, high = deal.start(self, worker), deal.start(self, self.plus(worker, 1))
            touched = self.minus(self.over(self.minus(high, 1), steps), self.over(low, steps))
            own = self.choose(self.below(low, high), self.plus(touched, 1), 0)
        turns = Region(self.turn, loc=self.loc)
        with self.inside(turns):
            self.one_turn(deal, worker, low, high, counts, trips)
        end = self.node(self.plus(deal.rounds, own))
        begin = self.whole(0)
        self.add("iterate", (begin, end), {"dim": self.turn, "body": turns, "bounds": (0, 1)})
        note = deal.describe(prod(size for _, size in self.together.values()))
        return Split(replace(self.graph, region=self.region), self.dims, self.shapes, note)

    def declare(self, deal: Deal, places: int) -> None:
        """The new dimensions, constraints and hidden arguments: `_sums` [slots, places, a tile], `_tickets` [places ·
        workers]. Where a run-time extent decides how many places there are along the dimensions that stay in the grid,
        the launch works it out."""
        old = self.old
        taken = {d.dim: d for d in self.tiled}
        constraints = self.turn_constraints()
        self.dims |= {self.worker: self.workers, self.turn: MOST_TURNS}
        members = [member for member, _ in self.together.values()]
        new = [self.worker, self.turn, *members]
        arguments: list[Argument] = []
        if deal.shares:
            constraints.append(TilingConstraint(self.all, 1, loc=old.loc))
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
            index_dims=(*old.index_dims, self.worker, *members),
            traced=old,
        )

    # --- numbers

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
        if deal.leaves:
            whole = False if deal.rounds == 0 else self.below(turn, deal.rounds)
            shared = self.plus(self.over(low, deal.steps), self.minus(turn, deal.rounds))
            left = self.plus(self.times(deal.rounds, self.workers), shared)
            before = self.times(shared, deal.steps)
            tile = self.choose(whole, tile, left)
            begin = self.choose(whole, begin, self.most(self.minus(low, before), 0))
            end = self.choose(whole, end, self.least(self.minus(high, before), deal.steps))
        with self.placed(tile, counts):
            self.tile(deal, worker, shared, begin, end, trips)

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
        self.add("fence", (), {"order": "release"})
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
            self.add("fence", (), {"order": "acquire"})
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
        self.add("when", (last,), {"body": inner, "one_of": deal.of_a_tile(self), "busiest": deal.busiest(self)})

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
