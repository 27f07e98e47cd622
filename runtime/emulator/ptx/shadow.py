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
What some lanes of a warp acquire while others do not is theirs alone (lane_knowledge.py), until they meet: a test of an
mbarrier, an acquiring fence or load, a wait for bulk stores, a fence between proxies. Such a fence by single lanes is
for what these have written, and for what their warp knew. A wgmma is all lanes', so all of them have to know.

Atomic and strong (volatile, relaxed, acquire, release) accesses do not race with each other; what they hand on, see
flags.py. A volatile one that follows another knows what the other's warp did before it, as older compilers have it.
Ordinary accesses race with them, but, in programs that compare and swap, for ordinary reads before an atomic. Two warps
that write the same value to the same place without order are not reported: the value is the same in either order.
Whoever writes another value must know of both. An asynchronous copy leaves its granules *pending*: nobody may touch
them until the issuing thread has waited, from then on they count as written by its warp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx.clocks import Clocks
from wavedsl.runtime.emulator.ptx.last_access import ANY, LANES, SEVERAL, LastAccess

Array = Any

EMPTY, VALID, PENDING = 0, 1, 2


@dataclass
class Defect:
    """Index of the access (row of the granule array) that shows a defect, the instruction it collides with, or -1, and
    its granule.
    """

    kind: str
    row: int
    other: int
    what: str
    at: int = -1
    copy: int = -1
    """The column of the mbarrier whose phase a bulk copy completes."""


