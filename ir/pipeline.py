"""The passes of the compiler's middle, in order: a traced graph in, kernel IR out.

    cut       constraints → how each dimension is spread over workgroups, waves and trips        partition.py
    infer     which lane and register holds which element of every value                         infer.py
    lower     steps of every region: shared memory, software pipeline, addresses    lower.py, staging.py, loops.py
    clean     dead code; folding, merging and hoisting happen while ops are built (builder.py)    kernel_passes.py
    unroll    ring slots become immediates                                                        unroll.py
    reduce    linear addresses become carried sums                                                strength_reduce.py

Between passes the verifier and a checker per promised fact run (`passes.py`; WAVEDSL_VERIFY=0 turns them off).

The back ends take over from there: `codegen/amdgcn` and `codegen/ptx`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.constraints import HardwareConstraint, ResolvedConstraints, resolve_constraints
from wavedsl.ir.errors import ConstraintError, WaveError
from wavedsl.ir.graph import Graph
from wavedsl.ir.infer import Inference, infer
from wavedsl.ir.kernel_ir import Kernel, Param
from wavedsl.ir.layout_check import check_layouts
from wavedsl.ir.lower import lower
from wavedsl.ir.partition import Partition, cut
from wavedsl.ir.passes import DEAD_CODE, STRENGTH_REDUCE, run_passes, unroll_pass, verifying
from wavedsl.ir.target import Target

Plan = tuple[Target, Partition, Inference]


def plan(graph: Graph, dims: Mapping[Any, Any], target: Target) -> Plan:
    """Partition and layouts of a graph: the first of `plans`."""
    return next(plans(graph, dims, target))


def plans(graph: Graph, dims: Mapping[Any, Any], target: Target) -> Iterator[Plan]:
    """Ways to cut a graph and to lay out its values, best first, each for the target or for its view with four warps as
    the wave: there where every product fits an instruction of a warpgroup, as the waves were given or four neighbours
    taken together. What the user asks for is the only way. Raises ConstraintError where there is none.
    """
    word = "waves" if target.vendor == "amd" else "warps"
    resolved = resolve_constraints(graph, dims, max_waves=target.max_waves, wave_word=word)
    lanes = resolved.hardware.threads_per_wave
    products = any(n.op == "mma" for n in graph.all_nodes())
    wide = target.warpgroup() if target.warpgroup is not None and lanes != target.wave_size and products else None
    if wide is not None and lanes == wide.wave_size:
        yield _plan(graph, resolved, wide)
        return
    for cuts in [resolved, *four_together(resolved)] if wide is not None else []:
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
    inference = infer(graph, partition, target, resolved.hardware)
    if verifying():
        check_layouts(graph, partition, inference)
    return target, partition, inference


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
    try:
        found = plans(graph, dims, target)
        while True:
            view, partition, inference = next(found)
            try:
                kernel = lower(graph, partition, inference, arrays, params, view, dynamic=dynamic, choices=choices)
                break
            except ConstraintError:
                if view is target or _lanes(graph) is not None:
                    raise
        target = view
    except WaveError as error:
        if error.location is None:
            error.location = graph.loc
        raise
    passes = (DEAD_CODE, unroll_pass(ring_factors(kernel), remainder=True), STRENGTH_REDUCE)
    kernel, _ = run_passes(kernel, passes, target)
    return kernel, partition


def ring_factors(kernel: Kernel) -> dict[str, int]:
    """Trips per jump of each pipelined loop: as many as its shared buffers have slots, so that slot offsets are
    immediates.

    Rings of more than two slots stay rolled: one addition per trip is cheaper than that much code. So do loops whose
    trip count is known at run time only, which would need a second loop for what is left.
    """
    loops = kernel.notes["lowering"].loops
    return {x.label: x.slots for x in loops if x.slots == 2 and x.body.count > 1 and x.trips is not None}
