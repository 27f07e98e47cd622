"""Constants that a loop starts with, set in the shadow of the first loads.

In: a physical `Program` without waits. Out: the same, some moves of constants to vector registers further up.

The one idea: sums are set to zero right in front of their loop, behind the barrier that the first tiles wait for, where
all waves stand idle before and all are busy then. A move that reads nothing may stand anywhere above, as far as nobody
in between touches its register; where a wave would wait for vector memory anyway it costs nothing. So it goes in front
of the first instruction that asks for a result of vector memory and is late enough for its register.

(REGION) A move leaves block j for block i only if control that enters i at the top reaches j, every time and once, and
control reaches j through i alone: blocks i to j - 1 lead forward, to blocks up to j, and only they lead to blocks i + 1
to j. So a block inside a branch between the two is none of them. A move passes no change of EXEC.

`check_early` follows the writers of all registers that were moved over the whole program, before and after.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.codegen.amdgcn.hazard_fill import members
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import EXEC, Inst, Program
from wavedsl.codegen.amdgcn.rows import queue_of
from wavedsl.codegen.amdgcn.waits import COPY_WAIT

_EXEC = 3 << EXEC
Place = tuple[int, int]
"""Block and the instruction of it that something stands in front of."""


def is_constant(inst: Inst) -> bool:
    """Whether an instruction moves a constant to vector registers, and nothing else."""
    row = inst.row
    if row.__class__ is str or row.unit not in (Unit.VALU, Unit.ACCMOVE) or inst.reads or len(inst.ops) != 2:
        return False
    return bool(inst.writes) and ("_mov_" in row.mnemonic or "accvgpr_write" in row.mnemonic)


def set_early(program: Program) -> bool:
    """Move constants up, in place. Whether any was."""
    changed = False
    program.number_predecessors()
    for j, block in enumerate(program.blocks):
        if any(map(is_constant, block.insts)) and _set_early(program, _before(program, j), j):
            changed = True
    return changed


def _before(program: Program, j: int) -> list[int]:
    """Blocks that control runs through once whenever it is to reach block j, in order, and j (REGION)."""
    blocks = program.blocks
    found = [j]
    low = k = j
    while all(p < k for p in blocks[k].preds):
        low = min([low, *blocks[k].preds])
        k -= 1
        if k < 0 or not blocks[k].succs or not all(k < s <= j for s in blocks[k].succs):
            break
        if low == k:
            found.append(k)
    return found[::-1]


def _set_early(program: Program, on_the_way: Sequence[int], j: int) -> bool:
    """Move constants of block j to the shadows that are free for their registers, in blocks on the way to it."""
    blocks = program.blocks
    shadows: list[Place] = []
    touched: list[int] = []
    """Per shadow, in order: the registers that anything between it and the next one, or here, reads or writes."""
    moved: dict[Place, list[Inst]] = {}
    gone: set[int] = set()
    loaded = 0
    copied = False
    for b in range(on_the_way[0], j + 1):
        always = b in on_the_way
        for n, inst in enumerate(blocks[b].insts):
            mask = inst.reads | inst.writes
            if mask & loaded or (copied and inst.row == COPY_WAIT):
                if always:
                    shadows.append((b, n))
                    touched.append(0)
                loaded, copied = 0, False
            if b == j and is_constant(inst):
                first = len(touched)
                while first and not touched[first - 1] & inst.writes:
                    first -= 1
                if first < len(touched) and shadows[first] != (b, n):
                    moved.setdefault(shadows[first], []).append(inst)
                    gone.add(id(inst))
                    if first:  # another one of its registers, of a pair's upper half say, stays behind it
                        touched[first - 1] |= inst.writes
                    continue
            if inst.writes & _EXEC:
                shadows.clear()
                touched.clear()
            if touched:
                touched[-1] |= mask
            if queue_of(inst) == "vm":
                loaded |= inst.writes
                copied |= bool(inst.tokens)
    for b in on_the_way if moved else ():
        out: list[Inst] = []
        for n, inst in enumerate(blocks[b].insts):
            out += moved.get((b, n), ())
            if id(inst) not in gone:
                out.append(inst)
        blocks[b].insts = out
    return bool(moved)


# ---- the checker


def check_early(before: Sequence[Sequence[Inst]], program: Program) -> list[str]:
    """Complaints about instructions of `program` that find other registers than in the blocks as they were `before`.

    Shares nothing with the mover but what a constant is: the writers of every register reach along all paths of either
    program to whoever reads it, EXEC for what runs under it, and must be the same there. What is no constant keeps its
    block and order.
    """
    after = [block.insts for block in program.blocks]
    moves = {id(inst) for insts in before for inst in insts if is_constant(inst)}
    for old, new in zip(before, after):
        if [id(x) for x in old if id(x) not in moves] != [id(x) for x in new if id(x) not in moves]:
            return ["instructions that are no moves of constants changed places"]
    if sorted(id(x) for insts in before for x in insts) != sorted(id(x) for insts in after for x in insts):
        return ["instructions were lost or added"]
    watched = _EXEC
    for insts in before:
        for inst in insts:
            if id(inst) in moves:
                watched |= inst.writes
    found, again = (_reaching(program, blocks, watched) for blocks in (before, after))
    return [
        f"{x!r} finds other registers" for insts in before for x in insts if found.get(id(x)) != again.get(id(x))
    ]


Reaching = dict[int, frozenset[int]]
"""Per register: who may have written it last; 0 where a path leads here on which nobody has."""


def _reaching(program: Program, blocks: Sequence[Sequence[Inst]], watched: int) -> dict[int, list[frozenset[int]]]:
    """Per instruction (by id) that is reached: who may have written each of the watched registers that it reads. Those
    that read none are left out."""
    entry: list[Reaching | None] = [None] * len(blocks)
    entry[0] = {}
    seen: dict[int, list[frozenset[int]]] = {}
    touching = []  # per block, what reads or writes a watched register, and which
    for insts in blocks:
        of_block = []
        for x in insts:
            reads = (x.reads | (_EXEC if _runs_under(x) else 0)) & watched
            writes = x.writes & watched
            if reads or writes:
                of_block.append((id(x), members(reads), members(writes)))
        touching.append(of_block)
    nobody: frozenset[int] = frozenset((0,))
    work = [0]
    while work:
        b = work.pop(0)
        state = dict(entry[b] or {})
        for inst, read, written in touching[b]:
            if read:
                seen[inst] = [state.get(r, nobody) for r in read]
            if written:
                state.update(dict.fromkeys(written, frozenset((inst,))))
        for s in program.blocks[b].succs:
            met = entry[s]
            if met is None:
                joined = state
            else:
                joined = {r: met.get(r, nobody) | state.get(r, nobody) for r in met.keys() | state.keys()}
            if joined != met:
                entry[s] = dict(joined)
                if s not in work:
                    work.append(s)
    return seen


def _runs_under(inst: Inst) -> bool:
    return inst.row.__class__ is not str and inst.row.reads_exec
