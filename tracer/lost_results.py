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
    touched = {n.attrs["memory"] for n in graph.all_nodes() if "memory" in n.attrs}
    for argument in graph.arguments:
        if argument.kind == "memory" and argument.name not in touched and _assigns(code, argument.name):
            raise TraceError(
                f"kernel {graph.name} neither reads nor writes {argument.name}: an assignment to it names a value",
                argument.loc,
                hint=f"wd.write(value, {argument.name}) stores",
            )
    for region in graph.regions():
        for node in region.nodes:
            if node.op == "iterate" and not _outcome(node.attrs["body"]):
                _refuse_start(node, region)


def _assigns(code: CodeType, name: str) -> bool:
    return any(i.opname in ("STORE_FAST", "STORE_DEREF") and i.argval == name for i in dis.get_instructions(code))


def _outcome(body: Region) -> bool:
    """Whether a loop does anything but compute what it carries."""
    return any(ROWS[n.op].effect and "body" not in n.attrs and n.op != "fence" for n in region_nodes(body))


def _refuse_start(loop: Node, region: Region) -> None:
    at = region.nodes.index(loop)
    behind = [n for node in region.nodes[at + 1 :] for n in (node, *_inside(node))]
    results = {n.id for n in behind if n.op == "result" and n.inputs[0] is loop}
    ends = {n.id for r in (region, *(n.attrs["body"] for n in behind if "body" in n.attrs)) for n in r.yields}
    if results & (ends | {x.id for n in behind for x in n.inputs}):
        return
    starts = {n.id for n in initial_values(loop)}
    use = next((n for n in behind if any(x.id in starts for x in n.inputs)), None)
    if use is None:
        return
    body = loop.attrs["body"]
    name = re.search(r"\bdef (\w+)", body.loc.text()) if body.loc is not None else None
    what = name[1] if name else "the name of its function"
    raise TraceError(
        f"{use.op}: the value that the loop over {body.dim} starts from, and nothing uses what the loop gives",
        use.loc,
        hint=f"a loop changes no value: its result is {what}",
    )


def _inside(node: Node) -> tuple[Node, ...]:
    body = node.attrs.get("body")
    return () if body is None else tuple(region_nodes(body))
