"""Lowering of buffers, global and shared memory, copies to shared memory, barriers and matrix instructions.

A buffer is a resource descriptor in four scalar registers: base, stride 0, size in bytes, 0x27000. The
address's upper 16 bits, where the stride would be, are 0: user addresses of the supported systems have 47 bits, and a
launch refuses others. Descriptors of one size copy the pair of it and the last word from the first. The hardware drops
what lies at or past the size, which also realises masks: a lane that is masked off gets an offset that is past the end
of every buffer. Where a buffer is known to be smaller than 3.19 GB that offset is the inline constant -0.5
(0xbf000000), elsewhere 0xffffe000, and sizes are capped there. Immediates stay small enough not to wrap around.

(GUARD) A uniform guard makes the size 0 in the descriptor; where the buffer is used without a guard too, in a second
one, whose other words are copied once, where the buffer is made. Its size word is set again whenever another guard, or
another region, was there in between; one comparison sets those of all buffers that the guard is for.

The scalar offset of an access takes part in the bounds check only on paper (the two published descriptions differ),
so it is used as such only where the whole access is provably inside; elsewhere it is added to the vector offset.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from wavedsl.codegen.amdgcn import isa, roles
from wavedsl.codegen.amdgcn.isa import OFFSETS
from wavedsl.codegen.amdgcn.isa_memory import LDS_SUFFIX
from wavedsl.codegen.amdgcn.machine import COPY, Inst, Operand, Ref
from wavedsl.codegen.amdgcn.rows import EXEC_REF, M0_REF, SCC_REF
from wavedsl.codegen.amdgcn.select import Guarded, Selector, is_inline, lower, signed
from wavedsl.codegen.amdgcn.waits import COPY_COMMIT, COPY_WAIT, WAVE_BARRIER
from wavedsl.ir import trail
from wavedsl.ir.kernel.kernel_ir import Op, Value
from wavedsl.ir.target import MmaAtom

WORD3 = 0x27000
"""Raw buffer, 32-bit data format."""
CACHE_SWIZZLE, STRIDE_BIT = 1 << 30, 16
"""In the second word, above the address: whether the caches are swizzled, and with which stride (14 bits)."""
FAR = -0.5
"""Inline constant whose bits, 0xbf000000, are an offset past the end of every buffer up to `FAR_LIMIT` bytes."""
FAR_LIMIT = 0xBF000000
FARTHEST = 0xFFFFE000
MAX_IMM = OFFSETS["MUBUF"][1]
MAX_SHARED_IMM = OFFSETS["DS"][1]


# -------------------------------------------------------------------------------------------------------------- buffers


def _size_limit(buffer: Value) -> int:
    """The largest number of bytes that a buffer may have."""
    assert buffer.op is not None
    size = buffer.op.args[1]
    if size.const is not None:
        return int(size.const)
    if size.hi is not None and size.lo is not None and size.lo >= 0:
        return size.hi
    return 1 << 63


def _records(s: Selector, size: Value, limit: int) -> Operand:
    """The size word for so many bytes, of which there are at most `limit`."""
    r = s.rows
    if size.const is not None:
        return min(int(size.const), FARTHEST)
    low, high = s.scalar_words(size)
    records: Operand = low
    if limit >= 1 << 32:
        s.emit(r.s_cmp_eq_u32, high, 0)
        records = s.new("s")
        s.emit(r.s_cselect_b32, records, low, s.pooled(FARTHEST))
    return s.stemp(r.s_min_u32, records, s.pooled(FARTHEST)) if limit > FARTHEST else records


@lower("buffer")
def buffer(s: Selector, op: Op) -> None:
    r = s.rows
    base, size = op.args
    low, high = s.scalar_words(base)
    records = s.remember(("records", size.id), lambda: _records(s, size, _size_limit(op.results[0])))
    ref = s.result(op, "s")
    s.copy(ref.part(0), low)
    swizzle = op.attrs.get("cache_stride", 0)
    if swizzle:
        s.emit(r.s_or_b32, ref.part(1), high, CACHE_SWIZZLE | swizzle << STRIDE_BIT)
    else:
        s.copy(ref.part(1), high)
    number = op.results[0].id
    if s.guarded.get(number, 0) == s.uses.get(number, 0):
        s.copy(ref.part(3), WORD3)
        s.shadows[number] = Guarded(ref, records, s.scopes[-1])
        return
    same = s.remember(("descriptor", _key(records)), lambda: ref)
    if same is not ref:
        s.copy(ref.part(2, 2), same.part(2, 2))
    else:
        s.copy(ref.part(2), records)
        s.copy(ref.part(3), WORD3)
    if number in s.guarded:
        shadow = s.new("s", 4, "guarded buffer")
        for k in (0, 1, 3):
            s.copy(shadow.part(k), ref.part(k))
        s.shadows[number] = Guarded(shadow, records, s.scopes[-1])


def guarded_descriptor(s: Selector, buffer: Value, guard: Value) -> Ref | None:
    """The descriptor to use under a uniform guard; None where the guard is constantly false.

    Its size word is set for the guard at hand (GUARD): one comparison serves all buffers that are used under it, one
    selection those of the same size.
    """
    ref: Ref = s.operand(buffer)
    held = s.operand(guard)
    if held is False:
        return None
    mine = s.shadows.get(buffer.id)
    if mine is None or (held is True and mine.ref is not ref):
        return ref
    state = (guard.id, len(s.scopes), s.scope_serial)
    if mine.state == state:
        return mine.ref
    if held is True:
        mine.state = state
        s.copy(mine.ref.part(2), mine.records)
        return mine.ref
    compared = False

    def records_of(other: Guarded) -> Operand:
        nonlocal compared
        if not compared:
            s.scc(guard)
            compared = True
        chosen = s.new("s")
        s.emit(s.rows.s_cselect_b32, chosen, other.records, 0)
        return chosen

    for id in s.guards[guard.id]:
        other = s.shadows.get(id)
        # A loop that has ended took its descriptors along.
        if other is not None and other.state != state and any(scope is other.home for scope in s.scopes):
            other.state = state
            same = ("guarded", guard.id, _key(other.records))
            s.copy(other.ref.part(2), s.remember(same, partial(records_of, other)))
    return mine.ref


def global_address(
    s: Selector, op: Op, width: int, masked: bool = True, most: int = MAX_IMM
) -> tuple[Operand, Operand, int] | None:
    """(vector offset, scalar offset, immediate) of a global access; None where its mask is constantly false. Without
    `masked` the mask is the caller's business. An immediate above `most` is added to another part."""
    buffer, offset, scalar, mask = op.args[:4]
    imm = op.attrs.get("imm", 0)
    held = s.mask(mask) if masked else True
    if held is False:
        return None
    soff = s.scalar(scalar)
    voff = s.operand(offset)
    if trail.explains("offsets"):
        trail.explain("offsets", _offsets_text(op, buffer, offset, scalar, imm, width))
    extra: Operand = 0
    if soff != 0 and not op.attrs.get("bounded") and not _inside(buffer, offset, scalar, imm + width):
        extra, soff = soff, 0
    high = imm - imm % (MAX_IMM + 1) if not 0 <= imm <= MAX_IMM else 0
    imm -= high
    if imm > most:
        if op.attrs.get("bounded") or _inside(buffer, offset, scalar, imm + high + width):
            soff = soff + imm if soff.__class__ is int else s.stemp(s.rows.s_add_u32, soff, imm)
        else:
            high += imm
        imm = 0
    if extra.__class__ is int:
        high, extra = high + extra, 0
    if high:
        voff = _plus(s, voff, high)
    if extra != 0:
        voff = _plus(s, voff, extra)
    if held is not True:
        far: Operand = FAR if _size_limit(buffer) <= FAR_LIMIT else s.to_vector(FARTHEST)
        source = voff

        def make() -> Ref:
            masked = s.new("v")
            s.pick(masked, held, source, far)
            return masked

        voff = s.remember(("masked", _key(voff), held.reg.id, far.__class__), make)
    return voff, soff if is_inline(soff) or soff.__class__ is Ref else s.pooled(soff), imm


