"""Liveness, dead code, and merging of registers that copies join.

In: flat code with parallel copies. Out: flat code without them, where loop-carried values live in one register wherever
their live ranges allow it, so that an accumulator chain `mma; mma` inside a loop needs no move.
The idea: live ranges as sorted lists of segments, exact by data flow over blocks (an int per block is a bit set); two
registers joined by a copy, or by an accumulating instruction's result and addend, merge when no segment overlaps.
Invariant: merged registers never hold two live values at one point, and an instruction reads before it writes.
"""

from __future__ import annotations

import itertools
from typing import Any

from wavedsl.codegen.ptx.isa import Inst
from wavedsl.codegen.ptx.machine import UNDEFINED, Copy, Imm, Ins, Label, Reg, Symbol, operands_of

_PURE = frozenset({"move", "address", "to"})
"""Row effects that leave an instruction removable when nobody reads its result."""

_WORDS = {"b32": 1, "b64": 2, "b16": 1, "pred": 0}
"""32-bit registers of each class."""

Segments = list[tuple[int, int]]


def coalesce(code: list[Any], moves: dict[str, Inst]) -> tuple[list[Any], int]:
    """Merge registers, drop dead instructions and turn parallel copies into moves (`moves`: one `mov` per class).

    Also gives the pressure: 32-bit registers per lane that are live together, in the order of this code.
    """
    length = len(code)
    code, segments, words = _live_segments(code)
    for item in code:
        if type(item) is Copy:
            for dst, src in item.pairs:
                if type(src) is Reg:
                    _merge(dst, src, segments)
        elif type(item) is Ins and "matrix" in item.inst.effects and len(item.args) == 4:
            for dst, src in zip(item.args[0], item.args[3]):
                if type(src) is Reg:
                    _merge(dst, src, segments)
    accumulators = {
        reg.find().id for item in code if type(item) is Ins and "matrix" in item.inst.effects and len(item.args) == 4
        for reg in item.args[0]
    }  # fmt: skip
    pressure = _pressure(segments, words, length)
    fresh = [1 + max(words, default=0)]
    out: list[Any] = []
    for item in code:
        if type(item) is Copy:
            _sequence(item, moves, accumulators, fresh, out)
        else:
            out.append(item)
    return out, pressure


def _pressure(segments: dict[int, Segments], words: dict[int, int], length: int) -> int:
    """The most words live at one position."""
    change = [0] * (2 * length + 3)
    for id_, found in segments.items():
        n = words.get(id_, 0)
        if n:
            for first, last in found:
                change[first] += n
                change[last + 1] -= n
    return max(itertools.accumulate(change))


