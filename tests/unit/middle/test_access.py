"""Vector widths and element groups of array accesses."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.access import below
from wavedsl.ir.addresses.vectors import element_groups, vector_elements
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.ir.kernel.kernel_ir import Param
from wavedsl.ir.layouts.bits import spec
from wavedsl.ir.layouts.layout import Layout

from wavedsl.targets import get_target

LAYOUT = Layout(spec(M="l3 l4 l5", N="e0 e1 e2 l0 l1 l2"), (), (("M", 8), ("N", 64)))


def width(*, strides=(128, 2), align=16, extents=(8, 64), tile=64, dtype=dt.f16, layout=LAYOUT):
    info = ArrayInfo("a", 0, ("M", "N"), dtype, strides, extents, align)
    plans = {
        "M": DimPlan("M", "workgroup", extents[0], 8, 8, 0),
        "N": DimPlan("N", "workgroup", extents[1], tile, tile, 1),
    }
    return vector_elements(info, layout, plans)[0]


@pytest.mark.parametrize(
    ("case", "elements"),
    [
        ({}, 8),
        ({"align": 8}, 4),
        ({"align": 2}, 1),
        ({"strides": (130, 2)}, 1),
        ({"strides": (136, 2)}, 4),
        ({"strides": (128, 4)}, 1),
        ({"strides": (2, 16)}, 1),
        ({"extents": (8, 60)}, 4),
        ({"extents": (8, 63)}, 1),
        ({"extents": (8, 128)}, 8),
        ({"dtype": dt.f32, "strides": (256, 4)}, 4),
    ],
)
def test_width(case, elements):
    """16 bytes at most, and never more than pointer, row pitch, extent and the lane's own run allow."""
    assert width(**case) == elements


def test_a_run_the_lane_does_not_hold_is_not_a_vector():
    across = Layout(spec(M="e0 e1 e2", N="l0 l1 l2 l3 l4 l5"), (), (("M", 8), ("N", 64)))
    assert width(layout=across) == 1


def test_groups_partition_the_elements():
    inner = LAYOUT.inner
    bits = [b for b, c in zip(inner.ins, inner.coordinate_columns("N")) if c in (1, 2)]
    groups = element_groups(LAYOUT, bits)
    assert groups == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert sorted(e for g in element_groups(LAYOUT, []) for e in g) == list(range(8))


@pytest.mark.parametrize(("name", "kept"), [("sm_90a", 1), ("gfx942", 7)])
@pytest.mark.parametrize("known", [True, False])
def test_elements_share_what_a_bound_is_compared_with_where_there_are_no_scalar_registers(name, kept, known):
    """`lane + offset < limit` of eight elements: one difference and constants, or a scalar number per offset. As with
    scalar registers where the difference may wrap."""
    params = [Param("y", "pointer", dt.i32, 0, 8, access="write"), Param("n", "scalar", dt.i32, 8, 4)]
    target = get_target(name)
    kernel = new_kernel("below", name, waves=1, params=params, grid=(1, 1, 1))
    b = Builder(kernel, target)
    limit = b.param(1, lo=-1000, hi=1000) if known else b.param(1)
    number = b.const(0)
    for offset in range(0, 64, 8):
        number = b.add(b.shl(number, 1), b.select(below(b, b.lane(), offset, limit), 1, 0))
    b.store_global(b.buffer(b.param(0), target.wave_size * 4), b.mul(b.lane(), 4), number)
    kernel = b.finish()
    compared = {op.args for op in kernel.body.walk() if op.name == "cmp"}
    made = {x for args in compared for x in args if x.op.name in ("sub", "add")}
    assert len(made) == (kept if known else 7)
    lanes = np.arange(target.wave_size)
    for n in (-5, 0, 1, 31, 40, 200):
        y = np.zeros(target.wave_size, np.int32)
        run(kernel, [y, n])
        assert np.array_equal(y, sum(((lanes + 8 * i < n) << (7 - i)) for i in range(8)))
