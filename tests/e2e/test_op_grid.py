"""What workgroups do together, on every chip: the last to arrive finishes; the order in which they are numbered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import products
import pytest
from agree import TARGETS, agree
from products import TILE, K, M, N

import wavedsl as wd

B, P, ONE = wd.symbols("B P ONE")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("waves", [1, 2])
def test_the_last_to_arrive_sums_up(waves: int, target: str, oracle: Callable[[str], str]) -> None:
    """One sum of a whole matrix in one launch, added in one order whoever comes last."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(N, 256, 1), wd.WaveConstraint(N, 256 // waves)])
    def total(
        x: wd.Memory[B, N, wd.f32], partial: wd.Memory[P, wd.f32], count: wd.Memory[ONE, wd.i32],
        out: wd.Memory[ONE, wd.f32],
    ):  # fmt: skip
        wd.write(wd.sum(wd.read(x), dim=N), partial, mapping=wd.IndexMapping((), {P: B}))
        wd.fence()
        ticket = wd.atomic_add(wd.Register[wd.i32](1), count, mapping=wd.IndexMapping((), {ONE: 0}))

        def finish():
            wd.fence()
            wd.write(wd.sum(wd.read(partial), dim=P), out, mapping=wd.IndexMapping((), {ONE: 0}))

        wd.cond(ticket == wd.Register[wd.i32](6), finish)

    x = np.random.default_rng(1).integers(-9, 10, (7, 200)).astype(np.float32)
    arguments = [x, np.full(7, np.nan, np.float32), np.zeros(1, np.int32), np.zeros(1, np.float32)]
    agree(total, arguments, target, oracle)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", [(), (M, N)], ids=str)
def test_workgroups_numbered_in_groups(dynamic: tuple, target: str) -> None:
    kernel = products.gemm(products.F16, schedule=wd.Schedule(swizzle=True))
    plain = products.gemm(products.F16)
    subs = dict(zip(TILE, (16, 16, 16, 16, 16)))
    for m, n in ((16 * 11, 16 * 3), (16 * 5, 16 * 2), (16, 40)):
        a, b, c = products.operands(products.F16, m, n, 32)
        compiled = kernel.compile(a, b, c, target=target, subs=subs, dynamic=dynamic or None)
        compiled.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, products.F16)[0], products.F16)
        if m > 16:
            other = plain.compile(a, b, c, target=target, subs=subs, dynamic=dynamic or None)
            assert other.asm != compiled.asm and other.grid == compiled.grid


@pytest.mark.parametrize("order", ["together", "apart"])
@pytest.mark.parametrize("target", TARGETS)
def test_reads_of_what_other_waves_wrote(target: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four waves write, then read each other's elements: once directly, once in a loop. Nothing made them wait."""
    monkeypatch.setenv("WAVEDSL_ORDER", order)

    @wd.wave([wd.WorkgroupConstraint(N, 4096, 0), wd.WaveConstraint(N, 1024), wd.TilingConstraint(K, 64)])
    def kernel(
        a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32], c: wd.Memory[N, wd.f32], d: wd.Memory[K, wd.f32],
        e: wd.Memory[K, wd.f32],
    ):  # fmt: skip
        wd.write(wd.read(a) * 2, b)
        wd.write(wd.read(b, mapping=wd.IndexMapping((N,), {N: 4095 - N})), c)

        @wd.iterate(K)
        def loop():
            wd.write(wd.read(c, mapping=wd.IndexMapping((K,), {N: 8 * K})) + wd.read(d), e)

    a, d = np.arange(4096, dtype=np.float32), np.ones(512, np.float32)
    b, c, e = np.zeros_like(a), np.zeros_like(a), np.zeros_like(d)
    compiled = kernel.compile(a, b, c, d, e, target=target)
    compiled.emulate(a, b, c, d, e)
    np.testing.assert_array_equal(c, 2 * a[::-1])
    np.testing.assert_array_equal(e, c[::8] + 1)
    assert fences(kernel) == 2
    order = [n.op for n in kernel.trace().region.nodes if n.op in ("write", "fence", "iterate")]
    assert order == ["write", "fence", "write", "fence", "iterate"], "one per array, in front of the loop"
    assert compiled.asm.count("s_barrier") + compiled.asm.count("bar.sync") >= 2


def fences(kernel: object) -> int:
    return sum(n.op == "fence" for n in kernel.trace().all_nodes())


@pytest.mark.parametrize("order", ["together", "apart"])
@pytest.mark.parametrize("target", TARGETS)
def test_writes_wait_for_reads_of_other_waves(target: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four waves turn an array round in place: each read elements that another may have written already."""
    monkeypatch.setenv("WAVEDSL_ORDER", order)

    @wd.wave([wd.WorkgroupConstraint(N, 4096, 0), wd.WaveConstraint(N, 1024)])
    def kernel(a: wd.Memory[N, wd.f32]):
        wd.write(wd.read(a, mapping=wd.IndexMapping((N,), {N: 4095 - N})), a)

    a = np.arange(4096, dtype=np.float32)
    compiled = kernel.compile(a, target=target)
    compiled.emulate(a)
    np.testing.assert_array_equal(a, np.arange(4096)[::-1])
    assert fences(kernel) == 1
    between = compiled.asm[: compiled.asm.rindex("store" if target.startswith("gfx") else "st.global")]
    assert "s_barrier" in between or "bar.sync" in between
    assert "buffer_inv" not in compiled.asm and "fence.acq_rel" not in compiled.asm, "one workgroup's business"


def test_a_wave_that_writes_what_it_has_read_waits_for_nobody() -> None:
    tiles = [wd.WorkgroupConstraint(N, 256, 0), wd.WaveConstraint(N, 64)]

    @wd.wave(tiles)
    def whole(a: wd.Memory[N, wd.f32]):
        wd.write(wd.read(a) + 1, a)

    @wd.wave(tiles)
    def part(a: wd.Memory[M, wd.f32], by: wd.Memory[N, wd.f32]):
        wd.write(wd.read(a[4 : 4 + N]) + wd.read(by), a[4 : 4 + N])

    @wd.wave(tiles)
    def scattered(a: wd.Memory[M, wd.f32], at: wd.Memory[N, wd.i32]):
        places = wd.IndexMapping((N,), {M: wd.read(at)})
        wd.write(wd.read(a, mapping=places) + 1, a, mapping=places)

    @wd.wave(tiles)
    def moved(a: wd.Memory[M, wd.f32], by: wd.Memory[N, wd.f32]):
        wd.write(wd.read(a[4 : 4 + N]) + wd.read(by), a[3 : 3 + N])

    assert [fences(k) for k in (whole, part, scattered, moved)] == [0, 0, 0, 1]
