"""Tiles that are longer than their array: bulk copies bring the rows that there are, the rest is zero once for all.

In: a read whose tile lies in a ring. Out: how many of its rows copies bring (`array_rows`), and what makes the others
zero before anybody reads them (`zero_rows`).

A tensor map gives zeros for rows outside of its array, but they cost time: on an H200 16 x 28672 x 8192 in tiles of
64 x 64 x 128 took 163 us, 48 of whose 64 rows are outside, and 64 x 28672 x 8192 in the same tiles 123 us
(benchmarks/results/h200.json). Over all candidates that were timed a row of 128 bytes outside takes 3 to 8 clocks of
an SM whose copies wait for memory, about what a row inside takes. So where one tile holds all of a dimension (a batch
of 40 in a tile of 64 rows) its boxes end where the array does, and slots keep the zeros that they begin with.
"""

from __future__ import annotations

from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.kernel.kernel_ir import vector
from wavedsl.ir.layouts.matrix_tile import BOX
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.tile_ends import CHUNK, tile_ends

GROUP = 8
"""Rows of which a workgroup's part of a tile that a cluster brings together is a multiple: those of a swizzle."""


def array_rows(low: Lowering, n: Node, staged: Staged, parts: int) -> int:
    """Rows that a read's array has where one tile has more of them than `parts` workgroups have to bring, and begins
    with the first; else 0."""
    tile = staged.tile
    if tile is None or not tile.other or tile.block:
        return 0
    rows, plan = staged.extents[tile.other], low.plans.get(tile.other)
    moved = placement(low.graph, n)
    if plan is None or plan.extent is None or plan.shared or plan.summed or rows > BOX or low.units(n) is not None:
        return 0
    if moved is None or moved.moved or tile_ends(low, n):
        return 0
    short = plan.trips == 1 and 0 < plan.extent < rows and parts * _share(plan.extent, parts) < rows
    return plan.extent if short else 0


def share(staged: Staged, parts: int) -> int:
    """Rows of a tile that each of `parts` workgroups of a cluster brings."""
    assert staged.tile is not None
    if not staged.rows:
        return staged.extents[staged.tile.other] // parts
    return _share(staged.rows, parts)


def _share(rows: int, parts: int) -> int:
    return rows if parts == 1 else -(-rows // (GROUP * parts)) * GROUP


def brought(staged: Staged, parts: int) -> int:
    """Bytes that a fill brings of a tile, in so many parts."""
    if not staged.rows:
        return staged.place.bytes
    assert staged.tile is not None
    return parts * share(staged, parts) * staged.tile.span * staged.tile.panels


def zero_rows(low: Lowering, staged: Staged, parts: int, slots: int, waves: int, buffer: str) -> None:
    """All threads of so many waves store zeros to the rows of a tile that no copy reaches, in all slots; a fence and a
    barrier are to follow."""
    b, tile = low.b, staged.tile
    assert tile is not None and staged.place.bytes == tile.panels * tile.panel
    first = parts * share(staged, parts)
    chunks, threads = (staged.extents[tile.other] - first) * tile.span // CHUNK, waves * low.kernel.wave_size
    low.note(f"rows {first} and on of {buffer}, which no copy brings, are zero from here on")
    thread, zeros = total(b, [scaled(b, b.wave(), low.kernel.wave_size), b.lane()]), b.zero(vector(CHUNK // 4))
    at = scaled(b, thread, CHUNK)
    for begin in range(0, chunks, threads):
        inside = None if begin + threads <= chunks else b.cmp("slt", thread, chunks - begin)
        for panel in range(tile.panels * slots):  # those of a slot follow those of the one before
            place = staged.offset + panel * tile.panel + first * tile.span + begin * CHUNK
            b.store_shared(total(b, [at, place]), zeros, bytes=CHUNK, mask=inside, buffer=buffer)


__all__ = ["array_rows", "brought", "share", "zero_rows"]
