"""Arrays that a kernel reads and writes: results in place, what its own loops have written, loops per element.

Every array here belongs to one workgroup, element by element: its dimensions have all that workgroups divide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from generator.program import Array, Block, Do, Let, Type
from generator.state import EXACT, LIMIT, State


class Rewrites(State, ABC):
    """Each method adds statements to `body`, or none where nothing in sight fits."""

    def owned(self, dims: tuple[str, ...]) -> bool:
        """Whether no other workgroup has the same elements of an array of these dimensions (and of the batch)."""
        return bool(dims) and self.split <= set(dims)

    def mutable(self, dims: tuple[str, ...], dtype: str, value: int | None) -> Array:
        """An array that the kernel reads and writes; of whole numbers, or of one where `value` is given."""
        order = tuple(dims[int(i)] for i in self.rng.permutation(len(dims))) if self.chance(0.3) else dims
        memory = (("B",) if self.batch else ()) + order
        low, high = (value, value) if value is not None else ((0 if dtype[0] == "u" else -9), 9)
        made = self.array(memory, dtype, low, high)
        if made.spread == "repeated":
            made.spread = "plain"
        self.atomics.add(made.name)
        return made

    # ---- beta * C + alpha * A B, with C the result

    def begin_result(self) -> tuple[Array, tuple[str, Type] | None] | None:
        """A result that lies where an operand lay: its array and, if it is read first, what it held."""
        here = tuple(d for d in self.dims if d not in self.loops)[:2]
        dims = here if self.chance(0.8) else tuple(d for d in here if d in self.split)
        if not self.owned(dims):
            return None
        array = self.mutable(dims, self.one(("f32", "f32", "f16", "bf16", "i32", "f64", "i8")), None)
        return array, self.old_of(array, dims) if self.chance(0.4) else None

    def old_of(self, array: Array, dims: tuple[str, ...]) -> tuple[str, Type]:
        return self.let(self.body, f"wd.read({array.name})", Type(dims, array.dtype, LIMIT))

    def end_result(self, begun: tuple[Array, tuple[str, Type] | None]) -> None:
        array, old = begun
        dims = tuple(d for d in array.dims if d != "B")
        old = old or self.old_of(array, dims)
        more = self.pick(lambda t: t.dtype != "i1" and set(t.dims) == set(dims))
        more = more or self.pick(lambda t: t.dtype != "i1" and set(t.dims) <= set(dims))
        add = "1"
        if more is not None:
            add = self.cast_to((f"small({more[0]})", Type(more[1].dims, more[1].dtype)), array.dtype)[0]
        how = self.one(("{} * 2 + {}", "{} + {}", "{1} - {0}", "wd.maximum({}, {})"))
        new = self.let(self.body, f"small({how.format(old[0], add)})", Type(dims, array.dtype, LIMIT))
        self.body.append(Do(f"wd.write(wd.broadcast({new[0]}, {', '.join(dims)}), {array.name})"))
        if self.chance(0.3):
            self.let(self.body, f"wd.read({array.name})", Type(dims, array.dtype, LIMIT))

    # ---- what one loop writes and another reads

    def own_tiles(self, dim: str) -> None:
        """A loop that fills an array, tile by tile; loops behind it read it as they read arguments."""
        free = [d for d in ("M", "N") if d in self.dims and d not in self.loops]
        dims = (self.one(free), dim) if free else (dim,)
        if not self.owned(dims) or dim in self.inside:
            return
        dtype = self.operand if self.operand in EXACT and self.operand != "tf32" and self.chance(0.6) else "f32"
        array = self.mutable(dims, dtype, 7)
        outer_scope, outer_body = self.scope, self.body
        self.scope, self.body = [v for v in self.scope if dim not in v[1].dims], []
        self.inside.append(dim)
        old = self.chance(0.4)
        x = self.old_of(array, dims) if old else self.read(dims, dtype)
        more = self.pick(lambda t: t.dtype != "i1" and set(t.dims) <= set(dims))
        add = "1"
        if more is not None:
            add = self.cast_to((f"small({more[0]})", Type(more[1].dims, more[1].dtype)), dtype)[0]
        value = self.let(self.body, f"wd.clamp({x[0]} + {add}, -3, 3)", Type(dims, dtype, 3))
        self.body.append(Do(f"wd.write(wd.broadcast({value[0]}, {', '.join(dims)}), {array.name})"))
        block = Block("iterate", dim, [], [], [self.body], [[]], self.label())
        self.inside.pop()
        self.scope, self.body = outer_scope, outer_body
        self.body.append(block)
        array.high = 7
        self.own.append(array)

    # ---- loops that each element leaves by itself

    def each(self) -> None:
        """A loop whose condition has dimensions: elements stop after different trips."""
        x = self.pick(lambda t: t.dtype in ("i32", "f32", "i16", "f16", "i64", "u32") and bool(t.dims))
        if x is None:
            return
        kind = Type(x[1].dims, x[1].dtype, LIMIT)
        value, n = self.name(), self.name()
        counter = Type(kind.dims, "i32", 9)
        outer_scope, outer_body = list(self.scope), self.body
        self.body, self.scope = [], [*outer_scope, (value, kind), (n, counter)]
        self.branches += 1
        for _ in range(self.one((0, 1, 1))):
            self.one((self.elementwise, self.elementwise, self.table_read))()
        add = self.pick(lambda t: t.dtype != "i1" and set(t.dims) <= set(kind.dims))
        text = "1"
        if add is not None and add[0] != value:
            text = self.cast_to((f"small({add[0]})", Type(add[1].dims, add[1].dtype)), kind.dtype)[0]
        result, up = self.name(), self.name()
        self.body += [Let(result, kind, f"small({value} + {text})"), Let(up, counter, f"{n} + 1")]
        self.branches -= 1
        body = self.body
        self.scope, self.body = outer_scope, outer_body
        limit = int(self.rng.integers(1, 5))
        test = self.one((f"{value} < {self.one((5, 20, 50))}", f"{value} != {self.one((1, 7))}"))
        head = f"({n} < {limit}) & ({test})"
        if self.chance(0.3):
            head = f"({n} < {limit}) & (wd.index({self.one(kind.dims)}) % 4 >= {n})"
        names = [(self.name(), kind), (self.name(), counter)]
        carried = [(value, kind, f"small({x[0]})"), (n, counter, counter.fill(0))]
        self.body.append(Block("while", head, names, carried, [body], [[result, up]], self.label()))
        self.scope += names

    @abstractmethod
    def elementwise(self) -> None: ...

    @abstractmethod
    def table_read(self) -> None: ...

    # ---- one number in several dtypes

    def constants(self) -> None:
        """Constants that Python holds for equal: 1, 1.0 and True have different bits."""
        here = [d for d in self.dims if d not in self.loops or d in self.inside]
        number = self.one((0, 1, 2, 60))
        for dtype in self.one((("f32", "i32"), ("f16", "i16", "f32"), ("u32", "f32", "f64"), ("i64", "f64", "i32"))):
            dims = tuple(here[: self.one((0, 1, 2))])
            name = self.name()
            kind = Type(dims, dtype, LIMIT)
            self.body.append(Let(name, kind, kind.fill(number)))
            self.scope.append((name, kind))
