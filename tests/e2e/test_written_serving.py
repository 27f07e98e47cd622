"""Tables that serving a model makes beside its products, against NumPy and the evaluator: tokens by expert in padded
blocks, logits of tokens that were drawn before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from agree import TARGETS

import wavedsl as wd

B, T, V, S, E, W, O = wd.symbols("B T V S E W O")
I32, F32 = wd.i32, wd.f32
Case = tuple[list[Any], Mapping[int, np.ndarray], dict[Any, int]]
"""Arguments, what some of them become, bindings."""
BLOCK = 16


@wd.wave([wd.WorkgroupConstraint(O, 1, 0)])
def in_blocks(
    ids: wd.Memory[T, I32], order: wd.Memory[S, I32], experts: wd.Memory[W, I32], total: wd.Memory[O, I32]
):  # fmt: skip
    """Tokens by expert, each expert's padded to whole blocks; the expert of each block; how many places there are."""
    hot = wd.cast(wd.read(ids) == wd.index(E), I32)
    rank, count = wd.cumsum(hot, dim=T) - hot, wd.sum(hot, dim=T)
    padded = (count + BLOCK - 1) // BLOCK * BLOCK
    ends = wd.cumsum(padded, dim=E)
    wd.write(wd.Register[S, I32](0) + T, order)
    place = wd.sum(hot * (rank + ends - padded), dim=E)
    wd.write(wd.index(T), order, mapping=wd.IndexMapping((T,), {S: place}))
    wd.write(wd.sum(wd.cast(wd.index(W) * BLOCK >= ends, I32), dim=E), experts)
    wd.write(wd.sum(padded, dim=E), total)


def blocks_case(t: int, e: int) -> Case:
    ids = np.random.default_rng(0).integers(0, e, t).astype(np.int32)
    count = -(-t // BLOCK) + e
    order, experts, at = np.full(count * BLOCK, t), np.full(count, e), 0
    for expert in range(e):
        mine = np.flatnonzero(ids == expert)
        blocks = -(-len(mine) // BLOCK)
        order[at : at + len(mine)] = mine
        experts[at // BLOCK : at // BLOCK + blocks] = expert
        at += blocks * BLOCK
    outputs = [np.zeros(len(x), np.int32) for x in (order, experts, [at])]
    return [ids, *outputs], {1: order, 2: experts, 3: np.array([at])}, {E: e}


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def penalised(x: wd.Memory[B, V, F32], drawn: wd.Memory[B, T, I32], factor: wd.Memory[B, F32]):
    """In place, and once for a token that was drawn several times."""
    token, factors = wd.read(drawn), wd.read(factor)
    other = wd.read(drawn, mapping=wd.IndexMapping((S,), {B: B, T: S}))
    known = wd.any((token == other) & (wd.index(S) < wd.index(T)), dim=S)
    place = wd.IndexMapping((T,), {B: B, V: wd.where(known, -1, token)})
    value = wd.read(x, mapping=place)
    wd.write(wd.where(value > 0, value / factors, value * factors), x, mapping=place)


def penalised_case(b: int, v: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    x, drawn = rng.standard_normal((b, v)).astype(np.float32), rng.integers(0, 12, (b, t)).astype(np.int32)
    want = x.astype(np.float64)
    for row, tokens in zip(want, drawn):
        some = np.unique(tokens)
        row[some] = np.where(row[some] > 0, row[some] / 2, row[some] * 2)
    return [x, drawn, np.full(b, 2, np.float32)], {0: want}, {S: t}


KERNELS: dict[str, tuple[Any, Callable[..., Case], list[tuple[int, ...]]]] = {
    "blocks": (in_blocks, blocks_case, [(40, 8), (131, 5)]),
    "penalised": (penalised, penalised_case, [(2, 200, 16), (3, 333, 70)]),
}


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_against_numpy(name: str, target: str) -> None:
    kernel, case, sizes = KERNELS[name]
    for size in sizes:
        arguments, wants, subs = case(*size)
        kernel.compile(*arguments, target=target, subs=subs).emulate(*arguments)
        for position, want in wants.items():
            np.testing.assert_array_equal(arguments[position], want)


@pytest.mark.parametrize("name", KERNELS)
def test_the_evaluator_agrees(name: str) -> None:
    kernel, case, sizes = KERNELS[name]
    for size in sizes:
        arguments, wants, subs = case(*size)
        kernel.evaluate(*arguments, subs=subs)
        for position, want in wants.items():
            np.testing.assert_array_equal(arguments[position], want)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("t, e", [(128, 256), (256, 128)])
def test_waves_share_what_large_tables_have_in_common(t: int, e: int, target: str) -> None:
    """Tables of tokens and experts, of blocks and experts: all waves went along the blocks, so that each had all of
    128 x 256 and was refused, or 1487 spills on gfx942 (256 x 128, in 20728 instructions)."""
    arguments, want, sizes = blocks_case(t, e)
    compiled = in_blocks.compile(*arguments, target=target, subs=sizes)
    compiled.emulate(*arguments)
    for i, x in want.items():
        np.testing.assert_array_equal(arguments[i], x)
    if target.startswith("gfx"):
        assert not compiled.resources.spills and compiled.resources.instructions["valu"] < 2000
