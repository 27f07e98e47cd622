"""Many products in one launch: the rows of A are those of all groups, one group after the other, each with a B of its
own (experts of a mixture, ragged batches).

    grouped_matmul(tokens, weights, out, sizes=[70, 0, 130, 5])      # weights: [groups, K, N]

The rows of every group are cut into blocks, and workgroups read from a table whose block they have: where its rows
start, how many there are, which B they meet. Blocks start at any row, so that nothing is padded or copied in memory;
what a block reads beyond its group are rows of the next, which meet the wrong B and are not stored. An empty group has
no block.
"""

# Annotations of kernels are expressions over symbols, which type checkers take for types.
# mypy: disable-error-code="valid-type, type-arg, misc, name-defined, operator"

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

import wavedsl as wd
from wavedsl.analysis.strategy import TileChoice
from wavedsl.ir.errors import LaunchError
from wavedsl.ir.product import Product
from wavedsl.ir.source import here
from wavedsl.strategies import matrix_cuts, warpgroups
from wavedsl.strategies.caching import MOST_STAGES, deep_enough, depth, runs_ahead
from wavedsl.strategies.kernels import Form
from wavedsl.strategies.plan import (
    Launch,
    Plan,
    check_factors,
    chip_of,
    depth_of,
    dtype_of,
    factor,
    multiplied_by_units,
    operands_dtype,
    waves_of,
    with_gemm_options,
)  # fmt: skip
from wavedsl.strategies.rooms import filled
from wavedsl.targets import get_target

T, G, R, E, M, N, K = wd.symbols("T G R E M N K")
BM, BN, BK, WM, WN = wd.symbols("BM BN BK WM WN")

ROWS = (16, 32, 64, 128)
"""Rows of a block: the fewest that hold the average group. Where bulk copies bring operands, `warpgroups.best_blocks`
chooses instead."""
COLUMNS = (64, 128)
"""Columns of a block; the wide one where instructions read their operands from shared memory, so that registers hold
little but sums."""
STAGES = 4
"""Stages at least, where copies run ahead and shared memory holds them; more where the chip needs more in flight
(`caching.depth`). Copies that pass by registers run one trip ahead whatever there is: a third slot only takes room from
another workgroup."""


@with_gemm_options
def grouped_matmul(
    a: Any,
    b: Any,
    c: Any,
    sizes: Sequence[int],
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_b: bool = False,
    product: str | Product | None = None,
) -> Plan:
    """C[rows of g] = alpha A[rows of g] B[g] + beta C[rows of g] for every group g, in one launch. The plan that ran.

    A is [rows, K], B is [groups, K, N], or [groups, N, K] with `transpose_b`, C is [rows, N]; `sizes` has the rows of
    each group, on the host, and adds up to `rows`. Sums and rounding as for `matmul`.
    """
    plan = plan_grouped(a, b, c, sizes, alpha=alpha, beta=beta, transpose_b=transpose_b, product=product)
    plan.run()
    return plan


