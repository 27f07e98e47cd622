"""What the roofline must know of a product: rates, bandwidths, cache sizes. Back ends list theirs (`products.py`).

A `Target` says what text a chip runs; a `Product` says how fast one chip that runs it is. Every number carries its
source where the back end declares it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from wavedsl.ir.dtypes import INT4
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target


@dataclass(frozen=True)
class PowerLimit:
    """The clock of a chip under its power limit, in Hz: `most` where units are not held back, `full` where their matrix
    pipes are always busy.

    What a pipe's work takes of the limit grows with the clock and the square of the voltage, which follows the clock:
    with a share of the pipes' clocks busy, the clock that the limit leaves is the one where share times its cube is
    what it is at `full`."""

    most: float
    full: float
    doubles: float = 1.0
    """What a pipe's clock of f64 takes of the limit, as a share of what one of narrower products does."""

    def clock(self, busy: float) -> float:
        """Hz where this share of the matrix pipes' clocks is busy."""
        return min(self.most, self.full * busy ** (-1 / 3)) if busy > 0 else self.most


class Pace(NamedTuple):
    """What estimates of a product by waves that load their own operands take for granted beside rates, in clocks: of a
    load under way that L2 serves, and what it takes longer from memory; the share of a step's work that is added to it,
    since what is loaded is stored behind products; of barriers per step; of what a workgroup begins and ends with; of
    an exchange of parts of K, and of each further one of a unit; of an element of B as [K, N] that is turned by itself,
    of 16 bits and of 8; of an 8-bit element of such a B, whose rows are turned by fours in registers; of a load that
    L2 serves where two slots hold rows along K and a step multiplies for as long, and what it takes longer from
    memory; and the share of the shorter of products and accesses to shared memory that the longer one does not hide
    where a unit has several workgroups of one slot each."""

    load: float
    far: float
    mixed: float
    step: float
    ends: float
    exchange: float
    further: float = 0.0
    turned: float = 0.0
    turned_bytes: float = 0.0
    permuted: float = 0.0
    hidden: float = inf
    missed: float = 0.0
    single: float = 0.0


@dataclass(frozen=True)
class Product:
    """One product. Rates are per clock of the compute unit (CU or SM), bandwidths in bytes per second."""

    name: str
    target: str
    """The target whose text it runs."""
    units: int
    """CUs or SMs that are enabled."""
    clock: float
    """Hz: the peak engine clock that the data sheet's rates are for."""
    hbm: float
    """Bytes per second between the chip and its memory."""
    l2_bytes: int
    """Size of the last cache that all workgroups on one die share."""
    l2_rate: int | None
    """Bytes per clock that the whole L2 delivers; None where nothing is published."""
    latency: float
    """Seconds from a load that misses every cache to its data, without contention."""
    vector: Mapping[str, int]
    """FLOP per clock of one unit's vector pipes, by dtype; a dtype that is not listed computes as f32."""
    matrix: Mapping[str, int]
    """FLOP per clock of one unit's matrix pipes, by input dtype; empty: what the target's matrix rows say."""
    reached: float = 1.0
    """Share of `hbm` that the best kernels reach."""
    power: PowerLimit | None = None
    """What the power limit makes of the clock; None: nothing is known, and the clock is `clock`."""
    large: tuple[tuple[int, int], ...] = ()
    """Rows and columns of tiles whose operands shared memory feeds to the matrix units as fast as they multiply, the
    best first."""
    memory_cache: int = 0
    """Bytes of a cache between the L2 of all dies and memory."""
    pace: Pace | None = None
    """Fitted to the cycle model; None: nothing was fitted, and nothing is estimated by it."""

    def matrix_rates(self, target: Target) -> dict[str, float]:
        """FLOP per clock of one unit by input dtype of its fastest matrix instruction; 4-bit integers are multiplied as
        bytes where the chip has no instruction for them."""
        rates = {name: float(rate) for name, rate in self.matrix.items()}
        if not rates:
            for atom in target.mma_atoms:
                rate = 2.0 * atom.m * atom.n * atom.k * atom.blocks / atom.cycles * target.simds
                rates[atom.a_dtype.name] = max(rates.get(atom.a_dtype.name, 0.0), rate)
        as_bytes = {dtype.name: rates["i8"] for dtype in INT4 if "i8" in rates}
        return {**as_bytes, **rates}

    def has_matrix(self, dtype: str, target: Target) -> bool:
        """Whether a matrix instruction takes inputs of this dtype."""
        return dtype in self.matrix_rates(target)

    def peak(self, dtype: str, unit: str, target: Target) -> float:
        """FLOP per second of all units. `unit` is `matrix` or `vector`; KeyError for a matrix rate there is not."""
        rate = (
            self.matrix_rates(target)[dtype] if unit == "matrix" else float(self.vector.get(dtype, self.vector["f32"]))
        )
        return rate * self.units * self.clock

    def unit_port(self, target: Target, kind: str) -> float:
        """Bytes per clock of one unit's port, from the cost of the widest access: `load.global` or `load.shared`."""
        return target.wave_size * 16 / target.cost(kind, 16).cycles

    def l2_bandwidth(self, target: Target) -> float:
        """Bytes per second from L2: its own rate where published, never more than the units' ports take."""
        ports = self.units * self.unit_port(target, "load.global")
        return self.clock * (ports if self.l2_rate is None else min(ports, self.l2_rate))

    def shared_bandwidth(self, target: Target) -> float:
        """Bytes per second of all units' shared memory without bank conflicts."""
        return self.clock * self.units * self.unit_port(target, "load.shared")

    def balance(self, dtype: str, unit: str, target: Target) -> float:
        """FLOP per byte of HBM at which a kernel stops being bound by memory."""
        return self.peak(dtype, unit, target) / self.hbm
