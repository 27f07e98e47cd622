"""Which experts a token goes to, its row in each one's batch, and its way there and back.

    python examples/routing.py --target sm_80 --tokens 70 --experts 12 --chosen 4 --room 20
    python examples/routing.py --dtype bf16 --d 200

`route` takes the largest `chosen` of a token's scores, their softmax as weights, and for each of these a place in the
expert's batch: a counter per expert gives tickets, since an atomic gives what was there. Who draws one beyond the
batch's room is dropped, at place -1. `spread` copies each token's row to its places, `collect` adds up what the experts
made of it by the token's weights. Both have an index outside of the array for what was dropped: nothing is written, 0
is read.
Tokens draw tickets in any order, so places differ from run to run; what comes back does not, unless some are dropped.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

T, E, K, C, D = wd.symbols("T E K C D")


def kernels(dtype: wd.DType, chosen: int):
    @wd.wave([wd.WorkgroupConstraint(T, 16, 0)], subs={K: chosen})
    def route(
        scores: wd.Memory[T, E, wd.f32], experts: wd.Memory[T, K, wd.i32], weights: wd.Memory[T, K, wd.f32],
        places: wd.Memory[T, K, wd.i32], counts: wd.Memory[E, wd.i32], room: wd.Scalar[wd.i32],
    ):  # fmt: skip
        best, mine = wd.topk(wd.read(scores), K, dim=E)
        wd.write(mine, experts)
        wd.write(wd.softmax(best, dim=K), weights)
        ticket = wd.atomic_add(1, counts[mine])
        wd.write(wd.where(ticket < room, ticket, -1), places)

    @wd.wave([wd.WorkgroupConstraint(T, 4, 0), wd.WorkgroupConstraint(K, 1, 1)])
    def spread(
        x: wd.Memory[T, D, dtype], experts: wd.Memory[T, K, wd.i32], places: wd.Memory[T, K, wd.i32],
        batches: wd.Memory[E, C, D, dtype],
    ):  # fmt: skip
        wd.write(wd.read(x), batches[wd.read(experts), wd.read(places), :])

    @wd.wave([wd.WorkgroupConstraint(T, 4, 0)])
    def collect(
        batches: wd.Memory[E, C, D, dtype], experts: wd.Memory[T, K, wd.i32], places: wd.Memory[T, K, wd.i32],
        weights: wd.Memory[T, K, wd.f32], y: wd.Memory[T, D, dtype],
    ):  # fmt: skip
        rows = wd.cast(wd.read(batches[wd.read(experts), wd.read(places), :]), wd.f32)  # [T, K, D]
        wd.write(wd.cast(wd.sum(rows * wd.read(weights), dim=K), dtype), y)

    return route, spread, collect


def main(arguments: list[str] | None = None) -> int:
    sizes = {"tokens": 50, "experts": 8, "chosen": 2, "room": 12, "d": 64}
    parser = common.options(__doc__, ("f32", "f16", "bf16"), **sizes)
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    route, spread, collect = kernels(dtype, given.chosen)
    tokens, chosen = given.tokens, given.chosen
    scores = common.data((tokens, given.experts), wd.f32, given.seed)
    experts, places = (np.zeros((tokens, chosen), np.int32) for _ in range(2))
    weights, counts = np.zeros((tokens, chosen), np.float32), np.zeros(given.experts, np.int32)
    common.run(route, [scores, experts, weights, places, counts, np.int32(given.room)], given)
    x = common.data((tokens, given.d), dtype, given.seed + 1)
    batches, y = np.zeros((given.experts, given.room, given.d), dtype.storage), np.zeros_like(x)
    common.run(spread, [x, experts, places, batches], given)
    common.run(collect, [batches, experts, places, weights, y], given)

    wide = scores.astype(np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    order = np.argsort(-wide, axis=-1, kind="stable")[:, :chosen]
    best = np.take_along_axis(powers, order, -1)
    want = best / best.sum(-1, keepdims=True)
    drawn = np.bincount(order.ravel(), minlength=given.experts)
    tickets = [np.sort(places[(experts == e) & (places >= 0)]) for e in range(given.experts)]
    right = [np.array_equal(p, np.arange(min(n, given.room))) for p, n in zip(tickets, drawn)]
    kept = (weights.astype(np.float64) * (places >= 0)).sum(-1, keepdims=True)
    back = x.astype(np.float64) * kept
    return common.verdicts(
        common.verdict("experts", experts, order.astype(np.float64), 0.0),
        common.verdict("weights", weights, want, common.bound(want, wd.f32, 32)),
        common.verdict("counts", counts, drawn.astype(np.float64), 0.0),
        common.verdict("places", np.array(right), np.ones(given.experts), 0.0),
        common.verdict("y", y, back, common.bound(back, dtype, 1.01) + common.bound(back, wd.f32, 2 + chosen)),
    )


if __name__ == "__main__":
    sys.exit(main())
