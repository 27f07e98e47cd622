"""The roofline of a kernel: work, traffic per level, what bounds it, how long that takes, and how to cut it better.

In: a kernel, its shapes, a chip. Out: a `Roofline` record. `flops` and `bytes` are what the algorithm needs (each
byte of an argument moved once); `traffic` is what the compiled kernel moves per level. The predicted time is that of
the slowest of: the arithmetic pipes at peak, HBM, L2, shared memory, and the clocks that the kernel's own
instructions keep its units busy. It is a model, never a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from wavedsl.analysis.flops import Work, count_flops
from wavedsl.analysis.issued import Issued, count_issued, hidden_values, machine_of, residency, unit_clocks
from wavedsl.analysis.strategy import GemmShape, TileChoice, choose_strategy, choose_tiles, vector_width
from wavedsl.ir.dtypes import ALL, DType
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.product import Product
from wavedsl.ir.symbols import DYNAMIC, evaluate, evaluate_int
from wavedsl.ir.target import Target
from wavedsl.ir.tile_dims import tile_dims

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
    """`matrix` or `vector`: the pipes whose peak counts."""
    flops: int
    """What the algorithm needs."""
    bytes: int
    """The least that must cross HBM: every argument's bytes once per direction."""
    intensity: float
    is_memory_bound: bool
    recommended_strategy: str
    why: str
    peak_compute: float
    peak_bandwidth: float
    balance_point: float
    tiles: TileChoice
    """What the recommended strategy would choose."""
    kernel_tiles: TileChoice | None = None
    """What the kernel has; None where there is no kernel."""
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
    seconds_by: Mapping[str, float] = field(default_factory=dict)
    bound: str = ""
    """The largest of `seconds_by`."""
    seconds: float = 0.0
    """Predicted time of one launch."""
    clocks: int = 0
    """Predicted clocks of the fullest unit, HBM and L2 left aside."""
    utilisation: Mapping[str, float] = field(default_factory=dict)
    """Busy share of those clocks by pipe of a unit."""

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            out[f.name] = vars(value) if isinstance(value, (TileChoice, Traffic)) else value
            if isinstance(value, Mapping):
                out[f.name] = dict(value)
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
    return _record("gemm", chip, target, shape.flops, shape.bytes, element, unit, shape, strategy)


def _record(
    name: str,
    product: Product,
    target: Target,
    flops: int,
    moved: int,
    dtype: DType,
    unit: str | None,
    shape: GemmShape | None,
    strategy: str,
    **more: Any,
) -> Roofline:
    """The fields that a shape alone decides; `more` overrides or adds."""
    if unit is None:
        unit = "matrix" if shape is not None and product.has_matrix(dtype.name, target) else "vector"
    if unit not in ("matrix", "vector") or (unit == "matrix" and not product.has_matrix(dtype.name, target)):
        raise ConstraintError(f"{product.name} has no {unit} pipe for {dtype}", hint="unit is 'matrix' or 'vector'")
    peak = product.peak(dtype.name, unit, target)
    balance = peak / product.hbm
    intensity = flops / moved if moved else 0.0
    bound = intensity < balance
    if shape is not None:
        chosen, why = choose_strategy(shape, bound, product)
    else:
        chosen = "stream"
        why = f"{intensity:.3g} FLOP per byte without a contraction: move every byte once, 16 at a time per lane"
    tiles = (
        choose_tiles(chosen if strategy == "auto" else strategy, shape, product)
        if shape is not None
        else TileChoice(1, 64 * vector_width(dtype), 1, 1, 1, 1, vector_width(dtype), 0)
    )
    seconds = {"compute": flops / peak, "hbm": moved / product.hbm}
    bound_by = max(seconds, key=lambda part: seconds[part])
    values: dict[str, Any] = {
        "kernel": name,
        "target": target.name,
        "product": product.name,
        "dtype": dtype.name,
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
        "seconds_by": seconds,
        "bound": bound_by,
        "seconds": seconds[bound_by],
    }
    return Roofline(**{**values, **more})


def balance_points(product: Product, target: Target) -> dict[str, float]:
    """FLOP per byte of HBM at which each pipe becomes the limit, by `dtype pipe`."""
    found = {f"{d} matrix": product.balance(d, "matrix", target) for d in sorted(product.matrix_rates(target))}
    return found | {f"{d} vector": product.balance(d, "vector", target) for d in sorted(product.vector)}


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
    arguments = kernel.bind_arguments(args, kwargs) if args or kwargs else None
    binding = kernel.binding(arguments, subs)
    compiled = kernel.compile(*args, target=target, subs=subs, **kwargs)
    return analyze_compiled(compiled, {**binding.dims, **binding.extents}, product=product, strategy=strategy)


