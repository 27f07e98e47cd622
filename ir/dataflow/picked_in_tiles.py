"""Elements that are picked along a dimension which is spread over tiles: what is refused, and what stays in its tile.

In: an `extract` or `shuffle`, and how long tiles are. Out: whether all that it picks lies in the tile of who picks it;
the error where it does not. `index ^ mask` stays in blocks of as many elements as the mask's bits count, so it may be
used along tiles that are whole blocks: what it means does not depend on how the dimension is cut. The lowering and the
evaluator ask here, so that both answer, or both refuse.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.dataflow.graph import Node, xor_of_index
from wavedsl.ir.errors import CompileError


def stays_in_tiles(n: Node, tile: int) -> bool:
    """Whether a shuffle takes every element from the tile that it lies in."""
    mask = xor_of_index(n.inputs[1], n.attrs["dim"]) if n.op == "shuffle" else None
    return mask is not None and tile % (1 << mask.bit_length()) == 0


def elsewhere(n: Node, dim: Any, tile: int, known: bool) -> CompileError:
    """What is said of elements along `dim` that may lie in other tiles. `known`: whether the extent is one, here."""
    what = "is spread over workgroups or trips" if known else "is known at run time only"
    more = ""
    if n.op == "extract" and tile == 1:
        more = f"; the only element of a tile of 1: read it as a[wd.tile_start({dim})], or wd.sum(x, dim={dim})"
    elif n.op == "extract":
        more = f"; one element of a tile: wd.sum(wd.where(wd.index({dim}) == i, x, 0), dim={dim})"
    elif (mask := xor_of_index(n.inputs[1], n.attrs["dim"])) is not None:
        block = 1 << mask.bit_length()
        more = f"; with tiles of {dim} that are multiples of {block}, where these are {tile}, none leaves its tile"
    else:
        more = f"; wd.index({dim}) ^ mask, of a number below the tile of {dim}, leaves no tile"
    return CompileError(
        f"{n.op} along {dim}, which {what}", n.loc,
        f"let a workgroup hold {dim} as a whole, or read the elements through an IndexMapping{more}",
    )  # fmt: skip


__all__ = ["elsewhere", "stays_in_tiles"]
