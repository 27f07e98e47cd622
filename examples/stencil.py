"""One step of heat flow on a grid: y = x + r (up + down + left + right - 4 x), with 0 around the grid.

    python examples/stencil.py --target gfx950 --m 100 --n 70

Neighbours are views through an IndexMapping; what lies outside of the array reads as 0.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)])
def step(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32], r: wd.Scalar[wd.f32]):
    def moved(rows: int, columns: int):
        return wd.read(x, mapping=wd.IndexMapping((M, N), {M: M + rows, N: N + columns}))

    here = wd.read(x)
    around = moved(-1, 0) + moved(1, 0) + moved(0, -1) + moved(0, 1)
    wd.write(here + (around - here * 4.0) * r, y)


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f32",), m=64, n=96).parse_args(arguments)
    x = common.data((given.m, given.n), wd.f32, given.seed)
    y = np.zeros_like(x)
    r = np.float32(0.2)
    common.run(step, [x, y, r], given)
    p = np.pad(x.astype(np.float64), 1)
    around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
    want = x + (around - 4.0 * x) * float(r)
    magnitude = np.abs(p).max() * 9
    return common.verdict("y", y, want, common.bound(want, wd.f32, 8, magnitude))


if __name__ == "__main__":
    sys.exit(main())
