"""How far the warp replay of PTX is from others. Written by `benchmarks/warp_model.py --update`."""

from __future__ import annotations

PUBLISHED = {"H100 SXM": (1.18, 1.24)}
"""Product: lowest and highest of (predicted over best published TFLOP/s) of bf16 GEMMs.

Predicted for our best tile at the table's clock; published for hand-tuned kernels at whatever clock the board kept."""
MEASURED = {"H200": (0.72, 0.98)}
"""Product: predicted over measured seconds of our GEMMs, 10 and 90 % of them below (`benchmarks/model_error.py`)."""
