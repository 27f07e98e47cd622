"""How a kernel whose products are asynchronous gets its operands: who copies, how, how far ahead.

In: the kernel's partition and layouts, its arrays, what the user fixed. Out: a `Strategy` with the reason for every
choice, read by the lowering and shown by reports. Nothing here knows what a kernel computes: it looks at the reads that
matrix instructions take from shared memory, at the loops they stand in, and at the chip's limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import prod

from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.choices import Choices
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import PART, PRODUCTS, Graph, Node, ValueType, loop_bounds
from wavedsl.ir.dataflow.views import is_tile, placement
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.errors import ConstraintError, NotHandedOut
from wavedsl.ir.grid import cluster_sharing
from wavedsl.ir.grid.cluster_shape import ONE, ClusterShape
from wavedsl.ir.grid.cluster_sharing import AXES, has_members, loop_apart, parts_together
from wavedsl.ir.grid.tile_order import TileOrder, best_group
from wavedsl.ir.grid.uneven_tiles import Work, uneven
from wavedsl.ir.inference.mma_tiles import MOST_REGISTERS, PRODUCER_REGISTERS, REGISTER_FILE, REGISTER_STEP
from wavedsl.ir.layouts.fragment import register_count
from wavedsl.ir.lower.exchange import SCRATCH
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.tile_ends import may_straddle
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.staging.copy_problems import (
    bulk_problem,
    copies_under,
    fetch_problem,
    fetchable,
    threads_problem,
    walk_problem,
)
from wavedsl.ir.staging.gathered_rows import gathered_rows
from wavedsl.ir.staging.memory_depth import tile_bytes
from wavedsl.ir.staging.plan_reads import product_clocks, wants_shared
from wavedsl.ir.staging.staging import plan_matrix
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import VECTOR_BYTES, Target

MOST_STAGES = 8
"""Slots beyond which a ring does not grow, unless its tiles are small (`ring_plans._most_stages`): eight tiles ahead
cover any latency of memory."""
MOST_CLUSTER = 8
"""Workgroups of a cluster that every chip of the kind can hold."""


@dataclass
class Strategy:
    """`bulk`: tensor-map copies into rings; `specialize`: by a warpgroup of its own. `outlets`: writes that leave
    through shared memory. `registers`: per thread of the copying and of the computing waves. `why`: choice → reason."""

    bulk: bool = False
    specialize: bool = False
    stages: int = 1
    shape: ClusterShape = ONE
    """Workgroups of a cluster."""
    teams: int = 1
    """Groups of computing waves that take output tiles in turn."""
    threaded: bool = False
    """Whether all threads of the copying warpgroup copy, beside the one that starts bulk copies."""
    conditional: bool = False
    """Whether a condition says if a tile is computed."""
    outlets: int = 0
    overlapped: bool = False
    """Whether products of neighbouring trips run together (`product_stages`)."""
    turns: bool = False
    """Whether two warpgroups start theirs in turn."""
    ahead: bool = False
    """Whether register operands are made while the instructions before them run (`operands_ahead`)."""
    order: TileOrder | None = None
    registers: tuple[int, int] = (0, 0)
    why: dict[str, str] = field(default_factory=dict)

    @property
    def cluster(self) -> int:
        """How many workgroups a cluster has."""
        return self.shape.count

    def lines(self) -> list[str]:
        """One line per choice."""
        who = "all threads of the copying warpgroup" if self.threaded else "bulk copies by one thread"
        out = [f"copies: {who if self.bulk else 'all threads'}"]
        out.append(f"roles: {'one copying warpgroup' if self.specialize else 'none'}")
        if self.bulk:
            out.append(f"stages: {self.stages}")
        if self.bulk:
            out.append(f"results: {'through shared memory' if self.outlets else 'from registers'}")
        if "products" in self.why:
            stages = "two stages" + (", warpgroups in turn" if self.turns else "")
            out.append(f"products: {stages if self.overlapped else 'of one trip at a time'}")
        if "trips" in self.why:
            out.append("trips: each warpgroup its own")
        if "operands" in self.why:
            out.append(f"operands: {'made ahead' if self.ahead else 'made in front of their product'}")
        if self.teams > 1:
            out.append(f"computing: {self.teams} warpgroups take tiles in turn")
        if self.cluster > 1:
            out.append(f"cluster: {self.shape.describe()}")
        if self.order is not None:
            out.append(f"tiles: {self.order.describe()}")
        if self.registers[1]:
            out.append(f"registers: {self.registers[0]} copying, {self.registers[1]} computing")
        return [f"{x} ({self.why[k]})" if (k := x.partition(":")[0]) in self.why else x for x in out]


def depends(low: Lowering, n: Node) -> set[str]:
    """Dimensions on which the tile that a read takes from its array depends: all of them where nobody knows."""
    return cluster_sharing.depends(low.graph, n, low.plans)


def choose(low: Lowering) -> Strategy:
    """The strategy of a kernel with asynchronous products; without any, everything is left as it is."""
    found = Strategy()
    reads = [n for n in low.graph.all_nodes() if n.id in low.reads.matrix_uses]
    if not any(plan.atom.asynchronous for plan in low.inference.mmas.values()):
        refuse(low, no_warpgroup(low.target))
        return found
    budget = low.target.shared_bytes - low.room.top
    for n in reads:
        if not is_tile(low.graph, n):
            low.reads.rows[n.id] = gathered_rows(low, n)
    plans = [_plan(low, n, budget) for n in reads]
    problems = [p for n in low.graph.all_nodes() if (p := walk_problem(low, n))]
    refused = {s.node.id: p for s in plans if (p := bulk_problem(low, s))}
    by_threads = {s.node.id for s in plans if s.node.id in refused and not threads_problem(low, s)}
    problems += [p for i, p in refused.items() if i not in by_threads]
    fetched = {n.id: fetch_problem(low, n, budget) for n in low.graph.all_nodes() if fetchable(low, n)}
    rows = {n.id for n in low.graph.all_nodes() if n.id in fetched and len(n.dims) == 1}
    fetched = {i: p for i, p in fetched.items() if not (p and i in rows)}  # all threads copy a row as well
    problems += [p for p in fetched.values() if p]
    gathers = [n for n in reads if n.id in low.reads.rows]
    if any(may_straddle(low, n) for n in reads if n.id not in by_threads):
        problems += [p for i, p in refused.items() if i in by_threads]  # one thread mends such a tile
    if low.choices.direct is False:
        problems.append("Schedule(direct_to_shared=False)")
    found.bulk = not problems
    low.reads.fetched = frozenset(fetched) if found.bulk else frozenset()
    found.why["copies"] = problems[0] if problems else "every stride and address is a multiple of 16 bytes"
    if not found.bulk:
        refuse(low, problems[0])
    wanted = low.choices.specialize
    reason = roles_misfit(low.partition, low.target) if found.bulk else found.why["copies"]
    if wanted and reason:
        raise ConstraintError(refusal(low.choices, "specialize", reason), low.graph.loc, "leave specialize out")
    found.specialize = found.bulk and not reason and wanted is not False and not low.choices.unaided
    found.conditional = any(copies_under(low, n) for n in low.graph.all_nodes())
    found.why["roles"] = reason or ("as asked for" if wanted is not None else UNAIDED if low.choices.unaided else AHEAD)
    if found.bulk and not found.specialize:
        ahead = [s.info.name for s in plans if not _outside_loops(low, s.node)]
        if ahead or by_threads or found.conditional:
            found.bulk = False
        if by_threads:
            found.why["copies"] = next(iter(refused.values()))
        if ahead:
            found.why["copies"] = f"where {ahead[0]} is read is worked out in the loop, and no warpgroup only copies"
    low.reads.by_threads = frozenset(by_threads) if found.bulk else frozenset()
    if found.bulk and by_threads:
        found.threaded = True
        found.why["copies"] = next(iter(refused.values()))
    if gathers and not found.bulk:
        # All threads would copy in front of a barrier, and wait: another plan has lanes fetch what they hold.
        raise ConstraintError(f"no warpgroup copies what is gathered: {found.why['roles']}", gathers[0].loc)
    choose_cluster(low, found)
    choose_order(low, found)
    if _made_alone(low, found):
        found.order = None
        found.why["tiles"] = "one each: warpgroups that make operands do so beside others, several on an SM"
    choose_teams(low, found)
    if low.choices.registers is not None and not found.specialize:
        raise ConstraintError(
            f"Schedule(registers={low.choices.registers}): no warpgroup only copies: {found.why['roles']}",
            low.graph.loc, "leave registers out",
        )  # fmt: skip
    if found.specialize:
        waves = low.partition.waves * found.teams
        entry = entry_registers(waves, low.target.wave_size)
        registers = low.choices.registers or budgets(waves, low.target.wave_size, entry, copying_registers(low, waves))
        if low.choices.registers is not None:
            check_budgets(low, waves)
            found.registers = registers
            found.why["registers"] = f"as asked for; {entry} if divided equally"
        elif registers[1] > entry:
            found.registers = registers
            found.why["registers"] = f"{entry} if divided equally, and the widest loop carries {most_registers(low)}"
    return found


def _outside_loops(low: Lowering, n: Node) -> bool:
    """Whether all numbers that place a read are known before the loops."""
    found = placement(low.graph, n)
    return found is None or all(low.region_of(x) is low.graph.region for x in found.numbers())


COPYING_BOXES = 40
"""Registers per thread of a role that copies boxes of arrays of three dimensions: with 24 ptxas spills some."""
COPYING_VECTORS = 64
"""Registers per thread of a role whose threads all copy: with 56 ptxas spills some where rows may lie outside."""
COPYING_GATHERS = 96
"""The same where they work out from where: with 72 ptxas spills 136 bytes of a filter of 128 x 64 x 128."""
GATHERED = 16
"""Vectors of a thread beyond which each needs `PER_VECTOR` registers more: where a filter has steps of two, a vector
has a line, a column and an offset. Of 256 x 128 x 128, 32 vectors, ptxas spills 120 to 600 bytes with 104 registers."""
PER_VECTOR = 2.5
BESIDE_SUMS = 48
"""Registers that a computing warpgroup has beside what its loop carries, whatever the copying one could use."""
AHEAD, UNAIDED = "copies run ahead of the products", "several workgroups hide one another's waits"
"""Why a warpgroup only copies, and why none does."""
NO_WARPGROUP = "no product of the kernel is a warpgroup's"


def no_warpgroup(target: Target) -> str:
    """Why a kernel without warpgroups' products has none."""
    if target.warpgroup is None and not target.asynchronous:
        return f"{target.name} has no warpgroups"
    return NO_WARPGROUP


