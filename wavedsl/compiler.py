"""From a kernel object and its arguments to target text: the driver of the whole compiler.

`compile_kernel` traces, binds symbols, runs the middle (`ir.pipeline`) and a back end (`codegen`), and returns a
`CompiledKernel`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from wavedsl.argument_facts import describe_arguments, divisors_of, element_strides, tiles_of
from wavedsl.collector import PAUSED
from wavedsl.compiled_kernel import CompiledKernel, assembler
from wavedsl.ir import trail
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.dataflow.device_log import log_sites
from wavedsl.ir.dataflow.empty_loops import asked_of_the_rest, without_empty_loops, without_unused
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.split_k import Split
from wavedsl.ir.errors import ConstraintError, NotHandedOut, TraceError, WaveError
from wavedsl.ir.grid.split_choice import chosen_split, whole
from wavedsl.ir.kernel.kernel_ir import Kernel as KernelIR
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.source import here
from wavedsl.ir.symbols import DYNAMIC, evaluate, with_numbers
from wavedsl.ir.target import Target, lacking
from wavedsl.kernel_object import check_dynamic
from wavedsl.schedule import Schedule
from wavedsl.targets import get_target, reference_product

if TYPE_CHECKING:
    from wavedsl.ir.regions.plan_misfit import Ways


def compile_kernel(
    kernel: Any,
    arguments: Mapping[str, Any] | None,
    *,
    target: str | None = None,
    subs: Mapping[Any, Any] | None = None,
    dynamic: Sequence[Any] | None = None,
) -> CompiledKernel:
    """Compile a `wavedsl.Kernel` for one target. See `Kernel.compile`. Raises WaveErrors at the user's lines."""
    with PAUSED:
        if not trail.asked():
            return _compile(kernel, arguments, target, subs, dynamic)
        with trail.begin(kernel.name, target if target is not None else _default_target()):
            return _compile(kernel, arguments, target, subs, dynamic)


def _compile(
    kernel: Any,
    arguments: Mapping[str, Any] | None,
    target: str | None,
    subs: Mapping[Any, Any] | None,
    dynamic: Sequence[Any] | None,
) -> CompiledKernel:
    """Trace and bind, lower (in parts, and whole where that cannot be), and print."""
    started = time.perf_counter()
    asked = request(kernel, arguments, target, subs, dynamic)
    graph, dims, chip, choices = asked.graph, asked.dims, asked.chip, asked.choices
    traced = time.perf_counter()
    from wavedsl.ir.pipeline import build_kernel

    def built(found: Split, choices: Choices) -> tuple[KernelIR, Any, dict[str, ArrayInfo]]:
        arrays, params, hidden = describe_arguments(found.graph, found.dims, arguments)
        made = build_kernel(found.graph, found.dims, arrays, params, chip, dynamic=hidden, choices=choices)
        return *made, arrays

    try:
        found = asked.split()
        try:
            ir, partition, arrays = built(found, choices)
        except NotHandedOut:
            asked = replace(asked, choices=in_the_graph(choices))
            found = asked.split()
            ir, partition, arrays = built(found, asked.choices)
        except ConstraintError as error:
            if found.graph.traced is None or choices.split is not None or choices.stream or choices.turns:
                raise
            found = whole(graph, dims, f"its loop in parts: {error.message}")
            ir, partition, arrays = built(found, choices)
        graph, dims = found.graph, found.dims
    except WaveError as error:
        if error.location is None:
            error.location = kernel.loc
        raise
    lowered = time.perf_counter()
    text, resources, shared = _emit(ir, chip)
    done = time.perf_counter()
    grid = tuple(_grid(partition, axis) for axis in partition.grid_axes())
    order = ir.notes["lowering"].order
    if order is not None:
        grid = (_persistent_grid(grid, order), 1, 1)
    return CompiledKernel(
        target=chip.name,
        name=ir.name,
        asm=text,
        grid=grid,
        block=(ir.block, 1, 1),
        shared_bytes=shared,
        params=ir.params,
        resources=resources,
        shapes={
            a.name: tuple(found.shapes.get(d, _shape(d, dims)) for d in a.dims)
            for a in graph.arguments
            if a.kind == "memory"
        },
        expects={n: (i.extents, element_strides(i), i.align) for n, i in arrays.items()},
        divisors={n: divisors_of(i) for n, i in arrays.items()},
        tiles=tiles_of(graph, arrays, partition),
        sites=tuple(log_sites(graph)[0]),
        location=kernel.loc,
        graph=graph,
        kernel_ir=ir,
        times={"trace": traced - started, "middle": lowered - traced, "backend": done - lowered},
        defaults=kernel.defaults,
    )