def _live_segments(code: list[Any]) -> tuple[list[Any], dict[int, Segments], dict[int, int]]:
    """Code without dead instructions, the live segments by register id in positions of the old code, words by register.

    Item i reads at 2i and writes at 2i + 1; both ends of a segment are inclusive. What leaves a block ends with its
    last write.
    """
    facts = [_reads_writes(item) for item in code]
    words = {r.id: _WORDS[r.kind] for writes, reads, _, _ in facts for r in (*writes, *reads)}
    blocks, successors = _blocks(code)
    use, kill = [0] * len(blocks), [0] * len(blocks)
    for b, (start, end) in enumerate(blocks):
        before: set[int] = set()
        gone: set[int] = set()
        for writes, reads, whole, _ in facts[start:end]:
            for r in reads:
                if r.id not in gone:
                    before.add(r.id)
            if whole:
                for r in writes:
                    gone.add(r.id)
        use[b], kill[b] = _bits(before), _bits(gone)
    live_in, live_out = list(use), [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for b in range(len(blocks) - 1, -1, -1):
            out = 0
            for s in successors[b]:
                out |= live_in[s]
            new = use[b] | (out & ~kill[b])
            if new != live_in[b] or out != live_out[b]:
                live_in[b], live_out[b] = new, out
                changed = True
    # One backward sweep per block: drop what nobody reads, note where each register is live.
    kept: list[Any] = []
    ends: list[tuple[int, int, int]] = []
    for b in range(len(blocks) - 1, -1, -1):
        start, end = blocks[b]
        open_: dict[int, int] = {}
        bits, position = live_out[b], 0
        while bits:
            low = bits & -bits
            open_[low.bit_length() - 1] = 2 * end - 1
            bits ^= low
        for i in range(end - 1, start - 1, -1):
            item = code[i]
            writes, reads, whole, removable = facts[i]
            if type(item) is Copy:
                pairs = [p for p in item.pairs if p[0].id in open_]
                if not pairs:
                    continue
                item.pairs = pairs
                writes = [p[0] for p in pairs]
                reads = [p[1] for p in pairs if type(p[1]) is Reg]
            elif removable and not any(w.id in open_ for w in writes):
                continue
            kept.append(item)
            position = 2 * i
            for w in writes:
                if whole:
                    ends.append((w.id, position + 1, open_.pop(w.id, position + 1)))
                elif w.id not in open_:
                    open_[w.id] = position + 1
            for r in reads:
                if r.id not in open_:
                    open_[r.id] = position
        for id_, stop in open_.items():
            ends.append((id_, 2 * start, stop))
    kept.reverse()
    segments: dict[int, Segments] = {}
    for id_, first, last in ends:
        segments.setdefault(id_, []).append((first, last))
    for found in segments.values():
        found.sort()
    return kept, segments, words


def _bits(ids: set[int]) -> int:
    """A set of register ids as a bit set."""
    out = bytearray((max(ids, default=0) >> 3) + 1)
    for id_ in ids:
        out[id_ >> 3] |= 1 << (id_ & 7)
    return int.from_bytes(out, "little")


def _reads_writes(item: Any) -> tuple[list[Reg], list[Reg], bool, bool]:
    """Writes, reads, whether every write is unconditional, whether it may go when nothing reads its results."""
    if type(item) is Ins:
        writes, reads = operands_of(item)
        return writes, reads, item.guard is None, bool(writes) and item.inst.effects <= _PURE
    if type(item) is Copy:
        return [d for d, _ in item.pairs], [s for _, s in item.pairs if type(s) is Reg], True, False
    return [], [], True, False


def _blocks(code: list[Any]) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Half-open ranges of straight-line code and their successors."""
    starts = [0]
    for i, item in enumerate(code):
        if type(item) is Label:
            starts.append(i)
        elif type(item) is Ins and ("branch" in item.inst.effects or "exit" in item.inst.effects):
            starts.append(i + 1)
    starts = sorted({s for s in starts if s < len(code)})
    blocks = [(s, e) for s, e in zip(starts, [*starts[1:], len(code)])]
    at = {item.name: b for b, (s, e) in enumerate(blocks) for item in code[s : s + 1] if type(item) is Label}
    successors: list[list[int]] = []
    for b, (_, e) in enumerate(blocks):
        last = code[e - 1]
        falls = [b + 1] if b + 1 < len(blocks) else []
        if type(last) is Ins and "branch" in last.inst.effects:
            target = at[last.args[0].text]
            successors.append([target, *falls] if last.guard is not None else [target])
        elif type(last) is Ins and "exit" in last.inst.effects:
            successors.append(falls if last.guard is not None else [])
        else:
            successors.append(falls)
    return blocks, successors


def _merge(a: Reg, b: Reg, segments: dict[int, Segments]) -> bool:
    """Make one register of two if they are never live together."""
    a, b = a.find(), b.find()
    if a is b:
        return True
    if a.kind != b.kind:
        return False
    x, y = segments.get(a.id, []), segments.get(b.id, [])
    i = j = 0
    while i < len(x) and j < len(y):
        if x[i][1] < y[j][0]:
            i += 1
        elif y[j][1] < x[i][0]:
            j += 1
        else:
            return False
    keep, gone = (a, b) if a.id < b.id else (b, a)
    gone.home = keep
    segments[keep.id] = sorted(x + y)
    segments.pop(gone.id, None)
    return True


def _sequence(copy: Copy, moves: dict[str, Inst], accumulators: set[int], fresh: list[int], out: list[Any]) -> None:
    """A parallel copy as moves: a destination is written once nobody still needs its old value; cycles get a spare."""
    pending: list[tuple[Reg, Any]] = []
    for dst, src in copy.pairs:
        dst = dst.find()
        src = src.find() if type(src) is Reg else src
        if dst is not src and src is not UNDEFINED:
            pending.append((dst, src))

    def move(dst: Reg, src: Any) -> None:
        kind = "accmove" if copy.carried and dst.id in accumulators and type(src) is Reg else ""
        key = src.kind if type(src) is Imm and src.kind != "i" else dst.kind
        out.append(Ins(moves[key], (dst, Symbol(str(src)) if type(src) is str else src), copy.loc, kind=kind))

    while pending:
        wanted = {s.id for _, s in pending if type(s) is Reg}
        ready = [p for p in pending if p[0].id not in wanted]
        if ready:
            for dst, src in ready:
                move(dst, src)
            pending = [p for p in pending if p[0].id in wanted]
            continue
        dst, src = pending[0]
        spare = Reg(fresh[0], dst.kind, dst.level)
        fresh[0] += 1
        out.append(Ins(moves[dst.kind], (spare, dst), copy.loc))
        pending = [(d, spare if s is dst else s) for d, s in pending]
