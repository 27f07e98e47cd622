"""What the cycle model assumes of each chip: one table of rates and latencies, each with its source.

In: nothing. Out: `CHIPS` (AMD) and `SMS` (NVIDIA) by target. docs/cycle-model.md prints the tables and says how much
each unsourced line matters.

Units: clocks of the compute unit, bytes per clock of one compute unit or of the whole chip, as the field says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import inf
from typing import Any

from wavedsl.ir.quick_dataclass import dataclass

SIMDS = 4


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


@dataclass(frozen=True)
class SmModel(ChipModel):
    """An NVIDIA chip: `units` are SMs, `l1_lines` what L1 and shared memory have together, `scalar_latency` unused."""

    l1_latency: int = 38
    """Clocks of a load that hits L1: arXiv:2402.13499 (38 A100, 41 H100)."""
    shared_latency: int = 29
    """Clocks of a load from shared memory without conflicts: arXiv:2402.13499 (both chips)."""
    constant_latency: int = 8
    """Clocks of a parameter or constant that is in the constant cache. Not published: they are mostly operands."""
    unit_rate: float = inf
    """Bytes per clock that an SM has of L2 and memory at most where others ask as well. Not published: no limit but the
    port's, which multicast bytes pass as well."""
    shared_rate: float = 128.0
    """Bytes per clock of shared memory and of L1: CUDA programming guide (32 banks of 4 bytes)."""
    tags: int = 4
    """Cache lines that L1 looks up per clock. Not published; as many as it delivers sectors."""
    bulk_latency: int = 170
    """Clocks that a bulk copy takes beyond a load's: arXiv:2501.12084, unverified."""
    signal_latency: int = 20
    """Clocks from the last arrival at an mbarrier to who waits for it. Not published."""
    product_latency: int = 16
    """Clocks from the end of a warpgroup's product to its result. Not published beyond totals: arXiv:2402.13499 gives
    128 clocks for n = 256, which is its time at peak, and about 18 for n = 8."""
    remote_latency: int = 180
    """Clocks to another SM of the cluster: arXiv:2402.13499."""
    meeting_latency: int = 180
    """Clocks from the last arrival at a cluster's barrier to the first issue behind it. Not published: a way to another
    SM."""
    pipes: Mapping[str, int] = field(default_factory=dict)
    """Pipe of a sub-core → clocks of a warp instruction at least: CUDA programming guide, results per clock and SM."""


_AMPERE_PIPES = {"alu": 2, "fma": 2, "f64": 4, "sfu": 8, "cvt": 2}
_HOPPER_PIPES = {"alu": 2, "fma": 1, "f64": 2, "sfu": 8, "cvt": 2}
"""32 over the results per clock of a quarter of an SM, by the programming guide's table of arithmetic throughput.
Results per clock and SM on compute capability 8.0 and 9.0: f32 64 and 128, f64 32 and 64, integers, comparisons and
logic 64 on both, transcendental 16, conversions 64."""
SMS = {
    "sm_80": SmModel(
        108, 1.41, 128, 192 * 8, 5120.0, 2039 / 1.41, 64.0, 262, 466, taken_branch=8, barrier=20, pipes=_AMPERE_PIPES
    ),
    "sm_90a": SmModel(
        132, 1.83, 128, 256 * 8, 14100 / 1.83, 3350 / 1.83, 104.6, 283, 656, taken_branch=8, barrier=12,
        l1_latency=34, shared_latency=23, unit_rate=70.7, bulk_latency=640, signal_latency=42, product_latency=48,
        remote_latency=190, meeting_latency=338, pipes=_HOPPER_PIPES,
    ),
}  # fmt: skip
"""NVIDIA's chips by target. SMs, clocks and bandwidths of memory: data sheets of A100 SXM 80 GB and H100 SXM.

A100: L2 gives 5120 bytes per clock (white paper), a port 64, as the target's costs of global loads assume; latencies of
L2 and memory: arXiv:2402.13499, clocks, quoted from memory; branches and barriers are not published.

Hopper: measured on an H200, benchmarks/results/h200.json (`gpu_rates.py`); branches are not published. Latencies of
chains are as they are: L1, L2, memory, shared memory, a neighbour's. Others are what makes a replay of the probe's text
take the measured clocks: 30.6 of `bar.sync` by 8 warps, 73 from an arrival to the one that answers it, 194 of a product
of n = 256 that is waited for (n = 64 says 38, n = 8 24), 356 of a cluster's barrier.

One SM gets 104.6 bytes per clock of L2 (the port), one of 16 70.7. 132 SMs get 4620 of lines that each asks for alone;
lines that many ask for at once, as those of products, cost L2 less than one read each: 4096 cubed in tiles of 64 x 256
without clusters moves 2.7 GB in 191 us (results/h200_ranking.json), 14.1 TB/s, and is no limit here. A bulk copy of 128
bytes alone takes 311 clocks with its mbarrier's signal, no more than a load; copies of boxes while all SMs copy take
longer: 640 beyond a load's is what makes the replay of a ring of two slots (4096 cubed, 128 x 64 x 32), in which every
trip waits for a copy's whole way, take the measured 1.45 ms."""


def model_of(target: str) -> ChipModel:
    """A target's chip; for NVIDIA's that are not in the table the youngest there that is no younger. KeyError for
    others of AMD's."""
    if target in CHIPS or not target.startswith("sm_"):
        return CHIPS[target]
    number = int(target[3:].rstrip("af"))
    older = [name for name in SMS if int(name[3:].rstrip("af")) <= number]
    return SMS[older[-1] if older else "sm_80"]


def clock_of(target: str) -> float:
    """Gigahertz of a target's chip."""
    return model_of(target).gigahertz


def varied(target: str, **changes: float) -> Any:
    """The chip with some assumptions changed, for sensitivity studies."""
    return replace(model_of(target), **changes)  # type: ignore[arg-type]
