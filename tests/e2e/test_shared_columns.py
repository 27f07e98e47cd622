"""Waves share the columns of a product that no constraint cuts, where a wave's registers lack; the next product adds up
what each has of its sums. Against NumPy on the emulator, with its checks for races on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import agree, equal, near

import wavedsl as wd

M, N, K, F, R, BM, BN = wd.symbols("M N K F R BM BN")
TARGETS = ("sm_80", "sm_90a", "gfx90a", "gfx942", "gfx950")
RELU = lambda h: wd.maximum(h, 0.0)  # noqa: E731


def mlp(between: Callable[[Any], Any] = RELU, dtype: wd.DType = wd.f16, step: int = 32, columns: int = 64):
    """y = between(x W1ᵀ) W2ᵀ, all of the hidden dimension F in one workgroup."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, columns, 1), wd.TilingConstraint(K, step)],
        dynamic=[M],
    )
    def kernel(
        x: wd.Memory[M, K, dtype], w1: wd.Memory[F, K, dtype], w2: wd.Memory[N, F, dtype], y: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0)])
        def hidden(acc):
            return wd.mma(wd.read(x), wd.read(w1), acc)

        g = wd.cast(between(hidden), dtype)
        wd.write(wd.mma(g, wd.read(w2), wd.Register[M, N, wd.f32](1.0)), y)

    return kernel


