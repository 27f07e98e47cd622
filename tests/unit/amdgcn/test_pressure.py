"""More live scalars than registers: they go to vector lanes. Random programs of all shapes, against NumPy."""

from __future__ import annotations

import random

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.builder import Builder
from wavedsl.ir.kernel_ir import B32, I32, Value
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("count", [40, 150])
def test_many_live_scalars(chip: str, count: int) -> None:
    """`count` uniform values are made before a loop and used in and after it."""
    kernel = kernels.new_kernel("scalars", chip, ["x", "y"])
    b = Builder(kernel, get_target(chip))
    tid = b.tid()
    x = b.bitcast(b.load_global(b.buffer(b.param(0), 256), b.mul(tid, 4), bytes=4, type=B32), I32)
    values = [b.emit("readfirst", (b.xor(x, 1000 * i + 7),)) for i in range(count)]
    with b.for_(0, 3, 1, [tid]) as loop:
        total = loop.carried[0]
        for v in values[::2]:
            total = b.add(b.xor(total, v), loop.iv)
        loop.yield_(total)
    total = loop.results[0]
    for v in reversed(values):
        total = b.add(b.xor(total, v), 1)
    b.store_global(b.buffer(b.param(1), 256), b.mul(tid, 4), b.bitcast(total, B32), bytes=4)
    data, out = np.arange(5, 69, dtype=np.int32), np.zeros(64, np.int32)
    program = compile_kernel_ir(kernel, get_target(chip))
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out], checks=True)
    want = np.arange(64, dtype=np.int32)
    scalars = [int(data[0]) ^ (1000 * i + 7) for i in range(count)]
    for iv in range(3):
        for s in scalars[::2]:
            want = (want ^ s) + iv
    for s in reversed(scalars):
        want = (want ^ s) + 1
    assert np.array_equal(out, want)
    assert (program.resources.spills > 0) == (count > 102)
    assert program.resources.sgprs <= 102


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


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    """Straight-line code around a loop that carries several values; lane and uniform values mixed; against NumPy."""
    chip = CHIPS[seed % 3]
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
    b.store_global(
        b.buffer(b.param(1), 1024),
        b.mul(tid, 16),
        b.vec(*(b.bitcast(_lane(b, v), B32) for v in loop.results)),
        bytes=16,
    )
    out = np.zeros((64, 4), np.int32)
    text = compile_kernel_ir(p.kernel, get_target(chip)).text
    run(text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out], checks=True)
    assert np.array_equal(out, np.stack(results, axis=1))


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
