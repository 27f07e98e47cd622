"""What a kernel reads several times is loaded once, and as often as written where memory may have changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

N, P, W = wd.sym.N, wd.sym.P, wd.sym.W
M, K, G, S, T = wd.symbols("M K G S T")
ROWS = [wd.WorkgroupConstraint(N, 256, 0)]


def loads(compiled: wd.CompiledKernel, array: str) -> int:
    """Of an array, where the kernel is made."""
    index = next(i for i, p in enumerate(compiled.params) if p.name == array)
    found = 0
    for op in compiled.kernel_ir.body.walk():
        if op.name == "load.global":
            work, of = [op.args[0]], set()
            while work:
                made = work.pop().op
                of |= {made.attrs["index"]} if made.name == "param" else set()
                work += made.args
            found += index in of
    return found


def lines(compiled: wd.CompiledKernel) -> int:
    """Loads from global memory in the text."""
    return len(re.findall(r"^\s*(?:@!?%p\d+ )?(?:s_buffer_load|buffer_load|ld\.global)", compiled.asm, re.M))


@wd.wave(ROWS, subs={W: 9})
def stencil(x: wd.Memory[N, wd.f32], w: wd.Memory[W, wd.f32], y: wd.Memory[N, wd.f32]):
    """As one writes it: each line says all that it needs, and a function reads again."""

    def weighted(i: int) -> Any:
        return wd.read(x) * wd.read(w[i])

    flat = weighted(0) + weighted(1) * wd.read(w[2])
    bent = weighted(1) - wd.read(w[2]) * wd.read(w[1])
    wd.write(flat * bent + wd.read(x) * wd.read(w[1]), y)


@pytest.mark.parametrize("target", (*TARGETS, "sm_90a"))
def test_numbers_and_rows_are_loaded_once(target: str, oracle: Callable[[str], str]) -> None:
    rng = np.random.default_rng(1)
    for n in (1000, 1024):
        arguments = [rng.standard_normal(n, np.float32), rng.standard_normal(9, np.float32), np.zeros(n, np.float32)]
        compiled = agree(stencil, arguments, target, oracle, near(4, 1e-5))
        assert (loads(compiled, "x"), loads(compiled, "w")) == (1, 3)
        assert lines(compiled) == 4


@wd.wave(ROWS)
def written(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    """y is read twice before it is written, and twice behind that; x does not change."""
    wd.write(wd.read(y) * wd.read(x) + wd.read(y), y)
    wd.write(wd.read(y) * wd.read(x) - wd.read(y), y)


@wd.wave(ROWS)
def added(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    before = wd.read(y) * wd.read(x)
    wd.atomic_add(wd.read(x), y)
    wd.write(before + wd.read(y) * wd.read(x), y)


@wd.wave(ROWS)
def fenced(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    before = wd.read(y) * wd.read(x)
    wd.fence()
    wd.write(before + wd.read(y) * wd.read(x), y)


@wd.wave(ROWS)
def hinted(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    """What is read past a cache is asked for by whoever says so."""
    found = wd.read(x, cache="bypass") + wd.read(x) * wd.read(x, cache="bypass") + wd.read(x) * wd.read(y)
    wd.write(found, y)


@wd.wave(ROWS)
def branched(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    """Two branches, each of which reads twice."""
    chosen = wd.cond(wd.tile_start(N) > 100, lambda: wd.read(x) + wd.abs(wd.read(x)), lambda: wd.read(x) * wd.read(x))
    wd.write(chosen + wd.read(y), y)


@wd.wave([wd.WorkgroupConstraint(N, 32, 0)])
def elsewhere(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    """One element more, and under a mask of its own."""
    near = wd.read(x, mapping=wd.IndexMapping((N,), {N: wd.where(wd.index(N) < N - 1, wd.index(N) + 1, -1)}))
    first = wd.read(x, mapping=wd.IndexMapping((N,), {N: wd.where(wd.index(N) < 200, wd.index(N), -1)}))
    wd.write(wd.read(x) + near * 2.0 + first * 3.0 + wd.read(y), y)


@wd.wave(ROWS)
def asking(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32], flags: wd.Memory[P, wd.i32]):
    """A loop that asks for a number until it holds, or has asked often enough, does ask."""
    seen, times = wd.while_loop(
        lambda seen, times: (seen == 0) & (times < 3),
        lambda seen, times: (wd.read(flags[0]), times + 1),
        [wd.read(flags[0]), wd.Register[wd.i32](0)],
    )
    wd.write(wd.read(x) + wd.cast(seen * 10 + times, wd.f32) + wd.read(y), y)


CHANGED = {
    "written": (written, 1, 2), "added": (added, 1, 2), "fenced": (fenced, 2, 2), "hinted": (hinted, 3, 1),
    "branched": (branched, 2, 1), "elsewhere": (elsewhere, 3, 1),
}  # fmt: skip


@pytest.mark.parametrize("target", (*TARGETS, "sm_90a"))
@pytest.mark.parametrize("name", CHANGED)
def test_what_may_have_changed_is_loaded_again(name: str, target: str) -> None:
    kernel, of_x, of_y = CHANGED[name]
    rng = np.random.default_rng(2)
    x, y = rng.integers(-8, 8, (2, 512)).astype(np.float32)
    compiled = agree(kernel, [x, y], target)
    assert (loads(compiled, "x"), loads(compiled, "y")) == (of_x, of_y)


@pytest.mark.parametrize("target", (*TARGETS, "sm_90a"))
def test_a_loop_that_asks_until_it_is_told_goes_on_asking(target: str) -> None:
    x, y = np.arange(512, dtype=np.float32), np.ones(512, np.float32)
    for flag in (0, 1):
        compiled = agree(asking, [x, y, np.full(1, flag, np.int32)], target)
        loop = next(op for op in compiled.kernel_ir.body.walk() if op.name == "for")
        assert any(op.name == "load.global" for op in loop.regions[0].walk())


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
def in_groups(
    x: wd.Memory[M, K, wd.f16], q: wd.Memory[N, K, wd.u8], scale: wd.Memory[N, G, wd.f16],
    zero: wd.Memory[N, G, wd.f16], y: wd.Memory[M, N, wd.f32],
):  # fmt: skip
    """A scale and a zero for each 64 of K, that is for all of a trip."""

    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def loop(acc):
        group = wd.IndexMapping((N, K), {G: K // 64})
        weights = wd.cast(wd.cast(wd.read(q), wd.i32), wd.f16) - wd.read(zero, mapping=group)
        return wd.mma(wd.read(x), weights * wd.read(scale, mapping=group), acc)

    wd.write(loop, y)


def test_loads_of_one_trip_are_equal_once_it_is_known_which(oracle: Callable[[str], str]) -> None:
    """32 elements of a row of weights have one group; nobody can tell before trips are straight code."""
    rng = np.random.default_rng(3)
    x, q = rng.integers(-4, 5, (32, 128)).astype(np.float16), rng.integers(0, 16, (64, 128)).astype(np.uint8)
    scale, zero = (rng.integers(1, 5, (64, 2)).astype(np.float16) for _ in range(2))
    compiled = agree(in_groups, [x, q, scale, zero, np.zeros((32, 64), np.float32)], "sm_80", oracle)
    assert (loads(compiled, "scale"), loads(compiled, "zero")) == (8, 8)


def paged(number: str) -> Any:
    """Two products of a page of B, whose number is made `number`: "once", or for each product computed or read."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WaveConstraint(M, 16), wd.TilingConstraint(N, 32)], subs={K: 64, S: 32}
    )
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[P, S, K, wd.SHARED, wd.f16], table: wd.Memory[T, wd.i32],
        c: wd.Memory[M, K, wd.f32],
    ):  # fmt: skip
        @wd.iterate(N, init_args=[wd.Register[M, K, wd.f32](0.0)])
        def loop(acc):
            def page() -> Any:
                place = wd.tile_start(N) // 32
                if number == "computed":
                    return place * 2 % 5
                return wd.read(table, mapping=wd.IndexMapping((), {T: place}))

            def rows(page: Any) -> Any:
                return wd.read(b, mapping=wd.IndexMapping((N, K), {P: page, S: N % 32}))

            first = page()
            products = wd.mma(wd.read(a), rows(first), wd.Register[M, N, wd.f32](0.0))
            return wd.mma(wd.cast(products, wd.f16), rows(first if number == "once" else page()), acc)

        wd.write(loop, c)

    return kernel


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_places_that_are_computed_alike_are_one(target: str, oracle: Callable[[str], str]) -> None:
    """A function that is called for each product says again where its page lies: shared memory has one copy."""
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-2, 3, size).astype(np.float16) for size in ((64, 64), (8, 32, 64)))
    given = [a, b, np.array([0, 2, 4, 1, 3], np.int32), np.zeros((64, 64), np.float32)]
    compiled = [agree(paged(how), given, target, oracle, subs={N: 160}) for how in ("once", "computed", "read")]
    assert len({x.shared_bytes for x in compiled}) == 1


