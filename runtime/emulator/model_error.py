"""How far predicted clocks are from others, in words: the line that stands beside every prediction.

The numbers are in files of their own, which benchmarks write: `amdgcn/cycle_error.py` and `ptx/warp_error.py`.
"""

from __future__ import annotations

from wavedsl.codegen import is_amd
from wavedsl.runtime.emulator.amdgcn import cycle_error
from wavedsl.runtime.emulator.ptx import warp_error


def error_text(target: str) -> str:
    """What is known of the error of `target`'s clocks, in one line."""
    if is_amd(target):
        blocks = "; ".join(f"{kind}: median {m}, 80 % in {a} to {b}" for kind, (_, a, m, b) in cycle_error.MCA.items())
        return f"model / llvm-mca per block: {blocks}; model / published bf16 GEMMs: {_ranges(cycle_error.PUBLISHED)}"
    times = _ranges(warp_error.MEASURED)
    measured = f"model / measured seconds of ours: {times}" if times else "never compared with a chip of ours"
    return f"model / published bf16 GEMMs: {_ranges(warp_error.PUBLISHED)}; PTX before ptxas; {measured}"


def _ranges(ratios: dict[str, tuple[float, float]]) -> str:
    """`H200 0.72 to 0.98`, for each product."""
    return ", ".join(f"{product} {low} to {high}" for product, (low, high) in ratios.items())
