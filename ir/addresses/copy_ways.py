"""The ways to cut a tile for its cooperative copy to shared memory, and what each costs beside its accesses to LDS.

In: the tile's extents, the array's widest vector, the threads. Out: `CopyWay`s, the copy as a map of bits, clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from wavedsl.ir.addresses.direct_copy import LOAD_ISSUES
from wavedsl.ir.layouts.bits import Bits, spec
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target


@dataclass(frozen=True)
class CopyWay:
    """One way to cut a tile for its copy and to lay it down.

    `fast`: the dimension that is contiguous in shared memory. A thread copies vectors of `vector` elements, `deep` of
    them one below the other as a block that it transposes in registers. `across`: vectors that neighbouring lanes hold
    side by side in a row, before the lanes go on to the next row (0: the whole row). `linear`: bytes per lane of copies
    that pass by the registers, or 0.
    """

    fast: str
    vector: int
    deep: int = 1
    across: int = 0
    linear: int = 0

    def narrower(self, extent: int, es: int) -> list[CopyWay]:
        """This way with fewer lanes side by side in a row of `extent` elements, `SEGMENT` bytes of it or more."""
        columns = extent // self.vector
        halves = [columns >> i for i in range(1, columns.bit_length())] if columns & (columns - 1) == 0 else []
        return [replace(self, across=n) for n in halves if n * self.vector * es >= SEGMENT]


@dataclass(frozen=True)
class Spread:
    """How the threads of a copy lie on the tile, in vectors: `across` side by side in a row, then `down` of them (in
    blocks) below each other, then `beside` such panels; `panels` and `blocks` count what a thread copies of them."""

    across: int
    down: int
    beside: int
    panels: int
    blocks: int


def spread(columns: int, height: int, threads: int, way: CopyWay) -> Spread | None:
    """The threads on a tile of `height` rows of `columns` vectors; None where that is no whole number of rounds."""
    across = way.across or columns
    rows = height // way.deep
    down = min(threads // across, rows) if way.across else threads // across
    if not down or columns % across or threads % (across * down) or height % way.deep:
        return None
    beside = threads // (across * down)
    if way.across and (columns // across % beside or rows % down):
        return None
    return Spread(across, down, beside, max(1, columns // across // beside), -(-rows // down))


def copy_bits(
    fast: str, rows: Sequence[str], extents: Mapping[str, int], way: CopyWay, lanes: int, waves: int
) -> Bits | None:
    """The copy as a map e (the block's rows, then the vector), l, w, r → tile coordinates; None where its sizes are no
    powers of two. `fast`: the array's contiguous dimension."""
    vector, deep = way.vector, way.deep
    columns = extents[fast] // vector
    height = prod(extents[d] for d in rows)
    if len(rows) > 1 or any(n & (n - 1) for n in (columns, vector, waves)) or extents[fast] % vector:
        return None
    found = spread(columns, height, lanes * waves, way)
    if found is None:
        return None
    sources = [f"l{i}" for i in range(lanes.bit_length() - 1)] + [f"w{i}" for i in range(waves.bit_length() - 1)]
    wide = found.across.bit_length() - 1
    beside = len(sources) - (found.beside.bit_length() - 1)
    panels = found.panels.bit_length() - 1
    low = deep.bit_length() - 1
    inner = [f"e{low + i}" for i in range(vector.bit_length() - 1)] + sources[:wide] + sources[beside:]
    inner += [f"r{i}" for i in range(panels)]
    bits = max(0, (height - 1).bit_length())
    own = [f"e{i}" for i in range(low)]
    down = (own + sources[wide:beside] + [f"r{panels + i}" for i in range(bits)])[:bits]
    strings = {fast: " ".join(inner)}
    if rows and down:
        strings[rows[0]] = " ".join(down)
    unused = [s for s in sources if s not in inner and s not in down]
    return spec({d: t for d, t in strings.items() if t}, free=" ".join(unused))


def copy_ways(
    fast: str, memory_fast: str, vector: int, es: int, extents: Mapping[str, int], threads: int, order: Sequence[str]
) -> list[CopyWay]:
    """The ways to cut a tile for its copy through registers, where `vector` elements lie together in the array.

    A tile that is transposed on the way is also cut in blocks of several rows per thread, wherever every thread gets
    whole blocks: the block is transposed in registers, and its columns are stored as pieces. Single elements are stored
    without conflicts where few lanes share a row, so lanes also go down before they have crossed it; `SEGMENT` bytes of
    a row stay together. 16-bit elements are also loaded in narrower vectors: of a small tile each thread has some then,
    and the rows that half a wave meets tell its banks apart where the tile's columns are short.
    """
    ways = [CopyWay(fast, vector)]
    elements = prod(extents.values())
    if fast == memory_fast or es > 2 or len(order) != 2:
        return ways
    ways += ways[0].narrower(extents[memory_fast], es)
    for v in (vector // 2, vector // 4) if es == 2 else ():
        if v * es >= 4:
            single = CopyWay(fast, v)
            ways += [single, *single.narrower(extents[memory_fast], es)]
    for deep in (2, 4, 8):
        v = vector
        while v >= 4 // es:
            if deep * es >= 4 and elements % (v * deep * threads) == 0:
                ways.append(CopyWay(fast, v, deep))
                break
            v //= 2
    return ways


def register_blocks(fast: str, vector: int, share: int) -> list[CopyWay]:
    """Blocks of 32-bit words of which a thread's `share` of a tile is a whole number: vectors of up to `vector` words
    of four or two rows, whose columns are stored as vectors along `fast`. To transpose one only names its registers
    anew."""
    found = [CopyWay(fast, v, deep) for v, deep in ((4, 4), (2, 4), (4, 2), (2, 2), (1, 4)) if v <= vector]
    return [way for way in found if share and share % (way.vector * way.deep) == 0]


SEGMENT = 64
"""Bytes of a row that lanes fetch together, however they are spread over the tile: a vector cache's shortest line."""


SINGLE_LOAD = 2
"""Issue slots that a load is worth whose 16-bit elements are stored one by one, beside as many stores. By the clocks of
all tiles of `benchmarks/tile_clocks.py --every` on gfx90a and gfx942: with `LOAD_ISSUES` 8 of 510 take 1 to 16 % more
and none takes less; with 0, 56 take up to 26 % more."""


def transposing_clocks(target: Target, es: int, elements: int, vector: int, deep: int) -> int:
    """Issue clocks that one thread's share of a tile costs beside its stores: loads, and byte permutations per word.

    A word of two 16-bit elements is one permutation of two loaded words; one of four bytes takes two. Single bytes are
    shifted down first, halves of words are not. Words of one element are none.
    """
    issue = target.clock_unit
    loads = elements // vector
    weight = SINGLE_LOAD if es == 2 and deep == 1 else LOAD_ISSUES
    words = elements * es // 4
    single = elements - words if es == 1 else 0
    permuted = words * (2 if es == 1 else 1) if deep > 1 and es < 4 else single
    return issue * (weight * loads + permuted)


@dataclass(frozen=True)
class Trip:
    """What a loop's trip keeps busy beside one tile: clocks of a SIMD's matrix unit, and of LDS for all other tiles.
    `slots` of the ring: with one, nothing is read while the tile is stored."""

    products: int
    shared: int
    slots: int

    def clocks(self, shared: int) -> int:
        """The least clocks of a trip in which this tile takes `shared` clocks of LDS."""
        taken = self.shared + shared
        return max(self.products, taken) if self.slots > 1 else self.products + taken


PREFERRED = 2.25
"""How much longer a trip may be by `Trip.clocks` if nothing is computed to transpose a tile: as much as storing single
16-bit elements ever adds, so no loop over those computes anything. That estimate knows no latencies: of 255 tiles the
cheapest way computes in 5 on gfx90a and in 1 on gfx942, and is 0.92 to 1.07 times as long by the cycle model
(docs/design/003-amdgcn.md)."""


def without_arithmetic(found: Sequence[tuple[float, int, bool]], trip: Trip | None) -> int:
    """The number of the way to take, of (cost, clocks of LDS per trip, whether vector instructions prepare the tile):
    the one of least cost, but in a loop of products the cheapest without vector instructions where its trip is at most
    `PREFERRED` times as long. The first of equals."""
    best = min(range(len(found)), key=lambda i: found[i][0])
    free = [i for i, (_, _, computed) in enumerate(found) if not computed]
    if trip is None or not free or not found[best][2]:
        return best
    other = min(free, key=lambda i: found[i][0])
    return other if trip.clocks(found[other][1]) <= PREFERRED * trip.clocks(found[best][1]) else best
