"""Where the elements of a PTX fragment lie, coordinate by coordinate, from the bits that its row gives.

Imported as `ptx_layouts` (pytest's `pythonpath` lists this folder).
"""

from __future__ import annotations

import numpy as np
from wavedsl.codegen.ptx.mma import WARP, Layout


def layout_index(layout: Layout, elements: int, lanes: int = WARP) -> dict[str, np.ndarray]:
    """Coordinates of every (lane, element): dimension -> int array `[lanes, elements]`."""
    lane, element = np.meshgrid(np.arange(lanes), np.arange(elements), indexing="ij")
    source = {"l": lane, "e": element}
    out = {}
    for dim, bits in layout.items():
        total = np.zeros_like(lane)
        for i, bit in enumerate(bits.split()):
            total += ((source[bit[0]] >> int(bit[1:])) & 1) << i
        out[dim] = total
    return out