@wd.wave(
    [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)], subs={T: 256}
)
def coded(
    x: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, wd.f16], top: wd.Memory[N, K / 64, wd.u8],
    code: wd.Memory[T, wd.f32], y: wd.Memory[M, N, wd.f32],
):  # fmt: skip
    """A byte of 64 neighbours says where their scale is."""

    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def loop(acc):
        number = wd.cast(wd.read(top, mapping=wd.IndexMapping((N, K), {K / 64: K // 64})), wd.i32)
        scale = wd.read(code, mapping=wd.IndexMapping((N, K), {T: number}))
        return wd.mma(wd.read(x), wd.read(w) * wd.cast(scale, wd.f16), acc)

    wd.write(loop, y)


@pytest.mark.parametrize("target", (*TARGETS, "sm_90a"))
def test_what_neighbours_have_in_common_is_looked_up_once(target: str, oracle: Callable[[str], str]) -> None:
    """A byte that was repeated to words of four was four numbers, and each looked up its scale for each element."""
    rng = np.random.default_rng(5)
    x, w = (rng.integers(-2, 3, size).astype(np.float16) for size in ((16, 256), (64, 256)))
    top, code = rng.integers(0, 256, (64, 4)).astype(np.uint8), rng.integers(-2, 3, 256).astype(np.float32)
    compiled = agree(coded, [x, w, top, code, np.zeros((16, 64), np.float32)], target, oracle)
    assert loads(compiled, "code") <= 2 * loads(compiled, "top")  # of rows of a lane, and trips that are written out
