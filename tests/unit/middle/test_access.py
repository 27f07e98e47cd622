"""Vector widths and element groups of array accesses."""

from __future__ import annotations

import pytest
from wavedsl.ir import dtypes as dt
from wavedsl.ir.access import element_groups, vector_elements
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.bits import spec
from wavedsl.ir.layout import Layout
from wavedsl.ir.partition import DimPlan

LAYOUT = Layout(spec(M="l3 l4 l5", N="e0 e1 e2 l0 l1 l2"), (), (("M", 8), ("N", 64)))


def width(*, strides=(128, 2), align=16, extents=(8, 64), tile=64, dtype=dt.f16, layout=LAYOUT):
    info = ArrayInfo("a", 0, ("M", "N"), dtype, strides, extents, align)
    plans = {
        "M": DimPlan("M", "workgroup", extents[0], 8, 8, 0),
        "N": DimPlan("N", "workgroup", extents[1], tile, tile, 1),
    }
    return vector_elements(info, layout, plans, False)[0]


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
