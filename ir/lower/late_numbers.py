"""Random numbers are made where they are used, one after the other, so they take no registers of their own.

In: a `random` node, or arithmetic on nothing but random numbers and single ones (`random(...) >= 0.1`). Out: whether
its elements are promises (`fragment.Lazy`) that are kept when a reader asks for them. Numbers depend on nothing but
seed and place, so a schedule has them ready long before what they are combined with: those of a whole tile, as many as
its scores, would wait in registers until then.

Invariant: all that asks is arithmetic element by element, or the one write, of the same region, so what the first
reader has made is there for all others.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Node
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_tile
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.lower.lowering import Lowering


def is_late_number(low: Lowering, n: Node) -> bool:
    """Whether a node's elements are made when they are asked for."""
    known = low.late_numbers
    for x in postorder(n, lambda x: x.inputs if by_element(x) and x.dims else (), known):
        known[x.id] = _is_late(low, x)
    return known[n.id]


def _is_late(low: Lowering, n: Node) -> bool:
    """The same, where it is known of what the node is made of."""
    if not (n.op == "random" or by_element(n)) or not n.dims or not _of_numbers(low, n):
        return False
    region, users = low.region_of(n), low.users().get(n.id, [])
    if n in region.yields or any(low.region_of(u) is not region for u in users):
        return False
    if [u.op for u in users] == ["write"]:
        return is_tile(low.graph, users[0]) and _as_it_lies(low, users[0], n)
    return bool(users) and all(by_element(u) and _as_it_lies(low, u, n) for u in users)


def by_element(n: Node) -> bool:
    """Whether a node is lowered element by element."""
    whole = n.op in PRODUCTS or n.op in REGIONS or n.op in ("carry", "result", "bitcast")
    return not whole and ROWS[n.op].index_rule in ("same", "lift", "relabel")


def _of_numbers(low: Lowering, n: Node) -> bool:
    """Whether a node is random numbers, or made of them and of single numbers only."""
    if n.op == "random":
        return True
    found = False
    for i, x in enumerate(n.inputs):
        if not x.dims or x.op in ("fill", "constant"):
            continue
        if (n.id, i) in low.inference.demands or not low.late_numbers[x.id]:
            return False
        found = True
    return found


def _as_it_lies(low: Lowering, user: Node, n: Node) -> bool:
    """Whether a user takes a value in the layout that it has."""
    return all((user.id, i) not in low.inference.demands for i, x in enumerate(user.inputs) if x is n)
