"""Selection of memory accesses (see `select`).

Global: one 64-bit register per (base, voff, soff), the immediate in the brackets. The terms of the offsets are
zero-extended and added one by one, the ones known outside a loop before it, so that an offset that advances costs one
64-bit add per distinct lane offset and trip. Shared: 32-bit; the array's base is added to the part of the address that
changes least often. Masked loads zero their destination first; masked asynchronous copies pass 0 as the number of
source bytes, which makes the hardware read nothing and write zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wavedsl.codegen.ptx import cache
from wavedsl.codegen.ptx.isa import lookup
from wavedsl.codegen.ptx.machine import Imm, Ins, Mem, Operand, Reg
from wavedsl.codegen.ptx.mma import MOVES_BY_NAME, WARP
from wavedsl.codegen.ptx.select_entry import special
from wavedsl.codegen.ptx.select_numbers import FULL_WARP, kind_of
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import Op, Value

if TYPE_CHECKING:
    from wavedsl.codegen.ptx.select import Selector

SHARED_ALIGN = 1024
"""Alignment of the shared array: an XOR swizzle below it commutes with adding the array's base."""
_IMM_MAX = (1 << 31) - 1
_LEAST = -(1 << 31)
_SHARED_IMM = 1 << 23
"""Immediates that a shared access holds. Its address is computed modulo 2**32, as the kernel IR's sums are."""


def _buffer(s: Selector, op: Op) -> None:
    """A generic pointer as a global address. The size is the masks' business: PTX checks no bounds."""
    base = s.regs(op.args[0])[0]
    out = s.hoisted(("global", base.id), base.level, lambda: s.set("b64", ("cvta", "to", "global", "u64"), base))
    s.values[op.result.id] = (out,)


def _global_address(s: Selector, buf: Value, voff: Value, soff: Value, imm: int) -> Mem:
    """base + every term of the offsets, terms that are known first added first, constants in the brackets.

    (SIGNED) An offset below zero, of a neighbour before the first element, is none of an array of less than 2 GiB: such
    an access is masked off. So where a sum is known not to wrap, its terms may be extended by their signs, one by one,
    and a neighbour's distance stands in the brackets. In a larger array the same bits are an offset beyond 2 GiB.
    """
    here: Reg = s.regs(buf)[0]
    parts: list[tuple[Reg, bool]] = []
    signed = _is_short(buf)
    for term in (*_terms(s, soff, signed), *_terms(s, voff, signed)):
        part, below = s.one(term), signed and _below_zero(term)
        if type(part) is Imm:
            imm += int(part.value) if term is not voff and below else int(part.value) & 0xFFFFFFFF
        else:
            parts.append((part, below))
    for part, below in sorted(parts, key=lambda p: p[0].level):
        base, wide = here, s.sext(part) if below else s.zext(part)
        here = s.hoisted(
            ("address", base.id, wide.id), s.level_of(base, wide),
            lambda base=base, wide=wide: s.set("b64", ("add", "s64"), base, wide),  # type: ignore[misc]
        )  # fmt: skip
    if imm > _IMM_MAX:
        base, far = here, Imm(imm)
        here = s.hoisted(("far", base.id, imm), base.level, lambda: s.set("b64", ("add", "s64"), base, far))
        imm = 0
    return Mem(here, imm)


def _is_short(buf: Value) -> bool:
    """Whether an array is known to span less than 2 GiB."""
    size = buf.op.args[1] if buf.op is not None and buf.op.name == "buffer" else None
    return size is not None and size.hi is not None and size.hi <= _IMM_MAX


def _below_zero(v: Value) -> bool:
    """Whether a number may be below zero, and is one of a known range: one of any value is an offset of 32 bits."""
    return v.lo is not None and v.hi is not None and _LEAST < v.lo < 0


def _wraps(a: Value, b: Value) -> bool:
    """Whether a sum may leave the signed numbers of 32 bits."""
    assert a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None
    return a.lo + b.lo < _LEAST or a.hi + b.hi > _IMM_MAX


