"""Triton kernels of `rivals.py`, in a module of their own: Triton reads the source of what it compiles.

Operands of f32 are not cut to tf32, as cuBLAS does not by default.
"""

import triton
import triton.language as tl


@triton.jit
def place(tile, rows, columns, GROUP: tl.constexpr):
    """Row and column of a tile, walked in groups of rows."""
    first = tile // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    inside = tile % (GROUP * columns)
    return first + inside % height, inside // height


@triton.jit
def scaled_sum(a, b, c, n, alpha, beta, low, high, N: tl.constexpr, BLOCK: tl.constexpr):
    """The kernel of `launch.py`, whose launch is timed."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + at) * alpha + tl.load(b + at) * beta
    clamped = tl.minimum(tl.maximum(x, low.to(tl.float32)), high.to(tl.float32))
    tl.store(c + at, tl.where(at % N < n, clamped, x))


@triton.jit
def tiles(
    a, b, c, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    row, column = place(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    rows = row * BM + tl.arange(0, BM)
    columns = column * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + (rows % M)[:, None] * lda + inner[None, :]
    right = b + (columns % N)[None, :] * ldb + inner[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(left, mask=inner[None, :] < K - k * BK, other=0.0)
        y = tl.load(right, mask=inner[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
        left += BK
        right += BK
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * ldc + columns[None, :], acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def leave(c, acc, row, column, BM: tl.constexpr, BN: tl.constexpr, HALVES: tl.constexpr):
    """Stores a tile of results through a tensor map, with `HALVES` in two pieces."""
    if HALVES:
        left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
        c.store([row, column], left.to(c.dtype))
        c.store([row, column + BN // 2], right.to(c.dtype))
    else:
        c.store([row, column], acc.to(c.dtype))


@triton.jit
def persistent(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, UNITS: tl.constexpr,
    PRECISION: tl.constexpr = "ieee", HALVES: tl.constexpr = False, ROLES: tl.constexpr = False,
):
    """`HALVES`: results leave in two pieces, which leaves room for a stage more. `ROLES`: some warps load, others
    multiply."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN // 2 if HALVES else BN])
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, UNITS, flatten=not ROLES, warp_specialize=ROLES):
        row, column = place(tile, rows, columns, GROUP)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            x, y = left.load([row * BM, k * BK]), right.load([column * BN, k * BK])
            acc = tl.dot(x, y.T, acc, input_precision=PRECISION)
        leave(out, acc, row * BM, column * BN, BM, BN, HALVES)
