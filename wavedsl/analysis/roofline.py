"""The roofline of a kernel: work, traffic per level, what bounds it, how long that takes, and how to cut it better.

In: a kernel, its shapes, a chip. Out: a `Roofline` record. `flops` and `bytes` are what the algorithm needs (each
byte of an argument moved once); `traffic` is what the compiled kernel moves per level. The predicted time is that of
the slowest of: the fuller of the matrix and the vector pipes at peak, HBM, L2, shared memory, and the clocks that the
kernel's own instructions keep its units busy. It is a model, never a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields, replace
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from wavedsl.analysis.arrays import array_bytes
from wavedsl.analysis.contractions import (
    Contraction,
    by_pipe,
    contractions,
    gemm_shape,
    kernel_tiles,
    main_dtype,
    on_matrix_units,
    on_pipes,
    pipe_seconds,
)
from wavedsl.analysis.flops import Work, count_flops
from wavedsl.analysis.issued import Issued, count_issued, hidden_values, machine_of, residency, unit_clocks
from wavedsl.analysis.strategy import GemmShape, TileChoice, choose_strategy, choose_tiles, vector_width
from wavedsl.ir.called import door
from wavedsl.ir.cuts.tile_dims import tile_dims
from wavedsl.ir.dtypes import ALL, DType
from wavedsl.ir.errors import ConstraintError, TraceError
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.source import here
from wavedsl.ir.symbols import DYNAMIC, evaluate, evaluate_int
from wavedsl.ir.target import Target

if TYPE_CHECKING:
    from wavedsl.analysis.played import Played


@dataclass(frozen=True)
class Traffic:
    """Bytes per level: `hbm` and `l2` between the chip's memory, its L2 and its units, `shared` within the units."""

    hbm: int
    l2: int
    shared: int


@dataclass(frozen=True)
class Roofline:
    """What `analyze` found. FLOP, bytes, FLOP per byte, FLOP per second, bytes per second, seconds."""

    kernel: str
    target: str
    product: str
    dtype: str
    unit: str
    """`matrix` or `vector`: the pipes whose peak counts. Of several products, or none, those that need longest."""
    flops: int
    """What the algorithm needs."""
    bytes: int
    """The least that must cross HBM: every argument's bytes once per direction."""
    intensity: float
    is_memory_bound: bool
    recommended_strategy: str
    """One of `STRATEGIES`; `none` for several products, which none of them cuts, and where there is nothing to do."""
    why: str
    peak_compute: float
    peak_bandwidth: float
    balance_point: float
    tiles: TileChoice | None
    """What the recommended strategy would choose; None where that is `none`."""
    kernel_tiles: TileChoice | None = None
    """What the kernel has, for the product with most work; None where there is no kernel."""
    products: tuple[Contraction, ...] = ()
    """The kernel's products."""
    flops_executed: int = 0
    """With padding and what workgroups repeat."""
    flops_by: Mapping[str, int] = field(default_factory=dict)
    """FLOP the algorithm needs by pipe and dtype, such as `product f16`."""
    balance_points: Mapping[str, float] = field(default_factory=dict)
    """The chip's balance by dtype and pipe, such as `f16 matrix`."""
    minimal: Traffic | None = None
    traffic: Traffic | None = None
    """What the compiled kernel moves."""
    bytes_in_flight: float = 0.0
    """Bytes that must be in flight for the peak bandwidth: bandwidth times latency."""
    pipe_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the executed FLOP by pipe and dtype, such as `matrix f16`, at the peaks of the units that the kernel
    uses. `compute` of `seconds_by` is the fuller pipe's sum."""
    seconds_by: Mapping[str, float] = field(default_factory=dict)
    bound: str = ""
    """The largest of `seconds_by`; `nothing` where nothing is launched."""
    seconds: float = 0.0
    """Predicted time of one launch."""
    clocks: int = 0
    """Predicted clocks of the fullest unit, HBM and L2 left aside."""
    utilisation: Mapping[str, float] = field(default_factory=dict)
    """Busy share of those clocks by pipe of a unit, under the vendor's names: `mfma`, `valu`, `salu`, `lds`, `vmem` on
    AMD's chips; `tensor`, `fma`, `alu`, `f64`, `sfu`, `lsu`, `l1`, `uniform` on NVIDIA's; `memory`: the link to L2."""

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            out[f.name] = vars(value) if isinstance(value, (TileChoice, Traffic)) else value
            if isinstance(value, Mapping):
                out[f.name] = dict(value)
            elif f.name == "products":
                out[f.name] = [vars(x) for x in value]
        return out

    def __str__(self) -> str:
        from wavedsl.analysis.text import roofline_text

        return roofline_text(self)