def _terms(s: Selector, v: Value, signed: bool) -> list[Value]:
    """The terms of an offset that are constant or known at different levels, where their sum does not wrap; `signed`:
    some of them may be below zero."""
    op = v.op
    if op is None or op.name != "add":
        return [v]
    a, b = op.args
    if v.lo is None or a.lo is None or b.lo is None or not s.of(a) or not s.of(b):
        return [v]
    below = min(v.lo, a.lo, b.lo) < 0
    if below and (not signed or any(x.lo == _LEAST for x in (v, a, b)) or _wraps(a, b)):
        return [v]
    if a.const is None and b.const is None and s.level_of(s.one(a)) == s.level_of(s.one(b)):
        return [v]
    return _terms(s, a, signed) + _terms(s, b, signed)


def shared_address(s: Selector, v: Value, imm: int) -> Mem:
    part = s.one(v)
    if type(part) is Imm:
        s.code.shared_symbol = "smem"
        return Mem("smem", int(part.value) + imm)
    reg, offset = shared_register(s, v)
    return Mem(reg, offset + imm)


def shared_register(s: Selector, v: Value, ranked: bool = True) -> tuple[Reg, int]:
    """A register with array base + v - n, and n. The base goes to the operand that is known first.

    `ranked`: whether the base may hold the workgroup's rank in its cluster (`Selector.shared_base`).
    """
    r: Reg = s.one(v)
    key = ("shared", v.id, ranked)

    def keep(level: int, build: Callable[[], Reg], offset: int = 0) -> tuple[Reg, int]:
        return s.hoisted(key, level, lambda: (build(), offset))

    for scope in reversed(s.scopes):
        found = scope.cache.get(key)
        if found is not None:
            return found
    op = v.op
    offset = 0
    if op is not None and op.name in ("add", "xor") and all(s.of(x) for x in op.args):
        a, b = op.args
        if a.const is not None:
            a, b = b, a
        if b.const is not None:
            if op.name == "add" and 0 <= int(b.const) < _SHARED_IMM:
                base, more = shared_register(s, a, ranked)
                return base, more + int(b.const)
            if op.name == "xor" and 0 <= int(b.const) < SHARED_ALIGN:
                base, more = shared_register(s, a, ranked)
                if more == 0:
                    flip = Imm(int(b.const))
                    return keep(base.level, lambda: s.set("b32", ("xor", "b32"), base, flip))
        elif op.name == "add":
            x, y = s.of(a), s.of(b)
            if type(x[0]) is Reg and type(y[0]) is Reg and x[0].level != y[0].level:
                late, early = (a, b) if x[0].level > y[0].level else (b, a)
                base, offset = shared_register(s, early, ranked)
                varying = s.one(late)
                return keep(s.level_of(varying, base), lambda: s.set("b32", ("add", "s32"), base, varying), offset)
    return keep(r.level, lambda: s.set("b32", ("add", "s32"), r, s.shared_base(ranked)))


# ----------------------------------------------------------------------------------------------------------- accesses


def _pieces(kind: str, bytes_: int, count: int) -> list[tuple[tuple[str, ...], int, int, int]]:
    """How to move `bytes_` through `count` registers: (modifiers, first register, registers, byte offset) per
    access."""
    if bytes_ < 4:
        return [((f"u{8 * bytes_}",), 0, 1, 0)]
    size = 4 if kind == "b32" else 8
    type_ = f"b{8 * size}"
    if count * size != bytes_:
        raise CompileError(f"an access of {bytes_} bytes does not fill {count} registers of {size} bytes")
    if count == 3:
        return [((type_,), i, 1, i * size) for i in range(3)]  # 12 bytes lie at multiples of 4
    if count not in (1, 2, 4) or bytes_ > 16:
        raise CompileError(f"no access of {bytes_} bytes")
    return [((type_,) if count == 1 else (f"v{count}", type_), 0, count, 0)]


