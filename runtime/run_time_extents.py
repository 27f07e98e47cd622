"""Calls that differ from an earlier one in run-time extents and strides only: what a launch needs, not the long way.

In comes a compiled kernel and the call that it was compiled or found for, out comes its `family`: from the extents and
strides of a later call's arrays it gives the grid, how far each array reaches, and the hidden parameters. Which family
a call is of tells `relied`, which repeats what the table of compiled kernels goes by (`launch._relied_on`): exact
numbers where the text has them, otherwise what divides them.

Both are written out as Python text, for a call has microseconds. They answer None for whatever needs a closer look: an
extent below 2, arguments that disagree, outputs that are not row-major. The long way looks closer. What a family takes
for granted, the call that it was made from has been checked for, and it is equal in both (`_same_text` says why).
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from wavedsl.ir.array_info import NEAR
from wavedsl.ir.kernel.kernel_ir import Param
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.prepare import largest_grid
from wavedsl.runtime.workspace import ROOMS

DIVISOR = 16
"""Extents and strides that a text does not know count by what of this divides them."""


@dataclass(frozen=True)
class Array:
    """An array argument: its dimensions as declared, of which some are run-time ones, and the call's own array."""

    name: str
    dims: tuple[Any, ...]
    dynamic: tuple[bool, ...]
    ref: ArrayRef
    written: bool
    packed: bool

    @property
    def varies(self) -> bool:
        return any(self.dynamic)


def relied(arrays: Sequence[Array], buckets: Mapping[Any, Sequence[int]] | None = None) -> Callable[..., Any]:
    """A function of the arrays' geometries: equal where `launch._relied_on` is, for calls alike in all else.

    `buckets`, for a kernel that is chosen by extents: the bucket of each run-time extent counts too, and the extent
    itself where its dimension has no limits there.
    """
    lines, out = [], []
    names: dict[str, Any] = {"gcd": math.gcd, "bisect_left": bisect.bisect_left}
    for j, array in enumerate(arrays):
        if not array.varies:
            out.append(f"*g{j}[0], *g{j}[1]")
            continue
        lines.append(_unpacked(j, array))
        outside = False
        for i in reversed(range(len(array.dims))):
            out.append(f"gcd(s{j}_{i}, {DIVISOR})" if outside else f"s{j}_{i}")
            if array.dynamic[i]:
                out.append(f"gcd(n{j}_{i}, {DIVISOR}) if s{j}_{i} == {array.ref.storage.itemsize} else 1")
                outside = True
            if buckets is not None and array.dynamic[i] and array.dims[i] in buckets:
                names[f"limits{j}_{i}"] = tuple(buckets[array.dims[i]])
                out.append(f"bisect_left(limits{j}_{i}, n{j}_{i})")
            elif buckets is not None or not array.dynamic[i]:
                out.append(f"n{j}_{i}")
    return _function(f"({', '.join(out)},)", lines, len(arrays), names)


def family(compiled: Any, arrays: Sequence[Array], rest: Sequence[Any]) -> Callable[..., Any] | None:
    """A function of the arrays' geometries that gives (grid, bytes that each array reaches, `rest`), or None.

    `rest` is what the plan of the call at hand has for tensor maps and hidden parameters. None where the kernel has
    something that this does not know.
    """
    if any(p.source in ROOMS for p in compiled.params):  # whose extents vary with the arrays'
        return None
    if not any(a.varies for a in arrays) or not all(map(_known, arrays)) or not _same_text(compiled, arrays):
        return None
    lines: list[str] = []
    refuse: list[str] = []
    extents: dict[str, str] = {}
    reach: list[str] = []
    for j, array in enumerate(arrays):
        size = array.ref.storage.itemsize
        low, high = array.ref.extent_bytes()
        if not array.varies:
            reach.append(str(high - low))
            continue
        lines.append(_unpacked(j, array))
        rank = range(len(array.dims))
        for i in rank:
            if array.dynamic[i]:
                refuse.append(f"n{j}_{i} < 2")
                known = extents.setdefault(str(array.dims[i]), f"n{j}_{i}")
                if known != f"n{j}_{i}":
                    refuse.append(f"n{j}_{i} != {known}")
            inner = f"n{j}_{i + 1} * s{j}_{i + 1}" if i + 1 < len(rank) else str(size)
            refuse.append(f"s{j}_{i} < {inner if array.written else 0}")
        tile = compiled.tiles.get(array.name)
        if tile:
            parts = " + ".join(f"(min(n{j}_{i}, {tile[i]}) - 1) * s{j}_{i}" for i in rank)
            refuse.append(f"{parts} >= {1 << 32}")
        reach.append(" + ".join([*[f"(n{j}_{i} - 1) * s{j}_{i}" for i in rank], str(size)]))
        refuse.append(f"{reach[-1]} {'<=' if high - low > NEAR else '>'} {NEAR}")  # another text
    try:
        grid = [python(g, extents) for g in _sizes(compiled.grid)]
    except KeyError:
        return None
    hidden: list[str] = []
    names: dict[str, Any] = {}
    entries = [p for p in compiled.params if p.source or p.map is not None]
    places = {array.name: j for j, array in enumerate(arrays)}
    for k, (param, value) in enumerate(zip(entries, rest, strict=True)):
        names[f"r{k}"] = value
        if param.map is not None:
            text = _map(param, places, arrays, k, rest[k], names)
        else:
            text = _number(param, places, arrays, extents, refuse)
        hidden.append(text or f"r{k}")
    lines += [f"if {' or '.join(refuse)}: return None", f"grid = ({', '.join(grid)})"]
    largest = largest_grid(compiled)
    lines += [f"if grid[{axis}] > {most}: return None" for axis, most in enumerate(largest) if axis < len(grid)]
    answer = f"grid, ({', '.join(reach)},), ({''.join(h + ', ' for h in hidden)})"
    return _function(answer, lines, len(arrays), names)


