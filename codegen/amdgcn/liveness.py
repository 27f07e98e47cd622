"""Which registers hold a value that is still needed, at every point of a program.

In: a `Program` over virtual registers. Out: `Liveness`, with for every *piece* the set of points where it is live
and the set where it is written, as Python ints used as bit sets.

The one idea: a point is a bit. Instruction number i reads at point 2i and writes at point 2i + 1 (an `early` one
writes at 2i too), so "may share a register" is one AND of two ints, holes and loops included. A piece is a whole
tuple where every access covers the tuple, else one of its 32-bit registers: accumulators cost one entry, tuples that
are built or cut up cost one per register.
"""

from __future__ import annotations

from dataclasses import dataclass

from wavedsl.codegen.amdgcn.machine import Block, Program, Ref


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
    """Liveness by backward dataflow over blocks, then one backward walk per block. Fixed registers without an id
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
    until = [0] * count
    for block, start, out in zip(blocks, starts, live_out):
        _walk(block, start, out, found, until)
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

    def mask(ref: Ref) -> int:
        reg = ref.reg
        if reg.id < 0:
            return 0
        if split[reg.id]:
            return ((1 << ref.n) - 1) << (first[reg.id] + ref.start)
        return 1 << first[reg.id]

    use_before, killed = [], []
    for block in blocks:
        gen = kill = 0
        for inst in block.insts:
            for ref in inst.uses:
                gen |= mask(ref) & ~kill
            for ref in inst.defs:
                kill |= mask(ref)
        use_before.append(gen)
        killed.append(kill)
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


def _walk(block: Block, start: int, now: int, found: Liveness, until: list[int]) -> None:
    """Add a block's points to `live` and `written`, from its end, where `now` is live, to its first instruction, number
    `start`. `until`: scratch, per piece that is live the end of the stretch being walked."""
    first, split, live, written = found.first, found.split, found.live, found.written
    begin = 2 * start
    end = begin + 2 * max(1, len(block.insts))  # exclusive
    rest = now
    while rest:
        low = rest & -rest
        until[low.bit_length() - 1] = end
        rest ^= low
    point = end - 2 if block.insts else begin
    for inst in reversed(block.insts):
        for ref in inst.defs:
            reg = ref.reg
            if reg.id < 0:
                continue
            base = first[reg.id]
            pieces = range(base + ref.start, base + ref.start + ref.n) if split[reg.id] else (base,)
            at = point if inst.early else point + 1
            for p in pieces:
                bit = 1 << p
                if now & bit:
                    now ^= bit
                    live[p] |= (1 << until[p]) - (1 << at)
                else:
                    live[p] |= (4 << point) - (1 << at)
                written[p] |= (4 << point) - (1 << at)
        for ref in inst.uses:
            reg = ref.reg
            if reg.id < 0:
                continue
            base = first[reg.id]
            pieces = range(base + ref.start, base + ref.start + ref.n) if split[reg.id] else (base,)
            for p in pieces:
                bit = 1 << p
                if not now & bit:
                    now |= bit
                    until[p] = point + 1
        point -= 2
    rest = now
    while rest:
        low = rest & -rest
        p = low.bit_length() - 1
        live[p] |= (1 << until[p]) - (1 << begin)
        rest ^= low