def load(s: Selector, op: Op, space: str, address: Mem, mask: Reg | bool) -> None:
    type_ = op.result.type
    kind = kind_of(type_)
    if mask is False:
        s.values[op.result.id] = tuple(Imm(0) for _ in range(type_.n))
        return
    guard = None if mask is True else mask
    hint = op.attrs.get("cache")
    policy = cache.policy(s, hint)
    regs = tuple(s.new(kind) for _ in range(type_.n))
    if guard is not None:
        for r in regs:
            s.emit(("mov", kind), r, Imm(0))
    for words, first, count, at in _pieces(kind, op.attrs["bytes"], len(regs)):
        dst: Operand = regs[first] if count == 1 else regs[first : first + count]
        prefix = cache.access_words(hint, space, op.attrs["bytes"], True)
        s.emit(("ld", *prefix, *words), dst, Mem(address.base, address.offset + at), *policy, guard=guard)
    s.values[op.result.id] = regs


def _store(s: Selector, op: Op, space: str, address: Mem, mask: Reg | bool, value: Value) -> None:
    if mask is False:
        return
    guard = None if mask is True else mask
    regs = s.regs(value)
    bytes_ = op.attrs["bytes"]
    hint = op.attrs.get("cache")
    policy = cache.policy(s, hint)
    if op.attrs.get("high"):
        word = regs[0]
        regs = (s.hoisted(("high", word.id), word.level, lambda: s.set("b32", ("shr", "u32"), word, Imm(16))),)
    for words, first, count, at in _pieces(kind_of(value.type), bytes_, len(regs)):
        src: Operand = regs[first] if count == 1 else regs[first : first + count]
        prefix = cache.access_words(hint, space, bytes_, False)
        s.emit(("st", *prefix, *words), Mem(address.base, address.offset + at), src, *policy, guard=guard)


def _load_global(s: Selector, op: Op) -> None:
    buf, voff, soff, mask, guard = op.args
    load(s, op, "global", _global_address(s, buf, voff, soff, op.attrs.get("imm", 0)), s.mask(mask, guard))


def _store_global(s: Selector, op: Op) -> None:
    buf, voff, soff, mask, guard, value = op.args
    _store(s, op, "global", _global_address(s, buf, voff, soff, op.attrs.get("imm", 0)), s.mask(mask, guard), value)


def _far_address(s: Selector, addr: Value) -> Mem:
    """A generic 64-bit address of each lane as a global one."""
    base = s.regs(addr)[0]
    words = ("cvta", "to", "global", "u64")
    return Mem(s.hoisted(("global", base.id), base.level, lambda: s.set("b64", words, base)), 0)


def _load_far(s: Selector, op: Op) -> None:
    load(s, op, "global", _far_address(s, op.args[0]), True)


def _store_far(s: Selector, op: Op) -> None:
    addr, mask, value = op.args
    _store(s, op, "global", _far_address(s, addr), s.mask(mask), value)


_ATOMIC = {
    "add": ("add", "u"), "min_s": ("min", "s"), "max_s": ("max", "s"), "min_u": ("min", "u"), "max_u": ("max", "u"),
    "and": ("and", "b"), "or": ("or", "b"), "xor": ("xor", "b"), "xchg": ("exch", "b"), "cas": ("cas", "b"),
    "fadd": ("add", "f"),
}  # fmt: skip
_PACKED_ATOMIC = {"pk_add_f16": "f16x2", "pk_add_bf16": "bf16x2"}


def _atomic_far(s: Selector, op: Op) -> None:
    addr, mask, *values = op.args
    _atomic(s, op, values, s.mask(mask), lambda: _far_address(s, addr))


def _atomic_global(s: Selector, op: Op) -> None:
    buf, voff, soff, mask, guard, *values = op.args
    place = op.attrs.get("imm", 0)
    _atomic(s, op, values, s.mask(mask, guard), lambda: _global_address(s, buf, voff, soff, place))


