"""Why a kernel's operands cannot come by copies that run ahead: the tile, the conditions and loops around it.

In: a lowering whose reads are planned. Out: reasons in a user's words, empty where there is none. Bulk copies are one
thread's; copies by threads are those of a warpgroup that only copies.
"""

from __future__ import annotations

from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.cuts.tile_dims import simple
from wavedsl.ir.dataflow.graph import Node, loop_bounds, region_nodes
from wavedsl.ir.dataflow.views import is_tile, placement
from wavedsl.ir.dtypes import tf32
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.inference.write_back import written_before
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.tile_ends import tile_ends
from wavedsl.ir.staging.plan_reads import contraction_fed
from wavedsl.ir.staging.staging import plan_fetched
from wavedsl.ir.symbols import AddressSpace

STRIDE = 16
"""Bytes that strides and first element of an array must be multiples of for bulk copies (cuTensorMapEncodeTiled)."""
MOST_MASKED = 32
"""Vectors of a tile that a thread copies at most where rows of the tile may lie outside: each has a mask in a register,
and with 48 ptxas spills 520 bytes."""

CONDITIONS = {"when": "wd.cond or wd.exit_if", "repeat": "wd.while_loop"}
"""What an operation with a body that does not always run is called in a kernel."""


def walk_problem(low: Lowering, n: Node) -> str:
    """Why a thread that only copies could not walk a kernel with this node as the others do; empty if it can. A
    condition under which nothing is copied is none of its business, and one of what it can work out stops it, too."""
    if copies_under(low, n) and not _early(low, n):
        return f"what the kernel does depends on a value it computes ({CONDITIONS[n.op]})"
    if n.op == "iterate" and not all(x is None or simple(low.graph, x) for x in loop_bounds(n)):
        return f"the loop over {n.attrs['body'].dim} has bounds that depend on more than sizes, tiles and scalars"
    return ""


def copies_under(low: Lowering, n: Node) -> bool:
    """Whether tiles of products are copied under a condition."""
    if n.op not in ("when", "repeat"):
        return False
    return any(x.id in low.reads.matrix_uses or fetchable(low, x) for x in region_nodes(n.attrs["body"]))


def _early(low: Lowering, n: Node) -> bool:
    """Whether a condition is one under which a workgroup computes its tile at all, of numbers that any thread has."""
    around = [x for x in low.graph.all_nodes() if "body" in x.attrs and n in region_nodes(x.attrs["body"])]
    outside = all(x.op == "when" for x in (n, *around))
    return outside and not n.attrs["body"].carries and simple(low.graph, n.inputs[0])


def bulk_problem(low: Lowering, staged: Staged) -> str:
    """Why a tile cannot be brought by bulk copies; empty if it can."""
    info, tile = staged.info, staged.tile
    found = placement(low.graph, staged.node)
    if found is None:
        return f"elements of {info.name} are moved one by one"
    if written_before(low.graph, staged.node):
        # Copies run ahead of the waves that write, on barriers of their own, and past what ordinary stores wrote.
        return f"the kernel writes {info.name} before it reads it"
    if not all(simple(low.graph, c) for c in found.numbers()):
        return f"where {info.name} is read depends on more than sizes, tiles, scalars and numbers in arrays"
    assert tile is not None
    c = info.contiguous()
    if c is None or info.names[c] != tile.fast:
        return f"{info.name} is transposed on the way to shared memory"
    if info.dtype is tf32:
        return f"{info.name} is rounded to tf32 on the way"
    if info.align < STRIDE:
        return f"{info.name} starts at a multiple of {info.align} bytes only"
    ends = tile_ends(low, staged.node)
    if any(end.axis == c for end in ends) or len(ends) > 1:
        return f"where tiles of {info.name} end along {info.names[ends[0].axis]} is no end of rows"
    more = [*["its tiles end"] * len(ends), *["its rows are taken apart"] * bool(tile.block)]
    if len(info.dims) + len(more) > 5:
        return " and ".join([f"{info.name} has more than {5 - len(more)} dimensions", *more])
    for i in range(len(info.dims)):
        if info.strides[i] == 0 and info.extents[i] != 1:
            return f"{info.name} repeats along {info.names[i]}"
        if i != c and info.stride_multiple(i) % STRIDE:
            return f"the stride of {info.name} along {info.names[i]} is no multiple of {STRIDE} bytes"
    return ""


def threads_problem(low: Lowering, staged: Staged) -> str:
    """Why a copying warpgroup cannot bring a tile by copies of its threads; empty if it can."""
    name, rows = staged.info.name, low.reads.rows.get(staged.node.id)
    found = placement(low.graph, staged.node)
    numbers = found.numbers() if found is not None else rows.numbers.singles if rows is not None else ()
    if written_before(low.graph, staged.node):
        return f"the kernel writes {name} before it reads it"
    if not all(simple(low.graph, c) for c in numbers):
        return f"where {name} is read depends on more than sizes, tiles, scalars and numbers in arrays"
    if not staged.asynchronous:
        return f"vectors of {name} are too narrow for copies by {staged.threads} threads"
    assert staged.tile is not None
    if rows is None and staged.count > MOST_MASKED and low.plans[staged.tile.other].ragged:
        return f"{staged.count} vectors of {name} per thread, each with rows that may lie outside"
    return ""


def fetchable(low: Lowering, n: Node) -> bool:
    """Whether a read's tile should come by bulk copies although lanes take its elements from shared memory: it feeds a
    product through elementwise steps, in a loop."""
    if n.op != "read" or n.id in low.reads.matrix_uses or not is_tile(low.graph, n):
        return False
    if n.dtype.bits < 8 and not (n.dtype.packed and n.dtype.bits == 4):
        return False
    if low.region_of(n).dim is None or contraction_fed(low, n) is None:
        return False
    argument = low.graph.argument(n.attrs["memory"])
    space = low.graph.subs.get(argument.address_space, argument.address_space)
    return not argument.hidden and space is not AddressSpace.GLOBAL and len(n.dims) in (1, 2)


def fetch_problem(low: Lowering, n: Node, budget: int) -> str:
    """Why such a tile cannot; empty if it can."""
    try:
        staged = plan_fetched(n, *low.fetched_view(n), low.target, 1, budget)
    except (CompileError, ConstraintError) as problem:
        return problem.message
    return bulk_problem(low, staged)


__all__ = ["bulk_problem", "copies_under", "fetch_problem", "fetchable", "threads_problem", "walk_problem"]
