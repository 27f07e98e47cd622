"""What lowering knows while it works: builder, plans, positions, and how a node's registers are named.

In: a graph with its `Partition` and `Inference`, the arrays, the target. The functions that emit (`lower_reads`,
`lower_matrix`, `lower_values`, `lower`) take a `Lowering` and ask it for coordinates, costs and values.

Invariant: the registers of a value follow its layout's element order; what lies beyond an array's end or a tile's
edge is 0 in registers, and every consumer for which 0 is not neutral masks it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.access import Position
from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.addresses.move_elements import assemble, join_word
from wavedsl.ir.addresses.packed_view import (
    PackedView,
    check_units,
    halves,
    packed_view,
    spread,
    unit_elements,
    unit_words,
)
from wavedsl.ir.addresses.repeated import Repeated
from wavedsl.ir.addresses.run_time_strides import counted, narrow_stride
from wavedsl.ir.addresses.vectors import element_groups, vector_elements
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.cuts.partition import DimPlan, Partition
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, region_nodes
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_tile, only_placing, static_number
from wavedsl.ir.errors import CompileError, WaveError
from wavedsl.ir.inference.infer import Inference
from wavedsl.ir.inference.matrix_count import k_issues, result_tiles
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import I32, I64, Kernel, Value
from wavedsl.ir.layouts.fragment import Fragment, chunk_count, from_words, per_register
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.late_regions import (
    CHAINS,
    LONG_VALUES,
    ROWS_HELD,
    STREAMED,
    late_regions,
    long_for,
    results_are_many,
    row_registers,
    streams,
)
from wavedsl.ir.lower.lowering_notes import Notes
from wavedsl.ir.lower.lowering_state import ProductPlans, ReadPlans, SharedRoom, WritePlans
from wavedsl.ir.lower.tile_views import tile_info
from wavedsl.ir.schedule.steps import Context, Env, Key
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import Target, wave_room


class Lowering:
    """One kernel on its way to kernel IR. `base` holds the first coordinate of the current tile per dimension;
    `wave_digit` this wave's share; `loop_dim` the innermost open loop. What is decided of shared memory, reads, writes
    and products stands in `room`, `reads`, `writes` and `matrix` (`lowering_state.py`)."""

    def __init__(
        self,
        kernel: Kernel,
        graph: Graph,
        partition: Partition,
        inference: Inference,
        arrays: Mapping[str, ArrayInfo],
        target: Target,
        dynamic: dict[str, int],
        choices: Choices,
    ):
        self.kernel, self.graph, self.partition, self.inference = kernel, graph, partition, inference
        touched = [(n.attrs["memory"], ROWS[n.op].effect) for n in graph.all_nodes() if "memory" in n.attrs]
        both_ways = {name for name, effect in touched if effect} & {name for name, effect in touched if not effect}
        self.arrays = {
            n: replace(info, written=n in both_ways or info.written, counted=counted(info, dynamic))
            for n, info in arrays.items()
        }
        self.target, self.dynamic, self.choices = target, dynamic, choices
        self.b = Builder(kernel, target)
        self.plans: Mapping[str, DimPlan] = {dim_name(d): p for d, p in partition.dims.items()}
        self.followed = {dim_name(d): (str(base), factor) for d, (base, factor) in partition.derived.items()}
        """Dimensions that are cut where another one is: name → (that one, elements per element of it)."""
        self.alike = {dim_name(d): dim_name(base) for d, base in partition.alike.items()}
        """Dimensions that count a workgroup's share of another one's tile, and that one: same extent, same waves."""
        self.notes = Notes(graph=graph.notes)
        self.role = "all waves"
        self.nesting = 0
        """Loops around what is emitted, for the notes."""

        self.room = SharedRoom()
        self.reads = ReadPlans(inference.matrix_uses())
        self.b.matrix_reads_shared = bool(self.reads.matrix_uses)
        self.writes = WritePlans()
        self.matrix = ProductPlans()

        self.wave_digit: dict[str, Any] = {}
        self.base: dict[str, Any] = {}
        """First coordinate of the current tile per dimension; loops set theirs while their body is emitted."""
        self.first: dict[str, Any] = {}
        """Per open loop whose range does not begin with its dimension, the first coordinate of its first tile."""
        self.loop_dim: str | None = None
        self.whole: Sequence[str] = ()
        """Dimensions along which all tiles but the last one are accessed as whole ones (`whole_tiles.py`)."""
        self.share_of_wave = False
        """Whether the ends of tiles are for now those of this wave's share."""
        self.labels = 0
        self.unreached: set[int] = set()
        """Nodes inside of loops that turned out to have no trip."""

        long = long_for(wave_room(target, partition.waves))
        self.row_registers = row_registers(graph, inference, long)
        """Registers of a row that is held until a number of all of it is known; 0 where they are few."""
        self.streams = streams(graph, inference, long)
        """Whether long values go element by element from loads to stores."""
        if (self.streams or self.row_registers) and not any(n.op in CHAINS for n in graph.all_nodes()):
            kernel.notes[LONG_VALUES] = STREAMED if self.streams else ROWS_HELD
        many = self.row_registers > 0 or self.streams or results_are_many(graph, inference)
        self._late_regions = late_regions(graph) if many else set()

        self.placing = only_placing(graph)
        """Ids of nodes that only say where tiles lie: they have no steps."""
        self.symbols: Mapping[str, Any] | None = None
        """What `lower_mapped.symbols_of` has made: numbers of symbols that are no dimension of a value."""
        self.late_numbers: dict[int, bool] = {}
        """Node id → whether its elements are made where they are used (`late_numbers.py`), of those that were asked."""
        self.changed: set[str] | None = None
        """Arguments that the kernel changes anywhere (`row_numbers.py`), once somebody has asked."""
        self.mapped: dict[tuple[int, int, bool], tuple[Layout, Any]] = {}
        """What `mapped_groups` has found, by node, layout, and whether it stores."""
        self._units: dict[int, PackedView | None] = {}
        self._user_table: dict[int, list[Node]] | None = None
        self._homes: dict[int, Region] | None = None
        self._effects: dict[int, list[Node]] = {}
        self._written: dict[int, set[str]] = {}

    def extent(self, dim: str) -> Any:
        """The extent of a dimension: an int, or the hidden parameter that holds it."""
        plan = self.plans[dim]
        if plan.extent is not None:
            return plan.extent
        index = self.dynamic[f"extent {self.alike.get(dim, dim)}"]
        return self.b.param(index, I32, lo=0)

    def position(self, dims: Sequence[str], base: Mapping[str, Any] | None = None) -> Position:
        """Where this wave's tile starts, per dimension."""
        b = self.b
        start = self.base if base is None else base
        wave = {d: scaled(b, self.digit(d), self.plans[d].wave) for d in dims}
        return Position({d: self._start(start, d) for d in dims}, wave)

    def cut_along(self, dims: Iterable[str]) -> set[str]:
        """The dimensions whose cuts tell where elements along `dims` are: of one such as `K / 32`, K."""
        return {self.followed[d][0] if d in self.followed else self.alike.get(d, d) for d in dims}

    def digit(self, dim: str) -> Any:
        """This wave's share of a dimension: which one counts."""
        followed = self.followed.get(dim)
        return self.wave_digit[self.alike.get(dim, dim) if followed is None else followed[0]]

    def waves_along(self, dim: str) -> tuple[Value, int]:
        """(the number of the first of the waves that differ from this one along `dim` alone, the distance of the
        next)."""
        (cut,) = self.cut_along([dim])
        key = next(x for x in self.partition.dims if str(x) == cut)
        divisor, _ = self.partition.wave_radix(key)
        return self.b.sub(self.b.wave(), self.b.mul(self.digit(dim), divisor)), divisor

    def _start(self, start: Mapping[str, Any], dim: str) -> Any:
        """The first coordinate of the current tile; of a dimension that follows another one, its part of that."""
        followed = self.followed.get(dim)
        if followed is None:
            return start.get(dim, 0)
        base, factor = start.get(followed[0], 0), followed[1]
        if isinstance(base, int):
            return int(base * factor)
        return self.b.udiv(self.b.mul(base, factor.numerator), factor.denominator)

    def moves_with(self, dims: Sequence[str], loop_dim: str | None) -> bool:
        """Whether a tile of these dimensions moves with the trips over another one."""
        return loop_dim is not None and any(
            d == loop_dim or (d in self.followed and self.followed[d][0] == loop_dim) for d in dims
        )

    def view_info(self, n: Node) -> ArrayInfo:
        """What is known of the array of a read or write, with its dimensions under the names that they have in the
        value; of rows by index, of their tile."""
        rows = self.reads.rows.get(n.id)
        return tile_info(self, n) if rows is None else rows.info

    def array(self, name: str) -> tuple[ArrayInfo, list[Any], list[Any]]:
        """(what is known, extents, strides) of an array argument, run-time ones as values."""
        info = self.arrays[name]
        extents = [self.extent(dim_name(d)) if n is None else n for d, n in zip(info.dims, info.extents)]
        return info, extents, [narrow_stride(self.b, info, i) for i in range(len(info.strides))]

    def layout(self, n: Node) -> Layout:
        return self.inference.layouts[n.id]

    def keys(self, n: Node) -> tuple[Key, ...]:
        """The keys of a node's registers."""
        if n.id in self.placing:
            return ()
        if n.op == "read":
            if self.one_by_one(n):
                return (("v", n.id),)
            kind = "w" if self.joined(n) else "f"
            return tuple((kind, n.id, g) for g in range(len(self.read_groups(n))))
        if n.op in PRODUCTS and not self.inference.mmas[n.id].atom.asynchronous:
            plan = self.inference.mmas[n.id]
            return tuple(("acc", n.id, t, len(k_issues(plan)) - 1) for t in range(len(result_tiles(plan))))
        if n.op == "carry":
            count = chunk_count(self.layout(n), n.dtype)
            return tuple(("carry", n.id, c) for c in range(count))
        if n.op == "result" and n.inputs[0].op in REGIONS:
            count = chunk_count(self.layout(n), n.dtype)
            return tuple(("r", n.inputs[0].id, n.attrs["position"], c) for c in range(count))
        return (("v", n.id),)

    def value(self, n: Node, env: Env) -> Fragment:
        """A node's value from its registers in the environment."""
        b, layout = self.b, self.layout(n)
        if n.op == "read":
            unit = self.units(n)
            if unit is not None:
                return spread(b, layout, n.dtype, self.unit_words(n, unit, env))
            whole = env[self.keys(n)[0]]
            if isinstance(whole, Fragment):  # loaded when its elements are asked for
                return whole
            if self.repeats(n) > 1:
                keys = self.keys(n)
                return Repeated(b, layout, n.dtype, {e: (env[keys[g]], at) for e, (g, at) in self.homes(n).items()})
            loaded = assemble(b, layout, n.dtype, [(g, env[k]) for g, k in zip(self.read_groups(n), self.keys(n))])
            if n.dims or n.dtype is not dt.i32 or not self.target.scalar_registers:
                return loaded
            # All lanes load a single number from one place: scalar registers and arithmetic take it from here.
            return from_words(b, layout, n.dtype, [b.readfirst(loaded.word(b, 0), same=True)])
        got = [env[k] for k in self.keys(n)]
        if got and isinstance(got[0], Fragment):  # computed when its elements are asked for
            return got[0]
        return Fragment(layout, n.dtype, got)

    def units(self, n: Node) -> PackedView | None:
        """How a read of a packed array sees it; None for every other read."""
        if not self.arrays[n.attrs["memory"]].dtype.packed:
            return None
        if n.id not in self._units:
            if is_tile(self.graph, n):
                self._units[n.id] = self.units_for(n, self.layout(n))
            else:
                from wavedsl.ir.lower.lower_mapped import mapped_units

                self._units[n.id] = mapped_units(self, n, self.layout(n))
        return self._units[n.id]

    def one_by_one(self, n: Node) -> bool:
        """Whether a gather from a packed array loads a byte per element, of which it takes the half that its
        coordinate says."""
        mapped = n.attrs.get("mapping") is not None and not is_tile(self.graph, n)
        return mapped and self.arrays[n.attrs["memory"]].dtype.packed and self.units(n) is None

    def fetched_view(self, n: Node) -> tuple[ArrayInfo, Layout, Partition]:
        """A read whose tile bulk copies bring for lanes: its array, layout and partition, counted in units where the
        array is packed."""
        unit = self.units(n)
        if unit is None:
            return self.view_info(n), self.layout(n), self.partition
        plans = {d: unit.plans[dim_name(d)] for d in self.partition.dims}
        return unit.info, unit.layout, replace(self.partition, dims=plans)

    def units_for(self, n: Node, layout: Layout) -> PackedView:
        """How a read or write of a packed array sees it where the value has this layout."""
        try:
            info = self.view_info(n)
            found = packed_view(
                info, layout, self.plans, transposing=self.target.transposing, load=n.op == "read"
            )  # fmt: skip
            if found is None:
                check_units(info, self.plans, unit_elements(info.dtype))
        except WaveError as error:
            error.location = error.location or n.loc
            raise
        if found is None:
            raise CompileError(f"a value in {layout} holds no whole units of packed {n.attrs['memory']}", n.loc)
        return found

    def unit_words(self, n: Node, unit: PackedView, env: Env, wanted: Sequence[int] | None = None) -> list[Value]:
        """The dense words of a packed read, or those with the numbers `wanted`. Only the loads that hold them are
        needed: others may not be there yet."""
        b, bits = self.b, unit.dtype.bits
        groups, keys = self.read_groups(n), self.keys(n)
        home = {u: (g, position) for g, group in enumerate(groups) for position, u in enumerate(group)}
        count, wide = unit.layout.elements_per_lane, unit_words(unit.dtype)
        if unit.half is not None:
            per = 32 // n.dtype.bits
            chosen = range(-(-count // per)) if wanted is None else wanted
            places = ([home[u] for u in range(r * per, min(r * per + per, count))] for r in chosen)
            return [halves(b, unit.half, n.dtype, [(env[keys[g]], position) for g, position in x]) for x in places]
        out = []
        for r in range(-(-count * bits // 32)) if wanted is None else wanted:
            if wide:
                g, position = home[r // wide]
                value = env[keys[g]]
                out.append(b.slice(value, position * wide + r % wide) if value.type.n > 1 else value)
                continue
            per = 32 // bits
            inside = [home[u] for u in range(r * per, min(r * per + per, count))]
            out.append(join_word(b, unit.dtype, [(env[keys[g]], position) for g, position in inside]))
        return out

    def uniform(self, n: Node, env: Env) -> Value:
        """A single integer of the graph as a uniform i32. One that bindings decide is needed in front of loops that
        name it, too."""
        b = self.b
        known = static_number(self.graph, n)
        if known is not None and -(1 << 31) <= known < 1 << 31:
            return b.i32(known)
        number = self.value(n, env).element(b, 0)
        number = number if number.uniform else b.readfirst(number, same=True)
        return b.trunc(number) if number.type is I64 else number

    def slot_bytes(self, n: Node, context: Context) -> Any:
        """Byte offset of a staged read's ring slot in the iteration of `context`."""
        tile = self.reads.made[n.id] if n.id in self.reads.made else self.reads.staged[n.id]
        depth, size = self.room.depths[self.room.buffers[n.id]], tile.place.bytes
        ring = self.reads.ring_of.get(n.id)
        if ring is not None:
            return scaled(self.b, ring.slot, size)
        if depth == 1:
            return 0
        if isinstance(context.iteration, int):
            return context.iteration % depth * size
        return self.b.mul(self.b.urem(context.iteration, depth), size)

    def trip_count(self, dim: str) -> Any:
        """Trips of a loop over a dimension: an int, or a value where a run-time extent decides."""
        plan, b = self.plans[dim], self.b
        if plan.trips is not None:
            return plan.trips
        return b.udiv(b.add(self.extent(dim), plan.tile - 1), plan.tile)

    def fillers(self, rings: Sequence[Any]) -> list[Any]:
        """Where the thread that fills rings beside the products stands in each; none with a copying warpgroup."""
        if self.matrix.strategy.specialize:
            return []
        return [self.reads.fillers.setdefault(ring.name, replace(ring)) for ring in rings]

    def note(self, text: str) -> None:
        """Write down what the role that is emitted does here."""
        self.notes.roles.setdefault(self.role, []).append("  " * self.nesting + text)

    @contextmanager
    def noted_loop(self, text: str) -> Iterator[None]:
        """Write down a loop; what is noted inside is part of it."""
        self.note(f"loop over {text}")
        self.nesting += 1
        yield
        self.nesting -= 1

    def users(self) -> dict[int, list[Node]]:
        """Node id → the nodes that take its value."""
        got = self._user_table
        if got is None:
            got = self._user_table = {}
            for u in self.graph.all_nodes():
                for x in u.inputs:
                    got.setdefault(x.id, []).append(u)
        return got

    def computes_late(self, region: Region) -> bool:
        """Whether what a region computes is computed as it is stored: results of products, or long values, fill half of
        the registers. So it is in the outermost region, behind its loops, and in branches behind products."""
        return id(region) in self._late_regions

    def region_of(self, n: Node) -> Region:
        """The region whose list a node is in (a carry's: the one it is an argument of)."""
        got = self._homes
        if got is None:
            got = self._homes = {}
            for region in self.graph.regions():
                for x in (*region.carries, *region.nodes):
                    got[x.id] = region
        return got[n.id]

    def effects(self, region: Region) -> list[Node]:
        """The nodes of a region, and of those inside it, that do more than give a value, in order."""
        got = self._effects.get(id(region))
        if got is None:
            got = self._effects[id(region)] = [x for x in region_nodes(region) if ROWS[x.op].effect]
        return got

    def written(self, region: Region) -> set[str]:
        """The arrays that a region, and those inside it, write to."""
        got = self._written.get(id(region))
        if got is None:
            got = {x.attrs["memory"] for x in self.effects(region) if x.op == "write"}
            self._written[id(region)] = got
        return got

    def joined(self, n: Node) -> bool:
        """Whether the loads of a staged read are narrower than a register, or bring parts of several, and are joined to
        registers right away, so that they do not wait in one register each."""
        staged = self.reads.staged.get(n.id)
        if staged is None or staged.loads is None:
            return False
        unit = self.units(n)
        return staged.loads.atom.joined or len(staged.groups[0]) < per_register(n.dtype if unit is None else unit.dtype)

    def gathered(self, n: Node) -> int:
        """Neighbouring loads of a staged read that are one step: the rows of column pairs that an instruction takes
        together. They become pairs of loads (`codegen/amdgcn/pair_shared.py`) where nothing comes between them."""
        staged = self.reads.staged.get(n.id)
        words = self.paired_words(n)
        if staged is None or staged.loads is None or not words or self.joined(n):
            return 1
        return max(1, 4 * words // staged.loads.bytes)

    def paired_words(self, n: Node) -> int:
        """Registers of a value that one instruction of column pairs takes as its B; 0: none takes it as it is."""
        for plan in self.inference.mmas.values():
            if plan.atom.parts > 1 and plan.ports[1] is n:
                return 0 if (plan.node.id, plan.positions[1]) in self.inference.demands else plan.atom.b_words
        return 0

    def read_groups(self, n: Node) -> list[tuple[int, ...]]:
        """Elements of a read behind each of its keys: a load's, those of loads that are one step, or a register's where
        loads are joined."""
        staged = self.reads.staged.get(n.id)
        if staged is None:
            return self.direct_groups(n)
        if self.joined(n):
            unit = self.units(n)
            layout, dtype = (self.layout(n), n.dtype) if unit is None else (unit.layout, unit.dtype)
            per, count = per_register(dtype), layout.elements_per_lane
            return [tuple(range(e, min(e + per, count))) for e in range(0, count, per)]
        together = self.gathered(n)
        groups = staged.groups
        return [sum(groups[g : g + together], ()) for g in range(0, len(groups), together)]

    def direct_groups(self, n: Node) -> list[tuple[int, ...]]:
        """Elements of each vector load of a read that goes straight to registers."""
        info = self.view_info(n)
        if n.attrs.get("mapping") is not None and not is_tile(self.graph, n):
            from wavedsl.ir.lower.lower_mapped import mapped_groups

            return mapped_groups(self, n, self.layout(n), False).groups
        unit = self.units(n)
        if unit is not None:
            return element_groups(unit.layout, vector_elements(unit.info, unit.layout, unit.plans)[1])
        _, bits = vector_elements(info, self.layout(n), self.plans)
        return element_groups(self.layout(n), bits)

    def repeats(self, n: Node) -> int:
        """How many neighbours of a read's value are the same element of its array, all of them loaded once."""
        if n.attrs.get("mapping") is None or n.id in self.reads.staged or is_tile(self.graph, n):
            return 1
        from wavedsl.ir.lower.lower_mapped import mapped_groups

        return mapped_groups(self, n, self.layout(n), False).repeats

    def homes(self, n: Node) -> dict[int, tuple[int, int]]:
        """Per element of a read: which of its keys holds it, and its position among what that holds."""
        table = self.reads.homes.get(n.id)
        if table is None:
            repeats = self.repeats(n)
            table = self.reads.homes[n.id] = {
                e: (g, position // repeats)
                for g, group in enumerate(self.read_groups(n))
                for position, e in enumerate(group)
            }
        return table

    def memory_cost(self, kind: str, bytes: int) -> tuple[tuple[tuple[str, int], ...], int]:
        """(units and clocks for the whole workgroup, latency) of one access of `bytes` per lane."""
        wide = next((n for n in (1, 2, 4, 8, 12, 16) if n >= bytes and (kind, n) in self.target.costs), 16)
        unit, clocks, latency = self.unit_cost(kind, wide)
        return ((unit, clocks), ("issue", self.issue_clocks())), latency

    def valu_cost(self, clocks: int) -> tuple[tuple[tuple[str, int], ...], int]:
        """(units and clocks, latency of one) of vector instructions that take so many clocks to issue."""
        valu = self.target.cost("valu")
        units = ((valu.unit, clocks), ("issue", clocks)) if valu.unit != "issue" else (("issue", clocks),)
        return units, valu.latency

    def unit_cost(self, kind: str, bytes: int) -> tuple[str, int, int]:
        """(unit, clocks for the whole workgroup, latency) of one access of one wave."""
        u = self.target.cost(kind, bytes)
        waves = self.partition.waves
        share = waves if u.unit in self.target.shared_units else -(-waves // self.target.simds)
        return u.unit, u.cycles * share, u.latency

    def issue_clocks(self) -> int:
        """Clocks of one SIMD's issue slot that one instruction of every wave takes."""
        return self.target.clock_unit * -(-self.partition.waves // self.target.simds)

    def base_at(self, iteration: Any) -> dict[str, Any]:
        """Tile starts with the innermost loop's dimension at a given iteration."""
        base = dict(self.base)
        if self.loop_dim is not None:
            base[self.loop_dim] = self.trip_base(self.loop_dim, iteration)
        return base

    def trip_base(self, dim: str, iteration: Any) -> Any:
        """The first coordinate of a loop's tile at a given iteration."""
        return total(self.b, [scaled(self.b, iteration, self.plans[dim].tile), self.first.get(dim, 0)])


def both(b: Builder, x: Value | None, y: Value | None) -> Value | None:
    """The conjunction of two guards, None where there is none."""
    return y if x is None else x if y is None else b.pand(x, y)


def never(guard: Value | None) -> bool:
    """Whether an iteration surely lies past the end of its loop."""
    return guard is not None and guard.const is False
