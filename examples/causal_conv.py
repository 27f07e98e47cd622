"""A short causal convolution along time with silu, channel by channel, as state-space models have it; its gradients.

    python examples/causal_conv.py --target sm_90a --time 50 --channels 72

z[b, t, d] = bias[d] + sum over k of w[d, k] x[b, t + k - 3, d] and y = z * sigmoid(z). Times before the first are
outside of the array, where a gather gives 0: the left padding is never stored. Backwards, dx is the convolution with
the taps in the other order, and dw and dbias are sums over batches and times that workgroups add up by atomics.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

B, T, D, K = wd.symbols("B T D K")
TAPS = 4
TILES = [wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(T, 16, 0), wd.WorkgroupConstraint(D, 64, 1)]


def later(steps: int) -> wd.IndexMapping:
    """Element (t, d) lies `steps` times later."""
    return wd.IndexMapping((T, D), {T: T + steps})


def convolved(x, taps, bias, by: int = 0):
    """z at `by` steps after each element."""
    z = wd.broadcast(bias, T, D)
    for k in range(TAPS):
        z = z + wd.cast(wd.read(x, mapping=later(by + k - TAPS + 1)), wd.f32) * wd.extract(taps, {K: k})
    return z


def slope(z):
    """The derivative of z * sigmoid(z)."""
    s = wd.sigmoid(z)
    return s * (1.0 + z * (1.0 - s))


def forward_kernel(dtype: wd.DType):
    @wd.wave(TILES)
    def forward(
        x: wd.Memory[B, T, D, dtype], w: wd.Memory[D, K, wd.f32], bias: wd.Memory[D, wd.f32],
        y: wd.Memory[B, T, D, dtype],
    ):  # fmt: skip
        z = convolved(x, wd.read(w), wd.read(bias))
        wd.write(wd.cast(z * wd.sigmoid(z), dtype), y)

    return forward


def backward_kernel(dtype: wd.DType):
    @wd.wave(TILES)
    def backward(
        x: wd.Memory[B, T, D, dtype], w: wd.Memory[D, K, wd.f32], bias: wd.Memory[D, wd.f32],
        dy: wd.Memory[B, T, D, dtype], dx: wd.Memory[B, T, D, dtype], dw: wd.Memory[D, K, wd.f32],
        dbias: wd.Memory[D, wd.f32],
    ):  # fmt: skip
        taps, start = wd.read(w), wd.read(bias)
        into_x = wd.Register[T, D, wd.f32](0.0)
        for k in range(TAPS):
            by = TAPS - 1 - k
            dz = wd.cast(wd.read(dy, mapping=later(by)), wd.f32) * slope(convolved(x, taps, start, by))
            into_x = into_x + dz * wd.extract(taps, {K: k})
            if by == 0:  # times of the element itself
                wd.atomic_add(dz, dbias, mapping=wd.IndexMapping((T, D), {D: D}))
                for j in range(TAPS):
                    into_w = dz * wd.cast(wd.read(x, mapping=later(j - TAPS + 1)), wd.f32)
                    wd.atomic_add(into_w, dw, mapping=wd.IndexMapping((T, D), {D: D, K: j}))
        wd.write(wd.cast(into_x, dtype), dx)

    return backward


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f32", "bf16"), batch=2, time=40, channels=64).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    shape = given.batch, given.time, given.channels
    x, dy = (common.data(shape, dtype, given.seed + i) for i in (0, 1))
    w = common.data((given.channels, TAPS), wd.f32, given.seed + 2)
    bias = common.data(shape[-1:], wd.f32, given.seed + 3)
    y, dx, dw, dbias = np.zeros_like(x), np.zeros_like(x), np.zeros_like(w), np.zeros_like(bias)
    common.run(forward_kernel(dtype), [x, w, bias, y], given)
    common.run(backward_kernel(dtype), [x, w, bias, dy, dx, dw, dbias], given)

    padded = np.pad(x.astype(np.float64), ((0, 0), (TAPS - 1, 0), (0, 0)))
    seen = np.stack([padded[:, k : k + given.time] for k in range(TAPS)], -1)
    z = (seen * w).sum(-1) + bias
    s = 1 / (1 + np.exp(-z))
    dz = np.pad(dy * s * (1 + z * (1 - s)), ((0, 0), (0, TAPS - 1), (0, 0)))
    want_dx = sum(dz[:, TAPS - 1 - k :][:, : given.time] * w[:, k] for k in range(TAPS))
    dz = dz[:, : given.time]
    large = (np.abs(seen) * np.abs(w)).sum(-1).max() + np.abs(bias).max()
    gain = np.abs(dy.astype(np.float64)).max() * (1 + large)  # what dz stands for
    units = 16 + given.batch * given.time
    to_w = (np.abs(dz)[..., None] * np.abs(seen)).sum((0, 1))
    rough = [common.bound(z, wd.f32, 16, size).max() for size in (large, gain * TAPS, gain)]
    allowed_w = common.bound(to_w, wd.f32, units) + rough[2] * np.abs(seen).sum((0, 1))
    allowed_bias = common.bound(np.abs(dz).sum((0, 1)), wd.f32, units) + rough[2] * given.batch * given.time
    return common.verdicts(
        common.verdict("y", y, z * s, common.bound(z * s, dtype, 1.01) + rough[0]),
        common.verdict("dx", dx, want_dx, common.bound(want_dx, dtype, 1.01) + rough[1]),
        common.verdict("dw", dw, (dz[..., None] * seen).sum((0, 1)), allowed_w),
        common.verdict("dbias", dbias, dz.sum((0, 1)), allowed_bias),
    )


if __name__ == "__main__":
    sys.exit(main())
