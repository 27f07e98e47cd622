"""What the waves of a workgroup hold of a reduction or scan, joined through shared memory.

In: cells (tuples of numbers) in the registers of each wave along a dimension. Out: per cell those of all these waves,
in order. The one idea: where lanes hold the same, one of them speaks for all, and the cells of the waves that meet lie
beside each other, so that a load brings those of several waves.

(SHARES) Each wave that takes all that the others left joins what they join as well: 32 waves load 32 times as much as
there is. Where that is more than a second meeting takes, each joins some of the cells and leaves the results in the
places of the first wave's parts, which nobody else reads: `_in_shares`.

Invariant: whoever takes a cell has its loads emitted by then, and no more than `FLYING` words of later ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.kernel.kernel_ir import Value, vector
from wavedsl.ir.lower.cells import Cell
from wavedsl.ir.lower.exchange import order
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.wave_meeting import VECTOR, Meeting, lanes_speak

FLYING = 16
"""Words that a lane has on their way beside those it is joining: all of 32 waves' at once were as many registers as
the row has there that is summed up."""

AGAIN = 512
"""Clocks that a second meeting takes: results are stored, waves wait for each other and load them, and the loads of a
share wait for no other work."""
BYTES = 128
"""What shared memory gives a clock."""
FEW = 4
"""Cells of which fewer are joined by every wave."""


def joined(
    low: Lowering, dim: str, cells: Sequence[Cell], join: Callable[[Cell, Cell], Cell],
    kept: Sequence[int] | None = None, either_way: bool = False,
) -> list[Cell]:  # fmt: skip
    """Join what the waves along `dim` hold, each lane with the same lane of the others, in order of the waves. `kept`
    as in `Meeting`, where lanes that differ in other bits hold the same. `either_way`: two cells are the same joined
    either way round, so that each of two waves need only take the other one's."""
    out = []
    if either_way and low.plans[dim].waves == 2 and not lanes_speak(low.target.wave_size, kept):
        return [join(*pair) for pair in zip(cells, _the_others(low, dim, cells))]
    if _spared(low, dim, cells) > AGAIN:
        return _in_shares(low, dim, cells, join, kept)
    for per_wave in gathered(low, dim, cells, kept):
        found: Cell | None = None
        for cell in per_wave:
            found = cell if found is None else join(found, cell)
        assert found is not None
        out.append(found)
    return out


def gathered(
    low: Lowering, dim: str, cells: Sequence[Cell], kept: Sequence[int] | None = None
) -> Iterator[Iterator[Cell]]:
    """Per cell, what the same lane of every wave along `dim` holds, in order of the waves: to be taken one after the
    other, for loads are emitted as their cells are taken."""
    b = low.b
    count, waves = low.plans[dim].waves, low.partition.waves
    meeting = Meeting.of(low.target.wave_size, count, waves, kept)
    met = _Met(low, dim, [v for cell in cells for v in cell], meeting)
    b.barrier()  # readers of what was there before are done
    met.store()
    b.barrier()
    first = 0
    for cell in cells:
        numbers = range(first, first + len(cell))
        first += len(cell)
        yield (tuple(met.take(i, w) for i in numbers) for w in range(met.meeting.count))


def _spared(low: Lowering, dim: str, cells: Sequence[Cell]) -> float:
    """Clocks of shared memory that (SHARES) spares a workgroup: of each word a wave makes a load of its share's, and
    one of the result, where it made one of every wave's. (What a vector brings of several waves, phases of lanes take
    as long for.) Of a few cells the waves that join them would do so alone."""
    words = sum(v.type.words for cell in cells for v in cell)
    spared = low.partition.waves * words * (low.plans[dim].waves - 2) * low.target.wave_size * 4 / BYTES
    return spared if len(cells) >= FEW else 0.0