# ------------------------------------------------------------------------------------------------------------ products


def products() -> tuple[Product, ...]:
    """Every product that is described."""
    from wavedsl.codegen.amdgcn.products import PRODUCTS as AMD
    from wavedsl.codegen.ptx.products import PRODUCTS as NVIDIA

    return (*AMD, *NVIDIA)


def product_named(name: str | Product | None, target: str | None = None) -> Product:
    """The product of this name, or the reference product of `target`. ConstraintError lists what there is.

    A `Product` of the caller's own comes back as it is.
    """
    if isinstance(name, Product):
        return name
    for product in products():
        if (name is None and product.target == target) or (name is not None and product.name.lower() == name.lower()):
            if target is not None and product.target != target:
                raise ConstraintError(f"{product.name} runs {product.target} text, not {target}")
            return product
    raise ConstraintError(
        f"no product {name!r} is described" if name is not None else f"no product of {target} is described",
        hint=f"one of {', '.join(p.name for p in products())}",
    )


def product_called(device: str, target: str) -> Product:
    """The product that a driver calls `device` (`NVIDIA H200`, `AMD Instinct MI300X`), among those that run `target`:
    told by the first word of its name. The target's reference product where none is described."""
    own = [p for p in products() if p.target == target and p.name.split()[0] in re.split(r"[^A-Za-z0-9]+", device)]
    return own[0] if own else product_named(None, target)


# ------------------------------------------------------------------------------------------------------------- analyze


def analyze_gemm(
    m: int,
    n: int,
    k: int,
    dtype: DType | str,
    *,
    product: str | Product | None = "A100",
    unit: str | None = None,
    strategy: str = "auto",
    out: DType | None = None,
    beta: bool = False,
) -> Roofline:
    """The roofline of C = A B by its shape alone. `unit`: `matrix` or `vector` (default: matrix where the chip can).

    Raises ConstraintError for an empty extent, an unknown product or strategy.
    """
    from wavedsl.targets import get_target

    element = ALL[dtype] if isinstance(dtype, str) else dtype
    shape = GemmShape(m, n, k, element, out, beta)
    chip = product_named(product)
    target = get_target(chip.target)
    if unit is None:
        unit = "matrix" if chip.has_matrix(element.name, target) else "vector"
    if unit not in ("matrix", "vector") or (unit == "matrix" and not chip.has_matrix(element.name, target)):
        raise ConstraintError(f"{chip.name} has no {unit} pipe for {element}", hint="unit is 'matrix' or 'vector'")
    peak = chip.peak(element.name, unit, target)
    return _record(
        "gemm", chip, target, shape.flops, shape.bytes, element.name, unit, peak, shape, strategy,
        {f"{unit} {element.name}": shape.flops / peak},
    )  # fmt: skip


def _record(
    name: str,
    product: Product,
    target: Target,
    flops: int,
    moved: int,
    dtype: str,
    unit: str,
    peak: float,
    shape: GemmShape | None,
    strategy: str,
    pipes: Mapping[str, float],
    **more: Any,
) -> Roofline:
    """The fields that a shape alone decides; `more` overrides or adds. `pipes`: seconds of the FLOP that the algorithm
    needs, by pipe and dtype."""
    balance = peak / product.hbm
    intensity = flops / moved if moved else 0.0
    bound = intensity < balance
    tiles: TileChoice | None
    if shape is not None:
        chosen, why = choose_strategy(shape, bound, product)
        tiles = choose_tiles(chosen if strategy == "auto" else strategy, shape, product)
    else:
        chosen = "stream"
        why = f"{intensity:.3g} FLOP per byte without a contraction: move every byte once, 16 at a time per lane"
        width = vector_width(ALL[dtype])
        tiles = TileChoice(1, 64 * width, 1, 1, 1, 1, width, 0)
    compute = max(by_pipe(pipes).values(), default=0.0)
    seconds = {"compute": compute, "hbm": moved / product.hbm}
    bound_by = max(seconds, key=lambda part: seconds[part])
    values: dict[str, Any] = {
        "kernel": name,
        "target": target.name,
        "product": product.name,
        "dtype": dtype,
        "unit": unit,
        "flops": flops,
        "bytes": moved,
        "intensity": intensity,
        "is_memory_bound": bound,
        "recommended_strategy": chosen,
        "why": why,
        "peak_compute": peak,
        "peak_bandwidth": product.hbm,
        "balance_point": balance,
        "tiles": tiles,
        "flops_executed": flops,
        "balance_points": balance_points(product, target),
        "bytes_in_flight": product.hbm * product.latency,
        "pipe_seconds": pipes,
        "seconds_by": seconds,
        "bound": bound_by,
        "seconds": seconds[bound_by],
    }
    return Roofline(**{**values, **more})


