"""A picture of Gaussians in space, as radiance fields draw it: each tile blends those that touch it, nearest first.

    python examples/splatting.py --target gfx950 --height 40 --width 70 --splats 60

`flatten` makes of each Gaussian's covariance on the screen what its brightness falls by (the inverse) and how far it
is seen. The host lists, for every tile of 16 x 16 pixels, who touches it, by depth. `blend` has a workgroup per tile.
Its loop has one condition for all pixels: it ends with the list, or once nothing shines through any of them. So the
number of a Gaussian is the workgroup's too, and what is read of it is read once, not for every pixel. The picture is
seen as [tiles, 16, tiles, 16, colours]: a tile's pixels are dimensions of their own, along which one may reduce.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

G, L, I, J, Y, X, C = wd.symbols("G L I J Y X C")
TILE = 16
SEEN = 1 / 255
"""The least opacity that changes a picture of 8 bits; who has less at a pixel is not there."""
SHUT = 1e-4
"""The share of light that still counts: behind it nothing is drawn."""


@wd.wave([wd.WorkgroupConstraint(G, 256, 0)])
def flatten(
    covariance: wd.Memory[G, 3, wd.f32], opacity: wd.Memory[G, wd.f32], fall: wd.Memory[G, 3, wd.f32],
    radius: wd.Memory[G, wd.f32],
):  # fmt: skip
    xx, xy, yy = (wd.read(covariance[:, i]) for i in range(3))
    determinant = xx * yy - xy * xy
    for i, entry in enumerate((yy, -xy, xx)):
        wd.write(entry / determinant, fall[:, i])
    middle = (xx + yy) / 2
    widest = middle + wd.sqrt(wd.maximum(middle * middle - determinant, 0.0))  # the larger eigenvalue
    reach = 2 * wd.log(wd.maximum(wd.read(opacity) / SEEN, 1.0))
    wd.write(wd.sqrt(widest * reach), radius)


@wd.wave([wd.WorkgroupConstraint(J, 1, 0), wd.WorkgroupConstraint(I, 1, 1)], subs={Y: TILE, X: TILE, C: 3})
def blend(
    first: wd.Memory[I, J, wd.i32], behind: wd.Memory[I, J, wd.i32], lists: wd.Memory[L, wd.i32],
    centre: wd.Memory[G, 2, wd.f32], fall: wd.Memory[G, 3, wd.f32], opacity: wd.Memory[G, wd.f32],
    colour: wd.Memory[G, 3, wd.f32], picture: wd.Memory[I, Y, J, X, C, wd.f32],
):  # fmt: skip
    x = wd.cast(wd.index(J) * TILE + wd.index(X), wd.f32)
    y = wd.cast(wd.index(I) * TILE + wd.index(Y), wd.f32)
    last = wd.read(behind)

    def shines(at, light, *colours):
        return (at < last) & (wd.max(light, dim=(Y, X)) > SHUT)

    def draw(at, light, red, green, blue):
        g = wd.read(lists[at])
        dx, dy = x - wd.read(centre[g, 0]), y - wd.read(centre[g, 1])
        xx, xy, yy = (wd.read(fall[g, i]) for i in range(3))
        power = -0.5 * (xx * dx * dx + yy * dy * dy) - xy * dx * dy
        alpha = wd.minimum(wd.read(opacity[g]) * wd.exp(power), 0.99)
        alpha = wd.where((alpha >= SEEN) & (light > SHUT), alpha, 0.0)
        share = alpha * light
        red, green, blue = (c + share * wd.read(colour[g, i]) for i, c in enumerate((red, green, blue)))
        return at + 1, light - share, red, green, blue

    dark = wd.Register[Y, X, wd.f32](0.0)
    _, _, *colours = wd.while_loop(shines, draw, [wd.read(first), dark + 1.0, dark, dark, dark])
    for i, c in enumerate(colours):
        wd.write(c, picture[:, :, :, :, i])


def touched(centre: np.ndarray, radius: np.ndarray, depth: np.ndarray, rows: int, columns: int):
    """Where each tile's list starts and ends, and the lists: the numbers of all that touch a tile, nearest first."""
    order = np.argsort(depth, kind="stable")
    lists, ends = [], np.zeros((rows, columns), np.int32)
    starts = ends.copy()
    for i in range(rows):
        for j in range(columns):
            low = np.array([j, i]) * TILE
            nearest = np.clip(centre, low, low + TILE - 1)
            near = ((centre - nearest) ** 2).sum(-1) <= radius.astype(np.float64) ** 2
            mine = order[near[order]]
            starts[i, j] = sum(map(len, lists))
            lists.append(mine)
            ends[i, j] = starts[i, j] + len(mine)
    return starts, ends, np.concatenate(lists).astype(np.int32)


