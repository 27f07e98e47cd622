"""What a compiled kernel issues, counted from its kernel IR: bytes per level and clocks per unit.

In: a `CompiledKernel` with its kernel IR, and the values of run-time extents. Out: `Issued`, for the whole grid. Bytes
are what lanes ask for: masked lanes of ragged tiles count (an upper bound), copies that a guard switches off do not.
The clocks are the target's own costs (`Target.costs`, the matrix rows), the same that the scheduler plans with.

Uniform integers are followed through loops, so trip counts and guards are exact for sizes that are known. Branches on
the wave's index (roles) are followed wave by wave; what one elected thread does counts once; other branches count as
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

from wavedsl.ir.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.symbols import evaluate_int
from wavedsl.ir.target import Target

FREE = frozenset(
    {"const", "param", "vec", "slice", "buffer", "yield", "bitcast", "wave", "lane", "tid", "wgid", "copy.commit"}
    | {"undefined", "matrix.tile"}
)
"""Ops that name registers or are folded into others."""
SLOW = frozenset({"exp2", "log2", "rcp", "rsqrt", "sqrt", "sin", "cos"})
"""Ops of the transcendental unit, a quarter of the vector rate on both vendors' chips."""
MANY = {"fdiv": 8, "udiv": 20, "urem": 20}
"""Vector instructions that one op expands into, roughly: the expansions of codegen/*/select_*.py."""
FOLLOWED = 4096
"""Most trips of a loop whose guards are followed trip by trip."""


@dataclass
class Issued:
    """Totals over the grid. `clocks`: busy clocks by unit, summed over all waves: `mfma` and `valu` of one SIMD,
    `vmem` and `lds` of one CU or SM. `vector`: widest global access in bytes per lane. `path`: clocks that one wave
    needs from its first to its last instruction if it never waits for another."""

    global_read: int = 0
    global_written: int = 0
    shared_read: int = 0
    shared_written: int = 0
    clocks: dict[str, int] = field(default_factory=dict)
    vector: int = 0
    path: int = 0
    groups: int = 1
    waves: int = 1


