"""From a product's shape and a strategy to launches.

In: arrays, factors, a strategy or `auto`. Out: a `Plan`, a list of kernel launches on views of the arrays and on a
workspace of partial sums. Every plan gives the same bits on every run: no launch depends on the order of workgroups,
and partial sums are added in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from wavedsl.analysis.roofline import analyze_gemm, product_named
from wavedsl.analysis.strategy import GEMV_ROWS, GemmShape, TileChoice, choose_tiles
from wavedsl.binding import dtype_name
from wavedsl.ir.dtypes import ALL, DType
from wavedsl.ir.errors import ConstraintError, LaunchError
from wavedsl.ir.product import Product
from wavedsl.strategies import kernels
from wavedsl.strategies.kernels import Form

GEMM_STRATEGIES = (
    "auto", "shallow_k", "cache_persistent", "wave_parallel", "gemv", "skinny", "split_k", "stream_k",
)  # fmt: skip

WAVES_DEPTH = 256
"""Elements of K per workgroup whose waves share them: what the registers of four waves hold beside the sums."""
WAVES = 4
SPLIT_STEP = 64
"""Slices of K are multiples of this where K allows it: whole steps of the loop inside."""


@dataclass
class Launch:
    """One kernel on its arguments."""

    kernel: Any
    arguments: tuple[Any, ...]


@dataclass
class Plan:
    """What `matmul` runs. `strategy` is the one that was chosen, `why` the reason."""

    strategy: str
    why: str
    tiles: TileChoice
    launches: list[Launch] = field(default_factory=list)

    def run(self) -> None:
        """Launch in order."""
        for launch in self.launches:
            launch.kernel(*launch.arguments)


def matmul(
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_b: bool = False,
    strategy: str = "auto",
    product: str | Product | None = None,
) -> Plan:
    """C = alpha A B + beta C in place; A is [M, K], B is [K, N], or [N, K] with `transpose_b`. The plan that ran.

    Sums are f32 (f64 for f64, i32 for integers) and rounded once to C's dtype; with beta = 0, C is not read. `product`
    is the chip that the strategy is chosen for (default: the reference product of the arrays' device).
    """
    plan = plan_gemm(
        a, b, c, alpha=alpha, beta=beta, transpose_b=transpose_b, strategy=strategy, product=product
    )  # fmt: skip
    plan.run()
    return plan


def plan_gemm(
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_b: bool = False,
    strategy: str = "auto",
    product: str | Product | None = None,
) -> Plan:
    """The launches of `matmul`. Raises LaunchError for shapes that do not fit, ConstraintError for a strategy."""
    if strategy not in GEMM_STRATEGIES:
        raise ConstraintError(f"unknown strategy {strategy!r}", hint=f"one of {', '.join(GEMM_STRATEGIES)}")
    m, n, k = _shape(a, b, c, transpose_b)
    form = Form(_dtype(a), _dtype(c), transpose_b, beta != 0)
    if product is None:
        from wavedsl.runtime.launch import target_of

        product = product_named(None, target_of({"a": a, "b": b, "c": c}))
    chip = product_named(product)
    if 0 in (m, n):
        return Plan(strategy, "nothing to compute", TileChoice(1, 1, 1, 1, 1, 1, 1, 0))
    if k == 0:  # an empty sum
        plan = Plan(strategy, "K = 0: alpha times nothing", TileChoice(1, 1, 1, 1, 1, 1, 1, 0))
        empty = _workspace(c, (1, m, n), form.sums)
        empty[...] = 0
        plan.launches.append(_summing(form, empty, c, alpha, beta))
        return plan
    record = analyze_gemm(m, n, k, form.dtype, product=chip, out=form.out, beta=form.beta)
    chosen = record.recommended_strategy if strategy == "auto" else strategy
    shape = GemmShape(m, n, k, form.dtype, form.out, form.beta)
    plan = Plan(chosen, record.why if strategy == "auto" else "asked for", choose_tiles(chosen, shape, chip))
    _BUILD[chosen](plan, form, chip, (a, b, c), (m, n, k), (_factor(form, alpha), _factor(form, beta)))
    return plan


def _factor(form: Form, value: float) -> Any:
    return int(value) if form.sums.is_int else float(value)


def _shape(a: Any, b: Any, c: Any, transpose_b: bool) -> tuple[int, int, int]:
    for name, array in (("a", a), ("b", b), ("c", c)):
        if len(getattr(array, "shape", ())) != 2:
            raise LaunchError(f"matmul: {name} has shape {getattr(array, 'shape', None)}", hint="pass matrices")
    m, k = a.shape
    n, other = b.shape if transpose_b else b.shape[::-1]
    if k != other or tuple(c.shape) != (m, n):
        want = f"[{n}, {k}]" if transpose_b else f"[{k}, {n}]"
        raise LaunchError(
            f"matmul: a is {tuple(a.shape)}, b {tuple(b.shape)} and c {tuple(c.shape)}",
            hint=f"b must be {want} and c [{m}, {n}]; a b that is [N, K] needs transpose_b=True",
        )
    return int(m), int(n), int(k)


def _dtype(array: Any) -> DType:
    name = dtype_name(array)
    found = next((d for d in ALL.values() if d.bits >= 8 and d.name != "tf32" and d.storage.name == name), None)
    if found is None:
        from wavedsl.binding import _TORCH

        found = _TORCH.get(name)
    if found is None:
        raise LaunchError(f"matmul: an array has dtype {name}", hint="f64, f32, f16, bf16, fp8 or i8")
    return found


def _workspace(like: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """An array where `like` lies. LaunchError for a package that this does not know."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype.storage)
    package = type(like).__module__.partition(".")[0]
    name = {"f32": "float32", "f64": "float64", "i32": "int32"}[dtype.name]
    if package == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, name), device=like.device)
    if package == "cupy":
        import cupy

        return cupy.empty(shape, dtype=name)
    raise LaunchError(f"matmul: no workspace for arrays of {package}", hint="pass NumPy, torch or CuPy arrays")


