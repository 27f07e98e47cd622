"""The search space: what a kernel leaves open, the values that a chip can use, and those that it cannot hold.

In: a kernel, its extents, a target. Out: `Candidate`s in a fixed order, each with the reason why it is not worth a
compile, or with a quick estimate of its time. Nothing is compiled here: constraints, the partition and the chip's
limits decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import total_ordering
from math import ceil, prod
from typing import Any

import sympy

from wavedsl.analysis.flops import PRODUCTS, count_flops
from wavedsl.analysis.roofline import product_named
from wavedsl.ir.cuts.partition import Partition, cut
from wavedsl.ir.dataflow.constraints import (
    TilingConstraint,
    WaveConstraint,
    WorkgroupConstraint,
    resolve_constraints,
)
from wavedsl.ir.dataflow.odd_repeats import fitted_repeats
from wavedsl.ir.dataflow.split_k import loop_to_cut
from wavedsl.ir.errors import ConstraintError, WaveError
from wavedsl.ir.grid.cluster_shape import ClusterShape
from wavedsl.ir.grid.split_choice import LEAST_TRIPS, MOST_PARTS
from wavedsl.ir.inference.plans import plan
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.staging.strategy import NO_WARPGROUP, cluster_misfit
from wavedsl.ir.symbols import SHARED, AddressSpace, evaluate, normalise
from wavedsl.ir.target import Target
from wavedsl.schedule import MOST_WORKERS, Schedule

STAGES = "stages"
FLAGS = ("specialize", "persistent", "direct_to_shared", "swizzle", "ping_pong")
CLUSTER = "cluster"
SPLIT = "split_k"
STREAM = "stream_k"
REGISTERS = "registers"
PAIRS = (CLUSTER, REGISTERS)
"""Choices that may be pairs of numbers."""
OWN_REGISTERS = (0, 0)
"""In place of a pair of register budgets: the compiler's own."""
SCHEDULE = (STAGES, "prefetch", SPLIT, STREAM, CLUSTER, REGISTERS, *FLAGS)
"""Names of the schedule's choices in a space and in a candidate's key: fields of `wd.Schedule`. A flag is 0 or 1, a
cluster the workgroups along the first grid axis or a pair of those along the first two, `stream_k` 0, 1 (one workgroup
per unit) or a number of workgroups, `registers` a pair of budgets."""

MATRIX_TILES = (16, 32, 64, 128, 256)
MATRIX_DEPTHS = (16, 32, 64, 128)
PLAIN_TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
PLAIN_DEPTHS = (16, 32, 64, 128, 256, 512, 1024)
RING_DEPTHS = (1, 2, 3, 4)
USUAL_TILE = 64
"""Rows or columns of a tile by which a grid is judged small before tiles are chosen."""
MOST_ELEMENTS = 64
"""Elements per lane that a workgroup of a kernel without a contraction may hold of one array."""


