"""Loops with carried values, branches and `while`."""

from __future__ import annotations

from generator.program import Block, Let, Type
from generator.state import LIMIT, PRODUCTS, State, union

PRODUCTS_OF_LOOPS = {"mma": None, "scaled": None, "chain": ("M", "D"), "middle": ("M", "F")}
"""What loops of products add up, and its dimensions; None: the two that the loop does not go along."""


class Blocks(State):
    """Each method adds a block to `body`, whose statements `region` draws."""

    def label(self) -> str:
        self.labels += 1
        return f"f{self.labels}"

    def loop(self) -> None:
        free = [d for d in self.loops if d not in self.inside]
        if self.one_sum or not free or len(self.inside) >= 2:
            return
        self.make_loop(self.one(free))

    def make_loop(self, dim: str) -> None:
        head = dim
        if self.one_sum:
            pass
        elif self.chance(0.08) and not self.hopperish():
            head = (
                f"{dim}, start=wd.tile_start(M) - {self.one((0, 3, 20))}, stop=wd.tile_stop(M) + {self.one((0, 5, 40))}"
            )
        elif self.chance(0.04) and not self.hopperish():  # by a number of the call: no trips, some, or all
            ends = ("start=flag * 16", "stop=flag * 24", "start=flag * 40, stop=flag * 8", "stop=40")
            head = f"{dim}, {self.one(ends)}"
        outer_scope, outer_body = self.scope, self.body
        before: list[tuple[str, Type, str]] = []
        carried: list[tuple[str, Type, str]] = []
        products = [d for d in ("M", "N") if d in self.dims and (d not in self.loops or d in self.inside) and d != dim]
        kinds = []
        if len(products) == 2 and (self.kind == "product" or self.chance(0.3)):
            kinds.append("scaled" if self.scaled is not None and dim == "K" else "mma")
        if self.kind == "chain" and dim == "N":
            kinds.append("chain")
        if self.kind == "middle" and dim == "K":
            kinds.append("middle")
        for _ in () if self.one_sum else range(self.one((0, 1, 1, 2)) if kinds else self.one((1, 1, 2))):
            kinds.append(self.one(("total", "total", "any", "any")))
        first: list[tuple[str, str, Type]] = []
        for how in kinds:
            if how in PRODUCTS_OF_LOOPS:
                dims = PRODUCTS_OF_LOOPS[how] or tuple(products)
                kind = Type(dims, "f32" if how == "scaled" else PRODUCTS[self.operand], 1 << 20)
                start = kind.fill(self.one((0, 0, 1)))
                old = self.pick(lambda t, kind=kind: t.alike(kind) and t.bound <= LIMIT)
                if old is not None and self.chance(0.3):
                    start = old[0]
            elif how == "total":
                dims = ("M",) if self.chance(0.8) else ()
                kind = Type(dims, self.one(("i32", "f32", "f64", "f16")))
                start = kind.fill(0)
                if not dims and (self.split or "M" not in self.cover):
                    kind = Type(("M",), kind.dtype)
                    start = kind.fill(0)
            else:
                old = self.pick(lambda t: t.dtype != "i1" and dim not in t.dims and t.bound <= LIMIT)
                if old is None:
                    continue
                start, kind = old
            first.append((how, start, kind))
        if not first and self.chance(0.7):
            return
        self.scope = [v for v in self.scope if dim not in v[1].dims]
        self.inside.append(dim)
        self.body = []
        for how, start, kind in first:
            name = self.name()
            carried.append((name, kind, start))
            if how not in PRODUCTS_OF_LOOPS:
                self.scope.append((name, kind))
        self.region(0 if self.one_sum else int(self.rng.integers(0, 4)), len(self.inside) + self.branches)
        if self.chance(0.12) and not self.one_sum:
            self.state()
        yields = []
        for (how, _, _), (name, kind, _) in zip(first, carried):
            yields.append(self.next_value(how, name, kind, dim))
        if self.chance(0.25) and not self.one_sum:
            self.store(dim)
        block = Block("iterate", head, [], carried, [self.body], [yields], self.label())
        self.inside.pop()
        self.scope, self.body = outer_scope, outer_body
        for _, kind, _ in carried:
            block.names.append((self.name(), kind))
        self.body.append(block)
        for (how, _, _), (name, kind) in zip(first, block.names):
            if how == "scaled":  # no whole numbers
                self.let(self.body, f"small({name})", Type(kind.dims, kind.dtype, LIMIT))
            else:
                self.scope.append((name, kind))

    def hopperish(self) -> bool:
        return "cluster" in self.program.hopper

    def next_value(self, how: str, name: str, kind: Type, dim: str) -> str:
        """What a loop hands to its next trip for a carried value."""
        if how == "scaled":
            return self.scaled_product((name, kind))[0]
        if how in ("mma", "middle"):
            acc = (name, kind)
            if self.chance(0.12) and not self.one_sum:
                acc = (f"small({name})", kind)
            left, right = (kind.dims[0], kind.dims[1])
            found, made = self.multiply(left, right, dim, acc), self.body[-1]
            assert found is not None and isinstance(made, Let)
            if not self.hopperish() and self.chance(0.1):  # a block that may count for nothing
                made.text = f"wd.cond({self.single()}, lambda: {made.text}, lambda: {name})"
            return found[0]
        if how == "chain":
            scores = self.multiply("M", "N", "D", None)
            assert scores is not None
            text, scored = scores
            if self.chance(0.5):
                mask = f"wd.where(wd.index(M) >= wd.index(N), {text}, {self.one((0, -5))})"
                text, scored = self.let(
                    self.body, mask, Type(union(("M", "N"), scored.dims), scored.dtype, max(5, scored.bound))
                )
            self.let(self.body, f"small({text})", Type(scored.dims, scored.dtype, LIMIT))
            found = self.multiply("M", "D", dim, (name if self.chance(0.6) else f"small({name})", kind))
            assert found is not None
            return found[0]
        here = self.scope
        if how == "total":
            sums = self.pick(lambda t: t.dtype != "i1" and dim in t.dims and set(t.dims) - {dim} <= set(kind.dims))
            if sums is None:
                sums = self.read((*kind.dims[:1], dim), kind.dtype)
            text, _ = self.cast_to((f"small({sums[0]})", Type(sums[1].dims, sums[1].dtype)), kind.dtype)
            summed = f"wd.sum({text}, dim={dim})"
            limited = f"small({name} + {summed})"
            return self.assigned(limited, kind)
        other = self.pick(lambda t: t.alike(kind) and t.bound <= LIMIT)
        if other is not None and other[0] != name and self.chance(0.5):
            return other[0]  # values that change places, or one that does not change
        more = self.pick(lambda t: t.dtype != "i1" and set(t.dims) <= set(kind.dims))
        add = self.cast_to(more, kind.dtype)[0] if more is not None else "1"
        if more is not None and more[1].bound > LIMIT:
            add = self.cast_to((f"small({more[0]})", Type(more[1].dims, more[1].dtype)), kind.dtype)[0]
        return self.assigned(f"small({name} {self.one(('+', '-'))} {add})", kind)

    def assigned(self, text: str, kind: Type) -> str:
        name = self.name()
        self.body.append(Let(name, kind, text))
        self.scope.append((name, kind))
        return name

    def single(self) -> str:
        """A condition of the whole workgroup."""
        ways = [f"flag > {self.one((0, 1))}", f"flag == {self.one((0, 1, 2))}"]
        if "M" not in self.inside:
            ways.append(f"wd.tile_start(M) >= {self.one((8, 16, 64))}")
        if self.inside:
            ways.append(f"wd.tile_start({self.inside[-1]}) >= {self.one((8, 16, 32))}")
        if self.batch:
            ways.append("wd.index(B) == 1")
        value = self.pick(lambda t: t.dtype != "i1" and bool(t.dims) and all(d in self.whole(t) for d in t.dims))
        if value is not None:
            text = f"{value[0]} > 3"
            for d in reversed(value[1].dims):
                text = f"wd.any({text}, dim={d})"
            ways += [text, text]
        return self.one(ways)

    def condition(self) -> None:
        head = self.single()
        outer_scope, outer_body = list(self.scope), self.body
        kinds = []
        for _ in range(self.one((1, 1, 2))):
            x = self.pick(lambda t: t.dtype != "i1")
            if x is not None:
                kinds.append(Type(x[1].dims, x[1].dtype, LIMIT))
        if not kinds:
            return
        bodies, yields = [], []
        self.branches += 1
        for _ in range(2):
            self.scope, self.body = list(outer_scope), []
            self.region(int(self.rng.integers(0, 3)), len(self.inside) + self.branches)
            results = []
            for kind in kinds:
                x = self.pick(lambda t, kind=kind: t.alike(kind))
                assert x is not None
                there = x[1].bound <= LIMIT and any(name == x[0] for name, _ in outer_scope) and self.chance(0.4)
                results.append(x[0] if there else self.assigned(f"small({x[0]})", kind))
            bodies.append(self.body)
            yields.append(results)
        self.branches -= 1
        self.scope, self.body = outer_scope, outer_body
        names = [(self.name(), kind) for kind in kinds]
        self.body.append(Block("cond", head, names, [], bodies, yields, self.label()))
        self.scope += names

    def function(self) -> None:
        """A function that reads what stands around it, called at once; some of them again with other arguments."""
        x = self.pick(lambda t: t.dtype != "i1")
        if x is None:
            return
        again = self.chance(0.4)
        outer_scope, outer_body = list(self.scope), self.body
        parameter, kind = self.name(), Type(x[1].dims, x[1].dtype, max(x[1].bound, LIMIT))
        self.body = []
        self.scope += [(parameter, kind)]
        self.branches += again  # what is called twice has no effects
        self.region(int(self.rng.integers(1, 3)), len(self.inside) + self.branches + 1)
        y = self.pick(lambda t: t.dtype != "i1" and t.bound <= LIMIT)
        result = (self.cast_to(y, x[1].dtype)[0], y[1].dims) if y is not None and self.chance(0.6) else ("1", ())
        given = Type(union(kind.dims, result[1]), kind.dtype, 2 * LIMIT)
        value = self.assigned(f"small({parameter}) + {result[0]}", given)
        self.branches -= again
        body, label = self.body, self.label()
        self.scope, self.body = outer_scope, outer_body
        made = self.name()
        self.body.append(Block("call", "", [(made, given)], [(parameter, kind, x[0])], [body], [[value]], label))
        self.scope.append((made, given))
        other = self.pick(lambda t: t.alike(kind) and t.bound <= kind.bound) if again else None
        if other is not None:
            self.let(self.body, f"{label}({other[0]})", given)

    def branch(self) -> None:
        """A small condition whose results are elementwise."""
        x, y, kind = self.pair()
        self.let(
            self.body, f"wd.cond({self.single()}, lambda: wd.maximum({x}, {y}), lambda: wd.minimum({x}, {y}))", kind
        )

    def repeat(self) -> None:
        """A loop that ends by itself after a few trips, the same in the whole workgroup."""
        x = self.pick(lambda t: t.dtype != "i1")
        if x is None:
            return
        outer_scope, outer_body = list(self.scope), self.body
        kind, counter = Type(x[1].dims, x[1].dtype, LIMIT), Type((), "i32", 9)
        start = f"small({x[0]})"
        value, n = self.name(), self.name()
        self.body = []
        self.scope += [(value, kind)]
        self.branches += 1
        self.region(int(self.rng.integers(0, 2)), 2)
        add = self.pick(lambda t: t.dtype != "i1" and set(t.dims) <= set(kind.dims))
        text = (
            self.cast_to((f"small({add[0]})", Type(add[1].dims, add[1].dtype)), kind.dtype)[0]
            if add is not None
            else "1"
        )
        result = self.assigned(f"small({value} + {text})", kind)
        up = self.name()
        self.body.append(Let(up, counter, f"{n} + 1"))
        self.branches -= 1
        limit = int(self.rng.integers(0, 4))
        head = f"{n} < {limit}"
        carried_dims = [d for d in kind.dims if d in self.cover or d in self.inside]
        if len(carried_dims) == len(kind.dims) and kind.dims and self.chance(0.5):
            text = f"{value} < 50"
            for d in reversed(kind.dims):
                text = f"wd.any({text}, dim={d})"
            head = f"({n} < {limit}) & {text}"
        body = self.body
        self.scope, self.body = outer_scope, outer_body
        names = [(self.name(), kind), (self.name(), counter)]
        carried = [(value, kind, start), (n, counter, counter.fill(0))]
        self.body.append(Block("while", head, names, carried, [body], [[result, up]], self.label()))
        self.scope += names
