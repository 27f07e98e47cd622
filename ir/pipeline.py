"""The passes of the compiler's middle, in order: a traced graph in, kernel IR out.

    cut       constraints → how each dimension is spread over workgroups, waves and trips        partition.py
    infer     which lane and register holds which element of every value                         infer.py
    lower     steps of every region: shared memory, software pipeline, addresses    lower.py, staging.py, loops.py
    clean     dead code; folding, merging and hoisting happen while ops are built (builder.py)    kernel_passes.py
    unroll    ring slots become immediates                                                        unroll.py
    stores    copies to shared memory that nobody reads                                           dead_stores.py
    reduce    linear addresses become carried sums                                                strength_reduce.py

Between passes the verifier and a checker per promised fact run (`passes.py`; WAVEDSL_VERIFY=0 turns them off).

The back ends take over from there: `codegen/amdgcn` and `codegen/ptx`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.ir import trail
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.constraints import ResolvedConstraints, resolve_constraints
from wavedsl.ir.errors import WaveError
from wavedsl.ir.graph import Graph, node_text
from wavedsl.ir.infer import Inference, infer
from wavedsl.ir.kernel_ir import Kernel, Param
from wavedsl.ir.layout_check import check_layouts
from wavedsl.ir.lower import lower
from wavedsl.ir.partition import Partition, cut
from wavedsl.ir.passes import DEAD_CODE, DEAD_STORES, STRENGTH_REDUCE, run_passes, unroll_pass, verifying
from wavedsl.ir.target import Target


def plan(graph: Graph, dims: Mapping[Any, Any], target: Target) -> tuple[ResolvedConstraints, Partition, Inference]:
    """Partition and layouts of a graph for one target."""
    word = "waves" if target.vendor == "amd" else "warps"
    resolved = resolve_constraints(graph, dims, max_waves=target.max_waves, wave_word=word)
    trail.stage("graph", lambda: graph.text(locations=True))
    partition = cut(graph, resolved, target)
    trail.stage("cut", lambda: "\n".join(str(p) for p in (partition.order, *partition.dims.values())))
    inference = infer(graph, partition, target, resolved.hardware)
    trail.stage("layouts", lambda: _layouts_text(graph, inference))
    if verifying():
        check_layouts(graph, partition, inference)
    return resolved, partition, inference


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
        _, partition, inference = plan(graph, dims, target)
        kernel = lower(graph, partition, inference, arrays, params, target, dynamic=dynamic, choices=choices)
    except WaveError as error:
        if error.location is None:
            error.location = graph.loc
        raise
    trail.stage("lowered", lambda: text(kernel))
    passes = (DEAD_CODE, unroll_pass(ring_factors(kernel), remainder=True), DEAD_STORES, STRENGTH_REDUCE)
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


def ring_factors(kernel: Kernel) -> dict[str, int]:
    """Trips per jump of each pipelined loop: as many as its shared buffers have slots, so that slot offsets are
    immediates.

    Rings of more than two slots stay rolled: one addition per trip is cheaper than that much code. So do loops whose
    trip count is known at run time only, which would need a second loop for what is left.
    """
    loops = kernel.notes["lowering"].loops
    return {x.label: x.slots for x in loops if x.slots == 2 and x.body.count > 1 and x.trips is not None}
