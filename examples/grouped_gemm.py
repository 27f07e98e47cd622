"""A product per expert: each block of tokens is multiplied by the weights of its expert.

    python examples/grouped_gemm.py --target gfx942 --tokens 90 --experts 5

Tokens are sorted by expert into blocks of 32. `ids` says which token each row of a block is (past the end: none),
`expert` whose block it is. Rows are gathered, and scattered back to their tokens; blocks that are not used exit.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

T, G, R, E, N, K = wd.symbols("T G R E N K")
BLOCK = 64


def grouped_kernel(dtype: wd.DType):
    @wd.wave(
        [
            wd.WorkgroupConstraint(G, 1, 0),
            wd.WorkgroupConstraint(N, 128, 1),
            wd.WorkgroupConstraint(R, BLOCK, 2),
            wd.TilingConstraint(K, 64),
        ]
    )
    def grouped(
        x: wd.Memory[T, K, dtype], w: wd.Memory[E, N, K, dtype], ids: wd.Memory[G, R, wd.i32],
        expert: wd.Memory[G, wd.i32], y: wd.Memory[T, N, wd.f32],
    ):  # fmt: skip
        mine = wd.read(expert)
        wd.exit_if(mine < 0)
        rows = wd.read(ids)

        @wd.iterate(K, init_args=[wd.Register[R, N, wd.f32](0.0)])
        def loop(acc):
            tokens = wd.read(x, mapping=wd.IndexMapping((R, K), {T: rows}))
            return wd.mma(tokens, wd.read(w, mapping=wd.IndexMapping((N, K), {E: mine})), acc)

        wd.write(loop, y, mapping=wd.IndexMapping((R, N), {T: rows}))

    return grouped


def blocks(experts: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(token of each row of each block, expert of each block) for tokens that go to `experts`."""
    ids, owners = [], []
    for e in range(count):
        tokens = np.flatnonzero(experts == e)
        for start in range(0, len(tokens), BLOCK):
            part = tokens[start : start + BLOCK]
            ids.append(np.pad(part, (0, BLOCK - len(part)), constant_values=len(experts)))
            owners.append(e)
    ids.append(np.full(BLOCK, len(experts)))
    owners.append(-1)  # a spare block, as a launch for the worst case has them
    return np.array(ids, np.int32), np.array(owners, np.int32)


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f16", "bf16"), tokens=100, experts=3, n=64, k=64).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    experts = np.random.default_rng(given.seed).integers(0, given.experts, given.tokens)
    ids, owners = blocks(experts, given.experts)
    x = common.data((given.tokens, given.k), dtype, given.seed)
    w = common.data((given.experts, given.n, given.k), dtype, given.seed + 1)
    y = np.zeros((given.tokens, given.n), np.float32)
    common.run(grouped_kernel(dtype), [x, w, ids, owners, y], given)
    wide, weights = x.astype(np.float64), w.astype(np.float64)[experts]
    want = np.einsum("tk,tnk->tn", wide, weights)
    magnitude = np.einsum("tk,tnk->tn", np.abs(wide), np.abs(weights))
    return common.verdict("y", y, want, 2.0**-24 * (given.k + 8) * magnitude)


if __name__ == "__main__":
    sys.exit(main())
