"""Transpose a matrix. Dimensions are names: an array [N, M] takes a value [M, N] as it is.

    python examples/transpose.py --target gfx950 --m 100 --n 70

A tile goes through shared memory, so that reads and writes of the arrays both run along rows.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")


def transpose_kernel(dtype: wd.DType):
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def transpose(a: wd.Memory[M, N, wd.SHARED, dtype], b: wd.Memory[N, M, dtype]):
        wd.write(wd.read(a), b)

    return transpose


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f16", "f32", "i8"), m=128, n=96).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    a = common.data((given.m, given.n), dtype, given.seed)
    b = np.zeros((given.n, given.m), a.dtype)
    common.run(transpose_kernel(dtype), [a, b], given)
    return common.verdict("b", b, a.T.astype(np.float64), 0.0)


if __name__ == "__main__":
    sys.exit(main())
