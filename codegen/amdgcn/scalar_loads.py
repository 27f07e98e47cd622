"""Which loads of global memory the scalar unit makes: `s_buffer_load` instead of a vector load of one address.

In: a kernel. Out: the ids of the values that scalar registers receive.

The one idea: where all lanes load the same words, one address and one result for the wave are enough, a look-up in the
scalar cache is shorter than one in the vector cache, and who wants the number in a scalar register need not read it
out of a lane. A uniform mask per wave has no form of its own here, so loads under a mask stay vector loads.

Rules:
* (CONSTANT) the scalar cache does not see what the kernel's vector stores write: the buffer is made of one array that
  the kernel only reads. A launch refuses arrays that overlap one that is written.
* (WHOLE) a load is of one element, at a multiple of its size: the unit drops the two low bits of addresses, and what of
  a wider load lies behind the end of the buffer is not described.
* (ORDER) scalar loads return in any order, so a wait for LDS that has one in flight is a wait for everything. In loops
  that touch shared memory or move values between lanes they stay vector loads, but for those that stand behind all uses
  of what such ops gave and are used before the next one; and so does what a loop hands on to its next trip, which may
  be on its way until then.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value

_WIDTHS = (4, 8)
_SHARED = frozenset(("read shared", "write shared"))
_SAME = frozenset(("bitcast", "slice", "vec", "readfirst"))
STORED = -1
"""Stands among values on their way for stores to LDS."""
_LANES = frozenset(("shuffle_xor", "shuffle_index", "swap_lanes"))


def scalar_loads(kernel: Kernel) -> frozenset[int]:
    """Ids of the results of the loads that the scalar unit makes."""
    found: dict[int, Op] = {}
    handed_on: set[int] = set()

    def visit(region: Region, counted: bool) -> None:
        arrived = _arrived(region) if counted else set()
        for op in region.ops:
            if op.name == "yield":
                _follow(op, handed_on)
            elif op.name == "load.global" and _fits(kernel, op) and (not counted or op in arrived):
                found[op.results[0].id] = op
            inside = counted or (op.name == "for" and _uses_lds(op))
            for body in op.regions:
                visit(body, inside)

    visit(kernel.body, False)
    return frozenset(found.keys() - handed_on)


def _arrived(region: Region) -> set[Op]:
    """Loads of a region whose waits are for nothing of LDS and the other way round: their results are used before the
    next op that waits for LDS belong to, and what such ops before them gave has been used."""
    found: set[Op] = set()
    flying: dict[int, Op] = {}
    """Loads that nothing waited for yet, by the values that hold their results."""
    asked: set[int] = set()
    """Values of LDS likewise, and stores to it."""
    for op in region.ops:
        if op.name == "yield":  # hands on what nobody waited for
            break
        asked.difference_update(a.id for a in op.args)
        if op.name == "barrier":  # which waits for stores, and for all that counts with them
            flying.clear()
            asked.discard(STORED)
        elif op.regions or _counts(op):
            flying.clear()
            asked.update([r.id for r in op.results] or [STORED])
        elif op.name == "load.global":
            if not asked:
                flying[op.results[0].id] = op
        elif op.name in _SAME:
            mine = [flying[a.id] for a in op.args if a.id in flying]
            flying.update(dict.fromkeys((r.id for r in op.results), mine[0]) if len(mine) == 1 else {})
        else:
            found.update(flying[a.id] for a in op.args if a.id in flying)
    return set() if asked else found  # what is on its way at the end is so at the start of the next trip


def _follow(op: Op, into: set[int]) -> None:
    """Add what an op reads, behind whatever other names it has, to `into`."""
    for a in op.args:
        into.add(a.id)
        if a.op is not None and a.op.name in _SAME:
            _follow(a.op, into)


def _fits(kernel: Kernel, op: Op) -> bool:
    """Whether the scalar unit can make this load (CONSTANT, WHOLE)."""
    buffer, offset, scalar, mask = op.args[:4]
    width, imm = op.attrs["bytes"], op.attrs.get("imm", 0)
    if width not in _WIDTHS or op.attrs.get("cache") or mask.const is not True or not offset.uniform:
        return False
    low = width - 1
    if imm < 0 or imm & low or low & ~_zeros(offset) or low & ~_zeros(scalar):
        return False
    array = _array(kernel, buffer)
    return array is not None and width <= array and not (buffer.op and buffer.op.attrs.get("cache_stride"))


def _zeros(v: Value) -> int:
    """Bits that are known to be 0."""
    return ~int(v.const) if v.const is not None else v.zeros


def _array(kernel: Kernel, buffer: Value) -> int | None:
    """Bytes of an element of the one array that a buffer is made of, if the kernel only reads it."""
    sizes: set[int | None] = set()
    work = [buffer]
    while work:
        op = work.pop().op
        if op is None:
            return None
        if op.name == "param":
            p = kernel.params[op.attrs["index"]]
            if p.kind == "pointer":
                sizes.add(p.dtype.bits // 8 if p.access == "read" else None)
        work += op.args
    return sizes.pop() if len(sizes) == 1 else None


def _uses_lds(loop: Op) -> bool:
    """Whether waits for LDS are part of a loop (ORDER)."""
    return any(_counts(op) for body in loop.regions for op in body.walk())


def _counts(op: Op) -> bool:
    """Whether waits for LDS are waits for an op."""
    return op.name in _LANES or bool(op.row.effects & _SHARED)