@dataclass(frozen=True)
class Request:
    """What a compile is asked for: the traced graph, a value for every symbol, the chip, and what the user fixed."""

    graph: Graph
    dims: Mapping[Any, Any]
    chip: Target
    choices: Choices
    arguments: Mapping[str, Any] | None

    def split(self) -> Split:
        """The graph with the trips of its loop shared by workgroups, where that is asked for or pays."""
        return chosen_split(self.graph, self.dims, self.chip, reference_product(self.chip.name), self.choices)


def request(
    kernel: Any,
    arguments: Mapping[str, Any] | None,
    target: str | None,
    subs: Mapping[Any, Any] | None,
    dynamic: Sequence[Any] | None,
    schedule: Schedule | None = None,
) -> Request:
    """Trace and bind a kernel, and check what holds before anything is cut. `schedule`: in place of the kernel's own.
    Raises WaveErrors at the user's lines."""
    try:
        chip = get_target(target if target is not None else _default_target())
    except ConstraintError as error:
        error.location = error.location or here(calls=False)
        raise
    binding = kernel.binding(arguments, subs, dynamic)
    graph = kernel.trace(subs)
    known = {s: v for s, v in binding.dims.items() if v is not DYNAMIC}
    graph = replace(graph, subs={**graph.subs, **known})  # what arrays say is as good as what `subs` says
    if dynamic is not None:
        kernel.check_named(graph, check_dynamic(dynamic, None), "dynamic lists")
    _check_outcome(graph)
    _check_dtypes(graph, chip)
    rest = without_empty_loops(graph, binding.dims)
    choices = asked_of_the_rest(graph, rest, _choices(kernel, schedule or kernel.schedule, chip))
    rest = without_unused(rest)
    if choices.persistent and (chip.warpgroup is None or not any(n.op in PRODUCTS for n in rest.all_nodes())):
        choices = in_the_graph(choices)
    return Request(rest, binding.dims, chip, choices, arguments)


def in_the_graph(choices: Choices) -> Choices:
    """The same with the order of tiles written into the graph, instead of being the lowering's."""
    return replace(choices, persistent=None, turns=True)


def ways_of(asked: Request) -> Ways:
    """The ways to cut and to lay out what is asked for, which say what of a schedule they cannot have
    (`Ways.misfit`): of the whole loop, too, where the compiler would cut it by itself. Raises WaveErrors as `compile`
    does."""
    from wavedsl.ir.pipeline import prepared
    from wavedsl.ir.regions.plan_misfit import Ways

    def ways(found: Split, instead: Ways | None) -> Ways:
        arrays, _, _ = describe_arguments(found.graph, found.dims, asked.arguments)
        return Ways(prepared(found.graph, asked.chip), found.dims, arrays, asked.chip, asked.choices, instead)

    found = asked.split()
    choices = asked.choices
    if found.graph.traced is not None and choices.split is None and not choices.stream and not choices.turns:
        instead = ways(whole(asked.graph, asked.dims, ""), None)
        try:
            return ways(found, instead)
        except ConstraintError:
            return instead
    return ways(found, None)


_WITHOUT_OUTCOME = frozenset({"iterate", "when", "repeat", "fence"})
"""Operations with effects that change nothing by themselves."""


def _check_outcome(graph: Graph) -> None:
    """Raise TraceError for a kernel that neither stores nor says anything."""
    if any(ROWS[n.op].effect and n.op not in _WITHOUT_OUTCOME for n in graph.all_nodes()):
        return
    name = next((a.name for a in reversed(graph.arguments) if a.kind == "memory"), "c")
    raise TraceError(
        f"kernel {graph.name} writes nothing, so a call of it does nothing",
        graph.loc,
        hint=f"store what it computes: wd.write(value, {name}); an assignment to {name} names a value",
    )


