"""How a product is carried out: one matrix instruction, its operands in which order and layouts.

`mma_options` ranks the instructions that fit, inference chooses among them (`infer.py`), `mma_plan` works one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from types import MappingProxyType

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.spread_products import Spread
from wavedsl.ir.dataflow.graph import Node, factors
from wavedsl.ir.dataflow.mma_dims import product_dims, scale_dim
from wavedsl.ir.inference.mma_tiles import LASTING, SharedOperands
from wavedsl.ir.layouts.chain import MmaOption
from wavedsl.ir.layouts.layout import Digit, Layout
from wavedsl.ir.layouts.mma_ports import (
    in_order,
    named_bits,
    paired_columns,
    port_layout,
    scale_layout,
    scaled_steps,
    side_by_side,
    straight_steps,
    whole_tile,
    wide_steps,
    without_placeholders,
)
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import MmaAtom, Target


@dataclass
class MmaPlan:
    """How one `mma` node is carried out. With `swapped`, the node's second operand feeds the atom's first port.

    `m`, `n`, `k` name the dimensions that the atom's M, N and K run along *after* the swap; `first`, `second` are the
    layouts its ports demand, `result` the layout it gives. `order`: bit i of the instruction's K is bit `order[i]` of
    the coordinate (None: as they come); it holds for both operands, so the product is the same.
    """

    node: Node
    atom: MmaAtom
    swapped: bool
    m: str
    n: str
    k: str
    first: Layout
    second: Layout
    result: Layout
    order: tuple[int, ...] | None = None
    a_shared: bool = False
    """Asynchronous instructions: A is a tile in shared memory, as B always is, and no fragment."""
    made: tuple[bool, bool] = (False, False)
    """Whether A and B are computed, and waves store them to shared memory."""
    held: bool = False
    """Whether A is computed and held in registers, of which a part of M is written anew while the products of another
    run (`product_pieces`), and B is computed and stored."""
    block: int = 0
    """Columns of B's tile in shared memory among which the first pairs of each four stand before the second pairs; the
    result has them as they lie there. 0: as they come."""
    deep: int = 0
    """Asynchronous instructions: elements of K that a wave contracts."""
    spread: Spread | None = None
    """How waves that share the contracted dimension share the result instead (`spread_products`)."""
    scales: tuple[Layout, Layout] | None = None
    """The layouts in which A's and B's scales are held, of a scaled product."""

    @property
    def in_shared(self) -> tuple[bool, bool]:
        """Whether the instruction itself reads its A and its B from shared memory."""
        return self.a_shared, self.atom.asynchronous

    @property
    def brought(self) -> tuple[bool, bool]:
        """Whether A and B are tiles in shared memory that reads bring there."""
        return self.a_shared and not self.made[0], self.atom.asynchronous and not self.made[1]

    @property
    def a(self) -> Mapping[str, str]:
        """The bits of the atom's A fragment, K in the order of the coordinate."""
        return in_order(self.atom.a, self.order)

    @property
    def b(self) -> Mapping[str, str]:
        return in_order(self.atom.b, self.order)

    @property
    def ports(self) -> tuple[Node, Node]:
        """The nodes that feed the atom's A and B ports."""
        a, b = (self.node.inputs[p] for p in self.positions)
        return a, b

    @property
    def positions(self) -> tuple[int, int]:
        """Where the atom's A and B stand among the node's operands; a scale stands behind its operand."""
        x, y = factors(self.node)
        return (y, x) if self.swapped else (x, y)


def may_group(atom: MmaAtom) -> bool:
    """Whether instructions of this kind may have rows dealt out among them (`side_rows`)."""
    plain = atom.parts == 1 and not atom.scale_block and not atom.asynchronous
    return plain and atom.instruction != "fma"


