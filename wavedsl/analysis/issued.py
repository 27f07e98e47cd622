"""What a compiled kernel issues, counted from its kernel IR: bytes per level and clocks per unit.

In: a `CompiledKernel` with its kernel IR, and the values of run-time extents. Out: `Issued`, for the whole grid. Bytes
are what lanes ask for: masked lanes of ragged tiles count (an upper bound), copies that a guard switches off do not.
The clocks of memory are the target's own costs (`Target.costs`), those of the matrix units the matrix rows', both as
the scheduler plans with them; vector arithmetic is counted at the rate of the chip's own pipes (`pipes`), which on
NVIDIA's chips differ by type, where the scheduler has one price for all.

Uniform integers are followed through loops, and workgroups told apart where the ranges of loops depend on them, so trip
counts and guards are exact for sizes that are known (`places`). Branches on the wave's index (roles) are followed wave
by wave; what one elected thread does counts once; other branches count as taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import ceil, prod
from typing import Any

import numpy as np

from wavedsl.analysis.pipes import MANY, SLOW, pipe_of, pipes_of
from wavedsl.analysis.places import Executions, Place
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import evaluate, evaluate_int
from wavedsl.ir.target import Target

FREE = frozenset(
    {"const", "param", "vec", "slice", "buffer", "yield", "bitcast", "wave", "lane", "tid", "wgid", "copy.commit"}
    | {"undefined", "matrix.tile"}
)
"""Ops that name registers or are folded into others."""


@dataclass
class Issued:
    """Totals over the grid. `clocks`: busy clocks by unit, summed over all waves: those of `OF_UNIT` of one CU or SM,
    others of one SIMD. `vector`: widest global access in bytes per lane. `path`: clocks that one wave needs from its
    first to its last instruction if it never waits for another."""

    global_read: int = 0
    global_written: int = 0
    shared_read: int = 0
    shared_written: int = 0
    clocks: dict[str, int] = field(default_factory=dict)
    vector: int = 0
    path: int = 0
    groups: int = 1
    waves: int = 1
    fullest: tuple[int, ...] = (0, 0, 0)
    """The workgroup that has most to do."""
    typical: tuple[int, ...] = (0, 0, 0)
    """One that has as much to do as the mean of all."""
    of_typical: float = 1.0
    """The mean over what the typical one has to do."""
    of_fullest: float = 1.0
    """The mean over what the fullest one has to do."""


AMD_UNITS = {"matrix": "mfma", "vector": "valu", "scalar": "salu", "global": "vmem", "shared": "lds"}
NVIDIA_UNITS = {"matrix": "tensor", "scalar": "alu", "global": "memory", "shared": "lsu"}
"""What the vendors call the units; as the cycle models do. Vector arithmetic of NVIDIA's is on several (`pipes`), and
what is the same for all lanes goes there too: which of it ptxas gives to the uniform datapath, PTX does not say."""
OF_UNIT = frozenset({"vmem", "lds", "memory", "lsu"})
"""Pipes that a CU or SM has once; of others each SIMD has its own."""

PORTS = {
    "load.global": "global",
    "store.global": "global",
    "load.far": "global",
    "store.far": "global",
    "copy.async": "global",
    "load.shared": "shared",
    "store.shared": "shared",
    "atomic.shared": "shared",
    "load.peer": "shared",
}


def machine_of(kernel: Kernel, target: Target) -> Target:
    """The description that the kernel was compiled with: the chip's, or that of its warpgroups."""
    if target.warpgroup is not None and kernel.wave_size != target.wave_size:
        return target.warpgroup()
    return target


