"""Which registers hold a value that is still needed, at every point of a program.

In: a `Program` over virtual registers. Out: `Liveness`, with for every *piece* the set of points where it is live
and the set where it is written, as Python ints used as bit sets.

The one idea: a point is a bit. Instruction number i reads at point 2i and writes at point 2i + 1 (an `early` one
writes at 2i too), so "may share a register" is one AND of two ints, holes and loops included. A piece is a whole
tuple where every access covers the tuple, else one of its 32-bit registers: accumulators cost one entry, tuples that
are built or cut up cost one per register.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from wavedsl.codegen.amdgcn.machine import Block, Program, Ref
from wavedsl.ir.quick_dataclass import dataclass


@dataclass
class Liveness:
    """`first[reg.id]` is a tuple's first piece, `split[reg.id]` whether it has one piece per register.

    `live[p]`, `written[p]`: points of piece p. `starts[b]`: number of block b's first instruction (an empty block
    has one number of its own). `live_in[b]`: pieces live on entry of block b, as a bit set of pieces.
    """

    first: list[int]
    split: list[bool]
    live: list[int]
    written: list[int]
    starts: list[int]
    live_in: list[int]
    instructions: int

    def pieces(self, ref: Ref) -> range:
        """The pieces that an access to `ref` touches."""
        first = self.first[ref.reg.id]
        if self.split[ref.reg.id]:
            return range(first + ref.start, first + ref.start + ref.n)
        return range(first, first + 1)


def analyse(program: Program) -> Liveness:
    """Liveness by backward dataflow over blocks, then one backward walk over all of them. Fixed registers without an id
    (exec, m0, scc) are not tracked."""
    blocks = program.blocks
    split = _split(program)
    first = []
    count = 0
    for reg in program.regs:
        first.append(count)
        count += reg.n if split[reg.id] else 1
    starts = []
    number = 0
    for block in blocks:
        starts.append(number)
        number += max(1, len(block.insts))
    found = Liveness(first, split, [0] * count, [0] * count, starts, [], number)
    found.live_in, live_out = _flow(program, found)
    for ref in program.inputs:
        for p in range(first[ref.reg.id], first[ref.reg.id] + (ref.n if split[ref.reg.id] else 1)):
            found.live[p] |= 1
            found.written[p] |= 1
    _points(blocks, live_out, found)
    return found


def _split(program: Program) -> list[bool]:
    """Per tuple, whether some access touches a part of it only."""
    split = [False] * len(program.regs)
    for block in program.blocks:
        for inst in block.insts:
            for ref in inst.defs:
                if ref.n != ref.reg.n and ref.reg.id >= 0:
                    split[ref.reg.id] = True
            for ref in inst.uses:
                if ref.n != ref.reg.n and ref.reg.id >= 0:
                    split[ref.reg.id] = True
    return split


def _flow(program: Program, found: Liveness) -> tuple[list[int], list[int]]:
    """(pieces live on entry, pieces live at the end) of every block, as bit sets of pieces."""
    blocks, first, split = program.blocks, found.first, found.split
    count = len(found.live)
    use_before, killed = [], []
    for block in blocks:
        gen: set[int] = set()
        kill: set[int] = set()
        for inst in block.insts:
            for ref in inst.uses:
                i = ref.reg.id
                if i < 0:
                    continue
                p = first[i]
                if split[i]:
                    gen.update([k for k in range(p + ref.start, p + ref.start + ref.n) if k not in kill])
                elif p not in kill:
                    gen.add(p)
            for ref in inst.defs:
                i = ref.reg.id
                if i < 0:
                    continue
                p = first[i]
                if split[i]:
                    kill.update(range(p + ref.start, p + ref.start + ref.n))
                else:
                    kill.add(p)
        use_before.append(_bits(gen, count))
        killed.append(_bits(kill, count))
    live_in = [0] * len(blocks)
    live_out = [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for b in range(len(blocks) - 1, -1, -1):
            out = 0
            for s in blocks[b].succs:
                out |= live_in[s]
            live_out[b] = out
            now = use_before[b] | (out & ~killed[b])
            if now != live_in[b]:
                live_in[b] = now
                changed = True
    return live_in, live_out


def _points(blocks: list[Block], live_out: list[int], found: Liveness) -> None:
    """Add all points to `live` and `written`, from the end of the program to its beginning.

    A stretch on which a piece is live is added when its beginning is met; until then `until` has its end, for every
    piece that is live at the point at hand, and 0 for the others. It runs through blocks that follow each other.
    """
    first, split, live, written = found.first, found.split, found.live, found.written
    until = [0] * len(live)
    behind = 0
    end = 2 * found.instructions
    for block, start, entering, out in zip(
        reversed(blocks), reversed(found.starts), reversed(found.live_in), reversed(live_out)
    ):
        for p in _members(behind & ~out):
            live[p] |= (1 << until[p]) - (1 << end)
            until[p] = 0
        for p in _members(out & ~behind):
            until[p] = end
        behind, end = entering, 2 * start
        point = end + 2 * len(block.insts) - 2
        for inst in reversed(block.insts):
            for ref in inst.defs:
                i = ref.reg.id
                if i < 0:
                    continue
                base = first[i]
                pieces = range(base + ref.start, base + ref.start + ref.n) if split[i] else (base,)
                low = 1 << (point if inst.early else point + 1)
                write = (4 << point) - low
                for p in pieces:
                    written[p] |= write
                    if until[p]:
                        live[p] |= (1 << until[p]) - low
                        until[p] = 0
                    else:
                        live[p] |= write
            for ref in inst.uses:
                i = ref.reg.id
                if i < 0:
                    continue
                base = first[i]
                for p in range(base + ref.start, base + ref.start + ref.n) if split[i] else (base,):
                    if not until[p]:
                        until[p] = point + 1
            point -= 2
    for p in _members(behind):
        live[p] |= (1 << until[p]) - 1


def _bits(members: set[int], count: int) -> int:
    """A set of numbers below `count` as a bit set."""
    marks = np.zeros(count, np.uint8)
    marks[list(members)] = 1
    return int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little")


def _members(bits: int) -> list[int]:
    """The numbers in a bit set."""
    raw = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8)
    found: list[int] = np.flatnonzero(np.unpackbits(raw, bitorder="little")).tolist()
    return found


def runs(bits: int) -> Iterator[tuple[int, int]]:
    """The runs of points in a set, as (first, behind the last)."""
    at = 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        n = (bits ^ (bits + 1)).bit_length() - 1
        bits >>= n
        at += gap + n
        yield at - n, at