def analyze_compiled(
    compiled: Any, dims: Mapping[Any, Any], *, product: str | Product | None = None, strategy: str = "auto",
    model: Any = None, held: Collection[str] = (),
) -> Roofline:  # fmt: skip
    """As `analyze`, of a `CompiledKernel` that still has its graph and kernel IR; `dims` has a number per symbol.

    `model`: the `SmModel` on which warps are replayed (default: `played_warps.sm_of` the product; NVIDIA's only).
    `held`: arguments that L2 holds when the kernel begins, since a launch in front of it has written them."""
    from wavedsl.ir.constraints import resolve_constraints
    from wavedsl.ir.partition import cut
    from wavedsl.ir.symbols import normalise
    from wavedsl.targets import get_target

    if compiled.graph is None or compiled.kernel_ir is None:
        raise ConstraintError(
            f"{compiled.name} was loaded as text, without its graph", hint="compile the kernel again: kernel.compile(…)"
        )
    target = get_target(compiled.target)
    chip = product_named(product, compiled.target)
    graph = compiled.graph.traced or compiled.graph
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
    arrays = _arrays(compiled, sizes)
    least = sum(size * times for _, size, times in arrays)
    shape = _gemm_shape(work, sizes, compiled)
    dtype = shape.dtype if shape is not None else _main_dtype(work, compiled)
    far = [x for x in arrays if x[0] not in held]
    missed = sum(size * times for _, size, times in far)
    hbm = _hbm_traffic(compiled, partition, issued, far, chip)
    moved = issued.global_read + issued.global_written
    shared = issued.shared_read + issued.shared_written
    base = _record(compiled.name, chip, target, work.flops, least, dtype, None, shape, strategy)
    executed = sum(work.actual.values())
    resident = residency(
        compiled.resources.occupancy if target.vendor == "amd" else _warps(compiled, target), issued.waves, target
    )
    if target.vendor == "amd":
        clocks, busy = _played(compiled, target, chip, resident, issued, sizes, min(1.0, missed / max(1, moved)))
    else:
        clocks, busy = unit_clocks(issued, target, chip.units, resident)
        part = min(1.0, missed / max(1, moved))
        played = _warps_played(compiled, target, machine, chip, issued, sizes, part, model)
        if played is not None:
            busy = {unit: share * clocks / played.clocks for unit, share in busy.items()}
            clocks = ceil(played.clocks)
    seconds = {
        "compute": executed / base.peak_compute,
        "hbm": hbm / chip.hbm,
        "l2": moved / chip.l2_bandwidth(target),
        "shared": shared / chip.shared_bandwidth(target),
        "issue": clocks / chip.clock,
    }
    if target.vendor == "amd":  # by cache lines, of which lanes of a wave, and trips, ask for the same ones
        seconds["l2"] = busy.get("memory", 0.0) * clocks / chip.clock
    elif played is not None:
        seconds["l2"] = played.busy.get("memory", 0.0) / chip.clock
    bound = max(seconds, key=lambda part: seconds[part])
    return _record(
        compiled.name, chip, target, work.flops, least, dtype, base.unit, shape, strategy,
        kernel_tiles=_kernel_tiles(compiled, partition, work, issued, dtype),
        flops_executed=executed,
        flops_by={f"{pipe} {name}": count for (pipe, name), count in sorted(work.minimal.items())},
        minimal=Traffic(least, least, 0), traffic=Traffic(hbm, moved, shared),
        seconds_by=seconds, bound=bound, seconds=seconds[bound], clocks=clocks, utilisation=busy,
    )  # fmt: skip


def _played(
    compiled: Any, target: Target, chip: Product, resident: int, issued: Issued, sizes: Mapping[Any, Any],
    missing: float,
) -> tuple[int, dict[str, float]]:  # fmt: skip
    """Clocks of the fullest unit and its pipes' busy shares, by the cycle model. `missing`: the part of the traffic
    that comes from memory."""
    from wavedsl.analysis.played import play
    from wavedsl.runtime.emulator.cycle_chips import varied
    from wavedsl.runtime.emulator.cycle_queue import Launch

    launch = Launch(max(1, ceil(issued.groups / chip.units)), resident, missing, min(chip.units, issued.groups))
    grid = tuple(evaluate_int(g, sizes) for g in compiled.grid)
    hidden = hidden_values(compiled, sizes)
    found = play(compiled.kernel_ir, target, launch, hidden, grid, varied(compiled.target, units=chip.units))
    return ceil(found.clocks), {unit: clocks / found.clocks for unit, clocks in found.busy.items()}


