"""Does the allocated program compute what was selected? Answered without a line of the allocator or the spiller.

In: a `Program` with `Reg.at` set, copies still in place. Out: a list of complaints, empty when the allocation is right.

The one idea (after regalloc2's checker): run the program forward on symbols. Every place holds a set of virtual
registers whose value it is known to hold. Places are physical registers, words of scratch, and lanes of registers that
keep scalars. A temporary of the spiller stands for the tuple whose value it holds (`Reg.origin`). The rules:

* (DEF) writing virtual v to physical p: p holds {v}; no other place holds v any more.
* (COPY) copying virtual w into v: p holds {v} and everything that w's register held.
* (USE) reading virtual v from p: p must hold v.
* (MEET) where paths join, a place holds what it holds on all of them.
* (EARLY) an instruction that writes early must not write a register that it reads, except a whole tuple onto itself.
* (MOVE) what the spiller added moves what a place holds to another place, by the registers, offsets and lanes that the
  instruction really has. Writing a register takes away what its lanes kept.
* (KEPT) a copy between two tuples with one home: the home must hold the source, and then holds both.
* (AGAIN) a value may be made again where, on every path since it was made, none of its operands has been written.
* (SAME) without what the spiller added, and with temporaries read as what they stand for, every block is what it was.

A tuple must also lie in its own file, inside it, at a multiple of its alignment; a fixed one where it was fixed.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.amdgcn import isa
from wavedsl.codegen.amdgcn.machine import COPY, FILE_BASE, GONE, KEPT, Inst, Program, Ref, Reg

_SIZE = {"v": 256, "a": 256, "s": 128}
_SCRATCH = 1 << 12
"""Place of scratch word 0."""
_LANE = 1 << 16
"""Place of lane 0 of register 0; a register has 64."""
_MADE = 1 << 24
"""Place that says that the value of the tuple with this id can be made again."""

State = dict[int, int]


class _Facts:
    """What the rules need to know of the whole program."""

    def __init__(self, program: Program):
        self.words = program.scratch_bytes // 4
        self.base: list[int] = []
        count = 0
        for reg in program.regs:
            self.base.append(count)
            count += reg.n
        writers = [0] * len(program.regs)
        self.copied = [False] * len(program.regs)
        self.lane_homes: set[int] = set()
        self.makers: dict[int, Inst] = {}
        self.operands: dict[int, list[int]] = {}
        """Tuple → the tuples that are made from it again."""
        for ref in program.inputs:
            writers[ref.reg.id] += 1
        for reg in program.regs:
            if reg.origin is not None:
                self.copied[reg.origin[0].id] = True
        for block in program.blocks:
            for inst in block.insts:
                if inst.row == GONE:
                    self._gone(inst)
                if not inst.added:
                    for ref in _defined(inst):
                        if ref.reg.id >= 0:
                            writers[self.owner(ref)[0].id] += 1
                if inst.row == COPY or inst.row == KEPT:
                    for ref in inst.ops[1:]:
                        if ref.__class__ is Ref:
                            self.copied[self.owner(ref)[0].id] = True
                elif inst.added == "spill" and _lane(inst) is not None:
                    self.lane_homes.add(inst.ops[0].at)
        self.single = [n <= 1 and not c for n, c in zip(writers, self.copied)]
        """Tuples with one writer that are never elsewhere: nothing to forget when they are written."""

    def _gone(self, inst: Inst) -> None:
        (dst,) = _defined(inst)
        self.makers[dst.reg.id] = inst
        for ref in inst.ops[1:]:
            ref = ref.value if ref.__class__ is isa.Src else ref
            if ref.__class__ is Ref:
                self.operands.setdefault(self.owner(ref)[0].id, []).append(dst.reg.id)

    @staticmethod
    def owner(ref: Ref) -> tuple[Reg, int]:
        """Whose value a reference means, and from which of its registers on."""
        if ref.reg.origin is None:
            return ref.reg, ref.start
        return ref.reg.origin[0], ref.reg.origin[1] + ref.start

    def symbol(self, ref: Ref) -> int:
        """The number of the first virtual register that a reference means."""
        reg, start = self.owner(ref)
        return self.base[reg.id] + start


def check_allocation(program: Program) -> list[str]:
    """Complaints about `program`'s allocation: each names the instruction, the register and what it should hold."""
    complaints = _placement(program)
    if program.original is not None:
        complaints += _rewriting(program)
    facts = _Facts(program)
    blocks = program.blocks
    entry: list[State | None] = [None] * len(blocks)
    inputs: State = {}
    for ref in program.inputs:
        for k in range(ref.n):
            inputs[ref.at + k] = 1 << (facts.symbol(ref) + k)
    entry[0] = inputs
    work = [0]
    while work:
        b = work.pop()
        state = dict(entry[b] or {})
        for inst in blocks[b].insts:
            _step(inst, state, facts, None)
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
            _step(inst, state, facts, complaints)
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


