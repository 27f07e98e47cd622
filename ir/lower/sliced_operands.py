"""Operands of multiply-adds that are read from shared memory as the product comes to them.

In: a product without a matrix instruction, some of whose operands have to change lanes. Out: a step that leaves them
in the wave's scratch buffer, one behind the other, and in their place promises (`fragment.Lazy`) that load 16 bytes
when the first multiply-add asks for them. Of 32 x 32 x 32 a lane multiplies 8 rows by 4 columns: both operands are 384
registers of it, of which 12 are multiplied at a time, and the sums are 32.

INVARIANT: nothing else is put into an operand's place until the product's last multiply-add. In straight code a
product's steps stand one behind the other, and all products and conversions share one place. In loops, whose schedule
moves steps, those of one region share a place beside it, which each fills when the product before has its sums
(`last_sums`). What a loop does not make is stored once, in front of it, in a place of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.ir.addresses.coordinates import lane_coordinate, scaled, total
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.ops import MADE_ANYWHERE
from wavedsl.ir.dtypes import DType
from wavedsl.ir.inference.matrix_count import k_issues, result_tiles
from wavedsl.ir.kernel.kernel_ir import B32, Value, vector
from wavedsl.ir.layouts.fragment import Fragment, Lazy
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.cells import cells_of, from_cell
from wavedsl.ir.lower.exchange import SCRATCH, order, own_scratch, route
from wavedsl.ir.lower.lower_values import zero_beyond
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context, Key, Step
from wavedsl.ir.target import VECTOR_BYTES

APART = 4
"""Elements by which a line of an operand's place is longer than the operand, so that lines begin in other banks."""


