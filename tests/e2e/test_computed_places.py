"""Coordinates computed of elements' own indices, `wd.index(P) * Q + wd.index(Q)`: accesses of 16 bytes as of written
expressions, text against evaluator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from wavedsl.ir.pipeline import prepared

import wavedsl as wd
from wavedsl.targets import get_target

B, J, P, Q, N = wd.symbols("B J P Q N")
CUT = [wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(J, 16, 0)]


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float16)


@wd.wave(CUT)
def outer(a: wd.Memory[B, P, wd.f16], b: wd.Memory[J, Q, wd.f16], c: wd.Memory[B, J, P * Q, wd.f16]):
    """Outer products whose two inner dimensions are one of the array."""
    x = wd.read(a) * wd.read(b)
    wd.write(x, c, mapping=wd.IndexMapping((P, J, Q), {B: B, J: J, P * Q: wd.index(P) * Q + wd.index(Q)}))


def wide_stores(text: str) -> int:
    return len(re.findall(r"buffer_store_dwordx4|st\.global\.v4", text))


@pytest.mark.parametrize("target", TARGETS)
def test_neighbours_are_stored_together(target: str, oracle: Callable[[str], str]) -> None:
    """Halves were stored one by one, each with an address of its own: 64 x 64 x 64 of them in 1024 lanes took 416
    spilled registers and 3414 instructions on gfx950."""
    shape = (2, 32, 8, 16)
    a, b = whole(2, 8), whole(32, 16, seed=1)
    c = np.zeros((2, 32, 128), np.float16)
    compiled = agree(outer, [a, b, c], target, oracle)
    stores = compiled.resources.instructions["lsu" if target.startswith("sm") else "vmem"]
    assert wide_stores(compiled.asm) and stores < 16, shape


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_no_address_for_each_element(target: str) -> None:
    size = {B: 4, J: 64, P: 64, Q: 64}
    r = outer.compile(target=target, subs=size).resources
    assert not r.spills and r.registers <= 128, (r.spills, r.registers)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("p", "j", "q"), [(3, 21, 7), (5, 17, 4), (2, 16, 12)])
def test_any_size(target: str, p: int, j: int, q: int) -> None:
    """Rows that are no whole number of vectors, tiles that stick out."""
    agree(outer, [whole(2, p), whole(j, q, seed=1), np.zeros((2, j, p * q), np.float16)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_run_time(target: str) -> None:
    compiled = None
    for j in (16, 19):
        a, b, c, want = whole(2, 8), whole(j, 16, seed=1), *(np.zeros((2, j, 128), np.float16) for _ in range(2))
        compiled = compiled or outer.compile(a, b, c, target=target, dynamic=(B, J))
        assert wide_stores(compiled.asm)
        compiled.emulate(a, b, c)
        outer.evaluate(a, b, want)
        assert np.array_equal(c, want)


def moved(how: Callable[[Any], Any], out: Any) -> Any:
    @wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
    def kernel(x: wd.Memory[N, wd.f16], y: wd.Memory[out, wd.f16]):
        wd.write(wd.read(x), y, mapping=wd.IndexMapping((N,), {out: how(wd.index(N))}))

    return kernel


M = wd.sym.M
PLACES: dict[str, Callable[[Any], Any]] = {
    "below the start": lambda i: i - 24,
    "behind the end": lambda i: i + 40,
    "backwards": lambda i: 99 - i,
    "apart": lambda i: i * 3 - 8,
    "turned": lambda i: i % 8 * 32 + i // 8,
    "blocks in turn": lambda i: (i // 16 * 16 + 16) % 256 + i % 16,
    "halves of both signs": lambda i: (i - 100) // 2 * 2 + i % 2,
    "wrapping": lambda i: i * 65537 * 65537,
    "wrapping back": lambda i: (i * (1 << 24)) // (1 << 24),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PLACES)
def test_what_is_computed(name: str, target: str) -> None:
    for n, m in ((256, 256), (200, 100)):
        agree(moved(PLACES[name], M), [whole(n), np.full(m, 7, np.float16)], target)


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(J, 16)])
def in_turn(a: wd.Memory[B, J, wd.f16], c: wd.Memory[B, J, P, wd.f16]):
    """A loop over J, which places its trips' elements by their own index, backwards by halves."""
    last = wd.index(P)

    @wd.iterate(J, init_args=[])
    def loop():
        x = wd.broadcast(wd.read(a), (J, P))
        wd.write(x, c, mapping=wd.IndexMapping((J, P), {B: B, J: 39 - wd.index(J), P: (last + 8) % 16}))


