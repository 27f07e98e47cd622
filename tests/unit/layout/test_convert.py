"""Conversions: replaying a plan on the source table gives the destination table; known costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import Bits, spec
from wavedsl.ir.layouts.convert import ConvertPlan, Swap, plan_convert, replay
from wavedsl.ir.layouts.layout import Digit, Layout, make_layout

D16, A16 = spec(M="e0 e1 l4 l5", K="l0 l1 l2 l3"), spec(M="l0 l1 l2 l3", K="e0 e1 l4 l5")


def codes(layout: Layout, dims: tuple[str, ...]) -> np.ndarray:
    """Each held element as one number."""
    table = layout.table()
    total = np.zeros((layout.waves, layout.lanes, layout.elements_per_lane), np.int64)
    for dim in dims:
        total = total * 4096 + table[dim]
    return total


def checked(src: Bits | Layout, dst: Bits | Layout, elsize: int = 4) -> ConvertPlan:
    plan = plan_convert(src, dst, elsize)
    a, b = (x if isinstance(x, Layout) else make_layout(x) for x in (src, dst))
    if plan.kind != "shared memory":
        assert np.array_equal(replay(plan, codes(a, a.dims)), codes(b, a.dims)), plan
    return plan


def test_equal_layouts_and_register_orders_are_renamings() -> None:
    assert checked(A16, A16) == ConvertPlan("renaming")
    order = checked(spec(M="e0 e1 e2 l0"), spec(M="e2 e0 e1 l0"))
    assert order.kind == "renaming" and len(order.steps) == 1
    digits = (Digit("reg", 3, "M", 1), Digit("reg", 2, "N", 1))
    box = spec(M="e0 l0", N="l1")
    assert checked(make_layout(box, digits), make_layout(box, digits[::-1])).kind == "renaming"


def test_the_unswapped_accumulator_needs_two_exchanges() -> None:
    plan = checked(D16, A16)
    assert plan.kind == "lane exchange" and plan.exchanges == 2


def test_v_on_gfx942_takes_16_byte_permutes_per_32_elements() -> None:
    """4 kv x 8 d per lane, pairs along d to pairs along kv: only kv0 and d0 cross a register."""
    rows = spec(D="e0 e1 e2 l0 l1 l2", K="e3 e4 l3 l4 l5")
    columns = spec(D="e2 e3 e4 l0 l1 l2", K="e0 e1 l3 l4 l5")
    plan = checked(rows, columns, elsize=2)
    assert plan.kind == "byte permutes" and plan.permutes == 16
    assert checked(rows, columns, elsize=4).kind == "renaming"


def test_data_that_crosses_waves_goes_through_shared_memory() -> None:
    assert plan_convert(spec(M="l0 l1 w0", K="e0"), spec(M="w0 l1 l0", K="e0")).kind == "shared memory"
    digits = Digit("wave", 3, "M", 1), Digit("reg", 3, "M", 1)
    inner = spec(M="e0 l0")
    assert plan_convert(make_layout(inner, digits[:1]), make_layout(inner, digits[1:])).kind == "shared memory"
    with pytest.raises(CompileError, match="no steps to replay"):
        replay(ConvertPlan("shared memory"), np.zeros((1, 1, 1)))


def test_replicas_need_no_exchange_and_making_them_needs_shuffles() -> None:
    held, spread = spec(M="e0 e1", free="l0 l1"), spec(M="l0 l1")
    narrowing, widening = checked(held, spread), checked(spread, held)
    assert (narrowing.exchanges, narrowing.shuffles) == (0, 0) and widening.shuffles == 2
    assert checked(spec(M="e0 l0", free="w0"), spec(M="w0 l0")).kind == "lane exchange"


def test_register_digits_are_converted_box_by_box() -> None:
    digits = (Digit("reg", 3, "M", 1), Digit("wave", 2, "K", 1))
    plan = checked(make_layout(D16, digits), make_layout(A16, digits))
    assert plan.exchanges == 2 and plan.digits == (0, 1, 2)


def test_different_extents_are_refused() -> None:
    with pytest.raises(CompileError, match="different extents"):
        plan_convert(spec(M="l0 e0"), spec(M="l0"))


POSITIONS = ["e0", "e1", "e2", "l0", "l1", "l2", "l3"]


@settings(max_examples=150)
@given(st.permutations(POSITIONS), st.permutations(POSITIONS), st.integers(1, 6), st.sampled_from([1, 2, 4]))
def test_random_permutations_of_bits_are_carried_out(a: list[str], b: list[str], cut: int, elsize: int) -> None:
    plan = checked(*(spec(M=" ".join(x[:cut]), N=" ".join(x[cut:])) for x in (a, b)), elsize)
    assert plan.kind != "shared memory"
    crossing = sum(x[0] == "e" and y[0] == "l" for x, y in zip(a, b))
    assert plan.exchanges >= crossing and all(isinstance(s, Swap) or plan.kind for s in plan.steps)


def renumbered(order: list[str]) -> list[str]:
    """Element bits numbered without gaps."""
    elements = sorted(x for x in order if x[0] == "e")
    return [x if x[0] == "l" else f"e{elements.index(x)}" for x in order]


@settings(max_examples=100)
@given(st.permutations(["e0", "e1", "l0", "l1", "l2"]), st.permutations(["e0", "e1", "l0", "l1", "l2"]), st.data())
def test_random_replicas_are_made_and_dropped(a: list[str], b: list[str], data: st.DataObject) -> None:
    def drop(order: list[str]) -> tuple[list[str], str]:
        lanes = [x for x in order if x[0] == "l"]
        free = data.draw(st.lists(st.sampled_from(lanes), unique=True, max_size=2))
        return [x for x in order if x not in free], " ".join(free)

    (held, free_a), (wanted, free_b) = drop(a), drop(b)
    size = min(len(held), len(wanted))
    for order in (held, wanted):
        while len(order) > size:  # register bits only: lanes without a coordinate are replicas
            last = [x for x in order if x[0] == "e"][-1]
            order.remove(last)
    held, wanted = renumbered(held), renumbered(wanted)
    assert checked(spec(M=" ".join(held), free=free_a), spec(M=" ".join(wanted), free=free_b)).kind != "shared memory"
