"""From a kernel object and its arguments to target text: the driver of the whole compiler, and what it gives back.

`compile_kernel` traces, binds symbols, runs the middle (`ir.pipeline`) and a back end (`codegen`), and returns a
`CompiledKernel`. The text is what matters; the intermediate forms are kept for inspection.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wavedsl.collector import PAUSED
from wavedsl.ir import trail
from wavedsl.ir.array_info import NEAR, ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.device_log import SOURCE, Site, log_sites
from wavedsl.ir.dtypes import ALL
from wavedsl.ir.errors import CompileError, ConstraintError, LaunchError, WaveError
from wavedsl.ir.graph import Graph
from wavedsl.ir.kernel_ir import Kernel as KernelIR
from wavedsl.ir.kernel_ir import Param, TensorBoxes
from wavedsl.ir.loc import Loc
from wavedsl.ir.product import Product
from wavedsl.ir.source import here
from wavedsl.ir.split_choice import chosen_split, whole
from wavedsl.ir.split_k import Split
from wavedsl.ir.symbols import DYNAMIC, evaluate
from wavedsl.ir.target import Target, lacking

if TYPE_CHECKING:
    from wavedsl.ir.decisions import Decisions

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
"""What `compile(target=…)` takes."""


@functools.cache
def get_target(name: str) -> Target:
    """The description of a chip. Raises ConstraintError with the legal names."""
    if not isinstance(name, str):
        raise ConstraintError(f"the target is {name!r}", hint=f"one of {', '.join(map(repr, TARGETS))}")
    if name.startswith("gfx") and name in TARGETS:
        from wavedsl.codegen.amdgcn.target import get_target as amd

        return amd(name)
    if name in TARGETS:
        from wavedsl.codegen.ptx.target import target as nvidia

        return nvidia(name)
    meant = _meant(name)
    raise ConstraintError(
        f"unknown target {name!r}", hint=(f"did you mean {meant}? " if meant else "") + f"one of {', '.join(TARGETS)}"
    )


_CHIPS = {
    "gfx90a": ("mi210", "mi250", "mi250x"),
    "gfx942": ("mi300", "mi300a", "mi300x", "mi325x"),
    "gfx950": ("mi350x", "mi355x"),
    "sm_80": ("a100", "sm_86", "sm_89", "sm_100", "sm_120"),
    "sm_90a": ("h100", "h200", "sm_90"),
}
"""Target → other names of what it runs on."""


def _meant(name: str) -> str:
    """The target that somebody means who writes `name`; empty if there is no telling."""
    plain = name.lower().removeprefix("emulator:").split(":")[0].replace("-", "_")
    plain = plain.replace("sm", "sm_", 1) if plain.startswith("sm") and "_" not in plain else plain
    return next((t for t, chips in _CHIPS.items() if plain == t or plain in chips), "")


def reference_product(name: str) -> Product:
    """The product that a target's decisions are made for where none is at hand."""
    if name.startswith("gfx"):
        from wavedsl.codegen.amdgcn.products import PRODUCTS
    else:
        from wavedsl.codegen.ptx.products import PRODUCTS
    return next(p for p in PRODUCTS if p.target == name)


