"""Products of many sizes in one launch: the rows of all groups lie one after the other, each group has its own weights.

    python examples/ragged_gemm.py --target sm_90a --groups 5 --rows 300 --n 128 --k 256

The rows of a group are cut into blocks of at most 128. A table says of each block whose it is, where its rows start and
how many it has. A block's rows start anywhere, so nothing is padded: what it reads beyond its group are rows of the
next, which are not stored. On Hopper the tiles come by bulk copies all the same, from one tensor map of all rows.
`wavedsl.strategies.grouped_matmul` chooses tiles and builds the table.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import itertools

import common
import numpy as np

import wavedsl as wd
from wavedsl.strategies.grouped import blocks

T, G, R, E, N, K = wd.symbols("T G R E N K")
BLOCK = 128


def ragged_kernel(dtype: wd.DType):
    @wd.wave(
        [
            wd.WorkgroupConstraint(G, 1, 0),
            wd.WorkgroupConstraint(N, 128, 1),
            wd.WorkgroupConstraint(R, BLOCK, 2),
            wd.TilingConstraint(K, 64),
        ],
        subs={R: BLOCK},
    )
    def ragged(
        x: wd.Memory[T, K, dtype], w: wd.Memory[E, N, K, dtype], group: wd.Memory[G, wd.i32],
        first: wd.Memory[G, wd.i32], rows: wd.Memory[G, wd.i32], y: wd.Memory[T, N, wd.f32],
    ):  # fmt: skip
        mine, start, count = wd.read(group), wd.read(first), wd.read(rows)

        @wd.iterate(K, init_args=[wd.Register[R, N, wd.f32](0.0)])
        def loop(acc):
            block = wd.read(x, mapping=wd.IndexMapping((R, K), {T: wd.index(R) + start}))
            return wd.mma(block, wd.read(w, mapping=wd.IndexMapping((N, K), {E: mine})), acc)

        inside = wd.where(wd.index(R) < count, wd.index(R) + start, -1)
        wd.write(loop, y, mapping=wd.IndexMapping((R, N), {T: inside}))

    return ragged


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f16", "bf16"), groups=4, rows=200, n=64, k=64).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    shares = np.random.default_rng(given.seed).dirichlet(np.full(given.groups, 0.5))
    sizes = np.random.default_rng(given.seed).multinomial(given.rows, shares)
    print(f"groups of {', '.join(map(str, sizes))} rows")
    x = common.data((given.rows, given.k), dtype, given.seed)
    w = common.data((given.groups, given.n, given.k), dtype, given.seed + 1)
    y = np.zeros((given.rows, given.n), np.float32)
    common.run(ragged_kernel(dtype), [x, w, *blocks(sizes.tolist(), BLOCK), y], given)
    ends = np.cumsum([0, *sizes]).tolist()
    wide, weights = x.astype(np.float64), w.astype(np.float64)
    parts = [(wide[i:j], weights[g].T) for g, (i, j) in enumerate(itertools.pairwise(ends))]
    want = np.concatenate([a @ b for a, b in parts])
    magnitude = np.concatenate([np.abs(a) @ np.abs(b) for a, b in parts])
    return common.verdict("y", y, want, 2.0**-24 * (given.k + 8) * magnitude)


if __name__ == "__main__":
    sys.exit(main())
