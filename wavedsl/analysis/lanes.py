"""Addresses of memory accesses before anything runs: the integers of a kernel's IR over all threads of a workgroup.

In: a kernel, the values of its hidden parameters, its grid. Out: per trip of a loop, the clocks that LDS needs for an
access (bank conflicts included) and the cache lines of an access of global memory, wave by wave.

The one idea: addresses are made of the thread's index, the workgroup's and loop counters alone, so they can be known
without data; what depends on data (an index that is loaded) counts as spread over lines of its own.
INVARIANT: a `Frame` is one trip of a loop. What it holds is the same for all waves, and whoever gets there first fills
it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wavedsl.codegen import is_amd
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.kernel.kernel_meaning import CHEAP
from wavedsl.runtime.emulator.amdgcn.cost import lds_clocks
from wavedsl.runtime.emulator.ptx.warp_events import shared_clocks

Array = Any
_KINDS = frozenset(("i32", "i64", "pred"))


class Threads:
    """Who runs: one workgroup of a kernel. `hidden`: values of parameters by index, where they are known."""

    def __init__(
        self, kernel: Kernel, target: str, line: int, hidden: Mapping[int, int], grid: tuple[int, ...],
        group: tuple[int, ...] = (0, 0, 0), lanes: int | None = None,
    ):  # fmt: skip
        self.kernel, self.target, self.line = kernel, target, line
        self.lanes = lanes or kernel.wave_size
        """Lanes that access memory together: a wave of the kernel's may be several of the chip's."""
        self.hidden, self.grid, self.group = hidden, grid, group
        self.constant: dict[int, Array | None] = {}
        """Values that no trip changes."""
        self.varies: dict[int, bool] = {}
        self.said: dict[tuple[int, str, int], list[int]] = {}
        """Of values that no trip changes what `Frame.each` and `Frame.set_lanes` say."""
        self.lds: dict[tuple[int, bool, bytes], int] = {}
        self.lds_by_wave: dict[tuple[int, bytes], list[int]] = {}
        self.unknown: dict[int, int] = {}
        """Accesses whose addresses data decide, numbered."""

    def changes(self, v: Value) -> bool:
        """Whether a value depends on the trip of a loop."""
        found = self.varies.get(v.id)
        if found is None:
            found = v.op is None or bool(v.op.regions) or any(self.changes(a) for a in v.op.args)
            self.varies[v.id] = found
        return found

    def served(self, op: Op, lanes: Array) -> int:
        """Clocks that shared memory needs for an access at byte addresses [lane]."""
        size, store = op.attrs["bytes"], op.name in ("store.shared", "atomic.shared")
        if str(op.attrs.get("atom", "")).startswith("ldmatrix"):
            lanes, size = lanes[: 2 * size], 16  # 8 rows of 16 bytes for every 4 bytes of a lane
        relative = lanes.astype(np.int64) - int(lanes[0])
        key = (size, store, relative.tobytes())
        found = self.lds.get(key)
        if found is None:
            if is_amd(self.target):
                found = lds_clocks(relative, size, store, self.target)[1]
            else:
                found = shared_clocks(size, lanes.astype(np.int64))
            self.lds[key] = found
        return found

    def served_by(self, op: Op, at: Array) -> list[int]:
        """By wave, the same of an access at byte addresses [thread]; asked for once for all trips whose addresses are
        a multiple of 128 bytes apart."""
        lanes = at.reshape(-1, self.lanes)
        key = (id(op), (lanes - (lanes[:, :1] & -128)).tobytes())
        found = self.lds_by_wave.get(key)
        if found is None:
            found = self.lds_by_wave[key] = [self.served(op, own) for own in lanes]
        return found

    def leaf(self, v: Value) -> Array | None:
        """A value that is no arithmetic: [threads], or None where only data tells it."""
        op, threads = v.op, self.kernel.block
        assert op is not None
        if op.name == "const":
            value = op.attrs["value"]
            if isinstance(value, float) or v.type.n != 1:
                return None
            kind = {"i64": np.int64, "pred": np.bool_}.get(v.type.kind, np.int32)
            return np.full(threads, _wrapped(int(value), kind), kind)
        if op.name == "tid":
            return np.arange(threads, dtype=np.int32)
        if op.name == "lane":
            return np.arange(threads, dtype=np.int32) % np.int32(self.kernel.wave_size)
        if op.name == "wave":
            return np.arange(threads, dtype=np.int32) // np.int32(self.kernel.wave_size)
        if op.name == "wgid":
            return np.full(threads, (*self.group, 0, 0)[op.attrs["axis"]], np.int32)
        if op.name == "cluster.rank":
            return np.zeros(threads, np.int32)
        if op.name == "wgcount":
            return np.full(threads, (*self.grid, 1, 1)[op.attrs["axis"]], np.int32)
        if op.name == "param":
            value = self.hidden.get(op.attrs["index"])
            return None if value is None else np.full(threads, value, np.int64 if v.type.kind == "i64" else np.int32)
        return None


def _wrapped(value: int, kind: Any) -> int:
    if kind is np.int32:
        return (value + (1 << 31)) % (1 << 32) - (1 << 31)
    return value


class Frame:
    """One trip of a loop, or the kernel outside of loops: what its integers are, and what its accesses touch. Whoever
    asks lets integers wrap (`np.errstate`)."""

    def __init__(self, threads: Threads, outer: Frame | None = None, known: Mapping[int, Array | None] | None = None):
        self.threads = threads
        self.known: dict[int, Array | None] = {**(outer.known if outer is not None else {}), **(known or {})}
        self.events: dict[int, list[Any]] = {}
        self.inner: dict[tuple[int, int, int], Frame] = {}
        """(loop, trip, its counter, which differs from wave to wave) → the frame of that trip."""
        self.said: dict[tuple[int, str, int], list[int]] = {}
        """What `each` and `set_lanes` have said."""

    def value(self, v: Value) -> Array | None:
        """An integer or predicate of every thread [threads]; None where data decide."""
        threads = self.threads
        for store in (self.known, threads.constant):
            if v.id in store:
                return store[v.id]
        store = self.known if threads.changes(v) else threads.constant
        store[v.id] = found = self._compute(v)
        return found

    def _compute(self, v: Value) -> Array | None:
        op = v.op
        if op is None or v.type.kind not in _KINDS or v.type.n != 1:
            return None
        if op.name == "readfirst":
            got, size = self.value(op.args[0]), self.threads.kernel.wave_size
            return None if got is None else np.repeat(got[::size], size)
        if op.name == "any_lane":
            got, size = self.value(op.args[0]), self.threads.kernel.wave_size
            return None if got is None else np.repeat(got.reshape(-1, size).any(axis=1), size)
        rule = CHEAP.get(op.name)
        if rule is None:
            return self.threads.leaf(v)
        args = [self.value(a) for a in op.args]
        if any(a is None for a in args):
            return None
        return rule(op, *args)

    def uniform(self, v: Value, wave: int = 0) -> int | None:
        """A value that all threads of a wave share."""
        found = self.each(v, self.threads.kernel.wave_size)
        return None if found is None else found[wave]

    def each(self, v: Value, size: int) -> list[int] | None:
        """A value of the first of every `size` threads."""
        return self._asked(v, "first", size)

    def set_lanes(self, mask: Value, size: int) -> list[int] | None:
        """In how many of every `size` threads a mask is set."""
        return self._asked(mask, "set", size)

    def _asked(self, v: Value, what: str, size: int) -> list[int] | None:
        """What `each` and `set_lanes` say of a value, worked out once; None where data decide."""
        key = v.id, what, size
        found = self.said.get(key) or self.threads.said.get(key)
        if found is None:
            value = self.value(v)
            if value is None:
                return None
            first = what == "first"
            of = value[::size].astype(np.int64) if first else np.count_nonzero(value.reshape(-1, size), axis=1)
            found = self._says(v)[key] = of.tolist()
        return found

    def _says(self, v: Value) -> dict[tuple[int, str, int], list[int]]:
        return self.said if v.id in self.known else self.threads.said

    def of_wave(self, v: Value, wave: int) -> bool | None:
        """Whether a predicate holds in any lane of a wave."""
        found = self.value(v)
        size = self.threads.kernel.wave_size
        return None if found is None else bool(found[wave * size : (wave + 1) * size].any())

    def trip(self, loop: Op, number: int, counter: int, before: Frame | None) -> Frame:
        """The frame of a loop's trip; `before` is that of the trip before it (None: the first)."""
        key = (id(loop), number, counter)
        found = self.inner.get(key)
        if found is None:
            body: Region = loop.regions[0]
            if before is None:
                carried = [self.value(a) for a in loop.args[3:]]
            else:
                carried = [before.value(a) for a in body.ops[-1].args]
            known: dict[int, Array | None] = {a.id: c for a, c in zip(body.args[1:], carried)}
            known[body.args[0].id] = np.full(self.threads.kernel.block, counter, np.int32)
            found = self.inner[key] = Frame(self.threads, self, known)
        return found

    def leave(self, loop: Op, last: Frame | None) -> None:
        """What a loop gives is known behind it: `last` is the frame of its last trip (None: it has none)."""
        if loop.attrs.get("again"):
            return  # data ended it
        given = [self.value(a) for a in loop.args[3:]] if last is None else [
            last.value(a) for a in loop.regions[0].ops[-1].args
        ]  # fmt: skip
        self.known.update((r.id, x) for r, x in zip(loop.results, given) if self.known.get(r.id) is None)

    def chosen(self, branch: Op) -> None:
        """What the sides of an `if` give is known behind it, thread by thread."""
        taken = self.value(branch.args[0])
        if taken is None or len(branch.regions) < 2:
            return
        for r, x, y in zip(branch.results, *(region.ops[-1].args for region in branch.regions)):
            one, other = self.value(x), self.value(y)
            if one is not None and other is not None and self.known.get(r.id) is None:
                self.known[r.id] = np.where(taken, one, other)

    # ------------------------------------------------------------------------------------------------------- accesses

    def shared(self, op: Op, wave: int) -> int:
        """Clocks that LDS needs for one access of a wave."""
        found = self.events.get(id(op))
        if found is None:
            found = self.events[id(op)] = self._shared(op)
        return found[wave]

    def _shared(self, op: Op) -> list[int]:
        threads, size = self.threads, op.attrs["bytes"]
        kernel = threads.kernel
        at = self.value(op.args[0])
        if at is None:
            at = np.arange(kernel.block, dtype=np.int32) * np.int32(size)
        return threads.served_by(op, at)

    def lines(self, op: Op, wave: int) -> tuple[int, ...]:
        """The cache lines that one access of a wave touches; those of different arrays differ. Empty where it is
        switched off."""
        found = self.events.get(id(op))
        if found is None:
            found = self.events[id(op)] = self._lines(op)
        return found[wave]

    def _lines(self, op: Op) -> list[tuple[int, ...]]:
        threads, size = self.threads, op.attrs["bytes"]
        kernel, line = threads.kernel, threads.line
        far = op.name.endswith(".far")
        offset = None if far else self.value(op.args[1])
        base = None if far else self.value(op.args[2])
        shape = (kernel.block // threads.lanes, threads.lanes)
        if offset is None or base is None:
            number = threads.unknown.setdefault(id(op), len(threads.unknown))
            at = (np.arange(kernel.block, dtype=np.int64) * size).reshape(shape)
            array = -1 - number
        else:
            at = (offset.view(np.uint32).astype(np.int64) + base.view(np.uint32) + op.attrs["imm"]).reshape(shape)
            array = op.args[0].id
        on = None
        for mask in () if far else op.args[3:5]:
            value = self.value(mask) if mask.const is None else None
            if mask.const is False:
                value = np.zeros(kernel.block, bool)
            if value is not None:
                on = value if on is None else on & value
        active = None if on is None else on.reshape(shape)
        shift = line.bit_length() - 1
        first, last = array << 40 | at >> shift, array << 40 | (at + (size - 1)) >> shift
        twice = bool((first != last).any())
        out: list[tuple[int, ...]] = []
        for w in range(shape[0]):
            touched = set((first[w] if active is None else first[w][active[w]]).tolist())
            if twice:
                touched.update((last[w] if active is None else last[w][active[w]]).tolist())
            out.append(tuple(sorted(touched)))
        return out


def loop_counters(op: Op, frame: Frame, trips: Mapping[str, int], wave: int = 0) -> range:
    """The values of a loop's counter in a wave; where its bounds are not known, as many as `trips` says of its
    label."""
    lo, hi, step = (frame.uniform(v, wave) for v in op.args[:3])
    if op.attrs.get("again"):
        return range(1)  # data end it
    if lo is None or hi is None or not step:
        return range(trips.get(op.attrs.get("label", "")) or 1)
    return range(lo, max(lo, hi), step)
