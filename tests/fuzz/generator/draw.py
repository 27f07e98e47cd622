"""Draws a kernel: first how it is cut, then arrays and statements from the whole language, one after the other."""

from __future__ import annotations

import math

import numpy as np

from generator.blocks import Blocks
from generator.functions import Functions
from generator.further import Further
from generator.groups import Groups
from generator.orders import Orders
from generator.program import Array, Do, Program, Type
from generator.rewrites import Rewrites
from generator.sequences import Sequences
from generator.state import LIMIT, MOST

VERSION = 15
"""Changes with what a seed draws; `ranges.json` names it. 1 was `draw` of test_ops and of test_products."""


FRAMES = (
    "cell", "memory", "line", "chunks", "pages", "pages", "vocabulary", "segments", "experts", "experts", "sparse",
    "quantised", "windows", "counting", "search", "partial", "butterflies",
)  # fmt: skip
"""Whole kernels as people write them, some twice as often."""


def draw(seed: int, frame: str = "") -> Program:
    """The kernel of a seed; one of FRAMES if that is named."""
    return _Draw(seed, frame).program


class _Draw(Further, Orders, Functions, Blocks, Rewrites, Sequences, Groups):
    """One kernel while it is drawn; which statements there are, and how often."""

    def __init__(self, seed: int, frame: str = ""):
        self.rng = np.random.default_rng([VERSION, seed])
        self.count = 0
        self.labels = 0
        self.scope: list[tuple[str, Type]] = []
        self.inside: list[str] = []
        self.branches = 0
        self.atomics: set[str] = set()
        self.used: set[str] = set()
        self.own: list[Array] = []
        self.program = Program(seed, {}, {}, [], [], int(self.rng.integers(0, 3)))
        if frame or self.chance(0.4):
            self.whole_kernel(frame or self.one(FRAMES))
            return
        while self.cut() > MOST and not self.chance(0.04):
            self.program = Program(seed, {}, {}, [], [], self.program.flag)
        self.special = self.chance(0.15) or 0 in self.program.sizes.values()
        self.options()
        lately = (
            self.transcendental, self.classify, self.normal, self.digits, self.logic_atomic, self.factors, self.shares,
            self.picked, self.long_chain, self.backwards, self.segments_of, self.below_zero, self.words,
            self.looked_up,
        )  # fmt: skip
        self.lately = tuple(lately[int(i)] for i in self.rng.permutation(len(lately))[:7] for _ in range(3))
        if self.chance(0.3):
            self.program.by = self.one(("f32", "f16", "i64", "f64", "i8", "u16", "bf16", "u32"))
        self.write_body()

    def whole_kernel(self, frame: str) -> None:
        """A kernel as people write them, in which parts are drawn."""
        getattr(self, frame)()
        self.finish()
        self.unused()

    def region(self, count: int, depth: int) -> None:
        """`count` statements into `self.body`."""
        for _ in range(count):
            self.one((
                self.unary, self.binary, self.binary, self.binary, self.choose, self.compare, self.cast, self.reduce,
                self.reduce, self.scan, self.tuples, self.sort, self.topk, self.gather, self.shifted, self.random,
                self.branch, self.tally, self.bits, self.index, self.stochastic, self.reshape, self.rounded,
                self.divide, self.fma,
                self.product,
                self.permuted, self.more, self.more, self.bitcast, self.unique_atomic, self.each, self.constants,
                self.shuffle, self.shuffle, self.extract, self.added, self.added, self.parts,
                self.fractions, self.fractions, self.compared_atomic, self.flags, self.several,
                *self.lately,
                *((self.loop, self.loop, self.condition, self.repeat, self.function) if depth < 2 else ()),
                *((self.from_outside, self.from_outside) if self.program.globe is not None else ()),
                *((self.fence,) if depth == 0 or self.chance(0.2) else ()),
            ))()  # fmt: skip

    def store(self, dim: str | None = None) -> None:
        """Writes a value to an array of its own; whole, or a trip's tile of it."""
        x = self.pick(lambda t: t.dtype != "i1" and bool(t.dims) and (dim is None or dim in t.dims))
        if x is None or self.branches:
            return
        have = [d for d in ("M", "N") if d in self.split and d not in x[1].dims]
        dims = (*x[1].dims, *have)
        if any(d not in dims for d in self.inside):
            return
        if self.chance(0.2) and x[1].dtype in ("f32", "i32", "f64"):  # results narrower than what they are summed in
            narrow = self.one(("f16", "bf16", "f16", "bf16", "i8"))
            x = self.let(self.body, self.cast_to((f"small({x[0]})", Type(x[1].dims, x[1].dtype)), narrow)[0],
                         Type(x[1].dims, narrow))  # fmt: skip
        text, dtype = x[0], x[1].dtype
        if have:
            text = f"wd.broadcast({text}, {', '.join(dims)})"
        order = tuple(dims[int(i)] for i in self.rng.permutation(len(dims))) if self.chance(0.3) else dims
        memory = (("B",) if self.batch else ()) + order
        if self.chance(0.12):
            out, subscript = self.larger(memory, dtype, 77, 77)
            self.body.append(Do(f"wd.write({text}, {out.name}{subscript}{self.hint()})"))
            return
        if order == dims and self.even(memory[-1]) and self.chance(0.06):
            out = self.array(memory, narrow := self.one(("i4", "u4")), 77, 77)
            out.spread = "plain"
            self.body.append(Do(f"wd.write(wd.cast(wd.clamp({text}, 0, 7), wd.{narrow}), {out.name})"))
            return
        out = self.array(memory, dtype, 77, 77)
        if self.chance(0.06) and (n := self.program.sizes.get(dims[-1], 0)) and "2 *" not in dims[-1]:
            step = next(q for q in self.one(((3, 5, 7, 1), (7, 11, 1), (n - 1, 1))) if math.gcd(q, n) == 1)
            place = f"(wd.index({dims[-1]}) * {step} + {self.one((0, 1, 5))}) % {n}"  # each has a place of its own
            mapping = f"wd.IndexMapping(({', '.join(memory)},), {{{dims[-1]}: {place}}})"
            self.body.append(Do(f"wd.write({text}, {out.name}, mapping={mapping})"))
        elif self.chance(0.08) and dim is None:
            shift = ", ".join(f"{d}: {d} {self.one(('+ 1', '- 2'))}" for d in dims)
            self.body.append(
                Do(f"wd.write({text}, {out.name}, mapping=wd.IndexMapping(({', '.join(memory)},), {{{shift}}}))")
            )
        else:
            self.body.append(Do(f"wd.write({text}, {out.name}{self.hint()})"))

    def write_body(self) -> None:
        self.body = self.program.body
        if self.chance(0.06):
            self.body.append(Do(f"wd.exit_if({self.single()})"))
        if self.program.by:
            self.scope.append(("by", Type((), self.program.by, 3)))
        for _ in range(2):
            self.read()
        self.region(int(self.rng.integers(0, 4)), 0)
        if self.chance(0.15):
            self.state()
        begun = self.begin_result() if self.chance(0.3) else None
        for dim in ("K",) if self.one_sum else self.loops:
            if self.kind == "chain" and dim == "N" and self.chance(0.35):
                self.causal_loop()
                if self.chance(0.6):
                    continue
            if self.chance(0.15) and not self.one_sum:
                self.own_tiles(dim)
            if self.one_sum or self.chance(0.9 if dim in ("K", "N") else 0.4):
                self.make_loop(dim)
                if self.chance(0.25) and not self.one_sum:
                    self.make_loop(dim)  # a sibling, of another length
        if self.kind == "middle":
            self.second_product()
        if self.kind == "product" and self.chance(0.6):
            self.epilogue()
        if self.chance(0.2):
            self.own_trips()
        self.region(int(self.rng.integers(1, 4)), 0)
        self.from_outside()
        if begun is not None:
            self.end_result(begun)
        if self.chance(0.1):
            x = self.pick(lambda t: t.dtype != "i1" and bool(t.dims))
            if x is not None:
                self.body.append(Do(f"wd.device_assert(small({x[0]}) <= {LIMIT}, 'small')"))
        for _ in range(self.one((2, 3, 4))):
            self.store()
        if self.chance(0.2):
            self.inexact()
        if self.chance(0.25):
            self.same_bits()
        if self.chance(0.3):
            self.workgroups_meet()
            self.store()
        if self.chance(0.1):
            self.last_workgroup()
        if not any(a.low == a.high for a in self.program.arrays):
            x = self.read(tuple(d for d in self.dims if d not in self.loops)[:2])
            self.scope = [x]
            self.store()
        self.unused()
        self.tuned()

    def tuned(self) -> None:
        """Now and then a kernel whose tile of M is chosen among several, where its results do not depend on it."""
        p = self.program
        tile = next(int(c.split(", ")[1]) for c in p.cut if c.startswith("wd.WorkgroupConstraint(M, "))
        text = p.source("sm_90a")
        fixed = p.way or p.dynamic or p.globe is not None or "tile_st" in text or "M" not in self.split
        fixed = fixed or any(a.spread == "far" for a in p.arrays)  # as in `unused`
        if fixed or p.schedule.get("stream_k") or "persistent" in text or not self.chance(0.12):
            return
        waves = self.waves["M"]
        others = [t for t in (tile // 2, 2 * tile) if t % waves == 0 and t // waves > 0]
        p.way, p.tiles = "tuned", (tile, *others[: self.one((1, 2))])

    def elementwise(self) -> None:
        self.one((self.unary, self.binary, self.choose, self.cast, self.divide, self.fma))()

    def table_read(self) -> None:
        self.gather()

    def unused(self) -> None:
        """Leaves out arrays that nothing touches."""
        text = "\n".join(line for s in self.program.body for line in s.lines())
        p = self.program
        p.arrays = [a for a in p.arrays if f"({a.name}" in text or f", {a.name}" in text]
        p.leave_out()
        if any(a.spread == "far" for a in p.arrays):
            p.way = ""  # a call's copy of it would take all of the memory between its rows
