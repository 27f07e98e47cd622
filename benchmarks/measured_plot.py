"""docs/measured.svg: the rates of docs/measured.md's products, attention and memory-bound kernels, beside others'.

In: panels of rates, which `measured.py` takes from the results. Out: one picture, which names what it was drawn from,
so that a test can hold it to the results without drawing it again (`drawn_from`). Needs matplotlib.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

COLOURS = ("#c8102e", "#4c78a8", "#9a9a9a")
"""Ours, the vendor's library, the other one: told apart in grey, too."""
MARKS = ("o", "s", "^")
SIZES = (34, 24, 22)


@dataclass(frozen=True)
class Panel:
    """Rates of several providers, ours first, for each of `labels`; None where one was not measured. Groups are runs of
    labels that belong together: a name and how many."""

    title: str
    unit: str
    providers: tuple[str, ...]
    labels: tuple[str, ...]
    rates: tuple[tuple[float | None, ...], ...]
    groups: tuple[tuple[str, int], ...]


def digest(panels: Sequence[Panel]) -> str:
    """What a picture of these panels says that it was drawn from."""
    return hashlib.sha256(json.dumps([asdict(p) for p in panels]).encode()).hexdigest()[:16]


def drawn_from(path: Path) -> str | None:
    """The digest of the panels that a picture was drawn from."""
    found = re.search(r"drawn from ([0-9a-f]{16})", path.read_text(encoding="utf-8"))
    return found and found.group(1)


def draw(panels: Sequence[Panel], path: Path) -> None:
    """One panel above the other. ToolchainError without matplotlib."""
    from wavedsl.analysis.plot import pyplot

    plt = pyplot()
    style = {"svg.hashsalt": "wavedsl", "svg.fonttype": "none", "font.size": 8, "font.family": "sans-serif"}
    with plt.rc_context(style):
        figure, grid = plt.subplots(len(panels), 1, figsize=(10, 3.1 * len(panels)), squeeze=False)
        for axes, panel in zip(grid[:, 0], panels):
            _panel(axes, panel)
        figure.tight_layout()
        about = {"Date": None, "Creator": None, "Description": f"drawn from {digest(panels)}"}
        figure.savefig(path, metadata=about)
        plt.close(figure)
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def _panel(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold")
    for i, provider in reversed([*enumerate(panel.providers)]):
        places = [(x, rates[i]) for x, rates in enumerate(panel.rates) if rates[i] is not None]
        faces = COLOURS[i] if i == 0 else "white"
        axes.scatter(*zip(*places), SIZES[i], faces, MARKS[i], edgecolors=COLOURS[i], label=provider, zorder=3 - i / 10)
    turned = {"rotation": 60, "ha": "right", "rotation_mode": "anchor", "fontsize": 6.5}
    axes.set_xticks(range(len(panel.labels)), panel.labels, **turned)
    axes.set_xlim(-0.6, len(panel.labels) - 0.4)
    axes.set_ylim(0, 1.18 * max(rate for rates in panel.rates for rate in rates if rate is not None))
    axes.set_ylabel(panel.unit)
    axes.grid(axis="y", linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    begin = 0
    for name, count in panel.groups:
        middle, across = begin + (count - 1) / 2, axes.get_xaxis_transform()
        axes.text(middle, 0.97, name, ha="center", va="top", transform=across, fontsize=7)
        begin += count
        if begin < len(panel.labels):
            axes.axvline(begin - 0.5, linewidth=0.5, color="#bbbbbb")
    handles, labels = axes.get_legend_handles_labels()
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.3}  # above, where no rate is
    axes.legend(handles[::-1], labels[::-1], ncols=len(labels), fontsize=7, frameon=False, **place)


__all__ = ["Panel", "digest", "draw", "drawn_from"]