def _offsets_text(op: Op, buffer: Value, offset: Value, scalar: Value, imm: int, width: int) -> str:
    """Where the parts of an address go, and why."""
    fits = 0 <= imm <= MAX_IMM
    parts = [
        f"immediate {imm} folded" if fits else f"immediate {imm} is outside 0..{MAX_IMM}: the rest is added per lane",
        "nothing uniform"
        if scalar.const == 0
        else "the uniform part stays scalar"
        if op.attrs.get("bounded")
        else "the uniform part stays scalar: the access is inside the buffer"
        if _inside(buffer, offset, scalar, imm + width)
        else "the uniform part is added per lane: the bounds check may not see it",
        f"per lane {'constant ' + str(offset.const) if offset.const is not None else f'in {offset.lo}..{offset.hi}'}",
    ]
    return _explained(op, width, parts)


def _explained(op: Op, width: int, parts: list[str]) -> str:
    where = f"line {op.loc.line}: " if op.loc is not None else ""
    return f"{where}{op.name} of {width} bytes: {'; '.join(parts)}"


def _key(operand: Operand) -> Any:
    return (operand.reg.id, operand.start) if operand.__class__ is Ref else operand


def _inside(buffer: Value, offset: Value, scalar: Value, end: int) -> bool:
    """Whether the access is provably inside the buffer."""
    assert buffer.op is not None
    size = buffer.op.args[1].const
    if size is None or offset.hi is None or scalar.hi is None or offset.lo is None or scalar.lo is None:
        return False
    return offset.lo >= 0 and scalar.lo >= 0 and offset.hi + scalar.hi + end <= size


