"""Kernels of operations whose results `docs/numerics.md` promises to the bit, on numbers of all kinds, cut in several
ways.

`draw(seed)` makes one kernel of any numbers: of all magnitudes, denormal ones, infinities, NaN, zeros, all bits of
integers. `cuts` of it are other constraints and schedules of the same statements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import wavedsl as wd
from generator.frames import Value
from generator.program import Array, Do, Let, Program, Type
from generator.state import State

FLOATS = ("f32", "f32", "f32", "f16", "f16", "bf16", "bf16", "f64")
INTS = ("i32", "i32", "u32", "i16", "u16", "i8", "u8", "i64", "u64")


class Bits(State):
    """One kernel while it is drawn."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng([1, seed])
        self.count = 0
        self.scope: list[Value] = []
        self.used: set[str] = set()
        self.inside: list[str] = []
        self.rows = False
        m, n = int(self.one((1, 5, 16, 33))), int(self.one((1, 7, 16, 33, 64, 100)))
        self.program = Program(seed, {"M": m, "N": n}, {}, [], [], 0)
        self.body = self.program.body
        for _ in range(self.one((2, 3, 4))):
            self.argument()
        for _ in range(int(self.rng.integers(4, 16))):
            self.one((
                self.float_pair, self.float_pair, self.float_pair, self.float_alone, self.fused, self.compare,
                self.choose, self.casting, self.casting, self.integer_pair, self.integer_alone, self.reduction,
                self.order, self.argument,
            ))()  # fmt: skip
        fresh = [v for v in self.scope if v[0] not in self.used and v[1].dims] or self.scope[-1:]
        for text, kind in fresh:
            dims = ("M", "N") if "N" in kind.dims else ("M",)
            wide = text if kind.dims == dims else f"wd.broadcast({text}, {', '.join(dims)})"
            out = Array(f"a{len(self.program.arrays)}", dims, kind.dtype, 0 if kind.dtype == "i1" else 77, 77)
            self.program.arrays.append(out)
            self.body.append(Do(f"wd.write({wide}, {out.name})"))

    # ---- values

    def put(self, text: str, dims: tuple[str, ...], dtype: str) -> Value:
        name, kind = self.name(), Type(dims, dtype)
        self.body.append(Let(name, kind, text))
        self.scope.append((name, kind))
        return name, kind

    def argument(self) -> Value:
        dims = self.one((("M", "N"), ("M", "N"), ("M", "N"), ("N",), ("M",)))
        dtype = self.one((*FLOATS, *FLOATS, *INTS))
        made = Array(f"a{len(self.program.arrays)}", dims, dtype, -1, 1)
        self.program.arrays.append(made)
        return self.put(f"wd.read({made.name})", dims, dtype)

    def of(self, dtypes: tuple[str, ...]) -> Value:
        """A variable of one of these dtypes, or another one cast."""
        found = self.pick(lambda t: t.dtype in dtypes)
        if found is not None and self.chance(0.85):
            return found
        other = self.pick(lambda t: t.dtype != "i1")
        assert other is not None
        return self.into(other, self.one(dtypes))

    def into(self, value: Value, dtype: str) -> Value:
        text, kind = value
        return value if kind.dtype == dtype else self.put(f"wd.cast({text}, wd.{dtype})", kind.dims, dtype)

    def two(self, dtypes: tuple[str, ...]) -> tuple[Value, Value, tuple[str, ...]]:
        x = self.of(dtypes)
        y = self.into(self.of(dtypes), x[1].dtype)
        return x, y, both(x[1].dims, y[1].dims)

    # ---- statements

    def float_pair(self) -> None:
        x, y, dims = self.two(FLOATS)
        how = self.one(
            ("{} + {}", "{} - {}", "{} * {}", "{} * {}", "{} / {}", "wd.minimum({}, {})", "wd.maximum({}, {})")
        )
        self.put(how.format(x[0], y[0]), dims, x[1].dtype)

    def float_alone(self) -> None:
        x = self.of(FLOATS)
        how = self.one((
            "-{}", "abs({})", "wd.sqrt({})", "wd.sqrt(abs({}))", "wd.floor({})", "wd.ceil({})", "wd.trunc({})",
            "wd.round({})", "{} * 0.1", "{} + 0.3", "1.0 / {}", "{} * {}", "{} - {}", "wd.clamp({}, -1.5, 2.5)",
            "{} * 0.0", "{} / 3.0", "{} * 0.5", "0.0 - {}", "{} + 0.0",
        ))  # fmt: skip
        self.put(how.format(x[0], x[0]), x[1].dims, x[1].dtype)

    def fused(self) -> None:
        x, y, dims = self.two(FLOATS)
        z = self.into(self.of(FLOATS), x[1].dtype)
        dims = both(dims, z[1].dims)
        how = self.one(("wd.fma({}, {}, {})", "{} * {} + {}", "{2} - {0} * {1}", "({} + {}) * {}"))
        self.put(how.format(x[0], y[0], z[0]), dims, x[1].dtype)

    def compare(self) -> None:
        x, y, dims = self.two((*FLOATS, *INTS))
        if x[1].dtype[0] == "f" and self.chance(0.3):
            self.put(f"wd.{self.one(('isnan', 'isinf', 'isfinite'))}({x[0]})", x[1].dims, "i1")
            return
        self.put(f"{x[0]} {self.one(('<', '<=', '>', '>=', '==', '!='))} {y[0]}", dims, "i1")

    def choose(self) -> None:
        mask = self.pick(lambda t: t.dtype == "i1")
        if mask is None:
            self.compare()
            mask = self.scope[-1]
        x, y, dims = self.two((*FLOATS, *INTS))
        self.put(f"wd.where({mask[0]}, {x[0]}, {y[0]})", both(dims, mask[1].dims), x[1].dtype)

    def casting(self) -> None:
        x = self.pick()
        assert x is not None
        to = self.one((*FLOATS, *INTS))
        how = ""
        if x[1].dtype in FLOATS and to in FLOATS and self.chance(0.3):
            how = ", rounding='toward_zero'"
        self.put(f"wd.cast({x[0]}, wd.{to}{how})", x[1].dims, to)

    def integer_pair(self) -> None:
        x, y, dims = self.two(INTS)
        how = self.one((
            "{} + {}", "{} - {}", "{} * {}", "{} & {}", "{} | {}", "{} ^ {}", "{} >> ({} & 7)", "{} << ({} & 7)",
            "{} >> {}", "{} << {}", "{} // (({} & 15) + 1)", "{} % (({} & 15) + 1)", "wd.minimum({}, {})",
            "wd.maximum({}, {})", "wd.saturating_add({}, {})", "wd.saturating_sub({}, {})", "wd.mulhi({}, {})",
            "wd.rotate_left({}, {} & 7)",
        ))  # fmt: skip
        self.put(how.format(x[0], y[0]), dims, x[1].dtype)

    def integer_alone(self) -> None:
        x = self.of(INTS)
        how = self.one(
            (
                "-{}",
                "~{}",
                "abs({})",
                "{} // 7",
                "{} % 10",
                "{} * 5",
                "wd.bit_reverse({})",
                "{} >> 3",
                "popcount",
                "clz",
            )
        )
        if how in ("popcount", "clz"):
            self.put(f"wd.{how}({x[0]})", x[1].dims, "i32")
            return
        self.put(how.format(x[0]), x[1].dims, x[1].dtype)

    def along(self, dtypes: tuple[str, ...]) -> Value | None:
        found = self.pick(lambda t: t.dtype in dtypes and "N" in t.dims)
        self.rows |= found is not None
        return found

    def reduction(self) -> None:
        x = self.along((*FLOATS, *INTS))
        if x is None:
            return
        rest = tuple(d for d in x[1].dims if d != "N")
        how = self.one(("max", "min", "argmax", "argmin", "sum", "prod", "cumsum", "any"))
        if how == "any":
            self.put(f"wd.{self.one(('any', 'all'))}({x[0]} > 1, dim=N)", rest, "i1")
        elif how[:3] == "arg":
            self.put(f"wd.{how}({x[0]}, dim=N)", rest, "i32")
        elif how in ("max", "min"):
            self.put(f"wd.{how}({x[0]}, dim=N)", rest, x[1].dtype)
        elif x[1].dtype in INTS:  # wraps, whatever the order
            self.put(f"wd.{how}({x[0]}, dim=N)", x[1].dims if how == "cumsum" else rest, x[1].dtype)

    def order(self) -> None:
        x = self.along((*FLOATS, *INTS))
        if x is not None:
            least = (
                "float('nan')"  # which changes nothing: a number wins over NaN, and minus infinity is one
                if x[1].dtype in FLOATS
                else str(-(1 << int(x[1].dtype[1:]) - 1) * (x[1].dtype[0] == "i"))
            )
            how = self.one((
                "wd.flip({}, dim=N)", "wd.shuffle({}, wd.index(N) ^ 1, N)", "wd.sort({}, dim=N)",
                f"wd.scan({{}}, lambda a, b: wd.maximum(a, b), {least}, dim=N)",
            ))  # fmt: skip
            if "sort" in how and not ("M" in x[1].dims and self.program.sizes["N"] <= 64):
                how = "wd.flip({}, dim=N)"
            self.put(how.format(x[0]), x[1].dims, x[1].dtype)


