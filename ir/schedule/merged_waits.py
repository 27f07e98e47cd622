"""Which results one wait is for: those that are wanted, and what is estimated to have come by then.

In: queues of accesses on their way, newest first, and what each later instruction of a block wants. Out: how many
accesses may be left. `codegen/amdgcn/waits.py` writes waits down by it, `body_waits.py` knows by it what a schedule's
text will wait for.

(MERGE) A wait that costs nothing more may be stricter than it must be: where results that the block will want as well
are estimated to have arrived by then, they are waited for together, and their own waits are not needed. The estimate
(`WaitClock`) counts what each unit takes for the whole workgroup; arrivals within `SLACK_CLOCKS` count as arrived,
because the latencies are not known better. What was loaded together comes from vector memory one after the other: where
there is something to do with the first results, the others have waits of their own. In loops of matrix products it
comes more slowly, and one wait is for few results: what is stored for the next trip frees registers for the next load,
and where none is on its way memory is idle. (Matrix-vector products by multiply-adds keep nothing for the next trip: by
the text their clocks moved by -1.4 to +1.6 % with it.)
"""

from __future__ import annotations

from collections.abc import Sequence

SLACK_CLOCKS = 16
"""Clocks by which a merged wait may come early: one LDS access."""
ISSUE_CLOCKS, FETCH_CLOCKS = 4, 16
"""Clocks between two instructions of a wave, and in which vector memory gives a wave 16 bytes a lane."""
SLOW = 2
"""How many times as long that takes in loops of products, as far as waits count on it: units share what lies behind
their ports."""
LONG_PRODUCTS = 2.25
"""Clocks of a trip's products, as a factor of its loads', beyond which the former leave these time enough."""
FEW = 4
"""Operations of such a loop on their way that memory is not to have fewer of; of more, half may be waited for at
once."""
LONG_AGO = -4096
"""Clocks after which an operation has surely completed."""

Access = tuple[int, int]
"""What an access writes, as bits, and the clock of its arrival."""


def fetch_clocks(products: int, loads: int) -> int:
    """Clocks in which memory gives a wave 16 bytes a lane, as far as waits count on it, where a loop's products keep a
    SIMD's matrix unit busy for `products` clocks a trip, and its loads vector memory for `loads`."""
    return FETCH_CLOCKS * (SLOW if 0 < products <= LONG_PRODUCTS * loads else 1)


class WaitClock:
    """When instructions issue and results arrive: a wave that shares LDS and vector memory with those of its
    workgroup. `plain`: bits of registers; what else accesses write, no wait is merged for."""

    def __init__(self, waves: int, simds: int, fetch: int, plain: int):
        self.waves, self.fetch, self.plain = waves, fetch, plain
        self.beside = -(-waves // simds)
        self.now = 0
        self.matrix = 0
        self.memory = {"vm": 0, "lds": 0, "scalar": 0}
        self.turn = LONG_AGO
        """When the oldest result of vector memory that nobody has waited for can come."""

    def multiply(self, clocks: int) -> None:
        """Pass a matrix instruction."""
        start = max(self.now, self.matrix)
        self.matrix = start + clocks * self.beside
        self.now = start + ISSUE_CLOCKS

    def access(self, queue: str, clocks: int, latency: int) -> int:
        """Pass an access that keeps its unit busy for so long; the clock at which its result arrives."""
        start = self.now
        self.now = start + ISSUE_CLOCKS
        if queue == "vm":
            clocks = clocks * self.fetch // FETCH_CLOCKS
        self.memory[queue] = max(start, self.memory[queue]) + clocks * self.waves
        return max(start + latency, self.memory[queue])

    def wait(
        self, vm: list[Access], lgkm: list[Access], need_vm: int, need_lgkm: int, wants: Sequence[int], at: int,
        loads: bool,
    ) -> tuple[int, int]:  # fmt: skip
        """Wait in front of instruction `at` of a block, each of which wants `wants`; it needs no more than so many
        accesses left (-1: does not care). What it waits for, and takes from the queues. `loads`: whether it is an
        access to vector memory."""
        came = LONG_AGO
        apart = self.fetch * self.waves
        if need_vm >= 0:
            came = max(vm[need_vm][1], self.turn + (len(vm) - 1 - need_vm) * apart)
            self.now = max(self.now, came)
        if need_lgkm >= 0:
            self.now = max(self.now, lgkm[need_lgkm][1])
        if need_vm > 0:
            self.turn, oldest = came, need_vm
            together = len(vm) if self.fetch == FETCH_CLOCKS else max(0, len(vm) - FEW) // 2
            need_vm = self._merged(vm, need_vm, wants, at, came, apart, 0 if loads else together)
            self.turn += (oldest - need_vm + 1) * apart
        if need_lgkm > 0:
            need_lgkm = self._merged(lgkm, need_lgkm, wants, at, self.now, 0, len(wants))
        if need_vm >= 0:
            del vm[need_vm:]
        if need_lgkm >= 0:
            del lgkm[need_lgkm:]
        return need_vm, need_lgkm

    def _merged(
        self, queue: list[Access], need: int, wants: Sequence[int], at: int, came: int, apart: int, together: int
    ) -> int:
        """The strictest count, at most `need`, that is due by now and spares a later wait of the block. The result that
        is waited for came at `came`, the next ones come `apart` clocks one after the other; `together` of those of
        accesses issued together are due all the same if they are read at once: to wait for them later would gain no
        more than a wait costs. None if what came first is stored to memory: the store then is on its way while the rest
        is still fetched."""
        by = self.now + SLACK_CLOCKS
        at_once = 0
        for wanted in wants[at : at + SLACK_CLOCKS // ISSUE_CLOCKS]:
            at_once |= wanted & self.plain
        due = need
        while due > 0 and queue[due - 1][1] <= by:
            in_turn = came + (need - due + 1) * apart
            if in_turn > by and (not queue[due - 1][0] & at_once or need - due >= together):
                break
            due -= 1
        if due == need:
            return need
        younger = _all(queue[due:need]) & self.plain
        best = need
        for wanted in wants[at + 1 :]:
            if wanted & younger:
                best = min(best, next(i for i, (m, _) in enumerate(queue[due:need], due) if m & wanted & self.plain))
                younger = _all(queue[due:best]) & self.plain
                if not younger:
                    break
        return best


def _all(queue: Sequence[Access]) -> int:
    out = 0
    for m, _ in queue:
        out |= m
    return out
