"""Kernels of models whose waves share what nobody has cut, against NumPy and the evaluator: gradients of linear
attention, a recurrent layer of four gates, documents side by side, integers scaled anew, options along a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from families import Case, four_tests, normal, on_chip, wide
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

B, H, G, M, N, K, L, S, T, D, E, J = wd.symbols("B H G M N K L S T D E J")
F16, BF16, F32, F64, I8, I32, I64 = wd.f16, wd.bf16, wd.f32, wd.f64, wd.i8, wd.i32, wd.i64


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)], subs={S: 32, L: 32})
def linear_attention_back(
    q: wd.Memory[B, T * S, D, BF16], k: wd.Memory[B, T * S, D, BF16], v: wd.Memory[B, T * S, E, BF16],
    do: wd.Memory[B, T * S, E, BF16], dq: wd.Memory[B, T * S, D, F32], dk: wd.Memory[B, T * S, D, F32],
    dv: wd.Memory[B, T * S, E, F32],
):  # fmt: skip
    """Chunks of 32, forward with the sum of k v, then backward with that of q do: inside of a chunk by its matrix."""
    none, s, t = wd.Register[S, L, F32](0.0), wd.index(S), wd.index(L)

    def masked(x, y, keep):
        return wd.cast(wd.where(keep, wd.mma(x, y, none), 0.0), BF16)

    @wd.iterate(T, init_args=[wd.Register[D, E, F32](0.0)])
    def forward(state):
        at = wd.tile_start(T) * 32
        g = wd.read(do[B, at : at + S, :])
        keys, values = wd.read(k[B, at : at + L, :]), wd.read(v[B, at : at + L, :])
        earlier = wd.mma(g, wd.cast(state, BF16), wd.Register[S, D, F32](0.0))
        wd.write(wd.mma(masked(g, values, s >= t), keys, earlier), dq[B, at : at + S, :])
        return wd.mma(keys, values, state)

    @wd.iterate(T, init_args=[wd.Register[D, E, F32](0.0)])
    def backward(state):
        at = (T - 1 - wd.tile_start(T)) * 32
        queries, g = wd.read(q[B, at : at + L, :]), wd.read(do[B, at : at + L, :])
        keys, values = wd.read(k[B, at : at + S, :]), wd.read(v[B, at : at + S, :])
        later = wd.cast(state, BF16)
        of_k = wd.mma(values, later, wd.Register[S, D, F32](0.0))
        of_v = wd.mma(keys, later, wd.Register[S, E, F32](0.0))
        wd.write(wd.mma(masked(values, g, s <= t), queries, of_k), dk[B, at : at + S, :])
        wd.write(wd.mma(masked(keys, queries, s <= t), g, of_v), dv[B, at : at + S, :])
        return wd.mma(queries, g, state)


def linear_attention_case(b: int, t: int, d: int, e: int) -> Case:
    shapes = [(b, 32 * t, x) for x in (d, d, e, e)]
    halves = [normal(*shape, seed=i, scale=0.5).astype(ml_dtypes.bfloat16) for i, shape in enumerate(shapes)]
    q, k, v, do = map(wide, halves)
    toward, along = np.tril(do @ v.transpose(0, 2, 1)), np.tril(q @ k.transpose(0, 2, 1))
    wants = {4: toward @ k, 5: toward.transpose(0, 2, 1) @ q, 6: along.transpose(0, 2, 1) @ do}
    outs = [np.zeros(shape, np.float32) for shape in shapes[:3]]
    return Case([*halves, *outs], wants, slack=0.3, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 16, 0), wd.TilingConstraint(T, 1)])
def four_gates(
    x: wd.Memory[T, B, 4, H, F16], w: wd.Memory[4, K, H, F16], start: wd.Memory[B, K, F16],
    states: wd.Memory[T, B, H, F16], cells: wd.Memory[B, H, F32],
):  # fmt: skip
    """An LSTM: the state is a product's result, as [B, H], and the next one's operand, as [B, K]."""
    weights = [wd.read(w[g, :, :]) for g in range(4)]

    @wd.iterate(T, init_args=[wd.read(start), wd.read(cells)])
    def step(h, cell):
        t = wd.tile_start(T)
        i, f, c, o = (
            wd.mma(h, m, wd.Register[B, H, F32](0.0)) + wd.cast(wd.read(x[t, :, g, :]), F32)
            for g, m in enumerate(weights)
        )
        cell = wd.sigmoid(f) * cell + wd.sigmoid(i) * wd.tanh(c)
        out = wd.cast(wd.sigmoid(o) * wd.tanh(cell), F16)
        wd.write(out, states[t, :, :])
        return wd.reshape(out, B, K), cell

    wd.write(step[1], cells)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gates_case(t: int, b: int, h: int) -> Case:
    x, w = normal(t, b, 4, h, dtype=np.float16), normal(4, h, h, seed=1, dtype=np.float16, scale=0.2)
    start, cells = normal(b, h, seed=2, dtype=np.float16), normal(b, h, seed=3)
    state, cell, states = wide(start), wide(cells), []
    for row in wide(x):
        i, f, c, o = (state @ wide(w)[g] + row[:, g] for g in range(4))
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        state = wide((sigmoid(o) * np.tanh(cell)).astype(np.float16))
        states.append(state)
    return Case([x, w, start, np.zeros((t, b, h), np.float16), cells], {3: np.array(states), 4: cell}, slack=5e-3,
                dynamic=(B, T))  # fmt: skip


@wd.wave(
    [wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(N, 32)], subs={L: 32}
)
def documents(
    q: wd.Memory[H, G * L, D, F16], k: wd.Memory[H, N, D, F16], v: wd.Memory[H, N, D, F16],
    own: wd.Memory[G * L, I32], other: wd.Memory[N, I32], slope: wd.Memory[H, F32], out: wd.Memory[H, G * L, D, F32],
    seen: wd.Memory[H, G, I32],
):  # fmt: skip
    """Attention within documents, which are sorted: blocks of keys that share none with the queries are passed by."""
    mine, queries = wd.read(own[G * L : (G + 1) * L]), wd.read(q[H, G * L : (G + 1) * L, :])
    first, last = wd.min(mine, dim=L), wd.max(mine, dim=L)
    row = wd.index(G) * 32 + wd.index(L)
    low = -1e30
    start = [wd.Register[L, F32](low), wd.Register[L, F32](0.0), wd.Register[L, D, F32](0.0), wd.Register[I32](0)]

    @wd.iterate(N, init_args=start)
    def loop(top, total, acc, blocks):
        theirs = wd.read(other)

        def attend():
            score = 20.0 * wd.tanh(wd.mma(queries, wd.read(k), wd.Register[L, N, F32](0.0)) * D**-0.5 / 20.0)
            score -= wd.read(slope) * wd.abs(wd.cast(row - wd.index(N), F32))
            score = wd.where(mine == theirs, score, low)
            new = wd.maximum(top, wd.max(score, dim=N))
            p, fade = wd.where(score > low, wd.exp(score - new), 0.0), wd.exp(top - new)
            more = wd.mma(wd.cast(p, F16), wd.read(v), acc * fade)
            return new, total * fade + wd.sum(p, dim=N), more, blocks + 1

        meets = wd.any((theirs >= first) & (theirs <= last), dim=N)
        return wd.cond(meets, attend, lambda: (top, total, acc, blocks))

    _, total, acc, blocks = loop
    wd.write(wd.where(total > 0, acc / total, 0.0), out[H, G * L : (G + 1) * L, :])
    wd.write(blocks, seen)


def documents_case(h: int, g: int, n: int, d: int) -> Case:
    rng, m = np.random.default_rng(0), 32 * g
    q, k, v = (normal(h, x, d, seed=i, dtype=np.float16) for i, x in enumerate((m, n, n)))
    own, other = (np.sort(rng.integers(0, 6, x)).astype(np.int32) for x in (m, n))
    slope = (0.5 ** np.arange(1, h + 1)).astype(np.float32)
    score = 20 * np.tanh(wide(q) @ wide(k).transpose(0, 2, 1) * d**-0.5 / 20)
    score -= slope[:, None, None] * abs(np.arange(m)[:, None] - np.arange(n))
    p = np.where(own[:, None] == other, np.exp(score), 0)
    total = p.sum(-1, keepdims=True)
    blocks = [[np.isin(np.arange(a.min(), a.max() + 1), other[j : j + 32]).any() for j in range(0, n, 32)]
              for a in own.reshape(g, 32)]  # fmt: skip
    wants = {6: np.where(total > 0, p @ wide(v) / np.where(total > 0, total, 1), 0),
             7: np.broadcast_to(np.sum(blocks, 1), (h, g))}  # fmt: skip
    outs = [np.zeros((h, m, d), np.float32), np.zeros((h, g), np.int32)]
    return Case([q, k, v, own, other, slope, *outs], wants, slack=5e-3, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(M, 48, 0), wd.WorkgroupConstraint(N, 80, 1), wd.TilingConstraint(K, 64)])
def scaled_anew(
    a: wd.Memory[M, K, I8], b: wd.Memory[N, K, I8], bias: wd.Memory[N, I32], factor: wd.Memory[N, I32],
    shift: wd.Memory[N, I8], zero: wd.Scalar[I32], c: wd.Memory[M, N, I8],
):  # fmt: skip
    """Sums to bytes by a factor of 31 bits and a shift of each channel, rounded twice, as integer networks have it."""
    @wd.iterate(K, init_args=[wd.Register[M, N, I32](0)])
    def total(acc):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wide_sum = wd.cast(total + wd.read(bias), I64) * wd.cast(wd.read(factor), I64)
    high, places = (wide_sum + (1 << 30)) >> 31, wd.cast(wd.read(shift), I64)
    level = (high + (wd.Register[N, I64](1) << places >> 1)) >> places
    wd.write(wd.cast(wd.clamp(level + wd.cast(zero, I64), -128, 127), I8), c)


def anew_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (n, k)))
    bias, factor = rng.integers(-5000, 5000, n).astype(np.int32), rng.integers(1 << 30, (1 << 31) - 1, n)
    shift = rng.integers(0, 14, n).astype(np.int8)
    high = ((a.astype(np.int64) @ b.T.astype(np.int64) + bias) * factor + (1 << 30)) >> 31
    level = (high + ((np.int64(1) << shift.astype(np.int64)) >> 1)) >> shift.astype(np.int64)
    arrays = [a, b, bias, factor.astype(np.int32), shift, np.int32(-7), np.zeros((m, n), np.int8)]
    return Case(arrays, {6: np.clip(level - 7, -128, 127)}, dynamic=(M,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(T, 1), wd.TilingConstraint(J, 1)])
def american_puts(
    volatility: wd.Memory[N, F64], rate: wd.Scalar[F64], grid: wd.Memory[J, N, F64], right: wd.Memory[J, N, F64],
    upper: wd.Memory[J, N, F64], price: wd.Memory[N, F64],
):  # fmt: skip
    """An option for each lane, along J prices of the share: implicit steps of time by elimination, never below what
    exercising it gives."""
    square, step, one = wd.read(volatility) * wd.read(volatility), 1.0 / T, wd.Register[N, F64](1.0)

    def payoff(j):
        return wd.maximum(1.0 - 4.0 * wd.cast(j, F64) / J, 0.0)

    @wd.iterate(T, init_args=[])
    def in_time():
        @wd.iterate(J, init_args=[one * 0.0, one * 0.0])
        def down(above, solved):
            j = wd.tile_start(J)
            x, inside = wd.cast(j, F64), (j > 0) & (j < J - 1)
            before = wd.where(inside, -0.5 * step * (square * x * x - rate * x), 0.0)
            behind = wd.where(inside, -0.5 * step * (square * x * x + rate * x), 0.0)
            middle = wd.where(inside, 1.0 + step * (square * x * x + rate), 1.0)
            pivot = middle - before * above
            above = behind / pivot
            solved = (wd.where(inside, wd.read(grid[j, :]), payoff(j)) - before * solved) / pivot
            wd.write(above, upper[j, :])
            wd.write(solved, right[j, :])
            return above, solved

        @wd.iterate(J, init_args=[one * 0.0])
        def up(behind):
            j = J - 1 - wd.tile_start(J)
            value = wd.maximum(wd.read(right[j, :]) - wd.read(upper[j, :]) * behind, payoff(j))
            wd.write(value, grid[j, :])
            return value

    wd.write(wd.read(grid[J // 4, :]), price)


def puts_case(n: int, t: int, j: int) -> Case:
    volatility, rate, step = np.linspace(0.1, 0.5, n), 0.05, 1 / t
    payoff = np.maximum(1 - 4 * np.arange(j) / j, 0)
    grid = np.repeat(payoff[:, None], n, 1)
    start, x = grid.copy(), np.arange(j)[:, None]
    inside = (x > 0) & (x < j - 1)
    before = np.where(inside, -0.5 * step * (volatility**2 * x * x - rate * x), 0)
    behind = np.where(inside, -0.5 * step * (volatility**2 * x * x + rate * x), 0)
    middle = np.where(inside, 1 + step * (volatility**2 * x * x + rate), 1)
    for _ in range(t):
        above, solved = np.zeros((2, j + 1, n))
        for i in range(j):
            pivot = middle[i] - before[i] * above[i - 1]
            above[i] = behind[i] / pivot
            solved[i] = (np.where(inside[i], grid[i], payoff[i]) - before[i] * solved[i - 1]) / pivot
        value = np.zeros(n)
        for i in reversed(range(j)):
            grid[i] = value = np.maximum(solved[i] - above[i] * value, payoff[i])
    arrays = [volatility, np.float64(rate), start, np.zeros((j, n)), np.zeros((j, n)), np.zeros(n)]
    return Case(arrays, {2: grid, 5: grid[j // 4]}, {T: t}, 1e-9, dynamic=(N, J))


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "linear attention back": (linear_attention_back, linear_attention_case, ((2, 3, 40, 24),)),
    "four gates": (four_gates, gates_case, ((5, 20, 48), (4, 16, 64))),
    "documents": (documents, documents_case, ((2, 2, 100, 40),)),
    "scaled anew": (scaled_anew, anew_case, ((50, 101, 130),)),
    "american puts": (american_puts, puts_case, ((40, 3, 21),)),
}
test_against_numpy, test_the_evaluator_agrees, test_on_other_chips, test_the_assembler_takes_it = four_tests(KERNELS)


@pytest.mark.parametrize(("name", "target", "before"), [
    ("four gates", "gfx942", 49660), ("four gates", "gfx950", 72156), ("linear attention back", "gfx950", 24952),
])  # fmt: skip
def test_a_small_grid_leaves_no_simd_idle(name: str, target: str, before: int) -> None:
    """One wave had all columns where it had the registers, though the grid has no other for three of four SIMDs; a
    state that is renamed for the next step kept them together. `before`: clocks of one wave by the model."""
    kernel, made, sizes = KERNELS[name]
    case = made(*sizes[-1])
    compiled = on_chip(kernel, case, target)
    assert compiled.block[0] > 64 and compiled.resources.spills == 0
    assert sample(compiled, case.arguments).replay().cycles < 0.8 * before
