"""Kernels drawn at random from the whole language: text on the emulator with all checks against the graph evaluator.

A case is a seed and a number of steps: each step applies an operation to values made before. Numbers are whole and kept
small, so that every answer has one value whatever the order of sums. The default run takes a second. Longer ones:

    WAVEDSL_FUZZ_SECONDS=300 WAVEDSL_FUZZ_SEED=7 pytest tests/fuzz -s

A failure is shrunk to the fewest steps that still fail and prints that kernel's graph;
`WAVEDSL_FUZZ_CASE=<number> WAVEDSL_FUZZ_SEED=<seed>` runs one case alone. What a chip refuses is no failure.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from products import TARGETS

import wavedsl as wd

SECONDS = float(os.environ.get("WAVEDSL_FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("WAVEDSL_FUZZ_SEED", "0"))
ONLY = os.environ.get("WAVEDSL_FUZZ_CASE")

M, N, V, TOP, P, Q = wd.symbols("M N V TOP P Q")
DTYPES = (wd.f32, wd.f32, wd.i32, wd.i32, wd.f16, wd.bf16, wd.i16, wd.u8, wd.i64, wd.f64)
LIMIT = 60
"""Magnitude that every value is brought back to: every dtype holds such whole numbers exactly."""


@dataclass(frozen=True)
class Case:
    """One kernel: how it is cut, its element types, and the seed of its steps."""

    target: str
    size: tuple[int, int]
    tile: tuple[int, int | None]
    waves: tuple[int, int]
    loop: int | None
    dtypes: tuple[Any, Any]
    flag: int
    steps: int
    seed: int


def draw(rng: np.random.Generator) -> Case:
    def one(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    m, n = int(rng.integers(1, 40)), int(one((1, 7, 16, 30, 33, 64, 65, 100, 128, 130)))
    waves = one(((1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (1, 4)))
    loop = one((None, None, None, 16, 32, 24))
    whole = one((True, False)) and waves[1] == 1
    tile_n = None if whole or loop is not None else waves[1] * max(2, -(-n // waves[1]))
    tile = (waves[0] * one((4, 8, 16, 5)), tile_n)
    return Case(
        one((*TARGETS, "sm_90a")), (m, n), tile, waves, loop, (one(DTYPES), one(DTYPES)), int(rng.integers(0, 3)),
        int(rng.integers(2, 9)), int(rng.integers(1 << 30)),
    )  # fmt: skip


class Steps:
    """Applies random operations while a kernel is traced. Every trace of a case draws the same."""

    def __init__(self, case: Case, table: Any, bins: Any, flag: Any):
        self.rng = np.random.default_rng(case.seed)
        self.case, self.table, self.bins, self.flag = case, table, bins, flag
        self.values: list[Any] = []
        self.along_n = case.tile[1] is not None or case.loop is None or case.waves[1] == 1

    def one(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def small(self, x: Any) -> Any:
        """Back within LIMIT, and whole."""
        if x.dtype.kind == "bool":
            return wd.cast(x, wd.i32)
        if x.dtype.is_float:
            return wd.clamp(wd.floor(x), -LIMIT, LIMIT)
        return wd.clamp(x, 0 if x.dtype.kind == "uint" else -LIMIT, LIMIT)

    def pick(self, *dims: Any) -> Any:
        """A value with at least these dimensions."""
        fitting = [v for v in self.values if set(dims) <= set(v.dims)]
        return self.one(fitting) if fitting else None

    def run(self, count: int) -> None:
        actions: list[Callable[[], Any]] = [
            self.unary, self.binary, self.binary, self.choose, self.cast, self.reduce, self.reduce, self.scan,
            self.sort, self.topk, self.gather, self.random, self.branch, self.count, self.bits, self.index,
            self.stochastic, self.reshape,
        ]  # fmt: skip
        for _ in range(count):
            made = self.one(actions)()
            if made is not None:
                self.values.append(self.small(made))

    # ---- operations

    def unary(self) -> Any:
        x = self.pick()
        if x.dtype.is_float:
            return self.one((lambda v: -v, abs, wd.floor, wd.ceil, wd.round, lambda v: v * 0.5))(x)
        return self.one((lambda v: -v, abs, lambda v: ~v, lambda v: v >> 1, lambda v: v << 1))(x)

    def pair(self) -> tuple[Any, Any]:
        x, y = self.pick(), self.pick()
        return x, y if y.dtype is x.dtype else wd.cast(y, x.dtype)

    def binary(self) -> Any:
        x, y = self.pair()
        return self.one((lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, wd.minimum, wd.maximum))(x, y)

    def choose(self) -> Any:
        x, y = self.pair()
        return wd.where(self.one((x < y, x >= y, x == y)), x, y)

    def bits(self) -> Any:
        x, y = self.pair()
        if x.dtype.is_float:
            x, y = wd.cast(x, wd.i32), wd.cast(y, wd.i32)
        return self.one((x & y, x | y, x ^ y))

    def cast(self) -> Any:
        x, to = self.pick(), self.one(DTYPES)
        if x.dtype.is_float and to.is_float and to is not x.dtype:
            return wd.cast(x, to, rounding=self.one((None, "nearest_even", "toward_zero")))
        return wd.cast(x, to)

    def index(self) -> Any:
        return wd.index(self.one((M, N))) % 50

    def dim(self, x: Any) -> Any:
        """A dimension of x that one workgroup holds as a whole (or a trip its tile of)."""
        whole = [d for d in x.dims if d != M or self.case.tile[0] >= self.case.size[0]]
        return self.one(whole) if whole else None

    def reduce(self) -> Any:
        x = self.pick(N)
        d = None if x is None else self.dim(x)
        if d is None:
            return None
        how = self.one(("sum", "max", "min", "argmax", "argmin", "any", "all", "reduce"))
        if how in ("any", "all"):
            return getattr(wd, how)(x > 3, dim=d)
        if how == "reduce":
            return wd.reduce(x, lambda a, b: wd.maximum(a, b), 0 if x.dtype.kind == "uint" else -LIMIT, dim=d)
        found = getattr(wd, how)(x, dim=d)
        return found % 50 if how[:3] == "arg" else found

    def scan(self) -> Any:
        x = self.pick(N)
        d = None if x is None else self.dim(x)
        if d is None:
            return None
        if self.one((True, False)):
            return wd.cumsum(x, dim=d)
        return wd.scan(x, lambda a, b: wd.minimum(a, b), LIMIT, dim=d)

    def rows(self) -> Any:
        """A value whose rows lie in one wave."""
        return self.pick(M, N) if self.case.waves[1] == 1 else None

    def sort(self) -> Any:
        x = self.rows()
        return None if x is None else wd.sort(x, dim=N, descending=bool(self.rng.integers(2)))

    def topk(self) -> Any:
        x = self.rows()
        if x is None or self.case.loop is not None:
            return None
        best, where = wd.topk(x, TOP, dim=N)
        return wd.sum(self.one((wd.cast(best, wd.i32), where)), dim=TOP)

    def gather(self) -> Any:
        x = self.pick()
        place = wd.cast(x, wd.i32) - 3
        return wd.read(self.table, mapping=wd.IndexMapping(tuple(x.dims), {V: place}))

    def count(self) -> None:
        x = self.pick(M, N)
        if x is not None:
            one = wd.Register[M, N, wd.i32](1)
            wd.atomic_add(one, self.bins, mapping=wd.IndexMapping((M, N), {V: wd.cast(x, wd.i32)}))

    def random(self) -> Any:
        return wd.cast(wd.random(int(self.rng.integers(1000)), M, N, dtype=wd.u32) & 31, wd.i32)

    def stochastic(self) -> Any:
        bits = wd.random(int(self.rng.integers(1000)), M, N, dtype=wd.u32)
        x = self.pick(M, N)
        return None if x is None else wd.cast(wd.cast(x, wd.f32) * 0.37, wd.bf16, rounding="stochastic", bits=bits)

    def branch(self) -> Any:
        x, y = self.pair()
        return wd.cond(self.flag > self.one((0, 1)), lambda: wd.maximum(x, y), lambda: wd.minimum(x, y))

    def reshape(self) -> Any:
        x = self.pick(M, N)
        if x is None or set(x.dims) != {M, N} or self.case.waves[1] > 1 or self.case.loop is not None:
            return None
        heads = wd.reshape(wd.permute(x, M, N), M, P, Q)
        if self.one((True, False)):
            return wd.sum(wd.cast(heads, wd.i32), dim=self.one((P, Q)))
        return wd.reshape(heads, M, N)


def kernel_of(case: Case) -> Any:
    cut: list[Any] = [wd.WorkgroupConstraint(M, case.tile[0], 0), wd.WaveConstraint(M, case.tile[0] // case.waves[0])]
    if case.tile[1] is not None:
        cut += [wd.WorkgroupConstraint(N, case.tile[1], 1), wd.WaveConstraint(N, case.tile[1] // case.waves[1])]
    if case.loop is not None:
        cut.append(wd.TilingConstraint(N, case.loop))
    n = case.size[1]
    inner = next(q for q in (4, 5, 3, 2, 1) if n % q == 0)
    first, second = case.dtypes

    @wd.wave(cut, subs={TOP: 3, P: n // inner, Q: inner}, name="drawn")
    def drawn(
        a: wd.Memory[M, N, first], b: wd.Memory[M, N, second], row: wd.Memory[N, wd.f32], table: wd.Memory[V, wd.i32],
        flag: wd.Scalar[wd.i32], bins: wd.Memory[V, wd.i32], wide: wd.Memory[M, N, wd.i32], sums: wd.Memory[M, wd.i32],
    ):  # fmt: skip
        def work() -> Any:
            steps = Steps(case, table, bins, flag)
            steps.values = [wd.read(a), wd.read(b), wd.read(row)]
            steps.run(case.steps)
            last = wd.cast(steps.values[-1], wd.i32)
            full = last + wd.cast(steps.pick(M, N), wd.i32)
            extra = [d for d in full.dims if d not in (M, N)]
            for d in extra:
                full = wd.sum(full, dim=d)
            wd.write(wd.broadcast(full, M, N), wide)
            return wd.sum(full, dim=N)

        if case.loop is None:
            wd.write(work(), sums)
            return

        @wd.iterate(N, init_args=[wd.Register[M, wd.i32](0)])
        def loop(total):
            return total + work()

        wd.write(loop, sums)

    return drawn


def arguments(case: Case) -> list[Any]:
    rng = np.random.default_rng(case.seed + 1)
    m, n = case.size

    def whole(shape: Any, dtype: Any) -> np.ndarray:
        return rng.integers(0 if dtype.kind == "uint" else -20, 21, shape).astype(dtype.storage)

    return [
        whole((m, n), case.dtypes[0]), whole((m, n), case.dtypes[1]), whole(n, wd.f32), whole(41, wd.i32),
        np.int32(case.flag), np.zeros(41, np.int32), np.full((m, n), 99, np.int32), np.full(m, 99, np.int32),
    ]  # fmt: skip


def run(case: Case) -> bool:
    """Whether the chip takes the case; raises where anything is wrong."""
    kernel, meant, got = kernel_of(case), arguments(case), arguments(case)
    try:
        compiled = kernel.compile(*got, target=case.target)
    except (wd.RegisterPressureError, wd.ConstraintError):
        return False
    kernel.evaluate(*meant)
    compiled.emulate(*got)
    for name, mine, theirs in zip(("a", "b", "row", "table", "flag", "bins", "wide", "sums"), got, meant):
        if not np.array_equal(mine, theirs):
            at = np.argwhere(np.asarray(mine != theirs))[0]
            raise AssertionError(f"{name}{at.tolist()} is {mine[tuple(at)]}, not {theirs[tuple(at)]}")
    return True


FOUND = (
    Case('gfx942', (39, 30), (8, None), (2, 2), 16, (wd.u8, wd.f64), 0, 1, 446770548),
    Case('gfx90a', (20, 130), (32, None), (2, 1), None, (wd.i32, wd.bf16), 2, 5, 416388815),
)
"""Kernels that were wrong once: a number made a trip early; waves whose parts of the scratch buffer overlapped."""


@pytest.mark.parametrize("case", FOUND, ids=lambda c: str(c.seed))
def test_what_was_wrong_once(case: Case) -> None:
    assert run(case)


def shrunk(case: Case) -> Case:
    """The fewest steps that still fail."""
    for steps in range(1, case.steps):
        fewer = replace(case, steps=steps)
        try:
            run(fewer)
        except Exception:
            return fewer
    return case


def test_kernels() -> None:
    until = time.monotonic() + SECONDS
    taken = refused = 0
    number = int(ONLY) if ONLY else 0
    while time.monotonic() < until and (ONLY is None or not taken + refused):
        case = draw(np.random.default_rng([SEED, number]))
        try:
            took = run(case)
        except Exception as error:
            small = shrunk(case)
            text = f"seed {SEED}, case {number}, shrunk to {small.steps} steps: {small}\n{kernel_of(small).trace()}"
            raise AssertionError(text) from error
        taken, refused, number = taken + took, refused + (not took), number + 1
    print(f"{taken} kernels right, {refused} refused (seed {SEED})")
    assert ONLY or taken > refused