def both(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    """Dimensions of what is computed of both, outermost first."""
    return tuple(d for d in ("M", "N") if d in a or d in b)


def draw(seed: int) -> Bits:
    """The kernel of a seed, not cut yet."""
    return Bits(seed)


def cuts(made: Bits) -> list[tuple[list[str], dict[str, Any]]]:
    """Constraints and schedules for the same statements: rows in one wave or several, tiles that divide nothing."""
    rng = np.random.default_rng([2, made.program.seed])

    def one(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    found: list[tuple[list[str], dict[str, Any]]] = []
    n = made.program.sizes["N"]
    alone = "wd.sort" in made.program.source()
    for _ in range(3):
        tile, waves = one((2, 4, 5, 16)), one((1, 2, 4))
        cut = [f"wd.WorkgroupConstraint(M, {tile * waves}, 0)", f"wd.WaveConstraint(M, {tile})"]
        how = one(("whole", "shared", "shared", "grid"))
        if how == "shared" and not alone and waves < 4:
            across = one((2, 4 // waves))
            each = -(-n // across)
            cut += [f"wd.WorkgroupConstraint(N, {each * across}, 1)", f"wd.WaveConstraint(N, {each})"]
        elif how == "grid" and not made.rows:
            cut.append(f"wd.WorkgroupConstraint(N, {one((8, 16, 24, 32))}, 1)")
        schedule = {"persistent": True} if rng.random() < 0.15 else {}
        found.append((cut, schedule))
    return found


def arguments(program: Program) -> list[Any]:
    """Numbers of all kinds, the same for every cut."""
    found: list[Any] = []
    for place, array in enumerate(program.arrays):
        rng = np.random.default_rng([program.seed, place, 3])
        shape = [program.sizes[d] for d in array.dims]
        storage = np.dtype(np.bool_) if array.dtype == "i1" else np.dtype(getattr(wd, array.dtype).storage)
        if array.high == 77:
            found.append(np.zeros(shape, storage))
            continue
        bits = rng.integers(0, 256, (*shape, storage.itemsize)).astype(np.uint8).view(storage)[..., 0]
        if array.dtype in FLOATS:
            near = (rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 8, shape)).astype(storage)
            small = rng.integers(-9, 10, shape).astype(storage) / storage.type(4)
            kinds = rng.choice(4, shape, p=[0.6, 0.15, 0.2, 0.05])
            odd = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]), shape).astype(storage)
            with np.errstate(all="ignore"):
                bits = np.select([kinds == 0, kinds == 1, kinds == 2], [near, bits, small], odd).astype(storage)
                bits = np.where(np.isnan(bits), storage.type(np.nan), bits).astype(storage)  # none signals
        found.append(np.ascontiguousarray(bits))
    return [*found, np.int32(0)]


def differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays have other bits; all NaN are one."""
    if a.dtype.kind in "iub":
        return np.asarray(a != b)
    bits = np.dtype(f"u{a.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        nan = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return np.asarray((a.view(bits) != b.view(bits)) & ~nan)
