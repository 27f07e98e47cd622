"""What stands between two layers of a quantised network: add the residual, RMS norm, one scale per row, round.

    python examples/norm_quantise.py --target gfx950 --quantised f8e4m3 --m 100 --n 300

h = x + residual is kept for the next residual; y = h / sqrt(mean of h² + eps) * g goes on as q * scale, where scale is
the largest of |y| in a row over the largest number of the quantised dtype. One pass over memory: a row stays in the
registers of the waves that share it, whatever its length.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")
EPS = 1e-6
LARGEST = {"i8": 127.0, "f8e4m3": 448.0, "f8e4m3fnuz": 240.0}
"""f8e4m3 is what gfx950 and sm_90a have, f8e4m3fnuz what gfx942 has; everyone has i8."""


def norm_kernel(dtype: wd.DType, quantised: wd.DType):
    most = LARGEST[str(quantised)]

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)])
    def norm(
        x: wd.Memory[M, N, dtype], residual: wd.Memory[M, N, dtype], g: wd.Memory[N, dtype], h: wd.Memory[M, N, dtype],
        q: wd.Memory[M, N, quantised], scale: wd.Memory[M, wd.f32],
    ):  # fmt: skip
        total = wd.cast(wd.read(x), wd.f32) + wd.cast(wd.read(residual), wd.f32)
        wd.write(wd.cast(total, dtype), h)
        y = total * wd.rsqrt(wd.sum(total * total, dim=N) / N + EPS) * wd.cast(wd.read(g), wd.f32)
        step = wd.maximum(wd.max(wd.abs(y), dim=N), 1e-12) / most
        wd.write(step, scale)
        scaled = wd.clamp(y / step, -most, most)  # the division may round beyond the largest
        wd.write(wd.cast(wd.round(scaled) if quantised.is_int else scaled, quantised), q)

    return norm


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("bf16", "f16"), m=64, n=256)
    parser.add_argument("--quantised", choices=tuple(LARGEST), default="i8")
    given = parser.parse_args(arguments)
    dtype, quantised = common.dtype_called(given.dtype), common.dtype_called(given.quantised)
    m, n = given.m, given.n
    x, residual, g = (common.data(s, dtype, given.seed + i) for i, s in enumerate(((m, n), (m, n), (n,))))
    h, q, scale = np.zeros_like(x), np.zeros((m, n), quantised.storage), np.zeros(m, np.float32)
    common.run(norm_kernel(dtype, quantised), [x, residual, g, h, q, scale], given)

    total = x.astype(np.float64) + residual.astype(np.float64)
    y = total / np.sqrt((total**2).mean(-1, keepdims=True) + EPS) * g.astype(np.float64)
    want = np.abs(y).max(-1) / LARGEST[given.quantised]
    units = 16 + np.log2(n) * 4
    # What is rounded to a number between two of the dtype's may be off by half their distance, and by what f32 rounds.
    half = want[:, None] / 2 if quantised.is_int else common.bound(y, quantised, 1.0) + want[:, None] * 2.0**-9
    allowed = half + common.bound(y, wd.f32, 2 * units, np.abs(y).max())
    return common.verdicts(
        common.verdict("h", h, total, common.bound(total, dtype, 1.01)),
        common.verdict("scale", scale, want, common.bound(want, wd.f32, units)),
        common.verdict("q * scale", q.astype(np.float64) * scale[:, None], y, allowed),
    )


if __name__ == "__main__":
    sys.exit(main())