def balance_points(product: Product, target: Target) -> dict[str, float]:
    """FLOP per byte of HBM at which each pipe becomes the limit, by `dtype pipe`."""
    found = {f"{d} matrix": product.balance(d, "matrix", target) for d in sorted(product.matrix_rates(target))}
    return found | {f"{d} vector": product.balance(d, "vector", target) for d in sorted(product.vector)}


@door
def analyze(
    kernel: Any,
    *args: Any,
    target: str | None = None,
    product: str | Product | None = None,
    subs: Mapping[Any, Any] | None = None,
    strategy: str = "auto",
    **kwargs: Any,
) -> Roofline:
    """The roofline of a kernel on these arguments, or on the sizes that `subs` binds. Compiles; runs nothing.

    `product` is a chip by name (`H200`, `MI300X`) or a `Product`; default: the reference product of `target`.
    """
    from wavedsl.compiled_kernel import CompiledKernel

    if isinstance(kernel, CompiledKernel):
        return analyze_compiled(kernel, dict(subs or {}), product=product, strategy=strategy)
    if target is None and product is not None:
        target = product_named(product).target
    if hasattr(kernel, "for_arguments"):  # a tuned kernel: with its choice for these arguments
        kernel = kernel.for_arguments(*args, target=target, subs=subs, **kwargs)
    if not hasattr(kernel, "bind_arguments"):
        said = f"analyze takes a kernel, not {kernel!r}"
        raise TraceError(said, here(calls=False), hint="a function under @wd.wave(…)")
    arguments = kernel.bind_arguments(args, kwargs) if args or kwargs else None
    binding = kernel.binding(arguments, subs)
    compiled = kernel.compile(*args, target=target, subs=subs, **kwargs)
    return analyze_compiled(compiled, {**binding.dims, **binding.extents}, product=product, strategy=strategy)


def analyze_compiled(
    compiled: Any, dims: Mapping[Any, Any], *, product: str | Product | None = None, strategy: str = "auto",
    model: Any = None, held: Collection[str] = (),
) -> Roofline:  # fmt: skip
    """As `analyze`, of a `CompiledKernel` that still has its graph and kernel IR; `dims` has a number per symbol.

    `model`: the `SmModel` on which warps are replayed (default: `own_clock.sm_of` the product; NVIDIA's only).
    `held`: arguments that L2 holds when the kernel begins, since a launch in front of it has written them."""
    from wavedsl.collector import PAUSED

    with PAUSED:
        return _analyzed(compiled, dims, product, strategy, model, held)