def asked_of_warpgroups(choices: Choices, target: Target) -> list[str]:
    """What the user asks for that only kernels with bulk copies have."""
    return [*choices.roles, *(["ping_pong"] if choices.ping_pong and not target.waves_alternate else [])]


def refusal(choices: Choices, name: str, reason: str) -> str:
    """What the error says of a choice of the schedule that cannot be."""
    return f"Schedule({name}={getattr(choices, name)}): {reason}"


def only_turns(choices: Choices, target: Target) -> bool:
    """Whether all that is asked of warpgroups can be had without them."""
    return asked_of_warpgroups(choices, target) == ["persistent"]


def refuse(low: Lowering, reason: str) -> None:
    """Raise ConstraintError where the user asks for what only kernels with bulk copies have."""
    kind = NotHandedOut if only_turns(low.choices, low.target) else ConstraintError
    for name in asked_of_warpgroups(low.choices, low.target):
        raise kind(refusal(low.choices, name, reason), low.graph.loc, f"leave {name} out")


def roles_misfit(partition: Partition, target: Target) -> str:
    """Why there is no room for a copying warpgroup beside those that compute a tile; empty where there is."""
    threads = (partition.waves + 1) * target.wave_size
    if threads <= target.max_threads:
        return ""
    return f"{threads} threads with a copying warpgroup exceed {target.max_threads}"


