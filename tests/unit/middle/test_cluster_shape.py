"""Shapes of clusters: who shares a tile with whom, who brings which part, who has to be told of what has been read."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from wavedsl.codegen.ptx import target as ptx_target
from wavedsl.ir.grid.cluster_shape import Axes, ClusterShape
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_eval import evaluate
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.kernel.kernel_ir import Region as Body

THREADS = 256
"""At once: each stands for a workgroup, its number for the rank."""
SHAPES = [(1, 1), (2, 1), (1, 4), (2, 2), (4, 2), (2, 4), (3, 2), (2, 3), (8, 1), (1, 8)]


class Ranks(Builder):
    """Takes the workgroup's number for its rank."""

    def cluster_rank(self) -> Any:
        return self.wgid(0)


def by_rank(shape: ClusterShape, wanted: Any) -> list[list[int]]:
    """For each rank what `wanted`, given a builder, returns: a list of numbers."""
    kernel = Kernel("ranks", "sm_90a", [], Body(), 32, THREADS // 32)
    kernel.grid = (shape.count, 1, 1)
    b = Ranks(kernel, ptx_target.target("sm_90a"))
    found = wanted(b)
    b.finish()
    ranks = np.arange(THREADS) % shape.count
    values = evaluate(kernel, {}, (ranks, 0, 0))
    columns = [np.full(THREADS, x) if isinstance(x, int) else values[x] for x in found]
    return [[int(column[rank]) for column in columns] for rank in range(shape.count)]


def kinds_of(shape: ClusterShape) -> list[Axes]:
    return [axes for size in (1, 2) for axes in combinations(shape.long, size)]


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_tiles_are_cut_among_those_that_receive_them(sizes: tuple[int, int]) -> None:
    shape = ClusterShape(sizes)
    x, _ = sizes
    for axes in kinds_of(shape):
        found = by_rank(shape, lambda b, axes=axes: [shape.receivers(b, axes), shape.share(b, axes)])
        for rank, (mask, _) in enumerate(found):
            fixed = [axis for axis in (0, 1) if axis not in axes]
            group = [
                r for r in range(shape.count) if all((r % x, r // x)[i] == (rank % x, rank // x)[i] for i in fixed)
            ]
            assert mask == sum(1 << r for r in group)
            assert sorted(found[r][1] for r in group) == list(range(shape.along(axes)))


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_everyone_whose_copies_land_here_is_told_once(sizes: tuple[int, int]) -> None:
    """Whatever the tiles of a ring share: the workgroups that a slot's reader tells are those that write into it, each
    of them once, and as many as its barrier waits for."""
    shape = ClusterShape(sizes)
    every = kinds_of(shape)
    assert shape.partners([]) == 1
    for kinds in [some for size in range(1, len(every) + 1) for some in combinations(every, size)]:
        count = shape.partners(kinds)
        told = by_rank(shape, lambda b, kinds=kinds, n=count: [shape.partner(b, b.i32(i), kinds) for i in range(n)])
        masks = by_rank(shape, lambda b, kinds=kinds: [shape.receivers(b, axes) for axes in kinds])
        for rank in range(shape.count):
            writers = {r for r in range(shape.count) if r == rank or any(mask >> rank & 1 for mask in masks[r])}
            assert sorted(told[rank]) == sorted(writers)
