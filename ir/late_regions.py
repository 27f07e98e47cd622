"""Where values are computed as they are used, on chips whose asynchronous products fill half of the registers."""

from __future__ import annotations

from wavedsl.ir.constraints import TurnConstraint
from wavedsl.ir.graph import PRODUCTS, REGIONS, Graph, Region, region_nodes


def late_regions(graph: Graph) -> set[int]:
    """Regions, by `id`, whose values may be computed where they are used: the outermost one where all inside it are
    loops, and loops that place a workgroup's tile; else branches without products, and what is inside them. A loop
    that ends by itself and all in it is none."""
    turns = {c.dim for c in graph.constraints if isinstance(c, TurnConstraint)}
    plain = all(n.op not in REGIONS or n.op == "iterate" for n in graph.all_nodes())
    found = {id(graph.region)} if plain else set()

    def visit(region: Region, inside: bool) -> None:
        for n in region.nodes:
            body = n.attrs.get("body") if n.op in ("when", "iterate") else None
            if body is None:
                continue
            behind = inside or (n.op == "when" and all(x.op not in PRODUCTS for x in region_nodes(body)))
            places = plain and body.dim in turns and all(x.op not in PRODUCTS for x in body.nodes)
            if behind or places:
                found.add(id(body))
            visit(body, behind)

    visit(graph.region, False)
    return found


__all__ = ["late_regions"]
