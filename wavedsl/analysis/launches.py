"""Kernels launched one behind the other: what one has written, L2 holds for the next.

In: compiled kernels with the arguments of each launch, a chip. Out: a `Roofline` of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from wavedsl.analysis.roofline import Roofline, analyze_compiled
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import evaluate_int


@dataclass(frozen=True)
class Launch:
    """One launch: `made`, a `CompiledKernel`; what was `given`, in order; the same as `arguments` by name; `sizes`: a
    number per symbol."""

    made: Any
    given: tuple[Any, ...]
    arguments: Mapping[str, Any]
    sizes: Mapping[Any, int]

    @property
    def workgroups(self) -> int:
        return prod(evaluate_int(g, self.sizes) for g in self.made.grid)


def launch_of(kernel: Any, given: Sequence[Any], target: str) -> Launch:
    """A call of a kernel, compiled for `target`. Raises what `kernel.compile` raises."""
    named = kernel.bind_arguments(given, {})
    binding = kernel.binding(named, None)
    return Launch(kernel.compile(*given, target=target), tuple(given), named, {**binding.dims, **binding.extents})


def analyze_launches(launches: Iterable[Launch], product: Product) -> list[Roofline]:
    """The roofline of each, in order. An array that an earlier launch has written comes from L2 if it takes half of
    that at most."""
    written: dict[int, Any] = {}  # by identity, kept alive: no other array may take its place
    found = []
    for one in launches:
        held = [name for name, x in one.arguments.items() if id(x) in written and 2 * x.nbytes <= product.l2_bytes]
        found.append(analyze_compiled(one.made, one.sizes, product=product, held=held))
        stored = (p.name for p in one.made.params if p.access == "write" and p.name in one.arguments)  # no hidden maps
        written.update((id(one.arguments[name]), one.arguments[name]) for name in stored)
    return found


__all__ = ["Launch", "analyze_launches", "launch_of"]