def _in_shares(
    low: Lowering, dim: str, cells: Sequence[Cell], join: Callable[[Cell, Cell], Cell], kept: Sequence[int] | None
) -> list[Cell]:
    """`joined` where each wave joins as many of the cells as any other, or none, and takes the others' results."""
    b, waves, parts = low.b, low.plans[dim].waves, len(cells[0])
    share = next(n for n in range(-(-len(cells) // waves), len(cells) + 1) if len(cells) % n == 0)
    meeting = Meeting.of(low.target.wave_size, waves, low.partition.waves, kept)
    met = _Met(low, dim, [v for cell in cells for v in cell], meeting)
    b.barrier()  # readers of what was there before are done
    met.store()
    b.barrier()
    owners = len(cells) // share
    with b.if_(b.true if owners == waves else b.cmp("slt", met.digit, owners)) as branch:
        met.begin_share(share * parts)
        for i in range(share):
            found: Cell | None = None
            for w in range(waves):
                cell = tuple(met.take(i * parts + k, w) for k in range(parts))
                found = cell if found is None else join(found, cell)
            assert found is not None
            if met.meeting.kept is not None:
                order(low)  # lanes have what the one that speaks writes over
            for k, v in enumerate(found):
                met.leave(i * parts + k, v)
        branch.yield_()
    met.begin_share(0)
    b.barrier()
    numbers = iter(range(len(met.values)))
    return [tuple(met.load(next(numbers), 0, met.first) for _ in cell) for cell in cells]


def _the_others(low: Lowering, dim: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Per cell, what the same lane of the other one of two waves along `dim` holds."""
    b = low.b
    values = [v for cell in cells for v in cell]
    met = _Met(low, dim, values, Meeting.of(low.target.wave_size, 2, low.partition.waves, None))
    b.barrier()  # readers of what was there before are done
    met.store()
    b.barrier()
    digit = b.sub(1, met.digit)
    wave = b.add(met.first, b.mul(digit, met.divisor))
    loaded: deque[Value] = deque()
    ahead = 0
    for cell in cells:
        while len(loaded) < len(cell) or (ahead < len(values) and sum(v.type.words for v in loaded) < FLYING):
            loaded.append(met.load(ahead, digit, wave))
            ahead += 1
        yield tuple(loaded.popleft() for _ in cell)


class _Met:
    """Values that waves leave for each other. `take` gives one wave's, loaded no earlier than `FLYING` says."""

    def __init__(self, low: Lowering, dim: str, values: Sequence[Value], meeting: Meeting):
        self.low, self.values, self.meeting = low, values, meeting
        self.first, self.divisor = low.waves_along(dim)
        self.digit = low.digit(dim)
        self.at = low.room.meeting.next()
        self.starts: list[int] = []
        size = 0
        for v in values:
            self.starts.append(size)
            size += meeting.bytes(v.type.words) // (meeting.waves if meeting.kept is None else 1)
        self.size = size
        self.pending = deque((i, w, n) for i, v in enumerate(values) for w, n in self._runs(v.type.words))
        self.loaded: dict[tuple[int, int], Value] = {}
        self.flying = 0
        self.speaks: Value | None = None
        """Which lanes leave what they hold; None: all."""
        self.share: Any = 0
        """Bytes from the places of the first values to those of this wave's share."""

    def store(self) -> None:
        """Leave this wave's values."""
        b = self.low.b
        if self.meeting.kept is not None:
            silent = self.meeting.lanes - 1 & ~sum(1 << x for x in self.meeting.kept)
            self.speaks = b.cmp("eq", b.and_(b.lane(), silent), 0)
        for i, v in enumerate(self.values):
            self._leave(self._place(i, self.digit, b.wave()), v)

    def begin_share(self, count: int) -> None:
        """From here on the first values are those of this wave's share, of so many, which `take` gives; of none: they
        are the first ones again."""
        self.share = scaled(self.low.b, self.digit, self.starts[count]) if 0 < count < len(self.values) else 0
        self.pending = deque(x for x in self.pending if x[0] < count)

    def leave(self, i: int, v: Value) -> None:
        """Leave what is made of a value of all waves in the place of the first one's."""
        self._leave(self._place(i, 0, self.first), v)

    def _leave(self, at: Any, v: Value) -> None:
        b = self.low.b
        b.store_shared(at, b.bitcast(v, vector(v.type.words)), mask=self.speaks, buffer=self.low.room.meeting.buffer)

    def take(self, i: int, wave: int) -> Value:
        """A value as a wave along the dimension left it."""
        while self.pending and ((i, wave) not in self.loaded or self.flying < FLYING):
            self._load(*self.pending.popleft())
        found = self.loaded.pop((i, wave))
        self.flying -= found.type.words
        return found

    def load(self, i: int, digit: Any, wave: Value) -> Value:
        """A value of the wave of this number, which is the `digit`th along the dimension."""
        b, kind = self.low.b, self.values[i].type
        got = b.load_shared(self._place(i, digit, wave), bytes=4 * kind.words, buffer=self.low.room.meeting.buffer)
        return b.bitcast(got, kind)

    def _load(self, i: int, first: int, count: int) -> None:
        """Load a value of `count` waves from the `first` on."""
        b, kind = self.low.b, self.values[i].type
        at = self._place(i, first, b.add(self.first, first * self.divisor))
        got = b.load_shared(at, bytes=4 * kind.words * count, buffer=self.low.room.meeting.buffer)
        for w in range(count):
            part = got if count == 1 else b.slice(got, w * kind.words, kind.words)
            self.loaded[i, first + w] = b.bitcast(part, kind)
        self.flying += kind.words * count

    def _runs(self, words: int) -> list[tuple[int, int]]:
        """(first wave, number of waves) of each load of a value."""
        found, w = [], 0
        while w < self.meeting.count:
            n = 1 if self.meeting.kept is None else max(1, VECTOR // words)
            while w + n > self.meeting.count:
                n //= 2
            found.append((w, n))
            w += n
        return found

    def _place(self, i: int, digit: Any, wave: Value) -> Any:
        """Where a value lies of the wave of this number, which is the `digit`th along the dimension."""
        b, meeting, words = self.low.b, self.meeting, self.values[i].type.words
        if meeting.kept is None:
            lane = scaled(b, b.lane(), words * 4)
            return total(b, [self.at, self.share, lane, scaled(b, wave, self.size), self.starts[i]])
        stride, speakers = meeting.stride(words), 1 << len(meeting.kept)
        apart = self.divisor * meeting.count
        groups = [scaled(b, b.udiv(b.wave(), apart), self.divisor), b.urem(b.wave(), self.divisor)]
        group = scaled(b, total(b, groups), stride * speakers) if meeting.waves > meeting.count else 0
        bits = [scaled(b, b.and_(b.lshr(b.lane(), x), 1), stride << k) for k, x in enumerate(meeting.kept)]
        return total(b, [self.at, self.share, self.starts[i], group, *bits, scaled(b, digit, 4 * words)])


__all__ = ["Cell", "gathered", "joined"]
