"""Builds kernel IR from method calls: folds, value-numbers and hoists every op while it is made.

The values this builder makes are the project's hash-consed integer expressions. A pure op is (1) folded by constants,
by its facts and by the rows of `fold_rules`, (2) looked up among the ops already there, (3) placed in the outermost
open region in which its operands exist: a loop is appended to its parent when it is closed, so what was hoisted out of
it stands before it. Ops with effects, and matrix instructions, stay where they are written.

CONSTANTS: of i32/i64 are signed Python ints (any int is wrapped), of b32/b64 unsigned bit patterns, of f32/f64 floats,
of pred bools. A constant of a tuple type repeats in every register. Wherever an integer operand is expected a Python
int will do; it takes the type of the other operand.

INVARIANTS: the same op on the same operands in scope is the same `Value`; integer values carry concrete `lo <= hi`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wavedsl.ir.kernel.build_core import PINNED, Operand, new_kernel
from wavedsl.ir.kernel.build_values import Values
from wavedsl.ir.kernel.fold_rules import CONSTANT
from wavedsl.ir.kernel.kernel_ir import (
    B32,
    BUFFER,
    F32,
    F64,
    I32,
    I64,
    PRED,
    ROWS,
    Op,
    Type,
    Value,
    linear_reach,
    vector,
)
from wavedsl.ir.target import MmaAtom

__all__ = ["FIRST_TURN", "FIRST_WAVE_BARRIER", "MOST_TURNS", "Builder", "new_kernel"]

FIRST_WAVE_BARRIER = 2
"""Named barriers: 0 is the workgroup's, 1 a role's, then one per wave, of which there are at most eight, then turns."""
FIRST_TURN = 10
MOST_TURNS = 16 - FIRST_TURN
"""Waves that can do something in turn: a workgroup has 16 named barriers."""


class Builder(Values):
    """See the module. Values come back for ops with a result, the `Op` for stores, copies and barriers."""

    def emit(
        self, name: str, args: Sequence[Any] = (), attrs: dict[str, Any] | None = None, type: Type | None = None
    ) -> Any:
        """Any op by name (not `for`, `if`, `yield`): checked against its row, folded, numbered and placed if pure.

        Returns the result `Value`, or the `Op` where there is none. `type` is the result's, for rows that say `attr`.
        """
        row = ROWS.get(name)
        if row is None:
            raise self.fail(f"the kernel IR has no op {name}")
        if name == "const":
            assert attrs is not None
            return self.const(attrs["value"], type or I32)
        if name in CONSTANT:
            return self._int(name, args[0], args[1])
        simple = _BY_NAME.get(name)
        if simple is not None:
            return simple(self, *args)
        attrs = dict(attrs or ())
        special = _BY_ATTRS.get(name)
        if special is not None:
            return special(self, args, attrs, type)
        values = self._values(row, args)
        result = self._result_type(row, values, type)
        if row.pure and name not in PINNED:
            assert result is not None
            return self._pure(name, values, result, {k: attrs[k] for k in (*row.attrs, *attrs) if k in attrs})
        op = self._effect(name, values, attrs, result)
        return op.results[0] if result is not None else op

    # ----------------------------------------------------------------------------------------------- where a wave is

    def tid(self) -> Value:
        return self._pure("tid", (), I32)

    def lane(self) -> Value:
        return self._pure("lane", (), I32)

    def wave(self) -> Value:
        return self._pure("wave", (), I32)

    def wgid(self, axis: int) -> Value:
        return self._pure("wgid", (), I32, {"axis": axis})

    def wgcount(self, axis: int) -> Value:
        """Workgroups launched along a grid axis: at most as many as the kernel says."""
        return self._pure("wgcount", (), I32, {"axis": axis})

    def param(self, index: int, type: Type | None = None, **facts: int) -> Value:
        """Parameter `index`; facts `lo`, `hi`, `multiple` are what the launch has checked of a scalar."""
        if type is None:
            p = self.kernel.params[index]
            kind = {"f32": F32, "f64": F64, "i64": I64, "u64": I64}
            type = I64 if p.kind in ("pointer", "tensormap") else kind.get(p.dtype.name, I32)
        return self._pure("param", (), type, {"index": index, **facts})

    def readfirst(self, v: Value, same: bool = False) -> Value:
        """The first active lane's value, uniform. `same` promises that all active lanes hold the same, as they do where
        only one thread runs."""
        if (same or self.one_thread) and not v.uniform:
            return self._pure("readfirst", (v,), v.type, {"same": True})
        return self._folded("readfirst", (v,), v.type)

    def shuffle_xor(self, v: Value, mask: int) -> Value:
        """The value of lane ^ mask (32-bit types)."""
        if mask == 0 or v.const is not None:
            return v
        return self._pure("shuffle_xor", (v,), v.type, {"mask": mask})

    def swap_lanes(self, v: Value, register: int, lane: int) -> Value:
        """A tuple of words, bit `register` of whose number has changed places with bit `lane` of the lane's."""
        return self._pure("swap_lanes", (v,), v.type, {"register": register, "lane": lane})

    def any_lane(self, p: Value, workgroup: bool = False) -> Value:
        """Whether `p` holds in any lane of the wave: a uniform predicate. `workgroup` promises that all waves agree."""
        if p.uniform and (not workgroup or p.const is not None):
            return p
        return self._pure("any_lane", (p,), PRED, {"workgroup": True} if workgroup else None)

    def shuffle_index(self, v: Value, lane: Operand) -> Value:
        """The value of the given lane (32-bit types). Where the chip takes bytes, 4 times the number is a value of its
        own, made once for all exchanges with these lanes."""
        if self.target is not None and self.target.shuffles_by_bytes:
            return self._pure("shuffle_index", (v, self.shl(self._i32(lane), 2)), v.type, {"bytes": True})
        return self._pure("shuffle_index", (v, self._i32(lane)), v.type)

    # --------------------------------------------------------------------------------------------------------- memory

    def buffer(self, base: Value, bytes: Operand, cache_stride: int = 0) -> Value:
        """A global array: its address (i64) and its size in bytes (i64). `cache_stride`: that of the cache swizzle."""
        size = self.const(bytes, I64) if bytes.__class__ is int else bytes
        if base.type is not I64 or size.type is not I64:
            raise self.fail(f"buffer of {base.type} and {size.type}: address and size are i64")
        attrs = {"cache_stride": cache_stride} if cache_stride else None
        return self._pure("buffer", (base, size), BUFFER, attrs)

    def _global(
        self, voff: Operand, soff: Operand, imm: int, split: bool | None, most: int | None = None
    ) -> tuple[Value, Value, int]:
        """Split an address into per-lane part, uniform part and immediate (at most `most`). Of neighbours all parts but
        the immediate are the same, whichever part their distance came in."""
        low, high = self.global_range
        high = high if most is None else min(high, most)
        voff, soff = self._i32(voff), self._i32(soff)
        if imm == 0:
            voff, imm = self.split_address(voff, low, high)
        if split is None:
            split = self.target is not None and self.target.scalar_registers
        if split:
            voff, uniform = self.split_uniform(voff)
            soff = self.add(soff, uniform)
        base, more = self.split_constant(soff)
        if imm == 0:
            soff, imm = self.split_address(soff, low, high)
        elif more and base is not None and base.lo is not None and base.lo >= 0 and low <= imm + more <= high:
            soff, imm = base, imm + more
        return voff, soff, imm

    def load_global(
        self, buf: Value, voff: Operand, soff: Operand = 0, *, bytes: int = 4, type: Type | None = None,
        mask: Value | None = None, guard: Value | None = None, imm: int = 0, split: bool | None = None,
        bounded: bool = False, cache: str | None = None,
    ) -> Value:  # fmt: skip
        """Load `bytes` per lane at voff + soff + imm. Constants of the offsets move to `imm` if it is not given.

        `split` moves uniform parts of voff to soff (default: where there are scalar
        registers). Type: b32 words unless given.
        """
        voff, soff, imm = self._global(voff, soff, imm, split)
        t = type or vector(max(bytes // 4, 1))
        args = (buf, voff, soff, mask or self.true, guard or self.true)
        attrs = {"bytes": bytes, "imm": imm} | ({"bounded": True} if bounded else {}) | _hinted(cache)
        return self._effect("load.global", args, attrs, t).results[0]

    def store_global(
        self, buf: Value, voff: Operand, value: Value, soff: Operand = 0, *, bytes: int | None = None,
        mask: Value | None = None, guard: Value | None = None, imm: int = 0, high: bool = False,
        split: bool | None = None, bounded: bool = False, cache: str | None = None,
    ) -> Op:  # fmt: skip
        """Store at voff + soff + imm; `bytes` defaults to the width of the value."""
        voff, soff, imm = self._global(voff, soff, imm, split)
        args = (buf, voff, soff, mask or self.true, guard or self.true, value)
        attrs = {"bytes": bytes or value.type.words * 4, "imm": imm, "high": high} | _hinted(cache)
        if bounded:
            attrs["bounded"] = True
        return self._effect("store.global", args, attrs)

    def load_far(self, addr: Value, *, bytes: int, cache: str | None = None) -> Value:
        """Load `bytes` at a 64-bit address of each lane, which must be valid in every lane."""
        t = vector(max(bytes // 4, 1))
        return self._effect("load.far", (addr,), {"bytes": bytes} | _hinted(cache), t).results[0]

    def store_far(
        self, addr: Value, value: Value, *, bytes: int, mask: Value, high: bool = False, cache: str | None = None
    ) -> Op:
        """Store `bytes` of `value` at a 64-bit address of each lane whose mask is set."""
        return self._effect("store.far", (addr, mask, value), {"bytes": bytes, "high": high} | _hinted(cache))

    def atomic_global(
        self, buf: Value, voff: Operand, how: str, *values: Value, mask: Value | None = None,
        guard: Value | None = None, soff: Operand = 0, imm: int = 0, split: bool | None = None,
    ) -> Value:  # fmt: skip
        """Change memory at voff + soff + imm indivisibly by `how` (see the op) and give what was there."""
        voff, soff, imm = self._global(voff, soff, imm, split)
        args = (buf, voff, soff, mask or self.true, guard or self.true, *values)
        attrs = {"bytes": values[0].type.words * 4, "imm": imm, "how": how}
        return self._effect("atomic.global", args, attrs, values[0].type).results[0]

    def atomic_far(self, addr: Value, how: str, *values: Value, mask: Value) -> Value:
        """`atomic_global` at a 64-bit address of each lane."""
        attrs = {"bytes": values[0].type.words * 4, "how": how}
        return self._effect("atomic.far", (addr, mask, *values), attrs, values[0].type).results[0]

    def copy_async(
        self, buf: Value, voff: Operand, saddr: Operand, soff: Operand = 0, *, bytes: int, buffer: str = "",
        mask: Value | None = None, guard: Value | None = None, imm: int = 0, simm: int = 0, split: bool | None = None,
        linear: bool = False, bounded: bool = False, near: bool = False, cache: str | None = None,
        here: Value | None = None,
    ) -> Op:  # fmt: skip
        """Copy `bytes` per lane from global to shared memory; completes at the copy_wait that covers its group. `here`:
        the lanes that copy: others bring no zeros either.
        `linear`: `saddr` is the wave's, and each lane's bytes lie behind those of the lane before. `near`: the same
        bytes are copied again soon, so they are worth their place in the first-level cache."""
        saddr = self._i32(saddr)
        if simm == 0:
            saddr, simm = self._shared(saddr)
        # The immediate of a linear copy counts for both addresses, and the base that it is taken off is not negative.
        if linear and imm == 0:
            voff, soff, imm = self._global(voff, soff, imm, split, linear_reach(saddr, simm))
        elif not linear:
            voff, soff, imm = self._global(voff, soff, imm, split)
        else:
            voff, soff = self._i32(voff), self._i32(soff)
        some = () if here is None or here.const is True else (here,)
        args = (buf, voff, soff, mask or self.true, guard or self.true, saddr, *some)
        attrs = {"bytes": bytes, "imm": imm, "simm": simm, "buffer": buffer} | _hinted(cache)
        if linear:
            attrs["linear"] = True
        if bounded:
            attrs["bounded"] = True
        if near:
            attrs["near"] = True
        return self._effect("copy.async", args, attrs)

    def touch_global(
        self, buf: Value, voff: Operand, soff: Operand = 0, *, bytes: int, mask: Value | None = None,
        guard: Value | None = None,
    ) -> Op:  # fmt: skip
        """Bring `bytes` per lane into the second-level cache."""
        voff, soff, imm = self._global(voff, soff, 0, False)
        args = (buf, voff, soff, mask or self.true, guard or self.true)
        return self._effect("touch.global", args, {"bytes": bytes, "imm": imm})

    def copy_commit(self) -> Op:
        return self._effect("copy.commit", (), {})

    def copy_wait(self, pending: int = 0) -> Op:
        """Wait until at most `pending` committed groups of this lane are in flight."""
        return self._effect("copy.wait", (), {"pending": pending})

    def _shared(self, addr: Operand) -> tuple[Value, int]:
        low, high = self.shared_range
        return self.split_address(addr, low, high)

    def load_shared(
        self, addr: Operand, *, bytes: int = 4, type: Type | None = None, imm: int = 0, atom: str = "vector",
        buffer: str = "",
    ) -> Value:  # fmt: skip
        """Load `bytes` per lane from shared memory by load atom `atom`."""
        addr = self._i32(addr)
        if imm == 0:
            addr, imm = self._shared(addr)
        attrs = {"bytes": bytes, "imm": imm, "atom": atom, "buffer": buffer}
        return self._effect("load.shared", (addr,), attrs, type or vector(max(bytes // 4, 1))).results[0]

    def load_peer(self, addr: Operand, cta: Operand, *, bytes: int = 4, buffer: str = "") -> Value:
        """Load `bytes` per lane from the shared memory of another workgroup of the cluster."""
        addr, imm = self._shared(self._i32(addr))
        attrs = {"bytes": bytes, "imm": imm, "buffer": buffer}
        return self._effect("load.peer", (addr, self._i32(cta)), attrs, vector(max(bytes // 4, 1))).results[0]

    def store_shared(
        self, addr: Operand, value: Value, *, bytes: int | None = None, mask: Value | None = None, imm: int = 0,
        buffer: str = "", atom: str = "", high: bool = False,
    ) -> Op:  # fmt: skip
        """Store `bytes` (default: the width of the value) per lane to shared memory, by a matrix store if named.
        `high`: the upper half of a word."""
        addr = self._i32(addr)
        if imm == 0:
            addr, imm = self._shared(addr)
        attrs = {"bytes": bytes or value.type.words * 4, "imm": imm, "buffer": buffer}
        if atom:
            attrs["atom"] = atom
        if high:
            attrs["high"] = True
        return self._effect("store.shared", (addr, mask or self.true, value), attrs)

    def atomic_shared(self, addr: Operand, how: str, value: Value, *, mask: Value, buffer: str = "") -> Op:
        """Change shared memory indivisibly by `how` (see the op); what was there is not given."""
        addr, imm = self._shared(self._i32(addr))
        attrs = {"bytes": value.type.words * 4, "imm": imm, "how": how, "buffer": buffer}
        return self._effect("atomic.shared", (addr, mask, value), attrs)

    def barrier(self, half: int | None = None) -> Op:
        """All waves arrive: of the workgroup, or of the role that is being written. `half`: those of the lower (0) or
        upper (1) half, at one that the others pass at another place."""
        return self._effect("barrier", (), dict(self.role_barrier) if half is None else {"half": half})

    def priority(self, level: int) -> Op:
        """The wave's issue priority from here on, 0 (as launched) to 3."""
        return self._effect("priority", (), {"level": level})

    def fence(self, scope: str | None = None, order: str | None = None) -> Op:
        """A barrier among the same waves as `barrier`, with what they wrote to global memory visible to all workgroups,
        or to this one (`scope` "workgroup"). `order`: "release" where nothing has to be acquired, or "acquire"."""
        given = {"scope": scope, "order": order}
        return self._effect("fence", (), {**self.role_barrier, **{k: v for k, v in given.items() if v is not None}})

    def mma(self, atom: MmaAtom, a: Value, b: Value, c: Value) -> Value:
        """D = A B + C on fragments of matrix instruction `atom`."""
        return self._effect("mma", (a, b, c), {"atom": atom}, c.type).results[0]

    def mma_scaled(
        self, atom: MmaAtom, a: Value, b: Value, c: Value, scales: tuple[Value, Value], bytes: tuple[int, int]
    ) -> Value:
        """D = A B + C with the scales of blocks of K in byte `bytes[i]` of word `scales[i]`."""
        attrs = {"atom": atom, "a_byte": bytes[0], "b_byte": bytes[1]}
        return self._effect("mma.scaled", (a, b, c, *scales), attrs, c.type).results[0]

    # ------------------------------------------------------------------------------- asynchronous matrix instructions

    def undefined(self, type: Type) -> Value:
        """Registers whose contents nobody relies on."""
        return self._pure("undefined", (), type)

    def mma_tile(self, addr: Operand, low: int, high: int) -> Value:
        """An operand tile in shared memory at byte `addr`, for `mma_async`."""
        return self._pure("matrix.tile", (self._i32(addr),), I64, {"low": low, "high": high})

    def mma_async(self, atom: MmaAtom, a: Value, b: Value, c: Value, keep: Value | None, majors: str) -> Value:
        """Start D = A B + C, or A B where `keep` is false. D is there after the wait for its group."""
        args = (a, b, c, keep if keep is not None else self.true)
        return self._effect("matrix.start", args, {"atom": atom, "majors": majors}, c.type).results[0]

    def mma_fence(self) -> Op:
        return self._effect("matrix.fence", (), {})

    def mma_commit(self) -> Op:
        return self._effect("matrix.commit", (), {})

    def mma_wait(self, pending: int = 0) -> Op:
        """Wait until at most `pending` committed groups of mma_async are in flight."""
        return self._effect("matrix.wait", (), {"pending": pending})

    # ----------------------------------------------------------------------------- barriers in memory and bulk copies

    def signal_init(self, addr: Operand, count: int) -> Op:
        return self._effect("signal.init", (self._i32(addr),), {"count": count})

    def signal_publish(self) -> Op:
        return self._effect("signal.publish", (), {})

    def signal_expect(self, addr: Operand, bytes: int) -> Op:
        """Arrive, and let the phase wait for `bytes` more."""
        return self._effect("signal.expect", (self._i32(addr),), {"bytes": bytes})

    def signal_arrive(self, addr: Operand, mask: Value | None = None) -> Op:
        return self._effect("signal.arrive", (self._i32(addr), mask or self.true), {})

    def signal_copied(self, addr: Operand) -> Op:
        """Every lane arrives when all asynchronous copies that it has issued are done."""
        return self._effect("signal.copied", (self._i32(addr),), {})

    def signal_wait(self, addr: Operand, parity: Operand) -> Op:
        """Wait until the phase of this parity has ended."""
        return self._effect("signal.wait", (self._i32(addr), self._i32(parity)), {})

    def signal_arrive_at(self, addr: Operand, cta: Operand, mask: Value) -> Op:
        """Arrive at a barrier of another workgroup of the cluster."""
        return self._effect("signal.arrive.at", (self._i32(addr), self._i32(cta), mask), {})

    def cluster_rank(self) -> Value:
        return self._pure("cluster.rank", (), I32)

    def cluster_barrier(self, *, initial: bool = False, half: str | None = None) -> Op:
        """All threads of the cluster meet. `initial`: only barriers that were made and published need be known then.
        `half`: `arrive` only tells the others, `wait` waits for them."""
        return self._effect("cluster.barrier", (), {"initial": initial, **({"half": half} if half else {})})

    def copy_bulk(
        self, map: Value, saddr: Operand, bar: Operand, at: Sequence[Operand], *, buffer: str = "", to: Operand = 0,
        receivers: int = 1, cache: str | None = None,
    ) -> Op:  # fmt: skip
        """Copy a tensor map's box at coordinates `at`, innermost first; completes on the barrier at `bar`, in each of
        the `receivers` workgroups of the cluster whose bit is set in `to`, or in this one where there is none."""
        args = (map, self._i32(saddr), self._i32(bar), self._i32(to), *(self._i32(x) for x in at))
        return self._effect("copy.bulk", args, {"buffer": buffer, "receivers": receivers} | _hinted(cache))

    def touch_bulk(self, map: Value, at: Sequence[Operand]) -> Op:
        """Bring a tensor map's box at coordinates `at`, innermost first, into the second-level cache."""
        return self._effect("touch.bulk", (map, *(self._i32(x) for x in at)), {})

    def touch_map(self, map: Value) -> Op:
        """Bring a tensor map itself to where copies look it up."""
        return self._effect("touch.map", (map,), {})

    def copy_bulk_store(
        self, map: Value, saddr: Operand, mask: Value, at: Sequence[Operand], *, cache: str | None = None,
        adds: bool = False,
    ) -> Op:  # fmt: skip
        """The lane of this mask copies shared memory to a tensor map's box at coordinates `at`, innermost first, or has
        it added to what is there."""
        attrs = _hinted(cache) | ({"adds": True} if adds else {})
        return self._effect("copy.bulk.store", (map, self._i32(saddr), mask, *(self._i32(x) for x in at)), attrs)

    def bulk_commit(self) -> Op:
        return self._effect("bulk.commit", (), {})

    def bulk_wait(self, pending: int, reading: bool) -> Op:
        """Wait until at most `pending` groups of this thread run, or still read shared memory."""
        return self._effect("bulk.wait", (), {"pending": pending, "reading": reading})

    def wave_barrier(self) -> Op:
        """All threads of this wave arrive."""
        return self._effect("wave.barrier", (), {"id": FIRST_WAVE_BARRIER})

    def warp_fence(self) -> Op:
        """The lanes of each warp meet."""
        return self._effect("warp.fence", (), {})

    def turn_take(self, waves: int = 2) -> Op:
        """Wait for the turn, which the wave before of so many gives; that before the first is the last."""
        return self._effect("turn.take", (), {"id": FIRST_TURN, "waves": waves})

    def turn_give(self, waves: int = 2) -> Op:
        """Give the next wave the turn."""
        return self._effect("turn.give", (), {"id": FIRST_TURN, "waves": waves})

    def elect(self) -> Value:
        """True in one thread of the wave."""
        return self._pure("elect", (), PRED)

    def registers(self, count: int, more: bool) -> Op:
        """Change this wave's registers per thread."""
        return self._effect("registers", (), {"count": count, "more": more})

    def grid_wait(self) -> Op:
        """Wait until the launch in front of this one has ended."""
        return self._effect("grid.wait", (), {})

    def grid_release(self) -> Op:
        """Let the launch behind this one begin, once every workgroup has said so or ended."""
        return self._effect("grid.release", (), {})

    def proxy_fence(self, everywhere: bool = False) -> Op:
        """What this thread wrote to shared memory (`everywhere`: and to global memory) is seen by matrix instructions
        and bulk copies behind the next barrier."""
        return self._effect("proxy.fence", (), {"everywhere": everywhere})

    def trap(self, mask: Value, message: str) -> Op | None:
        """Stop the kernel if any lane's mask is set; nothing if it never is."""
        if mask.const is False:
            return None
        return self._effect("trap", (mask,), {"message": message})


def _hinted(cache: str | None) -> dict[str, Any]:
    return {"cache": cache} if cache is not None else {}


_BY_NAME: dict[str, Callable[..., Value]] = {
    name: getattr(Builder, name)
    for name in (
        "mul_wide_u", "zext", "sext", "trunc", "select", "pand", "por", "pxor", "pnot", "fadd", "fsub", "fmul", "fdiv",
        "fmin", "fmax", "ffma", "fneg", "fabs", "vec", "popcount", "clz", "ctz",
        "brev", "funnel", "tid", "lane", "wave",
    )
}  # fmt: skip

_BY_ATTRS: dict[str, Callable[..., Value | Op | None]] = {
    "readfirst": lambda b, a, k, t: b.readfirst(a[0], k.get("same", False)),
    "buffer": lambda b, a, k, t: b.buffer(*a, k.get("cache_stride", 0)),
    "bfe": lambda b, a, k, t: b.bfe(a[0], k["start"], k["width"], k.get("signed", False)),
    "cmp": lambda b, a, k, t: b.cmp(k["how"], *a),
    "fcmp": lambda b, a, k, t: b.fcmp(k["how"], *a),
    "cvt": lambda b, a, k, t: b.cvt(a[0], t, k.get("unsigned", False)),
    "pack": lambda b, a, k, t: b.pack(a, k["dtype"]),
    "unpack": lambda b, a, k, t: b.unpack(a[0], k["dtype"], k["index"]),
    "bitcast": lambda b, a, k, t: b.bitcast(a[0], t),
    "widen": lambda b, a, k, t: b._pure("widen", tuple(a), B32, dict(k)),
    "pair": lambda b, a, k, t: b._pure("pair", tuple(a), B32, dict(k)),
    "permute_bytes": lambda b, a, k, t: b.permute_bytes(a[0], a[1], k["selector"]),
    "slice": lambda b, a, k, t: b.slice(a[0], k["start"], k["count"]),
    "shuffle_xor": lambda b, a, k, t: b.shuffle_xor(a[0], k["mask"]),
    "shuffle_index": lambda b, a, k, t: (
        b._pure("shuffle_index", tuple(a), a[0].type, dict(k)) if k.get("bytes") else b.shuffle_index(*a)
    ),
    "swap_lanes": lambda b, a, k, t: b.swap_lanes(a[0], k["register"], k["lane"]),
    "trap": lambda b, a, k, t: b.trap(a[0], k["message"]),
}