UNITS = {
    "load.global": "vmem",
    "store.global": "vmem",
    "load.far": "vmem",
    "store.far": "vmem",
    "copy.async": "vmem",
    "load.shared": "lds",
    "store.shared": "lds",
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
    groups = prod(evaluate_int(g, extents) for g in compiled.grid)
    roles = any(op.name == "if" and _asks_for_wave(op.args[0]) for op in kernel.body.walk())
    out = Issued(groups=groups, waves=kernel.waves * kernel.wave_size // target.wave_size)
    for wave in range(kernel.waves) if roles else (None,):
        counter = _Counter(kernel, target, hidden_values(compiled, extents), wave)
        counter.grid = tuple(evaluate_int(g, extents) for g in compiled.grid)
        counter.region(kernel.body, 1)
        times = groups * (1 if roles else kernel.waves)
        one = counter.out
        for name in ("global_read", "global_written", "shared_read", "shared_written"):
            setattr(out, name, getattr(out, name) + getattr(one, name) * times)
        for unit in sorted(one.clocks):
            out.clocks[unit] = out.clocks.get(unit, 0) + one.clocks[unit] * times
        out.path, out.vector = max(out.path, one.path), max(out.vector, one.vector)
    return out


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
    found = {}
    for i, p in enumerate(compiled.params):
        if p.source.startswith("extent "):
            value = names.get(p.source.removeprefix("extent "))
            if value is not None:
                found[i] = value
    return found


class _Counter:
    """Counts one wave, or with `wave` None one that stands for all."""

    def __init__(self, kernel: Kernel, target: Target, hidden: Mapping[int, int], wave: int | None):
        self.kernel, self.target, self.hidden, self.wave = kernel, target, hidden, wave
        self.warps = max(1, kernel.wave_size // target.wave_size)
        self.out = Issued()
        self.atoms = {a.name: a for a in machine_of(kernel, target).mma_atoms}
        self.known: dict[int, Any] = {}
        self.grid: tuple[int, ...] = (1,)
        self.group: tuple[int, ...] | None = None
        notes = kernel.notes.get("lowering")
        self.intervals = {x.label: x.body.ii for x in (notes.loops if notes else ())}
        self.trips = {x.label: x.trips for x in (notes.loops if notes else ())}

    def region(self, region: Region, times: int) -> None:
        for op in region.ops:
            if op.name == "for":
                self.loop(op, times)
            elif op.name == "if":
                self.branch(op, times)
            else:
                self.op(op, times, None)

    def branch(self, op: Op, times: int) -> None:
        condition = self.value(op.args[0])
        if condition is None and op.attrs.get("usual"):
            condition = True
        for taken, region in zip((True, False), op.regions):
            if condition is None or bool(condition) is taken:
                self.region(region, times)

    def loop(self, op: Op, times: int) -> None:
        body = op.regions[0]
        unroll = 1
        found = self.trip_values(op)
        if found is not None:
            values = found
            unroll = found.step
        else:
            # Persistent workgroups take the output tiles in turn: as many as the fullest of them has, counted for all
            # by the mean.
            each = self.trips_by_group(op)
            values = range(max(each, default=0)) if each else range(self.trips.get(op.attrs.get("label", "")) or 1)
            if each:
                whole = self.out
                self.out = Issued()
                for inner in body.ops:
                    self.inside(inner, times, body, values)
                self.fold(whole, sum(each) / len(each), len(values))
                return
        before = self.out.path
        for inner in body.ops:
            self.inside(inner, times * len(values), body, values)
        interval = self.intervals.get(op.attrs.get("label", ""))
        if interval is not None and times == 1:
            self.out.path = before + interval * len(values) * unroll

    def inside(self, inner: Op, times: int, body: Region, values: range) -> None:
        if inner.name == "for":
            self.loop(inner, times)
        elif inner.name == "if":
            self.branch(inner, times)
        else:
            self.op(inner, times, (body, values))

    def trip_values(self, op: Op) -> range | None:
        """The loop counter's values, where they can be told."""
        lo, hi, step = (self.value(v) for v in op.args[:3])
        if lo is None or hi is None or not step:
            return None
        return range(int(lo), max(int(lo), int(hi)), int(step))

    def trips_by_group(self, op: Op) -> list[int]:
        """Trips of each workgroup, where they depend on its place in the grid; empty where they cannot be told."""
        if prod(self.grid) > FOLLOWED:
            return []
        found = []
        for z in range((*self.grid, 1, 1)[2]):
            for y in range((*self.grid, 1)[1]):
                for x in range(self.grid[0]):
                    self.group = (x, y, z)
                    values = self.trip_values(op)
                    if values is None:
                        self.group = None
                        return []
                    found.append(len(values))
        self.group = None
        return found

    def fold(self, whole: Issued, mean: float, most: int) -> None:
        """Add what one trip issued to `whole`: totals by the mean trips of a workgroup, the path by the most."""
        one, self.out = self.out, whole
        for name in ("global_read", "global_written", "shared_read", "shared_written"):
            setattr(whole, name, getattr(whole, name) + round(getattr(one, name) * mean))
        for unit, clocks in one.clocks.items():
            whole.clocks[unit] = whole.clocks.get(unit, 0) + round(clocks * mean)
        whole.path += one.path * most
        whole.vector = max(whole.vector, one.vector)

    def op(self, op: Op, times: int, around: tuple[Region, range] | None) -> None:
        name = op.name
        if name in FREE:
            return
        if name in UNITS:
            self.memory(op, times, around)
            return
        if name in ("mma", "mma.scaled"):
            atom = self.atoms[op.attrs["atom"]] if isinstance(op.attrs["atom"], str) else op.attrs["atom"]
            self.busy("mfma", atom.cycles, times)
            return
        if name == "matrix.start":
            self.asynchronous_product(op, times)
            return
        if name == "signal.expect":  # the bytes of the bulk copies that follow it
            self.bulk_copy(op.attrs["bytes"], times)
            return
        if name == "copy.bulk":
            return
        if name == "copy.bulk.store":
            self.bulk_store(op, times)
            return
        if op.row.effects and "control" not in op.row.effects and name not in UNITS and not name.startswith("atomic"):
            self.busy("salu", self.target.cost("barrier").cycles, times)
            return
        if name == "atomic.global":
            self.out.global_read += 2 * op.attrs["bytes"] * times * self.kernel.wave_size
            self.busy("vmem", self.target.cost("store.global", op.attrs["bytes"]).cycles, times)
            return
        uniform = bool(op.results) and all(r.uniform for r in op.results)
        words = max([1, *(r.type.n for r in op.results)])
        count = words * MANY.get(name, 1) * (4 if name in SLOW else 1)
        self.busy("salu" if uniform else "valu", self.target.cost("salu" if uniform else "valu").cycles * count, times)

    def memory(self, op: Op, times: int, around: tuple[Region, range] | None) -> None:
        size = op.attrs["bytes"]
        if op.name in ("load.global", "copy.async", "store.global"):
            self.out.vector = max(self.out.vector, size)
            times = self.guarded(op, times, around)
        moved = size * times * self.kernel.wave_size
        name = op.name.replace(".far", ".global")
        if name == "load.global":
            self.out.global_read += moved
        elif name == "store.global":
            self.out.global_written += moved
        elif op.name == "load.shared":
            self.out.shared_read += moved
        elif op.name == "store.shared":
            self.out.shared_written += moved
        else:
            self.out.global_read += moved
            self.out.shared_written += moved
        wide = next((b for b in (1, 2, 4, 8, 12, 16) if b >= size), 16)
        cost = self.target.cost(name, wide)
        self.busy(UNITS[op.name], cost.cycles, times)
        if op.name == "copy.async" and cost.unit == "lsu":  # its bytes pass the port of shared memory as stores do
            self.beside("lds", self.target.cost("store.shared", wide).cycles, times)

    def asynchronous_product(self, op: Op, times: int) -> None:
        """Operands that are not registers are read from shared memory by the matrix unit itself."""
        atom = self.atoms[op.attrs["atom"]] if isinstance(op.attrs["atom"], str) else op.attrs["atom"]
        self.busy("mfma", atom.cycles, times)
        elements = atom.k * atom.n + (atom.m * atom.k if op.args[0].type.kind == "i64" else 0)
        size = elements * atom.a_dtype.bits // 8
        self.out.shared_read += size * times
        self.shared_port("load.shared", "lds", size, times)

    def bulk_copy(self, size: int, times: int) -> None:
        """One thread's request: the copy engine moves the box."""
        self.out.vector = 16
        self.out.global_read += size * times
        self.out.shared_written += size * times
        self.shared_port("load.global", "vmem", size, times)

    def bulk_store(self, op: Op, times: int) -> None:
        """One thread's request: a box goes from shared to global memory."""
        source = op.args[0].op
        param = self.kernel.params[source.attrs["index"]] if source is not None and source.name == "param" else None
        size = 0 if param is None or param.map is None else prod(param.map.box) * param.dtype.bits // 8
        self.out.vector = 16
        self.out.global_written += size * times
        self.out.shared_read += size * times
        self.shared_port("store.global", "vmem", size, times)

    def shared_port(self, kind: str, unit: str, size: int, times: int) -> None:
        rate = self.target.wave_size * 16 / self.target.cost(kind, 16).cycles
        self.out.clocks[unit] = self.out.clocks.get(unit, 0) + ceil(size / rate) * times

    def busy(self, unit: str, clocks: int, times: int) -> None:
        """`clocks` of each hardware wave that this one consists of."""
        self.out.clocks[unit] = self.out.clocks.get(unit, 0) + clocks * times * self.warps
        self.out.path += clocks * times

    def beside(self, unit: str, clocks: int, times: int) -> None:
        """`clocks` of a unit that works while the wave goes on."""
        self.out.clocks[unit] = self.out.clocks.get(unit, 0) + clocks * times * self.warps

    def guarded(self, op: Op, times: int, around: tuple[Region, range] | None) -> int:
        """How many of `times` executions the uniform guard lets through, where it can be told."""
        guard = op.args[4]
        if around is None:
            value = self.value(guard)
            return 0 if value is False or value == 0 else times
        body, values = around
        if guard.const is not None or not len(values) or len(values) > FOLLOWED:
            return times if guard.const is None or guard.const else 0
        passed = 0
        counter = body.args[0]
        for i in values:
            self.known = {counter.id: i}
            value = self.value(guard)
            if value is None:
                self.known = {}
                return times
            passed += bool(value)
        self.known = {}
        return times * passed // len(values)

    def value(self, v: Value) -> Any:
        """A uniform integer or predicate as far as constants, hidden extents and the loop counter tell it."""
        if v.id in self.known:
            return self.known[v.id]
        if v.const is not None:
            return v.const
        if v.op is None:
            return None
        if v.op.name == "wave":
            return self.wave
        if v.op.name == "wgcount":
            return (*self.grid, 1, 1)[v.op.attrs["axis"]]
        if v.op.name == "wgid" and self.group is not None:
            return self.group[v.op.attrs["axis"]]
        if v.op.name == "elect":
            return True
        if v.op.name == "param":
            return self.hidden.get(v.op.attrs["index"])
        rule = _RULES.get(v.op.name)
        if rule is None:
            return None
        args = [self.value(a) for a in v.op.args]
        if any(a is None for a in args):
            return None
        return rule(v.op, *args)


def _compare(op: Op, a: int, b: int) -> bool:
    how = op.attrs["how"].removeprefix("s").removeprefix("u")
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[how]


_RULES: dict[str, Callable[..., Any]] = {
    "add": lambda op, a, b: a + b,
    "sub": lambda op, a, b: a - b,
    "mul": lambda op, a, b: a * b,
    "shl": lambda op, a, b: a << b,
    "lshr": lambda op, a, b: a >> b,
    "ashr": lambda op, a, b: a >> b,
    "and": lambda op, a, b: a & b,
    "min_s": lambda op, a, b: min(a, b),
    "max_s": lambda op, a, b: max(a, b),
    "min_u": lambda op, a, b: min(a, b),
    "max_u": lambda op, a, b: max(a, b),
    "udiv": lambda op, a, b: a // b,
    "urem": lambda op, a, b: a % b,
    "zext": lambda op, a: a,
    "sext": lambda op, a: a,
    "trunc": lambda op, a: a,
    "pand": lambda op, a, b: a and b,
    "por": lambda op, a, b: a or b,
    "pnot": lambda op, a: not a,
    "select": lambda op, c, a, b: a if c else b,
    "cmp": _compare,
}
"""Integer ops on numbers without wrapping: extents and trip counts are far from 2**31."""


def residency(occupancy: int | None, waves: int, target: Target) -> int:
    """Workgroups on one unit at a time, from `resources.occupancy`; 1 where it is not known."""
    if not occupancy:
        return 1
    total = occupancy * (target.simds if target.vendor == "amd" else 1)
    return max(1, total // waves)


def unit_clocks(issued: Issued, target: Target, units: int, resident: int) -> tuple[int, dict[str, float]]:
    """Clocks until the fullest unit is done, and each pipe's busy share of them.

    Workgroups are dealt to `units` in rounds. A pipe of a unit (`vmem`, `lds`) serves all its waves, one of a SIMD
    (`mfma`, `valu`, `salu`) a share of them. Waves that reside together overlap, so a round of `resident` workgroups
    takes the longer of its busiest pipe and of one wave's own path.
    """
    rounds = ceil(issued.groups / max(1, units))
    simds = min(target.simds, max(1, issued.waves * min(rounds, resident)))
    busy = {
        unit: clocks / issued.groups * rounds / (1 if unit in ("vmem", "lds") else simds)
        for unit, clocks in issued.clocks.items()
    }
    latency = target.cost("load.global", 16).latency
    own = issued.path * ceil(rounds / resident)
    total = max([own, *busy.values()]) + latency
    return ceil(total), {unit: b / total for unit, b in busy.items()}
