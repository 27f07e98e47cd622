"""Which matrix instructions fit a product, best first; `fma_atom` stands in where a chip has none."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import Node, factors
from wavedsl.ir.dataflow.mma_dims import product_dims
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.inference.mma_tiles import NARROW, REGISTER_FILE, REGISTER_STEP, SharedOperands
from wavedsl.ir.layouts.chain import MmaOption
from wavedsl.ir.layouts.column_pairs import NO_ROWS, Rows, may_take, turned
from wavedsl.ir.layouts.mma_ports import leading_elements
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import VECTOR_BYTES, MmaAtom, Target, lacking

SHARED_OUT = 3
"""Warpgroups that multiply from which on, with one that copies, a thread starts with 128 registers or fewer."""
BESIDE_RESULT = 26
"""Registers that ptxas 13 needs beside the result of an instruction."""
STORED_CLOCKS = 1 / 64
"""Clocks per element that storing a computed operand to shared memory costs beside the matrix unit: two bytes of the
128 that an SM stores in a clock."""
TURNED = 8
"""Times as long as storing takes where elements change places on their way: words meet in the same banks."""
IDLE_CLOCKS = 256
"""Clocks from a product's end to the start of the next where the next one's operand takes its registers: an
assumption."""


def mma_options(
    node: Node,
    partition: Partition,
    target: Target,
    hardware: Any,
    written: tuple[str, int] | None,
    operands: SharedOperands,
    rows: Rows = NO_ROWS,
) -> list[MmaOption]:
    """Atoms and operand orders of one `mma` node, best first.

    Fewest matrix-unit cycles for the wave's tile first, then what takes words of two columns (`MmaAtom.parts`) of an
    operand that would have to be turned, then what asks less of shared memory (`_narrow`), then the widest store along
    the dimension of `written` (the memory-contiguous one of the array that the result is written to, and the bits of
    its elements, if known), then no swap. `rows`: reads whose rows are contiguous in memory, by id, and along which
    dimension; instructions of column pairs are for these alone, `in_runs` for those along K. Raises ConstraintError
    where none fits.
    """
    contiguous, bits = written or ("", 0)
    a, b = (node.inputs[p] for p in factors(node))
    m, n, k = product_dims(node)
    sizes = operands.sizes(node, partition)
    wm, wn, wk = (sizes[d] if d is not None else 1 for d in (m, n, k))
    wanted = getattr(hardware, "mma_type", None)
    wanted_name = getattr(wanted, "name", wanted)
    asked = {d: v for d in (m, n, k) if d is not None and (v := partition.dims[d].vector) is not None}
    along_k = dim_name(k) in (rows.get(a.id), rows.get(b.id))
    candidates = _candidates(
        a.dtype, b.dtype, node.dtype, target, wanted_name, wm, wn, node.op == "scaled_mma", not along_k
    )
    found = []
    pairs = any(atom.parts > 1 for atom, _ in candidates)
    misfits: list[str] = []
    for i, (atom, swap) in enumerate(candidates):
        if atom.asynchronous:
            ends = (n, m) if swap else (m, n)
            stored = (node.id, 0 if swap else 1) in operands.makeable
            misfit = async_misfit(atom, sizes, ends, k, a if swap else b, operands.reads, stored)
            misfit = misfit or _too_wide(atom, partition.waves, target)
            if misfit:
                misfits.append(misfit)
                continue
        ports = [(x, "" if d is None else dim_name(d)) for x, d in (((b, n), (a, m)) if swap else ((a, m), (b, n)))]
        if not may_take(atom, ports, rows):
            continue
        am, an = (atom.n, atom.m) if swap else (atom.m, atom.n)
        if asked and any(asked.get(d, size) % size for d, size in ((m, am), (n, an), (k, atom.k))):
            continue
        # Lanes that hold two neighbours along N load rows of A by eights.
        if not target.paired_results and ports[0][1] == contiguous and rows.get(ports[0][0].id) == dim_name(k):
            atom = in_runs(atom, bits)
        issues = -(-wm // am) * -(-wn // an) * -(-wk // atom.k)
        d = {dim_name(m): atom.d["N" if swap else "M"], dim_name(n): atom.d["M" if swap else "N"]}
        width = leading_elements(d.get(contiguous, ""))
        clocks = float(issues * atom.cycles)
        if (node.id, int(swap)) in operands.held:
            clocks += _held_clocks(atom, node, int(swap), {d: sizes[d] for d in (m, n, k)}, rows)
        elif atom.asynchronous and (a if swap else b).id not in operands.reads:
            both = a.id not in operands.reads and b.id not in operands.reads
            clocks += STORED_CLOCKS * (wm + wn if both else wm if swap else wn) * wk
        turns = turned(atom, ports, dim_name(k), rows) if pairs else 0
        narrow = _narrow(atom, (a, b), operands)
        found.append(MmaOption((clocks, turns, narrow, -width, swap, i), atom, swap))
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


def _narrow(atom: MmaAtom, factors: Sequence[Node], operands: SharedOperands) -> bool:
    """Whether an instruction reads both operands from shared memory and multiplies so little that this takes all of its
    port, which copies by threads pass, too: 64 pixels by 64 filters for 128 by 64."""
    shared = atom.asynchronous and all(x.id in operands.reads for x in factors)
    return shared and atom.n <= NARROW and any(x.id in operands.gathered for x in factors)


def _held_clocks(atom: MmaAtom, node: Node, position: int, sizes: Mapping[Any, int], rows: Rows) -> float:
    """Clocks that storing the other operand costs where the one at `position` is held in registers, and that the matrix
    unit idles where these are all of one piece. What is not contiguous along K in memory is turned as it is stored."""
    m, n, k = product_dims(node)
    held, stored = (n, m) if position else (m, n)
    along = {rows[x.id] for x in _sources(node.inputs[1 - position]) if x.id in rows}
    clocks = STORED_CLOCKS * sizes[stored] * sizes[k] * (TURNED if along - {dim_name(k)} else 1)
    return clocks + (IDLE_CLOCKS if sizes[held] == atom.m else 0)


def _sources(x: Node) -> list[Node]:
    """The reads that an operand is computed of."""
    found, work, seen = [], [x], {x.id}
    while work:
        y = work.pop()
        if y.op == "read":
            found.append(y)
            continue
        work += [z for z in y.inputs if z.id not in seen]
        seen.update(z.id for z in y.inputs)
    return found


def async_misfit(
    atom: MmaAtom,
    sizes: Mapping[Any, int],
    ends: tuple[Any, Any],
    k: Any,
    second: Node,
    reads: frozenset[int],
    stored: bool = False,
) -> str:
    """Why an asynchronous instruction cannot carry out a product; empty if it can. `second`: its B, which must lie in
    shared memory, be it one of the `reads` that can bring it there or `stored` by the waves."""
    if None in ends:
        return "an operand has no dimension of its own"
    for d, size, what in ((ends[0], atom.m, "rows"), (ends[1], atom.n, "columns"), (k, atom.k, "deep")):
        if sizes[d] % size:
            return f"a wave's {sizes[d]} elements of {dim_name(d)} are no multiple of {size} {what}"
    if second.id not in reads and not stored:
        return "neither operand is an array's tile that can lie in shared memory"
    return ""


def _too_wide(atom: MmaAtom, waves: int, target: Target) -> str:
    """Why threads of so many warpgroups cannot hold an instruction's result; empty if they can. ptxas (C7602) asks for
    that many registers of what a thread starts with, before warpgroups that copy give theirs to others."""
    if waves < SHARED_OUT:
        return ""
    start = REGISTER_FILE // ((waves + 1) * target.wave_size) // REGISTER_STEP * REGISTER_STEP
    if atom.d_words + BESIDE_RESULT <= start:
        return ""
    return f"{waves + 1} warpgroups of {start} registers per thread hold no result of {atom.m} x {atom.n}"


def _candidates(
    a: DType, b: DType, acc: DType, target: Target, wanted: str | None, wm: int, wn: int, scaled: bool, whole_rows: bool
) -> list[tuple[MmaAtom, bool]]:
    """(instruction, whether operands change places) for these dtypes; multiply-adds where the chip has none."""
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
    wide = target.asynchronous
    if not found and wanted is None and not wide and not scaled and a is b is acc and a in (dt.f32, dt.f64, dt.i32):
        found = [(fma_atom(a, target, wm, wn, whole_rows), False)]
    return found


def in_runs(atom: MmaAtom, bits: int) -> MmaAtom:
    """The instruction with rows of A, and of its result, renumbered so that a lane's results are runs of as many
    neighbouring rows as one store of elements of `bits` takes. Lanes read rows of A from anywhere; results they could
    only exchange."""
    sources = atom.d["M"].split()
    run = max(1, VECTOR_BYTES * 8 // max(bits, 8)).bit_length() - 1
    own = [i for i, source in enumerate(sources) if source.startswith("e")][:run]
    order = [*own, *(i for i in range(len(sources)) if i not in own)]
    if atom.asynchronous or atom.parts > 1 or order == list(range(len(sources))):
        return atom
    rows = atom.a["M"].split()
    a, d = ({**strings, "M": " ".join(x[i] for i in order)} for strings, x in ((atom.a, rows), (atom.d, sources)))
    return replace(atom, a=a, d=d)


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


def fma_atom(dtype: DType, target: Target, wm: int, wn: int, whole_rows: bool = False) -> MmaAtom:
    """A matrix product by plain fused multiply-adds: each lane owns a small outer-product tile, operands are
    replicated.

    Lanes lie 8 along N and the rest along M; a lane owns up to 4×4 results (fewer where the wave's tile is smaller). On
    NVIDIA's chips lane bit 0 counts along N and bit 1 along M: neighbours then read the same rows of A, and lanes two
    apart the same columns of B, pairs that shared memory serves together (`warp_events.shared_clocks`). There, and with
    `whole_rows`, a lane owns 4×8 of a wave with 64 columns, and `lower_matrix.emit_fma` walks along whole rows. Copies
    of single words rather stand between steps of half the size (378 us for 389 of 2048^3 on an H200).
    """
    lanes = target.lane_bits
    along_n = target.fma_columns
    n_lanes = [f"l{i}" for i in along_n]
    m_lanes = [f"l{i}" for i in range(lanes) if i not in along_n]
    m_bits = max(0, min(2, (wm - 1).bit_length() - len(m_lanes)))
    n_bits = max(0, min(2, (wn - 1).bit_length() - len(n_lanes)))
    if whole_rows and target.register_banks and n_bits == 2 and wn % (2 << n_bits << len(n_lanes)) == 0:
        n_bits += 1
    n_own = [f"e{i}" for i in range(n_bits)]
    n_far = n_own[2:]  # vectors of four, the others half of the wave's columns away
    n_own = n_own[:2]
    m_own = [f"e{i}" for i in range(m_bits)]
    d_m = [f"e{n_bits + i}" for i in range(m_bits)]
    words = dtype.bits // 32
    m, n = 1 << (m_bits + len(m_lanes)), 1 << (n_bits + len(n_lanes))
    valu = target.cost("valu")
    return MmaAtom(
        f"{dtype.name.upper()}_FMA", m, n, 1, dtype, dtype, dtype,
        {"M": " ".join(m_own + m_lanes), "K": ""},
        {"N": " ".join(n_own + n_lanes + n_far), "K": ""},
        {"M": " ".join(d_m + m_lanes), "N": " ".join(n_own + n_lanes + n_far)},
        words << m_bits, words << n_bits, words << (m_bits + n_bits),
        valu.cycles << (m_bits + n_bits), valu.latency, "fma",
    )  # fmt: skip


def _no_atom(node: Node, a: DType, b: DType, target: Target, wanted: str | None) -> None:
    """Raise ConstraintError: what the chip lacks for this product, and what it has instead."""
    for d in (a, b):
        if d.name not in target.dtypes:
            raise lacking(target, d, node.loc)
    scaled = node.op == "scaled_mma"
    atoms = [t for t in target.mma_atoms if {t.a_dtype, t.b_dtype} == {a, b} and scaled == bool(t.scale_block)]
    have = [_plain_name(t) for t in atoms if t.blocks == t.parts == 1]
    if scaled and not any(t.scale_block for t in target.mma_atoms):
        raise ConstraintError(
            f"{target.name} has no matrix instruction that takes scales",
            node.loc,
            "gfx950 has; elsewhere cast the operands and multiply by their scales",
        )
    if wanted is not None:
        wide = () if target.warpgroup is None else target.warpgroup().mma_atoms
        named, warpgroups = ([_plain_name(t) for t in ts if _computes(t, a, b, node)] for ts in (atoms, wide))
        if wanted in warpgroups:  # where it fits, plans for warpgroups came first
            raise ConstraintError(
                f"mma_type={wanted}: no wave of this kernel has a tile for it",
                node.loc,
                f"a wave's tile is a multiple of {wanted.split('_')[1]} (M x N x K; M and N may change places)",
            )
        named += [f"{warpgroups[-1]} to {warpgroups[0]}"] if warpgroups else []
        raise ConstraintError(
            f"mma_type={wanted}: {target.name} has no such instruction for {a.name} x {b.name} -> {node.dtype.name}",
            node.loc,
            f"it has {', '.join(named)}" if named else "leave mma_type out",
        )
    raise ConstraintError(
        f"{target.name} has no matrix instruction for {a.name} x {b.name} -> {node.dtype.name}",
        node.loc,
        f"it has {', '.join(have)}: change the accumulator's dtype" if have else "cast the operands first",
    )


def _computes(atom: MmaAtom, a: DType, b: DType, node: Node) -> bool:
    """Whether an instruction multiplies these dtypes to the node's."""
    return {atom.a_dtype, atom.b_dtype} == {a, b} and atom.acc_dtype is node.dtype and atom.blocks == atom.parts == 1


def _plain_name(atom: MmaAtom) -> str:
    return atom.name.removeprefix("SCALED_")
