"""Output tiles whose loops have different trips, as under a causal mask: in which order workgroups take them.

In: a graph whose loops have bounds, tiles along the grid's axes, a target. Out: an `Uneven` for the `TileOrder`, or
None where trips do not depend on the tile.

Each workgroup has a fixed share of the tiles. In the natural order shares differ: causal attention of 2048 queries in
tiles of 128 gives one of 132 workgroups 1.26 times the mean (head size 128), or 1.7 times (256). So tiles come longest
first, and are dealt forth and back: in every other round workgroup i takes what W - 1 - i would. Two rounds are then
worth the same to each; the last round, which may be short, has the shortest tiles. Whether the first round or the
second goes back decides who has those, workgroups that had longer tiles than others in the round before, or shorter.

Tiles of equal length differ along the other axes (heads, batches), and have operands of their own. `together` of those
go through all lengths before the next ones begin, so that what they read stays in L2; the fewer, the less even. Both
are weighed: the clocks of the largest share, and those of what comes from memory, of which the fewer count little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.dataflow.graph import Graph, Node, loop_bounds
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.quick_dataclass import dataclass

if TYPE_CHECKING:
    from wavedsl.ir.kernel.builder import Builder

MOST_TILES = 1 << 16
"""Tiles up to which shares are counted one by one; with more of them they are even enough."""
MOST_WHOLE = 16
"""Numbers of tiles that fill whole rounds, up to which all are tried; of more some."""
BESIDE = 0.03
"""Part of the clocks of what comes from memory that counts although products take longer: it keeps memory and its
power busy, and tiles of one length begin together. An assumption: it decides between orders that are as even as each
other within a hundredth or two."""
L2_SHARE = 0.5
"""Part of L2 that operands of tiles that go together may fill; the rest is for what else is on its way."""


@dataclass(frozen=True)
class Uneven:
    """`last`: whether the last tile along the first grid axis is the longest, else the first is. `together`: tiles of
    equal length, along the other axes, that go through all lengths together; None: all of them. `back`: whether the
    first round is dealt back and the second forth, not the other way round."""

    last: bool
    together: int | None = None
    back: bool = False

    def describe(self) -> str:
        some = "all others" if self.together is None else f"{self.together} of the others"
        return f"longest first, {some} together, dealt {'back and forth' if self.back else 'forth and back'}"

    def numbers(self, b: Builder, number: Any, counts: Sequence[Any]) -> list[Any]:
        """The tile's number along each axis from its place in the order. `counts`: tiles along each, ints or values."""
        first, across, outer = (*counts, 1, 1)[:3]
        others = _times(b, across, outer)
        if self.together is None:
            rank, other = b.udiv(number, others), b.urem(number, others)
        else:
            block = b.udiv(number, _times(b, first, self.together))
            inside = b.sub(number, b.mul(block, _times(b, first, self.together)))
            start = b.mul(block, self.together)
            whole = isinstance(others, int) and others % self.together == 0
            height = self.together if whole else b.min_s(b.sub(_value(b, others), start), self.together)
            rank, other = b.udiv(inside, height), total(b, [start, b.urem(inside, height)])
        along = b.sub(b.sub(_value(b, first), 1), rank) if self.last else rank
        return [along, b.urem(other, across), b.udiv(other, across)][: len(counts)]


def dealt(b: Builder, number: Value, own: Any, workgroups: Any, numbers: Any, back: bool = False) -> Value:
    """The number that workgroup `own` takes where it would take `number` of so many `numbers` in equal steps; `back` as
    in `Uneven`."""
    start = b.sub(number, own)
    other = b.cmp("eq" if back else "ne", b.and_(b.udiv(start, workgroups), 1), 0)
    whole = b.cmp("sle", b.add(start, workgroups), numbers)
    mine = b.select(other, b.select(whole, b.sub(b.sub(_value(b, workgroups), 1), own), own), own)
    return b.min_s(b.add(start, mine), b.sub(_value(b, numbers), 1))


