"""The short ways of a kernel as a call looks them up (`test_dispatch` has ways that launch)."""

from __future__ import annotations

from wavedsl.runtime.ways import Ways


def test_the_last_way_is_the_one_that_was_taken_last():
    ways, taken = Ways(), []

    def way_for(kind):
        def way(value):
            if type(value) is not kind:
                return False
            taken.append(kind)
            return value is not None

        return way

    assert not ways.last(1) and not ways.other((1,))
    ways[int,], ways[str,] = way_for(int), way_for(str)
    assert not ways.last(1) and ways.other((1,)) and ways.last(2) and not ways.last("a")
    assert ways.other(("a",)) and ways.last("b") and not ways.last(1) and ways.other((1,)) and ways.last(1)
    assert taken == [int, int, str, str, int, int]
    ways.clear()
    assert not ways.last(1) and not ways.other((1,))


def test_what_is_cleared_in_a_call_is_not_the_last_way():
    ways = Ways()

    def way(value):
        ways.clear()  # as another thread does that has tuned the kernel
        return True

    ways[int,] = way
    assert ways.other((1,)) and not ways.last(1)