def _atomic(s: Selector, op: Op, values: Sequence[Value], mask: Any, place: Callable[[], Mem]) -> None:
    """`atom`, or `red` where nobody reads what was there."""
    how, kind = op.attrs["how"], kind_of(op.result.type)
    if mask is False:
        s.values[op.result.id] = (Imm(0),)
        return
    words: tuple[str, ...]
    if how in _PACKED_ATOMIC:
        words = ("global", "add", "noftz", _PACKED_ATOMIC[how])
    else:
        name, sign = _ATOMIC[how]
        words = ("global", name, sign + kind[1:])
    address = place()
    guard = None if mask is True else mask
    count = op.result.type.n
    if count > 1:
        s.emit(("red", words[0], f"v{count}", words[2], words[1]), address, s.regs(values[0]), guard=guard)
        return
    sources = [s.regs(v)[0] for v in values]
    if not s.users.get(op.result.id) and how not in ("xchg", "cas"):
        s.emit(("red", *words), address, *sources, guard=guard)
        return
    out = s.new(kind)
    if guard is not None:
        s.emit(("mov", kind), out, Imm(0))
    s.emit(("atom", *words), out, address, *sources, guard=guard)
    s.values[op.result.id] = (out,)


def _atomic_shared(s: Selector, op: Op) -> None:
    addr, mask, value = op.args
    guard = s.mask(mask)
    if guard is False:
        return
    name, sign = _ATOMIC[op.attrs["how"]]
    address = shared_address(s, addr, op.attrs.get("imm", 0))
    words = ("red", "shared", name, sign + kind_of(value.type)[1:])
    s.emit(words, address, s.regs(value)[0], guard=None if guard is True else guard)


def barrier(s: Selector, op: Op) -> None:
    """All threads meet, or those of the role that the op stands in. ptxas keeps a barrier of a workgroup of one warp,
    and makes nothing of a warp's own where its lanes come together."""
    threads: Any = op.attrs.get("threads")
    if s.kernel.waves == 1 and s.kernel.wave_size == WARP and not op.attrs.keys() & {"threads", "half"}:
        s.emit(("bar", "warp", "sync"), Imm(-1))
        return
    if op.attrs.get("per_wave"):
        s.emit(("bar", "sync"), barrier_of_wave(s, op.attrs["id"]), Imm(threads))
        return
    s.emit(("bar", "sync"), Imm(op.attrs.get("id", 0)), *((Imm(threads),) if threads else ()))


def barrier_of_wave(s: Selector, first: int) -> Reg:
    """The number of this wave's own barrier."""
    shift = s.kernel.wave_size.bit_length() - 1

    def number() -> Reg:
        wave = s.set("b32", ("shr", "u32"), special(s, "%tid.x"), Imm(shift))
        return s.set("b32", ("add", "s32"), wave, Imm(first))

    return s.hoisted(("wave barrier", first), 0, number)


def _fence(s: Selector, op: Op) -> None:
    """Among the threads that meet, a barrier orders accesses by itself (PTX ISA, `bar`), and order is transitive. So
    what all have written is released by a fence behind the barrier, in the thread that then tells others; what a thread
    has learned is acquired by its fence in front of the barrier, for all that come to it."""
    among_all = "scope" not in op.attrs
    if among_all and op.attrs.get("order") != "release":
        s.emit(("fence", "acq_rel", "gpu"))
    barrier(s, op)
    if among_all and op.attrs.get("order") != "acquire":
        s.emit(("fence", "acq_rel", "gpu"))


def _any_lane(s: Selector, op: Op) -> None:
    held = s.one(op.args[0])
    if type(held) is Imm:
        s.values[op.result.id] = (held,)
        return
    s.values[op.result.id] = (s.set("pred", ("vote", "sync", "any", "pred"), held, FULL_WARP),)


