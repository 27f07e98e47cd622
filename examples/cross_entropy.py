"""Cross-entropy of rows of logits and their labels, with its gradient.

    python examples/cross_entropy.py --target gfx90a --m 100 --n 1000

loss[m] = log(sum of exp(x[m, n])) - x[m, label], and the gradient is softmax(x) less 1 at the label.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")


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


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f32",), m=64, n=300).parse_args(arguments)
    x = common.data((given.m, given.n), wd.f32, given.seed)
    label = np.random.default_rng(given.seed).integers(0, given.n, given.m).astype(np.int32)
    loss, dx = np.zeros(given.m, np.float32), np.zeros_like(x)
    common.run(cross_entropy, [x, label, loss, dx], given)
    wide = x.astype(np.float64)
    top = wide.max(-1)
    powers = np.exp(wide - top[:, None])
    total = powers.sum(-1)
    rows = np.arange(given.m)
    want_loss = np.log(total) + top - wide[rows, label]
    share = powers / total[:, None]
    want = share.copy()
    want[rows, label] -= 1
    units = 1.5 * np.ptp(wide, -1) + 32 + given.n
    return common.verdicts(
        common.verdict("loss", loss, want_loss, common.bound(want_loss, wd.f32, 8, units + np.abs(wide).max())),
        common.verdict("dx", dx, want, common.bound(share, wd.f32, units[:, None]) + 2.0**-23),
    )


if __name__ == "__main__":
    sys.exit(main())
