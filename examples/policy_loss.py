"""Loss of a policy (PPO, GRPO) from a language model's logits, with its gradient, log-probabilities and entropies.

    python examples/policy_loss.py --target gfx942 --m 3 --n 9000
    python examples/policy_loss.py --target sm_90a --m 2 --n 4100 --dtype f16 --beta 0

A row of logits is that of one token, which was drawn by an older policy. With ratio = exp(logp - old logp), the loss is
-min(ratio * advantage, clamp(ratio, 1 - low, 1 + high) * advantage) + beta * KL(reference), and its gradient by the
logits is a number times (1 at the token - softmax). Neither probabilities nor log-probabilities of the vocabulary are
stored: a workgroup goes through its row twice, for the largest, the sum and the entropy, then for the gradient, which
the second time finds in the cache what it does not hold. Rows with the token -100 count nothing.
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


def policy_kernel(dtype: wd.DType, low: float, high: float, beta: float, tile: int = 4096):
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(N, tile)])
    def policy(
        x: wd.Memory[M, N, dtype], token: wd.Memory[M, wd.i32], old: wd.Memory[M, wd.f32],
        reference: wd.Memory[M, wd.f32], advantage: wd.Memory[M, wd.f32], loss: wd.Memory[M, wd.f32],
        logp: wd.Memory[M, wd.f32], entropy: wd.Memory[M, wd.f32], dx: wd.Memory[M, N, dtype],
    ):  # fmt: skip
        one, mine = wd.Register[wd.f32], wd.read(token)

        @wd.iterate(N, init_args=[one(-math.inf), one(0.0), one(0.0)])
        def sums(top, total, weighted):
            value = wd.cast(wd.read(x), wd.f32)
            new_top = wd.maximum(top, wd.max(value, dim=N))
            keep, powers = wd.exp(top - new_top), wd.exp(value - new_top)
            return new_top, total * keep + wd.sum(powers, dim=N), weighted * keep + wd.sum(powers * value, dim=N)

        top, total, weighted = sums
        level = wd.log(total) + top
        at = wd.cast(wd.read(x[M, mine]), wd.f32) - level  # of a token outside of the row 0 is read
        counts = mine != IGNORED
        gain, ratio = wd.read(advantage), wd.exp(at - wd.read(old))
        clipped = wd.clamp(ratio, 1 - low, 1 + high) * gain
        # Of the KL divergence from the reference, an estimate that is never negative: exp(d) - d - 1.
        away = wd.read(reference) - at
        penalty = beta * (wd.exp(away) - away - 1.0)
        wd.write(wd.where(counts, penalty - wd.minimum(ratio * gain, clipped), 0.0), loss)
        wd.write(wd.where(counts, at, 0.0), logp)
        wd.write(wd.where(counts, level - weighted / total, 0.0), entropy)
        by_logp = wd.where(ratio * gain <= clipped, -ratio * gain, 0.0) + beta * (1.0 - wd.exp(away))
        factor = wd.where(counts, by_logp, 0.0)

        @wd.iterate(N)
        def gradient():
            p = wd.exp(wd.cast(wd.read(x), wd.f32) - level)
            wd.write(wd.cast(wd.where(wd.index(N) == mine, 1.0 - p, -p) * factor, dtype), dx)

    return policy


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("bf16", "f16", "f32"), m=4, n=5000)
    for name, value in (("low", 0.2), ("high", 0.28), ("beta", 0.04)):
        parser.add_argument(f"--{name}", type=float, default=value)
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    m, n = given.m, given.n
    random = np.random.default_rng(given.seed)
    x, rows = common.data((m, n), dtype, given.seed), np.arange(m)
    token = random.integers(0, n, m).astype(np.int32)
    token[1::3] = IGNORED
    wide = x.astype(np.float64)
    level = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1)
    at = wide[rows, np.maximum(token, 0)] - level
    old, reference = ((at + random.uniform(-0.5, 0.5, m)).astype(np.float32) for _ in range(2))
    advantage = random.standard_normal(m).astype(np.float32)
    loss, logp, entropy, dx = *(np.zeros(m, np.float32) for _ in range(3)), np.zeros_like(x)
    kernel = policy_kernel(dtype, given.low, given.high, given.beta)
    common.run(kernel, [x, token, old, reference, advantage, loss, logp, entropy, dx], given)

    counts = token != IGNORED
    ratio, away = np.exp(at - old), reference - at
    clipped = np.clip(ratio, 1 - given.low, 1 + given.high) * advantage
    want = np.where(counts, given.beta * (np.exp(away) - away - 1) - np.minimum(ratio * advantage, clipped), 0)
    p = np.exp(wide - level[:, None])
    by_logp = np.where(ratio * advantage <= clipped, -ratio * advantage, 0) + given.beta * (1 - np.exp(away))
    factor = np.where(counts, by_logp, 0)
    gradient = -p * factor[:, None]
    gradient[rows[counts], token[counts]] += factor[counts]
    units = 8.0
    size = np.abs(level) + np.abs(wide).max(1)
    return common.verdicts(
        common.verdict("loss", loss, want, common.bound(want, wd.f32, units, size * (1 + ratio * np.abs(advantage)))),
        common.verdict("logp", logp, np.where(counts, at, 0), common.bound(at, wd.f32, units, size)),
        common.verdict(
            "entropy", entropy, np.where(counts, -(p * np.log(p)).sum(1), 0), common.bound(at, wd.f32, units, size)
        ),
        common.verdict(
            "dx", dx, gradient,
            common.bound(gradient, dtype, 2) + common.bound(gradient, wd.f32, units, (size * np.abs(factor))[:, None]),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
