"""What the cycle model assumes of each chip: one table of rates and latencies, each with its source.

In: nothing. Out: `CHIPS` by target. docs/cycle-model.md prints the table and says how much each unsourced line matters.

Units: clocks of the compute unit, bytes per clock of one compute unit or of the whole chip, as the field says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SIMDS = 4
WAVES_PER_SIMD = 8


@dataclass(frozen=True)
class ChipModel:
    """One chip as the cycle model sees it; the reference product is the one of `codegen.amdgcn.target`."""

    units: int
    """Compute units: AMD's data sheets (one die of MI250X, MI300X, MI355X)."""
    gigahertz: float
    """Peak engine clock of the data sheets. Boards under matrix load run slower, by how much the model cannot know."""
    line: int
    """Bytes of a cache line of the vector L1: AMD CDNA2 and CDNA3 white papers."""
    l1_lines: int
    """Lines of the vector L1: 16 KiB on CDNA2, 32 KiB on CDNA3 and CDNA4 (white papers)."""
    l2_rate: float
    """Bytes per clock that L2 gives the whole chip: channels x 128 (white papers; 64 on a CDNA2 channel is a write)."""
    dram_rate: float
    """Bytes per clock of the chip's memory: data-sheet bandwidth over the peak engine clock."""
    l1_rate: float = 64.0
    """Bytes per clock between vector L1 and registers, and L2 and L1, per compute unit (CDNA3 white paper)."""
    hit_latency: int = 500
    """Clocks from issue to data for a hit in L2. Typical; no vendor figure."""
    memory_latency: int = 800
    """Clocks from issue to data for a trip to memory. Typical; no vendor figure."""
    scalar_latency: int = 200
    """Clocks of a scalar load that hits L2. Typical; no vendor figure."""
    queue: int = 64
    """Accesses that LDS, and that vector memory, queue before issue stalls. Not published."""
    taken_branch: int = 16
    """Clocks until the next instruction of a wave after a taken branch: the row's latency."""
    barrier: int = 4
    """Clocks from the last arrival to the first issue behind a barrier: one issue turn, the least possible."""


CHIPS = {
    "gfx90a": ChipModel(110, 1.7, 64, 256, 32 * 128.0, 1600 / 1.7),
    "gfx942": ChipModel(304, 2.1, 128, 256, 8 * 16 * 128.0, 5300 / 2.1),
    "gfx950": ChipModel(256, 2.4, 128, 256, 8 * 16 * 128.0, 8000 / 2.4),
}


def varied(target: str, **changes: float) -> ChipModel:
    """The chip with some assumptions changed, for sensitivity studies."""
    return replace(CHIPS[target], **changes)  # type: ignore[arg-type]
