"""How far the AMDGCN cycle model is from others. Written by `benchmarks/cycle_model.py --update`."""

from __future__ import annotations

MCA = {"arithmetic": (182, 1.0, 1.0, 1.333), "with memory": (183, 1.0, 1.48, 6.625)}
"""Our clocks over llvm-mca's, per basic block of one wave: blocks, 10th percentile, median, 90th percentile."""
PUBLISHED = {"MI325X": (1.37, 1.66), "MI355X": (1.5, 1.64)}
"""Product: lowest and highest of (predicted over best published TFLOP/s) of bf16 GEMMs.

Predicted for our text at the peak clock; published for hand-tuned kernels at whatever clock the board kept."""
