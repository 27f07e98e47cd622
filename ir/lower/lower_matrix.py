"""Lowering of `mma`: one step per matrix instruction, operands picked from their fragments by coordinate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.move_elements import join_word
from wavedsl.ir.addresses.packed_view import PackedView, dense_words
from wavedsl.ir.dataflow.graph import Node, Region, addend
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.functions.lower_ops import lower_elementwise
from wavedsl.ir.inference.matrix_count import k_issues, result_tiles
from wavedsl.ir.inference.mma_plan import MmaPlan
from wavedsl.ir.kernel.kernel_ir import B32, F32, Type, Value, vector
from wavedsl.ir.layouts.fragment import Fragment, OnDemand, from_elements, register_count, register_type
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower import across_waves
from wavedsl.ir.lower.lower_reduce import within_workgroup
from wavedsl.ir.lower.lower_values import operand, zero_beyond
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.scratch_room import SUMMED_WORDS
from wavedsl.ir.lower.sliced_operands import last_sums, lasts, sliced_positions, sliced_step
from wavedsl.ir.lower.zeros_beyond import zero_beyond_the_end
from wavedsl.ir.schedule.steps import Context, Env, Key, Step


def port_registers(
    layout: Layout,
    side: str,
    strings: Mapping[str, str],
    dims: tuple[str, str],
    words: int,
    dtype: dt.DType,
    offset: dict[str, int],
) -> list[int]:
    """Register numbers of one fragment: the atom's elements at `offset`, looked up in the value's layout."""
    bits = max(1, dtype.bits)
    per = max(1, 32 // bits)
    elements = words * per if bits <= 32 else words * 32 // bits
    if bits == 6:  # one run of registers without gaps
        first = layout.element_at({d: v for d, v in offset.items() if d in layout.dims})
        return list(range(first * bits // 32, first * bits // 32 + words))
    out = []
    held = {d: v for d, v in offset.items() if d in layout.dims}
    for places in _places((strings[side], strings["K"]), elements, per):
        at = dict(held)
        for dim, place in zip(dims, places):
            if place and dim in layout.dims:
                at[dim] = at.get(dim, 0) + place
        out.append(layout.element_at(at) // per)
    return out


@lru_cache(64)
def _places(texts: tuple[str, str], elements: int, per: int) -> list[tuple[int, ...]]:
    """Where every register's first element stands along the two dimensions of a fragment whose bits these are."""
    columns = [
        [(int(source[1:]), 1 << position) for position, source in enumerate(text.split()) if source.startswith("e")]
        for text in texts
    ]
    return [tuple(sum(c for i, c in column if e >> i & 1) for column in columns) for e in range(0, elements, per)]


def mma_steps(low: Lowering, n: Node) -> list[Step]:
    """One step per matrix instruction, and where waves share the contracted dimension, their sum behind the last."""
    plan = low.inference.mmas[n.id]
    within_workgroup(low, n, plan.k)
    atom = plan.atom
    whole = low.plans[plan.k]
    if whole.waves > 1 and whole.wave % atom.k:
        raise ConstraintError(
            f"{whole.waves} waves share {whole.tile} elements of {plan.k}, {whole.wave} each, which is no multiple of "
            f"the {atom.k} that {atom.name} contracts",
            n.loc,
            f"give each wave a multiple of {atom.k}",
        )
    product = _Product(low, n, plan)
    beside = reductions_beside(low, n)
    return [
        *product.preparing,
        *(product.step(t, k, beside) for k in range(len(product.issues)) for t in range(len(product.tiles))),
    ]


def operands_before(low: Lowering, region: Region) -> list[Step]:
    """The steps that stand in front of a loop for its products: what they multiply by that no trip makes is left in
    shared memory."""
    found = []
    for n in region.nodes:
        for p in sliced_positions(low, n) if n.op == "mma" else ():
            if lasts(low, n, p):
                k = low.inference.mmas[n.id].k
                found.append(sliced_step(low, n, [(p, ("port", n.id, p), needs_zero(low, n.inputs[p], k))], k))
    return found


