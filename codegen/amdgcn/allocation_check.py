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

from collections.abc import Sequence
from typing import Any

from wavedsl.codegen.amdgcn import isa
from wavedsl.codegen.amdgcn.machine import COPY, FILE_BASE, GONE, KEPT, UNITS, Inst, Program, Ref, Reg

_SIZE = {"v": 256, "a": 256, "s": 128}
_SCRATCH = 1 << 12
"""Place of scratch word 0."""
_LANE = 1 << 16
"""Place of lane 0 of register 0; a register has 64."""


class _State:
    """What every place is known to hold, as a bit set of virtual registers: `regs` of physical registers by number,
    `other` of scratch words and lanes. `made`: tuples (by id) that can be made again."""

    __slots__ = ("made", "other", "regs")

    def __init__(self, regs: list[int], other: dict[int, int], made: set[int]):
        self.regs, self.other, self.made = regs, other, made

    def get(self, place: int) -> int:
        return self.regs[place] if place < UNITS else self.other.get(place, 0)

    def copy(self) -> _State:
        return _State(list(self.regs), dict(self.other), set(self.made))

    def meet(self, after: _State) -> bool:
        """(MEET) Keep what `after` holds as well; whether that is less than before."""
        regs = [a if a is b else a & b for a, b in zip(self.regs, after.regs)]
        other = {p: both for p, held in self.other.items() if (both := held & after.other.get(p, 0))}
        made = self.made & after.made
        changed = regs != self.regs or other != self.other or made != self.made
        self.regs, self.other, self.made = regs, other, made
        return changed


_ZERO = 256
"""Of `_Facts.homes`: the bit of a tuple whose register 0 would lie in physical register 0."""
_ELSEWHERE = 1 << _ZERO + UNITS
"""Of `_Facts.homes`: something of the tuple was kept in scratch or lanes."""


class _Facts:
    """What the rules need to know of the whole program."""

    def __init__(self, program: Program):
        self.words = program.scratch_bytes // 4
        self.base: list[int] = []
        self.tuples: list[int] = []
        """Virtual register → its tuple."""
        for reg in program.regs:
            self.base.append(len(self.tuples))
            self.tuples += [reg.id] * reg.n
        self.bits = [1 << n for n in range(len(self.tuples))]
        """Virtual register → the set of it alone. One object each, so that places mostly compare by identity."""
        self.homes = [0] * len(program.regs)
        """Tuple → where its register 0 would lie for any place that held one of its registers on the paths walked so
        far, and `_ELSEWHERE`: the places to look at when it is to be forgotten."""
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
                row = inst.row
                if row is GONE:
                    self._gone(inst)
                if not inst.added:
                    for ref in _defined(inst):
                        if ref.reg.id >= 0:
                            writers[self.owner(ref)[0].id] += 1
                if row is COPY or row is KEPT:
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
    if complaints:
        return complaints
    if program.original is not None:
        complaints += _rewriting(program)
    facts = _Facts(program)
    blocks = program.blocks
    entry: list[_State | None] = [None] * len(blocks)
    inputs = _State([0] * UNITS, {}, set())
    for ref in program.inputs:
        first = facts.symbol(ref)
        _put(inputs, ref.at, facts.bits[first : first + ref.n], facts)
    entry[0] = inputs
    found: list[list[str]] = [[] for _ in blocks]
    """Complaints of the last walk through each block: the one from what it is entered with on all paths."""
    work = [0]
    while work:
        b = min(work)
        work.remove(b)
        before = entry[b]
        assert before is not None
        state = before.copy()
        found[b] = []
        for inst in blocks[b].insts:
            _step(inst, state, facts, found[b])
        for s in blocks[b].succs:
            known = entry[s]
            if known is None:
                entry[s] = state.copy()
            elif not known.meet(state):
                continue
            if s not in work:
                work.append(s)
    for block_complaints in found:
        complaints += block_complaints
    return complaints + _early(program)


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


