"""Control flow of a PTX function: basic blocks, reconvergence points, and registers that may be read before written.

In: the flat instruction list of `ptx_parse`. Out: `Flow`. The idea: lanes that part at a branch meet again at the
branch's immediate post-dominator; registers are proved written by a forward dataflow over bit sets (Python integers),
so that the executor needs to watch only those for which the proof fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

from wavedsl.ir.errors import CompileError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx.module import Address, Function, Inst, Label, Reg, RegUse, Vector


@dataclass
class Block:
    """Instructions [start, end); the last may be a branch, an exit or a barrier. `order`: reverse post-order number."""

    start: int
    end: int
    successors: list[int]
    reconverge: int = -1
    """First instruction of the immediate post-dominator; -1 where the paths meet only at the end of the kernel."""
    order: int = 0


@dataclass
class Flow:
    blocks: list[Block]
    block_at: dict[int, int]
    """First instruction -> block."""
    known: dict[Any, Any] = field(default_factory=dict)
    """What runs have looked up about the instructions, by what it depends on."""


def is_terminator(name: str) -> bool:
    """Whether control must return to the scheduler after this instruction."""
    head, *words = name.split(".")
    if head in ("bra", "brx", "ret", "exit", "trap", "brkpt"):
        return True
    if head in ("wgmma", "setmaxnreg"):
        return True
    return head in ("bar", "barrier") and "warp" not in words


def target_of(f: Function, inst: Inst) -> list[str]:
    """Labels that a branch may go to."""
    head = inst.name.split(".", 1)[0]
    if head == "bra":
        return [inst.args[0].name]
    if head == "brx":
        name = inst.args[1].name
        if name not in f.targets:
            raise CompileError(f"{name} is not a .branchtargets list", Loc("<ptx>", inst.line))
        return f.targets[name]
    return []


def build(f: Function) -> Flow:
    """Basic blocks of a function with their successors and reconvergence points."""
    n = len(f.insts)
    starts = {0, n}
    for i, inst in enumerate(f.insts):
        if is_terminator(inst.name):
            starts.add(i + 1)
        for label in target_of(f, inst):
            if label not in f.labels:
                raise CompileError(f"label {label} is not defined", Loc("<ptx>", inst.line))
            starts.add(f.labels[label])
    order = sorted(s for s in starts if s < n)
    block_at = {s: b for b, s in enumerate(order)}
    blocks = []
    for b, s in enumerate(order):
        end = order[b + 1] if b + 1 < len(order) else n
        last = f.insts[end - 1]
        head = last.name.split(".", 1)[0]
        nexts = [f.labels[t] for t in target_of(f, last)]
        falls = head not in ("bra", "brx", "ret", "exit", "trap", "brkpt") or last.guard is not None
        if falls:
            nexts.append(end)
        blocks.append(Block(s, end, [block_at[x] for x in dict.fromkeys(nexts) if x < n]))
    _post_dominators(blocks)
    return Flow(blocks, block_at)


def _post_dominators(blocks: list[Block]) -> None:
    """Immediate post-dominators by Cooper, Harvey and Kennedy's iteration on the reversed graph, with one virtual
    end.
    """
    n = len(blocks)
    end = n
    preds: list[list[int]] = [[] for _ in range(n + 1)]
    for b, block in enumerate(blocks):
        for s in block.successors or [end]:
            preds[s].append(b)
    # Loops that never end still need an order: blocks that cannot reach the end count as going there.
    order = _postorder(preds, end)
    for b in range(n):
        if b not in order:
            blocks_end = b
            preds[end].append(blocks_end)
            order = _postorder(preds, end)
    exits = set(preds[end])
    idom = {end: end}
    sequence = sorted(order, key=lambda b: -order[b])
    changed = True
    while changed:
        changed = False
        for b in sequence:
            if b == end:
                continue
            new = -1
            succ = list(blocks[b].successors) + ([end] if b in exits else [])
            for s in succ:
                if s in idom:
                    new = s if new < 0 else _intersect(idom, order, new, s)
            if new >= 0 and idom.get(b) != new:
                idom[b] = new
                changed = True
    for b, block in enumerate(blocks):
        d = idom.get(b, end)
        block.reconverge = blocks[d].start if d != end else -1
    forward = _postorder([blk.successors for blk in blocks], 0)
    for b, block in enumerate(blocks):
        block.order = len(blocks) - forward.get(b, -1)


def _postorder(edges: list[list[int]], start: int) -> dict[int, int]:
    """Node -> post-order number of a depth-first walk."""
    number: dict[int, int] = {}
    seen = {start}
    stack: list[tuple[int, int]] = [(start, 0)]
    while stack:
        node, i = stack.pop()
        if i < len(edges[node]):
            stack.append((node, i + 1))
            nxt = edges[node][i]
            if nxt not in seen:
                seen.add(nxt)
                stack.append((nxt, 0))
        else:
            number[node] = len(number)
    return number


def _intersect(idom: dict[int, int], order: dict[int, int], a: int, b: int) -> int:
    while a != b:
        while order[a] < order[b]:
            a = idom[a]
        while order[b] < order[a]:
            b = idom[b]
    return a


def registers(x: Any) -> Iterable[Reg]:
    """The registers in an operand."""
    if isinstance(x, RegUse):
        yield x.reg
    elif isinstance(x, Vector):
        for p in x.parts:
            yield from registers(p)
    elif isinstance(x, Address):
        if isinstance(x.base, Reg):
            yield x.base
        for c in x.coords:
            yield from registers(c)


def defs_and_uses(inst: Inst, writes: int) -> tuple[list[Reg], list[Reg]]:
    """Registers that an instruction writes and reads; its first `writes` arguments are destinations."""
    out: list[Reg] = []
    used: list[Reg] = []
    for i, a in enumerate(inst.args):
        if isinstance(a, Label):
            continue
        (out if i < writes and not isinstance(a, Address) else used).extend(registers(a))
    if inst.pair is not None and not isinstance(inst.pair, Label):
        out.extend(registers(inst.pair))
    if inst.guard is not None:
        used.append(inst.guard[0])
    return out, used


def maybe_unwritten(f: Function, flow: Flow, effects: list[tuple[list[Reg], list[Reg]]]) -> set[int]:
    """Registers that some path may read before writing. A guarded write does not count as one."""
    everything = (1 << len(f.regs)) - 1
    gen = []
    for block in flow.blocks:
        g = 0
        for i in range(block.start, block.end):
            if f.insts[i].guard is None:
                for r in effects[i][0]:
                    g |= 1 << r.index
        gen.append(g)
    preds: list[list[int]] = [[] for _ in flow.blocks]
    for b, block in enumerate(flow.blocks):
        for s in block.successors:
            preds[s].append(b)
    out = [everything] * len(flow.blocks)
    order = sorted(range(len(flow.blocks)), key=lambda b: flow.blocks[b].order)
    entry = [everything] * len(flow.blocks)
    changed = True
    while changed:
        changed = False
        for b in order:
            known = 0 if b == 0 else everything
            for p in preds[b]:
                known &= out[p]
            entry[b] = known
            new = known | gen[b]
            if new != out[b]:
                out[b] = new
                changed = True
    suspects: set[int] = set()
    for b, block in enumerate(flow.blocks):
        known = entry[b]
        for i in range(block.start, block.end):
            defs, uses = effects[i]
            for r in uses:
                if not known >> r.index & 1:
                    suspects.add(r.index)
            if f.insts[i].guard is None:
                for r in defs:
                    known |= 1 << r.index
    return suspects
