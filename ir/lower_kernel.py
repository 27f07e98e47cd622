"""Lowering: the graph with its layouts, placements and schedule becomes kernel IR.

In: a graph, its `Partition` and `Inference`, what is known of the arguments, a `Target`. Out: a kernel IR `Kernel`
whose notes say what was chosen. Here is what holds for the whole kernel: its grid, strategy, scratch memory and
outermost region; `lower_regions.py` has the regions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph, Node, Region
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.inference.infer import Inference
from wavedsl.ir.kernel.kernel_ir import Kernel, Param, entry_name
from wavedsl.ir.kernel.kernel_ir import Region as Body
from wavedsl.ir.lower.exchange import OVER_TILES, SCRATCH, route
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.place_counts import begin_counts, end_counts, met, place_counts
from wavedsl.ir.lower.scratch_room import scratch_bytes
from wavedsl.ir.lower.sliced_operands import place_sliced
from wavedsl.ir.lower.whole_tiles import inside, narrowed, whole
from wavedsl.ir.lower.workgroup_tiles import set_coordinates
from wavedsl.ir.regions.decisions import decisions
from wavedsl.ir.regions.emit_loop import emit_straight
from wavedsl.ir.regions.first_tiles import ask_for_first_loads
from wavedsl.ir.regions.late_fetches import late_fetches
from wavedsl.ir.regions.lower_regions import region_steps, ring_depths
from wavedsl.ir.regions.over_tiles import behind_tiles
from wavedsl.ir.regions.ring_plans import plan_rings
from wavedsl.ir.regions.roles import begin, release
from wavedsl.ir.regions.roles import run as run_roles
from wavedsl.ir.regions.windows import in_window
from wavedsl.ir.schedule.plan_body import program_order
from wavedsl.ir.schedule.steps import Context, Env, Step
from wavedsl.ir.schedule.taps import NO_WINDOW, Window
from wavedsl.ir.staging.made_tiles import plan_made
from wavedsl.ir.staging.plan_reads import in_taps
from wavedsl.ir.staging.strategy import choose
from wavedsl.ir.target import Target


def lower(
    graph: Graph,
    partition: Partition,
    inference: Inference,
    arrays: Mapping[str, ArrayInfo],
    params: Sequence[Param],
    target: Target,
    *,
    dynamic: Mapping[str, int] | None = None,
    choices: Choices | None = None,
    name: str | None = None,
    spared: frozenset[int] = frozenset(),
    window: Window = NO_WINDOW,
) -> Kernel:
    """Kernel IR of the whole graph. `dynamic` maps hidden parameters (`extent K`, `stride a[0]`) to parameter
    indices. `spared`: reads that do not go through shared memory, because others have no room there. `window`: how far
    ahead loads of straight code start."""
    entry = entry_name(name or graph.name)
    kernel = Kernel(entry, target.name, list(params), Body(), target.wave_size, partition.waves)
    kernel.grid = _static_grid(partition)
    choices = choices or Choices()
    if choices.cache_swizzle and target.cache_swizzle:
        arrays = {name: _cache_swizzled(info, choices.cache_swizzle) for name, info in arrays.items()}
    low = Lowering(kernel, graph, partition, inference, arrays, target, dict(dynamic or {}), choices)
    low.reads.spared, low.reads.window = spared, window
    return _run(low)


TWO_PLACES = 2048
"""Bytes of what waves leave each other up to which there are two places for it."""
MOST_CACHE_STRIDE = 8192
"""The largest stride of the cache swizzle that published compilers use; the field has 14 bits."""


def _cache_swizzled(info: ArrayInfo, asked: bool | int) -> ArrayInfo:
    """The array with the stride that its buffers ask for."""
    stride = info.row_elements() if asked is True else int(asked)
    return replace(info, cache_stride=stride if 1 <= stride <= MOST_CACHE_STRIDE else 0)


def _static_grid(partition: Partition) -> tuple[Any, ...]:
    """Workgroups per axis; an axis with a run-time extent counts as -1 (the launch computes it)."""
    grid = []
    for axis in partition.grid_axes():
        count = 1
        for d in axis:
            trips = partition.dims[d].trips
            count = -1 if trips is None or count < 0 else count * trips
        grid.append(count)
    return tuple(grid)


def _two_places(low: Lowering, size: int, meeting: Sequence[Node]) -> bool:
    """Whether there are two places of so many bytes for what waves leave each other: where they are small, or where
    multiply-adds read what waves have picked of each other, so that both operands are there as they come to them."""
    if size <= TWO_PLACES:
        return len(meeting) > 1 or any(n.op in PRODUCTS for n in meeting)
    if not low.target.assembler_schedules or 4 * size > low.target.shared_bytes:
        return False
    picked = [n for n in meeting if n.op in ("extract", "shuffle")]
    products = [low.inference.mmas[x.id] for n in picked for x in low.users().get(n.id, ()) if x.op == "mma"]
    return any(x.atom.instruction == "fma" for x in products)


def _run(low: Lowering) -> Kernel:
    """Places in shared memory, strategy, then the body; the kernel with what it needs."""
    place_counts(low)
    converted, reduced, reducing = scratch_bytes(low)
    converted = place_sliced(low, converted)
    if _two_places(low, reduced, reducing):
        low.room.meeting.apart, reduced = reduced, 2 * reduced
    low.room.meeting.at = low.room.scratch + converted
    low.room.scratch_share = converted // low.partition.waves // 16 * 16
    over = behind_tiles(low, reducing)
    low.room.top = low.room.meeting.at + (0 if over else reduced)
    if low.room.top > low.room.scratch:
        low.kernel.shared_names[SCRATCH] = (low.room.scratch, low.room.top - low.room.scratch)
    low.room.meeting.buffer = OVER_TILES if over else SCRATCH
    if over:
        low.kernel.shared_names[OVER_TILES] = (low.room.meeting.at, reduced)
    plan_made(low)
    strategy = low.matrix.strategy = low.notes.strategy = choose(low)
    if strategy.bulk:
        low.kernel.waves = low.kernel.waves * strategy.teams + strategy.specialize
        plan_rings(low, strategy)
    low.notes.order = strategy.order
    low.kernel.cluster = strategy.cluster
    if strategy.order is not None:
        counts = [n for n in strategy.order.counts if n is not None]
        most = prod(counts) if len(counts) == len(strategy.order.counts) else strategy.order.workgroups
        low.kernel.grid = (min(most, strategy.order.workgroups), 1, 1)
    with low.b.loc(low.graph.loc):
        if strategy.order is None:
            set_coordinates(low)
        if strategy.bulk:
            run_roles(low, strategy, lambda: emit_kernel(low))
        else:
            ask_for_first_loads(low)
            begin_counts(low)
            begin(low)
            low.matrix.behind_loads = partial(release, low) if low.choices.dependent else None
            emit_kernel(low)
            end_counts(low)
    kernel = low.b.finish()
    kernel.shared_bytes = max(low.room.top, low.room.meeting.at + reduced)
    alone = converted + reduced > low.target.shared_bytes  # conversions and reductions each fit, but not both
    if (low.partition.shared_rows or alone) and kernel.shared_bytes > low.target.shared_bytes:
        hint = "smaller tiles of the workgroup" if alone else "wd.WaveConstraint says who has what"
        raise ConstraintError(
            f"{low.partition.waves} waves exchange {kernel.shared_bytes} bytes through shared memory; a workgroup of "
            f"{low.target.name} has {low.target.shared_bytes}", low.graph.loc, hint,
        )  # fmt: skip
    for n in low.graph.all_nodes():
        plan = low.inference.mmas.get(n.id)
        if plan is not None:
            low.notes.atoms[f"%{n.id}"] = plan.atom.name + (" swapped" if plan.swapped else "")
        for position, x in enumerate(n.inputs):
            wanted = low.inference.demands.get((n.id, position))
            if wanted is not None:
                how = route(low.layout(x), wanted, x.dtype)[0].kind
                low.notes.exchanges[f"operand {position} of %{n.id} ({n.op})"] = how
    kernel.notes["lowering"] = low.notes
    kernel.notes["decisions"] = decisions(low)
    return kernel


def emit_kernel(low: Lowering) -> None:
    """The outermost region, all of it or what one role does of it."""
    region = low.graph.region
    steps = region_steps(low, region)
    dims = low.whole = narrowed(low)
    if dims:
        behind = low.matrix.behind_loads
        with low.b.if_(inside(low, dims), usual=True) as branch:
            with whole(low, dims):
                _emit_steps(low, region, region_steps(low, region))
            branch.yield_()
        low.matrix.behind_loads = behind
        with branch.orelse():
            _emit_steps(low, region, steps)
            branch.yield_()
        return
    _emit_steps(low, region, steps)


def _emit_steps(low: Lowering, region: Region, steps: list[Step]) -> None:
    """A region's steps in the order of the program, and behind the last loads what is to follow them."""
    if in_taps(low, region):
        body = in_window(low, steps, ring_depths(low, steps))
    else:
        if not low.matrix.strategy.bulk:
            steps = late_fetches(low, steps)
        body = program_order(steps, ring_depths(low, steps), cyclic=False, around_loops=not low.matrix.strategy.bulk)
    met(low, steps, body.order)
    behind, low.matrix.behind_loads = low.matrix.behind_loads, None
    if behind is not None:
        last = next((i for i in reversed(body.order) if _loads(steps[i])), None)
        if last is None:
            behind()
        else:
            steps[last] = _followed(steps[last], behind)
    if low.matrix.strategy.bulk:
        from wavedsl.ir.regions.ring_loops import emit_once  # what chips without bulk copies never need

        emit_once(low, region, body, steps, Env())
    else:
        emit_straight(low.b, body, steps, Env())


def _loads(step: Step) -> bool:
    """Whether a step brings what the kernel reads: a loop, a load, a product that takes a ring's slot."""
    return step.loop or step.node is not None or step.kind in ("gload", "acopy", "sread")


def _followed(step: Step, behind: Callable[[], None]) -> Step:
    """The step with something to emit behind it."""
    found = copy(step)

    def emit(context: Context) -> None:
        step.emit(context)
        behind()

    found.emit = emit
    return found
