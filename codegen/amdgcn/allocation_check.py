"""Does the allocated program compute what the virtual one does? Answered without a line of the allocator.

In: a `Program` with `Reg.at` set, copies still in place. Out: a list of complaints, empty when the allocation is right.

The one idea (after regalloc2's checker): run the program forward on symbols. Every physical register holds a set of
virtual registers whose value it is known to hold. The rules:

* (DEF) writing virtual v to physical p: p holds {v}; no other register holds v any more.
* (COPY) copying virtual w into v: p holds {v} and everything that w's register held.
* (USE) reading virtual v from p: p must hold v.
* (MEET) where paths join, a register holds what it holds on all of them.
* (EARLY) an instruction that writes early must not write a register that it reads, except a whole tuple onto itself.

A tuple must also lie in its own file, inside it, at a multiple of its alignment; a fixed one where it was fixed.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn.machine import COPY, FILE_BASE, Inst, Program, Ref

_SIZE = {"v": 256, "a": 256, "s": 128}


def check_allocation(program: Program) -> list[str]:
    """Complaints about `program`'s allocation: each names the instruction, the register and what it should hold."""
    complaints = _placement(program)
    base: list[int] = []
    count = 0
    for reg in program.regs:
        base.append(count)
        count += reg.n
    writers = [0] * len(program.regs)
    copied = [False] * len(program.regs)
    for ref in program.inputs:
        writers[ref.reg.id] += 1
    for block in program.blocks:
        for inst in block.insts:
            for ref in inst.defs:
                if ref.reg.id >= 0:
                    writers[ref.reg.id] += 1
            if inst.row == COPY:
                for ref in inst.uses:
                    copied[ref.reg.id] = True
    single = [n <= 1 and not c for n, c in zip(writers, copied)]

    blocks = program.blocks
    entry: list[dict[int, int] | None] = [None] * len(blocks)
    inputs: dict[int, int] = {}
    for ref in program.inputs:
        for k in range(ref.n):
            inputs[ref.at + k] = 1 << (base[ref.reg.id] + ref.start + k)
    entry[0] = inputs
    work = [0]
    while work:
        b = work.pop()
        state = dict(entry[b] or {})
        for inst in blocks[b].insts:
            _step(inst, state, base, single, None)
        for s in sorted(blocks[b].succs, reverse=True):
            before = entry[s]
            if before is None:
                entry[s] = dict(state)
                work.append(s)
                continue
            met = {}
            for p, held in before.items():
                both = held & state.get(p, 0)
                if both:
                    met[p] = both
            if met != before:
                entry[s] = met
                work.append(s)
    for b, block in enumerate(blocks):
        if entry[b] is None:
            continue
        state = dict(entry[b] or {})
        for inst in block.insts:
            _step(inst, state, base, single, complaints)
    return complaints


def _placement(program: Program) -> list[str]:
    out = []
    for reg in program.regs:
        place = reg.at - FILE_BASE[reg.cls]
        if not (0 <= place and place + reg.n <= _SIZE[reg.cls]):
            out.append(f"{reg} lies outside file {reg.cls}: {place}")
        elif place % reg.align:
            out.append(f"{reg} starts at {reg.cls}{place}, not a multiple of {reg.align}")
    return out


def _step(inst: Inst, state: dict[int, int], base: list[int], single: list[bool], complaints: list[str] | None) -> None:
    """Apply one instruction to `state`. `single` marks tuples with one writer that are never copied: no other register
    can hold their value, so there is nothing to forget when they are written."""
    if complaints is not None:
        for ref in inst.uses:
            if ref.reg.id < 0:
                continue
            first = base[ref.reg.id] + ref.start
            at = ref.at
            for k in range(ref.n):
                if not state.get(at + k, 0) >> (first + k) & 1:
                    where = _name(at + k)
                    complaints.append(f"`{inst}` reads register {k} of {ref} from {where}, which does not hold it")
                    break
        if inst.early:
            for d in inst.defs:
                for u in inst.uses:
                    if u.at < d.at + d.n and d.at < u.at + u.n and not (u.at == d.at and u.n == d.n):
                        complaints.append(f"`{inst}` writes {d} over {u} while it still reads it")
    if inst.row == COPY and inst.uses:
        dst, src = inst.defs[0], inst.uses[0]
        values = [state.get(src.at + k, 0) for k in range(src.n)]
        _forget(dst, state, base, single)
        first = base[dst.reg.id] + dst.start if dst.reg.id >= 0 else -1
        drop = 0 if dst.reg.id < 0 else ((1 << dst.n) - 1) << first
        for k in range(dst.n):
            held = values[k] & ~drop
            state[dst.at + k] = held | (1 << (first + k)) if first >= 0 else held
        return
    for ref in inst.defs:
        _forget(ref, state, base, single)
        if ref.reg.id < 0:
            for k in range(ref.n):
                state.pop(ref.at + k, None)
            continue
        first = base[ref.reg.id] + ref.start
        for k in range(ref.n):
            state[ref.at + k] = 1 << (first + k)


def _forget(ref: Ref, state: dict[int, int], base: list[int], single: list[bool]) -> None:
    """Registers elsewhere that held the old value of what is about to be written hold it no more."""
    if ref.reg.id < 0 or single[ref.reg.id]:
        return
    first = base[ref.reg.id] + ref.start
    gone = ((1 << ref.n) - 1) << first
    for p, held in state.items():
        if held & gone:
            state[p] = held & ~gone


def check_moves(copies: list[Inst], moves: list[Inst]) -> list[str]:
    """Do `moves` (real instructions) leave every register as the pseudo-copies, one after the other, say?

    Both are run on symbols: a register starts out holding its own number, a constant is itself.
    """
    wanted: dict[int, object] = {}
    for inst in copies:
        dst, src = inst.ops
        if src.__class__ is Ref:
            values = [wanted.get(src.at + k, f"@{src.at + k}") for k in range(dst.n)]
        else:
            values = [src] * dst.n
        for k, value in enumerate(values):
            wanted[dst.at + k] = value
    got: dict[int, object] = {}
    for inst in moves:
        dst, src = inst.ops
        if src.__class__ is Ref:
            values = [got.get(src.at + k, f"@{src.at + k}") for k in range(dst.n)]
        elif dst.n == 2:
            values = [src, 0 if src >= 0 else -1]  # a 64-bit constant is sign-extended
        else:
            values = [src]
        for k, value in enumerate(values):
            got[dst.at + k] = value
    out = []
    for p in sorted(wanted.keys() | got.keys()):
        own = f"@{p}"
        if wanted.get(p, own) != got.get(p, own):
            out.append(f"{_name(p)} should hold {wanted.get(p, own)} after the copies, and holds {got.get(p, own)}")
    return out


def _name(p: int) -> str:
    for cls in ("a", "v", "s"):
        if p >= FILE_BASE[cls]:
            return f"{cls}{p - FILE_BASE[cls]}"
    raise ValueError(f"no register {p}")
