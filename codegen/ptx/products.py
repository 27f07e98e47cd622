"""NVIDIA products as `Product`s: clocks, bandwidths, caches and peak rates.

Rates per SM and clock are twice the results per clock of the CUDA programming guide's table of arithmetic throughput;
matrix rates are the data sheets' dense peaks divided by SMs and clock. Those of Hopper are of `wgmma`, whatever
instruction the compiler prints: the roofline is the chip's. Latency: arXiv:2208.11174 for A100 (290 clocks, idle), 0.65
microseconds under load for Hopper. H100's L2 rate is not published: the SMs' ports bound it.
"""

from __future__ import annotations

from wavedsl.ir.product import Product

_AMPERE = {"f64": 64, "f32": 128, "f16": 512, "bf16": 256}
_HOPPER = {"f64": 128, "f32": 256, "f16": 512, "bf16": 512}
_WGMMA = {
    "f64": 256, "tf32": 2048, "f16": 4096, "bf16": 4096, "f8e4m3": 8192, "f8e5m2": 8192, "i8": 8192, "u8": 8192,
}  # fmt: skip

PRODUCTS = (
    Product("A100", "sm_80", 108, 1.41e9, 2.039e12, 40 << 20, 5120, 290 / 1.41e9, _AMPERE, {}),
    Product("H100 SXM", "sm_90a", 132, 1.83e9, 3.35e12, 50 << 20, None, 0.65e-6, _HOPPER, _WGMMA),
    Product("H200", "sm_90a", 132, 1.83e9, 4.8e12, 50 << 20, None, 0.65e-6, _HOPPER, _WGMMA),
)
"""The first product of a target is its reference product."""
