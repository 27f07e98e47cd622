"""Lowering of `mma` to asynchronous matrix instructions, which read their operands from shared memory.

One step per product: it fences, starts an instruction per piece of the wave's tile and per step along K, closes the
group, and waits where whoever emits it asks for that. A value that only starts a sum at zero is never made, unless its
registers are wanted between tiles: the first instruction is told to drop what its registers hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.dataflow.graph import Node, Region, ValueType
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.inference.mma_plan import MmaPlan
from wavedsl.ir.kernel.kernel_ir import PRED, Type, Value
from wavedsl.ir.layouts.fragment import Fragment, chunk_count, chunk_elements, per_register, register_type
from wavedsl.ir.lower.lower_matrix import needs_zero, port_registers, prepare_step, register_keys, summed_over_waves
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import wait_full
from wavedsl.ir.schedule.steps import Context, Key, Step
from wavedsl.ir.symbols import dim_name


def starts_at_zero(n: Node) -> bool:
    """Whether a value is zero everywhere, so that a product need not read it."""
    return n.op in ("fill", "constant") and not n.attrs["value"]


def started_by_product(low: Lowering, region: Region, init: Node, carry: Node, trips: Any) -> bool:
    """Whether a loop's carried value starts at zero, surely has a trip, and is only the addend of one asynchronous
    product of the loop."""
    if not starts_at_zero(init) or not isinstance(trips, int) or not trips:
        return False
    users = low.users().get(carry.id, [])
    if len(users) != 1 or users[0].op != "mma" or users[0] not in region.nodes:
        return False
    mma = users[0]
    used_as = [position for position, x in enumerate(mma.inputs) if x is carry]
    return used_as == [2] and low.inference.mmas[mma.id].atom.asynchronous


LIGHT = ("add", "sub", "mul", "neg", "abs", "fma", "minimum", "maximum", "clamp", "where", "cast", "bitcast")
"""Operations behind a sum that take few registers beside it, as long as one result comes of it."""


def registers_wanted_behind(low: Lowering, loop: Node) -> bool:
    """Whether what follows a loop needs the registers of its sums for something else: a workgroup takes several tiles,
    and between them it adds parts of sums, stores several results, or computes what takes many registers.

    An instruction that drops the sums of the tile before has them as an operand, so ptxas keeps their registers from
    tile to tile: 128 of 240 are no register of the parts' sums then, which spilled up to 1300 bytes. Zeros, one
    instruction per two registers and tile, end that.
    """
    region = low.region_of(loop)
    if low.matrix.strategy.order is None and region is low.graph.region:
        return False
    behind = region.nodes[region.nodes.index(loop) + 1 :]
    wide = [n for n in behind if isinstance(n.type, ValueType) and n.dims and n.op not in ("read", "result")]
    results = sum(n.op == "write" for n in behind)
    return results > 1 or any(n.op == "when" for n in behind) or any(n.op not in LIGHT for n in wide)


def undefined(low: Lowering, n: Node) -> Fragment:
    """A value whose registers nobody relies on, in standard chunks."""
    layout = low.layout(n)
    kind = register_type(n.dtype)
    size = max(1, chunk_elements(layout, n.dtype) // per_register(n.dtype))
    chunk = low.b.undefined(Type(kind.kind, size))
    return Fragment(layout, n.dtype, [chunk] * chunk_count(layout, n.dtype))


def async_steps(low: Lowering, n: Node) -> list[Step]:
    """The steps of one product: its register operand made ready if need be, then all of its instructions."""
    plan = low.inference.mmas[n.id]
    atom = plan.atom
    apart = low.plans[plan.k].waves > 1 and n.id not in low.matrix.late_sums and plan.spread is None
    if apart and low.region_of(n) is not low.graph.region:
        raise ConstraintError(
            f"warpgroups that share {plan.k} add their sums outside of loops and conditions, or behind a loop over it, "
            "and this product is no such sum",
            n.loc,
            f"let them share another dimension than {plan.k}",
        )
    steps: list[Step] = []
    prepared: Key | None = None
    uses: list[Key] = []
    if not plan.in_shared[0]:
        source = plan.ports[0]
        position = int(plan.swapped)
        neutral = needs_zero(low, source, plan.k)
        if neutral or (n.id, position) in low.inference.demands:
            prepared = ("port", n.id, position)
            steps.append(prepare_step(low, n, position, prepared, neutral, plan.k))
            uses.append(prepared)
        else:
            uses += [k for keys in register_keys(low, source, plan.first) for k in keys]
    if len(n.inputs) > 2:
        uses += low.keys(n.inputs[2])
    count = len(pieces(plan)) * (plan.deep // atom.k)
    share = -(-low.partition.waves // low.target.simds)
    resources = (("mfma", atom.cycles * count * share), ("issue", low.issue_clocks() * count))
    buffers = [low.room.buffers[x.id] for x, shared in zip(plan.ports, plan.in_shared) if shared]

    def emit(context: Context) -> None:
        for x, shared in zip(plan.ports, plan.in_shared):
            if shared and x.id in low.reads.ring_of:
                wait_full(low, low.reads.ring_of[x.id])
        operands = start(low, n, plan, context, prepared)
        if low.matrix.running is not None:
            low.matrix.running.started(n, () if plan.in_shared[0] else operands)
            if apart:
                low.matrix.running.wait(0)
        else:
            low.b.mma_wait(0)
        if apart:
            add_parts(low, n, plan.k, context)

    latency = atom.cycles * (count - 1) + atom.latency
    step = Step(f"mma %{n.id}", "mma", resources, latency, tuple(dict.fromkeys(uses)), low.keys(n), emit, "", n.loc)
    step.node = n
    step.prepared = prepared
    step.reads = tuple(dict.fromkeys(buffers))
    return [*steps, step]


def pieces(plan: MmaPlan) -> list[tuple[int, int]]:
    """Offsets (M, N) of each instruction-sized piece of the wave's tile, in the order of the result's registers."""
    sizes = dict(plan.result.extents)
    return [(m, n) for m in range(0, sizes[plan.m], plan.atom.m) for n in range(0, sizes[plan.n], plan.atom.n)]


def start(low: Lowering, n: Node, plan: MmaPlan, context: Context, prepared: Key | None) -> list[Value]:
    """Fence, every instruction of the product, end of the group. Its result is in the environment, not to be read
    before the group is waited for. Returns the first operands: registers, or tiles in shared memory."""
    issue = Issue(low, n, plan, context)
    first = issue.tile_operands() if plan.in_shared[0] else Issue.registers(low, plan, context, prepared)
    low.b.mma_fence()
    for piece in pieces(plan):
        for k in issue.depth:
            issue.add(piece, k, first)
    low.b.mma_commit()
    issue.end(context)
    return list(first.values())


class Issue:
    """The instructions of one product in one trip: where each finds its operands, and what it adds to."""

    def __init__(self, low: Lowering, n: Node, plan: MmaPlan, context: Context, before: Issue | None = None):
        """`before`: the product of the same trip in whose registers this one goes on, piece by piece."""
        self.low, self.n, self.plan = low, n, plan
        b, atom = low.b, plan.atom
        self.depth = range(0, plan.deep, atom.k)
        """Offsets along K of the instructions of a piece."""
        sides = ((plan.m, atom.m), (plan.n, atom.n))
        self.tiles = [
            OperandTile(low, x, side, plan, context) if shared else None
            for x, shared, (side, _) in zip(plan.ports, plan.in_shared, sides)
        ]
        self.majors = "".join(t.major if t is not None else "k" for t in self.tiles)
        self.sums: dict[tuple[int, int], Value]
        self.keep: Value
        if before is not None:
            self.sums, self.keep = before.sums, b.true
            return
        kind = register_type(n.dtype)
        count = atom.d_words // kind.words
        old, self.keep = addend(low, n, context)
        if old is None and (freed := replaced(low, n)) is not None:
            old = low.value(freed, context.env).words(b)
        if old is not None and low.plans[plan.k].waves > 1 and n.id not in low.matrix.late_sums:
            first = b.cmp("eq", low.digit(plan.k), 0)  # the addend counts once: in the first warpgroup
            old = [b.select(first, word, b.zero(word.type)) for word in old]
        self.sums = {
            piece: b.undefined(Type(kind.kind, count)) if old is None else b.vec(*old[i * count : (i + 1) * count])
            for i, piece in enumerate(pieces(plan))
        }

    def tile_operands(self) -> dict[tuple[int, int], Value]:
        """The first operand of the instructions at each offset (M, K), from its tile in shared memory."""
        tile = self.tiles[0]
        assert tile is not None
        return {(m, k): tile.at(m, k) for m, _ in pieces(self.plan) for k in self.depth}

    @staticmethod
    def registers(
        low: Lowering, plan: MmaPlan, context: Context, prepared: Key | None
    ) -> dict[tuple[int, int], Value]:
        """The same where it lies in registers."""
        b, atom = low.b, plan.atom
        value = context.env[prepared] if prepared is not None else low.value(plan.ports[0], context.env)
        a_words = value.words(b)
        first: dict[tuple[int, int], Value] = {}
        for m in dict.fromkeys(m for m, _ in pieces(plan)):
            for k in range(0, plan.deep, atom.k):
                where = {plan.m: m, plan.k: k}
                numbers = port_registers(plan.first, "M", atom.a, (plan.m, plan.k), atom.a_words, atom.a_dtype, where)
                words = [a_words[r] for r in numbers]
                first[m, k] = b.vec(*(w if w.type.kind == "b32" else b.bitcast(w, Type("b32")) for w in words))
        return first

    def add(self, piece: tuple[int, int], k: int, first: Mapping[tuple[int, int], Value]) -> None:
        """Start the instruction of a piece at an offset along K."""
        m, column = piece
        b, second = self.low.b, self.tiles[1]
        assert second is not None
        keep = b.true if k else self.keep
        operand = first[m, k]
        self.sums[piece] = b.mma_async(
            self.plan.atom, operand, second.at(column, k), self.sums[piece], keep, self.majors
        )

    def end(self, context: Context) -> None:
        """All have been started: file the result."""
        n, low = self.n, self.low
        results = [word for sums in self.sums.values() for word in low.b.elements(sums)]
        context.env[low.keys(n)[0]] = Fragment(low.layout(n), n.dtype, results, list(results))


def add_parts(low: Lowering, n: Node, k: str, context: Context) -> None:
    """The sum of what the warpgroups along `k` hold of a product that has ended, in place of each one's part."""
    b, key = low.b, low.keys(n)[0]
    kind = register_type(n.dtype)  # sums that began with an array's elements are words
    words = [b.bitcast(word, kind) for word in context.env[key].words(b)]
    whole = summed_over_waves(low, k, b.vec(*words) if len(words) > 1 else words[0])
    results = list(b.elements(whole)) if len(words) > 1 else [whole]
    context.env[key] = Fragment(low.layout(n), n.dtype, results, list(results))