def _defined(inst: Inst) -> tuple[Ref, ...]:
    """What an instruction, or the one that it stands for, writes."""
    if inst.row == KEPT or inst.row == GONE:
        return (inst.ops[0],)
    return inst.defs


# ---- (SAME)


def _rewriting(program: Program) -> list[str]:
    """Is every block what it was before the spiller came?"""
    out = []
    assert program.original is not None
    for block, before in zip(program.blocks, program.original):
        now = [_as_selected(inst) for inst in block.insts if not inst.added]
        want = [(row, tuple(_meaning(o) for o in ops), mods) for row, ops, mods in before]
        if now == want:
            continue
        i = next((i for i, (a, b) in enumerate(zip(now, want)) if a != b), min(len(now), len(want)))
        name = block.label or "the entry"
        was = f"{_mnemonic(want[i][0])} {want[i][1]}" if i < len(want) else "nothing"
        has = f"{_mnemonic(now[i][0])} {now[i][1]}" if i < len(now) else "nothing"
        out.append(f"spilling changed instruction {i} of {name} from {was} to {has}")
    return out


def _as_selected(inst: Inst) -> tuple[Any, tuple[Any, ...], Any]:
    row: Any
    mods: Any
    if inst.row == KEPT:
        row, mods = COPY, {}
    elif inst.row == GONE:
        row, mods = (inst.mods or {})["row"], (inst.mods or {})["mods"] or {}
    else:
        row, mods = inst.row, inst.mods or {}
    return row, tuple(_meaning(o) for o in inst.ops), mods


def _meaning(operand: Any) -> Any:
    """An operand with temporaries read as what they stand for."""
    if operand.__class__ is Ref:
        reg, start = _Facts.owner(operand)
        return reg, start, operand.n
    if operand.__class__ is isa.Src:
        return "source", _meaning(operand.value), operand.neg, operand.abs, operand.sext
    return operand


def _mnemonic(row: Any) -> str:
    return row if row.__class__ is str else row.mnemonic


# ---- the other rules


def _step(inst: Inst, state: State, facts: _Facts, complaints: list[str] | None) -> None:
    """Apply one instruction to `state`."""
    if inst.row == KEPT:
        _kept(inst, state, facts, complaints)
        return
    if inst.row == GONE:
        (dst,) = _defined(inst)
        _forget(dst, state, facts)
        _written(dst, state, facts)
        state[_MADE + dst.reg.id] = 1
        return
    if inst.added in ("spill", "reload"):
        _move(inst, state, facts, complaints)
        return
    if complaints is not None:
        _uses(inst, state, facts, complaints)
    if inst.added == "again":
        _again(inst, state, facts, complaints)
        return
    if inst.row == COPY and inst.uses:
        dst, src = inst.defs[0], inst.uses[0]
        values = [state.get(src.at + k, 0) for k in range(src.n)]
        _forget(dst, state, facts)
        _written(dst, state, facts)
        first = facts.symbol(dst) if dst.reg.id >= 0 else -1
        drop = 0 if dst.reg.id < 0 else ((1 << dst.n) - 1) << first
        for k in range(dst.n):
            held = values[k] & ~drop
            _put(state, dst.at + k, held | (1 << (first + k)) if first >= 0 else held, facts)
        return
    for ref in inst.defs:
        _forget(ref, state, facts)
        if ref.reg.id < 0:
            for k in range(ref.n):
                _put(state, ref.at + k, 0, facts)
            continue
        _written(ref, state, facts)
        first = facts.symbol(ref)
        for k in range(ref.n):
            _put(state, ref.at + k, 1 << (first + k), facts)


def _uses(inst: Inst, state: State, facts: _Facts, complaints: list[str]) -> None:
    """(USE) and (EARLY)."""
    for ref in inst.uses:
        if ref.reg.id < 0:
            continue
        first = facts.symbol(ref)
        for k in range(ref.n):
            if not state.get(ref.at + k, 0) >> (first + k) & 1:
                complaints.append(
                    f"`{inst}` reads register {k} of {ref} from {_name(ref.at + k)}, which does not hold it"
                )
                break
    if inst.early:
        for d in inst.defs:
            for u in inst.uses:
                if u.at < d.at + d.n and d.at < u.at + u.n and not (u.at == d.at and u.n == d.n):
                    complaints.append(f"`{inst}` writes {d} over {u} while it still reads it")


