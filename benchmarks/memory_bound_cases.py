"""What `gpu_memory_bound.py` measures: each case's arrays, kernels of ours and of the others, and its sizes."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np

import wavedsl as wd

sys.path.append(str(Path(__file__).resolve().parent))

import memory_bound_kernels as kernels
from on_gpu import Case, Space, Work

EPS = 1e-5


def _first(bind: Callable[[Any], Callable[[], Any]], cuts: Sequence[Any]) -> Callable[[], Any]:
    """The call in the first of the cuts, bound when it is first called."""
    bound = functools.cache(lambda: bind(cuts[0]))
    return lambda: bound()()


def _tiles(size: tuple[int, ...]) -> Sequence[Any]:
    return kernels.TILES


def _rows(size: tuple[int, ...]) -> Sequence[Any]:
    return kernels.row_cuts(size[1])


def _rows_and_weights(size: tuple[int, ...]) -> Sequence[Any]:
    return kernels.row_cuts(size[1], shared=True)


def _squares(size: tuple[int, ...]) -> Sequence[Any]:
    return kernels.SQUARES


def copied(space: Space, size: tuple[int, ...]) -> Work:
    a, want = space.exact_array(size, wd.f16)
    b = space.empty(size, wd.f16)
    bind = lambda tile: kernels.copy(wd.f16, *tile).bind(a, b)  # noqa: E731
    calls = space.providers(_first(bind, kernels.TILES), lambda t: lambda: b.copy_(a))
    return Work(calls, b, lambda: want, 0.0, 2 * 2 * prod(size), bind=bind)


def elementwise(space: Space, size: tuple[int, ...]) -> Work:
    (a, x), (b, y) = space.exact_array(size, wd.f16), space.exact_array(size, wd.f16)
    c = space.empty(size, wd.f16)
    bind = lambda tile: kernels.scaled_sum(wd.f16, *tile).bind(a, b, c)  # noqa: E731
    calls = space.providers(_first(bind, kernels.TILES), lambda t: lambda: t.add(b, a, alpha=2, out=c))
    return Work(calls, c, lambda: 2 * x + y, 4e-3, 3 * 2 * prod(size), 2 * prod(size), bind=bind)


def softmax(space: Space, size: tuple[int, ...]) -> Work:
    a, x = space.exact_array(size, wd.f16)
    b = space.empty(size, wd.f16)
    bind = lambda cut: kernels.softmax(wd.f16, size[1], cut).bind(a, b)  # noqa: E731

    def want() -> Any:
        e = space.math.exp(x - space.math.amax(x, 1)[:, None])
        return e / e.sum(1)[:, None]

    calls = space.providers(_first(bind, _rows(size)), lambda t: lambda: t.softmax(a, -1))
    return Work(calls, b, want, 2e-3, 2 * 2 * prod(size), bind=bind)


def rms_norm(space: Space, size: tuple[int, ...]) -> Work:
    (a, x), (w, y) = space.exact_array(size, wd.f16), space.exact_array(size[1:], wd.f16)
    c = space.empty(size, wd.f16)
    bind = lambda cut: kernels.rms_norm(wd.f16, size[1], cut).bind(a, w, c, EPS)  # noqa: E731

    def want() -> Any:
        return x / space.math.sqrt((x * x).mean(1)[:, None] + EPS) * y

    theirs = lambda t: lambda: t.nn.functional.rms_norm(a, size[1:], w, EPS)  # noqa: E731
    calls = space.providers(_first(bind, _rows_and_weights(size)), theirs)
    return Work(calls, c, want, 2e-2, 2 * 2 * prod(size) + 2 * size[1], bind=bind)


def row_sum(space: Space, size: tuple[int, ...]) -> Work:
    a, x = space.exact_array(size, wd.f16)
    s = space.empty(size[:1], wd.f32)
    bind = lambda cut: kernels.row_sum(wd.f16, size[1], cut).bind(a, s)  # noqa: E731
    calls = space.providers(_first(bind, _rows(size)), lambda t: lambda: t.sum(a, -1, dtype=t.float32))
    return Work(calls, s, lambda: x.sum(1), 1e-3, 2 * prod(size) + 4 * size[0], prod(size), bind=bind)


def transpose(space: Space, size: tuple[int, ...]) -> Work:
    a, x = space.exact_array(size, wd.f16)
    b = space.empty(size[::-1], wd.f16)
    bind = lambda side: kernels.transpose(wd.f16, side).bind(a, b)  # noqa: E731
    calls = space.providers(_first(bind, kernels.SQUARES), lambda t: lambda: b.copy_(a.T))
    return Work(calls, b, lambda: x.T, 0.0, 2 * 2 * prod(size), bind=bind)


def product(
    dtype: wd.DType, tolerance: float, precision: str | None = None, b_rows: bool = True
) -> Callable[[Space, tuple[int, ...]], Work]:  # fmt: skip
    """C = A B^T of M, N, K, or A B with `b_rows` false, by the strategy that the roofline recommends; its cuts are the
    first `gemm_choices`. With a `precision` torch's error, relative to the length of the result, stands beside ours in
    the row."""

    def make(space: Space, size: tuple[int, ...]) -> Work:
        from wavedsl.strategies import gemm_choices, plan_gemm

        m, n, k = size
        (a, x), (b, y) = space.exact_array((m, k), dtype), space.exact_array((n, k) if b_rows else (k, n), dtype)
        c = space.empty((m, n), dtype)

        def bind(choice: Any) -> Callable[[], None]:
            plan = plan_gemm(a, b, c, transpose_b=b_rows, choice=choice, precision=precision)
            bound = [launch.kernel.bind(*launch.arguments) for launch in plan.launches]

            def run() -> None:
                for launch in bound:
                    launch()

            return run

        choices = functools.cache(
            lambda: gemm_choices(a, b, c, transpose_b=b_rows, most=_most(size), precision=precision)
        )

        def chosen(place: int) -> Any:
            if place >= len(choices()):
                raise NoSuchCut(f"there are {len(choices())} choices for this product")
            return choices()[place]

        calls = space.products(_first(bind, (None,)), a, b if b_rows else b.T, c)
        moved = (m * k + n * k + m * n) * dtype.bits // 8
        return Work(
            calls, c, lambda: x @ (y.T if b_rows else y), tolerance * np.sqrt(k), moved, 2 * m * n * k,
            bind=lambda place: bind(chosen(place)), named=lambda place: str(chosen(place)),
            compared=precision is not None,
        )  # fmt: skip

    return make


class NoSuchCut(wd.ConstraintError):
    """A case has fewer cuts on this chip."""


MOST_CHOICES = 6
"""Ways to compute a product that are tried: compiling one takes a fraction of a second of a borrowed chip."""
MOST_TILES, LONG_K = 64, 8192
"""Tiles of 128 x 128 up to which, and K from which on, K is cut."""


def _choices(size: tuple[int, ...]) -> Sequence[Any]:
    """Places in the list of choices, which depends on the chip."""
    return range(_most(size))


def _most(size: tuple[int, ...]) -> int:
    """Choices that are tried: more where K is cut, which parts are added in several ways."""
    few = ceil(size[0] / 128) * ceil(size[1] / 128) <= MOST_TILES
    return MOST_CHOICES + 3 if few and size[2] > LONG_K else MOST_CHOICES


def grouped(space: Space, size: tuple[int, ...]) -> Work:
    """Ragged groups of rows, each times a matrix of its own: (groups, rows on average, N, K) in bf16."""
    from wavedsl.strategies import plan_grouped

    groups, average, n, k = size
    counts = np.random.default_rng(groups).multinomial(groups * average, np.full(groups, 1 / groups)).tolist()
    (a, x), (b, y) = space.exact_array((sum(counts), k), wd.bf16), space.exact_array((groups, n, k), wd.bf16)
    c = space.empty((sum(counts), n), wd.bf16)
    (launch,) = plan_grouped(a, b, c, counts, transpose_b=True).launches
    ends = np.cumsum([0, *counts]).tolist()
    parts = list(itertools.pairwise(ends))

    def one_by_one(t: Any) -> Callable[[], None]:
        def call() -> None:
            for group, (i, j) in enumerate(parts):
                t.matmul(a[i:j], b[group].T, out=c[i:j])

        return call

    moved = (sum(counts) * (k + n) + groups * n * k) * wd.bf16.bits // 8
    run = launch.kernel.bind(*launch.arguments)
    want = lambda: space.math.concatenate([x[i:j] @ m.T for (i, j), m in zip(parts, y)])  # noqa: E731
    # Triton's GEMMs of `rivals` have one size a launch, so nothing of Triton's stands beside a launch of many.
    calls = {"wavedsl": run} if space.torch is None else {"wavedsl": run, "torch": one_by_one(space.torch)}
    calls = space.told(calls, "the Triton GEMMs have no groups: torch's loop over them is timed alone")
    return Work(calls, c, want, 2e-2 * np.sqrt(k), moved, 2 * sum(counts) * n * k)


HUGE = [(4096, 4096), (8192, 8192), (16384, 16384)]
TINY = [(5, 300)]
WIDE = [(2048, 2048, 2048), (8192, 8192, 64)]
FEW = [(1024, 1024, 16384)]
"""Fewer tiles than an H200 has units."""
SKINNY = [1, 2, 4, 8, 16, 32, 64]

CASES = (
    Case("copy", copied, HUGE, TINY, _tiles),
    Case("elementwise", elementwise, HUGE, TINY, _tiles),
    Case("softmax", softmax, [(8192, 1024), (8192, 4096), (8192, 16384)], TINY, _rows),
    Case("rms_norm", rms_norm, [(8192, 1024), (8192, 4096), (8192, 16384)], TINY, _rows_and_weights),
    Case("row_sum", row_sum, [(8192, 1024), (8192, 4096), (8192, 16384)], TINY, _rows),
    Case("transpose", transpose, [(4096, 4096), (8192, 8192)], [(70, 90)], _squares),
    Case("gemv", product(wd.bf16, 2e-2), [(1, 8192, 8192), (4, 16384, 4096)], [(2, 70, 140)], _choices),
    Case("skinny", product(wd.bf16, 2e-2), [(m, 8192, 8192) for m in SKINNY], [(10, 70, 140)], _choices),
    Case("small_k", product(wd.bf16, 2e-2), [(8192, 8192, k) for k in (16, 32, 64, 128)], [(40, 50, 24)], _choices),
    Case("split_k", product(wd.bf16, 2e-2), [(256, 256, 65536), (512, 512, 16384)], [(20, 30, 200)], _choices),
    Case("stream_k", product(wd.bf16, 2e-2), [(2304, 2048, 4096), (1536, 1792, 8192)], [(40, 50, 200)], _choices),
    Case("grouped", grouped, [(8, 16, 4096, 4096), (64, 256, 2048, 4096)], [(3, 20, 40, 56)]),
    Case("f32", product(wd.f32, 1e-5), [*WIDE, *FEW], [(40, 36, 50)], _choices),
    Case("f32 3xtf32", product(wd.f32, 1e-5, "3xtf32"), WIDE, [(40, 36, 50)], _choices),
    Case("f32 A B", product(wd.f32, 1e-5, b_rows=False), WIDE, [(40, 36, 50)], _choices),
    Case("f32 3xtf32 A B", product(wd.f32, 1e-5, "3xtf32", b_rows=False), WIDE, [(40, 36, 52)], _choices),
    Case("f64", product(wd.f64, 1e-12), [*WIDE, *FEW], [(40, 36, 50)], _choices),
)
