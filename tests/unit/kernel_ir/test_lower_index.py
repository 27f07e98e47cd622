"""sympy expressions become integers that agree with sympy's own evaluation."""

import random

import numpy as np
import pytest
import sympy
from wavedsl.ir.addresses.lower_index import IndexLowering, lower_index
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_eval import evaluate
from wavedsl.ir.kernel.kernel_ir import I32, I64
from wavedsl.ir.symbols import symbols

M, N, K = symbols("M N K")
i = sympy.Symbol("i", integer=True)
THREADS = 64

EXPRESSIONS = [
    M * 64 + N,
    sympy.floor(M / 64),
    sympy.floor((M + 3 * N) / 12) * 12,
    sympy.Mod(M + N, 7),
    sympy.Mod(i, 12),
    sympy.floor(i / 12),
    sympy.floor(i / 8) + sympy.Mod(i, 8),
    sympy.ceiling(M / 64),
    sympy.ceiling((M - N) / 5),
    sympy.ceiling(i / N),
    sympy.floor(i / N),
    sympy.floor(M / (N * 4)),
    sympy.Mod(M, N),
    sympy.Mod(i, N),
    sympy.Min(M, N, 50),
    sympy.Max(i, -7),
    sympy.Abs(i),
    M**2 - 3 * M * N,
    sympy.floor(M / 3 + sympy.Rational(1, 2)),
    sympy.floor(M / 2 + N / 3),
    (M * 32) / 8,
    sympy.Integer(5),
    -i,
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
@pytest.mark.parametrize("type", [I32, I64])
def test_against_sympy(expr, type):
    rng = random.Random(str(expr))
    b = Builder(new_kernel(waves=1))
    values, samples = {}, {}
    for at, s in enumerate((M, N, i)):
        positive = s is not i
        values[s] = b.param(at, I32, **({"lo": 1, "hi": 2000} if positive else {"lo": -2000, "hi": 2000}))
        samples[at] = np.array([rng.randint(1 if positive else -2000, 2000) for _ in range(THREADS)])
    out = lower_index(b, expr, values, type)
    got = evaluate(b.finish(), samples)[out]
    assert out.type is type
    for t in range(0, THREADS, 5):
        want = expr.xreplace({s: sympy.Integer(int(samples[at][t])) for at, s in enumerate((M, N, i))})
        assert got[t] == int(want), {s: samples[at][t] for at, s in enumerate((M, N, i))}


def test_tile_coordinates_cancel():
    b = Builder(new_kernel(waves=1, grid=(8, 1, 1)))
    low = IndexLowering(b, {M: b.wgid(0), N: b.lane()})
    assert low(sympy.floor((64 * M + N) / 64)) is b.wgid(0)
    assert low(sympy.Mod(64 * M + N, 64)) is b.lane()
    assert low(64 * M + N) is low(64 * M + N)


def test_inside_a_loop():
    b = Builder(new_kernel(waves=1))
    low = IndexLowering(b, {M: b.lane()})
    with b.for_(0, 10, 1) as loop:
        inner = low.inside({K: loop.iv})
        v = inner(M * 3 + K)
        b.trap(b.cmp("slt", v, 0), "x")
        assert b.depth(v) == 1 and b.depth(inner(M * 3)) == 0
    with pytest.raises(CompileError, match="symbol K has no value here"):
        low(K + 1)


@pytest.mark.parametrize(
    "expr, message",
    [
        (sympy.sqrt(M), "cannot contain Pow"),
        (sympy.sin(M), "cannot contain sin"),
        (sympy.Mod(M, 0 * N + 4) / 1 + K, "K"),
    ],
)
def test_what_is_not_supported(expr, message):
    b = Builder(new_kernel(waves=1))
    with pytest.raises(CompileError, match=message):
        lower_index(b, expr, {M: b.lane(), N: b.const(3)})
