"""How matrix-vector products are cut: columns of a workgroup, steps along K that its waves share, parts of K.

In: a form, the few rows M, N and K, a chip. Out: a `GemvCut`, or all that are considered. Loads are of 16 bytes, as
many per lane as bring what is in flight to what the chip needs while registers hold them.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from wavedsl.analysis.strategy import VECTOR_BYTES
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.strategies.caching import needed_bytes
from wavedsl.strategies.kernels import Form
from wavedsl.targets import get_target

LEAST_STEPS = 2
"""K steps below which a workgroup's share of a tile is not worth a part of its own."""
WAVES = 4
"""Waves that share K."""
REGISTERS = 128
"""Registers of a lane that loads and sums of a matrix-vector product may take."""
RESIDENT = 6
"""Waves per SIMD that such a kernel leaves room for: of 80 registers, which ptxas takes for most."""
APART = 4
"""Columns of a workgroup of AMD's whose waves have columns of their own instead of parts of K."""
SPARE = 1.25
"""What they keep on their way, as a factor of what a chip needs: with less, fewer waves wait for more."""
LOADS = (2, 4, 1)
"""Vectors of a column that a lane loads per trip where a workgroup has one column, the best first."""


LANE_PRODUCTS, MOST_WAVES = 32, 16
"""Multiply-adds of a lane per trip for which the compiler makes waves, and more of them than leave ptxas registers."""


@dataclass(frozen=True)
class GemvCut:
    """What a workgroup of a matrix-vector product has: `columns`, `deep` steps along K per trip, which its `waves`
    share. `split`: workgroups that share the trips of the same columns."""

    columns: int
    deep: int
    waves: int
    split: int = 1

    def groups(self, n: int) -> int:
        """Workgroups for n columns."""
        return ceil(n / self.columns) * self.split

    def in_flight(self, form: Form, n: int, chip: Product) -> int:
        """Bytes of B per unit that one trip of all its resident workgroups loads."""
        room = max(1, RESIDENT * get_target(chip.target).simds // self.waves)
        return int(min(self.groups(n) / chip.units, room) * self.columns * self.deep * form.dtype.bits // 8)

    def takes_whole_columns(self, form: Form, m: int, chip: Product) -> bool:
        """Whether waves must not share columns as well, or the compiler makes as many as leave NVIDIA's lanes 64
        registers: of two rows in bf16 by 28672 x 100 an H200's then spill 420 bytes and take 12160 clocks by the
        replay, 8436 with half as many waves."""
        target = get_target(chip.target)
        room = MOST_WAVES * target.wave_size * LANE_PRODUCTS
        products = (1 << (m - 1).bit_length()) * self.columns * self.deep
        return target.vendor == "nvidia" and not form.b_rows and products > room


def fits(form: Form, m: int, held: float, wide: float, sums: int) -> bool:
    """Whether registers hold `held` loads of the next trip, `wide` of this one widened, and `sums` of each row."""
    width, words = VECTOR_BYTES * 8 // form.dtype.bits, max(1, form.sums.bits // 32)
    return held * 4 + wide * width * words + m * sums * words <= REGISTERS


def gemv_cuts(form: Form, m: int, n: int, k: int, chip: Product) -> list[GemvCut]:
    """All that registers hold and that leave no unit idle; where the fewest columns leave some idle, those with as many
    parts of K as units ask for.

    The most columns come first, but on NVIDIA's chips the fewest where columns are runs of memory: a workgroup then
    reads one run, and many small ones end together. An H200 takes 33.0 us for one row by 8192 x 8192 in bf16 with
    one column, 33.3 with two, 35.0 with four and 35.7 with eight; two rows 34.0, 38.0, 40.7 and more.
    """
    target = get_target(chip.target)
    size = max(1, form.dtype.bits // 8)
    width = VECTOR_BYTES // size
    cuts: list[GemvCut] = []
    enough = SPARE * needed_bytes(chip)
    if form.b_rows:  # a lane's 16 bytes lie along K; a wave has whole runs of all its columns
        run = min(target.wave_size * width, max(width, 1 << (k - 1).bit_length()))
        waves = min(WAVES, 1 << max(0, ceil(k / run) - 1).bit_length())
        sizes = [(c, 1) for c in (16, 8, 4, 2, 1)]
        if target.vendor == "nvidia":
            sizes = [*((1, loads) for loads in LOADS if loads == 1 or loads * run * waves <= k), *sizes[-2::-1]]
        else:  # where the compiler deals columns to waves, those that share K as well only meet more often
            alone = [GemvCut(APART, run * count, count) for count in (1, 2) if count < waves]
            held = APART + m
            cuts = [x for x in alone if fits(form, m, held, held, APART) and x.in_flight(form, n, chip) >= enough]
        cuts += [
            GemvCut(c, run * waves * loads, waves)
            for c, loads in sizes
            if fits(form, m, c * loads + m * loads, c * loads + m * loads, c)
        ]
    else:  # along N: some lanes side by side, the others and the waves on rows of their own
        for segment in (256, 128, 64):
            rows = target.wave_size * VECTOR_BYTES // segment
            for loads in (2, 4, 8):
                if not fits(form, m, loads, loads + m * loads / width, width):
                    continue
                waves = min(2 * WAVES, 1 << max(0, ceil(k / (rows * loads)) - 1).bit_length())
                cuts.append(GemvCut(segment // size, rows * loads * waves, waves))
    full = [x for x in cuts if x.groups(n) >= chip.units]
    return full or [_shared(min(cuts[::-1], key=lambda x: x.columns), n, k, chip)]


def gemv_cut(form: Form, m: int, n: int, k: int, chip: Product) -> GemvCut:
    """The first of `gemv_cuts` that keeps what the chip needs in flight, else the one that keeps most."""
    cuts = gemv_cuts(form, m, n, k, chip)
    enough = [x for x in cuts if x.in_flight(form, n, chip) >= needed_bytes(chip)]
    return enough[0] if enough else max(cuts, key=lambda x: x.in_flight(form, n, chip))


def _shared(cut: GemvCut, n: int, k: int, chip: Product) -> GemvCut:
    """The cut with as many parts of K as give every unit one, each of LEAST_STEPS trips or more."""
    parts = min(ceil(chip.units / cut.groups(n)), ceil(k / cut.deep) // LEAST_STEPS)
    return replace(cut, split=max(1, parts))


__all__ = ["LEAST_STEPS", "WAVES", "GemvCut", "fits", "gemv_cut", "gemv_cuts"]
