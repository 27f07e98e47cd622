"""Lowering of loops, conditionals and traps: where blocks begin and end.

A loop is tested at its bottom; a test before it is made only where the trip count may be zero. Its induction
variable and carried values are one tuple each for the loop's life, initialised before it and copied into at its end
(copies that the allocator removes where the new value can be computed in place). Results are those tuples.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.amdgcn import roles
from wavedsl.codegen.amdgcn.machine import Loop, Operand, Ref, copy
from wavedsl.codegen.amdgcn.select import Compare, Selector, constant_words, lower, signed
from wavedsl.ir.kernel.kernel_ir import Op, Region, Value, counts, source_steps


def _home(s: Selector, v: Value, name: str) -> Ref:
    """The tuple of a carried value or of a conditional's result."""
    if v.type.kind == "pred":
        return s.mask_reg()
    return s.new(s.file(v), v.type.words, v.name or name)


def _assign(s: Selector, pairs: list[tuple[Ref, Value]]) -> None:
    """Parallel assignment of values to tuples: a tuple that another pair still reads is saved first."""
    moves: list[tuple[Ref, Operand]] = []
    for dst, v in pairs:
        if v.type.kind == "pred":
            held = s.mask(v)
            if held.__class__ is bool:
                held = -1 if held else 0
            _mask_move(moves, dst, held)
            continue
        if v.const is not None:
            for k, word in enumerate(constant_words(v.type, v.const)):
                moves.append((dst.part(k), word))
            continue
        held = s.operand(v)
        if held.__class__ is Ref:
            if held.same(dst):
                continue
            moves.append((dst, held))
        else:
            moves.append((dst, held))
    written = {dst.reg.id for dst, _ in moves}
    late: list[tuple[Ref, Operand]] = []
    for dst, src in moves:
        if src.__class__ is Ref and src.reg.id in written and src.reg.id != dst.reg.id:
            saved = s.new(src.reg.cls, src.n, src.reg.name)
            s.insts.append(copy(saved, src, s.loc))
            src = saved
        late.append((dst, src))
    for dst, src in late:
        s.copy(dst, src)


def _mask_move(moves: list[tuple[Ref, Operand]], dst: Ref, held: Operand) -> None:
    if held.__class__ is Ref:
        if not held.same(dst):
            moves.append((dst, held))
    else:
        moves.append((dst.part(0), held))
        moves.append((dst.part(1), held))


@lower("for")
def loop(s: Selector, op: Op) -> None:
    r = s.rows
    low, high, step = op.args[:3]
    region = op.regions[0]
    iv, carried = region.args[0], region.args[1:]
    label = op.attrs.get("label") or "loop"
    start = s.loc
    counted = counts(op)
    counter = s.new("s", 1, iv.name or "counter")
    homes = [_home(s, v, f"carried {k}") for k, v in enumerate(carried)]
    limit, increment = (s.scalar(high), s.scalar(step)) if counted else (0, 0)
    pairs = [(home, v) for home, v in zip(homes, op.args[3:])]
    _assign(s, pairs)
    last_value = _last_value(op)
    first: Any = low.const
    if counted:
        s.copy(counter, last_value - first if last_value is not None else s.scalar(low))
    _masks_ahead(s, region)
    before = len(s.blocks) - 1
    may_skip = not (low.hi is not None and high.lo is not None and low.hi < high.lo)
    exit_label = s.label(f"{_safe(label)}_end") if may_skip else ""
    if may_skip:
        s.emit(r.s_cmp_ge_i32, counter, limit)
        s.emit(r.s_cbranch_scc1, exit_label)
    s.depth += 1
    body = s.block(s.label(_safe(label)))
    s.blocks[body].comment = f"loop over {label}"
    s.blocks[before].succs.append(body)
    s.values[iv.id] = counter
    if last_value is not None:
        s.countdown[iv.id] = last_value
    for v, home in zip(carried, homes):
        s.values[v.id] = home
    s.open_scope()
    s.region(region)
    s.loc = region.ops[-1].loc or start
    _assign(s, [(home, v) for home, v in zip(homes, region.ops[-1].args)])
    s.close_scope()
    s.loc = start
    last = len(s.blocks) - 1
    if not counted:
        s.emit(r.s_cmp_lg_u64, homes[0], 0)
    elif last_value is not None:
        s.emit(r.s_add_u32, counter, counter, signed(-increment & 0xFFFFFFFF))  # carries unless it goes below 0
    else:
        s.emit(r.s_add_u32, counter, counter, increment)
        s.emit(r.s_cmp_lt_i32, counter, limit)
        if op.attrs.get("again"):
            _both(s, homes[0])
    s.emit(r.s_cbranch_scc1, s.blocks[body].label)
    s.depth -= 1
    s.blocks[last].succs.append(body)
    after = s.block(exit_label)
    s.blocks[last].succs.append(after)
    if may_skip:
        s.blocks[before].succs.append(after)
    for v, home in zip(op.results, homes):
        s.values[v.id] = home
    steps = source_steps(op)
    found = Loop(s.blocks[body].label, body, last, start, steps)
    found.carried = [(home, v.name) for v, home in zip(carried, homes)]
    s.loops.append(found)


