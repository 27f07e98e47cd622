"""Running sums of rows: a row is cut into tiles, each of which starts with the sum of those before it.

    python examples/scan.py --target sm_80 --m 10 --n 1000
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")


@wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1), wd.TilingConstraint(N, 256)])
def running_sums(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
    @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
    def tiles(before):
        value = wd.read(x)
        wd.write(wd.cumsum(value, dim=N) + before, y)
        return before + wd.sum(value, dim=N)


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f32",), m=8, n=600).parse_args(arguments)
    x = common.data((given.m, given.n), wd.f32, given.seed)
    y = np.zeros_like(x)
    common.run(running_sums, [x, y], given)
    wide = x.astype(np.float64)
    allowed = 2.0**-24 * (np.arange(given.n) + 16) * np.abs(wide).cumsum(-1)
    return common.verdict("y", y, wide.cumsum(-1), allowed)


if __name__ == "__main__":
    sys.exit(main())
