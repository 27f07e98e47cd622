"""Add two vectors: one element per lane and trip, any length.

    python examples/vector_add.py --target sm_80 --n 1000 --dtype f16
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

N = wd.sym.N


def add_kernel(dtype: wd.DType):
    @wd.wave([wd.WorkgroupConstraint(N, 1024, 0)])
    def add(a: wd.Memory[N, dtype], b: wd.Memory[N, dtype], c: wd.Memory[N, dtype]):
        wd.write(wd.read(a) + wd.read(b), c)

    return add


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f32", "f16", "bf16", "i32"), n=5000).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    a, b = (common.data((given.n,), dtype, given.seed + i) for i in (0, 1))
    c = np.zeros_like(a)
    common.run(add_kernel(dtype), [a, b, c], given)
    want = a.astype(np.float64) + b.astype(np.float64)
    return common.verdict("c", c, want, common.bound(want, dtype, 1) if dtype.is_float else 0.0)


if __name__ == "__main__":
    sys.exit(main())
