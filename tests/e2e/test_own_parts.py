"""A workgroup's own part of an array: places and slices that are expressions over index dimensions, and what is refused
because it was the extent where an index was meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from source import run

import wavedsl as wd

N, P, H, K, M = wd.symbols("N P H K M")
TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", [(), (H,)], ids=["static", "dynamic"])
def test_the_workgroups_own_part(dynamic: tuple[Any, ...], target: str) -> None:
    """Ends that are expressions over index dimensions: `a[H * N : …]` began at the extent of H, behind the array."""

    @wd.wave([wd.WorkgroupConstraint(H, 1, 0)], subs={N: 40}, dynamic=dynamic)
    def kernel(
        a: wd.Memory[P, wd.f16], b: wd.Memory[H, N, wd.f16], c: wd.Memory[H, N, wd.f16], before: wd.Memory[H, wd.f32]
    ):
        wd.write(wd.read(a[H * N : (H + 1) * N]), b)
        wd.write(wd.read(a[H // 2 * 8 + H % 2 : H // 2 * 8 + H % 2 + N]), c)
        wd.write(wd.sum(wd.cast(wd.read(a[: 2 * H]), wd.f32), dim=P), before)

    a = np.arange(160, dtype=np.float16)
    want = [a.reshape(4, 40), np.stack([a[i : i + 40] for i in (0, 1, 8, 9)]), np.array([0, 1, 6, 15], np.float32)]
    got = [np.zeros_like(w) for w in want]
    kernel.evaluate(a, *got)
    kernel.compile(a, *got, target=target).emulate(a, *(mine := [np.zeros_like(w) for w in want]))
    for i in range(3):
        np.testing.assert_array_equal(got[i], want[i])
        np.testing.assert_array_equal(mine[i], want[i])


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_an_array_as_long_as_all_of_them(target: str) -> None:
    """Of an array annotated `H * N` they were read from behind its end, without a word: zeros."""

    @wd.wave([wd.WorkgroupConstraint(P, 1, 1), wd.WorkgroupConstraint(H, 1, 0)], subs={N: 40})
    def kernel(
        a: wd.Memory[P, H * N, wd.f16], b: wd.Memory[P, H, N, wd.f16], c: wd.Memory[P, H * N, wd.f16],
        d: wd.Memory[H * N, wd.f16],
    ):  # fmt: skip
        own = wd.read(a[P, H * N : H * N + N])
        wd.write(own + wd.read(d[H * N : (H + 1) * N]), b)
        wd.write(own, c[:, H * N : (H + 1) * N])

    a, d = (np.arange(n, dtype=np.float16) for n in (240, 120))
    a = a.reshape(2, 120)
    want = [(a + d).reshape(2, 3, 40), a]
    given = [a, np.zeros_like(want[0]), np.zeros_like(a), d]
    mine = [x.copy() for x in given]
    kernel.evaluate(*given)
    kernel.compile(*mine, target=target).emulate(*mine)
    for i, w in zip((1, 2), want):
        np.testing.assert_array_equal(given[i], w)
        np.testing.assert_array_equal(mine[i], w)


@pytest.mark.parametrize("target", TARGETS)
def test_a_product_of_the_workgroups_own_rows(target: str) -> None:
    """One ring holds both tiles of sm_90a, and the thread that copies filled it before it knew where the second lies: a
    KeyError. The maximum of each workgroup's columns, as a greedy head of a language model has it."""

    @wd.wave(
        [wd.WorkgroupConstraint(P, 64, 0), wd.WorkgroupConstraint(H, 1, 1), wd.TilingConstraint(K, 64)], subs={N: 128}
    )
    def kernel(
        x: wd.Memory[P, K, wd.f16], w: wd.Memory[H * N, K, wd.f16], most: wd.Memory[P, H, wd.f32],
        where: wd.Memory[P, H, wd.i32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[P, N, wd.f32](0.0)])
        def total(acc):
            return wd.mma(wd.read(x), wd.read(w[H * N : (H + 1) * N, :]), acc)

        wd.write(wd.max(total, dim=N), most)
        wd.write(wd.argmax(total, dim=N) + wd.index(H) * 128, where)

    random = np.random.default_rng(0)
    x, w = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((70, 256), (384, 256)))
    product = (x.astype(np.float32) @ w.T.astype(np.float32)).reshape(70, 3, 128)
    most, where = np.zeros((70, 3), np.float32), np.zeros((70, 3), np.int32)
    kernel.compile(x, w, most, where, target=target).emulate(x, w, most, where)
    np.testing.assert_array_equal(most, product.max(-1))
    np.testing.assert_array_equal(where, product.argmax(-1) + 128 * np.arange(3))


