"""What a user reads of findings: each with its line of the kernel, how many more there are, and what would be right."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
from wavedsl.ir.errors import EmulationError
from wavedsl.ir.loc import Loc
from wavedsl.runtime.emulator.memory import GlobalMemory
from wavedsl.runtime.emulator.report import HINTS, KINDS, EmulationReport, Finding, conclude

FILE = "<kernel of the findings test>"
linecache.cache[FILE] = (0, None, [f"    value_{i} = wd.read(a)\n" for i in range(9)], FILE)


def found(count, kind="race", message="reads what another wave wrote"):
    return [Finding(kind, message, "ld", Loc(FILE, i + 1, 14, 24), line=i + 1) for i in range(count)]


def said(findings):
    with pytest.raises(EmulationError) as caught:
        conclude(EmulationReport(findings), True)
    return caught.value


@pytest.mark.parametrize(("count", "more"), [(1, ""), (2, ""), (5, ""), (6, "and 1 more"), (9, "and 4 more")])
def test_those_that_are_not_shown_are_counted(count, more):
    """Two findings were shown, `and 1 more`."""
    text = str(said(found(count)))
    assert text.count("race: ") == min(count, 5)
    assert more in text if more else " more" not in text


def test_each_shows_its_line():
    """Only the first finding's line was quoted."""
    text = str(said(found(3)))
    for i in range(3):
        assert text.count(f"value_{i} = wd.read(a)") == 1
    assert text.count("^" * 10) == 3


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"assertion", "unsupported"}))
def test_each_kind_says_what_is_right(kind):
    error = said(found(1, kind, "what is wrong"))
    assert HINTS[kind] in error.hint and "seed 0" in error.hint


def test_across_workgroups_no_barrier_helps():
    hint = said(found(1, message="reads what another workgroup wrote")).hint
    assert "workgroups run in no order" in hint and "barrier" not in hint


@pytest.mark.parametrize(
    ("array", "index"),
    [
        (np.zeros(50, np.float32), (17,)),
        (np.zeros((5, 7), np.float16), (3, 6)),
        (np.zeros((5, 7), np.float64).T, (6, 2)),
        (np.zeros((8, 9, 10), np.uint8)[::2, 1:7, ::3], (3, 5, 2)),
        (np.zeros((4, 1, 3), np.int32), (3, 0, 1)),
    ],
    ids=["1d", "2d", "transposed", "strided", "of-one"],
)
def test_a_byte_is_named_by_its_element(array, index):
    """`byte 68 of argument` left the index to the reader."""
    memory = GlobalMemory()
    address = memory.add(array, "a") + sum(i * s for i, s in zip(index, array.strides))
    allocation = memory.find(address)
    for byte in range(array.itemsize):
        assert allocation.element(address + byte - allocation.base) == f"a[{', '.join(map(str, index))}]"


def test_a_byte_between_elements_is_none():
    array = np.zeros((8, 4), np.int16)[:, ::2]
    memory = GlobalMemory()
    at = memory.add(array, "a")
    allocation = memory.find(at)
    assert allocation.element(at - allocation.base + 2) == ""
    assert allocation.element(at - allocation.base + 5) == "a[0, 1]"


def test_text_that_is_not_understood_has_no_seed():
    """No order of waves has anything to do with it."""
    assert said(found(1, "unsupported", "not understood")).hint == ""
