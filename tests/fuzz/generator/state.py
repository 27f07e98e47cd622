"""What every statement is drawn with: choices, how the kernel is cut, variables in sight, arrays.

Every number is whole and its magnitude is known (`Type.bound`), so that every sum that the kernel makes has one value
whatever its order and results are compared for equality.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from generator.program import Array, Let, Type

MOST = 1024
"""Elements of a value that a wave holds in all but a few kernels: what a pair costs grows with them."""

LIMIT = 60
"""What `small` brings values back to: every dtype holds such whole numbers exactly (but narrow floats, which round)."""

FLOATS = ("f64", "f32", "f16", "bf16")
INTS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
EXACT = {"f64": 1 << 53, "f32": 1 << 24, "f16": 2048, "tf32": 2048, "bf16": 256}
"""Whole numbers up to here are exact."""
SUMS = {"f64": 1 << 53, "f32": 1 << 24, "f16": 65000, "bf16": 1 << 24}
"""Bounds of results that are computed exactly and rounded once (f16 and bf16 are computed in f32)."""
VALUES = ("f32", "f32", "f32", "i32", "i32", "f16", "bf16", "i16", "u8", "i64", "f64", "u32", "i8", "u16", "u64")
PRODUCTS = {
    "f16": "f32", "bf16": "f32", "i8": "i32", "f32": "f32", "f64": "f64", "tf32": "f32", "f8e4m3": "f32",
    "f8e5m2": "f32", "f8e4m3fnuz": "f32", "f8e5m2fnuz": "f32", "i4": "i32", "u4": "i32",
}  # fmt: skip
"""Operands of matrix products and what they are summed in."""
PACKED = ("i4", "u4")
"""Operands of which memory has two in a byte."""
WAYS = ("call", "call", "bind", "bind", "saved", "precompiled")
"""How a kernel is called, beside `compile`: see `ways.py`."""
BLOCK = 32
"""Elements with one scale."""
SCALED = (
    ("f4e2m1", "f4e2m1"), ("f8e4m3", "f4e2m1"), ("f8e5m2", "f8e4m3"), ("f6e2m3", "f6e2m3"), ("f6e3m2", "f4e2m1"),
)  # fmt: skip
"""Operands of scaled products: pairs whose sums are exact in f32 for scales of 1 and 2."""
INTEGER_MAX = {f"{k}{b}": (1 << (b - (k == "i"))) - 1 for k in "iu" for b in (8, 16, 32, 64)}


class State:
    """`scope`: variables in sight, innermost last; `inside`: dimensions of the loops around; `cover`: dimensions that a
    workgroup holds as a whole; `split`: those divided among workgroups; `rows`: those divided among waves."""

    # ---- choices

    def one(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def extent(self, large: int) -> int:
        if self.chance(0.025):
            return 0
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
        self.kind = self.one(("rows", "rows", "product", "product", "product", "product", "chain", "middle"))
        self.operand = self.one((
            "f16", "f16", "f16", "f16", "f16", "bf16", "bf16", "bf16", "i8", "i8", "f32", "f64",
            self.one(("tf32", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")), self.one(("f16", "i4", "u4")),
        ))  # fmt: skip
        self.dims: list[str] = ["M", "N"]
        self.loops: dict[str, int] = {}
        self.cover: set[str] = set()
        self.split: set[str] = set()
        self.waves = {"M": 1, "N": 1}
        groups = self.groups = self.kind != "rows" and self.chance(0.35)
        # Rows of whole 16 bytes: what copies by tensor maps, and so roles, clusters and turns, ask for.
        self.tidy = groups and self.chance(0.7)
        if self.tidy and self.operand in ("f32", "f64"):
            self.operand = self.one(("f16", "bf16"))
        waves = self.one(((1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1), (3, 1)))
        tile_m = waves[0] * (
            self.one((16, 16, 32, 32, 64 // waves[0])) if self.kind != "rows" else self.one((4, 8, 16, 5, 16))
        )
        if groups:  # tiles that matrix instructions of a warpgroup take, one group or several along M
            tile_m, waves = self.one((64, 128, 128, 192)), (1, 1)
            waves = (tile_m // 64 if self.chance(0.6) else 1, 1)
        long = self.kind == "rows" and self.chance(0.12)  # rows that take more registers than lanes
        if long:
            tile_m = 2 * waves[0]
        m = self.extent(70) if not groups else int(self.rng.integers(tile_m // 2, self.one((1, 1, 2)) * tile_m + 40))
        n = int(self.one((1, 7, 16, 30, 33, 64, 65, 100, 128, 130))) if self.kind == "rows" else self.extent(80)
        if long:
            m, n = min(m, 9), int(self.one((256, 258, 300, 399, 512, 600, 777, 1024, 1500, 2048)))
        if self.operand in PACKED:
            m, n = m + m % 2, n + n % 2
        p.sizes.update(M=m, N=n)
        p.cut.append(f"wd.WorkgroupConstraint(M, {tile_m}, 0)")
        if waves[0] > 1 or self.chance(0.5):
            p.cut.append(f"wd.WaveConstraint(M, {tile_m // waves[0]})")
        self.place("M", m, tile_m)
        self.waves["M"] = waves[0]
        how = {
            "rows": ("cover", "whole", "whole", "loop", "loop", "grid"), "product": ("grid", "grid", "grid", "cover"),
            "chain": ("loop",), "middle": ("grid", "grid", "cover"),
        }[self.kind]  # fmt: skip
        if self.tidy:
            p.sizes.update(M=(m := -(-m // 16) * 16), N=(n := max(16, -(-n // 16) * 16)))
        tile_n = n
        how_n = self.one(("cover", "whole", "whole") if long else how)
        if how_n == "whole" and waves[1] > 1:
            how_n = "cover"
        if how_n == "loop":
            self.loops["N"] = self.one((16, 32, 24, 8)) if self.kind == "rows" else self.one((16, 32, 32, 64))
            p.cut.append(f"wd.TilingConstraint(N, {self.loops['N']})")
        elif how_n != "whole":
            tile_n = self.one((16, 16, 32, 48 // waves[1], 24)) * waves[1]
            if groups:
                tile_n = self.one((32, 64, 96))
            if self.kind == "rows" and how_n == "grid":  # several tiles, the last one not whole
                p.sizes["N"] = n = int(self.one((n, 258, 399, self.rng.integers(100, 600))))
                tile_n = self.one((64, 128, 256)) * waves[1]
            if how_n == "cover":
                tile_n = max(tile_n, waves[1] * max(1, -(-n // waves[1])))
            p.cut.append(f"wd.WorkgroupConstraint(N, {tile_n}, 1)")
            if waves[1] > 1 or self.chance(0.5):
                p.cut.append(f"wd.WaveConstraint(N, {tile_n // waves[1]})")
            self.place("N", n, tile_n)
            self.waves["N"] = waves[1]
        else:
            self.cover.add("N")
        self.scaled = self.one(SCALED) if self.kind == "product" and self.chance(0.05 if self.tidy else 0.14) else None
        if self.scaled is not None:
            self.add_loop("K", self.one((32, 64, 128)), BLOCK * int(self.rng.integers(1, 6)))
        elif self.kind in ("product", "middle") or (self.kind == "rows" and self.chance(0.25)):
            tile_k = self.one((8, 16, 16, 32, 32, 64, 24))
            if groups and self.chance(0.6):  # rings that fill, and go round
                self.add_loop("K", self.one((32, 64, 64, 128)), self.even_out(int(self.rng.integers(1, 240))))
            else:
                self.add_loop("K", tile_k, self.even_out(self.extent(100)))
        self.waves_along("K", 0.15)
        if self.kind == "rows":
            self.waves_along("N", 0.2)
        if self.chance(0.2):
            self.add_loop("L", self.one((1, 2, 8, 16)), int(self.rng.integers(1, 24)))
        if self.kind == "chain":
            p.sizes["D"] = int(self.one((32, 64) if self.tidy else (8, 16, 32, 24, 20, 64)))
            self.dims.append("D")
            self.cover.add("D")
        if self.kind == "middle":  # columns of a product that no constraint cuts, few or more than registers hold
            p.sizes["F"] = self.even_out(int(self.one((16, 16, 24, 32, 48, 64, 64, 100, self.one((128, 256, 384))))))
            self.dims.append("F")
            self.cover.add("F")
        if self.operand in PACKED:  # rows of whole bytes, whichever way they lie
            p.sizes.update({d: e + e % 2 for d, e in p.sizes.items()})
        meets = self.cover >= {"M", "N"} - set(self.loops) and self.chance(0.25)  # `workgroups_meet` needs a batch
        if meets or self.chance(0.15):
            p.sizes["B"] = int(self.rng.integers(1, 4))
            p.cut.append("wd.WorkgroupConstraint(B, 1, 2)")
            self.batch = True
        else:
            self.batch = False
        p.sizes.update(V=41, W=int(self.one((1, 29, 64) if self.operand not in PACKED else (2, 30, 64))))
        if self.cover >= {"N"}:
            inner = next(q for q in (4, 5, 3, 2, 1) if n % q == 0)
            p.subs.update(TOP=self.one((3, 3, 3, 1, 2, 5, 16)), P=n // inner, Q=inner)
        wave_n = self.loops.get("N", n if how_n == "whole" else tile_n // waves[1])
        longest = max(wave_n, self.loops.get("K", 0), p.sizes.get("D", 0))
        return (tile_m // waves[0]) * longest // (2 if groups else 1)

    def even_out(self, extent: int) -> int:
        return -(-extent // 16) * 16 if self.tidy else extent

    def add_loop(self, dim: str, tile: int, extent: int) -> None:
        self.program.sizes[dim] = extent
        self.program.cut.append(f"wd.TilingConstraint({dim}, {tile})")
        self.loops[dim] = tile

    def waves_along(self, dim: str, often: float) -> None:
        """Lets waves share the tiles of a loop, now and then."""
        if dim not in self.loops or self.waves.get(dim, 1) > 1 or not self.chance(often):
            return
        waves = self.one((2, 2, 2, 3, 4))
        tile = self.loops[dim]
        self.loops[dim] = waves * tile
        cut = self.program.cut
        cut[cut.index(f"wd.TilingConstraint({dim}, {tile})")] = f"wd.TilingConstraint({dim}, {waves * tile})"
        cut.append(f"wd.WaveConstraint({dim}, {tile})")
        self.waves[dim] = waves

    def place(self, dim: str, extent: int, tile: int) -> None:
        if tile >= extent:
            self.cover.add(dim)
        else:
            self.split.add(dim)

    one_sum = False
    """Whether the only loop is one of products alone, as those are whose trips workgroups share."""

    def options(self) -> None:
        p = self.program
        if self.chance(0.4):
            p.schedule["stages"] = self.one((1, 1, 2, 3, 5))
        for name, value, often in (
            ("swizzle", self.one((True, True, False)), 0.06), ("ping_pong", self.one((True, False)), 0.06),
            ("direct_to_shared", self.one((True, False)), 0.15), ("persistent", True, 0.1),
        ):  # fmt: skip
            if self.chance(often):
                p.schedule[name] = value
        if self.kind == "product" and self.chance(0.3):  # a loop that is no sum is refused
            name, value = self.one((("split_k", 2), ("split_k", 3), ("stream_k", True), ("stream_k", 5)))
            p.schedule[name] = value
            self.one_sum = self.scaled is None and self.chance(0.7)
        for name, value, often in () if not self.groups or not (self.tidy or self.chance(0.3)) else (
            ("specialize", self.one((True, False)), 0.25),
            ("cluster", self.one(("(2, 1, 1)", "(1, 2, 1)", "(2, 2, 1)", "(4, 1, 1)")), 0.25),
            ("persistent", self.one((True, True, False)), 0.35), ("dependent", True, 0.05),
            ("prefetch", self.one((1, 2)), 0.05), ("registers", self.one(((24, 240), (40, 232), (32, 224))), 0.04),
        ):  # fmt: skip
            if self.chance(often):
                p.hopper[name] = value
        if self.tidy and self.groups and self.kind == "product" and self.chance(0.12):  # all ways to take tiles at once
            p.hopper.update(persistent=True, cluster=self.one(("(2, 1, 1)", "(1, 2, 1)", "(4, 1, 1)")))
            p.hopper.update(self.one(({}, {"stream_k": True}, {"split_k": 2}, {"specialize": True})))
            self.one_sum = self.scaled is None and self.chance(0.8)
        if self.chance(0.06):
            p.cut.append(self.hardware())
        if self.chance(0.2):
            p.dynamic = tuple(
                d for d in ("M", "N", "K", "L") if d in p.sizes and d not in self.cover and self.chance(0.5)
            )
        if self.chance(0.12):
            p.way = self.one(WAYS)
        if self.chance(0.08):
            p.globe = int(self.one((2, 5, -3)))

    def hardware(self) -> str:
        """What the user asks of the chip; most of it holds on some chips only."""
        waves = f"({self.waves['M']}, {self.waves['N']}, 1)"
        ways = (
            "threads_per_wave=32", "threads_per_wave=64", "threads_per_wave=128", f"waves_per_block={waves}",
            f"vector_shapes={{M: {self.one((1, 2, 16))}}}",
        )  # fmt: skip
        return f"wd.HardwareConstraint({self.one(ways)})"

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
        text = f"wd.cast({text}, wd.{dtype})"
        if self.special and kind.dtype in SUMS and dtype in INTEGER_MAX:  # infinities become the largest integers
            text, bound = f"small({text})", LIMIT
        return text, Type(kind.dims, dtype, min(bound, INTEGER_MAX.get(dtype, bound)))

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
        if low != high and self.chance(0.04):
            spread = "repeated"
        elif len(dims) == 2 and self.chance(0.05):  # of three the outer stride would pass 2^31 elements
            spread = "far"
        if self.tidy and self.chance(0.8):
            spread = "plain"
        special = self.special and low != high and dtype not in INTEGER_MAX and self.chance(0.5)
        made = Array(f"a{len(self.program.arrays)}", dims, dtype, low, high, space, spread, special)
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
        asked = dims is not None
        if dims is None:
            wide = list(here)
            count = min(len(wide), self.one((1, 2, 2, 2)))
            dims = tuple(wide[int(i)] for i in sorted(self.rng.permutation(len(wide))[:count]))
            if self.inside and self.inside[-1] not in dims and self.chance(0.6):
                dims = (*dims[:1], self.inside[-1])
        dtype = dtype or self.one(VALUES)
        if dtype in PACKED:
            array = self.array(self.batched(dims), dtype, -8, 7, self.one(("SHARED", "GLOBAL", None, None)))
            array.spread = "plain"
            high = 15 if dtype == "u4" else 8
            return self.value_of(array.name, tuple(d for d in array.dims if d != "B"), dtype, high)
        if dtype in VALUES and self.even(dims[-1]) and self.chance(0.08):
            return self.nibbles(dims, dtype)
        if self.chance(0.1):
            order = self.batched(dims)
            low, high = self.span(dtype, dtype not in VALUES)
            array, subscript = self.larger(order, dtype, low, high)
            return self.value_of(f"{array.name}{subscript}", tuple(d for d in order if d != "B"), dtype, high)
        fitting = [a for a in self.program.arrays if set(a.dims) - {"B"} == set(dims) and a.dtype == dtype]
        known = [a for a in fitting if a.name not in self.written()]
        own = [a for a in self.own if a in fitting]
        if own and self.chance(0.8):
            array = self.one(own)
            if self.chance(0.3) and all(d in self.cover or d in self.inside for d in dims):
                places = ", ".join(f"{d}: {d} {self.one(('+ 1', '- 2', '+ 5'))}" for d in dims)
                text = f"wd.read({array.name}, mapping=wd.IndexMapping(({', '.join(dims)},), {{{places}}}))"
                return self.let(self.body, text, Type(dims, dtype, array.high))
        elif known and self.chance(0.5):
            array = self.one(known)
        elif len(dims) > 1 and (part := self.part_of(dims[-1])) and dtype in VALUES and self.chance(0.12):
            return self.repeated(dims, part, dtype, not asked and self.chance(0.4))
        else:
            low, high = self.span(dtype, dtype not in VALUES)
            space = self.one(("SHARED", "GLOBAL", None, None)) if len(dims) > 1 else None
            if space == "SHARED" and not self.inside and self.chance(0.7):
                space = None
            array = self.array(self.batched(dims), dtype, low, high, space)
        order = tuple(d for d in array.dims if d != "B")
        return self.value_of(array.name, order, dtype, array.high)

    def value_of(self, array: str, order: tuple[str, ...], dtype: str, high: int) -> tuple[str, Type]:
        """A read as a variable."""
        text, kind = f"wd.read({array}{self.hint()})", Type(order, dtype, high)
        if dtype in VALUES:
            return self.let(self.body, text, kind)
        name = self.name()  # for products only: computing needs a cast
        self.body.append(Let(name, kind, text))
        if self.chance(0.2):
            self.let(self.body, f"wd.cast({name}, wd.f32)", Type(order, "f32", high))
        return name, kind

    def part_of(self, dim: str) -> int | None:
        """Neighbours along a dimension that may share an element of an array: a divisor of all that cuts it."""
        extent = {**self.program.sizes, **self.program.subs}[dim]
        cut = self.loops.get(dim, 0) // self.waves.get(dim, 1)
        if dim in self.split or dim == "L" or (dim in self.cover and self.waves.get(dim, 1) > 1):
            return None
        fitting = [n for n in (2, 4, 8, 32) if extent % n == 0 and cut % n == 0]
        return self.one(fitting) if fitting else None

    def repeated(self, dims: tuple[str, ...], part: int, dtype: str, summed: bool) -> tuple[str, Type]:
        """A read of an array that is shorter along its last dimension, such as `K / 32`: each counts `part` times,
        or the parts are summed up."""
        low, high = self.span(dtype)
        short = (*dims[:-1], f"{dims[-1]} / {part}")
        array = self.array((*(("B",) if self.batch and self.chance(0.5) else ()), *short), dtype, low, high)
        if summed:
            n = max(1, self.program.sizes.get(dims[-1], 64) // part)
            text, bound = self.fit((f"wd.read({array.name})", Type(short, dtype, high)), lambda b: b * n)
            return self.let(self.body, f"wd.sum({text}, dim={short[-1]})", Type(dims[:-1], dtype, bound * n))
        text = f"wd.repeat_interleave(wd.read({array.name}), {dims[-1]})"
        return self.let(self.body, text, Type(dims, dtype, high))

    def even(self, dim: str) -> bool:
        """Whether rows along a dimension are whole bytes where an element has half of one."""
        return {**self.program.sizes, **self.program.subs}[dim] % 2 == 0

    def nibbles(self, dims: tuple[str, ...], dtype: str) -> tuple[str, Type]:
        """A read of elements of 4 bits, cast."""
        narrow = self.one(("i4", "u4"))
        if dtype[0] == "u":
            narrow = "u4"
        array = self.array((*(("B",) if self.batch and self.chance(0.5) else ()), *dims), narrow, -8, 7)
        array.spread = "plain"
        return self.let(self.body, f"wd.cast(wd.read({array.name}), wd.{dtype})", Type(dims, dtype, 15))

    def larger(self, dims: tuple[str, ...], dtype: str, low: int, high: int) -> tuple[Array, str]:
        """An array that is longer than needed, and the subscript of the part that has these dimensions."""
        sizes, order, parts = self.program.sizes, [], []
        for d in dims:
            if d in ("B", "TOP", "P", "Q") or self.chance(0.3):
                order.append(d)
                parts.append(":")
                continue
            before, after = self.one((0, 0, 0, 1, 3, 8, 16, "flag")), self.one((0, 0, 1, 2, 7, 16))
            name = f"S{sum(s[0] == 'S' for s in sizes)}"
            sizes[name] = sizes[d] + after + (self.program.flag if before == "flag" else int(before))
            order.append(name)
            parts.append(f":{d}" if before == 0 else f"{before} : {before} + {d}")
        space = "GLOBAL" if self.chance(0.2) else None
        return self.array(tuple(order), dtype, low, high, space), f"[{', '.join(parts)}]"

    def hint(self) -> str:
        """An option of a read or a write that changes no result."""
        if self.chance(0.94):
            return ""
        caches = ("'stream'", "'keep'", "'bypass'")
        ways = [f", cache={c}" for c in caches] + [f", elements_per_thread={n}" for n in (1, 2, 4)]
        return str(self.one(ways))

    def written(self) -> set[str]:
        return self.atomics | {a.name for a in self.program.arrays if a.low == a.high}


def union(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    """Dimensions of an elementwise result: those of the operand with more, then what the other adds."""
    first, second = (b, a) if len(b) > len(a) else (a, b)
    return (*first, *(d for d in second if d not in first))
