"""Scans from the far end, rows of tuples of mixed dtypes, divisors below zero, random words, packed tables."""

from __future__ import annotations

from generator.program import Type
from generator.state import INTEGER_MAX, LIMIT, SUMS
from generator.values import Values

SEGMENTS = "lambda a, b: (a[0] | b[0], wd.where(b[0] != 0, b[1], a[1] + b[1]), wd.maximum(a[2], b[2]))"
"""Sums that begin again at every flag; the order of the operands counts."""
ANY_ORDER = "lambda a, b: (a[0] | b[0], a[1] + b[1], wd.maximum(a[2], b[2]))"


class Orders(Values):
    """Each method adds statements to `body`, or none where nothing in sight fits."""

    def backwards(self) -> None:
        """A scan of one value that begins at the row's end."""
        row = self.row()
        if row is None:
            return
        x, dim, n = row
        if self.chance(0.5):
            text, bound = self.fit(x, lambda b: b * n)
            made, bound = f"wd.cumsum({text}, dim={dim}, reverse=True)", bound * n
        else:
            how, start = self.one((("minimum", LIMIT), ("maximum", 0 if x[1].dtype[0] == "u" else -LIMIT)))
            made = f"wd.scan(small({x[0]}), lambda a, b: wd.{how}(a, b), {start}, dim={dim}, reverse=True)"
            bound = LIMIT
        self.let(self.body, made, Type(x[1].dims, x[1].dtype, bound))

    def segments_of(self) -> None:
        """A flag, a sum and a maximum along a row, of three dtypes: scanned either way or reduced, one or two of the
        results taken."""
        x = self.pick(lambda t: t.dtype != "i1" and bool(self.whole(t)))
        if x is None:
            return
        dim = self.one(self.whole(x[1]))
        kind, n = Type(x[1].dims, x[1].dtype), max(1, self.length(dim))
        flag, sums, most = self.one(("u8", "i32", "u16", "i64")), self.one(("f64", "f32", "i64", "i32")), x[1].dtype
        one = f"wd.Register[{', '.join((*kind.dims, f'wd.{flag}'))}](1)"
        starts = f"wd.where({x[0]} > {self.one((1, 2, 10))}, {one}, 0)"
        added = self.cast_to((f"small({x[0]})", kind), sums)[0]
        least = 0 if most[0] == "u" else -LIMIT
        how, dims, back = self.one((
            ("scan", kind.dims, ""), ("scan", kind.dims, ", reverse=True"),
            ("reduce", tuple(d for d in kind.dims if d != dim), ""),
        ))  # fmt: skip
        join = SEGMENTS if how == "scan" else ANY_ORDER
        rows = f"wd.{how}(({starts}, {added}, small({x[0]})), {join}, (0, 0, {least}), dim={dim}{back})"
        results = (Type(dims, flag, 1), Type(dims, sums, LIMIT * n), Type(dims, most, LIMIT))
        which = self.one((0, 1, 1, 2))
        if self.chance(0.5):
            self.let(self.body, f"{rows}[{which}]", results[which])
            return
        other = (which + 1) % 3  # two results of one operation, added up
        other_text = self.cast_to((f"small({rows}[{other}])", Type(dims, results[other].dtype)), "i64")[0]
        text = self.cast_to((f"small({rows}[{which}])", Type(dims, results[which].dtype)), "i64")[0]
        self.let(self.body, f"{text} * 3 + {other_text}", Type(dims, "i64", 4 * LIMIT))

    def below_zero(self) -> None:
        """Quotients and remainders by numbers of either sign: both floor."""
        x = self.number()
        how = self.one(("//", "%"))
        if x[1].dtype in SUMS:
            text, _ = self.fit(x, lambda b: b * 64)
            self.let(self.body, f"small({text}) {how} {self.one((-3.0, -7.0, -16.0))}", Type(x[1].dims, x[1].dtype))
            return
        kind = x[1]
        if kind.dtype[0] == "u" or self.chance(0.4):  # large dividends of any dtype, by what is no power of two
            top = INTEGER_MAX[kind.dtype]
            divisor = self.one((1, 2, 5, 6, 7, 11, 25, 27, 63, 100, 125, 127))
            large = f"({x[0]} * {self.one((17, 77, 101))} ^ {x[0]} << 3)"
            self.let(self.body, f"{large} {how} {divisor}", Type(kind.dims, kind.dtype, top))
        elif self.chance(0.6):
            self.let(self.body, f"{x[0]} {how} {self.one((-2, -3, -7, -8, -16, -100))}", kind)
        else:
            other = self.cast_to(self.number(), kind.dtype)
            dims = tuple(dict.fromkeys((*kind.dims, *other[1].dims)))
            if len(other[1].dims) > len(kind.dims):
                dims = tuple(dict.fromkeys((*other[1].dims, *kind.dims)))
            self.let(self.body, f"{x[0]} {how} (({other[0]} & 7) * 2 - 9)", Type(dims, kind.dtype, kind.bound))

    def looked_up(self) -> None:
        """Rows of a packed table by numbers of them, and single elements of it."""
        x = self.pick(lambda t: t.dtype in ("i32", "i64", "u32", "u8", "i16") and len(t.dims) > 0)
        if x is None or not self.even("W"):
            return
        dims, where = x[1].dims, self.cast_to(x, "i32")[0]
        table = self.array(("V", "W"), self.one(("i4", "u4")), -8, 7)
        table.spread = "plain"
        column = self.one((dims[-1], dims[-1], f"{dims[-1]} // 2", f"{dims[-1]} + 2", f"{dims[-1]} + 1", ""))
        if column:  # rows of which every number has a dimension less
            numbers = [f"wd.index({dims[0]}) * 3 % 44 - 1", dims[0]]
            if dims[-1] in self.whole(x[1]):
                numbers.append(f"wd.sum({where}, dim={dims[-1]}) % 44 - 1")
            row = self.one(numbers)
        else:
            row, column = f"{where} % 44 - 1", f"{where} * 5 % 67 - 1"
        places = f"wd.IndexMapping(({''.join(f'{d}, ' for d in dims)}), {{V: {row}, W: {column}}})"
        self.let(self.body, f"wd.cast(wd.read({table.name}, mapping={places}), wd.i32)", Type(dims, "i32", 15))

    def words(self) -> None:
        """Random numbers from further on in the sequence, and as fractions."""
        dims = tuple(d for d in self.here() if d in ("M", "N"))[:2]
        if not dims:
            return
        key = self.one((int(self.rng.integers(1000)), "flag", (1 << 31) - 1))
        offset = self.one((1, "flag", 1 << 20))
        if self.chance(0.5):
            text = f"wd.cast(wd.random({key}, {', '.join(dims)}, offset={offset}, dtype=wd.u32) >> 27, wd.i32)"
        else:
            text = f"wd.cast(wd.random({key}, {', '.join(dims)}, offset={offset}) * 32.0, wd.i32)"
        self.let(self.body, text, Type(dims, "i32", 32))
