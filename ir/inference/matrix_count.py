"""How many matrix instructions a product takes, and where each begins.

In: a product's `MmaPlan`. Out: offsets of tiles of the result and of steps along K, in elements.
"""

from __future__ import annotations

from wavedsl.ir.inference.mma_plan import MmaPlan


def result_tiles(plan: MmaPlan) -> list[dict[str, int]]:
    """Offsets of each atom-sized tile of the result, in the order of its chunks."""
    layout = plan.result
    box = 1 << layout.inner.count("e")
    return [layout.coords(c * box) for c in range(max(1, layout.elements_per_lane // box))]


def instructions(plan: MmaPlan) -> int:
    """Matrix instructions of a product in one wave."""
    if not plan.atom.asynchronous:
        return len(result_tiles(plan)) * len(k_issues(plan))
    sizes = dict(plan.result.extents)
    pieces = sizes[plan.m] // plan.atom.m * (sizes[plan.n] // plan.atom.n)
    return pieces * (plan.deep // plan.atom.k)


def k_issues(plan: MmaPlan) -> list[int]:
    """K offsets (in element-offset terms) of the instructions along K."""
    atom, layout = plan.atom, plan.first
    total_k = dict(layout.extents)[plan.k]
    if atom.asynchronous:  # a tile in shared memory has no fragments
        return list(range(0, total_k, atom.k))
    box = layout.box(plan.k)
    steps = (box // atom.k).bit_length() - 1
    run = run_bits(plan)
    return [d * box + (s << run) for d in range(total_k // box) for s in range(1 << steps)]


def run_bits(plan: MmaPlan) -> int:
    """Coordinate bits below the K-step bits: the atom's own run of elements along K (0 where it has none)."""
    return sum(1 for x in plan.a["K"].split() if x.startswith("e"))
