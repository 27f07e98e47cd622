"""Statements beside the plain ones: operands that are made of narrower numbers, loops within a causal window, sums that
round, workgroups of which the last one goes on, atomics that compare, arrays of flags.
"""

from __future__ import annotations

import math

from generator.memory import Memory
from generator.program import Array, Block, Do, Let, Type
from generator.state import LIMIT, PRODUCTS, union
from generator.values import Values

WHOLE = ("f16", "bf16", "i8", "f32", "f64")
"""Operands that hold every whole number of 4 bits, and three times it."""


class Further(Values, Memory):
    """Each method adds statements to `body`, or none where nothing in sight fits."""

    # ---- operands

    def widened_operand(self, free: str, inner: str) -> tuple[str, Type] | None:
        """An operand whose elements memory has in fewer bits, perhaps with a factor for a part of each row."""
        if self.operand not in WHOLE:
            return None
        order = (free, inner) if self.chance(0.7) else (inner, free)
        kinds = ["i4", "u4"] if self.even(order[-1]) else []
        kinds += ["i8"] if self.operand != "i8" else []
        if not kinds:
            return None
        narrow = self.one(kinds)
        high = {"i4": 8, "u4": 15, "i8": 20}[narrow]
        batch = ("B",) if self.batch and self.chance(0.5) else ()
        space = self.one(("SHARED", "GLOBAL", None, None))
        table = self.array((*batch, *order), narrow, -high, high if narrow == "i8" else 7, space)
        if narrow != "i8":
            table.spread = "plain"
        text, by = f"wd.cast(wd.read({table.name}), wd.{self.operand})", 0
        part = self.part_of(inner)
        if part is not None and self.chance(0.4):
            by = 3
            factors = self.array((free, f"{inner} / {part}"), self.operand, -by, by)
            factors.special = False
            text = f"{text} * wd.repeat_interleave(wd.read({factors.name}), {inner})"
        elif self.chance(0.4):
            by = 3
            factors = self.array((free,), self.operand, -by, by)
            factors.special = False
            text = f"{text} * wd.read({factors.name})"
        if by and self.operand == "i8" and high * by > 127:
            return None
        return self.let(self.body, text, Type(order, self.operand, high * max(by, 1)))

    # ---- loops within a window

    def causal_loop(self) -> None:
        """A loop over keys of which a row sees those before it, or a window: trips outside may be passed by."""
        if not self.program.dynamic and self.chance(0.3):
            self.program.dynamic = self.one((("M",), ("N",), ("M", "N")))
            self.program.dynamic = tuple(d for d in self.program.dynamic if d not in self.cover)
        if self.groups and self.chance(0.6):  # computing warpgroups pass by trips where others copy
            self.program.hopper["specialize"] = True
        before, behind = self.one((0, 0, 3, 17)), self.one((0, 0, 5, 40))
        ways = (
            (f"stop=wd.tile_stop(M) + {before}", f"wd.index(M) + {before} >= wd.index(N)"),
            (f"start=wd.tile_start(M) - {behind}", f"wd.index(M) - {behind} <= wd.index(N)"),
            (
                f"start=wd.tile_start(M) - {behind}, stop=wd.tile_stop(M) + {before}",
                f"(wd.index(M) - {behind} <= wd.index(N)) & (wd.index(M) + {before} >= wd.index(N))",
            ),
        )
        bounds, mask = self.one(ways)
        apart = ", per_wave=True" if self.chance(0.8) else ""
        sums = PRODUCTS[self.operand]
        kinds = [("products", Type(("M", "D"), sums, 1 << 20))]
        if self.chance(0.5):
            kinds.append(("top", Type(("M",), sums)))
        if self.chance(0.5):
            kinds.append(("total", Type(("M",), sums, 1 << 20)))
        outer_scope, outer_body = self.scope, self.body
        self.scope, self.body = [], []
        self.inside.append("N")
        carried = [(self.name(), kind, kind.fill(-LIMIT if how == "top" else 0)) for how, kind in kinds]
        scores = self.multiply("M", "N", "D", None)
        assert scores is not None
        text, scored = scores
        dims = union(("M", "N"), scored.dims)
        small = self.let(self.body, f"wd.clamp({text}, -3, 3)", Type(scored.dims, sums, 3))
        masked = self.let(self.body, f"wd.where({mask}, {small[0]}, 0)", Type(dims, sums, 3))
        yields = []
        for (how, kind), (name, _, _) in zip(kinds, carried):
            if how == "products":
                found = self.multiply("M", "D", "N", (name, kind))
                assert found is not None
                yields.append(self._behind(found[0], name, masked[0]))
            elif how == "top":
                best = f"wd.max(wd.where({mask}, {small[0]}, {-LIMIT}), dim=N)"
                yields.append(self._new(f"wd.maximum({name}, {best})", kind))
            else:
                yields.append(self._new(f"{name} + wd.sum({masked[0]}, dim=N)", kind))
        block = Block("iterate", f"N, {bounds}{apart}", [], carried, [self.body], [yields], f"f{self.labels + 1}")
        self.labels += 1
        self.inside.pop()
        self.scope, self.body = outer_scope, outer_body
        block.names = [(self.name(), Type(kind.dims, kind.dtype, 1 << 20)) for _, kind in kinds]
        self.body.append(block)
        self.scope += block.names

    def _behind(self, product: str, acc: str, masked: str) -> str:
        """Makes sure that the product's operand is the masked one: another one would add what lies outside."""
        made = self.body[-1]
        assert isinstance(made, Let) and made.name == product
        text, depth, at = made.text, 0, len("wd.mma(")
        while depth or text[at] != ",":
            depth += (text[at] in "([{") - (text[at] in ")]}")
            at += 1
        first = masked if PRODUCTS[self.operand] == self.operand else f"wd.cast({masked}, wd.{self.operand})"
        made.text = f"wd.mma({first}{text[at:]}"
        return product

    def _new(self, text: str, kind: Type) -> str:
        name = self.name()
        self.body.append(Let(name, kind, text))
        return name

    # ---- sums that round

    def inexact(self) -> None:
        """Sums whose terms are fractions, written where the comparison allows what their order changes."""
        if self.special or self.inside or self.branches:
            return
        if self.loops.get("K") and not self.one_sum and self.chance(0.6):
            self._fractions_of_loop()
            return
        x = self.pick(lambda t: t.dtype in ("f32", "f64", "f16", "bf16", "i32") and bool(self.whole(t)))
        if x is None:
            return
        dim = self.one(self.whole(x[1]))
        dtype = self.one(("f32", "f32", "f64"))
        text = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), dtype)[0]
        text = f"{text} * {self.one((0.1, 0.37, 1.3))} + 0.01"
        n = max(1, self.length(dim))
        rest = tuple(d for d in x[1].dims if d != dim)
        text, dims = self.one(((f"wd.sum({text}, dim={dim})", rest), (f"wd.cumsum({text}, dim={dim})", x[1].dims)))
        self._rounded(text, Type(dims, dtype), n, 80)

    def _fractions_of_loop(self) -> None:
        """A loop over K that adds fractions up, or their products."""
        outer = [d for d in ("M", "N") if d in self.dims and d not in self.loops]
        products = self.kind == "product" and self.operand in ("f16", "bf16", "f32", "f64") and self.scaled is None
        sums = PRODUCTS[self.operand] if products else self.one(("f32", "f64"))
        kind = Type(tuple(outer) if products else ("M",), sums)
        n = max(1, self.program.sizes["K"])
        outer_scope, outer_body = self.scope, self.body
        self.scope, self.body = [], []
        self.inside.append("K")
        name, label = self.name(), f"f{self.labels + 1}"
        self.labels += 1
        by = self.one((1.0, 1.0, 0.5))
        kept = name if by == 1.0 else f"{name} * {by}"
        if products:
            sides = []
            for d in kind.dims:
                x = self.read((d, "K"), self.operand)
                clamped = f"wd.clamp({x[0]}, -3, 3) * {self.one((0.1, 0.37, 1.3))}"
                sides.append(self.let(self.body, clamped, Type(x[1].dims, self.operand, 4)))
            how = self.one(("", ", precision='3xtf32'")) if self.operand == "f32" else ""
            new = self._new(f"wd.mma({sides[0][0]}, {sides[1][0]}, {kept}{how})", kind)
            term = 16
        else:
            x = self.read(("M", "K"), self.one(("f32", "f64", "f16", "i8")))
            text = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), sums)[0]
            new = self._new(f"{kept} + wd.sum({text} * 0.37, dim=K)", kind)
            term = 23
        block = Block("iterate", "K", [], [(name, kind, kind.fill(0))], [self.body], [[new]], label)
        self.inside.pop()
        self.scope, self.body = outer_scope, outer_body
        result = self.name()
        block.names = [(result, kind)]
        self.body.append(block)
        self._rounded(result, kind, n, term)

    def _rounded(self, text: str, kind: Type, count: int, term: int) -> None:
        """Writes a sum of `count` terms, none of them larger than `term`. Two orders of summation are apart by no more
        than twice the bound of docs/numerics.md, that of 3xtf32."""
        dims = (*kind.dims, *(d for d in ("M", "N") if d in self.split and d not in kind.dims))
        if not dims:
            return
        memory = (("B",) if self.batch else ()) + dims
        made = self.array(memory, kind.dtype, 77, 77)
        made.tolerance = 2 * (3 * count + 28) * count * term * (2.0**-24 if kind.dtype == "f32" else 2.0**-53)
        self.body.append(Do(f"wd.write(wd.broadcast({text}, {', '.join(dims)}), {made.name})"))

    # ---- the last workgroup

    def last_workgroup(self) -> None:
        """Workgroups of a batch count themselves; the last one reads what all have written."""
        p = self.program
        if not self.batch or self.split or p.dynamic or self.inside or self.branches:
            return
        if any(n == 0 for n in p.sizes.values()):
            return
        x = self.pick(lambda t: t.dtype in ("f32", "i32", "f16", "i64", "u8") and 0 < len(t.dims) < 3)
        if x is None:
            x = self.read(("M",), "i32")
        if not {*x[1].dims} <= {"M", "N", "D", "F"}:
            return
        p.sizes.update(T=p.sizes["B"], ONE=1)
        parts = self.array(("T", *x[1].dims), x[1].dtype, 77, 77)
        number = Array(f"bins{len(self.atomics)}", ("ONE",), "i32", 0, 0)
        p.arrays.append(number)
        out = self.array(("V",), x[1].dtype, 77, 77)
        self.atomics |= {parts.name, number.name, out.name}
        own = f"mapping=wd.IndexMapping(({', '.join(x[1].dims)},), {{T: B}})"
        ticket, read = self.name(), self.name()
        once = "mapping=wd.IndexMapping((), {ONE: 0})"
        self.body += [
            Do(f"wd.write({x[0]}, {parts.name}, {own})"), Do("wd.fence()"),
            Let(ticket, Type((), "i32"), f"wd.atomic_add(wd.Register[wd.i32](1), {number.name}, {once})"),
        ]  # fmt: skip
        places = ["T: wd.index(V) % T"]
        places += [f"{d}: wd.index(V) {self.one(('* 2', '* 1', '+ 3', '% 7'))}" for d in x[1].dims]
        elsewhere = f"wd.read({parts.name}, mapping=wd.IndexMapping((V,), {{{', '.join(places)}}}))"
        text = self.one((read, f"small({read} + wd.max(small({read}), dim=V))"))
        last = [Do("wd.fence()"), Let(read, Type(("V",), x[1].dtype), elsewhere), Do(f"wd.write({text}, {out.name})")]
        self.labels += 1
        head = f"{ticket} == {p.sizes['B'] - 1}"
        self.body.append(Block("cond", head, [], [], [last, []], [[], []], f"f{self.labels}"))

    # ---- workgroups that wait for each other

    def workgroups_meet(self) -> None:
        """Every workgroup writes its part, counts itself, waits until all have, and reads another one's."""
        p = self.program
        if not self.batch or self.split or p.dynamic or self.inside or self.branches or p.schedule.get("persistent"):
            return
        if any(n == 0 for n in p.sizes.values()) or p.hopper.get("persistent") or "exit_if" in str(self.body):
            return
        x = self.pick(lambda t: t.dtype in ("f32", "i32", "f16", "i64", "u8") and 0 < len(t.dims) < 3)
        if x is None or not {*x[1].dims} <= {"M", "N", "D", "F"}:
            return
        count = p.sizes["B"]
        p.sizes.update(T=count, ONE=1)
        parts = Array(f"bins{len(self.atomics)}", ("T", *x[1].dims), x[1].dtype, 77, 77)
        number = Array(f"bins{len(self.atomics) + 1}", ("ONE",), "i32", 0, 0)
        p.arrays += [parts, number]
        self.atomics |= {parts.name, number.name}
        dims = "".join(f"{d}, " for d in x[1].dims)
        once = "mapping=wd.IndexMapping((), {ONE: 0})"
        one, zero = "wd.Register[wd.i32](1)", "wd.Register[wd.i32](0)"
        self.body += [
            Do(f"wd.write({x[0]}, {parts.name}, mapping=wd.IndexMapping(({dims}), {{T: B}}))"), Do("wd.fence()"),
        ]  # fmt: skip
        ask = f"lambda n: wd.atomic_add({zero}, {number.name}, {once})"
        first = f"wd.atomic_add({one}, {number.name}, {once}) + 1"
        self.body.append(Do(f"wd.while_loop(lambda n: n < {count}, {ask}, [{first}])"))
        self.body.append(Do("wd.fence()"))
        whose = f"(B + {self.one((1, 1, 2))}) % {count}"
        text = f"wd.read({parts.name}, mapping=wd.IndexMapping(({dims}), {{T: {whose}}}))"
        self.let(self.body, text, x[1])

    # ---- atomics that compare, flags, several dimensions, functions that are fast

    def compared_atomic(self) -> None:
        """`atomic_cas` on a place of its own per element."""
        x = self.pick(lambda t: t.dtype in ("i32", "u32", "i64", "u64") and self.mine(t.dims))
        if x is None or self.branches:
            return
        name, dims, dtype = f"bins{len(self.atomics)}", x[1].dims, x[1].dtype
        self.program.arrays.append(Array(name, dims, dtype, 5, 5))
        self.atomics.add(name)
        kind = Type(dims, dtype)
        expected = self.one((kind.fill(5), kind.fill(4), f"wd.where(wd.index({dims[0]}) % 3 < 2, {kind.fill(5)}, 0)"))
        self.let(self.body, f"wd.atomic_cas({expected}, small({x[0]}), {name})", kind)

    def flags(self) -> None:
        """An array of flags, read; or one written."""
        here = self.here()
        if not here:
            return
        dims = tuple(here[: self.one((1, 2))])
        if self.chance(0.6) or self.branches or self.inside:
            made = self.array(self.batched(dims), "i1", 0, 1)
            order = tuple(d for d in made.dims if d != "B")
            self.let(self.body, f"wd.read({made.name})", Type(order, "i1", 1))
            return
        x = self.pick(lambda t: t.dtype == "i1" and bool(t.dims) and self.split <= {*t.dims})
        if x is not None and not self.batch:
            made = self.array(x[1].dims, "i1", 1, 1)
            made.spread = "plain"
            self.atomics.add(made.name)
            self.body.append(Do(f"wd.write({x[0]}, {made.name})"))

    def several(self) -> None:
        """A reduction along two dimensions at once."""
        x = self.pick(lambda t: len(t.dims) > 1 and len(self.whole(t)) > 1 and t.dtype != "i1")
        if x is None:
            return
        dims = tuple(self.whole(x[1])[:2])
        rest = tuple(d for d in x[1].dims if d not in dims)
        how = self.one(("sum", "max", "min", "any"))
        if how == "any":
            both = f"wd.{self.one(('any', 'all'))}({x[0]} > 3, dim=({', '.join(dims)}))"
            self.let(self.body, both, Type(rest, "i1", 1))
            return
        n = math.prod(max(1, self.length(d)) for d in dims)
        text, bound = x[0], x[1].bound
        if how == "sum":
            text, bound = self.fit(x, lambda b: b * n)
            bound *= n
        self.let(self.body, f"wd.{how}({text}, dim=({', '.join(dims)}))", Type(rest, x[1].dtype, bound))
