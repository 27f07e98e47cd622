"""Kernels with open tiles for tuning tests: worker processes import them from here."""

from __future__ import annotations

import os
import time

import wavedsl as wd

M, N, K, BM, BN, BK, WM = wd.symbols("M N K BM BN BK WM")


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, BM / 2),
        wd.WaveConstraint(N, BN / 2),
    ]
)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)])
def free(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    """The same product; its waves are the compiler's choice."""
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, WM), wd.WaveConstraint(N, BN),
    ]
)  # fmt: skip
def stacked(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f16]):
    """The same product; its waves lie along M alone."""
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(wd.cast(loop, wd.f16), c)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)])
def double(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(a) * 2.0, b)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0)])
def centred(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    """Rows that are held until something of all of them is known."""
    x = wd.read(a)
    wd.write(x - wd.max(x, N), b)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)])
def by_tile(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    """What it computes depends on its tile, as no right kernel's result does."""
    wd.write(wd.read(a) + BM, b)


@wd.wave([wd.WorkgroupConstraint(N, BN, 0)], dynamic=[N])
def twice(source: wd.Memory[N, wd.f32], out: wd.Memory[N, wd.f32]):
    """What the stand-ins for drivers compute, whatever text they are given."""
    wd.write(wd.read(source) * 2.0, out)


@wd.wave([wd.WorkgroupConstraint(N, BN, 0)])
def first_of_twice(source: wd.Memory[N, wd.f32], out: wd.Memory[N, wd.f32], n: wd.Scalar[wd.i32]):
    """The same with the extent in the text, whose third argument the stand-ins take for it."""
    wd.write(wd.where(wd.index(N) < n, wd.read(source) * 2.0, 0.0), out)


@wd.wave([wd.WorkgroupConstraint(N, BN, 0)], dynamic=[N])
def thrice(source: wd.Memory[N, wd.f32], out: wd.Memory[N, wd.f32]):
    """What they do not compute."""
    wd.write(wd.read(source) * 3.0, out)


def plus_sixteen(a, b):
    """The reference that only BM = 16 satisfies."""
    b[...] = a + 16


def not_double(a, b):
    """A reference that is wrong itself."""
    b[...] = a + 1


def doubled(a, b):
    b[...] = a * 2


def fails(a, b):
    raise RuntimeError("as the test wants it")


def returns(a, b):
    """A reference of somebody who has not read that outputs are arguments."""
    return a * 2


def waits(a, b):
    time.sleep(60)


def chosen(task, name: str) -> int:
    """A candidate's value."""
    return dict(task.candidate.subs)[name]


def compile_or_misbehave(task):
    """BM = 8 kills its process, BM = 16 hangs, BM = 32 raises; others seem to compile."""
    bm = chosen(task, "BM")
    if bm == 8:
        os._exit(7)
    if bm == 16:
        time.sleep(60)
    if bm == 32:
        raise MemoryError("as the test wants it")
    return instant(task)


def slow_compile(task):
    """A compile that takes half a second more."""
    from wavedsl.tuning.work import compile_candidate

    time.sleep(0.5)
    return compile_candidate(task)


def forbidden(task):
    raise AssertionError(f"{task.candidate.key} was to come from the results file")


def instant(task):
    """Compiled at once; smaller BM is predicted and measured faster."""
    return {"status": "ok", "predicted": chosen(task, "BM") * 1e-6}


def right(task):
    return {"status": "ok"}


def measured(task):
    return {"status": "ok", "seconds": chosen(task, "BM") * 2e-6}


def slow_measure(task):
    """A measurement that takes a minute."""
    time.sleep(60)
    return measured(task)


def compile_slowly(task):
    """Half a second for a candidate that is nothing otherwise."""
    time.sleep(0.5)
    return instant(task)


def compile_without_end(task):
    time.sleep(60)
    return instant(task)


def hang_after_one(task):
    """The first candidate is measured, the others take a minute."""
    return measured(task) if chosen(task, "BM") == 1 else slow_measure(task)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)])
def grouped(
    a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.u4], s: wd.Memory[N, K / 128, wd.f16],
    c: wd.Memory[M, N, wd.f32],
):  # fmt: skip
    """Weights of 4 bits with a factor for every 128 of K."""

    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def loop(acc):
        weights = wd.cast(wd.read(b), wd.f16) * wd.repeat_interleave(wd.read(s), K)
        return wd.mma(wd.read(a), weights, acc)

    wd.write(loop, c)
