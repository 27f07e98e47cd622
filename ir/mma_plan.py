"""How products are carried out: which matrix instruction, with its operands in which order and layouts. (middle.md §3)

`mma_options` ranks the instructions that fit a product; `mma_plan` works one of them out; `fma_atom` stands in where a
chip has no instruction. Inference chooses among them (`infer.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.bits import spec, with_bits
from wavedsl.ir.chain import MmaOption
from wavedsl.ir.column_pairs import NO_ROWS, Rows, may_take, turned
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.graph import Graph, Node, factors
from wavedsl.ir.layout import Digit, Layout
from wavedsl.ir.ops import MX_BLOCK, ROWS, scale_block
from wavedsl.ir.partition import Partition
from wavedsl.ir.symbols import AddressSpace, dim_name
from wavedsl.ir.target import VECTOR_BYTES, MmaAtom, Target, lacking
from wavedsl.ir.views import is_tile, placement

STORED_CLOCKS = 1 / 64
"""Clocks per element that storing a computed operand to shared memory costs beside the matrix unit: two bytes of the
128 that an SM stores in a clock."""


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
    block: int = 0
    """Columns of B's tile in shared memory among which the first pairs of each four stand before the second pairs; the
    result has them as they lie there. 0: as they come."""
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


def mma_options(
    node: Node,
    partition: Partition,
    target: Target,
    hardware: Any = None,
    contiguous: str | None = None,
    read_tiles: frozenset[int] = frozenset(),
    made_tiles: frozenset[tuple[int, int]] = frozenset(),
    rows: Rows = NO_ROWS,
) -> list[MmaOption]:
    """Atoms and operand orders of one `mma` node, best first.

    Fewest matrix-unit cycles for the wave's tile first, then what takes words of two columns (`MmaAtom.parts`) of an
    operand that would have to be turned, then the widest store along `contiguous` (the memory-contiguous dimension the
    result is written along, if known), then no swap. `rows`: reads whose rows are contiguous in memory, by id, and
    along which dimension; instructions of column pairs are for these alone. Raises ConstraintError where none fits.
    """
    a, b = (node.inputs[p] for p in factors(node))
    m, n, k = _product_dims(node)
    wm, wn, wk = (partition.dims[d].wave if d is not None else 1 for d in (m, n, k))
    wanted = getattr(hardware, "mma_type", None)
    wanted_name = getattr(wanted, "name", wanted)
    asked = {d: v for d in (m, n, k) if d is not None and (v := partition.dims[d].vector) is not None}
    candidates = _candidates(a.dtype, b.dtype, node.dtype, target, wanted_name, wm, wn, node.op == "scaled_mma")
    found = []
    pairs = any(atom.parts > 1 for atom, _ in candidates)
    misfits: list[str] = []
    for i, (atom, swap) in enumerate(candidates):
        if atom.asynchronous:
            ends = (n, m) if swap else (m, n)
            stored = (node.id, 0 if swap else 1) in made_tiles
            misfit = async_misfit(atom, partition, ends, k, a if swap else b, read_tiles, stored)
            if misfit:
                misfits.append(misfit)
                continue
        ports = [(x, "" if d is None else dim_name(d)) for x, d in (((b, n), (a, m)) if swap else ((a, m), (b, n)))]
        if not may_take(atom, ports, rows):
            continue
        am, an = (atom.n, atom.m) if swap else (atom.m, atom.n)
        if asked and any(asked.get(d, size) % size for d, size in ((m, am), (n, an), (k, atom.k))):
            continue
        issues = -(-wm // am) * -(-wn // an) * -(-wk // atom.k)
        d = {str(m): atom.d["N" if swap else "M"], str(n): atom.d["M" if swap else "N"]}
        width = _leading_elements(d.get(contiguous or "", ""))
        clocks = float(issues * atom.cycles)
        if atom.asynchronous and (a if swap else b).id not in read_tiles:
            both = a.id not in read_tiles and b.id not in read_tiles
            clocks += STORED_CLOCKS * (wm + wn if both else wm if swap else wn) * wk
        turns = turned(atom, ports, dim_name(k), rows) if pairs else 0
        found.append(MmaOption((clocks, turns, -width, swap, i), atom, swap))
    if not found and misfits and len(misfits) == len(candidates):
        raise ConstraintError(
            f"no matrix instruction of a warpgroup of {target.name} fits: {misfits[0]}",
            node.loc,
            "see WorkgroupConstraint, WaveConstraint and TilingConstraint, or use threads_per_wave=32",
        )
    if not found and candidates:
        raise ConstraintError(
            f"vector_shapes={{{', '.join(f'{d}: {v}' for d, v in asked.items())}}} fits no matrix instruction of "
            f"{target.name} for {a.dtype.name} x {b.dtype.name} -> {node.dtype.name}",
            getattr(hardware, "loc", None),
            f"multiples of {' or '.join(dict.fromkeys(f'{t.m} x {t.n} x {t.k}' for t, _ in candidates))}",
        )
    if not found:
        _no_atom(node, a.dtype, b.dtype, target, wanted_name)
    return sorted(found, key=lambda o: o.key)


def async_misfit(
    atom: MmaAtom,
    partition: Partition,
    ends: tuple[Any, Any],
    k: Any,
    second: Node,
    read_tiles: frozenset[int],
    stored: bool = False,
) -> str:
    """Why an asynchronous instruction cannot carry out a product; empty if it can."""
    if None in ends:
        return "an operand has no dimension of its own"
    for d, size, what in ((ends[0], atom.m, "rows"), (ends[1], atom.n, "columns"), (k, atom.k, "deep")):
        if partition.dims[d].wave % size:
            return f"a wave's {partition.dims[d].wave} elements of {d} are no multiple of {size} {what}"
    if second.id not in read_tiles and not stored:
        return "neither operand is an array's tile that can lie in shared memory"
    return ""


def shared_reads(graph: Graph) -> frozenset[int]:
    """Reads that matrix instructions may take straight from shared memory: of whole bytes, used by products alone."""
    users: dict[int, list[tuple[Node, int]]] = {}
    for n in graph.all_nodes():
        for position, x in enumerate(n.inputs):
            users.setdefault(x.id, []).append((n, position))
    found = set()
    for n in graph.all_nodes():
        if n.op != "read" or n.dtype.bits < 8 or len(n.dims) != 2 or not is_tile(graph, n):
            continue
        space = graph.argument(n.attrs["memory"]).address_space
        if graph.subs.get(space, space) is AddressSpace.GLOBAL:
            continue
        if all(u.op == "mma" and position < 2 for u, position in users.get(n.id, ())):
            found.add(n.id)
    return frozenset(found)


def makeable(graph: Graph) -> frozenset[tuple[int, int]]:
    """(product, input position) of operands that waves may leave in shared memory: of whole bytes, computed element by
    element from arrays and constants in the region of the product."""
    plain: dict[int, bool] = {}

    def elementwise(x: Node) -> bool:
        found = plain.get(x.id)
        if found is None:
            source = x.op in ("read", "constant", "fill", "scalar", "size", "index")
            found = source or (x.op in ROWS and ROWS[x.op].index_rule == "same" and all(map(elementwise, x.inputs)))
            plain[x.id] = found
        return found

    out = set()
    for region in graph.regions():
        inside = {n.id for n in region.nodes}
        for n in region.nodes:
            if n.op != "mma":
                continue
            for position, x in enumerate(n.inputs[:2]):
                computed = x.op not in ("read", "constant", "fill") and x.id in inside
                if computed and len(x.dims) == 2 and x.dtype.bits >= 8 and elementwise(x):
                    out.add((n.id, position))
    return frozenset(out)


LASTING = 64
"""Registers per lane from which on an operand that a loop does not change is better stored once and read from shared
memory in every trip: with sums of a head size of 256 they do not fit beside what a trip computes."""


def lasting_operands(graph: Graph, made_tiles: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Those of `makeable` that do not have the dimension of the loop around their product."""
    return frozenset(
        (n.id, position)
        for region in graph.regions()
        for n in region.nodes
        for position in (0, 1)
        if (n.id, position) in made_tiles and region.dim is not None and region.dim not in n.inputs[position].dims
    )