def _times(b: Builder, x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return b.mul(_value(b, x), y)


def _value(b: Builder, x: Any) -> Any:
    return b.i32(x) if isinstance(x, int) else x


def longest_last(graph: Graph, first: str) -> bool | None:
    """Whether tiles further along the dimension `first` have longer loops (True) or shorter ones (False); None where
    loops do not say, or the two ends move together."""
    found: set[bool] = set()
    for n in graph.all_nodes():
        if n.op == "iterate":
            start, stop = loop_bounds(n)
            ends = [_sign(x, first) for x in (start, stop)]
            if None in ends or (ends[0] and ends[1]):
                return None
            found |= {stop_moves == 1 for stop_moves in (-(ends[0] or 0), ends[1] or 0) if stop_moves}
    return found.pop() if len(found) == 1 else None


def _sign(n: Node | None, dim: str) -> int | None:
    """1, -1 or 0 as a bound grows, shrinks or stays with the tile along `dim`; None: not known."""
    if n is None or n.op in ("size", "constant", "argument"):
        return 0
    if n.op in ("tile_start", "tile_stop"):
        return int(str(n.attrs["dim"]) == dim)
    if n.op not in ("add", "sub", "maximum", "minimum", "cast"):
        return None
    signs = [_sign(x, dim) for x in n.inputs]
    if None in signs:
        return None
    if n.op == "sub":
        signs[1] = -(signs[1] or 0)
    moving = {s for s in signs if s}
    return None if len(moving) > 1 else moving.pop() if moving else 0


@dataclass(frozen=True)
class Work:
    """What tiles cost. `clocks`: of the matrix instructions of the longest tile. `bytes`: what all tiles of one place
    along the other axes read. `l2`: bytes of L2; `rate`: bytes per clock from memory."""

    clocks: float
    bytes: float
    l2: float
    rate: float


def best_dealing(lengths: int, others: int, workgroups: int, work: Work) -> tuple[int | None, bool]:
    """`Uneven.together` and `Uneven.back` for `lengths` tiles along the first axis and `others` along the rest."""
    if lengths * others > MOST_TILES or not work.rate or others <= 1:
        return None, False

    def clocks(way: tuple[int, bool]) -> float:
        g, back = way
        share = largest_share(lengths, others, workgroups, g, back) * work.clocks
        once = others * work.bytes
        rounds = lengths * others / workgroups
        again = rounds * min(g, workgroups) * work.bytes / 2
        memory = (once if g * work.bytes <= L2_SHARE * work.l2 else max(once, again)) / work.rate
        return max(share, memory) + BESIDE * min(share, memory)

    sizes = sorted(set(_sizes(lengths, others, workgroups)), reverse=True)
    best, back = min(((g, back) for g in sizes for back in (False, True)), key=clocks)
    return None if best >= others else best, back


def _sizes(lengths: int, others: int, workgroups: int) -> Iterator[int]:
    """Numbers of tiles to take together: all, powers of two, what fills whole rounds, and pairs of rounds."""
    yield others
    whole = workgroups // gcd(workgroups, lengths)
    yield from range(whole, others, whole * -(-others // (whole * MOST_WHOLE)))
    size = 1
    while size < others:
        yield size
        size *= 2
    for rounds in range(2, 10, 2):
        size = round(rounds * workgroups / lengths)
        if 0 < size < others:
            yield size


def largest_share(lengths: int, others: int, workgroups: int, together: int, back: bool = False) -> float:
    """Work of the workgroup that has most, in longest tiles; a tile's is taken to grow evenly along the axis."""
    sizes = [min(together, others - at) for at in range(0, others, together)]
    falling = np.arange(lengths, 0, -1)
    tiles = np.concatenate([np.repeat(falling, size) for size in sizes])
    rounds = len(tiles) // workgroups
    whole = tiles[: rounds * workgroups].reshape(rounds, workgroups)
    whole[not back :: 2] = whole[not back :: 2, ::-1].copy()
    shares = whole.sum(axis=0)
    rest = tiles[rounds * workgroups :]
    shares[: len(rest)] += rest
    return float(shares.max()) / lengths


def uneven(
    graph: Graph, axes: Sequence[Sequence[Any]], counts: Sequence[int | None], workgroups: int,
    work: Callable[[], Work],
) -> Uneven | None:
    """The order for a graph, where the first grid axis is one dimension on which its loops' trips depend."""
    if len(axes[0]) != 1 or graph.traced is not None:
        return None
    last = longest_last(graph, str(axes[0][0]))
    if last is None:
        return None
    known = [n for n in counts if n is not None]
    if len(known) < len(counts):
        return Uneven(last)
    return Uneven(last, *best_dealing(known[0], prod(known[1:]), workgroups, work()))
