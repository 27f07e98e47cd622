"""A linear recurrence along time, h[t] = a[t] h[t-1] + b[t], as gated state-space models have it, with its gradients.

    python examples/recurrence.py --target gfx942 --batch 2 --time 100 --channels 70

Steps are pairs: (a, b) and then (c, d) are together the step (a c, b c + d), so that a scan of pairs does many at a
time. Time is cut into tiles; each starts from the state that the one before it has left. The gradient of h[t] is
g[t] = dh[t] + a[t+1] g[t+1], the same recurrence backwards in time: the second kernel's step t is T - 1 - t of arrays.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

B, T, D = wd.symbols("B T D")
TILES = [wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(D, 64, 0), wd.TilingConstraint(T, 32)]


def states(a, b, before):
    """The states of a tile of steps, and the last of them; `before` is the state that the first one starts from."""
    gain, state = wd.scan((a, b), lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (1.0, 0.0), dim=T)
    state = state + gain * before
    return state, wd.sum(wd.where(wd.index(T) == wd.tile_stop(T) - 1, state, 0.0), dim=T)


@wd.wave(TILES)
def forward(a: wd.Memory[B, T, D, wd.f32], b: wd.Memory[B, T, D, wd.f32], h: wd.Memory[B, T, D, wd.f32]):
    @wd.iterate(T, init_args=[wd.Register[D, wd.f32](0.0)])
    def tiles(before):
        state, last = states(wd.read(a), wd.read(b), before)
        wd.write(state, h)
        return last


@wd.wave(TILES)
def backward(
    a: wd.Memory[B, T, D, wd.f32], h: wd.Memory[B, T, D, wd.f32], dh: wd.Memory[B, T, D, wd.f32],
    da: wd.Memory[B, T, D, wd.f32], db: wd.Memory[B, T, D, wd.f32],
):  # fmt: skip
    @wd.iterate(T, init_args=[wd.Register[D, wd.f32](0.0)])
    def tiles(before):
        step = T - 1 - wd.index(T)
        now, later, earlier = (wd.IndexMapping((T, D), {T: step + by}) for by in (0, 1, -1))  # beyond the ends: 0
        slope, last = states(wd.read(a, mapping=later), wd.read(dh, mapping=now), before)
        wd.write(slope, db, mapping=now)
        wd.write(slope * wd.read(h, mapping=earlier), da, mapping=now)
        return last


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f32",), batch=2, time=80, channels=64).parse_args(arguments)
    shape = given.batch, given.time, given.channels
    a = np.random.default_rng(given.seed).random(shape).astype(np.float32)
    b, dh = (common.data(shape, wd.f32, given.seed + i) for i in (1, 2))
    h, da, db = (np.zeros(shape, np.float32) for _ in range(3))
    common.run(forward, [a, b, h], given)
    common.run(backward, [a, h, dh, da, db], given)

    want, size = np.zeros(shape), np.zeros(shape)  # `size`: the recurrence of magnitudes, which bounds what rounds
    slope, steep = np.zeros(shape), np.zeros(shape)
    state, most = np.zeros((2, *shape[::2]))
    for t in range(given.time):
        want[:, t] = state = a[:, t] * state + b[:, t].astype(np.float64)
        size[:, t] = most = a[:, t] * most + np.abs(b[:, t])
    state, most = np.zeros((2, *shape[::2]))
    for t in reversed(range(given.time)):
        gain = a[:, t + 1] if t + 1 < given.time else 0.0
        slope[:, t] = state = gain * state + dh[:, t]
        steep[:, t] = most = gain * most + np.abs(dh[:, t])
    earlier, sizes = (np.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1] for x in (want, size))
    units = 32 + given.time / 8  # a tile's scan, and one more product and sum per tile
    return common.verdicts(
        common.verdict("h", h, want, common.bound(want, wd.f32, units, size)),
        common.verdict("db", db, slope, common.bound(slope, wd.f32, units, steep)),
        common.verdict("da", da, slope * earlier, common.bound(steep * sizes, wd.f32, 3 * units)),
    )


if __name__ == "__main__":
    sys.exit(main())
