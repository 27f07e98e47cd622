"""A read through shared memory as it is planned: the tile, its copy and its fragment loads.

The tile is what all waves of the workgroup need together. It is cut into vectors along the array's contiguous
dimension; thread t copies vectors t, t + threads, ... so that neighbouring lanes touch neighbouring bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod
from typing import Any

from wavedsl.ir.addresses.direct_copy import DirectCopy
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.matrix_tile import MatrixTile
from wavedsl.ir.layouts.place import Place
from wavedsl.ir.layouts.plan_addresses import AddressPlan
from wavedsl.ir.layouts.plan_load import LoadPlan
from wavedsl.ir.layouts.shared_search import PlaceChoice
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import dim_name


@dataclass
class Staged:
    """One staged read. `extents`: elements of the shared tile per dimension, slowest first in memory order, the array's
    contiguous dimension last; `vector` elements per copy; `count` copies per thread."""

    node: Node
    info: ArrayInfo
    layout: Layout
    extents: dict[str, int]
    vector: int
    threads: int
    asynchronous: bool
    place: Place
    loads: LoadPlan | None
    """How fragments are loaded; None for a tile that only matrix instructions read."""
    addresses: AddressPlan | None
    groups: tuple[tuple[int, ...], ...]
    piece: int
    """Elements of a vector that are neighbours in shared memory: they are stored together."""
    offset: int = 0
    """Byte of slot 0 in shared memory."""
    cost: Any = None
    tile: MatrixTile | None = None
    """How matrix instructions see the tile, where they read it themselves."""
    direct: DirectCopy | None = None
    """How waves fill the place with copies that land lane by lane, where they do."""
    deep: int = 1
    """Vectors of a thread that are neighbours across the array's rows: transposed in registers, so that a piece is
    `piece` elements of a column."""
    clocks: float = 0.0
    """What its copies and fragment loads keep shared memory and lanes busy for, over all trips; loads from memory are
    not counted."""
    copied_by: Node | None = None
    """The read whose copy brings the elements of this one, which are the same; None: its own."""
    rows: int = 0
    """Rows across `fast` that copies bring of a tile that has more (`short_tiles`); 0: all."""
    across: int = 0
    """Vectors that neighbouring lanes copy side by side before they go on to the next row; 0: a whole row of them."""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def units(self) -> int:
        """Vectors in the tile."""
        return prod(self.extents.values()) // self.vector

    @property
    def count(self) -> int:
        return -(-self.units // self.threads)

    def shared_clocks(self, kind: str, steps: int) -> int:
        """Clocks that each of so many steps of a wave, which read or write the whole tile, keeps shared memory busy,
        bank conflicts counted; 0: not known."""
        found = self.cost.accesses if isinstance(self.cost, PlaceChoice) else ()
        return next((-(-a.worst // steps) for a in found if a.access.kind == kind), 0)


def tile_extents(layout: Layout, dims: Sequence[str], plans: Mapping[str, DimPlan]) -> dict[str, int]:
    """Elements per dimension that the waves of a workgroup touch together, padding of their layouts included."""
    sizes = dict(layout.extents)
    return {d: (plans[d].waves - 1) * plans[d].wave + sizes[d] for d in dims}


def copy_vector(info: ArrayInfo, extents: Mapping[str, int], plans: Mapping[str, DimPlan]) -> int:
    """Elements per copy: a power of two up to 16 bytes that alignment, strides, tile and extent all allow."""
    c = info.contiguous()
    if c is None or dim_name(info.dims[c]) not in extents:
        return 1
    d, es = dim_name(info.dims[c]), info.elsize
    limit = gcd(gcd(min(info.align, 16) // es, extents[d]), info.start_multiple(c))
    plan = plans[d]
    if plan.role in ("workgroup", "loop"):
        limit = gcd(limit, plan.tile)
    if plan.ragged or extents[d] > plan.tile or d in info.cut:
        limit = gcd(limit, info.extent_multiple(c))
    for i in range(len(info.dims)):
        if i != c:
            step = info.stride_multiple(i)
            limit = gcd(limit, step // es) if step % es == 0 else 1
    return max(1, limit & -limit)
