"""Dimensions such as `K / 32` where waves and workgroups share K: written, gathered, scattered, summed, counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import sympy
from agree import TARGETS, agree
from products import BK, BM, K, M
from wavedsl.ir.symbols import solve

import wavedsl as wd

GRID = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(K, BK, 1), wd.WaveConstraint(K, BK / 2)]
LOOP = [wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(K, BK), wd.WaveConstraint(K, BK / 2)]
TILES = {BM: 16, BK: 128}
SIZES = {M: 32, K: 256}


def blocks(dtype: type = np.float32) -> np.ndarray:
    """[M, K / 32], all elements different."""
    return np.arange(32 * 8).reshape(32, 8).astype(dtype)


@wd.wave(GRID, subs=TILES)
def copied(s: wd.Memory[M, K / 32, wd.f32], o: wd.Memory[M, K / 32, wd.f32], x: wd.Memory[M, K, wd.f32]):
    wd.write(wd.read(s) + wd.cast(wd.index(K / 32), wd.f32), o)
    wd.write(wd.read(x) * 2.0, x)


@wd.wave(GRID, subs=TILES)
def moved(s: wd.Memory[M, K / 32, wd.f32], o: wd.Memory[M, K / 32, wd.f32]):
    later = wd.read(s, mapping=wd.IndexMapping((M, K / 32), {K / 32: K / 32 + 1}))
    wd.write(later, o, mapping=wd.IndexMapping((M, K / 32), {M: (M + 3) % 32}))


@wd.wave(GRID, subs=TILES)
def counted(
    s: wd.Memory[M, K / 32, wd.i32], o: wd.Memory[M, K / 32, wd.i32], n: wd.Memory[M, K / 32, wd.i32],
    columns: wd.Memory[K / 32, wd.i32], rows: wd.Memory[M, wd.i32],
):  # fmt: skip
    x = wd.read(s)
    wd.write(wd.atomic_add(x, n), o)
    wd.atomic_add(x, columns, mapping=wd.IndexMapping((M, K / 32), {}))
    wd.atomic_add(x, rows, mapping=wd.IndexMapping((M, K / 32), {M: M}))


@wd.wave(LOOP, subs=TILES)
def summed(s: wd.Memory[M, K / 32, wd.i32], before: wd.Memory[M, K / 32, wd.i32], o: wd.Memory[M, wd.i32]):
    @wd.iterate(K, init_args=[wd.Register[M, wd.i32](0)])
    def loop(total):
        x = wd.read(s)
        wd.write(wd.cumsum(x, dim=K / 32) + total, before)
        return total + wd.sum(x, dim=K / 32)

    wd.write(loop, o)


@pytest.mark.parametrize("target", TARGETS)
def test_written(target: str, oracle: Callable[[str], str]) -> None:
    s, x = blocks(), np.ones((32, 256), np.float32)
    agree(copied, [s, np.zeros_like(s), x], target, oracle, subs=SIZES)


@pytest.mark.parametrize("target", TARGETS)
def test_mapped(target: str, oracle: Callable[[str], str]) -> None:
    s = blocks()
    agree(moved, [s, np.zeros_like(s)], target, oracle, subs=SIZES)
    found, want = np.zeros_like(s), np.zeros_like(s)
    moved.evaluate(s, found)
    want[(np.arange(32) + 3) % 32, :7] = s[:, 1:]
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("target", TARGETS)
def test_atomics(target: str, oracle: Callable[[str], str]) -> None:
    s = blocks(np.int32)
    args = [s, np.zeros_like(s), np.full_like(s, 7), np.zeros(8, np.int32), np.zeros(32, np.int32)]
    agree(counted, args, target, oracle, subs=SIZES)
    counted.evaluate(*args)
    for got, want in zip(args[1:], (np.full_like(s, 7), s + 7, s.sum(0), s.sum(1))):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_and_scans(target: str, oracle: Callable[[str], str]) -> None:
    s = blocks(np.int32)
    args = [s, np.zeros_like(s), np.zeros(32, np.int32)]
    agree(summed, args, target, oracle, subs=SIZES)
    summed.evaluate(*args)
    np.testing.assert_array_equal(args[1], np.cumsum(s, axis=1))
    np.testing.assert_array_equal(args[2], s.sum(1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [30, 48])
def test_waves_that_the_compiler_chooses_keep_what_shares_an_element(n: int, target: str) -> None:
    """A tile of 30 elements was halved to 15, of which N / 2 has 15 / 2: the kernel was refused."""
    N = wd.sym.N

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WaveConstraint(M, 16), wd.WorkgroupConstraint(N, n, 1)])
    def kernel(s: wd.Memory[M, N / 2, wd.f32], o: wd.Memory[M, N, wd.f32]):
        wd.write(wd.repeat_interleave(wd.read(s), N), o)

    s = np.arange(20 * n // 2, dtype=np.float32).reshape(20, -1)
    agree(kernel, [s, np.zeros((20, n), np.float32)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("schedule", [{}, {"split_k": 2}, {"stream_k": 3}], ids=str)
def test_a_scaled_product_whose_waves_share_k(schedule: dict, target: str, oracle: Callable[[str], str]) -> None:
    """Waves that share K share K / 32 with it: counted once more, two waves did the work of one, and what split K hands
    from one workgroup to the next found no share of K / 32."""
    N, BN = wd.symbols("N BN")

    def kernel(scaled: bool, **more: int):
        @wd.wave(
            [
                wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
                wd.WaveConstraint(K, BK / 2),
            ],
            subs={BM: 64, BN: 64, BK: 64}, schedule=wd.Schedule(**schedule, **more),
        )  # fmt: skip
        def gemm(
            a: wd.Memory[M, K, wd.f16], s: wd.Memory[M, K / 32, wd.f16], b: wd.Memory[N, K, wd.f16],
            c: wd.Memory[M, N, wd.f32],
        ):  # fmt: skip
            @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](1.0)])
            def loop(acc):
                x = wd.read(a)
                x = x * wd.repeat_interleave(wd.read(s), K) if scaled else x
                return wd.mma(x, wd.read(b), acc)

            wd.write(loop, c)

        return gemm

    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, (rows, 192)).astype(np.float16) for rows in (100, 72))
    args = [a, rng.integers(1, 3, (100, 6)).astype(np.float16), b, np.zeros((100, 72), np.float32)]
    compiled = agree(kernel(True), args, target, oracle)
    if not schedule and not target.startswith("sm_90"):
        compiled, plain = (kernel(x, stages=2).compile(*args, target=target) for x in (True, False))
        assert compiled.block == plain.block
        unit = "mfma" if target.startswith("gfx") else "tensor"
        first, second = ([x.instructions[unit] for x in c.resources.loops] for c in (compiled, plain))
        assert first == second


L, N = wd.symbols("L N")
EVERYWHERE = (*TARGETS, "sm_90a")


@wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, 32, 1)])
def squares(z: wd.Memory[M, 2 * N, wd.f32], o: wd.Memory[M, 2 * N, wd.f32]):
    """Complex numbers, pair by pair: no array has N elements along an axis."""
    re, im = wd.read(z[:, ::2]), wd.read(z[:, 1::2])
    wd.write(re * re - im * im + N, o[:, ::2])
    wd.write(2 * re * im, o[:, 1::2])


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)], subs={L: 8})
def grouped(x: wd.Memory[M * L, wd.f32], o: wd.Memory[M * L, wd.f32]):
    """Groups of L along a dimension: the factor of the extent is a symbol."""
    own = wd.IndexMapping((M, L), {M * L: wd.index(M) * L + wd.index(L)})
    x = wd.read(x, mapping=own)
    wd.write(x / wd.sum(x, dim=L), o, mapping=own)


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("n", [1, 37, 64])
def test_a_dimension_of_parts_of_arrays_at_run_time(n: int, target: str, oracle: Callable[[str], str]) -> None:
    """That no array is N long ended in a KeyError."""
    z = np.arange(10 * n, dtype=np.float32).reshape(5, 2 * n) % 11 - 5
    for dynamic in ((), (M, N)):
        compiled = agree(squares, [z, np.zeros_like(z)], target, oracle, dynamic=dynamic)
    want = z.view(np.complex64) ** 2 + n
    found = np.zeros_like(z)
    compiled.emulate(z, found)
    np.testing.assert_array_equal(found.view(np.complex64), want)


@pytest.mark.parametrize("target", EVERYWHERE)
def test_a_symbol_as_factor_of_an_extent(target: str, oracle: Callable[[str], str]) -> None:
    """Its value, an int, was asked what sympy's numbers know."""
    x = np.arange(1, 73, dtype=np.float32)
    for dynamic in ((), (M,)):
        agree(grouped, [x, np.zeros_like(x)], target, oracle, dynamic=dynamic)
    found = np.zeros_like(x)
    grouped.evaluate(x, found)
    np.testing.assert_allclose(found.reshape(9, 8).sum(1), np.ones(9), rtol=1e-6)


