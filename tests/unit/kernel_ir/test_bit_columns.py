"""Short sums of lane bits equal their columns for every value of the source, and are as short as they should be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.layouts.bit_columns import cheapest, combine_columns, cost, evaluate


def definition(columns: tuple[int, ...], x: int, xor: bool) -> int:
    out = 0
    for i, c in enumerate(columns):
        if x >> i & 1:
            out = out ^ c if xor else out + c
    return out


def holds(columns: tuple[int, ...], width: int, xor: bool, bare: int = 0) -> int:
    """The tree's price, after comparing it with the definition everywhere."""
    t = cheapest(columns, width, xor, bare)
    for x in range(1 << width):
        assert evaluate(t, x) == definition(columns, x, xor), (t, x)
    return cost(t, bare)


COLUMN = st.one_of(st.integers(0, 10).map(lambda i: 1 << i), st.integers(0, 200), st.sampled_from((0, 48, 136, 144)))


@given(st.lists(COLUMN, min_size=1, max_size=7), st.booleans(), st.integers(0, 2), st.integers(0, 1))
def test_every_tree_is_its_columns(columns: list[int], xor: bool, more: int, bare: int) -> None:
    while columns and not columns[-1]:
        columns.pop()
    if columns:
        holds(tuple(columns), len(columns) + more, xor, bare)


def test_rows_twice_as_long_as_they_are_wide_take_two_instructions() -> None:
    """128 bytes of a row of 256 per 8 threads: (x + (x & -8)) << 4."""
    assert holds((16, 32, 64, 256, 512, 1024, 2048, 4096), 8, False) == 2


def test_any_pitch_takes_three() -> None:
    assert holds((16, 32, 64, 4096, 8192, 16384, 32768, 65536), 8, False) == 3


def test_swizzled_store_takes_three() -> None:
    assert holds((16, 32, 64, 128 ^ 16, 256 ^ 32, 512 ^ 64, 1024, 2048), 8, True) == 3


def test_a_contiguous_lane_is_one_shift() -> None:
    assert holds((8, 16, 32, 64, 128, 256), 6, False) == 1


def test_columns_that_are_the_source_cost_nothing() -> None:
    assert holds((1, 2, 4, 8, 16, 32), 6, True) == 0


def test_bits_that_a_number_never_has_add_nothing() -> None:
    b = Builder(new_kernel("k"))
    assert combine_columns(b, [0, 0, 0, 0, 0, 0, 64], b.and_(b.tid(), 63)) == 0
