"""Loops that add products from zero: on sm_90a the product of a trip runs on while the next one's operands are made."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import products
import pytest
from products import K, M, N, numbers
from wavedsl.ir.dataflow.late_additions import late_additions

import wavedsl as wd
from wavedsl.targets import get_target

TILE = [wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 32)]


def added(precision: str | None, dtype: wd.DType, more: bool = False, waves: list[Any] | None = None) -> Any:
    """acc + a b, and with `more` the sum of a's rows beside it."""

    @wd.wave([*TILE, *([wd.WaveConstraint(M, 64)] if waves is None else waves)])
    def gemm(a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](1.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0.0), precision=precision) + acc

        wd.write(loop, c)

    @wd.wave([*TILE, wd.WaveConstraint(M, 64)])
    def two(a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], c: wd.Memory[M, N, wd.f32]):
        start = [wd.Register[M, N, wd.f32](0.0), wd.Register[M, N, wd.f32](1.0)]

        @wd.iterate(K, init_args=start)
        def loop(doubled, acc):
            x, y = wd.read(a), wd.read(b)
            part = wd.mma(x, y, wd.Register[M, N, wd.f32](0.0), precision=precision)
            return doubled + 2.0, acc + part

        wd.write(loop[1] + loop[0], c)

    return two if more else gemm


CASES = [("3xtf32", wd.f32), ("tf32", wd.f32), (None, wd.f8e4m3), (None, wd.bf16)]


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(("precision", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("size", [(130, 100, 160), (128, 128, 20)], ids=str)
def test_products_are_those_of_numpy(size, precision, dtype, more, oracle):
    m, n, k = size
    if k * dtype.bits % 128:
        k += -k % (128 // dtype.bits)
    a, b, c = numbers((m, k), dtype, 1, "whole"), numbers((n, k), dtype, 2, "whole"), np.zeros((m, n), np.float32)
    compiled = added(precision, dtype, more).compile(a, b, c, target="sm_90a")
    compiled.emulate(a, b, c)
    want = a.astype(np.float64) @ b.astype(np.float64).T + 1 + more * 2 * -(-k // 32)
    assert np.array_equal(c, want)
    products.assemble(compiled, oracle)


def test_the_product_runs_while_operands_are_made():
    """In a trip: an operand is split and stored, then the product of the trip before is waited for and added. The other
    operand, which registers hold, is split behind that in two pieces, the second while products of the first run."""
    a, b = (numbers((256, 512), wd.f32, seed, "whole") for seed in (1, 2))
    c = np.zeros((256, 256), np.float32)
    text = added("3xtf32", wd.f32).compile(a, b, c, target="sm_90a").asm
    trip = next(x for x in re.split(r"\n\$\w+:", text) if x.count("wgmma.mma_async") == 24)
    stored, met, waited, summed, split, fenced, started = (
        [m.start() for m in re.finditer(pattern, trip)]
        for pattern in (
            r"st\.shared", r"bar\.sync", r"wgmma\.wait_group\S* 0", r"add\.rn\.f32", r"sub\.rn\.f32", r"wgmma\.fence",
            r"wgmma\.mma_async",
        )
    )  # fmt: skip
    assert len(waited) == 1 and len(summed) == 64
    assert stored[-1] < met[0] < waited[0]  # nobody waits for products before the others' stores
    held = [x for x in split if x > waited[0]]
    assert len(held) == 32 and len(split) == 48
    assert waited[0] < summed[0] < summed[31] < held[0] < held[15] < fenced[0] < started[0]
    assert started[11] < summed[32] < summed[-1] < held[16] < held[-1] < fenced[1] < started[12]


def test_what_is_left_as_it_is():
    """Chips whose products wait, dtypes without such instructions, waves that share K, products that are used twice."""
    target = get_target("sm_90a")
    graph = added("3xtf32", wd.f32).trace()
    assert late_additions(graph, target) is not graph
    assert late_additions(graph, get_target("sm_80")) is graph
    along_k = added("3xtf32", wd.f32, waves=[wd.WaveConstraint(K, 16)])
    for other in (added(None, wd.f32), added("ieee", wd.f32), along_k):
        graph = other.trace()
        assert late_additions(graph, target) is graph

    @wd.wave(TILE)
    def twice(a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], c: wd.Memory[M, N, wd.f32]):
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero, zero])
        def loop(acc, last):
            part = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0.0))
            return acc + part, part

        wd.write(loop[0] + loop[1], c)

    graph = twice.trace()
    assert late_additions(graph, target) is graph