def turns_misfit(graph: Graph, waves: int) -> str:
    """Why two warpgroups cannot take turns at tiles that so many compute together; empty where cuts allow it."""
    if waves != 1:
        return f"a tile is computed by {waves} warpgroups together"
    return "a loop has a range of its own" if bounded(graph) else ""


def choose_teams(low: Lowering, found: Strategy) -> None:
    """Whether two warpgroups take tiles in turn: one stores results while the other's products run. For tiles that are
    one warpgroup's, in workgroups that take several, where nothing but rings is shared. Raises ConstraintError where
    the user asks for it and it cannot be."""
    asked = low.choices.ping_pong
    ringed = low.reads.fetched.union(low.reads.matrix_uses)
    staged = any(n.op == "read" and n.id not in ringed and wants_shared(low, n) for n in low.graph.all_nodes())
    reasons = {
        unshared(low.choices) or found.why.get("roles", "no copying warpgroup"): found.specialize,
        "a workgroup takes one tile: there are no more than compute units, and persistent was not asked for":
            found.order is not None,
        (misfit := turns_misfit(low.graph, low.partition.waves)): not misfit,
        SKIPPED: not found.conditional,
        "warpgroups share more than rings of tiles":
            not staged and not low.reads.made and SCRATCH not in low.kernel.shared_names,
    }  # fmt: skip
    why = next((reason for reason, holds in reasons.items() if not holds), "")
    if asked and why:
        hint = "leave ping_pong out"
        if found.specialize and found.order is not None and low.partition.waves > 1:
            hint = "a tile of 64 x 256 or 128 x 128 sums at most that wd.WaveConstraint, if there is one, leaves whole"
        raise ConstraintError(refusal(low.choices, "ping_pong", why), low.graph.loc, hint)
    if asked is False or why:
        return
    found.teams = 2
    found.why["computing"] = (
        "as asked for" if asked else "a tile is one warpgroup's, and its results are stored beside the other's products"
    )


