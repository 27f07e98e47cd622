"""Split-K: a kernel whose result is one loop of sums, its loop cut in parts that run on workgroups of their own.

In: a traced graph, the extents, how many parts. Out: a graph of the same language that says

    part = tile_start(_part)                       a grid dimension of as many workgroups as there are parts
    sums = iterate(K, from zero, start and stop of this part's trips)
    write(sums, _sums[part]); fence
    ticket = atomic_add(1, _tickets[tile])
    when ticket is the last:
        fence
        sums = iterate(_parts, from what the user's loop starts from: sums + _sums[parts])
        (of two parts: sums + _sums[other])
        what the user does with sums
        write(0, _tickets[tile])

Nobody waits for another, so nothing need run at the same time; parts are added in their order, so the bits are the
same whoever comes last. `_sums` and `_tickets` are arguments that the launch brings (`Argument.hidden`); tickets are 0
before a launch and after it. A part may have no trip: its sums are zeros.

Behind `wd.exit_if` all of this stands under its condition: all parts of a tile decide alike (`exits`), so that a tile
whose parts leave has no ticket taken.

What may be cut (`sums_of`): each carried value enters its next value as an addend only (mma's accumulator, `+`, the
left of `-`, fma's addend, through inner loops and conditions too), and nothing is stored on the way. What does not
depend on the sums and is not needed by the loop moves to the end as well: the last workgroup alone reads C, bias and
scales.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import ceil
from typing import Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.constraints import ResolvedDim, TilingConstraint, WorkgroupConstraint
from wavedsl.ir.dataflow.graph import (
    PART,
    PRODUCTS,
    REGIONS,
    Argument,
    Graph,
    Node,
    Region,
    initial_values,
    loop_bounds,
    next_values,
    region_nodes,
)
from wavedsl.ir.dataflow.graph import Mapping as Placed
from wavedsl.ir.dataflow.graph_edit import Edit
from wavedsl.ir.dataflow.graph_verify import verify_graph
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import DYNAMIC, AddressSpace, evaluate, symbol

SUMS, TICKETS = "sums", "tickets"
"""`Argument.hidden` of the parts' sums and of the counters."""
PARTS = "_parts"
"""The dimension of parts, as the last workgroup goes over them."""
SAID = ("device_print", "device_assert")
"""Effects that no array shows."""

ADDENDS: dict[str, tuple[int, ...]] = {"mma": (2,), "scaled_mma": (4,), "add": (0, 1), "sub": (0,), "fma": (2,)}
"""Operation → which of its inputs it adds something to."""
LEGAL = "a loop can be cut where every carried value is a sum: return wd.mma(x, y, acc), acc + x or acc - x"


@dataclass(frozen=True)
class Split:
    """A graph after the pass. `dims` has the extents of its dimensions; `shapes` those of hidden arrays that launches
    work out, by symbol."""

    graph: Graph
    dims: Mapping[Any, Any]
    shapes: Mapping[Any, Any] = field(default_factory=dict)
    note: str = ""
    """Who has what, for reports."""


# ------------------------------------------------------------------------------------------------- what may be cut


def loop_to_cut(graph: Graph) -> Node:
    """The loop whose trips workgroups may share. Raises ConstraintError with the line that stands against it."""
    loops = [n for n in graph.region.nodes if n.op == "iterate" and n.attrs["body"].carries]
    if not loops:
        inside = next((n for n in graph.loops() if n.attrs["body"].carries), None)
        if inside is not None:
            raise refusal(
                f"the loop over {inside.attrs['body'].dim} stands inside of a loop or a condition", inside,
                "cut loops that stand in the kernel's own body; split_k also cuts those behind wd.exit_if",
            )  # fmt: skip
        raise refusal("the kernel has no loop that carries a sum", graph, LEGAL)
    with_products = [n for n in loops if any(x.op in PRODUCTS for x in region_nodes(n.attrs["body"]))]
    loop = with_products[0] if len(with_products) == 1 else loops[0] if len(loops) == 1 else None
    if loop is None:
        raise refusal(
            f"the kernel has {len(with_products) or len(loops)} loops that could be cut", (with_products or loops)[1],
            "cut kernels with one loop, or one that has products",
        )  # fmt: skip
    sums_of(loop)
    for n in graph.region.nodes:
        if n is loop:
            break
        effect = next((x for x in _with_inside(n) if _stores(x)), None)
        if effect is not None:
            raise refusal(
                f"{_what(effect)} before the loop over {loop.attrs['body'].dim}, where every part would do it", effect,
                "store after the loop",
            )  # fmt: skip
    return loop


