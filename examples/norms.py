"""Layer norm and RMS norm of rows, forward and backward.

    python examples/norms.py --kind rms --target gfx950 --m 100 --n 300

Forward y = (x - mean) * r * g + b with r = 1 / sqrt(variance + eps); RMS norm leaves out the mean and b. The gradients
of x go row by row; those of g and b are sums over the rows, which a second kernel takes tile by tile, in one order.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N = wd.symbols("M N")
EPS = 1e-5
ROWS = [wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)]


def forward_kernel(centred: bool):
    @wd.wave(ROWS)
    def forward(
        x: wd.Memory[M, N, wd.f32], g: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32], y: wd.Memory[M, N, wd.f32],
        mean: wd.Memory[M, wd.f32], r: wd.Memory[M, wd.f32],
    ):  # fmt: skip
        value = wd.read(x)
        middle = wd.sum(value, dim=N) / N if centred else wd.Register[M, wd.f32](0.0)
        away = value - middle
        scale = wd.rsqrt(wd.sum(away * away, dim=N) / N + EPS)
        wd.write(middle, mean)
        wd.write(scale, r)
        wd.write(away * scale * wd.read(g) + wd.read(b), y)

    return forward


def backward_kernel(centred: bool):
    @wd.wave(ROWS)
    def backward(
        x: wd.Memory[M, N, wd.f32], g: wd.Memory[N, wd.f32], dy: wd.Memory[M, N, wd.f32], mean: wd.Memory[M, wd.f32],
        r: wd.Memory[M, wd.f32], dx: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        scale = wd.read(r)
        normal = (wd.read(x) - wd.read(mean)) * scale
        slope = wd.read(dy) * wd.read(g)
        change = slope - normal * (wd.sum(slope * normal, dim=N) / N)
        if centred:
            change = change - wd.sum(slope, dim=N) / N
        wd.write(change * scale, dx)

    return backward


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(M, 32)])
def weights(
    x: wd.Memory[M, N, wd.f32], dy: wd.Memory[M, N, wd.f32], mean: wd.Memory[M, wd.f32], r: wd.Memory[M, wd.f32],
    dg: wd.Memory[N, wd.f32], db: wd.Memory[N, wd.f32],
):  # fmt: skip
    @wd.iterate(M, init_args=[wd.Register[N, wd.f32](0.0), wd.Register[N, wd.f32](0.0)])
    def rows(to_g, to_b):
        slope = wd.read(dy)
        normal = (wd.read(x) - wd.read(mean)) * wd.read(r)
        return to_g + wd.sum(slope * normal, dim=M), to_b + wd.sum(slope, dim=M)

    wd.write(rows[0], dg)
    wd.write(rows[1], db)


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f32",), m=64, n=256)
    parser.add_argument("--kind", choices=("layer", "rms"), default="layer")
    given = parser.parse_args(arguments)
    centred = given.kind == "layer"
    m, n = given.m, given.n
    x, dy = (common.data((m, n), wd.f32, given.seed + i) for i in (0, 1))
    g, b = (common.data((n,), wd.f32, given.seed + i) for i in (2, 3))
    y, dx = np.zeros_like(x), np.zeros_like(x)
    mean, r = np.zeros(m, np.float32), np.zeros(m, np.float32)
    dg, db = np.zeros(n, np.float32), np.zeros(n, np.float32)
    b = b if centred else np.zeros_like(b)
    common.run(forward_kernel(centred), [x, g, b, y, mean, r], given)
    common.run(backward_kernel(centred), [x, g, dy, mean, r, dx], given)
    common.run(weights, [x, dy, mean, r, dg, db], given)

    wide, slope = x.astype(np.float64), dy.astype(np.float64)
    middle = wide.mean(-1, keepdims=True) if centred else 0.0
    scale = 1 / np.sqrt(((wide - middle) ** 2).mean(-1, keepdims=True) + EPS)
    normal = (wide - middle) * scale
    want_y = normal * g + b
    to_x = slope * g
    change = to_x - normal * (to_x * normal).mean(-1, keepdims=True)
    want_dx = (change - to_x.mean(-1, keepdims=True) if centred else change) * scale
    units = 16 + np.log2(n) * 4
    sums = np.abs(slope * normal).sum(0), np.abs(slope).sum(0)
    return common.verdicts(
        common.verdict("y", y, want_y, common.bound(want_y, wd.f32, units, np.abs(normal * g) + np.abs(b))),
        common.verdict("dx", dx, want_dx, common.bound(want_dx, wd.f32, units, 4 * np.abs(to_x).max() * scale)),
        common.verdict("dg", dg, (slope * normal).sum(0), common.bound(sums[0], wd.f32, units + m)),
        common.verdict("db", db, slope.sum(0), common.bound(sums[1], wd.f32, units + m)),
    )


if __name__ == "__main__":
    sys.exit(main())
