"""What is known about every piece of shared memory: written or not, by whom, who read it since, and who knows of it.

In: accesses and barriers of the executor. Out: defects (`uninitialised-read`, `missing-wait`, `race`, `proxy-fence`).
The idea: warps carry vector clocks; a barrier joins the clocks of those who wait with those who arrive. Each *granule*
(the smallest access of the program) remembers its last writer with that warp's clock, and the clock of the last read by
each warp. Two accesses of different warps, one of them a write, race when the later one's warp does not know the
earlier one's clock. Warps of one *domain*, a CTA or a cluster of CTAs, know each other.

Agents other than warps have clocks too. A bulk load writes as the mbarrier that it signals, at the number of the phase
that it completes: who has waited for the phase knows it. A warpgroup's matrix instructions and a warp's bulk stores
read as agents of their own, at their running numbers: who has waited for them, or synchronised with one who has, knows
it.

Ordinary accesses go through the generic proxy, bulk copies and wgmma through the asynchronous one. What a warp wrote
before it executed a proxy fence has been *fenced*; that travels with the clocks, so the fence may stand anywhere
between the two accesses. Fences may be for shared or for global memory alone. Neither data of `cp.async` nor mbarriers
that have just been initialised are held to that: published compilers leave the fence out there.

Lanes of one warp run one by one for all that the architecture says: what one has written another may read, or write
again, behind a barrier that both come to (`bar.warp.sync`, or one that the warp arrives at and waits for), which begins
a new *epoch* of the warp; fences and arrivals move its clock alone. So each granule also remembers which lane wrote it
last, and of each warp which lane has read it in the warp's last epoch there, or that several have (`LastAccess`). A
barrier of some lanes of a warp orders these. Where several lanes write the same value each of them may read it, others
not before a barrier. An arrival at an mbarrier by some lanes of a warp hands on what these have done, and what others
had when they last met; columns of their own, made when there is such an arrival, hold what of single lanes is known.

Atomic and strong (volatile, relaxed, acquire, release) accesses do not race with each other; what they hand on, see
flags.py. A volatile one that follows another knows what the other's warp did before it, as older compilers have it.
Ordinary accesses race with them, but, in programs that compare and swap, for ordinary reads before an atomic. Two warps
that write the same value to the same place without order are not reported: the value is the same in either order.
Whoever writes another value must know of both. An asynchronous copy leaves its granules *pending*: nobody may touch
them until the issuing thread has waited, from then on they count as written by its warp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx.last_access import ANY, LANES, SEVERAL, LastAccess

Array = Any

EMPTY, VALID, PENDING = 0, 1, 2


@dataclass
class Defect:
    """Index of the access (row of the granule array) that shows a defect, and the instruction it collides with, or
    -1.
    """

    kind: str
    row: int
    other: int
    what: str


class SharedShadow:
    """Shadow state of the shared memory of a batch of CTAs. Granule numbers are global: cta * per_cta + offset //
    granule.

    `cluster` CTAs that follow each other are a domain. `agents`: whether the program has asynchronous agents; `swaps`:
    whether it compares and swaps. Columns of `know`: the domain's warps; the reading agents (warpgroups, then bulk
    stores by warp); what is fenced in shared memory, in global memory, which mbarrier initialisations are known, and
    which bulk stores have written, by warp; one per mbarrier, or lane that has arrived at one alone (`slots`).
    """

    def __init__(
        self,
        ctas: int,
        warps: int,
        stride: int,
        granule: int,
        cluster: int = 1,
        agents: bool = False,
        swaps: bool = False,
        slots: dict[tuple[int, int], int] | None = None,
    ):
        self.slots = {} if slots is None else slots
        """Numbers of mbarriers, by CTA and place, and of lanes, by ~warp and lane: one batch's are the next's."""
        self.ctas, self.cta_warps, self.granule, self.cluster = ctas, warps, granule, cluster
        self.per_cta = stride // granule
        w = self.warps = warps * cluster
        self.agents, self.swaps = agents, swaps
        groups = self.groups = (warps + 3) // 4 * cluster if agents else 0
        self.readers = 2 * w + groups if agents else w
        self.stores = w + groups
        self.fenced = self.readers
        self.fenced_global = self.fenced + w
        self.inits = self.fenced_global + w
        self.written = self.inits + w
        self.barriers = self.written + w if agents else w
        n = ctas * self.per_cta
        self.state = np.zeros(n, np.uint8)
        self.writer = np.zeros(n, np.int64)
        self.write_clock = np.zeros(n, np.int32)
        self.write_inst = np.full(n, -1, np.int64)
        """Of the last write: instruction << LANES | lane."""
        self.write_lanes = np.zeros(n, np.uint32)
        """A bit for each lane of the last write, where that was by several."""
        self.atomic = np.zeros(n, np.bool_)
        self.copied = np.zeros(n, np.bool_)
        self.reads = LastAccess(n, self.readers)
        self.strong_reads: LastAccess | None = None
        """Those that do not race with atomics."""
        self.equal: LastAccess | None = None
        """Writes of the value that is there, beside the last write."""
        self.added: LastAccess | None = None
        """Atomics that one instruction carried out beside the last one."""
        self.read_inst = np.full(n, -1, np.int32)
        """The instruction of the last read."""
        # know[warp, u]: the latest clock of u that the warp has synchronised with; a warp's own is its clock.
        self.own = np.tile(np.arange(w), ctas // cluster)
        self.rows = np.arange(ctas * warps)
        threads = np.arange(ctas * warps * 32)
        self.codes: Array = (threads >> 5) % w << LANES | threads & 31
        """Of each thread, its warp in the domain and its lane."""
        self.lanes: Array = (threads & 31).astype(np.int32)
        self.know = np.zeros((ctas * warps, self.barriers + (16 if agents else 0)), np.int32)
        self.know[self.rows, self.own] = 1
        self.met = np.zeros(ctas * warps, np.int32)
        """Of each warp, the clock up to which its lanes know of each other."""
        self.lane_columns = {(~warp, lane): self.barriers + n for (warp, lane), n in self.slots.items() if warp < 0}
        """By warp in the domain and lane (`SEVERAL`: two lanes or more) the columns for what these alone have told."""
        self.lane_table: Array = np.zeros((w, ANY + 1), np.int64)
        """The same, 0 where there is none."""
        for key, column in self.lane_columns.items():
            self.lane_table[key] = column
        if self.lane_columns:
            self.barrier_column(max(self.slots.values()))
        self.arrivers: dict[int, tuple[int, int]] = {}
        """By warp, lanes that have arrived at mbarriers since its lanes met, and when that was."""
        self.parts: dict[int, list[tuple[int, int]]] = {}
        """By warp the barriers of some of its lanes since then: clock and lanes, a bit for each."""
        self._warps = np.arange(w)
        self.done: dict[tuple[int, int], int] = {}

    @property
    def columns(self) -> int:
        return self.know.shape[1]

    def barrier_column(self, slot: int) -> int:
        """The column of the domain's mbarrier number `slot`."""
        column = self.barriers + slot
        while column >= self.columns:
            more = np.zeros((self.know.shape[0], self.columns), np.int32)
            self.know = np.concatenate([self.know, more], axis=1)
        return column

    def slot(self, key: tuple[int, int]) -> int:
        """The number of an mbarrier, or of a lane."""
        return self.slots.setdefault(key, len(self.slots))

    def told(self, warps: Array, writers: Array, clocks: Array, lanes: Array) -> Array | None:
        """Which accesses by warps `writers` of the domain global warps know of by lanes alone; None: none."""
        return self._by_lanes(warps, writers, clocks, lanes) if self.lane_columns else None

    def _by_lanes(self, warps: Array, writers: Array, clocks: Array, lanes: Array) -> Array:
        columns: Array = self.lane_table[np.minimum(writers, self.warps - 1), lanes]
        return (columns > 0) & (self.know.reshape(-1).take(warps * self.columns + columns) >= clocks)

    def _untold(self, late: Array, g: Array, warp: Array, writer: Array) -> None:
        """Take from accesses `late` [rows, k] to what others wrote those that warps know of by lanes."""
        if self.lane_columns:
            late &= ~self._by_lanes(warp, writer, self.write_clock.take(g), self.write_inst.take(g) & ANY)

    def granules(self, base: Array, offsets: Array, width: int) -> Array:
        """Granule numbers [rows, k] of accesses of `width` bytes at byte offsets within CTAs `base`."""
        g = base * self.per_cta + offsets // self.granule
        k = max(1, width // self.granule)
        return g[:, None] + np.arange(k) if k > 1 else g[:, None]

    def _own_clock(self, warp: Array, own: Array) -> Array:
        """Of global warps, which are number `own` of their domain."""
        return self.know.reshape(-1).take(warp * self.columns + own)

    def _unknown(self, g: Array, warp: Array, own: Array, now: Array) -> tuple[Array, Array, Array]:
        """Where the last write is by another agent that `warp` (global numbers, [rows, 1]; `own` in the domain) has not
        synchronised with, or by this warp in this epoch; who wrote; where it was this warp. `now`: its clock.
        """
        writer = self.writer.take(g)
        known = self.know.reshape(-1).take(warp * self.columns + writer)
        mine = writer == own
        np.subtract(known, mine * (now - self.met.take(warp)), out=known)  # of its own a warp knows the epochs before
        return self.write_clock.take(g) > known, writer, mine

    def _clash(self, late: Array, g: Array, writer: Array, verb: str) -> Defect:
        """The first of unordered accesses to what another agent wrote."""
        row, col = (int(x[0]) for x in np.nonzero(late))
        other = int(self.write_inst[g[row, col]]) >> LANES
        if self.agents and int(writer[row, col]) >= self.barriers:
            what = f"{verb} what a bulk copy writes, without having waited for the copy's mbarrier"
            return Defect("missing-wait", row, other, what)
        return Defect("race", row, other, f"{verb} what another warp wrote")

    # ------------------------------------------------------------------------------------------------ warps

    def read(self, g: Array, thread: Array, pc: int, *, strong: bool = False) -> list[Defect]:
        """Record reads of granules [rows, k] by threads [rows]; `strong`: volatile, relaxed or acquiring."""
        warp = thread[:, None] >> 5
        code = self.codes.take(thread)[:, None]
        own = code >> LANES
        out: list[Defect] = []
        state = self.state.take(g)
        if (state != VALID).any():
            out += self._state_defects(state, g, "reads")
        now = self._own_clock(warp, own)
        open_, writer, mine = self._unknown(g, warp, own, now)
        if open_.any():
            self._untold(open_, g, warp, writer)
            if strong:
                open_ &= ~self.atomic.take(g)
            late = open_ & ~mine & (state != PENDING)
            if late.any():
                out.append(self._clash(late, g, writer, "reads"))
            mine &= open_ & (state == VALID)
            out += self._other_lane(mine, g, code, warp, "reads")
        if self.added is not None and not strong:
            out += self._before(self.added, g, warp[:, 0], own[:, 0], "reads what {} changes atomically", code)
        reads = self.reads
        if strong:
            reads = self.strong_reads = self.strong_reads or LastAccess(len(self.state), self.readers)
        reads.note(g, own, now << LANES | self.lanes.take(thread)[:, None], self.met.take(warp))
        self.read_inst[g] = pc
        return out

    def _other_lane(self, mine: Array, g: Array, code: Array, warp: Array, verb: str) -> list[Defect]:
        """Of accesses to what this warp wrote in this epoch, `mine`, those to what another lane of it wrote. What
        several lanes wrote, the same value, each of them may read.
        """
        wrote = self.write_inst.take(g) & ANY
        mine &= (wrote != code & ANY) & (wrote != ANY)
        several = mine & (wrote == SEVERAL)
        if verb == "reads" and several.any():
            mine &= ~(several & (self.write_lanes.take(g) >> (code & ANY).astype(np.uint32) & 1 == 1))
        if self.parts and mine.any():
            self._drop_ordered(mine, wrote, self.write_clock.take(g), code, warp)
        if not mine.any():
            return []
        row, col = (int(x[0]) for x in np.nonzero(mine))
        what = f"{verb} what another lane of this warp wrote, with no barrier that both come to in between"
        return [Defect("race", row, int(self.write_inst[g[row, col]]) >> LANES, what)]

    def _drop_ordered(self, late: Array, lanes: Array, clocks: Array, code: Array, warp: Array) -> None:
        """Take from accesses `late` [rows, k] those that barriers of some lanes order behind the other one, by `lanes`
        at `clocks`. Where those were several lanes, one such barrier of the later lane is taken for enough.
        """
        for row, col in np.argwhere(late).tolist():
            to, reached = int(code[row, 0]) & ANY, 1 << int(lanes[row, col])
            for clock, members in self.parts.get(int(warp[row, 0]), ()):
                if clock >= clocks[row, col] and (reached & members or lanes[row, col] == SEVERAL):
                    reached |= members
            late[row, col] = not reached >> to & 1

    def _state_defects(self, state: Array, g: Array, verb: str) -> list[Defect]:
        out = []
        if verb == "reads" and (state == EMPTY).any():
            row = int(np.nonzero((state == EMPTY).any(axis=1))[0][0])
            out.append(Defect("uninitialised-read", row, -1, "reads shared memory that nothing has written"))
        pending = state == PENDING
        if pending.any():
            row, col = (int(x[0]) for x in np.nonzero(pending))
            what = f"{verb} shared memory that an asynchronous copy has not been waited for"
            out.append(Defect("missing-wait", row, int(self.write_inst[g[row, col]]) >> LANES, what))
        return out

    def acquire_writes(self, g: Array, warp: Array) -> None:
        """A volatile access sees the last strong or atomic write, and with it what its warp had done until then."""
        warp = warp[:, None]
        known = self.atomic.take(g)
        if known.any():
            index = np.broadcast_to(warp * self.columns, g.shape) + self.writer.take(g)
            clocks: Array = self.write_clock.take(g)
            np.maximum.at(self.know.reshape(-1), index[known], clocks[known])

    def write(
        self,
        g: Array,
        thread: Array,
        pc: int,
        same: Array | None,
        *,
        pending: bool = False,
        atomic: bool = False,
        strong: bool = False,
    ) -> list[Defect]:
        """Record writes of granules [rows, k] by threads [rows]. `same` [rows]: the write left memory as it was (None:
        not known).

        Writes of one instruction that disagree are the caller's to find: it sees the values.
        """
        warp = thread[:, None] >> 5
        code = self.codes.take(thread)[:, None]
        own = code >> LANES
        out: list[Defect] = []
        state = self.state.take(g)
        if atomic:
            out += self._state_defects(state, g, "reads")
        elif (state == PENDING).any():
            out += self._state_defects(state, g, "writes")
        now = self._own_clock(warp, own)
        open_, writer, mine = self._unknown(g, warp, own, now)
        if open_.any():
            self._untold(open_, g, warp, writer)
            if atomic or strong:
                open_ &= ~self.atomic.take(g)
            if same is not None:
                self._keep_equal(open_ & same[:, None], g, writer)
                open_ &= ~same[:, None]
            late = open_ & ~mine & (state != PENDING)
            if late.any():
                out.append(self._clash(late, g, writer, "overwrites"))
            out += self._other_lane(open_ & mine & (state == VALID), g, code, warp, "overwrites")
        out += self._before_write(g, warp[:, 0], own[:, 0], code, same, atomic, strong)
        self.writer[g] = own
        self.write_clock[g] = now
        wrote = code & ANY | pc << LANES
        self.write_inst[g] = wrote
        other = self.writer.take(g) != own
        several = self.write_inst.take(g) != wrote
        if atomic:
            several |= other
            self._beside("added", several, g, warp, own, code, now)
        else:
            self._beside("equal", other, g, warp, own, code, now)
            several &= ~other
            if several.any():
                shared = g[several]
                self.write_inst[shared] = pc << LANES | SEVERAL
                among = (self.write_inst.take(g) == pc << LANES | SEVERAL) & ~other
                lanes = np.broadcast_to(np.uint32(1) << (code & ANY).astype(np.uint32), g.shape)
                self.write_lanes[shared] = 0
                np.bitwise_or.at(self.write_lanes, g[among], lanes[among])
        self.atomic[g] = atomic or strong
        self.copied[g] = pending
        self.state[g] = PENDING if pending else VALID
        return out

    def _keep_equal(self, calm: Array, g: Array, writer: Array) -> None:
        """Writes by others that accesses, `calm` [rows, k], do not know of, but leave as they are."""
        calm &= writer < self.warps
        if not calm.any():
            return
        if self.equal is None:
            self.equal = LastAccess(len(self.state), self.readers)
        at = g[calm]
        self.equal.last[at, writer[calm]] = self.write_clock[at] << LANES | self.write_inst[at] & ANY

    def _beside(self, name: str, lost: Array, g: Array, warp: Array, own: Array, code: Array, now: Array) -> None:
        """Of accesses of one instruction that wrote to one place the last is the writer; those that are `lost` [rows,
        k] are kept under a name.
        """
        if not lost.any():
            return
        kind: LastAccess | None = getattr(self, name)
        if kind is None:
            kind = LastAccess(len(self.state), self.readers)
            setattr(self, name, kind)
        row, _ = np.nonzero(lost)
        kind.note(g[lost][:, None], own[row], now[row] << LANES | code[row] & ANY, self.met.take(warp[row]))

    def _before_write(
        self, g: Array, warp: Array, own: Array, code: Array, same: Array | None, atomic: bool, strong: bool
    ) -> list[Defect]:
        """What warps [rows] do not know of that was done to granules [rows, k], besides the last write."""
        if not (strong or (atomic and self.swaps)):
            out = self._before(self.reads, g, warp, own, "overwrites what {} reads", code, same)
            if out:
                return out
        if atomic or strong:
            return []
        for kind, say in ((self.strong_reads, "reads"), (self.added, "changes atomically")):
            out = [] if kind is None else self._before(kind, g, warp, own, f"overwrites what {{}} {say}", code, same)
            if out:
                return out
        if self.equal is None:
            return []
        at = np.arange(len(g)) if same is None else np.flatnonzero(~same)
        out = self._before(self.equal, g[at], warp[at], own[at], "overwrites what {} also wrote", code[at])
        return [Defect(d.kind, int(at[d.row]), -1, d.what) for d in out]

    def _before(
        self, kind: LastAccess, g: Array, warp: Array, own: Array, say: str, code: Array = None, same: Array = None
    ) -> list[Defect]:
        """Accesses of a kind by others to granules [rows, k] that warps [rows] do not know of. `own`: a column whose
        accesses count as known, but, given the lanes' `code`, for those of other lanes in this epoch.
        """
        known: Array = self.know.take(warp, axis=0)
        known = known[:, : self.readers]
        if code is not None:
            known[np.arange(len(known)), own] = self.met.take(warp)
        last, unseen = kind.unseen(g, known)
        if self.lane_columns and unseen.any():
            unseen &= ~self._by_lanes(warp[:, None, None], np.arange(self.readers), last >> LANES, last & ANY)
        if not unseen.any():
            return []
        mine = np.arange(self.readers) == own[:, None, None]
        if code is not None:
            by_lane = unseen & mine & (last & ANY != (code & ANY)[:, :, None])
            if same is not None:
                by_lane &= ~same[:, None, None]
            if self.parts and by_lane.any():
                late: Array = by_lane.any(axis=2)
                ours = np.take_along_axis(last, own[:, None, None].repeat(g.shape[1], axis=1), axis=2)[:, :, 0]
                self._drop_ordered(late, ours & ANY, ours >> LANES, code, warp[:, None])
                by_lane &= late[:, :, None]
            if by_lane.any():
                row, col, _ = (int(x[0]) for x in np.nonzero(by_lane))
                what = say.format("another lane of this warp") + ", with no barrier that both come to in between"
                return [Defect("race", row, int(self.read_inst[g[row, col]]), what)]
        unseen &= ~mine
        if not unseen.any():
            return []
        row, col, other = (int(x[0]) for x in np.nonzero(unseen))
        inst = int(self.read_inst[g[row, col]])
        if other < self.warps:
            return [Defect("race", row, inst, say.format("another warp"))]
        who = "a wgmma" if other < self.stores else "a bulk store"
        waited = self.done.get((int(warp[row]) // self.warps, other), 0) >= int(last[row, col, other]) >> LANES
        if waited:
            what = f"overwrites what {who} read; the warp that waited for it has not told this one"
            return [Defect("race", row, inst, what)]
        return [Defect("missing-wait", row, inst, f"overwrites what {who} that nobody has waited for may still read")]

    def settle(self, g: Array, warp: Array) -> None:
        """The issuing threads have waited for their copies: the granules are written as of now."""
        warp = warp[:, None]
        self.state[g] = VALID
        self.write_clock[g] = self._own_clock(warp, warp % self.warps)

    # ------------------------------------------------------------------------------------------------ agents

    def read_by(self, g: Array, warps: Array, column: Array, tick: Array, pc: int) -> list[Defect]:
        """Record reads of granules [rows, k] in the asynchronous proxy by agents: columns and running numbers [rows].

        `warps` [rows, n] are the global warps that issue it: each must know what was written, and that it is fenced.
        """
        out: list[Defect] = []
        state = self.state.take(g)
        if (state != VALID).any():
            out += self._state_defects(state, g, "reads")
        writer, clock = self.writer.take(g), self.write_clock.take(g)
        generic = (writer < self.warps) & ~self.copied.take(g) & (state == VALID)
        flat = self.know.reshape(-1)
        for i in range(warps.shape[1]):
            warp = warps[:, i : i + 1]
            late = (clock > flat.take(warp * self.columns + writer)) & (writer != warp % self.warps)
            late &= state == VALID
            self._untold(late, g, warp, writer)
            if late.any():
                out.append(self._clash(late, g, writer, "reads"))
                break
            fenced = flat.take(warp * self.columns + self.fenced + np.minimum(writer, self.warps - 1))
            open_ = generic & (clock > fenced)
            if open_.any():
                row, col = (int(x[0]) for x in np.nonzero(open_))
                what = (
                    "reads in the asynchronous proxy what an ordinary store wrote, with no proxy fence after the store"
                )
                out.append(Defect("proxy-fence", row, int(self.write_inst[g[row, col]]) >> LANES, what))
                break
        self.reads.put(g, column, tick)
        self.read_inst[g] = pc
        return out

    def write_by(self, g: Array, warp: Array, pc: int) -> list[Defect]:
        """Record that bulk copies issued by global warps [rows] are going to write granules [rows, k]."""
        out: list[Defect] = []
        state = self.state.take(g)
        pending = state == PENDING
        if pending.any():
            out += self._state_defects(state, g, "writes")
        own = warp % self.warps
        late, writer, mine = self._unknown(g, warp[:, None], own[:, None], self._own_clock(warp, own)[:, None])
        late &= ~(mine | pending)
        self._untold(late, g, warp[:, None], writer)
        if late.any():
            out.append(self._clash(late, g, writer, "overwrites"))
        else:
            at = warp[:, None] * self.columns + self.fenced + np.minimum(writer, self.warps - 1)
            open_ = (writer < self.warps) & (state == VALID) & ~self.copied.take(g)
            open_ &= self.write_clock.take(g) > self.know.reshape(-1).take(at)
            if open_.any():
                row, col = (int(x[0]) for x in np.nonzero(open_))
                what = "overwrites in the asynchronous proxy what an ordinary store wrote, with no proxy fence after it"
                out.append(Defect("proxy-fence", row, int(self.write_inst[g[row, col]]) >> LANES, what))
        for kind in (self.reads, self.strong_reads):
            out += self._before(kind, g, warp, own, "overwrites what {} reads") if kind is not None else []
        self.state[g] = PENDING
        self.write_inst[g] = pc << LANES | ANY
        self.copied[g] = False
        self.atomic[g] = False
        return out

    def arrived(self, g: Array, column: int, clock: int) -> None:
        """A bulk copy has written granules: they belong to an mbarrier's phase."""
        self.state[g] = VALID
        self.writer[g] = column
        self.write_clock[g] = clock

    def waited(self, warps: Array, column: Array, tick: Array) -> None:
        """Global warps [rows] have waited for reads of agents up to a running number."""
        at = warps * self.columns + column
        flat = self.know.reshape(-1)
        flat[at] = np.maximum(flat.take(at), tick)
        for w, c, t in zip((warps // self.warps).tolist(), column.tolist(), tick.tolist()):
            self.done[w, c] = max(self.done.get((w, c), 0), t)

    def fence(self, warps: Array, space: str | None = None) -> None:
        """Global warps execute a proxy fence: all that they know of is fenced, in `global` memory, in shared memory, or
        (None) in both.
        """
        if not self.agents:
            return
        seen = self.know[warps, : self.warps]
        first = self.fenced_global if space == "global" else self.fenced
        last = self.fenced_global if space is None else first
        for column in range(first, last + 1, self.warps):
            at = slice(column, column + self.warps)
            self.know[warps, at] = np.maximum(self.know[warps, at], seen)
        self.know[warps, warps % self.warps] += 1

    def fence_inits(self, warps: Array) -> None:
        """Global warps make their mbarrier initialisations visible to the cluster."""
        if self.agents:
            own = warps % self.warps
            self.know[warps, self.inits + own] = self.know[warps, own]

    # ------------------------------------------------------------------------------------------------ barriers

    def barrier_all(self) -> None:
        """Every warp of every CTA has met every other of its CTA."""
        by_cta = self.know.reshape(self.ctas, self.cta_warps, -1)
        by_cta[:] = by_cta.max(axis=1)[:, None, :]
        self.lanes_meet(self.rows)

    def advance(self, warps: Array) -> None:
        """The clocks of global warps go on."""
        self.know[warps, self.own[warps]] += 1

    def lanes_meet(self, warps: Array) -> None:
        """All lanes of global warps have met: a new epoch of theirs begins."""
        self._met(warps, self.know[warps, self.own[warps]])
        self.advance(warps)

    def some_meet(self, warp: int, lanes: int) -> None:
        """Some lanes of a global warp, a bit for each, have met."""
        self.parts.setdefault(warp, []).append((int(self.know[warp, self.own[warp]]), lanes))
        self.advance(np.array([warp]))

    def lanes_know(self, warp: int, clock: int) -> None:
        """The lanes of a global warp know what they did up to a clock."""
        if clock > self.met[warp]:
            self._met(np.array([warp]), np.array([clock]))

    def _met(self, warps: Array, clocks: Array) -> None:
        """The lanes of global warps know what they did up to some clocks."""
        self.met[warps] = np.maximum(self.met[warps], clocks)
        if self.parts:
            for warp in warps.tolist():
                left = [part for part in self.parts.pop(warp, ()) if part[0] > self.met[warp]]
                if left:
                    self.parts[warp] = left

    def arrive(self, into: Array, groups: Array, warps: Array) -> None:
        """Global warps `warps` arrive: their knowledge goes into rows `groups` of `into` [n, columns]."""
        np.maximum.at(into, groups, self.know[warps])
        self.advance(warps)

    def release(self, threads: Array, live: Array) -> Array:
        """The clocks that threads hand on by arriving at an mbarrier: all that their warps know, but, where other
        `live` threads of a warp do not arrive with them, of its own accesses those up to the last meeting of its lanes,
        the threads' own, and those of lanes that they have met since.
        """
        warps, here = np.unique(threads >> 5, return_counts=True)
        partly = np.flatnonzero(here < live.reshape(-1, 32)[warps].sum(axis=1))
        if not len(partly):
            return self.know[warps].max(axis=0)
        alone = []
        for at in partly.tolist():
            warp = int(warps[at])
            own = int(self.own[warp])
            for lane, clock in self._alone(warp, threads[threads >> 5 == warp] & 31).items():
                alone.append((at, self.lane_column(own, lane), clock))
        know: Array = self.know[warps]
        for at in partly.tolist():
            know[at, self.own[warps[at]]] = self.met[warps[at]]
        for at, column, clock in alone:
            know[at, column] = clock
        return know.max(axis=0)

    def _alone(self, warp: int, lanes: Array) -> dict[int, int]:
        """By lane (`SEVERAL`: two or more) the clock up to which arriving lanes of a global warp speak for it."""
        now, met = int(self.know[warp, self.own[warp]]), int(self.met[warp])
        reached = sum(1 << lane for lane in set(lanes.tolist()))
        since, before = self.arrivers.get(warp, (met, 0))
        before = before if since == met else 0
        self.arrivers[warp] = met, before | reached
        out = {lane: now for lane in range(32) if reached >> lane & 1}
        if (before | reached).bit_count() > 1:
            out[SEVERAL] = now
        for clock, members in reversed(self.parts.get(warp, [])):
            if reached & members:
                reached |= members
                for lane in (*(lane for lane in range(32) if members >> lane & 1), SEVERAL):
                    out.setdefault(lane, clock)
        return out

    def lane_column(self, own: int, lane: int) -> int:
        """The column for what a lane of a warp of the domain has told alone."""
        column = self.barrier_column(self.slot((~own, lane)))
        self.lane_columns[own, lane] = column
        self.lane_table[own, lane] = column
        return column

    def arrive_inits(self, into: Array, groups: Array, warps: Array) -> None:
        """The same for an arrival without release semantics, which carries initialised mbarriers only."""
        if self.agents:
            at = slice(self.inits, self.inits + self.warps)
            part = into[:, at]
            np.maximum.at(part, groups, self.know[warps, at])

    def acquire(self, source: Array, groups: Array, warps: Array) -> None:
        """Global warps `warps` learn what rows `groups` of a completed barrier gathered."""
        n = source.shape[1]
        self.know[warps, :n] = np.maximum(self.know[warps, :n], source[groups])
        self._met(warps, source[groups, self.own[warps]])