def _warps_played(
    compiled: Any, target: Target, machine: Target, chip: Product, issued: Issued, sizes: Mapping[Any, Any],
    missing: float, model: Any,
) -> Played | None:  # fmt: skip
    """The same on NVIDIA's chips, by the warp replay; None where it cannot tell."""
    from wavedsl.analysis.played_warps import play_warps, sm_of
    from wavedsl.runtime.emulator.cycle_queue import Launch
    from wavedsl.runtime.emulator.ptx import registers_of

    model = model or sm_of(chip)
    if model is None:
        return None
    kernel = compiled.kernel_ir
    threads = prod(compiled.block)
    warps = target.occupancy(registers_of(compiled.asm, compiled.name, threads), compiled.shared_bytes, threads)
    groups = max(1, ceil(issued.groups / chip.units))
    launch = Launch(groups, residency(warps, issued.waves, target), missing, min(chip.units, issued.groups))
    grid = tuple(evaluate_int(g, sizes) for g in compiled.grid)
    return play_warps(kernel, machine, launch, hidden_values(compiled, sizes), grid, model, compiled.shared_bytes)


def _warps(compiled: Any, target: Target) -> int:
    """Warps per SM by shared memory and threads alone: registers need an assembler, which an analysis does not run."""
    return target.occupancy(1, compiled.shared_bytes, prod(compiled.block))


def _arrays(compiled: Any, sizes: Mapping[Any, Any]) -> list[tuple[str, int, int]]:
    """(name, bytes, directions) of each array argument that the kernel touches."""
    found = []
    for p in compiled.params:
        if p.source or p.kind == "scalar":
            continue
        count = prod(evaluate_int(d, sizes) for d in compiled.graph.argument(p.name).dims)
        found.append((p.name, ceil(count * p.dtype.bits / 8), 2 if p.access == "readwrite" else 1))
    return found


def _gemm_shape(work: Work, sizes: Mapping[Any, Any], compiled: Any) -> GemmShape | None:
    """The shape of the one contraction; None where there is none or several."""
    if len(work.products) != 1:
        return None
    node = work.products[0]
    a, b = node.inputs[0], node.inputs[2 if node.op == "scaled_mma" else 1]
    shared = [d for d in a.dims if d in b.dims and d not in node.dims]
    graph = compiled.graph.traced or compiled.graph
    batch = prod(evaluate_int(d, sizes) for d in graph.index_dims)

    def extent(dims: Sequence[Any]) -> int:
        return prod(evaluate_int(d, sizes) for d in dims)

    m, n, k = (
        extent([d for d in a.dims if d in node.dims]),
        extent([d for d in b.dims if d in node.dims]),
        extent(shared),
    )
    if min(m, n, k) < 1:
        return None
    own = [p for p in compiled.params if not p.source]
    out = next((p.dtype for p in own if p.access in ("write", "readwrite")), node.dtype)
    beta = any(p.access == "readwrite" for p in own)
    return GemmShape(m * batch, n, k, a.dtype, out, beta)


def _main_dtype(work: Work, compiled: Any) -> DType:
    """The dtype with most work, else that of the first array."""
    if work.minimal:
        return ALL[max(work.minimal, key=lambda key: work.minimal[key])[1]]
    return next(p.dtype for p in compiled.params if p.kind != "scalar")


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


def _kernel_tiles(compiled: Any, partition: Any, work: Work, issued: Issued, dtype: DType) -> TileChoice:
    """How the kernel is cut. Without one contraction, M and N are the outer and the innermost workgroup dimensions."""
    dims = [p for p in partition.dims.values() if p.role == "workgroup"]
    rows, columns, deep = dims[:-1], dims[-1:], [p for p in partition.dims.values() if p.role in ("loop", "whole")]
    if len(work.products) == 1:
        node = work.products[0]
        a, b = node.inputs[0], node.inputs[2 if node.op == "scaled_mma" else 1]
        every = partition.dims
        rows = [every[d] for d in a.dims if d in node.dims and d in every]
        columns = [every[d] for d in b.dims if d in node.dims and d in every]
        deep = [every[d] for d in a.dims if d in b.dims and d not in node.dims and d in every]
    notes = compiled.kernel_ir.notes.get("lowering")
    loops = notes.loops if notes is not None else []
    stages = max([1, *(x.slots for x in loops)])
    ahead = max([0, *(x.body.count - 1 for x in loops)])
    ring = getattr(notes, "strategy", None)
    if ring is not None and ring.bulk:
        stages, ahead = ring.stages, ring.stages - 1
    return TileChoice(
        prod(p.tile for p in rows), prod(p.tile for p in columns), prod(p.tile for p in deep), stages,
        prod(p.waves for p in rows), prod(p.waves for p in columns), max(1, issued.vector * 8 // dtype.bits), ahead,
    )  # fmt: skip


__all__ = ["DYNAMIC", "Roofline", "Traffic", "analyze", "analyze_compiled", "analyze_gemm", "product_named", "products"]
