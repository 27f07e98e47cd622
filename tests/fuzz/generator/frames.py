"""What whole kernels are drawn with: their cut, loops whose bodies are given, values that a few random steps change.

A frame is a kernel as people write them (a recurrence, attention over pages, groups of rows); which of its parts there
are, their dtypes, tiles, layouts and what is done between them are drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from generator.program import Array, Block, Do, Let, Type
from generator.state import EXACT, INTEGER_MAX, LIMIT, PRODUCTS, WAYS, State

Value = tuple[str, Type]
FLOATING = ("f16", "f16", "bf16", "bf16", "f32", "f64")
"""Operands of products that take part in arithmetic too."""


class Frames(State, ABC):
    """`open`: dimensions that may be run-time numbers."""

    open: tuple[str, ...] = ()

    @abstractmethod
    def elementwise(self) -> None: ...

    @abstractmethod
    def label(self) -> str: ...

    # ---- the cut

    def begin(self, **sizes: int) -> None:
        """No dimension is cut yet; these are the extents."""
        self.kind, self.batch, self.groups, self.tidy, self.scaled = "frame", False, False, False, None
        self.operand = self.one(FLOATING)
        self.dims, self.loops, self.cover, self.split, self.waves = [], {}, set(), set(), {"M": 1, "N": 1}
        self.special = False
        self.program.sizes.update(sizes, V=41, W=int(self.one((1, 29, 64))))
        self.body = self.program.body

    def tile(self, dim: str, tile: int, axis: int, waves: int = 1) -> None:
        """Workgroups share a dimension; `waves` of each workgroup do."""
        cut = self.program.cut
        cut.append(f"wd.WorkgroupConstraint({dim}, {tile * waves}, {axis})")
        if waves > 1 or self.chance(0.3):
            cut.append(f"wd.WaveConstraint({dim}, {tile})")

    def along(self, dim: str, tile: int) -> None:
        """Loops go along a dimension."""
        self.program.cut.append(f"wd.TilingConstraint({dim}, {tile})")

    def few(self, *extents: int) -> int:
        return int(self.one(extents))

    # ---- statements

    def put(self, text: str, dims: Sequence[str], dtype: str, bound: int = LIMIT) -> Value:
        """A statement whose result is within `bound`, nearer if the dtype could not hold that exactly."""
        return self.let(self.body, text, Type(tuple(dims), dtype, bound))

    def exactly(self, text: str, dims: Sequence[str], dtype: str, bound: int) -> Value:
        """The same, never brought back to small numbers: places of which no two may be equal."""
        name, kind = self.name(), Type(tuple(dims), dtype, bound)
        self.body.append(Let(name, kind, text))
        self.scope.append((name, kind))
        return name, kind

    def given(self, dims: Sequence[str], dtype: str, low: int, high: int, plain: bool = False) -> Array:
        """An argument of whole numbers."""
        space = self.one(("SHARED", "GLOBAL", None, None, None)) if len(dims) > 1 else None
        made = self.array(tuple(dims), dtype, 0 if dtype[0] == "u" else low, high, space)
        if plain:
            made.spread = "plain"
        return made

    def numbers(self, dims: Sequence[str], low: int, high: int) -> Array:
        """Indices, counts."""
        made = self.array(tuple(dims), self.one(("i32", "i32", "i32", "i64")), low, high)
        made.spread = self.one(("plain", "plain", "inside")) if len(dims) > 1 else "plain"
        return made

    def number_of(self, array: Array, places: str = "", dims: Sequence[str] = (), high: int = LIMIT) -> Value:
        """A read of such numbers as i32, whole or by a mapping."""
        how = f", mapping=wd.IndexMapping(({''.join(f'{d}, ' for d in dims)}), {{{places}}})" if places else ""
        text = f"wd.read({array.name}{how})"
        return self.put(text if array.dtype == "i32" else f"wd.cast({text}, wd.i32)", dims, "i32", high)

    def result(self, value: Value, memory: Sequence[str], dtype: str | None = None, at: str = "") -> Array:
        """Writes a value to an array of its own, perhaps narrower. `at`: a subscript, or a mapping."""
        text, kind = value
        dtype = dtype or kind.dtype
        if dtype != kind.dtype:
            text = self.cast_to((f"small({text})", Type(kind.dims, kind.dtype)), dtype)[0]
        out = self.array(tuple(memory), dtype, 77, 77)
        self.write_to(out, text, at)
        return out

    def write_to(self, out: Array, text: str, at: str = "") -> None:
        mapping = f", mapping={at}" if at.startswith("wd.") else ""
        self.body.append(Do(f"wd.write({text}, {out.name}{'' if mapping else at}{mapping or self.hint()})"))

    def zero(self, dims: Sequence[str], dtype: str, number: int = 0) -> str:
        return Type(tuple(dims), dtype).fill(number)

    def product_of(self, a: Value, b: Value, acc: str, dims: Sequence[str], bound: int, sums: str = "") -> Value:
        how = ""
        if a[1].dtype == "f32" and max(a[1].bound, b[1].bound) <= EXACT["tf32"] and self.chance(0.4):
            how = f", precision={self.one(('tf32', '3xtf32'))!r}"
        sums = sums or PRODUCTS[a[1].dtype]
        name, kind = self.name(), Type(tuple(dims), sums, bound)
        self.body.append(Let(name, kind, f"wd.mma({a[0]}, {b[0]}, {acc}{how})"))
        self.scope.append((name, kind))
        return name, kind

    def as_operand(self, value: Value, dtype: str | None = None) -> Value:
        """A value as an operand of a product: small, in the operands' dtype."""
        text, kind = value
        if kind.bound > LIMIT:
            text, kind = f"small({text})", Type(kind.dims, kind.dtype)
        return self.cast_to((text, kind), dtype or self.operand)

    def touched(self, value: Value, *also: Value) -> Value:
        """The value after a few random steps, in which the others take part; their dimensions are among its own."""
        outer, count, kind = self.scope, self.one((0, 0, 0, 1, 1, 2)), value[1]
        if not count:
            return value
        self.scope = [*also, value]
        for _ in range(count):
            self.elementwise()
        found = [v for v in self.scope[len(also) + 1 :] if v[1].dtype != "i1" and v[1].dims == kind.dims]
        self.scope = outer
        if not found:
            return value
        made, theirs = found[-1]
        back = self.cast_to((f"small({made})", Type(theirs.dims, theirs.dtype)), kind.dtype)[0]
        return self.put(f"small({back})", kind.dims, kind.dtype)

    def looped(self, head: str, first: Sequence[tuple[Type, str]], fill: Callable[..., Sequence[str]]) -> list[Value]:
        """A loop: what it carries and starts from; `fill` draws its body from the carried values and says what the next
        trip gets."""
        outer_scope, outer_body = list(self.scope), self.body
        self.body = []
        dim = head.split(",")[0]
        self.inside.append(dim)
        carried = [(self.name(), kind, start) for kind, start in first]
        self.scope = [v for v in self.scope if dim not in v[1].dims] + [(n, k) for n, k, _ in carried]
        yields = list(fill(*((n, k) for n, k, _ in carried)))
        names = [(self.name(), kind) for kind, _ in first]
        block = Block("iterate", head, names, carried, [self.body], [yields] if yields else [[]], self.label())
        self.inside.pop()
        self.scope, self.body = outer_scope, outer_body
        self.body.append(block)
        self.scope += names
        return names

    def conditional(self, head: str, fill: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
        """A condition around statements that are there for their effect."""
        outer_scope, outer_body, bodies = list(self.scope), self.body, []
        for how in (fill, otherwise):
            self.scope, self.body = list(outer_scope), []
            self.branches += 1
            if how is not None:
                how()
            self.branches -= 1
            bodies.append(self.body)
        self.scope, self.body = outer_scope, outer_body
        self.body.append(Block("cond", head, [], [], bodies, [[], []], self.label()))

    # ---- options

    def finish(self) -> None:
        """Options of schedules, run-time extents, how it is called."""
        p = self.program
        if self.chance(0.4):
            p.schedule["stages"] = self.one((1, 1, 2, 3, 4))
        products = "wd.mma" in p.source() and bool(p.cut) and "Tiling" in str(p.cut)
        for name, value, often in (
            ("swizzle", True, 0.08), ("direct_to_shared", self.one((True, False)), 0.12),
            ("persistent", True, 0.05), ("ping_pong", True, 0.04 * products),
            ("split_k", self.few(1, 2, 3), 0.06 * products),
        ):  # fmt: skip
            if self.chance(often):
                p.schedule[name] = value
        for name, value, often in (
            ("specialize", self.one((True, False)), 0.06), ("cluster", "(2, 1, 1)", 0.03), ("dependent", True, 0.05),
            ("prefetch", 1, 0.04),
        ):  # fmt: skip
            if self.chance(often):
                p.hopper[name] = value
        if self.open and self.chance(0.35):
            held = {d for a in p.arrays for d in a.dims}
            p.dynamic = tuple(d for d in self.open if d in held and self.chance(0.6))
        if self.chance(0.12):
            p.way = self.one(WAYS)


def ceiling(dtype: str) -> int:
    """Whole numbers up to here are exact in a dtype, LIMIT at the most."""
    return min(LIMIT, EXACT.get(dtype, INTEGER_MAX.get(dtype, LIMIT)))
