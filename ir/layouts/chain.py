"""Chained matrix products: which instruction, operand order and K permutation each takes, chosen together.

In: the `mma` nodes of a graph, which operand of which comes (through elementwise steps) from another one, the options
of each. Out: a plan per node.

The idea: D = A B does not change when its operands swap roles (Dᵀ = Bᵀ Aᵀ) nor under a permutation of the contraction
index that both operands share. So the result of one product is an operand of the next without a move whenever its
lanes address the same rows and *some* bits of K: registers and the other operand's read absorb the rest. Every
combination of options is priced: cycles of the matrix unit, moves of the operand, and moves of what the two results
share, such as statistics of a row.

Invariant: a product that nothing feeds and that feeds nothing takes its first option, as if it were alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from math import inf
from typing import Any

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import Bits, kind_of, number_of, spec, unify_k
from wavedsl.ir.layouts.convert import plan_convert
from wavedsl.ir.layouts.layout import Digit, Layout
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import MmaAtom

COMBINATIONS = 64
"""Most combinations of options that are tried for one chain; the last options of each product are left out first, but
never all of an operand order."""

EXCHANGE_CLOCKS = 16
"""Clocks of a wave to move one register to another lane, selects included."""


@dataclass(frozen=True)
class MmaOption:
    """One way to carry out a product alone. `key` orders them, cheapest first; its first item counts clocks."""

    key: tuple[Any, ...]
    atom: MmaAtom
    swap: bool


Build = Callable[[Node, MmaOption, "tuple[int, ...] | None"], Any]
"""(node, option, K order) → `MmaPlan`. K order: bit i of the instruction's K is bit `order[i]` of the coordinate."""


def choose_chains(
    nodes: Sequence[Node],
    feeds: Mapping[tuple[int, int], int],
    meets: Mapping[int, int],
    options: Mapping[int, Sequence[MmaOption]],
    build: Build,
    alike: bool = False,
) -> dict[int, Any]:
    """A plan for every product. `feeds` maps (node id, input position) to the id of the product that the operand is
    made of; products with the same number in `meets` must have the same result layout. `alike`: these have such options
    only as leave their results alike, whatever they take alone."""
    if alike:
        options = _alike(nodes, meets, options, build)
    group = {n.id: n.id for n in nodes}

    def root(x: int) -> int:
        while group[x] != x:
            x = group[x]
        return x

    first_of: dict[int, int] = {}
    pairs = [(user, producer) for (user, _), producer in feeds.items()]
    pairs += [(n.id, first_of.setdefault(meets[n.id], n.id)) for n in nodes]
    for user, producer in pairs:
        a, b = root(user), root(producer)
        group[max(a, b)] = min(a, b)
    chains: dict[int, list[Node]] = {}
    for n in nodes:
        chains.setdefault(root(n.id), []).append(n)
    plans: dict[int, Any] = {}
    built, moved = cache(build), cache(move_clocks)  # combinations have many products, and moves, in common
    for chain in chains.values():
        if not any((n.id, p) in feeds for n in chain for p in (0, 1)):
            plans |= {n.id: build(n, options[n.id][0], None) for n in chain}
            continue
        most = max(1, int(COMBINATIONS ** (1 / len(chain)) + 1e-9))
        best: tuple[Any, dict[int, Any]] | None = None
        for picked in product(*(_tried(options[n.id], most) for n in chain)):
            if best is not None and sum(o.key[0] for o in picked) > best[0][0]:
                continue
            made, cost = _price(chain, feeds, meets, picked, built, moved)
            key = (cost, tuple(o.key[1:] for o in picked))
            if best is None or key < best[0]:
                best = (key, made)
        assert best is not None
        plans |= best[1]
    return plans


def _alike(
    nodes: Sequence[Node], meets: Mapping[int, int], options: Mapping[int, Sequence[MmaOption]], build: Build
) -> dict[int, Sequence[MmaOption]]:
    """The options of products that meet which leave the result that all of them can leave in the fewest clocks; all
    options where there is no such result."""
    found = dict(options)
    groups: dict[int, list[Node]] = {}
    for n in nodes:
        groups.setdefault(meets[n.id], []).append(n)
    for group in groups.values():
        by_result = [_by_result(n, options[n.id], build) for n in group]
        shared = [r for r in by_result[0] if all(r in other for other in by_result)]
        if len(group) > 1 and shared:
            best = min(shared, key=lambda r: sum(other[r][0].key[0] for other in by_result))
            found |= {n.id: other[best] for n, other in zip(group, by_result)}
    return found


def _by_result(n: Node, options: Sequence[MmaOption], build: Build) -> dict[Layout, list[MmaOption]]:
    found: dict[Layout, list[MmaOption]] = {}
    for option in options:
        found.setdefault(build(n, option, None).result, []).append(option)
    return found


