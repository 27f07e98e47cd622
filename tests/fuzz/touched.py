"""Who touches which byte of memory in a run of a text, and between which barriers: whether a barrier, a fence or the
memory access beside it could come first.

In: a compiled kernel and its arguments. Out: per line of the text what it touches, and by whom, when. *When* is how
many barriers a wave has come through, and of lanes how many meetings of their warp. An access that changes places with
a barrier is carried out between other barriers from then on; it may if nobody of those who meet there touches its
places between these, one of the two writing another value. It may change places with a fence if nobody of another
workgroup touches its bytes at all. This is of one run's addresses, and shares nothing with the emulators' findings but
the calls in which they are told of accesses and barriers.

Texts whose waves meet in other ways than all of a workgroup, or all of a warp, are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from wavedsl.runtime.emulator.amdgcn.global_memory import WatchedMemory as OfWaves
from wavedsl.runtime.emulator.amdgcn.lds import LdsShadow
from wavedsl.runtime.emulator.global_page import COLUMN, DOMAIN
from wavedsl.runtime.emulator.ptx.copies import AsyncCopies
from wavedsl.runtime.emulator.ptx.global_memory import WatchedMemory as OfWarps
from wavedsl.runtime.emulator.ptx.memory import Access
from wavedsl.runtime.emulator.ptx.shadow import SharedShadow

import wavedsl as wd

Array = Any
OTHER_MEETINGS = re.compile(
    r"bar\.(sync|red)\S*\s+(?!0\s*;)\S|bar\.arrive|barrier\.cl|mbarrier|bar\.warp\.sync\s+(?!\s|0xffffffff|-1)|"
    r"wgmma|cp\.async\.bulk|cp\.async\.mbarrier"
)
ATOMIC = object()
CHANGED, READ = -1, -2
"""What is written by an atomic, or is not known; nothing, by a read."""


class Touches(NamedTuple):
    """Of one execution of a line, by place: the workgroup; thread (AMD: wave) and warp in it; byte of global memory or
    -1 - a piece of shared memory; the byte written, CHANGED or READ; barriers of the workgroup, and meetings of the
    warp, before it begins, and before it ends."""

    group: Array
    who: Array
    warp: Array
    place: Array
    put: Array
    since: Array
    until: Array
    met: Array
    left: Array


class Touched:
    """By line of the text (from 0) what it touches. `lanes`: whether those of a warp have to meet."""

    def __init__(self, lanes: bool) -> None:
        self.lanes = lanes
        self.lines: dict[int, list[Touches]] = {}
        self._joined: Touches | None = None

    def note(self, line: int, size: int, address: Array, words: Any, *rest: Array) -> None:
        """`rest`: group, who, warp, since, until, met, left of each access. `words` [k, n]: what is written, ATOMIC, or
        None.
        """
        n = len(address)
        if not n:
            return
        where = (np.asarray(address, np.int64)[:, None] + np.arange(size)).reshape(-1)
        put = np.full(n * size, READ if words is None else CHANGED)
        if words is not None and words is not ATOMIC:
            put = np.ascontiguousarray(words.T).view(np.uint8).reshape(n, -1)[:, :size].astype(np.int64).reshape(-1)
        group, who, warp, *when = (np.repeat(np.broadcast_to(x, n), size).astype(np.int64) for x in rest)
        self.lines.setdefault(line, []).append(Touches(group, who, warp, where, put, *when))

    def _all(self, line: int | None = None) -> Touches:
        chosen = self.lines.values() if line is None else [self.lines.get(line, [])]
        every = [x for found in chosen for x in found]
        empty = np.zeros(0, np.int64)
        return Touches(*(np.concatenate([empty, *(x[i] for x in every)]) for i in range(len(Touches._fields))))

    def alone(self, line: int) -> bool:
        """Whether nobody of another workgroup touches what a line does, one of them writing."""
        mine, every = self._all(line), self._every()
        other = every.place >= 0
        return not _clash(mine, every, lambda x: (x.place,), lambda i, j: mine.group[i] != every.group[j], other)

    def may_move(self, line: int, by: int, whole: bool) -> bool:
        """Whether what a line does may come one barrier later (`by` 1) or earlier (-1), one of the `whole` workgroup or
        of each warp.
        """
        mine, every = self._all(line), self._every()
        moved = mine._replace(since=mine.since + by, until=mine.until + by, met=mine.met + by, left=mine.left + by)
        steps = int((every.until - every.since).max(initial=0)), int((every.left - every.met).max(initial=0))

        def at(begin: str, end: str, step: int) -> Callable[[Touches], tuple[Array, ...]]:
            def keys(x: Touches) -> tuple[Array, ...]:
                if x is moved:
                    return x.group, x.place, getattr(x, begin)
                return x.group, x.place, np.minimum(getattr(x, begin) + step, getattr(x, end))

            return keys

        for step in range(steps[0] + 1) if whole else ():
            if _clash(moved, every, at("since", "until", step), lambda i, j: mine.warp[i] != every.warp[j]):
                return False
        for step in range(steps[1] + 1) if self.lanes else ():
            beside = lambda i, j: (mine.warp[i] == every.warp[j]) & (mine.who[i] != every.who[j])  # noqa: E731
            if _clash(moved, every, at("met", "left", step), beside):
                return False
        return True

    def _every(self) -> Touches:
        if self._joined is None:
            self._joined = self._all()
        return self._joined


def _clash(
    mine: Touches, every: Touches, keys: Callable[[Touches], tuple[Array, ...]],
    apart: Callable[[Array, Array], Array], only: Array | None = None,
) -> bool:  # fmt: skip
    """Whether two accesses agree in their keys, are by others, and one of them writes another value."""
    if not len(mine.place):
        return False
    key = np.zeros(len(mine.place), np.int64)
    theirs = np.zeros(len(every.place), np.int64)
    known = np.ones(len(every.place), np.bool_) if only is None else only.copy()
    for a, b in zip(keys(mine), keys(every)):  # as few numbers as there are, so that they fit together
        values, inverse = np.unique(a, return_inverse=True)
        at = np.minimum(np.searchsorted(values, b), len(values) - 1)
        known &= values[at] == b
        key, theirs = key * len(values) + inverse.reshape(-1), theirs * len(values) + at
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(theirs[rows], kind="stable")]
    first, last = (np.searchsorted(theirs[rows], key, side) for side in ("left", "right"))
    for begin in range(0, len(key), 1 << 16):
        part = slice(begin, begin + (1 << 16))
        count = (last - first)[part]
        i = np.repeat(np.arange(len(key))[part], count)
        step = np.arange(len(i)) - np.repeat(np.cumsum(count) - count, count)
        j = rows[np.repeat(first[part], count) + step]
        one, other = mine.put[i], every.put[j]
        bad = ((one != other) | (one == CHANGED)) & ~((one == READ) & (other == READ))
        if (bad & apart(i, j)).any():
            return True
    return False


def touched(compiled: Any, args: list[Any]) -> Touched | None:
    """What a run of a text touches; None where it cannot be told."""
    text = compiled.asm
    if OTHER_MEETINGS.search(text) or re.search(r"buffer_load\S*.*\blds\b", text):
        return None
    of = _OfWaves() if compiled.target.startswith("gfx") else _OfWarps()
    try:
        with ExitStack() as stack:
            for (kind, name), instead in of.patches().items():
                stack.enter_context(mock.patch.object(kind, name, instead))
            compiled.emulate(*args)
    except (_Unknown, wd.WaveError):
        return None
    return of.out


class _Unknown(Exception):
    """Copies whose bytes are not told apart here."""


def _unknown(*args: Any) -> Iterator[None]:
    raise _Unknown


def _after(kind: type, name: str, then: Callable[..., None]) -> tuple[tuple[type, str], Callable[..., Any]]:
    """A method that does what it did, and then something else."""
    method = getattr(kind, name)

    def both(*args: Any, **options: Any) -> Any:
        found = method(*args, **options)
        then(*args, **options)
        return found

    return (kind, name), both


class _OfWaves:
    """AMD: a wave's lanes are in order, barriers are the workgroup's."""

    def __init__(self) -> None:
        self.out = Touched(lanes=False)
        self.batch = 0

    def patches(self) -> dict[tuple[type, str], Callable[..., Any]]:
        def new_batch(*args: Any) -> None:
            self.batch += 1

        return dict((
            _after(OfWaves, "new_batch", new_batch),
            ((OfWaves, "read"), lambda w, st, i, at, n, active, strong: self.memory(w, st, i, at, n, active, None)),
            ((OfWaves, "write"), lambda w, st, i, at, n, active, put, _: self.memory(w, st, i, at, n, active, put)),
            ((OfWaves, "atomic"), lambda w, st, i, at, n, active, *x: self.memory(w, st, i, at, n, active, ATOMIC)),
            ((OfWaves, "scalar"), lambda w, st, i, at, n, good: self.scalar(w, st, i, at, n, good)),
            _after(LdsShadow, "read", lambda x, st, i, at, n, active: self.lds(x, st, i, at, n, active, None)),
            _after(LdsShadow, "write", lambda x, st, i, at, n, active, *_: self.lds(x, st, i, at, n, active, ATOMIC)),
            _after(LdsShadow, "atomic", lambda x, st, i, at, n, active: self.lds(x, st, i, at, n, active, ATOMIC)),
        ))  # fmt: skip

    def memory(self, watch: Any, st: Any, index: int, address: Array, size: int, active: Any, words: Any) -> None:
        codes = watch.waves.base.take(watch._lanes(st, active))
        epoch = _per_lane(st.epoch, st, active)
        self.note(watch.engine, index, size, address, words, codes >> DOMAIN, codes >> COLUMN, epoch)

    def scalar(self, watch: Any, st: Any, index: int, address: Array, size: int, good: Any) -> None:
        chosen = slice(None) if good is None else good
        codes = watch.waves.base.take(watch.rows(st)[chosen])
        epoch = np.broadcast_to(st.epoch, (st.waves,))[chosen]
        self.note(watch.engine, index, size, address[chosen], None, codes >> DOMAIN, codes >> COLUMN, epoch)

    def lds(self, lds: Any, st: Any, index: int, position: Array, size: int, active: Any, words: Any) -> None:
        cells, _ = lds._cells(st, index, position, size, active)
        group = self.batch << 20 | _per_lane(st.wg, st, active)
        wave, epoch = _per_lane(st.wave, st, active), _per_lane(st.epoch, st, active)
        for cell in cells:
            self.note(lds.engine, index, 1, -1 - cell, words, group, wave, epoch)

    def note(
        self, engine: Any, index: int, size: int, at: Array, words: Any, group: Array, wave: Array, when: Array
    ) -> None:
        line = engine.program.lines[index].number - 1
        self.out.note(line, size, at, words, group, wave, wave, when, when, when, when)


def _per_lane(of_waves: Any, st: Any, active: Any) -> Array:
    """A number of each wave, for each active lane."""
    row = np.broadcast_to(of_waves, (st.waves,))
    if active is None:
        return np.repeat(row, 64)
    return np.broadcast_to(row[:, None], active.shape)[active]


class _OfWarps:
    """NVIDIA: warps meet at `bar.sync 0`, their lanes there and at `bar.warp.sync`."""

    def __init__(self) -> None:
        self.out = Touched(lanes=True)
        self.batch = 0

    def patches(self) -> dict[tuple[type, str], Callable[..., Any]]:
        def new_batch(watch: Any) -> None:
            self.batch += 1
            shape = len(watch.m.shadow.state), 2
            self.epoch, self.met = (np.zeros(watch.m.NW, np.int64) for _ in range(2))
            self.issued = np.zeros(shape, np.int64)
            """Of each piece of shared memory, when the copy began that is under way to it: barriers and meetings."""
            self.began = np.zeros((watch.m.T, 2), np.int64)
            """Of each thread, when the copy began that has come."""

        def all_meet(shadow: Any) -> None:
            self.epoch += 1  # (and `lanes_meet` is called)

        def meet(shadow: Any, source: Array, groups: Array, warps: Array) -> None:
            self.epoch[warps] += 1
            self.met[warps] += 1

        def lanes_meet(shadow: Any, warps: Array) -> None:
            self.met[warps] += 1

        arrive = AsyncCopies._arrive

        def arrives(copies: Any, copy: Any) -> None:
            self.began[copy.threads] = self.issued[copy.granules[:, 0]]
            arrive(copies, copy)
            self.places(copy.frm.inst, copy.granules, copy.threads, ATOMIC, True)

        return dict((
            _after(OfWarps, "new_batch", new_batch),
            _after(SharedShadow, "barrier_all", all_meet),
            _after(SharedShadow, "acquire", meet),
            _after(SharedShadow, "lanes_meet", lanes_meet),
            _after(Access, "touch_shared", self.shared),
            ((AsyncCopies, "_arrive"), arrives),
            ((OfWarps, "read"), lambda w, i, pc, at, n, lanes, strong, cache: self.memory(w, i, at, n, lanes, None)),
            ((OfWarps, "write"), lambda w, i, pc, at, n, lanes, put, strong: self.memory(w, i, at, n, lanes, put)),
            ((OfWarps, "atomic"), lambda w, i, pc, at, n, lanes: self.memory(w, i, at, n, lanes, ATOMIC)),
            ((OfWarps, "copy_ends"), lambda w, i, pc, at, n, who, put: self.memory(w, i, at, n, who, None, True)),
            ((OfWarps, "bulk_read"), _unknown), ((OfWarps, "bulk_write"), _unknown),
        ))  # fmt: skip

    def memory(
        self, watch: Any, inst: Any, address: Array, size: int, lanes: Array, words: Any, copied: bool = False
    ) -> None:
        threads = np.arange(watch.m.T) if lanes is None else lanes
        group = watch.warps.base.take(threads >> 5) >> DOMAIN
        self.note(inst.line - 1, size, address, words, group, threads, copied)

    def shared(
        self, access: Any, offset: Array, lanes: Array, same: Array, *, pending: bool = False, atomic: bool = False
    ) -> None:
        m = access.m
        threads = np.arange(m.T) if lanes is None else lanes
        g = m.shadow.granules(m.cta_of[threads], offset, access.width)
        if pending:
            self.issued[g] = np.stack([self.epoch[threads >> 5], self.met[threads >> 5]], axis=1)[:, None]
            return
        self.places(access.inst, g, threads, ATOMIC if access.writes or atomic else None, False)

    def places(self, inst: Any, g: Array, threads: Array, words: Any, copied: bool) -> None:
        group = np.full(len(threads), self.batch)  # (pieces are the batch's)
        for column in range(g.shape[1]):
            self.note(inst.line - 1, 1, -1 - g[:, column], words, group, threads, copied)

    def note(self, line: int, size: int, at: Array, words: Any, group: Array, threads: Array, copied: bool) -> None:
        """`copied`: by copies, which have come."""
        warp = threads >> 5
        epoch, met = self.epoch[warp], self.met[warp]
        since, before = self.began[threads].T if copied else (epoch, met)
        self.out.note(line, size, at, words, group, threads, warp, since, epoch, before, met)
