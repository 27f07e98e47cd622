"""Ways to compute attention that `gpu_attention` times: tiles, waves and clusters, forward and of the gradients.

In: a target, keys, a head size, whether it is causal. Out: choices, the example's own first, and the kernels that they
name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import wavedsl as wd

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "examples")]

import attention as forward
import attention_backward as backward

SIZES = (64, 128, 256)
"""Head sizes."""
TOKENS = 16384
WIDTH = 2048
"""Queries of all sequences, and heads times their size, of what is timed: as published measurements have them."""


def flops(b: int, h: int, n: int, d: int, causal: bool, gradients: bool) -> int:
    """FLOP of the products that are needed: two of n x n x d forward, five for the gradients."""
    pairs = n * (n + 1) // 2 if causal else n * n
    return (10 if gradients else 4) * b * h * d * pairs


def extents(n: int, d: int) -> dict[Any, int]:
    """What is timed at so many keys and this head size, by symbol."""
    heads = max(1, WIDTH // d)
    found = {forward.B: max(1, TOKENS // n), forward.M: n, forward.N: n, forward.D: d, forward.E: d}
    return found | {forward.H: heads, forward.G: heads}


def kernels_of(target: str, n: int, d: int, causal: bool, gradients: bool) -> Sequence[Any]:
    """The kernels of the first candidate, in order."""
    variant = forward.Variant(wd.bf16, causal=causal, lse=True)
    if gradients:
        return gradient_kernels(variant, gradient_candidates(target, d, causal)[0])
    return [forward_kernel(variant, candidates(target, n, d, causal)[0])]


TILES = {
    64: (((192, 96), 3), ((192, 128), 3), ((256, 64), 4)),
    128: (((128, 96), 2), ((128, 128), 2)),
    256: (((128, 64), 2), ((128, 80), 2), ((128, 48), 2)),
}
"""(queries, keys) and waves to try by head size, beside the example's: those that do not spill (`--compile`)."""


@dataclass(frozen=True)
class Choice:
    """Queries and keys of a tile, waves along the queries, workgroups of a cluster (0: the compiler's choice), whether
    waves start products in turn (None: the compiler's choice)."""

    tile: tuple[int, int]
    waves: int
    cluster: int = 0
    in_turn: bool | None = None

    def __str__(self) -> str:
        rows, keys = self.tile
        said = f"{rows}x{keys}, {self.waves} waves" + (f", cluster {self.cluster}" if self.cluster else "")
        return said if self.in_turn is None else f"{said}, {'' if self.in_turn else 'not '}in turn"


def candidates(target: str, n: int, d: int, causal: bool) -> list[Choice]:
    """Ways of the forward pass to try, the example's own first: blocks of other sizes and, on sm_90a, where all
    workgroups run the same trips with and without clusters; where three or four warpgroups share a tile, products in
    turn, which the replay has against itself and FlashAttention-3 for it, and among two of the example's own not."""
    own = forward.tile_of(target, d, causal)
    if target != "sm_90a":
        return [Choice(*own)]
    found = []
    for tile, waves in (own, *(other for other in TILES.get(d, ()) if other != own)):
        lone = causal or tile[0] != own[0][0]
        clusters = (0,) if lone or -(-n // tile[0]) % 2 else (0, 2)
        found += [Choice(tile, waves, cluster) for cluster in clusters]
        if waves > 2 or (d == 128 and tile == own[0]):
            found.append(Choice(tile, waves, in_turn=waves > 2))
    return found



QUERIES = {64: {False: (96,), True: (80,)}}
"""By head size and causality, queries of a trip to try where dQ is added up by atomics, beside the example's: those
that do not spill (`--compile`)."""


@dataclass(frozen=True)
class Way:
    """The example's tiles for the gradients; whether dQ has a kernel of its own, or is added up by atomics and with
    what schedule."""

    tiles: backward.Tiles
    deterministic: bool
    schedule: wd.Schedule | None = None

    def __str__(self) -> str:
        tiles = self.tiles
        how = "deterministic" if self.deterministic else "atomics"
        said = f"{how}, {tiles.rows} keys by {tiles.queries or tiles.step} queries, {tiles.waves} waves"
        return f"{said}, {self.schedule}" if self.schedule else said


LANES = wd.Schedule(bulk_atomics=False)
"""dQ is added up from registers, not by bulk reductions."""
ONE_TILE = wd.Schedule(persistent=False)
"""A workgroup has one tile: the chip deals tiles of unequal work."""


def gradient_candidates(target: str, d: int, causal: bool) -> list[Way]:
    """Ways of the gradients to try, the example's own first."""
    tiles = backward.tile_for(forward.Variant(wd.bf16, causal=causal, lse=True), target, d)
    ways = [Way(tiles, True)]
    if target == "sm_90a" and tiles.apart:
        return [*ways, Way(replace(tiles, step=32), True)]  # deeper rings, but scores wait for shared memory
    if target == "sm_90a":
        schedules = (None, ONE_TILE) if causal else (None, LANES)
        ways += [Way(tiles, False, schedule) for schedule in schedules]
        ways += [Way(replace(tiles, queries=n), False) for n in QUERIES.get(d, {}).get(causal, ())]
    return ways


def gradient_kernels(variant: Any, way: Way) -> Sequence[Any]:
    return backward.kernels(variant, way.tiles, deterministic=way.deterministic, schedule=way.schedule)


def forward_kernel(variant: Any, choice: Choice) -> Any:
    asked: dict[str, Any] = {"cluster": (choice.cluster, 1, 1)} if choice.cluster else {}
    if choice.in_turn is not None:
        asked["products_in_turn"] = choice.in_turn
    schedule = wd.Schedule(**asked) if asked else None
    return forward.attention_kernel(variant, tile=choice.tile, waves=choice.waves, schedule=schedule)
