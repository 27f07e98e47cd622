"""Direct copies to shared memory against the definition of a place: every element once, each where it belongs."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir.addresses.direct_copy import DirectCopy, plan_direct
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.place import Piece, Place, row_major


def filled(place: Place, copy: DirectCopy) -> np.ndarray:
    """What every byte of the slot holds after all copies: the number of the element, -1 where nothing was written."""
    sizes = place.extents
    memory = np.full(place.bytes, -1)
    width = copy.bytes // place.elsize
    inner = list(sizes)[-1]
    seen = set()
    for wave in range(copy.waves):
        for i in range(copy.count):
            c = copy.number(wave, i)
            seen.add(c)
            for lane in range(copy.lanes):
                source = copy.source(c, lane)
                for e in range(width):
                    at = {**source, inner: source[inner] + e}
                    assert all(0 <= at[d] < sizes[d] for d in sizes)
                    byte = copy.run_byte(c) + lane * copy.bytes + e * place.elsize
                    assert memory[byte] == -1
                    memory[byte] = np.ravel_multi_index([at[d] for d in sizes], list(sizes.values()))
    assert seen == set(range(copy.waves * copy.count))
    return memory


PLACES = [
    (row_major({"M": 64, "K": 64}, 2), 16, 4),
    (row_major({"M": 64, "K": 64}, 2, xor=[(3, 4, 3)]), 16, 4),
    (row_major({"M": 64, "K": 64}, 2, xor=[(3, 4, 4)]), 16, 2),
    (row_major({"M": 64, "K": 128}, 2, xor=[(3, 4, 4)]), 16, 2),
    (row_major({"M": 64, "K": 128}, 2, xor=[(3, 4, 4), (3, 4, 7)]), 16, 2),
    (row_major({"M": 64, "K": 64}, 2, xor=[(3, 4, 3)]), 4, 1),
    (row_major({"M": 192, "K": 64}, 2, xor=[(3, 4, 3)]), 16, 8),
    (row_major({"M": 96, "K": 64}, 2, xor=[(3, 4, 3)]), 16, 4),
    (row_major({"M": 96, "K": 64}, 2), 16, 3),
    (row_major({"M": 16, "K": 512}, 2, pitch=1040), 16, 4),
    (row_major({"M": 16, "K": 256}, 2, pitch=528), 4, 4),
    (row_major({"H": 2, "M": 32, "K": 64}, 2), 16, 4),
    (Place((Piece("M", 1, 64, 128), Piece("K", 8, 2, 64), Piece("K", 16, 4, 16), Piece("K", 1, 8, 2)), ((3, 4, 3),)),
     16, 4),
]  # fmt: skip


@pytest.mark.parametrize(("place", "bytes", "waves"), PLACES, ids=lambda x: str(x) if isinstance(x, int) else None)
def test_runs_fill_the_place(place: Place, bytes: int, waves: int) -> None:
    copy = plan_direct(place, bytes, 64, waves)
    memory = filled(place, copy)
    sizes = place.extents
    coordinates = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij")
    want = np.arange(coordinates[0].size)
    assert np.array_equal(memory[place.address(dict(zip(sizes, coordinates))).reshape(-1)], want)
    assert np.count_nonzero(memory >= 0) == want.size


@pytest.mark.parametrize(
    ("place", "bytes", "waves", "reason"),
    [
        (row_major({"M": 64, "K": 64}, 2, pitch=144), 16, 4, "without gaps"),
        (row_major({"M": 16, "K": 32}, 2), 16, 4, "does not divide"),
        (row_major({"M": 64, "K": 64}, 2, xor=[(3, 3, 4)]), 16, 4, "together"),
        (row_major({"M": 60, "K": 512}, 2, pitch=1040), 16, 4, "shared by waves"),
    ],
)  # fmt: skip
def test_refusals_say_why(place: Place, bytes: int, waves: int, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        plan_direct(place, bytes, 64, waves)


def test_copies_of_a_wave_share_their_base() -> None:
    copy = plan_direct(row_major({"M": 256, "K": 64}, 2, xor=[(3, 4, 4)]), 16, 64, 8)
    assert (copy.count, copy.shared, copy.together) == (4, 4, True)
