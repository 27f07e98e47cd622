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

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.constraints import resolve_constraints
from wavedsl.ir.errors import WaveError
from wavedsl.ir.graph import Graph
from wavedsl.ir.infer import Inference, infer
from wavedsl.ir.kernel_ir import Kernel, Param
from wavedsl.ir.layout_check import check_layouts
from wavedsl.ir.lower import lower
from wavedsl.ir.partition import Partition, cut
from wavedsl.ir.passes import DEAD_CODE, STRENGTH_REDUCE, run_passes, unroll_pass, verifying
from wavedsl.ir.target import Target


def plan(graph: Graph, dims: Mapping[Any, Any], target: Target) -> tuple[Target, Partition, Inference]:
    """Partition and layouts of a graph for one target, and that target or its view with four warps as the wave."""
    word = "waves" if target.vendor == "amd" else "warps"
    resolved = resolve_constraints(graph, dims, max_waves=target.max_waves, wave_word=word)
    if target.warpgroup is not None and resolved.hardware.threads_per_wave == target.warpgroup().wave_size:
        target = target.warpgroup()
    partition = cut(graph, resolved, target)
    inference = infer(graph, partition, target, resolved.hardware)
    if verifying():
        check_layouts(graph, partition, inference)
    return target, partition, inference


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
        target, partition, inference = plan(graph, dims, target)
        kernel = lower(graph, partition, inference, arrays, params, target, dynamic=dynamic, choices=choices)
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