def sums_of(loop: Node) -> None:
    """Raises ConstraintError where a loop does more with what it carries than add to it, or stores."""
    body: Region = loop.attrs["body"]
    for n in region_nodes(body):
        if _stores(n):
            raise refusal(
                f"{_what(n)} inside the loop over {body.dim}", n, "store after the loop",
            )  # fmt: skip
    found = _walk(body, {c.id: c for c in body.carries}, body.dim)
    _handed_on(body, body.yields, found, loop)


def _walk(region: Region, sums: dict[int, Node], dim: Any) -> dict[int, Node]:
    """`sums` (id of a value → the carried value that it is a sum of) with all such values of a region."""
    found = dict(sums)
    rows: dict[int, dict[int, Node]] = {}
    for n in region.nodes:
        own = initial_values(n) if n.op in REGIONS else ()
        for place, x in enumerate(n.inputs):
            if x.id in found and n.op not in REGIONS and place not in ADDENDS.get(n.op, ()):
                raise _not_a_sum(found[x.id], n, dim)
        if n.op == "result" and n.inputs[0].id in rows:
            carried = rows[n.inputs[0].id].get(n.attrs["position"])
            if carried is not None:
                found[n.id] = carried
            continue
        inside = n.attrs.get("body")
        if inside is not None:
            # A sum may go into an inner region as one of its carried values and nowhere else.
            first = len(n.inputs) - len(own) if n.op == "when" else 0
            others = [x for i, x in enumerate(n.inputs) if not first <= i < first + len(own)]
            captured = [x for y in region_nodes(inside) for x in y.inputs]
            for x in (*others, *captured, *inside.yields):
                if x.id in found:
                    raise _not_a_sum(found[x.id], n, dim)
            start = {c.id: found[x.id] for c, x in zip(inside.carries, own) if x.id in found}
            if not start:
                continue
            inner = _walk(inside, start, dim)
            if n.op == "repeat" and inside.yields[-1].id in inner:
                raise _not_a_sum(inner[inside.yields[-1].id], n, dim)
            for c, x in zip(inside.carries, next_values(n)):
                if inner.get(x.id) is not start.get(c.id):
                    raise _not_a_sum(start.get(c.id) or inner[x.id], x, dim)
            rows[n.id] = {i: start[c.id] for i, c in enumerate(inside.carries) if c.id in start}
            continue
        used = [found[x.id] for x in n.inputs if x.id in found]
        if len(used) > 1:
            raise _not_a_sum(used[0], n, dim)
        if used:
            found[n.id] = used[0]
    return found


def _handed_on(body: Region, values: Sequence[Node], found: Mapping[int, Node], loop: Node) -> None:
    for carry, value in zip(body.carries, values):
        if found.get(value.id) is not carry:
            where = value if value in body.nodes else loop
            raise refusal(
                f"the loop over {body.dim} carries `{carry.attrs['name']}`, and each trip replaces it instead of "
                "adding to it", where, LEGAL,
            )  # fmt: skip


def _not_a_sum(carry: Node, user: Node, dim: Any) -> ConstraintError:
    what = "a condition or an inner loop" if user.op in REGIONS else user.op
    return refusal(
        f"the loop over {dim} carries `{carry.attrs['name']}`, which enters {what}: what parts of the loop have done "
        "of that cannot be put together", user, LEGAL,
    )  # fmt: skip


def refusal(why: str, at: Node | Graph, hint: str) -> ConstraintError:
    return ConstraintError(why, at.loc, hint)


def _stores(n: Node) -> bool:
    return ROWS[n.op].effect and n.op not in REGIONS and n.op not in SAID


def _what(n: Node) -> str:
    return f"{n.attrs['memory']} is written" if "memory" in n.attrs else f"{n.op} stands"


def _with_inside(n: Node) -> Iterable[Node]:
    yield n
    if "body" in n.attrs:
        yield from region_nodes(n.attrs["body"])


# ------------------------------------------------------------------------------------------------- cutting it


