"""Draws a kernel: first how it is cut, then arrays and statements from the whole language, one after the other.

Every number is whole and its magnitude is known (`Type.bound`), so that every sum that the kernel makes has one value
whatever its order and results are compared for equality. Functions that chips approximate are written so that they
round to a whole number with room to spare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from generator.program import Array, Block, Do, Let, Program, Type, statements

VERSION = 3
"""Changes with what a seed draws; `ranges.json` names it. 1 was `draw` of test_ops and of test_products."""

MOST = 1024
"""Elements of a value that a wave holds in all but a few kernels: what a pair costs grows with them."""

LIMIT = 60
"""What `small` brings values back to: every dtype holds such whole numbers exactly (but narrow floats, which round)."""

FLOATS = ("f64", "f32", "f16", "bf16")
INTS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
EXACT = {"f64": 1 << 53, "f32": 1 << 24, "f16": 2048, "bf16": 256}
"""Whole numbers up to here are exact."""
SUMS = {"f64": 1 << 53, "f32": 1 << 24, "f16": 65000, "bf16": 1 << 24}
"""Bounds of results that are computed exactly and rounded once (f16 and bf16 are computed in f32)."""
VALUES = ("f32", "f32", "f32", "i32", "i32", "f16", "bf16", "i16", "u8", "i64", "f64", "u32", "i8", "u16", "u64")
PRODUCTS = {
    "f16": "f32", "bf16": "f32", "i8": "i32", "f32": "f32", "f64": "f64", "tf32": "f32", "f8e4m3": "f32",
    "f8e5m2": "f32", "f8e4m3fnuz": "f32", "f8e5m2fnuz": "f32",
}  # fmt: skip
"""Operands of matrix products and what they are summed in."""
INTEGER_MAX = {f"{k}{b}": (1 << (b - (k == "i"))) - 1 for k in "iu" for b in (8, 16, 32, 64)}


def draw(seed: int) -> Program:
    """The kernel of a seed."""
    return _Draw(seed).program


class _Draw:
    """`scope`: variables in sight, innermost last; `inside`: dimensions of the loops around; `cover`: dimensions that a
    workgroup holds as a whole; `split`: those divided among workgroups; `rows`: those divided among waves."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng([VERSION, seed])
        self.count = 0
        self.labels = 0
        self.scope: list[tuple[str, Type]] = []
        self.inside: list[str] = []
        self.branches = 0
        self.atomics: set[str] = set()
        self.used: set[str] = set()
        self.program = Program(seed, {}, {}, [], [], int(self.rng.integers(0, 3)))
        while self.cut() > MOST and not self.chance(0.04):
            self.program = Program(seed, {}, {}, [], [], self.program.flag)
        self.options()
        self.write_body()

    # ---- choices

    def one(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def extent(self, large: int) -> int:
        return int(
            self.one(
                (
                    1,
                    2,
                    7,
                    16,
                    17,
                    30,
                    32,
                    33,
                    64,
                    65,
                    int(self.rng.integers(1, large)),
                    int(self.rng.integers(1, large)),
                )
            )
        )

    # ---- how the kernel is cut

    def cut(self) -> int:
        """Draws dimensions and constraints; gives the elements that a wave holds of the largest value."""
        p = self.program
        self.kind = self.one(("rows", "rows", "rows", "product", "product", "product", "chain"))
        self.operand = self.one((
            "f16", "f16", "f16", "f16", "f16", "bf16", "bf16", "bf16", "i8", "i8", "f32", "f64",
            self.one(("tf32", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")),
        ))  # fmt: skip
        self.dims: list[str] = ["M", "N"]
        self.loops: dict[str, int] = {}
        self.cover: set[str] = set()
        self.split: set[str] = set()
        self.waves = {"M": 1, "N": 1}
        groups = self.groups = self.kind != "rows" and self.chance(0.25)
        waves = self.one(((1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1), (3, 1)))
        tile_m = waves[0] * (
            self.one((16, 16, 32, 32, 64 // waves[0])) if self.kind != "rows" else self.one((4, 8, 16, 5, 16))
        )
        if groups:  # tiles that matrix instructions of a warpgroup take, one group or several along M
            tile_m, waves = self.one((64, 128, 128, 192)), (1, 1)
            waves = (tile_m // 64 if self.chance(0.6) else 1, 1)
        m = self.extent(70) if not groups else int(self.rng.integers(tile_m // 2, tile_m + 40))
        n = int(self.one((1, 7, 16, 30, 33, 64, 65, 100, 128, 130))) if self.kind == "rows" else self.extent(80)
        p.sizes.update(M=m, N=n)
        p.cut.append(f"wd.WorkgroupConstraint(M, {tile_m}, 0)")
        if waves[0] > 1 or self.chance(0.5):
            p.cut.append(f"wd.WaveConstraint(M, {tile_m // waves[0]})")
        self.place("M", m, tile_m)
        self.waves["M"] = waves[0]
        how = {
            "rows": ("cover", "whole", "whole", "loop", "loop"), "product": ("grid", "grid", "grid", "cover"),
            "chain": ("loop",),
        }[self.kind]  # fmt: skip
        tile_n = n
        how_n = self.one(how)
        if how_n == "whole" and waves[1] > 1:
            how_n = "cover"
        if how_n == "loop":
            self.loops["N"] = self.one((16, 32, 24, 8)) if self.kind == "rows" else self.one((16, 32, 32, 64))
            p.cut.append(f"wd.TilingConstraint(N, {self.loops['N']})")
        elif how_n != "whole":
            tile_n = self.one((16, 16, 32, 48 // waves[1], 24)) * waves[1]
            if groups:
                tile_n = self.one((32, 64, 96))
            if how_n == "cover":
                tile_n = max(tile_n, waves[1] * max(1, -(-n // waves[1])))
            p.cut.append(f"wd.WorkgroupConstraint(N, {tile_n}, 1)")
            if waves[1] > 1 or self.chance(0.5):
                p.cut.append(f"wd.WaveConstraint(N, {tile_n // waves[1]})")
            self.place("N", n, tile_n)
            self.waves["N"] = waves[1]
        else:
            self.cover.add("N")
        if self.kind == "product" or (self.kind == "rows" and self.chance(0.25)):
            self.add_loop("K", self.one((8, 16, 16, 32, 32, 64, 24)), self.extent(100))
        if self.chance(0.2):
            self.add_loop("L", self.one((1, 2, 8, 16)), int(self.rng.integers(1, 24)))
        if self.kind == "chain":
            p.sizes["D"] = int(self.one((8, 16, 32, 24, 20, 64)))
            self.dims.append("D")
            self.cover.add("D")
        if self.chance(0.15):
            p.sizes["B"] = int(self.rng.integers(1, 4))
            p.cut.append("wd.WorkgroupConstraint(B, 1, 2)")
            self.batch = True
        else:
            self.batch = False
        p.sizes["V"] = 41
        if self.cover >= {"N"}:
            inner = next(q for q in (4, 5, 3, 2, 1) if n % q == 0)
            p.subs.update(TOP=3, P=n // inner, Q=inner)
        wave_n = self.loops.get("N", n if how_n == "whole" else tile_n // waves[1])
        longest = max(wave_n, self.loops.get("K", 0), p.sizes.get("D", 0))
        return (tile_m // waves[0]) * longest // (2 if groups else 1)

    def add_loop(self, dim: str, tile: int, extent: int) -> None:
        self.program.sizes[dim] = extent
        self.program.cut.append(f"wd.TilingConstraint({dim}, {tile})")
        self.loops[dim] = tile

    def place(self, dim: str, extent: int, tile: int) -> None:
        if tile >= extent:
            self.cover.add(dim)
        else:
            self.split.add(dim)

    def options(self) -> None:
        p = self.program
        if self.chance(0.4):
            p.schedule["stages"] = self.one((1, 1, 2, 3, 5))
        for name, value, often in (
            ("swizzle", True, 0.04), ("ping_pong", self.one((True, False)), 0.03),
            ("direct_to_shared", self.one((True, False)), 0.06),
        ):  # fmt: skip
            if self.chance(often):
                p.schedule[name] = value
        for name, value, often in () if not self.groups else (
            ("specialize", self.one((True, False)), 0.25), ("cluster", self.one(("(2, 1, 1)", "(1, 2, 1)")), 0.08),
            ("persistent", self.one((True, False)), 0.12),
        ):  # fmt: skip
            if self.chance(often):
                p.hopper[name] = value
        if self.chance(0.2):
            p.dynamic = tuple(
                d for d in ("M", "N", "K", "L") if d in p.sizes and d not in self.cover and self.chance(0.5)
            )

    # ---- variables

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, want: Callable[[Type], bool] = lambda t: True) -> tuple[str, Type] | None:
        """A variable, rather a late one or one that nothing has used: what reaches no output is not computed."""
        fitting = [v for v in self.scope if want(v[1])]
        if not fitting:
            return None
        fresh = [v for v in fitting if v[0] not in self.used]
        if fresh and self.chance(0.6):
            fitting = fresh
        found = self.one(fitting[-4:] if self.chance(0.6) else fitting)
        self.used.add(found[0])
        return found

    def number(self) -> tuple[str, Type]:
        found = self.pick(lambda t: t.dtype != "i1")
        return found if found is not None else self.read()

    def let(self, body: list[Any], text: str, kind: Type) -> tuple[str, Type]:
        """A statement; brought back to small numbers where they would no longer be exact."""
        if (kind.dtype in EXACT and kind.bound > EXACT[kind.dtype]) or (kind.dtype != "i1" and self.chance(0.05)):
            text, kind = f"small({text})", Type(kind.dims, kind.dtype, LIMIT)
        elif kind.dtype in INTEGER_MAX:
            kind = Type(kind.dims, kind.dtype, min(kind.bound, INTEGER_MAX[kind.dtype]))
        name = self.name()
        body.append(Let(name, kind, text))
        self.scope.append((name, kind))
        return name, kind

    def fit(self, value: tuple[str, Type], worst: Callable[[int], int]) -> tuple[str, int]:
        """A value's text and bound so that a result of magnitude `worst(bound)` is still computed exactly."""
        text, kind = value
        if kind.dtype in SUMS and worst(kind.bound) > SUMS[kind.dtype]:
            return f"small({text})", LIMIT
        return text, kind.bound

    def cast_to(self, value: tuple[str, Type], dtype: str) -> tuple[str, Type]:
        """The text of a value in another dtype."""
        text, kind = value
        if kind.dtype == dtype:
            return value
        bound = kind.bound
        if dtype in SUMS and bound > EXACT[dtype] and kind.dtype != "i1":
            text, bound = f"small({text})", LIMIT
        elif dtype not in INTEGER_MAX and dtype not in SUMS and bound > LIMIT:
            text, bound = f"small({text})", LIMIT
        if dtype not in INTEGER_MAX and dtype not in SUMS:
            bound = 64
        return f"wd.cast({text}, wd.{dtype})", Type(kind.dims, dtype, min(bound, INTEGER_MAX.get(dtype, bound)))

    # ---- arrays

    def batched(self, dims: tuple[str, ...]) -> tuple[str, ...]:
        """Dimensions of an array in memory: often with the batch, in any order."""
        order = [dims[int(i)] for i in self.rng.permutation(len(dims))] if self.chance(0.35) else list(dims)
        if self.batch and self.chance(0.6):
            order.insert(0, "B")
        return tuple(order)

    def array(self, dims: tuple[str, ...], dtype: str, low: int, high: int, space: str | None = None) -> Array:
        letters = {"i": "x", "o": "y"}
        spread = (
            self.one(("plain", "plain", "plain", "transposed", "rows", "columns", "inside"))
            if len(dims) > 1
            else self.one(("plain", "plain", "columns"))
        )
        made = Array(f"a{len(self.program.arrays)}", dims, dtype, low, high, space, spread)
        self.program.arrays.append(made)
        return made

    def span(self, dtype: str, small: bool = False) -> tuple[int, int]:
        high = 3 if small else self.one((3, 20, 60))
        return (0 if dtype[0] == "u" else -high), high

    def read(self, dims: tuple[str, ...] | None = None, dtype: str | None = None) -> tuple[str, Type]:
        """A new read, of a new array or of one that was read before."""
        here = [d for d in self.dims if d not in self.loops or d in self.inside] + [
            d for d in self.inside if d not in self.dims
        ]
        if dims is None:
            wide = list(here)
            count = min(len(wide), self.one((1, 2, 2, 2)))
            dims = tuple(wide[int(i)] for i in sorted(self.rng.permutation(len(wide))[:count]))
            if self.inside and self.inside[-1] not in dims and self.chance(0.6):
                dims = (*dims[:1], self.inside[-1])
        dtype = dtype or self.one(VALUES)
        known = [
            a
            for a in self.program.arrays
            if set(a.dims) - {"B"} == set(dims) and a.dtype == dtype and a.name not in self.written()
        ]
        if known and self.chance(0.5):
            array = self.one(known)
        else:
            low, high = self.span(dtype, dtype not in VALUES)
            space = self.one(("SHARED", "GLOBAL", None, None)) if len(dims) > 1 else None
            if space == "SHARED" and not self.inside and self.chance(0.7):
                space = None
            array = self.array(self.batched(dims), dtype, low, high, space)
        order = tuple(d for d in array.dims if d != "B")
        if dtype not in VALUES:  # for products only: computing needs a cast
            name, kind = self.name(), Type(order, dtype, array.high)
            self.body.append(Let(name, kind, f"wd.read({array.name})"))
            if self.chance(0.2):
                self.let(self.body, f"wd.cast({name}, wd.f32)", Type(order, "f32", array.high))
            return name, kind
        return self.let(self.body, f"wd.read({array.name})", Type(order, dtype, array.high))

    def written(self) -> set[str]:
        return self.atomics | {a.name for a in self.program.arrays if a.low == a.high}

    # ---- statements

    def region(self, count: int, depth: int) -> None:
        """`count` statements into `self.body`."""
        for _ in range(count):
            self.one((
                self.unary, self.binary, self.binary, self.binary, self.choose, self.compare, self.cast, self.reduce,
                self.reduce, self.scan, self.sort, self.topk, self.gather, self.shifted, self.random, self.branch,
                self.tally, self.bits, self.index, self.stochastic, self.reshape, self.rounded, self.divide, self.fma,
                self.product,
                self.permuted, self.more, self.more, self.bitcast, self.unique_atomic,
                *((self.loop, self.loop, self.condition, self.repeat) if depth < 2 else ()),
                *((self.fence,) if depth == 0 else ()),
            ))()  # fmt: skip

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

    def scan(self) -> None:
        x = self.pick(lambda t: t.dtype != "i1" and bool(self.whole(t)))
        if x is None:
            return
        dim = self.one(self.whole(x[1]))
        n = max(1, self.length(dim))
        if self.chance(0.5):
            text, bound = self.fit(x, lambda b: b * n)
            self.let(self.body, f"wd.cumsum({text}, dim={dim})", Type(x[1].dims, x[1].dtype, bound * n))
        else:
            self.let(
                self.body,
                f"wd.scan(small({x[0]}), lambda a, b: wd.minimum(a, b), {LIMIT}, dim={dim})",
                Type(x[1].dims, x[1].dtype),
            )

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
        kind = Type(tuple(d for d in dims if d != "TOP"), "i32", 3 * 130)
        text, _ = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), x[1].dtype)
        best = f"wd.topk({text}, TOP, dim=N)[{which}]"
        if which == 0:
            best = f"wd.cast({best}, wd.i32)" if self.program.sizes["N"] >= 3 else f"wd.cast(small({best}), wd.i32)"
        self.let(self.body, f"wd.sum({best}, dim=TOP)", kind)

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

    # ---- random numbers

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

    # ---- products

    def product(self) -> None:
        """A product over a dimension of which the workgroup holds all, or the trip its tile."""
        free = [d for d in self.here() if d in self.dims]
        over = [d for d in self.here() if d in self.cover or d in self.inside]
        if len(free) < 2 or not over:
            return
        inner = self.one(over)
        outer = [d for d in free if d != inner]
        if len(outer) < 2:
            return
        left, right = (outer[0], outer[1]) if self.chance(0.7) else (outer[1], outer[0])
        self.multiply(left, right, inner, None)

    def operand_of(self, free: str, inner: str) -> tuple[str, Type]:
        """An operand [free, inner]: read as it is, or computed."""
        made = self.pick(lambda t: set(t.dims) == {free, inner} and t.dtype != "i1")
        if made is not None and self.chance(0.5):
            return self.cast_to(made, self.operand)
        return self.read((free, inner), self.operand)

    def multiply(self, left: str, right: str, inner: str, acc: tuple[str, Type] | None) -> tuple[str, Type] | None:
        a, b = self.operand_of(left, inner), self.operand_of(right, inner)
        sums = PRODUCTS[self.operand]
        trips = self.program.sizes[inner]
        ta, ba = self.bring(a, 3) if a[1].bound * b[1].bound * trips > SUMS.get(sums, 1 << 62) else (a[0], a[1].bound)
        tb, bb = self.bring(b, LIMIT) if ba * b[1].bound * trips > SUMS.get(sums, 1 << 62) else (b[0], b[1].bound)
        dims = (left, right)
        bound = ba * bb * trips
        if acc is None:
            start = self.chance(0.4)
            text = f"wd.mma({ta}, {tb}" + (f", {Type(dims, sums).fill(self.one((0, 0, 2)))})" if start else ")")
            kind = [d for d in a[1].dims if d != inner] + [d for d in b[1].dims if d != inner]
            return self.let(self.body, text, Type(dims if start else tuple(kind), sums, bound + 2))
        name = self.name()
        kind = Type(acc[1].dims, sums, acc[1].bound)
        self.body.append(Let(name, kind, f"wd.mma({ta}, {tb}, {acc[0]})"))
        return name, kind

    def bring(self, value: tuple[str, Type], to: int) -> tuple[str, int]:
        """An operand's text with a smaller bound."""
        text, kind = value
        if kind.dtype in VALUES:
            low = 0 if kind.dtype[0] == "u" else -to
            return f"wd.clamp({text}, {low}, {to})", to
        return f"wd.cast(wd.clamp(wd.cast({text}, wd.f32), {-to}, {to}), wd.{kind.dtype})", to

    # ---- blocks

    def label(self) -> str:
        self.labels += 1
        return f"f{self.labels}"

    def loop(self) -> None:
        free = [d for d in self.loops if d not in self.inside]
        if not free or len(self.inside) >= 2:
            return
        self.make_loop(self.one(free))

    def make_loop(self, dim: str) -> None:
        head = dim
        if self.chance(0.08) and not self.hopperish():
            head = (
                f"{dim}, start=wd.tile_start(M) - {self.one((0, 3, 20))}, stop=wd.tile_stop(M) + {self.one((0, 5, 40))}"
            )
        outer_scope, outer_body = self.scope, self.body
        before: list[tuple[str, Type, str]] = []
        carried: list[tuple[str, Type, str]] = []
        products = [d for d in ("M", "N") if d in self.dims and (d not in self.loops or d in self.inside) and d != dim]
        kinds = []
        if len(products) == 2 and (self.kind == "product" or self.chance(0.3)):
            kinds.append("mma")
        if self.kind == "chain" and dim == "N":
            kinds.append("chain")
        for _ in range(self.one((0, 1, 1, 2)) if kinds else self.one((1, 1, 2))):
            kinds.append(self.one(("total", "total", "any", "any")))
        first: list[tuple[str, str, Type]] = []
        for how in kinds:
            if how in ("mma", "chain"):
                dims = tuple(products) if how == "mma" else ("M", "D")
                kind = Type(dims, PRODUCTS[self.operand], 1 << 20)
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
            if how not in ("mma", "chain"):
                self.scope.append((name, kind))
        self.region(int(self.rng.integers(0, 4)), len(self.inside) + self.branches)
        if self.chance(0.12):
            self.state()
        yields = []
        for (how, _, _), (name, kind, _) in zip(first, carried):
            yields.append(self.next_value(how, name, kind, dim))
        if self.chance(0.25):
            self.store(dim)
        block = Block("iterate", head, [], carried, [self.body], [yields], self.label())
        self.inside.pop()
        self.scope, self.body = outer_scope, outer_body
        for _, kind, _ in carried:
            block.names.append((self.name(), kind))
        self.body.append(block)
        self.scope += block.names

    def hopperish(self) -> bool:
        return "cluster" in self.program.hopper

    def next_value(self, how: str, name: str, kind: Type, dim: str) -> str:
        """What a loop hands to its next trip for a carried value."""
        if how == "mma":
            acc = (name, kind)
            if self.chance(0.12):
                acc = (f"small({name})", kind)
            left, right = (kind.dims[0], kind.dims[1])
            found = self.multiply(left, right, dim, acc)
            assert found is not None
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
                results.append(self.assigned(f"small({x[0]})", kind))
            bodies.append(self.body)
            yields.append(results)
        self.branches -= 1
        self.scope, self.body = outer_scope, outer_body
        names = [(self.name(), kind) for kind in kinds]
        self.body.append(Block("cond", head, names, [], bodies, yields, self.label()))
        self.scope += names

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

    # ---- the kernel

    def store(self, dim: str | None = None) -> None:
        """Writes a value to an array of its own; whole, or a trip's tile of it."""
        x = self.pick(lambda t: t.dtype != "i1" and bool(t.dims) and (dim is None or dim in t.dims))
        if x is None or self.branches:
            return
        have = [d for d in ("M", "N") if d in self.split and d not in x[1].dims]
        dims = (*x[1].dims, *have)
        if any(d not in dims for d in self.inside):
            return
        text, dtype = x[0], x[1].dtype
        if have:
            text = f"wd.broadcast({text}, {', '.join(dims)})"
        order = tuple(dims[int(i)] for i in self.rng.permutation(len(dims))) if self.chance(0.3) else dims
        memory = (("B",) if self.batch else ()) + order
        out = self.array(memory, dtype, 77, 77)
        if self.chance(0.08) and dim is None:
            shift = ", ".join(f"{d}: {d} {self.one(('+ 1', '- 2'))}" for d in dims)
            self.body.append(
                Do(f"wd.write({text}, {out.name}, mapping=wd.IndexMapping(({', '.join(memory)},), {{{shift}}}))")
            )
        else:
            self.body.append(Do(f"wd.write({text}, {out.name})"))

    def write_body(self) -> None:
        self.body = self.program.body
        if self.chance(0.06):
            self.body.append(Do(f"wd.exit_if({self.single()})"))
        for _ in range(2):
            self.read()
        self.region(int(self.rng.integers(0, 4)), 0)
        if self.chance(0.15):
            self.state()
        for dim in self.loops:
            if self.chance(0.9 if dim in ("K", "N") else 0.4):
                self.make_loop(dim)
                if self.chance(0.25):
                    self.make_loop(dim)  # a sibling, of another length
        self.region(int(self.rng.integers(1, 4)), 0)
        if self.chance(0.1):
            x = self.pick(lambda t: t.dtype != "i1" and bool(t.dims))
            if x is not None:
                self.body.append(Do(f"wd.device_assert(small({x[0]}) <= {LIMIT}, 'small')"))
        for _ in range(self.one((2, 3, 4))):
            self.store()
        if not any(a.low == a.high for a in self.program.arrays):
            x = self.read(tuple(d for d in self.dims if d not in self.loops)[:2])
            self.scope = [x]
            self.store()
        self.unused()

    def unused(self) -> None:
        """Leaves out arrays that nothing touches."""
        text = "\n".join(line for s in self.program.body for line in s.lines())
        p = self.program
        p.arrays = [a for a in p.arrays if f"({a.name}" in text or f", {a.name}" in text]
        p.leave_out()


def union(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    """Dimensions of an elementwise result: those of the operand with more, then what the other adds."""
    first, second = (b, a) if len(b) > len(a) else (a, b)
    return (*first, *(d for d in second if d not in first))


__all__ = ["VERSION", "draw", "statements"]
