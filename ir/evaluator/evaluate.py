"""The graph evaluator: what a kernel means, in NumPy, on whole arrays.

In: a traced graph, arrays by argument name, a number for every symbol. Out: the arrays, changed in place. It needs no
index map, no layout and no target, and is what everything below the graph is compared with. How values are held is
`evaluate_run.py`'s; what each kind of operation means is in the other `evaluate_*.py`.

Products are exact (f32 holds a product of two 11-bit mantissas, f64 one of integers); sums are in the accumulator's
dtype. With `float64` every float is f64 and nothing is rounded: the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from wavedsl.ir.dataflow.constraints import WorkgroupConstraint
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.errors import CompileError, EmulationError
from wavedsl.ir.evaluator import (
    evaluate_control,
    evaluate_memory,
    evaluate_products,
    evaluate_reduce,
    evaluate_shapes,
    evaluate_values,
)
from wavedsl.ir.evaluator.evaluate_run import MEANINGS, Named, Run, meaning
from wavedsl.ir.evaluator.evaluate_values import widened
from wavedsl.ir.symbols import names

REGISTERED = (
    evaluate_control,
    evaluate_memory,
    evaluate_products,
    evaluate_reduce,
    evaluate_shapes,
    evaluate_values,
)
"""The files whose meanings importing this one registers; with messages, below, that is all of them."""


def evaluate(graph: Graph, arguments: Mapping[str, Any], values: Mapping[Any, Any], *, float64: bool = False) -> None:
    """Runs `graph` on `arguments` (NumPy arrays and numbers by name), changing the arrays that it writes.

    `values` gives an int for every symbol. Raises EmulationError where a device_assert fails, ConstraintError where a
    size cannot be, LaunchError for an array that cannot be written.
    """
    grid = [c.dim for c in graph.constraints if isinstance(c, WorkgroupConstraint)]
    if any(values.get(d) == 0 for d in grid):
        return  # no workgroup runs, whatever dimensions a value has
    run = Run(graph, arguments, values, float64)
    with np.errstate(all="ignore"):
        run.region(graph.region)
    run.finish()


@meaning("fence")
def _fence(run: Run, node: Node) -> None:
    return None


@meaning("join_parts")
def _join_parts(run: Run, node: Node) -> None:
    """What workgroups tell each other has no meaning for one of them: graphs are evaluated as they were traced."""
    raise CompileError("join_parts: evaluate the graph that was traced", node.loc)


@meaning("device_print")
def _print(run: Run, node: Node) -> None:
    text = node.attrs["text"]
    if not node.inputs:
        print(text)
    for source in node.inputs:
        value = run.whole(source)
        print(f"{text}{' ' if text else ''}[{names(value.dims)}] {source.dtype}")
        print(np.array2string(widened(value.array) if value.array.dtype.kind == "V" else value.array))


@meaning("device_assert")
def _assert(run: Run, node: Node) -> None:
    value = run.get(node.inputs[0])
    fails = run.everywhere(Named(value.dims, ~value.array))
    if not np.any(fails.array):
        return
    first = np.argwhere(np.atleast_1d(fails.array))[0]
    at = ", ".join(f"{d} = {run.span(d)[0] + int(i)}" for d, i in zip(fails.dims, first))
    message = node.attrs["message"] or "the condition does not hold"
    raise EmulationError(f"device_assert: {message}" + (f" (first at {at})" if at else ""), node.loc)


for _name, _row in ROWS.items():
    assert _row.compute is not None or _name in MEANINGS, f"operation {_name} has no NumPy meaning"