def cuts(graph: Graph, dims: Mapping[Any, Any]) -> dict[Any, ResolvedDim]:
    """The dimensions of the grid, in order of its axes, then those of loops. Raises ConstraintError for a tile without
    a size. (`resolve_constraints` says all, of waves too, and computes with sympy for that.)"""
    found: dict[Any, ResolvedDim] = {}
    grid = [c for c in graph.constraints if isinstance(c, WorkgroupConstraint)]
    for c in sorted(grid, key=lambda c: c.axis):
        found[c.dim] = ResolvedDim(c.dim, dims.get(c.dim, DYNAMIC), workgroup=_tile(c, dims), axis=c.axis, loc=c.loc)
    for t in graph.constraints:
        if isinstance(t, TilingConstraint):
            found[t.dim] = ResolvedDim(t.dim, dims.get(t.dim, DYNAMIC), loop=_tile(t, dims), loc=t.loc)
    return found


def _tile(c: WorkgroupConstraint | TilingConstraint, dims: Mapping[Any, Any]) -> int:
    size = evaluate(c.tile, dims)
    if isinstance(size, int) and size > 0:
        return size
    raise ConstraintError(f"{c}: the tile {c.tile} is {size}", c.loc, "a tile is a whole number from 1 on")


def grid_tiles(found: Mapping[Any, ResolvedDim]) -> int | None:
    """Workgroups of the grid; None where a run-time extent decides."""
    total = 1
    for d in found.values():
        if d.axis is None:
            continue
        if not isinstance(d.extent, int):
            return None
        total *= -(-d.extent // (d.workgroup or 1))
    return total


def divided(graph: Graph, loop: Node) -> tuple[list[Node], list[Node]]:
    """(what the loop needs, everything else but the loop) of the kernel's own body, in program order."""
    needed: set[int] = set()
    body: Region = loop.attrs["body"]
    todo: list[Node] = [x for x in loop_bounds(loop) if x is not None]
    todo += [x for y in region_nodes(body) for x in y.inputs] + list(body.yields)
    while todo:
        x = todo.pop()
        if x.id in needed:
            continue
        needed.add(x.id)
        todo += x.inputs
        if "body" in x.attrs:
            todo += [y for z in region_nodes(x.attrs["body"]) for y in z.inputs]
    before = [n for n in graph.region.nodes if n.id in needed]
    kept = {n.id for n in before}
    return before, [n for n in graph.region.nodes if n.id not in kept and n is not loop]


def split(
    graph: Graph, dims: Mapping[Any, Any], parts: int, keeps: bool = True, cluster: Sequence[int] = ()
) -> Split:
    """The graph with its loop cut in `parts`. `keeps`: of two parts the last workgroup adds the other's sums to its
    own, which it still has. `cluster`: workgroups of a cluster along the grid's axes, where the user asks for some.
    Raises ConstraintError where that would change what it means."""
    leaving = exits(graph)
    inside = replace(graph, region=leaving[-1].attrs["body"]) if leaving else graph
    loop = loop_to_cut(inside)
    found = Cut(inside, dims, cuts(graph, dims), loop, parts, keeps, cluster).made()
    if leaving:
        region = found.graph.region
        around_each = [graph.region, *(x.attrs["body"] for x in leaving)]
        for around, n in zip(around_each[len(leaving) - 1 :: -1], leaving[::-1]):
            leaves = Node(n.id, n.op, n.inputs, {**n.attrs, "body": region}, n.type, n.loc)
            region = Region(None, [*around.nodes[:-1], leaves], [], (), around.loc)
        found = replace(found, graph=replace(found.graph, region=region, traced=graph))
    verify_graph(found.graph, "cutting its loop in parts")
    return found


def exits(graph: Graph) -> list[Node]:
    """The conditions around everything that follows, outermost first, as `wd.exit_if` leaves them. All parts of a tile
    must decide alike, or a ticket would miss some: raises ConstraintError where a condition could tell them apart, or
    where something in front of one would happen once per part."""
    found: list[Node] = []
    nodes = graph.region.nodes
    while nodes and nodes[-1].op == "when" and not nodes[-1].attrs["body"].carries:
        if any(n.op == "iterate" and n.attrs["body"].carries for n in nodes):
            break  # the condition stands behind the loop
        found.append(nodes[-1])
        nodes = nodes[-1].attrs["body"].nodes
    written = {n.attrs["memory"] for n in graph.all_nodes() if _stores(n) and "memory" in n.attrs}
    around = [graph.region, *(n.attrs["body"] for n in found[:-1])] if found else []
    for region in around:
        for n in region.nodes[:-1]:
            for x in _with_inside(n):
                if ROWS[x.op].effect and x.op not in REGIONS:
                    raise refusal(f"{_what(x)} before wd.exit_if, where every part would do it", x, "move it behind")
                if x.attrs.get("memory") in written:
                    raise refusal(
                        f"{x.attrs['memory']} is read before wd.exit_if and written by the kernel: parts of one tile "
                        "could decide otherwise", x, "decide by what the kernel does not write",
                    )  # fmt: skip
    return found


class Cut(Edit):
    """One graph being rewritten. Nodes that stay as they are belong to both graphs."""

    def __init__(
        self, graph: Graph, dims: Mapping[Any, Any], cut: Mapping[Any, ResolvedDim], loop: Node, parts: int,
        keeps: bool, cluster: Sequence[int],
    ):  # fmt: skip
        super().__init__(graph, loop.loc)
        self.loop, self.parts, self.keeps = loop, parts, keeps and parts == 2
        self.dims = dict(dims)
        self.body: Region = loop.attrs["body"]
        self.arguments: list[Argument] = []
        self.length = 0
        """Elements that each part goes over, where that is the same known number for all; else 0."""
        self.shapes: dict[Any, Any] = {}
        self.grid = [d for d in cut.values() if d.axis is not None]
        self.along = cut[self.body.dim]
        self.past: dict[Any, int] = {}
        """Dimension → tiles past its end that workgroups may have: those of a cluster that run-time extents do not fill
        work on nothing, but have places for their sums and a counter like any other."""
        for axis, size in enumerate(cluster):
            own = [d for d in self.grid if d.axis == axis]
            if any(not isinstance(d.extent, int) for d in own):
                self.past |= {d.dim: size - 1 for d in own}
        axes = {d.axis for d in self.grid}
        axis = 2 if 2 not in axes or 1 in axes else 1
        self.part, self.all = symbol(PART), symbol(PARTS)
        self.dims |= {self.part: parts, self.all: parts}
        self.constraints = [
            *graph.constraints,
            WorkgroupConstraint(self.part, 1, axis, loc=graph.loc),
            TilingConstraint(self.all, 1, loc=graph.loc),
        ]

    def made(self) -> Split:
        carries = self.body.carries
        names = [f"_sums{i}" for i in range(len(carries))]
        lacking = [[d for d in self.grid if d.dim not in c.dims] for c in carries]
        for name, carry, rest in zip(names, carries, lacking):
            self.argument(name, SUMS, carry.dtype, carry.dims, rest)
        self.argument("_tickets", TICKETS, dt.i32, (), self.grid)
        self.graph = replace(
            self.old,
            arguments=[*self.old.arguments, *self.arguments],
            constraints=self.constraints,
            subs={**self.old.subs, self.part: self.parts, self.all: self.parts},
            symbols=(*self.old.symbols, self.part, self.all),
            index_dims=(*self.old.index_dims, self.part),
            traced=self.old,
        )
        before, after = divided(self.old, self.loop)
        self.region = Region(None, list(before), [], (), self.old.region.loc)
        part = self.add("tile_start", (), {"dim": self.part})
        zeros = [self.zero(c) for c in carries]
        start, stop = self.bounds(part)
        count = len(carries)
        attrs = {**self.loop.attrs, "bounds": (count, count + 1), "aligned": loop_bounds(self.loop) == (None, None)}
        if self.length:
            attrs["length"] = self.length
        sums = self.add("iterate", (*zeros, start, stop), attrs, same_as=self.loop)
        for i, name in enumerate(names):
            value = self.add("result", (sums,), {"position": i})
            inputs = (value, part, *((self.number(lacking[i]),) if lacking[i] else ()))
            mapping = Placed(carries[i].dims, (1, *((2,) if lacking[i] else ()), *carries[i].dims))
            self.add("write", inputs, {"memory": name, "mapping": mapping, "elements_per_thread": None})
        self.add("fence", (), {"order": "release"})
        tile = self.number(self.grid)
        at_tile = Placed((), (1,))
        ticket = self.add(
            "atomic_add", (self.whole(1), tile), {"memory": "_tickets", "mapping": at_tile, "per_workgroup": True}
        )
        last = self.add("eq", (ticket, self.whole(self.parts - 1)), {})
        outer = self.region
        inner = self.region = Region(loc=self.loop.loc)
        self.add("fence", (), {"order": "acquire"})
        self.finish(names, lacking, [self.add("result", (sums,), {"position": i}) for i in range(count)], part, after)
        nothing = self.whole(0)
        self.add("write", (nothing, tile), {"memory": "_tickets", "mapping": at_tile, "elements_per_thread": None})
        self.region = outer
        self.add("when", (last,), {"body": inner, "one_of": self.parts})
        return Split(replace(self.graph, region=outer), self.dims, self.shapes)

    def argument(
        self, name: str, hidden: str, dtype: dt.DType, dims: Sequence[Any], over: Sequence[ResolvedDim]
    ) -> None:
        """A hidden array: [parts, tiles of the grid dimensions `over`, dims], or counters [tiles]."""
        axes: list[Any] = [self.all] if hidden == SUMS else []
        if over or hidden == TICKETS:
            count: Any = 1
            for d in over:
                tile, past = d.workgroup or 1, self.past.get(d.dim, 0)
                tiles = -(-d.extent // tile) if isinstance(d.extent, int) else sympy.ceiling(d.dim / tile)
                count = count * (tiles + past)
            own = symbol(f"{name}_tiles")
            self.dims[own] = count if isinstance(count, int) else _dynamic(over)
            self.shapes[own] = count
            axes.append(own)
        loc = self.loop.loc
        self.arguments.append(
            Argument(name, "memory", (*axes, *dims), dtype, AddressSpace.GLOBAL, loc, hidden)
        )

    def bounds(self, part: Node) -> tuple[Node, Node]:
        """First element and end of this part's trips: equal counts of them, fewer in the last parts."""
        d = self.along
        tile = d.loop or 1
        low, high = loop_bounds(self.loop)
        if low is None and high is None and isinstance(d.extent, int):
            known = ceil(d.extent / tile)
            per = ceil(known / self.parts) * tile
            if known % self.parts == 0:
                self.length = per
            start = self.add("mul", (part, self.whole(per)), {})
            return start, self.add("add", (start, self.whole(per)), {})
        size = self.whole(d.extent) if isinstance(d.extent, int) else self.add("size", (), {"expr": self.body.dim})
        end = size if high is None else self.both("minimum", high, size)
        ends = self.both("floordiv", self.both("add", end, self.whole(tile - 1)), self.whole(tile))
        trips = ends
        if low is not None:
            low = self.both("maximum", low, self.whole(0))
            trips = self.both("sub", ends, self.both("floordiv", low, self.whole(tile)))
            trips = self.add("where", (self.both("gt", end, low), trips, self.whole(0)), {})
        per_part = self.both("floordiv", self.both("add", trips, self.whole(self.parts - 1)), self.whole(self.parts))
        per_part = self.both("mul", self.both("maximum", per_part, self.whole(0)), self.whole(tile))
        start = self.both("mul", part, per_part)
        if low is not None:
            first = self.both("mul", self.both("floordiv", low, self.whole(tile)), self.whole(tile))
            start = self.both("add", first, start)
        return start, self.both("minimum", self.both("add", start, per_part), end)

    def number(self, over: Sequence[ResolvedDim]) -> Node:
        """Which of the tiles of some grid dimensions the workgroup has, the first dimension fastest."""
        found: Node | None = None
        for d in reversed(over):
            tile = d.workgroup or 1
            own = self.add("tile_start", (), {"dim": d.dim})
            if tile > 1:
                own = self.both("floordiv", own, self.whole(tile))
            if found is not None:
                own = self.both("add", self.both("mul", found, self.count(d)), own)
            found = own
        return self.whole(0) if found is None else found

    def count(self, d: ResolvedDim) -> Node:
        tile, past = d.workgroup or 1, self.past.get(d.dim, 0)
        if isinstance(d.extent, int):
            return self.whole(-(-d.extent // tile) + past)
        size = self.add("size", (), {"expr": d.dim})
        return self.both("floordiv", self.both("add", size, self.whole(tile * (past + 1) - 1)), self.whole(tile))

    def finish(
        self, names: Sequence[str], lacking: Sequence[Sequence[ResolvedDim]], own: Sequence[Node], part: Node,
        after: Sequence[Node],
    ) -> None:  # fmt: skip
        """What the last workgroup does: the nodes that the sums start from, the sum of the parts, what comes after."""
        made: dict[int, Node] = {}
        starts = self.loop.inputs[: len(names)]
        wanted = {x.id for x in starts}
        todo = [*starts]
        while todo:
            for x in todo.pop().inputs:
                if x.id not in wanted:
                    wanted.add(x.id)
                    todo.append(x)
        early = [n for n in after if n.id in wanted]
        for n in early:
            self.region.nodes.append(n)
        places = [self.number(rest) if rest else None for rest in lacking]
        totals = self.pair(names, places, own, part) if self.keeps else self.row(names, places)
        for n in after:
            if n in early:
                continue
            if n.op in SAID:
                inputs = tuple(made.get(x.id, x) for x in n.inputs)
                attrs = {**n.attrs, "after_parts": True}
                self.region.nodes.append(Node(n.id, n.op, inputs, attrs, n.type, n.loc))
            elif n.op == "result" and n.inputs[0] is self.loop:
                made[n.id] = totals[n.attrs["position"]]
            else:
                self.region.nodes.append(_with(n, made))

    def pair(
        self, names: Sequence[str], places: Sequence[Node | None], own: Sequence[Node], part: Node
    ) -> list[Node]:  # fmt: skip
        """The sums of two parts: the workgroup's own, which it still has, and those of the other. Which of them is the
        first changes no bit."""
        other = self.both("sub", self.whole(1), part)
        totals = []
        for name, carry, place, mine, start in zip(names, self.body.carries, places, own, self.loop.inputs):
            coords = (0, *(() if place is None else (1,)), *carry.dims)
            attrs = {"memory": name, "mapping": Placed(carry.dims, coords), "elements_per_thread": None}
            theirs = self.add("read", (other,) if place is None else (other, place), attrs)
            both = self.both("add", mine, theirs)
            nothing = start.op in ("fill", "constant") and start.attrs["value"] == 0
            totals.append(both if nothing else self.both("add", start, both))
        return totals

    def row(self, names: Sequence[str], places: Sequence[Node | None]) -> list[Node]:
        """The sums of all parts, read one after the other."""
        starts = self.loop.inputs[: len(names)]
        body = Region(self.all, [], [], (), self.loop.loc)
        for i, carry in enumerate(self.body.carries):
            attrs = {**carry.attrs, "position": i}
            body.carries.append(Node(self.number_of_new(), "carry", (), attrs, carry.type, carry.loc))
        outer, self.region = self.region, body
        yields = []
        for i, (name, carry, place) in enumerate(zip(names, self.body.carries, places)):
            dims = (self.all, *carry.dims)
            coords = (self.all, *(() if place is None else (0,)), *carry.dims)
            attrs = {"memory": name, "mapping": Placed(dims, coords), "elements_per_thread": None}
            if place is None:
                attrs["mapping"] = None
            part = self.add("read", () if place is None else (place,), attrs)
            yields.append(self.both("add", body.carries[i], self.add("sum", (part,), {"dim": self.all})))
        body.yields = tuple(yields)
        self.region = outer
        sums = self.add("iterate", tuple(starts), {"dim": self.all, "body": body})
        return [self.add("result", (sums,), {"position": i}) for i in range(len(names))]


def _dynamic(over: Sequence[ResolvedDim]) -> Any:
    return next(d.extent for d in over if not isinstance(d.extent, int))


def _with(n: Node, made: dict[int, Node]) -> Node:
    """The node, or a copy of it where it uses what was made anew."""
    attrs = n.attrs
    body = attrs.get("body")
    if body is not None:
        inside = Region(body.dim, [_with(x, made) for x in body.nodes], body.carries, (), body.loc)
        inside.yields = tuple(made.get(x.id, x) for x in body.yields)
        if any(x is not y for x, y in zip((*inside.nodes, *inside.yields), (*body.nodes, *body.yields))):
            attrs = {**attrs, "body": inside}
    inputs = tuple(made.get(x.id, x) for x in n.inputs)
    if attrs is n.attrs and all(x is y for x, y in zip(inputs, n.inputs)):
        return n
    new = made[n.id] = Node(n.id, n.op, inputs, attrs, n.type, n.loc)
    return new


__all__ = [
    "ADDENDS",
    "SAID",
    "SUMS",
    "TICKETS",
    "Cut",
    "Split",
    "cuts",
    "divided",
    "exits",
    "grid_tiles",
    "loop_to_cut",
    "refusal",
    "split",
    "sums_of",
]
