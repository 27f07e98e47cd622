"""Bulk asynchronous copies of the PTX emulator: tiles through tensor maps and plain runs, loads, stores, reductions.

In: an instruction with its row. Out: a closure `step(mask)`. The idea: a copy moves 16-byte chunks; chunk i of a box
lies at `dst + 16 i`, exclusive-or'ed by the map's swizzle, in every CTA that the copy names. With checks on, a load is
delivered when it is issued or when its mbarrier is asked, a store when it is issued or waited for (seeded); until then
the destination holds poison, and the shadow says who may touch what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.operand_rules import used_operands
from wavedsl.ir.errors import LaunchError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx.machine import (
    SHARED_BASE,
    SHARED_WINDOW,
    WINDOW,
    Array,
    Machine,
    Mask,
)
from wavedsl.runtime.emulator.ptx.mbarrier import MBarriers, Phase
from wavedsl.runtime.emulator.ptx.memory import address_of, words_of
from wavedsl.runtime.emulator.ptx.module import Address, Inst, Reg, Vector
from wavedsl.runtime.emulator.ptx.operands import source
from wavedsl.runtime.emulator.ptx.tensor import CHUNK, TensorBoxes, combine
from wavedsl.runtime.tensor_map import TensorMapSpec

Step = Callable[[Mask], None]
Corners = Iterator[tuple[Array, TensorMapSpec, int, Array]]

TILE_ALIGNMENT = 128
"""Alignment of a box in shared memory, whatever its swizzle."""
POISON = np.array([0x7FBADBAD] * 4, np.uint32).view(CHUNK)[0]


def swizzled(address: Array, span: int) -> Array:
    """Where chunks at these addresses lie: bits 4… take an exclusive or with bits 7…, as many as the span has."""
    return address ^ ((address >> 7 & (span // 16 - 1)) << 4) if span > 16 else address


@dataclass(eq=False)
class Load:
    """One load into one CTA: chunk numbers in the batch's shared memory, their data, the mbarrier to signal."""

    owner: BulkCopies
    inst: Inst
    thread: int
    phase: Phase
    index: Array
    data: Array
    granules: Array
    size: int

    def arrive(self) -> None:
        """The data is there and the mbarrier knows."""
        m = self.owner.m
        self.owner.chunks()[self.index] = self.data
        if m.checks:
            m.shadow.arrived(self.granules, self.phase.column, self.phase.base + self.phase.completed + 1)
        self.owner.barriers.complete(self.inst, self.phase, self.size, self.thread)


@dataclass(eq=False)
class Store:
    """One store or reduction of one thread: its group, what performs it, and its number among its warp's."""

    inst: Inst
    thread: int
    group: int
    tick: int
    action: Callable[[], None] | None
    read: bool = False


