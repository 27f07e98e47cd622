"""Which exchanges between lanes make stores of results cheaper, and that the results survive them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from wavedsl.codegen.amdgcn import get_target
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.layouts.bits import spec
from wavedsl.ir.layouts.convert import ConvertPlan, Swap, replay
from wavedsl.ir.layouts.layout import Layout, make_layout
from wavedsl.ir.lower.store_lanes import best_swaps, exchanged, store_clocks

import wavedsl as wd

M, N, K = wd.symbols("M N K")
GFX950 = get_target("gfx950")
FOURS = {"M": "l0 l1 l2 l3 l4", "N": "e0 e1 l5 e2 e3"}
"""Results of a 32 x 32 product of swapped operands; the same in runs of eight; two products of 16 x 16; rows of 128
bytes."""
EIGHTS = {"M": "l0 l1 l2 l3 l4", "N": "e0 e1 e2 l5 e3"}
SIXTEEN = {"M": "l0 l1 l2 l3", "N": "e0 e1 l4 l5 e2"}
WHOLE = {"M": "l3 l4 l5 e3", "N": "e0 e1 e2 l0 l1 l2"}


def setting(bits: dict[str, str], dtype: wd.DType) -> tuple[ArrayInfo, Layout, dict[str, DimPlan]]:
    layout = make_layout(spec(bits))
    sizes = dict(layout.extents)
    info = ArrayInfo("c", 0, (M, N), dtype, (4096 * dtype.bytes, dtype.bytes), (4096, 4096))
    return info, layout, {str(d): DimPlan(d, "workgroup", 4096, sizes[str(d)], sizes[str(d)]) for d in (M, N)}


CASES = [
    # bits, dtype, clocks of a wave's stores, exchanges, clocks then
    (FOURS, wd.f16, 4 * 32, ((2, 4), (3, 5)), 2 * 16),
    (EIGHTS, wd.f16, 2 * 32, ((3, 4),), 2 * 16),
    (FOURS, wd.f32, 4 * 32, ((2, 4),), 4 * 16),
    (SIXTEEN, wd.f16, 2 * 16, ((2, 4),), 16),
    (WHOLE, wd.f16, 2 * 16, (), 2 * 16),
]


@pytest.mark.parametrize(("bits", "dtype", "before", "swaps", "after"), CASES, ids=lambda x: str(x)[:24])
def test_exchanges_that_pay(
    bits: dict[str, str], dtype: wd.DType, before: int, swaps: tuple[tuple[int, int], ...], after: int
) -> None:
    info, layout, plans = setting(bits, dtype)
    assert store_clocks(info, layout, plans, GFX950) == before
    found = best_swaps(info, layout, plans, GFX950, 8, 32 // dtype.bits)
    assert sorted(lane for _, lane in found) == sorted(lane for _, lane in swaps)
    assert store_clocks(info, exchanged(layout, found), plans, GFX950) == after


@pytest.mark.parametrize("swaps", [(), ((0, 4),), ((3, 5), (1, 4))])
def test_the_layout_is_that_of_the_exchanges(swaps: tuple[tuple[int, int], ...]) -> None:
    layout = make_layout(spec(FOURS))
    held = np.arange(32 * 32).reshape(1, 64, 16)
    moved = replay(ConvertPlan("lane exchange", tuple(Swap(*x) for x in swaps)), held)
    other = exchanged(layout, swaps)
    at = {int(held[0, lane, e]): place(layout, lane, e) for lane in range(64) for e in range(16)}
    assert all(at[int(moved[0, lane, e])] == place(other, lane, e) for lane in range(64) for e in range(16))


def place(layout: Layout, lane: int, element: int) -> tuple[int, ...]:
    inner = layout.inner
    number = {"e": element, "l": lane}
    out = [0, 0]
    for i, d in enumerate(("M", "N")):
        for name, column in zip(("e0 e1 e2 e3 l0 l1 l2 l3 l4 l5").split(), inner.coordinate_columns(d)):
            out[i] ^= column if number[name[0]] >> int(name[1]) & 1 else 0
    return tuple(out)


def product(dtype: wd.DType, out: wd.DType, b_order: tuple[Any, Any], c_order: tuple[Any, Any]) -> Any:
    constraints = [
        wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32),
        wd.WaveConstraint(M, 32), wd.WaveConstraint(N, 32),
    ]  # fmt: skip

    @wd.wave(constraints)
    def gemm(
        a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[(*b_order, wd.SHARED, dtype)],
        c: wd.Memory[(*c_order, out)],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.cast(loop, out) if out is not wd.f32 else loop, c)

    return gemm


@pytest.mark.parametrize("sizes", [(64, 64, 64), (77, 45, 50), (70, 68, 32)], ids=str)
@pytest.mark.parametrize("order", ["NK MN", "KN MN", "NK NM"])
@pytest.mark.parametrize("out", [wd.f32, wd.f16, wd.f8e4m3], ids=str)
def test_products_are_exact(sizes: tuple[int, int, int], order: str, out: wd.DType) -> None:
    m, n, k = sizes
    random = np.random.default_rng(5)
    a, b = (random.integers(-1, 2, x).astype(np.float16) for x in ((m, k), (n, k)))
    a[:, 8:] = 0  # what f8 holds exactly
    want = a.astype(np.float32) @ b.astype(np.float32).T
    b_order, c_order = ((N, K) if order[:2] == "NK" else (K, N)), ((M, N) if order[3:] == "MN" else (N, M))
    given = b if order[:2] == "NK" else np.ascontiguousarray(b.T)
    c = np.full((m, n) if order[3:] == "MN" else (n, m), 9, out.storage)
    made = product(wd.f16, out, b_order, c_order).compile(a, given, c, target="gfx950")
    made.emulate(a, given, c)
    assert np.array_equal(c.astype(np.float32), want if order[3:] == "MN" else want.T)


@pytest.mark.parametrize("order", ["NK", "KN"])
def test_a_store_touches_16_rows(order: str) -> None:
    """f16 results of 32 x 32 a wave: two stores of 16 bytes a lane; other chips exchange nothing."""
    arrays = [np.zeros((64, 64), np.float16) for _ in range(3)]
    kernel = product(wd.f16, wd.f16, (N, K) if order == "NK" else (K, N), (M, N))
    text = kernel.compile(*arrays, target="gfx950").asm
    assert re.findall(r"buffer_store_\w+", text) == ["buffer_store_dwordx4"] * 2
    swaps = [len(re.findall(rf"v_permlane{n}_swap", text)) for n in (16, 32)]
    assert swaps == ([4, 0] if order == "NK" else [4, 4])
    assert "permlane" not in kernel.compile(*arrays, target="gfx942").asm
