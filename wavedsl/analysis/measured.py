"""What was measured, for the roofline's picture: a file of seconds.

In: JSON, `{"kernel": seconds}`, or what `benchmarks/gpu_*.py` write (`rows` with `flops`, `bytes` and seconds of each
provider). Out: seconds by kernel name, and `Point`s of their own work. LaunchError where it is neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from wavedsl.ir.errors import LaunchError
from wavedsl.ir.quick_dataclass import dataclass

OURS = "wavedsl"
"""The provider of a benchmark's row whose seconds count."""


@dataclass(frozen=True)
class Point:
    """Work that was timed."""

    name: str
    flops: float
    bytes: float
    seconds: float


def read_measured(path: str | Path) -> tuple[dict[str, float], list[Point]]:
    """(seconds by kernel, points of a benchmark's rows) of a file; one of them is empty."""
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise LaunchError(f"{path} cannot be read as JSON: {error}") from error
    rows = found.get("rows") if isinstance(found, dict) else None
    if isinstance(rows, list):
        points = [p for row in rows if isinstance(row, dict) and (p := _point(row)) is not None]
        if points:
            return {}, points
    elif isinstance(found, dict) and found and all(map(_seconds, found.values())):
        return {name: float(s) for name, s in found.items()}, []
    raise LaunchError(
        f"{path} has no measured times",
        hint='{"kernel": seconds}, or a result of benchmarks/gpu_*.py, whose rows have flops, bytes and seconds',
    )


def _point(row: Mapping[str, Any]) -> Point | None:
    own = row.get(OURS)
    several = row.get("seconds")
    seconds = own.get("seconds") if isinstance(own, dict) else None
    if seconds is None:
        seconds = several.get(OURS) if isinstance(several, dict) else several
    flops, moved = row.get("flops", 0), row.get("bytes")
    if not _seconds(seconds) or not _seconds(moved) or not isinstance(flops, (int, float)):
        return None
    size = row.get("size", ())
    name = " ".join([str(row.get("case", "")), " x ".join(map(str, size)) if isinstance(size, list) else str(size)])
    return Point(name.strip(), float(flops), float(moved), float(seconds))  # type: ignore[arg-type]


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and value > 0
