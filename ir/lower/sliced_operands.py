"""Operands of multiply-adds that are read from shared memory as the product comes to them.

In: a product without a matrix instruction, some of whose operands have to change lanes. Out: a step that leaves them
in the wave's scratch buffer, one behind the other, and in their place promises (`fragment.Lazy`) that load 16 bytes
when the first multiply-add asks for them. Of 32 x 32 x 32 a lane multiplies 8 rows by 4 columns: both operands are 384
registers of it, of which 12 are multiplied at a time, and the sums are 32.

INVARIANT: nothing else is put into the scratch buffer until the product's last multiply-add: its steps stand one behind
the other in straight code, the only place where this is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.ops import MADE_ANYWHERE
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.fragment import Fragment, Lazy
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.cells import from_cell
from wavedsl.ir.lower.exchange import TileLoads, order, route, store_tile, tile_bytes
from wavedsl.ir.lower.lower_values import zero_beyond
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Context, Key, Step


def sliced_bytes(low: Lowering) -> int:
    """Bytes of scratch that a workgroup's waves need for such operands of one product, at most."""
    found = [sum(_bytes(low, n, p) for p in sliced_positions(low, n)) for n in low.graph.all_nodes() if n.op == "mma"]
    return low.partition.waves * max(found, default=0)


def sliced_positions(low: Lowering, n: Node) -> tuple[int, ...]:
    """Which operands of a product are read so: those of many registers that no shuffle brings to their lanes."""
    return tuple(p for p in low.inference.mmas[n.id].positions if (n.id, p) in low.inference.wide and _moves(low, n, p))


def _layouts(low: Lowering, n: Node, position: int) -> tuple[Layout, Layout]:
    """How an operand lies, and how it is multiplied."""
    return low.inference.layouts[n.inputs[position].id], low.inference.demands[n.id, position]


def _moves(low: Lowering, n: Node, position: int) -> bool:
    x = n.inputs[position]
    if (n.id, position) not in low.inference.demands or x.op in MADE_ANYWHERE:
        return False
    return route(*_layouts(low, n, position), x.dtype)[0].kind == "shared memory"


def _bytes(low: Lowering, n: Node, position: int) -> int:
    return tile_bytes(*_layouts(low, n, position), n.inputs[position].dtype)


def sliced_step(low: Lowering, n: Node, operands: Sequence[tuple[int, Key, bool]], k: str) -> Step:
    """Operands left in shared memory. `operands`: position, the key of the promise, whether to put zeros beyond the end
    of K."""

    def emit(context: Context) -> None:
        found: list[tuple[Key, Fragment, Layout, int]] = []
        at = 0
        order(low)
        for position, key, neutral in operands:
            value = low.value(n.inputs[position], context.env)
            if neutral:
                value = zero_beyond(low, value, k, context)
            wanted = _layouts(low, n, position)[1]
            store_tile(low, value, wanted, at)
            found.append((key, value, wanted, at))
            at += _bytes(low, n, position)
        order(low)
        for key, value, wanted, at in found:
            context.env[key] = _promised(low, TileLoads(low, value, wanted, at), value)

    clocks = low.issue_clocks() * sum(low.layout(n.inputs[p]).elements_per_lane for p, _, _ in operands)
    resources, latency = low.valu_cost(clocks)
    uses = tuple(dict.fromkeys(key for p, _, _ in operands for key in low.keys(n.inputs[p])))
    defs = tuple(key for _, key, _ in operands)
    return Step(f"operands of %{n.id}", "compute", resources, latency, uses, defs, emit, "", n.loc)


def _promised(low: Lowering, loads: TileLoads, value: Fragment) -> Lazy:
    """What was stored, in the layout of its loads."""
    here: dict[int, Value] = {}

    def element(i: int) -> Value:
        if i not in here:
            first = i // loads.count * loads.count
            for j, cell in enumerate(loads.cells(first), first):
                here[j] = from_cell(low.b, cell, value.dtype)
        return here[i]

    return Lazy(loads.wanted, value.dtype, element, low.b)


__all__ = ["sliced_bytes", "sliced_positions", "sliced_step"]
