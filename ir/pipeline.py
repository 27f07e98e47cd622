"""The passes of the compiler's middle, in order: a traced graph in, kernel IR out.

    cut       constraints → how each dimension is spread over workgroups, waves and trips        partition.py
    infer     which lane and register holds which element of every value                         infer.py
    lower     steps of every region: shared memory, software pipeline, addresses    lower.py, staging.py, loops.py
    clean     dead code; folding, merging and hoisting happen while ops are built (builder.py)    kernel_passes.py
    split     trips on which masks hold for every lane get a loop without masks                   split_loops.py
    unroll    ring slots become immediates                                                        unroll.py
    stores    copies to shared memory that nobody reads                                           dead_stores.py
    pair      f32 arithmetic on neighbouring registers                                            pair_floats.py
    reduce    linear addresses become carried sums                                                strength_reduce.py
    sink      conditions move down to their readers                                               sink.py

Between passes the verifier and a checker per promised fact run (`passes.py`; WAVEDSL_VERIFY=0 turns them off).

The back ends take over from there: `codegen/amdgcn` and `codegen/ptx`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wavedsl.ir import trail
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.constraints import HardwareConstraint, ResolvedConstraints, resolve_constraints
from wavedsl.ir.errors import ConstraintError, WaveError
from wavedsl.ir.graph import PRODUCTS, Graph, node_text
from wavedsl.ir.infer import Inference, infer
from wavedsl.ir.kernel_ir import Kernel, Op, Param
from wavedsl.ir.layout_check import check_layouts
from wavedsl.ir.lower import lower
from wavedsl.ir.partition import Partition, cut
from wavedsl.ir.passes import (
    DEAD_CODE,
    DEAD_STORES,
    PAIR_FLOATS,
    SINK_CONDITIONS,
    SPLIT_LOOPS,
    STRENGTH_REDUCE,
    run_passes,
    unroll_pass,
    verifying,
)
from wavedsl.ir.retile import finer
from wavedsl.ir.scale_by_hand import scale_by_hand
from wavedsl.ir.target import Target
from wavedsl.ir.unroll import static_trips

OVERHEAD = 10
"""Instructions of a loop's own per trip: its counter and test, the guards and offsets of its copies."""
WORTH = 16
MOST = 512
"""Steps of an unrolled body; each is an instruction of about 8 bytes, and two compute units share 64 KiB of them."""


Plan = tuple[Target, ResolvedConstraints, Partition, Inference]


def plan(graph: Graph, dims: Mapping[Any, Any], target: Target) -> Plan:
    """Partition and layouts of a graph: the first of `plans`."""
    return next(plans(scale_by_hand(graph, target), dims, target))


def plans(graph: Graph, dims: Mapping[Any, Any], target: Target) -> Iterator[Plan]:
    """Ways to cut a graph and to lay out its values, best first, each for the target or for its view with four warps as
    the wave: there where every product fits an instruction of a warpgroup, as the waves were given or four neighbours
    taken together. What the user asks for is the only way. Raises ConstraintError where there is none.
    """
    trail.stage("graph", lambda: graph.text(locations=True))
    word = "waves" if target.vendor == "amd" else "warps"
    resolved = resolve_constraints(graph, dims, max_waves=target.max_waves, wave_word=word)
    lanes = resolved.hardware.threads_per_wave
    products = any(n.op in PRODUCTS for n in graph.all_nodes())
    wide = target.warpgroup() if target.warpgroup is not None and lanes != target.wave_size and products else None
    if wide is not None and lanes == wide.wave_size:
        yield _plan(graph, resolved, wide)
        return
    if wide is not None:
        for cuts in (resolved, *four_together(resolved)):
            try:
                found = _plan(graph, cuts, wide)
            except ConstraintError:
                continue
            yield found
    yield _plan(graph, resolved, target)


def _lanes(graph: Graph) -> int | None:
    """The lanes of a wave that the user asks for."""
    return next((c.threads_per_wave for c in graph.constraints if isinstance(c, HardwareConstraint)), None)


