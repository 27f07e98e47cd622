"""The best local alignment of pairs of sequences (Smith and Waterman), an anti-diagonal of the table at a time.

    python examples/alignment.py --target gfx950 --pairs 3 --rows 50 --columns 70

score[i, j] is the best of 0, score[i-1, j-1] + match or mismatch, and a gap behind score[i-1, j] or score[i, j-1]. All
cells of a diagonal i + j = t are independent of each other, so lane i has row i, and the loop over t carries the last
two diagonals. The row above is a neighbour's: a shuffle. No array is as long as the loop; `subs` says how long it may
get, and each pair's own lengths, read from memory, where it ends.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

B, I, J, T = wd.symbols("B I J T")


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def align(
    x: wd.Memory[B, I, wd.i8], y: wd.Memory[B, J, wd.i8], rows: wd.Memory[B, wd.i32], columns: wd.Memory[B, wd.i32],
    best: wd.Memory[B, wd.i32], match: wd.Scalar[wd.i32], mismatch: wd.Scalar[wd.i32], gap: wd.Scalar[wd.i32],
):  # fmt: skip
    i, letter, height, width = wd.index(I), wd.read(x), wd.read(rows), wd.read(columns)

    def above(diagonal):
        """What the row above has; row 0 is below nothing."""
        return wd.shuffle(diagonal, i - 1, dim=I)  # an index outside gives 0

    zero = wd.Register[I, wd.i32](0)

    @wd.iterate(T, init_args=[zero, zero, zero], stop=height + width - 1)
    def diagonals(last, before, top):
        j = wd.tile_start(T) - i
        step = wd.where(letter == wd.read(y[B, j]), match, mismatch)
        score = wd.maximum(above(before) + step, wd.maximum(last, above(last)) + gap)
        inside = (i < height) & (j >= 0) & (j < width)
        score = wd.where(inside, wd.maximum(score, 0), 0)
        return score, last, wd.maximum(top, score)

    wd.write(wd.max(diagonals[2], dim=I), best)


def aligned(x: np.ndarray, y: np.ndarray, match: int, mismatch: int, gap: int) -> int:
    """The best score of two sequences, cell by cell."""
    score = np.zeros((len(x) + 1, len(y) + 1), np.int64)
    for i in range(len(x)):
        for j in range(len(y)):
            step = match if x[i] == y[j] else mismatch
            score[i + 1, j + 1] = max(0, score[i, j] + step, score[i, j + 1] + gap, score[i + 1, j] + gap)
    return int(score.max())


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("i8",), pairs=4, rows=64, columns=80).parse_args(arguments)
    random = np.random.default_rng(given.seed)
    x, y = (random.integers(0, 4, (given.pairs, n)).astype(np.int8) for n in (given.rows, given.columns))
    rows, columns = (random.integers(1, n + 1, given.pairs).astype(np.int32) for n in (given.rows, given.columns))
    best = np.zeros(given.pairs, np.int32)
    costs = 2, -1, -2
    subs = {T: given.rows + given.columns - 1}
    common.run(align, [x, y, rows, columns, best, *map(np.int32, costs)], given, subs)
    want = [aligned(x[p, : rows[p]], y[p, : columns[p]], *costs) for p in range(given.pairs)]
    return common.verdict("best", best, np.array(want, np.float64), 0.0)


if __name__ == "__main__":
    sys.exit(main())
