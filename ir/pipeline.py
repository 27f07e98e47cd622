"""The passes of the compiler's middle, in order: a traced graph in, kernel IR out.

    share     workgroups share the trips of a loop of sums (before the rest: it adds arguments)
                                                          grid/split_choice.py, dataflow/split_k.py, joined_parts.py
    join      sums along one dimension that are added up                                       dataflow/joined_sums.py
    repeat    factors that stand for several tiles are read where one starts                  dataflow/long_repeats.py
    odd       factors of groups that no bits count are read for every element                 dataflow/odd_repeats.py
    late      products from zero are added in the next trip                                 dataflow/late_additions.py
    precision products of f32 as those of tf32, where that was asked for                        inference/precision.py
    by hand   scales that no instruction takes are multiplied, operands are as wide as the chip's matrix units take them
                                                               dataflow/wider_operands.py, dataflow/scale_by_hand.py
    part      sums along what workgroups share, which atomics add to memory                       cuts/partial_sums.py
    places    coordinates computed of indices are expressions over them                    dataflow/written_places.py
    mask      elements that a mask throws away are not gathered                              dataflow/masked_gathers.py
    add       elements that atomics send to one place                                   dataflow/sum_before_atomics.py
    plan      ways to cut and to lay out, best first; the first that works          inference/plans.py, attempts.py
      apart     reads that are used in two ways: a read for each        inference/read_apart.py, cuts/numbers_apart.py
      cut       constraints → how each dimension is spread over workgroups, waves and trips          cuts/partition.py
      share     waves share more where registers lack  cuts/row_waves.py, cuts/product_waves.py, cuts/register_file.py
      fence     where one of the waves that hold elements writes them back                     inference/write_back.py
      infer     which lane and register holds which element of every value                          inference/infer.py
    lower     the kernel, then the steps of every region  lower_kernel.py, regions/lower_regions.py, schedule/steps.py
      more      again, for more waves, where its values are more than registers  kernel/pressure.py, cuts/partition.py
      pick      again, with elements computed where loops pick them, picked for renamed dimensions, or read where
                reshaped ones lie, where it lacks registers
                                                   dataflow/picked_elements.py, picked_names.py, reshaped_places.py
      place     which reads go through shared memory, their places and copies  staging/plan_reads.py, staging/staging.py
      schedule  software pipeline of a loop body, barriers; its kernel IR  schedule/plan_body.py, regions/emit_loop.py
    clean     dead code; folding, merging and hoisting happen while ops are built (builder.py)  kernel/kernel_passes.py
    load      equal loads of global memory                                                  kernel/merge_loads.py
    merge     carried integers that are always equal (slots of rings in step)                  kernel/merge_carried.py
    split     trips on which masks hold for every lane get a loop without masks                  kernel/split_loops.py
    unroll    ring slots become immediates                                   schedule/unroll_rule.py, kernel/unroll.py
    load      again                                                                         kernel/merge_loads.py
    join      accesses side by side of single elements become wide ones                    kernel/join_accesses.py
    stores    copies to shared memory that nobody reads                                          kernel/dead_stores.py
    choose    halves that are chosen by conditions are bits of words                       kernel/choose_halves.py
    pair      f32 arithmetic on neighbouring registers                                           kernel/pair_floats.py
    reduce    linear addresses become carried sums                                           kernel/strength_reduce.py
    branch    what one branch alone reads is computed there                                    kernel/into_branches.py
    beside    rows are loaded again where a second workgroup finds room so                  kernel/read_beside.py
    order     where registers lack, values are computed as they are asked for, some again
                                                                   kernel/element_order.py, kernel/read_again.py
    sink      conditions move down to their readers                                                     kernel/sink.py
    sink      so do descriptors, where they are many                                        kernel/late_descriptors.py
    barriers  without those that no two accesses to shared memory need, and waits for no copy
                                                          kernel/needless_barriers.py, kernel/needless_waits.py
    fences    release and acquire where somebody can tell                                      kernel/narrow_fences.py
    roles     again, without a copying warpgroup or for warps, where a small tile is done earlier so   earlier_roles.py

The order of what cleans: what is computed of equal loads is equal once they are one, so that comes first. What merges
and splits loops comes before they are unrolled, each trip's copy then being like any other code: loads are compared
once more, since places that depend on the trip are known, and copies that nobody reads show up. Linear addresses are
carried behind all that makes new ones (split, unroll, choose, pair). Those passes build kernels anew, and building
folds, numbers and hoists; so what moves or repeats ops (branches, order, sink) stands behind them. Barriers, waits and
fences ask which accesses are left, and come last.

Between passes the verifier and a checker per promised fact run (`passes.py`; WAVEDSL_VERIFY=0 turns them off).

The back ends take over from there: `codegen/amdgcn` and `codegen/ptx`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wavedsl.ir import trail
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.attempts import Attempts, clocks_on_unit, crowding_on_demand, idle
from wavedsl.ir.choices import Choices
from wavedsl.ir.cuts.partial_sums import mark_parts
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.product_waves import DEAREST
from wavedsl.ir.dataflow.graph import Graph
from wavedsl.ir.dataflow.joined_sums import joined_sums
from wavedsl.ir.dataflow.late_additions import late_additions
from wavedsl.ir.dataflow.masked_gathers import masked_gathers
from wavedsl.ir.dataflow.odd_repeats import fitted_repeats
from wavedsl.ir.dataflow.picked_elements import picked_elements
from wavedsl.ir.dataflow.picked_names import picked_names
from wavedsl.ir.dataflow.reshaped_places import reshaped_places
from wavedsl.ir.dataflow.sum_before_atomics import sum_before_atomics
from wavedsl.ir.dataflow.wider_operands import by_hand
from wavedsl.ir.dataflow.written_places import written_places
from wavedsl.ir.earlier_roles import Begun, Made, sooner
from wavedsl.ir.errors import CompileError, RegisterPressureError, WaveError
from wavedsl.ir.inference.precision import at_precision
from wavedsl.ir.kernel.join_accesses import ALIGNED
from wavedsl.ir.kernel.kernel_ir import Kernel, Param
from wavedsl.ir.kernel.passes import (
    CHOOSE_HALVES,
    DEAD_CODE,
    DEAD_STORES,
    INTO_BRANCHES,
    JOIN_ACCESSES,
    MERGE_CARRIED,
    MERGE_LOADS,
    NARROW_FENCES,
    NEEDLESS_BARRIERS,
    ORDER_ELEMENTS,
    PAIR_FLOATS,
    READ_BESIDE,
    SINK_CONDITIONS,
    SINK_DESCRIPTORS,
    SPLIT_LOOPS,
    STRENGTH_REDUCE,
    run_passes,
    unroll_pass,
    verifying,
)
from wavedsl.ir.regions.decisions import problems
from wavedsl.ir.schedule.unroll_rule import ring_factor
from wavedsl.ir.target import Target


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
    traced, choices = graph, choices or Choices()
    graph = prepared(traced, target)

    def lowered(graph: Graph, choices: Choices = choices) -> Made:
        return Attempts(graph, dims, arrays, params, target, dynamic, choices).first()

    def looped() -> Made:
        found = _with_room(graph, {**graph.subs, **dims}, lowered)
        if target.assembler_schedules or joined_sums(traced) is traced or found[2] <= 0:
            return found
        return min(found, lowered(prepared(traced, target, join=False)), key=crowding_on_demand)

    def begun(graph: Graph, choices: Choices) -> Begun:
        return begin_cleaning(lowered(graph, choices), arrays)

    try:
        found = looped()
        bytes = sum(info.span() or 0 for info in arrays.values())
        kernel, plan, _ = sooner(begin_cleaning(found, arrays).rest(), graph, target, choices, bytes, begun)
    except WaveError as error:
        if error.location is None:
            error.location = graph.loc
        raise
    if verifying():
        wrong = problems(kernel.notes["decisions"], kernel)
        if wrong:
            raise CompileError(
                f"the record of {graph.name} is wrong: {wrong[0]}", graph.loc,
                "this is a defect of the compiler, not of the kernel",
            )  # fmt: skip
    return kernel, plan.partition


def begin_cleaning(found: Made, arrays: Mapping[str, ArrayInfo]) -> Begun:
    """A kernel as it was lowered, behind the first passes, by which most that folds, merges and unrolls is gone."""
    kernel, plan, lack = found
    trail.stage("lowered", lambda: text(kernel))
    kernel.notes[ALIGNED] = {name: a.align for name, a in arrays.items()}
    unroll = unroll_pass(ring_factor(kernel), remainder=True)
    held: set[str] = set()
    first = (DEAD_CODE, MERGE_LOADS, MERGE_CARRIED, SPLIT_LOOPS, unroll)
    kernel, facts = run_passes(kernel, first, plan.target, held=held, more=True)

    def rest() -> Made:
        others = (
            MERGE_LOADS, JOIN_ACCESSES, DEAD_STORES, CHOOSE_HALVES, PAIR_FLOATS, STRENGTH_REDUCE, INTO_BRANCHES,
            READ_BESIDE, ORDER_ELEMENTS, SINK_CONDITIONS, SINK_DESCRIPTORS, NEEDLESS_BARRIERS, NARROW_FENCES,
        )  # fmt: skip
        return run_passes(kernel, others, plan.target, facts=facts, held=held)[0], plan, lack

    return Begun((kernel, plan, lack), rest)


def _with_room(
    graph: Graph, known: Mapping[Any, Any], lowered: Callable[[Graph], Made]
) -> Made:
    """A graph lowered; where that lacks registers, with elements computed where loops pick them, or picked for
    dimensions that are renamed, and read and written where they lie for those that are reshaped, whichever lacks fewest
    so. Where SIMDs have nothing to do, elements are picked if waves that share what is renamed are done earlier."""
    ways = picked_elements(graph), picked_names(reshaped_places(graph, known))
    found: Made | None = None
    refused: RegisterPressureError | None = None
    try:
        found = lowered(graph)
    except RegisterPressureError as error:
        refused = error
    for other in (other for other in ways if other is not graph):
        if found is not None and found[2] <= 0:
            break
        try:
            another = lowered(other)
        except WaveError:
            continue
        if found is None or another[2] < found[2]:
            found = another
    if found is None:
        assert refused is not None
        raise refused
    if found[2] <= 0 and ways[1] is not graph and idle(found[1], found[0]):
        try:
            another = lowered(ways[1])
        except WaveError:
            return found
        busier = another[2] <= 0 and another[1].partition.waves > found[1].partition.waves
        if busier and clocks_on_unit(another[1], another[0]) <= DEAREST * clocks_on_unit(found[1], found[0]):
            return another
    return found


def prepared(graph: Graph, target: Target, join: bool = True) -> Graph:
    """The graph as it is cut and laid out for a target. `join`: with one sum for those that are added up, which have to
    be held together until they are; not every wave of AMD's has the registers, and ptxas brings operands later."""
    graph = fitted_repeats(joined_sums(graph) if join else graph)
    graph = at_precision(late_additions(graph, target), target)
    return sum_before_atomics(masked_gathers(written_places(mark_parts(by_hand(graph, target)))))


def text(kernel: Kernel) -> str:
    """Kernel IR as a listing."""
    from wavedsl.ir.kernel.kernel_text import text

    return text(kernel)
