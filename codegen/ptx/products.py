"""NVIDIA products as `Product`s: clocks, bandwidths, caches and peak rates.

Rates per SM and clock are twice the results per clock of the CUDA programming guide's table of arithmetic throughput;
matrix rates are the data sheets' dense peaks divided by SMs and clock. Those of Hopper are of `wgmma`, whatever
instruction the compiler prints: the roofline is the chip's. Latency: arXiv:2208.11174 for A100 (290 clocks, idle), 0.65
microseconds under load for Hopper. H100's L2 rate is not published: the SMs' ports bound it. Its memory is taken to be
reached as H200's: docs of quack give 90 % for softmax and RMS norm, fast.cu 96.7 % for a sum, which writes nothing.

H200 measured (benchmarks/results/h200.json): L2 gives 4620 bytes per clock at 1.98 GHz where every SM asks for lines of
its own (more of lines that many ask for, `runtime/emulator/cycle_chips.py`); of its memory's bandwidth streams that
only read get 0.96, copies 0.90, two arrays read and one written 0.92. Nsight Compute, which runs a kernel alone, has
1.97 GHz where memory bounds it, 1.56 where tensor cores are busy for 93 % of the clocks (a product), and 1.59, 1.69,
1.73, 1.79 at 92, 73, 64 and 67 % (attention): the cube law with 1.54 +- 0.04 GHz. After some tens of milliseconds of
products the limit of 700 W leaves a tenth less.
"""

from __future__ import annotations

from wavedsl.ir.product import Pace, PowerLimit, Product

_AMPERE = {"f64": 64, "f32": 128, "f16": 512, "bf16": 256}
_HOPPER = {"f64": 128, "f32": 256, "f16": 512, "bf16": 512}
_WGMMA = {
    "f64": 256, "tf32": 2048, "f16": 4096, "bf16": 4096, "f8e4m3": 8192, "f8e5m2": 8192, "i8": 8192, "u8": 8192,
}  # fmt: skip
_LARGE = ((128, 256), (128, 128))

PRODUCTS = (
    Product(
        "A100", "sm_80", 108, 1.41e9, 2.039e12, 40 << 20, 5120, 290 / 1.41e9, _AMPERE, {}, large=_LARGE,
        pace=Pace(load=1200, far=0, mixed=0.5, step=100, ends=1500, exchange=2000),  # fitted as AMD's
    ),
    Product("H100 SXM", "sm_90a", 132, 1.83e9, 3.35e12, 50 << 20, None, 0.65e-6, _HOPPER, _WGMMA, 0.92, large=_LARGE),
    Product(
        "H200", "sm_90a", 132, 1.83e9, 4.8e12, 50 << 20, round(4620 * 1.98 / 1.83), 0.65e-6, _HOPPER, _WGMMA, 0.92,
        PowerLimit(1.98e9, 1.54e9, 0.6), _LARGE,
    ),
)  # fmt: skip
"""The first product of a target is its reference product."""