@dataclass(eq=False)
class CompiledKernel:
    """A kernel as target text, ready to launch. `grid` holds workgroups per axis (expressions of dynamic extents),
    `block` the threads per workgroup, `params` the arguments in order, then hidden ones."""

    target: str
    name: str
    asm: str
    grid: tuple[Any, ...]
    block: tuple[int, int, int]
    shared_bytes: int
    params: list[Param]
    resources: Any
    shapes: dict[str, tuple[Any, ...]]
    expects: dict[str, tuple[tuple[int | None, ...], tuple[int | None, ...], int]]
    divisors: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Per array argument, what its run-time extents and byte strides are multiples of."""
    tiles: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Per array argument with run-time strides, the elements that are addressed from one place, per dimension."""
    sites: tuple[Site, ...] = ()
    """What `device_print` and `device_assert` report, by the numbers in the log; empty where there is no log."""
    location: Loc | None = None
    graph: Graph | None = None
    kernel_ir: KernelIR | None = None
    times: dict[str, float] = field(default_factory=dict)
    """Seconds per phase of the compile."""

    @property
    def decisions(self) -> Decisions | None:
        """The form of each copy and product, the place of each shared buffer, what the kernel needs and why; None for a
        kernel that was loaded."""
        return None if self.kernel_ir is None else self.kernel_ir.notes.get("decisions")

    def binary(self) -> bytes:
        """The text assembled: a cubin or an hsaco. Raises ToolchainError where no assembler is at hand."""
        from wavedsl.runtime import toolchain

        return toolchain.binary(self.asm, self.target)

    def emulate(self, *args: Any, checks: Any = True, **kwargs: Any) -> Any:
        """Run the text on the emulator, arrays in place; the report. Raises EmulationError for findings
        (`checks=True`)."""
        from wavedsl.runtime.launch import emulate

        return emulate(self, self._arguments(args, kwargs), checks=checks)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch. Raises LaunchError if shapes or strides differ from what the text was compiled for."""
        from wavedsl.runtime import devices
        from wavedsl.runtime.launch import launch

        default = devices.default()
        fits = default.target == self.target
        launch(self, self._arguments(args, kwargs), default if fits else devices.parse(f"emulator:{self.target}"))

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        names = [p.name for p in self.params if not p.source]
        values = dict(zip(names, args))
        for key, value in kwargs.items():
            if key not in names or key in values:
                raise LaunchError(
                    f"{self.name}: unexpected argument {key}", self.location, f"it takes {', '.join(names)}"
                )
            values[key] = value
        if len(args) > len(names) or len(values) < len(names):
            raise LaunchError(
                f"{self.name} takes {len(names)} arguments, got {len(args) + len(kwargs)}",
                self.location,
                f"{self.name}({', '.join(names)})",
            )
        return [values[n] for n in names]

    def save(self, path: str | Path) -> None:
        """Write the text and what a launch needs as one JSON file, to be read by `wd.load`."""
        import json

        Path(path).write_text(json.dumps(self.to_json(), indent=1))

    def to_json(self) -> dict[str, Any]:
        """Everything but the graph and the kernel IR as JSON values."""
        return {
            "format": 3,
            "target": self.target,
            "name": self.name,
            "asm": self.asm,
            "grid": [g if isinstance(g, int) else str(g) for g in self.grid],
            "block": list(self.block),
            "shared_bytes": self.shared_bytes,
            "params": [
                [p.name, p.kind, p.dtype.name, p.offset, p.size, p.source, p.access, *_map_json(p)] for p in self.params
            ],
            "shapes": {k: [d if isinstance(d, int) else str(d) for d in v] for k, v in self.shapes.items()},
            "expects": {k: [list(e), list(s), a] for k, (e, s, a) in self.expects.items()},
            "divisors": {k: [list(e), list(s)] for k, (e, s) in self.divisors.items()},
            "tiles": {k: list(v) for k, v in self.tiles.items()},
            "sites": [dataclasses.asdict(s) for s in self.sites],
            "resources": resources_json(self.resources),
        }


def resources_json(resources: Any) -> dict[str, Any]:
    """The resources that need no assembler, as JSON values."""
    if dataclasses.is_dataclass(resources) and not isinstance(resources, type):
        return dataclasses.asdict(resources)
    return {
        "instructions": resources.instructions,
        "loops": [dataclasses.asdict(loop) for loop in resources.loops],
        "shared_bytes": resources.shared_bytes,
    }


def resources_from_json(data: Mapping[str, Any]) -> Any:
    """The resources of the kernel that `data` describes; on NVIDIA they assemble its text when asked for registers."""
    values = dict(data["resources"])
    if data["target"].startswith("gfx"):
        from wavedsl.codegen.amdgcn.resources import LoopResources, Resources, Spilled

        values["loops"] = [LoopResources(**loop) for loop in values["loops"]]
        values["spilled"] = Spilled(**values.get("spilled", {}))
        return Resources(**values)
    from wavedsl.codegen.ptx.resources import PtxResources
    from wavedsl.codegen.ptx.text import LoopCount

    return PtxResources(
        data["asm"],
        values["instructions"],
        [LoopCount(**{**loop, "location": _loc_from_json(loop["location"])}) for loop in values["loops"]],
        values["shared_bytes"],
        math.prod(data["block"]),
        get_target(data["target"]).occupancy,
        _assembler(data["target"]),
    )


def _map_json(param: Param) -> list[Any]:
    """A tensor map's description as further fields of its parameter."""
    m = param.map
    return [] if m is None else [m.array, list(m.order), list(m.box), m.span, m.ended, m.paired]


