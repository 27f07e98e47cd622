"""Results that lie in runs of 16 bytes where they are stored, and arithmetic on neighbours of a packed word."""

from __future__ import annotations

import numpy as np
import pytest

import wavedsl as wd

M, N, K = wd.symbols("M N K")
CHIPS = ("gfx90a", "gfx942", "gfx950")


def product(out: wd.DType, b_order: tuple, tile: int = 64):
    constraints = [
        wd.WorkgroupConstraint(M, tile, 0), wd.WorkgroupConstraint(N, tile, 1), wd.TilingConstraint(K, 32),
        wd.WaveConstraint(M, tile // 2), wd.WaveConstraint(N, tile // 2),
    ]  # fmt: skip

    @wd.wave(constraints)
    def gemm(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[(*b_order, wd.SHARED, wd.f16)], c: wd.Memory[M, N, out]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.cast(loop, out) if out is not wd.f32 else loop, c)

    return gemm


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("out", [wd.f16, wd.f32], ids=str)
def test_stores_have_16_bytes_a_lane(chip: str, out: wd.DType) -> None:
    """64 x 64 results on four waves of 32 x 32, and shared memory without conflicts."""
    random = np.random.default_rng(3)
    a, b = (random.integers(-3, 4, (64, 96)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), out.storage)
    made = product(out, (N, K)).compile(a, b, c, target=chip)
    report = made.emulate(a, b, c)
    assert np.array_equal(c.astype(np.float32), a.astype(np.float32) @ b.astype(np.float32).T)
    stores = {name: n for name, n in report.instructions.items() if "store" in name}
    assert stores == {"buffer_store_dwordx4": c.nbytes // 1024}
    assert report.bank_conflicts == 0


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_edges_of_renumbered_rows(chip: str) -> None:
    """Sizes that no tile divides: masks follow the rows, wherever lanes hold them."""
    random = np.random.default_rng(4)
    a, b = (random.integers(-3, 4, (n, 50)).astype(np.float16) for n in (77, 45))
    c = np.full((77, 45), 9, np.float16)
    product(wd.f16, (N, K)).compile(a, b, c, target=chip).emulate(a, b, c)
    assert np.array_equal(c.astype(np.float32), a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("dtype", [wd.bf16, wd.f16], ids=str)
def test_halves_of_a_word_are_added_as_a_pair(dtype: wd.DType) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def row_sum(x: wd.Memory[M, N, dtype], y: wd.Memory[M, wd.f32]):
        wd.write(wd.sum(wd.cast(wd.read(x), wd.f32), dim=N), y)

    x = np.random.default_rng(5).integers(-9, 10, (2, 1024)).astype(dtype.storage)
    y = np.zeros(2, np.float32)
    made = row_sum.compile(x, y, target="gfx942")
    report = made.emulate(x, y)
    assert np.array_equal(y, x.astype(np.float32).sum(1))
    assert report.instructions["v_pk_add_f32"] == 2 * (1024 // 64 // 2 - 1)
