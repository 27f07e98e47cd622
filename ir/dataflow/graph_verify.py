"""Verifier of the dataflow graph, run after tracing and after each pass that changes it.

What it holds a graph to:
DOM     every input of a node comes before it, in its own region or in one that encloses it.
IDS     ids are unique.
TYPE    every node's type follows from its row, its inputs and its attributes.
LOOP    a loop has as many inputs, carries, yields and types, equal up to the order of dimensions; then its bounds.
CLOSED  a region's yields are values of that region or of one that encloses it.
RESULT  a node with several results is used by `result` nodes only.
ARG     memories and scalars that nodes name are arguments of the right kind.
LOC     every node has a location.
"""

from __future__ import annotations

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import REGIONS, Graph, Node, Region, ValueType, initial_values, next_values
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.errors import CompileError, WaveError


def verify_graph(graph: Graph, after: str = "tracing") -> None:
    """Raises CompileError naming the first node that breaks a rule; `after` says which pass is to blame."""
    problems = graph_problems(graph)
    if problems:
        node, text = problems[0]
        raise CompileError(
            f"the dataflow graph is wrong after {after}: {text}",
            node.loc if node is not None else graph.loc,
            hint="this is a bug of the compiler, not of the kernel",
        )


def graph_problems(graph: Graph) -> list[tuple[Node | None, str]]:
    """Everything wrong with a graph, as (node, sentence) pairs; empty for a good one."""
    problems: list[tuple[Node | None, str]] = []
    seen: set[int] = set()
    memories = {a.name for a in graph.arguments if a.kind == "memory"}
    scalars = {a.name for a in graph.arguments if a.kind == "scalar"}

    def define(node: Node, visible: set[int]) -> None:
        if node.id in seen:
            problems.append((node, f"IDS {node!r}: the id is used twice"))
        seen.add(node.id)
        visible.add(node.id)
        if node.loc is None:
            problems.append((node, f"LOC {node!r} has no location"))

    def visit(region: Region, outer: set[int]) -> None:
        visible = set(outer)
        for position, carry in enumerate(region.carries):
            define(carry, visible)
            if carry.op != "carry" or carry.attrs.get("position") != position:
                problems.append((carry, f"LOOP {carry!r} is no carry in place {position}"))
        for node in region.nodes:
            for value in node.inputs:
                if value.id not in visible:
                    problems.append((node, f"DOM {node!r} uses {value!r}, which is not defined there"))
                if isinstance(value.type, tuple) and node.op != "result":
                    problems.append((node, f"RESULT {node!r} uses all results of {value!r}"))
                if value.type is None:
                    problems.append((node, f"TYPE {node!r} uses {value!r}, which has no value"))
            body = node.attrs.get("body")
            if body is not None:
                visit(body, visible)
            check(node)
            define(node, visible)
        for value in region.yields:
            if value.id not in visible:
                problems.append((value, f"CLOSED {value!r} is yielded where it is not defined"))

    def check(node: Node) -> None:
        row = ROWS.get(node.op)
        if row is None:
            problems.append((node, f"TYPE {node!r} has no row"))
            return
        memory = node.attrs.get("memory")
        if memory is not None and memory not in memories:
            problems.append((node, f"ARG {node!r} names {memory}, which is no array argument"))
            return
        if node.op == "scalar" and node.attrs["name"] not in scalars:
            problems.append((node, f"ARG {node!r} names {node.attrs['name']}, which is no scalar argument"))
            return
        if node.op in REGIONS:
            loop(node)
        if node.op != "result" and not all(isinstance(i.type, ValueType) for i in node.inputs):
            return  # RESULT and TYPE of the inputs have said so already
        try:
            derived = row.rule([i.type for i in node.inputs], node.attrs, graph)  # type: ignore[misc]
        except WaveError as error:
            problems.append((node, f"TYPE {node!r}: {error.message}"))
            return
        if not _agree(derived, node.type):
            problems.append((node, f"TYPE {node!r} is {node.type}, its row says {derived}"))

    def loop(node: Node) -> None:
        body: Region = node.attrs["body"]
        bounds = [i for i in node.attrs.get("bounds", ()) if i is not None]
        if node.op == "iterate" and bounds != list(range(len(body.carries), len(node.inputs))):
            problems.append((node, f"LOOP {node!r}: its bounds are not the inputs after the carried ones"))
        for i in bounds:
            if i < len(node.inputs) and node.inputs[i].type != ValueType((), dt.i32):
                problems.append((node, f"LOOP {node!r}: a bound is {node.inputs[i].type}"))
        inits, nexts = initial_values(node), next_values(node)
        counts = {len(inits), len(body.carries), len(nexts)}
        if len(counts) != 1 or not isinstance(node.type, tuple) or len(node.type) not in counts:
            problems.append((node, f"LOOP {node!r}: inputs, carries, yields and results differ in number"))
            return
        for init, carry, value, result in zip(inits, body.carries, nexts, node.type):
            for other in (carry.type, value.type, result):
                if not _agree(init.type, other):
                    problems.append((node, f"LOOP {node!r}: {init.type} is carried as {other}"))

    visit(graph.region, set())
    return problems


def _agree(a: object, b: object) -> bool:
    if isinstance(a, ValueType) and isinstance(b, ValueType):
        return a.same_as(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_agree(x, y) for x, y in zip(a, b))
    return a is None and b is None
