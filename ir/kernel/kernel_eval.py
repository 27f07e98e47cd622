"""Executes kernel IR on NumPy lane arrays: what the IR means, for tests of rules, passes and lowering.

In: a kernel and its arguments. Out: changed arrays, or the values of one workgroup. A register is an array
`[threads]`, a tuple of n registers `[n, threads]`, over all threads of one workgroup in wave order; waves whose loop
has ended keep their values behind a mask. Asynchronous copies complete at once, and approximate functions are NumPy's:
this is the meaning of a correct program, not a detector of missing waits.

INVARIANT: nothing is shared with the builder's folding, facts or the emulators, so each can be checked against this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError, LaunchError
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Type, Value
from wavedsl.ir.kernel.kernel_meaning import ATOMIC, NUMPY, PLAIN, TYPED
from wavedsl.ir.target import LoadAtom, MmaAtom, Target

Array = Any
_POINTER = 40
"""Argument i lies at virtual address (i + 1) << 40."""


def run(kernel: Kernel, args: Sequence[Any], grid: tuple[int, ...] | None = None, target: Target | None = None) -> None:
    """Run all workgroups. `args` match `kernel.params`: contiguous arrays for pointers (changed in place), or numbers.

    `grid` defaults to the kernel's, which then must be static. Raises LaunchError where arguments do not fit,
    CompileError at an access out of bounds or an op that is not supported here.
    """
    if len(args) != len(kernel.params):
        raise LaunchError(f"{kernel.name} takes {len(kernel.params)} arguments, not {len(args)}")
    for axes in product(*(range(int(n)) for n in reversed(grid or kernel.grid))):
        evaluate(kernel, dict(enumerate(args)), tuple(reversed(axes)), target)


def evaluate(
    kernel: Kernel, params: Mapping[int, Any], wgid: Sequence[Any] = (0, 0, 0), target: Target | None = None
) -> dict[Value, Array]:
    """Run one workgroup; returns the last value of every register.

    `params` by index: arrays of bytes behind pointers, numbers, or an array `[threads]` that gives every thread a
    number of its own (many experiments at once); likewise the workgroup index per axis.
    """
    state = _State(kernel, params, wgid, target)
    with np.errstate(all="ignore"):
        state.region(kernel.body, np.ones(kernel.block, bool))
    return state.values


class _State:
    def __init__(self, kernel: Kernel, params: Mapping[int, Any], wgid: Sequence[Any], target: Target | None):
        self.kernel = kernel
        self.threads = kernel.block
        self.values: dict[Value, Array] = {}
        self.shared = np.zeros(max(kernel.shared_bytes, 1), np.uint8)
        self.wgid = wgid
        self.params = params
        self.memory: dict[int, Array] = {}
        self.bounds = target.buffer_bounds if target is not None else True
        self.load_atoms = {a.name: a for a in target.load_atoms} if target is not None else {}
        for i, p in enumerate(kernel.params):
            if p.kind == "pointer" and i in params:
                self.memory[i + 1] = params[i].reshape(-1).view(np.uint8)

    # ----------------------------------------------------------------------------------------------------- structure

    def region(self, region: Region, active: Array) -> tuple[Array, ...]:
        """Run the ops for the active threads; returns what is yielded."""
        for op in region.ops:
            if op.name == "yield":
                return tuple(self.values[a] for a in op.args)
            if op.name == "for":
                self.loop(op, active)
            elif op.name == "if":
                self.branch(op, active)
            else:
                out = self.op(op, active)
                if op.results:
                    self.values[op.results[0]] = out
        return ()

    def loop(self, op: Op, active: Array) -> None:
        lo, hi, step = (self.values[a] for a in op.args[:3])
        body = op.regions[0]
        carried = [self.values[a] for a in op.args[3:]]
        iv = np.broadcast_to(lo, self.threads).astype(np.int64)
        started = False
        while True:
            on = active & (iv < hi)
            if op.attrs.get("again") and started:
                on &= carried[0]
            started = True
            if not on.any():
                break
            self.values[body.args[0]] = iv.astype(np.int32)
            for a, v in zip(body.args[1:], carried):
                self.values[a] = v
            new = self.region(body, on)
            carried = [np.where(on, n, c) for n, c in zip(new, carried)]
            iv = np.where(on, iv + step, iv)
        for r, v in zip(op.results, carried):
            self.values[r] = v

    def branch(self, op: Op, active: Array) -> None:
        cond = self.values[op.args[0]]
        outs = []
        for region, taken in zip(op.regions, (active & cond, active & ~cond)):
            outs.append(self.region(region, taken) if taken.any() else None)
        for i, r in enumerate(op.results):
            first, second = (o[i] if o is not None else None for o in outs)
            if first is None or second is None:
                self.values[r] = first if second is None else second
            else:
                self.values[r] = np.where(cond, first, second)

    def op(self, op: Op, active: Array) -> Array:
        args = [self.values[a] for a in op.args]
        name = op.name
        plain = PLAIN.get(name)
        if plain is not None:
            return plain(*args)
        typed = TYPED.get(name)
        if typed is not None:
            return typed(op, *args)
        own = getattr(self, "_" + name.replace(".", "_"), None)
        if own is None:
            raise CompileError(f"the kernel IR interpreter has no {name}", op.loc)
        return own(op, active, *args)

    # ------------------------------------------------------------------------------------------------- where it runs

    def _const(self, op: Op, active: Array) -> Array:
        t = op.results[0].type
        shape = (t.n, self.threads) if t.n > 1 else (self.threads,)
        return np.full(shape, op.attrs["value"], NUMPY[t.kind])

    def _param(self, op: Op, active: Array) -> Array:
        i, t = op.attrs["index"], op.results[0].type
        if i + 1 in self.memory:
            return np.full(self.threads, (i + 1) << _POINTER, np.int64)
        return np.broadcast_to(np.asarray(self.params[i]).astype(NUMPY[t.kind]), self.threads)

    def _wgcount(self, op: Op, active: Array) -> Array:
        count = self.kernel.grid[op.attrs["axis"]]
        return np.broadcast_to(np.asarray(count).astype(np.int32), self.threads)

    def _wgid(self, op: Op, active: Array) -> Array:
        return np.broadcast_to(np.asarray(self.wgid[op.attrs["axis"]]).astype(np.int32), self.threads)

    def _tid(self, op: Op, active: Array) -> Array:
        return np.arange(self.threads, dtype=np.int32)

    def _lane(self, op: Op, active: Array) -> Array:
        return np.arange(self.threads, dtype=np.int32) % np.int32(self.kernel.wave_size)

    def _wave(self, op: Op, active: Array) -> Array:
        return np.arange(self.threads, dtype=np.int32) // np.int32(self.kernel.wave_size)

    def waves(self, v: Array) -> Array:
        """`[…, threads]` as `[…, waves, lanes]`."""
        return v.reshape(*v.shape[:-1], self.kernel.waves, self.kernel.wave_size)

    # ---------------------------------------------------------------------------------------------------- cross-lane

    def _readfirst(self, op: Op, active: Array, v: Array) -> Array:
        first = self.waves(active).argmax(-1) + np.arange(self.kernel.waves) * self.kernel.wave_size
        return np.repeat(v[..., first], self.kernel.wave_size, axis=-1)

    def _shuffle_xor(self, op: Op, active: Array, v: Array) -> Array:
        return v[..., np.arange(self.threads) ^ op.attrs["mask"]]

    def _swap_lanes(self, op: Op, active: Array, v: Array) -> Array:
        lane, number = np.arange(self.threads), np.arange(len(v))
        own, bit = lane >> op.attrs["lane"] & 1, 1 << op.attrs["register"]
        register = number[:, None] & ~bit | np.where(own, bit, 0)
        here = (number[:, None] & bit != 0) == (own != 0)
        return np.where(here, v, v[register, lane ^ 1 << op.attrs["lane"]])

    def _shuffle_index(self, op: Op, active: Array, v: Array, lane: Array) -> Array:
        base = np.arange(self.threads) // self.kernel.wave_size * self.kernel.wave_size
        number = lane >> 2 if op.attrs.get("bytes") else lane
        return v[..., base + number % self.kernel.wave_size]

    # -------------------------------------------------------------------------------------------------------- memory

    def _buffer(self, op: Op, active: Array, base: Array, bytes: Array) -> Array:
        return np.stack([base, bytes])

    def place(self, op: Op, buf: Array, voff: Array, soff: Array, on: Array) -> tuple[Array, Array, Array]:
        """The memory of the buffer, each thread's first byte in it, and which threads are within bounds."""
        keys = np.unique(buf[0][on] >> _POINTER)
        if len(keys) > 1:
            raise CompileError("one access to several arrays", op.loc)
        offset = voff.view(np.uint32).astype(np.int64) + soff.view(np.uint32) + op.attrs["imm"]
        inside = on & (offset + op.attrs["bytes"] <= buf[1])
        if not self.bounds and (inside != on).any():
            raise CompileError(f"{op.name} past the end of its array, on a target that does not check bounds", op.loc)
        memory = self.memory[int(keys[0])] if len(keys) else np.zeros(1, np.uint8)
        start = offset + (buf[0] & ((1 << _POINTER) - 1))
        if inside.any() and (start[inside].min() < 0 or (start[inside] + op.attrs["bytes"]).max() > memory.size):
            raise CompileError(f"{op.name} outside its array", op.loc)
        return memory, start, inside

    def _load_global(
        self, op: Op, active: Array, buf: Array, voff: Array, soff: Array, mask: Array, guard: Array
    ) -> Array:
        memory, start, inside = self.place(op, buf, voff, soff, active & mask & guard)
        return _to_registers(_gather(memory, start, op.attrs["bytes"], inside), op.results[0].type)

    def _store_global(
        self, op: Op, active: Array, buf: Array, voff: Array, soff: Array, mask: Array, guard: Array, value: Array
    ) -> None:
        memory, start, inside = self.place(op, buf, voff, soff, active & mask & guard)
        _scatter(memory, start, _to_bytes(value, op.attrs["bytes"], op.attrs.get("high", False)), inside)

    def far_place(self, op: Op, addr: Array, on: Array) -> tuple[Array, Array]:
        """The memory that 64-bit addresses lie in, and each thread's first byte in it."""
        keys = np.unique(addr[on] >> _POINTER)
        if len(keys) > 1:
            raise CompileError("one access to several arrays", op.loc)
        memory = self.memory[int(keys[0])] if len(keys) else np.zeros(1, np.uint8)
        start = addr & ((1 << _POINTER) - 1)
        if on.any() and (start[on] + op.attrs["bytes"]).max() > memory.size:
            raise CompileError(f"{op.name} outside its array", op.loc)
        return memory, start

    def _load_far(self, op: Op, active: Array, addr: Array) -> Array:
        memory, start = self.far_place(op, addr, active)
        return _to_registers(_gather(memory, start, op.attrs["bytes"], active), op.results[0].type)

    def _store_far(self, op: Op, active: Array, addr: Array, mask: Array, value: Array) -> None:
        memory, start = self.far_place(op, addr, active & mask)
        _scatter(memory, start, _to_bytes(value, op.attrs["bytes"], op.attrs.get("high", False)), active & mask)

    def _atomic_global(
        self, op: Op, active: Array, buf: Array, voff: Array, soff: Array, mask: Array, guard: Array, *values: Array
    ) -> Array:
        return self.changed(op, *self.place(op, buf, voff, soff, active & mask & guard), values)

    def _atomic_far(self, op: Op, active: Array, addr: Array, mask: Array, *values: Array) -> Array:
        return self.changed(op, *self.far_place(op, addr, active & mask), active & mask, values)

    @staticmethod
    def changed(op: Op, memory: Array, start: Array, inside: Array, values: Sequence[Array]) -> Array:
        """What an atomic finds; thread after thread."""
        old = np.zeros_like(values[0])
        for t in np.flatnonzero(inside):
            cell = memory[start[t] : start[t] + op.attrs["bytes"]]
            old[..., t] = cell.view(old.dtype) if old.ndim > 1 else cell.view(old.dtype)[0]
            new = ATOMIC[op.attrs["how"]](old[..., t], *(v[..., t] for v in values))
            cell[...] = np.atleast_1d(np.ascontiguousarray(new)).view(np.uint8)
        return old

    def _any_lane(self, op: Op, active: Array, p: Array) -> Array:
        found = (self.waves(p) & self.waves(active)).any(-1)
        return np.repeat(found, self.kernel.wave_size, axis=-1)

    def _touch_global(
        self, op: Op, active: Array, buf: Array, voff: Array, soff: Array, mask: Array, guard: Array
    ) -> None:
        """No memory changes, but what is asked for lies in the array."""
        self.place(op, buf, voff, soff, active & mask & guard)

    def _copy_async(
        self, op: Op, active: Array, buf: Array, voff: Array, soff: Array, mask: Array, guard: Array, saddr: Array,
        *here: Array,
    ) -> None:  # fmt: skip
        for lanes in here:
            active = active & lanes
        memory, start, inside = self.place(op, buf, voff, soff, active & mask & guard)
        data = _gather(memory, start, op.attrs["bytes"], inside)
        if op.attrs.get("linear"):
            saddr = saddr + np.arange(saddr.shape[-1]) % self.kernel.wave_size * op.attrs["bytes"]
        # Bytes masked off become 0 in shared memory; a guarded-off copy does nothing.
        _scatter(self.shared, self.shared_place(op, saddr, op.attrs["simm"], active & guard), data, active & guard)

    def shared_place(self, op: Op, addr: Array, imm: int, on: Array, size: int | None = None) -> Array:
        start = addr.astype(np.int64) + imm
        size = op.attrs["bytes"] if size is None else size
        if on.any() and (start[on].min() < 0 or (start[on] + size).max() > self.shared.size):
            raise CompileError(f"{op.name} outside the {self.shared.size} B of shared memory", op.loc)
        return start

    def _load_shared(self, op: Op, active: Array, addr: Array) -> Array:
        t, bytes = op.results[0].type, op.attrs["bytes"]
        atom = self.load_atoms.get(op.attrs["atom"])
        if atom is None or not atom.lane:
            if op.attrs["atom"] not in ("vector", "") and atom is None:
                raise CompileError(f"load atom {op.attrs['atom']} needs the target's row to be run", op.loc)
            start = self.shared_place(op, addr, op.attrs["imm"], active)
            return _to_registers(_gather(self.shared, start, bytes, active), t)
        return _to_registers(self.load_atom(op, active, addr, atom), t)

    def load_atom(self, op: Op, active: Array, addr: Array, atom: LoadAtom) -> Array:
        """Bytes `[bytes, threads]`: element e of lane l is element x of the piece at the address of lane L."""
        if atom.bits:
            return self.exchange_bits(op, active, addr, atom)
        elsize = min(atom.elsizes)
        start = self.waves(self.shared_place(op, addr, op.attrs["imm"], active, atom.piece_bytes))
        lanes = np.arange(self.kernel.wave_size)
        out = np.zeros((op.attrs["bytes"], self.threads), np.uint8)
        for e in range(op.attrs["bytes"] // elsize):
            source = sum(_bit(b, lanes, e) << i for i, b in enumerate(atom.lane.split()))
            x = sum(_bit(b, lanes, e) << i for i, b in enumerate(atom.element.split()))
            at = (start[:, source] + x * elsize).reshape(-1)
            out[e * elsize : (e + 1) * elsize] = _gather(self.shared, at, elsize, active)
        return out

    def exchange_bits(self, op: Op, active: Array, addr: Array, atom: LoadAtom) -> Array:
        """`load_atom` of elements below a byte."""
        start = self.shared_place(op, addr, op.attrs["imm"], active, atom.piece_bytes)
        pieces = _gather(self.shared, start, atom.piece_bytes, active)
        held = np.unpackbits(pieces, axis=0, bitorder="little").reshape(-1, atom.bits, self.threads)
        lanes, waves = np.arange(self.kernel.wave_size), np.arange(self.kernel.waves)[:, None]
        out = np.zeros_like(held)
        for e in range(len(held)):
            source = sum(_bit(b, lanes, e) << i for i, b in enumerate(atom.lane.split()))
            x = sum(_bit(b, lanes, e) << i for i, b in enumerate(atom.element.split()))
            threads = (waves * self.kernel.wave_size + source).reshape(-1)
            out[e] = held[np.tile(x, self.kernel.waves), :, threads].T
        return np.packbits(out.reshape(-1, self.threads), axis=0, bitorder="little")

    def _store_shared(self, op: Op, active: Array, addr: Array, mask: Array, value: Array) -> None:
        on = active & mask
        start = self.shared_place(op, addr, op.attrs["imm"], on)
        _scatter(self.shared, start, _to_bytes(value, op.attrs["bytes"], op.attrs.get("high", False)), on)

    def _atomic_shared(self, op: Op, active: Array, addr: Array, mask: Array, value: Array) -> None:
        on = active & mask
        self.changed(op, self.shared, self.shared_place(op, addr, op.attrs["imm"], on), on, (value,))

    def _barrier(self, op: Op, active: Array) -> None:
        if not active.all() and "half" not in op.attrs:
            raise CompileError("a barrier that not all waves reach", op.loc)

    def _copy_commit(self, op: Op, active: Array) -> None:
        return None

    _copy_wait = _priority = _grid_release = _wave_barrier = _warp_fence = _copy_commit
    _fence = _grid_wait = _barrier

    def _trap(self, op: Op, active: Array, mask: Array) -> None:
        if (active & mask).any():
            raise CompileError(f"trap: {op.attrs['message']}", op.loc)

    # -------------------------------------------------------------------------------------------------------- matrix

    def _mma(self, op: Op, active: Array, a: Array, b: Array, c: Array) -> Array:
        """Products in float64 (integers in int64), one rounding of the sum to the accumulator's dtype."""
        atom: MmaAtom = op.attrs["atom"]
        wide: Any = np.int64 if atom.acc_dtype.is_int else np.float64
        block = (atom.blocks,) if atom.blocks > 1 else ()
        A = np.zeros((self.kernel.waves, *block, atom.m, atom.k), wide)
        B = np.zeros((self.kernel.waves, *block, atom.n, atom.k), wide)
        C = np.zeros((self.kernel.waves, *block, atom.m, atom.n), wide)
        lanes = np.arange(self.kernel.wave_size)
        for matrix, registers, dtype, layout, dims in (
            (A, a, atom.a_dtype, atom.a, "MK"),
            (B, b, atom.b_dtype, atom.b, "NK"),
            (C, c, atom.acc_dtype, atom.d, "MN"),
        ):
            for e, element in enumerate(self.fragment(registers, dtype)):
                matrix[_index(layout, dims, lanes, e, block)] = element
        D = C + A @ B.swapaxes(-1, -2)
        t = op.results[0].type
        acc = np.dtype(atom.acc_dtype.numpy)
        each = [
            D[_index(atom.d, "MN", lanes, e, block)].astype(acc).reshape(-1) for e in range(t.words * 4 // acc.itemsize)
        ]
        packed = np.stack(each)  # [elements, threads]
        out: Any = np.ascontiguousarray(packed.T).view(NUMPY[t.kind]).reshape(self.threads, t.n).T
        return np.ascontiguousarray(out) if t.n > 1 else out[0].copy()

    def fragment(self, registers: Array, dtype: DType) -> list[Array]:
        """The elements of a fragment in register order, each `[waves, lanes]`."""
        words = registers.reshape(-1, self.threads)
        if dtype.bits < 8:
            raise CompileError(f"the kernel IR interpreter has no fragments of {dtype}")
        rows = np.ascontiguousarray(words.T).view(dtype.numpy)  # [threads, elements]
        wide: Any = np.int64 if dtype.is_int else np.float64
        return [self.waves(np.ascontiguousarray(rows[:, e])).astype(wide) for e in range(rows.shape[1])]


def _index(layout: Mapping[str, str], dims: str, lanes: Array, element: int, block: tuple[int, ...]) -> tuple[Any, ...]:
    """Index of `element` of every lane in `[waves, (block,) rows, columns]`, from the bit strings."""
    names = (["b" if "b" in layout else "B"] if block else []) + list(dims)
    out: list[Any] = [slice(None)]
    for name in names:
        bits = layout.get(name, "").split()
        out.append(sum((_bit(b, lanes, element) << i for i, b in enumerate(bits)), np.zeros_like(lanes)))
    return tuple(out)


def _bit(name: str, lanes: Array, element: int) -> Array:
    """Bit `l<i>` of the lane or `e<i>` of the element; anything else is not a bit this knows."""
    if name[0] not in "le":
        raise CompileError(f"layout bit {name}: the interpreter knows l (lane) and e (element)")
    source = lanes if name[0] == "l" else np.full_like(lanes, element)
    return source >> int(name[1:]) & 1


# ------------------------------------------------------------------------------------------------------------- bytes


def _gather(memory: Array, start: Array, bytes: int, on: Array) -> Array:
    """`[bytes, threads]`, zero where not `on`."""
    at = np.where(on, start, 0)[None, :] + np.arange(bytes)[:, None] * on
    return np.where(on, memory[np.minimum(at, memory.size - 1)], 0).astype(np.uint8)


def _scatter(memory: Array, start: Array, data: Array, on: Array) -> None:
    at = start[on][None, :] + np.arange(len(data))[:, None]
    memory[at] = data[:, on]


def _to_registers(data: Array, t: Type) -> Array:
    """Bytes `[bytes, threads]` as registers of type t; fewer bytes than the type has are zero-extended."""
    size = t.words * 4
    if len(data) < size:
        data = np.concatenate([data, np.zeros((size - len(data), data.shape[1]), np.uint8)])
    out: Any = np.ascontiguousarray(data.T).view(NUMPY[t.kind])  # [threads, n]
    return np.ascontiguousarray(out.T) if t.n > 1 else out[:, 0].copy()


def _to_bytes(value: Array, bytes: int, high: bool = False) -> Array:
    rows = value.reshape(-1, value.shape[-1])
    data = np.ascontiguousarray(np.ascontiguousarray(rows.T).view(np.uint8).T)
    return data[2 : 2 + bytes] if high else data[:bytes]
