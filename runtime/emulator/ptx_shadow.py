"""What is known about every piece of shared memory: written or not, by whom, who read it since, and who knows of it.

In: accesses and barriers of the executor. Out: defects (`uninitialised-read`, `missing-wait`, `race`). The idea: warps
carry vector clocks; a barrier joins the clocks of those who wait with those who arrive. Each *granule* (the smallest
access of the program) remembers its last writer with that warp's clock, and the clock of the last read by each warp.
Two accesses of different warps, one of them a write, race when the later one's warp does not know the earlier one's
clock.

Lanes of one warp are taken as ordered by program order (the instructions of this table that exchange data within a warp
converge it). Atomic and strong (volatile, relaxed, acquire, release) accesses do not race with each other, and one that
follows another knows what the other's warp did before it. Two warps that write the same value to the same place
without order are not reported: the value is the same in either order. An asynchronous copy leaves its granules
*pending*: nobody may touch them until the issuing thread has waited, from then on they count as written by its warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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
    """

    def __init__(self, ctas: int, warps: int, stride: int, granule: int):
        self.ctas, self.warps, self.granule = ctas, warps, granule
        self.per_cta = stride // granule
        n = ctas * self.per_cta
        self.state = np.zeros(n, np.uint8)
        self.writer = np.zeros(n, np.int64)
        self.write_clock = np.zeros(n, np.int32)
        self.write_inst = np.full(n, -1, np.int32)
        self.atomic = np.zeros(n, np.bool_)
        self.read_clock = np.zeros((n, warps), np.int32)
        self.read_inst = np.full(n, -1, np.int32)
        # know[cta, w, u]: the latest clock of warp u that warp w has synchronised with; the diagonal is w's own clock.
        self.know = np.zeros((ctas, warps, warps), np.int32)
        i = np.arange(warps)
        self.know[:, i, i] = 1
        self._know = self.know.reshape(-1)
        self._diagonal = i

    def granules(self, base: Array, offsets: Array, width: int) -> Array:
        """Granule numbers [rows, k] of accesses of `width` bytes at byte offsets within CTAs `base`."""
        g = base * self.per_cta + offsets // self.granule
        k = max(1, width // self.granule)
        return g[:, None] + np.arange(k) if k > 1 else g[:, None]

    def _unknown(self, g: Array, warp: Array) -> tuple[Array, Array]:
        """Where the last write is by another warp that `warp` (global numbers, [rows, 1]) has not synchronised with."""
        writer = self.writer.take(g)
        known = self._know.take(warp * self.warps + writer)
        return (self.write_clock.take(g) > known) & (writer != warp % self.warps), writer

    def _own_clock(self, warp: Array) -> Array:
        return self._know.take(warp * self.warps + warp % self.warps)

    def read(self, g: Array, warp: Array, pc: int, *, strong: bool = False) -> list[Defect]:
        """Record reads of granules [rows, k] by global warps [rows]; `strong` ones (volatile, relaxed, acquire)
        synchronise.
        """
        if strong:
            self.acquire_writes(g, warp)
        warp = warp[:, None]
        out: list[Defect] = []
        state = self.state.take(g)
        if (state != VALID).any():
            out += self._state_defects(state, g, "reads")
        late, _ = self._unknown(g, warp)
        if late.any():
            late &= state != PENDING
            if late.any():
                row, col = (int(x[0]) for x in np.nonzero(late))
                out.append(Defect("race", row, int(self.write_inst[g[row, col]]), "reads what another warp wrote"))
        self.read_clock.reshape(-1)[g * self.warps + warp % self.warps] = self._own_clock(warp)
        self.read_inst[g] = pc
        return out

    def _state_defects(self, state: Array, g: Array, verb: str) -> list[Defect]:
        out = []
        if verb == "reads" and (state == EMPTY).any():
            row = int(np.nonzero((state == EMPTY).any(axis=1))[0][0])
            out.append(Defect("uninitialised-read", row, -1, "reads shared memory that nothing has written"))
        pending = state == PENDING
        if pending.any():
            row, col = (int(x[0]) for x in np.nonzero(pending))
            what = f"{verb} shared memory that an asynchronous copy has not been waited for"
            out.append(Defect("missing-wait", row, int(self.write_inst[g[row, col]]), what))
        return out

    def acquire_writes(self, g: Array, warp: Array) -> None:
        """A strong or atomic access sees the last strong or atomic write, and with it what its warp had done until
        then.
        """
        warp = warp[:, None]
        known = self.atomic.take(g)
        if known.any():
            index = np.broadcast_to(warp * self.warps, g.shape) + self.writer.take(g)
            clocks: Array = self.write_clock.take(g)
            np.maximum.at(self._know, index[known], clocks[known])

    def write(
        self,
        g: Array,
        warp: Array,
        pc: int,
        same: Array | None,
        *,
        pending: bool = False,
        atomic: bool = False,
        strong: bool = False,
    ) -> list[Defect]:
        """Record writes of granules [rows, k]. `same` [rows]: the write left memory as it was (None: not known).

        Writes of one instruction that disagree are the caller's to find: it sees the values.
        """
        warp = warp[:, None]
        out: list[Defect] = []
        state = self.state.take(g)
        if atomic:
            out += self._state_defects(state, g, "reads")
        elif (state == PENDING).any():
            out += self._state_defects(state, g, "writes")
        late, _ = self._unknown(g, warp)
        if late.any():
            if atomic or strong:
                late &= ~self.atomic.take(g)
            if same is not None:
                late &= ~same[:, None]
            late &= state != PENDING
            if late.any():
                row, col = (int(x[0]) for x in np.nonzero(late))
                out.append(Defect("race", row, int(self.write_inst[g[row, col]]), "overwrites what another warp wrote"))
        own = warp % self.warps
        if self.warps > 1 and not (atomic or strong):
            reads = self.read_clock.take(g, axis=0)
            known = self.know.reshape(-1, self.warps).take(warp[:, 0], axis=0)
            unseen = reads > known[:, None, :]
            if unseen.any():
                unseen &= self._diagonal != own[:, :, None]
                if unseen.any():
                    row, col = (int(x[0]) for x in np.nonzero(unseen.any(axis=2)))
                    out.append(
                        Defect("race", row, int(self.read_inst[g[row, col]]), "overwrites what another warp reads")
                    )
        self.writer[g] = np.broadcast_to(own, g.shape)
        self.write_clock[g] = np.broadcast_to(self._own_clock(warp), g.shape)
        self.write_inst[g] = pc
        self.atomic[g] = atomic or strong
        self.state[g] = PENDING if pending else VALID
        return out

    def settle(self, g: Array, warp: Array) -> None:
        """The issuing threads have waited for their copies: the granules are written as of now."""
        warp = warp[:, None]
        self.state[g] = VALID
        self.write_clock[g] = np.broadcast_to(self._own_clock(warp), g.shape)

    # ------------------------------------------------------------------------------------------------ barriers

    def barrier_all(self) -> None:
        """Every warp of every CTA has met every other of its CTA."""
        joined = self.know.max(axis=1)
        self.know[:] = joined[:, None, :]
        self.know[:, self._diagonal, self._diagonal] += 1

    def arrive(self, into: Array, warps: Array) -> None:
        """Global warps `warps` arrive: their knowledge goes into `into` [ctas, warps], and a new epoch of theirs
        begins.
        """
        cta, w = warps // self.warps, warps % self.warps
        np.maximum.at(into, cta, self.know[cta, w])
        self.know[cta, w, w] += 1

    def acquire(self, source: Array, warps: Array) -> None:
        """Global warps `warps` learn what a completed barrier gathered."""
        cta, w = warps // self.warps, warps % self.warps
        self.know[cta, w] = np.maximum(self.know[cta, w], source[cta])