def blended(
    first: np.ndarray, behind: np.ndarray, lists: np.ndarray, centre: np.ndarray, fall: np.ndarray,
    opacity: np.ndarray, colour: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The picture, and the pixels whose rounding decides about a Gaussian that is just seen or just shut out."""
    rows, columns = first.shape
    picture, doubtful = np.zeros((rows * TILE, columns * TILE, 3)), np.zeros((rows * TILE, columns * TILE), bool)
    y, x = np.mgrid[: rows * TILE, : columns * TILE].astype(np.float64)
    for i in range(rows):
        for j in range(columns):
            tile = np.s_[i * TILE : (i + 1) * TILE, j * TILE : (j + 1) * TILE]
            light = np.ones((TILE, TILE))
            for g in lists[first[i, j] : behind[i, j]]:
                dx, dy = x[tile] - centre[g, 0], y[tile] - centre[g, 1]
                power = -0.5 * (fall[g, 0] * dx * dx + fall[g, 2] * dy * dy) - fall[g, 1] * dx * dy
                alpha = np.minimum(opacity[g] * np.exp(power), 0.99)
                doubtful[tile] |= (abs(alpha - SEEN) < 1e-5) | (abs(light - SHUT) < 1e-8)
                alpha = np.where((alpha >= SEEN) & (light > SHUT), alpha, 0.0)
                picture[tile] += (alpha * light)[..., None] * colour[g]
                light = light * (1 - alpha)
    return picture, doubtful


def main(arguments: list[str] | None = None) -> int:
    sizes = {"height": 40, "width": 50, "splats": 40}
    given = common.options(__doc__, ("f32",), **sizes).parse_args(arguments)
    random, n = np.random.default_rng(given.seed), given.splats
    rows, columns = (-(-size // TILE) for size in (given.height, given.width))
    centre = (random.random((n, 2)) * [given.width, given.height]).astype(np.float32)
    turn, spread = random.random(n) * np.pi, random.random((n, 2)) * 60 + 4  # axes of 2 to 8 pixels
    c, s = np.cos(turn), np.sin(turn)
    mixed = [c * c * spread[:, 0] + s * s * spread[:, 1], c * s * (spread[:, 0] - spread[:, 1])]
    covariance = np.stack([*mixed, s * s * spread[:, 0] + c * c * spread[:, 1]], -1).astype(np.float32)
    opacity, colour = (random.random(n) * 0.98 + 0.01).astype(np.float32), random.random((n, 3)).astype(np.float32)

    fall, radius = np.zeros_like(covariance), np.zeros(n, np.float32)
    common.run(flatten, [covariance, opacity, fall, radius], given)
    first, behind, lists = touched(centre, radius * 1.01 + 0.01, random.random(n), rows, columns)
    picture = np.zeros((rows, TILE, columns, TILE, 3), np.float32)
    common.run(blend, [first, behind, lists, centre, fall, opacity, colour, picture], given)

    xx, xy, yy = covariance.T.astype(np.float64)
    inverse = np.stack([yy, -xy, xx], -1) / (xx * yy - xy * xy)[:, None]
    want, doubtful = blended(first, behind, lists, centre, fall.astype(np.float64), opacity, colour)
    inside = np.s_[: given.height, : given.width]
    got = np.where(doubtful[..., None], want, picture.reshape(want.shape))
    # Shares add up to 1; each has an exponential's error, and that of the light that everyone before it has left.
    allowed = common.bound(np.ones_like(want), wd.f32, 32.0 + 2 * n)
    cancelled = ((xx * yy + xy * xy) / (xx * yy - xy * xy))[:, None]  # what rounding costs the determinant
    return common.verdicts(
        common.verdict("fall", fall, inverse, common.bound(inverse * cancelled, wd.f32, 8.0)),
        common.verdict("picture", got[inside], want[inside], allowed[inside]),
    )


if __name__ == "__main__":
    sys.exit(main())