class SharedShadow(Clocks):
    """Shadow state of the shared memory of a batch of CTAs. Granule numbers are global: cta * per_cta + offset //
    granule.

    `cluster` CTAs that follow each other are a domain. `agents`: whether the program has asynchronous agents; `swaps`:
    whether it compares and swaps.
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
        living: Callable[[], Array] | None = None,
    ):
        super().__init__(ctas, warps, cluster, agents, slots, living)
        self.granule, self.swaps = granule, swaps
        self.per_cta = stride // granule
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
        self.span = np.zeros(n, np.uint8)
        """Of the last bulk copy of a box of a swizzled tensor map: the bytes after which its pattern turns."""
        self.spans: set[int] = set()
        self.reads = LastAccess(n, self.readers)
        self.strong_reads: LastAccess | None = None
        """Those that do not race with atomics."""
        self.equal: LastAccess | None = None
        """Writes of the value that is there, beside the last write."""
        self.added: LastAccess | None = None
        """Atomics that one instruction carried out beside the last one."""
        self.read_inst = np.full(n, -1, np.int32)
        """The instruction of the last read."""

    def _untold(self, late: Array, g: Array, warp: Array, lane: Array | None, writer: Array) -> None:
        """Take from accesses `late` [rows, k] to what others wrote those that warps know of by lanes, or that the
        accessing `lane`s [rows, 1] (None: all of each warp) know of alone.
        """
        if self.lane_columns:
            late &= ~self._by_lanes(warp, writer, self.write_clock.take(g), self.write_inst.take(g) & ANY)
        if self.heard.tables and lane is not None and late.any():
            i, j = np.nonzero(late)
            at = g[i, j]
            wrote = self.write_clock[at], self.write_inst[at] & ANY
            late[i, j] = ~self.heard_of(warp[i, 0], lane[i, 0], writer[i, j], *wrote)

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
            return Defect("missing-wait", row, other, what, int(g[row, col]), int(writer[row, col]))
        return Defect("race", row, other, f"{verb} what another warp wrote", int(g[row, col]))

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
            self._untold(open_, g, warp, code & ANY, writer)
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
        reads.note(g, own, now << LANES | self.lanes.take(thread)[:, None], self._since(warp, code, own))
        self.read_inst[g] = pc
        return out

    def _since(self, warp: Array, code: Array, own: Array) -> Array:
        """The clocks up to which lanes [rows, 1] know what all lanes of their warps have done."""
        met: Array = self.met.take(warp)
        if self.heard.tables:
            heard = self.heard.at(warp.reshape(-1), (code & ANY).reshape(-1), own.reshape(-1))
            met = np.maximum(met, heard.reshape(met.shape))
        return met

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
        return [Defect("race", row, int(self.write_inst[g[row, col]]) >> LANES, what, int(g[row, col]))]

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
            row, col = (int(x[0]) for x in np.nonzero(state == EMPTY))
            what = "reads shared memory that nothing has written"
            out.append(Defect("uninitialised-read", row, -1, what, int(g[row, col])))
        pending = state == PENDING
        if pending.any():
            row, col = (int(x[0]) for x in np.nonzero(pending))
            what = f"{verb} shared memory that an asynchronous copy has not been waited for"
            at = int(g[row, col])
            out.append(Defect("missing-wait", row, int(self.write_inst[at]) >> LANES, what, at))
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
            self._untold(open_, g, warp, code & ANY, writer)
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
        since = self._since(warp[row], code[row], own[row])
        kind.note(g[lost][:, None], own[row], now[row] << LANES | code[row] & ANY, since)

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
        return [Defect(d.kind, int(at[d.row]), -1, d.what, d.at) for d in out]

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
        if self.heard.tables and code is not None and unseen.any():
            i, j, n = np.nonzero(unseen)
            theirs = last[i, j, n]
            unseen[i, j, n] = ~self.heard_of(warp[i], (code & ANY)[i, 0], n, theirs >> LANES, theirs & ANY)
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
                return [Defect("race", row, int(self.read_inst[g[row, col]]), what, int(g[row, col]))]
        unseen &= ~mine
        if not unseen.any():
            return []
        row, col, other = (int(x[0]) for x in np.nonzero(unseen))
        at = int(g[row, col])
        inst = int(self.read_inst[at])
        if other < self.warps:
            return [Defect("race", row, inst, say.format("another warp"), at)]
        who = "a wgmma" if other < self.stores else "a bulk store"
        waited = self.done.get((int(warp[row]) // self.warps, other), 0) >= int(last[row, col, other]) >> LANES
        if waited:
            what = f"overwrites what {who} read; who waited for it has not told this thread"
            return [Defect("race", row, inst, what, at)]
        what = f"overwrites what {who} that nobody has waited for may still read"
        return [Defect("missing-wait", row, inst, what, at)]

    def settle(self, g: Array, warp: Array) -> None:
        """The issuing threads have waited for their copies: the granules are written as of now."""
        warp = warp[:, None]
        self.state[g] = VALID
        self.write_clock[g] = self._own_clock(warp, warp % self.warps)

    # ------------------------------------------------------------------------------------------------ agents

    def read_by(
        self, g: Array, warps: Array, column: Array, tick: Array, pc: int, lanes: Array | None = None,
        span: int | None = None,
    ) -> list[Defect]:  # fmt: skip
        """Record reads of granules [rows, k] in the asynchronous proxy by agents: columns and running numbers [rows].

        `warps` [rows, n] are the global warps that issue it: each must know what was written, and that it is fenced.
        `lanes` [rows]: which lane of the warp (None: all of them). `span`: that of the swizzle by which they are read
        (0: none; None: they are only moved).
        """
        lane = None if lanes is None else lanes[:, None]
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
            self._untold(late, g, warp, lane, writer)
            if late.any():
                out.append(self._clash(late, g, writer, "reads"))
                break
            out += self._lanes_late(g, state, writer, clock, warp, lane, "reads")
            fenced = flat.take(warp * self.columns + self.fenced + np.minimum(writer, self.warps - 1))
            open_ = generic & (clock > fenced)
            self._unfenced(open_, g, warp, lane, writer)
            if open_.any():
                row, col = (int(x[0]) for x in np.nonzero(open_))
                what = (
                    "reads in the asynchronous proxy what an ordinary store wrote, with no proxy fence after the store"
                )
                place = int(g[row, col])
                out.append(Defect("proxy-fence", row, int(self.write_inst[place]) >> LANES, what, place))
                break
        if span is not None and not out and self.spans and self.spans != {span}:
            out += self._other_swizzle(g, writer, span)
        self.reads.put(g, column, tick)
        self.read_inst[g] = pc
        return out

    def _other_swizzle(self, g: Array, writer: Array, span: int) -> list[Defect]:
        """Of granules [rows, k] that are read by a swizzle those that a copy has put elsewhere by another one."""
        theirs = np.where(writer >= self.barriers, self.span.take(g), 0).astype(np.int64)
        row_of = g % self.per_cta * self.granule >> 7  # shared memory begins at a multiple of 1024
        turned = (row_of & np.maximum(theirs >> 4, 1) - 1) != (row_of & max(span >> 4, 1) - 1)
        wrong = (theirs > 0) & turned
        if not wrong.any():
            return []
        row, col = (int(x[0]) for x in np.nonzero(wrong))
        at = int(g[row, col])
        mine = f"a swizzle of {span} bytes" if span else "no swizzle"
        what = f"reads by {mine} what was copied with one of {int(theirs[row, col])}"
        return [Defect("hazard", row, int(self.write_inst[at]) >> LANES, what, at)]

    def _lanes_late(
        self, g: Array, state: Array, writer: Array, clock: Array, warp: Array, lane: Array | None, verb: str
    ) -> list[Defect]:
        """Of granules [rows, k] that lanes touch in the asynchronous proxy, what other lanes of their warps wrote."""
        if lane is None:
            return []
        mine = (writer == warp % self.warps) & (state == VALID) & (clock > self.met.take(warp))
        if mine.any():
            self._untold(mine, g, warp, lane, writer)
        return self._other_lane(mine, g, warp % self.warps << LANES | lane, warp, verb) if mine.any() else []

    def _unfenced(self, open_: Array, g: Array, warp: Array, lane: Array | None, writer: Array) -> None:
        """Take from granules [rows, k] that no fence of a whole warp covers those that fences of single lanes do."""
        if not open_.any() or not (self.lane_columns or self.heard.tables):
            return
        i, j = np.nonzero(open_)
        at, warps, wrote = g[i, j], warp[i, 0], writer[i, j]
        clocks = self.write_clock[at]
        columns = self.lane_table[self.warps + wrote, self.write_inst[at] & ANY]
        fine = (columns > 0) & (self.know.reshape(-1).take(warps * self.columns + columns) >= clocks)
        if lane is not None:
            fine |= self.heard.at(warps, lane[i, 0], self.fenced + wrote) >= clocks
            fine |= (columns > 0) & (self.heard.at(warps, lane[i, 0], columns) >= clocks)
        open_[i, j] = ~fine

    def write_by(self, g: Array, threads: Array, pc: int, span: int = 0) -> list[Defect]:
        """Record that bulk copies issued by threads [rows] are going to write granules [rows, k], boxes with a swizzle
        of `span` bytes (0: none, or no boxes).
        """
        out: list[Defect] = []
        warp, lane = threads >> 5, (threads & 31)[:, None]
        state = self.state.take(g)
        pending = state == PENDING
        if pending.any():
            out += self._state_defects(state, g, "writes")
        own = warp % self.warps
        late, writer, mine = self._unknown(g, warp[:, None], own[:, None], self._own_clock(warp, own)[:, None])
        late &= ~(mine | pending)
        self._untold(late, g, warp[:, None], lane, writer)
        if late.any():
            out.append(self._clash(late, g, writer, "overwrites"))
        else:
            clock = self.write_clock.take(g)
            out += self._lanes_late(g, state, writer, clock, warp[:, None], lane, "overwrites")
            at = warp[:, None] * self.columns + self.fenced + np.minimum(writer, self.warps - 1)
            open_ = (writer < self.warps) & (state == VALID) & ~self.copied.take(g)
            open_ &= clock > self.know.reshape(-1).take(at)
            self._unfenced(open_, g, warp[:, None], lane, writer)
            if open_.any():
                row, col = (int(x[0]) for x in np.nonzero(open_))
                what = "overwrites in the asynchronous proxy what an ordinary store wrote, with no proxy fence after it"
                place = int(g[row, col])
                out.append(Defect("proxy-fence", row, int(self.write_inst[place]) >> LANES, what, place))
        code = (own << LANES)[:, None] | lane
        for kind in (self.reads, self.strong_reads):
            out += self._before(kind, g, warp, own, "overwrites what {} reads", code) if kind is not None else []
        self.state[g] = PENDING
        self.write_inst[g] = pc << LANES | ANY
        if span or self.spans:
            self.span[g] = span
            self.spans.add(span)
        self.copied[g] = False
        self.atomic[g] = False
        return out

    def arrived(self, g: Array, column: int, clock: int) -> None:
        """A bulk copy has written granules: they belong to an mbarrier's phase."""
        self.state[g] = VALID
        self.writer[g] = column
        self.write_clock[g] = clock