def addend(low: Lowering, n: Node, context: Context) -> tuple[list[Value] | None, Value]:
    """(registers that the product adds to or None, whether its first instruction keeps what they hold)."""
    b = low.b
    if len(n.inputs) < 3 or starts_at_zero(n.inputs[2]):
        return None, b.false
    source = n.inputs[2]
    words = low.value(source, context.env).words(b)
    if source.id in low.matrix.zero_started:
        trip = context.iteration
        return words, b.const(trip != 0, PRED) if isinstance(trip, int) else b.cmp("ne", trip, 0)
    return words, b.true


def replaced(low: Lowering, n: Node) -> Node | None:
    """What a loop carries of the trip before in whose place a product from zero, or one that goes on from it, comes:
    its registers are free by then, and results that are carried while a product runs cannot be moved."""
    region = low.region_of(n)
    while (after := added_to(low, n)) is not None:
        n = after
    return next((carry for carry, last in zip(region.carries, region.yields) if last is n), None)


def added_to(low: Lowering, n: Node) -> Node | None:
    """The product, if it is the only use of this one, that goes on in its registers."""
    users = low.users().get(n.id, [])
    goes_on = len(users) == 1 and users[0].op == "mma" and [i for i, x in enumerate(users[0].inputs) if x is n] == [2]
    return users[0] if goes_on else None