def _tried(options: Sequence[MmaOption], most: int) -> list[MmaOption]:
    """The best `most` options, or all but the last of these and the best of the order that is not among them: what one
    product leaves is what the next one takes in one of the orders, whichever the instruction."""
    found = list(options[:most])
    other = next((o for o in options[most:] if o.swap != options[0].swap), None)
    if most > 1 and other is not None and all(o.swap == options[0].swap for o in found):
        found[-1] = other
    return found


def _price(
    chain: Sequence[Node],
    feeds: Mapping[tuple[int, int], int],
    meets: Mapping[int, int],
    picked: Sequence[MmaOption],
    build: Build,
    move: Callable[[Layout, Layout, int], float],
) -> tuple[dict[int, Any], float]:
    """The plans of one combination and their clocks, moves included."""
    results: dict[int, Layout] = {}
    chosen = {n.id: o for n, o in zip(chain, picked)}
    made: dict[int, Any] = {}
    cost = 0.0
    for n in chain:
        option = chosen[n.id]
        order = None
        for position in (0, 1):
            producer = made.get(feeds.get((n.id, position), -1))
            if producer is not None and order is None:
                order = k_order(producer.result, n, position, option)
        plan = build(n, option, order)
        made[n.id] = plan
        cost += option.key[0]
        if results.setdefault(meets[n.id], plan.result) != plan.result:
            cost = inf
        for position in (0, 1):
            producer = made.get(feeds.get((n.id, position), -1))
            if producer is None or producer is plan or plan.spread is not None:  # it is stored to shared memory
                continue
            port = plan.second if (position == 1) != option.swap else plan.first
            cost += move(producer.result, port, n.inputs[position].dtype.bits)
            shared = [d for d in producer.result.dims if d in plan.result.dims]
            if shared:
                cost += move(_keep(producer.result, shared), _keep(plan.result, shared), 32)
    return made, cost


def _keep(layout: Layout, dims: Sequence[str]) -> Layout:
    for d in layout.dims:
        if d not in dims:
            layout = layout.project(d)
    return layout


def move_clocks(source: Layout, wanted: Layout, bits: int) -> float:
    """What a conversion costs a wave, roughly."""
    words = max(1, source.elements_per_lane * bits // 32)
    try:
        plan = plan_convert(source, wanted, max(1, bits // 8))
    except CompileError:  # extents differ by padding
        return float(2 * EXCHANGE_CLOCKS * words)
    if plan.kind == "shared memory":
        return float(2 * EXCHANGE_CLOCKS * words)
    return EXCHANGE_CLOCKS * words * (plan.exchanges / 2 + plan.shuffles) + 4.0 * plan.permutes


def k_order(producer: Layout, node: Node, position: int, option: MmaOption) -> tuple[int, ...] | None:
    """The K permutation with which `producer` feeds an operand without a move between lanes; None if there is none.

    Only permutations within one instruction's K are used, so that the steps along K stay those of the coordinate.
    """
    atom, swap = option.atom, option.swap
    first = (position == 0) != swap
    strings, side = (atom.a, "M") if first else (atom.b, "N")
    operand = node.inputs[position]
    rows = [dim_name(d) for d in operand.dims if d in node.dims]
    columns = [dim_name(d) for d in operand.dims if d not in node.dims]
    if len(rows) != 1 or len(columns) != 1:
        return None
    if not all(strings.get(x, "").strip() for x in ("K", side)):  # an operand that comes from shared memory alone
        return None
    port = spec({rows[0]: strings[side], columns[0]: strings["K"]})
    bits = with_digits(producer)
    if not bits.monomial():
        return None
    found = unify_k(bits, port, columns[0])
    if found is None:
        return None
    order = tuple(number_of(held) for _, held in sorted((number_of(o), held) for o, held in found[0].items()))
    return order if sorted(order) == list(range(len(strings["K"].split()))) else None


def with_digits(layout: Layout) -> Bits:
    """The layout's map with the power-of-two part of each register digit as bits."""
    inner = layout.inner
    number = 1 + max((number_of(b) for b in inner.ins if kind_of(b) == "r"), default=-1)
    for d in layout.dims:
        digits = [g for g in layout.digits if g.dim == d and g.kind == "reg"]
        if [g.stride for g in digits] != [1]:
            continue
        count = (digits[0].extent & -digits[0].extent).bit_length() - 1
        inner = inner.append(d, " ".join(f"r{number + i}" for i in range(count)))
        number += count
    return inner


def absorbed(layout: Layout) -> Layout:
    """The same distribution with power-of-two register digits as bits of the box. The order of elements may change."""
    inner = with_digits(layout)
    digits = []
    for g in layout.digits:
        grown = inner.width(g.dim) - layout.inner.width(g.dim) if g.dim else 0
        if g.kind == "reg" and g.stride == 1 and grown:
            if g.extent >> grown > 1:
                digits.append(Digit("reg", g.extent >> grown, g.dim, 1))
        elif grown:
            digits.append(Digit(g.kind, g.extent, g.dim, g.stride >> grown))
        else:
            digits.append(g)
    return Layout(inner, tuple(digits), layout.extents)


__all__ = ["MmaOption", "absorbed", "choose_chains", "k_order", "move_clocks", "with_digits"]
