"""The kernels behind the strategies. Each is made for dtypes, tiles and layout, and kept.

All compute in the accumulator's dtype and round once on the way out. `b_rows`: B is [N, K] (rows are columns of the
product), else [K, N]. `beta`: C is read and scaled; without it C may hold anything.
"""

# Annotations of kernels are expressions over symbols, which type checkers take for types.
# mypy: disable-error-code="valid-type, type-arg, misc, name-defined, operator"

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import wavedsl as wd
from wavedsl.ir.dtypes import DType

M, N, K = wd.symbols("M N K")
W, T, P = wd.symbols("W T P")
BM, BN, BK, WM, WN = wd.symbols("BM BN BK WM WN")


@dataclass(frozen=True)
class Form:
    """What a product kernel is made for."""

    dtype: DType
    out: DType
    b_rows: bool = False
    beta: bool = False

    @property
    def sums(self) -> DType:
        """The accumulator's dtype."""
        if self.dtype.is_int:
            return wd.i32
        return wd.f64 if self.dtype is wd.f64 else wd.f32

    def arrays(self, space: Any) -> tuple[Any, Any, Any]:
        """Annotations of A, B and C, A and B in an address space."""
        a = (M, K, space, self.dtype)
        b = (*((N, K) if self.b_rows else (K, N)), space, self.dtype)
        return wd.Memory[a], wd.Memory[b], wd.Memory[M, N, self.out]


@dataclass(frozen=True)
class Asked:
    """What a kernel asks of the caches: hints for its reads of A and B and for C."""

    a: str | None = None
    b: str | None = None
    c: str | None = None


UNASKED = Asked()


def store(form: Form, product: Any, c: Any, alpha: Any, beta: Any, asked: Asked = UNASKED) -> None:
    """alpha * product + beta * C in the accumulator's dtype, rounded once."""
    scaled = product * alpha
    if form.beta:
        scaled = wd.fma(wd.cast(wd.read(c, cache=asked.c), form.sums), beta, scaled)
    wd.write(wd.cast(scaled, form.out), c, cache=asked.c)


