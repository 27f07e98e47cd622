"""Which workgroup takes which output tile where each workgroup takes one: neighbours in time, and on one die.

In: tiles along the grid's axes, what a workgroup reads of its operands per step, the chip. Out: a `Numbering`, and its
arithmetic on the workgroup's number.

Two permutations make it up. Chips of several dies (XCDs), each with an L2 cache of its own, deal workgroups to them in
turn: number n goes to die n mod dies (AMD, *CDNA 3 white paper*; HipKittens' chiplet transform). So die d's i-th
workgroup takes the i-th tile of the d-th run of neighbours (`dealt`); any number of tiles is cut in runs that differ
by one at most. Along the runs, `tile_order` makes blocks of tiles that share operands.

(ROOFLINE) The compiler's own choice: the workgroups that run at once on a die, one per compute unit, read every tile
of an operand once from beyond their L2; where that takes longer than their products, the numbering with the least
traffic is taken. A grid that fits the chip at once, or whose products take longer, keeps the plain order, which costs
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled
from wavedsl.ir.grid.tile_order import GROUPS
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

GROUP = 8
"""Tiles along the first grid axis that come one after the other where sizes are not known."""


@dataclass(frozen=True)
class Numbering:
    """`group`: tiles along the first axis in a block; `dies` among which workgroups are dealt."""

    group: int
    dies: int = 1
    why: str = ""

    def describe(self) -> str:
        """One line for reports."""
        runs = f", neighbours on one of {self.dies} dies" if self.dies > 1 else ""
        return f"workgroups: blocks of {self.group} tiles along the first grid axis{runs} ({self.why})"


@dataclass(frozen=True)
class Operand:
    """What a workgroup reads of one array per step: bytes, and on which grid axes they depend."""

    bytes: int
    axes: tuple[int, ...]


def dealt(b: Builder, number: Any, total: Any, dies: int) -> Any:
    """The tile of workgroup `number` of `total` so that a die's workgroups take neighbours."""
    if dies == 1:
        return number
    die, turn = b.urem(number, dies), b.udiv(number, dies)
    whole: Any = total // dies if isinstance(total, int) else b.udiv(total, dies)
    longer: Any = total % dies if isinstance(total, int) else b.urem(total, dies)
    out = b.add(scaled(b, die, whole), turn)
    if isinstance(longer, int) and longer == 0:
        return out
    return b.add(out, b.min_s(die, longer))  # the first `longer` runs have one tile more


def dealt_number(number: int, total: int, dies: int) -> int:
    """`dealt` of numbers."""
    die, turn = number % dies, number // dies
    return die * (total // dies) + min(die, total % dies) + turn


def tile_of(numbering: Numbering | None, number: int, counts: Sequence[int]) -> tuple[int, int]:
    """The tile along both axes of a plane that a workgroup takes; None: the plain order."""
    first, second = counts[0], counts[1]
    if numbering is None:
        return number % first, number // first
    number = dealt_number(number, first * second, numbering.dies)
    if second == 1:
        return number, 0
    block, inside = divmod(number, second * numbering.group)
    start = block * numbering.group
    height = min(first - start, numbering.group)
    return start + inside % height, inside // height


def traffic(
    numbering: Numbering | None, counts: Sequence[int], operands: Sequence[Operand], dies: int, units: int
) -> int:
    """Bytes per step that cross from memory to one die: every tile of an operand once among the workgroups of its
    first wave, one on each compute unit."""
    total = counts[0] * counts[1]
    running = [tile_of(numbering, n, counts) for n in range(0, total, dies)][: units // dies]
    out = 0
    for operand in operands:
        out += operand.bytes * len({tuple(tile[a] for a in operand.axes if a < 2) for tile in running})
    return out


def choose_numbering(
    counts: Sequence[int | None], operands: Sequence[Operand], clocks: int, target: Target, asked: bool | None
) -> Numbering | None:
    """The numbering of a grid of `counts` tiles, None for the plain one. `clocks`: what the products of a step take.

    `asked`: what the user fixed. Left to the compiler, the rule is (ROOFLINE); extents that only a launch knows keep
    the plain order.
    """
    if asked is False:
        return None
    known = [n for n in counts[:2] if n is not None]
    if asked and (len(known) < 2 or target.dies == 1):
        return Numbering(GROUP, target.dies, "as asked for")
    if len(known) < 2 or target.dies == 1 or not clocks or prod(known) <= target.units:
        return Numbering(GROUP, target.dies, "as asked for") if asked else None
    options = [Numbering(g, target.dies) for g in GROUPS]
    bytes_of = {x: traffic(x, known, operands, target.dies, target.units) for x in options}
    best = min(options, key=lambda x: (bytes_of[x], x.group))
    if asked:
        return Numbering(best.group, best.dies, "as asked for")
    plain = traffic(None, known, operands, target.dies, target.units)
    needed = plain * target.dies / target.memory_rate
    if needed <= clocks or bytes_of[best] >= plain:
        return None
    less = 100 - 100 * bytes_of[best] // plain
    why = f"memory would need {needed:.0f} clocks for {clocks} of products; this asks {less} % less of it"
    return Numbering(best.group, best.dies, why)
