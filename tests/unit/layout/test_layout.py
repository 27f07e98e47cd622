"""Layouts with digits: bijective exactly when enumeration says so; offsets, projection, sizes beyond powers of two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import spec
from wavedsl.ir.layouts.layout import Digit, Layout, make_layout

FEW = st.integers(1, 4)
D16 = spec(M="e0 e1 l4 l5", N="l0 l1 l2 l3")


def covers(layout: Layout, extents: dict[str, int]) -> bool:
    """By enumeration: every element of the extents is held, each by `replicas` of the (wave, lane, element)."""
    points = layout.points().reshape(-1, len(layout.dims))
    limits = np.array([extents[d] for d in layout.dims])
    if np.any(points >= limits):
        return False
    counts = np.zeros(limits, int)
    np.add.at(counts, tuple(points.T), 1)
    return bool(np.all(counts == layout.replicas))


REG11, WAVE3 = Digit("reg", 11, "N", 1), Digit("wave", 3, "M", 1)
MIXED = (Digit("wave", 5, "M", 1), Digit("reg", 3, "N", 1), Digit("wave", 2, "N", 3))
SIZES = {
    "wave 48x176, 3 wave rows": (make_layout(D16, (REG11, WAVE3)), {"M": 48, "N": 176}, True),
    "96 = 3*32": (make_layout(spec(M="l0 l1 l2 r0", K="e0"), (Digit("reg", 6, "M", 1),)), {"M": 96, "K": 2}, True),
    "80 = 5*16 by registers and waves": (make_layout(D16, MIXED), {"M": 80, "N": 96}, True),
    "a gap": (Layout(D16, (Digit("reg", 11, "N", 2),), (("M", 16), ("N", 176))), {"M": 16, "N": 176}, False),
    "an overlap": (
        Layout(D16, (Digit("reg", 2, "N", 1), Digit("wave", 2, "N", 1)), (("M", 16), ("N", 64))),
        {"M": 16, "N": 64},
        False,
    ),
    "one element short": (make_layout(D16), {"M": 16, "N": 17}, False),
    "replicas": (make_layout(spec(M="l0 l1", free="l4 l5"), (Digit("wave", 3, "", 0),)), {"M": 4}, True),
    "two lanes on one element": (make_layout(spec(M="l0^l1 e0")), {"M": 4}, False),
}


@pytest.mark.parametrize("name", SIZES)
def test_bijective_agrees_with_enumeration(name: str) -> None:
    layout, extents, expected = SIZES[name]
    assert layout.bijective(extents) is expected
    assert covers(layout, extents) is expected


@given(
    st.permutations(["e0", "e1", "l0", "l1", "l2", "w0"]),
    st.integers(1, 5),
    st.lists(st.builds(Digit, st.sampled_from(["reg", "wave"]), FEW, st.sampled_from("MN"), FEW), max_size=3),
)
def test_random_digits_are_judged_as_enumeration_does(bits: list[str], cut: int, digits: list[Digit]) -> None:
    inner = spec(M=" ".join(bits[:cut]), N=" ".join(bits[cut:]))
    layout = make_layout(inner, tuple(digits))
    assert layout.bijective() == covers(layout, dict(layout.extents))


@given(st.permutations(["e0", "r0", "l0", "l1", "w0"]), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_static_offsets_add_up_to_the_table(bits: list[str], cut: int, reg: int, wave: int) -> None:
    inner = spec(M=" ".join(bits[:cut]), N=" ".join(bits[cut:]))
    layout = make_layout(inner, (Digit("reg", reg, "M", wave), Digit("wave", wave, "M", 1)))
    table = layout.table()
    assert table["M"].shape == (layout.waves, layout.lanes, layout.elements_per_lane)
    for d, dim in enumerate(layout.dims):
        lane = np.zeros(layout.lanes, int)
        for i, c in enumerate(layout.lane_columns(dim)):
            lane ^= (np.arange(layout.lanes) >> i & 1) * c
        waves = np.array([w[d] for w in layout.wave_offsets()])
        elements = np.array([e[d] for e in layout.element_offsets()])
        assert np.array_equal(table[dim], waves[:, None, None] + lane[None, :, None] + elements[None, None, :])
    for index in range(layout.elements_per_lane):
        assert layout.element_at(layout.coords(index)) == index


def test_projection_is_what_a_reduction_leaves() -> None:
    layout = make_layout(D16, (Digit("reg", 11, "N", 1), Digit("wave", 3, "M", 1), Digit("wave", 2, "N", 11)))
    rows = layout.project("N")
    assert rows.dims == ("M",) and rows.elements_per_lane == 4 and rows.waves == 6 and rows.replicas == 16 * 2
    assert rows.bijective() and covers(rows, {"M": 48})
    assert np.array_equal(rows.table()["M"][:, :, 0], layout.table()["M"][:, :, 0])
    with pytest.raises(CompileError, match="also moves another dimension"):
        make_layout(spec(M="e0 l0", N="e0^l1")).project("N")


def test_relabel_transposes_and_reorder_only_lists_differently() -> None:
    layout = make_layout(D16, (Digit("reg", 2, "N", 1),))
    swapped = layout.relabel({"M": "N", "N": "M"})
    assert np.array_equal(swapped.table()["M"], layout.table()["N"])
    assert layout.reorder(("N", "M")).table().keys() == {"N": 0, "M": 0}.keys()
    assert layout.relabel({}) == layout and hash(layout.relabel({})) == hash(layout)


def test_what_a_layout_cannot_hold_is_refused() -> None:
    with pytest.raises(CompileError, match="not L0"):
        make_layout(spec(M="L0"))
    with pytest.raises(CompileError, match="no extent for N"):
        Layout(D16, (), (("M", 16),))
    with pytest.raises(CompileError, match=r"registers \(reg\) or waves"):
        Digit("lane", 3, "M", 1)
    with pytest.raises(CompileError, match="share a coordinate bit"):
        make_layout(spec(M="e0^l0 l1")).element_offsets()
