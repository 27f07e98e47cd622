"""What a strategy asks of the caches, and how many bytes it keeps on their way.

In: a product's shape, its tiles, a chip. Out: hints for A, B and C; stages of the pipeline and the distance of
prefetching into L2 that keep as many bytes in flight as the chip's bandwidth times its latency needs.

Hints are given where more passes through the L2 cache than it holds: what one workgroup alone reads, and what is
written, leaves first, so that what others read again stays. Where everything fits, nothing is asked for: the next
launch may want what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.strategies.kernels import UNASKED, Asked, Form
from wavedsl.targets import get_target

KEPT_SHARE = 0.5
"""Share of L2 that what is asked to stay may take: the rest is for what passes through."""
SHARED_SHARE = 0.75
"""Share of a unit's shared memory that tiles take: the rest is for padding."""
MOST_STAGES = 8
MOST_AHEAD = 16
"""K steps that prefetching runs ahead at most."""


def hints(form: Form, sizes: Sequence[int], tiles: Sequence[int], chip: Product) -> Asked:
    """Hints for a product of M, N, K with output tiles of `tiles[0]` x `tiles[1]` elements."""
    m, n, k = sizes
    a, b = m * k * form.dtype.bits // 8, k * n * form.dtype.bits // 8
    if a + b + m * n * form.out.bits // 8 <= chip.l2_bytes:
        return UNASKED
    times = ceil(n / tiles[1]), ceil(m / tiles[0])
    found: list[str | None] = []
    for size, readers in zip((a, b), times):
        if readers == 1:
            found.append("stream")
        else:
            found.append("keep" if size <= KEPT_SHARE * chip.l2_bytes else None)
    if found == ["keep", "keep"]:
        found = [None, None]  # nothing but the result passes by
    return Asked(found[0], found[1], "stream")


def needed_bytes(chip: Product) -> float:
    """Bytes that each unit must have in flight for the chip's bandwidth: its share of bandwidth times latency."""
    return chip.hbm * chip.latency / chip.units


def stage_bytes(form: Form, cut: Sequence[int]) -> int:
    """Bytes of one step's tiles of A and B."""
    return max(1, (cut[0] + cut[1]) * cut[2] * form.dtype.bits // 8)


def most_stages(form: Form, cut: Sequence[int], chip: Product) -> int:
    """Stages that the tiles' share of a unit's shared memory holds, at least 1."""
    return max(1, int(get_target(chip.target).shared_bytes * SHARED_SHARE) // stage_bytes(form, cut))


def deep_enough(form: Form, cut: tuple[int, int, int], groups: int, k: int, chip: Product) -> tuple[int, int, int]:
    """The tiles `cut` with more of K per step where copies run one step ahead, through registers: as much as brings
    what is in flight to what the chip needs, while two slots fit shared memory and K is longer."""
    if runs_ahead(chip):
        return cut
    share = max(1, ceil(groups / chip.units))
    while cut[2] < k:
        wider = (cut[0], cut[1], 2 * cut[2])
        resident = max(1, min(share, most_stages(form, cut, chip) // 2))
        if resident * stage_bytes(form, cut) >= needed_bytes(chip) or most_stages(form, wider, chip) < 2:
            break
        cut = wider
    return cut


def runs_ahead(chip: Product) -> bool:
    """Whether copies to shared memory run as far ahead as the ring has slots; else one step, through registers."""
    target = get_target(chip.target)
    return bool(target.copy_async) and not target.copy_linear


@dataclass(frozen=True)
class Depth:
    """How far a pipeline runs ahead. `prefetch`: K steps by which tiles are brought into L2, 0 for not at all;
    `in_flight`: bytes per unit that copies and prefetches keep on their way."""

    stages: int
    prefetch: int
    in_flight: int


def depth(
    form: Form, cut: Sequence[int], groups: int, steps: int, stages: int, ahead: int, chip: Product
) -> Depth:  # fmt: skip
    """Stages and prefetching of a pipelined loop of `steps` over tiles `cut` of M, N and K in `groups` workgroups.

    `stages` are taken at least, as far as shared memory holds them; more where that brings what is in flight to what
    the chip needs. What is missing then, and the distance `ahead` that the roofline recommends, is prefetched where the
    chip has an instruction for it.
    """
    target = get_target(chip.target)
    stage, most = stage_bytes(form, cut), most_stages(form, cut, chip)
    need = needed_bytes(chip)
    share = max(1, ceil(groups / chip.units))  # workgroups that a unit has

    deep = runs_ahead(chip)

    def ahead_of(stages: int) -> int:
        """Bytes per unit that the copies of this many stages keep in flight."""
        return max(1, min(share, most // stages)) * (max(1, stages - 1) if deep else 1) * stage

    least = max(1, min(stages, most))
    choice = range(least, max(least, min(most, MOST_STAGES, steps)) + 1) if deep else (least,)
    found = next((s for s in choice if ahead_of(s) >= need), max(choice, key=lambda s: (ahead_of(s), -s)))
    resident = max(1, min(share, most // found))
    wanted = max(ahead, ceil(need / (resident * stage)))
    distance = min(wanted, MOST_AHEAD, steps - 1) if target.prefetches else 0
    if distance < found:  # the ring brings these already
        distance = 0
    return Depth(found, distance, max(ahead_of(found), resident * stage * distance))


__all__ = ["Depth", "deep_enough", "depth", "hints", "most_stages", "needed_bytes"]
