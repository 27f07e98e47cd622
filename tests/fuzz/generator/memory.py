"""Statements that touch memory beside plain reads and writes, and matrix products with the operands that they read."""

from __future__ import annotations

from abc import ABC, abstractmethod

from generator.program import Array, Do, Let, Type
from generator.state import BLOCK, EXACT, LIMIT, PACKED, PRODUCTS, SUMS, VALUES, State


class Memory(State, ABC):
    """Each method adds a statement to `body`, or none where nothing in sight fits."""

    # ---- memory

    def gather(self) -> None:
        x = self.number()
        place = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), self.one(("i32", "i32", "i64")))[0]
        table = self.table()
        dims = "".join(f"{d}, " for d in x[1].dims)
        self.let(
            self.body, f"wd.read({table.name}, mapping=wd.IndexMapping(({dims}), {{V: {place} - 3}}))",
            Type(x[1].dims, table.dtype, table.high),
        )  # fmt: skip

    def table(self) -> Array:
        known = [a for a in self.program.arrays if a.dims == ("V",) and a.name not in self.atomics]
        if known and self.chance(0.7):
            return self.one(known)
        dtype = self.one(("i32", "f32", "f16", "i8", "f64"))
        return self.array(("V",), dtype, -20, 20)

    def shifted(self) -> None:
        """A read displaced along its dimensions: what lies outside is 0."""
        here = self.here()
        if len(here) < 1 or self.inside:
            return
        dims = tuple(here[: 1 + int(self.rng.integers(min(2, len(here))))])
        dtype = self.one(VALUES)
        low, high = self.span(dtype)
        array = self.array(dims, dtype, low, high)
        places = ", ".join(f"{d}: {d} {self.one(('+ 1', '- 2', '+ 5', '* 2', '// 2'))}" for d in dims)
        inner = ", ".join(dims) + ","
        self.let(
            self.body,
            f"wd.read({array.name}, mapping=wd.IndexMapping(({inner}), {{{places}}}))",
            Type(dims, dtype, high),
        )

    def parts(self) -> None:
        """One of the halves of an array that is twice as long as its value, or of each pair of neighbours."""
        here = self.here()
        if len(here) < 2:
            return
        dims = (here[0], self.one(here[1:]))
        dtype = self.one(VALUES)
        low, high = self.span(dtype)
        array = self.array((*(("B",) if self.batch else ()), dims[0], f"2 * {dims[1]}"), dtype, low, high)
        for part in self.one(((":{}", "{}:"), ("::2", "1::2"), ("{}:",), ("1::2",), ("::2", "{}:"))):
            subscript = ", ".join([":"] * (len(array.dims) - 1) + [part.format(dims[1])])
            self.value_of(f"{array.name}[{subscript}]", dims, dtype, high)

    def tally(self) -> None:
        """Atomics on a few places, in any order."""
        x = self.number()
        how, start = self.one((("add", 0), ("add", 0), ("max", -99), ("min", 99)))
        name = f"bins{len(self.atomics)}"
        self.program.arrays.append(Array(name, ("V",), "i32", start, start))
        self.atomics.add(name)
        place = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), "i32")[0]
        dims = "".join(f"{d}, " for d in x[1].dims)
        if x[1].dims:
            one = Type(x[1].dims, "i32").fill(int(self.rng.integers(1, 4)))
            self.body.append(Do(f"wd.atomic_{how}({one}, {name}, mapping=wd.IndexMapping(({dims}), {{V: {place}}}))"))

    def unique_atomic(self) -> None:
        """An atomic on a place of its own per element: what it gives is used, and read back behind a fence."""
        x = self.pick(
            lambda t: t.dtype in ("i32", "f32", "u32", "i64", "f16", "bf16", "f64", "i16") and self.mine(t.dims)
        )
        if x is None or self.branches:
            return
        name = f"bins{len(self.atomics)}"
        start = self.one((0, 5))
        dims = x[1].dims
        text, bound = f"small({x[0]})", LIMIT
        self.program.arrays.append(Array(name, dims, x[1].dtype, start, start))
        self.atomics.add(name)
        how = self.one(("add", "add", "max", "min", "xchg"))
        trips = 1
        for d in self.inside:
            trips *= -(-self.program.sizes[d] // self.loops[d])
        bound = LIMIT * trips + 5
        if x[1].dtype in EXACT and bound > EXACT[x[1].dtype]:
            how, bound = "max", LIMIT
        self.let(self.body, f"wd.atomic_{how}({text}, {name})", Type(dims, x[1].dtype, bound))
        if self.chance(0.6):
            self.body.append(Do("wd.fence()"))
            self.let(self.body, f"wd.read({name})", Type(dims, x[1].dtype, bound + LIMIT))
            self.body.append(Do("wd.fence()"))

    def mine(self, dims: tuple[str, ...]) -> bool:
        """Whether no other workgroup has the same elements of an array of these dimensions."""
        return bool(dims) and self.split <= set(dims) and not self.batch and not set(dims) & set(self.inside)

    def fence(self) -> None:
        self.body.append(Do("wd.fence()"))

    def state(self) -> None:
        """Reads an array, changes it, writes it back; read again in another place behind a fence."""
        here = [d for d in self.dims if d not in self.loops]
        dims = tuple(d for d in here if d in self.split or self.chance(0.7))[:2]
        if not self.mine(dims) or self.branches:
            return
        name, dtype = f"bins{len(self.atomics)}", self.one(("f32", "i32", "f16", "i16", "u8"))
        self.program.arrays.append(Array(name, dims, dtype, 7, 7))
        self.atomics.add(name)
        old = self.let(self.body, f"wd.read({name})", Type(dims, dtype, LIMIT))
        more = self.pick(lambda t: t.dtype != "i1" and set(t.dims) <= set(dims))
        add = self.cast_to(more, dtype)[0] if more is not None else "1"
        own = all(self.waves.get(d, 1) == 1 or d in dims for d in ("M", "N"))
        if not own or self.chance(0.3):
            self.body.append(Do("wd.fence()"))
        new = self.let(self.body, f"small({old[0]} + {add})", Type(dims, dtype, LIMIT))
        self.body.append(Do(f"wd.write(wd.broadcast({new[0]}, {', '.join(dims)}), {name})"))
        self.body.append(Do("wd.fence()"))
        if self.chance(0.6) and set(dims) <= self.cover:
            shift = ", ".join(f"{d}: {d} {self.one(('+ 1', '- 1', '- 2'))}" for d in dims)
            self.let(
                self.body,
                f"wd.read({name}, mapping=wd.IndexMapping(({', '.join(dims)},), {{{shift}}}))",
                Type(dims, dtype, LIMIT),
            )
            self.body.append(Do("wd.fence()"))

    # ---- products

    @abstractmethod
    def widened_operand(self, free: str, inner: str) -> tuple[str, Type] | None: ...

    def product(self) -> None:
        """A product over a dimension of which the workgroup holds all, or the trip its tile."""
        here = dict.fromkeys(self.here())  # a loop's dimension is the workgroup's as well
        free = [d for d in here if d in self.dims]
        over = [d for d in here if d in self.cover or d in self.inside]
        if len(free) < 2 or not over:
            return
        inner = self.one(over)
        outer = [d for d in free if d != inner]
        if len(outer) < 2:
            return
        left, right = (outer[0], outer[1]) if self.chance(0.7) else (outer[1], outer[0])
        self.multiply(left, right, inner, None)

    def operand_of(self, free: str, inner: str) -> tuple[str, Type]:
        """An operand [free, inner]: read as it is, row by row from where a table says, or computed."""
        made = self.pick(lambda t: set(t.dims) == {free, inner} and t.dtype != "i1")
        if made is not None and self.chance(0.5):
            return self.cast_to(made, self.operand)
        if self.chance(0.15) and self.operand not in PACKED:  # rows of packed arrays are not gathered
            return self.gathered_rows(free, inner)
        if self.chance(0.12) and self.operand not in PACKED:
            return self.sequence(free, inner)
        if self.chance(0.12):
            widened = self.widened_operand(free, inner)
            if widened is not None:
                return widened
        return self.read((free, inner), self.operand)

    def gathered_rows(self, free: str, inner: str) -> tuple[str, Type]:
        """An operand whose rows, or columns, lie at numbers that are read or computed; some are outside."""
        by, along = (free, inner) if self.chance(0.6) else (inner, free)
        low, high = self.span(self.operand, self.operand not in VALUES)
        order = ("W", along) if self.chance(0.8) else (along, "W")
        batch = ("B",) if self.batch and self.chance(0.5) else ()
        table = self.array((*batch, *order), self.operand, low, high, self.one(("SHARED", "GLOBAL", None, None)))
        if self.chance(0.7):
            numbers = self.array((by,), self.one(("i32", "i32", "i64")), -2, self.program.sizes["W"])
            row = f"wd.read({numbers.name})"
            if self.chance(0.3):
                row = f"wd.where(wd.index({by}) % 5 < 4, {row}, -1)"
            elif self.chance(0.2):
                row = f"wd.cast({row}, wd.i32) // 4 * 4 + wd.index({by}) % 4"
        else:
            row = f"(wd.index({by}) * {self.one((1, 3, 7))} + flag) % {self.program.sizes['W'] + 1}"
        dims = (free, inner) if self.chance(0.8) else (inner, free)
        name, kind = self.name(), Type(dims, self.operand, high)
        mapping = f"wd.IndexMapping(({', '.join(dims)}), {{W: {row}}})"
        self.body.append(Let(name, kind, f"wd.read({table.name}, mapping={mapping})"))
        if self.operand in VALUES:
            self.scope.append((name, kind))
        return name, kind

    def sequence(self, free: str, inner: str) -> tuple[str, Type]:
        """Rows of one sequence among others: from a number on that is read or passed, as far as another one says."""
        by, along = (free, inner) if self.chance(0.7) else (inner, free)
        sizes = self.program.sizes
        last = sizes[by]
        dtype = self.operand
        low, high = self.span(dtype, dtype not in VALUES)
        name = f"S{sum(s[0] == 'S' for s in sizes)}"
        sizes[name] = last + int(self.one((0, 3, 16)))
        multiple = self.one((4, 8, 16)) if self.chance(0.3) else 1
        order = (name, along) if self.chance(0.85 if multiple == 1 else 0.4) else (along, name)
        batch = ("B",) if self.batch and self.chance(0.5) else ()
        table = self.array((*batch, *order), dtype, low, high, self.one(("SHARED", "GLOBAL", None, None)))
        if multiple > 1:
            first = f"{self.single_number(-1, 3)} * {multiple}"
        else:
            first = self.one(("flag", str(self.one((1, 5, 16))), self.single_number(0, 18), self.single_number(-2, 18)))
        place = f"wd.index({by}) + {first}"
        if self.chance(0.5):
            count = self.one((self.single_number(0, last + 3), str(max(1, last // 2))))
            place = f"wd.where(wd.index({by}) < {count}, {place}, -1)"
        made, kind = self.name(), Type((free, inner), dtype, high)
        mapping = f"wd.IndexMapping(({free}, {inner}), {{{name}: {place}}})"
        self.body.append(Let(made, kind, f"wd.read({table.name}, mapping={mapping})"))
        if dtype in VALUES:
            self.scope.append((made, kind))
        return made, kind

    def single_number(self, low: int, high: int) -> str:
        """A number that the kernel reads: one for all, or each batch's own."""
        if self.batch and self.chance(0.6):
            table, place = self.array(("B",), "i32", low, high), ""
        else:
            self.program.sizes["ONE"] = 1
            table = self.array(("ONE",), "i32", low, high)
            place = ", mapping=wd.IndexMapping((), {ONE: 0})"
        table.spread = "plain"
        name = self.name()
        self.body.append(Let(name, Type((), "i32", high), f"wd.read({table.name}{place})"))
        return name

    def second_product(self) -> None:
        """Of kernels whose columns F nothing cuts: what a product [M, F] goes into."""
        first = self.pick(lambda t: set(t.dims) == {"M", "F"} and t.dtype != "i1")
        if first is None:
            return
        text, kind = first
        if self.chance(0.3):  # a reduction along these columns
            best = self.let(self.body, f"wd.max({text}, dim=F)", Type(("M",), kind.dtype, kind.bound))
            text, _ = self.let(self.body, f"small({best[0]} - {text})", Type(kind.dims, kind.dtype, LIMIT))
        self.let(self.body, f"small({text})", Type(kind.dims, kind.dtype, LIMIT))
        sums = PRODUCTS[self.operand]
        acc = self.pick(lambda t: t.dims == ("M", "N") and t.dtype == sums and t.bound <= LIMIT)
        found = self.multiply("M", "N", "F", acc if self.chance(0.5) else None)
        if found is not None and found not in self.scope:
            self.scope.append(found)

    def added(self) -> None:
        """Sums, or products, along a dimension that workgroups share: each adds its part."""
        if self.batch or self.branches or self.inside:
            return
        shared = [d for d in ("M", "N") if d in self.split]
        x = self.pick(lambda t: t.dtype in ("f32", "i32", "f64", "f16", "bf16", "i16") and bool({*t.dims} & {*shared}))
        if x is None:
            return
        dim = self.one([d for d in x[1].dims if d in shared])
        rest = tuple(d for d in x[1].dims if d != dim)
        if not {*shared} - {dim} <= {*rest}:
            return
        other = self.one([d for d in self.here() if d in self.dims and d not in x[1].dims] or [None])
        text, sums = f"small({x[0]})", self.one(("i32", "f32"))
        if other is not None and len(rest) == 1 and self.operand in EXACT and self.operand != "tf32":
            right = self.read((other, dim), self.operand)
            left = self.cast_to((text, Type(x[1].dims, x[1].dtype)), self.operand)[0]
            sums, rest = PRODUCTS[self.operand], (*rest, other)
            value = f"wd.mma({left}, {right[0]})"
            bound = LIMIT * right[1].bound * self.program.sizes[dim]
        else:
            value = f"wd.sum({self.cast_to((text, Type(x[1].dims, x[1].dtype)), sums)[0]}, dim={dim})"
            bound = LIMIT * self.program.sizes[dim]
        if not rest or bound > SUMS.get(sums, 1 << 30):
            return
        name = f"bins{len(self.atomics)}"
        self.program.arrays.append(Array(name, rest, sums, 3, 3))
        self.atomics.add(name)
        self.body.append(Do(f"wd.atomic_add({value}, {name})"))

    def multiply(self, left: str, right: str, inner: str, acc: tuple[str, Type] | None) -> tuple[str, Type] | None:
        a, b = self.operand_of(left, inner), self.operand_of(right, inner)
        sums = PRODUCTS[self.operand]
        trips = self.program.sizes[inner]
        ta, ba = self.bring(a, 3) if a[1].bound * b[1].bound * trips > SUMS.get(sums, 1 << 62) else (a[0], a[1].bound)
        tb, bb = self.bring(b, LIMIT) if ba * b[1].bound * trips > SUMS.get(sums, 1 << 62) else (b[0], b[1].bound)
        dims = (left, right)
        bound = ba * bb * trips
        how = ""
        if self.operand == "f32" and not self.special and self.chance(0.5) and max(ba, bb) <= EXACT["tf32"]:
            how = self.one((", precision='tf32'", ", precision='3xtf32'"))
        if acc is None:
            start = self.chance(0.4)
            given = f", {Type(dims, sums).fill(self.one((0, 0, 2)))}" if start else ""
            text = f"wd.mma({ta}, {tb}{given}{how})"
            kind = [d for d in a[1].dims if d != inner] + [d for d in b[1].dims if d != inner]
            return self.let(self.body, text, Type(dims if start else tuple(kind), sums, bound + 2))
        name = self.name()
        kind = Type(acc[1].dims, sums, acc[1].bound)
        self.body.append(Let(name, kind, f"wd.mma({ta}, {tb}, {acc[0]}{how})"))
        return name, kind

    def scaled_product(self, acc: tuple[str, Type]) -> tuple[str, Type]:
        """A step of a loop over K with a scale for each block of it."""
        assert self.scaled is not None
        parts = []
        for free, dtype in zip(acc[1].dims, self.scaled):
            batch = ("B",) if self.batch and self.chance(0.6) else ()
            for dims, kind, low, high in ((("K",), dtype, -3, 3), ((f"K / {BLOCK}",), "f8e8m0", 127, 128)):
                space = self.one(("SHARED", "GLOBAL", None)) if kind == dtype else None
                made = Array(f"a{len(self.program.arrays)}", (*batch, free, *dims), kind, low, high, space)
                self.program.arrays.append(made)
                parts.append(f"wd.read({made.name})")
        name = self.name()
        self.body.append(Let(name, acc[1], f"wd.scaled_mma({', '.join(parts)}, {acc[0]})"))
        return name, acc[1]

    def bring(self, value: tuple[str, Type], to: int) -> tuple[str, int]:
        """An operand's text with a smaller bound."""
        text, kind = value
        if kind.dtype in VALUES:
            low = 0 if kind.dtype[0] == "u" else -to
            return f"wd.clamp({text}, {low}, {to})", to
        return f"wd.cast(wd.clamp(wd.cast({text}, wd.f32), {-to}, {to}), wd.{kind.dtype})", to
