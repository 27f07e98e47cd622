"""Copies from global to shared memory whose lanes land one behind the other: which element each lane must fetch.

In: a place, how many bytes a lane moves, how many waves there are. Out: a `DirectCopy`, or a CompileError that says why
the place cannot be filled so; and the kernel IR of one copy's coordinates and shared address.

The hardware writes what a wave fetches as one run of shared memory, lane by lane. So the tile is cut into runs, each
wave fills the same number of them, and the place is turned around: from a byte of the run to the element that belongs
there. Where the place is swizzled that is a permutation of the addresses in global memory, where it is padded the runs
lie within rows.

Invariant: run `c` starts at `run_byte(c)`, and lane l of it fetches the element whose place is l * bytes behind that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from wavedsl.ir.addresses.access import Columns
from wavedsl.ir.addresses.coordinates import scaled
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.bit_columns import combine_columns
from wavedsl.ir.layouts.bits import Bits, bit
from wavedsl.ir.layouts.place import Place
from wavedsl.ir.layouts.shared_search import dma_source
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

SHARED_STEPS = 3072
"""Bytes of the immediate offset that copies spend to share their base: an immediate adds to both addresses, and what is
left of its 4 KiB is for the loop's own steps."""


@dataclass(frozen=True)
class DirectCopy:
    """How `waves` fill a place, each with `count` runs of `lanes * bytes` bytes, `bytes` per lane.

    `lane`: per dimension what each bit of the lane's number XORs into the coordinate. `runs`: the same of the run's
    number, or None where the run's number is multiplied by `step` and added. `per_row` runs lie in a row, and rows are
    `pitch` bytes apart (0: everything is dense).
    """

    bytes: int
    lanes: int
    waves: int
    count: int
    lane: Mapping[str, tuple[int, ...]]
    runs: Mapping[str, tuple[int, ...]] | None
    step: Mapping[str, int]
    per_row: int = 0
    pitch: int = 0

    @property
    def run(self) -> int:
        """Bytes of a run."""
        return self.lanes * self.bytes

    @property
    def together(self) -> bool:
        """Whether a wave's runs follow each other; else the waves take turns."""
        return not self.count & (self.count - 1)

    @property
    def shared(self) -> int:
        """How many runs of a wave, one behind the other, share the base of their shared address."""
        if not self.together or self.pitch:
            return 1
        n = 1
        while 2 * n <= self.count and (2 * n - 1) * self.run <= SHARED_STEPS:
            n *= 2
        return n

    @property
    def continued(self) -> bool:
        """Whether the wave's number continues the lane's in a thread's coordinate, so that neither is cut out of it."""
        if self.runs is not None or self.waves & (self.waves - 1) or (self.together and self.count > 1):
            return False
        return all(step == _union(self.lane[d]) + (self.lane_step(d) or step) for d, step in self.step.items())

    def lane_step(self, d: str) -> int:
        """The least that a lane bit adds to a coordinate."""
        return min((c & -c for c in self.lane[d] if c), default=0)

    def number(self, wave: int, i: int) -> int:
        """The number of a wave's i-th run."""
        return wave * self.count + i if self.together else i * self.waves + wave

    def run_byte(self, c: int) -> int:
        """First byte of run c in the slot."""
        if not self.pitch:
            return c * self.run
        return c // self.per_row * self.pitch + c % self.per_row * self.run

    def source(self, c: int, lane: int) -> dict[str, int]:
        """The element that a lane of run c fetches first: the definition, for checks."""
        out = {}
        for d, columns in self.lane.items():
            at = 0
            for i, x in enumerate(columns):
                at ^= x if lane >> i & 1 else 0
            for i, x in enumerate(self.runs[d] if self.runs is not None else ()):
                at ^= x if c >> i & 1 else 0
            out[d] = at + self.step.get(d, 0) * c
        return out

    # ------------------------------------------------------------------------------------------------------- kernel IR

    def wave_parts(self, b: Builder, i: int) -> tuple[dict[str, Any], dict[str, int]]:
        """Of the i-th run of this wave: (what the wave's number adds to each coordinate, what is added besides)."""
        first, stride = (i, self.count) if self.together else (i * self.waves, 1)
        wave: dict[str, Any] = {}
        fixed: dict[str, int] = {}
        for d, columns in self.lane.items():
            lanes = _union(columns)
            if self.runs is None:
                step = self.step.get(d, 0)
                fixed[d] = first * step
                wave[d] = scaled(b, b.wave(), stride * step) if self.waves > 1 and not self.continued else 0
                continue
            mine = self._wave_columns(d)
            apart = _xor(self.runs[d], first) & ~lanes
            moved = tuple(c & ~lanes for c in mine)
            part = combine_columns(b, moved, b.wave(), xor=True) if any(moved) else 0
            if apart & _union(moved):  # the wave flips bits that the run's number has set
                part = b.xor(part, apart)
            else:
                fixed[d] = apart
            wave[d] = part
        return wave, fixed

    def lane_parts(self, b: Builder, i: int) -> tuple[dict[str, Any], Columns]:
        """What a lane adds to each coordinate, as values and as columns: bits that runs and waves flip among them."""
        first = i if self.together else i * self.waves
        flips: dict[str, int] = {}
        columns: dict[str, tuple[int, ...]] = {}
        by_wave = False
        for d, mine in self.lane.items():
            lanes = _union(mine)
            waves = tuple(c & lanes for c in self._wave_columns(d)) if self.runs is not None else ()
            if self.continued:
                waves = tuple(self.step.get(d, 0) << w for w in range(self.waves.bit_length() - 1))
            by_wave |= any(waves)
            columns[d] = (*mine, *waves)
            flips[d] = _xor(self.runs[d], first) & lanes if self.runs is not None else 0
        source = b.tid() if by_wave else b.lane()
        if not by_wave:
            columns = {d: self.lane[d] for d in columns}
        parts: dict[str, Any] = {}
        for d, found in columns.items():
            part = combine_columns(b, found, source, xor=True)
            parts[d] = part ^ flips[d] if isinstance(part, int) else b.xor(part, flips[d]) if flips[d] else part
        return parts, Columns(source, columns, flips)

    def _wave_columns(self, d: str) -> tuple[int, ...]:
        """What each bit of the wave's number XORs into a coordinate."""
        assert self.runs is not None
        low = (self.count if self.together else 1).bit_length() - 1
        return self.runs[d][low : low + self.waves.bit_length() - 1]

    def base(self, b: Builder, i: int) -> tuple[Value | int, int]:
        """(uniform byte in the slot, constant) at which the i-th run of this wave starts."""
        if not self.together:
            own = scaled(b, b.wave(), self.run) if self.waves > 1 else 0
            return own, i * self.waves * self.run
        if self.waves == 1:
            return 0, self.run_byte(i)
        return scaled(b, b.wave(), self.run_byte(self.count)), self.run_byte(i)


