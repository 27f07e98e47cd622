"""Loop tiles that the compiler makes finer than the user's, because a pipeline of two, or its registers, fit only then.

In: a graph, its partition, the kernel that was lowered from them, or why it could not be. Out: the partition with which
to lower again, or None where the first one stays.

A tile of K that fills shared memory leaves one slot: copies and products then take turns, with two barriers between.
Half the tile in two slots takes the same memory, and one tile is copied while the other is multiplied. A loop that does
nothing but add products to accumulators gives the same sums either way, one product a trip in the same order; a loop
that does anything else per trip keeps the user's tile, and so does one with a range of the user's: whole tiles take
part in it.

Where one slot leaves room for a second workgroup, rows that are halves of cache lines are no gain: each line comes from
L2 twice, for by the next trip the tiles of both have taken its place in L1.

A trip of a wide tile may hold more than a wave has registers for: what it adds up, what its products read, and what is
on its way to shared memory for the next. Allocation then computes addresses anew in the loop, and moves or spills what
does not fit. Half the tile has half of all but the sums.

A loop that does more per trip, but row by row, and only adds rows up (`smaller_trips`), has smaller tiles where
registers lack however many waves share one: norms' gradients, which hold two rows over two sums.

Tiles of such a loop that shared memory does not hold even once are halved until it does (`fitting`). A loop whose trips
workgroups share (`split_k`) may leave less room than the user's own loop, for the counter that they read (unless it
lies over the tiles, `over_tiles`): where that alone makes tiles too large, they are halved as well.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from wavedsl.ir.choices import Choices
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.smaller_trips import rows_apart
from wavedsl.ir.dataflow.graph import Graph, Node, Region
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.inference.infer import Inference
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.layouts.column_pairs import Rows
from wavedsl.ir.layouts.fragment import register_count
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import Target

LEAST_ROW = 64
"""Bytes of a row of a finer tile: what four lanes of 16 bytes read."""
FILLED = 1 / 2
"""Share of a wave's registers beyond which a trip's sums, operands and copies on their way make allocation compute
addresses anew: of f16 loops of all tiles with waves of 16 to 128 a side on gfx90a, gfx942 and gfx950, those with 288
registers and more of 512 have vector instructions or spills, those with 256 and fewer, and `ACROSS`, have none."""
ACROSS = 48
"""Registers more where an operand lies across K in memory and is copied through registers: its single elements go to
many rows of shared memory, or its words come from many, each by an address. With 224 registers such loops of the same
tiles move accumulators or have vector instructions, with 208 none."""


def finer(
    graph: Graph, partition: Partition, inference: Inference, kernel: Kernel, choices: Choices, target: Target
) -> Partition | None:  # fmt: skip
    """The partition with halved loop tiles where a pipelined loop has one slot and consists of products only. A
    workgroup beside multiplies while this one copies: then rows stay as long as a cache line."""
    if choices.stages is not None:
        return None
    waves = partition.waves
    others = target.resident_waves(1, kernel.shared_bytes, waves * target.wave_size) >= 2 * waves
    shared = _shared_loops(graph)
    loops = [note for note in kernel.notes["lowering"].loops if note.slots == 1]
    single = {note.dim for note in loops if (note.trips or 0) > 1 or (note.trips is None and note.dim in shared)}
    return _halved(graph, partition, inference, single, max(LEAST_ROW, target.line_bytes) if others else LEAST_ROW)


def fitting(
    graph: Graph, partition: Partition, inference: Inference, refused: ConstraintError, choices: Choices
) -> Partition | None:
    """The partition with halved tiles of loops that consist of products only, where with `partition` the kernel is
    refused: of the loops whose tile is too large for shared memory, and of those that workgroups share."""
    if choices.stages is not None:
        return None
    return _halved(graph, partition, inference, {*refused.tile, *_shared_loops(graph)}, ends=True)


def _shared_loops(graph: Graph) -> set[str]:
    """Dimensions of the loops whose trips workgroups share."""
    return {str(n.attrs["body"].dim) for n in graph.all_nodes() if n.op == "iterate" and n.attrs.get("aligned")}


def lighter(
    graph: Graph, partition: Partition, inference: Inference, kernel: Kernel, choices: Choices, target: Target,
    rows: Rows, lack: int,
) -> Partition | None:  # fmt: skip
    """The partition with halved tiles of loops that consist of products only, where one holds more than `FILLED`; of
    warpgroups, where their registers `lack` and one copies through them. `rows`: reads whose rows are contiguous in
    memory (`column_pairs`)."""
    if choices.stages is not None:
        return None
    if target.assembler_schedules and not (target.asynchronous and lack > 0):
        return None  # which holds nothing in registers ahead
    loops = {str(n.attrs["body"].dim): n for n in graph.all_nodes() if n.op == "iterate"}
    full = set()
    for note in kernel.notes["lowering"].loops:
        n = loops.get(note.dim)
        if n is None or (note.trips or 0) < 2:
            continue
        if target.asynchronous:
            if any(step.kind == "gload" for step in note.steps):
                full.add(note.dim)
            continue
        held = _sums(n, inference) + sum(step.words for step in note.steps if step.kind in ("gload", "sread"))
        if any(step.kind == "gload" for step in note.steps) and _across(n.attrs["body"], rows):
            held += ACROSS
        if held > FILLED * target.registers:
            full.add(note.dim)
    return _halved(graph, partition, inference, full)


def fewer_rows_a_trip(
    graph: Graph, partition: Partition, choices: Choices, fixed: Collection[Any]
) -> dict[Any, int]:  # fmt: skip
    """Halved tiles of loops that go through rows one by one, for where values together are more than a wave's
    registers: a trip holds its rows over the sums of each, and what comes for the next. `fixed`: dimensions of which
    the user says what a wave has."""
    follow = {base for base, _ in partition.derived.values()} | set(partition.alike.values())
    found = {}
    for d in dict.fromkeys(n.attrs["body"].dim for n in graph.loops()) if choices.stages is None else ():
        plan = partition.dims[d]
        if plan.role != "loop" or plan.tile % 2 or plan.parts > 1 or d in follow or d in fixed:
            continue
        if plan.trips != 0 and rows_apart(graph, d, plan.tile):
            found[d] = plan.tile // 2
    return found


def _halved(
    graph: Graph, partition: Partition, inference: Inference, dims: Collection[str], least: int = LEAST_ROW,
    ends: bool = False,
) -> Partition | None:  # fmt: skip
    """The partition with halved tiles of those of these loops for which no one can tell, whose rows then have `least`
    bytes or more. `ends`: also where the last tile lies beyond the end in part, as far as launches do not decide
    that, and where several products of a trip go on in one another's sums."""
    changed: dict[Any, Any] = {}
    for n in graph.all_nodes():
        if n.op != "iterate":
            continue
        region: Region = n.attrs["body"]
        plan = partition.dims[region.dim]
        if any(base == region.dim for base, _ in partition.derived.values()):
            continue
        if str(region.dim) not in dims or plan.tile % 2 or not only_products(region, inference, chains=ends):
            continue
        if plan.ragged and not (ends and plan.extent):
            continue
        sizes = [read.dtype.bits // 8 for read in region.nodes if read.op == "read"]
        if min(sizes, default=0) * plan.tile // 2 < least:
            continue
        changed[region.dim] = replace(plan, tile=plan.tile // 2, wave=plan.wave // 2, parts=2 * plan.parts)
    if not changed:
        return None
    return replace(partition, dims={d: changed.get(d, p) for d, p in partition.dims.items()})


def _sums(n: Node, inference: Inference) -> int:
    """Registers of what a loop carries."""
    return sum(register_count(inference.layouts[c.id], c.dtype) for c in n.attrs["body"].carries)


def _across(region: Region, rows: Rows) -> bool:
    """Whether a tile that the loop reads is contiguous in memory along another dimension than the loop's."""
    along = dim_name(region.dim)
    return any(rows.get(n.id, along) != along for n in region.nodes if n.op == "read")


def only_products(region: Region, inference: Inference, chains: bool = False) -> bool:
    """Whether every carried value grows by a product along the loop's dimension, of values read in the loop. `chains`:
    or by several that go on in one another's sums (the places of a filter)."""
    for carry, last in zip(region.carries, region.yields):
        if last is carry:
            return False
        while last is not carry:
            if last.op != "mma" or len(last.inputs) < 3 or inference.mmas[last.id].k != str(region.dim):
                return False
            if not all(_fresh(x, region) for x in last.inputs[:2]):
                return False
            last = last.inputs[2]
            if last is not carry and not chains:
                return False
    others = {"read", "mma", "constant"}
    return bool(region.carries) and all(
        n.op in others or (ROWS[n.op].index_rule == "same" and not ROWS[n.op].effect) for n in region.nodes
    )


def _fresh(n: Node, region: Region) -> bool:
    """Whether a value is read in every trip, through elementwise steps or directly, along the loop's dimension."""
    own = {x.id for x in region.nodes}
    work, seen = [n], {n.id}
    while work:
        x = work.pop()
        if x.op == "read":
            if x.id not in own or region.dim not in x.dims:
                return False
        elif not x.inputs or ROWS[x.op].index_rule != "same":
            return False
        else:
            work += [y for y in x.inputs if y.id not in seen]
            seen.update(y.id for y in x.inputs)
    return True
