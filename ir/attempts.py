"""The first way to lower a graph that there is: plans in turn, each with finer tiles or more waves where it needs them.

In: a prepared graph with its sizes, arrays and target. Out: the kernel, and the plan it was lowered by.
Only the lowering knows what shared memory and registers have room for, so it is tried. A plan that is refused is cut
finer, then its operands outside of loops give up their shared memory; a kernel that could have more in flight, whose
values are together more than a wave's registers, or that leaves SIMDs idle, is lowered again by what the kernel has
shown. What the user fixed is not passed over: its error is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from itertools import chain
from math import inf, prod
from typing import Any

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.product_waves import DEAREST
from wavedsl.ir.cuts.register_file import ADDRESSES, BEYOND, VECTORS, loop_words
from wavedsl.ir.dataflow.constraints import TilingConstraint, WorkgroupConstraint
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph
from wavedsl.ir.dataflow.many_products import many_products
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.inference.plans import (
    Plan,
    is_fixed,
    plans,
    takes_turns,
    with_fewer_rows,
    with_more_waves,
    with_partition,
    with_side_rows,
)
from wavedsl.ir.inference.retile import fewer_rows_a_trip, finer, fitting, lighter, only_products
from wavedsl.ir.inference.side_rows import side_rows
from wavedsl.ir.inference.spared_reads import next_spared
from wavedsl.ir.kernel.element_order import on_demand, order_elements
from wavedsl.ir.kernel.kernel_ir import Kernel, Param, Value
from wavedsl.ir.kernel.pressure import pressure, pressures
from wavedsl.ir.kernel.straight_clocks import copied, loaded, straight_clocks
from wavedsl.ir.kernel.unit_clocks import meeting_clocks, unit_clocks, vector_clocks
from wavedsl.ir.layouts.column_pairs import contiguous_rows
from wavedsl.ir.lower_kernel import lower
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.regions.counted_arrays import as_before, counted_arrays
from wavedsl.ir.regions.first_loads import late_loads, resident_groups, trip_time
from wavedsl.ir.regions.loops_ahead import loops_ahead
from wavedsl.ir.regions.own_trips import InStep
from wavedsl.ir.regions.windows import NoTaps
from wavedsl.ir.schedule.taps import Window
from wavedsl.ir.staging.gathered_rows import with_gathers
from wavedsl.ir.target import Target, wave_room

REORDERED = 1.25
"""Registers that values of kernels with products may be together for each that a warp has, in the order of the text or
computed on demand: ptxas takes what matrix instructions read when they come to it, and then has an order of its own.
Products of 128 x 128 x 64 with 321 in the text's order have 260 on demand, and 215 when ptxas is done; more waves are
another division of the tile, which reads more of shared memory."""
LATER = 1 / 3
"""Of the registers that loads on demand spare among multiply-adds, the part that ptxas spares for sure: it leaves their
order and brings some of what is loaded early later. 455 in the text's order and 363 on demand were 236, 945 and 275
spilled 2516."""

TURNED = 1.35
"""`REORDERED` of warpgroups that copy an operand through their registers: products of 8 bits with 340 of 255 or 315 of
255 spill nothing, those with 237 of 170 and with 389 of 255 spill 64 and 520 bytes."""

IN_LOOPS = 4 / 3
"""Registers that values of loops without products may be together for each that a warp has: where arrays lie, and what
all lanes have in common, has registers of its own, and ptxas converts and joins parts one by one. Of 90 gradients of
norms of 2048 to 16384 columns, those with up to 1.33 times spill nothing, those with 1.78 times and more all do."""

SCATTERED = 40
"""Registers that a wave of CDNA has left where loads come first: they take runs of four, of which values that are still
used have some, and up to 38 more were allocated than values take together."""

FILLED = 2
"""Waves for each SIMD that a grid of few workgroups gets by more waves to a row. By gfx942's model 256 rows of 131072
logits take 401 us in 2 waves, one to every second SIMD, when one of each is drawn (4: 224, 8: 216, 16: 234), and 96 us
(69, 52, 70) for a policy's loss and gradient."""
MANY_GROUPS = 16
"""Workgroups of a unit among which none waits: what its longest port takes for each is the least that it takes."""
WINDOWS = (Window(1, 1), Window(2, 1))
"""How far straight code's copies and loads are tried to run ahead."""
ALIKE = 49 / 50
"""What a longer window has to take at most of a shorter one's clocks: it takes shared memory and registers."""
NO_READS: frozenset[int] = frozenset()
ISSUED_LESS = 0.95
"""What waves whose lanes hold neighbours have to issue at most of what others do, beside what they wait for."""
COMPUTED_LESS = 0.89
"""The same of their vector instructions, where that gives no room to another workgroup. Of the kernels of attention's
tests on gfx90a and gfx942 that `ISSUED_LESS` alone would take, those with as many less take 0.86 to 0.98 of the clocks
and the others up to 1.08: what is read together is waited for together."""
LONG_LOOP = 4
"""Trips of a loop from which on it matters how many waves share one."""