def _check_dtypes(graph: Graph, chip: Target) -> None:
    """Raise ConstraintError where an argument or a value has an element type that the chip lacks."""
    for a in graph.arguments:
        if a.dtype.name not in chip.dtypes:
            raise lacking(chip, a.dtype, a.loc, f"argument {a.name}: ")
    for n in graph.all_nodes():
        for t in n.type if isinstance(n.type, tuple) else (n.type,):
            if t is not None and t.dtype.name not in chip.dtypes:
                raise lacking(chip, t.dtype, n.loc)


def _default_target() -> str:
    from wavedsl.runtime import devices

    return devices.default().target


def check_schedule(schedule: Schedule, chip: Target, loc: Loc | None = None) -> None:
    """Raises ConstraintError for a choice that this version cannot fix on the chip."""
    supported = {"stages", "swizzle", "split_k", "stream_k", "persistent"}
    supported |= {"specialize", "registers", "cluster", "dependent"} if chip.warpgroup else set()
    supported |= {"bulk_atomics", "products_in_turn"} if chip.warpgroup else set()
    supported |= {"direct_to_shared"} if chip.copy_async else set()
    supported |= {"ping_pong"} if chip.waves_alternate or chip.warpgroup else set()
    supported |= {"prefetch"} if chip.prefetches else set()
    supported |= {"cache_swizzle"} if chip.cache_swizzle else set()
    for name, value in schedule.items():
        neutral = value is False or (name == "cluster" and prod(value) == 1)
        if name not in supported and not neutral:
            raise ConstraintError(
                f"Schedule({name}={value!r}) is not available on {chip.name}",
                loc,
                f"this version can fix {', '.join(sorted(supported))}",
            )


def _choices(kernel: Any, schedule: Schedule | None, chip: Target) -> Choices:
    """What `wd.Schedule` fixed, checked against the chip."""
    if schedule is None:
        return Choices()
    check_schedule(schedule, chip, kernel.loc)
    return Choices(
        stages=schedule.stages, specialize=schedule.specialize, registers=schedule.registers,
        persistent=schedule.persistent, swizzle=schedule.swizzle, cluster=schedule.cluster,
        direct=schedule.direct_to_shared,
        ping_pong=schedule.ping_pong, prefetch=schedule.prefetch, cache_swizzle=schedule.cache_swizzle,
        dependent=schedule.dependent, bulk_atomics=schedule.bulk_atomics, products_in_turn=schedule.products_in_turn,
        split=schedule.split_k, stream=schedule.stream_k,
    )  # fmt: skip


def _shape(dim: Any, dims: Mapping[Any, Any]) -> Any:
    value = evaluate(dim, dims)
    return with_numbers(dim, dims) if value is DYNAMIC else value


def _grid(partition: Any, axis: Sequence[Any]) -> Any:
    """Workgroups along one grid axis: an int, or an expression of dynamic extents."""
    count: Any = 1
    for d in axis:
        plan = partition.dims[d]
        if plan.trips is not None:
            count = count * plan.trips
        else:
            import sympy

            count = count * sympy.ceiling(d / sympy.Integer(plan.tile))
    return count


def _persistent_grid(tiles: Sequence[Any], order: Any) -> Any:
    """Workgroups that take the tiles in turn: at most as many as the order says, in whole clusters."""
    count: Any = 1
    for n, size in zip(tiles, (*order.cluster.sizes, 1)):
        if size == 1:
            count = count * n
        elif isinstance(n, int):
            count = count * (-(-n // size) * size)
        else:
            import sympy

            count = count * (sympy.ceiling(n / sympy.Integer(size)) * size)
    if isinstance(count, int):
        return min(count, order.workgroups)
    import sympy

    return sympy.Min(count, order.workgroups)


def _emit(ir: KernelIR, chip: Target) -> tuple[str, Any, int]:
    """Text, resources and shared bytes from the chip's back end."""
    if chip.vendor == "amd":
        from wavedsl.codegen.amdgcn.emit import compile_kernel_ir as amd

        program = amd(ir, chip)
        return program.text, program.resources, ir.shared_bytes
    from wavedsl.codegen.ptx.emit import compile_kernel_ir as nvidia

    ptx = nvidia(ir, chip, assembler(chip.name, ir.name))
    return ptx.text, ptx.resources, ir.shared_bytes
