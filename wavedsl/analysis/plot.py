"""The roofline as a picture: HBM's slope, the pipes' roofs, a point per record, and what was measured beside it.

Needs matplotlib (`pip install 'wavedsl[plot]'`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wavedsl.analysis.roofline import Roofline, product_named
from wavedsl.ir.errors import ToolchainError


def pyplot() -> Any:
    """matplotlib.pyplot on a backend that draws to files. ToolchainError where it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise ToolchainError("plots need matplotlib", hint="pip install 'wavedsl[plot]'") from error
    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    return plt


def plot_roofline(
    records: Sequence[Roofline] | Roofline, path: str | Path, measured: Mapping[str, float] | None = None
) -> Path:
    """Draw records of one product to `path` (any suffix that matplotlib knows); the path.

    `measured` maps a record's kernel name to measured seconds; those points are filled, predictions are hollow.
    """
    plt = pyplot()
    rows = [records] if isinstance(records, Roofline) else list(records)
    product = product_named(rows[0].product) if rows else None
    figure, axes = plt.subplots(figsize=(7, 4.5))
    intensities = [r.intensity for r in rows if r.intensity > 0] or [1.0]
    low, high = min(0.1, *intensities) / 2, max(1000.0, *intensities) * 2
    roofs = {(r.dtype, r.unit): r for r in rows}
    for (dtype, unit), r in roofs.items():
        axes.plot(
            [low, r.balance_point, high],
            [low * r.peak_bandwidth, r.peak_compute, r.peak_compute],
            linewidth=1,
            label=f"{dtype} {unit}: balance {r.balance_point:.3g}",
        )
    for r in rows:
        if r.intensity <= 0 or r.seconds <= 0:
            continue
        axes.plot(r.intensity, r.flops / r.seconds, marker="o", markerfacecolor="none", color="black", linestyle="none")
        seconds = (measured or {}).get(r.kernel)
        if seconds:
            axes.plot(r.intensity, r.flops / seconds, marker="o", color="black", linestyle="none")
        axes.annotate(r.kernel, (r.intensity, r.flops / r.seconds), textcoords="offset points", xytext=(4, 4))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP per byte of HBM")
    axes.set_ylabel("FLOP/s")
    name = product.name if product is not None else ""
    axes.set_title(f"{name}: hollow predicted" + (", filled measured" if measured else ""))
    axes.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return Path(path)