def _analyzed(
    compiled: Any, dims: Mapping[Any, Any], product: str | Product | None, strategy: str, model: Any,
    held: Collection[str],
) -> Roofline:  # fmt: skip
    """The record of a compiled kernel. Raises ConstraintError where sizes or the graph are not there."""
    from wavedsl.ir.cuts.partition import cut
    from wavedsl.ir.dataflow.constraints import resolve_constraints
    from wavedsl.ir.dataflow.odd_repeats import fitted_repeats
    from wavedsl.ir.symbols import normalise
    from wavedsl.targets import get_target

    if compiled.graph is None or compiled.kernel_ir is None:
        raise ConstraintError(
            f"{compiled.name} was loaded as text, without its graph", hint="compile the kernel again: kernel.compile(…)"
        )
    target = get_target(compiled.target)
    chip = product_named(product, compiled.target)
    graph = fitted_repeats(compiled.graph.traced or compiled.graph)
    sizes = {normalise(k) if not isinstance(k, str) else k: v for k, v in {**graph.subs, **dims}.items()}
    missing = [str(d) for a in graph.arguments for d in a.dims if not isinstance(evaluate(d, sizes), int)]
    if missing:
        raise ConstraintError(
            f"{compiled.name}: {', '.join(dict.fromkeys(missing))} has no value to analyse", compiled.location,
            hint="bind run-time dimensions for the analysis: subs={…}, or pass arrays",
        )  # fmt: skip
    machine = machine_of(compiled.kernel_ir, target)
    partition = cut(graph, resolve_constraints(graph, sizes, max_waves=machine.max_waves), machine)
    work = count_flops(graph, sizes, partition)
    issued = count_issued(compiled, target, sizes)
    arrays = array_bytes(compiled.graph, sizes)
    least = sum(size * times for _, size, times in arrays)
    matrix = on_matrix_units(compiled, machine)
    found = contractions(work, sizes, partition, matrix)
    shape = gemm_shape(found, work, sizes, compiled)
    needed = pipe_seconds(on_pipes(work.minimal, matrix), chip, target)
    dtype, unit, peak = _pipe_that_counts(shape, found, work, needed, compiled, chip, target)
    about: dict[str, Any] = {
        "products": tuple(found),
        "flops_by": {f"{pipe} {name}": count for (pipe, name), count in sorted(work.minimal.items())},
        "kernel_tiles": kernel_tiles(compiled, partition, work, issued, ALL[dtype]),
    }
    if len(found) > 1:
        about |= _several(found, needed, least / chip.hbm)
    if not issued.groups:
        return _record(
            compiled.name, chip, target, 0, 0, dtype, unit, peak, None, strategy, {}, **{**about, **_NOTHING}
        )
    far = [x for x in arrays if x[0] not in held]
    missed = sum(size * times for _, size, times in far)
    hbm = _hbm_traffic(compiled, partition, issued, far, chip)
    moved = issued.global_read + issued.global_written
    shared = issued.shared_read + issued.shared_written
    resident = residency(
        compiled.resources.occupancy if target.per_simd else _warps(compiled, target), issued.waves, target
    )
    part = min(1.0, missed / max(1, moved))
    if target.vendor == "amd":
        played: Played | None = _played(compiled, target, chip, resident, issued, sizes, part)
    else:
        played = _warps_played(compiled, target, machine, chip, issued, sizes, part, model)
    if played is not None:
        clocks = ceil(played.clocks)
        busy = {pipe: used / played.clocks for pipe, used in sorted(played.busy.items())}
    else:
        clocks, busy = unit_clocks(issued, target, chip.units, resident)
    executed = on_pipes(work.actual, matrix)
    pipes = pipe_seconds(executed, chip, target)
    seconds = {
        "compute": max(by_pipe(pipes).values(), default=0.0),
        "hbm": hbm / chip.hbm,
        "l2": moved / chip.l2_bandwidth(target),
        "shared": shared / chip.shared_bandwidth(target),
        "issue": clocks / chip.clock,
    }
    if played is not None:  # by cache lines, of which lanes of a wave, and trips, ask for the same ones
        seconds["l2"] = played.busy.get("memory", 0.0) / chip.clock
    bound = max(seconds, key=lambda part: seconds[part])
    return _record(
        compiled.name, chip, target, work.flops, least, dtype, unit, peak, shape, strategy, needed,
        **{**about, "pipe_seconds": pipes},
        flops_executed=sum(executed.values()),
        minimal=Traffic(least, least, 0), traffic=Traffic(hbm, moved, shared),
        seconds_by=seconds, bound=bound, seconds=seconds[bound], clocks=clocks, utilisation=busy,
    )  # fmt: skip


_NOTHING = {
    "recommended_strategy": "none",
    "why": "an extent is 0: no workgroup is launched",
    "tiles": None,
    "is_memory_bound": False,
    "minimal": Traffic(0, 0, 0),
    "traffic": Traffic(0, 0, 0),
    "seconds_by": dict.fromkeys(("compute", "hbm", "l2", "shared", "issue"), 0.0),
    "bound": "nothing",
    "flops_by": {},
}
"""What there is to say of an empty grid."""