def _masks_ahead(s: Selector, region: Region) -> None:
    """Make comparisons from outside of a loop that it needs as masks masks in front of it."""
    for op in region.walk():
        if op.name in roles.MASKS:
            for v in op.args:
                if s.values.get(v.id).__class__ is Compare:
                    s.mask(v)


def _both(s: Selector, again: Ref) -> None:
    """scc = scc and a uniform predicate."""
    r = s.rows
    more = s.stemp(r.s_cselect_b64, -1, 0, n=2)
    s.emit(r.s_and_b64, s.new("s", 2), more, again)


def _last_value(op: Op) -> int | None:
    """The induction variable's value in the last trip, where the loop may count what is left to it instead: the carry
    of that counter's addition is the loop's test. None where the bounds are not known or the variable is wanted for
    more than comparisons, or a predicate ends the loop as well."""
    low, high, step = (v.const for v in op.args[:3])
    if op.attrs.get("again"):
        return None
    if not isinstance(low, int) or not isinstance(high, int) or not isinstance(step, int):
        return None
    if not (0 < step < 1 << 16 and -(1 << 29) < low < high < 1 << 29):
        return None
    iv = op.regions[0].args[0]
    for user in op.regions[0].walk():
        if iv in user.args:
            other = user.args[1].const
            if user.name != "cmp" or user.args[0] is not iv or other is None or user.attrs["how"][0] == "u":
                return None
            if abs(other) >= 1 << 29:
                return None
    return low + (high - low - 1) // step * step


def _safe(label: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in label)


@lower("if")
def conditional(s: Selector, op: Op) -> None:
    r = s.rows
    condition = op.args[0]
    held = s.operand(condition)
    homes = [_home(s, v, "result") for v in op.results]
    for v, home in zip(op.results, homes):
        s.values[v.id] = home
    if held.__class__ is bool:
        region = op.regions[0 if held else 1]
        s.region(region)
        _assign(s, [(home, v) for home, v in zip(homes, region.ops[-1].args if region.ops else ())])
        return
    then, otherwise = op.regions
    has_else = any(o.name != "yield" for o in otherwise.ops) or bool(homes)
    s.scc(condition)
    end = s.label("endif")
    other_label = s.label("else") if has_else else end
    s.emit(r.s_cbranch_scc0, other_label)
    before = len(s.blocks) - 1
    first = s.block("")
    s.blocks[before].succs.append(first)
    _branch(s, op, then, homes)
    then_last = len(s.blocks) - 1
    if has_else:
        s.emit(r.s_branch, end)
        second = s.block(other_label)
        s.blocks[before].succs.append(second)
        _branch(s, op, otherwise, homes)
        else_last = len(s.blocks) - 1
    after = s.block(end)
    s.blocks[then_last].succs.append(after)
    s.blocks[else_last if has_else else before].succs.append(after)


def _branch(s: Selector, op: Op, region: Region, homes: list[Ref]) -> None:
    s.open_scope()
    s.region(region)
    if region.ops and region.ops[-1].name == "yield":
        _assign(s, [(home, v) for home, v in zip(homes, region.ops[-1].args)])
    s.close_scope()


@lower("trap")
def trap(s: Selector, op: Op) -> None:
    """Stop the wave if any lane's mask is set."""
    r = s.rows
    mask = op.args[0]
    held = s.operand(mask)
    if held is False:
        return
    if held is True:
        s.emit(r.s_trap, 2)
        return
    s.scc(mask)
    skip = s.label("fine")
    s.emit(r.s_cbranch_scc0, skip)
    before = len(s.blocks) - 1
    stop = s.block("")
    s.blocks[before].succs.append(stop)
    s.emit(r.s_trap, 2)
    after = s.block(skip)
    s.blocks[before].succs.append(after)
    s.blocks[stop].succs.append(after)
