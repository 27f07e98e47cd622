"""Memory instructions of the PTX emulator: loads and stores.

In: an instruction as written with its table row. Out: a closure `step(mask)`. The idea: an access turns into byte
offsets of its lanes; one OR over them and one maximum prove alignment and bounds for all, and only when that fails are
the guilty lanes looked for. Words travel as uint32 rows `[words, lanes]`.
Invariant: a lane whose access is a finding reads zero and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa import TYPE_BITS
from wavedsl.ir.errors import CompileError, LaunchError
from wavedsl.runtime.emulator.ptx.machine import (
    CLUSTER_SHIFT,
    LOCAL_BASE,
    LOCAL_WINDOW,
    PARAM_BASE,
    PARAM_WINDOW,
    SHARED_BASE,
    SHARED_WINDOW,
    WINDOW,
    Array,
    Machine,
    Mask,
)
from wavedsl.runtime.emulator.ptx.module import NOTHING, Address, Imm, Inst, Reg, RegUse, Sym, Vector

Step = Callable[[Mask], None]

VECTOR = {"v2": 2, "v4": 4, "v8": 8}


def space_of(m: Machine, row: isa.Inst, address: Address) -> str:
    """State space of an access: the instruction's, or what its variable lies in, or generic."""
    space = row.mods.get("space", "").split("::")[0]
    if isinstance(address.base, Sym):
        found = m.symbols.get(address.base.name)
        if found is None:
            raise CompileError(f"variable {address.base.name} is not defined")
        if found[0] == "local" or not space:
            return found[0]
    return space or "generic"


def address_of(m: Machine, address: Address) -> Callable[[Array], Array]:
    """Function from lane numbers (None: all) to int64 addresses in the access's space."""
    base, offset = address.base, address.offset
    if isinstance(base, Reg):
        values = m.reg(base)
        if values.dtype.itemsize == 4:
            add = np.uint32(offset & 0xFFFFFFFF)
            if offset == 0:
                return lambda lanes: (values if lanes is None else values[lanes]).astype(np.int64)
            return lambda lanes: ((values if lanes is None else values[lanes]) + add).astype(np.int64)
        if values.dtype.itemsize != 8:
            raise CompileError(f"register {base.name} cannot hold an address")
        signed = values.view(np.int64)
        if offset == 0:
            return lambda lanes: signed if lanes is None else signed[lanes]
        return lambda lanes: (signed if lanes is None else signed[lanes]) + offset
    fixed = offset
    if isinstance(base, Sym):
        fixed += m.symbols[base.name][1] + base.offset
    return lambda lanes: np.full(m.T if lanes is None else len(lanes), fixed, np.int64)


def pick(a: Array, lanes: Array) -> Array:
    return a if lanes is None else a[lanes]


