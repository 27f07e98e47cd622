"""Cross-entropy of rows of logits and their labels, with its gradient.

    python examples/cross_entropy.py --target gfx90a --m 100 --n 1000
    python examples/cross_entropy.py --rows long --dtype bf16 --m 2 --n 20000

loss[m] = log(sum of exp(x[m, n])) - x[m, label], and the gradient is softmax(x) less 1 at the label. A row of a few
thousand logits stays in registers; one of a vocabulary (--rows long) is gone through twice, by a workgroup each: first
for the largest and the sum, which is scaled whenever a larger one turns up, then for the gradient. Rows with the label
-100 count nothing.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")
IGNORED = -100


@wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)])
def cross_entropy(
    x: wd.Memory[M, N, wd.f32], label: wd.Memory[M, wd.i32], loss: wd.Memory[M, wd.f32], dx: wd.Memory[M, N, wd.f32]
):
    value = wd.read(x)
    top = wd.max(value, dim=N)
    powers = wd.exp(value - top)
    total = wd.sum(powers, dim=N)
    chosen = wd.index(N) == wd.read(label)
    wd.write(wd.log(total) + top - wd.sum(wd.where(chosen, value, 0.0), dim=N), loss)
    wd.write(powers / total - wd.where(chosen, 1.0, wd.Register[M, N, wd.f32](0.0)), dx)


def long_rows_kernel(dtype: wd.DType, tile: int = 4096):
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(N, tile)], name="cross_entropy_long")
    def cross_entropy(
        x: wd.Memory[M, N, dtype], label: wd.Memory[M, wd.i32], loss: wd.Memory[M, wd.f32], dx: wd.Memory[M, N, dtype]
    ):
        mine = wd.read(label)
        one = wd.Register[wd.f32]

        @wd.iterate(N, init_args=[one(-math.inf), one(0.0), one(0.0)])
        def powers(top, total, chosen):
            value = wd.cast(wd.read(x), wd.f32)
            new_top = wd.maximum(top, wd.max(value, dim=N))
            total = total * wd.exp(top - new_top) + wd.sum(wd.exp(value - new_top), dim=N)
            return new_top, total, chosen + wd.sum(wd.where(wd.index(N) == mine, value, 0.0), dim=N)

        top, total, chosen = powers
        counts = mine != IGNORED
        wd.write(wd.where(counts, wd.log(total) + top - chosen, 0.0), loss)
        share = wd.where(counts, 1.0 / total, 0.0)

        @wd.iterate(N)
        def gradient():
            p = wd.exp(wd.cast(wd.read(x), wd.f32) - top) * share
            wd.write(wd.cast(wd.where(wd.index(N) == mine, p - 1.0, p), dtype), dx)

    return cross_entropy


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f32", "bf16", "f16"), m=64, n=300)
    parser.add_argument("--rows", choices=("short", "long"), default="short")
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    if given.rows == "short" and dtype is not wd.f32:
        parser.error("--rows short is written for f32")
    x = common.data((given.m, given.n), dtype, given.seed)
    label = np.random.default_rng(given.seed).integers(0, given.n, given.m).astype(np.int32)
    if given.rows == "long":
        label[1::3] = IGNORED
    loss, dx = np.zeros(given.m, np.float32), np.zeros_like(x)
    common.run(cross_entropy if given.rows == "short" else long_rows_kernel(dtype), [x, label, loss, dx], given)
    wide = x.astype(np.float64)
    top = wide.max(-1)
    powers = np.exp(wide - top[:, None])
    total = powers.sum(-1)
    rows = np.arange(given.m)
    want_loss = np.log(total) + top - wide[rows, np.maximum(label, 0)]
    share = powers / total[:, None]
    want = share.copy()
    want[rows, np.maximum(label, 0)] -= 1
    want_loss, want = (np.where(counts, v, 0.0) for counts, v in ((label >= 0, want_loss), (label[:, None] >= 0, want)))
    units = 1.5 * np.ptp(wide, -1) + 32 + given.n
    rough = common.bound(share, wd.f32, units[:, None]) + 2.0**-23
    return common.verdicts(
        common.verdict("loss", loss, want_loss, common.bound(want_loss, wd.f32, 8, units + np.abs(wide).max())),
        common.verdict("dx", dx, want, rough + common.bound(want, dtype, 1.01) * (dtype is not wd.f32)),
    )


if __name__ == "__main__":
    sys.exit(main())
