"""Refuses kernels that drop what they compute because an assignment was meant to store it.

In: a traced graph and its function. Two mistakes leave no trace but what is missing: `z = …` for an array argument `z`,
which only names a value, and a loop whose result nobody uses while the value that it starts from is used behind it, as
if the loop had changed that one.
"""

from __future__ import annotations

import dis
import re
from types import CodeType

from wavedsl.ir.dataflow.graph import Graph, Node, Region, initial_values, region_nodes
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.errors import TraceError


def refuse_lost_results(graph: Graph, code: CodeType) -> None:
    """Raises TraceError where an array argument is assigned to and nothing else, or a loop runs for nothing."""
    touched: set[str] = set()
    used: set[int] = set()
    results: dict[int, list[int]] = {}
    loops: list[tuple[Node, Region]] = []
    for region in graph.regions():
        used.update(n.id for n in region.yields)
        for node in region.nodes:
            used.update(n.id for n in node.inputs if node.op != "result")
            if node.op == "result":
                results.setdefault(node.inputs[0].id, []).append(node.id)
            elif node.op == "iterate":
                loops.append((node, region))
            elif "memory" in node.attrs:
                touched.add(node.attrs["memory"])
    for argument in graph.arguments:
        if argument.kind == "memory" and argument.name not in touched and _assigns(code, argument.name):
            raise TraceError(
                f"kernel {graph.name} neither reads nor writes {argument.name}: an assignment to it names a value",
                argument.loc,
                hint=f"wd.write(value, {argument.name}) stores",
            )
    for loop, region in loops:
        if used.isdisjoint(results.get(loop.id, ())) and not _outcome(loop.attrs["body"]):
            _refuse_start(loop, region)


def _assigns(code: CodeType, name: str) -> bool:
    return any(i.opname in ("STORE_FAST", "STORE_DEREF") and i.argval == name for i in dis.get_instructions(code))


def _outcome(body: Region) -> bool:
    """Whether a loop does anything but compute what it carries."""
    return any(ROWS[n.op].effect and "body" not in n.attrs and n.op != "fence" for n in region_nodes(body))


def _refuse_start(loop: Node, region: Region) -> None:
    """Raises TraceError where what is behind a loop uses a value that the loop starts from."""
    starts = {n.id for n in initial_values(loop)}
    behind = (n for node in region.nodes[region.nodes.index(loop) + 1 :] for n in (node, *_inside(node)))
    use = next((n for n in behind if any(x.id in starts for x in n.inputs)), None)
    if use is None:
        return
    body = loop.attrs["body"]
    name = re.search(r"\bdef (\w+)", body.loc.text()) if body.loc is not None else None
    raise TraceError(
        f"{use.op}: the value that the loop over {body.dim} starts from, and nothing uses what the loop gives",
        use.loc,
        hint=f"a loop changes no value: its result is {name[1] if name else 'the name of its function'}",
    )


def _inside(node: Node) -> tuple[Node, ...]:
    body = node.attrs.get("body")
    return () if body is None else tuple(region_nodes(body))