def _map_from_json(fields: Sequence[Any]) -> TensorBoxes | None:
    if not fields:
        return None
    array, order, box, span, ended, paired = fields
    return TensorBoxes(array, tuple(order), tuple(box), span, ended, paired)


def _loc_from_json(data: Mapping[str, Any] | None) -> Loc | None:
    """A location with its call sites, from what `dataclasses.asdict` made of it."""
    return None if data is None else Loc(**{**data, "call_site": _loc_from_json(data["call_site"])})


def from_json(data: Mapping[str, Any]) -> CompiledKernel:
    """The kernel that `to_json` described."""
    if data.get("format") != 3:
        raise LaunchError("not a compiled kernel, or one of another version", hint="save it again with this version")
    from wavedsl.ir import symbols

    def parse(text: Any) -> Any:
        return text if isinstance(text, int) else symbols.parse(text)

    return CompiledKernel(
        data["target"],
        data["name"],
        data["asm"],
        tuple(parse(g) for g in data["grid"]),
        tuple(data["block"]),
        data["shared_bytes"],
        [
            Param(n, k, ALL[d], o, s, src, acc, _map_from_json(rest))
            for n, k, d, o, s, src, acc, *rest in data["params"]
        ],
        resources_from_json(data),
        {k: tuple(parse(d) for d in v) for k, v in data["shapes"].items()},
        {k: (tuple(e), tuple(s), a) for k, (e, s, a) in data["expects"].items()},
        {k: (tuple(e), tuple(s)) for k, (e, s) in data["divisors"].items()},
        {k: tuple(v) for k, v in data["tiles"].items()},
        tuple(
            Site(s["kind"], s["text"], tuple(s["dims"]), s["dtype"], _loc_from_json(s["location"]))
            for s in data["sites"]
        ),
    )


def load(path: str | Path) -> CompiledKernel:
    """A kernel written by `CompiledKernel.save`. Raises LaunchError when the file is not one."""
    import json

    try:
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise LaunchError(f"cannot read a compiled kernel from {path}: {error}") from error
    return from_json(data)


