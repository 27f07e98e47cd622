"""AMD products as `Product`s: clocks, bandwidths and caches. Matrix rates follow from the rows of `mfma`.

Compute units, clocks and HBM bandwidth are the data sheets'; they reproduce the published peaks (tests/unit/analysis).
Vector rates: 64 lanes of 4 SIMDs, one FMA a clock and SIMD of 16 lanes, two for packed f32 and f16 (CDNA instruction
set guides). L2: 128 bytes a clock and channel, 16 channels per XCD (CDNA 3 and 4 white papers), 32 on MI250X's die
(CDNA 2); Infinity Cache: CDNA 3 white paper. Latencies: the 500 and 800 clocks of the emulator's model, typical.
"""

from __future__ import annotations

from wavedsl.ir.product import Pace, Product

DIES = {"gfx90a": 1, "gfx942": 8, "gfx950": 8}
"""Accelerator dies (XCDs) of one product, each with an L2 cache, that one launch runs on: CDNA 3 and CDNA 4 white
papers. A die of MI250X is a device of its own."""
_VECTOR = {"f64": 128, "f32": 256, "f16": 256}
_HIT, _MISS = 500, 800
_LARGE = ((256, 256), (256, 128), (128, 128))
_CDNA3 = Pace(
    load=650, far=0, mixed=0.25, step=100, ends=2400, exchange=1500, further=1500, turned=0.04, turned_bytes=0.08,
    permuted=1 / 64,
)  # fmt: skip
_PACES = {
    "gfx90a": _CDNA3,
    "gfx942": _CDNA3._replace(hidden=_HIT, missed=_MISS - _HIT),
    "gfx950": Pace(load=750, far=250, mixed=0.05, step=130, ends=2400, exchange=2700, turned_bytes=0.08, single=0.3),
}
"""Fitted to what the cycle model says of products on MI300X and MI355X (`strategies/matrix_cuts.py`)."""

PRODUCTS = tuple(
    Product(
        name,
        target,
        units,
        clock,
        hbm,
        l2,
        rate,
        _MISS / clock,
        _VECTOR,
        {},
        large=_LARGE,
        memory_cache=cache,
        pace=_PACES[target],
    )
    for name, target, units, clock, hbm, l2, rate, cache in (
        ("MI250X die", "gfx90a", 110, 1.7e9, 1.6e12, 8 << 20, 4096, 0),
        ("MI300X", "gfx942", 304, 2.1e9, 5.3e12, 4 << 20, 16384, 256 << 20),
        ("MI325X", "gfx942", 304, 2.1e9, 6.0e12, 4 << 20, 16384, 256 << 20),
        ("MI355X", "gfx950", 256, 2.4e9, 8.0e12, 4 << 20, 16384, 256 << 20),
    )
)
"""The first product of a target is its reference product. `l2_bytes` is one XCD's: what a workgroup's neighbours
share."""