@with_gemm_options
def plan_grouped(
    a: Any,
    b: Any,
    c: Any,
    sizes: Sequence[int],
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_b: bool = False,
    product: str | Product | None = None,
) -> Plan:
    """The launch of `grouped_matmul`. Raises LaunchError for shapes or sizes that do not fit."""
    counts = _counts(sizes)
    n = _columns(a, b, c, counts, transpose_b)
    dtype = operands_dtype("grouped_matmul", a, b)
    multiplied_by_units("grouped_matmul", dtype)
    form = Form(dtype, dtype_of("c", c), transpose_b, beta != 0)
    check_factors("grouped_matmul", form, alpha, beta)
    chip = chip_of(product, a, b, c)
    used, k = [x for x in counts if x], int(a.shape[1])
    average = sum(used) / max(1, len(used))
    best = warpgroups.best_blocks(form, counts, n, k, chip) if used and n and _bulk(form, n, k, chip) else None
    found = None
    if best is not None:
        rows, columns, deep = best.tile
        tiles = TileChoice(rows, columns, deep, 0, *best.waves, 1, 0)
    else:
        rows = next((x for x in ROWS if x >= average), ROWS[-1])
        wide = get_target(chip.target).warpgroup is not None and n > COLUMNS[0]
        columns = COLUMNS[wide]
        waves = max(1, rows // 32), columns // 32
        stages = STAGES if runs_ahead(chip) else 2
        tiles = TileChoice(rows, columns, 128 * 8 // form.dtype.bits, stages, *waves, 1, stages - 1)
        found = matrix_cuts.better_blocks(form, counts, n, k, tiles, chip) if used and n and k else None
        if found is not None:
            rows, columns, tiles = found.tile_m, found.tile_n, found
    plan = Plan("grouped", f"{len(counts)} groups of {average:.0f} rows on average", tiles)
    if not used or n == 0:
        return plan
    tables = blocks(counts, rows)
    groups = len(tables[0]) * ceil(n / columns)
    if best is not None:  # rings take what shared memory has
        plan.in_flight = depth(form, best.tile, groups, ceil(k / best.tile[2]), MOST_STAGES, 0, chip).in_flight
        kernel = grouped(form, best.tile, best.waves, 0)
    elif found is not None:
        cut = (rows, columns, depth_of(tiles, form))
        plan.in_flight = depth(form, cut, groups, ceil(k / cut[2]), max(2, tiles.pipeline_stages), 0, chip).in_flight
        kernel = grouped(form, cut, waves_of(tiles, form, chip), tiles.pipeline_stages)
    else:
        cut = deep_enough(form, (rows, columns, depth_of(tiles, form)), groups, k, chip)
        ahead = depth(form, cut, groups, max(1, ceil(k / cut[2])), tiles.pipeline_stages, 0, chip)
        plan.tiles = replace(
            tiles, tile_k=cut[2], pipeline_stages=ahead.stages, prefetch_distance=max(ahead.stages - 1, ahead.prefetch)
        )
        plan.in_flight = ahead.in_flight
        kernel = grouped(form, cut, waves_of(tiles, form, chip), ahead.stages, ahead.prefetch)
    table = [filled(c, column) for column in tables]
    plan.launches.append(Launch(kernel, (a, b, *table, c, factor(form, alpha), factor(form, beta))))
    return plan


def _counts(sizes: Any) -> list[int]:
    """Rows of each group as whole numbers. Raises LaunchError for what is none."""
    try:
        return [operator.index(n) for n in sizes]
    except TypeError:
        raise LaunchError(
            f"grouped_matmul: sizes={sizes!r}", here(calls=False), "rows of each group, whole numbers: [70, 0, 130]",
            "sizes",
        ) from None  # fmt: skip


def _bulk(form: Form, n: int, k: int, chip: Product) -> bool:
    """Whether warpgroups multiply what bulk copies bring: rows of A and B are multiples of 16 bytes."""
    rows = [k] if form.b_rows else [k, n]
    return warpgroups.suits(form, (1, n, k), chip) and all(x * form.dtype.bits % 128 == 0 for x in rows)


def blocks(sizes: Sequence[int], rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per block of at most `rows` rows: its group, its first row, how many rows it has."""
    found = []
    start = 0
    for group, size in enumerate(sizes):
        found += [(group, start + at, min(rows, size - at)) for at in range(0, size, rows)]
        start += size
    table = np.array(found, np.int32).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


@functools.cache
def grouped(form: Form, tiles: tuple[int, int, int], waves: tuple[int, int], stages: int, prefetch: int = 0) -> Any:
    """A block of rows of one group by a tile of its columns per workgroup. Columns run fastest: workgroups side by side
    have the same rows of A, which one copy brings to two of them, and the blocks of a group follow each other while its
    B is in L2. `stages` 0: as many as the compiler chooses. `prefetch`: steps by which tiles are brought into L2, 0 for
    not at all."""
    inner = (N, K) if form.b_rows else (K, N)
    b_dims = (E, *inner, wd.SHARED, form.dtype)
    b_type = wd.Memory[b_dims]

    @wd.wave(
        [
            wd.WorkgroupConstraint(G, 1, 1),
            wd.WorkgroupConstraint(N, BN, 0),
            wd.WorkgroupConstraint(R, BM, 2),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(R, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={
            R: tiles[0], BM: tiles[0], BN: tiles[1], BK: tiles[2], WM: tiles[0] // waves[0], WN: tiles[1] // waves[1],
        },
        schedule=wd.Schedule(stages=stages or None, split_k=1, prefetch=prefetch or None, swizzle=False),
    )  # fmt: skip
    def gemm_grouped(
        a: wd.Memory[T, K, wd.SHARED, form.dtype],
        b: b_type,
        group: wd.Memory[G, wd.i32],
        first: wd.Memory[G, wd.i32],
        rows: wd.Memory[G, wd.i32],
        c: wd.Memory[T, N, form.out],
        alpha: wd.Scalar[form.sums],
        beta: wd.Scalar[form.sums],
    ):
        mine, count = wd.read(group), wd.read(rows)
        start = wd.maximum(wd.read(first), 0)  # none is negative: so the compiler knows, and stores by bulk copies
        whole = wd.IndexMapping((R, K), {T: wd.index(R) + start})
        inside = wd.IndexMapping((R, N), {T: wd.where(wd.index(R) < count, wd.index(R) + start, -1)})
        weights = wd.IndexMapping(inner, {E: mine})

        @wd.iterate(K, init_args=[wd.Register[R, N, form.sums](0)])
        def over_k(acc: wd.Register[R, N, form.sums]):
            return wd.mma(wd.read(a, mapping=whole), wd.read(b, mapping=weights), acc)

        scaled = over_k * alpha
        if form.beta:
            scaled = wd.fma(wd.cast(wd.read(c, mapping=inside), form.sums), beta, scaled)
        wd.write(wd.cast(scaled, form.out), c, mapping=inside)

    return gemm_grouped


def _columns(a: Any, b: Any, c: Any, sizes: Sequence[int], transpose_b: bool) -> int:
    """N, once everything fits together."""
    shapes = [tuple(getattr(x, "shape", ())) for x in (a, b, c)]
    if [len(s) for s in shapes] != [2, 3, 2]:
        raise LaunchError(
            f"grouped_matmul: a is {shapes[0]}, b {shapes[1]} and c {shapes[2]}",
            here(calls=False),
            hint="a is [rows, K], b one matrix per group, c [rows, N]",
        )
    (rows, k), (groups, *inner), (out_rows, n) = shapes
    if tuple(inner) != ((n, k) if transpose_b else (k, n)) or out_rows != rows:
        want = f"[groups, {n}, {k}]" if transpose_b else f"[groups, {k}, {n}]"
        raise LaunchError(
            f"grouped_matmul: a is {shapes[0]}, b {shapes[1]} and c {shapes[2]}",
            here(calls=False),
            hint=f"b must be {want} and c [{rows}, {n}]; matrices that are [N, K] need transpose_b=True",
        )
    if len(sizes) != groups or any(x < 0 for x in sizes) or sum(sizes) != rows:
        raise LaunchError(
            f"grouped_matmul: sizes has {len(sizes)} groups of {sum(sizes)} rows, but b has {groups} groups and a has "
            f"{rows} rows",
            here(calls=False),
            hint="one number of rows per group, none negative, that add up to the rows of a",
        )
    return int(n)
