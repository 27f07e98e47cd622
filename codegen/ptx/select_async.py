"""Selection of asynchronous matrix instructions (see `select`): descriptors, results in place, groups and fences.

An asynchronous instruction reads and writes the registers of its addend, and ptxas overlaps instructions only while
these stay one fixed list. So the result takes over the addend's registers, unless somebody reads the addend later:
then it is copied first. A sum that starts from nothing gets registers that nobody initialises.

A descriptor's address field is the address of a tile shifted right by four; the constant distances between the
instructions of a product are added to its low word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wavedsl.codegen.ptx.isa import lookup
from wavedsl.codegen.ptx.machine import UNDEFINED, Imm, Ins, Operand, Reg
from wavedsl.codegen.ptx.select_memory import shared_register
from wavedsl.codegen.ptx.select_numbers import kind_of
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import I64, Op, Region, Value

if TYPE_CHECKING:
    from wavedsl.codegen.ptx.select import Selector

ALIASES = frozenset({"vec", "slice", "bitcast"})
"""Ops whose results are their operands' registers."""


def _undefined(s: Selector, op: Op) -> None:
    s.values[op.result.id] = (UNDEFINED,) * op.result.type.n


def _mma_tile(s: Selector, op: Op) -> None:
    """A descriptor is made where it is used (`descriptor`)."""
    s.values[op.result.id] = ()


def descriptor(s: Selector, op: Op) -> Reg:
    """The descriptor that `op` stands for, in a register of the block that uses it: descriptors are constant distances
    apart, and uniform registers, which hold them, are few.

    (base + n) >> 4 is (base >> 4) + (n >> 4): n is a multiple of 16, and so is the base of every tile. In a cluster the
    base is without the workgroup's rank, which stands in bits 24 and above: it would land in the leading offset.
    """
    low, high = op.attrs["low"], op.attrs["high"]
    address = s.one(op.args[0])
    ranked = s.kernel.cluster == 1  # there are none: the address as it is
    if type(address) is Imm:
        reg, offset = s.shared_base(ranked), int(address.value)
    else:
        reg, offset = shared_register(s, op.args[0], ranked)
    if offset % 16:
        raise CompileError(f"a matrix tile at byte {offset} is not aligned to 16", op.loc)

    def field() -> Reg:
        shifted = s.set("b32", ("shr", "u32"), reg, Imm(4))
        return s.set("b32", ("or", "b32"), shifted, Imm(low)) if low else shifted

    def moved() -> Reg:
        base = s.hoisted(("tile", reg.id, low), reg.level, field)
        return s.set("b32", ("add", "s32"), base, Imm(offset >> 4)) if offset else base

    key = ("tile", reg.id, low, offset, high)
    cache = s.scopes[-1].cache
    if key not in cache:
        cache[key] = s.set("b64", ("mov", "b64"), (moved(), s.reg(Imm(high))))
    made: Reg = cache[key]
    return made


def _mma_async(s: Selector, op: Op) -> None:
    atom = op.attrs["atom"]
    a, b, c, keep = op.args
    inst = lookup(atom.instruction, s.target)
    first: Operand = descriptor(s, a.op) if a.type is I64 and a.op is not None else fragment(s, a)
    assert b.op is not None
    d = s.addends.pop(op, None) or in_place(s, op, c)
    flag = s.one(keep)
    args = [d, first, descriptor(s, b.op), Imm(int(bool(flag.value))) if type(flag) is Imm else flag]
    names = {o.name for o in inst.operands}
    args += [Imm(1) for name in ("scale_a", "scale_b") if name in names]
    if "b_order" in names:
        orders = [Imm(int(major == "m")) for major in op.attrs["majors"]]
        args += orders if a.type is I64 else orders[1:]
    s.out.append(Ins(inst, tuple(args), s.loc))
    s.values[op.result.id] = d


def fragment(s: Selector, a: Value) -> tuple[Reg, ...]:
    """The registers of an operand. Nobody else may read them while the product runs, so constants among them (what lies
    beyond an end is 0) have registers of their own, which other products may read."""
    return s.regs(a, "products")


