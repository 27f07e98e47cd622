"""Split-K in a cluster: the workgroups that have the parts of a tile's loop add their sums through shared memory.

In: a traced graph, the extents, how many parts. Out: a graph of the same language that says

    part = tile_start(_part)                          the launch's first axis: the parts of a tile are neighbours
    sums = iterate(K, from zero, start and stop of this part's trips)
    for M' in this workgroup's share of the tile's M:                                                    one trip
        what the user does with join_parts(sums), along M'

`join_parts` is where the cluster's workgroups meet: each leaves its sums in its shared memory, and adds all parts of
its own share of the tile in their order. One launch, no workspace, no counter, and the same bits on every run.

M' (`ShareConstraint`) counts the same elements as M: what the user does with the sums, reads of C and bias among it, is
the same nodes along M' (`_Shared.renamed`), whose accesses are mapped from M' to M. M is the first dimension of the
tile that parts divide evenly: rows of it stay as long in memory as they are.

What may be joined: what `split_k` cuts, where nothing but elementwise work and stores follows the loop, and where each
value that the loop carries has the dimension that is shared out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wavedsl.ir.dataflow.constraints import (
    ResolvedDim,
    ShareConstraint,
    WaveConstraint,
    WorkgroupConstraint,
)
from wavedsl.ir.dataflow.graph import Graph, Node, Region, loop_bounds
from wavedsl.ir.dataflow.graph import Mapping as Placed
from wavedsl.ir.dataflow.graph_verify import verify_graph
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.split_k import Cut, Split, cuts, divided, exits, loop_to_cut, refusal
from wavedsl.ir.symbols import evaluate, symbol

SHARE = "_share"
"""What the name of a dimension that counts shares begins with; the dimension that it stands for follows."""
PLAIN = frozenset(
    "fill constant scalar size index read write broadcast permute cast bitcast".split()
)
"""Operations that may follow the loop beside elementwise ones."""


def joined(graph: Graph, dims: Mapping[Any, Any], parts: int) -> Split:
    """The graph with its loop cut in `parts`, which the workgroups of a cluster add. Raises ConstraintError where that
    would change what it means, or where a tile has no dimension that parts divide."""
    leaving = exits(graph)
    if leaving:
        raise refusal(
            "the kernel may leave (wd.exit_if), but all of a cluster meet behind the loop", leaving[0],
            "cut the loop without a cluster along the parts",
        )  # fmt: skip
    loop = loop_to_cut(graph)
    cut = cuts(graph, dims)
    shared = _shared(graph, dims, loop, cut, parts)
    _check(graph, loop, shared)
    made = _Shared(graph, dims, cut, loop, parts, shared).made()
    verify_graph(made.graph, "joining the parts of its loop")
    return made


def _shared(
    graph: Graph, dims: Mapping[Any, Any], loop: Node, cut: Mapping[Any, ResolvedDim], parts: int
) -> ResolvedDim:  # fmt: skip
    """The dimension of the tile of which each workgroup gets a share: the first, in the order of the array that the
    result goes to, whose tile parts divide, also where waves share it."""
    carried = [set(c.dims) for c in loop.attrs["body"].carries]
    tiled = [d for d in cut.values() if d.axis is not None and d.dim not in graph.index_dims]
    held = [d for d in tiled if all(d.dim in c for c in carried)]
    stored = next((n for n in graph.region.nodes if n.op == "write"), None)
    order = list(graph.argument(stored.attrs["memory"]).dims) if stored is not None else []
    held.sort(key=lambda d: order.index(d.dim) if d.dim in order else len(order))
    waves = {c.dim: evaluate(c.tile, dims) for c in graph.constraints if isinstance(c, WaveConstraint)}
    for d in held:
        tile = d.workgroup or 1
        wave = waves.get(d.dim)
        count = tile // wave if isinstance(wave, int) else 1
        if tile % (parts * count) == 0:
            return d
    sizes = ", ".join(f"{d.dim}: {d.workgroup}" for d in held)
    raise refusal(
        f"no dimension of the tile that all carried values have ({sizes or 'there is none'}) is {parts} equal shares",
        loop, "tiles that the parts divide, for each of the waves that share them",
    )  # fmt: skip


def _check(graph: Graph, loop: Node, shared: ResolvedDim) -> None:
    """Raise ConstraintError for a kernel that does more behind its loop than compute element by element and store."""
    _, after = divided(graph, loop)
    why = "where each workgroup of the cluster has a share of the tile"
    for n in after:
        if n.op == "result" and n.inputs[0] is loop:
            continue
        if n.op not in PLAIN and ROWS[n.op].compute is None:
            raise refusal(
                f"{n.op} behind the loop over {loop.attrs['body'].dim}, {why} of {shared.dim}", n,
                "elementwise work and stores may follow; or cut the loop without a cluster along the parts",
            )  # fmt: skip
        if n.op == "write" and shared.dim not in n.inputs[0].dims:
            raise refusal(
                f"{n.attrs['memory']} is stored without {shared.dim} behind the loop, {why} of it", n,
                "cut the loop without a cluster along the parts",
            )  # fmt: skip
        strange = [d for d in getattr(n.type, "dims", ()) if d != shared.dim and shared.dim in d.free_symbols]
        if strange:
            raise refusal(f"{n.op} has {strange[0]} behind the loop, {why} of {shared.dim}", n, "split_k alone")


class _Shared(Cut):
    """One graph being rewritten."""

    def __init__(
        self, graph: Graph, dims: Mapping[Any, Any], cut: Mapping[Any, ResolvedDim], loop: Node, parts: int,
        shared: ResolvedDim,
    ):  # fmt: skip
        super().__init__(graph, dims, cut, loop, parts, False, ())
        self.dim, self.share = shared.dim, symbol(f"{SHARE}_{shared.dim}")
        self.tile = (shared.workgroup or 1) // parts
        del self.dims[self.all]
        self.dims[self.share] = self.dims[self.dim]
        self.constraints = [
            WorkgroupConstraint(self.part, 1, 0, loc=graph.loc),  # the first: neighbours in the launch
            *graph.constraints,
            ShareConstraint(self.share, self.tile, self.dim, loc=graph.loc),
        ]
        self.made_of: dict[int, Node] = {}
        """Node → the same along the share."""

    def made(self) -> Split:
        known: dict[Any, Any] = {self.part: self.parts}
        if isinstance(self.dims[self.share], int):
            known[self.share] = self.dims[self.share]
        self.graph = replace(
            self.old,
            constraints=self.constraints,
            subs={**self.old.subs, **known},
            symbols=(*self.old.symbols, self.part, self.share),
            index_dims=(*self.old.index_dims, self.part),
            traced=self.old,
        )
        before, after = divided(self.old, self.loop)
        self.region = Region(None, list(before), [], (), self.old.region.loc)
        part = self.add("tile_start", (), {"dim": self.part})
        count = len(self.body.carries)
        zeros = [self.zero(c) for c in self.body.carries]
        start, stop = self.bounds(part)
        attrs = {**self.loop.attrs, "bounds": (count, count + 1), "aligned": loop_bounds(self.loop) == (None, None)}
        if self.length:
            attrs["length"] = self.length
        sums = self.add("iterate", (*zeros, start, stop), attrs, same_as=self.loop)
        own = self.both("mul", part, self.whole(self.tile))
        first = self.both("add", self.add("tile_start", (), {"dim": self.dim}), own)
        end = self.both("add", first, self.whole(self.tile))
        with self.inside(Region(self.share, loc=self.loc)) as inside:
            mine = [self.add("result", (sums,), {"position": i}) for i in range(count)]
            totals = [self.add("join_parts", (x,), {"dim": self.dim, "share": self.share}) for x in mine]
            self.follow(totals, before, after)
        attrs = {"dim": self.share, "body": inside, "bounds": (0, 1), "length": self.tile}
        self.add("iterate", (first, end), attrs)
        return Split(replace(self.graph, region=self.region), self.dims, {})

    def follow(self, totals: Sequence[Node], before: Sequence[Node], after: Sequence[Node]) -> None:
        """What the user does with the loop's results, along the share: of the nodes in front of the loop those that are
        used behind it, then the others."""
        wanted = [n for n in after if ROWS[n.op].effect]
        starts = self.loop.inputs[: len(totals)]
        needed: set[int] = set()
        todo = [*wanted, *starts]
        while todo:
            n = todo.pop()
            if n.id not in needed and n is not self.loop:
                needed.add(n.id)
                todo += n.inputs
        early = {n.id for n in before}
        for n in self.old.region.nodes:
            if n is self.loop or n.id not in needed:
                continue
            if n.op == "result" and n.inputs[0] is self.loop:
                i = n.attrs["position"]
                begin = self.made_of.get(starts[i].id, starts[i])
                nothing = begin.op in ("fill", "constant") and begin.attrs["value"] == 0
                self.made_of[n.id] = totals[i] if nothing else self.both("add", begin, totals[i])
            else:
                self.renamed(n, n.id in early)

    def renamed(self, n: Node, early: bool) -> None:
        """A node along the share. One that has nothing of it, and is in front of the loop, stays where it is."""
        inputs = tuple(self.made_of.get(x.id, x) for x in n.inputs)
        attrs = self.attributes(n)
        if early and attrs is n.attrs and all(x is y for x, y in zip(inputs, n.inputs)):
            return
        kind = ROWS[n.op].rule([x.type for x in inputs], attrs, self.graph)  # type: ignore[misc]
        new = self.made_of[n.id] = Node(self.number_of_new(), n.op, inputs, attrs, kind, n.loc)
        self.region.nodes.append(new)

    def attributes(self, n: Node) -> dict[str, Any]:
        """A node's attributes along the share: dimensions by name, and where elements lie in an array."""
        if n.op == "index" and n.attrs["dim"] == self.dim:
            return {**n.attrs, "dim": self.share}
        if n.op in ("fill", "broadcast", "permute") and self.dim in n.attrs["dims"]:
            return {**n.attrs, "dims": self.in_shares(n.attrs["dims"])}
        if n.op not in ("read", "write"):
            return n.attrs
        mapping: Placed | None = n.attrs.get("mapping")
        if mapping is not None:
            coords = tuple(c if isinstance(c, int) else c.xreplace({self.dim: self.share}) for c in mapping.coords)
            changed = Placed(self.in_shares(mapping.dims), coords)
            return n.attrs if changed == mapping else {**n.attrs, "mapping": changed}
        dims = self.old.argument(n.attrs["memory"]).dims
        if self.dim not in dims:
            return n.attrs
        values = n.dims if n.op == "read" else n.inputs[0].dims
        return {**n.attrs, "mapping": Placed(self.in_shares(values), self.in_shares(dims))}

    def in_shares(self, dims: Sequence[Any]) -> tuple[Any, ...]:
        """Dimensions with the share in its place."""
        return tuple(self.share if d == self.dim else d for d in dims)


__all__ = ["SHARE", "joined"]
