"""Clocks that shared memory takes for one access of a warp."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir.inference.mma_options import fma_atom
from wavedsl.runtime.emulator.ptx.warp_events import shared_clocks

import wavedsl as wd
from wavedsl.targets import get_target

LANES = np.arange(32)


@pytest.mark.parametrize(
    ("width", "offsets", "clocks"),
    [
        (4, 4 * LANES, 1),
        (8, 8 * LANES, 2),
        (16, 16 * LANES, 4),
        (16, LANES % 4 * 16, 4),  # NVIDIA's answer in its developers' forum, topic 77228: no pairs agree
        (16, LANES // 2 * 16, 2),  # each lane agrees with its neighbour
        (16, ((LANES & 1) | (LANES >> 1 & ~1)) * 16, 2),  # or with the lane two further
        (8, LANES // 2 * 8, 1),
        (16, LANES // 2 * 128, 16),  # pairs, whose words meet in banks
    ],
)
def test_pairs_of_lanes_are_served_together(width, offsets, clocks):
    assert shared_clocks(width, offsets.astype(np.int64)) == clocks


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_lanes_of_multiply_adds_read_in_pairs(target):
    """Neighbours have the same rows of A, lanes two apart the same columns of B."""
    atom = fma_atom(wd.f32, get_target(target), 64, 32)
    assert "l0" not in atom.a["M"].split() and "l1" not in atom.b["N"].split()
    assert {*atom.a["M"].split(), *atom.b["N"].split()} >= {f"l{i}" for i in range(5)}