def _made_alone(low: Lowering, found: Strategy) -> bool:
    """Whether a workgroup's only computing warpgroup makes operands in registers, of nothing but what is read, while an
    SM has room for several such: one alone would wait for each of its own instructions. A product with 4-bit weights,
    2048 x 8192 x 4096 in tiles of 64 x 64 x 64, takes 857436 clocks by the model in workgroups that take tiles in turn,
    536800 so; with two computing warpgroups, 64 x 128, it is 483213 and 555407."""
    choices = low.choices
    if found.order is None or choices.persistent or choices.ping_pong or found.cluster > 1 or low.partition.waves > 1:
        return False
    plans = [plan for plan in low.inference.mmas.values() if plan.atom.asynchronous]
    made = [plan.ports[0] for plan in plans if not plan.a_shared and plan.ports[0].op != "read"]
    if not made or any(x.op in PRODUCTS for n in made for x in postorder(n, lambda x: x.inputs, ())):
        return False
    ringed = low.reads.fetched.union(low.reads.matrix_uses)
    tiles = sum(tile_bytes(low, n) for n in low.graph.all_nodes() if n.id in ringed)
    threads = 2 * low.target.wave_size  # it, and those that copy
    held = most_registers(low) + MAKING
    return low.target.resident_waves(held, low.room.top + MOST_STAGES * tiles, threads) >= 4


MAKING = 64
"""Registers of a warpgroup beside what its loops carry: operands, what they are made of, addresses."""
SKIPPED = "a condition says which tiles are computed"
"""Why nobody can count on what others copy."""


