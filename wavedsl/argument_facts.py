"""What the compiler may rely on of a kernel's arguments, and what a launch must check because of it.

In: a graph, a number (or "run time") for every symbol, and the arrays of a call or nothing, which stands for row-major,
contiguous, 16-byte aligned arrays. Out: an `ArrayInfo` per array, the parameters, and the hidden ones among them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wavedsl.ir.array_info import EMPTY, NEAR, ArrayInfo
from wavedsl.ir.dataflow.device_log import SOURCE, log_sites
from wavedsl.ir.dataflow.graph import Graph
from wavedsl.ir.dataflow.views import placement, view_dims
from wavedsl.ir.dtypes import ALL
from wavedsl.ir.errors import ConstraintError, LaunchError
from wavedsl.ir.kernel.kernel_ir import Param
from wavedsl.ir.symbols import DYNAMIC, dim_name, evaluate, with_numbers


def describe_arguments(
    graph: Graph, dims: Mapping[Any, Any], arguments: Mapping[str, Any] | None
) -> tuple[dict[str, ArrayInfo], list[Param], dict[str, int]]:
    """What the compiler may know of each array, the kernel's parameters, and where hidden ones are."""
    access, indexed = accesses(graph), _indexed(graph)
    arrays: dict[str, ArrayInfo] = {}
    params: list[Param] = []
    offset = 0
    hidden_sources: dict[str, str] = {}  # what the kernel asks for → where a launch finds it
    dense: dict[tuple[Any, ...], str] = {}  # the inner dimensions of arrays that launches make → the first's stride
    same: dict[str, str] = {}  # what the kernel asks for → what is the same number

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
        extents = tuple(_known(evaluate(d, dims), a, d) for d in a.dims)
        es = max(1, a.dtype.bits // 8)
        given = None if arguments is None else arguments.get(a.name)
        strides, align = _strides(a, extents, es, given)
        info = ArrayInfo(a.name, index, tuple(a.dims), a.dtype, strides, extents, align, *_multiples(a, given))
        if info.span() is None and a.name in indexed and _beyond(a, given):
            info = replace(info, beyond=True)
        arrays[a.name] = info
        for d, n in zip(a.dims, extents):
            if n is None:
                hidden_sources[f"extent {d}"] = f"extent {with_numbers(d, dims)}"
        for i, s in enumerate(strides):
            wanted = f"stride {a.name}[{i}]"
            first = dense.setdefault(tuple(a.dims[i + 1 :]), wanted) if a.hidden else wanted
            if s is None and first == wanted:
                hidden_sources[wanted] = wanted
            elif s is None:
                same[wanted] = first
    # A symbol that is no array's own extent, such as N of [M, 2 * N], has one as a dimension of parts of arrays.
    alone = {s for a in graph.arguments for d in a.dims for s in d.free_symbols if dims.get(s) is DYNAMIC}
    hidden_sources |= {f"extent {s}": f"extent {s}" for s in sorted(alone, key=str)}
    hidden: dict[str, int] = {}
    if log_sites(graph)[0]:
        hidden[SOURCE] = len(params)
        add("_log", "pointer", ALL["i32"], 8, SOURCE, "readwrite")
    for wanted, source in hidden_sources.items():
        hidden[wanted] = len(params)
        add("_" + wanted.replace(" ", "_").replace("[", "_").replace("]", ""), "scalar", ALL["i32"], 4, source)
    hidden |= {wanted: hidden[first] for wanted, first in same.items()}
    return arrays, params, hidden


def accesses(graph: Graph) -> dict[str, str]:
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


def _indexed(graph: Graph) -> set[str]:
    """Arrays whose elements are picked one by one: through a mapping, or by atomics."""
    return {
        n.attrs["memory"] for n in graph.all_nodes() if n.attrs.get("mapping") is not None or n.op.startswith("atomic_")
    }


def _largest_tiles(graph: Graph, names: Collection[str], partition: Any) -> dict[str, tuple[int, ...]]:
    """The largest tile of each of these arrays, or of parts of it, that is read or written, by its dimensions."""
    found: dict[str, tuple[int, ...]] = {}
    for n in graph.all_nodes() if names else ():
        if n.op not in ("read", "write") or n.attrs["memory"] not in names:
            continue
        name: str = n.attrs["memory"]
        at = placement(graph, n)
        if at is not None:
            dims = zip(graph.argument(name).dims, view_dims(graph, n))
            tile = tuple(1 if dim_name(d) in at.fixed else partition.dims[own].tile for d, own in dims)
            found[name] = tuple(map(max, tile, found.get(name, tile)))
    return found


def _known(extent: Any, argument: Any, dim: Any) -> int | None:
    """An extent as a number, None where it is known at run time only. ConstraintError for what no array can have."""
    if extent is DYNAMIC:
        return None
    if isinstance(extent, int) and extent >= 0:
        return extent
    free = sorted(getattr(extent, "free_symbols", ()), key=str)
    if free:
        said, hint = "has no value", f"bind it: subs={{{', '.join(f'{s}: …' for s in free)}}}"
    else:
        said, hint = f"is {extent}", "sizes must make every extent a whole number from 0 on"
    raise ConstraintError(f"argument {argument.name}: the extent {dim} {said}", argument.loc, hint=hint)


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
            step = None if n is None or step is None else step * (n or EMPTY)
        return tuple(strides), 16
    from wavedsl.runtime import arrays as runtime_arrays

    ref = runtime_arrays.describe(given, a.name)
    align = 16 if ref.place == "cpu" else runtime_arrays.divisibility(ref.pointer)
    unknown = False
    for n, given_stride, s in zip(reversed(extents), reversed(ref.strides), reversed(runtime_arrays.byte_strides(ref))):
        if given_stride < 0:
            raise LaunchError(
                f"argument `{a.name}` has a negative stride of {given_stride} bytes",
                a.loc,
                "pass a copy, numpy.ascontiguousarray(…), and for a result copy it back: out[...] = copy",
                a.name,
            )
        strides.insert(0, None if unknown else s)
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
    unit, strides = ref.storage.itemsize, runtime_arrays.byte_strides(ref)
    return (
        tuple(math.gcd(s, 16) or 16 for s in strides),
        tuple((math.gcd(n, 16) or 16) if s == unit else 1 for n, s in zip(extents, strides)),
    )


def _beyond(a: Any, given: Any) -> bool:
    """Whether 32-bit offsets do not reach all elements of a given array."""
    if given is None:
        return False
    from wavedsl.runtime import arrays as runtime_arrays

    low, high = runtime_arrays.describe(given, a.name).extent_bytes()
    return high - low > NEAR


def tiles_of(graph: Graph, arrays: Mapping[str, ArrayInfo], partition: Any) -> dict[str, tuple[int, ...]]:
    """Per array whose strides or extents are run-time arguments, the elements addressed from one place: a tile, if it
    may be too long for that; and of arrays of run-time size that are indexed by 32-bit offsets all, which is an empty
    tuple."""
    mapped = _indexed(graph)
    whole = [name for name, info in arrays.items() if name in mapped and info.span() is None and not info.far]
    tiled = [name for name, info in arrays.items() if info.span() is None and name not in whole]
    tiles = _largest_tiles(graph, tiled, partition)
    tiles = {name: tile for name, tile in tiles.items() if _may_be_long(arrays[name], tile)}
    found = {**dict.fromkeys(whole, ()), **tiles}
    return {name: found[name] for name in arrays if name in found}


def _may_be_long(info: ArrayInfo, tile: Sequence[int]) -> bool:
    """Whether 32-bit offsets do not reach all elements of a tile, of whatever the launch may give."""
    if None in info.strides:
        return True
    reach = 0
    for n, t, s in zip(info.extents, tile, info.strides):
        reach += max(0, (t if n is None else min(n, t)) - 1) * (s or 0)
    return reach >= 1 << 32


def element_strides(info: ArrayInfo) -> tuple[int | None, ...]:
    if info.dtype.packed:
        last = len(info.strides) - 1
        return tuple(s if s is None or i == last else s * 8 // info.dtype.bits for i, s in enumerate(info.strides))
    return tuple(None if s is None else s // info.elsize for s in info.strides)


def divisors_of(info: ArrayInfo) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a launch must check: (extents, strides in bytes) must be multiples of these; 1 for what is fixed anyway."""
    return (
        tuple(info.extent_multiple(i) if n is None else 1 for i, n in enumerate(info.extents)),
        tuple(info.stride_multiple(i) if s is None else 1 for i, s in enumerate(info.strides)),
    )