class Window:
    """Access to one on-chip space: bytes in one array, a slice of it per CTA (shared) or per thread (local)."""

    def __init__(self, m: Machine, space: str, remote: bool = False):
        self.m, self.space, self.remote = m, space, remote and m.cluster > 1
        self.ranked = space == "shared" and m.cluster > 1
        if space == "shared":
            self.data, self.origin, self.size = m.shared, m.shared_origin, m.shared_bytes
            self.base = SHARED_BASE
        else:
            self.data, self.origin, self.size = m.local, m.local_origin, m.local_bytes
            self.base = LOCAL_BASE
        self.views = {n: self.data.view(f"u{n}") for n in (1, 2, 4, 8)}
        self.rows = {n: self.data.view(np.uint32).reshape(-1, n) for n in (2, 4)}

    def check(self, address: Array, width: int, inst: Inst, lanes: Array) -> tuple[Array, Array]:
        """Offsets within the window, and the lanes that remain (None: all of them) after reporting the bad ones."""
        if self.ranked and len(address) and int(address.max()) >> CLUSTER_SHIFT:
            address = self.m.near(address, lanes)
            if self.remote and int(address.max()) >> CLUSTER_SHIFT:
                return self._elsewhere(address, width, inst, lanes)
        return self._here(address, width, inst, lanes)

    def _elsewhere(self, address: Array, width: int, inst: Inst, lanes: Array) -> tuple[Array, Array]:
        """Addresses that may lie in other CTAs of the cluster: offsets from the own CTA's memory to theirs."""
        m = self.m
        lanes = np.arange(m.T) if lanes is None else lanes
        cta, near = m.resolve(address, lanes)
        offset, kept = self._here(near, width, inst, lanes)
        cta = cta[positions_of(lanes, kept, m.T)]
        alive: Array = m.live.reshape(m.ctas, -1).any(axis=1)
        ended = ~alive[cta]
        if ended.any() and not m.seen("race", inst):
            i = int(np.argmax(ended))
            m.report("race", inst, "uses shared memory of a CTA of the cluster that has ended", int(kept[i]))
        m.visit(inst, cta, kept)
        return offset + (cta - m.cta_of[kept]) * m.shared_stride, kept

    def _here(self, address: Array, width: int, inst: Inst, lanes: Array) -> tuple[Array, Array]:
        offset = address - self.base
        seen = int(np.bitwise_or.reduce(offset)) if len(offset) else 0
        if seen < 0 or seen & (width - 1) or (len(offset) and int(offset.max()) > self.size - width):
            return self._faults(offset, width, inst, lanes)
        return offset, lanes

    def _faults(self, offset: Array, width: int, inst: Inst, lanes: Array) -> tuple[Array, Array]:
        m = self.m
        lanes = np.arange(m.T) if lanes is None else lanes
        outside = (offset < 0) | (offset > self.size - width)
        if outside.any():
            i = int(np.argmax(outside))
            at = int(offset[i])
            where = f"{-at} bytes before its start" if at < 0 else f"byte {at} of {self.size}"
            if not m.seen("out-of-bounds", inst):
                m.report("out-of-bounds", inst, f"{width} bytes of {self.space} memory at {where}", int(lanes[i]))
        skew = ~outside & ((offset & (width - 1)) != 0)
        if skew.any():
            i = int(np.argmax(skew))
            if not m.seen("misaligned", inst):
                text = f"{self.space} address {int(offset[i]) + self.base:#x} is not a multiple of {width}"
                m.report("misaligned", inst, text, int(lanes[i]))
        good = ~(outside | skew)
        return offset[good], lanes[good]

    def load(self, offset: Array, width: int, lanes: Array) -> Array:
        """Words [n, lanes]; one row of the element for widths under 4."""
        at = offset + (self.origin + self.base if lanes is None else (self.origin[lanes] + self.base))
        if width == 4:
            return self.views[4].take(at >> 2)[None]
        if width < 4:
            return self.views[width].take(at >> (width >> 1)).astype(np.uint32)[None]
        return self.rows[width // 4].take(at >> (3 if width == 8 else 4), axis=0).T

    def store(self, offset: Array, width: int, words: Array, lanes: Array) -> None:
        at = offset + (self.origin + self.base if lanes is None else (self.origin[lanes] + self.base))
        if width == 4:
            self.views[4][at >> 2] = words[0]
        elif width < 4:
            self.views[width][at >> (width >> 1)] = words[0].astype(f"u{width}")
        else:
            self.rows[width // 4][at >> (3 if width == 8 else 4)] = words.T


def words_of(m: Machine, parts: list[Any], type_: str, lanes: Array) -> Array:
    """Values of a store or atomic as uint32 words [n, lanes]."""
    bits = TYPE_BITS[type_]
    n = m.T if lanes is None else len(lanes)
    out = []
    for p in parts:
        if isinstance(p, Imm):
            value = immediate(p, type_)
            for i in range(max(1, bits // 32)):
                out.append(np.full(n, value >> (32 * i) & 0xFFFFFFFF, np.uint32))
            continue
        if not isinstance(p, RegUse):
            raise CompileError(f"cannot store {p}")
        values = m.reg(p.reg)
        values = values if lanes is None else values[lanes]
        if bits == 64:
            pair = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
            out += [pair[:, 0], pair[:, 1]]
        elif bits == 32:
            out.append(values if values.dtype == np.uint32 else values.astype(np.uint32))
        else:
            out.append((values & ((1 << bits) - 1)).astype(np.uint32))
    if bits < 32 and len(out) > 1:
        per = 32 // bits
        merged = []
        for i in range(0, len(out), per):
            w = out[i]
            for j in range(1, min(per, len(out) - i)):
                w = w | out[i + j] << np.uint32(bits * j)
            merged.append(w)
        out = merged
    return np.stack(out) if len(out) > 1 else out[0][None]


def immediate(p: Imm, type_: str) -> int:
    """Bits of an immediate as an operand of a type: decimal floats are 64-bit literals that narrow, integers wrap."""
    bits = TYPE_BITS[type_]
    value = p.value
    if type_ == "f32" and p.float_bits == 64:
        return int(np.uint64(value).view(np.float64).astype(np.float32).view(np.uint32))
    if type_ == "f64" and p.float_bits == 32:
        return int(np.uint32(value).view(np.float32).astype(np.float64).view(np.uint64))
    if type_ in ("f32", "f64") and not p.float_bits:
        raise CompileError(f"integer {value} where a float literal (0f…, 0d…) is needed")
    return value & ((1 << bits) - 1)


def writers_of(m: Machine, parts: list[Any], type_: str) -> list[Callable[[Array, Array], None]]:
    """Per destination register: put element i (words [n, lanes] given) into the register."""
    bits = TYPE_BITS[type_]
    signed = type_[0] == "s"
    out: list[Callable[[Array, Array], None]] = []
    for i, p in enumerate(parts):
        if p is NOTHING:
            continue
        if not isinstance(p, RegUse):
            raise CompileError(f"cannot load into {p}")
        d = m.reg(p.reg)
        out.append(_writer(d, bits, signed, i))
    return out


def _writer(d: Array, bits: int, signed: bool, i: int) -> Callable[[Array, Array], None]:
    wide = d.view(f"i{d.dtype.itemsize}") if signed else d

    def put64(words: Array, lanes: Array) -> None:
        value = words[2 * i].astype(np.uint64) | words[2 * i + 1].astype(np.uint64) << np.uint64(32)
        d[slice(None) if lanes is None else lanes] = value

    def put32(words: Array, lanes: Array) -> None:
        value = words[i].view(np.int32) if signed and d.dtype.itemsize == 8 else words[i]
        (wide if value.dtype.kind == "i" else d)[slice(None) if lanes is None else lanes] = value

    def put_small(words: Array, lanes: Array) -> None:
        per = 32 // bits
        value = words[i // per] >> np.uint32(bits * (i % per))
        small = value.astype(f"{'i' if signed else 'u'}{bits // 8}")
        wide[slice(None) if lanes is None else lanes] = small

    return put64 if bits == 64 else put32 if bits == 32 else put_small


# ------------------------------------------------------------------------------------------------ generic dispatch


class Access:
    """One static access: resolves lanes to a space and moves words. Serves ld, st, atom, red and cp.async."""

    def __init__(
        self,
        m: Machine,
        inst: Inst,
        pc: int,
        space: str,
        address: Address,
        width: int,
        writes: bool,
        counted: bool = True,
    ):
        self.m, self.inst, self.pc, self.space, self.width, self.writes = m, inst, pc, space, width, writes
        self.counted = counted
        words = set(inst.name.split("."))
        self.strong = bool(words & {"volatile", "relaxed", "acquire", "release", "acq_rel"})
        self.volatile = "volatile" in words
        self.cache = "a cache (.nc)" if "nc" in words else ""
        self.address = address_of(m, address)
        self.shared = Window(m, "shared", space == "generic" or "shared::cluster" in words)
        self.local = Window(m, "local")

    def split(self, address: Array, lanes: Array) -> list[tuple[str, Array, Array]]:
        """(space, addresses, lanes) parts of a generic access."""
        if self.space != "generic":
            return [(self.space, address, lanes)]
        if not len(address):
            return []
        if int(address.max()) < PARAM_WINDOW:
            return [("global", address, lanes)]
        lanes = np.arange(self.m.T) if lanes is None else lanes
        out, rest = [], np.ones(len(address), bool)
        for name, window in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW), ("param", PARAM_WINDOW)):
            inside = (address >= window) & (address < window + WINDOW)
            if inside.any():
                rest &= ~inside
                out.append((name, address[inside] - window, lanes[inside]))
        if rest.any():
            out.append(("global", address[rest], lanes[rest]))
        return out

    def load(self, mask: Mask) -> list[tuple[Array, Array]]:
        """[(words [n, lanes], lanes)]; lanes None means all threads."""
        m = self.m
        lanes = None if mask is None else m.lanes(mask)
        return self.load_at(self.address(lanes), lanes)

    def load_at(self, address: Array, lanes: Array) -> list[tuple[Array, Array]]:
        """The same from addresses of the caller's."""
        return [self._load(space, a, ls) for space, a, ls in self.split(address, lanes)]

    def _load(self, space: str, address: Array, lanes: Array) -> tuple[Array, Array]:
        m, width = self.m, self.width
        if space in ("global", "const"):
            address, lanes = self._aligned(address, lanes)
            self.record(space, address, lanes)
            words, fault = m.memory.load(address, width)
            if fault is not None:
                self._outside(fault, lanes)
            if m.globals is not None:
                self.watch(address, lanes, fault, "the constant cache" if space == "const" else self.cache)
            return words, lanes
        if space == "param":
            return self._load_param(address, lanes), lanes
        window = self.shared if space == "shared" else self.local
        offset, lanes = window.check(address, width, self.inst, lanes)
        words = window.load(offset, width, lanes)
        if space == "shared":
            self.touch_shared(offset, lanes, None)
        elif m.checks:
            self._local_valid(offset, lanes)
        return words, lanes

    def _load_param(self, address: Array, lanes: Array) -> Array:
        m, width = self.m, self.width
        offset = address - PARAM_BASE
        bad = (offset < 0) | (offset > len(m.params) - width)
        if bad.any():
            i = int(np.argmax(bad))
            thread = i if lanes is None else int(lanes[i])
            m.report(
                "out-of-bounds",
                self.inst,
                f"{width} bytes at {int(offset[i])} of {len(m.params)} bytes of parameters",
                thread,
            )
            offset = np.where(bad, 0, offset)
        skew = (offset & (width - 1)) != 0
        if skew.any():
            i = int(np.argmax(skew))
            m.report(
                "misaligned",
                self.inst,
                f"parameter offset {int(offset[i])} is not a multiple of {width}",
                i if lanes is None else int(lanes[i]),
            )
        parts = np.zeros((len(offset), (width + 3) // 4 * 4), np.uint8)
        index = np.minimum(offset[:, None] + np.arange(width), len(m.params) - 1)
        parts[:, :width] = np.where(bad[:, None], 0, m.params.take(index))
        return np.ascontiguousarray(parts.view(np.uint32).T)

    def store(self, words: Array, mask: Mask) -> None:
        """Store words [n, lanes of the mask]."""
        lanes = None if mask is None else self.m.lanes(mask)
        self.store_at(self.address(lanes), lanes, words)

    def store_at(self, addresses: Array, lanes: Array, words: Array) -> None:
        """The same to addresses of the caller's."""
        m = self.m
        for space, address, part in self.split(addresses, lanes):
            if part is lanes:
                chosen = words
            else:
                every = np.arange(m.T) if lanes is None else lanes
                chosen = words[:, np.searchsorted(every, part)]
            self.store_part(space, address, part, chosen)

    def store_part(self, space: str, address: Array, lanes: Array, words: Array) -> None:
        m, width = self.m, self.width
        before = address
        if space in ("global", "const"):
            if space == "const":
                m.report("out-of-bounds", self.inst, "writes constant memory", 0 if lanes is None else int(lanes[0]))
                return
            address, kept = self._aligned(address, lanes)
            self.record(space, address, kept)
            if kept is not lanes:
                words = words[:, positions_of(lanes, kept, m.T)]
            if m.globals is not None:
                m.globals.write(self.inst, self.pc, address, width, kept, words, self.strong)
            try:
                fault = m.memory.store(address, words, width)
            except LaunchError as e:  # the array behind the address is read-only
                m.report("out-of-bounds", self.inst, e.message, 0 if kept is None else int(kept[0]))
                return
            if fault is not None:
                self._outside(fault, kept)
            return
        if space == "param":
            m.report(
                "out-of-bounds", self.inst, "writes the kernel's parameters", 0 if lanes is None else int(lanes[0])
            )
            return
        window = self.shared if space == "shared" else self.local
        offset, kept = window.check(before, width, self.inst, lanes)
        if kept is not lanes:
            words = words[:, positions_of(lanes, kept, m.T)]
        if space == "local":
            window.store(offset, width, words, kept)
            if m.checks and m.local_valid is not None and len(offset):
                at = offset + (window.origin if kept is None else window.origin[kept]) + window.base
                m.local_valid[at[:, None] + np.arange(width)] = True
            return
        if not m.checks:
            window.store(offset, width, words, kept)
            self.touch_shared(offset, kept, None)
            return
        old = window.load(offset, width, kept)
        window.store(offset, width, words, kept)
        now = window.load(offset, width, kept)
        limit = (1 << 8 * min(width, 4)) - 1
        agree = (now == (words & np.uint32(limit))).all(axis=0)
        if not agree.all() and not m.seen("race", self.inst):
            i = int(np.argmax(~agree))
            m.report(
                "race",
                self.inst,
                "threads of one instruction write different values to one place in shared memory",
                i if kept is None else int(kept[i]),
            )
        self.touch_shared(offset, kept, (old == (words & np.uint32(limit))).all(axis=0))

    def watch(self, address: Array, lanes: Array, fault: Any, cache: str) -> None:
        """Tell who watches over global memory of a read."""
        m = self.m
        if fault is not None:
            lanes = np.flatnonzero(~fault.mask) if lanes is None else lanes[~fault.mask]
            address = address[~fault.mask]
        m.globals.read(self.inst, self.pc, address, self.width, lanes, self.strong, cache)

    def record(self, space: str, address: Array, lanes: Array) -> None:
        """Tell the tracer of an access, where one records."""
        trace = self.m.trace
        if trace is not None and len(address):
            trace.access(self.pc, space, self.width, address, lanes)

    def touch_shared(
        self, offset: Array, lanes: Array, same: Array | None, *, pending: bool = False, atomic: bool = False
    ) -> Array:
        """Count bank conflicts and update the shadow; returns the granules when checks are on."""
        m = self.m
        warps = m.global_warp if lanes is None else m.global_warp[lanes]
        if self.counted:
            m.count_conflicts(offset, self.width, warps, atomic)
            self.record("atomic" if atomic else "shared", offset, lanes)
        if not m.checks or not len(offset):
            return None
        cta = m.cta_of if lanes is None else m.cta_of[lanes]
        g = m.shadow.granules(cta, offset, self.width)
        threads = m.every if lanes is None else lanes
        if self.writes:
            m.over_barriers(self.inst, cta * m.shared_stride + offset, self.width, threads)
        if self.volatile:
            m.shadow.acquire_writes(g, warps)
        if m.globals is not None and (atomic or self.strong):
            m.globals.strong(self.inst, self.pc, g[:, 0], threads, atomic or not self.writes, self.writes, shared=True)
        if self.writes:
            defects = m.shadow.write(g, threads, self.pc, same, pending=pending, atomic=atomic, strong=self.strong)
        else:
            defects = m.shadow.read(g, threads, self.pc, strong=self.strong)
        for d in defects:
            self.defect(d, offset, lanes)
        return g

    def defect(self, d: Any, offset: Array, lanes: Array) -> None:
        thread = d.row if lanes is None else int(lanes[d.row])
        text = f"{self.m.in_words(d)} (byte {int(offset[d.row])}){self.m.other_line(d.other)}"
        self.m.tell(d.kind, self.inst, text, thread)

    def _local_valid(self, offset: Array, lanes: Array) -> None:
        m = self.m
        if m.local_valid is None or not len(offset):
            return
        at = offset + (self.local.origin if lanes is None else self.local.origin[lanes]) + LOCAL_BASE
        ok = m.local_valid.take(at[:, None] + np.arange(self.width)).all(axis=1)
        if not ok.all() and not m.seen("uninitialised-read", self.inst):
            i = int(np.argmax(~ok))
            m.report(
                "uninitialised-read",
                self.inst,
                f"reads local memory that was not written (byte {int(offset[i])})",
                i if lanes is None else int(lanes[i]),
            )

    def _aligned(self, address: Array, lanes: Array) -> tuple[Array, Array]:
        width = self.width
        if width == 1 or not len(address) or not int(np.bitwise_or.reduce(address)) & (width - 1):
            return address, lanes
        m = self.m
        skew = (address & (width - 1)) != 0
        lanes = np.arange(m.T) if lanes is None else lanes
        i = int(np.argmax(skew))
        if not m.seen("misaligned", self.inst):
            m.report(
                "misaligned",
                self.inst,
                f"global address {int(address[i]):#x} is not a multiple of {width}",
                int(lanes[i]),
            )
        return address[~skew], lanes[~skew]

    def _outside(self, fault: Any, lanes: Array) -> None:
        m = self.m
        if m.seen("out-of-bounds", self.inst):
            return
        i = int(np.argmax(fault.mask))
        verb = "writes" if self.writes else "reads"
        m.report(
            "out-of-bounds",
            self.inst,
            f"{verb} {self.width} bytes: {fault.message}",
            i if lanes is None else int(lanes[i]),
        )


def positions_of(lanes: Array, kept: Array, total: int) -> Array:
    """Where `kept` stands within `lanes` (both sorted; None: all)."""
    if kept is None:
        return slice(None)
    return kept if lanes is None else np.searchsorted(lanes, kept)


# ------------------------------------------------------------------------------------------------ steps


def parts_of(a: Any) -> list[Any]:
    return list(a.parts) if isinstance(a, Vector) else [a]


def load(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Step:
    """`ld` and `ldu`."""
    type_ = row.mods["type"]
    address = inst.args[1]
    space = space_of(m, row, address)
    parts = parts_of(inst.args[0])
    width = len(parts) * TYPE_BITS[type_] // 8
    if space == "param" and not isinstance(address.base, Reg):
        return _load_fixed_param(m, inst, parts, type_, address, width, pc)
    access = Access(m, inst, pc, space, address, width, False)
    writers = writers_of(m, parts, type_)

    def step(mask: Mask) -> None:
        for words, lanes in access.load(mask):
            for put in writers:
                put(words, lanes)

    return step


def _load_fixed_param(
    m: Machine, inst: Inst, parts: list[Any], type_: str, address: Address, width: int, pc: int
) -> Step:
    """A parameter at a fixed offset is the same for every thread and known at decode time."""
    access = Access(m, inst, pc, "param", address, width, False)
    one = access.address(np.zeros(1, np.int64))
    if not (PARAM_BASE <= int(one[0]) <= PARAM_BASE + len(m.params) - width) or (int(one[0]) - PARAM_BASE) % width:

        def fail(mask: Mask) -> None:
            lanes = np.arange(m.T) if mask is None else m.lanes(mask)
            access._load_param(access.address(lanes), lanes)

        return fail
    words = access._load_param(one, np.zeros(1, np.int64))
    writers = writers_of(m, parts, type_)

    def step(mask: Mask) -> None:
        lanes = None if mask is None else m.lanes(mask)
        for put in writers:
            put(words, lanes)

    return step


def store(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Step:
    """`st`."""
    type_ = row.mods["type"]
    address = inst.args[0]
    parts = parts_of(inst.args[1])
    width = len(parts) * TYPE_BITS[type_] // 8
    access = Access(m, inst, pc, space_of(m, row, address), address, width, True)
    words_of(m, parts, type_, np.zeros(0, np.int64))

    def step(mask: Mask) -> None:
        lanes = None if mask is None else m.lanes(mask)
        access.store(words_of(m, parts, type_, lanes), mask)

    return step