def _product_dims(node: Node) -> tuple[Any, Any, Any]:
    """The dimensions (M, N, K) of a product; M or N is None where an operand has only K."""
    a, b = (node.inputs[p] for p in factors(node))
    result_dims = list(node.dims)
    shared = [d for d in a.dims if d in b.dims]
    k_dims = [d for d in shared if d not in result_dims]
    m_dims = [d for d in a.dims if d in result_dims and d not in shared]
    n_dims = [d for d in b.dims if d in result_dims and d not in shared]
    if len(k_dims) != 1 or len(m_dims) > 1 or len(n_dims) > 1 or any(d in result_dims for d in shared):
        raise CompileError(
            f"mma of [{_names(a.dims)}] and [{_names(b.dims)}] to [{_names(result_dims)}]: "
            "a matrix instruction takes one dimension of each operand and one that both contract",
            node.loc,
            "make batch dimensions index dimensions (workgroup tile 1)",
        )
    return m_dims[0] if m_dims else None, n_dims[0] if n_dims else None, k_dims[0]


def mma_plan(
    node: Node,
    partition: Partition,
    target: Target,
    option: MmaOption,
    order: tuple[int, ...] | None = None,
    read_tiles: frozenset[int] = frozenset(),
    made_tiles: frozenset[tuple[int, int]] = frozenset(),
    paired: frozenset[int] = frozenset(),
    lasting: frozenset[tuple[int, int]] = frozenset(),
) -> MmaPlan:
    """One `mma` node by one option, with the K order that a chained operand asks for. `paired`, `lasting`: what
    `paired_products` and `lasting_operands` have found."""
    atom, swap = option.atom, option.swap
    m, n, k = _product_dims(node)
    if swap:
        m, n = n, m
    am_name, an_name, k_name = ("" if m is None else dim_name(m)), ("" if n is None else dim_name(n)), dim_name(k)
    wam, wan, wk = (partition.dims[d].wave if d is not None else 1 for d in (m, n, k))
    if atom.asynchronous:
        names = (am_name, an_name, k_name)
        return _async_plan(node, target, atom, swap, names, (wam, wan, wk), read_tiles, made_tiles, paired, lasting)
    scales = None
    if atom.scale_block:
        step_bits, order = _scaled_steps(atom, wk)
        blocks = [str(scale_dim(node, p, k)) for p in ((factors(node)[::-1]) if swap else factors(node))]
        scales = (
            _scale_layout(atom, atom.m, am_name, wam, blocks[0], wk, step_bits, target),
            _scale_layout(atom, atom.n, an_name, wan, blocks[1], wk, step_bits, target),
        )
    else:
        step_bits = _wide_steps(atom, node.inputs[0].dtype, wk, target) if order is None else 0
    a, b = in_order(atom.a, order), in_order(atom.b, order)
    first = _port(a, "M", atom.m, am_name, wam, atom, k_name, wk, step_bits, target)
    second = _port(b, "N", atom.n, an_name, wan, atom, k_name, wk, step_bits, target)
    inner = _named(atom.d, {"M": am_name or "_m", "N": an_name or "_n"}, target)
    digits, extents = [], {}
    for name, box, wave in ((am_name, atom.m, wam), (an_name, atom.n, wan)):
        if name:
            count = -(-wave // box)
            extents[name] = count * box
            if count > 1:
                digits.append(Digit("reg", count, name, 1))
    result = _drop(inner, digits, extents, ("_m", "_n"))
    return MmaPlan(node, atom, swap, am_name, an_name, k_name, first, second, result, order, scales=scales)


def scale_dim(node: Node, position: int, k: Any) -> Any:
    """The dimension of a scale that stands for the contracted one. Raises ConstraintError where a scale is not for as
    many elements as the instructions have."""
    value, scale = node.inputs[position], node.inputs[position + 1]
    block = scale_block(value.type, scale.type, k)  # type: ignore[arg-type]
    if block != MX_BLOCK:
        raise ConstraintError(
            f"scaled_mma: a scale for {block} elements of {k}", node.loc, f"matrix instructions take one for {MX_BLOCK}"
        )
    return next(d for d in scale.dims if d not in value.dims)


def _scaled_steps(atom: MmaAtom, wk: int) -> tuple[int, tuple[int, ...]]:
    """(log2 of the steps along K whose scales are neighbours in a register, where the bits of the instruction's K go).

    Steps lie between the block's own bits and those that tell the instruction's blocks apart: a lane then takes
    neighbouring blocks in consecutive steps.
    """
    steps = 0
    while steps < 2 and -(-wk // atom.k) % (2 << steps) == 0:
        steps += 1
    inside = atom.scale_block.bit_length() - 1
    width = len(atom.a["K"].split())
    return steps, tuple(i if i < inside else i + steps for i in range(width))


def _scale_layout(
    atom: MmaAtom, size: int, name: str, wave: int, block_dim: str, wk: int, steps: int, target: Target
) -> Layout:
    """How one operand's scales are held: lane l has those of row l % size, of block l // size of every step."""
    lanes = target.lane_bits
    low = size.bit_length() - 1
    rows = " ".join(f"l{i}" for i in range(low))
    blocks = [f"e{i}" for i in range(steps)] + [f"l{i}" for i in range(low, lanes)]
    inner = _named({"M": rows, "K": " ".join(blocks)}, {"M": name or "_m", "K": block_dim}, target)
    count, count_k = -(-wave // size), -(-wk // (atom.k << steps))
    digits = [Digit("reg", c, d, 1) for c, d in ((count, name), (count_k, block_dim)) if d and c > 1]
    extents = {name: count * size} if name else {}
    extents[block_dim] = count_k * (atom.k << steps) // atom.scale_block
    return _drop(inner, digits, extents, ("_m",))


def _async_plan(
    node: Node, target: Target, atom: MmaAtom, swap: bool, names: tuple[str, str, str], waves: tuple[int, int, int],
    read_tiles: frozenset[int], made_tiles: frozenset[tuple[int, int]], paired: frozenset[int],
    lasting: frozenset[tuple[int, int]],
) -> MmaPlan:  # fmt: skip
    """An asynchronous instruction's plan: tiles in shared memory have a nominal layout, which nothing is held in."""
    (m, n, k), (wave_m, wave_n, wave_k) = names, waves
    operands = (node.inputs[1], node.inputs[0]) if swap else tuple(node.inputs[:2])
    made_b = operands[1].id not in read_tiles
    # With a computed B both lie in shared memory: nothing then holds back the next trip's registers.
    own = (node.id, 1 if swap else 0)
    stays = own in lasting and wave_m * wave_k * operands[0].dtype.bits >= LASTING * 32 * target.wave_size
    made_a = operands[0].id not in read_tiles and own in made_tiles and (made_b or stays)
    a_shared = operands[0].id in read_tiles or made_a
    sizes = dict(zip(names, waves))

    def tile(x: Node) -> Layout:
        return whole_tile({dim_name(d): sizes[dim_name(d)] for d in x.dims}, target)

    first = tile(operands[0]) if a_shared else _port(atom.a, "M", atom.m, m, wave_m, atom, k, wave_k, 0, target)
    columns = gcd(wave_n, atom.n)
    columns &= -columns
    block = columns if columns >= 16 and node.id in paired and not swap and not made_b else 0
    held = {**atom.d, "N": _paired_columns(block)} if block else atom.d
    inner = _named(held, {"M": m, "N": n}, target)
    digits = [Digit("reg", c, d, 1) for d, w in ((m, wave_m), (n, wave_n)) if (c := w // (1 << inner.width(d))) > 1]
    result = Layout(inner, tuple(digits), ((m, wave_m), (n, wave_n)))
    return MmaPlan(node, atom, swap, m, n, k, first, tile(operands[1]), result, None, a_shared, (made_a, made_b), block)


def _paired_columns(block: int) -> str:
    """Where a warpgroup's lanes and registers hold the columns of a result that come as the first pairs of each four,
    then the second pairs: a lane has both pairs of a four, as the fragments of 8-bit operands want it."""
    registers = [f"r{i}" for i in range(block.bit_length() - 4)]
    return " ".join(["e0", registers[-1], "l0", "l1", *registers[:-1]])


PAIRED = 4
"""Rows of a tile that are taken apart, two and two."""


def paired_products(
    graph: Graph, partition: Partition, feeds: Mapping[tuple[int, int], int], read_tiles: frozenset[int]
) -> frozenset[int]:
    """Products whose results become 8-bit operands of others in registers, and whose second operand's rows can be
    brought to shared memory in pairs: then a lane gets the columns of four neighbours, which it would have to fetch
    from others. The rows must be whole fours, counted from the array's first."""
    nodes = {n.id: n for n in graph.all_nodes()}
    users: dict[int, list[Node]] = {}
    for n in nodes.values():
        for x in n.inputs:
            users.setdefault(x.id, []).append(n)
    found = set()
    for (user, position), producer in feeds.items():
        if nodes[user].inputs[position].dtype.bits != 8 or nodes[producer].op != "mma":
            continue
        x = nodes[producer].inputs[1]
        if x.id not in read_tiles or len(users[x.id]) != 1:
            continue
        place = placement(graph, x)
        _, n, _ = _product_dims(nodes[producer])
        array = graph.argument(x.attrs["memory"])
        plan = partition.dims.get(n)
        if place is None or place.moved or plan is None or plan.extent is None or len(array.dims) > 4:
            continue
        if plan.extent % PAIRED == 0 and plan.tile % PAIRED == 0 and str(array.dims[-1]) != str(n):
            found.add(producer)
    return frozenset(found)


def whole_tile(extents: Mapping[str, int], target: Target) -> Layout:
    """Some layout that covers a tile exactly: lanes along the power-of-two parts, the rest in registers."""
    strings: dict[str, str] = {}
    digits: list[Digit] = []
    lane = 0
    for d, size in extents.items():
        take = min(target.lane_bits - lane, (size & -size).bit_length() - 1)
        strings[d] = " ".join(f"l{lane + i}" for i in range(take))
        lane += take
        if size >> take > 1:
            digits.append(Digit("reg", size >> take, d, 1))
    free = " ".join(f"l{i}" for i in range(lane, target.lane_bits))
    return Layout(spec(with_bits(strings), free=free), tuple(digits), tuple(extents.items()))


def in_order(strings: Mapping[str, str], order: tuple[int, ...] | None) -> Mapping[str, str]:
    """A fragment's strings with bit i of K moved to bit `order[i]`."""
    if order is None:
        return strings
    moved = ["0"] * (max(order) + 1)  # a gap is filled by steps of instructions
    for i, source in enumerate(strings["K"].split()):
        moved[order[i]] = source
    return {**strings, "K": " ".join(moved)}


def _names(dims: Iterable[Any]) -> str:
    return ", ".join(map(str, dims))


def _candidates(
    a: DType, b: DType, acc: DType, target: Target, wanted: str | None, wm: int, wn: int, scaled: bool
) -> list[tuple[MmaAtom, bool]]:
    found = []
    for atom in target.mma_atoms:
        if scaled != bool(atom.scale_block):
            continue
        if wanted is not None:
            if atom.parts > 1 or atom.name.removeprefix("SCALED_") != wanted:
                continue
        elif atom.blocks > 1:
            continue
        atom = side_by_side(atom)
        if atom.acc_dtype is not acc:
            continue
        if (atom.a_dtype, atom.b_dtype) == (a, b):
            found.append((atom, False))
        if (atom.b_dtype, atom.a_dtype) == (a, b):
            found.append((atom, True))
    wide = any(t.asynchronous for t in target.mma_atoms)
    if not found and wanted is None and not wide and not scaled and a is b is acc and a in (dt.f32, dt.f64, dt.i32):
        found = [(fma_atom(a, target, wm, wn), False)]
    return found


@functools.cache
def side_by_side(atom: MmaAtom) -> MmaAtom:
    """An instruction of several blocks as one product: all blocks take the same A, which lanes hold replicas of, and
    their columns lie side by side."""
    if atom.blocks == 1:
        return atom

    def columns(strings: Mapping[str, str]) -> dict[str, str]:
        return {"K": "", **strings, "N": f"{strings['N']} {strings['B']}"}

    a, b, d = {"K": "", **atom.a}, columns(atom.b), columns(atom.d)
    for strings in (a, b, d):
        strings.pop("B", None)
    d.pop("K")
    return replace(atom, n=atom.n * atom.blocks, a=a, b=b, d=d, blocks=1)


def fma_atom(dtype: DType, target: Target, wm: int, wn: int) -> MmaAtom:
    """A matrix product by plain fused multiply-adds: each lane owns a small outer-product tile, operands are
    replicated.

    Lanes lie 8 along N and the rest along M; a lane owns up to 4×4 results (fewer where the wave's tile is smaller).
    """
    lanes = target.lane_bits
    n_lanes = [f"l{i}" for i in range(3)]
    m_lanes = [f"l{i}" for i in range(3, lanes)]
    m_bits = max(0, min(2, (wm - 1).bit_length() - len(m_lanes)))
    n_bits = max(0, min(2, (wn - 1).bit_length() - len(n_lanes)))
    n_own = [f"e{i}" for i in range(n_bits)]
    m_own = [f"e{i}" for i in range(m_bits)]
    d_m = [f"e{n_bits + i}" for i in range(m_bits)]
    words = dtype.bits // 32
    m, n = 1 << (m_bits + len(m_lanes)), 1 << (n_bits + len(n_lanes))
    valu = target.cost("valu")
    return MmaAtom(
        f"{dtype.name.upper()}_FMA", m, n, 1, dtype, dtype, dtype,
        {"M": " ".join(m_own + m_lanes), "K": ""},
        {"N": " ".join(n_own + n_lanes), "K": ""},
        {"M": " ".join(d_m + m_lanes), "N": " ".join(n_own + n_lanes)},
        words << m_bits, words << n_bits, words << (m_bits + n_bits),
        valu.cycles << (m_bits + n_bits), valu.latency, "fma",
    )  # fmt: skip


def _no_atom(node: Node, a: DType, b: DType, target: Target, wanted: str | None) -> None:
    for d in (a, b):
        if d.name not in target.dtypes:
            raise lacking(target, d, node.loc)
    scaled = node.op == "scaled_mma"
    atoms = [t for t in target.mma_atoms if {t.a_dtype, t.b_dtype} == {a, b} and scaled == bool(t.scale_block)]
    have = [t.name.removeprefix("SCALED_") for t in atoms if t.blocks == t.parts == 1]
    if scaled and not any(t.scale_block for t in target.mma_atoms):
        raise ConstraintError(
            f"{target.name} has no matrix instruction that takes scales",
            node.loc,
            "gfx950 has; elsewhere cast the operands and multiply by their scales",
        )
    if wanted is not None:
        raise ConstraintError(
            f"mma_type={wanted}: {target.name} has no such instruction for {a.name} x {b.name} -> {node.dtype.name}",
            node.loc,
            f"it has {', '.join(have)}" if have else "leave mma_type out",
        )
    raise ConstraintError(
        f"{target.name} has no matrix instruction for {a.name} x {b.name} -> {node.dtype.name}",
        node.loc,
        f"it has {', '.join(have)}: change the accumulator's dtype" if have else "cast the operands first",
    )


def _leading_elements(bits: str) -> int:
    """Elements that are contiguous in one lane along a dimension with these sources: 2 to the number of leading e
    bits."""
    count = 0
    for b in bits.split():
        if not b.startswith("e"):
            break
        count += 1
    return 1 << count


def _wide_steps(atom: MmaAtom, dtype: DType, wk: int, target: Target) -> int:
    """log2 of the k-steps that one 16-byte read of an operand serves, by permuting K inside 2^steps instructions.

    Legal for any shared K permutation; worth it where a lane's K run is one plain vector, that is on chips whose
    fragments are not gathered by a matrix load.
    """
    if any(x.lane for x in target.load_atoms) and dtype.bits == 16 and atom.instruction != "fma":
        return 0
    sources = atom.a["K"].split()
    own = _leading_elements(atom.a["K"])
    if any(s.startswith("e") for s in sources[own.bit_length() - 1 :]):
        return 0
    most = max(1, VECTOR_BYTES * 8 // dtype.bits // own)
    steps = 0
    while 2 << steps <= most and -(-wk // atom.k) % (2 << steps) == 0:
        steps += 1
    return steps


def _port(
    strings: Mapping[str, str],
    side: str,
    box: int,
    name: str,
    wave: int,
    atom: MmaAtom,
    k: str,
    wk: int,
    steps: int,
    target: Target,
) -> Layout:
    """The layout one operand port demands: the atom's fragment, `steps` K bits above it read along K, repeats as
    digits."""
    k_sources = strings["K"].split()
    used = {s for text in strings.values() for s in text.split() if s.startswith("e")}
    extra = [f"e{len(used) + i}" for i in range(steps)]
    run = sum(1 for s in k_sources if s.startswith("e")) if steps else 0
    k_bits = k_sources[:run] + extra + k_sources[run:]
    if "0" in k_sources:
        fill = iter(extra)
        k_bits = [next(fill) if s == "0" else s for s in k_sources]
    if steps and not run and any(s.startswith("e") for s in strings[side].split()):
        # Steps are contiguous in memory: give them the low element bits, the rows of this lane the high ones.
        shift = {f"e{i}": f"e{i + steps}" for i in range(len(used))}
        k_bits = [f"e{i}" for i in range(steps)] + [shift.get(s, s) for s in k_sources]
        rows = [shift.get(s, s) for s in strings[side].split()]
    else:
        rows = strings[side].split()
    if name and not steps and _pairs(strings, box, wave, atom, target):
        rows, box = [*rows, "r0"], 2 * box
    inner = _named({side: " ".join(rows), "K": " ".join(k_bits)}, {side: name or "_m", "K": k}, target)
    k_box = atom.k << steps
    count_k, count = -(-wk // k_box), -(-wave // box)
    digits, extents = [], {}
    if name:
        extents[name] = count * box
        if count > 1:
            digits.append(Digit("reg", count, name, 1))
    extents[k] = count_k * k_box
    if count_k > 1:
        digits.append(Digit("reg", count_k, k, 1))
    return _drop(inner, digits, extents, ("_m",))


def _pairs(strings: Mapping[str, str], box: int, wave: int, atom: MmaAtom, target: Target) -> bool:
    """Whether two neighbouring fragments should be one piece of the layout: a matrix load then fills both at once."""
    widest = max((x.bytes for x in target.load_atoms if x.lane), default=0)
    used = {s for text in strings.values() for s in text.split() if s.startswith("e")}
    return widest >= 2 * ((atom.a_dtype.bits << len(used)) // 8) and wave % (2 * box) == 0 and atom.instruction != "fma"


def _named(strings: Mapping[str, str], names: Mapping[str, str], target: Target) -> Any:
    """The atom's strings as a map with the kernel's dimension names; lanes that drive nothing are replicas."""
    used = {s for text in strings.values() for s in text.split()}
    free = " ".join(f"l{i}" for i in range(target.lane_bits) if f"l{i}" not in used)
    dims = {names[d]: text for d, text in strings.items()}
    return spec(with_bits(dims), free=free)


def _drop(inner: Any, digits: list[Digit], extents: dict[str, int], placeholders: tuple[str, ...]) -> Layout:
    """A layout without its placeholder dimensions (an operand that has no rows of its own)."""
    full = dict(extents)
    for p in placeholders:
        if inner.width(p):
            full[p] = 1 << inner.width(p)
    for d in extents:
        if not inner.width(d) and not any(g.dim == d for g in digits) and extents[d] == 1:
            full[d] = 1
    layout = Layout(inner, tuple(digits), tuple(full.items()))
    for p in placeholders:
        if p in full:
            layout = layout.project(p)
    return layout