@functools.cache
def tiled(
    form: Form, tiles: tuple[int, int, int], waves: tuple[int, int], stages: int, m_fast: bool = True, split: int = 1,
    asked: Asked = UNASKED, prefetch: int = 0,
) -> Any:  # fmt: skip
    """A pipelined loop over K with tiles in shared memory. `m_fast`: neighbouring workgroups share a tile of B.
    `stages` 0: as many as the compiler chooses. `split`: workgroups that share the steps of an output tile.
    `prefetch`: steps by which tiles are brought into L2, 0 for not at all."""
    a_type, b_type, c_type = form.arrays(wd.SHARED)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0 if m_fast else 1),
            wd.WorkgroupConstraint(N, BN, 1 if m_fast else 0),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={BM: tiles[0], BN: tiles[1], BK: tiles[2], WM: tiles[0] // waves[0], WN: tiles[1] // waves[1]},
        schedule=wd.Schedule(stages=stages or None, split_k=split, prefetch=prefetch or None),
    )
    def gemm_tiled(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        start = wd.Register[M, N, form.sums](0)

        @wd.iterate(K, init_args=[start])
        def over_k(acc: wd.Register[M, N, form.sums]):
            return wd.mma(wd.read(a, cache=asked.a), wd.read(b, cache=asked.b), acc)

        store(form, over_k, c, alpha, beta, asked)

    return gemm_tiled


@functools.cache
def one_pass(form: Form, tiles: tuple[int, int], waves: tuple[int, int], asked: Asked = UNASKED) -> Any:
    """All of K at once, straight from global memory: no loop, no pipeline, no barrier."""
    a_type, b_type, c_type = form.arrays(wd.GLOBAL)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={BM: tiles[0], BN: tiles[1], WM: tiles[0] // waves[0], WN: tiles[1] // waves[1]},
    )
    def gemm_one_pass(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        x, y = wd.read(a, cache=asked.a), wd.read(b, cache=asked.b)
        store(form, wd.mma(x, y, wd.Register[M, N, form.sums](0)), c, alpha, beta, asked)

    return gemm_one_pass


@functools.cache
def gemv(form: Form, columns: int, depth: int, waves: int, asked: Asked = UNASKED, split: int = 1) -> Any:
    """A few rows of A against all of B, which streams once: multiply-adds, no matrix instruction. M stays whole; lanes,
    and `waves` of a workgroup, keep their parts of the sums until behind the loop. `split`: workgroups that share the
    trips of the same columns."""
    a_type, b_type, c_type = form.arrays(wd.GLOBAL)

    @wd.wave(
        [wd.WorkgroupConstraint(N, BN, 0), wd.TilingConstraint(K, BK), wd.WaveConstraint(K, BK / waves)],
        subs={BN: columns, BK: depth},
        schedule=wd.Schedule(split_k=split),
    )
    def gemm_gemv(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        start = wd.Register[M, N, form.sums](0)

        @wd.iterate(K, init_args=[start])
        def over_k(acc: wd.Register[M, N, form.sums]):
            rows = wd.cast(wd.read(a, cache=asked.a), form.sums)
            return acc + wd.sum(rows * wd.cast(wd.read(b, cache=asked.b), form.sums), dim=K)

        store(form, over_k, c, alpha, beta, asked)

    return gemm_gemv


LEAST_STEPS = 2
"""K steps below which a workgroup's share of a tile is not worth a part of its own."""


@dataclass(frozen=True)
class Deal:
    """How `tiles` output tiles of `steps` K steps each are dealt to `workers` workgroups, which all run at once.

    First whole tiles, as many `rounds` as there are. The steps of the tiles `left` over are put in one line and cut
    into equal runs for the first `sharers` workers, none of them empty. A tile that lies in several runs is summed by
    `parts` workers at most.
    """

    tiles: int
    steps: int
    workers: int

    @property
    def rounds(self) -> int:
        return self.tiles // self.workers

    @property
    def left(self) -> int:
        return self.tiles % self.workers

    @property
    def line(self) -> int:
        """K steps of the tiles left over."""
        return self.left * self.steps

    @property
    def sharers(self) -> int:
        return max(self.left, min(self.workers, self.line // LEAST_STEPS))

    @property
    def turns(self) -> int:
        """Output tiles that a worker has a share in, at most: whole ones, then those that its run touches."""
        if not self.line:
            return self.rounds
        touched = max(
            (self.run(w)[1] - 1) // self.steps - self.run(w)[0] // self.steps + 1 for w in range(self.sharers)
        )
        return self.rounds + touched

    @property
    def parts(self) -> int:
        if not self.line:
            return 1
        ends = ((self.worker_at(t * self.steps), self.worker_at((t + 1) * self.steps - 1)) for t in range(self.left))
        return max(last - first for first, last in ends) + 1

    def run(self, worker: Any, least: Any = min) -> tuple[Any, Any]:
        """First step and the step after the last of a worker's run. `least`: minimum of two such numbers."""
        ends = [least(w, self.sharers) * self.line // max(1, self.sharers) for w in (worker, worker + 1)]
        return ends[0], ends[1]

    def worker_at(self, step: Any) -> Any:
        """Whose run a step lies in: the last w with w * line // sharers <= step."""
        return ((step + 1) * self.sharers - 1) // self.line


@functools.cache
def dealt(
    form: Form, tiles: tuple[int, int, int], waves: tuple[int, int, int], stages: int, deal: Deal, columns: int,
    group: int, asked: Asked = UNASKED, prefetch: int = 0,
) -> Any:  # fmt: skip
    """One launch whose workgroups share the K steps of all output tiles equally (stream-K). `columns`: output tiles
    along N; tiles are numbered in blocks of `group` rows.

    A worker that has all of a tile writes it. Else it leaves its sum in `sums[part, M, N]`, takes a ticket of the tile,
    and the last to arrive adds the parts in order of the workers: nobody waits for another, and the bits are the same
    whatever the order in which workgroups run. `tickets` must be zero and is zero again afterwards. `waves`: along M, N
    and K.
    """
    a_type, b_type, c_type = form.arrays(wd.SHARED)
    bm, bn, bk = tiles
    rows = deal.tiles // columns
    rounds, workers, steps = deal.rounds, deal.workers, deal.steps

    @wd.wave(
        [
            wd.WorkgroupConstraint(W, 1, 0),
            wd.TilingConstraint(T, 1),
            wd.TilingConstraint(M, BM),
            wd.TilingConstraint(N, BN),
            wd.TilingConstraint(K, BK),
            wd.TilingConstraint(P, 1),
            wd.WaveConstraint(M, BM / waves[0]),
            wd.WaveConstraint(N, BN / waves[1]),
            wd.WaveConstraint(K, BK / waves[2]),
        ],
        subs={BM: bm, BN: bn, BK: bk, W: workers},
        schedule=wd.Schedule(stages=stages or None, prefetch=prefetch or None) if stages or prefetch else None,
    )
    def gemm_dealt(
        a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums],
        sums: wd.Memory[P, M, N, form.sums], tickets: wd.Memory[T, wd.i32],
    ):  # fmt: skip
        worker = wd.tile_start(W)
        low, high = deal.run(worker, wd.minimum)

        @wd.iterate(T, start=0, stop=deal.turns)
        def over_turns():
            turn = wd.tile_start(T)
            whole = turn < rounds
            shared = low // steps + (turn - rounds)  # which of the tiles left over
            tile = wd.where(whole, turn * workers + worker, rounds * workers + shared)
            first = wd.where(whole, 0, wd.maximum(low - shared * steps, 0))
            last = wd.where(whole, steps, wd.minimum(high - shared * steps, steps))
            inside = tile % (group * columns)
            height = wd.minimum(rows - tile // (group * columns) * group, group)
            top = (tile // (group * columns) * group + inside % height) * bm
            left = inside // height * bn

            @wd.iterate(M, start=top, stop=wd.where(first < last, top + 1, top))
            def over_rows():
                @wd.iterate(N, start=left, stop=left + 1)
                def over_columns():
                    @wd.iterate(K, init_args=[wd.Register[M, N, form.sums](0)], start=first * bk, stop=last * bk)
                    def over_k(acc: wd.Register[M, N, form.sums]):
                        return wd.mma(wd.read(a, cache=asked.a), wd.read(b, cache=asked.b), acc)

                    if not deal.line:
                        store(form, over_k, c, alpha, beta, asked)
                        return
                    earliest = deal.worker_at(shared * steps)
                    others = deal.worker_at((shared + 1) * steps - 1) - earliest

                    def alone():
                        store(form, over_k, c, alpha, beta, asked)

                    def together():
                        wd.write(over_k, sums, mapping=wd.IndexMapping((M, N), {P: worker - earliest}))
                        wd.fence()
                        place = wd.IndexMapping((), {T: shared})
                        ticket = wd.atomic_add(wd.Register[wd.i32](1), tickets, mapping=place)

                        def finish():
                            wd.fence()

                            @wd.iterate(P, init_args=[wd.Register[M, N, form.sums](0)], start=0, stop=others + 1)
                            def over_parts(acc: wd.Register[M, N, form.sums]):
                                return acc + wd.sum(wd.read(sums), dim=P)

                            store(form, over_parts, c, alpha, beta, asked)
                            wd.write(wd.Register[wd.i32](0), tickets, mapping=place)

                        wd.cond(ticket == others, finish)

                    wd.cond(last - first == steps, alone, together)

    return gemm_dealt