def test_hidden_extents_of_expressions_are_counted_and_launched_from_c() -> None:
    compiled = grouped.compile(target="sm_90a", dynamic=[M])
    assert [p.source for p in compiled.params if p.source] == ["extent 8*M", "extent M"]
    assert "const int64_t number = (8 * n_M);" in compiled.c_header()
    from wavedsl.analysis.issued import hidden_values

    assert sorted(hidden_values(compiled, {M: 9}).values()) == [9, 72]


def test_extents_of_one_call_agree_with_those_that_follow_from_them() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(K, 32, 1)], dynamic=[M, K])
    def kernel(x: wd.Memory[M, K, wd.f32], s: wd.Memory[M, K / 4, wd.f32], o: wd.Memory[M, K, wd.f32]):
        wd.write(wd.read(x) * wd.repeat_interleave(wd.read(s), K), o)

    x, s = np.ones((4, 32), np.float32), np.ones((4, 8), np.float32)
    compiled = kernel.compile(target="sm_80")
    compiled.emulate(x, s, x.copy())
    with pytest.raises(wd.LaunchError, match=r"`x` has 73 elements along 8\*M, and there is no such M"):
        grouped.compile(target="sm_80", dynamic=[M]).emulate(*np.zeros((2, 73), np.float32))
    with pytest.raises(wd.LaunchError, match="`s` has 9 elements along K/4, which is 8"):
        compiled.emulate(x, np.ones((4, 9), np.float32), x.copy())


def test_extents_along_a_line_need_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch with new extents asks for N of `2 * N`; sympy's solver takes a millisecond."""
    (n,) = wd.symbols("N")
    assert solve(n**2, 49) == 7 and solve(n**2, 48) is None and solve(n // 32, 4) is None

    def never(*args: object, **options: object) -> None:
        raise AssertionError("solved")

    monkeypatch.setattr(sympy, "solve", never)
    for expr, value, wanted in (
        (2 * n, 128, 64), (2 * n, 127, None), (n / 32, 4, 128), (2 * n + 1, 9, 4), (2 * n + 1, 0, None), (6 - n, 2, 4),
    ):  # fmt: skip
        assert solve(expr, value) == wanted, (expr, value)


def test_an_extent_that_does_not_tell_its_symbol() -> None:
    """Of `K // 32`, which sympy's solver ends in an error of its own for."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(x: wd.Memory[M, wd.f32], s: wd.Memory[K // 32, wd.f32]):
        wd.write(wd.read(x) * 2.0, x)

    with pytest.raises(wd.LaunchError, match="K has no value, and 4 elements of argument s"):
        kernel.evaluate(np.ones(16, np.float32), np.ones(4, np.float32))