def _known(array: Array) -> bool:
    """Whether the extents of `array` are plain: no expressions, and where they vary, one element in its own bytes, and
    none so small that its stride says nothing."""
    if not all(isinstance(d, (int, sympy.Integer, sympy.Symbol)) for d in array.dims):
        return False
    return not array.varies or (not array.packed and min(array.ref.shape) >= 2)


def _same_text(compiled: Any, arrays: Sequence[Array]) -> bool:
    """Whether all that the text takes for granted is in `relied`: extents and strides that it knows are exact there,
    and what it divides by divides the divisors there."""
    for array in arrays:
        extents, strides, _ = compiled.expects.get(array.name, ((), (), 1))
        by = compiled.divisors.get(array.name, ((), ()))
        outside = False
        for i in reversed(range(len(array.dims))):
            if outside and (strides[i] is not None or math.gcd(array.ref.strides[i], DIVISOR) % by[1][i]):
                return False
            if array.dynamic[i]:
                dense = array.ref.strides[i] == array.ref.storage.itemsize
                multiple = math.gcd(array.ref.shape[i], DIVISOR) if dense else 1
                if extents[i] is not None or multiple % by[0][i]:
                    return False
                outside = True
    return True


def _map(
    param: Param, places: Mapping[str, int], arrays: Sequence[Array], k: int, maps: Any, names: dict[str, Any]
) -> str:
    """The tensor maps of an array whose extents vary, of the same kind as `maps`; empty where they do not."""
    boxes = param.map
    assert boxes is not None
    j = places[boxes.array]
    if not arrays[j].varies:
        return ""
    names[f"maps{k}"] = functools.partial(maps.other, boxes)
    rank = range(len(arrays[j].dims))
    extents, strides = ("".join(f"{x}{j}_{i}, " for i in rank) for x in "ns")
    return f"maps{k}(({extents}), ({strides}))"


def _number(
    param: Param, places: Mapping[str, int], arrays: Sequence[Array], extents: Mapping[str, str], refuse: list[str]
) -> str:
    """The bytes of a hidden extent or stride that varies; empty where it does not."""
    what, _, which = param.source.partition(" ")
    text = ""
    if what == "extent":
        text = extents.get(which, "")
    elif what == "stride":
        name, _, axis = which.rstrip("]").partition("[")
        j = places[name]
        if arrays[j].varies:
            text = f"s{j}_{axis} // {arrays[j].ref.storage.itemsize}"
    if not text:
        return ""
    refuse.append(f"{text} >= {1 << 8 * param.size - 1}")
    return f"({text}).to_bytes({param.size}, 'little')"


def python(size: Any, names: Mapping[str, str]) -> str:
    """An integer expression of extents as Python text. KeyError for what is neither an extent nor known here."""
    if isinstance(size, (int, sympy.Integer)):
        return str(int(size))
    if isinstance(size, sympy.Symbol):
        return names[str(size)]
    if isinstance(size, (sympy.ceiling, sympy.floor)):
        above, below = (python(part, names) for part in sympy.fraction(sympy.together(size.args[0])))
        return f"-(-({above}) // ({below}))" if isinstance(size, sympy.ceiling) else f"(({above}) // ({below}))"
    form = {sympy.Add: "({})", sympy.Mul: "({})", sympy.Min: "min({})", sympy.Max: "max({})"}[type(size)]
    between = {sympy.Add: " + ", sympy.Mul: " * "}.get(type(size), ", ")
    return form.format(between.join(python(part, names) for part in size.args))


def _sizes(grid: Any) -> list[Any]:
    sizes = [grid] if isinstance(grid, int) else list(grid)
    return sizes + [1] * (3 - len(sizes))


def _unpacked(j: int, array: Array) -> str:
    rank = range(len(array.dims))
    extents, strides = ("".join(f"{x}{j}_{i}, " for i in rank) for x in "ns")
    return f"({extents}), ({strides}) = g{j}"


def _function(answer: str, lines: Sequence[str], count: int, names: dict[str, Any]) -> Callable[..., Any]:
    body = "\n    ".join([*lines, f"return {answer}"])
    source = f"def found({', '.join(f'g{j}' for j in range(count))}):\n    {body}\n"
    exec(compile(source, "<run-time extents>", "exec"), names)
    return names["found"]