def choose_cluster(low: Lowering, found: Strategy) -> None:
    """Workgroups that share operand tiles: those that are asked for, else none.

    Nobody gains by a pair that nobody asked for. On an H200 what several SMs ask for comes from L2 as fast as what is
    multicast, and workgroups of a cluster wait for one another's slots: in two exhaustive searches 108 pairs of
    candidates that are alike but for clusters of two are 7 % slower with them (results/h200_ranking.json), tiles of 128
    x 256 and the chip's power as good as equal (docs/design/004-hopper.md)."""
    asked = low.choices.cluster
    shape = _shape(low, asked) if asked else ONE
    counts = _counts(low.partition)
    why = ""
    if 1 < shape.count <= MOST_CLUSTER and not found.specialize:
        why = unshared(low.choices) or found.why.get("roles", "no copying warpgroup")
    if shape.count > 1 and found.conditional:
        why = why or SKIPPED
    if why := why or cluster_misfit(low.graph, low.partition, shape):
        hint = "leave cluster out"
        if shape.count > MOST_CLUSTER:
            hint = "a smaller one, for example (2, 2, 1)"
        elif any((along or 0) % size for along, size in zip(counts, shape.sizes)):
            hint += ", or choose another tile"
        raise ConstraintError(refusal(low.choices, "cluster", why), low.graph.loc, hint)
    found.shape = shape
    if asked:
        found.why["cluster"] = "as asked for"
    elif found.specialize:
        found.why["cluster"] = "none: what SMs ask L2 for one by one comes as fast as a multicast"


def unshared(choices: Choices) -> str:
    """Why what needs a copying warpgroup cannot be had: the user wants none."""
    return "no warpgroup only copies, as asked for" if choices.specialize is False else ""


def cluster_misfit(graph: Graph, partition: Partition, shape: ClusterShape) -> str:
    """Why workgroups of a kernel cannot form clusters of a shape; empty where cuts allow it."""
    if shape.count > MOST_CLUSTER:
        return f"{shape.count} workgroups, and not every chip holds clusters of more than {MOST_CLUSTER}"
    found = loop_apart(graph, partition, shape)
    if found is not None:
        loop, axis = found
        dim = loop.attrs["body"].dim
        return f"the loop over {dim} has bounds that may differ between workgroups along the {AXES[axis]} grid axis"
    if has_members(partition):
        return ""  # tiles were handed to clusters
    if parts_together(partition):
        along, size = _tiles_beside_parts(partition), shape.sizes[1]
        if size > 1 and (along is None or along % size):
            count = "a number of tiles that the launch decides" if along is None else f"{along} tiles"
            return f"the first grid axis has {count}, no multiple of {size}"
        return ""
    for name, along, size in zip(("first", "second"), _counts(partition), shape.sizes):
        if along is not None and along % size:
            return f"the {name} grid axis has {along} tiles, no multiple of {size}"
    return ""


def _shape(low: Lowering, asked: Sequence[int]) -> ClusterShape:
    """The cluster that is asked for. Raises ConstraintError for one along the third axis, and for one along the second
    where workgroups have one tile each: they are numbered along the first alone."""
    x, y, z = (*asked, 1, 1)[:3]
    if parts_together(low.partition):
        if y > 1:
            raise ConstraintError(
                f"Schedule(cluster={tuple(asked)}): a cluster of the parts of tiles lies along the first grid axis",
                low.graph.loc, f"cluster=({x * y}, 1, {z}), with the grid axes exchanged where the tiles say so",
            )  # fmt: skip
        return ClusterShape((z, x), joined=True)
    if z > 1:
        raise ConstraintError(
            f"Schedule(cluster={tuple(asked)}): a cluster lies along the first two grid axes, along which its "
            "workgroups share what does not depend on them",
            low.graph.loc, f"cluster=({z}, 1, 1) or cluster=(1, {z}, 1)",
        )  # fmt: skip
    if y > 1 and low.choices.persistent is False and not has_members(low.partition):
        raise ConstraintError(
            f"Schedule(cluster={tuple(asked)}, persistent=False): clusters along the second grid axis are handed out "
            "to workgroups that take tiles in turn",
            low.graph.loc, "leave persistent out, or exchange the grid axes",
        )  # fmt: skip
    return ClusterShape((x, y))


