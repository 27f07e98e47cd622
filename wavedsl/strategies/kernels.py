"""The kernels behind the strategies. Each is made for dtypes, tiles and layout, and kept.

All compute in the accumulator's dtype and round once on the way out. `b_rows`: B is [N, K] (rows are columns of the
product), else [K, N]. `beta`: C is read and scaled; without it C may hold anything.
"""

# Annotations of kernels are expressions over symbols, which type checkers take for types.
# mypy: disable-error-code="valid-type, type-arg, misc, name-defined, operator"

from __future__ import annotations

import functools
from typing import Any

import wavedsl as wd
from wavedsl.ir.dtypes import DType
from wavedsl.ir.quick_dataclass import dataclass

M, N, K, P = wd.symbols("M N K P")
BM, BN, BK, WM, WN = wd.symbols("BM BN BK WM WN")


@dataclass(frozen=True)
class Form:
    """What a product kernel is made for. `precision`: of operands of f32 on matrix units, "tf32" or "3xtf32"; None
    multiplies operands as they are."""

    dtype: DType
    out: DType
    b_rows: bool = False
    beta: bool = False
    scaled: bool = True
    """Whether alpha is anything but 1."""
    precision: str | None = None

    @property
    def multiplied(self) -> DType:
        """The dtype that matrix instructions multiply."""
        return wd.tf32 if self.precision else self.dtype

    @property
    def promoted(self) -> bool:
        """Whether each trip's product starts from zero and is added to the sums by the vector units. Tensor cores cut
        their f32 sums instead of rounding them; with two tf32 numbers per operand that would be most of the error."""
        return self.precision == "3xtf32"

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


def plus_product(form: Form, x: Any, y: Any, acc: Any) -> Any:
    """acc + x y, one trip of a product."""
    if form.promoted:
        return acc + wd.mma(x, y, wd.Register[M, N, form.sums](0), precision=form.precision)
    return wd.mma(x, y, acc, precision=form.precision)


def store(form: Form, product: Any, c: Any, alpha: Any, beta: Any, asked: Asked = UNASKED) -> None:
    """alpha * product + beta * C in the accumulator's dtype, rounded once."""
    scaled = product * alpha if form.scaled else product
    if form.beta:
        scaled = wd.fma(wd.cast(wd.read(c, cache=asked.c), form.sums), beta, scaled)
    wd.write(wd.cast(scaled, form.out), c, cache=asked.c)


