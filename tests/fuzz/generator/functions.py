"""Functions, bits of integers, products along a dimension, epilogues of products, chains of hundreds of operations.

Functions that no chip and the evaluator give the same bits of are drawn where what is rounded of them is far enough
from a half for every whole number that an argument may be (`room`). Those of f64, whose bits all chips share, are also
written as they are.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from generator.program import Array, Block, Do, Let, Type
from generator.state import INTEGER_MAX, INTS, LIMIT, SUMS, State, union

ROOM = 3e-4
"""How far from a half a result is before it is rounded; f32 is 30 times nearer to results within MOST_RESULT."""
MOST_RESULT = 120.0

ONE_ARGUMENT: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "exp": ("wd.exp({} * C)", lambda x: np.exp(x)), "exp2": ("wd.exp2({} * C)", lambda x: np.exp2(x)),
    "expm1": ("wd.expm1({} * C)", lambda x: np.expm1(x)),
    "log": ("wd.log(abs({} * C) + 0.25)", lambda x: np.log(abs(x) + 0.25)),
    "log1p": ("wd.log1p(abs({} * C))", lambda x: np.log1p(abs(x))),
    "log2": ("wd.log2(abs({} * C) + 0.125)", lambda x: np.log2(abs(x) + 0.125)),
    "log10": ("wd.log10(abs({} * C) + 0.5)", lambda x: np.log10(abs(x) + 0.5)), "sin": ("wd.sin({} * C)", np.sin),
    "cos": ("wd.cos({} * C)", np.cos), "atan": ("wd.atan({} * C)", np.arctan), "tanh": ("wd.tanh({} * C)", np.tanh),
    "asin": ("wd.asin({} * C * 0.0625)", lambda x: np.arcsin(x / 16)),
    "acos": ("wd.acos({} * C * 0.0625)", lambda x: np.arccos(x / 16)),
    "erf": ("wd.erf({} * C)", lambda x: np.vectorize(math.erf)(x)),
    "sigmoid": ("wd.sigmoid({} * C)", lambda x: 1 / (1 + np.exp(-x))),
    "sqrt": ("wd.sqrt(abs({} * C) + 1.0)", lambda x: np.sqrt(abs(x) + 1)),
    "rsqrt": ("wd.rsqrt(abs({} * C) + 1.0)", lambda x: 1 / np.sqrt(abs(x) + 1)),
    "softplus": ("wd.log1p(wd.exp(-abs({} * C)))", lambda x: np.log1p(np.exp(-abs(x)))),
    "silu": ("{} * C * wd.sigmoid({} * C)", lambda x: x / (1 + np.exp(-x))),
    "gelu": ("{} * C * (wd.erf({} * C * 0.5) + 1.0)", lambda x: x * (1 + np.vectorize(math.erf)(x / 2))),
}  # fmt: skip
"""Texts of a whole number within LIMIT times C, and what they mean of that product."""
TWO_ARGUMENTS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "atan2": ("wd.atan2({} * C, {})", lambda x, y: np.arctan2(x, y)),
    "pow": ("wd.pow(abs({} * C) + 0.5, {})", lambda x, y: np.power(abs(x) + 0.5, y)),
    "divide": ("wd.divide({} * C, {} + 4.5)", lambda x, y: x / (y + 4.5)),
}
"""The second one is a whole number within 3."""
FACTORS = (0.1, 0.07, 0.033, 0.15, 0.25, 0.19, 0.0625)
SCALES = (1.0, 2.0, 3.0, 5.0, 11.0)


@functools.cache
def room(name: str, factor: float, scale: float) -> bool:
    """Whether `scale` times the function is at least ROOM from every half, for all whole arguments."""
    x = np.arange(-LIMIT, LIMIT + 1) * factor
    with np.errstate(all="ignore"):
        if name in TWO_ARGUMENTS:
            found = TWO_ARGUMENTS[name][1](x[:, None], np.arange(-3.0, 4.0)[None, :])
        else:
            found = ONE_ARGUMENT[name][1](x)
    found = np.asarray(found) * scale
    apart = abs(found - np.floor(found) - 0.5)
    return bool(np.isfinite(found).all() and abs(found).max() <= MOST_RESULT and apart.min() >= ROOM)


class Functions(State, ABC):
    """Each method adds statements to `body`, or none where nothing in sight fits."""

    @abstractmethod
    def whole(self, t: Type) -> list[str]: ...

    @abstractmethod
    def length(self, dim: str) -> int: ...

    @abstractmethod
    def mine(self, dims: tuple[str, ...]) -> bool: ...

    # ---- functions

    def small_in(self, dtype: str) -> tuple[str, Type]:
        """A variable of whole numbers within LIMIT."""
        x = self.number()
        text = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), dtype)[0]
        return self.let(self.body, text, Type(x[1].dims, dtype))

    def function_of(self, x: tuple[str, Type]) -> tuple[str, tuple[str, ...], float] | None:
        """A function's text of such a variable, its dimensions, and what it is multiplied by."""
        name = self.one((*ONE_ARGUMENT, *TWO_ARGUMENTS, *TWO_ARGUMENTS))
        fitting = [(c, k) for c in FACTORS for k in SCALES if room(name, c, k)]
        if not fitting:
            return None
        factor, scale = self.one(fitting)
        if name in ONE_ARGUMENT:
            return ONE_ARGUMENT[name][0].replace("C", str(factor)).format(x[0], x[0]), x[1].dims, scale
        y = self.small_in(x[1].dtype)
        second = f"wd.clamp({y[0]}, -3.0, 3.0)"
        text = TWO_ARGUMENTS[name][0].replace("C", str(factor)).format(x[0], second)
        return text, union(x[1].dims, y[1].dims), scale

    def transcendental(self) -> None:
        """A function in f64 or f32, rounded where that is far from a half."""
        dtype = self.one(("f64", "f64", "f32"))
        found = self.function_of(self.small_in(dtype))
        if found is not None:
            text, dims, scale = found
            self.let(self.body, f"wd.round({text} * {scale})", Type(dims, dtype, int(MOST_RESULT)))

    def same_bits(self) -> None:
        """Functions of f64 to an array of their own: the same bits on every chip."""
        if self.special or self.branches or self.inside:
            return
        found = self.function_of(self.small_in("f64"))
        if found is None:
            return
        text, dims, _ = found
        if self.chance(0.4):
            outer = self.one(("exp", "sin", "cos", "tanh", "erf", "atan", "sigmoid", "log1p"))
            text = f"wd.{outer}(abs({text}) * 0.01)"
        dims = (*dims, *(d for d in ("M", "N") if d in self.split and d not in dims))
        if not dims:
            return
        made = self.array(((("B",) if self.batch else ()) + dims), "f64", 77, 77)
        made.tolerance, made.shared_bits = 1e-10, True
        self.body.append(Do(f"wd.write(wd.broadcast({text}, {', '.join(dims)}), {made.name})"))

    def classify(self) -> None:
        """What kind of number a float is, also one that is not finite; or it without its fraction."""
        x = self.number()
        if x[1].dtype not in SUMS:
            return
        if self.chance(0.4):
            text, bound = self.fit(x, lambda b: 2 * b + 1)
            made = f"wd.trunc({text} * {self.one((0.5, -0.25, 0.75))})"
            self.let(self.body, made, Type(x[1].dims, x[1].dtype, bound))
            return
        how = self.one(("isnan", "isinf", "isfinite"))
        text = self.one((x[0], f"{x[0]} / ({x[0]} - {x[0]})", f"1.0 / {x[0]}", f"wd.log({x[0]} * 0.0)"))
        self.let(self.body, f"wd.{how}({text})", Type(x[1].dims, "i1", 1))

    def normal(self) -> None:
        dims = tuple(d for d in ("M", "N") if d in self.dims and (d not in self.loops or d in self.inside))
        if dims:
            key = int(self.rng.integers(1000))
            offset = self.one(("", ", offset=2"))
            text = f"wd.floor(wd.randn({key}, {', '.join(dims)}{offset}) * 0.01)"
            self.let(self.body, f"wd.cast({text}, wd.i32)", Type(dims, "i32", 1))

    # ---- bits of integers

    def digits(self) -> None:
        """Counts, rotations, reversals, upper halves and sums that stop at the ends of a type."""
        x = self.pick(lambda t: t.dtype in INTS)
        if x is None:
            x = self.read(None, self.one(INTS))
        text, kind = x
        if self.chance(0.4):  # also numbers that use all of their bits
            odd = {8: 0x35, 16: 0x3A55, 32: 0x12F35A97, 64: 0x1D872B41C6F2A935}[int(kind.dtype[1:])]
            text = f"{text} * {odd}"
        top = INTEGER_MAX[kind.dtype]
        how = self.one(("popcount", "clz", "ctz", "reverse", "rotate", "mulhi", "add", "sub", "bytes", "lowest"))
        if how in ("popcount", "clz", "ctz"):
            self.let(self.body, f"wd.{how}({text})", Type(kind.dims, "i32", int(kind.dtype[1:])))
        elif how == "reverse":
            self.let(self.body, f"wd.bit_reverse({text})", Type(kind.dims, kind.dtype, top))
        elif how == "lowest":
            self.let(self.body, f"({text}) & -({text})", Type(kind.dims, kind.dtype, top))
        elif how == "rotate" and self.chance(0.6):
            count = self.one((1, 3, 7, 8, 13, 31, 32, 0, -1, -5))
            self.let(self.body, f"wd.rotate_left({text}, {count})", Type(kind.dims, kind.dtype, top))
        else:
            y = self.cast_to(self.number(), kind.dtype)
            dims = union(kind.dims, y[1].dims)
            other = self.one((y[0], y[0], f"{y[0]} * 3"))
            if how == "bytes":
                if kind.dtype not in ("i32", "u32"):
                    return
                selector = self.one(("0x0123", "0x5410", "0x7632", "0x4567", "0x6024", "0x3333", "0x1032"))
                made = f"wd.permute_bytes({text}, {other}, {selector})"
            else:
                names = {"rotate": "rotate_left", "add": "saturating_add", "sub": "saturating_sub"}
                made = f"wd.{names.get(how, how)}({text}, {other})"
            self.let(self.body, made, Type(dims, kind.dtype, top))

    def logic_atomic(self) -> None:
        """Bits that are cleared, set or changed in memory: at a place that many elements meet in, or at one's own."""
        how = self.one(("and", "or", "xor"))
        if self.branches or self.chance(0.5):
            x = self.number()
            place = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), "i32")[0]
            dims = x[1].dims
            if not dims:
                return
            name, dtype = f"bins{len(self.atomics)}", self.one(("i32", "u32", "i64", "u64", "i16", "u8"))
            self.program.arrays.append(Array(name, ("V",), dtype, 85, 85))
            self.atomics.add(name)
            extent = 44 if dtype in ("i16", "u8") else 41
            if dtype in ("i16", "u8"):  # whole words are changed
                self.program.sizes["V4"] = extent
                self.program.arrays[-1].dims = ("V4",)
            along = self.program.arrays[-1].dims[0]
            bits = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), dtype)[0]
            mapping = f"mapping=wd.IndexMapping(({''.join(f'{d}, ' for d in dims)}), {{{along}: {place}}})"
            self.body.append(Do(f"wd.atomic_{how}({bits}, {name}, {mapping})"))
            return
        y = self.pick(lambda t: t.dtype in ("i32", "u32", "i64", "u64", "i16") and self.mine(t.dims))
        if y is None:
            return
        name = f"bins{len(self.atomics)}"
        self.program.arrays.append(Array(name, y[1].dims, y[1].dtype, 77, 77))
        self.atomics.add(name)
        kind = Type(y[1].dims, y[1].dtype, INTEGER_MAX[y[1].dtype])
        self.let(self.body, f"wd.atomic_{how}({y[0]}, {name})", kind)
        if self.chance(0.5):
            self.body.append(Do("wd.fence()"))
            self.let(self.body, f"wd.read({name})", kind)
            self.body.append(Do("wd.fence()"))

    # ---- along a dimension

    def factors(self) -> None:
        """A product of all elements, or of those before each: of integers that wrap, of signs and twos in floats."""
        x = self.pick(lambda t: t.dtype != "i1" and bool(self.whole(t)))
        if x is None:
            return
        dim = self.one(self.whole(x[1]))
        rest = tuple(d for d in x[1].dims if d != dim)
        text, bound = x[0], 1
        if x[1].dtype in INTEGER_MAX:
            bound = INTEGER_MAX[x[1].dtype]
        else:
            text = f"wd.where({x[0]} > {self.one((0, 3))}, {Type(x[1].dims, x[1].dtype).fill(-1)}, 1.0)"
        how, dims = self.one((("prod", rest), ("cumprod", x[1].dims), ("reverse", x[1].dims)))
        made = f"wd.cumprod({text}, dim={dim}, reverse=True)" if how == "reverse" else f"wd.{how}({text}, dim={dim})"
        self.let(self.body, made, Type(dims, x[1].dtype, bound))

    def shares(self) -> None:
        """Where a softmax is largest: the others are smaller by a power of 20."""
        x = self.pick(lambda t: t.dtype != "i1" and bool(self.whole(t)))
        if x is None:
            return
        dim = self.one(self.whole(x[1]))
        dtype = x[1].dtype if x[1].dtype in ("f64", "f32", "f16", "bf16") else self.one(("f32", "f64"))
        text = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), dtype)[0]
        rows = f"wd.softmax({text} * 20.0, dim={dim})"
        if self.chance(0.3) and dtype in ("f32", "f64"):
            rest = tuple(d for d in x[1].dims if d != dim)
            self.let(self.body, f"wd.round(wd.sum({rows}, dim={dim}) * 3.0)", Type(rest, dtype, 3))
        else:
            self.let(self.body, f"{rows} > 1e-6", Type(x[1].dims, "i1", 1))

    def held(self) -> tuple[str, Type] | None:
        """A value whose rows along N one workgroup holds, whichever waves share them."""
        return self.pick(lambda t: t.dtype != "i1" and "N" in t.dims and "N" in self.cover and "N" not in self.loops)

    def picked(self) -> None:
        """Rows that waves may share, in the opposite order, rotated, neighbours swapped; or one element of each."""
        x, n = self.held(), self.program.sizes["N"]
        if x is None or not n:
            return
        how = self.one(("flip", "swap", "rotate", "extract", "extract", "taken"))
        rest = tuple(d for d in x[1].dims if d != "N")
        if how == "extract":
            at = self.one((0, n // 2, n - 1, "flag", n))
            if self.chance(0.3) and self.program.subs.get("TOP"):
                top = self.program.subs["TOP"]
                text, bound = self.fit(x, lambda b: top * b)
                few = f"wd.extract({text}, {{N: (TOP, {at}, {self.one((1, 2, 3))})}})"
                self.let(self.body, f"wd.sum({few}, dim=TOP)", Type(rest, x[1].dtype, top * bound))
                return
            self.let(self.body, f"wd.extract({x[0]}, {{N: {at}}})", Type(rest, x[1].dtype, x[1].bound))
            return
        places = {
            "flip": f"wd.flip({x[0]}, dim=N)",
            "swap": f"wd.shuffle({x[0]}, wd.index(N) ^ {self.one((1, 2, 8, 16, 32, 64))}, N)",
            "rotate": f"wd.shuffle({x[0]}, (wd.index(N) + {self.one((1, 5, n // 2))}) % {n}, N)", "taken": "",
        }  # fmt: skip
        text = places[how]
        if how == "taken":
            y = self.read(("M", "N") if "M" in x[1].dims and "M" not in self.loops else ("N",), "i32")
            text = f"wd.shuffle({x[0]}, abs({y[0]}) % {n}, N)"
        self.let(self.body, text, x[1])

    # ---- many operations, each behind the one before

    def long_chain(self) -> None:
        """Hundreds of operations, each of which uses what the one before gave several times."""
        x = self.pick(lambda t: t.dtype != "i1")
        if x is None or (len(x[1].dims) > 1 and self.chance(0.5)):
            return
        count = self.one((20, 60, 130, 260)) if len(x[1].dims) < 2 else self.one((20, 40))
        bound = INTEGER_MAX.get(x[1].dtype, LIMIT)
        name = "mixed" if x[1].dtype in INTEGER_MAX else "folded"
        self.let(self.body, f"{name}(small({x[0]}), {count})", Type(x[1].dims, x[1].dtype, bound))

    # ---- what follows products

    def epilogue(self) -> None:
        """Scales of rows and columns, biases, activations, residuals, in any number and order; then a cast, a write."""
        acc = self.pick(lambda t: {*t.dims} == {"M", "N"} and t.dtype in ("f32", "i32", "f64") and t.bound > 3 * LIMIT)
        if acc is None or {"M", "N"} & {*self.loops}:
            return
        value = self.let(self.body, f"small({acc[0]})", Type(acc[1].dims, acc[1].dtype)) if self.chance(0.5) else acc
        if value[1].dtype == "i32" and self.chance(0.5):
            value = self.let(self.body, *self.cast_to(value, "f32"))
        dtype, text, bound = value[1].dtype, value[0], value[1].bound
        if bound > 1 << 20:
            text, bound = f"small({text})", LIMIT
        for _ in range(self.one((1, 2, 3, 4))):
            step = self.one(("row", "column", "bias", "rows", "activation", "residual"))
            if bound > 1 << 16:
                text, bound = f"small({text})", LIMIT
            if step in ("row", "column"):
                by = self.read(("M",) if step == "row" else ("N",), dtype)
                text, bound = f"({text}) * {self.clamped(by)}", 3 * bound
            elif step in ("bias", "rows"):
                own = self.one(("f16", "f32", dtype)) if dtype[0] == "f" else dtype
                add = self.read(("N",) if step == "bias" else ("M",), own)
                text, bound = f"({text}) + {self.cast_to(add, dtype)[0]}", bound + LIMIT
            elif step == "residual":
                more = self.read(("M", "N"), self.one(("f16", "bf16", "f32")) if dtype[0] == "f" else dtype)
                text, bound = f"({text}) + {self.cast_to(more, dtype)[0]}", bound + LIMIT
            else:
                made = self.let(self.body, f"small({text})", Type(acc[1].dims, dtype))[0]
                bound = LIMIT
                forms = ["wd.maximum({0}, 0)", "wd.where({0} > 0, {0}, {0} * 2)", "wd.clamp({0}, 0, 6)", "{0} * {0}"]
                if dtype[0] == "f":
                    forms += [
                        "wd.round({0} * wd.sigmoid({0} * 40.0 + 20.0))", "wd.round({0} + wd.log1p({0} * 0.0))",
                        "wd.round({0} * (wd.erf({0} * 20.0) + 1.0))",
                        "wd.round(wd.floor({0} * 0.5) * wd.tanh({0} * 20.0))",
                    ]  # fmt: skip
                form = self.one(forms)
                text = form.format(made)
                bound = LIMIT * LIMIT if form == "{0} * {0}" else 2 * LIMIT + 2
        text, kind = self.let(self.body, f"small({text})", Type(acc[1].dims, dtype))
        if self.chance(0.7) and (narrow := self.one(("f16", "bf16", "f16", "i8"))) != dtype:
            text, kind = self.let(self.body, self.cast_to((text, kind), narrow)[0], Type(acc[1].dims, narrow))
        order = tuple(acc[1].dims) if self.chance(0.85) else tuple(reversed(acc[1].dims))
        out = self.array(((("B",) if self.batch else ()) + order), kind.dtype, 77, 77)
        self.body.append(Do(f"wd.write({text}, {out.name})"))

    def clamped(self, value: tuple[str, Type]) -> str:
        low = 0 if value[1].dtype[0] == "u" else -3
        return f"wd.clamp({value[0]}, {low}, 3)"

    # ---- loops whose waves need not keep step

    def own_trips(self) -> None:
        """A loop over a part of each row that its index says, sums, maxima and counts of what lies within."""
        dim = next((d for d in ("K", "N", "L") if d in self.loops and d not in self.inside), None)
        if dim is None or "M" in self.loops or self.one_sum or self.branches or self.inside:
            return
        behind, before = self.one((0, 3, 20)), self.one((0, 5, 40))
        ways = (
            (f"stop=wd.tile_stop(M) + {before}", f"wd.index(M) + {before} >= wd.index({dim})"),
            (f"start=wd.tile_start(M) - {behind}", f"wd.index(M) - {behind} <= wd.index({dim})"),
            (
                f"start=wd.tile_start(M) - {behind}, stop=wd.tile_stop(M) + {before}",
                f"(wd.index(M) - {behind} <= wd.index({dim})) & (wd.index(M) + {before} >= wd.index({dim}))",
            ),
        )
        bounds, mask = self.one(ways)
        dtype = self.one(("f32", "i32", "f64"))
        kind = Type(("M",), dtype, 1 << 20)
        outer_scope, outer_body = self.scope, self.body
        self.scope, self.body = [v for v in self.scope if dim not in v[1].dims], []
        self.inside.append(dim)
        x = self.read(("M", dim), self.one(("f32", "f16", "i8", "i32")))
        text = self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), dtype)[0]
        if self.chance(0.4):
            y = self.read((dim,), dtype)
            text = f"small({text} + {y[0]})"
        value = self.let(self.body, text, Type(("M", dim), dtype))[0]
        carried, yields = [], []
        for how in self.one((("sum",), ("sum", "max"), ("max", "count"), ("sum", "max", "count"))):
            name, new = self.name(), self.name()
            start = -LIMIT if how == "max" else 0
            carried.append((name, kind, kind.fill(start)))
            if how == "max":
                made = f"wd.maximum({name}, wd.max(wd.where({mask}, {value}, {-LIMIT}), dim={dim}))"
            elif how == "sum":
                made = f"{name} + wd.sum(wd.where({mask}, {value}, 0), dim={dim})"
            else:
                one = Type(("M", dim), dtype).fill(1)
                made = f"{name} + wd.sum(wd.where(({mask}) & ({value} > 3), {one}, 0), dim={dim})"
            self.body.append(Let(new, kind, made))
            yields.append(new)
        self.labels += 1
        head, label = f"{dim}, {bounds}, per_wave=True", f"f{self.labels}"
        block = Block("iterate", head, [], carried, [self.body], [yields], label)
        self.inside.pop()
        self.scope, self.body = outer_scope, outer_body
        block.names = [(self.name(), kind) for _ in carried]
        self.body.append(block)
        self.scope += block.names