def mma_plan(
    node: Node,
    partition: Partition,
    target: Target,
    option: MmaOption,
    order: tuple[int, ...] | None,
    operands: SharedOperands,
    straight: bool = False,
    beside: Mapping[str, int] = MappingProxyType({}),
) -> MmaPlan:
    """One `mma` node by one option, with the K order that a chained operand asks for. `straight`: lanes take both
    operands from global memory, where K is contiguous. `beside`: dimensions of which lanes hold neighbours
    (`side_rows`), of products that the option's instruction suits."""
    atom, swap = option.atom, option.swap
    m, n, k = product_dims(node)
    if swap:
        m, n = n, m
    am_name, an_name, k_name = ("" if m is None else dim_name(m)), ("" if n is None else dim_name(n)), dim_name(k)
    sizes = operands.sizes(node, partition)
    wam, wan, wk = (sizes[d] if d is not None else 1 for d in (m, n, k))
    if atom.asynchronous:
        return _async_plan(node, target, option, (am_name, an_name, k_name), (wam, wan, wk), operands, partition)
    scales = None
    if atom.scale_block:
        step_bits, order = scaled_steps(atom, wk)
        blocks = [str(scale_dim(node, p, k)) for p in ((factors(node)[::-1]) if swap else factors(node))]
        scales = (
            scale_layout(atom, "M", am_name, wam, blocks[0], wk, step_bits, target),
            scale_layout(atom, "N", an_name, wan, blocks[1], wk, step_bits, target),
        )
    else:
        step_bits = wide_steps(atom, node.inputs[0].dtype, wk, target) if order is None else 0
        if straight and order is None and not step_bits and atom.parts == 1 and atom.instruction != "fma":
            step_bits, order = straight_steps(atom, node.inputs[0].dtype, wk)
    a, b = in_order(atom.a, order), in_order(atom.b, order)
    m_beside, n_beside = (
        beside.get(d, 0) if may_group(atom) and size % (box << beside.get(d, 0)) == 0 else 0
        for d, size, box in ((am_name, wam, atom.m), (an_name, wan, atom.n))
    )
    first = port_layout(a, "M", am_name, wam, atom, k_name, wk, step_bits, target, m_beside)
    second = port_layout(b, "N", an_name, wan, atom, k_name, wk, step_bits, target, n_beside)
    held = side_by_side(side_by_side(atom.d, "M", m_beside), "N", n_beside, m_beside)
    inner = named_bits(held, {"M": am_name or "_m", "N": an_name or "_n"}, target)
    digits, extents = [], {}
    for name, box, wave in ((am_name, atom.m << m_beside, wam), (an_name, atom.n << n_beside, wan)):
        if name:
            count = -(-wave // box)
            extents[name] = count * box
            if count > 1:
                digits.append(Digit("reg", count, name, 1))
    result = without_placeholders(inner, digits, extents, ("_m", "_n"))
    return MmaPlan(node, atom, swap, am_name, an_name, k_name, first, second, result, order, scales=scales)


def _async_plan(
    node: Node, target: Target, option: MmaOption, names: tuple[str, str, str], waves: tuple[int, int, int],
    operands: SharedOperands, partition: Partition,
) -> MmaPlan:  # fmt: skip
    """An asynchronous instruction's plan: tiles in shared memory have a nominal layout, which nothing is held in."""
    (m, n, k), (wave_m, wave_n, wave_k) = names, waves
    atom, swap = option.atom, option.swap
    a, b = (node.inputs[1], node.inputs[0]) if swap else node.inputs[:2]
    made_b = b.id not in operands.reads
    # With a computed B both lie in shared memory: nothing then holds back the next trip's registers.
    own = (node.id, 1 if swap else 0)
    stays = own in operands.lasting and wave_m * wave_k * a.dtype.bits >= LASTING * 32 * target.wave_size
    spread = operands.spread.get(node.id)
    held = made_b and own in operands.held and spread is None
    made_a = a.id not in operands.reads and own in operands.makeable and (made_b or stays or spread is not None)
    made_a = made_a and not held
    a_shared = (a.id in operands.reads and own not in operands.resident) or made_a
    sizes = {m: wave_m, n: wave_n, k: wave_k}
    if spread is not None:  # tiles are as wide as for other products
        plans = {dim_name(d): partition.dims[d].wave for x in node.inputs for d in x.dims}
        sizes = {d: plans[d] for d in names}

    def tile(x: Node) -> Layout:
        return whole_tile({dim_name(d): sizes[dim_name(d)] for d in x.dims}, target)

    first = tile(a) if a_shared else port_layout(atom.a, "M", m, wave_m, atom, k, wave_k, 0, target)
    columns = gcd(wave_n, atom.n)
    columns &= -columns
    block = columns if columns >= 16 and node.id in operands.paired and not swap and not made_b else 0
    columns_held = {**atom.d, "N": paired_columns(block)} if block else atom.d
    inner = named_bits(columns_held, {"M": m, "N": n}, target)
    digits = [Digit("reg", c, d, 1) for d, w in ((m, wave_m), (n, wave_n)) if (c := w // (1 << inner.width(d))) > 1]
    result = Layout(inner, tuple(digits), ((m, wave_m), (n, wave_n)))
    made = made_a, made_b
    return MmaPlan(node, atom, swap, m, n, k, first, tile(b), result, None, a_shared, made, held, block, wave_k, spread)