@functools.cache
def tiled(
    form: Form, tiles: tuple[int, int, int], waves: tuple[int, int, int], stages: int, m_fast: bool = True,
    split: int = 1, asked: Asked = UNASKED, prefetch: int = 0, workers: int = 0, dependent: bool = False,
    pairs: bool = False, by_registers: bool = False, joined: bool = False,
) -> Any:  # fmt: skip
    """A pipelined loop over K with tiles in shared memory; `waves` along M, N and K. `m_fast`: neighbouring workgroups
    share a tile of B. `stages` 0: as many as the compiler chooses. `prefetch`: steps by which tiles are brought into
    L2, 0 for not at all.

    `split`: workgroups that share the steps of an output tile. `workers`: workgroups to which the steps of all output
    tiles are dealt instead (stream-K), 0 for one workgroup per tile. `pairs`: neighbouring workgroups are a cluster, to
    which the tile that they share is multicast. `by_registers`: copies to shared memory pass through them. `joined`:
    the workgroups that share an output tile are a cluster, which adds their sums through shared memory.
    """
    cluster = (2 if pairs else 1, 1, split if joined else 1)
    schedule = wd.Schedule(
        stages=stages or None, prefetch=prefetch or None, split_k=None if workers else split, stream_k=workers or None,
        dependent=dependent or None, cluster=cluster if pairs or joined else None,
        direct_to_shared=False if by_registers else None,
    )  # fmt: skip
    along_k = [wd.WaveConstraint(K, BK / waves[2])] if waves[2] > 1 else []
    a_type, b_type, c_type = form.arrays(wd.SHARED)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0 if m_fast else 1),
            wd.WorkgroupConstraint(N, BN, 1 if m_fast else 0),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
            *along_k,
        ],
        subs={BM: tiles[0], BN: tiles[1], BK: tiles[2], WM: tiles[0] // waves[0], WN: tiles[1] // waves[1]},
        schedule=schedule,
    )
    def gemm_tiled(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        start = wd.Register[M, N, form.sums](0)

        @wd.iterate(K, init_args=[start])
        def over_k(acc: wd.Register[M, N, form.sums]):
            return plus_product(form, wd.read(a, cache=asked.a), wd.read(b, cache=asked.b), acc)

        store(form, over_k, c, alpha, beta, asked)

    return gemm_tiled


@functools.cache
def parts(
    form: Form, tiles: tuple[int, int, int], waves: tuple[int, int], m_fast: bool = True, asked: Asked = UNASKED
) -> Any:  # fmt: skip
    """Products of P parts of K, each by workgroups of its own: A is [M, P, K], B [N, P, K] or [P, K, N], what comes out
    [P, M, N] in the accumulator's dtype. `added` makes C of it, and may begin when the last tiles are on their way.

    No clusters: memory and L2 bound these, and two workgroups that wait for one another's slots lose more than the
    half of a tile that they share saves (H200, 256 x 256 x 65536: 22 us, 25 in pairs; in fours 32)."""
    a_type = wd.Memory[M, P, K, wd.SHARED, form.dtype]
    inner = (N, P, K) if form.b_rows else (P, K, N)
    b_dims = (*inner, wd.SHARED, form.dtype)
    b_type = wd.Memory[b_dims]

    @wd.wave(
        [
            wd.WorkgroupConstraint(P, 1, 2),
            wd.WorkgroupConstraint(M, BM, 0 if m_fast else 1),
            wd.WorkgroupConstraint(N, BN, 1 if m_fast else 0),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={BM: tiles[0], BN: tiles[1], BK: tiles[2], WM: tiles[0] // waves[0], WN: tiles[1] // waves[1]},
        schedule=wd.Schedule(split_k=1, dependent=True, cluster=(1, 1, 1)),
    )
    def gemm_parts(a: a_type, b: b_type, sums: wd.Memory[P, M, N, form.sums]):
        @wd.iterate(K, init_args=[wd.Register[M, N, form.sums](0)])
        def over_k(acc: wd.Register[M, N, form.sums]):
            return plus_product(form, wd.read(a, cache=asked.a), wd.read(b, cache=asked.b), acc)

        wd.write(over_k, sums)

    return gemm_parts


ADDED_ROWS, ADDED_COLUMNS, ADDED_WAVES = 4, 128, 4
"""Rows and columns of a workgroup that adds parts, and its waves along the rows: a lane has 4 neighbours of one row."""


@functools.cache
def added(form: Form, count: int, asked: Asked = UNASKED) -> Any:
    """C of the sums of `count` parts, in their order: all loads of a lane are on their way together."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(N, BN, 0),
            wd.WorkgroupConstraint(M, BM, 1),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, BN),
            wd.HardwareConstraint(waves_per_block=(1, ADDED_WAVES, 1)),  # none of them share parts
        ],
        subs={P: count, BM: ADDED_ROWS, BN: ADDED_COLUMNS, WM: ADDED_ROWS // ADDED_WAVES},
        schedule=wd.Schedule(dependent=True),
    )
    def gemm_added(
        sums: wd.Memory[P, M, N, form.sums], c: wd.Memory[M, N, form.out], alpha: wd.Scalar[form.sums],
        beta: wd.Scalar[form.sums],
    ):  # fmt: skip
        store(form, wd.sum(wd.read(sums), dim=P), c, alpha, beta, asked)

    return gemm_added


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
        product = wd.mma(x, y, wd.Register[M, N, form.sums](0), precision=form.precision)
        store(form, product, c, alpha, beta, asked)

    return gemm_one_pass


@functools.cache
def gemv(
    form: Form, columns: int, depth: int, waves: int, asked: Asked = UNASKED, split: int = 1, dependent: bool = False,
    whole: bool = False,
) -> Any:  # fmt: skip
    """A few rows of A against all of B, which streams once: multiply-adds, no matrix instruction. M stays whole; lanes,
    and `waves` of a workgroup, keep their parts of the sums until behind the loop. `split`: workgroups that share the
    trips of the same columns. `dependent`: launches may overlap. `whole`: no waves share the columns."""
    a_type, b_type, c_type = form.arrays(wd.GLOBAL)
    alone = [wd.WaveConstraint(N, BN)] if whole else []

    @wd.wave(
        [wd.WorkgroupConstraint(N, BN, 0), wd.TilingConstraint(K, BK), wd.WaveConstraint(K, BK / waves), *alone],
        subs={BN: columns, BK: depth},
        schedule=wd.Schedule(split_k=split, dependent=dependent or None),
    )
    def gemm_gemv(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[form.sums], beta: wd.Scalar[form.sums]):
        start = wd.Register[M, N, form.sums](0)

        @wd.iterate(K, init_args=[start])
        def over_k(acc: wd.Register[M, N, form.sums]):
            rows = wd.cast(wd.read(a, cache=asked.a), form.sums)
            return acc + wd.sum(rows * wd.cast(wd.read(b, cache=asked.b), form.sums), dim=K)

        store(form, over_k, c, alpha, beta, asked)

    return gemm_gemv
