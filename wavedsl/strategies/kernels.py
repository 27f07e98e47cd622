"""The kernels behind the strategies. Each is made for dtypes, tiles and layout, and kept.

All compute in the accumulator's dtype and round once on the way out. `b_rows`: B is [N, K] (rows are columns of the
product), else [K, N]. `beta`: C is read and scaled; without it C may hold anything. `partial`: K is cut into P slices
(a dimension of A, B and the output of its own), each summed by workgroups of its own into W[P, M, N] in the
accumulator's dtype; `sum_partials` adds the slices in order, so results do not depend on the order in which
workgroups run.
"""

# Annotations of kernels are expressions over symbols, which type checkers take for types.
# mypy: disable-error-code="valid-type, type-arg, misc, name-defined, operator"

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import wavedsl as wd
from wavedsl.ir.dtypes import DType

M, N, K, P = wd.symbols("M N K P")
BM, BN, BK, WM, WN = wd.symbols("BM BN BK WM WN")


@dataclass(frozen=True)
class Form:
    """What a product kernel is made for."""

    dtype: DType
    out: DType
    b_rows: bool = False
    beta: bool = False
    partial: bool = False

    @property
    def sums(self) -> DType:
        """The accumulator's dtype."""
        if self.dtype.is_int:
            return wd.i32
        return wd.f64 if self.dtype is wd.f64 else wd.f32

    def arrays(self, space: Any) -> tuple[Any, Any, Any]:
        """Annotations of A, B and C (or W), A and B in an address space."""
        slices = (P,) if self.partial else ()
        inner = (K, N) if not self.b_rows else (N, K)
        b_dims = (*slices, *inner) if not self.b_rows else (N, *slices, K)
        a = (M, *slices, K, space, self.dtype)
        b = (*b_dims, space, self.dtype)
        c = (*slices, M, N, self.sums if self.partial else self.out)
        return wd.Memory[a], wd.Memory[b], wd.Memory[c]

    @property
    def constraints(self) -> list[Any]:
        """The slices of K are an index dimension."""
        return [wd.WorkgroupConstraint(P, 1, 2)] if self.partial else []


def store(form: Form, product: Any, c: Any, alpha: Any, beta: Any) -> None:
    """alpha * product + beta * C in the accumulator's dtype, rounded once; a partial sum as it is."""
    if form.partial:
        wd.write(product, c)
        return
    scaled = product * alpha
    if form.beta:
        scaled = wd.fma(wd.cast(wd.read(c), form.sums), beta, scaled)
    wd.write(wd.cast(scaled, form.out), c)


@functools.cache
def tiled(form: Form, tiles: tuple[int, int, int], waves: tuple[int, int], stages: int, m_fast: bool = True) -> Any:
    """A pipelined loop over K with tiles in shared memory. `m_fast`: neighbouring workgroups share a tile of B."""
    a_type, b_type, c_type = form.arrays(wd.SHARED)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0 if m_fast else 1),
            wd.WorkgroupConstraint(N, BN, 1 if m_fast else 0),
            *form.constraints,
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={BM: tiles[0], BN: tiles[1], BK: tiles[2], WM: tiles[0] // waves[0], WN: tiles[1] // waves[1]},
        schedule=wd.Schedule(stages=stages),
    )
    def gemm_tiled(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        start = wd.Register[M, N, form.sums](0)

        @wd.iterate(K, init_args=[start])
        def over_k(acc: wd.Register[M, N, form.sums]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        store(form, over_k, c, alpha, beta)

    return gemm_tiled


@functools.cache
def one_pass(form: Form, tiles: tuple[int, int], waves: tuple[int, int]) -> Any:
    """All of K at once, straight from global memory: no loop, no pipeline, no barrier."""
    a_type, b_type, c_type = form.arrays(wd.GLOBAL)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            *form.constraints,
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={BM: tiles[0], BN: tiles[1], WM: tiles[0] // waves[0], WN: tiles[1] // waves[1]},
    )
    def gemm_one_pass(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        store(form, wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, form.sums](0)), c, alpha, beta)

    return gemm_one_pass


@functools.cache
def waves_along_k(form: Form, tile: int, depth: int, waves: int) -> Any:
    """One output tile per workgroup whose waves share K: each sums its part, then they add theirs in order.

    `depth`: elements of K that a workgroup takes, at least K's extent; a multiple of `waves`.
    """
    a_type, b_type, c_type = form.arrays(wd.GLOBAL)
    axis = 1 if form.partial else 2
    both = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)]

    @wd.wave(
        [
            *both,
            *form.constraints,
            wd.WorkgroupConstraint(K, BK, axis),
            wd.WaveConstraint(M, BM),
            wd.WaveConstraint(N, BN),
            wd.WaveConstraint(K, BK / waves),
        ],
        subs={BM: tile, BN: tile, BK: depth},
    )
    def gemm_waves_along_k(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        store(form, wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, form.sums](0)), c, alpha, beta)

    return gemm_waves_along_k


@functools.cache
def gemv(form: Form, columns: int, depth: int) -> Any:
    """A few rows of A against all of B, which streams once: multiply-adds, no matrix instruction. M stays whole."""
    a_type, b_type, c_type = form.arrays(wd.GLOBAL)

    @wd.wave(
        [wd.WorkgroupConstraint(N, BN, 0), *form.constraints, wd.TilingConstraint(K, BK)],
        subs={BN: columns, BK: depth},
    )
    def gemm_gemv(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        start = wd.Register[M, N, form.sums](0)

        @wd.iterate(K, init_args=[start])
        def over_k(acc: wd.Register[M, N, form.sums]):
            rows, columns = wd.cast(wd.read(a), form.sums), wd.cast(wd.read(b), form.sums)
            return acc + wd.sum(rows * columns, dim=K)

        store(form, over_k, c, alpha, beta)

    return gemm_gemv


@functools.cache
def sum_partials(form: Form, tiles: tuple[int, int]) -> Any:
    """C = alpha * (W[0] + W[1] + …) + beta * C, the slices in order."""
    slices = wd.Memory[P, M, N, form.sums]
    c_type = wd.Memory[M, N, form.out]
    whole = Form(form.dtype, form.out, form.b_rows, form.beta)

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 1), wd.WorkgroupConstraint(N, BN, 0), wd.TilingConstraint(P, 1)],
        subs={BM: tiles[0], BN: tiles[1]},
    )
    def gemm_sum_partials(w: slices, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        start = wd.Register[M, N, form.sums](0)

        @wd.iterate(P, init_args=[start])
        def over_slices(acc: wd.Register[M, N, form.sums]):
            return acc + wd.sum(wd.read(w), dim=P)

        store(whole, over_slices, c, alpha, beta)

    return gemm_sum_partials