def numbers(sizes: tuple[int, int, int, int], dtype: wd.DType = wd.f16, seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers, so that sums are exact in any order."""
    m, k, f, n = sizes
    rng = np.random.default_rng(seed)
    x, w1, w2 = (rng.integers(-1, 2, s) for s in ((m, k), (f, k), (n, f)))
    return [*(v.astype(dtype.numpy) for v in (x, w1, w2)), np.full((m, n), np.nan, np.float32)]


def test_an_operand_outside_of_loops_gives_up_its_shared_memory() -> None:
    """32 KiB of W2 and 40 KiB of a trip's tiles are more than 64. The last trip ends in its tile, which stays whole."""
    compiled = agree(mlp(step=64), numbers((64, 100, 256, 64)), "gfx942")
    assert compiled.kernel_ir is not None and sorted(compiled.kernel_ir.shared_names) == ["scratch", "w1", "x"]


@pytest.mark.parametrize("target", ["sm_80", "gfx90a"])
def test_what_waves_fetch_themselves_comes_part_by_part(target: str) -> None:
    """128 KiB of W2 find no room in shared memory, nor in registers while the loop runs: its sums take half of them."""
    compiled = agree(mlp(columns=128), numbers((70, 40, 500, 128)), target)
    assert compiled.kernel_ir is not None and "w2" not in compiled.kernel_ir.shared_names
    assert compiled.resources.scratch_bytes == 0


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx950"])
def test_parts_are_added_in_every_trip_of_a_loop(target: str) -> None:
    """The hidden values stay in registers while a loop goes over the columns of the result. Shared memory of 64 KiB has
    no room for both loops' tiles."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(K, 32), wd.TilingConstraint(N, 64)])
    def kernel(
        x: wd.Memory[M, K, wd.f16], w1: wd.Memory[F, K, wd.f16], w2: wd.Memory[N, F, wd.f16], y: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0)])
        def hidden(acc):
            return wd.mma(wd.read(x), wd.read(w1), acc)

        g = wd.cast(RELU(hidden), wd.f16)

        @wd.iterate(N, init_args=[])
        def columns():
            wd.write(wd.mma(g, wd.read(w2), wd.Register[M, N, wd.f32](0.5)), y)

    agree(kernel, numbers((70, 40, 512, 200)), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes", [(64, 64, 512, 64), (70, 40, 500, 72), (130, 32, 456, 8)], ids=str)
def test_the_hidden_dimension_of_two_products(sizes: tuple, target: str, oracle: Callable[[str], str]) -> None:
    """512 columns of 64 rows are 256 registers and more of each lane, all that a wave has."""
    compiled = agree(mlp(), numbers(sizes), target, oracle)
    assert compiled.resources.scratch_bytes == 0


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        *((t, wd.bf16) for t in TARGETS), ("gfx90a", wd.f32), ("gfx942", wd.f32),
        ("gfx942", wd.f8e4m3fnuz), ("gfx950", wd.f8e4m3), ("sm_90a", wd.f8e4m3), ("sm_90a", wd.tf32),
    ],
    ids=str,
)  # fmt: skip
def test_other_elements(target: str, dtype: wd.DType) -> None:
    """Whole numbers up to 16, which all of them have."""
    clamped = mlp(lambda h: wd.clamp(h, -16.0, 16.0), dtype, step=32 if dtype.bits > 8 else 64)
    agree(clamped, numbers((64, 64, 512, 64), dtype), target)


def softmax(h: Any) -> Any:
    e = wd.exp(h - wd.max(h, dim=F))
    return e / wd.sum(e, dim=F)


def normed(h: Any) -> Any:
    centred = h - wd.sum(h, dim=F) / F
    return centred * wd.rsqrt(wd.sum(centred * centred, dim=F) / F + 1e-3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("between", [softmax, normed], ids=["softmax", "norm"])
def test_a_reduction_along_the_columns(between: Callable, target: str) -> None:
    """Waves have parts of each row; what lies beyond its end counts for nothing."""
    arguments = numbers((70, 40, 500, 64))
    arguments[0] = (arguments[0] * 0.25).astype(np.float16)
    agree(mlp(between), arguments, target, compare=near(absolute=2e-2))


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_not_zero_beyond_the_columns(target: str) -> None:
    """exp(0) is 1: of 500 columns the last waves have some that are none."""
    arguments = numbers((64, 32, 500, 64))
    arguments[0] = np.zeros_like(arguments[0])
    agree(mlp(wd.exp), arguments, target)


@pytest.mark.parametrize("target", TARGETS)
def test_columns_that_are_written_as_well(target: str) -> None:
    """The hidden values leave too, with their index and a row's sum: each element by the wave that has it, once."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
    def kernel(
        x: wd.Memory[M, K, wd.f16], w1: wd.Memory[F, K, wd.f16], w2: wd.Memory[N, F, wd.f16],
        h: wd.Memory[M, F, wd.f16], total: wd.Memory[M, wd.f32], most: wd.Memory[F, wd.f32], y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0)])
        def hidden(acc):
            return wd.mma(wd.read(x), wd.read(w1), acc)

        even = wd.where(wd.index(F) % 2 == 0, hidden, -hidden)
        g = wd.cast(even, wd.f16)
        wd.write(g, h)
        wd.write(wd.sum(even, dim=F), total)
        wd.atomic_max(even, most, mapping=wd.IndexMapping((M, F), {F: F}))
        wd.atomic_add(wd.mma(g, wd.read(w2), wd.Register[M, N, wd.f32](0.0)), y)

    x, w1, w2, _ = numbers((70, 40, 500, 64))
    zeros = [np.zeros(s, d) for s, d in (((70, 500), np.float16), (70, np.float32), (500, np.float32))]
    agree(kernel, [x, w1, w2, *zeros, np.ones((70, 64), np.float32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_an_addend_that_is_read_counts_once(target: str) -> None:
    """y += (x W1ᵀ) W2ᵀ: the sums begin with words of an array, in the first wave only. They were added as integers of
    unknown range (TypeError)."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
    def kernel(
        x: wd.Memory[M, K, wd.f16], w1: wd.Memory[F, K, wd.f16], w2: wd.Memory[N, F, wd.f16], y: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0)])
        def hidden(acc):
            return wd.mma(wd.read(x), wd.read(w1), acc)

        wd.write(wd.mma(wd.cast(hidden, wd.f16), wd.read(w2), wd.read(y)), y)

    x, w1, w2, _ = numbers((64, 32, 512, 64))
    agree(kernel, [x, w1, w2, np.full((64, 64), 3, np.float32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_product_in_a_condition(target: str) -> None:
    """All waves of a workgroup take the same way, and add their parts there."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
    def kernel(
        x: wd.Memory[M, K, wd.f16], w1: wd.Memory[F, K, wd.f16], w2: wd.Memory[N, F, wd.f16], on: wd.Memory[R, wd.i32],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0)])
        def hidden(acc):
            return wd.mma(wd.read(x), wd.read(w1), acc)

        def there():
            return wd.mma(wd.cast(RELU(hidden), wd.f16), wd.read(w2), wd.Register[M, N, wd.f32](0.0))

        def not_there():
            return wd.Register[M, N, wd.f32](-1.0)

        tile = wd.tile_start(M) // 64
        chosen = wd.read(on, mapping=wd.IndexMapping((), {R: tile}))
        wd.write(wd.cond(chosen > 0, there, not_there), y)

    x, w1, w2, y = numbers((128, 40, 512, 64))
    compiled = agree(kernel, [x, w1, w2, np.array([0, 1], np.int32), y], target)
    if target == "sm_90a":  # warpgroups add parts in the outermost region alone, warps wherever all meet
        assert "wgmma" not in compiled.asm


@pytest.mark.parametrize("target", TARGETS)
def test_several_products_of_the_same_columns(target: str) -> None:
    """SwiGLU: two products of the columns, and one over them. 64 KiB hold two tiles of 384 columns, and not of 512."""
    columns, rows = (384, 64) if target in ("gfx90a", "gfx942") else (512, 32)

    @wd.wave([wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
    def kernel(
        x: wd.Memory[M, K, wd.f16], gate: wd.Memory[F, K, wd.f16], up: wd.Memory[F, K, wd.f16],
        down: wd.Memory[N, F, wd.f16], y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0), wd.Register[M, F, wd.f32](0.0)])
        def both(g, u):
            tile = wd.read(x)
            return wd.mma(tile, wd.read(gate), g), wd.mma(tile, wd.read(up), u)

        g, u = both
        wd.write(wd.mma(wd.cast(RELU(g) * u, wd.f16), wd.read(down), wd.Register[M, N, wd.f32](0.0)), y)

    rng = np.random.default_rng(2)
    x, gate, up, down = (
        rng.integers(-1, 2, s).astype(np.float16)
        for s in ((40, 32), (columns, 32), (columns, 32), (64, columns))
    )
    agree(kernel, [x, gate, up, down, np.zeros((40, 64), np.float32)], target, compare=equal)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rank", [16, 32, 40, 64])
def test_a_narrow_product_is_no_longer_repeated(rank: int, target: str) -> None:
    """y = x Wᵀ + (x Aᵀ) Bᵀ: of four waves two had the same rows, and each computed their x Aᵀ."""

    @wd.wave([wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 32)])
    def lora(
        x: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, wd.f16], a: wd.Memory[R, K, wd.f16], b: wd.Memory[N, R, wd.f16],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[M, R, wd.f32](0.0)])
        def loop(full, low):
            tile = wd.read(x)
            return wd.mma(tile, wd.read(w), full), wd.mma(tile, wd.read(a), low)

        full, low = loop
        wd.write(wd.mma(wd.cast(low, wd.f16), wd.read(b), full), y)

    rng = np.random.default_rng(rank)
    shapes = ((130, 64), (140, 64), (rank, 64), (140, rank))
    x, w, a, b = (rng.integers(-1, 2, s).astype(np.float16) for s in shapes)
    agree(lora, [x, w, a, b, np.zeros((130, 140), np.float32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_an_operand_behind_loops_that_take_all_shared_memory(target: str) -> None:
    """With nothing left for it no plan was tried at all: an UnboundLocalError."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)])
    def kernel(
        a: wd.Memory[F, K, wd.f32], b: wd.Memory[N, F, wd.f32], hidden: wd.Memory[M, F, wd.f32],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.Register[M, K, wd.f32](1.0), wd.read(a), acc)

        wd.write(loop, hidden)
        wd.write(wd.mma(wd.Register[M, F, wd.f32](2.0), wd.read(b)), y)

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((384, 20), (9, 384)))
    hidden, y = np.zeros((5, 384), np.float32), np.zeros((5, 9), np.float32)
    kernel.compile(a, b, hidden, y, target=target).emulate(a, b, hidden, y)
    np.testing.assert_array_equal(hidden, np.tile(a.sum(1), (5, 1)))
    np.testing.assert_array_equal(y, np.tile(2 * b.sum(1), (5, 1)))
