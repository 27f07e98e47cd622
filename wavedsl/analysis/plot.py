"""The roofline as a picture: HBM's slope, the pipes' roofs, a point per record, and what was measured beside it.

Needs matplotlib (`pip install 'wavedsl[plot]'`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wavedsl.analysis.measured import Point
from wavedsl.analysis.roofline import Roofline, product_named
from wavedsl.analysis.text import quantity
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
    records: Sequence[Roofline] | Roofline, path: str | Path, measured: Mapping[str, float] | None = None,
    points: Sequence[Point] = (),
) -> Path:  # fmt: skip
    """Draw records of one product to `path` (any suffix that matplotlib knows); the path.

    `measured` maps a record's kernel name to measured seconds, `points` are measured work of its own; those points are
    filled, predictions are hollow. What computes nothing has no FLOP per second: it is a line at the bandwidth it has,
    dotted where predicted, dashed where measured.
    """
    plt = pyplot()
    rows = [records] if isinstance(records, Roofline) else list(records)
    product = product_named(rows[0].product) if rows else None
    figure, axes = plt.subplots(figsize=(7, 4.5))
    intensities = [r.intensity for r in rows if r.intensity > 0] + [p.flops / p.bytes for p in points if p.flops > 0]
    intensities = intensities or [1.0]
    low, high = min(0.1, *intensities) / 2, max(1000.0, *intensities) * 2
    roofs = {(r.dtype, r.unit): r for r in rows}
    for (dtype, unit), r in roofs.items():
        axes.plot(
            [low, r.balance_point, high],
            [low * r.peak_bandwidth, r.peak_compute, r.peak_compute],
            linewidth=1,
            label=f"{dtype} {unit}: balance {r.balance_point:.3g}",
        )
    def draw(name: str, flops: float, moved: float, seconds: float, predicted: bool) -> None:
        if seconds <= 0 or moved <= 0:
            return
        if flops <= 0:
            rate = moved / seconds
            said = f"{name}: {quantity(rate, 'B/s')} {'predicted' if predicted else 'measured'}"
            style = "dotted" if predicted else "dashed"
            axes.plot([low, high], [low * rate, high * rate], linestyle=style, color="black", linewidth=1, label=said)
            return
        at = flops / moved, flops / seconds
        axes.plot(*at, marker="o", markerfacecolor="none" if predicted else None, color="black", linestyle="none")
        if predicted or name not in known:
            axes.annotate(name, at, textcoords="offset points", xytext=(4, 4))

    known = {r.kernel for r in rows}
    for r in rows:
        draw(r.kernel, r.flops, r.bytes, r.seconds, True)
        draw(r.kernel, r.flops, r.bytes, (measured or {}).get(r.kernel, 0.0), False)
    for p in points:
        draw(p.name, p.flops, p.bytes, p.seconds, False)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP per byte of HBM")
    axes.set_ylabel("FLOP/s")
    name = product.name if product is not None else ""
    axes.set_title(f"{name}: hollow predicted" + (", filled measured" if measured or points else ""))
    axes.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return Path(path)
