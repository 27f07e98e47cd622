"""The way from a call to a compiled kernel through the cache on disk.

A kernel is traced in any case (milliseconds); the traced graph holds all that its source, its helpers, its closures and
globals amounted to, so the key needs no look at files. What is stored is the JSON of `CompiledKernel.to_json`.

Invariant: a kernel from the cache has the text that compiling now would print.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import wavedsl
from wavedsl.ir import trail
from wavedsl.ir.dataflow.graph import Graph, Node, node_text
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime import cache

_FILE = "kernel.json"


def compile_cached(kernel: Any, arguments: Mapping[str, Any], target: str, why: str = "", asked: bool = False) -> Any:
    """The `CompiledKernel` for these arguments, from the cache if it is there. Raises what `Kernel.compile` raises.

    One from the cache has no `kernel_ir`; it has the graph that was traced to find it. Under WAVEDSL_STRICT a kernel
    that is in no cache is a LaunchError, unless it is `asked` for.
    """
    from wavedsl.compile_policy import log, strict
    from wavedsl.compiled_kernel import from_json

    graph = kernel.trace()
    parts = key_parts(kernel, graph, arguments, target)
    key = cache.key_of(parts)
    files = None if trail.asked() else cache.load(key)  # a compile that is to be looked at must happen
    if files is not None and _FILE in files:
        compiled = from_json(json.loads(files[_FILE]))
        compiled.graph = graph
        compiled.location = kernel.loc
        log("%s for %s comes from the cache on disk: %s", kernel.name, target, why)
        return compiled
    if strict() and not asked:
        raise LaunchError(
            f"{kernel.name} is not compiled for {target}: {why}, and WAVEDSL_STRICT forbids to compile in a call",
            kernel.loc,
            hint=f"compile it ahead: {kernel.name}.precompile(…)",
        )
    from wavedsl.compiler import compile_kernel

    started = time.perf_counter()
    compiled = compile_kernel(kernel, arguments, target=target)
    log("compiled %s for %s in %.0f ms: %s", kernel.name, target, 1e3 * (time.perf_counter() - started), why)
    stored = json.dumps(compiled.to_json()).encode()
    cache.store(key, {_FILE: stored}, name=kernel.name, target=target, parts=parts)
    return compiled


def key_parts(kernel: Any, graph: Graph, arguments: Mapping[str, Any], target: str) -> dict[str, str]:
    """What the compiled text depends on, by the names that `wavedsl cache why` shows."""
    from wavedsl.argument_facts import describe_arguments

    binding = kernel.binding(arguments)
    arrays, params, _ = describe_arguments(graph, binding.dims, arguments)
    return {
        "graph": graph_text(graph),
        "constraints": repr([(c, getattr(c, "loc", None)) for c in kernel.constraints]),
        "bindings": repr(sorted((str(k), str(getattr(v, "value", v))) for k, v in binding.dims.items())),
        "arguments": repr([arrays, params]),
        "schedule": repr(kernel.schedule),
        "target": target,
        "compiler": f"{wavedsl.__version__} {cache.package_stamp()}",
    }


def graph_text(graph: Graph) -> str:
    """Every fact of a graph as text: nodes with all attributes and the full location that the target text may quote."""
    lines = [graph.name, *(str(a) for a in graph.arguments), repr(graph.dynamic)]
    for node in graph.all_nodes():
        lines.append(f"{node_text(node)} | {_attributes(node)} | {node.loc!r}")
    return "\n".join(lines)


def _attributes(node: Node) -> str:
    shown = []
    for key, value in sorted(node.attrs.items()):
        if key == "body":
            body = f"{[v.id for v in value.carries]} {[v.id for v in value.nodes]} {[v.id for v in value.yields]}"
            shown.append(f"{key}={body}")
        elif hasattr(value, "coords"):
            shown.append(f"{key}={value.dims} {value.coords}")
        else:
            shown.append(f"{key}={value!r}")
    return ", ".join(shown)