def _tiles_beside_parts(partition: Partition) -> int | None:
    """Tiles along the first grid axis, where the parts of each lie along it as well; None where the launch decides."""
    return _product([p.trips for p in partition.dims.values() if p.axis == 0 and dim_name(p.dim) != PART])


def choose_order(low: Lowering, found: Strategy) -> None:
    """Whether workgroups take several tiles: where there are more than compute units, so that copies run on."""
    if has_members(low.partition):
        return  # turns are part of the graph
    if parts_together(low.partition):
        if low.choices.persistent:
            why = "the parts of a tile meet where its operands were: a workgroup takes one tile"
            raise ConstraintError(refusal(low.choices, "persistent", why), low.graph.loc, "leave persistent out")
        return
    asked = low.choices.persistent
    counts = _counts(low.partition)
    total = _product(counts)
    many = total is None or total > low.target.units
    if found.cluster > 1 and (low.choices.swizzle or 1 in found.shape.long) and asked is None:
        asked = True  # neighbours in a cluster stay neighbours only where tiles are handed out
    if asked is False or not found.bulk or (asked is None and not (found.specialize and many)):
        return
    workgroups = low.target.units // found.cluster * found.cluster
    axes = low.partition.grid_axes()
    sizes = [prod(low.partition.dims[d].tile for d in axis) for axis in axes[:2]]
    if low.choices.swizzle is False:
        group = counts[0] or 1 << 15
    else:
        group = best_group(sizes, low.target.units, found.shape)
    order = None
    if found.shape.sizes[0] == 1:  # tiles are even along an axis of a cluster
        handed = tuple(n if n is None else n // size for n, size in zip(counts, (*found.shape.sizes, 1)))
        order = uneven(low.graph, axes, handed, workgroups // found.cluster, lambda: tile_work(low))
    found.order = TileOrder(counts, group, workgroups, found.shape, order)
    found.why["tiles"] = "as asked for" if asked else f"more tiles than the chip's {low.target.units} SMs"


def tile_work(low: Lowering) -> Work:
    """What the tiles of a kernel with loops cost, if loops ran their whole dimension."""
    clocks = bytes = 0
    for n in low.graph.all_nodes():
        if n.op == "iterate" and (busy := product_clocks(low, n.attrs["body"])):
            dim, inside = str(n.attrs["body"].dim), n.attrs["body"].nodes
            trips = low.plans[dim].trips or 0
            clocks += busy * trips
            reads = [x for x in inside if x.op == "read" and is_tile(low.graph, x) and dim in depends(low, x)]
            bytes += trips * sum(tile_bytes(low, x) for x in reads)
    return Work(clocks, bytes, low.target.l2_bytes, low.target.memory_rate)


def _counts(partition: Partition) -> tuple[int | None, ...]:
    """Tiles along the three grid axes, None where a run-time extent decides."""
    counts: list[int | None] = []
    for axis in partition.grid_axes():
        counts.append(_product([partition.dims[d].trips for d in axis]))
    return tuple(counts)


def _product(counts: Sequence[int | None]) -> int | None:
    known = [n for n in counts if n is not None]
    return prod(known) if len(known) == len(counts) else None


def bounded(graph: Graph) -> bool:
    """Whether a loop runs over a part of its dimension that a workgroup works out."""
    return any(n.op == "iterate" and loop_bounds(n) != (None, None) for n in graph.all_nodes())


def _plan(low: Lowering, n: Node, budget: int) -> Staged:
    info = low.view_info(n)
    return plan_matrix(
        n, info, low.layout(n), low.reads.matrix_uses[n.id], low.partition, low.target, 1, budget,
        low.choices.direct, low.target.wave_size,
    )  # fmt: skip


def _gathering(low: Lowering, waves: int) -> int:
    """Registers per thread of a role whose threads copy from places that they work out, beside so many warpgroups."""
    lanes = low.target.wave_size
    nodes = (n for n in low.graph.all_nodes() if n.id in low.reads.by_threads)
    size = sum(tile_bytes(low, n) for n in nodes)
    more = PER_VECTOR * (size // (VECTOR_BYTES * lanes) - GATHERED)
    wanted = COPYING_GATHERS + max(0, int(more)) // REGISTER_STEP * REGISTER_STEP
    entry = entry_registers(waves, lanes)
    spare = budgets(waves, lanes, entry, wanted)[1] - most_registers(low) >= BESIDE_SUMS
    return wanted if spare else COPYING_GATHERS


def copying_registers(low: Lowering, waves: int) -> int:
    """Registers per thread of a role that only copies, beside so many warpgroups that compute. Places in arrays of
    three dimensions take more of them where a tile of f32 is several boxes of 32 columns."""
    if low.reads.by_threads:
        return _gathering(low, waves) if low.reads.rows else COPYING_VECTORS
    held = any(plan.held for plan in low.inference.mmas.values())
    read = [low.graph.argument(n.attrs["memory"]) for n in low.graph.all_nodes() if n.op == "read"]
    deep = any(len(x.dims) > 2 and not x.hidden for x in read)
    return COPYING_BOXES if held and deep else PRODUCER_REGISTERS


def budgets(waves: int, lanes: int, entry: int, least: int = PRODUCER_REGISTERS) -> tuple[int, int]:
    """Registers per thread of (the copying warpgroup, each of the computing ones), where all start with `entry`: what
    the first gives back, all but the `least` it needs, is divided among the others. A workgroup never gets more than it
    started with."""
    given = (entry - least) * lanes // (waves * lanes)
    computing = min(MOST_REGISTERS, (entry + given) // REGISTER_STEP * REGISTER_STEP)
    kept = (entry * (waves + 1) - computing * waves) // REGISTER_STEP * REGISTER_STEP
    return min(max(least, kept), entry // REGISTER_STEP * REGISTER_STEP), computing


def entry_registers(waves: int, lanes: int) -> int:
    """Registers per thread with which a copying warpgroup and so many computing ones start."""
    return REGISTER_FILE // ((waves + 1) * lanes) // REGISTER_STEP * REGISTER_STEP


def most_computing(waves: int, entry: int, copying: int) -> int:
    """Registers per thread that each of the computing warpgroups can have, where the copying one keeps so many."""
    return min(256, (entry * (waves + 1) - copying) // waves // REGISTER_STEP * REGISTER_STEP)


def budget_misfit(asked: tuple[int, int], waves: int, lanes: int) -> str:
    """Why the user's division of registers cannot be: it is more than the workgroup starts with, or one that
    `setmaxnreg` would not make: the copying warpgroup gives registers back, the others take some. Empty if it can."""
    copying, computing = asked
    entry = entry_registers(waves, lanes)
    if copying <= entry <= computing <= most_computing(waves, entry, copying):
        return ""
    return f"{waves + 1} warpgroups start with {entry} registers per thread each"


def check_budgets(low: Lowering, waves: int) -> None:
    """Raise ConstraintError for a division of registers that cannot be."""
    assert low.choices.registers is not None
    copying, _ = low.choices.registers
    reason = budget_misfit(low.choices.registers, waves, low.target.wave_size)
    if not reason:
        return
    entry = entry_registers(waves, low.target.wave_size)
    hint = f"at most {entry} for the copying one"
    if copying <= entry:
        most = most_computing(waves, entry, copying)
        hint = f"from {entry} to {most} for each of the {waves} that compute, where the copying one keeps {copying}"
    raise ConstraintError(refusal(low.choices, "registers", reason), low.graph.loc, hint)


def most_registers(low: Lowering) -> int:
    """Registers per thread of the values that the widest loop carries."""
    most = 0
    for n in low.graph.all_nodes():
        if n.op == "iterate":
            carries = n.attrs["body"].carries
            values = [c for c in carries if isinstance(c.type, ValueType)]
            most = max(most, sum(register_count(low.layout(c), c.dtype) for c in values))
    return most


__all__ = ["Strategy", "bulk_problem", "choose"]