def in_place(s: Selector, op: Op, c: Value) -> tuple[Reg, ...]:
    """The registers of `c` where nobody needs them after `op`, else fresh ones that hold the same."""
    kind = kind_of(c.type)
    held = s.of(c)
    mine = all(type(r) is Reg for r in held) and len({r.id for r in held}) == len(held) and not read_later(s, op, c)
    out = []
    for r in held:
        if r is UNDEFINED:
            out.append(s.new(kind))
        elif mine:
            out.append(r)
        else:
            source = r if type(r) is Reg else Imm(r.value, r.kind)
            word = kind if type(source) is Reg or source.kind == "i" else source.kind
            out.append(s.set(kind, ("mov", word), source))
    return tuple(out)


def read_later(s: Selector, op: Op, c: Value) -> bool:
    """Whether anything after `op`, this trip or the next, reads a register of `c`."""
    order = _order(s)
    at = order[op][0]
    here = order[op][1]
    for root in _roots(c):
        where = _home(s, root)
        # A loop around the op that the value comes into from outside reads it again in the next trip.
        if any(region not in where for region in here if region.parent is not None and region.parent.name == "for"):
            return True
        if any(order[use][0] > at for use in _uses(s, root)):
            return True
    return False


def _roots(c: Value) -> set[Value]:
    """The values whose registers `c` is made of."""
    found, work = set(), [c]
    while work:
        v = work.pop()
        if v.op is not None and v.op.name in ALIASES:
            work += v.op.args
        else:
            found.add(v)
    return found


def _uses(s: Selector, root: Value) -> list[Op]:
    """Ops that read the registers of a value, through tuples and slices."""
    found, work, seen = [], [root], {root.id}
    while work:
        for user in s.users.get(work.pop().id, ()):
            if user.name not in ALIASES:
                found.append(user)
            elif user.result.id not in seen:
                seen.add(user.result.id)
                work.append(user.result)
    return found


def _home(s: Selector, v: Value) -> tuple[Region, ...]:
    """The regions around a value's definition."""
    if v.op is None:
        region = v.region
        chain: list[Region] = []
        while region is not None:
            chain.append(region)
            region = _order(s)[region.parent][1][-1] if region.parent is not None else None
        return tuple(chain)
    return _order(s)[v.op][1]


def _order(s: Selector) -> dict[Op, tuple[int, tuple[Region, ...]]]:
    """Every op's place in the text and the regions around it, outermost first. A loop stands after its body."""
    table = s.order
    if not table:

        def walk(region: Region, around: tuple[Region, ...]) -> None:
            inside = (*around, region)
            for op in region.ops:
                for body in op.regions:
                    walk(body, inside)
                table[op] = (len(table), inside)

        walk(s.kernel.body, ())
    return table


def _mma_fence(s: Selector, op: Op) -> None:
    """What the group's instructions have in registers is put there first: constants that they read, copies of addends
    that are read later. To write those behind the fence is undefined (PTX ISA, wgmma.fence); ptxas mends it (C7519)."""
    ops = s.current.ops
    for later in ops[ops.index(op) + 1 :]:
        if later.name == "matrix.commit":
            break
        if later.name == "matrix.start":
            first, _, addend, _ = later.args
            if first.type is not I64 and first.id in s.values:
                fragment(s, first)
            if addend.id in s.values:
                s.addends[later] = in_place(s, later, addend)
    s.emit(("wgmma", "fence", "sync", "aligned"))


def _mma_commit(s: Selector, op: Op) -> None:
    s.emit(("wgmma", "commit_group", "sync", "aligned"))


def _mma_wait(s: Selector, op: Op) -> None:
    s.emit(("wgmma", "wait_group", "sync", "aligned"), Imm(op.attrs["pending"]))


def _proxy_fence(s: Selector, op: Op) -> None:
    s.emit(("fence", "proxy", "async") if op.attrs["everywhere"] else ("fence", "proxy", "async", "shared::cta"))


SELECT: dict[str, Callable[[Selector, Op], None]] = {
    "undefined": _undefined,
    "matrix.tile": _mma_tile,
    "matrix.start": _mma_async,
    "matrix.fence": _mma_fence,
    "matrix.commit": _mma_commit,
    "matrix.wait": _mma_wait,
    "proxy.fence": _proxy_fence,
}