class BulkCopies:
    """Bulk copies of a batch: which stores are under way, which groups threads have closed."""

    def __init__(self, m: Machine, barriers: MBarriers):
        self.m, self.barriers = m, barriers
        self.group = np.zeros(m.T, np.int32)
        self.pending: list[Store] = []
        """Stores of which nobody knows whether they have read what they read."""
        self.unwritten: list[Store] = []
        """Those of which nobody knows whether they have written it."""
        self.tick = np.zeros(m.NW, np.int32)
        self.boxes = TensorBoxes(m)
        self.arrival = ("early", "late", "random")[int(m.rng.integers(3))] if m.checks else "early"

    def reset(self) -> None:
        self.group[:] = 0
        self.tick[:] = 0
        self.pending.clear()
        self.unwritten.clear()

    def chunks(self) -> Array:
        """Shared memory of the batch as 16-byte chunks."""
        return self.m.shared.view(CHUNK)

    def late(self) -> bool:
        return self.arrival == "late" or (self.arrival == "random" and bool(self.m.rng.integers(2)))

    def step(self, inst: Inst, row: isa.Inst, pc: int) -> Step:
        """The closure of one bulk instruction."""
        effects = row.effects
        if "commit" in effects:
            return self._commit
        if "wait" in effects:
            return self._wait(inst.args[0].value, "read" in inst.name.split("."))
        args = dict(zip([op.name for op in used_operands(row, len(inst.args))], inst.args))
        if "hint" in effects:
            return self._ask(inst, row, pc, args)
        if "load" in effects:
            return self._load(inst, row, pc, args)
        return self._store(inst, row, pc, args)

    # ------------------------------------------------------------------------------------------------ operands

    def _lanes(self, mask: Mask) -> Array:
        return np.arange(self.m.T) if mask is None else self.m.lanes(mask)

    def _shared(self, address: Address) -> Callable[[Array], Array]:
        """Window addresses of an operand in shared memory, given in its space or generic."""
        at = address_of(self.m, address)
        wide = isinstance(address.base, Reg) and self.m.reg(address.base).dtype.itemsize == 8

        def get(lanes: Array) -> Array:
            a = at(lanes)
            inside = (a >= SHARED_WINDOW) & (a < SHARED_WINDOW + WINDOW) if wide else False
            return self.m.near(np.where(inside, a - SHARED_WINDOW, a), lanes)

        return get

    def _values(self, operand: Any, type_: str) -> Callable[[Array], Array]:
        value = source(self.m, operand, type_)

        def get(lanes: Array) -> Array:
            v = value() if callable(value) else value
            return (v[lanes] if len(v) == self.m.T else np.broadcast_to(v, (len(lanes),))).astype(np.int64)

        return get

    # ------------------------------------------------------------------------------------------------ loads

    def _load(self, inst: Inst, row: isa.Inst, pc: int, args: dict[str, Any]) -> Step:
        tensor = args.get("map")
        registers = "registers" in row.effects
        dst = self._shared(args["p"] if registers else args["dst"])
        mbar = self._shared(args["mbar"])
        ctas = self._values(args["ctas"], "b16") if "ctas" in args else None
        remote = row.mods["to"] == "shared::cluster"
        unit = TILE_ALIGNMENT if tensor is not None else 16
        if tensor is not None:
            get = self._boxes(inst, tensor)
        elif registers:
            get = self._words(row, args["a"])
        else:
            get = self._bytes(inst, row, pc, args)

        def run(mask: Mask) -> None:
            self.barriers.progress(mask)
            lanes = self._lanes(mask)
            at, bar = dst(lanes), mbar(lanes)
            for part, chunks, size, span, origin, places in get(lanes):
                which = np.searchsorted(lanes, part)
                if registers:
                    self._place_words(inst, pc, part, at[which], bar[which], chunks, size)
                else:
                    bars = bar[which]
                    codes = self._place(inst, pc, part, at[which], bars, ctas, chunks, size, span, unit, remote, origin)
                    for address, width, position, _ in places:
                        by = np.zeros(len(part), np.int64) if codes is None else codes
                        self.m.globals.bulk_read(inst, pc, address, width, part[position], by[position])

        return run

    def _corners(self, inst: Inst, tensor: Address) -> Callable[[Array], Corners]:
        """Getter of (lanes, tensor map, address of the tensor, corners of their boxes), one for each map."""
        at = address_of(self.m, Address(tensor.base, tensor.offset))
        coords = [self._values(c, "s32") for c in tensor.coords]

        def get(lanes: Array) -> Corners:
            where = at(lanes)
            corner = np.stack([c(lanes) for c in coords])
            for address in np.unique(where).tolist():
                on = where == address
                found = self.boxes.find(inst, address, len(coords), int(lanes[int(np.argmax(on))]))
                if found is not None:
                    yield lanes[on], *found, corner[:, on]

        return get

    def _boxes(self, inst: Inst, tensor: Address) -> Callable[[Array], Any]:
        """Getter of a tile load: [(lanes, chunks, bytes, swizzle span, address of the tensor, what is read)]."""
        corners = self._corners(inst, tensor)

        def get(lanes: Array) -> Any:
            for part, spec, base, corner in corners(lanes):
                read = self.boxes.gather(inst, spec, base, corner, part)
                if read is not None:
                    yield part, read[0], spec.box_bytes, spec.swizzle, base, read[1]

        return get

    def _ask(self, inst: Inst, row: isa.Inst, pc: int, args: dict[str, Any]) -> Step:
        """Bytes that are only to come to L2: what is asked for must be such that it could be copied."""
        if "map" not in args:
            get = self._bytes(inst, row, pc, args)

            def look(mask: Mask) -> None:
                for _ in get(self._lanes(mask)):
                    pass

            return look
        corners = self._corners(inst, args["map"])

        def run(mask: Mask) -> None:
            for part, spec, base, corner in corners(self._lanes(mask)):
                self.boxes.ask(inst, spec, base, corner, part)

        return run

    def _bytes(self, inst: Inst, row: isa.Inst, pc: int, args: dict[str, Any]) -> Callable[[Array], Any]:
        """Getter of a plain load, from global memory or this CTA's shared memory."""
        m = self.m
        size = self._values(args["bytes"], "u32")
        own = "shared" in row.effects
        src = self._shared(args["src"]) if own else address_of(m, args["src"])

        def get(lanes: Array) -> Any:
            sizes, where = size(lanes), src(lanes)
            for i, (n, a) in enumerate(zip(sizes.tolist(), where.tolist())):
                part = lanes[i : i + 1]
                if not self._run_is_legal(inst, n, a, int(part[0])):
                    continue
                if own:
                    index = self._source(inst, pc, part, np.array([a]), n, 0, 16, None)
                    if index is not None:
                        yield part, self.chunks()[index], n, 0, 0, []
                    continue
                where_ = a + 16 * np.arange(n // 16)
                words, fault = m.memory.load(where_, 16)
                if fault is not None:
                    self.m.tell("out-of-bounds", inst, f"reads {n} bytes: {fault.message}", int(part[0]))
                watched = m.globals is not None and fault is None
                places = [(where_, 16, np.zeros(n // 16, np.int64), None)] if watched else []
                yield part, np.ascontiguousarray(words.T).view(CHUNK).reshape(1, -1), n, 0, a, places

        return get

    def _run_is_legal(self, inst: Inst, size: int, address: int, thread: int) -> bool:
        if size % 16 or address % 16:
            what = f"size {size}" if size % 16 else f"address {address:#x}"
            self.m.tell("misaligned", inst, f"{what} is not a multiple of 16 bytes", thread)
            return False
        return size > 0

    def _words(self, row: isa.Inst, value: Any) -> Callable[[Array], Any]:
        """Getter of a store from registers: words instead of chunks."""
        parts = list(value.parts) if isinstance(value, Vector) else [value]
        type_ = row.mods["type"]
        size = len(parts) * isa.TYPE_BITS[type_] // 8

        def get(lanes: Array) -> Any:
            words = words_of(self.m, parts, type_, lanes)
            for i in range(len(lanes)):
                yield lanes[i : i + 1], np.ascontiguousarray(words[:, i]), size, 0, 0, []

        return get

    def _place(
        self,
        inst: Inst,
        pc: int,
        lanes: Array,
        at: Array,
        bar: Array,
        ctas: Callable[[Array], Array] | None,
        chunks: Array,
        size: int,
        span: int,
        unit: int,
        remote: bool,
        origin: int,
    ) -> Array | None:
        """Issue loads of `size` bytes for lanes: where they go, whom they overwrite, and when they arrive. By lane the
        code of the phase that its load completes, where global memory is watched: 0 for loads into several CTAs, whose
        phases are known in none of the others.
        """
        m = self.m
        thread = int(lanes[0])
        cta, at = m.resolve(at, lanes) if remote else (m.cta_of[lanes], at)
        bar_cta, bar = m.resolve(bar, lanes) if remote else (m.cta_of[lanes], bar)
        if (cta != bar_cta).any():
            self.m.tell("hazard", inst, "destination and mbarrier lie in different CTAs", thread)
            return None
        skew = at % unit != 0
        if skew.any():
            i = int(np.argmax(skew))
            self.m.tell("misaligned", inst, f"destination {int(at[i]):#x} is not a multiple of {unit}", int(lanes[i]))
            return None
        beyond = (at < SHARED_BASE) | (at - SHARED_BASE + size > m.shared_bytes)
        if beyond.any():
            i = int(np.argmax(beyond))
            text = f"writes {size} bytes at byte {int(at[i]) - SHARED_BASE} of {m.shared_bytes} of shared memory"
            self.m.tell("out-of-bounds", inst, text, int(lanes[i]))
            return None
        op = np.arange(len(lanes))
        if ctas is not None:
            op, cta = self._multicast(inst, lanes, ctas(lanes))
            if not len(op):
                return None
        address = swizzled(at[op][:, None] + 16 * np.arange(size // 16), span) - SHARED_BASE
        index = (cta[:, None] * m.shared_stride + address) >> 4
        granules: Array = None
        if m.checks:
            granules = m.shadow.granules(np.zeros(1, np.int64), address.reshape(-1), 16).reshape(len(op), -1)
            granules = granules + (cta * m.shadow.per_cta)[:, None]
            m.defects(inst, m.shadow.write_by(granules, lanes[op], pc, span), lanes[op])
            m.over_barriers(inst, index.reshape(-1) << 4, 16, np.repeat(lanes[op], index.shape[1]))
        now = self.chunks()
        codes = np.zeros(len(lanes), np.int64) if m.globals is not None else None
        if m.checks:
            now[index] = POISON
        for i, lane in enumerate(op.tolist()):
            key = int(cta[i]) * m.shared_stride + int(bar[lane]) - SHARED_BASE
            phase = self.barriers.find(inst, key, lanes[lane : lane + 1])
            if phase is None:
                continue
            if codes is not None and len(op) == len(lanes):
                row, clock = int(m.global_warp[lanes[lane]]), phase.base + phase.completed + 1
                codes[lane] = m.globals.phase_code(row, phase.column, clock)
            if m.trace is not None:
                m.trace.signal(pc, lanes[lane : lane + 1], "copy", key, size, origin)
            load = Load(
                self, inst, int(lanes[lane]), phase, index[i], chunks[lane], granules[i] if m.checks else None, size
            )
            if m.checks and self.late():
                phase.late.append(load)
            else:
                load.arrive()
        return codes

    def _multicast(self, inst: Inst, lanes: Array, masks: Array) -> tuple[Array, Array]:
        """Lane positions and CTAs of a multicast: one copy for every CTA of each lane's mask."""
        m = self.m
        first = m.cta_of[lanes] // m.cluster * m.cluster
        op, cta = [], []
        for i, (mask, base, lane) in enumerate(zip(masks.tolist(), first.tolist(), lanes.tolist())):
            if mask >> m.cluster:
                text = f"multicast to CTAs {mask:#x} in a cluster of {m.cluster}"
                self.m.tell("out-of-bounds", inst, text, lane)
            for r in range(m.cluster):
                if mask >> r & 1:
                    op.append(i)
                    cta.append(base + r)
        alive: Array = m.live.reshape(m.ctas, -1).any(axis=1)
        there = alive[cta]
        if not there.all():
            lane = int(lanes[op[int(np.argmin(there))]])
            self.m.tell("race", inst, "copies into shared memory of a CTA of the cluster that has ended", lane)
        return np.array(op, np.int64), np.array(cta, np.int64)

    def _place_words(self, inst: Inst, pc: int, lanes: Array, at: Array, bar: Array, words: Array, size: int) -> None:
        """`st.async` of one lane: a few bytes, delivered at once."""
        m = self.m
        thread = int(lanes[0])
        cta, where = m.resolve(at, lanes)
        bar_cta, bar = m.resolve(bar, lanes)
        offset = int(where[0]) - SHARED_BASE
        if not 0 <= offset <= m.shared_bytes - size or offset % size:
            kind = "misaligned" if 0 <= offset <= m.shared_bytes - size else "out-of-bounds"
            m.tell(kind, inst, f"writes {size} bytes at byte {offset} of {m.shared_bytes} of shared memory", thread)
            return
        phase = self.barriers.find(inst, int(bar_cta[0]) * m.shared_stride + int(bar[0]) - SHARED_BASE, lanes)
        if phase is None:
            return
        start = int(cta[0]) * m.shared_stride + offset
        m.shared[start : start + size] = words.view(np.uint8)[:size]
        if m.checks:
            g = m.shadow.granules(cta, np.array([offset]), size)
            m.defects(inst, m.shadow.write_by(g, lanes, pc), lanes)
            m.shadow.arrived(g[0], phase.column, phase.base + phase.completed + 1)
            m.over_barriers(inst, np.array([start]), size, lanes)
        if m.trace is not None:
            m.trace.signal(pc, lanes, "copy", phase.key, size, 0)
        self.barriers.complete(inst, phase, size, thread)

    # ------------------------------------------------------------------------------------------------ stores

    def _source(
        self, inst: Inst, pc: int, lanes: Array, at: Array, size: int, span: int, unit: int, ticks: Array | None
    ) -> Array | None:
        """Chunk numbers [lanes, n] of what a store reads in its CTA's shared memory, after the checks."""
        m = self.m
        thread = int(lanes[0])
        skew = at % unit != 0
        if skew.any():
            self.m.tell(
                "misaligned", inst, f"source {int(at[int(np.argmax(skew))]):#x} is not a multiple of {unit}", thread
            )
            return None
        beyond = (at < SHARED_BASE) | (at - SHARED_BASE + size > m.shared_bytes)
        if beyond.any():
            i = int(np.argmax(beyond))
            text = f"reads {size} bytes at byte {int(at[i]) - SHARED_BASE} of {m.shared_bytes} of shared memory"
            self.m.tell("out-of-bounds", inst, text, int(lanes[i]))
            return None
        address = swizzled(at[:, None] + 16 * np.arange(size // 16), span) - SHARED_BASE
        cta = m.cta_of[lanes]
        if m.checks:
            g = m.shadow.granules(np.zeros(1, np.int64), address.reshape(-1), 16).reshape(len(lanes), -1)
            g = g + (cta * m.shadow.per_cta)[:, None]
            warps = m.global_warp[lanes]
            column = m.shadow.stores + warps % m.shadow.warps
            tick = ticks if ticks is not None else np.zeros(len(lanes), np.int32)
            m.defects(inst, m.shadow.read_by(g, warps[:, None], column, tick, pc, lanes & 31), lanes)
        return (cta[:, None] * m.shared_stride + address) >> 4

    def _store(self, inst: Inst, row: isa.Inst, pc: int, args: dict[str, Any]) -> Step:
        m = self.m
        src = self._shared(args["src"])
        tensor = args.get("map")
        if tensor is not None:
            at = address_of(m, Address(tensor.base, tensor.offset))
            coords = [self._values(c, "s32") for c in tensor.coords]
        else:
            at = address_of(m, args["dst"])
            sizes = self._values(args["bytes"], "u32")

        def issue(lanes: Array, index: Array, ticks: Array, put: Callable[[Array, Array, Array], None]) -> None:
            """`put(positions, chunks, running numbers)` performs the stores of some of the lanes."""
            if not m.checks:
                put(np.arange(len(lanes)), self.chunks()[index], ticks)
                return
            for i, (lane, tick) in enumerate(zip(lanes.tolist(), ticks.tolist())):
                one = np.array([i])

                def action(one: Array = one) -> None:
                    put(one, self.chunks()[index[one]], ticks[one])

                store = Store(inst, lane, int(self.group[lane]), tick, action)
                if not self.late():
                    action()
                    store.action = None
                self.pending.append(store)
                self.unwritten.append(store)

        def tiles(lanes: Array) -> None:
            where, start = at(lanes), src(lanes)
            corner = np.stack([c(lanes) for c in coords])
            for address in np.unique(where).tolist():
                on = where == address
                part = lanes[on]
                found = self.boxes.find(inst, address, len(coords), int(part[0]))
                if found is None:
                    continue
                spec = found[0]
                ticks = self._ticks(part)
                if m.trace is not None:
                    m.trace.signal(pc, part, "store", spec.box_bytes, found[1])
                index = self._source(inst, pc, part, start[on], spec.box_bytes, spec.swizzle, TILE_ALIGNMENT, ticks)
                if index is None:
                    continue

                def put(
                    which: Array,
                    chunks: Array,
                    ticks: Array,
                    part: Array = part,
                    place: Array = corner[:, on],
                    found: tuple[TensorMapSpec, int] = found,
                ) -> None:
                    self.boxes.scatter(inst, row, pc, *found, place[:, which], part[which], chunks, ticks)

                issue(part, index, ticks, put)

        def runs(lanes: Array) -> None:
            for i, (n, a, s) in enumerate(zip(sizes(lanes).tolist(), at(lanes).tolist(), src(lanes).tolist())):
                part = lanes[i : i + 1]
                if not self._run_is_legal(inst, n, a, int(part[0])):
                    continue
                ticks = self._ticks(part)
                if m.trace is not None:
                    m.trace.signal(pc, part, "store", n, a)
                index = self._source(inst, pc, part, np.array([s]), n, 0, 16, ticks)
                if index is None:
                    continue

                def put(
                    which: Array, chunks: Array, ticks: Array, a: int = a, thread: int = int(part[0])
                ) -> None:
                    self._run(inst, row, pc, a, chunks, thread, int(ticks[0]))

                issue(part, index, ticks, put)

        def run(mask: Mask) -> None:
            self.barriers.progress(mask)
            if m.globals is not None:
                m.globals.begins(inst, self._lanes(mask))
            (tiles if tensor is not None else runs)(self._lanes(mask))

        return run

    def _run(self, inst: Inst, row: isa.Inst, pc: int, address: int, chunks: Array, thread: int, tick: int) -> None:
        """Put a run of bytes into global memory, or combine it with what is there."""
        m = self.m
        words = np.ascontiguousarray(chunks.reshape(-1)).view(np.uint32).reshape(-1, 4).T
        where = address + 16 * np.arange(words.shape[1])
        if m.globals is not None:
            reduces = "reduce" in row.effects
            threads, ticks = np.full(len(where), thread), np.full(len(where), tick)
            m.globals.bulk_write(inst, pc, where, 16, threads, ticks, None if reduces else words, reduces)
        if "reduce" in row.effects:
            found = m.memory.find(address)
            size = 16 * words.shape[1]
            if found is None or address + size > found.end:
                self.m.tell("out-of-bounds", inst, f"writes {size} bytes: {m.memory.describe(address, size)}", thread)
                return
            kind = row.mods["type"]
            item = isa.TYPE_BITS[kind] // 8
            data = found.data[address - found.base :][:size].view(f"u{item}")
            index = np.arange(len(data))[None]
            values = chunks.reshape(1, -1).view(data.dtype)
            combine(self.m, data, index, values, np.ones_like(index, bool), row.mods["op"], kind)
            return
        try:
            fault = m.memory.store(where, words, 16)
        except LaunchError as e:  # the array behind the address is read-only
            self.m.tell("out-of-bounds", inst, e.message, thread)
            return
        if fault is not None:
            self.m.tell("out-of-bounds", inst, f"writes {16 * len(where)} bytes: {fault.message}", thread)

    def _ticks(self, lanes: Array) -> Array:
        """Running numbers of new stores of these threads, by warp."""
        out = np.zeros(len(lanes), np.int32)
        for i, w in enumerate(self.m.global_warp[lanes].tolist()):
            self.tick[w] += 1
            out[i] = self.tick[w]
        return out

    # ------------------------------------------------------------------------------------------------ groups

    def _commit(self, mask: Mask) -> None:
        self.group[slice(None) if mask is None else mask] += 1

    def _wait(self, keep: int, reading: bool) -> Step:
        def done(stores: list[Store], mask: Mask) -> list[Store]:
            return [
                s for s in stores if (mask is None or mask[s.thread]) and s.group < self.group[s.thread] - keep
            ]

        def step(mask: Mask) -> None:
            if self.pending:
                self._settle(done(self.pending, mask))
            if self.unwritten and not reading:
                found = done(self.unwritten, mask)
                self.unwritten = [s for s in self.unwritten if s not in found]
                self._publish(found, self.unwritten, self.m.shadow.written)

        return step

    def _settle(self, stores: list[Store]) -> None:
        """These stores are done; what their warps have waited for is what comes before the first that is not."""
        m = self.m
        for s in stores:
            if s.action is not None:
                s.action()
            self.pending.remove(s)
        self._publish(stores, self.pending, m.shadow.stores)

    def _publish(self, stores: list[Store], left: list[Store], column: int) -> None:
        """The warps of these stores know that they are done, up to the first of those that are left. `column`: that of
        what is done, for the first warp."""
        m = self.m
        for w in sorted({int(m.global_warp[s.thread]) for s in stores}):
            open_ = [s.tick for s in left if m.global_warp[s.thread] == w]
            tick = min(open_) - 1 if open_ else int(self.tick[w])
            lanes = sum(1 << lane for lane in {s.thread & 31 for s in stores if m.global_warp[s.thread] == w})
            m.shadow.waited(np.array([w]), np.array([column + w % m.shadow.warps]), np.array([tick]), [lanes])

    def ends(self, mask: Mask) -> None:
        """Threads end: their stores must have read what they read, for the CTA's shared memory goes away."""
        if not self.pending:
            return
        left = [s for s in self.pending if mask is None or mask[s.thread]]
        for s in left:
            committed = s.group < self.group[s.thread]
            text = "has not been waited for" if committed else "is in a group that has not been closed"
            self.m.tell("missing-wait", s.inst, f"the thread ends while this copy {text}", s.thread)
        self._settle(left)