@total_ordering
@dataclass(frozen=True)
class Candidate:
    """One choice: symbols by name with their values, and the fields of `wd.Schedule` that it fixes. Ordered by them."""

    subs: tuple[tuple[str, int], ...]
    schedule: tuple[tuple[str, Any], ...] = ()

    def __lt__(self, other: Candidate) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[Any, ...]:
        """What is compared: a cluster may be a number in one candidate and a pair in another."""
        return self.subs, [(n, v if isinstance(v, tuple) else (v,)) for n, v in self.schedule]

    def fields(self) -> dict[str, Any]:
        """What it fixes of `wd.Schedule`, as that has it."""
        return {n: _field(n, v) for n, v in self.schedule if v != OWN_REGISTERS}

    @property
    def key(self) -> str:
        """The candidate as text: `BK=32 BM=64 BN=64 stages=2`. Equal candidates have equal keys."""
        return " ".join(f"{name}={value_text(value)}" for name, value in (*self.subs, *self.schedule))

    def to_json(self) -> dict[str, Any]:
        return {"subs": dict(self.subs), "schedule": dict(self.schedule)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Candidate:
        """Raises KeyError, TypeError or ValueError for what `to_json` did not write."""
        parts: list[tuple[tuple[str, Any], ...]] = []
        for name in ("subs", "schedule"):
            pairs = [(k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(dict(data[name]).items())]
            if not all(isinstance(k, str) and (_whole(v) or (k in PAIRS and _pair(v))) for k, v in pairs):
                raise ValueError(f"{name} is {data[name]!r}")
            parts.append(tuple(pairs))
        return Candidate(*parts)


def value_text(value: Any) -> str:
    """A value of a candidate as its key has it: a pair as `40:232`, which `--space` takes as well."""
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _field(name: str, value: Any) -> Any:
    if name == CLUSTER:
        return (*_along(value), 1)
    return bool(value) if name in FLAGS or (name == STREAM and value in (0, 1)) else value


def _along(cluster: Any) -> tuple[int, int]:
    """Workgroups of a candidate's cluster along the first two grid axes."""
    return cluster if isinstance(cluster, tuple) else (cluster, 1)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(map(_whole, value))


def tile_symbols(kernel: Any) -> list[Any]:
    """Symbols that size tiles and no array: what a space may vary, in the order of the constraints."""
    dims = {s for p in kernel.parameters for d in getattr(p.annotation, "items", ()) for s in d.free_symbols}
    return [s for s in kernel._tile_symbols() if s not in dims]


def derive_space(
    kernel: Any, dims: Mapping[Any, Any], target: Target, product: Product | None = None
) -> dict[Any, tuple[Any, ...]]:
    """Values worth trying for each tile symbol, for `"stages"` where the kernel has a loop, and for what else of the
    schedule the chip leaves open: who copies, clusters and persistent workgroups where warpgroups have matrix
    instructions, copies straight to shared memory where the others go through registers; parts of the loop where the
    grid is small for the product (default: the target's reference product).

    `dims` holds the extents: a tile larger than the next power of two of its extent only adds padding.
    """
    graph = kernel.trace()
    contracted = {d for n in graph.all_nodes() if n.op in PRODUCTS for side in n.inputs for d in side.dims}
    space: dict[Any, tuple[Any, ...]] = {}
    for s in tile_symbols(kernel):
        for c in kernel.constraints:
            if getattr(c, "tile", None) != s or s in space:
                continue
            matrix = c.dim in contracted
            values: tuple[int, ...]
            if isinstance(c, TilingConstraint):
                values = MATRIX_DEPTHS if matrix else PLAIN_DEPTHS
            else:
                values = MATRIX_TILES if matrix else PLAIN_TILES
            extent = dims.get(c.dim)
            space[s] = _up_to(values, extent) if isinstance(extent, int) else values
    if graph.loops():
        space[STAGES] = RING_DEPTHS
        staged = bool(_staged(graph))
        if target.warpgroup is not None and contracted and _for_warpgroups(graph, target):
            space |= {"specialize": (0, 1), CLUSTER: (1, 2, (2, 2)), "persistent": (0, 1)}
        elif target.copy_linear and target.copy_async and staged:
            space["direct_to_shared"] = (0, 1)
        parts = _parts(kernel, graph, dims, product or product_named(None, target.name))
        if len(parts) > 1:
            space[SPLIT] = parts
    return space


def _parts(kernel: Any, graph: Any, dims: Mapping[Any, Any], product: Product) -> tuple[int, ...]:
    """In how many parts the trips of a kernel's loop may be cut: one, what fills the chip, and a quarter of that, where
    tiles of usual size leave most units idle (`ir/grid/split_choice`)."""
    schedule = getattr(kernel, "schedule", None)
    try:
        body = loop_to_cut(graph).attrs["body"]
    except ConstraintError:
        return (1,)
    extent = dims.get(body.dim)
    divided = schedule is not None and (schedule.split_k is not None or schedule.stream_k)
    if divided or not isinstance(extent, int):
        return (1,)
    groups = 1
    for c in kernel.constraints:
        if isinstance(c, WorkgroupConstraint):
            size, tile = dims.get(c.dim), evaluate(c.tile, {**dims, **kernel.subs})
            if not isinstance(size, int):
                return (1,)
            groups *= ceil(size / (tile if isinstance(tile, int) else USUAL_TILE))
    if 2 * groups > product.units:
        return (1,)
    most = min(MOST_PARTS, product.units // max(1, groups), extent // MATRIX_DEPTHS[0] // LEAST_TRIPS)
    if most < 2:
        return (1,)
    top = 1 << (most.bit_length() - 1)
    return tuple(dict.fromkeys((1, max(2, top // 4), top)))


def _for_warpgroups(graph: Any, target: Target) -> bool:
    """Whether every product's operands have a matrix instruction of warpgroups."""
    factors = [n.inputs[:2] for n in graph.all_nodes() if n.op in PRODUCTS]
    return all(target.warpgroups_multiply(a.dtype, b.dtype) for a, b in factors)


def _up_to(values: Sequence[int], extent: int) -> tuple[int, ...]:
    limit = 1 << max(0, extent - 1).bit_length()
    return tuple(v for v in values if v <= limit) or (values[0],)


def check_space(kernel: Any, space: Any) -> dict[Any, tuple[int, ...]]:
    """A user's space with normalised symbols. ConstraintError for what is no symbol or value, or for no values."""
    if not isinstance(space, Mapping):
        raise ConstraintError(
            f"space is {space!r}", kernel.loc, hint="a dict from symbols to values: space={BM: [32, 64]}"
        )
    known = {str(s) for s in tile_symbols(kernel)} | {str(s) for s in kernel.subs}
    found: dict[Any, tuple[int, ...]] = {}
    for name, values in space.items():
        chosen = isinstance(name, str) and name in SCHEDULE
        symbol = name if chosen else normalise(sympy.Symbol(name) if isinstance(name, str) else name)
        if not chosen and str(symbol) not in known:
            raise ConstraintError(
                f"space has {symbol}, which sizes no tile of {kernel.name}",
                kernel.loc,
                hint=f"it may vary {', '.join(sorted(known)) or 'nothing'} and {', '.join(map(repr, SCHEDULE))}",
            )
        one = symbol == REGISTERS and isinstance(values, tuple) and all(map(_whole, values))  # a pair is one value
        values = tuple(values) if isinstance(values, Iterable) and not one else (values,)
        if chosen:
            values = tuple(_plain(str(name), v) for v in values)
        if not values:
            raise ConstraintError(f"the search space is empty: no values for {symbol}", hint="give at least one value")
        legal, hint = _legal(symbol)
        if not all(map(legal, values)):
            raise ConstraintError(f"space has {values!r} for {symbol}", hint=hint)
        found[symbol] = tuple(dict.fromkeys(values))
    return found


def _legal(symbol: Any) -> tuple[Callable[[Any], bool], str]:
    """What a space may give for a symbol or a choice of the schedule, and that in words."""
    if symbol in FLAGS:
        return lambda v: _whole(v) and v in (0, 1), "True and False"
    if symbol == STREAM:
        return (
            lambda v: _whole(v) and 0 <= v <= MOST_WORKERS,
            f"False, True or a number of workgroups to {MOST_WORKERS}",
        )
    if symbol == CLUSTER:
        return (
            lambda v: len(_along(v)) == 2 and all(_whole(n) and n >= 1 for n in _along(v)),
            "whole numbers from 1 on, or pairs of them: workgroups along the first grid axis, or along the first two",
        )
    if symbol == REGISTERS:
        return (
            lambda v: v == OWN_REGISTERS or (_pair(v) and all(24 <= n <= 256 and n % 8 == 0 for n in v)),
            "None, or (copying, computing) registers per thread, whole eights from 24 to 256: (40, 232)",
        )
    return lambda v: _whole(v) and v >= 1, "whole numbers from 1 on"


def _plain(name: str, value: Any) -> Any:
    """A choice of the schedule as a candidate has it: flags as 0 and 1, a cluster along the first axis as its size,
    others as the pair of their sizes."""
    if (name in FLAGS or name == STREAM) and isinstance(value, bool):
        return int(value)
    if name == CLUSTER and isinstance(value, (tuple, list)) and value:
        pair = (*value, 1)[:2]
        flat = all(n == 1 for n in value[2:])
        return (value[0] if pair[1] == 1 else pair) if flat else tuple(value)
    if name == REGISTERS:
        return OWN_REGISTERS if value is None else tuple(value) if isinstance(value, list) else value
    return value


def enumerate_space(space: Mapping[Any, Sequence[int]]) -> list[Candidate]:
    """Every combination, ordered by key."""
    names = sorted(space, key=str)
    found = []
    for values in itertools.product(*(space[n] for n in names)):
        pairs = [(str(n), v) for n, v in zip(names, values)]
        found.append(
            Candidate(
                tuple(p for p in pairs if p[0] not in SCHEDULE), tuple(p for p in pairs if p[0] in SCHEDULE)
            )
        )  # fmt: skip
    return sorted(found)


@dataclass(frozen=True)
class Estimate:
    """What is known of a candidate before it is compiled: why it is not worth it, or roughly how long it takes; both
    of one that leaves lanes idle."""

    candidate: Candidate
    reason: str = ""
    seconds: float = 0.0


def estimate(kernel: Any, candidate: Candidate, dims: Mapping[Any, Any], target: Target, product: Product) -> Estimate:
    """Judge one candidate by constraints, the chip's limits and the roofline of its tiles."""
    return estimates(kernel, [candidate], dims, target, product)[0]


def estimates(
    kernel: Any, candidates: Iterable[Candidate], dims: Mapping[Any, Any], target: Target, product: Product
) -> list[Estimate]:
    """Judge candidates. Those that differ in their schedules alone share graph and partition."""
    known: dict[tuple[tuple[str, int], ...], _Cut | str] = {}
    illegal: dict[tuple[tuple[str, Any], ...], str] = {}
    found = []
    for candidate in candidates:
        if candidate.schedule not in illegal:
            illegal[candidate.schedule] = _illegal(kernel, candidate, target)
        if illegal[candidate.schedule]:
            found.append(Estimate(candidate, illegal[candidate.schedule]))
            continue
        if candidate.subs not in known:
            known[candidate.subs] = _cut_for(kernel, candidate, dims, target)
        here = known[candidate.subs]
        if isinstance(here, str):
            found.append(Estimate(candidate, here))
            continue
        choices = dict(candidate.schedule)
        stages = choices.get(STAGES, 2)
        reason = _does_not_fit(here.graph, here.partition, here.target, stages) or _misfit(here, choices)
        seconds = 0.0
        if not reason:
            seconds = _quick_seconds(here.graph, here.values, here.partition, here.target, product, stages, choices)
            reason = _idle(here)
        found.append(Estimate(candidate, reason, seconds))
    return found


def worth_it(found: Sequence[Estimate]) -> list[Estimate]:
    """The same estimates; where all candidates are left out, those that leave lanes idle are not."""
    if any(not e.reason for e in found):
        return list(found)
    return [replace(e, reason="") if e.seconds else e for e in found]


def _illegal(kernel: Any, candidate: Candidate, target: Target) -> str:
    """Why no kernel can have the schedule on this target: choices that exclude each other, or the kernel's own."""
    from wavedsl.compiler import check_schedule

    fixed = candidate.fields()
    if not fixed:
        return ""
    try:
        schedule = replace(getattr(kernel, "schedule", None) or Schedule(), **fixed)
        check_schedule(schedule, target)
    except WaveError as error:
        return error.message
    if schedule.registers is not None and schedule.specialize is False:
        return f"registers {value_text(schedule.registers)} are divided between a copying warpgroup and others"
    if schedule.ping_pong and target.warpgroup is not None and schedule.specialize is False:
        return "warpgroups take turns beside a copying warpgroup only"
    if schedule.ping_pong and target.warpgroup is not None and schedule.persistent is False:
        return "warpgroups take turns at the tiles of persistent workgroups only"
    return ""


@dataclass(frozen=True)
class _Cut:
    """A kernel with its tiles: graph, values of symbols, partition, and the target as its waves see it."""

    graph: Any
    values: Mapping[Any, Any]
    partition: Partition
    target: Target


def _cut_for(kernel: Any, candidate: Candidate, dims: Mapping[Any, Any], target: Target) -> _Cut | str:
    """The kernel with a candidate's tiles, or why it cannot have them."""
    values = {**dims, **{normalise(sympy.Symbol(n)): v for n, v in candidate.subs}}
    word = f"{target.wave_word}s"
    try:
        graph = fitted_repeats(kernel.trace({k: v for k, v in values.items() if isinstance(v, (int, AddressSpace))}))
        if target.warpgroup is not None and any(n.op in PRODUCTS for n in graph.all_nodes()):
            found = plan(graph, values, target)  # whether warpgroups are the waves, only layouts tell
            return _Cut(graph, values, found.partition, found.target)
        resolved = resolve_constraints(graph, values, max_waves=target.max_waves, wave_word=word)
        return _Cut(graph, values, cut(graph, resolved, target), target)
    except WaveError as error:
        return error.message


def _tile_elements(partition: Partition, dims: Iterable[Any], wave: bool = False) -> int:
    return prod((partition.dims[d].wave if wave else partition.dims[d].tile) for d in dims if d in partition.dims)


def _staged(graph: Any) -> list[Any]:
    """Arrays whose tiles the user sends through shared memory."""
    return [a for a in graph.arguments if a.kind == "memory" and a.address_space is SHARED]


def _does_not_fit(graph: Any, partition: Partition, target: Target, stages: int) -> str:
    shared = sum(_tile_elements(partition, a.dims) * max(8, a.dtype.bits) // 8 for a in _staged(graph))
    if shared * stages > target.shared_bytes:
        return f"{shared * stages} bytes of shared tiles, but {target.name} has {target.shared_bytes}"
    words = 0
    for node in graph.all_nodes():
        if node.op in PRODUCTS:
            words += _tile_elements(partition, node.dims, wave=True) * max(32, node.dtype.bits) // 32
    registers = ceil(words / target.wave_size)
    threads = partition.waves * target.wave_size
    if registers > target.registers or not target.occupancy(registers + 1, shared * stages, threads):
        return (
            f"accumulators of {registers} registers per lane and {shared * stages} shared bytes leave no workgroup room"
        )
    if not words:
        largest = max((_tile_elements(partition, a.dims) for a in graph.arguments if a.dims), default=1)
        if largest > MOST_ELEMENTS * threads:
            return f"{largest} elements of one array are more than {MOST_ELEMENTS} per lane"
    return ""


def _idle(here: _Cut) -> str:
    """Why a candidate leaves lanes without elements."""
    if any(n.op in PRODUCTS for n in here.graph.all_nodes()):
        return ""
    arrays = [a.dims for a in here.graph.arguments if a.dims]
    largest = max((_tile_elements(here.partition, dims) for dims in arrays), default=1)
    return "" if largest >= here.target.wave_size else f"{largest} elements of a workgroup leave lanes of a wave idle"


def _misfit(here: _Cut, choices: Mapping[str, Any]) -> str:
    """Why choices of a schedule do not go together, or not with the tiles."""
    partition, target = here.partition, here.target
    looped = [n for n in ("ping_pong", STREAM) if choices.get(n)]
    if looped and not any(p.role == "loop" for p in partition.dims.values()):
        return f"{looped[0]} wants a loop whose trips make a sum"
    if choices.get("ping_pong") and target.waves_alternate and partition.waves < 2 * target.simds:
        return f"two groups of waves that take turns want {2 * target.simds} waves, the tiles have {partition.waves}"
    parts = choices.get(SPLIT, 1)
    if parts > 1:
        trips = prod(p.trips or 1 for p in partition.dims.values() if p.role == "loop")
        if choices.get("persistent"):
            return f"{parts} parts of a tile want a workgroup each, not persistent ones"
        if trips < parts:
            return f"{trips} trips leave some of {parts} parts without any"
    sizes = _along(choices.get(CLUSTER, 1))
    cluster = prod(sizes)
    if cluster > 1 and not choices.get("specialize", 1):
        return f"a cluster of {cluster} workgroups needs a copying warpgroup"
    if sizes[1] > 1 and not choices.get("persistent", 1):
        return "clusters along the second grid axis take their tiles in turn"
    asks = choices.get("specialize") or cluster > 1
    if target.warpgroup is not None and asks and not choices.get("ping_pong"):  # which has cuts of its own
        return NO_WARPGROUP
    return cluster_misfit(here.graph, partition, ClusterShape(sizes)) if cluster > 1 else ""


def _quick_seconds(
    graph: Any, values: Mapping[Any, Any], partition: Partition, target: Target, product: Product, stages: int,
    choices: Mapping[str, int],
) -> float:  # fmt: skip
    """The roofline of the tiles alone: padded work, reads per workgroup, shared reads per wave, whole rounds. What a
    cluster shares is read once for all of it; without a copying warpgroup every trip waits once more, without
    persistent workgroups every round waits for its first tiles."""
    parts = choices.get(SPLIT, 1)
    groups = parts * prod(p.trips or 1 for p in partition.dims.values() if p.role in ("workgroup", "index"))
    rounds = ceil(groups / product.units)
    trips = ceil(prod(p.trips or 1 for p in partition.dims.values() if p.role == "loop") / parts)
    work = count_flops(graph, values, partition)
    clocks = 0.0
    for (pipe, dtype), flops in work.actual.items():
        unit = "matrix" if pipe == "product" and product.has_matrix(dtype, target) else "vector"
        rate = product.peak(dtype, unit, target) / product.units / product.clock
        clocks += flops / groups * rounds / rate
    moved = fetched = 0.0
    axes = [*zip(map(set, partition.grid_axes()), _along(choices.get(CLUSTER, 1)))]
    for node in graph.all_nodes():
        if node.op not in ("read", "write"):
            continue
        memory = graph.argument(node.attrs["memory"])
        loops = prod(p.trips or 1 for d, p in partition.dims.items() if p.role == "loop" and d in memory.dims)
        loops = ceil(loops / parts) if loops > 1 else 1
        size = _tile_elements(partition, memory.dims) * loops * memory.dtype.bits / 8
        moved += size / prod(n for axis, n in axes if axis.isdisjoint(memory.dims))
        if memory.address_space is SHARED:
            others = partition.waves // max(
                1, prod(partition.dims[d].waves for d in memory.dims if d in partition.dims)
            )
            fetched += size * others
    if parts > 1:  # sums are written once, and read by the last to arrive, which waits for its fence and its ticket
        sums = max(_tile_elements(partition, n.dims) for n in graph.all_nodes() if n.op in PRODUCTS or n.op == "carry")
        moved += 4 * sums * (1 + parts)
    port = moved * rounds / product.unit_port(target, "load.global")
    shared = (fetched + (moved if fetched else 0)) * rounds / product.unit_port(target, "load.shared")
    waiting = trips * rounds * target.cost("barrier").latency
    if not choices.get("specialize", 1):
        waiting += trips * rounds * target.cost("barrier").latency
    if not choices.get("persistent", 1):
        waiting += rounds * target.cost("load.global", 16).latency
    if not choices.get("direct_to_shared", 1):
        waiting += trips * rounds * target.cost("store.shared", 16).latency
    if parts > 1:
        waiting += rounds * (2 + parts) * target.cost("load.global", 16).latency
    if stages == 1:
        waiting += trips * rounds * target.cost("load.global", 16).latency
    least = sum(
        prod(int(values[d]) if d in values else 1 for d in a.dims) * a.dtype.bits / 8 for a in graph.arguments if a.dims
    )
    return max((max(clocks, port, shared) + waiting) / product.clock, least / product.hbm)


__all__ = [
    "SCHEDULE", "STAGES", "Candidate", "Estimate", "WaveConstraint", "WorkgroupConstraint", "check_space",
    "derive_space", "enumerate_space", "estimate", "estimates", "tile_symbols",
]  # fmt: skip
