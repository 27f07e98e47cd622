"""A `Roofline` as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wavedsl.reports import table

if TYPE_CHECKING:
    from wavedsl.analysis.roofline import Roofline
    from wavedsl.analysis.strategy import TileChoice


def quantity(value: float, unit: str) -> str:
    """A number with a decimal prefix: `3.35 TB/s`."""
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds with a prefix."""
    for limit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= limit:
            return f"{seconds / limit:.3g} {name}"
    return f"{seconds / 1e-9:.3g} ns"


def roofline_text(r: Roofline) -> str:
    """The record, one fact per line; predictions are called that."""
    kind = "nothing" if r.bound == "nothing" else "memory" if r.is_memory_bound else "compute"
    lines = [
        f"{r.kernel} on {r.product} ({r.target}), {r.dtype} on the {r.unit} pipes",
        f"needs {quantity(r.flops, 'FLOP')} and {quantity(r.bytes, 'B')}: {r.intensity:.4g} FLOP/B, bound by {kind}",
        f"chip {quantity(r.peak_compute, 'FLOP/s')}, {quantity(r.peak_bandwidth, 'B/s')}: balance at "
        f"{r.balance_point:.4g} FLOP/B; {quantity(r.bytes_in_flight, 'B')} in flight fill the memory",
        f"strategy {r.recommended_strategy}: {r.why}",
    ]
    if r.tiles is not None:
        lines.append(f"its tiles: {_tiles(r.tiles)}")
    if r.kernel_tiles is not None:
        of = f", of the largest of its {len(r.products)} products" if len(r.products) > 1 else ""
        lines.append(f"the kernel's{of}: {_tiles(r.kernel_tiles)}")
    if r.traffic is not None and r.minimal is not None:
        rows = [
            (level, quantity(getattr(r.minimal, level), "B"), quantity(getattr(r.traffic, level), "B"))
            for level in ("hbm", "l2", "shared")
        ]
        lines.append(table(("level", "at least", "moved"), rows))
        lines.append(f"executes {quantity(r.flops_executed, 'FLOP')}, padding and repeats included")
    lines.append(
        f"predicted {duration(r.seconds)}, bound by {r.bound} ("
        + ", ".join(f"{part} {duration(s)}" for part, s in r.seconds_by.items())
        + ")"
    )
    if r.pipe_seconds:
        lines.append("FLOP at peak: " + ", ".join(f"{pipe} {duration(s)}" for pipe, s in r.pipe_seconds.items()))
    if r.utilisation:
        busy = ", ".join(f"{unit} {share:.0%}" for unit, share in sorted(r.utilisation.items()) if share >= 0.005)
        lines.append(f"predicted {r.clocks} clocks of the fullest unit: {busy}")
    points = ", ".join(f"{name} {value:.3g}" for name, value in r.balance_points.items())
    lines.append(f"balance points in FLOP/B: {points}")
    return "\n".join(lines)


def _tiles(t: TileChoice) -> str:
    split = f", {t.split} workgroups per output tile" if t.split > 1 else ""
    stages = f"{t.pipeline_stages} stage{'s' * (t.pipeline_stages != 1)}" if t.pipeline_stages else "stages by schedule"
    return (
        f"{t.tile_m} x {t.tile_n} x {t.tile_k}, {stages}, "
        f"{t.waves_m} x {t.waves_n} waves, {t.vector_width} elements per access, prefetch {t.prefetch_distance}{split}"
    )
