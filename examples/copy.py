"""Copy a matrix: the smallest kernel there is.

    python examples/copy.py --target gfx950 --m 100 --n 70 --dtype f32

Each workgroup copies a tile of 16 x 16 elements. Sizes need not divide it: masks are derived.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")


def copy_kernel(dtype: wd.DType):
    """The kernel for one element type: kernels are made by functions where something other than a size varies."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1)])
    def copy(a: wd.Memory[M, N, wd.GLOBAL, dtype], b: wd.Memory[M, N, wd.GLOBAL, dtype]):
        wd.write(wd.read(a), b)

    return copy


def main(arguments: list[str] | None = None) -> int:
    dtypes = ("f16", "bf16", "f32", "f64", "i8", "i32")
    given = common.options(__doc__, dtypes, m=16, n=16).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    a = common.data((given.m, given.n), dtype, given.seed)
    b = np.full_like(a, 93)
    common.run(copy_kernel(dtype), [a, b], given)
    return common.verdict("b", b, a.astype(np.float64), 0.0)


if __name__ == "__main__":
    sys.exit(main())