def _waves(tiles: TileChoice) -> tuple[int, int]:
    """At most 8 waves, of at least 16 rows and columns: what every chip holds beside the tiles."""
    waves_m, waves_n = max(1, min(tiles.waves_m, tiles.tile_m // 16)), max(1, min(tiles.waves_n, tiles.tile_n // 16))
    while waves_m * waves_n > 8:
        if waves_m >= waves_n:
            waves_m //= 2
        else:
            waves_n //= 2
    return waves_m, waves_n


def _depth(tiles: TileChoice, form: Form) -> int:
    """K per step: whole matrix instructions, 32 to 64 bytes of a row."""
    least = max(16, 64 * 8 // form.dtype.bits) if form.dtype.bits < 64 else 8
    return max(least, 1 << (max(tiles.tile_k, 1) - 1).bit_length())


def _summing(form: Form, w: Any, c: Any, alpha: Any, beta: Any) -> Launch:
    return Launch(kernels.sum_partials(form, (4, 256)), (w, c, _factor(form, alpha), _factor(form, beta)))


def _shallow(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    tiles = plan.tiles
    if sizes[2] > 64:
        raise ConstraintError(
            f"shallow_k: K = {sizes[2]} does not fit one pass", hint="at most 64; use cache_persistent"
        )
    plan.launches.append(
        Launch(kernels.one_pass(form, (tiles.tile_m, tiles.tile_n), _waves(tiles)), (*arrays, *factors))
    )


def _loop(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    """Cache-persistent and skinny: the shorter side runs fastest over the grid, so that it stays in L2."""
    plan.launches.append(Launch(_tiled(form, plan.tiles, chip, sizes[0] <= sizes[1]), (*arrays, *factors)))


def _tiled(form: Form, tiles: TileChoice, chip: Product, m_fast: bool = True) -> Any:
    """The pipelined kernel with as many stages as three quarters of the chip's shared memory hold: the rest is for
    padding."""
    from wavedsl.compiler import get_target

    cut = (tiles.tile_m, tiles.tile_n, _depth(tiles, form))
    stage = (cut[0] + cut[1]) * cut[2] * form.dtype.bits // 8
    stages = max(1, min(tiles.pipeline_stages, get_target(chip.target).shared_bytes * 3 // 4 // stage))
    return kernels.tiled(form, cut, _waves(tiles), stages, m_fast)


def _gemv(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    """For few columns instead of few rows the operands change places, by views."""
    a, b, c = arrays
    m, n, _ = sizes
    if m > n:
        # C^T = B^T A^T: B is then the left operand [N, K], A the right one with rows of K.
        a, b, c = (b if form.b_rows else b.T), a, c.T
        form = Form(form.dtype, form.out, True, form.beta)
        m, n = n, m
    if m > GEMV_ROWS:
        raise ConstraintError(f"gemv: {m} rows and {n} columns", hint=f"one side of at most {GEMV_ROWS}; use skinny")
    columns, depth = (16, 128) if form.b_rows else (64, 16)
    plan.launches.append(Launch(kernels.gemv(form, columns, depth), (a, b, c, *factors)))


def slices_of(k: int, wanted: int, step: int) -> tuple[int, int]:
    """(slices, elements of each): equal multiples of `step` where K has that many; the rest is left over."""
    if k < step:
        return 1, k
    count = max(1, min(wanted, k // step))
    return count, k // count // step * step


def _sliced(form: Form, arrays: Any, sizes: Any, count: int, each: int) -> tuple[list[tuple[Any, Any]], Any]:
    """Views of A and B: the equal slices as a dimension, then what is left of K; and the workspace for all of them."""
    a, b, c = arrays
    m, n, k = sizes
    used = count * each
    a_part = a[:, :used].reshape(m, count, each)
    b_part = b[:, :used].reshape(n, count, each) if form.b_rows else b[:used].reshape(count, each, n)
    pairs = [(a_part, b_part)]
    if used < k:
        left = k - used
        b_left = b[:, used:].reshape(n, 1, left) if form.b_rows else b[used:].reshape(1, left, n)
        pairs.append((a[:, used:].reshape(m, 1, left), b_left))
    return pairs, _workspace(c, (count + len(pairs) - 1, m, n), form.sums)


def _partials(
    plan: Plan, form: Form, kernel: Any, arrays: Any, sizes: Any, factors: Any, count: int, each: int
) -> None:
    """Slices of K into a workspace by `kernel(form, depth)`, then their sum."""
    partial = Form(form.dtype, form.out, form.b_rows, False, True)
    pairs, w = _sliced(form, arrays, sizes, count, each)
    for (a, b), out in zip(pairs, (w[:count], w[count:])):
        plan.launches.append(Launch(kernel(partial, int(a.shape[2])), (a, b, out, *factors)))
    plan.launches.append(_summing(form, w, arrays[2], *factors))


def _split(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    tiles = plan.tiles
    count, each = slices_of(sizes[2], max(2, tiles.split), SPLIT_STEP)

    _partials(plan, form, lambda partial, _: _tiled(partial, tiles, chip), arrays, sizes, factors, count, each)


def _wave_parallel(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    """Tiles spread over waves where there are enough for the chip; else the waves of a tile share K, and workgroups
    what of K one cannot hold."""
    m, n, k = sizes
    if 2 * ceil(m / plan.tiles.tile_m) * ceil(n / plan.tiles.tile_n) > chip.units:
        _loop(plan, form, chip, arrays, sizes, factors)
        return
    tile = 16 if min(m, n) <= 64 else 32
    quantum = WAVES * max(16, 1024 // form.dtype.bits)  # a multiple of every instruction's K
    deepest = max(1, WAVES_DEPTH * 256 // (tile * form.dtype.bits) // quantum) * quantum

    def kernel(partial: Form, depth: int) -> Any:
        return kernels.waves_along_k(partial, tile, ceil(depth / quantum) * quantum, WAVES)

    if k <= deepest:
        plan.launches.append(Launch(kernel(form, k), (*arrays, *factors)))
    else:
        _partials(plan, form, kernel, arrays, sizes, factors, k // deepest, deepest)


def _stream(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    """Whole rounds of output tiles as they are; the K steps of the tiles left over are dealt to all units."""
    a, b, c = arrays
    m, n, k = sizes
    tiles = plan.tiles
    columns = ceil(n / tiles.tile_n)
    rows = ceil(m / tiles.tile_m)
    whole = rows * columns // chip.units * chip.units // columns  # rows of tiles that fill whole rounds
    cut = min(m, whole * tiles.tile_m)
    if cut:
        _loop(plan, form, chip, (a[:cut], b, c[:cut]), (cut, n, k), factors)
    if cut < m:
        left = ceil((m - cut) / tiles.tile_m) * columns
        count, each = slices_of(k, max(1, chip.units // left), SPLIT_STEP)
        rest = (a[cut:], b, c[cut:])
        _partials(plan, form, lambda f, _: _tiled(f, tiles, chip), rest, (m - cut, n, k), factors, count, each)


_BUILD = {
    "shallow_k": _shallow,
    "cache_persistent": _loop,
    "skinny": _loop,
    "gemv": _gemv,
    "split_k": _split,
    "wave_parallel": _wave_parallel,
    "stream_k": _stream,
}