def _put(state: State, place: int, held: int, facts: _Facts) -> None:
    """A physical register gets a new value; lanes that were kept in it are lost."""
    if held:
        state[place] = held
    else:
        state.pop(place, None)
    if place in facts.lane_homes:
        for key in [k for k in state if _LANE <= k < _MADE and (k - _LANE) >> 6 == place]:
            del state[key]


def _move(inst: Inst, state: State, facts: _Facts, complaints: list[str] | None) -> None:
    """(MOVE), by what the instruction says, not by what the spiller meant."""
    if inst.row == COPY:
        dst, src = inst.ops
        values = [state.get(src.at + k, 0) for k in range(src.n)]
        for k, held in enumerate(values):
            _put(state, dst.at + k, held, facts)
        return
    lane = _lane(inst)
    if lane is not None:
        register, other = (inst.ops[0], inst.ops[1]) if inst.added == "spill" else (inst.ops[1], inst.ops[0])
        place = _LANE + (register.at << 6) + lane
        if inst.added == "spill":
            state[place] = state.get(other.at, 0)
        else:
            _put(state, other.at, state.get(place, 0), facts)
        return
    if complaints is not None and inst.ops[2].__class__ is Ref:
        base = inst.ops[2]
        if not state.get(base.at, 0) >> facts.symbol(base) & 1:
            complaints.append(f"`{inst}` addresses scratch by {_name(base.at)}, which does not hold {base}")
    word, rest = divmod((inst.mods or {}).get("offset", 0), 4)
    stores = inst.row.mem.op == "store"
    ref = inst.ops[1] if stores else inst.ops[0]
    if complaints is not None and (rest or word + ref.n > facts.words or 4 * ref.n != inst.row.mem.bytes):
        complaints.append(f"`{inst}` reaches beyond the {facts.words} words of scratch")
    for k in range(ref.n):
        if stores:
            state[_SCRATCH + word + k] = state.get(ref.at + k, 0)
        else:
            _put(state, ref.at + k, state.get(_SCRATCH + word + k, 0), facts)


def _lane(inst: Inst) -> int | None:
    """The lane that an added instruction reads or writes, None if it is of another kind."""
    if inst.row.__class__ is str or inst.row.mem is not None:
        return None
    return inst.ops[2]


def _kept(inst: Inst, state: State, facts: _Facts, complaints: list[str] | None) -> None:
    dst, src = inst.ops
    home = (inst.mods or {})["home"]
    place = home.at if home.__class__ is Ref else _SCRATCH + home
    first, second = facts.symbol(dst), facts.symbol(src)
    if complaints is not None and any(
        not state.get(place + k, 0) >> (second + k) & 1 for k in range(src.n)
    ):
        complaints.append(f"{src} is kept for {dst} in a place that does not hold it")
    _forget(dst, state, facts)
    _written(dst, state, facts)
    for k in range(dst.n):
        state[place + k] = state.get(place + k, 0) | 1 << (first + k)


def _again(inst: Inst, state: State, facts: _Facts, complaints: list[str] | None) -> None:
    dst = inst.defs[0]
    owner, start = facts.owner(dst)
    maker = facts.makers.get(owner.id)
    now = inst.row, tuple(_meaning(o) for o in inst.ops), inst.mods or {}
    same = maker is not None and _as_selected(maker) == now
    if complaints is not None and (not same or start):
        complaints.append(f"`{inst}` does not make {owner} again")
    if complaints is not None and not state.get(_MADE + owner.id):
        complaints.append(f"`{inst}` makes {owner} again where its operands may have changed")
    for k in range(dst.n):
        _put(state, dst.at + k, 1 << (facts.base[owner.id] + start + k), facts)


def _written(ref: Ref, state: State, facts: _Facts) -> None:
    """What is made from a tuple cannot be made again once that is written."""
    if ref.reg.id >= 0:
        for made in facts.operands.get(facts.owner(ref)[0].id, ()):
            state.pop(_MADE + made, None)


def _forget(ref: Ref, state: State, facts: _Facts) -> None:
    """Places elsewhere that held the old value of what is about to be written hold it no more."""
    if ref.reg.id < 0 or facts.single[facts.owner(ref)[0].id]:
        return
    first = facts.symbol(ref)
    gone = ((1 << ref.n) - 1) << first
    for p, held in state.items():
        if held & gone and p < _MADE:
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