def _plus(s: Selector, a: Operand, b: Operand) -> Operand:
    """a + b in a vector register, made once per region."""
    if a.__class__ is int and b.__class__ is int:
        return a + b

    def make() -> Ref:
        out = s.new("v")
        if b.__class__ is Ref and b.reg.cls == "v":
            s.valu(s.rows.v_add_u32, out, a, b, True)
        else:
            s.valu(s.rows.v_add_u32, out, b, s.to_vector(a))
        return out

    return s.remember(("plus", _key(a), _key(b)), make)


def emit_access(
    s: Selector, row: isa.Inst, data: Operand, place: tuple[Operand, Operand, int], srd: Ref, **mods: Any
) -> Inst:
    """One buffer instruction; a zero vector offset is left out."""
    voff, soff, imm = place
    if imm:
        mods["offset"] = imm
    if voff == 0 and voff.__class__ is int:
        return s.emit(row, *((data, isa.OFF) if data is not None else (isa.OFF,)), srd, soff, **mods)
    mods["offen"] = True
    address = s.to_vector(voff)
    return s.emit(row, *((data, address) if data is not None else (address,)), srd, soff, **mods)


@lower("load.global")
def load_global(s: Selector, op: Op) -> None:
    width = op.attrs["bytes"]
    srd = guarded_descriptor(s, op.args[0], op.args[4])
    if srd is not None and op.results[0].id in s.scalar_loads:
        at = _scalar_offset(s, op)
        s.emit(s.rows.named(roles.SCALAR_BUFFER_LOADS[width // 4]), s.result(op, "s"), srd, at)
        return
    place = global_address(s, op, width)
    if srd is None or place is None:
        _zero(s, op)
        return
    emit_access(s, s.rows.named(roles.LOADS[width]), s.result(op), place, srd, **_hint(s, op))


def _scalar_offset(s: Selector, op: Op) -> Operand:
    """Where a load of the scalar unit begins: one scalar register, all of which the bounds check sees, or a number."""
    offset, scalar = op.args[1:3]
    parts = [x for x in (s.scalar(offset), s.scalar(scalar), op.attrs.get("imm", 0)) if x.__class__ is Ref or x]
    number = sum(x for x in parts if x.__class__ is int)
    parts = [x for x in parts if x.__class__ is Ref]
    if not parts:
        return number if number <= isa.SMEM_OFFSET[1] else s.pooled(signed(number))
    at = parts[0]
    for other in (*parts[1:], *([signed(number)] if number else [])):
        at = s.stemp(s.rows.s_add_u32, at, other)
    return at


def _hint(s: Selector, op: Op) -> dict[str, Any]:
    """The cache bits that an access's hint sets."""
    access = "store" if op.name in ("store.global", "store.far") else "load"
    return dict.fromkeys(roles.CACHE_BITS[s.chip].get((op.attrs.get("cache"), access), ()), True)


def _zero(s: Selector, op: Op) -> None:
    dst = s.result(op)
    for k in range(dst.n):
        s.copy(dst.part(k), 0)


@lower("store.global")
def store_global(s: Selector, op: Op) -> None:
    width = op.attrs["bytes"]
    srd = guarded_descriptor(s, op.args[0], op.args[4])
    place = global_address(s, op, width)
    if srd is None or place is None:
        return
    row = s.rows.named((roles.HIGH_STORES if op.attrs.get("high") else roles.STORES)[width])
    emit_access(s, row, s.vector(op.args[5]), place, srd, **_hint(s, op))


def _explain_far(op: Op) -> None:
    if trail.explains("offsets"):
        why = "nothing folded: each lane adds up an address of 64 bits, for the array may exceed 4 GiB"
        trail.explain("offsets", _explained(op, op.attrs["bytes"], [why]))


@lower("load.far")
def load_far(s: Selector, op: Op) -> None:
    _explain_far(op)
    row = s.rows.named(roles.FAR_LOADS[op.attrs["bytes"]])
    s.emit(row, s.result(op), even(s, s.vector(op.args[0])), isa.OFF, **_hint(s, op))


@lower("store.far")
def store_far(s: Selector, op: Op) -> None:
    held = s.mask(op.args[1])
    if held is False:
        return
    width = op.attrs["bytes"]
    _explain_far(op)
    row = s.rows.named((roles.FAR_HIGH_STORES if op.attrs.get("high") else roles.FAR_STORES)[width])
    address, value = even(s, s.vector(op.args[0])), s.vector(op.args[2])
    if held is not True:
        open_region(s, held)
    s.emit(row, address, value, isa.OFF, **_hint(s, op))
    if held is not True:
        close_region(s, held)


# -------------------------------------------------------------------------------------------------------- shared memory


def shared_place(s: Selector, op: Op) -> tuple[Ref, int]:
    """(address register, immediate) of an access to shared memory."""
    v, imm = op.args[0], op.attrs.get("imm", 0)
    if trail.explains("offsets"):
        trail.explain("offsets", _shared_offsets_text(op, v, imm))
    return _shared_address(s, v, imm)


def _shared_address(s: Selector, v: Value, imm: int) -> tuple[Ref, int]:
    """(address register, immediate) of a place in shared memory."""
    held = s.operand(v)
    if held.__class__ is int and 0 <= held + imm <= MAX_SHARED_IMM:
        return s.to_vector(0), held + imm
    high = imm - imm % (MAX_SHARED_IMM + 1) if not 0 <= imm <= MAX_SHARED_IMM else 0
    if high:
        held = _plus(s, held, high)
    return s.to_vector(held), imm - high


def _shared_offsets_text(op: Op, v: Value, imm: int) -> str:
    """Where the parts of an address in shared memory go, and why."""
    width = op.attrs["bytes"]
    if v.const is not None and 0 <= v.const + imm <= MAX_SHARED_IMM:
        return _explained(op, width, [f"the address {v.const + imm} is known: immediate of a zero register"])
    fits = 0 <= imm <= MAX_SHARED_IMM
    folded = f"immediate {imm} folded" if fits else f"immediate {imm} is outside 0..{MAX_SHARED_IMM}: the rest is added"
    return _explained(op, width, [folded, f"address in {v.lo}..{v.hi}"])


@lower("load.shared")
def load_shared(s: Selector, op: Op) -> None:
    width, atom = op.attrs["bytes"], op.attrs.get("atom", "vector")
    address, imm = shared_place(s, op)
    mods: dict[str, Any] = {"offset": imm} if imm else {}
    if atom == "vector":
        s.emit(s.rows.named(roles.SHARED_LOADS[width]), s.result(op), address, **mods)
        return
    if atom not in roles.TRANSPOSING:
        raise s.unsupported(op, f"there is no load atom {atom}")
    name, piece = roles.TRANSPOSING[atom]
    if width != piece or not s.rows.has(name):
        raise s.unsupported(op, f"load atom {atom} of {width} bytes", "transposing reads need gfx950")
    s.emit(s.rows.named(name), s.result(op), address, **mods)


@lower("store.shared")
def store_shared(s: Selector, op: Op) -> None:
    held = s.mask(op.args[1])
    if held is False:
        return
    width = op.attrs["bytes"]
    value = s.vector(op.args[2])
    address, imm = shared_place(s, op)
    row = s.rows.named((roles.HIGH_SHARED_STORES if op.attrs.get("high") else roles.SHARED_STORES)[width])
    mods: dict[str, Any] = {"offset": imm} if imm else {}
    if held is True:
        s.emit(row, address, value, **mods)
        return
    open_region(s, held)
    s.emit(row, address, value, **mods)
    close_region(s, held)


def open_region(s: Selector, mask: Ref) -> None:
    """Run what follows with the lanes of `mask` only. A region of the same mask that ends here goes on."""
    if s.insts and s.insts[-1].comment == f"end of mask {mask.reg.id}":
        s.insts.pop()
        return
    saved = s.new("s", 2)
    s.emit(s.rows.s_and_saveexec_b64, saved, mask)


def close_region(s: Selector, mask: Ref) -> None:
    """All lanes again (EXEC: every wave starts with all of them)."""
    inst = s.emit(s.rows.s_mov_b64, EXEC_REF, -1)
    inst.comment = f"end of mask {mask.reg.id}"


@lower("barrier")
def barrier(s: Selector, op: Op) -> None:
    """A wave's own LDS operations are in order, so one wave alone needs no barrier; only direct-to-LDS copies, which
    pass by that queue, must find its reads returned."""
    if s.kernel.waves > 1:
        s.emit(s.rows.s_barrier)
    elif any(o.name == "copy.async" for o in s.kernel.body.walk()):
        s.insts.append(Inst(WAVE_BARRIER, (), None, s.loc))


@lower("priority")
def priority(s: Selector, op: Op) -> None:
    s.emit(s.rows.s_setprio, op.attrs["level"])


# ------------------------------------------------------------------------------------------------- copies to shared
# memory


@lower("copy.async")
def copy_async(s: Selector, op: Op) -> None:
    """Direct-to-LDS load: lane i of the wave lands at (shared address of lane 0) + i * bytes.

    (BASE) The base is M0; it is written only where the copy before it in the block had another.
    """
    r = s.rows
    width = op.attrs["bytes"]
    simm = op.attrs.get("simm", 0)
    name = roles.DIRECT_COPIES.get(width)
    if name is None or (width != 4 and s.chip != "gfx950"):
        raise s.unsupported(op, f"no direct copy of {width} bytes per lane to shared memory")
    srd = guarded_descriptor(s, op.args[0], op.args[4])
    linear = op.attrs.get("linear")
    if srd is None and linear:
        return  # a copy that is guarded off does nothing
    # The immediate is added to both addresses, so it is taken off the shared one, and M0 is not below zero.
    place = global_address(s, op, width, most=simm + max(0, op.args[5].lo or 0))
    if place is None and linear:  # no lane copies: all of them get zeros
        place = s.to_vector(FAR if _size_limit(op.args[0]) <= FAR_LIMIT else FARTHEST), 0, 0
    shared = op.args[5]
    held = s.operand(shared)
    first = s.to_scalar(held) if held.__class__ is Ref and held.reg.cls == "v" else held
    if srd is None or place is None:
        # masked off for all lanes: zeros, through registers
        address, imm = _shared_address(s, shared, simm)
        value = s.new("v", width // 4)
        for k in range(value.n):
            s.copy(value.part(k), 0)
        mods: dict[str, Any] = {"offset": imm} if imm else {}
        s.emit(r.named(roles.SHARED_STORES[width]), address, value, **mods)
        return
    imm = place[2]
    base = simm - imm
    state = (s.insts, _key(first), base)
    if s.shared_base is None or s.shared_base[0] is not s.insts or s.shared_base[1:] != state[1:]:
        s.shared_base = state
        _write_base(s, first, base)
    inst = emit_access(s, r.named(name + LDS_SUFFIX), None, place, srd, lds=True, **_hint(s, op))
    inst.uses = (*inst.uses, M0_REF)


_SHARED_STATE = (M0_REF.reg, SCC_REF.reg)


def _write_base(s: Selector, first: Operand, base: int) -> None:
    """M0 = first + base, one instruction earlier than its use where possible: the copy may not follow at once."""
    last = s.insts[-1] if s.insts else None
    if first.__class__ is int:
        s.copy(M0_REF, first + base)
    elif base:
        s.emit(s.rows.s_add_u32, M0_REF, first, signed(base & 0xFFFFFFFF))
    else:
        s.copy(M0_REF, first)
    write = s.insts[-1]
    if last is None or any(x.reg in _SHARED_STATE for x in (*last.uses, *last.defs)):
        return
    units = (isa.Unit.MFMA, isa.Unit.DS, isa.Unit.VMEM)
    made_here = first.__class__ is Ref and any(x.reg is first.reg for x in last.defs)
    if not made_here and (last.row == COPY or (isinstance(last.row, isa.Inst) and last.row.unit in units)):
        s.insts[-2:] = [write, last]


@lower("copy.commit")
def copy_commit(s: Selector, op: Op) -> None:
    s.insts.append(Inst(COPY_COMMIT, (), None, s.loc))


@lower("copy.wait")
def copy_wait(s: Selector, op: Op) -> None:
    s.insts.append(Inst(COPY_WAIT, (op.attrs["pending"],), None, s.loc))


# --------------------------------------------------------------------------------------------------- matrix
# instructions


@lower("mma", "mma.scaled")
def mma(s: Selector, op: Op) -> None:
    """Scales are bytes of a register: op_sel holds the low bits of both byte numbers, op_sel_hi the high ones."""
    atom: MmaAtom = op.attrs["atom"]
    row = s.rows.named(atom.instruction)
    a, b = s.vector(op.args[0]), s.vector(op.args[1])
    c = op.args[2]
    if atom.parts > 1:
        _parts(s, op, row, even(s, a), even(s, b))
        return
    accumulator: Operand = 0 if c.const is not None and not c.const and str(c.const) != "-0.0" else s.vector(c)
    mods: dict[str, Any] = {}
    fragment = row.extra
    if fragment is not None and fragment.formats:
        formats = {"f8e4m3": 0, "f8e5m2": 1, "f6e2m3": 2, "f6e3m2": 3, "f4e2m1": 4}
        for name, dtype in (("cbsz", atom.a_dtype), ("blgp", atom.b_dtype)):
            if formats[dtype.name]:
                mods[name] = formats[dtype.name]
    scales: list[Operand] = []
    if atom.scale_block:
        scales = [s.to_vector(s.operand(x)) for x in op.args[3:]]
        at = (op.attrs["a_byte"], op.attrs["b_byte"])
        low = {"op_sel": (*(x & 1 for x in at), 0)} if any(x & 1 for x in at) else {}
        mods = {**low, "op_sel_hi": (*(x >> 1 for x in at), 0), **mods}
    s.emit(row, s.result(op), even(s, a), even(s, b), accumulator, *scales, **mods)


def _parts(s: Selector, op: Op, row: isa.Inst, a: Ref, b: Ref) -> None:
    """A product of column pairs: one sparse product per column adds to its run of the result (`roles.PAIR_PLACES`)."""
    places = s.pooled_vector(roles.PAIR_PLACES)
    out = s.result(op)
    c = s.operand(op.args[2])
    if c.__class__ is Ref or len(set(map(str, s.words(op.args[2])))) > 1:
        s.copy(out, s.vector(op.args[2]))
    else:
        for k, word in enumerate(s.words(op.args[2])):
            s.copy(out.part(k), word)
    run = out.n // op.attrs["atom"].parts
    for part in range(op.attrs["atom"].parts):
        mods: dict[str, Any] = {"abid": part} if part else {}
        s.emit(row, out.part(part * run, run), a, b, places, **mods)


def even(s: Selector, ref: Ref) -> Ref:
    """A fragment that starts at an even register of its tuple."""
    if ref.n == 1 or ref.start % 2 == 0:
        return ref
    out = s.new("v", ref.n)
    s.copy(out, ref)
    return out
