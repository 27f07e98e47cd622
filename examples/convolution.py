"""A convolution as an implicit product: y[b, p, f] = sum over k of patch[b, p, k] w[f, k].

    python examples/convolution.py --target sm_80 --height 9 --width 11 --channels 24

Pixels p are the rows, k counts (row, column, channel) of the filter. No patch is ever stored: the left operand is read
through an IndexMapping, and what lies outside of the image is 0, which is the padding of a "same" convolution.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np
import sympy

import wavedsl as wd

B, H, W, C, P, F, K = wd.symbols("B H W C P F K")


def tile_of(target: str) -> tuple[int, int, int]:
    """Pixels, filters and numbers of K of a tile: where copies go beside the products more pixels share a filter, where
    all threads copy shorter tiles leave room for another workgroup."""
    return (256, 64, 64) if target == "sm_90a" else (128, 64, 32) if target.startswith("sm_") else (128, 64, 64)


def convolution_kernel(
    dtype: wd.DType, size: int, width: int, channels: int, tile: tuple[int, int, int] = (128, 64, 64)
):
    """`size` x `size` filters over images [B, H, width, channels]; P = H * W pixels, K = size * size * C."""
    pixels, filters, deep = tile
    row, column = sympy.floor(K / (size * channels)), sympy.Mod(sympy.floor(K / channels), size)
    patches = wd.IndexMapping(
        (P, K),
        {
            H: sympy.floor(P / width) + row - size // 2,
            W: sympy.Mod(P, width) + column - size // 2,
            C: sympy.Mod(K, channels),
        },
    )

    @wd.wave(
        [
            wd.WorkgroupConstraint(B, 1, 2),
            wd.WorkgroupConstraint(P, pixels, 0),
            wd.WorkgroupConstraint(F, filters, 1),
            wd.TilingConstraint(K, deep),
        ]
    )
    def convolution(x: wd.Memory[B, H, W, C, dtype], w: wd.Memory[F, K, dtype], y: wd.Memory[B, P, F, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[P, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=patches), wd.read(w), acc)

        wd.write(loop, y)

    return convolution


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f16", "bf16"), batch=2, height=8, width=8, channels=16, filters=32, size=3)
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    size, h, w = given.size, given.height, given.width
    x = common.data((given.batch, h, w, given.channels), dtype, given.seed)
    f = common.data((given.filters, size, size, given.channels), dtype, given.seed + 1)
    y = np.zeros((given.batch, h * w, given.filters), np.float32)
    kernel = convolution_kernel(dtype, size, w, given.channels, tile_of(given.target))
    common.run(kernel, [x, f.reshape(given.filters, -1), y], given)

    around = size // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (around, around), (around, around), (0, 0)))
    views = np.stack([padded[:, i : i + h, j : j + w] for i in range(size) for j in range(size)], 3)
    patches = views.reshape(given.batch, h * w, -1)
    weights = f.reshape(given.filters, -1).astype(np.float64)
    allowed = 2.0**-24 * (patches.shape[-1] + 8) * (np.abs(patches) @ np.abs(weights).T)
    return common.verdict("y", y, patches @ weights.T, allowed)


if __name__ == "__main__":
    sys.exit(main())
