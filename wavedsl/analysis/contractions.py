"""The products of a kernel: their shapes, the units that carry them out, how they are cut.

In: a compiled kernel, its work, the extents. Out: `Contraction`s, the pipes that FLOP go to, `TileChoice`s. A kernel
may have several products, of different shapes and dtypes (attention, gated products), on matrix instructions or on
multiply-adds; which, its kernel IR says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

from wavedsl.analysis.flops import Work
from wavedsl.analysis.issued import Issued
from wavedsl.analysis.strategy import GemmShape, TileChoice
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import INT4, DType
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import evaluate_int
from wavedsl.ir.target import Target


@dataclass(frozen=True)
class Contraction:
    """One product of a kernel. Extents of all of its rows, columns and terms, whatever ranges its loops have."""

    m: int
    n: int
    k: int
    dtype: str
    unit: str
    """`matrix` or `vector`: what carries it out."""
    flops: int
    """What the algorithm needs; ranges of loops respected."""
    tile_m: int
    tile_n: int
    tile_k: int

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k} in {self.dtype}"


def contractions(work: Work, sizes: Mapping[Any, Any], partition: Any, matrix: Collection[str]) -> list[Contraction]:
    """The products in the order of the graph. `matrix`: dtypes whose products matrix instructions carry out."""
    found = []
    for node, flops in zip(work.products, work.of_product):
        sides = sides_of(node)
        m, n, k = (prod(evaluate_int(d, sizes) for d in side) for side in sides)
        tiles = [prod(partition.dims[d].tile for d in side if d in partition.dims) for side in sides]
        dtype = node.inputs[0].dtype.name
        unit = "matrix" if dtype in matrix else "vector"
        found.append(Contraction(m, n, k, dtype, unit, flops, tiles[0], tiles[1], tiles[2]))
    return found


def sides_of(node: Node) -> tuple[list[Any], list[Any], list[Any]]:
    """Dimensions of a product's rows, columns and sums."""
    a, b = node.inputs[0], node.inputs[2 if node.op == "scaled_mma" else 1]
    return (
        [d for d in a.dims if d in node.dims],
        [d for d in b.dims if d in node.dims],
        [d for d in a.dims if d in b.dims and d not in node.dims],
    )


def gemm_shape(found: Sequence[Contraction], work: Work, sizes: Mapping[Any, Any], compiled: Any) -> GemmShape | None:
    """The shape of the one contraction; None where there is none or several, or it is empty."""
    if len(found) != 1 or min(found[0].m, found[0].n, found[0].k) < 1:
        return None
    one, node = found[0], work.products[0]
    graph = compiled.graph.traced or compiled.graph
    batch = prod(evaluate_int(d, sizes) for d in graph.index_dims)
    if batch < 1:
        return None
    own = [p for p in compiled.params if not p.source]
    out = next((p.dtype for p in own if p.access in ("write", "readwrite")), node.dtype)
    beta = any(p.access == "readwrite" for p in own)
    return GemmShape(one.m * batch, one.n, one.k, node.inputs[0].dtype, out, beta)


def on_matrix_units(compiled: Any, machine: Target) -> frozenset[str]:
    """Dtypes of the products that the matrix instructions of a compiled kernel carry out."""
    atoms = {a.name: a for a in machine.mma_atoms}
    found: set[str] = set()
    for op in compiled.kernel_ir.body.walk():
        if op.name in ("mma", "mma.scaled", "matrix.start"):
            atom = op.attrs["atom"]
            atom = atoms[atom] if isinstance(atom, str) else atom
            found |= {atom.a_dtype.name, atom.b_dtype.name}
    if "i8" in found:
        found |= {dtype.name for dtype in INT4}
    return frozenset(found)


def on_pipes(flops: Mapping[tuple[str, str], int], matrix: Collection[str]) -> dict[tuple[str, str], int]:
    """FLOP by (`matrix` or `vector`, dtype), from those of products and of everything else."""
    out: dict[tuple[str, str], int] = {}
    for (kind, dtype), count in sorted(flops.items()):
        pipe = "matrix" if kind == "product" and dtype in matrix else "vector"
        out[pipe, dtype] = out.get((pipe, dtype), 0) + count
    return out


def pipe_seconds(flops: Mapping[tuple[str, str], int], product: Product, target: Target) -> dict[str, float]:
    """Seconds of FLOP by pipe and dtype at their peaks, such as `matrix f16`."""
    return {
        f"{pipe} {dtype}": count / product.peak(dtype, pipe, target) for (pipe, dtype), count in flops.items() if count
    }


def by_pipe(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds that the matrix and the vector pipes need; they work beside each other."""
    out: dict[str, float] = {}
    for name, s in seconds.items():
        pipe = name.split()[0]
        out[pipe] = out.get(pipe, 0.0) + s
    return out


def main_dtype(work: Work, compiled: Any) -> str:
    """The dtype with most work, else that of the first array."""
    if work.minimal:
        return max(work.minimal, key=lambda key: work.minimal[key])[1]
    return next(p.dtype.name for p in compiled.params if p.kind != "scalar")


def kernel_tiles(compiled: Any, partition: Any, work: Work, issued: Issued, dtype: DType) -> TileChoice:
    """How the kernel is cut: the tile of its product, of several the one with most work (the first of equals). Without
    one, M and N are the outer and the innermost workgroup dimensions."""
    dims = [p for p in partition.dims.values() if p.role == "workgroup"]
    rows, columns, deep = dims[:-1], dims[-1:], [p for p in partition.dims.values() if p.role in ("loop", "whole")]
    if work.products:
        most = max(range(len(work.products)), key=lambda i: (work.of_product[i], -i))
        rows, columns, deep = (
            [partition.dims[d] for d in side if d in partition.dims] for side in sides_of(work.products[most])
        )
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