def _step(inst: Inst, state: _State, facts: _Facts, complaints: list[str]) -> None:
    """Apply one instruction to `state`."""
    row = inst.row
    if row is KEPT:
        _kept(inst, state, facts, complaints)
        return
    if row is GONE:
        (dst,) = _defined(inst)
        _forget(dst, state, facts)
        _written(dst, state, facts)
        state.made.add(dst.reg.id)
        return
    if inst.added in ("spill", "reload"):
        _move(inst, state, facts, complaints)
        return
    _uses(inst, state, facts, complaints)
    if inst.added == "again":
        _again(inst, state, facts, complaints)
        return
    if row is COPY and inst.uses:
        dst, src = inst.defs[0], inst.uses[0]
        values = state.regs[src.at : src.at + src.n]
        _forget(dst, state, facts)
        _written(dst, state, facts)
        if dst.reg.id >= 0:
            first = facts.symbol(dst)
            drop = ~(((1 << dst.n) - 1) << first)
            values = [held & drop | facts.bits[first + k] for k, held in enumerate(values)]
        _put(state, dst.at, values, facts)
        return
    regs, base, bits = state.regs, facts.base, facts.bits
    for ref in inst.defs:
        reg, n = ref.reg, ref.n
        at = reg.at + ref.start
        if reg.id < 0:
            regs[at : at + n] = (0,) * n
        else:
            owner, start = (reg, ref.start) if reg.origin is None else facts.owner(ref)
            if not facts.single[owner.id]:
                own = 1 << at - start + _ZERO
                if facts.homes[owner.id] & ~own:
                    _forget(ref, state, facts)
                facts.homes[owner.id] |= own
            if facts.operands:
                _written(ref, state, facts)
            first = base[owner.id] + start
            regs[at : at + n] = bits[first : first + n]
        if facts.lane_homes:
            _lose_lanes(at, n, state, facts)


def _uses(inst: Inst, state: _State, facts: _Facts, complaints: list[str]) -> None:
    """(USE)"""
    regs, base, bits = state.regs, facts.base, facts.bits
    for ref in inst.uses:
        reg = ref.reg
        if reg.id < 0:
            continue
        first = base[reg.id] + ref.start if reg.origin is None else facts.symbol(ref)
        at, n = reg.at + ref.start, ref.n
        if regs[at : at + n] == bits[first : first + n]:  # each place holds this and nothing else
            continue
        for k in range(n):
            if not regs[at + k] & bits[first + k]:
                complaints.append(
                    f"`{inst}` reads register {k} of {ref} from {_name(at + k)}, which does not hold it"
                )
                break


def _early(program: Program) -> list[str]:
    """(EARLY)"""
    out = []
    for block in program.blocks:
        for inst in block.insts:
            if not inst.early or inst.added in ("spill", "reload"):
                continue
            for d in inst.defs:
                first, last = d.at, d.at + d.n
                for u in inst.uses:
                    at = u.at
                    if at < last and first < at + u.n and not (at == first and u.n == d.n):
                        out.append(f"`{inst}` writes {d} over {u} while it still reads it")
    return out


def _put(state: _State, at: int, values: Sequence[int], facts: _Facts) -> None:
    """Physical registers get new values; lanes that were kept in them are lost."""
    state.regs[at : at + len(values)] = values
    for k, held in enumerate(values):
        _at_home(held, at + k, facts)
    if facts.lane_homes:
        _lose_lanes(at, len(values), state, facts)


def _keep(state: _State, place: int, held: int, facts: _Facts) -> None:
    """A word of scratch or a lane gets a new value."""
    state.other[place] = held
    _at_home(held, place, facts)


def _at_home(held: int, place: int, facts: _Facts) -> None:
    """Remember of the tuples of these virtual registers that a place holds something of them."""
    while held:
        low = held & -held
        symbol = low.bit_length() - 1
        owner = facts.tuples[symbol]
        start = symbol - facts.base[owner]
        facts.homes[owner] |= 1 << place - start + _ZERO if place < UNITS else _ELSEWHERE
        held ^= low


def _lose_lanes(at: int, n: int, state: _State, facts: _Facts) -> None:
    """Physical registers are written: what their lanes kept is gone."""
    for register in range(at, at + n):
        if register in facts.lane_homes:
            for key in [k for k in state.other if k >= _LANE and (k - _LANE) >> 6 == register]:
                del state.other[key]


