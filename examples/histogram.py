"""Count how often each value occurs, with atomics: every element adds one to its bin.

A workgroup has many more elements than there are bins, so it counts in shared memory and adds each bin once
(`wavedsl inspect examples/histogram.py:histogram --subs N=100000,B=64 --target gfx942 --decisions`); with 256 elements
to a workgroup and 256 bins each would go to memory by itself.

    python examples/histogram.py --target gfx942 --n 5000 --bins 100
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

N, B = wd.symbols("N B")


@wd.wave([wd.WorkgroupConstraint(N, 1024, 0)])
def histogram(x: wd.Memory[N, wd.i32], bins: wd.Memory[B, wd.i32]):
    wd.atomic_add(wd.Register[N, wd.i32](1), bins, mapping=wd.IndexMapping((N,), {B: wd.read(x)}))


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("i32",), n=100_000, bins=64).parse_args(arguments)
    x = np.random.default_rng(given.seed).integers(-2, given.bins + 2, given.n).astype(np.int32)  # some belong nowhere
    bins = np.zeros(given.bins, np.int32)
    common.run(histogram, [x, bins], given)
    inside = x[(x >= 0) & (x < given.bins)]
    return common.verdict("bins", bins, np.bincount(inside, minlength=given.bins).astype(np.float64), 0.0)


if __name__ == "__main__":
    sys.exit(main())
