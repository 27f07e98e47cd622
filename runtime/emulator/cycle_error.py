"""How far the AMDGCN cycle model is from others. Written by `benchmarks/cycle_model.py --update`."""

from __future__ import annotations

MCA = {"arithmetic": (182, 1.0, 1.0, 1.333), "with memory": (183, 1.0, 1.48, 6.625)}
"""Our clocks over llvm-mca's, per basic block of one wave: blocks, 10th percentile, median, 90th percentile."""
PUBLISHED = {"MI325X": (1.37, 1.66), "MI355X": (1.5, 1.64)}
"""Product: lowest and highest of (predicted over best published TFLOP/s) of bf16 GEMMs.

Predicted for our text at the peak clock; published for hand-tuned kernels at whatever clock the board kept."""


def error_text(target: str) -> str:
    """The errors in one line, to stand beside a prediction."""
    if target.startswith("sm_"):
        from wavedsl.runtime.emulator.ptx import warp_error

        return warp_error.error_text()
    blocks = "; ".join(f"{kind}: median {m}, 80 % in {a} to {b}" for kind, (_, a, m, b) in MCA.items())
    gemms = ", ".join(f"{product} {a} to {b}" for product, (a, b) in PUBLISHED.items())
    return f"model / llvm-mca per block: {blocks}; model / published bf16 GEMMs: {gemms}"