class OperandTile:
    """One operand of a product in its ring slot: where each instruction starts in it."""

    def __init__(self, low: Lowering, x: Node, side: str, plan: MmaPlan, context: Context):
        k = plan.k
        self.low, self.side, self.k = low, side, k
        staged = low.reads.made[x.id] if x.id in low.reads.made else low.reads.staged[x.id]
        tile = staged.tile
        if tile is None:
            raise CompileError(f"argument {staged.name}: its tile is not placed for matrix instructions", x.loc)
        self.tile = tile
        self.major = "k" if tile.fast == k else "m"
        self.words = tile.descriptor(k)
        slot = low.slot_bytes(x, context)
        if plan.spread is not None:  # all of K, for this wave's share of one side
            own = side == dim_name(plan.spread.dim)
            share = scaled(low.b, low.wave_digit[k], self.tile.offset({side: plan.spread.share})) if own else 0
            self.base, self.offset = total(low.b, [slot, share]), staged.offset
            return
        wave = scaled(low.b, low.wave_digit[side], self.tile.offset({side: low.plans[side].wave}))
        share, waves = low.plans[k].wave, low.plans[k].waves
        step = self.tile.offset({k: share}) if waves > 1 else 0
        if any(self.tile.offset({k: i * share}) != i * step for i in range(waves)):
            raise ConstraintError(
                f"{waves} shares of {share} elements of {k} do not lie evenly in the tile of {staged.name}",
                x.loc,
                "give each wave whole rows of the tile's swizzle, or let waves share another dimension",
            )
        self.base = total(low.b, [slot, wave, scaled(low.b, low.wave_digit[k], step)])
        self.offset = staged.offset

    def at(self, row: int, k: int) -> Value:
        """The descriptor of the instruction at these offsets."""
        address = total(self.low.b, [self.base, self.offset + self.tile.offset({self.side: row, self.k: k})])
        return self.low.b.mma_tile(address, *self.words)
