"""Softmax of every row of a matrix; a row lies in the registers of one wave.

    python examples/softmax.py --target sm_80 --m 100 --n 777
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")


def softmax_kernel(dtype: wd.DType):
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)])
    def softmax(x: wd.Memory[M, N, dtype], y: wd.Memory[M, N, dtype]):
        value = wd.cast(wd.read(x), wd.f32)
        powers = wd.exp(value - wd.max(value, dim=N))
        # One division per row; those of elements would round exactly, in ten instructions each and a branch.
        wd.write(wd.cast(powers * (1.0 / wd.sum(powers, dim=N)), dtype), y)

    return softmax


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f32", "f16", "bf16"), m=64, n=512).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    x = common.data((given.m, given.n), dtype, given.seed)
    y = np.zeros_like(x)
    common.run(softmax_kernel(dtype), [x, y], given)
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    want = powers / powers.sum(-1, keepdims=True)
    # exp(x) is off by 1.5 |x| units of f32 and a few (docs/numerics.md); the sum adds one per element at most.
    slack = 2.0**-24 * want * (1.5 * np.ptp(wide, -1)[:, None] + 20 + np.log2(given.n))
    return common.verdict("y", y, want, common.bound(want, dtype, 1) + 2 * slack)


if __name__ == "__main__":
    sys.exit(main())