@pytest.mark.parametrize("target", TARGETS)
def test_in_loops(target: str) -> None:
    agree(in_turn, [whole(2, 40), np.zeros((2, 40, 16), np.float16)], target)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_which_are_expressions(target: str) -> None:
    """What the graph says once it is prepared; accesses of whole tiles keep the nodes that move them."""

    def coordinates(kernel: Any, sizes: dict[Any, int]) -> list[str]:
        graph = kernel.compile(target=target, subs=sizes).graph
        mapped = [n for n in prepared(graph, get_target(target)).all_nodes() if n.attrs.get("mapping") is not None]
        return [str(c) for n in mapped for c in n.attrs["mapping"].coords]

    assert coordinates(outer, {B: 2, J: 32, P: 8, Q: 16}) == ["B", "J", "16*P + Q"]
    assert coordinates(moved(PLACES["behind the end"], M), {N: 256, M: 256}) == ["1"]
    assert coordinates(moved(PLACES["wrapping back"], M), {N: 256, M: 256}) == ["1"]
    assert coordinates(moved(PLACES["below the start"], M), {N: 256, M: 256}) == ["N - 24"]
    assert coordinates(moved(PLACES["apart"], M), {N: 256, M: 256}) == ["3*N - 8"]


@wd.wave([wd.WorkgroupConstraint(J, 4, 1), wd.WorkgroupConstraint(N, 32, 0)])
def five_points(x: wd.Memory[J, N, wd.f32], y: wd.Memory[J, N, wd.f32]):
    def near(j, n):
        return wd.read(x, mapping=wd.IndexMapping((J, N), {J: J + j, N: N + n}))

    wd.write(near(-1, 0) + near(0, -1) + near(0, 0) + near(0, 1) + near(1, 0), y)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_neighbours_share_an_address(target: str, oracle: Callable[[str], str]) -> None:
    """Those before an element, too: where a row begins a neighbour's offset is below zero, and nobody loads it."""
    x = np.random.default_rng(0).standard_normal((9, 70)).astype(np.float32)
    compiled = agree(five_points, [x, np.zeros_like(x)], target, oracle)
    loads = re.findall(r"ld\.global\S*\s.*\[(%rd\d+)(.*)\]", compiled.asm)
    of_all, _ = max(Counter(base for base, _ in loads).items(), key=lambda found: found[1])
    assert {"+-4", "+4", "+280", "+-280", ""} <= {place for base, place in loads if base == of_all}


@pytest.mark.parametrize("target", TARGETS)
def test_where_a_slice_begins_is_not_carried(target: str, oracle: Callable[[str], str]) -> None:
    """Loads run a trip ahead of the stores whose place is made of the same number: the stores made it once more, and
    know its range; carried from one trip to the next each had an address of its own on NVIDIA."""
    T, S = wd.symbols("T S")

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)], subs={S: 8})
    def doubled(x: wd.Memory[B, 8 * T, N, wd.f32], y: wd.Memory[B, 8 * T, N, wd.f32]):
        @wd.iterate(T, init_args=[])
        def chunk():
            at = wd.tile_start(T) * 8
            wd.write(wd.read(x[B, at : at + S, :]) * 2.0, y[B, at : at + S, :])

    x = np.random.default_rng(0).standard_normal((2, 40, 33)).astype(np.float32)
    compiled = agree(doubled, [x, np.zeros_like(x)], target, oracle)
    full = [a for op in compiled.kernel_ir.body.walk() if op.name == "for" for a in op.regions[0].args
            if a.lo == -(1 << 31)]  # fmt: skip
    assert not full
    if target.startswith("sm"):
        stores = re.findall(r"st\.global\S*\s+\[(%rd\d+)", compiled.asm)
        assert len(set(stores)) < len(stores) / 2