# ----------------------------------------------------------------------------------------------------------------
# compile


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
    started = time.perf_counter()
    try:
        chip = get_target(target if target is not None else _default_target())
    except ConstraintError as error:
        error.location = error.location or here(calls=False)
        raise
    binding = kernel.binding(arguments, subs, dynamic)
    graph = kernel.trace(subs)
    _check_dtypes(graph, chip)
    traced = time.perf_counter()
    choices = _choices(kernel, chip)
    from wavedsl.ir.pipeline import build_kernel

    def built(found: Split) -> tuple[KernelIR, Any, dict[str, ArrayInfo]]:
        arrays, params, hidden = describe_arguments(found.graph, found.dims, arguments)
        made = build_kernel(found.graph, found.dims, arrays, params, chip, dynamic=hidden, choices=choices)
        return *made, arrays

    try:
        found = chosen_split(graph, binding.dims, chip, reference_product(chip.name), choices)
        try:
            ir, partition, arrays = built(found)
        except ConstraintError as error:
            if found.graph.traced is None or choices.split is not None or choices.stream:
                raise
            found = whole(graph, binding.dims, f"its loop in parts: {error.message}")
            ir, partition, arrays = built(found)
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
        chip.name,
        ir.name,
        text,
        grid,
        (ir.block, 1, 1),
        shared,
        ir.params,
        resources,
        {
            a.name: tuple(found.shapes.get(d, _shape(d, dims)) for d in a.dims)
            for a in graph.arguments
            if a.kind == "memory"
        },
        {n: (i.extents, _element_strides(i), i.align) for n, i in arrays.items()},
        {n: _divisors(i) for n, i in arrays.items()},
        _tiles(graph, arrays, partition),
        tuple(log_sites(graph)[0]),
        kernel.loc,
        graph,
        ir,
        {"trace": traced - started, "middle": lowered - traced, "backend": done - lowered},
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


def _choices(kernel: Any, chip: Target) -> Choices:
    """What `wd.Schedule` fixed, checked against the chip."""
    schedule = kernel.schedule
    if schedule is None:
        return Choices()
    supported = {"stages", "swizzle", "split_k", "stream_k"}
    supported |= {"specialize", "persistent", "cluster", "dependent"} if chip.warpgroup else set()
    supported |= {"direct_to_shared"} if chip.copy_async else set()
    supported |= {"ping_pong"} if chip.vendor == "amd" else set()
    supported |= {"prefetch"} if chip.prefetches else set()
    supported |= {"cache_swizzle"} if chip.cache_swizzle else set()
    for name, value in schedule.items():
        neutral = value is False if name in ("dependent", "cache_swizzle") else value in (False, 1)
        if name not in supported and not neutral:
            raise ConstraintError(
                f"Schedule({name}={value!r}) is not available on {chip.name}",
                kernel.loc,
                f"this version can fix {', '.join(sorted(supported))}",
            )
    return Choices(
        stages=schedule.stages, specialize=schedule.specialize, persistent=schedule.persistent,
        swizzle=schedule.swizzle, cluster=schedule.cluster, direct=schedule.direct_to_shared,
        ping_pong=schedule.ping_pong, prefetch=schedule.prefetch, cache_swizzle=schedule.cache_swizzle,
        dependent=schedule.dependent, split=schedule.split_k, stream=schedule.stream_k,
    )  # fmt: skip


def _tiles(graph: Graph, arrays: Mapping[str, ArrayInfo], partition: Any) -> dict[str, tuple[int, ...]]:
    """Per array of run-time strides, the elements addressed from one place: a tile; and of arrays of run-time size that
    are indexed by 32-bit offsets all, which is an empty tuple."""
    mapped = _indexed(graph)
    found: dict[str, tuple[int, ...]] = {}
    for name, info in arrays.items():
        if name in mapped and info.span() is None and not info.far:
            found[name] = ()
        elif None in info.strides and (name not in mapped or _moved(graph, name)):
            found[name] = tuple(partition.dims[d].tile for d in info.dims)
    return found


def _indexed(graph: Graph) -> set[str]:
    """Arrays whose elements are picked one by one: through a mapping, or by atomics."""
    return {
        n.attrs["memory"]
        for n in graph.all_nodes()
        if n.attrs.get("mapping") is not None or n.op.startswith("atomic_")
    }


def _moved(graph: Graph, name: str) -> bool:
    """Whether tiles of an array are read or written, too."""
    return any(
        n.op in ("read", "write") and n.attrs.get("memory") == name and n.attrs.get("mapping") is None
        for n in graph.all_nodes()
    )


