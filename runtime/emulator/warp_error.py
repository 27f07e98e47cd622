"""How far the warp replay of PTX is from others. Written by `benchmarks/warp_model.py --update`."""

from __future__ import annotations

PUBLISHED = {"H100 SXM": (1.08, 1.14)}
"""Product: lowest and highest of (predicted over best published TFLOP/s) of bf16 GEMMs.

Predicted for our best tile at the table's clock; published for hand-tuned kernels at whatever clock the board kept."""


def error_text() -> str:
    """The errors in one line, to stand beside a prediction."""
    gemms = ", ".join(f"{product} {a} to {b}" for product, (a, b) in PUBLISHED.items())
    return f"model / published bf16 GEMMs: {gemms}; PTX before ptxas; never compared with a chip of ours"