def _union(columns: tuple[int, ...]) -> int:
    out = 0
    for c in columns:
        out |= c
    return out


def _xor(columns: tuple[int, ...], number: int) -> int:
    out = 0
    for i, c in enumerate(columns):
        if number >> i & 1:
            out ^= c
    return out


def plan_direct(place: Place, bytes: int, lanes: int, waves: int) -> DirectCopy:
    """The copies that fill a place. Raises CompileError, with the reason, where they cannot."""
    es = place.elsize
    extents = place.extents
    size = es
    for n in extents.values():
        size *= n
    run = lanes * bytes
    if size % (run * waves):
        raise CompileError(
            f"{waves} waves of {lanes} lanes copy {run * waves} bytes at once, which does not divide the tile's {size}"
        )
    count = size // (run * waves)
    padded = _padded(place, run)
    if padded is not None:
        row, inner, per_row, pitch = padded
        if count & (count - 1) or count % per_row:
            raise CompileError("the rows of a padded place are shared by waves")
        lane = {d: (0,) * (lanes.bit_length() - 1) for d in extents}
        lane[inner] = tuple(bytes // es << i for i in range(lanes.bit_length() - 1))
        width = (waves * count - 1).bit_length()
        across = per_row.bit_length() - 1
        runs = dict.fromkeys(extents, (0,) * width)
        runs[inner] = tuple(run // es << i if i < across else 0 for i in range(width))
        runs[row] = tuple(1 << i - across if i >= across else 0 for i in range(width))
        return _simplest(DirectCopy(bytes, lanes, waves, count, lane, runs, {}, per_row, pitch))
    inside = es.bit_length() - 1
    held = bytes.bit_length() - 1
    width = (waves * count - 1).bit_length()
    ins = [
        *(bit("u", i) for i in range(held)),
        *(bit("l", i) for i in range(lanes.bit_length() - 1)),
        *(bit("c", i) for i in range(width)),
    ]
    chunk = Bits(ins, (bit("a", i) for i in range(len(ins))), (1 << i for i in range(len(ins))))
    found = dma_source(place, chunk)
    at, inner = held, place.dims[-1]
    columns = [_coordinates(found, i, extents) for i in range(len(ins))]
    for i, c in enumerate(columns):  # what a lane moves must lie together in the array
        want = {d: 1 << i - inside if d == inner and i >= inside else 0 for d in extents}
        if c != want if i < held else c[inner] % (bytes // es):
            raise CompileError(f"{place} does not keep {bytes} bytes together")
    across = lanes.bit_length() - 1
    lane = {d: tuple(c[d] for c in columns[at : at + across]) for d in extents}
    runs = {d: tuple(c[d] for c in columns[at + across :]) for d in extents}
    return _simplest(DirectCopy(bytes, lanes, waves, count, lane, runs, {}))


def _coordinates(found: Bits, i: int, extents: Mapping[str, int]) -> dict[str, int]:
    """Per dimension the coordinate that input bit i drives."""
    return {d: found.coordinate_columns(d)[i] if d in found.dims else 0 for d in extents}


def _padded(place: Place, run: int) -> tuple[str, str, int, int] | None:
    """(rows' dimension, contiguous one, runs per row, bytes between rows) of rows with a gap behind each; None for
    other places."""
    if place.xor or len(place.pieces) != 2 or len(place.dims) != 2:
        return None
    outer, inner = place.pieces
    row = inner.extent * inner.stride
    if inner.stride != place.elsize or outer.stride == row:
        return None
    if row % run or row // run & (row // run - 1):
        raise CompileError(f"rows of {row} bytes with a gap behind each, and copies fill {run} bytes without gaps")
    return outer.dim, inner.dim, row // run, outer.stride


def _simplest(copy: DirectCopy) -> DirectCopy:
    """The same with the run's number as a factor where runs are whole steps of one dimension; raises CompileError where
    the number's bits are needed and the waves have none."""
    assert copy.runs is not None
    moving = [d for d, columns in copy.runs.items() if any(columns)]
    if not moving:
        return DirectCopy(**{**vars(copy), "runs": None, "step": {}})
    d = moving[0]
    step = copy.runs[d][0]
    # A step adds to what lanes move; where they share bits (a swizzle flips a lane's by the run's) only XOR is right.
    linear = len(moving) == 1 and step & (step - 1) == 0 and step > _union(copy.lane[d])
    if linear and all(c == step << i for i, c in enumerate(copy.runs[d])):
        return DirectCopy(**{**vars(copy), "runs": None, "step": {d: step}})
    if copy.waves & (copy.waves - 1):
        raise CompileError(f"{copy.waves} waves take turns in a place where only powers of two can")
    return copy


# ------------------------------------------------------------------------------------------------- whether it pays


LOAD_ISSUES = 4
"""Issue slots that a load is worth: each has its address, its wait and its place in the queue."""


def linear_widths(target: Target, contiguous: int, es: int, size: int, waves: int) -> list[int]:
    """Bytes per lane with which a tile of `size` bytes can be cut into whole runs for every wave, widest first, where
    `contiguous` bytes lie together in the array."""
    fits = (n for n in target.copy_async if es <= n <= contiguous and size % (n * target.wave_size * waves) == 0)
    return sorted(fits, reverse=True)


def filled_directly(bytes: int, target: Target, partition: Partition) -> Callable[[Place], bool]:
    """Whether copies of so many bytes per lane can fill a place."""

    def fits(place: Place) -> bool:
        try:
            plan_direct(place, bytes, target.wave_size, partition.waves)
        except CompileError:  # says why, but here it only means: look for another place
            return False
        return True

    return fits


SETUP = 4
"""Issue slots that direct copies need once: the wave's part of the shared address, and the swizzle of the source."""


def direct_clocks(target: Target, copy: DirectCopy, contiguous: int, trips: int) -> float:
    """Clocks that a workgroup's direct copies cost more in `trips` trips than copies through registers of `contiguous`
    bytes per lane, whose stores are priced with the place.

    Both write shared memory. Direct ones spare the issue slot of the store; a base is set for every `shared` of them,
    and where they are narrower there are more of them.
    """
    write = target.cost("store.shared", copy.bytes)
    issue = target.clock_unit * -(-copy.waves // target.simds)
    through = copy.count * copy.bytes / contiguous
    bases = copy.count / copy.shared
    slots = LOAD_ISSUES * (copy.count - through) + bases - through
    return trips * (copy.waves * copy.count * write.cycles + issue * slots) + issue * SETUP


def uneven(target: Target, extents: Mapping[str, int], elsize: int, waves: int) -> str:
    """Why not even the narrowest direct copies cut a tile into whole runs for every wave; empty where they do."""
    size = prod(extents.values()) * elsize
    least = min(target.copy_async) * target.wave_size * waves
    if size % least == 0:
        return ""
    return f"a tile of {tile_text(extents)} has {size} bytes, and {waves} waves copy {least} at once"


def tile_text(extents: Mapping[str, int]) -> str:
    return " x ".join(f"{d}={n}" for d, n in extents.items())


def cannot(reason: str) -> str:
    """What the error of a tile says that cannot be copied directly although the user asks for it."""
    return f"direct_to_shared=True: its tiles cannot be copied without passing through registers: {reason}"


def not_direct(
    target: Target, info: ArrayInfo, extents: Mapping[str, int], contiguous: int, waves: int, error: Exception | None
) -> ConstraintError:
    """Why a tile cannot be copied without passing through registers."""
    widths = target.copy_async
    if not widths:
        reason = f"{target.name} has no such copies"
    elif contiguous < min(widths):
        reason = (
            f"{contiguous} bytes lie together and aligned in the array, and {target.name} copies {min(widths)} at least"
        )
    else:
        reason = uneven(target, extents, info.elsize, waves)
    if not reason:
        turned = f"a tile of {tile_text(extents)} is transposed on the way"
        reason = error.message if isinstance(error, CompileError) else turned
    return ConstraintError(cannot(reason), hint="leave direct_to_shared open, or change the tile")