def _shape(dim: Any, dims: Mapping[Any, Any]) -> Any:
    value = evaluate(dim, dims)
    return dim if value is DYNAMIC else value


def _element_strides(info: ArrayInfo) -> tuple[int | None, ...]:
    if info.dtype.packed:
        last = len(info.strides) - 1
        return tuple(s if s is None or i == last else s * 8 // info.dtype.bits for i, s in enumerate(info.strides))
    return tuple(None if s is None else s // info.elsize for s in info.strides)


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
    first, *rest = tiles
    if isinstance(first, int):
        count: Any = -(-first // order.cluster) * order.cluster
    else:
        import sympy

        count = sympy.ceiling(first / sympy.Integer(order.cluster)) * order.cluster
    for n in rest:
        count = count * n
    if isinstance(count, int):
        return min(count, order.workgroups)
    import sympy

    return sympy.Min(count, order.workgroups)


def describe_arguments(
    graph: Graph, dims: Mapping[Any, Any], arguments: Mapping[str, Any] | None
) -> tuple[dict[str, ArrayInfo], list[Param], dict[str, int]]:
    """What the compiler may know of each array, the kernel's parameters, and where hidden ones are."""
    access, indexed = _accesses(graph), _indexed(graph)
    arrays: dict[str, ArrayInfo] = {}
    params: list[Param] = []
    offset = 0
    hidden_sources: list[str] = []

    def add(name: str, kind: str, dtype: Any, size: int, source: str = "", how: str = "") -> None:
        nonlocal offset
        offset = -(-offset // size) * size
        params.append(Param(name, kind, dtype, offset, size, source, how))
        offset += size

    for index, a in enumerate(graph.arguments):
        if a.kind == "scalar":
            add(a.name, "scalar", a.dtype, max(1, a.dtype.bits // 8))
            continue
        add(a.name, "pointer", a.dtype, 8, a.hidden, access.get(a.name, "read"))
        extents = tuple(_known(evaluate(d, dims), a.name, d) for d in a.dims)
        es = max(1, a.dtype.bits // 8)
        given = None if arguments is None else arguments.get(a.name)
        strides, align = _strides(a, extents, es, given)
        info = ArrayInfo(a.name, index, tuple(a.dims), a.dtype, strides, extents, align, *_multiples(a, given))
        if info.span() is None and a.name in indexed and _beyond(a, given):
            info = replace(info, beyond=True)
        arrays[a.name] = info
        for d, n in zip(a.dims, extents):
            if n is None and f"extent {d}" not in hidden_sources:
                hidden_sources.append(f"extent {d}")
        hidden_sources += [f"stride {a.name}[{i}]" for i, s in enumerate(strides) if s is None]
    hidden: dict[str, int] = {}
    if log_sites(graph)[0]:
        hidden[SOURCE] = len(params)
        add("_log", "pointer", ALL["i32"], 8, SOURCE, "readwrite")
    for source in hidden_sources:
        hidden[source] = len(params)
        add("_" + source.replace(" ", "_").replace("[", "_").replace("]", ""), "scalar", ALL["i32"], 4, source)
    return arrays, params, hidden


def _known(extent: Any, argument: str, dim: Any) -> int | None:
    if extent is DYNAMIC:
        return None
    if isinstance(extent, int):
        return extent
    raise ConstraintError(f"argument {argument}: the extent {dim} has no value", hint=f"bind it: subs={{{dim}: …}}")


def _strides(a: Any, extents: Sequence[int | None], es: int, given: Any) -> tuple[tuple[int | None, ...], int]:
    """Byte strides and pointer alignment of an array argument; row-major, contiguous, aligned when no array is
    given."""
    strides: list[int | None] = []
    if given is None:
        step: int | None = es
        for i, n in enumerate(reversed(extents)):
            strides.insert(0, step)
            if a.dtype.packed and i == 0 and n is not None:
                n = -(-n * a.dtype.bits // 8)
            step = None if n is None or step is None else step * max(n, 1)
        return tuple(strides), 16
    from wavedsl.runtime import arrays as runtime_arrays

    ref = runtime_arrays.describe(given, a.name)
    align = 16 if ref.place == "cpu" else runtime_arrays.divisibility(ref.pointer)
    unknown = False
    # A dimension of one element has the stride that `element_strides` gives it at launch: NumPy's own is arbitrary.
    natural = runtime_arrays.row_major(ref.shape, ref.storage.itemsize)
    for n, s, size, dense in zip(reversed(extents), reversed(ref.strides), reversed(ref.shape), reversed(natural)):
        if s < 0:
            raise LaunchError(
                f"argument `{a.name}` has a negative stride of {s} bytes",
                a.loc,
                "pass a copy: numpy.ascontiguousarray(…)",
            )
        strides.insert(0, None if unknown else (s if size > 1 else dense))
        unknown = unknown or n is None
    return tuple(strides), align


def _multiples(a: Any, given: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Powers of two up to 16 that divide each stride (in bytes) and the contiguous extents; 1 where no array is given.

    They hold for run-time sizes too: a launch checks them, so that vectors stay wide where sizes allow it.
    """
    if given is None:
        return (), ()
    from wavedsl.runtime import arrays as runtime_arrays

    ref = runtime_arrays.describe(given, a.name)
    extents = runtime_arrays.extents(ref, a.dtype)
    unit = ref.storage.itemsize
    return (
        tuple(math.gcd(s, 16) or 16 for s in ref.strides),
        tuple((math.gcd(n, 16) or 16) if s == unit else 1 for n, s in zip(extents, ref.strides)),
    )


def _beyond(a: Any, given: Any) -> bool:
    """Whether 32-bit offsets do not reach all elements of a given array."""
    if given is None:
        return False
    from wavedsl.runtime import arrays as runtime_arrays

    low, high = runtime_arrays.describe(given, a.name).extent_bytes()
    return high - low > NEAR


def _divisors(info: ArrayInfo) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a launch must check: (extents, strides in bytes) must be multiples of these; 1 for what is fixed anyway."""
    return (
        tuple(info.extent_multiple(i) if n is None else 1 for i, n in enumerate(info.extents)),
        tuple(info.stride_multiple(i) if s is None else 1 for i, s in enumerate(info.strides)),
    )


def _accesses(graph: Graph) -> dict[str, str]:
    """Argument → `read`, `write` or `readwrite`."""
    found: dict[str, set[str]] = {}
    for n in graph.all_nodes():
        name = n.attrs.get("memory")
        if isinstance(name, str):
            how = found.setdefault(name, set())
            how.add("read" if n.op == "read" else "write")
            if n.op.startswith("atomic"):
                how.add("read")
    return {k: "readwrite" if len(v) == 2 else next(iter(v)) for k, v in found.items()}


def _emit(ir: KernelIR, chip: Target) -> tuple[str, Any, int]:
    """Text, resources and shared bytes from the chip's back end."""
    if chip.vendor == "amd":
        from wavedsl.codegen.amdgcn.emit import compile_kernel_ir as amd

        program = amd(ir, chip)
        return program.text, program.resources, ir.shared_bytes
    from wavedsl.codegen.ptx.emit import compile_kernel_ir as nvidia

    ptx = nvidia(ir, chip, _assembler(chip.name))
    return ptx.text, ptx.resources, ir.shared_bytes


def _assembler(target: str) -> Any:
    """What the PTX resources call when registers and spills are first asked for."""

    def assemble(text: str) -> Any:
        from wavedsl.runtime import toolchain

        if toolchain.find_cuda_tool("ptxas") is None:
            return None
        return toolchain.assemble_ptx(text, target).entries[0]

    return assemble


__all__ = ["TARGETS", "CompileError", "CompiledKernel", "compile_kernel", "get_target", "load", "np"]
