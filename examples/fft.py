"""The discrete Fourier transform of rows of complex numbers, a power of two long, by butterflies.

    python examples/fft.py --target sm_90a --rows 3 --n 512
    python examples/fft.py --direction back --n 1024

A complex number is a pair of f32, the last dimension of the array. Elements are gathered in bit-reversed order; then
log2(n) stages each combine elements that lie 1, 2, 4, ... apart: `wd.shuffle` by `index ^ distance`, a renaming where
a lane has both, an exchange between lanes where two lanes have them, and from wave to wave only beyond that.
`for` is Python's: stages are unrolled while the kernel is traced.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

B, N = wd.symbols("B N")


def fft_kernel(n: int, sign: float):
    """Sums of x[k] exp(sign 2 pi i j k / n) over k."""
    stages = n.bit_length() - 1

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={N: n})
    def fft(x: wd.Memory[B, N, 2, wd.f32], y: wd.Memory[B, N, 2, wd.f32]):
        i = wd.index(N)
        order = wd.cast(wd.bit_reverse(wd.cast(i, wd.u32)) >> (32 - stages), wd.i32)
        re, im = wd.read(x[B, order, 0]), wd.read(x[B, order, 1])
        for stage in range(stages):
            distance = 1 << stage
            upper = (i & distance) != 0
            angle = wd.cast(i & (distance - 1), wd.f32) * (sign * math.pi / distance)
            cos, sin = wd.cos(angle), wd.sin(angle)
            other_re, other_im = (wd.shuffle(z, i ^ distance, dim=N) for z in (re, im))
            low_re, low_im = wd.where(upper, other_re, re), wd.where(upper, other_im, im)
            high_re, high_im = wd.where(upper, re, other_re), wd.where(upper, im, other_im)
            turned_re, turned_im = high_re * cos - high_im * sin, high_re * sin + high_im * cos
            re = wd.where(upper, low_re - turned_re, low_re + turned_re)
            im = wd.where(upper, low_im - turned_im, low_im + turned_im)
        wd.write(re, y[B, :, 0])
        wd.write(im, y[B, :, 1])

    return fft


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f32",), rows=2, n=256)
    parser.add_argument("--direction", choices=("forward", "back"), default="forward")
    given = parser.parse_args(arguments)
    if given.n < 1 or given.n & (given.n - 1):
        parser.error("--n is a power of two")
    x = common.data((given.rows, given.n, 2), wd.f32, given.seed)
    y = np.zeros_like(x)
    common.run(fft_kernel(given.n, -1.0 if given.direction == "forward" else 1.0), [x, y], given)
    z = x.astype(np.float64) @ [1, 1j]
    want = np.fft.fft(z) if given.direction == "forward" else np.fft.ifft(z) * given.n
    # each stage turns by angles whose sine and cosine are off by 2^-19, and rounds
    allowed = given.n.bit_length() * 1.25 * 2.0**-19 * np.abs(z).sum(-1)[:, None, None]
    return common.verdict("y", y, np.stack([want.real, want.imag], -1), np.broadcast_to(allowed, y.shape))


if __name__ == "__main__":
    sys.exit(main())