@pytest.mark.parametrize("dtype", [wd.f16, wd.f32], ids=str)
@pytest.mark.parametrize(("length", "more"), [(96, 0), (96, 4), (96, 3), (100, 0), (80, 8)])
@pytest.mark.parametrize("target", TARGETS)
def test_tile_after_tile_of_the_own_part_of_rows(target: str, length: int, more: int, dtype: wd.DType) -> None:
    """K in parts of a workgroup each, with loops over tiles: whole tiles or not, on 16 bytes, on 8, or anywhere."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(P, 32, 0), wd.WorkgroupConstraint(M, 32, 1), wd.WorkgroupConstraint(H, 1, 2),
            wd.TilingConstraint(N, 32),
        ],
    )  # fmt: skip
    def product(
        a: wd.Memory[P, K, dtype], b: wd.Memory[M, K, dtype], c: wd.Memory[H, P, M, wd.f32], d: wd.Memory[P, K, dtype],
        n: wd.Memory[N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(N, init_args=[wd.Register[P, M, wd.f32](0.0)])
        def total(acc):
            own = wd.read(a[:, H * N + more : H * N + more + N])
            return wd.mma(own, wd.read(b[:, H * N + more : H * N + more + N]), acc)

        wd.write(total, c)

        @wd.iterate(N)
        def copied():
            own = wd.read(a[:, H * N + more : H * N + more + N]) * wd.cast(wd.read(n), dtype)
            wd.write(own, d[:, H * N + more : H * N + more + N])

    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, (m, 3 * length + 8)).astype(dtype.storage) for m in (40, 30))
    c, d, n = np.zeros((3, 40, 30), np.float32), np.full_like(a, 9), np.full(length, 2, np.float32)
    own = slice(more, more + 3 * length)
    x, y = (z[:, own].reshape(len(z), 3, length).astype(np.float32) for z in (a, b))
    product.compile(a, b, c, d, n, target=target).emulate(a, b, c, d, n)
    np.testing.assert_array_equal(c, np.einsum("phn,mhn->hpm", x, y))
    want = np.full_like(a, 9)
    want[:, own] = 2 * a[:, own]
    np.testing.assert_array_equal(d, want)


@pytest.mark.parametrize(
    ("target", "words"), [("gfx942", "buffer_load_dwordx4"), ("sm_80", "cp.async"), ("sm_90a", "wgmma")]
)
def test_the_own_part_of_rows_is_a_tile(target: str, words: str) -> None:
    """It was gathered, each lane its own elements: 2.6 times the clocks of a product on gfx942."""

    @wd.wave(
        [wd.WorkgroupConstraint(P, 64, 0), wd.WorkgroupConstraint(H, 1, 1), wd.TilingConstraint(N, 64)], subs={M: 64}
    )
    def product(a: wd.Memory[P, H * N, wd.f16], b: wd.Memory[M, H * N, wd.f16], c: wd.Memory[H, P, M, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[P, M, wd.f32](0.0)])
        def total(acc):
            return wd.mma(wd.read(a[:, H * N : (H + 1) * N]), wd.read(b[:, H * N : (H + 1) * N]), acc)

        wd.write(total, c)

    compiled = product.compile(target=target, subs={P: 1024, N: 1024, H: 4})
    assert words in compiled.asm and compiled.shared_bytes > 0


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("a, mapping=wd.IndexMapping((N,), {P: H * N + N})", "wd.index(H) * N + wd.index(N)"),
        ("a[H * N + wd.index(N)]", "wd.index(H) is the workgroup's own index"),
        ("a[H * 40 + wd.index(N)]", "wd.index(H) is the workgroup's own index"),
        ("a[H / 2 : H / 2 + N]", "// rounds down"),
    ],
)
def test_places_that_nobody_means(part: str, words: str) -> None:
    """Rows one after the other, as other languages count them: as written, they gave zeros from behind the array."""
    source = f"""
@wd.wave([wd.WorkgroupConstraint(H, 1, 0)], subs={{N: 40}})
def kernel(a: wd.Memory[P, wd.f16], b: wd.Memory[H, N, wd.f16]):
    wd.write(wd.read({part}), b)
"""
    with pytest.raises(wd.TraceError) as caught:
        run("N, P, H = wd.symbols('N P H')\n" + source)["kernel"].trace()
    assert words in str(caught.value.hint)


def test_what_is_behind_all_parts_is_nobodys() -> None:
    source = """
N, H = wd.symbols("N H")


@wd.wave([wd.WorkgroupConstraint(H, 1, 0)], subs={N: 40})
def kernel(a: wd.Memory[H * N, wd.f16], b: wd.Memory[H, N, wd.f16]):
    wd.write(wd.read(a[H * N + wd.index(N)]), b)
"""
    with pytest.raises(wd.TraceError, match="the same for all of H") as caught:
        run(source)["kernel"].trace()
    assert "wd.index(H) is the workgroup's own index" in str(caught.value.hint)


def test_extents_that_are_meant() -> None:
    """A header as long as there are workgroups, and rows of one element for each: their extents are the distance."""

    @wd.wave([wd.WorkgroupConstraint(H, 1, 0)])
    def kernel(a: wd.Memory[H + N, wd.f32], b: wd.Memory[P, wd.f32], c: wd.Memory[H, N, wd.f32]):
        wd.write(wd.read(a[wd.index(N) + H]) + wd.read(b[wd.index(N) * H + wd.index(H)]), c)

    a, b, c = np.arange(7, dtype=np.float32), 10 * np.arange(12, dtype=np.float32), np.zeros((4, 3), np.float32)
    kernel.evaluate(a, b, c)
    np.testing.assert_array_equal(c, a[4:] + b.reshape(3, 4).T)