def place_sliced(low: Lowering, converted: int) -> int:
    """Places for such operands, by product, in what each wave has of the scratch buffer: from its start in straight
    code, in loops behind what conversions and other products take. Gives the bytes that all waves take together, of
    which conversions take `converted`."""
    waves = low.partition.waves
    share = converted // waves // 16 * 16
    loops = [region for region in low.graph.regions() if region.dim is not None]
    for region in low.graph.regions():
        if region.dim is None:
            share = max(share, _placed(low, region.nodes, 0))
    for region in loops:
        share = _placed(low, region.nodes, share)
    for region in loops:
        for n in region.nodes:
            for p in sliced_positions(low, n) if n.op == "mma" else ():
                if lasts(low, n, p):
                    low.room.sliced[n.id, p] = share
                    share += _place(low, n, p).bytes
    return max(converted, -(-waves * share // 128) * 128)


def _placed(low: Lowering, nodes: Sequence[Node], start: int) -> int:
    """Places from `start` on for what a region makes for its products, the same for each product. Gives the end."""
    end = start
    for n in nodes:
        at = start
        for p in sliced_positions(low, n) if n.op == "mma" else ():
            if not lasts(low, n, p):
                low.room.sliced[n.id, p] = at
                at += _place(low, n, p).bytes
        end = max(end, at)
    return end


def last_sums(low: Lowering, n: Node) -> tuple[Key, ...]:
    """The last sums of the product in a loop whose operands were in the place of those of `n`; none in straight code,
    or of the first."""
    region = low.region_of(n)
    if region.dim is None:
        return ()
    before = region.nodes[: region.nodes.index(n)]
    found = [x for x in before if x.op == "mma" and any(not lasts(low, x, p) for p in sliced_positions(low, x))]
    if not found:
        return ()
    plan = low.inference.mmas[found[-1].id]
    return tuple(("acc", found[-1].id, t, len(k_issues(plan)) - 1) for t in range(len(result_tiles(plan))))


def sliced_positions(low: Lowering, n: Node) -> tuple[int, ...]:
    """Which operands of a product are read so: those of many registers that no shuffle brings to their lanes."""
    return tuple(p for p in low.inference.mmas[n.id].positions if (n.id, p) in low.inference.wide and _moves(low, n, p))


def lasts(low: Lowering, n: Node, position: int) -> bool:
    """Whether such an operand is made in front of the loop that its product is in, and stored there."""
    region = low.region_of(n)
    return region.dim is not None and low.region_of(n.inputs[position]) is not region


def _layouts(low: Lowering, n: Node, position: int) -> tuple[Layout, Layout]:
    """How an operand lies, and how it is multiplied."""
    return low.inference.layouts[n.inputs[position].id], low.inference.demands[n.id, position]


def _moves(low: Lowering, n: Node, position: int) -> bool:
    x = n.inputs[position]
    if (n.id, position) not in low.inference.demands or x.op in MADE_ANYWHERE:
        return False
    return route(*_layouts(low, n, position), x.dtype)[0].kind == "shared memory"


@dataclass(frozen=True)
class _Place:
    """An operand's tile in shared memory: `dims` from the outermost inward, with the distance of neighbours along each
    in elements of `size` bytes. `padded`: more is read than lanes hold of the operand, which is 0."""

    dims: tuple[str, ...]
    pitch: Mapping[str, int]
    size: int
    bytes: int
    padded: bool

    def offsets(self, layout: Layout) -> list[int]:
        """Per element of a layout, where it lies from the place that the lane's own coordinates give."""
        axes = [(layout.dims.index(d), self.pitch[d]) for d in self.dims]
        return [sum(o[axis] * pitch for axis, pitch in axes) for o in layout.element_offsets()]

    def run(self, layout: Layout) -> int:
        """Elements of a lane, up to 16 bytes, that lie side by side."""
        inner, held = self.dims[-1], set(self.offsets(layout))
        steps = [*layout.lane_columns(inner), *(self.pitch[d] for d in self.dims[:-1])]
        count = VECTOR_BYTES // self.size
        while count > 1 and (any(x % count for x in steps) or any(x - x % count + j not in held for x in held
                                                                   for j in range(count))):  # fmt: skip
            count //= 2
        return count

    def lane(self, low: Lowering, layout: Layout) -> list[Any]:
        """What a lane's coordinates add to an address."""
        return [scaled(low.b, lane_coordinate(low.b, layout, d), self.pitch[d] * self.size) for d in self.dims]


def _place(low: Lowering, n: Node, position: int) -> _Place:
    """Where an operand lies: with its rows side by side where a lane multiplies several of one k, which one load then
    brings to neighbouring registers, without bank conflicts; else along K, if vectors are longer so."""
    source, wanted = _layouts(low, n, position)
    k = low.inference.mmas[n.id].k
    along_k = (*(d for d in source.dims if d != k), k)
    found = [_lines(low, dims, source, wanted, n.inputs[position].dtype) for dims in (along_k[::-1], along_k)]
    return max(found, key=lambda place: place.run(wanted))


def _lines(low: Lowering, dims: tuple[str, ...], source: Layout, wanted: Layout, dtype: DType) -> _Place:
    held, read = dict(source.extents), dict(wanted.extents)
    pitch, step = {}, 1
    for d in reversed(dims):
        pitch[d] = step
        step *= max(held[d], read[d]) + (APART if step == 1 and len(dims) > 1 else 0)
    size, padded = dtype.bits // 8, any(read[d] > held[d] for d in dims)
    unit = VECTOR_BYTES * (low.target.wave_size if padded else 1)
    return _Place(dims, pitch, size, -(-step * size // unit) * unit, padded)


def sliced_step(
    low: Lowering, n: Node, operands: Sequence[tuple[int, Key, bool]], k: str, behind: Sequence[Key] = ()
) -> Step:
    """Operands left in shared memory. `operands`: position, the key of the promise, whether to put zeros beyond the end
    of K; `behind`: what has to be known before their place may be filled."""

    def emit(context: Context) -> None:
        found: list[tuple[Key, Lazy]] = []
        order(low)
        places = [(_place(low, n, position), low.room.sliced[n.id, position]) for position, _, _ in operands]
        padded = [(place, at) for place, at in places if place.padded]
        for place, at in padded:
            _clear(low, place, at)
        if padded:
            order(low)
        for (position, key, neutral), (place, at) in zip(operands, places):
            value = low.value(n.inputs[position], context.env)
            if neutral:
                value = zero_beyond(low, value, k, context)
            _store(low, value, place, at)
            found.append((key, _promised(low, value, _layouts(low, n, position)[1], place, at)))
        order(low)
        for key, promise in found:
            context.env[key] = promise

    clocks = low.issue_clocks() * sum(low.layout(n.inputs[p]).elements_per_lane for p, _, _ in operands)
    resources, latency = low.valu_cost(clocks)
    uses = tuple(dict.fromkeys((*(key for p, _, _ in operands for key in low.keys(n.inputs[p])), *behind)))
    defs = tuple(key for _, key, _ in operands)
    return Step(f"operands of %{n.id}", "compute", resources, latency, uses, defs, emit, "", n.loc)


def _clear(low: Lowering, place: _Place, at: int) -> None:
    """Put zeros into a whole place, 16 bytes a lane."""
    b, step = low.b, VECTOR_BYTES * low.target.wave_size
    base, zeros = total(b, [own_scratch(low, at), scaled(b, b.lane(), VECTOR_BYTES)]), b.zero(vector(VECTOR_BYTES // 4))
    for first in range(0, place.bytes, step):
        b.store_shared(total(b, [base, first]), zeros, bytes=VECTOR_BYTES, buffer=SCRATCH)


def _store(low: Lowering, value: Fragment, place: _Place, at: int) -> None:
    """Put a value into its place, from byte `at` of the wave's scratch on."""
    b, layout = low.b, value.layout
    held: dict[int, int] = {}
    for i, offset in enumerate(place.offsets(layout)):
        held.setdefault(offset, i)
    base, count = total(b, [own_scratch(low, at), *place.lane(low, layout)]), place.run(layout)
    for first in sorted(x for x in held if x % count == 0):
        cells = [cells_of(b, value.word(b, held[first + j])) for j in range(count)]
        words = [w if w.type is B32 else b.bitcast(w, B32) for cell in cells for w in cell]
        data = b.vec(*words) if len(words) > 1 else words[0]
        b.store_shared(total(b, [base, first * place.size]), data, bytes=place.size * count, buffer=SCRATCH)


def _promised(low: Lowering, value: Fragment, wanted: Layout, place: _Place, at: int) -> Lazy:
    """What was stored, in the layout that it is multiplied in: loaded when an element is asked for, with those beside
    it."""
    b, offsets, count = low.b, place.offsets(wanted), place.run(wanted)
    base = total(b, [own_scratch(low, at), *place.lane(low, wanted)])
    words = place.size // 4
    here: dict[int, list[Value]] = {}

    def load(first: int) -> list[Value]:
        address = total(b, [base, first * place.size])
        got = b.load_shared(address, bytes=place.size * count, buffer=SCRATCH)
        parts = b.elements(got) if got.type.n > 1 else [got]
        cells = [tuple(parts[j * words : (j + 1) * words]) for j in range(count)]
        return [from_cell(b, cell, value.dtype) for cell in cells]

    def element(i: int) -> Value:
        first = offsets[i] - offsets[i] % count
        if first not in here:
            here[first] = load(first)
        return here[first][offsets[i] % count]

    return Lazy(wanted, value.dtype, element, b)


__all__ = ["last_sums", "lasts", "place_sliced", "sliced_positions", "sliced_step"]