def _load_shared(s: Selector, op: Op) -> None:
    atom = op.attrs.get("atom", "vector")
    address = shared_address(s, op.args[0], op.attrs.get("imm", 0))
    if atom == "vector":
        load(s, op, "shared", address, True)
        return
    move = MOVES_BY_NAME.get(atom)
    if move is None or move.store:
        raise CompileError(
            f"{s.target} has no load atom {atom}", op.loc, "vector, ldmatrix.x1, x2, x4, each with .trans"
        )
    regs = tuple(s.new("b32") for _ in range(move.count))
    if op.result.type.words != move.count:
        raise CompileError(f"{atom} fills {move.count} registers, not {op.result.type}", op.loc)
    s.out.append(Ins(lookup(move.mnemonic, s.target), (regs, address), s.loc))
    s.values[op.result.id] = regs


def _store_shared(s: Selector, op: Op) -> None:
    addr, mask, value = op.args
    move = MOVES_BY_NAME.get(op.attrs.get("atom", ""))
    if move is not None:
        address = shared_address(s, addr, op.attrs.get("imm", 0))
        s.out.append(Ins(lookup(move.mnemonic, s.target), (address, s.regs(value)), s.loc))
        return
    _store(s, op, "shared", shared_address(s, addr, op.attrs.get("imm", 0)), s.mask(mask), value)


def _copy_async(s: Selector, op: Op) -> None:
    """16 bytes bypass L1 (`.cg`, the only size it has) unless they are `near`; smaller ones go through it.

    A masked-off lane's address may lie outside the array: with 0 source bytes nothing is read there. A lane that copies
    nothing does not carry the instruction out. Cache hints are left out: see the row (`isa_memory`).
    """
    buf, voff, soff, mask_v, guard_v, saddr, *lanes = op.args
    bytes_ = op.attrs["bytes"]
    if bytes_ not in (4, 8, 16):
        raise CompileError(f"no asynchronous copy of {bytes_} bytes", op.loc, "4, 8 or 16 bytes per lane")
    source = _global_address(s, buf, voff, soff, op.attrs.get("imm", 0))
    target = shared_address(s, saddr, op.attrs.get("simm", 0))
    mask = s.mask(mask_v, guard_v)
    here = s.mask(*lanes) if lanes else True
    if here is False:
        return
    guard = None if here is True else here
    words = ("cp", "async", "cg" if bytes_ == 16 and not op.attrs.get("near") else "ca", "shared", "global")
    if mask is True:
        s.emit(words, target, source, Imm(bytes_), guard=guard)
        return
    take: Operand
    if mask is False:
        take = s.reg(Imm(0))
    else:
        take = s.hoisted(
            ("take", mask.id, bytes_), mask.level, lambda: s.set("b32", ("selp", "b32"), Imm(bytes_), Imm(0), mask)
        )
    s.emit(words, target, source, Imm(bytes_), take, guard=guard)


def _touch_global(s: Selector, op: Op) -> None:
    """One line per lane; those of a warp that lie in the same line are one request."""
    buf, voff, soff, mask_v, guard_v = op.args
    mask = s.mask(mask_v, guard_v)
    if mask is False:
        return
    address = _global_address(s, buf, voff, soff, op.attrs["imm"])
    s.emit(("prefetch", "global", "L2"), address, guard=None if mask is True else mask)


def _copy_commit(s: Selector, op: Op) -> None:
    s.emit(("cp", "async", "commit_group"))


def _copy_wait(s: Selector, op: Op) -> None:
    s.emit(("cp", "async", "wait_group"), Imm(op.attrs["pending"]))


SELECT: dict[str, Callable[[Selector, Op], None]] = {
    "buffer": _buffer,
    "load.global": _load_global,
    "store.global": _store_global,
    "load.far": _load_far,
    "store.far": _store_far,
    "atomic.global": _atomic_global,
    "atomic.far": _atomic_far,
    "any_lane": _any_lane,
    "barrier": barrier,
    "fence": _fence,
    "load.shared": _load_shared,
    "store.shared": _store_shared,
    "atomic.shared": _atomic_shared,
    "copy.async": _copy_async,
    "touch.global": _touch_global,
    "copy.commit": _copy_commit,
    "copy.wait": _copy_wait,
}
