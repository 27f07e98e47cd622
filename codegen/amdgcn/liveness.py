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

from wavedsl.codegen.amdgcn.machine import Program, Ref


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
    split = [False] * len(program.regs)
    for block in blocks:
        for inst in block.insts:
            for ref in inst.defs:
                if ref.n != ref.reg.n and ref.reg.id >= 0:
                    split[ref.reg.id] = True
            for ref in inst.uses:
                if ref.n != ref.reg.n and ref.reg.id >= 0:
                    split[ref.reg.id] = True
    first = []
    count = 0
    for reg in program.regs:
        first.append(count)
        count += reg.n if split[reg.id] else 1

    def mask(ref: Ref) -> int:
        reg = ref.reg
        if reg.id < 0:
            return 0
        if split[reg.id]:
            return ((1 << ref.n) - 1) << (first[reg.id] + ref.start)
        return 1 << first[reg.id]

    use_before, killed, starts = [], [], []
    number = 0
    for block in blocks:
        starts.append(number)
        gen = kill = 0
        for inst in block.insts:
            for ref in inst.uses:
                gen |= mask(ref) & ~kill
            for ref in inst.defs:
                kill |= mask(ref)
        number += max(1, len(block.insts))
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

    live = [0] * count
    written = [0] * count
    until = [0] * count
    for ref in program.inputs:
        for p in range(first[ref.reg.id], first[ref.reg.id] + (ref.n if split[ref.reg.id] else 1)):
            live[p] |= 1
            written[p] |= 1
    for b, block in enumerate(blocks):
        begin = 2 * starts[b]
        end = begin + 2 * max(1, len(block.insts))  # exclusive
        now = live_out[b]
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
    return Liveness(first, split, live, written, starts, live_in, number)