@dataclass(frozen=True)
class Attempts:
    """What every way to lower a graph has in common. `dynamic`: multiples of run-time extents."""

    graph: Graph
    dims: Mapping[Any, Any]
    arrays: Mapping[str, ArrayInfo]
    params: Sequence[Param]
    target: Target
    dynamic: Mapping[str, int] | None
    choices: Choices
    lacking: dict[int, tuple[Kernel, float]] = field(default_factory=dict, compare=False, repr=False)
    """Registers that kernels lack, by the kernels' identities: none changes while it is one of several."""
    kept_busy: dict[int, tuple[Kernel, int, float]] = field(default_factory=dict, compare=False, repr=False)
    """The same of workgroups that a unit has of them at a time, and the clocks that each keeps its units busy for."""

    def first(self) -> tuple[Kernel, Plan, float]:
        """The kernel by the first plan that can be lowered, and the registers that it lacks (`crowding`). Raises the
        last plan's ConstraintError, or the first one's where the user fixed what it refuses."""
        target, asked = self.target, self.choices
        turns, fixed = takes_turns(target, asked), is_fixed(self.graph, target, asked)
        graph = with_gathers(self.graph, self.dims, self.arrays, target)
        for plan in plans(graph, self.dims, target, contiguous_rows(graph, self.arrays), in_turn=turns):
            try:
                given = plan
                plan, kernel = self.begun(plan)
                plan, kernel = self.finer(plan, kernel)
                if asked.ping_pong and not turns:
                    check_apart(self.graph, kernel)
                plan, kernel, lack = self.roomier(plan, kernel)
                plan, kernel, lack = self.in_windows(given, plan, kernel, lack)
                if lack <= 0:
                    plan, kernel = self.busier(plan, kernel)
                    plan, kernel = self.side_by_side(plan, kernel)
                choices = asked
                if self.fits_in_loops(plan, kernel):
                    plan, kernel, choices = self.loading_first(plan, kernel)
                if lack <= 0:
                    kernel = self.counting(plan, *self.further_ahead(plan, kernel, choices))
                kernel.notes[BEYOND] = beyond(plan, kernel)
                return kernel, plan, lack
            except ConstraintError:
                if not plan.partition.shared_rows and (plan.target is target or (fixed and not plan.graph.gathered)):
                    raise
        raise AssertionError("the last plan is for the target itself")

    def by(self, plan: Plan, choices: Choices | None = None) -> Kernel:
        """The kernel by a plan (and other choices), its waves in step where they meet in trips that each would count
        by itself."""
        choices = choices or self.choices
        try:
            return self._lower(plan, choices)
        except InStep:
            return self._lower(plan, replace(choices, in_step=True))

    def _lower(self, plan: Plan, choices: Choices) -> Kernel:
        return lower(
            plan.graph, plan.partition, plan.inference, self.arrays, self.params, plan.target, dynamic=self.dynamic,
            choices=choices, spared=plan.spared, window=plan.window,
        )  # fmt: skip

    def begun(self, plan: Plan) -> tuple[Plan, Kernel]:
        """A plan by which there is a kernel, and the kernel: in the shortest window, of many products whose tiles have
        no room together, however fine."""
        try:
            return self.fitted(plan)
        except ConstraintError:
            if not self.may_have_windows(plan):
                raise
            try:
                return self._cut(replace(plan, window=WINDOWS[0]._replace(loads=0)), None)
            except ConstraintError:
                pass
            raise

    def may_have_windows(self, plan: Plan) -> bool:
        """Whether a plan's products may get their operands one after the other."""
        return self.choices.stages is None and not plan.target.asynchronous and many_products(plan.graph)

    def fitted(self, plan: Plan, choices: Choices | None = None) -> tuple[Plan, Kernel]:
        """A plan by which there is a kernel, and the kernel: with finer tiles, or with operands outside of loops that
        give up their shared memory, where there is no other way. What is refused is refused as it was first."""
        try:
            return self._cut(plan, choices)
        except ConstraintError as refused:
            while refused.tile:
                spared = next_spared(plan.graph, plan.partition, plan.inference, plan.spared)
                if spared is None:
                    break
                plan = replace(plan, spared=spared)
                try:
                    return self._cut(plan, choices)
                except ConstraintError:
                    continue
            _name_uncut(plan.graph, refused)
            raise

    def _cut(self, plan: Plan, choices: Choices | None) -> tuple[Plan, Kernel]:
        """The plan, or the first one with finer tiles, by which there is a kernel."""
        try:
            return plan, self.by(plan, choices)
        except ConstraintError as refused:
            problem = refused
            while (cuts := fitting(plan.graph, plan.partition, plan.inference, problem, self.choices)) is not None:
                try:
                    plan = with_partition(plan, cuts)
                except ConstraintError:
                    break
                try:
                    return plan, self.by(plan, choices)
                except ConstraintError as again:
                    problem = again
            raise

    def finer(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        """The plan and its kernel, or those of finer loop tiles: for a pipeline of two stages, then for registers."""
        choices = self.choices
        if plan.window.copies:
            return plan, kernel
        cuts = finer(plan.graph, plan.partition, plan.inference, kernel, choices, plan.target)
        if cuts is not None:
            plan = with_partition(plan, cuts)
            kernel = self.by(plan)
        while (cuts := self._lighter(plan, kernel)) is not None:
            plan = with_partition(plan, cuts)
            kernel = self.by(plan)
        return plan, kernel

    def _lighter(self, plan: Plan, kernel: Kernel) -> Partition | None:
        lack = beyond(plan, kernel)
        return lighter(plan.graph, plan.partition, plan.inference, kernel, self.choices, plan.target, plan.rows, lack)

    def roomier(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel, float]:
        """The plan and its kernel, or those of more waves, and then of fewer rows a trip, where values together are
        more than a wave's registers, and less of that so; and how many registers lack."""
        lack = self.lack(plan, kernel)
        for more, found in self._lowered(with_more_waves(plan)) if lack > 0 else ():
            rest = self.lack(more, found, lack)
            if rest < lack:
                plan, kernel, lack = more, found, rest
            if lack <= 0:
                break
        if not self.fits_in_loops(plan, kernel):
            plan, kernel, lack = self._fewer_rows(plan, kernel, lack)
        return plan, kernel, lack

    def _fewer_rows(self, plan: Plan, kernel: Kernel, lack: float) -> tuple[Plan, Kernel, float]:
        """The same with fewer rows a trip, for as many waves as those ask for, or for more."""
        if plan.given is None:
            return plan, kernel, lack
        waves = {d for d in plan.partition.dims if plan.given[1].wave(d) is not None}
        cut = plan.partition
        while tiles := fewer_rows_a_trip(plan.graph, cut, self.choices, waves):
            for less in with_fewer_rows(plan, tiles):
                cut = less.partition
                try:
                    less, found = self.fitted(less)
                except ConstraintError:
                    continue
                rest = self.lack(less, found, lack)
                if rest < lack:
                    plan, kernel, lack = less, found, rest
                if self.fits_in_loops(less, found):
                    return less, found, rest
            if all(cut.dims[d].tile != tile for d, tile in tiles.items()):
                break
        return plan, kernel, lack

    def in_windows(self, given: Plan, plan: Plan, kernel: Kernel, lack: float) -> tuple[Plan, Kernel, float]:
        """The plan and its kernel, or, of straight code with many products, those whose operands are brought while
        others are multiplied: by the plan, or by the one `given` at first, where registers do not lack more so and a
        unit is done a tenth earlier; and how many registers lack. Where loads to registers have no room to come early,
        copies alone do."""
        if not self.may_have_windows(plan):
            return plan, kernel, lack
        plain = self.straight(plan, kernel)
        # A load of more registers than vector instructions reach is waited for right away, to be copied to others.
        full = not plan.target.assembler_schedules and pressure(kernel, plan.target) > VECTORS - SCATTERED
        best, least = (plan, kernel, lack), (ALIKE if full else DEAREST) * plain
        if lack <= 0 and plain <= unit_clocks(kernel, plan.target, MANY_GROUPS):
            return best  # no order issues less
        rows_left = kernel.notes["lowering"].rows_left
        one = _of_grid(plan) == 1 and not rows_left and plan.partition is given.partition and not plan.spared
        if one and lack <= 0 and self.straight(plan, kernel, loaded(kernel)) >= least:
            return best  # nor is a unit's only workgroup done earlier with all that it loads there at once
        bases = [replace(x, spared=NO_READS) for x in ([plan] if plan.partition is given.partition else [plan, given])]
        for windows in ([*WINDOWS, *(w._replace(rows=True) for w in WINDOWS)], [w._replace(loads=0) for w in WINDOWS]):
            crowded = False
            for base in bases:
                best, least, crowds = self._windows(base, windows, best, least, lack, base is bases[0] and rows_left)
                crowded |= crowds
            if not crowded:
                break
        return self._reading_first(*best)

    def _windows(
        self, base: Plan, windows: Sequence[Window], best: tuple[Plan, Kernel, float], least: float, lack: float,
        rows: bool,
    ) -> tuple[tuple[Plan, Kernel, float], float, bool]:  # fmt: skip
        """The best of what has been found and what a plan gives in these windows, the clocks that another one has to
        stay below, and whether one lacked registers. Each is a lowering, so a window is passed over where one of fewer
        copies lacks registers, or would not gain if copies took no time; and gathered rows (`rows`: there are some)
        where none are left to be copied."""
        crowded = False
        longer: dict[Window, float] = {}
        """The least that more copies ahead take, by what windows of them have in common."""
        for w in windows:
            kind = w._replace(copies=0)
            if (w.rows and not rows) or (best[2] <= 0 and longer.get(kind, 0.0) >= least):
                continue
            try:
                other, found = self.fitted(replace(base, window=w))
            except NoTaps:
                break
            except ConstraintError:
                continue
            rows |= found.notes["lowering"].rows_left
            rest, clocks = _crowding_in_window(other, found), self.straight(other, found)
            crowds = rest > max(0.0, lack)
            if rest <= max(0.0, best[2]) and (clocks < least or rest < best[2]):
                best, least = (other, found, rest), ALIKE * clocks
            longer[kind] = inf if crowds else self.straight(other, found, copied(found))
            crowded |= crowds
        return best, least, crowded

    def straight(self, plan: Plan, kernel: Kernel, there: Set[Value] | None = None) -> float:
        """Clocks of a unit for a workgroup of straight code, of as many as it has at a time (`straight_clocks`)."""
        known = self.kept_busy.get(id(kernel))
        if known is None:
            resident = resident_groups(kernel, plan.target, _of_grid(plan))
            known = self.kept_busy[id(kernel)] = kernel, resident, unit_clocks(kernel, plan.target, resident)
        _, resident, busy = known
        bytes = sum(info.span() or 0 for info in self.arrays.values())
        return straight_clocks(kernel, plan.target, resident, bytes / (_grid(plan) or inf), there, busy)

    def _reading_first(self, plan: Plan, kernel: Kernel, lack: float) -> tuple[Plan, Kernel, float]:
        """The same with reads of shared memory in front of what is computed beside, where that costs registers alone,
        and no resident workgroup: waves that go in order wait for less then."""
        if plan.target.assembler_schedules or not plan.window.copies:
            return plan, kernel, lack
        groups = _of_grid(plan)
        for other, found in self._lowered([replace(plan, window=plan.window._replace(reads=True))]):
            resident = [resident_groups(k, plan.target, groups) for k in (kernel, found)]
            if resident[1] >= resident[0] and (rest := self.lack(other, found)) <= max(0.0, lack):
                return other, found, max(0.0, rest)
        return plan, kernel, lack

    def busier(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        """The plan and its kernel, or those of more waves where shared memory leaves room for so few, or the grid has
        so few, that SIMDs have nothing to do, and the unit is done earlier so: waves that share a product's columns may
        repeat another one."""
        if _few_rows(plan):
            return self._filled(plan, kernel)
        least = DEAREST * clocks_on_unit(plan, kernel) if idle(plan, kernel) else 0.0
        for more, found in self._lowered(with_more_waves(plan)) if least > 0 else ():
            clocks = clocks_on_unit(more, found)
            if clocks <= least and self.lack(more, found) <= 0:
                plan, kernel, least = more, found, clocks
        return plan, kernel

    def side_by_side(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        """The plan and its kernel, or those whose lanes hold neighbours of what they would take from shared memory, or
        put there, element by element, where waves issue less so. Every wave joins what it reads by vector instructions:
        more of these pay only where the room of a second copy of a tile is another workgroup's, and not where a SIMD
        has several waves as it is, whose units are busy then before shared memory is."""
        target, groups = plan.target, _of_grid(plan)
        if _on_unit(plan, kernel) > target.simds:
            return plan, kernel
        rows = contiguous_rows(plan.graph, self.arrays, moved=True)
        beside = side_rows(plan.inference.mmas, plan.partition, target, rows)
        for other, found in self._lowered([with_side_rows(plan, beside)]) if beside else ():
            before, after = (resident_groups(k, target, groups) for k in (kernel, found))
            fewer = vector_clocks(found, target) <= COMPUTED_LESS * vector_clocks(kernel, target)
            less = clocks_on_unit(other, found) <= ISSUED_LESS * clocks_on_unit(plan, kernel)
            if less and (after > before or (after == before and fewer)) and self.lack(other, found) <= 0:
                return other, found
        return plan, kernel

    def _filled(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel]:
        """The plan and its kernel, or those in which more waves share the rows of a loop, up to `FILLED` for each SIMD,
        where that is done earlier: each waits for what it loads, and for the others where sums meet."""
        resident = _of_grid(plan)

        def clocks(kernel: Kernel) -> float:
            return unit_clocks(kernel, plan.target, resident, FILLED) + meeting_clocks(kernel, plan.target) / resident

        most = DEAREST * clocks(kernel)
        for more in with_more_waves(plan):
            if plan.partition.waves * resident >= FILLED * plan.target.simds:
                break
            try:
                more, found = self.fitted(more)
            except ConstraintError:
                continue
            if clocks(found) <= most and self.lack(more, found) <= 0:
                plan, kernel = more, found
        return plan, kernel

    def loading_first(self, plan: Plan, kernel: Kernel) -> tuple[Plan, Kernel, Choices]:
        """The plan and its kernel, or those whose loops load for the next trip before they compute: where that costs
        neither registers nor resident workgroups, or, of this or more waves, where a unit is done a tenth earlier; and
        the choices that it is lowered by."""
        target, groups = plan.target, _of_grid(plan)
        labels = late_loads(kernel, target)
        if not labels or self.choices.stages is not None:
            return plan, kernel, self.choices
        choices = replace(self.choices, first=labels)
        found = self.by(plan, choices)
        fits = self.fits_in_loops(plan, found, SCATTERED)
        if fits and resident_groups(found, target, groups) >= resident_groups(kernel, target, groups):
            return plan, found, choices
        best, least = (plan, kernel, self.choices), DEAREST * trip_time(kernel, labels, target, groups, False)
        others = ((plan, found) for _ in range(int(fits)))
        for other, found in chain(others, self._lowered(with_more_waves(plan), choices)):
            clocks = trip_time(found, labels, target, groups, True)
            if clocks <= least and self.fits_in_loops(other, found, SCATTERED):
                best, least = (other, found, choices), clocks
        return best

    def _lowered(self, ways: Iterable[Plan], choices: Choices | None = None) -> Iterator[tuple[Plan, Kernel]]:
        """Those of these plans by which there is a kernel, and the kernels, as they are asked for."""
        for way in ways:
            try:
                yield self.fitted(way, choices)
            except ConstraintError:
                continue

    def further_ahead(self, plan: Plan, kernel: Kernel, choices: Choices) -> tuple[Kernel, Choices]:
        """The kernel, or the one whose loops of short trips load several trips ahead, where registers do not lack; and
        the choices that it is lowered by."""
        ahead = loops_ahead(kernel, plan.target, plan.partition.waves, _of_grid(plan), choices.stages)
        if not ahead:
            return kernel, choices
        farther = replace(choices, ahead=ahead)
        found = self.by(plan, farther)
        return (found, farther) if self.lack(plan, found) <= 0 else (kernel, choices)

    def lack(self, plan: Plan, kernel: Kernel, most: float = inf) -> float:
        """`crowding` of a kernel, which is asked for in several places: the order of values on demand is most of what
        it takes to say what a long kernel lacks."""
        known = self.lacking.get(id(kernel))
        if known is not None:
            return known[1]
        found = crowding(plan, kernel, most)
        if found < most:
            self.lacking[id(kernel)] = kernel, found
        return found

    def fits_in_loops(self, plan: Plan, kernel: Kernel, spare: int = 0) -> bool:
        """Whether values of a kernel of loops have room, which are held from trip to trip for the most part; on CDNA
        with `spare` registers left."""
        if not plan.target.assembler_schedules:
            return self.lack(plan, kernel) <= -spare
        if any(n.op in PRODUCTS for n in plan.graph.all_nodes()):
            return self.lack(plan, kernel) <= 0
        return pressure(kernel, plan.target) <= IN_LOOPS * wave_room(plan.target, plan.partition.waves)

    def counting(self, plan: Plan, kernel: Kernel, choices: Choices) -> Kernel:
        """The kernel, or the one that carries out atomics in shared memory first, where that pays; with the reasons
        where it does not."""
        counted, why = counted_arrays(kernel, plan.graph, plan.partition, self.arrays, plan.target, _grid(plan))
        if counted:
            found = self.by(plan, replace(choices, counted=counted))
            if as_before(kernel, found) and self.lack(plan, found) <= 0:
                kernel = found
            else:
                why += (f"atomics on {', '.join(counted)} go to memory one by one: others lack the room",)
        if why:
            decided = kernel.notes["decisions"]
            kernel.notes["decisions"] = replace(decided, reasons=(*decided.reasons, *why))
        return kernel


def _crowding_in_window(plan: Plan, kernel: Kernel) -> float:
    """Registers that lack of straight code whose loads start early. An assembler that orders instructions itself moves
    none of them over the barriers between products: 308 in the text's order are 255 and 2 KB spilled, 215 are 148."""
    lack = crowding(plan, kernel)
    if plan.window.loads and plan.target.assembler_schedules:
        lack = max(lack, pressure(kernel, plan.target) - wave_room(plan.target, plan.partition.waves))
    return max(0.0, lack)


def clocks_on_unit(plan: Plan, kernel: Kernel) -> float:
    """Clocks of a unit for each of the workgroups that it has at a time, by which ways to divide them are compared. On
    AMD's chips what waves do is added up, and when they meet: an update by matrices of 24 x 24 issues on gfx942 less in
    four waves than in one, by the longest of its units, and takes 12821 clocks instead of 10592."""
    workgroups = _on_unit(plan, kernel) // plan.partition.waves
    if plan.target.assembler_schedules:
        return unit_clocks(kernel, plan.target, workgroups)
    met = meeting_clocks(kernel, plan.target) / workgroups
    return unit_clocks(kernel, plan.target, workgroups, beside=False) + met


def _on_unit(plan: Plan, kernel: Kernel) -> int:
    """Waves on a unit: those that shared memory leaves room for, or as many as the grid has, if that is known. On
    NVIDIA's chips the grid is not asked: exponentials of matrices of 21 x 21 take 24517 clocks of sm_80 in one warp and
    28639 in four, which meet for every product, though each issues half as much; on gfx942 43191 in one and 26994 in
    two."""
    room, grid = _resident(plan, kernel), _of_grid(plan) * plan.partition.waves
    return min(room, grid) if grid and not plan.target.assembler_schedules else room


def _resident(plan: Plan, kernel: Kernel) -> int:
    """Waves that shared memory leaves room for on a unit, those of whole workgroups."""
    waves = plan.partition.waves
    found = plan.target.resident_waves(1, kernel.shared_bytes, waves * plan.target.wave_size)
    return max(waves, found // waves * waves)


def _grid(plan: Plan) -> int:
    """Workgroups of the grid; 0 where a launch decides that."""
    trips = [p.trips for p in plan.partition.dims.values() if p.axis is not None]
    return 0 if None in trips else prod(t for t in trips if t is not None)


def _of_grid(plan: Plan) -> int:
    """The same for each unit of the chip's reference product."""
    return -(-_grid(plan) // plan.target.units)


def _few_rows(plan: Plan) -> bool:
    """Whether a kernel without products goes through long loops in so few workgroups that SIMDs have nothing to do: a
    vocabulary's logits of a batch, one row to a workgroup. Nobody has said how many waves share one."""
    if plan.given is None or any(r.wave is not None for r in plan.given[1].dims.values()):
        return False
    if plan.given[1].hardware.waves_per_block is not None or not 0 < (units := _of_grid(plan)):
        return False
    if units * plan.partition.waves >= plan.target.simds:
        return False
    nodes = list(plan.graph.all_nodes())
    trips = [plan.partition.dims[d].trips or 0 for n in nodes if n.op == "iterate" and (d := n.attrs["body"].dim)]
    return max(trips, default=0) >= LONG_LOOP and not any(n.op in PRODUCTS for n in nodes)


def idle(plan: Plan, kernel: Kernel) -> bool:
    """Whether a kernel of products has fewer waves on a unit than that has SIMDs, and nobody has said how many."""
    if plan.given is None or plan.target.asynchronous or _on_unit(plan, kernel) >= plan.target.simds:
        return False
    resolved = plan.given[1]
    said = resolved.hardware.waves_per_block is not None or any(r.wave is not None for r in resolved.dims.values())
    return not said and any(n.op in PRODUCTS for n in plan.graph.all_nodes())


def _name_uncut(graph: Graph, refused: ConstraintError) -> None:
    """Adds to the help of a tile that is too large which of its dimensions no constraint cuts."""
    cut = {str(c.dim) for c in graph.constraints if isinstance(c, (WorkgroupConstraint, TilingConstraint))}
    whole = [d for d in refused.tile if d not in cut and d.isidentifier()]
    if whole:
        refused.hint = (
            f"no constraint cuts {whole[0]}, so a workgroup holds all of it: wd.WorkgroupConstraint({whole[0]}, 64, "
            f"<axis>), or wd.TilingConstraint({whole[0]}, 64) and a loop over it; else {refused.hint}"
        )


def crowding(plan: Plan, kernel: Kernel, most: float = inf) -> float:
    """Registers of a lane that values together have beyond what a wave has, of warpgroups as `beyond` has it. Without
    products, that is what vector instructions reach: each value beyond is copied there and back. `most`: how many are
    too many for anyone to ask how many more; the answer is then `most` or above."""
    products = any(n.op in PRODUCTS for n in plan.graph.all_nodes())
    if plan.target.asynchronous and products:
        return float(beyond(plan, kernel))
    room: float = wave_room(plan.target, plan.partition.waves)
    if not products:
        room = min(room, VECTORS)
    elif plan.target.assembler_schedules:
        room *= REORDERED
    held: float
    held, bare = pressures(kernel, plan.target)
    if held > room and products and plan.target.assembler_schedules:
        if any(x.atom.instruction == "fma" for x in plan.inference.mmas.values()):
            # Constants are where operands lie in shared memory, hundreds of them: offsets that loads have room for.
            # Without them the estimate is close, so nothing is allowed for what ptxas reorders.
            own = wave_room(plan.target, plan.partition.waves)
            if bare <= own:
                return bare - own
            least = held * (1 - LATER) - room
            if least >= most:
                return least
            held -= LATER * max(0, held - on_demand(kernel, plan.target, ("ffma",)))
        else:
            held = min(held, on_demand(kernel, plan.target))
    return held - room


def beyond(plan: Plan, kernel: Kernel) -> int:
    """Registers that what a warpgroup holds in loops, and addresses, take beyond those that it is dealt: above 0 ptxas
    spills, whatever order the code has. Where nobody only copies and all loops add up products of what is copied
    through registers, these count by the kernel's own order."""
    if not plan.target.asynchronous:
        return 0
    dealt = [op.attrs["count"] for op in kernel.body.walk() if op.name == "registers"]
    room = max(dealt, default=wave_room(plan.target, plan.partition.waves))
    held = loop_words(plan.graph, {d: p.wave for d, p in plan.partition.dims.items()}, plan.target) + ADDRESSES
    turned = any(step.kind == "gload" for note in kernel.notes["lowering"].loops for step in note.steps)
    if not dealt and turned and all(only_products(n.attrs["body"], plan.inference) for n in plan.graph.loops()):
        held = max(held, int(pressure(kernel, plan.target) / TURNED))
    return max(0, held - room)


def crowding_on_demand(found: tuple[Kernel, Plan, float]) -> float:
    """The same when values are computed on demand, as this kernel's are from here on."""
    kernel, plan, _ = found
    order_elements(kernel, plan.target)
    return crowding(plan, kernel)


def check_apart(graph: Graph, kernel: Kernel) -> None:
    """Raises ConstraintError where the user asks for a ping-pong schedule and no loop has one."""
    notes = kernel.notes["lowering"]
    if not any(note.body.raised for note in notes.loops):
        why = notes.plain or "no loop is pipelined"
        raise ConstraintError(f"Schedule(ping_pong=True): {why}", graph.loc, "leave ping_pong out")


__all__ = ["Attempts", "clocks_on_unit", "crowding", "crowding_on_demand", "idle"]
