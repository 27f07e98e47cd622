"""Statements that compute: elementwise, comparisons, casts, reductions, scans, sorts, shapes, random numbers.

Functions that chips approximate are written so that they round to a whole number with room to spare.
"""

from __future__ import annotations

from collections.abc import Callable

from generator.program import Type
from generator.state import INTEGER_MAX, LIMIT, SUMS, VALUES, State, union


class Values(State):
    """Each method adds a statement to `body`, or none where nothing in sight fits."""

    def more(self) -> None:
        self.read()

    def unary(self) -> None:
        value = self.number()
        text, kind = value
        if kind.dtype in SUMS:
            how = self.one(
                (
                    "-{}",
                    "abs({})",
                    "wd.floor({} * 0.5)",
                    "wd.ceil({} * 0.25)",
                    "wd.round({} * 0.5)",
                    "{} * 2.0",
                    "{} + 1.0",
                )
            )
            text, bound = self.fit(value, lambda b: 2 * b + 1)
        else:
            how = self.one(("-{}", "abs({})", "~{}", "{} >> 1", "{} << 1", "{} + 3", "{} * 3"))
            bound = kind.bound
            if kind.dtype[0] == "u" and how[0] in "-~":
                bound = INTEGER_MAX[kind.dtype]
        self.let(self.body, how.format(text), Type(kind.dims, kind.dtype, 3 * bound + 3))

    def pair(self, worst: Callable[[int], int] = lambda b: 2 * b) -> tuple[str, str, Type]:
        """Two values' texts in one dtype, and the type of what is computed from both."""
        x = self.number()
        y = self.cast_to(self.number(), x[1].dtype)
        left, a = self.fit(x, worst)
        right, b = self.fit(y, worst)
        return left, right, Type(union(x[1].dims, y[1].dims), x[1].dtype, max(a, b))

    def binary(self) -> None:
        how = self.one(("{} + {}", "{} - {}", "{} * {}", "wd.minimum({}, {})", "wd.maximum({}, {})"))
        product = "*" in how
        x, y, kind = self.pair((lambda b: b * b) if product else (lambda b: 2 * b))
        bound = kind.bound * kind.bound if product else 2 * kind.bound
        if kind.dtype[0] == "u" and "-" in how:
            bound = INTEGER_MAX[kind.dtype]
        if kind.dtype in SUMS and bound > SUMS[kind.dtype]:  # one small and one large factor
            x, y, bound = f"small({x})", f"small({y})", LIMIT * LIMIT
        self.let(self.body, how.format(x, y), Type(kind.dims, kind.dtype, bound))

    def fma(self) -> None:
        x, y, kind = self.pair(lambda b: b * b * 2)
        if kind.dtype in SUMS and 2 * kind.bound * kind.bound > SUMS[kind.dtype]:
            x, y, kind = f"small({x})", f"small({y})", Type(kind.dims, kind.dtype, LIMIT)
        self.let(
            self.body, f"wd.fma({x}, {y}, {x})", Type(kind.dims, kind.dtype, 2 * kind.bound * kind.bound + kind.bound)
        )

    def compare(self) -> None:
        x, y, kind = self.pair()
        mask = f"{x} {self.one(('<', '<=', '>', '>=', '==', '!='))} {y}"
        old = self.pick(lambda t: t.dtype == "i1")
        if old is not None and self.chance(0.5):
            joined = self.one(("({}) & {}", "({}) | {}", "({}) ^ {}", "~({}) & {}"))
            self.let(self.body, joined.format(mask, old[0]), Type(union(kind.dims, old[1].dims), "i1", 1))
        else:
            self.let(self.body, mask, Type(kind.dims, "i1", 1))

    def mask(self, dims: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """A condition per element."""
        old = self.pick(lambda t: t.dtype == "i1" and set(t.dims) <= set(dims))
        if old is not None and self.chance(0.5):
            return old[0], old[1].dims
        if len(dims) > 1 and self.chance(0.3):
            return f"wd.index({dims[0]}) >= wd.index({dims[1]})", dims[:2]
        if dims and self.chance(0.4):
            return f"wd.index({dims[-1]}) % 3 < 2", dims[-1:]
        name, kind = self.number()
        return f"{name} > {self.one((0, 3, 10))}", kind.dims

    def choose(self) -> None:
        x, y, kind = self.pair()
        mask, dims = self.mask(kind.dims)
        self.let(self.body, f"wd.where({mask}, {x}, {y})", Type(union(kind.dims, dims), kind.dtype, kind.bound))

    def bits(self) -> None:
        x, y, kind = self.pair()
        if kind.dtype in SUMS:
            x, kind = self.cast_to((x, kind), "i32")
            y = (
                f"wd.cast({y}, wd.i32)"
                if x.startswith("wd.cast(v") or "small" not in x
                else f"wd.cast(small({y}), wd.i32)"
            )
        how = self.one(("{} & {}", "{} | {}", "{} ^ {}", "{} >> ({} & 3)", "{} << ({} & 3)"))
        self.let(self.body, how.format(x, y), Type(kind.dims, kind.dtype, INTEGER_MAX[kind.dtype]))

    def divide(self) -> None:
        """Whole quotients and remainders; nothing is divided by 0."""
        x = self.number()
        if x[1].dtype in SUMS:
            text, bound = self.fit(x, lambda b: b * 64)
            if self.chance(0.5):
                other = self.cast_to(self.number(), x[1].dtype)
                divisor, _ = self.fit(other, lambda b: b * 64)
                dims = union(x[1].dims, other[1].dims)
                self.let(self.body, f"wd.floor({text} / (abs({divisor}) + 1.0))", Type(dims, x[1].dtype, bound))
            else:
                self.let(
                    self.body,
                    f"{text} {self.one(('//', '%'))} {self.one((3.0, 7.0, 16.0))}",
                    Type(x[1].dims, x[1].dtype, bound),
                )
            return
        how = self.one(("//", "%"))
        if self.chance(0.5):
            self.let(self.body, f"{x[0]} {how} {self.one((3, 7, 8, 10, 16, 100))}", x[1])
        else:
            other = self.cast_to(self.number(), x[1].dtype)
            divisor = f"(({other[0]} & 15) + 1)"
            self.let(
                self.body, f"{x[0]} {how} {divisor}", Type(union(x[1].dims, other[1].dims), x[1].dtype, x[1].bound)
            )

    def rounded(self) -> None:
        """A function that chips approximate, where its value is next to a whole number."""
        x = self.number()
        text, _ = self.cast_to(
            x, self.one(("f32", "f32", "f16", "bf16")) if x[1].dtype not in ("f32", "f16", "bf16") else x[1].dtype
        )
        dtype = x[1].dtype if x[1].dtype in ("f32", "f16", "bf16") else text[text.rindex("wd.") + 3 : -1]
        text = f"small({text})"
        form, bound = self.one((
            ("wd.exp2({} * 0.0 + wd.floor(abs({}) * 0.1))", 64), ("wd.sqrt({} * {})", 60), ("wd.tanh({} * 20.0)", 1),
            ("wd.erf({} * 20.0)", 1), ("wd.sigmoid({} * 40.0 + 20.0)", 1), ("wd.cos(({} % 8.0) * 3.14159274)", 1),
            ("wd.sin({} * 0.0) + 1.0", 1), ("wd.log2(wd.exp2(wd.floor({} * 0.125)))", 8),
            ("wd.log(wd.exp({} * 0.0625)) * 16.0", 61),
            ("wd.reciprocal(abs({}) + 1.0) * (abs({}) + 1.0)", 1), ("wd.rsqrt(abs({}) + 1.0) * 0.25", 1),
            ("wd.pow(abs({}) * 0.125, 2.0) * 0.0 + 2.0", 2), ("{}**2 * 0.03125", 128), ("wd.exp({} * 0.0) * 3.0", 3),
        ))  # fmt: skip
        if self.chance(0.3):  # near enough, too
            for name in ("tanh", "sigmoid", "exp2"):
                if form.startswith(f"wd.{name}("):
                    form = f"{form[:-1]}, fast=True)"
        exact = {"f16": 2048, "bf16": 256, "f32": 1 << 24}[dtype]
        name = self.let(self.body, text, Type(x[1].dims, dtype, LIMIT))[0]
        # Narrow floats round each operation: a product is only next to a whole number in f32.
        if dtype != "f32" and (
            "reciprocal" in form or "log" in form or "**2" in form or "rsqrt" in form or "pow" in form
        ):
            form, bound = "wd.sqrt({} * {})", 60
            if dtype == "bf16":
                form, bound = "wd.tanh({} * 20.0)", 1
        if "**2" in form:
            form = "wd.floor({}**2 * 0.03125)"
            self.let(self.body, form.format(*[name] * 4), Type(x[1].dims, dtype, min(bound, exact)))
            return
        self.let(self.body, f"wd.round({form.format(*[name] * 4)})", Type(x[1].dims, dtype, min(bound, exact)))

    def fractions(self) -> None:
        """Operations whose results have to be rounded, each to its dtype, until a whole number comes of them."""
        x = self.number()
        dtype = x[1].dtype if x[1].dtype in SUMS else self.one(("f16", "bf16", "f32"))
        text = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), dtype)[0]
        name = self.let(self.body, text, Type(x[1].dims, dtype))[0]
        other = self.one([d for d in ("f16", "bf16", "f32") if d != dtype])
        form = self.one((
            "wd.floor({} * 0.1)", "wd.floor(({} * 0.1 + 0.3) * 1.7)", "wd.ceil({} / 7.0 * 1.1)",
            "wd.round({} * 0.37 - 0.5)", "wd.floor(wd.fma({}, {}, {} * 0.3) * 0.01)",
            "wd.where({} * 0.7 - wd.floor({} * 0.7) < 0.3, {}, 1.0)",
            f"wd.floor(wd.cast(wd.cast({{}} * 0.37, wd.{other}), wd.{dtype}) * 3.0)",
            f"wd.cast(wd.floor(wd.cast({{}} * 0.1, wd.{other}) * 5.0), wd.{dtype})",
        ))  # fmt: skip
        self.let(self.body, f"small({form.format(name, name, name)})", Type(x[1].dims, dtype, LIMIT))

    def cast(self) -> None:
        x = self.pick()
        if x is None:
            return
        to = self.one(VALUES)
        text, kind = self.cast_to(x, to)
        if x[1].dtype in SUMS and to in SUMS and to != x[1].dtype and self.chance(0.5):
            text = text[:-1] + f", rounding={self.one(('nearest_even', 'toward_zero'))!r})"
        bound = kind.bound
        if to[0] == "u" and x[1].dtype[0] != "u" and x[1].dtype not in SUMS and x[1].dtype != "i1":
            bound = INTEGER_MAX[to]
        self.let(self.body, text, Type(kind.dims, to, bound))

    def bitcast(self) -> None:
        x = self.number()
        twin = {
            "i32": "u32",
            "u32": "i32",
            "i16": "u16",
            "u16": "i16",
            "i64": "u64",
            "u64": "i64",
            "i8": "u8",
            "u8": "i8",
        }
        if x[1].dtype in twin:
            to = twin[x[1].dtype]
            self.let(self.body, f"wd.bitcast({x[0]}, wd.{to})", Type(x[1].dims, to, INTEGER_MAX[to]))
        elif x[1].dtype == "f32":
            self.let(self.body, f"wd.bitcast(abs({x[0]}), wd.i32) >> 23", Type(x[1].dims, "i32", 255))
        elif x[1].dtype in ("f16", "bf16"):
            self.let(self.body, f"wd.bitcast(wd.bitcast({x[0]}, wd.i16), wd.{x[1].dtype})", x[1])

    def index(self) -> None:
        here = self.here()
        self.let(self.body, f"wd.index({self.one(here)}) % 50", Type((), "i32", 50)) if not here else self.index_of(
            self.one(here)
        )

    def index_of(self, dim: str) -> None:
        self.let(self.body, f"wd.index({dim}) % 50", Type((dim,), "i32", 50))

    def from_outside(self) -> None:
        """A helper function that reads a global."""
        if self.program.globe is not None:
            x = self.number()
            self.let(self.body, f"moved({x[0]})", Type(x[1].dims, x[1].dtype, LIMIT))

    def here(self) -> list[str]:
        """Dimensions that values may have at this place."""
        return [d for d in (*self.dims, *self.inside) if d not in self.loops or d in self.inside][
            : len({*self.dims, *self.inside})
        ]

    def whole(self, t: Type) -> list[str]:
        """Dimensions of which the workgroup holds all, or the trip its tile."""
        return [d for d in t.dims if d in self.cover or d in self.inside]

    def length(self, dim: str) -> int:
        if dim in self.program.sizes:
            return min(self.program.sizes[dim], self.loops.get(dim, 1 << 30))
        return self.program.subs[dim]

    def reduce(self) -> None:
        x = self.pick(lambda t: bool(self.whole(t)))
        if x is None:
            return
        dim = self.one(self.whole(x[1]))
        dims = tuple(d for d in x[1].dims if d != dim)
        if x[1].dtype == "i1":
            self.let(self.body, f"wd.{self.one(('any', 'all'))}({x[0]}, dim={dim})", Type(dims, "i1", 1))
            return
        how = self.one(("sum", "sum", "sum", "max", "min", "argmax", "argmin", "any", "reduce"))
        n = max(1, self.length(dim))
        if how == "any":
            self.let(self.body, f"wd.any({x[0]} > 3, dim={dim})", Type(dims, "i1", 1))
        elif how == "reduce":
            text, bound = self.fit(x, lambda b: b)
            identity = 0 if x[1].dtype[0] == "u" else -LIMIT
            self.let(
                self.body,
                f"wd.reduce(small({text}), lambda a, b: wd.maximum(a, b), {identity}, dim={dim})",
                Type(dims, x[1].dtype),
            )
        elif how[:3] == "arg":
            self.let(self.body, f"wd.{how}({x[0]}, dim={dim}) % 50", Type(dims, "i32", 50))
        elif how == "sum":
            text, bound = self.fit(x, lambda b: b * n)
            self.let(self.body, f"wd.sum({text}, dim={dim})", Type(dims, x[1].dtype, bound * n))
        else:  # an empty tile would give an infinity
            self.let(self.body, f"wd.{how}({x[0]}, dim={dim})", Type(dims, x[1].dtype, x[1].bound))

    def row(self) -> tuple[tuple[str, Type], str, int] | None:
        """A value, a dimension that one wave has whole rows of, and its length; None where nothing in sight has one."""
        x = self.pick(lambda t: t.dtype != "i1" and bool(self.whole(t)))
        if x is None:
            return None
        dim = self.one(self.whole(x[1]))
        return x, dim, max(1, self.length(dim))

    def scan(self) -> None:
        row = self.row()
        if row is None:
            return
        x, dim, n = row
        if self.chance(0.5):
            text, bound = self.fit(x, lambda b: b * n)
            self.let(self.body, f"wd.cumsum({text}, dim={dim})", Type(x[1].dims, x[1].dtype, bound * n))
        else:
            self.let(
                self.body,
                f"wd.scan(small({x[0]}), lambda a, b: wd.minimum(a, b), {LIMIT}, dim={dim})",
                Type(x[1].dims, x[1].dtype),
            )

    def tuples(self) -> None:
        """Rows of pairs: the best element with the first place that has it, or a line a x + b after the one before."""
        x = self.pick(lambda t: t.dtype != "i1" and bool(self.whole(t)))
        if x is None:
            return
        dim = self.one(self.whole(x[1]))
        kind = Type(x[1].dims, x[1].dtype)
        if self.chance(0.5):
            first = self.cast_to((f"small({x[0]})", kind), "i32")[0]
            better = "(b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))"
            join = f"lambda a, b: (wd.where({better}, b[0], a[0]), wd.where({better}, b[1], a[1]))"
            start = f"({-LIMIT - 1}, 9999)"
            how, last = self.one((("reduce", tuple(d for d in kind.dims if d != dim)), ("scan", kind.dims)))
            text = f"wd.{how}(({first}, wd.index({dim})), {join}, {start}, dim={dim})[{self.one((0, 1))}]"
            self.let(self.body, f"wd.clamp({text}, 0, 100)", Type(last, "i32", 100))
            return
        sign = f"wd.where({x[0]} > 1, wd.Register[{', '.join((*kind.dims, 'wd.i32'))}](-1), 1)"
        add = self.cast_to((f"small({x[0]})", kind), "i32")[0]
        join = "lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])"
        text = f"wd.scan(({sign}, {add}), {join}, (1, 0), dim={dim})[1]"
        self.let(self.body, text, Type(kind.dims, "i32", LIMIT * max(1, self.length(dim))))

    def rows(self) -> tuple[str, Type] | None:
        """A value whose rows along N lie in one wave."""
        if self.waves["N"] > 1:
            return None
        return self.pick(lambda t: t.dtype != "i1" and "N" in t.dims and ("N" in self.cover or "N" in self.inside))

    def sort(self) -> None:
        x = self.rows()
        if x is not None:
            self.let(self.body, f"wd.sort({x[0]}, dim=N, descending={self.chance(0.5)})", x[1])

    def topk(self) -> None:
        x = self.rows()
        if x is None or "N" in self.loops or "TOP" not in self.program.subs:
            return
        dims = tuple("TOP" if d == "N" else d for d in x[1].dims)
        which = self.one((0, 1))
        top, n = self.program.subs["TOP"], self.program.sizes["N"]
        kind = Type(tuple(d for d in dims if d != "TOP"), "i32", top * max(n, LIMIT))
        text, _ = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), x[1].dtype)
        best = f"wd.topk({text}, TOP, dim=N)[{which}]"
        if which == 0:
            best = f"wd.cast({best}, wd.i32)" if n >= top else f"wd.cast(small({best}), wd.i32)"
        self.let(self.body, f"wd.sum({best}, dim=TOP)", kind)

    def shuffle(self) -> None:
        """Elements of a row in other places; the places may have a dimension that the row lacks."""
        x, n = self.rows(), self.program.sizes["N"]
        if x is None or "N" in self.loops or not n:
            return
        kept = {*x[1].dims} - {"N"}
        y = self.pick(lambda t: t.dtype != "i1" and len({*t.dims} - kept) == 1)
        if y is None or self.chance(0.3):
            y = self.read(("M", "N") if "M" in kept and self.chance(0.7) else ("N",), "i32")
        dims = y[1].dims
        if self.chance(0.25):
            mask = self.one((1, 2, 3, 4, 8, 16))
            self.let(self.body, f"wd.shuffle({x[0]}, wd.index(N) ^ {mask}, N)", x[1])
            return
        place = self.cast_to((f"small({y[0]})", Type(dims, y[1].dtype)), "i32")[0]
        new = next(d for d in dims if d == "N" or d not in x[1].dims)
        text = f"wd.shuffle({x[0]}, ({place} + {LIMIT}) % {n + self.one((0, 0, 2))}, N)"
        self.let(self.body, text, Type(tuple(new if d == "N" else d for d in x[1].dims), x[1].dtype, x[1].bound))

    def extract(self) -> None:
        """One element of each row, or the sum of a few; those outside of the row are 0."""
        x = self.rows()
        if x is None or "N" in self.loops:
            return
        dims = tuple(d for d in x[1].dims if d != "N")
        at = self.one((0, 1, 5, self.program.sizes["N"] - 1, "flag"))
        if "TOP" not in self.program.subs or self.chance(0.5):
            self.let(self.body, f"wd.extract({x[0]}, {{N: {at}}})", Type(dims, x[1].dtype, x[1].bound))
            return
        top = self.program.subs["TOP"]
        text, bound = self.fit(x, lambda b: top * b)
        few = f"wd.extract({text}, {{N: (TOP, {at}, {self.one((1, 2, 4))})}})"
        self.let(self.body, f"wd.sum({few}, dim=TOP)", Type(dims, x[1].dtype, top * bound))

    def reshape(self) -> None:
        x = self.pick(lambda t: set(t.dims) == {"M", "N"} and t.dtype != "i1")
        if x is None or self.waves["N"] > 1 or self.inside or "P" not in self.program.subs:
            return
        heads = f"wd.reshape(wd.permute({x[0]}, M, N), M, P, Q)"
        if self.chance(0.5):
            gone, text = self.one(("P", "Q")), f"wd.cast({x[0]}, wd.i32)"
            heads = f"wd.reshape(wd.permute(wd.cast(small({x[0]}), wd.i32), M, N), M, P, Q)"
            other = "Q" if gone == "P" else "P"
            left = "P" if gone == "Q" else "Q"
            self.let(self.body, f"wd.sum(wd.sum({heads}, dim={gone}), dim={left})", Type(("M",), "i32", LIMIT * 130))
        else:
            self.let(self.body, f"wd.reshape({heads} * 1, M, N)", Type(("M", "N"), x[1].dtype, x[1].bound))

    def permuted(self) -> None:
        x = self.pick(lambda t: len(t.dims) > 1)
        if x is not None:
            order = tuple(reversed(x[1].dims))
            self.let(self.body, f"wd.permute({x[0]}, {', '.join(order)})", Type(order, x[1].dtype, x[1].bound))

    def random(self) -> None:
        dims = tuple(d for d in self.here() if d in ("M", "N"))[:2]
        if dims:
            key = int(self.rng.integers(1000))
            self.let(
                self.body,
                f"wd.cast(wd.random({key}, {', '.join(dims)}, dtype=wd.u32) & 31, wd.i32)",
                Type(dims, "i32", 31),
            )

    def stochastic(self) -> None:
        x = self.pick(lambda t: set(t.dims) == {"M", "N"} and t.dtype != "i1")
        if x is not None:
            to, key = self.one(("bf16", "f16")), int(self.rng.integers(1000))
            text = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), "f32")[0]
            bits = f"wd.random({key}, {', '.join(x[1].dims)}, dtype=wd.u32)"
            noisy = f"wd.floor(wd.cast({text} * 0.37, wd.{to}, rounding='stochastic', bits={bits}))"
            self.let(self.body, noisy, Type(x[1].dims, to))
