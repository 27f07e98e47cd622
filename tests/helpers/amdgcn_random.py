"""Random straight-line code around a loop that carries values, as kernel IR, with what NumPy says it computes."""

from __future__ import annotations

import random

import amdgcn_kernels as kernels
import numpy as np
from wavedsl.codegen.amdgcn import get_target
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, Kernel, Value

BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "min_s": np.minimum,
    "max_s": np.maximum,
    "min_u": lambda a, b: np.minimum(a.view(np.uint32), b.view(np.uint32)).view(np.int32),
}
SHIFTS = {
    "shl": lambda a, n: a << n,
    "lshr": lambda a, n: (a.view(np.uint32) >> np.uint32(n)).view(np.int32),
    "ashr": lambda a, n: a >> n,
}


class Program:
    """A random program: its values are pairs of a kernel IR value and what NumPy says it is."""

    def __init__(self, seed: int, chip: str):
        self.random = random.Random(seed)
        self.kernel = kernels.new_kernel("random", chip, ["x", "y"])
        self.b = Builder(self.kernel, get_target(chip))

    def grow(self, pool: list[tuple[Value, np.ndarray]], steps: int) -> None:
        """Append `steps` random ops on values of the pool."""
        r, b = self.random, self.b
        for _ in range(steps):
            (x, nx), (y, ny) = r.choice(pool), r.choice(pool)
            kind = r.random()
            if kind < 0.55:
                name = r.choice(list(BINARY))
                pool.append((b.emit(name, (x, y)), BINARY[name](nx, ny)))
            elif kind < 0.75:
                name, n = r.choice(list(SHIFTS)), r.randrange(1, 31)
                pool.append((b.emit(name, (x, b.i32(n))), SHIFTS[name](nx, n)))
            elif kind < 0.85:
                c = r.choice([0, 1, 5, 64, 65, 255, 4095, -1, -17, 1 << 20, (1 << 16) - 1])
                name = r.choice(["add", "and", "or", "xor"])
                pool.append((b.emit(name, (x, b.i32(c))), BINARY[name](nx, np.int32(c))))
            elif kind < 0.95:
                (z, nz) = r.choice(pool)
                pool.append((b.select(b.cmp("slt", x, y), z, x), np.where(nx < ny, nz, nx)))
            else:
                pool.append((b.emit("readfirst", (x,)), np.full(64, nx[0])))


def random_kernel(seed: int, chip: str) -> tuple[Kernel, np.ndarray, np.ndarray]:
    """(kernel, its input, its output [lane, 4]); lane and uniform values are mixed."""
    p = Program(seed, chip)
    b, r = p.b, p.random
    data = np.random.default_rng(seed).integers(-(2**31), 2**31, 64, dtype=np.int64).astype(np.int32)
    tid = b.tid()
    x = b.bitcast(b.load_global(b.buffer(b.param(0), 256), b.mul(tid, 4), bytes=4, type=B32), I32)
    pool = [(x, data), (tid, np.arange(64, dtype=np.int32)), (b.i32(77), np.full(64, 77, np.int32))]
    p.grow(pool, 25)
    carried = [r.choice(pool[3:]) for _ in range(4)]
    trips = r.randrange(1, 4)
    states = [n for _, n in carried]
    with b.for_(0, trips, 1, [v for v, _ in carried], uniform=[False] * 4) as loop:
        body = [*pool, *((v, n) for v, n in zip(loop.carried, states))]
        mark = len(body)
        p.grow(body, 20)
        chosen = [r.randrange(mark - 4, len(body)) for _ in range(4)]
        loop.yield_([body[i][0] for i in chosen])
    # NumPy repeats what the body did: the random choices are replayed on a second builder that is thrown away
    results = _replay(seed, chip, data, trips)
    words = [b.bitcast(_lane(b, v), B32) for v in loop.results]
    b.store_global(b.buffer(b.param(1), 1024), b.mul(tid, 16), b.vec(*words), bytes=16)
    return p.kernel, data, np.stack(results, axis=1)


def _lane(b: Builder, v: Value) -> Value:
    return b.add(v, b.and_(b.tid(), 0)) if v.uniform else v


def _replay(seed: int, chip: str, data: np.ndarray, trips: int) -> list[np.ndarray]:
    """The carried values after `trips` trips, by repeating the same random choices with other numbers in each trip."""
    states: list[np.ndarray] | None = None
    for _ in range(trips):
        p = Program(seed, chip)
        b, r = p.b, p.random
        x = b.bitcast(b.load_global(b.buffer(b.param(0), 256), b.mul(b.tid(), 4), bytes=4, type=B32), I32)
        pool = [(x, data), (b.tid(), np.arange(64, dtype=np.int32)), (b.i32(77), np.full(64, 77, np.int32))]
        p.grow(pool, 25)
        carried = [r.choice(pool[3:]) for _ in range(4)]
        r.randrange(1, 4)
        if states is None:
            states = [n for _, n in carried]
        with b.for_(0, trips, 1, [v for v, _ in carried], uniform=[False] * 4) as loop:
            body = [*pool, *zip(loop.carried, states)]
            mark = len(body)
            p.grow(body, 20)
            chosen = [r.randrange(mark - 4, len(body)) for _ in range(4)]
            loop.yield_([body[i][0] for i in chosen])
        states = [np.asarray(body[i][1], np.int32) for i in chosen]
    assert states is not None
    return states