def _plan(graph: Graph, resolved: ResolvedConstraints, target: Target) -> Plan:
    partition = cut(graph, resolved, target)
    trail.stage("cut", lambda: "\n".join(str(p) for p in (partition.order, *partition.dims.values())))
    inference = infer(graph, partition, target, resolved.hardware)
    trail.stage("layouts", lambda: _layouts_text(graph, inference))
    if verifying():
        check_layouts(graph, partition, inference)
    return target, resolved, partition, inference


def four_together(resolved: ResolvedConstraints) -> Iterator[ResolvedConstraints]:
    """The same constraints with four waves that are neighbours along one dimension as one."""
    for d, r in resolved.dims.items():
        if r.wave is not None and r.workgroup is not None and r.workgroup // r.wave % 4 == 0:
            yield replace(resolved, dims={**resolved.dims, d: replace(r, wave=4 * r.wave)})


def build_kernel(
    graph: Graph,
    dims: Mapping[Any, Any],
    arrays: Mapping[str, ArrayInfo],
    params: Sequence[Param],
    target: Target,
    *,
    dynamic: Mapping[str, int] | None = None,
    choices: Choices | None = None,
) -> tuple[Kernel, Partition]:
    """Kernel IR for one target, verified. Raises WaveErrors at the user's lines."""
    graph = scale_by_hand(graph, target)
    try:
        found = plans(graph, dims, target)
        while True:
            view, resolved, partition, inference = next(found)
            try:
                kernel = lower(graph, partition, inference, arrays, params, view, dynamic=dynamic, choices=choices)
                cut_again = finer(graph, partition, inference, kernel, choices or Choices())
                if cut_again is not None:
                    partition = cut_again
                    inference = infer(graph, partition, view, resolved.hardware)
                    if verifying():
                        check_layouts(graph, partition, inference)
                    kernel = lower(graph, partition, inference, arrays, params, view, dynamic=dynamic, choices=choices)
                break
            except ConstraintError:
                if view is target or _lanes(graph) is not None or (choices is not None and choices.roles):
                    raise
        target = view
    except WaveError as error:
        if error.location is None:
            error.location = graph.loc
        raise
    trail.stage("lowered", lambda: text(kernel))
    unroll = unroll_pass(ring_factor(kernel), remainder=True)
    passes = (DEAD_CODE, SPLIT_LOOPS, unroll, DEAD_STORES, PAIR_FLOATS, STRENGTH_REDUCE, SINK_CONDITIONS)
    kernel, _ = run_passes(kernel, passes, target)
    return kernel, partition


def text(kernel: Kernel) -> str:
    """Kernel IR as a listing."""
    from wavedsl.ir.kernel_text import text

    return text(kernel)


def _layouts_text(graph: Graph, inference: Inference) -> str:
    """Which lane and register holds which element, node by node."""
    out = []
    for node in graph.all_nodes():
        out.append(node_text(node))
        if node.id in inference.layouts:
            out.append(f"    {inference.layouts[node.id]!r}")
        for i in range(len(node.inputs)):
            if (node.id, i) in inference.demands:
                out.append(f"    operand {i} as {inference.demands[node.id, i]!r}")
    return "\n".join(out)


def ring_factor(kernel: Kernel) -> Callable[[Op], int]:
    """Trips per jump of each pipelined loop.

    At least as many as its shared buffers have slots, so that slot offsets are immediates; then twice as many as long
    as what a loop does for itself (`OVERHEAD`) is more than a part in `WORTH` of its body, the trips divide evenly and
    the body stays below `MOST` steps. Rings of more than two slots stay rolled: one addition per trip is cheaper than
    that much code. So do loops whose trip count is known at run time only, which would need a second loop for what is
    left.
    """
    notes = {x.label: x for x in kernel.notes["lowering"].loops}

    def factor(loop: Op) -> int:
        note = notes.get(loop.attrs.get("label", ""))
        # A part of a loop that was split runs its own number of trips, if that is known at all.
        trips = None if note is None else static_trips(loop) if "part" in loop.attrs else note.trips
        if note is None or note.slots != 2 or note.body.count <= 1 or trips is None:
            return 1
        found, size = note.slots, len(note.steps)
        while (
            OVERHEAD * WORTH > size * found
            and 2 * found * size <= MOST
            and trips % (2 * found) == 0
            and trips > 2 * found
        ):
            found *= 2
        return found

    return factor