def _pipe_that_counts(
    shape: GemmShape | None, found: Sequence[Contraction], work: Work, needed: Mapping[str, float], compiled: Any,
    chip: Product, target: Target,
) -> tuple[str, str, float]:  # fmt: skip
    """(dtype, pipe, its peak) of the kernel's one product; else of the pipe that needs longest, and the dtype that
    takes most of that: with several dtypes on it the peak is that of the mix."""
    if shape is not None or (found and not any(needed.values())):
        dtype, unit = found[0].dtype, found[0].unit
        return dtype, unit, chip.peak(dtype, unit, target)
    if not needed:
        dtype = main_dtype(work, compiled)
        return dtype, "vector", chip.peak(dtype, "vector", target)
    pipes = by_pipe(needed)
    unit = max(pipes, key=lambda pipe: pipes[pipe])
    own = {name.split()[1]: s for name, s in needed.items() if name.startswith(unit)}
    dtype = max(own, key=lambda name: own[name])
    flops = sum(s * chip.peak(name, unit, target) for name, s in own.items())
    return dtype, unit, flops / pipes[unit] if len(own) > 1 else chip.peak(dtype, unit, target)


def _several(found: Sequence[Contraction], needed: Mapping[str, float], hbm: float) -> dict[str, Any]:
    """Strategies are ways to cut one product. With several, the bound compares times, since pipes differ."""
    said = "; ".join(dict.fromkeys(map(str, found)))
    return {
        "recommended_strategy": "none",
        "why": f"none of these strategies, each of which cuts one product: {len(found)} products ({said})",
        "tiles": None,
        "is_memory_bound": hbm > max(by_pipe(needed).values(), default=0.0),
    }


def _played(
    compiled: Any, target: Target, chip: Product, resident: int, issued: Issued, sizes: Mapping[Any, Any],
    missing: float,
) -> Played:  # fmt: skip
    """Clocks of the fullest unit and its pipes' busy ones, by the cycle model. `missing`: the part of the traffic that
    comes from memory."""
    from wavedsl.analysis.played import play, scratch_by_loop, with_the_last
    from wavedsl.runtime.emulator.cycle_chips import varied
    from wavedsl.runtime.emulator.cycle_queue import sharing

    launch, group, scale = _launch(issued, chip, resident, missing)
    grid = tuple(evaluate_int(g, sizes) for g in compiled.grid)
    hidden = hidden_values(compiled, sizes)
    model = varied(compiled.target, units=chip.units)
    if launch.groups > 1:
        rate = min(model.l2_rate, model.dram_rate / missing) if missing else model.l2_rate
        launch = replace(launch, used_units=sharing(issued.groups, chip.units, rate, model.l1_rate))
    scratch = scratch_by_loop(compiled.kernel_ir, compiled.resources)

    def played(launch: Any, last: bool) -> Played:
        return play(compiled.kernel_ir, target, launch, hidden, grid, model, group, scratch, last)

    return with_the_last(compiled.kernel_ir, launch, played).scaled(scale)


def _launch(issued: Issued, chip: Product, resident: int, missing: float) -> tuple[Any, tuple[int, ...], float]:
    """(what the fullest unit is given, the workgroup that is played for all of its, what its clocks are multiplied
    with). Where each unit has one workgroup the fullest counts; where they follow each other as they come, a typical
    one."""
    from wavedsl.runtime.emulator.cycle_queue import Launch

    groups = max(1, ceil(issued.groups / chip.units))
    launch = Launch(groups, resident, missing, min(chip.units, issued.groups))
    return (launch, issued.fullest, 1.0) if groups == 1 else (launch, issued.typical, issued.of_typical)