def _move(inst: Inst, state: _State, facts: _Facts, complaints: list[str]) -> None:
    """(MOVE), by what the instruction says, not by what the spiller meant."""
    if inst.row is COPY:
        dst, src = inst.ops
        _put(state, dst.at, state.regs[src.at : src.at + src.n], facts)
        return
    lane = _lane(inst)
    if lane is not None:
        register, other = (inst.ops[0], inst.ops[1]) if inst.added == "spill" else (inst.ops[1], inst.ops[0])
        place = _LANE + (register.at << 6) + lane
        if inst.added == "spill":
            _keep(state, place, state.regs[other.at], facts)
        else:
            _put(state, other.at, (state.get(place),), facts)
        return
    if inst.ops[2].__class__ is Ref:
        base = inst.ops[2]
        if not state.regs[base.at] >> facts.symbol(base) & 1:
            complaints.append(f"`{inst}` addresses scratch by {_name(base.at)}, which does not hold {base}")
    word, rest = divmod((inst.mods or {}).get("offset", 0), 4)
    stores = inst.row.mem.op == "store"
    ref = inst.ops[1] if stores else inst.ops[0]
    if rest or word + ref.n > facts.words or 4 * ref.n != inst.row.mem.bytes:
        complaints.append(f"`{inst}` reaches beyond the {facts.words} words of scratch")
    if stores:
        for k in range(ref.n):
            _keep(state, _SCRATCH + word + k, state.regs[ref.at + k], facts)
    else:
        _put(state, ref.at, [state.get(_SCRATCH + word + k) for k in range(ref.n)], facts)


def _lane(inst: Inst) -> int | None:
    """The lane that an added instruction reads or writes, None if it is of another kind."""
    if inst.row.__class__ is str or inst.row.mem is not None:
        return None
    return inst.ops[2]


def _kept(inst: Inst, state: _State, facts: _Facts, complaints: list[str]) -> None:
    dst, src = inst.ops
    home = (inst.mods or {})["home"]
    if home.__class__ is tuple:
        places = [_LANE + (register.at << 6) + lane for register, lane in home]
    else:
        place = home.at if home.__class__ is Ref else _SCRATCH + home
        places = list(range(place, place + dst.n))
    first, second = facts.symbol(dst), facts.symbol(src)
    if any(not state.get(place) >> (second + k) & 1 for k, place in enumerate(places)):
        complaints.append(f"{src} is kept for {dst} in a place that does not hold it")
    _forget(dst, state, facts)
    _written(dst, state, facts)
    for k, place in enumerate(places):
        held = state.get(place) | facts.bits[first + k]
        if place < UNITS:
            state.regs[place] = held
            _at_home(held, place, facts)
        else:
            _keep(state, place, held, facts)


def _again(inst: Inst, state: _State, facts: _Facts, complaints: list[str]) -> None:
    dst = inst.defs[0]
    owner, start = facts.owner(dst)
    maker = facts.makers.get(owner.id)
    now = inst.row, tuple(_meaning(o) for o in inst.ops), inst.mods or {}
    same = maker is not None and _as_selected(maker) == now
    if not same or start:
        complaints.append(f"`{inst}` does not make {owner} again")
    if owner.id not in state.made:
        complaints.append(f"`{inst}` makes {owner} again where its operands may have changed")
    first = facts.base[owner.id] + start
    _put(state, dst.at, facts.bits[first : first + dst.n], facts)


def _written(ref: Ref, state: _State, facts: _Facts) -> None:
    """What is made from a tuple cannot be made again once that is written."""
    if ref.reg.id >= 0:
        state.made.difference_update(facts.operands.get(facts.owner(ref)[0].id, ()))


def _forget(ref: Ref, state: _State, facts: _Facts) -> None:
    """Places elsewhere that held the old value of what is about to be written hold it no more."""
    if ref.reg.id < 0:
        return
    owner, start = facts.owner(ref)
    if facts.single[owner.id]:
        return
    first = facts.base[owner.id] + start
    gone = ((1 << ref.n) - 1) << first
    regs, homes = state.regs, facts.homes[owner.id]
    bases = homes & ~_ELSEWHERE
    while bases:
        low = bases & -bases
        at = low.bit_length() - 1 - _ZERO + start
        for place in range(max(0, at), min(at + ref.n, UNITS)):
            if regs[place] & gone:
                regs[place] &= ~gone
        bases ^= low
    if homes & _ELSEWHERE:
        for key, held in state.other.items():
            if held & gone:
                state.other[key] = held & ~gone


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