def count_issued(compiled: Any, target: Target, extents: Mapping[Any, Any]) -> Issued:
    """Count `compiled.kernel_ir`. `extents` gives the run-time dimensions' sizes by symbol. `waves` in the answer are
    hardware waves."""
    kernel: Kernel = compiled.kernel_ir
    grid = tuple(evaluate_int(g, extents) for g in compiled.grid)
    groups = prod(grid)
    roles = any(op.name == "if" and _asks_for_wave(op.args[0]) for op in kernel.body.walk())
    out = Issued(groups=groups, waves=kernel.waves * kernel.wave_size // target.wave_size)
    if not groups:
        return out
    hidden = hidden_values(compiled, extents)
    load: dict[str, Any] = {}
    for wave in range(kernel.waves) if roles else (None,):
        counter = _Counter(kernel, target, Executions(kernel, hidden, grid, wave))
        counter.region(kernel.body, counter.runs.start())
        times = 1 if roles else kernel.waves
        one = counter.out
        for name in ("global_read", "global_written", "shared_read", "shared_written"):
            setattr(out, name, getattr(out, name) + round(getattr(one, name) * times))
        for unit in sorted(one.clocks):
            out.clocks[unit] = out.clocks.get(unit, 0) + round(one.clocks[unit] * times)
        out.path, out.vector = max(out.path, one.path), max(out.vector, one.vector)
        for unit, clocks in counter.load.items():
            load[unit] = load.get(unit, 0.0) + clocks
    if load:
        _by_load(out, load, counter.runs)
    return out


def _by_load(out: Issued, load: Mapping[str, Any], runs: Executions) -> None:
    """Which workgroups have most and a mean share of what the busiest pipe does."""
    assert runs.groups is not None
    of = max(load, key=lambda unit: (load[unit].sum() / (1 if unit in OF_UNIT else 4), unit))
    clocks = load[of]
    mean = clocks.mean()
    # Of workgroups that do the same the first, so that the answer does not depend on the last bit of a sum. Where this
    # pipe has as much of several, other pipes decide: parts of two tiles are left and added beside as many products.
    full = np.flatnonzero(clocks.round(3) == clocks.round(3).max())
    most = int(full[np.argmax(sum(load.values())[full].round(3))])
    near = int(np.argmin(np.abs(clocks - mean).round(3)))
    out.fullest, out.typical = (tuple(map(int, runs.groups[:, i])) for i in (most, near))
    out.of_typical = float(mean / clocks[near]) if clocks[near] else 1.0
    out.of_fullest = float(mean / clocks[most]) if clocks[most] else 1.0


def _asks_for_wave(value: Value) -> bool:
    """Whether a condition depends on the wave's index."""
    todo, seen = [value], set()
    while todo:
        v = todo.pop()
        if v.id in seen or v.op is None:
            continue
        seen.add(v.id)
        if v.op.name in ("wave", "tid"):
            return True
        todo += v.op.args
    return False


def hidden_values(compiled: Any, extents: Mapping[Any, Any]) -> dict[int, int]:
    """Parameter index → value, for hidden extents."""
    names = {str(k): int(v) for k, v in extents.items() if isinstance(v, int)}
    for d in sorted({d for dims in compiled.shapes.values() for d in dims if not isinstance(d, int)}, key=str):
        value = evaluate(d, extents)
        if isinstance(value, int):
            names[str(d)] = value
    found = {}
    for i, p in enumerate(compiled.params):
        if p.source.startswith("extent "):
            value = names.get(p.source.removeprefix("extent "))
            if value is not None:
                found[i] = value
    return found


class _Counter:
    """Counts what one wave of every workgroup issues, or one that stands for all of its waves."""

    def __init__(self, kernel: Kernel, target: Target, runs: Executions):
        self.kernel, self.target, self.runs = kernel, target, runs
        self.warps = max(1, kernel.wave_size // target.wave_size)
        self.amd = target.vendor == "amd"
        self.names = AMD_UNITS if self.amd else NVIDIA_UNITS
        self.pipes = {} if self.amd else pipes_of(target.name)
        self.out = Issued()
        self.load: dict[str, Any] = {}
        """Unit → busy clocks by workgroup, where workgroups are told apart."""
        self.atoms = {a.name: a for a in machine_of(kernel, target).mma_atoms}
        notes = kernel.notes.get("lowering")
        self.intervals = {x.label: x.body.ii for x in (notes.loops if notes else ())}

    def region(self, region: Region, place: Place) -> None:
        for op in region.ops:
            if op.name == "for":
                self.loop(op, place)
            elif op.name == "if":
                for side, where in self.runs.branch(op, place):
                    self.region(side, where)
            else:
                self.op(op, place)

    def loop(self, op: Op, place: Place) -> None:
        inside, trips, step = self.runs.loop(op, place)
        before = self.out.path
        if inside.rows:
            self.region(op.regions[0], inside)
        interval = self.intervals.get(op.attrs.get("label", ""))
        if interval is not None and place.most == 1:
            self.out.path = before + interval * trips * step

    def op(self, op: Op, place: Place) -> None:
        name = op.name
        if name in FREE:
            return
        if name in PORTS:
            self.memory(op, place)
        elif name in ("mma", "mma.scaled"):
            self.busy("matrix", self.atom(op).cycles, place)
        elif name == "matrix.start":
            self.asynchronous_product(op, place)
        elif name == "signal.expect":  # the bytes of the bulk copies that follow it
            self.bulk_copy(op.attrs["bytes"], place)
        elif name == "copy.bulk":
            return
        elif name == "copy.bulk.store":
            self.bulk_store(op, place)
        elif op.row.effects and "control" not in op.row.effects and not name.startswith("atomic"):
            self.busy("scalar", self.target.cost("barrier").cycles, place)
        elif name == "atomic.global":
            self.out.global_read += 2 * op.attrs["bytes"] * place.count * self.kernel.wave_size
            self.busy("global", self.target.cost("store.global", op.attrs["bytes"]).cycles, place)
        elif self.amd:
            uniform = bool(op.results) and all(r.uniform for r in op.results)
            words = max([1, *(r.type.n for r in op.results)])
            count = words * MANY.get(name, 1) * (4 if name in SLOW else 1)
            kind, price = ("scalar", "salu") if uniform else ("vector", "valu")
            self.busy(kind, self.target.cost(price).cycles * count, place)
        else:
            pipe, clocks = pipe_of(op, self.pipes)
            self.busy(pipe, clocks, place)

    def atom(self, op: Op) -> Any:
        found = op.attrs["atom"]
        return self.atoms[found] if isinstance(found, str) else found

    def memory(self, op: Op, place: Place) -> None:
        size = op.attrs["bytes"]
        times = place.count
        if op.name in ("load.global", "copy.async", "store.global"):
            self.out.vector = max(self.out.vector, size)
            times = self.runs.passed(op.args[4], place)
        moved = size * times * self.kernel.wave_size
        name = op.name.replace(".far", ".global").replace(".peer", ".shared")
        if name == "load.global":
            self.out.global_read += moved
        elif name == "store.global":
            self.out.global_written += moved
        elif op.name in ("load.shared", "load.peer"):
            self.out.shared_read += moved
        elif op.name in ("store.shared", "atomic.shared"):
            self.out.shared_written += moved
        else:
            self.out.global_read += moved
            self.out.shared_written += moved
        wide = next((b for b in (1, 2, 4, 8, 12, 16) if b >= size), 16)
        cost = self.target.cost(name, wide)
        share = times / place.count if place.count else 0.0
        self.busy(PORTS[op.name], cost.cycles, place, share)
        if op.name == "copy.async" and cost.unit == "lsu":  # its bytes pass the port of shared memory as stores do
            self.add("shared", self.target.cost("store.shared", wide).cycles * self.warps * share, place)

    def asynchronous_product(self, op: Op, place: Place) -> None:
        """Operands that are not registers are read from shared memory by the matrix unit itself."""
        atom = self.atom(op)
        self.busy("matrix", atom.cycles, place)
        elements = atom.k * atom.n + (atom.m * atom.k if op.args[0].type.kind == "i64" else 0)
        size = elements * atom.a_dtype.bits // 8
        self.out.shared_read += size * place.count
        self.port("load.shared", "shared", size, place)

    def bulk_copy(self, size: int, place: Place) -> None:
        """One thread's request: the copy engine moves the box."""
        self.out.vector = 16
        self.out.global_read += size * place.count
        self.out.shared_written += size * place.count
        self.port("load.global", "global", size, place)

    def bulk_store(self, op: Op, place: Place) -> None:
        """One thread's request: a box goes from shared to global memory."""
        source = op.args[0].op
        param = self.kernel.params[source.attrs["index"]] if source is not None and source.name == "param" else None
        size = 0 if param is None or param.map is None else prod(param.map.box) * param.dtype.bits // 8
        self.out.vector = 16
        self.out.global_written += size * place.count
        self.out.shared_read += size * place.count
        self.port("store.global", "global", size, place)

    def port(self, kind: str, unit: str, size: int, place: Place) -> None:
        """Bytes that no lane asks for pass a port of the CU or SM."""
        rate = self.target.wave_size * 16 / self.target.cost(kind, 16).cycles
        self.add(unit, ceil(size / rate), place)

    def busy(self, unit: str, clocks: float, place: Place, share: float = 1.0) -> None:
        """`clocks` of each hardware wave that this one consists of, of a share of the executions."""
        self.add(unit, clocks * self.warps * share, place)
        self.out.path += ceil(clocks * place.most * share)

    def add(self, unit: str, clocks: float, place: Place) -> None:
        """`clocks` of a unit in each execution."""
        name = self.names.get(unit, unit)
        self.out.clocks[name] = self.out.clocks.get(name, 0) + clocks * place.count
        if self.runs.groups is not None:
            load = self.load.get(name)
            more = clocks * place.load(self.runs.groups.shape[1])
            self.load[name] = more if load is None else load + more


def residency(occupancy: int | None, waves: int, target: Target) -> int:
    """Workgroups on one unit at a time, from `resources.occupancy`; 1 where it is not known."""
    if not occupancy:
        return 1
    total = occupancy * (target.simds if target.per_simd else 1)
    return max(1, total // waves)


def unit_clocks(issued: Issued, target: Target, units: int, resident: int) -> tuple[int, dict[str, float]]:
    """Clocks until the fullest unit is done, and each pipe's busy share of them; 0 and nothing of an empty grid.

    Workgroups are dealt to `units` in rounds. A pipe of a unit (`OF_UNIT`) serves all its waves, one of a SIMD a share
    of them. Waves that reside together overlap, so a round of `resident` workgroups takes the longer of its busiest
    pipe and of one wave's own path.
    """
    if not issued.groups:
        return 0, {}
    rounds = ceil(issued.groups / max(1, units))
    simds = min(target.simds, max(1, issued.waves * min(rounds, resident)))
    busy = {
        unit: clocks / issued.groups * rounds / (1 if unit in OF_UNIT else simds)
        for unit, clocks in issued.clocks.items()
    }
    latency = target.cost("load.global", 16).latency
    own = issued.path * ceil(rounds / resident)
    total = max([own, *busy.values()]) + latency
    return ceil(total), {unit: b / total for unit, b in busy.items()}