def _warps_played(
    compiled: Any, target: Target, machine: Target, chip: Product, issued: Issued, sizes: Mapping[Any, Any],
    missing: float, model: Any,
) -> Played | None:  # fmt: skip
    """The same on NVIDIA's chips, by the warp replay; None where it cannot tell."""
    from wavedsl.analysis.own_clock import at_own_clock, power_of_products, sm_of
    from wavedsl.analysis.played import with_the_last
    from wavedsl.analysis.played_warps import Walks, play_warps
    from wavedsl.runtime.emulator.cycle_queue import sharing
    from wavedsl.runtime.emulator.ptx.emulator import registers_of

    kernel = compiled.kernel_ir
    threads = prod(compiled.block)
    warps = target.occupancy(registers_of(compiled.asm, compiled.name, threads), compiled.shared_bytes, threads)
    launch, group, scale = _launch(issued, chip, residency(warps, issued.waves, target), missing)
    # While the fullest SM is at work, others run out of it.
    busy = issued.groups / launch.groups if launch.groups > 1 else issued.groups * issued.of_fullest
    group = (group[0] - group[0] % max(1, kernel.cluster), *group[1:])  # the first of its cluster, as `lanes` has it
    grid = tuple(evaluate_int(g, sizes) for g in compiled.grid)
    hidden = hidden_values(compiled, sizes)

    def played(sm: Any) -> Played:
        rate = min(sm.l2_rate, sm.dram_rate / missing) if missing else sm.l2_rate
        used = busy if launch.groups == 1 else sharing(issued.groups, chip.units, rate, sm.unit_rate)
        here = replace(launch, used_units=max(1.0, used))

        def of_launch(launch: Any, last: bool) -> Played:
            return play_warps(walks, launch, sm, compiled.shared_bytes, last)

        return with_the_last(kernel, here, of_launch).scaled(scale)

    at_product = model or sm_of(chip)
    if at_product is None:
        return None
    walks = Walks(kernel, machine, at_product, hidden, grid, group)
    if model is not None:
        return played(model)
    return at_own_clock(chip, power_of_products(kernel, chip), busy / chip.units, played)


def _warps(compiled: Any, target: Target) -> int:
    """Warps per SM by shared memory and threads alone: registers need an assembler, which an analysis does not run."""
    return target.occupancy(1, compiled.shared_bytes, prod(compiled.block))


def _hbm_traffic(
    compiled: Any, partition: Any, issued: Issued, arrays: Sequence[tuple[str, int, int]], chip: Product
) -> int:
    """Bytes that miss L2: every array once if what is read fits L2, else once per round of resident workgroups.

    In a round, consecutive workgroups run together and share the tiles of an array that only some grid axes select.
    """
    least = sum(size * times for _, size, times in arrays)
    read = sum(size for name, size, _ in arrays if "read" in _access(compiled, name))
    if read <= chip.l2_bytes:
        return least
    axes = partition.grid_axes()
    counts = [prod(partition.dims[d].trips or 1 for d in axis) for axis in axes]
    together = chip.units
    rounds = ceil(prod(counts) / together)  # of output tiles: persistent workgroups take several
    distinct = []
    left = together
    for count in counts:
        distinct.append(min(count, max(1, left)))
        left = ceil(left / max(1, count))
    total = 0
    for name, size, times in arrays:
        if "read" not in _access(compiled, name):
            total += size
            continue
        own = _selected_by(compiled, partition, name)
        mine = [i for i, axis in enumerate(axes) if any(str(d) in own for d in axis)]
        if all(i in mine or counts[i] == 1 for i in range(len(axes))):
            total += size * times  # every tile has its own
            continue
        share = prod(distinct[i] for i in mine) / prod(max(1, counts[i]) for i in mine)
        total += max(size, min(ceil(size * share * rounds), issued.global_read)) + (size if times == 2 else 0)
    return min(total, max(least, issued.global_read + issued.global_written))


def _selected_by(compiled: Any, partition: Any, name: str) -> set[str]:
    """Dimensions on which it depends what is read of an array; all of them where nobody knows."""
    found: set[str] = set()
    for n in compiled.graph.all_nodes():
        if n.op == "read" and n.attrs["memory"] == name:
            dims = tile_dims(compiled.graph, n)
            found |= set(map(str, partition.dims)) if dims is None else dims
    return found or set(map(str, compiled.graph.argument(name).dims))


def _access(compiled: Any, name: str) -> str:
    return next(p.access for p in compiled.params if p.name == name)


__all__ = ["DYNAMIC", "Roofline", "Traffic", "analyze", "analyze_compiled", "analyze_gemm", "product_named", "products"]