class _Product:
    """The instructions of one product: number (t, k) adds the `k`-th issue along K to the `t`-th tile of the result.
    `preparing`: the steps that make whole operands ready."""

    def __init__(self, low: Lowering, n: Node, plan: MmaPlan):
        self.low, self.n, self.plan, self.addend = low, n, plan, addend(n)
        self.tiles, self.issues = result_tiles(plan), k_issues(plan)
        self.own = own_elements(plan, n.dtype)
        self.count = max(self.own) + 1
        self.by_tile = self.addend is not None and self._by_tile(self.addend)
        self.preparing: list[Step] = []
        self.prepared: list[Key | None] = []
        sliced, slices = sliced_positions(low, n), []
        for source, position in zip(plan.ports, plan.positions):
            neutral = needs_zero(low, source, plan.k)
            key = None
            if neutral or (n.id, position) in low.inference.demands:
                key = ("port", n.id, position)
                if position in sliced:
                    if not lasts(low, n, position):
                        slices.append((position, key, neutral))
                else:
                    self.preparing.append(prepare_step(low, n, position, key, neutral, plan.k))
            self.prepared.append(key)
        if slices:  # behind what else passes through the scratch buffer
            self.preparing.append(sliced_step(low, n, slices, plan.k, last_sums(low, n)))
        self.scales = [Scale(low, plan, port) for port in (0, 1)] if plan.scales else []
        for scale in self.scales:
            if scale.prepared is not None:
                self.preparing.append(
                    prepare_step(low, n, scale.position, scale.prepared, scale.neutral, scale.block, 1)
                )
        self.keys_a, self.keys_b = (
            register_keys(low, source, layout) if key is None else [(key,)] * register_count(layout, source.dtype)
            for source, layout, key in zip(plan.ports, (plan.first, plan.second), self.prepared)
        )

    def _by_tile(self, source: Node) -> bool:
        """Whether each key of the addend holds what one tile adds to."""
        if len(self.low.keys(source)) != len(self.tiles):
            return False
        if source.op != "read":
            return True
        starts = range(0, len(self.tiles) * self.count, self.count)
        return [tuple(g) for g in self.low.read_groups(source)] == [tuple(range(e, e + self.count)) for e in starts]

    def step(self, t: int, k: int, beside: Sequence[Key]) -> Step:
        """One instruction. `beside`: what comes before the first of a tile."""
        low, n, plan, atom = self.low, self.n, self.plan, self.plan.atom
        tile, offset = self.tiles[t], self.issues[k]
        off_a = {plan.m: tile.get(plan.m, 0), plan.k: offset} if plan.m else {plan.k: offset}
        off_b = {plan.n: tile.get(plan.n, 0), plan.k: offset} if plan.n else {plan.k: offset}
        regs_a = port_registers(plan.first, "M", plan.a, (plan.m, plan.k), atom.a_words, atom.a_dtype, off_a)
        regs_b = port_registers(plan.second, "N", plan.b, (plan.n, plan.k), atom.b_words, atom.b_dtype, off_b)
        uses = list(dict.fromkeys(key for r in regs_a for key in self.keys_a[r]))
        uses += [key for r in regs_b for key in self.keys_b[r] if key not in uses]
        at = [scale.place(off) for scale, off in zip(self.scales, (off_a, off_b))]
        uses += [key for scale, (word, _) in zip(self.scales, at) for key in scale.keys(word) if key not in uses]
        if k:
            uses.append(("acc", n.id, t, k - 1))
        elif self.addend is not None:
            keys = low.keys(self.addend)
            uses += [keys[t]] if self.by_tile else list(keys)
        if not k:
            uses += beside

        def emit(context: Context) -> None:
            env = context.env
            scales = [(s.word(env, word), byte) for s, (word, byte) in zip(self.scales, at)]
            a, b = (
                port_value(low, source, layout, env, regs, prepared)
                for source, layout, regs, prepared in zip(
                    plan.ports, (plan.first, plan.second), (regs_a, regs_b), self.prepared
                )
            )
            env["acc", n.id, t, k] = self.multiplied(env, t, k, a, b, scales)

        share = -(-low.partition.waves // low.target.simds)
        unit = "valu" if atom.instruction == "fma" else "mfma"
        resources = ((unit, atom.cycles * share), ("issue", low.issue_clocks() * atom.parts))
        latency = atom.cycles if k + 1 < len(self.issues) else atom.latency
        defs = (("acc", n.id, t, k),)
        return Step(f"mma %{n.id}.{t} k{k}", "mma", resources, latency, tuple(uses), defs, emit, "", n.loc)

    def multiplied(self, env: Env, t: int, k: int, a: Value, b: Value, scales: Sequence[tuple[Value, int]]) -> Value:
        """The sums of a tile with the product of two fragments added to them."""
        low, n, plan, atom = self.low, self.n, self.plan, self.plan.atom
        shared_k = low.plans[plan.k].waves > 1 and n.id not in low.matrix.late_sums
        acc = env["acc", n.id, t, k - 1] if k else self.first_sums(env, t, shared_k)
        if atom.instruction == "fma":
            done = emit_fma(low, plan, a, b, acc)
        elif scales:
            (scale_a, byte_a), (scale_b, byte_b) = scales
            both = as_words(low, scale_a), as_words(low, scale_b)
            done = low.b.mma_scaled(atom, as_words(low, a), as_words(low, b), acc, both, (byte_a, byte_b))
        else:
            done = low.b.mma(atom, as_words(low, a), as_words(low, b), acc)
        if k + 1 < len(self.issues):
            return done
        if self.count < len(self.own):
            parts = low.b.elements(done)
            kept = [parts[self.own.index(i)] for i in range(self.count)]
            done = low.b.vec(*kept) if len(kept) > 1 else kept[0]
        if not shared_k:
            return done
        kind = register_type(n.dtype)  # sums that began with an array's elements are words
        return summed_over_waves(low, plan.k, low.b.bitcast(done, Type(kind.kind, done.type.words // kind.words)))

    def first_sums(self, env: Env, t: int, shared_k: bool) -> Value:
        """What the first instruction of a tile adds to: the addend, or zeros."""
        low, b, source = self.low, self.low.b, self.addend
        kind = register_type(self.n.dtype)
        if source is None:
            return b.zero(Type(kind.kind, len(self.own)))
        keys = low.keys(source)
        acc = env[keys[t]] if self.by_tile else None
        if acc is None or isinstance(acc, Fragment):
            words = low.value(source, env).words(b)
            acc = b.vec(*words[t * self.count : (t + 1) * self.count]) if self.count > 1 else words[t]
        elif acc.type.kind != kind.kind:  # bits, as a load gives them
            acc = b.bitcast(acc, Type(kind.kind, self.count))
        if self.count < len(self.own):
            parts = b.elements(acc) if self.count > 1 else [acc]
            acc = b.vec(*(parts[i] for i in self.own))
        if shared_k:  # the addend counts once: in the first wave
            acc = b.select(b.cmp("eq", low.wave_digit[self.plan.k], 0), acc, b.zero(acc.type))
        return acc


def own_elements(plan: MmaPlan, dtype: dt.DType) -> list[int]:
    """Per element that a lane has of the instruction's result, the number of the value's element that it is.

    Where an operand has no dimension of its own, the instruction's rows (or columns) are equal, and the value has one.
    """
    bits = [
        int(source[1:])
        for dim, text in ((plan.m, plan.atom.d["M"]), (plan.n, plan.atom.d["N"]))
        for source in text.split()
        if dim and source.startswith("e")
    ]
    count = plan.atom.d_words // register_type(dtype).words
    return [sum((e >> bit & 1) << i for i, bit in enumerate(sorted(bits))) for e in range(count)]


class Scale:
    """The scales of one port of a scaled product: which byte of which register an instruction takes."""

    def __init__(self, low: Lowering, plan: MmaPlan, port: int):
        assert plan.scales is not None
        self.low, self.layout, self.k = low, plan.scales[port], plan.k
        self.position = plan.positions[port] + 1
        self.node = plan.node.inputs[self.position]
        self.block = next(str(d) for d in self.node.dims if str(d) not in (plan.m, plan.n))
        self.size = plan.atom.scale_block
        # Absent elements of a read are 0, as a scale a number; but a cast from 0 is NaN, which times 0 stays NaN.
        self.neutral = self.node.op != "read" and sticks_out(low, self.node, self.block)
        needed = self.neutral or (plan.node.id, self.position) in low.inference.demands
        self.prepared: Key | None = ("port", plan.node.id, self.position) if needed else None
        self._keys = None if needed else register_keys(low, self.node, self.layout)

    def place(self, offset: Mapping[str, int]) -> tuple[int, int]:
        """(register, byte) of the scale of an operand's fragment at `offset`."""
        at = {self.block if d == self.k else d: v // self.size if d == self.k else v for d, v in offset.items()}
        element = self.layout.element_at({d: v for d, v in at.items() if d in self.layout.dims})
        return element // 4, element % 4

    def keys(self, word: int) -> Sequence[Key]:
        if self._keys is not None:
            return self._keys[word]
        assert self.prepared is not None
        return (self.prepared,)

    def word(self, env: Env, word: int) -> Value:
        if self.prepared is not None:
            return env[self.prepared].words(self.low.b)[word]
        return operand_words(self.low, self.node, env, self.layout, [word])[0]


def reductions_beside(low: Lowering, n: Node) -> list[Key]:
    """Keys of reductions of what an operand is cast from: they come first, or the wide value would wait for them in
    registers while the product runs."""
    users = low.users()
    out: dict[Key, None] = {}
    for x in low.inference.mmas[n.id].ports:
        while x.op in ("cast", "bitcast"):
            x = x.inputs[0]
            for u in users.get(x.id, ()):
                if ROWS[u.op].index_rule == "project":
                    out |= dict.fromkeys(low.keys(u))
    return list(out)


def register_keys(low: Lowering, n: Node, layout: Layout) -> list[tuple[Key, ...]]:
    """Per register of a value the keys that hold its elements."""
    keys = low.keys(n)
    per = max(1, 32 // n.dtype.bits)
    count = -(-layout.elements_per_lane // per)
    unit = low.units(n) if n.op == "read" else None
    if unit is not None:
        return unit_keys(low, n, unit)
    if n.op == "read" and not low.one_by_one(n):
        groups = low.read_groups(n)
        out: list[tuple[Key, ...]] = [()] * count
        for g, key in zip(groups, keys):
            for e in g:
                if key not in out[e // per]:
                    out[e // per] = (*out[e // per], key)
        return out
    if len(keys) == 1:
        return [keys] * count
    size = count // len(keys)
    return [(keys[r // size],) for r in range(count)]


def unit_keys(low: Lowering, n: Node, unit: PackedView) -> list[tuple[Key, ...]]:
    """Per dense register of a packed read the keys that hold its units."""
    home = {u: key for group, key in zip(low.read_groups(n), low.keys(n)) for u in group}
    bits, units = unit.dtype.bits if unit.half is None else n.dtype.bits, unit.layout.elements_per_lane
    out = []
    for r in range(-(-units * bits // 32)):
        inside = range(r * 32 // bits, min(units, -(-(r + 1) * 32 // bits)))
        out.append(tuple(dict.fromkeys(home[u] for u in inside)))
    return out


def operand_words(low: Lowering, n: Node, env: Env, layout: Layout, regs: Sequence[int]) -> list[Value]:
    """Some registers of an operand. Only the loads that hold them are needed: others may not be there yet."""
    b = low.b
    unit = low.units(n) if n.op == "read" else None
    if unit is not None:
        return low.unit_words(n, unit, env, regs)
    if n.op == "read" and not low.one_by_one(n):
        per = max(1, 32 // n.dtype.bits)
        keys, table = low.keys(n), low.homes(n)
        count = layout.elements_per_lane
        return [
            join_word(
                b, n.dtype, [(env[keys[table[e][0]]], table[e][1]) for e in range(r * per, min(r * per + per, count))]
            )
            for r in regs
        ]
    words = dense_words(b, low.value(n, env))
    return [words[r] for r in regs]


def summed_over_waves(low: Lowering, dim: str, part: Value) -> Value:
    """The sum of what the waves along `dim` hold of one result, in order of the waves, `SUMMED_WORDS` at a time."""
    most = max(1, SUMMED_WORDS // part.type.element.words)
    count = part.type.n
    if count > most:
        b = low.b
        return b.vec(*(_sum(low, dim, b.slice(part, i, min(most, count - i))) for i in range(0, count, most)))
    return _sum(low, dim, part)


def _sum(low: Lowering, dim: str, part: Value) -> Value:
    b = low.b
    element = part.type.element
    step = max(1, 4 // element.words)  # 16 bytes at a time
    count = part.type.n
    pieces = [b.slice(part, i, min(step, count - i)) for i in range(0, count, step)] if count > 1 else [part]
    add = b.fadd if element.is_float else b.add

    def join(x: tuple[Value, ...], y: tuple[Value, ...]) -> tuple[Value, ...]:
        both = zip(b.elements(x[0]), b.elements(y[0])) if x[0].type.n > 1 else [(x[0], y[0])]
        sums = [add(p, q) for p, q in both]
        return (b.vec(*sums) if len(sums) > 1 else sums[0],)

    found = [cell[0] for cell in across_waves.joined(low, dim, [(p,) for p in pieces], join, either_way=True)]
    return b.vec(*found) if len(found) > 1 else found[0]


def prepare_step(
    low: Lowering, n: Node, position: int, key: Key, neutral: bool, k: str, beyond: float = 0
) -> Step:
    """A whole operand made ready: in the layout of its port, and 0 (a scale: 1) `beyond` the end of K.

    What is rounded to a narrow type is zeroed before: numbers, not halves of registers, and a sum over the same
    dimension wants the same numbers.
    """
    source = n.inputs[position]
    rounded = neutral and source.op == "cast" and (n.id, position) not in low.inference.demands

    def emit(context: Context) -> None:
        if rounded:
            wide = zero_beyond(low, operand(low, source, 0, context), k, context, beyond)
            count = wide.layout.elements_per_lane
            made = [lower_elementwise(low.b, source, [wide.element(low.b, i)]) for i in range(count)]
            context.env[key] = from_elements(low.b, wide.layout, source.dtype, made)
            return
        value = operand(low, n, position, context)
        if neutral:
            value = zero_beyond(low, value, k, context, beyond)
        context.env[key] = value

    clocks = low.issue_clocks() * max(1, register_count(low.layout(source), source.dtype))
    resources, latency = low.valu_cost(clocks)
    name, uses = f"operand {position} of %{n.id}", low.keys(source.inputs[0] if rounded else source)
    return Step(name, "compute", resources, latency, uses, (key,), emit, "", n.loc)


def port_value(low: Lowering, n: Node, layout: Layout, env: Env, regs: list[int], prepared: Key | None) -> Value:
    """One fragment of an operand, from its own registers or from the prepared copy."""
    b = low.b
    if prepared is not None:
        value = env[prepared]
        whole = None if isinstance(value, OnDemand) else dense_words(b, value)
        words = [value.word(b, r) if whole is None else whole[r] for r in regs]
    else:
        words = operand_words(low, n, env, layout, regs)
    if n.dtype is dt.tf32 and n.op != "cast" and not low.target.rounds_tf32:
        # The instruction cuts the low bits off; the language rounds them (a cast has done so already).
        words = [b.bitcast(b.round_tf32(b.bitcast(w, F32)), B32) for w in words]
    return b.vec(*words) if len(words) > 1 else words[0]


def emit_fma(low: Lowering, plan: MmaPlan, a: Value, c: Value, acc: Value) -> Value:
    """One K step of an outer product by multiply-adds, row by row. Where registers have banks every other row of eight
    is walked backwards: neighbours then share an operand, which is read once, also where rows meet."""
    b, atom = low.b, plan.atom
    kind = register_type(atom.acc_dtype)
    xs = [x if x.type is kind else b.bitcast(x, kind) for x in numbers(low, a, kind)]
    ys = [y if y.type is kind else b.bitcast(y, kind) for y in numbers(low, c, kind)]
    accs = list(b.elements(acc)) if acc.type.n > 1 else [acc]
    n_bits = sum(1 for s in atom.d["N"].split() if s.startswith("e"))
    last = (1 << n_bits) - 1
    out = list(accs)
    for at in range(len(accs)):
        i = at ^ last if low.target.register_banks and n_bits > 2 and at >> n_bits & 1 else at
        x, y, z = xs[i >> n_bits], ys[i & last], accs[i]
        out[i] = b.ffma(x, y, z) if kind.is_float else b.add(b.mul(x, y), z)
    return b.vec(*out) if len(out) > 1 else out[0]


def numbers(low: Lowering, v: Value, kind: Any) -> list[Value]:
    b = low.b
    if v.type.kind == kind.kind:
        return list(b.elements(v)) if v.type.n > 1 else [v]
    step = kind.words
    return [b.slice(v, i, step) for i in range(0, v.type.n, step)]


def as_words(low: Lowering, v: Value) -> Value:
    return v if v.type.kind == "b32" else low.b.bitcast(v, vector(v.type.words))


def needs_zero(low: Lowering, n: Node, k: str) -> bool:
    """Whether an operand must be zeroed beyond the end of K: padded K, and nothing that is 0 there by itself."""
    return sticks_out(low, n, k) and not zero_beyond_the_end(n, k)


def sticks_out(low: Lowering, n: Node, dim: str) -> bool:
    """Whether some tile of a value reaches past the end of a dimension."""
    plan = low.plans[dim]
    return plan.ragged or dict(low.layout(n).extents).get(dim, plan.tile) > plan.tile
